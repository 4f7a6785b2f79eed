"""Networks from files and from other libraries give the marginals those libraries give."""

import gzip
import importlib.resources

import networkx as nx
import numpy as np
import pytest
from tests.enumeration import Enumeration

from headcount.individual import DiscreteModel, ModelError
from headcount.individual._convert import parse_bif

DOG = """
// The network of Charniak's "Bayesian networks without tears".
network "Dog problem" { property version 1.1 ; property author nobody, really; }
variable light-on { type discrete [ 2 ] { "on", off }; property position = (218, 195) ; }
variable family-out { type discrete[2] { yes, no }; }
variable bark { type discrete [ 3 ] { none, <5, 5-12/hour }; }
/* rows, a table and
   a default */
probability ( family-out ) { table 0.15 0.85 ; }
probability ( light-on | family-out ) { table 0.6, 0.05, 0.4, 0.95; }
probability ( bark | family-out, light-on ) {
    default 0.5, 0.25, 0.25;
    (yes, off) 1e-1, .2, 0.7;
}
"""


def shipped(name: str):
    """A network file of the bnlearn repository, as pgmpy ships it."""
    pytest.importorskip("pgmpy")
    return importlib.resources.files("pgmpy") / "utils" / "example_models" / f"{name}.bif.gz"


def test_the_grammar_of_bif(tmp_path) -> None:
    """Comments, properties, quotes, odd names, blanks for commas; the child varies slowest in tables."""
    for path, content in (
        (tmp_path / "dog.bif", DOG.encode()),
        (tmp_path / "dog.bif.gz", gzip.compress(DOG.encode())),
    ):
        path.write_bytes(content)
        model = DiscreteModel.from_bif(path)
        assert model.states["light-on"] == ("on", "off")
        assert model.states["bark"] == ("none", "<5", "5-12/hour")
        pair = model.marginal(("family-out", "light-on"))
        np.testing.assert_allclose(
            pair, [[0.15 * 0.6, 0.15 * 0.4], [0.85 * 0.05, 0.85 * 0.95]], rtol=0, atol=1e-15
        )
        bark = model.marginal(("family-out", "light-on", "bark")) / pair[..., None]
        np.testing.assert_allclose(bark[0, 1], [0.1, 0.2, 0.7], rtol=0, atol=1e-15)
        np.testing.assert_allclose(bark[1, 0], [0.5, 0.25, 0.25], rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[ 3 ]", "[ 4 ]", "line 6: variable 'bark' says it has 4 states and names 3"),
        ("(yes, off)", "(yes, dim)", "line 13: 'light-on' has no state 'dim': it has 'on', 'off'"),
        ("(yes, off)", "(yes)", "line 13: 1 parent states for the 2 parents of 'bark'"),
        ("0.15 0.85", "0.15", "line 9: 1 probabilities for 'family-out', expected 2"),
        ("0.15 0.85", "0.15 many", "line 9: '0.15', 'many' are not all numbers"),
        ("0.15 0.85", "0.15 0.75", "sums to 0.9, not 1"),
        ("default 0.5, 0.25, 0.25;", "", "3 rows of 'bark' are missing, the first for ('yes', 'on')"),
        ("| family-out, light-on", "| family-out, lights", "line 11: unknown variable 'lights'"),
        ("probability ( family-out )", "probability ( bark )", "variable 'bark' has 2 probability blocks"),
        (
            "probability ( family-out )",
            "probability ( bark )",
            "variable 'family-out' has no probability block",
        ),
        (
            "(yes, off)",
            "(yes, off) 1, 0, 0; (yes, off)",
            "line 13: the row ('yes', 'off') of 'bark' is given twice",
        ),
        ("variable bark {", "variable bark", "line 6: expected {, found 'type'"),
        (".2, 0.7;\n}", ".2, 0.7;\n", "found 'the end of the file'"),
        ("\nnetwork", "\nnet", "line 3: expected network, variable or probability, found 'net'"),
        (DOG, "", "no variable block was found"),
    ],
)
def test_a_broken_file_names_the_line(tmp_path, old: str, new: str, said: str) -> None:
    """Every complaint starts with the file's name and, where there is one, names the line."""
    assert old in DOG
    path = tmp_path / "broken.bif"
    path.write_text(DOG.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ModelError) as error:
        DiscreteModel.from_bif(path)
    assert said in str(error.value)
    assert "broken.bif" in str(error.value) or "sums to" in said


def test_problems_of_meaning_come_together() -> None:
    """Two broken rows in two blocks are both reported."""
    text = DOG.replace("(yes, off)", "(yes, dim)").replace("0.15 0.85", "0.15")
    with pytest.raises(ModelError) as error:
        parse_bif(text)
    assert len(error.value.problems) == 2


@pytest.mark.parametrize("name", ["asia", "sachs", "child", "alarm", "insurance"])
def test_agreement_with_pgmpy(name: str) -> None:
    """Node marginals, and a joint marginal of two far variables, of a published network equal pgmpy's."""
    path = shipped(name)
    from pgmpy.inference import VariableElimination
    from pgmpy.readwrite import BIFReader

    theirs = BIFReader(string=gzip.decompress(path.read_bytes()).decode()).get_model()
    for table in theirs.get_cpds():
        table.normalize()  # alarm's and sachs's decimals miss one by 1e-7, which theirs leaves as it is
    asked = VariableElimination(theirs)
    converted = DiscreteModel.from_pgmpy(theirs)
    model = DiscreteModel.from_bif(path)
    assert set(model.variables) == set(theirs.nodes)
    for v in model.variables:
        answer = asked.query([v], show_progress=False)
        order = [answer.state_names[v].index(label) for label in model.states[v]]
        np.testing.assert_allclose(model.marginal((v,)), answer.values[order], rtol=0, atol=1e-12)
        again = [converted.states[v].index(label) for label in model.states[v]]
        np.testing.assert_allclose(converted.marginal((v,))[again], answer.values[order], rtol=0, atol=1e-12)
    far = (model.variables[0], model.variables[-1])
    answer = asked.query(list(far), show_progress=False)
    order = [[answer.state_names[v].index(label) for label in model.states[v]] for v in far]
    values = np.moveaxis(answer.values, [answer.variables.index(v) for v in far], [0, 1])
    np.testing.assert_allclose(model.marginal(far), values[np.ix_(*order)], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "name", ["hailfinder", "hepar2", "win95pts", "andes", "pathfinder", "water", "munin3"]
)
def test_large_networks_load_and_are_consistent(name: str) -> None:
    """Up to a thousand variables: every family gives back P(child | parents) where its parents occur."""
    model = DiscreteModel.from_bif(shipped(name))
    assert abs(model.log_partition) < 1e-9
    for (*parents, child), theta in model.factors[:: max(1, len(model.factors) // 30)]:
        joint = model.marginal((*parents, child))
        above = joint.sum(axis=-1, keepdims=True)
        seen = np.broadcast_to(above > 1e-9, joint.shape)
        conditional = (joint / np.where(above > 0, above, 1.0))[seen]
        np.testing.assert_allclose(conditional, np.exp(theta)[seen], rtol=0, atol=1e-8)


def test_a_network_too_large_is_refused_with_both_numbers() -> None:
    """munin1's largest clique is 300 megabytes; it loads, says so, and refuses to be calibrated in less than all take."""
    model = DiscreteModel.from_bif(shipped("munin1"), memory_limit=2**29)
    assert model.junction_tree.largest_bytes > 2**28
    with pytest.raises(
        ModelError,
        match=r"largest, over \d+ variables, has [\d,]+ entries\) would take .* MB of memory and the limit is 537 MB",
    ):
        model.marginal((model.variables[0],))


def test_a_markov_network_of_pgmpy(rng: np.random.Generator) -> None:
    """A Markov network's factors are potentials: the law is their product, normalised."""
    pytest.importorskip("pgmpy")
    from pgmpy.factors.discrete import DiscreteFactor
    from pgmpy.models import DiscreteMarkovNetwork

    network = DiscreteMarkovNetwork([("a", "b"), ("b", "c"), ("c", "a")])
    tables = {("a", "b"): rng.random((2, 3)), ("c", "b"): rng.random((2, 3)), ("a", "c"): rng.random((2, 2))}
    network.add_factors(*(DiscreteFactor(list(s), t.shape, t) for s, t in tables.items()))
    product = np.einsum("ab,cb,ac->abc", *tables.values())
    marginal = DiscreteModel.from_pgmpy(network).marginal(("a", "b", "c"))
    np.testing.assert_allclose(marginal, product / product.sum(), rtol=0, atol=1e-14)


def test_a_networkx_graph_of_factors(rng: np.random.Generator) -> None:
    """Factor nodes, edge potentials and node potentials all count, with the axes their scopes say."""
    graph = nx.Graph()
    graph.add_node("a", states=("x", "y"), log_potential=rng.normal(size=2))
    graph.add_node("b", states=range(3))
    graph.add_node("c", states="pq")
    graph.add_node("alone", states=range(2))
    graph.add_node("f", scope=("b", "c", "a"), log_potential=rng.normal(size=(3, 2, 2)))
    graph.add_edges_from(("f", v) for v in "abc")
    graph.add_edge("a", "c", scope=("c", "a"), log_potential=rng.normal(size=(2, 2)))
    model = DiscreteModel.from_networkx(graph)
    expected = Enumeration(
        {"a": "xy", "b": range(3), "c": "pq", "alone": range(2)},
        [
            (("a",), graph.nodes["a"]["log_potential"]),
            (("b", "c", "a"), graph.nodes["f"]["log_potential"]),
            (("c", "a"), graph.edges["a", "c"]["log_potential"]),
        ],
    )
    assert model.states == expected.states
    np.testing.assert_allclose(
        model.marginal(model.variables), expected.marginal(model.variables), rtol=0, atol=1e-14
    )
    directed = nx.DiGraph()
    directed.add_nodes_from("ab", states=range(2))
    directed.add_edge("b", "a", log_potential=[[0.0, 1.0], [2.0, 4.0]])
    assert DiscreteModel.from_networkx(directed).factors[0][0] == ("b", "a")


def test_a_graph_that_does_not_say_enough_is_refused() -> None:
    """A missing potential, a missing scope, a node that is nothing, a stray link: all at once."""
    graph = nx.Graph()
    graph.add_nodes_from("abc", states=range(2))
    graph.add_node("what")
    graph.add_edge("a", "b")
    graph.add_edge("b", "c", log_potential=np.zeros((2, 2)))
    graph.add_node("f", scope=("a",), log_potential=np.zeros(2))
    graph.add_edge("f", "c")
    with pytest.raises(ModelError) as error:
        DiscreteModel.from_networkx(graph)
    said = "\n".join(error.value.problems)
    assert len(error.value.problems) == 4
    assert "node 'what' is neither" in said
    assert "has no log_potential" in said
    assert "has no scope" in said
    assert "factor 'f' is joined to {'c'}" in said
