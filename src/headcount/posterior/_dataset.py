"""A result as a tree of labelled arrays in ArviZ's groups, as a NetCDF file, and back.

``posterior`` holds joint draws of the node counts (dims ``chain``, ``draw``) and, where asked for, of the flows;
``posterior_predictive`` replicates of the data under these draws, ``log_likelihood`` that of the data, ``observed_data`` what was seen
(all three: ``y`` along ``observation``), ``constant_data`` what was given; ``nodes`` and ``flows`` the summaries, ``fit_check`` the
check of every count, ``trace`` the run, ``sizes`` the posterior of N, ``groups`` the same tables of every group. How it was got is in the
root's attributes.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount import memory
from headcount._atomic import replacing
from headcount._netcdf import away_from_the_cluster, write_tree
from headcount.posterior._beliefs import GaussianBeliefs
from headcount.posterior._draws import DrawError, margin
from headcount.posterior._frames import (
    COORDINATES,
    MC_ERROR,
    SUMMARY,
    is_plain_chain,
    label_array,
    places_under,
    possible_flows,
)
from headcount.posterior._predictive import (
    drawn_entries,
    log_likelihoods,
    observation_coordinates,
    observed_counts,
    replicates,
)
from headcount.posterior._provenance import written
from headcount.posterior._result import Result
from headcount.tables import Domain, dense

if TYPE_CHECKING:
    import os
    from collections.abc import Hashable, Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    import xarray as xr

    from headcount._types import Array, Scope
    from headcount.individual import Model
    from headcount.posterior._posterior import Posterior

DRAWS = 100
"""Joint draws kept in a file, where they are cheap."""
FEWEST_DRAWS = 10
"""Where memory allows no more than this, none are kept: a handful says nothing about a spread."""
MOST_AT_ONCE = 64
"""Draws per part of a file that is written in parts, where memory allows more."""
DRAWN_ENTRIES = 4_000_000
"""Most table entries drawn for a file, of which the node counts are kept: a limit of 32 MB of memory."""


def to_xarray(
    posterior: Posterior, *, level: float = 0.9, draws: int | None = None, draw_flows: bool = False
) -> xr.DataTree:
    """Everything as one tree of labelled arrays (see the module)."""
    made = draw_groups(posterior, draws=draws, flows=draw_flows)
    return tree_of(Result.of(posterior, level=level), draws=made)


def save(
    posterior: Posterior,
    path: str | os.PathLike[str],
    *,
    level: float = 0.9,
    draws: int | None = None,
    draw_flows: bool = False,
) -> None:
    """Write :func:`to_xarray` as NetCDF, whole or not at all; ``arviz.from_netcdf`` opens it."""
    tree = to_xarray(posterior, level=level, draws=draws, draw_flows=draw_flows)
    with replacing(path) as temporary:
        write_tree(tree, temporary)


def tree_of(result: Result, *, draws: Mapping[str, xr.Dataset]) -> xr.DataTree:
    """A result's tables as a tree; ``draws`` is what :func:`draw_groups` makes."""
    import xarray as xr

    nodes, flows = _chain_groups(result) if result.is_chain else _network_groups(result)
    for group in (nodes, flows):
        group.attrs["interval_level"] = result.level
    places = {name: nodes[name] for pair in COORDINATES for name in pair if name in nodes.coords}
    groups = {
        "nodes": nodes,
        "flows": flows,
        **draws,
        "constant_data": xr.Dataset({"population": result.population} | places).reset_coords(),
    }
    if result.shapes:
        groups["shapes"] = _shape_group(result.shapes, result.cells)
    for name in ("trace", "weights", "ascent", "arrivals", "departures", "sizes"):
        frame = getattr(result, name)
        if frame is not None and len(frame):
            groups[name] = xr.Dataset.from_dataframe(frame.set_index(frame.columns[0]))
    if result.check is not None:
        groups["fit_check"] = _entries(result.check, 3, "observation")
    root = xr.Dataset(attrs=written(result.attributes))
    parts: dict[str, Any] = {"/": root, **{f"/{name}": data for name, data in groups.items()}}
    for k, (label, part) in enumerate(result.groups.items()):
        named = replace(part, attributes={**part.attributes, "group": label})
        parts[f"/groups/{k}"] = tree_of(named, draws={})
    return xr.DataTree.from_dict(parts)


def result_of(tree: xr.DataTree, *, path: Path | None = None) -> Result:
    """The inverse of :func:`tree_of`."""
    attributes = json.loads(tree.attrs["provenance"])
    nodes, flows = tree["nodes"].to_dataset(), tree["flows"].to_dataset()
    if "observed" not in nodes:  # a file of an earlier headcount
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
        **{
            name: _optional(tree, name, ["time", "cell"])
            for name in ("arrivals", "departures")
            if name in tree
        },
        sizes=_optional(tree, "sizes", ["size"]) if "sizes" in tree else None,
        groups={part.attributes["group"]: part for part in map(result_of, _children(tree, "groups"))},
        path=path,
        shapes=_shapes(tree["shapes"].to_dataset(), node_table["cell"].unique().tolist())
        if "shapes" in tree
        else None,
        check=_checked(tree),
    )


def _children(tree: xr.DataTree, name: str) -> list[xr.DataTree]:
    """The parts of one group of a file, in the order of their numbers."""
    return (
        [part for _, part in sorted(tree[name].children.items(), key=lambda item: int(item[0]))]
        if name in tree
        else []
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


def _checked(tree: xr.DataTree) -> pd.DataFrame | None:
    """The check of fit, one row per count; None in a file without."""
    if "fit_check" not in tree:
        return None
    group = tree["fit_check"].to_dataset()
    import pandas as pd

    names = ["name", *(n for n in ("time", "cell", "variable", "state") if n in group), *group.data_vars]
    return pd.DataFrame({name: group[name].to_numpy() for name in dict.fromkeys(names)})


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


def draw_groups(
    posterior: Posterior, *, draws: int | None = None, flows: bool = False
) -> dict[str, xr.Dataset]:
    """The groups made of joint draws, (chain, draw, ...): the mean as the only draw where the engine gives none.

    Parameters
    ----------
    draws
        How many; None takes `DRAWS`, or as many as `DRAWN_ENTRIES` allows.
    flows
        Whether tables on two variables are kept too.
    """
    import xarray as xr

    model, beliefs = posterior.problem.model, posterior.beliefs
    if draws is not None and draws < 0:
        raise ValueError(f"draws is {draws}: give a whole number ≥ 0")
    entries = sum(math.prod(model.size(tuple(clique))) for clique in model.junction_tree.cliques)
    size = min(DRAWS, DRAWN_ENTRIES // max(entries, 1)) if draws is None else draws
    note: dict[str, Any] = {"draws": 0, "note": "no draws were made: the only entry along draw is the mean"}
    scopes: list[Scope] = [(v,) for v in model.variables]
    if flows:
        scopes += [tuple(c) for c in model.junction_tree.cliques if len(c) == 2]
    tables = None
    if (size >= FEWEST_DRAWS or draws) and beliefs.has_draws:
        whole = posterior.promises.non_negative
        try:
            tables = beliefs.sample(size, rng=np.random.default_rng(0), integer=whole)
        except DrawError as error:
            note["note"] += f" ({error})"
        else:
            note = {"draws": size, "draws_seed": 0, "whole_numbers": int(whole)}
    if tables is None:
        values = {scope: dense(beliefs.mean(scope))[None] for scope in scopes}
        return {
            "posterior": xr.Dataset(_draw_arrays(model, values), attrs=note),
            **_data_groups(posterior, None),
        }
    values = {scope: margin(tables, scope) for scope in scopes}
    return {
        "posterior": xr.Dataset(_draw_arrays(model, values), attrs=note),
        **_data_groups(posterior, tables),
    }


def draw_bytes(posterior: Posterior, draws: int) -> int:
    """Memory that so many joint draws of all tables take at once: prior, posterior and what is between."""
    model = posterior.problem.model
    entries = sum(math.prod(model.size(tuple(clique))) for clique in model.junction_tree.cliques)
    return 3 * 8 * draws * entries


def save_draws(
    posterior: Posterior, path: str | os.PathLike[str], draws: int, *, seed: int = 0, chunk: int | None = None
) -> None:
    """Joint draws of all node counts as NetCDF (ArviZ's group ``posterior``), appended along ``draw`` part by part.

    Parameters
    ----------
    draws
        How many.
    seed
        Part k is drawn with the seed (seed, k).
    chunk
        Draws per part; None: as many as a quarter of the memory limit holds, 64 at most (more are no faster).
    """
    import h5netcdf
    import xarray as xr

    for name, value in (("draws", draws), ("chunk", 1 if chunk is None else chunk)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{name} must be a whole number, at least 1, got {value!r}")
    model, beliefs = posterior.problem.model, posterior.beliefs
    if not beliefs.has_draws:
        raise ValueError(f"{posterior.engine} gives no draws: use TiltedEP, or PathGibbs with keep")
    size = chunk or max(min(MOST_AT_ONCE, memory.limit() // (4 * _bytes_per_draw(posterior))), 1)
    starts = range(0, draws, size)
    with replacing(path) as temporary, away_from_the_cluster():
        for k, start in enumerate(starts):
            values = _drawn_nodes(posterior, min(size, draws - start), np.random.default_rng([seed, k]))
            arrays = _draw_arrays(model, values)
            if k == 0:
                made = xr.Dataset(arrays, attrs={"draws": draws, "draws_seed": seed, "draws_per_part": size})
                made.to_netcdf(temporary, group="posterior", engine="h5netcdf", unlimited_dims=["draw"])
                continue
            with h5netcdf.File(temporary, "a") as file:
                group = file["posterior"]
                group.resize_dimension("draw", start + len(next(iter(values.values()))))
                group["draw"][start:] = np.arange(start, group.dimensions["draw"].size)
                for name, array in arrays.items():
                    group[name][:, start:] = array.values


def _bytes_per_draw(posterior: Posterior) -> int:
    """Memory of one draw: by moves where nodes are drawn alone, of all tables elsewhere."""
    model, beliefs = posterior.problem.model, posterior.beliefs
    if isinstance(beliefs, GaussianBeliefs) and beliefs.draws_nodes:
        entries = sum(math.prod(model.size((v,))) for v in model.variables)
        return 8 * (12 * entries + 3 * possible_flows(model) // max(len(model.variables) - 1, 1))
    return draw_bytes(posterior, 1)


def _drawn_nodes(posterior: Posterior, size: int, rng: np.random.Generator) -> dict[Scope, Array]:
    """Joint draws of all nodes: whole numbers from whole tables, real ones where only nodes are drawn."""
    beliefs, variables = posterior.beliefs, posterior.problem.model.variables
    if isinstance(beliefs, GaussianBeliefs) and beliefs.draws_nodes:
        return beliefs.sample_nodes(size, rng=rng)
    tables = beliefs.sample(size, rng=rng, integer=posterior.promises.non_negative)
    return {(v,): margin(tables, (v,)) for v in variables}


def _data_groups(posterior: Posterior, tables: dict[Scope, Array] | None) -> dict[str, xr.Dataset]:
    """The data; with draws, their log-likelihood and replicates (where the noise can be drawn)."""
    import xarray as xr

    problem = posterior.problem
    if not problem.sites:
        return {}
    coords = observation_coordinates(problem)
    groups = {"observed_data": xr.Dataset({"y": ("observation", observed_counts(problem))}, coords=coords)}
    if tables is None:
        return groups
    n = drawn_entries(problem, tables)
    dims = ("chain", "draw", "observation")
    coords |= {"chain": np.arange(1), "draw": np.arange(len(n))}  # type: ignore[dict-item]
    with np.errstate(divide="ignore", invalid="ignore"):
        groups["log_likelihood"] = xr.Dataset({"y": (dims, log_likelihoods(problem, n)[None])}, coords=coords)
    try:
        again = replicates(problem, n, np.random.default_rng(1))
    except NotImplementedError:
        return groups
    groups["posterior_predictive"] = xr.Dataset({"y": (dims, again[None])}, coords=coords)
    return groups


def _draw_arrays(model: Model, values: Mapping[Scope, Array]) -> dict[str, xr.DataArray]:
    """Draws of nodes and flows as arrays: one per kind for a plain chain, one per table for other models."""
    import xarray as xr

    size = len(next(iter(values.values())))
    draws: dict[str, Any] = {"chain": np.arange(1), "draw": np.arange(size)}
    flows = {scope: table for scope, table in values.items() if len(scope) == 2}
    if is_plain_chain(model):
        cells = label_array(model.states[model.variables[0]])
        both = np.stack([values[(v,)] for v in model.variables], axis=1)[None]
        coords = {"time": label_array(model.variables), "cell": cells}
        made = {"count": xr.DataArray(both, dims=("chain", "draw", *coords), coords=draws | coords)}
        if flows:
            coords = {"departure": label_array(model.variables[:-1]), "origin": cells, "dest": cells}
            moves = np.stack([flows[s] for s in itertools.pairwise(model.variables)], axis=1)[None]
            made["flow"] = xr.DataArray(moves, dims=("chain", "draw", *coords), coords=draws | coords)
        return made
    found = {}
    for scope, table in values.items():
        names = [str(v).replace("/", "_") for v in scope]  # a slash would open a group in the file
        coords = {name: label_array(model.states[v]) for name, v in zip(names, scope, strict=True)}
        kind = "count" if len(scope) == 1 else "flow"
        found["_".join([kind, *names])] = xr.DataArray(
            table[None], dims=("chain", "draw", *names), coords=draws | coords
        )
    return found
