"""What chains and trees share: everything that follows from a rooted tree of transition matrices."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from headcount.individual import _tree_law
from headcount.individual._discrete import DiscreteModel
from headcount.individual._junction_tree import JunctionTree
from headcount.individual._model import Model, Scope, Table, Variable
from headcount.individual._rooted_tree import RootedTree


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
    def initial(self) -> Table:
        """pi, the law of the root."""
        return self._tree.initial

    @property
    def factors(self) -> tuple[tuple[Scope, Table], ...]:
        """Log pi and log P; A(theta) = 0."""
        return _tree_law.log_factors(self._tree)

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

    def marginal(self, scope: Sequence[Variable]) -> Table:
        """P(x_A); one or two variables by matrix products, more by the junction tree."""
        names = self.scope(scope)
        if len(names) == 0:
            return np.ones(())
        index = self._tree.index
        if len(names) == 1:
            return self._node_marginals[index[names[0]]].copy()
        if len(names) == 2:
            return _tree_law.pair_marginal(self._tree, self._node_marginals, index[names[0]], index[names[1]])
        return self._general.marginal(names)

    def tilt(self, potentials: Mapping[Scope, Any]) -> tuple[Model, float]:
        """P' ∝ p exp(sum g): of the same class when every g sits on a node or an edge, a discrete model otherwise."""
        nodes, edges, fits = _tree_law.split_potentials(self._tree, potentials)
        if not fits:
            return self._general.tilt(potentials)
        tree, change = _tree_law.tilt_tree(self._tree, nodes, edges)
        return type(self).from_rooted(tree, self._states), change

    def sample(self, size: int, *, rng: np.random.Generator | int) -> NDArray[np.intp]:
        """Draw individuals from the root down: ``(size, len(variables))`` state indices."""
        return _tree_law.sample(self._tree, size, rng)

    @cached_property
    def _node_marginals(self) -> tuple[Table, ...]:
        return _tree_law.node_marginals(self._tree)

    @cached_property
    def _general(self) -> DiscreteModel:
        return DiscreteModel.from_model(self)
