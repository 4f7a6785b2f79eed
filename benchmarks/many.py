"""Claim: two local workers finish many problems at least 1.7 times as fast as one, and a killed worker loses none.

One worker is the process itself, which sends nothing back and forth. Every worker has inferred a problem before the clock starts.
"""

from __future__ import annotations

import os
import signal
import threading
import time

import psutil
from joblib.externals.loky import get_reusable_executor

import headcount as hc
from benchmarks._problems import birds
from benchmarks._report import Check, Report, Table


def run(*, quick: bool) -> Report:
    """The same problems with one worker, two, and two of which one is killed on the way."""
    how_many = 12 if quick else 200
    problems = [birds(6, 1080, rng=k)[1] for k in range(how_many)]
    rows = []
    for workers in (1, 2):
        hc.infer_many(problems[: 2 * workers], workers=workers, progress=False)
        start = time.perf_counter()
        found = hc.infer_many(problems, workers=workers, progress=False)
        rows.append([f"{workers} worker{'s' * (workers > 1)}", time.perf_counter() - start, len(found)])
    rows.append(["2 workers, one killed", *_with_a_kill(problems, after=0.3 * rows[1][1])])
    get_reusable_executor().shutdown()
    checks = [
        Check("throughput, two workers ÷ one", rows[0][1] / rows[1][1], at_least=1.7),
        Check("problems answered with one worker killed", rows[2][2], at_least=how_many),
    ]
    title = f"{how_many} problems of 36 cells and 20 times"
    table = Table(title, ["how", "seconds", "answered"], rows)
    return Report("many", __doc__.splitlines()[0], checks=checks, tables=[table], seeds=list(range(how_many)))


def _with_a_kill(problems: list[hc.Problem], *, after: float) -> tuple[float, int]:
    """Seconds and answers of two workers, the first of which is killed after some seconds."""

    def kill() -> None:
        busy = [p for p in psutil.Process().children() if p.cpu_times().user > after / 4]
        os.kill(busy[0].pid, signal.SIGKILL)

    timer = threading.Timer(after, kill)
    start = time.perf_counter()
    timer.start()
    found = hc.infer_many(problems, workers=2, progress=False)
    timer.join()
    return time.perf_counter() - start, len(found)
