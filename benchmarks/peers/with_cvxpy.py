"""A generic convex solver on the MAP: the paper's baseline, with cvxpy and Clarabel.

maximise  −Σ_t Σ_ij rel_entr(n_t(i, j), n_t(i) P_t(i, j)) + Σ (y log n − n)   over tables that agree on what they share

Everyone starts in cell 0, as the birds do, so the first table has one row.
"""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

from benchmarks.peers._peer import Arrays, tell


def solve(problem: Arrays) -> tuple[Arrays, dict[str, Any]]:
    """The most probable counts."""
    steps, seen = problem["transitions"], problem["observed"]
    population, cells = float(problem["population"]), seen.shape[1]
    # In shares of the population: conic solvers want numbers near one.
    tables = [cp.Variable((1, cells), nonneg=True)]
    tables += [cp.Variable((cells, cells), nonneg=True) for _ in steps[1:]]
    value: Any = 0
    bounds = [cp.sum(tables[0]) == 1]
    nodes = [None, *(cp.sum(t, axis=0) for t in tables)]
    for t, table in enumerate(tables):
        law = steps[t][:1] if t == 0 else steps[t]
        before = np.ones((1, 1)) if t == 0 else cp.reshape(nodes[t], (cells, 1), order="C")
        value -= cp.sum(cp.rel_entr(table, cp.multiply(before @ np.ones((1, cells)), law)))
        if t > 0:
            bounds.append(cp.sum(table, axis=1) == nodes[t])
        y = seen[t + 1] / population
        value += cp.sum(cp.multiply(y, cp.log(nodes[t + 1])) - nodes[t + 1])
    task = cp.Problem(cp.Maximize(value), bounds)
    task.solve(solver=cp.CLARABEL)
    counts = np.vstack([population * np.eye(1, cells), *(population * n.value[None] for n in nodes[1:])])
    flows = np.zeros((len(steps), cells, cells))
    flows[0, 0] = population * tables[0].value
    for t, table in enumerate(tables[1:], start=1):
        flows[t] = population * table.value
    return {"nodes": counts, "edges": flows}, {"status": task.status}


if __name__ == "__main__":
    tell("cvxpy", solve)
