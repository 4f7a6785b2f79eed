"""Claim: weights are learned in few E-steps, nearer to the truth than by MAP, with intervals that hold it.

Settings are those of the paper's Figure 1 (4 × 4 cells, T = 20, from w = 0) and the hard one of later papers (w = (5, 10, 10, 10) on
10 × 10 cells). An E-step is one inference of every sequence. Fits run in two processes of one thread each.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

import headcount as hc
from benchmarks._report import Check, Report, Table
from benchmarks.learning_coverage import one, summary
from headcount.engines import MAP, Enumerate, TiltedEP
from headcount.learn._expect import Expectation

WEIGHTS = {"w₀.₅": (0.5, 1.0, 1.0, 1.0), "w₁": (1.0, 2.0, 2.0, 2.0), "w₂": (2.0, 4.0, 4.0, 4.0)}
HARD = (5.0, 10.0, 10.0, 10.0)
POPULATIONS = (16, 160, 480, 1600)
ENGINES = {"MAP": MAP(), "TiltedEP": TiltedEP()}
COVERAGE_POPULATION = 480
NATS = 1e-3
ENOUGH = 15
"""Fits below which a mean is shown, but no target is held against it."""


def run(*, quick: bool) -> Report:
    populations, names, fits, data_sets = (
        ((160,), ("w₁",), 4, {1: 2}) if quick else (POPULATIONS, tuple(WEIGHTS), 100, {1: 10, 3: 5})
    )
    races = [("w₁", n, 1, 100 if quick else 500) for n in populations]
    races += [] if quick else [(w, n, 1, 500) for w in ("w₀.₅", "w₂") for n in (16, 480)]
    races += [] if quick else [("w₁", n, 3, 500) for n in (160, 1600)]
    duels = [
        (w, n, s, d) for s, sets in data_sets.items() for w in names for n in populations for d in range(sets)
    ]
    hard = _hard(side=5 if quick else 10, population=1000)
    raced = _parallel(_race, races)
    fought = _parallel(_duel, duels)
    covered = _parallel(one, [(seed, COVERAGE_POPULATION) for seed in range(fits)])
    found = [
        _raced(raced),
        _fought(fought),
        hard,
        _covered(covered),
        _absorbed(4 if quick else 20),
        _gradients(),
    ]
    return Report(
        "learning",
        "Learning weights from counts: E-steps, error and intervals.",
        checks=[check for checks, _ in found for check in checks],
        tables=[table for _, table in found],
        seeds=list(range(fits)),
    )


Found = tuple[list[Check], Table]


def _parallel(function: Any, settings: Sequence[tuple[Any, ...]]) -> list[Any]:
    from joblib import Parallel, delayed

    workers = min(2, len(os.sched_getaffinity(0)))
    with Parallel(n_jobs=workers, backend="loky", inner_max_num_threads=1) as pool:
        return list(pool(delayed(function)(*setting) for setting in settings))


def _data(
    weights: tuple[float, ...], population: int, sequences: int, data_set: int
) -> tuple[list[Any], list[Any]]:
    """Parametrisations and problems of one data set; sequences have winds of their own and share w."""
    seeds = [[int(1000 * weights[0]), population, data_set, k] for k in range(sequences)]
    worlds = [
        hc.simulate.birds(4, weights, population, steps=20, rng=np.random.default_rng(s)) for s in seeds
    ]
    chains = [hc.LogisticChain(np.asarray(w.features)) for w in worlds]
    return chains, [hc.Problem(w.model, population, [hc.Poisson(w.observed)]) for w in worlds]


def _race(name: str, population: int, sequences: int, iterations: int) -> list[Any]:
    """E-steps of direct ascent to the evidence that EM has in the end: from zero, as `fit` begins by itself, and in all."""
    chains, problems = _data(WEIGHTS[name], population, sequences, 0)
    row: list[Any] = [name, population, sequences]
    for label, engine in ENGINES.items():
        slow = hc.fit(
            chains,
            problems,
            engine,
            method="em",
            start="zero",
            max_iterations=iterations,
            tolerance=0,
            standard_errors=False,
            strict=False,
        )
        for start in ("zero",) if label == "MAP" else ("zero", None):
            trace = hc.fit(chains, problems, engine, start=start, standard_errors=False, strict=False).trace
            there = trace["e_steps"][trace["evidence"] >= slow.evidence - NATS]
            row.append(float(there.iloc[0]) if len(there) else float("inf"))
        whole = hc.fit(chains, problems, engine, strict=False)
        row += [whole.e_steps, whole.evidence - slow.evidence]
    return row


def _raced(rows: list[list[Any]]) -> Found:
    columns = ["w", "N", "sequences", "MAP from 0", "MAP, in all", "nats above EM"]
    columns += ["TiltedEP from 0", "TiltedEP by itself", "TiltedEP, in all", "nats above EM "]
    note = (
        f"To within {NATS:g} nats, as the ascent stops 1e-4 standard errors from the top. “By itself” begins with MAP's E-steps, which "
        "are counted. “In all”: to convergence, with standard errors and the way on to the evidence's maximum; and by how much "
        "its evidence is above EM's there."
    )
    title = "E-steps of direct ascent until it has the evidence of 500 iterations of EM"
    checks = [
        Check("E-steps to EM's evidence, MAP, at most", max(r[3] for r in rows), at_most=20),
        Check("E-steps to EM's evidence, TiltedEP, at most", max(max(r[6:8]) for r in rows), at_most=20),
    ]
    return checks, Table(title, columns, rows, note)


def _duel(name: str, population: int, sequences: int, data_set: int) -> tuple[Any, ...]:
    """Relative errors of both engines' fits of one data set."""
    truth = WEIGHTS[name]
    chains, problems = _data(truth, population, sequences, data_set)
    fits = [hc.fit(chains, problems, e, start="zero", truth=truth, strict=False) for e in ENGINES.values()]
    return name, population, sequences, *(f.rows[-1]["error"] for f in fits), fits[1].status.good


def _fought(rows: list[tuple[Any, ...]]) -> Found:
    lines: list[list[Any]] = []
    checks = []
    for sequences in sorted({r[2] for r in rows}):
        for population in sorted({r[1] for r in rows}):
            errors = np.array([r[3:5] for r in rows if r[1:3] == (population, sequences)])
            gap = errors[:, 1] - errors[:, 0]
            error = float(gap.std(ddof=1) / np.sqrt(len(gap)))
            lines.append([population, sequences, len(gap), *errors.mean(axis=0), gap.mean(), error])
            if len(gap) >= ENOUGH:
                what = f"error of TiltedEP's fit less MAP's, N = {population}, {sequences} sequence(s)"
                checks.append(Check(what, float(gap.mean()), at_most=0.0, note=f"± {error:.4f}"))
    checks.append(Check("TiltedEP's fits that did not converge", sum(not r[5] for r in rows), at_most=0))
    columns = ["N", "sequences", "data sets", "MAP", "TiltedEP", "difference", "standard error"]
    note = "‖w − truth‖₁/‖truth‖₁, mean over the three weight vectors and their data sets; both fits see the same data."
    return checks, Table("Error of learned weights, paired", columns, lines, note)


def _hard(*, side: int, population: int) -> Found:
    """w = (5, 10, 10, 10) from three sequences."""
    worlds = [hc.simulate.birds(side, HARD, population, rng=np.random.default_rng([1, k])) for k in range(3)]
    chains = [hc.LogisticChain(np.asarray(w.features)) for w in worlds]
    problems = [hc.Problem(w.model, population, [hc.Poisson(w.observed)]) for w in worlds]
    fit = hc.fit(chains, problems, truth=HARD, strict=False, workers=min(2, len(os.sched_getaffinity(0))))
    whole = hc.learn.fit_complete(chains, [w.model for w in worlds], [w.tables for w in worlds], truth=HARD)
    error = float(fit.rows[-1]["error"])
    values = [fit.working.tolist(), fit.standard_errors.values.tolist(), whole.working.tolist()]
    rows = [[str(k), HARD[k], *(v[k] for v in values)] for k in range(4)]
    text = f"Relative error {error:.4f}; {whole.rows[-1]['error']:.4f} from complete counts; {fit.e_steps} E-steps; {fit.status.value}."
    return (
        [Check(f"weight error at w = (5, 10, 10, 10), {side} × {side} cells", error, at_most=0.03)],
        Table(
            f"The hard setting: {side} × {side} cells, N = {population}, three sequences",
            ["weight", "truth", "estimate", "standard error", "complete counts"],
            rows,
            text,
        ),
    )


def _covered(rows: list[dict[str, Any]]) -> Found:
    found = summary(rows)
    spread = np.divide(found["spread"], found["mean_standard_error"])
    columns = [
        "weight",
        "coverage of 90 % intervals",
        "bias in standard errors",
        "spread over stated standard error",
    ]
    parts = zip(found["coverage_by_weight"], found["bias_in_standard_errors"], spread, strict=True)
    table = Table(
        f"Learned weights of the birds (4 × 4 cells, N = {COVERAGE_POPULATION}, T = 20), {len(rows)} fits",
        columns,
        [[str(k), *values] for k, values in enumerate(parts)],
        f"{found['mean_e_steps']:.1f} E-steps a fit, those for standard errors included.",
    )
    checks = [Check("fits that did not converge", found["not_converged"], at_most=0)]
    if len(rows) >= ENOUGH:
        held = found["coverage"]
        checks.append(Check("coverage of 90 % intervals of weights", held, at_least=0.85, at_most=0.95))
    return checks, table


def _absorbed(count: int) -> Found:
    """Three states, one absorbing, fifty periods, from totals alone."""
    p = np.array([[0.85, 0.1, 0.05], [0.2, 0.7, 0.1], [0.0, 0.0, 1.0]])
    model = hc.MarkovChain([1, 0, 0], p, length=50, cells=["well", "ill", "gone"])
    truth = p[:2].ravel()
    inside, estimates, names = [], [], ()
    for seed in range(count):
        world = hc.simulate.population(model, 1000, rng=seed)
        problem = hc.Problem(model, 1000, [hc.Poisson(world.observed)])
        fit = hc.fit(hc.learn.TabularChain(p > 0), problem, strict=False)
        ends = fit.interval(0.9)
        inside.append((ends["lower"].values <= truth) & (truth <= ends["upper"].values))
        estimates.append(fit.natural.values)
        names = fit.natural.names
    held, made = np.array(inside), np.array(estimates)
    rows = [
        list(r)
        for r in zip(names, truth, made.mean(axis=0), made.std(axis=0), held.mean(axis=0), strict=True)
    ]
    columns = ["probability", "truth", "mean estimate", "spread", "coverage of 90 % intervals"]
    table = Table(
        f"An absorbing chain from noisy totals, fifty periods, N = 1000, {count} fits", columns, rows
    )
    checks = [Check("coverage for the absorbing chain", float(held.mean()), at_least=0.8)]
    return checks if count >= ENOUGH else [], table


def _gradients() -> Found:
    """TiltedEP's Fisher gradient against the enumerated one, in standard errors of complete counts."""
    rng = np.random.default_rng(5)
    features = rng.normal(size=(2, 2, 2))
    rows = []
    for population in (4, 8, 16):
        model = hc.MarkovChain([0.6, 0.4], rng.dirichlet([2.0, 2.0], size=2), length=3)
        world = hc.simulate.population(model, population, rng=rng)
        problem = hc.Problem(model, population, [hc.Poisson(world.observed)])
        family = hc.LogisticChain(features).bind(model)
        x = np.array([0.3, -0.6])
        exact, close = (
            Expectation([family], [problem], e, 0, lambda tasks: [t.run() for t in tasks])(x, None)
            for e in (Enumerate(), TiltedEP())
        )
        gap = close.gradient - exact.gradient
        off = float(np.sqrt(gap @ exact.objective.solve(x, gap)))
        rows.append([population, *exact.gradient, *close.gradient, off])
    columns = ["N", "exact, w1", "exact, w2", "TiltedEP, w1", "TiltedEP, w2", "distance"]
    note = "Distance √(Δ·I⁻¹Δ), I the information of complete counts: standard errors, if all were seen."
    return [], Table("Gradient of the evidence on two cells and three times", columns, rows, note)
