"""What the pictures ask of a frame: its columns, the level of its intervals, labels fit to print, a choice of rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.labels import meant, readable
from headcount.posterior import Posterior
from headcount.posterior._result import Result
from headcount.posterior._stored import StoredPosterior

if TYPE_CHECKING:
    import pandas as pd

    from headcount.plot._picture import Picture

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


def level_of(frame: pd.DataFrame, level: float | None) -> float:
    """The level of the intervals: as given, or as the frame itself says; an interval without one is refused."""
    found = frame.attrs.get("level") if level is None else level
    if found is None:
        message = "the frame does not say what its intervals hold; give level=0.9 (or what it is)"
        raise ValueError(message)
    if not 0 < found < 1:
        message = f"level must lie between 0 and 1, got {found!r}"
        raise ValueError(message)
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
    return f"{value:,.{digits}f}".replace(",", "\u2009").replace("-", "−")


def result_of(source: Any) -> Result | None:
    """The tables behind a posterior or a result; None for a frame."""
    if isinstance(source, Posterior):
        return Result.of(source)
    if isinstance(source, StoredPosterior):
        return source.result
    return source if isinstance(source, Result) else None


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
            return draw(*(getattr(result, part) for part in parts), *frames[1:], **given)

        return drawn

    return decorate
