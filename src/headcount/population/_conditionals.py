"""Conditional laws of the Gaussian CGM: a node given another, and an edge's table given its two nodes.

Node:   z_v | z_u ~ N(Pᵀ z_u, Q),      Q = Σ_i Nμ_u(i) (diag p_i − p_i p_iᵀ)

Edge:   with M = Nμ_uv, K = [[diag(M1), M], [Mᵀ, diag(Mᵀ1)]] and e_ij = (e_i; e_j),

        E[z_uv(i,j) | z_u, z_v]   = M_ij (α_i + β_j),    K (α; β) = (z_u; z_v)
        Var[z_uv(i,j) | z_u, z_v] = M_ij − M_ij² e_ijᵀ K⁺ e_ij
        Var[z_uv(i,j)]            = the line above + M_ij² e_ijᵀ K⁺ V K⁺ e_ij

with V = cov((z_u; z_v)) under whatever law the nodes have, a posterior for example.

Changing the sign of the second half of K makes it the Laplacian of the bipartite graph with conductances M,
and e_ijᵀ K⁺ e_ij the effective resistance between i and j; so nothing is inverted that the graph does not
connect, and empty cells, absorbing cells and structural zeros need no jitter and no pseudo-inverse.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from headcount import memory
from headcount.individual import ModelError
from headcount.population._laplacian import LaplacianFactor, laplacian, star_weights
from headcount.tables import dense

Vector = NDArray[np.float64]

# Rounds of refinement of a flow; two are enough unless cells hang together by a thread.
_REFINEMENTS = 4
# How far, relative to N, a node's counts may contradict the model's support before the flow is refused.
_SUPPORT_TOLERANCE = 1e-8


@final
@dataclass(frozen=True, eq=False)
class NodeConditional:
    """z_v | z_u ~ N(Pᵀ z_u, Q).

    Attributes
    ----------
    gain : array or csr_array, shape (L_u, L_v)
        P, P[i, j] = P(x_v = j | x_u = i). A row that cannot occur is what the model says of it, or zero if
        it says nothing.
    noise : array or csr_array, shape (L_v, L_v)
        Q; its rows sum to zero.
    """

    gain: Any
    noise: Any

    def mean(self, given: Vector) -> Vector:
        """Pᵀ z_u, shape (L_v,)."""
        return np.asarray(self.gain.T @ np.asarray(given, dtype=float))

    def log_density(self, value: Vector, given: Vector) -> float:
        """Log N(z_v; Pᵀ z_u, Q) on the subspace Q spans, in lattice units (see `GCGM.log_density`)."""
        weights = -dense(self.noise)
        np.fill_diagonal(weights, 0.0)
        factor = LaplacianFactor(weights)
        residual = np.asarray(value, dtype=float) - self.mean(given)
        scale = max(float(np.abs(given).sum()), 1.0)
        if any(abs(residual[part].sum()) > 1e-9 * scale for part in factor.parts):
            return -np.inf
        quadratic = float(residual @ factor.solve(residual))
        return -0.5 * (factor.rank * np.log(2 * np.pi) + factor.log_determinant + quadratic)


def node_conditional(table: Any, gain: Any = None) -> NodeConditional:
    """The law of z_v given z_u from M = Nμ_uv, dense or sparse; pass the `gain` if the model knows it."""
    total = np.asarray(table.sum(axis=1)).reshape(-1)
    inverse = np.where(total > 0, 1.0 / np.where(total > 0, total, 1.0), 0.0)
    if sparse.issparse(table):
        transition = sparse.csr_array(sparse.diags_array(inverse) @ table) if gain is None else gain
        root = sparse.diags_array(np.sqrt(inverse)) @ table
        weights = sparse.csr_array(root.T @ root)
        weights.setdiag(0.0)
        weights.eliminate_zeros()
        noise = sparse.csr_array(sparse.diags_array(np.asarray(weights.sum(axis=1)).reshape(-1)) - weights)
        return NodeConditional(transition, noise)
    transition = table * inverse[:, None] if gain is None else gain
    return NodeConditional(transition, laplacian(star_weights(table)))


@final
@dataclass(frozen=True, eq=False)
class EdgeConditional:
    """z_uv | z_u, z_v: the table of an edge, given both its nodes.

    Attributes
    ----------
    table : array, shape (L_u, L_v)
        M = Nμ_uv, the expected table.
    """

    table: NDArray[np.float64]

    @cached_property
    def _rows(self) -> Vector:
        return self.table.sum(axis=1)

    @cached_property
    def _shares(self) -> NDArray[np.float64]:
        """P = diag(1/m) M, zero for empty rows."""
        return self.table / np.where(self._rows > 0, self._rows, 1.0)[:, None]

    @cached_property
    def _columns(self) -> LaplacianFactor:
        return LaplacianFactor(star_weights(self.table))

    def mean(self, first: Vector, second: Vector) -> NDArray[np.float64]:
        """E[z_uv | z_u, z_v], shape (L_u, L_v); its margins are z_u and z_v.

        Raises
        ------
        ModelError
            If no table on the model's support has these margins.
        """
        a = np.asarray(first, dtype=float) - self._rows
        b = np.asarray(second, dtype=float) - self.table.sum(axis=0)
        self._require_possible(a, b)
        flow = np.zeros_like(self.table)
        # Potentials may be huge where cells are nearly cut off; the flows they drive are not. So what is
        # left over is solved for again and added as flows, never as potentials.
        for _ in range(_REFINEMENTS):
            row_gap, column_gap = a - flow.sum(axis=1), b - flow.sum(axis=0)
            flow += self._flow(*self._potentials(row_gap, column_gap))
        return self.table + flow

    def _potentials(self, a: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[Any, Any]:
        """(α, β) with K (α; β) = (a; b); columns of a and b are separate right-hand sides."""
        beta = self._columns.solve(b - self._shares.T @ a)
        rows = self._rows.reshape((-1,) + (1,) * (a.ndim - 1))
        alpha = np.where(rows > 0, a / np.where(rows > 0, rows, 1.0), 0.0) - self._shares @ beta
        return alpha, beta

    def _flow(self, alpha: Vector, beta: Vector) -> NDArray[np.float64]:
        return self.table * (alpha[:, None] + beta[None, :])

    def _require_possible(self, a: Vector, b: Vector) -> None:
        tolerance = _SUPPORT_TOLERANCE * max(float(self._rows.sum()), 1.0)
        problems = [
            f"state {i} of the first node holds {a[i]:.6g}, but the model never puts anyone there"
            for i in np.flatnonzero((self._rows <= 0) & (np.abs(a) > tolerance))
        ]
        gaps = b - self._shares.T @ a
        problems += [
            f"states {part.tolist()} of the second node hold {gaps[part].sum():.6g} more than can come from "
            f"the first node"
            for part in self._columns.parts
            if abs(gaps[part].sum()) > tolerance
        ]
        if problems:
            raise ModelError(problems)

    @cached_property
    def _mixed_resistances(self) -> NDArray[np.float64]:
        """R_ij = e_ijᵀ K⁺ e_ij for every entry with M_ij > 0, shape (L_u, L_v); zero elsewhere.

        A row is a star of total conductance m_i on the columns: R_ij = (P R)_ij + 1/m_i − ½ (P R Pᵀ)_ii.
        """
        between = self._columns.resistances
        finite = np.where(np.isfinite(between), between, 0.0)  # entries of P across parts are zero anyway
        seen = self._shares @ finite
        own = 0.5 * (seen * self._shares).sum(axis=1)
        inverse = np.where(self._rows > 0, 1.0 / np.where(self._rows > 0, self._rows, 1.0), 0.0)
        return np.where(self.table > 0, seen + (inverse - own)[:, None], 0.0)

    @cached_property
    def variance(self) -> NDArray[np.float64]:
        """Var[z_uv(i,j) | z_u, z_v], shape (L_u, L_v).

        M_ij R_ij ≤ 1, with equality where the nodes fix the flow; rounding may exceed it by a few units in
        the last place, and that much, no more, is cut off at zero.
        """
        return self.table * np.maximum(1.0 - self.table * self._mixed_resistances, 0.0)

    def variance_under(self, nodes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Var[z_uv(i,j)] when (z_u; z_v) has the covariance V, of shape (L_u + L_v, L_u + L_v)."""
        split = len(self._rows)
        spread = np.asarray(nodes, dtype=float)
        for _ in range(2):  # K⁺ V, then K⁺ (K⁺ V)ᵀ
            spread = np.concatenate(self._potentials(spread[:split], spread[split:])).T
        own = np.diagonal(spread)
        through = own[:split, None] + own[None, split:] + spread[:split, split:] + spread[split:, :split].T
        return self.variance + self.table**2 * through

    def covariance(self, *, memory_limit: int | None = None) -> NDArray[np.float64]:
        """The whole covariance of z_uv given z_u and z_v, shape (L_u L_v, L_u L_v), C order."""
        rows, columns = self.table.shape
        memory.require(8 * (rows * columns) ** 2, "the covariance of an edge's table", limit=memory_limit)
        incidence = np.concatenate(
            [np.kron(np.eye(rows), np.ones(columns)), np.kron(np.ones(rows), np.eye(columns))]
        )
        driven = incidence * self.table.reshape(-1)
        alpha, beta = self._potentials(driven[:rows], driven[rows:])
        through = driven.T @ np.concatenate([alpha, beta])
        return np.diag(self.table.reshape(-1)) - 0.5 * (through + through.T)
