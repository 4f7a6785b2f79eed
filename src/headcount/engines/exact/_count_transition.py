"""How a count vector moves in one step: the law of n_v given n_u, for all pairs of count vectors.

Two cells: n_v(0) = Bin(a, p) + Bin(N − a, q), a convolution for every a. Three cells: add one individual after the other,

    K_n(a → b) = Σ_j P(i, j) K_{n−1}(a − e_i → b − e_j)       for any i with a(i) > 0.

All terms are positive, so nothing cancels.
"""

import numpy as np

from headcount._compile import kernel


@kernel
def two_cells(stay, arrive, out, first, last):
    """Rows first … last − 1 of K(a, b), from the binomial laws stay[a, k] = Bin(k; a, p) and arrive[c, k] = Bin(k; c, q).

    Some rows at a time: all (N + 1) of them take seconds at the largest N, in which Python could not hear an interrupt.
    """
    size = stay.shape[0]
    for a in range(first, last):
        rest = size - a  # the N − a others land on 0 … N − a
        row, other = out[a], arrive[size - 1 - a]
        for k in range(a + 1):
            weight = stay[a, k]
            if weight > 0.0:
                target = row[k : k + rest]
                for b in range(rest):
                    target[b] += weight * other[b]


@kernel
def place(total, first, second):
    """The index of the count vector (first, second, total − first − second) among those of its total."""
    return first * (total + 1) - first * (first - 1) // 2 + second


@kernel
def three_cells(law, people):
    """K(a, b) for three cells; vectors ordered as by `place`."""
    now = np.ones((1, 1))
    for total in range(1, people + 1):
        size = (total + 1) * (total + 2) // 2
        then = np.zeros((size, size))
        for a0 in range(total + 1):
            for a1 in range(total + 1 - a0):
                i = 0 if a0 > 0 else (1 if a1 > 0 else 2)
                before = now[place(total - 1, a0 - (i == 0), a1 - (i == 1))]
                row = then[place(total, a0, a1)]
                for b0 in range(total):
                    for b1 in range(total - b0):
                        weight = before[place(total - 1, b0, b1)]
                        row[place(total, b0 + 1, b1)] += law[i, 0] * weight
                        row[place(total, b0, b1 + 1)] += law[i, 1] * weight
                        row[place(total, b0, b1)] += law[i, 2] * weight
        now = then
    return now
