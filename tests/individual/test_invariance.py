"""Names, orders and directions are ours to choose: the law does not depend on them."""

import numpy as np
import pytest
from scipy import sparse
from tests.enumeration import Enumeration
from tests.graphs import awkward_models

from headcount.individual import DiscreteModel, MarkovChain, Model, Tree

MODELS = awkward_models()
over_the_table = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


@over_the_table
def test_permuting_states_permutes_marginals(model: Model, rng: np.random.Generator) -> None:
    """The law of a model with its states in another order is the same law in that order."""
    order = {v: rng.permutation(len(labels)) for v, labels in model.states.items()}
    states = {v: [model.states[v][k] for k in order[v]] for v in model.variables}
    factors = [(scope, theta[np.ix_(*(order[v] for v in scope))]) for scope, theta in model.factors]
    permuted = DiscreteModel(states, factors)
    assert permuted.log_partition == pytest.approx(model.log_partition, abs=1e-12)
    for clique in model.junction_tree.cliques:
        expected = model.marginal(clique)[np.ix_(*(order[v] for v in clique))]
        np.testing.assert_allclose(permuted.marginal(clique), expected, rtol=0, atol=1e-13)


@over_the_table
def test_the_order_of_variables_and_factors_does_not_matter(model: Model, rng: np.random.Generator) -> None:
    """Variables and factors in the reverse order, scopes turned round: the same marginals."""
    states = {v: model.states[v] for v in reversed(model.variables)}
    factors = [(scope[::-1], theta.T) for scope, theta in reversed(model.factors)]
    turned = DiscreteModel(states, factors)
    for clique in model.junction_tree.cliques:
        np.testing.assert_allclose(turned.marginal(clique), model.marginal(clique), rtol=0, atol=1e-13)


def test_a_reversed_chain_is_the_same_law() -> None:
    """Rooting a chain at its last time gives the backward transitions: same pairs, turned round."""
    model = MODELS["chain"]
    states = {v: model.states[v] for v in reversed(model.variables)}
    tree = DiscreteModel(states, model.factors).rooted()
    assert tree.is_chain
    assert tree.variables == model.variables[::-1]
    backwards = MarkovChain(tree.initial, list(tree.transitions[1:]), times=tree.variables, cells="abc")
    for a, b in [("mon", "tue"), ("tue", "wed"), ("mon", "wed")]:
        np.testing.assert_allclose(backwards.marginal((a, b)), model.marginal((a, b)), rtol=0, atol=1e-14)


def test_a_chain_is_a_tree_is_a_discrete_model(rng: np.random.Generator) -> None:
    """The three classes, dense and sparse, give the same marginals, joint marginals and tilts."""
    law, matrices = rng.dirichlet(np.ones(3)), [rng.dirichlet(np.ones(3), size=3) for _ in range(4)]
    chain = MarkovChain(law, matrices)
    sparse_chain = MarkovChain(law, [sparse.csc_matrix(m) for m in matrices])
    tree = Tree(law, {t + 1: (t, m) for t, m in enumerate(matrices)})
    bayes = DiscreteModel.from_cpts(
        dict.fromkeys(range(5), 3), {0: ((), law), **{t + 1: ((t,), m) for t, m in enumerate(matrices)}}
    )
    g = {(1,): rng.normal(size=3), (4, 3): rng.normal(size=(3, 3))}
    expected, change = Enumeration.from_model(chain).tilt(g)
    for model in (chain, sparse_chain, tree, bayes):
        tilted, by = model.tilt(g)
        assert by == pytest.approx(change, abs=1e-13)
        for scope in [(0,), (4,), (1, 2), (0, 4), (3, 1, 0)]:
            np.testing.assert_allclose(tilted.marginal(scope), expected.marginal(scope), rtol=0, atol=1e-14)
            np.testing.assert_allclose(model.marginal(scope), chain.marginal(scope), rtol=0, atol=1e-14)


def test_labels_come_back_in_the_order_of_the_cells(rng: np.random.Generator) -> None:
    """A pandas matrix in another order is put in order by its labels, never by position."""
    pandas, xarray = pytest.importorskip("pandas"), pytest.importorskip("xarray")
    p = rng.dirichlet(np.ones(3), size=3)
    law = rng.dirichlet(np.ones(3))
    plain = MarkovChain(law, p, length=3, cells=["a", "b", "c"])
    frame = pandas.DataFrame(p, index=list("abc"), columns=list("abc")).loc[list("cab"), list("bca")]
    series = pandas.Series(law, index=list("abc"))
    array = xarray.DataArray(
        np.stack([p, p])[:, ::-1], coords={"origin": list("cba")}, dims=["step", "origin", "dest"]
    )
    for chain in (
        MarkovChain(series, frame, length=3),
        MarkovChain(series, [frame, frame]),
        MarkovChain(series, array),
        MarkovChain(law, frame, length=3, cells=list("abc")),
    ):
        assert chain.cells == ("a", "b", "c")
        for t in range(2):
            np.testing.assert_array_equal(chain.transitions[t], plain.transitions[t])


def test_decimals_are_made_to_sum_to_one() -> None:
    """Rows within 1e-8 of one become exact laws, so that flows and node marginals agree to rounding."""
    p = np.array([[0.333333333, 0.333333333, 0.333333333], [0.1, 0.2, 0.7], [1.0, 0.0, 0.0]])
    for matrix in (p, sparse.csr_array(p)):
        chain = MarkovChain([0.5, 0.25, 0.25], matrix, length=6)
        for t in range(5):
            np.testing.assert_allclose(
                chain.marginal((t, t + 1)).sum(axis=1), chain.marginal((t,)), rtol=0, atol=1e-15
            )
