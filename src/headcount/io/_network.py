"""Networks in BIF with tables of counts: each table is of the variables that its header names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.individual import DiscreteModel
from headcount.io._case import Case
from headcount.io._columns import find_columns
from headcount.io._counts import PARAMETERS, check_counts, check_repeats
from headcount.io._errors import Findings
from headcount.io._noise import noise_kind
from headcount.io._source import open_source
from headcount.io._values import label_text, read_labels, read_numbers
from headcount.observe import Problem

if TYPE_CHECKING:
    import os
    from collections.abc import Hashable, Mapping, Sequence

    from headcount.individual import Model
    from headcount.io._noise import NoiseKind
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
    model = _model(network, findings)
    kind = noise_kind(noise, findings)
    if population is None:
        findings.problem(
            "population", "how many individuals there are is missing: give it (population=N, --population N)"
        )
    if not tables:
        findings.problem(
            "tables", "there is no table of counts: give at least one, with a column a variable and count"
        )
    observations: list[Observation] = []
    for table in tables:
        source = open_source(table, encoding=encoding, findings=findings)
        if source is not None and model is not None and kind is not None:
            made = _observation(source, model, kind, noise, dict(parameters or {}), columns, findings)
            observations += [] if made is None else [made]
    findings.raise_any()
    assert model is not None
    assert population is not None
    return Case(Problem(model, population, tuple(observations)), tuple(findings.notes))


def _model(network: Any, findings: Findings) -> Model | None:
    import os

    if not isinstance(network, (str, os.PathLike)):
        return network
    path = Path(network)
    try:
        return DiscreteModel.from_bif(path)
    except FileNotFoundError:
        findings.problem(str(path), "there is no such file: check the path")
    except UnicodeDecodeError:
        findings.problem(path.name, "the network is not UTF-8 text: save it as UTF-8")
    except OSError as error:
        findings.problem(str(path), f"it cannot be read ({error.strerror or error}): check the path")
    except ValueError as error:
        for text in getattr(error, "problems", (str(error),)):
            findings.problems.append(text if text.startswith(path.name) else f"{path.name}: {text}")
    return None


def _observation(
    source: Any,
    model: Model,
    kind: NoiseKind,
    noise: str,
    options: dict[str, float | None],
    columns: Mapping[str, str] | None,
    findings: Findings,
) -> Observation | None:
    named = {str(v): v for v in model.variables}
    scope: list[Hashable] = [named[str(c)] for c in source.frame.columns if str(c) in named]
    found = find_columns(source, ["count"], PARAMETERS, columns=columns, findings=findings)
    if not scope:
        shown = ", ".join(repr(v) for v in list(named)[:8])
        text = f"no column is a variable of the network (it has {shown}{', …' if len(named) > 8 else ''}): name the columns after them"
        findings.problem(source.name, text, [1])
    if found is None or not scope:
        return None
    count = read_numbers(source, found["count"], "count", required=False, findings=findings)
    check_counts(source, count, whole=kind.model.whole, findings=findings)
    labels = [read_labels(source, str(v), str(v), findings=findings) for v in scope]
    check_repeats(source, labels, "this combination", findings)
    where, sound = [], True
    for v, texts in zip(scope, labels, strict=True):
        place = {label_text(s): k for k, s in enumerate(model.states[v])}
        index = np.array([place.get(t, -1) for t in texts.tolist()])
        unknown = (index < 0) & (texts != "")
        if unknown.any():
            shown = ", ".join(repr(s) for s in list(place)[:8])
            text = f"unknown state of {v!r}: it has {shown}"
            findings.problem(source.name, text, source.at(unknown), texts[unknown].tolist())
        sound &= not (index < 0).any()
        where.append(index)
    given = _parameters(source, kind, noise, options, found, findings)
    if not sound or findings.problems:
        return None
    values = np.full(model.size(tuple(scope)), np.nan)
    values[tuple(where)] = count
    arrays = {}
    for name, value in given.items():
        arrays[name] = value
        if np.ndim(value):
            arrays[name] = np.full(values.shape, np.nan)
            arrays[name][tuple(where)] = value
    on = scope[0] if len(scope) == 1 else tuple(scope)
    return kind.model(values, on=on, **arrays)


def _parameters(
    source: Any,
    kind: NoiseKind,
    noise: str,
    options: dict[str, float | None],
    found: Mapping[str, str],
    findings: Findings,
) -> dict[str, Any]:
    """Numbers of the noise, from options or from columns of this table."""
    from headcount.io._counts import CountTable
    from headcount.io._noise import noise_parameters

    empty = np.empty(0, dtype=object)
    columns = {
        name: read_numbers(source, found[name], name, required=True, findings=findings)
        for name in PARAMETERS
        if name in found
    }
    table = CountTable(source, empty, empty, np.empty(0), columns)
    return noise_parameters(kind, options, table, name=noise, findings=findings)
