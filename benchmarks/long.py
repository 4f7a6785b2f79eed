"""Claim: a chain of any length is inferred in bounded memory, in time that grows with its length, and read back by time.

36 cells, 1080 individuals, Poisson counts at rate 1, steps that stay with .8; windows of 168 steps, 24 more for the answers; nodes and
flows with intervals written. The longest history is ten years of hours, T = 87 600; its last 300 times are compared with one run of its
last 400, whose unknown beginning is forgotten in the first 100.
"""

from __future__ import annotations

import resource
import shutil
import tempfile
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

import headcount as hc
from benchmarks._report import Check, Report, Table

CELLS, PEOPLE, SEED, HOURS = 36, 1080, 30, 87_600
LAST, FORGOTTEN = 400, 100
"""Times at the end of the longest history that one run infers, and those of them at which it still knows too little of the past."""


def run(*, quick: bool) -> Report:
    """Growing histories; the end of the longest, and a short one, against a single run."""
    lengths = (400, 800) if quick else (1000, 3000, HOURS)
    shutil.rmtree(_measured(problem(400))[1])  # compiled code is made before the clock starts
    rows, drift = [], 0.0
    for length in lengths:
        asked = problem(length)
        held = _peak()
        seconds, folder = _measured(asked)
        peak = _peak()
        size = sum(p.stat().st_size for p in folder.iterdir()) / 1e6
        begun = perf_counter()
        hc.io.read_long(folder, length // 2, length // 2 + 24)
        rows.append([length, seconds, 1000 * seconds / length, held, peak, size, perf_counter() - begun])
        if length == lengths[-1]:
            end = asked.between(length - min(LAST, length), length - 1)
            drift = _against_one_run(end, folder, FORGOTTEN)
        shutil.rmtree(folder)
    short = problem(400)  # last: one run of everything takes more memory than the windows
    folder = _measured(short)[1]
    off = _against_one_run(short, folder)
    shutil.rmtree(folder)
    per_step = [row[2] for row in rows]
    checks = [
        Check("time per step of the longest ÷ of the shortest", per_step[-1] / per_step[0], at_most=1.3),
        Check(
            "peak memory of the windows beyond the problem's own, longest − shortest (MB per 1000 times)",
            1000 * ((rows[-1][4] - rows[-1][3]) - (rows[0][4] - rows[0][3])) / (lengths[-1] - lengths[0]),
            at_most=10.0,
        ),
        Check("peak memory of the longest (MB)", rows[-1][4], at_most=2000.0),
        Check("the end of the longest against one run, largest difference (sd)", drift, at_most=0.1),
        Check("means against one run, largest difference (sd)", off, at_most=0.1),
    ]
    return Report(
        "long",
        "Long histories, window by window.",
        checks=checks,
        tables=[
            Table(
                "Growing histories",
                [
                    "times",
                    "CPU s",
                    "ms per step",
                    "peak before, the problem's (MB)",
                    "peak memory (MB)",
                    "written (MB)",
                    "a day read (s)",
                ],
                rows,
                "What grows with the length is the problem itself (its counts and their labels) and its fingerprint.",
            )
        ],
        seeds=[SEED],
    )


def problem(length: int) -> hc.Problem:
    """A simulated history."""
    rng = np.random.default_rng(SEED)
    moves = 0.8 * np.eye(CELLS) + 0.2 * rng.dirichlet(np.ones(CELLS), CELLS)
    n, counts = rng.multinomial(PEOPLE, np.full(CELLS, 1 / CELLS)), []
    for _ in range(length):
        counts.append(rng.poisson(n))
        n = rng.multinomial(n, moves).sum(axis=0)
    chain = hc.MarkovChain(np.full(CELLS, 1 / CELLS), moves, length=length)
    return hc.Problem(chain, PEOPLE, hc.Poisson(np.array(counts, dtype=float)))


def _peak() -> float:
    """Peak memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def _measured(asked: hc.Problem) -> tuple[float, Path]:
    """CPU seconds, and the folder that was written."""
    folder = Path(tempfile.mkdtemp())
    begun = process_time()
    hc.io.infer_long(asked, folder, progress=False)
    return process_time() - begun, folder


def _against_one_run(asked: hc.Problem, folder: Path, first: int = 0) -> float:
    """Largest difference of means in sds, from time number ``first`` of the single run on."""
    times = asked.model.variables[first::3]
    whole, nodes = hc.infer(asked), hc.io.read_long(folder, times[0], times[-1])
    return max(
        float(np.abs((nodes["mean"].sel(time=t).values - whole.node(t).mean) / whole.node(t).sd).max())
        for t in times
    )
