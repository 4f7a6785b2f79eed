"""Laplace noise: the noise that privacy mechanisms add."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from headcount.observe._base import Array, Fault, Numbers, Observation


@dataclass(frozen=True, eq=False, kw_only=True)
class LaplaceNoise(Observation):
    """y = n + e, e ~ Laplace(b): log l(y | n) = −abs(y − n)/b − log 2b. Counts may be negative or fractional.

    A table released with epsilon-differential privacy and sensitivity s has b = s/epsilon. The law has a
    corner at n = y; the slope there is given as 0, its mean from both sides, and the curvature is 0
    everywhere.

    Parameters
    ----------
    scale
        b > 0; one number, or one per entry.
    """

    scale: Numbers

    log_concave: ClassVar[bool] = True
    smooth: ClassVar[bool] = False

    @property
    def laplace_scale(self) -> Array:
        """Of every entry."""
        return np.broadcast_to(np.asarray(self.scale, float), np.shape(self.counts))

    def log_prob(self, n: ArrayLike) -> Array:
        """−abs(y − n)/b − log 2b."""
        return -np.abs(self.counts - np.asarray(n, dtype=float)) / self.scale - np.log(2 * self.scale)

    def slope(self, n: ArrayLike) -> Array:
        """sign(y − n)/b."""
        return np.sign(self.counts - np.asarray(n, dtype=float)) / self.scale

    def curvature(self, n: ArrayLike) -> Array:
        """0; what bends is all in the corner."""
        return np.zeros(np.broadcast_shapes(np.shape(n), np.shape(self.counts)))

    def sample(self, n: ArrayLike, *, rng: np.random.Generator) -> Array:
        """Draw y ~ n + Laplace(b)."""
        n = np.asarray(n, dtype=float)
        return n + rng.laplace(0.0, self.scale, size=np.broadcast_shapes(n.shape, np.shape(self.counts)))

    def moments(self, n: ArrayLike) -> tuple[Array, Array]:
        """The mean n and the variance 2b²."""
        n = np.asarray(n, dtype=float)
        return n, np.broadcast_to(2.0 * np.asarray(self.scale) ** 2, n.shape)

    @property
    def domain_low(self) -> Array:
        """−inf: every real n will do."""
        return np.full(np.shape(self.counts), -np.inf)

    def faults(self, population: int) -> Iterator[Fault]:
        """Also scale ≤ 0."""
        yield from super().faults(population)
        yield Fault(self.scale <= 0, "scale must be > 0; for counts without error use Exact", self.scale)
