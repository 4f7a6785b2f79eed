"""What draws a bird from cell i to cell j: distance, direction, wind and staying.

    f1 = 4·LogNormalPDF(d_ij; 1, 1) = 4/(d √2π) · exp(−(ln d − 1)²/2),    0 if i = j
    f2 = cos of the angle between (j − i) and (goal − i),                 0 if i = j or i = goal
    f3 = unit(j − i)·wind_t,                                              0 if i = j
    f4 = 2·[i = j]

Cells are unit squares of an ℓ × ℓ map, numbered column by column from the lower left; cell 0 is the start,
the last one (upper right) the goal. The paper prints no formulas; these reproduce the feature files
published with the same simulator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from headcount._types import Array

if TYPE_CHECKING:
    import xarray

NAMES = ("distance", "direction", "wind", "stay")


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
