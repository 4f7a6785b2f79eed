"""What other programs load next: a pair of tables for flowmap.blue, arcs for kepler.gl, GeoPackage, GeoJSON, OMX."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headcount._disk import OutputError, replacing
from headcount.io._omx import write_flows_omx
from headcount.io._shapes import write_geopackage
from headcount.io._source import TableError
from headcount.io._write import SMALLEST_FLOW, as_result, flow_lines, put_table, write_lines

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    import pandas as pd

    from headcount._types import Array
    from headcount.posterior import Posterior
    from headcount.posterior._result import Result

FORMATS = ("flowmap", "kepler", "geopackage", "geojson", "omx")


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
    if to not in FORMATS:
        raise ValueError(f"to is one of {', '.join(FORMATS)}, got {to!r}")
    if not min_flow >= 0:
        raise ValueError(f"min_flow is a number ≥ 0, got {min_flow!r}")
    _check(known, to)
    place = Path(folder)
    writers: dict[str, dict[str, Callable[[Path], None]]] = {
        "flowmap": {
            "locations.csv": lambda path: put_table(locations(known), path, ".csv"),
            "flows.csv": lambda path: put_table(flow_table(known, min_flow), path, ".csv"),
        },
        "kepler": {"arcs.csv": lambda path: put_table(arcs(known, min_flow), path, ".csv")},
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


def _check(result: Result, to: str) -> None:
    if not result.is_chain:
        raise TableError("only a result with times and cells has moves to export; this one has variables")
    if to != "omx" and result.coordinates is None:
        raise TableError(f"{to} needs the places of the cells: give lon and lat with --cells and infer again")
    if to in {"flowmap", "kepler"} and not result.geographic:
        raise TableError(
            f"{to} draws on a map of the world, but the places are x and y: give lon and lat, or use geojson"
        )


def locations(result: Result) -> pd.DataFrame:
    """``id, name, lat, lon``, one row per cell."""
    import pandas as pd

    assert result.coordinates is not None
    found = result.coordinates
    names = found["cell"].astype(str)
    return pd.DataFrame({"id": names, "name": names, "lat": found["y"], "lon": found["x"]})


def flow_table(result: Result, min_flow: float) -> pd.DataFrame:
    """``origin, dest, count, time, lower, upper`` of the moves that are large enough."""
    flows = _moves(result, min_flow)
    return flows[["origin", "dest", "mean", "time", "lower", "upper"]].rename(columns={"mean": "count"})


def arcs(result: Result, min_flow: float) -> pd.DataFrame:
    """The moves with the degrees of both ends."""
    flows = flow_table(result, min_flow)
    assert result.coordinates is not None
    place = result.coordinates.set_index("cell")
    for end in ("origin", "dest"):
        for axis, name in (("x", "lon"), ("y", "lat")):
            flows[f"{end}_{name}"] = place[axis].reindex(flows[end]).to_numpy()
    return flows


def _moves(result: Result, min_flow: float) -> pd.DataFrame:
    flows = result.flows
    return flows[(flows["mean"] >= min_flow) & (flows["origin"] != flows["dest"])].reset_index(drop=True)


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
    layers = [
        ("cells", "POLYGON" if areas else "POINT", _plain(result.nodes), where),
        ("flows", "LINESTRING", _plain(flows), lines),
    ]
    write_geopackage(path, layers, degrees=result.geographic)


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    """Times as text, as other programs read them."""
    return table.assign(time=table["time"].astype(str)) if table["time"].dtype.kind == "M" else table
