"""Each refusal, and what it says."""

from __future__ import annotations

import numpy as np
import pytest
from tests.engines.cases import problem

import headcount as hc
from headcount.engines import MAP, Laplace, NotConvergedError, PathGibbs, Status, TiltedEP


def test_not_converged_raises_with_residual_and_remedy():
    """Out of iterations: the error names engine, residual, tolerance and remedy, and carries the posterior."""
    with pytest.raises(
        NotConvergedError, match=r"TiltedEP did not converge.*residual.*asked.*strict=False"
    ) as error:
        hc.infer(problem("chain", "poisson", 40), TiltedEP(max_iterations=1))
    assert error.value.status is Status.BUDGET
    assert error.value.residual > 0
    assert error.value.posterior.status is Status.BUDGET


def test_not_strict_marks_the_answer():
    """The same run with strict=False returns an answer whose status is not good and of which no cell is reliable."""
    post = hc.infer(problem("chain", "poisson", 40), TiltedEP(max_iterations=1), strict=False)
    assert not post.status.good
    assert not post.node("mon").reliable.any()
    assert np.isfinite(post.node("mon").mean).all()


def test_a_random_engine_needs_rng():
    """Without a seed the answer could not be got again."""
    with pytest.raises(ValueError, match="PathGibbs is random: give rng"):
        hc.infer(problem("chain", "poisson", 10), PathGibbs())


def test_unknown_scopes():
    """Variables the model does not have, and variables that share no clique, are refused by name."""
    post = hc.infer(problem("chain", "poisson", 40), TiltedEP())
    with pytest.raises(ValueError, match="unknown variable 'sun'"):
        post.node("sun")
    with pytest.raises(ValueError, match="inside one clique"):
        post.edge("mon", "wed")
    with pytest.raises(ValueError, match="level must lie"):
        post.node("mon").interval(1.0)


def test_a_point_estimate_has_no_spread():
    """MAP gives NaN for sd and interval, and refuses covariance and draws, naming who has them."""
    post = hc.infer(problem("chain", "poisson", 40), MAP())
    assert np.isnan(post.node("mon").sd).all()
    assert np.isnan(post.node("mon").interval()["lower"]).all()
    for ask in (post.node("mon").covariance, lambda: post.sample(1, rng=0)):
        with pytest.raises(ValueError, match="TiltedEP"):
            ask()


def test_corners_have_no_curvature():
    """Laplace refuses Laplace noise and names what takes it."""
    with pytest.raises(ValueError, match="LaplaceNoise noise has corners: use TiltedEP or MAP"):
        hc.infer(problem("chain", "laplace", 40), Laplace())


def test_a_mode_at_the_edge_of_the_domain_is_not_passed_off_as_one():
    """Every individual of a sparse cell detected: binomial modes lie at n = y, where Laplace has nothing to expand and says so."""
    model = hc.MarkovChain([0.02, 0.98], [[0.5, 0.5], [0.01, 0.99]], length=3)
    asked = hc.Problem(
        model, 50, [hc.Binomial(np.array([[3.0, 40.0], [2.0, 41.0], [2.0, 44.0]]), detection=0.9)]
    )
    try:
        status = hc.infer(asked, Laplace(), strict=False).status
    except ValueError as refusal:
        assert "edge of a likelihood's domain" in str(refusal)  # noqa: PT017 - either way it speaks
    else:
        assert not status.good
    assert hc.infer(asked, TiltedEP()).status.good
