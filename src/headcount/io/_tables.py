"""The kinds of tables of a chain, row by row: counts, observed flows, transitions, features, initial law, cells.

Each reader gives the rows as arrays with their labels still texts, or None with the reasons among the reader's findings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.io._columns import Reader, order_times, ordered, plain_labels, read_labels, read_numbers
from headcount.io._source import Findings, Source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import xarray as xr

    from headcount._types import Array, Index, Texts


PARAMETERS = ("rate", "background", "detection", "sd", "scale", "dispersion")
"""Columns that a noise model may find beside the counts."""
ROUNDING = 1e-4
"""Probabilities that sum to 1 within this are read as decimals rounded in print (four places) and divided by their sum."""


@dataclass(frozen=True, eq=False)
class CountTable:
    """Counts as read: one entry per row, labels still texts; ``dest`` where they are flows."""

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


@dataclass(frozen=True, eq=False)
class MoveTable:
    """Moves as read: origins and destinations as texts, values (rows, names); ``time`` None when all steps are alike.

    The values are ``features``, or else probabilities or flows.
    """

    source: Source
    origin: Texts
    dest: Texts
    values: Array
    names: tuple[str, ...]
    time: Texts | None = None
    features: bool = False


@dataclass(frozen=True, eq=False)
class InitialTable:
    """The initial law as read: one probability per cell, cells as texts."""

    source: Source
    cell: Texts
    probability: Array


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
    table = count_table(counts, Reader(findings, columns, encoding))
    times = None
    if table is not None:
        times = order_times(table.time.tolist(), table.source.name, uneven=uneven, findings=findings)
    findings.raise_any()
    assert table is not None
    assert times is not None
    cells = ordered(table.cell.tolist())
    values = laid_out(table, table.count, times.texts, cells)
    return labelled_counts(values, times.labels, plain_labels(cells), cells, table.places)


def count_table(counts: Any, reader: Reader, *, whole: bool = False) -> CountTable | None:
    """``time, cell, count``, with what the noise needs and where the cells are; ``whole`` refuses fractions and negative numbers."""
    source = reader.open(counts)
    optional = [*PARAMETERS, "x", "y", "lon", "lat"]
    found = None if source is None else reader.find(source, ["time", "cell", "count"], optional)
    if source is None or found is None:
        return None
    findings = reader.findings
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
    return CountTable(source, time, cell, count, parameters, read_places(source, cell, found, findings))


def flow_table(flows: Any, reader: Reader, *, whole: bool = False) -> CountTable | None:
    """Observed flows ``time, origin, dest, count`` in any known spelling; ``time`` is that of departure."""
    source = reader.open(flows)
    if source is None:
        return None
    columns = dict(reader.columns or {})
    if "count" in columns and "flow" not in columns and columns["count"] in source.frame:
        columns["flow"] = columns["count"]
    findings = reader.findings
    found = Reader(findings, columns).find(source, ["time", "from", "to", "flow"])
    if found is None:
        return None
    time, origin, dest = (
        read_labels(source, found[role], role, findings=findings) for role in ("time", "from", "to")
    )
    count = read_numbers(source, found["flow"], "flow", required=False, findings=findings)
    check_counts(source, count, whole=whole, findings=findings)
    check_repeats(source, [time, origin, dest], "this time, origin and destination", findings)
    return CountTable(source, time, origin, count, dest=dest)


def transition_table(given: Any, reader: Reader, *, normalise: bool = False) -> MoveTable | None:
    """``from, to, probability[, time]``; with ``normalise`` a column of flows will do."""
    source = reader.open(given)
    if source is None:
        return None
    role = "probability"
    if normalise and reader.find(source, [], ["probability"]) == {}:
        role = "flow"
    found = reader.find(source, ["from", "to", role], ["time"])
    if found is None:
        return None
    findings = reader.findings
    values = read_numbers(source, found[role], role, required=True, findings=findings)
    _refuse_negative(source, values, role, findings)
    large = values > 1 + 1e-9
    if large.any() and not normalise:
        text = (
            "a probability cannot exceed 1: correct it; if these are flows or counts, have every origin's divided by their sum "
            "(normalise=True, --normalise)"
        )
        findings.problem(source.name, text, source.at(large), values[large].tolist())
    return _moves(source, found, values[:, None], (role,), findings)


def feature_table(given: Any, reader: Reader) -> MoveTable | None:
    """``from, to, <one column per feature>[, time]``; every further column is a feature."""
    source = reader.open(given)
    found = None if source is None else reader.find(source, ["from", "to"], ["time"])
    if source is None or found is None:
        return None
    names = [str(c) for c in source.frame.columns if str(c) not in found.values()]
    findings = reader.findings
    if not names:
        text = "there is no column left for a feature: add one per feature beside from and to"
        findings.problem(source.name, text, [1])
        return None
    columns = [read_numbers(source, n, f"feature {n}", required=True, findings=findings) for n in names]
    return _moves(source, found, np.stack(columns, axis=1), tuple(names), findings, features=True)


def _moves(
    source: Source,
    found: Mapping[str, str],
    values: Array,
    names: tuple[str, ...],
    findings: Findings,
    *,
    features: bool = False,
) -> MoveTable:
    origin = read_labels(source, found["from"], "from", findings=findings)
    dest = read_labels(source, found["to"], "to", findings=findings)
    time = read_labels(source, found["time"], "time", findings=findings) if "time" in found else None
    keys = [origin, dest] if time is None else [time, origin, dest]
    check_repeats(source, keys, "this move" if time is None else "this time and move", findings)
    return MoveTable(source, origin, dest, values, names, time, features)


def initial_table(given: Any, reader: Reader) -> InitialTable | None:
    """``cell, probability``: where individuals are at the first time; cells without a row have probability 0."""
    source = reader.open(given)
    found = None if source is None else reader.find(source, ["cell", "probability"])
    if source is None or found is None:
        return None
    findings = reader.findings
    cell = read_labels(source, found["cell"], "cell", findings=findings)
    check_repeats(source, [cell], "this cell", findings)
    values = read_numbers(source, found["probability"], "probability", required=True, findings=findings)
    negative = _refuse_negative(source, values, "probability", findings)
    total = float(np.sum(values))
    if np.isfinite(total) and not negative and abs(total - 1) > ROUNDING:
        text = f"the initial probabilities sum to {total:.10g}, not 1: divide them by their sum or add the missing cells"
        findings.problem(source.name, text)
    return InitialTable(source, cell, values)


def cell_table(given: Any, reader: Reader) -> tuple[list[str], Places | None] | None:
    """``cell[, x, y]`` or ``cell[, lon, lat]``: the cells in their order, and where they are."""
    source = reader.open(given)
    found = None if source is None else reader.find(source, ["cell"], ["x", "y", "lon", "lat"])
    if source is None or found is None:
        return None
    cell = read_labels(source, found["cell"], "cell", findings=reader.findings)
    check_repeats(source, [cell], "this cell", reader.findings)
    return list(dict.fromkeys(cell.tolist())), read_places(source, cell, found, reader.findings)


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


def _refuse_negative(source: Source, values: Array, role: str, findings: Findings) -> bool:
    """Whether there are negative values, which are then a problem."""
    negative = values < 0
    if negative.any():
        text = f"{role} cannot be negative: correct it"
        findings.problem(source.name, text, source.at(negative), values[negative].tolist())
    return bool(negative.any())


def check_repeats(source: Source, keys: Sequence[Texts], what: str, findings: Findings) -> None:
    """One row per entry: nothing is added up in silence."""
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


def positions(texts: Texts, known: Sequence[str]) -> Index:
    """Where each text stands among the known ones; −1 where it does not."""
    import pandas as pd

    return np.asarray(pd.Index(list(known), dtype=object).get_indexer(pd.Index(texts, dtype=object)))


def cell_positions(
    source: Source, texts: Texts, cells: Sequence[str], role: str, findings: Findings
) -> Index:
    """Where each label stands among the cells; unknown ones are a problem and −1."""
    where = positions(texts, cells)
    unknown = (where < 0) & (texts != "")
    if unknown.any():
        known = ", ".join(repr(c) for c in cells[:5]) + (", …" if len(cells) > 5 else "")
        text = f"unknown {role}: correct it, or add it to the cells ({len(cells)} are known: {known})"
        findings.problem(source.name, text, source.at(unknown), texts[unknown].tolist())
    return where


def laid_out(table: CountTable, values: Array, times: Sequence[str], cells: Sequence[str]) -> Array:
    """Rows into an array (time, cell[, dest]), NaN where there is none; rows of other labels must be gone."""
    where = [positions(table.time, times), positions(table.cell, cells)]
    shape = [len(times), len(cells)]
    if table.dest is not None:
        where.append(positions(table.dest, cells))
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
