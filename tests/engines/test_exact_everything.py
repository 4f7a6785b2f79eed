"""Exact data of every kind, possible or not: the answer of an enumeration, or the usual report; never a raw error."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import gammaln
from tests.engines.oracle import brute

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


OPENED = hc.OpenChain([1.2, 1.8], [[0.7, 0.3], [0.5, 0.5]], arrivals=0.7, survival=0.8, length=2)
ONE_MOVED = hc.Exact([[0.0, 0.0], [1.0, 0.0]], on=(0, 1))
IN_FIRST = hc.Tracks({"id": ["t"], "time": [1], "cell": [0]})


def _paths_that_moved_so():
    """Mean and sd of the second count in cell 0: one went from 1 to 0, all others came or left; the tagged one went, or came.

    Of a Poisson number N one is tagged, and its n = N − 1 others have p(n + 1): 1/(n + 1) times the weights of a Poisson cloud.
    """
    went, came = 1.8 * 0.8 * 0.5, 0.7
    rate, n = 1.2 * 0.2 + 1.8 * 0.2 + 2 * came, np.arange(60)

    def law(k):  # of the free individuals, beside k others who went from 1 to 0
        return went**k * np.exp(n * np.log(rate) - gammaln(n + 1.0)) / (n + k + 1.0)

    def moments(weights, more):
        share = came / rate
        mean = n * share + more
        return weights @ np.stack([np.ones(60), mean, n * share * (1 - share) + mean**2], axis=1)

    parts = went * moments(law(0), 1) + came * moments(law(1), 2)
    mean = parts[1] / parts[0]
    return mean, np.sqrt(parts[2] / parts[0] - mean**2)


@pytest.mark.parametrize("engine", [None, "PathGibbs"])
def test_tags_and_arrivals_beside_exact_moves(engine):
    """Whoever moved may be the tagged one: the sampler never saw that (2.5 for 1.8, mixed); tilted EP was .2 sd off."""
    problem = hc.Problem(OPENED, observations=[ONE_MOVED, IN_FIRST])
    engine = hc.engines.PathGibbs(sweeps=4000) if engine else None
    found = hc.infer(problem, engine, rng=3).node(1)
    mean, sd = _paths_that_moved_so()
    np.testing.assert_allclose(found.mean.values[0], mean, atol=1e-9 if engine is None else 0.12)
    np.testing.assert_allclose(found.sd.values[0], sd, atol=1e-8 if engine is None else 0.12)


def test_sampled_means_of_exact_counts_are_these_counts():
    """Means blended of counts and of one individual's law were scaled to totals: 7.05 ± 0 for an exact 7."""
    chain = hc.OpenChain([4.0, 4.0], [[0.7, 0.3], [0.5, 0.5]], arrivals=0.5, survival=0.7, length=3)
    seen = [hc.Exact([np.nan, 7.0], on=2), hc.Exact([[2.0, np.nan], [np.nan, 4.0]], on=(0, 1))]
    found = hc.infer(hc.Problem(chain, observations=seen), "PathGibbs", rng=1, strict=False)
    np.testing.assert_allclose(found.node(2).mean.values[1], 7.0, atol=1e-9)
    np.testing.assert_allclose(np.diag(found.edge(0, 1).mean.values), [2.0, 4.0], atol=1e-9)


def test_sizes_that_exact_counts_tell_have_no_slopes():
    """Nobody arrives, so exact moves tell how many there are: rounding gave 4e16 individuals more per individual, and evidence of −inf."""
    steps = [[[0.048, 0.952], [0.621, 0.379]], [[0.0, 1.0], [0.846, 0.154]]]
    chain = hc.OpenChain([6.3, 5.7], steps, arrivals=0.0, survival=1.0, length=3)
    seen = [hc.Exact([[0.0, 9.0], [4.0, 3.0]], on=(0, 1)), hc.Poisson([10.0, np.nan], on=2)]
    asked = hc.Problem(chain, observations=seen)
    assert hc.infer(asked, "TiltedEP").log_evidence == pytest.approx(hc.infer(asked).log_evidence, abs=0.1)


@pytest.mark.parametrize("graph", ["chain", "tree", "loop"])
def test_what_nothing_seen_tells_apart_is_split_by_the_model(graph):
    """Lists of populations put alike configurations together: moments, laws, sums and draws inside are those of the full list."""
    rng = np.random.default_rng(3)
    model = {
        "chain": hc.MarkovChain([0.3, 0.7], rng.dirichlet([1, 1], (2, 2))),
        "tree": hc.Tree(
            [0.3, 0.7], {1: (0, rng.dirichlet([1, 1], 2)), 2: (0, rng.dirichlet([1, 1], 2))}, root=0
        ),
        "loop": hc.DiscreteModel(
            dict.fromkeys(range(3), (0, 1)), {p: rng.normal(0, 1, (2, 2)) for p in ((0, 1), (1, 2), (2, 0))}
        ),
    }[graph]
    problem = hc.Problem(model, 4, [hc.Exact([1.0, 3.0], on=0), hc.Poisson([2.0, np.nan], on=1)])
    found, full = hc.infer(problem, "Enumerate").beliefs, brute(problem)
    assert found.log_evidence == pytest.approx(full.log_evidence, abs=1e-11)
    for scope in ((2,), (0, 2) if graph == "tree" else (1, 2)):
        np.testing.assert_allclose(found.mean(scope), full.mean(scope), atol=1e-12)
        np.testing.assert_allclose(found.variance(scope), full.variance(scope), atol=1e-12)
    counts, law = found.count_law((2,))
    table = full.table((2,))[:, 0]
    for k, chance in zip(counts[:, 0], law[:, 0], strict=True):
        assert chance == pytest.approx(full.weights[table == k].sum(), abs=1e-12)
    total = found.law_of_sum((2,), np.array([1.0, 2.0]))
    assert total.probabilities @ total.values == pytest.approx(full.mean((2,)) @ [1.0, 2.0], abs=1e-10)
    draws = found.sample(4000, rng=np.random.default_rng(1), integer=True)
    for scope, table in draws.items():
        error = np.sqrt(full.variance(scope) / 4000) + 1e-12
        assert (np.abs(table.mean(axis=0) - full.mean(scope)) <= 5 * error).all()


def test_a_named_tilted_ep_says_how_far_it_is_off():
    """Held against the exact sum where that is quick: said where it is wrong, not where it is right."""
    said = {}
    for weight in (1, 2):
        chain = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], length=3)
        other = hc.MarkovChain([0.2, 0.8], [[0.3, 0.7], [0.6, 0.4]], length=3)
        groups = {"a": hc.Group(chain, 2, weight=weight), "b": hc.Group(other, 2)}
        asked = hc.Problem(groups=groups, observations=hc.Exact([3.0, np.nan], on=0))
        exact, found = hc.infer(asked), hc.infer(asked, "TiltedEP")
        worst = max(
            float((np.abs(found.node(t).mean - exact.node(t).mean) / np.maximum(exact.node(t).sd, 0.1)).max())
            for t in range(3)
        )
        said[weight] = worst, found.diagnostics.get("sharp_readings", "")
    for worst, words in said.values():
        assert ("held against the exact sum" in words) == (worst > 0.2), said
    assert {bool(words) for _, words in said.values()} == {True, False}, said
