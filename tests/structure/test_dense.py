"""Every structure gives the dense oracle's answer, and the oracle is Gaussian conditioning by definition."""

from __future__ import annotations

import numpy as np
import pytest
from tests.graphs import awkward_models
from tests.structure.cases import CASES, N, Where, sites_and_values, structures
from tests.structure.dense import DenseStructure


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_moments_agree_with_the_dense_oracle(name, shape):
    """Means, variances and log Z at the sites are the dense conditioning's, to 1e-8 N."""
    model = awkward_models()[name]
    sites, tau, nu = sites_and_values(model, 1)
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
    sites, tau, nu = sites_and_values(model, 2)
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


@pytest.mark.parametrize("name", sorted(awkward_models()))
def test_the_oracle_is_conditioning_by_definition(name):
    """Posterior mean C Bᵀ(B C Bᵀ + D)⁻¹ y and covariance C − C Bᵀ(B C Bᵀ + D)⁻¹ B C, for sites as readings y with variance D = 1/tau."""
    model = awkward_models()[name]
    sites, tau, nu = sites_and_values(model, 6)
    structure = DenseStructure(model, N, sites)
    b, c = np.vstack(structure.rows), structure.covariance_matrix
    d, y = 1 / np.concatenate(tau), np.concatenate(nu) / np.concatenate(tau)
    gain = c @ b.T @ np.linalg.inv(b @ c @ b.T + np.diag(d))
    mean, covariance, log_z = structure.posterior(tau, nu)
    np.testing.assert_allclose(mean, gain @ y, atol=1e-8 * N)
    np.testing.assert_allclose(covariance, c - gain @ b @ c, atol=1e-8 * N)
    sign, log_det = np.linalg.slogdet(np.eye(len(d)) + (b @ c @ b.T) / d[:, None])
    assert sign > 0
    at = np.concatenate(nu)
    assert log_z == pytest.approx(0.5 * at @ (b @ (gain @ y)) - 0.5 * log_det, abs=1e-8)


@pytest.mark.parametrize(("name", "shape"), [*CASES, *((n, "dense") for n in awkward_models())])
def test_draws_have_the_posterior_moments(name, shape):
    """2000 draws of every clique table have the field's mean and variance within five standard errors, and agree on the nodes."""
    model = awkward_models()[name]
    sites, tau, nu = sites_and_values(model, 5)
    make = {**structures(model), "dense": DenseStructure}[shape]
    field = make(model, N, sites).field(tau, nu)
    draws = field.sample(2000, rng=np.random.default_rng(1))
    seen: dict = {}
    for clique in model.junction_tree.cliques:
        scope = next(s for s in draws if set(clique) <= set(s))
        x = model.domain(scope).project(draws[scope], clique)
        sd = np.sqrt(field.variance(clique))
        assert (np.abs(x.mean(axis=0) - field.mean(clique)) <= 5 * sd / np.sqrt(len(x)) + 1e-6).all()
        assert (np.abs(x.std(axis=0) - sd) <= 5 * sd / np.sqrt(2 * len(x)) + 1e-6).all()
        for v in clique:
            node = model.domain(clique).project(x, (v,))
            np.testing.assert_allclose(node, seen.setdefault(v, node), atol=1e-5)


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
