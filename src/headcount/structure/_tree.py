r"""Chains and trees: cells of every node as features, one Gaussian step an edge.

A chain is the tree in which every node has one child, so both shapes are this one structure: O(T·L³) time, O(T·L²) memory.
Sums over a node's cells are further features of that node; sums over an edge's entries are further features of the child; sites on
single entries of an edge's table are absorbed by changing that step's weights (``absorb_table_sites``), so no L² × L² matrix appears.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.structure._base import Known, Moments, Structure, selection
from headcount.structure._exact import condition
from headcount.structure._field import CliqueView, TreeField
from headcount.structure._flows import Step, absorb_table_sites, flow_mean, flow_variance
from headcount.structure._gaussian_tree import GaussianTree, Node, NotPositiveDefinite, Solution
from headcount.structure._linalg import fortran, product, threads_for
from headcount.structure._noise_factor import noise_factor
from headcount.structure._placement import Placement, add_readings, exact_constraints
from headcount.tables import dense as as_dense

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headcount.individual import RootedTree
    from headcount.structure._base import Field, SiteLike
    from headcount.structure._linalg import Array


LARGEST_SMALL = 40
"""Cells up to which the compiled solver is faster than calls of BLAS."""


def dense(matrix: object) -> Array:
    """A transition matrix as a Fortran-ordered dense array."""
    return fortran(as_dense(matrix))


class TreeStructure(Structure):
    """The Gaussian law of a (tilted) rooted tree's counts.

    Parameters
    ----------
    tree
        The individual's law the Gaussian is made at: initial law and transitions, tilts already in them.
    population
        N.
    sites
        What is observed; only where, not what.
    known
        Exact sites and correlated Gaussian readings, settled once.
    """

    def __init__(
        self, tree: RootedTree, population: float, sites: Sequence[SiteLike], known: Known | None = None
    ) -> None:
        self.tree, self.population, self.sites = tree, float(population), tuple(sites)
        self.known = Known.nothing() if known is None else known

    @cached_property
    def _built(self) -> tuple[list[Array], list[Step]]:
        with threads_for(max(self.tree.sizes)):
            return _steps(self.tree, self.population)

    @property
    def means(self) -> list[Array]:
        """Expected counts of every node."""
        return self._built[0]

    @property
    def steps(self) -> list[Step]:
        """The Gaussian step into every node."""
        return self._built[1]

    @cached_property
    def _placed(self) -> tuple[list[Placement], list[Node]]:
        with threads_for(max(self.tree.sizes)):
            return self._place()

    @property
    def placements(self) -> list[Placement]:
        """Where every site's entries live."""
        return self._placed[0]

    @cached_property
    def gaussian(self) -> GaussianTree:
        """The law, with what is settled in it."""
        return self._settle(GaussianTree(tuple(self._placed[1])))

    @cached_property
    def _flat_cells(self) -> np.ndarray | None:
        """Positions of all sites' entries in a (T, L) array, when the compiled solver serves this problem."""
        sizes = self.tree.sizes
        if sizes[0] > LARGEST_SMALL or self.tree.packed is None or self.known.exact or self.known.readings:
            return None
        if any(len(s.scope) != 1 or s.weights is not None for s in self.sites):
            return None
        parts = [self.tree.index[s.scope[0]] * sizes[0] + np.asarray(s.index) for s in self.sites]
        return np.concatenate(parts) if parts else np.zeros(0, np.intp)

    def _solve_compiled(self, cells: np.ndarray, tau: Sequence[Array], nu: Sequence[Array]) -> Moments:
        from headcount.structure._small import solve_small

        count, size = len(self.tree.sizes), self.tree.sizes[0]
        tau_v, nu_v = np.zeros(count * size), np.zeros(count * size)
        if len(tau):
            tau_v += np.bincount(cells, np.concatenate(tau), minlength=count * size)
            nu_v += np.bincount(cells, np.concatenate(nu), minlength=count * size)
        assert self.tree.packed is not None
        mean, variance, log_z, _ = solve_small(  # products this small stay on one thread by themselves
            self.tree.parent,
            np.ascontiguousarray(self.tree.initial, dtype=float),
            *self.tree.packed,
            self.population,
            tau_v.reshape(count, size),
            nu_v.reshape(count, size),
        )
        if np.isnan(log_z):
            raise NotPositiveDefinite
        ends = np.cumsum([len(t) for t in tau]).tolist()
        pieces = [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]
        mean, variance = mean.ravel()[cells], variance.ravel()[cells]
        return Moments(tuple(mean[p] for p in pieces), tuple(variance[p] for p in pieces), float(log_z))

    @cached_property
    def table_sites(self) -> dict[int, list[int]]:
        """Sites absorbed into an edge's table, by child node."""
        found: dict[int, list[int]] = {}
        for k, place in enumerate(self.placements):
            if place.on_table:
                found.setdefault(place.node, []).append(k)
        return found

    def locate(self, scope: tuple) -> tuple[int, bool]:
        """The node of a scope, or the child node of an edge and whether the scope names the child first."""
        index = [self.tree.index[v] for v in scope]
        if len(index) == 1:
            return index[0], False
        u, v = index
        if self.tree.parents[v] == u:
            return v, False
        if self.tree.parents[u] == v:
            return u, True
        message = f"{scope} is not an edge of the tree"
        raise ValueError(message)

    def _as_table(self, site: SiteLike, v: int, *, flipped: bool) -> Array:
        """An edge site's rows on the flattened (parent, child) table."""
        size_u, size_v = self.steps[v].table.shape
        rows = selection(site, size_u * size_v)
        if flipped:
            rows = rows.reshape(-1, size_v, size_u).transpose(0, 2, 1).reshape(len(rows), -1)
        return rows

    def _place(self) -> tuple[list[Placement], list[Node]]:
        parents = self.tree.parents
        summed = {
            self.locate(s.scope)[0]
            for k, s in enumerate(self.sites)
            if s.weights is not None or self._settled(k)
        }
        extra: list[list[Array]] = [[] for _ in parents]
        tables: list[list[Array]] = [[] for _ in parents]
        sized = [len(m) for m in self.means]
        pending: list[tuple[int, int]] = []
        placements: list[Placement] = []
        for k, site in enumerate(self.sites):
            v, flipped = self.locate(site.scope)
            if len(site.scope) == 1 and site.weights is None:
                placements.append(Placement(v, np.asarray(site.index)))
            elif len(site.scope) == 1:
                placements.append(Placement(v, np.arange(sized[v], sized[v] + len(site))))
                sized[v] += len(site)
                extra[v].append(selection(site, len(self.means[v])))
            elif v not in summed:
                size_u, size_v = self.steps[v].table.shape
                index = np.asarray(site.index)
                if flipped:
                    index = (index % size_u) * size_v + index // size_u
                placements.append(Placement(v, index, on_table=True))
            else:
                pending.append((k, v))
                tables[v].append(self._as_table(site, v, flipped=flipped))
                placements.append(Placement(v, np.arange(len(site))))
        for k, v in pending:  # an edge's sums follow the node's own
            placements[k] = Placement(v, np.arange(sized[v], sized[v] + len(self.sites[k])))
            sized[v] += len(self.sites[k])
        nodes = []
        for v, u in enumerate(parents):
            cells = slice(None) if u < 0 or sized[u] == len(self.means[u]) else slice(0, len(self.means[u]))
            nodes.append(_node(u, self.steps[v], cells, extra[v], tables[v]))
        return placements, nodes

    def _settled(self, site: int) -> bool:
        return site in self.known.exact or site in self.known.readings

    def _settle(self, gaussian: GaussianTree) -> GaussianTree:
        nodes = add_readings(gaussian.nodes, self.placements, self.known)
        constraints = exact_constraints(nodes, self.placements, self.known)
        return condition(GaussianTree(tuple(nodes)), constraints, scale=self.population)

    def prepare(
        self, tau: Sequence[Array], nu: Sequence[Array]
    ) -> tuple[GaussianTree, list, list, dict[int, Step]]:
        """The tree with table sites absorbed, the node sites' tau and nu by node, and the steps that changed."""
        count = len(self.gaussian.nodes)
        tau_v: list[Any] = [None] * count
        nu_v: list[Any] = [None] * count
        for k, place in enumerate(self.placements):
            if place.on_table or k in self.known.exact:
                continue
            v = place.node
            if tau_v[v] is None:
                tau_v[v] = np.zeros(self.gaussian.nodes[v].size)
                nu_v[v] = np.zeros(self.gaussian.nodes[v].size)
            np.add.at(tau_v[v], place.features, tau[k])
            np.add.at(nu_v[v], place.features, nu[k])
        if not self.table_sites:
            return self.gaussian, tau_v, nu_v, {}
        nodes = list(self.gaussian.nodes)
        changed: dict[int, Step] = {}
        for v, members in self.table_sites.items():
            tau_t, nu_t = np.zeros(self.steps[v].table.size), np.zeros(self.steps[v].table.size)
            for k in members:
                np.add.at(tau_t, self.placements[k].features, tau[k])
                np.add.at(nu_t, self.placements[k].features, nu[k])
            changed[v] = _absorb(nodes, v, self.steps[v], tau_t, nu_t)
        return GaussianTree(tuple(nodes)), tau_v, nu_v, changed

    def solve(self, tau: Sequence[Array], nu: Sequence[Array]) -> Moments:
        """See :class:`Structure`."""
        if self._flat_cells is not None:
            return self._solve_compiled(self._flat_cells, tau, nu)
        tree, tau_v, nu_v, changed = self.prepare(tau, nu)
        solution = tree.solve(tau_v, nu_v, keep=bool(changed))
        tables = {v: self.table_moments(solution, v, step) for v, step in changed.items()}
        mean, variance = [], []
        for place in self.placements:
            if place.on_table:
                table_mean, table_variance = tables[place.node]
                mean.append(table_mean.ravel()[place.features])
                variance.append(table_variance.ravel()[place.features])
            else:
                mean.append(solution.mean[place.node][place.features])
                variance.append(solution.variance[place.node][place.features])
        return Moments(tuple(mean), tuple(variance), solution.log_z)

    def table_moments(self, solution: Solution, v: int, step: Step) -> tuple[Array, Array]:
        """Mean and variance of the table between v and its parent."""
        u = self.tree.parents[v]
        size_u, size_v = step.table.shape
        assert solution.covariance is not None
        with threads_for(max(size_u, size_v)):
            mean = flow_mean(step, solution.mean[u][:size_u], solution.mean[v][:size_v])
            variance = flow_variance(
                step, solution.upward[v], fortran(solution.covariance[u][:size_u, :size_u])
            )
        return mean, variance

    def field(self, tau: Sequence[Array], nu: Sequence[Array]) -> Field:
        """See :class:`Structure`."""
        tree, tau_v, nu_v, changed = self.prepare(tau, nu)
        steps = {**dict(enumerate(self.steps)), **changed}
        variables, parents = self.tree.variables, self.tree.parents
        cells = {variable: (v, len(self.means[v])) for v, variable in enumerate(variables)}
        views = [self._view(v, steps[v]) for v in range(1, len(parents))] or [
            CliqueView((variables[0],), self.means[0], 0, lambda: np.eye(len(self.means[0])))
        ]
        fast = {v: steps[v] for v in range(1, len(parents)) if not self._edge_sums(v)}
        return TreeField(tree.solve(tau_v, nu_v, keep=True), views, cells=cells, steps=fast)

    def _edge_sums(self, v: int) -> list[Array]:
        """Rows of the sums observed on the table between v and its parent."""
        found = []
        for site, place in zip(self.sites, self.placements, strict=True):
            if len(site.scope) == 2 and place.node == v and not place.on_table:
                found.append(self._as_table(site, v, flipped=self.locate(site.scope)[1]))
        return found

    def _view(self, v: int, step: Step) -> CliqueView:
        """The edge into v as a clique: parent's cells, then v's cells, sums of cells, sums of entries."""
        size_u, size_v = step.table.shape

        def rows() -> Array:
            to_u = np.kron(np.eye(size_u), np.ones(size_v))
            to_v = np.kron(np.ones(size_u), np.eye(size_v))
            sums = [
                selection(site, size_v) @ to_v
                for site, place in zip(self.sites, self.placements, strict=True)
                if len(site.scope) == 1 and site.weights is not None and place.node == v
            ]
            return np.vstack([to_u, to_v, *sums, *self._edge_sums(v)])

        variables = self.tree.variables
        return CliqueView(
            (variables[self.tree.parents[v]], variables[v]), np.ascontiguousarray(step.table), v, rows
        )


def _steps(tree: RootedTree, population: float) -> tuple[list[Array], list[Step]]:
    """Expected node counts and the Gaussian step of every edge (the root is a step from one cell)."""
    means = [population * np.asarray(tree.initial, dtype=float)]
    steps = [
        Step(
            means[0][None, :],
            np.array([population]),
            fortran(np.asarray(tree.initial)[None, :]),
            noise_factor(means[0][None, :]),
        )
    ]
    for v in range(1, len(tree.parents)):
        gain = dense(tree.transitions[v])
        rows = means[tree.parents[v]]
        table = fortran(rows[:, None] * gain)
        means.append(table.sum(axis=0))
        steps.append(Step(table, rows, gain, noise_factor(table)))
    return means, steps


def _node(parent: int, step: Step, cells: slice, sums: list[Array], tables: list[Array]) -> Node:
    """One node: its cells, then sums of cells, then sums of the edge's entries."""
    factor = step.noise.matrix
    gain = step.gain
    if sums:
        w = np.vstack(sums)
        factor = np.vstack([factor, w @ factor])
        gain = np.hstack([gain, gain @ w.T])
    if tables:
        a = np.vstack(tables).reshape(-1, *step.table.shape)
        extra_gain = np.einsum("kij,ij->ik", a, step.gain)
        weighted = a * step.table
        with np.errstate(divide="ignore", invalid="ignore"):
            over = np.where(step.rows > 0, 1.0 / step.rows, 0.0)
        by_row = weighted.sum(axis=2)
        with_cells = weighted.sum(axis=1) - by_row @ step.gain
        own = np.einsum("kij,lij->kl", weighted, a) - (by_row * over) @ by_row.T
        kept = (
            np.linalg.solve(step.noise.cholesky, with_cells[:, step.noise.kept].T).T
            if len(step.noise.kept)
            else with_cells[:, :0]
        )
        left = own - kept @ kept.T
        values, vectors = np.linalg.eigh(0.5 * (left + left.T))
        live = values > 1e-12 * max(float(np.abs(own).max(initial=0.0)), 1e-300)
        corner = vectors[:, live] * np.sqrt(values[live])
        factor = np.block([[factor, np.zeros((len(factor), corner.shape[1]))], [kept, corner]])
        gain = np.hstack([gain, extra_gain])
    return Node(parent, fortran(factor), gain=None if parent < 0 else fortran(gain), block=cells)


def _absorb(nodes: list[Node], v: int, step: Step, tau: Array, nu: Array) -> Step:
    """Replace node v's step by the one with its table's sites absorbed, leaving their factor on the parent."""
    shape = step.table.shape
    table, shift, precision, potential, constant = absorb_table_sites(
        step.table, tau.reshape(shape), nu.reshape(shape)
    )
    rows = table.sum(axis=1)
    gain = step.gain.copy(order="F")
    live = rows > 0
    gain[live] = table[live] / rows[live, None]
    noise = noise_factor(table)
    node = nodes[v]
    offset = shift.sum(axis=0) - product(gain, fortran(shift.sum(axis=1)[:, None]), left=True)[:, 0]
    nodes[v] = replace(
        node, factor=noise.matrix, gain=fortran(gain), offset=offset, log_scale=node.log_scale + constant
    )
    nodes[node.parent] = nodes[node.parent].with_potential(slice(shape[0]), np.diag(precision), potential)
    return Step(fortran(table), rows, fortran(gain), noise, shift)
