"""What the exact methods share: likelihoods of count tables, sums of exponentials, and quantiles from the law of every count."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.posterior import Beliefs, Promises

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headcount._types import Array, Scope
    from headcount.individual import Model, Place
    from headcount.observe import Site

ROUNDING = 1e-12
"""What cumulative probabilities may miss by rounding."""


class ExactBeliefs(Beliefs):
    """Exact moments and, where it is known, the exact law of every count."""

    model: Model

    @property
    def promises(self) -> Promises:
        """Exact moments."""
        return Promises(non_negative=True, consistent=True)

    @abstractmethod
    def count_law(self, scope: Scope) -> Array | None:
        """P(n = k | y) of every entry, (N + 1, *table); None where only moments are known."""

    def quantile(self, scope: Scope, level: float) -> Array | None:
        """Exact quantile: the smallest count with at least `level` of the probability at or below it."""
        law = self.count_law(scope)
        if law is None:
            return None
        return np.asarray(np.argmax(law.cumsum(axis=0) >= level - ROUNDING, axis=0), dtype=float)

    @abstractmethod
    def draw_states(self, size: int, rng: np.random.Generator) -> NDArray[Any]:
        """Independent draws of what the method goes through: populations, count vectors, states of individuals."""

    @abstractmethod
    def drawn_table(self, scope: Scope, states: NDArray[Any], rng: np.random.Generator) -> Array:
        """The table of a clique for drawn states, (draws, *table)."""

    def sample(self, size: int, *, rng: np.random.Generator, integer: bool = True) -> dict[Scope, Array]:
        """Independent draws."""
        del integer  # counts are integers already
        states = self.draw_states(size, rng)
        return {tuple(c): self.drawn_table(tuple(c), states, rng) for c in self.model.junction_tree.cliques}


def law_of_counts(tables: NDArray[Any], weights: Array, population: int) -> Array:
    """P(n = k) of every entry, (N + 1, *table), from tables (tables, *table) and their probabilities."""
    columns = tables.reshape(len(weights), -1).T
    laws = np.array([np.bincount(column, weights, population + 1) for column in columns])
    return np.asarray(laws.T.reshape(-1, *tables.shape[1:]))


def log_likelihood(site: Site, counts: NDArray[Any]) -> Array:
    """log l(y | n) of flat count tables, (tables, entries)."""
    with np.errstate(divide="ignore"):
        return np.asarray(site.noise.log_prob(site.margin(counts).astype(float)).sum(axis=-1))


def log_sum(table: Array) -> float:
    """log Σ exp over all entries."""
    top = float(table.max(initial=-np.inf))
    return top if top == -np.inf else top + float(np.log(np.exp(table - top).sum()))


def to_scopes(joint: Array, first: Place, second: Place) -> Array:
    """A matrix of two tables, flat as the tree keeps them, as the scopes name their variables."""
    return first.to_scope(second.to_scope(joint.reshape(np.prod(first.shape), -1)).T).T
