"""Claim: the paper's largest problem in a blink, a thousand cells on a laptop, ten thousand sparse ones in half a minute.

Every large case runs in a process of its own, whose peak memory is part of the claim.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from reproduction.rivals import NLBP

import headcount as hc
from benchmarks._measure import best_of, exponent, in_child
from benchmarks._problems import birds, edge_means, node_means, spreads
from benchmarks._report import Check, Curve, Report, Table
from headcount import engines

PAPER_SECONDS = {"MAP": 78.2, "GCGM": 12.2}
"""What the paper's implementations took at L = 144 (read off its Figure 2)."""


def run(*, quick: bool) -> Report:
    parts = [
        _small(quick=quick),
        _paper_largest(quick=quick),
        _large(quick=quick),
        _long(quick=quick),
        _populations(quick=quick),
    ]
    return Report(
        "speed",
        "Wall times and peak memory on the sizes that people have.",
        checks=[c for p in parts for c in p[0]],
        tables=[t for p in parts for t in p[1]],
        curves=[c for p in parts for c in p[2]],
        seeds=[1],
    )


Part = tuple[list[Check], list[Table], list[Curve]]


def _small(*, quick: bool) -> Part:
    """L = 16: where Python itself would show."""
    _, problem = birds(4, 480)
    seconds, _ = best_of(5 if quick else 20, lambda: hc.infer(problem))
    check = Check("L = 16, T = 20: default inference", 1e3 * seconds, at_most=20, unit="ms")
    return [check], [], []


def _paper_largest(*, quick: bool) -> Part:
    """L = 144, T = 20, N = 14 400: the paper's largest."""
    side = 7 if quick else 12
    _, problem = birds(side, 100 * side**2)

    def answer(engine: Any, *asks: Callable[[hc.Posterior], Any]) -> Callable[[], hc.Posterior]:
        def work() -> hc.Posterior:
            posterior = hc.infer(problem, engine)
            for ask in asks:
                ask(posterior)
            return posterior

        return work

    cases = [
        ("MAP", answer(engines.MAP(), node_means, edge_means), 0.2, "nodes and flows"),
        ("Laplace", answer(engines.Laplace(), node_means, edge_means), 1.0, "nodes and flows"),
        (
            "TiltedEP",
            answer(engines.TiltedEP(), node_means, edge_means, spreads),
            3.0,
            "nodes and flows with sds",
        ),
        ("NLBP", answer(NLBP(), node_means, edge_means), None, "nodes and flows"),
    ]
    checks, rows = [], []
    for name, work, most, what in cases:
        seconds, posterior = best_of(1 if quick else 3, work)
        rows.append([name, what, seconds, posterior.outcome.iterations, most])
        if most is not None:
            checks.append(Check(f"L = {side**2}, T = 20: {name}, {what}", seconds, at_most=most, unit="s"))
    note = f"The paper, in 2014: MAP {PAPER_SECONDS['MAP']} s, its GCGM {PAPER_SECONDS['GCGM']} s at L = 144."
    table = Table(
        f"L = {side**2}, T = 20, N = {100 * side**2}",
        ["engine", "asked", "s", "iterations", "at most, s"],
        rows,
        note,
    )
    return checks, [table], []


def _large(*, quick: bool) -> Part:
    """L = 1024 dense, and L = 10 000 with at most 50 neighbours a cell."""
    side, wide, steps = (10, 20, 6) if quick else (32, 100, 52)
    large = [f"side={side}", f"population={100 * side**2}", "steps=20"]
    flat = in_child("benchmarks._child", ["MAP", *large, "flows=0"])
    tilted = in_child("benchmarks._child", ["TiltedEP", *large, "flows=3"])
    options = [f"side={wide}", f"population={100 * wide**2}", f"steps={steps}", "reach=4.0"]
    sparse = in_child("benchmarks._child", ["sparse", *options])
    growth = (sparse["peak_gib"] - sparse["before_gib"]) * 2**30 / sparse["non_zeros"]
    name, thin = f"L = {side**2}, T = 20", f"L = {wide**2}, T = {steps}, ≤ 50 neighbours"
    checks = [
        Check(f"{name}: MAP", flat["seconds"], at_most=3, unit="s"),
        Check(f"{name}: TiltedEP with every node's sds", tilted["seconds"], at_most=90, unit="s"),
        Check(f"{name}: TiltedEP, peak memory", tilted["peak_gib"], at_most=4, unit="GiB"),
        Check(f"{thin}: sparse MAP", sparse["seconds"], at_most=30, unit="s"),
        Check(
            f"{thin}: memory taken for each non-zero",
            growth,
            at_most=64,
            unit="bytes",
            note="in proportion to non-zeros",
        ),
        Check("large cases that converged, of 3", sum(c["good"] for c in (flat, tilted, sparse)), at_least=3),
    ]
    rows = [
        [name, "MAP", flat["seconds"], flat["peak_gib"], flat["iterations"]],
        [name, "TiltedEP", tilted["seconds"], tilted["peak_gib"], tilted["iterations"]],
        [thin, "MAP, sparse", sparse["seconds"], sparse["peak_gib"], sparse["iterations"]],
    ]
    note = f"{sparse['non_zeros']} non-zeros, {sparse['neighbours']:.0f} neighbours a cell on average; first run in a fresh process."
    return checks, [Table("Large maps", ["case", "engine", "s", "peak, GiB", "iterations"], rows, note)], []


def _long(*, quick: bool) -> Part:
    """T from 1 to 10 000 at L = 20."""
    lengths = (1, 10, 100) if quick else (1, 10, 100, 1000, 10_000)
    points, good, rows = [], 0, []
    for steps in lengths:
        found = in_child("benchmarks._child", ["long", "cells=20", f"steps={steps}", "population=2000"])
        points.append((steps, found["seconds"]))
        good += found["good"]
        rows.append([steps, found["seconds"], found["iterations"], found["peak_gib"]])
    slope = exponent(points, last=2)
    checks = [
        Check(f"L = 20: lengths that converged, of {len(lengths)}", good, at_least=len(lengths)),
        Check("L = 20: exponent of time in T", slope, at_most=1.15, note="linear in T"),
    ]
    curve = Curve("Time against length (L = 20)", "T", "s", {"TiltedEP": points}, {"TiltedEP": slope})
    return checks, [Table("Long chains, L = 20", ["T", "s", "sweeps", "peak, GiB"], rows)], [curve]


def _populations(*, quick: bool) -> Part:
    """N from 1 to 10¹² at L = 16."""
    powers = (0, 3, 12) if quick else tuple(range(13))
    points, good, rows = [], 0, []
    for power in powers:
        _, problem = birds(4, 10**power)
        seconds, posterior = best_of(1 if quick else 3, lambda p=problem: hc.infer(p, strict=False))
        finite = bool(np.isfinite(node_means(posterior)).all())
        good += posterior.status.good and finite
        points.append((10.0**power, seconds))
        rows.append([f"1e{power}", 1e3 * seconds, posterior.outcome.iterations, posterior.status.value])
    checks = [Check(f"N = 1 … 10¹²: runs that converged, of {len(powers)}", good, at_least=len(powers))]
    curve = Curve("Time against population (L = 16, T = 20)", "N", "s", {"TiltedEP": points})
    return checks, [Table("Populations, L = 16, T = 20", ["N", "ms", "sweeps", "status"], rows)], [curve]
