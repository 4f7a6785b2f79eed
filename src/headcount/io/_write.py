"""A results folder, written all or nothing and read back: one NetCDF with everything, tables, a summary, lines for maps."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount import memory
from headcount._disk import (
    MANIFEST,
    DamagedFileError,
    OutputError,
    check_manifest,
    filling,
    read_tree,
    replacing,
    write_tree,
)
from headcount.io._omx import write_flows_omx
from headcount.io._source import TableError
from headcount.posterior import Posterior
from headcount.posterior._dataset import draw_bytes, draw_groups, result_of, save_draws, tree_of
from headcount.posterior._result import MC_ERROR, SUMMARY, Result, flow_frames, possible_flows

if TYPE_CHECKING:
    import os
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    import pandas as pd

    from headcount._types import Array

POSTERIOR_FILE = "posterior.nc"
_REMEDY = "write one with headcount infer or Posterior.save"
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
    shapes: Mapping[Hashable, Sequence[Array]] | None = None,
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
    shapes
        Rings of the cells' areas, in the units of their places: maps are then drawn as areas.
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
        attributes={**made.attributes, **(attributes or {})},
        weights=weights,
        ascent=ascent,
        shapes=shapes,
    )
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
    names = [
        n
        for n in result_names(format=format, omx=True, places=True, fitted=True, is_open=True, grouped=True)
        if n in written
    ]
    return result, [place / name for name in (*names, *sorted(written - set(names)), MANIFEST)]


def _write_tables(
    result: Result, folder: Path, *, format: str, omx: bool, safe_csv: bool, min_flow: float
) -> None:
    """Everything of a results folder but the NetCDF file."""
    tables = {"nodes": result.nodes, "flows": result.flows}
    whole = {name: table.assign(level=result.level) for name, table in tables.items()}
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


def group_tables(result: Result) -> dict[str, pd.DataFrame]:
    """``group_nodes`` and ``group_flows``: the tables of all groups, one below the other, with a column ``group``; none without groups."""
    import pandas as pd

    made = {}
    for what in ("nodes", "flows") if result.groups else ():
        parts = [getattr(part, what).assign(level=result.level) for part in result.groups.values()]
        for name, part in zip(result.groups, parts, strict=True):
            part.insert(1, "group", [name] * len(part))
        made[f"group_{what}"] = pd.concat(parts, ignore_index=True).drop(columns="observed", errors="ignore")
    return made


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
        if Path(path).suffix.lower() in {".parquet", ".pq"}:
            _put_row_groups(frames, temporary)
            return
        with temporary.open("wb") as file:
            for k, frame in enumerate(frames):
                file.write(_csv(_safe(frame) if safe_csv else frame, header=k == 0))


def _put_row_groups(frames: Iterable[pd.DataFrame], path: Path) -> None:
    """Tables with the same columns, one below the other, as Parquet."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise ValueError(_NO_PARQUET) from None
    with ExitStack() as stack:
        writer: Any = None
        for frame in frames:
            table = pa.Table.from_pandas(
                frame, schema=None if writer is None else writer.schema, preserve_index=False
            )
            if writer is None:
                writer = stack.enter_context(parquet.ParquetWriter(path, table.schema))
            writer.write_table(table, row_group_size=ROW_GROUP)


_NO_PARQUET = "writing Parquet needs pyarrow: pip install 'headcount[parquet]', or choose csv"


def _csv(frame: pd.DataFrame, *, header: bool = True) -> bytes:
    text = frame.to_csv(index=False, float_format=_DIGITS, lineterminator="\n", header=header)
    return text.encode("utf-8", errors="surrogateescape")


def put_table(frame: pd.DataFrame, path: Path, suffix: str | None = None, *, safe: bool = False) -> None:
    """Write a table to `path` in the format of a `suffix`, its own unless given."""
    ending = (path.suffix if suffix is None else suffix).lower()
    if ending in {".parquet", ".pq"}:
        try:
            frame.to_parquet(path, index=False, row_group_size=ROW_GROUP)
        except ImportError:
            raise ValueError(_NO_PARQUET) from None
        return
    content = _csv(_safe(frame) if safe else frame)
    if ending == ".gz":
        content = gzip.compress(
            content, mtime=0
        )  # no time in the header: the same table gives the same bytes
    path.write_bytes(content)


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


def flow_lines(result: Result, *, smallest: float = SMALLEST_FLOW) -> dict[str, Any]:
    """A FeatureCollection of one line a time, origin and destination; staying put and flows below ``smallest`` get none."""
    assert result.coordinates is not None
    place = {
        cell: [float(x), float(y)]
        for cell, x, y in zip(*(result.coordinates[c].tolist() for c in ("cell", "x", "y")), strict=True)
    }
    flows = result.flows
    kept = flows[(flows["mean"] >= smallest) & (flows["origin"] != flows["dest"])]
    columns = [kept[c].tolist() for c in ("time", "origin", "dest", *SUMMARY)]
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "LineString", "coordinates": [place[origin], place[dest]]},
            "properties": {
                "time": time if isinstance(time, (int, float, str)) else str(time),
                "origin": origin,
                "dest": dest,
                "mean": round(mean, 6),
                **{
                    n: None if v != v else round(v, 6)
                    for n, v in (("median", median), ("sd", sd), ("lower", low), ("upper", high))
                },
                "reliable": reliable,
            },
        }
        for time, origin, dest, mean, median, sd, low, high, reliable in zip(*columns, strict=True)
    ]
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
    place = Path(path)
    file = place / POSTERIOR_FILE if place.is_dir() else place
    if not file.exists():
        remedy = (
            f"give a folder that holds {POSTERIOR_FILE}, as headcount infer --out writes it, or a .nc file"
        )
        raise TableError(f"{file}: there is no such file: {remedy}")
    try:
        if place.is_dir():
            check_manifest(place, POSTERIOR_FILE)
        tree = read_tree(file)
    except OutputError as error:
        raise TableError(str(error)) from None
    except (DamagedFileError, OSError) as error:
        raise TableError(f"{file}: this is not a result of headcount ({error}): {_REMEDY}") from error
    try:
        result = result_of(tree, path=file)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        text = f"{file}: this is not a result of headcount (there is no {error}): {_REMEDY}"
        raise TableError(text) from error
    wrong = [
        f"{file}: {name} in its provenance is {result.attributes.get(name)!r}: {_REMEDY}"
        for name, kinds in _PROVENANCE.items()
        if not isinstance(result.attributes.get(name), kinds)
    ]
    if wrong:
        raise TableError(wrong)
    return result
