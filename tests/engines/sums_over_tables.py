r"""Exact sums over all tables between two known margins: an oracle that shares no code with the engines.

.. math:: P(c \mid r) = [x^c] \prod_i \Bigl(\sum_j P_{ij} x_j\Bigr)^{r_i}

by multiplying one individual at a time into an array over 0 … c_j. Moments are shifted coefficients: with ``Z(r, c)`` the sum,

    E[n_ij] = r_i P_ij Z(r − e_i, c − e_j) / Z
    E[n_ij n_kl] = r_i (r_k − [i = k]) P_ij P_kl Z(r − e_i − e_k, c − e_j − e_l) / Z    (less [ij = kl] of them: n (n − 1))

Rows that vary (Dirichlet–multinomial) are multiplied in whole, every composition of a row with its own weight.
Between exact times with hidden ones in between, individuals go from a to b by :math:`P^k`, and what they do meanwhile is independent given
(a, b): means and variances of the flows follow by the laws of total expectation and variance.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln


class Answer(NamedTuple):
    """log P(columns | rows), E n and Var n of every entry."""

    log_sum: float
    mean: np.ndarray
    variance: np.ndarray


def _times(poly: np.ndarray, form: np.ndarray) -> np.ndarray:
    """A truncated polynomial times Σ_j form_j x_j."""
    out = np.zeros_like(poly)
    for j in np.flatnonzero(form):
        if poly.shape[j] > 1:
            into, frm = [slice(None)] * poly.ndim, [slice(None)] * poly.ndim
            into[j], frm[j] = slice(1, None), slice(None, -1)
            out[tuple(into)] += form[j] * poly[tuple(frm)]
    return out


def _product(p: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    poly = np.zeros(tuple(int(c) + 1 for c in columns))
    poly[(0,) * len(columns)] = 1.0
    for form, count in zip(p, rows, strict=True):
        for _ in range(int(count)):
            poly = _times(poly, form)
    return poly


def _at(poly: np.ndarray, columns: np.ndarray, *fewer: int) -> float:
    place = np.array(columns, dtype=int)
    for j in fewer:
        place[j] -= 1
    return float(poly[tuple(place)]) if (place >= 0).all() else 0.0


def first_moments(p: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> tuple[float, np.ndarray]:
    """Z and E n."""
    total, mean = _at(_product(p, rows, columns), columns), np.zeros(p.shape)
    for i in np.flatnonzero(rows):
        less = np.array(rows)
        less[i] -= 1
        poly = _product(p, less, columns)
        for j in np.flatnonzero(p[i]):
            mean[i, j] = rows[i] * p[i, j] * _at(poly, columns, j) / total
    return total, mean


def table_moments(p: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> Answer:
    """One step of independent individuals."""
    total, mean = first_moments(p, rows, columns)
    pairs = np.zeros(p.shape)
    for i in np.flatnonzero(rows >= 2):
        less = np.array(rows)
        less[i] -= 2
        poly = _product(p, less, columns)
        for j in np.flatnonzero(p[i]):
            pairs[i, j] = rows[i] * (rows[i] - 1) * p[i, j] ** 2 * _at(poly, columns, j, j) / total
    return Answer(float(np.log(total)), mean, np.maximum(pairs + mean - mean**2, 0.0))


def joint_moments(p: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E n, and the covariance of all entries, (entries, entries)."""
    total, mean = first_moments(p, rows, columns)
    height, width = p.shape
    second = np.zeros((height, width, height, width))
    for i, k in itertools.combinations_with_replacement(np.flatnonzero(rows), 2):
        less = np.array(rows)
        less[i] -= 1
        less[k] -= 1
        if less[i] < 0:
            continue
        poly, ways = _product(p, less, columns), rows[i] * (rows[k] - (i == k))
        for j, m in itertools.product(np.flatnonzero(p[i]), np.flatnonzero(p[k])):
            second[i, j, k, m] = second[k, m, i, j] = (
                ways * p[i, j] * p[k, m] * _at(poly, columns, j, m) / total
            )
    second = second.reshape(mean.size, mean.size) + np.diag(mean.ravel())
    return mean, second - np.outer(mean.ravel(), mean.ravel())


def varying_rows(p: np.ndarray, kappa: float, rows: np.ndarray, columns: np.ndarray) -> Answer:
    """One step whose rows vary, Dirichlet–multinomial with κ = 1/rho − 1."""
    polys = [_row_polynomial(q, kappa, int(r), columns) for q, r in zip(p, rows, strict=True)]
    total = _convolved([dict(row) for row in polys], columns)
    mean, square = np.zeros(p.shape), np.zeros(p.shape)
    for i, j in np.argwhere(p > 0):
        for power, out in ((1, mean), (2, square)):
            weighed = [dict(row) for row in polys]
            weighed[i] = {n: w * n[j] ** power for n, w in weighed[i].items()}
            out[i, j] = _convolved(weighed, columns) / total
    return Answer(float(np.log(total)), mean, np.maximum(square - mean**2, 0.0))


def _row_polynomial(q: np.ndarray, kappa: float, total: int, columns: np.ndarray) -> dict[tuple, float]:
    possible = [range(min(total, int(c)) + 1) if w > 0 else range(1) for w, c in zip(q, columns, strict=True)]
    out = {}
    for n in itertools.product(*possible):
        if sum(n) == total:
            some = [k for k, m in enumerate(n) if m]
            log_w = gammaln(total + 1) - sum(gammaln(n[k] + 1) for k in some)
            log_w += gammaln(kappa) - gammaln(total + kappa)
            log_w += sum(gammaln(n[k] + kappa * q[k]) - gammaln(kappa * q[k]) for k in some)
            out[n] = float(np.exp(log_w))
    return out


def _convolved(polys: list[dict[tuple, float]], columns: np.ndarray) -> float:
    sums: dict[tuple, float] = {(0,) * len(columns): 1.0}
    most = tuple(int(c) for c in columns)
    for row in polys:
        following: dict[tuple, float] = {}
        for state, weight in sums.items():
            for n, w in row.items():
                after = tuple(a + b for a, b in zip(state, n, strict=True))
                if all(a <= m for a, m in zip(after, most, strict=True)):
                    following[after] = following.get(after, 0.0) + weight * w
        sums = following
    return sums.get(most, 0.0)


def chain_moments(steps: list[np.ndarray], counts: dict[int, np.ndarray]) -> list[Answer]:
    """Flows of every step of a chain counted exactly at some times, the first and the last among them; nothing else is seen."""
    times, answers = sorted(counts), []
    for first, last in itertools.pairwise(times):
        span = steps[first:last]
        if len(span) == 1:
            answers.append(table_moments(span[0], counts[first], counts[last]))
            continue
        answers += _hidden_between(span, counts[first], counts[last])
    return answers


def _hidden_between(span: list[np.ndarray], rows: np.ndarray, columns: np.ndarray) -> list[Answer]:
    forward = [np.eye(len(rows))]
    for p in span:
        forward.append(forward[-1] @ p)
    backward = [np.eye(len(columns))]
    for p in reversed(span):
        backward.insert(0, p @ backward[0])
    whole = forward[-1]
    mean, covariance = joint_moments(whole, rows, columns)
    log_sum, out = float(np.log(first_moments(whole, rows, columns)[0])), []
    with np.errstate(invalid="ignore", divide="ignore"):
        for t, p in enumerate(span):
            share = np.einsum("ai,ij,jb->abij", forward[t], p, backward[t + 1]) / whole[:, :, None, None]
            share = np.where(whole[:, :, None, None] > 0, share, 0.0).reshape(mean.size, *p.shape)
            expected = np.einsum("e,eij->ij", mean.ravel(), share)
            within = np.einsum("e,eij->ij", mean.ravel(), share * (1 - share))
            between = np.einsum("eij,ef,fij->ij", share, covariance, share)
            out.append(Answer(log_sum if t == 0 else 0.0, expected, np.maximum(within + between, 0.0)))
    return out
