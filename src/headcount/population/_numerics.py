"""Log-probabilities of counts that stay accurate when the counts are huge.

    log Poisson(x; m) = −½ log(2πx) − S(x) − D(x, m)          (Loader 2000)

S(x) = log x! − (½ log 2πx + x log x − x) is Stirling's error and D(x, m) = x log(x/m) + m − x the deviance.
The textbook form x log m − m − log x! subtracts numbers near x log x: at x = 10¹² it has lost 4e-3 nats.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

# Of the Stirling series 1/12x − 1/360x³ + …, enough terms for full precision above `_SERIES_FROM`.
_STIRLING_TERMS = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_SERIES_FROM = 16.0


def log_factorial(n: ArrayLike) -> NDArray[np.float64]:
    """Log n! for n ≥ 0, entry by entry."""
    return np.asarray(gammaln(np.asarray(n, dtype=float) + 1.0))


def stirling_error(x: ArrayLike) -> NDArray[np.float64]:
    """S(x) = log x! − (½ log 2πx + x log x − x), for x > 0."""
    x = np.asarray(x, dtype=float)
    large = np.where(x < _SERIES_FROM, _SERIES_FROM, x)
    inverse_square = 1.0 / large**2
    series = np.zeros_like(large)
    for coefficient in reversed(_STIRLING_TERMS):
        series = series * inverse_square + coefficient
    small = np.where(x < _SERIES_FROM, x, 1.0)
    direct = gammaln(small + 1.0) - (0.5 * np.log(2 * np.pi * small) + small * np.log(small) - small)
    return np.where(x < _SERIES_FROM, direct, series / large)


def deviance(x: ArrayLike, mean: ArrayLike) -> NDArray[np.float64]:
    """D(x, m) = x log(x/m) + m − x, for x > 0 and m > 0; never negative.

    Near x = m the three terms cancel, so there the series in v = (x − m)/(x + m) is summed instead:
    D = (x − m) v + 2x Σ_{k≥1} v^{2k+1}/(2k+1).
    """
    x, mean = np.broadcast_arrays(np.asarray(x, dtype=float), np.asarray(mean, dtype=float))
    near = np.abs(x - mean) < 0.1 * (x + mean)
    v = np.where(near, (x - mean) / (x + mean), 0.0)
    tail = np.zeros_like(v)
    for k in range(9, 0, -1):  # v² < 0.01: the ninth term is below 1e-18 of the first
        tail = tail * v**2 + 1.0 / (2 * k + 1)
    series = (x - mean) * v + 2.0 * x * v**3 * tail
    ratio = np.where(near, 1.0, x / mean)
    return np.where(near, series, x * np.log(ratio) + mean - x)


def poisson_log_pmf(n: ArrayLike, mean: ArrayLike) -> NDArray[np.float64]:
    """Log Poisson(n; m) = n log m − m − log n!, to full relative precision at any size.

    Parameters
    ----------
    n : array_like
        Counts, n ≥ 0 (need not be integers).
    mean : array_like
        m ≥ 0, broadcast against `n`. Where m = 0 the value is 0 for n = 0 and −∞ otherwise.
    """
    n, mean = np.broadcast_arrays(np.asarray(n, dtype=float), np.asarray(mean, dtype=float))
    value = np.where(n > 0, -np.inf, -mean)
    ordinary = (n > 0) & (mean > 0)  # most cells of a large table are empty, and cost nothing
    x = n[ordinary]
    value[ordinary] = -0.5 * np.log(2 * np.pi * x) - stirling_error(x) - deviance(x, mean[ordinary])
    return value
