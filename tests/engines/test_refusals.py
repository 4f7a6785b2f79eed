"""Each refusal, and what it says."""

from __future__ import annotations

import numpy as np
import pytest
from reproduction.rivals import NLBP, EdgeEP
from tests.engines.cases import problem

import headcount as hc
from headcount.engines import (
    MAP,
    Auto,
    Laplace,
    NotConvergedError,
    PathGibbs,
    Status,
    TiltedEP,
    select,
)


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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: TiltedEP(centre="mode"),
            "TiltedEP: centre must be one of 'mean', 'map', 'prior', got 'mode'",
        ),
        (lambda: TiltedEP(centre=0), "centre must be one of"),
        (lambda: TiltedEP(projection="lattices"), "projection must be one of 'lattice', 'line', 'laplace'"),
        (lambda: TiltedEP(damping=5), "damping must be a number above 0 and at most 1, got 5"),
        (lambda: TiltedEP(damping=0), "damping must be a number above 0"),
        (lambda: TiltedEP(tolerance=float("nan")), "tolerance must be a number above 0, got nan"),
        (lambda: TiltedEP(tolerance="1e-5"), "tolerance must be a number above 0, got '1e-5'"),
        (lambda: TiltedEP(max_iterations=0), "max_iterations must be a whole number, at least 1, got 0"),
        (lambda: TiltedEP(max_iterations=10.0), "max_iterations must be a whole number"),
        (lambda: TiltedEP(max_iterations=True), "max_iterations must be a whole number"),
        (lambda: NLBP(adaptive="no"), "NLBP: adaptive must be True or False, got 'no'"),
        (lambda: TiltedEP(damping=2, tolerance=0), "damping must be .*; tolerance must be"),
        *(
            (lambda e=e: e(tolerance=-1), f"{e.name}: tolerance must be")
            for e in (MAP, Laplace, EdgeEP, NLBP)
        ),
        *(
            (lambda e=e: e(max_iterations=None), f"{e.name}: max_iterations must be")
            for e in (MAP, Laplace, EdgeEP, NLBP)
        ),
    ],
)
def test_settings_are_checked_where_they_are_given(make, message):
    """A setting of the wrong type or out of range is refused with what is allowed, all at once."""
    with pytest.raises(ValueError, match=message):
        make()


def test_settings_may_be_numpy_numbers():
    """A numpy scalar is as good as a Python one."""
    assert TiltedEP(damping=np.float64(0.5), max_iterations=np.int64(7)).max_iterations == 7


def test_an_engine_may_be_named():
    """infer(p, "MAP") is infer(p, MAP()); another string, or something else, is refused with the names there are."""
    given = problem("chain", "poisson", 40)
    by_name, by_engine = hc.infer(given, "MAP"), hc.infer(given, MAP())
    assert by_name.settings == by_engine.settings == MAP()
    np.testing.assert_array_equal(by_name.node("mon").mean, by_engine.node("mon").mean)
    for wrong in ("map", "Mode", 7, MAP):
        with pytest.raises(ValueError, match=r"engine is .*names Auto, TiltedEP, MAP, PathGibbs.*Laplace"):
            hc.infer(given, wrong)


@pytest.mark.parametrize("automatic", [None, Auto(), "Auto"])
def test_auto_is_the_default(automatic):
    """Auto() runs, and reports, what None does."""
    given = problem("chain", "poisson", 40)
    post = hc.infer(given, automatic)
    assert post.settings == select(given).engine
    assert post.outcome.info["chosen"].reason == select(given).reason
    np.testing.assert_array_equal(post.node("mon").mean, hc.infer(given).node("mon").mean)


def test_an_engine_by_itself_refuses_what_must_be_reduced_first():
    """`run` takes what engines solve, of a known number where an engine knows no other; `infer` brings problems to that form."""
    model = hc.MarkovChain([0.5, 0.5], np.full((2, 2), 0.5), length=2)
    asked = hc.Problem(model, hc.Between(10, 30), hc.Poisson([[9.0, 11.0], [10.0, 8.0]]))
    with pytest.raises(
        ValueError, match=r"TiltedEP\.run takes what engines solve, problem\.core.*headcount\.infer"
    ):
        TiltedEP().run(asked, rng=np.random.default_rng(0), progress=False)
    with pytest.raises(ValueError, match=r"PathGibbs\.run takes a known number .*headcount\.infer"):
        PathGibbs().run(asked.core, rng=np.random.default_rng(0), progress=False)
    assert hc.infer(asked, TiltedEP()).status.good
