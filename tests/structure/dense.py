r"""The oracle: the whole covariance, formed and conditioned.

Features are all clique tables, with covariance :math:`N(\langle\mu_{A,B}\rangle - \mu_A\mu_B^\top)`; sites and constraints enter by
textbook formulas. Cubic in the number of table entries, and public: for tests, for teaching, for tiny problems.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from headcount.checks import instance
from headcount.individual import Model, ModelError
from headcount.population._cgm import covariance
from headcount.structure._gaussian_tree import (
    CONTRADICTION,
    LOG_2PI,
    Contradiction,
    independent_rows,
)
from headcount.structure.base import (
    Field,
    KnownCounts,
    Moments,
    NotPositiveDefinite,
    Structure,
    margin_rows,
    selection,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headcount._linalg import Array
    from headcount.observe import Site
    from headcount.tables import Domain, Scope

ZERO_EIGENVALUE = 1e-13
"""Eigenvalues of a covariance below this, relative to the largest, are its null space: rounding leaves about 1e-15 per entry."""
DEPENDENT = 1e-6
"""Pivots below this, relative to the largest standard deviation, are dependent rows. Roots of a covariance whose null space is cut
at 1e-13 are accurate to its square root only."""


class DenseStructure(Structure):
    """Every clique table of ``model``, the individual's law, in one vector; for the other arguments see :class:`Structure`."""

    def __init__(
        self, model: Model, population: float, sites: Sequence[Site], known: KnownCounts | None = None
    ) -> None:
        instance(model, Model, "model", expected="a Model")
        self.model = model
        super().__init__(population, sites, known)
        self.cliques = tuple(model.junction_tree.cliques)
        self.covariance_matrix = np.block(
            [[covariance(model, self.population, a, b) for b in self.cliques] for a in self.cliques]
        )
        self.offsets = np.concatenate([[0], np.cumsum(model.junction_tree.table_sizes)])
        self.rows = [self._stacked(site.scope, partial(site_rows, site)) for site in sites]

    def margin(self, scope: Scope) -> Array:
        """The linear map from the stacked clique tables to the table of ``scope``."""
        return self._stacked(scope, lambda table: margin_rows(table, scope).toarray())

    def _stacked(self, scope: Scope, rows_on: Callable[[Domain], Array]) -> Array:
        """Rows on the table of a clique that contains a scope, as rows on all clique tables."""
        k = self.model.junction_tree.covering(scope)
        if k is None:
            raise ModelError(f"{scope} does not lie inside one clique of the model")
        rows = rows_on(self.model.domain(self.cliques[k]))
        wide = np.zeros((len(rows), self.offsets[-1]))
        wide[:, self.offsets[k] : self.offsets[k + 1]] = rows
        return wide

    def posterior(self, tau: Sequence[Array], nu: Sequence[Array]) -> tuple[Array, Array, float]:
        """Mean, covariance and log Z of the stacked tables."""
        v = self.covariance_matrix
        m = np.zeros(len(v))
        log_z = 0.0
        for k, value in self.known.exact.items():
            m, v, gain = _condition_exact(m, v, self.rows[k], value, self.population)
            log_z += gain
        lam, eta = np.zeros_like(v), np.zeros(len(v))
        for k, rows in enumerate(self.rows):
            if k in self.known.readings:
                precision, potential = self.known.readings[k]
                lam += rows.T @ precision @ rows
                eta += rows.T @ potential
            if k not in self.known.exact:
                lam += rows.T @ (tau[k][:, None] * rows)
                eta += rows.T @ nu[k]
        # (I + V Λ)⁻¹ through a symmetric root of V, so that singular parts stay exactly singular.
        root = _root(v)
        b = np.eye(len(v)) + root.T @ lam @ root
        eigen, basis = np.linalg.eigh(b)
        if eigen.min() <= 0:
            raise NotPositiveDefinite
        x = (basis / np.sqrt(eigen)).T @ root.T
        shifted = eta - lam @ m
        mean = m + x.T @ (x @ shifted)
        w = x @ shifted
        log_z += float(eta @ m - 0.5 * m @ lam @ m + 0.5 * w @ w - 0.5 * np.log(eigen).sum())
        return mean, x.T @ x, log_z

    def solve(self, tau: Sequence[Array], nu: Sequence[Array]) -> Moments:
        """See :class:`Structure`."""
        mean, v, log_z = self.posterior(tau, nu)
        return Moments(
            tuple(rows @ mean for rows in self.rows),
            tuple(np.einsum("ij,jk,ik->i", rows, v, rows) for rows in self.rows),
            log_z,
        )

    def field(self, tau: Sequence[Array], nu: Sequence[Array]) -> Field:
        """See :class:`Structure`."""
        mean, v, _ = self.posterior(tau, nu)
        return DenseField(self, mean, v)


def site_rows(site: Site, table: Domain) -> Array:
    """The site as a dense ``(K, size)`` matrix on a flat table that contains its scope."""
    return selection(site, table.part(site.scope).size)[:, table.positions(site.scope)]


def _root(v: Array) -> Array:
    """A symmetric root of a covariance, its null space exactly zero."""
    values, vectors = np.linalg.eigh(v)
    return vectors * np.sqrt(np.where(values > ZERO_EIGENVALUE * float(values.max()), values, 0.0))


def _condition_exact(
    m: Array, v: Array, rows: Array, value: Array, scale: float
) -> tuple[Array, Array, float]:
    """Condition N(m, V) on ``rows z = value``; independent rows are picked, the others must already agree."""
    weight = np.abs(rows).sum(axis=1)
    picked, rest, _, lower = independent_rows(rows @ _root(v), weight, scale, rounding=DEPENDENT)
    s = rows[picked] @ v @ rows[picked].T
    gap = value - rows @ m
    solved = (
        np.linalg.solve(s, np.column_stack([gap[picked], rows[picked] @ v]))
        if len(picked)
        else np.zeros((0, len(v) + 1))
    )
    gain = v @ rows[picked].T
    new_mean = m + gain @ solved[:, 0]
    new_v = v - gain @ solved[:, 1:]
    if len(rest) and np.abs(value[rest] - rows[rest] @ new_mean).max() > CONTRADICTION * scale:
        message = "exact observations contradict each other"
        raise Contradiction(message)
    log_scale = -0.5 * float(gap[picked] @ solved[:, 0]) - 0.5 * len(picked) * LOG_2PI
    log_scale -= float(np.log(np.abs(np.diagonal(lower))).sum()) if len(picked) else 0.0
    return new_mean, 0.5 * (new_v + new_v.T), log_scale


class DenseField(Field):
    """Questions answered from the full covariance."""

    def __init__(self, structure: DenseStructure, mean: Array, covariance: Array) -> None:
        self._structure, self._mean, self._covariance = structure, mean, covariance

    def mean(self, scope: Scope) -> Array:
        """See :class:`Field`."""
        return (self._structure.margin(scope) @ self._mean).reshape(self._structure.model.size(scope))

    def variance(self, scope: Scope) -> Array:
        """See :class:`Field`."""
        rows = self._structure.margin(scope)
        return np.einsum("ij,jk,ik->i", rows, self._covariance, rows).reshape(
            self._structure.model.size(scope)
        )

    def covariance(self, a: Scope, b: Scope) -> Array:
        """See :class:`Field`."""
        return self._structure.margin(a) @ self._covariance @ self._structure.margin(b).T

    def sample(self, size: int, *, rng: np.random.Generator) -> dict[Scope, Array]:
        """See :class:`Field`."""
        values, vectors = np.linalg.eigh(self._covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        draws = self._mean + rng.standard_normal((size, len(values))) @ root.T
        parts = np.split(draws, self._structure.offsets[1:-1], axis=1)
        domains = (self._structure.model.domain(c) for c in self._structure.cliques)
        return {domain.scope: domain.table(part) for domain, part in zip(domains, parts, strict=True)}
