r"""A Gaussian on a rooted tree of feature vectors, and the two passes that answer every question about it.

Deviations from the centre, :math:`\delta_v = z_v - N\mu_v`, follow

.. math:: \delta_v \mid \delta_u \sim N(b_v + P_v^\top \delta_u,\; R_v R_v^\top), \qquad u = \text{parent}(v),

and every node carries Gaussian sites :math:`\exp(-\tfrac12\delta^\top\Lambda\delta + \eta^\top\delta)`. Going up, v is integrated out:
with :math:`B = I + R^\top\Lambda R = CC^\top`, :math:`X = RC^{-\top}`, :math:`Y = \Lambda X`,

.. math:: \Lambda' = \Lambda - YY^\top, \quad \eta' = \eta - YX^\top\eta, \quad
          \Lambda_u \mathrel{+}= P\Lambda'P^\top, \quad \eta_u \mathrel{+}= P(\eta' - \Lambda' b)

Going down, :math:`\delta_v \mid \delta_u, y \sim N(A\delta_u + a,\; XX^\top)` with :math:`A = (I - XY^\top)P^\top`. Only B is
factored, and B ≥ I whenever the sites are: singular noise, unreachable cells and deterministic steps are ordinary input.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from headcount._linalg import (
    apply,
    cholesky,
    divide_right,
    fortran,
    gram,
    mirror,
    product,
    sandwich,
    symmetric_product,
    threads_for,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headcount._linalg import Array


class NotPositiveDefinite(ArithmeticError):
    """The sites' precisions are so negative that no Gaussian exists; the caller should damp its step."""


@dataclass(frozen=True)
class Node:
    """One feature vector: how it follows from its parent, and what is known of it besides the sites."""

    parent: int
    factor: Array
    """R, ``(d, r)``."""
    gain: Array | None = None
    """P, ``(d of the parent's block, d)``; None at the root."""
    block: slice = field(default_factory=lambda: slice(None))
    """The parent's features that drive this node."""
    offset: Array | None = None
    precision: Array | None = None
    potential: Array | None = None
    log_scale: float = 0.0

    @property
    def size(self) -> int:
        """Number of features d."""
        return int(self.factor.shape[0])

    def with_potential(self, where: slice | np.ndarray, precision: Array, potential: Array) -> Node:
        """The node with a further Gaussian factor on some of its features."""
        size = self.size
        lam = np.zeros((size, size), order="F") if self.precision is None else self.precision.copy(order="F")
        eta = np.zeros(size) if self.potential is None else self.potential.copy()
        lam[(where, where) if isinstance(where, slice) else np.ix_(where, where)] += precision
        eta[where] += potential
        return replace(self, precision=lam, potential=eta)


@dataclass(frozen=True)
class Upward:
    """What the upward pass leaves at a node for the way down."""

    x: Array
    """X, ``(d, r)``."""
    y: Array
    """Y, ``(d, r)``."""
    potential: Array
    """η at this node, messages from below included, corrected for the offset."""


@dataclass(frozen=True)
class Solution:
    """Posterior means, covariances and gains at every node, and log Z."""

    tree: GaussianTree
    mean: tuple[Array, ...]
    variance: tuple[Array, ...]
    log_z: float
    upward: tuple[Upward, ...]
    covariance: tuple[Array, ...] | None = None

    def gain(self, v: int) -> Array:
        """A of the module's docstring: the posterior regression of node v on its parent's block."""
        return _posterior_gain(self.tree.nodes[v], self.upward[v])


@dataclass(frozen=True)
class GaussianTree:
    """Nodes in topological order, the root first."""

    nodes: tuple[Node, ...]

    @property
    def largest(self) -> int:
        """The widest feature vector."""
        return max(node.size for node in self.nodes)

    def solve(
        self, tau: Sequence[Array | None], nu: Sequence[Array | None], *, keep: bool = False
    ) -> Solution:
        """Moments under diagonal sites ``exp(−½ tau δ² + nu δ)``; ``keep`` retains the full covariances.

        Raises
        ------
        NotPositiveDefinite
            When negative precisions outweigh the prior.
        """
        with threads_for(self.largest):
            upward, log_z = self._up(tau, nu)
            mean: list[Array] = []
            variance: list[Array] = []
            covariance: list[Array] = []
            last_use = self._last_use()
            for v, (node, up) in enumerate(zip(self.nodes, upward, strict=True)):
                a, q = _downward(node, up, mean, covariance)
                mean.append(a)
                variance.append(np.diagonal(q).copy())
                covariance.append(mirror(q) if keep else q)
                if not keep:
                    for u in (v, node.parent):
                        if u >= 0 and last_use[u] == v:
                            covariance[u] = _EMPTY
        return Solution(
            self, tuple(mean), tuple(variance), log_z, tuple(upward), tuple(covariance) if keep else None
        )

    def _last_use(self) -> list[int]:
        """For every node the last node whose downward step reads its covariance (itself when it is a leaf)."""
        last = list(range(len(self.nodes)))
        for v, node in enumerate(self.nodes):
            if node.parent >= 0:
                last[node.parent] = v
        return last

    def _up(self, tau: Sequence[Array | None], nu: Sequence[Array | None]) -> tuple[list[Upward], float]:
        count = len(self.nodes)
        precision: list[Array | None] = [None] * count
        potential: list[Array | None] = [None] * count
        upward: list[Upward] = [None] * count  # type: ignore[list-item]
        log_z = 0.0
        for v in range(count - 1, -1, -1):
            node = self.nodes[v]
            lam, eta = _at_node(node, tau[v], nu[v], precision[v], potential[v])
            precision[v] = potential[v] = None
            if node.offset is not None:  # move to deviations from the offset
                shift = symmetric_product(lam, node.offset[:, None])[:, 0]
                log_z += float(eta @ node.offset - 0.5 * node.offset @ shift)
                eta = eta - shift
            x, y, w, log_b = eliminate(node.factor, lam, eta)
            log_z += 0.5 * float(w @ w) - log_b + node.log_scale
            upward[v] = Upward(x, y, eta)
            if node.gain is not None:
                lam = gram(y, scale=-1.0, onto=lam)
                eta = eta - apply(y, w)
                message = sandwich(node.gain, lam)
                linear = apply(node.gain, eta)
                u, into = node.parent, self.nodes[node.parent].size
                if node.block != slice(None):
                    wide, long = np.zeros((into, into), order="F"), np.zeros(into)
                    wide[node.block, node.block], long[node.block] = message, linear
                    message, linear = wide, long
                old, held = precision[u], potential[u]
                precision[u] = message if old is None else old + message
                potential[u] = linear if held is None else held + linear
        return upward, log_z


_EMPTY = np.empty((0, 0))


def _at_node(
    node: Node, tau: Array | None, nu: Array | None, precision: Array | None, potential: Array | None
) -> tuple[Array, Array]:
    """Everything known at a node: its own sites, its fixed potentials, the messages from below (lower triangle; reused)."""
    lam = np.zeros((node.size, node.size), order="F") if precision is None else precision
    eta = np.zeros(node.size) if potential is None else potential
    if node.precision is not None:
        lam = lam + node.precision
    if node.potential is not None:
        eta = eta + node.potential
    if tau is not None:
        lam.ravel(order="K")[:: node.size + 1] += tau
    if nu is not None:
        eta = eta + nu
    return lam, eta


def eliminate(factor: Array, lam: Array, eta: Array) -> tuple[Array, Array, Array, float]:
    """X, Y, Xᵀη and ½ log det B for noise factor R and site precision Λ (see the module's docstring)."""
    half = symmetric_product(lam, factor)
    b = product(factor, half, left=True)
    b.ravel(order="K")[:: b.shape[0] + 1] += 1.0
    c = cholesky(b)
    if c is None:
        raise NotPositiveDefinite
    x = divide_right(np.array(factor, order="F"), c)
    y = divide_right(half, c)
    return x, y, apply(x, eta, transpose=True), float(np.log(np.diagonal(c)).sum())


def _downward(node: Node, up: Upward, mean: list[Array], covariance: list[Array]) -> tuple[Array, Array]:
    """Posterior mean and covariance (lower triangle) of a node, from those of the nodes before it."""
    q = gram(up.x)
    a = apply(up.x, apply(up.x, up.potential, transpose=True))
    if node.offset is not None:
        a = a + node.offset
    if node.gain is None:
        return a, q
    gain = _posterior_gain(node, up)
    above = covariance[node.parent]
    if node.block != slice(None):
        above = fortran(above[node.block, node.block])
    return a + apply(gain, mean[node.parent][node.block]), sandwich(gain, above, onto=q)


def _posterior_gain(node: Node, up: Upward) -> Array:
    """A = (I − XYᵀ) Pᵀ."""
    if node.gain is None:
        message = "the root has no parent"
        raise ValueError(message)
    yp = product(up.y, node.gain, left=True, right=True)
    return fortran(node.gain.T) - product(up.x, yp)
