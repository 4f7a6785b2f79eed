r"""Flows (edge tables) of a tree under the posterior of its nodes, and sites on single flows.

Given both nodes, the law of a table is :class:`~headcount.population.EdgeConditional`; here the nodes have their posterior. With
the posterior of the step written as :math:`\delta_v = P^\top\delta_u + X(\kappa - Y^\top P^\top\delta_u + \zeta)`, :math:`\zeta`
standard normal (``_gaussian_tree``), the table

.. math:: \delta_{uv}(i,j) = M_{ij}(\alpha_i + \beta_j) + \text{remainder}, \qquad
          \beta = Q^{-}(\delta_v - P^\top\delta_u), \quad \alpha = \delta_u/m - P\beta

splits into independent parts from :math:`\delta_u`, from :math:`\zeta` and from the table's own freedom given both nodes. Nothing
larger than L × L is formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headcount._linalg import fortran, product
from headcount.population import EdgeConditional
from headcount.population._laplacian import inverse_or_zero
from headcount.structure._gaussian_tree import NotPositiveDefinite

if TYPE_CHECKING:
    from headcount._linalg import Array
    from headcount.structure._gaussian_tree import Upward

LOST = 1e-6
"""Rounding error of a flow's variance, relative to the expected flow, above which its squares are summed term by term. Matrix
products leave about 1e-16 times the squared potentials; those are large only where moves are almost certain."""


@dataclass(frozen=True)
class Step:
    """One edge (u, v) of a tree: the law of its table given the nodes, and where sites on the table move its centre."""

    edge: EdgeConditional
    """At M, or with sites on the table at ``1 / (1/M + tau)``."""
    shift: Array | None = None
    """d, ``(L_u, L_v)``; None without sites on the table."""

    @property
    def shape(self) -> tuple[int, int]:
        """(L_u, L_v)."""
        rows, columns = self.edge.table.shape
        return rows, columns

    def mean(self, delta_u: Array, delta_v: Array) -> Array:
        """Expected deviation of the table given the nodes' deviations; a leading axis holds separate ones."""
        if self.shift is None:
            return self.edge.flow(delta_u, delta_v)
        return self.shift + self.edge.flow(delta_u - self.shift.sum(axis=1), delta_v - self.shift.sum(axis=0))

    def sample(self, delta_u: Array, delta_v: Array, *, rng: np.random.Generator) -> Array:
        """One table per row of the nodes' deviations: any table with the right covariance, moved onto the nodes."""
        table = self.edge.table
        free = rng.standard_normal((len(delta_u), *table.shape)) * np.sqrt(table)
        free += 0.0 if self.shift is None else self.shift
        return free + self.edge.flow(delta_u - free.sum(axis=2), delta_v - free.sum(axis=1))

    def variance(self, up: Upward, node_gain: Array, covariance_u: Array) -> Array:
        r"""Posterior variance of every entry of the table, given the posterior covariance of u.

        Given the nodes the table is :math:`M_{ij}(\alpha_i + \beta_j)` with :math:`\beta = Q^{+}(\delta_v - P^\top\delta_u)`, and given
        :math:`\delta_u` the child has mean :math:`(I - X^\top Y)G^\top\delta_u`. So :math:`\delta_u` moves β by
        :math:`-(ZYG^\top + Q^{+}(P - G)^\top)`, :math:`Z = Q^{+}X^\top`.

        ``node_gain`` is G, the gain of the child's node: P with further columns where sums of its cells are features too, and not P
        where some of the child's counts are exact.
        """
        edge, gain, size_v = self.edge, self.edge.gain, self.shape[1]
        z = edge.noise.solve(up.x[:size_v])
        pz = product(gain, z)
        through = product(z, product(fortran(up.y), node_gain, left=True, right=True))
        if not np.array_equal(node_gain[:, :size_v], gain):
            through += edge.noise.solve(fortran((gain - node_gain[:, :size_v]).T))
        a = product(gain, through)
        a.ravel(order="K")[:: a.shape[0] + 1] += edge.over_rows
        av, bv = product(a, covariance_u), product(through, covariance_u)
        alpha = np.einsum("ij,ij->i", av, a) + np.einsum("ij,ij->i", pz, pz)
        beta = np.einsum("ij,ij->i", bv, through) + np.einsum("ij,ij->i", z, z)
        both = product(av, through, right=True) + product(pz, z, right=True)
        spread = alpha[:, None] + beta[None, :] - 2.0 * both
        lost = np.finfo(float).eps * edge.table * (alpha[:, None] + beta[None, :])
        if lost.max(initial=0.0) > LOST:
            spread = _sum_of_squares(a, through, pz, z, covariance_u)
        return edge.variance + edge.table**2 * np.maximum(spread, 0.0)  # a variance; below zero is rounding

    def absorb(self, tau: Array, nu: Array) -> tuple[Step, Array, Array, float]:
        r"""Absorb diagonal sites on the table: each row is conditioned in closed form.

        With :math:`\tilde M = 1/(1/M + \tau)`, :math:`d = \tilde M\nu`, row sums :math:`\tilde m, \bar d`, the row's integral over
        the table given its total s is

        .. math:: -\tfrac12 s^2(1/\tilde m - 1/m) + s\bar d/\tilde m - \tfrac12\bar d^2/\tilde m + \tfrac12\sum d^2/\tilde M
                  + \tfrac12\bigl[\sum\log(\tilde M/M) - \log(\tilde m/m)\bigr].

        Returns the step at M̃, and the precision, potential and log constant left on the parent.
        """
        table, gain = self.edge.table, self.edge.gain
        shrink = 1.0 + table * tau
        if (shrink <= 0).any():
            raise NotPositiveDefinite
        new = fortran(table / shrink)
        d = new * nu
        m, m_new, total = table.sum(axis=1), new.sum(axis=1), d.sum(axis=1)
        live = m > 0
        over, over_new = inverse_or_zero(m), inverse_or_zero(m_new)
        constant = -0.5 * np.log(shrink).sum() - 0.5 * np.log(m_new[live] / m[live]).sum()
        constant += 0.5 * (d * nu).sum() - 0.5 * (total**2 * over_new).sum()
        moved = fortran(np.where(live[:, None], new * over_new[:, None], gain))
        return Step(EdgeConditional(new, moved), d), over_new - over, total * over_new, float(constant)


def _sum_of_squares(a: Array, b: Array, pz: Array, z: Array, covariance_u: Array) -> Array:
    """Var(α_i + β_j) as Σ_k (A_ik − B_jk)², A = [a V^½, pz], B = [b V^½, z]: no difference of large squares."""
    values, vectors = np.linalg.eigh(covariance_u)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    first, second = np.hstack([a @ root, pz]), np.hstack([b @ root, z])
    return np.stack([((row - second) ** 2).sum(axis=1) for row in first])
