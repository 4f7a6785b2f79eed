"""Where a climb begins: at the user's start, or near the maximum by cheap climbs from several starts.

Starts for a homogeneous transition matrix come from totals alone:

**Moments** (Bernstein and Sheldon 2016, for a stationary chain): counts n_t, n_{t+1} have the covariance
Σ_{t,t+1} = N (diag(μ) P − μ μᵀ), and noise that is independent between times does not touch it, so

    P = diag(μ)⁻¹ (Σ_{t,t+1}/N + μ μᵀ).

**Regression** (any chain): E[n_{t+1} | n_t] = Pᵀ n_t, by least squares over time.

Either estimate is projected, row by row, onto the distributions over the free entries and mixed with a tenth of the uniform
one: it is a start, inside, not an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headcount.engines import MAP, TiltedEP
from headcount.learn._climb import Climb, Climber, em_residual, first_state, tried
from headcount.learn._components import Array, Rows
from headcount.learn._expect import Evaluation, Expectation
from headcount.learn._families import Family, chain_family
from headcount.observe import Binomial, Poisson, Problem, ProblemError

UNIFORM_SHARE = 0.1
"""Share of the uniform distribution in a start, which keeps it off the boundary; any small share would do."""
MAP_TOLERANCE = 1.0
"""Standard errors from MAP's maximum at which the engine asked for takes over: its own lies about that far away."""
MAP_BUDGET = 60
"""Steps that MAP may take to get there."""


def begin(expect: Expectation, start: Any, *, climbing: bool) -> tuple[Climb, str]:
    """The first evaluation, and which start it was."""
    if start is None and climbing and isinstance(expect.engine, TiltedEP):
        near = _by_map(expect)
        if near is not None:
            return near
    name, point = _best(expect, _starts(expect, start))
    return Climb(point, step=0.0, residual=em_residual(point)), name


def _starts(expect: Expectation, start: Any) -> dict[str, Array]:
    """The starts to try, by name."""
    found = candidates(expect.families, expect.problems)
    if start is None:
        return found
    if not isinstance(start, str):
        return {"given": working_start(expect.families[0], start)}
    if start not in found:
        raise ValueError(f"start is {start!r}: this parametrisation knows {', '.join(found)}")
    return {start: found[start]}


def _best(expect: Expectation, starts: Mapping[str, Array]) -> tuple[str, Evaluation]:
    """The start with the most evidence; what was wrong with all of them if none can be evaluated."""
    best: tuple[str, Evaluation] | None = None
    failures: list[str] = []
    for name, x in starts.items():
        try:
            point = expect(x, None)
        except ValueError as error:
            failures.append(f"start {name!r}: {error}")
            continue
        if best is None or not (best[1].value >= point.value):
            best = (name, point)
    if best is None:
        raise ProblemError(failures)
    return best


def _by_map(expect: Expectation) -> tuple[Climb, str] | None:
    """Near the maximum by MAP's E-steps, with what they told of the curvature; None if the engine cannot go on there."""
    cheap = replace(expect, engine=MAP())
    name, point = _best(cheap, _starts(cheap, None))
    first = first_state(Climb(point, residual=em_residual(point)), cheap, name)
    ended, _ = Climber(budget=MAP_BUDGET, tolerance=MAP_TOLERANCE)(first, cheap)
    expect.e_steps = cheap.e_steps
    climb = ended.climb
    near = tried(expect, climb.point.x, climb.point)
    if near is None:
        return None
    return Climb(near, climb.pairs, 0.0, em_residual(near)), f"{name}, then MAP"


def working_start(family: Family, start: Any) -> Array:
    """A user's start as a vector of working parameters."""
    if isinstance(start, Mapping):
        return family.working(start)
    x = np.asarray(start, dtype=float).ravel()
    if x.shape != (len(family.names),) or not np.isfinite(x).all():
        raise ValueError(
            f"start is {start!r}: give {len(family.names)} finite numbers, {', '.join(family.names)}"
        )
    return x.copy()


def candidates(families: Sequence[Family], problems: Sequence[Problem]) -> dict[str, Array]:
    """Named starts, the neutral one first."""
    found = {"zero": families[0].start()}
    chain = chain_family(families[0])
    if chain is None or not chain.homogeneous or not isinstance(chain.transitions, Rows):
        return found
    totals = [node_totals(p) for p in problems]
    known = [t for t in totals if t is not None and len(t) >= 3]
    if len(known) < len(problems):
        return found
    sizes = [p.population for p in problems]
    for name, matrix in (("moments", moments(known, sizes)), ("regression", regression(known))):
        x = found["zero"].copy()
        x[: len(chain.transitions.names)] = chain.transitions.log_odds(interior(matrix, chain.transitions))
        found[name] = x
    return found


def node_totals(problem: Problem) -> Array | None:
    """Estimated counts of every cell and time, shape (T, L), from node observations; None if any is missing."""
    order = {v: k for k, v in enumerate(problem.model.variables)}
    sizes = {len(s) for s in problem.model.states.values()}
    if len(sizes) > 1:
        return None
    table = np.full((len(order), *sizes), np.nan)
    for site in problem.sites:
        if len(site.scope) == 1 and site.index is not None:
            noise = site.noise
            counts = np.asarray(noise.counts, dtype=float)
            if isinstance(noise, Poisson):
                counts = (counts - noise.background) / noise.rate
            elif isinstance(noise, Binomial):
                counts = counts / noise.detection
            table[order[site.scope[0]], site.index] = counts
    return None if np.isnan(table).any() else table


def moments(totals: Sequence[Array], populations: Sequence[int]) -> Array:
    """P = diag(μ)⁻¹(Σ_{t,t+1}/N + μμᵀ), averaged over times and sequences; not projected, shape (L, L)."""
    shares = [t / n for t, n in zip(totals, populations, strict=True)]
    mu = np.concatenate(shares).mean(axis=0)
    lagged = sum((n * (s[:-1] - mu).T @ (s[1:] - mu) for s, n in zip(shares, populations, strict=True)))
    pairs = sum(len(s) - 1 for s in shares)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (lagged / pairs + np.outer(mu, mu)) / mu[:, None]


def regression(totals: Sequence[Array]) -> Array:
    """argmin_P Σ_t |n_{t+1} − Pᵀ n_t|², shape (L, L)."""
    before = np.concatenate([t[:-1] for t in totals])
    after = np.concatenate([t[1:] for t in totals])
    return np.linalg.lstsq(before, after, rcond=None)[0]


def interior(matrix: Array, rows: Rows) -> Array:
    """Each row as a distribution over its free entries, none of them zero; fixed entries as they are."""
    made = rows.fixed.copy()
    for r, free in enumerate(rows.free):
        if not free.any():
            continue
        wanted = matrix[r, free]
        even = np.full(free.sum(), 1.0 / free.sum())
        law = simplex(wanted / rows.mass[r]) if np.isfinite(wanted).all() else even
        made[r, free] = rows.mass[r] * ((1 - UNIFORM_SHARE) * law + UNIFORM_SHARE * even)
    return made


def simplex(v: Array) -> Array:
    """The nearest probability distribution to v."""
    ordered = np.sort(v)[::-1]
    excess = (np.cumsum(ordered) - 1.0) / np.arange(1, len(v) + 1)
    threshold = excess[np.flatnonzero(ordered > excess)[-1]]
    return np.maximum(v - threshold, 0.0)
