r"""Exact inference on chains of few individuals or few cells: the count vector of all individuals is itself a Markov chain.

.. math:: \alpha_{t+1}(b) \propto \ell_{t+1}(b) \sum_a \alpha_t(a) K_t(a, b), \qquad
          \beta_t(a) \propto \sum_b K_t(a, b)\,\ell_{t+1}(b)\,\beta_{t+1}(b), \qquad K_t(a, b) = P(n_{t+1} = b \mid n_t = a).

Individuals of several kinds move independently, so that K is a product over them, applied along one axis after the other; the number of
each kind never changes, so that K has one block per number. A number of which only the law is known is summed over at the first time,

.. math:: \alpha_0(a) \propto \ell_0(a) \prod_g p_g(N_g) \mathrm{Multinomial}(a_g; N_g, \pi_g), \qquad N_g = \textstyle\sum_i a_g(i) .

Blocks of two cells are convolutions of binomials; others add one individual after the other,
:math:`K(a, b) = \sum_j P(i, j)\,K(a - e_i, b - e_j)` for any i with a(i) > 0. All terms are positive, so nothing cancels. Flows follow by
taking one (or two) individuals out,

.. math:: E[n_{ij}; a, b] = \alpha(a)\,a_i\,P(i, j)\,K(a - e_i, b - e_j)\,\ell(b)\,\beta(b),

for which vectors of one and of two individuals fewer are listed, too. An edge whose flows are observed becomes a node between its two, with
a state per move; so does every edge where the rows of transitions vary with rho: the moves of those in one state then have the
Dirichlet–multinomial law, :math:`\alpha = p(1-\rho)/\rho`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import binom, gammaln, xlog1py, xlogy

from headcount.engines.exact._enumerate import (
    MOST_NUMBERS,
    ExactBeliefs,
    SizeWindow,
    first_windows,
    law_of_counts,
    law_of_sums,
    log_likelihood,
    log_row,
    log_sum,
    to_scopes,
)
from headcount.engines.exact._few_individuals import edges_as_nodes, observed_edges
from headcount.errors import NoPopulationError, ProblemError
from headcount.observe import SIZES
from headcount.population import compositions
from headcount.posterior import Sizes
from headcount.tables import dense

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from headcount._types import Array, Counts, Index, Mask, Scope
    from headcount.individual import Model, RootedTree
    from headcount.observe import ClosedProblem
    from headcount.population import SizeLaw


class Work(NamedTuple):
    """What a recursion over count vectors takes."""

    entries: float
    """Entries of the blocks of the largest step."""
    products: float
    """Products of the largest step."""
    vectors: float
    """Count vectors of all kinds together, at the node with most of them."""

    def exceeds(self, most: Work) -> bool:
        """Whether any of them is more than allowed."""
        return any(here > limit for here, limit in zip(self, most, strict=True))


MOST = Work(25_000_000, 1_000_000_000, 6_000_000)
"""What `Enumerate` goes through: 200 MB of blocks, about a second per step, 48 MB per array of vectors."""
QUICK = Work(300_000, 30_000_000, 300_000)
"""The same for many answers: some hundredths of a second per step."""
LARGEST_LOG = 700.0
"""exp(±700) is about the largest and the smallest double."""
ROUNDED = 36.0
"""A share of exp(−36) = 2e-16 is rounding."""
KEPT = 25_000_000
"""Numbers, of arrays over count vectors, that are kept while second moments of moves are found: 200 MB."""
NOBODY = -1
"""The kind of states in which nobody is ever."""


def count_states_fit(
    problem: ClosedProblem, windows: Sequence[SizeWindow], *, most: Work = MOST
) -> str | None:
    """Why the recursion cannot run on a problem with numbers in these windows, within ``most`` work; None when it can."""
    rooted = problem.model.rooted()
    if rooted is None or not rooted.is_chain:
        return "the model is not a chain"
    if any(len(site.scope) > 2 for site in problem.sites):
        return "tables of three variables are observed"
    if any(window.high - window.low > MOST_NUMBERS for window in windows):
        return f"more than {MOST_NUMBERS} numbers of individuals are possible"
    work = Kinds.of(problem, windows).work
    if work.exceeds(most):
        return (
            f"there are {work.vectors:.3g} count vectors, and a step between them has {work.entries:.3g} entries and takes "
            f"{work.products:.3g} products; at most {most.vectors:.3g}, {most.entries:.3g} and {most.products:.3g} are possible"
        )
    return None


@dataclass(frozen=True, eq=False)
class Vectors:
    """All count vectors of some totals over a number of cells, by total."""

    totals: tuple[int, ...]
    cells: int

    @cached_property
    def blocks(self) -> list[slice]:
        """Where the vectors of each total are."""
        ends = np.cumsum([0, *np.rint(_vectors(self.totals, self.cells))]).astype(int)
        return [slice(a, b) for a, b in pairwise(ends.tolist())]

    @cached_property
    def counts(self) -> Counts:
        """The vectors, (vectors, cells)."""
        return np.concatenate([compositions(n, self.cells) for n in self.totals]).astype(np.int64)

    @cached_property
    def above(self) -> Index:
        """The places of v + e_i, (cells, vectors); one behind the last where that total is not listed."""
        one = np.eye(self.cells, dtype=np.int64)
        return np.stack([self.place(self.counts + one[i]) for i in range(self.cells)])

    def place(self, vectors: Counts) -> Index:
        r"""Where vectors are; one behind the last where their total is not listed.

        In lexicographic order :math:`\sum_i \binom{r_i + k_i}{k_i} - \binom{r_i - v_i + k_i}{k_i}` vectors of the same total come
        before v, with :math:`r_i = \sum_{j \ge i} v_j` and :math:`k_i` cells after the i-th.
        """
        totals = vectors.sum(axis=1)
        left = totals[:, None] - np.cumsum(vectors, axis=1)
        after = np.arange(self.cells)[::-1]
        rank = np.rint(binom(left + vectors + after, after) - binom(left + after, after)).sum(axis=1)
        known = np.searchsorted(self.totals, totals)
        inside = np.isin(totals, self.totals)
        starts = np.array([block.start for block in self.blocks])[np.where(inside, known, 0)]
        return np.where(inside, starts + rank, self.blocks[-1].stop).astype(np.intp)


def _vectors(totals: ArrayLike, cells: int) -> Array:
    """How many count vectors of every total there are."""
    totals = np.asarray(totals)
    return binom(totals + cells - 1.0, cells - 1.0) if cells else (totals == 0).astype(float)


@cache
def listed(totals: tuple[int, ...], cells: int) -> Vectors:
    """The vectors; those of equal nodes are one object."""
    return Vectors(totals, cells)


def count_transition(law: Array, totals: tuple[int, ...], rho: Array | None = None) -> list[Array]:
    """K(a, b) of moves P, (cells, cells of the next node), for every total; ``rho`` of the rows, where each state has cells of its own."""
    possible = law > 0
    if (possible.sum(axis=0) == 1).all():  # states are moves, of which each has one origin
        return [_split(law, possible, n, np.zeros(len(law)) if rho is None else rho) for n in totals]
    if law.shape == (2, 2):
        return [_two_cells(law, n) for n in totals]
    now, found = np.ones((1, 1)), {0: np.ones((1, 1))}
    for total in range(1, totals[-1] + 1):
        before, after = (listed((total - 1, total), cells) for cells in law.shape)
        vectors = before.counts[before.blocks[1]].copy()
        first = (vectors > 0).argmax(axis=1)
        vectors[np.arange(len(vectors)), first] -= 1
        down = before.place(vectors)
        then = np.zeros((len(vectors), after.blocks[1].stop - after.blocks[1].start))
        for j in range(law.shape[1]):
            above = after.above[j][after.blocks[0]] - after.blocks[1].start
            then[:, above] += law[first, j][:, None] * now[down]
        now = then
        if total in totals:
            found[total] = now
    return [found[n] for n in totals]


def _split(law: Array, possible: Mask, people: int, rho: Array) -> Array:
    """The same where every cell of the next node has one origin: a product of the laws of rows."""
    before, after = (listed((people,), cells) for cells in law.shape)
    rows = after.counts @ possible.T.astype(np.int64)
    log_p = sum(log_row_law(after.counts[:, mask], law[i, mask], rho[i]) for i, mask in enumerate(possible))
    made = np.zeros((len(before.counts), len(after.counts)))
    made[before.place(rows), np.arange(len(after.counts))] = np.exp(log_p)
    return made


def log_row_law(counts: Counts, p: Array, rho: float) -> Array:
    """log p of rows of counts given their totals: multinomial, or Dirichlet–multinomial with intra-class correlation rho."""
    people = counts.sum(axis=1)
    if rho == 0.0:
        return np.asarray(gammaln(people + 1.0) + log_row(counts, p))
    total = (1.0 - rho) / rho
    with np.errstate(invalid="ignore"):
        each = gammaln(counts + total * p) - gammaln(counts + 1.0) - gammaln(total * p)
    ways = np.where(p > 0, each, np.where(counts > 0, -np.inf, 0.0)).sum(axis=1)
    return np.asarray(gammaln(people + 1.0) + gammaln(total) - gammaln(people + total) + ways)


def _two_cells(law: Array, people: int) -> Array:
    """The same for two cells and one total: n(0) = Bin(a, p) + Bin(N − a, q)."""
    stay, arrive = (binomials(people, law[i, 0]) for i in range(2))
    return np.stack(
        [np.convolve(stay[a, : a + 1], arrive[people - a, : people - a + 1]) for a in range(people + 1)]
    )


def binomials(people: int, chance: float) -> Array:
    """Bin(k; n, p) for n = 0 … N and k = 0 … n, (N + 1, N + 1)."""
    n, k = np.ogrid[: people + 1, : people + 1]
    log_factorial = gammaln(np.arange(people + 1) + 1.0)
    rest = np.maximum(n - k, 0)
    logs = (
        log_factorial[n] - log_factorial[k] - log_factorial[rest] + xlogy(k, chance) + xlog1py(rest, -chance)
    )
    return np.where(k <= n, np.exp(logs), 0.0)


@dataclass(frozen=True, eq=False)
class Kinds:
    """The chain of a problem, a node on every edge whose flows are observed, and whose states belong to which kind of individuals.

    Attributes
    ----------
    tree
        The problem's tree.
    chain
        The same with nodes on edges, and without the node that says how many there are of each kind.
    seats
        By node of the problem's tree: the node of the chain.
    between
        By node: the node of the chain that stands for the edge above it.
    laws
        The law of the number of each kind.
    totals
        Numbers of each kind that are listed.
    of_state
        By node of the chain: the kind of every state, `NOBODY` where none is ever there.
    rho
        By node of the chain: rho of the rows of the step that leads there; none where rows do not vary.
    """

    tree: RootedTree
    chain: RootedTree
    seats: Mapping[int, int]
    between: Mapping[int, int]
    laws: Sequence[SizeLaw]
    totals: tuple[tuple[int, ...], ...]
    of_state: tuple[Index, ...]
    rho: Mapping[int, Array]
    sizes_first: bool
    """Whether the root says how many there are of each kind; it is then no node of the recursion."""

    @classmethod
    def of(cls, problem: ClosedProblem, windows: Sequence[SizeWindow]) -> Kinds:
        """Read off a problem whose model is a chain."""
        tree = problem.model.rooted()
        assert tree is not None
        sizes_first = problem.numbers is not None and tree.variables[0] == SIZES
        rows = problem.together.row_correlations(tree)
        edges = observed_edges(problem, tree)
        if rows is not None:  # laws of whole rows are known, of columns' sums they are not
            edges = set(range(1 + sizes_first, len(tree.sizes)))
        chain, seats, between = edges_as_nodes(tree, edges)
        rho = {} if rows is None else {between.get(v, seats[v]): row for v, row in enumerate(rows)}
        laws = [window.law for window in windows]
        reached = np.eye(len(laws)) if sizes_first else np.asarray(chain.initial > 0)[None]
        kinds = [np.where(reached.any(axis=0), reached.argmax(axis=0), NOBODY)]
        for step in chain.transitions[1:]:
            reached = np.asarray(reached, dtype=float) @ dense(step) > 0
            kinds.append(np.where(reached.any(axis=0), reached.argmax(axis=0), NOBODY))
        totals = tuple(tuple(range(max(w.low - 2, 0), w.high + 1)) for w in windows)
        return cls(tree, chain, seats, between, laws, totals, tuple(kinds), rho, sizes_first)

    @property
    def nodes(self) -> range:
        """The nodes of the chain that the recursion goes through."""
        return range(int(self.sizes_first), len(self.chain.sizes))

    def cells(self, t: int) -> list[int]:
        """How many states each kind has at a node."""
        return [int((self.of_state[t] == g).sum()) for g in range(len(self.laws))]

    @property
    def work(self) -> Work:
        """What the recursion takes."""
        entries = products = vectors = float(prod(len(totals) for totals in self.totals))
        for t in self.nodes[:-1]:
            blocks, wide = [], []
            for totals, a, b in zip(self.totals, self.cells(t), self.cells(t + 1), strict=True):
                here, there = (_vectors(np.array(totals), cells) for cells in (a, b))
                blocks.append(float(here @ there))
                wide.append(max(float(here.sum()), float(there.sum()), 1.0))
            entries, vectors = max(entries, sum(blocks)), max(vectors, prod(wide))
            products = max(
                products, sum(block * prod(wide) / w for block, w in zip(blocks, wide, strict=True))
            )
        return Work(entries, products, vectors)

    def space(self, t: int) -> CountSpace:
        """The count vectors of all kinds at a node."""
        parts = [listed(totals, cells) for totals, cells in zip(self.totals, self.cells(t), strict=True)]
        return CountSpace(parts, self.of_state[t])

    def blocks(self, t: int) -> list[list[Array]]:
        """K from node t to the next, of each kind, by its number."""
        step, (a, b) = np.asarray(dense(self.chain.transitions[t + 1])), self.of_state[t : t + 2]
        rho = self.rho.get(t + 1)
        return [
            count_transition(step[np.ix_(a == g, b == g)], totals, None if rho is None else rho[a == g])
            for g, totals in enumerate(self.totals)
        ]

    def log_first(self, space: CountSpace) -> Array:
        """log p of the first vectors: the laws of the numbers, and multinomial laws given these."""
        first = self.nodes[0]
        rows = dense(self.chain.transitions[1]) if self.sizes_first else self.chain.initial[None]
        total = np.zeros(1)
        for g, part in enumerate(space.parts):
            law, people = rows[g][self.of_state[first] == g], part.counts.sum(axis=1)
            rho = self.rho.get(first)
            log_p = self.laws[g].log_pmf(people)
            log_p = log_p + log_row_law(part.counts, law, 0.0 if rho is None else float(rho[g]))
            total = (total[:, None] + log_p).ravel()
        return total


class CountSpace:
    """Count vectors of all kinds together at one node: those of each kind along an axis of its own."""

    def __init__(self, parts: Sequence[Vectors], kinds: Index) -> None:
        self.parts, self.kinds = parts, kinds
        self.shape = tuple(len(part.counts) for part in parts)
        self.own = np.array([(kinds[:j] == kinds[j]).sum() for j in range(len(kinds))], dtype=np.intp)
        """The place of every state among those of its kind."""

    @cached_property
    def counts(self) -> Counts:
        """Counts of all states, (vectors, states)."""
        which = np.unravel_index(np.arange(prod(self.shape)), self.shape)
        made = np.zeros((prod(self.shape), len(self.kinds)), dtype=np.int64)
        for j in np.flatnonzero(self.kinds != NOBODY):
            g = self.kinds[j]
            made[:, j] = self.parts[g].counts[which[g], self.own[j]]
        return made

    @cached_property
    def numbers(self) -> Counts:
        """How many there are of each kind, (vectors, kinds)."""
        which = np.unravel_index(np.arange(prod(self.shape)), self.shape)
        return np.stack([p.counts[w].sum(axis=1) for p, w in zip(self.parts, which, strict=True)], axis=1)

    def without(self, x: Array, j: int) -> Array:
        """x(c + e_j) as a function of c, zero where c + e_j is not listed; x is (…, vectors)."""
        g = int(self.kinds[j])
        if g == NOBODY:
            return np.zeros_like(x)
        table = np.moveaxis(x.reshape(*x.shape[:-1], *self.shape), x.ndim - 1 + g, -1)
        more = np.concatenate([table, np.zeros((*table.shape[:-1], 1))], axis=-1)
        taken = more[..., self.parts[g].above[self.own[j]]]
        return np.moveaxis(taken, -1, x.ndim - 1 + g).reshape(x.shape)

    def with_one(self, x: Array, j: int) -> Array:
        """x(b − e_j) as a function of b, zero where nobody is in j: the transpose of `without`."""
        g = int(self.kinds[j])
        if g == NOBODY:
            return np.zeros_like(x)
        table = np.moveaxis(x.reshape(*x.shape[:-1], *self.shape), x.ndim - 1 + g, -1)
        made = np.zeros((*table.shape[:-1], table.shape[-1] + 1))
        made[..., self.parts[g].above[self.own[j]]] = table
        return np.moveaxis(made[..., :-1], -1, x.ndim - 1 + g).reshape(x.shape)


class Steps:
    """The spaces of all nodes and the blocks of K between them; equal steps are one."""

    def __init__(self, kinds: Kinds) -> None:
        self.kinds = kinds
        made: dict[bytes, CountSpace] = {}
        self.spaces = [made.setdefault(kinds.of_state[t].tobytes(), kinds.space(t)) for t in kinds.nodes]
        self._made: dict[Any, list[list[Array]]] = {}

    def law(self, t: int) -> Array:
        """P from node number t of the recursion to the next, (states, states)."""
        return np.asarray(dense(self.kinds.chain.transitions[self.kinds.nodes[t] + 1]))

    def blocks(self, t: int) -> list[list[Array]]:
        """K of each kind, by its number."""
        node = self.kinds.nodes[t] + 1
        matrix = self.kinds.chain.transitions[node]
        key = (
            id(matrix),
            self.kinds.rho.get(node, np.zeros(0)).tobytes(),
            *(self.kinds.of_state[self.kinds.nodes[t] + k].tobytes() for k in (0, 1)),
        )
        if key not in self._made:
            self._made[key] = self.kinds.blocks(self.kinds.nodes[t])
        return self._made[key]

    def push(self, x: Array, t: int) -> Array:
        """Σ_a x(a) K_t(a, b), x (…, vectors)."""
        return self._applied(x, t, t + 1, lambda block: block)

    def pull(self, x: Array, t: int) -> Array:
        """Σ_b K_t(a, b) x(b), x (…, vectors)."""
        return self._applied(x, t + 1, t, np.transpose)

    def _applied(self, x: Array, origin: int, dest: int, turned: Any) -> Array:
        """Multiply by K of each kind along its axis."""
        before, after = self.spaces[origin], self.spaces[dest]
        lead = x.shape[:-1]
        table = x.reshape(-1, *before.shape)
        for g, blocks in enumerate(self.blocks(min(origin, dest))):
            moved = np.moveaxis(table, g + 1, -1)
            made = np.empty((*moved.shape[:-1], after.shape[g]))
            for k, block in enumerate(blocks):
                made[..., after.parts[g].blocks[k]] = moved[..., before.parts[g].blocks[k]] @ turned(block)
            table = np.moveaxis(made, -1, g + 1)
        return table.reshape(*lead, -1)

    def into(self, t: int, b: int) -> Array:
        """K_t(a, b) of one b as a function of a."""
        places = np.unravel_index(b, self.spaces[t + 1].shape)
        column = np.ones(1)
        for g, blocks in enumerate(self.blocks(t)):
            here, there = self.spaces[t].parts[g], self.spaces[t + 1].parts[g]
            own = np.zeros(len(here.counts))
            for k, block in enumerate(blocks):
                if there.blocks[k].start <= places[g] < there.blocks[k].stop:
                    own[here.blocks[k]] = block[:, places[g] - there.blocks[k].start]
            column = np.outer(column, own).ravel()
        return column


@dataclass(frozen=True, eq=False)
class Asked:
    """A scope as the recursion sees it: functions of the counts of node number ``begin``, or (``flow``) moves from there to the next."""

    begin: int
    flow: bool
    rows: Counts | None = None
    """The functions, (vectors, entries); of flows none."""

    @property
    def end(self) -> int:
        """The last node that it reads."""
        return self.begin + self.flow


@dataclass(frozen=True, eq=False)
class CountStateBeliefs(ExactBeliefs):
    """Forward and backward messages over count vectors: alpha_t sums to 1, and so does alpha_t beta_t."""

    model: Model
    population: int
    steps: Steps
    forward: tuple[Array, ...]
    backward: tuple[Array, ...]
    seen: tuple[Array, ...]
    """l_t / its scale: alpha_{t+1} = seen_{t+1} (alpha_t K_t)."""
    log_evidence: float | None = None
    diagnostics: Mapping[str, Any] = field(default_factory=dict)

    def node_law(self, t: int) -> Array:
        """P(n_t = a | y) over count vectors."""
        return self.forward[t] * self.backward[t]

    def _asked(self, scope: Scope) -> Asked:
        """Where a scope is."""
        kinds = self.steps.kinds
        place, skipped = kinds.tree.place(scope), kinds.nodes[0]
        if place.edge and place.node in kinds.between:
            t = kinds.between[place.node] - skipped
            return Asked(t, flow=False, rows=self.steps.spaces[t].counts)
        t = kinds.seats[place.node] - skipped
        if t < 0:
            return Asked(0, flow=False, rows=self.steps.spaces[0].numbers)
        space = self.steps.spaces[t]
        if place.edge and t == 0:  # from the kinds to their first states
            mine = space.kinds == np.arange(len(kinds.laws))[:, None]
            return Asked(0, flow=False, rows=(space.counts[:, None, :] * mine).reshape(len(space.counts), -1))
        return Asked(t - 1, flow=True) if place.edge else Asked(t, flow=False, rows=space.counts)

    def mean(self, scope: Scope) -> Array:
        """Exact posterior mean of a node or a flow table."""
        asked, place = self._asked(scope), self.steps.kinds.tree.place(scope)
        flat = (
            self._mean_flows(asked.begin) if asked.rows is None else self.node_law(asked.begin) @ asked.rows
        )
        return np.asarray(place.turn(flat.reshape(place.shape)))

    def variance(self, scope: Scope) -> Array:
        """Exact posterior variance."""
        asked, place = self._asked(scope), self.steps.kinds.tree.place(scope)
        if asked.rows is None:
            moves = np.arange(prod(place.shape))
            squares = self._two_moves(asked.begin, moves, moves).reshape(place.shape)
            rounded = squares - self._mean_flows(asked.begin) ** 2
            return np.asarray(place.turn(np.maximum(rounded, 0.0)))  # a variance; below zero is rounding
        law = self.node_law(asked.begin)
        flat = law @ np.square(asked.rows - law @ asked.rows)
        return np.asarray(place.turn(flat.reshape(place.shape)))

    def covariance(self, a: Scope, b: Scope) -> Array:
        """Exact posterior covariance between any two nodes or flow tables."""
        first, second = self._asked(a), self._asked(b)
        same_flow = first.flow and second.flow and first.begin == second.begin
        if second.begin < first.end and not same_flow:
            return self.covariance(b, a).T
        joint = self._all_moves(first.begin) if same_flow else self._products(first, second)
        places = (self.steps.kinds.tree.place(scope) for scope in (a, b))
        return to_scopes(joint, *places) - np.outer(self.mean(a), self.mean(b))

    def pair_covariance(self, scope: Scope, first: Index, second: Index) -> Array:
        """Exact; of flows by these pairs alone."""
        asked, place = self._asked(scope), self.steps.kinds.tree.place(scope)
        if asked.rows is not None:
            return super().pair_covariance(scope, first, second)
        mean, entries = self._mean_flows(asked.begin).ravel(), place.to_scope(np.arange(prod(place.shape)))
        one, two = entries[first], entries[second]
        return self._two_moves(asked.begin, one, two) - mean[one] * mean[two]

    def count_law(self, scope: Scope) -> tuple[Counts, Array] | None:
        """Of node counts; None for flows."""
        asked, place = self._asked(scope), self.steps.kinds.tree.place(scope)
        if asked.rows is None:
            return None
        shape = (len(asked.rows), *self.mean(scope).shape)
        rows = place.to_scope(np.asarray(asked.rows)).reshape(shape)
        return law_of_counts(rows, self.node_law(asked.begin))

    def law_of_sum(self, scope: Scope, weights: Array) -> Sizes | None:
        """By the vectors' probabilities; None for flows."""
        asked, place = self._asked(scope), self.steps.kinds.tree.place(scope)
        if asked.rows is None:
            return None
        return law_of_sums(place.to_scope(np.asarray(asked.rows)) @ weights, self.node_law(asked.begin))

    def draw_states(self, size: int, rng: np.random.Generator) -> Counts:
        """Indices of count vectors, (draws, nodes), drawn backwards in time."""
        last = len(self.forward) - 1
        states = np.empty((size, last + 1), dtype=np.int64)
        for d in range(size):
            states[d, last] = rng.choice(
                len(self.forward[last]), p=self.forward[last] / self.forward[last].sum()
            )
            for t in range(last - 1, -1, -1):
                weights = self.forward[t] * self.steps.into(t, int(states[d, t + 1]))
                states[d, t] = rng.choice(len(weights), p=weights / weights.sum())
        return states

    def drawn_table(self, scope: Scope, states: Counts, rng: np.random.Generator) -> Array:
        """Node counts as drawn; flows are drawn given their two margins."""
        asked, place = self._asked(scope), self.steps.kinds.tree.place(scope)
        if asked.rows is not None:
            rows = asked.rows[states[:, asked.begin]].astype(float)
            return np.asarray(place.turn(rows.reshape(len(states), *place.shape)))
        t, law = asked.begin, self.steps.law(asked.begin)
        here, there = self.steps.spaces[t], self.steps.spaces[t + 1]
        drawn = np.zeros((len(states), *law.shape))
        for g in range(len(here.parts)):
            rows, columns = np.flatnonzero(here.kinds == g), np.flatnonzero(there.kinds == g)
            own = law[np.ix_(rows, columns)]
            before, after = here.counts[states[:, t]][:, rows], there.counts[states[:, t + 1]][:, columns]
            tables = [split_flows(own, a, b, rng=rng) for a, b in zip(before, after, strict=True)]
            drawn[np.ix_(np.arange(len(states)), rows, columns)] = tables
        return np.asarray(place.turn(drawn))

    def _pairs(self, t: int) -> list[tuple[int, int]]:
        """The moves from node number t that are possible."""
        return [(int(i), int(j)) for i, j in zip(*np.nonzero(self.steps.law(t)), strict=True)]

    def _flow(self, left: Array, t: int) -> Array:
        """Σ_{a,b} left(a) E[n_ij | a, b] K(a, b) l(b) beta(b) for every row of `left`: (rows, states, states)."""
        law, here, there = self.steps.law(t), self.steps.spaces[t], self.steps.spaces[t + 1]
        right = self.seen[t + 1] * self.backward[t + 1]
        after = [self.steps.pull(there.without(right, j), t) for j in range(law.shape[1])]
        before = [here.without(left * here.counts[:, i], i) for i in range(law.shape[0])]
        out = np.zeros((len(left), *law.shape))
        for i, j in self._pairs(t):
            out[:, i, j] = law[i, j] * (before[i] @ after[j])
        return out

    def _mean_flows(self, t: int) -> Array:
        """E[n_ij | y] from node number t to the next, (states, states)."""
        if t not in self._kept_flows:
            self._kept_flows[t] = self._flow(self.forward[t][None], t)[0]
        return self._kept_flows[t]

    @cached_property
    def _kept_flows(self) -> dict[int, Array]:
        return {}

    def _two_moves(self, t: int, first: Index, second: Index) -> Array:
        """E[n_m n_k | y] of pairs of moves (m, k) from node number t, by flat position: of two individuals, and of one where m = k."""
        law, here, there = self.steps.law(t), self.steps.spaces[t], self.steps.spaces[t + 1]
        right = self.seen[t + 1] * self.backward[t + 1]

        @lru_cache(maxsize=max(KEPT // len(self.forward[t]), 1))
        def left(i: int, k: int) -> Array:
            one = here.without(self.forward[t] * here.counts[:, i], i)
            return here.without(one * here.counts[:, k], k)

        origins, ends = (np.sort(pair, axis=0) for pair in np.divmod([first, second], law.shape[1]))
        chance = law.ravel()[first] * law.ravel()[second]
        found = np.where(first == second, self._mean_flows(t).ravel()[first], 0.0)
        for j, l in np.unique(ends[:, chance > 0], axis=1).T:
            after = self.steps.pull(there.without(there.without(right, j), l), t)
            for pair in np.flatnonzero((ends[0] == j) & (ends[1] == l) & (chance > 0)):
                found[pair] += chance[pair] * (left(*origins[:, pair]) @ after)
        return found

    def _all_moves(self, t: int) -> Array:
        """E[n_m n_k | y] of all pairs, (moves, moves)."""
        size = self.steps.law(t).size
        found = np.zeros((size, size))
        upper = np.triu_indices(size)
        found[upper] = found.T[upper] = self._two_moves(t, *upper)
        return found

    def _products(self, first: Asked, second: Asked) -> Array:
        """E[n_A n_B | y] of an earlier scope A and a later scope B."""
        left = (
            self._flow_ahead(first.begin) if first.rows is None else self.forward[first.begin] * first.rows.T
        )
        for t in range(first.end, second.begin):
            left = self.seen[t + 1] * self.steps.push(left, t)
        if second.rows is None:
            return self._flow(left, second.begin).reshape(len(left), -1)
        return np.asarray((left * self.backward[second.begin]) @ second.rows)

    def _flow_ahead(self, t: int) -> Array:
        """Σ_a alpha(a) E[n_ij | a, b] K(a, b) l(b) as a function of b: (flows, count vectors)."""
        law, here, there = self.steps.law(t), self.steps.spaces[t], self.steps.spaces[t + 1]
        out = np.zeros((*law.shape, len(self.forward[t + 1])))
        for i in range(law.shape[0]):
            reached = self.steps.push(here.without(self.forward[t] * here.counts[:, i], i), t)
            for j in range(law.shape[1]):
                out[i, j] = law[i, j] * there.with_one(reached, j)
        return out.reshape(law.size, -1) * self.seen[t + 1]


def count_state_beliefs(
    problem: ClosedProblem, windows: Sequence[SizeWindow] | None = None
) -> CountStateBeliefs:
    """Exact posterior and evidence of a chain with observed nodes and flows; any length, any noise.

    Raises
    ------
    ProblemError
        When the problem is not such a chain, is too large, or no counts agree with the data.
    """
    windows = first_windows(problem, np.random.default_rng(0)) if windows is None else windows
    misfit = count_states_fit(problem, windows)
    if misfit is not None:
        raise ProblemError(f"the exact recursion over count states does not fit: {misfit}")
    kinds = Kinds.of(problem, windows)
    steps = Steps(kinds)
    beliefs = CountStateBeliefs(problem.model, sum(w.high for w in windows), steps, (), (), ())
    logs = [np.zeros(prod(space.shape)) for space in steps.spaces]
    for site in problem.sites:
        asked, place = beliefs._asked(site.scope), kinds.tree.place(site.scope)
        assert asked.rows is not None
        logs[asked.begin] = logs[asked.begin] + log_likelihood(site, place.to_scope(np.asarray(asked.rows)))
    updates: list[tuple[Array, Array, float]] = []
    before = kinds.log_first(steps.spaces[0])
    for t, seen in enumerate(logs):
        if t > 0:
            with np.errstate(divide="ignore"):
                before = np.log(steps.push(updates[-1][0], t - 1))
        updates.append(_update(before, seen, kinds.chain, kinds.nodes[t]))
    forward, scaled, scales = zip(*updates, strict=True)
    backward = [np.ones(len(logs[-1]))]
    for t in range(len(logs) - 2, -1, -1):
        backward.insert(0, steps.pull(scaled[t + 1] * backward[0], t))
    found = {"count_vectors": max(map(len, logs))}
    return CountStateBeliefs(
        problem.model, beliefs.population, steps, forward, tuple(backward), scaled, float(sum(scales)), found
    )


def _update(before: Array, seen: Array, rooted: RootedTree, t: int) -> tuple[Array, Array, float]:
    """Bayes' rule at time t, from logarithms: alpha_t, l_t / its scale, and the log of the scale."""
    joint = np.where(before > -np.inf, before + seen, -np.inf)
    top = joint.max()
    if top == -np.inf:
        raise NoPopulationError(
            f"no counts of a probability above 1e-300 agree with the data up to {rooted.variables[t]!r}: check the exact counts and "
            "the model's zeros"
        )
    weights = np.exp(joint - top)
    scale = top + np.log(weights.sum())
    lost = seen[before < -LARGEST_LOG] > scale + LARGEST_LOG - ROUNDED
    # Where the model has zeros, it may be the model that forbids these counts.
    if t > 0 and lost.any() and (dense(rooted.transitions[t]) > 0).all():
        raise ProblemError(
            f"the data at {rooted.variables[t]!r} are so improbable under the model and the data before them (below 1e-300) that "
            "double precision cannot follow: check both, or use PathGibbs"
        )
    ratio = np.exp(np.minimum(np.where(joint > -np.inf, seen, -np.inf) - scale, LARGEST_LOG))
    return weights / weights.sum(), ratio, float(scale)


def split_flows(law: Array, rows: Counts, columns: Counts, *, rng: np.random.Generator) -> Counts:
    """An exact draw of one flow table given its margins, P(n_ij | n_u, n_v) ∝ Π P(i, j)^n_ij / n_ij!, row by row."""
    out = np.zeros(law.shape, dtype=np.int64)
    left = columns.copy()
    for i in range(len(rows) - 1):
        options = _rows(int(rows[i]), left)
        log_weight = log_row(options, law[i]) + _log_rest(law[i + 1 :], rows[i + 1 :], left - options)
        weight = np.exp(log_weight - log_weight.max())
        out[i] = options[rng.choice(len(options), p=weight / weight.sum())]
        left = left - out[i]
    out[-1] = left
    return out


def _rows(total: int, most: Counts) -> Counts:
    """All rows of counts with the given total, no entry above `most`."""
    if len(most) == 1:
        return np.full((1, 1), total)
    grids = np.meshgrid(*(np.arange(m + 1) for m in most[:-1]), indexing="ij")
    head = np.stack([g.ravel() for g in grids], axis=1)
    tail = total - head.sum(axis=1)
    kept = (tail >= 0) & (tail <= most[-1])
    return np.concatenate([head[kept], tail[kept, None]], axis=1)


def _log_rest(law: Array, rows: Counts, left: Counts) -> Array:
    """log of the total weight of the remaining rows, for every possible remainder of the columns."""
    if len(rows) == 1:
        return log_row(left, law[0])
    out = np.empty(len(left))
    for k, columns in enumerate(left):
        options = _rows(int(rows[0]), columns)
        out[k] = log_sum(log_row(options, law[0]) + _log_rest(law[1:], rows[1:], columns - options))
    return out
