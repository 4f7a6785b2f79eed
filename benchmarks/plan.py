"""Claim: what ``plan`` predicts is what a run takes, within a factor of 1.5: memory, time, and the memory of writing the results.

Every run has a process of its own. Memory is the peak of its resident set above what it held before: library and problem loaded, engine
and writer warmed on a tiny problem, kernels compiled (``HEADCOUNT_COMPILE=always``: where nothing is compiled yet, a small problem is
answered in NumPy instead, in a few tenths of a second more). Time is its processor time, divided by the threads that share it, so that a
busy machine does not count. The constants in ``engines/_cost.py`` were fitted to the numbers of such runs.
"""

from __future__ import annotations

from typing import Any

from benchmarks._measure import in_child
from benchmarks._report import Check, Report, Table

LEAST, MOST = 0.67, 1.5
CASES: tuple[dict[str, Any], ...] = (
    {"engine": "TiltedEP", "side": 10, "steps": 8, "population": 3000},
    {"engine": "TiltedEP", "side": 6, "steps": 60, "population": 1080},
    {"engine": "Laplace", "side": 10, "steps": 8, "population": 3000},
    {"engine": "MAP", "side": 15, "steps": 8, "population": 5000},
    {"engine": "MAP", "side": 40, "steps": 8, "population": 20000, "reach": 4},
    {"engine": "PathGibbs", "side": 6, "steps": 20, "population": 1080},
)
QUICK = tuple({**case, "side": 6, "steps": 6, "population": 500} for case in CASES[:1])


def run(*, quick: bool) -> Report:
    """Every case in a process of its own, what was planned beside what was taken."""
    rows, checks = [], []
    for case in QUICK if quick else CASES:
        found = in_child("benchmarks._planned", [f"{k}={v}" for k, v in case.items()])
        name = f"{case['engine']}, L = {case['side'] ** 2}, T = {case['steps']}, N = {case['population']}"
        for what in ("memory", "writing", "seconds"):
            planned, taken = found["planned"][what], found["taken"][what]
            unit = 1.0 if what == "seconds" else 1e6
            rows.append([name, what, planned / unit, taken / unit, planned / taken])
            checks.append(Check(f"{name}: {what}, plan ÷ run", planned / taken, at_least=LEAST, at_most=MOST))
    table = Table("Plan and run (MB, s)", ["problem", "what", "planned", "taken", "ratio"], rows)
    return Report("plan", __doc__.splitlines()[0], checks=checks, tables=[table], seeds=[1])
