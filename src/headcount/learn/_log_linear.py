"""Log-linear models on any junction tree: weights of features of the variables in a scope."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from headcount._types import Array, Index, Scope
from headcount.checks import attempt, finite_number, instance
from headcount.individual import DiscreteModel, JunctionTree, Model, ModelError
from headcount.learn._components import Ridge
from headcount.learn._family import Family, Tables
from headcount.learn._files import saved
from headcount.learn._parametrisation import Parametrisation, fixed_problems
from headcount.observe import Problem
from headcount.population import Company
from headcount.tables import Domain, dense

MOST_DENSE = 300
"""Weights of a log-linear model up to which their K × K information is made. With K = 2331 a step without it takes 0.1 s, and took
several seconds with it; where the two cost the same was not measured."""
LEAST_KNOWN = 0.01
"""Information, in individuals, that every one of many weights is credited with when steps are scaled. Weights of configurations that are
expected to have fewer change no count; divided by their true information, errors of the E-step (10⁻⁸ N) sent them off by 10²⁰."""


@saved
@dataclass(frozen=True, eq=False)
class LogLinear(Parametrisation):
    """p(x) ∝ exp(o(x) + Σ_k w_k Σ_scopes f_k(x_scope)): weights of features on any junction tree.

    Parameters
    ----------
    features
        ``{name: {scope: table}}``: what each weight multiplies; one weight may act on several scopes.
    offset
        ``{scope: log table}``, added as it is; −inf is a structural zero.
    fixed
        ``{name: weight}`` of weights that are not learned.
    ridge
        Strength of the prior −½ ridge w² on every weight.

    Examples
    --------
    >>> import numpy as np
    >>> from headcount.individual import DiscreteModel
    >>> agree = LogLinear({"agree": {("a", "b"): np.eye(2), ("b", "c"): np.eye(2)}})
    >>> family = agree.bind(DiscreteModel({"a": 2, "b": 2, "c": 2}))
    >>> family.model(np.array([1.0])).marginal(("a", "b")).round(3)
    array([[0.366, 0.134],
           [0.134, 0.366]])
    """

    features: Mapping[str, Mapping[Any, Any]]
    offset: Mapping[Any, Any] = field(default_factory=dict, kw_only=True)
    fixed: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    ridge: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        instance(self.features, Mapping, "features", expected="a mapping of names to tables by scope")
        problems = fixed_problems(self.fixed, tuple(self.features))
        if not problems and not set(self.features) - set(self.fixed):
            problems.append("there is no weight to learn: give a feature that is not fixed")
        attempt(problems, finite_number, self.ridge, "ridge", least=0.0, expected="a number ≥ 0")
        if problems:
            raise ModelError(problems)

    @classmethod
    def saturated(
        cls, model: Model, scopes: Sequence[Sequence[Hashable]] | None = None, *, ridge: float = 0.0
    ) -> LogLinear:
        """One weight per configuration without a first state: all interactions within the scopes.

        Every model on these cliques is of this form (corner constraints); what has probability zero under
        `model` stays impossible.
        """
        cliques = (
            [model.scope(s) for s in scopes] if scopes is not None else list(model.junction_tree.cliques)
        )
        subsets = dict.fromkeys(
            scope
            for clique in cliques
            for size in range(1, len(clique) + 1)
            for scope in itertools.combinations(clique, size)
        )
        features: dict[str, dict[Scope, Array]] = {}
        for scope in subsets:
            features |= {name: {scope: table} for name, table in _corners(model, scope)}
        offset = {c: np.where(model.marginal(c) > 0, 0.0, -np.inf) for c in cliques}
        return cls(features, offset=offset, ridge=ridge)

    def check(self, problem: Problem) -> list[str]:
        """See `Parametrisation`; individuals that move together have no rows of transitions to vary."""
        found = super().check(problem)
        if isinstance(problem.dispersion, Company):
            found.append(
                "the rows of a LogLinear model do not vary one by one: give Flocks(c), or learn a LogisticChain or a TabularChain"
            )
        return found

    def bind(self, model: Model) -> Family:
        """See `Parametrisation`."""
        free = [n for n in self.features if n not in self.fixed]
        place = {name: k for k, name in enumerate(free)}
        stacked: dict[Scope, dict[int, Array]] = {}
        offset: dict[Scope, Array] = {}
        problems: list[str] = []

        def table(scope: Any, values: Any, what: str) -> tuple[Scope, Array]:
            key = model.scope(scope if isinstance(scope, tuple) else (scope,))
            made = np.asarray(values, dtype=float)
            if made.shape != model.size(key):
                problems.append(f"{what} on {key!r} has the shape {made.shape}, expected {model.size(key)}")
                made = np.zeros(model.size(key))
            return key, made

        for scope, values in self.offset.items():
            key, made = table(scope, values, "the offset")
            offset[key] = offset.get(key, 0.0) + made
        for name, parts in self.features.items():
            for scope, values in parts.items():
                key, made = table(scope, values, f"feature {name!r}")
                if not np.isfinite(made).all():
                    problems.append(f"feature {name!r} on {key!r} is not finite: put −inf in the offset")
                if name in self.fixed:
                    offset[key] = offset.get(key, 0.0) + self.fixed[name] * made
                else:
                    held = stacked.setdefault(key, {})
                    held[place[name]] = held.get(place[name], 0.0) + made
        if problems:
            raise ModelError(problems)
        ridge, centre = np.full(len(free), float(self.ridge)), np.zeros(len(free))
        tables = {s: (np.array(list(h)), np.stack(list(h.values()))) for s, h in stacked.items()}
        potentials = Potentials(tuple(free), ridge, centre, {}, dict(model.states), tables, offset)
        return Family(model, (potentials,))


def _corners(model: Model, scope: Scope) -> Iterator[tuple[str, Array]]:
    """The possible configurations of a scope without a first state, each with its name and its indicator."""
    possible = model.marginal(scope) > 0
    for index in itertools.product(*(range(1, k) for k in model.size(scope))):
        if possible[index]:
            states = (f"{v}={model.states[v][i]}" for v, i in zip(scope, index, strict=True))
            table = np.zeros(model.size(scope))
            table[index] = 1.0
            yield ", ".join(states), table


@dataclass(frozen=True, eq=False)
class Potentials(Ridge):
    """w of p(x) ∝ exp(o(x) + Σ_k w_k F_k(x)), F_k(x) = Σ_scopes f_k(x_scope), on any junction tree.

    l(w) = w·E[F total] − N A(w),   ∂l/∂w = E[F total] − N E_w F,   information = N cov_w F

    n is the vector (E[F total], N).

    Attributes
    ----------
    states
        The labels of every variable.
    features
        ``{scope: (K, *table)}``.
    offset
        ``{scope: log table}``, added as it is; −inf is a structural zero.
    """

    states: Mapping[Any, tuple[Any, ...]]
    features: Mapping[Scope, tuple[Index, Array]]
    """By scope: which weights act on it, and their tables, shape (weights, …)."""
    offset: Mapping[Scope, Array]

    def statistic(self, tables: Tables, units: Tables, problem: Problem | None) -> Array:
        """Total features and N."""
        del tables, problem
        found = {s: np.asarray(dense(units(s)), dtype=float) for s in self.features}
        population = float(next(iter(found.values())).sum())
        return np.append(self.totals(found), population)

    def in_model(self, x: Array, model: Model) -> DiscreteModel:
        """The log-linear model, whatever the other one was."""
        del model
        return self.model(x)

    @cached_property
    def _tree(self) -> JunctionTree:
        scopes = {**self.offset, **self.features}
        tables = {s: np.zeros([len(self.states[v]) for v in s]) for s in scopes}
        return DiscreteModel(self.states, tables).junction_tree

    @cached_property
    def _last(self) -> dict[bytes, DiscreteModel]:
        return {}

    def model(self, x: Array) -> DiscreteModel:
        """The model with these weights; that of the last ones is kept, because value, gradient and curvature ask for it in turn."""
        key = x.tobytes()
        if key not in self._last:
            parts = (
                (s, (x[k] @ f).reshape(self.features[s][1].shape[1:])) for s, (k, f) in self._rows.items()
            )
            self._last.clear()
            self._last[key] = DiscreteModel(
                self.states, [*self.offset.items(), *parts], junction_tree=self._tree
            )
        return self._last[key]

    def totals(self, mean: Mapping[Scope, Array], power: int = 1) -> Array:
        """Σ_scopes f·n, from one table per scope; with ``power``, of f to that power."""
        total = np.zeros(len(self.names))
        for scope, (k, f) in self._rows.items():
            total[k] += (f if power == 1 else f**power) @ mean[scope].ravel()
        return total

    @cached_property
    def _rows(self) -> dict[Scope, tuple[Index, Any]]:
        """The features with their tables as rows: as sparse matrices, because most tables are those of one configuration."""
        return {s: (k, sparse.csr_array(f.reshape(len(f), -1))) for s, (k, f) in self.features.items()}

    def value(self, x: Array, n: Array) -> float:
        """w·F − N A(w)."""
        return float(x @ n[:-1] - n[-1] * self.model(x).log_partition)

    def gradient(self, x: Array, n: Array) -> Array:
        """F − N E_w F."""
        return n[:-1] - n[-1] * self._mean(self.model(x))

    def information(self, x: Array, n: Array) -> Array:
        """N cov_w F."""
        count = len(self.names)
        whole = {}
        for scope, (k, f) in self.features.items():
            whole[scope] = np.zeros((count, *f.shape[1:]))
            whole[scope][k] = f
        return n[-1] * feature_covariance(self.model(x), whole, count)

    def closed_solve(self, x: Array, n: Array, v: Array) -> Array | None:
        """For many weights, by the diagonal N Σ_scopes var_w f alone: the search's memory learns the rest."""
        if len(self.names) <= MOST_DENSE:
            return None
        model = self.model(x)
        means = {s: model.marginal(s) for s in self.features}
        square, spread = self.totals(means, power=2), np.zeros(len(v))
        for scope, (k, f) in self._rows.items():
            spread[k] += (f @ means[scope].ravel()) ** 2
        return v / (n[-1] * (square - spread) + self.ridge + LEAST_KNOWN)

    def scale(self, x: Array, n: Array) -> Array:
        """N E_w F²."""
        return np.diagonal(self.information(x, n)) + n[-1] * self._mean(self.model(x)) ** 2

    def reach(self, x: Array) -> Array:
        """|w| times the range of f."""
        widest = np.zeros(len(x))
        for k, f in self.features.values():
            widest[k] = np.maximum(widest[k], np.ptp(f.reshape(len(f), -1), axis=1))
        return np.abs(x) * widest

    def _mean(self, model: Model) -> Array:
        return self.totals({s: model.marginal(s) for s in self.features})


def feature_covariance(model: Model, features: Mapping[Scope, Array], count: int) -> Array:
    """cov F, shape (K, K), by one pass up the junction tree.

    Going up let h_C = f_C + Σ_children E[h_child | x_S]; by the law of total variance, clique after clique from the root,

        cov F = Σ_C E cov(h_C | x_S(C)),     S(C) the separator above C (empty at the root).
    """
    tree = model.junction_tree
    domains = [Domain(c, model.size(c)) for c in tree.cliques]
    held = [np.zeros((count, *d.shape)) for d in domains]
    for scope, table in features.items():
        home = tree.covering(scope)
        if home is None:
            raise ValueError(f"the feature scope {scope!r} lies in no clique of the model")
        held[home] += domains[home].expand(table, scope)
    above = {child: (parent, separator) for parent, child, separator in tree.edges}
    total = np.zeros((count, count))
    for child in [*(b for _, b, _ in reversed(tree.edges)), 0]:
        parent, separator = above.get(child, (None, ()))
        domain = domains[child]
        mu, h = model.marginal(domain.scope), held[child]
        below = domain.project(mu, separator)
        message = domain.project(mu * h, separator) / np.where(below > 0, below, 1.0)
        flat = domain.flat(h - domain.expand(message, separator))
        total += (flat * mu.ravel()) @ flat.T
        if parent is not None:
            held[parent] = held[parent] + domains[parent].expand(message, separator)
    return total
