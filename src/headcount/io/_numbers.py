"""Numbers as people and spreadsheets write them: decimal commas, thousands separators, per cent, marks for "nothing here".

How numbers are written is decided from all numbers of a file at once: the one style under which every one of them can be read. Where
two styles can and disagree ("1,025" alone is 1025 or 1.025), the numbers are refused until the caller says which.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.io._source import Findings, Source, listed

if TYPE_CHECKING:
    import pandas as pd

    from headcount._types import Array

MISSING = frozenset({"", "na", "nan", "n/a", "null", "none", "."})
"""Texts that stand for "no number here", without regard to case."""
_MARKS = frozenset(
    {"n.a.", "n. a.", "n.d.", "k.a.", "k. a.", "-", "--", "–", "—", "−", "?", "#n/a", "#nv", "not available"}
)
"""Further texts that are taken as "no number here", and said to be."""
_SPACES = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "’": "'", "−": "-"})
_NUMBER_LIKE = re.compile(r"^[+-]?[\d.,][\d.,' ]*([eE][+-]?\d+)?$")
_DECIMALS, _THOUSANDS = (".", ","), (".", ",", "'", " ")


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


@dataclass(frozen=True)
class NumberFormat:
    """How the numbers of files are written, as far as the caller says; the rest is found out.

    ``decimal`` and ``thousands`` are one for all files, or ``{file: separator}``.
    """

    decimal: str | Mapping[str, str] | None = None
    thousands: str | Mapping[str, str] | None = None
    missing: Sequence[str] = ()

    def styles(self, file: str) -> list[Style]:
        """The styles that the caller leaves open for a file, the plain one first."""
        decimal, thousands = for_file(self.decimal, file), for_file(self.thousands, file)
        marks = [None, *_THOUSANDS] if thousands is None else [thousands]
        points = _DECIMALS if decimal is None else (decimal,)
        return [Style(d, t) for t in marks for d in points if d != t]

    def check(self, findings: Findings) -> None:
        """Refuse separators that are none."""
        for name, given, known in (
            ("decimal", self.decimal, _DECIMALS),
            ("thousands", self.thousands, _THOUSANDS),
        ):
            for value in given.values() if isinstance(given, Mapping) else [given]:
                if value is not None and value not in known:
                    shown = " or ".join(repr(k) for k in known)
                    findings.problem(name, f"give {shown}, got {value!r}")
        if isinstance(self.decimal, str) and self.decimal == self.thousands:
            findings.problem(
                "decimal", f"decimal and thousands are both {self.decimal!r}: give two different ones"
            )


def for_file(given: str | Mapping[str, str] | None, file: str) -> str | None:
    """What the caller says about one file: the same for all, or by the file's name ("" for all others)."""
    return given.get(file, given.get("")) if isinstance(given, Mapping) else given


@dataclass(frozen=True)
class FileNumbers:
    """How the numbers of one file are written, by column; columns that are not named are plain."""

    styles: Mapping[str, Style] = field(default_factory=dict)
    unclear: Mapping[str, tuple[Style, Style]] = field(default_factory=dict)
    missing: frozenset[str] = MISSING

    def of(self, column: str) -> Style:
        """The style of a column."""
        return self.styles.get(column, Style())


def file_numbers(source: Source, columns: Sequence[str], said: NumberFormat) -> FileNumbers:
    """Decide how the numbers in these columns of a file are written, and note what was decided."""
    missing = MISSING | {t.strip().casefold() for t in said.missing}
    open_styles = said.styles(source.name)
    texts = {c: _number_texts(source.frame[c], missing | _MARKS) for c in columns}
    together = list(dict.fromkeys(t for found in texts.values() for t in found))
    if open_styles[0] == Style() and _all_plain(together):
        return FileNumbers(missing=missing)
    # One style for the file where there is one; otherwise each column by itself.
    one = any(style.reads(together) for style in open_styles)
    styles, unclear = {}, {}
    for column, own in texts.items():
        found = together if one else own
        fitting = [style for style in open_styles if style.reads(found)] or open_styles[:1]
        chosen = styles[column] = fitting[0]
        rival = next((s for s in fitting[1:] if any(s.value(t) != chosen.value(t) for t in found)), None)
        if rival is not None and chosen != Style():
            unclear[column] = (chosen, rival)
    _note_styles(source, styles, {c: t for c, t in texts.items() if c not in unclear})
    return FileNumbers(styles, unclear, missing)


def _number_texts(series: pd.Series, missing: frozenset[str]) -> list[str]:
    """The distinct texts of a column that look like numbers; none where the column already holds numbers."""
    if series.dtype.kind in "iufb":
        return []
    tidy = (_tidy(v).removesuffix("%").rstrip() for v in series.unique().tolist() if isinstance(v, str))
    return [t for t in tidy if t.casefold() not in missing and _NUMBER_LIKE.match(t)]


def _all_plain(texts: Sequence[str]) -> bool:
    import pandas as pd

    return not texts or bool(pd.to_numeric(pd.Series(texts), errors="coerce").notna().all())


def _tidy(text: str) -> str:
    return text.translate(_SPACES).strip()


def _note_styles(source: Source, styles: Mapping[str, Style], texts: Mapping[str, Sequence[str]]) -> None:
    """Say which separators were taken for what, with an example each."""
    said: dict[str, str] = {}
    for column, found in texts.items():
        style = styles[column]
        comma = style.decimal if style.decimal != "." else None
        for mark, what in ((comma, "is the decimal separator"), (style.thousands, "separates thousands")):
            example = next((t for t in found if mark is not None and mark in t), None)
            if example is not None:
                said.setdefault(f"{mark!r} {what}", f"{example!r} is read as {style.value(example):.10g}")
    if said:
        source.findings.note(f"{source.name}: " + "; ".join(f"{k} ({v})" for k, v in said.items()))


def read_column(source: Source, role: str, column: str, numbers: FileNumbers) -> tuple[Array, Any]:
    """The numbers of a column and a mask of what is missing; what is neither is refused with its row."""
    import pandas as pd

    series = source.frame[column]
    if pd.api.types.is_numeric_dtype(series) and not pd.api.types.is_bool_dtype(series):
        values = series.to_numpy(dtype=float, na_value=np.nan)
        stand = [s for s in map(Style().value, numbers.missing) if s == s]
        values = np.where(np.isin(values, stand), np.nan, values)
        return values, np.isnan(values)
    codes, distinct = pd.factorize(series)
    read = [_read(v, numbers.of(column), numbers.missing) for v in distinct.tolist()]
    # A missing value has the code −1: the last one.
    values = np.array([*(value for value, _ in read), np.nan])[codes]
    kind = np.array([*(kind for _, kind in read), "missing"], dtype=object)[codes]
    marked, per_cent = kind == "marked", kind == "per cent"
    if marked.any():
        shown = listed([repr(t) for t in series[marked].tolist()])
        source.findings.note(
            f"{source.name}: {shown} in {role} ({int(marked.sum())} rows) is read as missing, not as 0: nobody looked there"
        )
    if per_cent.any():
        text = f"{role} has a % sign in other rows and none here: write all in one way"
        source.refuse(kind == "number", text, series)
        source.findings.note(f"{source.name}: {role} is written in per cent and divided by 100")
    _refuse_unread(source, role, series, kind == "other", numbers.unclear.get(column))
    return values, (kind == "missing") | marked


def _refuse_unread(
    source: Source, role: str, series: Any, other: Any, rivals: tuple[Style, Style] | None
) -> None:
    """Refuse what is no number; with both readings where a number can be read in two ways."""
    if rivals is None:
        text = (
            f"{role} must be a number: correct it, say how decimals and thousands are written (--decimal, --thousands), or what stands "
            "for missing (--missing)"
        )
        source.refuse(other, text, series)
        return
    texts = series.astype(str).map(_tidy)
    one, two = (np.array([style.value(t) for t in texts]) for style in rivals)
    differ = (one != two) & np.isfinite(one)
    example = texts[differ].iloc[0]
    mark = next(m for m in ",." if m in example)
    text = (
        f"{role} must be a number, and {example!r} can be {rivals[0].value(example):.10g} or {rivals[1].value(example):.10g}: say "
        f"which (thousands={mark!r}, --thousands {mark}, or decimal={mark!r}, --decimal {mark})"
    )
    source.refuse(differ, text, series)
    source.refuse(other & ~differ, f"{role} must be a number: correct it", series)


def _read(value: Any, style: Style, missing: frozenset[str]) -> tuple[float, str]:
    """One entry of a column: its number, and whether it is a number, per cent, missing, a mark for missing, or something else."""
    if value is None or value != value:
        return np.nan, "missing"
    if not isinstance(value, str):
        numeric = isinstance(value, (int, float, np.number)) and not isinstance(value, (bool, np.bool_))
        text = label = f"{value:.17g}" if numeric else str(value)
        style = Style()
    else:
        text, label = _tidy(value), value.strip()
    folded = text.casefold()
    if folded in missing or label.casefold() in missing:
        return np.nan, "missing"
    if folded in _MARKS or label.casefold() in _MARKS:
        return np.nan, "marked"
    if text.endswith("%"):
        number = style.value(text[:-1].rstrip()) / 100
        return number, "per cent" if number == number else "other"
    if folded.lstrip("+-") in {"inf", "infinity"}:
        return np.inf, "number"
    number = style.value(text)
    return number, "number" if number == number else "other"
