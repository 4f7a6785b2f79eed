r"""Flocks for life as units: N/c units of c individuals, n = c m, for engines that count individuals one by one.

The law of m is that of N/c independent individuals; an observation of n is one of c m. Everything is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.observe import Exact, Observation, Poisson, ProblemError
from headcount.population import Flocks
from headcount.posterior import Beliefs, Promises

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from headcount._types import Array, Scope
    from headcount.observe import Problem
    from headcount.posterior import Outcome


@dataclass(frozen=True, eq=False)
class UnitNoise(Observation):
    """log l(y | c m) as a function of m."""

    inner: Any = field(default=None, kw_only=True, metadata={"per": "all"})
    size: Any = field(default=1, kw_only=True, metadata={"per": "all"})

    def __post_init__(self) -> None:
        """Nothing is left to read: the inner noise is bound to its data."""

    def log_prob(self, n: ArrayLike) -> Array:
        """That of c n."""
        return np.asarray(self.inner.log_prob(self.size * np.asarray(n, dtype=float)))

    @property
    def domain_low(self) -> Array:
        """That of n over c."""
        return np.asarray(self.inner.domain_low) / self.size

    def take(self, index: ArrayLike) -> UnitNoise:
        """The same on some entries."""
        part = self.inner.take(index)
        return UnitNoise(part.counts, inner=part, size=self.size)


def in_units(problem: Problem) -> Problem:
    """The problem of N/c independent units.

    Raises
    ------
    ProblemError
        If c is no whole number, or N or an exact count is no multiple of it.
    """
    assert isinstance(problem.dispersion, Flocks)
    size = problem.dispersion.size
    if size != round(size) or problem.population % size:
        raise ProblemError(
            f"{problem.population} individuals in flocks of {size:g} are no whole number of flocks: give a size that divides the "
            "population, or use TiltedEP, which takes any size"
        )
    odd = [
        f"{site.names[int(k)]}: the exact count {site.noise.counts[k]:g} is no multiple of the flocks' size {size:g}"
        for site in problem.sites
        if site.noise.exact
        for k in np.flatnonzero(np.asarray(site.noise.counts) % size)
    ]
    if odd:
        raise ProblemError(odd)
    return problem.of_units(int(size), lambda noise: _unit_noise(noise, int(size)))


def _unit_noise(noise: Observation, size: int) -> Observation:
    if isinstance(noise, Exact):
        return noise.replaced({"counts": np.asarray(noise.counts) / size})
    if isinstance(noise, Poisson):
        return noise.replaced({"rate": noise.rate * size})
    return UnitNoise(noise.counts, inner=noise, size=size)


@dataclass(frozen=True)
class UnitBeliefs(Beliefs):
    """Beliefs about n = c m from those about m."""

    base: Beliefs
    size: float
    log_evidence: float | None
    diagnostics: Mapping[str, Any]

    @property
    def has_draws(self) -> bool:
        """As those of units."""
        return self.base.has_draws

    @property
    def promises(self) -> Promises:
        """As those of units."""
        return self.base.promises

    def mean(self, scope: Scope) -> Array:
        """The flocks' size times E m."""
        return self.size * self.base.mean(scope)

    def variance(self, scope: Scope) -> Array | None:
        """c² var m."""
        known = self.base.variance(scope)
        return None if known is None else self.size**2 * known

    def covariance(self, a: Scope, b: Scope) -> Array:
        """c² cov m."""
        return self.size**2 * np.asarray(self.base.covariance(a, b))

    def sample(self, size: int, *, rng: np.random.Generator, integer: bool) -> dict[Scope, Array]:
        """The flocks' size times draws of units."""
        drawn = self.base.sample(size, rng=rng, integer=integer)
        return {scope: self.size * table for scope, table in drawn.items()}

    def quantile(self, scope: Scope, level: float) -> Array | None:
        """The flocks' size times that of units."""
        found = self.base.quantile(scope, level)
        return None if found is None else self.size * found

    def mc_error(self, scope: Scope) -> Array | None:
        """The flocks' size times that of units."""
        found = self.base.mc_error(scope)
        return None if found is None else self.size * found


def of_individuals(problem: Problem, outcome: Outcome) -> Outcome:
    """The outcome of a problem of flocks, from that of its units."""
    assert isinstance(problem.dispersion, Flocks)
    base = outcome.beliefs
    beliefs = UnitBeliefs(base, problem.dispersion.size, base.log_evidence, base.diagnostics)
    return replace(outcome, beliefs=beliefs)
