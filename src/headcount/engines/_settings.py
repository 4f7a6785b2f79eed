"""Engine settings, checked where they are given: a setting of the wrong type or out of range is refused with what is allowed.

An engine declares one :class:`Rule` per setting in its class variable ``rules``; :class:`headcount.engines.Engine` checks them all when
it is made, and reports everything that is wrong at once.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Rule(NamedTuple):
    """What a setting may be."""

    expected: str
    """In words, after "must be"."""
    holds: Callable[[Any], bool]


def number(*, above: float = 0.0, most: float = math.inf) -> Rule:
    """A finite real number in (above, most]."""
    words = f"a number above {above:g}" + ("" if math.isinf(most) else f" and at most {most:g}")

    def holds(value: Any) -> bool:
        real = isinstance(value, Real) and not isinstance(value, bool)
        return real and math.isfinite(value) and above < value <= most

    return Rule(words, holds)


def whole(*, least: int = 1) -> Rule:
    """A whole number, at least ``least``."""
    return Rule(
        f"a whole number, at least {least}",
        lambda value: (
            isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= least
        ),
    )


def flag() -> Rule:
    """True or False."""
    return Rule("True or False", lambda value: isinstance(value, bool))


def one_of(*choices: str) -> Rule:
    """One of some words."""
    return Rule(
        f"one of {', '.join(map(repr, choices))}",
        lambda value: isinstance(value, str) and value in choices,
    )


def or_none(rule: Rule) -> Rule:
    """The same, or None."""
    return Rule(f"{rule.expected}, or None", lambda value: value is None or rule.holds(value))


def check_settings(engine: Any, rules: Mapping[str, Rule]) -> None:
    """Raise one ValueError that names every setting that breaks its rule, what came and what is expected."""
    wrong = [
        f"{name} must be {rule.expected}, got {getattr(engine, name)!r}"
        for name, rule in rules.items()
        if not rule.holds(getattr(engine, name))
    ]
    if wrong:
        raise ValueError(f"{type(engine).__name__}: {'; '.join(wrong)}")
