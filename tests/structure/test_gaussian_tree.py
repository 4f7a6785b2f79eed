"""Exact observations as constraints."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.graphs import awkward_models
from tests.structure.cases import CASES, N, Where, structures
from tests.structure.dense import DenseStructure

from headcount.structure import Contradiction, KnownCounts


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_exact_margins_and_correlated_readings(name, shape):
    """Constraints and full-covariance readings give the dense answer, whatever is singular."""
    model = awkward_models()[name]
    rng = np.random.default_rng(3)
    first, last = (model.variables[0],), (model.variables[-1],)
    size = model.size(first)[0]
    draw = model.sample(int(N), rng=rng)
    counts = np.bincount(draw[:, 0], minlength=size)
    sites = [
        Where(first, np.arange(size)),
        Where(last, np.arange(model.size(last)[0])),
        Where(tuple(model.junction_tree.cliques[0]), np.arange(1)),
    ]
    width = model.size(last)[0]
    root = rng.normal(size=(width, width))
    known = KnownCounts(
        {0: counts - N * model.marginal(first)}, {1: (root @ root.T + np.eye(width), rng.normal(size=width))}
    )
    tau = [np.zeros(len(s)) for s in sites]
    nu = [np.zeros(len(s)) for s in sites]
    tau[2][:] = 0.2
    oracle = DenseStructure(model, N, sites, known)
    got = structures(model)[shape](model, N, sites, known)
    a, b = got.solve(tau, nu), oracle.solve(tau, nu)
    np.testing.assert_allclose(a.mean[0], known.exact[0], atol=1e-8 * N)
    for k in range(3):
        np.testing.assert_allclose(a.mean[k], b.mean[k], atol=1e-8 * N)
        np.testing.assert_allclose(a.variance[k], b.variance[k], atol=1e-8 * N)
    assert a.log_z == pytest.approx(b.log_z, abs=1e-7)
    f, g = got.field(tau, nu), oracle.field(tau, nu)
    for clique in model.junction_tree.cliques:
        np.testing.assert_allclose(f.mean(tuple(clique)), g.mean(tuple(clique)), atol=1e-7 * N)
        np.testing.assert_allclose(f.variance(tuple(clique)), g.variance(tuple(clique)), atol=1e-7 * N)


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_exact_tables_and_sums(name, shape):
    """A whole clique table and a sum of a node's cells, both exact: the table is what was seen, the rest as the oracle says."""
    model = awkward_models()[name]
    clique, last = tuple(model.junction_tree.cliques[0]), (model.variables[-1],)
    rng = np.random.default_rng(4)
    draw = model.sample(int(N), rng=rng)
    columns = [model.variables.index(v) for v in clique]
    flat = np.ravel_multi_index(tuple(draw[:, columns].T), model.size(clique))
    table = np.bincount(flat, minlength=model.domain(clique).size) - N * model.marginal(clique).reshape(-1)
    weights = csr_array(np.ones((1, model.size(last)[0])))
    weights[0, 0] = 0.0
    node = np.bincount(draw[:, -1], minlength=model.size(last)[0]) - N * model.marginal(last)
    sites = [Where(clique, np.arange(len(table))), Where(last, weights=weights)]
    known = KnownCounts({0: table, 1: weights @ node}, {})
    empty = [np.zeros(len(s)) for s in sites]
    got, oracle = structures(model)[shape](model, N, sites, known), DenseStructure(model, N, sites, known)
    a, b = got.solve(empty, empty), oracle.solve(empty, empty)
    np.testing.assert_allclose(a.mean[0], table, atol=1e-8 * N)
    np.testing.assert_allclose(a.variance[0], 0.0, atol=1e-8 * N)
    np.testing.assert_allclose(
        got.field(empty, empty).mean(last), oracle.field(empty, empty).mean(last), atol=1e-7 * N
    )
    assert a.log_z - b.log_z == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_a_total_that_is_not_n_is_a_contradiction(name, shape):
    """Exact counts of a node that sum to N + 1 are refused, with a number of individuals."""
    model = awkward_models()[name]
    first = (model.variables[0],)
    size = model.size(first)[0]
    sites = [Where(first, np.arange(size))]
    known = KnownCounts({0: np.full(size, 1.0 / size)}, {})
    with pytest.raises(Contradiction, match=r"contradict each other by [\d.]+ individuals"):
        structures(model)[shape](model, N, sites, known).solve([np.zeros(size)], [np.zeros(size)])
