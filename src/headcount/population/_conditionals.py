"""The conditional law of an edge's table given its two nodes, under the Gaussian law of the counts.

        with M = Nμ_uv, K = [[diag(M1), M], [Mᵀ, diag(Mᵀ1)]] and e_ij = (e_i; e_j),

        E[z_uv(i,j) | z_u, z_v]   = M_ij (α_i + β_j),    K (α; β) = (z_u; z_v)
        Var[z_uv(i,j) | z_u, z_v] = M_ij − M_ij² e_ijᵀ K⁺ e_ij
        Var[z_uv(i,j)]            = the line above + M_ij² e_ijᵀ K⁺ V K⁺ e_ij

with V = cov((z_u; z_v)) under whatever law the nodes have, a posterior for example.

Changing the sign of the second half of K makes it the Laplacian of the bipartite graph with conductances M,
and e_ijᵀ K⁺ e_ij the effective resistance between i and j; so nothing is inverted that the graph does not
connect, and empty cells, absorbing cells and structural zeros need no jitter and no pseudo-inverse.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np

from headcount._device import on_host
from headcount._linalg import fortran, largest, product
from headcount._types import Array, Index
from headcount.individual import ModelError
from headcount.population._dispersion import Dispersion, as_dispersion
from headcount.population.laplacian import (
    LaplacianFactor,
    inverse_or_zero,
    matrix_of,
    star_weights,
)

MOST_REFINEMENTS = 4
"""Rounds of refinement of a flow. Two are enough unless clusters of cells are joined by weights below 1e-8 of the others."""
REFINED = 1e-14
"""A flow is refined until its margins are right to this, relative to their largest deviation: a few rounding errors of a sum."""
SAME_DEGREE = 1e-12
"""Relative difference of two nodes' conductances that is rounding: of sums over 10⁴ cells."""


def step_moments(
    mean: Array, covariance: Array, p: Array, dispersion: Dispersion | None, node: Hashable
) -> tuple[Array, Array]:
    r"""Mean and covariance of the counts after a step into ``node``, from those before it; exact, by total variance.

    .. math:: E n' = p^\top E n, \qquad
        \operatorname{cov} n' = p^\top \operatorname{cov}(n)\, p + \sum_i E[n_i \phi_i(n_i)] (\operatorname{diag} p_i - p_i p_i^\top)
    """
    # rho's phi is linear in n: E[n phi(n)] = E n · phi(E n²/E n).
    squares = np.divide(np.diag(covariance), mean, out=np.zeros_like(mean), where=mean > 0)
    noise = mean * as_dispersion(dispersion).party(node, mean + squares)
    spread = np.diag(noise @ p) - (p.T * noise) @ p
    return mean @ p, p.T @ covariance @ p + spread


@final
@dataclass(frozen=True, eq=False)
class EdgeConditional:
    """z_uv | z_u, z_v: the table of an edge, given both its nodes.

    Attributes
    ----------
    table : array, shape (L_u, L_v)
        M = Nμ_uv, the expected table.
    gain : array, shape (L_u, L_v)
        P = diag(1/M1) M. Rows that no one reaches are zero, unless the model's own P is passed.
    """

    table: Array
    gain: Array = field(default_factory=lambda: np.empty((0, 0)))

    def __post_init__(self) -> None:
        table = fortran(matrix_of(self.table, "table"))
        object.__setattr__(self, "table", table)
        gain: Any = self.gain
        if isinstance(gain, np.ndarray) and gain.size == 0:
            gain = fortran(self.over_rows[:, None] * table)
        elif not isinstance(gain, np.ndarray) and on_host(table):
            gain = fortran(matrix_of(gain, "gain"))
        if gain.shape != table.shape:
            raise ModelError(f"gain has shape {gain.shape} and table {table.shape}; give one gain per entry")
        object.__setattr__(self, "gain", gain)

    @cached_property
    def over_rows(self) -> Array:
        """1/m, m = M1; zero for rows that no one reaches."""
        return inverse_or_zero(self.table.sum(axis=1))

    @cached_property
    def noise(self) -> LaplacianFactor:
        """Q = diag(Mᵀ1) − Mᵀ diag(1/m) M, factored: the noise of z_v given z_u, and what is left of K without its first half."""
        return LaplacianFactor(star_weights(self.table))

    def over_noise(self, right: Array) -> Array:
        """Q⁺ r, shape (L_v, k), for r that sums to zero on every connected part.

        Where one cell of a part holds nearly all, its conductance is that of the next one to rounding, and potentials may be reckoned
        from that: the cell's own is then up to one over its neighbour's share, and flows are differences of such numbers. So there they
        are reckoned from the cell that holds most, and its equation is the one that follows from the others.
        """
        if not self._almost_all:
            return self.noise.solve(right)
        right = right.copy()
        for part, cell in self._almost_all:
            right[cell] -= right[part].sum(axis=0)
        found = self.noise.solve(right)
        for part, cell in self._almost_all:
            found[part] -= found[cell]
        return found

    @cached_property
    def _almost_all(self) -> list[tuple[Index, int]]:
        """The connected parts of the second node that are not eliminated down to the cell that holds nearly all, and that cell."""
        if not on_host(self.table):
            return []
        held, degree = self.table.sum(axis=0), np.square(self.noise.root).sum(axis=1)
        found = []
        for part in self.noise.parts:
            tied = part[degree[part] >= (1 - SAME_DEGREE) * degree[part[-1]]]
            cell = int(tied[held[tied].argmax()])
            if cell != part[-1]:
                found.append((part, cell))
        return found

    def flow(self, a: Array, b: Array) -> Array:
        """M_ij (α_i + β_j), the table's deviation given those of its margins; a leading axis holds separate right-hand sides.

        Potentials may be huge where cells are nearly cut off; the flows they drive are not. So what is left over is solved for
        again and added as flows, never as potentials.
        """
        found = np.zeros_like(self.table, shape=(*a.shape[:-1], *self.table.shape))
        close = REFINED * max(largest(a), largest(b))
        for _ in range(MOST_REFINEMENTS):
            row_gap, column_gap = a - found.sum(axis=-1), b - found.sum(axis=-2)
            if max(largest(row_gap), largest(column_gap)) <= close:
                break
            alpha, beta = self.potentials(row_gap.T, column_gap.T)
            found += self.table * (alpha.T[..., :, None] + beta.T[..., None, :])
        return found

    def potentials(self, a: Array, b: Array) -> tuple[Array, Array]:
        """(α, β) with K (α; β) = (a; b); columns of a and b are separate right-hand sides."""
        if a.ndim == 1:
            alpha, beta = self.potentials(a[:, None], b[:, None])
            return alpha[:, 0], beta[:, 0]
        first = fortran(a)
        beta = self.over_noise(b - product(self.gain, first, left=True))
        return self.over_rows[:, None] * first - product(self.gain, beta), beta

    @cached_property
    def variance(self) -> Array:
        """Var[z_uv(i,j) | z_u, z_v] = M_ij (1 − M_ij R_ij), shape (L_u, L_v), with R_ij = e_ijᵀ K⁺ e_ij the effective resistance.

        A row is a star of total conductance m_i on the columns: R_ij = (P R)_ij + 1/m_i − ½ (P R Pᵀ)_ii. M_ij R_ij ≤ 1, with
        equality where the nodes fix the flow; rounding may exceed it by a few units in the last place, and that much, no more,
        is cut off at zero.
        """
        between = self.noise.resistances
        finite = np.where(np.isfinite(between), between, 0.0)  # entries of P across parts are zero anyway
        seen = product(self.gain, fortran(finite))
        own = self.over_rows - 0.5 * (seen * self.gain).sum(axis=1)
        mixed = np.where(self.table > 0, seen + own[:, None], 0.0)
        return self.table * np.maximum(1.0 - self.table * mixed, 0.0)
