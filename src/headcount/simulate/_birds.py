"""The bird migration of Sheldon et al. (2013), on which Liu, Sheldon and Dietterich (2014) measure.

    P_t(j | i) = softmax_j(w·f_t(i, j)),      x_0 = cell 0,      y_t ~ Poisson(rate · n_t)

What draws a bird from cell i to cell j is distance, direction, wind and staying:

    f1 = 4·LogNormalPDF(d_ij; 1, 1) = 4/(d √2π) · exp(−(ln d − 1)²/2),    0 if i = j
    f2 = cos of the angle between (j − i) and (goal − i),                 0 if i = j or i = goal
    f3 = unit(j − i)·wind_t,                                              0 if i = j
    f4 = 2·[i = j]

Cells are unit squares of an ℓ × ℓ map, numbered column by column from the lower left; cell 0 is the start,
the last one (upper right) the goal. The paper prints no formulas; these reproduce the feature files
published with the same simulator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from headcount import memory
from headcount._types import Array, Index
from headcount.checks import attempt, brief, finite_number, generator, numbers, whole_number
from headcount.individual import MarkovChain, ModelError
from headcount.simulate._world import World, poisson
from headcount.simulate._world import population as simulate_population

if TYPE_CHECKING:
    import xarray

NAMES = ("distance", "direction", "wind", "stay")
WINDS = ((0.0, 0.0), (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0))
"""Calm, and the four winds towards ±x and ±y; each night has one, uniformly drawn, for the whole map."""

_WORKING_ARRAYS = 12
"""Arrays as long as the list of flights that exist at once while features are turned into probabilities (counted in `_transitions`)."""


def cell_coordinates(side: int) -> NDArray[np.int64]:
    """(column, row) of every cell, shape (side², 2): cell k lies in column k // side and row k % side."""
    cells = np.arange(side * side)
    return np.stack([cells // side, cells % side], axis=1)


def distance_feature(step: Array) -> Array:
    """f1 = 4·LogNormalPDF(d; 1, 1) of the displacements j − i, shape (…, 2); 0 where j = i."""
    d = np.linalg.norm(step, axis=-1)
    safe = np.where(d > 0, d, 1.0)
    value = 4.0 / (safe * np.sqrt(2 * np.pi)) * np.exp(-0.5 * (np.log(safe) - 1.0) ** 2)
    return np.where(d > 0, value, 0.0)


def direction_feature(step: Array, to_goal: Array) -> Array:
    """f2 = cos ∠(j − i, goal − i), 0 if i = j or i = goal."""
    return (unit(step) * unit(to_goal)).sum(axis=-1)


def wind_feature(step: Array, wind: Array) -> Array:
    """f3 = unit(j − i)·wind, 0 if i = j."""
    return unit(step) @ wind


def stay_feature(step: Array) -> Array:
    """f4 = 2·[i = j]."""
    return 2.0 * (step == 0).all(axis=-1)


def unit(step: Array) -> Array:
    """The direction of every displacement; zero for none."""
    d = np.linalg.norm(step, axis=-1, keepdims=True)
    return step / np.where(d > 0, d, 1.0)


def pair_features(coordinates: NDArray[Any], origin: Any, dest: Any, wind: Array) -> Array:
    """All four features of some flights, shape (4, …) for origins and destinations of shape (…)."""
    step = (coordinates[dest] - coordinates[origin]).astype(float)
    to_goal = (coordinates[-1] - coordinates[origin]).astype(float)
    return np.stack(
        [
            distance_feature(step),
            direction_feature(step, to_goal),
            wind_feature(step, wind),
            stay_feature(step),
        ]
    )


@final
@dataclass(frozen=True, eq=False)
class Features:
    """The features of every step, shape (T − 1, 4, L, L), made when asked for.

    ``features[t]`` is the (4, L, L) array of step t, ``np.asarray(features)`` the whole, `to_xarray` the
    whole with labels. Only the wind changes from step to step; the other three are kept once.

    Attributes
    ----------
    coordinates : array, shape (L, 2)
        (column, row) of every cell; the last cell is the goal.
    winds : array, shape (T − 1, 2)
    """

    coordinates: NDArray[np.int64]
    winds: Array

    @cached_property
    def _step(self) -> Array:
        return (self.coordinates[None, :, :] - self.coordinates[:, None, :]).astype(float)

    @cached_property
    def distance(self) -> Array:
        """f1, shape (L, L)."""
        return distance_feature(self._step)

    @cached_property
    def direction(self) -> Array:
        """f2, shape (L, L)."""
        return direction_feature(self._step, self._step[:, -1:, :])

    @cached_property
    def stay(self) -> Array:
        """f4, shape (L, L)."""
        return stay_feature(self._step)

    def wind(self, step: int) -> Array:
        """f3 of one step, shape (L, L)."""
        return wind_feature(self._step, self.winds[step])

    @property
    def names(self) -> tuple[str, ...]:
        """The features' names, in order."""
        return NAMES

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(T − 1, 4, L, L)."""
        cells = len(self.coordinates)
        return (len(self.winds), len(NAMES), cells, cells)

    def __len__(self) -> int:
        return len(self.winds)

    def __getitem__(self, step: int) -> Array:
        return np.stack([self.distance, self.direction, self.wind(step), self.stay])

    def __iter__(self) -> Iterator[Array]:
        return (self[step] for step in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("the whole array is made when asked for; it cannot be had without a copy")
        whole = np.stack(list(self)) if len(self) else np.empty(self.shape)
        return whole if dtype is None else whole.astype(dtype)

    def to_xarray(self) -> xarray.DataArray:
        """The whole array with dims (step, feature, origin, dest)."""
        import xarray

        return xarray.DataArray(
            np.asarray(self),
            dims=("step", "feature", "origin", "dest"),
            coords={"feature": list(NAMES)},
            name="features",
        )


def birds(
    side: int = 6,
    weights: Sequence[float] = (1.0, 2.0, 2.0, 2.0),
    population: int = 1080,
    *,
    steps: int = 20,
    rate: float = 1.0,
    winds: ArrayLike | None = None,
    max_distance: float | None = None,
    sparse: bool = False,
    memory_limit: int | None = None,
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
    sparse : bool
        Keep transitions and flows as ``scipy.sparse`` matrices, with an entry for every allowed flight; needs
        `max_distance`. This is how maps of ten thousand cells are made.
    memory_limit : int
        Bytes the world may take while it is made; more is refused before it is taken.
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
    side, coefficients, steps, max_distance = _check(side, weights, steps, rate, max_distance, sparse)
    noise, source = poisson(rate), generator(rng)
    cells = side * side
    winds_at_most = len(WINDS) if winds is None else steps - 1
    kept = min(winds_at_most, steps - 1) + steps - 1  # matrices of transitions and of flows
    entries = cells * min(cells, _most_neighbours(side, max_distance)) if sparse else cells**2
    memory.require(
        8 * entries * ((2 if sparse else 1) * kept + _WORKING_ARRAYS),
        f"a world of {steps} times and {cells} cells",
        limit=memory_limit,
        remedy="take a smaller map, fewer steps, or sparse=True",
    )
    blown = _winds(winds, steps, source)
    coordinates = cell_coordinates(side)
    origin, dest = flights(side, max_distance)
    initial = np.zeros(cells)
    initial[0] = 1.0
    matrices = _transitions(coordinates, blown, coefficients, origin, dest)
    if not sparse:
        matrices = {wind: matrix.toarray() for wind, matrix in matrices.items()}
    model = MarkovChain(initial, [matrices[tuple(wind)] for wind in blown.tolist()])
    world = simulate_population(model, population, observe=noise, rng=source)
    mask = None
    if max_distance is not None and not sparse:
        mask = np.full((cells, cells), -np.inf)
        mask[origin, dest] = 0.0
    features = Features(coordinates, blown)
    return replace(world, features=features, mask=mask, winds=blown, coordinates=coordinates)


def _most_neighbours(side: int, max_distance: float | None) -> int:
    """How many cells a bird in the middle of a large map can reach."""
    reach = 2 * side - 1 if max_distance is None else 2 * int(min(max_distance, side - 1)) + 1
    return reach**2


def flights(side: int, max_distance: float | None) -> tuple[Index, Index]:
    """Origin and destination of every flight of at most `max_distance`, sorted by origin, then destination.

    Squared distances are integers, so rounding of a limit like 3√2 must not decide.
    """
    if max_distance is None:
        cells = np.arange(side**2)
        return np.repeat(cells, side**2), np.tile(cells, side**2)
    longest = max_distance**2 * (1 + 1e-12)
    most = int(min(max_distance * (1 + 1e-12), side - 1))
    reach = np.arange(-most, most + 1)
    dx, dy = (a.reshape(-1) for a in np.meshgrid(reach, reach, indexing="ij"))
    near = dx**2 + dy**2 <= longest
    coordinates = cell_coordinates(side)
    column = coordinates[:, :1] + dx[near]
    row = coordinates[:, 1:] + dy[near]
    origin, which = np.nonzero((column >= 0) & (column < side) & (row >= 0) & (row < side))
    return origin, column[origin, which] * side + row[origin, which]


def _transitions(
    coordinates: NDArray[np.int64],
    winds: Array,
    weights: Array,
    origin: Index,
    dest: Index,
) -> dict[tuple[float, ...], Any]:
    """P(j | i) = softmax_j(w·f(i, j)) over the allowed flights, one csr matrix for every wind that blows."""
    starts = np.searchsorted(origin, np.arange(len(coordinates)))
    matrices = {}
    for wind in np.unique(winds, axis=0):
        score = weights @ pair_features(coordinates, origin, dest, wind)
        odds = np.exp(score - np.maximum.reduceat(score, starts)[origin])
        values = odds / np.add.reduceat(odds, starts)[origin]
        pointers = np.append(starts, len(origin))
        matrices[tuple(wind.tolist())] = csr_array((values, dest, pointers), shape=(len(coordinates),) * 2)
    return matrices


def _winds(winds: ArrayLike | None, steps: int, rng: np.random.Generator) -> Array:
    if winds is None:
        return np.array(WINDS)[rng.integers(len(WINDS), size=steps - 1)]
    given = np.array(numbers(winds, "winds"))
    if given.shape != (steps - 1, 2) or not np.isfinite(given).all():
        raise ModelError(
            f"winds has shape {given.shape}; give one finite vector (x, y) for each of the {steps - 1} flights"
        )
    return given


def _check(
    side: Any, weights: Any, steps: Any, rate: Any, max_distance: Any, sparse: Any
) -> tuple[int, Array, int, float | None]:
    """The numbers as numbers; everything that is wrong with them at once."""
    faults: list[str] = []
    found = attempt(faults, _coefficients, weights)
    whole = "a whole number: at least one"
    cells = attempt(faults, whole_number, side, "side", least=1, expected=f"{whole} cell")
    times = attempt(faults, whole_number, steps, "steps", least=1, expected=f"{whole} time")
    attempt(faults, poisson, rate)
    farthest = None
    if max_distance is not None:
        expected = "a distance of 0 or more, or leave it out"
        farthest = attempt(
            faults, finite_number, max_distance, "max_distance", least=0.0, most=np.inf, expected=expected
        )
    if not isinstance(sparse, (bool, np.bool_)):
        faults.append(f"sparse is {brief(sparse)}: give True or False")
    elif sparse and max_distance is None:
        faults.append("sparse is True without max_distance: every flight is allowed; give a limit")
    if faults or cells is None or times is None or found is None:
        raise ModelError(faults)
    return cells, found, times, farthest


def _coefficients(weights: Any) -> Array:
    found = numbers(weights, "weights")
    if found.shape != (len(NAMES),) or not np.isfinite(found).all():
        raise ModelError(
            f"weights is {brief(weights)}: give one finite number for each of {', '.join(NAMES)}"
        )
    return found
