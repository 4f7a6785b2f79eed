"""Two times with exact totals as entropic optimal transport: ott-jax's Sinkhorn, cost −log N π_i P_ij, strength one."""

from __future__ import annotations

from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from ott.geometry import geometry  # noqa: E402
from ott.problems.linear import linear_problem  # noqa: E402
from ott.solvers.linear import sinkhorn  # noqa: E402

from benchmarks.peers._peer import Arrays, tell, twice  # noqa: E402


def solve(problem: Arrays) -> tuple[Arrays, dict[str, Any]]:
    """Flows with the given totals at both ends."""
    population, margins = float(problem["population"]), problem["observed"] / float(problem["population"])
    cost = jnp.asarray(-np.log(problem["initial"][:, None] * problem["transitions"][0]))
    solver = sinkhorn.Sinkhorn(threshold=1e-12, max_iterations=20000)

    @jax.jit
    def run(a: Any, b: Any) -> Any:
        space = geometry.Geometry(cost_matrix=cost, epsilon=1.0)
        return solver(linear_problem.LinearProblem(space, a=a, b=b)).matrix

    def work() -> np.ndarray:
        return np.asarray(jax.block_until_ready(run(jnp.asarray(margins[0]), jnp.asarray(margins[1]))))

    table, times = twice(work)
    return {"edges": population * table[None], "nodes": problem["observed"]}, times


if __name__ == "__main__":
    tell("ott-jax", solve)
