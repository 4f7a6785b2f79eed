"""Laws of the check of fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import headcount as hc
from headcount import simulate
from headcount.engines import MAP
from headcount.posterior import fit_check as fit_check_module
from headcount.posterior.fit_check import fit_check, prior_moments, quadratic


def world(kind: str, flock: int, seed: int, *, population: int = 480, steps: int = 10) -> hc.Problem:
    """16 cells; flocks that move as one, explained by a model in which everybody moves alone."""
    made = hc.simulate.birds(4, (1.0, 2.0, 2.0, 2.0), population // flock, steps=steps, rng=seed)
    rng = np.random.default_rng(seed + 1000)
    n = flock * np.asarray(made.counts)
    seen = {
        "poisson": lambda: hc.Poisson(rng.poisson(n)),
        "binomial": lambda: hc.Binomial(rng.binomial(n, 0.5), detection=0.5),
        "exact": lambda: hc.Exact(n),
        "gaussian": lambda: hc.Gaussian(n + rng.normal(0, 3, n.shape), sd=3.0),
    }
    return hc.Problem(made.model, population, seen[kind]())


@pytest.mark.parametrize("kind", ["poisson", "binomial", "exact", "gaussian"])
def test_flocks_of_four_are_noticed_and_measured_and_single_birds_are_not(kind: str) -> None:
    """The estimate of the dispersion is unbiased: 1 for single birds, 4 for flocks of four.

    Error rate: the mean of six estimates is further off than four of its standard errors (0.12 and 0.6 of one estimate's sd 0.3 and
    1.1 at most) with probability below 1e-3 per case; seeds are fixed.
    """
    alone = [fit_check(world(kind, 1, seed)) for seed in range(6)]
    flocks = [fit_check(world(kind, 4, seed)) for seed in range(6)]
    assert all(check.agrees for check in alone)
    assert all(check.agrees is False for check in flocks)
    assert np.mean([check.dispersion for check in alone]) == pytest.approx(1.0, abs=0.4)
    assert np.mean([check.dispersion for check in flocks]) == pytest.approx(4.0, abs=1.2)
    assert np.mean([check.residual_dispersion for check in alone]) == pytest.approx(1.0, abs=0.15)
    assert "too narrow by about a factor of" in flocks[0].verdict
    assert 'dispersion="estimate"' in flocks[0].verdict


def test_pit_is_uniform_under_the_model_and_not_under_flocks() -> None:
    """The randomised PIT has mean ½ and variance 1/12 (± 3 standard errors of 960 values) under the model; flocks widen it."""
    alone = np.concatenate([fit_check(world("poisson", 1, seed)).pit for seed in range(6)])
    flocks = np.concatenate([fit_check(world("poisson", 4, seed)).pit for seed in range(6)])
    alone, flocks = alone[np.isfinite(alone)], flocks[np.isfinite(flocks)]
    assert alone.min() >= 0
    assert alone.max() <= 1
    assert alone.mean() == pytest.approx(0.5, abs=0.03)
    assert alone.var() == pytest.approx(1 / 12, abs=0.008)
    assert flocks.var() > 0.1


@pytest.mark.parametrize("kind", ["poisson", "gaussian"])
def test_predictions_are_conditional_means(kind: str) -> None:
    """A count's expectation and sd are those of the joint Gaussian with the exact moments, given all other counts."""
    problem = world(kind, 1, 3, population=5000, steps=3)
    law = hc.population.CGM(problem.model, 5000)
    times = problem.model.variables
    cov = np.block([[law.covariance((s,), (t,)) for t in times] for s in times])
    mean = np.concatenate([law.mean((t,)) for t in times])
    check = fit_check(problem)
    y = check.observed
    s = cov + (
        np.diag(np.maximum(mean, fit_check_module.LEAST_NOISE)) if kind == "poisson" else 9.0 * np.eye(len(y))
    )
    k = 20
    others = np.delete(np.arange(len(y)), k)
    gain = np.linalg.solve(s[np.ix_(others, others)], s[others, k])
    # Where nobody can be, the weights have a least noise: hence 1e-3 and not rounding.
    assert check.expected[k] == pytest.approx(mean[k] + gain @ (y - mean)[others], rel=1e-3)
    assert check.sd[k] ** 2 == pytest.approx(s[k, k] - gain @ s[others, k], rel=1e-3)
    assert check.residual[k] == pytest.approx((y[k] - check.expected[k]) / check.sd[k])


def test_totals_that_contradict_the_population_are_said_with_the_population_they_imply() -> None:
    """Counts of 480 individuals explained as 600: the check says so, and names 480 within four standard errors."""
    right = world("poisson", 1, 1)
    check = fit_check(hc.Problem(right.model, 600, right.observations))
    assert check.agrees is False
    assert check.implied_population is not None
    assert check.population_sd is not None
    assert check.implied_population == pytest.approx(480, abs=4 * check.population_sd)
    assert f"imply a population of {check.implied_population:,.0f}" in check.verdict
    same = fit_check(right).implied_population
    assert same == pytest.approx(check.implied_population)


def test_exact_margins_are_checked_step_by_step() -> None:
    """One step in which everybody moved against the model is found: its p-value is the only small one."""
    stay = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], length=5)
    check = fit_check(
        hc.Problem(stay, 1000, hc.Exact([[500, 500], [504, 496], [496, 504], [700, 300], [660, 340]]))
    )
    small = [variable for variable, _, p in check.steps if p < 1e-6]
    assert small == [3]
    assert check.agrees is False
    assert check.expected.reshape(5, 2)[3] == pytest.approx([0.9 * 496 + 0.1 * 504, 0.1 * 496 + 0.9 * 504])
    variance = 0.09 * 1000
    assert check.residual.reshape(5, 2)[3, 0] == pytest.approx((700 - 496.8) / np.sqrt(variance))


def test_reliable_takes_the_check_into_account_and_the_answer_says_it() -> None:
    """Where the data disagree, no interval is reliable; repr and provenance carry the verdict."""
    good, bad = hc.infer(world("poisson", 1, 2)), hc.infer(world("poisson", 4, 2))
    assert good.to_frame("nodes").reliable.any()
    open_cells = bad.problem.model.marginal((5,)) > 0
    assert open_cells.any()
    assert not bad.node(5).reliable.values[open_cells].any()
    assert bad.fit_check.verdict in repr(bad)
    attributes = bad.to_xarray().attrs
    assert "disagree" in attributes["fit_check"]


def test_the_check_is_the_same_for_every_engine() -> None:
    """It concerns the data and the model: MAP, which has no spread, gives the same numbers."""
    problem = world("poisson", 4, 0, steps=4)
    one, other = hc.infer(problem).fit_check, hc.infer(problem, MAP()).fit_check
    assert one.verdict == other.verdict
    assert one.dispersion == other.dispersion


def test_long_data_are_checked_in_windows() -> None:
    """960 counts are more than one window; flocks of four are still found, single birds still agree."""
    assert fit_check_module.WINDOW < 60 * 16
    assert fit_check(world("poisson", 1, 0, steps=60)).agrees
    check = fit_check(world("poisson", 4, 0, steps=60))
    assert check.agrees is False
    assert check.dispersion == pytest.approx(4.0, abs=1.5)
    assert len(check.pit) == 60 * 16


def test_other_graphs_sums_and_missing_counts() -> None:
    """A network that is no tree, with sums and a table on two variables, agrees with counts drawn from it."""
    tables = {
        ("a", "b"): np.array([[2.0, 1], [1, 3]]),
        ("b", "c"): np.array([[1.0, 2], [2, 1]]),
        ("c", "a"): np.array([[3.0, 1], [1, 1]]),
    }
    model = hc.DiscreteModel({v: ["no", "yes"] for v in "abc"}, {k: np.log(v) for k, v in tables.items()})
    rng = np.random.default_rng(0)
    drawn = hc.simulate.population(model, 3000, rng=1).tables
    seen = [
        hc.Poisson(rng.poisson(drawn.table(("a", "b"))).astype(float), on=("a", "b")),
        hc.Poisson([float(rng.poisson(drawn.table(("c",)).sum()))], on="c", sums=[[1, 1]]),
        hc.Poisson([np.nan, float(rng.poisson(drawn.table(("c",))[1]))], on="c"),
    ]
    check = fit_check(hc.Problem(model, 3000, seen))
    assert check.agrees
    assert len(check.to_frame()) == 6


@dataclass(frozen=True, eq=False, kw_only=True)
class Mute(hc.Observation):
    """A noise of a user's own, without a `sample`."""

    def log_prob(self, n):
        return -0.5 * (self.counts - n) ** 2


@dataclass(frozen=True, eq=False, kw_only=True)
class Loud(Mute):
    """The same with a `sample`."""

    def sample(self, n, *, rng):
        return n + rng.normal(size=np.shape(n))


def test_a_noise_of_the_users_own_is_checked_by_its_draws_or_said_to_be_unchecked() -> None:
    """Moments come from `sample`; without it the check says that nothing was checked and marks nothing as wrong."""
    chain = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], length=3)
    counts = [[50.0, 50.0], [48.0, 51.0], [51.0, 50.0]]
    mute, loud = (fit_check(hc.Problem(chain, 100, noise(counts))) for noise in (Mute, Loud))
    assert mute.agrees is None
    assert "Not checked" in mute.verdict
    assert loud.agrees
    far = fit_check(hc.Problem(chain, 100, Loud([[50.0, 50.0], [90.0, 10.0], [5.0, 95.0]])))
    assert far.agrees is False


def test_nothing_observed_is_not_checked() -> None:
    """No counts, no verdict, no complaint."""
    chain = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], length=3)
    assert fit_check(hc.Problem(chain, 100)).agrees is None


@pytest.mark.parametrize(
    "noise",
    [
        hc.Poisson([3.0, 4.0], rate=0.5, background=2.0),
        hc.Binomial([3.0, 4.0], detection=0.3),
        hc.NegativeBinomial([3.0, 4.0], dispersion=5.0),
        hc.Gaussian([3.0, 4.0], sd=2.0),
        hc.LaplaceNoise([3.0, 4.0], scale=1.5),
        hc.Exact([3.0, 4.0]),
    ],
    ids=lambda noise: type(noise).__name__,
)
def test_moments_of_a_noise_are_those_of_its_draws(noise: hc.Observation) -> None:
    """Mean and variance of 40 000 draws, to 5 %."""
    n = np.array([20.0, 50.0])
    draws = noise.sample(np.broadcast_to(n, (40_000, 2)), rng=np.random.default_rng(1))
    mean, variance = noise.moments(n)
    assert draws.mean(axis=0) == pytest.approx(mean, rel=0.02)
    assert draws.var(axis=0) == pytest.approx(variance, rel=0.05)


@pytest.mark.parametrize("dispersion", [hc.Flocks(5), hc.Overdispersion(phi=4), hc.Overdispersion(rho=0.02)])
@pytest.mark.parametrize("kind", ["poisson", "exact"])
def test_those_who_move_together_are_checked_by_their_own_scatter(dispersion: object, kind: str) -> None:
    """20 worlds with the true dispersion in the model: 1 on average, at most two warnings; ignored beside exact counts, it is noticed.

    Measured in 300 worlds each: 0.7 % warn alone, 1.0 to 1.3 % overdispersed, so that three of 20 have probability .001.
    """
    model = hc.MarkovChain([0.5, 0.3, 0.2], [[0.8, 0.1, 0.1], [0.1, 0.7, 0.2], [0.1, 0.3, 0.6]], length=8)
    noise = hc.Exact if kind == "exact" else hc.Poisson
    aware, ignoring = [], []
    for seed in range(20):
        world = simulate.population(
            model, 5000, dispersion=dispersion, observe=getattr(simulate, kind)(), rng=seed
        )
        problem = hc.Problem(model, 5000, [noise(world.observed)])
        aware.append(fit_check(problem.with_dispersion(dispersion)))
        ignoring.append(fit_check(problem))
    # 8 steps of 2 degrees of freedom: sd √(2/16) per world, with noise up to twice that.
    assert np.mean([check.dispersion for check in aware]) == pytest.approx(1.0, abs=0.35)
    assert sum(check.agrees is False for check in aware) <= 2
    if kind == "exact":
        assert sum(check.agrees is False for check in ignoring) >= 14


@pytest.mark.parametrize("dispersion", [hc.Flocks(3), hc.Overdispersion(phi=[2.0, 5.0], initial=4.0)])
def test_prior_moments_of_overdispersion_are_those_of_the_structure(dispersion: object) -> None:
    """Node counts by the recursion over steps, flows by the structure: one covariance."""
    model = hc.MarkovChain([0.6, 0.4], [[0.8, 0.2], [0.3, 0.7]], length=4)
    nodes = hc.Problem(model, 100, [hc.Poisson(np.full((4, 2), 50.0))], dispersion=dispersion)
    prior = hc.infer(hc.Problem(model, 100, dispersion=dispersion))
    mean, covariance = prior_moments(nodes.core, nodes.sites)
    found = np.block([[prior.beliefs.covariance((a,), (b,)) for b in range(4)] for a in range(4)])
    np.testing.assert_allclose(covariance, found, atol=1e-10)
    np.testing.assert_allclose(mean, np.concatenate([100 * model.marginal((t,)) for t in range(4)]))
    flows = hc.Problem(
        model, 100, [hc.Poisson([[40.0, 10.0], [20.0, 30.0]], on=(1, 2))], dispersion=dispersion
    )
    np.testing.assert_allclose(
        prior_moments(flows.core, flows.sites)[1], prior.beliefs.covariance((1, 2), (1, 2)), atol=1e-10
    )


def test_the_skewness_of_a_quadratic_form_is_that_of_gaussian_draws():
    """Σ λ² and Σ λ³ of the eigenvalues of MS: sd² = 2 Σ λ², third cumulant 8 Σ λ³; chi-squared with k degrees has √(8/k)."""
    for k in (1, 4, 25):
        far = np.full(k, 10.0)  # far above the mean, where the skewness is worked out
        found = fit_check_module.tested(np.eye(k), quadratic(np.eye(k)), far, None)
        assert found.mean == pytest.approx(k)
        assert found.sd == pytest.approx(np.sqrt(2 * k))
        assert found.skewness == pytest.approx(np.sqrt(8 / k))


def test_prior_moments_go_on_from_the_last_that_were_asked_for() -> None:
    """Times asked for one after the other, or back again, have the moments that each has by itself."""
    model = hc.MarkovChain([0.6, 0.4], [[0.8, 0.2], [0.3, 0.7]], length=6)
    problem = hc.Problem(model, 100, [hc.Poisson(np.full((6, 2), 50.0))], dispersion=hc.Flocks(3))
    reached: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for time in (1, 2, 5, 0, 3):
        site = [s for s in problem.sites if s.scope == (time,)]
        for found, alone in zip(
            prior_moments(problem.core, site, reached), prior_moments(problem.core, site), strict=True
        ):
            np.testing.assert_allclose(found, alone, rtol=1e-12)
        assert list(reached) == [time]


def test_too_few_counts_for_an_agreement_can_still_disagree() -> None:
    """A learned initial law leaves two of three counts free: totals 100 standard errors off are said, ordinary ones are not checked."""
    chain = hc.MarkovChain(None, [[0.9, 0.1], [0.1, 0.9]], length=2)
    off = hc.infer(
        hc.Problem(chain, 1_000_000, hc.Poisson([[500_000, 400_000], [600_000, np.nan]]))
    ).fit_check
    assert off.agrees is False
    assert "imply a population of 900,000 ± 1,000, not 1,000,000" in off.verdict
    assert "dispersion" not in off.verdict  # which changes no total
    plain = hc.infer(hc.Problem(chain, 1000, hc.Poisson([[500, 520], [510, np.nan]]))).fit_check
    assert plain.agrees is None
    assert plain.verdict.startswith("Not checked: 1 learned parameters leave fewer than 3 of 3 counts free")


def test_counts_of_those_who_cannot_move_are_checked_by_their_noise() -> None:
    """One cell: noise as declared disagrees in at most 4 of 100 worlds (level 1 %: P < .004), a rate that varies by half in most."""
    rng, cell, n = np.random.default_rng(3), hc.MarkovChain([1.0], [[1.0]], length=8), 60
    said = {"true": 0, "varies": 0}
    for _ in range(100):
        for kind, rate in (("true", 1.0), ("varies", rng.gamma(4.0, 0.25, (8, 1)))):
            check = hc.infer(
                hc.Problem(cell, n, hc.Poisson(rng.poisson(n * rate * np.ones((8, 1)))))
            ).fit_check
            said[kind] += check.agrees is False
            if kind == "varies" and check.agrees is False and "imply" not in check.verdict:
                assert check.advice[0].kind == "noise"
    assert said["true"] <= 4
    assert said["varies"] >= 90


def test_a_number_found_from_one_count_agrees_with_nothing() -> None:
    """An unknown number takes a count: of one or three nothing is left that could disagree, of twelve ten are."""
    chain = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], length=6)
    for rows, agrees in ((1, None), (6, True)):
        seen = np.full((6, 2), np.nan)
        seen[:rows] = [[7, 9], [8, 9], [9, 8], [7, 8], [8, 9], [9, 7]][:rows]
        found = hc.infer(hc.Problem(chain, hc.Unknown(), hc.Binomial(seen, detection=0.5))).fit_check
        assert found.agrees is agrees, found.verdict


def test_a_count_with_a_parameter_to_itself_makes_no_warning() -> None:
    """One time, binomial counts, the initial law learned from them: nothing is left of one count, and nothing is said but that."""
    model = hc.MarkovChain(None, np.eye(3), length=1)
    found = hc.infer(hc.Problem(model, 1000, hc.Binomial([[180, 210, np.nan]], detection=0.6))).fit_check
    assert found.agrees is None


def test_no_dispersion_is_advised_where_moves_scatter_too_little() -> None:
    """Nobody moves and readings jump: a dispersion of moves would be none, so it is not advised."""
    y = np.array([10.0, 50.0, 30.0, 5.0, 55.0, 30.0])
    still = hc.MarkovChain([0.5, 0.5], np.eye(2), length=6)
    check = hc.infer(hc.Problem(still, 60, hc.Poisson(np.stack([y, y[::-1]], axis=1)))).fit_check
    assert check.agrees is False
    assert "dispersion" not in check.verdict
