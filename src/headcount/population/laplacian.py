"""Laplacians of weighted graphs, factored without a single subtraction.

    S = diag(W1) − W,  W ≥ 0, zero diagonal;   eliminating k:  d_k = Σ_{j>k} W_kj,  W_ij += W_ik W_kj/d_k

The noise of a tree's node given its parent, and what is left of a flow once one side is eliminated, are such matrices. Their
diagonal is what rounding spoils first when cells are nearly empty or nearly cut off from the others; here it is never stored:
every d_k is a sum of positive numbers, so each entry of the factor keeps its relative accuracy however wide the weights' range
(Grassmann, Taksar and Heyman 1985). A Cholesky factor of the matrix without one node per part fails where two clusters are
joined by a weight below 1e-16 of the others. S is singular along the indicator of each connected part and nowhere else.

Elimination is compiled where that is worth its wait. The kernels, which the compiled solver for small trees calls, too, keep the
factor in elimination order: row i belongs to node ``order[i]``. They are plain loops over arrays that the caller provides: whatever
else NumPy offers takes numba many times longer to compile than it takes to run.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, final

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from headcount._compile import bare, worth
from headcount._device import host, namespace, on_host
from headcount._linalg import BLOCK, cholesky, fortran, forward_solve, gram, mirror, subtract_product
from headcount._types import Array, Index
from headcount.checks import brief, numbers
from headcount.individual import ModelError

NUMPY_SECONDS = 1e-5
"""Seconds for eliminating one node in NumPy (measured: .34 ms for 36 nodes, 1.5 ms for 144)."""
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
        found = np.empty((len(self.order),) * 2)
        found[np.ix_(self.order, self.order)] = _resistances_between(self._lower)
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


def elimination_order(weights: Array) -> tuple[Index, Index, int]:
    """The nodes in the order of their elimination, the connected part of each node, and the rank of the Laplacian.

    Nodes to be eliminated come first, in their own order; then the heaviest node of every part, part by part.
    """
    size = len(weights)
    joined, degree = weights > 0, weights.sum(axis=1)
    if size and np.count_nonzero(joined) == size * (size - 1):
        part, last = np.zeros(size, np.intp), degree.argmax(keepdims=True)
    else:
        parts, part = connected_components(csr_array(joined), directed=False)
        last = np.array([np.where(part == k, degree, -1.0).argmax() for k in range(parts)], np.intp)
    others = np.ones(size, bool)
    others[last] = False
    return np.concatenate([np.flatnonzero(others), last]), part, size - len(last)


def eliminate_in_numpy(columns: Array, start: int, stop: int) -> bool:
    """``eliminate_columns`` without a compiler."""
    for k in range(start, stop):
        row = columns[k]
        pivot = -row[k + 1 :].sum()
        if not pivot > 0:
            return False
        row[:k], row[k] = 0.0, np.sqrt(pivot)
        row[k + 1 :] /= row[k]
        columns[k + 1 : stop, k + 1 :] -= np.multiply.outer(row[k + 1 : stop], row[k + 1 :])
    return True


def _resistances_between(lower: Array) -> Array:
    """Effective resistances in elimination order, from the factor; nodes of different parts get a meaningless number.

    Nodes are put back in the reverse order of elimination: R_ik = (Rc)_i + 1/d_k − ½ cᵀRc, c the shares and d_k the pivot of k.
    """
    size, rank = lower.shape
    found = np.zeros((size, size))
    for k in range(rank - 1, -1, -1):
        share = -lower[k + 1 :, k] / lower[k, k]
        seen = np.einsum("ij,j->i", found[k + 1 :, k + 1 :], share)
        found[k, k + 1 :] = found[k + 1 :, k] = seen + (1.0 / lower[k, k] ** 2 - 0.5 * float(share @ seen))
    return found


@bare
def _fill_parts(weights, part, stack, last):  # type: ignore[no-untyped-def]
    """Fill in the connected part of each node (−1 before) and the heaviest node of every part, the first of equals; the number of parts."""
    size = weights.shape[0]
    parts = 0
    for start in range(size):
        if part[start] >= 0:
            continue
        part[start] = parts
        stack[0] = start
        waiting, heaviest = 1, -1.0
        while waiting > 0:
            waiting -= 1
            i, degree = stack[waiting], 0.0
            for j in range(size):
                degree += weights[i, j]
                if part[j] < 0 and weights[i, j] > 0:
                    part[j] = parts
                    stack[waiting] = j
                    waiting += 1
            if degree > heaviest or (degree == heaviest and i < last[parts]):
                heaviest, last[parts] = degree, i
        parts += 1
    return parts


@bare
def fill_elimination_order(weights, order, part, stack, last):  # type: ignore[no-untyped-def]
    """Fill in the nodes in the order of their elimination and the connected part of each node; the rank of the Laplacian.

    Nodes to be eliminated come first, in their own order; then the heaviest node of every part, part by part. ``stack`` and ``last``
    are room for as many whole numbers as there are nodes.
    """
    size = weights.shape[0]
    for i in range(size):
        part[i] = -1
    parts = _fill_parts(weights, part, stack, last)
    rank = size - parts
    found = 0
    for i in range(size):
        if last[part[i]] != i:
            order[found] = i
            found += 1
    for k in range(parts):
        order[rank + k] = last[k]
    return rank


@bare
def negative_weights(weights, order, columns, rank):  # type: ignore[no-untyped-def]
    """Fill in the Laplacian's off-diagonal entries in elimination order, one row of ``columns`` per column to be eliminated.

    The diagonal is not stored.
    """
    for k in range(rank):
        for i in range(weights.shape[0]):
            columns[k, i] = -weights[order[k], order[i]]


@bare
def eliminate_columns(columns, start, stop):  # type: ignore[no-untyped-def]
    """Turn columns ``start`` to ``stop`` of the Laplacian (rows of ``columns``) into columns of its factor, in place.

    Earlier columns are already subtracted from these. A pivot is minus the sum of the entries below it: all of one sign.
    False when products of the weights underflow, so that a pivot is zero.
    """
    size = columns.shape[1]
    for k in range(start, stop):
        pivot = 0.0
        for i in range(k + 1, size):
            pivot -= columns[k, i]
        if not pivot > 0:
            return False
        root = np.sqrt(pivot)
        for i in range(k):
            columns[k, i] = 0.0
        columns[k, k] = root
        for i in range(k + 1, size):
            columns[k, i] /= root
        for j in range(k + 1, stop):
            share = columns[k, j]
            if share != 0:
                for i in range(j + 1, size):
                    columns[j, i] -= columns[k, i] * share
    return True
