r"""Noise of single moves, drawn without storing it: one random sign per possible move and draw.

Of :math:`m_i` expected individuals in cell i, the move to j carries :math:`w_{ij} = \pm\sqrt{m_i p_{ij}}`, and
:math:`\varepsilon_{ij} = w_{ij} - p_{ij}\sum_k w_{ik}` has the covariance :math:`m_i(\mathrm{diag}\,p_i - p_i p_i^\top)` of a
multinomial row. Signs have the moments that variances need and cost one bit instead of one normal; they are a hash of
(seed, node, move), so the same ones come again whenever they are asked for: in every sweep, and for flows after nodes.
"""

from __future__ import annotations

import numpy as np

from headcount._compile import kernel_sums


@kernel_sums
def _word(key, place):  # type: ignore[no-untyped-def]
    """64 pseudo-random bits of a key and a place (the finaliser of splitmix64)."""
    z = key + np.uint64(place + 1) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel_sums
def _row_total(total, start, stop, chances, expected, key):  # type: ignore[no-untyped-def]
    """Σ_j w_ij of one row, for every draw."""
    total[:] = 0.0
    for e in range(start, stop):
        size, word = np.sqrt(expected * chances[e]), _word(key, e)
        for c in range(len(total)):
            total[c] += size if (word >> np.uint64(c)) & np.uint64(1) else -size


@kernel_sums
def step_draws(ends, columns, chances, expected, key, above, below):  # type: ignore[no-untyped-def]
    """One step of prior draws, added to ``below`` (L_v, draws): Pᵀ δ_u + Σ_i ε_i."""
    draws = above.shape[1]
    total = np.empty(draws)
    for i in range(len(ends) - 1):
        _row_total(total, ends[i], ends[i + 1], chances, expected[i], key)
        for c in range(draws):
            total[c] = above[i, c] - total[c]
        for e in range(ends[i], ends[i + 1]):
            p, j, word = chances[e], columns[e], _word(key, e)
            size = np.sqrt(expected[i] * p)
            for c in range(draws):
                below[j, c] += p * total[c] + (size if (word >> np.uint64(c)) & np.uint64(1) else -size)


@kernel_sums
def flow_squares(ends, columns, chances, expected, key, above, pull_u, pull_v, prior, posterior):  # type: ignore[no-untyped-def]
    """Add Σ_draws δ_ij² of every move: of the prior draws, and of these less M_ij (pull_u(i) + pull_v(j))."""
    draws = above.shape[1]
    total = np.empty(draws)
    for i in range(len(ends) - 1):
        _row_total(total, ends[i], ends[i + 1], chances, expected[i], key)
        for c in range(draws):
            total[c] = above[i, c] - total[c]
        for e in range(ends[i], ends[i + 1]):
            p, j, word = chances[e], columns[e], _word(key, e)
            table = expected[i] * p
            size = np.sqrt(table)
            first, second = 0.0, 0.0
            for c in range(draws):
                free = p * total[c] + (size if (word >> np.uint64(c)) & np.uint64(1) else -size)
                moved = free - table * (pull_u[i, c] + pull_v[j, c])
                first += free * free
                second += moved * moved
            prior[e] += first
            posterior[e] += second
