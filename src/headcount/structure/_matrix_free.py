r"""Moments of a tree's node counts without matrices: the prior covariance as an operator, conjugate gradients, draws.

For v on the nodes of a rooted tree, one pass up and one pass down give :math:`f_t(i) = E[\sum_s v_s(x_s) \mid x_t = i]`,

.. math:: b_t = v_t + \sum_{c\,\text{child}} P_c b_c, \qquad f_c = b_c + \bar P_c (f_u - P_c b_c), \qquad
          K v = N\mu\circ(f - \bar E), \quad \bar E = E\bigl[\textstyle\sum_s v_s(x_s)\bigr],

:math:`\bar P_c(j, i) = \mu_u(i)P_c(i, j)/\mu_c(j)` the reversed kernel: O(non-zeros) time and memory, any number of columns at once.
With B the observed rows, :math:`S = \mathrm{diag}\sqrt\tau` and :math:`A = I + S B K B^\top S`,

.. math:: \text{mean}: \; \delta = K B^\top S A^{-1} S^{-1}\nu, \qquad
          \text{draw}: \; \delta^* = \delta_0 + K B^\top S A^{-1}\bigl(S(\hat\delta - B\delta_0) - \varepsilon\bigr),

:math:`\hat\delta = \nu/\tau`, :math:`\delta_0` a draw of the prior, :math:`\varepsilon` standard normal; :math:`\log\det A` by stochastic
Lanczos quadrature. This is the operator only: no engine uses it yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from headcount.checks import instance
from headcount.individual import ModelError, RootedTree
from headcount.population._laplacian import inverse_or_zero
from headcount.structure._base import checked_arguments
from headcount.structure._gaussian_tree import NotPositiveDefinite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headcount._linalg import Array
    from headcount.structure._base import SiteLike

SOLVED = 1e-11
"""Relative residual at which conjugate gradients stop: means are then right to about 1e-10 of an sd, below what engines ask for."""
MOST_ITERATIONS = 2000
"""Of conjugate gradients. 8 to 12 are needed on the birds, 275 at rate 100 on a slow random walk (the theory's table)."""


class MatrixFreeTree:
    """The Gaussian law of a rooted tree's node counts, as an operator; entries of all nodes stand in one vector.

    Parameters
    ----------
    tree
        The individual's law, tilts included; transitions may be sparse.
    population
        N.
    sites
        What is observed: entries or sums of single nodes.
    """

    def __init__(self, tree: RootedTree, population: float, sites: Sequence[SiteLike]) -> None:
        instance(tree, RootedTree, "tree", expected="a RootedTree, for example model.rooted()")
        self.tree = tree
        self.population, self.sites, _ = checked_arguments(population, sites, None)
        self.offsets = np.concatenate([[0], np.cumsum(tree.sizes)])
        self.mu = [np.asarray(tree.initial, dtype=float)]
        for v in range(1, len(tree.parents)):
            self.mu.append(np.asarray(tree.transitions[v].T @ self.mu[tree.parents[v]]))
        self.rows = sparse.csr_array(sparse.vstack([self._rows(site) for site in self.sites]))

    def _rows(self, site: SiteLike) -> sparse.csr_array:
        """B of one site, on the vector of all nodes' entries."""
        where = self.tree.place(site.scope)
        if where.edge:
            raise ModelError(
                f"a site on {site.scope} sees flows: the matrix-free solver takes single nodes only"
            )
        start, size = self.offsets[where.node], self.offsets[-1]
        if site.index is not None:
            place = (np.arange(len(site)), start + np.asarray(site.index))
            return sparse.csr_array((np.ones(len(site)), place), shape=(len(site), size))
        held = sparse.coo_array(site.weights)
        return sparse.csr_array((held.data, (held.row, start + held.col)), shape=(len(site), size))

    def covariance_times(self, values: Array) -> Array:
        """K v, for v of shape (entries, columns)."""
        tree, parents = self.tree, self.tree.parents
        f = [values[a:b].copy() for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True)]
        own: list[Array] = [np.empty(0)] * len(f)
        for v in range(len(f) - 1, 0, -1):
            own[v] = tree.transitions[v] @ f[v]
            f[parents[v]] += own[v]
        expected = self.mu[0] @ f[0]
        for v in range(1, len(f)):
            u = parents[v]
            above = self.mu[u][:, None] * (f[u] - own[v])
            f[v] += inverse_or_zero(self.mu[v])[:, None] * (tree.transitions[v].T @ above)
        return np.concatenate(
            [self.population * m[:, None] * (x - expected) for m, x in zip(self.mu, f, strict=True)]
        )

    def prior_draws(self, size: int, *, rng: np.random.Generator) -> Array:
        """Draws from N(0, K), shape (entries, size): one normal per possible move."""
        root = self.population * self.mu[0]
        drawn = [_spread(root[None, :], self.mu[0][None, :], np.zeros((1, size)), rng)]
        for v in range(1, len(self.mu)):
            u, matrix = self.tree.parents[v], self.tree.transitions[v]
            drawn.append(_spread(self.population * self.mu[u], matrix, drawn[u], rng))
        return np.concatenate(drawn)

    def mean(self, tau: Sequence[Array], nu: Sequence[Array]) -> Array:
        """Posterior mean deviation of all nodes' entries under ``exp(−½ tau δ² + nu δ)`` on the sites."""
        precision, potential = _joined(tau), _joined(nu)
        # ν may be there without τ: the mean of ν alone, and what τ takes back from it.
        start = self.covariance_times((self.rows.T @ potential)[:, None])
        root = np.sqrt(precision)
        solved = self._solve(root, root[:, None] * (self.rows @ start))
        return (start - self.covariance_times(self.rows.T @ (root[:, None] * solved)))[:, 0]

    def draws(
        self, tau: Sequence[Array], nu: Sequence[Array], size: int, *, rng: np.random.Generator
    ) -> Array:
        """Draws from the posterior, shape (entries, size)."""
        root = np.sqrt(_joined(tau))
        free = self.prior_draws(size, rng=rng)
        noise = rng.standard_normal((len(root), size))
        solved = self._solve(root, root[:, None] * (self.rows @ free) + noise)
        moved = free - self.covariance_times(self.rows.T @ (root[:, None] * solved))
        return moved + self.mean(tau, nu)[:, None]

    def log_determinant(
        self, tau: Sequence[Array], *, probes: int, steps: int, rng: np.random.Generator
    ) -> tuple[float, float]:
        """log det A by stochastic Lanczos quadrature, and its Monte-Carlo standard error."""
        root = np.sqrt(_joined(tau))
        found = [
            _lanczos_log(self._operator(root), rng.choice([-1.0, 1.0], len(root)), steps)
            for _ in range(probes)
        ]
        return float(np.mean(found)), float(np.std(found) / np.sqrt(max(probes - 1, 1)))

    def _operator(self, root: Array) -> Callable[[Array], Array]:
        def times(x: Array) -> Array:
            return x + root[:, None] * (self.rows @ self.covariance_times(self.rows.T @ (root[:, None] * x)))

        return times

    def _solve(self, root: Array, right: Array) -> Array:
        """A⁻¹ r by conjugate gradients, all columns at once."""
        times = self._operator(root)
        x, residual = np.zeros_like(right), right.copy()
        direction, rho = residual.copy(), (residual**2).sum(axis=0)
        target = SOLVED**2 * rho
        for _ in range(MOST_ITERATIONS):
            if (rho <= target).all():
                return x
            image = times(direction)
            length = np.where(
                rho > target, rho / np.maximum((direction * image).sum(axis=0), np.finfo(float).tiny), 0.0
            )
            x += length * direction
            residual -= length * image
            old, rho = rho, (residual**2).sum(axis=0)
            direction = residual + np.where(old > 0, rho / np.where(old > 0, old, 1.0), 0.0) * direction
        message = f"conjugate gradients did not converge in {MOST_ITERATIONS} iterations; use TreeStructure"
        raise FloatingPointError(message)


def _joined(values: Sequence[Array]) -> Array:
    return np.concatenate([np.asarray(v, dtype=float) for v in values])


def _spread(rows: Array, matrix: object, above: Array, rng: np.random.Generator) -> Array:
    """One step of prior draws, (L_v, size): Pᵀ δ_u plus Σ_i (w_i − p_i Σ w_i), w_ij ~ N(0, m_i p_ij)."""
    held = (
        sparse.csr_array(matrix)
        if sparse.issparse(matrix)
        else sparse.csr_array(np.atleast_2d(np.asarray(matrix)))
    )
    rows = np.atleast_1d(rows if rows.ndim == 1 else rows.sum(axis=1))
    at = np.repeat(np.arange(held.shape[0]), np.diff(held.indptr))
    w = rng.standard_normal((held.nnz, above.shape[1])) * np.sqrt(rows[at] * held.data)[:, None]
    into = sparse.csr_array(
        (np.ones(held.nnz), (held.indices, np.arange(held.nnz))), shape=(held.shape[1], held.nnz)
    )
    out_of = sparse.csr_array((np.ones(held.nnz), (at, np.arange(held.nnz))), shape=(held.shape[0], held.nnz))
    return np.asarray(held.T @ (above - out_of @ w) + into @ w)


def _lanczos_log(times: Callable[[Array], Array], start: Array, steps: int) -> float:
    """vᵀ log(A) v by Gauss quadrature, with every new vector orthogonalised against all before it."""
    size = float(start @ start)
    basis = [start / np.sqrt(size)]
    diagonal: list[float] = []
    off: list[float] = []
    for _ in range(min(steps, len(start))):
        image = times(basis[-1][:, None])[:, 0]
        diagonal.append(float(basis[-1] @ image))
        for _ in range(2):
            for q in basis:
                image = image - (q @ image) * q
        length = float(np.sqrt(image @ image))
        if length <= np.finfo(float).eps * len(start) * abs(diagonal[0]):
            break
        off.append(length)
        basis.append(image / length)
    off = off[: len(diagonal) - 1]
    values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1))
    if values.min() <= 0:
        raise NotPositiveDefinite
    return size * float(vectors[0] ** 2 @ np.log(values))
