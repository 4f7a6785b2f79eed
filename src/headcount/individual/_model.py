"""What every model of one individual can be asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount import memory
from headcount._types import Array, Index, Scope, Variable
from headcount.checks import brief, label, whole_number
from headcount.errors import ModelError, named, raise_all, repeated, shown
from headcount.tables import Domain

if TYPE_CHECKING:
    from headcount.individual._clique_passes import Plan
    from headcount.individual._junction_tree import JunctionTree
    from headcount.individual._rooted_tree import RootedTree


class Model(ABC):
    """The law of one individual: p(x) = exp(sum_C theta_C(x_C) − A(theta)) over named variables.

    States are named too. A *scope* is a tuple of variables, ``(5,)`` for one; a table over it has one axis
    per variable, in the order given.
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
    def factors(self) -> tuple[tuple[Scope, Array], ...]:
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
    def marginal(self, scope: Sequence[Variable]) -> Array:
        """mu_A(i_A) = P(x_A = i_A), one axis per variable in the order given, for any scope A."""

    @abstractmethod
    def tilt(self, potentials: Mapping[Scope, Any]) -> tuple[Model, float]:
        """p'(x) ∝ p(x) exp(sum_A g_A(x_A)), and A(theta + g) − A(theta) = log E_p exp(sum_A g_A(x_A))."""

    @abstractmethod
    def sample(self, size: int, *, rng: np.random.Generator | int) -> Index:
        """Draw `size` independent individuals: state indices, one column per variable."""

    @abstractmethod
    def rooted(self) -> RootedTree | None:
        """Initial law and transitions, when the model is (or can be) a chain or a tree; None otherwise."""

    def passes(self, scopes: Sequence[Scope]) -> tuple[Plan, list[Array]] | None:
        """The plan of belief propagation for further potentials on these scopes, and the model's own potentials clique by clique.

        None where there is none: of models whose passes are those of `rooted`, or where some scope lies in no clique.
        """
        del scopes
        return None

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

    def joint_marginal(self, a: Sequence[Variable], b: Sequence[Variable]) -> Array:
        """<mu_{A,B}>(i, j) = P(x_A = i, x_B = j), (size of A, size of B) in C order; they may overlap.

        Raises
        ------
        ModelError
            Before anything is allocated, if the table would take more than the memory limit (`headcount.memory`).
        """
        rows, columns = self.domain(a), self.domain(b)
        memory.require(
            8 * rows.size * columns.size,
            f"the joint marginal of {rows.scope!r} and {columns.scope!r}",
            remedy="ask for fewer variables at once",
        )
        both = self.domain((*rows.scope, *(v for v in columns.scope if v not in rows.scope)))
        table = self.marginal(both.scope)
        if len(both.scope) == len(rows.scope) + len(columns.scope):
            return table.reshape(rows.size, columns.size)
        joint = np.zeros((rows.size, columns.size))
        joint[both.positions(rows.scope), both.positions(columns.scope)] = both.flat(table)
        return joint


def checked_scope(scope: Sequence[Variable], known: Mapping[Variable, Any]) -> Scope:
    """`scope` as a tuple of distinct, known variables."""
    if not isinstance(scope, (tuple, list)):
        example = f"({scope!r},)" if isinstance(scope, (str, int)) else "(v,)"
        raise ModelError(
            f"a scope is a tuple of variables, got {brief(scope)}: write {example} for one variable"
        )
    names = tuple(label(v, "a variable of the scope") for v in scope)
    problems = [f"unknown variable {named(v)}: the model has {shown(known)}" for v in names if v not in known]
    problems += [
        f"variable {v!r} appears twice in the scope {names!r}: name it once" for v in repeated(names)
    ]
    raise_all(problems)
    return names


def checked_model(model: Any) -> Model:
    """`model`, if it is one."""
    if not isinstance(model, Model):
        raise ModelError(f"model is {brief(model)}: give a Model, such as MarkovChain, Tree or DiscreteModel")
    return model


def sample_size(size: Any, variables: int) -> int:
    """The number of individuals to draw, if their states fit into memory."""
    count = whole_number(size, "size")
    memory.require(
        8 * count * variables,
        f"the states of {count:,} individuals",
        remedy="draw fewer, or counts with CGM.sample",
    )
    return count


def draw_given(law: Callable[[int], Array], given: Index, uniform: Array) -> Index:
    """For each individual, a state from ``law(its given state)``; each law is asked for once."""
    drawn = np.empty(len(given), dtype=np.intp)
    order = np.argsort(given, kind="stable")
    present, starts, counts = np.unique(given[order], return_index=True, return_counts=True)
    for state, start, count in zip(present, starts, counts, strict=True):
        rows = order[start : start + count]
        drawn[rows] = draw(law(int(state)), uniform[rows])
    return drawn


def draw(law: Array, uniform: Array) -> Index:
    """Inverse distribution function; a state of probability zero is never drawn."""
    steps = np.cumsum(law)
    # uniform < 1, and its product with the total is less than the total in floating point too.
    return np.searchsorted(steps, uniform * steps[-1], side="right")
