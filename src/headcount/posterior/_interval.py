r"""Intervals for counts from two moments.

A count between 0 and N with mean m and variance v gets the quantiles of :math:`N\cdot\mathrm{Beta}(a, b)` with those moments:
inside [0, N], skewed where counts are small, Gaussian where they are large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betaincinv, ndtri

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


def tails(level: float) -> tuple[float, float]:
    """Probabilities below the lower and the upper end of a central interval."""
    if not 0 < level < 1:
        message = f"level must lie between 0 and 1, got {level!r}"
        raise ValueError(message)
    return (1 - level) / 2, (1 + level) / 2


def count_quantile(mean: Array, variance: Array, population: float, level: float) -> Array:
    """Quantile at ``level`` of every entry."""
    mean, variance = np.asarray(mean, float), np.asarray(variance, float)
    gaussian = mean + ndtri(level) * np.sqrt(np.maximum(variance, 0.0))
    p = mean / population
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = p * (1 - p) * population**2 / variance - 1.0
        a, b = p * weight, (1 - p) * weight
        shaped = (p > 0) & (p < 1) & (variance > 0) & (weight > 0) & (np.minimum(a, b) < 1e4)
    out = np.clip(gaussian, 0.0, population)
    if shaped.any():
        out[shaped] = population * betaincinv(a[shaped], b[shaped], level)
    return out


def gaussian_quantile(mean: Array, variance: Array, level: float) -> Array:
    """Plain Gaussian quantile, for engines whose means may be negative: it hides nothing."""
    return mean + ndtri(level) * np.sqrt(np.maximum(variance, 0.0))
