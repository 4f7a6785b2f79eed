"""Models from log potentials on any cliques, by belief propagation."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from headcount import memory
from headcount._types import Index
from headcount.checks import attempt, generator, instance, label, whole_number
from headcount.errors import ModelError, raise_all, repeated, shown
from headcount.individual import _convert
from headcount.individual._model import (
    FILE_ROUNDING,
    ROW_TOLERANCE,
    Array,
    Model,
    Scope,
    Variable,
    checked_model,
    checked_potentials,
    draw_given,
    frozen,
    log_tables,
    sample_size,
)
from headcount.individual.junction_tree import CliqueLaw, JunctionTree, build_junction_tree
from headcount.individual.possible import PassPlan, Possible
from headcount.individual.rooted_tree import RootedTree
from headcount.labels import label_tuple
from headcount.tables import dense


class _FactorModel(Model):
    """States and factors as given; how they are summed is left to subclasses."""

    def __init__(
        self,
        states: Mapping[Any, Sequence[Hashable] | int],
        factors: Mapping[Any, Any] | Iterable[tuple[Scope, Any]] = (),
    ) -> None:
        self._states = named_states(states)
        made = log_tables(factors, self._sizes)
        self._factors = tuple(
            (scope, frozen(dense(table), f"the log table over {scope!r}")) for scope, table in made
        )

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The names of the variables, in the order given."""
        return tuple(self._states)

    @property
    def states(self) -> Mapping[Variable, tuple[Hashable, ...]]:
        """The labels of every variable's states."""
        return self._states

    @property
    def factors(self) -> tuple[tuple[Scope, Array], ...]:
        """The log potentials as given."""
        return self._factors

    @cached_property
    def junction_tree(self) -> JunctionTree:
        """Min-fill junction tree of the factors' graph; no table is allocated for it."""
        return build_junction_tree(self._sizes, (scope for scope, _ in self._factors))

    @cached_property
    def _sizes(self) -> dict[Variable, int]:
        return {v: len(labels) for v, labels in self._states.items()}

    def _with(self, potentials: Mapping[Scope, Any]) -> list[tuple[Scope, Array]]:
        """The factors, and further log potentials."""
        return [*self._factors, *((scope, dense(g)) for scope, g in potentials.items())]


@final
class DiscreteModel(_FactorModel):
    """p(x) = exp(sum_k theta_k(x_{scope k}) − A(theta)) over named variables.

    Parameters
    ----------
    states
        ``{variable: labels}``, or ``{variable: number of states}`` (labels 0, 1, ...); the order of the
        variables is kept.
    factors
        ``{scope: log table}`` or a sequence of ``(scope, log table)``; one axis per variable in the scope's
        order. Scopes may repeat, be permuted or nest; −inf is a structural zero; a variable in no scope is
        uniform.
    junction_tree
        A junction tree to use instead of the min-fill one; every scope must lie in one of its cliques.
    memory_limit
        Bytes that the clique tables may take together; the limit of `headcount.memory` if None.
        `junction_tree.largest_bytes` is known before anything is allocated; beyond the limit, the first question
        that needs the tables raises `ModelError` with both numbers.

    Examples
    --------
    >>> import numpy as np
    >>> agree = np.log([[3, 1], [1, 3]])
    >>> pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    >>> ring = DiscreteModel({v: 2 for v in "abcd"}, {pair: agree for pair in pairs})
    >>> ring.junction_tree.cliques, ring.junction_tree.separators
    ((('a', 'b', 'd'), ('b', 'c', 'd')), {('b', 'd'): 1})
    >>> ring.marginal(("a", "c")).round(3)
    array([[0.368, 0.132],
           [0.132, 0.368]])
    >>> ring.junction_tree.largest_bytes
    64
    """

    _OF_THE_FACTORS: ClassVar = ("clique_law", "_rooted")
    """What is kept once it was computed from the factors; names of variables and the junction tree do not depend on their values."""

    def __init__(
        self,
        states: Mapping[Any, Sequence[Hashable] | int],
        factors: Mapping[Any, Any] | Iterable[tuple[Scope, Any]] = (),
        *,
        junction_tree: JunctionTree | None = None,
        memory_limit: int | None = None,
    ) -> None:
        super().__init__(states, factors)
        self._memory_limit = memory.checked_limit(memory_limit)
        if junction_tree is not None:
            instance(junction_tree, JunctionTree, "junction_tree", expected="a JunctionTree, or leave it out")
            if dict(junction_tree.sizes) != self._sizes:
                raise ModelError(
                    f"junction_tree is over {shown(junction_tree.sizes.items())}, the model over "
                    f"{shown(self._sizes.items())}: they must agree"
                )
            self.__dict__["junction_tree"] = junction_tree

    @property
    def log_partition(self) -> float:
        """A(theta)."""
        return self.clique_law.log_partition

    def marginal(self, scope: Sequence[Variable]) -> Array:
        """P(x_A) for any scope A, in one clique or not."""
        return self.clique_law.marginal(self.scope(scope), memory_limit=self._memory_limit)

    def tilt(self, potentials: Mapping[Scope, Any]) -> tuple[DiscreteModel, float]:
        """p'(x) ∝ p(x) exp(sum g); the junction tree is kept when every scope lies in one of its cliques."""
        made = checked_potentials(potentials, self._sizes)
        if any(self.junction_tree.covering(s) is None for s in made):
            model = DiscreteModel(self._states, self._with(made), memory_limit=self._memory_limit)
        else:  # states and factors were checked when this model was made: a fit tilts it thousands of times
            model = copy(self)
            model._factors = (*self._factors, *((s, frozen(dense(g))) for s, g in made.items()))
            for name in self._OF_THE_FACTORS:
                model.__dict__.pop(name, None)
        return model, model.log_partition - self.log_partition

    def passes(self, scopes: Sequence[Scope]) -> tuple[PassPlan, list[Array]] | None:
        """See :class:`Model`."""
        if any(self.junction_tree.covering(s) is None for s in scopes):
            return None
        return PassPlan(self.possible, tuple(scopes)), self._own_potentials

    @cached_property
    def possible(self) -> Possible:
        """See :class:`Model`; found from the factors of the model that this one is a tilt of."""
        self.junction_tree.require_memory(self._memory_limit)
        return Possible.of(self.junction_tree, [(scope, table > -np.inf) for scope, table in self._factors])

    @property
    def _own_potentials(self) -> list[Array]:
        """The factors, added up clique by clique."""
        tables = [table for _, table in self._factors]
        return PassPlan(self.possible, tuple(scope for scope, _ in self._factors)).spread(tables, keep=False)

    def sample(self, size: int, *, rng: np.random.Generator | int) -> Index:
        """Draw individuals clique by clique down the junction tree, each given its separator."""
        size, rng = sample_size(size, len(self._states)), generator(rng)
        drawn: dict[Variable, Index] = {}
        for clique, _, separator in self.junction_tree.steps:
            self._draw_clique(clique, separator, size, rng, drawn)
        return np.stack([drawn[v] for v in self.variables], axis=1)

    def _draw_clique(
        self,
        clique: int,
        separator: Scope,
        size: int,
        rng: np.random.Generator,
        drawn: dict[Variable, Index],
    ) -> None:
        domain = self.junction_tree.domains[clique]
        above = domain.part(separator)
        rest = domain.part([v for v in domain.scope if v not in separator])
        laws, _ = domain.by_rows(self.clique_law.table(clique), separator)
        given = np.zeros(size, dtype=np.intp)
        if separator:
            given = np.ravel_multi_index([drawn[v] for v in separator], above.shape)
        flat = draw_given(lambda state: laws[state], given, rng.random(size))
        for v, values in zip(rest.scope, np.unravel_index(flat, rest.shape), strict=True):
            drawn[v] = values

    def rooted(self) -> RootedTree | None:
        """The model as a rooted tree when no clique has more than two variables; None otherwise.

        The root is the first variable. Parts that are not connected hang from the root by transitions whose
        rows are all equal (independence), so a forest is a tree too.
        """
        return self._rooted

    @cached_property
    def _rooted(self) -> RootedTree | None:
        if max(len(clique) for clique in self.junction_tree.cliques) > 2:
            return None
        return tree_from_pairs(self)

    @cached_property
    def clique_law(self) -> CliqueLaw:
        """See :class:`Model`."""
        return PassPlan(self.possible, ()).beliefs(self._own_potentials)

    @classmethod
    def from_model(cls, model: Model, *, memory_limit: int | None = None) -> DiscreteModel:
        """Any model (a chain, a tree, an enumeration) as a discrete model with the same factors."""
        model = checked_model(model)
        return cls(model.states, model.factors, memory_limit=memory_limit)

    @classmethod
    def from_cpts(
        cls,
        states: Mapping[Any, Sequence[Hashable] | int],
        cpts: Mapping[Any, tuple[Sequence[Variable], Any]],
        *,
        rounding: float = ROW_TOLERANCE,
        memory_limit: int | None = None,
    ) -> DiscreteModel:
        """p(x) ∝ prod_v P(x_v | x_parents(v)), from ``cpts[v] = (parents, table)`` with axes (parents..., v).

        A row within `rounding` of summing to one is read as printed decimals and divided by its sum, so that
        A(theta) = 0; anything further off is an error.
        """
        named = named_states(states)
        return cls(
            named, _convert.factors_from_cpts(named, cpts, rounding=rounding), memory_limit=memory_limit
        )

    @classmethod
    def from_networkx(cls, graph: Any, *, memory_limit: int | None = None) -> DiscreteModel:
        """The model of a networkx graph of factors.

        A node with the attribute ``states`` is a variable. Anything with ``log_potential`` is a factor: a
        variable's node (over itself), a further node or an edge (over its attribute ``scope``, the order of
        the table's axes; an edge of a directed graph is over (from, to) unless it says otherwise).
        """
        states, factors = _convert.from_networkx(graph)
        return cls(states, factors, memory_limit=memory_limit)

    @classmethod
    def from_pgmpy(cls, model: Any, *, memory_limit: int | None = None) -> DiscreteModel:
        """The model of a pgmpy Bayesian network (its conditional tables) or Markov network (its factors)."""
        states, factors = _convert.from_pgmpy(model)
        return cls(states, factors, memory_limit=memory_limit)

    @classmethod
    def from_bif(
        cls, path: str | Path, *, rounding: float = FILE_ROUNDING, memory_limit: int | None = None
    ) -> DiscreteModel:
        """The network of a ``.bif`` or ``.bif.gz`` file, such as those of the bnlearn repository.

        Their decimals are printed with as few as seven digits, so rows may miss one by `rounding`.
        """
        states, cpts = _convert.read_bif(path)
        return cls.from_cpts(states, cpts, rounding=rounding, memory_limit=memory_limit)


def named_states(states: Mapping[Variable, Sequence[Hashable] | int]) -> dict[Variable, tuple[Hashable, ...]]:
    """Labels of every variable, checked: at least one, none twice."""
    problems: list[str] = []
    made: dict[Variable, tuple[Hashable, ...]] = {}
    expected = "{variable: labels, or their number}"
    for v, given in instance(states, Mapping, "states", expected=expected).items():
        labels = attempt(problems, _state_labels, given, v)
        if labels is not None:
            made[v] = labels
    problems += [] if made or problems else ["the model has no variables: give at least one"]
    problems += [
        f"variable {v!r} has no states: give at least one" for v, labels in made.items() if not labels
    ]
    problems += [
        f"variable {v!r} has the state {name!r} twice: labels must differ"
        for v, labels in made.items()
        for name in repeated(labels)
    ]
    raise_all(problems)
    return made


_BYTES_OF_A_LABEL = 36
"""Bytes of one integer label: a pointer and a Python integer."""


def _state_labels(given: Any, v: Variable) -> tuple[Hashable, ...]:
    """The labels of a variable's states, from labels or their number."""
    label(v, "a variable")
    if not isinstance(given, (int, np.integer)):
        return label_tuple(given, f"states[{v!r}]")
    count = whole_number(given, f"states[{v!r}]")
    memory.require(_BYTES_OF_A_LABEL * count, f"the labels of {count:,} states of {v!r}")
    return tuple(range(count))


def tree_from_pairs(model: Model) -> RootedTree:
    """A model whose cliques have one or two variables, rooted at the first of its first clique.

    P(x_v | x_u) = mu_uv / mu_u; from a state no one is ever in, the law of x_v stands in (any law would do). Parts that are not
    connected hang from the root.
    """
    tree = model.junction_tree
    place: dict[Variable, int] = {}
    parent: list[int] = []
    steps: list[Array | None] = []
    for clique, _, separator in tree.steps:
        above = separator
        for v in tree.cliques[clique]:
            if v not in place:
                parent.append(place[above[0]] if above else min(0, len(place) - 1))
                steps.append(_transition(model, above, v, tree.cliques[0][:1]) if place else None)
                place[v] = len(place)
                above = (v,)
    order = tuple(place)
    return RootedTree(order, np.array(parent, dtype=np.intp), model.marginal(order[:1]), tuple(steps))


def _transition(model: Model, above: Scope, v: Variable, root: Scope) -> Array:
    """P(x_v | x_above), or equal rows from the root where nothing is above."""
    law = model.marginal((v,))
    if not above:
        return np.tile(law, (*model.size(root), 1))
    pair = model.marginal((*above, v))
    total = pair.sum(axis=1, keepdims=True)
    return np.where(total > 0, pair / np.where(total > 0, total, 1.0), law)
