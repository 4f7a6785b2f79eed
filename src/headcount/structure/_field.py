r"""Any table of a clique from the clique's features.

Given features :math:`f = F z_C` of a clique table with expected value M,

.. math:: E[G z_C \mid f] = G\,\mathrm{diag}(M) F^\top K^{+} f, \quad K = F\,\mathrm{diag}(M) F^\top, \qquad
          \mathrm{cov}[G z_C \mid f] = G\,\mathrm{diag}(M)\,G^\top - H K^{+} H^\top, \quad H = G\,\mathrm{diag}(M)F^\top .

``G`` sums the clique's entries into the table asked for. The same algebra serves an edge, a larger clique, any margin.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from headcount.structure._base import Field
from headcount.structure._flows import flow_mean, flow_variance
from headcount.structure._linalg import fortran, threads_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headcount.structure._base import Scope
    from headcount.structure._flows import Step
    from headcount.structure._gaussian_tree import Solution
    from headcount.structure._linalg import Array


@dataclass(frozen=True)
class CliqueView:
    """A clique's table, and the features that carry it: the parent's block it hangs on, then its own node's."""

    scope: Scope
    table: Array
    node: int
    rows: Callable[[], Array]
    """Makes F, ``(block of the parent + features of the node, table)``; large, so only when asked."""

    @cached_property
    def features(self) -> Array:
        """F."""
        return self.rows()

    def margin(self, scope: Scope) -> Array:
        """G: the map from the flattened clique table to the table of ``scope``."""
        shape = self.table.shape
        sizes = tuple(shape[self.scope.index(v)] for v in scope)
        labels = np.arange(int(np.prod(sizes))).reshape(sizes)
        grid = np.indices(shape).reshape(len(shape), -1)
        rows = np.zeros((labels.size, self.table.size))
        rows[labels[tuple(grid[self.scope.index(v)] for v in scope)], np.arange(self.table.size)] = 1.0
        return rows

    @cached_property
    def inverse(self) -> Array:
        """K⁺ of the module's docstring, scaled to unit diagonal before its null space is cut."""
        k = (self.features * self.table.ravel()) @ self.features.T
        scale = np.sqrt(np.maximum(np.diagonal(k), 1e-300))
        values, vectors = np.linalg.eigh(k / np.outer(scale, scale))
        live = values > 1e-11 * max(float(values.max(initial=0.0)), 1e-300)
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
    ) -> None:
        self.solution, self.cliques = solution, tuple(cliques)
        self.cells = {} if cells is None else cells
        self.steps = {} if steps is None else steps
        self._gains: dict[int, Array] = {}

    def mean(self, scope: Scope) -> Array:
        """See :class:`Field`."""
        if len(scope) == 1 and scope[0] in self.cells:
            v, size = self.cells[scope[0]]
            return self.solution.mean[v][:size]
        step, view = self._step(scope)
        if step is not None:
            u = self.solution.tree.nodes[view.node].parent
            size_u, size_v = step.table.shape
            table = flow_mean(step, self.solution.mean[u][:size_u], self.solution.mean[view.node][:size_v])
            return table if scope == view.scope else table.T
        h = self._regression(view, scope)
        return (h @ self._feature_mean(view)).reshape(self._shape(view, scope))

    def variance(self, scope: Scope) -> Array:
        """See :class:`Field`."""
        assert self.solution.covariance is not None
        if len(scope) == 1 and scope[0] in self.cells:
            v, size = self.cells[scope[0]]
            return self.solution.variance[v][:size]
        step, view = self._step(scope)
        if step is not None:
            u = self.solution.tree.nodes[view.node].parent
            size = step.table.shape[0]
            with threads_for(size):
                above = fortran(self.solution.covariance[u][:size, :size])
                table = flow_variance(step, self.solution.upward[view.node], above)
            return table if scope == view.scope else table.T
        g = view.margin(scope)
        w = self._regression(view, scope)
        own = g @ view.table.ravel()
        free = own - np.einsum("ij,ij->i", w, (g * view.table.ravel()) @ view.features.T)
        free = np.where(free > 1e-13 * own, free, 0.0)  # rounding of two equal terms
        return (free + np.einsum("ij,jk,ik->i", w, self._feature_covariance(view, view), w)).reshape(
            self._shape(view, scope)
        )

    def covariance(self, a: Scope, b: Scope) -> Array:
        """See :class:`Field`."""
        if len(a) == len(b) == 1 and a[0] in self.cells and b[0] in self.cells:
            (u, size_u), (v, size_v) = self.cells[a[0]], self.cells[b[0]]
            return self._cross(u, v)[:size_u, :size_v]
        x, y = self._view(a), self._view(b)
        if x is not y and set(b) <= set(x.scope):
            y = x
        elif x is not y and set(a) <= set(y.scope):
            x = y
        wa, wb = self._regression(x, a), self._regression(y, b)
        result = wa @ self._feature_covariance(x, y) @ wb.T
        if x is y:
            ga, gb = x.margin(a), x.margin(b)
            result = result + (ga * x.table.ravel()) @ gb.T - wa @ ((x.features * x.table.ravel()) @ gb.T)
        return np.asarray(result)

    def sample(self, size: int, *, rng: np.random.Generator) -> dict[Scope, Array]:
        """See :class:`Field`; features top-down, then every clique's table given its features."""
        drawn: list[Array] = []
        for v, node in enumerate(self.solution.tree.nodes):
            up = self.solution.upward[v]
            a = up.x @ (up.x.T @ up.potential) + (0.0 if node.offset is None else node.offset)
            z = a + rng.standard_normal((size, up.x.shape[1])) @ up.x.T
            if node.gain is not None:
                z = z + drawn[node.parent][:, node.block] @ self.gain(v).T
            drawn.append(z)
        tables: dict[Scope, Array] = {}
        for view in self.cliques:
            tables[view.scope] = self._sample_table(view, drawn, size, rng)
        return tables

    def _sample_table(
        self, view: CliqueView, drawn: list[Array], size: int, rng: np.random.Generator
    ) -> Array:
        node = self.solution.tree.nodes[view.node]
        f = (
            drawn[view.node]
            if node.gain is None
            else np.hstack([drawn[node.parent][:, node.block], drawn[view.node]])
        )
        m = view.table.ravel()
        # Draw any table with the right covariance, then move it onto the features (conditioning by kriging).
        if view.node in self.steps:
            return self._sample_edge(self.steps[view.node], f, rng)
        free = rng.standard_normal((size, m.size)) * np.sqrt(m)
        j = (view.features * m).T @ view.inverse
        return (free + (f - free @ view.features.T) @ j.T).reshape(size, *view.table.shape)

    @staticmethod
    def _sample_edge(step: Step, f: Array, rng: np.random.Generator) -> Array:
        size_u, size_v = step.table.shape
        plain = replace(step, shift=None)
        shift = 0.0 if step.shift is None else step.shift
        out = np.empty((len(f), size_u, size_v))
        for k in range(len(f)):
            free = shift + rng.standard_normal(step.table.shape) * np.sqrt(step.table)
            delta_u, delta_v = f[k, :size_u], f[k, size_u : size_u + size_v]
            out[k] = free + flow_mean(plain, delta_u - free.sum(axis=1), delta_v - free.sum(axis=0))
        return out

    def gain(self, v: int) -> Array:
        """The posterior regression of node v on its parent's block."""
        if v not in self._gains:
            self._gains[v] = self.solution.gain(v)
        return self._gains[v]

    def _step(self, scope: Scope) -> tuple[Step | None, CliqueView]:
        view = self._view(scope)
        fast = len(scope) == 2 and view.node in self.steps and set(scope) == set(view.scope)
        return (self.steps[view.node] if fast else None), view

    def _view(self, scope: Scope) -> CliqueView:
        for view in self.cliques:
            if set(scope) <= set(view.scope):
                return view
        message = f"{scope} does not lie inside one clique of the model; ask for the covariance of two parts instead"
        raise ValueError(message)

    @staticmethod
    def _shape(view: CliqueView, scope: Scope) -> tuple[int, ...]:
        return tuple(view.table.shape[view.scope.index(v)] for v in scope)

    def _regression(self, view: CliqueView, scope: Scope) -> Array:
        """H K⁺."""
        return np.asarray((view.margin(scope) * view.table.ravel()) @ view.features.T @ view.inverse)

    def _feature_mean(self, view: CliqueView) -> Array:
        node = self.solution.tree.nodes[view.node]
        own = self.solution.mean[view.node]
        return (
            own if node.gain is None else np.concatenate([self.solution.mean[node.parent][node.block], own])
        )

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
        left, right = np.eye(nodes[u].size), np.eye(nodes[v].size)
        while u != v:
            if u > v:  # topological order: the later node is never an ancestor of the earlier
                u, left = nodes[u].parent, left @ self._wide_gain(u)
            else:
                v, right = nodes[v].parent, right @ self._wide_gain(v)
        return np.asarray(left @ self.solution.covariance[u] @ right.T)

    def _wide_gain(self, v: int) -> Array:
        node = self.solution.tree.nodes[v]
        wide = np.zeros((node.size, self.solution.tree.nodes[node.parent].size))
        wide[:, node.block] = self.gain(v)
        return wide
