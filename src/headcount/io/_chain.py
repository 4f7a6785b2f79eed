"""From tables of moves to the arrays of a chain: every origin's law, every step's matrix, the first law."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.io._values import Times, label_text, order_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headcount.io._counts import CountTable
    from headcount.io._errors import Findings
    from headcount.io._moves import MoveTable
    from headcount.io._source import Source

    Array = NDArray[np.float64]
    Texts = NDArray[np.object_]

ROUNDING = 1e-4
"""Origins whose probabilities sum to 1 within this are read as rounded decimals and divided by their sum, which is noted."""
_DENSE = 1500
"""Up to this many cells, and where more than a tenth of the moves exist, matrices are dense."""


def positions(
    source: Source, texts: Texts, cells: Sequence[str], role: str, findings: Findings
) -> NDArray[np.intp]:
    """Where each label stands among the cells; unknown ones are a problem and −1."""
    where = _places(texts, cells)
    unknown = (where < 0) & (texts != "")
    if unknown.any():
        known = ", ".join(repr(c) for c in cells[:5]) + (", …" if len(cells) > 5 else "")
        text = f"unknown {role}: correct it, or add it to the cells ({len(cells)} are known: {known})"
        findings.problem(source.name, text, source.at(unknown), texts[unknown].tolist())
    return where


def _places(texts: Texts, known: Sequence[str]) -> NDArray[np.intp]:
    """Where each text stands among the known ones; −1 where it does not."""
    import pandas as pd

    return np.asarray(pd.Index(list(known), dtype=object).get_indexer(pd.Index(texts, dtype=object)))


def departures(moves: MoveTable, times: Times, findings: Findings) -> NDArray[np.intp] | None:
    """The step of every row of a table with times, 0 … T − 2; every step must have rows. None when something is wrong."""
    assert moves.time is not None
    name = moves.source.name
    where = _places(moves.time, times.texts)
    last = where == len(times.texts) - 1
    if last.any():
        text = (
            f"there are moves that leave at {times.texts[-1]}, the last time: the time of a move is that of its departure; add counts "
            "for the time after it (empty where nobody looked), or take these rows out"
        )
        findings.problem(name, text, moves.source.at(last))
    absent = [t for k, t in enumerate(times.texts[:-1]) if not (where == k).any()]
    if absent:
        shown = ", ".join(absent[:5]) + (", …" if len(absent) > 5 else "")
        text = f"there are no moves that leave at {shown}: give them for every time but the last, or leave the column time out"
        findings.problem(name, text)
    return None if last.any() or absent else where


def arrival_times(moves: MoveTable, length: int | None, findings: Findings) -> Times:
    """The times of a chain that only its moves speak of: those of departure and one more, or 0 … length − 1."""
    if moves.time is None:
        assert length is not None
        return Times(tuple(str(k) for k in range(length)), tuple(range(length)))
    found = order_times(moves.time.tolist(), moves.source.name, uneven=False, findings=findings)
    findings.raise_any()
    assert found is not None
    last: Any = "end"
    if len(found.labels) and isinstance(found.labels[-1], int):
        before: Any = found.labels[-2] if len(found.labels) > 1 else found.labels[-1] - 1
        last = found.labels[-1] + (found.labels[-1] - before)
    elif len(found.labels) > 1 and not isinstance(found.labels[-1], str):
        last = found.labels[-1] + (found.labels[-1] - found.labels[-2])  # type: ignore[operator]
    return Times((*found.texts, label_text(last)), (*found.labels, last))


def transition_matrices(
    moves: MoveTable, cells: Sequence[str], times: Times, *, normalise: bool, findings: Findings
) -> Any:
    """One (L, L) matrix when all steps are alike, a list of T − 1 otherwise (equal ones shared); None if something is wrong."""
    origin = positions(moves.source, moves.origin, cells, "origin", findings)
    dest = positions(moves.source, moves.dest, cells, "destination", findings)
    step = None if moves.time is None else departures(moves, times, findings)
    if (origin < 0).any() or (dest < 0).any() or (moves.time is not None and step is None):
        return None
    values, size = moves.values[:, 0], len(cells)
    if step is None:
        whole = _matrix(origin, dest, values, size)
        return _checked(whole, moves.source, cells, "", normalise, findings)
    made: dict[bytes, Any] = {}
    matrices = []
    for k, label in enumerate(times.texts[:-1]):
        rows = np.flatnonzero(step == k)
        order = rows[np.lexsort((dest[rows], origin[rows]))]
        key = b"".join(a[order].tobytes() for a in (origin, dest, values))
        if key not in made:
            raw = _matrix(origin[rows], dest[rows], values[rows], size)
            made[key] = _checked(raw, moves.source, cells, f" at {label}", normalise, findings)
        matrices.append(made[key])
    return None if any(m is None for m in matrices) else matrices


def feature_arrays(
    moves: MoveTable, cells: Sequence[str], times: Times, findings: Findings
) -> tuple[Array, Array] | None:
    """Features (K, L, L) or (T − 1, K, L, L), and the mask that forbids moves without a row (−inf); None if something is wrong."""
    origin = positions(moves.source, moves.origin, cells, "origin", findings)
    dest = positions(moves.source, moves.dest, cells, "destination", findings)
    step = None if moves.time is None else departures(moves, times, findings)
    if (origin < 0).any() or (dest < 0).any() or (moves.time is not None and step is None):
        return None
    size, count = len(cells), moves.values.shape[1]
    steps = 1 if step is None else len(times.texts) - 1
    values = np.zeros((steps, count, size, size))
    mask = np.full((steps, size, size), -np.inf)
    at = np.zeros(len(origin), dtype=np.intp) if step is None else step
    values[at, :, origin, dest] = moves.values
    mask[at, origin, dest] = 0.0
    closed = np.isneginf(mask).all(axis=(0, 2)) if step is None else np.isneginf(mask).all(axis=2).any(axis=0)
    if closed.any():
        _nowhere(moves.source, [cells[k] for k in np.flatnonzero(closed).tolist()], "", findings)
        return None
    absent = int(np.isneginf(mask).sum())
    if absent:
        findings.note(
            f"{moves.source.name}: {absent} of {mask.size} moves have no row and are taken as impossible"
        )
    return (values[0], mask[0]) if step is None else (values, mask)


def initial_law(
    cells: Sequence[str], source: Source, texts: Texts, values: Array, findings: Findings
) -> Array | None:
    """pi over the cells from a table of it, divided by its sum."""
    where = positions(source, texts, cells, "cell", findings)
    if (where < 0).any():
        return None
    law = np.zeros(len(cells))
    law[where] = values
    return law / law.sum() if law.sum() > 0 else law


def law_from_counts(
    first: Array, table: CountTable, label: str, *, smooth: bool, findings: Findings
) -> Array | None:
    """Shares of what was counted at the first time, half an individual a cell more when ``smooth``."""
    missing = int(np.isnan(first).sum())
    name = table.source.name
    if missing:
        text = (
            f"the initial law cannot be read off the counts of {label}, the first time: {missing} of {len(first)} cells have none; "
            "give it (initial='uniform' or a table, --initial uniform or --initial FILE with cell, probability)"
        )
        findings.problem(name, text)
        return None
    low = first + (0.5 if smooth else 0.0)
    if (low < 0).any() or low.sum() <= 0:
        text = f"the initial law cannot be read off the counts of {label}: they are not all ≥ 0 with one above 0; give --initial"
        findings.problem(name, text)
        return None
    how = "shares of the counts plus a half" if smooth else "shares of the counts"
    findings.note(
        f"the initial law is the {how} at {label}, the first time; these counts then speak twice: give --initial to change that"
    )
    return low / low.sum()


def _matrix(origin: NDArray[np.intp], dest: NDArray[np.intp], values: Array, size: int) -> Any:
    if size <= _DENSE or len(values) > 0.1 * size * size:
        dense = np.zeros((size, size))
        dense[origin, dest] = values
        return dense
    from scipy.sparse import csr_array

    return csr_array((values, (origin, dest)), shape=(size, size))


def _checked(
    matrix: Any, source: Source, cells: Sequence[str], when: str, normalise: bool, findings: Findings
) -> Any:
    """The matrix with rows that sum to one, or None and the reason."""
    sums = np.asarray(matrix.sum(axis=1)).ravel()
    empty = np.flatnonzero(sums == 0)
    if len(empty):
        _nowhere(source, [cells[k] for k in empty.tolist()], when, findings)
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
        findings.problem(source.name, text)
        return None
    if off.max() > 1e-8:
        note = f"{source.name}: probabilities that sum to 1 within {ROUNDING:g} were read as rounded and divided by their sum"
        if note not in findings.notes:
            findings.note(note)
        return _divided(matrix, sums)
    return matrix


def _divided(matrix: Any, sums: Array) -> Any:
    if isinstance(matrix, np.ndarray):
        return matrix / sums[:, None]
    from scipy.sparse import csr_array, diags_array

    return csr_array(diags_array(1 / sums) @ matrix)


def _nowhere(source: Source, cells: Sequence[str], when: str, findings: Findings) -> None:
    shown = ", ".join(repr(c) for c in cells[:5]) + (", …" if len(cells) > 5 else "")
    text = f"there is no move from {shown}{when}: give at least one each (staying put, from and to the same cell, is one)"
    findings.problem(source.name, text)
