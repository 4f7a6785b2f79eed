"""Exact posterior of tiny problems, by adding up every possible population: the oracle of the tests; and what all exact methods share.

A population of N exchangeable individuals is how many have each joint configuration x (only those with p(x) > 0):

    P(n) = N! Π_x p(x)^n(x) / n(x)!,    P(n | y) ∝ P(n) Π l(y | n_D)

All C(N + J − 1, J − 1) ways to split N over the J configurations are listed; of kinds whose numbers have a law, those of every number in a
window beyond which nothing is left. Any model, any noise, entries and sums.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import binom, gammaln, xlogy

from headcount.engines.tilted._tilted_ep import likely_sizes
from headcount.errors import NoPopulationError, ProblemError
from headcount.observe import SIZES
from headcount.population import Exactly, compositions
from headcount.posterior import Beliefs, Promises, Sizes
from headcount.tables import Domain

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headcount._types import Array, Counts, Index, Scope
    from headcount.individual import Model, Place, RootedTree
    from headcount.observe import ClosedProblem, Site
    from headcount.population import SizeLaw

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


def fitting_tree(problem: ClosedProblem, method: str, misfit: str | None) -> RootedTree:
    """The chain or tree that an exact method works on; an error says why it does not fit."""
    tree = problem.model.rooted()
    if misfit is not None or tree is None:
        raise ProblemError(f"the exact {method} does not fit: {misfit}")
    return tree


def law_of_counts(tables: NDArray[Any], weights: Array) -> tuple[NDArray[Any], Array]:
    """Whole numbers from the smallest to the largest count, and their probabilities by entry, from tables (tables, *table) and theirs."""
    least = int(tables.min())
    numbers = np.arange(least, int(tables.max()) + 1)
    entries = tables.reshape(len(tables), -1).astype(np.intp).T - least
    chances = np.stack([np.bincount(entry, weights, minlength=len(numbers)) for entry in entries], axis=-1)
    shape = (len(numbers), *tables.shape[1:])
    return np.broadcast_to(numbers.reshape(-1, *[1] * (tables.ndim - 1)), shape), chances.reshape(shape)


def law_of_sums(sums: Array, weights: Array) -> Sizes:
    """The values that sums have, and their probabilities."""
    if (sums == np.rint(sums)).all():
        values, law = law_of_counts(sums, weights)
    else:
        values, which = np.unique(sums, return_inverse=True)
        law = np.asarray(np.bincount(which, weights), dtype=float)
    return Sizes(values[law > 0].astype(float), law[law > 0] / law.sum())


def log_likelihood(site: Site, counts: NDArray[Any]) -> Array:
    """log l(y | n) of flat count tables, (tables, entries); of many tables by the few numbers that are in them."""
    seen = site.margin(counts).astype(float)
    largest = int(seen.max(initial=0.0))
    with np.errstate(divide="ignore"):
        if site.noise.correlated or largest >= len(seen) or (seen != np.rint(seen)).any():
            return np.asarray(site.noise.log_prob(seen).sum(axis=-1))
        of_number = site.noise.log_prob(np.repeat(np.arange(largest + 1.0)[:, None], len(site), axis=1))
    return np.asarray(of_number[seen.astype(np.intp), np.arange(len(site))].sum(axis=-1))


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
        return law_of_sums(self.table(scope).reshape(len(self.weights), -1) @ weights, self.weights)

    def draw_states(self, size: int, rng: np.random.Generator) -> Index:
        """Populations."""
        return rng.choice(len(self.weights), size=size, p=self.weights)

    def drawn_table(self, scope: Scope, states: Index, rng: np.random.Generator) -> Array:
        """The tables of the populations drawn."""
        del rng
        return replace(self, counts=self.counts[states]).table(scope).astype(float)


@dataclass(frozen=True)
class SizeWindow:
    """Numbers of individuals of one kind that are gone through."""

    law: SizeLaw
    low: int
    high: int

    def wider(self, sizes: Sizes) -> SizeWindow:
        """The window that holds all but a negligible part of the posterior ``sizes``; itself where it does."""
        below = sizes.probabilities[sizes.values <= self.low].sum() > MOST_LEFT_OUT
        above = sizes.probabilities[sizes.values >= self.high].sum() > MOST_LEFT_OUT
        more = max(1, round(WIDER * (self.high - self.low)))
        low, high = self.low - more * bool(below), self.high + more * bool(above)
        return replace(self, low=max(low, int(self.law.least)), high=min(high, int(self.law.most)))


MOST_LEFT_OUT = 1e-9
"""Posterior probability of the smallest and of the largest number gone through above which more are gone through."""
FIRST_SHARE, WIDER = 0.5, 0.3
"""The first window's share of all sizes that are likely, and the share of itself by which it grows at an end where it cuts the law off."""


MOST_NUMBERS = 5_000
"""Numbers of individuals that are gone through."""


def likely_most(law: SizeLaw) -> float:
    """The number above which a law leaves next to nothing: by its terms where they are few, else the end of its window."""
    low, high = law.window
    if high - low > MOST_NUMBERS:
        return float(high)
    beyond = np.exp(law.log_pmf(np.arange(low, high + 1)))[::-1].cumsum()[::-1]
    return float(low + np.count_nonzero(beyond > MOST_LEFT_OUT))


def first_windows(problem: ClosedProblem, rng: np.random.Generator) -> list[SizeWindow]:
    """Numbers of every kind to begin with: known ones, or likely ones by tilted EP."""
    if problem.numbers is None:
        return [SizeWindow(Exactly(problem.population), problem.population, problem.population)]
    laws = problem.numbers.laws
    if problem.numbers.known:
        return [SizeWindow(law, int(law.most), int(law.most)) for law in laws]
    sizes = likely_sizes(problem, rng, share=FIRST_SHARE)
    return [SizeWindow(law, size.low, size.high) for law, size in zip(laws, sizes, strict=True)]


def widened(problem: ClosedProblem, beliefs: ExactBeliefs, windows: Sequence[SizeWindow]) -> list[SizeWindow]:
    """Windows beyond which nothing is left of the posterior."""
    numbers = problem.numbers
    if numbers is None or numbers.known:
        return list(windows)
    first = problem.model.variables[:1]
    rows = np.eye(len(windows)) if first == (SIZES,) else np.ones((1, problem.model.domain(first).size))
    laws = [beliefs.law_of_sum(first, row) for row in rows]
    return [
        window if law is None or window.law.variance == 0 else window.wider(law)
        for window, law in zip(windows, laws, strict=True)
    ]


MOST_CONFIGURATIONS = 10_000_000
"""Joint configurations of one individual that may be listed."""


def listed_entries(
    problem: ClosedProblem, windows: Sequence[SizeWindow], *, most: int = MOST_CONFIGURATIONS
) -> float:
    """How many table entries a list of all populations has; infinity where one individual alone has more than ``most`` configurations."""
    sizes = np.array(problem.model.size(problem.model.variables), dtype=float)
    if np.log(sizes).sum() > np.log(most):
        return np.inf
    total = float(sizes.prod())
    for window, mine in zip(windows, _configurations(problem, len(windows)), strict=True):
        # Σ C(n + J − 1, J − 1) over n from 0 to N is C(N + J, J).
        upto = float(binom(window.high + len(mine), len(mine)))
        total *= upto if np.isinf(upto) else upto - float(binom(window.low - 1 + len(mine), len(mine)))
    return total


def _configurations(problem: ClosedProblem, kinds: int) -> list[Index]:
    """Of every kind, the flat positions of the configurations that its individuals may have."""
    joint = np.asarray(problem.model.marginal(problem.model.variables))
    if kinds == 1:
        return [np.flatnonzero(joint)]
    first = np.arange(joint.size) // (joint.size // kinds)  # the first variable says of which kind one is
    return [np.flatnonzero((joint.ravel() > 0) & (first == g)) for g in range(kinds)]


def enumerated(problem: ClosedProblem, windows: Sequence[SizeWindow] | None = None) -> EnumeratedBeliefs:
    """List every population with numbers in these windows, and weigh it.

    With N_g individuals of kind g, of whom n(x) have the configuration x, P(n) = Π_g p_g(N_g) N_g! Π_x p_g(x)^n(x) / n(x)!.
    """
    windows = first_windows(problem, np.random.default_rng(0)) if windows is None else windows
    model = problem.model
    joint = np.asarray(model.marginal(model.variables))
    counts, log_weight = np.zeros((1, joint.size), dtype=np.int16), np.zeros(1)
    for window, possible in zip(windows, _configurations(problem, len(windows)), strict=True):
        sizes = range(window.low, window.high + 1)
        split = np.concatenate([compositions(n, len(possible)) for n in sizes])
        people, law = split.sum(axis=1), joint.ravel()[possible]
        log_p = window.law.log_pmf(people) + gammaln(people + 1.0) + log_row(split, law / law.sum())
        more = np.zeros((len(split), joint.size), dtype=split.dtype)
        more[:, possible] = split
        kept = log_p > -np.inf
        counts = (counts[:, None] + more[kept][None]).reshape(-1, joint.size)
        log_weight = (log_weight[:, None] + log_p[kept][None]).ravel()
    population = sum(window.high for window in windows)
    beliefs = EnumeratedBeliefs(model, population, counts.reshape(-1, *joint.shape), np.zeros(len(counts)))
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
    return replace(beliefs, weights=weights / weights.sum(), log_evidence=log_evidence, diagnostics=found)
