"""Which column is which, and its values: the column names people already have, wide tables, numbers, labels.

How numbers are written (decimal commas, thousands separators, per cent, marks for "nothing here") is decided from all numbers of a
file at once: the one style under which every one of them can be read. Where two styles can and disagree ("1,025" alone is 1025 or
1.025), the numbers are refused until the caller says which. What is neither a number nor a label is reported with its row.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headcount.dates import parse_date
from headcount.io._times import INTEGER, looks_like_times, time_texts
from headcount.io.source import Findings, Labels, Source, label_text, listed, open_source
from headcount.labels import SPELLINGS, folded

if TYPE_CHECKING:
    from headcount._types import Array, Index


_OPTIONAL_LABELS = frozenset({"time", "sequence"})
"""Roles of labels that a table may have none of."""
ENDS = {"from": "origin", "to": "destination"}
"""What messages call the roles of a move."""
PLACES = ("x", "y", "lon", "lat")
_PAIRS = (("lon", "lat"), ("x", "y"))
"""Coordinates that make a place, the pair that is read where both are there first."""
PARAMETERS = ("rate", "background", "detection", "sd", "scale", "dispersion")
"""Columns that a noise model may find beside the counts."""
_NUMBERS = ("count", "flow", "probability", *PLACES, *PARAMETERS)
"""Roles whose values are numbers, never labels."""
MISSING = frozenset({"", "na", "nan", "n/a", "null", "none", "."})
"""Texts that stand for "no number here", without regard to case."""
_MARKS = frozenset(
    {"n.a.", "n. a.", "n.d.", "k.a.", "k. a.", "-", "--", "–", "—", "−", "?", "#n/a", "#nv", "not available"}
)
"""Further texts that are taken as "no number here", and said to be."""
_SPACES = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "’": "'", "−": "-"})
_NUMBER_LIKE = re.compile(r"^[+-]?[\d.,][\d.,' ]*([eE][+-]?\d+)?$")
_DECIMALS, _THOUSANDS = (".", ","), (".", ",", "'", " ")
_WORDS = {"dates": ("day-first", "month-first"), "bounds": ("number", "missing", "censored")}
_NAMED_CELLS = frozenset({"cell", "from", "to"})
"""Roles whose labels are cells."""
_ABOUT = re.compile(
    r"^(?:ca\.?|circa|~|≈|about|approx\.?|etwa|rund|env\.?|environ|aprox\.?)\s*(?=[\d.,])", re.IGNORECASE
)
_BOUND = re.compile(
    r"^(?:[<>≤≥]=?|mind\.|mindestens|at least|more than|mehr als|über|over|less than|weniger als|unter|under)\s*(?=[\d.,])|(?<=\d)\s*\+$",
    re.IGNORECASE,
)
_UPPER = re.compile(r"[<≤]|less|weniger|unter|under")
_STRICT = re.compile(r"[<>](?!=)|more|mehr|über|over|less|weniger|unter|under")
"""Upper bounds, and bounds that leave their own number out, as they begin in small letters."""
PerFile = str | Mapping[str, str] | None
"""What a caller says about the files: the same for all, or by the file's name ("" for all others)."""


def _for_file(given: PerFile, file: str) -> str | None:
    return given.get(file, given.get("")) if isinstance(given, Mapping) else given


@dataclass(frozen=True)
class Reader:
    """How the tables of one problem are read, and where faults are collected.

    Attributes
    ----------
    columns
        The caller's names for columns, ``{role: column}``. The first table that takes a role must have the column; others may
        use a spelling instead.
    encoding
        Of text files, the same for all or ``{file: encoding}``; found out for each file where it is not given.
    decimal, thousands, missing
        How numbers are written, for all files or ``{file: separator}``, and texts that stand for none; the rest is found out.
    dates
        ``"day-first"`` or ``"month-first"`` for dates such as 03/04/2024; found out where it is not given.
    wide
        Whether counts have one column per cell or per time, and transitions one per destination.
    alias
        Other names of cells, ``{old: new}``, in every table.
    bounds
        What ``>60`` is read as: ``"number"`` (60), ``"missing"``, or, among counts, ``"censored"``: 61, and 1 in the role "bound" (−1 of an
        upper bound, 0 of a number); asked about where it is not given.
    whole
        Whether counts are whole numbers: the first one above 60 is then 61.
    """

    findings: Findings
    columns: Mapping[str, str] | None = None
    encoding: PerFile = None
    decimal: PerFile = None
    thousands: PerFile = None
    missing: Sequence[str] = ()
    dates: str | None = None
    wide: bool = False
    alias: Mapping[str, str] = field(default_factory=dict)
    bounds: str | None = None
    whole: bool = True
    _placed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """What cannot be right about the settings is among the findings."""
        allowed = {"decimal": _DECIMALS, "thousands": _THOUSANDS} | _WORDS
        for name, known in allowed.items():
            given = getattr(self, name)
            for value in given.values() if isinstance(given, Mapping) else [given]:
                if value is not None and value not in known:
                    shown = " or ".join(known if name in _WORDS else map(repr, known))
                    self.findings.problem(name, f"give {shown}, got {value!r}")
        if isinstance(self.decimal, str) and self.decimal == self.thousands:
            self.findings.problem(
                "decimal", f"decimal and thousands are both {self.decimal!r}: give two different ones"
            )

    def open(self, given: Any) -> Source | None:
        """The table that `given` names or is; None, with the reason among the findings, if it cannot be read."""
        file = Path(given).name if isinstance(given, (str, os.PathLike)) else ""
        encoding = _for_file(self.encoding, file)
        return self.findings.attempt(open_source, given, encoding, self.findings, self._measured)

    def _measured(self, column: str) -> bool:
        """Whether a column can only hold numbers, by its name or by what the caller says."""
        role = next((role for role, name in (self.columns or {}).items() if name == column.strip()), None)
        if role is not None:
            return role in _NUMBERS
        return any(folded(column) in SPELLINGS.get(role, (role,)) for role in _NUMBERS)

    def read(self, given: Any, labels: Sequence[str], *numbers: str, **how: Any) -> Source | None:
        """The table that `given` names or is, with its values; see `take`."""
        return self.take(self.open(given), labels, *numbers, **how)

    def take(
        self,
        source: Source | None,
        labels: Sequence[str],
        *numbers: str,
        optional: Sequence[str] = (),
        named: Mapping[str, str] | None = None,
        rest: str = "",
        empty: bool = False,
        once: bool = True,
    ) -> Source | None:
        """The table with the values of each role; None, with everything that is missing among the findings.

        Parameters
        ----------
        labels, numbers
            Roles that the table must have; those without spellings of their own are looked for by their name. What the caller says in
            ``columns`` wins over every spelling.
        optional
            Roles that it may have; their numbers may be empty.
        named
            The columns of roles that need not be looked for.
        rest
            What all further columns hold, numbers that must be there: "feature" gives the roles "feature height", "feature slope".
        empty
            Whether required numbers may be empty too.
        once
            Whether rows with the same labels are a problem.
        """
        if source is None:
            return None
        found = _paired(self._columns(source, (*labels, *numbers), optional, dict(named or {})))
        if not found.keys() >= {*labels, *numbers}:
            return None
        if rest:
            found |= {f"{rest} {c}": str(c) for c in source.frame.columns if c not in found.values()}
        keys = list(dict.fromkeys([*labels, *filter(_OPTIONAL_LABELS.__contains__, found)]))
        required = set() if empty else found.keys() - {*optional}
        read = self._values(replace(source, columns=found), keys, required)
        return _without_repeats(read, keys) if once else read

    def _values(self, source: Source, labels: Sequence[str], required: Collection[str]) -> Source:
        """The table with the values of its columns; numbers that are required must not be empty."""
        numbers = [role for role in source.columns if role not in labels]
        coded = cache(partial(_coded, source.frame))
        styles = _styles_of(source, [source.columns[role] for role in numbers], self, coded)
        values: dict[str, Any] = {role: _read_labels(source, role, self, coded) for role in labels}
        missing = {}
        for role in numbers:
            values[role], missing[role] = _read_numbers(
                source, role, styles, self, coded, required=role in required
            )
            if role == "count" and self.bounds == "censored":
                values |= _censored(source, values[role], coded, whole=self.whole)
        return replace(source, values=values, empty=missing)

    def covariates(self, source: Source, columns: Sequence[str]) -> dict[str, Any] | None:
        """Further columns of a table of cells by name: numbers where all entries are, texts otherwise; None where one is wrong."""
        known = len(self.findings.lines())
        measured = [c for c in columns if _holds_numbers(source.frame[c], self.no_number | _MARKS)]
        texts = [c for c in columns if c not in measured]
        named = {f"{c} of the cells": c for c in columns}
        roles = {c: role for role, c in named.items()}
        read = self.take(
            replace(source, values={}, empty={}),
            ["cell", *map(roles.__getitem__, texts)],
            *map(roles.__getitem__, measured),
            named={"cell": source.columns["cell"], **named},
            once=False,
        )
        if read is None or len(self.findings.lines()) > known:
            return None
        return {c: read[roles[c]] for c in columns}

    def roles(self, source: Source | None, roles: Sequence[str]) -> set[str]:
        """Those of the roles for which the table has a column."""
        return set() if source is None else set(self.columns_of(source, optional=roles))

    def columns_of(
        self, source: Source, roles: Sequence[str] = (), *, optional: Sequence[str] = ()
    ) -> dict[str, str]:
        """The column of each role that the table has; a role that it must have and has not is a problem."""
        return self._columns(source, roles, optional, {})

    def _columns(
        self, source: Source, required: Sequence[str], optional: Sequence[str], found: dict[str, str]
    ) -> dict[str, str]:
        """``{role: column}``, beside those that are found already; a required role without a column is a problem."""
        names = [str(c) for c in source.frame.columns]
        given = dict(self.columns or ())
        if given.get("count") in names:  # the caller's word for counts holds for flows too
            given.setdefault("flow", given["count"])
        for role in [role for role in (*required, *optional) if role not in found]:
            column, fault = self._column(role, given, names, set(found.values()), required=role in required)
            if column is not None:
                found[role] = column
            elif role in required:
                source.problem(fault, [1])
        return found

    def _column(
        self, role: str, given: Mapping[str, str], names: Sequence[str], taken: set[str], *, required: bool
    ) -> tuple[str | None, str]:
        """The column of a role: the caller's, or the one that a spelling names; None and why where there is none, or several."""
        if given.get(role) in names:
            self._placed.add(role)
            return given[role], ""
        if role in given.keys() - self._placed:
            return None, f"there is no column {given[role]!r} for {role}: it has {_list(names)}"
        free = [name for name in names if name not in taken | set(given.values())]
        options = _spelled(role, free)
        if required and len(options) > 1 and folded(options[0]) != role:
            return (
                None,
                f"{_list(options)} could each be the column for {role}: say which ({_how(role, options[0])})",
            )
        return (options[0], "") if options else (None, _missing(role, names, free))

    def long(self, source: Source | None, row: str, column: str, value: str) -> Source | None:
        """A wide table as one row per entry: ``row`` and ``column`` are the roles of its rows and of its further columns.

        Columns for places and noise parameters stay beside the row's label.
        """
        if source is None:
            return None
        beside = self._columns(source, [row], (*PLACES, *PARAMETERS), {})
        if row not in beside:
            return None
        kept = list(beside.values())
        spread = [c for c in source.frame.columns if c not in kept]
        if not spread:
            source.problem(f"there is no column left for a {column}: a wide table has one per {column}", [1])
            return None
        frame = source.frame.melt(kept, spread, column, value)
        return replace(source, frame=frame, rows=np.tile(source.rows, len(spread)))

    def margins(self, source: Source | None) -> Source | None:
        """The two totals of a matrix of trips, ``cell, entries, exits``, as counts at two times; None for any other table.

        The times are called as the columns are, or entries and exits where the caller says which these are.
        """
        if source is None or self.roles(source, ("time", "count")) or not self.roles(source, ("cell",)):
            return None
        pair = self.columns_of(source, optional=("entries", "exits"))
        if len(pair) < 2:
            return None
        kept = [*self.columns_of(source, ["cell"], optional=(*PLACES, *PARAMETERS)).values(), *pair.values()]
        names = {column: role for role, column in pair.items() if folded(column) not in SPELLINGS[role]}
        source.note(
            f"{pair['entries']!r} are the totals by origin and {pair['exits']!r} those by destination: trips go from one to the other"
        )
        source = replace(source, frame=source.frame[kept].rename(columns=names))
        return self.long(source, "cell", "time", "count")

    def matrix(self, source: Source | None) -> Source | None:
        """A square matrix, one row per origin and one column per destination, with its first column called ``from``; None for others."""
        if source is None or self.roles(source, ("to",)) or len(source.frame.columns) < 2:
            return None
        first, *others = source.frame.columns
        rows = [label_text(v) for v in source.frame[first].tolist()]
        if len(rows) != len(others) or {*rows} != {*map(str, others)}:
            return None
        return replace(source, frame=source.frame.rename(columns={first: "from"}))

    def long_counts(self, source: Source | None) -> Source | None:
        """Wide counts as ``time, cell, count``: rows are times and further columns cells, or the other way round."""
        if source is None:
            return None
        roles = self.roles(source, ("time", "cell"))
        if roles == {"time", "cell"}:  # another file is the wide one
            return source
        if not roles:  # the first column names the rows
            first = source.frame.columns[0]
            dated = all(parse_date(c) for c in source.frame.columns[1:])
            rows = "time" if not dated and looks_like_times(source.frame.iloc[:, 0].tolist()) else "cell"
            source = replace(source, frame=source.frame.rename(columns={first: rows}))
            roles = {rows}
        row = roles.pop()
        return self.long(source, row, "cell" if row == "time" else "time", "count")

    @cached_property
    def no_number(self) -> frozenset[str]:
        """Texts that stand for "no number here"."""
        return MISSING | {text.strip().casefold() for text in self.missing}

    def styles(self, file: str) -> list[Style]:
        """The styles of numbers that the caller leaves open for a file, the plain one first."""
        decimal, thousands = _for_file(self.decimal, file), _for_file(self.thousands, file)
        marks = [None, *_THOUSANDS] if thousands is None else [thousands]
        points = _DECIMALS if decimal is None else (decimal,)
        return [Style(d, t) for t in marks for d in points if d != t]


def _spelled(role: str, names: Sequence[str]) -> list[str]:
    """The columns that the spellings of a role name, its own name first, then in order of preference."""
    found = {folded(name): name for name in reversed(names)}
    return [found[s] for s in dict.fromkeys((role, *SPELLINGS.get(role, ()))) if s in found]


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
    if role == "count":
        text += ". The two totals of a matrix of trips have the columns entries and exits"
    return text


def _paired(found: Mapping[str, str]) -> dict[str, str]:
    """Without coordinates that place nothing: "row" or "long" alone may hold anything, and x and y beside lon and lat are not read."""
    pair = next((pair for pair in _PAIRS if found.keys() >= {*pair}), ())
    return {role: column for role, column in found.items() if role not in PLACES or role in pair}


def _how(role: str, name: str) -> str:
    return f"columns={{{role!r}: {name!r}}}, --column {shlex.quote(f'{role}={name}')}"


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(repr(n) for n in names[:8])
    return shown + (f", … ({len(names)} in all)" if len(names) > 8 else "")


# --- labels


Coded = Callable[[str], tuple["Index", "pd.Series"]]
"""The position of every row's entry among the distinct ones of a column (−1 where it is missing), and these."""


def _coded(frame: pd.DataFrame, column: str) -> tuple[Index, pd.Series]:

    series = frame[column]
    if isinstance(series.dtype, pd.CategoricalDtype):
        held, there = series.cat.codes.to_numpy(), np.zeros(len(series.cat.categories), dtype=bool)
        if (held >= 0).all():
            there[held] = True
            if there.all():
                return held, pd.Series(series.cat.categories)
    codes, distinct = pd.factorize(series)
    if isinstance(distinct, pd.CategoricalIndex):
        distinct = distinct.astype(distinct.categories.dtype)
    return codes, pd.Series(distinct)


def _read_labels(source: Source, role: str, reader: Reader, coded: Coded) -> Labels:
    """The column of a role as labels, stripped; whole floats and dates as people write them, times without trailing zeros.

    Cells have their new names where the reader knows of any, which is noted.
    """
    codes, distinct = coded(source.columns[role])
    texts = [label_text(v) for v in distinct.tolist()]
    if role == "time":
        texts = time_texts(texts, source, reader.dates)
    elif role in _NAMED_CELLS:
        texts = _renamed(texts, source, reader.alias)
    one = Labels.of([*texts, ""])
    if len(one.texts) > len(texts) and (codes >= 0).all():
        return Labels(codes, texts)
    read = Labels(one.codes[codes], one.texts)  # a missing value has the code −1, the last one
    source.refuse(read.codes == one.codes[-1], f"{role} is empty: name it, or take the row out")
    return read


def _renamed(texts: list[str], source: Source, alias: Mapping[str, str]) -> list[str]:
    """Cells by their new names, where they have one, which is noted."""
    known = [t for t in texts if t in alias]
    if known:
        source.note(listed([f"{t!r} is read as {alias[t]!r}" for t in known]))
    return [alias.get(t, t) for t in texts]


DENSE_KEYS = 8
"""Possible combinations of labels per row up to which each is marked as taken: an array of so many bytes per row."""


def _all_differ(source: Source, roles: Sequence[str]) -> bool:
    """Whether all rows are found to have different labels; False where labels have too many combinations to mark each."""
    key, size = np.zeros(len(source.rows), dtype=np.int64), 1
    for role in roles:
        labels = source.values[role]
        key *= len(labels.texts)
        key += labels.codes
        size *= len(labels.texts)
    if size > DENSE_KEYS * len(key):
        return False
    taken = np.zeros(size, dtype=bool)
    taken[key] = True
    return np.count_nonzero(taken) == len(key)


def _without_repeats(source: Source, roles: Sequence[str]) -> Source:
    """One row per entry, the first: others are a problem, as nothing is added up in silence."""
    if _all_differ(source, roles):
        return source
    frame = pd.DataFrame({role: source[role] for role in sorted(roles, key=lambda role: role != "time")})
    again = frame.duplicated(keep=False).to_numpy()
    if not again.any():
        return source
    *others, last = (ENDS.get(role, role.removeprefix("variable ")) for role in frame.columns)
    what = f"{', '.join(others)} and {last}" if others else last
    groups = frame[again].groupby(list(frame.columns), sort=False).indices
    rows = source.rows[again]
    for label, members in list(groups.items())[:5]:
        shown = ", ".join(label) if others else label
        text = f"this {what} ({shown}) has {len(members)} rows: keep one, or add them up yourself"
        source.problem(text, rows[members].tolist())
    if len(groups) > 5:
        source.problem(f"{len(groups) - 5} further entries have more than one row: keep one each")
    return source.where(~frame.duplicated().to_numpy())


def plain_labels(texts: Sequence[str]) -> list[Hashable]:
    """Labels as numbers when all are whole numbers written plainly ("7", never "007"), as texts otherwise."""
    return [int(t) for t in texts] if all(INTEGER.match(t) for t in texts) else list(texts)


def ordered(texts: Iterable[str]) -> list[str]:
    """Distinct labels: whole numbers by size, texts in the order in which they appear."""
    distinct = list(dict.fromkeys(texts))
    return sorted(distinct, key=int) if all(INTEGER.match(t) for t in distinct) else distinct


# --- numbers


@dataclass(frozen=True)
class Style:
    """How numbers are written: the decimal separator, and the one between thousands where there is one."""

    decimal: str = "."
    thousands: str | None = None

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The numbers that can be read in this style; groups between thousands separators have three digits."""
        whole = r"\d+"
        if self.thousands is not None:
            whole = rf"(\d+|[1-9]\d{{0,2}}({re.escape(self.thousands)}\d{{3}})+)"
        point = re.escape(self.decimal)
        return re.compile(rf"^[+-]?({whole}({point}\d*)?|{point}\d+)([eE][+-]?\d+)?$")

    def value(self, text: str) -> float:
        """The number that a text is in this style; NaN where it is none."""
        if not self.pattern.match(text):
            return np.nan
        plain = text.replace(self.thousands, "") if self.thousands is not None else text
        return float(plain.replace(self.decimal, "."))

    def reads(self, texts: Iterable[str]) -> bool:
        """Whether every text is a number in this style."""
        pattern = self.pattern
        return all(pattern.match(t) for t in texts)


_PLAIN_NUMBER = r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?"

Styles = Mapping[str, tuple[Style, Style | None]]
"""The style of every column of numbers, and a second one where both can be meant."""


def _styles_of(source: Source, columns: Sequence[str], reader: Reader, coded: Coded) -> Styles:
    """Decide how the numbers in these columns of a file are written, and note what was decided."""
    styles = reader.styles(source.name)
    texts = {
        c: [] if _measures(source.frame[c]) else _number_texts(coded(c)[1], reader.no_number | _MARKS)
        for c in columns
    }
    together = list(dict.fromkeys(chain.from_iterable(texts.values())))
    if (
        styles[0] == Style()
        and pd.to_numeric(pd.Series(together, dtype=object), errors="coerce").notna().all()
    ):
        return {**dict.fromkeys(columns, (Style(), None)), **_pointed_counts(source, texts, styles)}
    # One style for the file where there is one; otherwise each column by itself.
    one = any(style.reads(together) for style in styles)
    chosen = {c: _style_of(together if one else own, styles) for c, own in texts.items()}
    _note_styles(source, {c: (style, texts[c]) for c, (style, rival) in chosen.items() if rival is None})
    return chosen


def _style_of(texts: Sequence[str], styles: Sequence[Style]) -> tuple[Style, Style | None]:
    """The first style in which all texts are numbers, and another that reads a different number; plain numbers have no rival."""
    fitting = [style for style in styles if style.reads(texts)] or styles[:1]
    chosen = fitting[0]
    if chosen == Style():
        return chosen, None
    return chosen, next((s for s in fitting[1:] if any(s.value(t) != chosen.value(t) for t in texts)), None)


def _pointed_counts(source: Source, texts: Mapping[str, Sequence[str]], styles: Sequence[Style]) -> Styles:
    """The style of plain counts where some are whole and all with a point could be thousands: 1.912 beside 868 can be meant as 1912."""
    count, rival = source.columns.get("count", ""), Style(",", ".")
    pointed = [text for text in texts.get(count, ()) if "." in text]
    both = 0 < len(pointed) < len(texts.get(count, ())) and rival in styles and rival.reads(pointed)
    return {count: (Style(), rival)} if both else {}


def _measures(series: pd.Series) -> bool:
    """Whether a column holds numbers already."""
    return pd.api.types.is_numeric_dtype(series) and not pd.api.types.is_bool_dtype(series)


def _number_texts(distinct: pd.Series, missing: frozenset[str]) -> list[str]:
    """Those of the distinct entries of a column that look like numbers."""
    if distinct.dtype.kind in "iufb":
        return []
    plain = _plain(distinct, missing)
    tidy = (
        _plain_number(_tidy(v).removesuffix("%").rstrip())
        for v in distinct[~plain].tolist()
        if isinstance(v, str)
    )
    others = [t for t in tidy if t.casefold() not in missing and _NUMBER_LIKE.match(t)]
    return [*distinct[plain].tolist(), *others]


def _plain(series: pd.Series, missing: frozenset[str]) -> Any:
    """Which texts of a column are numbers as programs write them, "-1.5e-3", and stand for nothing else: read at once, not one by one."""
    if not len(series) or not pd.api.types.is_string_dtype(series):
        return np.zeros(len(series), dtype=bool)
    return (series.str.fullmatch(_PLAIN_NUMBER, na=False) & ~series.str.lower().isin(missing)).to_numpy(
        dtype=bool
    )


def _holds_numbers(series: pd.Series, missing: frozenset[str]) -> bool:
    """Whether every entry of a column that is not missing looks like a number."""
    if series.dtype.kind in "iufb":
        return True
    tidy = [
        _tidy(v).removesuffix("%").rstrip() for v in series.dropna().drop_duplicates().astype(str).tolist()
    ]
    return all(t.casefold() in missing or _NUMBER_LIKE.match(t) for t in tidy)


def _tidy(text: str) -> str:
    return text.translate(_SPACES).strip()


def _plain_number(text: str) -> str:
    """The number of an approximate one, or of a bound: 320 of "ca. 320", 60 of ">60"."""
    return _BOUND.sub("", _ABOUT.sub("", text)).strip()


def _note_styles(source: Source, columns: Mapping[str, tuple[Style, Sequence[str]]]) -> None:
    """Say which separators were taken for what, with an example each."""
    said: dict[str, str] = {}
    for style, found in columns.values():
        comma = style.decimal if style.decimal != "." else None
        for mark, what in ((comma, "is the decimal separator"), (style.thousands, "separates thousands")):
            example = next((t for t in found if mark is not None and mark in t), None)
            if example is not None:
                said.setdefault(f"{mark!r} {what}", f"{example!r} is read as {style.value(example):.10g}")
    if said:
        source.note("; ".join(f"{k} ({v})" for k, v in said.items()))


def _read_numbers(
    source: Source, role: str, styles: Styles, reader: Reader, coded: Coded, *, required: bool
) -> tuple[Array, Any]:
    """The column of a role as floats, and where nothing is written (a problem where a number is required).

    What is no number, or not finite, is NaN and refused with its row.
    """
    column, no_number = source.columns[role], reader.no_number
    series = source.frame[column]
    # A missing value has the code −1: the last one.
    codes: Any
    codes, distinct = (np.s_[:-1], series) if _measures(series) else coded(column)
    if _measures(distinct):
        numbers = np.append(distinct.to_numpy(dtype=float, na_value=np.nan), np.nan)
        stand_ins = [s for s in map(Style().value, no_number) if s == s]
        nothing = np.isnan(numbers) | np.isin(numbers, stand_ins)
        values = np.where(nothing, np.nan, numbers)[codes]
        missing = np.isnan(values)
    else:
        style, rival = styles[column]
        plain = _plain(distinct, no_number) if style == Style() else np.zeros(len(distinct), dtype=bool)
        numbers = np.full(len(distinct) + 1, np.nan)
        kinds = np.full(len(distinct) + 1, "missing", dtype=object)
        numbers[:-1][plain] = distinct[plain].to_numpy(dtype="U").astype(float)
        kinds[:-1][plain] = "number"
        for k in np.flatnonzero(~plain):
            numbers[k], kinds[k] = _entry(distinct[k], style, no_number)
        values = numbers[codes]

        def kind(*names: str) -> Any:
            """Which rows hold an entry of one of these kinds."""
            found = np.isin(kinds, names)
            return found[codes] if found.any() else np.zeros(len(codes), dtype=bool)

        missing = kind("missing", "marked")
        values, missing = _read_bounds(source, role, series, kind("bound"), values, missing, reader.bounds)
        _note_kinds(source, role, series, kind)
        rivals = None if rival is None else (style, rival)
        values = _refuse_unread(source, role, series, kind("other"), rivals, values)
    if required:
        source.refuse(missing, f"{role} is empty: write a number, or take the row out")
    return source.without(values, np.isinf(values), f"{role} must be finite: correct it", series), missing


def _read_bounds(
    source: Source, role: str, series: Any, where: Any, values: Array, missing: Any, bounds: str | None
) -> tuple[Array, Any]:
    """Numbers such as >60 as the reader says: the number itself, or not observed; refused where it does not say."""
    if not where.any():
        return values, missing
    if bounds == "censored" and role == "count":  # `_censored` says which
        return values, missing
    if bounds not in _WORDS["bounds"][:2]:
        text = (
            f"{role} is a bound, not a number: have it read as the number that it has (bounds='number', --bounds number) or as not "
            "observed (bounds='missing', --bounds missing)"
        )
        return source.without(values, where, text, series), missing
    shown = _shown(role, series, where)
    if bounds == "missing":
        source.note(f"{shown} is read as missing: a bound is no count")
        return np.where(where, np.nan, values), missing | where
    source.note(f"{shown} is read as the number that it has: totals are too low or too high for that")
    return values, missing


def _shown(role: str, series: Any, where: Any) -> str:
    """Some entries of a column and their number, for a note."""
    return f"{listed([repr(t) for t in series[where].tolist()])} in {role} ({int(where.sum())} rows)"


def _censored(source: Source, numbers: Array, coded: Coded, *, whole: bool) -> dict[str, Array]:
    """Counts with the bounds among them, and the role "bound"; nothing where none is a bound. Of whole counts >60 is the bound 61."""
    codes, found = coded(source.columns["count"])
    tidy = [_tidy(str(v)).casefold() for v in found.tolist()]
    low = [bool(_BOUND.search(t)) and not _UPPER.match(t) for t in tidy]
    side = np.array(
        [(1.0 if least else -1.0) if _BOUND.search(t) else 0.0 for t, least in zip(tidy, low, strict=True)]
        + [0.0]
    )
    if not side.any():
        return {}
    strict = np.array([float(bool(_STRICT.match(t))) for t in tidy] + [0.0])
    shown = _shown("count", source.frame[source.columns["count"]], side[codes] != 0)
    source.note(
        f"{shown} is read as a bound: what is known is that the count is not below (or not above) it; --bounds number or --bounds missing "
        "change that"
    )
    return {"count": numbers + (side * strict * whole)[codes], "bound": side[codes]}


def _note_kinds(source: Source, role: str, series: Any, kind: Callable[..., Any]) -> None:
    """Say what was read as missing, and that per cent were; per cent in some rows only are refused."""
    marked = kind("marked")
    if marked.any():
        source.note(f"{_shown(role, series, marked)} is read as missing, not as 0: nobody looked there")
    about = kind("about")
    if about.any():
        text = "is read as the number that it has: the noise must allow for its rounding"
        source.note(f"{_shown(role, series, about)} {text}")
    if kind("per cent").any():
        text = f"{role} has a % sign in other rows and none here: write all in one way"
        source.refuse(kind("number"), text, series)
        source.note(f"{role} is written in per cent and divided by 100")


def _refuse_unread(
    source: Source, role: str, series: Any, other: Any, rivals: tuple[Style, Style] | None, values: Array
) -> Array:
    """Refuse what is no number, with both readings where a number can be read in two ways; the values, NaN where they were refused."""
    text = (
        f"{role} must be a number: correct it, say how decimals and thousands are written (--decimal, --thousands), or what stands "
        "for missing (--missing)"
    )
    if rivals is not None:
        texts = series.astype(str).map(_tidy)
        one, two = (np.array([style.value(t) for t in texts]) for style in rivals)
        differ = (one != two) & np.isfinite(one)
        if differ.any():  # otherwise the numbers that can be read in two ways are in another column
            example = texts[differ].iloc[0]
            mark = next(m for m in ",." if m in example)
            both = (
                f"{role} must be a number, and {example!r} can be {rivals[0].value(example):.10g} or "
                f"{rivals[1].value(example):.10g}: say which (thousands={mark!r}, --thousands {mark}, or decimal={mark!r}, "
                f"--decimal {mark})"
            )
            values = source.without(values, differ, both, series)
            other, text = (
                other & ~differ,
                (f"{role} must be a number: correct it, or say what stands for missing (--missing)"),
            )
    return source.without(values, other, text, series)


def _entry(value: Any, style: Style, missing: frozenset[str]) -> tuple[float, str]:
    """One entry of a column: its number, and whether it is a number, per cent, missing, a mark for missing, or something else."""
    if not isinstance(value, str):
        value, style = _number_text(value), Style()
    text = _tidy(value)
    names = {text.casefold(), value.strip().casefold()}
    if names & missing:
        return np.nan, "missing"
    if names & _MARKS:
        return np.nan, "marked"
    if text.casefold().lstrip("+-") in {"inf", "infinity"}:
        return np.inf, "number"
    share = text.endswith("%")
    number = style.value(_plain_number(text.removesuffix("%").rstrip())) / (100 if share else 1)
    if number != number:
        return number, "other"
    kinds = {"bound": _BOUND.search(text), "about": _ABOUT.search(text), "per cent": share}
    return number, next((kind for kind, found in kinds.items() if found), "number")


def _number_text(value: Any) -> str:
    """An entry that is no text as one: a number in full, nothing where it is missing."""
    if value is None or value != value:
        return ""
    numeric = isinstance(value, (int, float, np.number)) and not isinstance(value, (bool, np.bool_))
    return f"{value:.17g}" if numeric else str(value)
