"""Labels of states, times and cells: as plain Python values, off pandas and xarray objects, in order, and back as coordinates.

Dates are labels too, in any form in which people write them: 2024-05-31, 31.5.2024, 5/31/2024 2:00 PM, 31 mai 2024, May 2024, 2024-W22,
with or without a time zone. `parse_date` reads one text without deciding between day and month where both are possible; `find_date`
finds the label that a text means; `short_labels` writes dates as briefly as a picture wants them.

pandas and xarray are never imported here: an object of a library that was never loaded cannot come in.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
import unicodedata
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount.checks import brief
from headcount.errors import ModelError, repeated, shown

AxisLabels = list[tuple[Hashable, ...] | None]
"""The labels of every axis of an array; None for an axis without."""


def is_dataarray(data: Any) -> bool:
    """Whether `data` is an `xarray.DataArray`."""
    return _is(data, "xarray", "DataArray")


def is_series(data: Any) -> bool:
    """Whether `data` is a pandas Series."""
    return _is(data, "pandas", "Series")


def is_frame(data: Any) -> bool:
    """Whether `data` is a pandas DataFrame."""
    return _is(data, "pandas", "DataFrame")


def _is(data: Any, module: str, name: str) -> bool:
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(data, getattr(loaded, name))


def item(label: Any) -> Any:
    """A NumPy scalar as Python's own; anything else as it is."""
    return label.item() if isinstance(label, np.generic) else label


def plain(label: Any) -> Hashable:
    """A form in which equal labels are equal keys: NumPy scalars as Python's, every kind of date alike."""
    if isinstance(label, dt.datetime) and label.tzinfo is not None:
        return label
    if isinstance(label, (dt.date, np.datetime64)):
        return ("date", int(np.array(label, dtype="datetime64[ns]").astype("int64")))
    if isinstance(label, tuple):
        return tuple(plain(part) for part in label)
    return item(label)


def meant(label: Any, labels: Sequence[Hashable]) -> Any:
    """The one of `labels` that `label` means: itself, the same date of another kind, or the date that a text names.

    "2023-03-05", "5 March 2023" and, where it names one label only, "March 2023" or "March". What means none comes back as it is.

    Raises
    ------
    ModelError
        A text that several labels answer to.
    """
    if not isinstance(label, str) and not is_date(label):
        return label
    moment = _moment(label)
    if (
        moment is not None
    ):  # equal times of two zones may have different hashes, so that the label itself is no key
        return next((known for known in labels if _moment(known) == moment), label)
    if label in labels:
        return label
    if is_date(label):
        return next((known for known in labels if is_date(known) and plain(known) == plain(label)), label)
    found = find_date(label, labels)
    if len(found) > 1:
        raise ModelError(f"{label!r} could be any of {shown(found, 4)}: name the date itself")
    return found[0] if found else label


def label_tuple(labels: Any, what: str = "labels", *, hashable: bool = True) -> tuple[Hashable, ...]:
    """Labels as plain Python values: messages read ``3``, not ``np.int64(3)``. Dates stay dates.

    Raises
    ------
    ModelError
        For what is not a sequence or, unless `hashable` is False, holds what cannot be a label (a list, a dict).
    """
    values = labels.values if is_dataarray(labels) else labels
    if isinstance(values, np.ndarray) and values.ndim > 0 and values.dtype.kind not in "Mm":
        values = values.tolist()
    try:
        made = tuple(values)
        if any(hasattr(part, "tocsr") for part in made):  # a sparse matrix gives its rows
            raise TypeError
        if hashable:
            hash(made)
    except TypeError:
        raise ModelError(
            f"{what} is {brief(labels)}: give a sequence of labels (text, numbers, dates)"
        ) from None
    return made


def split_labels(values: Any) -> tuple[Any, AxisLabels]:
    """The plain array of a labelled object and the labels of its axes; anything else as it is, with none."""
    if is_series(values):
        return values.to_numpy(), [label_tuple(values.index)]
    if is_frame(values):
        return values.to_numpy(), [label_tuple(values.index), label_tuple(values.columns)]
    if is_dataarray(values):
        return values.values, [label_tuple(values[d]) if d in values.coords else None for d in values.dims]
    return values, []


def take_in_order(
    values: NDArray[Any], labels: AxisLabels, cells: Sequence[Sequence[Hashable]], *, what: str
) -> tuple[NDArray[Any], list[str]]:
    """`values` with every labelled axis in the order of its `cells`, and what is unknown, missing or named twice."""
    problems: list[str] = []
    for axis, (names, wanted) in enumerate(zip(labels, cells, strict=True)):
        if names is None or names == tuple(wanted):
            continue
        wrong = label_problems(names, wanted, f"axis {axis} of {what}")
        problems += wrong
        if not wrong:
            values = np.take(values, [names.index(cell) for cell in wanted], axis=axis)
    return values, problems


def label_problems(names: Sequence[Hashable], cells: Sequence[Hashable], where: str) -> list[str]:
    """Labels that are unknown, missing or given twice where each of `cells` is expected once."""
    known, given = set(cells), set(names)
    unknown = [name for name in names if name not in known]
    missing = [cell for cell in cells if cell not in given]
    twice = repeated(names)
    problems = []
    if unknown:
        problems.append(f"{where} has unknown cells {shown(unknown)}: the cells are {shown(cells)}")
    if missing:
        problems.append(f"{where} has no {shown(missing)}: give every cell, with 0 where it is never used")
    if twice:
        problems.append(f"{where} names {shown(twice)} twice: keep one")
    return problems


def coordinate(labels: Sequence[Any]) -> NDArray[Any]:
    """Labels as a one-dimensional coordinate, whatever they are."""
    plain_labels = np.asarray(labels) if not any(isinstance(label, tuple) for label in labels) else None
    if plain_labels is not None and plain_labels.ndim == 1 and plain_labels.tolist() == list(labels):
        return plain_labels
    values = np.empty(len(labels), dtype=object)
    values[:] = labels
    return values


# --- dates

_MONTHS = (
    "january january januar janvier enero gennaio janeiro januari",
    "february februar fevrier febrero febbraio fevereiro februari",
    "march marz maerz mars marzo marco maart",
    "april avril abril aprile",
    "may mai mayo maggio maio mei",
    "june juni juin junio giugno junho",
    "july juli juillet julio luglio julho",
    "august aout agosto augustus",
    "september septembre septiembre settembre setembro",
    "october oktober octobre octubre ottobre outubro",
    "november novembre noviembre novembro",
    "december dezember decembre diciembre dicembre dezembro",
)
"""Names of the months without accents: English, German, French, Spanish, Italian, Portuguese, Dutch."""
_SHORT_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_CENTURY_TURN = 69
"""Two-digit years from this one on are in the 1900s, as POSIX has it."""
_NAME = r"(?P<name>[^\W\d_]{3,})\.?"
_YEAR = r"(?P<year>\d{4}|\d{2})"
_CLOCK = (
    r"(?:[T ,]+(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,6}))?)?"
    r"\s*(?P<half>[AaPp])?(?:\.?[Mm]\.?)?)?\s*(?P<offset>Z|UTC|[+-]\d{2}(?::?\d{2})?)?$"
)
_FORMS = (
    r"^(?P<year>\d{4})-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2}))?",
    r"^(?P<year>\d{4})(?P<mark>[/.])(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})",
    rf"^(?P<first>\d{{1,2}})(?P<mark>[-/.])\s?(?P<other>\d{{1,2}})(?P=mark)\s?{_YEAR}",
    rf"^(?P<day>\d{{1,2}})(?:\.|st|nd|rd|th)?[ -]*{_NAME}[ ,-]*{_YEAR}",
    rf"^{_NAME} (?P<day>\d{{1,2}})(?:st|nd|rd|th)?,? (?P<year>\d{{4}})",
    rf"^{_NAME}[ ,'-]*{_YEAR}",
    rf"^(?P<year>\d{{4}})[ -]{_NAME}",
    r"^(?P<year>\d{4})-?W(?P<week>\d{1,2})",
)
"""How dates are written; a clock and a time zone may follow."""


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    # Compiled when the first date is read: that takes longer than importing everything else here.
    return tuple(re.compile(form + _CLOCK) for form in _FORMS)


@dataclass(frozen=True)
class WrittenDate:
    """A date as written. ``pair`` are the two numbers of which one is the day and one the month, where the form does not say which.

    ``day`` is None for a whole month, ``clock`` for a whole day, ``offset`` without a time zone.
    """

    year: int
    month: int = 1
    day: int | None = None
    pair: tuple[int, int] | None = None
    dotted: bool = False
    week: int | None = None
    clock: dt.time | None = None
    offset: dt.timedelta | None = None
    short_year: bool = False

    def stamp(self, *, day_first: bool = True) -> dt.datetime:
        """The moment at which it begins, without its time zone.

        Raises
        ------
        ValueError
            There is no such date.
        """
        if self.week is not None:
            return dt.datetime.combine(
                dt.date.fromisocalendar(self.year, self.week, 1), self.clock or dt.time()
            )
        month, day = self.month, self.day or 1
        if self.pair is not None:
            day, month = self.pair if day_first else self.pair[::-1]
        return dt.datetime.combine(dt.date(self.year, month, day), self.clock or dt.time())

    def stamp_or_none(self, day_first: bool) -> dt.datetime | None:
        """The moment at which it begins; None where there is no such date."""
        try:
            return self.stamp(day_first=day_first)
        except ValueError:
            return None

    @property
    def monthly(self) -> bool:
        """Whether it names a month and no day."""
        return self.day is None and self.pair is None and self.week is None

    def text(self, *, day_first: bool = True) -> str:
        """In the form 2024-05, 2024-05-31 or 2024-05-31T14:00:00."""
        stamp = self.stamp(day_first=day_first)
        if self.monthly:
            return f"{stamp:%Y-%m}"
        return iso_text(stamp)


def iso_text(stamp: dt.datetime) -> str:
    """2024-05-31, or 2024-05-31T14:00:00 where it is not midnight."""
    return stamp.date().isoformat() if stamp.time() == dt.time() else stamp.isoformat()


def parse_date(text: str) -> WrittenDate | None:
    """The date that a text is; None where it is none."""
    for form in _patterns():
        match = form.match(text.strip())
        if match is not None:
            return _written({k: v for k, v in match.groupdict().items() if v is not None})
    return None


def _written(part: dict[str, str]) -> WrittenDate | None:
    """The date of the parts of a text; None where there is no such month or clock."""
    number = {name: int(value) for name, value in part.items() if value.isdecimal()}
    month = number.get("month", 1) if "name" not in part else month_of(part["name"])
    short = len(part["year"]) == 2
    century = 0 if not short else 1900 if number["year"] >= _CENTURY_TURN else 2000
    try:
        clock = _clock(part)
    except ValueError:
        return None
    return (
        None
        if month is None
        else WrittenDate(
            century + number["year"],
            month,
            number.get("day"),
            (number["first"], number["other"]) if "first" in number else None,
            part.get("mark") == ".",
            number.get("week"),
            clock,
            _offset(part["offset"]) if "offset" in part else None,
            short,
        )
    )


def _clock(part: dict[str, str]) -> dt.time | None:
    if "hour" not in part:
        return None
    hour = int(part["hour"])
    if "half" in part:
        hour = hour % 12 + (12 if part["half"] in "pP" else 0)
    fraction = part.get("fraction", "").ljust(6, "0")
    return dt.time(hour, int(part["minute"]), int(part.get("second", 0)), int(fraction))


def _offset(text: str) -> dt.timedelta:
    if text in {"Z", "UTC"}:
        return dt.timedelta()
    digits = text[1:].replace(":", "").ljust(4, "0")
    shift = dt.timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -shift if text[0] == "-" else shift


def month_of(name: str) -> int | None:
    """The month that a name or its first letters (three or more) mean; None where they mean none, or two."""
    split = unicodedata.normalize("NFD", name.strip().casefold().removesuffix("."))
    plain = "".join(c for c in split if not unicodedata.combining(c))
    if len(plain) < 3:
        return None
    found = {k for k, names in enumerate(_MONTHS, 1) if any(n.startswith(plain) for n in names.split())}
    return found.pop() if len(found) == 1 else None


def is_date(label: Any) -> bool:
    """Whether a label is a date or a time stamp of any kind."""
    return isinstance(label, (dt.date, np.datetime64))


def as_datetime(label: Any) -> dt.datetime:
    """A date of any kind as Python's own, to the microsecond; its time zone is kept."""
    if isinstance(label, np.datetime64):
        label = label.astype("datetime64[us]").item()
    if not isinstance(label, dt.datetime):
        label = dt.datetime.combine(label, dt.time())
    made = dt.datetime(
        label.year, label.month, label.day, label.hour, label.minute, label.second, label.microsecond
    )
    # The offset and not the zone: Python takes no moment of an hour that is repeated for equal to one of another zone.
    offset = label.utcoffset()
    return made if offset is None else made.replace(tzinfo=dt.timezone(offset))


def readable(label: Any) -> str:
    """A label as people write it: a date without an empty clock ("2024-05-31", "2024-05-31 14:00:00"), anything else as text.

    A time with a zone is written with its offset, as ISO 8601 has it ("2024-10-27T02:00:00+01:00").
    """
    if not is_date(label):
        return str(label)
    moment = as_datetime(label)
    return moment.isoformat() if moment.tzinfo is not None else str(moment).removesuffix(" 00:00:00")


def _moment(label: Any) -> dt.datetime | None:
    """The moment of a time with a zone, or of its text in ISO 8601; None for anything else."""
    if isinstance(label, str) and "+" not in label[10:] and "-" not in label[10:] and not label.endswith("Z"):
        return None
    try:
        made = dt.datetime.fromisoformat(label) if isinstance(label, str) else as_datetime(label)
    except (ValueError, AttributeError, TypeError):
        return None
    return None if made.tzinfo is None else made


def find_date(text: str, labels: Sequence[Hashable]) -> list[Hashable]:
    """The date labels that a text means: those at its moment, or within its day, its week or its month.

    "2023-03-05" finds the label of that day, "March 2023" the only label in that month, "March" that of the only March. With a time
    zone in the text, labels with a time zone are compared as moments; all others as they read.
    """
    dates = list(filter(is_date, labels))
    month = month_of(text)
    if month is not None:
        return [label for label in dates if as_datetime(label).month == month]
    written = parse_date(text)
    if written is None:
        return []
    starts = [start for day_first in (True, False) if (start := written.stamp_or_none(day_first)) is not None]
    return [label for label in dates if any(_within(as_datetime(label), start, written) for start in starts)]


def _within(moment: dt.datetime, start: dt.datetime, written: WrittenDate) -> bool:
    if written.offset is not None and moment.tzinfo is not None:
        return moment == start.replace(tzinfo=dt.timezone(written.offset))
    moment = moment.replace(tzinfo=None)
    if written.clock is not None:
        return moment == start
    if written.monthly:
        return (moment.year, moment.month) == (start.year, start.month)
    return start <= moment < start + dt.timedelta(days=7 if written.week is not None else 1)


def short_labels(labels: Sequence[Any]) -> list[str]:
    """Labels as briefly as they can be told apart on a picture: dates without what they all share, others as they are.

    Whole years as 2024, firsts of months as Mar 2024 (Mar where all are of one year), days as 5 Mar (5 Mar 2024), moments of one day
    as 14:00, other moments as 5 Mar 14:00.
    """
    if not labels or not all(is_date(label) for label in labels):
        return [str(label) for label in labels]
    moments = [as_datetime(label) for label in labels]
    form = _short_form(moments)
    return [form.format(m, _SHORT_MONTHS[m.month - 1]) for m in moments]


def _short_form(moments: Sequence[dt.datetime]) -> str:
    """The format of the shortest labels, of a moment {0} and the name of its month {1}."""
    years, months, days, dates = map(
        set, zip(*((m.year, m.month, m.day, m.date()) for m in moments), strict=True)
    )
    year = " {0.year}" if len(years) > 1 else ""
    clock = _clock_form({m.time() for m in moments})
    if clock:
        return clock if len(dates) == 1 < len(moments) else "{0.day} {1}" + year + " " + clock
    if len(moments) == 1 or days != {1}:
        return "{0.day} {1}" + year
    return "{0.year}" if year and months == {1} else "{1}" + year


def _clock_form(times: set[dt.time]) -> str:
    """The format of the time of day; nothing where all are midnight."""
    if times == {dt.time()}:
        return ""
    return "{0:%H:%M:%S}" if any(t.second for t in times) else "{0:%H:%M}"
