"""Starts for a homogeneous transition matrix, from totals alone.

**Moments** (Bernstein and Sheldon 2016, for a stationary chain): counts n_t, n_{t+1} have the covariance
Σ_{t,t+1} = N (diag(μ) P − μ μᵀ), and noise that is independent between times does not touch it, so

    P = diag(μ)⁻¹ (Σ_{t,t+1}/N + μ μᵀ).

**Regression** (any chain): E[n_{t+1} | n_t] = Pᵀ n_t, by least squares over time.

Either estimate is projected, row by row, onto the laws over the free entries and mixed with a tenth of the uniform
law: it is a start, inside, not an answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headcount.learn._component import Array
from headcount.learn._family import ChainFamily, Family, RateFamily
from headcount.learn._rows import Rows
from headcount.observe import Binomial, Poisson, Problem

_UNIFORM = 0.1


def candidates(families: Sequence[Family], problems: Sequence[Problem]) -> dict[str, Array]:
    """Named starts, the neutral one first."""
    found = {"zero": families[0].start()}
    inner = families[0].inner if isinstance(families[0], RateFamily) else families[0]
    if not isinstance(inner, ChainFamily) or not inner.homogeneous or not isinstance(inner.transitions, Rows):
        return found
    totals = [node_totals(p) for p in problems]
    known = [t for t in totals if t is not None]
    if len(known) < len(problems) or any(len(t) < 3 for t in known):
        return found
    sizes = [p.population for p in problems]
    for name, matrix in (("moments", moments(known, sizes)), ("regression", regression(known))):
        law = interior(matrix, inner.transitions)
        x = found["zero"].copy()
        x[: len(inner.transitions.names)] = inner.transitions.log_odds(law)
        found[name] = x
    return found


def node_totals(problem: Problem) -> Array | None:
    """Estimated counts of every cell and time, shape (T, L), from node observations; None if any is missing."""
    order = {v: k for k, v in enumerate(problem.model.variables)}
    table = np.full((len(order), len(next(iter(problem.model.states.values())))), np.nan)
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
    """Each row as a law over its free entries, none of them zero; fixed entries as they are."""
    made = rows.fixed.copy()
    for r, free in enumerate(rows.free):
        if not free.any():
            continue
        wanted = matrix[r, free]
        even = np.full(free.sum(), 1.0 / free.sum())
        law = simplex(wanted / rows.mass[r]) if np.isfinite(wanted).all() else even
        made[r, free] = rows.mass[r] * ((1 - _UNIFORM) * law + _UNIFORM * even)
    return made


def simplex(v: Array) -> Array:
    """The nearest probability law to v."""
    ordered = np.sort(v)[::-1]
    excess = (np.cumsum(ordered) - 1.0) / np.arange(1, len(v) + 1)
    threshold = excess[np.flatnonzero(ordered > excess)[-1]]
    return np.maximum(v - threshold, 0.0)
