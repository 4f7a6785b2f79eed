"""One run in a process of its own, beside its plan: ``python -m benchmarks._planned engine=TiltedEP side=10 …``."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headcount as hc
from benchmarks._problems import birds
from headcount import engines
from headcount.io import write_results

SHORT = {
    "PathGibbs": {"burn_in": 6, "sweeps": 20, "batches": 2},
}
LONG = {"PathGibbs": {"burn_in": 30, "sweeps": 150}}


def held(key: str) -> int:
    """Bytes of this process: ``VmRSS`` now, or ``VmHWM`` at the most since the last reset (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(key))


def peak_of(work: Callable[[], Any]) -> tuple[Any, int, float]:
    """The answer, bytes above what was held before, and processor seconds."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    before, start = held("VmRSS"), time.process_time()
    answer = work()
    return answer, held("VmHWM") - before, time.process_time() - start


def main(*options: str) -> None:
    """Warm up, plan, run, write; print both."""
    os.environ["HEADCOUNT_COMPILE"] = "always"  # the plan is that of compiled kernels
    given = dict(option.split("=") for option in options)
    name, side = given["engine"], int(given["side"])
    sparse: dict[str, Any] = (
        {"max_distance": float(given["reach"]), "sparse": True} if "reach" in given else {}
    )
    make = getattr(engines, name)
    with tempfile.TemporaryDirectory() as folder:
        tiny = birds(2, 20, steps=3)[1]
        write_results(hc.infer(tiny, make(**SHORT.get(name, {})), rng=1, strict=False), Path(folder) / "tiny")
        problem = birds(side, int(given["population"]), steps=int(given["steps"]), **sparse)[1]
        engine = make(**LONG.get(name, {}))
        planned = engines.plan(problem, engine)
        posterior, memory, seconds = peak_of(lambda: hc.infer(problem, engine, rng=1, strict=False))
        _, writing, _ = peak_of(lambda: write_results(posterior, Path(folder) / "results"))
    print(
        json.dumps(
            {
                "planned": {
                    "memory": planned.memory,
                    "writing": planned.writing - planned.memory,
                    "seconds": planned.seconds,
                },
                "taken": {
                    "memory": memory,
                    "writing": writing,
                    "seconds": seconds / min(getattr(engine, "workers", 1), getattr(engine, "chains", 1)),
                },
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
