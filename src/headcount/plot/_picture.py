"""A picture: the figure, and the numbers that were drawn. Also the style that all pictures share."""

from __future__ import annotations

import io
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount._disk import replacing

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart with any kind of colour vision.
BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, BLACK = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#56B4E9",
    "#CC79A7",
    "#333333",
)
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION)
GREY, FAINT = "#6b6b6b", "#d9d9d9"
COUNTS = "viridis"
"""Colour map of counts: more is brighter, in greys too."""
DIVERGING = "PuOr"
"""Colour map of gains and losses: orange loses, purple gains."""

_LOOK: Any = {
    "font.family": "sans-serif",
    "font.size": 10.0,
    "axes.titlesize": 10.0,
    "axes.labelsize": 10.0,
    "figure.titlesize": 12.0,
    "legend.fontsize": 9.0,
    "legend.frameon": False,
    "xtick.labelsize": 9.0,
    "ytick.labelsize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": BLACK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": BLACK,
    "ytick.labelcolor": BLACK,
    "text.color": BLACK,
    "axes.grid": False,
    "grid.color": "#ececec",
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "figure.dpi": 110.0,
    "svg.hashsalt": "headcount",
}


@dataclass(frozen=True, eq=False)
class Picture:
    """What was drawn.

    Attributes
    ----------
    figure : matplotlib.figure.Figure
        Belongs to no window and to no global state; show it in a notebook, or `save` it.
    numbers : pandas.DataFrame
        One row per mark, in the units of the axes: what a test, or a reader who cannot see it, reads instead.
    """

    figure: Figure = field(repr=False)
    numbers: pd.DataFrame

    def save(self, path: str | os.PathLike[str], *, dpi: float = 150.0) -> Path:
        """Write it as PNG, SVG or PDF, as the ending of `path` says; whole or not at all."""
        target = Path(path)
        kind = target.suffix.lstrip(".").lower()
        known = self.figure.canvas.get_supported_filetypes()
        if kind not in known:
            message = (
                f"path ends in {target.suffix!r}; give one of {', '.join('.' + k for k in sorted(known))}"
            )
            raise ValueError(message)
        # No date inside: the same numbers give the same bytes.
        undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
        with look(), replacing(target) as temporary:
            self.figure.savefig(temporary, format=kind, dpi=dpi, metadata=undated)
        return target

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        with look():
            self.figure.savefig(buffer, format="png")
        return buffer.getvalue()


@contextmanager
def look() -> Iterator[None]:
    """Draw in the pictures' common style; the caller's own settings of matplotlib come back afterwards."""
    import matplotlib as mpl

    with mpl.rc_context(_LOOK):
        yield


def new_figure(width: float, height: float) -> Figure:
    """A figure that belongs to no window: no `pyplot`, so nothing to close and no screen needed."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def colour_bar(figure: Figure, drawn: Any, axes: Any, text: str, **options: Any) -> None:
    """The scale of a colour map beside one or several axes."""
    bar = figure.colorbar(drawn, ax=axes, **({"shrink": 0.7, "pad": 0.02} | options))
    bar.set_label(text)
    bar.outline.set_visible(False)


def panels(
    count: int, *, columns: int, width: float, height: float, **sharing: Any
) -> tuple[Figure, list[Axes]]:
    """A grid of `count` panels, each of the given size in inches; places left over are blank."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = new_figure(columns * width, rows * height)
    grid = figure.subplots(rows, columns, squeeze=False, **sharing).ravel()
    for axes in grid[count:]:
        axes.set_axis_off()
    return figure, list(grid[:count])
