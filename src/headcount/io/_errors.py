"""One error for everything that is wrong with files and tables, each with file, row and remedy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headcount.individual import FaultsError

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROWS = 5


class TableError(FaultsError):
    """Files or tables that cannot be right; each problem names the file and the rows, as an editor counts lines."""


@dataclass
class Findings:
    """What was found so far: problems, which end the reading once all are known, and notes, which are only said."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def problem(
        self, file: str, text: str, rows: Sequence[int] | None = None, values: Sequence[Any] | None = None
    ) -> None:
        """Something that cannot be right: `text` says what and the remedy; many rows make one line."""
        where = f"{file}, {_rows(rows)}" if rows is not None and len(rows) else file
        shown = "" if values is None else f" (got {_few([repr(v) for v in values])})"
        self.problems.append(f"{where}: {text}{shown}")

    def note(self, text: str) -> None:
        """Something that was decided for the user, or that looks odd."""
        self.notes.append(text)

    def raise_any(self) -> None:
        """Raise a `TableError` if there is a problem."""
        if self.problems:
            raise TableError(self.problems)


def _rows(rows: Sequence[int]) -> str:
    shown = ", ".join(str(int(r)) for r in rows[:_ROWS])
    if len(rows) > _ROWS:
        shown += f" and {len(rows) - _ROWS} more"
    return f"row {shown}" if len(rows) == 1 else f"rows {shown}"


def _few(texts: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(texts))
    return ", ".join(distinct[:_ROWS]) + (", …" if len(distinct) > _ROWS else "")
