"""Texts into numbers and labels: what is neither is reported with its row."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from numpy.typing import NDArray

    from headcount.io._errors import Findings
    from headcount.io._source import Source

    Array = NDArray[np.float64]
    Texts = NDArray[np.object_]

MISSING = frozenset({"", "na", "nan", "n/a", "null", "none", "."})
_SLASHED = re.compile(r"^\d{1,4}[/.]\d{1,2}[/.]\d{1,4}( .*)?$")
_INTEGER = re.compile(r"^(0|-?[1-9]\d{0,17})$")
_MIDNIGHT = re.compile(r"^(\d{4}-\d{2}-\d{2})[T ]00:00(?::00(?:\.0+)?)?$")
_DATE = re.compile(r"^\d{4}-\d{2}(-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?)?$")


def read_numbers(source: Source, column: str, role: str, *, required: bool, findings: Findings) -> Array:
    """A column as floats, NaN where nothing is written (a problem where a number is required)."""
    import pandas as pd

    series = source.frame[column]
    if pd.api.types.is_numeric_dtype(series) and not pd.api.types.is_bool_dtype(series):
        values = series.to_numpy(dtype=float, na_value=np.nan)
        missing = np.isnan(values)
        wrong = np.zeros(len(values), dtype=bool)
    else:
        texts = series.astype(object).where(series.notna(), "").astype(str).str.strip()
        missing = texts.str.casefold().isin(MISSING).to_numpy(dtype=bool)
        values = np.asarray(pd.to_numeric(texts.where(~missing, "nan"), errors="coerce"), dtype=float)
        wrong = np.isnan(values) & ~missing
    if wrong.any():
        text = f"{role} must be a number: correct it (decimals with a point, no thousands separators)"
        findings.problem(source.name, text, source.at(wrong), series[wrong].tolist())
    infinite = np.isinf(values)
    if infinite.any():
        findings.problem(
            source.name, f"{role} must be finite: correct it", source.at(infinite), series[infinite].tolist()
        )
    if required and missing.any():
        findings.problem(
            source.name, f"{role} is empty: write a number, or take the row out", source.at(missing)
        )
    return values


def read_labels(source: Source, column: str, role: str, *, findings: Findings) -> Texts:
    """A column as texts, stripped; whole floats and dates as people write them."""
    import pandas as pd

    codes, distinct = pd.factorize(source.frame[column])
    known = np.array([*(label_text(v) for v in distinct.tolist()), ""], dtype=object)
    texts = known[codes]  # a missing value has the code −1, the last one
    empty = texts == ""
    if empty.any():
        findings.problem(source.name, f"{role} is empty: name it, or take the row out", source.at(empty))
    return texts


def label_text(value: Any) -> str:
    """The text of one label, the same for 3, 3.0 and "3", and for a date in any form."""
    if isinstance(value, str):
        text = value.strip()
        midnight = _MIDNIGHT.match(text)
        return text if midnight is None else midnight[1]
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, dt.datetime):  # a pandas time stamp is one
        if value != value:  # NaT
            return ""
        whole = value.tzinfo is None and value.time() == dt.time(0)
        return value.date().isoformat() if whole else value.isoformat()
    return str(value).strip()


def plain_labels(texts: Sequence[str]) -> list[Hashable]:
    """Labels as numbers when all are whole numbers written plainly ("7", never "007"), as texts otherwise."""
    return [int(t) for t in texts] if all(_INTEGER.match(t) for t in texts) else list(texts)


def ordered(texts: Iterable[str]) -> list[str]:
    """Distinct labels: whole numbers by size, texts in the order in which they appear."""
    distinct = list(dict.fromkeys(texts))
    return sorted(distinct, key=int) if all(_INTEGER.match(t) for t in distinct) else distinct


@dataclass(frozen=True)
class Times:
    """The times in order: their texts, and the labels that the model gets."""

    texts: tuple[str, ...]
    labels: tuple[Hashable, ...]


def order_times(texts: Iterable[str], name: str, *, uneven: bool, findings: Findings) -> Times | None:
    """Numbers by size, dates by date, other texts as they appear (noted); gaps are refused unless ``uneven``."""
    distinct = list(dict.fromkeys(texts))
    if all(_INTEGER.match(t) for t in distinct):
        values = sorted(int(t) for t in distinct)
        if not uneven:
            _refuse_gaps(values, name, findings)
        return Times(tuple(str(v) for v in values), tuple(values))
    if all(_DATE.match(t) for t in distinct):
        return _dates(distinct, name, uneven=uneven, findings=findings)
    slashed = [t for t in distinct if _SLASHED.match(t)]
    if slashed:
        text = "day and month cannot be told apart: write dates as 2024-05-31"
        findings.problem(name, text, values=slashed)
        return None
    shown = ", ".join(distinct[:6]) + (", …" if len(distinct) > 6 else "")
    findings.note(
        f"{name}: the times are neither numbers nor dates; taken in the order in which they appear: {shown}"
    )
    return Times(tuple(distinct), tuple(distinct))


def _refuse_gaps(values: Sequence[int], name: str, findings: Findings) -> None:
    steps = np.diff(values)
    if len(steps) and (steps != steps.min()).any():
        k = int(np.argmax(steps != steps.min()))
        text = (
            f"the times step by {int(steps.min())}, but {values[k]} is followed by {values[k + 1]}: add rows with an empty count "
            "for times at which nobody looked, or say that they are successive steps all the same (uneven=True, --uneven)"
        )
        findings.problem(name, text)


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
        text = (
            f"the dates are not evenly spaced: {texts[k]} is followed by {texts[k + 1]}; add rows with an empty count for dates on "
            "which nobody looked, or say that they are successive steps all the same (uneven=True, --uneven)"
        )
        findings.problem(name, text)
    return Times(tuple(texts), tuple(index))


def _regular(index: Any) -> bool:
    """Equal steps, or equal numbers of months on the same day or at the month's end."""
    steps = np.diff(index.to_numpy())
    if (steps == steps[0]).all():
        return True
    months = np.diff(12 * index.year.to_numpy() + index.month.to_numpy())
    same_day = len(set(index.day)) == 1 or bool(index.is_month_end.all())
    return months[0] > 0 and bool((months == months[0]).all()) and same_day and len(set(index.time)) == 1
