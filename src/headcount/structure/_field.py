r"""Any table of a clique from the clique's features.

Given features :math:`f = F z_C` of a clique table with expected value M,

.. math:: E[G z_C \mid f] = G\,\mathrm{diag}(M) F^\top K^{+} f, \quad K = F\,\mathrm{diag}(M) F^\top, \qquad
          \mathrm{cov}[G z_C \mid f] = G\,\mathrm{diag}(M)\,G^\top - H K^{+} H^\top, \quad H = G\,\mathrm{diag}(M)F^\top .

``G`` sums the clique's entries into the table asked for. The same algebra serves an edge, a larger clique, any margin.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from headcount._device import host
from headcount._linalg import fortran, threads_for
from headcount.individual import ModelError
from headcount.structure._base import Field, margin_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headcount._linalg import Array
    from headcount.structure._gaussian_tree import Solution
    from headcount.structure._tree import Step
    from headcount.tables import Domain, Scope

NULL_SPACE = 1e-11
"""Eigenvalues of K scaled to unit diagonal below this, relative to the largest, are its null space: rounding leaves about 1e-15
times the number of entries of a table."""
NO_FREEDOM = 1e-13
"""A variance given the features below this, relative to the expected count, is rounding of two equal terms."""


@dataclass(frozen=True)
class CliqueView:
    """A clique's table, and the features that carry it: the parent's block it depends on, then its own node's."""

    domain: Domain
    table: Array
    """M, flat."""
    node: int
    rows: Callable[[], Array]
    """Makes F, ``(block of the parent + features of the node, table)``; large, so only when asked."""

    @cached_property
    def features(self) -> Array:
        """F."""
        return self.rows()

    def margin(self, scope: Scope) -> Array:
        """G: the map from the flat clique table to the flat table of ``scope``."""
        return margin_rows(self.domain, scope)

    @cached_property
    def inverse(self) -> Array:
        """K⁺ of the module's docstring, scaled to unit diagonal before its null space is cut."""
        k = (self.features * self.table) @ self.features.T
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
        steps: Mapping[int, Step] | None = None,
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
        if (found := self._of_cells(scope, self.solution.mean)) is not None:
            return found
        view = self._view(scope)
        step = self._step(view, scope)
        if step is not None:
            size_u, size_v = step.shape
            own, above = self.solution.mean[view.node], self.solution.mean[self._parent(view)]
            with threads_for(max(step.shape)):
                table = host(step.mean(above[:size_u], own[:size_v]))
            return np.asarray(view.domain.project(table, scope))
        block = [self.solution.mean[p][i] for p, i in self._parts(view)]
        return (self._regression(view, scope) @ np.concatenate(block)).reshape(view.domain.part(scope).shape)

    def _of_cells(self, scope: Scope, by_node: Sequence[Array]) -> Array | None:
        """The cells of one variable, where a node begins with them."""
        if len(scope) != 1 or scope[0] not in self.cells:
            return None
        v, size = self.cells[scope[0]]
        return np.asarray(host(by_node[v][:size]))

    def variance(self, scope: Scope) -> Array:
        """See :class:`Field`."""
        assert self.solution.covariance is not None
        if (found := self._of_cells(scope, self.solution.variance)) is not None:
            return found
        view = self._view(scope)
        step = self._step(view, scope)
        if step is not None:
            size = step.shape[0]
            with threads_for(max(step.shape)):
                above = fortran(self.solution.covariance[self._parent(view)][:size, :size])
                gain = self.solution.tree.nodes[view.node].gain
                assert gain is not None
                table = step.variance(self.solution.upward[view.node], gain, above)
            return np.asarray(view.domain.project(host(table), scope))
        g = view.margin(scope)
        w = self._regression(view, scope)
        own = g @ view.table
        free = own - np.einsum("ij,ij->i", w, (g * view.table) @ view.features.T)
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
        wa, wb = self._regression(x, a), self._regression(y, b)
        result = wa @ self._feature_covariance(x, y) @ wb.T
        if x is y:
            ga, gb = x.margin(a), x.margin(b)
            result = result + (ga * x.table) @ gb.T - wa @ ((x.features * x.table) @ gb.T)
        return np.asarray(result)

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
            above, own = drawn[self._parent(view)][:, :size_u], drawn[view.node][:, :size_v]
            return step.sample(above, own, rng=rng)
        f = np.hstack([drawn[p][:, i] for p, i in self._parts(view)])
        free = rng.standard_normal((len(f), view.table.size)) * np.sqrt(view.table)
        j = (view.features * view.table).T @ view.inverse
        return view.domain.table(free + (f - free @ view.features.T) @ j.T)

    def gain(self, v: int) -> Array:
        """The posterior regression of node v on its parent's block."""
        if v not in self._gains:
            self._gains[v] = self.solution.gain(v)
        return self._gains[v]

    def _parent(self, view: CliqueView) -> int:
        return self.solution.tree.nodes[view.node].parent

    def _step(self, view: CliqueView, scope: Scope) -> Step | None:
        """The edge formulas of a view, where they answer for this scope."""
        return self.steps.get(view.node) if set(scope) == set(view.domain.scope) else None

    def _view(self, scope: Scope) -> CliqueView:
        for view in self.cliques:
            if set(scope) <= set(view.domain.scope):
                return view
        raise ModelError(
            f"{scope} does not lie inside one clique of the model; ask for the covariance of two parts instead"
        )

    def _regression(self, view: CliqueView, scope: Scope) -> Array:
        """H K⁺."""
        return np.asarray((view.margin(scope) * view.table) @ view.features.T @ view.inverse)

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
        node = self.solution.tree.nodes[v]
        if node.block == slice(None):
            return self.gain(v)
        wide = np.zeros((node.size, self.solution.tree.nodes[node.parent].size))
        wide[:, node.block] = self.gain(v)
        return wide
