"""Areas of cells: polygons in and out, as GeoJSON and GeoPackage (which is SQLite, so nothing else need be installed).

A file of areas is read as a table of cells: one row per feature with its properties, the centroid as lon and lat (x and y where the
coordinates are not degrees), and the rings of its polygons in ``frame.attrs["shapes"]``.
"""

from __future__ import annotations

import json
import sqlite3
import struct
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headcount.errors import TableError
from headcount.labels import SPELLINGS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headcount._types import Array

DEGREES = 4326
"""The EPSG number of longitude and latitude on the WGS 84 ellipsoid."""
_APPLICATION = 0x47504B47
"""``GPKG``, by which a SQLite file says that it is a GeoPackage."""


def geojson_table(path: Path) -> pd.DataFrame:
    """A FeatureCollection of polygons (or points) as a table of cells."""
    try:
        read = json.loads(path.read_text(encoding="utf-8-sig"))
        features = read["features"]
        rows = [dict(f.get("properties") or {}) | ({"id": f["id"]} if "id" in f else {}) for f in features]
        parts = [_rings_of(feature["geometry"]) for feature in features]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        text = f"{path.name}: this is not GeoJSON: give a FeatureCollection of polygons, one feature per cell"
        raise TableError(text) from None
    named = str(read.get("crs", {}).get("properties", {}).get("name", "CRS84"))
    return _cells(path.name, rows, parts, degrees=any(n in named for n in ("CRS84", str(DEGREES))))


def _rings_of(geometry: dict[str, Any] | None) -> list[Array]:
    """The rings of a geometry; one ring of one point for a point."""
    if geometry is None:
        return []
    held: Any = geometry.get("coordinates")
    match geometry["type"]:
        case "GeometryCollection":
            return list(chain.from_iterable(map(_rings_of, geometry["geometries"])))
        case "Point":
            held = [[held]]
        case "MultiPolygon":
            held = chain.from_iterable(held or [])
        case kind if kind != "Polygon":
            return []
    return [np.array([point[:2] for point in ring], dtype=np.float64) for ring in held or []]


def geopackage_table(path: Path) -> pd.DataFrame:
    """The first layer of a GeoPackage as a table of cells."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as base:
            base.row_factory = sqlite3.Row
            layer = base.execute(
                "SELECT table_name, column_name, srs_id FROM gpkg_geometry_columns ORDER BY table_name"
            ).fetchone()
            if layer is None:
                raise TableError(
                    f"{path.name}: there is no layer with geometries in it: export your zones to it"
                )
            quoted = layer["table_name"].replace('"', '""')
            found = [dict(row) for row in base.execute(f'SELECT * FROM "{quoted}"')]
    except sqlite3.Error as error:
        text = f"{path.name}: this is not a GeoPackage ({error}): write it again, or give GeoJSON"
        raise TableError(text) from None
    parts = [_from_blob(row.pop(layer["column_name"])) for row in found]
    return _cells(path.name, found, parts, degrees=layer["srs_id"] == DEGREES)


def _cells(name: str, rows: list[dict[str, Any]], parts: list[list[Array]], *, degrees: bool) -> pd.DataFrame:
    """Properties, centroids and rings as one table; a feature without polygon or point is refused."""
    empty = [k + 1 for k, rings in enumerate(parts) if not rings]
    if empty or not rows:
        what = f"features {empty[:5]} have" if rows else "it has"
        raise TableError(f"{name}: {what} no polygon and no point: give one polygon (or point) per cell")
    every = np.concatenate(list(chain.from_iterable(parts)))
    degrees = degrees and bool((np.abs(every) <= (360.0, 90.0)).all())
    axes = ("lon", "lat") if degrees else ("x", "y")
    frame = _labelled(pd.DataFrame(rows), axes)
    frame[list(axes)] = np.array(list(map(_centroid, parts)))
    frame.attrs["shapes"] = list(map(_areas, parts))
    return frame


def _areas(rings: Sequence[Array]) -> list[Array]:
    """The rings that enclose an area; none of a point."""
    return [ring for ring in rings if len(ring) > 2]


def _labelled(frame: pd.DataFrame, axes: tuple[str, str]) -> pd.DataFrame:
    """The properties with the cell's label as a column that tables know, and no column called as an axis is."""
    frame = frame.rename(columns={c: f"property_{c}" for c in frame if str(c).casefold() in axes})
    folded = {str(c).casefold(): c for c in frame.columns}
    if not folded.keys().isdisjoint(SPELLINGS["cell"]):
        return frame
    own = next((folded[name] for name in ("id", "name", "fid") if name in folded), None)
    return frame if own is None else frame.rename(columns={own: "cell"})


def _centroid(rings: Sequence[Array]) -> Array:
    """The centre of gravity of the largest ring: Σ (p + q)(p × q) / 3 Σ p × q over its sides, around its first point."""

    def gravity(ring: Array) -> tuple[float, Array]:
        p = ring - ring[0]
        q = np.roll(p, -1, axis=0)
        cross = p[:, 0] * q[:, 1] - q[:, 0] * p[:, 1]
        area = float(cross.sum())
        middle = ring.mean(axis=0) if abs(area) < 1e-12 else ring[0] + (p + q).T @ cross / (3 * area)
        return abs(area), middle

    return max((gravity(ring) for ring in rings), key=lambda found: found[0])[1]


# --- GeoPackage: a header, then well-known binary (WKB)


def _from_blob(blob: bytes | None) -> list[Array]:
    """The rings of a stored geometry: ``GP``, version, flags, srs, an envelope whose size the flags say, WKB."""
    if not blob or blob[:2] != b"GP":
        return []
    envelope = (0, 32, 48, 48, 64)[blob[3] >> 1 & 7]
    return list(_from_wkb(blob, 8 + envelope)[0])


def _from_wkb(blob: bytes, at: int) -> tuple[list[Array], int]:
    order = "<" if blob[at] else ">"
    kind = struct.unpack_from(order + "I", blob, at + 1)[0]
    axes = 2 + (kind % 10000 // 1000 in {1, 3} or kind >= 0x80000000) + (kind % 10000 // 1000 in {2, 3})
    at, base = at + 5, kind % 1000

    def points(count: int, at: int) -> tuple[Array, int]:
        read = np.frombuffer(blob, order + "f8", count * axes, at).reshape(count, axes)
        return read[:, :2].astype(float), at + 8 * count * axes

    if base == 1:
        ring, at = points(1, at)
        return [ring], at
    rings: list[Array] = []
    (count,) = struct.unpack_from(order + "I", blob, at)
    at += 4
    for _ in range(count if base in {3, 4, 6, 7} else 0):
        if base == 3:
            (size,) = struct.unpack_from(order + "I", blob, at)
            ring, at = points(size, at + 4)
            rings.append(ring)
        else:
            more, at = _from_wkb(blob, at)
            rings += more
    return rings, at


def _wkb(kind: str, rings: Sequence[Array]) -> bytes:
    """A point, a line, or polygons of one ring each with holes as further rings of the one polygon."""
    if kind == "POINT":
        body = struct.pack("<BI", 1, 1) + np.asarray(rings[0][0], "<f8").tobytes()
    elif kind == "LINESTRING":
        body = struct.pack("<BII", 1, 2, len(rings[0])) + np.asarray(rings[0], "<f8").tobytes()
    else:
        parts = [struct.pack("<I", len(ring)) + np.asarray(ring, "<f8").tobytes() for ring in rings]
        body = struct.pack("<BII", 1, 3, len(parts)) + b"".join(parts)
    return body


_TABLES = """
CREATE TABLE gpkg_spatial_ref_sys (srs_name TEXT NOT NULL, srs_id INTEGER PRIMARY KEY, organization TEXT NOT NULL,
  organization_coordsys_id INTEGER NOT NULL, definition TEXT NOT NULL, description TEXT);
CREATE TABLE gpkg_contents (table_name TEXT PRIMARY KEY, data_type TEXT NOT NULL, identifier TEXT UNIQUE, description TEXT DEFAULT '',
  last_change DATETIME NOT NULL, min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE, srs_id INTEGER);
CREATE TABLE gpkg_geometry_columns (table_name TEXT NOT NULL, column_name TEXT NOT NULL, geometry_type_name TEXT NOT NULL,
  srs_id INTEGER NOT NULL, z TINYINT NOT NULL, m TINYINT NOT NULL, CONSTRAINT pk_geom_cols PRIMARY KEY (table_name, column_name));
INSERT INTO gpkg_spatial_ref_sys VALUES ('Undefined cartesian SRS', -1, 'NONE', -1, 'undefined', NULL);
INSERT INTO gpkg_spatial_ref_sys VALUES ('Undefined geographic SRS', 0, 'NONE', 0, 'undefined', NULL);
INSERT INTO gpkg_spatial_ref_sys VALUES ('WGS 84 geodetic', 4326, 'EPSG', 4326,
  'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],PRIMEM["Greenwich",0],UNIT["degree",0.0174532925199433]]',
  'longitude and latitude in degrees');
"""


def write_geopackage(
    path: Path, layers: Sequence[tuple[str, str, pd.DataFrame, Sequence[Sequence[Array]]]], *, degrees: bool
) -> None:
    """Write layers ``(name, POINT | LINESTRING | POLYGON, table, rings of every row)``."""
    srs = DEGREES if degrees else -1
    with closing(sqlite3.connect(path)) as base:
        base.execute(f"PRAGMA application_id = {_APPLICATION}")
        base.execute("PRAGMA user_version = 10300")
        base.executescript(_TABLES)
        for name, kind, table, shapes in layers:
            every = (
                np.concatenate([ring for rings in shapes for ring in rings])
                if len(table)
                else np.zeros((1, 2))
            )
            box = *every.min(axis=0).tolist(), *every.max(axis=0).tolist()
            base.execute(
                "INSERT INTO gpkg_contents VALUES (?, 'features', ?, '', '1970-01-01T00:00:00.000Z', ?, ?, ?, ?, ?)",
                (name, name, *box, srs),
            )
            base.execute(
                "INSERT INTO gpkg_geometry_columns VALUES (?, 'geom', ?, ?, 0, 0)", (name, kind, srs)
            )
            types = {"i": "INTEGER", "u": "INTEGER", "b": "BOOLEAN", "f": "REAL"}
            columns = "".join(f', "{c}" {types.get(table[c].dtype.kind, "TEXT")}' for c in table.columns)
            base.execute(f'CREATE TABLE "{name}" (fid INTEGER PRIMARY KEY, geom {kind}{columns})')
            marks = ", ".join("?" * (1 + len(table.columns)))
            names = "".join(f', "{c}"' for c in table.columns)
            base.executemany(
                f'INSERT INTO "{name}" (geom{names}) VALUES ({marks})',
                _records(table, kind, shapes, srs),
            )
        base.commit()


def _records(
    table: pd.DataFrame, kind: str, shapes: Sequence[Sequence[Array]], srs: int
) -> Iterator[tuple[Any, ...]]:
    head = b"GP" + struct.pack("<BBi", 0, 1, srs)
    columns = [table[c].tolist() for c in table.columns]
    for rings, *values in zip(shapes, *columns, strict=True):
        plain = [v if isinstance(v, (int, float, str)) or v is None else str(v) for v in values]
        yield (head + _wkb(kind, rings), *[None if v != v else v for v in plain])
