"""What the page's scripts read: the tables of a result as columns of plain numbers, labels apart, sized to be carried about.

A page holds at most `MOST_COUNTS` counts and `MOST_FLOWS` flows. What is left out is left out by size, smallest first, and the
page says how much it was; the tables beside it have everything.
"""

from __future__ import annotations

import math
from collections import Counter
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headcount.dates import readable
from headcount.plot._places import EARTH, graticule, ground, lines_on, places
from headcount.plot.picture import label, visible
from headcount.plot.words import CERTAINTY, WHY, trust
from headcount.report._background import Background

if TYPE_CHECKING:
    from collections.abc import Hashable

    from headcount.io import Result
    from headcount.plot._places import Box, Places

MOST_COUNTS = 40_000
MOST_FLOWS = 30_000
"""Rows that a page carries: about 33 bytes each (measured), 2.3 MB together, half the size of plotly's script."""
MOST_PAIRS = 4 * MOST_FLOWS
"""Entries of a whole matrix that a page carries beside the flows; larger ones (of more than 346 cells) stay in the tables."""
GRID = 1200
"""Steps across a map in which its ground is stored: one or two pixels of a broad window."""
_DIGITS = 5
"""Significant digits of the page's numbers, more than any interval here deserves."""
_VALUES = ("mean", "median", "sd", "lower", "upper")


def payload(
    result: Result, background: Background | None = None, before: pd.DataFrame | None = None
) -> dict[str, Any]:
    """Everything that is drawn, as values that JSON can hold; NaN is null."""
    times, cells, told = result.times, _kept_cells(result), trust(result)
    background = background or Background()
    known = set(cells)
    nodes = result.nodes if len(known) == len(result.cells) else _of_cells(result.nodes, known)
    flows = _kept_flows(result.flows, known, is_chain=result.is_chain)
    return {
        "kind": "chain" if result.is_chain else "network",
        "population": result.population,
        "level": result.level,
        "trust": {**told._asdict(), "warning": told.warning, "why": WHY, "classes": CERTAINTY},
        "wide": NormalDist().inv_cdf((1 + result.level) / 2),
        "times": time_labels(times),
        "timeKind": _kind(result.nodes.iloc[:, 0]),
        "timeValues": _axis_values(times, _kind(result.nodes.iloc[:, 0])),
        "cells": _called(result, cells),
        "labels": [label(c) for c in cells] if result.attributes.get("names") else None,
        "cellsInAll": len(result.cells),
        "countsInAll": len(result.nodes),
        "flowsInAll": result.attributes.get("flows_in_all", len(result.flows)),
        "places": _places(result, cells, background),
        "rate": _rate(result, nodes),
        "check": _check(result, times, cells),
        "nodes": ends(nodes, times, cells) | {"observed": numbers(nodes["observed"])} | _summary(nodes),
        "flows": ends(flows, times, cells) | _summary(flows),
        "sums": _sums(result, cells),
        "told": _plain(result.attributes.get("told_by_data")),
        "size": _size(result),
        "margins": _margins(result, cells, before),
        "forecastFrom": _forecast_from(result),
        "trace": _curves(result.trace),
        "tolerance": _plain(result.attributes.get("tolerance")),
        "ascent": _curves(result.ascent),
        "weights": _records(result.weights),
    }


def time_labels(times: list[Any]) -> list[str]:
    """Times as the tables have them: where some have hours, midnight is one of them."""
    hours = any(hasattr(t, "strftime") and (t.hour, t.minute, t.second) != (0, 0, 0) for t in times)
    return [visible(str(t)) if hours else label(t) for t in times]


def _called(result: Result, cells: list[Hashable]) -> list[str]:
    """What people call the cells; where two have one name, the label tells them apart."""
    names = [visible(result.name_of(cell)) for cell in cells] if result.attributes.get("names") else []
    count = Counter(names)
    texts = [label(cell) for cell in cells]
    return (
        [f"{n} ({t})" if count[n] > 1 else n for n, t in zip(names, texts, strict=True)] if names else texts
    )


def _sums(result: Result, cells: list[Hashable]) -> dict[str, Any] | None:
    """Standard deviations of sums of flows, of the cells on the page; None where the result has none."""
    if result.sums is None or not trust(result).ranges:
        return None
    place = {cell: k for k, cell in enumerate(result.cells)}
    kept, sums = [place[cell] for cell in cells], result.sums
    tables = {"into": sums.into[:, kept], "out": sums.out[:, kept], "net": sums.net[:, kept]}
    tables |= {"present": sums.present, "moved": sums.moved, "whole": sums.whole}
    if len(kept) ** 2 <= MOST_PAIRS:
        pairs = {"pairs": sums.pairs, "through": sums.through}
        tables |= {name: sd[kept][:, kept] for name, sd in pairs.items() if sd is not None}

    def short(values: Any) -> Any:
        return list(map(short, values)) if isinstance(values, list) else _short(values, 3)

    return {"pairs": None, "through": None} | {
        name: short(np.asarray(sd).tolist()) for name, sd in tables.items()
    }


def _size(result: Result) -> dict[str, Any] | None:
    """The number of individuals where it was not known: its mean and range."""
    found = result.attributes.get("population_estimate")
    if found is None or not isinstance(found.get("sd"), float):
        return None
    return {name: _short(float(found[name])) for name in ("mean", "lower", "upper")}


def has_margins(result: Result) -> bool:
    """Whether the result is a table with two margins: one step from the one to the other, and nothing over time."""
    return result.is_chain and len(result.times) == 2


def _margins(result: Result, cells: list[Hashable], before: pd.DataFrame | None) -> dict[str, Any] | None:
    """What the page of a table with two margins has beside the flows: the old matrix, where it is known."""
    if not has_margins(result):
        return None
    if before is None or len(cells) ** 2 > MOST_PAIRS:
        return {"before": None}
    place = {readable(cell): k for k, cell in enumerate(cells)}
    ends = [before[name].map(readable).map(place).to_numpy(dtype=float) for name in ("origin", "dest")]
    values = before["before"].to_numpy(dtype=float)
    known = np.isfinite([*ends, values]).all(axis=0)
    old = np.zeros((len(cells), len(cells)))
    np.add.at(old, tuple(end[known].astype(int) for end in ends), values[known])
    return {"before": [[_short(v) for v in row] for row in old.tolist()]}


def _forecast_from(result: Result) -> int | None:
    """The number of the last time that was not forecast; None where none was."""
    steps = result.attributes.get("forecast", {}).get("steps")
    return None if not steps else len(result.times) - 1 - int(steps)


def _kept_cells(result: Result) -> list[Hashable]:
    """All cells, or the fullest of them where the page could not carry all; in the order of the result."""
    cells = result.cells
    most = max(1, MOST_COUNTS // max(1, len(result.times)))
    if len(cells) <= most:
        return cells
    totals = result.nodes.groupby(result.nodes.columns[1], sort=False)["mean"].sum()
    fullest = set(totals.nlargest(most).index.tolist())
    return [cell for cell in cells if cell in fullest]


def _of_cells(table: pd.DataFrame, cells: set[Hashable]) -> pd.DataFrame:
    return table[table[table.columns[1]].isin(cells)]


def _kept_flows(flows: pd.DataFrame, cells: set[Hashable], *, is_chain: bool) -> pd.DataFrame:
    """The largest flows of every time, between cells that the page has."""
    ends = ("origin", "dest") if is_chain else ("state", "other_state")
    inside = flows[flows[ends[0]].isin(cells) & flows[ends[1]].isin(cells)]
    if len(inside) <= MOST_FLOWS:
        return inside
    each = max(1, MOST_FLOWS // inside.iloc[:, 0].nunique())
    rank = inside.groupby(inside.columns[0], sort=False)["mean"].rank(method="first", ascending=False)
    return inside[rank <= each]


def _kind(column: pd.Series) -> str:
    """What the labels are on an axis: numbers, dates or names."""
    kind = column.dtype.kind if isinstance(column.dtype, np.dtype) else "O"
    return {"i": "number", "u": "number", "f": "number", "M": "date"}.get(kind, "name")


def _axis_values(times: list[Any], kind: str) -> list[Any]:
    if kind == "number":
        return [_plain(t) for t in times]
    if kind == "date":
        return [t.isoformat() for t in times]
    return list(range(len(times)))


def _rate(result: Result, nodes: pd.DataFrame) -> float | list[float | None] | None:
    """Counts per individual: one number, or one per row of the page's table of counts; None where the result does not say."""
    given = result.attributes.get("counts_per_individual")
    if isinstance(given, list):
        return [given[k] if k < len(given) else None for k in nodes.index.tolist()]
    return given


def _check(result: Result, times: list[Any], cells: list[Any]) -> dict[str, Any] | None:
    """Residual (sds) and PIT of the counts of single cells on the page; None where the fit was not checked."""
    if result.check is None or not result.is_chain:
        return None
    known = result.check[result.check["time"].isin(times) & result.check["cell"].isin(cells)]
    known = known[known["sd"] > 0]
    if known.empty:
        return None
    return ends(known, times, cells) | {name: numbers(known[name]) for name in ("residual", "pit")}


def _places(result: Result, cells: list[Hashable], background: Background) -> dict[str, Any] | None:
    if result.coordinates is None or not result.is_chain:
        return None
    here = places(result.coordinates, geographic=result.geographic)
    points = here.on_map(cells)
    box = _with_shapes(here.box(), here, result)
    return {
        "x": [_short(v, 7) for v in points[:, 0].tolist()],
        "y": [_short(v, 7) for v in points[:, 1].tolist()],
        "geographic": here.geographic,
        "spacing": here.spacing,
        "box": list(box),
        "ground": None if here.projection is None else _ground(here, box),
        "lines": _lines(here, background, box),
        "tiles": _tiles(here, background),
        "shapes": None if not result.shapes else _shapes(here, result, cells, box),
    }


def _with_shapes(box: Box, here: Places, result: Result) -> Box:
    """The box around the cells, and around their areas where they have some."""
    if not result.shapes:
        return box
    every = here.project(np.concatenate([ring for rings in result.shapes.values() for ring in rings]))
    low, high = every.min(axis=0), every.max(axis=0)
    pad = 0.03 * float((high - low).max())
    return float(low[0] - pad), float(low[1] - pad), float(high[0] + pad), float(high[1] + pad)


def _ground(here: Places, box: Box) -> dict[str, Any]:
    """Land, borders and meridians."""
    assert here.projection is not None
    wide, unit = _around(box), max(box[2] - box[0], box[3] - box[1]) / GRID
    found = ground(here.projection, wide, detail=unit)
    grid = [meridian.line for meridian in graticule(here.projection, here.points)]
    lines = {"land": found.land, "borders": found.borders, "grid": grid}
    steps = {name: [_steps(line, wide, unit) for line in made] for name, made in lines.items()}
    return {"x": wide[0], "y": wide[1], "unit": unit, **steps}


def _around(box: Box) -> Box:
    """The box and as much again around it, for zooming out and broad windows."""
    width, height = box[2] - box[0], box[3] - box[1]
    more = max(width, height)
    return box[0] - more, box[1] - 0.5 * height, box[2] + more, box[3] + 0.5 * height


def _lines(here: Places, background: Background, box: Box) -> dict[str, Any] | None:
    """The user's own lines."""
    wide, unit = _around(box), max(box[2] - box[0], box[3] - box[1]) / (2 * GRID)
    found = lines_on(here, background.lines, wide, detail=unit)
    if not found:
        return None
    return {"x": wide[0], "y": wide[1], "unit": unit, "lines": [_steps(line, wide, unit) for line in found]}


def _tiles(here: Places, background: Background) -> dict[str, Any] | None:
    """Where tiles come from, and the centre of the projection that they are laid on; none under a map of the world, or without degrees."""
    if not background.tiles or here.projection is None or here.projection.whole:
        return None
    centre = {"lon": here.projection.lon, "lat": here.projection.lat, "radius": EARTH}
    return {"url": background.tiles, "host": background.origin.split("//")[1], **centre}


def _shapes(here: Places, result: Result, cells: list[Hashable], box: Box) -> dict[str, Any]:
    """Areas of the cells; one without has None."""
    assert result.shapes is not None
    unit = max(box[2] - box[0], box[3] - box[1]) / (4 * GRID)
    rings = [
        [_steps(here.project(ring), box, unit) for ring in result.shapes[cell]]
        if cell in result.shapes
        else None
        for cell in cells
    ]
    return {"x": box[0], "y": box[1], "unit": unit, "rings": rings}


def _steps(line: np.ndarray, box: Box, unit: float) -> list[int]:
    """A line as whole steps on a grid that begins at the box's lower left corner: x, y, then differences; a point once."""
    grid = np.rint((line - box[:2]) / unit).astype(int)
    steps = np.diff(grid, axis=0, prepend=[[0, 0]])
    kept = (steps != 0).any(axis=1)
    kept[0] = True
    return steps[kept].ravel().tolist()


_TIMES = {"time": "t", "variable": "t", "other": "u"}
_CELLS = {"cell": "c", "state": "c", "origin": "o", "dest": "d", "other_state": "d"}
"""Label columns of all tables, and what the scripts call the positions of their labels."""


def ends(table: pd.DataFrame, times: list[Any], cells: list[Any]) -> dict[str, list[int]]:
    """Positions of a count's time and cell (t, c), or of both ends of a flow (t, o, u, d); a chain's flows end one time later."""
    found = {key: _codes(table[name], times) for name, key in _TIMES.items() if name in table}
    found |= {key: _codes(table[name], cells) for name, key in _CELLS.items() if name in table}
    if "other" in table:
        found["o"] = found.pop("c")
    if "origin" in table:
        found["u"] = [k + 1 for k in found["t"]]
    return found


def _summary(table: pd.DataFrame) -> dict[str, Any]:
    values: dict[str, Any] = {name: numbers(table[name]) for name in _VALUES}
    return values | {"reliable": table["reliable"].astype(int).tolist()}


def _codes(column: pd.Series, labels: list[Any]) -> list[int]:
    """Position of every value among the labels."""
    index = {value: k for k, value in enumerate(labels)}
    return [index[value] for value in column.tolist()]


def numbers(column: pd.Series) -> list[float | int | None]:
    """Values with `_DIGITS` significant digits; missing and not finite are None."""
    return [_short(v) for v in column.to_numpy(dtype=float, na_value=np.nan).tolist()]


def _short(value: float, digits: int = _DIGITS) -> float | int | None:
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() else short


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, int) else None


def _curves(frame: pd.DataFrame | None) -> dict[str, Any] | None:
    """Numeric columns of a trace at full precision; None where there is none to draw."""
    if frame is None or len(frame) == 0:
        return None
    numeric = frame.select_dtypes("number")
    return {str(name): [_plain(v) for v in numeric[name].tolist()] for name in numeric.columns}


def _records(frame: pd.DataFrame | None) -> dict[str, Any] | None:
    if frame is None or len(frame) == 0:
        return None
    return {
        str(name): numbers(frame[name])
        if frame[name].dtype.kind in "iuf"
        else [label(v) for v in frame[name].tolist()]
        for name in frame.columns
    }
