"""Errors that report everything that is wrong at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Made = TypeVar("Made")

_SHOWN = 20
"""Problems that a message lists; the rest is counted."""
_PLACES = 5
"""Places that one line lists; the rest is counted."""


class FaultsError(ValueError):
    """Input that cannot be right. Abstract: its kinds say what kind of input.

    Every problem found is in ``problems``; the message shows the first twenty and counts the rest. Each says
    what is wrong, the value that was met, and what to do about it.
    """

    problems: tuple[str, ...]

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        lines = [f"{len(self.problems)} problems:", *(f"  - {text}" for text in self.problems[:_SHOWN])]
        if len(self.problems) > _SHOWN:
            lines.append(f"  - and {len(self.problems) - _SHOWN} more (see .problems)")
        super().__init__(self.problems[0] if len(self.problems) == 1 else "\n".join(lines))


class TableError(FaultsError):
    """Files or tables that cannot be right; each problem names the file and the rows, as an editor counts lines."""


class ModelError(FaultsError):
    """A model, scope, table or file that cannot be right."""


class ProblemError(FaultsError):
    """A population or an observation that cannot be right."""


class TooLongError(ProblemError):
    """An exact sum would go through more than an engine may."""


class NoPopulationError(ProblemError):
    """No population that the model and its size allow agrees with the data."""


@dataclass
class Faults:
    """Faults found so far, in the order found; equal faults of many entries are one line, and `raise_any` raises them all.

    Parameters
    ----------
    error
        The kind of error that is raised.
    """

    error: type[FaultsError] = ModelError
    _found: dict[tuple[str, str], list[str]] = field(default_factory=dict, init=False)

    def add(self, what: str, text: str = "", entry: str | None = None, value: Any = None) -> None:
        """Note that `text` holds of `what`, and where: the entry's name and the value met there."""
        entries = self._found.setdefault((what, text), [])
        if entry is not None:
            entries.append(entry if value is None else f"{entry} (got {value:.15g})")

    def __bool__(self) -> bool:
        return bool(self._found)

    def __contains__(self, what: str) -> bool:
        return any(found == what for found, _ in self._found)

    def lines(self) -> list[str]:
        """One line per fault: what, why and the remedy, the first few places and values."""
        lines = []
        for (what, text), entries in self._found.items():
            where = "; ".join(entries[:_PLACES])
            if len(entries) > _PLACES:
                where += f"; and {len(entries) - _PLACES} more"
            lines.append(what + (f": {text}" if text else "") + (f" [{where}]" if where else ""))
        return lines

    def raise_any(self) -> None:
        """Raise the error if there was a fault."""
        if self._found:
            raise self.error(self.lines())


def raise_all(problems: Iterable[str]) -> None:
    """Raise a `ModelError` that names every problem; do nothing when there is none."""
    found = tuple(problems)
    if found:
        raise ModelError(found)


def repeated(names: Iterable[Hashable]) -> list[Hashable]:
    """The names that appear more than once."""
    seen: dict[Hashable, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    return [name for name, times in seen.items() if times > 1]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is nearest to a misspelt one, without regard to case, accents and marks; None where none is near."""
    import unicodedata
    from difflib import get_close_matches

    def plain(text: str) -> str:
        split = unicodedata.normalize("NFD", text.casefold())
        return "".join(c for c in split if c.isalnum())

    by_letters = {plain(text): text for text in reversed([*map(str, known)])}
    near = get_close_matches(plain(str(name)), list(by_letters), n=1, cutoff=0.75)
    return by_letters[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The known name that is nearest to a misspelt one, as a question in brackets; nothing where none is near."""
    found = nearest(name, known)
    return "" if found is None else f" (did you mean {found!r}?)"


def known_keywords(**instead: str) -> Callable[[Callable[Given, Made]], Callable[Given, Made]]:
    """Decorate a function so that a keyword it has not is named with the nearest it has, or with what to write ``instead``."""

    def decorate(function: Callable[Given, Made]) -> Callable[Given, Made]:
        takes = list(signature(function).parameters)

        @wraps(function)
        def wrapped(*given: Given.args, **named: Given.kwargs) -> Made:
            unknown = [name for name in named if name not in takes]
            if unknown:
                name = unknown[0]
                near = f": {instead[name]}" if name in instead else did_you_mean(name, takes)
                what = function.__qualname__.removesuffix(".__init__")
                raise TypeError(
                    f"{what} has no argument {name!r}{near}; it takes {', '.join(takes).removeprefix('self, ')}"
                )
            return function(*given, **named)

        return wrapped

    return decorate


def named(label: Any) -> str:
    """A label in a message: a date as people write it, anything else as Python does."""
    from headcount.dates import is_date, readable  # which loads NumPy; the command's help does without

    return readable(label) if is_date(label) else repr(label)


def shown(names: Iterable[Any], most: int = 8) -> str:
    """A few of many names, for messages."""
    names = list(names)
    text = ", ".join(map(named, names[:most]))
    return text if len(names) <= most else f"{text}, ... ({len(names)} in all)"
