"""The two passes of ``_gaussian_tree``, compiled, for trees of small nodes.

At L = 16 a product takes a microsecond and a Python call several: the whole solve, the noise factors included, is therefore one
compiled function. The formulas are those of ``population.laplacian`` and ``_gaussian_tree``, which stay the readable statement.

Plain loops over arrays made in Python, and one call of BLAS: slices, transposes, new arrays and ``np.dot`` are each compiled anew for
every shape and layout that they meet, and made up most of the 12 s (CPU) that the first solve on a fresh machine took.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount._compile import bare, bare_sums, kernel
from headcount.population.laplacian import eliminate_columns, fill_elimination_order, negative_weights


def solve_small(
    parent: NDArray[Any],
    initial: NDArray[Any],
    transitions: NDArray[Any],
    which: NDArray[Any],
    population: float,
    phi: NDArray[Any],
    tau: NDArray[Any],
    nu: NDArray[Any],
) -> tuple[NDArray[Any], NDArray[Any], float]:
    """Means and variances (T, L) and log Z of a tree whose nodes all have L cells.

    log Z is NaN when no Gaussian exists, inf when weights underflow. ``transitions[which[v]]`` is the step into node v (that of
    the root is not read). ``phi`` (T, L) multiplies the noise of the moves out of each state of the parent; of the root, ``phi[0, 0]``.
    """
    count, size = tau.shape
    expected = np.zeros((count, size))
    expected[0] = population * initial
    xs, ys, lams = np.empty((count, size, size)), np.empty((count, size, size)), np.zeros((count, size, size))
    orders = np.empty((4, size), np.intp)
    room = np.empty((3, size, size))
    etas = nu.copy()
    mean, variance = np.zeros((count, size)), np.zeros((count, size))
    log_z = upward_pass(parent, transitions, which, phi, tau, etas, expected, xs, ys, lams, orders, room)
    if np.isfinite(log_z):
        downward_pass(parent, transitions, which, etas, xs, ys, lams, room, mean, variance)
    return mean, variance, log_z


@kernel
def _multiply(a, b, out):  # type: ignore[no-untyped-def]
    """out = a b, of square matrices. The only place where BLAS is called, so that it is compiled once."""
    np.dot(a, b, out)


@bare
def _transpose(a, out):  # type: ignore[no-untyped-def]
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[j, i] = a[i, j]


@bare
def _add(factor, a, out):  # type: ignore[no-untyped-def]
    """Add factor · a to out."""
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[i, j] += factor * a[i, j]


@bare_sums
def _noise_root(weights, orders, columns, root):  # type: ignore[no-untyped-def]
    """Rᵀ with R Rᵀ = Q, the Laplacian of the weights, rows beyond its rank zero; False when weights underflow."""
    size = weights.shape[0]
    for j in range(size):
        weights[j, j] = 0.0
    order = orders[0]
    rank = fill_elimination_order(weights, order, orders[1], orders[2], orders[3])
    negative_weights(weights, order, columns, rank)
    if not eliminate_columns(columns, 0, rank):
        return False
    for k in range(size):
        for i in range(size):
            root[k, order[i]] = columns[k, i] if k < rank else 0.0
    return True


@bare_sums
def _cholesky_solve(b, first, second):  # type: ignore[no-untyped-def]
    """Factor b = L Lᵀ in place and overwrite both right-hand sides by L⁻¹ times them; ½ log det b, or NaN."""
    size, half = b.shape[0], 0.0
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


@bare
def _scaled_step(step, phi, held, root, out):  # type: ignore[no-untyped-def]
    """S with Sᵀ S = Σ_i n_i p_ij p_ik, n = phi times what the parent holds; of the root n_j n_k / N, in its first row."""
    total = 0.0
    for j in range(held.size):
        total += held[j]
    for i in range(out.shape[0]):
        scale = np.sqrt(phi[i] * held[i])
        for j in range(out.shape[1]):
            if not root:
                out[i, j] = scale * step[i, j]
            else:
                out[i, j] = np.sqrt(phi[0] / total) * held[j] if i == 0 else 0.0


@bare
def _expected_counts(parent, transitions, which, expected):  # type: ignore[no-untyped-def]
    """Expected counts of every node, from those of the root."""
    for v in range(1, expected.shape[0]):
        step = transitions[which[v]]
        for i in range(expected.shape[1]):
            for j in range(expected.shape[1]):
                expected[v, j] += expected[parent[v], i] * step[i, j]


@bare_sums
def _eliminate_potential(eta, x, y, left):  # type: ignore[no-untyped-def]
    """What integrating a node out leaves of its potential, η − Yᵀ X η; and ½ |X η|²."""
    half = 0.0
    for j in range(eta.size):
        left[j] = eta[j]
    for k in range(eta.size):
        w = 0.0
        for j in range(eta.size):
            w += x[k, j] * eta[j]
        half += 0.5 * w * w
        for j in range(eta.size):
            left[j] -= w * y[k, j]
    return half


@kernel
def upward_pass(parent, transitions, which, phi, tau, etas, expected, xs, ys, lams, orders, room):  # type: ignore[no-untyped-def]
    """The way up: expected counts, then per node x = L⁻¹Rᵀ and y = L⁻¹RᵀΛ, L Lᵀ = I + RᵀΛR; log Z.

    ``lams`` is overwritten by ``downward_pass``.
    """
    count, size = tau.shape
    first, second, b = room[0], room[1], room[2]
    _expected_counts(parent, transitions, which, expected)
    log_z = 0.0
    for v in range(count - 1, -1, -1):
        u, step, x, y, lam = parent[v], transitions[which[v]], xs[v], ys[v], lams[v]
        _scaled_step(step, phi[v], expected[u] if v > 0 else expected[0], v == 0, first)
        _transpose(first, second)
        _multiply(second, first, b)
        if not _noise_root(b, orders, first, x):
            return np.inf
        for j in range(size):
            lam[j, j] += tau[v, j]
        _multiply(x, lam, y)
        _transpose(x, first)
        _multiply(y, first, b)
        for k in range(size):
            b[k, k] += 1.0
        log_b = _cholesky_solve(b, x, y)
        if np.isnan(log_b):
            return np.nan
        log_z -= log_b
        log_z += _eliminate_potential(etas[v], x, y, first[0])
        if v > 0:
            for i in range(size):
                for j in range(size):
                    etas[u, i] += step[i, j] * first[0, j]
            _transpose(y, second)
            _multiply(second, y, b)
            _add(-1.0, b, lam)
            _multiply(step, lam, first)
            _transpose(step, second)
            _multiply(first, second, b)
            _add(1.0, b, lams[u])
    return log_z


@kernel
def downward_pass(parent, transitions, which, etas, xs, ys, covariance, room, mean, variance):  # type: ignore[no-untyped-def]
    """The way down: fills in means and variances, and the covariances."""
    count, size = mean.shape
    gain, first, second = room[0], room[1], room[2]
    for v in range(count):
        x, y, q = xs[v], ys[v], covariance[v]
        _transpose(x, first)
        _multiply(first, x, q)
        for i in range(size):
            for j in range(size):
                mean[v, i] += q[i, j] * etas[v, j]
        if v > 0:  # the gain's transpose: P − (y Pᵀ)ᵀ x
            u, step = parent[v], transitions[which[v]]
            _transpose(y, first)
            _multiply(step, first, second)
            _multiply(second, x, gain)
            for i in range(size):
                for j in range(size):
                    gain[i, j] = step[i, j] - gain[i, j]
                    mean[v, j] += gain[i, j] * mean[u, i]
            _multiply(covariance[u], gain, first)
            _transpose(gain, second)
            _multiply(second, first, gain)
            _add(1.0, gain, q)
        for j in range(size):
            variance[v, j] = max(q[j, j], 0.0)  # a variance; below zero is rounding
