"""Where cells lie, and the geometry of discs and arrows between them.

Maps are drawn where distances are nearly true: places in degrees are projected to km (`Projection`), plain coordinates stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.plot._frames import label, require
from headcount.plot._world import Projection, graticule, ground

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.collections import EllipseCollection

    from headcount._types import Array
    from headcount.plot._world import Meridian

LAND, COAST, BORDER = "#efefec", "#c4c4c0", "#ffffff"
GRATICULE = "#dfe5ea"


@dataclass(frozen=True, eq=False)
class Places:
    """Cells on a map.

    Attributes
    ----------
    index : dict
        Row of every cell.
    points : array, shape (L, 2)
        x and y, or longitude and latitude.
    flat : array, shape (L, 2)
        Where they are drawn: km on the projection of degrees, or the points themselves.
    spacing : float
        The median distance from a cell to its nearest neighbour: the scale of discs and arrows.
    projection : Projection or None
        None for plain coordinates.
    """

    index: dict[Hashable, int]
    points: Array
    flat: Array
    spacing: float
    projection: Projection | None

    @property
    def geographic(self) -> bool:
        """Whether the points are degrees."""
        return self.projection is not None

    def rows(self, cells: Sequence[Hashable]) -> list[int]:
        """Row of every cell; one without a place is refused."""
        unknown = [cell for cell in dict.fromkeys(cells) if cell not in self.index]
        if unknown:
            shown = ", ".join(map(label, unknown[:5]))
            message = (
                f"coordinates lack {len(unknown)} cells of the frame ({shown}); give x and y for every cell"
            )
            raise ValueError(message)
        return [self.index[cell] for cell in cells]

    def of(self, cells: Sequence[Hashable]) -> Array:
        """Points of the cells as they were given, shape (K, 2)."""
        return self.points[self.rows(cells)]

    def on_map(self, cells: Sequence[Hashable]) -> Array:
        """Points of the cells as they are drawn, shape (K, 2)."""
        return self.flat[self.rows(cells)]

    def project(self, points: Array) -> Array:
        """Any points, given as the cells' are, as they are drawn."""
        return points if self.projection is None else self.projection(points)

    def box(self, margin: float = 0.0) -> tuple[float, float, float, float]:
        """What a map shows: the cells and a margin of most of a spacing, or more if asked; a line of cells gets some breadth."""
        low, high = self.flat.min(axis=0), self.flat.max(axis=0)
        edge = max(0.75 * self.spacing, 1.03 * margin)
        lacking = np.maximum(0.0, 0.35 * (high - low).max() - (high - low)) / 2
        (x0, y0), (x1, y1) = low - edge - lacking, high + edge + lacking
        return float(x0), float(y0), float(x1), float(y1)

    def prepare(self, axes: Axes, *, margin: float = 0.0) -> None:
        """Equal scales, a margin, and what tells where it is: coastlines and degrees, or names and units on the axes."""
        x0, y0, x1, y1 = self.box(margin)
        axes.set_xlim(x0, x1)
        axes.set_ylim(y0, y1)
        axes.set_aspect(1.0)
        if self.projection is not None:
            _draw_ground(axes, self.projection, self.points)
            return
        axes.locator_params(nbins=5, integer=bool((self.points % 1 == 0).all()))
        axes.set_xlabel("x (map units)")
        axes.set_ylabel("y (map units)")


def _draw_ground(axes: Axes, projection: Projection, points: Array) -> None:
    """Land, borders, and meridians named where they meet the left and the lower side."""
    from matplotlib.collections import LineCollection
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    (x0, x1), (y0, y1) = axes.get_xlim(), axes.get_ylim()
    found = ground(projection, (x0, y0, x1, y1), detail=(x1 - x0) / 800)
    if found.land:
        outline = Path.make_compound_path(*[Path(np.vstack([r, r[:1]]), closed=True) for r in found.land])
        axes.add_patch(PathPatch(outline, facecolor=LAND, edgecolor=COAST, linewidth=0.4, zorder=0.1))
    axes.add_collection(LineCollection(found.borders, colors=BORDER, linewidths=0.8, zorder=0.2))
    lines = graticule(projection, points)
    axes.add_collection(
        LineCollection([m.line for m in lines], colors=GRATICULE, linewidths=0.4, zorder=0.15)
    )
    axes.set_xticks(*_degree_ticks([m for m in lines if m.is_longitude], 1, y0, (x0, x1)))
    axes.set_yticks(*_degree_ticks([m for m in lines if not m.is_longitude], 0, x0, (y0, y1)))
    axes.tick_params(length=2)


def _degree_ticks(
    lines: Sequence[Meridian], axis: int, side: float, ends: tuple[float, float]
) -> tuple[list[float], list[str]]:
    """At most four places at which lines of equal degree meet a side of the map, and their names."""
    meets = [(_meeting(m.line, axis, side), m.name) for m in lines]
    kept = [(at, name) for at, name in meets if at is not None and ends[0] <= at <= ends[1]]
    kept = kept[:: max(1, -(-len(kept) // 4))]
    return [at for at, _ in kept], [name for _, name in kept]


def _meeting(line: Array, axis: int, side: float) -> float | None:
    """Where a line first crosses a side of the map: the other coordinate there."""
    depth = line[:, axis] - side
    crosses = np.flatnonzero(depth[1:] * depth[:-1] <= 0)
    if not len(crosses):
        return None
    k = crosses[0]
    share = depth[k] / (depth[k] - depth[k + 1]) if depth[k] != depth[k + 1] else 0.0
    return float(line[k, 1 - axis] + share * (line[k + 1, 1 - axis] - line[k, 1 - axis]))


def discs(axes: Axes, points: Array, radius: Array, **style: Any) -> EllipseCollection:
    """Circles of the given radii in map units (NaN: none), drawn at the points."""
    from matplotlib.collections import EllipseCollection

    size = 2 * np.where(np.isfinite(radius), radius, 0.0)
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
    if geographic is None:
        geographic = degrees or coordinates.attrs.get("names") == ("lon", "lat")
    points = coordinates[list(names)].to_numpy(dtype=float)
    cells = coordinates["cell"].tolist()
    _check(cells, points)
    projection = Projection.around(points) if geographic else None
    flat = points if projection is None else projection(points)
    return Places({c: k for k, c in enumerate(cells)}, points, flat, nearest_distance(flat), projection)


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
