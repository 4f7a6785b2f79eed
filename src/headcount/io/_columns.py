"""Which column is which, and its values: the column names people already have, wide tables, numbers, labels.

What is neither a number nor a label is reported with its row.
"""

from __future__ import annotations

import os
import unicodedata
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.dates import parse_date
from headcount.io._numbers import FileNumbers, NumberFormat, file_numbers, for_file, read_column
from headcount.io._source import Findings, Source, label_text, open_source
from headcount.io._times import INTEGER, looks_like_times, time_texts

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from headcount._types import Array, Texts


SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "time": (
        *("time", "date", "datetime", "timestamp", "t", "step", "hour", "day", "week", "month", "year"),
        *("datum", "woche", "semaine", "fecha", "semana"),
    ),
    "cell": (
        *(
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
        *("ward", "station", "place", "zelle", "ort", "gebiet", "lieu", "commune", "sitio", "zona"),
    ),
    "count": ("count", "counts", "observed", "total", "n", "value", "anzahl", "nombre", "effectif", "conteo"),
    "flow": ("count", "flow", "flows", "counts", "trips", "n", "value", "anzahl", "nombre"),
    "from": ("from", "origin", "source", "origin_id", "i", "von", "de", "origine", "origen"),
    "to": (
        "to",
        "dest",
        "destination",
        "target",
        "dest_id",
        "destination_id",
        "j",
        "nach",
        "vers",
        "destino",
    ),
    "probability": ("probability", "prob", "p", "share", "transition", "wahrscheinlichkeit", "probabilite"),
    "id": ("id", "individual", "animal", "tag", "band", "ring", "track", "track_id", "tag_id"),
    "x": ("x", "column", "easting"),
    "y": ("y", "row", "northing"),
    "lon": ("lon", "longitude", "lng", "long"),
    "lat": ("lat", "latitude"),
}
"""Role → spellings in order of preference; read without regard to case and accents."""
_LABELS = frozenset({"time", "cell", "from", "to", "feature", "id", "sequence"})
"""Roles whose columns hold labels; all others hold numbers."""
_PLACES = ("x", "y", "lon", "lat")
PARAMETERS = ("rate", "background", "detection", "sd", "scale", "dispersion")
"""Columns that a noise model may find beside the counts."""


@dataclass(frozen=True)
class Reader:
    """How the tables of one problem are read, and where faults are collected.

    Attributes
    ----------
    columns
        The caller's names for columns, ``{role: column}``.
    encoding
        Of text files, the same for all or ``{file: encoding}``; found out for each file where it is not given.
    numbers
        How numbers are written.
    dates
        ``"day-first"`` or ``"month-first"`` for dates such as 03/04/2024; found out where it is not given.
    wide
        Whether counts have one column per cell or per time, and transitions one per destination.
    """

    findings: Findings
    columns: Mapping[str, str] | None = None
    encoding: str | Mapping[str, str] | None = None
    numbers: NumberFormat = field(default_factory=NumberFormat)
    dates: str | None = None
    wide: bool = False

    def checked(self) -> Reader:
        """The reader itself; what cannot be right about its settings is among the findings."""
        self.numbers.check(self.findings)
        if self.dates not in {None, "day-first", "month-first"}:
            self.findings.problem("dates", f"give day-first or month-first, got {self.dates!r}")
        return self

    def open(self, given: Any) -> Source | None:
        """The table that `given` names or is; None, with the reason among the findings, if it cannot be read."""
        file = Path(given).name if isinstance(given, (str, os.PathLike)) else ""
        return self.findings.attempt(open_source, given, for_file(self.encoding, file), self.findings)

    def read(self, given: Any, required: Sequence[str], optional: Sequence[str] = ()) -> Source | None:
        """The table with the column of each role."""
        source = self.open(given)
        return None if source is None else self.find(source, required, optional)

    def find(
        self, source: Source, required: Sequence[str], optional: Sequence[str] = (), *, rest: bool = False
    ) -> Source | None:
        """The table with the column of each role; None, with everything that is missing among the findings.

        Parameters
        ----------
        required, optional
            Roles; those without spellings of their own are looked for by their name. What the caller says in ``columns`` wins over
            every spelling.
        rest
            Whether the columns without a role hold numbers too.
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
        if not found.keys() >= set(required):
            return None
        columns = [column for role, column in found.items() if role not in _LABELS]
        if rest:
            columns += [name for name in names if name not in found.values()]
        return replace(
            source, columns=found, numbers=file_numbers(source, columns, self.numbers), dates=self.dates
        )

    def long(self, source: Source, row: str, column: str, value: str) -> Source | None:
        """A wide table as one row per entry: ``row`` and ``column`` are the roles of its rows and of its further columns.

        Columns for places and noise parameters stay beside the row's label.
        """
        beside = self.find(source, [row], (*_PLACES, *PARAMETERS))
        if beside is None:
            return None
        kept = list(beside.columns.values())
        spread = [c for c in source.frame.columns if c not in kept]
        if not spread:
            source.problem(f"there is no column left for a {column}: a wide table has one per {column}", [1])
            return None
        frame = source.frame.melt(kept, spread, column, value)
        return replace(source, frame=frame, rows=np.tile(source.rows, len(spread)))

    def long_counts(self, source: Source) -> Source | None:
        """Wide counts as ``time, cell, count``: rows are times and further columns cells, or the other way round."""
        found = self.find(source, [], ("time", "cell"))
        roles = set() if found is None else set(found.columns)
        if roles == {"time", "cell"}:
            text = (
                "it has a column for time and one for cell: a wide table has one of them, and one column per entry of the other; leave "
                "--wide out if it has one row per time and cell"
            )
            source.problem(text, [1])
            return None
        if not roles:  # the first column names the rows
            first = source.frame.columns[0]
            dated = all(parse_date(c) for c in source.frame.columns[1:])
            rows = "time" if not dated and looks_like_times(source.frame.iloc[:, 0].tolist()) else "cell"
            source = replace(source, frame=source.frame.rename(columns={first: rows}))
            roles = {rows}
        row = roles.pop()
        return self.long(source, row, "cell" if row == "time" else "time", "count")


def _by_spelling(
    role: str, names: Sequence[str], taken: set[str], *, ambiguous: bool
) -> tuple[str | None, str]:
    """The column that a role's spellings name, or None and why; `ambiguous` takes the first of several."""
    free = [name for name in names if name not in taken]
    folded = {_folded(name): name for name in reversed(free)}
    options = [folded[s] for s in SPELLINGS.get(role, (role,)) if s in folded]
    if not options:
        return None, _missing(role, names, free)
    if len(options) == 1 or role in folded or ambiguous:
        return folded.get(role, options[0]), ""
    text = f"{_list(options)} could each be the column for {role}: say which ({_how(role, options[0])})"
    return None, text


def _folded(name: str) -> str:
    """A name without case and accents."""
    split = unicodedata.normalize("NFD", name.strip().casefold())
    return "".join(c for c in split if not unicodedata.combining(c))


def _missing(role: str, names: Sequence[str], spare: Sequence[str]) -> str:
    known = SPELLINGS.get(role, (role,))
    text = (
        f"there is no column for {role} (known: {', '.join(known[:5])}); it has {_list(names)}. "
        f"Rename one, or say which it is ({_how(role, spare[0] if spare else '...')})"
    )
    if role in {"cell", "count"} and len(names) > 6:
        text += (
            ". A table with one column per cell or per date must be made long first (one row per time and cell), or read as it is "
            "(wide=True, --wide)"
        )
    return text


def _how(role: str, name: str) -> str:
    return f"columns={{{role!r}: {name!r}}}, --column {role}={name}"


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(repr(n) for n in names[:8])
    return shown + (f", … ({len(names)} in all)" if len(names) > 8 else "")


def read_numbers(source: Source, role: str, *, column: str | None = None, required: bool = False) -> Array:
    """The column of a role as floats, NaN where nothing is written (a problem where a number is required)."""
    name = source.columns[role] if column is None else column
    values, missing = read_column(source, role, name, source.numbers or FileNumbers())
    source.refuse(np.isinf(values), f"{role} must be finite: correct it", source.frame[name])
    if required:
        source.refuse(missing, f"{role} is empty: write a number, or take the row out")
    return values


def read_labels(source: Source, role: str, *, column: str | None = None) -> Texts:
    """The column of a role as texts, stripped; whole floats and dates as people write them, and times without trailing zeros."""
    import pandas as pd

    codes, distinct = pd.factorize(source.frame[source.columns[role] if column is None else column])
    texts = [label_text(v) for v in distinct.tolist()]
    if role == "time" and column is None:
        texts = time_texts(texts, source)
    known = np.array([*texts, ""], dtype=object)
    read: Texts = known[codes]  # a missing value has the code −1, the last one
    source.refuse(read == "", f"{role} is empty: name it, or take the row out")
    return read


def plain_labels(texts: Sequence[str]) -> list[Hashable]:
    """Labels as numbers when all are whole numbers written plainly ("7", never "007"), as texts otherwise."""
    return [int(t) for t in texts] if all(INTEGER.match(t) for t in texts) else list(texts)


def ordered(texts: Iterable[str]) -> list[str]:
    """Distinct labels: whole numbers by size, texts in the order in which they appear."""
    distinct = list(dict.fromkeys(texts))
    return sorted(distinct, key=int) if all(INTEGER.match(t) for t in distinct) else distinct
