"""The ground under a map: a projection for degrees, coastlines and borders, and the lines of equal longitude and latitude.

Coastlines and borders are Natural Earth's (1:50m, public domain), in ``assets/world.npz.xz``, which ``tools/world.py`` makes.
"""

from __future__ import annotations

import functools
import io
import lzma
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headcount._types import Array

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
