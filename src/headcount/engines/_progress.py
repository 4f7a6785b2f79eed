"""A progress bar for long runs: rich, on a terminal only, and only once a run turns out to be long."""

from __future__ import annotations

import sys
import time
from typing import Any, Self


class Progress:
    """Counts steps; shows a bar after ``patience`` seconds when standard error is a terminal (or ``show=True``)."""

    def __init__(self, title: str, total: int, *, show: bool | None = None, patience: float = 1.5) -> None:
        self.title, self.total = title, total
        self.wanted = sys.stderr.isatty() if show is None else show
        self.patience = 0.0 if show else patience
        self._start = time.monotonic()
        self._steps = 0
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, residual: float | None = None, *, text: str | None = None) -> None:
        """One step done."""
        self._steps += 1
        if not self.wanted or (self._bar is None and time.monotonic() - self._start < self.patience):
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
        note = text if text is not None else ("" if residual is None else f"residual {residual:.2e}")
        self._bar.update(self._task, completed=self._steps, note=note)
