"""Claim: where individuals move in company, 90 % intervals of flows hold the truth nine times out of ten, once the model knows of it.

Two times, three cells, N = 100 000, both margins seen exactly; each row of the moves is drawn anew from a Dirichlet with intra-class
correlation rho. The intervals of the nine flows are held against the truth, with company in the model and without.
"""

from __future__ import annotations

import numpy as np

import headcount as hc
from benchmarks._report import Check, Report, Table
from headcount import simulate

LEVEL = 0.9
POPULATION = 100_000
CORRELATIONS = (0.001, 0.01, 0.05)
WORLDS = 200
MOVES = ((0.7, 0.2, 0.1), (0.15, 0.7, 0.15), (0.1, 0.3, 0.6))
START = (0.5, 0.3, 0.2)


def run(*, quick: bool) -> Report:
    worlds = 60 if quick else WORLDS
    rows, checks = [], []
    for rho in CORRELATIONS:
        with_company, without = (coverage(rho, worlds, aware=aware) for aware in (True, False))
        rows.append([rho, worlds, with_company, without])
        # The flows of one table have four degrees of freedom, so about four intervals per world are independent.
        slack = 3 * float(np.sqrt(0.09 / (4 * worlds)))
        checks.append(
            Check(
                f"flows, rho = {rho:g}: coverage of 90 % intervals with company",
                with_company,
                at_least=min(0.85, 0.9 - slack),
                at_most=max(0.95, 0.9 + slack),
                note=f"{9 * worlds} intervals of {worlds} worlds",
            )
        )
        checks.append(
            Check(
                f"flows, rho = {rho:g}: coverage when company is ignored",
                without,
                at_most=0.6,
                note="shows that there is something to cover",
            )
        )
    columns = ["rho", "worlds", "held, with company", "held, ignoring it"]
    return Report(
        "dispersion",
        "How often 90 % intervals of flows hold the truth, where individuals move in company.",
        checks=checks,
        tables=[
            Table("Coverage of 90 % intervals of flows", columns, rows, "Both margins are seen exactly.")
        ],
        seeds=list(range(1, worlds + 1)),
    )


def coverage(rho: float, worlds: int, *, aware: bool) -> float:
    """Share of flows whose interval holds the truth, with rho in the model or without."""
    model = hc.MarkovChain(START, MOVES, length=2)
    company = hc.Company(rho=rho)
    held = []
    for seed in range(1, worlds + 1):
        world = simulate.population(model, POPULATION, dispersion=company, observe=simulate.exact(), rng=seed)
        problem = hc.Problem(
            model, POPULATION, [hc.Exact(world.observed)], dispersion=company if aware else None
        )
        lower, upper = hc.infer(problem).interval_tables((0, 1), LEVEL)
        held.append((world.flows[0] >= lower) & (world.flows[0] <= upper))
    return float(np.mean(held))
