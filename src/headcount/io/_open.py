"""Arrivals and survival from tables: a closed problem opened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.individual import MarkovChain, OpenChain
from headcount.io._columns import Reader, read_labels, read_numbers
from headcount.io._source import Findings, label_text
from headcount.io._tables import cell_positions, check_repeats, count_table, known_positions
from headcount.observe import Problem

if TYPE_CHECKING:
    from headcount._types import Array
    from headcount.io._problem import Case
    from headcount.io._source import Source


def opened(
    case: Case,
    *,
    arrivals: Any = None,
    survival: Any = None,
    columns: Mapping[str, str] | None = None,
    encoding: str | Mapping[str, str] | None = None,
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
    columns, encoding
        As for `read_problem`.

    Raises
    ------
    TableError
        Everything wrong with the tables.
    """
    findings = Findings()
    # The columns were found in the tables of the case, so that these may have others.
    reader = Reader(findings, columns, encoding, _placed=set(columns or ()))
    chain, population = case.problem.model, case.problem.population
    if not isinstance(chain, MarkovChain) or not chain.initial_known:
        findings.problem(
            "initial",
            "a population that comes and goes needs a chain and its initial law: give --initial counts, uniform or a table",
        )
    elif not isinstance(population, int):
        findings.problem(
            "population", "give the expected number at the first time beside arrivals and survival"
        )
    findings.raise_any()
    assert isinstance(chain, MarkovChain)
    times, cells = [label_text(t) for t in chain.times], [label_text(c) for c in chain.cells]
    come = None if arrivals is None else _arrivals(arrivals, reader, times, cells)
    stay = _survival(survival, reader, times, cells)
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


def _arrivals(given: Any, reader: Reader, times: list[str], cells: list[str]) -> Array | None:
    """Expected arrivals, (T, L)."""
    table = count_table(given, reader)
    if table is None:
        return None
    where = _where(table.source, {"time": (table.time, times), "cell": (table.cell, cells)})
    if where is None:
        return None
    made = np.zeros((len(times), len(cells)))
    made[where] = np.nan_to_num(table.count)
    return made


def _survival(given: Any, reader: Reader, times: list[str], cells: list[str]) -> Any:
    """One probability, one per cell, or one per step and cell."""
    number = _number(given)
    if given is None or number is not None:
        return number
    source = reader.read(given, ["cell", "probability"], ["time"])
    if source is None:
        return None
    probability = read_numbers(source, "probability", required=True)
    axes = {"time": times[:-1], "cell": cells} if "time" in source.columns else {"cell": cells}
    labels = {role: read_labels(source, role) for role in axes}
    check_repeats(source, list(labels.values()), f"this {' and '.join(axes)}")
    where = _where(source, {role: (labels[role], known) for role, known in axes.items()})
    made = np.full([len(known) for known in axes.values()], np.nan)
    if where is None:
        return None
    made[where] = probability
    if np.isnan(made).any():
        reader.findings.problem(
            source.name,
            f"{int(np.isnan(made).sum())} cells (and times) have no probability: give one row each",
        )
        return None
    return made


def _number(given: Any) -> float | None:
    """A number that was given as such or as text; None for a file."""
    if isinstance(given, os.PathLike):
        given = os.fspath(given)
    try:
        return float(given)
    except (TypeError, ValueError):
        return None


def _where(source: Source, axes: Mapping[str, tuple[Any, list[str]]]) -> tuple[Any, ...] | None:
    """Positions of the rows along every axis; None, with the problem, where a label is not known."""
    found = []
    for role, (texts, known) in axes.items():
        unknown = (
            "unknown time: arrivals are named by a time of the counts, survival by one that is not the last"
        )
        place = (
            cell_positions(source, texts, known, role)
            if role == "cell"
            else known_positions(source, texts, known, unknown)
        )
        if place is None:
            return None
        found.append(place)
    return tuple(found)
