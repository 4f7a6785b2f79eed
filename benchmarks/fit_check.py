"""Claim: the check of fit stays silent under the true model and speaks when individuals move in pairs.

16 cells, 20 times, N = 480. Under the true model every individual moves alone; otherwise 240 pairs move as one. Counts are Poisson,
binomial with detection ½, or exact; once more Poisson, with the initial law learned from them.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np
from joblib import Parallel, delayed

import headcount as hc
from benchmarks._report import Check, Report, Table
from headcount.posterior.fit_check import FitCheck, fit_check

POPULATION, STEPS = 480, 20
ALONE, PAIRS = 4000, 1000
"""Data sets: a share of warnings near 1 % needs more of them than one near 95 %."""
FIRST_SEED = 10_000
"""The levels of the tests were set on seeds from 30 000."""
LEARNED = "poisson, initial law learned"
KINDS = ("poisson", "binomial", "exact", LEARNED)


def run(*, quick: bool) -> Report:
    """Simulate, check, count the warnings."""
    checks, rows = [], []
    for kind in KINDS:
        for flock in (1, 2):
            sets = 10 if quick else ALONE if flock == 1 else PAIRS
            if kind == LEARNED:
                sets = max(sets // 4, 10)
            found = Parallel(n_jobs=-1)(delayed(_checked)(kind, flock, FIRST_SEED + k) for k in range(sets))
            share = float(np.mean([check.agrees is False for check in found]))
            dispersion = np.array([check.dispersion for check in found])
            residual = np.mean([check.residual_dispersion for check in found])
            seconds = float(np.median([check.seconds for check in found]))
            rows.append(
                [
                    kind,
                    flock,
                    sets,
                    share,
                    float(dispersion.mean()),
                    float(dispersion.std()),
                    float(residual),
                    seconds,
                ]
            )
            bound = {"at_most": 0.01} if flock == 1 else {"at_least": 0.95}
            moves = "alone" if flock == 1 else "in pairs"
            checks.append(Check(f"{kind} counts, moving {moves}: data sets with a warning", share, **bound))
    problem = _problem("poisson", 1, FIRST_SEED)
    hc.infer(problem)
    begun = perf_counter()
    hc.infer(problem)
    rows.append(["inference, for comparison", 1, 1, "", "", "", "", perf_counter() - begun])
    columns = [
        "counts",
        "flock",
        "data sets",
        "warned",
        "dispersion",
        "sd",
        "residual dispersion",
        "seconds (median)",
    ]
    return Report(
        "fit_check",
        "How often the check of fit warns, under the true model and when individuals move in pairs.",
        checks=checks,
        tables=[Table("Warnings", columns, rows)],
        seeds=[FIRST_SEED],
    )


def _checked(kind: str, flock: int, seed: int) -> FitCheck:
    """The check of one data set."""
    problem = _problem("poisson" if kind == LEARNED else kind, flock, seed)
    if kind != LEARNED:
        return fit_check(problem)
    blank = hc.MarkovChain(None, problem.model.transitions)
    return hc.infer(hc.Problem(blank, POPULATION, problem.observations)).fit_check


def _problem(kind: str, flock: int, seed: int) -> hc.Problem:
    """Counts of flocks that move as one, and the model in which everybody moves alone."""
    world = hc.simulate.birds(4, (1.0, 2.0, 2.0, 2.0), POPULATION // flock, steps=STEPS, rng=seed)
    rng = np.random.default_rng(seed + 999)
    n = flock * np.asarray(world.counts)
    seen = {
        "poisson": lambda: hc.Poisson(rng.poisson(n)),
        "binomial": lambda: hc.Binomial(rng.binomial(n, 0.5), detection=0.5),
        "exact": lambda: hc.Exact(n),
    }
    return hc.Problem(world.model, POPULATION, seen[kind]())
