r"""The prior covariance of all counts of a chain or tree, as an operator.

For v on the nodes of a rooted tree and h on some of its moves, one pass up and one pass down give
:math:`f_t(i) = E[\sum_s v_s(x_s) + \sum_c h_c(x_u, x_c) \mid x_t = i]`,

.. math:: b_u = v_u + \sum_{c\,\text{child}} a_c, \quad a_c = P_c b_c + (P_c\circ h_c)\mathbf 1, \qquad
          f_c = b_c + \bar P_c (f_u - a_c) + \ldots, \qquad K v = N\mu\circ(f - \bar E),

:math:`\bar P_c(j, i) = \mu_u(i)P_c(i, j)/\mu_c(j)` the reversed kernel and :math:`\bar E = E[\sum v + \sum h]`: O(non-zeros) time and
memory, any number of columns at once. The flow from i to j has the covariance :math:`M_{ij}(d_c(i) + h_{ij} + b_c(j) - \bar E)` with
all of it, :math:`d_c = f_u - a_c`.

Individuals that move together scatter more: the noise of the moves out of i has the factor :math:`\phi_c(i)`, that of the root
:math:`\phi_0`. Then, f less :math:`\bar E` from the start, :math:`\psi_c(j) = \sum_i\bar P_c(j,i)\phi_c(i)`,

.. math:: f_0 = \phi_0(b_0 - \bar E), \quad d_c = f_u - \phi_c a_c, \quad f_c = \bar P_c d_c + \psi_c b_c + \ldots, \quad
          \mathrm{cov}(n_{ij}, \cdot) = M_{ij}(d_c(i) + \phi_c(i)(h_{ij} + b_c(j))) .

Transitions are :math:`P_c = \mathrm{diag}(r_c)\,B\,\mathrm{diag}(c_c)`: one B for all steps of a homogeneous chain, whatever the tilts.
Sparse steps are passed over by compiled loops, dense ones (and all of them on another device) by matrix products.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from headcount._device import host, issparse, multiply_add, namespace, row_of_entries
from headcount.individual.rooted_tree import PackedMoves
from headcount.population.laplacian import inverse_or_zero
from headcount.structure._matrix_free_kernels import pass_down, pass_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headcount._linalg import Array
    from headcount.individual import FactoredTree


class SeenMoves(NamedTuple):
    """Moves that are counts of their own, sorted by edge: those that somebody looked at."""

    ends: np.ndarray
    """Where the moves into each node begin, (nodes + 1,)."""
    origin: np.ndarray
    dest: np.ndarray
    chance: Array
    """P_c(i, j)."""
    place: np.ndarray
    """Position among the edge's possible moves."""


class Passes(NamedTuple):
    """What the two passes find for columns v; see the module's docstring. Arrays are (entries, columns)."""

    up: Array
    """b."""
    side: Array
    """d_c = f_u − a_c, by child, on the parent's states (``side_at``)."""
    total: Array
    """f."""
    mean: Array
    """Ē by column."""
    held: Array
    """h at the seen moves."""


class CompiledStep(NamedTuple):
    """The moves into one node in a compiled loop's form: P = diag(scale) values diag(weights), and the counts they start from."""

    ends: np.ndarray
    columns: np.ndarray
    values: Array
    scale: Array
    weights: Array
    expected: Array


class PriorOperator:
    """K, on the vector of all nodes' entries followed by the moves that are seen.

    Parameters
    ----------
    law
        The individual's law, in factors.
    population
        N.
    edges
        Flat positions (parent, child) of the moves that are seen, by child; all of them possible.
    """

    def __init__(
        self, law: FactoredTree, population: float, edges: dict[int, np.ndarray] | None = None
    ) -> None:
        self.law, self.population, self.sizes = law, population, law.tree.sizes
        self.parents = np.asarray(law.tree.parents, dtype=np.int64)
        self.node = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        above = [0, *(self.sizes[u] for u in law.tree.parents[1:])]
        self.side_at = np.concatenate([[0], np.cumsum(above)]).astype(np.int64)
        self.xp = namespace(law.initial)
        self._held: dict[tuple[str, int], Array] = {}
        self._origins: dict[int, Array] = {}
        self.mu = np.concatenate(list(law.marginals))
        self.over_mu = inverse_or_zero(self.mu)
        self.rows, self.columns = (np.concatenate(list(part)) for part in (law.rows, law.columns))
        self.seen = self._seen({} if edges is None else edges)
        self.overdispersed = law.tree.common_phi is None
        """Whether steps have factors phi of their own; one factor for all is in the population."""
        self.compiled = all(sparse.issparse(m) for m in law.kernels[1:]) and len(self.sizes) > 1

    @property
    def entries(self) -> int:
        """Number of nodes' entries."""
        return int(self.node[-1])

    @property
    def size(self) -> int:
        """Entries and seen moves."""
        return self.entries + len(self.seen.chance)

    @property
    def moves(self) -> int:
        """Possible moves of all steps."""
        return sum(int(m.size) for m in self.law.kernels[1:])

    @cached_property
    def phi(self) -> Array:
        """phi of every step's origins, laid out as ``side``."""
        assert self.law.tree.phi is not None
        return np.concatenate([np.zeros(0), *self.law.tree.phi[1:]])

    @cached_property
    def psi(self) -> Array:
        r""":math:`\psi_c(j)`: phi of those who come to j; that of the root at its entries."""
        assert self.law.tree.phi is not None
        found = [np.full(self.sizes[0], float(self.law.tree.phi[0][0]))]
        for v in range(1, len(self.sizes)):
            left = self.phi_of(v) * self.law.rows[v] * self.mu[self.entries_of(int(self.parents[v]))]
            arrived = self.law.columns[v] * (self.law.kernels[v].T @ left)
            found.append(arrived * self.over_mu[self.entries_of(v)])
        return np.concatenate(found)

    @cached_property
    def seen_at(self) -> tuple[Any, Any, Any]:
        """Of the seen moves: the origin among all entries, the origin in ``side``'s layout, and the destination among all entries."""
        node = np.repeat(np.arange(len(self.sizes)), np.diff(self.seen.ends))
        above, side, own = map(
            self.xp.asarray, (self.node[self.parents[node]], self.side_at[node], self.node[node])
        )
        return above + self.seen.origin, side + self.seen.origin, own + self.seen.dest

    @cached_property
    def seen_phi(self) -> Array:
        """phi of the origins of the seen moves."""
        return self.phi[self.seen_at[1]]

    def phi_of(self, v: int) -> Array | float:
        """phi of the states from which moves lead to v; 1 without overdispersion."""
        return self.phi[self.origins_of(v)] if self.overdispersed else 1.0

    @cached_property
    def expected(self) -> Array:
        """N μ of entries and of seen moves."""
        counts = self.population * self.mu
        return np.concatenate([counts, counts[self.seen_at[0]] * self.seen.chance])

    def entries_of(self, v: int) -> slice:
        """The entries of node v."""
        return slice(int(self.node[v]), int(self.node[v + 1]))

    def origins_of(self, v: int) -> slice:
        """The states from which moves lead to v, in ``side``'s layout."""
        return slice(int(self.side_at[v]), int(self.side_at[v + 1]))

    def seen_into(self, v: int) -> slice:
        """The seen moves into v, among all seen ones."""
        return slice(int(self.seen.ends[v]), int(self.seen.ends[v + 1]))

    def step(self, v: int) -> CompiledStep:
        """The moves into node v, with the counts (times phi) that scatter. The root is a step from one cell that holds everyone."""
        if v == 0:
            ends, columns = full_index(1, self.sizes[0])
            return CompiledStep(
                ends,
                columns,
                self.mu[: self.sizes[0]],
                np.ones(1),
                np.ones(self.sizes[0]),
                np.array([self.population * self.root_phi]),
            )
        matrix, u = self.law.kernels[v], int(self.parents[v])
        expected = self.population * self.phi_of(v) * self.mu[self.entries_of(u)]
        if sparse.issparse(matrix):
            ends, columns, values = matrix.indptr, matrix.indices, matrix.data
        else:
            ends, columns = full_index(*matrix.shape)
            values = np.ascontiguousarray(matrix, dtype=float).reshape(-1)
        ends, columns = ends.astype(np.int64, copy=False), columns.astype(np.int32, copy=False)
        return CompiledStep(ends, columns, values, self.law.rows[v], self.law.columns[v], expected)

    def origins(self, v: int) -> Array:
        """The origin of every possible move into v, of a sparse step."""
        matrix = self.law.kernels[v]
        if id(matrix) not in self._origins:
            self._origins[id(matrix)] = row_of_entries(matrix)
        return self._origins[id(matrix)]

    def along(self, v: int, above: Array, own: Array) -> tuple[Array, Array]:
        """Values of the parent's and of v's states (first axis), side by side at the possible moves into v.

        Dense steps have them as (L_u, 1) and (1, L_v), which broadcast; sparse ones as (moves,). Further axes come last.
        """
        matrix = self.law.kernels[v]
        if issparse(matrix):
            return above[self.origins(v)], own[matrix.indices]
        return above[:, None], own[None, :]

    def chances(self, v: int) -> Array:
        """P of the possible moves into v: (L_u, L_v), or (moves,) of a sparse step."""
        matrix = self.law.kernels[v]
        rows, columns = self.along(v, self.law.rows[v], self.law.columns[v])
        return rows * (matrix.data if issparse(matrix) else matrix) * columns

    def table(self, v: int) -> Array:
        """Expected moves into v, as :meth:`chances`."""
        above = self.population * self.mu[self.entries_of(int(self.parents[v]))]
        return self.along(v, above, self.law.columns[v])[0] * self.chances(v)

    def flat_index(self, v: int) -> np.ndarray:
        """Positions of the possible moves into v in the flat (parent, child) table; NumPy's, like all positions of sites."""
        matrix = self.law.kernels[v]
        if not issparse(matrix):
            return np.arange(matrix.shape[0] * matrix.shape[1])
        return np.asarray(host(self.origins(v)).astype(np.int64) * self.sizes[v] + host(matrix.indices))

    def _seen(self, edges: dict[int, np.ndarray]) -> SeenMoves:
        """The moves of some edges, by their flat positions."""
        none = np.zeros(0, np.int64)
        parts = [(none, none, none, np.zeros(0), none)]
        for v, flat in sorted(edges.items()):
            possible = self.flat_index(v)
            order = np.argsort(possible, kind="stable")
            place = order[np.searchsorted(possible, flat, sorter=order)]
            origin, dest = np.divmod(flat, self.sizes[v])
            chance = host(self.chances(v).reshape(-1)[self.xp.asarray(place)])
            parts.append((np.full(len(flat), v), origin, dest, chance, place.astype(np.int64)))
        node, *held = (np.concatenate(part) for part in zip(*parts, strict=True))
        ends = np.searchsorted(node, np.arange(len(self.sizes) + 1))
        return SeenMoves(ends.astype(np.int64), *map(self.xp.asarray, held))

    @property
    def root_phi(self) -> float:
        """phi_0; 1 without overdispersion."""
        return float(self.law.tree.phi[0][0]) if self.overdispersed and self.law.tree.phi is not None else 1.0

    @cached_property
    def root_spread(self) -> Array | None:
        """Variance over mean of the root's counts, as a column, where these are independent numbers of groups; None elsewhere."""
        numbers = self.law.numbers
        if numbers is None:
            return None
        over = inverse_or_zero(host(self.expected[: self.sizes[0]]))
        return self.xp.asarray((numbers.variance * over)[:, None])

    def root(self, up: Array) -> tuple[Array, Array]:
        """f at the root, given b there, and Ē; groups with numbers of their own have K = diag(variance) there and no Ē."""
        if self.root_spread is not None:
            return self.root_spread * up, np.zeros_like(up[0])
        mean = self.mu[: self.sizes[0]] @ up
        return (mean + self.root_phi * (up - mean) if self.overdispersed else up), mean

    def passes(self, values: Array) -> Passes:
        """One pass up and one down, for columns (size, columns); nothing is overwritten."""
        found = self.run(values[: self.entries].copy(), values[self.entries :].copy(), keep=True)
        return found._replace(side=found.side.copy(), total=found.total.copy())

    def run(self, work: Array, held: Array, *, keep: bool) -> Passes:
        """The passes in place: ``work`` holds v and becomes b, or f unless ``keep``."""
        if self.compiled:
            width, root = work.shape[1], self.entries_of(0)
            side = self.buffer("side", width, int(self.side_at[-1]))
            total = self.buffer("total", width, self.entries) if keep else work
            scratch = self.buffer("scratch", width, 2 * max(self.sizes))
            seen = (*self.seen[:4], held)
            where, scales = (self.parents, self.node, self.side_at), (self.rows, self.columns)
            pass_up(*where, self._moves[:4], *scales, seen, work, side, scratch)
            (first, mean), up = self.root(work[root]), work
            if self.overdispersed:
                side *= self.phi[:, None]
                seen = (*seen[:3], self.seen_phi * self.seen.chance, held)
                up = np.multiply(self.psi[:, None], work, out=None if keep else work)
            total[root] = first
            law = (self.mu, self.over_mu)
            pass_down(*where, self._moves.turned, *scales, seen, *law, up, side, total, scratch)
            return Passes(work, side, total, mean, held)
        return self._in_products(work, held, keep=keep)

    def _in_products(self, values: Array, held: Array, *, keep: bool) -> Passes:
        r"""The passes by matrix products, two operations per step and direction: a device waits for each, however small.

        With :math:`\beta = c\circ b` and :math:`\gamma_c = r_c\mu_u\circ d_c`, and what seen moves add, s to a and t to f, put in before:

        .. math:: \beta_u \mathrel{+}= c_u r_c\circ B\beta_c, \qquad
                  \gamma_c = r_c\mu_u\circ(b_u + t_u - a_c) + c_u r_c\circ B^\top\gamma_u .
        """
        count, kernels, (own, at) = len(self.sizes), self.law.kernels, self._places
        chain, from_above, onto = self._scales
        from_seen, onto_seen = self._seen_sums(held)
        start = values if from_seen is None else self._with_children(values, from_seen)
        scaled = self.columns[:, None] * start
        beta = [scaled[own[v]] for v in range(count)]
        found = [scaled[:0]] * count
        for v in range(count - 1, 0, -1):
            u = int(self.parents[v])
            found[v] = kernels[v] @ beta[v]
            beta[u] = multiply_add(beta[u], chain[at[v]], found[v])
        a = self.rows[:, None] * np.concatenate(found)
        up = self._with_children(start, a)
        a = a if from_seen is None else a + from_seen
        first, mean = self.root(up[own[0]])
        total = self.psi[:, None] * up if self.overdispersed else up.copy()
        total = total if onto_seen is None else total + onto_seen
        a = self.phi[:, None] * a if self.overdispersed else a
        total[own[0]] = first
        gamma = from_above * (total[self._above] - a)
        moved = [np.zeros_like(beta[0])] * count
        for v in range(1, count):
            pushed = multiply_add(gamma[at[v]], chain[at[v]], moved[int(self.parents[v])])
            moved[v] = kernels[v].T @ pushed
        total += onto * np.concatenate(moved)
        return Passes(up, total[self._above] - a if keep else a, total, mean, held)

    @cached_property
    def _above(self) -> Any:
        """Where the parent's states of each child stand among all entries."""
        if self.law.tree.is_chain:
            return slice(0, int(self.side_at[-1]))
        return self.xp.asarray(np.concatenate([np.arange(*self.node[[u, u + 1]]) for u in self.parents[1:]]))

    @cached_property
    def _places(self) -> tuple[list[Any], list[Any]]:
        """Slices of all nodes among the entries, and of all steps' origins."""
        ends = self.side_at.tolist()
        return [self.entries_of(v) for v in range(len(self.sizes))], [slice(*pair) for pair in pairwise(ends)]

    @cached_property
    def _scales(self) -> tuple[Array, Array, Array]:
        """As columns: c_u r_c and r_c μ_u of all steps' origins (zero where no one is), and c / μ of all entries."""
        mu = self.mu[self._above]
        chain = np.where(mu > 0, self.columns[self._above] * self.rows, 0.0)
        return chain[:, None], (self.rows * mu)[:, None], (self.columns * self.over_mu)[:, None]

    def _with_children(self, values: Array, side: Array) -> Array:
        """Values of all entries, and what each child adds to its parent's."""
        made = values.copy()
        if self.law.tree.is_chain:
            made[self._above] += side
            return made
        for v in range(1, len(self.sizes)):
            made[self.entries_of(int(self.parents[v]))] += side[self.origins_of(v)]
        return made

    def _seen_sums(self, held: Array) -> tuple[Array | None, Array | None]:
        """What h at the seen moves adds to all a, and to all f; None without seen moves."""
        if not len(self.seen.chance):
            return None, None
        origin, side, dest = self.seen_at
        push = self.seen.chance[:, None] * held
        weight = self.mu[origin] * self.over_mu[dest]
        weight = weight * self.seen_phi if self.overdispersed else weight
        above = np.zeros_like(push, shape=(int(self.side_at[-1]), held.shape[1]))
        below = np.zeros_like(push, shape=(self.entries, held.shape[1]))
        self.xp.add.at(above, side, push)
        self.xp.add.at(below, dest, weight[:, None] * push)
        return above, below

    @cached_property
    def _moves(self) -> Any:
        """All kernels end to end: the tree's own, unless flows are tilted."""
        law = self.law
        return law.tree.moves if law.kernels is law.tree.transitions else PackedMoves.of(law.kernels)

    def values(self, found: Passes) -> Array:
        """K v from the passes: f (entries), and what the moves have in its place, both less Ē and times N μ."""
        return (self.pulls(found) - found.mean) * self.expected[:, None]

    def pulls(self, found: Passes) -> Array:
        """f at the entries; d(i) + phi(i) (h + b(j)) at the seen moves."""
        if not len(self.seen.chance):
            return found.total
        _, side, dest = self.seen_at
        ahead = found.up[dest] + found.held
        if self.overdispersed:
            ahead *= self.seen_phi[:, None]
        return np.concatenate([found.total, found.side[side] + ahead])

    def move_values(self, v: int, found: Passes) -> Array:
        """K v at all possible moves into v, (moves, columns), from the passes: M_ij (d(i) + phi(i) (h_ij + b(j)) − Ē)."""
        side, table = found.side[self.origins_of(v)] - found.mean, self.table(v)
        if self.overdispersed:
            phi = self.phi[self.origins_of(v)]
            side, table = side / phi[:, None], table * self.along(v, phi, self.mu[self.entries_of(v)])[0]
        above, own = self.along(v, side, found.up[self.entries_of(v)])
        pull = (above + own).reshape(-1, side.shape[1])
        moves = self.seen_into(v)
        pull[self.seen.place[moves]] += found.held[moves]
        return table.reshape(-1, 1) * pull

    def times(self, values: Array) -> Array:
        """K v, for columns (size, columns)."""
        return self.values(self.passes(values))

    def buffer(self, name: str, width: int, rows: int) -> Array:
        """An array that the next call uses again: allocating large ones costs as much as a pass."""
        key = (name, width)
        if key not in self._held or len(self._held[key]) < rows:
            self._held[key] = self.xp.empty((rows, width))
        return self._held[key]


@lru_cache(maxsize=16)
def full_index(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Row ends and columns of a dense table, as of a sparse one."""
    return (
        np.arange(0, rows * columns + 1, columns, dtype=np.int64),
        np.tile(np.arange(columns, dtype=np.int32), rows),
    )


def rows_of(matrices: Sequence[Any], width: int) -> sparse.csr_array:
    """Sparse rows one below the other; none at all make an empty matrix of that width."""
    return sparse.csr_array(sparse.vstack([sparse.csr_array((0, width)), *matrices]))
