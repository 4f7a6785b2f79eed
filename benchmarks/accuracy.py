"""Claim: means, spreads and evidence are close to the exact answer, closer than the paper's method and than the MAP estimate.

Against the exact count-state recursion on two-cell chains; against long, exact sampling (``PathGibbs``, with its own floor) on the
settings of the paper's Tables 1–3. The tables themselves, with ten data sets per cell, are in `reproduction`; here are one or two.
"""

from __future__ import annotations

import itertools

import numpy as np
from reproduction.rivals import EdgeEP

import headcount as hc
from benchmarks._measure import distance, exponent
from benchmarks._problems import WEIGHTS, birds, edge_means, node_means, two_cells
from benchmarks._report import Check, Curve, Report, Table
from headcount import engines

SEEDS = tuple(range(1, 41))

# What the two-cell chain must reach: N, mean relative error of node means, |difference of log evidence|.
TWO_CELLS = ((10, 0.010, 0.10), (50, 0.0015, 0.03), (100, 0.0007, 0.02), (1000, 0.0001, 0.01))

# Settings of Tables 1–3: side, weight, N, sweeps per chain of the reference, the paper's printed GCGM errors (nodes, edges).
PRINTED = (
    (6, 1.0, 36, 12000, 0.184, 0.401),
    (6, 1.0, 360, 1200, 0.039, 0.076),
    (6, 1.0, 1080, 900, 0.017, 0.034),
    (6, 1.0, 3600, 900, 0.009, 0.017),
    (6, 0.5, 1080, 900, 0.013, 0.032),
    (6, 2.0, 1080, 900, 0.024, 0.037),
    (4, 1.0, 480, 1000, 0.017, 0.024),
    (5, 1.0, 750, 900, 0.017, 0.027),
    (7, 1.0, 1470, 800, 0.020, 0.048),
)


def run(*, quick: bool) -> Report:
    parts = [
        _two_cell_chain(SEEDS[:6] if quick else SEEDS),
        _zeros(),
        _hard(side=6 if quick else 10),
        _tables(quick=quick),
        _same_fixed_point(quick=quick),
    ]
    return Report(
        "accuracy",
        "Means, spreads and evidence against exact answers and long exact sampling.",
        checks=[c for p in parts for c in p[0]],
        tables=[t for p in parts for t in p[1]],
        curves=[c for p in parts for c in p[2]],
        seeds=SEEDS,
    )


Part = tuple[list[Check], list[Table], list[Curve]]


def _two_cell_chain(seeds: tuple[int, ...]) -> Part:
    """π = .5, p = .8, q = .3, T = 5, λ = 1: TiltedEP and Laplace against the exact recursion."""
    model = two_cells(5, 0.5, 0.8, 0.3)
    checks, rows = [], []
    points: dict[str, list[tuple[float, float]]] = {"TiltedEP": [], "Laplace": [], "MAP": []}
    for population, most, nats in TWO_CELLS:
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in points}
        for seed in seeds:
            world = hc.simulate.population(model, population, rng=seed)
            problem = hc.Problem(model, population, [hc.Poisson(world.observed)])
            exact = hc.infer(problem, engines.Enumerate())
            for name in points:
                found[name].append(_against(hc.infer(problem, getattr(engines, name)(), strict=False), exact))
        for name, values in found.items():
            error, evidence, sd = np.mean(values, axis=0)
            points[name].append((population, error))
            rows.append([name, population, error, evidence, sd])
        error, evidence, sd = np.mean(found["TiltedEP"], axis=0)
        spread = np.std(found["TiltedEP"], axis=0, ddof=1) / np.sqrt(len(seeds))
        name = f"two cells, N = {population}"
        checks += [
            Check(f"{name}: relative error of node means", error, at_most=most, error=spread[0]),
            Check(f"{name}: |Δ log evidence|", evidence, at_most=nats, unit="nats", error=spread[1]),
        ]
        if population == 100:
            checks.append(Check(f"{name}: relative error of sds", sd, at_most=0.03, error=spread[2]))
    slope = {name: exponent(p, last=len(p)) for name, p in points.items()}
    checks.append(
        Check(
            "two cells: exponent of the error in N",
            slope["TiltedEP"],
            at_most=-0.9,
            note="the error falls like 1/N",
        )
    )
    table = Table(
        f"Two-cell chain against the exact answer, means over {len(seeds)} data sets",
        ["engine", "N", "error of node means", "|Δ log evidence|", "error of sds"],
        rows,
        "MAP has no spread; its objective is not an evidence.",
    )
    curve = Curve("Two-cell chain: error falls with N", "N", "relative error of node means", points, slope)
    return checks, [table], [curve]


def _against(posterior: hc.Posterior, exact: hc.Posterior) -> tuple[float, float, float]:
    """Mean relative errors of node means and sds, and |Δ log evidence|."""
    times = posterior.problem.model.variables
    truth = np.stack([exact.sd_table((t,)) for t in times])
    spread = np.stack([posterior.sd_table((t,)) for t in times])
    mean = node_means(exact)
    off = float(np.mean(np.abs(node_means(posterior) - mean) / mean))
    nats = np.nan
    if posterior.engine != "MAP" and posterior.log_evidence is not None and exact.log_evidence is not None:
        nats = abs(posterior.log_evidence - exact.log_evidence)
    return off, nats, float(np.mean(np.abs(spread - truth) / truth))


def _zeros() -> Part:
    """Twenty zeros in a cell with expected count 5, N = 1000, at several persistences; the other cell unseen, and seen."""
    checks, rows = [], []
    for persistence, other in itertools.product((0.0, 0.5, 0.9, 0.99), (np.nan, 1000.0)):
        rare = 0.005
        stay, come = rare + persistence * (1 - rare), rare * (1 - persistence)
        model = two_cells(20, rare, stay, come)
        seen = np.full((20, 2), other)
        seen[:, 0] = 0.0
        problem = hc.Problem(model, 1000, [hc.Poisson(seen)])
        exact = node_means(hc.infer(problem, engines.Enumerate()))[:, 0]
        ours = hc.infer(problem, strict=False)
        mean = node_means(ours)[:, 0]
        lower = min(float(ours.interval_tables((t,), 0.9)[0][0]) for t in range(20))
        paper = node_means(hc.infer(problem, engines.Laplace(), strict=False))[:, 0]
        off = float(np.abs(mean - exact).max())
        said = "unseen" if np.isnan(other) else "seen"
        rows.append([persistence, said, exact.max(), mean.max(), paper.min(), off, lower, ours.status.value])
        name = f"twenty zeros, persistence {persistence}, the other cell {said}"
        checks += [
            # The reference is exact: a tenth of what is allowed is a change.
            Check(f"{name}: error of the mean", off, at_most=0.01, error=0.001),
            Check(f"{name}: lower end of the interval", lower, at_least=0.0, error=0.0),
        ]
    table = Table(
        "Twenty zeros in a cell where five were expected (N = 1000)",
        [
            "persistence",
            "other cell",
            "exact mean",
            "default",
            "the paper's method",
            "error of the default",
            "lower end",
            "status",
        ],
        rows,
        "Largest over the twenty times; for the paper's method the lowest.",
    )
    return checks, [table], []


def _hard(*, side: int) -> Part:
    """w = (5, 10, 10, 10), N = 1000: nearly deterministic flights, where the paper's method is known to break."""
    _, problem = birds(side, 1000, weights=(5.0, 10.0, 10.0, 10.0), rng=5)
    posterior = hc.infer(problem, strict=False)
    lowest = min(float(node_means(posterior).min()), float(edge_means(posterior).min()))
    name = f"w = (5, 10, 10, 10), L = {side * side}, N = 1000"
    return (
        [
            Check(f"{name}: converged", float(posterior.status.good), at_least=1.0, error=0.0),
            Check(f"{name}: lowest mean", lowest, at_least=0.0),
        ],
        [],
        [],
    )


def _tables(*, quick: bool) -> Part:
    """A small version of Tables 1–3: every setting, a data set or two."""
    settings = [(4, 1.0, 480, 150, 0.017, 0.024)] if quick else list(PRINTED)
    sets = (1,) if quick else (1, 2)
    checks, rows = [], []
    for side, weight, population, sweeps, node, edge in settings:
        errors: dict[str, list[tuple[float, float]]] = {"TiltedEP": [], "MAP": [], "Laplace": []}
        floors = []
        for seed in sets:
            _, problem = birds(side, population, weights=WEIGHTS[weight], rng=100 * side + seed)
            sampler = engines.PathGibbs(burn_in=min(150, sweeps), sweeps=sweeps, draws=0)
            reference = hc.infer(problem, sampler, rng=seed, strict=False)
            floors.append([reference.diagnostics["floor"][k] for k in ("node", "edge")])
            nodes, edges = node_means(reference), edge_means(reference)
            for name, found in errors.items():
                got = hc.infer(problem, getattr(engines, name)(), strict=False)
                found.append((distance(node_means(got), nodes), distance(edge_means(got), edges)))
        ours, best = np.mean(errors["TiltedEP"], axis=0), np.mean(errors["MAP"], axis=0)
        laplace, floor = np.mean(errors["Laplace"], axis=0), np.mean(floors, axis=0)
        name = f"L = {side**2}, w × {weight:g}, N = {population}"
        for k, (what, printed) in enumerate((("nodes", node), ("edges", edge))):
            rows.append([name, what, floor[k], ours[k], best[k], laplace[k], printed])
            checks += [
                Check(
                    f"{name}, {what}: error over a third of the paper's",
                    3 * ours[k] / printed,
                    at_most=1.0,
                    error=3 * floor[k] / printed,
                ),
                Check(
                    f"{name}, {what}: error over converged MAP's",
                    ours[k] / best[k],
                    at_most=1.0,
                    error=floor[k] / best[k],
                    note=f"the reference's own noise is {floor[k]:.2g}, the error {ours[k]:.2g}",
                ),
            ]
    table = Table(
        f"Relative error against exact sampling, T = 20, means over {len(sets)} data sets",
        [
            "setting",
            "of",
            "floor of the reference",
            "TiltedEP",
            "MAP",
            "Laplace",
            "the paper's GCGM, printed",
        ],
        rows,
        "The floor is the distance that the reference's Monte-Carlo noise alone makes.",
    )
    return checks, [table], []


def _same_fixed_point(*, quick: bool) -> Part:
    """The paper's sweeps (EdgeEP) end where one Newton on the whole tree (Laplace) does."""
    rows, checks = [], []
    for side, population in ((4, 480),) if quick else ((4, 480), (6, 1080), (6, 36)):
        _, problem = birds(side, population, rng=7)
        one, other = (hc.infer(problem, e, strict=False) for e in (engines.Laplace(), EdgeEP()))
        apart = max(float(np.abs(f(one) - f(other)).max()) / population for f in (node_means, edge_means))
        rows.append([side**2, population, apart, one.seconds, other.seconds])
        checks.append(
            Check(f"EdgeEP = Laplace, L = {side**2}, N = {population}", apart, at_most=1e-6, error=1e-7)
        )
    columns = ["L", "N", "largest difference / N", "Laplace, s", "EdgeEP, s"]
    return checks, [Table("The paper's sweeps and one Newton on the whole tree", columns, rows)], []
