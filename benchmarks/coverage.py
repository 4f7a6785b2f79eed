"""Claim: 90 % intervals hold the true count nine times out of ten, at unobserved times too, and cells where they do not are marked.

Worlds are simulated, some times and some single cells are hidden, and every node's and flow's interval is held against the truth. Cells
are sorted by their prior variance Nμ(1−μ), which governs how well two moments can describe a count.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

import headcount as hc
from benchmarks._problems import birds
from benchmarks._report import Check, Report, Table

LEVEL = 0.9
BINS = (0.0, 0.1, 1.0, 10.0, 100.0, np.inf)
WORLDS = ((4, 480, 120), (4, 4800, 60), (6, 1080, 60), (6, 3600, 40))
"""Side of the map, N, number of worlds."""


def run(*, quick: bool) -> Report:
    chosen = ((4, 480, 30),) if quick else WORLDS
    found: dict[tuple[str, str], list[np.ndarray]] = {}
    for side, population, count in chosen:
        for seed in range(1, count + 1):
            for kind, seen, rows in _one_world(side, population, seed):
                world = np.full((len(rows), 1), 1e6 * side + population + 1e-3 * seed)
                found.setdefault((kind, seen), []).append(np.hstack([rows, world]))
    joined = {key: np.concatenate(parts) for key, parts in found.items()}
    return Report(
        "coverage",
        "How often 90 % intervals hold the true count.",
        checks=_checks(joined),
        tables=[_table(joined)],
        seeds=list(range(1, max(c[2] for c in chosen) + 1)),
    )


def _one_world(side: int, population: int, seed: int) -> Iterator[tuple[str, str, np.ndarray]]:
    """(kind, whether seen, rows of [prior variance, held, held when rounded, reliable]) for one simulated world."""
    world, _ = birds(side, population, steps=10, rng=1000 * side + seed)
    seen = world.observed.values.copy()
    hidden = (3, 4, 7)
    seen[list(hidden)] = np.nan
    seen[np.random.default_rng(seed).random(seen.shape) < 0.05] = np.nan
    problem = hc.Problem(world.model, population, [hc.Poisson(seen)])
    posterior = hc.infer(problem)
    for t in range(10):
        rows = _held(posterior, (t,), world.counts[t])
        unseen = np.isnan(seen[t])
        for name, pick in (("observed", ~unseen), ("unobserved", unseen)):
            if pick.any():
                yield "nodes", name, rows[pick & (rows[:, 0] > 0)]
    for t in range(9):
        rows = _held(posterior, (t, t + 1), world.flows[t])
        between = "unobserved" if t in hidden or t + 1 in hidden else "observed"
        yield "flows", between, rows[rows[:, 0] > 0]


def _held(posterior: hc.Posterior, scope: tuple[int, ...], truth: np.ndarray) -> np.ndarray:
    """One row a cell: prior variance, whether the interval holds the truth as it is and rounded outwards, and the mark."""
    mu = posterior.problem.model.marginal(scope).ravel()
    lower, upper = (end.ravel() for end in posterior.interval_tables(scope, LEVEL))
    n = truth.ravel()
    held = (n >= lower) & (n <= upper)
    rounded = (n >= np.floor(lower)) & (n <= np.ceil(upper))
    mark = posterior.reliable_table(scope).ravel()
    return np.column_stack([posterior.problem.population * mu * (1 - mu), held, rounded, mark]).astype(float)


def _checks(joined: dict[tuple[str, str], np.ndarray]) -> list[Check]:
    checks = []
    for (kind, seen), rows in sorted(joined.items()):
        large = rows[rows[:, 0] >= 10]
        if len(large):
            share = float(large[:, 1].mean())
            name = f"{kind}, {seen} times, Nμ(1−μ) ≥ 10: coverage of 90 % intervals"
            checks.append(
                Check(
                    name,
                    share,
                    at_least=0.87,
                    at_most=0.93,
                    note=f"{len(large)} intervals",
                    error=_standard_error(large),
                )
            )
        name = f"{kind}, {seen} times, every cell: coverage rounded outwards to whole numbers"
        error = _standard_error(rows, column=2)
        checks.append(
            Check(
                name,
                float(rows[:, 2].mean()),
                at_least=0.89,
                note=f"{len(rows)} intervals",
                error=error,
            )
        )
    short = 0
    for rows in joined.values():
        for low, high in itertools.pairwise(BINS):
            part = rows[(rows[:, 0] >= low) & (rows[:, 0] < high)]
            # Three standard errors, so that a short table is not called short by chance.
            if len(part) and part[:, 1].mean() < 0.87 - 3 * _standard_error(part):
                short += int(part[:, 3].sum())
    checks.append(
        Check(
            "cells that fall short of 87 % yet are marked reliable",
            short,
            at_most=0,
            note="by bins",
            error=0.0,
        )
    )
    return checks


def _standard_error(rows: np.ndarray, *, column: int = 1) -> float:
    """Of the share held: cells of one world go together, so worlds are what is independent."""
    off = rows[:, column] - rows[:, column].mean()
    _, world = np.unique(rows[:, 4], return_inverse=True)
    return float(np.sqrt(np.square(np.bincount(world, off)).sum()) / len(rows) + 0.5 / len(rows))


def _table(joined: dict[tuple[str, str], np.ndarray]) -> Table:
    rows = []
    for (kind, seen), values in sorted(joined.items()):
        for low, high in itertools.pairwise(BINS):
            part = values[(values[:, 0] >= low) & (values[:, 0] < high)]
            if len(part):
                span = f"{low:g} – {high:g}" if np.isfinite(high) else f"≥ {low:g}"
                rows.append([kind, seen, span, len(part), *part[:, 1:4].mean(axis=0)])
    columns = ["of", "time", "Nμ(1−μ)", "intervals", "held", "held, rounded", "marked reliable"]
    note = (
        "An interval ends between whole numbers, so where counts are mostly 0 or 1 it holds the truth only after rounding outwards. "
        "A flow counts as unobserved when either end was not looked at."
    )
    return Table("Coverage of 90 % intervals", columns, rows, note)
