"""Laplacians of weighted graphs, factored without a single subtraction.

    S = diag(W1) − W,  W ≥ 0, zero diagonal;   eliminating k:  d_k = Σ_{j>k} W_kj,  W_ij += W_ik W_kj/d_k

The noise of a tree's node given its parent, and what is left of a flow once one side is eliminated, are such matrices. Their
diagonal is what rounding spoils first when cells are nearly empty or nearly cut off from the others; here it is never stored:
every d_k is a sum of positive numbers, so each entry of the factor keeps its relative accuracy however wide the weights' range
(Grassmann, Taksar and Heyman 1985). A Cholesky factor of the matrix without one node per part fails where two clusters are
joined by a weight below 1e-16 of the others. S is singular along the indicator of each connected part and nowhere else.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, final

import numpy as np

from headcount._compile import worth
from headcount._device import host, namespace, on_host
from headcount._linalg import BLOCK, cholesky, fortran, forward_solve, gram, mirror, subtract_product
from headcount._types import Array, Index
from headcount.checks import brief, numbers
from headcount.individual import ModelError
from headcount.population._elimination import (
    eliminate_columns,
    eliminate_in_numpy,
    elimination_order,
    fill_elimination_order,
    negative_weights,
    resistances_between,
    resistances_in_numpy,
)

NUMPY_SECONDS = 1e-5
"""Time of eliminating one node, or of putting one back, in NumPy."""

LEAST_PIVOT = 1e-6
"""Of a Cholesky factor, squared, relative to the diagonal: above it, at most six of sixteen digits are lost to subtractions."""


def inverse_or_zero(values: Array) -> Array:
    """1/x, and 0 where x = 0 or below the smallest normal double, whose inverse overflows: a cell that no one can reach drives nothing."""
    held = values >= np.finfo(float).tiny
    return np.where(held, 1.0 / np.where(held, values, 1.0), 0.0)


def star_weights(table: Array) -> Array:
    """W_jk = Σ_i M_ij M_ik / m_i for j ≠ k, m_i = Σ_j M_ij: the graph on the columns of M without its rows.

    Its Laplacian is the noise of a step, Q = diag(Mᵀ1) − Mᵀ diag(1/m) M = Σ_i m_i (diag p_i − p_i p_iᵀ), p_i = M_i / m_i.
    A root is a table of one row.
    """
    table = matrix_of(table, "table")
    rows = table.sum(axis=1)
    weights = mirror(gram(fortran(np.sqrt(inverse_or_zero(rows))[:, None] * table), left=True))
    np.fill_diagonal(weights, 0.0)
    return weights


def laplacian(weights: Array) -> Array:
    """diag(W1) − W: rows sum to zero and no diagonal entry comes from a difference."""
    matrix = -_checked_weights(weights)
    np.fill_diagonal(matrix, -matrix.sum(axis=1))
    return matrix


@final
class LaplacianFactor:
    """The factored Laplacian of W: S = R Rᵀ.

    Parameters
    ----------
    weights : array, shape (n, n)
        W, symmetric, ≥ 0, zero on the diagonal.

    Attributes
    ----------
    order : array, shape (n,)
        Nodes as they are eliminated; the last ones, one per connected part, are not.
    rank : int
        n minus the number of connected parts.
    root : array, shape (n, rank)
        R; its rows in elimination order are lower triangular.
    """

    def __init__(self, weights: Array) -> None:
        if not on_host(weights):
            self._factor_there(weights)
            return
        weights = _checked_weights(weights)
        if worth(eliminate_columns, NUMPY_SECONDS * len(weights)):
            eliminate: Any = eliminate_columns
            weights = np.ascontiguousarray(weights)
            self.order, self._part, *room = (np.empty(len(weights), np.intp) for _ in range(4))
            self.rank = int(fill_elimination_order(weights, self.order, self._part, *room))
            columns = np.empty((self.rank, len(weights)))
            negative_weights(weights, self.order, columns, self.rank)
        else:
            eliminate = eliminate_in_numpy
            self.order, self._part, self.rank = elimination_order(weights)
            columns = -weights.take(self.order[: self.rank], axis=0).take(self.order, axis=1)
        lower = columns.T
        for start in range(0, self.rank, BLOCK):
            stop = min(start + BLOCK, self.rank)
            subtract_product(lower[:, start:stop], lower[:, :start], lower[start:stop, :start])
            if not eliminate(columns, start, stop):
                raise FloatingPointError(
                    "a Laplacian could not be factored: products of its weights underflow; "
                    "set transition probabilities below 1e-150 to zero"
                )
        self.root = np.empty(lower.shape, order="F")
        self.root[self.order] = lower

    def _factor_there(self, weights: Array) -> None:
        """On a device, by Cholesky without the heaviest node, where all pivots are large; else the factor is made here and put there."""
        xp, size = namespace(weights), len(weights)
        degree = weights.sum(axis=1)
        nodes = np.arange(size)
        last = int(np.argmax(host(degree)))
        order = xp.asarray(np.append(nodes[nodes != last], last))
        matrix = -weights[order][:, order]
        at = xp.arange(size)
        matrix[at, at] = degree[order]
        lower = cholesky(matrix[:-1, :-1])
        if lower is not None and float((np.diagonal(lower) ** 2 / degree[order[:-1]]).min()) > LEAST_PIVOT:
            below = forward_solve(lower, matrix[:-1, -1:]).T
            self.order, self.rank, self._part = order, size - 1, xp.zeros(size, np.intp)
            self.root = np.zeros_like(matrix, shape=(size, size - 1))
            self.root[order] = np.concatenate([lower, below])
            return
        here = LaplacianFactor(host(weights))
        self.rank = here.rank
        self.order, self._part, self.root = (xp.asarray(x) for x in (here.order, here._part, here.root))
        self.__dict__["resistances"] = xp.asarray(here.resistances)

    @property
    def _lower(self) -> Array:
        """R in elimination order."""
        return fortran(self.root[self.order])

    @cached_property
    def parts(self) -> tuple[Index, ...]:
        """The connected parts, each ordered as it is eliminated: the heaviest node last."""
        label = self._part[self.order]
        return tuple(self.order[label == part] for part in range(len(self.order) - self.rank))

    @property
    def log_determinant(self) -> float:
        """Log-determinant of S without one row and column of every part (whichever: all give the same)."""
        return 2.0 * float(np.log(self.root[self.order[: self.rank], np.arange(self.rank)]).sum())

    def whiten(self, right: Array) -> Array:
        """Give x with R x = r, shape (rank, k), for r of shape (n, k) that sums to zero on every part."""
        kept = self.order[: self.rank]
        return forward_solve(fortran(self.root[kept]), fortran(right[kept]))

    def solve(self, right: Array) -> Array:
        """Give x with S x = r, for r of shape (n,) or (n, k) that sums to zero on every part; x is zero at each part's last node."""
        if right.ndim == 1:
            return self.solve(right[:, None])[:, 0]
        kept = self.order[: self.rank]
        solution = np.zeros_like(right, order="F")
        solution[kept] = forward_solve(fortran(self.root[kept]), self.whiten(right), transpose=True)
        return solution

    @cached_property
    def resistances(self) -> Array:
        """R_jk = (e_j − e_k)ᵀ S⁺ (e_j − e_k), the effective resistance; ∞ between different parts.

        Differences of an inverse would lose everything where two clusters are joined by a tiny weight.
        """
        if not on_host(self.root):  # pivots are large: differences of an inverse keep their digits
            kept = self.order[: self.rank]
            inverse = np.zeros_like(self.root, shape=(len(self.order),) * 2)
            white = forward_solve(self.root[kept], namespace(self.root).eye(self.rank))
            inverse[kept[:, None], kept] = white.T @ white
            own = np.diagonal(inverse)
            return own[:, None] + own - 2.0 * inverse
        compiled = worth(resistances_between, NUMPY_SECONDS * self.rank)
        between = resistances_between if compiled else resistances_in_numpy
        found = np.empty((len(self.order),) * 2)
        found[np.ix_(self.order, self.order)] = between(np.ascontiguousarray(self._lower))
        return np.where(self._part[:, None] == self._part[None, :], found, np.inf)


def matrix_of(values: Any, what: str) -> Array:
    """A matrix of finite numbers, 0 or more, as floats; on a device nothing is checked."""
    if hasattr(values, "__array_function__") and not on_host(values):
        return values
    found = np.asarray(values) if isinstance(values, np.ndarray) else numbers(values, what)
    if found.dtype != np.float64:
        found = numbers(found, what)
    if found.ndim != 2 or not np.isfinite(found).all() or not (found >= 0).all():
        raise ModelError(f"{what} is {brief(values)}: give a matrix of finite numbers, 0 or more")
    return found


def _checked_weights(weights: Array) -> Array:
    found = matrix_of(weights, "weights")
    if found.shape[0] != found.shape[1]:
        raise ModelError(f"weights has shape {found.shape}: give a symmetric (n, n) matrix")
    return found
