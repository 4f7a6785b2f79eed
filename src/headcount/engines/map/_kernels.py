"""MAP's dual with Poisson-shaped terms on a tree of equal dense nodes, compiled: at a few hundred variables calls cost more than sums."""

from __future__ import annotations

import numpy as np

from headcount._compile import bare
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
