"""Belief propagation on a rooted tree: two passes, O(non-zeros) each.

With node potentials g_v and edge potentials g_e (both optional), K_v = P_v exp g_e and u the parent of v,

    up:    w_v(j) = exp g_v(j) · prod_{children c} m_c(j),   m_v(i) = sum_j K_v(i, j) w_v(j)
    down:  mu_r(i) ∝ pi(i) w_r(i),                           mu_v(j) = w_v(j) sum_i K_v(i, j) mu_u(i) / m_v(i)
    tilt:  P'_v(i, j) = K_v(i, j) w_v(j) / m_v(i)

Messages stay in the linear domain, scaled when they get small, because that is one matrix–vector product per
edge; where an entry gets so small that digits would be lost, everything is done again in log space. Both
are exact with −inf.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from headcount._compile import worth
from headcount._device import host, issparse, namespace, on_host, row_of_entries
from headcount.errors import ModelError
from headcount.individual._rooted_tree import Matrix, Packed, RootedTree

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


class _UnderflowError(Exception):
    """The linear domain cannot hold these messages."""


def node_marginals(tree: RootedTree) -> tuple[NDArray[np.float64], ...]:
    """mu_v = P_vᵀ mu_u, from the root down."""
    if isinstance(tree.transitions, ScaledSteps):
        return tuple(tree.transitions.law.marginals)
    found = [tree.initial]
    for v in range(1, len(tree.parents)):
        matrix, above = tree.transitions[v], found[tree.parents[v]]
        found.append(matrix.T @ above if tree.is_sparse[v] else above @ matrix)
    return tuple(found)


def node_beliefs(
    tree: RootedTree, potentials: Potentials = None, *, edge_potentials: Sequence[Matrix | None] | None = None
) -> tuple[float, Sequence[Vector] | NDArray[np.float64]]:
    """A(theta + g) − A(theta) = log E exp(g), and the node marginals of the tilted law (one array where nodes are equal).

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
    if tree.phi is not None:
        return _dispersed(node_beliefs, _node_beliefs_log, tree, potentials, edge_potentials)
    fast = _compiled(tree, potentials, edge_potentials)
    if fast is not None:
        from headcount.individual._compiled_passes import beliefs_compiled

        log_partition, (steps, which), w, m = fast
        made = np.empty_like(w)
        beliefs_compiled(tree.parent, tree.initial, steps, which, w, m, made)
        return log_partition, made
    try:
        log_scale, weights, messages, kernels = _collect(tree, potentials, edge_potentials)
    except _UnderflowError:
        log_partition, found = _node_beliefs_log(tree.home or tree, potentials, edge_potentials)
        xp = namespace(tree.initial)
        return log_partition, [xp.asarray(belief) for belief in found]
    belief = tree.initial * weights[0]
    total = belief.sum()
    beliefs = [belief / total]
    parents, is_sparse = tree.parents, tree.is_sparse
    for v in range(1, len(parents)):
        flow = _ratio(beliefs[parents[v]], messages[v])
        beliefs.append(weights[v] * (kernels[v].T @ flow if is_sparse[v] else flow @ kernels[v]))
    return log_scale + math.log(total), beliefs


def tilted(
    tree: RootedTree, potentials: Potentials = None, *, edge_potentials: Sequence[Matrix | None] | None = None
) -> tuple[float, Vector, list[Matrix]]:
    """A(theta + g) − A(theta), and the initial law and transitions of the tilted tree.

    The row of a state from which the potentials forbid every continuation is kept as it was: no one is ever
    there, and rows still sum to one. Parameters and errors as for `node_beliefs`.
    """
    if tree.phi is not None:
        return _dispersed(tilted, _tilted_log, tree, potentials, edge_potentials)
    fast = _compiled(tree, potentials, edge_potentials)
    if fast is not None:
        from headcount.individual._compiled_passes import tilted_compiled

        log_partition, (steps, which), w, m = fast
        first = tree.initial * w[0]
        new = np.empty((*w.shape, w.shape[1]))
        tilted_compiled(steps, which, w, m, new)
        return log_partition, first / first.sum(), [None, *new[1:]]
    try:
        log_scale, weights, messages, kernels = _collect(tree, potentials, edge_potentials)
    except _UnderflowError:
        return _tilted_log_there(tree, potentials, edge_potentials)
    belief = tree.initial * weights[0]
    total = belief.sum()
    transitions: list[Matrix] = [None]
    for v in range(1, len(tree.parents)):
        inverse = _ratio(np.ones_like(messages[v]), messages[v])
        transitions.append(
            _keep_dead_rows(scaled(kernels[v], inverse, weights[v]), tree.transitions[v], messages[v] == 0.0)
        )
    return log_scale + math.log(total), belief / total, transitions


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
    """

    tree: RootedTree
    initial: Vector
    kernels: Sequence[Matrix]
    rows: Sequence[Vector]
    columns: Sequence[Vector]
    marginals: Sequence[Vector]

    @classmethod
    def of(cls, tree: RootedTree) -> FactoredTree:
        """A tree as it is."""
        xp = namespace(tree.initial)
        ones = {n: xp.ones(n) for n in {*tree.sizes}}
        rows = [tree.initial[:0], *(ones[tree.sizes[u]] for u in tree.parents[1:])]
        columns = [ones[n] for n in tree.sizes]
        return cls(tree, tree.initial, tree.transitions, rows, columns, node_marginals(tree))

    def rooted(self) -> RootedTree:
        """The tilted tree, whose transitions are made one at a time, when they are asked for."""
        made = self.tree.with_law(self.initial, ())
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
        return FactoredTree(tree, host(self.initial), kernels, rows, columns, marginals)


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

    A state from which the potentials forbid every continuation has a row of zeros: no one is ever there.
    """
    c = tree.common_phi
    if c is not None:
        try:
            log_scale, weights, messages, kernels = _collect(
                tree, _times(potentials, c), _times(edge_potentials, c)
            )
        except _UnderflowError:
            pass
        else:
            belief = tree.initial * weights[0]
            total = belief.sum()
            initial = belief / total
            beliefs, rows = [initial], [initial[:0]]
            for v in range(1, len(tree.parents)):
                rows.append(_ratio(np.ones_like(messages[v]), messages[v]))
                flow = beliefs[tree.parents[v]] * rows[v]
                beliefs.append(weights[v] * (kernels[v].T @ flow))
            made = FactoredTree(tree, initial, kernels, rows, weights, beliefs)
            return (log_scale + math.log(total)) / c, made
    gain, first, transitions = tilted(tree, potentials, edge_potentials=edge_potentials)
    return gain, FactoredTree.of(tree.with_law(first, transitions))


def _dispersed(
    fast: Callable[..., Any],
    in_logs: Callable[..., Any],
    tree: RootedTree,
    potentials: Potentials,
    edge_potentials: Sequence[Matrix | None] | None,
) -> Any:
    """A pass over a tree with dispersion.

    A factor c that root and steps share needs no pass of its own: the gain per individual is (A(theta + c g) − A(theta)) / c.
    """
    c = tree.common_phi
    if c is None:
        return in_logs(tree, potentials, edge_potentials)
    gain, *rest = fast(tree.undispersed, _times(potentials, c), edge_potentials=_times(edge_potentials, c))
    return (gain / c, *rest)


def _times(potentials: Any, c: float) -> Any:
    if potentials is None or c == 1.0:
        return potentials
    if isinstance(potentials, np.ndarray):
        return c * potentials
    return [None if g is None else c * g for g in potentials]


def _compiled(
    tree: RootedTree, potentials: Potentials, edge_potentials: Sequence[Matrix | None] | None
) -> tuple[float, Packed, Vector, Vector] | None:
    """The upward pass by the compiled kernel, where it serves: log partition, packed transitions, weights, messages."""
    if edge_potentials is not None or not isinstance(potentials, np.ndarray) or tree.packed is None:
        return None
    from headcount.individual._compiled_passes import collect_compiled

    if not worth(collect_compiled, NUMPY_SECONDS * len(potentials)):
        return None
    weights, messages = np.empty_like(potentials), np.empty_like(potentials)
    held, log_partition = collect_compiled(
        tree.parent, tree.initial, *tree.packed, potentials, weights, messages
    )
    return (log_partition, tree.packed, weights, messages) if held else None


def _collect(
    tree: RootedTree, potentials: Potentials, edge_potentials: Sequence[Matrix | None] | None
) -> tuple[float, list[Vector], list[Vector], Sequence[Matrix]]:
    """The upward pass in the linear domain: log scale, and w_v, m_v and P exp(g_e) up to that scale."""
    parents, initial = tree.parents, tree.initial
    kernels, log_scale = _kernels(tree, edge_potentials)
    weights, shift = _node_weights(tree, potentials)
    log_scale += shift
    messages: list[Vector] = [initial] * len(parents)
    for v in range(len(parents) - 1, 0, -1):
        u = parents[v]
        messages[v] = message = kernels[v] @ weights[v]
        product = weights[u] * message
        if product.min() < _RESCALE:  # rare, so that an ordinary edge costs a product and no more
            log_scale += _rescale(product, weights[u], message, kernels[v], weights[v])
        weights[u] = product
    if not (initial * weights[0]).sum() > SMALL:
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


def _ratio(a: Vector, b: Vector) -> Vector:
    """A / b with 0/0 = 0."""
    if b.min() > 0.0:
        return a / b
    held = b > 0.0
    return np.where(held, a / np.where(held, b, 1.0), 0.0)


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
) -> tuple[float, Vector, list[Matrix]]:
    log_weights, log_messages, log_terms = _collect_log(tree, potentials, edge_potentials)
    phi = 1.0 if tree.phi is None else float(tree.phi[0][0])
    with np.errstate(divide="ignore"):
        belief = np.log(tree.initial) + phi * log_weights[0]
    top = belief.max()
    if top == -math.inf:
        raise ModelError(
            "the potentials forbid every configuration (−inf everywhere), so no law is left: relax them"
        )
    log_partition = float(top + math.log(np.exp(belief - top).sum()))
    transitions: list[Matrix] = [None]
    for v in range(1, len(tree.parents)):
        matrix, dead = tree.transitions[v], np.isneginf(log_messages[v])
        total = log_messages[v] if tree.phi is None else tree.phi[v] * log_messages[v]
        values = np.exp(log_terms[v] - _by_row(matrix, _finite(total)))
        transitions.append(_keep_dead_rows(_like(matrix, values), matrix, dead))
    return log_partition / phi, np.exp(belief - log_partition), transitions


def _tilted_log_there(
    tree: RootedTree, potentials: Potentials, edge_potentials: Sequence[Matrix | None] | None
) -> tuple[float, Vector, list[Matrix]]:
    """As `_tilted_log`; of a tree on a device it is done at home, and the law put back there."""
    if tree.home is None or tree.device is None:
        return _tilted_log(tree, potentials, edge_potentials)
    gain, initial, transitions = _tilted_log(tree.home, potentials, edge_potentials)
    made = tree.home.with_law(initial, transitions).on(tree.device)
    return gain, made.initial, list(made.transitions)


def _node_beliefs_log(
    tree: RootedTree, potentials: Potentials, edge_potentials: Sequence[Matrix | None] | None
) -> tuple[float, list[Vector]]:
    log_partition, initial, transitions = _tilted_log(tree, potentials, edge_potentials)
    beliefs = [initial]
    for v in range(1, len(tree.parents)):
        matrix, above = transitions[v], beliefs[tree.parents[v]]
        beliefs.append(matrix.T @ above if tree.is_sparse[v] else above @ matrix)
    return log_partition, beliefs
