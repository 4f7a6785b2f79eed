"""Chains and trees: compiled and other solver, hard transitions, the choice of a structure, wrong arguments."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.graphs import awkward_models
from tests.structure.cases import N, Where
from tests.structure.dense import DenseStructure

import headcount as hc
import headcount.structure._tree as tree_module
from headcount.individual import MarkovChain, ModelError
from headcount.structure import JunctionStructure, KnownCounts, TreeStructure, structure_for


def nearly_cut(thread: float) -> MarkovChain:
    """Two clusters of two cells, joined by a probability `thread` only."""
    matrix = np.array(
        [
            [0.6, 0.4 - thread, thread, 0.0],
            [0.3, 0.7, 0.0, 0.0],
            [0.0, 0.0, 0.5, 0.5],
            [0.0, thread, 0.2, 0.8 - thread],
        ]
    )
    return MarkovChain([0.3, 0.3, 0.2, 0.2], matrix, length=3)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("thread", [1e-3, 1e-12, 1e-17, 1e-20, 1e-60])
def test_clusters_joined_by_a_thread(thread, compiled, monkeypatch):
    """Whatever probability joins two clusters, the law is that of the clusters not joined at all, up to that probability.

    A Cholesky factor of the noise without one cell raised "could not be factored" at 1e-17, or returned a wrong spread.
    """
    if not compiled:
        monkeypatch.setattr(tree_module, "LARGEST_COMPILED", 0)
    sites = [Where((t,), np.arange(4)) for t in range(3)]
    rng = np.random.default_rng(1)
    tau, nu = [rng.gamma(1.0, 0.3, 4) for _ in sites], [rng.normal(size=4) for _ in sites]
    got = TreeStructure(nearly_cut(thread).rooted(), N, sites).solve(tau, nu)
    cut = TreeStructure(nearly_cut(0.0).rooted(), N, sites).solve(tau, nu)
    for a, b in zip((*got.mean, *got.variance), (*cut.mean, *cut.variance), strict=True):
        np.testing.assert_allclose(a, b, atol=10 * N * thread + 1e-12 * N)
    assert got.log_z == pytest.approx(cut.log_z, abs=1e3 * thread + 1e-11)


@pytest.mark.parametrize("rare", [1e-3, 1e-8, 1e-14, 1e-18])
def test_flows_of_an_almost_certain_move(rare):
    """Of cells that almost never change, the flow i → i has the spread of the cell itself, to its own digits.

    The flow is driven by potentials of size 1/√rare; taken as a difference of their squares its variance would be lost.
    """
    size = 3
    matrix = np.full((size, size), rare) + (1 - size * rare) * np.eye(size)
    chain = MarkovChain([0.5, 0.3, 0.2], matrix, length=2)
    sites = [Where((0,), np.arange(size))]
    tau, nu = [np.array([0.1, 0.2, 0.3])], [np.array([1.0, -1.0, 0.5])]
    field = TreeStructure(chain.rooted(), N, sites).field(tau, nu)
    stay = np.diagonal(field.variance((0, 1)))
    np.testing.assert_allclose(stay, field.variance((0,)), rtol=1e-9, atol=10 * N * rare)
    np.testing.assert_allclose(
        np.diagonal(field.mean((0, 1))), field.mean((0,)), rtol=1e-9, atol=10 * N * rare
    )
    np.testing.assert_allclose(field.variance((1, 0)), field.variance((0, 1)).T)
    assert (field.variance((0, 1)) >= 0).all()


@pytest.mark.parametrize("rare", [1e-10, 1e-30, 1e-100])
@pytest.mark.parametrize("full", [0, 1])
def test_flows_into_a_cell_that_holds_nearly_all(rare, full):
    """Where nobody goes elsewhere, a flow has the mean and spread of the cell it leaves, whichever cell all go to.

    Potentials reckoned from the empty cell were 1/√rare, and the spread of the flow, 10²⁸ of nine individuals, what rounding left of them.
    """
    matrix = np.array([[rare, 1 - 2.0**-53], [3 * rare, 1.0], [2 * rare, 1 - 2.0**-53]])[
        :, :: 1 if full else -1
    ]
    chain = MarkovChain([0.4, 0.4, 0.2], [matrix])
    sites = [Where((0,), np.arange(3)), Where((1,), np.arange(2))]
    tau = [np.array([0.1, 0.2, 0.3]), np.array([0.0, 1e5])]
    field = TreeStructure(chain.rooted(), 9, sites).field(tau, [np.array([1.0, -1.0, 0.5]), np.zeros(2)])
    np.testing.assert_allclose(field.variance((0, 1))[:, full], field.variance((0,)), rtol=1e-6)
    np.testing.assert_allclose(field.mean((0, 1))[:, full], field.mean((0,)), rtol=1e-6)


def test_the_compiled_solver_is_the_other_one(monkeypatch):
    """Means, variances and log Z of the compiled solver are those of the general one to 1e-11 N."""
    rng = np.random.default_rng(2)
    matrix = rng.dirichlet(np.ones(5), size=5)
    matrix[:, 4] = 0.0
    chain = MarkovChain(rng.dirichlet(np.ones(5)), matrix / matrix.sum(axis=1, keepdims=True), length=4)
    sites = [Where((t,), np.arange(5)) for t in (0, 2, 2, 3)]
    tau, nu = [rng.gamma(1.0, 0.3, 5) for _ in sites], [rng.normal(size=5) for _ in sites]
    compiled = TreeStructure(chain.rooted(), N, sites)
    assert compiled._compiled_cells is not None
    monkeypatch.setattr(tree_module, "LARGEST_COMPILED", 0)
    general = TreeStructure(chain.rooted(), N, sites)
    assert general._compiled_cells is None
    a, b = compiled.solve(tau, nu), general.solve(tau, nu)
    for x, y in zip((*a.mean, *a.variance), (*b.mean, *b.variance), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-11 * N)
    assert a.log_z == pytest.approx(b.log_z, abs=1e-10)


@pytest.mark.parametrize("name", ["chain", "star", "tree with unequal domains"])
def test_flows_into_a_node_of_which_sums_are_seen(name):
    """Variances of all flows are the dense oracle's when sums of cells are observed beside the cells, on every node."""
    model = awkward_models()[name]
    tree, rng = model.rooted(), np.random.default_rng(1)
    sites = [Where((v,), np.arange(size)) for v, size in zip(tree.variables, tree.sizes, strict=True)]
    sites += [
        Where((v,), weights=csr_array(rng.integers(0, 3, (2, size)).astype(float)))
        for v, size in zip(tree.variables, tree.sizes, strict=True)
    ]
    tau, nu = ([rng.gamma(1.0, 0.3, len(s)) for s in sites] for _ in range(2))
    got, expected = (
        make.field(tau, nu) for make in (TreeStructure(tree, N, sites), DenseStructure(model, N, sites))
    )
    for edge in tree.edge_of:
        np.testing.assert_allclose(got.variance(edge), expected.variance(edge), atol=1e-9 * N)


def test_the_structure_is_chosen_by_the_graph():
    """Trees, given as a model or as a rooted tree, get the tree structure; everything else the junction tree."""
    for model in awkward_models().values():
        expected = JunctionStructure if model.rooted() is None else TreeStructure
        assert type(structure_for(model, N, [])) is expected
    assert type(structure_for(awkward_models()["chain"].rooted(), N, [])) is TreeStructure


@pytest.mark.parametrize("make", [structure_for, DenseStructure, JunctionStructure, TreeStructure])
@pytest.mark.parametrize("population", [0, -1.0, np.nan, np.inf, "many", None])
def test_populations_that_are_none_are_refused(make, population):
    """N is a positive finite number; anything else is an error that says so."""
    model = awkward_models()["chain"]
    law = model.rooted() if make is TreeStructure else model
    with pytest.raises(ModelError, match="population is"):
        make(law, population, [])


@pytest.mark.parametrize("make", [DenseStructure, JunctionStructure, TreeStructure])
def test_wrong_types_are_named(make):
    """A law that is none, and known facts that are no mapping, are errors that name the argument."""
    with pytest.raises(ModelError, match=r"(model|tree) is \[1, 2\] \(list\)"):
        make([1, 2], N, [])
    model = awkward_models()["chain"]
    law = model.rooted() if make is TreeStructure else model
    with pytest.raises(ModelError, match="sites is 3"):
        make(law, N, 3)
    with pytest.raises(ModelError, match="known is 'x'"):
        make(law, N, [], "x")
    with pytest.raises(ModelError, match="law is None"):
        structure_for(None, N, [])
    with pytest.raises(ModelError, match="exact is list"):
        KnownCounts([1], {})


def test_fractions_are_populations():
    """Expected sizes of groups need not be whole."""
    assert TreeStructure(awkward_models()["chain"].rooted(), Fraction(5, 2), []).population == 2.5


@pytest.mark.parametrize("name", [n for n, m in awkward_models().items() if m.rooted() is not None])
@pytest.mark.parametrize("dispersed", [False, True])
def test_prior_variances_by_one_pass_down_are_those_of_a_solve_without_sites(name, dispersed, monkeypatch):
    """Counted cells of which nothing is seen have the prior's variance, whichever way it is computed, with dispersion too."""
    monkeypatch.setattr(tree_module, "LARGEST_COMPILED", 0)
    rng = np.random.default_rng(3)
    model = awkward_models()[name]
    tree = model.rooted()
    if dispersed:
        above = [1, *(tree.sizes[u] for u in tree.parents[1:])]
        tree = replace(tree, phi=tuple(rng.uniform(0.5, 4.0, size) for size in above))
    sites = [Where((v,), rng.permutation(model.size((v,))[0])) for v in model.variables]
    first = model.variables[0]
    sums = csr_array(rng.normal(size=(3, model.size((first,))[0])))
    sites.append(Where((first,), np.arange(3), weights=sums))
    nothing = [np.zeros(len(site)) for site in sites]
    structure = TreeStructure(tree, N, sites)
    solved = structure.solve(nothing, nothing).variance
    # What an earlier run says are sums: a solve per sweep made later windows of a long series 1.6 times slower than the first.
    monkeypatch.setattr(TreeStructure, "solve", None)
    for one, other in zip(structure.unseen_variance(), solved, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12 * N)


def test_covariances_with_moves_hold_no_table_by_table_matrix() -> None:
    """The covariance of a step's moves with the first counts, of 50 cells, takes less than half of the memory of moves by moves."""
    cells = 50
    rng = np.random.default_rng(0)
    chain = hc.MarkovChain(np.full(cells, 1 / cells), rng.dirichlet(np.ones(cells), cells), length=3)
    posterior = hc.infer(hc.Problem(chain, 5000, hc.Poisson(np.full((3, cells), 100.0))))
    posterior.beliefs.covariance((0,), (1,))
    tracemalloc.start()
    found = posterior.beliefs.covariance((1, 2), (0,))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.shape == (cells**2, cells)
    assert peak < 8 * cells**4 / 2
    margins = found.reshape(cells, cells, cells).sum(axis=1)
    np.testing.assert_allclose(margins, posterior.beliefs.covariance((1,), (0,)), atol=1e-8)


def test_covariances_of_flows_leave_no_tables_behind() -> None:
    """Every step's flows beside the first counts: what stays is small against one step's table by its features."""
    cells, steps = 40, 8
    rng = np.random.default_rng(1)
    chain = hc.MarkovChain(np.full(cells, 1 / cells), rng.dirichlet(np.ones(cells), size=cells), length=steps)
    counts = hc.Poisson(rng.poisson(25.0, (steps, cells)))
    beliefs = hc.infer(hc.Problem(chain, 1000, counts), "TiltedEP").beliefs
    beliefs.covariance((0, 1), (0,))
    tracemalloc.start()
    for t in range(1, steps - 1):
        beliefs.covariance((t, t + 1), (0,))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 8 * cells**2 * (2 * cells)
