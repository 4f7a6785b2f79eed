"""Claim: maps of thousands of cells get standard deviations without matrices, at a small multiple of MAP's time."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
from scipy import sparse

import headcount as hc
from benchmarks._measure import peak_memory
from benchmarks._problems import random_chain
from benchmarks._report import Check, Report, Table
from headcount.engines import MAP, TiltedEP

MOST_DRAWS_OFF = 0.05
"""Relative Monte-Carlo error of an sd (median) that the dense map is asked for."""


def run(*, quick: bool) -> Report:
    """A dense map against the structure with matrices, then a sparse one against MAP."""
    cells, side, reach, times = (196, 30, 1, 6) if quick else (1024, 100, 3, 52)
    _dense(9, 3), _sparse(3, 1, 3)  # compiles
    dense = _dense(cells, 6 if quick else 20)
    thin = _sparse(side, reach, times)
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
        Check("sparse map, median error of sds", thin["error"], at_most=0.07),
        Check("sparse map, peak memory", thin["memory"], at_most=6.0, unit="GiB"),
    ]
    rows = [
        ["dense", cells, dense["moves"], dense["tree"], "", dense["free"], dense["error"]],
        ["sparse", side**2, thin["moves"], "", thin["map"], thin["free"], thin["error"]],
    ]
    columns = ["map", "cells", "moves per step", "with matrices, s", "MAP, s", "without, s", "error of sds"]
    return Report(
        "large",
        "Large maps without matrices.",
        checks=checks,
        tables=[Table("Nodes and flows with standard deviations", columns, rows)],
        seeds=[1],
    )


def _seconds(problem: hc.Problem, engine: hc.engines.Engine) -> tuple[float, hc.Posterior]:
    """Time of nodes and flows with their spread: the first question makes all of them without matrices, each edge alone with them."""
    start = time.perf_counter()
    post = hc.infer(problem, engine)
    if post.beliefs.has_spread:
        post.beliefs.variance(problem.model.variables[:1])
        post.beliefs.mc_error(problem.model.variables[:2])
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


def _sparse(side: int, reach: int, times: int) -> dict[str, float]:
    """A grid walk of 20 individuals per cell, counted with Poisson noise around a simulated world."""
    rng, cells = np.random.default_rng(1), side**2
    table = grid_walk(side, reach)
    counts, seen = rng.multinomial(20 * cells, np.full(cells, 1 / cells)), []
    for _ in range(times):
        seen.append(rng.poisson(counts))
        moved = np.zeros(cells, dtype=np.int64)
        for i in range(cells):
            row = slice(table.indptr[i], table.indptr[i + 1])
            chances = table.data[row] / table.data[row].sum()
            moved[table.indices[row]] += rng.multinomial(counts[i], chances)
        counts = moved
    model = hc.MarkovChain(np.full(cells, 1 / cells), table, length=times)
    problem = hc.Problem(model, 20 * cells, hc.Poisson(np.array(seen, dtype=float)))
    point, _ = _seconds(problem, MAP())
    free, drawn = _seconds(problem, TiltedEP(structure="matrix-free"))
    sd, error = _spread(drawn)
    assert error is not None
    return {
        "map": point,
        "free": free,
        "error": float(np.median(error / sd)),
        "memory": peak_memory(),
        "moves": int(table.nnz),
    }
