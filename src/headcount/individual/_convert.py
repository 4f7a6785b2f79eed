"""Other people's models as factors, and pairwise forests as rooted trees.

Conditional tables, networkx graphs of factors, pgmpy models: each becomes states and ``(scope, log table)``
pairs.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.checks import brief, finite_number, is_sequence, mapping, numbers
from headcount.errors import ModelError, raise_all
from headcount.individual._rooted_tree import RootedTree
from headcount.individual._validate import FILE_ROUNDING, ROW_TOLERANCE, row_problems, unit_rows
from headcount.labels import label_tuple

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
    rounding = finite_number(
        rounding, "rounding", least=0.0, expected="how far rows may be from one, 0 or more"
    )
    problems: list[str] = []
    factors: Factors = []
    given = mapping(cpts, "cpts", "{child: (parents, table)}")
    for child, entry in given.items():
        try:
            factors.append(_conditional_factor(states, child, entry, rounding))
        except ModelError as error:
            problems += error.problems
    problems += [
        f"{v!r} has no conditional table: give cpts[{v!r}] = ((), law)" for v in states if v not in given
    ]
    raise_all(problems)
    return factors


def _conditional_factor(
    states: Mapping[Variable, Sequence[Hashable]], child: Variable, entry: Any, rounding: float
) -> tuple[tuple[Variable, ...], Any]:
    """log P(x_child | x_parents) over (parents..., child), from ``(parents, P)``."""
    if not isinstance(entry, (tuple, list)) or len(entry) != 2 or not is_sequence(entry[0]):
        raise ModelError(
            f"cpts[{child!r}] is {brief(entry)}: give (parents, table), ((), law) without parents"
        )
    parents = label_tuple(entry[0], f"the parents of {child!r}")
    scope = (*parents, child)
    what = f"P({child!r} | {parents!r})"
    table = numbers(entry[1], what)
    raise_all(
        f"the table of {child!r} names {v!r}, which has no states: add it to states"
        for v in scope
        if v not in states
    )
    raise_all(row_problems(table, [states[v] for v in scope], what, tolerance=rounding))
    with np.errstate(divide="ignore"):
        return scope, np.log(unit_rows(table))


def from_networkx(graph: Any) -> tuple[States, Factors]:
    """States and factors of a networkx graph.

    A node with ``states`` is a variable; anything with ``log_potential`` is a factor: a variable's node (over
    itself), another node or an edge (over its ``scope``; an edge of a directed graph is over (from, to)
    unless it says otherwise).
    """
    if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed")):
        raise ModelError(f"graph is {brief(graph)}: give a networkx graph")
    states = {v: data["states"] for v, data in graph.nodes(data=True) if "states" in data}
    factors: Factors = []
    problems: list[str] = []
    for v, data in graph.nodes(data=True):
        _add_node(graph, v, data, states, factors, problems)
    for u, v, data in graph.edges(data=True):
        _add_edge(graph, (u, v), data, states, factors, problems)
    raise_all(problems)
    return states, factors


def _add_node(
    graph: Any, v: Hashable, data: Mapping[str, Any], states: States, factors: Factors, problems: list[str]
) -> None:
    """Add a node's factor, or say what is wrong with the node."""
    if "log_potential" not in data:
        if v not in states:
            problems.append(
                f"node {v!r} is neither a variable nor a factor: give it states, or scope and log_potential"
            )
        return
    if v not in states and "scope" not in data:
        problems.append(f"factor {v!r} has no scope: say which variables its table is over, in order")
        return
    scope = tuple(data.get("scope", (v,)))
    factors.append((scope, data["log_potential"]))
    joined = set(graph.neighbors(v)) - set(scope) if v not in states else set()
    if joined:
        problems.append(f"factor {v!r} is joined to {joined!r}, not in its scope {scope!r}: make them agree")


def _add_edge(
    graph: Any,
    edge: tuple[Hashable, Hashable],
    data: Mapping[str, Any],
    states: States,
    factors: Factors,
    problems: list[str],
) -> None:
    """Add an edge's factor, or say what is wrong with the edge."""
    if "log_potential" in data:
        if "scope" not in data and not graph.is_directed():
            problems.append(f"edge {edge!r} has no scope: say which variable is axis 0, scope={edge!r}")
        factors.append((tuple(data.get("scope", edge)), data["log_potential"]))
    elif edge[0] in states and edge[1] in states:
        problems.append(
            f"edge {edge!r} between variables has no log_potential: give one, or leave the edge out"
        )


def from_pgmpy(model: Any) -> tuple[States, Factors]:
    """States and factors of a pgmpy Bayesian network (conditional tables) or Markov network (factors)."""
    if not hasattr(model, "nodes") or not (hasattr(model, "get_cpds") or hasattr(model, "get_factors")):
        raise ModelError(f"model is {brief(model)}: give a pgmpy Bayesian or Markov network")
    conditional = getattr(model, "get_cpds", None)
    tables = conditional() if conditional is not None else model.get_factors()
    found = _states_of_tables(tables)
    absent = [v for v in model.nodes if v not in found]
    if conditional is not None:
        raise_all(f"variable {v!r} has no conditional table: add one" for v in absent)
    order = dict.fromkeys((*model.nodes, *found))
    states = {v: found[v] for v in order if v in found}
    arrays = [(tuple(table.variables), np.asarray(table.values, dtype=np.float64)) for table in tables]
    if conditional is not None:
        # pgmpy keeps the child's axis first, a conditional table here has it last.
        cpts = {scope[0]: (scope[1:], np.moveaxis(values, 0, -1)) for scope, values in arrays}
        return states, factors_from_cpts(states, cpts, rounding=FILE_ROUNDING)
    with np.errstate(divide="ignore"):
        return states, [(scope, np.log(values)) for scope, values in arrays]


def _states_of_tables(tables: Any) -> States:
    """The labels of every variable, on which all tables must agree."""
    states: States = {}
    problems: list[str] = []
    for table in tables:
        for v in table.variables:
            labels = tuple(table.state_names[v])
            if states.setdefault(v, labels) != labels:
                problems.append(
                    f"{v!r} has the states {states[v]!r} in one table, {labels!r} in another: make them agree"
                )
    raise_all(problems)
    return states


def tree_from_pairs(model: Model) -> RootedTree:
    """A model whose cliques have one or two variables, rooted at its first variable.

    P(x_v | x_u) = mu_uv / mu_u; from a state no one is ever in, the law of x_v stands in (any law would do). Parts that are not
    connected hang from the root.
    """
    near: dict[Variable, list[Variable]] = {v: [] for v in model.variables}
    for u, v in (clique for clique in model.junction_tree.cliques if len(clique) == 2):
        near[u].append(v)
        near[v].append(u)
    order: list[Variable] = []
    above: dict[Variable, Variable | None] = {}
    for start in model.variables:
        if start not in above:
            above[start] = None
            order += _walk(start, near, above)
    position: dict[Variable | None, int] = {v: k for k, v in enumerate(order)}
    position[None] = 0  # parts that are not connected hang from the root
    parent = [-1, *(position[above[v]] for v in order[1:])]
    steps = [_transition(model, above[v], order[0], v) for v in order[1:]]
    law = model.marginal((order[0],))
    return RootedTree(tuple(order), np.array(parent, dtype=np.intp), law, (None, *steps))


def _walk(
    start: Variable, near: Mapping[Variable, list[Variable]], above: dict[Variable, Variable | None]
) -> list[Variable]:
    """The variables connected to `start`, nearest first; fills `above` with the neighbour each was reached from."""
    part = [start]
    for v in part:
        for w in near[v]:
            if w not in above:
                above[w] = v
                part.append(w)
    return part


def _transition(model: Model, above: Variable | None, root: Variable, v: Variable) -> np.ndarray:
    """P(x_v | x_above), or equal rows from the root where nothing is above."""
    law = model.marginal((v,))
    if above is None:
        return np.tile(law, (model.size((root,))[0], 1))
    pair = model.marginal((above, v))
    total = pair.sum(axis=1, keepdims=True)
    return np.where(total > 0, pair / np.where(total > 0, total, 1.0), law)
