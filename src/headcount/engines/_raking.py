"""Iterative proportional fitting: the table closest to a given one, in Kullback–Leibler distance, with given margins."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def rake(table: Array, rows: Array, columns: Array, *, tolerance: float = 1e-13, most: int = 200) -> Array:
    """Scale rows and columns in turn until the margins fit: table(i, j) a(i) b(j).

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
        The raked table. Its columns fit to rounding, its rows to the tolerance (or as far as `most` rounds got).
    """
    out = table.copy()
    total = rows.sum()
    for _ in range(most):
        out *= _quotient(rows, out.sum(axis=1))[:, None]
        out *= _quotient(columns, out.sum(axis=0))
        if np.abs(out.sum(axis=1) - rows).max() <= tolerance * total:
            break
    return out


def _quotient(wanted: Array, have: Array) -> Array:
    return np.where(have > 0, wanted / np.where(have > 0, have, 1.0), 0.0)
