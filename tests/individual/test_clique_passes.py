"""Belief propagation by a plan against the model's own, which is tested against sums over all configurations."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from headcount import DiscreteModel, ModelError
from headcount.individual._clique_passes import Plan

SIZES = {"a": 3, "b": 2, "c": 4, "d": 2, "e": 3}
GRAPHS = {
    "ring": [("a", "b"), ("c", "b"), ("c", "d"), ("a", "d"), ("a",)],
    "path": [("a", "b"), ("b", "c"), ("d", "c")],
    "parts": [("a", "b"), ("e", "d"), ("c",)],
    "turned": [*itertools.permutations("abc", 2), ("c", "a", "b")],
    "two-way": list(itertools.combinations("abcd", 2)),
}


def _case(graph: str, seed: int = 0) -> tuple[DiscreteModel, Plan, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    scopes = GRAPHS[graph]
    tables = [rng.normal(size=[SIZES[v] for v in s]) for s in scopes]
    tables[0].flat[0] = -np.inf
    sizes = {v: n for v, n in SIZES.items() if any(v in s for s in scopes)}
    model = DiscreteModel(sizes, list(zip(scopes, tables, strict=True)))
    return model, Plan.of(model.junction_tree, tuple(scopes)), tables


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
        Plan.of(model.junction_tree, (("a", "d"),)).spread([np.zeros((3, 2))])
    assert model.passes([("a", "d")]) is None
