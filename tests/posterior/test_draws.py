"""Whole-number draws."""

from __future__ import annotations

import numpy as np
import pytest
from tests.engines.cases import problem
from tests.graphs import awkward_models

import headcount as hc
from headcount.engines import TiltedEP

N = 60


@pytest.mark.parametrize(
    "graph", ["chain", "tree with unequal domains", "two cliques of three", "chain of length one"]
)
def test_draws(graph):
    """Draws agree on what they share; integer ones are whole, ≥ 0 and sum to N; their mean is the posterior mean."""
    post = hc.infer(problem(graph, "poisson", N), TiltedEP())
    model = post.problem.model
    for integer in (False, True):
        draws = post.sample(400, rng=1, integer=integer)
        for clique, table in draws.items():
            values = table.values
            np.testing.assert_allclose(values.reshape(400, -1).sum(axis=1), N, atol=1e-8 * N)
            if integer:
                assert (values >= 0).all()
                np.testing.assert_array_equal(values, np.rint(values))
            spread = np.sqrt(post.beliefs.variance(clique)) + 0.5
            assert (
                np.abs(values.mean(axis=0) - post.beliefs.mean(clique)) < 6 * spread / 20 + 0.3 * integer
            ).all()
        for (a, first), (b, second) in zip(list(draws.items())[:-1], list(draws.items())[1:], strict=True):
            for v in set(a) & set(b):
                one = first.values.sum(axis=tuple(1 + k for k, x in enumerate(a) if x != v))
                two = second.values.sum(axis=tuple(1 + k for k, x in enumerate(b) if x != v))
                np.testing.assert_allclose(one, two, atol=1e-8 * N)
    assert set(draws) == {tuple(c) for c in model.junction_tree.cliques}


def test_draws_of_unconnected_variables():
    """Draws are keyed by the model's own cliques, also where its rooted tree joins unconnected variables; whole ones add up to N."""
    model = awkward_models()["isolated variable"]
    post = hc.infer(hc.Problem(model, 20, [hc.Poisson({"alone": [8.0, 7.0, 5.0]})]), TiltedEP())
    for integer in (False, True):
        draws = post.beliefs.sample(3, rng=np.random.default_rng(1), integer=integer)
        assert set(draws) == set(model.junction_tree.cliques)
        for table in draws.values():
            np.testing.assert_allclose(table.reshape(3, -1).sum(axis=1), 20)
