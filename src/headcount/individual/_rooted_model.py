"""What chains and trees share: marginals, samples and tilts of a rooted tree of transition matrices."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
from scipy import sparse

from headcount import memory
from headcount._types import Index
from headcount.checks import generator
from headcount.individual._discrete import DiscreteModel
from headcount.individual._junction_tree import JunctionTree
from headcount.individual._model import Array, Model, Scope, Variable, draw, draw_given, sample_size
from headcount.individual._rooted_tree import Matrix, RootedTree
from headcount.individual._tree_passes import node_marginals, tilted
from headcount.individual._validate import checked_potentials
from headcount.tables import dense

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
        """Log pi and log P; A(theta) = 0."""
        return log_factors(self._tree)

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
        return sample(self._tree, size, rng)

    @cached_property
    def _node_marginals(self) -> tuple[Array, ...]:
        return node_marginals(self._tree)

    @cached_property
    def _general(self) -> DiscreteModel:
        return DiscreteModel.from_model(self)


def pair_marginal(tree: RootedTree, nodes: Sequence[Array], a: int, b: int) -> Array:
    """P(x_a = i, x_b = j) = sum_k mu_w(k) M_a(k, i) M_b(k, j), w the common ancestor, M products of P."""
    if tree.parents[b] == a:  # an edge needs no way up, which is long in a chain
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


def log_factors(tree: RootedTree) -> tuple[tuple[Scope, Array], ...]:
    """(root,): log pi, and (parent, child): log P, so that A(theta) = 0."""
    tables = (tree.sizes[tree.parents[v]] * tree.sizes[v] for v in range(1, len(tree.parents)))
    memory.require(8 * sum(tables), "the factors as tables", remedy="use the transitions themselves")
    with np.errstate(divide="ignore"):
        factors: list[tuple[Scope, Array]] = [((tree.variables[0],), np.log(tree.initial))]
        for edge, v in tree.edge_of.items():
            factors.append((edge, np.log(dense(tree.transitions[v]))))
    return tuple(factors)


def sample(tree: RootedTree, size: int, rng: np.random.Generator | int) -> Index:
    """Draw individuals from the root down; a column per node of the tree."""
    size, rng = sample_size(size, len(tree.parents)), generator(rng)
    drawn = np.empty((size, len(tree.parents)), dtype=np.intp)
    drawn[:, 0] = draw(tree.initial, rng.random(size))
    for v in range(1, len(tree.parents)):
        law = partial(_row, tree.transitions[v])
        drawn[:, v] = draw_given(law, drawn[:, tree.parents[v]], rng.random(size))
    return drawn


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
