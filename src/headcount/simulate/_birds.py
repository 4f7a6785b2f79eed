"""The bird migration of Sheldon et al. (2013), on which Liu, Sheldon and Dietterich (2014) measure.

P_t(j | i) = softmax_j(w·f_t(i, j)),      x_0 = cell 0,      y_t ~ Poisson(rate · n_t)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headcount.individual import MarkovChain, ModelError
from headcount.simulate._features import NAMES, Features, cell_coordinates, displacements
from headcount.simulate._world import World, poisson
from headcount.simulate._world import population as simulate_population

WINDS = ((0.0, 0.0), (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0))
"""Calm, and the four winds towards ±x and ±y; each night has one, uniformly drawn, for the whole map."""


def birds(
    side: int = 6,
    weights: Sequence[float] = (1.0, 2.0, 2.0, 2.0),
    population: int = 1080,
    *,
    steps: int = 20,
    rate: float = 1.0,
    winds: ArrayLike | None = None,
    max_distance: float | None = None,
    rng: np.random.Generator | int,
) -> World:
    """Simulate birds that fly from the lower left corner of a map towards the upper right one.

    Parameters
    ----------
    side : int
        ℓ; the map has L = ℓ² cells, numbered column by column from the lower left.
    weights : four floats
        w of distance, direction, wind and stay. The paper's are (.5, 1, 1, 1), (1, 2, 2, 2) and (2, 4, 4, 4).
    population : int
        N; all start in cell 0.
    steps : int
        T, the number of times (so T − 1 flights).
    rate : float
        λ of the observations, y_t ~ Poisson(λ n_t).
    winds : array_like, shape (T − 1, 2), optional
        The wind of every night; drawn from `WINDS` if left out.
    max_distance : float, optional
        No flight is longer than this (later papers take 3√2).
    rng : numpy.random.Generator or int
        Where winds, flights and observations come from, in that order.

    Returns
    -------
    World
        With `model` (times 0 … T − 1, cells 0 … L − 1), `features`, `counts` (T, L), `flows` (T − 1, L, L),
        `observed`, `winds` and `coordinates`.

    Examples
    --------
    >>> from headcount import simulate
    >>> world = simulate.birds(side=4, population=480, steps=5, rng=1)
    >>> world.counts.sum(axis=1)
    array([480, 480, 480, 480, 480])
    """
    _check(side, weights, steps, rate, max_distance)
    generator = np.random.default_rng(rng)
    blown = _winds(winds, steps, generator)
    coordinates = cell_coordinates(side)
    features = Features.of(coordinates, blown)
    allowed = _allowed(coordinates, max_distance)
    initial = np.zeros(side * side)
    initial[0] = 1.0
    transitions = _transitions(features, np.asarray(weights, dtype=float), allowed)
    model = MarkovChain(initial, transitions)
    world = simulate_population(model, population, observe=poisson(rate), rng=generator)
    mask = None if max_distance is None else np.where(allowed, 0.0, -np.inf)
    return replace(world, features=features, mask=mask, winds=blown, coordinates=coordinates)


def transition(
    features: NDArray[np.float64], weights: NDArray[np.float64], allowed: NDArray[np.bool_]
) -> NDArray[Any]:
    """P(j | i) = softmax_j(w·f(i, j)) over the allowed j; features (4, L, L), shape (L, L)."""
    score = np.where(allowed, np.tensordot(weights, features, axes=1), -np.inf)
    odds = np.exp(score - score.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def _transitions(
    features: Features, weights: NDArray[np.float64], allowed: NDArray[np.bool_]
) -> list[NDArray[Any]]:
    """One matrix per night; nights with the same wind share theirs."""
    made: dict[tuple[float, ...], NDArray[Any]] = {}
    matrices = []
    for step, wind in enumerate(features.winds):
        key = tuple(wind.tolist())
        if key not in made:
            made[key] = transition(features[step], weights, allowed)
        matrices.append(made[key])
    return matrices


def _allowed(coordinates: NDArray[np.int64], max_distance: float | None) -> NDArray[np.bool_]:
    """Which flights are short enough. Squared distances are integers, so rounding of 3√2 must not decide."""
    squared = (displacements(coordinates) ** 2).sum(axis=2)
    return np.full(squared.shape, True) if max_distance is None else squared <= max_distance**2 * (1 + 1e-12)


def _winds(winds: ArrayLike | None, steps: int, rng: np.random.Generator) -> NDArray[np.float64]:
    if winds is None:
        return np.array(WINDS)[rng.integers(len(WINDS), size=steps - 1)]
    given = np.array(winds, dtype=float)
    if given.shape != (steps - 1, 2) or not np.isfinite(given).all():
        raise ModelError(
            f"winds has shape {given.shape}; give one finite vector (x, y) for each of the {steps - 1} "
            f"flights"
        )
    return given


def _check(side: int, weights: Sequence[float], steps: int, rate: float, max_distance: float | None) -> None:
    problems = []
    if side < 1:
        problems.append(f"side is {side}; a map has at least one cell")
    if len(weights) != len(NAMES) or not all(math.isfinite(w) for w in weights):
        problems.append(
            f"weights is {tuple(weights)!r}; give one finite number for each of {', '.join(NAMES)}"
        )
    if steps < 1:
        problems.append(f"steps is {steps}; there is at least one time")
    if not (math.isfinite(rate) and rate >= 0):
        problems.append(f"rate is {rate!r}; give a finite number, 0 or more")
    if max_distance is not None and not max_distance >= 0:
        problems.append(f"max_distance is {max_distance!r}; give a distance of 0 or more, or leave it out")
    if problems:
        raise ModelError(problems)
