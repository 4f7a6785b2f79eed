"""One evaluation of MAP's dual with Poisson-shaped terms on a tree of equal dense nodes: ``_map.Objective`` as one compiled function."""

from __future__ import annotations

import numpy as np

from headcount._compile import kernel
from headcount.individual._compiled_passes import beliefs_compiled, collect_compiled


@kernel
def poisson_dual(x, a, b, s, c, where, grid, potentials, tree, count):
    """Whether the passes held, value, gain, g, Nμ of all observed entries, gradient, curvature and Σ|Nμ − n*|.

    ``where`` and ``grid`` are the places of the variables' and of all entries among the (flat) node ``potentials``, which already hold
    the tilts that are settled; ``tree`` is parents, initial law, distinct transitions and which of them leads to each node.
    """
    parent, initial, transitions, which = tree
    n, g, slope = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    potentials = potentials.copy()
    flat = potentials.ravel()
    value = 0.0
    for k in range(x.size):
        e = np.exp(x[k])
        pull = a[k] / e
        n[k], g[k], slope[k] = e - s[k], pull - b[k], -pull
        value += a[k] * x[k] - pull * n[k] + c[k]
        flat[where[k]] = g[k]
    weights, messages = np.empty_like(potentials), np.empty_like(potentials)
    held, gain = collect_compiled(parent, initial, transitions, which, potentials, weights, messages)
    if not held:
        return False, value, gain, g, g, n, slope, 0.0
    mu = count * beliefs_compiled(parent, initial, transitions, which, weights, messages)
    mu = mu.ravel()
    gradient, curvature, missed = n, np.empty_like(x), 0.0
    for k in range(x.size):
        here = mu[where[k]]
        off = here - n[k]
        missed += abs(off)
        curvature[k] = slope[k] ** 2 * here + a[k]
        gradient[k] = slope[k] * off
    return True, value, gain, g, mu[grid], gradient, curvature, missed
