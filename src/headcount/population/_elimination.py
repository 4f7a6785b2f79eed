"""Elimination of the nodes of a weighted graph, compiled: the factor of its Laplacian without a subtraction.

``_laplacian`` states the formulas and calls these kernels; so does the compiled solver for small trees. The factor is kept in
elimination order: row i belongs to node ``order[i]``.
"""

from __future__ import annotations

import numpy as np

from headcount._compile import kernel


@kernel
def connected_parts(weights):  # type: ignore[no-untyped-def]
    """The part of every node, and the number of parts."""
    size = weights.shape[0]
    part = np.full(size, -1)
    stack = np.empty(size, np.intp)
    parts = 0
    for start in range(size):
        if part[start] >= 0:
            continue
        part[start] = parts
        stack[0] = start
        waiting = 1
        while waiting > 0:
            waiting -= 1
            i = stack[waiting]
            for j in range(size):
                if part[j] < 0 and weights[i, j] > 0:
                    part[j] = parts
                    stack[waiting] = j
                    waiting += 1
        parts += 1
    return part, parts


@kernel
def elimination_order(weights):  # type: ignore[no-untyped-def]
    """Nodes in the order of their elimination, the connected part of each node, and the rank of the Laplacian.

    Nodes to be eliminated come first, in their own order; then the heaviest node of every part, part by part.
    """
    size = weights.shape[0]
    part, parts = connected_parts(weights)
    degree = weights.sum(axis=1)
    last = np.full(parts, -1)
    for i in range(size):
        if last[part[i]] < 0 or degree[i] > degree[last[part[i]]]:
            last[part[i]] = i
    order = np.empty(size, np.intp)
    rank = size - parts
    found = 0
    for i in range(size):
        if last[part[i]] != i:
            order[found] = i
            found += 1
    order[rank:] = last
    return order, part, rank


@kernel
def negative_weights(weights, order, rank):  # type: ignore[no-untyped-def]
    """The Laplacian's off-diagonal entries in elimination order, the columns to be eliminated only; its diagonal is not stored."""
    size = weights.shape[0]
    columns = np.empty((rank, size)).T
    for k in range(rank):
        for i in range(size):
            columns[i, k] = -weights[order[k], order[i]]
    return columns


@kernel
def eliminate_columns(lower, start, stop):  # type: ignore[no-untyped-def]
    """Turn columns ``start`` to ``stop`` of the Laplacian into columns of its factor, in place.

    Earlier columns are already subtracted from these. A pivot is minus the sum of the entries below it: all of one sign.
    False when products of the weights underflow, so that a pivot is zero.
    """
    size = lower.shape[0]
    for k in range(start, stop):
        pivot = 0.0
        for i in range(k + 1, size):
            pivot -= lower[i, k]
        if not pivot > 0:
            return False
        root = np.sqrt(pivot)
        lower[:k, k] = 0.0
        lower[k, k] = root
        for i in range(k + 1, size):
            lower[i, k] /= root
        for j in range(k + 1, stop):
            share = lower[j, k]
            if share != 0:
                for i in range(j + 1, size):
                    lower[i, j] -= lower[i, k] * share
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
