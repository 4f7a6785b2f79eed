"""Possible entries of clique tables: those with a probability, and belief propagation over them alone."""

import itertools

import numpy as np
import pytest
from tests.enumeration import Enumeration
from tests.graphs import awkward_models
from tests.structure.test_junction import random_network

from headcount.individual import DiscreteModel
from headcount.individual import junction_tree as junction_tree_module
from headcount.individual.junction_tree import build_junction_tree
from headcount.individual.possible import grouped

MODELS = awkward_models() | {f"random {seed}": random_network(seed) for seed in range(6)}


@pytest.mark.parametrize("name", MODELS)
def test_possible_entries_are_those_with_a_probability(name: str) -> None:
    """An entry is listed if and only if some configuration of the whole model has it."""
    model = MODELS[name]
    oracle = Enumeration.from_model(model)
    for c, clique in enumerate(model.junction_tree.cliques):
        found = model.possible.entries[c]
        size = int(np.prod(model.size(clique)))
        listed = np.arange(size) if found is None else found
        np.testing.assert_array_equal(listed, np.flatnonzero(oracle.marginal(clique).ravel() > 0))


@pytest.mark.parametrize("seed", range(6))
def test_passes_over_lists_equal_sums_over_all_configurations(seed: int) -> None:
    """A(theta), marginals in a clique or not, tilted or not, are those of the enumeration."""
    made = random_network(seed)
    model = DiscreteModel(made.states, made.factors)
    first = model.variables[0]
    tilt = {(first,): np.r_[-0.3, np.linspace(0.1, 0.7, len(model.states[first]) - 1)]}
    for one, oracle in (
        (model, Enumeration.from_model(model)),
        (model.tilt(tilt)[0], Enumeration(model.states, [*model.factors, *tilt.items()])),
    ):
        assert one.log_partition == pytest.approx(oracle.log_partition, abs=1e-12)
        for scope in itertools.permutations(model.variables[:4], 2):
            np.testing.assert_allclose(one.marginal(scope), oracle.marginal(scope), rtol=0, atol=1e-13)


@pytest.mark.parametrize("most", [10, 10**9])
def test_grouping_numbers_what_is_there(most: int) -> None:
    """Distinct codes ascend, and each entry is given its own, whether they are found in a table or by sorting."""
    codes = np.array([7, 2, 2, 9, 7])
    found = grouped(codes, most)
    np.testing.assert_array_equal(found.codes, [2, 7, 9])
    np.testing.assert_array_equal(found.codes[found.state], codes)


def test_more_orders_of_elimination_are_never_worse_and_always_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tries with other costs and broken ties never enlarge the tables in all, and the same graph has the same tree."""
    rng = np.random.default_rng(5)
    sizes = {k: int(rng.integers(2, 9)) for k in range(24)}
    scopes = [tuple(rng.choice(24, size=3, replace=False).tolist()) for _ in range(26)]
    first, again = (build_junction_tree(sizes, scopes) for _ in range(2))
    assert first.cliques == again.cliques
    monkeypatch.setattr(junction_tree_module, "SMALL_TABLES", 10**30)
    plain = build_junction_tree(sizes, scopes)
    assert sum(first.table_sizes) < sum(plain.table_sizes)
