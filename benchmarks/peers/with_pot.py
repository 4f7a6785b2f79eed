"""Two times with exact totals as entropic optimal transport: POT's Sinkhorn in log space, cost −log N π_i P_ij, strength one."""

from __future__ import annotations

from typing import Any

import numpy as np
import ot

from benchmarks.peers._peer import Arrays, tell, twice


def solve(problem: Arrays) -> tuple[Arrays, dict[str, Any]]:
    """Flows with the given totals at both ends."""
    population, margins = float(problem["population"]), problem["observed"] / float(problem["population"])
    cost = -np.log(problem["initial"][:, None] * problem["transitions"][0])

    def work() -> np.ndarray:
        return np.asarray(
            ot.sinkhorn(
                margins[0], margins[1], cost, 1.0, method="sinkhorn_log", stopThr=1e-12, numItermax=20000
            )
        )

    table, times = twice(work)
    return {"edges": population * table[None], "nodes": problem["observed"]}, times


if __name__ == "__main__":
    tell("POT", solve)
