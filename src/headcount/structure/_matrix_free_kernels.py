r"""Compiled loops of the matrix-free structure: passes over sparse moves, sums over what is seen, draws of moves.

Arrays of columns are (entries, columns) in C order, so that one move touches one or two cache lines. A pass over all edges is one call:
between two sparse products nothing is stored but what the next one reads. Row indices are unsigned; signed ones would be
tested for being negative at every move, which costs as much as eight columns.

**Noise of single moves.** Of :math:`m_i` expected individuals in cell i, the move to j carries :math:`w_{ij} = z\sqrt{m_i p_{ij}}`, and
:math:`\varepsilon_{ij} = w_{ij} - p_{ij}\sum_k w_{ik}` has the covariance :math:`m_i(\mathrm{diag}\,p_i - p_i p_i^\top)` of a
multinomial row. z takes sixteen values, with the first five moments of a normal: variances of mean squares, which the stated errors are,
depend on no others. It costs four bits instead of one normal; the bits are a hash of (seed, node, move), so the same ones come again
whenever they are asked for: in every sweep, and for flows after nodes.
"""

from __future__ import annotations

import numpy as np

from headcount._compile import kernel_sums

ONE, TWO, THREE, FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
BITS, DRAWS_PER_WORD = np.uint64(4), 16
NORMAL = np.array(
    [
        -2.1250986010946464,
        -1.2425968118679604,
        -0.9522004460623852,
        -0.7319963795755583,
        -0.5459953175965453,
        -0.3792340789936149,
        -0.22362985421692386,
        -0.07392580309645246,
        0.07392580309645246,
        0.22362985421692386,
        0.3792340789936149,
        0.5459953175965453,
        0.7319963795755583,
        0.9522004460623852,
        1.2425968118679604,
        2.1250986010946464,
    ]
)
"""The sixteen values of z: the normal's quantiles at (k + ½)/16, the outermost moved and all scaled so that E z² = 1 and E z⁴ = 3."""


@kernel_sums
def _product(first, ends, columns, values, source, scale, out, start):  # type: ignore[no-untyped-def]
    """out[start + i] = scale_i Σ_j values_ij source_j, for the matrix whose first row is ``first``."""
    width = np.uint64(source.shape[1])
    row, place = np.uint64(first), np.uint64(start)
    if width == ONE:
        for i in range(np.uint64(len(scale))):
            total = 0.0
            for move in range(np.uint64(ends[row + i]), np.uint64(ends[row + i + ONE])):
                total += values[move] * source[np.uint64(columns[move]), 0]
            out[place + i, 0] = scale[i] * total
        return
    for i in range(np.uint64(len(scale))):
        for c in range(width):
            out[place + i, c] = 0.0
        e, stop, s = np.uint64(ends[row + i]), np.uint64(ends[row + i + ONE]), scale[i]
        while e + FOUR <= stop:  # four at once: a sum in memory waits for the one before it
            p, q, r, t = s * values[e], s * values[e + ONE], s * values[e + TWO], s * values[e + THREE]
            j, k = np.uint64(columns[e]), np.uint64(columns[e + ONE])
            m, n = np.uint64(columns[e + TWO]), np.uint64(columns[e + THREE])
            for c in range(width):
                out[place + i, c] += (p * source[j, c] + q * source[k, c]) + (
                    r * source[m, c] + t * source[n, c]
                )
            e += FOUR
        while e < stop:
            p, j = s * values[e], np.uint64(columns[e])
            for c in range(width):
                out[place + i, c] += p * source[j, c]
            e += ONE


@kernel_sums
def pass_up(parents, node, side_at, moves, rows, columns, seen, work, side, scratch):  # type: ignore[no-untyped-def]
    """From the leaves: work becomes b = v + Σ P b, side[child] = P b (with observed moves' h: P∘h summed over rows, besides)."""
    first, ends, at, values = moves
    move_ends, move_from, _, chances, held = seen
    width = work.shape[1]
    for v in range(len(parents) - 1, 0, -1):
        a, b, s, u = node[v], node[v + 1], side_at[v], node[parents[v]]
        for j in range(b - a):
            for c in range(width):
                scratch[j, c] = columns[a + j] * work[a + j, c]
        _product(first[v], ends, at, values, scratch, rows[s : side_at[v + 1]], side, s)
        for e in range(move_ends[v], move_ends[v + 1]):
            for c in range(width):
                side[s + move_from[e], c] += chances[e] * held[e, c]
        for i in range(side_at[v + 1] - s):
            for c in range(width):
                work[u + i, c] += side[s + i, c]


@kernel_sums
def pass_down(parents, node, side_at, turned, rows, columns, seen, mu, over_mu, work, side, total, scratch):  # type: ignore[no-untyped-def]
    """From the root, whose f is in ``total`` already: total = f, side[child] = f_u − P b. ``total`` may be ``work`` itself."""
    first, ends, at, values = turned
    move_ends, move_from, move_to, chances, held = seen
    width = work.shape[1]
    for v in range(1, len(parents)):
        a, b, s, u = node[v], node[v + 1], side_at[v], node[parents[v]]
        for i in range(side_at[v + 1] - s):
            weight = rows[s + i] * mu[u + i]
            for c in range(width):
                side[s + i, c] = total[u + i, c] - side[s + i, c]
                scratch[i, c] = weight * side[s + i, c]
        keep = scratch[len(scratch) // 2 :]
        _product(first[v], ends, at, values, scratch, over_mu[a:b] * columns[a:b], keep, 0)
        for e in range(move_ends[v], move_ends[v + 1]):
            i, j = move_from[e], move_to[e]
            for c in range(width):
                keep[j, c] += over_mu[a + j] * mu[u + i] * chances[e] * held[e, c]
        for j in range(b - a):
            for c in range(width):
                total[a + j, c] = work[a + j, c] + keep[j, c]


@kernel_sums
def spread(ends, columns, values, scale, x, out):  # type: ignore[no-untyped-def]
    """out = Hᵀ (scale x), H given by rows."""
    width = x.shape[1]
    out[:] = 0.0
    for r in range(len(scale)):
        for e in range(ends[r], ends[r + 1]):
            w, k = scale[r] * values[e], columns[e]
            for c in range(width):
                out[k, c] += w * x[r, c]


@kernel_sums
def read(ends, columns, values, scale, expected, total, mean, over, x, out):  # type: ignore[no-untyped-def]
    """out = scale H (expected (total − mean)) + over x; the columns' products x · out."""
    width = x.shape[1]
    forms = np.zeros(width)
    for r in range(len(scale)):
        for c in range(width):
            out[r, c] = over[r] * x[r, c]
        for e in range(ends[r], ends[r + 1]):
            k = columns[e]
            w = scale[r] * values[e] * expected[k]
            for c in range(width):
                out[r, c] += w * (total[k, c] - mean[c])
        for c in range(width):
            forms[c] += x[r, c] * out[r, c]
    return forms


def words(key, place):  # type: ignore[no-untyped-def]
    """64 pseudo-random bits of a key and of every place, both 64-bit unsigned (the finaliser of splitmix64)."""
    z = key + (place + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


_word = kernel_sums(words)
"""The same of one place, compiled."""


@kernel_sums
def _row_noise(step, i, key, above, room):  # type: ignore[no-untyped-def]
    """Chances and w_ij of row i, and above_i − Σ_j w_ij for every draw, into ``room``; the number of moves."""
    ends, columns, values, scale, weights, expected = step
    chances, noise, total = room
    start, count, draws = ends[i], ends[i + 1] - ends[i], len(total)
    total[:] = above[i]
    for k in range(count):
        p = scale[i] * values[start + k] * weights[columns[start + k]]
        chances[k], size = p, np.sqrt(expected[i] * p)
        for first in range(0, draws, DRAWS_PER_WORD):
            word = _word(key, np.uint64(4 * (start + k - ends[0]) + first // DRAWS_PER_WORD))
            for c in range(first, min(first + DRAWS_PER_WORD, draws)):
                w = size * NORMAL[(word >> (BITS * np.uint64(c - first))) & np.uint64(15)]
                noise[k, c] = w
                total[c] -= w
    return count


@kernel_sums
def _row_room(ends, draws):  # type: ignore[no-untyped-def]
    """Room for one row: its chances, noise and totals."""
    most = 1
    for i in range(len(ends) - 1):
        most = max(most, ends[i + 1] - ends[i])
    return np.empty(most), np.empty((most, draws)), np.empty(draws)


@kernel_sums
def step_draws(step, key, above, below):  # type: ignore[no-untyped-def]
    """One step of prior draws, added to ``below`` (L_v, draws): Pᵀ δ_u + Σ_i ε_i, P = diag(scale) values diag(weights)."""
    ends, columns, expected = step[0], step[1], step[5]
    draws = above.shape[1]
    room = _row_room(ends, draws)
    chances, noise, total = room
    for i in range(len(ends) - 1):
        if expected[i] == 0.0:
            continue
        for k in range(_row_noise(step, i, key, above, room)):
            p, j = chances[k], np.uint64(columns[ends[i] + k])
            for c in range(draws):
                below[j, c] += p * total[c] + noise[k, c]


@kernel_sums
def flow_squares(step, key, above, pull_u, pull_v, prior, posterior):  # type: ignore[no-untyped-def]
    """Add Σ_draws δ_ij² of every move: of the prior draws, and of these less M_ij (pull_u(i) + pull_v(j))."""
    ends, columns, expected = step[0], step[1], step[5]
    room = _row_room(ends, above.shape[1])
    chances, noise, total = room
    for i in range(len(ends) - 1):
        count = _row_noise(step, i, key, above, room) if expected[i] > 0 else 0
        for k in range(count):
            e = ends[i] + k
            p, j = chances[k], np.uint64(columns[e])
            table, first, second = expected[i] * p, 0.0, 0.0
            for c in range(len(total)):
                free = p * total[c] + noise[k, c]
                moved = free - table * (pull_u[i, c] + pull_v[j, c])
                first += free * free
                second += moved * moved
            prior[e - ends[0]] += first
            posterior[e - ends[0]] += second


@kernel_sums
def move_draws(step, key, above, picked, out):  # type: ignore[no-untyped-def]
    """δ_ij of the prior draws at some moves, (picked, draws); ``picked`` are sorted positions among the moves."""
    ends, at = step[0], 0
    room = _row_room(ends, above.shape[1])
    chances, noise, total = room
    for i in range(len(ends) - 1):
        if at == len(picked):
            return
        if ends[i + 1] - ends[0] <= picked[at]:
            continue
        _row_noise(step, i, key, above, room)
        while at < len(picked) and picked[at] < ends[i + 1] - ends[0]:
            k = picked[at] - (ends[i] - ends[0])
            for c in range(len(total)):
                out[at, c] = chances[k] * total[c] + noise[k, c]
            at += 1
