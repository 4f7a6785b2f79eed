"""`Tree`: a root law and a transition matrix for every other variable."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from headcount.individual import _tree_law
from headcount.individual._discrete import DiscreteModel, named_states
from headcount.individual._errors import raise_all
from headcount.individual._junction_tree import JunctionTree
from headcount.individual._model import Model, Scope, Table, Variable
from headcount.individual._rooted_tree import Matrix, RootedTree
from headcount.individual._validate import as_matrix, frozen, law_problems, matrix_problems, unit_rows


@final
class Tree(Model):
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
        root, order = _topological(edges, root)
        law = frozen(initial)
        matrices = {child: as_matrix(matrix) for child, (_, matrix) in edges.items()}
        sizes = {root: law.size, **{child: matrix.shape[-1] for child, matrix in matrices.items()}}
        given = dict(states or {})
        raise_all(
            f"states names {v!r}, which is not in the tree: it has {list(order)!r}"
            for v in given
            if v not in sizes
        )
        self._states = named_states({v: given.get(v, int(sizes[v])) for v in order})
        problems = law_problems(law, self._states[root], f"the law of {root!r}")
        for child in order[1:]:
            above = edges[child][0]
            what = f"the matrix {above!r} -> {child!r}"
            problems += matrix_problems(matrices[child], self._states[above], self._states[child], what)
        raise_all(problems)
        place = {v: k for k, v in enumerate(order)}
        parent = np.array([-1, *(place[edges[child][0]] for child in order[1:])], dtype=np.intp)
        transitions = (None, *(unit_rows(matrices[child]) for child in order[1:]))
        self._tree = RootedTree(order, parent, unit_rows(law), transitions)

    @classmethod
    def from_rooted(
        cls, tree: RootedTree, states: Mapping[Variable, Sequence[Hashable]] | None = None
    ) -> Tree:
        """A tree model on a rooted tree that is known to be right (nothing is checked or copied)."""
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
        """The names of the variables, root first, parents before children."""
        return self._tree.variables

    @property
    def states(self) -> Mapping[Variable, tuple[Hashable, ...]]:
        """The labels of every variable's states."""
        return self._states

    @property
    def initial(self) -> Table:
        """The law of the root."""
        return self._tree.initial

    @property
    def edges(self) -> dict[Variable, tuple[Variable, Matrix]]:
        """``{child: (parent, matrix)}``."""
        return {
            child: (parent, self._tree.transitions[k]) for (parent, child), k in self._tree.edge_of.items()
        }

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
        """One clique (parent, child) per edge."""
        return self._tree.junction_tree

    def rooted(self) -> RootedTree:
        """The tree itself."""
        return self._tree

    def marginal(self, scope: Sequence[Variable]) -> Table:
        """P(x_A); one or two variables by the tree's own passes, more by the junction tree."""
        names = self.scope(scope)
        found = tree_marginal(self._tree, self._node_marginals, names)
        return found if found is not None else self._general.marginal(names)

    def tilt(self, potentials: Mapping[Scope, Any]) -> tuple[Model, float]:
        """P' ∝ p exp(sum g): a tree when every g sits on a node or an edge, a discrete model otherwise."""
        nodes, edges, fits = _tree_law.split_potentials(self._tree, potentials)
        if not fits:
            return self._general.tilt(potentials)
        tree, change = _tree_law.tilt_tree(self._tree, nodes, edges)
        return Tree.from_rooted(tree, self._states), change

    def sample(self, size: int, *, rng: np.random.Generator | int) -> NDArray[np.intp]:
        """Draw individuals from the root down."""
        return _tree_law.sample(self._tree, size, rng)

    @cached_property
    def _node_marginals(self) -> tuple[Table, ...]:
        return _tree_law.node_marginals(self._tree)

    @cached_property
    def _general(self) -> DiscreteModel:
        return DiscreteModel.from_model(self)


def tree_marginal(tree: RootedTree, nodes: Sequence[Table], scope: Scope) -> Table | None:
    """mu_A for up to two variables; None for more."""
    if len(scope) == 0:
        return np.ones(())
    if len(scope) == 1:
        return nodes[tree.index[scope[0]]].copy()
    if len(scope) == 2:
        return _tree_law.pair_marginal(tree, nodes, tree.index[scope[0]], tree.index[scope[1]])
    return None


def _topological(
    edges: Mapping[Variable, tuple[Variable, Any]], root: Variable | None
) -> tuple[Variable, tuple[Variable, ...]]:
    """The root, and all variables with parents before children."""
    problems = [
        f"edges[{c!r}] is {e!r}: give (parent, matrix)"
        for c, e in edges.items()
        if not isinstance(e, tuple) or len(e) != 2
    ]
    raise_all(problems)
    tops = list(dict.fromkeys(parent for parent, _ in edges.values() if parent not in edges))
    if not edges:
        return (0 if root is None else root), ((0 if root is None else root),)
    if root is not None and root not in tops:
        problems.append(f"the root {root!r} is not a parent without a parent: those are {tops!r}")
    if len(tops) != 1:
        problems.append(
            f"a tree has one root, the edges have {len(tops)} ({tops!r}): give every other variable a "
            "parent, and no cycle"
        )
    raise_all(problems)
    children: dict[Variable, list[Variable]] = {}
    for child, (parent, _) in edges.items():
        children.setdefault(parent, []).append(child)
    order = [tops[0]]
    for v in order:
        order += children.get(v, [])
    lost = [v for v in edges if v not in set(order)]
    raise_all([f"{lost!r} are not reached from the root {tops[0]!r}: the edges have a cycle"] if lost else [])
    return tops[0], tuple(order)
