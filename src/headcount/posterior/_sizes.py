"""The estimate of the number of individuals, and beliefs where there is none. Sizes are weighed in a `MixtureBeliefs`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headcount.posterior._beliefs import Beliefs, Promises
from headcount.posterior._interval import tails

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import xarray as xr

    from headcount._types import Array, Scope
    from headcount.individual import Model


CARRIED_LEVELS = 200
"""Quantiles by which a law is interpolated: the sd of a Gaussian is then right to 0.2 %."""


class Sizes(NamedTuple):
    """The posterior of N: whole numbers in ascending order, and their probabilities."""

    values: Array
    probabilities: Array

    @property
    def mean(self) -> float:
        """E N."""
        return float(self.values @ self.probabilities)

    def widened(self, extra: float) -> Sizes:
        """The same shape with a variance larger by ``extra``, on whole numbers ≥ 0."""
        mean = self.mean
        variance = float(np.square(self.values - mean) @ self.probabilities)
        if variance == 0.0 or extra <= 1e-9 * variance:
            return self
        stretched = mean + np.sqrt(1.0 + extra / variance) * (self.values - mean)
        values, which = np.unique(np.maximum(np.rint(stretched), 0.0), return_inverse=True)
        return Sizes(values, np.asarray(np.bincount(which, self.probabilities), dtype=float))

    def carried(self, nodes: Array, given: Sequence[Sizes]) -> Sizes:
        """The law of another number, of which the laws are known given some of these: summed, or with quantiles interpolated between."""
        if len(nodes) == 1:
            return given[0]
        if np.array_equal(nodes, self.values):
            values = np.concatenate([law.values for law in given])
            p = np.concatenate(
                [w * law.probabilities for w, law in zip(self.probabilities, given, strict=True)]
            )
        else:
            levels = (np.arange(CARRIED_LEVELS) + 0.5) / CARRIED_LEVELS
            known = np.array([law.quantiles(levels) for law in given])
            at = np.clip(np.searchsorted(nodes, self.values) - 1, 0, len(nodes) - 2)
            share = ((self.values - nodes[at]) / (nodes[at + 1] - nodes[at]))[:, None]
            between = known[at] + share * (
                known[at + 1] - known[at]
            )  # beyond the nodes as between the last two
            values = np.maximum(np.rint(between), 0.0).ravel()
            p = np.repeat(self.probabilities / CARRIED_LEVELS, CARRIED_LEVELS)
        whole, which = np.unique(values, return_inverse=True)
        return Sizes(whole, np.asarray(np.bincount(which, p), dtype=float))

    def quantiles(self, levels: Array) -> Array:
        """Quantiles of a continuous law with this one's distribution function halfway up every step."""
        return np.asarray(
            np.interp(levels, np.cumsum(self.probabilities) - 0.5 * self.probabilities, self.values)
        )


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
