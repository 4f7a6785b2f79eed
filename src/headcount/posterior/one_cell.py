r"""Populations of one cell: the number of individuals is all that is not known, and its law is a sum.

With one state per variable every count is N itself, or is not observed, so that

.. math:: p(N \mid y) \propto p(N) \prod_k \ell_k(y_k \mid N), \qquad p(y) = \sum_N p(N) \prod_k \ell_k(y_k \mid N) .

Royle's N-mixture model is many of these with the same law of N: `laws_of_size` adds them all up in one array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.observe.binding import by_family
from headcount.population import SizeLaw, as_law
from headcount.posterior._beliefs import Beliefs, Promises, Sizes

if TYPE_CHECKING:
    from headcount._types import Array, Index, Scope
    from headcount.individual import Model
    from headcount.observe import Problem
    from headcount.observe.binding import Part, Site

LARGEST_SIZE = 100_000
"""Largest N that is added up; chosen, not measured: 0.8 MB per count and array."""
LEFT_OUT = -27.0
"""Log of the share of the largest term at which a sum may end: 10⁻¹²."""


def has_one_cell(problem: Problem) -> bool:
    """Whether a sum over N answers the problem: one state per variable, a proper law of N, independent noisy counts."""
    law = as_law(problem.population)
    return (
        not law.is_known
        and np.isfinite(law.variance)
        and law.window[1] <= LARGEST_SIZE
        and all(len(states) == 1 for states in problem.model.states.values())
        and problem.groups is None
        and problem.dispersion is None
        and not (problem.tracks or problem.opens or problem.model.has_hidden_states or problem.start)
        and all(site.whole and not (site.noise.exact or site.noise.correlated) for site in problem.sites)
    )


@dataclass(frozen=True)
class OneCellReadings:
    """All counts of several populations of one cell, by their noises."""

    noises: tuple[Part, ...]
    """Entries, numbered over all populations, and their noise."""
    owner: Index
    """Of which population every entry is."""
    populations: int

    @classmethod
    def of(cls, sites: Sequence[Sequence[Site]]) -> OneCellReadings:
        """Of the sites of several problems."""
        lengths = [sum(map(len, own)) for own in sites]
        owner = np.repeat(np.arange(len(sites)), lengths)
        return cls(by_family([site for own in sites for site in own]), owner, len(sites))

    def log_terms(self, n: Array) -> Array:
        """Σ_k log l_k(y_k | N) of every population, shape (N, populations)."""
        total = np.zeros((len(n), self.populations))
        for entries, noise in self.noises:
            with np.errstate(divide="ignore", invalid="ignore"):
                found = np.broadcast_to(noise.log_prob(n[:, None]), (len(n), len(entries)))
            which = self.owner[entries]
            order = np.argsort(which, kind="stable")
            first = np.flatnonzero(np.diff(which[order], prepend=-1))
            total[:, which[order][first]] += np.add.reduceat(found[:, order], first, axis=1)
        return total


def laws_of_size(readings: OneCellReadings, law: SizeLaw) -> tuple[Array, Array, Array]:
    """All N that matter, their probabilities (N, populations) and log p(y) of every population.

    The range is doubled until the last term of every sum is negligible, so that counts far above what the law expects are met too.
    """
    low, high = law.least, law.window[1]
    while True:
        n = np.arange(low, high + 1, dtype=float)
        terms = readings.log_terms(n) + np.asarray(law.log_pmf(n))[:, None]
        top = terms.max(axis=0)
        if high >= min(law.most, LARGEST_SIZE) or (terms[-1] <= top + LEFT_OUT).all():
            break
        high = min(2 * high + 1, law.most, LARGEST_SIZE)
    shift = np.where(np.isfinite(top), top, 0.0)
    weight = np.exp(terms - shift)
    total = weight.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return n, weight / total, shift + np.log(total)


@dataclass(frozen=True)
class OneCellBeliefs(Beliefs):
    """Exact beliefs about a population of one cell: the law of N."""

    model: Model
    values: Array
    probabilities: Array
    log_evidence: float | None
    diagnostics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sizes(self) -> Sizes:  # type: ignore[override]
        """The law of N."""
        return Sizes(self.values, self.probabilities)

    @property
    def any_table(self) -> bool:
        """All: every table has one entry, N."""
        return True

    def mean(self, scope: Scope) -> Array:
        """E[N]."""
        return np.full((1,) * len(scope), self.values @ self.probabilities)

    def variance(self, scope: Scope) -> Array:
        """Var N."""
        off = self.values - self.values @ self.probabilities
        return np.full((1,) * len(scope), np.square(off) @ self.probabilities)

    def covariance(self, a: Scope, b: Scope) -> Array:
        """Var N: every count is N."""
        del b
        return self.variance(a).reshape(1, 1)

    def quantile(self, scope: Scope, level: float) -> Array:
        """A quantile of N."""
        place = np.searchsorted(np.cumsum(self.probabilities), level - 1e-12)
        return np.full((1,) * len(scope), self.values[min(int(place), len(self.values) - 1)])

    def sample(self, size: int, *, rng: np.random.Generator, integer: bool) -> dict[Scope, Array]:
        """Draws of N."""
        del integer
        drawn = rng.choice(self.values, size=size, p=self.probabilities)
        return {tuple(c): drawn.reshape(size, *(1,) * len(c)) for c in self.model.junction_tree.cliques}

    @property
    def promises(self) -> Promises:
        """All hold."""
        return Promises(non_negative=True, consistent=True)
