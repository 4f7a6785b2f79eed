"""One error for everything that can be wrong with a problem, reported all at once."""

from __future__ import annotations

from collections.abc import Iterable

_SHOWN = 20


class ProblemError(ValueError):
    """A population or an observation that cannot be right.

    Every fault found is in ``problems``; the message shows the first twenty and counts the rest. Each says
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
