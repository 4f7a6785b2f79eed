r"""Any junction tree, in margin space.

Per clique only the margins that matter are kept: its separators and what is observed in it. Given the counts of the parent's
separator S, the rest of a clique is multinomial, so with features :math:`f = F z_C`

.. math:: f \mid z_S \sim N\Bigl(\sum_s z_S(s)\,P(f \mid s),\; \sum_s N\mu_S(s)\,\mathrm{cov}(f \mid s)\Bigr),

the same step as on a tree. Its noise is factored from the table's own explicit root,
:math:`\mathrm{diag}(m) - mm^\top/m_s = \bigl(\mathrm{diag}\sqrt m\,(I - ww^\top)\bigr)(\cdot)^\top`,
compressed by a QR: exact, whatever its rank.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from headcount.structure._base import Known, Moments, Structure, selection
from headcount.structure._exact import condition
from headcount.structure._field import CliqueView, TreeField
from headcount.structure._gaussian_tree import GaussianTree, Node
from headcount.structure._linalg import fortran
from headcount.structure._placement import Placement, add_readings, exact_constraints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headcount.individual import Model
    from headcount.structure._base import Field, Scope, SiteLike
    from headcount.structure._linalg import Array


class JunctionStructure(Structure):
    """The Gaussian law of a (tilted) discrete model's counts on its junction tree."""

    def __init__(
        self, model: Model, population: float, sites: Sequence[SiteLike], known: Known | None = None
    ) -> None:
        self.model, self.population, self.sites = model, float(population), tuple(sites)
        self.known = Known.nothing() if known is None else known
        self.order, self.parent, self.separator = rooted_cliques(model)
        self.views, self.placements, nodes = self._build()
        self.gaussian = self._settle(nodes)

    def _build(self) -> tuple[list[CliqueView], list[Placement], list[Node]]:
        cliques = self.model.junction_tree.cliques
        homes = [self._home(site.scope) for site in self.sites]
        views: list[CliqueView] = []
        nodes: list[Node] = []
        spots: list[dict[int, slice]] = []
        placements: list[Placement | None] = [None] * len(self.sites)
        for v, c in enumerate(self.order):
            clique = tuple(cliques[c])
            table = self.population * self.model.marginal(clique)
            view = CliqueView(clique, table, v, lambda: np.zeros((0, 0)))
            # The root's total is a feature too: known, and what ties its entries together when little else is asked of them.
            rows: list[Array] = [np.ones((1, table.size))] if self.parent[v] < 0 else []
            spot: dict[int, slice] = {}
            used = len(rows)
            for child in [w for w in range(len(self.order)) if self.parent[w] == v]:
                block = view.margin(self.separator[child])
                spot[child] = slice(used, used + len(block))
                rows.append(block)
                used += len(block)
            for k, site in enumerate(self.sites):
                if homes[k] == v:
                    block = selection(site, int(np.prod(self.model.size(site.scope)))) @ view.margin(
                        site.scope
                    )
                    placements[k] = Placement(v, np.arange(used, used + len(block)))
                    rows.append(block)
                    used += len(block)
            f = np.vstack(rows) if rows else np.zeros((0, table.size))
            u = self.parent[v]
            to_s = view.margin(self.separator[v]) if u >= 0 else np.ones((1, table.size))
            gain, factor = _conditional(table.ravel(), f, to_s)
            block_of_parent = spots[u][v] if u >= 0 else slice(None)
            nodes.append(Node(u, factor, gain=gain if u >= 0 else None, block=block_of_parent))
            stacked = np.vstack([to_s, f]) if u >= 0 else f
            views.append(CliqueView(clique, table, v, partial(np.asarray, stacked)))
            spots.append(spot)
        return views, [p for p in placements if p is not None], nodes

    def _home(self, scope: Scope) -> int:
        cliques = self.model.junction_tree.cliques
        for v, c in enumerate(self.order):
            if set(scope) <= set(cliques[c]):
                return v
        message = f"{scope} does not lie inside one clique of the model"
        raise ValueError(message)

    def _settle(self, nodes: list[Node]) -> GaussianTree:
        nodes = add_readings(nodes, self.placements, self.known)
        joined = exact_constraints(nodes, self.placements, self.known)
        return condition(GaussianTree(tuple(nodes)), joined, scale=self.population)

    def _by_node(self, tau: Sequence[Array], nu: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        tau_v = [np.zeros(node.size) for node in self.gaussian.nodes]
        nu_v = [np.zeros(node.size) for node in self.gaussian.nodes]
        for k, place in enumerate(self.placements):
            if k not in self.known.exact:
                tau_v[place.node][place.features] += tau[k]
                nu_v[place.node][place.features] += nu[k]
        return tau_v, nu_v

    def solve(self, tau: Sequence[Array], nu: Sequence[Array]) -> Moments:
        """See :class:`Structure`."""
        solution = self.gaussian.solve(*self._by_node(tau, nu))
        return Moments(
            tuple(solution.mean[p.node][p.features] for p in self.placements),
            tuple(solution.variance[p.node][p.features] for p in self.placements),
            solution.log_z,
        )

    def field(self, tau: Sequence[Array], nu: Sequence[Array]) -> Field:
        """See :class:`Structure`."""
        return TreeField(self.gaussian.solve(*self._by_node(tau, nu), keep=True), self.views)


def rooted_cliques(model: Model) -> tuple[list[int], list[int], list[Scope]]:
    """Clique indices in topological order, each one's parent position, and the separator to it."""
    order, parent, separators = zip(*model.junction_tree.steps, strict=True)
    return list(order), list(parent), list(separators)


def _conditional(m: Array, f: Array, to_s: Array) -> tuple[Array, Array]:
    """Gain P(f | s), ``(separator, features)``, and a square factor of the noise of f given z_S."""
    weight = to_s @ m
    with np.errstate(divide="ignore"):
        over = np.where(weight > 0, 1.0 / weight, 0.0)
    gain = over[:, None] * ((to_s * m) @ f.T)
    root = np.sqrt(m)
    # Each entry's own row of diag(√m)(I − w wᵀ), w = √m/√m_s, mapped by F.
    mapped = f * root
    centred = mapped - (gain.T @ to_s) * root
    if centred.size == 0:
        return fortran(gain), np.zeros((f.shape[0], 0), order="F")
    triangular = np.asarray(np.linalg.qr(centred.T, mode="r"))
    return fortran(gain), fortran(triangular.T)
