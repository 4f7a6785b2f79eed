"""From tables to a Problem: read everything, collect everything that is wrong, then build.

`read_problem` reads a chain with its observations, `read_chain` a chain alone. Files are opened by `_source`, columns and
their values found by `_columns`, the kinds of tables read by `_tables`, then `_times`, `_moves` and `_noise`; networks by `_network`.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.errors import FaultsError
from headcount.individual import MarkovChain
from headcount.io._columns import Reader, label_text, ordered, plain_labels, read_labels
from headcount.io._moves import move_table, transition_matrices, transitions_of
from headcount.io._noise import (
    counts_whole,
    expected,
    noise_kind,
    noise_parameters,
    note_totals,
    table_parameters,
    total_hint,
)
from headcount.io._numbers import NumberFormat
from headcount.io._source import Findings, Source, TableError
from headcount.io._tables import (
    CountTable,
    InitialTable,
    MoveTable,
    cell_positions,
    cell_table,
    count_table,
    flow_table,
    initial_table,
    known_positions,
    labelled_counts,
    laid_out,
    track_table,
    transition_table,
)
from headcount.io._times import Times, order_times
from headcount.observe import Observation, Problem, ProblemError, Tracks

if TYPE_CHECKING:
    from headcount._types import Array
    from headcount.io._tables import Places
    from headcount.population import SizeLaw


_INITIAL_LAWS = ("counts", "smoothed", "uniform", "learned")
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
    """

    problem: Problem
    notes: tuple[str, ...] = ()
    features: Array | None = None
    mask: Array | None = None
    feature_names: tuple[str, ...] = ()
    shapes: Mapping[Hashable, Sequence[Array]] | None = None

    @property
    def learns_initial(self) -> bool:
        """Whether the initial distribution is unknown, so that `headcount.infer` learns it."""
        model = self.problem.model
        return isinstance(model, MarkovChain) and not model.initial_known


def read_problem(
    counts: Any,
    *,
    population: int | SizeLaw | None,
    transitions: Any = None,
    features: Any = None,
    weights: Any = None,
    initial: Any = "learned",
    cells: Any = None,
    flows: Any = None,
    tracks: Any = None,
    tracks_counted: bool = True,
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
) -> Case:
    """A problem about a chain from tables: counts by time and cell, and how individuals move.

    Parameters
    ----------
    counts
        ``time, cell, count``, and whichever of ``rate, sd, detection, …`` the noise needs by row; ``x, y`` or ``lon, lat``.
        CSV, Excel (``book.xlsx`` or ``book.xlsx#sheet``), Parquet, NetCDF, a pandas table or an xarray cube. An empty count is
        "nobody looked".
    population
        N, or what is known of it: ``About``, ``Between`` or ``Unknown``.
    transitions
        ``from, to, probability[, time]`` (time of departure); moves without a row have probability 0.
    features, weights
        ``from, to, <features>[, time]`` and one weight each (a sequence, ``{name: weight}`` or a table ``feature, weight``): another
        way to say how individuals move. Moves without a row are impossible. Without weights they are 0, where learning starts.
    initial
        ``"learned"`` (unknown: `headcount.infer` and `fit` learn it under a flat prior), a table ``cell, probability``, ``"counts"``
        (shares of the first counts, which are then used twice), ``"smoothed"`` (the same, half an individual more in every cell)
        or ``"uniform"``.
    cells
        ``cell[, x, y]``: all the cells, their order and their places; or their polygons as GeoJSON or GeoPackage.
    flows
        Observed flows ``time, origin, dest, count``, with ``flow_noise`` and ``flow_parameters`` of their own.
    tracks, tracks_counted
        Followed individuals ``id, time, cell[, probability][, sd]`` (see `headcount.Tracks`; sd needs places of the cells), and
        whether they are among the population and its counts.
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
        Counts have one column per cell or per time, transitions one per destination.

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
    reader = Reader(
        findings, columns, encoding, NumberFormat(decimal, thousands, missing), dates, wide
    ).checked()
    kind = noise_kind(noise, findings)
    table = count_table(counts, reader, whole=counts_whole(kind))
    moves = move_table(transitions, features, reader, normalise=normalise)
    known = None if cells is None else cell_table(cells, reader)
    start = _initial_table(initial, reader)
    numbers = table_parameters(kind, parameters, table, findings)
    if population is None:
        findings.problem("population", NO_POPULATION + total_hint(table, numbers))
    # From here on every part is read as far as the others allow, so that one report says everything.
    names, places = _cells(table, moves, known)
    times = _times(table, moves, uneven=uneven, findings=findings)
    first = None
    if table is not None and times is not None:
        cell_positions(table.source, table.cell, names, "cell")
        values, given = _arrays(table, numbers, times, names)
        first = table, times.texts[0], expected(values, given)[0]
    law = _initial_law(initial, start, names, findings, first)
    made = (
        None if moves is None else transitions_of(moves, names, times, weights, reader, normalise=normalise)
    )
    seen = (
        [] if flows is None else _flow_observation(flows, flow_noise, flow_parameters, names, times, reader)
    )
    if table is not None and places is None:
        places = table.places
    tagged = _tracks(tracks, names, times, places, reader, counted=tracks_counted)
    findings.raise_any()
    assert table is not None
    assert times is not None
    assert made is not None
    assert kind is not None
    assert population is not None
    labels = plain_labels(names)
    chain = MarkovChain(law, made.matrices, times=times.labels, cells=labels)
    cube = labelled_counts(values, times.labels, labels, names, places)
    problem = _problem(chain, population, [kind.model(cube, **given), *seen, *tagged], initial)
    note_totals(values, given, population, findings)
    shapes = (
        {label: places.shapes[n] for label, n in zip(labels, names, strict=True) if n in places.shapes}
        if places
        else None
    )
    return Case(problem, tuple(findings.notes), made.features, made.mask, made.names, shapes or None)


def read_sequences(
    counts: Any, *, features: Any = None, tracks: Any = None, **options: Any
) -> dict[str, Case]:
    """Problems about several years or sites, by the column ``sequence`` of the counts; one, called "", where there is no such column.

    ``features`` and ``tracks`` may have the column too: a sequence then has its own rows; otherwise all sequences have the same.
    All other options are `read_problem`'s and hold for every sequence.

    Raises
    ------
    TableError
        As `read_problem`, and for rows without a sequence, or sequences that the counts do not have.
    """
    findings = Findings()
    reader = Reader(findings, options.get("columns"), options.get("encoding"))
    parts = _by_sequence(counts, reader)
    findings.raise_any()
    if not parts:
        return {"": read_problem(counts, features=features, tracks=tracks, **options)}
    shared = {"features": features, "tracks": tracks}
    own = {name: _by_sequence(given, reader) for name, given in shared.items() if given is not None}
    for name, found in own.items():
        stray = [key for key in found if key not in parts]
        if stray:
            findings.problem(
                name,
                f"the counts have no sequence {', '.join(map(repr, stray[:5]))}: correct it, or leave its rows out",
            )
    findings.raise_any()
    cases: dict[str, Case] = {}
    for key, part in parts.items():
        # A sequence without tracks of its own has none; without features of its own it cannot be.
        given = {name: (found.get(key) if found else shared[name]) for name, found in own.items()}
        findings.attempt(_one_sequence, cases, key, part, given | options)
    findings.raise_any()
    return cases


def _one_sequence(cases: dict[str, Case], key: str, counts: Source, options: Mapping[str, Any]) -> None:
    """Read one sequence; what is wrong with it says which it is."""
    try:
        cases[key] = read_problem(counts, **options)
    except FaultsError as error:
        raise TableError([f"sequence {key}: {text}" for text in error.problems]) from None


def _by_sequence(given: Any, reader: Reader) -> dict[str, Source]:
    """The rows of every sequence of a table, in order of appearance; nothing where the table has no such column."""
    opened = reader.open(given)
    source = None if opened is None else reader.find(opened, [], ["sequence"])
    if source is None or "sequence" not in source.columns:
        return {}
    keys = read_labels(source, "sequence")
    frame = source.frame.drop(columns=source.columns["sequence"])
    return {
        key: replace(
            source, frame=frame[keys == key].reset_index(drop=True), rows=source.rows[keys == key], columns={}
        )
        for key in dict.fromkeys(keys.tolist())
    }


def read_chain(
    transitions: Any,
    *,
    initial: Any = "uniform",
    cells: Any = None,
    length: int | None = None,
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    normalise: bool = False,
) -> tuple[MarkovChain, Places | None]:
    """A chain from tables alone, and where its cells are; `length` where the transitions have no times."""
    findings = Findings()
    reader = Reader(findings, columns, encoding)
    moves = transition_table(transitions, reader, normalise=normalise)
    known = None if cells is None else cell_table(cells, reader)
    start = _initial_table(initial, reader)
    if moves is not None and moves.time is None and (length is None or length < 1):
        text = f"how many times there are is missing: give a whole number ≥ 1 (length=T, --steps T), got {length}"
        findings.problem("length", text)
    findings.raise_any()
    assert moves is not None
    names, places = _cells(None, moves, known)
    times = _arrival_times(moves, length, findings)
    law = _initial_law(initial, start, names, findings, None)
    made = transition_matrices(moves, names, times, normalise=normalise)
    findings.raise_any()
    return MarkovChain(law, made, times=times.labels, cells=plain_labels(names)), places


# --- cells, times and the initial law


def _cells(
    table: CountTable | None, moves: MoveTable | None, known: tuple[list[str], Places | None] | None
) -> tuple[list[str], Places | None]:
    """The cells in order, and their places: as listed, or those that the moves name; those of the counts where neither could be read."""
    if known is not None:
        return known
    if moves is not None:
        return ordered([*moves.origin.tolist(), *moves.dest.tolist()]), None
    return ([] if table is None else ordered(t for t in table.cell.tolist() if t)), None


def _times(
    table: CountTable | None, moves: MoveTable | None, *, uneven: bool, findings: Findings
) -> Times | None:
    """The times of counts and moves in order; None where there are none, or dates that cannot be."""
    departures = [] if moves is None or moves.time is None else list(dict.fromkeys(moves.time.tolist()))
    if table is None:
        return None
    texts = [*table.time.tolist(), *departures]
    return order_times(texts, table.source.name, uneven=uneven, findings=findings)


def _arrays(
    table: CountTable, numbers: Mapping[str, Any], times: Times, cells: Sequence[str]
) -> tuple[Array, dict[str, Any]]:
    """Counts (time, cell), and the parameters of their noise: numbers, or arrays of the same shape."""
    given = {
        name: laid_out(table, value, times.texts, cells) if np.ndim(value) else value
        for name, value in numbers.items()
    }
    return laid_out(table, table.count, times.texts, cells), given


def _arrival_times(moves: MoveTable, length: int | None, findings: Findings) -> Times:
    """The times of a chain known by its moves alone: those of departure and one more, or 0 … length − 1."""
    if moves.time is None:
        assert length is not None
        return Times(tuple(str(k) for k in range(length)), tuple(range(length)))
    found = order_times(moves.time.tolist(), moves.source.name, uneven=False, findings=findings)
    findings.raise_any()
    assert found is not None
    labels: Any = found.labels
    last: Any = "end"
    if len(labels) > 1 and not isinstance(labels[-1], str):
        last = labels[-1] + (labels[-1] - labels[-2])
    elif isinstance(labels[-1], (int, float)):
        last = labels[-1] + 1
    return Times((*found.texts, label_text(last)), (*labels, last))


def _initial_table(given: Any, reader: Reader) -> InitialTable | None:
    """The table of the initial law, where one is given."""
    if isinstance(given, str) and given in _INITIAL_LAWS:
        return None
    if isinstance(given, str) and not (os.path.exists(given) or "." in given):
        text = f"give learned, counts, smoothed, uniform or a table (cell, probability), got {given!r}"
        reader.findings.problem("initial", text)
        return None
    return initial_table(given, reader)


def _initial_law(
    given: Any,
    start: InitialTable | None,
    cells: list[str],
    findings: Findings,
    first: tuple[CountTable, str, Array] | None,
) -> Array | None:
    """pi over the cells: from its table, uniform, or the shares of the `first` counts (their table, time and values); None if learned."""
    named = given if isinstance(given, str) else None
    if start is not None:
        return _law_from_table(start, cells)
    if first is not None and named == "learned":
        findings.note(
            "the initial law is unknown: it is learned from all counts under a flat prior, and its uncertainty is included"
        )
        return None
    if named == "uniform":
        return np.full(len(cells), 1 / len(cells))
    if first is not None and named in {"counts", "smoothed"}:
        return _law_from_counts(*first, smooth=named == "smoothed", findings=findings)
    if not findings:
        text = f"give uniform or a table (cell, probability) where there are no counts, got {given!r}"
        findings.problem("initial", text)
    return None


def _law_from_table(start: InitialTable, cells: list[str]) -> Array | None:
    """The probabilities of a table, divided by their sum (they may be rounded); cells without a row have 0."""
    where = cell_positions(start.source, start.cell, cells, "cell")
    if where is None:
        return None
    law = np.zeros(len(cells))
    law[where] = start.probability
    return law / law.sum() if law.sum() > 0 else law


def _law_from_counts(
    table: CountTable, label: str, first: Array, *, smooth: bool, findings: Findings
) -> Array | None:
    """Shares of what was counted at the first time, half an individual per cell more when ``smooth``."""
    missing = int(np.isnan(first).sum())
    if missing:
        text = (
            f"the initial law cannot be read off the counts of {label}, the first time: {missing} of {len(first)} cells have none; "
            "take it as unknown (initial='learned', --initial learned) or give it (--initial FILE with cell, probability)"
        )
        table.source.problem(text)
        return None
    low = first + (0.5 if smooth else 0.0)
    if (low < 0).any() or low.sum() <= 0:
        text = f"the initial law cannot be read off the counts of {label}: they are not all ≥ 0 with one above 0; give --initial"
        table.source.problem(text)
        return None
    how = "shares of the counts plus a half" if smooth else "shares of the counts"
    findings.note(
        f"the initial law is the {how} at {label}, the first time: these counts are used twice, as data and as the initial law; "
        "give --initial to change that"
    )
    return low / low.sum()


# --- observations


def _flow_observation(
    flows: Any,
    noise: str,
    parameters: Mapping[str, float | None] | None,
    cells: list[str],
    times: Times | None,
    reader: Reader,
) -> list[Observation]:
    """Observed flows as an observation of every step that has any."""
    findings = reader.findings
    kind = noise_kind(noise, findings)
    table = flow_table(flows, reader, whole=counts_whole(kind))
    numbers = {} if kind is None else noise_parameters(kind, parameters, {}, "", findings)
    if kind is None or table is None or table.dest is None:
        return []
    cell_positions(table.source, table.cell, cells, "origin")
    cell_positions(table.source, table.dest, cells, "destination")
    if times is None:
        return []
    known = f"{times.texts[0]} … {times.texts[-2] if len(times.texts) > 1 else '(none)'}"
    text = f"flows leave at a time that is not one of {known}: the time of a flow is that of its departure"
    table.source.refuse(~np.isin(table.time, np.array(times.texts[:-1], dtype=object)), text)
    if findings:
        return []
    values = laid_out(table, table.count, times.texts, cells)
    pairs = zip(times.labels, times.labels[1:], strict=False)
    seen = {pair: values[k] for k, pair in enumerate(pairs) if not np.isnan(values[k]).all()}
    return [kind.model(seen, **numbers)] if seen else []


def _tracks(
    given: Any, cells: list[str], times: Times | None, places: Places | None, reader: Reader, *, counted: bool
) -> list[Tracks]:
    """Followed individuals, under the labels of the chain; one set of them, or none where the table cannot be read."""
    read = None if given is None else track_table(given, reader)
    if read is None:
        return []
    source, columns = read
    cell = cell_positions(source, columns["cell"], cells, "cell")
    if times is None:
        return []
    known = f"{times.texts[0]} … {times.texts[-1]}"
    text = f"unknown time: correct it, or leave the row out (the times of the counts are {known})"
    time = known_positions(source, columns["time"], times.texts, text)
    if time is None or cell is None:
        return []
    labels = plain_labels(cells)
    columns["time"] = [times.labels[k] for k in time]
    columns["cell"] = [labels[k] for k in cell]
    where = None
    if places is not None and all(text in places.of for text in cells):
        import pandas as pd

        both = np.array([places.of[text] for text in cells])
        where = pd.DataFrame({"cell": labels, places.names[0]: both[:, 0], places.names[1]: both[:, 1]})
    return [Tracks(columns, counted=counted, places=where)]


def _problem(
    chain: MarkovChain,
    population: int | SizeLaw,
    observations: Sequence[Observation | Tracks],
    initial: Any,
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
