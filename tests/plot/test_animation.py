"""Animated maps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from headcount.plot import animate
from headcount.plot._animation import _Scene
from headcount.plot._places import places
from sample_results import chain


def test_gif_has_every_frame(tmp_path: Path) -> None:
    """So many pictures per step, and the last time; what moves makes them differ."""
    path = animate(chain(steps=3), tmp_path / "moves.gif", frames=3, largest=5)
    with Image.open(path) as image:
        assert image.n_frames == 2 * 3 + 1
        first = np.asarray(image.convert("L"), dtype=float)
        image.seek(1)
        assert np.abs(np.asarray(image.convert("L"), dtype=float) - first).max() > 20
    assert [p.name for p in tmp_path.iterdir()] == ["moves.gif"]


def test_moves_start_at_their_origin_and_end_at_their_destination() -> None:
    """At the beginning of a step a move is at its origin, at the end at its destination; discs are what the counts say."""
    result = chain(steps=3)
    scene = _Scene(result, places(result.coordinates), 4)
    largest = scene.moves[0]
    for share, end in ((1e-9, "origin"), (1 - 1e-9, "dest")):
        scene.draw(0, share)
        spots = scene.drawn[1].get_offsets()
        np.testing.assert_allclose(spots, scene.here.on_map(largest[end].tolist()), atol=1e-6)
    scene.draw(1, 0.0)
    radii = np.asarray(scene.drawn[0].get_widths()) / 2
    expected = result.nodes.query("time == 1")["mean"]
    np.testing.assert_allclose(radii**2 / radii.max() ** 2, expected / expected.max())


def test_wrong_requests_are_refused_at_once() -> None:
    """Endings, numbers and results without places: all said together."""
    with pytest.raises(ValueError, match=r"places.*'\.avi'.*largest.*speed"):
        animate(chain(places=False), "moves.avi", largest=0, speed=0)
