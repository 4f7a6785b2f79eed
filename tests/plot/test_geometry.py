"""Arrows and places: the geometry behind the maps."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.path import Path as Outline

from headcount.plot._frames import count_text, spread
from headcount.plot._places import arrow, nearest_distance, places
from headcount.plot._world import EARTH

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
    assert written == ["0", "< 0.01", "> −0.01", "3.14", "31.4", "314", "31\u2009416", "−2.50", "–"]
