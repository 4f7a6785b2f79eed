"""Poisson noise: y ~ Poisson(rate · n + background)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headcount.numerics import poisson_log_pmf
from headcount.observe._base import Array, Fault, Numbers, Observation


@dataclass(frozen=True, eq=False, kw_only=True)
class Poisson(Observation):
    """y ~ Poisson(m), m = rate · n + background.

    log l(y | n) = y log m − m − log y!. For y = 0 it is the straight line −m, and is continued as that line
    below n = 0: a Gaussian method that strays there sees the likelihood the paper's method sees. For y > 0
    it is −inf where m ≤ 0.

    Parameters
    ----------
    rate
        λ > 0: expected counts per individual present; one number, or one per entry.
    background
        λ₀ ≥ 0: expected counts when nobody is there.
    """

    rate: Numbers = 1.0
    background: Numbers = 0.0

    log_concave: ClassVar[bool] = True
    whole: ClassVar[bool] = True
    poisson_shaped: ClassVar[bool] = True

    def log_prob(self, n: ArrayLike) -> Array:
        """The law y log m − m − log y!, by Loader's form; −m at y = 0 for every real n."""
        mean = self.mean(n)
        above = np.where(mean > 0, poisson_log_pmf(self.counts, np.maximum(mean, 0.0)), -np.inf)
        return np.where(self.counts == 0, -mean, above)

    def slope(self, n: ArrayLike) -> Array:
        """The slope rate · (y/m − 1)."""
        mean = self.mean(n)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.counts == 0, -self.rate, self.rate * ((self.counts - mean) / mean))

    def curvature(self, n: ArrayLike) -> Array:
        """−y (rate/m)²."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.counts == 0, 0.0, -self.counts * (self.rate / self.mean(n)) ** 2)

    def sample(self, n: ArrayLike, *, rng: np.random.Generator) -> Array:
        """Draw y ~ Poisson(m)."""
        return rng.poisson(self.mean(n)).astype(float)

    def mean(self, n: ArrayLike) -> Array:
        """The mean m = rate · n + background."""
        return np.asarray(self.rate * np.asarray(n, dtype=float) + self.background)

    def moments(self, n: ArrayLike) -> tuple[Array, Array]:
        """Both are m."""
        mean = self.mean(n)
        return mean, mean

    @property
    def domain_low(self) -> Array:
        """−background/rate (excluded) where y > 0; −inf where y = 0."""
        return np.where(self.counts == 0, -np.inf, -self.background / self.rate)

    def linear(self) -> NDArray[np.bool_]:
        """Where y = 0: slope −rate."""
        return np.asarray(self.counts == 0)

    def concave_part(self, n0: ArrayLike) -> tuple[Array, Array, Array]:
        """(y, rate, background/rate): exact, whatever n0."""
        shape = np.shape(self.counts)
        return (
            self.counts,
            np.broadcast_to(self.rate, shape),
            np.broadcast_to(self.background / self.rate, shape),
        )

    def faults(self, population: int) -> Iterator[Fault]:
        """Also rate ≤ 0 and background < 0."""
        yield from super().faults(population)
        yield Fault(self.rate <= 0, "rate must be > 0; mark what was not observed with NaN", self.rate)
        yield Fault(self.background < 0, "background must be ≥ 0", self.background)
