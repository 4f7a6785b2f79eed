"""Weights of log-linear potentials on any junction tree.

    p(x) ∝ exp(o(x) + Σ_k w_k F_k(x)),   F_k(x) = Σ_scopes f_k(x_scope)
    l(w) = w·E[F total] − N A(w),   ∂l/∂w = E[F total] − N E_w F,   information = N cov_w F

cov_w F is exact and takes one pass: going up the junction tree let h_C = f_C + Σ_children E[h_child | x_S]; then,
by the law of total variance applied clique after clique down from the root,

    cov F = Σ_C E cov(h_C | x_S(C)),     S(C) the separator above C (empty at the root).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headcount.individual import DiscreteModel, JunctionTree, Model
from headcount.learn._component import Array, Component, Natural

Scope = tuple[Hashable, ...]


@dataclass(frozen=True, eq=False)
class Potentials(Component):
    """w, learned from the total features E[F] and the population N: n is the vector (E[F], N).

    Attributes
    ----------
    names
        One a weight.
    states
        The labels of every variable.
    features
        ``{scope: (K, *table)}``.
    offset
        ``{scope: log table}``, added as it is; −inf is a structural zero.
    ridge, centre
        Shape (K,).
    """

    names: tuple[str, ...]
    states: Mapping[Hashable, tuple[Hashable, ...]]
    features: Mapping[Scope, Array]
    offset: Mapping[Scope, Array]
    ridge: Array
    centre: Array

    @cached_property
    def _tree(self) -> JunctionTree:
        scopes = {**self.offset, **self.features}
        tables = {s: np.zeros([len(self.states[v]) for v in s]) for s in scopes}
        return DiscreteModel(self.states, tables).junction_tree

    def model(self, x: Array) -> DiscreteModel:
        """The model with these weights."""
        factors = [*self.offset.items(), *((s, np.tensordot(x, f, axes=1)) for s, f in self.features.items())]
        return DiscreteModel(self.states, factors, junction_tree=self._tree)

    def totals(self, mean: Mapping[Scope, Array]) -> Array:
        """Σ_scopes f·n, from a table a scope."""
        return sum(
            (np.tensordot(f.reshape(len(f), -1), mean[s].ravel(), axes=1) for s, f in self.features.items()),
            start=np.zeros(len(self.names)),
        )

    def start(self) -> Array:
        """Zero: the offset alone."""
        return np.zeros(len(self.names))

    def value(self, x: Array, n: Array) -> float:
        """w·F − N A(w)."""
        return float(x @ n[:-1] - n[-1] * self.model(x).log_partition)

    def gradient(self, x: Array, n: Array) -> Array:
        """F − N E_w F."""
        model = self.model(x)
        return n[:-1] - n[-1] * self.totals({s: model.marginal(s) for s in self.features})

    def information(self, x: Array, n: Array) -> Array:
        """N cov_w F."""
        return n[-1] * feature_covariance(self.model(x), self.features, len(self.names))

    def scale(self, x: Array, n: Array) -> Array:
        """N E_w F²."""
        model = self.model(x)
        mean = self.totals({s: model.marginal(s) for s in self.features})
        return np.diagonal(self.information(x, n)) + n[-1] * mean**2

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


def feature_covariance(model: Model, features: Mapping[Scope, Array], count: int) -> Array:
    """cov F, shape (K, K), by one pass up the junction tree (see the module's docstring)."""
    tree = model.junction_tree
    held = [np.zeros((count, *model.size(c))) for c in tree.cliques]
    for scope, table in features.items():
        home = tree.covering(scope)
        if home is None:
            raise ValueError(f"the feature scope {scope!r} lies in no clique of the model")
        held[home] += _spread(table, scope, tree.cliques[home])
    above = {child: (parent, separator) for parent, child, separator in tree.edges}
    total = np.zeros((count, count))
    for child in [*(b for _, b, _ in reversed(tree.edges)), 0]:
        parent, separator = above.get(child, (None, ()))
        clique = tree.cliques[child]
        mu, h = model.marginal(clique)[None], held[child]
        out = tuple(1 + k for k, v in enumerate(clique) if v not in separator)
        below = mu.sum(axis=out, keepdims=True)
        message = (mu * h).sum(axis=out, keepdims=True) / np.where(below > 0, below, 1.0)
        flat = (h - message).reshape(count, -1)
        total += (flat * mu.ravel()) @ flat.T
        if parent is not None:
            kept = message.reshape(count, *model.size(separator))
            held[parent] = held[parent] + _spread(kept, separator, tree.cliques[parent])
    return total


def _spread(table: Array, scope: Scope, clique: Scope) -> Array:
    """A (K, *scope) table with the axes of a clique, of length one where the scope lacks the variable."""
    inside = [v for v in clique if v in scope]
    ordered = table.transpose([0, *(1 + scope.index(v) for v in inside)])
    shape = iter(ordered.shape[1:])
    return ordered.reshape(len(table), *(next(shape) if v in scope else 1 for v in clique))
