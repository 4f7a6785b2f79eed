"""The passes of ``_tree_passes``, compiled, for trees of equal dense nodes.

At L = 16 a matrix–vector product is faster than the Python call that asks for it, and at L = 144 not much slower, so the whole
pass is one compiled function. It returns False on underflow and on forbidden states, which only ``_tree_passes`` handles.
Transitions come as the distinct ones, ``(U, L, L)``, and which of them leads to each node, ``(T,)``.
"""

from __future__ import annotations

import numpy as np

from headcount._compile import kernel, kernel_sums
from headcount.individual._tree_passes import DEEPEST, SMALL

_LOOPS = 64
"""Cells up to which plain loops are faster than the call of BLAS (kept from an earlier timing on two cores)."""


@kernel_sums
def _product(matrix, vector, out):  # type: ignore[no-untyped-def]
    """out = matrix @ vector; additions may be reordered, so that they use the vector unit."""
    for i in range(matrix.shape[0]):
        total = 0.0
        for j in range(matrix.shape[1]):
            total += matrix[i, j] * vector[j]
        out[i] = total


@kernel
def _ends(values):  # type: ignore[no-untyped-def]
    """Smallest and largest; where one is NaN, some comparison with them fails."""
    low = high = values[0]
    for value in values[1:]:
        if not value >= low:
            low = value
        if not value <= high:
            high = value
    return low, high


@kernel
def collect_compiled(parent, initial, transitions, which, potentials, weights, messages):  # type: ignore[no-untyped-def]
    """The upward pass: fills ``weights`` and ``messages`` (T, L); returns whether it held, and the log scale."""
    count, size = potentials.shape
    log_scale = 0.0
    for v in range(count):
        low, top = _ends(potentials[v])
        if not np.isfinite(top) or not low >= top - DEEPEST:
            return False, 0.0
        log_scale += top
        for j in range(size):
            weights[v, j] = np.exp(potentials[v, j] - top)
    for v in range(count - 1, 0, -1):
        step = transitions[which[v]]
        if size > _LOOPS:
            messages[v] = np.dot(step, weights[v])
        else:
            _product(step, weights[v], messages[v])
        smallest, largest = _ends(messages[v])
        if not smallest >= SMALL * largest or not largest > 0:
            return False, 0.0
        log_scale += np.log(largest)
        u, least = parent[v], 1.0
        for i in range(size):
            messages[v, i] /= largest
            weights[v, i] /= largest
            weights[u, i] *= messages[v, i]
            least = min(least, weights[u, i])
        if not least >= SMALL:
            return False, 0.0
    total = 0.0
    for j in range(size):
        total += initial[j] * weights[0, j]
    if not total > SMALL:
        return False, 0.0
    return True, log_scale + np.log(total)


@kernel
def beliefs_compiled(parent, initial, transitions, which, weights, messages):  # type: ignore[no-untyped-def]
    """The downward pass: node marginals (T, L)."""
    count, size = weights.shape
    beliefs = np.zeros((count, size))
    total = 0.0
    for j in range(size):
        beliefs[0, j] = initial[j] * weights[0, j]
        total += beliefs[0, j]
    for j in range(size):
        beliefs[0, j] /= total
    for v in range(1, count):
        step, flow = transitions[which[v]], beliefs[parent[v]] / messages[v]
        if size > _LOOPS:
            beliefs[v] = np.dot(flow, step)
        else:
            for i in range(size):
                if flow[i] > 0:
                    for j in range(size):
                        beliefs[v, j] += flow[i] * step[i, j]
        beliefs[v] *= weights[v]
    return beliefs


@kernel
def scale(matrix, rows, columns, out):  # type: ignore[no-untyped-def]
    """out = diag(rows) M diag(columns), in one pass over memory."""
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            out[i, j] = matrix[i, j] * (rows[i] * columns[j])


@kernel
def tilted_compiled(initial, transitions, which, weights, messages):  # type: ignore[no-untyped-def]
    """Initial law and transitions (T, L, L) of the tilted tree."""
    count, size = weights.shape
    first = initial * weights[0]
    first /= first.sum()
    steps = np.empty((count, size, size))
    steps[0] = 0.0
    for v in range(1, count):
        scale(transitions[which[v]], 1.0 / messages[v], weights[v], steps[v])
    return first, steps
