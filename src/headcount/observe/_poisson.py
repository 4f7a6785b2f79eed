"""Counts of which each individual gives some on average: Poisson noise, and the negative binomial, which scatters more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headcount.numerics import poisson_log_pmf
from headcount.observe._base import Array, Fault, Numbers, Observation


@dataclass(frozen=True, eq=False, kw_only=True)
class Rated(Observation):
    """Noise around the mean m = rate · n + background."""

    rate: Numbers = 1.0
    background: Numbers = 0.0

    whole: ClassVar[bool] = True
    poisson_shaped: ClassVar[bool] = True

    def mean(self, n: ArrayLike) -> Array:
        """The mean m = rate · n + background."""
        return np.asarray(self.rate * np.asarray(n, dtype=float) + self.background)

    def faults(self, population: int) -> Iterator[Fault]:
        """Also rate ≤ 0 and background < 0."""
        yield from super().faults(population)
        yield Fault(self.rate <= 0, "rate must be > 0; mark what was not observed with NaN", self.rate)
        yield Fault(self.background < 0, "background must be ≥ 0", self.background)


@dataclass(frozen=True, eq=False, kw_only=True)
class Poisson(Rated):
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

    log_concave: ClassVar[bool] = True

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


@dataclass(frozen=True, eq=False, kw_only=True)
class NegativeBinomial(Rated):
    """y ~ NB(m, r): mean m = rate · n + background, variance m + m²/r, r the dispersion.

    log l(y | n) = log Gamma(y + r) − log Gamma(r) − log y! + r log(r/(r + m)) + y log(m/(r + m)),
    −inf where m < 0 and, for y > 0, where m = 0. It is not concave in n: beyond m ≈ y it turns convex.

    Parameters
    ----------
    dispersion
        r > 0; the larger, the nearer to Poisson.
    rate
        Expected counts per individual present, > 0.
    background
        Expected counts when nobody is there, ≥ 0.
    """

    dispersion: Numbers

    def log_prob(self, n: ArrayLike) -> Array:
        """The law above as r/(r + y) · Bin(y; y + r, m/(r + m)), a quotient of three Poisson laws.

        Poisson(r; s r) Poisson(y; s m) / Poisson(y + r; y + r) with s = (y + r)/(r + m): each by Loader's
        form, and the distance r (m − y)/(r + m) between argument and mean handed over, since r may dwarf
        both.
        """
        y, r = self.counts, self.dispersion
        mean = self.mean(n)
        inside = mean >= 0
        m = np.where(inside, mean, 0.0)
        scale = (y + r) / (r + m)
        gap = r * (y - m) / (r + m)
        total = y + r
        log_ratio = poisson_log_pmf(r, scale * r, -gap) + poisson_log_pmf(y, scale * m, gap)
        value = log_ratio - poisson_log_pmf(total, total, np.zeros(np.shape(total))) + np.log(r / total)
        value = np.where(y == 0, -r * np.log1p(m / r), value)
        return np.where(inside, value, -np.inf)

    def slope(self, n: ArrayLike) -> Array:
        """The slope rate · r (y − m)/(m (r + m)); for y = 0, −rate · r/(r + m)."""
        y, r, m = self.counts, self.dispersion, self.mean(n)
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.rate * np.where(y == 0, -r / (r + m), r * (y - m) / (m * (r + m)))

    def curvature(self, n: ArrayLike) -> Array:
        """rate² · ((y + r)/(r + m)² − y/m²)."""
        y, r, m = self.counts, self.dispersion, self.mean(n)
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.rate**2 * ((y + r) / (r + m) ** 2 - np.where(y == 0, 0.0, y / m**2))

    def sample(self, n: ArrayLike, *, rng: np.random.Generator) -> Array:
        """Draw a rate ~ Gamma(r, m/r), then y ~ Poisson(rate)."""
        return rng.poisson(rng.gamma(self.dispersion, self.mean(n) / self.dispersion)).astype(float)

    def moments(self, n: ArrayLike) -> tuple[Array, Array]:
        """The mean m and the variance m + m²/r."""
        mean = self.mean(n)
        return mean, mean + mean**2 / self.dispersion

    @property
    def domain_low(self) -> Array:
        """−background/rate; itself included only where y = 0."""
        return np.broadcast_to(-self.background / self.rate, np.shape(self.counts)).astype(float)

    def concave_part(self, n0: ArrayLike) -> tuple[Array, Array, Array]:
        """(y, (y + r) rate/(r + m(n0)), background/rate).

        The convex part −(y + r) log(r + m) is replaced by its tangent at n0.
        """
        y, r = self.counts, self.dispersion
        pull = (y + r) * self.rate / (r + self.mean(n0))
        return y, pull, np.broadcast_to(self.background / self.rate, np.shape(y))

    def faults(self, population: int) -> Iterator[Fault]:
        """Also dispersion ≤ 0."""
        yield from super().faults(population)
        yield Fault(self.dispersion <= 0, "dispersion must be > 0; for none, use Poisson", self.dispersion)
