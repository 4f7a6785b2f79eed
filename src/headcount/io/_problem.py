"""From tables to a Problem: read everything, collect everything that is wrong, then build.

`read_problem` reads a chain with its observations, `read_chain` a chain alone. The kinds of tables are in `_tables`, columns and their
values in `_columns`, files in `_source`; networks are read by `_network`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.individual import LogLinearTransitions, MarkovChain
from headcount.io._columns import (
    Reader,
    Times,
    label_text,
    order_times,
    ordered,
    plain_labels,
    read_labels,
    read_numbers,
)
from headcount.io._source import Findings, TableError, listed
from headcount.io._tables import (
    ROUNDING,
    CountTable,
    InitialTable,
    MoveTable,
    cell_positions,
    cell_table,
    count_table,
    feature_table,
    flow_table,
    initial_table,
    labelled_counts,
    laid_out,
    positions,
    transition_table,
)
from headcount.observe import (
    Binomial,
    Exact,
    Gaussian,
    LaplaceNoise,
    NegativeBinomial,
    Observation,
    Poisson,
    Problem,
    ProblemError,
)

if TYPE_CHECKING:
    from headcount._types import Array, Index, Texts
    from headcount.io._source import Source
    from headcount.io._tables import Places


_DENSE_CELLS = 1500
"""Up to this many cells, and where more than a tenth of the moves exist, matrices are dense: 18 MB each."""
_INITIAL_LAWS = ("counts", "smoothed", "uniform", "learned")


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
    """

    problem: Problem
    notes: tuple[str, ...] = ()
    features: Array | None = None
    mask: Array | None = None
    feature_names: tuple[str, ...] = ()

    @property
    def learns_initial(self) -> bool:
        """Whether the initial distribution is unknown, so that `headcount.infer` learns it."""
        model = self.problem.model
        return isinstance(model, MarkovChain) and not model.initial_known


def read_problem(
    counts: Any,
    *,
    population: int | None,
    transitions: Any = None,
    features: Any = None,
    weights: Any = None,
    initial: Any = "learned",
    cells: Any = None,
    flows: Any = None,
    noise: str = "poisson",
    parameters: Mapping[str, float | None] | None = None,
    flow_noise: str = "poisson",
    flow_parameters: Mapping[str, float | None] | None = None,
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    uneven: bool = False,
    normalise: bool = False,
) -> Case:
    """A problem about a chain from tables: counts by time and cell, and how individuals move.

    Parameters
    ----------
    counts
        ``time, cell, count``, and whichever of ``rate, sd, detection, …`` the noise needs by row; ``x, y`` or ``lon, lat``.
        CSV, Parquet, NetCDF, a pandas table or an xarray cube. An empty count is "nobody looked".
    population
        N.
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
        ``cell[, x, y]``: all the cells, their order and their places.
    flows
        Observed flows ``time, origin, dest, count``, with ``flow_noise`` and ``flow_parameters`` of their own.
    noise, parameters
        ``poisson`` (rate, background), ``binomial`` (detection), ``negative-binomial`` (dispersion, rate, background),
        ``gaussian`` (sd), ``laplace`` (scale), ``exact``.
    columns
        ``{role: column}`` where the names differ.
    encoding
        Of text files; UTF-8 unless given.
    uneven
        Take unevenly spaced times as successive steps.
    normalise
        Divide every origin's values by their sum.

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
    reader = Reader(findings, columns, encoding)
    kind = noise_kind(noise, findings)
    table = count_table(counts, reader, whole=_counts_whole(kind))
    moves = _move_table(transitions, features, reader, normalise=normalise)
    known = None if cells is None else cell_table(cells, reader)
    start = _initial_table(initial, reader)
    numbers = _table_parameters(kind, parameters, table, findings)
    if population is None:
        findings.problem("population", NO_POPULATION + _total_hint(table, numbers))
    if table is None or moves is None or (cells is not None and known is None):
        raise TableError(findings.lines())
    names, places = _cells(moves, known)
    times = _times(table, moves, names, uneven=uneven, findings=findings)
    first = None
    if not findings:
        values, given = _arrays(table, numbers, times, names)
        first = table, times.texts[0], expected(values, given)[0]
    law = _initial_law(initial, start, names, findings, first)
    made = _transitions(moves, names, times, weights, reader, normalise=normalise)
    seen = (
        [] if flows is None else _flow_observation(flows, flow_noise, flow_parameters, names, times, reader)
    )
    findings.raise_any()
    assert made is not None
    assert kind is not None
    assert population is not None
    labels = plain_labels(names)
    chain = MarkovChain(law, made.matrices, times=times.labels, cells=labels)
    cube = labelled_counts(values, times.labels, labels, names, places or table.places)
    problem = _problem(chain, population, [kind.model(cube, **given), *seen], initial)
    _note_totals(values, given, population, findings)
    return Case(problem, tuple(findings.notes), made.features, made.mask, made.names)


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
    names, places = _cells(moves, known)
    times = _arrival_times(moves, length, findings)
    law = _initial_law(initial, start, names, findings, None)
    made = _transition_matrices(moves, names, times, normalise=normalise)
    findings.raise_any()
    return MarkovChain(law, made, times=times.labels, cells=plain_labels(names)), places


def read_weights(given: Any, names: Sequence[str], *, encoding: str | None = None) -> Array:
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


# --- noise


def noise_kind(name: Any, findings: Findings) -> NoiseKind | None:
    """The noise of a name; the findings list the known ones otherwise."""
    kind = NOISES.get(str(name).strip().casefold().replace("_", "-"))
    if kind is None:
        findings.problem("noise", f"there is no noise {name!r}: use one of {', '.join(NOISES)}")
    return kind


def _counts_whole(kind: NoiseKind | None) -> bool:
    """Whether the noise is one of whole counts."""
    return kind is not None and kind.model.whole


def noise_parameters(
    kind: NoiseKind,
    given: Mapping[str, float | None] | None,
    columns: Mapping[str, Array],
    file: str,
    findings: Findings,
) -> dict[str, Any]:
    """``{parameter: number, or the column of it}``, from options or from the columns of a file, never both."""
    options = {k: v for k, v in (given or {}).items() if v is not None}
    chosen, unused = {**columns, **options}, sorted(set(columns) - set(kind.takes))
    if unused:
        findings.note(f"{file}: the column {unused[0]!r} is not used by {kind.name} noise")
    for parameter in dict.fromkeys((*options, *kind.takes)):
        if parameter not in kind.takes:
            takes = ", ".join(kind.takes) or "nothing"
            text = f"{kind.name} noise takes no {parameter} (it takes {takes}): leave it out"
        elif parameter in options and parameter in columns:
            text = f"{parameter} is given by an option and by a column of {file}: keep one"
        elif parameter not in chosen and parameter in kind.needed:
            text = (
                f"{kind.name} noise needs {parameter}: give it ({parameter}=…, --{parameter} …) or a column {parameter} beside the "
                "counts"
            )
        else:
            continue
        findings.problem("noise", text)
    used = {parameter: chosen[parameter] for parameter in kind.takes if parameter in chosen}
    for parameter, value in used.items():
        _check_size(parameter, value, findings)
    return used


def _table_parameters(
    kind: NoiseKind | None,
    given: Mapping[str, float | None] | None,
    table: CountTable | None,
    findings: Findings,
) -> dict[str, Any]:
    """The parameters of the noise of counts, as far as noise and table could be read."""
    if kind is None:
        return {}
    columns, file = ({}, "") if table is None else (table.parameters, table.source.name)
    return noise_parameters(kind, given, columns, file, findings)


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


def _total_hint(table: CountTable | None, parameters: Mapping[str, Any]) -> str:
    """What the counts say about the population, where there are any."""
    if table is None or not np.isfinite(table.count).any():
        return ""
    import pandas as pd

    behind = expected(table.count, parameters)
    total = float(pd.Series(behind).groupby(pd.Series(table.time)).sum().median())
    return f"; the counts of a time come to about {total:.0f}"


def _note_totals(values: Array, parameters: Mapping[str, Any], population: int, findings: Findings) -> None:
    """Say so when the totals of fully counted times are far from N."""
    full = ~np.isnan(values).any(axis=1)
    if not full.any():
        return
    total = float(np.median(np.nansum(expected(values, parameters)[full], axis=1)))
    if not 0.5 < total / population < 2:
        findings.note(
            f"the counts of a time come to about {total:.0f} individuals, the population is {population}: check the population, "
            "and the rate at which individuals are counted"
        )


# --- cells, times and the initial law


def _cells(
    moves: MoveTable, known: tuple[list[str], Places | None] | None
) -> tuple[list[str], Places | None]:
    """The cells in order, and their places: as listed, or those that the moves name."""
    return known if known is not None else (ordered([*moves.origin.tolist(), *moves.dest.tolist()]), None)


def _times(
    table: CountTable, moves: MoveTable, cells: Sequence[str], *, uneven: bool, findings: Findings
) -> Times:
    """The times of counts and moves in order; the cells of the counts must be known."""
    departures = [] if moves.time is None else list(dict.fromkeys(moves.time.tolist()))
    texts = [t for t in (*table.time.tolist(), *departures) if t]
    times = order_times(texts, table.source.name, uneven=uneven, findings=findings)
    cell_positions(table.source, table.cell, cells, "cell")
    if times is None:
        raise TableError(findings.lines())
    return times


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


# --- how individuals move


@dataclass(frozen=True, eq=False)
class _Made:
    """Transition matrices, and the features they were made of."""

    matrices: Any
    features: Array | None = None
    mask: Array | None = None
    names: tuple[str, ...] = ()


def _move_table(transitions: Any, features: Any, reader: Reader, *, normalise: bool) -> MoveTable | None:
    """The table that says how individuals move; exactly one."""
    if transitions is not None and features is not None:
        text = "transitions and features are two ways to say the same: give one"
        reader.findings.problem("transitions", text)
        return None
    if transitions is not None:
        return transition_table(transitions, reader, normalise=normalise)
    if features is not None:
        return feature_table(features, reader)
    text = (
        "how individuals move is missing: give transitions (--transitions FILE with from, to, probability[, time]), or features and "
        "their weights (--features FILE with from, to and one column per feature; --weights 1,2,…). To learn the weights, use "
        "headcount fit"
    )
    reader.findings.problem("transitions", text)
    return None


def _transitions(
    moves: MoveTable, cells: list[str], times: Times, weights: Any, reader: Reader, *, normalise: bool
) -> _Made | None:
    """One matrix, or one per step, from probabilities or from features and their weights."""
    if not moves.features:
        made = _transition_matrices(moves, cells, times, normalise=normalise)
        return None if made is None else _Made(made)
    arrays = _feature_arrays(moves, cells, times)
    numbers = _weights(weights, moves.names, reader)
    if arrays is None or numbers is None:
        return None
    features, mask = arrays
    matrices = LogLinearTransitions(features, mask).transitions(numbers)
    return _Made(matrices if matrices.ndim == 2 else list(matrices), features, mask, moves.names)


def _weights(given: Any, names: Sequence[str], reader: Reader) -> Array | None:
    """One weight per feature, in the features' order: numbers, ``{feature: number}`` or a table ``feature, weight``; 0 if None."""
    if given is None:
        return np.zeros(len(names))
    if isinstance(given, (str, os.PathLike)):
        given = _weight_table(given, reader)
    return None if given is None else reader.findings.attempt(_weight_array, given, names)


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


def _weight_table(given: Any, reader: Reader) -> dict[str, float] | None:
    source = Reader(reader.findings, encoding=reader.encoding).read(given, ["feature", "weight"])
    if source is None:
        return None
    labels, values = read_labels(source, "feature"), read_numbers(source, "weight", required=True)
    return dict(zip(labels.tolist(), values.tolist(), strict=True))


def _ends(moves: MoveTable, cells: Sequence[str], times: Times) -> tuple[Index, Index, Index | None] | None:
    """Origin, destination and step of every row (step None when all are alike); None when something is wrong."""
    origin = cell_positions(moves.source, moves.origin, cells, "origin")
    dest = cell_positions(moves.source, moves.dest, cells, "destination")
    step = None if moves.time is None else _departures(moves.source, moves.time, times)
    if origin is None or dest is None or (moves.time is not None and step is None):
        return None
    return origin, dest, step


def _departures(source: Source, departs: Texts, times: Times) -> Index | None:
    """The step of every row of a table with times, 0 … T − 2; every step must have rows. None when something is wrong."""
    where = positions(departs, times.texts)
    text = (
        f"there are moves that leave at {times.texts[-1]}, the last time: the time of a move is that of its departure; add counts "
        "for the time after it (empty where nobody looked), or take these rows out"
    )
    late = source.refuse(where == len(times.texts) - 1, text)
    absent = [t for k, t in enumerate(times.texts[:-1]) if not (where == k).any()]
    if absent:
        source.problem(
            f"there are no moves that leave at {listed(absent)}: give them for every time but the last, or leave the column time out"
        )
    return None if late or absent or (where < 0).any() else where


def _transition_matrices(moves: MoveTable, cells: Sequence[str], times: Times, *, normalise: bool) -> Any:
    """One (L, L) matrix when all steps are alike, a list of T − 1 otherwise (equal ones shared); None if something is wrong."""
    ends = _ends(moves, cells, times)
    if ends is None:
        return None
    origin, dest, step = ends
    values, size = moves.values[:, 0], len(cells)
    if step is None:
        whole = _matrix(origin, dest, values, size)
        return _checked(whole, moves.source, cells, "", normalise)
    made: dict[bytes, Any] = {}
    matrices = []
    for k, label in enumerate(times.texts[:-1]):
        rows = np.flatnonzero(step == k)
        order = rows[np.lexsort((dest[rows], origin[rows]))]
        key = b"".join(a[order].tobytes() for a in (origin, dest, values))
        if key not in made:
            raw = _matrix(origin[rows], dest[rows], values[rows], size)
            made[key] = _checked(raw, moves.source, cells, f" at {label}", normalise)
        matrices.append(made[key])
    return None if any(m is None for m in matrices) else matrices


def _feature_arrays(moves: MoveTable, cells: Sequence[str], times: Times) -> tuple[Array, Array] | None:
    """Features (K, L, L) or (T − 1, K, L, L), and the mask that forbids moves without a row (−inf); None if something is wrong."""
    ends = _ends(moves, cells, times)
    if ends is None:
        return None
    origin, dest, step = ends
    size, count = len(cells), moves.values.shape[1]
    steps = 1 if step is None else len(times.texts) - 1
    values = np.zeros((steps, count, size, size))
    mask = np.full((steps, size, size), -np.inf)
    at = np.zeros(len(origin), dtype=np.intp) if step is None else step
    values[at, :, origin, dest] = moves.values
    mask[at, origin, dest] = 0.0
    closed = np.isneginf(mask).all(axis=2).any(axis=0)
    if closed.any():
        _nowhere(moves.source, [cells[k] for k in np.flatnonzero(closed).tolist()], "")
        return None
    absent = int(np.isneginf(mask).sum())
    if absent:
        moves.source.findings.note(
            f"{moves.source.name}: {absent} of {mask.size} moves have no row and are taken as impossible"
        )
    return (values[0], mask[0]) if step is None else (values, mask)


def _matrix(origin: Index, dest: Index, values: Array, size: int) -> Any:
    if size <= _DENSE_CELLS or len(values) > 0.1 * size * size:
        dense = np.zeros((size, size))
        dense[origin, dest] = values
        return dense
    from scipy.sparse import csr_array

    return csr_array((values, (origin, dest)), shape=(size, size))


def _checked(matrix: Any, source: Source, cells: Sequence[str], when: str, normalise: bool) -> Any:
    """The matrix with rows that sum to one, or None and the reason."""
    sums = np.asarray(matrix.sum(axis=1)).ravel()
    empty = np.flatnonzero(sums == 0)
    if len(empty):
        _nowhere(source, [cells[k] for k in empty.tolist()], when)
        return None
    off = np.abs(sums - 1)
    if normalise:
        return _divided(matrix, sums)
    far = np.flatnonzero(off > ROUNDING)
    if len(far):
        shown = "; ".join(f"{cells[k]!r} {sums[k]:.6g}" for k in far[:5]) + ("; …" if len(far) > 5 else "")
        text = (
            f"the probabilities from {len(far)} origin{'s' if len(far) > 1 else ''}{when} do not sum to 1 ({shown}): add the missing "
            "destinations (staying put is one), or have them divided by their sum (normalise=True, --normalise)"
        )
        source.problem(text)
        return None
    if off.max() > 1e-8:
        source.findings.note(
            f"{source.name}: probabilities that sum to 1 within {ROUNDING:g} were read as rounded and divided by their sum"
        )
        return _divided(matrix, sums)
    return matrix


def _divided(matrix: Any, sums: Array) -> Any:
    if isinstance(matrix, np.ndarray):
        return matrix / sums[:, None]
    from scipy.sparse import csr_array, diags_array

    return csr_array(diags_array(1 / sums) @ matrix)


def _nowhere(source: Source, cells: Sequence[str], when: str) -> None:
    shown = listed([repr(c) for c in cells])
    source.problem(
        f"there is no move from {shown}{when}: give at least one each (staying put, from and to the same cell, is one)"
    )


# --- observations


def _flow_observation(
    flows: Any,
    noise: str,
    parameters: Mapping[str, float | None] | None,
    cells: list[str],
    times: Times,
    reader: Reader,
) -> list[Observation]:
    """Observed flows as an observation of every step that has any."""
    findings = reader.findings
    kind = noise_kind(noise, findings)
    table = flow_table(flows, reader, whole=_counts_whole(kind))
    numbers = {} if kind is None else noise_parameters(kind, parameters, {}, "", findings)
    if kind is None or table is None or table.dest is None:
        return []
    cell_positions(table.source, table.cell, cells, "origin")
    cell_positions(table.source, table.dest, cells, "destination")
    known = f"{times.texts[0]} … {times.texts[-2] if len(times.texts) > 1 else '(none)'}"
    text = f"flows leave at a time that is not one of {known}: the time of a flow is that of its departure"
    table.source.refuse(~np.isin(table.time, np.array(times.texts[:-1], dtype=object)), text)
    if findings:
        return []
    values = laid_out(table, table.count, times.texts, cells)
    pairs = zip(times.labels, times.labels[1:], strict=False)
    seen = {pair: values[k] for k, pair in enumerate(pairs) if not np.isnan(values[k]).all()}
    return [kind.model(seen, **numbers)] if seen else []


def _problem(
    chain: MarkovChain, population: int, observations: Sequence[Observation], initial: Any
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
