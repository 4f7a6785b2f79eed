"""Flows as lines on a map: GeoJSON, which every geographic program opens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from headcount.io._result import Result

SMALLEST_FLOW = 0.5
"""Expected individuals below which a move gets no line; the tables have them all."""


def flow_lines(result: Result, *, smallest: float = SMALLEST_FLOW) -> dict[str, Any]:
    """A FeatureCollection of one line a time, origin and destination; staying put and flows below ``smallest`` get none."""
    assert result.coordinates is not None
    place = {
        cell: [float(x), float(y)]
        for cell, x, y in zip(*(result.coordinates[c].tolist() for c in ("cell", "x", "y")), strict=True)
    }
    flows = result.flows
    kept = flows[(flows["mean"] >= smallest) & (flows["origin"] != flows["dest"])]
    columns = [
        kept[c].tolist() for c in ("time", "origin", "dest", "mean", "sd", "lower", "upper", "reliable")
    ]
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
                    for n, v in (("sd", sd), ("lower", low), ("upper", high))
                },
                "reliable": reliable,
            },
        }
        for time, origin, dest, mean, sd, low, high, reliable in zip(*columns, strict=True)
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
