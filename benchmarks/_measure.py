"""How time and memory are measured."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._report import ROOT


def best_of(repeat: int, work: Callable[[], Any], *, warm: bool = True) -> tuple[float, Any]:
    """The shortest of several wall times in seconds, and the last answer; one run first to compile and fill caches."""
    if warm:
        work()
    shortest, answer = np.inf, None
    for _ in range(repeat):
        start = time.perf_counter()
        answer = work()
        shortest = min(shortest, time.perf_counter() - start)
    return float(shortest), answer


def peak_memory() -> float:
    """The most memory this process has held, in GiB.

    Linux tells the high-water mark of the program itself; ``getrusage``, used elsewhere, counts what its parent held when it started it.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 2**20
    scale = 2**30 if sys.platform == "darwin" else 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def in_child(
    module: str, arguments: Sequence[Any] = (), *, python: str | None = None, timeout: float = 900
) -> Any:
    """Run ``python -m module arguments…`` on its own; the last line it prints is JSON, and is what it found.

    Raises
    ------
    RuntimeError
        With the end of what it wrote, when it fails or takes too long.
    """
    command = [python or sys.executable, "-m", module, *(str(a) for a in arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"took longer than {timeout:.0f} s") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(lines[-1][:300])
    return json.loads(done.stdout.strip().splitlines()[-1])


def exponent(points: Sequence[tuple[float, float]], *, last: int = 3) -> float:
    """Slope of log y against log x over the last points: the exponent that larger sizes will see."""
    tail = [(x, y) for x, y in points if x > 0 and y > 0][-last:]
    if len(tail) < 2:
        return float("nan")
    x, y = np.log(np.array(tail)).T
    return float(np.polyfit(x, y, 1)[0])


def distance(estimate: np.ndarray, reference: np.ndarray) -> float:
    """‖estimate − reference‖₁ / ‖reference‖₁: the paper's measure of error."""
    return float(np.abs(estimate - reference).sum() / np.abs(reference).sum())
