"""Laws of posteriors after a fit: what was learned is not known."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit

import headcount as hc
from headcount.learn import LearnRate, LogisticChain, TabularChain, _uncertainty, fit
from headcount.posterior import MixtureBeliefs
from headcount.posterior.derived import IntegratedBeliefs
from headcount.posterior.fit_check import fit_check

NAN = float("nan")


def stayers(population: int = 30) -> tuple[LogisticChain, hc.Problem]:
    """Two cells, three times; one weight, on staying."""
    chain = hc.MarkovChain([0.8, 0.2], np.full((2, 2), 0.5), length=3)
    share = population / 30
    seen = hc.Poisson(np.rint(share * np.array([[NAN, NAN], [20.0, 9.0], [16.0, 15.0]])))
    return LogisticChain(np.eye(2)[None], names=["stay"], ridge=1.0), hc.Problem(chain, population, seen)


def test_spread_is_that_of_the_integral_over_the_parameter() -> None:
    """With exact E-steps, sds are those of ∫ p(n | y, w) p(w | y) dw by quadrature, to 5 %; the plug-in's are narrower."""
    setting, problem = stayers(120)
    found = fit(setting, problem, hc.engines.Enumerate())
    family = setting.bind(problem.model)
    grid = found.working + np.linspace(-5, 5, 41)[:, None] * found.standard_errors.values
    at = [hc.infer(family.apply(w, problem), hc.engines.Enumerate()) for w in grid]
    height = np.array([p.log_evidence - 0.5 * float(w @ w) for p, w in zip(at, grid, strict=True)])
    weight = np.exp(height - height.max())
    weight /= weight.sum()
    for scope in ((0,), (2,), (0, 1), (1, 2)):
        means = np.array([p.beliefs.mean(scope) for p in at])
        variances = np.array([p.beliefs.variance(scope) for p in at])
        middle = np.tensordot(weight, means, 1)
        sd = np.sqrt(np.tensordot(weight, variances + (means - middle) ** 2, 1))
        assert found.posterior.sd_table(scope) == pytest.approx(sd, rel=0.05)
        if scope == (0, 1):
            assert (found.plug_in.sd_table(scope) < 0.8 * sd).all()


def test_everything_a_posterior_answers_is_answered() -> None:
    """Covariances agree with variances, draws with both; tables, sums, files and the check of fit are there, whole draws sum to N."""
    setting, problem = stayers(3000)
    post = fit(setting, problem).posterior
    assert isinstance(post.beliefs, IntegratedBeliefs)
    covariance = post.edge(0, 1).covariance()
    assert np.sqrt(np.diag(covariance)) == pytest.approx(post.edge(0, 1).sd.values.ravel())
    whole = post.sample(2000, rng=1, integer=True)
    assert (whole[(0, 1)].sum(("0", "1")) == 3000).all()
    assert (whole[(0, 1)].sum("0").values == whole[(1, 2)].sum("2").values).all()
    for draws in (whole, post.sample(2000, rng=1)):
        assert draws[(0, 1)].std("draw").values == pytest.approx(post.edge(0, 1).sd.values, rel=0.1)
    assert post.total({0: [1.0, 1.0]}).sd == pytest.approx(0.0, abs=1e-3)
    said = post.to_xarray().attrs["parameters"]
    assert (
        said == "learned, their uncertainty included: Gaussian around the maximum under a prior of their own"
    )
    assert {"nodes", "flows"} <= set(post.to_xarray().children)


def test_plug_in_on_request_and_without_standard_errors() -> None:
    """`parameters="plug-in"` takes the estimate for the truth, and says so; other words are refused."""
    setting, problem = stayers(300)
    found = fit(setting, problem)
    for other in (fit(setting, problem, parameters="plug-in"), fit(setting, problem, standard_errors=False)):
        assert other.posterior.sd_table((0, 1)) == pytest.approx(found.plug_in.sd_table((0, 1)), rel=1e-3)
        assert "not included" in other.posterior.outcome.info["parameters"]
    assert (found.posterior.sd_table((0, 1)) > 1.2 * found.plug_in.sd_table((0, 1))).all()
    with pytest.raises(ValueError, match="plug-in"):
        fit(setting, problem, parameters="known")  # type: ignore[arg-type]


def test_a_direction_the_data_leave_open_widens_intervals_and_stops_nothing() -> None:
    """One total at the second time says nothing about who moved: flows have intervals of hundreds, the totals seen stay narrow."""
    chain = hc.MarkovChain([0.5, 0.5], np.full((2, 2), 0.5), length=2)
    problem = hc.Problem(chain, 1000, hc.Poisson([[NAN, NAN], [560.0, 440.0]]))
    found = fit(TabularChain(), problem, prior=None)
    assert found.unidentified
    assert (found.posterior.edge(0, 1).sd.values > 5 * found.plug_in.edge(0, 1).sd.values).all()
    assert (found.posterior.edge(0, 1).sd.values < 250).all()  # half of the 500 that begin in each cell
    assert (
        found.posterior.node(1).sd.values < 1.05 * np.hypot(11.1, 11.1)
    ).all()  # prior gone: counting noise only


def test_maxima_are_mixed_by_their_evidence() -> None:
    """Two maxima with probability ½ each: the mean lies between, the spread spans both."""
    setting, problem = stayers(300)
    found = fit(setting, problem)
    one = found.posterior
    other = fit(setting, problem, start={"stay": 0.0}, parameters="plug-in").posterior
    shifted = IntegratedBeliefs(
        other.beliefs, other.problem, lambda scope: np.ones((np.prod(problem.model.size(scope)), 1)), None, {}
    )
    both = MixtureBeliefs([one.beliefs, shifted], np.array([0.5, 0.5]), None, {})
    v, w = one.beliefs.variance((0, 1)), shifted.variance((0, 1))
    gap = one.beliefs.mean((0, 1)) - shifted.mean((0, 1))
    assert both.variance((0, 1)) == pytest.approx(0.5 * (v + w) + 0.25 * gap**2)
    assert np.diag(both.covariance((0, 1), (0, 1))).reshape(2, 2) == pytest.approx(both.variance((0, 1)))
    drawn = both.sample(400, rng=np.random.default_rng(0), integer=True)
    assert (drawn[(0, 1)].sum(axis=(1, 2)) == 300).all()
    assert both.promises.non_negative


def test_a_second_maximum_is_part_of_the_posterior() -> None:
    """Totals of 3 origins and 2 destinations have several maxima, each with probabilities of zero and one: the posterior mixes them."""
    cells = [("a", "b", "c"), ("x", "y")]
    chain = hc.MarkovChain([0.5, 0.3, 0.2], [np.full((3, 2), 0.5)], times=["before", "after"], cells=cells)
    counts = [hc.Exact([50, 30, 20], on="before"), hc.Exact([40, 60], on="after")]
    found = fit(TabularChain(), hc.Problem(chain, 100, counts), prior=None)
    beliefs = found.posterior.beliefs
    assert isinstance(beliefs, MixtureBeliefs)
    assert beliefs.weights.sum() == pytest.approx(1)
    assert beliefs.weights[0] > beliefs.weights[1] > np.exp(-5)
    flows, narrow = (p.edge("before", "after") for p in (found.posterior, found.plug_in))
    assert (flows.sd.values > 2 * narrow.sd.values).any()
    assert flows.mean.sum("before").values == pytest.approx([40, 60])
    assert "mixed by their evidence" in found.posterior.outcome.info["parameters"]


def test_fewer_columns_give_the_same_variance_on_average() -> None:
    """Responses that would not fit in memory are mixed at random: sums of squares keep their expectation."""
    mixing = _uncertainty._sketched(40, 4000)
    assert np.diag(mixing.T @ mixing) == pytest.approx(np.ones(40))
    squares = (mixing @ np.ones(40)) ** 2
    assert squares.sum() == pytest.approx(40, rel=0.1)


def test_the_check_of_fit_knows_what_was_learned() -> None:
    """Whatever estimate was found, the dispersion is the same to first order: what the parameters explain is left out."""
    world = hc.simulate.birds(4, (1.0, 2.0, 2.0, 2.0), 480, steps=10, rng=3)
    problem = hc.Problem(world.model, 480, hc.Poisson(world.observed))
    setting = LogisticChain(world.features)
    found = fit(setting, problem)
    check = found.posterior.fit_check
    tangent = found.posterior.outcome.learned
    shifted = setting.bind(world.model).apply(found.working + np.array([0.0, 0.4, 0.0, 0.0]), problem)
    moved, naive = fit_check(shifted, learned=tangent), fit_check(shifted)
    assert check.agrees
    assert naive.dispersion > check.dispersion + 0.2
    assert abs(moved.dispersion - check.dispersion) < 0.3 * (naive.dispersion - check.dispersion)


def test_a_learned_rate_is_no_fault_of_the_population() -> None:
    """A rate learned from the totals agrees with them: the check does not call them wrong."""
    world = hc.simulate.birds(4, (1.0, 2.0, 2.0, 2.0), 480, steps=6, rng=3)
    seen = hc.Poisson(
        np.random.default_rng(1).poisson(0.5 * np.asarray(world.counts)).astype(float), rate=1.0
    )
    found = fit(LearnRate(LogisticChain(world.features)), hc.Problem(world.model, 480, seen))
    assert found.posterior.fit_check.agrees


def test_moments_at_an_edge_are_those_of_the_evidence() -> None:
    """With the evidence (1 − p)ⁿ a probability at its edge has the law Beta(1, n + 1), to the coarseness of the grid."""
    n = 400

    def at(x: np.ndarray) -> SimpleNamespace:
        p = expit(x[0])
        return SimpleNamespace(x=x, value=n * np.log1p(-p), gradient=np.zeros(1), excess=0.0, starts=None)

    expect = SimpleNamespace(several=lambda points, starts: [at(x) for x in points])
    now = -14.0
    mean, sd = _uncertainty._edge_moments(expect, at(np.array([now])), np.ones(1), now)
    assert mean == pytest.approx(1 / (n + 2), rel=0.05)
    assert sd == pytest.approx(np.sqrt((n + 1) / ((n + 2) ** 2 * (n + 3))), rel=0.1)
