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
from typing import TYPE_CHECKING, Any

import numpy as np
from tests.structure.dense import site_rows

from headcount._linalg import fortran
from headcount.checks import instance
from headcount.individual import Model, ModelError
from headcount.population.laplacian import inverse_or_zero
from headcount.structure._gaussian_tree import CliqueView, Node, PlacedSites, Placement, TreeField
from headcount.structure.base import (
    KnownCounts,
    Moments,
    Structure,
    itself,
    margin_rows,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headcount._linalg import Array
    from headcount.observe import Site
    from headcount.structure.base import Field, Solver
    from headcount.tables import Domain, Scope


class CliqueCovariances(Structure):
    """The Gaussian law of a (tilted) discrete model's counts on its junction tree.

    Parameters
    ----------
    model
        The individual's law the Gaussian is made at, tilts already in it.
    population, sites, known
        See :class:`Structure`.
    flock
        Individuals that move as one: factor on all covariances.
    """

    def __init__(
        self,
        model: Model,
        population: float,
        sites: Sequence[Site],
        known: KnownCounts | None = None,
        *,
        flock: float = 1.0,
    ) -> None:
        instance(model, Model, "model", expected="a Model")
        self.model, self.flock = model, flock
        super().__init__(population, sites, known)
        self.order, self.parent, self.separator = zip(*model.junction_tree.steps, strict=True)
        self.views: list[CliqueView] = []
        placements: dict[int, Placement] = {}
        nodes: list[Node] = []
        blocks: dict[int, slice] = {}
        """By clique: the features of its parent that are its separator."""
        for v in range(len(self.order)):
            nodes.append(self._add(v, placements, blocks))
        self.placed = PlacedSites(tuple(placements[k] for k in range(len(self.sites))), self.known)
        self.gaussian = self.placed.settle(nodes, scale=self.population)

    @classmethod
    def chosen(cls, law: Any, *known: Any, solver: Solver, flock: float) -> CliqueCovariances:
        """See :class:`Structure`."""
        return cls(law, *known, flock=flock)

    def _add(self, v: int, placements: dict[int, Placement], blocks: dict[int, slice]) -> Node:
        """The node of one clique, and its view; fills in where its sites and its children's separators are."""
        domain = self.model.domain(self.model.junction_tree.cliques[self.order[v]])
        # Given its separator a table has the covariance of one with independent entries of these variances.
        table = self.flock * self.population * self.model.marginal(domain.scope).reshape(-1)
        f = self._features(v, domain, placements, blocks)
        if self.parent[v] < 0:
            _, factor = _conditional(table, f, np.ones((1, table.size)))
            self.views.append(CliqueView(domain, table, v, partial(itself, f)))
            return Node(-1, factor)
        above = margin_rows(domain, self.separator[v]).toarray()
        gain, factor = _conditional(table, f, above)
        self.views.append(CliqueView(domain, table, v, partial(np.vstack, [above, f])))
        return Node(self.parent[v], factor, gain=gain, block=blocks[v])

    def _features(
        self, v: int, domain: Domain, placements: dict[int, Placement], blocks: dict[int, slice]
    ) -> Array:
        """F: the clique's total at the root, its children's separators, then its sites, as rows on its flat table."""
        # The root's total is known, and ties its entries together when little else is asked of them.
        rows = [np.ones((1 if self.parent[v] < 0 else 0, domain.size))]
        used = len(rows[0])
        for child in (w for w, u in enumerate(self.parent) if u == v):
            rows.append(margin_rows(domain, self.separator[child]).toarray())
            blocks[child] = slice(used, used + len(rows[-1]))
            used += len(rows[-1])
        for k, site in enumerate(self.sites):
            if self._home(site.scope) == v:
                rows.append(site_rows(site, domain))
                placements[k] = Placement(v, np.arange(used, used + len(rows[-1])))
                used += len(rows[-1])
        return np.vstack(rows)

    def _home(self, scope: Scope) -> int:
        """The position of the smallest clique that contains a scope."""
        found = self.model.junction_tree.covering(scope)
        if found is None:
            raise ModelError(f"{scope} does not lie inside one clique of the model; observe smaller margins")
        return self.order.index(found)

    def solve(self, tau: Sequence[Array], nu: Sequence[Array]) -> Moments:
        """See :class:`Structure`."""
        solution = self.gaussian.solve(*self.placed.by_node(self.gaussian, tau, nu))
        return Moments(*self.placed.read(solution, {}), solution.log_z)

    def field(self, tau: Sequence[Array], nu: Sequence[Array]) -> Field:
        """See :class:`Structure`."""
        return TreeField(
            self.gaussian.solve(*self.placed.by_node(self.gaussian, tau, nu), keep=True), self.views
        )


def _conditional(m: Array, f: Array, to_s: Array) -> tuple[Array, Array]:
    """Gain P(f | s), ``(separator, features)``, and a square factor of the noise of f given z_S."""
    gain = inverse_or_zero(to_s @ m)[:, None] * ((to_s * m) @ f.T)
    # Each entry's own row of diag(√m)(I − w wᵀ), w = √m/√m_s, mapped by F.
    centred = (f - gain.T @ to_s) * np.sqrt(m)
    if centred.size == 0:
        return fortran(gain), np.zeros((f.shape[0], 0), order="F")
    return fortran(gain), fortran(np.asarray(np.linalg.qr(centred.T, mode="r")).T)
