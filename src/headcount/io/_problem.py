"""From tables to a Problem: read everything, collect everything that is wrong, then build.

`read_problem` reads a chain with its observations, `opened` lets its individuals come and go, `read_chain` reads a chain alone and
`read_network` a network in BIF. Files are opened by `source`, columns and their values found by `columns` and `_times`, the kinds of
tables read by `tables`.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from headcount.errors import FaultsError, TableError, known_keywords
from headcount.individual import DiscreteModel, MarkovChain, Model, OpenChain
from headcount.io._times import Times, order_times, snapped
from headcount.io.columns import PARAMETERS, Reader, ordered, plain_labels
from headcount.io.source import Findings, Source, by_sequences, label_text, listed
from headcount.io.tables import (
    NO_COUNTS,
    ROUNDING,
    Cells,
    Made,
    MoveTable,
    Noise,
    PlaceTable,
    cell_table,
    count_table,
    count_tables,
    counted,
    expected,
    filled,
    flow_table,
    formula_of,
    knows_cells,
    labelled_counts,
    move_table,
    noise_kind,
    noise_parameters,
    note_totals,
    old_matrix_table,
    places_in,
    read_alias,
    refuse_negative,
    sum_table,
    total_hint,
    track_table,
    transition_matrices,
    transition_table,
    transitions_of,
)
from headcount.labels import are_margins
from headcount.observe import Censored, Observation, Problem, ProblemError, Tracks

if TYPE_CHECKING:
    from headcount._types import Array
    from headcount.population import SizeLaw


_INITIAL_LAWS = ("counts", "smoothed", "uniform", "learned")
_STAND_IN_CELLS = 256
"""Up to this many cells, transitions that cannot be read are taken as uniform, so that the problem's own faults are found too."""
NO_POPULATION = "how many individuals there are is missing: give it (population=N, --population N)"


@dataclass(frozen=True, eq=False)
class Case:
    """A problem read from tables, and what should be said about it.

    Attributes
    ----------
    problem
        Model, population, observations.
    notes
        What was decided for the user, one sentence each.
    features, mask, feature_names
        What the transitions are made of, where they were given as features.
    shapes
        Rings of the cells' areas by cell, where they were given as polygons.
    names
        What people call the cells, by cell, where a column ``name`` beside the cells says it.
    before
        The old matrix as ``origin, dest, before``, where one was given.
    """

    problem: Problem
    notes: tuple[str, ...] = ()
    features: Array | None = None
    mask: Array | None = None
    feature_names: tuple[str, ...] = ()
    shapes: Mapping[Hashable, Sequence[Array]] | None = None
    names: Mapping[Hashable, str] | None = None
    before: pd.DataFrame | None = None

    @property
    def learns_initial(self) -> bool:
        """Whether the initial distribution is unknown, so that `headcount.infer` learns it."""
        return not self.problem.model.initial_known


@known_keywords(
    **{name: f"give it as parameters={{{name!r}: …}}" for name in PARAMETERS},
    **{f"flow_{name}": f"give it as flow_parameters={{{name!r}: …}}" for name in PARAMETERS},
)
def read_problem(
    counts: Any,
    *,
    population: int | SizeLaw | None,
    transitions: Any = None,
    old_matrix: Any = None,
    zeros: str = "small",
    features: Any = None,
    weights: Any = None,
    initial: Any = "learned",
    cells: Any = None,
    flows: Any = None,
    sums: Any = None,
    sum_counts: Any = None,
    tracks: Any = None,
    tracks_counted: bool = True,
    snap: str | None = None,
    noise: str = "poisson",
    parameters: Mapping[str, float | None] | None = None,
    flow_noise: str = "poisson",
    flow_parameters: Mapping[str, float | None] | None = None,
    columns: Mapping[str, str] | None = None,
    encoding: str | Mapping[str, str] | None = None,
    uneven: bool = False,
    normalise: bool = False,
    decimal: str | Mapping[str, str] | None = None,
    thousands: str | Mapping[str, str] | None = None,
    missing: Sequence[str] = (),
    dates: str | None = None,
    wide: bool = False,
    alias: Any = None,
    bounds: str | None = None,
    after: str | None = None,
    ahead: Sequence[str] = (),
) -> Case:
    """A problem about a chain from tables: counts by time and cell, and how individuals move.

    Parameters
    ----------
    counts
        ``time, cell, count``, and whichever of ``rate, sd, detection, …`` the noise needs by row; ``x, y`` or ``lon, lat``.
        CSV, Excel (``book.xlsx`` or ``book.xlsx#sheet``), Parquet, NetCDF, a pandas table or an xarray cube. An empty count is
        "nobody looked". A list of such tables is read as one; where two have the same time and cell, the later table corrects the earlier.
        The two totals of a matrix of trips may have one row per cell: ``cell, entries, exits``.
    population
        N, or what is known of it: ``About``, ``Between`` or ``Unknown``. It may be left out for the totals of a matrix of trips that agree.
    transitions
        ``from, to, probability[, time]`` (time of departure); moves without a row have probability 0.
    old_matrix, zeros
        An old matrix of trips instead of transitions: ``origin, dest, count``, one column per destination, or OMX; every origin's trips are
        divided by their sum. Pairs without trips are rare (``"small"``: half the smallest entry) or ``"impossible"``. How far today's
        shares are from the old ones is learned: the problem's dispersion is ``"estimate"`` (``"alone"`` takes the old ones as true).
    features, weights
        ``from, to, <features>[, time]`` and one weight each (a sequence, ``{name: weight}`` or a table ``feature, weight``): another
        way to say how individuals move. Moves without a row are impossible. Without weights they are 0, where learning starts.
        Or a formula, ``"stay + log(distance) + habitat_to"``, of the places and further columns of `cells` (see `headcount.features`).
    initial
        ``"learned"`` (unknown: `headcount.infer` and `fit` learn it under a flat prior), a table ``cell, probability``, ``"counts"``
        (shares of the first counts, which are then used twice), ``"smoothed"`` (the same, half an individual more in every cell)
        or ``"uniform"``.
    cells
        ``cell[, x, y]``: all the cells, their order and their places; or their polygons as GeoJSON or GeoPackage.
    flows
        Observed flows ``time, origin, dest, count``, with ``flow_noise`` and ``flow_parameters`` of their own.
    sums, sum_counts
        Observed sums of flows (screenlines): the pairs of each, ``sum, origin, dest[, time]``, and a table ``sum, count`` (or a column
        count beside the pairs), with the noise of the flows.
    tracks, tracks_counted
        Followed individuals ``id, time, cell[, probability][, sd]`` (see `headcount.Tracks`; sd needs places of the cells) or
        recoveries ``from_time, from_cell, to_time, to_cell``, and whether they are among the population and its counts.
    snap
        How far times of tracks and flows may lie from the times of the counts to be moved to the nearest: ``"3d"``, ``"12h"``, or a number
        where times are numbers. Without it other times are refused.
    noise, parameters
        ``poisson`` (rate, background), ``binomial`` (detection), ``negative-binomial`` (dispersion, rate, background),
        ``gaussian`` (sd), ``laplace`` (scale), ``exact``.
    columns
        ``{role: column}`` where the names differ.
    encoding
        Of text files, for all or ``{file: encoding}``; UTF-8, UTF-16 and Windows-1252 are told apart where it is not given.
    uneven
        Take unevenly spaced times as successive steps. Otherwise single missing times of an even series are added, as times at which
        nobody looked, and other gaps are refused.
    normalise
        Divide every origin's values by their sum.
    decimal, thousands
        How numbers are written, for all files or ``{file: separator}``; found out from all numbers of a file, and noted, where it is not
        given.
    missing
        Texts that stand for "not observed", beside the usual ones (empty, NA, n.a., -).
    dates
        ``"day-first"`` or ``"month-first"``, for dates such as 03/04/2024 in which no number is above 12.
    wide
        Counts have one column per cell or per time, transitions one per destination; tables that are not so are read as they are.
    alias
        Other names of cells in any table: ``{old: new}``, or a table ``old, new``.
    bounds
        What ``>60`` is read as: ``"censored"`` (a bound, as in `Censored`; so among counts unless given), ``"number"`` or
        ``"missing"``; elsewhere refused where it is not given. ``ca. 320`` is 320, with a note.
    after
        The last time of an earlier run, with which the chain begins (`headcount.infer` is then given its posterior as ``start``): counts
        up to it are left out, and `initial` is not read.
    ahead
        Times to forecast, of which there are no counts.

    Returns
    -------
    Case
        The problem, and notes on what was decided.

    Raises
    ------
    TableError
        Everything wrong with the tables, with file, row and remedy.
    headcount.ModelError, headcount.ProblemError
        What the tables say cannot be.
    """
    findings = Findings()
    reader = Reader(findings, columns, encoding, decimal, thousands, missing, dates, wide, bounds=bounds)
    reader = replace(reader, alias=read_alias(alias, reader))
    kind = noise_kind(noise, findings)
    whole = kind is not None and kind.whole
    table = count_tables(
        counts if isinstance(counts, list) else [counts],
        replace(reader, bounds=bounds or "censored", whole=whole),
        whole=whole,
        after=after,
    )
    known = None if cells is None else cell_table(cells, reader)
    normalise |= old_matrix is not None
    if transitions is None and features is None and old_matrix is None and after is None and not ahead:
        transitions = _staying(table, known, findings)
    moves = _moves(old_matrix, zeros, transitions, features, known, reader, normalise=normalise)
    initial = initial if after is None else "uniform"  # the past knows better
    start = _initial_table(initial, reader)
    numbers = noise_parameters(kind, parameters, table, findings)
    population = _trips(table, findings) if population is None else population
    if population is None:
        findings.problem("population", NO_POPULATION + total_hint(table, numbers))
    # From here on every part is read as far as the others allow, so that one report says everything.
    more = [*([] if after is None else [after]), *ahead]
    axes = _axes(table, moves, known, uneven=uneven, findings=findings, more=more)
    if not more:
        axes, moves = _until_counted(axes, table, moves)
    elif moves is not None and axes.times is not None:
        moves = moves.leaving(
            axes.times.texts[:-1]
        )  # the table may have moves of the past, and of later times
    before = None
    if old_matrix is not None and moves is not None:
        before, moves = _before(moves, axes), filled(moves, axes.cells, zeros)
    seen = None if table is None else _seen(table, numbers, axes)
    law = _initial_law(initial, start, axes, findings, seen)
    made = transitions_of(moves, axes.cells, axes.times, weights, reader, normalise=normalise)
    beside: list[Observation | Tracks] = [
        *_flow_observations(flows, (sums, sum_counts), (flow_noise, flow_parameters), axes, reader, snap),
        *_tracks(tracks, axes, reader, counted=tracks_counted, snap=snap),
    ]
    problem = _built(law, made, seen, beside, kind, population, initial, axes, findings)
    findings.raise_any()
    assert problem is not None
    assert seen is not None
    if before is not None:
        problem = problem.with_dispersion("estimate")
        findings.note(
            "how far today's shares are from those of the old matrix is learned from the counts; --dispersion alone takes those as true"
        )
    note_totals(seen.counts, seen.parameters, problem.population, findings)
    features, mask, names = (None, None, ()) if made is None else made[1:]
    return Case(problem, tuple(findings.notes), features, mask, names, axes.shapes, axes.names, before)


def _moves(
    old_matrix: Any,
    zeros: str,
    transitions: Any,
    features: Any,
    known: Cells | None,
    reader: Reader,
    *,
    normalise: bool,
) -> MoveTable | None:
    """How individuals move, from an old matrix or from what `move_table` takes."""
    if old_matrix is None:
        return move_table(transitions, features, known, reader, normalise=normalise)
    if transitions is not None or features is not None:
        text = "an old matrix, transitions and features all say how individuals move: give one"
        reader.findings.problem("old_matrix", text)
    return old_matrix_table(old_matrix, zeros, reader)


def _staying(table: Source | None, known: Cells | None, findings: Findings) -> pd.DataFrame | None:
    """The transitions of those who have nowhere to go: there is one cell, or one time; None elsewhere."""
    import pandas as pd

    if table is None:
        return None
    cells = list(dict.fromkeys([*([] if known is None else known.labels), *table.distinct("cell")]))
    if len(cells) > 1 and len(table.distinct("time")) > 1:
        return None
    findings.note(f"there is one {'time' if len(cells) > 1 else 'cell'}: nobody moves")
    return pd.DataFrame({"from": cells, "to": cells, "probability": 1.0})


def _trips(table: Source | None, findings: Findings) -> int | None:
    """The number of trips, where the counts are the two totals of a matrix that agree; it is noted. None otherwise."""
    if table is None or not are_margins(distinct := table.distinct("time")):
        return None
    one, two = (float(np.sum(table["count"][table["time"] == t])) for t in distinct)
    if one != two or one != one:
        if one == one and two == two:
            text = (
                f"the totals disagree, {one:.10g} {distinct[0]} and {two:.10g} {distinct[1]}: say how many trips there were (population=N, "
                "--population N) and how the totals were counted (--noise poisson)"
            )
            findings.problem("population", text)
        return None
    findings.note(f"there were {one:.0f} trips, the sum of the {distinct[0]} and of the {distinct[1]}")
    return int(one)


def _before(moves: MoveTable, axes: Axes) -> pd.DataFrame:
    """The old matrix under the labels of the cells, as ``origin, dest, before``."""
    known = dict(zip(axes.cells, axes.labels, strict=True))
    ends = {
        name: [known.get(c) for c in moves.source[role]]
        for name, role in (("origin", "from"), ("dest", "to"))
    }
    return pd.DataFrame({**ends, "before": moves.values[:, 0]})


def read_sequences(
    counts: Any,
    *,
    features: Any = None,
    tracks: Any = None,
    population: Any = None,
    failures: dict[str, tuple[str, ...]] | None = None,
    **options: Any,
) -> dict[str, Case]:
    """Problems about several years or sites, by the column ``sequence`` of the counts; one, called "", where there is no such column.

    ``features`` and ``tracks`` may have the column too: a sequence then has its own rows; otherwise all sequences have the same.
    ``population`` may be ``{sequence: N}``, N a number or a law. All other options are `read_problem`'s and hold for every sequence.
    Sequences that cannot be read are put into ``failures``, with what is wrong, and left out; without it they are an error.

    Raises
    ------
    TableError
        As `read_problem`, and for rows without a sequence, or sequences that the counts do not have.
    """
    findings = Findings()
    reader = Reader(findings, options.get("columns"), options.get("encoding"))
    parts = by_sequence(counts, reader)
    findings.raise_any()
    if not parts:
        told = {"features": features, "tracks": tracks, "population": population}
        return {"": read_problem(counts, **told, **options)}
    shared = {"features": features, "tracks": tracks}
    own = {name: by_sequence(given, reader) for name, given in shared.items()}
    if isinstance(population, Mapping):
        own["population"] = dict(population)
    _refuse_strays(own, parts, findings)
    cases: dict[str, Case] = {}
    wrong: dict[str, tuple[str, ...]] = {} if failures is None else failures
    shared["population"] = population
    for key, part in parts.items():
        # A sequence without tracks of its own has none; without features or population of its own it cannot be.
        given = shared | {name: found.get(key) for name, found in own.items() if found}
        try:
            cases[key] = read_problem(part, **given, **options)
        except FaultsError as error:
            wrong[key] = tuple(error.problems)
    if wrong and (failures is None or not cases):
        raise TableError(by_sequences(wrong))
    return cases


def _refuse_strays(
    tables: Mapping[str, Mapping[str, Any]], parts: Mapping[str, Source], findings: Findings
) -> None:
    """Refuse tables with sequences that the counts do not have."""
    for name, found in tables.items():
        stray = [repr(key) for key in found.keys() - parts.keys()]
        if stray:
            text = f"the counts have no sequence {', '.join(stray[:5])}: correct it, or leave its rows out"
            findings.problem(name, text)
    findings.raise_any()


def by_sequence(given: Any, reader: Reader) -> dict[str, Source]:
    """The rows of every sequence of a table, in order of appearance; nothing where the table has no such column."""
    if given is None or formula_of(given) is not None:
        return {}
    source = reader.read(given, [], optional=["sequence"], once=False)
    if source is None or "sequence" not in source:
        return {}
    keys = source["sequence"]
    frame = source.frame.drop(columns=source.columns["sequence"])
    whole = replace(source, frame=frame, columns={}, values={})
    return {key: whole.where(keys == key) for key in dict.fromkeys(keys.tolist())}


def read_chain(
    transitions: Any,
    *,
    initial: Any = "uniform",
    cells: Any = None,
    length: int | None = None,
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    normalise: bool = False,
) -> tuple[MarkovChain, PlaceTable | None]:
    """A chain from tables alone, and where its cells are; `length` where the transitions have no times."""
    findings = Findings()
    reader = Reader(findings, columns, encoding)
    moves = transition_table(transitions, reader, normalise=normalise)
    known = None if cells is None else cell_table(cells, reader)
    start = _initial_table(initial, reader)
    if moves is not None and "time" not in moves.source and (length is None or length < 1):
        text = f"how many times there are is missing: give a whole number ≥ 1 (length=T, --steps T), got {length}"
        findings.problem("length", text)
    findings.raise_any()
    assert moves is not None
    axes = replace(
        _axes(None, moves, known, uneven=False, findings=findings),
        times=_arrival_times(moves, length, findings),
    )
    law = _initial_law(initial, start, axes, findings, None)
    made = transition_matrices(moves, axes.cells, axes.times, normalise=normalise)
    findings.raise_any()
    return axes.chain(law, made), axes.places


# --- cells and times


@dataclass(frozen=True, eq=False)
class Axes:
    """What the tables of a chain have in common: cells as texts in their order, where they are, and times (None where unknown)."""

    cells: list[str]
    places: PlaceTable | None
    times: Times | None

    @cached_property
    def labels(self) -> list[Hashable]:
        """The cells as the model names them."""
        return plain_labels(self.cells)

    @property
    def shapes(self) -> dict[Hashable, Sequence[Array]] | None:
        """Rings of the cells' areas, where polygons were given."""
        held = {} if self.places is None else self.places.shapes
        return {label: held[n] for label, n in zip(self.labels, self.cells, strict=True) if n in held} or None

    @property
    def names(self) -> dict[Hashable, str] | None:
        """What people call the cells, where a table says it."""
        held = {} if self.places is None else self.places.called
        return {label: held[n] for label, n in zip(self.labels, self.cells, strict=True) if n in held} or None

    def chain(self, law: Array | None, matrices: Any) -> MarkovChain:
        """The chain with these times and cells."""
        assert self.times is not None
        return MarkovChain(law, matrices, times=self.times.labels, cells=self.labels)

    def places_table(self) -> Any:
        """A table of the places, where every cell has one."""
        known = {} if self.places is None else self.places.columns(self.cells)
        return pd.DataFrame({"cell": self.labels, **known}) if known else None


def _axes(
    table: Source | None,
    moves: MoveTable | None,
    known: Cells | None,
    *,
    uneven: bool,
    findings: Findings,
    more: Sequence[str] = (),
) -> Axes:
    """The cells as listed, or those that the moves name, or those of the counts where neither could be read; all times in order."""
    if known is not None:
        cells, places = known.labels, known.places
    else:
        named = (moves.source, ("from", "to")) if moves is not None else (table, ("cell",))
        texts = [] if named[0] is None else [text for role in named[1] for text in named[0][role]]
        cells, places = ordered(filter(None, texts)), None
    if table is None:
        return Axes(cells, places, None)
    departures = [] if more or moves is None or "time" not in moves.source else moves.source.distinct("time")
    times = order_times(
        [*more, *table.distinct("time"), *departures], table.name, uneven=uneven, findings=findings
    )
    own = places_in(table)
    if places is None or (own is not None and not places.of):  # names without places
        places = own if places is None or own is None else replace(own, called=places.called)
    return Axes(cells, places, times)


def _until_counted(
    axes: Axes, table: Source | None, moves: MoveTable | None
) -> tuple[Axes, MoveTable | None]:
    """Times up to the last one counted, where the moves go on beyond it, as a year's moves do beside one week's counts; it is noted."""
    if axes.times is None or table is None or moves is None:
        return axes, moves
    texts, counted = axes.times.texts, set(table["time"].tolist())
    last = max((k for k, text in enumerate(texts) if text in counted), default=len(texts) - 1)
    if last == len(texts) - 1:
        return axes, moves
    kept = moves.leaving(texts[:last])
    moves.source.note(
        f"{len(moves.values) - len(kept.values):,} moves leave at {texts[last]}, the last time with counts, or later: they are not used"
    )
    return replace(axes, times=Times(texts[: last + 1], axes.times.labels[: last + 1])), kept


def _arrival_times(moves: MoveTable, length: int | None, findings: Findings) -> Times:
    """The times of a chain known by its moves alone: those of departure and one more, or 0 … length − 1."""
    if "time" not in moves.source:
        assert length is not None
        return Times(tuple(str(k) for k in range(length)), tuple(range(length)))
    found = order_times(moves.source.distinct("time"), moves.source.name, uneven=False, findings=findings)
    findings.raise_any()
    assert found is not None
    labels: Any = found.labels
    last: Any = "end"
    if len(labels) > 1 and not isinstance(labels[-1], str):
        last = labels[-1] + (labels[-1] - labels[-2])
    elif isinstance(labels[-1], (int, float)):
        last = labels[-1] + 1
    return Times((*found.texts, label_text(last)), (*labels, last))


# --- the initial law


def _initial_table(given: Any, reader: Reader) -> Source | None:
    """``cell, probability``, where a table is given: where individuals are at the first time; cells without a row have probability 0."""
    if isinstance(given, str) and given in _INITIAL_LAWS:
        return None
    if isinstance(given, str) and not (os.path.exists(given) or "." in given):
        text = f"give learned, counts, smoothed, uniform or a table (cell, probability), got {given!r}"
        reader.findings.problem("initial", text)
        return None
    source = reader.read(given, ["cell"], "probability")
    if source is None:
        return None
    negative = refuse_negative(source, "probability")
    total = float(np.sum(source["probability"]))
    if not negative and abs(total - 1) > ROUNDING:
        source.problem(
            f"the initial probabilities sum to {total:.10g}, not 1: divide them by their sum or add the missing cells"
        )
    return source


def _initial_law(
    given: Any, start: Source | None, axes: Axes, findings: Findings, seen: Seen | None
) -> Array | None:
    """pi over the cells: from its table, uniform, or the shares of the first counts; None if learned, or where it cannot be read."""
    named = given if isinstance(given, str) else None
    if start is not None:
        return _law_from_table(start, axes)
    if seen is not None and named == "learned":
        findings.note("the initial law is unknown: it is learned from all counts under a flat prior")
        return None
    if named == "uniform" and axes.cells:
        return np.full(len(axes.cells), 1 / len(axes.cells))
    if seen is not None and named in {"counts", "smoothed"}:
        return _law_from_counts(seen, axes, smooth=named == "smoothed")
    _refuse_initial_law(given, axes, findings)
    return None


def _refuse_initial_law(given: Any, axes: Axes, findings: Findings) -> None:
    """Say that there are no cells, or no counts from which to take shares."""
    if not axes.cells:
        findings.problem("cells", "no cell is left: give counts or transitions with at least one")
    elif not findings:
        text = f"give uniform or a table (cell, probability) where there are no counts, got {given!r}"
        findings.problem("initial", text)


def _law_from_table(start: Source, axes: Axes) -> Array | None:
    """The probabilities of a table, divided by their sum (they may be rounded); None where one was refused."""
    known = knows_cells(start, axes.cells, "cell")
    law = start.spread(start["probability"], {"cell": axes.cells}, 0.0)
    return law / (law.sum() or 1.0) if known and not np.isnan(law).any() else None


def _law_from_counts(seen: Seen, axes: Axes, *, smooth: bool) -> Array | None:
    """Shares of what was counted at the first time, half an individual per cell more when ``smooth``."""
    assert axes.times is not None
    label, first = axes.times.texts[0], expected(seen.counts, seen.parameters)[0]
    missing = int(np.isnan(first).sum())
    if missing:
        text = (
            f"the initial law cannot be read off the counts of {label}, the first time: {missing} of {len(first)} cells have none; "
            "take it as unknown (initial='learned', --initial learned) or give it (--initial FILE with cell, probability)"
        )
        seen.table.problem(text)
        return None
    low = first + (0.5 if smooth else 0.0)
    if (low < 0).any() or low.sum() <= 0:
        text = f"the initial law cannot be read off the counts of {label}: they are not all ≥ 0 with one above 0; give --initial"
        seen.table.problem(text)
        return None
    how = "shares of the counts plus a half" if smooth else "shares of the counts"
    seen.table.findings.note(
        f"the initial law is the {how} at {label}, the first time: these counts are used twice, as data and as the initial law; "
        "give --initial to change that"
    )
    return low / low.sum()


# --- observations


class Seen(NamedTuple):
    """Counts (time, cell) of a table, and the parameters of their noise: numbers, or arrays of the same shape."""

    table: Source
    counts: Array
    parameters: Mapping[str, Any]
    bounds: tuple[Array, Array] | None = None
    """Counts that are bounds (NaN elsewhere), and 1 where they are lower, −1 where they are upper ones."""

    @property
    def ahead(self) -> bool:
        """Whether these are times of a forecast, without any count."""
        return self.table.name == NO_COUNTS


def _seen(table: Source, numbers: Mapping[str, Any], axes: Axes) -> Seen | None:
    """The counts under the cells and times of the chain; None where the times could not be read."""
    knows_cells(table, axes.cells, "cell")
    if axes.times is None:
        return None
    places = {"time": axes.times.texts, "cell": axes.cells}
    given = {
        name: table.spread(value, places) if np.ndim(value) else value for name, value in numbers.items()
    }
    found = table.spread(table["count"], places)
    if "bound" not in table:
        return Seen(table, found, given)
    side = table.spread(table["bound"], places, 0.0)
    read, bounds = np.where(side == 0, found, np.nan), np.where(side != 0, found, np.nan)
    return Seen(table, read, given, (bounds, np.where(side < 0, -1.0, 1.0)))


def _flow_observations(
    flows: Any,
    sums: tuple[Any, Any],
    noise: tuple[str, Mapping[str, float | None] | None],
    axes: Axes,
    reader: Reader,
    snap: str | None,
) -> list[Observation]:
    """Observed flows as one observation, sums of flows (pairs and counts) as one per step; ``noise`` has its name and parameters."""
    if flows is None and all(table is None for table in sums):
        return []
    kind = noise_kind(noise[0], reader.findings)
    whole = kind is not None and kind.whole
    seen = {} if flows is None else _seen_flows(flow_table(flows, reader, whole=whole), axes, snap)
    pairs, counts = _seen_sums(sums, axes, reader, whole=whole)
    numbers = noise_parameters(kind, noise[1], None, reader.findings)
    if kind is None or axes.times is None or reader.findings:
        return []
    made = [kind(seen, **numbers)] if seen else []
    return made + [
        kind([counts[name] for name in own], on=axes.times.labels[t : t + 2], sums=own, **numbers)
        for t, own in pairs.items()
    ]


def _seen_flows(table: Source | None, axes: Axes, snap: str | None) -> dict[Any, Array]:
    """Observed flows of every step that has any, by its two times."""
    if table is None:
        return {}
    knows_cells(table, axes.cells, "from", "to")
    if axes.times is None:
        return {}
    places = {"time": axes.times.texts[:-1], "from": axes.cells, "to": axes.cells}
    table = _departing(table, axes.times, snap)
    pairs = zip(pairwise(axes.times.labels), table.spread(table["flow"], places), strict=True)
    return {pair: step for pair, step in pairs if not np.isnan(step).all()}


def _departing(table: Source, times: Times, snap: str | None) -> Source:
    """Flows with times of departure: any but the last, moved to the nearest where ``snap`` allows; others are a problem."""
    early = replace(times, texts=times.texts[:-1])
    table = table if snap is None else snapped(table, early, snap)
    text = (
        f"unknown time: the time of a flow is that of its departure, one of {listed(times.texts)} but the last, {times.texts[-1]}: "
        "correct it"
    )
    table.refuse(table.positions("time", early.texts) < 0, text)
    return table


def _seen_sums(
    given: tuple[Any, Any], axes: Axes, reader: Reader, *, whole: bool
) -> tuple[dict[int, dict[str, list[Any]]], dict[str, float]]:
    """The pairs of every sum that was counted, by step, and the counts of all; nothing where they cannot be read."""
    if given[0] is None:
        if given[1] is not None:
            text = (
                "which flows the sums are of is missing: give a table sum, origin, dest (sums=…, --sums FILE)"
            )
            reader.findings.problem("sum_counts", text)
        return {}, {}
    found = sum_table(*given, reader, whole=whole)
    if found is None or axes.times is None:
        return {}, {}
    source, counts = found
    knows_cells(source, axes.cells, "from", "to")
    steps = len(axes.times.texts) - 1
    if "time" in source:
        source = _departing(source, axes.times, None)
    elif steps != 1:
        source.problem(
            f"there are {steps} steps: say in a column time at which the flows of a sum depart", [1]
        )
    return ({} if reader.findings else _pairs_by_step(source, counts, axes)), counts


def _pairs_by_step(
    source: Source, counts: Mapping[str, float], axes: Axes
) -> dict[int, dict[str, list[Any]]]:
    """The pairs of every sum that was counted, by step; a sum with flows of two steps is a problem."""
    assert axes.times is not None
    rows = len(source.rows)
    step = source.positions("time", axes.times.texts) if "time" in source else np.zeros(rows, dtype=int)
    ends = [source.positions(role, axes.cells).tolist() for role in ("from", "to")]
    made: dict[int, dict[str, list[Any]]] = {}
    first: dict[str, int] = {}
    for t, name, i, j in zip(step.tolist(), source["sum"].tolist(), *ends, strict=True):
        if name not in counts:
            continue
        if first.setdefault(name, t) != t:
            raise TableError(
                f"{source.name}: the sum {name!r} has flows of more than one time: give each time a sum of its own"
            )
        made.setdefault(t, {}).setdefault(name, []).append((axes.labels[i], axes.labels[j]))
    return made


def _tracks(given: Any, axes: Axes, reader: Reader, *, counted: bool, snap: str | None) -> list[Tracks]:
    """Followed individuals under the labels of the chain; none where they cannot be read."""
    source = None if given is None else track_table(given, reader)
    if source is None:
        return []
    known = knows_cells(source, axes.cells, "cell")
    if axes.times is None:
        return []
    texts, labels = axes.times.texts, axes.times.labels
    source = snapped(source, axes.times, snap)
    if not known or (source.positions("time", texts) < 0).any():
        return []
    placed = {
        "time": [labels[k] for k in source.positions("time", texts)],
        "cell": [axes.labels[k] for k in source.positions("cell", axes.cells)],
    }
    columns = {**{role: source[role] for role in source.values}, **placed}
    made = reader.findings.build(Tracks, columns, counted=counted, places=axes.places_table())
    return [] if made is None else [made]


# --- the problem


def _built(
    law: Array | None,
    made: Made | None,
    seen: Seen | None,
    beside: Sequence[Observation | Tracks],
    kind: Noise | None,
    population: int | SizeLaw | None,
    initial: Any,
    axes: Axes,
    findings: Findings,
) -> Problem | None:
    """The problem; what is wrong with it is among the findings.

    Where tables are faulty it is built all the same, as far as that can be done, so that its own faults are in the same report:
    transitions that could not be read are then uniform, and the initial law is unknown.
    """
    size = len(axes.cells)
    uniform = np.full((size, size), 1 / size) if 0 < size <= _STAND_IN_CELLS else None
    matrices = uniform if made is None else made.matrices
    if seen is None or kind is None or population is None or matrices is None or "noise" in findings:
        return None
    chain = findings.build(axes.chain, law, matrices)
    assert axes.times is not None
    cube = labelled_counts(seen.counts, axes.times.labels, axes.labels, axes.cells, axes.places)
    counts = findings.build(kind, cube, **seen.parameters)
    if chain is None or counts is None:
        return None
    only_bounds = seen.bounds is not None and np.isnan(seen.counts).all()
    observed = tuple(beside) if seen.ahead or only_bounds else (counts, *beside)
    if seen.bounds is not None:
        found, side = seen.bounds
        cube = labelled_counts(found, axes.times.labels, axes.labels, axes.cells, axes.places)
        observed += (Censored(kind(cube, **seen.parameters), side=side),)
    return findings.build(_problem, chain, population, observed, initial)


def _problem(
    chain: MarkovChain, population: int | SizeLaw, observations: Sequence[Observation | Tracks], initial: Any
) -> Problem:
    """The problem; where the first counts' zeros make it impossible, the error says so."""
    try:
        return Problem(chain, population, tuple(observations))
    except ProblemError as error:
        from_counts = isinstance(initial, str) and initial == "counts"
        if not from_counts or not any("probability 0" in text for text in error.problems):
            raise
        text = (
            "initial: cells without a count at the first time get probability 0 there; give another law (initial='smoothed', "
            "--initial smoothed, or a table)"
        )
        raise ProblemError([*error.problems, text]) from None


# --- individuals that come and go


def opened(
    case: Case,
    *,
    arrivals: Any = None,
    survival: Any = None,
    columns: Mapping[str, str] | None = None,
    encoding: str | Mapping[str, str] | None = None,
    alias: Any = None,
    part: bool = False,
) -> Case:
    """The same case with individuals that come and go.

    Parameters
    ----------
    case
        Of a chain with a known initial law; its population is the expected number of individuals at the first time.
    arrivals
        ``time, cell, count``: expected arrivals, by the time at which they are first there; rows that are not there mean nobody.
    survival
        A probability to stay for a step, or a table ``cell, probability[, time]``; the time is that before the step.
    columns, encoding, alias
        As for `read_problem`.
    part
        Whether the tables may have other times than the case's, which are then left out.

    Raises
    ------
    TableError
        Everything wrong with the tables.
    """
    findings = Findings()
    # The columns were found in the tables of the case, so that these may have others.
    reader = Reader(findings, columns, encoding, _placed=set(columns or ()))
    reader = replace(reader, alias=read_alias(alias, reader))
    chain, population = case.problem.model.as_chain(), case.problem.population
    if chain is None or not chain.initial_known:
        findings.problem(
            "initial",
            "a population that comes and goes needs a chain and its initial law: give --initial counts, uniform or a table",
        )
    elif not isinstance(population, int):
        findings.problem(
            "population", "give the expected number at the first time beside arrivals and survival"
        )
    findings.raise_any()
    assert chain is not None
    times, cells = [label_text(t) for t in chain.times], [label_text(c) for c in chain.cells]
    come = None if arrivals is None else _arrivals(arrivals, reader, {"time": times, "cell": cells}, part)
    stay = _survival(survival, reader, times, cells, part)
    findings.raise_any()
    made = OpenChain(
        population * chain.initial,
        chain.transitions,
        arrivals=come,
        survival=stay,
        times=chain.times,
        cells=chain.states,
    )
    return replace(case, problem=Problem(made, None, case.problem.observations))


def _arrivals(given: Any, reader: Reader, axes: Mapping[str, Sequence[str]], part: bool) -> Array | None:
    """Expected arrivals, (T, L)."""
    table = count_table(given, reader)
    if table is None:
        return None
    if part:  # of the first time they are among the counts of the past
        table = table.where(np.isin(table["time"], axes["time"][1:]))
    table.knows("time", axes["time"], "unknown time: arrivals are named by a time of the counts: correct it")
    knows_cells(table, axes["cell"], "cell")
    return np.nan_to_num(table.spread(table["count"], axes, 0.0))


def _survival(given: Any, reader: Reader, times: list[str], cells: list[str], part: bool) -> Any:
    """One probability, one per cell, or one per step and cell."""
    try:
        return None if given is None else float(str(given))
    except ValueError:
        source = reader.read(given, ["cell"], "probability", optional=["time"])
    if source is None:
        return None
    if part and "time" in source:
        source = source.where(np.isin(source["time"], times[:-1]))
    axes = {"time": times[:-1], "cell": cells} if "time" in source else {"cell": cells}
    text = "unknown time: survival is named by a time of the counts that is not the last: correct it"
    known = "time" not in source or source.knows("time", times[:-1], text)
    absent = int(np.isnan(source.spread(np.zeros(len(source.rows)), axes)).sum())
    if knows_cells(source, cells, "cell") and known and absent:
        source.problem(f"{absent} cells (and times) have no probability: give one row each")
    return source.spread(source["probability"], axes)


# --- networks


def read_network(
    network: Model | str | os.PathLike[str],
    tables: Sequence[Any],
    *,
    population: int | SizeLaw | None,
    noise: str = "poisson",
    parameters: Mapping[str, float | None] | None = None,
    columns: Mapping[str, str] | None = None,
    encoding: str | Mapping[str, str] | None = None,
    decimal: str | Mapping[str, str] | None = None,
    thousands: str | Mapping[str, str] | None = None,
    missing: Sequence[str] = (),
) -> Case:
    """A problem about any network: a BIF file (or a model) and tables of counts over some of its variables.

    Parameters
    ----------
    network
        A ``.bif`` or ``.bif.gz`` file, or a model.
    tables
        Each has one column for every variable it counts, named as in the network, and ``count``; a combination without a row was
        not observed. The variables of one table must lie together in a clique.
    population, noise, parameters, columns, encoding, decimal, thousands, missing
        As in `read_problem`.

    Raises
    ------
    TableError, headcount.ModelError, headcount.ProblemError
        Everything that is wrong with the tables, the network or what they say together.
    """
    findings = Findings()
    reader = Reader(findings, columns, encoding, decimal, thousands, missing)
    model = _model(network, findings)
    kind = noise_kind(noise, findings)
    if population is None:
        findings.problem("population", NO_POPULATION)
    if not tables:
        findings.problem(
            "tables", "there is no table of counts: give at least one, with a column per variable and count"
        )
    opened = [reader.open(table) for table in tables]
    if model is None or kind is None:
        raise TableError(findings.lines())
    seen = [_table_of(source, model, kind, parameters, reader) for source in opened if source is not None]
    problem = None
    if population is not None:
        problem = findings.build(Problem, model, population, tuple(filter(None, seen)))
    findings.raise_any()
    assert problem is not None
    return Case(problem, tuple(findings.notes))


def _model(network: Model | str | os.PathLike[str], findings: Findings) -> Model | None:
    if isinstance(network, (str, os.PathLike)):
        return findings.attempt(DiscreteModel.from_bif, Path(network))
    return network


def _table_of(
    opened: Source,
    model: Model,
    kind: Noise,
    parameters: Mapping[str, float | None] | None,
    reader: Reader,
) -> Observation | None:
    """The counts of one table, laid out over the variables that its header names."""
    scope = _scope(opened, model)
    columns = {role: str(v) for role, v in scope.items()}
    source = reader.take(
        opened, list(scope), "count", optional=PARAMETERS, named=columns, empty=True, once=bool(scope)
    )
    if source is None or not scope:
        return None
    source = counted(source, "count", whole=kind.whole)
    given = noise_parameters(kind, parameters, source, reader.findings)
    axes = _state_axes(source, model, scope)
    if axes is None or "noise" in reader.findings:
        return None
    placed = {name: source.spread(value, axes) if np.ndim(value) else value for name, value in given.items()}
    count = source.spread(source["count"], axes)
    seen = tuple(scope.values())
    return kind(count, on=seen[0] if len(seen) == 1 else seen, **placed)


def _scope(opened: Source, model: Model) -> dict[str, Hashable]:
    """The variables that the header names, by the roles of their columns; none is a problem."""
    variables = {str(v): v for v in model.variables}
    names = filter(variables.__contains__, map(str, opened.frame.columns))
    scope = {f"variable {name}": variables[name] for name in names}
    if not scope:
        shown = listed([repr(v) for v in variables], most=8)
        text = f"no column is a variable of the network (it has {shown}): name the columns after them"
        opened.problem(text, [1])
    return scope


def _state_axes(source: Source, model: Model, scope: Mapping[str, Hashable]) -> dict[str, list[str]] | None:
    """The states of the variable of each role, as texts; None, with the problems, where the table has others."""
    axes = {role: [label_text(s) for s in model.states[v]] for role, v in scope.items()}
    known = True
    for role, states in axes.items():
        text = f"unknown state of {scope[role]!r}: it has {listed([repr(s) for s in states], most=8)}"
        known = source.knows(role, states, text) and known
    return axes if known else None
