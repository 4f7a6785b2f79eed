r"""A Gaussian on a rooted tree of feature vectors, and the two passes that answer every question about it.

Deviations from the centre, :math:`\delta_v = z_v - N\mu_v`, follow

.. math:: \delta_v \mid \delta_u \sim N(b_v + P_v^\top \delta_u,\; R_v R_v^\top), \qquad u = \text{parent}(v),

and every node carries Gaussian sites :math:`\exp(-\tfrac12\delta^\top\Lambda\delta + \eta^\top\delta)`. Going up, v is integrated out:
with :math:`B = I + R^\top\Lambda R = CC^\top`, :math:`X = RC^{-\top}`, :math:`Y = \Lambda X`,

.. math:: \Lambda' = \Lambda - YY^\top, \quad \eta' = \eta - YX^\top\eta, \quad
          \Lambda_u \mathrel{+}= P\Lambda'P^\top, \quad \eta_u \mathrel{+}= P(\eta' - \Lambda' b)

Going down, :math:`\delta_v \mid \delta_u, y \sim N(A\delta_u + a,\; XX^\top)` with :math:`A = (I - XY^\top)P^\top`. Only B is
factored, and B ≥ I whenever the sites are: singular noise, unreachable cells and deterministic steps are ordinary input.

**Known before any iteration**: exact observations as constraints, Gaussian readings as potentials.

A margin known exactly says :math:`C_v\delta_v = c_v`; it is imposed as a constraint, not as a tiny variance. With
:math:`\delta_v = P^\top\delta_u + R\xi` that is :math:`G\xi = c_v - C_vP^\top\delta_u`, :math:`G = C_vR`. A pivoted QR of
:math:`G^\top` picks as many independent rows as G has rank; those fix that many directions of ξ and leave a Gaussian factor on u;
the remaining rows say nothing about ξ and are constraints on u, passed on. At the root what remains must be 0 = 0, or the data
contradict each other. Rows are picked, not mixed, so the density is per unit of the chosen counts: the one that approximates a
probability.

**Any table of a clique from the clique's features.** Given features :math:`f = F z_C` of a clique table with expected value M,

.. math:: E[G z_C \mid f] = G\,\mathrm{diag}(M) F^\top K^{+} f, \quad K = F\,\mathrm{diag}(M) F^\top, \qquad
          \mathrm{cov}[G z_C \mid f] = G\,\mathrm{diag}(M)\,G^\top - H K^{+} H^\top, \quad H = G\,\mathrm{diag}(M)F^\top .

``G`` sums the clique's entries into the table asked for. The same algebra serves an edge, a larger clique, any margin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from scipy.linalg import qr, solve_triangular
from scipy.sparse import csr_array, diags_array

from headcount._device import host
from headcount._linalg import (
    add_to_diagonal,
    apply,
    cholesky,
    divide_right,
    fortran,
    gram,
    mirror,
    product,
    sandwich,
    symmetric_product,
    threads_for,
)
from headcount.individual import ModelError
from headcount.structure.base import Field, NotPositiveDefinite, margin_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headcount._linalg import Array
    from headcount._types import Index
    from headcount.structure._tree import EdgeStep
    from headcount.structure.base import KnownCounts
    from headcount.tables import Domain, Scope


LOG_2PI = float(np.log(2 * np.pi))
PIVOT_ROUNDING = 3e-8
"""A pivot below this, relative to the largest standard deviation that the rows may have (weight · √N), counts as zero. A pivot p
leaves a precision 1/p² on the parent, whose product with the parent's factor is rounded by about 1e-16 N/p²: below 1e-8 √N that
rounding exceeds the identity it is added to, and the sum is no longer positive definite."""
EMPTY_ROUNDING = 1e-10
"""Coefficients of a passed-on constraint below this, relative to its largest, are rounding."""
CONTRADICTION = 1e-7
"""Individuals, relative to N, by which a constraint without coefficients may miss zero before the data contradict each other:
the expected counts it is measured from are rounded by about 1e-13 N per pass."""
NULL_SPACE = 1e-11
"""Eigenvalues of K scaled to unit diagonal below this, relative to the largest, are its null space: rounding leaves about 1e-15
times the number of entries of a table."""
NO_FREEDOM = 1e-13
"""A variance given the features below this, relative to the expected count, is rounding of two equal terms."""


@dataclass(frozen=True)
class Node:
    """One feature vector: how it follows from its parent, and what is known of it besides the sites."""

    parent: int
    factor: Array
    """R, ``(d, r)``."""
    gain: Array | None = None
    """P, ``(d of the parent's block, d)``; None at the root."""
    block: slice = field(default_factory=lambda: slice(None))
    """The parent's features that drive this node."""
    offset: Array | None = None
    precision: Array | None = None
    potential: Array | None = None
    log_scale: float = 0.0

    @property
    def size(self) -> int:
        """Number of features d."""
        return int(self.factor.shape[0])

    def with_potential(self, where: slice | np.ndarray, precision: Array, potential: Array) -> Node:
        """The node with a further Gaussian factor on some of its features."""
        size = self.size
        lam = np.zeros((size, size), order="F") if self.precision is None else self.precision.copy(order="F")
        eta = np.zeros(size) if self.potential is None else self.potential.copy()
        lam[(where, where) if isinstance(where, slice) else np.ix_(where, where)] += precision
        eta[where] += potential
        return replace(self, precision=lam, potential=eta)


class Upward(NamedTuple):
    """What the upward pass leaves at a node for the way down."""

    x: Array
    """X, ``(d, r)``."""
    y: Array
    """Y, ``(d, r)``."""
    potential: Array
    """η at this node, messages from below included, corrected for the offset."""


@dataclass(frozen=True)
class Solution:
    """Posterior means, covariances and gains at every node, and log Z."""

    tree: GaussianTree
    mean: tuple[Array, ...]
    variance: tuple[Array, ...]
    log_z: float
    upward: tuple[Upward, ...]
    covariance: tuple[Array, ...] | None = None

    def gain(self, v: int) -> Array:
        """A of the module's docstring: the posterior regression of node v on its parent's block."""
        return _posterior_gain(self.tree.nodes[v], self.upward[v])


@dataclass(frozen=True)
class GaussianTree:
    """Nodes in topological order, the root first."""

    nodes: tuple[Node, ...]

    def solve(
        self, tau: Sequence[Array | None], nu: Sequence[Array | None], *, keep: bool = False
    ) -> Solution:
        """Moments under diagonal sites ``exp(−½ tau δ² + nu δ)``; ``keep`` retains the full covariances.

        Raises
        ------
        NotPositiveDefinite
            When negative precisions outweigh the prior.
        """
        with threads_for(max(node.size for node in self.nodes)):
            upward, log_z = self._up(tau, nu)
            mean: list[Array] = []
            variance: list[Array] = []
            covariance: list[Array] = []
            last_use = self._last_use()
            for v, (node, up) in enumerate(zip(self.nodes, upward, strict=True)):
                a, q = _downward(node, up, mean, covariance)
                mean.append(a)
                variance.append(np.maximum(np.diagonal(q), 0.0))  # a variance; below zero is rounding
                covariance.append(mirror(q) if keep else q)
                if not keep:
                    for u in (v, node.parent):
                        if u >= 0 and last_use[u] == v:
                            covariance[u] = _EMPTY
        return Solution(
            self, tuple(mean), tuple(variance), log_z, tuple(upward), tuple(covariance) if keep else None
        )

    def _last_use(self) -> list[int]:
        """For every node the last node whose downward step reads its covariance (itself when it is a leaf)."""
        last = list(range(len(self.nodes)))
        for v, node in enumerate(self.nodes):
            if node.parent >= 0:
                last[node.parent] = v
        return last

    def _up(self, tau: Sequence[Array | None], nu: Sequence[Array | None]) -> tuple[list[Upward], float]:
        count = len(self.nodes)
        waiting: list[tuple[Array, Array] | None] = [None] * count
        upward: list[Upward] = [None] * count  # type: ignore[list-item]
        log_z = 0.0
        for v in range(count - 1, -1, -1):
            node = self.nodes[v]
            lam, eta = _at_node(node, tau[v], nu[v], waiting[v])
            waiting[v] = None
            if node.offset is not None:  # move to deviations from the offset
                shift = symmetric_product(lam, node.offset[:, None])[:, 0]
                log_z += float(eta @ node.offset - 0.5 * node.offset @ shift)
                eta = eta - shift
            x, y, w, log_b = eliminate(node.factor, lam, eta)
            log_z += 0.5 * float(w @ w) - log_b + node.log_scale
            upward[v] = Upward(x, y, eta)
            if node.gain is not None:
                lam = gram(y, scale=-1.0, onto=lam)
                eta = eta - apply(y, w)
                above = waiting[node.parent] or _nothing_at(self.nodes[node.parent])
                above[0][node.block, node.block] += sandwich(node.gain, lam)
                above[1][node.block] += apply(node.gain, eta)
                waiting[node.parent] = above
        return upward, log_z


_EMPTY = np.empty((0, 0))


def _nothing_at(node: Node) -> tuple[Array, Array]:
    """No precision and no potential on a node's features."""
    like = node.factor
    return np.zeros_like(like, shape=(node.size, node.size)), np.zeros_like(like, shape=node.size)


def _at_node(
    node: Node, tau: Array | None, nu: Array | None, messages: tuple[Array, Array] | None
) -> tuple[Array, Array]:
    """Everything known at a node: its own sites, its fixed potentials, the messages from below (lower triangle; reused)."""
    lam, eta = messages or _nothing_at(node)
    if node.precision is not None:
        lam = lam + node.precision
    if node.potential is not None:
        eta = eta + node.potential
    if tau is not None:
        add_to_diagonal(lam, tau)
    if nu is not None:
        eta = eta + nu
    return lam, eta


def eliminate(factor: Array, lam: Array, eta: Array) -> tuple[Array, Array, Array, float]:
    """X, Y, Xᵀη and ½ log det B for noise factor R and site precision Λ (see the module's docstring)."""
    half = symmetric_product(lam, factor)
    b = product(factor, half, left=True)
    add_to_diagonal(b, 1.0)
    c = cholesky(b)
    if c is None:
        raise NotPositiveDefinite
    x = divide_right(factor.copy(order="F"), c)
    y = divide_right(half, c)
    return x, y, apply(x, eta, transpose=True), float(np.log(np.diagonal(c)).sum())


def _downward(node: Node, up: Upward, mean: list[Array], covariance: list[Array]) -> tuple[Array, Array]:
    """Posterior mean and covariance (lower triangle) of a node, from those of the nodes before it."""
    q = gram(up.x)
    a = apply(up.x, apply(up.x, up.potential, transpose=True))
    if node.offset is not None:
        a = a + node.offset
    if node.gain is None:
        return a, q
    gain = _posterior_gain(node, up)
    above = fortran(covariance[node.parent][node.block, node.block])
    return a + apply(gain, mean[node.parent][node.block]), sandwich(gain, above, onto=q)


def _posterior_gain(node: Node, up: Upward) -> Array:
    """A = (I − XYᵀ) Pᵀ."""
    if node.gain is None:
        message = "the root has no parent"
        raise ValueError(message)
    yp = product(up.y, node.gain, left=True, right=True)
    return fortran(node.gain.T) - product(up.x, yp)


class Contradiction(ValueError):
    """Exact observations that cannot all hold."""


@dataclass(frozen=True)
class Placement:
    """Where a site's entries are: features of a node, or entries of the table between a node and its parent."""

    node: int
    features: np.ndarray
    on_table: bool = False


@dataclass(frozen=True)
class PlacedSites:
    """All sites among the features of a Gaussian tree, and what is known about them beforehand."""

    placements: tuple[Placement, ...]
    known: KnownCounts

    def settle(self, nodes: Sequence[Node], *, scale: float) -> GaussianTree:
        """The law with correlated readings as fixed potentials and exact sites as constraints."""
        out = list(nodes)
        for k, (precision, potential) in self.known.readings.items():
            place = self.placements[k]
            out[place.node] = out[place.node].with_potential(place.features, precision, potential)
        constraints: dict[int, list[Constraint]] = {}
        for k, value in self.known.exact.items():
            place = self.placements[k]
            rows = np.zeros((len(value), out[place.node].size))
            rows[np.arange(len(value)), place.features] = 1.0
            constraints.setdefault(place.node, []).append((rows, np.asarray(value, dtype=float)))
        return condition(GaussianTree(tuple(out)), constraints, scale=scale)

    def by_node(
        self, tree: GaussianTree, tau: Sequence[Array], nu: Sequence[Array]
    ) -> tuple[list[Array | None], list[Array | None]]:
        """Precisions and potentials of the sites on every node's features; None for a node without sites."""
        tau_v: list[Array | None] = [None] * len(tree.nodes)
        nu_v: list[Array | None] = [None] * len(tree.nodes)
        for k, place in enumerate(self.placements):
            if place.on_table or k in self.known.exact:
                continue
            for held, values in ((tau_v, tau[k]), (nu_v, nu[k])):
                at = held[place.node]
                if at is None:
                    at = held[place.node] = np.zeros(tree.nodes[place.node].size)
                np.add.at(at, place.features, values)
        return tau_v, nu_v

    def read(
        self, solution: Solution, tables: Mapping[int, tuple[Array, Array]]
    ) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """Mean and variance at every site's entries; ``tables`` holds those of tables with sites on them."""
        mean, variance = [], []
        for place in self.placements:
            of_node = (host(solution.mean[place.node]), host(solution.variance[place.node]))
            both = tables[place.node] if place.on_table else of_node
            mean.append(both[0].reshape(-1)[place.features])
            variance.append(both[1].reshape(-1)[place.features])
        return tuple(mean), tuple(variance)


Constraint = tuple["Array", "Array"]
"""Rows and values: ``rows @ delta = value`` at one node."""


def condition(
    tree: GaussianTree, constraints: Mapping[int, Sequence[Constraint]], *, scale: float
) -> GaussianTree:
    """Condition the law on exact linear constraints at some nodes; ``scale`` (the population) sets what counts as rounding.

    The result's nodes have smaller noise factors, offsets, and the Gaussian factors that the constraints leave on their parents.
    """
    nodes = list(tree.nodes)
    waiting = {v: list(found) for v, found in constraints.items()}
    for v in range(len(nodes) - 1, -1, -1):
        if v not in waiting:
            continue
        node = nodes[v]
        rows, value = (np.concatenate(part) for part in zip(*waiting[v], strict=True))
        picked, rest, q, lower = independent_rows(rows @ node.factor, np.abs(rows).sum(axis=1), scale)
        free, above, log_scale = _fix(node, rows[picked], value[picked], q, lower)
        nodes[v] = replace(free, log_scale=node.log_scale + log_scale)
        if node.gain is not None and above is not None:
            u = node.parent
            nodes[u] = nodes[u].with_potential(node.block, *above)
        if len(rest):
            mix = _mixing(rows @ node.factor, picked, rest, q, lower)
            _pass_on(
                waiting,
                nodes,
                node,
                rows[rest] - mix @ rows[picked],
                value[rest] - mix @ value[picked],
                scale=scale,
            )
    return GaussianTree(tuple(nodes))


def independent_rows(
    g: Array, weight: Array, scale: float, *, rounding: float = PIVOT_ROUNDING
) -> tuple[Index, Index, Array, Array]:
    """Pivoted QR of Gᵀ: positions of independent rows, the others, the orthonormal basis and the triangular factor.

    Entries of G are standard deviations of counts, at most ``weight·√N``; a pivot below ``rounding`` of that is zero.
    """
    if g.size == 0:
        return (
            np.empty(0, np.intp),
            np.arange(g.shape[0]),
            np.zeros((g.shape[1], g.shape[1])),
            np.zeros((0, 0)),
        )
    q, r, pivot = qr(g.T, mode="full", pivoting=True)
    diagonal = np.abs(np.diagonal(r))
    floor = rounding * np.sqrt(scale) * float(weight.max())
    rank = int((diagonal > floor).sum())
    return pivot[:rank], pivot[rank:], q, r[:rank, :rank].T


def _fix(
    node: Node, rows: Array, value: Array, q: Array, lower: Array
) -> tuple[Node, tuple[Array, Array] | None, float]:
    """Impose the independent rows: the node that remains, the factor left on the parent, and log of its constant."""
    rank = len(value)
    moved = node.factor @ q[:, :rank]
    through = solve_triangular(lower, rows, lower=True) if rank else np.zeros((0, node.size))
    base = np.zeros(node.size) if node.offset is None else node.offset
    target = solve_triangular(lower, value - rows @ base, lower=True) if rank else np.zeros(0)
    offset = base + moved @ target
    log_scale = (
        -0.5 * float(target @ target) - 0.5 * rank * LOG_2PI - float(np.log(np.abs(np.diagonal(lower))).sum())
    )
    factor = fortran(node.factor @ q[:, rank:])
    if node.gain is None:
        return replace(node, factor=factor, offset=offset), None, log_scale
    seen = through @ node.gain.T
    gain = fortran(node.gain - (moved @ seen).T)
    return replace(node, factor=factor, offset=offset, gain=gain), (seen.T @ seen, seen.T @ target), log_scale


def _mixing(g: Array, picked: Index, rest: Index, q: Array, lower: Array) -> Array:
    """How the dependent rows of G are made of the picked ones."""
    rank = len(picked)
    if rank == 0:
        return np.zeros((len(rest), 0))
    coordinates = g[rest] @ q[:, :rank]
    return np.asarray(solve_triangular(lower, coordinates.T, lower=True, trans="T").T)


def _pass_on(
    waiting: dict[int, list[Constraint]],
    nodes: list[Node],
    node: Node,
    rows: Array,
    value: Array,
    *,
    scale: float,
) -> None:
    """Constraints that do not touch this node's noise are constraints on its parent; at the root they must be empty."""
    offset = 0.0 if node.offset is None else rows @ node.offset
    value = value - offset
    up = np.zeros((len(rows), 0)) if node.gain is None else rows @ node.gain.T
    empty = np.abs(up).max(axis=1, initial=0.0) <= EMPTY_ROUNDING * np.maximum(
        np.abs(rows).max(axis=1, initial=0.0), 1.0
    )
    wrong = empty & (np.abs(value) > CONTRADICTION * scale)
    if wrong.any():
        message = f"exact observations contradict each other by {np.abs(value[wrong]).max():g} individuals"
        raise Contradiction(message)
    if (~empty).any():
        wide = np.zeros((int((~empty).sum()), nodes[node.parent].size))
        wide[:, node.block] = up[~empty]
        waiting.setdefault(node.parent, []).append((wide, value[~empty]))


@dataclass(frozen=True)
class CliqueView:
    """A clique's table, and the features that carry it: the parent's block it depends on, then its own node's."""

    domain: Domain
    table: Array
    """M, flat."""
    node: int
    rows: Callable[[], Array | csr_array]
    """Makes F, ``(block of the parent + features of the node, table)``; large, so only when asked."""

    @property
    def features(self) -> csr_array:
        """F: of an edge two entries per column, and not kept, as every step has its own."""
        return csr_array(self.rows())

    @property
    def weighted(self) -> csr_array:
        """F diag(M)."""
        return self.features @ diags_array(self.table)

    def margin(self, scope: Scope) -> csr_array:
        """G: the map from the flat clique table to the flat table of ``scope``."""
        return margin_rows(self.domain, scope)

    def lifted(self, scope: Scope) -> csr_array:
        """G diag(M) Fᵀ: the covariance of a table with the clique's features before these are known, one row per entry."""
        return self.margin(scope) @ self.weighted.T

    @cached_property
    def inverse(self) -> Array:
        """K⁺ of the module's docstring, scaled to unit diagonal before its null space is cut."""
        k = (self.weighted @ self.features.T).toarray()
        diagonal = np.diagonal(k)
        scale = np.sqrt(
            np.where(diagonal > 0, diagonal, 1.0)
        )  # rows without anyone are zero, whatever their scale
        values, vectors = np.linalg.eigh(k / np.outer(scale, scale))
        live = values > NULL_SPACE * float(values.max(initial=0.0))
        root = (vectors[:, live] / np.sqrt(values[live])) / scale[:, None]
        return root @ root.T


class TreeField(Field):
    """The posterior of a Gaussian tree whose nodes carry cliques; ``steps`` gives trees their faster edge formulas."""

    def __init__(
        self,
        solution: Solution,
        cliques: Sequence[CliqueView],
        *,
        cells: Mapping[object, tuple[int, int]] | None = None,
        steps: Mapping[int, EdgeStep] | None = None,
        home: Callable[[], Field] | None = None,
    ) -> None:
        self.solution, self.cliques, self._home = solution, tuple(cliques), home
        self.cells = {} if cells is None else cells
        self.steps = {} if steps is None else steps
        self._gains: dict[int, Array] = {}

    @cached_property
    def home(self) -> Field | None:
        """The same posterior in NumPy's arrays, where this one is on a device."""
        return None if self._home is None else self._home()

    def mean(self, scope: Scope) -> Array:
        """See :class:`Field`."""
        if (found := self._directly(scope, "mean")) is not None:
            return found
        view = self._view(scope)
        block = [self.solution.mean[p][i] for p, i in self._parts(view)]
        return (self._regression(view, scope) @ np.concatenate(block)).reshape(view.domain.part(scope).shape)

    def _directly(self, scope: Scope, what: Literal["mean", "variance"]) -> Array | None:
        """Moments of the cells that a node begins with, or of a step's table; None where they follow from the clique's features."""
        if len(scope) == 1 and scope[0] in self.cells:
            v, size = self.cells[scope[0]]
            return np.asarray(host(getattr(self.solution, what)[v][:size]))
        view = self._view(scope)
        step = self.steps.get(view.node) if set(scope) == set(view.domain.scope) else None
        if step is None:
            return None
        table = host(getattr(step, what)(self.solution, view.node))
        return np.asarray(view.domain.project(table, scope))

    def variance(self, scope: Scope) -> Array:
        """See :class:`Field`."""
        if (found := self._directly(scope, "variance")) is not None:
            return found
        view = self._view(scope)
        g = view.margin(scope)
        w = self._regression(view, scope)
        own = g @ view.table
        free = own - view.lifted(scope).multiply(w).sum(axis=1)
        free = np.where(free > NO_FREEDOM * own, free, 0.0)
        through = np.einsum("ij,jk,ik->i", w, self._feature_covariance(view, view), w)
        return (free + through).reshape(view.domain.part(scope).shape)

    def covariance(self, a: Scope, b: Scope) -> Array:
        """See :class:`Field`."""
        if self.home is not None:
            return self.home.covariance(a, b)
        if len(a) == len(b) == 1 and a[0] in self.cells and b[0] in self.cells:
            (u, size_u), (v, size_v) = self.cells[a[0]], self.cells[b[0]]
            return self._cross(u, v)[:size_u, :size_v]
        x, y = self._view(a), self._view(b)
        if set(b) <= set(x.domain.scope):
            y = x
        elif set(a) <= set(y.domain.scope):
            x = y
        if x.domain.part(a).size < y.domain.part(b).size:
            return self.covariance(b, a).T
        # Products from the right: the table of an edge has L² rows, which are not multiplied by matrices of its features.
        inner = self._feature_covariance(x, y) @ self._regression(y, b).T
        if x is y:
            inner -= y.lifted(b).T.toarray()
        result = np.asarray(x.lifted(a) @ (x.inverse @ inner))
        if x is y:
            own = (x.margin(a) @ diags_array(x.table) @ x.margin(b).T).tocoo()
            result[own.row, own.col] += own.data
        return result

    def sample(self, size: int, *, rng: np.random.Generator) -> dict[Scope, Array]:
        """See :class:`Field`; features top-down, then every clique's table given its features."""
        if self.home is not None:
            return self.home.sample(size, rng=rng)
        drawn: list[Array] = []
        for v, node in enumerate(self.solution.tree.nodes):
            up = self.solution.upward[v]
            a = up.x @ (up.x.T @ up.potential) + (0.0 if node.offset is None else node.offset)
            z = a + rng.standard_normal((size, up.x.shape[1])) @ up.x.T
            if node.gain is not None:
                z = z + drawn[node.parent][:, node.block] @ self.gain(v).T
            drawn.append(z)
        return {view.domain.scope: self._sample_table(view, drawn, rng) for view in self.cliques}

    def _sample_table(self, view: CliqueView, drawn: list[Array], rng: np.random.Generator) -> Array:
        """One table per draw: any table with the right covariance, moved onto the clique's features."""
        step = self.steps.get(view.node)
        if step is not None:
            size_u, size_v = step.shape
            parent = self.solution.tree.nodes[view.node].parent
            above, own = drawn[parent][:, :size_u], drawn[view.node][:, :size_v]
            return step.sample(above, own, rng=rng)
        f = np.hstack([drawn[p][:, i] for p, i in self._parts(view)])
        free = rng.standard_normal((len(f), view.table.size)) * np.sqrt(view.table)
        j = view.weighted.T @ view.inverse
        return view.domain.table(free + (f - free @ view.features.T) @ j.T)

    def gain(self, v: int) -> Array:
        """The posterior regression of node v on its parent's block."""
        if v not in self._gains:
            self._gains[v] = self.solution.gain(v)
        return self._gains[v]

    def _view(self, scope: Scope) -> CliqueView:
        for view in self.cliques:
            if set(scope) <= set(view.domain.scope):
                return view
        raise ModelError(
            f"{scope} does not lie inside one clique of the model; ask for the covariance of two parts instead"
        )

    def _regression(self, view: CliqueView, scope: Scope) -> Array:
        """H K⁺."""
        return np.asarray(view.lifted(scope) @ view.inverse)

    def _feature_covariance(self, x: CliqueView, y: CliqueView) -> Array:
        """Posterior covariance between two cliques' features."""
        return np.block([[self._cross(p, q)[i, j] for q, j in self._parts(y)] for p, i in self._parts(x)])

    def _parts(self, view: CliqueView) -> list[tuple[int, slice]]:
        node = self.solution.tree.nodes[view.node]
        own = (view.node, slice(None))
        return [own] if node.gain is None else [(node.parent, node.block), own]

    def _cross(self, u: int, v: int) -> Array:
        """Posterior covariance between two nodes, through their nearest common ancestor."""
        assert self.solution.covariance is not None
        nodes = self.solution.tree.nodes
        left: Array | None = None
        right: Array | None = None
        while u != v:
            if u > v:  # topological order: the later node is never an ancestor of the earlier
                gain = self._wide_gain(u)
                u, left = nodes[u].parent, gain if left is None else left @ gain
            else:
                gain = self._wide_gain(v)
                v, right = nodes[v].parent, gain if right is None else right @ gain
        found = self.solution.covariance[u]
        found = found if left is None else left @ found
        return found if right is None else found @ right.T

    def _wide_gain(self, v: int) -> Array:
        """The posterior regression of node v on all features of its parent."""
        node = self.solution.tree.nodes[v]
        wide = np.zeros((node.size, self.solution.tree.nodes[node.parent].size))
        wide[:, node.block] = self.gain(v)
        return wide
