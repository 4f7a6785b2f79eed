"""How individuals move, from tables: transition matrices, or features and their weights."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.individual import LogLinearTransitions
from headcount.io._columns import Reader, read_labels, read_numbers
from headcount.io._source import Findings, TableError, listed
from headcount.io._tables import (
    ROUNDING,
    MoveTable,
    cell_positions,
    feature_table,
    positions,
    transition_table,
)

if TYPE_CHECKING:
    from headcount._types import Array, Index, Texts
    from headcount.io._source import Source
    from headcount.io._times import Times


_DENSE_CELLS = 256
"""Up to this many cells, and where more than a tenth of the moves exist, matrices are dense: the compiled passes over dense matrices serve
up to 256 cells. Beyond, a thousand steps of a thousand cells would take 8 GB as dense matrices and 40 MB as lists of two moves per cell."""


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


@dataclass(frozen=True, eq=False)
class Made:
    """Transition matrices, and the features they were made of."""

    matrices: Any
    features: Array | None = None
    mask: Array | None = None
    names: tuple[str, ...] = ()


def move_table(transitions: Any, features: Any, reader: Reader, *, normalise: bool) -> MoveTable | None:
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
    if not moves.features:
        made = transition_matrices(moves, cells, times, normalise=normalise)
        return None if made is None else Made(made)
    arrays = _feature_arrays(moves, cells, times)
    numbers = _weights(weights, moves.names, reader)
    if arrays is None or numbers is None:
        return None
    features, mask = arrays
    matrices = LogLinearTransitions(features, mask).transitions(numbers)
    return Made(matrices if matrices.ndim == 2 else list(matrices), features, mask, moves.names)


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
    source = replace(reader, columns=None).read(given, ["feature", "weight"])
    if source is None:
        return None
    labels, values = read_labels(source, "feature"), read_numbers(source, "weight", required=True)
    return dict(zip(labels.tolist(), values.tolist(), strict=True))


def _ends(
    moves: MoveTable, cells: Sequence[str], times: Times | None
) -> tuple[Index, Index, Index | None] | None:
    """Origin, destination and step of every row (step None when all are alike); None when something is wrong."""
    origin = cell_positions(moves.source, moves.origin, cells, "origin")
    dest = cell_positions(moves.source, moves.dest, cells, "destination")
    step = None if moves.time is None or times is None else _departures(moves.source, moves.time, times)
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


def transition_matrices(
    moves: MoveTable, cells: Sequence[str], times: Times | None, *, normalise: bool
) -> Any:
    """One (L, L) matrix when all steps are alike, a list of T − 1 otherwise (equal ones shared); None if something is wrong."""
    ends = _ends(moves, cells, times)
    if ends is None:
        return None
    origin, dest, step = ends
    values, size = moves.values[:, 0], len(cells)
    if step is None:
        whole = _matrix(origin, dest, values, size)
        return _checked(whole, moves.source, cells, "", normalise)
    assert times is not None
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


def _feature_arrays(
    moves: MoveTable, cells: Sequence[str], times: Times | None
) -> tuple[Array, Array] | None:
    """Features (K, L, L) or (T − 1, K, L, L), and the mask that forbids moves without a row (−inf); None if something is wrong."""
    ends = _ends(moves, cells, times)
    if ends is None:
        return None
    origin, dest, step = ends
    size, count = len(cells), moves.values.shape[1]
    steps = 1 if step is None or times is None else len(times.texts) - 1
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
