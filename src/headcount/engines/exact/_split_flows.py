"""One flow table given its margins: an exact draw from P(n_ij | n_u, n_v) ∝ Π P(i, j)^n_ij / n_ij!, two or three cells."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def split_flows(
    law: Array, rows: NDArray[np.int64], columns: NDArray[np.int64], *, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw the table row by row; the last row is what is left."""
    out = np.zeros(law.shape, dtype=np.int64)
    left = columns.copy()
    for i in range(len(rows) - 1):
        options = _rows(int(rows[i]), left)
        log_weight = _log_row(options, law[i]) + _log_rest(law[i + 1 :], rows[i + 1 :], left - options)
        weight = np.exp(log_weight - log_weight.max())
        out[i] = options[rng.choice(len(options), p=weight / weight.sum())]
        left = left - out[i]
    out[-1] = left
    return out


def _rows(total: int, most: NDArray[np.int64]) -> NDArray[np.int64]:
    """All rows of counts with the given total, no entry above `most`."""
    grids = np.meshgrid(*(np.arange(m + 1) for m in most[:-1]), indexing="ij")
    head = np.stack([g.ravel() for g in grids], axis=1)
    tail = total - head.sum(axis=1)
    kept = (tail >= 0) & (tail <= most[-1])
    return np.concatenate([head[kept], tail[kept, None]], axis=1)


def _log_row(counts: NDArray[np.int64], law: Array) -> Array:
    """Σ_j n_j log P_j − log n_j!."""
    from scipy.special import gammaln, xlogy

    return np.asarray((xlogy(counts, law) - gammaln(counts + 1.0)).sum(axis=-1))


def _log_rest(law: Array, rows: NDArray[np.int64], left: NDArray[np.int64]) -> Array:
    """log of the total weight of the remaining rows, for every possible remainder of the columns."""
    if len(rows) == 1:
        return _log_row(left, law[0])
    out = np.full(len(left), -np.inf)
    for k, columns in enumerate(left):
        options = _rows(int(rows[0]), columns)
        logs = _log_row(options, law[0]) + _log_rest(law[1:], rows[1:], columns - options)
        top = logs.max(initial=-np.inf)
        if top > -np.inf:
            out[k] = top + np.log(np.exp(logs - top).sum())
    return out
