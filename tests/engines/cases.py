"""Problems for the engines' tests: every awkward graph under every noise, the same on every call."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from tests.graphs import awkward_models

import headcount as hc
from headcount.individual import Model

MODELS = awkward_models()


@dataclass(frozen=True, eq=False, kw_only=True)
class RootNoise(hc.Observation):
    """A user's own noise: √(y + 1) ~ N(√(n + 1), scale²), without derivatives."""

    scale: float = 0.7

    def log_prob(self, n):
        with np.errstate(invalid="ignore"):
            gap = np.sqrt(self.counts + 1) - np.sqrt(np.asarray(n, dtype=float) + 1)
        return np.where(np.asarray(n) > -1, -0.5 * (gap / self.scale) ** 2, -np.inf)

    @property
    def domain_low(self):
        return np.full(np.shape(self.counts), -1.0)


def poisson(n, rng):
    return hc.Poisson(rng.poisson(n).astype(float))


def poisson_with_background(n, rng):
    return hc.Poisson(rng.poisson(1.5 * n + 0.2).astype(float), rate=1.5, background=0.2)


def negative_binomial(n, rng):
    return hc.NegativeBinomial(rng.poisson(rng.gamma(3.0, n / 3.0)).astype(float), dispersion=3.0)


def binomial(n, rng):
    return hc.Binomial(rng.binomial(n.astype(int), 0.6).astype(float), detection=0.6)


def laplace(n, rng):
    return hc.LaplaceNoise(n + rng.laplace(0.0, 1.0, n.shape), scale=1.0)


def gaussian(n, rng):
    return hc.Gaussian(n + rng.normal(0.0, 1.0, n.shape), sd=1.0)


def exact(n, rng):
    return hc.Exact(n)


def user(n, rng):
    return RootNoise(n)


NOISES = {
    f.__name__: f
    for f in (
        poisson,
        poisson_with_background,
        negative_binomial,
        binomial,
        laplace,
        gaussian,
        exact,
        user,
    )
}


def node_counts(model: Model, population: int, rng: np.random.Generator) -> dict:
    """The node counts of a simulated population."""
    drawn = model.sample(population, rng=rng)
    return {
        v: np.bincount(drawn[:, k], minlength=len(model.states[v])).astype(float)
        for k, v in enumerate(model.variables)
    }


def problem(
    graph: str | Model, noise: str, population: int, *, seed: int = 0, last: bool = False
) -> hc.Problem:
    """Every variable but the last (unless `last`) observed with one noise."""
    model = MODELS[graph] if isinstance(graph, str) else graph
    rng = np.random.default_rng(seed)
    counts = node_counts(model, population, rng)
    seen = model.variables if last else model.variables[: max(1, len(model.variables) - 1)]
    return hc.Problem(model, population, [replace(NOISES[noise](counts[v], rng), on=v) for v in seen])


def scopes(model: Model) -> list[tuple]:
    """All nodes and cliques."""
    return [(v,) for v in model.variables] + [tuple(c) for c in model.junction_tree.cliques]


def means(post: hc.Posterior) -> np.ndarray:
    """All node and clique means, end to end."""
    return np.concatenate([post.beliefs.mean(s).ravel() for s in scopes(post.problem.model)])
