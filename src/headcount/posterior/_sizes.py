"""The estimate of the number of individuals, and beliefs where there is none. Sizes are weighed in a `MixtureBeliefs`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headcount.posterior._beliefs import Beliefs, Promises
from headcount.posterior._interval import tails

if TYPE_CHECKING:
    from collections.abc import Mapping

    import xarray as xr

    from headcount._types import Array, Scope
    from headcount.individual import Model


class Sizes(NamedTuple):
    """The posterior of N: whole numbers in ascending order, and their probabilities."""

    values: Array
    probabilities: Array

    def widened(self, extra: float) -> Sizes:
        """The same shape with a variance larger by ``extra``, on whole numbers ≥ 0."""
        mean = float(self.values @ self.probabilities)
        variance = float(np.square(self.values - mean) @ self.probabilities)
        if variance == 0.0 or extra <= 1e-9 * variance:
            return self
        stretched = mean + np.sqrt(1.0 + extra / variance) * (self.values - mean)
        values, which = np.unique(np.maximum(np.rint(stretched), 0.0), return_inverse=True)
        return Sizes(values, np.asarray(np.bincount(which, self.probabilities), dtype=float))


@dataclass(frozen=True)
class PopulationEstimate:
    """The posterior of the number of individuals.

    Attributes
    ----------
    mean
        E[N | y]; N where it is known, the most probable N from an engine that gives a point.
    sd
        Its standard deviation: 0 where N is known, NaN from an engine that gives a point.
    values, probabilities
        The law itself: whole numbers and their probabilities (every so-many-th whole number where there are very many).
    known
        Whether N was given.
    note
        What cannot be told from the data, in words; empty where there is nothing to say.
    """

    mean: float
    sd: float
    values: Array = field(repr=False)
    probabilities: Array = field(repr=False)
    known: bool
    note: str = ""

    @property
    def median(self) -> float:
        """The smallest whole number that N does not exceed with probability ½ or more."""
        return self._quantile(0.5)

    def interval(self, level: float = 0.9) -> xr.Dataset:
        """Central interval of whole numbers that holds N with probability ``level``, as ``lower`` and ``upper``."""
        import xarray as xr

        lower, upper = (self._quantile(q) for q in tails(level))
        return xr.Dataset({"lower": lower, "upper": upper}, attrs={"level": level})

    def _quantile(self, level: float) -> float:
        if np.isnan(self.sd):
            return float("nan")
        reached = np.cumsum(self.probabilities) >= level - 1e-12
        return float(self.values[int(np.argmax(reached))])

    @classmethod
    def of(cls, sizes: Sizes, *, known: bool, point: bool, note: str = "") -> PopulationEstimate:
        """From the law of N; ``point`` where it is one value without spread."""
        values, p = sizes
        mean = float(values @ p)
        spread = float(np.sqrt(np.square(values - mean) @ p))
        return cls(mean, float("nan") if point else spread, values, p, known, note)


@dataclass(frozen=True)
class NobodyBeliefs(Beliefs):
    """Beliefs where there is no individual at all."""

    model: Model
    log_evidence: float | None
    diagnostics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def promises(self) -> Promises:
        """Zeros keep them all."""
        return Promises(non_negative=True, consistent=True)

    def mean(self, scope: Scope) -> Array:
        """Zero."""
        return np.zeros(self.model.size(scope))

    def variance(self, scope: Scope) -> Array | None:
        """Zero."""
        return np.zeros(self.model.size(scope))

    def covariance(self, a: Scope, b: Scope) -> Array:
        """Zero."""
        return np.zeros((self.model.domain(a).size, self.model.domain(b).size))

    def sample(self, size: int, *, rng: np.random.Generator, integer: bool) -> dict[Scope, Array]:
        """Zeros."""
        del rng, integer
        return {c: np.zeros((size, *self.model.size(c))) for c in self.model.junction_tree.cliques}
