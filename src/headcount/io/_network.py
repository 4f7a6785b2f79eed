"""Networks in BIF with tables of counts: each table is of the variables that its header names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount._types import Index
from headcount.individual import DiscreteModel, ModelError
from headcount.io._columns import Reader, label_text, read_labels, read_numbers
from headcount.io._problem import Case, noise_kind, noise_parameters
from headcount.io._source import Findings, listed
from headcount.io._tables import PARAMETERS, CountTable, check_counts, check_repeats, positions
from headcount.observe import Problem

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from headcount.individual import Model
    from headcount.io._problem import NoiseKind
    from headcount.io._source import Source
    from headcount.observe import Observation


def read_network(
    network: Model | str | os.PathLike[str],
    tables: Sequence[Any],
    *,
    population: int | None,
    noise: str = "poisson",
    parameters: Mapping[str, float | None] | None = None,
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
) -> Case:
    """A problem about any network: a BIF file (or a model) and tables of counts over some of its variables.

    Parameters
    ----------
    network
        A ``.bif`` or ``.bif.gz`` file, or a model.
    tables
        Each has one column for every variable it counts, named as in the network, and ``count``; a combination without a row was
        not observed. The variables of one table must lie together in a clique.
    population, noise, parameters, columns, encoding
        As in `read_problem`.

    Raises
    ------
    TableError, headcount.ModelError, headcount.ProblemError
        Everything that is wrong with the tables, the network or what they say together.
    """
    findings = Findings()
    reader = Reader(findings, columns, encoding)
    model = _model(network, findings)
    kind = noise_kind(noise, findings)
    if population is None:
        findings.problem(
            "population", "how many individuals there are is missing: give it (population=N, --population N)"
        )
    if not tables:
        findings.problem(
            "tables", "there is no table of counts: give at least one, with a column per variable and count"
        )
    sources = [reader.open(table) for table in tables]
    observations: list[Observation] = []
    if model is not None and kind is not None:
        made = [_observation(s, model, kind, noise, parameters, reader) for s in sources if s is not None]
        observations = [o for o in made if o is not None]
    findings.raise_any()
    assert model is not None
    assert population is not None
    return Case(Problem(model, population, tuple(observations)), tuple(findings.notes))


def _model(network: Any, findings: Findings) -> Model | None:
    if not isinstance(network, (str, os.PathLike)):
        return network
    path = Path(network)
    try:
        return DiscreteModel.from_bif(path)
    except ModelError as error:
        for text in error.problems:
            findings.add(text)
    return None


def _observation(
    source: Source,
    model: Model,
    kind: NoiseKind,
    noise: str,
    parameters: Mapping[str, float | None] | None,
    reader: Reader,
) -> Observation | None:
    """The counts of one table, laid out over the variables that its header names."""
    findings = reader.findings
    named = {str(v): v for v in model.variables}
    scope: list[Hashable] = [named[str(c)] for c in source.frame.columns if str(c) in named]
    found = reader.find(source, ["count"], PARAMETERS)
    if not scope:
        shown = listed([repr(v) for v in named], most=8)
        text = f"no column is a variable of the network (it has {shown}): name the columns after them"
        findings.problem(source.name, text, [1])
    if found is None or not scope:
        return None
    count = read_numbers(source, found["count"], "count", required=False, findings=findings)
    check_counts(source, count, whole=kind.model.whole, findings=findings)
    where = _entries(source, model, scope, findings)
    columns = {
        name: read_numbers(source, found[name], name, required=True, findings=findings)
        for name in PARAMETERS
        if name in found
    }
    empty = np.empty(0, dtype=object)
    table = CountTable(source, empty, empty, count, columns)
    given = noise_parameters(kind, parameters, table, name=noise, findings=findings)
    if where is None or findings:
        return None

    def laid_out(values: Any) -> Any:
        if not np.ndim(values):
            return values
        out = np.full(model.size(tuple(scope)), np.nan)
        out[where] = values
        return out

    on = scope[0] if len(scope) == 1 else tuple(scope)
    return kind.model(laid_out(count), on=on, **{name: laid_out(value) for name, value in given.items()})


def _entries(
    source: Source, model: Model, scope: list[Hashable], findings: Findings
) -> tuple[Index, ...] | None:
    """The entry of the scope's table that every row speaks of; None when a state is unknown."""
    labels = [read_labels(source, str(v), str(v), findings=findings) for v in scope]
    check_repeats(source, labels, "this combination", findings)
    where = []
    for v, texts in zip(scope, labels, strict=True):
        states = [label_text(s) for s in model.states[v]]
        index = positions(texts, states)
        unknown = (index < 0) & (texts != "")
        if unknown.any():
            text = f"unknown state of {v!r}: it has {listed([repr(s) for s in states], most=8)}"
            findings.problem(source.name, text, source.at(unknown), texts[unknown].tolist())
        where.append(index)
    return None if any((index < 0).any() for index in where) else tuple(where)
