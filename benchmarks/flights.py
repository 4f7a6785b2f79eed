"""Claim: routes between airports from totals and a small survey are closer to the truth than the raked survey, with honest intervals.

US domestic flights of 2008 between the 16 busiest airports (`examples/flights`). Known are departures and arrivals of every airport, and
the routes of a random share of flights. Errors are Σ|inferred − true|/Σ true over the 240 routes; one survey per seed.
"""

from __future__ import annotations

from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas as pd

import headcount as hc
from benchmarks._report import ROOT, Check, Report, Table
from benchmarks.bikes import raked

FLIGHTS = ROOT / "examples" / "flights"
SHARES = (0.001, 0.01)
"""Probability that a flight is in the survey; the first is that of the example."""
RHO = (0.007, 0.015, 0.03)
"""Dispersions that are compared, each about twice the one before."""
SEEDS = 3
ENGINE = hc.engines.TiltedEP(max_iterations=60)
"""Most runs take 10 iterations; one in thirty did not converge in 500."""
LEAVE, ARRIVE = "departure", "arrival"


def read(folder: Path = FLIGHTS) -> tuple[list[str], np.ndarray]:
    """Airports, and true flights (origin, dest)."""
    cells = list(pd.read_csv(folder / "cells.csv")["cell"])
    moves = pd.read_csv(folder / "moves.csv").pivot(index="origin", columns="dest", values="count")
    return cells, moves.reindex(index=cells, columns=cells).fillna(0).to_numpy()


def by_size(cells: list[str], true: np.ndarray) -> hc.MarkovChain:
    """Destinations in proportion to the flights that arrive there: all that totals say."""
    law = np.where(np.eye(len(cells), dtype=bool), 0.0, true.sum(axis=0))
    first = true.sum(axis=1) / true.sum()
    return hc.MarkovChain(first, law / law.sum(axis=1, keepdims=True), times=[LEAVE, ARRIVE], cells=cells)


def run(*, quick: bool) -> Report:
    """Survey, infer, compare."""
    cells, true = read()
    if quick:
        cells, true = cells[:8], true[:8, :8]
    apart = ~np.eye(len(cells), dtype=bool)
    out, come, population = true.sum(axis=1), true.sum(axis=0), int(true.sum())
    model = by_size(cells, true)
    totals = [hc.Exact(out, on=LEAVE), hc.Exact(come, on=ARRIVE)]
    # The law is made of the totals, so that they must not choose the dispersion too: p(survey | totals) does.
    alone = {rho: _inferred(hc.Problem(model, population, totals), rho).log_evidence for rho in RHO}

    def error(flows: np.ndarray) -> float:
        return float(np.abs(flows - true)[apart].sum() / population)

    start = process_time()
    rows: list[list[Any]] = []
    stalled = 0
    for share in SHARES:
        found = []
        for seed in range(1, (1 if quick else SEEDS) + 1):
            survey = np.random.default_rng(seed).binomial(true.astype(int), share)
            seen = hc.Binomial(survey, detection=share, on=(LEAVE, ARRIVE))
            problem = hc.Problem(model, population, [*totals, seen])
            posts = {rho: _inferred(problem, rho) for rho in RHO}
            stalled += sum(not post.status.good for post in posts.values())
            rho = max(
                (r for r in RHO if posts[r].status.good), key=lambda r: posts[r].log_evidence - alone[r]
            )  # type: ignore[operator]
            found.append(
                {
                    "by size, scaled to the totals": (error(raked(model.transitions[0], out, come)), np.nan),
                    "survey ÷ its share": (error(survey / share), np.nan),
                    "survey, scaled to the totals (raking)": (error(raked(survey * 1.0, out, come)), np.nan),
                    "headcount, independent flights": _scored(_inferred(problem, 0.0), true),
                    "headcount, rho learned": _scored(posts[rho], true),
                    "rho": (rho, np.nan),
                }
            )
        for name in found[0]:
            values = np.array([one[name] for one in found])
            rows.append([f"{share:.1%}", name, *values.mean(axis=0), values[:, 0].std()])
    seconds = process_time() - start

    def of(share: float, name: str, column: int) -> float:
        return float(next(r[column] for r in rows if r[:2] == [f"{share:.1%}", name]))

    ours, rival = "headcount, rho learned", "survey, scaled to the totals (raking)"
    checks = (
        [
            Check(f"error ÷ that of raking, survey of {s:.1%}", of(s, ours, 2) / of(s, rival, 2), at_most=1.0)
            for s in SHARES
        ]
        + [
            Check(
                f"routes inside their 90 % interval, survey of {s:.1%}",
                of(s, ours, 3),
                at_least=0.85,
                at_most=0.95,
            )
            for s in SHARES
        ]
        + [Check("runs that did not converge", stalled, at_most=0)]
    )
    note = f"Means over {SEEDS} surveys; all of it took {seconds:.0f} s of one core."
    columns = ["survey", "method", "error", "inside 90 %", "sd of the error over surveys"]
    return Report(
        "flights",
        "Routes between airports from totals and a survey.",
        checks=checks,
        tables=[Table(f"{population:,} flights, {len(cells)} airports", columns, rows, note)],
        seeds=list(range(1, SEEDS + 1)),
    )


def _together(problem: hc.Problem, rho: float) -> hc.Problem:
    return problem.with_dispersion(hc.Overdispersion(rho=rho)) if rho else problem


def _inferred(problem: hc.Problem, rho: float) -> hc.Posterior:
    return hc.infer(_together(problem, rho), ENGINE, strict=False)


def _scored(post: hc.Posterior, true: np.ndarray) -> tuple[float, float]:
    """Error of the mean, and share of routes inside their interval."""
    flows = post.edge(LEAVE, ARRIVE)
    apart = ~np.eye(len(true), dtype=bool)
    ends = flows.interval(0.9)
    inside = (ends.lower.values <= true) & (true <= ends.upper.values)
    return float(np.abs(flows.mean.values - true)[apart].sum() / true.sum()), float(inside[apart].mean())
