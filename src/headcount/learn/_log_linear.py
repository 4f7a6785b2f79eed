"""`LogLinear`: weights of features on any junction tree."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headcount.individual import Model, ModelError
from headcount.learn._component import Array
from headcount.learn._family import PotentialFamily, Scope
from headcount.learn._parametrisation import Parametrisation
from headcount.learn._potentials import Potentials


@dataclass(frozen=True, eq=False)
class LogLinear(Parametrisation):
    """p(x) ∝ exp(o(x) + Σ_k w_k Σ_scopes f_k(x_scope)).

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
        problems = [
            f"fixed names {n!r}: the features are {tuple(self.features)}"
            for n in self.fixed
            if n not in self.features
        ]
        if not set(self.features) - set(self.fixed):
            problems.append("there is no weight to learn: give a feature that is not fixed")
        if not (np.isfinite(self.ridge) and self.ridge >= 0):
            problems.append(f"ridge is {self.ridge!r}: give a number ≥ 0")
        if problems:
            raise ModelError(problems)

    @classmethod
    def saturated(
        cls, model: Model, scopes: Sequence[Sequence[Hashable]] | None = None, *, ridge: float = 0.0
    ) -> LogLinear:
        """One weight for every configuration without a first state: all interactions within the scopes.

        Every model on these cliques is of this form (corner constraints); what has probability zero under
        `model` stays impossible.
        """
        cliques = (
            [model.scope(s) for s in scopes] if scopes is not None else list(model.junction_tree.cliques)
        )
        features: dict[str, dict[Scope, Array]] = {}
        for clique in cliques:
            for size in range(1, len(clique) + 1):
                for scope in itertools.combinations(clique, size):
                    for index in itertools.product(*(range(1, k) for k in model.size(scope))):
                        states = (f"{v}={model.states[v][i]}" for v, i in zip(scope, index, strict=True))
                        table = np.zeros(model.size(scope))
                        table[index] = 1.0
                        if model.marginal(scope)[index] > 0:
                            features[", ".join(states)] = {scope: table}
        offset = {}
        for clique in cliques:
            possible = model.marginal(clique) > 0
            offset[clique] = np.where(possible, 0.0, -np.inf)
        return cls(features, offset=offset, ridge=ridge)

    def bind(self, model: Model) -> PotentialFamily:
        """See `Parametrisation`."""
        free = [n for n in self.features if n not in self.fixed]
        stacked: dict[Scope, Array] = {}
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
                    held = stacked.setdefault(key, np.zeros((len(free), *made.shape)))
                    held[free.index(name)] += made
        if problems:
            raise ModelError(problems)
        ridge = np.full(len(free), float(self.ridge))
        return PotentialFamily(
            Potentials(tuple(free), dict(model.states), stacked, offset, ridge, np.zeros(len(free)))
        )
