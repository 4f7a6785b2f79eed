"""What the exact methods share: likelihoods of count tables, sums of exponentials, and quantiles from the law of every count."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.observe import ProblemError
from headcount.posterior import Beliefs, Promises

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headcount._types import Array, Scope
    from headcount.individual import Model, Place, RootedTree
    from headcount.observe import Problem, Site

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
    def count_law(self, scope: Scope) -> tuple[NDArray[Any], Array] | None:
        """Counts of every entry in ascending order, and their probabilities, both (counts, *table); None where only moments are known."""

    def quantile(self, scope: Scope, level: float) -> Array | None:
        """Exact quantile: the smallest count with at least `level` of the probability at or below it."""
        law = self.count_law(scope)
        if law is None:
            return None
        counts, chances = law
        reached = np.argmax(chances.cumsum(axis=0) >= level - ROUNDING, axis=0)
        return np.take_along_axis(counts, reached[None], axis=0)[0].astype(float)

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


def fitting_tree(problem: Problem, method: str, misfit: str | None) -> RootedTree:
    """The chain or tree that an exact method works on; an error says why it does not fit."""
    tree = problem.model.rooted()
    if misfit is not None or tree is None:
        raise ProblemError(f"the exact {method} does not fit: {misfit}")
    return tree


def law_of_counts(tables: NDArray[Any], weights: Array) -> tuple[NDArray[Any], Array]:
    """The counts of every entry in ascending order, and their probabilities, from tables (tables, *table) and theirs."""
    order = np.argsort(tables, axis=0, kind="stable")
    return np.take_along_axis(tables, order, axis=0), weights[order]


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
