"""Areas of cells in and out: GeoJSON, GeoPackage, and the way to the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headcount import infer
from headcount.io import TableError, load_result, read_problem, write_results
from headcount.io._shapes import geojson_table, geopackage_table, write_geopackage

NAMES = ["Übersee", "Moor", "Hügel"]


def square(x: float, y: float, size: float = 1.0) -> np.ndarray:
    return np.array([[x, y], [x + size, y], [x + size, y + size], [x, y + size], [x, y]])


def zones(**changes: Any) -> dict[str, Any]:
    """Three squares side by side in degrees; the last has a hole and a second part."""
    shapes: list[dict[str, Any]] = [
        {"type": "Polygon", "coordinates": [square(7 + k, 46).tolist()]} for k in range(2)
    ]
    parts = [[square(9, 46).tolist(), square(9.4, 46.4, 0.2)[::-1].tolist()], [square(9, 48, 0.1).tolist()]]
    shapes.append({"type": "MultiPolygon", "coordinates": parts})
    features = [
        {"type": "Feature", "properties": {"zone": name}, "geometry": shape}
        for name, shape in zip(NAMES, shapes, strict=True)
    ]
    return {"type": "FeatureCollection", "features": features} | changes


def written(folder: Path, value: Any, name: str = "zones.geojson") -> Path:
    path = folder / name
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_polygons_are_a_table_of_cells(tmp_path: Path) -> None:
    """One row per feature, its centroid in degrees, its rings with holes and parts."""
    table = geojson_table(written(tmp_path, zones()))
    assert table["zone"].tolist() == NAMES
    np.testing.assert_allclose(table[["lon", "lat"]], [[7.5, 46.5], [8.5, 46.5], [9.5, 46.5]])
    assert [len(rings) for rings in table.attrs["shapes"]] == [1, 1, 3]
    np.testing.assert_array_equal(table.attrs["shapes"][2][1], square(9.4, 46.4, 0.2)[::-1])


def test_other_coordinates_are_no_degrees(tmp_path: Path) -> None:
    """A stated other system, or numbers beyond degrees, give x and y; the feature's own id may name the cell."""
    swiss = {"crs": {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::2056"}}}
    assert {"x", "y"} <= set(geojson_table(written(tmp_path, zones(**swiss))).columns)
    far = {"type": "Polygon", "coordinates": [square(2_600_000, 1_200_000, 500.0).tolist()]}
    table = geojson_table(
        written(
            tmp_path,
            {"features": [{"type": "Feature", "id": "A1", "properties": None, "geometry": far}]},
        )
    )
    assert table["cell"].tolist() == ["A1"]
    np.testing.assert_allclose(table[["x", "y"]], [[2_600_250, 1_200_250]])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "this is not GeoJSON"),
        ('{"features": []}', "no polygon and no point"),
        ('{"features": [{"properties": {}, "geometry": null}]}', r"features \[1\] have no polygon"),
        (
            '{"features": [{"properties": {}, "geometry": {"type": "LineString", "coordinates": []}}]}',
            "no polygon",
        ),
        ("{", "this is not GeoJSON"),
    ],
)
def test_what_is_no_area_is_refused(tmp_path: Path, content: str, said: str) -> None:
    """Files that hold no polygons are refused with what to give instead."""
    path = tmp_path / "zones.geojson"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(TableError, match=said):
        geojson_table(path)


def test_geopackages_come_back(tmp_path: Path) -> None:
    """Polygons with holes, and points, are read as they were written; a file of another kind is refused."""
    table = geojson_table(written(tmp_path, zones()))
    shapes = [rings[:2] for rings in table.attrs["shapes"]]
    path = tmp_path / "zones.gpkg"
    write_geopackage(path, [("zones", "POLYGON", table[["zone"]], shapes)], degrees=True)
    again = geopackage_table(path)
    assert again["zone"].tolist() == NAMES
    np.testing.assert_allclose(again[["lon", "lat"]], table[["lon", "lat"]])
    for one, two in zip(again.attrs["shapes"], shapes, strict=True):
        np.testing.assert_array_equal(np.concatenate(one), np.concatenate(two))
    write_geopackage(
        tmp_path / "named.gpkg",
        [("zones", "POLYGON", table[["zone"]].rename(columns={"zone": "NAME"}), shapes)],
        degrees=True,
    )
    assert geopackage_table(tmp_path / "named.gpkg")["cell"].tolist() == NAMES  # not the number of the row
    points = tmp_path / "points.gpkg"
    write_geopackage(points, [("p", "POINT", table[["zone"]], [[np.array([[1.0, 2.0]])]] * 3)], degrees=False)
    np.testing.assert_array_equal(geopackage_table(points)[["x", "y"]], [[1.0, 2.0]] * 3)
    with pytest.raises(TableError, match="this is not a GeoPackage"):
        geopackage_table(written(tmp_path, {}, "wrong.gpkg"))


def test_areas_travel_to_the_result(tmp_path: Path) -> None:
    """Polygons given as cells place the cells, are stored with the result, and come back under the user's labels."""
    counts = tmp_path / "counts.csv"
    rows = [f"{t},{name},{5 + k}" for t in range(3) for k, name in enumerate(NAMES)]
    counts.write_text("\n".join(["time,zone,count", *rows]), encoding="utf-8")
    moves = tmp_path / "moves.csv"
    pairs = [f"{a},{b},{0.8 if a == b else 0.1}" for a in NAMES for b in NAMES]
    moves.write_text("\n".join(["from,to,probability", *pairs]), encoding="utf-8")
    case = read_problem(
        counts, population=18, transitions=moves, cells=written(tmp_path, zones()), initial="uniform"
    )
    assert list(case.shapes or {}) == NAMES
    write_results(infer(case.problem), tmp_path / "out", shapes=case.shapes)
    result = load_result(tmp_path / "out")
    assert result.geographic
    assert result.shapes is not None
    assert [len(result.shapes[name]) for name in NAMES] == [1, 1, 3]
    np.testing.assert_array_equal(result.shapes["Moor"][0], square(8, 46))
