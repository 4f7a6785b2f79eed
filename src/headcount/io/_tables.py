"""The kinds of tables of a chain, row by row: counts, observed flows, transitions, features, initial law, cells.

Each reader gives the rows as arrays with their labels still texts, or None with the reasons among the reader's findings.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.io._columns import PARAMETERS, PLACES, Reader, ordered, plain_labels, read_labels, read_numbers
from headcount.io._source import Findings, Source
from headcount.io._times import order_times
from headcount.observe import (
    Binomial,
    Exact,
    Gaussian,
    LaplaceNoise,
    NegativeBinomial,
    Observation,
    Poisson,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import xarray as xr

    from headcount._types import Array, Index, Texts
    from headcount.population import SizeLaw


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
    """Where the cells are: the names of the axes, x and y by cell, and the rings of their areas where a file of polygons was given."""

    names: tuple[str, str]
    of: Mapping[str, tuple[float, float]]
    shapes: Mapping[str, Sequence[Array]] = field(default_factory=dict)


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
    encoding: str | Mapping[str, str] | None = None,
    uneven: bool = False,
    decimal: str | Mapping[str, str] | None = None,
    thousands: str | Mapping[str, str] | None = None,
    missing: Sequence[str] = (),
    dates: str | None = None,
    wide: bool = False,
) -> xr.DataArray:
    """Counts with dims (time, cell), NaN where no row is, places of the cells as coordinates.

    Parameters
    ----------
    counts
        A path to CSV, Excel, Parquet or NetCDF, a pandas table or an xarray cube with ``time, cell, count``.
    columns
        ``{role: column}`` where the names differ: ``{"count": "birds"}``.
    encoding, decimal, thousands, missing, dates, wide
        How the file is written, as in :func:`read_problem`.
    uneven
        Take times with gaps between them as successive steps.

    Raises
    ------
    TableError
        Everything that is wrong, with file, row and remedy.
    """
    findings = Findings()
    reader = Reader(findings, columns, encoding, decimal, thousands, missing, dates, wide)
    table = count_table(counts, reader)
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
    opened = reader.open(counts)
    if opened is not None and reader.wide:
        opened = reader.long_counts(opened)
    if opened is None:
        return None
    source = reader.find(opened, ["time", "cell", "count"], [*PARAMETERS, *PLACES])
    if source is None:
        return None
    time, cell = read_labels(source, "time"), read_labels(source, "cell")
    count = read_counted(source, "count", whole=whole)
    check_repeats(source, [time, cell], "this time and cell")
    parameters = read_parameters(source)
    for name, values in parameters.items():
        text = f"{name} is empty beside a count: write it, or leave the count empty too"
        count = source.without(count, np.isnan(values) & ~np.isnan(count), text)
    return CountTable(source, time, cell, count, parameters, read_places(source, cell))


def flow_table(flows: Any, reader: Reader, *, whole: bool = False) -> CountTable | None:
    """Observed flows ``time, origin, dest, count`` in any known spelling; ``time`` is that of departure."""
    opened = reader.open(flows)
    if opened is None:
        return None
    columns = dict(reader.columns or {})
    if "count" in columns and "flow" not in columns and columns["count"] in opened.frame:
        columns["flow"] = columns["count"]
    source = replace(reader, columns=columns).find(opened, ["time", "from", "to", "flow"])
    if source is None:
        return None
    time, origin, dest = (read_labels(source, role) for role in ("time", "from", "to"))
    count = read_counted(source, "flow", whole=whole)
    check_repeats(source, [time, origin, dest], "this time, origin and destination")
    return CountTable(source, time, origin, count, dest=dest)


def track_table(given: Any, reader: Reader) -> tuple[Source, dict[str, Any]] | None:
    """Positions of followed individuals, ``id, time, cell[, probability][, sd]``: the table, and its columns."""
    source = reader.read(given, ["id", "time", "cell"], ["probability", "sd"])
    if source is None:
        return None
    columns: dict[str, Any] = {role: read_labels(source, role) for role in ("id", "time", "cell")}
    numbers = [role for role in ("probability", "sd") if role in source.columns]
    return source, columns | {role: read_numbers(source, role) for role in numbers}


def transition_table(given: Any, reader: Reader, *, normalise: bool = False) -> MoveTable | None:
    """``from, to, probability[, time]``, or one column per destination; with ``normalise`` flows will do."""
    opened = reader.open(given)
    if opened is None:
        return None
    named = reader.roles(opened, ["probability", "to"])
    role = "flow" if normalise and "probability" not in named else "probability"
    wide = reader.wide and "to" not in named
    if wide:
        opened = reader.long(opened, "from", "to", role)
        if opened is None:
            return None
    source = reader.find(opened, ["from", "to", role], ["time"])
    if source is None:
        return None
    values = read_numbers(source, role, required=not wide)
    if wide:  # an empty entry of a matrix is a move that cannot happen
        there = ~np.isnan(values)
        source, values = source.where(there), values[there]
    _refuse_negative(source, values, role)
    if not normalise:
        text = (
            "a probability cannot exceed 1: correct it; if these are flows or counts, have every origin's divided by their sum "
            "(normalise=True, --normalise)"
        )
        source.refuse(values > 1 + 1e-9, text, values)
    return _moves(source, values[:, None], (role,))


def feature_table(given: Any, reader: Reader) -> MoveTable | None:
    """``from, to, <one column per feature>[, time]``; every further column is a feature."""
    opened = reader.open(given)
    source = None if opened is None else reader.find(opened, ["from", "to"], ["time"], rest=True)
    if source is None:
        return None
    names = [str(c) for c in source.frame.columns if str(c) not in source.columns.values()]
    if not names:
        source.problem("there is no column left for a feature: add one per feature beside from and to", [1])
        return None
    columns = [read_numbers(source, f"feature {n}", column=n, required=True) for n in names]
    return _moves(source, np.stack(columns, axis=1), tuple(names), features=True)


def _moves(source: Source, values: Array, names: tuple[str, ...], *, features: bool = False) -> MoveTable:
    origin, dest = read_labels(source, "from"), read_labels(source, "to")
    time = read_labels(source, "time") if "time" in source.columns else None
    keys = [origin, dest] if time is None else [time, origin, dest]
    check_repeats(source, keys, "this move" if time is None else "this time and move")
    return MoveTable(source, origin, dest, values, names, time, features)


def initial_table(given: Any, reader: Reader) -> InitialTable | None:
    """``cell, probability``: where individuals are at the first time; cells without a row have probability 0."""
    source = reader.read(given, ["cell", "probability"])
    if source is None:
        return None
    cell = read_labels(source, "cell")
    check_repeats(source, [cell], "this cell")
    values = read_numbers(source, "probability", required=True)
    negative = _refuse_negative(source, values, "probability")
    total = float(np.sum(values))
    if np.isfinite(total) and not negative and abs(total - 1) > ROUNDING:
        source.problem(
            f"the initial probabilities sum to {total:.10g}, not 1: divide them by their sum or add the missing cells"
        )
    return InitialTable(source, cell, values)


def cell_table(given: Any, reader: Reader) -> tuple[list[str], Places | None] | None:
    """``cell[, x, y]`` or ``cell[, lon, lat]``: the cells in their order, and where they are."""
    source = reader.read(given, ["cell"], PLACES)
    if source is None:
        return None
    cell = read_labels(source, "cell")
    check_repeats(source, [cell], "this cell")
    places = read_places(source, cell)
    shapes = source.frame.attrs.get("shapes")
    if places is not None and shapes is not None:
        held = zip(cell.tolist(), shapes, strict=True)
        places = replace(places, shapes={label: rings for label, rings in held if rings})
    return list(dict.fromkeys(cell.tolist())), places


def read_counted(source: Source, role: str, *, whole: bool) -> Array:
    """Counts, NaN where nobody looked; whole numbers ≥ 0 where the noise counts individuals."""
    count = read_numbers(source, role)
    if whole:
        text = "a count cannot be negative: correct it, or leave it empty where nobody looked"
        count = source.without(count, count < 0, text, count)
        text = (
            "a count must be a whole number: give what was counted and the share of it in a column rate, use a noise for "
            "measurements (gaussian) or, if the point stands between thousands, say so (thousands='.', --thousands .)"
        )
        count = source.without(count, (count != np.rint(count)) & np.isfinite(count), text, count)
    return np.where(np.isinf(count), np.nan, count)


def read_parameters(source: Source, *, required: bool = False) -> dict[str, Array]:
    """The parameters of a noise that a table holds beside its counts."""
    found = [name for name in PARAMETERS if name in source.columns]
    return {name: read_numbers(source, name, required=required) for name in found}


def _refuse_negative(source: Source, values: Array, role: str) -> bool:
    """Whether there are negative values, which are then a problem."""
    return source.refuse(values < 0, f"{role} cannot be negative: correct it", values)


def check_repeats(source: Source, keys: Sequence[Texts], what: str) -> None:
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
        source.problem(text, rows[members].tolist())
    if len(groups) > 5:
        source.problem(f"{len(groups) - 5} further entries have more than one row: keep one each")


def read_places(source: Source, cell: Texts) -> Places | None:
    """x and y (or lon and lat) of every cell; the same in all its rows."""
    names = ("lon", "lat") if {"lon", "lat"} <= set(source.columns) else ("x", "y")
    if not set(names) <= set(source.columns):
        return None
    x, y = (read_numbers(source, name) for name in names)
    if names == ("lon", "lat"):
        text = "lon lies within ±360 and lat within ±90 degrees: correct it, or call projected coordinates x and y"
        source.refuse((np.abs(x) > 360) | (np.abs(y) > 90), text)
    there = ~(np.isnan(x) | np.isnan(y))
    of: dict[str, tuple[float, float]] = {}
    moved = np.zeros(len(cell), dtype=bool)
    for k in np.flatnonzero(there):
        moved[k] = of.setdefault(cell[k], (x[k], y[k])) != (x[k], y[k])
    text = f"a cell has one place, but this row gives another {names[0]}, {names[1]} than an earlier one: correct it"
    source.refuse(moved, text, cell)
    text = f"{names[0]} or {names[1]} is empty, and no other row of this cell has both: write them, or take both columns out"
    source.refuse(~there & ~np.isin(cell, list(of)), text, cell)
    return Places(names, {label: (float(a), float(b)) for label, (a, b) in of.items()})


def positions(texts: Texts, known: Sequence[str]) -> Index:
    """Where each text stands among the known ones; −1 where it does not."""
    import pandas as pd

    return np.asarray(pd.Index(list(known), dtype=object).get_indexer(pd.Index(texts, dtype=object)))


def known_positions(source: Source, texts: Texts, known: Sequence[str], unknown: str) -> Index | None:
    """Where each label stands among the known ones; None where one does not, which is a problem that `unknown` explains."""
    where = positions(texts, known)
    source.refuse((where < 0) & (texts != ""), unknown, texts)
    return None if (where < 0).any() else where


def cell_positions(source: Source, texts: Texts, cells: Sequence[str], role: str) -> Index | None:
    """Where each label stands among the cells; None, with the problem, where one does not."""
    known = ", ".join(repr(c) for c in cells[:5]) + (", …" if len(cells) > 5 else "")
    text = f"unknown {role}: correct it, or add it to the cells ({len(cells)} are known: {known})"
    return known_positions(source, texts, cells, text)


def laid_out(table: CountTable, values: Array, times: Sequence[str], cells: Sequence[str]) -> Array:
    """Rows into an array (time, cell[, dest]), NaN where there is none; rows of unknown labels, which are problems, are left out."""
    where = [positions(table.time, times), positions(table.cell, cells)]
    shape = [len(times), len(cells)]
    if table.dest is not None:
        where.append(positions(table.dest, cells))
        shape.append(len(cells))
    known = np.logical_and.reduce([index >= 0 for index in where])
    out = np.full(shape, np.nan)
    out[tuple(index[known] for index in where)] = values[known]
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


# --- noise models by name, and their parameters: from options, or from columns beside the counts


@dataclass(frozen=True)
class NoiseKind:
    """A noise model and the parameters it takes; those in ``needed`` have no default."""

    name: str
    model: type[Observation]
    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def takes(self) -> tuple[str, ...]:
        """All parameters."""
        return (*self.needed, *self.optional)


NOISES: Mapping[str, NoiseKind] = {
    kind.name: kind
    for kind in (
        NoiseKind("poisson", Poisson, (), ("rate", "background")),
        NoiseKind("binomial", Binomial, ("detection",)),
        NoiseKind("negative-binomial", NegativeBinomial, ("dispersion",), ("rate", "background")),
        NoiseKind("gaussian", Gaussian, ("sd",)),
        NoiseKind("laplace", LaplaceNoise, ("scale",)),
        NoiseKind("exact", Exact),
    )
}


def noise_kind(name: Any, findings: Findings) -> NoiseKind | None:
    """The noise of a name; the findings list the known ones otherwise."""
    kind = NOISES.get(str(name).strip().casefold().replace("_", "-"))
    if kind is None:
        findings.problem("noise", f"there is no noise {name!r}: use one of {', '.join(NOISES)}")
    return kind


def counts_whole(kind: NoiseKind | None) -> bool:
    """Whether the noise is one of whole counts."""
    return kind is not None and kind.model.whole


def noise_parameters(
    kind: NoiseKind,
    given: Mapping[str, float | None],
    columns: Mapping[str, Array],
    file: str,
    findings: Findings,
) -> dict[str, Any]:
    """``{parameter: number, or the column of it}``, from options or from the columns of a file, never both."""
    options = {k: v for k, v in given.items() if v is not None}
    unused = sorted(set(columns) - set(kind.takes))
    if unused:
        findings.note(f"{file}: the column {unused[0]!r} is not used by {kind.name} noise")
    takes = ", ".join(kind.takes) or "nothing"
    for p in sorted(options.keys() - set(kind.takes)):
        findings.problem("noise", f"{kind.name} noise takes no {p} (it takes {takes}): leave it out")
    for p in sorted(options.keys() & columns.keys() & set(kind.takes)):
        findings.problem("noise", f"{p} is given by an option and by a column of {file}: keep one")
    for p in sorted(set(kind.needed) - options.keys() - columns.keys()):
        text = f"{kind.name} noise needs {p}: give it ({p}=…, --{p} …) or a column {p} beside the counts"
        findings.problem("noise", text)
    chosen = {**columns, **options}
    return {p: _checked_size(p, chosen[p], findings) for p in kind.takes if p in chosen}


def table_parameters(
    kind: NoiseKind | None,
    given: Mapping[str, float | None] | None,
    table: CountTable | None,
    findings: Findings,
) -> dict[str, Any]:
    """The parameters of the noise of counts, as far as noise and table could be read."""
    if kind is None:
        return {}
    columns, file = ({}, "") if table is None else (table.parameters, table.source.name)
    return noise_parameters(kind, given or {}, columns, file, findings)


def _checked_size(parameter: str, value: Any, findings: Findings) -> Any:
    """A background is ≥ 0, every other parameter of a noise above 0; an empty entry of a column is read elsewhere."""
    numbers = np.atleast_1d(np.asarray(value, dtype=float))
    low = numbers < 0 if parameter == "background" else numbers <= 0
    wrong = low | np.isinf(numbers) | (np.isnan(numbers) & (np.ndim(value) == 0))
    if wrong.any():
        least = "≥ 0" if parameter == "background" else "above 0"
        findings.problem(
            "noise", f"{parameter} must be a finite number {least}", values=numbers[wrong].tolist()
        )
    return value


def expected(counts: Any, parameters: Mapping[str, Any]) -> Any:
    """Expected individuals behind the counts, (y − background)/(rate · detection), entry by entry."""
    rate = np.asarray(parameters.get("rate", 1.0)) * np.asarray(parameters.get("detection", 1.0))
    with np.errstate(divide="ignore", invalid="ignore"):  # a rate of 0 is reported where it is read
        return (counts - np.asarray(parameters.get("background", 0.0))) / rate


def total_hint(table: CountTable | None, parameters: Mapping[str, Any]) -> str:
    """What the counts say about the population, where there are any."""
    if table is None or not np.isfinite(table.count).any():
        return ""
    import pandas as pd

    behind = expected(table.count, parameters)
    total = float(pd.Series(behind).groupby(pd.Series(table.time)).sum().median())
    return f"; the counts of a time come to about {total:.0f}"


def note_totals(
    values: Array, parameters: Mapping[str, Any], population: int | SizeLaw, findings: Findings
) -> None:
    """Say so when the totals of fully counted times are far from N."""
    full = ~np.isnan(values).any(axis=1)
    if not full.any() or not isinstance(population, int):
        return
    total = float(np.median(np.nansum(expected(values, parameters)[full], axis=1)))
    if not 0.5 < total / population < 2:
        findings.note(
            f"the counts of a time come to about {total:.0f} individuals, the population is {population}: check the population, "
            "and the rate at which individuals are counted"
        )
