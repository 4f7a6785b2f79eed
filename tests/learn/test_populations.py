"""Learning sizes, arrivals, survival, detection and moves of groups: gradients against exact evidence, estimates against direct sums."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import binom, poisson

import headcount as hc
from headcount.engines import Enumerate
from headcount.learn import (
    ByGroup,
    Fit,
    LearnArrivals,
    LearnDetection,
    LearnSizes,
    LearnSurvival,
)
from headcount.learn._expect import Expectation, run_here
from headcount.learn._family import bind

UP = hc.MarkovChain([0.7, 0.3], [[0.4, 0.6], [0.1, 0.9]], length=2, cells=["a", "b"])
DOWN = hc.MarkovChain([0.2, 0.8], [[0.8, 0.2], [0.5, 0.5]], length=2, cells=["a", "b"])
SEEN = hc.Poisson([[2.0, 3.0], [1.0, 4.0]])
OPEN = hc.OpenChain([2.0], [[1.0]], arrivals=1, survival=0.7, length=2)
PAIR = {"u": hc.Group(UP, 3), "d": hc.Group(DOWN, 2)}

CASES = {
    "Poisson size": (LearnSizes(), hc.Problem(UP, hc.About(5, sd=5**0.5), SEEN)),
    "negative binomial size": (LearnSizes(hc.TabularChain()), hc.Problem(UP, hc.About(5, sd=4), SEEN)),
    "open": (
        LearnDetection(LearnSizes(LearnSurvival(LearnArrivals(by="both")))),
        hc.Problem(OPEN, observations=hc.Binomial([[2.0], [1.0]], detection=0.5)),
    ),
    "open, in flocks": (
        LearnSizes(LearnSurvival(LearnArrivals())),
        hc.Problem(OPEN, observations=hc.Poisson([[3.0], [2.0]]), dispersion=hc.Flocks(2)),
    ),
    "moves of a group in flocks": (
        ByGroup({"u": hc.TabularChain()}),
        hc.Problem(
            groups={n: hc.Group(g.model, 2 * g.size) for n, g in PAIR.items()},
            observations=SEEN,
            dispersion=hc.Flocks(2),
        ),
    ),
    "moves of a group": (
        ByGroup({"u": hc.TabularChain()}),
        hc.Problem(groups=PAIR, observations=SEEN),
    ),
    "size of a group": (
        LearnSizes(),
        hc.Problem(groups={**PAIR, "d": hc.Group(DOWN, hc.About(1, sd=1))}, observations=SEEN),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_gradient_is_that_of_the_exact_evidence(case):
    """Fisher's identity: expected arrivals, survivors, sizes and moves give ∂ log p(y), as differences of exact sums do."""
    settings, problem = CASES[case]
    families = bind([settings.for_problem(problem)], [problem])
    expect = Expectation(families, [problem], Enumerate(most=10**6), 0, run_here)
    x = families[0].start()
    x = x + 0.2 * np.random.default_rng(1).normal(size=len(x))
    h = 1e-4
    differences = [
        (expect(x + h * e, None).evidence - expect(x - h * e, None).evidence) / (2 * h)
        for e in np.eye(len(x))
    ]
    np.testing.assert_allclose(expect(x, None).gradient, differences, atol=2e-6)


def dail_madsen(counts, first, arrivals, survival, detection, most=60):
    """The log-likelihood of the open N-mixture model, by sums over all numbers up to ``most``."""
    n = np.arange(most + 1)
    step = np.zeros((most + 1, most + 1))
    come = poisson.pmf(n, arrivals)
    for before in n:
        step[before] = np.convolve(binom.pmf(n, before, survival), come)[: most + 1]
    total = 0.0
    for y in counts:
        alpha = poisson.pmf(n, first) * binom.pmf(y[0], n, detection)
        for value in y[1:]:
            alpha = (alpha @ step) * binom.pmf(value, n, detection)
        total += np.log(alpha.sum())
    return total


@pytest.fixture(scope="module")
def sites():
    chain = hc.OpenChain([12.0], [[1.0]], arrivals=3, survival=0.7, length=4)
    look = hc.simulate.binomial(0.6)
    return [hc.simulate.population(chain, observe=look, rng=k).observed.values for k in range(4)]


@pytest.fixture(scope="module")
def fitted(sites):
    guess = hc.OpenChain([9.0], [[1.0]], arrivals=2, survival=0.5, length=4)
    problems = [hc.Problem(guess, observations=hc.Binomial(y, detection=0.6)) for y in sites]
    return hc.fit(LearnSizes(LearnSurvival(LearnArrivals())), problems)


def test_estimates_are_those_of_dail_and_madsen(sites, fitted):
    """First numbers, arrivals and survival from four sites: the maximum of the likelihood by direct sums, with its standard errors."""
    counts = [y[:, 0] for y in sites]

    def loss(x):
        return -dail_madsen(counts, np.exp(x[0]), np.exp(x[1]), 1 / (1 + np.exp(-x[2])), 0.6)

    best = minimize(loss, [np.log(12), np.log(3), 0.8], method="BFGS")
    values = [np.exp(best.x[1]), 1 / (1 + np.exp(-best.x[2])), np.exp(best.x[0])]
    assert fitted.natural.names == ("arrivals", "survival", "first")
    errors = fitted.standard_errors.values
    np.testing.assert_allclose(fitted.parameters.values, values, atol=0.12 * errors.max(), rtol=0.03)
    exact = np.sqrt(np.diag(best.hess_inv)) * [values[2], values[0], values[1] * (1 - values[1])]
    # Arrivals and survival are hardly told apart here; their errors are a small difference of two informations.
    np.testing.assert_allclose(errors, exact[[1, 2, 0]], rtol=0.35)
    assert fitted.evidence == pytest.approx(-best.fun, abs=0.05)


def test_what_was_learned_is_kept(fitted, tmp_path):
    """A fit of an open population is saved and read with its chain; its posteriors have arrivals."""
    fitted.save(tmp_path / "fit.npz")
    back = Fit.load(tmp_path / "fit.npz")
    assert back.table().equals(fitted.table())
    np.testing.assert_allclose(back.models[0].arrivals, fitted.models[0].arrivals)
    assert fitted.models[0].survival[0, 0] == pytest.approx(float(fitted.parameters[1]))
    assert len(fitted.plug_ins[0].arrivals()) == 3


def test_what_counts_cannot_tell_is_named():
    """One count per site tells detection times number: their standard errors are infinite, or the notes say so."""
    guess = hc.OpenChain([10.0], [[1.0]], length=1)
    problems = [hc.Problem(guess, observations=hc.Binomial([[y]], detection=0.5)) for y in (4.0, 7.0, 5.0)]
    found = hc.fit(LearnDetection(LearnSizes()), problems, strict=False)
    text = " ".join(found.notes)
    assert "not identified" in text or "told apart" in text
    assert not (found.standard_errors.values < 0.2 * found.parameters.values).any()


def test_moves_and_sizes_of_two_kinds_are_learned():
    """Two kinds with different first cells: one's moves and both sizes are found within three standard errors."""
    east = hc.MarkovChain([0.9, 0.1], [[0.5, 0.5], [0.2, 0.8]], length=6)
    west = hc.MarkovChain([0.1, 0.9], [[0.9, 0.1], [0.6, 0.4]], length=6)
    world = hc.simulate.population(groups={"e": hc.Group(east, 2000), "w": hc.Group(west, 1500)}, rng=1)
    guess = hc.MarkovChain([0.9, 0.1], [[0.7, 0.3], [0.3, 0.7]], length=6)
    groups = {"e": hc.Group(guess, hc.About(1500, sd=1500**0.5)), "w": hc.Group(west, 1500)}
    problem = hc.Problem(groups=groups, observations=hc.Poisson(world.observed))
    found = hc.fit(LearnSizes(ByGroup({"e": hc.TabularChain()})), problem)
    truth = {"e: P[0→0]": 0.5, "e: P[1→0]": 0.2, "size[e]": 2000.0}
    table = found.table().set_index("parameter")
    for name, value in truth.items():
        row = table.loc[name]
        assert abs(row["estimate"] - value) < 3 * row["standard_error"]
        assert row["standard_error"] < 0.5 * value
    assert found.plug_in.group("e").node(3).mean.sum() == pytest.approx(2000, abs=250)


@pytest.mark.parametrize(
    ("settings", "problem", "says"),
    [
        (hc.TabularChain(), hc.Problem(groups=PAIR, observations=SEEN), "ByGroup"),
        (ByGroup({"x": hc.TabularChain()}), hc.Problem(groups=PAIR, observations=SEEN), "ByGroup names"),
        (LearnArrivals(), hc.Problem(UP, 5, SEEN), "OpenChain"),
        (
            LearnArrivals(),
            hc.Problem(hc.OpenChain([4.0, 2.0], np.eye(2), length=2), observations=SEEN),
            "first guess",
        ),
        (LearnSizes(), hc.Problem(UP, hc.Unknown(), SEEN), "About"),
        (LearnSizes(), hc.Problem(UP, 5, SEEN), "About"),
        (LearnDetection(), hc.Problem(UP, 5, SEEN), "Binomial"),
    ],
)
def test_what_cannot_be_learned_is_refused_in_words(settings, problem, says):
    """The message says what to give instead."""
    with pytest.raises(ValueError, match=says):
        hc.fit(settings, problem)


def test_a_groups_prior_is_learned():
    """A ridge that is learned is learned within a group as it is alone, and named after the group."""
    features = np.eye(2)[None]
    moves = hc.LogisticChain(features, names=["stay"], ridge="learned")
    settings = (ByGroup({"u": moves}).for_problem(hc.Problem(groups=PAIR, observations=SEEN)),)
    (family,) = bind(settings, [hc.Problem(groups=PAIR, observations=SEEN)])
    alone = moves.bind(UP)
    n = alone.statistics(lambda scope: 100 * UP.marginal(scope), None)
    x = np.array([1.5])
    assert family.names == ("u: stay",)
    assert family.shrunk(x, n)[1] == {"u: all weights": alone.shrunk(x, n)[1]["all weights"]}
