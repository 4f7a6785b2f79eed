"""The problems that are measured on, all simulated, all from given seeds."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import headcount as hc

WEIGHTS = {0.5: (0.5, 1.0, 1.0, 1.0), 1.0: (1.0, 2.0, 2.0, 2.0), 2.0: (2.0, 4.0, 4.0, 4.0)}


def birds(
    side: int,
    population: int,
    *,
    weights: tuple[float, ...] = WEIGHTS[1.0],
    steps: int = 20,
    rng: int = 1,
    **options: Any,
) -> tuple[Any, hc.Problem]:
    """The paper's migration on a map of side², seen through Poisson noise: the world, and the problem."""
    world = hc.simulate.birds(side, weights, population, steps=steps, rng=rng, **options)
    return world, hc.Problem(world.model, population, [hc.Poisson(world.observed)])


def random_chain(cells: int, steps: int, population: int, *, rng: int = 1) -> hc.Problem:
    """A homogeneous chain with random rows, seen through Poisson noise."""
    generator = np.random.default_rng(rng)
    rows = generator.dirichlet(np.full(cells, 0.5), size=cells) + 1e-4
    rows /= rows.sum(axis=1, keepdims=True)
    model = hc.MarkovChain(generator.dirichlet(np.ones(cells)), rows, length=steps)
    world = hc.simulate.population(model, population, rng=generator)
    return hc.Problem(model, population, [hc.Poisson(world.observed)])


def two_cells(steps: int, start: float, stay: float, come: float) -> hc.MarkovChain:
    """Two cells: start in the first with probability ``start``, stay in it with ``stay``, come to it with ``come``."""
    rows = np.array([[stay, 1 - stay], [come, 1 - come]])
    return hc.MarkovChain(np.array([start, 1 - start]), rows, length=steps)


def node_means(posterior: hc.Posterior) -> np.ndarray:
    """Expected counts of all nodes of a chain, (T, L)."""
    return np.stack([posterior.beliefs.mean((t,)) for t in posterior.problem.model.variables])


def edge_means(posterior: hc.Posterior) -> np.ndarray:
    """Expected flows of all steps of a chain, (T − 1, L, L)."""
    times = posterior.problem.model.variables
    return np.stack([posterior.beliefs.mean(pair) for pair in itertools.pairwise(times)])


def spreads(posterior: hc.Posterior) -> None:
    """Ask for every standard deviation, of nodes and of flows."""
    times = posterior.problem.model.variables
    for t in times:
        posterior.sd_table((t,))
    for pair in itertools.pairwise(times):
        posterior.sd_table(pair)
