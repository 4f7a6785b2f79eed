"""Weights of log-linear transitions as a component: a weighted multinomial logit, concave."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headcount.individual import LogLinearTransitions
from headcount.learn._component import Array, Component, Natural


@dataclass(frozen=True, eq=False)
class Weights(Component):
    """w of P_t(i, j) ∝ exp(w·f_t(i, j)), learned from flows n_t(i, j).

    l(w) = Σ n log P, log prior = −½ Σ ridge (w − centre)².

    Attributes
    ----------
    names
        One a weight.
    transitions
        Features of the free weights; the fixed ones are part of its offset.
    ridge, centre
        Shape (K,).
    """

    names: tuple[str, ...]
    transitions: LogLinearTransitions
    ridge: Array
    centre: Array

    def start(self) -> Array:
        """Zero: every allowed move equally likely, but for what is fixed."""
        return np.zeros(len(self.names))

    def value(self, x: Array, n: Array) -> float:
        """Σ n log P."""
        return self.transitions.value(x, n)

    def gradient(self, x: Array, n: Array) -> Array:
        """Σ n f − Σ n(i) E_i f."""
        return self.transitions.gradient(x, n)

    def information(self, x: Array, n: Array) -> Array:
        """Σ n(i) cov_i f."""
        return -self.transitions.hessian(x, n)

    def scale(self, x: Array, n: Array) -> Array:
        """Σ n(i) E_i f²."""
        p = self.transitions.transitions(x).reshape(-1, *n.shape[-2:])
        moved = n.reshape(-1, *n.shape[-2:]).sum(axis=2)
        moved = moved.sum(axis=0, keepdims=True) if len(p) == 1 else moved
        return np.einsum("ti,tij,tkij->k", moved, p, self.transitions.features**2)

    def natural(self, x: Array) -> Natural:
        """The weights are what people call them."""
        return Natural(self.names, x, np.eye(len(x)), ("identity",) * len(x))

    def log_prior(self, x: Array) -> float:
        """−½ Σ ridge (w − centre)²."""
        return -0.5 * float(self.ridge @ (x - self.centre) ** 2)

    def prior_gradient(self, x: Array) -> Array:
        """−ridge (w − centre)."""
        return -self.ridge * (x - self.centre)

    def prior_information(self, x: Array) -> Array:
        """diag(ridge)."""
        del x
        return np.diag(self.ridge)

    def alike(self, other: Component) -> bool:
        """The same features."""
        return isinstance(other, Weights) and other.transitions is self.transitions
