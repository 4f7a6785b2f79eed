"""A site: one noise on some entries, or sums of entries, of one table."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from headcount.observe._base import Array, Observation


@dataclass(frozen=True, eq=False)
class Site:
    """What one observation says about one table: y_k ~ l(· | n_k), n_k an entry or a sum of entries.

    Attributes
    ----------
    scope
        The table's variables, in the model's order.
    size
        The number of entries of the table.
    index
        Flat entries (C order, increasing), shape (K,); None when sums are seen.
    weights
        0/1 matrix, shape (K, size), one row a sum; None when entries are seen.
    noise
        The observation on these K counts, 1-D, with one parameter an entry.
    names
        One readable name a count, for messages.
    source
        Which of the problem's observations this is.
    """

    scope: tuple[Hashable, ...]
    size: int
    index: NDArray[np.intp] | None
    weights: csr_array | None
    noise: Observation
    names: Sequence[str]
    source: int = 0

    def __len__(self) -> int:
        return int(self.noise.counts.size)

    def margin(self, table: ArrayLike) -> Array:
        """n_k from a flat table: entries or sums, shape (..., size) to (..., K)."""
        flat = np.asarray(table)
        if self.index is not None:
            return flat[..., self.index]
        return self._applied(self.weights, flat)

    def spread(self, values: ArrayLike) -> Array:
        """The adjoint of `margin`, (..., K) to (..., size): every entry adds up the counts it is part of."""
        values = np.asarray(values)
        if self.index is None:
            return self._applied(self.weights.T, values)  # type: ignore[union-attr]
        flat = np.zeros((*values.shape[:-1], self.size), dtype=values.dtype)
        flat[..., self.index] = values
        return flat

    @staticmethod
    def _applied(matrix: Any, values: Array) -> Array:
        columns = values.reshape(-1, values.shape[-1]).T
        return np.asarray((matrix @ columns).T.reshape(*values.shape[:-1], matrix.shape[0]))
