"""A progress bar for long runs: rich on a terminal, one line that is written over in a notebook; only once a run turns out to be long."""

from __future__ import annotations

import sys
import time
from typing import Any, Self

_BAR = 30
"""Characters of the bar in a notebook."""


def in_notebook() -> bool:
    """Whether this runs in a notebook's kernel, whose output takes a line that is written over; rich would need ipywidgets there."""
    shell = sys.modules.get("IPython")
    found = shell.get_ipython() if shell is not None else None
    return type(found).__name__ == "ZMQInteractiveShell"


class Progress:
    """Counts steps; shows a bar after ``patience`` seconds on a terminal or in a notebook (or with ``show=True``)."""

    def __init__(self, title: str, total: int, *, show: bool | None = None, patience: float = 1.5) -> None:
        self.title, self.total = title, total
        self.notebook = in_notebook()
        self.wanted = (sys.stderr.isatty() or self.notebook) if show is None else show
        self.patience = 0.0 if show else patience
        self._start = time.monotonic()
        self._steps = 0
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None and self.notebook:
            print("\r" + " " * len(self._bar), end="\r", file=sys.stderr, flush=True)
        elif self._bar is not None:
            self._bar.stop()

    def advance(self, residual: float | None = None, *, text: str | None = None) -> None:
        """One step done."""
        self._steps += 1
        if not self.wanted or (self._bar is None and time.monotonic() - self._start < self.patience):
            return
        note = text if text is not None else ("" if residual is None else f"residual {residual:.2e}")
        if self.notebook:
            done = round(_BAR * min(self._steps / max(self.total, 1), 1.0))
            line = f"{self.title} {'█' * done}{'░' * (_BAR - done)} {self._steps}/{self.total}  {note}"
            print("\r" + line.ljust(len(self._bar or "")), end="", file=sys.stderr, flush=True)
            self._bar = line
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as Rich

            self._bar = Rich(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed}/{task.total}  {task.fields[note]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(self.title, total=self.total, note="")
            self._bar.start()
        self._bar.update(self._task, completed=self._steps, note=note)
