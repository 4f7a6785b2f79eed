"""The two passes of ``_gaussian_tree``, compiled, for trees of small nodes.

At L = 16 a product takes a microsecond and a Python call several: the whole solve, the noise factors included, is therefore one
compiled function. The formulas are those of ``population._laplacian`` and ``_gaussian_tree``, which stay the readable statement.
"""

from __future__ import annotations

import numpy as np

from headcount._compile import kernel
from headcount.population._elimination import eliminate_columns, elimination_order, negative_weights


@kernel
def _noise_root(table, rows, root):  # type: ignore[no-untyped-def]
    """R with R Rᵀ = Q, the Laplacian of ``star_weights(table)``; columns beyond its rank are zero. False when weights underflow."""
    size_u, size = table.shape
    scaled = np.zeros((size_u, size))
    for i in range(size_u):
        if rows[i] > 0:
            for j in range(size):
                scaled[i, j] = table[i, j] / np.sqrt(rows[i])
    weights = np.dot(np.ascontiguousarray(scaled.T), scaled)
    for j in range(size):
        weights[j, j] = 0.0
    order, _, rank = elimination_order(weights)
    lower = negative_weights(weights, order, rank)
    done = eliminate_columns(lower, 0, rank)
    root[:] = 0.0
    for i in range(size):
        for k in range(rank):
            root[order[i], k] = lower[i, k]
    return done


@kernel
def _cholesky_solve(b, first, second):  # type: ignore[no-untyped-def]
    """Factor b = L Lᵀ in place and overwrite both right-hand sides by L⁻¹ times them; ½ log det b, or NaN."""
    size = b.shape[0]
    half = 0.0
    for j in range(size):
        pivot = b[j, j]
        for k in range(j):
            pivot -= b[j, k] * b[j, k]
        if not pivot > 0:
            return np.nan
        pivot = np.sqrt(pivot)
        b[j, j] = pivot
        half += np.log(pivot)
        for i in range(j + 1, size):
            value = b[i, j]
            for k in range(j):
                value -= b[i, k] * b[j, k]
            b[i, j] = value / pivot
    for j in range(size):
        for k in range(j):
            c = b[j, k]
            for i in range(first.shape[1]):
                first[j, i] -= c * first[k, i]
                second[j, i] -= c * second[k, i]
        for i in range(first.shape[1]):
            first[j, i] /= b[j, j]
            second[j, i] /= b[j, j]
    return half


@kernel
def solve_small(parent, initial, transitions, which, population, phi, tau, nu):  # type: ignore[no-untyped-def]
    """Means and variances (T, L) and log Z of a tree whose nodes all have L cells.

    log Z is NaN when no Gaussian exists, inf when weights underflow. ``transitions[which[v]]`` is the step into node v (that of
    the root is not read). ``phi`` (T, L) multiplies the noise of the moves out of each state of the parent; of the root, ``phi[0, 0]``.
    """
    count, size = tau.shape
    means = np.zeros((count, size))
    means[0] = population * initial
    for v in range(1, count):
        means[v] = np.dot(means[parent[v]], transitions[which[v]])
    xs = np.zeros((count, size, size))
    ys = np.zeros((count, size, size))
    etas = nu.copy()
    lams = np.zeros((count, size, size))
    factor = np.zeros((size, size))
    mean = np.zeros((count, size))
    variance = np.zeros((count, size))
    log_z = 0.0
    for v in range(count - 1, -1, -1):
        if v > 0:
            rows = phi[v] * means[parent[v]]
            ok = _noise_root(rows.reshape(-1, 1) * transitions[which[v]], rows, factor)
        else:
            ok = _noise_root(phi[0, 0] * means[0].reshape(1, -1), np.array([phi[0, 0] * population]), factor)
        lam = lams[v]
        for j in range(size):
            lam[j, j] += tau[v, j]
        half = np.dot(lam, factor)
        b = np.dot(np.ascontiguousarray(factor.T), half)
        for j in range(size):
            b[j, j] += 1.0
        x = np.ascontiguousarray(factor.T)
        y = np.ascontiguousarray(half.T)
        log_b = _cholesky_solve(b, x, y)
        if not ok or np.isnan(log_b):
            return mean, variance, np.nan if ok else np.inf
        w = np.dot(x, etas[v])
        log_z += 0.5 * np.dot(w, w) - log_b
        xs[v] = x
        ys[v] = y
        if v > 0:
            u = parent[v]
            p = transitions[which[v]]
            left = lam - np.dot(np.ascontiguousarray(y.T), y)
            lams[u] += np.dot(np.dot(p, left), np.ascontiguousarray(p.T))
            etas[u] += np.dot(p, etas[v] - np.dot(w, y))
    _down(parent, transitions, which, xs, ys, etas, mean, variance)
    return mean, variance, log_z


@kernel
def _down(parent, transitions, which, xs, ys, etas, mean, variance):  # type: ignore[no-untyped-def]
    """The way down: fills in means and variances."""
    count, size = mean.shape
    covariance = np.zeros((count, size, size))
    for v in range(count):
        xt = np.ascontiguousarray(xs[v].T)
        q = np.dot(xt, xs[v])
        a = np.dot(q, etas[v])
        if v > 0:
            u = parent[v]
            pt = np.ascontiguousarray(transitions[which[v]].T)
            gain = pt - np.dot(xt, np.dot(ys[v], pt))
            a += np.dot(gain, mean[u])
            q += np.dot(np.dot(gain, covariance[u]), np.ascontiguousarray(gain.T))
        covariance[v] = q
        mean[v] = a
        for j in range(size):
            variance[v, j] = q[j, j]
