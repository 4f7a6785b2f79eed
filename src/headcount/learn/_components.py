"""Parameter blocks (components): their complete-data log-likelihood, its derivatives, and the names people use for them.

    l(x; n) = E log p(n; x) + constant        concave in x; gradient ∂l, information −∂²l
    l(x; n₁ + n₂ + …) + log prior(x)          what an M-step maximises, n summed over the problems that share x

The gradient at expected counts n = E[n | y] is the gradient of the evidence (Fisher's identity).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount.individual import DiscreteModel, JunctionTree, LogLinearTransitions, Model
from headcount.learn._pooling import Pooling
from headcount.tables import Domain, Scope

Array = NDArray[np.float64]

RIDGE_RANGE = (1e-6, 1e8)
"""Within which a ridge is learned: standard deviations of a weight from 10⁻⁴ (no difference) to 10³ (no prior)."""
MOST_DENSE = 300
"""Weights of a log-linear model up to which their K × K information is made. With K = 2331 a step without it takes 0.1 s, and took
several seconds with it; where the two cost the same was not measured."""
MOST_CERTAIN = 1e-12
"""Share of its second moment below which a feature's variance is rounding error."""
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
    slopes
        Makes ∂values/∂x, shape (M, K): with many parameters, only where it is asked for.
    link
        ``"identity"`` (weights), ``"logit"`` (probabilities) or ``"log"`` (rates): intervals are symmetric on that scale.
    """

    names: tuple[str, ...]
    values: Array
    slopes: Callable[[], Array]
    link: tuple[str, ...]

    @cached_property
    def jacobian(self) -> Array:
        """∂values/∂x, shape (M, K)."""
        return self.slopes()


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

    def shrunk(self, x: Array, n: Any) -> tuple[Any, dict[str, float]] | None:
        """The same component with its prior learned from n, and the prior's strengths by name; None where the prior is given."""
        return None

    def prior_numbers(self) -> dict[str, Any]:
        """The fields that hold a learned prior; empty where it is given."""
        return {}

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
    """Weights w with the prior −½ Σ ridge (w − centre)²."""

    names: tuple[str, ...]
    ridge: Array
    """Shape (K,)."""
    centre: Array
    """Shape (K,)."""
    groups: Mapping[str, NDArray[np.intp]]
    """Weights that share one ridge, which is learned, by the name of the group."""

    def start(self) -> Array:
        """The prior's centre; zero, the offset alone, without one."""
        return self.centre.copy()

    def natural(self, x: Array) -> Natural:
        """The weights are their own natural parameters."""
        return Natural(self.names, x, lambda: np.eye(len(x)), ("identity",) * len(x))

    def log_prior(self, x: Array) -> float:
        """−½ Σ ridge (w − centre)²; with the ridge's own share of the constant where it is learned."""
        learned = [k for part in self.groups.values() for k in part]
        constant = 0.5 * float(np.log(self.ridge[learned]).sum()) if learned else 0.0
        return constant - 0.5 * float(self.ridge @ (x - self.centre) ** 2)

    def prior_gradient(self, x: Array) -> Array:
        """−ridge (w − centre)."""
        return -self.ridge * (x - self.centre)

    def prior_information(self, x: Array) -> Array:
        """diag(ridge)."""
        del x
        return np.diag(self.ridge)

    def prior_numbers(self) -> dict[str, Any]:
        """The ridge."""
        return {"ridge": self.ridge} if self.groups else {}

    def shrunk(self, x: Array, n: Any) -> tuple[Any, dict[str, float]] | None:
        """Each group's ridge by MacKay's fixed point, γ/Σ (w − centre)² with γ = Σ I/(I + ridge), I the information in n."""
        if not self.groups:
            return None
        known = np.maximum(np.diagonal(self.information(x, n)), 0.0)
        ridge, found = self.ridge.copy(), {}
        for name, part in self.groups.items():
            determined = float(np.sum(known[part] / (known[part] + ridge[part])))
            spread = float(np.sum((x[part] - self.centre[part]) ** 2))
            ridge[part] = float(np.clip(determined / max(spread, 1e-300), *RIDGE_RANGE))
            found[name] = float(ridge[part[0]] ** -0.5)
        return replace(self, ridge=ridge), found


@dataclass(frozen=True, eq=False)
class Weights(_Ridge):
    """w of P_t(i, j) ∝ exp(w_t·f_t(i, j)), learned from flows n_t(i, j): l(w) = Σ n log P (see `LogLinearTransitions`)."""

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
        return self.transitions.uncentred(x, n)

    def reach(self, x: Array) -> Array:
        """|w| times the range of f within the moves from one cell."""
        return np.abs(x) * self.transitions.ranges()

    def alike(self, other: Component) -> bool:
        """The same features."""
        return isinstance(other, Weights) and other.transitions.like(self.transitions)


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
        return Natural(("rate",), rate, lambda: rate[:, None], ("log",))

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

    The prior is one of counts: ``pseudo`` more in every free entry (Dirichlet), and, where ``going`` is given, a Dirichlet tree,
    whose first question is whether to stay at the reference: going = log prior of leaving, in counts,

        log prior = Σ pseudo log q + e log(1 − q_ref),   e = going − Σ_{j ≠ ref} pseudo_j   (zero: Dirichlet)

    With q' = q/(1 − q_ref) over the other entries and m = n_r + Σ pseudo + e, the information of counts and prior is

        A (diag q' − q' q'ᵀ) + B q' q'ᵀ,   A = m (1 − q_ref) − e,   B = m q_ref (1 − q_ref)

    Attributes
    ----------
    labels
        One name per entry, shape (R, C), such as ``P[a→b]``.
    free
        Which entries are learned, shape (R, C).
    fixed
        The probabilities of all other entries (zero where structurally impossible), shape (R, C).
    pseudo
        The prior's counts, shape (R, C), or one number for all free entries.
    own
        The column of every row that log-odds are taken against where it is free (staying put), shape (R,).
    going
        The prior's counts of leaving the reference, shape (R,); None for a Dirichlet prior.
    pooling
        How the prior is learned; None where it is given.
    """

    labels: NDArray[np.object_]
    free: NDArray[np.bool_]
    fixed: Array
    pseudo: Array | float = 0.0
    own: NDArray[np.intp] | None = None
    going: Array | None = None
    pooling: Pooling | None = None

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
        total = np.where(self.free, n + self._pseudo_counts, 0.0).sum(axis=1, keepdims=True)
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
        return np.where(self.free, self.pseudo, 0.0)

    @cached_property
    def _extra(self) -> Array:
        """e, the prior's counts of leaving beyond those of where to, shape (R,)."""
        if self.going is None:
            return np.zeros(len(self.free))
        at = np.arange(len(self.free)), self.reference
        e = self.going - (self._pseudo_counts.sum(axis=1) - self._pseudo_counts[at])
        return np.where(self.free.sum(axis=1) > 1, e, 0.0)

    def _leaving(self, q: Array) -> tuple[Array, Array]:
        """(q_ref, q'), shapes (R,) and (R, C)."""
        at = np.arange(len(q)), self.reference
        away = q.copy()
        away[at] = 0.0
        total = away.sum(axis=1, keepdims=True)
        return q[at], away / np.maximum(total, np.exp(-LARGEST_LOG_ODDS))

    def log_prior(self, x: Array) -> float:
        """Σ pseudo log q + e log(1 − q_ref)."""
        value = self.value(x, self._pseudo_counts)
        if self.going is not None:
            stay, _ = self._leaving(self.shares(x))
            value += float(self._extra @ np.log(np.maximum(1 - stay, np.exp(-LARGEST_LOG_ODDS))))
        return value

    def prior_gradient(self, x: Array) -> Array:
        """That of the prior's counts, and e (q' − q)."""
        gradient = self.gradient(x, self._pseudo_counts)
        if self.going is not None:
            q = self.shares(x)
            gradient = gradient + (self._extra[:, None] * (self._leaving(q)[1] - q))[self.place]
        return gradient

    def prior_information(self, x: Array) -> Array:
        """That of the prior's counts, and e (diag q − q qᵀ − diag q' + q' q'ᵀ)."""
        found = self.information(x, self._pseudo_counts)
        if self.going is not None:
            q = self.shares(x)
            for share, sign in ((q, 1.0), (self._leaving(q)[1], -1.0)):
                rows, _ = self.place
                p, weight = share[self.place], sign * self._extra[rows]
                same = rows[:, None] == rows[None, :]
                found += np.diag(weight * p) - np.where(same, weight[:, None] * np.outer(p, p), 0.0)
        return found

    def closed_form(self, x: Array, n: Array) -> Array:
        """q = n/n_r, the prior's counts included; a row without anyone stays as it is."""
        total = np.where(self.free, n + self._pseudo_counts, 0.0)
        if self.going is not None:
            at = np.arange(len(total)), self.reference
            leaving = total.sum(axis=1) - total[at]
            ratio = 1 + np.divide(self._extra, leaving, out=np.zeros_like(leaving), where=leaving > 0)
            kept = total[at]
            total = total * ratio[:, None]
            total[at] = kept
        rows, _ = self.place
        return np.where(total.sum(axis=1)[rows] > 0, self.log_odds(total), x)

    def closed_solve(self, x: Array, n: Array, v: Array) -> Array:
        """v/(A q') + (1/B − 1/A) Σv by row; zero for a row without anyone."""
        q = self.shares(x)
        counts = np.where(self.free, n + self._pseudo_counts, 0.0)
        stay, away = self._leaving(q)
        lowest = np.exp(-LARGEST_LOG_ODDS)
        m, gone = counts.sum(axis=1) + self._extra, np.maximum(1 - stay, lowest)
        told = np.maximum(m * gone - self._extra, 0.0)
        # The prior's tree is not concave far from its maximum: the counts themselves then stand for their expectation.
        seen = counts.sum(axis=1) - counts[np.arange(len(q)), self.reference]
        told = np.where(told > 0, told, seen)
        rows, columns = self.place
        sums = np.bincount(rows, weights=v, minlength=len(q))
        with np.errstate(divide="ignore", invalid="ignore"):
            between = sums * (1 / np.maximum(m * gone * stay, lowest) - 1 / told)
            solved = v / (told[rows] * np.maximum(away[rows, columns], lowest)) + between[rows]
        return np.where((m[rows] > 0) & np.isfinite(solved), solved, 0.0)

    def prior_numbers(self) -> dict[str, Any]:
        """Counts of the prior."""
        return {"pseudo": self.pseudo, "going": self.going} if self.pooling is not None else {}

    def shrunk(self, x: Array, n: Array) -> tuple[Any, dict[str, float]] | None:
        """The prior that `Pooling` learns from n."""
        del x
        if self.pooling is None:
            return None
        pseudo, going, strengths = self.pooling.learned(np.where(self.free, n, 0.0), self.free)
        return replace(self, pseudo=pseudo, going=going), strengths

    def natural(self, x: Array) -> Natural:
        """The probabilities of all free entries that can change."""
        q = self.shares(x)
        r, c = np.nonzero(self.moving)
        rows, columns = self.place
        p = q[r, c]

        def slopes() -> Array:
            own = (r[:, None] == rows) & (c[:, None] == columns)
            same = r[:, None] == rows[None, :]
            slope = p[:, None] * (own - q[rows, columns][None, :])
            return np.where(same, self.mass[r][:, None] * slope, 0.0)

        names = tuple(str(self.labels[a, b]) for a, b in zip(r, c, strict=True))
        return Natural(names, self.mass[r] * p, slopes, ("logit",) * len(r))

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
            and np.array_equal(self._pseudo_counts, other._pseudo_counts)
            and np.array_equal(self._extra, other._extra)
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
    features: Mapping[Scope, tuple[NDArray[np.intp], Array]]
    """By scope: which weights act on it, and their tables, shape (weights, …)."""
    offset: Mapping[Scope, Array]

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
            parts = ((s, np.tensordot(x[k], f, axes=1)) for s, (k, f) in self.features.items())
            self._last.clear()
            self._last[key] = DiscreteModel(
                self.states, [*self.offset.items(), *parts], junction_tree=self._tree
            )
        return self._last[key]

    def totals(self, mean: Mapping[Scope, Array], power: int = 1) -> Array:
        """Σ_scopes f·n, from one table per scope; with ``power``, of f to that power."""
        total = np.zeros(len(self.names))
        for scope, (k, f) in self.features.items():
            total[k] += f.reshape(len(f), -1) ** power @ mean[scope].ravel()
        return total

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
        for scope, (k, f) in self.features.items():
            spread[k] += (f.reshape(len(f), -1) @ means[scope].ravel()) ** 2
        known = n[-1] * (square - spread)
        whole = known + self.ridge
        return np.divide(v, whole, out=np.zeros_like(v), where=known > MOST_CERTAIN * n[-1] * square)

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
