"""Belief propagation answers what summing over every configuration answers."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.enumeration import Enumeration
from tests.graphs import awkward_models

from headcount.individual import DiscreteModel, MarkovChain, Model, ModelError

MODELS = awkward_models()
over_the_table = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


def scopes(model: Model, most: int = 3) -> list[tuple]:
    """Every scope of up to `most` variables, forwards, and one of each backwards."""
    found = [s for k in range(most + 1) for s in combinations(model.variables, k)]
    return [*found, *(s[::-1] for s in found[-3:])]


def potentials(model: Model, rng: np.random.Generator) -> dict:
    """A potential on every node, every clique and the empty scope, some of them −inf."""
    tables = {(v,): rng.normal(size=model.size((v,))) for v in model.variables}
    tables |= {
        c[::-1]: rng.normal(size=model.size(c[::-1])) for c in model.junction_tree.cliques if len(c) > 1
    }
    tables[()] = np.array(0.7)
    last = model.variables[-1]
    most_likely = int(np.argmax(model.marginal((last,))))
    tables[last,] = np.where(np.arange(len(model.states[last])) == most_likely, tables[last,], -np.inf)
    return tables


@st.composite
def random_models(draw: st.DrawFn) -> DiscreteModel:
    """Any factors on up to five variables, with structural zeros that leave one configuration possible."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))
    names = draw(st.permutations(range(len(sizes))))
    states = dict(zip(names, sizes, strict=True))
    scope = st.lists(st.sampled_from(names), min_size=0, max_size=3, unique=True)
    factors = []
    for names_of in draw(st.lists(scope, max_size=6)):
        table = np.asarray(rng.normal(scale=3, size=[states[v] for v in names_of]))
        forbidden = np.asarray(rng.random(table.shape) < 0.2)
        forbidden[(0,) * table.ndim] = False
        factors.append((tuple(names_of), np.where(forbidden, -np.inf, table)))
    return DiscreteModel(states, factors)


@over_the_table
def test_marginals_of_every_scope_are_sums_of_the_joint_table(model: Model) -> None:
    """mu_A(i) = sum of p(x) over x with x_A = i, for any A, in one clique or not, in any order."""
    oracle, general = Enumeration.from_model(model), DiscreteModel.from_model(model)
    for scope in [*scopes(model), model.variables]:
        np.testing.assert_allclose(model.marginal(scope), oracle.marginal(scope), rtol=1e-11, atol=1e-14)
        np.testing.assert_allclose(general.marginal(scope), oracle.marginal(scope), rtol=1e-11, atol=1e-14)


@over_the_table
def test_joint_marginals_of_any_two_scopes(model: Model) -> None:
    """<mu_{A,B}>(i, j) = P(x_A = i, x_B = j), for A and B adjacent or not, overlapping or not."""
    joint = Enumeration.from_model(model).joint
    states = np.stack(np.unravel_index(np.arange(joint.size), joint.shape), axis=1)

    def flat(scope: tuple) -> np.ndarray:
        index = np.zeros(joint.size, dtype=int)
        for v in scope:
            index = index * len(model.states[v]) + states[:, model.variables.index(v)]
        return index

    for a in scopes(model, 2):
        for b in scopes(model, 2)[::2]:
            expected = np.zeros((int(np.prod(model.size(a))), int(np.prod(model.size(b)))))
            np.add.at(expected, (flat(a), flat(b)), joint.ravel())
            np.testing.assert_allclose(model.joint_marginal(a, b), expected, rtol=0, atol=1e-13)


@over_the_table
def test_tilting_multiplies_the_law(model: Model, rng: np.random.Generator) -> None:
    """p'(x) = p(x) exp(sum g) / E exp(sum g), and the log of that expectation is A(theta + g) − A(theta)."""
    oracle = Enumeration.from_model(model)
    g = potentials(model, rng)
    log_weight = sum(
        np.transpose(t, [s.index(v) for v in model.variables if v in s]).reshape(
            [len(model.states[v]) if v in s else 1 for v in model.variables]
        )
        for s, t in g.items()
    )
    weighted = oracle.joint * np.exp(log_weight)
    for made in (model, DiscreteModel.from_model(model), oracle):
        tilted, change = made.tilt(g)
        assert change == pytest.approx(np.log(weighted.sum()), abs=1e-11)
        assert tilted.variables == model.variables
        assert tilted.states == model.states
        np.testing.assert_allclose(
            tilted.marginal(model.variables), weighted / weighted.sum(), rtol=0, atol=1e-13
        )


@over_the_table
def test_tilting_keeps_the_junction_tree(model: Model, rng: np.random.Generator) -> None:
    """Potentials inside the cliques change neither cliques nor edges, and the class of the model stays."""
    tilted, _ = model.tilt(potentials(model, rng))
    assert type(tilted) is type(model)
    assert tilted.junction_tree.cliques == model.junction_tree.cliques
    assert tilted.junction_tree.edges == model.junction_tree.edges
    general = DiscreteModel.from_model(model)
    assert general.tilt(potentials(model, rng))[0].junction_tree is general.junction_tree


def test_tilting_across_cliques_joins_them(rng: np.random.Generator) -> None:
    """A potential on two far ends of a chain makes one cycle of it, and the law is still the product."""
    model = MODELS["homogeneous chain"]
    g = {(0, 4): rng.normal(size=(2, 2)), (2,): rng.normal(size=2)}
    tilted, change = model.tilt(g)
    oracle, expected = Enumeration.from_model(model).tilt(g)
    assert change == pytest.approx(expected, abs=1e-12)
    assert tilted.junction_tree.covering((0, 4)) is not None
    np.testing.assert_allclose(tilted.marginal(model.variables), oracle.joint, rtol=0, atol=1e-14)


@over_the_table
def test_factors_are_the_law_up_to_the_partition(model: Model) -> None:
    """sum_k theta_k(x) − A(theta) = log p(x), the same law whichever class holds it."""
    oracle, general = Enumeration.from_model(model), DiscreteModel.from_model(model)
    assert model.log_partition == pytest.approx(oracle.log_partition, abs=1e-12)
    assert general.log_partition == pytest.approx(oracle.log_partition, abs=1e-12)
    assert oracle.joint.sum() == pytest.approx(1, abs=1e-12)


@given(random_models())
def test_random_models_agree_with_enumeration(model: DiscreteModel) -> None:
    """A(theta), marginals in and out of the cliques equal sums over configurations, for any factors."""
    oracle = Enumeration.from_model(model)
    assert model.log_partition == pytest.approx(oracle.log_partition, abs=1e-10)
    for scope in [*scopes(model, 2), model.variables]:
        np.testing.assert_allclose(model.marginal(scope), oracle.marginal(scope), rtol=0, atol=1e-12)


@given(random_models())
def test_a_rooted_tree_is_the_same_law(model: DiscreteModel) -> None:
    """When no clique has three variables, pi and the transitions multiply to the joint table."""
    tree = model.rooted()
    assert (tree is None) == (max(map(len, model.junction_tree.cliques)) > 2)
    if tree is None:
        return
    assert all(np.allclose(matrix.sum(axis=1), 1, atol=1e-12) for matrix in tree.transitions[1:])
    names = {v: k for k, v in enumerate(tree.variables)}
    operands: list = [tree.initial, [0]]
    for k in range(1, len(names)):
        operands += [tree.transitions[k], [int(tree.parent[k]), k]]
    joint = np.einsum(*operands, [names[v] for v in model.variables])
    np.testing.assert_allclose(joint, Enumeration.from_model(model).joint, rtol=0, atol=1e-12)


def test_extreme_potentials_stay_exact() -> None:
    """Log space: potentials of ±5000 lose nothing, and a forbidden state has probability exactly zero."""
    model = DiscreteModel(
        {"a": 2, "b": 2}, {("a",): [5000.0, -5000.0], ("a", "b"): [[0.0, -np.inf], [9990.0, 9999.0]]}
    )
    assert model.log_partition == pytest.approx(5000 + np.log1p(np.exp(-10) + np.exp(-1)), abs=1e-9)
    assert model.marginal(("a", "b"))[0, 1] == 0.0
    assert model.marginal(("a",))[1] == pytest.approx(
        (np.exp(-10) + np.exp(-1)) / (1 + np.exp(-10) + np.exp(-1))
    )


def test_nothing_left_is_an_error() -> None:
    """Potentials that forbid every configuration are refused by every class, in words."""
    for model in (
        MODELS["chain"],
        MODELS["star"],
        MODELS["four-cycle"],
        Enumeration.from_model(MODELS["chain"]),
    ):
        first = model.variables[0]
        with pytest.raises(ModelError, match="no law is left"):
            model.tilt({(first,): np.full(model.size((first,)), -np.inf)})


def test_a_chain_agrees_with_powers_of_its_matrix() -> None:
    """mu_t = pi P^t, and P(x_s = i, x_t = j) = mu_s(i) (P^{t−s})(i, j)."""
    p = np.array([[0.9, 0.1], [0.4, 0.6]])
    chain = MarkovChain([0.3, 0.7], p, length=30)
    start = np.array([0.3, 0.7])
    np.testing.assert_allclose(
        chain.marginal((29,)), start @ np.linalg.matrix_power(p, 29), rtol=0, atol=1e-14
    )
    pair = (start @ np.linalg.matrix_power(p, 5))[:, None] * np.linalg.matrix_power(p, 20)
    np.testing.assert_allclose(chain.marginal((5, 25)), pair, rtol=0, atol=1e-14)
    np.testing.assert_allclose(chain.marginal((25, 5)), pair.T, rtol=0, atol=1e-14)
