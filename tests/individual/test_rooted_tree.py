"""Places on a rooted tree, and the fast passes on chains and trees: equal to enumeration, dense or sparse, at any scale."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from tests.enumeration import Enumeration
from tests.graphs import awkward_models

from headcount.individual import MarkovChain, ModelError, RootedTree, Tree, node_beliefs, tilted
from headcount.individual import rooted_tree as passes


@pytest.fixture
def tree() -> RootedTree:
    model = Tree([0.5, 0.5], {"b": ("a", np.full((2, 3), 1 / 3)), "c": ("b", np.full((3, 4), 1 / 4))})
    return model.rooted()


def test_a_variable_is_its_node(tree: RootedTree) -> None:
    """place((v,)) is the index of v, and nothing is turned."""
    for k, v in enumerate(tree.variables):
        place = tree.place((v,))
        assert (place.node, place.edge, place.turned, place.shape) == (k, False, False, (tree.sizes[k],))
        values = np.arange(float(tree.sizes[k]))
        assert place.to_tree(values) is values


def test_an_edge_is_its_child_in_either_order(tree: RootedTree) -> None:
    """(parent, child) and (child, parent) are the same edge; only the second is turned."""
    forward, back = tree.place(("b", "c")), tree.place(("c", "b"))
    assert (forward.node, forward.edge, forward.turned, forward.shape) == (2, True, False, (3, 4))
    assert (back.node, back.edge, back.turned, back.shape) == (2, True, True, (3, 4))


def test_turning_is_transposing(tree: RootedTree) -> None:
    """A scope's table, flat or not, with leading axes or sparse, becomes the tree's by a transpose, and comes back."""
    place = tree.place(("c", "b"))
    table = np.arange(24.0).reshape(2, 4, 3)
    turned = np.stack([t.T for t in table])
    np.testing.assert_array_equal(place.turn(table), turned)
    np.testing.assert_array_equal(place.turn(sparse.csr_array(table[0])).toarray(), table[0].T)
    np.testing.assert_array_equal(place.to_tree(table.reshape(2, 12)), turned.reshape(2, 12))
    np.testing.assert_array_equal(place.to_scope(turned.reshape(2, 12)), table.reshape(2, 12))


@pytest.mark.parametrize("scope", [(), ("a", "c"), ("a", "b", "c"), ("x",), ("a", "x")])
def test_other_scopes_are_refused(tree: RootedTree, scope: tuple[str, ...]) -> None:
    """Neither a variable nor an edge: the message names the scope."""
    with pytest.raises(ModelError, match="neither a variable nor an edge"):
        tree.place(scope)


def test_domain_of_a_scope() -> None:
    """model.domain(scope) has the scope's names in the order given, and their sizes."""
    chain = MarkovChain([0.5, 0.3, 0.2], [np.full((3, 2), 0.5)], times=["race", "party"])
    domain = chain.domain(("party", "race"))
    assert (domain.scope, domain.shape) == (("party", "race"), (2, 3))


TREES = {name: model.rooted() for name, model in awkward_models().items() if model.rooted() is not None}
over_trees = pytest.mark.parametrize("tree", TREES.values(), ids=TREES.keys())


def as_sparse(tree: RootedTree) -> RootedTree:
    """The same tree with csr matrices."""
    matrices = (None if m is None else sparse.csr_array(m) for m in tree.transitions)
    return RootedTree(tree.variables, tree.parent, tree.initial, tuple(matrices))


def dense(matrix):
    return matrix.toarray() if sparse.issparse(matrix) else matrix


def oracle(tree: RootedTree, nodes: list, edges: list | None) -> tuple[Enumeration, float]:
    """The tilted law by enumeration."""
    with np.errstate(divide="ignore"):
        factors = [((0,), np.log(tree.initial))]
        factors += [
            ((int(tree.parent[k]), k), np.log(dense(tree.transitions[k]))) for k in range(1, len(tree.sizes))
        ]
    law = Enumeration(dict(enumerate(tree.sizes)), factors)
    g = {(k,): v for k, v in enumerate(nodes) if v is not None}
    g |= {(int(tree.parent[k]), k): e for k, e in enumerate(edges or []) if e is not None}
    return law.tilt(g)


def potentials(tree: RootedTree, rng: np.random.Generator, scale: float) -> tuple[list, list]:
    """Potentials of a scale on nodes and edges; the last node has none, the first edge neither."""
    nodes = [rng.normal(scale=scale, size=n) for n in tree.sizes]
    nodes[-1] = None
    edges = [None if m is None else rng.normal(scale=scale, size=m.shape) for m in tree.transitions]
    return nodes, [None, None, *edges[2:]][: len(edges)]


@over_trees
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 1000.0])
@pytest.mark.parametrize("made", [lambda tree: tree, as_sparse], ids=["dense", "sparse"])
def test_passes_equal_enumeration(tree: RootedTree, scale: float, made, rng: np.random.Generator) -> None:
    """Log E exp(g), node and pair marginals of the tilted tree, for potentials spread over thousands."""
    nodes, edges = potentials(tree, rng, scale)
    law, change = oracle(tree, nodes, edges)
    log_partition, beliefs = node_beliefs(made(tree), nodes, edge_potentials=edges)
    assert log_partition == pytest.approx(change, rel=1e-12, abs=1e-10)
    again, found = tilted(made(tree), nodes, edge_potentials=edges)
    initial, transitions = found.initial, found.transitions
    assert again == pytest.approx(change, rel=1e-12, abs=1e-10)
    np.testing.assert_allclose(initial, beliefs[0], rtol=0, atol=1e-13)
    for k, belief in enumerate(beliefs):
        np.testing.assert_allclose(belief, law.marginal((k,)), rtol=0, atol=1e-11)
        if k:
            above = beliefs[int(tree.parent[k])]
            np.testing.assert_allclose(dense(transitions[k]).sum(axis=1), 1, rtol=0, atol=1e-12)
            pair = above[:, None] * dense(transitions[k])
            np.testing.assert_allclose(pair, law.marginal((int(tree.parent[k]), k)), rtol=0, atol=1e-11)


@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("tree", [tree for tree in TREES.values() if len(set(tree.sizes)) == 1])
def test_potentials_may_come_as_one_array(tree: RootedTree, scale: float, rng: np.random.Generator) -> None:
    """A (T, L) array is the list of its rows, forbidden states included, whichever way the passes are run."""
    g = rng.normal(scale=scale, size=(len(tree.sizes), tree.sizes[0]))
    g_forbidding = g.copy()
    g_forbidding[-1, np.argmin(node_beliefs(tree)[1][-1])] = -np.inf if tree.sizes[0] > 1 else 0.0
    for table in (g, g_forbidding):
        log_partition, beliefs = node_beliefs(tree, table)
        expected_partition, expected = node_beliefs(tree, list(table))
        assert log_partition == pytest.approx(expected_partition, rel=1e-13, abs=1e-12)
        np.testing.assert_allclose(np.stack(beliefs), np.stack(expected), rtol=0, atol=1e-13)
        again, law = tilted(tree, table)
        initial, transitions = law.initial, law.transitions
        expected = tilted(tree, list(table))[1]
        expected_initial, expected_transitions = expected.initial, expected.transitions
        assert again == pytest.approx(expected_partition, rel=1e-13, abs=1e-12)
        np.testing.assert_allclose(initial, expected_initial, rtol=0, atol=1e-13)
        for one, other in zip(transitions[1:], expected_transitions[1:], strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1.0, 200.0, 1e4]), as_csr=st.booleans())
def test_random_trees_with_zeros(seed: int, scale: float, as_csr: bool) -> None:
    """Structural zeros, forbidden states, any scale: the enumeration, or an error if nothing is left."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, size=rng.integers(1, 6))
    parent = np.array([-1, *(rng.integers(0, k) for k in range(1, len(sizes)))])

    def law(rows: int, columns: int) -> np.ndarray:
        weights = rng.random((rows, columns)) * (rng.random((rows, columns)) < 0.6)
        weights[np.arange(rows), rng.integers(0, columns, size=rows)] += 0.1
        return weights / weights.sum(axis=1, keepdims=True)

    matrices = [None, *(law(sizes[parent[k]], sizes[k]) for k in range(1, len(sizes)))]
    tree = RootedTree(tuple(range(len(sizes))), parent, law(1, sizes[0])[0], tuple(matrices))
    tree = as_sparse(tree) if as_csr else tree
    nodes = [np.where(rng.random(n) < 0.15, -np.inf, rng.normal(scale=scale, size=n)) for n in sizes]
    try:
        law_after, change = oracle(tree, nodes, None)
    except ModelError:
        with pytest.raises(ModelError, match="no law is left"):
            node_beliefs(tree, nodes)
        return
    log_partition, beliefs = node_beliefs(tree, nodes)
    assert log_partition == pytest.approx(change, rel=1e-11, abs=1e-9)
    for k, belief in enumerate(beliefs):
        np.testing.assert_allclose(belief, law_after.marginal((k,)), rtol=0, atol=1e-10)
    for matrix in tilted(tree, nodes)[1].transitions[1:]:
        np.testing.assert_allclose(dense(matrix).sum(axis=1), 1, rtol=0, atol=1e-12)


@pytest.mark.parametrize("made", [lambda tree: tree, as_sparse], ids=["dense", "sparse"])
@pytest.mark.parametrize("way", ["at once", "step by step", "list", "edge"])
def test_lost_digits_are_noticed(way: str, made) -> None:
    """A state loses e^800, then gains more in two steps: it wins, though exp(−800) is zero."""
    tree = made(MarkovChain([0.5, 0.5], np.eye(2), length=5).rooted())
    gains = [0.0, 500.0, 400.0, -800.0, 0.0]
    if way == "step by step":
        gains[3:] = [-400.0, -400.0]
    edges = None
    if way == "edge":
        gains[3] = 0.0
        edges = [None, None, None, None, np.array([[-800.0, 0.0], [0.0, 0.0]])]
    g = np.array([[gain, 0.0] for gain in gains])
    log_partition, beliefs = node_beliefs(tree, list(g) if way == "list" else g, edge_potentials=edges)
    assert log_partition == pytest.approx(100 + np.log(0.5), abs=1e-9)
    assert beliefs[0][0] == pytest.approx(1)


def test_rows_of_forbidden_states_still_sum_to_one() -> None:
    """A state that is forbidden, with a message so small that its digits are gone, keeps a row that sums to one."""
    p = np.array([[0.3, 0.3, 0.4], [0.3, 0.7, 0.0], [0.0, 0.0, 1.0]])
    tree = MarkovChain([0.5, 0.4, 0.1], p, length=2).rooted()
    nodes = [np.array([0.0, -np.inf, 0.0]), np.array([-330.0, -331.3, 0.0])]
    edges = [None, np.array([[0.0] * 3, [-411.0] * 3, [0.0] * 3])]
    transitions = tilted(tree, nodes, edge_potentials=edges)[1].transitions
    np.testing.assert_allclose(transitions[1].sum(axis=1), 1, rtol=0, atol=1e-12)


def test_small_messages_of_a_long_chain_are_scaled_not_lost(monkeypatch: pytest.MonkeyPatch, rng) -> None:
    """Two thousand steps that each cost a factor stay in the linear domain, with nothing lost."""
    monkeypatch.setattr(passes, "_tilted_log", None)
    p = np.array([[0.8, 0.2], [0.3, 0.7]])
    tree = MarkovChain([0.5, 0.5], p, length=2001).rooted()
    g = [np.array([0.0, -10.0]) if t % 2 else np.array([-10.0, 0.0]) for t in range(2001)]
    change, beliefs = node_beliefs(tree, g)
    up, total = np.array([0.5, 0.5]), 0.0
    for t in range(2001):  # a filter forwards, the other way round
        up = (up @ p if t else up) * np.exp(g[t])
        total += np.log(up.sum())
        up = up / up.sum()
    assert change == pytest.approx(total, rel=1e-12)
    np.testing.assert_allclose(beliefs[-1], up, rtol=0, atol=1e-12)


def test_unreachable_rows_keep_their_transitions() -> None:
    """A state from which everything is forbidden keeps its old row, so rows still sum to one."""
    p = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.2, 0.3, 0.5]])
    for tree in (MarkovChain([0.4, 0.3, 0.3], p, length=2).rooted(),):
        for shape in (tree, as_sparse(tree)):
            law = tilted(shape, [None, np.array([0.0, 0.0, -np.inf])])[1]
            initial, transitions = law.initial, law.transitions
            np.testing.assert_array_equal(dense(transitions[1])[1], p[1])
            assert initial[1] == 0.0
            np.testing.assert_allclose(dense(transitions[1]).sum(axis=1), 1, rtol=0, atol=1e-15)


def test_a_homogeneous_chain_holds_one_matrix() -> None:
    """Every step of a homogeneous chain is one object, not the caller's, that cannot be written."""
    p = np.array([[0.8, 0.2], [0.3, 0.7]])
    chain = MarkovChain([0.5, 0.5], p, length=50)
    assert len({id(m) for m in chain.transitions}) == 1
    p[0] = [0.0, 1.0]
    assert chain.transitions[0][0, 0] == 0.8
    with pytest.raises(ValueError, match="read-only"):
        chain.transitions[0][0, 0] = 1.0


def test_a_sparse_chain_is_never_made_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand cells that exchange with their neighbours: tilting keeps the csr pattern."""
    size = 10_000
    p = sparse.diags_array([0.25, 0.5, 0.25], offsets=[-1, 0, 1], shape=(size, size)).tolil()
    p[0, 0] = p[size - 1, size - 1] = 0.75
    chain = MarkovChain(np.full(size, 1 / size), p.tocsr(), length=4)
    monkeypatch.setattr(sparse.csr_array, "toarray", None)
    after, change = chain.tilt({(2,): -np.linspace(0, 5, size)})
    assert change < 0
    assert all(sparse.issparse(m) and m.nnz == p.nnz for m in after.transitions)
    assert after.marginal((3,)).sum() == pytest.approx(1, abs=1e-10)


def test_sparse_edge_potentials_are_zero_where_nothing_is_stored(rng: np.random.Generator) -> None:
    """A csr potential is the dense one it stands for, on dense and on sparse chains, in either direction."""
    p = np.array([[0.5, 0.5, 0.0], [0.1, 0.6, 0.3], [0.0, 0.2, 0.8]])
    g = sparse.csr_array(([1.5, -np.inf], ([0, 2], [1, 2])), shape=(3, 3))
    expected, change = MarkovChain([0.2, 0.3, 0.5], p, length=3).tilt({(1, 2): g.toarray()})
    for matrix in (p, sparse.csr_array(p)):
        chain = MarkovChain([0.2, 0.3, 0.5], matrix, length=3)
        for scope, table in (((1, 2), g), ((2, 1), g.T), ((2, 1), g.toarray().T)):
            after, by = chain.tilt({scope: table})
            assert by == pytest.approx(change, abs=1e-14)
            np.testing.assert_allclose(after.marginal((1, 2)), expected.marginal((1, 2)), rtol=0, atol=1e-14)
