"""The rooted tree that the fast paths read, p(x) = pi(x_r) prod_v P_v(x_parent(v), x_v), and belief propagation on it.

Two passes, O(non-zeros) each. With node potentials g_v and edge potentials g_e (both optional), K_v = P_v exp g_e and u the parent of v,

    up:    w_v(j) = exp g_v(j) · prod_{children c} m_c(j),   m_v(i) = sum_j K_v(i, j) w_v(j)
    down:  mu_r(i) ∝ pi(i) w_r(i),                           mu_v(j) = w_v(j) sum_i K_v(i, j) mu_u(i) / m_v(i)
    tilt:  P'_v(i, j) = K_v(i, j) w_v(j) / m_v(i)

Messages stay in the linear domain, scaled when they get small, because that is one matrix–vector product per
edge; where an entry gets so small that digits would be lost, everything is done again in log space. Both
are exact with −inf.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from headcount._compile import bare, bare_sums, worth
from headcount._device import Device, host, issparse, namespace, on_host, row_of_entries
from headcount.errors import ModelError
from headcount.individual.junction_tree import JunctionTree

Matrix = Any
"""A dense ``(L_u, L_v)`` float array or a `scipy.sparse.csr_array` of that shape (None at the root)."""
Packed = tuple[NDArray[np.float64], NDArray[np.intp]]
"""Distinct transitions ``(U, L, L)``, and the one that leads to each node ``(nodes,)``."""
Vector = NDArray[np.float64]
Potentials = Sequence[Vector | None] | NDArray[np.float64] | None

SMALL = 1e-290
"""A weight below this has lost digits, or loses them in the next product: doubles lose digits below 2.2e-308."""
DEEPEST = 600.0
"""Potentials this far (in nats) below a node's largest are left to the log-space pass: exp(−600) = 3e-261, of which one more factor
may fall below `SMALL`."""
_RESCALE = 1e-100
"""A weight below this makes the pass test for lost digits and scale to a maximum of one; between 1e-290 and 1, its value only
decides how often."""
NUMPY_SECONDS = 2e-5
"""Time of both passes through one small node in NumPy."""
LARGEST_PACKED = 256
"""Cells up to which the compiled passes are used; above, the Python calls cost little beside the matrix products."""
MOST_PACKED = 8_000_000
"""Entries that a packed copy of the transitions may have: 64 MB, kept beside the matrices themselves."""


class PackedMoves(NamedTuple):
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
    def of(cls, matrices: Sequence[Matrix]) -> PackedMoves:
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
    numbers
        Where the root's states are groups of individuals, their numbers, independent of each other: ``numbers.mean`` individuals are
        in every group, with ``numbers.variance``, and ``initial`` has the shares of the means. A tilt does not move individuals between
        groups; it tilts their numbers (`numbers.tilted`, gain `numbers.gain`). None: one known number of individuals with the law
        `initial` at the root.
    """

    variables: tuple[Hashable, ...]
    parent: NDArray[np.intp]
    initial: NDArray[np.float64]
    transitions: tuple[Matrix, ...]
    phi: tuple[NDArray[np.float64], ...] | None = None
    numbers: Any = None
    device: Device | None = None
    """Where initial law and transitions are, if they are not NumPy's."""
    home: RootedTree | None = None
    """Of a tree on a device: the one of NumPy's arrays that was put there."""

    @classmethod
    def chain(
        cls, times: Sequence[Hashable], initial: NDArray[np.float64], steps: Sequence[Matrix]
    ) -> RootedTree:
        """The tree in which every node is the child of the one before it."""
        parent = np.arange(-1, len(times) - 1, dtype=np.intp)
        return cls(tuple(times), parent, initial, (None, *steps))

    def on(self, device: Device) -> RootedTree:
        """The same tree with its law on a device; equal steps stay one matrix."""
        placed = {id(m): device.put(m) for m in self.transitions[1:]}
        steps = (None, *(placed[id(m)] for m in self.transitions[1:]))
        put = device.put(self.initial)
        return replace(self, initial=put, transitions=steps, device=device, home=self)

    def with_law(
        self, initial: NDArray[np.float64], transitions: Sequence[Matrix], numbers: Any = None
    ) -> RootedTree:
        """The same tree with another law of the individual (and of their numbers), its dispersion kept."""
        kept = self.numbers if numbers is None else numbers
        return replace(self, initial=initial, transitions=tuple(transitions), numbers=kept)

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
    def moves(self) -> PackedMoves:
        """All transitions end to end, where all are sparse."""
        return PackedMoves.of(self.transitions)

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


class _UnderflowError(Exception):
    """The linear domain cannot hold these messages."""


def node_marginals(tree: RootedTree) -> tuple[NDArray[np.float64], ...]:
    """mu_v = P_vᵀ mu_u, from the root down."""
    if isinstance(tree.transitions, ScaledSteps):
        return tuple(tree.transitions.law.marginals)
    found = [tree.initial]
    different = {id(step): step for step in tree.transitions[1:]}  # most chains repeat one matrix
    turned = {key: step.T for key, step in different.items()}
    for v in range(1, len(tree.parents)):
        found.append(turned[id(tree.transitions[v])] @ found[tree.parents[v]])
    return tuple(found)


def node_beliefs(
    tree: RootedTree, potentials: Potentials = None, *, edge_potentials: Sequence[Matrix | None] | None = None
) -> tuple[float, Sequence[Vector] | NDArray[np.float64]]:
    """A(theta + g) − A(theta) = log E exp(g), and the node marginals of the tilted law (one array where nodes are equal).

    With `RootedTree.numbers` the gain is that of all individuals together, and the marginals are those of one of them, drawn at random.

    Parameters
    ----------
    tree
        The law that is tilted.
    potentials
        g_v, one vector per node in the tree's order (``None``: zero); −inf forbids a state.
    edge_potentials
        g_e of the edge above each node, shape of its transition matrix (``None``: zero); entry 0, the root's,
        is ignored.

    Raises
    ------
    ModelError
        If the potentials forbid every configuration.
    """
    fast = _compiled(tree, potentials, edge_potentials)
    if fast is not None:
        gain, (steps, which), w, m = fast
        made = np.empty_like(w)
        beliefs_compiled(tree.parent, tree.initial, steps, which, w, m, made)
        return gain, made
    gain, law = factored(tree, potentials, edge_potentials=edge_potentials)
    return gain, law.marginals


def tilted(
    tree: RootedTree, potentials: Potentials = None, *, edge_potentials: Sequence[Matrix | None] | None = None
) -> tuple[float, RootedTree]:
    """A(theta + g) − A(theta), and the tilted tree.

    The row of a state from which the potentials forbid every continuation is kept as it was: no one is ever
    there, and rows still sum to one. Parameters and errors as for `node_beliefs`.
    """
    fast = _compiled(tree, potentials, edge_potentials)
    if fast is not None:
        gain, (steps, which), w, m = fast
        first = tree.initial * w[0]
        new = np.empty((*w.shape, w.shape[1]))
        tilted_compiled(steps, which, w, m, new)
        return gain, tree.with_law(first / first.sum(), [None, *new[1:]])
    gain, law = factored(tree, potentials, edge_potentials=edge_potentials)
    return gain, tree.with_law(law.initial, list(ScaledSteps(law)), law.numbers)


def _at_root(tree: RootedTree, log_weights: Vector) -> tuple[float, Vector, Any]:
    """Gain, law of the root and tilted numbers, where the root's states are groups with these log weights."""
    numbers = tree.numbers.tilted(log_weights)
    expected = numbers.mean
    total = float(expected.sum())
    if not math.isfinite(numbers.gain) or not total < math.inf:
        if np.isneginf(numbers.gain):
            raise ModelError(
                "the potentials forbid every configuration of a group that has individuals, so no law is left: relax them"
            )
        raise FloatingPointError("the tilts have no law: the number of individuals would be infinite")
    shares = expected / total if total > 0 else np.full(len(expected), 1.0 / len(expected))
    return numbers.gain, shares, numbers


@dataclass(frozen=True, eq=False)
class FactoredTree:
    """A tilted tree whose transitions stay as factors, P_v = diag(rows_v) K_v diag(columns_v).

    A homogeneous chain keeps its one matrix whatever the tilts are, and a tilt costs O(cells) memory instead of O(moves).

    Attributes
    ----------
    tree
        The tree before tilting: its variables, parents and dispersion are those of the tilted one.
    initial
        Law of the root.
    kernels, rows, columns
        K_v (None at the root), and the two scalings.
    marginals
        mu_v.
    numbers
        As of `RootedTree`, tilted.
    """

    tree: RootedTree
    initial: Vector
    kernels: Sequence[Matrix]
    rows: Sequence[Vector]
    columns: Sequence[Vector]
    marginals: Sequence[Vector]
    numbers: Any = None

    @classmethod
    def of(cls, tree: RootedTree) -> FactoredTree:
        """A tree as it is."""
        xp = namespace(tree.initial)
        ones = {n: xp.ones(n) for n in {*tree.sizes}}
        rows = [tree.initial[:0], *(ones[tree.sizes[u]] for u in tree.parents[1:])]
        columns = [ones[n] for n in tree.sizes]
        return cls(tree, tree.initial, tree.transitions, rows, columns, node_marginals(tree), tree.numbers)

    def rooted(self) -> RootedTree:
        """The tilted tree, whose transitions are made one at a time, when they are asked for."""
        made = self.tree.with_law(self.initial, (), self.numbers)
        held = {"transitions": ScaledSteps(self), "sizes": self.tree.sizes, "is_sparse": self.tree.is_sparse}
        for name, value in held.items():
            object.__setattr__(made, name, value)
        return made

    def at_home(self) -> FactoredTree:
        """The same law in NumPy's arrays; kernels that are still the tree's own are the ones that it was made from."""
        tree = self.tree.home or self.tree
        mine = {id(there): here for there, here in zip(self.tree.transitions, tree.transitions, strict=True)}
        kernels = [None, *(mine[id(k)] if id(k) in mine else host(k) for k in self.kernels[1:])]
        rows, columns, marginals = (
            [host(x) for x in part] for part in (self.rows, self.columns, self.marginals)
        )
        return FactoredTree(tree, host(self.initial), kernels, rows, columns, marginals, self.numbers)


@dataclass(frozen=True, eq=False)
class ScaledSteps(Sequence[Any]):
    """Transitions of a tilted tree in factors. Large maps have no room for one matrix per step."""

    law: FactoredTree

    def __len__(self) -> int:
        return len(self.law.kernels)

    def __getitem__(self, v: Any) -> Any:
        if isinstance(v, slice):
            return [self[k] for k in range(*v.indices(len(self)))]
        matrix = self.law.kernels[v]
        if matrix is None:
            return None
        rows = self.law.rows[v]
        return _keep_dead_rows(
            scaled(matrix, rows, self.law.columns[v]), self.law.tree.transitions[v], rows == 0.0
        )

    def table(self, v: int) -> Matrix:
        """The joint law of v's parent and v, in one pass over the matrix."""
        above = self.law.marginals[self.law.tree.parents[v]]
        return scaled(self.law.kernels[v], above * self.law.rows[v], self.law.columns[v])


def factored(
    tree: RootedTree, potentials: Potentials = None, *, edge_potentials: Sequence[Matrix | None] | None = None
) -> tuple[float, FactoredTree]:
    """A(theta + g) − A(theta), and the tilted tree in factors; parameters and errors as for `node_beliefs`.

    A state from which the potentials forbid every continuation has a row of zeros: no one is ever there. A dispersion c that root and
    steps share needs no pass of its own: the gain per individual is (A(theta + c g) − A(theta)) / c.
    """
    try:
        log_scale, weights, messages, kernels = _collect(tree, potentials, edge_potentials)
    except _UnderflowError:
        home = tree.home or tree
        gain, made = _tilted_log(home, potentials, edge_potentials)
        return gain, FactoredTree.of(made if tree.device is None else made.on(tree.device))
    phi, numbers = tree.common_phi or 1.0, None
    if tree.numbers is None:
        belief = tree.initial * weights[0]
        total = belief.sum()
        gain, first = (log_scale + math.log(total)) / phi, belief / total
    else:
        gain, first, numbers = _at_root(tree, (log_scale + np.log(weights[0])) / phi)
    beliefs, rows = [first], [first[:0]]
    for v in range(1, len(tree.parents)):
        rows.append(_inverse(messages[v]))
        flow = beliefs[tree.parents[v]] * rows[v]
        beliefs.append(weights[v] * (kernels[v].T @ flow))
    return gain, FactoredTree(tree, first, kernels, rows, weights, beliefs, numbers)


def _times(potentials: Any, c: float) -> Any:
    if potentials is None or c == 1.0:
        return potentials
    if isinstance(potentials, np.ndarray):
        return c * potentials
    return [None if g is None else c * g for g in potentials]


def _compiled(
    tree: RootedTree, potentials: Potentials, edge_potentials: Sequence[Matrix | None] | None
) -> tuple[float, Packed, Vector, Vector] | None:
    """The upward pass by the compiled kernel, where it serves: gain, packed transitions, weights, messages."""
    c = tree.common_phi
    if (
        edge_potentials is not None
        or not isinstance(potentials, np.ndarray)
        or tree.packed is None
        or tree.numbers is not None
        or c is None
    ):
        return None
    if not worth(collect_compiled, NUMPY_SECONDS * len(potentials)):
        return None
    weights, messages = np.empty_like(potentials), np.empty_like(potentials)
    held, gain = collect_compiled(
        tree.parent, tree.initial, *tree.packed, _times(potentials, c), weights, messages
    )
    return (gain / c, tree.packed, weights, messages) if held else None


def _collect(
    tree: RootedTree, potentials: Potentials, edge_potentials: Sequence[Matrix | None] | None
) -> tuple[float, list[Vector], list[Vector], Sequence[Matrix]]:
    """The upward pass in the linear domain: log scale, and w_v, m_v and P exp(g_e) up to that scale."""
    parents, initial, c = tree.parents, tree.initial, tree.common_phi
    if c is None:  # factors that differ between steps have a pass in log space only
        raise _UnderflowError
    kernels, log_scale = _kernels(tree, _times(edge_potentials, c))
    weights, shift = _node_weights(tree, _times(potentials, c))
    log_scale += shift
    messages: list[Vector] = [initial] * len(parents)
    for v in range(len(parents) - 1, 0, -1):
        u = parents[v]
        messages[v] = message = kernels[v] @ weights[v]
        product = weights[u] * message
        if product.min() < _RESCALE:  # rare, so that an ordinary edge costs a product and no more
            log_scale += _rescale(product, weights[u], message, kernels[v], weights[v])
        weights[u] = product
    smallest = (initial * weights[0]).sum() if tree.numbers is None else weights[0].min()
    if not smallest > SMALL:
        raise _UnderflowError
    return log_scale, weights, messages, kernels


def _rescale(product: Vector, before: Vector, message: Vector, kernel: Matrix, below: Vector) -> float:
    """Scale `product` = before · message to a maximum of one, in place; the log of what was taken out.

    An entry may be an exact zero because nothing is possible there; anything else that small has lost digits.
    """
    top = float(product.max())
    if not top > SMALL:
        raise _UnderflowError
    suspect = (message < SMALL) | ((product < SMALL) & (before > 0.0))
    if suspect.any() and np.any(
        ((kernel > 0).astype(np.float64) @ (below > 0.0).astype(np.float64))[suspect] > 0.0
    ):
        raise _UnderflowError
    product /= top
    return math.log(top)


def _node_weights(tree: RootedTree, potentials: Potentials) -> tuple[list[Vector], float]:
    """exp(g_v − max g_v) for every node, and the sum of the maxima."""
    xp = namespace(tree.initial)
    if potentials is None:
        return [xp.ones(size) for size in tree.sizes], 0.0
    if isinstance(potentials, np.ndarray) and potentials.ndim == 2:
        top = potentials.max(axis=1, keepdims=True)
        return list(xp.asarray(_centred_weights(potentials, top))), float(top.sum())
    weights, shift = [], 0.0
    for size, g in zip(tree.sizes, potentials, strict=True):
        if g is None:
            weights.append(xp.ones(size))
        else:
            largest = g.max()
            weights.append(xp.asarray(_centred_weights(g, largest)))
            shift += float(largest)
    return weights, shift


def _centred_weights(potentials: Vector, top: Vector) -> Vector:
    """exp(g − top); −inf gives 0, anything else so small that digits would be lost raises `_UnderflowError`."""
    if not np.isfinite(top).all():
        raise _UnderflowError
    centred = potentials - top
    if centred.min() < -DEEPEST and np.any((centred < -DEEPEST) & (centred > -math.inf)):
        raise _UnderflowError
    return np.exp(centred)


def _kernels(
    tree: RootedTree, edge_potentials: Sequence[Matrix | None] | None
) -> tuple[Sequence[Matrix], float]:
    """P_v exp(g_e − max g_e) for every edge, and the sum of the maxima."""
    if edge_potentials is None:
        return tree.transitions, 0.0
    kernels: list[Matrix] = list(tree.transitions)
    shift = 0.0
    for v in range(1, len(kernels)):
        if edge_potentials[v] is None:
            continue
        values, g = _aligned(kernels[v], edge_potentials[v])
        g = namespace(values).asarray(g)
        top = float(g.max())
        if not math.isfinite(top):
            raise _UnderflowError
        scaled = values * np.exp(g - top)
        if np.any((scaled < SMALL) & (values > 0) & (g > -math.inf)):
            raise _UnderflowError
        kernels[v] = _like(kernels[v], scaled)
        shift += top
    return kernels, shift


def _aligned(matrix: Matrix, potential: Matrix) -> tuple[Vector, Vector]:
    """The values of a matrix (its stored entries when sparse) and the potential at the same places."""
    if not issparse(matrix):
        return matrix, (potential.toarray() if issparse(potential) else potential)
    where = host(row_of_entries(matrix)), host(matrix.indices)
    return matrix.data, np.asarray(potential[where]).ravel()


def _like(matrix: Matrix, values: Vector) -> Matrix:
    """`values` in the place of the entries of `matrix`."""
    if not issparse(matrix):
        return values
    return type(matrix)((values, matrix.indices, matrix.indptr), shape=matrix.shape)


def _inverse(b: Vector) -> Vector:
    """1 / b, and 0 where b = 0."""
    if b.min() > 0.0:
        return 1.0 / b
    held = b > 0.0
    return np.where(held, 1.0 / np.where(held, b, 1.0), 0.0)


def scaled(matrix: Matrix, rows: Vector, columns: Vector) -> Matrix:
    """diag(rows) M diag(columns)."""
    if issparse(matrix):
        return _like(matrix, rows[row_of_entries(matrix)] * matrix.data * columns[matrix.indices])
    if not on_host(matrix):
        return rows[:, None] * matrix * columns
    made = np.multiply.outer(rows, columns)
    made *= matrix
    return made


def _keep_dead_rows(matrix: Matrix, old: Matrix, dead: NDArray[np.bool_]) -> Matrix:
    """`matrix` with the rows in `dead` taken from `old`."""
    if not dead.any():
        return matrix
    if not issparse(matrix):
        return np.where(dead[:, None], old, matrix)
    return _like(matrix, np.where(dead[row_of_entries(matrix)], old.data, matrix.data))


# The same in log space. With dispersion phi_i of the row i of a step, the message of a party that moves together is
# b_i = phi_i⁻¹ log sum_j p_ij exp(phi_i (g_ij + w_j)), and the tilted row p'_ij is proportional to the terms of that sum.


def _collect_log(
    tree: RootedTree, potentials: Potentials, edge_potentials: Sequence[Matrix | None] | None
) -> tuple[list[Vector], list[Vector], list[Matrix]]:
    """Log w_v, b_v = log m_v, and the log of the terms of m_v (`_like` the transitions)."""
    given = [None] * len(tree.parents) if potentials is None else list(potentials)
    log_weights = [
        np.zeros(n) if g is None else np.array(g, dtype=float) for n, g in zip(tree.sizes, given, strict=True)
    ]
    log_messages = [log_weights[0]] * len(log_weights)
    log_terms: list[Matrix] = [None] * len(log_weights)
    for v in range(len(log_weights) - 1, 0, -1):
        potential = None if edge_potentials is None else edge_potentials[v]
        phi = None if tree.phi is None else tree.phi[v]
        log_terms[v] = _log_terms(tree.transitions[v], potential, phi, log_weights[v])
        total = _log_row_sums(tree.transitions[v], log_terms[v])
        log_messages[v] = total if phi is None else total / phi
        log_weights[tree.parents[v]] = log_weights[tree.parents[v]] + log_messages[v]
    return log_weights, log_messages, log_terms


def _log_terms(matrix: Matrix, potential: Matrix | None, phi: Vector | None, log_weights: Vector) -> Vector:
    """log p_ij + phi_i (g_ij + w_j) beside the entries of `matrix`."""
    stored = sparse.issparse(matrix)
    ahead = log_weights[matrix.indices] if stored else log_weights
    if potential is None:
        values = matrix.data if stored else matrix
    else:
        values, g = _aligned(matrix, potential)
        ahead = g + ahead
    with np.errstate(divide="ignore"):
        return np.log(values) + (ahead if phi is None else _by_row(matrix, phi) * ahead)


def _by_row(matrix: Matrix, values: Vector) -> Vector:
    """One value per row, beside the entries of `matrix`."""
    return np.repeat(values, np.diff(matrix.indptr)) if sparse.issparse(matrix) else values[:, None]


def _log_row_sums(matrix: Matrix, terms: Vector) -> Vector:
    """Log sum_j exp(terms(i, j)) for every row i."""
    if not sparse.issparse(matrix):
        top = _finite(terms.max(axis=1))
        with np.errstate(divide="ignore"):
            return np.log(np.exp(terms - top[:, None]).sum(axis=1)) + top
    starts = matrix.indptr[:-1]  # rows of a stochastic matrix are never empty, which reduceat relies on
    top = _finite(np.maximum.reduceat(terms, starts))
    with np.errstate(divide="ignore"):
        return np.log(np.add.reduceat(np.exp(terms - np.repeat(top, np.diff(matrix.indptr))), starts)) + top


def _finite(top: Vector) -> Vector:
    return np.where(np.isneginf(top), 0.0, top)


def _tilted_log(
    tree: RootedTree, potentials: Potentials, edge_potentials: Sequence[Matrix | None] | None
) -> tuple[float, RootedTree]:
    log_weights, log_messages, log_terms = _collect_log(tree, potentials, edge_potentials)
    numbers = None
    if tree.numbers is not None:
        gain, first, numbers = _at_root(tree, log_weights[0])
    else:
        phi = 1.0 if tree.phi is None else float(tree.phi[0][0])
        with np.errstate(divide="ignore"):
            belief = np.log(tree.initial) + phi * log_weights[0]
        top = belief.max()
        if top == -math.inf:
            raise ModelError(
                "the potentials forbid every configuration (−inf everywhere), so no law is left: relax them"
            )
        log_partition = float(top + math.log(np.exp(belief - top).sum()))
        gain, first = log_partition / phi, np.exp(belief - log_partition)
    transitions: list[Matrix] = [None]
    for v in range(1, len(tree.parents)):
        matrix, dead = tree.transitions[v], np.isneginf(log_messages[v])
        total = log_messages[v] if tree.phi is None else tree.phi[v] * log_messages[v]
        values = np.exp(log_terms[v] - _by_row(matrix, _finite(total)))
        transitions.append(_keep_dead_rows(_like(matrix, values), matrix, dead))
    return gain, tree.with_law(first, transitions, numbers)


# The same passes, compiled, for trees of equal dense nodes. At L = 16 a matrix–vector product is faster than the Python call that asks
# for it, and at L = 144 not much slower, so the whole pass is one compiled function. It returns False on underflow and on forbidden
# states, which only the passes above handle. Transitions come as the distinct ones, (U, L, L), and which of them leads to each node, (T,).
# Plain loops over arrays that the caller provides: NumPy's functions take numba several times longer to compile, and BLAS is no faster
# at these sizes.


@bare_sums
def _product(matrix, vector, out):  # type: ignore[no-untyped-def]
    """out = matrix @ vector; additions may be reordered, so that they use the vector unit."""
    for i in range(matrix.shape[0]):
        total = 0.0
        for j in range(matrix.shape[1]):
            total += matrix[i, j] * vector[j]
        out[i] = total


@bare
def _ends(values):  # type: ignore[no-untyped-def]
    """The smallest and the largest value; a NaN is taken for either, so that comparisons with it fail."""
    low = top = values[0]
    for j in range(values.shape[0]):
        value = values[j]
        if not value >= low:
            low = value
        if not value <= top:
            top = value
    return low, top


@bare
def _exponentials(potentials, weights):  # type: ignore[no-untyped-def]
    """Fills ``weights`` with exp(potentials), every row divided by its largest; whether that held, and the log of what was divided by."""
    log_scale = 0.0
    for v in range(potentials.shape[0]):
        low, top = _ends(potentials[v])
        if not top < np.inf or not low >= top - DEEPEST:
            return False, 0.0
        log_scale += top
        for j in range(potentials.shape[1]):
            weights[v, j] = np.exp(potentials[v, j] - top)
    return True, log_scale


@bare
def collect_compiled(parent, initial, transitions, which, potentials, weights, messages):  # type: ignore[no-untyped-def]
    """The upward pass: fills ``weights`` and ``messages`` (T, L); returns whether it held, and the log scale.

    Comparisons are written so that they fail where a number is NaN.
    """
    count, size = potentials.shape
    held, log_scale = _exponentials(potentials, weights)
    if not held:
        return False, 0.0
    for v in range(count - 1, 0, -1):
        message = messages[v]
        _product(transitions[which[v]], weights[v], message)
        smallest, largest = _ends(message)
        if not smallest >= SMALL * largest or not largest > 0:
            return False, 0.0
        log_scale += np.log(largest)
        u, least = parent[v], 1.0
        for i in range(size):
            message[i] /= largest
            weights[v, i] /= largest
            weights[u, i] *= message[i]
            if not weights[u, i] >= least:
                least = weights[u, i]
        if not least >= SMALL:
            return False, 0.0
    total = 0.0
    for j in range(size):
        total += initial[j] * weights[0, j]
    if not total > SMALL:
        return False, 0.0
    return True, log_scale + np.log(total)


@bare
def beliefs_compiled(parent, initial, transitions, which, weights, messages, beliefs):  # type: ignore[no-untyped-def]
    """The downward pass: fills in node marginals (T, L)."""
    count, size = weights.shape
    total = 0.0
    for j in range(size):
        beliefs[0, j] = initial[j] * weights[0, j]
        total += beliefs[0, j]
    for j in range(size):
        beliefs[0, j] /= total
    for v in range(1, count):
        u, step, own = parent[v], transitions[which[v]], beliefs[v]
        for j in range(size):
            own[j] = 0.0
        for i in range(size):
            flow = beliefs[u, i] / messages[v, i]
            if flow > 0:
                for j in range(size):
                    own[j] += flow * step[i, j]
        for j in range(size):
            own[j] *= weights[v, j]


@bare
def tilted_compiled(transitions, which, weights, messages, steps):  # type: ignore[no-untyped-def]
    """Fills in the transitions (T, L, L) of the tilted tree; that of the root is left as it is."""
    for v in range(1, weights.shape[0]):
        step = transitions[which[v]]
        for i in range(weights.shape[1]):
            row = 1.0 / messages[v, i]
            for j in range(weights.shape[1]):
                steps[v, i, j] = step[i, j] * (row * weights[v, j])
