r"""Worms: moves that connect all tables between two known margins, whatever moves are possible. One set for tables and for paths.

N individuals with origins :math:`i_m` fill N places at their destinations, :math:`c_j` in cell j; the law of who is where is
:math:`\prod_m g(i_m, j_m)`, with :math:`g = p_{ij}` or, where rows vary (Dirichlet–multinomial, κ = 1/ρ − 1), Pólya's
:math:`g ∝ n_{ij} + κ_i p_{ij}` with n the row's other individuals. A worm

1. picks a place at random, in cell u, and takes its individual in hand: the table is open at u;
2. gives the one in hand a cell j with probability :math:`b_j g(i, j) / Z`, :math:`Z = \sum_j b_j g(i, j)`;
3. if j = u, ends there; else puts it in a random one of the places of j, takes who was there in hand, and goes on at 2.

Weigh an open state by F·Z, with F the weight of all who are in a place and Z that of the one in hand. From A (a in hand, b in place) to B
(b in hand, a in place) leads :math:`F(A)\,b_j g(i_a, j)/c_j = F(A ∪ a)\,b_j/c_j`, and the same leads back; closing and opening balance as
well. So nothing is ever rejected. The difference of two tables with the same margins is a sum of cycles, each of which a worm can be: every
support is connected. Any tilts b serve; those that rake p to both margins make a worm last as many steps as there are cells, in the mean.
A worm that grows beyond `LONGEST` times that is taken back, which keeps the balance, since a walk and its reverse are equally long.
Where flows are observed, a worm is a proposal: it is taken back unless u < l(y | after)/l(y | before), with u uniform.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra, maximum_flow

from headcount._compile import bare, kernel
from headcount.engines.sampling._arrays import row_kappa
from headcount.engines.sampling._primitives import alias_tables, below, uniform
from headcount.solve.raking import raked_tilts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from headcount._types import Array, Counts
    from headcount.engines.sampling._arrays import SamplingArrays

LONGEST = 50
"""Steps after which a worm is taken back, in numbers of cells: with tilts that fit the margins e⁻⁵⁰ of all worms are that long."""
ROUNDING = 1e-9
"""What whole numbers and sums of logs may miss by rounding."""
_NOT_SEEN = np.zeros((0, 0, 0))
MOST_LOOKS = 5
"""Flows that never moved whose cycles are looked at, per table: a millisecond."""


class Turnstile(NamedTuple):
    """Steps between known margins, flat, one after the other: how an individual in hand finds its next cell."""

    p: Any
    """(entries,) by row."""
    kappa: Any
    """(rows of all steps,) 1/rho − 1; 0 where the row does not vary."""
    tilt: Any
    """(cells,) b of the columns' cells."""
    accept: Any
    """(entries,) Walker's alias tables of b p, by row."""
    alias: Any


class Where(NamedTuple):
    """One of the steps: where its entries, rows and columns begin in the flat arrays, and how many columns it has."""

    entry: int
    row: int
    column: int
    width: int


def alias_of(p: Array, tilt: Array) -> tuple[Array, NDArray[np.int64]]:
    """Alias tables of b p, row by row."""
    weight = p * tilt
    total = weight.sum(axis=1, keepdims=True)
    q = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
    accept, alias = np.empty(p.size), np.zeros(p.size, dtype=np.int64)
    alias_tables(np.ascontiguousarray(q).ravel(), p.shape[1], accept, alias)
    return accept, alias


# ---- which tables there are


def possible_table(
    support: NDArray[np.bool_], rows: Counts, columns: Counts, near: Array | None = None
) -> Counts | None:
    """A whole-number table with these margins and no individual outside ``support``, near a given one; None where there is none.

    A maximum flow from rows to columns: of what the whole parts of ``near`` leave, or of everything where that cannot be completed.
    """
    for whole in ([] if near is None else [np.floor(near + ROUNDING)]) + [np.zeros(support.shape)]:
        base = np.where(support, whole, 0).astype(np.int64)
        left, wanted = rows - base.sum(axis=1), columns - base.sum(axis=0)
        if (left < 0).any() or (wanted < 0).any():
            continue
        height, width = support.shape
        ends = height + width
        capacity = np.zeros((ends + 2, ends + 2), dtype=np.int32)
        capacity[ends, :height], capacity[height:ends, ends + 1] = left, wanted
        capacity[:height, height:ends] = np.where(support, np.minimum(left[:, None], wanted), 0)
        flow = maximum_flow(csr_array(capacity), ends, ends + 1)
        if flow.flow_value == left.sum() == wanted.sum():
            return base + flow.flow.toarray()[:height, height:ends].astype(np.int64)
    return None


def free_entries(table: Counts, support: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The entries that differ between some two tables with these margins on this support; ``table`` is any one of them.

    One individual more in (i, j) leads on from i to j, and one fewer, where there is one, from j back to i. Entries whose ends are strongly
    connected can be positive; of these all change but those on no cycle (bridges). The number of free directions is entries − rows −
    columns + components of what is left.
    """
    height, width = support.shape
    used = support & (table.sum(axis=1) > 0)[:, None] & (table.sum(axis=0) > 0)
    steps = np.zeros((height + width, height + width), dtype=bool)
    steps[:height, height:], steps[height:, :height] = used, (table > 0).T
    part = connected_components(csr_array(steps), connection="strong")[1]
    entries = used & (part[:height, None] == part[height:])
    find_bridges(entries, bridge := np.zeros(entries.shape, dtype=bool))
    return np.asarray(entries & ~bridge)


def never_moved(p: Array, kappa: Array, draws: NDArray[Any], moved: NDArray[np.bool_] | None = None) -> float:
    r"""A lower bound of how probable it is that a free flow differs from the one number that it was in all ``draws``; the largest such.

    For any one cycle C through the entry, :math:`P(n' − C \text{ is a table}) = E[w(n + C)/w(n)]`, and E min(1, ·) is less still. So in
    draws that have the right law this is small, 1/(their effective number) or so. The cycle is the shortest by the entries' expected
    counts m, with lengths log(1 + 1/m); of at most `MOST_LOOKS` flows, those with the largest m.
    """
    free = free_entries(draws[0].astype(np.int64), p > 0)
    asked = free & (draws == draws[0]).all(axis=0)
    if moved is not None:  # between the draws
        asked &= ~moved
    if not asked.any():
        return 0.0
    rows, columns = draws[0].sum(axis=1), draws[0].sum(axis=0)
    a, b = raked_tilts(np.where(free, p, 0.0), rows, columns)
    expected = a[:, None] * np.where(free, p, 0.0) * b
    height = len(p)
    with np.errstate(divide="ignore"):
        length = np.where(expected > 0, np.log1p(1.0 / expected), 0.0)
    graph = np.zeros((sum(p.shape), sum(p.shape)))
    graph[:height, height:], graph[height:, :height] = length, length.T
    places = np.argwhere(asked)
    largest = np.argsort(-expected[asked], kind="stable")[:MOST_LOOKS]
    return max(_cycle_weight(p, kappa, draws, graph, int(i), int(j)) for i, j in places[largest])


def _cycle_weight(p: Array, kappa: Array, draws: NDArray[Any], graph: Array, i: int, j: int) -> float:
    """E min(1, w(n ± C)/w(n)) over draws, C the shortest cycle through (i, j), in the better of both directions."""
    height = len(p)
    others = graph.copy()
    others[i, height + j] = others[height + j, i] = 0.0  # no link
    before = dijkstra(csr_array(others), indices=i, return_predecessors=True)[1]
    path = [height + j]
    while path[-1] != i:
        if before[path[-1]] < 0:
            return 0.0
        path.append(int(before[path[-1]]))
    # From j back to i, by turns one fewer and one more; (i, j) itself closes the cycle with one more.
    ends = [(min(x, y), max(x, y) - height) for x, y in itertools.pairwise(path)]
    cycle = [(i, j), *ends]
    best = 0.0
    for first in (1, -1):
        log_weight = np.zeros(len(draws))
        for k, (row, column) in enumerate(cycle):
            n, slope = draws[:, row, column], 1.0 / kappa[row] if kappa[row] > 0 else 0.0
            with np.errstate(divide="ignore", invalid="ignore"):
                if first * (-1) ** k > 0:
                    log_weight += np.log((p[row, column] + n * slope) / (n + 1.0))
                else:
                    log_weight += np.where(n > 0, np.log(n / (p[row, column] + (n - 1.0) * slope)), -np.inf)
        best = max(best, float(np.exp(np.minimum(log_weight, 0.0)).mean()))
    return best


@kernel
def find_bridges(edge, bridge):
    """Mark the edges of a bipartite graph (rows by columns) that lie on no cycle: depth first, with the lowest order reached from below."""
    height, width = edge.shape
    size = height + width
    order, low, above = np.full(size, -1), np.zeros(size, np.int64), np.full(size, -1)
    following, stack = np.zeros(size, np.int64), np.zeros(size, np.int64)
    found = 0
    for root in range(height):
        if order[root] >= 0:
            continue
        depth, stack[0], order[root], low[root] = 1, root, found, found
        found += 1
        while depth > 0:
            v = stack[depth - 1]
            most = width if v < height else height
            if following[v] < most:
                k = following[v]
                following[v] += 1
                linked = edge[v, k] if v < height else edge[k, v - height]
                w = height + k if v < height else k
                if linked and w != above[v]:
                    if order[w] < 0:
                        above[w], order[w], low[w], stack[depth] = v, found, found, w
                        found += 1
                        depth += 1
                    else:
                        low[v] = min(low[v], order[w])
                continue
            depth -= 1
            u = above[v]
            if u >= 0:
                low[u] = min(low[u], low[v])
                if low[v] > order[u]:
                    if v < height:
                        bridge[v, u - height] = True
                    else:
                        bridge[u, v - height] = True


# ---- between the exactly counted nodes of a tree


class PathWorms(NamedTuple):
    """Where worms go through paths, between nodes that are counted exactly and completely."""

    step: Turnstile
    """Over all entries and cells; tilts of exactly counted nodes, p and alias tables of steps between two of them."""
    near: bool
    """Whether any node has worms that only exchange futures."""
    worms: Any
    """(V,) such worms per sweep: at exactly counted nodes below another one, about N steps."""
    depth: Any
    """(V,)."""
    row_start: Any
    """(V,) where the rows of the step to each node begin."""
    exact: Any
    """(V,) whether a node is counted exactly and completely."""
    kind: Any
    """(cells,) within a node, cells that count in the same exact totals; every cell of its own where a node is counted completely."""
    exact_slot: Any
    """(slots,) whether a total is exact."""
    far: Any
    """Exactly counted nodes below one that is not, and nodes of which only some totals are exact."""
    every: Any
    """Sweeps per worm at each of these: a worm costs as much as a sweep at most."""
    inside_start: Any
    inside: Any
    """The nodes that are not counted completely and hang together with the one above each of ``far``, or with itself, in preorder."""
    longest: int
    """Steps of a worm at most, in numbers of cells."""
    twins: Any
    """(cells, members) the same state of another member; (0, 0) where there is one member."""
    mark: Any
    """(cells,) marks of the totals that each cell counts in: two pairs of cells with the same sum count in the same totals."""
    edge_mark: Any
    """(entries,) the same of flows; none where no flows are observed."""


class WormSpace(NamedTuple):
    """One chain's working arrays."""

    owner: Any
    holder: Any
    column: Any
    fresh: Any
    first: Any
    touched: Any
    carry: Any
    table: Any
    kept: Any
    """The table before a worm, where flows are observed."""
    before: Any
    beta: Any
    message: Any
    weights: Any


def path_worms(arrays: SamplingArrays) -> PathWorms:
    """The worms of a problem; none where no two nodes are counted exactly and completely."""
    exact = exact_nodes_of(arrays)
    kind, exact_slot = _kinds(arrays, exact)
    tilt, depth = np.zeros(arrays.cells), np.zeros(len(exact), dtype=np.int64)
    for v in range(1, len(exact)):
        depth[v] = depth[arrays.rooted.parents[v]] + 1
    step, worms, row_start = _near_worms(arrays, exact, tilt)
    far = _far_worms(arrays, exact, kind, tilt)
    twins, mark, edge_mark = _exchangeable(arrays)
    return PathWorms(
        step,
        near=bool(worms.any()),
        worms=worms,
        depth=depth,
        row_start=row_start,
        exact=exact,
        kind=kind,
        exact_slot=exact_slot,
        far=np.array([f.node for f in far], dtype=np.int64),
        every=np.array([f.every for f in far], dtype=np.int64),
        inside_start=np.cumsum([0, *(len(f.inside) for f in far)]).astype(np.int64),
        inside=np.array([w for f in far for w in f.inside], dtype=np.int64),
        longest=LONGEST,
        twins=twins,
        mark=mark,
        edge_mark=edge_mark,
    )


def _near_worms(
    arrays: SamplingArrays, exact: NDArray[np.bool_], tilt: Array
) -> tuple[Turnstile, NDArray[np.int64], NDArray[np.int64]]:
    """Steps between two exactly counted nodes, worms per sweep at each node, where the rows of steps begin; fills ``tilt`` there."""
    parents, sizes = arrays.rooted.parents, arrays.tree.sizes
    row_start = np.cumsum([0, 0, *(sizes[u] for u in parents[1:])])[:-1].astype(np.int64)
    kappa = np.zeros(int(row_start[-1]) + int(sizes.max()))
    worms = np.zeros(len(sizes), dtype=np.int64)
    near = [v for v in range(1, len(sizes)) if exact[v] and exact[parents[v]]]
    entries = arrays.entries if near else 0
    p, accept, alias = np.zeros(entries), np.zeros(entries), np.zeros(entries, np.int64)
    for v in near:
        u, law = parents[v], arrays.transition(v)
        tilt[arrays.node(v)] = raked_tilts(law, arrays.node_counts(u), arrays.node_counts(v))[1]
        p[arrays.edge(v)] = law.ravel()
        accept[arrays.edge(v)], alias[arrays.edge(v)] = alias_of(law, tilt[arrays.node(v)])
        worms[v] = -(-arrays.population // int(sizes[v]))
        if arrays.rho is not None:
            kappa[row_start[v] : row_start[v] + int(sizes[u])] = row_kappa(arrays.rho[v], int(sizes[u]))
    return Turnstile(p, kappa, tilt, accept, alias), worms, row_start


class _FarWorm(NamedTuple):
    """A node with worms that draw whole ways through other nodes; see `PathWorms`."""

    node: int
    inside: list[int]
    every: int


def _far_worms(
    arrays: SamplingArrays, exact: NDArray[np.bool_], kind: NDArray[np.int64], tilt: Array
) -> list[_FarWorm]:
    """Nodes with a hidden node above an exact one, and nodes with some exact totals; fills ``tilt`` there."""
    parents, sizes, found = arrays.rooted.parents, arrays.tree.sizes, []
    for v in range(len(sizes)):
        here = arrays.node(v)
        needless = (v == 0 or exact[parents[v]]) if exact[v] else kind[here].max() == 0
        if needless:
            continue
        within, top = _hidden_around(parents, exact, parents[v] if exact[v] else v)
        tilt[here] = _way_tilts(arrays, v, top) if exact[v] else _class_tilts(arrays, v, kind[here])
        beside = [c for c in range(1, len(sizes)) if parents[c] in within or c in within]
        cost = int(sizes[v]) * sum(int(sizes[parents[c]]) * int(sizes[c]) for c in beside)
        found.append(_FarWorm(v, within, max(1, round(cost / (arrays.population * int(sizes.sum()))))))
    return found


def _way_tilts(arrays: SamplingArrays, v: int, top: int) -> Array:
    """Tilts of an exactly counted node that give its counts to ways from ``top``, the exact node above (−1: the initial law)."""
    ends = (int(arrays.tree.sizes[top]) if top >= 0 else 1, int(arrays.tree.sizes[v]))
    law = np.linalg.multi_dot([np.eye(ends[0]), *_way(arrays, v, top), np.eye(ends[1])])
    rows = arrays.node_counts(top) if top >= 0 else np.array([float(arrays.population)])
    return raked_tilts(law, rows, arrays.node_counts(v))[1]


def _exchangeable(arrays: SamplingArrays) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Twins of states, and marks of cells and of flows: random numbers of 64 bits, so that sums agree by chance once in 10¹⁹."""
    slots, none = arrays.slots, np.zeros(0, dtype=np.int64)
    if arrays.twins is None:
        return np.zeros((0, 0), dtype=np.int64), none, none
    numbers = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, len(slots.total))
    marks = []
    for first, shift in (
        (slots.node_shift_first, slots.node_shift),
        (slots.edge_shift_first, slots.edge_shift),
    ):
        of = np.zeros(len(first) - 1, dtype=np.int64)
        np.add.at(of, np.repeat(np.arange(len(of)), np.diff(first)), numbers[shift])
        marks.append(of)
    return arrays.twins, marks[0], marks[1]


def _kinds(arrays: SamplingArrays, exact: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Kinds of the cells of every node by the exact totals that they count in, and which totals are exact."""
    slots = arrays.slots
    exact_total = np.concatenate(
        [np.zeros(0, bool), *(np.full(len(s), bool(s.noise.exact)) for s in arrays.sites)]
    )
    exact_slot = exact_total[slots.total]
    kind = np.zeros(arrays.cells, dtype=np.int64)
    for v in range(len(exact)):
        cells = range(*arrays.node(v).indices(arrays.cells))
        found: dict[Any, int] = {}
        for x, cell in enumerate(cells):
            fed = slots.node_slot[slots.node_first[cell] : slots.node_first[cell + 1]]
            mark = x if exact[v] else tuple(fed[exact_slot[fed]])
            kind[cell] = found.setdefault(mark, len(found))
    return kind, exact_slot


class Totals(NamedTuple):
    """Kinds of cells of a node whose exact totals overlap."""

    member: Array
    """(cells, kinds) 0/1."""
    share: Array
    """(kinds,) probability of each, by the model."""
    exchanges: list[tuple[int, int, int, int]]
    """Two kinds that two individuals can have instead of two others, all totals being the same."""


MOST_KINDS = 12
"""Kinds of cells of one node up to which exchanges between them are looked for: 12⁴ pairs of pairs."""


def overlapping_totals(arrays: SamplingArrays) -> Iterator[tuple[int, Totals]]:
    """The nodes where individuals may exchange kinds of cells and all exact totals stay what they are."""
    kind, exact_slot = _kinds(arrays, exact := exact_nodes_of(arrays))
    slots = arrays.slots
    for v in np.flatnonzero(~exact):
        here = arrays.node(int(v))
        kinds = kind[here]
        size = int(kinds.max()) + 1
        if not 3 < size <= MOST_KINDS:
            continue
        member = (kinds[:, None] == np.arange(size)).astype(float)
        fed = {}
        for k, cell in zip(kinds, range(*here.indices(arrays.cells)), strict=True):
            mine = slots.node_slot[slots.node_first[cell] : slots.node_first[cell + 1]]
            fed[int(k)] = tuple(sorted(mine[exact_slot[mine]].tolist()))
        share = _way_marginal(arrays, int(v)) @ member
        pairs: dict[Any, list[tuple[int, int]]] = {}
        for pair in itertools.combinations(range(size), 2):
            if (share[list(pair)] > 0).all():
                pairs.setdefault(tuple(sorted(fed[pair[0]] + fed[pair[1]])), []).append(pair)
        found = [(*a, *b) for same in pairs.values() for a in same for b in same if a != b]
        if found:
            yield int(v), Totals(member, share, found)


def exchanged(totals: Totals, counts: Array) -> float:
    """The largest E min(1, w(n')/w(n)) of an exchange between kinds that were always as many; ``counts`` are draws, (draws, kinds)."""
    still, best = (counts == counts[0]).all(axis=0), 0.0
    for x, y, to_x, to_y in totals.exchanges:
        if still[[x, y, to_x, to_y]].all():
            p, n = totals.share, counts[0]
            weight = n[x] * n[y] / (p[x] * p[y]) * p[to_x] * p[to_y] / ((n[to_x] + 1) * (n[to_y] + 1))
            best = max(best, min(1.0, float(weight)))
    return best


def _way_marginal(arrays: SamplingArrays, v: int) -> Array:
    """The model's law of node v."""
    law = arrays.tree.initial[None]
    for step in _way(arrays, v, -1)[1:]:
        law = law @ step
    return np.asarray(law[0])


def _class_tilts(arrays: SamplingArrays, v: int, kind: NDArray[np.int64]) -> Array:
    """Tilts by which classes of cells get as many individuals as exact totals say, or an even share of the rest."""
    wanted, found = np.full(int(kind.max()) + 1, np.nan), np.bincount(kind, _way_marginal(arrays, v))
    for site in arrays.sites:
        if len(site.scope) == 1 and site.noise.exact and arrays.rooted.place(site.scope).node == v:
            for seen, count in zip(site.margin(np.eye(len(kind))).T, site.noise.counts, strict=True):
                inside = np.unique(kind[seen > 0])
                if len(inside) == 1:
                    wanted[inside[0]] = count / arrays.population
    free = np.isnan(wanted)
    wanted[free] = max(1.0 - float(np.nansum(wanted)), 0.0) / max(int(free.sum()), 1)
    made = np.where(found > 0, wanted / np.where(found > 0, found, 1.0), 0.0)
    return np.asarray(made[kind])


def exact_nodes_of(arrays: SamplingArrays) -> NDArray[np.bool_]:
    """Nodes of which every cell, or every cell but one, is counted exactly."""
    left = np.array(arrays.tree.sizes)
    for site in arrays.sites:
        if len(site.scope) == 1 and site.noise.exact and site.index is not None:
            left[arrays.rooted.place(site.scope).node] -= len(np.unique(site.index))
    return left <= 1


def _hidden_around(parents: tuple[int, ...], exact: NDArray[np.bool_], start: int) -> tuple[list[int], int]:
    """The nodes that are not counted exactly and are connected with ``start``, in preorder; the exact one above them, or −1."""
    top = start
    while parents[top] >= 0 and not exact[parents[top]]:
        top = parents[top]
    found = [top]
    for w in range(top + 1, len(parents)):
        if not exact[w] and parents[w] in found:
            found.append(w)
    return found, parents[top]


def _way(arrays: SamplingArrays, v: int, top: int) -> list[Array]:
    """Transitions from the exact node ``top`` (or the initial law, where it is −1) down to v."""
    laws = []
    while v != top:
        laws.append(arrays.transition(v) if v > 0 else arrays.tree.initial[None])
        v = arrays.rooted.parents[v] if v > 0 else -1
    return laws[::-1]


def worm_space(arrays: SamplingArrays, worms: PathWorms) -> WormSpace:
    """Working arrays; empty where there are no worms."""
    used = worms.near or len(worms.far) > 0
    people, widest = arrays.population if used else 0, int(arrays.tree.sizes.max())
    places = np.zeros((4, people), dtype=np.int64)
    longest = worms.longest * widest if used else 0
    widest_inside = int(np.diff(worms.inside_start).max(initial=0))
    return WormSpace(
        owner=places[0],
        holder=places[1],
        column=places[2],
        fresh=places[3],
        first=np.zeros(widest + 1, dtype=np.int64),
        touched=np.zeros(longest, dtype=np.int64),
        carry=np.zeros((int(worms.depth.max()) + 1 if worms.near else 0, people), dtype=np.int32),
        table=np.zeros(arrays.entries if used else 0, dtype=np.int64),
        kept=np.zeros(arrays.entries if used else 0, dtype=np.int64),
        before=np.zeros((longest + 1 if len(worms.far) else 0, widest_inside), dtype=np.int16),
        beta=np.zeros(arrays.cells if len(worms.far) else 0),
        message=np.zeros((1, widest)),
        weights=np.zeros(widest),
    )


# ---- the moves


class TableWorms:
    """A table of individuals that worms go through, from a given start; a sweep is about as many steps as there are individuals."""

    def __init__(
        self, p: Array, kappa: Array, start: Counts, tilt: Array, random: NDArray[np.uint64]
    ) -> None:
        self.counts = start.copy()
        origin, dest = np.divmod(np.repeat(np.arange(start.size), start.ravel()), start.shape[1])
        by_column = np.argsort(dest, kind="stable")
        self.row, self.column = origin[by_column], dest[by_column]
        self.owner, self.random = np.arange(len(origin)), random
        self.step = Turnstile(np.ascontiguousarray(p).ravel(), kappa.astype(float), tilt, *alias_of(p, tilt))
        self.where = Where(0, 0, 0, start.shape[1])
        self.first = np.concatenate(([0], np.cumsum(start.sum(axis=0)))).astype(np.int64)
        self.touched = np.zeros(LONGEST * start.shape[1], dtype=np.int64)
        self.worms = 1
        """Worms per sweep. A fixed number: a sweep that ended after so many steps would end with a long worm too often."""

    def burn(self, sweeps: int) -> None:
        """Twice so many sweeps, in which the length of worms is learned."""
        for _ in range(2 if len(self.row) else 0):
            steps = self._sweep(sweeps, _NOT_SEEN, _NOT_SEEN)
            self.worms = max(1, round(len(self.row) * self.worms * sweeps / max(steps, 1)))

    def sweep(self, sweeps: int, seen: Array = _NOT_SEEN, draws: NDArray[Any] = _NOT_SEEN) -> None:
        """So many sweeps; ``seen`` counts what entries were, ``draws`` keeps as many tables as it has rows, evenly spaced."""
        if len(self.row):
            self._sweep(sweeps, seen, draws)

    def _sweep(self, sweeps: int, seen: Array, draws: NDArray[Any]) -> int:
        places = (self.row, self.column, self.owner, self.first, self.counts.ravel(), self.touched)
        return int(sweep_worms(self.random, self.step, self.where, *places, sweeps, self.worms, seen, draws))


@bare
def destination(random, i, where, p, kappa, tilt, accept, alias, table):
    """The next cell of one from row i who is in hand; ``table`` counts those in place."""
    size, column = where.width, where.column
    at, slope = where.entry + i * size, kappa[where.row + i]
    if slope == 0.0:
        mark = uniform(random) * size
        j = int(mark)
        return j if mark - j < accept[at + j] else alias[at + j]
    total = 0.0
    for j in range(size):
        if p[at + j] > 0.0:
            total += tilt[column + j] * (table[at + j] + slope * p[at + j])
    left, last = uniform(random) * total, 0
    for j in range(size):
        if p[at + j] > 0.0 and tilt[column + j] > 0.0:
            last = j
            left -= tilt[column + j] * (table[at + j] + slope * p[at + j])
            if left < 0.0:
                break
    return last


@bare
def worm(random, step, where, row, column, owner, first, table, touched):
    """One worm; ``owner[k]`` is the individual in place k, ``table`` follows. Returns the steps made, −1 where it was taken back.

    ``row`` and ``column`` are the cells of individuals and of places, ``first`` the first place of every cell. ``touched`` has the places
    that changed hands and, last, the one that was opened.
    """
    p, kappa, tilt, accept, alias = step.p, step.kappa, step.tilt, step.accept, step.alias
    entry, width = where.entry, where.width
    opened = below(random, owner.size)
    hole, hand, length = column[opened], owner[opened], 0
    touched[touched.size - 1] = opened
    table[entry + row[hand] * width + hole] -= 1
    while True:
        i = row[hand]
        j = destination(random, i, where, p, kappa, tilt, accept, alias, table)
        if j == hole:
            break
        if (
            length == touched.size - 1 or first[j + 1] == first[j]
        ):  # too long, or a cell without places (in a chain's burn-in)
            hand = _take_back(entry, width, row, column, owner, table, touched, length, hand)
            length = -1
            break
        k = first[j] + below(random, first[j + 1] - first[j])
        other = owner[k]
        owner[k] = hand
        table[entry + i * width + j] += 1
        table[entry + row[other] * width + j] -= 1
        touched[length] = k
        length += 1
        hand = other
    owner[opened] = hand
    table[entry + row[hand] * width + hole] += 1
    return length


@bare
def undo_worm(where, row, column, owner, table, touched, length):
    """Take a worm of so many steps back after it has closed."""
    entry, width, opened = where.entry, where.width, touched[touched.size - 1]
    hole, hand = column[opened], owner[opened]
    table[entry + row[hand] * width + hole] -= 1
    hand = _take_back(entry, width, row, column, owner, table, touched, length, hand)
    owner[opened] = hand
    table[entry + row[hand] * width + hole] += 1


@bare
def _take_back(entry, width, row, column, owner, table, touched, length, hand):
    """Undo all steps of a worm, last first; returns who was in hand at first."""
    for back in range(length - 1, -1, -1):
        k = touched[back]
        other = owner[k]
        owner[k] = hand
        table[entry + row[hand] * width + column[k]] += 1
        table[entry + row[other] * width + column[k]] -= 1
        hand = other
    return hand


@kernel
def sweep_worms(random, step, where, row, column, owner, first, table, touched, sweeps, worms, seen, draws):
    """Sweeps of so many worms; returns the steps they made.

    After every sweep ``seen[i, j, n]`` counts that the entry was n, where it is wide enough; ``draws`` gets evenly spaced tables.
    Most entries of large tables are 0: only the others are written, sweep by sweep.
    """
    steps, kept, width = 0, draws.shape[0], where.width
    thin = sweeps // max(kept, 1)
    for i in range(seen.shape[0]):
        for j in range(seen.shape[1]):
            seen[i, j, 0] += sweeps
    for sweep in range(sweeps):
        for _ in range(worms):
            steps += 1 + abs(worm(random, step, where, row, column, owner, first, table, touched))
        for i in range(seen.shape[0]):
            for j in range(seen.shape[1]):
                n = table[i * width + j]
                if n > 0:
                    seen[i, j, n] += 1.0
                    seen[i, j, 0] -= 1.0
        if kept > 0 and (sweep + 1) % thin == 0 and (sweep + 1) // thin <= kept:
            for i in range(draws.shape[1]):
                for j in range(draws.shape[2]):
                    draws[(sweep + 1) // thin - 1, i, j] = table[i * width + j]
    return steps
