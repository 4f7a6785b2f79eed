r"""A posterior over the number of individuals: beliefs at a few sizes, weighed; and the estimate of N.

Given N, an engine answers as for a known population. With weights :math:`w_k` of sizes :math:`N_k`,

.. math:: E\,n = \sum_k w_k E[n \mid N_k], \qquad
          \operatorname{cov} n = \sum_k w_k \bigl(\operatorname{cov}(n \mid N_k) + d_k d_k^\top\bigr), \quad d_k = E[n \mid N_k] - E\,n .
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headcount.posterior._beliefs import Beliefs, Promises
from headcount.posterior._interval import tails

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    import xarray as xr
    from numpy.typing import NDArray

    from headcount.individual import Model

    Array = NDArray[np.float64]
    Scope = tuple[Hashable, ...]


class Sizes(NamedTuple):
    """The posterior of N: whole numbers in ascending order, and their probabilities."""

    values: Array
    probabilities: Array


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
class MixedBeliefs(Beliefs):
    """Beliefs at several sizes of the population, with their weights."""

    model: Model
    parts: Sequence[Beliefs]
    weights: Array
    log_evidence: float | None
    diagnostics: Mapping[str, Any]
    sizes: Sizes | None = None
    """The posterior of N itself, finer than the parts."""

    @property
    def has_draws(self) -> bool:
        """Whether every part can be drawn from."""
        return all(part.has_draws for part in self.parts)

    @property
    def promises(self) -> Promises:
        """What holds of every part."""
        each = [part.promises for part in self.parts]
        return Promises(all(p.non_negative for p in each), all(p.consistent for p in each))

    def mean(self, scope: Scope) -> Array:
        """Σ w E[n | N]."""
        return np.asarray(sum(w * part.mean(scope) for w, part in self._weighed))

    def variance(self, scope: Scope) -> Array | None:
        """Σ w (var(n | N) + d²)."""
        mean = self.mean(scope)
        return np.asarray(
            sum(w * (np.asarray(p.variance(scope)) + (p.mean(scope) - mean) ** 2) for w, p in self._weighed)
        )

    def covariance(self, a: Scope, b: Scope) -> Array:
        """Σ w (cov(n | N) + d dᵀ)."""
        total = 0.0
        centre = self.mean(a).ravel(), self.mean(b).ravel()
        for w, part in self._weighed:
            off = part.mean(a).ravel() - centre[0], part.mean(b).ravel() - centre[1]
            total = total + w * (part.covariance(a, b) + np.outer(*off))
        return np.asarray(total)

    def mc_error(self, scope: Scope) -> Array | None:
        """Of the most probable part's sds."""
        return self.parts[int(np.argmax(self.weights))].mc_error(scope)

    def sample(self, size: int, *, rng: np.random.Generator, integer: bool) -> dict[Scope, Array]:
        """A size for every draw, then draws of that part."""
        which = rng.choice(len(self.parts), size=size, p=self.weights)
        out: dict[Scope, Array] = {}
        for k in np.unique(which):
            rows = np.flatnonzero(which == k)
            for scope, table in self.parts[k].sample(len(rows), rng=rng, integer=integer).items():
                out.setdefault(scope, np.empty((size, *table.shape[1:])))[rows] = table
        return out

    @property
    def _weighed(self) -> list[tuple[float, Beliefs]]:
        return list(zip(self.weights.tolist(), self.parts, strict=True))


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
