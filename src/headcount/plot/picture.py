"""A picture: the figure, and the numbers that were drawn. Also the style that all pictures share, and what they ask of a frame."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headcount._disk import replacing
from headcount.dates import readable
from headcount.labels import meant
from headcount.plot.words import trust
from headcount.posterior import Posterior, StoredPosterior
from headcount.posterior.interval import tails
from headcount.posterior.result import Result

if TYPE_CHECKING:
    import os

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headcount.plot.words import Trust

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


def single(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of the given size in inches with one pair of axes."""
    figure = new_figure(width, height)
    return figure, figure.subplots()


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


# --- what pictures ask of a frame: its columns, the level of its intervals, labels fit to print, a choice of rows

Drawn = Callable[..., "Picture"]


def require(frame: pd.DataFrame, columns: Iterable[str], *, name: str) -> None:
    """Refuse a frame that lacks a column, or that has no rows to draw."""
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        message = (
            f"{name} lacks the columns {', '.join(missing)}; it has {', '.join(map(str, frame.columns))}. "
            f"Give the frame that Result.{name} or Posterior.to_frame makes, or rename yours"
        )
        raise ValueError(message)
    if frame.empty:
        message = f"{name} has no rows, so there is nothing to draw"
        raise ValueError(message)


def with_residual(check: pd.DataFrame, column: str) -> pd.DataFrame:
    """The counts of a check of fit that have a residual and a label."""
    rows = check[(check["sd"] > 0) & check[column].notna()]
    if rows.empty:
        raise ValueError("no count has a residual, so there is nothing to draw")
    return rows


def level_of(frame: pd.DataFrame, level: float | None) -> float:
    """The level of the intervals: as given, or as the frame itself says; an interval without one is refused."""
    found = frame.attrs.get("level") if level is None else level
    if found is None:
        message = "the frame does not say what its intervals hold; give level=0.9 (or what it is)"
        raise ValueError(message)
    tails(found)  # refused where it is no probability
    return float(found)


def percent(level: float) -> str:
    """``0.9`` ↦ ``90 %``, with as many digits as it has."""
    return f"{100 * level:.6g} %"


_SYMBOLS = {k: 0x2400 + k for k in range(32) if chr(k) not in "\t\n"} | {0x7F: 0x2421}
_SYMBOLS |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
"""Control characters, such as a terminal's escape, and the symbols that stand for them; tabs and ends of lines stay."""


def visible(text: str) -> str:
    """The text with a symbol for every control character."""
    return text.translate(_SYMBOLS)


def label(value: Any) -> str:
    """A label as people write it: midnight is a date, a whole float a whole number, a control character its symbol."""
    whole = isinstance(value, float) and value.is_integer()
    return visible(str(int(value)) if whole else readable(value))


def printed(value: Any) -> str:
    """A label as matplotlib prints it as it stands: a dollar sign does not begin mathematics."""
    return label(value).replace("$", r"\$")


def spread(items: Sequence[Hashable], most: int) -> list[Hashable]:
    """At most `most` of the items, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[k] for k in np.unique(np.linspace(0, len(items) - 1, most).round().astype(int))]


def chosen(
    asked: Iterable[Hashable] | None, known: Sequence[Hashable], *, what: str, most: int
) -> list[Hashable]:
    """The labels asked for, each of which must be known; if none were asked for, a spread of all."""
    if asked is None:
        return spread(known, most)
    asked = list(asked)
    unknown = [item for item in asked if item not in known]
    if unknown or not asked:
        message = (
            f"{what} must name some of those in the frame, got {unknown or asked!r}; "
            f"it has {', '.join(map(label, spread(known, 8)))}"
        )
        raise ValueError(message)
    return asked


def count_text(value: float) -> str:
    """A count as a person reads it: three digits, no false precision, thousands apart."""
    if not np.isfinite(value):
        return "–"
    if 0 < abs(value) < 0.01:
        return "< 0.01" if value > 0 else "> −0.01"
    digits = 0 if float(value).is_integer() else 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:,.{digits}f}".replace(",", "\u202f").replace("-", "−")


def result_of(source: Any) -> Result | None:
    """The tables behind a posterior or a result; None for a frame."""
    if isinstance(source, Posterior):
        return Result.of(source)
    if isinstance(source, StoredPosterior):
        return source.result
    return source if isinstance(source, Result) else None


def _doubted(result: Result, part: str, told: Trust) -> Any:
    """One of a result's tables; ``attrs["doubt"]`` says why no range of it can be relied on, where that is so."""
    table = getattr(result, part)
    if part not in {"nodes", "flows"} or told.of(part) is None:
        return table
    marked = table.copy(deep=False)
    marked.attrs = {**table.attrs, "doubt": told.of(part)}
    return marked


def takes_results(*parts: str) -> Callable[[Drawn], Drawn]:
    """Let the first argument of a picture also be a Posterior or a Result, in place of the frames named by ``parts``."""

    def decorate(draw: Drawn) -> Drawn:
        options = inspect.signature(draw).parameters

        @wraps(draw)
        def drawn(*frames: Any, **given: Any) -> Picture:
            result = result_of(frames[0]) if frames else None
            if result is None:
                return draw(*frames, **given)
            if "geographic" in options and given.get("geographic") is None:
                given["geographic"] = result.geographic
            if given.get("time") is not None:
                given["time"] = meant(given["time"], result.times)
            told = trust(result)
            made = draw(*(_doubted(result, part, told) for part in parts), *frames[1:], **given)
            if told.warning and {"nodes", "flows"} & set(parts):
                made.figure.supxlabel(
                    told.warning, fontsize=8, color=VERMILION
                )  # it travels with the picture
            return made

        return drawn

    return decorate
