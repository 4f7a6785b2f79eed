"""How much memory there is, how much may be taken, and the refusal of what takes more.

What will be taken is known from shapes before anything is allocated, so `require` can refuse with both numbers. The limit is, in
this order: what the caller passes; `limited` (a block of code); the environment variable ``HEADCOUNT_MEMORY``, such as ``8GB``;
`SHARE` of the memory that is free now.
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from pathlib import Path
from typing import Any

from headcount.errors import ModelError

_UNITS = {
    f"{prefix}{binary}": (1024 if binary else 1000) ** power
    for power, prefix in enumerate(("", "K", "M", "G", "T"))
    for binary in ("", "I")
}
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*((?:[KMGT]I?)?)B?\s*$", re.IGNORECASE)
VARIABLE = "HEADCOUNT_MEMORY"
"""The environment variable that sets the limit."""
SHARE = 0.8
"""Share of the free memory that may be taken unless the user says otherwise: room for copies that are not counted."""
UNKNOWN_FREE = 2**31
"""Bytes taken as free where the system does not say how much is: 2 GiB, which every machine we know of has."""
_ALWAYS_ALLOWED = 2**24
"""Bytes (16 MiB) up to which the system is not asked how much is free: reading it costs about 50 microseconds."""

COPIES_READ = 4
"""Copies of a binary array that reading a table makes: the array, the tidy table, its columns as labels and as numbers."""

_limit: ContextVar[int | None] = ContextVar("headcount_memory_limit", default=None)


class TooLargeError(ModelError):
    """A computation that would take more memory than it may."""


@contextmanager
def limited(size: int | str) -> Iterator[None]:
    """Set the limit for a block of code, in bytes or as text.

    Examples
    --------
    >>> from headcount import memory
    >>> with memory.limited("1MB"):
    ...     memory.limit()
    1000000
    """
    token = _limit.set(checked_limit(size))
    try:
        yield
    finally:
        _limit.reset(token)


def limit() -> int:
    """Bytes that one computation may take now."""
    chosen = _chosen()
    if chosen is not None:
        return chosen
    free = free_memory()
    return int(SHARE * (UNKNOWN_FREE if free is None else free))


_allowed = limit  # by another name where an argument is called limit


def _chosen() -> int | None:
    """The limit the user set, if any."""
    block = _limit.get()
    if block is not None:
        return block
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    try:
        return parse_size(text)
    except ValueError as error:
        raise ModelError(f"the environment variable {VARIABLE}: {error}") from None


def checked_limit(value: Any) -> int | None:
    """A limit as bytes: a whole number of 0 or more, text such as "8GB", or None for the module's own."""
    if value is None:
        return None
    try:
        size = parse_size(value) if isinstance(value, str) else operator.index(value)
    except (TypeError, ValueError):
        size = -1
    if size < 0 or isinstance(value, bool):
        raise ModelError(
            f"memory_limit is {str(value)[:80]!r} ({type(value).__name__}): give bytes, or text such as 8GB"
        )
    return size


def require(needed: int, what: str, *, limit: int | None = None, remedy: str = "make it smaller") -> None:
    """Refuse, before anything is allocated, what takes more bytes than the limit.

    Parameters
    ----------
    needed
        Bytes that will be taken.
    what
        Its name, with which the message begins.
    limit
        Bytes allowed; the module's `limit` if None.
    remedy
        What the user can do besides raising the limit.

    Raises
    ------
    TooLargeError
        With both numbers.
    """
    if limit is None and needed <= _ALWAYS_ALLOWED and _chosen() is None:
        return
    allowed = _allowed() if limit is None else int(checked_limit(limit) or 0)
    if needed > allowed:
        raise TooLargeError(
            f"{what} would take {readable_bytes(needed)} of memory and the limit is {readable_bytes(allowed)}: "
            f"{remedy}, or raise the limit (memory_limit where there is one, or the environment variable {VARIABLE}=8GB)"
        )


def held_memory() -> tuple[int, int]:
    """Bytes that this process holds now, and the most that it has held; zeros where the system does not say."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            found = {name: rest.split() for name, _, rest in (line.partition(":") for line in status)}
        return 1024 * int(found["VmRSS"][0]), 1024 * int(found["VmHWM"][0])
    except (OSError, KeyError, ValueError):
        return 0, 0


def free_memory() -> int | None:
    """Bytes that can be had without swapping, within the limits of a container; None where the system does not say."""
    found = [v for v in (_available(), _container()) if v is not None]
    return min(found) if found else None


def parse_size(text: str) -> int:
    """Bytes of "8GB", "500 MB", "2GiB" or a plain number."""
    match = _SIZE.match(text)
    if match is None:
        raise ValueError(f"a size is a number and a unit, such as 8GB or 500MB; got {text!r}")
    return int(Fraction(match[1]) * _UNITS[match[2].upper()])


def readable_bytes(size: float) -> str:
    """Bytes as people write them: 1.3 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.2g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def _available() -> int | None:
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        try:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (ValueError, OSError, AttributeError):
            return None
    match = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return None if match is None else int(match[1]) * 1024


def _container() -> int | None:
    """What a control group still allows (version 2, then 1)."""
    for most, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            allowed, taken = (Path(p).read_text(encoding="ascii").strip() for p in (most, used))
        except OSError:
            continue
        if allowed.isdigit() and int(allowed) < 2**60:
            return max(int(allowed) - int(taken), 0)
    return None
