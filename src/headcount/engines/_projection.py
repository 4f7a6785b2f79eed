r"""From a scalar cavity and a likelihood to the moments a site must match.

Given the law c of one count in the context of everything but its own observation (see ``_whole_law``; a Gaussian cavity where counts
are large), the *lattice* projection sums :math:`c(k)\,\ell(y\mid k)\,e^{-gk}` over whole numbers :math:`0 \le k \le N`: counts are
integers, and near zero that is what matters. Where the spread is large every s-th integer is summed with weight s, which is the
trapezoid rule and as exact. The *line* projection integrates the Gaussian cavity over real :math:`z \ge 0` by the same rule with a
fractional step. The log-likelihood and the binomial coefficients are tabulated once for each grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headcount.engines._whole_law import Context, log_choose, whole_law

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headcount.observe import Observation

    Array = NDArray[np.float64]

POINTS_PER_SD = 2.0
"""The trapezoid rule's error for a Gaussian is exp(−2π² points²): 1e-34 here."""
REACH = 8.5
"""Half-width of a grid in standard deviations."""


@dataclass(frozen=True)
class Grid:
    """Points of summation for every entry (padded with weight zero), and log ℓ there."""

    points: Array
    """``(K, P)``."""
    log_prob: Array
    """log ℓ with the log of the summation weight; −inf for padding."""
    centre: Array
    sd: Array
    coefficient: Array | None
    """log of the binomial coefficients of the points, less that of the first; None on a line."""

    def serves(self, mean: Array, sd: Array) -> NDArray[np.bool_]:
        """Where the grid still fits a posterior with these moments."""
        return (np.abs(mean - self.centre) <= self.sd) & (sd <= 1.4 * self.sd) & (sd >= 0.5 * self.sd)


def make_grid(noise: Observation, mean: Array, sd: Array, population: float, *, lattice: bool) -> Grid:
    """A grid around each entry's posterior; the wider of the given sd and half a count is used."""
    sd = np.maximum(sd, 0.5)
    step = np.maximum(np.floor(sd / POINTS_PER_SD), 1.0) if lattice else sd / (4 * POINTS_PER_SD)
    low = np.maximum(mean - REACH * sd, 0.0)
    high = np.minimum(np.maximum(mean, 0.0) + REACH * sd + 1.0, population)
    low = np.floor(low) if lattice else low
    count = np.floor((high - low) / step).astype(int) + 1
    k = np.arange(int(count.max(initial=1)))
    points: Array = low[:, None] + step[:, None] * k.astype(float)
    inside = (k < count[:, None]) & (points <= population)
    weight = np.where(inside, np.log(step)[:, None], -np.inf)
    if not lattice:  # a line starts at zero: half weight there, and never zero itself where log ℓ is −inf
        weight[:, 0] -= np.log(2.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_prob = np.ascontiguousarray(noise.log_prob(np.minimum(points, population).T).T + weight)
    coefficient = log_choose(points, low, population) if lattice else None
    return Grid(points, log_prob, mean, sd, coefficient)


def tilted_moments(grid: Grid, context: Context, g: Array) -> tuple[Array, Array, Array, Array]:
    """log normaliser, mean and variance of ``c(k) ℓ(y | k) e^{−g k}``; and the variance of c itself."""
    from headcount.engines._kernels._whole_counts import tilted_sums

    mean, variance = context.mean, context.variance
    own = variance.copy()
    law = np.stack([-0.5 / variance, np.zeros_like(mean), -0.5 * np.log(2 * np.pi * variance)])
    whole = np.zeros(len(mean), dtype=np.bool_)
    if grid.coefficient is not None:
        rows = context.small()
        fitted = whole_law(context.take(rows))
        constant = fitted.constant_against(grid.points[rows, 0], context.population)
        law[:, rows] = fitted.a, fitted.b, constant
        own[rows] = fitted.variance
        whole[rows] = True
    coefficient = grid.points if grid.coefficient is None else grid.coefficient
    log_z, first, second = (np.empty_like(mean) for _ in range(3))
    tilted_sums(grid.points, grid.log_prob, coefficient, whole, law, mean, g, log_z, first, second)
    return log_z, mean + first, second, own
