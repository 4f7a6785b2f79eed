r"""From a scalar cavity and a likelihood to the moments a site must match.

Given a cavity :math:`N(m, v)` for one count and the tilted likelihood :math:`\ell(y\mid k)e^{-gk}`, the *lattice* projection sums
:math:`N(k; m, v)\,\ell(y\mid k)\,e^{-gk}` over whole numbers :math:`0 \le k \le N`: counts are integers, and near zero
that is what matters.
Where the spread is large every s-th integer is summed with weight s, which is the trapezoid rule and as exact. The *line* projection
integrates over real :math:`z \ge 0` by the same rule with a fractional step. The log-likelihood is tabulated once for each grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

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
    log_weight: Array
    """log of the summation weight, −inf for padding."""
    log_prob: Array
    centre: Array
    sd: Array

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
        log_prob = noise.log_prob(np.minimum(points, population).T).T
    return Grid(points, weight, log_prob, mean, sd)


def tilted_moments(grid: Grid, mean: Array, variance: Array, g: Array) -> tuple[Array, Array, Array]:
    """log normaliser, mean and variance of ``N(k; mean, variance) ℓ(y | k) e^{−g k}``; ``mean`` is absolute."""
    gap = grid.points - mean[:, None]
    log_w = grid.log_weight + grid.log_prob - g[:, None] * grid.points - 0.5 * gap * gap / variance[:, None]
    top = log_w.max(axis=1)
    w = np.exp(log_w - top[:, None])
    total = w.sum(axis=1)
    first = np.einsum("ij,ij->i", w, gap) / total
    second = np.einsum("ij,ij->i", w, gap * gap) / total - first * first
    log_z = np.log(total) + top - 0.5 * np.log(2 * np.pi * variance)
    return log_z, mean + first, second
