"""Claim: on an H200, a dense map of 1024 cells takes a second and one of 10 000 cells half a minute, in double precision."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np

import headcount as hc
from benchmarks._problems import random_chain
from benchmarks._report import Check, Report, Table, version
from headcount._device import find_device
from headcount.engines import MAP, TiltedEP

PER_CELL = 100
"""Individuals per cell."""
ERROR = 0.05
"""Relative Monte-Carlo error of sds (rms) that is asked for, without matrices."""


def run(*, quick: bool) -> Report:
    """Cells and flows with sds: a dense map of 1024 cells with matrices and without, one of 10 000 without."""
    find_device("cuda")
    small, large, times = (64, 256, 6) if quick else (1024, 10_000, 20)
    with_matrices, free = (
        _measured(random_chain(small, times, PER_CELL * small), TiltedEP(structure=kind, device="cuda"))
        for kind in ("tree", "matrix-free")
    )
    problem = random_chain(large, times, PER_CELL * large)
    point = _measured(problem, MAP(device="cuda"))
    vast = _measured(problem, TiltedEP(structure="matrix-free", device="cuda", mc_error=ERROR), flows=1)
    apart = {
        f"{type(engine).__name__} {getattr(engine, 'structure', '')}".strip(): _apart(engine)
        for engine in (MAP(), TiltedEP(structure="tree"), TiltedEP(structure="matrix-free"))
    }
    best = min(with_matrices["seconds"], free["seconds"])
    checks = [
        Check("1024 cells, cells and flows with sds", best, at_most=None if quick else 1.0, unit="s"),
        Check("10 000 cells", vast["seconds"], at_most=None if quick else 30.0, unit="s"),
        Check("10 000 cells, error of cells' sds (rms)", vast["cells' error"], at_most=1.02 * ERROR),
        Check("10 000 cells, error of flows' sds (rms)", vast["flows' error"], at_most=1.02 * ERROR),
        Check("10 000 cells, memory of the device", vast["GB"], at_most=60.0, unit="GB"),
        Check("means, largest distance from the CPU's / N", max(apart.values()), at_most=1e-8),
    ]
    columns = [
        "map",
        "engine",
        "seconds",
        "iterations",
        "device, GB",
        "error of cells' sds",
        "error of flows' sds",
    ]
    rows = [
        [
            f"dense, {cells} cells, {times} times",
            name,
            *(found[c] for c in ("seconds", "iterations", "GB", "cells' error", "flows' error")),
        ]
        for cells, name, found in (
            (small, "TiltedEP, with matrices", with_matrices),
            (small, "TiltedEP, without", free),
            (large, "MAP", point),
            (large, "TiltedEP, without", vast),
        )
    ]
    return Report(
        "gpu",
        f"Dense maps on {_name()}, in double precision (CuPy {version('cupy-cuda13x')}).",
        checks=checks,
        tables=[
            Table("Cells and flows with standard deviations", columns, rows, note=NOTE),
            Table(
                "Means on the device and on the CPU, 196 cells",
                ["engine", "largest distance / N"],
                [[*pair] for pair in apart.items()],
            ),
        ],
        seeds=[1],
    )


NOTE = (
    "Seconds from the problem to means and sds of all cells and flows as NumPy arrays; of 10 000 cells to those of all cells and of one "
    "step's flows, the others' being ready on the device. The best of two runs, after one on a small map that compiles. Memory is the "
    "peak of CuPy's pool."
)


def _name() -> str:
    import cupy

    return str(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())


def _answers(post: hc.Posterior, flows: int | None) -> None:
    """Ask for everything: cells, and the flows of so many steps (all of them: None)."""
    variables = post.problem.model.variables
    for scope in [*((v,) for v in variables), *list(pairwise(variables))[:flows]]:
        post.beliefs.mean(scope)
        post.beliefs.variance(scope)


def _measured(problem: hc.Problem, engine: Any, *, flows: int | None = None) -> dict[str, Any]:
    """Time, memory and errors of a run."""
    import cupy

    pool = cupy.get_default_memory_pool()
    warm = hc.infer(random_chain(32, 3, 3200), engine)
    _answers(warm, None)
    seconds = np.inf
    for _ in range(2):
        pool.free_all_blocks()
        start = time.perf_counter()
        post = hc.infer(problem, engine)
        _answers(post, flows)
        seconds = min(seconds, time.perf_counter() - start)
        taken = pool.total_bytes() / 1e9
    found = {
        "seconds": seconds,
        "iterations": post.outcome.iterations,
        "GB": taken,
        "cells' error": "",
        "flows' error": "",
    }
    field = getattr(post.beliefs, "field", None)
    if field is not None and field.log_z is not None:
        u, v = problem.model.variables[:2]
        for name, scopes in (
            ("cells' error", [(t,) for t in problem.model.variables]),
            ("flows' error", [(u, v)]),
        ):
            shares = [_share(post, scope) for scope in scopes]
            found[name] = float(np.sqrt(np.mean(np.concatenate(shares) ** 2)))
    return found


def _share(post: hc.Posterior, scope: Any) -> np.ndarray:
    """Stated errors of sds, in shares of them."""
    sd = np.sqrt(post.beliefs.variance(scope)).ravel()
    error = post.beliefs.mc_error(scope)
    return error.ravel()[sd > 0] / sd[sd > 0]


def _apart(engine: Any) -> float:
    """Largest distance of any mean of cells or flows between device and CPU, as a share of N."""
    from dataclasses import replace

    problem = random_chain(196, 8, PER_CELL * 196)
    here, there = (hc.infer(problem, replace(engine, device=device)) for device in ("cpu", "cuda"))
    variables = problem.model.variables
    scopes = [*((v,) for v in variables), *pairwise(variables)]
    gaps = (np.abs(here.beliefs.mean(s) - there.beliefs.mean(s)).max() for s in scopes)
    return float(max(gaps)) / problem.population
