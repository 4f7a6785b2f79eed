"""Data that no population has: every engine ends in one report, which names the counts and by how much they are apart."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise, product

import numpy as np
import pytest

import headcount as hc
from headcount.engines.choice import ENGINES
from headcount.errors import NoPopulationError

# Nobody begins in c, and nobody goes from a to c in one step, or back.
MOVES = [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]
START = [0.5, 0.5, 0.0]
CHAIN = hc.MarkovChain(START, MOVES, length=3)
STAYERS = hc.MarkovChain([0.0, 0.0, 1.0], np.eye(3), length=3)


def table(**counts: float) -> np.ndarray:
    """Counts of three times and cells, ``n01`` of time 0 and cell 1; NaN elsewhere."""
    out = np.full((3, 3), np.nan)
    for name, y in counts.items():
        out[int(name[1]), int(name[2])] = y
    return out


def one(*observations: object, population: object = 6, **more: object) -> hc.Problem:
    """Of one kind."""
    return hc.Problem(CHAIN, population, list(observations), **more)


def kinds(
    population: object, other: object, *observations: object, weights: tuple[int, int] = (1, 1)
) -> hc.Problem:
    """Of two kinds, one of which stays in c."""
    groups = {
        "movers": hc.Group(CHAIN, population, weight=weights[0]),
        "stayers": hc.Group(STAYERS, other, weight=weights[1]),
    }
    return hc.Problem(groups=groups, observations=list(observations))


TAG = hc.Tracks({"id": ["t", "t"], "time": [0, 1], "cell": [0, 0]})
COMING = hc.OpenChain([3.0, 1.0], [[0.5, 0.5], [0.0, 1.0]], arrivals=1.0, survival=1.0, length=2)
CASES = {
    "a move that the model forbids": (
        one(hc.Exact(table(n00=6, n12=2))),
        2,
        {"time 0, cell 0 = 6", "time 1, cell 2 = 2"},
    ),
    "the same, N unknown": (
        one(hc.Exact(table(n00=4, n01=0, n12=2)), population=hc.Unknown()),
        2,
        {"time 0, cell 1 = 0", "time 1, cell 2 = 2"},
    ),
    "a Poisson count where nobody can be": (
        one(hc.Exact(table(n00=6, n01=0)), hc.Poisson(table(n12=3))),
        1,
        {"time 0, cell 1 = 0", "time 1, cell 2 = 3 (a reading of 1 or more)"},
    ),
    "the same of a negative binomial, N in a range": (
        one(
            hc.Exact(table(n01=0, n02=0)),
            hc.NegativeBinomial(table(n12=3), dispersion=0.5),
            population=hc.Between(2, 9),
        ),
        1,
        {"time 0, cell 1 = 0", "time 1, cell 2 = 3 (a reading of 1 or more)"},
    ),
    "more detected than there are": (
        one(hc.Exact(table(n00=2)), hc.Binomial(table(n10=4), detection=0.5), population=hc.Unknown()),
        2,
        {"time 0, cell 0 = 2", "time 1, cell 0 = 4 (a reading of 4 or more)"},
    ),
    "of two readings of one count the second is zero": (
        one(
            hc.Poisson(table(n10=2, n11=4, n12=9)),
            hc.Binomial(table(n10=1, n11=0), detection=0.3),
            hc.Binomial([[np.nan] * 3, [np.nan, np.nan, 2.0], [np.nan] * 3], on=(0, 1), detection=0.9),
            population=3,
        ),
        1,
        {"time 1, cell 1 = 4 (a reading of 1 or more)"},
    ),
    "moves and cells, where every move is possible": (
        hc.Problem(
            hc.MarkovChain([0.4, 0.6], [[0.5, 0.5], [0.3, 0.7]], length=2),
            3,
            [
                hc.Binomial([[2.0, np.nan], [np.nan, np.nan]], on=(0, 1), detection=0.5),
                hc.Binomial([np.nan, 2.0], on=1, detection=0.5),
            ],
        ),
        1,
        {"time 1, cell 1 = 2 (a reading of 2 or more)"},
    ),
    "nothing exact": (
        one(hc.Binomial(table(n00=4, n12=3), detection=0.9), population=5),
        2,
        {"time 0, cell 0 = 4 (a reading of 4 or more)", "time 1, cell 2 = 3 (a reading of 3 or more)"},
    ),
    "totals": (
        one(
            *(hc.Exact([y], on=t, sums=[[1, 1, 1]]) for t, y in ((0, 3.0), (1, 4.0))),
            population=hc.Between(2, 9),
        ),
        1,
        {"sum 0 of time 0 = 3", "sum 0 of time 1 = 4"},
    ),
    "a sum and a flow": (
        one(
            hc.Exact([4.0], on=0, sums=[[1, 1, 0]]),
            hc.Exact([[3.0, np.nan, np.nan], [np.nan, 3.0, np.nan], [np.nan] * 3], on=(0, 1)),
            population=hc.Unknown(),
        ),
        2,
        {"sum 0 of time 0 = 4"},
    ),
    "two kinds": (kinds(2, hc.Between(3, 5), hc.Exact(table(n02=2))), 1, {"time 0, cell 2 = 2"}),
    "two kinds of unknown size": (
        kinds(hc.Unknown(), hc.Unknown(), hc.Exact(table(n02=2, n22=1))),
        1,
        {"time 0, cell 2 = 2", "time 2, cell 2 = 1"},
    ),
    "half of a pair": (kinds(2, 4, hc.Exact(table(n02=3)), weights=(2, 2)), 5, {"time 0, cell 2 = 3"}),
    "an odd count of pairs": (
        kinds(hc.Unknown(), hc.Unknown(), hc.Exact(table(n00=3)), weights=(2, 1)),
        1,
        {"time 0, cell 0 = 3"},
    ),
    "an odd count where all go in pairs": (
        kinds(hc.Unknown(), 4, hc.Exact(table(n00=3)), weights=(2, 2)),
        1,
        {"time 0, cell 0 = 3"},
    ),
    "a tag": (one(hc.Exact(table(n10=0)), TAG, population=hc.Unknown()), 1, {"time 1, cell 0 = 0"}),
    "arrivals, and nobody dies": (
        hc.Problem(COMING, observations=hc.Exact([[1.0, 5.0], [np.nan, 3.0]])),
        2,
        {"time 0, cell 1 = 5", "time 1, cell 1 = 3"},
    ),
    "flocks": (
        one(hc.Exact(table(n00=6, n12=3)), dispersion=hc.Flocks(3)),
        3,
        {"time 0, cell 0 = 6", "time 1, cell 2 = 3"},
    ),
    "rows that vary": (
        one(hc.Exact(table(n00=6)), hc.Poisson(table(n12=3)), dispersion=hc.Overdispersion(rho=0.2)),
        1,
        {"time 0, cell 0 = 6", "time 1, cell 2 = 3 (a reading of 1 or more)"},
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", CASES)
def test_a_contradiction_ends_in_one_report(case: str, engine: str) -> None:
    """Whatever engine is asked: by how many individuals counts are apart, and which they are."""
    problem, apart, named = CASES[case]
    with pytest.raises(NoPopulationError, match=f"contradict each other, by {apart} individual") as error:
        hc.infer(problem, engine, rng=1)
    assert all(f"'{name}'" in str(error.value) for name in named), str(error.value)


def possible(
    initial: np.ndarray, moves: np.ndarray, people: int, exact: np.ndarray, reads: np.ndarray
) -> bool:
    """Whether some population has all exact counts and somebody where something was read: all of them are gone through."""
    cells, times = len(initial), len(exact)
    paths = [
        path
        for path in product(range(cells), repeat=times)
        if initial[path[0]] > 0 and all(moves[a, b] > 0 for a, b in pairwise(path))
    ]
    for some in combinations_with_replacement(paths, people):
        n = np.array([[sum(path[t] == i for path in some) for i in range(cells)] for t in range(times)])
        if (np.isnan(exact) | (n == exact)).all() and (n[reads > 0] > 0).all():
            return True
    return False


@pytest.mark.parametrize("seed", range(60))
def test_only_contradictions_are_refused(seed: int) -> None:
    """Random maps with impossible moves, exact counts and Poisson ones: refused where no population has them, and only there."""
    rng = np.random.default_rng(seed)
    people, times = int(rng.integers(1, 4)), int(rng.integers(2, 4))
    moves = rng.dirichlet(np.ones(3), size=3) * ((rng.random((3, 3)) < 0.5) | np.eye(3, dtype=bool))
    moves /= moves.sum(axis=1, keepdims=True)
    initial = np.array([0.5, 0.3, 0.2])
    exact = rng.multinomial(people, initial, size=times).astype(float)
    exact[rng.random(exact.shape) < 0.6] = np.nan
    reads = np.where(
        np.isnan(exact) & (rng.random(exact.shape) < 0.4), rng.integers(0, 3, exact.shape), np.nan
    )
    seen = [noise(y) for noise, y in ((hc.Exact, exact), (hc.Poisson, reads)) if np.isfinite(y).any()]
    try:
        problem = hc.Problem(hc.MarkovChain(initial, moves, length=times), people, seen)
    except hc.ProblemError:  # one table alone says so
        assert not possible(initial, moves, people, exact, reads)
        return
    if possible(initial, moves, people, exact, reads):
        assert hc.infer(problem).log_evidence is not None
    else:
        with pytest.raises(NoPopulationError, match="contradict each other"):
            hc.infer(problem)
