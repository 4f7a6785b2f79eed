"""A result as a tree of labelled arrays in ArviZ's groups, as a NetCDF file, and back.

``posterior`` holds joint draws of the node counts (dims ``chain``, ``draw``) and, where asked for, of the flows;
``posterior_predictive`` replicates of the data under these draws, ``log_likelihood`` that of the data, ``observed_data`` what was seen
(all three: ``y`` along ``observation``), ``constant_data`` what was given; ``nodes`` and ``flows`` the summaries, ``fit_check`` the
check of every count, ``trace`` the run, ``sizes`` the posterior of N, ``groups`` the same tables of every group, ``last`` the counts of
the last time with their covariance, from which a later run goes on, ``sums`` the spread of sums of flows. How it was got is in the
root's attributes.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount import _disk, memory
from headcount.checks import whole_number
from headcount.errors import TableError
from headcount.observe import LearnedStart, Start
from headcount.posterior._beliefs import GaussianBeliefs
from headcount.posterior._draws import DrawError, drawn_entries, margin
from headcount.posterior._sums import ChainSums
from headcount.posterior.fit_check import count_labels
from headcount.posterior.program import clique_entries
from headcount.posterior.result import (
    COORDINATES,
    MC_ERROR,
    SUMMARY,
    Result,
    is_plain_chain,
    label_array,
    places_under,
    possible_flows,
    table_scopes,
    written,
)
from headcount.tables import Domain, dense

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Hashable, Mapping, Sequence

    import pandas as pd
    import xarray as xr

    from headcount._types import Array, Scope
    from headcount.individual import Model
    from headcount.observe import Problem
    from headcount.posterior._posterior import Posterior

POSTERIOR_FILE = "posterior.nc"
REMEDY = "write one with headcount infer or Posterior.save"
_PROVENANCE: dict[str, type | tuple[type, ...]] = {
    "status": str,
    "good": bool,
    "engine": str,
    "iterations": int,
    "population": int,
    "interval_level": (int, float),
    "observations": list,
}
"""What every reader of a result relies on, and its type."""
DRAWS = 100
"""Joint draws kept in a file, where they are cheap."""
FEWEST_DRAWS = 10
"""Where memory allows no more than this, none are kept: a handful says nothing about a spread."""
MOST_AT_ONCE = 64
"""Draws per part of a file that is written in parts, where memory allows more."""
DRAWN_ENTRIES = 4_000_000
"""Most table entries drawn for a file, of which the node counts are kept: a limit of 32 MB of memory."""


def tree_of(result: Result, *, draws: Mapping[str, xr.Dataset]) -> xr.DataTree:
    """A result's tables as a tree; ``draws`` is what :func:`draw_groups` makes."""
    import xarray as xr

    if result.is_chain:
        nodes, flows = _chain_groups(result)
    else:
        nodes, flows = _entries(result.nodes, 2, "entry"), _entries(result.flows, 4, "pair")
    for group in (nodes, flows):
        group.attrs["interval_level"] = result.level
    places = {name: nodes[name] for name in itertools.chain(*COORDINATES) if name in nodes.coords}
    groups = {
        "nodes": nodes,
        "flows": flows,
        **draws,
        "constant_data": xr.Dataset({"population": result.population} | places).reset_coords(),
    }
    if result.last is not None:
        groups["last"] = last_group(result.last)
    groups |= _learned_group(result.learned)
    if result.shapes:
        groups["shapes"] = _shape_group(result.shapes, result.cells)
    groups |= _table_groups(result)
    if result.check is not None:
        groups["fit_check"] = _entries(result.check, 3, "observation")
    root = xr.Dataset(attrs=written(result.attributes))
    parts: dict[str, Any] = {"/": root, **{f"/{name}": data for name, data in groups.items()}}
    for k, (label, part) in enumerate(result.groups.items()):
        named = replace(part, attributes={**part.attributes, "group": label})
        parts[f"/groups/{k}"] = tree_of(named, draws={})
    return xr.DataTree.from_dict(parts)


_TABLES = {
    "trace": ["iteration"],
    "weights": ["feature"],
    "ascent": ["iteration"],
    "arrivals": ["time", "cell"],
    "departures": ["time", "cell"],
    "sizes": ["size"],
}
"""Tables of a `Result` that a file may have, each a group of its own, and their label columns."""


def _table_groups(result: Result) -> dict[str, xr.Dataset]:
    import xarray as xr

    frames = {name: getattr(result, name) for name in _TABLES}
    return {
        name: xr.Dataset.from_dataframe(frame.set_index(frame.columns[0]))
        for name, frame in frames.items()
        if frame is not None and len(frame)
    }


def _read_tables(held: Mapping[str, xr.Dataset]) -> dict[str, pd.DataFrame]:
    """The inverse of :func:`_table_groups`; an empty trace where there is none."""
    import pandas as pd

    made = {"trace": pd.DataFrame(columns=_TABLES["trace"])}
    for name, labels in _TABLES.items():
        if name in held:
            frame = held[name].to_dataframe().reset_index()
            made[name] = frame[[*labels, *frame.columns.drop(labels)]]
    return made


def result_of(tree: xr.DataTree, *, path: Path | None = None) -> Result:
    """The inverse of :func:`tree_of`."""
    attributes = json.loads(tree.attrs["provenance"])
    held = {name: group.to_dataset() for name, group in tree.children.items()}
    nodes, flows = held["nodes"], held["flows"]
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
    parts = tree["groups"].children if "groups" in held else {}
    groups = [result_of(parts[k]) for k in sorted(parts, key=int)]

    def read(name: str, of: Callable[..., Any], *beside: Any) -> Any:
        """What a group of the file holds; None in a file without."""
        return of(held[name], *beside) if name in held else None

    degrees = places is not None and places.attrs["names"] == ("lon", "lat")
    return Result(
        node_table,
        flow_table,
        attributes=attributes | {"geographic": degrees},
        coordinates=places,
        groups={part.attributes["group"]: part for part in groups},
        path=path,
        shapes=read("shapes", _shapes_of, node_table.iloc[:, 1].unique().tolist()),
        check=read("fit_check", _check_of),
        last=read("last", last_of),
        sums=read("sums", ChainSums.of_group),
        learned=read("learned", _learned_of),
        **_read_tables(held),
    )


def result_file(path: str | os.PathLike[str]) -> Path:
    """The file itself, or that of the folder of a run."""
    place = Path(path)
    return place / POSTERIOR_FILE if place.is_dir() else place


def read_result(path: str | os.PathLike[str], what: str = "result") -> tuple[Result, xr.DataTree]:
    """The result that a file or the folder of a run holds, and its tree; ``what`` it is called where it is none.

    Raises
    ------
    TableError
        No such file, one that holds something else, a damaged one, or a folder that may mix two runs.
    """
    place, file = Path(path), result_file(path)
    if not file.exists():
        remedy = (
            f"give a folder that holds {POSTERIOR_FILE}, as headcount infer --out writes it, or a .nc file"
        )
        raise TableError(f"{file}: there is no such file: {remedy}")
    try:
        if place.is_dir():
            _disk.check_manifest(place, POSTERIOR_FILE)
        tree = _disk.read_tree(file)
    except (_disk.OutputError, _disk.NewerFormatError) as error:
        raise TableError(str(error)) from None
    except (_disk.DamagedFileError, OSError) as error:
        raise TableError(f"{file}: this is not a {what} of headcount ({error}): {REMEDY}") from error
    try:
        result = result_of(tree, path=file)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        text = f"{file}: this is not a {what} of headcount (there is no {error}): {REMEDY}"
        raise TableError(text) from error
    wrong = [
        f"{file}: {name} in its provenance is {result.attributes.get(name)!r}: {REMEDY}"
        for name, kinds in _PROVENANCE.items()
        if not isinstance(result.attributes.get(name), kinds)
    ]
    if wrong:
        raise TableError(wrong)
    return result, tree


def last_group(last: Start) -> xr.Dataset:
    """The counts at the last time, from which a later run goes on."""
    import xarray as xr

    arrays = {"mean": ("entry", last.mean), "covariance": (("entry", "other"), last.covariance)}
    return xr.Dataset(arrays, attrs={"facts": json.dumps(last.facts)})


def last_of(group: xr.Dataset) -> Start:
    """The last counts from their group in a file."""
    facts = json.loads(group.attrs["facts"])
    return Start.of_facts(facts, group["mean"].to_numpy(), group["covariance"].to_numpy())


def _learned_group(learned: LearnedStart | None) -> dict[str, xr.Dataset]:
    """Learned parameters and the last counts given them, from which a later run goes on, as a group of their name."""
    if learned is None:
        return {}
    arrays = {
        "working": ("parameter", learned.working),
        "spread": (("parameter", "column"), learned.spread),
        "response": (("entry", "column"), learned.response),
    }
    return {"learned": last_group(learned.start).assign(arrays).assign_attrs(names=json.dumps(learned.names))}


def _learned_of(group: xr.Dataset) -> LearnedStart:
    """The inverse of :func:`_learned_group`."""
    working, spread, response = (group[name].to_numpy() for name in ("working", "spread", "response"))
    return LearnedStart(tuple(json.loads(group.attrs["names"])), working, spread, last_of(group), response)


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


def _shapes_of(data: xr.Dataset, cells: list[Hashable]) -> dict[Hashable, list[Array]]:
    """The inverse of :func:`_shape_group`."""
    points = np.stack([data["point_x"].to_numpy(), data["point_y"].to_numpy()], axis=1)
    rings = np.split(points, np.cumsum(data["ring_points"].to_numpy())[:-1])
    made: dict[Hashable, list[Array]] = {}
    for k, ring in zip(data["ring_cell"].to_numpy().tolist(), rings, strict=True):
        made.setdefault(cells[k], []).append(ring)
    return made


def _check_of(group: xr.Dataset) -> pd.DataFrame:
    """The check of fit, one row per count."""
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
"""Columns of tables in a file that are no labels."""


def _table(data: xr.Dataset, labels: list[str]) -> pd.DataFrame:
    """A dataset as a tidy table: labels first, in the order of the arrays."""
    frame = data[[name for name in _VALUES if name in data]].to_dataframe(dim_order=list(data["mean"].dims))
    frame = frame.reset_index()
    values = [name for name in _VALUES if name in frame]
    flags = [name for name in ("reliable", "possible") if name in frame]
    return frame[[*labels, *values]].astype(dict.fromkeys(flags, bool))


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

    model = posterior.problem.model
    scopes: list[Scope] = [(v,) for v in model.variables]
    if flows:
        scopes += table_scopes(model, "flows")
    tables, note = _joint_draws(posterior, draws)
    if tables is None:
        values = {scope: dense(posterior.beliefs.mean(scope))[None] for scope in scopes}
    else:
        values = {scope: margin(tables, scope) for scope in scopes}
    return {
        "posterior": xr.Dataset(_draw_arrays(model, values), attrs=note),
        **_data_groups(posterior, tables),
        **_sums_group(posterior, tables),
    }


def _sums_group(posterior: Posterior, tables: dict[Scope, Array] | None) -> dict[str, xr.Dataset]:
    """The spread of sums of a chain's flows; nothing without draws, or of another model."""
    model = posterior.problem.model
    known = tables is not None and is_plain_chain(model) and len(model.variables) > 1
    return {"sums": ChainSums.of(tables, model).group()} if known and tables is not None else {}


def sums_of(posterior: Posterior) -> ChainSums | None:
    """The spread of sums of a chain's flows, from as many joint draws as a file would hold; None where there are none."""
    made = _sums_group(posterior, _joint_draws(posterior, None)[0])
    return ChainSums.of_group(made["sums"]) if made else None


def _joint_draws(posterior: Posterior, draws: int | None) -> tuple[dict[Scope, Array] | None, dict[str, Any]]:
    """Joint draws of all clique tables, and what a file says of them; None where memory allows too few, or the engine gives none."""
    beliefs, whole = posterior.beliefs, posterior.promises.non_negative
    affordable = min(DRAWS, DRAWN_ENTRIES // max(clique_entries(posterior.problem.model), 1))
    size = affordable if draws is None else whole_number(draws, "draws")
    none = {"draws": 0, "note": "no draws were made: the only entry along draw is the mean"}
    if not beliefs.has_draws or size < (FEWEST_DRAWS if draws is None else 1):
        return None, none
    try:
        tables = beliefs.sample(size, rng=np.random.default_rng(0), integer=whole)
    except DrawError as error:
        return None, none | {"note": f"{none['note']} ({error})"}
    return tables, {"draws": size, "draws_seed": 0, "whole_numbers": int(whole)}


def draw_bytes(posterior: Posterior, draws: int) -> int:
    """Memory that so many joint draws of all tables take at once: prior, posterior and what is between."""
    return 3 * 8 * draws * clique_entries(posterior.problem.model)


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

    draws = whole_number(draws, "draws", least=1)
    if not posterior.beliefs.has_draws:
        raise ValueError(f"{posterior.engine} gives no draws: use TiltedEP, or PathGibbs with keep")
    affordable = max(min(MOST_AT_ONCE, memory.limit() // (4 * _bytes_per_draw(posterior))), 1)
    size = affordable if chunk is None else whole_number(chunk, "chunk", least=1)
    with _disk.replacing(path) as temporary, _disk.away_from_the_cluster():
        for k, start in enumerate(range(0, draws, size)):
            values = _drawn_nodes(posterior, min(size, draws - start), np.random.default_rng([seed, k]))
            arrays = _draw_arrays(posterior.problem.model, values)
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
    y = np.concatenate([np.asarray(site.noise.counts, dtype=float) for site in problem.sites])
    groups = {"observed_data": xr.Dataset({"y": ("observation", y)}, coords=coords)}
    if tables is None:
        return groups
    n = drawn_entries(problem.sites, tables)
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

    def labelled(table: Array, axes: Mapping[str, Any]) -> xr.DataArray:
        draws = {"chain": np.arange(1), "draw": np.arange(len(table))}
        return xr.DataArray(table[None], dims=(*draws, *axes), coords=draws | dict(axes))

    if is_plain_chain(model):
        cells, steps = (
            label_array(model.states[model.variables[0]]),
            list(itertools.pairwise(model.variables)),
        )
        both = np.stack([values[(v,)] for v in model.variables], axis=1)
        made = {"count": labelled(both, {"time": label_array(model.variables), "cell": cells})}
        if steps and values.keys() >= set(steps):
            axes = {"departure": label_array(model.variables[:-1]), "origin": cells, "dest": cells}
            made["flow"] = labelled(np.stack([values[step] for step in steps], axis=1), axes)
        return made
    made = {}
    for scope, table in values.items():
        names = [str(v).replace("/", "_") for v in scope]  # a slash would open a group in the file
        axes = {name: label_array(model.states[v]) for name, v in zip(names, scope, strict=True)}
        made["_".join(["count" if len(scope) == 1 else "flow", *names])] = labelled(table, axes)
    return made


# --- replicate data: what would be counted again, if the posterior is right. Draws of n, then of the noise given n


def replicates(problem: Problem, n: Array, rng: np.random.Generator) -> Array:
    """Counts drawn given the true numbers, shape (draws, counts).

    An engine whose counts may be negative (`Laplace`, `ClosedForm`) draws real numbers; a noise that has no law there is drawn at the
    nearest whole number ≥ 0.

    Raises
    ------
    NotImplementedError
        If a noise has no `sample`.
    """
    y = np.zeros(n.shape)
    for index, law in problem.noises:
        try:
            y[:, index] = law.sample(n[:, index], rng=rng)
        except ValueError:
            y[:, index] = law.sample(np.maximum(np.rint(n[:, index]), 0.0), rng=rng)
    return y


def log_likelihoods(problem: Problem, n: Array) -> Array:
    """log l(y | n) of every count, shape (draws, counts); counts with correlated errors in whitened coordinates, whose sum is right."""
    made = np.zeros(n.shape)
    for index, law in problem.noises:
        made[:, index] = law.log_prob(n[:, index])
    return made


def observation_coordinates(problem: Problem) -> dict[str, tuple[str, Any]]:
    """Along ``observation``: the name of each count and, where it is one entry of one variable's table, which."""
    labels = count_labels(problem, np.arange(sum(map(len, problem.sites))))
    made = {"name": ("observation", np.array(labels["names"], dtype=object))}
    if None in labels["variables"] or None in labels["states"]:
        return made
    first, second = ("time", "cell") if is_plain_chain(problem.model) else ("variable", "state")
    return made | {
        first: ("observation", label_array(labels["variables"])),
        second: ("observation", label_array(labels["states"])),
    }
