"""The operator without matrices gives the tree structure's answers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from tests.graphs import awkward_models
from tests.structure.cases import N, Where

from headcount.individual import MarkovChain, ModelError
from headcount.population import GCGM
from headcount.structure import TreeStructure
from headcount.structure._matrix_free import MatrixFreeTree

TREES = {name: model for name, model in awkward_models().items() if model.rooted() is not None}


def sparse_chain() -> MarkovChain:
    rng = np.random.default_rng(4)
    matrix = rng.dirichlet(np.ones(5), size=5) * (rng.random((5, 5)) < 0.6) + 0.1 * np.eye(5)
    return MarkovChain(
        rng.dirichlet(np.ones(5)), sparse.csr_array(matrix / matrix.sum(axis=1, keepdims=True)), length=4
    )


TREES["sparse chain"] = sparse_chain()
every_tree = pytest.mark.parametrize("name", TREES)


def asked(name, seed=1):
    """A tree, sites on every node and a sum, with precisions (one of them 0) and potentials."""
    model = TREES[name]
    tree = model.rooted()
    rng = np.random.default_rng(seed)
    sites = [Where((v,), np.arange(size)) for v, size in zip(tree.variables, tree.sizes, strict=True)]
    sites.append(Where((tree.variables[-1],), weights=sparse.csr_array(np.eye(1, tree.sizes[-1]))))
    tau = [rng.gamma(1.0, 0.3, len(s)) for s in sites]
    tau[0][0] = 0.0
    return model, tree, sites, tau, [rng.normal(size=len(s)) for s in sites]


@every_tree
def test_the_operator_is_the_covariance(name):
    """K times the unit vectors is N(⟨μ_st⟩ − μ_s μ_tᵀ), all nodes side by side."""
    model, tree, sites, _, _ = asked(name)
    free = MatrixFreeTree(tree, N, sites)
    law = GCGM(model, int(N))
    expected = np.block([[law.covariance((a,), (b,)) for b in tree.variables] for a in tree.variables])
    np.testing.assert_allclose(free.covariance_times(np.eye(len(expected))), expected, atol=1e-12 * N)


@every_tree
def test_means_are_the_tree_structures(name):
    """Conjugate gradients give the smoother's means to 1e-9 N, sums and unobserved entries included."""
    _, tree, sites, tau, nu = asked(name)
    field = TreeStructure(tree, N, sites).field(tau, nu)
    expected = np.concatenate([field.mean((v,)) for v in tree.variables])
    np.testing.assert_allclose(MatrixFreeTree(tree, N, sites).mean(tau, nu), expected, atol=1e-9 * N)


@every_tree
def test_draws_have_the_posterior_covariance(name):
    """Prior and posterior draws: covariances within five standard errors of the operator's and the smoother's."""
    _, tree, sites, tau, nu = asked(name)
    free, field = MatrixFreeTree(tree, N, sites), TreeStructure(tree, N, sites).field(tau, nu)
    names = tree.variables
    posterior = np.block([[field.covariance((a,), (b,)) for b in names] for a in names])
    prior = free.covariance_times(np.eye(len(posterior)))
    count = 3000
    for draws, covariance in (
        (free.prior_draws(count, rng=np.random.default_rng(2)), prior),
        (free.draws(tau, nu, count, rng=np.random.default_rng(3)) - free.mean(tau, nu)[:, None], posterior),
    ):
        variance = np.diagonal(covariance)
        error = np.sqrt((covariance**2 + np.outer(variance, variance)) / count)
        assert (np.abs(draws @ draws.T / count - covariance) <= 5 * error + 1e-7).all()


@every_tree
def test_log_determinants_are_the_tree_structures(name):
    """log Z = ½ ν·δ − ½ log det A: the Lanczos estimate is within five of its standard errors."""
    _, tree, sites, tau, nu = asked(name)
    free = MatrixFreeTree(tree, N, sites)
    log_z = TreeStructure(tree, N, sites).solve(tau, nu).log_z
    expected = np.concatenate(nu) @ (free.rows @ free.mean(tau, nu)) - 2 * log_z
    found, error = free.log_determinant(tau, probes=60, steps=40, rng=np.random.default_rng(5))
    assert abs(found - expected) <= 5 * error + 1e-6


def test_only_nodes_are_observed():
    """Sites on edges, and wrong types, are refused."""
    tree = TREES["chain"].rooted()
    with pytest.raises(ModelError, match="tree is"):
        MatrixFreeTree(3, N, [])
    with pytest.raises(ModelError, match="single nodes"):
        MatrixFreeTree(tree, N, [Where(tuple(tree.variables[:2]), np.arange(2))])
