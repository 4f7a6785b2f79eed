"""Sinkhorn belief propagation with pycbp: exact aggregates on a chain.

Its constrained nodes must be leaves, so every time hangs a constrained copy of itself on the chain by a nearly diagonal factor (its own
potentials may not be zero: it clips them at 1e-12).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from cbp.graph import GraphModel
from cbp.graph.coef_policy import bp_policy
from cbp.node import FactorNode, VarNode

from benchmarks.peers._peer import Arrays, tell, twice

NEARLY_ZERO = 1e-12


def solve(problem: Arrays) -> tuple[Arrays, dict[str, Any]]:
    """Counts and flows with the given node totals."""

    def work() -> Arrays:
        return _once(problem)

    answer, times = twice(work)
    return answer, times


def _once(problem: Arrays) -> Arrays:
    initial, steps = problem["initial"], problem["transitions"]
    population, margins = float(problem["population"]), problem["observed"]
    cells = len(initial)
    graph = GraphModel(coef_policy=bp_policy)
    copy = np.full((cells, cells), NEARLY_ZERO)
    np.fill_diagonal(copy, 1.0)
    names, edges = [], []
    for t in range(len(margins)):
        names.append(graph.add_varnode(VarNode(cells)))
        if t > 0:
            law = steps[t - 1] * (initial[:, None] if t == 1 else 1.0)
            edges.append(
                graph.add_factornode(FactorNode([names[t - 1], names[t]], np.maximum(law, NEARLY_ZERO)))
            )
    for t, share in enumerate(margins / population):
        leaf = graph.add_varnode(VarNode(cells, constrained_marginal=share))
        graph.add_factornode(FactorNode([names[t], leaf], copy))
    graph.cfg.itsbp_outer_tolerance = 1e-9
    graph.run_bp()
    found = graph.export_convergence_marginals()
    return {
        "nodes": population * np.stack([found[name] for name in names]),
        "edges": population * np.stack([found[name] for name in edges]),
    }


if __name__ == "__main__":
    tell("pycbp", solve)
