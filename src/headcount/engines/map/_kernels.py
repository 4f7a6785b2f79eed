"""MAP's compiled parts: the dual with Poisson-shaped terms on a tree of equal dense nodes, and the two-loop recursion of L-BFGS.

At a few hundred variables the calls would cost more than the sums. No BLAS: the threads it would wake for long vectors stand in the way
of those of belief propagation.
"""

from __future__ import annotations

import numpy as np

from headcount._compile import bare_sums, kernel
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


@bare_sums
def _dot(a, b):
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@bare_sums
def _add(q, factor, other):
    for i in range(q.size):
        q[i] += factor * other[i]


@kernel
def two_loop(steps, changes, rho, gradient, curvature):
    """−H gradient, from the last pairs (rows, oldest first) and H₀ = diag(1/curvature), scaled by the newest pair."""
    count = len(rho)
    q = -gradient
    alpha = np.empty(count)
    for k in range(count - 1, -1, -1):
        alpha[k] = rho[k] * _dot(steps[k], q)
        _add(q, -alpha[k], changes[k])
    scale = 1.0
    if count > 0:
        newest = changes[count - 1]
        scale = 1.0 / (rho[count - 1] * _dot(newest, newest / curvature))
    for i in range(q.size):
        q[i] *= scale / curvature[i]
    for k in range(count):
        _add(q, alpha[k] - rho[k] * _dot(changes[k], q), steps[k])
    return q


@kernel
def remember(x0, x1, g0, g1, flat, step, change, rho):
    """Write a pair and its ρ = 1 / step · change; False, and nothing is to be remembered, without curvature."""
    for i in range(x0.size):
        step[i], change[i] = x1[i] - x0[i], g1[i] - g0[i]
    curved = _dot(step, change)
    rho[0] = 1.0 / curved  # infinite where it is not to be remembered
    return curved > flat * np.sqrt(_dot(step, step) * _dot(change, change))
