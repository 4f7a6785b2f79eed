"""Other people's models as factors, and pairwise forests as rooted trees.

Conditional tables, networkx graphs of factors, pgmpy models: each becomes states and ``(scope, log table)``
pairs.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.errors import raise_all
from headcount.individual._rooted_tree import RootedTree
from headcount.individual._validate import FILE_ROUNDING, ROW_TOLERANCE, row_problems, unit_rows

if TYPE_CHECKING:
    from headcount.individual._model import Model, Variable

States = dict[Hashable, tuple[Hashable, ...]]
Factors = list[tuple[tuple[Hashable, ...], Any]]


def factors_from_cpts(
    states: Mapping[Variable, Sequence[Hashable]],
    cpts: Mapping[Variable, tuple[Sequence[Variable], Any]],
    *,
    rounding: float = ROW_TOLERANCE,
) -> Factors:
    """Theta = log P(x_child | x_parents) for every ``cpts[child] = (parents, P[parents..., child])``."""
    problems: list[str] = []
    factors: Factors = []
    for child, (parents, values) in cpts.items():
        scope = (*parents, child)
        table = np.asarray(values, dtype=np.float64)
        unknown = [v for v in scope if v not in states]
        problems += [
            f"the table of {child!r} names {v!r}, which has no states: add it to states" for v in unknown
        ]
        if not unknown:
            labels = [states[v] for v in scope]
            wrong = row_problems(table, labels, f"P({child!r} | {tuple(parents)!r})", tolerance=rounding)
            problems += wrong
            if not wrong:
                with np.errstate(divide="ignore"):
                    factors.append((scope, np.log(unit_rows(table))))
    problems += [
        f"{v!r} has no conditional table: give cpts[{v!r}] = ((), law)" for v in states if v not in cpts
    ]
    raise_all(problems)
    return factors


def from_networkx(graph: Any) -> tuple[States, Factors]:
    """States and factors of a networkx graph.

    A node with ``states`` is a variable; anything with ``log_potential`` is a factor: a variable's node (over
    itself), another node or an edge (over its ``scope``; an edge of a directed graph is over (from, to)
    unless it says otherwise).
    """
    states = {v: data["states"] for v, data in graph.nodes(data=True) if "states" in data}
    factors: Factors = []
    problems: list[str] = []
    for v, data in graph.nodes(data=True):
        if v not in states and not {"scope", "log_potential"} <= set(data):
            problems.append(
                f"node {v!r} is neither a variable nor a factor: give it states, or scope and log_potential"
            )
        elif "log_potential" in data:
            scope = tuple(data["scope"]) if "scope" in data else (v,)
            factors.append((scope, data["log_potential"]))
            joined = set(graph.neighbors(v)) if v not in states else set(scope)
            if joined and not joined <= set(scope):
                problems.append(
                    f"factor {v!r} is joined to {joined - set(scope)!r}, not in its scope {scope!r}: make "
                    "them agree"
                )
    for u, v, data in graph.edges(data=True):
        if "log_potential" in data:
            if "scope" not in data and not graph.is_directed():
                problems.append(
                    f"edge {(u, v)!r} has no scope: say which variable is axis 0, scope=({u!r}, {v!r})"
                )
            factors.append((tuple(data.get("scope", (u, v))), data["log_potential"]))
        elif u in states and v in states:
            problems.append(
                f"edge {(u, v)!r} between variables has no log_potential: give one, or leave the edge out"
            )
    raise_all(problems)
    return states, factors


def from_pgmpy(model: Any) -> tuple[States, Factors]:
    """States and factors of a pgmpy Bayesian network (conditional tables) or Markov network (factors)."""
    conditional = getattr(model, "get_cpds", None)
    tables = conditional() if conditional is not None else model.get_factors()
    states: States = {}
    problems: list[str] = []
    for table in tables:
        for v in table.variables:
            labels = tuple(table.state_names[v])
            if states.setdefault(v, labels) != labels:
                problems.append(
                    f"{v!r} has the states {states[v]!r} in one table, {labels!r} in another: make them agree"
                )
    if conditional is not None:
        problems += [
            f"variable {v!r} has no conditional table: add one" for v in model.nodes if v not in states
        ]
    raise_all(problems)
    states = {v: states[v] for v in (*(v for v in model.nodes if v in states), *states)}
    arrays = [(tuple(table.variables), np.asarray(table.values, dtype=np.float64)) for table in tables]
    if conditional is not None:
        cpts = {scope[0]: (scope[1:], np.moveaxis(values, 0, -1)) for scope, values in arrays}
        return states, factors_from_cpts(states, cpts, rounding=FILE_ROUNDING)
    with np.errstate(divide="ignore"):
        return states, [(scope, np.log(values)) for scope, values in arrays]


def tree_from_pairs(model: Model) -> RootedTree:
    """A model whose cliques have one or two variables, rooted at its first variable.

    P(x_v | x_u) = mu_uv / mu_u; from a state no one is ever in, the law of x_v stands in (any law would do).
    """
    near: dict[Variable, list[Variable]] = {v: [] for v in model.variables}
    for clique in model.junction_tree.cliques:
        if len(clique) == 2:
            near[clique[0]].append(clique[1])
            near[clique[1]].append(clique[0])
    order: list[Variable] = []
    parent: list[int] = []
    linked: list[bool] = []
    seen: set[Variable] = set()
    for start in model.variables:
        if start in seen:
            continue
        queue = [(start, 0 if order else -1, False)]
        seen.add(start)
        while queue:
            v, above, joined = queue.pop(0)
            order.append(v)
            parent.append(above)
            linked.append(joined)
            here = len(order) - 1
            for w in near[v]:
                if w not in seen:
                    seen.add(w)
                    queue.append((w, here, True))
    transitions: list[np.ndarray | None] = [None]
    for v, above, joined in zip(order[1:], parent[1:], linked[1:], strict=True):
        u = order[above]
        law = model.marginal((v,))
        if not joined:
            transitions.append(np.tile(law, (model.size((u,))[0], 1)))
            continue
        pair = model.marginal((u, v))
        total = pair.sum(axis=1, keepdims=True)
        transitions.append(np.where(total > 0, pair / np.where(total > 0, total, 1.0), law))
    return RootedTree(
        tuple(order), np.array(parent, dtype=np.intp), model.marginal((order[0],)), tuple(transitions)
    )
