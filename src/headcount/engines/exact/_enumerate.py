"""Exact posterior of tiny problems, by adding up every possible population: the oracle of the tests.

A population of N exchangeable individuals is how many have each joint configuration x (only those with p(x) > 0):

    P(n) = N! Π_x p(x)^n(x) / n(x)!,    P(n | y) ∝ P(n) Π l(y | n_D)

All C(N + J − 1, J − 1) ways to split N over the J configurations are listed. Any model, any noise, entries and sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import comb
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from headcount.engines._engine import DirectEngine, Rule, whole
from headcount.engines.exact._count_states import count_state_beliefs, count_states_fit
from headcount.engines.exact._exact_beliefs import ExactBeliefs, law_of_counts, log_likelihood, log_sum
from headcount.engines.exact._few_individuals import few_individuals_beliefs, few_individuals_fit
from headcount.observe import ProblemError
from headcount.population import compositions
from headcount.tables import Domain

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headcount._types import Array, Counts, Index, Scope
    from headcount.individual import Model
    from headcount.observe import Problem


@dataclass(frozen=True)
class Enumerate(DirectEngine):
    """Exact inference for tiny problems; larger ones by recursion: chains of 2 or 3 cells over count states, N ≤ 6 over individuals.

    Parameters
    ----------
    most
        The largest number of table entries to list (populations × configurations).

    Raises
    ------
    ProblemError
        When the problem is too large (both numbers are in the message), or no population agrees with the data.
    """

    most: int = 60_000_000

    name: ClassVar[str] = "Enumerate"
    takes_sizes: ClassVar = "all"
    moves_units: ClassVar[bool] = True
    rules: ClassVar[dict[str, Rule]] = {"most": whole()}

    def solve(self, problem: Problem, rng: np.random.Generator) -> ExactBeliefs:
        """List all populations, or run an exact recursion where the list is too long."""
        del rng
        if self.entries(problem) <= self.most:
            return enumerated(problem)
        misfit = self.misfit(problem)
        if misfit is not None:
            raise ProblemError(misfit)
        recursion = count_state_beliefs if count_states_fit(problem) is None else few_individuals_beliefs
        return recursion(problem)

    def misfit(self, problem: Problem) -> str | None:
        """Why no exact method can run on a problem; None when one can."""
        listed = self.entries(problem)
        reasons = count_states_fit(problem), few_individuals_fit(problem)
        if listed <= self.most or None in reasons:
            return None
        return (
            f"Enumerate would list {listed:.3g} table entries and lists at most {self.most:.3g} (N = {problem.population}); the exact"
            f" recursion over count states does not fit either: {reasons[0]}; nor the one over individuals: {reasons[1]}."
            " Use PathGibbs for a reference answer"
        )

    @staticmethod
    def entries(problem: Problem) -> int:
        """How many table entries the list would have."""
        sizes = problem.model.size(problem.model.variables)
        if np.log(np.array(sizes, dtype=float)).sum() > np.log(1e7):
            return 10**30
        states = int(np.count_nonzero(problem.model.marginal(problem.model.variables)))
        return comb(problem.population + states - 1, states - 1) * states


@dataclass(frozen=True, eq=False)
class EnumeratedBeliefs(ExactBeliefs):
    """Every population with its posterior probability.

    Attributes
    ----------
    counts
        Individuals by joint configuration, (populations, *states).
    weights
        Posterior probability of each population.
    """

    model: Model
    population: int
    counts: NDArray[Any]
    weights: Array
    log_evidence: float | None = None
    diagnostics: Mapping[str, Any] = field(default_factory=dict)

    def table(self, scope: Scope) -> Counts:
        """The table of a scope in every population, (populations, *table)."""
        joint = Domain(self.model.variables, self.counts.shape[1:])
        return np.asarray(joint.project(self.counts, scope, total=partial(np.sum, dtype=np.int64)))

    def mean(self, scope: Scope) -> Array:
        """Exact posterior mean."""
        return np.asarray(np.tensordot(self.weights, self.table(scope), axes=1))

    def variance(self, scope: Scope) -> Array:
        """Exact posterior variance."""
        return np.asarray(np.tensordot(self.weights, (self.table(scope) - self.mean(scope)) ** 2, axes=1))

    def covariance(self, a: Scope, b: Scope) -> Array:
        """Exact posterior covariance."""
        first, second = (self.table(s) - self.mean(s) for s in (a, b))
        rows = len(self.weights)
        return np.asarray((self.weights[:, None] * first.reshape(rows, -1)).T @ second.reshape(rows, -1))

    def count_law(self, scope: Scope) -> tuple[Counts, Array]:
        """The populations in the order of each count."""
        return law_of_counts(self.table(scope), self.weights)

    def draw_states(self, size: int, rng: np.random.Generator) -> Index:
        """Populations."""
        return rng.choice(len(self.weights), size=size, p=self.weights)

    def drawn_table(self, scope: Scope, states: Index, rng: np.random.Generator) -> Array:
        """The tables of the populations drawn."""
        del rng
        return replace(self, counts=self.counts[states]).table(scope).astype(float)


def enumerated(problem: Problem) -> EnumeratedBeliefs:
    """List every population and weigh it."""
    from scipy.special import gammaln

    model, people = problem.model, problem.population
    joint = np.asarray(model.marginal(model.variables))
    possible = np.flatnonzero(joint.ravel())
    split = compositions(people, len(possible))
    log_weight = (
        gammaln(people + 1.0)
        - gammaln(split + 1.0).sum(axis=1)
        + split.astype(float) @ np.log(joint.ravel()[possible])
    )
    counts = np.zeros((len(split), joint.size), dtype=split.dtype)
    counts[:, possible] = split
    beliefs = EnumeratedBeliefs(model, people, counts.reshape(-1, *joint.shape), np.zeros(len(split)))
    for site in problem.sites:
        table = beliefs.table(site.scope).reshape(len(split), -1)
        log_weight = log_weight + log_likelihood(site, table)
    log_evidence = log_sum(log_weight)
    if log_evidence == -np.inf:
        raise ProblemError(
            "no population agrees with the data: every one of them has probability zero; check the exact counts and zeros"
        )
    weights = np.exp(log_weight - log_evidence)
    found = {"populations": len(split), "configurations": len(possible)}
    return replace(beliefs, weights=weights / weights.sum(), log_evidence=log_evidence, diagnostics=found)
