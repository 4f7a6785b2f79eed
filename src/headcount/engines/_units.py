r"""Flocks for life as units: N/c units of c individuals, n = c m, for engines that count individuals one by one.

The law of m is that of N/c independent individuals; an observation of n is one of c m. Everything is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.individual import OpenChain
from headcount.observe import Exact, Observation, Poisson, ProblemError
from headcount.population import Flocks

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from headcount._types import Array
    from headcount.observe import Problem


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
    if wrong := _not_in_units(problem, size):
        raise ProblemError(wrong)
    return problem.of_units(int(size), lambda noise: _unit_noise(noise, int(size)))


def _not_in_units(problem: Problem, size: float) -> str | list[str]:
    """What keeps the individuals from being counted in whole flocks; nothing where they can be."""
    if not problem.size_known and not isinstance(problem.model, OpenChain):
        return "flocks of a population of unknown size are counted one by one only in an OpenChain: use TiltedEP, or give a number"
    if size != round(size) or any(n % size for n in _known_sizes(problem)):
        return (
            f"{problem.population} individuals in flocks of {size:g} are no whole number of flocks: give a size that divides the "
            "population, or use TiltedEP, which takes any size"
        )
    return [
        f"{site.names[int(k)]}: the exact count {site.noise.counts[k]:g} is no multiple of the flocks' size {size:g}"
        for site in problem.sites
        if site.noise.exact
        for k in np.flatnonzero(np.asarray(site.noise.counts) % size)
    ]


def _known_sizes(problem: Problem) -> list[int]:
    """The numbers of individuals that are known: of the population, or of its groups."""
    sizes = [problem.population] if problem.groups is None else [g.size for g in problem.groups.values()]
    return [n for n in sizes if isinstance(n, int)]


def _unit_noise(noise: Observation, size: int) -> Observation:
    if isinstance(noise, Exact):
        return noise.replaced({"counts": np.asarray(noise.counts) / size})
    if isinstance(noise, Poisson):
        return noise.replaced({"rate": noise.rate * size})
    return UnitNoise(noise.counts, inner=noise, size=size)
