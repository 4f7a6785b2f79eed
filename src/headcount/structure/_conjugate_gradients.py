r"""Conjugate gradients for the systems of the matrix-free structure, many columns at once.

With H the rows that are seen, k the diagonal of :math:`HKH^\top` and :math:`d = 1 + \tau k`, a system is scaled to unit diagonal,

.. math:: A = D\,HKH^\top D + \mathrm{diag}(o), \qquad D = \mathrm{diag}\sqrt{\tau/d},\; o = 1/d,

and a count that is known exactly is the limit :math:`\tau\to\infty`: :math:`D = 1/\sqrt k,\ o = 0`. Exact counts that follow from one
another make A singular; right-hand sides are then in its range, and conjugate gradients need no more.

For the mean, a residual r leaves an error e of the counts with :math:`e^\top\Lambda e = r^\top DHKH^\top D A^{-1} r \le \|r\|^2`, Λ the
posterior's precision: no count is off by more than :math:`\|r\|` of its standard deviations. Tolerances on r need no other scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headcount._device import host, namespace, on_host
from headcount.structure._matrix_free_kernels import read, spread
from headcount.structure.base import NotPositiveDefinite

if TYPE_CHECKING:
    from collections.abc import Callable

    from scipy.sparse import csr_array

    from headcount._linalg import Array
    from headcount.structure._prior_operator import PriorOperator

MOST_ITERATIONS = 2000
"""8 to 12 are needed on the birds, 275 at rate 100 on a slow random walk without scaling (the theory's table)."""
ROUNDING = 1e-13
"""Residual, relative to the right-hand side, below which what is left is rounding: about 1e-16 per operation, summed over a row."""
NOT_SOLVED = (
    f"conjugate gradients did not converge in {MOST_ITERATIONS} iterations: the data are too sharp for the "
    'matrix-free structure; use structure="tree"'
)


class Stop(NamedTuple):
    """When a column is solved: at the largest of three residuals."""

    relative: float = 0.0
    """In shares of the right-hand side."""
    absolute: float = 0.0
    gain: float = 0.0
    """In shares of the residual that the start has: with a start near the answer a few more digits are enough."""
    loosest: float = 1.0
    """… but never looser than this share of the right-hand side."""


class ConjugateSolution(NamedTuple):
    """Where conjugate gradients ended, and the coefficients of every iteration (0 where a column was done)."""

    x: Array
    size: Array
    """‖right‖² by column."""
    lengths: list[Array]
    turns: list[Array]

    def log_forms(self) -> Array:
        """rᵀ A⁻¹ log(A) r by Gauss quadrature, r the right-hand side, by column; only without a start."""
        found = np.zeros(len(self.size))
        if not self.lengths:
            return found
        lengths, turns = np.array(self.lengths), np.array(self.turns)
        for c in range(len(found)):
            a = lengths[lengths[:, c] > 0, c]
            if not len(a):
                continue
            b = turns[: len(a) - 1, c]
            diagonal = 1.0 / a
            diagonal[1:] += b / a[:-1]
            off = np.sqrt(b) / a[:-1]
            values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1))
            found[c] = self.size[c] * float(vectors[0] ** 2 @ (np.log(values) / values))
        return found


@dataclass(frozen=True)
class System:
    """A, for given precisions τ ≥ 0 of the rows seen; ``fixed`` rows are known exactly."""

    covariance: Callable[[Array], Array]
    """H K Hᵀ, applied to columns."""
    rows: csr_array
    """H."""
    variance: Array
    """k."""
    tau: Array
    fixed: np.ndarray
    prior: PriorOperator | None = None
    """K, where its passes and the products with H are compiled together."""

    @cached_property
    def d(self) -> Array:
        """1 + τ k; of fixed rows k, which has the same place in D."""
        return np.where(
            self.fixed, np.where(self.variance > 0, self.variance, 1.0), 1.0 + self.tau * self.variance
        )

    @cached_property
    def scale(self) -> Array:
        """D."""
        tau = np.where(self.fixed, np.where(self.variance > 0, 1.0, 0.0), self.tau)
        return np.sqrt(tau / self.d)

    @cached_property
    def over(self) -> Array:
        """o; 1 at fixed rows without variance, which say nothing."""
        return np.where(self.fixed, np.where(self.variance > 0, 0.0, 1.0), 1.0 / self.d)

    def of_draws(self, free: Array, noise: Array) -> Array:
        """D (Hδ + ξ/√τ) for draws δ of the prior and standard normal ξ at the rows: its covariance is A."""
        over = np.sqrt(np.where(self.fixed, 0.0, 1.0 / self.d))  # D/√τ
        return self.scale[:, None] * (self.rows @ free) + over[:, None] * noise

    def times(self, x: Array, out: Array) -> Array:
        """A x into ``out``; the columns' xᵀ A x."""
        prior, rows = self.prior, self.rows
        if prior is None or not prior.compiled:
            scale = self.scale[:, None]
            out[:] = scale * self.covariance(scale * x) + self.over[:, None] * x
            return dots(x, out)
        many = len(prior.seen.chance) > 0
        work = prior.buffer("work", x.shape[1], prior.size)[: prior.size]
        h = (rows.indptr, rows.indices, rows.data, self.scale)
        spread(*h, x, work)
        found = prior.run(work[: prior.entries], work[prior.entries :], keep=many)
        pulls = prior.pulls(found)
        return np.asarray(read(*h, prior.expected, pulls, found.mean, self.over, x, out))


def dots(a: Array, b: Array) -> Array:
    """The columns' products, as NumPy's: numbers by column steer the iteration, and stay on the host."""
    return np.einsum("ij,ij->j", a, b) if on_host(a) else np.asarray(host((a * b).sum(axis=0)))


def conjugate(system: System, right: Array, stop: Stop, start: Array | None = None) -> ConjugateSolution:
    """A⁻¹ right, all columns at once, from zero or from ``start``."""
    xp, size = namespace(right), dots(right, right)
    image = np.empty_like(right)
    if start is None:
        x, residual, rho = np.zeros_like(right), right.copy(), size.copy()
    else:
        x = start.copy()
        system.times(x, image)
        residual = right - image
        rho = dots(residual, residual)
    target = np.maximum(max(stop.relative, ROUNDING) ** 2 * size, stop.absolute**2)
    target = np.maximum(target, np.minimum(stop.gain**2 * rho, stop.loosest**2 * size))
    way = residual.copy()
    lengths: list[Array] = []
    turns: list[Array] = []
    for _ in range(MOST_ITERATIONS):
        live = rho > target
        if not live.any():
            return ConjugateSolution(x, size, lengths, turns)
        curvature = system.times(way, image)
        flat = live & ~(curvature > 0)  # a direction that redundant exact counts leave empty: rounding
        live &= ~flat
        length = np.where(live, rho / np.where(live, curvature, 1.0), 0.0)
        share = xp.asarray(length)
        x += share * way
        residual -= share * image
        new = dots(residual, residual)
        old, rho = rho, np.where(live, new, np.where(flat, 0.0, rho))
        turn = np.where(live, rho / np.where(live, old, 1.0), 0.0)
        way *= xp.asarray(turn)
        way += residual
        lengths.append(length)
        turns.append(turn)
    raise FloatingPointError(NOT_SOLVED)


def of_any_sign(covariance: Callable[[Array], Array], tau: Array, right: Array, tolerance: float) -> Array:
    """q with (I + τ C) q = right, C a covariance, for precisions of any sign: the columns of ``right`` at once.

    Conjugate gradients on (C⁻¹ + τ) y = right, y = C q, with C as preconditioner: q is carried along, so that C⁻¹ is never applied.
    What must be positive is the posterior's precision, not τ.

    Raises
    ------
    NotPositiveDefinite
        If it is not.
    """
    t, xp = tau[:, None], namespace(right)
    q, residual = np.zeros_like(right), right.copy()
    z = covariance(residual)
    way_q, way_y, rho = residual.copy(), z, dots(residual, z)
    target = np.maximum(tolerance**2, ROUNDING**2 * rho)
    for _ in range(MOST_ITERATIONS):
        live = rho > target
        if not live.any():
            return q
        image = way_q + t * way_y
        curvature = dots(way_y, image)
        if (curvature[live] <= 0).any():
            raise NotPositiveDefinite
        length = xp.asarray(np.where(live, rho / np.where(live, curvature, 1.0), 0.0))
        q += length * way_q
        residual -= length * image
        z = covariance(residual)
        old, rho = rho, np.where(live, dots(residual, z), rho)
        turn = xp.asarray(np.where(live, rho / np.where(live, old, 1.0), 0.0))
        way_q, way_y = residual + turn * way_q, z + turn * way_y
    raise FloatingPointError(NOT_SOLVED)
