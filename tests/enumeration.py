"""The oracle of the tests of models: the joint table of all variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import logsumexp

from headcount._types import Index
from headcount.checks import generator
from headcount.individual import Model, ModelError, RootedTree
from headcount.individual._discrete import _FactorModel
from headcount.individual._model import Array, Scope, Variable, checked_potentials, draw, sample_size
from headcount.individual.junction_tree import NO_LAW


class Enumeration(_FactorModel):
    """The same law as `DiscreteModel(states, factors)`, by summing over every configuration.

    Slow and obviously right: it is what the tests compare with.
    """

    @classmethod
    def from_model(cls, model: Model) -> Enumeration:
        """The enumeration of any other model."""
        return cls(model.states, model.factors)

    @cached_property
    def joint(self) -> Array:
        """P(x), one axis per variable."""
        return np.exp(self._log_joint - self.log_partition)

    @cached_property
    def log_partition(self) -> float:
        """A(theta) = log sum_x exp(sum theta)."""
        total = float(logsumexp(self._log_joint))
        if total == -np.inf:
            raise ModelError(NO_LAW)
        return total

    def marginal(self, scope: Sequence[Variable]) -> Array:
        """P(x_A) by summing the joint table."""
        return np.array(self.domain(self.variables).project(self.joint, self.scope(scope)))

    def tilt(self, potentials: Mapping[Scope, Any]) -> tuple[Enumeration, float]:
        """P' ∝ p exp(sum g), and log E exp(sum g) from the joint table."""
        made = checked_potentials(potentials, self._sizes)
        tilted = Enumeration(self._states, self._with(made))
        return tilted, tilted.log_partition - self.log_partition

    def sample(self, size: int, *, rng: np.random.Generator | int) -> Index:
        """Draw configurations from the joint table."""
        flat = draw(self.joint.ravel(), generator(rng).random(sample_size(size, len(self._states))))
        return np.stack(np.unravel_index(flat, self.joint.shape), axis=1)

    def rooted(self) -> RootedTree | None:
        """None: the oracle takes no fast path."""
        return None

    @cached_property
    def _log_joint(self) -> Array:
        domain = self.domain(self.variables)
        total = np.zeros(domain.shape)
        for scope, theta in self._factors:
            total += domain.expand(theta, scope)
        return total
