"""Non-linear belief propagation: a damped way to the MAP."""

from __future__ import annotations

import numpy as np
import pytest
from tests.engines.cases import means, problem

import headcount as hc
from headcount.engines import MAP, NLBP, NotConvergedError


def persistent(length=20, seed=0):
    """Individuals who hardly move: every time sees the same counts."""
    model = hc.MarkovChain([0.5, 0.3, 0.2], 0.97 * np.eye(3) + 0.01, length=length)
    return problem(model, "poisson", 300, seed=seed)


def test_without_heavy_damping_it_oscillates():
    """Undamped, twenty looks at the same individuals never settle; damped to a twentieth, they do, at the MAP."""
    asked = persistent()
    assert not hc.infer(asked, NLBP(damping=1.0), strict=False).status.good
    np.testing.assert_allclose(
        means(hc.infer(asked, NLBP(damping=0.05))), means(hc.infer(asked, MAP())), atol=1e-6 * 300
    )


def test_adaptive_damping_finds_its_own_pace():
    """Started undamped, the adaptive variant still reaches the MAP."""
    asked = persistent()
    post = hc.infer(asked, NLBP(damping=1.0, adaptive=True))
    np.testing.assert_allclose(means(post), means(hc.infer(asked, MAP())), atol=1e-6 * 300)


def test_its_value_is_that_of_the_map():
    """N [A(θ+g) − A(θ)] + Σ [log l(y | n) − g n] at the fixed point is the optimum of MAP."""
    asked = problem("chain", "poisson", 40)
    assert hc.infer(asked, NLBP()).log_evidence == pytest.approx(
        hc.infer(asked, MAP()).log_evidence, abs=1e-6
    )


def test_it_gives_a_point_and_says_so():
    """No spread, no draws; the promises of a law hold."""
    post = hc.infer(problem("chain", "poisson", 40), NLBP())
    assert np.isnan(post.node("mon").sd).all()
    assert post.promises.non_negative
    assert post.promises.consistent
    with pytest.raises(ValueError, match="TiltedEP"):
        post.sample(1, rng=0)


def test_refusals():
    """Exact and cornered noise have no slope; a damping outside (0, 1] is no damping; running out of iterations raises."""
    for noise in ("exact", "laplace"):
        with pytest.raises(ValueError, match="use MAP"):
            hc.infer(problem("chain", noise, 40), NLBP())
    with pytest.raises(ValueError, match="damping must be a number above 0 and at most 1"):
        NLBP(damping=0.0)
    with pytest.raises(NotConvergedError, match="residual"):
        hc.infer(persistent(), NLBP(max_iterations=3))
