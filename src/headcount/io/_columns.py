"""Which column is which, and its values: the column names people already have, numbers, labels.

What is neither a number nor a label is reported with its row.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.io._source import Findings, Source, open_source

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from headcount._types import Array, Texts


SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "time": ("time", "date", "datetime", "timestamp", "t", "step", "hour", "day", "week", "month", "year"),
    "cell": (
        "cell",
        "zone",
        "site",
        "region",
        "location",
        "area",
        "tile",
        "tile_id",
        "cell_id",
        "zone_id",
        "state",
    ),
    "count": ("count", "counts", "observed", "total", "n", "value"),
    "flow": ("count", "flow", "flows", "counts", "trips", "n", "value"),
    "from": ("from", "origin", "source", "origin_id", "i"),
    "to": ("to", "dest", "destination", "target", "dest_id", "destination_id", "j"),
    "probability": ("probability", "prob", "p", "share", "transition"),
    "x": ("x", "column", "easting"),
    "y": ("y", "row", "northing"),
    "lon": ("lon", "longitude", "lng", "long"),
    "lat": ("lat", "latitude"),
}
"""Role → spellings in order of preference; read without regard to case."""
MISSING = frozenset({"", "na", "nan", "n/a", "null", "none", "."})
"""Texts that stand for "no number here", without regard to case."""
INTEGER = re.compile(r"^(0|-?[1-9]\d{0,17})$")
DECIMAL = re.compile(r"^-?(0|[1-9]\d{0,14})(\.\d{1,15})?$")
_MIDNIGHT = re.compile(r"^(\d{4}-\d{2}-\d{2})[T ]00:00(?::00(?:\.0+)?)?$")


@dataclass(frozen=True)
class Reader:
    """How the tables of one problem are read: the caller's names for columns, the encoding, and where faults are collected."""

    findings: Findings
    columns: Mapping[str, str] | None = None
    encoding: str | None = None

    def open(self, given: Any) -> Source | None:
        """The table that `given` names or is; None, with the reason among the findings, if it cannot be read."""
        source = self.findings.attempt(open_source, given, self.encoding)
        return None if source is None else replace(source, findings=self.findings)

    def read(self, given: Any, required: Sequence[str], optional: Sequence[str] = ()) -> Source | None:
        """The table with the column of each role."""
        source = self.open(given)
        return None if source is None else self.find(source, required, optional)

    def find(self, source: Source, required: Sequence[str], optional: Sequence[str] = ()) -> Source | None:
        """The table with the column of each role; None, with everything that is missing among the findings.

        Parameters
        ----------
        required, optional
            Roles; those without spellings of their own are looked for by their name. What the caller says in ``columns`` wins over
            every spelling.
        """
        given = dict(self.columns or {})
        names = [str(c) for c in source.frame.columns]
        found: dict[str, str] = {}
        for role in (*required, *optional):
            if role in given:
                column = given[role] if given[role] in names else None
                fault = f"there is no column {given[role]!r} for {role}: it has {_list(names)}"
            else:
                taken = set(found.values()) | set(given.values())
                column, fault = _by_spelling(role, names, taken, ambiguous=role not in required)
            if column is not None:
                found[role] = column
            elif role in required:
                source.problem(fault, [1])
        return replace(source, columns=found) if found.keys() >= set(required) else None


def _by_spelling(
    role: str, names: Sequence[str], taken: set[str], *, ambiguous: bool
) -> tuple[str | None, str]:
    """The column that a role's spellings name, or None and why; `ambiguous` takes the first of several."""
    free = [name for name in names if name not in taken]
    folded = {name.casefold(): name for name in reversed(free)}
    options = [folded[s] for s in SPELLINGS.get(role, (role,)) if s in folded]
    if not options:
        return None, _missing(role, names, free)
    if len(options) == 1 or role in folded or ambiguous:
        return folded.get(role, options[0]), ""
    text = f"{_list(options)} could each be the column for {role}: say which ({_how(role, options[0])})"
    return None, text


def _missing(role: str, names: Sequence[str], spare: Sequence[str]) -> str:
    known = SPELLINGS.get(role, (role,))
    text = (
        f"there is no column for {role} (known: {', '.join(known[:5])}); it has {_list(names)}. "
        f"Rename one, or say which it is ({_how(role, spare[0] if spare else '...')})"
    )
    if role in {"cell", "count"} and len(names) > 6:
        text += ". A table with one column per cell must be made long first: one row per time and cell"
    return text


def _how(role: str, name: str) -> str:
    return f"columns={{{role!r}: {name!r}}}, --column {role}={name}"


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(repr(n) for n in names[:8])
    return shown + (f", … ({len(names)} in all)" if len(names) > 8 else "")


def read_numbers(source: Source, role: str, *, column: str | None = None, required: bool = False) -> Array:
    """The column of a role as floats, NaN where nothing is written (a problem where a number is required)."""
    import pandas as pd

    series = source.frame[source.columns[role] if column is None else column]
    if pd.api.types.is_numeric_dtype(series) and not pd.api.types.is_bool_dtype(series):
        values = series.to_numpy(dtype=float, na_value=np.nan)
        missing = np.isnan(values)
    else:
        texts = series.astype(object).where(series.notna(), "").astype(str).str.strip()
        missing = texts.str.casefold().isin(MISSING).to_numpy(dtype=bool)
        values = np.asarray(pd.to_numeric(texts.where(~missing, "nan"), errors="coerce"), dtype=float)
    text = f"{role} must be a number: correct it (decimals with a point, no thousands separators)"
    source.refuse(np.isnan(values) & ~missing, text, series)
    source.refuse(np.isinf(values), f"{role} must be finite: correct it", series)
    if required:
        source.refuse(missing, f"{role} is empty: write a number, or take the row out")
    return values


def read_labels(source: Source, role: str, *, column: str | None = None) -> Texts:
    """The column of a role as texts, stripped; whole floats and dates as people write them, and times without trailing zeros."""
    import pandas as pd

    codes, distinct = pd.factorize(source.frame[source.columns[role] if column is None else column])
    texts = [label_text(v) for v in distinct.tolist()]
    if role == "time":
        texts = [_without_zeros(t) for t in texts]
    known = np.array([*texts, ""], dtype=object)
    read: Texts = known[codes]  # a missing value has the code −1, the last one
    source.refuse(read == "", f"{role} is empty: name it, or take the row out")
    return read


def _without_zeros(text: str) -> str:
    """1.50 as 1.5 and 1.0 as 1: one time, however its decimals are written."""
    return text.rstrip("0").rstrip(".") if "." in text and DECIMAL.match(text) else text


def label_text(value: Any) -> str:
    """The text of one label, the same for 3, 3.0 and "3", and for a date in any form."""
    if isinstance(value, str):
        text = value.strip()
        midnight = _MIDNIGHT.match(text)
        return text if midnight is None else midnight[1]
    if value is None or value != value:  # NaN, NaT
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, dt.datetime):  # a pandas time stamp is one
        whole = value.tzinfo is None and value.time() == dt.time(0)
        return value.date().isoformat() if whole else value.isoformat()
    return str(value).strip()


def plain_labels(texts: Sequence[str]) -> list[Hashable]:
    """Labels as numbers when all are whole numbers written plainly ("7", never "007"), as texts otherwise."""
    return [int(t) for t in texts] if all(INTEGER.match(t) for t in texts) else list(texts)


def ordered(texts: Iterable[str]) -> list[str]:
    """Distinct labels: whole numbers by size, texts in the order in which they appear."""
    distinct = list(dict.fromkeys(texts))
    return sorted(distinct, key=int) if all(INTEGER.match(t) for t in distinct) else distinct
