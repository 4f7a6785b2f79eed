"""Elimination of the nodes of a weighted graph, compiled: the factor of its Laplacian without a subtraction.

``_laplacian`` states the formulas and calls these kernels; so does the compiled solver for small trees. The factor is kept in
elimination order: row i belongs to node ``order[i]``. Plain loops over arrays that the caller provides: whatever else NumPy offers
takes numba many times longer to compile than it takes to run.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from headcount._compile import bare, kernel
from headcount._types import Array, Index


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


def resistances_in_numpy(lower: Array) -> Array:
    """``resistances_between`` without a compiler."""
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


@kernel
def resistances_between(lower):  # type: ignore[no-untyped-def]
    """Effective resistances in elimination order, from the factor; nodes of different parts get a meaningless number.

    Nodes are put back in the reverse order of elimination: R_ik = (Rc)_i + 1/d_k − ½ cᵀRc, c the shares and d_k the pivot of k.
    """
    size, rank = lower.shape
    found = np.zeros((size, size))
    share, seen = np.zeros(size), np.zeros(size)
    for k in range(rank - 1, -1, -1):
        seen[:] = 0.0
        for j in range(k + 1, size):
            share[j] = -lower[j, k] / lower[k, k]
            if share[j] != 0:
                for i in range(k + 1, size):
                    seen[i] += share[j] * found[j, i]
        own = 1.0 / lower[k, k] ** 2
        for j in range(k + 1, size):
            own -= 0.5 * share[j] * seen[j]
        for i in range(k + 1, size):
            found[i, k] = seen[i] + own
            found[k, i] = found[i, k]
    return found
