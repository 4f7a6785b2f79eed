"""A collector of faults: everything wrong is said at once, and equal faults of many entries in one line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headcount.observe._errors import ProblemError

_SHOWN = 5


@dataclass
class Complaints:
    """Faults found so far, in the order found; `raise_any` ends the collecting."""

    _found: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def add(self, what: str, text: str, entry: str | None = None, value: Any = None) -> None:
        """Note that `text` holds of `what`, and where: the entry's name and the value met there."""
        entries = self._found.setdefault((what, text), [])
        if entry is not None:
            entries.append(entry if value is None else f"{entry} (got {value:.15g})")

    def __bool__(self) -> bool:
        return bool(self._found)

    def lines(self) -> list[str]:
        """One line a fault: what, where, the first few values, why and the remedy."""
        lines = []
        for (what, text), entries in self._found.items():
            where = "; ".join(entries[:_SHOWN])
            if len(entries) > _SHOWN:
                where += f"; and {len(entries) - _SHOWN} more"
            lines.append(f"{what}: {text}" + (f" [{where}]" if where else ""))
        return lines

    def raise_any(self) -> None:
        """Raise a `ProblemError` if there was a fault."""
        if self._found:
            raise ProblemError(self.lines())
