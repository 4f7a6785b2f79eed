"""Records of followed individuals: probabilities and expected moves against a sum over all paths."""

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array

import headcount as hc
from headcount.individual import Records, follow, record_log_prob


def chain(rng: np.random.Generator, *, sparse: bool = False) -> hc.MarkovChain:
    steps = rng.dirichlet(np.ones(3), size=(3, 3))
    steps[:, 0, 2] = 0.0
    steps /= steps.sum(axis=2, keepdims=True)
    return hc.MarkovChain(rng.dirichlet(np.ones(3)), [csr_array(s) for s in steps] if sparse else steps)


def records(rng: np.random.Generator) -> Records:
    """Five individuals with gaps, certain and uncertain positions."""
    seen = {
        0: (np.array([0, 1]), csr_array(np.eye(3)[[0, 1]])),
        2: (np.array([0, 2, 3]), csr_array(rng.random((3, 3)))),
        3: (np.array([1, 4]), csr_array(np.eye(3)[[1, 0]])),
    }
    return Records(tuple("abcde"), seen)


def by_paths(model: hc.MarkovChain, known: Records) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """The same numbers from a sum over all 81 paths."""
    found, first, flows = np.zeros(len(known)), np.zeros(3), [np.zeros((3, 3)) for _ in range(3)]
    dense = [s.toarray() if hasattr(s, "toarray") else s for s in model.transitions]
    for r in range(len(known)):
        weights = {}
        for path in itertools.product(range(3), repeat=4):
            p = model.initial[path[0]] * np.prod([dense[t][path[t], path[t + 1]] for t in range(3)])
            for node, (rows, likelihood) in known.seen.items():
                if r in rows:
                    p *= likelihood.toarray()[list(rows).index(r), path[node]]
            weights[path] = p
        total = sum(weights.values())
        found[r] = np.log(total)
        for path, p in weights.items():
            first[path[0]] += p / total
            for t in range(3):
                flows[t][path[t], path[t + 1]] += p / total
    return found, first, flows


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("batch", [1, 10**6])
def test_a_record_is_the_sum_over_its_paths(monkeypatch, sparse, batch):
    """log p(record), expected first cells and expected moves are those of the sum over all paths, in batches of any size."""
    from headcount.individual import _records

    monkeypatch.setattr(_records, "BATCH_ENTRIES", batch)
    rng = np.random.default_rng(3)
    model, known = chain(rng, sparse=sparse), records(rng)
    found, first, flows = by_paths(model, known)
    np.testing.assert_allclose(record_log_prob(model.rooted(), known), found)
    followed = follow(model.rooted(), known)
    np.testing.assert_allclose(followed.log_prob, found)
    np.testing.assert_allclose(followed.initial, first)
    for mine, theirs in zip(followed.flows, flows, strict=True):
        np.testing.assert_allclose(mine.toarray() if sparse else mine, theirs, atol=1e-12)


def test_an_impossible_record_is_minus_infinity():
    """A record that the chain does not allow has log p = −inf and adds nothing to the expected moves."""
    model = hc.MarkovChain([1.0, 0.0], [[1.0, 0.0], [0.0, 1.0]], length=2)
    known = Records(("x", "y"), {1: (np.array([0, 1]), csr_array(np.eye(2)[[1, 0]]))})
    followed = follow(model.rooted(), known)
    assert followed.log_prob.tolist() == [-np.inf, 0.0]
    np.testing.assert_allclose(followed.flows[0], [[1.0, 0.0], [0.0, 0.0]])
    assert known.times()[0].tolist() == [1, 1]
