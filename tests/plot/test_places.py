"""Places, arrows and the ground: a projection that keeps areas, land where there is land."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.path import Path as Outline

from headcount.plot import _places
from headcount.plot._places import EARTH, Projection, arrow, graticule, ground, nearest_distance, places
from headcount.plot.picture import count_text, spread

points = st.tuples(st.floats(-5, 5), st.floats(-5, 5)).map(np.array)


@given(points, points, st.floats(0, 2 * np.pi))
def test_arrows_turn_with_the_map(p: np.ndarray, q: np.ndarray, angle: float) -> None:
    """A turned pair of cells has the turned arrow: there is no preferred direction."""
    if np.hypot(*(q - p)) < 0.1:
        return
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    plain = arrow(p, q, width=0.1, gaps=(0.1, 0.1))
    turned = arrow(turn @ p, turn @ q, width=0.1, gaps=(0.1, 0.1))
    np.testing.assert_allclose(turned, plain @ turn.T, atol=1e-9)


def test_both_directions_are_seen() -> None:
    """The arrows of a pair lie on either side of the line between the cells."""
    p, q = np.array([0.0, 0.0]), np.array([1.0, 0.0])
    there, back = (arrow(a, b, width=0.05, gaps=(0.1, 0.1)) for a, b in ((p, q), (q, p)))
    assert not Outline(there).intersects_path(Outline(back), filled=True)
    assert there[:, 1].mean() > 0 > back[:, 1].mean()


def test_gaps_are_left_free() -> None:
    """No point of an arrow is nearer to its ends than about the gaps asked for."""
    p, q = np.array([0.0, 0.0]), np.array([2.0, 0.0])
    shape = arrow(p, q, width=0.04, gaps=(0.3, 0.5))
    assert np.hypot(*(shape - p).T).min() > 0.28
    assert np.hypot(*(shape - q).T).min() > 0.46


def test_degrees_shrink_with_latitude() -> None:
    """One degree of longitude at 60° is half a degree of latitude; plain coordinates are not stretched."""
    frame = pd.DataFrame({"cell": [0, 1], "lon": [0.0, 1.0], "lat": [60.0, 60.0]})
    here = places(frame)
    assert here.geographic
    np.testing.assert_allclose(here.spacing, 0.5 * np.pi / 180 * EARTH, rtol=1e-3)
    plain = places(frame.rename(columns={"lon": "x", "lat": "y"}))
    assert not plain.geographic
    np.testing.assert_allclose(plain.spacing, 1.0)


def test_spacing_of_a_single_place() -> None:
    """One cell, or several in one place, still has a scale."""
    assert nearest_distance(np.zeros((3, 2))) == 1.0


@given(st.integers(1, 60), st.integers(2, 20))
def test_spread_keeps_both_ends(size: int, most: int) -> None:
    """A spread of labels has the first and the last, in order, no more than asked for."""
    items = list(range(size))
    kept = spread(items, most)
    assert kept[0] == 0
    assert kept[-1] == size - 1
    assert len(kept) == min(size, most)
    assert kept == sorted(set(kept))


def test_counts_read_like_counts() -> None:
    """No false precision, no lost sign, no zero where there is something."""
    written = [count_text(v) for v in (0, 0.001, -0.001, 3.14159, 31.4159, 314.159, 31415.9, -2.5, np.nan)]
    assert written == ["0", "< 0.01", "> −0.01", "3.14", "31.4", "314", "31\u202f416", "−2.50", "–"]


# --- the ground under a map

CITIES = {"Madrid": (-3.7, 40.4), "Mendoza": (-68.8, -32.9), "Alice Springs": (133.9, -23.7)}
SEAS = {"Biscay": (-5.0, 45.5), "Caspian": (51.0, 42.0), "Bering": (-178.0, 58.0)}
"""Madrid and Mendoza lie opposite land, turned inside out; the Caspian is a hole; the date line runs through the Bering Sea."""


@given(st.floats(-180, 180), st.floats(-80, 80), st.floats(-180, 180), st.floats(-85, 85))
def test_areas_are_kept(lon: float, lat: float, east: float, north: float) -> None:
    """A small square of degrees has its area on the sphere, on both projections, wherever the map is centred."""
    size = 0.01
    square = np.array(
        [[east, north], [east + size, north], [east + size, north + size], [east, north + size]]
    )
    radians = np.radians(size)
    true = EARTH**2 * radians * (np.sin(np.radians(north + size)) - np.sin(np.radians(north)))
    for whole in (False, True):
        projection = Projection(lon, lat, whole)
        flat = projection(square)
        if np.hypot(*np.ptp(flat, axis=0)) > 100 or (not whole and np.hypot(*flat[0]) > 1.9 * EARTH):
            continue  # torn at the edge of the world, or at the point opposite the centre
        after = np.roll(flat, -1, axis=0)
        area = np.sum(flat[:, 0] * after[:, 1] - after[:, 0] * flat[:, 1]) / 2
        assert area == pytest.approx(true, rel=2e-2)


@pytest.mark.parametrize("name", [*CITIES, *SEAS])
@pytest.mark.parametrize("span", [4.0, 70.0, 170.0])
def test_cities_are_on_land_and_seas_are_not(name: str, span: float) -> None:
    """Whatever part of the world is shown, from a country to all of it, land covers cities and no sea."""
    lon, lat = (CITIES | SEAS)[name]
    corners = np.array(
        [[lon - span / 2, max(-60, lat - span / 4)], [lon + span / 2, min(70, lat + span / 4)], [lon, lat]]
    )
    projection = Projection.around(corners)
    assert projection.whole == (span > 100)
    flat = projection(corners)
    (x0, y0), (x1, y1) = flat.min(axis=0) - 100, flat.max(axis=0) + 100
    land = ground(projection, (x0, y0, x1, y1), detail=(x1 - x0) / 1000).land
    here = projection(np.array([[lon, lat]]))[0]
    assert (sum(Outline(ring).contains_point(here) for ring in land) % 2 == 1) == (name in CITIES)


def test_the_date_line_is_no_edge() -> None:
    """Places on either side of the date line are neighbours."""
    points = np.array([[178.0, -18.0], [-178.0, -17.0]])
    flat = Projection.around(points)(points)
    assert np.hypot(*(flat[1] - flat[0])) == pytest.approx(438, rel=0.02)


def test_small_maps_have_no_coast() -> None:
    """A map of one town shows no coastline 1:50m, which is true to about a kilometre only."""
    points = np.array([[-4.5, 48.35], [-4.4, 48.42]])
    assert ground(Projection.around(points), (-8, -8, 8, 8), detail=0.01).land == []


def test_meridians_are_named() -> None:
    """Lines of equal degrees around the data, east and west, north and south of Greenwich and the equator."""
    names = {
        m.name for m in graticule(Projection(0, 0, whole=False), np.array([[-20.0, -15.0], [20.0, 15.0]]))
    }
    assert {"0°", "15°W", "15°E", "15°N", "15°S"} <= names


def test_the_ground_is_small() -> None:
    """Land and borders of the whole world, which every installation carries, take less than 150 kB."""
    asset = Path(_places.__file__).parent / "assets" / "world.npz.xz"
    assert asset.stat().st_size <= 150_000
