"""How individuals move: tables of transitions, of features and of initial laws, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.io._columns import find_columns
from headcount.io._counts import Places, check_repeats, read_places
from headcount.io._source import open_source
from headcount.io._values import read_labels, read_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from headcount.io._errors import Findings
    from headcount.io._source import Source

    Array = NDArray[np.float64]
    Texts = NDArray[np.object_]


@dataclass(frozen=True, eq=False)
class MoveTable:
    """Moves as read: origins and destinations as texts, values (rows, names); ``time`` None when all steps are alike."""

    source: Source
    origin: Texts
    dest: Texts
    values: Array
    names: tuple[str, ...]
    time: Texts | None = None


def transition_table(
    given: Any,
    *,
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    normalise: bool = False,
    findings: Findings,
) -> MoveTable | None:
    """``from, to, probability[, time]``; with ``normalise`` a column of flows will do."""
    source = open_source(given, encoding=encoding, findings=findings)
    if source is None:
        return None
    role = "probability"
    if normalise and find_columns(source, [], ["probability"], columns=columns, findings=findings) == {}:
        role = "flow"
    found = find_columns(source, ["from", "to", role], ["time"], columns=columns, findings=findings)
    if found is None:
        return None
    values = read_numbers(source, found[role], role, required=True, findings=findings)
    negative = values < 0
    if negative.any():
        findings.problem(
            source.name,
            f"{role} cannot be negative: correct it",
            source.at(negative),
            values[negative].tolist(),
        )
    large = values > 1 + 1e-9
    if large.any() and not normalise:
        text = (
            "a probability cannot exceed 1: correct it; if these are flows or counts, have every origin's divided by their sum "
            "(normalise=True, --normalise)"
        )
        findings.problem(source.name, text, source.at(large), values[large].tolist())
    return _moves(source, found, values[:, None], (role,), findings)


def feature_table(
    given: Any,
    *,
    names: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    findings: Findings,
) -> MoveTable | None:
    """``from, to, <one column a feature>[, time]``; every further column is a feature unless `names` picks some."""
    source = open_source(given, encoding=encoding, findings=findings)
    if source is None:
        return None
    found = find_columns(source, ["from", "to"], ["time"], columns=columns, findings=findings)
    if found is None:
        return None
    rest = [str(c) for c in source.frame.columns if str(c) not in found.values()]
    chosen = rest if names is None else list(names)
    unknown = [n for n in chosen if n not in rest]
    if unknown:
        findings.problem(
            source.name, f"there is no feature {unknown[0]!r}: it has {', '.join(map(repr, rest))}", [1]
        )
        return None
    if not chosen:
        findings.problem(
            source.name, "there is no column left for a feature: add one a feature beside from and to", [1]
        )
        return None
    columns_read = [read_numbers(source, n, f"feature {n}", required=True, findings=findings) for n in chosen]
    return _moves(source, found, np.stack(columns_read, axis=1), tuple(chosen), findings)


def initial_table(
    given: Any, *, columns: Mapping[str, str] | None = None, encoding: str | None = None, findings: Findings
) -> tuple[Source, Texts, Array] | None:
    """``cell, probability``: where individuals are at the first time; cells without a row have probability 0."""
    source = open_source(given, encoding=encoding, findings=findings)
    if source is None:
        return None
    found = find_columns(source, ["cell", "probability"], columns=columns, findings=findings)
    if found is None:
        return None
    cell = read_labels(source, found["cell"], "cell", findings=findings)
    check_repeats(source, [cell], "this cell", findings)
    values = read_numbers(source, found["probability"], "probability", required=True, findings=findings)
    negative = values < 0
    if negative.any():
        text = "a probability cannot be negative: correct it"
        findings.problem(source.name, text, source.at(negative), values[negative].tolist())
    total = float(np.sum(values))
    if np.isfinite(total) and not negative.any() and abs(total - 1) > 1e-4:
        text = f"the initial probabilities sum to {total:.10g}, not 1: divide them by their sum or add the missing cells"
        findings.problem(source.name, text)
    return source, cell, values


def cell_table(
    given: Any, *, columns: Mapping[str, str] | None = None, encoding: str | None = None, findings: Findings
) -> tuple[list[str], Places | None] | None:
    """``cell[, x, y]`` or ``cell[, lon, lat]``: the cells in their order, and where they are."""
    source = open_source(given, encoding=encoding, findings=findings)
    if source is None:
        return None
    found = find_columns(source, ["cell"], ["x", "y", "lon", "lat"], columns=columns, findings=findings)
    if found is None:
        return None
    cell = read_labels(source, found["cell"], "cell", findings=findings)
    check_repeats(source, [cell], "this cell", findings)
    return list(dict.fromkeys(cell.tolist())), read_places(source, cell, found, findings)


def _moves(
    source: Source, found: Mapping[str, str], values: Array, names: tuple[str, ...], findings: Findings
) -> MoveTable:
    origin = read_labels(source, found["from"], "from", findings=findings)
    dest = read_labels(source, found["to"], "to", findings=findings)
    time = read_labels(source, found["time"], "time", findings=findings) if "time" in found else None
    keys = [origin, dest] if time is None else [time, origin, dest]
    check_repeats(source, keys, "this move" if time is None else "this time and move", findings)
    return MoveTable(source, origin, dest, values, names, time)
