"""Data that pin counts down, or contradict the model: exact margins, sharp readings, single individuals."""

from __future__ import annotations

import numpy as np
import pytest

import headcount as hc
from headcount.engines import Enumerate, TiltedEP, select
from headcount.engines._tilting import Tilts
from headcount.engines.tilted._centre import Roles, meet_exact_margins

STAYS = [[0.9975, 0.0025], [0.0025, 0.9975]]


def agrees(problem, *, mean, evidence, engine=None):
    """The engine's means and evidence are within so much of the exact ones."""
    exact, got = hc.infer(problem, Enumerate()), hc.infer(problem, engine or TiltedEP())
    for v in problem.model.variables:
        np.testing.assert_allclose(got.beliefs.mean((v,)), exact.beliefs.mean((v,)), atol=mean)
    assert got.log_evidence == pytest.approx(exact.log_evidence, abs=evidence)
    return got


def test_a_wild_count_beside_an_exact_margin():
    """Counts a hundred times too high at one time, the truth at the next: around the most probable counts this was 21 off."""
    model = hc.MarkovChain([0.3625, 0.6375], STAYS, length=3)
    wild = hc.NegativeBinomial([80340.0, 716060.0], dispersion=2.0, rate=100.0, background=0.2, on=0)
    problem = hc.Problem(model, 900, [wild, hc.Exact([310.0, 590.0], on=1)])
    got = agrees(problem, mean=0.01, evidence=0.01)
    assert got.promises.non_negative
    np.testing.assert_allclose(got.beliefs.mean((1,)), [310, 590], atol=1e-8)
    assert select(problem).engine == Enumerate()  # what the exact margin leaves open is summed over


@pytest.mark.parametrize("population", [7, 30])
def test_count_noise_on_both_sides_of_an_exact_margin(population):
    rng = np.random.default_rng(population)
    model = hc.MarkovChain([0.5, 0.3, 0.2], rng.dirichlet(np.ones(3), size=3), length=3)
    n = [np.bincount(x, minlength=3).astype(float) for x in model.sample(population, rng=rng).T]
    seen = hc.Poisson({t: rng.poisson(n[t]).astype(float) for t in (0, 2)})
    agrees(hc.Problem(model, population, [seen, hc.Exact(n[1], on=1)]), mean=0.1, evidence=0.25)


def test_tilts_hold_exact_margins_whatever_the_others_are():
    rng = np.random.default_rng(5)
    model = hc.MarkovChain(rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4), size=4), length=3)
    y = np.array([10.0, 0.0, 25.0, 5.0])
    problem = hc.Problem(model, 40, [hc.Poisson({0: np.ones(4), 2: np.ones(4)}), hc.Exact(y, on=1)])
    roles = Roles.of(Tilts(problem.core))
    g = rng.normal(size=12)
    g[8 + 1] = -np.inf  # an exact zero
    new = meet_exact_margins(roles, g)
    np.testing.assert_array_equal(new[~roles.exact], g[~roles.exact])
    np.testing.assert_allclose(roles.tilts.evaluate(new)[1][roles.exact], y, atol=1e-8)


@pytest.mark.parametrize("sd", [0.1, 0.3, 0.7])
def test_sharp_readings_are_of_whole_numbers(sd):
    """A reading with an sd of .3 says which whole number it was; on the line it says what it says."""
    model = hc.MarkovChain([0.5, 0.5], STAYS, length=3)
    problem = hc.Problem(model, 80, [hc.Gaussian([27.2, 53.1], sd=sd, on=1)])
    got, exact = agrees(problem, mean=0.03, evidence=0.5), hc.infer(problem, Enumerate())
    spread, wanted = (np.sqrt(p.beliefs.variance((1,))) for p in (got, exact))
    assert (
        wanted - 1e-3 <= spread
    ).all()  # on the safe side: a Gaussian's width where whole numbers leave none,
    assert (spread <= max(sd, 0.3)).all()  # but so that 90 % round to one number
    line = hc.infer(problem, TiltedEP(projection="line")).beliefs.mean((1,))
    assert (np.abs(line - exact.beliefs.mean((1,))).max() > 0.05) == (sd < 0.5)


def test_blunt_readings_need_no_whole_numbers():
    model = hc.MarkovChain([0.5, 0.5], STAYS, length=3)
    problem = hc.Problem(model, 80, [hc.Gaussian([27.2, 53.1], sd=1.5, on=1)])
    assert not Roles.of(Tilts(problem.core), whole=True).active.any()


def test_hard_weights_converge():
    """Single individuals between two cells: sweeps linger here, and mixing them once led back to where they came from."""
    world = hc.simulate.birds(side=10, weights=(5, 10, 10, 10), population=1000, rng=46)
    got = hc.infer(hc.Problem(world.model, 1000, [hc.Poisson(world.observed)]), TiltedEP())
    assert got.status.good
    assert got.outcome.iterations < 200
    assert min(float(got.beliefs.mean((v,)).min()) for v in world.model.variables) >= 0.0


def test_exact_margins_are_met_where_nothing_else_moves_the_centre():
    """The second time is determined by the model; the first must be as it was seen."""
    population = 10**6
    model = hc.MarkovChain([0.5, 0.5], [[0.0, 1.0], [0.0, 1.0]], length=2)
    seen = [hc.Exact([2e5, 8e5], on=0), hc.LaplaceNoise([0.0, population + 0.5], scale=1.0, on=1)]
    got = hc.infer(hc.Problem(model, population, seen), TiltedEP())
    np.testing.assert_allclose(got.beliefs.mean((0,)), [2e5, 8e5], atol=1e-5)


@pytest.mark.parametrize("population", [10**3, 10**6, 10**9])
def test_a_noisy_reading_of_what_is_also_known_exactly(population):
    model = hc.MarkovChain([0.3, 0.7], [[0.9, 0.1], [0.2, 0.8]], length=3)
    first, second = population * np.array([0.31, 0.69]), population * np.array([0.45, 0.55])
    seen = [hc.Exact(first, on=0), hc.LaplaceNoise(second + 3.3, scale=1.0, on=1), hc.Exact(second, on=1)]
    got = hc.infer(hc.Problem(model, population, seen), TiltedEP())
    np.testing.assert_allclose(got.beliefs.mean((1,)), second, rtol=1e-10)
    np.testing.assert_allclose(got.beliefs.mean((2,)), second @ model.rooted().transitions[1], rtol=1e-10)


@pytest.mark.parametrize(
    "other", [lambda y: hc.Gaussian(y + 0.2, sd=0.3, on=2), lambda y: hc.Poisson(np.rint(y), on=2)]
)
def test_correlated_readings_move_the_centre_too(other):
    """The mean is that of closed form where the other reading is nearly Gaussian."""
    model = hc.MarkovChain([0.4, 0.3, 0.3], [[0.6, 0.2, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]], length=3)
    y = np.array([0.4, 0.35, 0.25]) * 6000
    correlated = hc.Gaussian(y, covariance=np.eye(3) * 4 + 0.5, on=1)
    got = hc.infer(hc.Problem(model, 6000, [correlated, other(y)]))
    assert got.engine == "TiltedEP"
    line = hc.infer(
        hc.Problem(model, 6000, [correlated, other(y)]), TiltedEP(centre="map", projection="line")
    )
    for v in model.variables:
        np.testing.assert_allclose(got.beliefs.mean((v,)), line.beliefs.mean((v,)), atol=0.5)


FORCED = {
    "nobody left": (
        hc.MarkovChain([0.5, 0.5], [[0.5, 0.5], [0.0, 1.0]], length=3),
        [hc.Exact([5.0, 5.0], on=0), hc.Exact([5.0, 5.0], on=1), hc.Poisson([3.0, 7.0], on=2)],
        10,
    ),
    "nobody moved": (
        hc.MarkovChain([0.4, 0.3, 0.3], [[0.6, 0.2, 0.2], [0.0, 0.8, 0.2], [0.0, 0.0, 1.0]], length=3),
        [hc.Exact([4.0] * 3, on=0), hc.Exact([4.0] * 3, on=2), hc.Poisson([3.0, 5.0, 4.0], on=1)],
        12,
    ),
}


@pytest.mark.parametrize("case", FORCED)
def test_the_evidence_of_margins_that_leave_no_choice(case):
    """A density would be 13 and 35 nats too high here, or any other number; the probability is below one."""
    model, seen, population = FORCED[case]
    agrees(hc.Problem(model, population, seen), mean=0.1, evidence=1.0)


@pytest.mark.parametrize("population", [10, 100, 1000])
def test_the_evidence_of_ordinary_margins(population):
    """Where counts are wide the probability is the density: the error falls like 1/N."""
    model = hc.MarkovChain([0.3, 0.7], [[0.9, 0.1], [0.2, 0.8]], length=3)
    share = population * np.array([[0.3, 0.7], [0.4, 0.6], [0.4, 0.6]])
    seen = [hc.Exact(share[0], on=0), hc.Poisson(share[1], on=1), hc.Exact(share[2], on=2)]
    agrees(hc.Problem(model, population, seen), mean=0.05, evidence=1.0 / population)


def test_a_reading_far_out_in_the_tail():
    """The counts lie where the model's law is below the smallest float."""
    model = hc.MarkovChain([0.05, 0.95], STAYS, length=2)
    agrees(
        hc.Problem(model, 900, [hc.LaplaceNoise([474.87, 424.86], scale=0.2, on=0)]), mean=0.1, evidence=1.0
    )


def test_readings_are_not_sharp_where_rounding_is_wider():
    """In populations above 1e10 no reading tells whole numbers apart."""
    model = hc.MarkovChain([0.5, 0.5], STAYS, length=2)
    for population, whole in ((10**6, True), (10**12, False)):
        half = population / 2
        problem = hc.Problem(model, population, [hc.Gaussian([half, half], sd=0.3, on=1)])
        assert Roles.of(Tilts(problem.core), whole=True).active.all() == whole
        assert ("whole numbers" in select(problem).reason) == whole


def test_a_rare_count_is_tilted_and_nothing_else():
    """All but one in ten thousand are elsewhere, and a wild count says so once more: precisions of thousands once broke this."""
    model = hc.MarkovChain([1 - 1e-4, 1e-4], [[0.5, 0.5], [0.5, 0.5]], length=1)
    seen = hc.NegativeBinomial([10045.0, 0.0], dispersion=2.0, rate=5.0, background=0.2, on=0)
    agrees(hc.Problem(model, 300, [seen]), mean=0.01, evidence=0.1)


def test_exact_counts_that_settle_the_last_cell():
    """Three exact cells that add up to N leave the fourth empty; count noise at the other times is still solved."""
    law = np.random.default_rng(6).dirichlet(np.ones(4), size=4)
    chain = hc.MarkovChain([0.4, 0.1, 0.2, 0.3], law, length=4)
    counts = np.array([[1, 1, 0, 4], [2, 0, 6, 0], [3, np.nan, 1, 3], [2, 0, 6, 2.0]])
    noisy = counts.copy()
    noisy[2] = np.nan
    post = hc.infer(
        hc.Problem(chain, 7, [hc.Poisson(noisy), hc.Exact({2: counts[2]})]), hc.engines.TiltedEP()
    )
    np.testing.assert_allclose(post.node(2).mean, [3, 0, 1, 3], atol=1e-6)


@pytest.mark.parametrize("times_too_large", [1e4, 1e5])
def test_counts_far_above_the_population_end_in_a_status(times_too_large: float) -> None:
    """A population given in thousands leaves MAP's tilts without a state around them: a run starts elsewhere, and says how it went."""
    chain = hc.MarkovChain([0.4, 0.3, 0.3], [[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.2, 0.1, 0.7]], length=4)
    counts = np.random.default_rng(0).integers(5, 60, size=(4, 3)) * times_too_large
    found = hc.infer(hc.Problem(chain, 120, hc.Poisson(counts)), TiltedEP(), strict=False)
    np.testing.assert_allclose(found.node(1).mean.sum(), 120)
    assert found.fit_check.agrees is False


def test_readings_that_leave_two_whole_numbers_are_said() -> None:
    """Between certain (sd .1) and wide (sd 1.5) the evidence is rough, and the diagnostics say so."""
    chain = hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], length=2)
    said = {}
    for sd in (0.1, 0.25, 1.5):
        seen = hc.Gaussian([[2.4, 1.6], [1.5, 2.5]], sd=sd)
        said[sd] = "sharp_readings" in hc.infer(hc.Problem(chain, 4, seen), "TiltedEP").diagnostics
    assert said[0.25]
    assert not said[1.5]
