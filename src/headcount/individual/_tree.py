"""`Tree`: a root law and a transition matrix for every other variable."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, final

import numpy as np

from headcount.errors import raise_all
from headcount.individual._discrete import named_states
from headcount.individual._model import Variable
from headcount.individual._rooted_model import RootedModel
from headcount.individual._rooted_tree import Matrix, RootedTree
from headcount.individual._validate import as_matrix, frozen, law_problems, matrix_problems, unit_rows


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
        root, order = _topological(edges, root)
        law = frozen(initial, "initial")
        matrices = {
            child: as_matrix(matrix, f"the matrix {above!r} -> {child!r}")
            for child, (above, matrix) in edges.items()
        }
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

    @property
    def edges(self) -> dict[Variable, tuple[Variable, Matrix]]:
        """``{child: (parent, matrix)}``."""
        return {
            child: (parent, self._tree.transitions[k]) for (parent, child), k in self._tree.edge_of.items()
        }


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
