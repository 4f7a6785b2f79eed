r"""The noise of one step, as an exact factor.

Given the table :math:`M = N\mu_{uv}` with row sums :math:`m_u`, the node counts of v scatter around :math:`P^\top z_u` with

.. math:: Q = \operatorname{diag}(M^\top 1) - M^\top \operatorname{diag}(1/m_u)\, M ,

the Laplacian of a weighted graph on v's cells with weights :math:`\sum_i M_{ij} M_{ik} / m_i`. Its null space is spanned by the
indicators of that graph's connected components, so one cell a component (the most probable) can be dropped and the rest factored
by a plain Cholesky: no jitter, no pseudo-inverse, no threshold. Taking the diagonal as minus the sum of the off-diagonals avoids the
cancellation of the subtraction above when transitions are nearly deterministic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse.csgraph import connected_components

from headcount.population import laplacian
from headcount.structure._linalg import cholesky, fortran, gram, inverse_from_cholesky, mirror

if TYPE_CHECKING:
    from headcount.structure._linalg import Array


@dataclass(frozen=True)
class NoiseFactor:
    """``Q = R Rᵀ`` with ``R = E C``: C the Cholesky factor on the kept cells, E the embedding that restores the dropped ones."""

    size: int
    kept: np.ndarray
    dropped: np.ndarray
    component: np.ndarray
    """Component of every kept cell, as a position in ``dropped``."""
    cholesky: Array

    @property
    def matrix(self) -> Array:
        """R, ``(size, kept)``; each dropped cell balances its component."""
        if (
            len(self.dropped) == 1 and len(self.kept) == self.size - 1
        ):  # all but one: slices, not index arrays
            at = int(self.dropped[0])
            r = np.empty((self.size, self.size - 1), order="F")
            r[:at], r[at + 1 :] = self.cholesky[:at], self.cholesky[at:]
            np.negative(self.cholesky.sum(axis=0), out=r[at])
            return r
        r = np.zeros((self.size, len(self.kept)), order="F")
        r[self.kept] = self.cholesky
        if len(self.kept):
            balance = np.zeros((len(self.dropped), len(self.kept)))
            np.add.at(balance, self.component, self.cholesky)
            r[self.dropped] = -balance
        return r

    def inverse(self) -> Array:
        """A generalised inverse of Q: the inverse on the kept cells, zero on the dropped ones."""
        g = np.zeros((self.size, self.size), order="F")
        g[np.ix_(self.kept, self.kept)] = inverse_from_cholesky(fortran(self.cholesky))
        return g

    def pull(self, values: Array) -> Array:
        """``Eᵀ``-generalised-inverse times rows given on the kept cells: zeros where a cell was dropped."""
        out = np.zeros((self.size, *values.shape[1:]), order="F")
        out[self.kept] = values
        return out


def step_laplacian(table: Array) -> Array:
    """Q of the module's docstring, from the table ``M``."""
    m = table.sum(axis=1)
    scaled = np.where(m > 0, 1.0 / np.sqrt(np.where(m > 0, m, 1.0)), 0.0)[:, None] * table
    weights = mirror(gram(fortran(scaled), left=True))
    np.fill_diagonal(weights, 0.0)
    return laplacian(weights)


def _among(q: Array, kept: np.ndarray, dropped: np.ndarray) -> Array:
    """The kept rows and columns of ``q``, Fortran-ordered."""
    size = len(q)
    if len(dropped) != 1 or len(kept) != size - 1:
        return fortran(q[np.ix_(kept, kept)])
    at = int(dropped[0])
    out = np.empty((size - 1, size - 1), order="F")
    out[:at, :at], out[:at, at:] = q[:at, :at], q[:at, at + 1 :]
    out[at:, :at], out[at:, at:] = q[at + 1 :, :at], q[at + 1 :, at + 1 :]
    return out


def noise_factor(table: Array) -> NoiseFactor:
    """Factor the noise of the step whose expected table is ``table`` (L_u, L_v); a root is a table of one row."""
    q = step_laplacian(table)
    size = q.shape[0]
    weight = np.asarray(table.sum(axis=0))
    reached = weight > 0
    everyone = int(reached.sum())
    if np.count_nonzero(q < 0) == everyone * (everyone - 1):
        label = np.zeros(size, dtype=np.intp)  # the common case: all cells share an origin
    else:
        _, label = connected_components(q < 0, directed=False)
    order = np.argsort(-weight, kind="stable")
    order = order[reached[order]]
    _, first = np.unique(label[order], return_index=True)
    dropped = order[first]
    is_kept = reached.copy()
    is_kept[dropped] = False
    kept = np.flatnonzero(is_kept)
    position = np.full(int(label.max(initial=0)) + 1, -1)
    position[label[dropped]] = np.arange(len(dropped))
    factor = cholesky(_among(q, kept, dropped))
    if factor is None:
        message = (
            "the noise of a step could not be factored: its table mixes cells whose weights differ by more than float64 holds; "
            "set transition probabilities below 1e-280 to zero"
        )
        raise FloatingPointError(message)
    return NoiseFactor(size, kept, dropped, position[label[kept]], factor)
