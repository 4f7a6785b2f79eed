"""An animated map: between two times discs grow and shrink, and what moves is on its way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount._disk import replacing
from headcount.plot._frames import count_text, printed
from headcount.plot._maps import full_count
from headcount.plot._picture import BLUE, VERMILION, look, new_figure
from headcount.plot._places import discs, places

if TYPE_CHECKING:
    import os

    import pandas as pd
    from matplotlib.collections import EllipseCollection

    from headcount.plot._places import Places
    from headcount.posterior._result import Result

ENDINGS = (".gif", ".mp4")
SIZE = 6.0
"""Inches of the longer side; 110 dots per inch."""
BOW = 0.18
"""Distance of a path's middle from the straight line, as a share of twice its length: as on the page."""


def animate(
    result: Result,
    path: str | os.PathLike[str],
    *,
    largest: int = 60,
    frames: int = 8,
    speed: float = 1.0,
) -> Path:
    """Write an animated map as GIF, or as MP4 (which needs the extra ``video``).

    A disc's area is the expected count; a move travels from its origin to its destination as a disc on the same scale. Between two times
    counts are interpolated, which is a picture and no inference.

    Parameters
    ----------
    result
        With places.
    path
        Ends in ``.gif`` or ``.mp4``.
    largest
        Moves that are shown per step.
    frames
        Pictures per step.
    speed
        Steps per second.
    """
    target = Path(path)
    _check(result, target, largest, frames, speed)
    assert result.coordinates is not None
    here = places(result.coordinates, geographic=result.geographic)
    with look(), replacing(target) as temporary:
        writer = _writer(target.suffix.lower(), fps=max(1, round(frames * speed)))
        scene = _Scene(result, here, largest)
        made = temporary.with_name(temporary.name + target.suffix)  # its ending says the format
        try:
            with writer.saving(scene.figure, str(made), dpi=110):
                for step in range(len(result.times)):
                    for k in range(frames if step + 1 < len(result.times) else 1):
                        scene.draw(step, k / frames)
                        writer.grab_frame()
            made.replace(temporary)
        finally:
            made.unlink(missing_ok=True)
    return target


def _check(result: Result, path: Path, largest: int, frames: int, speed: float) -> None:
    wrong = []
    if not result.is_chain or result.coordinates is None:
        wrong.append(
            "an animated map needs times, cells and their places: give lon and lat (or x and y) of the cells"
        )
    if path.suffix.lower() not in ENDINGS:
        wrong.append(f"path ends in {path.suffix!r}; give {' or '.join(ENDINGS)}")
    counts = {"largest": largest, "frames": frames}
    wrong += [f"{name} must be at least 1, got {value}" for name, value in counts.items() if value < 1]
    if not speed > 0:
        wrong.append(f"speed must be above 0, got {speed}")
    if wrong:
        raise ValueError("; ".join(wrong))


def _writer(ending: str, *, fps: int) -> Any:
    from matplotlib import animation

    if ending == ".gif":
        return animation.PillowWriter(fps=fps)
    if not animation.FFMpegWriter.isAvailable():
        import matplotlib as mpl

        try:
            from imageio_ffmpeg import get_ffmpeg_exe
        except ImportError:
            raise ValueError("MP4 needs ffmpeg: pip install 'headcount[video]', or write a .gif") from None
        mpl.rcParams["animation.ffmpeg_path"] = get_ffmpeg_exe()
    return animation.FFMpegWriter(fps=fps, extra_args=["-pix_fmt", "yuv420p"])


class _Scene:
    """The figure of an animation, and what changes in it from frame to frame."""

    def __init__(self, result: Result, here: Places, largest: int) -> None:
        x0, y0, x1, y1 = here.box()
        wide = (x1 - x0) / (y1 - y0)
        self.figure = new_figure(SIZE * min(1.0, wide), SIZE * min(1.0, 1 / wide) + 0.4)
        self.axes = self.figure.subplots()
        here.prepare(self.axes)
        self.title = self.axes.set_title(" ", loc="left")
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine(
            "none"
        )  # what fits the first frame fits all, and need not be found again
        self.result, self.here = result, here
        self.points = here.on_map(result.cells)
        shape = len(result.times), len(result.cells)
        self.means = result.nodes["mean"].to_numpy(dtype=float).reshape(shape).clip(0)
        most = max(float(self.means.max()), 1e-9)
        self.scale = here.spacing * min(0.45 / np.sqrt(full_count(self.means.ravel())), 1 / np.sqrt(most))
        self.moves = [self._largest(time, largest) for time in result.times[:-1]]
        self.drawn: list[EllipseCollection] = []

    def _largest(self, time: Any, count: int) -> pd.DataFrame:
        flows = self.result.flows
        rows = flows[(flows["time"] == time) & (flows["origin"] != flows["dest"]) & (flows["mean"] > 0)]
        return rows.nlargest(count, "mean")

    def draw(self, step: int, share: float) -> None:
        """The state a share of the way from a time to the next."""
        for old in self.drawn:
            old.remove()
        smooth = share * share * (3 - 2 * share)
        after = self.means[min(step + 1, len(self.means) - 1)]
        now = (1 - smooth) * self.means[step] + smooth * after
        style: dict[str, Any] = {"alpha": 0.85, "linewidths": 0}
        self.drawn = [discs(self.axes, self.points, self.scale * np.sqrt(now), color=BLUE, zorder=3, **style)]
        moved = ""
        if step < len(self.moves):
            moves = self.moves[step]
            start, end = (self.here.on_map(moves[name].tolist()) for name in ("origin", "dest"))
            along = end - start
            bow = BOW * np.stack([-along[:, 1], along[:, 0]], axis=1)
            spots = start + smooth * along + 2 * smooth * (1 - smooth) * bow
            radius = self.scale * np.sqrt(moves["mean"].to_numpy()) * (share > 0)
            self.drawn.append(discs(self.axes, spots, radius, color=VERMILION, zorder=4, **style))
            moved = f": the {len(moves)} largest moves, {count_text(float(moves['mean'].sum()))} individuals"
        word = "" if hasattr(self.result.times[0], "strftime") else "time "
        self.title.set_text(f"{word}{printed(self.result.times[step])}{moved}")
