r"""Chains and trees: cells of every node as features, one Gaussian step per edge.

A chain is the tree in which every node has one child, so both shapes are this one structure: O(T·L³) time, O(T·L²) memory.
Sums over a node's cells are further features of that node; sums over an edge's entries are further features of the child; sites on
single entries of an edge's table are absorbed by changing that step's weights (`EdgeStep.absorb`), so no L² × L² matrix appears.

**Flows** (edge tables) under the posterior of the nodes, and sites on single flows.

Given both nodes, the law of a table is :class:`~headcount.population.EdgeConditional`; here the nodes have their posterior. With
the posterior of the step written as :math:`\delta_v = P^\top\delta_u + X(\kappa - Y^\top P^\top\delta_u + \zeta)`, :math:`\zeta`
standard normal (``_gaussian_tree``), the table

.. math:: \delta_{uv}(i,j) = M_{ij}(\alpha_i + \beta_j) + \text{remainder}, \qquad
          \beta = Q^{-}(\delta_v - P^\top\delta_u), \quad \alpha = \delta_u/m - P\beta

splits into independent parts from :math:`\delta_u`, from :math:`\zeta` and from the table's own freedom given both nodes. Nothing
larger than L × L is formed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse import vstack as sparse_vstack

from headcount._compile import worth
from headcount._device import host, namespace
from headcount._linalg import (
    add_to_diagonal,
    apply,
    fortran,
    gram,
    largest,
    product,
    row_dots,
    sandwich,
    symmetric_product,
    threads_for,
)
from headcount.checks import instance
from headcount.individual import RootedTree
from headcount.population import EdgeConditional
from headcount.population.laplacian import inverse_or_zero
from headcount.structure._gaussian_tree import (
    CliqueView,
    GaussianTree,
    Node,
    PlacedSites,
    Placement,
    TreeField,
)
from headcount.structure._small import solve_small, upward_pass
from headcount.structure.base import (
    KnownCounts,
    Moments,
    NotPositiveDefinite,
    Structure,
    by_site,
    itself,
    margin_rows,
    selection,
)
from headcount.tables import Domain, dense

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headcount._linalg import Array
    from headcount.individual.rooted_tree import Place
    from headcount.observe import Site
    from headcount.structure._gaussian_tree import Solution, Upward
    from headcount.structure.base import Field

LOST = 1e-6
"""Rounding error of a flow's variance, relative to the expected flow, above which its squares are summed term by term. Matrix
products leave about 1e-16 times the squared potentials; those are large only where moves are almost certain."""


@dataclass(frozen=True)
class EdgeStep:
    """One edge (u, v) of a tree: the law of its table given the nodes, and where sites on the table move its centre."""

    edge: EdgeConditional
    """At M, or with sites on the table at ``1 / (1/M + tau)``."""
    shift: Array | None = None
    """d, ``(L_u, L_v)``; None without sites on the table."""

    @property
    def shape(self) -> tuple[int, int]:
        """(L_u, L_v)."""
        rows, columns = self.edge.table.shape
        return rows, columns

    def mean(self, solution: Solution, v: int) -> Array:
        """Posterior mean deviation of the table above node v."""
        size_u, size_v = self.shape
        delta_u = solution.mean[solution.tree.nodes[v].parent][:size_u]
        delta_v = solution.mean[v][:size_v]
        with threads_for(max(self.shape)):
            if self.shift is None:
                return self.edge.flow(delta_u, delta_v)
            row, column = self.shift.sum(axis=1), self.shift.sum(axis=0)
            return self.shift + self.edge.flow(delta_u - row, delta_v - column)

    def sample(self, delta_u: Array, delta_v: Array, *, rng: np.random.Generator) -> Array:
        """One table per row of the nodes' deviations: any table with the right covariance, moved onto the nodes."""
        table = self.edge.table
        free = rng.standard_normal((len(delta_u), *table.shape)) * np.sqrt(table)
        free += 0.0 if self.shift is None else self.shift
        return free + self.edge.flow(delta_u - free.sum(axis=2), delta_v - free.sum(axis=1))

    def variance(self, solution: Solution, v: int) -> Array:
        """Posterior variance of every entry of the table above node v."""
        node, (size_u, _) = solution.tree.nodes[v], self.shape
        assert node.gain is not None
        assert solution.covariance is not None
        with threads_for(max(self.shape)):
            above = fortran(solution.covariance[node.parent][:size_u, :size_u])
            return self._variance(solution.upward[v], node.gain, above)

    def _variance(self, up: Upward, node_gain: Array, covariance_u: Array) -> Array:
        r"""The same from what the passes left.

        Given the nodes the table is :math:`M_{ij}(\alpha_i + \beta_j)` with :math:`\beta = Q^{+}(\delta_v - P^\top\delta_u)`, and given
        :math:`\delta_u` the child has mean :math:`(I - X^\top Y)G^\top\delta_u`. So :math:`\delta_u` moves β by
        :math:`-(ZYG^\top + Q^{+}(P - G)^\top)`, :math:`Z = Q^{+}X^\top`.

        ``node_gain`` is G, the gain of the child's node: P with further columns where sums of its cells are features too, and not P
        where some of the child's counts are exact.
        """
        edge, gain, size_v = self.edge, self.edge.gain, self.shape[1]
        z = edge.over_noise(up.x[:size_v])
        pz = product(gain, z)
        through = product(z, product(fortran(up.y), node_gain, left=True, right=True))
        if node_gain is not gain and not np.array_equal(node_gain[:, :size_v], gain):
            through += edge.over_noise(fortran((gain - node_gain[:, :size_v]).T))
        a = product(gain, through)
        add_to_diagonal(a, edge.over_rows)
        av, bv = product(a, covariance_u), product(through, covariance_u)
        alpha = row_dots(av, a) + row_dots(pz, pz)
        beta = row_dots(bv, through) + row_dots(z, z)
        both = product(av, through, right=True) + product(pz, z, right=True)
        spread = alpha[:, None] + beta[None, :] - 2.0 * both
        lost = np.finfo(float).eps * edge.table * (alpha[:, None] + beta[None, :])
        if largest(lost) > LOST:
            spread = _sum_of_squares(a, through, pz, z, covariance_u)
        return edge.variance + edge.table**2 * np.maximum(spread, 0.0)  # a variance; below zero is rounding

    def absorb(self, tau: Array, nu: Array) -> tuple[EdgeStep, Array, Array, float]:
        r"""Absorb diagonal sites on the table: each row is conditioned in closed form.

        With :math:`\tilde M = 1/(1/M + \tau)`, :math:`d = \tilde M\nu`, row sums :math:`\tilde m, \bar d`, the row's integral over
        the table given its total s is

        .. math:: -\tfrac12 s^2(1/\tilde m - 1/m) + s\bar d/\tilde m - \tfrac12\bar d^2/\tilde m + \tfrac12\sum d^2/\tilde M
                  + \tfrac12\bigl[\sum\log(\tilde M/M) - \log(\tilde m/m)\bigr].

        Returns the step at M̃, and the precision, potential and log constant left on the parent.
        """
        table, gain = self.edge.table, self.edge.gain
        shrink = 1.0 + table * tau
        if (shrink <= 0).any():
            raise NotPositiveDefinite
        new = fortran(table / shrink)
        d = new * nu
        m, m_new, total = table.sum(axis=1), new.sum(axis=1), d.sum(axis=1)
        live = m > 0
        over, over_new = inverse_or_zero(m), inverse_or_zero(m_new)
        constant = -0.5 * np.log(shrink).sum() - 0.5 * np.log(m_new[live] / m[live]).sum()
        constant += 0.5 * (d * nu).sum() - 0.5 * (total**2 * over_new).sum()
        moved = fortran(np.where(live[:, None], new * over_new[:, None], gain))
        return EdgeStep(EdgeConditional(new, moved), d), over_new - over, total * over_new, float(constant)


def _sum_of_squares(a: Array, b: Array, pz: Array, z: Array, covariance_u: Array) -> Array:
    """Var(α_i + β_j) as Σ_k (A_ik − B_jk)², A = [a V^½, pz], B = [b V^½, z]: no difference of large squares."""
    values, vectors = np.linalg.eigh(covariance_u)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    first, second = np.hstack([a @ root, pz]), np.hstack([b @ root, z])
    return np.stack([((row - second) ** 2).sum(axis=1) for row in first])


NUMPY_SECONDS = 2.5e-4
"""Time that ``_gaussian_tree`` takes per node of a tree that is not compiled for (measured: 5 ms for 20 nodes of 16 to 36 cells)."""
LARGEST_COMPILED = 40
"""Cells per node up to which the compiled solver is used. Measured on one thread (20 nodes): 6 times as fast as calls of BLAS at 16 cells,
3.5 at 40, 1.7 at 64; larger products BLAS can also share among threads."""
ZERO_EIGENVALUE = 1e-12
"""Eigenvalues of the noise of observed sums below this, relative to its largest entry, are rounding of a difference of equal terms."""


@dataclass(frozen=True)
class Layout:
    """Where the sites are, and what was added to the nodes' cells for them."""

    sites: PlacedSites
    sums: tuple[tuple[Array, ...], ...]
    """By node: rows on its cells."""
    table_sums: tuple[tuple[Array, ...], ...]
    """By node: rows on the flat (parent, child) table."""


class TreeStructure(Structure, kind="tree"):
    """The Gaussian law of a (tilted) rooted tree's counts.

    Parameters
    ----------
    tree
        The individual's law the Gaussian is made at: initial law and transitions, tilts already in them.
    population, sites, known
        See :class:`Structure`.
    """

    def __init__(
        self, tree: RootedTree, population: float, sites: Sequence[Site], known: KnownCounts | None = None
    ) -> None:
        instance(tree, RootedTree, "tree", expected="a RootedTree, for example model.rooted()")
        self.tree = tree
        super().__init__(population, sites, known)

    @cached_property
    def _tables(self) -> list[tuple[Array, Array]]:
        """Expected table and gain of every step. The root is a step from one cell that holds everyone."""
        tree = self.tree
        gains: dict[int, Array] = {}  # equal steps of a homogeneous chain are one array, and stay one
        initial = fortran(tree.initial[None, :])
        found = [(self.population * initial, initial)]
        for v in range(1, len(tree.parents)):
            matrix = tree.transitions[v]
            gain = gains.setdefault(id(matrix), fortran(dense(matrix)))
            above = found[tree.parents[v]][0].sum(axis=0)
            found.append((above[:, None] * gain, gain))
        return found

    @cached_property
    def steps(self) -> list[EdgeStep]:
        """The Gaussian step into every node; the root's noise is N(diag μ − μμᵀ).

        Dispersion multiplies the rows of a table and leaves the gain: given the row's total, a table has the covariance of one
        whose entries are independent with variances phi_i M_ij.
        """
        phi = self.tree.phi
        with threads_for(max(self.tree.sizes)):
            return [
                EdgeStep(EdgeConditional(table if phi is None else phi[v][:, None] * table, gain))
                for v, (table, gain) in enumerate(self._tables)
            ]

    @cached_property
    def root_factor(self) -> Array:
        """R of the root: that of its step, or of independent numbers of groups."""
        if self.tree.numbers is None:
            return self.steps[0].edge.noise.root
        return namespace(self.tree.initial).asarray(fortran(np.diag(np.sqrt(self.tree.numbers.variance))))

    @cached_property
    def means(self) -> list[Array]:
        """Expected counts of every node."""
        return [table.sum(axis=0) for table, _ in self._tables]

    @cached_property
    def layout(self) -> Layout:
        """Node sites on cells are entries of the node, sums its further features; so are sums of the edge above it.

        Sites on single entries of an edge's table need no feature, unless something else is known about that table.
        """
        places = [self.tree.place(site.scope) for site in self.sites]
        with_features = self._edges_with_features(places)
        used = list(self.tree.sizes)
        sums, table_sums = _empty_lists(len(used)), _empty_lists(len(used))
        placements: dict[int, Placement] = {}
        # A node's own sums come before those of the edge above it.
        for k in sorted(range(len(places)), key=lambda k: places[k].edge):
            site, place = self.sites[k], places[k]
            size = math.prod(place.shape)
            if not place.edge and site.weights is None:
                placements[k] = Placement(place.node, np.asarray(site.index))
            elif place.edge and place.node not in with_features:
                entries = place.to_scope(np.arange(size))[site.index]
                placements[k] = Placement(place.node, entries, on_table=True)
            else:
                held = (table_sums if place.edge else sums)[place.node]
                held.append(place.to_tree(selection(site, size)))
                first, used[place.node] = used[place.node], used[place.node] + len(held[-1])
                placements[k] = Placement(place.node, np.arange(first, used[place.node]))
        placed = PlacedSites(tuple(placements[k] for k in range(len(places))), self.known)
        return Layout(placed, tuple(map(tuple, sums)), tuple(map(tuple, table_sums)))

    def _edges_with_features(self, places: Sequence[Place]) -> set[int]:
        """Nodes of which a sum, an exact count or a correlated reading is known, on them or on the edge above them."""
        more_is_known = {*self.known.exact, *self.known.readings}
        return {
            place.node
            for k, (site, place) in enumerate(zip(self.sites, places, strict=True))
            if site.weights is not None or k in more_is_known
        }

    @cached_property
    def gaussian(self) -> GaussianTree:
        """The law, with what is known in it."""
        layout, sizes = self.layout, self.tree.sizes
        with threads_for(max(sizes)):
            nodes: list[Node] = []
            for v, u in enumerate(self.tree.parents):
                cells = slice(None) if u < 0 or nodes[u].size == sizes[u] else slice(0, sizes[u])
                edge = self.steps[v].edge
                factor = self.root_factor if u < 0 else edge.noise.root
                nodes.append(_node(u, factor, edge, cells, layout.sums[v], layout.table_sums[v]))
            return layout.sites.settle(nodes, scale=self.population)

    @cached_property
    def _compiled_cells(self) -> np.ndarray | None:
        """Positions of all sites' entries in a (T, L) array, if the compiled solver can solve this problem; None otherwise."""
        sizes = self.tree.sizes
        if sizes[0] > LARGEST_COMPILED or self.tree.packed is None or self.tree.numbers is not None:
            return None
        if self.known.exact or self.known.readings:
            return None
        if any(len(s.scope) != 1 or s.weights is not None for s in self.sites):
            return None
        parts = [self.tree.place(s.scope).node * sizes[0] + np.asarray(s.index) for s in self.sites]
        return np.concatenate(parts) if parts else np.zeros(0, np.intp)

    @property
    def _compiles(self) -> bool:
        """Whether to use the compiled solver rather than NumPy, for a problem that it can solve."""
        return worth(upward_pass, NUMPY_SECONDS * len(self.tree.sizes))

    @cached_property
    def _row_factors(self) -> Array:
        """phi as (T, L) for the compiled solver; the root's is its row's first entry."""
        factors = np.ones((len(self.tree.sizes), self.tree.sizes[0]))
        for v, phi in enumerate(self.tree.phi or ()):
            factors[v] = phi
        return factors

    def _solve_compiled(self, cells: np.ndarray, tau: Sequence[Array], nu: Sequence[Array]) -> Moments | None:
        """None when weights underflow, which the other solver says in words."""
        count, size = len(self.tree.sizes), self.tree.sizes[0]
        tau_v, nu_v = np.zeros(count * size), np.zeros(count * size)
        if len(tau):
            tau_v += np.bincount(cells, np.concatenate(tau), minlength=count * size)
            nu_v += np.bincount(cells, np.concatenate(nu), minlength=count * size)
        assert self.tree.packed is not None
        mean, variance, log_z = solve_small(  # products this small stay on one thread by themselves
            self.tree.parent,
            np.ascontiguousarray(self.tree.initial, dtype=float),
            *self.tree.packed,
            self.population,
            self._row_factors,
            tau_v.reshape(count, size),
            nu_v.reshape(count, size),
        )
        if np.isnan(log_z):
            raise NotPositiveDefinite
        if np.isinf(log_z):
            return None
        at_sites = [by_site(values.ravel()[cells], self.sites) for values in (mean, variance)]
        return Moments(at_sites[0], at_sites[1], float(log_z))

    def _absorbed(
        self, tau: Sequence[Array], nu: Sequence[Array]
    ) -> tuple[GaussianTree, dict[int, EdgeStep]]:
        """The law with sites on tables absorbed, and the steps that changed, by child node."""
        on_tables: dict[int, list[int]] = {}
        for k, place in enumerate(self.layout.sites.placements):
            if place.on_table:
                on_tables.setdefault(place.node, []).append(k)
        if not on_tables:
            return self.gaussian, {}
        nodes = list(self.gaussian.nodes)
        changed: dict[int, EdgeStep] = {}
        for v, members in on_tables.items():
            step, node = self.steps[v], nodes[v]
            tau_t, nu_t = np.zeros(step.edge.table.size), np.zeros(step.edge.table.size)
            for k in members:
                np.add.at(tau_t, self.layout.sites.placements[k].features, tau[k])
                np.add.at(nu_t, self.layout.sites.placements[k].features, nu[k])
            new, precision, potential, constant = step.absorb(
                tau_t.reshape(step.shape), nu_t.reshape(step.shape)
            )
            assert new.shift is not None
            offset = new.shift.sum(axis=0) - apply(new.edge.gain, new.shift.sum(axis=1), transpose=True)
            nodes[v] = replace(
                node,
                factor=new.edge.noise.root,
                gain=new.edge.gain,
                offset=offset,
                log_scale=node.log_scale + constant,
            )
            nodes[node.parent] = nodes[node.parent].with_potential(
                slice(step.shape[0]), np.diag(precision), potential
            )
            changed[v] = new
        return GaussianTree(tuple(nodes)), changed

    def _solution(
        self, tau: Sequence[Array], nu: Sequence[Array], *, keep: bool
    ) -> tuple[Solution, dict[int, EdgeStep]]:
        """The two passes; ``keep``, or sites on tables, retain the covariances."""
        tree, changed = self._absorbed(tau, nu)
        by_node = self.layout.sites.by_node(tree, tau, nu)
        put = namespace(self.tree.initial).asarray
        there = ([None if x is None else put(x) for x in part] for part in by_node)
        return tree.solve(*there, keep=keep or bool(changed)), changed

    def solve(self, tau: Sequence[Array], nu: Sequence[Array]) -> Moments:
        """See :class:`Structure`."""
        if self._compiled_cells is not None and self._compiles:
            found = self._solve_compiled(self._compiled_cells, tau, nu)
            if found is not None:
                return found
        solution, changed = self._solution(tau, nu, keep=False)
        tables = {v: (step.mean(solution, v), step.variance(solution, v)) for v, step in changed.items()}
        return Moments(*self.layout.sites.read(solution, tables), solution.log_z)

    def unseen_variance(self) -> tuple[Array, ...]:
        r"""See :class:`Structure`. Of counts of nodes, and of their sums, by one pass down: :math:`V_v = Q_v + P^\top V_u P`."""
        compiled = self._compiled_cells is not None and self._compiles
        if compiled or any(len(site.scope) != 1 for site in self.sites):
            return super().unseen_variance()
        found: list[Array] = []
        with threads_for(max(self.tree.sizes)):
            for u, step in zip(self.tree.parents, self.steps, strict=True):
                own = gram(self.root_factor if u < 0 else step.edge.noise.root)
                found.append(own if u < 0 else sandwich(fortran(step.edge.gain.T), found[u], onto=own))
        places = (self.tree.place(site.scope).node for site in self.sites)
        return tuple(_variance_at(site, found[v]) for v, site in zip(places, self.sites, strict=True))

    def field(self, tau: Sequence[Array], nu: Sequence[Array]) -> Field:
        """See :class:`Structure`."""
        solution, changed = self._solution(tau, nu, keep=True)
        steps = {**dict(enumerate(self.steps)), **changed}
        variables, sizes = self.tree.variables, self.tree.sizes
        views = [self._view(v, steps[v]) for v in range(1, len(sizes))]
        if not views:
            alone = np.vstack([np.eye(sizes[0]), *self.layout.sums[0]])
            views = [CliqueView(Domain(variables, sizes), self.means[0], 0, partial(itself, alone))]
        return TreeField(
            solution,
            views,
            home=None if self.tree.device is None else partial(self._field_at_home, tau, nu),
            cells={variable: (v, sizes[v]) for v, variable in enumerate(variables)},
            steps={v: steps[v] for v in range(1, len(sizes)) if not self.layout.table_sums[v]},
        )

    def _field_at_home(self, tau: Sequence[Array], nu: Sequence[Array]) -> Field:
        """The same posterior in NumPy's arrays."""
        home = self.tree.home
        assert home is not None
        steps = [None, *(host(m) for m in self.tree.transitions[1:])]
        law = home.with_law(host(self.tree.initial), steps, self.tree.numbers)
        return TreeStructure(law, self.population, self.sites, self.known).field(tau, nu)

    def _view(self, v: int, step: EdgeStep) -> CliqueView:
        """The edge into v as a clique: parent's cells, then v's cells, sums of cells, sums of entries."""
        variables = self.tree.variables
        domain = Domain((variables[self.tree.parents[v]], variables[v]), step.shape)
        rows = partial(_edge_rows, domain, self.layout.sums[v], self.layout.table_sums[v])
        return CliqueView(domain, step.edge.table.reshape(-1), v, rows)


def _empty_lists(count: int) -> list[list[Array]]:
    return [[] for _ in range(count)]


def _edge_rows(domain: Domain, sums: Sequence[Array], table_sums: Sequence[Array]) -> csr_array:
    """The margins of both ends of an edge, then sums of the lower end's cells, then sums of entries, as rows on its flat table."""
    above, own = (margin_rows(domain, (variable,)) for variable in domain.scope)
    return csr_array(
        sparse_vstack([above, own, *(csr_array(rows) @ own for rows in sums), *map(csr_array, table_sums)])
    )


def _variance_at(site: Site, covariance: Array) -> Array:
    """Variances of the counts of one node, or of sums of them, that a site observes; of the covariance the lower triangle is read."""
    if site.weights is None:
        return np.diagonal(covariance)[site.index]
    columns = namespace(covariance).asarray(fortran(selection(site, len(covariance)).T))
    return (symmetric_product(covariance, columns) * columns).sum(axis=0)


def _node(
    parent: int,
    factor: Array,
    edge: EdgeConditional,
    cells: slice,
    sums: Sequence[Array],
    table_sums: Sequence[Array],
) -> Node:
    """One node: its cells, then sums of cells, then sums of the edge's entries; ``factor`` is R of the cells."""
    gain = edge.gain
    if sums:
        w = np.vstack(sums)
        factor = np.vstack([factor, w @ factor])
        gain = np.hstack([gain, gain @ w.T])
    if table_sums:
        a = np.vstack(table_sums).reshape(-1, *edge.table.shape)
        weighted = a * edge.table
        by_row = weighted.sum(axis=2)
        with_cells = weighted.sum(axis=1) - by_row @ edge.gain
        own = np.einsum("kij,lij->kl", weighted, a) - (by_row * edge.over_rows) @ by_row.T
        # What the cells' noise does not explain of the sums' is independent of it.
        explained = edge.noise.whiten(with_cells.T).T
        left = own - explained @ explained.T
        values, vectors = np.linalg.eigh(0.5 * (left + left.T))
        live = values > ZERO_EIGENVALUE * float(np.abs(own).max(initial=0.0))
        corner = vectors[:, live] * np.sqrt(values[live])
        factor = np.block([[factor, np.zeros((len(factor), corner.shape[1]))], [explained, corner]])
        gain = np.hstack([gain, np.einsum("kij,ij->ik", a, edge.gain)])
    return Node(parent, fortran(factor), gain=None if parent < 0 else fortran(gain), block=cells)
