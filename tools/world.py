"""Make the coastlines and borders that maps are drawn on, from Natural Earth's 1:50m countries.

``npm pack world-atlas`` brings ``countries-50m.json`` (Natural Earth 4.1, public domain, as TopoJSON: arcs that neighbours share).
``python -m tools.world package/countries-50m.json`` writes `ASSET`: land as closed rings and borders as lines, both as lists of arcs.
"""

from __future__ import annotations

import io
import json
import lzma
import sys
from pathlib import Path
from typing import Any

import numpy as np

ASSET = Path(__file__).parents[1] / "src" / "headcount" / "plot" / "assets" / "world.npz.xz"
TOLERANCE = 0.012
"""Degrees by which a simplified line may differ: about 1 km, which 1:50m does not show."""
UNIT = 0.005
"""Degrees per unit of the stored steps."""


def simplified(points: np.ndarray, tolerance: float) -> np.ndarray:
    """Douglas and Peucker: keep the ends and, as long as one is farther off than the tolerance, the farthest point between."""
    keep = np.zeros(len(points), bool)
    keep[[0, -1]] = True
    stack = [(0, len(points) - 1)]
    while stack:
        a, b = stack.pop()
        if b - a < 2:
            continue
        along, inner = points[b] - points[a], points[a + 1 : b] - points[a]
        length = float(np.hypot(*along))
        across = np.abs(inner[:, 0] * along[1] - inner[:, 1] * along[0])
        off = across / length if length > 0 else np.hypot(*inner.T)
        far = int(off.argmax())
        if off[far] > tolerance:
            keep[a + 1 + far] = True
            stack += [(a, a + 1 + far), (a + 1 + far, b)]
    return points[keep]


def polygons(geometry: dict[str, Any]) -> list[list[list[int]]]:
    """The rings of arcs of a TopoJSON geometry, polygon by polygon."""
    kind = geometry["type"]
    if kind == "GeometryCollection":
        return [polygon for part in geometry["geometries"] for polygon in polygons(part)]
    return geometry["arcs"] if kind == "MultiPolygon" else [geometry["arcs"]] if kind == "Polygon" else []


def asset(topology: dict[str, Any]) -> dict[str, np.ndarray]:
    """Arcs as steps from point to point, rings and borders as lists of arcs (``~k`` is arc k backwards)."""
    scale, origin = (np.array(topology["transform"][name]) for name in ("scale", "translate"))
    steps, sizes = [], []
    for arc in topology["arcs"]:
        line = simplified(np.cumsum(arc, axis=0) * scale + origin, TOLERANCE)
        units = np.rint(line / UNIT).astype(np.int32)
        steps.append(np.diff(units, axis=0, prepend=[[0, 0]]))
        sizes.append(len(line))
    rings = [ring for polygon in polygons(topology["objects"]["land"]) for ring in polygon]
    rings = [ring for ring in rings if sum(sizes[k] - 1 for k in (k if k >= 0 else ~k for k in ring)) > 2]
    owners: dict[int, int] = {}
    for polygon in polygons(topology["objects"]["countries"]):
        for arc in {k if k >= 0 else ~k for ring in polygon for k in ring}:
            owners[arc] = owners.get(arc, 0) + 1
    return {
        "unit": np.array(UNIT),
        "x": np.concatenate(steps)[:, 0].astype(np.int32),
        "y": np.concatenate(steps)[:, 1].astype(np.int32),
        "sizes": np.array(sizes, np.int32),
        "rings": np.array([k for ring in rings for k in ring], np.int16),
        "ring_sizes": np.array([len(ring) for ring in rings], np.int16),
        "borders": np.array(sorted(k for k, count in owners.items() if count > 1), np.int16),
    }


def write(source: Path) -> int:
    """Write the asset; its size in bytes."""
    held = io.BytesIO()
    np.savez(held, **asset(json.loads(source.read_text(encoding="utf-8"))))  # type: ignore[arg-type]
    content = lzma.compress(held.getvalue(), preset=9 | lzma.PRESET_EXTREME)
    ASSET.parent.mkdir(exist_ok=True)
    ASSET.write_bytes(content)
    return len(content)


if __name__ == "__main__":
    print(f"{ASSET}: {write(Path(sys.argv[1])):,} bytes")
