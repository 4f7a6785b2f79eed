"""What every model of one individual can be asked."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headcount.individual._errors import ModelError, raise_all
from headcount.tables import Domain

if TYPE_CHECKING:
    from headcount.individual._junction_tree import JunctionTree
    from headcount.individual._rooted_tree import RootedTree

Variable = Hashable
Scope = tuple[Variable, ...]
Table = NDArray[np.float64]


class Model(ABC):
    """The law of one individual: p(x) = exp(sum_C theta_C(x_C) − A(theta)) over named variables.

    States are named too. A *scope* is a tuple of variables, ``(5,)`` for one; a table over it has one axis
    a variable, in the order given.
    """

    @property
    @abstractmethod
    def variables(self) -> tuple[Variable, ...]:
        """The names of the variables; for a chain, the time labels."""

    @property
    @abstractmethod
    def states(self) -> Mapping[Variable, tuple[Hashable, ...]]:
        """The labels of every variable's states."""

    @property
    @abstractmethod
    def factors(self) -> tuple[tuple[Scope, Table], ...]:
        """Log potentials ``(scope, theta)`` whose sum is log p(x) + A(theta); each scope lies in a clique."""

    @property
    @abstractmethod
    def log_partition(self) -> float:
        """A(theta) of `factors`."""

    @property
    @abstractmethod
    def junction_tree(self) -> JunctionTree:
        """Maximal cliques, the tree that joins them, separators with nu(S)."""

    @abstractmethod
    def marginal(self, scope: Sequence[Variable]) -> Table:
        """mu_A(i_A) = P(x_A = i_A), one axis per variable in the order given, for any scope A."""

    @abstractmethod
    def tilt(self, potentials: Mapping[Scope, Any]) -> tuple[Model, float]:
        """p'(x) ∝ p(x) exp(sum_A g_A(x_A)), and A(theta + g) − A(theta) = log E_p exp(sum_A g_A(x_A))."""

    @abstractmethod
    def sample(self, size: int, *, rng: np.random.Generator | int) -> NDArray[np.intp]:
        """Draw `size` independent individuals: state indices, one column per variable."""

    @abstractmethod
    def rooted(self) -> RootedTree | None:
        """Initial law and transitions, when the model is (or can be) a chain or a tree; None otherwise."""

    def __repr__(self) -> str:
        sizes = [len(labels) for labels in self.states.values()]
        low, high = min(sizes), max(sizes)
        states = f"{low} states each" if low == high else f"{low} to {high} states"
        return f"<{type(self).__name__}: {len(sizes)} variables ({shown(self.variables, 4)}), {states}>"

    def size(self, scope: Sequence[Variable]) -> tuple[int, ...]:
        """The shape of a table over `scope`."""
        return self.domain(scope).shape

    def scope(self, scope: Sequence[Variable]) -> Scope:
        """`scope` as a tuple of distinct, known variables; `ModelError` if it is not one."""
        return checked_scope(scope, self.states)

    def domain(self, scope: Sequence[Variable]) -> Domain:
        """The names and sizes of a table over `scope`."""
        names = self.scope(scope)
        return Domain(names, tuple(len(self.states[v]) for v in names))

    def joint_marginal(self, a: Sequence[Variable], b: Sequence[Variable]) -> Table:
        """<mu_{A,B}>(i, j) = P(x_A = i, x_B = j), (size of A, size of B) in C order; they may overlap."""
        a, b = self.scope(a), self.scope(b)
        union = (*a, *(v for v in b if v not in a))
        table = self.marginal(union)
        shape_a, shape_b = self.size(a), self.size(b)
        if len(union) == len(a) + len(b):
            return table.reshape(int(np.prod(shape_a)), int(np.prod(shape_b)))
        place = np.indices(table.shape, sparse=True)
        row = _flat_index([place[union.index(v)] for v in a], shape_a)
        column = _flat_index([place[union.index(v)] for v in b], shape_b)
        joint = np.zeros((int(np.prod(shape_a)), int(np.prod(shape_b))))
        joint[np.broadcast_to(row, table.shape), np.broadcast_to(column, table.shape)] = table
        return joint


def _flat_index(places: Sequence[NDArray[np.intp]], shape: tuple[int, ...]) -> NDArray[np.intp]:
    """The C-order index of a configuration, broadcast over the axes it depends on."""
    flat: Any = np.zeros((), dtype=np.intp)
    for place, length in zip(places, shape, strict=True):
        flat = flat * length + place
    return flat


def checked_scope(scope: Sequence[Variable], known: Mapping[Variable, Any]) -> Scope:
    """`scope` as a tuple of distinct, known variables."""
    if isinstance(scope, str) or not isinstance(scope, (tuple, list)):
        raise ModelError(
            f"a scope is a tuple of variables, got {scope!r}: write ({scope!r},) for one variable"
        )
    names = tuple(scope)
    problems = [f"unknown variable {v!r}: the model has {shown(known)}" for v in names if v not in known]
    problems += [
        f"variable {v!r} appears twice in the scope {names!r}: name it once" for v in repeated(names)
    ]
    raise_all(problems)
    return names


def label_tuple(labels: Any) -> tuple[Hashable, ...]:
    """Labels as plain Python values: messages read ``3``, not ``np.int64(3)``. Dates stay dates."""
    xarray = sys.modules.get("xarray")
    values = labels.values if xarray is not None and isinstance(labels, xarray.DataArray) else labels
    if isinstance(values, np.ndarray) and values.dtype.kind not in "Mm":
        return tuple(values.tolist())
    return tuple(values)


def repeated(names: Sequence[Variable]) -> list[Variable]:
    """The names that appear more than once."""
    seen: dict[Variable, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    return [name for name, times in seen.items() if times > 1]


def shown(names: Any, most: int = 8) -> str:
    """A few of many names, for messages."""
    names = list(names)
    text = ", ".join(repr(n) for n in names[:most])
    return text if len(names) <= most else f"{text}, ... ({len(names)} in all)"
