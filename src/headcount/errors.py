"""Errors that report everything that is wrong at once."""

from __future__ import annotations

from collections.abc import Iterable

_SHOWN = 20


class FaultsError(ValueError):
    """Input that cannot be right. Abstract: its kinds say what kind of input.

    Every problem found is in ``problems``; the message shows the first twenty and counts the rest. Each says
    what is wrong, the value that was met, and what to do about it.
    """

    problems: tuple[str, ...]

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__(self._message())

    def _message(self) -> str:
        if len(self.problems) == 1:
            return self.problems[0]
        lines = [f"{len(self.problems)} problems:", *(f"  - {text}" for text in self.problems[:_SHOWN])]
        if len(self.problems) > _SHOWN:
            lines.append(f"  - and {len(self.problems) - _SHOWN} more (see .problems)")
        return "\n".join(lines)


class ModelError(FaultsError):
    """A model, scope, table or file that cannot be right."""


class ProblemError(FaultsError):
    """A population or an observation that cannot be right."""


def raise_all(problems: Iterable[str]) -> None:
    """Raise a `ModelError` that names every problem; do nothing when there is none."""
    found = tuple(problems)
    if found:
        raise ModelError(found)
