"""Derivatives of a log-probability of which only the values are known.

Five-point stencils with a decreasing series of step sizes; the result is the estimate that differs least from the one with the
next larger step. One fixed step size cannot serve: a Poisson varies over sqrt(n), a sensor of fixed precision over its own width,
and n runs from 0 to 1e12.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from headcount._types import Array

# Offsets in steps, weights of the first derivative (per step), weights of the second (per step squared);
# times 1/12.
_CENTRED = ((-2, -1, 0, 1, 2), (1, -8, 0, 8, -1), (-1, 16, -30, 16, -1))
_FORWARD = ((0, 1, 2, 3, 4), (-25, 48, -36, 16, -3), (35, -104, 114, -56, 11))
_STEPS = 7
"""Number of step sizes, from the widest down to 5⁻⁶ = 6e-5 of it. The best one is eps^(1/5) = 7e-4 (slope) or eps^(1/6) = 2e-3
(curvature) of the scale on which log l bends; that scale may so be a thirtieth of the widest step."""
_SHRINK = 5.0
"""Factor between two step sizes: one is within √5 of the best, which costs at most a factor of 25 in an error of about 1e-12."""
_WIDEST = 0.2
"""The widest step in units of sqrt(n), the standard deviation of a Poisson count: its density varies little over a fifth of that."""


def derivative(log_prob: Callable[[Array], Array], n: Array, low: Array, *, order: int) -> Array:
    """d^order/dn^order log l(y | n) by finite differences, never looking below `low`.

    Parameters
    ----------
    log_prob
        Elementwise function of n, shape (..., K).
    n
        Where, shape (..., K).
    low
        Lower end of the domain, shape (K,); at ``n == low`` the stencil looks forwards only.
    order
        1 or 2.
    """
    n = np.asarray(n, dtype=float)
    distance = n - low
    widest = _WIDEST * np.sqrt(np.maximum(np.abs(n), 1.0))
    # A quarter of the distance to the end keeps the centred stencil inside the open domain, at whose end the function may be
    # infinite. At the end itself the distance is 0: the centred estimate is computed elsewhere and not used.
    step = np.where(distance > 0, np.minimum(widest, distance / 4), widest)
    centre = np.where(distance > 0, n, n + 2 * widest)
    best, gap = _finest(log_prob, centre, step, _CENTRED[0], _CENTRED[order], order)
    close = distance < 4 * widest
    if not close.any():
        return best
    # Near the end of the domain the one-sided stencil may be better: its steps need not shrink.
    ahead, gap_ahead = _finest(log_prob, n, widest, _FORWARD[0], _FORWARD[order], order)
    with np.errstate(divide="ignore", invalid="ignore"):
        better = ~(gap / np.abs(best) <= gap_ahead / np.abs(ahead))
    return np.where((distance <= 0) | (close & better), ahead, best)


def _finest(
    log_prob: Callable[[Array], Array],
    n: Array,
    widest: Array,
    offsets: tuple[int, ...],
    weights: tuple[int, ...],
    order: int,
) -> tuple[Array, Array]:
    """The estimate that differs least from the one with the next larger step, and the difference."""
    estimates = []
    for k in range(_STEPS):
        step = widest / _SHRINK**k
        estimates.append(_weighted(log_prob, n, step, offsets, weights) / (12 * step**order))
    best, least = estimates[0], np.full(n.shape, np.inf)
    for wide, narrow in pairwise(estimates):
        with np.errstate(invalid="ignore"):
            gap = np.abs(wide - narrow)
        closer = gap < least
        best, least = np.where(closer, narrow, best), np.where(closer, gap, least)
    return best, least


def _weighted(
    log_prob: Callable[[Array], Array],
    n: Array,
    step: Array,
    offsets: tuple[int, ...],
    weights: tuple[int, ...],
) -> Array:
    """The sum over k of w_k log l(y | n + o_k h); infinite where a value is −inf."""
    total = np.zeros(n.shape)
    with np.errstate(invalid="ignore"):
        for offset, weight in zip(offsets, weights, strict=True):
            if weight:
                total = total + weight * np.asarray(log_prob(n + offset * step))
    return total
