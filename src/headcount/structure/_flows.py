r"""Flows (edge tables) from node counts.

Given :math:`M = N\mu_{uv}`, rows :math:`m = M1`, :math:`P = \operatorname{diag}(1/m)M` and deviations of the nodes, the table is

.. math:: \delta_{uv}(i,j) = M_{ij}\bigl(\alpha_i + \beta_j\bigr), \qquad
          Q\beta = \delta_v - P^\top\delta_u, \qquad \alpha = \delta_u/m - P\beta

plus a remainder of variance :math:`M_{ij} - M_{ij}^2\,e_{ij}^\top K^{-}e_{ij}`. Q is the step's Laplacian; any generalised inverse
serves, because its null vectors cancel between α and β. Nothing larger than L × L is formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headcount.structure._linalg import apply, fortran, forward_solve, product

if TYPE_CHECKING:
    from headcount.structure._gaussian_tree import Upward
    from headcount.structure._linalg import Array
    from headcount.structure._noise_factor import NoiseFactor


@dataclass(frozen=True)
class Step:
    """One edge (u, v) of a tree: the table its Gaussian is made at, and the sites absorbed into it."""

    table: Array
    """M, ``(L_u, L_v)``; with table sites, ``1 / (1/M + tau)``."""
    rows: Array
    """m = M1."""
    gain: Array
    """P, rows of unreachable cells included."""
    noise: NoiseFactor
    shift: Array | None = None
    """d: where the sites move the table's centre; None without table sites."""


def _over(step: Step) -> Array:
    with np.errstate(divide="ignore"):
        return np.where(step.rows > 0, 1.0 / step.rows, 0.0)


def flow_mean(step: Step, delta_u: Array, delta_v: Array) -> Array:
    """Expected deviation of the table given the nodes' deviations, by conjugate gradients: O(L²) a step."""
    inner = 0.0 if step.shift is None else step.shift.sum(axis=1)
    offset = (
        0.0
        if step.shift is None
        else step.shift.sum(axis=0) - apply(step.gain, np.asarray(inner), transpose=True)
    )
    remainder = delta_v - offset - apply(step.gain, delta_u, transpose=True)
    beta = solve_laplacian(step, remainder)
    alpha = (delta_u - inner) * _over(step) - apply(step.gain, beta)
    mean = step.table * (alpha[:, None] + beta[None, :])
    return mean if step.shift is None else mean + step.shift


def solve_laplacian(step: Step, right: Array, *, tolerance: float = 1e-14) -> Array:
    """β with Qβ = right by diagonally preconditioned conjugate gradients, falling back on the Cholesky factor."""
    if not right.any():
        return np.zeros_like(right)
    columns = step.table.sum(axis=0)
    diagonal = columns - np.einsum("ij,ij->j", step.table, step.gain)
    with np.errstate(divide="ignore"):
        inverse = np.where(diagonal > 0, 1.0 / np.where(diagonal > 0, diagonal, 1.0), 0.0)
    beta, residual = np.zeros_like(right), right.copy()
    direction = inverse * residual
    rho = float(residual @ direction)
    target = max(tolerance * float(np.abs(right).max()), 2e-16 * float(columns.max()))
    for _ in range(60):
        if np.abs(residual).max() <= target or rho <= 0:
            return beta
        image = columns * direction - apply(step.table, apply(step.gain, direction), transpose=True)
        curvature = float(direction @ image)
        if curvature <= 0:
            break
        length = rho / curvature
        beta = beta + length * direction
        residual = residual - length * image
        scaled = inverse * residual
        rho, old = float(residual @ scaled), rho
        direction = scaled + (rho / old) * direction
    c = fortran(step.noise.cholesky)
    kept = fortran(right[step.noise.kept][:, None])
    return step.noise.pull(forward_solve(c, forward_solve(c, kept), transpose=True))[:, 0]


def flow_variance(step: Step, up: Upward, covariance_u: Array) -> Array:
    """Posterior variance of every entry of the table.

    With the posterior of the step written as ``δ_v = P^T δ_u + X (κ − Y^T P^T δ_u + ζ)``, ζ standard normal, β is ``Z`` times the
    bracket, so the table splits into independent parts from δ_u, from ζ and from the table's own freedom given both nodes.
    """
    m = step.table
    size_v = m.shape[1]
    c = fortran(step.noise.cholesky)
    x = fortran(up.x[:size_v][step.noise.kept])
    z = step.noise.pull(forward_solve(c, forward_solve(c, x), transpose=True))
    through = product(z, product(fortran(up.y[:size_v]), step.gain, left=True, right=True))
    pz = product(step.gain, z)
    a = product(step.gain, through)
    a.ravel(order="K")[:: a.shape[0] + 1] += _over(step)
    b = -through
    av = product(a, covariance_u)
    bv = product(b, covariance_u)
    factor = np.einsum("ij,ij->i", av, a) + np.einsum("ij,ij->i", pz, pz)
    factor = factor[:, None] + (np.einsum("ij,ij->i", bv, b) + np.einsum("ij,ij->i", z, z))[None, :]
    factor += 2.0 * (product(av, b, right=True) - product(pz, z, right=True))
    g = step.noise.inverse()
    pg = product(step.gain, g)
    free = (_over(step) + np.einsum("ij,ij->i", pg, step.gain))[:, None] - 2.0 * pg + np.diagonal(g)[None, :]
    variance = m - m * m * free + m * m * factor
    # Differences of equal numbers: below rounding of the terms it is zero.
    return np.where(variance > 8e-16 * m * (1 + m * free), variance, 0.0)


def absorb_table_sites(table: Array, tau: Array, nu: Array) -> tuple[Array, Array, Array, Array, float]:
    r"""Absorb diagonal sites on a table: each row is conditioned in closed form.

    With :math:`\tilde M = 1/(1/M + \tau)`, :math:`d = \tilde M\nu`, row sums :math:`\tilde m, \bar d`,
    the row's integral over the table given its
    total s is

    .. math:: -\tfrac12 s^2(1/\tilde m - 1/m) + s\bar d/\tilde m - \tfrac12\bar d^2/\tilde m + \tfrac12\sum d^2/\tilde M
              + \tfrac12\bigl[\sum\log(\tilde M/M) - \log(\tilde m/m)\bigr].

    Returns ``M̃``, ``d``, and the precision, potential and log constant left on the parent.
    """
    shrink = 1.0 + table * tau
    if (shrink <= 0).any():
        from headcount.structure._gaussian_tree import NotPositiveDefinite

        raise NotPositiveDefinite
    new = table / shrink
    d = new * nu
    m, m_new, total = table.sum(axis=1), new.sum(axis=1), d.sum(axis=1)
    live = m > 0
    precision = np.zeros_like(m)
    potential = np.zeros_like(m)
    precision[live] = 1.0 / m_new[live] - 1.0 / m[live]
    potential[live] = total[live] / m_new[live]
    constant = -0.5 * np.log(shrink).sum() - 0.5 * np.log(m_new[live] / m[live]).sum()
    constant += 0.5 * (d * nu).sum() - 0.5 * (total[live] ** 2 / m_new[live]).sum()
    return new, d, precision, potential, float(constant)
