"""The loops of `TableBP` and of its draws, compiled: one table between two margins at a time."""

import math

import numpy as np

from headcount._compile import kernel
from headcount.engines.sampling._primitives import below, uniform

BOOST = math.log(4.0)
"""Log factor per individual by which belief propagation may raise a flow above the raked one: an entry's counts are kept up to where even
the raised weight is negligible."""
NEGLIGIBLE = math.log(1e-14)
"""Log of the weight, relative to the largest, below which larger counts of an entry are left out: float64's precision."""


@kernel
def fill_weights(p, kappa, row_tilt, column_tilt, rows, columns, weight, largest):
    """Weights of every count of every entry, tilted and summing to one, and the largest count kept; returns Σ log of the sums.

    ``weight[i, j, n]`` ∝ (a_i b_j)^n Γ(n + κp)/(κ^n Γ(κp) n!), and (a_i b_j p)^n/n! where κ = 0 stands for independent moves.
    """
    total = 0.0
    for i in range(p.shape[0]):
        for j in range(p.shape[1]):
            most = min(rows[i], columns[j]) if p[i, j] > 0.0 else 0
            tilt, value, top, kept = row_tilt[i] * column_tilt[j], 0.0, 0.0, 0
            weight[i, j, 0] = 0.0
            for n in range(1, most + 1):
                each = p[i, j] if kappa[i] == 0.0 else p[i, j] + (n - 1) / kappa[i]
                value += np.log(tilt * each / n)
                if n > 1 and value + n * BOOST < top + NEGLIGIBLE:
                    break
                top, kept = max(top, value), n
                weight[i, j, n] = value
            norm = 0.0
            for n in range(kept + 1):
                weight[i, j, n] = np.exp(weight[i, j, n] - top)
                norm += weight[i, j, n]
            for n in range(kept + 1):
                weight[i, j, n] /= norm
            largest[i, j] = kept
            total += top + np.log(norm)
    return total


@kernel
def _convolve(x, last_x, y, last_y, most, out):
    """out = x ∗ y up to ``most``; returns the last index filled."""
    last = min(last_x + last_y, most)
    for s in range(last + 1):
        out[s] = 0.0
    for a in range(last_x + 1):
        xa = x[a]
        if xa != 0.0:
            for b in range(min(last_y, most - a) + 1):
                out[a + b] += xa * y[b]
    return last


@kernel
def _others(v, largest, total, out, before, last_before, after, last_after):
    """out[k, n] = Σ Π of the other entries' v over counts with Σ = total − n; returns the same sum over all entries with Σ = total."""
    count = largest.shape[0]
    before[0, 0], last_before[0] = 1.0, 0
    for k in range(count):
        last_before[k + 1] = _convolve(before[k], last_before[k], v[k], largest[k], total, before[k + 1])
    after[count, 0], last_after[count] = 1.0, 0
    for k in range(count - 1, -1, -1):
        last_after[k] = _convolve(after[k + 1], last_after[k + 1], v[k], largest[k], total, after[k])
    for k in range(count):
        for n in range(largest[k] + 1):
            rest, s = total - n, 0.0
            for a in range(max(0, rest - last_after[k + 1]), min(last_before[k], rest) + 1):
                s += before[k, a] * after[k + 1, rest - a]
            out[k, n] = s
    return before[count, total] if last_before[count] >= total else 0.0


@kernel
def pass_rows(weight, largest, rows, message, law, v, out, before, last_before, after, last_after):
    """Messages of all rows to their entries, left in ``law``; returns Σ log Z_i − Σ log Σ w ρ γ, −inf where no table has these rows."""
    height, width = largest.shape
    log_sum = 0.0
    for i in range(height):
        for j in range(width):
            for n in range(largest[i, j] + 1):
                v[j, n] = weight[i, j, n] * message[i, j, n]
        found = _others(v, largest[i], rows[i], out, before, last_before, after, last_after)
        if not found > 0.0:
            return -np.inf
        log_sum += np.log(found)
        for j in range(width):
            alone = both = 0.0
            for n in range(largest[i, j] + 1):
                alone += weight[i, j, n] * out[j, n]
                both += weight[i, j, n] * out[j, n] * message[i, j, n]
            if not both > 0.0:
                return -np.inf
            log_sum -= np.log(both / alone)
            for n in range(largest[i, j] + 1):
                law[i, j, n] = out[j, n] / alone
    return log_sum


@kernel
def pass_columns(
    weight, largest, columns, damping, message, law, mean, v, out, before, last_before, after, last_after
):
    """Messages of all columns, given those of the rows in ``law``, which becomes the law of every entry; ``mean`` follows.

    Returns (largest change of a mean, Σ log Z_j), the latter −inf where no table has these columns.
    """
    height, width = largest.shape
    log_sum, change = 0.0, 0.0
    for j in range(width):
        for i in range(height):
            for n in range(largest[i, j] + 1):
                v[i, n] = weight[i, j, n] * law[i, j, n]
        found = _others(v, largest[:, j], columns[j], out, before, last_before, after, last_after)
        if not found > 0.0:
            return 0.0, -np.inf
        log_sum += np.log(found)
        for i in range(height):
            alone = both = first = 0.0
            for n in range(largest[i, j] + 1):
                alone += weight[i, j, n] * out[i, n]
            for n in range(largest[i, j] + 1):
                new = out[i, n] / alone
                if damping > 0.0:
                    new = new ** (1.0 - damping) * message[i, j, n] ** damping
                message[i, j, n] = new
                law[i, j, n] *= weight[i, j, n] * new
                both += law[i, j, n]
                first += n * law[i, j, n]
            for n in range(largest[i, j] + 1):
                law[i, j, n] /= both
            change = max(change, abs(first / both - mean[i, j]))
            mean[i, j] = first / both
    return change, log_sum


@kernel
def exchange(p, kappa, origin, dest, table, sweeps, tries, random, seen):
    """Pairs of individuals exchange destinations, accepted by Metropolis' rule: both margins stay, and the table's law is left as it is.

    ``table`` counts origins by destinations and is kept up to date; after every sweep of so many tries ``seen[i, j, n]`` counts that the
    entry was n, where ``seen`` is wide enough. ``random`` is the generator's state.
    """
    people = origin.shape[0]
    for _ in range(sweeps):
        for _ in range(tries):
            a, b = below(random, people), below(random, people)
            i, j, u, w = origin[a], origin[b], dest[a], dest[b]
            if i == j or u == w:
                continue
            if kappa[i] == 0.0:
                there, here = p[i, w], p[i, u]
            else:
                there, here = table[i, w] + kappa[i] * p[i, w], table[i, u] - 1 + kappa[i] * p[i, u]
            if kappa[j] == 0.0:
                there, here = there * p[j, u], here * p[j, w]
            else:
                there *= table[j, u] + kappa[j] * p[j, u]
                here *= table[j, w] - 1 + kappa[j] * p[j, w]
            if uniform(random) * here < there:
                dest[a], dest[b] = w, u
                table[i, u] -= 1
                table[i, w] += 1
                table[j, w] -= 1
                table[j, u] += 1
        for i in range(seen.shape[0]):
            for j in range(seen.shape[1]):
                seen[i, j, table[i, j]] += 1.0
