"""The rooted tree that the fast paths read: p(x) = pi(x_r) prod_v P_v(x_parent(v), x_v)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from headcount._device import Device, issparse
from headcount.errors import ModelError
from headcount.individual._junction_tree import JunctionTree

Matrix = Any
"""A dense ``(L_u, L_v)`` float array or a `scipy.sparse.csr_array` of that shape (None at the root)."""
Packed = tuple[NDArray[np.float64], NDArray[np.intp]]
"""Distinct transitions ``(U, L, L)``, and the one that leads to each node ``(nodes,)``."""


class Moves(NamedTuple):
    """Distinct sparse transitions laid end to end, by rows and by columns: what compiled passes over all edges read.

    Row i of the transition into node v stands between ``ends[first[v] + i]`` and ``ends[first[v] + i + 1]``; ``turned`` is the same
    for its transpose. Edges with one and the same matrix share its entries.
    """

    first: NDArray[np.int64]
    ends: NDArray[np.int64]
    columns: NDArray[np.int32]
    chances: NDArray[np.float64]
    turned: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]

    @classmethod
    def of(cls, matrices: Sequence[Matrix]) -> Moves:
        """Of the transitions of all nodes; the root has none."""
        distinct = list({id(m): m for m in matrices if m is not None}.values())
        place = {id(m): k for k, m in enumerate(distinct)}
        which = [0 if m is None else place[id(m)] for m in matrices]
        plain = _end_to_end(distinct, which)
        return cls(*plain, _end_to_end([m.T.tocsr() for m in distinct], which))


def _end_to_end(
    matrices: Sequence[Matrix], which: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
    """First rows by node, row ends, columns and values of csr matrices laid end to end."""
    rows = np.cumsum([0, *(m.shape[0] + 1 for m in matrices)])
    entries = np.cumsum([0, *(m.nnz for m in matrices)])
    ends = [m.indptr.astype(np.int64) + start for m, start in zip(matrices, entries[:-1], strict=True)]
    return (
        rows[np.asarray(which, dtype=np.intp)] if matrices else np.zeros(len(which), np.int64),
        np.concatenate([np.zeros(0, np.int64), *ends]),
        np.concatenate([np.zeros(0, np.int32), *(m.indices.astype(np.int32) for m in matrices)]),
        np.concatenate([np.zeros(0), *(m.data for m in matrices)]),
    )


LARGEST_PACKED = 256
"""Cells up to which the compiled passes are used; above, the Python calls cost little beside the matrix products."""
MOST_PACKED = 8_000_000
"""Entries that a packed copy of the transitions may have: 64 MB, kept beside the matrices themselves."""


@dataclass(frozen=True)
class Place:
    """Where a scope lies on a rooted tree: on a node, or on the edge above a child.

    The tree keeps an edge's table as (parent, child); the scope may name the child first.

    Attributes
    ----------
    node
        The node, or the child of the edge.
    edge
        Whether the scope is an edge.
    turned
        Whether the scope names the child first.
    shape
        The shape of the tree's table: ``(L_node,)``, or ``(L_parent, L_child)``.
    """

    node: int
    edge: bool
    turned: bool
    shape: tuple[int, ...]

    def turn(self, table: Any) -> Any:
        """The scope's table as the tree keeps it, and the other way round: the last two axes swapped if `turned`."""
        if not self.turned:
            return table
        return table.T if sparse.issparse(table) else np.swapaxes(table, -1, -2)

    def to_tree(self, flat: NDArray[Any]) -> NDArray[Any]:
        """Flat tables in the scope's order (…, size) as flat tables in the tree's order."""
        return self._turned(flat, self.shape[::-1])

    def to_scope(self, flat: NDArray[Any]) -> NDArray[Any]:
        """The inverse of `to_tree`."""
        return self._turned(flat, self.shape)

    def _turned(self, flat: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        if not self.turned:
            return flat
        return np.swapaxes(flat.reshape(*flat.shape[:-1], *shape), -1, -2).reshape(flat.shape)


@dataclass(frozen=True, eq=False)
class RootedTree:
    """A root law and one transition matrix per edge. A chain is the tree in which every node has one child.

    Attributes
    ----------
    variables
        Names, root first; every node comes after its parent.
    parent
        Index of every node's parent; −1 for the root, which is node 0.
    initial
        pi, the law of the root, shape ``(L_root,)``.
    transitions
        ``transitions[v][i, j] = P(x_v = j | x_parent(v) = i)``, dense or csr; ``None`` for the root. Equal
        steps of a homogeneous chain are one and the same array.
    phi
        Dispersion of every node's step: ``phi[v][i]`` multiplies the covariance of the moves out of state i of
        v's parent into v, ``phi[0]``, of shape ``(1,)``, that of the root. None is 1 everywhere: independent individuals.
    """

    variables: tuple[Hashable, ...]
    parent: NDArray[np.intp]
    initial: NDArray[np.float64]
    transitions: tuple[Matrix, ...]
    phi: tuple[NDArray[np.float64], ...] | None = None
    device: Device | None = None
    """Where initial law and transitions are, if they are not NumPy's."""
    home: RootedTree | None = None
    """Of a tree on a device: the one of NumPy's arrays that was put there."""

    def on(self, device: Device) -> RootedTree:
        """The same tree with its law on a device; equal steps stay one matrix."""
        placed = {id(m): device.put(m) for m in self.transitions[1:]}
        steps = (None, *(placed[id(m)] for m in self.transitions[1:]))
        return RootedTree(
            self.variables, self.parent, device.put(self.initial), steps, self.phi, device, self
        )

    def with_law(self, initial: NDArray[np.float64], transitions: Sequence[Matrix]) -> RootedTree:
        """The same tree with another law of the individual, its dispersion kept."""
        return RootedTree(
            self.variables, self.parent, initial, tuple(transitions), self.phi, self.device, self.home
        )

    @cached_property
    def undispersed(self) -> RootedTree:
        """The same law with independent individuals."""
        return RootedTree(self.variables, self.parent, self.initial, self.transitions)

    @cached_property
    def common_phi(self) -> float | None:
        """The factor, where root and steps all have the same (1 without dispersion); None where they differ."""
        if self.phi is None:
            return 1.0
        first = float(self.phi[0][0])
        return first if all((f == first).all() for f in self.phi) else None

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of states of every node."""
        return (
            len(self.initial),
            *(matrix.shape[1] for matrix in self.transitions[1:]),
        )

    @cached_property
    def parents(self) -> tuple[int, ...]:
        """`parent` as Python integers, which the passes index with."""
        return tuple(int(u) for u in self.parent)

    @cached_property
    def is_sparse(self) -> tuple[bool, ...]:
        """Whether each transition matrix is sparse."""
        return tuple(issparse(matrix) for matrix in self.transitions)

    @cached_property
    def is_chain(self) -> bool:
        """Whether every node is the child of the one before it."""
        return self.parents == tuple(range(-1, len(self.parents) - 1))

    @cached_property
    def packed(self) -> Packed | None:
        """Distinct transitions and which of them each node has, for the compiled passes; None unless nodes are equal and dense."""
        size = self.sizes[0]
        if len(set(self.sizes)) > 1 or not 1 < size <= LARGEST_PACKED:
            return None
        if any(not isinstance(m, np.ndarray) for m in self.transitions[1:]):
            return None
        place: dict[int, int] = {}
        which = [0] + [place.setdefault(id(m), len(place)) for m in self.transitions[1:]]
        if len(place) * size * size > MOST_PACKED:
            return None
        distinct = np.empty((len(place), size, size))
        for v in range(1, len(which)):
            distinct[which[v]] = self.transitions[v]
        return distinct, np.array(which, dtype=np.intp)

    @cached_property
    def moves(self) -> Moves:
        """All transitions end to end, where all are sparse."""
        return Moves.of(self.transitions)

    @cached_property
    def index(self) -> dict[Hashable, int]:
        """The index of every variable."""
        return {v: k for k, v in enumerate(self.variables)}

    @cached_property
    def edge_of(self) -> dict[tuple[Hashable, ...], int]:
        """``{(parent, child): index of the child}``."""
        return {
            (self.variables[self.parents[k]], self.variables[k]): k for k in range(1, len(self.variables))
        }

    def find(self, scope: Sequence[Hashable]) -> Place | None:
        """Where a variable ``(v,)`` or an edge ``(u, v)``, in either order, lies; None for any other scope."""
        names = tuple(scope)
        if len(names) == 1 and names[0] in self.index:
            node = self.index[names[0]]
            return Place(node, edge=False, turned=False, shape=(self.sizes[node],))
        turned = names not in self.edge_of
        node = self.edge_of.get(names[::-1] if turned else names, 0)
        if node == 0:
            return None
        return Place(node, edge=True, turned=turned, shape=(self.sizes[self.parents[node]], self.sizes[node]))

    def place(self, scope: Sequence[Hashable]) -> Place:
        """As `find`; `ModelError` for a scope that is neither."""
        found = self.find(scope)
        if found is None:
            raise ModelError(
                f"{tuple(scope)!r} is neither a variable nor an edge of the tree: give (v,) for a variable, or "
                "(parent, child) for an edge"
            )
        return found

    def path_to_root(self, node: int) -> list[int]:
        """The indices from `node` up to the root, both included."""
        path = [node]
        while self.parents[path[-1]] >= 0:
            path.append(self.parents[path[-1]])
        return path

    @cached_property
    def junction_tree(self) -> JunctionTree:
        """One clique (parent, child) per edge, joined through the parent; one clique for a single node."""
        sizes = dict(zip(self.variables, self.sizes, strict=True))
        if len(self.variables) == 1:
            return JunctionTree(sizes, (self.variables,), ())
        cliques = tuple(
            (self.variables[self.parents[k]], self.variables[k]) for k in range(1, len(self.variables))
        )
        edges = []
        for k in range(2, len(self.variables)):
            above = self.parents[k]
            # Clique k − 1 holds (parent of k, k); a child of the root joins the first such clique.
            edges.append((max(above - 1, 0), k - 1, (self.variables[above],)))
        return JunctionTree(sizes, cliques, tuple(edges))
