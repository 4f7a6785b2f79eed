"""Networks in BIF with tables of counts: each table is of the variables that its header names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount._types import Index
from headcount.individual import DiscreteModel
from headcount.io._columns import Reader, label_text, read_labels
from headcount.io._problem import NO_POPULATION, Case
from headcount.io._source import Findings, TableError, listed
from headcount.io._tables import (
    PARAMETERS,
    NoiseKind,
    check_repeats,
    known_positions,
    noise_kind,
    noise_parameters,
    read_counted,
    read_parameters,
)
from headcount.observe import Problem

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from headcount.individual import Model
    from headcount.io._source import Source
    from headcount.observe import Observation
    from headcount.population import SizeLaw


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
    seen = [_observation(source, model, kind, parameters, reader) for source in opened]
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


def _observation(
    opened: Source | None,
    model: Model,
    kind: NoiseKind,
    parameters: Mapping[str, float | None] | None,
    reader: Reader,
) -> Observation | None:
    """The counts of one table, laid out over the variables that its header names."""
    if opened is None:
        return None
    source = reader.find(opened, ["count"], PARAMETERS)
    scope = _scope(opened, model)
    if source is None or not scope:
        return None
    count = read_counted(source, "count", whole=kind.model.whole)
    where = _entries(source, model, scope)
    columns = read_parameters(source, required=True)
    given = noise_parameters(kind, parameters or {}, columns, source.name, reader.findings)
    if where is None or "noise" in reader.findings:
        return None
    shape = model.size(tuple(scope))
    on = scope[0] if len(scope) == 1 else tuple(scope)
    placed = {name: _laid_out(value, shape, where) for name, value in given.items()}
    return kind.model(_laid_out(count, shape, where), on=on, **placed)


def _scope(source: Source, model: Model) -> list[Hashable]:
    """The variables that the header names; none is a problem."""
    named = {str(v): v for v in model.variables}
    scope = [named[str(c)] for c in source.frame.columns if str(c) in named]
    if not scope:
        shown = listed([repr(v) for v in named], most=8)
        text = f"no column is a variable of the network (it has {shown}): name the columns after them"
        source.problem(text, [1])
    return scope


def _laid_out(values: Any, shape: tuple[int, ...], where: tuple[Index, ...]) -> Any:
    """One value per row in the table of the scope, NaN where there is no row; a single number as it is."""
    if not np.ndim(values):
        return values
    out = np.full(shape, np.nan)
    out[where] = values
    return out


def _entries(source: Source, model: Model, scope: list[Hashable]) -> tuple[Index, ...] | None:
    """The entry of the scope's table of every row; None when a state is unknown."""
    labels = [read_labels(source, str(v), column=str(v)) for v in scope]
    check_repeats(source, labels, "this combination")
    where = []
    for v, texts in zip(scope, labels, strict=True):
        states = [label_text(s) for s in model.states[v]]
        text = f"unknown state of {v!r}: it has {listed([repr(s) for s in states], most=8)}"
        where.append(known_positions(source, texts, states, text))
    found = tuple(index for index in where if index is not None)
    return found if len(found) == len(scope) else None
