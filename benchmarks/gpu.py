"""Claim: on an H200, a dense map of 1024 cells takes a second and one of 10 000 cells half a minute, in double precision."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

import headcount as hc
from benchmarks._report import Check, Report, Table, version
from headcount._device import find_device
from headcount.engines import MAP, TiltedEP

PER_CELL = 100
"""Individuals per cell."""
ERROR = 0.05
"""Relative Monte-Carlo error of sds (rms) that is asked for, without matrices."""
COMPARED = 196
"""Cells of the map on which means are compared with the CPU's."""


def run(*, quick: bool) -> Report:
    """Cells and flows with sds: a dense map of 1024 cells with matrices and without, one of 10 000 without."""
    find_device("cuda")
    os.environ["HEADCOUNT_COMPILE"] = "always"  # after the first run on a machine, kernels are compiled
    small, large, times = (64, 256, 6) if quick else (1024, 10_000, 20)
    free, with_matrices = (
        TiltedEP(structure="matrix-free", device="cuda", mc_error=ERROR),
        TiltedEP(structure="tree", device="cuda"),
    )
    tried = [(walk(32, 3), free, None, 1), (walk(32, 3), with_matrices, None, 1)]  # compiles
    tried += [(walk(small, times), engine, None, 4) for engine in (free, with_matrices)]
    problem = walk(large, times)
    tried += [(problem, MAP(device="cuda"), 1, 1), (problem, free, 1, 1)]
    found = [_measured(*what) for what in tried][2:]
    apart = {
        _label(engine): _apart(engine)
        for engine in (MAP(), TiltedEP(structure="tree"), TiltedEP(structure="matrix-free"))
    }
    quickest, vast = min(found[0]["seconds"], found[1]["seconds"]), found[-1]
    checks = [
        Check("1024 cells, cells and flows with sds", quickest, at_most=None if quick else 1.0, unit="s"),
        Check("10 000 cells", vast["seconds"], at_most=None if quick else 30.0, unit="s"),
        Check("10 000 cells, error of cells' sds (rms)", vast["cells' error"], at_most=1.02 * ERROR),
        Check("10 000 cells, error of flows' sds (rms)", vast["flows' error"], at_most=1.02 * ERROR),
        Check("10 000 cells, memory of the device", vast["GB"], at_most=60.0, unit="GB"),
        Check("means, largest distance from the CPU's / N", max(apart.values()), at_most=1e-8),
    ]
    keys = ("seconds", "iterations", "GB", "planned GB", "cells' error", "flows' error")
    rows = [
        [f"{cells} cells, {times} times", _label(engine), *(row[key] for key in keys)]
        for cells, (_, engine, _, _), row in zip((small, small, large, large), tried[2:], found, strict=True)
    ]
    columns = [
        "dense map",
        "engine",
        "s",
        "iterations",
        "device, GB",
        "planned, GB",
        "error of cells' sds",
        "of flows'",
    ]
    return Report(
        "gpu",
        f"Dense maps on an {_name()}, in double precision, with CuPy {version('cupy-cuda13x')}.",
        checks=checks,
        tables=[
            Table("Cells and flows with standard deviations", columns, rows, note=NOTE),
            Table(
                f"Means on the device and on the CPU, {COMPARED} cells",
                ["engine", "largest distance / N"],
                [list(pair) for pair in apart.items()],
            ),
        ],
        seeds=[1],
    )


NOTE = (
    "Seconds from the problem to means and sds of all cells and flows as NumPy arrays (the shortest of four runs, after one on a small map "
    "that compiles); of 10 000 cells to those of all cells and of one step's flows, one run. Memory is the peak of CuPy's pool."
)


def walk(cells: int, times: int) -> hc.Problem:
    """Moves between cells scattered on a square, every one possible and near ones likelier; Poisson counts of a simulated population."""
    rng = np.random.default_rng(1)
    x, y = rng.random((2, cells))
    table = np.exp(-4.0 * np.sqrt((x[:, None] - x) ** 2 + (y[:, None] - y) ** 2)) * rng.exponential(
        size=cells
    )
    table /= table.sum(axis=1, keepdims=True)
    ladder = np.cumsum(table, axis=1)
    counts = [rng.multinomial(PER_CELL * cells, np.full(cells, 1.0 / cells))]
    for _ in range(times - 1):
        moved = [np.searchsorted(ladder[i], rng.random(n)) for i, n in enumerate(counts[-1])]
        counts.append(np.bincount(np.minimum(np.concatenate(moved), cells - 1), minlength=cells))
    model = hc.MarkovChain(np.full(cells, 1.0 / cells), table, length=times)
    return hc.Problem(model, PER_CELL * cells, hc.Poisson(rng.poisson(np.array(counts)).astype(float)))


def _name() -> str:
    import cupy

    return str(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())


def _label(engine: Any) -> str:
    """An engine in a table."""
    kind = getattr(engine, "structure", None)
    return engine.name + ("" if kind is None else ", with matrices" if kind == "tree" else ", without")


def _scopes(problem: hc.Problem, flows: int | None) -> list[tuple[Any, ...]]:
    """All cells, and the flows of so many steps (None: of all)."""
    variables = problem.model.variables
    return [*((v,) for v in variables), *list(pairwise(variables))[:flows]]


def _measured(problem: hc.Problem, engine: Any, flows: int | None, repeat: int) -> dict[str, Any]:
    """Time, memory and errors of a run."""
    import cupy

    pool, seconds = cupy.get_default_memory_pool(), np.inf
    for _ in range(repeat):
        pool.free_all_blocks()
        start = time.perf_counter()
        post = hc.infer(problem, engine)
        for scope in _scopes(problem, flows):
            post.beliefs.mean(scope)
            post.beliefs.variance(scope)
        seconds = min(seconds, time.perf_counter() - start)
    found = {"seconds": seconds, "iterations": post.outcome.iterations, "GB": pool.total_bytes() / 1e9}
    found |= {"planned GB": engine.device_memory(problem) / 1e9, "cells' error": "", "flows' error": ""}
    if post.beliefs.has_spread and post.beliefs.field.log_z is not None:
        for name, size in (("cells' error", 1), ("flows' error", 2)):
            shares = [_share(post, scope) for scope in _scopes(problem, 1) if len(scope) == size]
            found[name] = float(np.sqrt(np.mean(np.concatenate(shares) ** 2)))
    print(f"  {_label(engine)}, {len(problem.model.states[0])} cells: {found}", flush=True)
    return found


def _share(post: hc.Posterior, scope: Any) -> np.ndarray:
    """Stated errors of sds, in shares of them."""
    sd, error = np.sqrt(post.beliefs.variance(scope)).ravel(), post.beliefs.mc_error(scope).ravel()
    return error[sd > 0] / sd[sd > 0]


def _apart(engine: Any) -> float:
    """Largest distance of any mean of cells or flows between device and CPU, as a share of N."""
    problem = walk(COMPARED, 8)
    here, there = (hc.infer(problem, replace(engine, device=device)) for device in ("cpu", "cuda"))
    gaps = (np.abs(here.beliefs.mean(s) - there.beliefs.mean(s)).max() for s in _scopes(problem, None))
    return float(max(gaps)) / problem.population
