r"""Named tables: which axis is which, which entry is where, margins, and turning a table round.

A table over a scope :math:`A` (a tuple of variables) is an array with one axis per variable, in the scope's order; flat positions
are in C order. For :math:`B \subseteq A`,

.. math:: n_B(i_B) = \sum_{i_{A\setminus B}} n_A(i_B, i_{A\setminus B}) .

Values stay plain arrays, so hot loops pay nothing; a `Domain` only knows names and sizes. Leading axes (draws, right-hand sides)
are allowed wherever a method takes values: the table's axes are the last ones. An edge's table may be a ``scipy.sparse`` matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from headcount._device import issparse
from headcount._types import Index, Scope

Values = NDArray[Any]


@dataclass(frozen=True)
class Domain:
    """The variables of a table and their numbers of states.

    Examples
    --------
    >>> pair = Domain(("sky", "rain"), (3, 2))
    >>> pair.project(np.arange(6).reshape(3, 2), ("rain",))
    array([6, 9])
    >>> pair.positions(("rain", "sky")).tolist()
    [0, 3, 1, 4, 2, 5]
    """

    scope: Scope
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of entries."""
        return math.prod(self.shape)

    def axes(self, scope: Sequence[Hashable]) -> tuple[int, ...]:
        """The axis of each variable of ``scope``."""
        return tuple(self.scope.index(v) for v in scope)

    def part(self, scope: Sequence[Hashable]) -> Domain:
        """The domain of some of the variables, in the order given."""
        return Domain(tuple(scope), tuple(self.shape[k] for k in self.axes(scope)))

    def project(self, values: Any, onto: Sequence[Hashable], *, total: Callable[..., Any] = np.sum) -> Any:
        """Sum a table down to ``onto`` ⊆ scope, axes in the order of ``onto``; ``total(values, axis=…)`` may be another sum.

        A sparse table stays sparse when it is only turned round, and becomes an array when it is summed.
        """
        if tuple(onto) == self.scope:
            return values
        if sparse.issparse(values):
            return self._project_sparse(values, onto)
        lead = values.ndim - len(self.scope)
        kept = [v for v in self.scope if v in onto]
        away = tuple(lead + k for k, v in enumerate(self.scope) if v not in onto)
        summed = np.asarray(total(values, axis=away)) if away else values
        return summed.transpose([*range(lead), *(lead + kept.index(v) for v in onto)])

    def _project_sparse(self, values: Any, onto: Sequence[Hashable]) -> Any:
        if len(onto) == 2:
            return sparse.csr_array(values.T)
        if not onto:
            return np.asarray(values.sum())
        (axis,) = (k for k, v in enumerate(self.scope) if v not in onto)
        return np.asarray(values.sum(axis=axis)).reshape(-1)

    def expand(self, values: Values, scope: Sequence[Hashable]) -> Values:
        """A view of a table over ``scope`` ⊆ self.scope that broadcasts against tables of this domain."""
        lead = values.ndim - len(scope)
        scope = tuple(scope)
        order = [lead + scope.index(v) for v in self.scope if v in scope]
        shape = [values.shape[lead + scope.index(v)] if v in scope else 1 for v in self.scope]
        return values.transpose([*range(lead), *order]).reshape(*values.shape[:lead], *shape)

    def flat(self, values: Values) -> Values:
        """The table's axes as one, in C order; leading axes are kept."""
        return values.reshape(*values.shape[: values.ndim - len(self.shape)], self.size)

    def table(self, flat: Values) -> Values:
        """The inverse of `flat`."""
        return flat.reshape((*flat.shape[:-1], *self.shape))

    def positions(self, onto: Sequence[Hashable]) -> Index:
        """For every flat entry of this table, the flat entry of ``onto`` that it is summed into, shape (size,)."""
        part = self.part(onto)
        labels = np.arange(part.size, dtype=np.intp).reshape(part.shape)
        return np.broadcast_to(self.expand(labels, part.scope), self.shape).reshape(-1)

    def by_rows(self, values: Values, given: Sequence[Hashable]) -> tuple[Values, Callable[[Values], Values]]:
        """A table as a matrix with one row per entry of ``given``, and the way back from such a matrix to a table."""
        front = (*self.axes(given), *(k for k, v in enumerate(self.scope) if v not in given))
        turned = values.transpose(front)
        matrix = turned.reshape(self.part(given).size, -1)
        return matrix, lambda made: made.reshape(turned.shape).transpose(np.argsort(front))


def dense(table: Any) -> Values:
    """The table as an array, whether it was sparse or not."""
    return (
        table.toarray()
        if issparse(table)
        else table
        if hasattr(table, "__array_function__")
        else np.asarray(table)
    )
