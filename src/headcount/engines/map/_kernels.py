"""MAP's compiled parts: the dual with Poisson-shaped terms on a tree of equal dense nodes, and the two-loop recursion of L-BFGS.

At a few hundred variables the calls would cost more than the sums. No BLAS: the threads it would wake for long vectors stand in the way
of those of belief propagation.
"""

from __future__ import annotations

import numpy as np

from headcount._compile import bare, bare_sums
from headcount.individual._compiled_passes import beliefs_compiled, collect_compiled


@bare
def poisson_dual(x, a, b, s, c, where, parent, initial, transitions, which, count, made, room, flat):
    """Whether the passes held, the value, the gain and Σ|Nμ − n*|.

    ``made`` (4, variables) is filled with g, n*, the gradient and the curvature. ``room`` (4, T, L) holds the node potentials, with the
    tilts that are settled in them, and is filled with weights, messages and Nμ; ``flat`` is the same (4, T·L), and ``where`` are the
    places of the variables in it.
    """
    potentials, weights, messages, mu = room[0], room[1], room[2], room[3]
    value = 0.0
    for k in range(x.size):
        e = np.exp(x[k])
        pull = a[k] / e
        made[0, k], made[1, k], made[3, k] = pull - b[k], e - s[k], pull
        value += a[k] * x[k] - pull * made[1, k] + c[k]
        flat[0, where[k]] = made[0, k]
    held, gain = collect_compiled(parent, initial, transitions, which, potentials, weights, messages)
    if not held:
        return False, value, gain, 0.0
    beliefs_compiled(parent, initial, transitions, which, weights, messages, mu)
    for i in range(flat.shape[1]):
        flat[3, i] *= count
    missed = 0.0
    for k in range(x.size):
        here, pull = flat[3, where[k]], made[3, k]
        off = here - made[1, k]
        missed += abs(off)
        made[2, k], made[3, k] = -pull * off, pull * pull * here + a[k]
    return True, value, gain, missed


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


@bare_sums
def two_loop(steps, changes, rho, gradient, curvature, alpha, q):
    """Fill in −H gradient, from the last pairs (rows, oldest first) and H₀ = diag(1/curvature), scaled by the newest pair."""
    count = rho.size
    for i in range(q.size):
        q[i] = -gradient[i]
    for k in range(count - 1, -1, -1):
        alpha[k] = rho[k] * _dot(steps[k], q)
        _add(q, -alpha[k], changes[k])
    scale = 1.0
    if count > 0:
        newest, length = changes[count - 1], 0.0
        for i in range(q.size):
            length += newest[i] * (newest[i] / curvature[i])
        scale = 1.0 / (rho[count - 1] * length)
    for i in range(q.size):
        q[i] *= scale / curvature[i]
    for k in range(count):
        _add(q, alpha[k] - rho[k] * _dot(changes[k], q), steps[k])


@bare_sums
def remember(x0, x1, g0, g1, flat, step, change, rho):
    """Write a pair and its ρ = 1 / step · change; False, and nothing is to be remembered, without curvature."""
    for i in range(x0.size):
        step[i], change[i] = x1[i] - x0[i], g1[i] - g0[i]
    curved = _dot(step, change)
    rho[0] = 1.0 / curved  # infinite where it is not to be remembered
    return curved > flat * np.sqrt(_dot(step, step) * _dot(change, change))
