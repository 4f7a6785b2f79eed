"""The table closest to a given one, in Kullback–Leibler distance, with given margins: table(i, j) e^(a_i + b_j).

Rows and columns are scaled in turn (iterative proportional fitting). Where the table nearly falls apart into blocks that
crawls, so Newton's method on the convex dual, Σ_ij table e^(a_i + b_j) − rows·a − columns·b, then finishes the job.
"""

from __future__ import annotations

import numpy as np

from headcount._types import Array

_ROUNDS, _STEPS, _HALVINGS = 30, 60, 40


def rake(table: Array, rows: Array, columns: Array, *, tolerance: float = 1e-13) -> Array:
    """Fit a non-negative table to its margins.

    Parameters
    ----------
    table
        Non-negative, shape (I, J).
    rows, columns
        The margins asked for; equal sums, and zero wherever the table has an empty row or column.
    tolerance
        Largest error of a margin, relative to the total.

    Returns
    -------
    NDArray
        The raked table; its margins fit to the tolerance, or as far as double precision allows.
    """
    out, limit = table.copy(), tolerance * rows.sum()
    for _ in range(_ROUNDS):
        out *= _quotient(rows, out.sum(axis=1))[:, None]
        out *= _quotient(columns, out.sum(axis=0))
        if np.abs(out.sum(axis=1) - rows).max() <= limit:
            return out
    for _ in range(_STEPS):
        miss = np.concatenate([rows - out.sum(axis=1), columns - out.sum(axis=0)])
        if np.abs(miss).max() <= limit:
            break
        better = _newton(out, rows, columns, miss)
        if better is None:
            break
        out = better
    return out


def _newton(table: Array, rows: Array, columns: Array, miss: Array) -> Array | None:
    """One damped Newton step on the dual; None when no step improves on it."""
    hessian = np.block([[np.diag(table.sum(axis=1)), table], [table.T, np.diag(table.sum(axis=0))]])
    # Scaled to a unit diagonal: cells of 1e-6 and of 1e3 individuals meet in one table.
    full = np.diag(hessian) > 0  # empty rows and columns stay as they are
    scale = np.sqrt(np.where(full, np.diag(hessian), 1.0))
    step = np.linalg.lstsq(hessian / np.outer(scale, scale), miss / scale, rcond=1e-13)[0] / scale
    step[~full] = 0.0
    a, b = step[: len(rows)], step[len(rows) :]
    slope, before = float(miss @ step), float(table.sum())
    size = 1.0
    for _ in range(_HALVINGS):
        with np.errstate(over="ignore", invalid="ignore"):
            moved = table * np.exp(size * (a[:, None] + b))
            change = float(moved.sum()) - before - size * float(rows @ a + columns @ b)
        if np.isfinite(change) and change <= -1e-4 * size * slope + 1e-15 * before:
            return moved
        size /= 2
    return None


def _quotient(wanted: Array, have: Array) -> Array:
    return np.where(have > 0, wanted / np.where(have > 0, have, 1.0), 0.0)
