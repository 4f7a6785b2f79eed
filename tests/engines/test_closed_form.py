"""The closed form is conditioning, whatever is singular, unobserved, correlated or summed."""

from __future__ import annotations

import numpy as np
import pytest
from tests.engines.cases import MODELS, node_counts, problem, scopes
from tests.structure.dense import DenseStructure

import headcount as hc
from headcount.engines import ClosedForm, TiltedEP
from headcount.structure import KnownCounts

N = 50


def dense(asked):
    """The dense oracle's posterior for Gaussian and exact sites."""
    exact, readings, tau, nu, constant = {}, {}, [], [], 0.0
    for k, site in enumerate(asked.sites):
        expected = N * site.margin(asked.model.marginal(site.scope).ravel())
        gap = site.noise.counts - expected
        tau.append(np.zeros(len(site)))
        nu.append(np.zeros(len(site)))
        if site.noise.exact:
            exact[k] = gap
            continue
        if tuple(site.scope) == tuple(asked.sites[0].scope):  # a reading of what is exact: a constant
            constant += float(site.noise.log_prob(site.margin(asked.sites[0].noise.counts)).sum())
            continue
        covariance = site.noise.covariance
        if covariance is None:
            covariance = np.diag(np.broadcast_to(np.square(site.noise.sd), gap.shape))
        precision = np.linalg.inv(covariance)
        readings[k] = (precision, precision @ gap)
        constant += -0.5 * gap @ precision @ gap - 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    structure = DenseStructure(asked.model, N, asked.sites, KnownCounts(exact, readings))
    free = DenseStructure(asked.model, N, asked.sites, KnownCounts({}, readings))
    seen = free.field(tau, nu)
    scope = asked.sites[0].scope  # the exact one
    site = asked.sites[0]
    rows = site.margin(np.eye(site.size)).T
    covariance = rows @ seen.covariance(scope, scope) @ rows.T
    mass = unit_masses(exact[0] - rows @ seen.mean(scope).ravel(), covariance)
    return structure.field(tau, nu), free.solve(tau, nu).log_z + constant + mass


def unit_masses(gap, covariance):
    """log of the mass of unit bins, one count at a time, the widest first, each given exactly those before it."""
    gap, covariance, total = gap.copy(), covariance.copy(), 0.0
    while covariance.diagonal().max() > 1e-6:
        k = int(covariance.diagonal().argmax())
        d = covariance[k, k]
        total += -0.5 * np.log(1 + 2 * np.pi * d) - np.pi * gap[k] ** 2 / (1 + 2 * np.pi * d)
        gap = gap - covariance[:, k] * gap[k] / d
        covariance = covariance - np.outer(covariance[:, k], covariance[k]) / d
    return total


def observations(model, rng):
    """An exact first node, a correlated last one, and a noisy sum over a clique; what lies between is not seen."""
    counts = node_counts(model, N, rng)
    first, last = model.variables[0], model.variables[-1]
    seen = [hc.Exact(counts[first], on=first)]
    if last != first:
        width = len(model.states[last])
        root = rng.normal(size=(width, width))
        seen.append(hc.Gaussian(counts[last], covariance=root @ root.T + np.eye(width), on=last))
    clique = tuple(model.junction_tree.cliques[-1])
    size = int(np.prod(model.size(clique)))
    rows = np.zeros((1, size))
    rows[0, : max(1, size // 2)] = 1.0
    on = clique if len(clique) > 1 else clique[0]
    return [*seen, hc.Gaussian([20.0], sd=3.0, on=on, sums=rows)]


@pytest.mark.parametrize("graph", MODELS)
def test_it_is_dense_conditioning(graph):
    """Moments and evidence are those of the full covariance conditioned by textbook formulas, exact counts being unit bins."""
    model = MODELS[graph]
    asked = hc.Problem(model, N, observations(model, np.random.default_rng(5)))
    post = hc.infer(asked, ClosedForm())
    field, evidence = dense(asked)
    for scope in scopes(model):
        np.testing.assert_allclose(
            post.beliefs.mean(scope), N * model.marginal(scope) + field.mean(scope), atol=1e-7 * N
        )
        np.testing.assert_allclose(post.beliefs.variance(scope), field.variance(scope), atol=1e-7 * N)
    first, last = (model.variables[0],), (model.variables[-1],)
    np.testing.assert_allclose(
        post.beliefs.covariance(first, last), field.covariance(first, last), atol=1e-7 * N
    )
    assert post.log_evidence == pytest.approx(evidence, abs=1e-6)


@pytest.mark.parametrize("graph", MODELS)
def test_exact_counts_after_unknown_ones(graph):
    """Exact counts, some or all of a node's, whose parent is not known: flows into them have the variances of dense conditioning."""
    model = MODELS[graph]
    last = model.variables[-1]
    counts = np.asarray(node_counts(model, N, np.random.default_rng(8))[last], dtype=float)
    some = np.where(np.arange(len(counts)) == 0, counts, np.nan)
    for seen in (counts, some):
        asked = hc.Problem(model, N, [hc.Exact(seen, on=last)])
        post = hc.infer(asked, ClosedForm())
        field, evidence = dense(asked)
        for scope in scopes(model):
            np.testing.assert_allclose(post.beliefs.variance(scope), field.variance(scope), atol=1e-7 * N)
        assert post.log_evidence == pytest.approx(evidence, abs=1e-6)


@pytest.mark.parametrize("graph", MODELS)
def test_covariances_are_positive_semidefinite(graph):
    """No linear functional of any table has a negative posterior variance, from ClosedForm and from TiltedEP."""
    for post in (
        hc.infer(problem(graph, "gaussian", N), ClosedForm()),
        hc.infer(problem(graph, "poisson", N), TiltedEP()),
    ):
        for scope in scopes(post.problem.model):
            covariance = post.beliefs.covariance(scope, scope)
            np.testing.assert_allclose(covariance, covariance.T, atol=1e-9 * N)
            assert np.linalg.eigvalsh(covariance).min() >= -1e-9 * N


def test_count_noise_is_refused():
    """ClosedForm names the noise it cannot take, and the engine that can."""
    with pytest.raises(ValueError, match="Poisson noise needs TiltedEP"):
        hc.infer(problem("chain", "poisson", N), ClosedForm())
