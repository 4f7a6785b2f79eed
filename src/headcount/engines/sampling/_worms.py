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
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra, maximum_flow

from headcount._compile import bare, kernel
from headcount.engines.sampling._primitives import below, uniform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headcount._types import Array, Counts

LONGEST = 50
"""Steps after which a worm is taken back, in numbers of cells: with tilts that fit the margins e⁻⁵⁰ of all worms are that long."""
RAKINGS = 30
"""Rounds of proportional fitting for tilts, which only centre what is proposed."""
ROUNDING = 1e-9
"""What whole numbers and sums of logs may miss by rounding."""
_NOT_SEEN = np.zeros((0, 0, 0))
MOST_LOOKS = 5
"""Flows that never moved whose cycles are looked at, per table: a millisecond."""


class Turnstile(NamedTuple):
    """A step between two margins: how an individual in hand finds its next cell."""

    p: Any
    """(rows, columns)."""
    kappa: Any
    """(rows,) 1/rho − 1; 0 where the row does not vary."""
    tilt: Any
    """(columns,) b."""
    accept: Any
    """(rows · columns,) Walker's alias tables of b p, by row."""
    alias: Any
    start: Any
    """(columns + 1,) the first place of every cell."""


def turnstile(p: Array, kappa: Array, columns: Counts, tilt: Array) -> Turnstile:
    """The step from tilts and the counts of the columns."""
    # Local: compiled moves import this module's neighbours, and Python's import order decides who is first.
    from headcount.engines.sampling._path_moves import alias_tables

    weight = p * tilt
    total = weight.sum(axis=1, keepdims=True)
    q = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
    accept, alias = np.empty(p.size), np.zeros(p.size, dtype=np.int64)
    alias_tables(np.ascontiguousarray(q).ravel(), p.shape[1], accept, alias)
    start = np.concatenate(([0], np.cumsum(columns))).astype(np.int64)
    return Turnstile(np.ascontiguousarray(p), kappa.astype(float), tilt, accept, alias, start)


def raked_tilts(p: Array, rows: Array, columns: Array) -> tuple[Array, Array]:
    """a and b such that a_i p_ij b_j has these margins, nearly."""
    a, b = np.ones(len(rows)), np.ones(len(columns))
    for _ in range(RAKINGS):
        a = _quotient(rows, p @ b)
        b = _quotient(columns, a @ p)
    return a, b


def _quotient(wanted: Array, have: Array) -> Array:
    return np.where(have > 0, wanted / np.where(have > 0, have, 1.0), 0.0)


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


def never_moved(p: Array, kappa: Array, draws: NDArray[Any]) -> float:
    r"""A lower bound of how probable it is that a free flow differs from the one number that it was in all ``draws``; the largest such.

    For any one cycle C through the entry, :math:`P(n' − C \text{ is a table}) = E[w(n + C)/w(n)]`, and E min(1, ·) is less still. So in
    draws that have the right law this is small, 1/(their effective number) or so. The cycle is the shortest by the entries' expected
    counts m, with lengths log(1 + 1/m); of at most `MOST_LOOKS` flows, those with the largest m.
    """
    free = free_entries(draws[0].astype(np.int64), p > 0)
    asked = free & (draws == draws[0]).all(axis=0)
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
        self.step = turnstile(p, kappa, start.sum(axis=0), tilt)
        self.touched = np.zeros(LONGEST * start.shape[1], dtype=np.int64)
        self.worms = 1
        """Worms per sweep. A fixed number: a sweep that ended after so many steps would end with a long worm too often."""

    def burn(self, sweeps: int) -> None:
        """So many sweeps, in which the length of worms is learned."""
        if len(self.row):
            steps = self._sweep(sweeps, _NOT_SEEN, _NOT_SEEN)
            self.worms = max(1, round(len(self.row) * sweeps / max(steps, 1)))
            self._sweep(sweeps, _NOT_SEEN, _NOT_SEEN)

    def sweep(self, sweeps: int, seen: Array = _NOT_SEEN, draws: NDArray[Any] = _NOT_SEEN) -> None:
        """So many sweeps; ``seen`` counts what entries were, ``draws`` keeps as many tables as it has rows, evenly spaced."""
        if len(self.row):
            self._sweep(sweeps, seen, draws)

    def _sweep(self, sweeps: int, seen: Array, draws: NDArray[Any]) -> int:
        places = (self.row, self.column, self.owner, self.counts, self.touched)
        return int(sweep_worms(self.random, self.step, *places, sweeps, self.worms, seen, draws))


@bare
def destination(random, i, p, kappa, tilt, accept, alias, table):
    """The next cell of one from row i who is in hand; ``table`` counts those in place."""
    size = tilt.size
    if kappa[i] == 0.0:
        where = uniform(random) * size
        j = int(where)
        return j if where - j < accept[i * size + j] else alias[i * size + j]
    total = 0.0
    for j in range(size):
        if p[i, j] > 0.0:
            total += tilt[j] * (table[i, j] + kappa[i] * p[i, j])
    left, last = uniform(random) * total, 0
    for j in range(size):
        if p[i, j] > 0.0 and tilt[j] > 0.0:
            last = j
            left -= tilt[j] * (table[i, j] + kappa[i] * p[i, j])
            if left < 0.0:
                break
    return last


@bare
def worm(random, step, row, column, owner, table, touched):
    """One worm; ``owner[k]`` is the individual in place k, ``table`` follows. Returns the steps made, −1 where it was taken back."""
    p, kappa, tilt, accept, alias, start = (
        step.p, step.kappa, step.tilt, step.accept, step.alias, step.start)  # fmt: skip
    first = below(random, owner.size)
    hole, hand, length = column[first], owner[first], 0
    table[row[hand], hole] -= 1
    while True:
        i = row[hand]
        j = destination(random, i, p, kappa, tilt, accept, alias, table)
        if j == hole:
            break
        if length == touched.size:
            hand = _take_back(row, column, owner, table, touched, hand)
            length = -1
            break
        k = start[j] + below(random, start[j + 1] - start[j])
        other = owner[k]
        owner[k] = hand
        table[i, j] += 1
        table[row[other], j] -= 1
        touched[length] = k
        length += 1
        hand = other
    owner[first] = hand
    table[row[hand], hole] += 1
    return length


@bare
def _take_back(row, column, owner, table, touched, hand):
    """Undo all steps of a worm, last first; returns who was in hand at first."""
    for back in range(touched.size - 1, -1, -1):
        k = touched[back]
        other = owner[k]
        owner[k] = hand
        table[row[hand], column[k]] += 1
        table[row[other], column[k]] -= 1
        hand = other
    return hand


@kernel
def sweep_worms(random, step, row, column, owner, table, touched, sweeps, worms, seen, draws):
    """Sweeps of so many worms; returns the steps they made.

    After every sweep ``seen[i, j, n]`` counts that the entry was n, where it is wide enough; ``draws`` gets evenly spaced tables.
    """
    steps, kept = 0, draws.shape[0]
    thin = sweeps // max(kept, 1)
    for sweep in range(sweeps):
        for _ in range(worms):
            steps += 1 + abs(worm(random, step, row, column, owner, table, touched))
        for i in range(seen.shape[0]):
            for j in range(seen.shape[1]):
                seen[i, j, table[i, j]] += 1.0
        if kept > 0 and (sweep + 1) % thin == 0 and (sweep + 1) // thin <= kept:
            for i in range(table.shape[0]):
                for j in range(table.shape[1]):
                    draws[(sweep + 1) // thin - 1, i, j] = table[i, j]
    return steps
