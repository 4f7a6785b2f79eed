"""Parameter blocks (components): their complete-data log-likelihood, its derivatives, and the names people use for them.

    l(x; n) = E log p(n; x) + constant        concave in x; gradient ∂l, information −∂²l
    l(x; n₁ + n₂ + …) + log prior(x)          what an M-step maximises, n summed over the problems that share x

The gradient at expected counts n = E[n | y] is the gradient of the evidence (Fisher's identity).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount.individual import DiscreteModel, JunctionTree, LogLinearTransitions, Model
from headcount.tables import Domain, Scope

Array = NDArray[np.float64]

LARGEST_LOG_ODDS = 700.0
"""e^−700 stands for a probability of zero: float64 underflows beyond."""


@dataclass(frozen=True)
class Natural:
    """Parameters as people name them: values, derivative with respect to x, and the scale on which they are nearly Gaussian.

    Attributes
    ----------
    names
        One per value.
    values
        Shape (M,).
    jacobian
        ∂values/∂x, shape (M, K).
    link
        ``"identity"`` (weights), ``"logit"`` (probabilities) or ``"log"`` (rates): intervals are symmetric on that scale.
    """

    names: tuple[str, ...]
    values: Array
    jacobian: Array
    link: tuple[str, ...]


class Component(ABC):
    """Parameters x, shape (K,), that are learned together from one table n."""

    names: tuple[str, ...]
    """One per parameter."""

    @abstractmethod
    def start(self) -> Array:
        """The neutral start: no effect, equal probabilities, the rate as given."""

    @abstractmethod
    def value(self, x: Array, n: Any) -> float:
        """l(x; n), up to a constant in x."""

    @abstractmethod
    def gradient(self, x: Array, n: Any) -> Array:
        """∂l/∂x, shape (K,)."""

    @abstractmethod
    def information(self, x: Array, n: Any) -> Array:
        """−∂²l/∂x², shape (K, K), positive semi-definite."""

    def scale(self, x: Array, n: Any) -> Array:
        """The information's diagonal without centring, shape (K,): information below rounding error of it is zero."""
        return np.diagonal(self.information(x, n))

    @abstractmethod
    def natural(self, x: Array) -> Natural:
        """The parameters as people name them."""

    def working(self, values: Mapping[str, float], x: Array) -> Array:
        """x changed so that the natural parameters in ``values`` have the given values."""
        names = self.natural(x).names
        made = x.copy()
        for name, value in values.items():
            made[names.index(name)] = value
        return made

    def log_prior(self, x: Array) -> float:
        """log prior(x), up to a constant; zero without one."""
        del x
        return 0.0

    def prior_gradient(self, x: Array) -> Array:
        """∂ log prior/∂x."""
        return np.zeros_like(x)

    def prior_information(self, x: Array) -> Array:
        """−∂² log prior/∂x²."""
        return np.zeros((len(x), len(x)))

    def closed_form(self, x: Array, n: Any) -> Array | None:
        """argmax of l(·; n) + log prior; None where it takes Newton's method."""
        return None

    def closed_solve(self, x: Array, n: Any, v: Array) -> Array | None:
        """(information + prior information)⁻¹ v; None where it takes a dense solve."""
        return None

    def reach(self, x: Array) -> Array:
        """The largest log-odds that each parameter makes, shape (K,); zero where an infinite one is a proper maximum."""
        return np.zeros_like(x)

    def alike(self, other: Component) -> bool:
        """Whether l is the same function, so that tables of the other component can be added to this one's."""
        return other is self


@dataclass(frozen=True, eq=False)
class _Ridge(Component):
    """Weights w with the prior −½ Σ ridge w²."""

    names: tuple[str, ...]
    ridge: Array
    """Shape (K,)."""

    def start(self) -> Array:
        """Zero: the offset alone."""
        return np.zeros(len(self.names))

    def natural(self, x: Array) -> Natural:
        """The weights are their own natural parameters."""
        return Natural(self.names, x, np.eye(len(x)), ("identity",) * len(x))

    def log_prior(self, x: Array) -> float:
        """−½ Σ ridge w²."""
        return -0.5 * float(self.ridge @ x**2)

    def prior_gradient(self, x: Array) -> Array:
        """−ridge w."""
        return -self.ridge * x

    def prior_information(self, x: Array) -> Array:
        """diag(ridge)."""
        del x
        return np.diag(self.ridge)


@dataclass(frozen=True, eq=False)
class Weights(_Ridge):
    """w of P_t(i, j) ∝ exp(w·f_t(i, j)), learned from flows n_t(i, j): l(w) = Σ n log P (see `LogLinearTransitions`)."""

    transitions: LogLinearTransitions
    """Features of the free weights; the fixed ones are part of its offset."""

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

    def reach(self, x: Array) -> Array:
        """|w| times the range of f within the moves from one cell."""
        f = self.transitions.features
        return np.abs(x) * (f.max(axis=3) - f.min(axis=3)).max(axis=(0, 2))

    def alike(self, other: Component) -> bool:
        """The same features."""
        return isinstance(other, Weights) and other.transitions is self.transitions


@dataclass(frozen=True)
class Rate(Component):
    """The observation rate λ = e^x: y ~ Poisson(λ r n), r the rates given with the data.

    l(x) = Y x − e^x B,  Y the total of all counts, B = Σ r E[n]: λ̂ = Y/B.  n is the pair (Y, B).
    """

    names: tuple[str, ...] = ("log rate",)

    def start(self) -> Array:
        """λ = 1: the rates as given."""
        return np.zeros(1)

    def value(self, x: Array, n: Array) -> float:
        """Y x − e^x B."""
        return float(n[0] * x[0] - np.exp(x[0]) * n[1])

    def gradient(self, x: Array, n: Array) -> Array:
        """Y − e^x B."""
        return np.array([n[0] - np.exp(x[0]) * n[1]])

    def information(self, x: Array, n: Array) -> Array:
        """e^x B."""
        return np.array([[np.exp(x[0]) * n[1]]])

    def closed_form(self, x: Array, n: Array) -> Array:
        """log(Y/B)."""
        del x
        return np.log(n[:1] / n[1:])

    def natural(self, x: Array) -> Natural:
        """λ itself."""
        rate = np.exp(x)
        return Natural(("rate",), rate, rate[:, None], ("log",))

    def working(self, values: Mapping[str, float], x: Array) -> Array:
        """log λ."""
        return np.array([_log_of("rate", values["rate"])]) if "rate" in values else x

    def alike(self, other: Component) -> bool:
        """Any two rates are the same parameter."""
        return isinstance(other, Rate)


def _log_of(name: str, value: float) -> float:
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"{name} is {value!r}: give a finite number > 0")
    return float(np.log(value))


@dataclass(frozen=True, eq=False)
class Rows(Component):
    """Rows of probabilities, transition matrices or an initial distribution, learned from a table of counts of the same shape.

    Row r has free entries F_r and the mass m_r = 1 − Σ fixed. With log-odds x against one free entry of the row,

        q = softmax over F_r of (x, 0 at the reference),   p = m_r q
        l(x) = Σ n log q,   ∂l/∂x = n − n_r q,   information = n_r (diag q − q qᵀ),   n_r the row's free total
        (n_r (diag q − q qᵀ))⁻¹ v = (v/q + Σv/q_ref)/n_r

    The Dirichlet prior Π p^(α−1) adds α − 1 to every free count.

    Attributes
    ----------
    labels
        One name per entry, shape (R, C), such as ``P[a→b]``.
    free
        Which entries are learned, shape (R, C).
    fixed
        The probabilities of all other entries (zero where structurally impossible), shape (R, C).
    dirichlet
        α ≥ 1 of every free entry; 1 is no prior.
    own
        The column of every row that log-odds are taken against where it is free (staying put), shape (R,).
    """

    labels: NDArray[np.object_]
    free: NDArray[np.bool_]
    fixed: Array
    dirichlet: float = 1.0
    own: NDArray[np.intp] | None = None

    @cached_property
    def reference(self) -> NDArray[np.intp]:
        """The free entry of every row that log-odds are taken against: ``own`` where it is free, else the first."""
        rows = np.arange(len(self.free))
        own = np.zeros(len(rows), dtype=np.intp) if self.own is None else self.own
        return np.where(self.free[rows, own], own, self.free.argmax(axis=1))

    @cached_property
    def moving(self) -> NDArray[np.bool_]:
        """Free entries in rows with more than one of them, shape (R, C)."""
        return self.free & (self.free.sum(axis=1) > 1)[:, None]

    @cached_property
    def place(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Row and column of every parameter."""
        moving = self.moving.copy()
        moving[np.arange(len(moving)), self.reference] = False
        rows, columns = np.nonzero(moving)
        return rows, columns

    @cached_property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """log-odds, named by entry and reference."""
        rows, columns = self.place
        return tuple(
            f"log {self.labels[r, c]}/{self.labels[r, self.reference[r]]}"
            for r, c in zip(rows, columns, strict=True)
        )

    @cached_property
    def mass(self) -> Array:
        """m, the probability left for the free entries of every row."""
        return 1.0 - self.fixed.sum(axis=1)

    def start(self) -> Array:
        """Equal probabilities."""
        return np.zeros(len(self.place[0]))

    def vanishing(self, x: Array, n: Array, least: float) -> list[tuple[str, Array]]:
        """Entries with (n_r + prior) q < ``least``, by name, each with the direction of x that changes its log-odds alone."""
        rows, columns = self.place
        total = np.where(self.free, n + self.dirichlet - 1, 0.0).sum(axis=1, keepdims=True)
        few = self.moving & (total * self.shares(x) < least)
        return [
            (str(self.labels[r, c]), 1.0 * ((rows == r) & ((columns == c) | (c == self.reference[r]))))
            for r, c in np.argwhere(few)
        ]

    def shares(self, x: Array) -> Array:
        """q, shape (R, C); zero where not free."""
        odds = np.where(self.free, 0.0, -np.inf)
        odds[self.place] = x
        top = odds.max(axis=1, keepdims=True)
        weight = np.exp(odds - np.where(np.isfinite(top), top, 0.0))
        total = weight.sum(axis=1, keepdims=True)
        return weight / np.where(total > 0, total, 1.0)

    def probabilities(self, x: Array) -> Array:
        """p = m q, and what is fixed; shape (R, C)."""
        return self.mass[:, None] * self.shares(x) + self.fixed

    def log_odds(self, probabilities: Array) -> Array:
        """x of given probabilities; a zero becomes the largest log-odds."""
        with np.errstate(divide="ignore"):
            log_p = np.log(np.asarray(probabilities, dtype=float))
        rows, columns = self.place
        with np.errstate(invalid="ignore"):
            odds = log_p[rows, columns] - log_p[rows, self.reference[rows]]
        return np.clip(np.where(np.isnan(odds), 0.0, odds), -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)

    def value(self, x: Array, n: Array) -> float:
        """Σ n log q over the free entries."""
        q = self.shares(x)
        seen = self.free & (n > 0)
        return float(np.sum(n[seen] * np.log(np.maximum(q[seen], np.exp(-LARGEST_LOG_ODDS)))))

    def gradient(self, x: Array, n: Array) -> Array:
        """n − n_r q."""
        counts = np.where(self.free, n, 0.0)
        return (counts - counts.sum(axis=1, keepdims=True) * self.shares(x))[self.place]

    def information(self, x: Array, n: Array) -> Array:
        """Blocks n_r (diag q − q qᵀ)."""
        rows, columns = self.place
        p = self.shares(x)[rows, columns]
        weight = np.where(self.free, n, 0.0).sum(axis=1)[rows]
        same = rows[:, None] == rows[None, :]
        return np.diag(weight * p) - np.where(same, weight[:, None] * np.outer(p, p), 0.0)

    @cached_property
    def _pseudo_counts(self) -> Array:
        return np.where(self.free, self.dirichlet - 1.0, 0.0)

    def log_prior(self, x: Array) -> float:
        """(α − 1) Σ log q."""
        return self.value(x, self._pseudo_counts)

    def prior_gradient(self, x: Array) -> Array:
        """That of α − 1 counts in every free entry."""
        return self.gradient(x, self._pseudo_counts)

    def prior_information(self, x: Array) -> Array:
        """That of α − 1 counts in every free entry."""
        return self.information(x, self._pseudo_counts)

    def closed_form(self, x: Array, n: Array) -> Array:
        """q = n/n_r; a row without anyone stays as it is."""
        total = np.where(self.free, n + self._pseudo_counts, 0.0)
        rows, _ = self.place
        return np.where(total.sum(axis=1)[rows] > 0, self.log_odds(total), x)

    def closed_solve(self, x: Array, n: Array, v: Array) -> Array:
        """(v/q + Σv/q_ref)/n_r by row; zero for a row without anyone."""
        q = self.shares(x)
        total = np.where(self.free, n + self._pseudo_counts, 0.0).sum(axis=1)
        rows, columns = self.place
        sums = np.bincount(rows, weights=v, minlength=len(q))
        lowest = np.exp(-LARGEST_LOG_ODDS)
        shared = sums / np.maximum(q[np.arange(len(q)), self.reference], lowest)
        with np.errstate(divide="ignore", invalid="ignore"):
            solved = (v / np.maximum(q[rows, columns], lowest) + shared[rows]) / total[rows]
        return np.where(total[rows] > 0, solved, 0.0)

    def natural(self, x: Array) -> Natural:
        """The probabilities of all free entries that can change."""
        q = self.shares(x)
        r, c = np.nonzero(self.moving)
        rows, columns = self.place
        own = (r[:, None] == rows) & (c[:, None] == columns)
        same = r[:, None] == rows[None, :]
        p = q[r, c]
        slope = p[:, None] * (own - q[rows, columns][None, :])
        jacobian = np.where(same, self.mass[r][:, None] * slope, 0.0)
        names = tuple(str(self.labels[a, b]) for a, b in zip(r, c, strict=True))
        return Natural(names, self.mass[r] * p, jacobian, ("logit",) * len(r))

    def working(self, values: Mapping[str, float], x: Array) -> Array:
        """Log-odds with the given probabilities; a row's other entries share the rest as they did."""
        p = self.probabilities(x)
        found = {str(self.labels[r, c]): (r, c) for r, c in zip(*np.nonzero(self.moving), strict=True)}
        given = np.zeros(p.shape, dtype=bool)
        for name, value in values.items():
            if not 0 <= value <= 1:
                raise ValueError(f"{name} is {value!r}: give a probability")
            given[found[name]], p[found[name]] = True, value
        for r in np.flatnonzero(given.any(axis=1)):
            rest = self.free[r] & ~given[r]
            left = self.mass[r] - p[r, given[r]].sum()
            if left < -1e-9 or (not rest.any() and left > 1e-9):
                raise ValueError(
                    f"the probabilities given for the row of {self.labels[r, self.reference[r]]} sum to "
                    f"{self.mass[r] - left:.6g}, {self.mass[r]:.6g} is to be shared: give fewer, or make them sum to it"
                )
            if rest.any():
                p[r, rest] *= max(left, 0.0) / p[r, rest].sum()
        return self.log_odds(p)

    def alike(self, other: Component) -> bool:
        """The same entries, free and fixed."""
        return (
            isinstance(other, Rows)
            and np.array_equal(self.free, other.free)
            and np.array_equal(self.fixed, other.fixed)
            and self.dirichlet == other.dirichlet
        )


@dataclass(frozen=True, eq=False)
class Potentials(_Ridge):
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
    features: Mapping[Scope, Array]
    offset: Mapping[Scope, Array]

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
        """Σ_scopes f·n, from one table per scope."""
        return sum(
            (np.tensordot(f.reshape(len(f), -1), mean[s].ravel(), axes=1) for s, f in self.features.items()),
            start=np.zeros(len(self.names)),
        )

    def value(self, x: Array, n: Array) -> float:
        """w·F − N A(w)."""
        return float(x @ n[:-1] - n[-1] * self.model(x).log_partition)

    def gradient(self, x: Array, n: Array) -> Array:
        """F − N E_w F."""
        return n[:-1] - n[-1] * self._mean(self.model(x))

    def information(self, x: Array, n: Array) -> Array:
        """N cov_w F."""
        return n[-1] * feature_covariance(self.model(x), self.features, len(self.names))

    def scale(self, x: Array, n: Array) -> Array:
        """N E_w F²."""
        return np.diagonal(self.information(x, n)) + n[-1] * self._mean(self.model(x)) ** 2

    def reach(self, x: Array) -> Array:
        """|w| times the range of f."""
        ranges = [np.ptp(f.reshape(len(f), -1), axis=1) for f in self.features.values()]
        return np.abs(x) * np.max(ranges, axis=0)

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
