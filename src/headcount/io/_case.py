"""From tables to a Problem: read everything, collect everything that is wrong, then build."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.individual import LogLinearTransitions, MarkovChain
from headcount.io import _chain
from headcount.io._counts import count_table, flow_table, labelled_counts, laid_out
from headcount.io._errors import Findings
from headcount.io._moves import cell_table, feature_table, initial_table, transition_table
from headcount.io._noise import noise_kind, noise_parameters, shares
from headcount.io._values import order_times, ordered, plain_labels
from headcount.observe import Observation, Problem, ProblemError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headcount.io._counts import CountTable, Places
    from headcount.io._moves import MoveTable
    from headcount.io._noise import NoiseKind
    from headcount.io._values import Times

    Array = NDArray[np.float64]


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


@dataclass(frozen=True)
class Inputs:
    """What the caller gave, by the names of `read_problem`."""

    counts: Any
    population: int | None
    transitions: Any = None
    features: Any = None
    weights: Any = None
    initial: Any = "counts"
    cells: Any = None
    flows: Any = None
    noise: str = "poisson"
    parameters: Mapping[str, float | None] = field(default_factory=dict)
    flow_noise: str = "poisson"
    flow_parameters: Mapping[str, float | None] = field(default_factory=dict)
    columns: Mapping[str, str] | None = None
    encoding: str | None = None
    uneven: bool = False
    normalise: bool = False


def read_problem(counts: Any, *, population: int | None, **options: Any) -> Case:
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
        ``"counts"`` (shares of the first counts), ``"smoothed"`` (the same, half an individual more in every cell),
        ``"uniform"``, or a table ``cell, probability``.
    cells
        ``cell[, x, y]``: all the cells, their order and their places.
    flows
        Observed flows ``time, origin, dest, count``, with ``flow_noise`` and ``flow_parameters`` of their own.
    noise, parameters
        ``poisson`` (rate, background), ``binomial`` (detection), ``negative-binomial`` (dispersion, rate, background),
        ``gaussian`` (sd), ``laplace`` (scale), ``exact``.
    columns
        ``{role: column}`` where the names differ.
    encoding, uneven, normalise
        Of text files (UTF-8); take unevenly spaced times as successive; divide every origin's values by their sum.

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
    inputs = Inputs(counts, population, **options)
    findings = Findings()
    kind = noise_kind(inputs.noise, findings)
    whole = kind is not None and kind.model.whole
    shared: dict[str, Any] = {"columns": inputs.columns, "encoding": inputs.encoding, "findings": findings}
    table = count_table(inputs.counts, whole=whole, **shared)
    moves = _moves(inputs, shared)
    listed = None if inputs.cells is None else cell_table(inputs.cells, **shared)
    parameters = (
        {}
        if kind is None
        else noise_parameters(kind, inputs.parameters, table, name=inputs.noise, findings=findings)
    )
    _check_population(inputs, table, parameters, findings)
    if table is None or moves is None or (inputs.cells is not None and listed is None):
        if isinstance(inputs.initial, os.PathLike) or _is_path(inputs.initial):
            initial_table(inputs.initial, **shared)  # so that the same report names what is wrong with it
        findings.raise_any()
    assert table is not None
    assert moves is not None
    cells = listed[0] if listed is not None else ordered([*moves.origin.tolist(), *moves.dest.tolist()])
    places = listed[1] if listed is not None and listed[1] is not None else table.places
    times = _times(table, moves, inputs, findings)
    _chain.positions(table.source, table.cell, cells, "cell", findings)
    if times is None or findings.problems:
        if times is not None:
            _transitions(moves, cells, times, inputs, findings)
        findings.raise_any()
    assert times is not None
    assert kind is not None
    return _assembled(inputs, kind, table, moves, parameters, (cells, places, times), findings)


def _assembled(
    inputs: Inputs,
    kind: NoiseKind,
    table: CountTable,
    moves: MoveTable,
    parameters: dict[str, Any],
    frame: tuple[list[str], Places | None, Times],
    findings: Findings,
) -> Case:
    """Arrays, model, observations and problem, once the tables are sound by themselves."""
    cells, places, times = frame
    values = laid_out(table, table.count, times.texts, cells)
    arrays = {
        name: value if np.ndim(value) == 0 else laid_out(table, value, times.texts, cells)
        for name, value in parameters.items()
    }
    law = _initial(inputs, table, times, cells, shares(values, arrays)[0], findings)
    made = _transitions(moves, cells, times, inputs, findings)
    flows = _flow_observation(inputs, cells, times, findings)
    findings.raise_any()
    labels = plain_labels(cells)
    chain = MarkovChain(law, made["transitions"], times=times.labels, cells=labels)
    counts = labelled_counts(values, times.labels, labels, cells, places)
    observations: list[Observation] = [kind.model(counts, **arrays)]
    observations += flows
    assert inputs.population is not None
    try:
        problem = Problem(chain, inputs.population, tuple(observations))
    except ProblemError as error:
        if inputs.initial != "counts" or not any("probability 0" in text for text in error.problems):
            raise
        text = (
            "initial: cells without a count at the first time get probability 0 there; give another law (initial='smoothed', "
            "--initial smoothed, or a table)"
        )
        raise ProblemError([*error.problems, text]) from None
    _note_totals(values, arrays, inputs, findings)
    return Case(problem, tuple(findings.notes), made.get("features"), made.get("mask"), made.get("names", ()))


def _moves(inputs: Inputs, shared: dict[str, Any]) -> MoveTable | None:
    """The table that says how individuals move; exactly one."""
    findings: Findings = shared["findings"]
    if inputs.transitions is not None and inputs.features is not None:
        findings.problem("transitions", "transitions and features are two ways to say the same: give one")
        return None
    if inputs.transitions is not None:
        return transition_table(inputs.transitions, normalise=inputs.normalise, **shared)
    if inputs.features is not None:
        return feature_table(inputs.features, **shared)
    text = (
        "how individuals move is missing: give transitions (--transitions FILE with from, to, probability[, time]), or features and "
        "their weights (--features FILE with from, to and one column a feature; --weights 1,2,…). To learn the weights, use headcount fit"
    )
    findings.problem("transitions", text)
    return None


def _times(table: CountTable, moves: MoveTable, inputs: Inputs, findings: Findings) -> Times | None:
    texts = table.time.tolist()
    if moves.time is not None:
        texts = [*texts, *dict.fromkeys(moves.time.tolist())]
    return order_times([t for t in texts if t], table.source.name, uneven=inputs.uneven, findings=findings)


def _transitions(
    moves: MoveTable, cells: list[str], times: Times, inputs: Inputs, findings: Findings
) -> dict[str, Any]:
    """``{"transitions": …}``, and what they were made of."""
    if inputs.transitions is not None:
        return {
            "transitions": _chain.transition_matrices(
                moves, cells, times, normalise=inputs.normalise, findings=findings
            )
        }
    arrays = _chain.feature_arrays(moves, cells, times, findings)
    weights = _weights(inputs.weights, moves.names, inputs.encoding, findings)
    if arrays is None or weights is None:
        return {}
    features, mask = arrays
    made = LogLinearTransitions(features, mask).transitions(weights)
    matrices = made if made.ndim == 2 else list(made)
    return {"transitions": matrices, "features": features, "mask": mask, "names": moves.names}


def read_weights(given: Any, names: Sequence[str], *, encoding: str | None = None) -> Array:
    """One weight a feature, in the features' order.

    Parameters
    ----------
    given
        Numbers, ``{feature: number}``, or a table ``feature, weight``.
    """
    findings = Findings()
    weights = _weights(given, names, encoding, findings)
    findings.raise_any()
    assert weights is not None
    return weights


def _weights(given: Any, names: Sequence[str], encoding: str | None, findings: Findings) -> Array | None:
    """One weight a feature, in the features' order: numbers, ``{feature: number}`` or a table ``feature, weight``; 0 if None."""
    from headcount.io._columns import find_columns
    from headcount.io._source import open_source
    from headcount.io._values import read_labels, read_numbers

    if given is None:
        return np.zeros(len(names))
    if isinstance(given, (str, os.PathLike)):
        source = open_source(given, encoding=encoding, findings=findings)
        found = None if source is None else find_columns(source, ["feature", "weight"], findings=findings)
        if source is None or found is None:
            return None
        labels = read_labels(source, found["feature"], "feature", findings=findings)
        values = read_numbers(source, found["weight"], "weight", required=True, findings=findings)
        given = dict(zip(labels.tolist(), values.tolist(), strict=True))
    if isinstance(given, Mapping):
        if set(given) != set(names):
            findings.problem(
                "weights", f"weights name {sorted(given)}, the features are {list(names)}: give one each"
            )
            return None
        given = [given[name] for name in names]
    weights = np.asarray(given, dtype=float)
    if weights.shape != (len(names),) or not np.isfinite(weights).all():
        text = f"{len(np.atleast_1d(weights))} weights for the {len(names)} features {', '.join(names)}: give one finite number each"
        findings.problem("weights", text)
        return None
    return weights


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
    shared: dict[str, Any] = {"columns": columns, "encoding": encoding, "findings": findings}
    moves = transition_table(transitions, normalise=normalise, **shared)
    listed = None if cells is None else cell_table(cells, **shared)
    if moves is not None and moves.time is None and (length is None or length < 1):
        findings.problem(
            "length",
            f"how many times there are is missing: give a whole number ≥ 1 (length=T, --steps T), got {length}",
        )
    findings.raise_any()
    assert moves is not None
    names = listed[0] if listed is not None else ordered([*moves.origin.tolist(), *moves.dest.tolist()])
    times = _chain.arrival_times(moves, length, findings)
    inputs = Inputs(None, None, initial=initial, columns=columns, encoding=encoding)
    law = _initial(inputs, None, times, names, np.empty(0), findings)
    made = _chain.transition_matrices(moves, names, times, normalise=normalise, findings=findings)
    findings.raise_any()
    chain = MarkovChain(law, made, times=times.labels, cells=plain_labels(names))
    return chain, None if listed is None else listed[1]


def _initial(
    inputs: Inputs, table: CountTable | None, times: Times, cells: list[str], first: Array, findings: Findings
) -> Array | None:
    given = inputs.initial
    if isinstance(given, str) and given == "uniform":
        return np.full(len(cells), 1 / len(cells))
    if isinstance(given, str) and given in {"counts", "smoothed"} and table is not None:
        return _chain.law_from_counts(
            first, table, times.texts[0], smooth=given == "smoothed", findings=findings
        )
    if isinstance(given, str) and not _is_path(given):
        findings.problem(
            "initial", f"give counts, smoothed, uniform or a table (cell, probability), got {given!r}"
        )
        return None
    read = initial_table(given, columns=inputs.columns, encoding=inputs.encoding, findings=findings)
    return None if read is None else _chain.initial_law(cells, *read, findings)


def _flow_observation(
    inputs: Inputs, cells: list[str], times: Times, findings: Findings
) -> list[Observation]:
    """Observed flows as an observation of every step that has any."""
    if inputs.flows is None:
        return []
    kind = noise_kind(inputs.flow_noise, findings)
    whole = kind is not None and kind.model.whole
    table = flow_table(
        inputs.flows, columns=inputs.columns, encoding=inputs.encoding, whole=whole, findings=findings
    )
    if kind is None or table is None or table.dest is None:
        return []
    parameters = noise_parameters(
        kind, inputs.flow_parameters, None, name=inputs.flow_noise, findings=findings
    )
    bad = (_chain.positions(table.source, table.cell, cells, "origin", findings) < 0).any()
    bad |= (_chain.positions(table.source, table.dest, cells, "destination", findings) < 0).any()
    late = ~np.isin(table.time, np.array(times.texts[:-1], dtype=object))
    if late.any():
        text = f"flows leave at a time that is not one of {times.texts[0]} … {times.texts[-2] if len(times.texts) > 1 else '(none)'}"
        findings.problem(
            table.source.name, f"{text}: the time of a flow is that of its departure", table.source.at(late)
        )
    if bad or late.any() or findings.problems:
        return []
    values = laid_out(table, table.count, times.texts, cells)
    pairs = zip(times.labels, times.labels[1:], strict=False)
    seen = {pair: values[k] for k, pair in enumerate(pairs) if not np.isnan(values[k]).all()}
    return [kind.model(seen, **parameters)] if seen else []


def _check_population(
    inputs: Inputs, table: CountTable | None, parameters: Mapping[str, Any], findings: Findings
) -> None:
    if inputs.population is not None:
        return
    hint = ""
    if table is not None and np.isfinite(table.count).any():
        import pandas as pd

        behind = shares(table.count, parameters)
        total = float(pd.Series(behind).groupby(pd.Series(table.time)).sum().median())
        hint = f"; the counts of a time come to about {total:.0f}"
    findings.problem(
        "population",
        f"how many individuals there are is missing: give it (population=N, --population N){hint}",
    )


def _note_totals(values: Array, parameters: Mapping[str, Any], inputs: Inputs, findings: Findings) -> None:
    """Say so when the totals of fully counted times are far from N."""
    full = ~np.isnan(values).any(axis=1)
    if not full.any() or inputs.population is None:
        return
    total = float(np.median(np.nansum(shares(values, parameters)[full], axis=1)))
    if not 0.5 < total / inputs.population < 2:
        findings.note(
            f"the counts of a time come to about {total:.0f} individuals, the population is {inputs.population}: check the population, "
            "and the rate at which individuals are counted"
        )


def _is_path(given: Any) -> bool:
    return isinstance(given, os.PathLike) or (
        isinstance(given, str)
        and given not in {"counts", "smoothed", "uniform"}
        and (os.path.exists(given) or "." in given)
    )
