"""The two passes of ``_gaussian_tree``, compiled, for trees of small nodes.

At L = 16 a product takes a microsecond and a Python call several: the whole solve, the noise factors included, is therefore one compiled
function. The formulas are those of ``_noise_factor`` and ``_gaussian_tree``, which stay the readable statement and the tests' oracle.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def _factor(table, rows, factor):  # type: ignore[no-untyped-def]
    """R with R Rᵀ = Laplacian of ``table``, one column a cell; columns of dropped and unreachable cells are zero."""
    size_u, size = table.shape
    scaled = np.zeros((size_u, size))
    for i in range(size_u):
        if rows[i] > 0:
            for j in range(size):
                scaled[i, j] = table[i, j] / np.sqrt(rows[i])
    weights = np.dot(np.ascontiguousarray(scaled.T), scaled)
    total = np.zeros(size)
    for i in range(size_u):
        for j in range(size):
            total[j] += table[i, j]
    order = np.argsort(-total, kind="mergesort")
    label = np.full(size, -1)
    drop = np.full(size, -1)
    stack = np.empty(size, np.int64)
    found = 0
    for k in range(size):  # components, each named by its most probable cell
        start = order[k]
        if total[start] <= 0 or label[start] >= 0:
            continue
        drop[found] = start
        label[start] = found
        stack[0] = start
        top = 1
        while top > 0:
            top -= 1
            a = stack[top]
            for b in range(size):
                if label[b] < 0 and b != a and weights[a, b] > 0:
                    label[b] = found
                    stack[top] = b
                    top += 1
        found += 1
    factor[:] = 0.0
    for j in range(size):
        if label[j] < 0 or drop[label[j]] == j:
            continue
        own = 0.0
        for k in range(size):
            if k != j:
                own += weights[j, k]
        for k in range(j):
            own -= factor[j, k] * factor[j, k]
        if own <= 0:
            return False
        pivot = np.sqrt(own)
        factor[j, j] = pivot
        for i in range(j + 1, size):
            if label[i] < 0 or drop[label[i]] == i:
                continue
            value = -weights[i, j]
            for k in range(j):
                value -= factor[i, k] * factor[j, k]
            factor[i, j] = value / pivot
    for i in range(size):
        if label[i] >= 0 and drop[label[i]] != i:
            for k in range(size):
                factor[drop[label[i]], k] -= factor[i, k]
    return True


@njit(cache=True, nogil=True)
def _cholesky_solve(b, first, second):  # type: ignore[no-untyped-def]
    """Factor b in place; overwrite both right-hand sides by L⁻¹ times them; ½ log det b, or NaN."""
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


@njit(cache=True, nogil=True)
def solve_small(parent, initial, transitions, which, population, tau, nu):  # type: ignore[no-untyped-def]
    """Means and variances (T, L) and log Z of a tree whose nodes all have L cells; NaN when no Gaussian exists.

    ``transitions[which[v]]`` is the step into node v (that of the root is not read).
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
            rows = means[parent[v]]
            ok = _factor(rows.reshape(-1, 1) * transitions[which[v]], rows, factor)
        else:
            ok = _factor(means[0].reshape(1, -1), np.array([population]), factor)
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
            return mean, variance, np.nan, means
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
    covariance = np.zeros((count, size, size))
    for v in range(count):
        x = xs[v]
        xt = np.ascontiguousarray(x.T)
        q = np.dot(xt, x)
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
    return mean, variance, log_z, means
