"""Laplacians of weighted graphs, factored without a single subtraction.

    S = diag(W1) − W,  W ≥ 0, zero diagonal;   eliminating k:  d_k = Σ_{j>k} W_kj,  W_ij += W_ik W_kj/d_k

The noise of a tree's node given its parent, and what is left of a flow once one side is eliminated, are
such matrices. Their diagonal is what rounding spoils first when cells are nearly empty or nearly cut off
from the others; here it is never stored: every d_k is a sum of positive numbers, so each entry of the
factor keeps its relative accuracy however wide the weights' range (Grassmann, Taksar and Heyman 1985). S is
singular along the indicator of each connected part and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

Vector = NDArray[np.float64]


def star_weights(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """W_jk = Σ_i M_ij M_ik / m_i for j ≠ k, m_i = Σ_j M_ij: the graph on the columns of M without its rows.

    Its Laplacian is diag(Mᵀ1) − Mᵀ diag(1/m) M = Σ_i m_i (diag p_i − p_i p_iᵀ), p_i = M_i / m_i.
    """
    total = table.sum(axis=1)
    scaled = table / np.sqrt(np.where(total > 0, total, 1.0))[:, None]
    weights = scaled.T @ scaled
    np.fill_diagonal(weights, 0.0)
    return weights


def laplacian(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """diag(W1) − W: rows sum to zero and no diagonal entry comes from a difference."""
    matrix = -weights
    np.fill_diagonal(matrix, weights.sum(axis=1))
    return matrix


@final
@dataclass(frozen=True, eq=False)
class LaplacianFactor:
    """The factored Laplacian of W.

    Attributes
    ----------
    weights : array, shape (n, n)
        W, symmetric, ≥ 0, zero on the diagonal.
    """

    weights: NDArray[np.float64]

    @cached_property
    def parts(self) -> tuple[NDArray[np.intp], ...]:
        """The connected parts, each ordered as it is eliminated: lightest first, the heaviest node last."""
        count, label = connected_components(self.weights > 0, directed=False)
        degree = self.weights.sum(axis=1)
        order = np.argsort(degree, kind="stable")
        return tuple(order[label[order] == part] for part in range(count))

    @cached_property
    def _eliminated(self) -> tuple[tuple[NDArray[np.float64], Vector], ...]:
        """Per part: shares c (strictly upper, c_kj = W_kj/d_k) and pivots d."""
        factors = []
        for nodes in self.parts:
            w = self.weights[np.ix_(nodes, nodes)]
            pivots = np.zeros(max(len(nodes) - 1, 0))
            for k in range(len(nodes) - 1):
                row = w[k, k + 1 :]
                pivots[k] = row.sum()
                share = row / pivots[k]
                w[k + 1 :, k + 1 :] += share[:, None] * row
                w[k, k + 1 :] = share
            factors.append((w, pivots))
        return tuple(factors)

    @property
    def rank(self) -> int:
        """N minus the number of connected parts."""
        return len(self.weights) - len(self.parts)

    @cached_property
    def log_determinant(self) -> float:
        """Log-determinant of S without one row and column of every part (whichever: all give the same)."""
        return float(sum(np.log(pivots).sum() for _, pivots in self._eliminated))

    def solve(self, right: NDArray[np.float64]) -> NDArray[np.float64]:
        """Give x with S x = r, for r of shape (n,) or (n, k) that sums to zero on every part."""
        solution = np.zeros_like(right, dtype=float)
        for nodes, (share, pivots) in zip(self.parts, self._eliminated, strict=True):
            r = np.array(right[nodes], dtype=float)
            for k in range(len(nodes) - 1):
                r[k + 1 :] += np.multiply.outer(share[k, k + 1 :], r[k])
            x = np.zeros_like(r)
            for k in range(len(nodes) - 2, -1, -1):
                x[k] = r[k] / pivots[k] + share[k, k + 1 :] @ x[k + 1 :]
            solution[nodes] = x
        return solution

    @cached_property
    def resistances(self) -> NDArray[np.float64]:
        """R_jk = (e_j − e_k)ᵀ S⁺ (e_j − e_k), the effective resistance; ∞ between different parts.

        Nodes are put back in the reverse order of elimination: R_ik = (Rc)_i + 1/d_k − ½ cᵀRc. Differences
        of a grounded inverse would lose everything where two clusters hang together by a thread.
        """
        whole = np.full(self.weights.shape, np.inf)
        for nodes, (share, pivots) in zip(self.parts, self._eliminated, strict=True):
            r = np.zeros((len(nodes), len(nodes)))
            for k in range(len(nodes) - 2, -1, -1):
                c = share[k, k + 1 :]
                seen = r[k + 1 :, k + 1 :] @ c
                r[k, k + 1 :] = r[k + 1 :, k] = seen + 1.0 / pivots[k] - 0.5 * (c @ seen)
            whole[np.ix_(nodes, nodes)] = r
        return whole
