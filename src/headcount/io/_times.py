"""The times of a problem: dates read from whole columns, then in order; numbers by size, dates by date, other texts as they appear."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headcount.dates import WrittenDate, iso_text, month_of, parse_date
from headcount.io.source import Findings, Source, listed
from headcount.labels import are_margins

if TYPE_CHECKING:
    from headcount._types import Array

INTEGER = re.compile(r"^(0|-?[1-9]\d{0,17})$")
DECIMAL = re.compile(r"^-?(0|[1-9]\d{0,14})(\.\d{1,15})?$")
_DATE = re.compile(r"^\d{4}-\d{2}(-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?([+-]\d{2}:\d{2})?)?)?)?$")
_ISO = re.compile(r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2})?)?$", re.ASCII)
_COMPACT = re.compile(r"^((?:19|20)\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])$")
_GAPS = (
    "add rows with an empty count for times at which nobody looked, or say that they are successive steps all the same "
    "(uneven=True, --uneven)"
)
_LENGTH = re.compile(r"^(\d+(?:\.\d+)?)\s*(w|d|h|min|s)?(?:eeks?|ays?|ours?|utes?|econds?)?$")
_SECONDS = {"w": 604_800, "d": 86_400, "h": 3600, "min": 60, "s": 1}
_EVEN_STEPS = 1e-3
"""Steps between decimal times may differ by this share of the smallest: thirds written with four decimals do by 3e-4."""
_CLEAR_STEPS = 3
"""So many of the smallest steps, and two thirds of the times that they make, show what the step is: the times between are added as
times at which nobody looked. With fewer, a gap is refused. Chosen so that a missing week in a month is asked about."""


# --- one column: what its texts mean


def time_texts(texts: Sequence[str], source: Source, order: str | None) -> list[str]:
    """The distinct texts of a column of times: dates as 2024-05-31, numbers without trailing zeros, others as they are.

    Whether day or month comes first is said by `order` (day-first, month-first) or decided from the whole column. What cannot be decided
    is a problem; reading goes on with the order that gives the more even steps, so that everything else that is wrong is found too.
    """
    texts = list(map(_without_zeros, texts))
    given = list(filter(None, texts))
    if all(map(DECIMAL.match, given)):
        return _compact_dates(texts, given, source)
    with suppress(
        ValueError
    ):  # at once: 20 000 hours in a tenth of the time; which are no dates is said below
        return _iso_dates(texts)
    dates = {t: date for t in given if (date := parse_date(t)) is not None}
    other = [t for t in given if t not in dates]
    if not other:
        return _date_texts(dates, texts, source, order)
    if _pairs(dates):
        text = "not a date, as other times are, so that day and month cannot be told apart: take such rows out, or write 2024-05-31"
        source.problem(text, values=other)
    return texts


def _iso_dates(texts: list[str]) -> list[str]:
    """Dates that are all written as 2024-05-31 14:00; a ValueError where one is written otherwise, or there is no such day."""
    if not all(map(_ISO.match, filter(None, texts))):
        raise ValueError
    return [t and iso_text(dt.datetime.fromisoformat(t)) for t in texts]


def _compact_dates(texts: list[str], given: Sequence[str], source: Source) -> list[str]:
    """Numbers such as 20240531 as dates, where all are; other numbers as they are."""
    if not given or not all(map(_COMPACT.match, given)):
        return texts
    source.note(f"times such as {given[0]} are read as dates, year, month, day")
    return [_COMPACT.sub(r"\1-\2-\3", t) for t in texts]


def _pairs(dates: Mapping[str, WrittenDate]) -> dict[str, tuple[int, int]]:
    """The two numbers of which one is the day and one the month, of the dates that do not say which."""
    return {t: date.pair for t, date in dates.items() if date.pair is not None}


def _without_zeros(text: str) -> str:
    """1.50 as 1.5 and 1.0 as 1: one time, however its decimals are written."""
    return text.rstrip("0").rstrip(".") if "." in text and DECIMAL.match(text) else text


def _date_texts(
    dates: Mapping[str, WrittenDate], texts: Sequence[str], source: Source, order: str | None
) -> list[str]:
    """The texts of a column of dates in the form 2024-05-31."""
    day_first = _day_first(dates, source, order)
    made = {}
    for t, date in dates.items():
        try:
            made[t] = date.text(day_first=day_first)
        except ValueError:
            source.problem("there is no such date: correct it", values=[t])
            made[t] = t
    short = next((t for t, date in dates.items() if date.short_year), None)
    if short is not None:
        source.note(f"years with two digits are read so: {short!r} as {made[short]}")
    read = _in_one_zone(dates, made, source, day_first=day_first)
    return [read.get(t, t) for t in texts]


def _day_first(dates: Mapping[str, WrittenDate], source: Source, order: str | None) -> bool:
    """Whether the day comes before the month, from all dates of a column: a number above 12 is a day."""
    pairs = _pairs(dates)
    shown = {  # the first date that shows each order
        first: t
        for t, pair in reversed(pairs.items())
        for first, number in zip(("day", "month"), pair, strict=True)
        if number > 12
    }
    if len(shown) == 2:
        text = (
            f"day and month cannot be told apart: {shown['day']!r} has the day first, {shown['month']!r} the month: write dates as "
            "2024-05-31"
        )
        source.problem(text)
        return True
    if order is not None or not pairs:
        return order != "month-first"
    if not shown:
        return _undecided(dates, pairs, source)
    ((first, example),) = shown.items()
    source.note(f"dates have the {first} first, as {example!r} shows")
    return first == "day"


def _undecided(dates: Mapping[str, WrittenDate], pairs: Iterable[str], source: Source) -> bool:
    """Whether the day comes first where no number shows it: it does in dates with dots; others are a problem."""
    example = next(iter(pairs))
    if all(dates[t].dotted for t in pairs):
        source.note(f"dates with dots are read with the day first: {example!r} as {dates[example].text()}")
        return True
    both = " or ".join(dates[example].text(day_first=order) for order in (True, False))
    text = (
        f"day and month cannot be told apart, {example!r} is {both}: say which comes first (dates='day-first', --dates day-first; or "
        "month-first), or write dates as 2024-05-31"
    )
    source.problem(text)
    return _distinct_steps(dates, day_first=True) <= _distinct_steps(dates, day_first=False)


def _distinct_steps(dates: Mapping[str, WrittenDate], *, day_first: bool) -> int:
    stamps = sorted(date.stamp(day_first=day_first) for date in dates.values())
    return len({after - before for before, after in pairwise(stamps)})


def _in_one_zone(
    dates: Mapping[str, WrittenDate], made: dict[str, str], source: Source, *, day_first: bool
) -> dict[str, str]:
    """The texts, in ISO 8601 with their offsets where they have time zones; some with and some without are a problem."""
    offsets = {date.offset for date in dates.values()}
    if offsets == {None}:
        return made
    if None in offsets:
        source.problem(
            "some times have a time zone and some have none: write all in one way",
            values=[t for t, date in dates.items() if date.offset is None],
        )
        return made
    if len(offsets) > 1:
        source.note(
            "the times have different offsets (summer and winter time, or several zones): they are kept and compared as moments"
        )
    stamps = {t: date.stamp(day_first=day_first) for t, date in dates.items()}
    return {
        t: s.replace(tzinfo=dt.timezone(dates[t].offset or dt.timedelta())).isoformat()
        for t, s in stamps.items()
    }


def looks_like_times(values: Sequence[Any]) -> bool:
    """Whether the entries of a column are dates, or numbers, rather than names."""
    texts = [v.strip() for v in values if isinstance(v, str) and v.strip()]
    return all(DECIMAL.match(t) or parse_date(t) or month_of(t) for t in texts)


# --- times beside those of the counts


def snapped(source: Source, times: Times, within: str | None) -> Source:
    """The table with every time that is none of ``times`` moved to the nearest one, where that is no further than ``within``.

    How many are moved, and how far, is noted. Times that are further away, and all where ``within`` is None, are problems. Of positions
    of one individual (role "id") that come to the same time, the nearest to it is kept, and that is noted too.
    """
    stray = (source.positions("time", times.texts) < 0) & (source["time"] != "")
    if not stray.any():
        return source
    ends = f"the times of the counts are {times.texts[0]} … {times.texts[-1]}"
    scale, given = _scale(times.texts), _scale(source["time"][stray].tolist())
    if scale is None or given is None or scale.dated != given.dated:
        source.refuse(stray, f"unknown time: correct it, or leave the row out ({ends})", source["time"])
        return source
    apart = np.abs(given.values[:, None] - scale.values[None])
    place, far = apart.argmin(axis=1), apart.min(axis=1)
    if within is None:
        source.refuse(stray, _asked_to_snap(scale, far, len(stray), ends), source["time"])
        return source
    limit = scale.tolerance(within)
    if limit is None:
        like = "3d or 12h" if scale.dated else "a number, as the times are"
        source.findings.problem("snap", f"give a length of time ({like}), got {within!r}")
        return source
    rows = np.flatnonzero(stray)
    beyond = np.isin(np.arange(len(stray)), rows[far > limit])
    text = f"further than {within} from every time of the counts ({ends}): correct it, leave the row out, or allow more (--snap)"
    source.refuse(beyond, text, source["time"])
    near = far <= limit
    made, distance = source["time"].copy(), np.zeros(len(stray))
    made[rows[near]] = np.array(times.texts, dtype=object)[place[near]]
    distance[rows] = far
    if near.any():
        source.note(
            f"{near.sum()} of {len(stray)} times lie between the times of the counts and are moved to the nearest, by "
            f"{scale.length(np.median(far[near]))} in the median and {scale.length(far[near].max())} at most"
        )
    return _one_position_each(source.having(time=made), distance)


def _asked_to_snap(scale: _Scale, far: Array, rows: int, ends: str) -> str:
    """What is wrong with times that are none of the counts', and the option that moves those that lie between them."""
    between = far <= np.diff(np.sort(scale.values)).max(initial=0.0) / 2
    if not between.any():
        return f"unknown time: correct it, or leave the row out ({ends})"
    least = scale.length(far[between].max(), short=True)
    rest = "correct them" if between.all() else "correct the others, or leave them out"
    return (
        f"unknown time: {len(far)} of {rows} are none of the counts' ({ends}), and {between.sum()} of them at most "
        f"{scale.length(far[between].max())} from the nearest: have these moved to it (snap={least!r}, --snap {least}); {rest}"
    )


def _one_position_each(source: Source, distance: Array) -> Source:
    """Without positions of an individual for whose time it has another one that was nearer to it."""
    if "id" not in source or "probability" in source:
        return source
    order = np.argsort(distance, kind="stable")
    taken = pd.DataFrame({role: source[role][order] for role in ("id", "time")}).duplicated().to_numpy()
    kept = np.ones(len(distance), dtype=bool)
    kept[order[taken]] = False
    if not kept.all():
        source.note(
            f"{(~kept).sum()} positions come to a time at which their individual has another one already; the one that was nearer to "
            "it is kept"
        )
    return source.where(kept)


@dataclass(frozen=True)
class _Scale:
    """Times as numbers: as they are, or dates in seconds."""

    values: Array
    dated: bool

    def length(self, value: float, *, short: bool = False) -> str:
        """A difference of two times in words; ``short`` as `tolerance` reads it, rounded up."""
        if not self.dated:
            return f"{value:.6g}"
        for size, unit, word in ((86_400, "d", "days"), (3600, "h", "hours"), (60, "min", "minutes")):
            if value >= size or unit == "min":
                return f"{int(np.ceil(value / size))}{unit}" if short else f"{value / size:.3g} {word}"
        return ""

    def tolerance(self, text: str) -> float | None:
        """The number that a length of time is; None where it is none."""
        found = _LENGTH.match(text.strip())
        if found is None or self.dated != bool(found[2]):
            return None
        return float(found[1]) * (_SECONDS[found[2]] if self.dated else 1.0)


def _scale(texts: Sequence[str]) -> _Scale | None:
    """Times that are all numbers, or all dates, on one scale; None for others."""
    if all(map(DECIMAL.match, texts)):
        return _Scale(np.array(texts, dtype=float), dated=False)
    if not all(map(_DATE.match, texts)):
        return None
    stamps = pd.to_datetime(pd.Series(list(texts), dtype=object), errors="coerce", format="ISO8601", utc=True)
    if stamps.isna().any():
        return None
    return _Scale((stamps - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy(), dated=True)


# --- all times of a problem, in order


@dataclass(frozen=True)
class Times:
    """The times in order: their texts, and the labels that the model gets."""

    texts: tuple[str, ...]
    labels: tuple[Hashable, ...]


@dataclass(frozen=True)
class _Series:
    """Times of one kind in order, and where they stand in smallest steps from the first.

    ``text_at`` writes the time at a place, where times that are missing can be added; ``gap`` says what is wrong with a gap, of the
    times before and after it. Steps may be longer than the smallest by the share ``tolerance``.
    """

    times: Times
    places: Sequence[Any]
    gap: str
    text_at: Callable[[int], str] | None = None
    tolerance: float = 0.0

    @property
    def widest(self) -> int | None:
        """The place in the order before the widest gap; None where the times are even."""
        steps = [after - before for before, after in pairwise(self.places)]
        k = max(range(len(steps)), key=steps.__getitem__, default=None)
        return None if k is None or steps[k] <= 1 + self.tolerance else k

    def absent(self) -> list[str]:
        """The times between that are missing, where all places are whole, enough are next to each other, and few are missing."""
        places = self.places
        if self.text_at is None or any(p != int(p) for p in places):
            return []
        single = sum(after - before == 1 for before, after in pairwise(places))
        if single < _CLEAR_STEPS or 3 * len(places) < 2 * (places[-1] + 1):
            return []
        taken = set(places)
        return [self.text_at(k) for k in range(int(places[-1])) if k not in taken]


def order_times(texts: Iterable[str], name: str, *, uneven: bool, findings: Findings) -> Times | None:
    """Numbers by size, dates by date, months by name, other texts as they appear (noted).

    A few times that are missing from an otherwise even series are added, with a note; other gaps are refused unless ``uneven``.
    """
    distinct = list(dict.fromkeys(filter(None, texts)))
    if not distinct:
        return None
    series = _series(distinct, name, findings)
    if series is None or uneven or series.widest is None:
        return None if series is None else series.times
    absent = series.absent()
    if absent and all(DECIMAL.match(t) or _DATE.match(t) for t in absent):
        findings.note(
            f"{name}: {len(absent)} of the times are missing ({listed(absent)}); they are taken as times at which nobody looked (--uneven "
            "takes those that are there as successive)"
        )
        return order_times([*distinct, *absent], name, uneven=True, findings=findings)
    before, after = series.times.texts[series.widest :][:2]
    findings.problem(name, f"{series.gap.format(before, after)} {_GAPS}")
    return series.times


def _series(distinct: Sequence[str], name: str, findings: Findings) -> _Series | None:
    """The times in order, by what they are; None where dates cannot be."""
    if all(map(DECIMAL.match, distinct)):
        return _numbers(distinct)
    if all(map(_DATE.match, distinct)):
        return _dates(distinct, name, findings)
    if len(distinct) > 1 and all(map(month_of, distinct)):
        return _months(distinct, name, findings)
    if are_margins(distinct):
        return _Series(Times(tuple(distinct), tuple(distinct)), range(2), "")
    findings.note(
        f"{name}: the times are neither numbers nor dates; taken in the order in which they appear: {listed(distinct, most=6)}"
    )
    return _Series(Times(tuple(distinct), tuple(distinct)), range(len(distinct)), "")


def _numbers(distinct: Sequence[str]) -> _Series:
    """Times that are numbers, whole or decimal, by size."""
    # Fractions, not floats: 0.3 − 0.2 and 0.2 − 0.1 differ in binary.
    values, texts = zip(*sorted((Fraction(t), t) for t in distinct), strict=True)
    first, least = values[0], min((b - a for a, b in pairwise(values)), default=Fraction(1))
    kind = int if all(map(INTEGER.match, distinct)) else float
    return _Series(
        Times(texts, tuple(map(kind, texts))),
        [(value - first) / least for value in values],
        f"the times step by {float(least):.10g}, but {{}} is followed by {{}}:",
        lambda k: str(first + k * least),
        _EVEN_STEPS,
    )


def _dates(distinct: Sequence[str], name: str, findings: Findings) -> _Series | None:

    stamps: dict[str, pd.Timestamp] = {}
    for t in distinct:
        try:
            stamps[t] = pd.Timestamp(t)
        except ValueError:
            findings.problem(name, "there is no such date: correct it", values=[t])
    if len(stamps) < len(distinct):
        return None
    if len({stamp.tz is None for stamp in stamps.values()}) == 2:
        findings.problem(
            name,
            "some times have a time zone and some have none: write all in one way",
            values=[t for t, stamp in stamps.items() if stamp.tz is None],
        )
        return None
    texts = sorted(distinct, key=stamps.__getitem__)
    labels = tuple(stamps[t] for t in texts)
    one = len({stamp.utcoffset() for stamp in labels}) == 1  # months and days are then those of the zone
    index = pd.DatetimeIndex(labels if one else [stamp.tz_convert("UTC") for stamp in labels])
    if not index.is_unique:
        findings.problem(name, "one date is written in two ways: write it in one")
        return None
    places, text_at = _steps(index)
    gap = "the dates are not evenly spaced: {} is followed by {};"
    return _Series(Times(tuple(texts), labels), places, gap, text_at)


def _steps(index: pd.DatetimeIndex) -> tuple[Sequence[float], Callable[[int], str] | None]:
    """Where the dates stand, in smallest steps from the first, and the text of the date at such a place.

    A step is a number of months where all are on the same day or at the end of their month, and otherwise a length of time.
    """
    if len(index) < 3:
        return range(len(index)), None
    ends = bool(index.is_month_end.all())
    first = index[0]
    if (len(set(index.day)) == 1 or ends) and len(set(index.time)) == 1:
        months = (12 * (index.year - first.year) + index.month - first.month).to_numpy()
        least = int(np.diff(months).min())
        if least > 0 and (np.diff(months) % least == 0).all():

            def month(k: int) -> str:
                moved = first + pd.DateOffset(months=k * least)
                return iso_text(moved + pd.offsets.MonthEnd(0) if ends else moved)

            return (months // least).tolist(), month
    since = (index - first).to_numpy()
    step = np.diff(since).min()
    return (since / step).tolist(), lambda k: iso_text(first + k * pd.Timedelta(step))


def _months(distinct: Sequence[str], name: str, findings: Findings) -> _Series:
    """Names of months without years: as they appear where each follows the one before (from October to March), else by the calendar."""
    order = [month_of(t) or 0 for t in distinct]
    if all((after - before) % 12 == 1 for before, after in pairwise(order)):
        return _Series(Times(tuple(distinct), tuple(distinct)), range(len(distinct)), "")
    order, texts = map(list, zip(*sorted(zip(order, distinct, strict=True)), strict=True))
    findings.note(
        f"{name}: the times are months; taken in the order of the calendar: {listed(texts, most=6)}"
    )
    least = max(1, min(after - before for before, after in pairwise(order)))
    places = [Fraction(k - order[0], least) for k in order]
    return _Series(Times(tuple(texts), tuple(texts)), places, "{} is followed by {}:")
