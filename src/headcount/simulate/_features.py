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
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import xarray

NAMES = ("distance", "direction", "wind", "stay")
FloatArray = NDArray[np.float64]


def cell_coordinates(side: int) -> NDArray[np.int64]:
    """(column, row) of every cell, shape (side², 2): cell k lies in column k // side and row k % side."""
    cells = np.arange(side * side)
    return np.stack([cells // side, cells % side], axis=1)


def displacements(coordinates: NDArray[Any]) -> FloatArray:
    """Where j lies as seen from i, shape (L, L, 2): entry (i, j) is j − i."""
    return (coordinates[None, :, :] - coordinates[:, None, :]).astype(float)


def distance_feature(coordinates: NDArray[Any]) -> FloatArray:
    """f1 = 4·LogNormalPDF(d_ij; 1, 1), 0 on the diagonal; shape (L, L)."""
    d = np.linalg.norm(displacements(coordinates), axis=2)
    safe = np.where(d > 0, d, 1.0)
    value = 4.0 / (safe * np.sqrt(2 * np.pi)) * np.exp(-0.5 * (np.log(safe) - 1.0) ** 2)
    return np.where(d > 0, value, 0.0)


def direction_feature(coordinates: NDArray[Any], goal: int) -> FloatArray:
    """f2 = cos ∠(j − i, goal − i), 0 if i = j or i = goal; shape (L, L)."""
    units = unit_displacements(coordinates)
    return np.einsum("ijk,ik->ij", units, units[:, goal])


def unit_displacements(coordinates: NDArray[Any]) -> FloatArray:
    """unit(j − i), 0 if i = j; shape (L, L, 2)."""
    step = displacements(coordinates)
    d = np.linalg.norm(step, axis=2, keepdims=True)
    return step / np.where(d > 0, d, 1.0)


def stay_feature(coordinates: NDArray[Any]) -> FloatArray:
    """f4 = 2·[i = j]; shape (L, L)."""
    return 2.0 * np.eye(len(coordinates))


@final
@dataclass(frozen=True, eq=False)
class Features:
    """The features of every step, shape (T − 1, 4, L, L); only the wind changes, the others are kept once.

    ``features[t]`` is the (4, L, L) array of step t, ``np.asarray(features)`` the whole, `to_xarray` the
    whole with labels.

    Attributes
    ----------
    distance, direction, stay : array, shape (L, L)
    along : array, shape (L, L, 2)
        unit(j − i), whose product with a night's wind is the wind feature.
    winds : array, shape (T − 1, 2)
    """

    distance: FloatArray
    direction: FloatArray
    stay: FloatArray
    along: FloatArray
    winds: FloatArray

    @classmethod
    def of(cls, coordinates: NDArray[Any], winds: FloatArray) -> Features:
        """The features of a map whose last cell is the goal."""
        goal = len(coordinates) - 1
        return cls(
            distance_feature(coordinates),
            direction_feature(coordinates, goal),
            stay_feature(coordinates),
            unit_displacements(coordinates),
            winds,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The features' names, in order."""
        return NAMES

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(T − 1, 4, L, L)."""
        return (len(self.winds), len(NAMES), *self.distance.shape)

    def wind(self, step: int) -> FloatArray:
        """f3 of one step, shape (L, L)."""
        return self.along @ self.winds[step]

    def __len__(self) -> int:
        return len(self.winds)

    def __getitem__(self, step: int) -> FloatArray:
        return np.stack([self.distance, self.direction, self.wind(step), self.stay])

    def __iter__(self) -> Iterator[FloatArray]:
        return (self[step] for step in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> FloatArray:
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
