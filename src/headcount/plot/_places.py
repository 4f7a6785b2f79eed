"""Where cells lie, and the geometry of discs and arrows between them.

Degrees of longitude shrink with latitude: distances are measured in (c·x, y) with c = cos(mean latitude), and in (x, y) for
plain coordinates (c = 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.plot._frames import label, require

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.collections import EllipseCollection

    from headcount._types import Array


@dataclass(frozen=True, eq=False)
class Places:
    """Cells on a map.

    Attributes
    ----------
    index : dict
        Row of every cell.
    points : array, shape (L, 2)
        x and y, or longitude and latitude.
    stretch : float
        c of the module.
    spacing : float
        The median distance from a cell to its nearest neighbour: the scale of discs and arrows.
    geographic : bool
    """

    index: dict[Hashable, int]
    points: Array
    stretch: float
    spacing: float
    geographic: bool

    def of(self, cells: Sequence[Hashable]) -> Array:
        """Points of the cells, shape (K, 2)."""
        unknown = [cell for cell in dict.fromkeys(cells) if cell not in self.index]
        if unknown:
            shown = ", ".join(map(label, unknown[:5]))
            message = (
                f"coordinates lack {len(unknown)} cells of the frame ({shown}); give x and y for every cell"
            )
            raise ValueError(message)
        return self.points[[self.index[cell] for cell in cells]]

    def flat(self, points: Array) -> Array:
        """Points where distances are true: (c·x, y)."""
        return points * (self.stretch, 1.0)

    def unflat(self, points: Array) -> Array:
        """The inverse of :meth:`flat`."""
        return points / (self.stretch, 1.0)

    def prepare(self, axes: Axes, *, margin: float = 0.0) -> None:
        """Equal scales, a margin of most of a spacing (or more, if asked), names and units on the axes."""
        low, high = self.points.min(axis=0), self.points.max(axis=0)
        edge = max(0.75 * self.spacing, 1.03 * margin)
        axes.set_xlim(low[0] - edge / self.stretch, high[0] + edge / self.stretch)
        axes.set_ylim(low[1] - edge, high[1] + edge)
        axes.set_aspect(1.0 / self.stretch)
        axes.locator_params(nbins=5, integer=not self.geographic and bool((self.points % 1 == 0).all()))
        axes.set_xlabel("longitude (°)" if self.geographic else "x (map units)")
        axes.set_ylabel("latitude (°)" if self.geographic else "y (map units)")


def discs(axes: Axes, here: Places, points: Array, radius: Array, **style: Any) -> EllipseCollection:
    """Circles of the given radii in map units (NaN: none), drawn at the points."""
    from matplotlib.collections import EllipseCollection

    size = 2 * np.where(np.isfinite(radius), radius, 0.0) / here.stretch
    made = EllipseCollection(size, size, np.zeros(len(size)), units="x", offsets=points, **style)
    made.set_offset_transform(axes.transData)
    axes.add_collection(made)
    return made


def places(coordinates: pd.DataFrame, *, geographic: bool | None = None) -> Places:
    """Read ``cell, x, y`` or ``cell, lon, lat``; ``geographic=True`` says that x and y are degrees."""
    if coordinates is None:
        message = (
            "this picture is a map and the cells have no coordinates; give a frame with cell, x, y (or cell, lon, lat), "
            "or draw observed_against_inferred, which needs none"
        )
        raise ValueError(message)
    degrees = {"lon", "lat"} <= set(coordinates.columns)
    names = ("lon", "lat") if degrees else ("x", "y")
    require(coordinates, ["cell", *names], name="coordinates")
    geographic = degrees if geographic is None else geographic
    points = coordinates[list(names)].to_numpy(dtype=float)
    cells = coordinates["cell"].tolist()
    _check(cells, points)
    stretch = float(np.cos(np.radians(points[:, 1].mean()))) if geographic else 1.0
    spacing = nearest_distance(points * (stretch, 1.0))
    return Places({c: k for k, c in enumerate(cells)}, points, stretch, spacing, geographic)


def _check(cells: list[Hashable], points: Array) -> None:
    problems = []
    if len(set(cells)) < len(cells):
        twice = sorted({label(c) for c in cells if cells.count(c) > 1})
        problems.append(f"cells that appear twice: {', '.join(twice[:5])}; keep one row per cell")
    lost = [label(c) for c, p in zip(cells, points, strict=True) if not np.isfinite(p).all()]
    if lost:
        problems.append(
            f"cells without a finite place: {', '.join(lost[:5])}; fill them in or leave the map out"
        )
    if problems:
        raise ValueError("coordinates: " + "; ".join(problems))


def nearest_distance(points: Array) -> float:
    """Median distance to the nearest other point; 1 where there is none."""
    from scipy.spatial import cKDTree

    distinct = np.unique(points, axis=0)
    if len(distinct) < 2:
        return 1.0
    return float(np.median(cKDTree(distinct).query(distinct, k=2)[0][:, 1]))


def arrow(start: Array, end: Array, *, width: float, gaps: tuple[float, float], bend: float = 0.16) -> Array:
    """Outline of a curved arrow, shape (K, 2): from thin to thick, with a head, bending to the left.

    The centre line is the quadratic Bézier curve b(s) = (1−s)²p + 2s(1−s)c + s²q with c = (p+q)/2 + bend·R(q−p), R a quarter turn
    to the left; so the arrow from q to p runs beside the one from p to q and never on it.

    Parameters
    ----------
    start, end : arrays, shape (2,)
        p and q.
    width : float
        Of the shaft where it meets the head.
    gaps : two floats
        What is left free at the start and at the end; no more than a third of the length each.
    """
    along = end - start
    length = float(np.hypot(*along))
    control = (start + end) / 2 + bend * np.array([-along[1], along[0]])
    before, after = (min(gap, length / 3) for gap in gaps)
    head = min(2.0 * width, 0.5 * (length - before - after))
    first, last, neck = before / length, 1 - after / length, 1 - (after + head) / length
    s = np.linspace(first, neck, 12)[:, None]
    line = (1 - s) ** 2 * start + 2 * s * (1 - s) * control + s**2 * end
    slope = 2 * (1 - s) * (control - start) + 2 * s * (end - control)
    normal = np.stack([-slope[:, 1], slope[:, 0]], axis=1) / np.hypot(*slope.T)[:, None]
    half = (width / 2) * np.linspace(0.35, 1.0, 12)[:, None]
    tip = (1 - last) ** 2 * start + 2 * last * (1 - last) * control + last**2 * end
    wings = line[-1] + np.array([[1.0], [-1.0]]) * normal[-1] * (0.6 * head)
    return np.concatenate(
        [line + half * normal, wings[:1], tip[None], wings[1:], (line - half * normal)[::-1]]
    )
