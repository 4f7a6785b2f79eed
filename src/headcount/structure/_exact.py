r"""Exact observations as constraints, not as tiny variances.

A margin known exactly says :math:`C_v\delta_v = c_v`. With :math:`\delta_v = P^\top\delta_u + R\xi` that is
:math:`G\xi = c_v - C_vP^\top\delta_u`, :math:`G = C_vR`. A pivoted QR of :math:`G^\top` picks as many independent rows as G has rank;
those fix that many directions of ξ and leave a Gaussian factor on u; the remaining rows say nothing about ξ and
are constraints on u, passed on. At the root what remains must be 0 = 0, or the data contradict each other.
Rows are picked, not mixed, so the density is per unit of the chosen counts: the one that approximates a probability.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import qr, solve_triangular

from headcount.structure._gaussian_tree import GaussianTree, Node
from headcount.structure._linalg import fortran

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from headcount.structure._linalg import Array

    Index = NDArray[np.intp]

LOG_2PI = float(np.log(2 * np.pi))


class Contradiction(ValueError):
    """Exact observations that cannot all hold."""


@dataclass(frozen=True)
class Constraint:
    """``rows @ delta = value`` at one node."""

    rows: Array
    value: Array


def condition(tree: GaussianTree, constraints: Mapping[int, Constraint], *, scale: float) -> GaussianTree:
    """Condition the law on exact linear constraints; ``scale`` (the population) sets what counts as rounding.

    The result's nodes have smaller noise factors, offsets, and the Gaussian factors that the constraints leave on their parents.
    """
    nodes = list(tree.nodes)
    waiting: dict[int, list[Constraint]] = {v: [c] for v, c in constraints.items()}
    for v in range(len(nodes) - 1, -1, -1):
        if v not in waiting:
            continue
        node = nodes[v]
        rows = np.vstack([c.rows for c in waiting[v]])
        value = np.concatenate([c.value for c in waiting[v]])
        picked, rest, q, lower = independent_rows(rows @ node.factor, np.abs(rows).sum(axis=1), scale)
        free, above, log_scale = _fix(node, rows[picked], value[picked], q, lower)
        nodes[v] = replace(free, log_scale=node.log_scale + log_scale)
        if node.gain is not None and above is not None:
            u = node.parent
            nodes[u] = nodes[u].with_potential(node.block, *above)
        if len(rest):
            mix = _mixing(rows @ node.factor, picked, rest, q, lower)
            _pass_on(
                waiting,
                nodes,
                node,
                rows[rest] - mix @ rows[picked],
                value[rest] - mix @ value[picked],
                scale=scale,
            )
    return GaussianTree(tuple(nodes))


def independent_rows(
    g: Array, weight: Array, scale: float, *, rounding: float = 1e-11
) -> tuple[Index, Index, Array, Array]:
    """Pivoted QR of Gᵀ: positions of independent rows, the others, the orthonormal basis and the triangular factor.

    Entries of G are standard deviations of counts, at most ``weight·√N``; a pivot below ``rounding`` of that is zero.
    """
    if g.size == 0:
        return (
            np.empty(0, np.intp),
            np.arange(g.shape[0]),
            np.zeros((g.shape[1], g.shape[1])),
            np.zeros((0, 0)),
        )
    q, r, pivot = qr(g.T, mode="full", pivoting=True)
    diagonal = np.abs(np.diagonal(r))
    floor = rounding * np.sqrt(scale) * float(weight.max())
    rank = int((diagonal > floor).sum())
    return pivot[:rank], pivot[rank:], q, r[:rank, :rank].T


def _fix(
    node: Node, rows: Array, value: Array, q: Array, lower: Array
) -> tuple[Node, tuple[Array, Array] | None, float]:
    """Impose the independent rows: the node that remains, the factor left on the parent, and log of its constant."""
    rank = len(value)
    moved = node.factor @ q[:, :rank]
    through = solve_triangular(lower, rows, lower=True) if rank else np.zeros((0, node.size))
    base = np.zeros(node.size) if node.offset is None else node.offset
    target = solve_triangular(lower, value - rows @ base, lower=True) if rank else np.zeros(0)
    offset = base + moved @ target
    log_scale = (
        -0.5 * float(target @ target) - 0.5 * rank * LOG_2PI - float(np.log(np.abs(np.diagonal(lower))).sum())
    )
    factor = fortran(node.factor @ q[:, rank:])
    if node.gain is None:
        return replace(node, factor=factor, offset=offset), None, log_scale
    seen = through @ node.gain.T
    gain = fortran(node.gain - (moved @ seen).T)
    return replace(node, factor=factor, offset=offset, gain=gain), (seen.T @ seen, seen.T @ target), log_scale


def _mixing(g: Array, picked: Index, rest: Index, q: Array, lower: Array) -> Array:
    """How the dependent rows of G are made of the picked ones."""
    rank = len(picked)
    if rank == 0:
        return np.zeros((len(rest), 0))
    coordinates = g[rest] @ q[:, :rank]
    return np.asarray(solve_triangular(lower, coordinates.T, lower=True, trans="T").T)


def _pass_on(
    waiting: dict[int, list[Constraint]],
    nodes: list[Node],
    node: Node,
    rows: Array,
    value: Array,
    *,
    scale: float,
) -> None:
    """Constraints that do not touch this node's noise are constraints on its parent; at the root they must be empty."""
    offset = 0.0 if node.offset is None else rows @ node.offset
    value = value - offset
    up = np.zeros((len(rows), 0)) if node.gain is None else rows @ node.gain.T
    empty = np.abs(up).max(axis=1, initial=0.0) <= 1e-10 * np.maximum(
        np.abs(rows).max(axis=1, initial=0.0), 1.0
    )
    wrong = empty & (np.abs(value) > 1e-7 * scale)
    if wrong.any():
        message = f"exact observations contradict each other by {np.abs(value[wrong]).max():g} individuals"
        raise Contradiction(message)
    if (~empty).any():
        wide = np.zeros((int((~empty).sum()), nodes[node.parent].size))
        wide[:, node.block] = up[~empty]
        waiting.setdefault(node.parent, []).append(Constraint(wide, value[~empty]))
