"""Checks on laws and transition matrices that name the row, the value and the remedy."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from headcount import memory
from headcount._types import Array, Index, Mask
from headcount.checks import instance, numbers
from headcount.errors import ModelError, raise_all
from headcount.individual._model import Scope, checked_scope

ROW_TOLERANCE = 1e-8
"""How far a row may be from one: decimals printed with nine digits pass, a lost entry does not."""
FILE_ROUNDING = 1e-6
"""How far rows of a network file may be from one: published networks are off by up to 3e-7."""
_ROUNDING = 1e-12
"""Rows this near to one are left as they are: the sum of thousands of doubles is off by less."""


def shape_problems(values: Any, axes: int, what: str, expected: str) -> list[str]:
    """One problem if `values` has not that many axes."""
    return [] if values.ndim == axes else [f"{what} has the shape {values.shape}: give {expected}"]


def law_problems(law: Array, labels: Sequence[Hashable], what: str) -> list[str]:
    """Every way in which a vector is not a probability law over `labels`."""
    if law.ndim != 1:
        return [f"{what} has the shape {law.shape}: give one probability per state, a 1-D array"]
    if len(law) != len(labels):
        return [f"{what} has {len(law)} entries for {len(labels)} states: give one probability per state"]
    problems = [
        f"{what}[{labels[k]!r}] is {law[k]}: probabilities are finite and not negative"
        for k in np.flatnonzero(~np.isfinite(law) | (law < 0)).tolist()
    ]
    if not problems and abs(law.sum() - 1) > ROW_TOLERANCE:
        problems.append(
            f"{what} sums to {law.sum():.10g}, not 1: divide it by its sum or add the missing state"
        )
    return problems


def matrix_problems(
    matrix: Any, origins: Sequence[Hashable], dests: Sequence[Hashable], what: str
) -> list[str]:
    """Every way in which a matrix (dense or csr) is not stochastic by rows."""
    if matrix.shape != (len(origins), len(dests)):
        return [
            f"{what} has the shape {matrix.shape}, expected {(len(origins), len(dests))}: rows are the "
            f"{len(origins)} states "
            f"before, columns the {len(dests)} states after"
        ]
    values = matrix.data if sparse.issparse(matrix) else matrix
    problems = []
    bad = ~np.isfinite(values) | (values < 0)
    if bad.any():
        rows, columns = _places(matrix, bad)
        problems += [
            f"{what}[{origins[i]!r}, {dests[j]!r}] is {value}: probabilities are finite and not negative"
            for i, j, value in zip(rows, columns, values[bad], strict=True)
        ]
        spoiled = set(rows.tolist())
    else:
        spoiled = set()
    with np.errstate(invalid="ignore"):
        sums = np.asarray(matrix.sum(axis=1))
    for i in np.flatnonzero(np.abs(sums - 1) > ROW_TOLERANCE).tolist():
        if i not in spoiled:
            problems.append(
                f"row {origins[i]!r} of {what} sums to {sums[i]:.10g}, not 1: divide the row by its sum, "
                "or add the "
                "missing destination (staying put is one too)"
            )
    return problems


def row_problems(
    table: Array,
    labels: Sequence[Sequence[Hashable]],
    what: str,
    *,
    tolerance: float = ROW_TOLERANCE,
) -> list[str]:
    """Every way in which a table is not a law along its last axis; `labels` are the states of every axis."""
    shape = tuple(len(names) for names in labels)
    if table.shape != shape:
        return [
            f"{what} has the shape {table.shape}, expected {shape}: one axis per parent in order, the "
            "child's last"
        ]

    def place(index: Index) -> str:
        return repr(tuple(names[k] for names, k in zip(labels, index, strict=False)))

    bad = ~np.isfinite(table) | (table < 0)
    problems = [
        f"{what} at {place(index)} is {table[tuple(index)]}: probabilities are finite and not negative"
        for index in np.argwhere(bad)
    ]
    sums = np.where(bad.any(axis=-1), 1.0, np.where(bad, 0.0, table).sum(axis=-1))
    problems += [
        f"row {place(index)} of {what} sums to {sums[tuple(index)]:.10g}, not 1: divide the row by its sum"
        for index in np.argwhere(np.abs(sums - 1) > tolerance)
    ]
    return problems


def _places(matrix: Any, bad: Mask) -> tuple[Index, Index]:
    if not sparse.issparse(matrix):
        rows, columns = np.nonzero(bad)
        return rows, columns
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return rows[bad], matrix.indices[bad]


def as_matrix(matrix: Any, what: str) -> Any:
    """A read-only float matrix, csr or C-ordered; an array that is read-only already is not copied."""
    if not sparse.issparse(matrix):
        return frozen(matrix, what)
    if matrix.dtype.kind not in "biuf":
        raise ModelError(f"{what} is a sparse matrix of {matrix.dtype}: give numbers")
    made = sparse.csr_array(matrix, dtype=np.float64, copy=True)
    made.sum_duplicates()
    return made


def frozen(values: Any, what: str = "the array") -> Array:
    """A read-only C-ordered float array; a copy unless it is one already."""
    given = numbers(values, what)
    if given.flags.writeable:
        made_here = isinstance(values, (list, tuple)) or not np.may_share_memory(given, np.asarray(values))
        if not made_here:
            memory.require(
                given.nbytes, f"a copy of {what}", remedy="give a sparse matrix, or one that is read-only"
            )
            given = given.copy()
        given.flags.writeable = False
    return given


def unit_rows(matrix: Any) -> Any:
    """The matrix with rows that sum to one to rounding, so that flows and node marginals agree.

    Only a matrix that passed `matrix_problems` comes here: its rows are within `ROW_TOLERANCE` of one, that
    is, printed decimals.
    """
    sums = np.asarray(matrix.sum(axis=-1))
    if np.all(np.abs(sums - 1) <= _ROUNDING):
        return matrix
    if not sparse.issparse(matrix):
        return frozen(matrix / sums[..., None])
    values = matrix.data / np.repeat(sums, np.diff(matrix.indptr))
    return sparse.csr_array((values, matrix.indices, matrix.indptr), shape=matrix.shape)


def checked_potentials(potentials: Mapping[Scope, Any], sizes: Mapping[Hashable, int]) -> dict[Scope, Any]:
    """Log tables as float arrays (sparse kept) of the right shape, no NaN or +inf; all problems at once."""
    made: dict[Scope, Any] = {}
    problems: list[str] = []
    for given, g in instance(potentials, Mapping, "potentials", expected="{scope: log table}").items():
        try:
            scope = checked_scope(given, sizes)
            table = _log_table(g, scope)
        except ModelError as error:
            problems += error.problems
            continue
        problems += log_table_problems(table, scope, tuple(sizes[v] for v in scope))
        made[scope] = table
    raise_all(problems)
    return made


def _log_table(values: Any, scope: Scope) -> Any:
    what = f"the log table over {scope!r}"
    if not sparse.issparse(values):
        return numbers(values, what)
    if values.dtype.kind not in "biuf":
        raise ModelError(f"{what} is a sparse matrix of {values.dtype}: give numbers")
    return sparse.csr_array(values)


def log_table_problems(table: Any, scope: Scope, shape: tuple[int, ...]) -> list[str]:
    """Every way in which a table is not a log potential over `scope`."""
    if table.shape != shape:
        return [
            f"the log table over {scope!r} has the shape {table.shape}, expected {shape}: one axis per "
            "variable, in that order"
        ]
    values = table.data if sparse.issparse(table) else table
    bad = np.isnan(values) | np.isposinf(values)
    if not bad.any():
        return []
    first = tuple(int(k) for k in np.argwhere(bad)[0])
    return [
        f"the log table over {scope!r} has {int(bad.sum())} entries that are NaN or +inf, the first at "
        f"{first}: "
        "give finite log potentials, or −inf where a configuration is impossible"
    ]
