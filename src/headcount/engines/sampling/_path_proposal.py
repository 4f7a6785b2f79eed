"""The Markov trees that whole paths are proposed from: the model itself, or what burn-in has learned of one individual."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headcount.engines.sampling._arrays import Proposal
from headcount.engines.sampling._sampling_arrays import SamplingArrays
from headcount.observe import ProblemError

if TYPE_CHECKING:
    from headcount.individual import Model

Array = NDArray[np.float64]


def model_proposal(arrays: SamplingArrays, start: Model | None) -> Proposal:
    """Q = the model, or `start` where one is given."""
    if start is None:
        return _proposal(
            arrays, arrays.tree.initial, [transition(arrays, v) for v in range(1, len(arrays.variables))]
        )
    if set(start.variables) != set(arrays.variables):
        raise ProblemError(
            f"start must be a model of the variables {list(arrays.variables)!r}, got {list(start.variables)!r}"
        )
    root = start.marginal((arrays.variables[0],))
    laws = []
    for v in range(1, len(arrays.variables)):
        edge = start.marginal((arrays.variables[int(arrays.tree.parent[v])], arrays.variables[v]))
        laws.append(_conditional(edge, transition(arrays, v)))
    if np.any((root > 0) & (arrays.tree.initial == 0)) or any(
        np.any((q > 0) & (transition(arrays, v + 1) == 0)) for v, q in enumerate(laws)
    ):
        raise ProblemError(
            "start gives probability to steps that the problem's model forbids: tilt the problem's own model"
        )
    return _proposal(arrays, root, laws)


def smoothed_proposal(arrays: SamplingArrays, node: Array, edge: Array) -> Proposal:
    """q = the Markov tree with the given (unnormalised) node and edge marginals of one individual."""
    laws = []
    for v in range(1, len(arrays.variables)):
        law = transition(arrays, v)
        laws.append(_conditional(edge[arrays.edge(v)].reshape(law.shape), law))
    root = node[arrays.node(0)]
    return _proposal(arrays, root / root.sum(), laws)


def transition(arrays: SamplingArrays, v: int) -> Array:
    """P(x_v | x_parent)."""
    shape = int(arrays.tree.sizes[arrays.tree.parent[v]]), int(arrays.tree.sizes[v])
    start = int(arrays.tree.law_start[v])
    return np.asarray(arrays.tree.law[start : start + shape[0] * shape[1]].reshape(shape))


def _conditional(edge: Array, law: Array) -> Array:
    """Rows of an edge table as probabilities; the model's row where the table is empty."""
    total = edge.sum(axis=1, keepdims=True)
    return np.where(total > 1e-290, edge / np.where(total > 0, total, 1.0), law)


def _proposal(arrays: SamplingArrays, root: Array, laws: list[Array]) -> Proposal:
    """Alias tables and weights P / q; q = 0 < P gives an infinite weight: never proposed, and never left this way."""
    from headcount.engines.sampling._propose_path import alias_tables

    first = int(arrays.tree.sizes[0])
    total = first + arrays.entries
    q = np.concatenate([root, *(law.ravel() for law in laws)])
    p = np.concatenate(
        [arrays.tree.initial, *(transition(arrays, v).ravel() for v in range(1, len(arrays.variables)))]
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.where(q > 0, p / q, np.inf)
    accept, alias = np.empty(total), np.zeros(total, dtype=np.int16)
    start = arrays.tree.edge_start[:-1] + first
    start[0] = 0
    for v, size in enumerate(arrays.tree.sizes):
        span = slice(0, first) if v == 0 else slice(int(start[v]), first + int(arrays.tree.edge_start[v + 1]))
        alias_tables(q[span], int(size), accept[span], alias[span])
    return Proposal(accept, alias, start, weight)
