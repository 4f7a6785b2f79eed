"""Quantiles of whole-number laws with a given mean and variance; the laws are those of ``_interval``.

Both laws are made from the ratios of neighbouring probabilities, which keep their digits however large N is, where differences of
log factorials lose them. Entries with windows of about the same length are the rows of one array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from headcount._types import Array, Mask

REACH = 9.0
"""Standard deviations on either side of the mean over which a law is summed: beyond lies less than 1e-14 of a Gaussian."""
SMALL_TAIL = 6
"""Whole numbers added to that reach, because small counts have longer upper tails: a Poisson law of any mean has less than 1e-14
beyond."""
POLYA_TAIL = 30.0
"""The same for the Pólya law, in units of v/m: its tail falls by 1 − m/v or faster per individual, and (1 − x)^(30/x) < 1e-13."""
LONGEST_TAIL = 4000.0
"""Bound on the latter, in individuals."""
NEWTON_STEPS = 40
LARGEST_STEP = 2.0
"""Largest change of A or B (log probability per squared or plain individual) in one Newton step. Measured: twice this
also converges on all of 20 000 random moments, four times this does not."""
CLOSE = 1e-5
"""Error of mean and variance, in units of the sd and the variance, at which the fit ends: far below what moves a quantile."""

SMALLEST = 1e-300
"""Least b of a Pólya law: with a mean of N and a variance of rounding, b is 0 and p(N)/p(N − 1) no number."""
CHUNK = 1 << 15
"""Points of one array: a few arrays of so many stay in a processor's cache."""


def fill_quantiles(mean: Array, variance: Array, population: float, probabilities: Array, out: Array) -> None:
    """Fill ``out[q, i]``, the smallest k with P(n_i ≤ k) ≥ ``probabilities[q]``."""
    out[:] = 0.0
    live = np.flatnonzero(mean > 1.0 - probabilities.max())  # of the others P(n ≥ 1) ≤ m says that k is 0
    m, v = np.minimum(mean[live], population), variance[live]
    # One individual is here or not: there is no wider law.
    sd, wide = np.sqrt(v), (v > m * (1.0 - m / population)) & (population > 1)
    tail = SMALL_TAIL + np.where(wide, np.minimum(POLYA_TAIL * v / m, LONGEST_TAIL), 0.0)
    low = np.maximum(np.floor(m - REACH * sd), 0.0)
    count = (np.minimum(np.ceil(m + REACH * sd + tail), population) - low).astype(np.intp) + 1
    order = np.lexsort((count, wide))
    while len(order):
        alike = order[: max(CHUNK // int(count[order[0]]), 1)]
        # Rows of one kind, none much longer than the first.
        alike = alike[(wide[alike] == wide[order[0]]) & (count[alike] <= 1.5 * count[order[0]] + 8)]
        order = order[len(alike) :]
        k = low[alike, None] + np.arange(float(count[alike].max()))
        law = _polya if wide[alike[0]] else _fitted
        p = law(m[alike], v[alike], population, k, np.arange(k.shape[1]) < count[alike, None])
        below = np.cumsum(p, axis=1)
        for row, q in zip(out, probabilities, strict=True):
            passed = (below < (q * below[:, -1] * (1.0 - 1e-12))[:, None]).sum(axis=1)
            row[live[alike]] = low[alike] + np.minimum(passed, count[alike] - 1)


def _from_ratios(ratios: Array) -> Array:
    """log p of every row, less that of its first entry, from p(k+1)/p(k)."""
    log_p = np.zeros_like(ratios)
    with np.errstate(divide="ignore", invalid="ignore"):
        np.cumsum(np.log(ratios[:, :-1]), axis=1, out=log_p[:, 1:])
    return log_p


def _scaled(log_p: Array, inside: Mask) -> Array:
    """exp of every row, largest value one, zero outside the window."""
    log_p = np.where(inside, log_p, -np.inf)
    return np.exp(log_p - log_p.max(axis=1, keepdims=True))


def _polya(m: Array, v: Array, n: float, k: Array, inside: Mask) -> Array:
    """Pólya (beta-binomial) law: P(k+1)/P(k) = (N−k)(k+a) / ((k+1)(N−k−1+b)), a + b = (N − r)/(r − 1), r = v / binomial variance."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.minimum(v / (m * (1.0 - m / n)), 0.999 * n)
        weight = (n - ratio) / (ratio - 1.0)
        a, b = (weight * m / n)[:, None], np.maximum(weight * (1.0 - m / n), SMALLEST)[:, None]
        ratios = (n - k) * (k + a) / ((k + 1.0) * (n - k - 1.0 + b))
    return _scaled(_from_ratios(ratios), inside)


def _fitted(m: Array, v: Array, n: float, k: Array, inside: Mask) -> Array:
    """p(k) ∝ (N over k) exp(A s² + B s), s = k − m, with mean m and variance v, by Newton on A and B.

    Two neighbouring numbers where no law of whole numbers is as narrow.
    """
    fraction = (m - np.floor(m))[:, None]
    near = k - np.floor(m)[:, None]
    p = np.where(near == 0, 1.0 - fraction, np.where(near == 1, fraction, 0.0))
    rows = np.flatnonzero(~((v <= 1.02 * (fraction * (1.0 - fraction))[:, 0]) | (v < 1e-6)))
    m, v, k, inside = m[rows], v[rows], k[rows], inside[rows]
    base, s = _from_ratios((n - k) / (k + 1.0)), k - m[:, None]
    mu = m / n
    a = np.maximum(-0.5 * (1.0 / v - 1.0 / (m * (1.0 - mu))), -8.0)
    b = np.log(mu) - np.log1p(-mu)
    for _ in range(NEWTON_STEPS):
        if not len(rows):
            break
        p[rows] = here = _scaled(base + s * (b[:, None] + a[:, None] * s), inside)
        moments, weighed = [], here
        for _ in range(4):
            weighed = weighed * s
            moments.append(weighed.sum(axis=1))
        m1, m2, m3, m4 = np.array(moments) / here.sum(axis=1)
        aa, ab, bb = m4 - m2 * m2, m3 - m1 * m2, m2 - m1 * m1
        determinant = aa * bb - ab * ab
        going = ~((np.abs(m1) <= CLOSE * np.sqrt(v)) & (np.abs(m2 - v) <= CLOSE * v)) & (
            determinant > 1e-14 * aa * bb
        )
        rows, v, base, s, inside, a, b, m1, m2, aa, ab, bb, determinant = (
            x[going] for x in (rows, v, base, s, inside, a, b, m1, m2, aa, ab, bb, determinant)
        )
        step_a = (bb * (v - m2) + ab * m1) / determinant
        step_b = (-ab * (v - m2) - aa * m1) / determinant
        largest = np.maximum(np.maximum(np.abs(step_a), np.abs(step_b)), 1e-300)
        length = np.minimum(1.0, LARGEST_STEP / largest)
        a, b = a + length * step_a, b + length * step_b
    return p
