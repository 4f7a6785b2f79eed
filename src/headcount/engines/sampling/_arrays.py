"""From a ClosedProblem to the plain arrays that the kernels read and write, gathered in named tuples (numba passes those without boxing).

Nodes are numbered in preorder, so the subtree below node v is the range v … end[v] − 1. The cells of all nodes lie one
after the other (node v starts at `node_start[v]`), and so do the entries of all edge tables (edge parent(v) → v, row by
row, starts at `edge_start[v]`; the root has none). An observed total is a *slot*; a cell or entry may feed several slots,
and a slot may be fed by several cells of one table.

A unit that stands for w individuals changes a total by w, with the ratio l(k + w)/l(k) = Π_j l(k + j + 1)/l(k + j), j < w. So a total of
units of different weight has one slot per j, all with its count k, whose ratios are those at k + j: such a unit *feeds* the first w of
them (their ratios are multiplied), and *shifts* the counts of all of them by w.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from headcount import memory
from headcount._types import Array, Index
from headcount.individual import RootedTree
from headcount.observe import SIZES, Poisson, ProblemError
from headcount.tables import Domain, Scope, dense

if TYPE_CHECKING:
    from headcount.observe import ClosedProblem, Site

LIMIT = 200.0
"""Log-ratios are kept within ±LIMIT: e^−200 is far below the resolution of a double, e^±200 squared is still one."""
TABLE_ENTRIES = 8_000_000
"""Ratio tables up to this size (64 MB) are filled for every noise; above it Poisson is evaluated in closed form."""
BLOCK = 2_000_000
"""Log-likelihoods evaluated at once (16 MB per temporary array)."""
MOST_WEIGHT = 100
"""Individuals that a unit may stand for, where units of different weight are counted together: a slot for each."""


class TreeArrays(NamedTuple):
    """The individual's tree: shape and probabilities."""

    sizes: np.ndarray  # (V,) states of each node
    parent: np.ndarray  # (V,) −1 for the root
    end: np.ndarray  # (V,) one past the last node of the subtree
    child_start: np.ndarray  # (V + 1,)
    children: np.ndarray  # (V − 1,)
    node_start: np.ndarray  # (V + 1,)
    edge_start: np.ndarray  # (V + 1,)
    law_start: np.ndarray  # (V,) where the transition of v lies in `law`; nodes may share one
    law: np.ndarray  # transitions, row by row: law[law_start[v] + i * L_v + j] = P(x_v = j | x_parent = i)
    law_turned: np.ndarray  # the same, column by column: law_turned[law_start[v] + j * L_parent + i]
    initial: np.ndarray  # (L_root,)


class SlotArrays(NamedTuple):
    """The observed totals: which cells feed them and the likelihood ratio l(y | k + 1) / l(y | k) of each."""

    node_mode: np.ndarray  # (V,) 0: not observed; 1: at most one slot per cell, one cell per slot; 2: sums
    node_first: np.ndarray  # (cells + 1,) CSR over cells: the slots whose ratios a unit there multiplies
    node_slot: np.ndarray
    edge_mode: np.ndarray  # (V,) 0 or 2
    edge_first: np.ndarray  # (entries + 1,) CSR over entries; (1,) when no edge is observed
    edge_slot: np.ndarray
    node_shift_first: np.ndarray  # the same of the slots whose counts it shifts, each as often as it counts
    node_shift: np.ndarray
    edge_shift_first: np.ndarray
    edge_shift: np.ndarray
    # (slots, 5): 1 when the ratio is Poisson's closed form (else 0), y, lambda, lambda_0, table start
    law: np.ndarray
    table: np.ndarray  # the other slots' ratios for k = 0 … N, one slot after the other
    total: (
        np.ndarray
    )  # (slots,) the observed total that each slot is of; the first slots are the totals themselves


class PathState(NamedTuple):
    """Where one chain of the path sampler stands."""

    path: np.ndarray  # (V, N) int16: the state of every individual at every node
    node_count: np.ndarray  # (cells,)
    node_ratio: np.ndarray  # (cells,) l(y | n + 1) / l(y | n) of what each cell feeds; 1 where nothing
    slot_count: np.ndarray  # (slots,)
    slot_ratio: np.ndarray  # (slots,)
    random: np.ndarray  # (4,) uint64
    stop: np.ndarray  # (1,) not zero: give up (shared by all chains of a run)


class Proposal(NamedTuple):
    """A Markov tree that whole paths are proposed from, and its ratio to the model."""

    accept: np.ndarray  # alias tables, rows as in the edge tables (root's row first)
    alias: np.ndarray
    start: np.ndarray  # (V,)
    weight: np.ndarray  # P / q, same layout


class BatchSums(NamedTuple):
    """Sums over the sweeps (or moves) of one batch."""

    node: np.ndarray  # of n
    node_square: np.ndarray  # of n²
    edge: np.ndarray
    edge_square: np.ndarray
    # of one individual's exact marginals given the others; the table sampler has none
    node_smooth: np.ndarray
    edge_smooth: np.ndarray
    # (3,) paths redrawn exactly (of the table sampler: moves that had a choice), paths proposed, proposals accepted
    tally: np.ndarray


@dataclass(frozen=True, eq=False)
class SamplingArrays:
    """A problem on a rooted tree, as arrays: nodes in preorder, tables flat, observed totals as slots."""

    rooted: RootedTree
    """The tree with its nodes in preorder."""
    cliques: tuple[Scope, ...]
    tree: TreeArrays
    slots: SlotArrays
    sites: tuple[Site, ...]
    population: int
    rho: tuple[NDArray[np.float64], ...] | None = None
    """Intra-class correlation of every row of every node's transition (the root's first); None where rows do not vary."""
    twins: NDArray[np.int64] | None = None
    """(cells, members) which state of its node is the same of another member's individuals, −1 where they have none; None where the root
    does not say whose member an individual is."""

    @property
    def cells(self) -> int:
        """The number of cells of all nodes."""
        return int(self.tree.node_start[-1])

    @property
    def entries(self) -> int:
        """The number of entries of all edge tables."""
        return int(self.tree.edge_start[-1])

    def node(self, v: int) -> slice:
        """Where the cells of node v lie."""
        return slice(int(self.tree.node_start[v]), int(self.tree.node_start[v + 1]))

    def edge(self, v: int) -> slice:
        """Where the table of the edge above node v lies."""
        return slice(int(self.tree.edge_start[v]), int(self.tree.edge_start[v + 1]))

    def pick(self, scope: Scope, node: NDArray[Any], edge: NDArray[Any]) -> NDArray[Any]:
        """The table of a scope out of flat arrays of nodes and of edges; leading axes are kept."""
        place = self.rooted.place(scope)
        if not place.edge:
            return node[..., self.node(place.node)]
        table = edge[..., self.edge(place.node)].reshape(*edge.shape[:-1], *place.shape)
        return np.asarray(place.turn(table))

    def transition(self, v: int) -> NDArray[np.float64]:
        """P(x_v | x_parent) of the node v, dense."""
        return np.asarray(dense(self.rooted.transitions[v]), dtype=float)

    @cached_property
    def blocks(self) -> list[tuple[Index, Index]]:
        """Per node, the blocks into which its step falls apart: of the parent's states and of its own; at the root, of the whole graph."""
        starts, parents = self.tree.node_start, self.rooted.parents
        steps = {v: coo_array(self.rooted.transitions[v]) for v in range(1, len(parents))}
        rows = [steps[v].row + starts[parents[v]] for v in steps]
        columns = [steps[v].col + starts[v] for v in steps]
        graph = _joined(np.concatenate([[], *rows]), np.concatenate([[], *columns]), self.cells)
        root = graph[self.node(0)]
        made = [(root, root)]
        for step in steps.values():
            above, own = step.shape
            labels = _joined(step.row, step.col + above, above + own)
            made.append((labels[:above], labels[above:]))
        return made

    @cached_property
    def feeds(self) -> list[tuple[Index, Array]]:
        """Per node, the slots that its cells feed, and which cell feeds which, 0 or 1, shape (cells, slots)."""
        made = []
        for v in range(len(self.tree.sizes)):
            first = self.slots.node_first[self.node(v).start : self.node(v).stop + 1]
            cell = np.repeat(np.arange(len(first) - 1), np.diff(first))
            fed, which = np.unique(self.slots.node_slot[first[0] : first[-1]], return_inverse=True)
            table = np.zeros((len(first) - 1, len(fed)))
            table[cell, which] = 1.0
            made.append((fed, table))
        return made

    def node_counts(self, v: int) -> NDArray[np.float64]:
        """What exact observations say of node v: every cell's count, what is left to N in the one cell that was not seen."""
        counts = np.full(int(self.tree.sizes[v]), np.nan)
        for site in self.sites:
            exact = len(site.scope) == 1 and site.noise.exact and site.index is not None
            if exact and self.rooted.place(site.scope).node == v:
                counts[site.index] = site.noise.counts
        return np.where(np.isnan(counts), max(self.population - float(np.nansum(counts)), 0.0), counts)

    @property
    def weighted(self) -> bool:
        """Whether units of different weight are counted together."""
        return len(self.slots.total) > sum(len(site) for site in self.sites)

    def impossible(self, slot_count: NDArray[np.int64]) -> list[str]:
        """The names of observed totals that have probability zero at these counts."""
        bad: list[str] = []
        start = 0
        for site in self.sites:
            counts = slot_count[start : start + len(site)].astype(float)
            with np.errstate(all="ignore"):
                off = ~(site.noise.log_prob(counts) > -np.inf)
            bad += [f"{site.names[int(k)]} = {site.noise.counts[k]:g}" for k in np.flatnonzero(off)]
            start += len(site)
        return bad


def _joined(rows: Any, columns: Any, size: int) -> Index:
    """The connected part of a graph to which every vertex belongs."""
    graph = coo_array(
        (np.ones(len(rows)), (rows.astype(np.intp), columns.astype(np.intp))), shape=(size, size)
    )
    return np.asarray(connected_components(graph, directed=False)[1])


def sampling_arrays(problem: ClosedProblem, *, engine: str, weights: bool = True) -> SamplingArrays:
    """The arrays of a problem, or one `ProblemError` that says all that keeps `engine` from taking it; not all know ``weights``."""
    rooted = problem.model.rooted()
    if rooted is None:
        raise ProblemError(
            f"{engine} samples individuals on a chain or a tree, and this model's graph is neither: use Enumerate (tiny), or MAP"
        )
    correlated = [site.names[0] for site in problem.sites if site.noise.correlated]
    if correlated:
        raise ProblemError(
            f"{engine} needs independent errors, and {name} is seen with correlated ones: give their variances only, or use ClosedForm"
            for name in correlated
        )
    most = MOST_WEIGHT if weights else 1
    weighted = [site.names[0] for site in problem.sites if not _countable(site, most)]
    if weighted:
        raise ProblemError(
            f"{engine} counts units that stand for whole numbers of individuals up to {most}, and {name} counts others: use TiltedEP"
            for name in weighted
        )
    rooted = _preorder(rooted)
    rho = problem.together.row_correlations(rooted)
    rooted = rooted if rho is None else _with_own_rows(rooted)
    tree, sites, population = _tree_arrays(rooted), tuple(problem.sites), int(problem.population)
    return SamplingArrays(
        rooted,
        cliques=tuple(map(tuple, problem.model.junction_tree.cliques)),
        tree=tree,
        slots=_slot_arrays(rooted, tree, sites, population, engine),
        sites=sites,
        population=population,
        rho=rho,
        twins=_twins(problem, rooted),
    )


def _countable(site: Site, most: int) -> bool:
    """Whether every weight of a site is a whole number from 0 to ``most``."""
    data = np.zeros(0) if site.weights is None else site.weights.data
    return bool(((data == np.rint(data)) & (data >= 0) & (data <= most)).all())


def _twins(problem: ClosedProblem, rooted: RootedTree) -> NDArray[np.int64] | None:
    """See `SamplingArrays.twins`; a cloud's states have labels (member, state of its model)."""
    if rooted.variables[0] != SIZES:
        return None
    members = range(rooted.sizes[0])
    found = [np.tile(np.arange(len(members)), (len(members), 1))]
    for v in rooted.variables[1:]:
        labels: Any = problem.model.states[v]
        at = {label: x for x, label in enumerate(labels)}
        found.append(np.array([[at.get((g, state), -1) for g in members] for _, state in labels]))
    return np.concatenate(found).astype(np.int64)


def _with_own_rows(rooted: RootedTree) -> RootedTree:
    """The same tree with an array of its own for every step, whose rows can be redrawn."""
    own = [np.array(dense(step), dtype=float) for step in rooted.transitions[1:]]
    return rooted.with_law(rooted.initial, (None, *own))


def row_kappa(rho: Array, rows: int) -> Array:
    """1/rho − 1 by row; 0 where rows do not vary."""
    made = np.broadcast_to(np.asarray(rho, dtype=float), (rows,))
    return np.where(made > 0, 1.0 / np.where(made > 0, made, 1.0) - 1.0, 0.0)


def _preorder(rooted: RootedTree) -> RootedTree:
    """The same tree, its nodes numbered so that every subtree is a contiguous range."""
    children: list[list[int]] = [[] for _ in rooted.variables]
    for v in range(1, len(children)):
        children[rooted.parents[v]].append(v)
    order, stack = [], [0]
    while stack:
        v = stack.pop()
        order.append(v)
        stack.extend(reversed(children[v]))
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.arange(len(order))
    return RootedTree(
        variables=tuple(rooted.variables[k] for k in order),
        parent=np.array([-1, *(place[rooted.parents[k]] for k in order[1:])], dtype=np.intp),
        initial=rooted.initial,
        transitions=tuple(rooted.transitions[k] for k in order),
    )


def _tree_arrays(rooted: RootedTree) -> TreeArrays:
    """Shape and probabilities; transitions that are one and the same array are stored once."""
    nodes, parent = len(rooted.variables), np.asarray(rooted.parent, dtype=np.int64)
    sizes = np.array(rooted.sizes, dtype=np.int64)
    if sizes.max() > np.iinfo(np.int16).max:
        raise ProblemError(
            [f"{sizes.max()} states in one variable: the samplers store states in 16 bits; use MAP"]
        )
    end = np.arange(1, nodes + 1, dtype=np.int64)
    for v in range(nodes - 1, 0, -1):
        end[parent[v]] = max(end[parent[v]], end[v])
    children = np.argsort(parent, kind="stable")[1:]
    law_start, law, law_turned = _laws(rooted)
    return TreeArrays(
        sizes=sizes,
        parent=parent,
        end=end,
        child_start=_starts(np.bincount(parent[1:], minlength=nodes)),
        children=children.astype(np.int64),
        node_start=_starts(sizes),
        edge_start=_starts(np.concatenate(([0], sizes[parent[1:]] * sizes[1:]))),
        law_start=law_start,
        law=law,
        law_turned=law_turned,
        initial=np.array(rooted.initial, dtype=float),
    )


def _starts(sizes: NDArray[Any] | Sequence[int]) -> NDArray[np.int64]:
    """Where each of several consecutive blocks starts; the last element is the end."""
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)


def _laws(rooted: RootedTree) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Where each node's transition starts, all distinct transitions row by row, and column by column."""
    distinct = {id(matrix): matrix for matrix in rooted.transitions[1:]}
    laws = [np.asarray(dense(matrix), dtype=float) for matrix in distinct.values()]
    begins = dict(zip(distinct, _starts([law.size for law in laws]), strict=False))
    start = np.array([0, *(begins[id(matrix)] for matrix in rooted.transitions[1:])], dtype=np.int64)
    empty = np.zeros(0)  # a model of one node has no transitions
    rows, columns = [p.ravel() for p in laws], [p.T.ravel() for p in laws]
    return start, np.concatenate([empty, *rows]), np.concatenate([empty, *columns])


def _slot_arrays(
    rooted: RootedTree, tree: TreeArrays, sites: tuple[Site, ...], population: int, engine: str
) -> SlotArrays:
    """Slots numbered site by site, each with the flat cells or entries that feed it."""
    total = sum(len(site) for site in sites)
    heaviest = _heaviest(sites, total)
    feeds: dict[bool, list[NDArray[np.int64]]] = {False: [], True: []}  # by whether they are of an edge
    shifts: dict[bool, list[NDArray[np.int64]]] = {False: [], True: []}
    modes = {
        False: np.zeros(len(rooted.variables), np.int64),
        True: np.zeros(len(rooted.variables), np.int64),
    }
    first = 0
    for site in sites:
        place, (entry, slot, weight) = rooted.place(site.scope), _feeds(rooted, site)
        entry = entry + (tree.edge_start if place.edge else tree.node_start)[place.node]
        feeds[place.edge].append(_repeated(entry, slot + first, weight, heaviest))
        shifts[place.edge].append(_shifted(entry, slot + first, weight, heaviest))
        modes[place.edge][place.node] = 2
        first += len(site)
    node, node_shift = (_by_entry(pairs[False], int(tree.node_start[-1])) for pairs in (feeds, shifts))
    # Without observed edges one number says so, and large edge tables cost nothing.
    entries = int(tree.edge_start[-1]) if feeds[True] else 0
    edge, edge_shift = (_by_entry(pairs[True], entries) for pairs in (feeds, shifts))
    of_total = np.concatenate([np.arange(total), np.repeat(np.arange(total), heaviest.most - 1)]).astype(
        np.int64
    )
    _mark_simple(tree, modes[False], *node, len(of_total))
    law, table = _ratios(sites, population * int(heaviest.most.max(initial=1)), total, engine)
    later = np.arange(total, len(of_total)) - heaviest.start[of_total[total:]] + 1
    more = law[of_total[total:]]
    # Ratios at k + j: further on in the table, or with the rate of j individuals more.
    more[:, 4] += np.where(more[:, 0] == 0, later, 0)
    more[:, 3] += np.where(more[:, 0] == 1, more[:, 2] * later, 0.0)
    laws = np.concatenate([law, more])
    return SlotArrays(
        modes[False], *node, modes[True], *edge, *node_shift, *edge_shift, laws, table, of_total
    )


class Heaviest(NamedTuple):
    """The largest weight of a unit in every observed total, and where its further slots begin."""

    most: NDArray[np.int64]
    start: NDArray[np.int64]


def _heaviest(sites: tuple[Site, ...], total: int) -> Heaviest:
    """Of all totals, site by site."""
    parts = [
        np.ones(len(site), np.int64)
        if site.weights is None
        else np.maximum(np.rint(site.weights.max(axis=1).toarray().ravel()), 1).astype(np.int64)
        for site in sites
    ]
    most = np.concatenate([np.zeros(0, np.int64), *parts])
    return Heaviest(most, total + _starts(most - 1)[:-1])


def _repeated(entry: Index, slot: Index, weight: Index, heaviest: Heaviest) -> NDArray[np.int64]:
    """Pairs (entry, slot) of the first ``weight`` slots of a total."""
    which = np.repeat(np.arange(len(entry)), weight)
    j = np.arange(len(which)) - np.repeat(np.cumsum(weight) - weight, weight)
    own = slot[which]
    return np.stack([entry[which], np.where(j == 0, own, heaviest.start[own] + j - 1)], axis=1).astype(
        np.int64
    )


def _shifted(entry: Index, slot: Index, weight: Index, heaviest: Heaviest) -> NDArray[np.int64]:
    """Pairs (entry, slot) of all slots of a total, each ``weight`` times."""
    most = heaviest.most[slot]
    every = _repeated(entry, slot, most, heaviest)
    return np.repeat(every, np.repeat(weight, most), axis=0)


def _feeds(rooted: RootedTree, site: Site) -> tuple[Index, Index, Index]:
    """Flat cells of the node, or entries of the edge's table, that count in a site; the slot within the site; and the weight."""
    if site.index is not None:
        entry, slot = np.asarray(site.index, dtype=np.int64), np.arange(len(site))
        weight = np.ones(len(site), np.int64)
    else:
        weights = site.weights.tocoo()  # type: ignore[union-attr]
        kept = weights.data != 0
        slot, entry = weights.coords[0][kept].astype(np.int64), weights.coords[1][kept].astype(np.int64)
        weight = np.rint(weights.data[kept]).astype(np.int64)
    place = rooted.place(site.scope)
    if place.turned:
        domain = Domain(site.scope, place.shape[::-1])
        entry = domain.positions(site.scope[::-1])[entry]
    return entry, slot, weight


def _by_entry(pairs: list[NDArray[np.int64]], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Compressed rows: which slots each cell or entry feeds."""
    both = np.concatenate(pairs) if pairs else np.zeros((0, 2), dtype=np.int64)
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    return _starts(np.bincount(both[:, 0], minlength=size)), np.ascontiguousarray(both[:, 1])


def _mark_simple(
    tree: TreeArrays,
    mode: NDArray[np.int64],
    first: NDArray[np.int64],
    slot: NDArray[np.int64],
    total: int,
) -> None:
    """Mode 1 for the nodes whose cells feed at most one slot each, and whose slots have one cell each."""
    feeders = np.bincount(slot, minlength=total)
    for v in np.flatnonzero(mode):
        start, end = tree.node_start[v], tree.node_start[v + 1]
        span = slice(first[start], first[end])
        if np.diff(first[start : end + 1]).max() <= 1 and feeders[slot[span]].max() <= 1:
            mode[v] = 1


def _ratios(
    sites: tuple[Site, ...], population: int, total: int, engine: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Poisson's parameters, and tables of l(y | k + 1) / l(y | k), k = 0 … N, for what is not in closed form."""
    law, first = np.zeros((total, 5)), 0
    in_tables = [
        s for s in sites if not isinstance(s.noise, Poisson) or total * (population + 1) <= TABLE_ENTRIES
    ]
    rows = sum(len(site) for site in in_tables)
    memory.require(
        8 * rows * (population + 1),
        f"{engine}, likelihood tables of {rows} counts for N = {population}:",
        remedy="use TiltedEP or MAP",
    )
    table, filled = np.empty(rows * (population + 1)), 0
    for site in sites:
        span = slice(first, first + len(site))
        if any(site is other for other in in_tables):
            block = np.exp(log_ratios(site.noise, population)).T
            law[span, 4] = filled + np.arange(len(site)) * (population + 1)
            table[filled : filled + block.size] = block.ravel()
            filled += block.size
        else:
            law[span, 0] = 1.0
            law[span, 1] = site.noise.counts
            law[span, 2] = site.noise.rate  # type: ignore[attr-defined]
            law[span, 3] = site.noise.background  # type: ignore[attr-defined]
        first = span.stop
    return law, table


def log_ratios(noise: Any, population: int) -> NDArray[np.float64]:
    """log l(y | k + 1) − log l(y | k) for k = 0 … N, shape (N + 1, K), within ±LIMIT.

    Where both are impossible the ratio points to the nearest possible count: up below the first, down above the last.
    """
    blocks = []
    width = max(1, min(population + 2, BLOCK // max(noise.counts.size, 1)))
    for low in range(0, population + 2, width):
        k = np.arange(low, min(low + width, population + 2), dtype=float)
        with np.errstate(divide="ignore", invalid="ignore"):
            blocks.append(np.asarray(noise.log_prob(k[:, None]), dtype=float))
    values = np.concatenate(blocks)
    possible = values > -np.inf
    with np.errstate(invalid="ignore"):
        steps = np.diff(values, axis=0)
    below = ~np.logical_or.accumulate(possible, axis=0)[:-1]
    above = ~np.logical_or.accumulate(possible[::-1], axis=0)[::-1][1:]
    steps = np.where(np.isnan(steps), 0.0, steps)
    steps = np.where(below & ~possible[:-1], LIMIT, steps)
    steps = np.where(above & ~possible[1:], -LIMIT, steps)
    return np.clip(steps, -LIMIT, LIMIT)
