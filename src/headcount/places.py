"""Where cells lie: a table of places, and the distances between them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headcount._types import Array
from headcount.checks import brief
from headcount.errors import ModelError, raise_all, shown
from headcount.labels import is_frame, plain

COORDINATES = (("x", "y"), ("lon", "lat"), ("column", "row"))
"""Names under which a table may carry the places of the cells."""
EARTH_RADIUS = 6371.0
"""Mean radius of the Earth, km."""


@dataclass(frozen=True, eq=False)
class Points:
    """Places of cells: x and y, or longitude and latitude in degrees, shape (L, 2)."""

    points: Array
    geographic: bool = False

    def distances(self) -> Array:
        """Distance from every cell to every other, (L, L): in the map's unit, or in km along the Earth where there are degrees."""
        if not self.geographic:
            return np.linalg.norm(self.points[:, None] - self.points[None], axis=-1)
        lon, lat = np.radians(self.points.T)
        half = np.sin((lat[:, None] - lat) / 2) ** 2
        half = half + np.cos(lat[:, None]) * np.cos(lat) * np.sin((lon[:, None] - lon) / 2) ** 2
        return 2 * EARTH_RADIUS * np.arcsin(np.sqrt(np.minimum(half, 1.0)))


def places_of(table: Any, cells: Sequence[Hashable], what: str = "places") -> Points:
    """The places of `cells`, in their order.

    Parameters
    ----------
    table
        A frame with a column (or index) ``cell`` and ``x, y``, ``lon, lat`` or ``column, row``; or a mapping from cell to (x, y).
    cells
        The cells' labels.
    what
        The argument's name, for messages.

    Raises
    ------
    ModelError
        If columns are missing, or a cell has no place or no finite one.
    """
    geographic = False
    if is_frame(table):
        found, geographic = _from_frame(table, what)
    elif isinstance(table, Mapping):
        found = {plain(cell): tuple(point) for cell, point in table.items()}
    else:
        raise ModelError(
            f"{what} is {brief(table)}: give a table with cell, x, y (or lon, lat), or {{cell: (x, y)}}"
        )
    raise_all([f"{what} has no place for the cell {cell!r}" for cell in cells if plain(cell) not in found])
    points = np.array([found[plain(cell)] for cell in cells], dtype=float).reshape(len(cells), 2)
    wrong = np.flatnonzero(~np.isfinite(points).all(axis=1))
    raise_all([f"{what} has no finite place for the cell {cells[k]!r}" for k in wrong[:5]])
    return Points(points, geographic)


def _from_frame(table: Any, what: str) -> tuple[dict[Hashable, tuple[Any, ...]], bool]:
    """The places in a frame, and whether they are degrees."""
    frame = table if "cell" in table.columns else table.reset_index()
    names = next((pair for pair in COORDINATES if set(pair) <= set(frame.columns)), None)
    if names is None or "cell" not in frame.columns:
        raise ModelError(
            f"{what} has the columns {shown(table.columns)}: it needs cell and x, y (or lon, lat)"
        )
    points = zip(frame["cell"], frame[names[0]], frame[names[1]], strict=True)
    return {plain(cell): (x, y) for cell, x, y in points}, names == ("lon", "lat")
