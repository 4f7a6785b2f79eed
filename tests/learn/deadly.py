"""An engine that takes its process down with it, once: what a cluster must survive."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from headcount.engines import MAP, Engine, Outcome
from headcount.observe import Problem


@dataclass(frozen=True)
class Deadly(Engine):
    """MAP, but the first worker that comes by after `harmless` runs is killed as by ``kill -9``."""

    folder: str
    home: int
    """The process that is spared: where the fit was called."""
    harmless: int = 5
    name: ClassVar[str] = "Deadly"

    def _run(self, problem: Problem, rng: np.random.Generator, progress: bool | None, start: Any) -> Outcome:
        """See `Engine`."""
        folder = Path(self.folder)
        if os.getpid() != self.home:
            (folder / f"run-{os.getpid()}-{len(list(folder.iterdir()))}").touch()
            if len(list(folder.iterdir())) > self.harmless and not (folder / "killed").exists():
                (folder / "killed").write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
        return MAP().run(problem, rng=rng, progress=progress, start=start)
