"""Semi-Markov stays and a memory of one step: against sums over all paths, sampled paths, and each other."""

from __future__ import annotations

import itertools
from collections import Counter
from math import factorial

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse
from scipy.stats import poisson

import headcount as hc

EXACT = hc.engines.Enumerate(most=1_500_000)
GONE = None
HAZARD = np.array([[0.1, 0.5, 0.9], [0.3, 0.2, 0.6]])
MOVES = np.array([[0, 0.7], [1.0, 0]])
MEMORY = np.array([[[0.2, 0.8], [0.05, 0.95]], [[0.9, 0.1], [0.5, 0.5]]])
FIRST = np.array([[0.5, 0.5], [0.3, 0.7]])
LAW = np.array([0.6, 0.4])
SEEN = np.array([[3.0, 2.0], [1.0, 4.0], [3.0, 1.0]])


def stays(path: tuple[int | None, ...]) -> float:
    """The probability of a path of the semi-Markov chain, from its definition: how long it has been in every cell."""
    if path[0] is GONE:
        return 0.0
    p, age = LAW[path[0]], 0
    for before, after in itertools.pairwise(path):
        if before is GONE:
            p *= after is GONE
            continue
        h = HAZARD[before, min(age, 2)]
        p *= (
            1 - h
            if after == before
            else h * (1 - MOVES[before].sum() if after is GONE else MOVES[before, after])
        )
        age = age + 1 if after == before else 0
    return float(p)


def remembered(path: tuple[int | None, ...]) -> float:
    """The probability of a path of the chain with a memory."""
    if GONE in path:
        return 0.0
    p = LAW[path[0]] * FIRST[path[0], path[1]]
    for before, here, after in zip(path, path[1:], path[2:], strict=False):
        p *= MEMORY[before, here, after]
    return float(p)


FIDELITY, HOMES = np.array([0.3, 0.6]), np.array([[0.4, 0.1], [0.2, 0.3]])


def at_home(path: tuple[int | None, ...]) -> float:
    """The probability of a path of the chain with homes: the sum over homes."""
    if GONE in path:
        return 0.0
    found = 0.0
    for home in (0, 1):
        p = HOMES[home, path[0]]
        for before, after in itertools.pairwise(path):
            p *= FIDELITY[home] * (after == home) + (1 - FIDELITY[home]) * FIRST[before, after]
        found += p
    return float(found)


def summed(law: object, people: int, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Evidence of Poisson counts, means and sds of all counts, and means of all flows, by the sum over who takes which path."""
    length, cells = y.shape
    paths = [x for x in itertools.product([*range(cells), GONE], repeat=length) if law(x) > 0]
    laws = [law(x) for x in paths]
    assert sum(laws) == pytest.approx(1)
    total, first, second, flows = (
        0.0,
        np.zeros(y.shape),
        np.zeros(y.shape),
        np.zeros((length - 1, cells, cells)),
    )
    for chosen in itertools.combinations_with_replacement(range(len(paths)), people):
        weight = float(factorial(people))
        for k, times in Counter(chosen).items():
            weight *= laws[k] ** times / factorial(times)
        n, f = np.zeros(y.shape), np.zeros(flows.shape)
        for k in chosen:
            for t, cell in enumerate(paths[k]):
                if cell is not GONE:
                    n[t, cell] += 1
                    if t + 1 < length and paths[k][t + 1] is not GONE:
                        f[t, cell, paths[k][t + 1]] += 1
        weight *= float(np.prod(poisson.pmf(y, n)))
        total, first, second, flows = (
            total + weight,
            first + weight * n,
            second + weight * n**2,
            flows + weight * f,
        )
    mean = first / total
    return np.log(total), mean, np.sqrt(second / total - mean**2), flows / total


CHAINS = {
    "stays": (hc.SemiMarkovChain(LAW, HAZARD, MOVES, length=3), stays),
    "memory": (hc.MemoryChain(LAW, FIRST, MEMORY, length=3), remembered),
    "homes": (hc.HomeChain(HOMES, FIRST, FIDELITY, length=3), at_home),
}
CLOSED = {
    "stays": hc.SemiMarkovChain(LAW, HAZARD[:, :2], [[0, 1], [1, 0]], length=3),
    "memory": CHAINS["memory"][0],
    "homes": CHAINS["homes"][0],
}


@pytest.mark.parametrize("kind", CHAINS)
def test_answers_are_those_of_the_sum_over_all_paths(kind: str) -> None:
    """Evidence, means, sds and flows, of the enumeration exactly and of the default nearly."""
    chain, law = CHAINS[kind]
    evidence, mean, sd, flows = summed(law, 5, SEEN)
    problem = hc.Problem(chain, 5, hc.Poisson(SEEN))
    for engine, off, spread in ((EXACT, 1e-9, 1e-9), ("TiltedEP", 0.06, 0.03)):
        found = hc.infer(problem, engine)
        assert found.log_evidence == pytest.approx(evidence, abs=off)
        for t in range(3):
            np.testing.assert_allclose(found.node(t).mean, mean[t], atol=off)
            np.testing.assert_allclose(found.node(t).sd, sd[t], rtol=spread)
        for t in range(2):
            np.testing.assert_allclose(found.edge(t, t + 1).mean, flows[t], atol=off)


def test_a_cohort_that_comes_and_goes_is_a_sum_over_its_stays() -> None:
    """One cell: numbers by times of arrival and departure are independent Poisson; evidence, means, sds, arrivals and departures."""
    hazard, arrivals, y = np.array([0.1, 0.7]), np.array([1.5, 0.8]), np.array([2.0, 3.0, 1.0])
    rates, spans = [], []
    for start, number in enumerate([1.2, *arrivals]):
        left = number
        for end in range(start, 3):  # the last time that they are there
            h = hazard[min(end - start, 1)] if end < 2 else 1.0
            rates.append(left * h)
            spans.append([start <= t <= end for t in range(3)] + [start == 1, start == 2, end == 0, end == 1])
            left *= 1 - h
    grid = np.array(list(itertools.product(range(9), repeat=len(rates))))
    n = grid @ np.array(spans, dtype=float)
    weight = np.exp(poisson.logpmf(grid, rates).sum(axis=1) + poisson.logpmf(y, n[:, :3]).sum(axis=1))
    mean = weight @ n / weight.sum()
    sd = np.sqrt(weight @ n**2 / weight.sum() - mean**2)
    chain = hc.SemiMarkovChain([1.2], hazard, arrivals=arrivals[:, None], length=3)
    found = hc.infer(hc.Problem(chain, observations=hc.Poisson(y[:, None])), "TiltedEP")
    assert found.log_evidence == pytest.approx(np.log(weight.sum()), abs=0.03)
    np.testing.assert_allclose([found.node(t).mean[0] for t in range(3)], mean[:3], atol=0.05)
    np.testing.assert_allclose([found.node(t).sd[0] for t in range(3)], sd[:3], rtol=0.03)
    np.testing.assert_allclose(found.arrivals()["mean"], mean[3:5], atol=0.05)
    np.testing.assert_allclose(found.departures()["mean"], mean[5:], atol=0.05)
    assert found.population.mean == pytest.approx(weight @ grid.sum(axis=1) / weight.sum(), abs=0.05)


@pytest.mark.parametrize("sparse", [False, True])
def test_without_a_past_all_are_markov_chains(sparse: bool) -> None:
    """Equal hazards at all ages, a memory that forgets the previous cell, homes nobody goes back to: all answer as the Markov chain."""
    moves = np.array([[0, 0.3, 0.7], [0.5, 0, 0.5], [1.0, 0, 0]])
    whole = 0.6 * np.eye(3) + 0.4 * moves
    memory = np.tile(whole, (3, 1))
    as_given = csr_array if sparse else np.asarray
    y = hc.Poisson([[30, 20, 10], [25, 15, 20], [18, 22, 24], [20, 20, 20]])
    law = [0.5, 0.3, 0.2]
    plain = hc.infer(hc.Problem(hc.MarkovChain(law, whole, length=4), 60, y))
    others = [
        hc.SemiMarkovChain(law, [0.4, 0.4, 0.4], as_given(moves), length=4),
        hc.MemoryChain(law, as_given(whole), as_given(memory), length=4),
        hc.HomeChain(law, as_given(whole), 0, length=4),
    ]
    for chain in others:
        found = hc.infer(hc.Problem(chain, 60, y))
        assert found.log_evidence == pytest.approx(plain.log_evidence, abs=1e-4)
        np.testing.assert_allclose(found.node(2).mean, plain.node(2).mean, atol=1e-3)
        np.testing.assert_allclose(found.edge(1, 2).mean, plain.edge(1, 2).mean, atol=1e-3)
        np.testing.assert_allclose(found.edge(1, 2).sd, plain.edge(1, 2).sd, rtol=1e-3)


def combined(kind: str, what: str) -> hc.Problem:
    """A tiny problem in which the kind meets another."""
    chain, y = CLOSED[kind], hc.Poisson(SEEN)
    other = hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.4, 0.6]], length=3)
    tracks = hc.Tracks({"id": ["a", "a", "b"], "time": [0, 2, 1], "cell": [0, 1, 1]})
    made = {
        "groups": lambda: hc.Problem(
            groups={"own": hc.Group(chain, 2), "other": hc.Group(other, 2)}, observations=y
        ),
        "tags": lambda: hc.Problem(chain, 4, [y, tracks]),
        "unknown": lambda: hc.Problem(chain, hc.Between(3, 5), y),
        "flocks": lambda: hc.Problem(chain, 6, y, dispersion=hc.Flocks(2)),
        "exact": lambda: hc.Problem(chain, 5, [hc.Exact([3, 2], on=0), y]),
    }
    return made[what]()


@pytest.mark.parametrize("kind", CHAINS)
@pytest.mark.parametrize("what", ["groups", "tags", "unknown", "flocks", "exact"])
def test_what_it_meets_is_answered_as_enumeration_does(kind: str, what: str) -> None:
    """Groups, tags, unknown sizes, flocks, exact counts."""
    problem = combined(kind, what)
    exact, found = hc.infer(problem, EXACT), hc.infer(problem, "TiltedEP")
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=0.15)
    for t in range(3):
        np.testing.assert_allclose(found.node(t).mean, exact.node(t).mean, atol=0.1)
        np.testing.assert_allclose(found.node(t).sd, exact.node(t).sd, atol=0.1)


@pytest.mark.parametrize("kind", CHAINS)
@pytest.mark.parametrize("together", [hc.Overdispersion(rho=0.05), hc.Flocks(3), None])
def test_without_data_counts_are_those_of_simulated_worlds(kind: str, together: object) -> None:
    """Means and sds of the last counts, with overdispersion and without."""
    chain = CLOSED[kind]
    found = hc.infer(hc.Problem(chain, 90, dispersion=together))
    worlds = [hc.simulate.population(chain, 90, dispersion=together, rng=k) for k in range(500)]
    counts = np.array([world.counts[-1] for world in worlds])
    np.testing.assert_allclose(found.node(2).mean, counts.mean(axis=0), rtol=0.05)
    np.testing.assert_allclose(found.node(2).sd, counts.std(axis=0), rtol=0.12)
    assert worlds[0].flows.shape == (2, 2, 2)


@pytest.mark.parametrize("engine", [hc.engines.MAP(), hc.engines.PathGibbs(sweeps=600)])
def test_other_engines_agree(engine: object) -> None:
    """The most probable counts and sampled paths, on a stopover with two cells."""
    chain = hc.SemiMarkovChain([40, 10], HAZARD, MOVES, arrivals=[[20, 0], [5, 5]], length=3)
    problem = hc.Problem(chain, observations=hc.Poisson([[38.0, 12.0], [50.0, 20.0], [30.0, 25.0]]))
    sampled, found = hc.infer(problem, engine, rng=1), hc.infer(problem)
    for t in range(3):
        np.testing.assert_allclose(found.node(t).mean, sampled.node(t).mean, atol=0.8)
    np.testing.assert_allclose(found.departures()["mean"], sampled.departures()["mean"], atol=0.8)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hc.SemiMarkovChain([1.0], [1.2], length=2), "hazard must be probabilities"),
        (lambda: hc.SemiMarkovChain([3.0], [0.2], length=2), "sums to 3, not 1"),
        (lambda: hc.SemiMarkovChain(3.0, [0.2], length=2), "one number per cell"),
        (lambda: hc.SemiMarkovChain(LAW, [0.2], np.eye(2), length=2), "diagonal"),
        (lambda: hc.SemiMarkovChain(LAW, [0.2], [[0, 1.1], [1, 0]], length=2), "at most 1"),
        (lambda: hc.SemiMarkovChain(LAW, np.ones((3, 2)), length=2), "per cell and age"),
        (lambda: hc.SemiMarkovChain([0.0], [0.2], arrivals=0, length=2), "nobody"),
        (lambda: hc.MemoryChain(LAW, FIRST, np.ones((2, 2)), length=3), "previous, current, next"),
        (lambda: hc.MemoryChain(LAW, FIRST, 0.9 * MEMORY, length=3), "sums to 0.9"),
        (lambda: hc.MemoryChain(LAW, FIRST, MEMORY, length=1), "two times"),
        (lambda: hc.HomeChain(LAW, FIRST, 0.5, length=1), "two times"),
        (lambda: hc.HomeChain(LAW, FIRST, 1.5, length=3), "one per home"),
        (lambda: hc.HomeChain(LAW, FIRST, [0.5], length=3), "one per home"),
        (lambda: hc.HomeChain(0.9 * HOMES, FIRST, 0.5, length=3), "sums to 0.9"),
    ],
)
def test_what_cannot_be_is_refused_in_words(make: object, message: str) -> None:
    """The message names the argument and what it must be."""
    with pytest.raises(hc.ModelError, match=message):
        make()


@pytest.mark.parametrize("kind", ["stays", "memory"])
def test_the_cells_have_the_law_of_every_single_move(kind: str) -> None:
    """Seen as a chain of cells, the first law and the law of each move given its origin are those of all paths."""
    chain, law = CHAINS[kind]
    paths = [(x, law(x)) for x in itertools.product([0, 1, GONE], repeat=3)]
    np.testing.assert_allclose(chain.initial, LAW)
    for t, step in enumerate(chain.transitions):
        flow = np.array(
            [[sum(p for x, p in paths if x[t : t + 2] == (i, j)) for j in (0, 1)] for i in (0, 1)]
        )
        np.testing.assert_allclose(chain.marginal((t, t + 1)), flow)
        np.testing.assert_allclose(step, flow / flow.sum(axis=1, keepdims=True))


def test_labels_put_tables_in_order() -> None:
    """Tables with labels are read by them, whatever their order."""
    import pandas as pd

    cells = ["a", "b"]
    turned = pd.DataFrame(MOVES, cells, cells).loc[["b", "a"], ["b", "a"]]
    chain = hc.SemiMarkovChain(
        pd.Series(LAW, cells), pd.DataFrame(HAZARD, cells).loc[["b", "a"]], turned, length=3
    )
    assert chain.cells == ("a", "b")
    for t in range(3):
        np.testing.assert_allclose(chain.marginal((t,)), CHAINS["stays"][0].marginal((t,)))


def test_only_pairs_that_occur_are_states() -> None:
    """A one-way ring of many cells has one pair per cell, and its larger graph is sparse."""
    size = 300
    ring = csr_array((np.ones(size), (np.arange(size), (np.arange(size) + 1) % size)))
    onward = csr_array(
        (
            np.ones(size),
            (np.arange(size) * size + (np.arange(size) + 1) % size, (np.arange(size) + 2) % size),
        ),
        shape=(size**2, size),
    )
    chain = hc.MemoryChain(np.full(size, 1 / size), ring, onward, length=4)
    assert chain.pairs.shape == (size, 2)
    assert issparse(chain.full.transitions[-1])
    np.testing.assert_allclose(chain.marginal((3,)), 1 / size)


STATES = list(itertools.product((0, 1), repeat=3))
TREES = {
    "x": hc.Tree(
        [0.3, 0.7], {"b": ("a", [[0.8, 0.2], [0.3, 0.7]]), "c": ("a", [[0.6, 0.4], [0.1, 0.9]])}, root="a"
    ),
    "y": hc.Tree(
        [0.6, 0.4], {"b": ("a", [[0.2, 0.8], [0.5, 0.5]]), "c": ("a", [[0.7, 0.3], [0.4, 0.6]])}, root="a"
    ),
}
TREE_SEEN = {"a": [2.0, 1.0], "b": [1.0, 3.0], "c": [4.0, 0.0]}


def populations(model: hc.Tree, people: int) -> list[tuple[float, np.ndarray]]:
    """Every population of a tree with its probability: counts of a, b and c, (3, 2)."""
    law = [float(model.marginal(("a", "b", "c"))[x]) for x in STATES]
    found = []
    for chosen in itertools.combinations_with_replacement(range(len(STATES)), people):
        weight, n = float(factorial(people)), np.zeros((3, 2))
        for k, times in Counter(chosen).items():
            weight *= law[k] ** times / factorial(times)
            for v, state in enumerate(STATES[k]):
                n[v, state] += times
        found.append((weight, n))
    return found


@pytest.mark.parametrize(
    "sizes", [(2, 2), (hc.Between(1, 3), 2), (hc.Between(1, 3), hc.Between(0, 2))], ids=str
)
def test_groups_of_trees_are_the_sum_over_both(sizes: tuple[object, object]) -> None:
    """Two groups that follow trees, of known sizes or not: evidence, means and sds of the sum, and how many are in each."""
    total, first, second, number = 0.0, np.zeros((3, 2)), np.zeros((3, 2)), 0.0
    ranges = [[size] if isinstance(size, int) else range(size.low, size.high + 1) for size in sizes]
    for many in itertools.product(*ranges):
        for one, n in populations(TREES["x"], many[0]):
            for other, m in populations(TREES["y"], many[1]):
                weight = one * other * float(np.prod(poisson.pmf(list(TREE_SEEN.values()), n + m)))
                total, number = total + weight, number + weight * many[0]
                first, second = first + weight * (n + m), second + weight * (n + m) ** 2
    mean, evidence = first / total, np.log(total / np.prod([len(r) for r in ranges]))
    sd = np.sqrt(second / total - mean**2)
    groups = {name: hc.Group(TREES[name], size) for name, size in zip("xy", sizes, strict=True)}
    problem = hc.Problem(groups=groups, observations=hc.Poisson(TREE_SEEN))
    judged = [("TiltedEP", 0.1, 0.06)] + ([(EXACT, 1e-9, 1e-9)] if sizes == (2, 2) else [])
    for engine, off, spread in judged:
        found = hc.infer(problem, engine)
        assert found.log_evidence == pytest.approx(evidence, abs=off)
        assert found.group("x").population.mean == pytest.approx(number / total, abs=off)
        for v, one in zip("abc", range(3), strict=True):
            np.testing.assert_allclose(found.node(v).mean, mean[one], atol=off)
            np.testing.assert_allclose(found.node(v).sd, sd[one], rtol=spread)
    sampled = hc.infer(problem, hc.engines.PathGibbs(sweeps=4000, burn_in=500), rng=3)
    for v, one in zip("abc", range(3), strict=True):
        # Of 24 means five Monte-Carlo errors, which one in 70 000 exceeds: the smallest effective number is above 1 000.
        np.testing.assert_allclose(sampled.node(v).mean, mean[one], atol=5 * float(sd.max()) / 1000**0.5)


def test_groups_follow_one_tree() -> None:
    """Groups with other edges, or loops, are refused with the reason."""
    moves = [[0.5, 0.5], [0.2, 0.8]]
    chain = hc.Tree([0.5, 0.5], {"b": ("a", moves), "c": ("b", moves)}, root="a")
    with pytest.raises(hc.ProblemError, match="'y' has other edges than the first group"):
        hc.Problem(
            groups={"x": hc.Group(TREES["x"], 2), "y": hc.Group(chain, 2)}, observations=hc.Poisson(TREE_SEEN)
        )
    ring = hc.DiscreteModel(
        dict.fromkeys("abc", (0, 1)), {pair: np.eye(2) for pair in (("a", "b"), ("b", "c"), ("c", "a"))}
    )
    with pytest.raises(hc.ModelError, match="whose graph has loops"):
        hc.Group(ring, 2)
