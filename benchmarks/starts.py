"""Claim: `fit` ends at the best maximum of the evidence, not at the one nearest to its start.

Worlds of 12 cells and 20 times: moves depend on staying, distance and the destination's habitat, w = (3, −2, 1), and counts begin near
the habitat's equilibrium. Totals that hardly change are explained by little movement or by much, so the evidence has several maxima,
hundreds of nats apart. Every world is fitted as users do, and again from the best of random starts w ~ N(0, 3²): each is climbed with
MAP, and the best of them polished by the same engine. Seeds are 0, 1, 2, ….
"""

from __future__ import annotations

import numpy as np

import headcount as hc
from benchmarks._report import Check, Report, Table
from headcount.engines import MAP

CELLS, TIMES, POPULATION, RATE = 12, 20, 5000, 0.9
WEIGHTS = (3.0, -2.0, 1.0)
NAMES = ("stay", "distance", "habitat")
NATS = 2.0
"""A fit that is further below the best of the random starts has failed."""
SPREAD = 3.0


def world(seed: int, population: int = POPULATION) -> tuple[hc.LogisticChain, hc.Problem]:
    """The features and the counts of one world."""
    rng = np.random.default_rng(seed)
    place = 4 * rng.random((CELLS, 2))
    distance = np.linalg.norm(place[:, None] - place, axis=-1)
    habitat = rng.normal(size=CELLS)
    features = np.stack([np.eye(CELLS), distance, np.broadcast_to(habitat, (CELLS, CELLS))])
    initial = np.exp(0.7 * habitat)
    model = hc.individual.LogLinearTransitions(features).chain(WEIGHTS, initial / initial.sum(), length=TIMES)
    seen = hc.simulate.population(model, population, observe=hc.simulate.poisson(RATE), rng=seed)
    problem = hc.Problem(model, population, hc.Poisson(seen.observed, rate=RATE))
    return hc.LogisticChain(features, names=NAMES), problem


def best_of_random_starts(
    chain: hc.LogisticChain, problem: hc.Problem, count: int, seed: int
) -> hc.learn.Fit:
    """The fit from the best of MAP's climbs."""
    rng = np.random.default_rng([seed, 1])
    climbs = [
        hc.fit(chain, problem, MAP(), start=SPREAD * rng.normal(size=3), standard_errors=False, strict=False)
        for _ in range(count)
    ]
    best = max(climbs, key=lambda fit: fit.evidence)
    return hc.fit(chain, problem, start=best.working, strict=False)


def run(*, quick: bool) -> Report:
    """Fit all worlds both ways."""
    worlds, starts = (3, 4) if quick else (50, 20)
    rows = []
    for seed in range(worlds):
        chain, problem = world(seed)
        found = hc.fit(chain, problem, strict=False)
        other = best_of_random_starts(chain, problem, starts, seed)
        missed = other.evidence - found.evidence
        rows.append(
            [seed, found.start, found.status.value, found.evidence, missed, found.e_steps, found.searched]
        )
    gaps = np.array([row[4] for row in rows], dtype=float)
    return Report(
        "starts",
        "Learning weights where the evidence has several maxima.",
        checks=[
            Check(
                f"fits more than {NATS:g} nats below the best of {starts} random starts",
                float((gaps > NATS).sum()),
                at_most=0.0,
                note=f"{worlds} worlds",
            ),
            Check(
                "fits that did not converge", float(sum(row[2] != "converged" for row in rows)), at_most=0.0
            ),
        ],
        tables=[
            Table(
                "Fits and the best of random starts",
                [
                    "seed",
                    "start",
                    "status",
                    "evidence",
                    "nats missed",
                    "E-steps",
                    "MAP E-steps of other starts",
                ],
                rows,
            )
        ],
        seeds=list(range(worlds)),
    )
