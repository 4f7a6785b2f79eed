"""Learning from tracks: alone they are complete data; beside counts they enter evidence, gradient and standard errors exactly."""

import numpy as np
import pandas as pd
import pytest

import headcount as hc
from headcount.engines import Enumerate
from headcount.learn import _fit as learn_fit
from headcount.learn import fit_complete
from headcount.learn._expect import Expectation
from headcount.learn._family import bind

WORLD = hc.simulate.birds(side=2, population=60, steps=5, rng=1)
PATHS = WORLD.model.sample(25, rng=2)
TIMES = PATHS.shape[1]
TABLE = pd.DataFrame(
    {
        "id": np.repeat(np.arange(len(PATHS)), TIMES),
        "time": np.tile(np.arange(TIMES), len(PATHS)),
        "cell": PATHS.ravel(),
    }
)
CHAIN = hc.LogisticChain(WORLD.features)


@pytest.mark.parametrize(("population", "counted"), [(25, True), (70, False)])
def test_tracks_alone_are_complete_data(population, counted):
    """Without counts, whole tracks give the weights and standard errors of `fit_complete`, in the counts or outside."""
    tables = {(0,): np.bincount(PATHS[:, 0], minlength=4).astype(float)}
    for t in range(TIMES - 1):
        tables[t, t + 1] = np.zeros((4, 4))
        np.add.at(tables[t, t + 1], (PATHS[:, t], PATHS[:, t + 1]), 1.0)
    known = fit_complete(CHAIN, WORLD.model, tables)
    found = hc.fit(CHAIN, hc.Problem(WORLD.model, population, hc.Tracks(TABLE, counted=counted)))
    np.testing.assert_allclose(found.weights, known.weights, atol=1e-3)
    np.testing.assert_allclose(found.standard_errors, known.standard_errors, rtol=1e-3)


@pytest.mark.parametrize(("counted", "given"), [(True, False), (False, False), (False, True)])
def test_the_gradient_is_the_derivative_of_the_evidence(counted, given):
    """With exact E-steps, Fisher's gradient is the derivative of log p(counts, tracks), gaps and given first positions included."""
    some = TABLE[(TABLE["id"] < 2) & (TABLE["time"] != 2) & ((TABLE["id"] == 1) | (TABLE["time"] > 0))]
    problem = hc.Problem(
        WORLD.model,
        3,
        [hc.Poisson(WORLD.observed / 20 // 1), hc.Tracks(some, counted=counted, given_first=given)],
    )
    families = bind([CHAIN], [problem])
    expect = Expectation(families, [problem], Enumerate(), 0, lambda tasks: [task.run() for task in tasks])
    x = np.array([0.5, 1.0, -0.5, 0.8])
    ends = [[expect(x + s * 1e-5 * e, None).evidence for s in (1, -1)] for e in np.eye(4)]
    slope = np.array([(up - down) / 2e-5 for up, down in ends])
    np.testing.assert_allclose(expect(x, None).gradient, slope, rtol=1e-5, atol=1e-6)


def test_tracks_narrow_the_standard_errors():
    """Adding tracks to counts shrinks every standard error, about as the sum of both informations says."""
    seen = hc.Poisson(WORLD.observed)
    counts = hc.fit(CHAIN, hc.Problem(WORLD.model, 60, seen))
    both = hc.fit(CHAIN, hc.Problem(WORLD.model, 60, [seen, hc.Tracks(TABLE, counted=False)]))
    assert (both.standard_errors < counts.standard_errors).all()
    tracks = hc.fit(CHAIN, hc.Problem(WORLD.model, 60, hc.Tracks(TABLE, counted=False)))
    added = counts.information.observed + tracks.information.observed
    np.testing.assert_allclose(both.standard_errors, np.sqrt(np.diag(np.linalg.inv(added))), rtol=0.25)
    assert both.data != counts.data


def test_few_tracks_among_the_counted_are_learned_from_by_themselves(monkeypatch):
    """Up to 2 % of the population the records' likelihood is a factor of its own: the same estimates within a fifth of a standard error."""
    world = hc.simulate.birds(side=2, population=300, steps=5, rng=1)
    table = TABLE[TABLE["id"] < 5]
    problem = hc.Problem(world.model, 300, [hc.Poisson(world.observed), hc.Tracks(table)])
    apart = hc.fit(CHAIN, problem)
    assert any("5 tracked individuals are a likelihood of their own" in note for note in apart.notes)
    assert not apart.plug_in.problem.records[True]
    monkeypatch.setattr(learn_fit, "FEW_TRACKED", 0.01)
    among = hc.fit(CHAIN, problem)
    assert among.plug_in.problem.records[True]
    np.testing.assert_allclose(apart.standard_errors, among.standard_errors, rtol=0.05)
    shift = np.abs(apart.weights.values - among.weights.values)
    assert (shift < 0.2 * among.standard_errors.values).all()


def test_shares_tell_as_much_as_their_scatter_says_whatever_number_they_are_given() -> None:
    """Shares of 400 individuals as counts of 10 000 or of 100 000: errors of weights are those of the 400, beside tags and without."""
    p = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1], [0.1, 0.1, 0.7, 0.1], [0.1, 0.1, 0.1, 0.7]])
    world = hc.simulate.population(hc.MarkovChain([0.7, 0.1, 0.1, 0.1], p, length=12), 400, rng=3)
    counts = np.array([world.tables.table((t,)) for t in world.model.times])
    chain = hc.LogisticChain(np.eye(4)[None], names=["stay"])
    paths = world.model.sample(20, rng=1)
    table = {"id": np.repeat(np.arange(20), 12), "time": np.tile(np.arange(12), 20), "cell": paths.ravel()}
    for many, beside in ((10_000, []), (100_000, []), (100_000, [hc.Tracks(table, counted=False)])):
        right = hc.fit(chain, hc.Problem(world.model, 400, [hc.Exact(counts), *beside])).standard_errors
        seen = hc.Exact.of_shares(counts / 400, population=many)
        fit = hc.fit(chain, hc.Problem(world.model, many, [seen, *beside]), dispersion="estimate:phi")
        assert fit.dispersion is not None
        alone = many / fit.dispersion.value
        assert 200 < alone < 800
        assert f"{many} individuals tell as much as {alone:.4g} that move alone" in fit.notes
        assert fit.standard_errors.values == pytest.approx(right.values, rel=0.3)


@pytest.mark.parametrize("wrong", [[[0.1, -0.1]], [[0.0, 0.0]], [[np.nan, 0.2]], [0.2, 0.8]])
def test_what_cannot_be_shares_is_refused(wrong: list[list[float]]) -> None:
    """Negative numbers, nothing at all, holes in a row, one row without times; a missing row is not observed."""
    with pytest.raises(hc.ProblemError, match="shares are numbers"):
        hc.Exact.of_shares(wrong)
    assert np.isnan(hc.Exact.of_shares([[np.nan, np.nan], [1.0, 3.0]]).counts[0]).all()


def test_shares_in_the_place_of_counts_are_told_what_to_do() -> None:
    """The message for fractions names the way for shares."""
    chain = hc.MarkovChain([0.5, 0.5], np.full((2, 2), 0.5), length=2)
    with pytest.raises(hc.ProblemError, match=r"shares and relative abundances Exact\.of_shares"):
        hc.Problem(chain, 100, hc.Poisson([[0.4, 0.6], [0.5, 0.5]]))
