"""Log-linear models on any junction tree: weights of features of the variables in a scope."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from scipy import sparse

from headcount._types import Array, Index, Scope
from headcount.checks import attempt, finite_number, instance
from headcount.errors import raise_all
from headcount.individual import DiscreteModel, JunctionTree, Model
from headcount.learn._components import FIRST_RIDGE, RIDGE_RANGE, Ridge
from headcount.learn._family import Component, Family, Parametrisation, Tables, fixed_problems
from headcount.observe import Observation, Problem
from headcount.tables import Domain, dense

MOST_DENSE = 300
"""Weights of a log-linear model up to which their K × K information is made. With K = 2331 a step without it takes 0.1 s, and took
several seconds with it; where the two cost the same was not measured."""
LEAST_KNOWN = 0.01
"""Information, in individuals, that every one of many weights is credited with when steps are scaled. Weights of configurations that are
expected to have fewer change no count; divided by their true information, errors of the E-step (10⁻⁸ N) sent them off by 10²⁰."""


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
        Strength of the prior −½ ridge w² on every weight; ``"learned"``: one for all weights, from the data (features should then be of
        one scale).

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
    ridge: float | str | None = field(default=0.0, kw_only=True)
    corners: bool = field(default=False, kw_only=True, repr=False)
    """Whether the features are those of `saturated`."""

    def __post_init__(self) -> None:
        instance(self.features, Mapping, "features", expected="a mapping of names to tables by scope")
        problems = fixed_problems(self.fixed, tuple(self.features))
        if not problems and not set(self.features) - set(self.fixed):
            problems.append("there is no weight to learn: give a feature that is not fixed")
        if not (self.ridge is None or (isinstance(self.ridge, str) and self.ridge == "learned")):
            expected = 'a number ≥ 0, or "learned"'
            attempt(problems, finite_number, self.ridge, "ridge", least=0.0, expected=expected)
        raise_all(problems)

    @classmethod
    def saturated(
        cls,
        model: Model,
        scopes: Sequence[Sequence[Hashable]] | None = None,
        *,
        ridge: float | str | None = None,
    ) -> LogLinear:
        """One weight per configuration without a first state: all interactions within the scopes.

        Every model on these cliques is of this form (corner constraints); what has probability zero under
        `model` stays impossible.

        ``ridge``: a number, as for `LogLinear`; ``"learned"``: the effects of every scope (main effects, two-way interactions and so on,
        averaged over the other variables, whichever state is the first) are drawn towards zero, with one strength per scope
        (`Fit.shrinkage`). None: learned by `fit`, where counts are hidden; none where all counts are known (`fit_complete`).
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
        return cls(features, offset=offset, ridge=ridge, corners=True)

    def for_problem(self, problem: Problem) -> LogLinear:
        """See `Parametrisation`: counts are hidden, so that a prior may be learned."""
        del problem
        return replace(self, ridge="learned") if self.ridge is None else self

    def check(self, problem: Problem) -> list[str]:
        """See `Parametrisation`; individuals that move together have no rows of transitions to vary."""
        found = super().check(problem)
        if problem.together.of_steps:
            found.append(
                "the rows of a LogLinear model do not vary one by one: give Flocks(c), or learn a LogisticChain or a TabularChain"
            )
        return found

    def bind(self, model: Model) -> Family:
        """See `Parametrisation`."""
        free = [n for n in self.features if n not in self.fixed]
        stacked, offset = self._tables(model, free)
        rows = {s: (np.array(list(h)), _sparse_rows(list(h.values()))) for s, h in stacked.items()}
        domains = tuple(Domain(s, model.size(s)) for s in rows)
        return Family(
            model, (self._potentials(model, tuple(free), LogLinearFeatures(domains, rows), offset),)
        )

    def _tables(
        self, model: Model, free: Sequence[str]
    ) -> tuple[dict[Scope, dict[int, Array]], dict[Scope, Array]]:
        """By scope: the tables of the free weights, by their place, and the offset with the fixed weights' part."""
        place = {name: k for k, name in enumerate(free)}
        stacked: dict[Scope, dict[int, Array]] = {}
        offset: dict[Scope, Array] = {}
        problems: list[str] = []

        @cache
        def place_of(scope: Any) -> tuple[Scope, tuple[int, ...]]:
            key = model.scope(scope if isinstance(scope, tuple) else (scope,))
            return key, model.size(key)

        for scope, values in self.offset.items():
            key, made = _on_scope(*place_of(scope), values, "the offset", problems)
            offset[key] = offset.get(key, 0.0) + made
        for name, parts in self.features.items():
            for scope, values in parts.items():
                key, made = _on_scope(*place_of(scope), values, f"feature {name!r}", problems)
                if not np.isfinite(made).all():
                    problems.append(f"feature {name!r} on {key!r} is not finite: put −inf in the offset")
                if name in self.fixed:
                    offset[key] = offset.get(key, 0.0) + self.fixed[name] * made
                else:
                    held = stacked.setdefault(key, {})
                    held[place[name]] = held.get(place[name], 0.0) + made
        raise_all(problems)
        return stacked, offset

    def _potentials(
        self,
        model: Model,
        names: tuple[str, ...],
        features: LogLinearFeatures,
        offset: dict[Scope, Array],
    ) -> Potentials:
        """The component, with its prior as it is before anything is learned."""
        corners, learned = self.corners and not self.fixed, self.ridge == "learned"
        given = 0.0 if self.ridge is None or learned else float(self.ridge)
        one = learned and not corners
        zeros = {s: np.zeros(model.size(s)) for s in {**offset, **features.rows}}
        return Potentials(
            names,
            np.full(len(names), FIRST_RIDGE if one else given),
            np.zeros(len(names)),
            {"all weights": np.arange(len(names))} if one else {},
            dict(model.states),
            features,
            offset,
            DiscreteModel(model.states, zeros).junction_tree,
            corners,
            np.full(len(features.rows), FIRST_RIDGE) if learned and corners else np.zeros(0),
        )


def _sparse_rows(tables: Sequence[Array]) -> sparse.csr_array:
    """Tables of one shape as the rows of a sparse matrix: most are those of one configuration."""
    rows = [table.ravel() for table in tables]
    entries = [np.flatnonzero(row) for row in rows]
    values = [row[where] for row, where in zip(rows, entries, strict=True)]
    ends = np.concatenate([[0], np.cumsum([len(where) for where in entries])])
    return sparse.csr_array(
        (np.concatenate(values), np.concatenate(entries), ends), shape=(len(rows), rows[0].size)
    )


def _on_scope(
    key: Scope, shape: tuple[int, ...], values: Any, what: str, problems: list[str]
) -> tuple[Scope, Array]:
    """A table's scope and values; zeros, and a problem, where the shape is another than the scope's."""
    made = np.asarray(values, dtype=float)
    if made.shape != shape:
        problems.append(f"{what} on {key!r} has the shape {made.shape}, expected {shape}")
        made = np.zeros(shape)
    return key, made


def _corners(model: Model, scope: Scope) -> Iterator[tuple[str, Array]]:
    """The possible configurations of a scope without a first state, each with its name and its indicator."""
    possible = model.marginal(scope) > 0
    names = [[f"{v}={state}" for state in model.states[v]] for v in scope]
    for index in itertools.product(*(range(1, k) for k in possible.shape)):
        if possible[index]:
            table = np.zeros(possible.shape)
            table[index] = 1.0
            yield ", ".join(own[i] for own, i in zip(names, index, strict=True)), table


@dataclass(frozen=True, eq=False)
class LogLinearFeatures:
    """By scope: which weights act on it, and their tables as rows, a sparse matrix (weights, entries of the table).

    Attributes
    ----------
    domains
        The names and sizes of the tables.
    rows
        ``{scope: (weights, rows)}``, in the domains' order.
    home
        The same without what features of a larger scope do to a smaller one, where they do; None where none does.
    """

    domains: tuple[Domain, ...]
    rows: Mapping[Scope, tuple[Index, Any]]
    home: Mapping[Scope, tuple[Index, Any]] | None = None

    @property
    def own(self) -> Mapping[Scope, tuple[Index, Any]]:
        """By scope, the weights that belong to it, and their rows."""
        return self.rows if self.home is None else self.home

    @cached_property
    def count(self) -> int:
        """The number of weights, K."""
        return 1 + max(int(k.max()) for k, _ in self.rows.values())

    @cached_property
    def ends(self) -> list[int]:
        """Where every table begins and ends among all entries, one table after the other."""
        return [0, *np.cumsum([d.size for d in self.domains]).tolist()]

    @cached_property
    def matrix(self) -> sparse.csr_array:
        """All rows side by side, shape (K, entries)."""
        parts = [(k, f.tocoo(), at) for (k, f), at in zip(self.rows.values(), self.ends, strict=False)]
        weights = np.concatenate([k[f.coords[0]] for k, f, _ in parts])
        entries = np.concatenate([f.coords[1] + at for _, f, at in parts])
        values = np.concatenate([f.data for _, f, _ in parts])
        return sparse.csr_array((values, (weights, entries)), shape=(self.count, self.ends[-1]))

    @cached_property
    def transposed(self) -> sparse.csr_array:
        """Its transpose, shape (entries, K)."""
        return sparse.csr_array(self.matrix.T)

    @cached_property
    def squares(self) -> dict[Scope, Any]:
        """The own rows with their entries squared."""
        return {s: f.power(2) for s, (_, f) in self.own.items()}

    def split(self, flat: Array) -> dict[Scope, Array]:
        """The tables, from all entries one after the other; leading axes are kept."""
        places = zip(self.domains, self.ends, self.ends[1:], strict=False)
        return {d.scope: d.table(flat[..., a:b]) for d, a, b in places}

    @cached_property
    def _centring(self) -> tuple[sparse.csr_array, sparse.csr_array, sparse.csr_array, sparse.csr_array]:
        """M and U of e = θ + U M θ, and their transposes.

        M has the means of every table T over the variables outside R ⊊ T, and e_S = Σ_{T ⊇ S, R ⊆ S} ± (that mean), minus where S ∖ R has
        an odd number of variables.
        """
        at: dict[tuple[Scope, Scope], int] = {}
        entries, means, values, rows = [], [], [], 0
        for domain, start in zip(self.domains, self.ends, strict=False):
            for part in _subsets(domain.scope):
                if len(part) < len(domain.scope):
                    at[domain.scope, part] = rows
                    entries.append(start + np.arange(domain.size))
                    means.append(rows + domain.positions(part))
                    size = domain.part(part).size
                    values.append(np.full(domain.size, size / domain.size))
                    rows += size
        mean = _csr(values, means, entries, (rows, self.ends[-1]))
        values, means, entries = [], [], []
        for domain, start in zip(self.domains, self.ends, strict=False):
            for part in _subsets(domain.scope):
                sign = (-1.0) ** (len(domain.scope) - len(part))
                for other in self.domains:
                    if set(domain.scope) <= set(other.scope) and (other.scope, part) in at:
                        entries.append(start + np.arange(domain.size))
                        means.append(at[other.scope, part] + domain.positions(part))
                        values.append(np.full(domain.size, sign))
        spread = _csr(values, entries, means, (self.ends[-1], rows))
        return mean, spread, sparse.csr_array(mean.T), sparse.csr_array(spread.T)

    def effects(self, flat: Array) -> Array:
        """e of all scopes one after the other, from θ so; leading axes are kept."""
        mean, spread, _, _ = self._centring
        return flat + (spread @ (mean @ flat.T)).T

    def effects_back(self, flat: Array) -> Array:
        """The adjoint of `effects`."""
        _, _, mean, spread = self._centring
        return flat + (mean @ (spread @ flat.T)).T


def _subsets(scope: Scope) -> Iterator[Scope]:
    for size in range(len(scope) + 1):
        yield from itertools.combinations(scope, size)


def _csr(
    values: Sequence[Array], rows: Sequence[Index], columns: Sequence[Index], shape: tuple[int, int]
) -> sparse.csr_array:
    parts = [np.concatenate([np.zeros(0, np.intp), *found]) for found in (rows, columns)]
    return sparse.csr_array((np.concatenate([np.zeros(0), *values]), tuple(parts)), shape=shape)


@dataclass(frozen=True, eq=False)
class Potentials(Ridge):
    """w of p(x) ∝ exp(o(x) + Σ_k w_k F_k(x)), F_k(x) = Σ_scopes f_k(x_scope), on any junction tree.

    l(w) = w·E[F total] − N A(w),   ∂l/∂w = E[F total] − N E_w F,   information = N cov_w F

    n is the vector (E[F total], N, the information about each weight alone in the data).

    With ``table_ridge`` there is a prior on the effects of every scope S of the tables θ_T = Σ_k w_k f_k,

        e_S = Σ_{T ⊇ S} (mean of θ_T over T ∖ S, centred along every axis),     log prior = −½ Σ_S ridge_S |e_S|²

    which depend on the law alone, and not on the state that a weight is reckoned from.

    Attributes
    ----------
    states
        The labels of every variable.
    features
        ``{scope: (weights, their tables as rows)}``.
    offset
        ``{scope: log table}``, added as it is; −inf is a structural zero.
    tree
        The junction tree of every model of the family.
    corners
        Whether the weights are those of all configurations without a first state.
    table_ridge
        One per scope of the features, learned; empty where there is no such prior.
    """

    states: Mapping[Any, tuple[Any, ...]]
    features: LogLinearFeatures
    offset: Mapping[Scope, Array]
    tree: JunctionTree
    corners: bool = False
    table_ridge: Array = field(default_factory=lambda: np.zeros(0))

    def statistic(self, tables: Tables, units: Tables, problem: Problem | None) -> Array:
        """Total features, N, and what the data say of every weight alone."""
        found = {s: np.asarray(dense(units(s)), dtype=float) for s in self.features.rows}
        population = float(next(iter(found.values())).sum())
        seen = () if problem is None else problem.sites
        margins = [s.margin(np.asarray(dense(tables(s.scope))).ravel()) for s in seen]
        noises = [] if problem is None else noise_variances(problem, margins)
        return np.concatenate([self.totals(found), [population], self.seen(found, noises)])

    def seen(self, counts: Mapping[Scope, Array], noises: Sequence[tuple[Domain, Array]] = ()) -> Array:
        """The information about each weight alone, v²/(v + V), shape (K,).

        v is the variance of the feature's total (and the slope of its expectation), V the noise's variance of that total in the observed
        tables that hold the feature's. Where there is none, v: the information of complete counts.
        """
        total = np.zeros(len(self.names))
        for scope, (k, f) in self.features.own.items():
            n, squares = counts[scope].ravel(), self.features.squares[scope]
            v = np.maximum(squares @ n - (f @ n) ** 2 / max(n.sum(), 1e-300), 0.0)
            precision = [
                1.0 / np.maximum(squares @ domain.project(table, scope).ravel(), 1e-300)
                for domain, table in noises
                if set(scope) <= set(domain.scope)
            ]
            seen = v * sum(precision)
            total[k] += v * seen / (1.0 + seen) if precision else v
        return total

    def alike(self, other: Component) -> bool:
        """See `Component`: the same features and offsets on the same states."""
        if not isinstance(other, Potentials) or self.names != other.names or self.states != other.states:
            return False
        pairs = [(self.offset, other.offset), (self._dense, other._dense)]
        return all(a.keys() == b.keys() and all(np.array_equal(a[s], b[s]) for s in a) for a, b in pairs)

    def in_model(self, x: Array, model: Model) -> DiscreteModel:
        """The log-linear model, whatever the other one was."""
        del model
        return self.model(x)

    @cached_property
    def _last(self) -> dict[bytes, DiscreteModel]:
        return {}

    def model(self, x: Array) -> DiscreteModel:
        """The model with these weights; that of the last ones is kept, because value, gradient and curvature ask for it in turn."""
        key = x.tobytes()
        if key not in self._last:
            self._last.clear()
            self._last[key] = DiscreteModel(
                self.states, [*self.offset.items(), *self.tables(x).items()], junction_tree=self.tree
            )
        return self._last[key]

    def domain(self, scope: Scope) -> Domain:
        """The names and sizes of a table over these variables."""
        return self.tree.domain(scope)

    def tables(self, x: Array) -> dict[Scope, Array]:
        """θ: Σ_k w_k f_k, by scope; leading axes are kept."""
        return self.features.split((self.features.transposed @ x.T).T)

    def totals(self, mean: Mapping[Scope, Array]) -> Array:
        """Σ_scopes f·n, from one table per scope; leading axes are kept."""
        flat = np.concatenate([d.flat(mean[d.scope]) for d in self.features.domains], axis=-1)
        return (self.features.matrix @ flat.T).T

    def value(self, x: Array, n: Array) -> float:
        """w·F − N A(w)."""
        return float(x @ n[: len(x)] - n[len(x)] * self.model(x).log_partition)

    def gradient(self, x: Array, n: Array) -> Array:
        """F − N E_w F."""
        return n[: len(x)] - n[len(x)] * self._mean(self.model(x))

    def information(self, x: Array, n: Array) -> Array:
        """N cov_w F."""
        return n[len(x)] * feature_covariance(self.model(x), self._dense, len(x))

    @property
    def _dense(self) -> dict[Scope, Array]:
        """All features by scope, shape (K, …), zero where a weight does not act."""
        whole = {}
        for scope, (k, f) in self.features.rows.items():
            flat = np.zeros((len(self.names), f.shape[1]))
            flat[k] = f.toarray()
            whole[scope] = self.domain(scope).table(flat)
        return whole

    def closed_solve(self, x: Array, n: Array, v: Array) -> Array | None:
        """For many weights, by what the data say of each alone: the search's memory learns the rest."""
        if len(self.names) <= MOST_DENSE:
            return None
        return v / (self.known(x, n) + self.prior_scale() + LEAST_KNOWN)

    def known(self, x: Array, n: Array) -> Array:
        """The information about each weight alone in the data; where n does not have it, in complete counts."""
        count = len(x)
        if len(n) > count + 1:
            return n[count + 1 :]
        model = self.model(x)
        return self.seen({s: n[count] * model.marginal(s) for s in self.features.rows})

    def scale(self, x: Array, n: Array) -> Array:
        """N E_w F²."""
        return np.diagonal(self.information(x, n)) + n[len(x)] * self._mean(self.model(x)) ** 2

    def reach(self, x: Array) -> Array:
        """|w| times the range of f."""
        widest = np.zeros(len(x))
        for k, f in self.features.rows.values():
            widest[k] = np.maximum(widest[k], (f.max(axis=1) - f.min(axis=1)).toarray().ravel())
        return np.abs(x) * widest

    def _mean(self, model: Model) -> Array:
        return self.totals({s: model.marginal(s) for s in self.features.rows})

    # The prior on effects

    def effects(self, x: Array) -> Array:
        """e of all scopes one after the other; leading axes are kept."""
        return self.features.effects((self.features.transposed @ x.T).T)

    @cached_property
    def _entry_ridge(self) -> Array:
        """The ridge of every entry of the effects."""
        return np.repeat(self.table_ridge, np.diff(self.features.ends))

    def log_prior(self, x: Array) -> float:
        """See `Ridge`; and −½ Σ_S ridge_S |e_S|², with each ridge's own share of the constant."""
        return self.prior_at(x)[0]

    def prior_gradient(self, x: Array) -> Array:
        """See `Ridge`; and −Σ_S ridge_S ∂e_S·e_S."""
        return self.prior_at(x)[1]

    def prior_at(self, x: Array) -> tuple[float, Array]:
        """The log prior and its gradient, whose effects are found once. With leading axes, the gradient alone is meant."""
        value, gradient = super().log_prior(x) if x.ndim == 1 else 0.0, super().prior_gradient(x)
        if not len(self.table_ridge):
            return value, gradient
        effects = self.effects(x)
        pulls = self._entry_ridge * effects
        value -= 0.5 * float(np.vdot(pulls, effects))
        value += 0.5 * float(self._weights_per_table @ np.log(np.maximum(self.table_ridge, 1e-300)))
        return value, gradient - (self.features.matrix @ self.features.effects_back(pulls).T).T

    @property
    def _weights_per_table(self) -> Array:
        return np.array([len(k) for k, _ in self.features.own.values()], dtype=float)

    def prior_information(self, x: Array) -> Array:
        """See `Ridge`; and Σ_S ridge_S ∂e_S ∂e_Sᵀ."""
        found = super().prior_information(x)
        if len(self.table_ridge):
            effects = self.effects(np.eye(len(x)))
            found = found + (effects * self._entry_ridge) @ effects.T
        return found

    def prior_scale(self) -> Array:
        """The prior information's diagonal, shape (K,); of the prior on effects, for features of one configuration each."""
        found = self.ridge.copy()
        if len(self.table_ridge):
            for large in self.features.domains:
                for ridge, small in zip(self.table_ridge, self.features.domains, strict=True):
                    if set(small.scope) <= set(large.scope):
                        k, _ = self.features.own[large.scope]
                        found[k] += ridge * _own(small) * (small.size / large.size) ** 2
        return found

    def prior_numbers(self) -> dict[str, Any]:
        """See `Ridge`; and the strengths of the prior on effects."""
        found = super().prior_numbers()
        return {**found, "table_ridge": self.table_ridge} if len(self.table_ridge) else found

    def shrunk(self, x: Array, n: Any) -> tuple[Any, dict[str, float]] | None:
        """See `Ridge`; for every scope MacKay's fixed point γ/|e_S|², γ = Σ I/(I + ridge_S |∂e_S|²)."""
        if not len(self.table_ridge):
            return super().shrunk(x, n)
        known, ridges, names = self.known(x, n), self.table_ridge.copy(), {}
        spreads = np.add.reduceat(self.effects(x) ** 2, self.features.ends[:-1])
        for at, (scope, (k, _)) in enumerate(self.features.own.items()):
            determined = float(np.sum(known[k] / (known[k] + ridges[at] * _own(self.domain(scope)))))
            ridges[at] = float(np.clip(determined / max(float(spreads[at]), 1e-300), *RIDGE_RANGE))
            names[" × ".join(map(str, scope))] = float(ridges[at] ** -0.5)
        return replace(self, table_ridge=ridges), names


def _own(domain: Domain) -> float:
    """|e_S|² of a table that is one at a single configuration and zero elsewhere."""
    return math.prod(1 - 1 / n for n in domain.shape)


def noise_variances(problem: Problem, expected: Iterable[Array]) -> list[tuple[Domain, Array]]:
    """Every observed table with the variance of its noise, at the expected counts of every site; infinite where an entry is not seen."""
    made = []
    for site, n in zip(problem.sites, expected, strict=True):
        if site.index is not None:
            domain, table = problem.model.domain(site.scope), np.full(site.size, np.inf)
            table[site.index] = 1.0 / np.maximum(precision_of(site.noise, n), 1e-300)
            made.append((domain, domain.table(table)))
    return made


def precision_of(noise: Observation, n: Array) -> Array:
    """What a noise says of counts near n: minus the curvature of its logarithm; of a corner, one over its variance."""
    if noise.exact:
        return np.full(len(n), np.inf)
    if noise.corner_slopes is not None:
        steep = np.subtract(*noise.corner_slopes[::-1])  # 2/b of Laplace noise, whose variance is 2b²
        return np.where(np.isfinite(steep), 0.125 * np.square(steep), 0.0)
    return np.maximum(-noise.curvature(np.maximum(n, LEAST_KNOWN)), 0.0)


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
