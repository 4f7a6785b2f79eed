"""Junction trees: maximal cliques with the running intersection property; passes by a plan equal sums over all configurations."""

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.graphs import awkward_models

from headcount import memory
from headcount.individual import DiscreteModel, JunctionTree, Model, ModelError
from headcount.individual.junction_tree import build_junction_tree
from headcount.individual.possible import PassPlan, Possible

MODELS = awkward_models()


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict, list]:
    """Sizes and scopes of any shape: repeated, permuted, nested, empty, leaving variables out."""
    count = draw(st.integers(1, 9))
    scope = st.lists(st.integers(0, count - 1), max_size=4, unique=True).map(tuple)
    return {v: draw(st.integers(1, 5)) for v in range(count)}, draw(st.lists(scope, max_size=14))


def check(tree: JunctionTree, scopes: list) -> None:
    """The laws of a junction tree."""
    graph = nx.Graph([(a, b) for a, b, _ in tree.edges])
    graph.add_nodes_from(range(len(tree.cliques)))
    assert nx.is_tree(graph)
    for a, b, separator in tree.edges:
        assert separator == tuple(v for v in tree.cliques[a] if v in tree.cliques[b])
    for v in tree.sizes:
        holding = [c for c, clique in enumerate(tree.cliques) if v in clique]
        assert holding
        assert nx.is_connected(graph.subgraph(holding))
    for a in tree.cliques:
        assert sum(set(a) <= set(b) for b in tree.cliques) == 1
    assert all(tree.covering(scope) is not None for scope in scopes)
    reached = {0}
    for a, b, _ in tree.edges:
        assert a in reached
        reached.add(b)
    assert sum(tree.separators.values()) == len(tree.cliques) - 1


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_trees_of_the_table(model: Model) -> None:
    """Running intersection, maximal cliques, parents first, every factor in a clique."""
    check(model.junction_tree, [scope for scope, _ in model.factors])
    check(DiscreteModel.from_model(model).junction_tree, [scope for scope, _ in model.factors])


@given(graphs())
def test_any_graph_gets_a_junction_tree(graph: tuple[dict, list]) -> None:
    """The cliques are those of a chordal graph that contains the given one; a chordal graph gains no edge."""
    sizes, scopes = graph
    tree = build_junction_tree(sizes, scopes)
    check(tree, scopes)
    moral, filled = nx.Graph(), nx.Graph()
    for made, cliques in ((moral, scopes), (filled, tree.cliques)):
        made.add_nodes_from(sizes)
        for clique in cliques:
            made.add_edges_from((a, b) for a in clique for b in clique if a != b)
    assert set(map(frozenset, moral.edges)) <= set(map(frozenset, filled.edges))
    assert nx.is_chordal(filled)
    if nx.is_chordal(moral):
        assert filled.number_of_edges() == moral.number_of_edges()
    assert {frozenset(c) for c in nx.find_cliques(filled)} == {frozenset(c) for c in tree.cliques}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_the_law_is_cliques_over_separators(model: Model) -> None:
    """p(x) = prod_C mu_C(x_C) / prod_S mu_S(x_S)^nu(S), the empty separator of separate parts included."""
    joint = model.marginal(model.variables)
    log_p = np.zeros(joint.shape)
    with np.errstate(divide="ignore"):
        for scope, times in [*((c, 1) for c in model.junction_tree.cliques)]:
            shape = [len(model.states[v]) if v in scope else 1 for v in model.variables]
            log_p = log_p + times * np.log(model.marginal(scope).reshape(shape))
        for scope, times in model.junction_tree.separators.items():
            shape = [len(model.states[v]) if v in scope else 1 for v in model.variables]
            table = model.marginal(scope).reshape(shape)
            log_p = log_p - times * np.log(np.where(table > 0, table, 1.0))
    np.testing.assert_allclose(np.exp(log_p), joint, rtol=0, atol=1e-13)


def test_a_star_has_its_hub_as_separator_once_per_further_leaf() -> None:
    """nu(hub) = leaves − 1."""
    assert MODELS["star"].junction_tree.separators == {("hub",): 2}
    assert DiscreteModel.from_model(MODELS["star"]).junction_tree.separators == {("hub",): 2}


def test_separate_parts_meet_in_the_empty_separator() -> None:
    """nu(()) = parts − 1, and its table is the total, 1."""
    model = MODELS["disconnected"]
    assert model.junction_tree.separators == {(): 1}
    assert model.marginal(()).shape == ()
    assert model.marginal(()) == pytest.approx(1)


def test_memory_is_known_before_and_refused_with_both_numbers() -> None:
    """A 12 by 12 grid of ten states: over 10^12 entries are counted, not allocated, and refused."""
    side = 12
    names = [(r, c) for r in range(side) for c in range(side)]
    edges = [((r, c), (r, c + 1)) for r in range(side) for c in range(side - 1)]
    edges += [((r, c), (r + 1, c)) for r in range(side - 1) for c in range(side)]
    model = DiscreteModel(dict.fromkeys(names, 10), [(e, np.zeros((10, 10))) for e in edges])
    largest = max(model.junction_tree.table_sizes)
    assert largest >= 10**12
    assert model.junction_tree.largest_bytes == 8 * largest
    with memory.limited("2GB"), pytest.raises(ModelError, match=f"{largest:,} entries") as refused:
        model.marginal((names[0],))
    assert "the limit is 2 GB" in str(refused.value)
    assert "TB" in str(refused.value)


def test_a_marginal_too_large_is_refused_before_it_is_made() -> None:
    """Cliques that fit do not promise that any marginal does: 2^40 entries are refused with both numbers."""
    chain = DiscreteModel(dict.fromkeys(range(40), 2), [((t, t + 1), np.zeros((2, 2))) for t in range(39)])
    with (
        memory.limited("2GB"),
        pytest.raises(ModelError, match=r"entries, which would take .*the limit is 2 GB"),
    ):
        chain.marginal(tuple(range(40)))


def test_a_limit_can_be_chosen() -> None:
    """The same model passes or fails with its memory_limit, and a tilt inherits it."""
    factors = {("a", "b"): np.zeros((4, 4))}
    assert DiscreteModel({"a": 4, "b": 4}, factors, memory_limit=128).marginal(("a",)) == pytest.approx(0.25)
    with pytest.raises(ModelError, match="16 entries"):
        DiscreteModel({"a": 4, "b": 4}, factors, memory_limit=127).marginal(("a",))


@pytest.mark.parametrize(
    ("cliques", "edges", "message"),
    [
        ((("a", "b"), ("b", "z")), ((0, 1, ("b",)),), "'z', which have no size"),
        ((("a", "b"), ("b", "c")), (), "0 edges do not join 2 cliques"),
        ((("a", "b"), ("b", "c")), ((1, 0, ("b",)),), "does not lead from a clique above"),
        ((("a", "b"), ("b", "c")), ((0, 1, ("a",)),), "is not what they share"),
        (
            (("a", "b"), ("b", "c"), ("a", "c")),
            ((0, 1, ("b",)), (1, 2, ("c",))),
            "hold 'a', and a clique between",
        ),
        ((("a", "b"),), (), "'c' is in no clique"),
    ],
)
def test_what_is_no_junction_tree_is_refused(cliques, edges, message) -> None:
    """Unknown variables, missing or upward edges, wrong separators and a broken running intersection are named."""
    with pytest.raises(ModelError, match=message):
        JunctionTree({"a": 2, "b": 2, "c": 2}, cliques, edges)


SIZES = {"a": 3, "b": 2, "c": 4, "d": 2, "e": 3}
GRAPHS = {
    "ring": [("a", "b"), ("c", "b"), ("c", "d"), ("a", "d"), ("a",)],
    "path": [("a", "b"), ("b", "c"), ("d", "c")],
    "parts": [("a", "b"), ("e", "d"), ("c",)],
    "turned": [*itertools.permutations("abc", 2), ("c", "a", "b")],
    "two-way": list(itertools.combinations("abcd", 2)),
}


def _case(graph: str, seed: int = 0) -> tuple[DiscreteModel, PassPlan, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    scopes = GRAPHS[graph]
    tables = [rng.normal(size=[SIZES[v] for v in s]) for s in scopes]
    tables[0].flat[0] = -np.inf
    sizes = {v: n for v, n in SIZES.items() if any(v in s for s in scopes)}
    model = DiscreteModel(sizes, list(zip(scopes, tables, strict=True)))
    return model, PassPlan(Possible.whole(model.junction_tree), tuple(scopes)), tables


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_plan_finds_the_models_own_margins(graph: str) -> None:
    """A(θ) and the margin of every scope are those of the model, structural zeros included."""
    model, plan, tables = _case(graph)
    found = plan.beliefs(plan.spread(tables))
    assert found.log_partition == pytest.approx(model.log_partition, abs=1e-12)
    for scope, margin in zip(plan.scopes, plan.margins(found.cliques), strict=True):
        np.testing.assert_allclose(margin, model.marginal(scope), atol=1e-14)


def test_a_plan_refuses_what_has_no_law_or_no_clique() -> None:
    """Potentials that forbid everything, and scopes outside all cliques, are refused in words."""
    model, plan, tables = _case("path")
    with pytest.raises(ModelError, match="no law is left"):
        plan.beliefs([np.full_like(t, -np.inf) for t in plan.spread(tables)])
    with pytest.raises(ModelError, match="no clique"):
        PassPlan(model.possible, (("a", "d"),)).spread([np.zeros((3, 2))])
    assert model.passes([("a", "d")]) is None
