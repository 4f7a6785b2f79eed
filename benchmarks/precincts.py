"""Claim: tables of two margins that differ by context, by a deviation that rows share and by scatter still have honest totals.

Ecological inference: groups by parties in precincts, both margins known, cells asked for. In four kinds of worlds rows of precincts vary on
their own (Dirichlet–multinomial, rho .03, .01 and .05); in addition log-odds depend on the precinct's composition (slopes N(0, 1.5²) per
share), all rows of a precinct deviate together (log-odds N(0, .3²)), both, or neither. Held against the truth: one matrix for all precincts
with an estimated dispersion, tables that differ (context, shared deviation, rho by row), Goodman's regression of column shares on row
shares with raking, and the linear programme of lphom (least absolute deviations of columns) with raking.

The check of many tables together: how often it calls a model into question that is right but for its parameters, and how often one that
leaves a strong contextual effect out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import headcount as hc
from benchmarks._report import Check, Report, Table

LEVEL = 0.9
GROUPS, PARTIES = 3, 3
PRECINCTS = 60
WORLDS = 6
"""Worlds of every kind: 54 entries of whole tables, whose coverage is known to some .07 (entries of one table depend on each other)."""
RIGHT_WORLDS, LEFT_OUT_WORLDS, MANY_PRECINCTS = 40, 6, 200
RHO = (0.03, 0.01, 0.05)
SLOPE, SHARED = 1.5, 0.3
KINDS = {
    "neither": (0.0, 0.0),
    "context": (SLOPE, 0.0),
    "shared": (0.0, SHARED),
    "context and shared": (SLOPE, SHARED),
}
FIRST_SEED = 9200


def precincts(
    seed: int, slope: float, shared: float, *, count: int = PRECINCTS, rho: tuple[float, ...] = RHO
) -> np.ndarray:
    """True tables, (count, groups, parties)."""
    rng = np.random.default_rng(seed)
    base = np.log(rng.dirichlet(np.full(PARTIES, 2.0), GROUPS))
    slopes = rng.normal(0, 1, (GROUPS, PARTIES, GROUPS)) * slope
    made = []
    for _ in range(count):
        mix = rng.dirichlet(np.full(GROUPS, 1.5))
        odds = base + slopes @ (mix - 1 / GROUPS) + shared * rng.normal(size=PARTIES)
        p = np.exp(odds - odds.max(axis=1, keepdims=True))
        p = np.maximum(p / p.sum(axis=1, keepdims=True), 1e-6)
        people = rng.multinomial(rng.integers(200, 1500), mix)
        rows = [rng.dirichlet(row * (1 / r - 1)) for row, r in zip(p, rho, strict=True)]
        made.append([rng.multinomial(n, row) for n, row in zip(people, rows, strict=True)])
    return np.array(made)


def problems(truth: np.ndarray) -> list[hc.Problem]:
    """What is seen of them."""
    cells = {"group": list("abc"), "party": list("xyz")}
    chain = hc.MarkovChain(
        None, [np.full((GROUPS, PARTIES), 1 / PARTIES)], times=["group", "party"], cells=cells
    )
    return [
        hc.Problem(chain, int(t.sum()), [hc.Exact(t.sum(1), on="group"), hc.Exact(t.sum(0), on="party")])
        for t in truth
    ]


def raked(p: np.ndarray, table: np.ndarray) -> np.ndarray:
    """A table with these row probabilities, raked to its margins."""
    rows, columns = table.sum(1), table.sum(0)
    made = rows[:, None] * np.maximum(p, 1e-9)
    for _ in range(100):
        made *= (columns / np.maximum(made.sum(0), 1e-300))[None]
        made *= (rows / np.maximum(made.sum(1), 1e-300))[:, None]
    return made


def goodman(truth: np.ndarray) -> np.ndarray:
    """Row probabilities by least squares of column shares on row shares, within [0, 1]."""
    rows, columns = truth.sum(2), truth.sum(1)
    size = rows.sum(1, keepdims=True)
    weight = np.sqrt(size)
    found = np.linalg.lstsq(weight * rows / size, weight * columns / size, rcond=None)[0]
    kept = np.clip(found, 1e-6, 1.0)
    return np.asarray(kept / kept.sum(1, keepdims=True))


def linear_programme(truth: np.ndarray) -> np.ndarray:
    """Row probabilities with the least sum of absolute deviations of the columns (lphom; Romero et al. 2020)."""
    from scipy.optimize import linprog

    rows, columns = truth.sum(2).astype(float), truth.sum(1).astype(float)
    count, cells = rows.shape[0], GROUPS * PARTIES
    means = np.kron(rows, np.eye(PARTIES))  # (count × parties, groups × parties)
    both = np.eye(count * PARTIES)
    sums = np.hstack([np.kron(np.eye(GROUPS), np.ones(PARTIES)), np.zeros((GROUPS, 2 * len(both)))])
    found = linprog(
        np.r_[np.zeros(cells), np.ones(2 * len(both))],
        A_eq=np.vstack([np.hstack([means, both, -both]), sums]),
        b_eq=np.r_[columns.ravel(), np.ones(GROUPS)],
    )
    return np.asarray(found.x[:cells].reshape(GROUPS, PARTIES))


def fitted(truth: np.ndarray, *, differ: bool) -> Any:
    """The library's fit: tables that differ, or one matrix with an estimated dispersion."""
    setting = hc.TabularChain(context="composition", shared=True) if differ else hc.TabularChain()
    asked = "estimate:rho:row" if differ else "estimate"
    return hc.fit(setting, problems(truth), dispersion=asked, strict=False, progress=False)


def misplaced(guess: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Share of people in a wrong cell of their precinct's table, and of the whole one."""
    whole = np.abs(guess.sum(0) - truth.sum(0)).sum()
    return float(np.abs(guess - truth).sum() / 2 / truth.sum()), float(whole / 2 / truth.sum())


def judged(truth: np.ndarray) -> dict[str, list[float]]:
    """By method: misplaced in precincts and in the whole table, coverage of both, and whether the check disagrees."""
    found: dict[str, list[float]] = {}
    for name, differ in (("one matrix, dispersion estimated", False), ("tables that differ", True)):
        fit = fitted(truth, differ=differ)
        edges = [post.edge("group", "party") for post in fit.posteriors]
        ends = [edge.interval(LEVEL) for edge in edges]
        inside = [
            (t >= e["lower"].values) & (t <= e["upper"].values) for t, e in zip(truth, ends, strict=True)
        ]
        total, whole = fit.total("group", "party", level=LEVEL), truth.sum(0)
        held = (whole >= total["lower"].values) & (whole <= total["upper"].values)
        guess = np.array([edge.mean.values for edge in edges])
        disagrees = float(fit.posteriors[0].fit_check.agrees is False)
        found[name] = [*misplaced(guess, truth), float(np.mean(inside)), float(held.mean()), disagrees]
    for name, way in (("Goodman and raking", goodman), ("linear programme and raking", linear_programme)):
        p = way(truth)
        guess = np.array([raked(p, table) for table in truth])
        found[name] = [*misplaced(guess, truth), np.nan, np.nan, np.nan]
    return found


def run(*, quick: bool) -> Report:
    """Make the worlds, fit them, and look at the check."""
    rows, checks = [], []
    count = 1 if quick else WORLDS
    for kind, (slope, shared) in KINDS.items():
        worlds = [judged(precincts(FIRST_SEED + k, slope, shared)) for k in range(count)]
        for name in worlds[0]:
            rows.append([kind, name, *np.mean([w[name] for w in worlds], axis=0).tolist()])
            print("  ", rows[-1], flush=True)
        own = {name: np.mean([w[name] for w in worlds], axis=0) for name in worlds[0]}
        held, peer = own["tables that differ"], min(own[n][1] for n in list(own)[2:])
        checks.append(Check(f"{kind}: coverage of whole tables, tables that differ", held[3], at_least=0.8))
        checks.append(Check(f"{kind}: coverage of flows, tables that differ", held[2], at_least=0.85))
        checks.append(
            Check(f"{kind}: misplaced in the whole table over the best peer's", held[1] / peer, at_most=1.1)
        )
    right = [
        fitted(precincts(FIRST_SEED + 100 + k, 0.0, 0.0, rho=(0.03,) * 3), differ=False).check_tables()
        for k in range(2 if quick else RIGHT_WORLDS)
    ]
    wrong = [
        fitted(precincts(FIRST_SEED + 200 + k, SLOPE, 0.0, count=MANY_PRECINCTS), differ=False).check_tables()
        for k in range(1 if quick else LEFT_OUT_WORLDS)
    ]
    alarms, fires = (float(np.mean([c.agrees is False for c in some])) for some in (right, wrong))
    low = float(np.mean([p < 0.05 for c in right for *_, p in c.pooled]))
    checks.append(Check("share of right models called into question", alarms, at_most=0.05))
    checks.append(Check("share of p-values below .05 where the model is right", low, at_most=0.1))
    checks.append(
        Check("share of models called into question that leave a strong context out", fires, at_least=0.9)
    )
    columns = [
        "in addition",
        "method",
        "misplaced",
        "misplaced, whole table",
        "coverage",
        "coverage, whole table",
        "check disagrees",
    ]
    note = (
        f"{count} worlds of each kind, {PRECINCTS} precincts of 200 to 1,500 people, {GROUPS} groups by {PARTIES} parties. Shares of "
        "people; coverage of 90 % intervals."
    )
    found = [
        ["one rho, nothing else", PRECINCTS, len(right), alarms],
        ["context left out", MANY_PRECINCTS, len(wrong), fires],
    ]
    return Report(
        "precincts",
        "Ecological inference where precincts differ by context and by what their groups share, beside Goodman's regression and lphom.",
        checks=checks,
        tables=[
            Table("Groups by parties in precincts that differ", columns, rows, note),
            Table(
                "The check of many tables together",
                ["world", "precincts", "worlds", "called into question"],
                found,
            ),
        ],
        seeds=[FIRST_SEED + k for k in range(count)],
    )
