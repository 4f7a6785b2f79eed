"""Where cells lie, the geometry of discs and arrows between them, and the ground under a map.

Maps are drawn where distances are nearly true: places in degrees are projected to km (`Projection`), plain coordinates stay as they are.
Coastlines and borders are Natural Earth's (1:50m, public domain), in ``assets/world.npz.xz``, which ``tools/world.py`` makes.
"""

from __future__ import annotations

import functools
import io
import lzma
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from headcount.plot.picture import label, require

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.collections import EllipseCollection
    from matplotlib.path import Path

    from headcount._types import Array

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

    def locate(self, table: pd.DataFrame) -> None:
        """Put x and y, as they were given, after the column ``cell``."""
        after = table.columns.get_loc("cell") + 1
        for k, (name, values) in enumerate(zip("xy", self.of(table["cell"].tolist()).T, strict=True)):
            table.insert(after + k, name, values)

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

    (x0, x1), (y0, y1) = axes.get_xlim(), axes.get_ylim()
    found = ground(projection, (x0, y0, x1, y1), detail=(x1 - x0) / 800)
    if found.land:
        land = outline(found.land)
        axes.add_patch(PathPatch(land, facecolor=LAND, edgecolor=COAST, linewidth=0.4, zorder=0.1))
    axes.add_collection(LineCollection(found.borders, colors=BORDER, linewidths=0.8, zorder=0.2))
    lines = graticule(projection, points)
    axes.add_collection(
        LineCollection([m.line for m in lines], colors=GRATICULE, linewidths=0.4, zorder=0.15)
    )
    axes.set_xticks(*_degree_ticks([m for m in lines if m.is_longitude], 1, y0, (x0, x1)))
    axes.set_yticks(*_degree_ticks([m for m in lines if not m.is_longitude], 0, x0, (y0, y1)))
    axes.tick_params(length=2)


def outline(rings: Iterable[Array]) -> Path:
    """Closed rings as one path; those that run the other way round are holes."""
    from matplotlib.path import Path

    return Path.make_compound_path(*(Path(np.vstack([r, r[:1]]), closed=True) for r in rings))


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


# --- the ground: a projection for degrees, coastlines and borders, and the lines of equal longitude and latitude

EARTH = 6371.0
"""Mean radius of the Earth, km."""
WIDEST_CAP = 75.0
"""Degrees from the centre up to which a map is azimuthal; beyond, shapes at its rim are too flat, and the whole world is shown."""
BEYOND = 2 * EARTH * np.sin(np.radians(70.0))
"""Distance on an azimuthal map, km, of what is 140° from its centre: rings that stay within it cannot hold the opposite point."""
SMALLEST_WITH_COAST = 40.0
"""Width of a map in km below which coastlines 1:50m (true to about 1 km) would show what is not there."""
_EQUAL_EARTH = (1.340264, -0.081106, 0.000893, 0.003796)
"""Coefficients A1 to A4 of Šavrič, Patterson and Jenny (2018), equations 7–10."""

Box = tuple[float, float, float, float]
"""Left, bottom, right and top of a part of the map, km."""


@dataclass(frozen=True)
class Projection:
    """Degrees to km on a map that keeps areas: Lambert's azimuthal around a centre, or Equal Earth for the whole world.

    With φ latitude, λ longitude from the centre's, φ₀ the centre's latitude and
    k = √(2/(1 + sin φ₀ sin φ + cos φ₀ cos φ cos λ)), Lambert's is

    x = R k cos φ sin λ,   y = R k (cos φ₀ sin φ − sin φ₀ cos φ cos λ).
    """

    lon: float
    lat: float
    whole: bool

    @classmethod
    def around(cls, points: Array) -> Projection:
        """The projection for places in degrees, shape (K, 2): centred among them, also across the date line."""
        angle = np.radians(points[:, 0])
        middle = np.degrees(np.arctan2(np.sin(angle).mean(), np.cos(angle).mean()))
        east = middle + _turn(points[:, 0] - middle)
        lon, lat = ((v.min() + v.max()) / 2 for v in (east, points[:, 1]))
        made = cls(float(_turn(lon)), float(lat), whole=False)
        radius = 2 * EARTH * np.sin(np.radians(WIDEST_CAP) / 2)
        far = bool((np.hypot(*made(points).T) > radius).any())
        return cls(made.lon, 0.0, whole=True) if far else made

    def __call__(self, points: Array) -> Array:
        """Kilometres of degrees, shape (K, 2)."""
        east, north = np.radians(_turn(points[:, 0] - self.lon)), np.radians(points[:, 1])
        return _equal_earth(east, north) if self.whole else self._azimuthal(east, north)

    def _azimuthal(self, east: Array, north: Array) -> Array:
        centre = np.radians(self.lat)
        forward = np.cos(north) * np.cos(east)
        toward = np.sin(centre) * np.sin(north) + np.cos(centre) * forward
        k = np.sqrt(2 / np.maximum(1 + toward, 1e-9))
        x = k * np.cos(north) * np.sin(east)
        y = k * (np.cos(centre) * np.sin(north) - np.sin(centre) * forward)
        return EARTH * np.stack([x, y], axis=1)


def _equal_earth(east: Array, north: Array) -> Array:
    a, b, c, d = _EQUAL_EARTH
    s = np.arcsin(np.sqrt(3) / 2 * np.sin(north))
    slope = 9 * d * s**8 + 7 * c * s**6 + 3 * b * s**2 + a
    x = 2 * np.sqrt(3) * east * np.cos(s) / (3 * slope)
    return EARTH * np.stack([x, d * s**9 + c * s**7 + b * s**3 + a * s], axis=1)


def _turn(degrees: Array | float) -> Array:
    """Degrees between −180 and 180."""
    return np.asarray((np.asarray(degrees) + 180.0) % 360.0 - 180.0)


class Ground(NamedTuple):
    """What lies in a part of a map: land as closed rings (lakes run the other way round), borders as lines; km, shape (K, 2) each."""

    land: list[Array]
    borders: list[Array]


def ground(projection: Projection, box: Box, *, detail: float) -> Ground:
    """Land and borders inside a box; points closer together than ``detail`` (km) are merged."""
    if min(box[2] - box[0], box[3] - box[1]) < SMALLEST_WITH_COAST:
        return Ground([], [])
    rings, lines = _world()
    cut = _whole if projection.whole else _cap
    land = (shape for ring in rings for shape in cut(ring, projection, box))
    borders = (part for line in lines for part in _inside(projection(line), box, projection.whole))
    return Ground(_thinned(land, detail, least=3), _thinned(borders, detail, least=2))


def lines_on(here: Places, lines: Iterable[Array], box: Box, *, detail: float) -> list[Array]:
    """Lines given as the cells' places are, as drawn: the parts inside a box, points closer together than ``detail`` merged."""
    whole = here.projection is not None and here.projection.whole
    return _thinned(
        (part for line in lines for part in _inside(here.project(line), box, whole)), detail, least=2
    )


@functools.cache
def _world() -> tuple[list[Array], list[Array]]:
    """Rings of land and lines of borders, in degrees."""
    packed = resources.files("headcount.plot").joinpath("assets", "world.npz.xz").read_bytes()
    with np.load(io.BytesIO(lzma.decompress(packed))) as held:
        steps = np.stack([held["x"], held["y"]], axis=1)
        arcs = [
            np.cumsum(part, axis=0) * float(held["unit"])
            for part in np.split(steps, np.cumsum(held["sizes"])[:-1])
        ]
        rings = np.split(held["rings"], np.cumsum(held["ring_sizes"])[:-1])
        borders = held["borders"]

    def line(k: int) -> Array:
        return arcs[k] if k >= 0 else arcs[~k][::-1]

    return [np.concatenate([line(k)[:-1] for k in ring.tolist()]) for ring in rings], [
        line(k) for k in borders.tolist()
    ]


def _cap(ring: Array, projection: Projection, box: Box) -> list[Array]:
    """A ring on an azimuthal map. One around the point opposite the centre is turned inside out: the box then makes up for it."""
    flat = projection(ring)
    low, high = flat.min(axis=0), flat.max(axis=0)
    if high[0] < box[0] or low[0] > box[2] or high[1] < box[1] or low[1] > box[3]:
        return []
    shapes = [_clipped(flat, box)]
    if bool((np.hypot(*flat.T) > BEYOND).any()):
        degrees = _unwrapped(ring, 0.0)
        have = _winding(flat, (0.0, 0.0))
        want = sum(_winding(degrees, (projection.lon + turn, projection.lat)) for turn in (-360, 0, 360))
        if have != want:
            corners = np.array([[box[0], box[1]], [box[2], box[1]], [box[2], box[3]], [box[0], box[3]]])
            shapes.append(corners[:: int(np.sign(want - have))])
    return [s for s in shapes if len(s)]


def _whole(ring: Array, projection: Projection, box: Box) -> list[Array]:
    """A ring on a map of the whole world, cut where the map ends."""
    degrees = _unwrapped(ring, projection.lon)
    shapes = []
    edge = (-179.999, -90.0, 179.999, 90.0)
    for turn in (-720, -360, 0, 360, 720):
        if degrees[:, 0].max() + turn < edge[0] or degrees[:, 0].min() + turn > edge[2]:
            continue
        part = _clipped(degrees + np.array([turn, 0.0]), edge)
        if len(part):
            shapes.append(_clipped(projection(part + np.array([projection.lon, 0.0])), box))
    return [s for s in shapes if len(s)]


def _unwrapped(ring: Array, origin: float) -> Array:
    """Degrees east of an origin without a jump at the date line, and degrees north; a ring around a pole reaches it."""
    east = np.degrees(np.unwrap(np.radians(ring[:, 0] - origin)))
    around = float(east[-1] + _turn(ring[0, 0] - ring[-1, 0]) - east[0])
    degrees = np.stack([east, ring[:, 1]], axis=1)
    return _by_the_pole(degrees, around) if abs(around) > 180 else degrees


def _by_the_pole(degrees: Array, around: float) -> Array:
    """A ring around a pole as a band that reaches it: the way back runs along the pole."""
    pole = np.copysign(90.0, degrees[:, 1].mean())
    start, end = degrees[0, 0], degrees[0, 0] + around
    back = np.linspace(end, start, 60)
    return np.concatenate([degrees, [[end, degrees[0, 1]]], np.stack([back, np.full(60, pole)], axis=1)])


def _winding(ring: Array, point: tuple[float, float]) -> int:
    """How often a ring runs round a point, counterclockwise."""
    angle = np.arctan2(ring[:, 1] - point[1], ring[:, 0] - point[0])
    turns = np.diff(angle, append=angle[:1])
    return round(float(np.sum((turns + np.pi) % (2 * np.pi) - np.pi)) / (2 * np.pi))


def _clipped(ring: Array, box: Box) -> Array:
    """Sutherland and Hodgman: the ring cut off at the four sides of a box, one after the other."""
    for axis, bound, sign in ((0, box[0], 1), (0, box[2], -1), (1, box[1], 1), (1, box[3], -1)):
        if not len(ring):
            break
        depth = sign * (ring[:, axis] - bound)
        inside = depth >= 0
        if inside.all():
            continue
        after, deep = np.roll(ring, -1, axis=0), np.roll(depth, -1)
        crosses = inside != (deep >= 0)
        share = np.where(crosses, depth / np.where(crosses, depth - deep, 1.0), 0.0)
        cut = ring + share[:, None] * (after - ring)
        both = np.stack([ring, cut], axis=1).reshape(-1, 2)
        ring = both[np.stack([inside, crosses], axis=1).ravel()]
    return ring


def _inside(line: Array, box: Box, whole: bool) -> list[Array]:
    """The parts of a line that lie in a box, one point beyond it at either end; torn where the map ends."""
    low, high = np.array(box[:2]), np.array(box[2:])
    near = ((line >= low) & (line <= high)).all(axis=1)
    if not near.any():
        return []
    kept = near | np.roll(near, 1) | np.roll(near, -1)
    torn = np.hypot(*np.diff(line, axis=0).T) > EARTH if whole else np.zeros(len(line) - 1, bool)
    breaks = np.flatnonzero((kept[1:] != kept[:-1]) | torn) + 1
    return [
        part
        for part, use in zip(np.split(line, breaks), np.split(kept, breaks), strict=True)
        if use[0] and len(part) > 1
    ]


def _thinned(lines: Iterable[Array], detail: float, *, least: int) -> list[Array]:
    """The lines on a grid of ``detail``, every point once; those with fewer than ``least`` points are left out."""
    made = []
    for line in lines:
        grid = np.rint(line / detail)
        new = np.ones(len(grid), bool)
        new[1:] = (grid[1:] != grid[:-1]).any(axis=1)
        made.append(grid[new] * detail)
    return [line for line in made if len(line) >= least]


class Meridian(NamedTuple):
    """A line of equal longitude or latitude: its name, whether it is a longitude, its points in km."""

    name: str
    is_longitude: bool
    line: Array


def graticule(projection: Projection, points: Array) -> list[Meridian]:
    """Lines of equal longitude and latitude around places in degrees: about five each way."""
    if projection.whole:
        spans = [(projection.lon - 179.9, projection.lon + 179.9), (-90.0, 90.0)]
    else:
        east = projection.lon + _turn(points[:, 0] - projection.lon)
        north = points[:, 1]
        wide = [max(float(np.ptp(v)), 0.5) for v in (east, north)]
        spans = [(float(v.min()) - w, float(v.max()) + w) for v, w in zip((east, north), wide, strict=True)]
        spans[1] = max(spans[1][0], -90.0), min(spans[1][1], 90.0)
    lines = []
    for axis, (low, high) in enumerate(spans):
        step = _step((high - low) / (9 if axis == 0 and not projection.whole else 7))
        across = np.linspace(*spans[1 - axis], 80)
        for value in np.arange(np.ceil(low / step) * step, high, step):
            fixed = np.full(80, value)
            line = np.stack([fixed, across] if axis == 0 else [across, fixed], axis=1)
            lines.append(
                Meridian(_degree(float(value), "EW" if axis == 0 else "NS"), axis == 0, projection(line))
            )
    return lines


def _step(span: float) -> float:
    """The smallest round number of degrees that is no less than a span."""
    steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 20, 30, 45, 60]
    return next((s for s in steps if s >= span), 60.0)


def _degree(value: float, sides: str) -> str:
    value = float(_turn(value)) if sides == "EW" else value
    side = "" if round(value, 6) in {0.0, -180.0} else sides[0] if value > 0 else sides[1]
    return f"{abs(value):.6g}°{side}"
