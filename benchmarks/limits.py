"""Claim: the distance to the machine's own limits is a number.

The matrix-multiply rate and the memory bandwidth are measured first, in the same process; the dense smoother is held against the one and
the MAP estimate against the other. What Python costs is measured by running the same code on a problem whose arrays are almost empty.
"""

from __future__ import annotations

import cProfile
import dataclasses
import itertools
import pstats
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg.blas import ddot, dgemm

import headcount as hc
from benchmarks._measure import best_of
from benchmarks._problems import birds
from benchmarks._report import Check, Report, Table
from headcount import _linalg, engines
from headcount.engines._map import DualObjective
from headcount.structure import TreeStructure

THREADS = 2


def run(*, quick: bool) -> Report:
    size = 256 if quick else 1024
    side = 16 if quick else 32
    smoother = _smoother(side, size)
    best = _map(side, 2**22 if quick else 2**25)
    overhead = _overhead(quick=quick)
    checks = [
        Check(
            f"dense smoother, L = {side**2}: share of the dgemm rate",
            smoother["share"],
            at_least=0.5,
            ratio=True,
        ),
        Check(f"MAP, L = {side**2}: share of the memory bandwidth", best["share"], at_least=0.5, ratio=True),
        *(
            Check(f"{name}, L = {cells}: share of time that is Python's", share, at_most=0.1, ratio=True)
            for name, cells, share in overhead
        ),
    ]
    machine = Table(
        "What the machine can do, measured in this run",
        ["what", "value", "unit"],
        [
            [f"dgemm, {size} × {size}", smoother["limit"] / 1e9, "Gflop/s"],
            *([f"memory, {name}", best[name] / 1e9, "GB/s"] for name in ("copy", "read")),
        ],
    )
    reached = Table(
        "What is reached",
        ["what", "work", "s", "rate", "share of the limit"],
        [
            [
                f"one sweep of the dense smoother, L = {side**2}, T = {smoother['steps']}",
                f"{smoother['flops']:.3g} flop in BLAS",
                smoother["seconds"],
                f"{smoother['rate'] / 1e9:.3g} Gflop/s",
                smoother["share"],
            ],
            [
                f"MAP, L = {side**2}, T = 20, {best['evaluations']} propagations",
                f"{best['bytes']:.3g} bytes of transitions",
                best["seconds"],
                f"{best['rate'] / 1e9:.3g} GB/s",
                best["share"],
            ],
        ],
        "A sweep tilts the chain, factors its noise and smooths: everything that expectation propagation repeats. "
        "A propagation reads every transition matrix twice.",
    )
    return Report(
        "limits",
        "How far from the machine's own limits.",
        checks=checks,
        tables=[machine, reached, _profile(quick=quick)],
        seeds=[1],
    )


def _in_turn(rounds: int, *works: Callable[[], object]) -> list[float]:
    """The best seconds of every work, run in turn so that a slow minute of the machine strikes all alike."""
    seconds = [np.inf] * len(works)
    for _ in range(rounds):
        for k, work in enumerate(works):
            seconds[k] = min(seconds[k], best_of(3, work, warm=False)[0])
    return seconds


@contextmanager
def _counting() -> Any:
    """Count the flop of every BLAS and LAPACK call that the structures make."""
    total = [0.0]

    def counted(name: str, flops: Callable[..., float]) -> Callable[..., Any]:
        call = getattr(_linalg, name)

        def wrapper(*args: Any, **options: Any) -> Any:
            total[0] += flops(*args, **options)
            return call(*args, **options)

        return wrapper

    def gemm(_: float, a: np.ndarray, b: np.ndarray, **options: Any) -> float:
        return 2.0 * a.size * b.shape[0 if options.get("trans_b") else 1]

    formulas: dict[str, Callable[..., float]] = {
        "dgemm": gemm,
        "dsymm": lambda _, a, b, **o: 2.0 * a.shape[0] ** 2 * b.shape[1],
        "dsyrk": lambda _, a, **o: 1.0 * a.size * a.shape[1 if o.get("trans") else 0],
        "dsyr2k": lambda _, a, b, **o: 2.0 * a.size * a.shape[0],
        "dtrmm": lambda _, a, b, **o: 1.0 * a.shape[0] * b.size,
        "dtrsm": lambda _, a, b, **o: 1.0 * a.shape[0] * b.size,
        "dpotrf": lambda a, **o: a.shape[0] ** 3 / 3,
        "dpotri": lambda a, **o: 2 * a.shape[0] ** 3 / 3,
    }
    kept = {name: getattr(_linalg, name) for name in formulas if hasattr(_linalg, name)}
    for name in kept:
        setattr(_linalg, name, counted(name, formulas[name]))
    try:
        yield total
    finally:
        for name, call in kept.items():
            setattr(_linalg, name, call)


def _smoother(side: int, size: int) -> dict[str, float]:
    """One sweep's structure work (build at a law, solve under sites) against the library's own BLAS on square matrices."""
    steps = 5
    world, problem = birds(side, 100 * side**2, steps=steps, rng=1)
    tree = world.model.rooted()
    tau = [np.full(len(s), 0.01) for s in problem.sites]
    nu = [np.zeros(len(s)) for s in problem.sites]
    a = np.asfortranarray(np.random.default_rng(0).random((size, size)))

    def sweep() -> None:
        TreeStructure(tree, problem.population, problem.sites).solve(tau, nu)

    with _counting() as total:
        sweep()
    multiplied, seconds = _in_turn(4, lambda: dgemm(1.0, a, a), sweep)
    rate, limit = total[0] / seconds, 2 * size**3 / multiplied
    return {
        "steps": steps,
        "flops": total[0],
        "seconds": seconds,
        "rate": rate,
        "limit": limit,
        "share": rate / limit,
    }


def _map(side: int, size: int) -> dict[str, float]:
    """MAP on matrices that all differ, so that nothing stays in cache, against copying (read + write) and reading on two threads."""
    winds = np.random.default_rng(1).normal(size=(19, 2))
    _, problem = birds(side, 100 * side**2, winds=winds, rng=1)
    calls = [0]
    original = DualObjective.__call__

    def counted(objective: DualObjective, x: np.ndarray) -> Any:
        calls[0] += 1
        return original(objective, x)

    DualObjective.__call__ = counted  # type: ignore[method-assign]
    try:
        hc.infer(problem, engines.MAP())
    finally:
        DualObjective.__call__ = original  # type: ignore[method-assign]
    a, b = np.ones(size), np.zeros(size)
    halves = [slice(None, size // THREADS), slice(size // THREADS, None)]
    with ThreadPoolExecutor(THREADS) as pool:
        copied, read, seconds = _in_turn(
            4,
            lambda: list(pool.map(lambda s: np.copyto(b[s], a[s]), halves)),
            lambda: ddot(a, b),
            lambda: hc.infer(problem, engines.MAP()),
        )
    # Two reads a propagation; at the end the matrices are read twice more, and the tilted ones written.
    moved = 8.0 * 19 * side**4 * (2 * calls[0] + 3)
    rate, limits = moved / seconds, {"copy": 16 * size / copied, "read": 16 * size / read}
    return {
        "evaluations": calls[0],
        "bytes": moved,
        "seconds": seconds,
        "rate": rate,
        "share": rate / max(limits.values()),
        **limits,
    }


def _overhead(*, quick: bool) -> list[tuple[str, int, float]]:
    """Seconds that a run would take on arrays that are almost empty, over what it takes at full size.

    The former are a + b · iterations, from two runs of different tolerance.
    """
    side = 8 if quick else 12
    _, full = birds(side, 100 * side**2, rng=1)
    found = []
    # The passes of MAP are compiled at this size too, those of TiltedEP's structure are not: each against its own code.
    for engine, sizes in ((engines.TiltedEP(), (2, 3)), (engines.MAP(), (2, 2))):
        empty = _almost_empty(100 * side**2, sizes)
        few, many = (
            _timed(empty, dataclasses.replace(engine, tolerance=t), quick=quick) for t in (1e-1, 1e-9)
        )
        seconds, iterations = _timed(full, engine, quick=quick)
        each = (many[0] - few[0]) / (many[1] - few[1])
        found.append((engine.name, side**2, (few[0] + each * (iterations - few[1])) / seconds))
    return found


def _timed(problem: hc.Problem, engine: Any, *, quick: bool) -> tuple[float, int]:
    """Best seconds, and iterations."""
    seconds, posterior = best_of(3 if quick else 20, lambda: hc.infer(problem, engine))
    return seconds, posterior.outcome.iterations


def _almost_empty(population: int, turns: tuple[int, int]) -> hc.Problem:
    """Twenty times of so many cells in turn: where they are unequal the code for large nodes runs, not the compiled one."""
    rng = np.random.default_rng(1)
    sizes = [turns[t % 2] for t in range(20)]
    steps = [rng.dirichlet(np.ones(b), size=a) for a, b in itertools.pairwise(sizes)]
    model = hc.MarkovChain(np.ones(sizes[0]) / sizes[0], steps)
    world = hc.simulate.population(model, population, rng=rng)
    return hc.Problem(model, population, [hc.Poisson({t: world.observations[(t,)] for t in range(20)})])


def _profile(*, quick: bool) -> Table:
    """Where the default path spends its time, by function."""
    rows = []
    for side in (4, 6) if quick else (4, 6, 12):
        _, problem = birds(side, 100 * side**2, rng=1)
        hc.infer(problem)
        profile = cProfile.Profile()
        start = time.perf_counter()
        repeats = 1 if side > 6 else 5
        profile.enable()
        for _ in range(repeats):
            hc.infer(problem)
        profile.disable()
        total = time.perf_counter() - start
        stats: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
        top = sorted(((v[2], k) for k, v in stats.items()), reverse=True)[:6]
        rows += [[side**2, f"{Path(key[0]).name}: {key[2]}", own / total] for own, key in top]
    note = "Own time under the profiler, which makes many small calls look dearer than they are."
    return Table("Where the default path spends its time", ["L", "function", "share"], rows, note)
