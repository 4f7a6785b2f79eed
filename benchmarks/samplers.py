"""Claim: the individual-level sampler beats the Markov-basis one, and the convex dual beats non-linear belief propagation."""

from __future__ import annotations

import numpy as np

import headcount as hc
from benchmarks._measure import best_of, distance
from benchmarks._problems import birds, edge_means, node_means
from benchmarks._report import Check, Report, Table
from headcount import engines
from reproduction import rivals

REPEATS = 4


def run(*, quick: bool) -> Report:
    first, second = _samplers(quick=quick), _most_probable(quick=quick)
    return Report(
        "samplers",
        "PathGibbs against Gibbs in equal time; MAP against NLBP to equal accuracy.",
        checks=[*first[0], *second[0]],
        tables=[first[1], second[1]],
        seeds=list(range(1, REPEATS + 1)),
    )


def _samplers(*, quick: bool) -> tuple[list[Check], Table]:
    """Monte-Carlo error of both samplers after the same time, from runs with different seeds: no reference is needed."""
    side, population, sweeps = (4, 480, 60) if quick else (6, 1080, 400)
    _, problem = birds(side, population, rng=1)
    path = engines.PathGibbs(chains=1, burn_in=sweeps // 4, sweeps=sweeps, draws=0, workers=1)
    seconds, _ = best_of(1, lambda: hc.infer(problem, path, rng=1, strict=False))
    trial = 200_000
    short = rivals.Gibbs(chains=1, burn_in=trial // 5, moves=trial, configurations=0, workers=1)
    cost, _ = best_of(1, lambda: hc.infer(problem, short, rng=1, strict=False))
    moves = max(int(trial * seconds / cost), trial)
    basis = rivals.Gibbs(chains=1, burn_in=moves // 5, moves=moves, configurations=0, workers=1)
    rows, errors = [], {}
    for engine in (path, basis):
        runs = [hc.infer(problem, engine, rng=seed, strict=False) for seed in range(1, REPEATS + 1)]
        took = float(np.mean([r.seconds for r in runs]))
        # Two independent runs lie √2 errors apart.
        errors[engine.name] = [
            float(np.mean([distance(f(a), f(b)) for k, a in enumerate(runs) for b in runs[:k]]) / np.sqrt(2))
            for f in (node_means, edge_means)
        ]
        what = f"{sweeps} sweeps" if engine is path else f"{moves} moves"
        rows.append([engine.name, what, took, *errors[engine.name]])
    # Errors fall like 1/√time; the times are nearly equal, and what is left of the difference is taken out.
    fair = np.sqrt(rows[1][2] / rows[0][2])
    name = f"L = {side**2}, N = {population}"
    checks = [
        Check(
            f"{name}: Gibbs's Monte-Carlo error over PathGibbs's in equal time, {what}",
            errors["Gibbs"][k] * fair / errors["PathGibbs"][k],
            at_least=5,
            unit="times",
            ratio=True,
        )
        for k, what in enumerate(("nodes", "edges"))
    ]
    columns = ["sampler", "length", "s", "error of node means", "error of edge means"]
    note = f"Relative L1 distance between runs with different seeds, over √2; {REPEATS} runs of one chain on one thread."
    return checks, Table(f"Samplers in equal time, {name}", columns, rows, note)


def _most_probable(*, quick: bool) -> tuple[list[Check], Table]:
    """Time to come within 1e-6 of the optimum: the dual, and non-linear belief propagation at its best damping."""
    checks, rows = [], []
    for side in (6,) if quick else (6, 12):
        _, problem = birds(side, 30 * side**2, rng=1)
        target = edge_means(hc.infer(problem, engines.MAP(tolerance=1e-12), strict=False))
        searches = [rivals.NLBP(damping=d) for d in (0.1, 0.2, 0.3, 0.5)]
        searches.append(rivals.NLBP(damping=0.5, adaptive=True))
        best: dict[str, float] = {}
        default = None
        for engine in (engines.MAP(), *searches):
            found = _cheapest(problem, engine, target, repeat=2 if quick else 5)
            if found is None:
                rows.append([side**2, engine.name, _setting(engine), None, None, None])
                continue
            seconds, iterations, off = found
            rows.append([side**2, engine.name, _setting(engine), seconds, iterations, off])
            best[engine.name] = min(best.get(engine.name, np.inf), seconds)
            if engine == rivals.NLBP():
                default = seconds
        for name, rival in (
            ("at its default damping", default),
            ("at the best of five dampings", best.get("NLBP")),
        ):
            ratio = np.nan if rival is None else rival / best["MAP"]
            name = f"L = {side**2}: NLBP's time {name} over MAP's, to 1e-6"
            checks.append(Check(name, ratio, at_least=3, unit="times", ratio=True))
    columns = ["L", "engine", "setting", "s", "iterations", "distance from the optimum"]
    note = "Empty: did not get there."
    return checks, Table("Most probable counts to an accuracy of 1e-6", columns, rows, note)


def _cheapest(
    problem: hc.Problem, engine: engines.MAP | rivals.NLBP, target: np.ndarray, *, repeat: int
) -> tuple[float, int, float] | None:
    """Time, iterations and distance at the loosest tolerance that comes within 1e-6 of the optimum."""
    from dataclasses import replace

    for tolerance in 10.0 ** -np.arange(4, 11):
        tried = replace(engine, tolerance=float(tolerance), max_iterations=3000)
        posterior = hc.infer(problem, tried, strict=False)
        if not posterior.status.good:
            return None
        off = distance(edge_means(posterior), target)
        if off <= 1e-6:
            seconds, _ = best_of(repeat, lambda e=tried: hc.infer(problem, e), warm=False)
            return seconds, posterior.outcome.iterations, off
    return None


def _setting(engine: engines.MAP | rivals.NLBP) -> str:
    if isinstance(engine, engines.MAP):
        return "default"
    return f"damping {engine.damping:g}{', adaptive' if engine.adaptive else ''}"
