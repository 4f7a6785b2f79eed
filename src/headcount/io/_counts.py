"""Tables of counts: ``time, cell, count``, with what the noise needs and where the cells are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.io._columns import find_columns
from headcount.io._errors import Findings
from headcount.io._source import open_source
from headcount.io._values import order_times, ordered, plain_labels, read_labels, read_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import xarray as xr
    from numpy.typing import NDArray

    from headcount.io._source import Source

    Array = NDArray[np.float64]
    Texts = NDArray[np.object_]

PARAMETERS = ("rate", "background", "detection", "sd", "scale", "dispersion")
"""Columns that a noise model may find beside the counts."""


@dataclass(frozen=True, eq=False)
class CountTable:
    """Counts as read: one entry a row, labels still texts; ``dest`` where they are flows."""

    source: Source
    time: Texts
    cell: Texts
    count: Array
    parameters: Mapping[str, Array] = field(default_factory=dict)
    places: Places | None = None
    dest: Texts | None = None


@dataclass(frozen=True, eq=False)
class Places:
    """Where the cells are: the names of the axes, and x and y by cell."""

    names: tuple[str, str]
    of: Mapping[str, tuple[float, float]]


def read_counts(
    counts: Any,
    *,
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    uneven: bool = False,
) -> xr.DataArray:
    """Counts with dims (time, cell), NaN where no row is, places of the cells as coordinates.

    Parameters
    ----------
    counts
        A path to CSV, Parquet or NetCDF, a pandas table or an xarray cube with ``time, cell, count``.
    columns
        ``{role: column}`` where the names differ: ``{"count": "birds"}``.
    encoding
        Of a text file; UTF-8 if not given.
    uneven
        Take times with gaps between them as successive steps.

    Raises
    ------
    TableError
        Everything that is wrong, with file, row and remedy.
    """
    findings = Findings()
    table = count_table(counts, columns=columns, encoding=encoding, findings=findings)
    times = None
    if table is not None:
        times = order_times(table.time.tolist(), table.source.name, uneven=uneven, findings=findings)
    findings.raise_any()
    assert table is not None
    assert times is not None
    cells = ordered(table.cell.tolist())
    values = laid_out(table, table.count, times.texts, cells)
    return labelled_counts(values, times.labels, plain_labels(cells), cells, table.places)


def count_table(
    counts: Any,
    *,
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    whole: bool = False,
    findings: Findings,
) -> CountTable | None:
    """The counts of a table row by row; ``whole`` refuses fractions and negative numbers."""
    source = open_source(counts, encoding=encoding, findings=findings)
    if source is None:
        return None
    optional = [*PARAMETERS, "x", "y", "lon", "lat"]
    found = find_columns(source, ["time", "cell", "count"], optional, columns=columns, findings=findings)
    if found is None:
        return None
    time = read_labels(source, found["time"], "time", findings=findings)
    cell = read_labels(source, found["cell"], "cell", findings=findings)
    count = read_numbers(source, found["count"], "count", required=False, findings=findings)
    check_counts(source, count, whole=whole, findings=findings)
    check_repeats(source, [time, cell], "this time and cell", findings)
    parameters = {}
    for name in PARAMETERS:
        if name in found:
            values = read_numbers(source, found[name], name, required=False, findings=findings)
            bare = np.isnan(values) & ~np.isnan(count)
            if bare.any():
                text = f"{name} is empty beside a count: write it, or leave the count empty too"
                findings.problem(source.name, text, source.at(bare))
            parameters[name] = values
    places = read_places(source, cell, found, findings)
    return CountTable(source, time, cell, count, parameters, places)


def flow_table(
    flows: Any,
    *,
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    whole: bool = False,
    findings: Findings,
) -> CountTable | None:
    """Observed flows row by row: ``time, origin, dest, count`` in any known spelling; ``time`` is that of departure."""
    source = open_source(flows, encoding=encoding, findings=findings)
    if source is None:
        return None
    mapped = {} if columns is None else dict(columns)
    if "count" in mapped and "flow" not in mapped and mapped["count"] in source.frame:
        mapped["flow"] = mapped["count"]
    found = find_columns(source, ["time", "from", "to", "flow"], columns=mapped, findings=findings)
    if found is None:
        return None
    time, origin, dest = (
        read_labels(source, found[role], role, findings=findings) for role in ("time", "from", "to")
    )
    count = read_numbers(source, found["flow"], "flow", required=False, findings=findings)
    check_counts(source, count, whole=whole, findings=findings)
    check_repeats(source, [time, origin, dest], "this time, origin and destination", findings)
    return CountTable(source, time, origin, count, dest=dest)


def check_counts(source: Source, count: Array, *, whole: bool, findings: Findings) -> None:
    """Whole numbers ≥ 0 where the noise counts individuals."""
    if not whole:
        return
    with np.errstate(invalid="ignore"):
        negative = count < 0
        fraction = (count != np.rint(count)) & np.isfinite(count) & ~negative
    if negative.any():
        text = "a count cannot be negative: correct it, or leave it empty where nobody looked"
        findings.problem(source.name, text, source.at(negative), count[negative].tolist())
    if fraction.any():
        text = (
            "a count must be a whole number: give what was counted and the share of it in a column rate, or use a noise for "
            "measurements (gaussian)"
        )
        findings.problem(source.name, text, source.at(fraction), count[fraction].tolist())


def check_repeats(source: Source, keys: Sequence[Texts], what: str, findings: Findings) -> None:
    """One row an entry: nothing is added up in silence."""
    import pandas as pd

    frame = pd.DataFrame(dict(enumerate(keys)))
    again = frame.duplicated(keep=False).to_numpy()
    if not again.any():
        return
    groups = frame[again].groupby(list(frame.columns), sort=False).indices
    rows = source.rows[again]
    for label, members in list(groups.items())[:5]:
        text = f"{what} ({', '.join(label)}) has {len(members)} rows: keep one, or add them up yourself"
        findings.problem(source.name, text, rows[members].tolist())
    if len(groups) > 5:
        findings.problem(
            source.name, f"{len(groups) - 5} further entries have more than one row: keep one each"
        )


def read_places(source: Source, cell: Texts, found: Mapping[str, str], findings: Findings) -> Places | None:
    """x and y (or lon and lat) of every cell; the same in all its rows."""
    names = ("lon", "lat") if {"lon", "lat"} <= set(found) else ("x", "y")
    if not set(names) <= set(found):
        return None
    both = [read_numbers(source, found[n], n, required=True, findings=findings) for n in names]
    if names == ("lon", "lat"):
        outside = (np.abs(both[0]) > 360) | (np.abs(both[1]) > 90)
        if outside.any():
            text = "lon lies within ±360 and lat within ±90 degrees: correct it, or call projected coordinates x and y"
            findings.problem(source.name, text, source.at(outside))
    of: dict[str, tuple[float, float]] = {}
    moved = []
    for k, (label, x, y) in enumerate(zip(cell.tolist(), both[0].tolist(), both[1].tolist(), strict=True)):
        if of.setdefault(label, (x, y)) != (x, y):
            moved.append(k)
    if moved:
        text = f"a cell has one place, but this row gives another {names[0]}, {names[1]} than an earlier one: correct it"
        findings.problem(source.name, text, source.at(np.array(moved)), [cell[k] for k in moved])
    return Places(names, of)


def laid_out(table: CountTable, values: Array, times: Sequence[str], cells: Sequence[str]) -> Array:
    """Rows into an array (time, cell[, dest]), NaN where there is none; rows of other labels must be gone."""
    places = [{t: k for k, t in enumerate(times)}, {c: k for k, c in enumerate(cells)}]
    where = [np.array([places[0][t] for t in table.time]), np.array([places[1][c] for c in table.cell])]
    shape = [len(times), len(cells)]
    if table.dest is not None:
        where.append(np.array([places[1][c] for c in table.dest]))
        shape.append(len(cells))
    out = np.full(shape, np.nan)
    out[tuple(where)] = values
    return out


def labelled_counts(
    values: Array, times: Sequence[Any], cells: Sequence[Any], texts: Sequence[str], places: Places | None
) -> xr.DataArray:
    """The array under its labels, with the places of the cells where all are known."""
    import xarray as xr

    coords: dict[str, Any] = {"time": list(times), "cell": list(cells)}
    if places is not None and all(text in places.of for text in texts):
        both = np.array([places.of[text] for text in texts])
        coords |= {name: ("cell", both[:, k]) for k, name in enumerate(places.names)}
    return xr.DataArray(values, dims=("time", "cell"), coords=coords, name="count")
