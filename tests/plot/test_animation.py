"""Animated maps."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from headcount.plot import animate
from headcount.plot._maps import _Scene
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


def test_mp4_has_every_frame(tmp_path: Path) -> None:
    """The film has the pictures of the GIF, in the codec that every browser plays, and nothing else is left in the folder."""
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    path = animate(chain(steps=3), tmp_path / "moves.mp4", frames=3, largest=5, speed=2.0)
    frames, _ = ffmpeg.count_frames_and_secs(str(path))
    assert frames == 2 * 3 + 1
    reader = ffmpeg.read_frames(str(path))
    about = next(reader)
    assert about["codec"] == "h264"
    assert about["pix_fmt"].startswith("yuv420p")
    assert about["fps"] == 6
    first, second = (
        np.frombuffer(picture, np.uint8).astype(float) for picture in (next(reader), next(reader))
    )
    reader.close()
    assert np.abs(second - first).max() > 20
    assert [p.name for p in tmp_path.iterdir()] == ["moves.mp4"]


def test_mp4_without_ffmpeg_says_what_to_install(tmp_path: Path, monkeypatch) -> None:
    """Without the extra nothing is written, and the message names it and the GIF that needs none."""
    from matplotlib.animation import FFMpegWriter

    monkeypatch.setattr(FFMpegWriter, "isAvailable", classmethod(lambda cls: False))
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ValueError, match=r"headcount\[video\].*\.gif"):
        animate(chain(steps=2), tmp_path / "moves.mp4")
    assert not list(tmp_path.iterdir())


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
