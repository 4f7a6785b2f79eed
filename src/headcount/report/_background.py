"""What lies under the map beside coastlines: lines that the user gives, or tiles that the page asks a server for when told to."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from headcount._types import Array

_TILES = re.compile(r"(https?://[A-Za-z0-9.-]+(?::\d+)?)/[^\s'\";<>]*")
"""An address whose origin may stand in the page's policy as it is."""


@dataclass(frozen=True)
class Background:
    """Streets, rivers or zones under a map.

    Attributes
    ----------
    lines
        Points of every line, shape (K, 2), in the units of the cells' places.
    tiles
        Address of map tiles (Web Mercator) with ``{z}``, ``{x}`` and ``{y}``; empty for none. The page asks for them only once a
        reader switches them on.
    """

    lines: tuple[Array, ...] = ()
    tiles: str = ""

    @classmethod
    def of(cls, lines: str | os.PathLike[str] | None, tiles: str | None) -> Background:
        """From a GeoJSON file of lines or areas, and the address of tiles; either may be missing.

        Raises
        ------
        ValueError
            A file that is no GeoJSON or has no lines, or an address without ``{z}``, ``{x}`` and ``{y}``.
        """
        if tiles is not None and not (
            _TILES.fullmatch(tiles) and all(part in tiles for part in ("{z}", "{x}", "{y}"))
        ):
            raise ValueError(
                f"tiles is {tiles!r}: give an address like https://tiles.example.org/{{z}}/{{x}}/{{y}}.png"
            )
        return cls(() if lines is None else tuple(_read(Path(lines))), tiles or "")

    @property
    def origin(self) -> str:
        """The server that tiles come from; empty where there are none."""
        found = _TILES.fullmatch(self.tiles)
        return "" if found is None else found[1]


def _read(path: Path) -> list[Array]:
    try:
        found = list(_lines(json.loads(path.read_text(encoding="utf-8-sig"))))
    except (ValueError, KeyError, TypeError, IndexError):
        found = []
    if not found:
        raise ValueError(f"{path}: there are no lines in it: give GeoJSON with lines or polygons")
    return found


def _lines(part: Any) -> Iterator[Array]:
    """Lines, and the rings of areas, of any GeoJSON object."""
    if part is None:
        return
    kind, held = part["type"], part.get("coordinates")
    for inner in (*part.get("features", ()), *part.get("geometries", ())):
        yield from _lines(inner)
    if kind == "Feature":
        yield from _lines(part["geometry"])
    elif kind == "MultiPolygon":
        yield from (_points(ring) for rings in held for ring in rings)
    elif kind in {"Polygon", "MultiLineString"}:
        yield from map(_points, held)
    elif kind == "LineString":
        yield _points(held)


def _points(held: Any) -> Array:
    return np.array([point[:2] for point in held], dtype=float)
