"""Claim: time grows with size as it should; exponents are fitted to the measured tails."""

from __future__ import annotations

import numpy as np

import headcount as hc
from benchmarks._measure import best_of, exponent
from benchmarks._problems import birds, edge_means, node_means, random_chain
from benchmarks._report import Check, Curve, Report
from headcount import engines
from reproduction import rivals

Points = list[tuple[float, float]]


def run(*, quick: bool) -> Report:
    curves = [
        _cells(quick=quick),
        _times(quick=quick),
        _people(quick=quick),
        _treewidth(quick=quick),
        _neighbours(quick=quick),
    ]
    by_cells, by_times, by_people, _, by_neighbours = curves
    checks = [
        Check("exponent in L, MAP", by_cells.exponents["MAP"], at_most=2.3, note="O(T L²) an iteration"),
        Check("exponent in L, TiltedEP", by_cells.exponents["TiltedEP"], at_most=3.3, note="O(T L³) a sweep"),
        Check("exponent in T, TiltedEP", by_times.exponents["TiltedEP"], at_most=1.15, note="linear"),
        Check(
            "exponent in N, TiltedEP", by_people.exponents["TiltedEP"], at_most=0.15, note="N does not matter"
        ),
        Check(
            "exponent in neighbours, sparse MAP", by_neighbours.exponents["MAP"], at_most=1.2, note="linear"
        ),
    ]
    return Report(
        "scaling", "Time against size, with fitted exponents.", checks=checks, curves=curves, seeds=[1]
    )


def _engine(name: str) -> engines.Engine:
    """An engine, or a published rival, by its name."""
    made: engines.Engine = getattr(rivals if hasattr(rivals, name) else engines, name)()
    return made


def _curve(title: str, x: str, series: dict[str, Points], note: str = "", *, last: int = 3) -> Curve:
    fitted = {name: exponent(points, last=last) for name, points in series.items()}
    return Curve(title, x, "s", series, fitted, note)


def _cells(*, quick: bool) -> Curve:
    """L, with nodes and flows asked for, N = 100 L (the paper's Figure 2)."""
    sides = (4, 6, 8) if quick else (4, 6, 8, 10, 12, 14, 16, 20)
    series: dict[str, Points] = {name: [] for name in ("MAP", "Laplace", "TiltedEP", "NLBP", "EdgeEP")}
    for side in sides:
        _, problem = birds(side, 100 * side**2)
        for name, points in series.items():
            if name == "EdgeEP" and side > (4 if quick else 8):
                continue

            def work(engine: str = name, problem: hc.Problem = problem) -> None:
                posterior = hc.infer(problem, _engine(engine), strict=False)
                node_means(posterior), edge_means(posterior)

            seconds, _ = best_of(1 if side > 8 else 2, work, warm=side <= 8)
            points.append((side**2, seconds))
    return _curve("Time against cells (T = 20, N = 100 L, nodes and flows)", "L", series)


def _times(*, quick: bool) -> Curve:
    """T at L = 20."""
    series: dict[str, Points] = {name: [] for name in ("MAP", "Laplace", "TiltedEP")}
    for steps in (10, 30, 100) if quick else (10, 30, 100, 300, 1000):
        problem = random_chain(20, steps, 2000)
        for name, points in series.items():
            seconds, _ = best_of(1, lambda e=name, p=problem: hc.infer(p, _engine(e), strict=False))
            points.append((steps, seconds))
    return _curve("Time against times (L = 20)", "T", series)


def _people(*, quick: bool) -> Curve:
    """N at L = 16: engines that count, and the sampler that keeps individuals."""
    series: dict[str, Points] = {name: [] for name in ("MAP", "TiltedEP")}
    for power in (2, 4, 6) if quick else (2, 3, 4, 5, 6, 8, 10, 12):
        _, problem = birds(4, 10**power)
        for name, points in series.items():
            seconds, _ = best_of(2, lambda e=name, p=problem: hc.infer(p, _engine(e), strict=False))
            points.append((10.0**power, seconds))
    sampler = engines.PathGibbs(chains=1, burn_in=6, sweeps=20, draws=0, workers=1)
    series["PathGibbs, 26 sweeps"] = []
    for power in (2, 3) if quick else (2, 3, 4):
        _, problem = birds(4, 10**power)
        seconds, _ = best_of(1, lambda p=problem: hc.infer(p, sampler, rng=1, strict=False))
        series["PathGibbs, 26 sweeps"].append((10.0**power, seconds))
    return _curve("Time against people (L = 16, T = 20)", "N", series)


def _treewidth(*, quick: bool) -> Curve:
    """A band of binary-to-ternary variables, each tied to the w before it: cliques of w + 1."""
    series: dict[str, Points] = {"MAP": [], "TiltedEP": []}
    for width in (1, 2, 3) if quick else (1, 2, 3, 4, 5):
        problem = _band(width)
        for name, points in series.items():
            seconds, _ = best_of(1, lambda e=name, p=problem: hc.infer(p, _engine(e), strict=False))
            points.append((3.0 ** (width + 1), seconds))
    note = "Treewidth 1 to 5: the abscissa is the size of the largest clique's table, 3^(w + 1)."
    return _curve(
        "Time against treewidth (12 variables of 3 states)", "entries of a clique's table", series, note
    )


def _band(width: int, *, count: int = 12, states: int = 3) -> hc.Problem:
    """Random potentials on every ``width`` + 1 neighbouring variables; every variable is seen through Poisson noise."""
    rng = np.random.default_rng(width)
    factors = {
        tuple(f"x{k}" for k in range(start, start + width + 1)): rng.normal(size=(states,) * (width + 1))
        for start in range(count - width)
    }
    model = hc.DiscreteModel({f"x{k}": tuple(range(states)) for k in range(count)}, factors)
    world = hc.simulate.population(model, 3000, rng=rng)
    return hc.Problem(model, 3000, [hc.Poisson({v[0]: y for v, y in world.observations.items()})])


def _neighbours(*, quick: bool) -> Curve:
    """Neighbours a cell on a sparse map."""
    side, steps = (20, 10) if quick else (50, 20)
    points: Points = []
    for reach in (1.5, 3.0, 5.0) if quick else (1.5, 2.5, 4.0, 6.0, 9.0):
        _, problem = birds(side, 100 * side**2, steps=steps, max_distance=reach, sparse=True)
        count = problem.model.transitions[0].nnz / side**2
        seconds, _ = best_of(1, lambda p=problem: hc.infer(p, engines.MAP(), strict=False), warm=False)
        points.append((count, seconds))
    return _curve(
        f"Sparse MAP against neighbours (L = {side**2}, T = {steps})", "neighbours a cell", {"MAP": points}
    )
