"""What every peer's module shares: arrays in, arrays out, times and memory told as one line of JSON. Imports NumPy only."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, Any]


def tell(package: str, solve: Callable[[Arrays], tuple[Arrays, dict[str, Any]]]) -> None:
    """Read the problem, solve it, write the answer: ``python -m benchmarks.peers.with_x problem.npz answer.npz``."""
    source, target = sys.argv[1:3]
    with np.load(source, allow_pickle=False) as file:
        problem = {name: file[name] for name in file.files}
    start = time.perf_counter()
    answer, more = solve(problem)
    told = {"seconds": time.perf_counter() - start, **more}
    np.savez(target, **answer)
    print(json.dumps({**told, "peak_gib": _peak(), "version": metadata.version(package)}))


def twice(
    work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter, later: int = 1
) -> tuple[Any, dict[str, float]]:
    """Run twice: the first time compiles, the second counts; of several ``later`` runs the quickest."""
    start = clock()
    answer = work()
    first = clock() - start
    rest = []
    for _ in range(later):
        start = clock()
        answer = work()
        rest.append(clock() - start)
    return answer, {"seconds": min(rest), "compile_seconds": max(first - min(rest), 0.0)}


def _peak() -> float:
    """The most memory this process has held, in GiB."""
    status = Path("/proc/self/status")
    if status.exists():
        marks = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        if marks:
            return int(marks[0].split()[1]) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
