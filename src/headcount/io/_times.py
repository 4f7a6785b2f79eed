"""The times of a problem in order: numbers by size, dates by date, texts as they appear."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from headcount.io._columns import DECIMAL, INTEGER
from headcount.io._source import Findings, listed

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    import pandas as pd

_SLASHED = re.compile(r"^\d{1,4}[/.]\d{1,2}[/.]\d{1,4}( .*)?$")
_DATE = re.compile(r"^\d{4}-\d{2}(-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?)?$")
_GAPS = (
    "add rows with an empty count for {} which nobody looked, or say that they are successive steps all the same "
    "(uneven=True, --uneven)"
)
_EVEN_STEPS = 1e-3
"""Steps between decimal times may differ by this share of the smallest: thirds written with four decimals do by 3e-4."""


@dataclass(frozen=True)
class Times:
    """The times in order: their texts, and the labels that the model gets."""

    texts: tuple[str, ...]
    labels: tuple[Hashable, ...]


def order_times(texts: Iterable[str], name: str, *, uneven: bool, findings: Findings) -> Times | None:
    """Numbers by size, dates by date, other texts as they appear (noted); gaps are refused unless ``uneven``."""
    distinct = list(dict.fromkeys(texts))
    if all(DECIMAL.match(t) for t in distinct):
        return _numbers(distinct, name, uneven=uneven, findings=findings)
    if all(_DATE.match(t) for t in distinct):
        return _dates(distinct, name, uneven=uneven, findings=findings)
    slashed = [t for t in distinct if _SLASHED.match(t)]
    if slashed:
        text = "day and month cannot be told apart: write dates as 2024-05-31"
        findings.problem(name, text, values=slashed)
        return None
    findings.note(
        f"{name}: the times are neither numbers nor dates; taken in the order in which they appear: {listed(distinct, most=6)}"
    )
    return Times(tuple(distinct), tuple(distinct))


def _numbers(distinct: Sequence[str], name: str, *, uneven: bool, findings: Findings) -> Times:
    """Times that are numbers, whole or decimal, by size."""
    # Fractions, not floats: 0.3 − 0.2 and 0.2 − 0.1 differ in binary.
    values = sorted((Fraction(t), t) for t in distinct)
    steps = [after[0] - before[0] for before, after in pairwise(values)]
    least = min(steps, default=Fraction(1))
    texts = tuple(t for _, t in values)
    wide = next((k for k, step in enumerate(steps) if float(step - least) > _EVEN_STEPS * least), None)
    if wide is not None and not uneven:
        findings.problem(
            name,
            f"the times step by {float(least):.10g}, but {texts[wide]} is followed by {texts[wide + 1]}: {_GAPS.format('times at')}",
        )
    kind = int if all(map(INTEGER.match, distinct)) else float
    return Times(texts, tuple(map(kind, texts)))


def _dates(distinct: Sequence[str], name: str, *, uneven: bool, findings: Findings) -> Times | None:
    import pandas as pd

    stamps: dict[str, pd.Timestamp] = {}
    for t in distinct:
        try:
            stamps[t] = pd.Timestamp(t)
        except ValueError:
            findings.problem(name, "there is no such date: correct it", values=[t])
    if len(stamps) < len(distinct):
        return None
    texts = sorted(distinct, key=stamps.__getitem__)
    index = pd.DatetimeIndex([stamps[t] for t in texts])
    if len(set(index)) < len(index):
        findings.problem(name, "one date is written in two ways: write it in one")
        return None
    if not uneven and len(index) > 2 and not _regular(index):
        steps = np.diff(index.to_numpy())
        k = int(np.argmax(steps))
        text = f"the dates are not evenly spaced: {texts[k]} is followed by {texts[k + 1]}"
        findings.problem(name, f"{text}; {_GAPS.format('dates on')}")
    return Times(tuple(texts), tuple(index))


def _regular(index: pd.DatetimeIndex) -> bool:
    """Equal steps, or equal numbers of months on the same day or at the month's end."""
    steps = np.diff(index.to_numpy())
    if (steps == steps[0]).all():
        return True
    months = np.diff(12 * index.year.to_numpy() + index.month.to_numpy())
    same_day = len(set(index.day)) == 1 or bool(index.is_month_end.all())
    return months[0] > 0 and bool((months == months[0]).all()) and same_day and len(set(index.time)) == 1
