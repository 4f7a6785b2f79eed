"""Every structure gives the dense oracle's answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.graphs import awkward_models

from headcount.structure import DenseStructure, JunctionStructure, Known, TreeStructure

N = 50.0


@dataclass(frozen=True)
class Where:
    """A site without noise: only its place."""

    scope: tuple
    index: np.ndarray | None = None
    weights: csr_array | None = None

    def __len__(self) -> int:
        return len(self.index) if self.index is not None else self.weights.shape[0]


def layout(model, rng):
    """Sites on some entries of every clique, on a node, and on a sum."""
    sites = []
    for clique in model.junction_tree.cliques:
        size = int(np.prod(model.size(clique)))
        sites.append(Where(tuple(clique), np.sort(rng.choice(size, max(1, size // 2), replace=False))))
    node = (model.variables[0],)
    sites.append(Where(node, np.arange(model.size(node)[0])))
    last = (model.variables[-1],)
    sites.append(Where(last, weights=csr_array(np.eye(1, model.size(last)[0]))))
    return sites


def structures(model):
    found = {"junction": JunctionStructure}
    if model.rooted() is not None:
        found["tree"] = lambda m, *rest: TreeStructure(m.rooted(), *rest)
    return found


CASES = [(name, shape) for name, model in awkward_models().items() for shape in structures(model)]


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_moments_agree_with_the_dense_oracle(name, shape):
    """Means, variances and log Z at the sites are the dense conditioning's, to 1e-8 N."""
    model = awkward_models()[name]
    rng = np.random.default_rng(1)
    sites = layout(model, rng)
    tau = [rng.gamma(1.0, 0.3, len(s)) for s in sites]
    nu = [rng.normal(size=len(s)) for s in sites]
    oracle = DenseStructure(model, N, sites).solve(tau, nu)
    got = structures(model)[shape](model, N, sites).solve(tau, nu)
    for a, b in zip(got.mean, oracle.mean, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8 * N)
    for a, b in zip(got.variance, oracle.variance, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8 * N)
    assert got.log_z == pytest.approx(oracle.log_z, abs=1e-8)


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_fields_agree_with_the_dense_oracle(name, shape):
    """Every node's, pair's and clique's mean, variance and covariance is the dense conditioning's, to 1e-8 N."""
    model = awkward_models()[name]
    rng = np.random.default_rng(2)
    sites = layout(model, rng)
    tau = [rng.gamma(1.0, 0.3, len(s)) for s in sites]
    nu = [rng.normal(size=len(s)) for s in sites]
    oracle = DenseStructure(model, N, sites).field(tau, nu)
    got = structures(model)[shape](model, N, sites).field(tau, nu)
    scopes = [(v,) for v in model.variables] + [tuple(reversed(c)) for c in model.junction_tree.cliques]
    for scope in scopes:
        np.testing.assert_allclose(got.mean(scope), oracle.mean(scope), atol=1e-8 * N)
        np.testing.assert_allclose(got.variance(scope), oracle.variance(scope), atol=1e-8 * N)
        for other in scopes:
            np.testing.assert_allclose(
                got.covariance(scope, other), oracle.covariance(scope, other), atol=1e-8 * N
            )


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
    known = Known(
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


@pytest.mark.parametrize("name", sorted(awkward_models()))
def test_a_single_entry_still_knows_the_total(name):
    """With one entry observed in all the model, every table's spread is the dense conditioning's: tables sum to N."""
    model = awkward_models()[name]
    sites = [Where(tuple(model.junction_tree.cliques[0]), np.array([0]))]
    tau, nu = [np.array([0.3])], [np.array([0.1])]
    for build in structures(model).values():
        got, oracle = build(model, N, sites).field(tau, nu), DenseStructure(model, N, sites).field(tau, nu)
        for clique in model.junction_tree.cliques:
            np.testing.assert_allclose(
                got.variance(tuple(clique)), oracle.variance(tuple(clique)), rtol=0, atol=1e-8 * N
            )
            assert got.mean(tuple(clique)).sum() == pytest.approx(0, abs=1e-8 * N)
