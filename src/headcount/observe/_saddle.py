"""Loader's saddle-point form of the Poisson law, the building block of every count noise.

    log Poisson(x; m) = −½ log(2 pi x) − delta(x) − D(x, m),    D(x, m) = x log(x/m) + m − x

with delta the error of Stirling's formula. The textbook form x log m − m − log x! subtracts numbers of size
x log x: at x = 1e12 it loses 4e-3 nats; this one keeps 1e-15 relative to the result (C. Loader, *Fast and
accurate computation of binomial probabilities*, 2000). x may be any real number ≥ 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy

Array = NDArray[np.float64]

_SMALL = 256.0
"""Below it the textbook form loses at most 4e-13, and is three times faster."""
_NEAR = 0.1
# delta(x) = sum_k c_k / x^(2k+1). At x ≥ 256 the next term is below 1e-20.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260)
_HALF_LOG_TWO_PI = 0.5 * np.log(2 * np.pi)


def log_poisson(x: Array, mean: Array, difference: Array | None = None) -> Array:
    """The law log Poisson(x; mean) = x log(mean) − mean − log Gamma(x + 1), for real x ≥ 0 and mean ≥ 0.

    `difference` is x − mean where the caller knows it better than the subtraction would. −inf where
    mean = 0 < x. What depends on x alone is computed in x's own shape: windows of means share it.
    """
    x, mean = np.asarray(x, dtype=float), np.asarray(mean, dtype=float)
    difference = x - mean if difference is None else difference
    small = x < _SMALL
    if small.all():
        return xlogy(x, mean) - mean - gammaln(x + 1)
    big_x = np.where(small, _SMALL, x)
    constant = -_HALF_LOG_TWO_PI - 0.5 * np.log(big_x) - stirling_error(big_x)
    positive = np.where(mean > 0, mean, 1.0)
    saddle = np.where(mean > 0, constant - deviance(big_x, positive, difference), -np.inf)
    if not small.any():
        return saddle
    few = np.where(small, x, 0.0)
    return np.where(small, xlogy(few, mean) - mean - gammaln(few + 1), saddle)


def stirling_error(x: Array) -> Array:
    """delta(x) = log Gamma(x + 1) − (x + ½) log x + x − ½ log 2 pi by its asymptotic series, for x ≥ 256."""
    inverse = 1.0 / x
    square = inverse * inverse
    total = np.zeros_like(x)
    for coefficient in reversed(_STIRLING):
        total = total * square + coefficient
    return total * inverse


def deviance(x: Array, mean: Array, difference: Array) -> Array:
    """D(x, m) = x log(x/m) + m − x without cancellation, for x, m > 0 and difference = x − m.

    With v = (x − m)/(x + m): D = (x − m) v + 2 x v sum_{j≥1} v^(2j)/(2j + 1), used for abs(v) < 0.1.
    """
    v = difference / (x + mean)
    near = np.abs(v) < _NEAR
    square = np.where(near, v, 0.0) ** 2
    series = np.zeros_like(v)
    for j in range(9, 0, -1):
        series = (series + 1.0 / (2 * j + 1)) * square
    far = x * np.log(x / mean) - difference
    return np.where(near, v * (difference + 2 * x * series), far)
