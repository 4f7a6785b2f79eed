"""Claim: weights of a sparse map of 2 500 cells are learned from counts alone; the time is told in inferences by MAP.

Times are CPU seconds, so that other work on the machine does not count.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

import headcount as hc
from benchmarks._measure import in_child, peak_memory
from benchmarks._report import Check, Report, Table
from headcount.engines import MAP, TiltedEP
from headcount.learn import LogisticChain, fit

NAMES, TRUE = ("stay", "east", "north", "food"), (1.0, 0.3, 0.0, 0.4)
PER_CELL = 20
"""Individuals per cell."""
CHILD_LIMIT = 5400.0
"""Seconds; a run of the full size on a loaded machine, not finished, had taken 15 CPU minutes."""


def run(*, quick: bool) -> Report:
    """Four weights of moves between neighbours: staying, two directions, what the destination offers."""
    side, times = (10, 8) if quick else (50, 52)
    found = in_child("benchmarks.large_fit", (side, times), timeout=CHILD_LIMIT)
    off = np.abs(np.array(found["estimate"]) - TRUE) / np.array(found["error"])
    checks = [
        Check("the search converged", float(found["good"]), at_least=1.0),
        Check("largest distance from the true weights, standard errors", float(off.max()), at_most=3.5),
        Check("time of the fit, MAP's inferences", found["fit"] / found["map"], at_least=0.0),
        Check("peak memory", found["memory"], at_most=6.0, unit="GiB"),
    ]
    rows = [list(row) for row in zip(NAMES, TRUE, found["estimate"], found["error"], strict=True)]
    work = [
        [what, found[what]] for what in ("map", "tilted", "fit", "wall seconds", "e_steps", "map e_steps")
    ]
    return Report(
        "large_fit",
        "Learning on a large map.",
        checks=checks,
        tables=[
            Table(
                f"Weights, {side**2} cells, {times} times",
                ["weight", "true", "estimate", "standard error"],
                rows,
            ),
            Table("CPU seconds (E-steps: how many)", ["what", "value"], work),
        ],
        seeds=[5],
    )


def _features(side: int, food: np.ndarray) -> list[sparse.csr_array]:
    """Stored at all moves to cells at most one row and one column away; zeros included, so that every feature has every move."""
    x, y = np.divmod(np.arange(side**2), side)
    parts = []
    for dx, dy in ((dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1)):
        inside = (x + dx >= 0) & (x + dx < side) & (y + dy >= 0) & (y + dy < side)
        there = ((x + dx) * side + y + dy)[inside]
        same = np.ones(len(there))
        parts.append(
            [np.flatnonzero(inside), there, same * (dx == dy == 0), same * dx, same * dy, food[there]]
        )
    origin, dest, *values = (np.concatenate(part) for part in zip(*parts, strict=True))
    shape = (side**2, side**2)
    return [sparse.csr_array((v, (origin.astype(int), dest.astype(int))), shape=shape) for v in values]


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    answer = work()
    return time.process_time() - start, answer


def _learned(side: int, times: int) -> dict[str, Any]:
    """One world, and what learning from its Poisson counts finds and takes."""
    rng, cells = np.random.default_rng(5), side**2
    chain = LogisticChain(_features(side, rng.normal(size=cells)), names=NAMES)
    uniform = np.full(cells, 1 / cells)
    anything = hc.MarkovChain(uniform, sparse.eye_array(cells, format="csr"), length=times)
    model = chain.bind(anything).model(np.array(TRUE))
    table = sparse.csr_array(model.transitions[0])
    counts = [rng.multinomial(PER_CELL * cells, uniform)]
    for _ in range(times - 1):
        moved = np.zeros(cells, dtype=np.int64)
        for i in range(cells):
            row = slice(table.indptr[i], table.indptr[i + 1])
            moved[table.indices[row]] += rng.multinomial(
                counts[-1][i], table.data[row] / table.data[row].sum()
            )
        counts.append(moved)
    seen = hc.Poisson(rng.poisson(np.array(counts)).astype(float))
    known = hc.Problem(model, PER_CELL * cells, seen)
    point, _ = _timed(lambda: hc.infer(known, MAP()))
    full, _ = _timed(lambda: hc.infer(known, TiltedEP(structure="matrix-free")))
    start = time.perf_counter()
    taken, made = _timed(
        lambda: fit(chain, hc.Problem(anything, PER_CELL * cells, seen), TiltedEP(structure="matrix-free"))
    )
    return {
        "map": point,
        "tilted": full,
        "fit": taken,
        "wall seconds": time.perf_counter() - start,
        "e_steps": made.e_steps,
        "map e_steps": made.searched,
        "good": made.status.good,
        "estimate": made.weights.values.tolist(),
        "error": made.standard_errors.values.tolist(),
        "memory": peak_memory(),
    }


if __name__ == "__main__":
    _learned(4, 3)  # compiles
    print(json.dumps(_learned(*map(int, sys.argv[1:]))))
