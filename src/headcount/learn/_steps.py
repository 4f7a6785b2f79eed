"""Which steps of a chain are alike: classes of steps by calendar, cycle or label, and bases of functions of time.

A step belongs to the time at which it begins. Classes tie steps (one matrix, or one set of weights, per hour of the day); a basis
b(t) lets weights vary smoothly, w_t = Σ_m b_m(t) W_m.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount._types import Array
from headcount.checks import brief, finite_number, is_sequence, numbers, whole_number
from headcount.errors import ModelError
from headcount.learn._files import Saved

WEEKS = 52
"""Weeks of a cyclic year: days 365 and 366 belong to week 52, so that every year has the same weeks."""
SEASONS = ("winter", "spring", "summer", "autumn")
"""Meteorological seasons of the northern hemisphere, December first."""

Dates = NDArray[np.datetime64]


def _days(dates: Dates) -> NDArray[np.int64]:
    """Days since Monday, 29 December 1969."""
    return dates.astype("datetime64[D]").astype(np.int64) + 3


def _month(dates: Dates) -> NDArray[np.int64]:
    return dates.astype("datetime64[M]").astype(np.int64) % 12 + 1


def _day_of_year(dates: Dates) -> NDArray[np.int64]:
    return (dates.astype("datetime64[D]") - dates.astype("datetime64[Y]").astype("datetime64[D]")).astype(
        np.int64
    )


CALENDAR: dict[str, Callable[[Dates], Any]] = {
    "hour": lambda d: (d - d.astype("datetime64[D]")).astype("timedelta64[h]").astype(np.int64),
    "weekday": lambda d: _days(d) % 7,
    "weekend": lambda d: _days(d) % 7 >= 5,
    "week": lambda d: np.minimum(_day_of_year(d) // 7, WEEKS - 1) + 1,
    "month": _month,
    "season": lambda d: np.array(SEASONS, dtype=object)[_month(d) % 12 // 3],
}
"""Classes of dates by name: hour 0–23, weekday 0 (Monday) – 6, weekend False/True, week 1–52, month 1–12, season."""


def _dates(times: Sequence[Hashable], what: str) -> Dates:
    """Times as dates; refused in words where they are none."""
    found = []
    for time in times:
        try:
            if isinstance(time, (int, float, np.integer, np.floating)):
                raise ValueError("a number is no date")
            found.append(np.datetime64(time, "s"))  # type: ignore[call-overload]
        except (ValueError, TypeError) as error:
            raise ModelError(
                f"{what} needs times that are dates, the time {time!r} is none: name the times by dates, or give a whole "
                "number (the period of a cycle) or one label per step"
            ) from error
    return np.array(found, dtype="datetime64[s]")


def step_labels(by: Any, times: Sequence[Hashable]) -> tuple[Hashable, ...]:
    """The class of every step, T − 1 of them.

    Parameters
    ----------
    by
        A name of `CALENDAR`, or several in a list (their combinations); a whole number, the period of a cycle; or one label per
        step.
    times
        The chain's times.

    Examples
    --------
    >>> step_labels("weekday", ["2014-09-12", "2014-09-13", "2014-09-14"])
    (4, 5)
    >>> step_labels(2, [10, 11, 12, 13])
    (0, 1, 0)
    """
    before = list(times)[:-1]
    names = [by] if isinstance(by, str) else [str(name) for name in by] if is_sequence(by) else []
    if isinstance(by, str) or (names and set(names) <= set(CALENDAR)):
        return _calendar_labels(names, before)
    if isinstance(by, (int, np.integer)) and not isinstance(by, bool):
        return _cycle_labels(int(by), before)
    if not is_sequence(by):
        raise ModelError(f"by is {brief(by)}: {_CHOICES}")
    return _given_labels(by, len(before))


def _given_labels(by: Sequence[Any], steps: int) -> tuple[Hashable, ...]:
    """One label per step, as they were given."""
    labels = tuple(label.item() if isinstance(label, np.generic) else label for label in by)
    if len(labels) != steps:
        raise ModelError(f"by has {len(labels)} labels for {steps} steps: give one per step")
    return labels


_CHOICES = f"give one of {', '.join(CALENDAR)}, a period, or one label per step"


def _calendar_labels(names: Sequence[str], times: Sequence[Hashable]) -> tuple[Hashable, ...]:
    """What the calendar says of every time; of several names their combinations."""
    if unknown := [name for name in names if name not in CALENDAR]:
        raise ModelError(f"by is {unknown[0]!r}: {_CHOICES}")
    dates = _dates(times, f"by={', '.join(names)}")
    columns = [np.asarray(CALENDAR[name](dates)).tolist() for name in names]
    return tuple(columns[0] if len(names) == 1 else zip(*columns, strict=True))


def _cycle_labels(period: int, times: Sequence[Hashable]) -> tuple[Hashable, ...]:
    """The place of every time in a cycle: of whole-number times their remainder, of others that of their position."""
    whole_number(period, "by", least=1, expected="the period of a cycle, at least 1")
    whole = all(isinstance(t, (int, np.integer)) for t in times)
    places = [int(t) for t in times] if whole else range(len(times))  # type: ignore[call-overload]
    return tuple(place % period for place in places)


def classes_of(by: Any, chains: Sequence[Sequence[Hashable]]) -> tuple[Hashable, ...]:
    """The distinct classes of all chains' steps, in order where they can be ordered."""
    found = list(dict.fromkeys(label for times in chains for label in step_labels(by, times)))
    try:
        return tuple(sorted(found))  # type: ignore[type-var]
    except TypeError:
        return tuple(found)


def class_index(by: Any, times: Sequence[Hashable], classes: Sequence[Hashable]) -> NDArray[np.intp]:
    """For every step the position of its class, shape (T − 1,)."""
    place = {label: k for k, label in enumerate(classes)}
    labels = step_labels(by, times)
    absent = list(dict.fromkeys(label for label in labels if label not in place))
    if absent:
        raise ModelError(
            f"steps of the classes {absent[:4]} are not among those learned ({len(place)} classes): learn from data that have them"
        )
    return np.array([place[label] for label in labels], dtype=np.intp)


@dataclass(frozen=True)
class Periodic(Saved):
    """1, cos(2πh t/period), sin(2πh t/period), h = 1 … harmonics: weights that come round again.

    Parameters
    ----------
    period
        In units of the times where these are numbers (or in steps, where they are other labels); ``"day"``, ``"week"`` or
        ``"year"`` where they are dates.
    harmonics
        How many; the basis has 1 + 2·harmonics functions.

    Examples
    --------
    >>> Periodic(4).values([0, 1, 2, 3]).round(6).tolist()
    [[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [1.0, -1.0, 0.0]]
    """

    period: float | str
    harmonics: int = 1

    def __post_init__(self) -> None:
        whole_number(self.harmonics, "harmonics", least=1, expected="a whole number ≥ 1")
        if isinstance(self.period, str):
            if self.period not in _SECONDS:
                raise ModelError(f"period is {self.period!r}: give a number, or one of {', '.join(_SECONDS)}")
        elif not finite_number(self.period, "period", expected="a number > 0") > 0:
            raise ModelError(f"period is {self.period!r}: give a number > 0")

    @property
    def names(self) -> tuple[str, ...]:
        """One per function."""
        pairs = ((f"cos{h}", f"sin{h}") for h in range(1, self.harmonics + 1))
        return ("1", *(name for pair in pairs for name in pair))

    def values(self, times: Sequence[Hashable]) -> Array:
        """The functions at the beginning of every step, shape (T − 1, 1 + 2·harmonics)."""
        before = list(times)[:-1]
        if isinstance(self.period, str):
            dates = _dates(before, f"Periodic({self.period!r})")
            # Weeks begin on Monday, years on the first of January.
            since = (
                (dates - dates.astype("datetime64[Y]")).astype(np.int64)
                if self.period == "year"
                else (dates.astype(np.int64) + 3 * 86_400)
            )
            turn = since / _SECONDS[self.period]
        else:
            plain = all(isinstance(t, (int, float, np.integer, np.floating)) for t in before)
            turn = np.asarray(before if plain else range(len(before)), dtype=float) / float(self.period)
        angle = 2 * np.pi * turn[:, None] * np.arange(1, self.harmonics + 1)
        waves = np.stack([np.cos(angle), np.sin(angle)], axis=2).reshape(len(before), -1)
        return np.hstack([np.ones((len(before), 1)), waves])


@dataclass(frozen=True)
class Smooth(Saved):
    """Weights that drift: w_t = w + d_1 + … + d_t, with a ridge on the differences d.

    Parameters
    ----------
    ridge
        Strength of the prior −½ ridge Σ d², a number ≥ 0; ``"learned"``: one per feature, from the data (`Fit.shrinkage`). Large ones
        keep weights constant; the standard deviation of a difference is 1/√ridge.

    Examples
    --------
    >>> Smooth().values([0, 1, 2, 3]).tolist()
    [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
    """

    ridge: float | str = "learned"

    def __post_init__(self) -> None:
        if self.ridge != "learned":
            finite_number(self.ridge, "ridge", least=0.0, expected='a number ≥ 0, or "learned"')

    def values(self, times: Sequence[Hashable]) -> Array:
        """One column for the first weight, and one per difference, shape (T − 1, T − 1)."""
        return np.tri(len(times) - 1)

    def names(self, times: Sequence[Hashable]) -> tuple[str, ...]:
        """One per column."""
        return ("1", *(f"change@{t}" for t in list(times)[1:-1]))


_SECONDS = {"day": 86_400.0, "week": 7 * 86_400.0, "year": 365.2425 * 86_400.0}


def basis_values(basis: Any, times: Sequence[Hashable]) -> tuple[Array, tuple[str, ...]]:
    """A basis at every step, shape (T − 1, M), and its functions' names."""
    if isinstance(basis, Periodic):
        return basis.values(times), basis.names
    if isinstance(basis, Smooth):
        return basis.values(times), basis.names(times)
    values = numbers(basis, "basis", expected="Periodic(period), or one row of numbers per step")
    if values.ndim != 2 or len(values) != len(times) - 1 or not np.isfinite(values).all():
        raise ModelError(
            f"basis has the shape {values.shape} for {len(times) - 1} steps: give finite numbers (T − 1, M), or Periodic(period)"
        )
    return values, tuple(f"b{m + 1}" for m in range(values.shape[1]))
