"""Dates among labels, in any form in which people write them.

2024-05-31, 31.5.2024, 5/31/2024 2:00 PM, 31 mai 2024, May 2024, 2024-W22, with or without a time zone. `parse_date` reads one text without
deciding between day and month where both are possible; `find_date` finds the label that a text means; `short_labels` writes dates as
briefly as a picture wants them.
"""

from __future__ import annotations

import datetime as dt
import re
import unicodedata
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

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
    """2024-05-31, or 2024-05-31T14:00:00 where it is not midnight; with its offset where it has a time zone."""
    whole = stamp.time() == dt.time() and stamp.tzinfo is None
    return stamp.date().isoformat() if whole else stamp.isoformat()


def parse_date(text: str) -> WrittenDate | None:
    """Parse a date; return None if the text is not one."""
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


def zoned_moment(label: Any) -> dt.datetime | None:
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
    # Files hold times with a zone as texts.
    moments = [(label, as_datetime(label) if is_date(label) else zoned_moment(label)) for label in labels]
    dates = [(label, moment) for label, moment in moments if moment is not None]
    month = month_of(text)
    if month is not None:
        return [label for label, moment in dates if moment.month == month]
    written = parse_date(text)
    if written is None:
        return []
    starts = [start for day_first in (True, False) if (start := written.stamp_or_none(day_first)) is not None]
    return [label for label, moment in dates if any(_within(moment, start, written) for start in starts)]


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
