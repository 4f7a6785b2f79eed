"""What every structure answers: given Gaussian sites on what was observed, the moments of everything."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from scipy.sparse import csr_array

    from headcount.structure._linalg import Array

    Scope = tuple[Hashable, ...]


class SiteLike(Protocol):
    """The part of an observed site that a structure reads: where it sits, and which entries or sums it sees."""

    @property
    def scope(self) -> Scope: ...
    @property
    def index(self) -> np.ndarray | None: ...
    @property
    def weights(self) -> csr_array | None: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Known:
    """What is settled before any iteration: exact deviations, and Gaussian readings with a full covariance.

    Both are keyed by the site's position; ``readings`` holds (precision matrix, potential) in deviations.
    """

    exact: Mapping[int, Array]
    readings: Mapping[int, tuple[Array, Array]]

    @classmethod
    def nothing(cls) -> Known:
        """No exact sites, no correlated readings."""
        return cls({}, {})


@dataclass(frozen=True)
class Moments:
    """Mean and variance of the deviation at every site's entries, and log Z of the Gaussian with its sites."""

    mean: tuple[Array, ...]
    variance: tuple[Array, ...]
    log_z: float


class Field(ABC):
    """The Gaussian posterior of one structure, ready for questions; deviations are measured from the centre."""

    @abstractmethod
    def mean(self, scope: Scope) -> Array:
        """Posterior mean deviation of a table."""

    @abstractmethod
    def variance(self, scope: Scope) -> Array:
        """Posterior variance of every entry of a table."""

    @abstractmethod
    def covariance(self, a: Scope, b: Scope) -> Array:
        """Posterior covariance between two tables, flattened."""

    @abstractmethod
    def sample(self, size: int, *, rng: np.random.Generator) -> dict[Scope, Array]:
        """Joint draws of deviations of all cliques, ``(size, *table)``."""


class Structure(ABC):
    """The Gaussian law of a population around one centre, for one shape of graph."""

    @abstractmethod
    def solve(self, tau: Sequence[Array], nu: Sequence[Array]) -> Moments:
        """Moments at the sites, under ``exp(−½ tau δ² + nu δ)`` on every site's entries."""

    @abstractmethod
    def field(self, tau: Sequence[Array], nu: Sequence[Array]) -> Field:
        """The whole posterior under the same sites."""


def selection(site: SiteLike, size: int) -> Array:
    """The site as a dense ``(K, size)`` matrix on its flattened table."""
    if site.weights is not None:
        return np.asarray(site.weights.todense())
    rows = np.zeros((len(site), size))
    rows[np.arange(len(site)), site.index] = 1.0
    return rows
