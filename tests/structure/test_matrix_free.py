"""The structure without matrices gives the tree structure's answers: means exactly, variances and log Z within their stated error."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from reproduction.gaussian_law import GCGM
from scipy import sparse
from tests.graphs import awkward_models
from tests.structure.cases import N, Where

from headcount.individual import MarkovChain, ModelError
from headcount.structure import KnownCounts, MatrixFreeStructure, NotPositiveDefinite, Sampling, TreeStructure
from headcount.structure._variance_draws import prior_draws

TREES = {name: model for name, model in awkward_models().items() if model.rooted() is not None}


def sparse_chain() -> MarkovChain:
    rng = np.random.default_rng(4)
    matrix = rng.dirichlet(np.ones(5), size=5) * (rng.random((5, 5)) < 0.6) + 0.1 * np.eye(5)
    return MarkovChain(
        rng.dirichlet(np.ones(5)), sparse.csr_array(matrix / matrix.sum(axis=1, keepdims=True)), length=4
    )


TREES["sparse chain"] = sparse_chain()
every_tree = pytest.mark.parametrize("name", TREES)
MANY = Sampling(sweep=512, final=512)


def asked(name, seed=1, *, flows=False):
    """A tree, sites on every node, on a sum and on some flows, with precisions (one of them 0) and potentials."""
    model = TREES[name]
    tree = model.rooted()
    rng = np.random.default_rng(seed)
    sites = [Where((v,), np.arange(size)) for v, size in zip(tree.variables, tree.sizes, strict=True)]
    sites.append(Where((tree.variables[-1],), weights=sparse.csr_array(np.eye(1, tree.sizes[-1]))))
    if flows and len(tree.sizes) > 1:
        first, last = (list(tree.edge_of)[k] for k in (0, -1))
        cells = int(np.prod(model.size(first)))
        sites.insert(0, Where(first[::-1], np.arange(0, cells, 2)))
        sums = rng.integers(0, 2, size=(2, int(np.prod(model.size(last))))).astype(float)
        sites.insert(1, Where(last, weights=sparse.csr_array(sums)))
    tau = [rng.gamma(1.0, 0.3, len(s)) for s in sites]
    tau[0][0] = 0.0
    return model, tree, sites, tau, [rng.normal(size=len(s)) for s in sites]


def both(name, sampling=MANY, negative=0.0, *, flows=False):
    """Both structures on the same question; the last precision may be ``negative``, in shares of what the others leave."""
    _, tree, sites, tau, nu = asked(name, flows=flows)
    exact = TreeStructure(tree, N, sites)
    if negative:
        tau[-1][:] = 0.0
        variance = exact.solve(tau, nu).variance[-1]
        tau[-1][:] = np.where(variance > 1e-9, -negative / np.maximum(variance, 1e-9), 0.0)
    return MatrixFreeStructure(tree, N, sites, sampling=sampling), exact, tau, nu


def edges(tree):
    """Every edge, in both orders."""
    forward = list(tree.edge_of)
    return [*forward, *(edge[::-1] for edge in forward)]


@every_tree
def test_the_operator_is_the_covariance(name):
    """K times the unit vectors is N(⟨μ_st⟩ − μ_s μ_tᵀ), all nodes side by side; its diagonal is known without it."""
    model, tree, sites, _, _ = asked(name)
    free = MatrixFreeStructure(tree, N, sites)
    law = GCGM(model, int(N))
    expected = np.block([[law.covariance((a,), (b,)) for b in tree.variables] for a in tree.variables])
    np.testing.assert_allclose(free.prior.times(np.eye(len(expected))), expected, atol=1e-12 * N)
    np.testing.assert_allclose(free.prior_variance, np.diagonal(expected), atol=1e-12 * N)
    seen = free.sensors.rows @ expected @ free.sensors.rows.T
    np.testing.assert_allclose(free.seen_variance, np.diagonal(seen), atol=1e-12 * N)


@every_tree
def test_the_operator_includes_moves_that_are_seen(name):
    """K of cells and of every other possible move is the Gaussian law's, whether steps are dense or sparse."""
    model, tree, _, _, _ = asked(name)
    if len(tree.variables) == 1:
        return
    law = GCGM(model, int(N))
    sites = [Where(edge, np.arange(0, np.prod(model.size(edge)), 2)) for edge in tree.edge_of]
    free = MatrixFreeStructure(tree, N, sites)
    scopes = [(v,) for v in tree.variables] + list(tree.edge_of)
    picks = [np.arange(size) for size in tree.sizes] + [
        free.sensors.edges[tree.edge_of[e]] for e in tree.edge_of
    ]
    blocks = [
        [law.covariance(a, b)[np.ix_(i, j)] for b, j in zip(scopes, picks, strict=True)]
        for a, i in zip(scopes, picks, strict=True)
    ]
    expected = np.block(blocks)
    np.testing.assert_allclose(free.prior.times(np.eye(len(expected))), expected, atol=1e-12 * N)
    np.testing.assert_allclose(free.prior_variance, np.diagonal(expected), atol=1e-12 * N)


def same_means_and_covariances(free, exact, tau, nu):
    tree = free.tree
    got, expected = free.field(tau, nu), exact.field(tau, nu)
    for scope in [*((v,) for v in tree.variables), *edges(tree)]:
        np.testing.assert_allclose(got.mean(scope), expected.mean(scope), atol=1e-9 * N)
    first, last = (tree.variables[0],), (tree.variables[-1],)
    for a, b in ((first, last), (last, first), (last, last)):
        np.testing.assert_allclose(got.covariance(a, b), expected.covariance(a, b), atol=1e-9 * N)
    np.testing.assert_allclose(
        np.concatenate(free.solve(tau, nu).mean), np.concatenate(exact.solve(tau, nu).mean), atol=1e-9 * N
    )


@pytest.mark.parametrize("flows", [False, True], ids=["cells", "flows"])
@pytest.mark.parametrize("negative", [0.0, 0.3])
@every_tree
def test_means_and_covariances_are_the_tree_structures(name, negative, flows):
    """Conjugate gradients give the smoother's means and node covariances to 1e-9 N: sums, flows, negative precisions included."""
    same_means_and_covariances(*both(name, Sampling(sweep=8), negative, flows=flows))


def beside_exact(name, sampling=MANY, negative=0.0):
    """Both structures beside exact counts (a whole node, which is redundant, and a sum) and readings with correlated errors."""
    _, tree, sites, tau, nu = asked(name, flows=True)
    rng = np.random.default_rng(5)
    nodes = [
        k for k, site in enumerate(sites) if site.scope == (tree.variables[0],) and site.index is not None
    ]
    law = GCGM(TREES[name], int(N))
    free_sum = rng.normal(size=tree.sizes[0]) * np.sqrt(law.mean((tree.variables[0],)))
    mu = law.mean((tree.variables[0],)) / N
    exact = {nodes[0]: free_sum - mu * free_sum.sum(), len(sites) - 1: np.array([0.3])}
    root = rng.normal(size=(len(sites[-2]), len(sites[-2]))) + 2 * np.eye(len(sites[-2]))
    readings = {len(sites) - 2: (root @ root.T / 5, rng.normal(size=len(sites[-2])))}
    for k in (*exact, *readings):
        tau[k], nu[k] = np.zeros(len(sites[k])), np.zeros(len(sites[k]))
    if negative:
        tau[0] = np.full(len(sites[0]), -0.01)
    known = KnownCounts(exact, readings)
    return (
        MatrixFreeStructure(tree, N, sites, known, sampling=sampling),
        TreeStructure(tree, N, sites, known),
        tau,
        nu,
    )


several = pytest.mark.parametrize("name", ["chain", "sparse chain", "star"])


@several
@pytest.mark.parametrize("negative", [0.0, 0.3])
def test_exact_counts_and_correlated_readings_are_the_tree_structures(name, negative):
    """Beside exact counts that follow from one another, and correlated readings, means and covariances are the smoother's to 1e-9 N."""
    same_means_and_covariances(*beside_exact(name, Sampling(sweep=8), negative))


@several
def test_variances_beside_exact_counts_are_within_their_stated_error(name):
    """The same of variances; a count that is known has none; there is no log Z, because a density is no probability."""
    free, exact, tau, nu = beside_exact(name)
    within_stated_error(free, exact, tau, nu)
    field = free.field(tau, nu)
    assert (field.variance((free.tree.variables[0],)) == 0).all()
    assert np.isnan(field.log_z[0])


@every_tree
def test_prior_draws_have_the_prior_covariance(name):
    """Covariances of 3008 draws are within five standard errors of the operator's."""
    _, tree, sites, _, _ = asked(name)
    free = MatrixFreeStructure(tree, N, sites)
    prior = free.prior.times(np.eye(free.prior.size))
    draws = np.hstack([prior_draws(free.prior, 0, k, 64) for k in range(47)])
    variance = np.diagonal(prior)
    error = np.sqrt((prior**2 + np.outer(variance, variance)) / draws.shape[1])
    assert (np.abs(draws @ draws.T / draws.shape[1] - prior) <= 5 * error + 1e-7).all()


def within_stated_error(free, exact, tau, nu):
    got, expected = free.field(tau, nu), exact.field(tau, nu)
    off = [np.zeros(1)]
    for scope in [*((v,) for v in free.tree.variables), *free.tree.edge_of]:
        sd, true = np.sqrt(got.variance(scope)), np.sqrt(np.maximum(expected.variance(scope), 0.0))
        error = got.mc_error(scope)
        assert (np.abs(sd - true) <= 5 * error + 1e-4).all()
        uncertain = error > 1e-6
        off.append((sd - true)[uncertain] / error[uncertain])
    assert np.sqrt(np.mean(np.concatenate(off) ** 2)) < 1.6
    found = np.concatenate(free.solve(tau, nu).variance)
    np.testing.assert_allclose(found, np.concatenate(exact.solve(tau, nu).variance), rtol=0.25, atol=1e-6)


@pytest.mark.parametrize("flows", [False, True], ids=["cells", "flows"])
@every_tree
def test_variances_are_within_their_stated_error(name, flows):
    """Sds of cells and flows: none beyond five of their Monte-Carlo errors; all of them together neither over- nor understated."""
    within_stated_error(*both(name, flows=flows))


@every_tree
def test_the_evidence_is_within_its_stated_error(name):
    """log Z of the final draws is within four standard errors, which are below .2 nats here; so is a sweep's."""
    free, exact, tau, nu = both(name)
    expected = exact.solve(tau, nu).log_z
    found, error = free.field(tau, nu).log_z
    assert error < 0.2
    assert abs(found - expected) <= 4 * error + 1e-6
    assert abs(free.solve(tau, nu).log_z - expected) <= 4 * error + 1e-6


@every_tree
def test_slightly_negative_precisions(name):
    """One negative site is put in exactly: variance and log Z agree with the smoother's; too negative ones are refused as by it."""
    free, exact, tau, nu = both(name, negative=0.3)
    got, expected = free.solve(tau, nu), exact.solve(tau, nu)
    np.testing.assert_allclose(got.variance[-1], expected.variance[-1], rtol=0.2, atol=1e-9)
    assert got.log_z == pytest.approx(expected.log_z, abs=0.2)
    tau[-1][:] = -50.0
    if exact.tree.sizes[-1] > 1 and free.seen_variance[-1] > 0:
        with pytest.raises(NotPositiveDefinite):
            free.solve(tau, nu)


@pytest.mark.parametrize("name", ["chain", "sparse chain"])
def test_samples_have_the_posterior_moments(name):
    """Joint draws of flows agree on the nodes they share, and have the smoother's means and variances."""
    free, exact, tau, nu = both(name)
    drawn = free.field(tau, nu).sample(3000, rng=np.random.default_rng(3))
    expected = exact.field(tau, nu)
    names = free.tree.variables
    for u, v in pairwise(names):
        table = drawn[u, v]
        variance = expected.variance((u, v))
        assert (
            np.abs(table.mean(axis=0) - expected.mean((u, v))) <= 5 * np.sqrt(variance / 3000) + 1e-7
        ).all()
        np.testing.assert_allclose(table.var(axis=0), variance, rtol=5 * np.sqrt(2 / 3000), atol=1e-7)
    inner = drawn[names[0], names[1]].sum(axis=1), drawn[names[1], names[2]].sum(axis=2)
    np.testing.assert_allclose(*inner, atol=1e-5 * N)


@pytest.mark.parametrize("name", ["chain", "sparse chain"])
def test_nodes_are_drawn_alone(name):
    """Joint draws of nodes, without tables of pairs, have the smoother's means and covariances; one negative precision widens its count."""
    free, exact, tau, nu = both(name)
    field, expected = free.field(tau, nu), exact.field(tau, nu)
    drawn = field.sample_nodes(3000, rng=np.random.default_rng(3))
    first, second = free.tree.variables[:2]
    split = free.tree.sizes[0]
    covariance = expected.covariance((first,), (second,))
    found = np.cov(drawn.T)[:split, split : split + free.tree.sizes[1]]
    variance, other = expected.variance((first,)), expected.variance((second,))
    error = np.sqrt((np.outer(variance, other) + covariance**2) / 3000)
    assert (np.abs(found - covariance) <= 5 * error + 1e-7).all()
    off = np.abs(drawn[:, :split].mean(axis=0) - expected.mean((first,)))
    assert (off <= 5 * np.sqrt(variance / 3000) + 1e-7).all()
    tau[0][0] = -1e-3
    widened = free.field(tau, nu)
    ratio = widened.sample_nodes(3000, rng=np.random.default_rng(3)).var(axis=0)[:split]
    np.testing.assert_allclose(ratio, widened.variance((first,)), rtol=0.25, atol=1e-7)


def test_the_same_draws_every_time():
    """A solve is a function of its arguments: the same bits again, other ones under another seed."""
    free, _, tau, nu = both("chain", Sampling(sweep=16))
    a, b = free.solve(tau, nu), free.solve(tau, nu)
    assert a.log_z == b.log_z
    assert all((x == y).all() for x, y in zip(a.variance, b.variance, strict=True))
    other = MatrixFreeStructure(free.tree, N, free.sites, sampling=Sampling(sweep=16, seed=1))
    assert other.solve(tau, nu).log_z != a.log_z


def test_moves_are_listed_where_transitions_are_sparse():
    """The list of moves is the table's possible entries."""
    free, _, tau, nu = both("sparse chain")
    field, edge = free.field(tau, nu), (0, 1)
    moves = field.moves(edge)
    for values, table in (
        (moves.mean, field.mean(edge)),
        (moves.variance, field.variance(edge)),
        (moves.mc_error, field.mc_error(edge)),
    ):
        np.testing.assert_array_equal(values, table.ravel()[moves.entries])
        assert np.count_nonzero(table) <= len(moves.entries) < table.size
    assert field.moves((0,)) is None
    assert field.moves((1, 0)) is None


def test_nothing_observed_is_the_prior():
    """Without sites: mean zero, log Z zero, the prior's variances to the last digit (the control variate knows them)."""
    tree = TREES["chain"].rooted()
    free = MatrixFreeStructure(tree, N, [])
    assert free.solve([], []).log_z == 0.0
    field = free.field([], [])
    for v in tree.variables:
        expected = TreeStructure(tree, N, []).field([], []).variance((v,))
        np.testing.assert_allclose(field.variance((v,)), expected, rtol=1e-9)
        assert (field.mc_error((v,)) < 1e-6 * np.sqrt(N)).all()


def test_what_it_cannot_serve_is_refused():
    """Covariances of flows and wrong types are refused in words."""
    tree = TREES["chain"].rooted()
    names = tree.variables
    with pytest.raises(ModelError, match="tree is"):
        MatrixFreeStructure(3, N, [])
    with pytest.raises(ModelError, match="single nodes"):
        MatrixFreeStructure(tree, N, []).field([], []).covariance(tuple(names[:2]), (names[0],))
