"""One measurement in a process of its own, so that its peak memory is its own: ``python -m benchmarks._child CASE KEY=VALUE …``."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import headcount as hc
from benchmarks._measure import best_of, peak_memory
from benchmarks._problems import birds, edge_means, node_means, random_chain, spreads
from headcount import engines


def dense(engine: str, *, side: int, population: int, steps: int, flows: int) -> dict[str, Any]:
    """Infer on a dense map; ``flows`` = 0 asks for nodes only, 1 for flows too, 2 for all spreads, 3 for the nodes' spreads."""
    _, problem = birds(side, population, steps=steps, rng=1, memory_limit=2**33)
    before = peak_memory()
    start = time.perf_counter()
    posterior = hc.infer(problem, getattr(engines, engine)(), strict=False)
    if flows == 1:
        node_means(posterior), edge_means(posterior)
    if flows == 2:
        spreads(posterior)
    if flows == 3:
        for t in problem.model.variables:
            posterior.sd_table((t,))
    return _told(posterior, time.perf_counter() - start, before)


def sparse(*, side: int, population: int, steps: int, reach: float) -> dict[str, Any]:
    """MAP on a large map where nobody flies further than ``reach``."""
    _, problem = birds(
        side, population, steps=steps, max_distance=reach, sparse=True, rng=1, memory_limit=2**33
    )
    kept = sum(m.nnz for m in problem.model.transitions)
    before = peak_memory()
    start = time.perf_counter()
    posterior = hc.infer(problem, engines.MAP(), strict=False)
    told = _told(posterior, time.perf_counter() - start, before)
    return {**told, "non_zeros": kept, "neighbours": kept / (steps - 1) / side**2}


def long(*, cells: int, steps: int, population: int) -> dict[str, Any]:
    """The default engine on a long chain."""
    problem = random_chain(cells, steps, population)
    hc.infer(random_chain(cells, 2, population), strict=False)
    before = peak_memory()
    seconds, posterior = best_of(2, lambda: hc.infer(problem, strict=False), warm=False)
    return _told(posterior, seconds, before)


def _told(posterior: hc.Posterior, seconds: float, before: float) -> dict[str, Any]:
    return {
        "seconds": seconds,
        "peak_gib": peak_memory(),
        "before_gib": before,
        "status": posterior.status.value,
        "good": posterior.status.good,
        "iterations": posterior.outcome.iterations,
        "engine": posterior.engine,
    }


def main(case: str, *options: str) -> None:
    """Run a case and print what it found."""
    given: dict[str, Any] = {}
    for option in options:
        name, _, value = option.partition("=")
        given[name] = float(value) if name == "reach" else int(value)
    found = (
        {"sparse": sparse, "long": long}[case](**given)
        if case in {"sparse", "long"}
        else dense(case, **given)
    )
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
