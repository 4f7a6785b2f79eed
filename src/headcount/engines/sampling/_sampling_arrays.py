"""From a Problem to the arrays the samplers' kernels read (`_arrays.py` says what each holds)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headcount.engines.sampling._arrays import SlotArrays, TreeArrays
from headcount.individual import RootedTree
from headcount.individual._rooted_tree import dense
from headcount.observe import Poisson, ProblemError

if TYPE_CHECKING:
    from headcount.observe import Problem, Site

LIMIT = 200.0
"""Log-ratios are kept within ±LIMIT (see `_slots.py`)."""
TABLE_ENTRIES = 8_000_000
"""Ratio tables up to this size are filled for every noise; above it Poisson is evaluated in closed form."""
TABLE_BYTES = 2_000_000_000
"""The most that ratio tables of other noises may take."""


@dataclass(frozen=True, eq=False)
class SamplingArrays:
    """A problem on a rooted tree, as arrays: nodes in preorder, tables flat, observed totals as slots."""

    variables: tuple[Hashable, ...]
    cliques: tuple[tuple[Hashable, ...], ...]
    tree: TreeArrays
    slots: SlotArrays
    names: tuple[str, ...]
    noises: tuple[Any, ...]
    population: int

    @cached_property
    def index(self) -> dict[Hashable, int]:
        """The node of every variable."""
        return {name: v for v, name in enumerate(self.variables)}

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

    def locate(self, scope: tuple[Hashable, ...]) -> tuple[str, int, bool]:
        """A scope as ("node", v, False) or ("edge", child, whether the scope names the child first)."""
        if len(scope) == 1 and scope[0] in self.index:
            return "node", self.index[scope[0]], False
        if len(scope) == 2 and all(name in self.index for name in scope):
            a, b = self.index[scope[0]], self.index[scope[1]]
            if self.tree.parent[b] == a:
                return "edge", b, False
            if self.tree.parent[a] == b:
                return "edge", a, True
        raise KeyError(f"{scope!r} is neither a variable nor an edge of the model's tree")

    def pick(self, scope: tuple[Hashable, ...], node: NDArray[Any], edge: NDArray[Any]) -> NDArray[Any]:
        """The table of a scope out of flat arrays of nodes and of edges; leading axes are kept."""
        kind, v, turned = self.locate(scope)
        sizes = self.tree.sizes
        if kind == "node":
            return node[..., self.node(v)]
        table = edge[..., self.edge(v)].reshape(*edge.shape[:-1], sizes[self.tree.parent[v]], sizes[v])
        return np.swapaxes(table, -1, -2) if turned else table

    def impossible(self, slot_count: NDArray[np.int64]) -> list[str]:
        """The names of observed totals that have probability zero at these counts."""
        bad: list[str] = []
        start = 0
        for noise in self.noises:
            stop = start + noise.counts.size
            with np.errstate(all="ignore"):
                off = ~(noise.log_prob(slot_count[start:stop].astype(float)) > -np.inf)
            bad += [f"{self.names[start + k]} = {noise.counts[k]:g}" for k in np.flatnonzero(off)]
            start = stop
        return bad


def sampling_arrays(problem: Problem, *, engine: str) -> SamplingArrays:
    """The arrays of a problem, or one `ProblemError` that says all that keeps `engine` from taking it."""
    rooted = problem.model.rooted()
    if rooted is None:
        raise ProblemError(
            [
                f"{engine} samples individuals on a chain or a tree, and this model's graph is neither: use Enumerate (tiny), or MAP"
            ]
        )
    problems = [
        f"{engine} needs independent errors, and {site.names[0]} is seen with correlated ones: give their variances only,"
        " or use ClosedForm"
        for site in problem.sites
        if site.noise.correlated
    ]
    if problems:
        raise ProblemError(problems)
    order = _preorder(rooted)
    tree = _tree_arrays(rooted, order)
    variables = tuple(rooted.variables[k] for k in order)
    cliques = tuple(tuple(c) for c in problem.model.junction_tree.cliques)
    blank = SamplingArrays(variables, cliques, tree, None, (), (), int(problem.population))  # type: ignore[arg-type]
    sites = tuple(problem.sites)
    slots = _slot_arrays(blank, sites, engine)
    names = tuple(name for site in sites for name in site.names)
    return SamplingArrays(
        variables, cliques, tree, slots, names, tuple(s.noise for s in sites), int(problem.population)
    )


def _preorder(rooted: RootedTree) -> list[int]:
    """The nodes so that every subtree is a contiguous range."""
    children: list[list[int]] = [[] for _ in rooted.variables]
    for v in range(1, len(children)):
        children[int(rooted.parent[v])].append(v)
    order, stack = [], [0]
    while stack:
        v = stack.pop()
        order.append(v)
        stack.extend(reversed(children[v]))
    return order


def _tree_arrays(rooted: RootedTree, order: list[int]) -> TreeArrays:
    """Shape and probabilities; transitions that are one and the same array are stored once."""
    nodes = len(order)
    place = np.empty(nodes, dtype=np.int64)
    place[order] = np.arange(nodes)
    parent = np.array(
        [-1 if rooted.parent[k] < 0 else place[rooted.parent[k]] for k in order], dtype=np.int64
    )
    sizes = np.array([rooted.sizes[k] for k in order], dtype=np.int64)
    if sizes.max() > np.iinfo(np.int16).max:
        raise ProblemError(
            [f"{sizes.max()} states in one variable: the samplers store states in 16 bits; use MAP"]
        )
    end = np.arange(1, nodes + 1)
    for v in range(nodes - 1, 0, -1):
        end[parent[v]] = max(end[parent[v]], end[v])
    children = np.argsort(parent, kind="stable")[1:]
    child_start = np.concatenate(([0], np.cumsum(np.bincount(parent[1:], minlength=nodes))))
    tables = np.concatenate(([0], sizes[parent[1:]] * sizes[1:]))
    laws: list[NDArray[np.float64]] = []
    law_start, seen, total = np.zeros(nodes, dtype=np.int64), {}, 0
    for v in range(1, nodes):
        matrix = rooted.transitions[order[v]]
        if id(matrix) not in seen:
            seen[id(matrix)] = total
            laws.append(np.asarray(dense(matrix), dtype=float))
            total += laws[-1].size
        law_start[v] = seen[id(matrix)]
    return TreeArrays(
        sizes=sizes,
        parent=parent,
        end=end.astype(np.int64),
        child_start=child_start.astype(np.int64),
        children=children.astype(np.int64),
        node_start=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        edge_start=np.concatenate(([0], np.cumsum(tables))).astype(np.int64),
        law_start=law_start,
        law=np.concatenate([p.ravel() for p in laws]) if laws else np.zeros(0),
        law_turned=np.concatenate([p.T.ravel() for p in laws]) if laws else np.zeros(0),
        initial=np.array(rooted.initial, dtype=float),
    )


def _slot_arrays(arrays: SamplingArrays, sites: tuple[Site, ...], engine: str) -> SlotArrays:
    """Slots numbered site by site, each with the flat cells or entries that feed it."""
    total = sum(len(site) for site in sites)
    feeds: dict[str, list[NDArray[np.int64]]] = {"node": [], "edge": []}
    node_mode = np.zeros(len(arrays.variables), dtype=np.int64)
    edge_mode = np.zeros(len(arrays.variables), dtype=np.int64)
    first = 0
    for site in sites:
        kind, v, pairs = _feeds(arrays, site)
        feeds[kind].append(pairs + np.array([0, first]))
        (node_mode if kind == "node" else edge_mode)[v] = 2
        first += len(site)
    node_first, node_slot = _by_entry(feeds["node"], arrays.cells)
    edge_first, edge_slot = (
        _by_entry(feeds["edge"], arrays.entries) if feeds["edge"] else (np.zeros(1, int), np.zeros(0, int))
    )
    _mark_simple(arrays, node_mode, node_first, node_slot, total)
    law, table = _ratios(sites, arrays.population, total, engine)
    return SlotArrays(
        node_mode=node_mode,
        node_first=node_first,
        node_slot=node_slot,
        edge_mode=edge_mode,
        edge_first=edge_first,
        edge_slot=edge_slot,
        law=law,
        table=table,
    )


def _feeds(arrays: SamplingArrays, site: Site) -> tuple[str, int, NDArray[np.int64]]:
    """(kind, node, pairs (flat cell or entry, slot within the site))."""
    kind, v, turned = arrays.locate(site.scope)
    if site.index is not None:
        entry, slot = np.asarray(site.index, dtype=np.int64), np.arange(len(site))
    else:
        weights = site.weights.tocoo()  # type: ignore[union-attr]
        kept = weights.data != 0
        slot, entry = weights.coords[0][kept].astype(np.int64), weights.coords[1][kept].astype(np.int64)
    if turned:
        above, below = arrays.tree.sizes[arrays.tree.parent[v]], arrays.tree.sizes[v]
        entry = (entry % above) * below + entry // above
    start = (arrays.tree.node_start if kind == "node" else arrays.tree.edge_start)[v]
    return kind, v, np.stack([entry + start, slot], axis=1).astype(np.int64)


def _by_entry(pairs: list[NDArray[np.int64]], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Compressed rows: which slots each cell or entry feeds."""
    both = np.concatenate(pairs) if pairs else np.zeros((0, 2), dtype=np.int64)
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    first = np.concatenate(([0], np.cumsum(np.bincount(both[:, 0], minlength=size)))).astype(np.int64)
    return first, np.ascontiguousarray(both[:, 1])


def _mark_simple(
    arrays: SamplingArrays,
    mode: NDArray[np.int64],
    first: NDArray[np.int64],
    slot: NDArray[np.int64],
    total: int,
) -> None:
    """Mode 1 for the nodes whose cells feed at most one slot each, and whose slots have one cell each."""
    feeders = np.bincount(slot, minlength=total)
    for v in np.flatnonzero(mode):
        cells = arrays.node(int(v))
        span = slice(first[cells.start], first[cells.stop])
        if np.diff(first[cells.start : cells.stop + 1]).max() <= 1 and feeders[slot[span]].max() <= 1:
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
    if rows * (population + 1) * 8 > TABLE_BYTES:
        raise ProblemError(
            [
                f"{engine} would need {rows * (population + 1) * 8 / 1e9:.1f} GB for the likelihood tables of {rows} counts and"
                f" N = {population}, and takes at most {TABLE_BYTES / 1e9:.0f} GB: use TiltedEP or MAP"
            ]
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
    width = max(1, min(population + 2, 2_000_000 // max(noise.counts.size, 1)))
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
