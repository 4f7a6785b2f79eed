"""A results folder: one NetCDF with everything, tables for other programs, a summary, lines for maps. All or nothing."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount._atomic import MANIFEST, filling, replacing
from headcount._netcdf import write_tree
from headcount.io._omx import write_flows_omx
from headcount.io._result import POSTERIOR_FILE
from headcount.posterior._dataset import draw_groups, tree_of
from headcount.posterior._frames import MC_ERROR, SUMMARY
from headcount.posterior._result import Result

if TYPE_CHECKING:
    import os
    from collections.abc import Hashable, Mapping, Sequence

    import pandas as pd

    from headcount._types import Array
    from headcount.engines import Posterior

FORMATS = ("csv", "parquet")
ROW_GROUP = 1_000_000
"""Rows of a Parquet table that are written, and can be read, together: about 60 MB of a table of flows."""
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
    made = Result.of(posterior, level=level)
    result = replace(
        made,
        attributes={**made.attributes, **(attributes or {})},
        weights=weights,
        ascent=ascent,
        shapes=shapes,
    )
    groups = draw_groups(posterior, draws=draws, flows=draw_flows)
    return put_results(
        result,
        folder,
        draws=groups,
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
    format: str = "csv",
    omx: bool = False,
    min_flow: float = SMALLEST_FLOW,
    safe_csv: bool = False,
    force: bool = False,
) -> tuple[Result, list[Path]]:
    """As `write_results`, of a result that may come from another process, and its draws as `draw_groups` makes them."""
    place = Path(folder)
    result = replace(result, path=place / POSTERIOR_FILE)
    tree = tree_of(result, draws=draws)
    with filling(place, force=force) as stage:
        write_tree(tree, stage / POSTERIOR_FILE)
        _write_tables(result, stage, format=format, omx=omx, safe_csv=safe_csv, min_flow=min_flow)
        written = {path.name for path in stage.iterdir()}
    names = [
        n
        for n in result_names(format=format, omx=True, places=True, fitted=True, is_open=True, grouped=True)
        if n in written
    ]
    return result, [place / name for name in (*names, MANIFEST)]


def _write_tables(
    result: Result, folder: Path, *, format: str, omx: bool, safe_csv: bool, min_flow: float
) -> None:
    """Everything of a results folder but the NetCDF file."""
    tables = {"nodes": result.nodes, "flows": result.flows}
    whole = {name: table.assign(level=result.level) for name, table in tables.items()}
    rest = {name: getattr(result, name) for name in ("weights", "ascent", "arrivals", "departures")}
    for name, table in {**whole, **rest, **group_tables(result)}.items():
        if table is not None:
            put_table(table, folder / f"{name}.{format}", safe=safe_csv)
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
        "flows": len(flows),
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


def put_table(frame: pd.DataFrame, path: Path, suffix: str | None = None, *, safe: bool = False) -> None:
    """Write a table to `path` in the format of a `suffix`, its own unless given."""
    ending = (path.suffix if suffix is None else suffix).lower()
    if ending in {".parquet", ".pq"}:
        try:
            frame.to_parquet(path, index=False, row_group_size=ROW_GROUP)
        except ImportError:
            message = "writing Parquet needs pyarrow: pip install 'headcount[parquet]', or choose csv"
            raise ValueError(message) from None
        return
    text = (_safe(frame) if safe else frame).to_csv(index=False, float_format=_DIGITS, lineterminator="\n")
    content = text.encode("utf-8", errors="surrogateescape")
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
