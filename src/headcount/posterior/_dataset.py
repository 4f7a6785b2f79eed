"""A result as a tree of labelled arrays in ArviZ's groups, as a NetCDF file, and back.

``posterior`` holds joint draws of the node counts (dims ``chain``, ``draw``), ``observed_data`` what was seen, ``constant_data``
what was given; ``nodes`` and ``flows`` the summaries, ``trace`` the run. How it was got is in the root's attributes.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount._atomic import replacing
from headcount._netcdf import write_tree
from headcount.posterior._draws import DrawError
from headcount.posterior._frames import (
    COORDINATES,
    MC_ERROR,
    SUMMARY,
    is_plain_chain,
    label_array,
    places_under,
)
from headcount.posterior._provenance import written
from headcount.posterior._result import Result
from headcount.tables import Domain

if TYPE_CHECKING:
    import os
    from collections.abc import Hashable, Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    import xarray as xr
    from numpy.typing import NDArray

    from headcount.individual import Model
    from headcount.posterior._posterior import Posterior

    Array = NDArray[np.float64]
    Scope = tuple[Hashable, ...]

DRAWS = 100
"""Joint draws kept in a file, where they are cheap."""
FEWEST_DRAWS = 10
"""Where memory allows no more than this, none are kept: a handful says nothing about a spread."""
DRAWN_ENTRIES = 4_000_000
"""Most table entries drawn for a file: 32 MB, of which the node counts are kept. Kept from an earlier experiment; no derivation."""


def to_xarray(posterior: Posterior, *, level: float = 0.9) -> xr.DataTree:
    """Everything as one tree of labelled arrays (see the module)."""
    return tree_of(Result.of(posterior, level=level), draws=draw_group(posterior))


def save(posterior: Posterior, path: str | os.PathLike[str], *, level: float = 0.9) -> None:
    """Write :func:`to_xarray` as NetCDF, whole or not at all; ``arviz.from_netcdf`` opens it."""
    tree = to_xarray(posterior, level=level)
    with replacing(path) as temporary:
        write_tree(tree, temporary)


def tree_of(result: Result, *, draws: xr.Dataset) -> xr.DataTree:
    """A result's tables as a tree; ``draws`` is what :func:`draw_group` makes."""
    import xarray as xr

    nodes, flows = _chain_groups(result) if result.is_chain else _network_groups(result)
    seen = nodes["observed"]
    nodes = nodes.drop_vars("observed")
    for group in (nodes, flows):
        group.attrs["interval_level"] = result.level
    places = {name: nodes[name] for pair in COORDINATES for name in pair if name in nodes.coords}
    groups = {
        "nodes": nodes,
        "flows": flows,
        "posterior": draws,
        "observed_data": xr.Dataset({"count": seen}),
        "constant_data": xr.Dataset({"population": result.population} | places).reset_coords(),
    }
    if result.shapes:
        groups["shapes"] = _shape_group(result.shapes, result.cells)
    for name in ("trace", "weights", "ascent"):
        frame = getattr(result, name)
        if frame is not None and len(frame):
            groups[name] = xr.Dataset.from_dataframe(frame.set_index(frame.columns[0]))
    root = xr.Dataset(attrs=written(result.attributes))
    return xr.DataTree.from_dict({"/": root, **{f"/{name}": data for name, data in groups.items()}})


def result_of(tree: xr.DataTree, *, path: Path | None = None) -> Result:
    """The inverse of :func:`tree_of`."""
    attributes = json.loads(tree.attrs["provenance"])
    nodes, flows = tree["nodes"].to_dataset(), tree["flows"].to_dataset()
    seen = tree["observed_data/count"].variable
    nodes = nodes.assign(observed=(seen.dims, seen.data))
    if "time" in nodes.dims:
        node_table = _table(nodes, ["time", "cell"])
        flow_table = _table(flows, ["departure", "origin", "dest"]).rename(columns={"departure": "time"})
        if "possible" in flow_table:
            flow_table = flow_table[flow_table.pop("possible")].reset_index(drop=True)
    else:
        node_table = _table(nodes, ["variable", "state"])
        flow_table = _table(flows, ["variable", "state", "other", "other_state"])
    node_table.attrs = {"level": attributes["interval_level"], "listed": False}
    flow_table.attrs = {"level": attributes["interval_level"], "listed": "move" in flows.dims}
    places = _places(nodes)
    degrees = places is not None and places.attrs["names"] == ("lon", "lat")
    return Result(
        node_table,
        flow_table,
        _optional(tree, "trace", ["iteration"]),
        attributes | {"geographic": degrees},
        places,
        _optional(tree, "weights", ["feature"]) if "weights" in tree else None,
        _optional(tree, "ascent", ["iteration"]) if "ascent" in tree else None,
        path,
        _shapes(tree["shapes"].to_dataset(), node_table["cell"].unique().tolist())
        if "shapes" in tree
        else None,
    )


def _shape_group(shapes: Mapping[Hashable, Sequence[Array]], cells: list[Hashable]) -> xr.Dataset:
    """Rings one after the other: their points, how many points each has, and the position of its cell."""
    import xarray as xr

    rings = [(cells.index(cell), ring) for cell, held in shapes.items() for ring in held]
    points = np.concatenate([ring for _, ring in rings])
    return xr.Dataset(
        {
            "point_x": ("point", points[:, 0]),
            "point_y": ("point", points[:, 1]),
            "ring_points": ("ring", np.array([len(ring) for _, ring in rings])),
            "ring_cell": ("ring", np.array([k for k, _ in rings])),
        }
    )


def _shapes(data: xr.Dataset, cells: list[Hashable]) -> dict[Hashable, list[Array]]:
    points = np.stack([data["point_x"].to_numpy(), data["point_y"].to_numpy()], axis=1)
    rings = np.split(points, np.cumsum(data["ring_points"].to_numpy())[:-1])
    made: dict[Hashable, list[Array]] = {}
    for k, ring in zip(data["ring_cell"].to_numpy().tolist(), rings, strict=True):
        made.setdefault(cells[k], []).append(ring)
    return made


def _chain_groups(result: Result) -> tuple[xr.Dataset, xr.Dataset]:
    """Nodes (time, cell), flows (departure, origin, dest) or, from a sparse matrix, (move)."""
    times, cells = (result.nodes[name].unique() for name in ("time", "cell"))
    nodes = _grid(result.nodes, {"time": times, "cell": cells})
    if result.coordinates is not None:
        names = result.coordinates.attrs.get("names", ("lon", "lat") if result.geographic else ("x", "y"))
        nodes = nodes.assign_coords(
            {
                name: ("cell", result.coordinates[axis].to_numpy())
                for name, axis in zip(names, "xy", strict=True)
            }
        )
    moves = result.flows.rename(columns={"time": "departure"})
    if moves.attrs.get("listed"):
        return nodes, _entries(moves, 3, "move")
    flows = _grid(moves, {"departure": times[:-1], "origin": cells, "dest": cells})
    return nodes, flows


def _network_groups(result: Result) -> tuple[xr.Dataset, xr.Dataset]:
    return _entries(result.nodes, 2, "entry"), _entries(result.flows, 4, "pair")


def _grid(frame: pd.DataFrame, axes: dict[str, Any]) -> xr.Dataset:
    """A tidy table as arrays over the labels of its first columns; entries without a row are impossible: certainly zero."""
    import pandas as pd
    import xarray as xr

    domain = Domain(tuple(axes), tuple(len(labels) for labels in axes.values()))
    place = tuple(pd.Index(labels).get_indexer(frame[name]) for name, labels in axes.items())
    arrays = {}
    for name in frame.columns[len(axes) :]:
        array = np.full(domain.shape, name == "reliable", dtype=bool if name == "reliable" else float)
        array[place] = frame[name].to_numpy()
        arrays[name] = (domain.scope, array)
    if len(axes) > 2:
        possible = np.zeros(domain.shape, bool)
        possible[place] = True
        arrays["possible"] = (domain.scope, possible)
    return xr.Dataset(arrays, coords=axes)


def _entries(frame: pd.DataFrame, labels: int, dim: str) -> xr.Dataset:
    """A tidy table as a dataset with one dimension: its first columns label the entries."""
    import xarray as xr

    columns = {name: (dim, frame[name].to_numpy()) for name in frame.columns[labels:]}
    names = {name: (dim, frame[name].to_numpy()) for name in frame.columns[:labels]}
    return xr.Dataset(columns, coords=names)


_VALUES = ("observed", *SUMMARY, MC_ERROR, "possible")


def _table(data: xr.Dataset, labels: list[str]) -> pd.DataFrame:
    """A dataset as a tidy table: labels first, in the order of the arrays."""
    frame = data[[name for name in _VALUES if name in data]].to_dataframe(dim_order=list(data["mean"].dims))
    frame = frame.reset_index()
    values = [name for name in _VALUES if name in frame]
    flags = [name for name in ("reliable", "possible") if name in frame]
    return frame[[*labels, *values]].astype(dict.fromkeys(flags, bool))


def _optional(tree: xr.DataTree, group: str, labels: list[str]) -> pd.DataFrame:
    import pandas as pd

    if group not in tree:
        return pd.DataFrame(columns=labels)
    frame = tree[group].to_dataset().to_dataframe().reset_index()
    return frame[[*labels, *(c for c in frame.columns if c not in labels)]]


def _places(nodes: xr.Dataset) -> pd.DataFrame | None:
    for x, y in COORDINATES:
        if x in nodes.coords and y in nodes.coords:
            values = {"cell": nodes["cell"].to_numpy(), "x": nodes[x].to_numpy(), "y": nodes[y].to_numpy()}
            return places_under((x, y), values)
    return None


def draw_group(posterior: Posterior) -> xr.Dataset:
    """Joint draws of the node counts, (chain, draw, ...); the mean as the only draw where the engine gives none."""
    import xarray as xr

    model, beliefs = posterior.problem.model, posterior.beliefs
    entries = sum(math.prod(model.size(tuple(clique))) for clique in model.junction_tree.cliques)
    size = min(DRAWS, DRAWN_ENTRIES // max(entries, 1))
    note: dict[str, Any] = {"draws": 0, "note": "no draws were made: the only entry along draw is the mean"}
    values = None
    if size >= FEWEST_DRAWS and beliefs.has_draws:
        whole = posterior.promises.non_negative
        try:
            tables = beliefs.sample(size, rng=np.random.default_rng(0), integer=whole)
        except DrawError as error:
            note["note"] += f" ({error})"
        else:
            values = {v: _margin(tables, v) for v in model.variables}
            note = {"draws": size, "draws_seed": 0, "whole_numbers": int(whole)}
    if values is None:
        values = {v: beliefs.mean((v,))[None] for v in model.variables}
    return xr.Dataset(_draw_arrays(model, values), attrs=note)


def _margin(tables: dict[Scope, Any], variable: Hashable) -> Array:
    scope = next(s for s in tables if variable in s)
    table = np.asarray(tables[scope])
    return np.asarray(Domain(scope, table.shape[1:]).project(table, (variable,)))


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
