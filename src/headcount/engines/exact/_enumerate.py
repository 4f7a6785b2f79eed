"""Exact posterior of tiny problems, by adding up every possible population: the oracle of the tests; and what all exact methods share.

A population of N exchangeable individuals is how many have each joint configuration x (only those with p(x) > 0):

    P(n) = N! Π_x p(x)^n(x) / n(x)!,    P(n | y) ∝ P(n) Π l(y | n_D)

All C(N + J − 1, J − 1) ways to split N over the J configurations are listed. Any model, any noise, entries and sums.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammaln, xlogy

from headcount.errors import NoPopulationError, ProblemError
from headcount.population import compositions
from headcount.posterior import Beliefs, Promises
from headcount.posterior._beliefs import Sizes
from headcount.tables import Domain

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headcount._types import Array, Counts, Index, Scope
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


def log_row(counts: NDArray[Any], law: Array) -> Array:
    """Σ_j n_j log P_j − log n_j! of rows of counts: log of the multinomial probability, less log N!."""
    return np.asarray((xlogy(counts, law) - gammaln(counts + 1.0)).sum(axis=-1))


def log_sum(table: Array) -> float:
    """log Σ exp over all entries."""
    top = float(table.max(initial=-np.inf))
    return top if top == -np.inf else top + float(np.log(np.exp(table - top).sum()))


def to_scopes(joint: Array, first: Place, second: Place) -> Array:
    """A matrix of two tables, flat as the tree keeps them, as the scopes name their variables."""
    return first.to_scope(second.to_scope(joint.reshape(np.prod(first.shape), -1)).T).T


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

    def law_of_sum(self, scope: Scope, weights: Array) -> Sizes:
        """By the populations' probabilities."""
        sums = self.table(scope).reshape(len(self.weights), -1) @ weights
        values, which = np.unique(sums, return_inverse=True)
        return Sizes(values.astype(float), np.asarray(np.bincount(which, self.weights), dtype=float))

    def draw_states(self, size: int, rng: np.random.Generator) -> Index:
        """Populations."""
        return rng.choice(len(self.weights), size=size, p=self.weights)

    def drawn_table(self, scope: Scope, states: Index, rng: np.random.Generator) -> Array:
        """The tables of the populations drawn."""
        del rng
        return replace(self, counts=self.counts[states]).table(scope).astype(float)


def enumerated(problem: Problem) -> EnumeratedBeliefs:
    """List every population and weigh it."""
    model, people = problem.model, problem.population
    joint = np.asarray(model.marginal(model.variables))
    possible = np.flatnonzero(joint.ravel())
    split = compositions(people, len(possible))
    log_weight = gammaln(people + 1.0) + log_row(split, joint.ravel()[possible])
    counts = np.zeros((len(split), joint.size), dtype=split.dtype)
    counts[:, possible] = split
    beliefs = EnumeratedBeliefs(model, people, counts.reshape(-1, *joint.shape), np.zeros(len(split)))
    for site in problem.sites:
        table = beliefs.table(site.scope).reshape(len(split), -1)
        log_weight = log_weight + log_likelihood(site, table)
    log_evidence = log_sum(log_weight)
    if log_evidence == -np.inf:
        raise NoPopulationError(
            "no population agrees with the data: every one of them has probability zero; check the exact counts and zeros"
        )
    weights = np.exp(log_weight - log_evidence)
    found = {"populations": len(split), "configurations": len(possible)}
    return replace(beliefs, weights=weights / weights.sum(), log_evidence=log_evidence, diagnostics=found)


MOST_LEFT_OUT = 1e-9
"""Posterior probability of the largest sizes listed above which more are listed."""
MORE = 1.5
"""Factor by which sizes are then raised."""


def enumerated_cloud(problem: Problem, most: int, rng: np.random.Generator) -> EnumeratedBeliefs:
    """List every population of groups whose sizes have laws, up to sizes beyond which nothing is left, and weigh it.

    With N_g individuals of group g, of whom n(x) have the configuration x, P(n) = Π_g p_g(N_g) N_g! Π_x p_g(x)^n(x) / n(x)!.
    """
    numbers = problem.numbers
    assert numbers is not None
    sizes = _first_sizes(problem, rng)
    while True:
        found, reached = _listed(problem, sizes, most)
        if not any(reached):
            return found
        sizes = [int(MORE * n) + 1 if more else n for n, more in zip(sizes, reached, strict=True)]
        sizes = [min(n, int(law.most)) for n, law in zip(sizes, numbers.laws, strict=True)]


def _first_sizes(problem: Problem, rng: np.random.Generator) -> list[int]:
    """Sizes up to which populations are listed at first: about nine standard deviations above the means, by tilted EP."""
    from headcount.engines._reduce import likely_sizes  # which runs engines

    numbers = problem.numbers
    assert numbers is not None
    if numbers.known:
        return [int(law.most) for law in numbers.laws]
    return likely_sizes(problem, rng)[0]


def _listed(problem: Problem, sizes: list[int], most: int) -> tuple[EnumeratedBeliefs, list[bool]]:
    """All populations up to some sizes, and at which of these the posterior is not yet negligible."""
    numbers, model = problem.numbers, problem.model
    assert numbers is not None
    joint = np.asarray(model.marginal(model.variables))
    groups = len(numbers.laws)
    of_group = (
        [np.ravel(joint) > 0]
        if groups == 1
        else [
            np.ravel((np.arange(groups) == g).reshape(-1, *[1] * (joint.ndim - 1)) * joint) > 0
            for g in range(groups)
        ]
    )
    lists, logs = [], []
    total = 1.0
    for law, size, mine in zip(numbers.laws, sizes, of_group, strict=True):
        possible = np.flatnonzero(mine)
        if not len(possible):  # a group without individuals
            lists.append(np.zeros((1, joint.size), dtype=np.int64))
            logs.append(law.log_pmf(np.zeros(1)))
            continue
        total *= sum(comb(n + len(possible) - 1, len(possible) - 1) for n in range(int(law.least), size + 1))
        if total * joint.size > most:
            raise ProblemError(
                f"Enumerate would list {total * joint.size:.3g} table entries and lists at most {most:.3g} (sizes up to {sizes}): use "
                "PathGibbs for a reference answer"
            )
        share = np.ravel(joint)[possible].sum()
        split = np.concatenate([compositions(n, len(possible)) for n in range(int(law.least), size + 1)])
        people = split.sum(axis=1)
        log_p = (
            law.log_pmf(people) + gammaln(people + 1.0) + log_row(split, np.ravel(joint)[possible] / share)
        )
        counts = np.zeros((len(split), joint.size), dtype=split.dtype)
        counts[:, possible] = split
        kept = log_p > -np.inf
        lists.append(counts[kept])
        logs.append(log_p[kept])
    counts, log_weight = lists[0], logs[0]
    for more, log_p in zip(lists[1:], logs[1:], strict=True):
        counts = (counts[:, None] + more[None]).reshape(-1, joint.size)
        log_weight = (log_weight[:, None] + log_p[None]).ravel()
    beliefs = EnumeratedBeliefs(
        model, int(sum(sizes)), counts.reshape(-1, *joint.shape), np.zeros(len(counts))
    )
    for site in problem.sites:
        table = beliefs.table(site.scope).reshape(len(counts), -1)
        log_weight = log_weight + log_likelihood(site, table)
    log_evidence = log_sum(log_weight)
    if log_evidence == -np.inf:
        raise NoPopulationError(
            "no population agrees with the data: every one of them has probability zero; check the exact counts and zeros"
        )
    weights = np.exp(log_weight - log_evidence)
    found = {"populations": len(counts), "configurations": int(np.count_nonzero(joint))}
    made = replace(beliefs, weights=weights / weights.sum(), log_evidence=log_evidence, diagnostics=found)
    reached = [
        law.variance > 0 and size < law.most and weights[counts @ mine >= size].sum() > MOST_LEFT_OUT
        for law, size, mine in zip(numbers.laws, sizes, np.array(of_group, dtype=float), strict=True)
    ]
    return made, reached
