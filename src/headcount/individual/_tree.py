"""Models on a rooted tree of transition matrices: what chains and trees share, and `Tree`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Self, final

import numpy as np
from scipy import sparse

from headcount import memory
from headcount._types import Array, Index, Scope, Variable
from headcount.checks import brief, generator, instance, label
from headcount.errors import ModelError, raise_all, shown
from headcount.individual._discrete import DiscreteModel, named_states
from headcount.individual._junction_tree import JunctionTree
from headcount.individual._model import Model, draw, draw_given, sample_size
from headcount.individual._rooted_tree import Matrix, RootedTree
from headcount.individual._tree_passes import ScaledSteps, node_marginals, tilted
from headcount.individual._validate import (
    as_matrix,
    checked_potentials,
    frozen,
    law_problems,
    matrix_problems,
    shape_problems,
    unit_rows,
)
from headcount.tables import dense

Edges = Mapping[Variable, tuple[Variable, Any]]
_PAIR_COPIES = 2
"""Tables of the result's size that exist at once while a joint table is made: the dense transition and the result."""


class RootedModel(Model):
    """p(x) = pi(x_r) prod_v P_v(x_parent(v), x_v). Abstract: `MarkovChain` and `Tree` say how it is given."""

    _states: dict[Variable, tuple[Hashable, ...]]
    _tree: RootedTree

    @classmethod
    def from_rooted(
        cls, tree: RootedTree, states: Mapping[Variable, Sequence[Hashable]] | None = None
    ) -> Self:
        """A model on a rooted tree that is known to be right (nothing is checked or copied)."""
        made = cls.__new__(cls)
        labels = states or {}
        made._states = {
            v: tuple(labels[v]) if v in labels else tuple(range(n))
            for v, n in zip(tree.variables, tree.sizes, strict=True)
        }
        made._tree = tree
        return made

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The names of the variables, root first, parents before children; for a chain, the time labels."""
        return self._tree.variables

    @property
    def states(self) -> Mapping[Variable, tuple[Hashable, ...]]:
        """The labels of every variable's states."""
        return self._states

    @property
    def initial(self) -> Array:
        """pi, the law of the root."""
        return self._tree.initial

    @property
    def factors(self) -> tuple[tuple[Scope, Array], ...]:
        """(root,): log pi, and (parent, child): log P, so that A(theta) = 0."""
        tree = self._tree
        tables = (tree.sizes[tree.parents[v]] * tree.sizes[v] for v in range(1, len(tree.parents)))
        memory.require(8 * sum(tables), "the factors as tables", remedy="use the transitions themselves")
        with np.errstate(divide="ignore"):
            edges = ((edge, np.log(dense(tree.transitions[v]))) for edge, v in tree.edge_of.items())
            return ((tree.variables[0],), np.log(tree.initial)), *edges

    @property
    def log_partition(self) -> float:
        """Zero: the factors are conditional probabilities."""
        return 0.0

    @property
    def junction_tree(self) -> JunctionTree:
        """One clique (parent, child) per edge, separators the nodes between them."""
        return self._tree.junction_tree

    def rooted(self) -> RootedTree:
        """The tree of transitions itself."""
        return self._tree

    def marginal(self, scope: Sequence[Variable]) -> Array:
        """P(x_A); one or two variables by matrix products, more by the junction tree."""
        names = self.scope(scope)
        if len(names) == 0:
            return np.ones(())
        index = self._tree.index
        if len(names) == 1:
            return self._node_marginals[index[names[0]]].copy()
        if len(names) == 2:
            memory.require(
                _PAIR_COPIES * 8 * self.domain(names).size,
                f"the joint table of {names[0]!r} and {names[1]!r}",
                remedy="ask for single variables, or sample",
            )
            return pair_marginal(self._tree, self._node_marginals, index[names[0]], index[names[1]])
        return self._general.marginal(names)

    def tilt(self, potentials: Mapping[Scope, Any]) -> tuple[Model, float]:
        """P' ∝ p exp(sum g): of the same class when every g sits on a node or an edge, a discrete model otherwise."""
        split = split_potentials(self._tree, potentials)
        if split is None:
            return self._general.tilt(potentials)
        nodes, edges = split
        change, initial, transitions = tilted(self._tree, nodes, edge_potentials=edges)
        tree = self._tree.with_law(initial, transitions)
        return type(self).from_rooted(tree, self._states), change

    def sample(self, size: int, *, rng: np.random.Generator | int) -> Index:
        """Draw individuals from the root down: ``(size, len(variables))`` state indices."""
        tree, size, rng = self._tree, sample_size(size, len(self.variables)), generator(rng)
        drawn = np.empty((size, len(tree.parents)), dtype=np.intp)
        drawn[:, 0] = draw(tree.initial, rng.random(size))
        for v in range(1, len(tree.parents)):
            law = partial(_row, tree.transitions[v])
            drawn[:, v] = draw_given(law, drawn[:, tree.parents[v]], rng.random(size))
        return drawn

    @cached_property
    def _node_marginals(self) -> tuple[Array, ...]:
        return node_marginals(self._tree)

    @cached_property
    def _general(self) -> DiscreteModel:
        return DiscreteModel.from_model(self)


@final
class Tree(RootedModel):
    """p(x) = pi(x_r) prod_v P_v(x_parent(v), x_v): a law for the root, one matrix for every other variable.

    Parameters
    ----------
    initial
        The law pi of the root.
    edges
        ``{child: (parent, matrix)}``, the matrix dense or sparse with rows for the parent's states; each row
        sums to one.
    root
        The name of the root; needed only when there are no edges (0 if not given).
    states
        ``{variable: labels}`` for the variables that have them; 0, 1, ... for the others.

    Notes
    -----
    `variables` puts the root first and every variable after its parent. A row within 1e-8 of summing to one
    is read as printed decimals and divided by its sum; anything further off is an error.

    Examples
    --------
    >>> noisy, same = [[0.9, 0.1], [0.2, 0.8]], [[1, 0], [0, 1]]
    >>> tree = Tree([0.5, 0.5], {"left": ("top", noisy), "right": ("top", same)})
    >>> tree.variables
    ('top', 'left', 'right')
    >>> tree.marginal(("left", "right"))
    array([[0.45, 0.1 ],
           [0.05, 0.4 ]])
    """

    def __init__(
        self,
        initial: Any,
        edges: Mapping[Variable, tuple[Variable, Any]],
        *,
        root: Variable | None = None,
        states: Mapping[Variable, Sequence[Hashable]] | None = None,
    ) -> None:
        order = _topological(_checked_edges(edges), root)
        root = order[0]
        law = frozen(initial, "initial")
        raise_all(shape_problems(law, 1, "initial", "one probability per state of the root, a 1-D array"))
        names = {child: f"the matrix {above!r} -> {child!r}" for child, (above, _) in edges.items()}
        matrices = {child: as_matrix(matrix, names[child]) for child, (_, matrix) in edges.items()}
        expected = "a matrix, the parent's states by the child's"
        raise_all(wrong for c, m in matrices.items() for wrong in shape_problems(m, 2, names[c], expected))
        sizes = {root: law.size, **{child: matrix.shape[1] for child, matrix in matrices.items()}}
        self._states = _labelled(sizes, order, states)
        problems = law_problems(law, self._states[root], f"the law of {root!r}")
        for child in order[1:]:
            before, after = self._states[edges[child][0]], self._states[child]
            problems += matrix_problems(matrices[child], before, after, names[child])
        raise_all(problems)
        place = {v: k for k, v in enumerate(order)}
        parent = np.array([-1, *(place[edges[child][0]] for child in order[1:])], dtype=np.intp)
        transitions = (None, *(unit_rows(matrices[child]) for child in order[1:]))
        self._tree = RootedTree(order, parent, unit_rows(law), transitions)

    @property
    def edges(self) -> dict[Variable, tuple[Variable, Matrix]]:
        """``{child: (parent, matrix)}``."""
        return {
            child: (parent, self._tree.transitions[k]) for (parent, child), k in self._tree.edge_of.items()
        }


def _labelled(
    sizes: Mapping[Variable, int], order: Sequence[Variable], states: Any
) -> dict[Variable, tuple[Hashable, ...]]:
    """The labels of every variable in order: those given, else 0, 1, ... ."""
    given = {} if states is None else instance(states, Mapping, "states", expected="{variable: labels}")
    raise_all(
        f"states names {v!r}, which is not in the tree: it has {shown(order)}"
        for v in given
        if v not in sizes
    )
    return named_states({v: given.get(v, int(sizes[v])) for v in order})


def _checked_edges(edges: Any) -> Edges:
    """The edges as given, if they are ``{child: (parent, matrix)}``."""
    instance(edges, Mapping, "edges", expected="{child: (parent, matrix)}")
    raise_all(
        f"edges[{child!r}] is {brief(edge)}: give (parent, matrix)"
        for child, edge in edges.items()
        if not isinstance(edge, tuple) or len(edge) != 2 or not isinstance(edge[0], Hashable)
    )
    return edges


def _topological(edges: Edges, root: Variable | None) -> tuple[Variable, ...]:
    """All variables with the root first and parents before children."""
    root = label(root, "root")
    if not edges:
        return (0 if root is None else root,)
    children: dict[Variable, list[Variable]] = {}
    for child, (parent, _) in edges.items():
        children.setdefault(parent, []).append(child)
    tops = [parent for parent in children if parent not in edges]
    if len(tops) != 1 or root not in (None, tops[0]):
        raise ModelError(
            f"a tree has one root, a parent without a parent; the edges have {len(tops)} ({tops!r}) and root is "
            f"{root!r}: give every other variable a parent, and no cycle"
        )
    order = [tops[0]]
    for v in order:
        order += children.get(v, [])
    lost = sorted(set(edges) - set(order), key=repr)
    if lost:
        raise ModelError(f"{lost!r} are not reached from the root {tops[0]!r}: the edges have a cycle")
    return tuple(order)


def pair_marginal(tree: RootedTree, nodes: Sequence[Array], a: int, b: int) -> Array:
    """P(x_a = i, x_b = j) = sum_k mu_w(k) M_a(k, i) M_b(k, j), w the common ancestor, M products of P."""
    if tree.parents[b] == a:  # an edge needs no way up, which is long in a chain
        if isinstance(tree.transitions, ScaledSteps):
            return np.asarray(dense(tree.transitions.table(b)))
        return nodes[a][:, None] * dense(tree.transitions[b])
    up_a, up_b = tree.path_to_root(a), tree.path_to_root(b)
    common = next(node for node in up_a if node in set(up_b))
    from_a = _product_down(tree, up_a[: up_a.index(common)])
    from_b = _product_down(tree, up_b[: up_b.index(common)])
    law = nodes[common]
    if from_a is None:
        return np.diag(law) if from_b is None else law[:, None] * dense(from_b)
    joint = (law[:, None] * dense(from_a)).T
    return np.ascontiguousarray(joint) if from_b is None else joint @ dense(from_b)


def _product_down(tree: RootedTree, path: Sequence[int]) -> Matrix | None:
    """The transition matrix from above `path` (child first) down to its first node; None for no step."""
    product: Matrix | None = None
    for node in path:
        step = tree.transitions[node]
        product = step if product is None else step @ product
    return product


def _row(matrix: Matrix, i: int) -> Array:
    return matrix[[i]].toarray()[0] if sparse.issparse(matrix) else matrix[i]


def split_potentials(
    tree: RootedTree, potentials: Mapping[Scope, Any]
) -> tuple[list[Array | None], list[Matrix | None] | None] | None:
    """Node and edge potentials (None: no edges) in the tree's order; None when one is on neither a node nor an edge."""
    nodes: list[Array | None] = [None] * len(tree.parents)
    edges: list[Matrix | None] = [None] * len(tree.parents)
    sizes = dict(zip(tree.variables, tree.sizes, strict=True))
    for scope, g in checked_potentials(potentials, sizes).items():
        if scope == ():  # a constant, which any node may carry
            place, g = tree.place(tree.variables[:1]), np.full(tree.sizes[0], float(g))
        elif (found := tree.find(scope)) is not None:
            place = found
        else:
            return None
        slots = edges if place.edge else nodes
        before, g = slots[place.node], place.turn(g)
        slots[place.node] = g if before is None else before + g
    return nodes, (edges if any(g is not None for g in edges) else None)
