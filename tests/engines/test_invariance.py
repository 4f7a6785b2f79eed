"""What must not matter does not: labels, roots, direction of time, nodes nobody looked at."""

from __future__ import annotations

import numpy as np
import pytest

import headcount as hc
from headcount.engines import MAP, Laplace, TiltedEP

ENGINES = [TiltedEP(tolerance=1e-9), MAP(tolerance=1e-10), Laplace()]
IDS = [e.name for e in ENGINES]
N = 120


def law(rng, size):
    return rng.dirichlet(np.ones(size))


def matrix(rng, rows, columns):
    return rng.dirichlet(np.ones(columns), size=rows)


def chain_and_counts():
    rng = np.random.default_rng(3)
    start, steps = law(rng, 4), [matrix(rng, 4, 4) for _ in range(3)]
    model = hc.MarkovChain(start, steps)
    drawn = model.sample(N, rng=rng)
    n = np.stack([np.bincount(drawn[:, t], minlength=4) for t in range(4)])
    y = rng.poisson(n).astype(float)
    y[1, 2], y[2] = 0.0, np.nan
    return start, steps, y


def node_means(post):
    return {v: post.beliefs.mean((v,)) for v in post.problem.model.variables}


def assert_same(first, second, tolerance=1e-6):
    for v, mean in first.items():
        np.testing.assert_allclose(mean, second[v], atol=tolerance * N)


@pytest.mark.parametrize("engine", ENGINES, ids=IDS)
def test_permuted_cells(engine):
    """Numbering the cells otherwise permutes the answer and does nothing else."""
    start, steps, y = chain_and_counts()
    order = np.array([2, 0, 3, 1])
    plain = hc.infer(hc.Problem(hc.MarkovChain(start, steps), N, [hc.Poisson(y)]), engine)
    moved = hc.MarkovChain(start[order], [p[np.ix_(order, order)] for p in steps])
    other = hc.infer(hc.Problem(moved, N, [hc.Poisson(y[:, order])]), engine)
    assert_same({v: m[order] for v, m in node_means(plain).items()}, node_means(other))
    np.testing.assert_allclose(
        plain.beliefs.mean((0, 1))[np.ix_(order, order)], other.beliefs.mean((0, 1)), atol=1e-6 * N
    )
    assert plain.log_evidence == pytest.approx(other.log_evidence, abs=1e-6)


@pytest.mark.parametrize("engine", ENGINES, ids=IDS)
def test_reversed_chain(engine):
    """The chain run backwards, with the transitions Bayes gives it, has the same answer."""
    start, steps, y = chain_and_counts()
    forwards = hc.MarkovChain(start, steps)
    mu = [forwards.marginal((t,)) for t in range(4)]
    back = [(mu[t][:, None] * steps[t]).T / mu[t + 1][:, None] for t in range(3)]
    backwards = hc.MarkovChain(mu[3], back[::-1], times=[3, 2, 1, 0])
    seen = [hc.Poisson({t: y[t] for t in (0, 1, 3)})]
    first, second = (
        hc.infer(hc.Problem(forwards, N, seen), engine),
        hc.infer(hc.Problem(backwards, N, seen), engine),
    )
    assert_same(node_means(first), node_means(second))
    np.testing.assert_allclose(first.beliefs.mean((1, 2)), second.beliefs.mean((2, 1)).T, atol=1e-6 * N)
    assert first.log_evidence == pytest.approx(second.log_evidence, abs=1e-6)


@pytest.mark.parametrize("engine", ENGINES, ids=IDS)
def test_every_root(engine):
    """A tree hung from any of its nodes is the same tree."""
    rng = np.random.default_rng(4)
    neighbours = {"a": ["b", "c"], "b": ["a", "d"], "c": ["a"], "d": ["b"]}
    original = hc.Tree(
        law(rng, 3),
        {"b": ("a", matrix(rng, 3, 2)), "c": ("a", matrix(rng, 3, 3)), "d": ("b", matrix(rng, 2, 3))},
    )
    counts = {"a": [50.0, 40.0, 35.0], "b": [70.0, 55.0], "d": [0.0, 60.0, 58.0]}

    def hung_from(root):
        edges, waiting, seen = {}, [root], {root}
        while waiting:
            u = waiting.pop()
            for v in neighbours[u]:
                if v not in seen:
                    table = original.marginal((u, v))
                    edges[v] = (u, table / table.sum(axis=1, keepdims=True))
                    seen.add(v)
                    waiting.append(v)
        return hc.Tree(original.marginal((root,)), edges, root=root)

    answers = [hc.infer(hc.Problem(hung_from(r), N, [hc.Poisson(counts)]), engine) for r in "abcd"]
    for other in answers[1:]:
        assert_same(node_means(answers[0]), node_means(other))
        assert answers[0].log_evidence == pytest.approx(other.log_evidence, abs=1e-6)


@pytest.mark.parametrize("engine", ENGINES, ids=IDS)
def test_an_inserted_unobserved_node_changes_nothing(engine):
    """Splitting a step in two by a time nobody looked at leaves every other time's answer and the evidence alone."""
    rng = np.random.default_rng(5)
    start, first, second = law(rng, 3), matrix(rng, 3, 3), matrix(rng, 3, 3)
    counts = {0: [50.0, 0.0, 61.0], 2: [40.0, 35.0, 52.0]}
    split = hc.Problem(hc.MarkovChain(start, [first, second], times=[0, 1, 2]), N, [hc.Poisson(counts)])
    whole = hc.Problem(hc.MarkovChain(start, [first @ second], times=[0, 2]), N, [hc.Poisson(counts)])
    a, b = hc.infer(split, engine), hc.infer(whole, engine)
    for t in (0, 2):
        np.testing.assert_allclose(a.beliefs.mean((t,)), b.beliefs.mean((t,)), atol=1e-6 * N)
        if engine.name != "MAP":
            np.testing.assert_allclose(a.beliefs.variance((t,)), b.beliefs.variance((t,)), atol=1e-6 * N)
    assert a.log_evidence == pytest.approx(b.log_evidence, abs=1e-6)
