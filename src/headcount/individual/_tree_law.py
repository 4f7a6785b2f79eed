"""Marginals, samples and tilts of a rooted tree: the formulas that `MarkovChain` and `Tree` share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from headcount.individual._errors import ModelError, raise_all
from headcount.individual._model import checked_scope
from headcount.individual._rooted_tree import Matrix, RootedTree, dense
from headcount.individual._tree_passes import tilted

Table = NDArray[np.float64]
Scope = tuple[Hashable, ...]


def node_marginals(tree: RootedTree) -> tuple[Table, ...]:
    """mu_v = P_vᵀ mu_u, from the root down."""
    found = [tree.initial]
    for v in range(1, len(tree.parents)):
        matrix, above = tree.transitions[v], found[tree.parents[v]]
        found.append(matrix.T @ above if tree.is_sparse[v] else above @ matrix)
    return tuple(found)


def pair_marginal(tree: RootedTree, nodes: Sequence[Table], a: int, b: int) -> Table:
    """P(x_a = i, x_b = j) = sum_k mu_w(k) M_a(k, i) M_b(k, j), w the common ancestor, M products of P."""
    up_a, up_b = tree.path_to_root(a), tree.path_to_root(b)
    common = next(node for node in up_a if node in set(up_b))
    from_a = _product_down(tree, up_a[: up_a.index(common)])
    from_b = _product_down(tree, up_b[: up_b.index(common)])
    law = nodes[common]
    if from_a is None and from_b is None:
        return np.diag(law)
    if from_a is None:
        return law[:, None] * dense(from_b)
    if from_b is None:
        return np.ascontiguousarray((law[:, None] * dense(from_a)).T)
    return (law[:, None] * dense(from_a)).T @ dense(from_b)


def _product_down(tree: RootedTree, path: Sequence[int]) -> Matrix | None:
    """The transition matrix from above `path` (child first) down to its first node; None for no step."""
    product: Matrix | None = None
    for node in path:
        step = tree.transitions[node]
        product = step if product is None else step @ product
    return product


def log_factors(tree: RootedTree) -> tuple[tuple[Scope, Table], ...]:
    """(root,): log pi, and (parent, child): log P, so that A(theta) = 0."""
    with np.errstate(divide="ignore"):
        factors: list[tuple[Scope, Table]] = [((tree.variables[0],), np.log(tree.initial))]
        for edge, v in tree.edge_of.items():
            factors.append((edge, np.log(dense(tree.transitions[v]))))
    return tuple(factors)


def sample(tree: RootedTree, size: int, rng: np.random.Generator | int) -> NDArray[np.intp]:
    """Draw individuals from the root down; a column per node of the tree."""
    rng = np.random.default_rng(rng)
    drawn = np.empty((size, len(tree.parents)), dtype=np.intp)
    drawn[:, 0] = draw(tree.initial, rng.random(size))
    for v in range(1, len(tree.parents)):
        law = partial(_row, tree.transitions[v])
        drawn[:, v] = draw_given(law, drawn[:, tree.parents[v]], rng.random(size))
    return drawn


def draw_given(law: Callable[[int], Table], given: NDArray[np.intp], uniform: Table) -> NDArray[np.intp]:
    """For each individual, a state from ``law(its given state)``; each law is asked for once."""
    drawn = np.empty(len(given), dtype=np.intp)
    order = np.argsort(given, kind="stable")
    present, starts, counts = np.unique(given[order], return_index=True, return_counts=True)
    for state, start, count in zip(present, starts, counts, strict=True):
        rows = order[start : start + count]
        drawn[rows] = draw(law(int(state)), uniform[rows])
    return drawn


def _row(matrix: Matrix, i: int) -> Table:
    return matrix[[i]].toarray()[0] if sparse.issparse(matrix) else matrix[i]


def draw(law: Table, uniform: Table) -> NDArray[np.intp]:
    """Inverse distribution function; a state of probability zero is never drawn."""
    steps = np.cumsum(law)
    # uniform < 1, and its product with the total is less than the total in floating point too.
    return np.searchsorted(steps, uniform * steps[-1], side="right")


def split_potentials(
    tree: RootedTree, potentials: Mapping[Scope, Any]
) -> tuple[list[Table | None], list[Matrix | None] | None, bool]:
    """Node and edge potentials (None: no edges) in the tree's order; True when they all fit on it."""
    shapes = checked_potentials(potentials, dict(zip(tree.variables, tree.sizes, strict=True)))
    nodes: list[Table | None] = [None] * len(tree.parents)
    edges: list[Matrix | None] = [None] * len(tree.parents)
    constant, fits = 0.0, True
    for scope, g in shapes.items():
        if len(scope) == 0:
            constant += float(g)
        elif len(scope) == 1:
            k = tree.index[scope[0]]
            before = nodes[k]
            nodes[k] = g if before is None else before + g
        elif len(scope) == 2 and (scope in tree.edge_of or scope[::-1] in tree.edge_of):
            k = tree.edge_of.get((scope[0], scope[1]), -1)
            g = g if k >= 0 else g.T
            k = k if k >= 0 else tree.edge_of[scope[1], scope[0]]
            edges[k] = g if edges[k] is None else edges[k] + g
        else:
            fits = False
    if constant:
        nodes[0] = constant + (np.zeros(tree.sizes[0]) if nodes[0] is None else nodes[0])
    return nodes, (edges if any(g is not None for g in edges) else None), fits


def checked_potentials(potentials: Mapping[Scope, Any], sizes: Mapping[Hashable, int]) -> dict[Scope, Any]:
    """Log tables as float arrays (sparse kept) of the right shape, no NaN or +inf; all problems at once."""
    made: dict[Scope, Any] = {}
    problems: list[str] = []
    for given, g in potentials.items():
        try:
            scope = checked_scope(given, sizes)
        except ModelError as error:
            problems += error.problems
            continue
        table = g if sparse.issparse(g) else np.asarray(g, dtype=np.float64)
        problems += log_table_problems(table, scope, tuple(sizes[v] for v in scope))
        made[scope] = table
    raise_all(problems)
    return made


def log_table_problems(table: Any, scope: Scope, shape: tuple[int, ...]) -> list[str]:
    """Every way in which a table is not a log potential over `scope`."""
    if table.shape != shape:
        return [
            f"the log table over {scope!r} has the shape {table.shape}, expected {shape}: one axis per "
            "variable, in that order"
        ]
    values = table.data if sparse.issparse(table) else table
    bad = np.isnan(values) | np.isposinf(values)
    if not bad.any():
        return []
    first = tuple(int(k) for k in np.argwhere(bad)[0])
    return [
        f"the log table over {scope!r} has {int(bad.sum())} entries that are NaN or +inf, the first at "
        f"{first}: "
        "give finite log potentials, or −inf where a configuration is impossible"
    ]


def tilt_tree(
    tree: RootedTree, nodes: Sequence[Table | None], edges: Sequence[Matrix | None] | None
) -> tuple[RootedTree, float]:
    """The tilted tree and A(theta + g) − A(theta)."""
    change, initial, transitions = tilted(tree, nodes, edge_potentials=edges)
    return RootedTree(tree.variables, tree.parent, initial, tuple(transitions)), change
