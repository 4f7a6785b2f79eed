"""Exact data of every kind, possible or not: the answer of an enumeration, or the usual report; never a raw error."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import gammaln

import headcount as hc
from headcount.engines import Enumerate
from headcount.errors import FaultsError, ProblemError
from headcount.memory import TooLargeError

CELLS = 3


def moves(rng, *, sparse):
    """A transition matrix; ``sparse`` with steps that are impossible."""
    matrix = rng.dirichlet(np.ones(CELLS), size=CELLS)
    if sparse:
        matrix *= rng.random((CELLS, CELLS)) < 0.6
        matrix += np.eye(CELLS) * (matrix.sum(axis=1, keepdims=True) == 0)
        matrix /= matrix.sum(axis=1, keepdims=True)
    return matrix


def chain(rng, times):
    """A chain with some impossible moves."""
    return hc.MarkovChain(
        rng.dirichlet(np.ones(CELLS)), [moves(rng, sparse=rng.random() < 0.5) for _ in range(times - 1)]
    )


def counts(rng, model, people):
    """True counts of all cells at all times, some not observed; half of the time one of them is changed."""
    world = hc.simulate.population(model, people, rng=rng)
    made = np.array([np.asarray(world.tables.table((t,)), dtype=float) for t in model.variables])
    made[rng.random(made.shape) < [0.0, 0.4][rng.integers(2)]] = np.nan
    if rng.random() < 0.5:
        made[rng.integers(len(made)), rng.integers(made.shape[1])] = rng.integers(people + 3)
    return made, world


def plain(rng):
    model, people = chain(rng, int(rng.integers(2, 4))), int(rng.integers(1, 8))
    return hc.Problem(model, people, hc.Exact(counts(rng, model, people)[0]))


def sums(rng):
    model, people = chain(rng, 3), int(rng.integers(1, 8))
    weights = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    seen, world = counts(rng, model, people)
    added = weights @ np.asarray(world.tables.table((1,)), dtype=float)
    seen[1] = np.nan
    return hc.Problem(model, people, [hc.Exact(seen), hc.Exact(added, on=1, sums=weights)])


def flows(rng):
    model, people = chain(rng, 3), int(rng.integers(1, 8))
    seen, world = counts(rng, model, people)
    table = np.asarray(world.tables.table((0, 1)), dtype=float)
    table[rng.random(table.shape) < 0.5] = np.nan
    return hc.Problem(model, people, [hc.Exact(seen), hc.Exact(table, on=(0, 1))])


def unknown_size(rng):
    model, people = chain(rng, 2), int(rng.integers(1, 8))
    size = [hc.Between(1, 9), hc.About(5.0, sd=2.5)][rng.integers(2)]
    return hc.Problem(model, size, hc.Exact(counts(rng, model, people)[0]))


def groups(rng):
    model, people, some = chain(rng, 2), int(rng.integers(2, 8)), 1
    parts = {
        "a": hc.Group(model, some),
        "b": hc.Group(model, [people - some, hc.Between(1, 6)][rng.integers(2)]),
    }
    return hc.Problem(groups=parts, observations=hc.Exact(counts(rng, model, people)[0]))


def tagged(rng):
    model, people = chain(rng, 3), int(rng.integers(2, 8))
    where = rng.integers(CELLS, size=3).tolist()
    tags = hc.Tracks({"id": ["u"] * 3, "time": [0, 1, 2], "cell": where}, counted=bool(rng.integers(2)))
    return hc.Problem(model, people, [hc.Exact(counts(rng, model, people)[0]), tags])


def flocks(rng):
    size = int(rng.integers(2, 4))
    people = size * int(rng.integers(1, 4))
    model = chain(rng, 2)
    factor = size if rng.random() < 0.6 else 1
    seen = factor * counts(rng, model, people // factor)[0]
    return hc.Problem(model, people, hc.Exact(seen), dispersion=hc.Flocks(size))


def coming_and_going(rng):
    survival = [0.0, 1.0, 0.5][rng.integers(3)]
    arrivals = [0.0, 1.0][rng.integers(2)]
    cells = int(rng.integers(1, 3))
    matrix = rng.dirichlet(np.ones(cells), size=cells)
    model = hc.OpenChain(np.full(cells, 1.5), matrix, arrivals=arrivals, survival=survival, length=2)
    return hc.Problem(model, observations=hc.Exact(rng.integers(0, 3, size=(2, cells)).astype(float)))


def weights(rng):
    first, second = chain(rng, 2), chain(rng, 2)
    seen = 2.0 * counts(rng, first, 2)[0] + counts(rng, second, 2)[0]
    parts = {"herds": hc.Group(first, 2, weight=2), "single": hc.Group(second, 2)}
    return hc.Problem(groups=parts, observations=hc.Exact(seen))


KINDS = (plain, sums, flows, unknown_size, groups, tagged, flocks, coming_and_going, weights)
ENGINES = (None, "TiltedEP", "MAP", "PathGibbs", Enumerate(most=20_000))
MEAN, SD, EVIDENCE = 0.35, 0.35, 0.55
"""How far tilted EP may be from the enumeration of so few individuals, in individuals and nats: where it is worst, with exact counts that
leave one or two of them a choice. Measured over 250 of these problems: .32, .24 and .37."""

SAMPLED = (0.06, 0.1, 0.0)
SWEEPS = 20_000
"""Of the sampler, whose own error is then a third of what is allowed (at its default it was more with one seed of three)."""
LOOSER = {unknown_size: (0.35, 0.5, 0.55)}
"""A number of one or two that is not known: no Gaussian is near (.22, .47, .15)."""


def problem_of(kind, seed):
    """A problem of this kind; about half of them impossible."""
    return kind(np.random.default_rng([KINDS.index(kind), seed]))


def asked(kind, seed):
    """What went wrong in other words than ours; None where there is an answer that meets the exact counts, or a report."""
    engine = ENGINES[seed % len(ENGINES)]
    where = f"{kind.__name__} {seed} {engine}"
    try:
        problem = problem_of(kind, seed)
        post = hc.infer(problem, engine, rng=1)
        for variable in problem.model.variables[:1]:
            assert np.isfinite(post.node(variable).mean.values).all(), where
    except (FaultsError, hc.engines.NotConvergedError, TooLargeError) as error:
        return None if str(error).strip() else f"{where}: no words"
    except Exception as error:
        return f"{where}: {type(error).__name__} {str(error)[:120]}"
    return None


@pytest.mark.parametrize("kind", KINDS)
def test_exact_data_end_in_an_answer_or_a_report(kind):
    """Tiny random problems with exact data, about half of them impossible, are answered or refused in words."""
    assert [said for seed in range(10) if (said := asked(kind, seed)) is not None] == []


def differences(problem, got, true):
    """Largest difference of a mean and of an sd, of cells and flows, and of the evidence (0 where there is none)."""
    variables = problem.model.variables
    scopes = [(v,) for v in variables] + list(pairwise(variables))
    mean = max(float(np.abs(got.beliefs.mean(s) - true.beliefs.mean(s)).max()) for s in scopes)
    spreads = [[np.sqrt(np.maximum(post.beliefs.variance(s), 0.0)) for post in (got, true)] for s in scopes]
    sd = max(float(np.abs(a - b).max()) for a, b in spreads)
    evidence = 0.0 if got.log_evidence is None else got.log_evidence - true.log_evidence
    return mean, sd, abs(evidence)


@pytest.mark.parametrize("kind", [k for k in KINDS if k is not flocks])
def test_exact_data_of_every_kind_agree_with_enumeration(kind):
    """The default, tilted EP and the sampler have the means, sds and evidence of an enumeration; what it refuses they refuse too."""
    checked = 0
    for seed in range(14):
        try:
            problem = problem_of(kind, seed)
        except FaultsError:
            continue
        try:
            true = hc.infer(problem, Enumerate(most=1_000_000))
        except FaultsError as error:
            if "would list" not in str(error):
                with pytest.raises(FaultsError):
                    hc.infer(problem, "TiltedEP")
            continue
        checked += 1
        # Units of two weights are refused by the sampler, and two of each are no Gaussian (TiltedEP's means are .9 off): they are listed.
        for engine in (None, "TiltedEP", "PathGibbs")[: 1 if kind is weights else 3]:
            judge = hc.engines.PathGibbs(sweeps=SWEEPS) if engine == "PathGibbs" else engine
            got = hc.infer(problem, judge, rng=1, strict=False)
            if not got.status.good:  # it says so: a sampler that cannot exchange individuals of two groups
                assert engine == "PathGibbs"
                continue
            found = differences(problem, got, true)
            most = SAMPLED if engine == "PathGibbs" else LOOSER.get(kind, (MEAN, SD, EVIDENCE))
            assert (np.array(found) <= most).all(), f"{kind.__name__} {seed} {got.engine}: {found}"
    assert checked >= 3


def test_everybody_leaves_and_others_come():
    """With survival 0 the counts 5, 3, 2 are those of three independent Poisson numbers."""
    model = hc.OpenChain([5.0], [[1.0]], arrivals=2.0, survival=0.0, length=3)
    problem = hc.Problem(model, observations=hc.Exact([[5.0], [3.0], [2.0]]))
    wanted = sum(y * np.log(m) - m - gammaln(y + 1) for y, m in ((5, 5.0), (3, 2.0), (2, 2.0)))
    for engine, off in ((Enumerate(), 1e-9), ("TiltedEP", 0.02), (None, 0.02)):
        post = hc.infer(problem, engine)
        assert post.log_evidence == pytest.approx(wanted, abs=off)
        np.testing.assert_allclose(post.node(1).mean, 3.0)


STAYS = hc.MarkovChain([0.5, 0.5], [[0.5, 0.5], [0.0, 1.0]], length=2)
COUNTED = hc.Exact([[5.0, 5.0], [7.0, 3.0]])
TAG = hc.Tracks({"id": ["u"] * 2, "time": [0, 1], "cell": [0, 0]})
OPEN = hc.OpenChain([3.0, 3.0], [[0.5, 0.5], [0.0, 1.0]], arrivals=[1.0, 0.0], survival=1.0, length=2)
IMPOSSIBLE = {
    "moves": (lambda: hc.Problem(STAYS, 10, COUNTED), 4),
    "one cell": (lambda: hc.Problem(STAYS, 10, hc.Exact([[np.nan, 5.0], [np.nan, 3.0]])), 2),
    "unknown number": (lambda: hc.Problem(STAYS, hc.Between(8, 12), COUNTED), 4),
    "two groups": (
        lambda: hc.Problem(
            groups={"a": hc.Group(STAYS, 4), "b": hc.Group(STAYS, hc.Between(2, 9))}, observations=COUNTED
        ),
        4,
    ),
    "tags": (lambda: hc.Problem(STAYS, 10, [COUNTED, TAG]), 4),
    "arrivals": (lambda: hc.Problem(OPEN, observations=hc.Exact([[5.0, 5.0], [7.0, 3.0]])), 2),
}
"""Problems in which individuals would have to leave a cell that nobody leaves, and by how many their counts are apart."""


@pytest.mark.parametrize("engine", [None, "TiltedEP", "MAP", "PathGibbs", "Enumerate"])
@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_contradictions_are_named_with_what_they_miss(case, engine):
    """Every engine names counts that cannot all hold, and by how many individuals they are apart."""
    problem, apart = IMPOSSIBLE[case]
    with pytest.raises(
        ProblemError, match=f"exact counts contradict each other, by {apart} individual"
    ) as caught:
        hc.infer(problem(), engine, rng=1)
    assert "time 1, cell 1 = 3" in str(caught.value).replace("sum 0 of time 1", "time 1, cell 1")
