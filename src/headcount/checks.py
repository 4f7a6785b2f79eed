"""Arguments as plain numbers, or an error that names the argument, what came and what is expected."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from headcount._types import Array
from headcount.errors import ModelError

Made = TypeVar("Made")

LARGEST_COUNT = 2**53
"""Doubles count one by one up to here; nothing larger is a count."""
_REPR_LENGTH = 80
"""Characters of a wrong value that a message shows."""


def two_digits(value: float) -> str:
    """A number to two digits, written out: 160, not 1.6e+02."""
    return f"{float(f'{value:.2g}'):,.12g}"


def brief(value: Any) -> str:
    """A value for a message: its type, and its beginning when it is long."""
    try:
        text = " ".join(repr(value).split())
    except Exception:
        text = "?"
    text = text if len(text) <= _REPR_LENGTH else f"{text[:_REPR_LENGTH]}…"
    return f"{text} ({type(value).__name__})"


def numbers(values: Any, what: str, *, expected: str = "numbers in a rectangular array") -> Array:
    """`values` as a float array, C-ordered; itself when it is one.

    Text, dates, complex numbers and ragged lists are refused; None is NaN, which every caller has to refuse or to read as missing.

    Raises
    ------
    ModelError
        Naming `what`, the value and what is expected.
    """
    try:
        given = np.asarray(values)
        if given.dtype.kind in "biuf":
            return np.asarray(given, dtype=np.float64, order="C")
        if given.dtype.kind == "O" and not any(
            isinstance(v, (str, bytes, complex, dict)) for v in given.flat
        ):
            return np.asarray(given.astype(np.float64), order="C")
    except (TypeError, ValueError, OverflowError, AttributeError):
        pass
    raise ModelError(f"{what} is {brief(values)}: give {expected}")


def whole_number(
    value: Any, what: str, *, least: int = 0, most: int = LARGEST_COUNT, expected: str | None = None
) -> int:
    """`value` as an integer from `least` to `most`; a float that is a whole number will do, True and False will not."""
    count = None
    if not isinstance(value, (bool, np.bool_)):
        try:
            count = operator.index(value)
        except TypeError:
            if isinstance(value, (float, np.floating)) and float(value).is_integer():
                count = int(value)
    if count is None or not least <= count <= most:
        wanted = expected or f"a whole number from {least} to {_written(most)}"
        raise ModelError(f"{what} is {brief(value)}: give {wanted}")
    return count


def _written(most: int) -> str:
    return "2**53" if most == LARGEST_COUNT else str(most)


def finite_number(
    value: Any,
    what: str,
    *,
    least: float = -np.inf,
    most: float = np.finfo(float).max,
    expected: str = "a finite number",
) -> float:
    """`value` as a float from `least` to `most`; finite unless `most` is infinite."""
    number = np.nan
    if not isinstance(value, (bool, np.bool_, str, bytes, complex)):
        with suppress(TypeError, ValueError, OverflowError):
            number = float(value)
    if not max(least, -np.finfo(float).max) <= number <= most:
        raise ModelError(f"{what} is {brief(value)}: give {expected}")
    return number


def instance(value: Any, kind: type | tuple[type, ...], what: str, *, expected: str) -> Any:
    """`value`, if it is of that type."""
    if not isinstance(value, kind):
        raise ModelError(f"{what} is {brief(value)}: give {expected}")
    return value


def truth(value: Any, what: str) -> bool:
    """`value`, if it is True or False."""
    return bool(instance(value, (bool, np.bool_), what, expected="True or False"))


def attempt(problems: list[str], check: Callable[..., Made], *args: Any, **kwargs: Any) -> Made | None:
    """What a check makes of its arguments, or None with its complaints added to `problems`: so that all are reported at once."""
    try:
        return check(*args, **kwargs)
    except ModelError as error:
        problems += error.problems
        return None


def label(value: Any, what: str) -> Hashable:
    """`value`, if it can name something: text, a number, a date, a tuple of those."""
    try:
        hash(value)
        if bool(value == value):
            return value
    except (TypeError, ValueError):
        pass
    raise ModelError(f"{what} is {brief(value)}: give a name (text, a number, a date, or a tuple of those)")


def generator(rng: Any) -> np.random.Generator:
    """The random generator that a seed or generator stands for. None is refused: a result must be repeatable."""
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, np.random.SeedSequence | np.random.BitGenerator):
        return np.random.default_rng(rng)
    return np.random.default_rng(
        whole_number(
            rng,
            "rng",
            most=2**128,
            expected="a numpy.random.Generator, or a seed: a whole number of 0 or more",
        )
    )


def is_sequence(value: Any) -> bool:
    """Whether `value` is a list, a tuple, a range or an array of at least one axis (a string is none)."""
    return isinstance(value, (list, tuple, range)) or (hasattr(value, "__array__") and np.ndim(value) > 0)
