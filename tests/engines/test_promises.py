"""What the default and the MAP promise of their means."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.engines.cases import MODELS, NOISES, node_counts, problem, scopes

import headcount as hc
from headcount.engines import MAP, TiltedEP

N = 60


@pytest.mark.parametrize("engine", [TiltedEP(), MAP()], ids=lambda e: e.name)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(
    "graph", ["chain", "absorbing and unreachable cells", "star", "two cliques of three"]
)
def test_means_are_counts(graph, noise, engine):
    """Means are ≥ 0, sum to N, and every table agrees with every table inside it to 1e-9 N."""
    post = hc.infer(problem(graph, noise, N), engine)
    assert post.promises.non_negative
    assert post.promises.consistent
    for clique in post.problem.model.junction_tree.cliques:
        table = post.beliefs.mean(tuple(clique))
        assert table.min() >= -1e-9 * N
        assert table.sum() == pytest.approx(N, rel=1e-9)
        for k, v in enumerate(clique):
            others = tuple(j for j in range(len(clique)) if j != k)
            np.testing.assert_allclose(table.sum(axis=others), post.beliefs.mean((v,)), atol=1e-9 * N)


@pytest.mark.parametrize("noise", sorted(set(NOISES) - {"exact", "user", "negative_binomial"}))
@pytest.mark.parametrize("graph", MODELS)
def test_the_duality_gap_is_closed(graph, noise):
    """At the MAP the dual's value is the primal's: to 1e-6 nats, relative to its size."""
    post = hc.infer(problem(graph, noise, N), MAP())
    assert abs(post.diagnostics["gap"]) <= 1e-6 * max(1.0, abs(post.log_evidence))


def several():
    """A chain seen at nodes, on an edge, in a region and over a cordon, with four kinds of noise at once."""
    model = MODELS["chain"]
    rng = np.random.default_rng(8)
    n = node_counts(model, N, rng)
    cordon = np.zeros((1, 9))
    cordon[0, [1, 2, 5]] = 1.0
    return hc.Problem(
        model,
        N,
        [
            hc.Poisson(rng.poisson(n["mon"]).astype(float), on="mon"),
            hc.Gaussian(n["mon"], sd=4.0, on="mon"),
            hc.Binomial(
                [float(rng.binomial(int(n["tue"][:2].sum()), 0.7))], detection=0.7, on="tue", sums=[[1, 1, 0]]
            ),
            hc.Poisson(
                np.array([[3.0, np.nan, 6.0], [np.nan, 5.0, 0.0], [2.0, np.nan, 7.0]]), on=("mon", "tue")
            ),
            hc.Poisson([11.0], rate=0.5, on=("tue", "wed"), sums=cordon),
            hc.LaplaceNoise(n["wed"], scale=2.0, on="wed"),
        ],
    )


def test_several_observations_at_once():
    """Entries and sums of nodes and edges under different noises combine: TiltedEP is near the count-by-count answer of MAP."""
    asked = several()
    tilted, point = hc.infer(asked, TiltedEP()), hc.infer(asked, MAP())
    assert tilted.promises.non_negative
    for scope in scopes(asked.model):
        assert np.abs(tilted.beliefs.mean(scope) - point.beliefs.mean(scope)).max() < 0.05 * N


def test_order_of_observations_does_not_matter():
    """The same observations in another order, and a table given transposed, give the same answer."""
    asked = several()
    flipped = [
        replace(o, on=("tue", "mon"), counts=np.asarray(o.counts).T) if o.on == ("mon", "tue") else o
        for o in reversed(asked.observations)
    ]
    engine = TiltedEP(tolerance=1e-9)
    first, second = hc.infer(asked, engine), hc.infer(hc.Problem(asked.model, N, flipped), engine)
    for scope in scopes(asked.model):
        np.testing.assert_allclose(first.beliefs.mean(scope), second.beliefs.mean(scope), atol=1e-6 * N)
