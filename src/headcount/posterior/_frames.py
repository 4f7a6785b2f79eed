"""The tidy tables of a posterior. Everything that leaves the library is made from them: CSV, NetCDF, pictures, the page."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse

from headcount.individual import MarkovChain
from headcount.places import COORDINATES
from headcount.posterior._beliefs import GaussianBeliefs, listed_mean, sparse_step
from headcount.posterior._posterior import Summary

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from headcount._types import Array, Scope
    from headcount.individual import Model
    from headcount.posterior._posterior import Posterior

SUMMARY = Summary._fields
"""Columns that say what is known of a count, after the columns that say which count it is."""
MC_ERROR = "mc_error"
"""The column after ``sd`` with its Monte-Carlo standard error, where sds come from draws."""


def to_frame(
    posterior: Posterior, what: str = "nodes", *, level: float = 0.9, stored: bool = False
) -> pd.DataFrame:
    """Tidy table: one row per cell and time (``"nodes"``), or per origin, destination and time of departure (``"flows"``).

    A chain's columns are ``time, cell, observed`` or ``time, origin, dest``, then ``mean, median, sd, lower, upper, reliable``;
    any other model has ``variable, state`` and ``variable, state, other, other_state`` (every pair inside a clique).
    ``observed`` is the mean of the readings where an entry was read more than once. Flows that the model forbids have no row.
    Where sds carry Monte-Carlo error (an engine without matrices), ``mc_error`` after ``sd`` is its standard error.
    The level of the interval is in the frame's ``attrs``; so is ``listed``: whether the flows come from a sparse matrix.

    ``stored`` gives labels as a file can hold them (see :func:`label_array`).
    """
    if what not in {"nodes", "flows"}:
        message = f"what must be 'nodes' or 'flows', got {what!r}"
        raise ValueError(message)
    scopes = list(_scopes(posterior.problem.model, what))
    return _frame(posterior, what, scopes, level, stored=stored)


def _frame(
    posterior: Posterior, what: str, scopes: list[Scope], level: float, *, stored: bool
) -> pd.DataFrame:
    """`to_frame` of some of the tables."""
    import pandas as pd

    model = posterior.problem.model
    blocks = [_block(posterior, scope, level) for scope in scopes]
    columns = _labels(model, what, scopes, [block.index for block in blocks], stored=stored)
    if what == "nodes":
        columns["observed"] = np.concatenate([_observed(posterior, scope) for scope in scopes])
    frame = pd.DataFrame(columns | _summary_columns(blocks))
    frame.attrs = {"level": level, "listed": any(block.listed for block in blocks)}
    return frame


def _summary_columns(blocks: Sequence[Block]) -> dict[str, NDArray[Any]]:
    """What is known of the counts of all tables, one below the other; ``mc_error`` only where there is one."""
    columns = {}
    for name in (*SUMMARY[:3], MC_ERROR, *SUMMARY[3:]):
        parts = [block.values[name] for block in blocks if name in block.values]
        if parts or name != MC_ERROR:
            columns[name] = _joined(parts, bool if name == "reliable" else float)
    return columns


def flow_frames(posterior: Posterior, *, level: float = 0.9) -> Iterator[pd.DataFrame]:
    """The table of flows as files hold it, step by step: the whole may not fit in memory."""
    for scope in _scopes(posterior.problem.model, "flows"):
        yield _frame(posterior, "flows", [scope], level, stored=True)


def largest_flows(posterior: Posterior, most: int, *, level: float = 0.9) -> pd.DataFrame:
    """The rows of the table of flows with the largest means, in its order."""
    import pandas as pd

    kept: list[pd.DataFrame] = []
    rows = 0
    for frame in flow_frames(posterior, level=level):
        attrs = frame.attrs
        frame.index += rows
        rows += len(frame)
        kept = [pd.concat([*kept, frame]).nlargest(most, "mean")]
    made = kept[0].sort_index().reset_index(drop=True)
    made.attrs = attrs
    return made


def possible_flows(model: Model) -> int:
    """Rows that the table of flows has at most."""
    tree = model.rooted()
    steps = [] if tree is None or not isinstance(model, MarkovChain) else tree.transitions[1:]
    if any(issparse(step) for step in steps):
        return sum(int(step.nnz if issparse(step) else step.size) for step in steps)
    return sum(model.domain(scope).size for scope in _scopes(model, "flows"))


@dataclass(frozen=True)
class Block:
    """The rows of one table: flat entries, and their summary."""

    index: NDArray[np.intp]
    values: dict[str, NDArray[Any]]
    listed: bool = False


def _block(posterior: Posterior, scope: Scope, level: float) -> Block:
    """All entries of a node's table, the possible ones of a pair's."""
    listed = _sparse_flows(posterior, scope, level)
    if listed is not None:
        return listed
    summary = posterior.summary(scope, level)
    flat = {name: table.ravel() for name, table in summary._asdict().items()}
    error = posterior.beliefs.mc_error(scope)
    if error is not None:
        flat[MC_ERROR] = error.ravel()
    if len(scope) == 1:
        return Block(np.arange(flat["mean"].size), flat)
    index = np.flatnonzero(posterior.problem.model.marginal(scope))
    return Block(index, {name: values[index] for name, values in flat.items()})


def _sparse_flows(posterior: Posterior, scope: Scope, level: float) -> Block | None:
    """The moves that exist, where transitions are sparse and the engine has no spread or lists it by moves; None elsewhere."""
    beliefs = posterior.beliefs
    table = listed_mean(beliefs, scope)
    if table is None:
        return None
    origin = np.repeat(np.arange(table.shape[0]), np.diff(table.indptr))
    index, mean = origin * table.shape[1] + table.indices, table.data
    values: dict[str, NDArray[Any]]
    if isinstance(beliefs, GaussianBeliefs):
        moves, prior = beliefs.field.moves(scope), posterior.problem.model
        chances = sparse_step(prior, scope)
        if moves is None or chances is None:
            return None
        mu = np.repeat(prior.marginal(scope[:1]), np.diff(chances.indptr)) * chances.data
        summary = posterior.summary_of(mean, moves.variance, mu, level, scope=scope)
        kept, values = mu > 0, {**summary._asdict(), MC_ERROR: moves.mc_error}
    else:
        kept = mean > 0
        nothing = np.full(len(mean), np.nan)
        values = dict.fromkeys(SUMMARY, nothing) | {"mean": mean, "reliable": np.zeros(len(mean), bool)}
    return Block(index[kept], {name: value[kept] for name, value in values.items()}, listed=True)


def _observed(posterior: Posterior, scope: Scope) -> Array:
    """The counts seen of one table's entries: NaN where nobody looked, the mean where there are several readings."""
    total = np.zeros(posterior.problem.model.domain(scope).size)
    readings = np.zeros(total.shape)
    for site in posterior.problem.sites:
        if site.scope == scope and site.index is not None:
            total[site.index] += site.noise.counts
            readings[site.index] += 1
    with np.errstate(invalid="ignore"):
        return np.where(readings > 0, total / readings, np.nan)


def place_frame(posterior: Posterior) -> pd.DataFrame | None:
    """``cell, x, y`` of a chain's cells where labelled counts carry them; None otherwise."""
    model = posterior.problem.model
    if not is_plain_chain(model):
        return None
    cells = model.states[model.variables[0]]
    for observation in posterior.problem.observations:
        found = getattr(observation.counts, "coords", {})
        names = next((pair for pair in COORDINATES if _along_cells(found, pair)), None)
        if names is None:
            continue
        place = {label: k for k, label in enumerate(found["cell"].to_numpy().tolist())}
        if set(cells) <= set(place):
            order = [place[cell] for cell in cells]
            x, y = (found[name].to_numpy()[order].astype(float) for name in names)
            return places_under(names, {"cell": label_array(cells), "x": x, "y": y})
    return None


def places_under(names: tuple[str, str], columns: dict[str, Any]) -> pd.DataFrame:
    """A table of places; ``attrs["names"]`` says what x and y were called."""
    import pandas as pd

    frame = pd.DataFrame(columns)
    frame.attrs["names"] = names
    return frame


def _along_cells(coords: Any, names: tuple[str, str]) -> bool:
    return "cell" in coords and all(name in coords and coords[name].dims == ("cell",) for name in names)


def is_plain_chain(model: Model) -> bool:
    """Whether the model is a chain whose cells are the same at all times."""
    return isinstance(model, MarkovChain) and len(set(model.states.values())) == 1


def _scopes(model: Model, what: str) -> Iterator[Scope]:
    """Every variable, or every pair inside a clique, in the model's order."""
    if what == "nodes":
        yield from ((v,) for v in model.variables)
        return
    if isinstance(model, MarkovChain):
        yield from zip(model.variables, model.variables[1:], strict=False)
        return
    place = {v: k for k, v in enumerate(model.variables)}
    cliques = [sorted(clique, key=place.__getitem__) for clique in model.junction_tree.cliques]
    pairs = {pair for clique in cliques for pair in combinations(clique, 2)}
    yield from sorted(pairs, key=lambda pair: (place[pair[0]], place[pair[1]]))


def _labels(
    model: Model, what: str, scopes: list[Scope], indices: list[NDArray[np.intp]], *, stored: bool
) -> dict[str, Any]:
    """The columns that name the entries of some tables, given by their flat indices."""
    columns = []
    for axis in range(2 if what == "flows" else 1):
        variables, states = _codes(model, scopes, indices, axis)
        columns.append(_column(model.variables, variables, stored=stored))
        everything = [state for v in model.variables for state in model.states[v]]
        columns.append(_column(everything, states, stored=stored))
    if not is_plain_chain(model):
        return dict(zip(("variable", "state", "other", "other_state"), columns, strict=False))
    if what == "nodes":
        return dict(zip(("time", "cell"), columns, strict=True))
    return {"time": columns[0], "origin": columns[1], "dest": columns[3]}


def _codes(
    model: Model, scopes: list[Scope], indices: list[NDArray[np.intp]], axis: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The variable on one axis of every entry, and its state among the states of all variables, laid end to end."""
    number = {v: k for k, v in enumerate(model.variables)}
    first = np.cumsum([0, *(len(model.states[v]) for v in model.variables)])
    variables, states = [], []
    for scope, index in zip(scopes, indices, strict=True):
        k = number[scope[axis]]
        variables.append(np.full(len(index), k))
        states.append(first[k] + np.unravel_index(index, model.size(scope))[axis])
    return _joined(variables, np.intp), _joined(states, np.intp)


def _column(labels: Sequence[Hashable], codes: NDArray[np.intp], *, stored: bool) -> Any:
    """Labels by their codes; pandas infers the column's type from the labels, and tuples stay whole."""
    import pandas as pd

    return pd.Index(label_array(labels) if stored else list(labels), tupleize_cols=False).take(codes)


def _joined(parts: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def label_array(labels: Sequence[Hashable]) -> NDArray[Any]:
    """Labels as a file can hold them: dates, numbers and texts as they are, anything else as its text."""
    kinds = {_kind(label) for label in labels}
    if kinds == {"date"}:
        return np.array(list(labels), dtype="datetime64[ns]")
    if kinds <= {"int", "float"}:
        return np.array(labels)
    texts = [str(label) for label in labels]
    if len(set(texts)) < len(set(labels)):  # 1 and "1" are two labels
        texts = [repr(label) for label in labels]
    return np.array(texts, dtype=object)


def _kind(label: Hashable) -> str:
    if isinstance(label, (dt.date, np.datetime64)):
        return "date" if getattr(label, "tzinfo", None) is None else "text"
    if isinstance(label, (bool, np.bool_)):
        return "text"
    if isinstance(label, (int, np.integer)):
        return "int"
    return "float" if isinstance(label, (float, np.floating)) else "text"
