"""The kinds of tables of a problem, row by row, and what they give: counts, flows, moves, initial law, cells, noise.

Each reader gives a `Source` with the values of its columns, labels still texts, or None with the reasons among the reader's findings.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from scipy.sparse import csr_array

from headcount import observe
from headcount.dates import zoned_moment
from headcount.errors import TableError, nearest
from headcount.individual import LogLinearTransitions
from headcount.io._times import order_times
from headcount.io.columns import ENDS, PARAMETERS, PLACES, Reader, ordered, plain_labels
from headcount.io.source import Findings, Source, label_text, listed
from headcount.labels import SPELLINGS, folded
from headcount.learn import features
from headcount.learn._feature_table import columns_in, is_formula

if TYPE_CHECKING:
    from headcount._types import Array, Index
    from headcount.io._times import Times
    from headcount.population import SizeLaw


ROUNDING = 1e-4
"""Probabilities that sum to 1 within this are read as decimals rounded in print (four places) and divided by their sum."""
_EXACT_SUM = 1e-8
"""Sums of probabilities this near to 1 are left as they are: sums of doubles, written in full, differ by less."""
_SUGGESTED = 5
"""Unknown cells for which a message looks for the nearest known one."""
_DENSE_CELLS = 256
"""Up to this many cells, and where more than a tenth of the moves exist, matrices are dense: the compiled passes over dense matrices serve
up to 256 cells. Beyond, a thousand steps of a thousand cells would take 8 GB as dense matrices and 40 MB as lists of two moves per cell."""


def read_alias(given: Any, reader: Reader) -> dict[str, str]:
    """Other names of cells: ``{old: new}``, or a table ``old, new``; nothing where it cannot be read."""
    if given is None or isinstance(given, Mapping):
        return {label_text(old): label_text(new) for old, new in (given or {}).items()}
    source = replace(reader, columns=None).read(given, ["old", "new"])
    return {} if source is None else dict(zip(source["old"].tolist(), source["new"].tolist(), strict=True))


# --- counts


def read_counts(
    counts: Any,
    *,
    columns: Mapping[str, str] | None = None,
    uneven: bool = False,
    wide: bool = False,
    dates: str | None = None,
    encoding: str | Mapping[str, str] | None = None,
    decimal: str | Mapping[str, str] | None = None,
    thousands: str | Mapping[str, str] | None = None,
    missing: Sequence[str] = (),
) -> xr.DataArray:
    """Counts with dims (time, cell), NaN where no row is, places of the cells as coordinates.

    Parameters
    ----------
    counts
        A path to CSV, Excel, Parquet or NetCDF, a pandas table or an xarray cube with ``time, cell, count``.
    columns
        ``{role: column}`` where the names differ: ``{"count": "birds"}``.
    uneven
        Take times with gaps between them as successive steps.
    wide, dates, encoding, decimal, thousands, missing
        How the file is written, as in :func:`read_problem`.

    Raises
    ------
    TableError
        Everything that is wrong, with file, row and remedy.
    """
    findings = Findings()
    table = count_table(counts, Reader(findings, columns, encoding, decimal, thousands, missing, dates, wide))
    times = places = None
    if table is not None:
        places = places_in(table)
        times = order_times(table.distinct("time"), table.name, uneven=uneven, findings=findings)
    findings.raise_any()
    assert table is not None
    assert times is not None
    cells = ordered(table.distinct("cell"))
    values = table.spread(table["count"], {"time": times.texts, "cell": cells})
    return labelled_counts(values, times.labels, plain_labels(cells), cells, places)


def count_table(counts: Any, reader: Reader, *, whole: bool = False) -> Source | None:
    """``time, cell, count``, with what the noise needs and where the cells are; ``whole`` refuses fractions and negative numbers."""
    source = reader.open(counts)
    margins = reader.margins(source)
    if margins is not None:
        source = margins
    elif reader.wide:
        source = reader.long_counts(source)
    source = reader.take(source, ["time", "cell"], "count", optional=[*PARAMETERS, *PLACES], empty=True)
    return None if source is None else counted(source, "count", whole=whole)


NO_COUNTS = "times ahead"
"""Name of the table of a forecast, which has no counts."""


def no_counts() -> Source:
    """A table without counts, for a forecast."""
    return Source(NO_COUNTS, pd.DataFrame({"time": [], "cell": [], "count": []}, dtype=object), np.arange(0))


def count_tables(
    tables: Sequence[Any], reader: Reader, *, whole: bool = False, after: str | None = None
) -> Source | None:
    """Several tables of counts as one, later ones correcting earlier ones; without the times up to ``after``."""
    read = [
        count_table(table, replace(reader, _placed=set()) if k else reader, whole=whole)
        for k, table in enumerate(tables)
    ]
    found = [table for table in read if table is not None]
    if len(found) < len(tables) or not found:
        return None
    made = found[0] if len(found) == 1 else _one_below_the_other(found)
    if after is not None:
        made = made.where(np.array([later(text, after) for text in made["time"]], dtype=bool))
    return made


def _one_below_the_other(tables: Sequence[Source]) -> Source:
    """One table of several with the same columns; of two rows of one time and cell the later counts, which is noted."""
    if any("bound" in table for table in tables):
        tables = [t if "bound" in t else t.having(bound=np.zeros(len(t.rows))) for t in tables]
    roles = list(tables[0].values)
    for table in tables[1:]:
        if set(table.values) != set(roles):
            own, first = (sorted(set(t.values) - {"time", "cell", "count"}) for t in (table, tables[0]))
            table.problem(
                f"beside time, cell and count it has {listed(own) or 'nothing'}, and {tables[0].name} has {listed(first) or 'nothing'}: "
                "give all tables of counts the same columns"
            )
            return tables[0]
    values = {role: np.concatenate([table[role] for table in tables]) for role in roles}
    empty = {role: np.concatenate([table.empty[role] for table in tables]) for role in tables[0].empty}
    frame = pd.concat([table.frame for table in tables], ignore_index=True)
    rows = np.concatenate([table.rows for table in tables])
    last = tables[-1]
    whole = replace(last, frame=frame, rows=rows, empty=empty).having(**values)
    kept = ~pd.DataFrame({role: values[role] for role in ("time", "cell")}).duplicated(keep="last").to_numpy()
    if not kept.all():
        last.note(
            f"{(~kept).sum()} counts of earlier tables are replaced by later ones of the same time and cell"
        )
    return whole.where(kept)


def later(text: str, than: str) -> bool:
    """Whether a time, as text, is after another: numbers by size, dates in the form 2024-05-31 by date."""
    moments = zoned_moment(text), zoned_moment(than)
    if None not in moments:
        return bool(moments[0] > moments[1])  # type: ignore[operator]
    try:
        return float(text) > float(than)
    except ValueError:
        return text.replace("T", " ") > than.replace("T", " ")


def flow_table(flows: Any, reader: Reader, *, whole: bool = False) -> Source | None:
    """Observed flows ``time, origin, dest, count`` in any known spelling; ``time`` is that of departure."""
    source = reader.read(flows, ["time", "from", "to"], "flow", empty=True)
    return None if source is None else counted(source, "flow", whole=whole)


RECOVERY = ("from_time", "from_cell", "to_time", "to_cell")


def track_table(given: Any, reader: Reader) -> Source | None:
    """Followed individuals ``id, time, cell[, probability][, sd]``, or recoveries ``from_time, from_cell, to_time, to_cell[, id]``."""
    source = reader.open(given)
    if source is not None and not reader.roles(source, ("time", "from_time", "to_time")):
        names = [str(c) for c in source.frame.columns]
        what = "give id, time, cell (a row per position) or from_time, from_cell, to_time, to_cell (a row per recovery)"
        how = f"columns={{'from_time': {names[0]!r}}}, --column {shlex.quote(f'from_time={names[0]}')}"
        source.problem(
            f"it has {listed(list(map(repr, names)), most=8)}: {what}, or say which these are ({how} …)", [1]
        )
        return None
    if source is not None and reader.roles(source, RECOVERY):
        source = _both_ends(source, reader)
    return reader.take(source, ["id", "time", "cell"], optional=["probability", "sd"], once=False)


def _both_ends(source: Source, reader: Reader) -> Source | None:
    """Recoveries, one row each, as two positions of one individual; None where a column of theirs is missing."""
    columns = reader.columns_of(source, RECOVERY, optional=["id"])
    if not columns.keys() >= {*RECOVERY}:
        return None
    ids = source.frame[columns["id"]] if "id" in columns else source.rows.astype(str)
    ends = [
        pd.DataFrame({"id": ids, "time": source.frame[columns[time]], "cell": source.frame[columns[cell]]})
        for time, cell in (RECOVERY[:2], RECOVERY[2:])
    ]
    return replace(source, frame=pd.concat(ends, ignore_index=True), rows=np.tile(source.rows, 2))


def counted(source: Source, role: str, *, whole: bool) -> Source:
    """The table with its counts checked, NaN where nobody looked: whole numbers ≥ 0 where the noise counts individuals."""
    count = source[role]
    if whole:
        text = "a count cannot be negative: correct it, or leave it empty where nobody looked"
        count = source.without(count, count < 0, text, count)
        text = (
            "a count must be a whole number: give what was counted and the share of it in a column rate, use a noise for "
            "measurements (gaussian) or, if the point stands between thousands, say so (thousands='.', --thousands .); shares (relative "
            "abundances) times a large number N are exact counts of N, beside dispersion='estimate:phi' (--dispersion estimate:phi)"
        )
        count = source.without(count, ~np.isnan(count) & (count != np.rint(count)), text, count)
    for name in filter(source.__contains__, PARAMETERS):
        text = f"{name} is empty beside a count: write it, or leave the count empty too"
        source.refuse(source.empty[name] & ~np.isnan(count), text)
        count = np.where(np.isnan(source[name]), np.nan, count)
    return source.having(**{role: count})


def labelled_counts(
    values: Array, times: Sequence[Any], cells: Sequence[Any], texts: Sequence[str], places: PlaceTable | None
) -> xr.DataArray:
    """The array under its labels, with the places of the cells where all are known."""
    coords: dict[str, Any] = {"time": list(times), "cell": list(cells)}
    known = {} if places is None else places.columns(texts)
    coords |= {name: ("cell", column) for name, column in known.items()}
    return xr.DataArray(values, dims=("time", "cell"), coords=coords, name="count")


# --- cells and their places


@dataclass(frozen=True, eq=False)
class PlaceTable:
    """Where the cells are: names of the axes, x and y by cell, rings of their areas (from polygons), what people call them (``name``)."""

    names: tuple[str, str]
    of: Mapping[str, tuple[float, float]]
    shapes: Mapping[str, Sequence[Array]] = field(default_factory=dict)
    called: Mapping[str, str] = field(default_factory=dict)

    def columns(self, cells: Sequence[str]) -> dict[str, Array]:
        """Both coordinates of the cells, by the axis' name; nothing where a cell has no place."""
        if not all(cell in self.of for cell in cells):
            return {}
        return dict(zip(self.names, np.array([self.of[cell] for cell in cells]).T, strict=True))


class Cells(NamedTuple):
    """The cells in their order, where they are, and the table that says so."""

    labels: list[str]
    places: PlaceTable | None
    source: Source


def cell_table(given: Any, reader: Reader) -> Cells | None:
    """``cell[, x, y]`` or ``cell[, lon, lat]``, and further columns for `formula_moves`."""
    source = reader.read(given, ["cell"], optional=PLACES)
    if source is None:
        return None
    cells, places, shapes = source["cell"].tolist(), places_in(source), source.frame.attrs.get("shapes")
    if places is not None and shapes is not None:
        held = {label: shapes[row - 1] for label, row in zip(cells, source.rows, strict=True)}
        places = replace(places, shapes={label: rings for label, rings in held.items() if rings})
    called = _called(source, cells)
    if called:
        places = replace(places or PlaceTable(("x", "y"), {}), called=called)
    return Cells(list(dict.fromkeys(cells)), places, source)


def _called(source: Source, cells: Sequence[str]) -> dict[str, str]:
    """What a column ``name`` calls the cells; nothing where it is the column of the cells itself, or says nothing new."""
    column = next((c for c in source.frame.columns if folded(str(c)) in SPELLINGS["name"]), None)
    if column is None or column == source.columns.get("cell"):
        return {}
    texts = source.frame[column].fillna("").astype(str).str.strip().tolist()
    return {cell: text for cell, text in zip(cells, texts, strict=True) if text and text != cell}


def places_in(source: Source) -> PlaceTable | None:
    """x and y (or lon and lat) of every cell; the same in all its rows."""
    names = ("lon", "lat") if "lon" in source else ("x", "y")
    if names[0] not in source:
        return None
    cell, x, y = (source[role] for role in ("cell", *names))
    if names == ("lon", "lat"):
        text = "lon lies within ±360 and lat within ±90 degrees: correct it, or call projected coordinates x and y"
        source.refuse((np.abs(x) > 360) | (np.abs(y) > 90), text)
    there = ~(np.isnan(x) | np.isnan(y))
    of: dict[str, tuple[float, float]] = {}
    moved = np.zeros(len(cell), dtype=bool)
    for k in np.flatnonzero(there).tolist():
        place = float(x[k]), float(y[k])
        moved[k] = of.setdefault(cell[k], place) != place
    text = f"a cell has one place, but this row gives another {names[0]}, {names[1]} than an earlier one: correct it"
    source.refuse(moved, text, cell)
    text = f"{names[0]} or {names[1]} is empty, and no other row of this cell has both: write them, or take both columns out"
    empty = source.empty[names[0]] | source.empty[names[1]]
    source.refuse(empty & ~np.isin(cell, list(of)), text, cell)
    return PlaceTable(names, of)


def knows_cells(source: Source, cells: Sequence[str], *roles: str) -> bool:
    """Whether all labels of the roles are cells; others are problems."""
    shown = ", ".join(repr(c) for c in cells[:5]) + (", …" if len(cells) > 5 else "")
    asked = _suggested(source, cells, roles)
    remedy = f"{asked}Otherwise correct it" if asked else "correct it"
    remedy += f", or add it to the cells ({len(cells)} are known: {shown})"
    texts = {role: f"unknown {ENDS.get(role, role)}: {remedy}" for role in roles}
    known = [
        source.knows(role, cells, text) for role, text in texts.items()
    ]  # every role, whatever is wrong with another
    return all(known)


def _suggested(source: Source, cells: Sequence[str], roles: Sequence[str]) -> str:
    """For unknown cells the nearest known ones, as questions, with the option that renames them; nothing where none is near."""
    stray = dict.fromkeys(t for role in roles for t in source[role][source.positions(role, cells) < 0] if t)
    near = {old: nearest(old, cells) for old in list(stray)[:_SUGGESTED]}
    return "".join(
        f"did you mean {new!r} for {old!r} (alias={{{old!r}: {new!r}}}, --alias {shlex.quote(f'{old}={new}')})? "
        for old, new in near.items()
        if new is not None
    )


# --- how individuals move: transition matrices, or features and their weights


class MoveTable(NamedTuple):
    """Moves as read: ``from`` and ``to`` (and ``time`` where steps differ) with values (rows, K).

    The values are those of the named features or, without names, probabilities or flows.
    """

    source: Source
    values: Array
    names: tuple[str, ...] = ()

    def leaving(self, times: Sequence[str]) -> MoveTable:
        """The moves that leave at some times; all where they have no time."""
        if "time" not in self.source:
            return self
        kept = np.isin(self.source["time"], list(times))
        return self._replace(source=self.source.where(kept), values=self.values[kept])


class Made(NamedTuple):
    """Transition matrices, and the features they were made of."""

    matrices: Any
    features: Array | None = None
    mask: Array | None = None
    names: tuple[str, ...] = ()


def formula_of(features: Any) -> str | None:
    """The features where they are written as a formula; None where they are a table or the name of a file."""
    if not isinstance(features, str) or not is_formula(features) or os.path.exists(features):
        return None
    return features


def formula_moves(formula: str, known: Cells | None, reader: Reader) -> MoveTable | None:
    """Every move between the cells, with the features that a formula makes of the cells' table (`headcount.features`)."""
    if known is None:
        text = (
            f"the formula {formula!r} needs a table of the cells: cell, x, y (or lon, lat) and the columns that it names (cells=…, "
            "--cells FILE)"
        )
        reader.findings.problem("features", text)
        return None
    source, cells = known.source, known.labels
    named = columns_in(formula)
    beside = reader.covariates(
        source, [c for c in map(str, source.frame.columns) if "".join(c.split()) in named]
    )
    if beside is None or len(source.rows) != len(cells):  # a cell has two rows, which was refused
        return None
    table = source.frame.drop(columns=list(source.columns.values())).rename(columns=str)
    table = table.assign(
        cell=cells, **beside, **({} if known.places is None else known.places.columns(cells))
    )
    made = reader.findings.attempt(features, table, formula)
    if made is None:
        return None
    names = tuple(made.coords["feature"].values.tolist())
    _note_features(source, names, beside)
    return _every_move(replace(source, name="the formula"), cells, made.values, names)


def _note_features(source: Source, names: Sequence[str], columns: Mapping[str, Any]) -> None:
    """Say which features a formula makes, and with what the values of texts are compared."""
    compared = [f"{c}: with {v[0]!r}" for c, v in sorted(columns.items()) if v.dtype == object]
    text = f"; values of texts are compared with the first ({', '.join(compared)})" if compared else ""
    source.findings.note(f"the formula makes the features {', '.join(names)}{text}")


def _every_move(
    source: Source, cells: Sequence[str], values: Array, names: tuple[str, ...] = ()
) -> MoveTable:
    """The moves between all cells, of values (K, L, L); without names, and so of trips, those that are above 0 alone."""
    start, end = (k.ravel() for k in np.indices((len(cells), len(cells))))
    if not names:
        start, end = np.nonzero(values[0])
    labels = np.array(cells, dtype=object)
    rows = replace(source, rows=np.arange(1, len(start) + 1), values={}, empty={})
    return MoveTable(
        rows.having(**{"from": labels[start], "to": labels[end]}), values[:, start, end].T, names
    )


ZEROS = ("small", "impossible")
"""What a pair without trips in an old matrix means: rare, or impossible."""
SMALL_ZERO = 0.5
"""Trips that a pair without any stands for, in units of the smallest positive entry: of a Poisson count of 0 the posterior mean under
Jeffreys' prior is a half, and the smallest entry is about what one seen trip was expanded to."""


def old_matrix_table(given: Any, zeros: str, reader: Reader) -> MoveTable | None:
    """An old matrix of trips ``origin, dest, count``, one column per destination, or OMX; pairs without trips as ``zeros`` says."""
    if zeros not in ZEROS:
        reader.findings.problem("zeros", f"give {' or '.join(ZEROS)}, got {zeros!r}")
        return None
    return transition_table(given, reader, normalise=True, fill=True)


def filled(moves: MoveTable, cells: Sequence[str], zeros: str) -> MoveTable:
    """The old matrix with a row for every pair of cells, where ``zeros`` are small; what is done about them is noted.

    A diagonal without any trip was not counted, and stays impossible.
    """
    source, size = moves.source, len(cells)
    table = source.spread(moves.values[:, 0], {"from": cells, "to": cells}, 0.0)
    empty = table == 0
    inside = np.eye(size, dtype=bool) & empty.diagonal().all()
    rare = empty & ~inside
    own = "trips inside a cell are impossible, as it has none; " if inside.any() and size > 1 else ""
    if zeros == "impossible" or not rare.any() or not (table > 0).any():
        if empty.any():
            source.note(
                f"{own}{rare.sum()} of {size * size} pairs have no trips in it and are taken as impossible"
            )
        return moves
    small = SMALL_ZERO * table[table > 0].min()
    source.note(
        f"{own}{rare.sum()} of {size * size} pairs have no trips in it and are taken as rare, {small:.4g} each, half the smallest entry "
        f"({rare.sum() * small / (table.sum() + rare.sum() * small):.1%} of all trips together); zeros='impossible', --zeros impossible "
        "forbids them"
    )
    table[rare] = small
    return _every_move(source, cells, table[None])


def sum_table(
    sums: Any, counts: Any, reader: Reader, *, whole: bool
) -> tuple[Source, dict[str, float]] | None:
    """Sums of flows ``sum, origin, dest[, time]`` and the count of each: in a table ``sum, count`` or in a column beside them."""
    beside = ["time", *(["flow"] if counts is None else [])]
    source = reader.read(sums, ["sum", "from", "to"], optional=beside)
    if source is None:
        return None
    if counts is None and "flow" not in source:
        source.problem(
            "there is no count: add a column count, or give a table sum, count (sum_counts=…, --sum-counts FILE)",
            [1],
        )
        return None
    table = source if counts is None else reader.read(counts, ["sum"], "flow", empty=True)
    if table is None:
        return None
    table = counted(table, "flow", whole=whole)
    names = list(dict.fromkeys(source["sum"].tolist()))
    table.knows("sum", names, f"unknown sum: {source.name} has {listed(names)}: correct it")
    found = _one_count_each(table)
    absent = [repr(name) for name in names if name not in found]
    if absent:
        source.note(f"no count of {listed(absent)}: nothing is known of these flows")
    return source, found


def _one_count_each(table: Source) -> dict[str, float]:
    """The count of every sum that has one; two that differ are a problem."""
    found: dict[str, float] = {}
    differ = np.zeros(len(table.rows), dtype=bool)
    for k, (name, count) in enumerate(zip(table["sum"].tolist(), table["flow"].tolist(), strict=True)):
        if count == count:
            differ[k] = found.setdefault(name, count) != count
    text = "a sum has one count, but this row gives another than an earlier one: correct it"
    table.refuse(differ, text, table["flow"])
    return found


def move_table(
    transitions: Any, features: Any, known: Cells | None, reader: Reader, *, normalise: bool
) -> MoveTable | None:
    """The table or formula that says how individuals move; exactly one."""
    if transitions is not None and features is not None:
        text = "transitions and features are two ways to say the same: give one"
        reader.findings.problem("transitions", text)
        return None
    if transitions is not None:
        return transition_table(transitions, reader, normalise=normalise)
    formula = formula_of(features)
    if formula is not None:
        return formula_moves(formula, known, reader)
    if features is not None:
        return _feature_table(features, reader)
    text = (
        "how individuals move is missing: give transitions (--transitions FILE with from, to, probability[, time]), or features and "
        'their weights (--features FILE with from, to and one column per feature, or a formula such as "stay + log(distance)" of '
        "--cells FILE; --weights 1,2,…). To learn the weights, use headcount fit"
    )
    reader.findings.problem("transitions", text)
    return None


def transition_table(
    given: Any, reader: Reader, *, normalise: bool = False, fill: bool = False
) -> MoveTable | None:
    """``from, to, probability[, time]``, or one column per destination; with ``normalise`` flows will do.

    Zeros that nobody fills are noted, where they may be pairs without a trip in a sample.
    """
    source = reader.open(given)
    named = reader.roles(source, ["probability", "to"])
    role = "flow" if normalise and "probability" not in named else "probability"
    square = reader.matrix(source)
    wide = square is not None or (reader.wide and "to" not in named)
    if wide:
        source = reader.long(source if square is None else square, "from", "to", role)
    source = reader.take(source, ["from", "to"], role, optional=["time"], empty=wide)
    if source is None:
        return None
    if wide:  # an empty entry of a matrix is a move that cannot happen
        source = source.where(~source.empty[role])
    values = source[role]
    refuse_negative(source, role)
    zeros = int((values == 0).sum())
    if normalise and not fill and zeros:
        source.note(
            f"{zeros} of {len(values)} moves are 0 and are taken as impossible (old_matrix=…, --old-matrix takes them as rare)"
        )
    if not normalise:
        text = (
            "a probability cannot exceed 1: correct it; if these are flows or counts, have every origin's divided by their sum "
            "(normalise=True, --normalise)"
        )
        source.refuse(values > 1 + 1e-9, text, values)
    return MoveTable(source, values[:, None])


def refuse_negative(source: Source, role: str) -> bool:
    """Whether there are negative values, which are then a problem."""
    return source.refuse(source[role] < 0, f"{role} cannot be negative: correct it", source[role])


def _feature_table(given: Any, reader: Reader) -> MoveTable | None:
    """``from, to, <one column per feature>[, time]``; every further column is a feature."""
    source = reader.read(given, ["from", "to"], optional=["time"], rest="feature")
    if source is None:
        return None
    roles = [role for role in source.values if role not in {"from", "to", "time"}]
    if not roles:
        source.problem("there is no column left for a feature: add one per feature beside from and to", [1])
        return None
    values = np.stack([source[role] for role in roles], axis=1)
    return MoveTable(source, values, tuple(source.columns[role] for role in roles))


def transitions_of(
    moves: MoveTable | None,
    cells: list[str],
    times: Times | None,
    weights: Any,
    reader: Reader,
    *,
    normalise: bool,
) -> Made | None:
    """One matrix, or one per step, from probabilities or from features and their weights; None where they cannot be read."""
    if moves is None:
        return None
    if not moves.names:
        made = transition_matrices(moves, cells, times, normalise=normalise)
        return None if made is None else Made(made)
    arrays = _feature_arrays(moves, cells, times)
    numbers = _weights(weights, moves.names, reader)
    if arrays is None or numbers is None:
        return None
    features, mask = arrays
    matrices = LogLinearTransitions(features, mask).transitions(numbers)
    return Made(matrices if matrices.ndim == 2 else list(matrices), features, mask, moves.names)


def read_weights(
    given: Any, names: Sequence[str], *, encoding: str | Mapping[str, str] | None = None
) -> Array:
    """One weight per feature, in the features' order.

    Parameters
    ----------
    given
        Numbers, ``{feature: number}``, or a table ``feature, weight``; 0 for all if None.
    """
    findings = Findings()
    weights = _weights(given, names, Reader(findings, encoding=encoding))
    findings.raise_any()
    assert weights is not None
    return weights


def _weights(given: Any, names: Sequence[str], reader: Reader) -> Array | None:
    """As `read_weights`; None, with the reasons among the findings, where they cannot be read."""
    if given is None:
        return np.zeros(len(names))
    if isinstance(given, (str, os.PathLike)):
        table = replace(reader, columns=None).read(given, ["feature"], "weight")
        if table is None:
            return None
        given = dict(zip(table["feature"].tolist(), table["weight"].tolist(), strict=True))
    return reader.findings.attempt(_weight_array, given, names)


def _weight_array(given: Any, names: Sequence[str]) -> Array:
    """Numbers, or ``{feature: number}``, as one finite number per feature; anything else is a `TableError`."""
    if isinstance(given, Mapping):
        if set(given) != set(names):
            raise TableError(
                f"weights: weights name {sorted(map(str, given))}, the features are {list(names)}: give one each"
            )
        given = [given[name] for name in names]
    try:
        weights = np.atleast_1d(np.asarray(given, dtype=float))
    except (TypeError, ValueError):
        text = f"weights: give numbers, {{feature: number}} or a table feature, weight; got {given!r}"
        raise TableError(text) from None
    if weights.shape != (len(names),) or not np.isfinite(weights).all():
        raise TableError(
            f"weights: {len(weights)} weights for the {len(names)} features {', '.join(names)}: give one finite number each"
        )
    return weights


def _steps(moves: MoveTable, cells: Sequence[str], times: Times | None) -> list[tuple[str, Index]] | None:
    """The rows of every step, with words for when it is; one step where all are alike, None where something is wrong."""
    source = moves.source
    if not knows_cells(source, cells, "from", "to"):
        return None
    if "time" not in source:
        return [("", np.arange(len(source.rows)))]
    if times is None:
        return None
    where = source.positions("time", times.texts)
    text = (
        f"there are moves that leave at {times.texts[-1]}, the last time: the time of a move is that of its departure; add counts "
        "for the time after it (empty where nobody looked), or take these rows out"
    )
    late = source.refuse(where == len(times.texts) - 1, text)
    departures = times.texts[:-1]
    order = np.argsort(where, kind="stable")
    rows = np.split(order, np.searchsorted(where[order], np.arange(len(times.texts))))[1:-1]
    absent = [text for text, found in zip(departures, rows, strict=True) if not len(found)]
    if absent:
        source.problem(
            f"there are no moves that leave at {listed(absent)}: give them for every time but the last, or leave the column time out"
        )
    if any([late, absent, (where < 0).any()]):
        return None
    return [(f" at {text}", found) for text, found in zip(departures, rows, strict=True)]


def transition_matrices(
    moves: MoveTable, cells: Sequence[str], times: Times | None, *, normalise: bool
) -> Any:
    """One (L, L) matrix when all steps are alike, a list of T − 1 otherwise (equal ones shared); None if something is wrong."""
    steps = _steps(moves, cells, times)
    if steps is None:
        return None
    origin, dest = (moves.source.positions(role, cells) for role in ("from", "to"))
    values = moves.values[:, 0]
    made: dict[bytes, Any] = {}
    matrices = []
    for when, rows in steps:
        order = rows[np.lexsort((dest[rows], origin[rows]))]
        key = b"".join(a[order].tobytes() for a in (origin, dest, values))
        if key not in made:
            shares = _shares(origin[rows], values[rows], moves.source, cells, when, normalise)
            made[key] = None if shares is None else _matrix(origin[rows], dest[rows], shares, len(cells))
        matrices.append(made[key])
    if any(m is None for m in matrices):
        return None
    return matrices if "time" in moves.source else matrices[0]


def _feature_arrays(
    moves: MoveTable, cells: Sequence[str], times: Times | None
) -> tuple[Array, Array] | None:
    """Features (K, L, L) or (T − 1, K, L, L), and the mask that forbids moves without a row (−inf); None if something is wrong."""
    steps = _steps(moves, cells, times)
    if steps is None:
        return None
    source, size = moves.source, len(cells)
    origin, dest = (source.positions(role, cells) for role in ("from", "to"))
    values = np.zeros((len(steps), len(moves.names), size, size))
    mask = np.full((len(steps), size, size), -np.inf)
    for k, (_, rows) in enumerate(steps):
        values[k, :, origin[rows], dest[rows]] = moves.values[rows]
        mask[k, origin[rows], dest[rows]] = 0.0
    closed = np.isneginf(mask).all(axis=2).any(axis=0)
    if closed.any():
        _nowhere(source, [cells[k] for k in np.flatnonzero(closed).tolist()], "")
        return None
    absent = int(np.isneginf(mask).sum())
    if absent:
        source.note(f"{absent} of {mask.size} moves have no row and are taken as impossible")
    if not np.isfinite(moves.values).all():  # refused where they were read
        return None
    return (values, mask) if "time" in source else (values[0], mask[0])


def _matrix(origin: Index, dest: Index, values: Array, size: int) -> Any:
    if size <= _DENSE_CELLS or len(values) > 0.1 * size * size:
        dense = np.zeros((size, size))
        dense[origin, dest] = values
        return dense

    return csr_array((values, (origin, dest)), shape=(size, size))


def _shares(
    origin: Index, values: Array, source: Source, cells: Sequence[str], when: str, normalise: bool
) -> Array | None:
    """Values that sum to 1 for every origin, or None and the reason; entries that were refused where they were read are a reason too."""
    sums: Array = np.bincount(origin, values, len(cells)).astype(float)
    empty = np.flatnonzero(sums == 0)
    if len(empty):
        _nowhere(source, [cells[k] for k in empty.tolist()], when)
        return None
    off = np.abs(sums - 1)
    far = not normalise and _refuse_sums(source, cells, sums, np.flatnonzero(off > ROUNDING), when)
    if far or np.isnan(sums).any():
        return None
    if off.max(initial=0.0) <= _EXACT_SUM:
        return values
    if not normalise:
        source.note(
            f"probabilities that sum to 1 within {ROUNDING:g} were read as rounded and divided by their sum"
        )
    return values / sums[origin]


def _refuse_sums(source: Source, cells: Sequence[str], sums: Array, far: Index, when: str) -> bool:
    """Whether the probabilities from some origins, at the places `far`, do not sum to 1, which is then a problem."""
    if len(far):
        shown = "; ".join(f"{cells[k]!r} {sums[k]:.6g}" for k in far[:5]) + ("; …" if len(far) > 5 else "")
        text = (
            f"the probabilities from {len(far)} origin{'s' if len(far) > 1 else ''}{when} do not sum to 1 ({shown}): add the missing "
            "destinations (staying put is one), or have them divided by their sum (normalise=True, --normalise)"
        )
        source.problem(text)
    return len(far) > 0


def _nowhere(source: Source, cells: Sequence[str], when: str) -> None:
    shown = listed([repr(c) for c in cells])
    source.problem(
        f"there is no move from {shown}{when}: give at least one each (staying put, from and to the same cell, is one)"
    )


# --- noise models by name, and their parameters: from options, or from columns beside the counts


Noise = type[observe.Observation]

NOISES: Mapping[str, Noise] = {noise.keyword: noise for noise in observe.NOISES if noise.keyword}
"""The noises that tables and the command line know, by their names there."""


def noise_kind(name: Any, findings: Findings) -> Noise | None:
    """The noise of a name; the findings list the known ones otherwise."""
    kind = NOISES.get(str(name).strip().casefold().replace("_", "-"))
    if kind is None:
        findings.problem("noise", f"there is no noise {name!r}: use one of {', '.join(NOISES)}")
    return kind


def noise_parameters(
    kind: Noise | None,
    given: Mapping[str, float | None] | None,
    source: Source | None,
    findings: Findings,
) -> dict[str, Any]:
    """``{parameter: number, or the column of it}``, from options or from the columns of a table, never both."""
    if kind is None:
        return {}
    options = {k: v for k, v in (given or {}).items() if v is not None}
    columns = {} if source is None else {p: source[p] for p in PARAMETERS if p in source}
    chosen = {p: value for p, value in {**columns, **options}.items() if p in kind.parameters()}
    _check_columns(kind, options, columns, source)
    _check_parameters(kind, options, chosen, findings)
    return chosen


def _check_columns(
    kind: Noise, options: Mapping[str, float], columns: Mapping[str, Any], source: Source | None
) -> None:
    """A column that the noise does not take is noted; one that an option gives too is a problem."""
    if source is None:
        return
    for name in sorted(set(columns) - set(kind.parameters()))[:1]:
        source.note(f"the column {name!r} is not used by {kind.keyword} noise")
    for p in sorted(options.keys() & columns.keys() & set(kind.parameters())):
        text = f"{p} is given by an option and by a column of {source.name}: keep one"
        source.findings.problem("noise", text)


def _check_parameters(
    kind: Noise, options: Mapping[str, float], chosen: Mapping[str, Any], findings: Findings
) -> None:
    """Parameters that the noise does not take, that are missing, or that are too small, are problems."""
    takes = ", ".join(kind.parameters()) or "nothing"
    needed = {name for name, must in kind.parameters().items() if must}
    for p in sorted(options.keys() - set(kind.parameters())):
        findings.problem("noise", f"{kind.keyword} noise takes no {p} (it takes {takes}): leave it out")
    for p in sorted(needed - chosen.keys()):
        text = f"{kind.keyword} noise needs {p}: give it ({p}=…, --{p} …) or a column {p} beside the counts"
        findings.problem("noise", text)
    for p, value in chosen.items():
        _check_size(p, value, findings)


def _check_size(parameter: str, value: Any, findings: Findings) -> None:
    """A background is ≥ 0, every other parameter of a noise above 0; an empty entry of a column is read elsewhere."""
    numbers = np.atleast_1d(np.asarray(value, dtype=float))
    low = numbers < 0 if parameter == "background" else numbers <= 0
    wrong = low | np.isinf(numbers) | (np.isnan(numbers) & (np.ndim(value) == 0))
    if wrong.any():
        least = "≥ 0" if parameter == "background" else "above 0"
        findings.problem(
            "noise", f"{parameter} must be a finite number {least}", values=numbers[wrong].tolist()
        )


def expected(counts: Any, parameters: Mapping[str, Any]) -> Any:
    """Expected individuals behind the counts, (y − background)/(rate · detection), entry by entry."""
    rate = np.asarray(parameters.get("rate", 1.0)) * np.asarray(parameters.get("detection", 1.0))
    with np.errstate(divide="ignore", invalid="ignore"):  # a rate of 0 is reported where it is read
        return (counts - np.asarray(parameters.get("background", 0.0))) / rate


def total_hint(table: Source | None, parameters: Mapping[str, Any]) -> str:
    """What the counts say about the population, where there are any: those of the times with the most of them."""
    if table is None or not np.isfinite(table["count"]).any():
        return ""

    behind = pd.Series(expected(table["count"], parameters)).groupby(table["time"]).agg(["sum", "count"])
    total = float(behind["sum"][behind["count"] == behind["count"].max()].median())
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
