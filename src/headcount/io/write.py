"""What is written: results folders (and read back), files for other programs, simulated worlds; each whole or not at all.

A results folder has one NetCDF with everything, tables, a summary and lines for maps.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import sparse

from headcount import memory
from headcount._disk import (
    MANIFEST,
    OutputError,
    filling,
    replacing,
    write_tree,
)
from headcount.dates import readable
from headcount.errors import TableError, shown
from headcount.io._omx import write_flows_omx
from headcount.io._shapes import write_geopackage
from headcount.posterior import Posterior
from headcount.posterior.dataset import (
    POSTERIOR_FILE,
    draw_bytes,
    draw_groups,
    read_result,
    save_draws,
    tree_of,
)
from headcount.posterior.result import MC_ERROR, SUMMARY, Result, by_group, flow_frames, possible_flows

if TYPE_CHECKING:
    import os
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from headcount._types import Array
    from headcount.individual import MarkovChain
    from headcount.io.tables import PlaceTable
    from headcount.observe import LearnedStart
    from headcount.simulate import World

FORMATS = ("csv", "parquet")
ROW_GROUP = 1_000_000
"""Rows of a Parquet table that are written, and can be read, together: about 60 MB of a table of flows."""
FLOW_BYTES = 500
"""Bytes of memory per row of a table of flows that is written whole: eleven numbers of 8 bytes in the table, its copy with the level, the
arrays of the NetCDF file, the bytes whose checksum is taken, and the file, which is made in memory."""
LARGEST_KEPT = 100_000
"""Flows kept for NetCDF, page, summary and lines where the whole table is too large: more than a page shows."""
DRAWS_FILE = "draws.nc"
SMALLEST_FLOW = 0.5
"""Expected individuals below which a move gets no line; the tables have them all."""
_DIGITS = "%.10g"
"""Significant digits of numbers in CSV: enough for what a posterior knows, and short enough to read."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a text that spreadsheets run as a formula."""


def write_results(
    posterior: Posterior,
    folder: str | os.PathLike[str],
    *,
    level: float = 0.9,
    format: str = "csv",
    attributes: Mapping[str, Any] | None = None,
    weights: pd.DataFrame | None = None,
    ascent: pd.DataFrame | None = None,
    learned: LearnedStart | None = None,
    shapes: Mapping[Hashable, Sequence[Array]] | None = None,
    names: Mapping[Hashable, str] | None = None,
    coordinates: pd.DataFrame | None = None,
    before: pd.DataFrame | None = None,
    omx: bool = False,
    min_flow: float = SMALLEST_FLOW,
    safe_csv: bool = False,
    draws: int | None = None,
    draw_flows: bool = False,
    force: bool = False,
) -> tuple[Result, list[Path]]:
    """Write ``posterior.nc``, ``nodes`` and ``flows`` (CSV or Parquet), ``summary.json`` and, with places, ``flows.geojson``.

    Every file is made in a temporary folder and all are put in place at the end, so that an error or a full disk leaves what was
    there before. ``manifest.json`` holds their checksums; a kill while they are put in place leaves a folder that `load_result` refuses.

    A table of flows that does not fit in memory is written step by step; the NetCDF file, and what is made of it, has the `LARGEST_KEPT`
    largest flows then, and its attribute ``flows_in_all`` says how many there are.

    Parameters
    ----------
    level
        Of the intervals; it is a column of the tables too.
    attributes
        Further provenance, such as the command; JSON must be able to hold it.
    weights, ascent
        What a fit adds (``feature, weight, …``; one row per iteration); they go into the NetCDF and beside it.
    learned
        Parameters and last counts of a fit, from which ``headcount infer --after`` goes on.
    shapes
        Rings of the cells' areas, in the units of their places: maps are then drawn as areas.
    names
        What people call the cells: tables, exports and the page then have the names beside the labels.
    coordinates
        ``cell, x, y`` of the cells, where the counts do not carry them: of a forecast, those of its past.
    before
        An old matrix ``origin, dest, before`` of a chain of one step: ``changes`` holds it against the flows.
    omx
        Write ``flows.omx`` too, for transport tools.
    min_flow
        Smallest expected move that gets a line in ``flows.geojson``.
    safe_csv
        Put an apostrophe before texts in CSV that a spreadsheet would run as a formula (``=``, ``+``, ``-``, ``@`` in front).
    draws, draw_flows
        How many joint draws the NetCDF holds (100, or as many as memory allows, unless given), and whether flows are among them.
        A number that is given and does not fit in memory is written to ``draws.nc``, in parts (see `Posterior.save_draws`).
    force
        Overwrite files that an earlier run did not write, or that were changed since; they are refused otherwise.

    Returns
    -------
    Result, list of Path
        The result as `load_result` reads it, and the files written.
    """
    if format not in FORMATS:
        message = f"format must be one of {', '.join(FORMATS)}, got {format!r}"
        raise ValueError(message)
    later: dict[str, Callable[[Path], None]] = {}
    too_many = FLOW_BYTES * possible_flows(posterior.problem.model) > memory.limit()
    if too_many and posterior.problem.groups is None:
        later[f"flows.{format}"] = partial(write_flows, posterior, level=level, safe_csv=safe_csv)
    if draws and posterior.beliefs.has_draws and draw_bytes(posterior, draws) > memory.limit():
        later[DRAWS_FILE] = partial(save_draws, posterior, draws=draws)
    most = LARGEST_KEPT if f"flows.{format}" in later else None
    made = Result.of(posterior, level=level, most_flows=most)
    result = replace(
        made,
        attributes={**made.attributes, **(attributes or {}), **named(names)},
        weights=weights,
        ascent=ascent,
        learned=learned,
        shapes=shapes,
        coordinates=made.coordinates if coordinates is None else coordinates,
    )
    later |= _change_table(result, before, format, safe=safe_csv) if most is None else {}
    groups = draw_groups(posterior, draws=0 if DRAWS_FILE in later else draws, flows=draw_flows)
    return put_results(
        result,
        folder,
        draws=groups,
        later=later,
        format=format,
        omx=omx,
        min_flow=min_flow,
        safe_csv=safe_csv,
        force=force,
    )


def put_results(
    result: Result,
    folder: str | os.PathLike[str],
    *,
    draws: Mapping[str, Any],
    later: Mapping[str, Callable[[Path], None]] | None = None,
    format: str = "csv",
    omx: bool = False,
    min_flow: float = SMALLEST_FLOW,
    safe_csv: bool = False,
    force: bool = False,
) -> tuple[Result, list[Path]]:
    """As `write_results`, of a result that may come from another process, and its draws as `draw_groups` makes them.

    ``later`` are files with functions of their path that write them, in the place of a table or in addition.
    """
    place = Path(folder)
    result = replace(result, path=place / POSTERIOR_FILE)
    tree = tree_of(result, draws=draws)
    with filling(place, force=force) as stage:
        write_tree(tree, stage / POSTERIOR_FILE)
        for name, write in (later or {}).items():
            write(stage / name)
        _write_tables(result, stage, format=format, omx=omx, safe_csv=safe_csv, min_flow=min_flow)
        written = {path.name for path in stage.iterdir()}
    known = result_names(format=format, omx=True, places=True, fitted=True, is_open=True, grouped=True)
    names = [*filter(written.__contains__, known), *sorted(written.difference(known)), MANIFEST]
    return result, [place / name for name in names]


def _write_tables(
    result: Result, folder: Path, *, format: str, omx: bool, safe_csv: bool, min_flow: float
) -> None:
    """Everything of a results folder but the NetCDF file."""
    tables = {"nodes": result.nodes, "flows": result.flows}
    whole = {name: with_names(table.assign(level=result.level), result) for name, table in tables.items()}
    rest = {name: getattr(result, name) for name in ("weights", "ascent", "arrivals", "departures")}
    for name, table in {**whole, **rest, **group_tables(result)}.items():
        path = folder / f"{name}.{format}"
        if table is not None and not path.exists():  # it may have been written step by step
            put_table(table, path, safe=safe_csv)
    _write_json(summary(result), folder / "summary.json")
    if result.coordinates is not None and result.is_chain:
        write_lines(flow_lines(result, smallest=min_flow), folder / "flows.geojson")
    if omx:
        write_flows_omx(result, folder / "flows.omx")


def named(names: Mapping[Hashable, str] | None) -> dict[str, Any]:
    """What people call the cells, as an attribute of a result; nothing where they have no names."""
    return {"names": {readable(cell): text for cell, text in names.items()}} if names else {}


def with_names(table: pd.DataFrame, result: Result) -> pd.DataFrame:
    """The table with what people call its cells as last columns (``name``, or ``origin_name, dest_name``), where they have names."""
    if not result.attributes.get("names"):
        return table
    ends = {"cell": "name", "origin": "origin_name", "dest": "dest_name"}
    return table.assign(**{new: table[old].map(result.name_of) for old, new in ends.items() if old in table})


def _change_table(
    result: Result, before: pd.DataFrame | None, format: str, *, safe: bool
) -> dict[str, Callable[[Path], None]]:
    """What writes the old matrix beside the new one; nothing without one, or for more than one step."""
    if before is None or len(result.times) != 2:
        return {}
    return {
        f"changes.{format}": partial(put_table, with_names(changes(result.flows, before), result), safe=safe)
    }


def changes(flows: pd.DataFrame, before: pd.DataFrame) -> pd.DataFrame:
    """Old trips and new flows of every pair, ``origin, dest, before, mean, lower, upper, change, clear``.

    A change is clear where the old number lies outside the interval of the new one.
    """
    new = flows[["origin", "dest", "mean", "lower", "upper"]]
    made = before.merge(new, on=["origin", "dest"], how="outer").fillna({"before": 0.0, "mean": 0.0})
    clear = (made["before"] < made["lower"]) | (made["before"] > made["upper"])
    return made.assign(change=made["mean"] - made["before"], clear=clear)


def group_tables(result: Result) -> dict[str, pd.DataFrame]:
    """``group_nodes`` and ``group_flows``: the tables of all groups, one below the other; none without groups."""
    return {
        f"group_{what}": by_group(
            {g: getattr(r, what).assign(level=r.level) for g, r in result.groups.items()}
        )
        for what in (("nodes", "flows") if result.groups else ())
    }


def result_names(
    *, format: str, omx: bool, places: bool, fitted: bool, is_open: bool = False, grouped: bool = False
) -> list[str]:
    """Files that `write_results` will write, so that a folder can be checked before the work."""
    tables = ["nodes", "flows", *(["weights", "ascent"] if fitted else [])]
    tables += ["arrivals", "departures"] if is_open else []
    tables += ["group_nodes", "group_flows"] if grouped else []
    extra = [*(["flows.geojson"] if places else []), *(["flows.omx"] if omx else [])]
    return [POSTERIOR_FILE, *(f"{name}.{format}" for name in tables), "summary.json", *extra]


def summary(result: Result) -> dict[str, Any]:
    """What a program or a person asks first: how it went, how much there is, the largest flows."""
    flows = result.flows
    labels = [c for c in flows.columns if c not in {*SUMMARY, MC_ERROR}]
    moved = flows[flows["origin"] != flows["dest"]] if "origin" in flows else flows
    largest = moved.nlargest(10, "mean") if len(moved) else moved
    return {
        **result.attributes,
        "times" if result.is_chain else "variables": len(result.times),
        "cells" if result.is_chain else "states": len(result.cells),
        "observed": int(result.nodes["observed"].notna().sum()),
        "flows": result.attributes.get("flows_in_all", len(flows)),
        "reliable_nodes": _share(result.nodes),
        "reliable_flows": _share(flows),
        "largest_flows": json.loads(
            largest[[*labels, "mean", "median", "lower", "upper"]].to_json(
                orient="records", date_format="iso"
            )
        ),
    }


def write_table(frame: pd.DataFrame, path: str | os.PathLike[str], *, safe_csv: bool = False) -> None:
    """One table as CSV, compressed CSV or Parquet (by its ending), whole or not at all; ``safe_csv`` as in `write_results`."""
    with replacing(path) as temporary:
        put_table(frame, temporary, Path(path).suffix, safe=safe_csv)


def write_flows(
    posterior: Posterior, path: str | os.PathLike[str], *, level: float = 0.9, safe_csv: bool = False
) -> None:
    """The table of flows as CSV or Parquet (by the path's ending), step by step: the whole is never in memory.

    Parquet has row groups of at most `ROW_GROUP` rows. The columns are those of `write_results`.
    """
    frames = (frame.assign(level=level) for frame in flow_frames(posterior, level=level))
    with replacing(path) as temporary:
        put_frames(frames, temporary, Path(path).suffix, safe=safe_csv)


def put_table(frame: pd.DataFrame, path: Path, suffix: str | None = None, *, safe: bool = False) -> None:
    """Write a table to `path` in the format of a `suffix`, its own unless given."""
    put_frames([frame], path, path.suffix if suffix is None else suffix, safe=safe)


def put_frames(frames: Iterable[pd.DataFrame], path: Path, suffix: str, *, safe: bool = False) -> None:
    """Tables with the same columns, one below the other, as Parquet, compressed CSV or CSV."""
    ending = suffix.lower()
    if ending in {".parquet", ".pq"}:
        _put_row_groups(frames, path)
        return
    with ExitStack() as stack:
        file: Any = stack.enter_context(path.open("wb"))
        if ending == ".gz":  # neither name nor time in the header: the same table gives the same bytes
            file = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
        for k, frame in enumerate(frames):
            text = (_safe(frame) if safe else frame).to_csv(
                index=False, float_format=_DIGITS, lineterminator="\n", header=k == 0
            )
            file.write(text.encode("utf-8", errors="surrogateescape"))


def _put_row_groups(frames: Iterable[pd.DataFrame], path: Path) -> None:
    """Tables with the same columns, one below the other, as Parquet."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise ValueError(
            "writing Parquet needs pyarrow: pip install 'headcount[parquet]', or choose csv"
        ) from None
    with ExitStack() as stack:
        writer: Any = None
        for frame in frames:
            schema = None if writer is None else writer.schema
            table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
            if writer is None:
                writer = stack.enter_context(parquet.ParquetWriter(path, table.schema))
            writer.write_table(table, row_group_size=ROW_GROUP)


def formula_note(labels: Iterable[Hashable]) -> list[str]:
    """What to say where a spreadsheet would run labels of a CSV file as formulas; nothing where there are none."""
    found = [label for label in labels if isinstance(label, str) and label[:1] in _FORMULA]
    if not found:
        return []
    return [
        f"{len(found)} labels begin like a formula ({shown(found, 3)}): a spreadsheet would run them; --safe-csv (safe_csv=True) puts an "
        "apostrophe before them in CSV files"
    ]


def _safe(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with texts that a spreadsheet takes as text: an apostrophe before what would be run as a formula."""

    def shielded(value: Any) -> Any:
        return f"'{value}" if isinstance(value, str) and value[:1] in _FORMULA else value

    texts = [c for c in frame.columns if frame[c].dtype.kind not in "biufM"]
    return frame.assign(**{c: frame[c].astype(object).map(shielded) for c in texts})


def _share(frame: pd.DataFrame) -> float | None:
    return round(float(frame["reliable"].astype(float).mean()), 4) if len(frame) else None


def _write_json(value: Any, path: Path) -> None:
    path.write_text(json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")


def _moves(result: Result, smallest: float) -> pd.DataFrame:
    """The flows that are large enough, without staying put."""
    flows = result.flows
    return flows[(flows["mean"] >= smallest) & (flows["origin"] != flows["dest"])].reset_index(drop=True)


def flow_lines(result: Result, *, smallest: float = SMALLEST_FLOW) -> dict[str, Any]:
    """A FeatureCollection of one line per time, origin and destination; staying put and flows below ``smallest`` get none."""
    assert result.coordinates is not None
    points = result.coordinates[["x", "y"]].to_numpy(dtype=float).tolist()
    place = dict(zip(result.coordinates["cell"].tolist(), points, strict=True))
    features = []
    moves = with_names(_moves(result, smallest)[["time", "origin", "dest", *SUMMARY]], result)
    for move in moves.to_dict("records"):
        time, ends = move["time"], [place[move["origin"]], place[move["dest"]]]
        known = {n: move[n] for n in SUMMARY if n != "reliable"}
        told = {
            "time": time if isinstance(time, (int, float, str)) else str(time),
            **{n: None if v != v else round(v, 6) for n, v in known.items()},
        }
        line = {"type": "LineString", "coordinates": ends}
        features.append({"type": "Feature", "geometry": line, "properties": move | told})
    return {
        "type": "FeatureCollection",
        "name": "flows",
        "interval_level": result.level,
        "smallest_flow": smallest,
        "axes": "lon, lat" if result.geographic else "x, y",
        "features": features,
    }


def write_lines(collection: dict[str, Any], path: Path) -> None:
    """The collection as a file with one feature a line, so that it can be read and compared line by line."""
    head = json.dumps(
        {k: v for k, v in collection.items() if k != "features"}, ensure_ascii=False, allow_nan=False
    )
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(head[:-1] + ', "features": [')
        for k, feature in enumerate(collection["features"]):
            file.write(("," if k else "") + "\n" + json.dumps(feature, ensure_ascii=False, allow_nan=False))
        file.write("\n]}\n")


# --- reading a finished run back


def as_result(given: Result | Posterior | str | os.PathLike[str]) -> Result:
    """A result in memory as it is, that of a posterior, or the one that a path holds."""
    if isinstance(given, Result):
        return given
    return Result.of(given) if isinstance(given, Posterior) else load_result(given)


def load_result(path: str | os.PathLike[str]) -> Result:
    """Read a folder written by ``headcount infer`` or ``fit``, or a file written by ``Posterior.save``.

    Raises
    ------
    TableError
        No such file, one that holds something else, a damaged one, or a folder that may mix two runs.
    """
    return read_result(path)[0]


# --- for other programs: tables for flowmap.blue, arcs for kepler.gl, GeoPackage, GeoJSON, OMX


_PROGRAMS = ("flowmap", "kepler", "geopackage", "geojson", "omx")


def export(
    result: Result | Posterior | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    to: str = "flowmap",
    min_flow: float = SMALLEST_FLOW,
    force: bool = False,
) -> list[Path]:
    """Write a result for another program; each file whole or not at all.

    Parameters
    ----------
    result
        A result or posterior in memory, a folder that ``headcount infer`` or ``fit`` wrote, or a ``.nc`` file.
    folder
        Where the files go.
    to
        ``flowmap``: ``locations.csv`` (id, name, lat, lon) and ``flows.csv`` (origin, dest, count, time) for flowmap.blue.
        ``kepler``: ``arcs.csv``, one row per move with the degrees of both ends. ``geopackage``: ``results.gpkg`` with the layers
        ``cells`` (areas where they are known, points otherwise) and ``flows``. ``geojson``: ``flows.geojson``. ``omx``: ``flows.omx``.
    min_flow
        Moves that are expected to take fewer are left out (not from OMX, which holds whole matrices).
    force
        Overwrite files that are there.

    Raises
    ------
    TableError
        A result without times and cells, without places, or (for web maps) whose places are not degrees.
    """
    known = as_result(result)
    if to not in _PROGRAMS:
        raise ValueError(f"to is one of {', '.join(_PROGRAMS)}, got {to!r}")
    if not min_flow >= 0:
        raise ValueError(f"min_flow is a number ≥ 0, got {min_flow!r}")
    _check_export(known, to)
    place = Path(folder)
    writers: dict[str, dict[str, Callable[[Path], None]]] = {
        "flowmap": {
            "locations.csv": lambda path: put_table(_locations(known), path, ".csv"),
            "flows.csv": lambda path: put_table(_flow_table(known, min_flow), path, ".csv"),
        },
        "kepler": {"arcs.csv": lambda path: put_table(_arcs(known, min_flow), path, ".csv")},
        "geopackage": {"results.gpkg": lambda path: _geopackage(known, path, min_flow)},
        "geojson": {"flows.geojson": lambda path: write_lines(flow_lines(known, smallest=min_flow), path)},
        "omx": {"flows.omx": lambda path: write_flows_omx(known, path)},
    }
    there = [place / name for name in writers[to] if (place / name).exists()]
    if there and not force:
        raise OutputError(
            f"{there[0]}: this file is there already: give another folder, or overwrite it with --force"
        )
    for name, write in writers[to].items():
        with replacing(place / name) as temporary:
            write(temporary)
    return [place / name for name in writers[to]]


def _check_export(result: Result, to: str) -> None:
    if not result.is_chain:
        raise TableError("only a result with times and cells has moves to export; this one has variables")
    if to != "omx" and result.coordinates is None:
        raise TableError(f"{to} needs the places of the cells: give lon and lat with --cells and infer again")
    if to in {"flowmap", "kepler"} and not result.geographic:
        raise TableError(
            f"{to} draws on a map of the world, but the places are x and y: give lon and lat, or use geojson"
        )


def _locations(result: Result) -> pd.DataFrame:
    """``id, name, lat, lon``, one row per cell."""
    assert result.coordinates is not None
    found = result.coordinates
    names = found["cell"].astype(str)
    return pd.DataFrame(
        {"id": names, "name": found["cell"].map(result.name_of), "lat": found["y"], "lon": found["x"]}
    )


def _flow_table(result: Result, min_flow: float) -> pd.DataFrame:
    """``origin, dest, count, time, lower, upper`` of the moves that are large enough."""
    flows = _moves(result, min_flow)
    moves = flows[["origin", "dest", "mean", "time", "lower", "upper"]].rename(columns={"mean": "count"})
    return with_names(moves, result)


def _arcs(result: Result, min_flow: float) -> pd.DataFrame:
    """The moves with the degrees of both ends."""
    flows = _flow_table(result, min_flow)
    assert result.coordinates is not None
    place = result.coordinates.set_index("cell")
    for end in ("origin", "dest"):
        for axis, name in (("x", "lon"), ("y", "lat")):
            flows[f"{end}_{name}"] = place[axis].reindex(flows[end]).to_numpy()
    return flows


def _geopackage(result: Result, path: Path, min_flow: float) -> None:
    assert result.coordinates is not None
    names = result.coordinates["cell"].tolist()
    place = dict(zip(names, result.coordinates[["x", "y"]].to_numpy(dtype=float), strict=True))
    shapes = result.shapes or {}
    areas = all(cell in shapes for cell in names)
    cells = result.nodes["cell"].tolist()
    where: list[Sequence[Array]] = [shapes[c] if areas else [place[c][None]] for c in cells]
    flows = _moves(result, min_flow)
    lines: list[Sequence[Array]] = [
        [np.stack([place[o], place[d]])] for o, d in zip(flows["origin"], flows["dest"], strict=True)
    ]
    path.unlink(missing_ok=True)
    # Times as text, as other programs read them.
    nodes, flows = (
        table.astype({"time": str}) if table["time"].dtype.kind == "M" else table
        for table in (with_names(result.nodes, result), with_names(flows, result))
    )
    layers = [
        ("cells", "POLYGON" if areas else "POINT", nodes, where),
        ("flows", "LINESTRING", flows, lines),
    ]
    write_geopackage(path, layers, degrees=result.geographic)


# --- a simulated world as the tables that a user would hold, and the truth beside them


def write_world(
    world: World, folder: str | os.PathLike[str], *, places: PlaceTable | None = None, force: bool = False
) -> list[Path]:
    """Write what `read_problem` reads, and the truth; all files or none.

    ``counts.csv``, ``transitions.csv``, ``initial.csv``, where there are such ``cells.csv`` and ``features.csv.gz``, and
    ``truth_counts.csv``, ``truth_flows.csv``; ``manifest.json`` holds their checksums. Moves of probability 0, and true flows of 0,
    have no row.

    Parameters
    ----------
    places
        Where the cells are, if the world does not say.
    force
        Overwrite files that an earlier run did not write, or that were changed since; they are refused otherwise.
    """
    tables = _world_tables(world, places)
    with filling(folder, force=force) as stage:
        for name, table in tables.items():
            put_table(table, stage / name)
    return [Path(folder) / name for name in (*tables, MANIFEST)]


def _world_tables(world: World, places: PlaceTable | None) -> dict[str, pd.DataFrame]:
    """``{file name: table}`` of a world of a chain."""
    chain: Any = world.model
    times, cells = list(chain.times), list(chain.cells)
    shape = (len(times), len(cells))
    t, c = (index.ravel() for index in np.indices(shape))
    where: dict[str, Any] = {} if places is None else places.columns([str(cell) for cell in cells])
    if world.coordinates is not None:
        where = {"x": world.coordinates[:, 0], "y": world.coordinates[:, 1]}
    labels = {"time": _take(times, t), "cell": _take(cells, c)}
    beside = {name: values[c] for name, values in where.items()}
    seen = world.observed.to_numpy().ravel()
    tables = {
        "counts.csv": pd.DataFrame(labels | beside | {"count": _whole(seen)}),
        "transitions.csv": _transitions(chain, times, cells),
        "initial.csv": pd.DataFrame({"cell": cells, "probability": chain.initial})[chain.initial > 0],
    }
    if where:
        tables["cells.csv"] = pd.DataFrame({"cell": cells} | where)
    if world.features is not None:
        tables["features.csv.gz"] = _features(world, times, cells)
    tables["truth_counts.csv"] = pd.DataFrame(labels | {"count": world.counts.ravel()})
    t, i, j = np.nonzero(world.flows)
    moved = {"time": _take(times, t), "origin": _take(cells, i), "dest": _take(cells, j)}
    tables["truth_flows.csv"] = pd.DataFrame(moved | {"count": world.flows[t, i, j]})
    return tables


def _transitions(chain: MarkovChain, times: list[Any], cells: list[Any]) -> pd.DataFrame:
    """Possible moves with their probabilities; without a column of times where every step is the same."""
    alike = len({id(m) for m in chain.transitions}) == 1
    parts = []
    for time, matrix in zip(times[:1] if alike else times[:-1], chain.transitions, strict=False):
        table = sparse.coo_array(matrix)
        order = np.lexsort((table.coords[1], table.coords[0]))
        i, j = table.coords[0][order], table.coords[1][order]
        head = {} if alike else {"time": [time] * len(i)}
        parts.append(
            pd.DataFrame(
                head | {"from": _take(cells, i), "to": _take(cells, j), "probability": table.data[order]}
            )
        )
    return pd.concat(parts, ignore_index=True)


def _features(world: World, times: list[Any], cells: list[Any]) -> pd.DataFrame:

    assert world.features is not None
    values = np.asarray(world.features)
    allowed = np.ones(values.shape[2:], bool) if world.mask is None else np.isfinite(world.mask)
    t, i, j = np.nonzero(np.broadcast_to(allowed, (len(values), *allowed.shape)))
    head = {"time": _take(times, t), "from": _take(cells, i), "to": _take(cells, j)}
    return pd.DataFrame(head | {name: values[t, k, i, j] for k, name in enumerate(world.features.names)})


def _take(labels: list[Any], index: np.ndarray) -> list[Any]:
    return [labels[k] for k in index.tolist()]


def _whole(values: np.ndarray) -> Any:
    """Counts as whole numbers where they all are."""
    return values.astype(np.int64) if (values == np.rint(values)).all() else values
