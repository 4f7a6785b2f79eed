"""Exact posterior of tiny problems, by adding up every possible population: the oracle of the tests; and what all exact methods share.

A population of N exchangeable individuals is how many have each joint configuration x (only those with p(x) > 0):

    P(n) = N! Π_x p(x)^n(x) / n(x)!,    P(n | y) ∝ P(n) Π l(y | n_D)

Configurations that add to the same counts are one class, within which n(x) is multinomial, whatever the data. All ways to split N over the
classes that have the exact counts are listed; of kinds whose numbers have a law, those of every number in a window beyond which nothing is
left. Any model, any noise, entries and sums.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array
from scipy.special import binom, gammaln, xlogy

from headcount.engines.tilted._tilted_ep import likely_sizes
from headcount.errors import NoPopulationError, ProblemError
from headcount.observe import SIZES
from headcount.population import Exactly
from headcount.posterior import Beliefs, Promises, Sizes

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
    """log l(y | n) of flat count tables, (tables, entries)."""
    return log_of_seen(site, site.margin(counts))


def log_of_seen(site: Site, counts: NDArray[Any]) -> Array:
    """log l(y | n) of what a site sees, (tables, counts); of many tables by the few numbers that are in them."""
    seen = counts.astype(float)
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
class Classes:
    """The configurations that one individual may have, in classes that add to the same counts.

    Attributes
    ----------
    model
        Whose configurations they are.
    flat
        Their flat positions among all.
    of
        The class of each.
    share
        The probability of each within its class.
    adds
        What one individual of each class adds to the number of every kind and to the counts of every site, (classes, kinds and counts).
    log_p
        Log of the probability of each class given its kind.
    """

    model: Model
    flat: Index
    of: Index
    share: Array
    adds: Array
    log_p: Array

    @classmethod
    def of_problem(cls, problem: ClosedProblem, kinds: int) -> Classes | None:
        """Those of a problem, but for configurations that exact counts exclude; None where there are more than can be listed."""
        model = problem.model
        sizes = np.array(model.size(model.variables), dtype=float)
        if len(sizes) > MOST_VARIABLES or np.log(sizes).sum() > np.log(MOST_CONFIGURATIONS):
            return None
        joint = np.asarray(model.marginal(model.variables)).ravel()
        flat = np.flatnonzero(joint)
        kind = flat // (joint.size // kinds)  # of several kinds, the first variable says of which one is
        p = joint[flat] / np.bincount(kind, joint[flat])[kind]
        made = cls(model, flat, flat, p, np.eye(kinds)[kind], p)
        for site in _exact_first(problem):
            if len(made.flat) * (made.adds.shape[1] + len(site)) > MOST_ADDED:
                return None
            here = site.added(made.place(site.scope))
            kept = (here <= site.noise.counts + ROUNDING).all(axis=1) if site.noise.exact else slice(None)
            adds = np.concatenate([made.adds, here], axis=1)[kept]
            made = cls(model, made.flat[kept], made.of[kept], made.share[kept], adds, made.log_p[kept])
        adds, of = np.unique(made.adds, axis=0, return_inverse=True)
        total = np.bincount(of, made.share, minlength=len(adds))
        return cls(model, made.flat, of, made.share / total[of], adds, np.log(total))

    def place(self, scope: Scope) -> Index:
        """The entry of a table to which each configuration adds."""
        states = np.unravel_index(self.flat, self.model.size(self.model.variables))
        axes = self.model.domain(self.model.variables).axes(scope)
        return np.asarray(np.ravel_multi_index([states[k] for k in axes], self.model.size(scope)))

    def table(self, scope: Scope) -> Array:
        """The probability of each entry of a table by class, (classes, entries)."""
        size = self.model.domain(scope).size
        at = self.of * size + self.place(scope)
        return np.asarray(np.bincount(at, self.share, minlength=len(self.log_p) * size), float).reshape(
            -1, size
        )


@dataclass(frozen=True, eq=False)
class EnumeratedBeliefs(ExactBeliefs):
    """Every population with its posterior probability.

    Attributes
    ----------
    classes
        The classes of configurations.
    counts
        Individuals by class, (populations, classes).
    weights
        Posterior probability of each population.
    """

    model: Model
    population: int
    classes: Classes
    counts: NDArray[Any]
    weights: Array
    log_evidence: float | None = None
    diagnostics: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        """Mean of the numbers in each class, and R of their covariance R^T R: no variance is a difference."""
        mean = self.weights @ self.counts
        return mean, np.asarray(np.linalg.qr(np.sqrt(self.weights)[:, None] * (self.counts - mean), mode="r"))

    def mean(self, scope: Scope) -> Array:
        """Exact posterior mean."""
        return np.asarray(self._moments[0] @ self.classes.table(scope)).reshape(self.model.size(scope))

    def variance(self, scope: Scope) -> Array:
        """Exact posterior variance: of the classes, and within them."""
        (mean, root), share = self._moments, self.classes.table(scope)
        own = mean @ (share * (1.0 - share)) + np.square(root @ share).sum(axis=0)
        return np.asarray(own).reshape(self.model.size(scope))

    def covariance(self, a: Scope, b: Scope) -> Array:
        """Exact posterior covariance."""
        (mean, root), one, two = self._moments, self.classes.table(a), self.classes.table(b)
        both = np.zeros((one.shape[1], two.shape[1]))
        np.add.at(
            both, (self.classes.place(a), self.classes.place(b)), mean[self.classes.of] * self.classes.share
        )
        return np.asarray(both + (root @ one).T @ (root @ two) - (one.T * mean) @ two)

    def count_law(self, scope: Scope) -> tuple[NDArray[Any], Array] | None:
        """The exact law of every count; None where there are more than `MOST_VALUES`."""
        place, size = self.classes.place(scope), self.model.domain(scope).size
        laws = [law for entry in range(size) if (law := self._law_of(place == entry)) is not None]
        if len(laws) < size:
            return None
        least = min(low for low, _ in laws)
        most = max(low + len(law) for low, law in laws) - least
        if most * size > MOST_VALUES:
            return None
        table = np.zeros((most, size))
        for entry, (low, chances) in enumerate(laws):
            table[low - least : low - least + len(chances), entry] = chances
        table = table.reshape(most, *self.model.size(scope))
        counts = least + np.arange(most).reshape(-1, *[1] * (table.ndim - 1))
        return np.broadcast_to(counts, table.shape), table

    def law_of_sum(self, scope: Scope, weights: Array) -> Sizes | None:
        """Exact where weights are whole numbers, none of them negative; None elsewhere."""
        if (weights < 0).any() or (weights != np.rint(weights)).any():
            return None
        found = self._law_of(weights[self.classes.place(scope)])
        if found is None:
            return None
        low, law = found
        return Sizes(low + np.flatnonzero(law).astype(float), law[law > 0] / law.sum())

    def _law_of(self, values: NDArray[Any]) -> tuple[int, Array] | None:
        r"""The least value of Σ v(x) n(x), v(x) ≥ 0 whole numbers, and the probabilities from there on; None of more than `MOST_VALUES`.

        Its characteristic function is :math:`\sum_k w_k \prod_c z_c^{n_{kc}}`, with :math:`z_c = E\,e^{i t v}` of one individual of class
        c. Where v is the same in all of a class, its individuals only shift the sum.
        """
        of, share = self.classes.of, self.classes.share
        first = np.zeros(len(self.classes.log_p), dtype=np.int64)
        first[of] = values
        soft = np.unique(of[values != first[of]])
        first[soft] = 0
        shift, inside = self.counts @ first, self.counts[:, soft]
        least = int(shift.min())
        size = int((shift + inside.sum(axis=1) * int(values.max())).max()) - least + 1
        if size > MOST_VALUES:
            return None
        if not len(soft):
            return least, np.asarray(np.bincount(shift - least, self.weights), dtype=float)
        rows, which = np.unique(np.column_stack([shift - least, inside]), axis=0, return_inverse=True)
        weights, turn = np.bincount(which, self.weights), np.exp(2j * np.pi / size * np.arange(size))
        z = np.stack([share[of == c] @ turn ** values[of == c][:, None] for c in soft])
        total = np.zeros(size, dtype=complex)
        for block in np.array_split(np.arange(len(rows)), 1 + len(rows) * size // MOST_VALUES):
            found = turn ** rows[block, :1]
            for people, one in zip(rows[block, 1:].T, z, strict=True):
                found *= one ** people[:, None]
            total += weights[block] @ found
        law = np.fft.fft(total).real / size
        return least, np.where(law > ROUNDED, law, 0.0)

    def draw_states(self, size: int, rng: np.random.Generator) -> NDArray[Any]:
        """Individuals by configuration, (draws, configurations)."""
        rows = self.counts[rng.choice(len(self.weights), size=size, p=self.weights)]
        made = np.zeros((size, len(self.classes.flat)), dtype=np.int64)
        for c, people in enumerate(rows.T):
            own = self.classes.of == c
            made[:, own] = rng.multinomial(people, self.classes.share[own])
        return made

    def drawn_table(self, scope: Scope, states: NDArray[Any], rng: np.random.Generator) -> Array:
        """The tables of these configurations."""
        del rng
        place = self.classes.place(scope)
        onto = csr_array(
            (np.ones(len(place)), (place, np.arange(len(place)))), (self.model.domain(scope).size, len(place))
        )
        return np.asarray((onto @ states.T).T).reshape(-1, *self.model.size(scope))


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


MOST_VALUES = 2_000_000
"""Values of a count, over all entries of a table, up to which their probabilities are found: 16 MB, or 32 as complex numbers."""
ROUNDED = 1e-14
"""Probabilities below this are rounding of a Fourier transform."""
MOST_VARIABLES = 32
"""Variables of a model whose configurations are listed: NumPy's arrays have 64 axes at most, and 2³² configurations are too many."""
MOST_CONFIGURATIONS, MOST_ADDED = 1_000_000, 1_000_000
"""Joint configurations of one individual whose probabilities are looked at: 8 MB; and what those that are possible beside exact counts
add to every count, 8 MB as well, by which they are put in classes: some tenths of a second."""


def listed_entries(problem: ClosedProblem, windows: Sequence[SizeWindow], *, most: int) -> float:
    """How many table entries a list of all populations has; where that is above ``most``, a bound; infinity for too many configurations."""
    classes = Classes.of_problem(problem, len(windows))
    if classes is None:
        return np.inf
    total = float(len(classes.adds))
    for window, mine in zip(windows, classes.adds.T.sum(axis=1), strict=False):
        # Σ C(n + J − 1, J − 1) over n from 0 to N is C(N + J, J).
        upto = float(binom(window.high + mine, mine))
        total *= upto if np.isinf(upto) else upto - float(binom(window.low - 1 + mine, mine))
    if total > most and problem.traits.any_exact:
        found = _populations(problem, windows, classes, most / len(classes.adds))
        total = total if found is None else float(found.size)
    return total


def _populations(
    problem: ClosedProblem, windows: Sequence[SizeWindow], classes: Classes, most: float = np.inf
) -> Counts | None:
    """All populations with numbers in these windows and with the exact counts, (populations, classes); None if more than ``most`` turn up.

    Class by class, each with as many individuals as exact counts leave, and as many as they need where it is the last that adds to one.
    """
    exact = np.concatenate([site.noise.counts for site in problem.sites if site.noise.exact] or [np.zeros(0)])
    least, largest = (np.append([getattr(w, end) for w in windows], exact) for end in ("low", "high"))
    adds = classes.adds[:, : len(least)]
    last = len(adds) - 1 - (adds[::-1] > 0).argmax(axis=0)
    had, steps = np.zeros((1, len(least))), []
    if (least[(adds == 0).all(axis=0)] > 0).any():
        return np.zeros((0, len(adds)), dtype=np.int64)
    for c, add in enumerate(adds):
        some, ends = add > 0, (add > 0) & (last == c)
        top = np.floor(((largest - had)[:, some] / add[some]).min(axis=1) + ROUNDING)
        need = np.ceil(((least - had)[:, ends] / add[ends]).max(axis=1, initial=0.0) - ROUNDING)
        ways = np.maximum(top - need + 1.0, 0.0).astype(np.intp)
        if ways.sum() > most:
            return None
        before = np.repeat(np.arange(len(had)), ways)
        n = np.arange(len(before)) - np.repeat(np.cumsum(ways) - ways, ways) + need[before].astype(np.int64)
        had = had[before] + n[:, None] * add
        steps.append((before, n))
    counts, at = np.zeros((len(had), len(adds)), dtype=np.int64), np.arange(len(had))
    for c, (before, n) in reversed(list(enumerate(steps))):
        counts[:, c], at = n[at], before[at]
    return counts


def enumerated(problem: ClosedProblem, windows: Sequence[SizeWindow] | None = None) -> EnumeratedBeliefs:
    """List every population with numbers in these windows and with the exact counts, and weigh it.

    With N_g individuals of kind g, of whom n(c) are of class c, P(n) = Π_g p_g(N_g) N_g! Π_c p_g(c)^n(c) / n(c)!.
    """
    windows = first_windows(problem, np.random.default_rng(0)) if windows is None else windows
    classes = Classes.of_problem(problem, len(windows))
    assert classes is not None
    counts = _populations(problem, windows, classes)
    assert counts is not None
    seen = counts @ classes.adds
    log_weight = counts @ classes.log_p - gammaln(counts + 1.0).sum(axis=1)
    for window, people in zip(windows, seen.T, strict=False):
        log_weight = log_weight + window.law.log_pmf(people) + gammaln(people + 1.0)
    ends = np.cumsum([len(windows), *(len(site) for site in _exact_first(problem))])
    for site, end in zip(_exact_first(problem), ends[1:], strict=True):
        log_weight = log_weight + log_of_seen(site, seen[:, end - len(site) : end])
    log_evidence = log_sum(log_weight)
    if log_evidence == -np.inf:
        raise NoPopulationError(
            "no population agrees with the data: every one of them has probability zero; check the exact counts and zeros"
        )
    weights = np.exp(log_weight - log_evidence)
    found = {"populations": len(counts), "configurations": len(classes.flat)}
    kept = weights > 0
    return EnumeratedBeliefs(
        problem.model,
        sum(window.high for window in windows),
        classes,
        counts[kept],
        weights[kept] / weights.sum(),
        log_evidence,
        found,
    )


def _exact_first(problem: ClosedProblem) -> list[Site]:
    """What is seen, in the order in which classes have it."""
    return sorted(problem.sites, key=lambda site: not site.noise.exact)
