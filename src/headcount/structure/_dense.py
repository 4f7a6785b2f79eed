r"""The oracle: the whole covariance, formed and conditioned.

Features are all clique tables, with covariance :math:`N(\langle\mu_{A,B}\rangle - \mu_A\mu_B^\top)`; sites and constraints enter by
textbook formulas. Cubic in the number of table entries, and public: for tests, for teaching, for tiny problems.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headcount.structure._base import Field, Known, Moments, Structure, selection
from headcount.structure._exact import LOG_2PI, Contradiction, independent_rows
from headcount.structure._gaussian_tree import NotPositiveDefinite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headcount.individual import Model
    from headcount.structure._base import Scope, SiteLike
    from headcount.structure._linalg import Array


class DenseStructure(Structure):
    """Every clique table of ``model`` in one vector; ``sites`` select what is observed."""

    def __init__(
        self, model: Model, population: float, sites: Sequence[SiteLike], known: Known | None = None
    ) -> None:
        self.model, self.population = model, population
        self.known = Known.nothing() if known is None else known
        self.cliques = tuple(model.junction_tree.cliques)
        blocks = [[model.joint_marginal(a, b) for b in self.cliques] for a in self.cliques]
        mu = np.concatenate([model.marginal(c).ravel() for c in self.cliques])
        self.covariance_matrix = population * (np.block(blocks) - np.outer(mu, mu))
        sizes = [int(np.prod(model.size(c))) for c in self.cliques]
        self.offsets = np.concatenate([[0], np.cumsum(sizes)])
        self.rows = [selection(s, int(np.prod(model.size(s.scope)))) @ self.margin(s.scope) for s in sites]

    def margin(self, scope: Scope) -> Array:
        """The linear map from the stacked clique tables to the table of ``scope``."""
        for k, clique in enumerate(self.cliques):
            if set(scope) <= set(clique):
                shape = self.model.size(clique)
                labels = np.arange(int(np.prod(self.model.size(scope)))).reshape(self.model.size(scope))
                axes = [clique.index(v) for v in scope]
                grid = np.indices(shape).reshape(len(shape), -1)
                target = labels[tuple(grid[a] for a in axes)]
                rows = np.zeros((labels.size, self.offsets[-1]))
                rows[target, np.arange(self.offsets[k], self.offsets[k + 1])] = 1.0
                return rows
        message = f"{scope} does not lie inside one clique"
        raise ValueError(message)

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
        values, vectors = np.linalg.eigh(v)
        root = vectors * np.sqrt(np.where(values > 1e-13 * max(values.max(), 1e-300), values, 0.0))
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


def _condition_exact(
    m: Array, v: Array, rows: Array, value: Array, scale: float
) -> tuple[Array, Array, float]:
    """Condition N(m, V) on ``rows z = value``; independent rows are picked, the others must already agree."""
    values, vectors = np.linalg.eigh(v)
    root = vectors * np.sqrt(np.where(values > 1e-13 * max(values.max(), 1e-300), values, 0.0))
    picked, rest, _, lower = independent_rows(rows @ root, np.abs(rows).sum(axis=1), scale, rounding=1e-6)
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
    if len(rest) and np.abs(value[rest] - rows[rest] @ new_mean).max() > 1e-7 * scale:
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
        shape = self._structure.model.size
        edges = self._structure.offsets
        return {
            c: draws[:, edges[k] : edges[k + 1]].reshape(size, *shape(c))
            for k, c in enumerate(self._structure.cliques)
        }
