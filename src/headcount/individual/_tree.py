"""`Tree`: a root law and a transition matrix for every other variable."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, final

import numpy as np

from headcount.checks import brief, label
from headcount.errors import ModelError, raise_all
from headcount.individual._discrete import named_states
from headcount.individual._model import Variable
from headcount.individual._rooted_model import RootedModel
from headcount.individual._rooted_tree import Matrix, RootedTree
from headcount.individual._validate import (
    as_matrix,
    frozen,
    law_problems,
    matrix_problems,
    shape_problems,
    unit_rows,
)
from headcount.labels import shown

Edges = Mapping[Variable, tuple[Variable, Any]]
States = dict[Variable, tuple[Hashable, ...]]


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


def _labelled(sizes: Mapping[Variable, int], order: Sequence[Variable], states: Any) -> States:
    """The labels of every variable in order: those given, else 0, 1, ... ."""
    if states is not None and not isinstance(states, Mapping):
        raise ModelError(f"states is {brief(states)}: give {{variable: labels}}")
    given = dict(states or {})
    raise_all(
        f"states names {v!r}, which is not in the tree: it has {shown(order)}"
        for v in given
        if v not in sizes
    )
    return named_states({v: given.get(v, int(sizes[v])) for v in order})


def _checked_edges(edges: Any) -> Edges:
    """The edges as given, if they are ``{child: (parent, matrix)}``."""
    if not isinstance(edges, Mapping):
        raise ModelError(f"edges is {brief(edges)}: give {{child: (parent, matrix)}}")
    raise_all(
        f"edges[{child!r}] is {brief(edge)}: give (parent, matrix)"
        for child, edge in edges.items()
        if not isinstance(edge, tuple) or len(edge) != 2 or not isinstance(edge[0], Hashable)
    )
    return edges


def _topological(edges: Edges, root: Variable | None) -> tuple[Variable, ...]:
    """All variables with the root first and parents before children."""
    root = None if root is None else label(root, "root")
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
    raise_all([f"{lost!r} are not reached from the root {tops[0]!r}: the edges have a cycle"] if lost else [])
    return tuple(order)
