"""A posterior as tidy tables, as a tree of labelled arrays in ArviZ's groups, and as a NetCDF file.

``posterior`` holds joint draws of the node counts (dims ``chain``, ``draw``), ``observed_data`` what was seen, ``constant_data``
what was given; ``nodes`` and ``flows`` the summaries, ``trace`` the run. How it was got is in the root's attributes.
"""

from __future__ import annotations

import datetime as dt
from itertools import combinations, islice
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array, issparse

from headcount._atomic import replacing
from headcount.individual import MarkovChain
from headcount.posterior._beliefs import PointBeliefs
from headcount.posterior._provenance import provenance, written

if TYPE_CHECKING:
    import os
    from collections.abc import Hashable, Iterator, Sequence

    import pandas as pd
    import xarray as xr
    from numpy.typing import NDArray

    from headcount.individual import Model
    from headcount.posterior._posterior import Posterior

    Array = NDArray[np.float64]
    Scope = tuple[Hashable, ...]

DRAWS = 100
"""Joint draws kept in a tree of results, where they are cheap."""
_DRAWN_ENTRIES = 4_000_000
"""Most table entries that are drawn for them; below ten draws none are kept."""
SUMMARY = ("mean", "sd", "lower", "upper", "reliable")
COORDINATES = (("x", "y"), ("lon", "lat"), ("column", "row"))
"""Names under which the counts may carry the places of the cells."""


def to_frame(posterior: Posterior, what: str = "nodes", *, level: float = 0.9) -> pd.DataFrame:
    """Tidy table: one row a cell and time (``"nodes"``), or an origin, destination and time of departure (``"flows"``).

    A chain's columns are ``time, cell[, observed]`` or ``time, origin, dest``, then ``mean, sd, lower, upper, reliable``;
    any other model has ``variable, state`` and ``variable, state, other, other_state`` (every pair inside a clique).
    ``observed`` is the mean of the readings where an entry was read more than once. Rows of flows that the model forbids are
    left out. The level of the interval is in the frame's ``attrs``.
    """
    import pandas as pd

    if what not in {"nodes", "flows"}:
        message = f"what must be 'nodes' or 'flows', got {what!r}"
        raise ValueError(message)
    model = posterior.problem.model
    blocks = []
    for scope in _scopes(model, what):
        index, values = _rows(posterior, scope, level)
        labels = _label_columns(model, scope, index)
        if what == "nodes":
            seen = observed(posterior, scope)
            labels |= {"observed": np.nan if seen is None else seen.ravel()[index]}
        blocks.append(pd.DataFrame(labels | values))
    frame = pd.concat(blocks, ignore_index=True) if blocks else _empty(model)
    frame.attrs["level"] = level
    return frame


def _rows(
    posterior: Posterior, scope: Scope, level: float
) -> tuple[NDArray[np.intp], dict[str, NDArray[Any]]]:
    """Flat entries of a table that get a row, and their summary: all of a node's, the possible ones of a pair's."""
    sparse = _sparse_flows(posterior, scope)
    if sparse is not None:
        return sparse
    flat = {name: table.ravel() for name, table in summary(posterior, scope, level).items()}
    index = np.flatnonzero(_possible(posterior, scope)) if len(scope) > 1 else np.arange(flat["mean"].size)
    return index, {name: values[index] for name, values in flat.items()}


def _sparse_flows(
    posterior: Posterior, scope: Scope
) -> tuple[NDArray[np.intp], dict[str, NDArray[Any]]] | None:
    """N μ_u(i) P(i, j) on the moves that exist, where an engine without spread has sparse transitions; None elsewhere.

    A table of 10⁴ × 10⁴ cells would take 800 MB; its moves between neighbours take one.
    """
    beliefs = posterior.beliefs
    if len(scope) != 2 or not isinstance(beliefs, PointBeliefs):
        return None
    tree = beliefs.model.rooted()
    matrix = None if tree is None else tree.transitions[tree.variables.index(scope[1])]
    if (
        tree is None
        or not issparse(matrix)
        or tree.variables[tree.parent[tree.variables.index(scope[1])]] != scope[0]
    ):
        return None
    table = csr_array(matrix)
    table.sort_indices()
    origin = np.repeat(np.arange(table.shape[0]), np.diff(table.indptr))
    mean = beliefs.population * beliefs.model.marginal(scope[:1])[origin] * table.data
    kept = mean > 0
    none = np.full(int(kept.sum()), np.nan)
    values = {
        "mean": mean[kept],
        "sd": none,
        "lower": none,
        "upper": none,
        "reliable": np.zeros(none.shape, bool),
    }
    return (origin * table.shape[1] + table.indices)[kept], values


def summary(posterior: Posterior, scope: Scope, level: float) -> dict[str, NDArray[Any]]:
    """``{"mean", "sd", "lower", "upper", "reliable"}`` of one table, without labels."""
    lower, upper = posterior.interval_tables(scope, level)
    parts = (
        posterior.beliefs.mean(scope),
        posterior.sd_table(scope),
        lower,
        upper,
        posterior.reliable_table(scope),
    )
    return dict(zip(SUMMARY, parts, strict=True))


def observed(posterior: Posterior, scope: Scope) -> Array | None:
    """The counts seen of one table's entries, NaN where nobody looked, the mean where there are several readings; None if none."""
    total = np.zeros(int(np.prod(posterior.problem.model.size(scope))))
    readings = np.zeros(total.shape)
    for site in posterior.problem.sites:
        if site.scope == scope and site.index is not None:
            total[site.index] += site.noise.counts
            readings[site.index] += 1
    if not readings.any():
        return None
    with np.errstate(invalid="ignore"):
        return np.where(readings > 0, total / readings, np.nan).reshape(posterior.problem.model.size(scope))


def coordinates(posterior: Posterior) -> tuple[tuple[str, str], Array] | None:
    """Names of the two axes and the (L, 2) places of a chain's cells, where labelled counts carry them; None otherwise."""
    model = posterior.problem.model
    if not is_plain_chain(model):
        return None
    cells = model.states[model.variables[0]]
    for observation in posterior.problem.observations:
        found = getattr(observation.counts, "coords", {})
        for names in COORDINATES:
            if all(name in found and found[name].dims == ("cell",) for name in names) and "cell" in found:
                place = {label: k for k, label in enumerate(found["cell"].to_numpy().tolist())}
                if set(cells) <= set(place):
                    order = [place[cell] for cell in cells]
                    return names, np.stack([found[n].to_numpy()[order] for n in names], axis=1).astype(float)
    return None


def to_xarray(posterior: Posterior, *, level: float = 0.9) -> xr.DataTree:
    """Everything as one tree of labelled arrays, in ArviZ's groups (see the module)."""
    import xarray as xr

    plain = is_plain_chain(posterior.problem.model)
    groups: dict[str, Any] = {}
    if plain:
        groups["nodes"], groups["flows"], seen = _chain_groups(posterior, level)
    else:
        groups["nodes"] = _entries(to_frame(posterior, "nodes", level=level), 2, "entry")
        groups["flows"] = _entries(to_frame(posterior, "flows", level=level), 4, "pair")
        seen = groups["nodes"]["observed"]
        groups["nodes"] = groups["nodes"].drop_vars("observed")
    for name in ("nodes", "flows"):
        groups[name].attrs["interval_level"] = level
    draws, note = _draws(posterior)
    groups["posterior"] = xr.Dataset(draws, attrs=note)
    groups["observed_data"] = xr.Dataset({"count": seen})
    groups["constant_data"] = _constants(posterior)
    if posterior.outcome.trace:
        trace = posterior.trace
        groups["trace"] = xr.Dataset(
            {c: ("iteration", trace[c].to_numpy()) for c in trace if c != "iteration"},
            coords={"iteration": trace["iteration"].to_numpy()},
        )
    root = xr.Dataset(attrs=written(provenance(posterior, level=level)))
    return xr.DataTree.from_dict({"/": root, **{f"/{name}": data for name, data in groups.items()}})


def save(posterior: Posterior, path: str | os.PathLike[str], *, level: float = 0.9) -> None:
    """Write :func:`to_xarray` as NetCDF, whole or not at all; ``arviz.from_netcdf`` opens it."""
    tree = to_xarray(posterior, level=level)
    with replacing(path) as temporary:
        write_tree(tree, temporary)


def write_tree(tree: xr.DataTree, path: str | os.PathLike[str]) -> None:
    """Write any tree as compressed NetCDF."""
    encoding = {
        node.path: {
            n: {"zlib": True, "complevel": 4} for n, v in node.data_vars.items() if v.dtype.kind in "fiu"
        }
        for node in tree.subtree
    }
    tree.to_netcdf(path, engine="h5netcdf", encoding=encoding)


def is_plain_chain(model: Model) -> bool:
    """Whether the model is a chain whose cells are the same at all times."""
    return isinstance(model, MarkovChain) and len(set(model.states.values())) == 1


def label_array(labels: Sequence[Hashable]) -> NDArray[Any]:
    """Labels as a file can hold them: dates, numbers and texts as they are, anything else as its text."""
    kinds = {_kind(label) for label in labels}
    if kinds == {"date"}:
        return np.array(list(labels), dtype="datetime64[ns]")
    if kinds <= {"int", "float"}:
        return np.array(labels)
    return np.array([str(label) for label in labels], dtype=object)


def _kind(label: Hashable) -> str:
    if isinstance(label, (dt.date, np.datetime64)):
        return "date" if getattr(label, "tzinfo", None) is None else "text"
    if isinstance(label, (bool, np.bool_)):
        return "text"
    if isinstance(label, (int, np.integer)):
        return "int"
    return "float" if isinstance(label, (float, np.floating)) else "text"


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


def _label_columns(model: Model, scope: Scope, index: NDArray[np.intp]) -> dict[str, Any]:
    """The columns that name entries of a table, by their flat index."""
    states = [_objects(model.states[v]) for v in scope]
    count, width = len(index), len(states[-1])
    first, last = states[0][index // width if len(scope) > 1 else index], states[-1][index % width]
    if is_plain_chain(model):
        head: dict[str, Any] = {"time": [scope[0]] * count}
        return head | ({"cell": first} if len(scope) == 1 else {"origin": first, "dest": last})
    head = {"variable": [scope[0]] * count, "state": first}
    return head if len(scope) == 1 else head | {"other": [scope[1]] * count, "other_state": last}


def _objects(labels: Sequence[Hashable]) -> NDArray[Any]:
    """Labels as a 1-D array that pandas infers a column from; tuples stay whole."""
    out = np.empty(len(labels), dtype=object)
    out[:] = labels
    return out if _kinds_mixed(labels) else np.array(labels)


def _kinds_mixed(labels: Sequence[Hashable]) -> bool:
    return any(isinstance(label, tuple) for label in labels) or len({type(label) for label in labels}) > 1


def _possible(posterior: Posterior, scope: Scope) -> NDArray[np.bool_]:
    return np.asarray(posterior.problem.model.marginal(scope) > 0)


def _empty(model: Model) -> pd.DataFrame:
    """A table without rows: a chain of one time has no flows, and a file should still say which columns it lacks."""
    import pandas as pd

    labels = (
        ["time", "origin", "dest"] if is_plain_chain(model) else ["variable", "state", "other", "other_state"]
    )
    return pd.DataFrame(columns=[*labels, *SUMMARY])


def _chain_groups(posterior: Posterior, level: float) -> tuple[xr.Dataset, xr.Dataset, xr.DataArray]:
    """Nodes (time, cell), flows (departure, origin, dest) or, sparse, (move), and what was seen (time, cell)."""
    import xarray as xr

    model = posterior.problem.model
    times, cells = label_array(model.variables), label_array(model.states[model.variables[0]])
    size = len(cells)

    def stacked(what: str, dims: tuple[str, ...], coords: dict[str, Any]) -> xr.Dataset:
        shape = (0, *(size for _ in dims[1:]))
        tables = [summary(posterior, scope, level) for scope in _scopes(model, what)]
        arrays = {n: np.array([t[n] for t in tables]) if tables else np.empty(shape) for n in SUMMARY}
        return xr.Dataset({n: (dims, a) for n, a in arrays.items()}, coords=coords)

    nodes = stacked("nodes", ("time", "cell"), {"time": times, "cell": cells} | _place_coordinates(posterior))
    if any(_sparse_flows(posterior, scope) is not None for scope in islice(_scopes(model, "flows"), 1)):
        listed = to_frame(posterior, "flows", level=level).rename(columns={"time": "departure"})
        flows = _entries(listed, 3, "move")
    else:
        possible = [_possible(posterior, scope) for scope in _scopes(model, "flows")]
        coords = {"departure": times[:-1], "origin": cells, "dest": cells}
        flows = stacked("flows", ("departure", "origin", "dest"), coords)
        whole = np.array(possible).reshape(flows["mean"].shape).astype(bool)
        flows["possible"] = flows["mean"].copy(data=whole)
    seen = [observed(posterior, scope) for scope in _scopes(model, "nodes")]
    values = np.array([np.full(size, np.nan) if s is None else s for s in seen])
    return nodes, flows, xr.DataArray(values, dims=("time", "cell"), coords={"time": times, "cell": cells})


def _place_coordinates(posterior: Posterior) -> dict[str, Any]:
    found = coordinates(posterior)
    if found is None:
        return {}
    names, places = found
    return {name: ("cell", places[:, k]) for k, name in enumerate(names)}


def _entries(frame: pd.DataFrame, labels: int, dim: str) -> xr.Dataset:
    """A tidy table as a dataset: its first columns label the entries."""
    import xarray as xr

    columns = {name: (dim, frame[name].to_numpy()) for name in frame.columns[labels:]}
    names = {name: (dim, label_array(frame[name].tolist())) for name in frame.columns[:labels]}
    return xr.Dataset(columns, coords=names)


def _draws(posterior: Posterior) -> tuple[dict[str, xr.DataArray], dict[str, Any]]:
    """Joint draws of the node counts, (chain, draw, ...); the mean as the only draw where the engine gives none."""
    model, beliefs = posterior.problem.model, posterior.beliefs
    entries = sum(int(np.prod(model.size(tuple(clique)))) for clique in model.junction_tree.cliques)
    size = min(DRAWS, _DRAWN_ENTRIES // max(entries, 1))
    drawn = size >= 10 and all(beliefs.variance((v,)) is not None for v in model.variables[:1])
    if drawn:
        whole = posterior.promises.non_negative
        tables = beliefs.sample(size, rng=np.random.default_rng(0), integer=whole)
        values = {v: _margin(tables, v) for v in model.variables}
        note: dict[str, Any] = {"draws": size, "draws_seed": 0, "whole_numbers": int(whole)}
    else:
        values = {v: beliefs.mean((v,))[None] for v in model.variables}
        note = {"draws": 0, "note": "no draws were made: the only entry along draw is the mean"}
    return _draw_arrays(model, values), note


def _margin(tables: dict[Scope, Any], variable: Hashable) -> Array:
    scope = next(s for s in tables if variable in s)
    axes = tuple(k + 1 for k, v in enumerate(scope) if v != variable)
    return np.asarray(tables[scope]).sum(axis=axes)


def _draw_arrays(model: Model, values: dict[Hashable, Array]) -> dict[str, xr.DataArray]:
    import xarray as xr

    if is_plain_chain(model):
        both = np.stack([values[v] for v in model.variables], axis=1)[None]
        coords = {"time": label_array(model.variables), "cell": label_array(model.states[model.variables[0]])}
        coords |= {"chain": np.arange(1), "draw": np.arange(both.shape[1])}
        return {"count": xr.DataArray(both, dims=("chain", "draw", "time", "cell"), coords=coords)}
    made = {}
    for v in model.variables:
        name = str(v).replace("/", "_")  # a slash would open a group in the file
        made[f"count_{name}"] = xr.DataArray(
            values[v][None],
            dims=("chain", "draw", name),
            coords={
                name: label_array(model.states[v]),
                "chain": np.arange(1),
                "draw": np.arange(len(values[v])),
            },
        )
    return made


def _constants(posterior: Posterior) -> xr.Dataset:
    import xarray as xr

    places = _place_coordinates(posterior)
    model = posterior.problem.model
    coords = {"cell": label_array(model.states[model.variables[0]])} if places else {}
    return xr.Dataset({"population": posterior.problem.population} | places, coords=coords)
