"""Derivatives of a log-probability of which only the values are known.

Five-point stencils on a ladder of steps; of every two neighbouring rungs the pair that agrees best is
believed. One fixed step cannot serve: a Poisson varies over sqrt(n), a sensor of fixed precision over its
own width, and n runs from 0 to 1e12.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Offsets in steps, weights of the first derivative (per step), weights of the second (per step squared);
# times 1/12.
_CENTRED = ((-2, -1, 0, 1, 2), (1, -8, 0, 8, -1), (-1, 16, -30, 16, -1))
_FORWARD = ((0, 1, 2, 3, 4), (-25, 48, -36, 16, -3), (35, -104, 114, -56, 11))
_RUNGS = 7
_SHRINK = 5.0


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
    room = n - low
    widest = 0.2 * np.sqrt(np.maximum(np.abs(n), 1.0))
    # A quarter of the room keeps the whole centred stencil inside the open domain, where the function may
    # blow up; at the very end there is no room, and what is computed there is thrown away.
    step = np.where(room > 0, np.minimum(widest, room / 4), widest)
    centre = np.where(room > 0, n, n + 2 * widest)
    best, gap = _ladder(log_prob, centre, step, _CENTRED[0], _CENTRED[order], order)
    cramped = room < 4 * widest
    if not cramped.any():
        return best
    # Near the end a regular function is known better from one side, with steps that need no room.
    ahead, gap_ahead = _ladder(log_prob, n, widest, _FORWARD[0], _FORWARD[order], order)
    with np.errstate(divide="ignore", invalid="ignore"):
        better = ~(gap / np.abs(best) <= gap_ahead / np.abs(ahead))
    return np.where((room <= 0) | (cramped & better), ahead, best)


def _ladder(
    log_prob: Callable[[Array], Array],
    n: Array,
    widest: Array,
    offsets: tuple[int, ...],
    weights: tuple[int, ...],
    order: int,
) -> tuple[Array, Array]:
    """The estimate of the rung that agrees best with the one before it, and by how much they differ."""
    rungs = []
    for k in range(_RUNGS):
        step = widest / _SHRINK**k
        rungs.append(_weighted(log_prob, n, step, offsets, weights) / (12 * step**order))
    best, least = rungs[0], np.full(n.shape, np.inf)
    for wide, narrow in pairwise(rungs):
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
    """The sum over k of w_k log l(y | n + o_k h); a value −inf makes it infinite, and is meant to."""
    total = np.zeros(n.shape)
    with np.errstate(invalid="ignore"):
        for offset, weight in zip(offsets, weights, strict=True):
            if weight:
                total = total + weight * np.asarray(log_prob(n + offset * step))
    return total
