r"""Quantiles of counts from two moments.

Means and variances do not say how a count is distributed; its bounds and its prior do. A count between 0 and N with mean m and
variance v gets the law on the whole numbers with these moments that is nearest to a binomial,

.. math:: P(k) \propto \binom{N}{k}\, e^{A (k-m)^2 + B (k-m)} ,

the same law with which the default engine describes small counts; where v is above the binomial's m(1 − m/N), where that law would
rise again in its tail, it gets Pólya's (beta-binomial) law. On the README's world the ends and medians of flows so found are those of
exact sampling in 95 % of the cells, those of a rounded :math:`N\cdot\mathrm{Beta}` in 80 %.

Where v is large the law is as good as continuous, and :math:`P(n \le k) = F(k + \tfrac12)` with F of :math:`N\cdot\mathrm{Beta}(a, b)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betaincinv, ndtri

from headcount.posterior._whole_law import fill_quantiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headcount._types import Array

LARGE_VARIANCE = 100.0
"""Variance (individuals²) from which a count is taken as continuous: one individual is then a tenth of the sd."""
LARGE_SHAPE = 1e4
"""Shape parameter from which a Beta law is taken as Gaussian: its skewness is then below 0.02."""


def tails(level: float) -> tuple[float, float]:
    """Probabilities below the lower and the upper end of a central interval."""
    if not 0 < level < 1:
        message = f"level must lie between 0 and 1, got {level!r}"
        raise ValueError(message)
    return (1 - level) / 2, (1 + level) / 2


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
    if shaped.any():
        out[shaped] = population * betaincinv(a[shaped], b[shaped], level)
    return out


def gaussian_quantile(mean: Array, variance: Array, level: float) -> Array:
    """Plain Gaussian quantile."""
    return mean + ndtri(level) * np.sqrt(np.maximum(variance, 0.0))
