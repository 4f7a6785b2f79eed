"""`Enumeration`: the oracle. Every question is answered from the joint table itself."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np

from headcount._types import Index
from headcount.checks import generator
from headcount.errors import ModelError
from headcount.individual._discrete import checked_factors, named_states
from headcount.individual._junction_tree import JunctionTree, build_junction_tree
from headcount.individual._model import Array, Model, Scope, Variable, checked_model, draw, sample_size
from headcount.individual._rooted_tree import RootedTree
from headcount.individual._sum_product import NO_LAW, log_sum_exp
from headcount.individual._validate import checked_potentials
from headcount.tables import dense

_MOST = 10_000_000
"""Configurations an enumeration may have: a joint table of 80 MB."""


@final
class Enumeration(Model):
    """The same law as `DiscreteModel(states, factors)`, by summing over every configuration.

    Slow and obviously right: it is what the tests compare with, and a teacher's tool. Refuses more than ten
    million configurations.
    """

    def __init__(
        self,
        states: Mapping[Variable, Sequence[Hashable] | int],
        factors: Mapping[Scope, Any] | Iterable[tuple[Scope, Any]] = (),
    ) -> None:
        self._states = named_states(states)
        self._factors = checked_factors(factors, self._states)
        count = self.domain(self.variables).size
        if count > _MOST:
            raise ModelError(
                f"there are {count:,} configurations, an enumeration takes at most {_MOST:,}: use "
                "DiscreteModel"
            )

    @classmethod
    def from_model(cls, model: Model) -> Enumeration:
        """The enumeration of any other model."""
        model = checked_model(model)
        return cls(model.states, model.factors)

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The names of the variables."""
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
    def joint(self) -> Array:
        """P(x), one axis per variable."""
        return np.exp(self._log_joint - self.log_partition)

    @cached_property
    def log_partition(self) -> float:
        """A(theta) = log sum_x exp(sum theta)."""
        total = float(log_sum_exp(self._log_joint))
        if total == -np.inf:
            raise ModelError(NO_LAW)
        return total

    @cached_property
    def junction_tree(self) -> JunctionTree:
        """The junction tree of the factors' graph."""
        return build_junction_tree(self._sizes, (scope for scope, _ in self._factors))

    def marginal(self, scope: Sequence[Variable]) -> Array:
        """P(x_A) by summing the joint table."""
        return np.array(self.domain(self.variables).project(self.joint, self.scope(scope)))

    def tilt(self, potentials: Mapping[Scope, Any]) -> tuple[Enumeration, float]:
        """P' ∝ p exp(sum g), and log E exp(sum g) from the joint table."""
        made = checked_potentials(potentials, self._sizes)
        tilted = Enumeration(self._states, [*self._factors, *((s, dense(g)) for s, g in made.items())])
        return tilted, tilted.log_partition - self.log_partition

    def sample(self, size: int, *, rng: np.random.Generator | int) -> Index:
        """Draw configurations from the joint table."""
        flat = draw(self.joint.ravel(), generator(rng).random(sample_size(size, len(self._states))))
        return np.stack(np.unravel_index(flat, self.joint.shape), axis=1)

    def rooted(self) -> RootedTree | None:
        """None: the oracle takes no fast path."""
        return None

    @cached_property
    def _sizes(self) -> dict[Variable, int]:
        return {v: len(labels) for v, labels in self._states.items()}

    @cached_property
    def _log_joint(self) -> Array:
        domain = self.domain(self.variables)
        total = np.zeros(domain.shape)
        for scope, theta in self._factors:
            total += domain.expand(theta, scope)
        return total
