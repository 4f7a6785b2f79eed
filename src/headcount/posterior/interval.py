r"""Quantiles of counts from two moments.

Means and variances do not say how a count is distributed; its bounds and its prior do. A count between 0 and N with mean m and
variance v gets the law on the whole numbers with these moments that is nearest to a binomial,

.. math:: P(k) \propto \binom{N}{k}\, e^{A (k-m)^2 + B (k-m)} ,

the same law with which the default engine describes small counts; where v is above the binomial's m(1 − m/N), where that law would
rise again in its tail, it gets Pólya's (beta-binomial) law. On the README's world the ends and medians of flows so found are those of
exact sampling in 95 % of the cells, those of a rounded :math:`N\cdot\mathrm{Beta}` in 80 %.

Both laws are made from the ratios of neighbouring probabilities, which keep their digits however large N is, where differences of
log factorials lose them. Entries with windows of about the same length are the rows of one array.

Where v is large the law is as good as continuous, and :math:`P(n \le k) = F(k + \tfrac12)` with F of :math:`N\cdot\mathrm{Beta}(a, b)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainc, betaincinv, gammainc, gammaincinv, ndtr, ndtri

from headcount.checks import brief, finite_number
from headcount.errors import ModelError
from headcount.solve.whole_law import STEEPEST_START, LawWindows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headcount._types import Array, Mask

LARGE_VARIANCE = 100.0
"""Variance (individuals²) from which a count is taken as continuous: one individual is then a tenth of the sd."""
LARGE_SHAPE = 1e4
"""Shape parameter from which a Beta law is taken as Gaussian: its skewness is then below 0.02."""


def tails(level: float) -> tuple[float, float]:
    """Probabilities below the lower and the upper end of a central interval."""
    share = checked_level(level)
    return (1 - share) / 2, (1 + share) / 2


def checked_level(level: float) -> float:
    """The level of an interval as a plain number."""
    share = finite_number(level, "level", expected="a number between 0 and 1")
    if not 0 < share < 1:
        raise ModelError(f"level is {brief(level)}: give a number between 0 and 1")
    return share


def sd_of(variance: Array | None, shape: tuple[int, ...]) -> Array:
    """Standard deviations; NaN where there are no variances, 0 where rounding made one negative."""
    return np.full(shape, np.nan) if variance is None else np.sqrt(np.maximum(variance, 0.0))


def quantiles(
    mean: Array, variance: Array, probabilities: Sequence[float], *, bound: float | None, whole: bool
) -> tuple[Array, ...]:
    """Quantiles of counts between 0 and ``bound``, as whole numbers or of a continuous law.

    Without a bound they are Gaussian, for engines whose means may be negative: that hides nothing.
    """
    if bound is not None and whole:
        return whole_quantiles(mean, variance, bound, probabilities)
    if bound is not None:
        return tuple(count_quantile(np.maximum(mean, 0.0), variance, bound, q) for q in probabilities)
    plain = (gaussian_quantile(mean, variance, q) for q in probabilities)
    return tuple(nearest_whole(table) if whole else table for table in plain)


def sum_quantiles(
    mean: float,
    variance: float,
    ends: tuple[float, float],
    probabilities: Sequence[float],
    *,
    bounded: bool,
    whole: bool,
) -> list[float]:
    """Quantiles of a weighted sum of counts, which lies between the two ends."""
    low, high = ends
    if high == low:
        return [low for _ in probabilities]
    bound = high - low if bounded else None
    found = quantiles(np.array([mean - low]), np.array([variance]), probabilities, bound=bound, whole=whole)
    return [low + float(end[0]) for end in found]


def whole_quantiles(
    mean: Array, variance: Array, population: float, probabilities: Sequence[float]
) -> tuple[Array, ...]:
    """Per probability q, the smallest whole number k with P(n ≤ k) ≥ q, for every entry.

    Parameters
    ----------
    mean, variance
        Of every entry; means below 0 or above N and variances below 0 by rounding are taken as 0 and N.
    population
        N, the largest possible count.
    """
    shape = np.shape(mean)
    m = np.clip(np.asarray(mean, float).ravel(), 0.0, population)
    v = np.maximum(np.asarray(variance, float).ravel(), 0.0)
    out = np.empty((len(probabilities), m.size))
    small = v <= LARGE_VARIANCE
    part = np.empty((len(probabilities), int(small.sum())))
    fill_quantiles(m[small], v[small], float(population), np.array(probabilities, float), part)
    out[:, small] = part
    if not small.all():
        for row, q in zip(out, probabilities, strict=True):
            row[~small] = nearest_whole(count_quantile(m[~small], v[~small], population, q))
    return tuple(row.reshape(shape) for row in out)


POINTS = 4001
"""Whole numbers, or equal steps, on which the law of a number of individuals is tabulated."""


def law_of_count(mean: float, variance: float, bound: float) -> tuple[Array, Array]:
    """Whole numbers from 0 to a bound, and their probabilities under the law that `whole_quantiles` gives a count with these moments."""
    m, v = min(max(mean, 0.0), bound), max(variance, 0.0)
    if v == 0.0 or bound == 0.0:
        return np.array([np.rint(m)]), np.ones(1)
    reach = REACH * np.sqrt(v) + min(POLYA_TAIL * v / max(m, 1e-9), LONGEST_TAIL) + SMALL_TAIL
    low, high = max(np.floor(m - REACH * np.sqrt(v)), 0.0), min(np.ceil(m + reach), bound)
    if v <= LARGE_VARIANCE:
        k = np.arange(low, high + 1.0)[None]
        wide = v > m * (1.0 - m / bound) and bound > 1 if bound > 0 else False
        law = _polya if wide else _fitted
        p = law(np.array([m]), np.array([v]), max(bound, 1.0), k, np.ones(k.shape, dtype=bool))[0]
        return k[0], p / p.sum()
    ends = np.array([count_quantile(np.array([m]), np.array([v]), bound, q)[0] for q in (1e-12, 1 - 1e-12)])
    low, high = max(np.floor(ends[0]), 0.0), min(np.ceil(ends[1]), bound)
    values = np.unique(np.rint(np.linspace(low, high, min(POINTS, int(high - low) + 1))))
    edges = np.concatenate([[low - 0.5], 0.5 * (values[1:] + values[:-1]), [high + 0.5]])
    p = np.diff(_count_below(m, v, bound, edges))
    return values, p / p.sum()


def _count_below(mean: float, variance: float, bound: float, at: Array) -> Array:
    """P(x ≤ at) of N·Beta(a, b) with the given moments; Gaussian where that is as good."""
    p = mean / bound
    weight = p * (1 - p) * bound**2 / variance - 1.0
    a, b = p * weight, (1 - p) * weight
    if not 0 < p < 1 or weight <= 0 or min(a, b) >= LARGE_SHAPE:
        return np.asarray(ndtr((at - mean) / np.sqrt(variance)))
    if b > LARGE_SHAPE * max(a, 1.0):  # the bound is far away: the limit is a gamma law
        return np.asarray(gammainc(a, np.maximum(at, 0.0) * a / mean))
    return np.asarray(betainc(a, b, np.clip(at / bound, 0.0, 1.0)))


def nearest_whole(quantile: Array) -> Array:
    """The smallest k with F(k + ½) ≥ q, given the quantile at q of the continuous law F."""
    return np.ceil(quantile - 0.5) + 0.0  # + 0.0: no minus zero


def count_quantile(mean: Array, variance: Array, population: float, level: float) -> Array:
    """Quantile at ``level`` of N·Beta(a, b) with the given moments, of every entry."""
    mean, variance = np.asarray(mean, float), np.asarray(variance, float)
    gaussian = gaussian_quantile(mean, variance, level)
    p = mean / population
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = p * (1 - p) * population**2 / variance - 1.0
        a, b = p * weight, (1 - p) * weight
        shaped = (p > 0) & (p < 1) & (variance > 0) & (weight > 0) & (np.minimum(a, b) < LARGE_SHAPE)
    out = np.clip(gaussian, 0.0, population)
    far = shaped & (b > LARGE_SHAPE * np.maximum(a, 1.0))  # the bound is far away: the limit is a gamma law
    out[far] = mean[far] / a[far] * gammaincinv(a[far], level)
    near = shaped & ~far
    if near.any():
        out[near] = population * betaincinv(a[near], b[near], level)
    return out


def gaussian_quantile(mean: Array, variance: Array, level: float) -> Array:
    """Plain Gaussian quantile."""
    return mean + ndtri(level) * np.sqrt(np.maximum(variance, 0.0))


# --- the laws on whole numbers

REACH = 9.0
"""Standard deviations on either side of the mean over which a law is summed: beyond lies less than 1e-14 of a Gaussian."""
SMALL_TAIL = 6
"""Whole numbers added to that reach, because small counts have longer upper tails: a Poisson law of any mean has less than 1e-14
beyond."""
POLYA_TAIL = 30.0
"""The same for the Pólya law, in units of v/m: its tail falls by 1 − m/v or faster per individual, and (1 − x)^(30/x) < 1e-13."""
LONGEST_TAIL = 4000.0
"""Bound on the latter, in individuals."""
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
    """p(k) ∝ (N over k) exp(A s² + B s), s = k − m, with mean m and variance v (see `solve.whole_law`).

    Two neighbouring numbers where no law of whole numbers is as narrow.
    """
    fraction = (m - np.floor(m))[:, None]
    near = k - np.floor(m)[:, None]
    p = np.where(near == 0, 1.0 - fraction, np.where(near == 1, fraction, 0.0))
    rows = np.flatnonzero(~((v <= 1.02 * (fraction * (1.0 - fraction))[:, 0]) | (v < 1e-6)))
    m, v, k, inside = m[rows], v[rows], k[rows], inside[rows]
    base, s, mu = _from_ratios((n - k) / (k + 1.0)), k - m[:, None], m / n
    first = np.maximum(-0.5 * (1.0 / v - 1.0 / (m * (1.0 - mu))), STEEPEST_START), np.log(mu) - np.log1p(-mu)
    windows = LawWindows(base[inside], s[inside], inside.sum(axis=1))
    a, b, _, found = windows.match(v, *first, np.full(len(m), np.inf))
    law = _scaled(base + s * (b[:, None] + a[:, None] * s), inside)
    p[rows] = np.where((found > 0.0)[:, None], law, p[rows])
    return p
