"""The passes of ``_tree_passes``, compiled, for trees of equal dense nodes.

At L = 16 a matrix–vector product is faster than the Python call that asks for it, and at L = 144 not much slower, so the whole
pass is one compiled function. It returns False on underflow and on forbidden states, which only ``_tree_passes`` handles.
Transitions come as the distinct ones, ``(U, L, L)``, and which of them leads to each node, ``(T,)``. Plain loops over arrays that the
caller provides: NumPy's functions take numba several times longer to compile, and BLAS is no faster at these sizes.
"""

from __future__ import annotations

import numpy as np

from headcount._compile import bare, bare_sums
from headcount.individual._tree_passes import DEEPEST, SMALL


@bare_sums
def _product(matrix, vector, out):  # type: ignore[no-untyped-def]
    """out = matrix @ vector; additions may be reordered, so that they use the vector unit."""
    for i in range(matrix.shape[0]):
        total = 0.0
        for j in range(matrix.shape[1]):
            total += matrix[i, j] * vector[j]
        out[i] = total


@bare
def _ends(values):  # type: ignore[no-untyped-def]
    """The smallest and the largest value; a NaN is taken for either, so that comparisons with it fail."""
    low = top = values[0]
    for j in range(values.shape[0]):
        value = values[j]
        if not value >= low:
            low = value
        if not value <= top:
            top = value
    return low, top


@bare
def _exponentials(potentials, weights):  # type: ignore[no-untyped-def]
    """Fills ``weights`` with exp(potentials), every row divided by its largest; whether that held, and the log of what was divided by."""
    log_scale = 0.0
    for v in range(potentials.shape[0]):
        low, top = _ends(potentials[v])
        if not top < np.inf or not low >= top - DEEPEST:
            return False, 0.0
        log_scale += top
        for j in range(potentials.shape[1]):
            weights[v, j] = np.exp(potentials[v, j] - top)
    return True, log_scale


@bare
def collect_compiled(parent, initial, transitions, which, potentials, weights, messages):  # type: ignore[no-untyped-def]
    """The upward pass: fills ``weights`` and ``messages`` (T, L); returns whether it held, and the log scale.

    Comparisons are written so that they fail where a number is NaN.
    """
    count, size = potentials.shape
    held, log_scale = _exponentials(potentials, weights)
    if not held:
        return False, 0.0
    for v in range(count - 1, 0, -1):
        message = messages[v]
        _product(transitions[which[v]], weights[v], message)
        smallest, largest = _ends(message)
        if not smallest >= SMALL * largest or not largest > 0:
            return False, 0.0
        log_scale += np.log(largest)
        u, least = parent[v], 1.0
        for i in range(size):
            message[i] /= largest
            weights[v, i] /= largest
            weights[u, i] *= message[i]
            if not weights[u, i] >= least:
                least = weights[u, i]
        if not least >= SMALL:
            return False, 0.0
    total = 0.0
    for j in range(size):
        total += initial[j] * weights[0, j]
    if not total > SMALL:
        return False, 0.0
    return True, log_scale + np.log(total)


@bare
def beliefs_compiled(parent, initial, transitions, which, weights, messages, beliefs):  # type: ignore[no-untyped-def]
    """The downward pass: fills in node marginals (T, L)."""
    count, size = weights.shape
    total = 0.0
    for j in range(size):
        beliefs[0, j] = initial[j] * weights[0, j]
        total += beliefs[0, j]
    for j in range(size):
        beliefs[0, j] /= total
    for v in range(1, count):
        u, step, own = parent[v], transitions[which[v]], beliefs[v]
        for j in range(size):
            own[j] = 0.0
        for i in range(size):
            flow = beliefs[u, i] / messages[v, i]
            if flow > 0:
                for j in range(size):
                    own[j] += flow * step[i, j]
        for j in range(size):
            own[j] *= weights[v, j]


@bare
def tilted_compiled(transitions, which, weights, messages, steps):  # type: ignore[no-untyped-def]
    """Fills in the transitions (T, L, L) of the tilted tree; that of the root is left as it is."""
    for v in range(1, weights.shape[0]):
        step = transitions[which[v]]
        for i in range(weights.shape[1]):
            row = 1.0 / messages[v, i]
            for j in range(weights.shape[1]):
                steps[v, i, j] = step[i, j] * (row * weights[v, j])
