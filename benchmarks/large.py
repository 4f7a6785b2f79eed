"""Claim: maps of ten thousand cells and more get standard deviations without matrices, at a small multiple of MAP's time."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import parquet
from scipy import sparse

import headcount as hc
from benchmarks._measure import in_child, peak_memory
from benchmarks._problems import random_chain
from benchmarks._report import Check, Report, Table
from headcount.engines import MAP, ClosedForm, TiltedEP

MOST_DRAWS_OFF = 0.05
"""Relative Monte-Carlo error of an sd (median) that the dense map is asked for."""
PER_CELL = 20
"""Individuals per cell of the timed maps."""
LIVELY = 10.0
"""N μ (1 − μ) from which intervals are asked to cover: where a count has a choice of whole numbers."""


def run(*, quick: bool) -> Report:
    """A dense map against the structure with matrices; a sparse one against MAP; coverage; a map of a hundred thousand cells."""
    cells, side, reach, times = (196, 30, 1, 6) if quick else (1024, 100, 3, 52)
    _dense(9, 3), _sparse(3, 1, 3)  # compiles
    dense = _dense(cells, 6 if quick else 20)
    thin = in_child("benchmarks.large", ("sparse", side, reach, times, 1))
    sizes = (20, 40, 60) if quick else (50, 100, 316)
    grown = [in_child("benchmarks.large", ("sparse", s, 1, 6 if quick else 24, 0)) for s in sizes]
    slope = float(np.polyfit(np.log([s**2 for s in sizes]), np.log([g["free"] for g in grown]), 1)[0])
    table = in_child("benchmarks.large", ("flows", 20, 5) if quick else ("flows", 224, 54))
    seen, unseen = _coverage(12 if quick else 50)
    checks = [
        Check(
            "dense map, time without matrices / with them",
            dense["free"] / dense["tree"],
            at_most=None if quick else 0.2,
        ),
        Check("dense map, median error of sds", dense["error"], at_most=MOST_DRAWS_OFF),
        Check(
            "dense map, sds off in stated errors (rms)", dense["off"], at_most=1.2, note="cells and all times"
        ),
        Check("sparse map, time / MAP's", thin["free"] / thin["map"], at_most=None if quick else 15.0),
        Check("sparse map, rms error of sds", thin["error"], at_most=0.07),
        Check("sparse map, peak memory", thin["memory"], at_most=6.0, unit="GiB"),
        Check("largest map, peak memory", grown[-1]["memory"], at_most=8.0, unit="GiB"),
        Check("table of flows, rows", table["rows"], at_least=None if quick else 23e6),
        Check("table of flows, memory to write it", table["more"], at_most=1.0, unit="GiB"),
        Check("growth of the time with the number of cells, exponent", slope, at_most=None if quick else 1.1),
        Check("coverage of 90 % intervals, observed times", seen, at_least=0.87, at_most=0.93),
        Check("coverage of 90 % intervals, unobserved time", unseen, at_least=0.87, at_most=0.93),
    ]
    rows = [
        ["dense", cells, dense["moves"], dense["tree"], "", dense["free"], dense["error"]],
        ["sparse", side**2, thin["moves"], "", thin["map"], thin["free"], thin["error"]],
        *(
            ["sparse", s**2, g["moves"], "", g["map"], g["free"], g["error"]]
            for s, g in zip(sizes, grown, strict=True)
        ),
    ]
    columns = ["map", "cells", "moves per step", "with matrices, s", "MAP, s", "without, s", "error of sds"]
    return Report(
        "large",
        "Large maps without matrices.",
        checks=checks,
        tables=[
            Table("Nodes and flows with standard deviations", columns, rows),
            Table("A table of flows with sds and intervals, as Parquet", list(table), [list(table.values())]),
        ],
        seeds=[1, 2],
    )


def _seconds(problem: hc.Problem, engine: hc.engines.Engine) -> tuple[float, hc.Posterior]:
    """Time of nodes and flows with their spread: the first question makes all of them without matrices, each edge alone with them."""
    start = time.perf_counter()
    post = hc.infer(problem, engine)
    if post.beliefs.has_spread:
        post.beliefs.variance(problem.model.variables[:1])
    return time.perf_counter() - start, post


def _spread(post: hc.Posterior) -> tuple[np.ndarray, np.ndarray | None]:
    """Sds of all cells, and their Monte-Carlo errors."""
    scopes = [(v,) for v in post.problem.model.variables]
    sd = np.concatenate([np.sqrt(post.beliefs.variance(s)) for s in scopes])
    errors = [post.beliefs.mc_error(s) for s in scopes]
    return sd, None if errors[0] is None else np.concatenate(errors)


def _dense(cells: int, times: int) -> dict[str, float]:
    """Every move possible, counts by Poisson noise."""
    problem = random_chain(cells, times, 100 * cells)
    tree, exact = _seconds(problem, TiltedEP(structure="tree"))
    start = time.perf_counter()
    for edge in pairwise(problem.model.variables):
        exact.beliefs.variance(edge)
    tree += time.perf_counter() - start
    free, drawn = _seconds(problem, TiltedEP(structure="matrix-free"))
    (sd, _), (other, error) = _spread(exact), _spread(drawn)
    assert error is not None
    live = error > 0
    off = float(np.sqrt(np.mean(((other - sd)[live] / error[live]) ** 2)))
    return {
        "tree": tree,
        "free": free,
        "error": float(np.median(error / other)),
        "off": off,
        "moves": cells**2,
    }


def grid_walk(side: int, reach: int) -> sparse.csr_array:
    """Moves on a square grid to all cells within ``reach`` rows and columns, likelier to near ones and along one axis."""
    x, y = np.divmod(np.arange(side**2), side)
    parts = []
    for dx in range(-reach, reach + 1):
        for dy in range(-reach, reach + 1):
            inside = (x + dx >= 0) & (x + dx < side) & (y + dy >= 0) & (y + dy < side)
            weight = np.full(inside.sum(), np.exp(-0.5 * (dx**2 + dy**2) + 0.3 * dx))
            parts.append((weight, np.flatnonzero(inside), ((x + dx) * side + y + dy)[inside]))
    weights, rows, columns = (np.concatenate(part) for part in zip(*parts, strict=True))
    table = sparse.csr_array((weights, (rows, columns)), shape=(side**2, side**2))
    return sparse.csr_array(sparse.diags_array(1.0 / table.sum(axis=1)) @ table)


def _world(side: int, reach: int, times: int, per_cell: int, seed: int) -> tuple[hc.MarkovChain, np.ndarray]:
    """A grid walk, and the true counts of a population on it."""
    rng, cells = np.random.default_rng(seed), side**2
    table = grid_walk(side, reach)
    counts = [rng.multinomial(per_cell * cells, np.full(cells, 1 / cells))]
    for _ in range(times - 1):
        moved = np.zeros(cells, dtype=np.int64)
        for i in range(cells):
            row = slice(table.indptr[i], table.indptr[i + 1])
            chances = table.data[row] / table.data[row].sum()
            moved[table.indices[row]] += rng.multinomial(counts[-1][i], chances)
        counts.append(moved)
    return hc.MarkovChain(np.full(cells, 1 / cells), table, length=times), np.array(counts)


def _sparse(side: int, reach: int, times: int, *, point: bool = True) -> dict[str, Any]:
    """A grid walk of 20 individuals per cell, counted with Poisson noise."""
    model, counts = _world(side, reach, times, PER_CELL, 1)
    seen = np.random.default_rng(2).poisson(counts).astype(float)
    problem = hc.Problem(model, PER_CELL * side**2, hc.Poisson(seen))
    taken = _seconds(problem, MAP())[0] if point else ""
    free, drawn = _seconds(problem, TiltedEP(structure="matrix-free", mc_error=0.07))
    sd, error = _spread(drawn)
    assert error is not None
    return {
        "map": taken,
        "free": free,
        "error": float(np.sqrt(np.mean((error / sd) ** 2))),
        "memory": peak_memory(),
        "moves": int(grid_walk(side, reach).nnz),
    }


def _flows(side: int, times: int) -> dict[str, Any]:
    """All flows of a sparse map into one Parquet file; Gaussian readings and few draws, so that most of the time is the writing."""
    cells = side**2
    readings = np.random.default_rng(3).normal(PER_CELL, 5.0, (times, cells))
    model = hc.MarkovChain(np.full(cells, 1 / cells), grid_walk(side, 1), length=times)
    problem = hc.Problem(model, PER_CELL * cells, hc.Gaussian(readings, sd=5.0))
    start = time.perf_counter()
    post = hc.infer(problem, ClosedForm(structure="matrix-free", final_draws=8))
    inferred, held = time.perf_counter() - start, peak_memory()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "flows.parquet"
        start = time.perf_counter()
        hc.io.write_flows(post, path)
        written, found = time.perf_counter() - start, parquet.ParquetFile(path).metadata
        return {
            "rows": found.num_rows,
            "row groups": found.num_row_groups,
            "GB on disk": path.stat().st_size / 1e9,
            "seconds to infer": inferred,
            "seconds to write": written,
            "GiB to infer": held,
            "more": peak_memory() - held,
        }


def _coverage(side: int) -> tuple[float, float]:
    """How often 90 % intervals hold the true counts, at observed times and at the one that nobody observed."""
    model, counts = _world(side, 1, 8, 50, 2)
    seen = np.random.default_rng(3).poisson(counts).astype(float)
    seen[4] = np.nan
    post = hc.infer(hc.Problem(model, 50 * side**2, hc.Poisson(seen)), TiltedEP(structure="matrix-free"))
    shares = []
    for t in range(8):
        interval, mean = post.node(t).interval(0.9), np.asarray(post.node(t).mean)
        held = (np.asarray(interval["lower"]) <= counts[t]) & (counts[t] <= np.asarray(interval["upper"]))
        shares.append(held[mean * (1 - mean / (50 * side**2)) >= LIVELY])
    return float(np.concatenate([s for t, s in enumerate(shares) if t != 4]).mean()), float(shares[4].mean())


if __name__ == "__main__":
    numbers = [int(x) for x in sys.argv[2:]]
    if sys.argv[1] == "flows":
        _flows(3, 3)  # compiles
        print(json.dumps(_flows(*numbers)))
    else:
        _sparse(3, 1, 3)  # compiles
        print(json.dumps(_sparse(*numbers[:3], point=bool(numbers[3]))))
