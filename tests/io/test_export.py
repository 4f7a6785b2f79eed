"""Results for other programs: the tables, layers and matrices that they load."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from headcount._disk import OutputError
from headcount.io import Result, TableError, export, read_omx
from headcount.io._shapes import geopackage_table
from sample_results import attributes, chain, network, relabelled


@pytest.fixture(scope="module")
def result() -> Result:
    """Nine cells in degrees, six weeks."""
    made = relabelled(
        chain(), [f"z{k}" for k in range(9)], list(pd.date_range("2024-03-01", periods=6, freq="7D"))
    )
    places = made.coordinates.assign(x=made.coordinates["x"] + 7, y=made.coordinates["y"] + 46)
    return dataclasses.replace(made, coordinates=places, attributes=attributes(geographic=True))


def large(result: Result, least: float) -> pd.DataFrame:
    flows = result.flows
    return flows[(flows["mean"] >= least) & (flows["origin"] != flows["dest"])]


def test_flowmap_gets_locations_and_flows(result: Result, tmp_path: Path) -> None:
    """id, name, lat, lon; origin, dest, count, time: every end has a location, small moves and stays are left out."""
    paths = export(result, tmp_path, to="flowmap", min_flow=5)
    assert [p.name for p in paths] == ["locations.csv", "flows.csv"]
    places, flows = (pd.read_csv(p) for p in paths)
    assert list(places.columns) == ["id", "name", "lat", "lon"]
    assert list(flows.columns[:4]) == ["origin", "dest", "count", "time"]
    assert set(flows["origin"]) | set(flows["dest"]) <= set(places["id"])
    assert len(flows) == len(large(result, 5))
    assert flows["time"].iloc[0] == "2024-03-01"


def test_kepler_gets_degrees_of_both_ends(result: Result, tmp_path: Path) -> None:
    """Every arc has the longitude and latitude of its origin and of its destination."""
    (path,) = export(result, tmp_path, to="kepler", min_flow=5)
    arcs, place = pd.read_csv(path), result.coordinates.set_index("cell")
    np.testing.assert_allclose(arcs["origin_lon"], place["x"].reindex(arcs["origin"]))
    np.testing.assert_allclose(arcs["dest_lat"], place["y"].reindex(arcs["dest"]))


def test_geopackage_has_cells_and_flows(result: Result, tmp_path: Path) -> None:
    """Two layers that say what they are; cells are points, or areas where these are known."""
    (path,) = export(result, tmp_path, to="geopackage", min_flow=5)
    with closing(sqlite3.connect(path)) as base:
        layers = dict(base.execute("SELECT table_name, geometry_type_name FROM gpkg_geometry_columns"))
        (flows,) = base.execute("SELECT COUNT(*) FROM flows").fetchone()
        assert base.execute("PRAGMA application_id").fetchone() == (0x47504B47,)
    assert layers == {"cells": "POINT", "flows": "LINESTRING"}
    assert flows == len(large(result, 5))
    cells = geopackage_table(path)
    np.testing.assert_allclose(cells["mean"], result.nodes["mean"])
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 0]], dtype=float)
    shapes = {c: [corners + k] for k, c in enumerate(result.cells)}
    (path,) = export(dataclasses.replace(result, shapes=shapes), tmp_path, to="geopackage", force=True)
    assert len(geopackage_table(path).attrs["shapes"][3][0]) == 4


def test_lines_and_matrices(result: Result, tmp_path: Path) -> None:
    """GeoJSON has the moves that are large enough; OMX every flow, under names that sort by time and that all tools take."""
    (path,) = export(result, tmp_path, to="geojson", min_flow=5)
    assert len(json.loads(path.read_text())["features"]) == len(large(result, 5))
    (path,) = export(result, tmp_path, to="omx")
    read = read_omx(path)
    assert sorted(read.data)[:2] == ["flow_2024-03-01", "flow_2024-03-08"]
    days = relabelled(chain(steps=11), list(range(9)), [f"day {k}/x" for k in range(11)])
    (path,) = export(days, tmp_path, to="omx", force=True)
    assert all(name.replace("_", "").replace("-", "").isalnum() for name in read_omx(path).data)
    (path,) = export(chain(steps=11), tmp_path, to="omx", force=True)
    assert [n for n in read_omx(path).data if n.startswith("flow")] == [f"flow_{k:02d}" for k in range(10)]


def test_what_cannot_be_exported_is_refused(result: Result, tmp_path: Path) -> None:
    """No places, no degrees, no chain, an unknown program, a file that is there: each with what to do."""
    with pytest.raises(TableError, match="needs the places"):
        export(chain(places=False), tmp_path, to="flowmap")
    with pytest.raises(TableError, match="give lon and lat, or use geojson"):
        export(chain(), tmp_path, to="kepler")
    with pytest.raises(TableError, match="times and cells"):
        export(network(), tmp_path, to="omx")
    with pytest.raises(ValueError, match="to is one of flowmap"):
        export(result, tmp_path, to="shapefile")
    with pytest.raises(ValueError, match="min_flow is a number"):
        export(result, tmp_path, min_flow=-1)
    export(result, tmp_path, to="kepler")
    with pytest.raises(OutputError, match="there already"):
        export(result, tmp_path, to="kepler")
