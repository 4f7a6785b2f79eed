"""The kinds of learned parameters of a chain: weights and matrices of moves, initial distributions."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import gammaln

from headcount._types import Array, Index, Mask, Scope, Texts
from headcount.individual import (
    LogLinearTransitions,
    MarkovChain,
    Model,
)
from headcount.learn._expect import StackedTables
from headcount.learn._family import Component, Natural, Tables
from headcount.observe import Problem
from headcount.tables import dense

RIDGE_RANGE = (1e-6, 1e8)
"""Within which a ridge is learned: standard deviations of a weight from 10⁻⁴ (no difference) to 10³ (no prior)."""
FIRST_RIDGE = 1.0
"""Prior precision of weights before it is learned: odds vary by a factor of e between classes."""
NEAREST_RIDGE = 1e-2
"""Prior precision that keeps weights finite while they are fitted to given moves: features can make staying certain."""
LARGEST_LOG_ODDS = 700.0
"""e^−700 stands for a probability of zero: float64 underflows beyond."""
WEAKEST = 0.1
"""Smallest strength, in individuals: less than one is no prior at all."""
STRONGEST = 100.0
"""Largest strength, in times of the largest total of a row: there classes differ by less than a tenth of a standard error."""
UNSEEN = 0.5
"""Moves added to every cell's total where a share is estimated from few (Jeffreys)."""
SEARCH_TOLERANCE = 1e-3
"""On the logarithm of a strength."""


@dataclass(frozen=True)
class BetweenTables:
    """What differs from table to table: see `headcount.learn._between`."""

    context: Any = None
    """``"composition"``, or numbers of this table; None: nothing."""
    shared: bool = False
    """Whether rows of one table deviate together."""


@dataclass(frozen=True, eq=False)
class Ridge(Component):
    """Weights w with the prior −½ Σ ridge (w − centre)²."""

    names: tuple[str, ...]
    ridge: Array
    """Shape (K,)."""
    centre: Array
    """Shape (K,)."""
    groups: Mapping[str, Index]
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

    def known(self, x: Array, n: Any) -> Array:
        """The information about each weight alone in n, shape (K,)."""
        return np.maximum(np.diagonal(self.information(x, n)), 0.0)

    def shrunk(self, x: Array, n: Any) -> tuple[Any, dict[str, float]] | None:
        """Each group's ridge by MacKay's fixed point, γ/Σ (w − centre)² with γ = Σ I/(I + ridge), I = `known`."""
        if not self.groups:
            return None
        known = self.known(x, n)
        ridge, found = self.ridge.copy(), {}
        for name, part in self.groups.items():
            determined = float(np.sum(known[part] / (known[part] + ridge[part])))
            spread = float(np.sum((x[part] - self.centre[part]) ** 2))
            ridge[part] = float(np.clip(determined / max(spread, 1e-300), *RIDGE_RANGE))
            found[name] = float(ridge[part[0]] ** -0.5)
        return replace(self, ridge=ridge), found


class Moves(Component):
    """The transitions of a Markov chain, learned from its flows."""

    times: tuple[Hashable, ...]
    """Of the chain."""

    @abstractmethod
    def matrices(self, x: Array) -> Any:
        """P, one matrix when every step is the same, one per step otherwise; steps of one kind share theirs."""

    @abstractmethod
    def flows(self, steps: list[Any]) -> Array:
        """Flows of all steps, those of one kind added up."""

    @abstractmethod
    def nearest(self, n: Array) -> Array:
        """The parameters under which these flows are most probable; weights with a ridge that keeps them finite."""

    def statistic(self, tables: Tables, units: Tables, problem: Problem | None) -> Array:
        """The flows."""
        del tables, problem
        return self.flows([units(pair) for pair in itertools.pairwise(self.times)])

    def in_model(self, x: Array, model: Model) -> MarkovChain:
        """The chain with these transitions."""
        chain = model.as_chain()
        assert chain is not None
        return with_transitions(chain, chain.initial if chain.initial_known else None, self.matrices(x))


def steps_of(chain: MarkovChain) -> Any:
    """The transitions as a chain is given them: one matrix where all steps share it, which stays one object, else one per step."""
    own = chain.transitions
    return own[0] if len({id(m) for m in own}) == 1 else own


def with_transitions(template: MarkovChain, initial: Any, matrices: Any = None) -> MarkovChain:
    """A chain with the template's times and cells, and, unless others are given, its transitions."""
    if matrices is None:
        matrices = steps_of(template)
    return template.with_moves(initial, matrices)


def with_initial(problem: Problem, initial: Any) -> Problem:
    """The problem with another initial distribution of its chain; None: it is unknown."""
    chain = problem.model.as_chain()
    assert chain is not None
    return problem.with_model(with_transitions(chain, initial))


def with_even_initial(problem: Problem) -> Problem:
    """The problem whose individuals begin in every cell with the same probability."""
    cells = len(problem.model.states[problem.model.variables[0]])
    return with_initial(problem, np.full(cells, 1.0 / cells))


@dataclass(frozen=True, eq=False)
class Weights(Moves, Ridge):
    """w of P_t(i, j) ∝ exp(w_t·f_t(i, j)), learned from flows n_t(i, j): l(w) = Σ n log P (see `LogLinearTransitions`)."""

    transitions: LogLinearTransitions
    """Features of the free weights; the fixed ones are part of its offset."""
    times: tuple[Hashable, ...]

    def matrices(self, x: Array) -> Any:
        """See `Moves`."""
        made = self.transitions.matrices(x)
        return made[0] if self.transitions.homogeneous else [made[k] for k in self.transitions.kinds]

    def flows(self, steps: list[Any]) -> Array:
        """See `Moves`."""
        linear = self.transitions
        if not steps:
            return np.zeros((1, linear.move_count))
        return linear.flows(
            steps if linear.sparse else np.stack([np.asarray(dense(s)) for s in steps]), signed=True
        )

    def nearest(self, n: Array) -> Array:
        """See `Moves`."""
        held = replace(self, ridge=self.ridge + NEAREST_RIDGE)
        return StackedTables([(held, n)]).maximise(self.start())

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


@dataclass(frozen=True, eq=False)
class Rows(Component):
    """Rows of probabilities, learned from a table of counts of the same shape.

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

    labels: Texts
    free: Mask
    fixed: Array
    pseudo: Array | float = 0.0
    own: Index | None = None
    going: Array | None = None
    pooling: Pooling | None = None

    @cached_property
    def reference(self) -> Index:
        """The free entry of every row that log-odds are taken against: ``own`` where it is free, else the first."""
        rows = np.arange(len(self.free))
        own = np.zeros(len(rows), dtype=np.intp) if self.own is None else self.own
        return np.where(self.free[rows, own], own, self.free.argmax(axis=1))

    @cached_property
    def moving(self) -> Mask:
        """Free entries in rows with more than one of them, shape (R, C)."""
        return self.free & (self.free.sum(axis=1) > 1)[:, None]

    @cached_property
    def place(self) -> tuple[Index, Index]:
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

    def natural_from(self, table: Array) -> Array | None:
        """See `Component`."""
        return table.reshape(self.free.shape)[self.moving] if table.size == self.free.size else None

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
        return self._blocks(self.shares(x), np.where(self.free, n, 0.0).sum(axis=1))

    def _blocks(self, q: Array, weights: Array) -> Array:
        """weight (diag q − q qᵀ) of every row, shape (K, K)."""
        rows, _ = self.place
        p, weight = q[self.place], weights[rows]
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
            found += self._blocks(q, self._extra) - self._blocks(self._leaving(q)[1], self._extra)
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
class MatrixMoves(Moves, Rows):
    """The transition matrices themselves, one per kind of step, stacked; padded to one width where cells change with time."""

    times: tuple[Hashable, ...] = field(kw_only=True)
    sizes: tuple[int, ...] = field(kw_only=True)
    """Cells at every time."""
    kinds: Index = field(kw_only=True)
    """For every step, which of the matrices it has, shape (T − 1,); empty where all have the one."""
    between: BetweenTables | None = None
    """What differs from problem to problem; it is integrated over after the search for the common matrix."""

    def matrices(self, x: Array) -> Any:
        """See `Moves`."""
        table = self.probabilities(x)
        if len(set(self.sizes)) == 1:
            made = list(table.reshape(-1, self.sizes[0], table.shape[1]))
        else:
            rows = np.split(table, np.cumsum(self.sizes[:-1])[:-1])
            made = [matrix[:, :width] for matrix, width in zip(rows, self.sizes[1:], strict=True)]
        return [made[k] for k in self.kinds] if len(self.kinds) else made[0]

    def nearest(self, n: Array) -> Array:
        """See `Moves`."""
        return self.log_odds(np.where(self.free, n, 0.0))

    def flows(self, steps: list[Any]) -> Array:
        """See `Moves`."""
        if not steps:
            return np.zeros(self.free.shape)
        made = [np.asarray(dense(s), dtype=float) for s in steps]
        if len({table.shape for table in made}) > 1:  # cells that change with time: a matrix per step
            width = self.free.shape[1]
            return np.concatenate([np.pad(s, ((0, 0), (0, width - s.shape[1]))) for s in made])
        total = np.zeros((len(self.free) // len(made[0]), *made[0].shape))
        np.add.at(total, self.kinds if len(self.kinds) else np.zeros(len(made), np.intp), np.stack(made))
        return total.reshape(self.free.shape)


@dataclass(frozen=True, eq=False)
class Initial(Rows):
    """The initial distribution of a chain, one row, over the cells to which the chain gives some probability."""

    first: Scope = field(kw_only=True)
    """The chain's first time."""

    @classmethod
    def of(cls, chain: MarkovChain, *, dirichlet: float = 1.0) -> Initial:
        """That of a chain, with the prior Π π^(α−1)."""
        first = chain.times[0]
        labels = np.array([[f"initial[{cell}]" for cell in chain.states[first]]], dtype=object)
        free = (np.asarray(chain.initial) > 0)[None]
        return cls(labels, free, np.zeros(free.shape), dirichlet - 1, first=(first,))

    def statistic(self, tables: Tables, units: Tables, problem: Problem | None) -> Array:
        """The first time's counts."""
        del tables, problem
        return np.asarray(dense(units(self.first)), dtype=float)[None]

    def in_model(self, x: Array, model: Model) -> MarkovChain:
        """The chain with this initial distribution."""
        chain = model.as_chain()
        assert chain is not None
        return with_transitions(chain, self.probabilities(x)[0])


@dataclass(frozen=True, eq=False)
class Pooling:
    r"""Partial pooling: how the prior of C stacked matrices is learned, around a matrix that was given or what they have in common.

    Flows :math:`n_c(i, j)` of class c (hour of the day, say). Every row first decides whether anyone leaves, then where to:

    .. math::

        P_c(i, i) \sim \mathrm{Beta}(k_l (1 − e_{ci}), k_l e_{ci}),   \qquad
        P_c(i, ·)/(1 − P_c(i, i)) \sim \mathrm{Dirichlet}(k_q b_{ci})

    with centres that add up effects on the log scale: the odds of leaving are those of the class times those of the cell,
    :math:`\mathrm{odds}(e_{ci}) = o_c o_i / o`, and destinations are those of the cell times the popularity of the class,
    :math:`b_{ci}(j) ∝ Q(i, j) u_c(j)/u(j)`. :math:`Q(i, ·)` is itself drawn towards the popularity :math:`u`, and so is :math:`u_c`.
    Each strength k maximises the probability of the flows with the matrices integrated out (Dirichlet–multinomial),

    .. math:: \sum \log Γ(k) − \log Γ(n + k) + \sum_j \log Γ(n_j + k b_j) − \log Γ(k b_j) .

    With flows that are themselves inferred this takes their expectation for known, which errs on the side of more pooling.
    """

    classes: int
    centre: Array | None = None
    """A given matrix, (L, L), that every class is drawn towards."""

    def learned(self, n: Array, free: Mask) -> tuple[Array, Array | None, dict[str, float]]:
        """The prior's counts (R, C), those of leaving (R,) or None, and the strengths, from flows ``n`` (R, C)."""
        if self.centre is not None:
            base = np.where(free, np.tile(self.centre, (self.classes, 1)), 0.0)
            base = _rows(base)
            strength = _strength(n, base)
            return strength * base, None, {"prior": strength}
        cells = n.shape[1]
        shape = (self.classes, cells, cells)
        pseudo, going, found = _pooled(n.reshape(shape), free.reshape(shape)[0])
        return pseudo.reshape(n.shape), going.reshape(-1), found


def _rows(weights: Array) -> Array:
    """Rows that sum to one; a row of zeros stays."""
    total = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(total > 0, total, 1.0)


def _pooled(n: Array, free: Mask) -> tuple[Array, Array, dict[str, float]]:
    """The prior's counts (C, L, L), those of leaving (C, L), and the strengths."""
    cells = n.shape[1]
    own = np.arange(cells)
    staying = n[:, own, own]
    away = n.copy()
    away[:, own, own] = 0.0
    others = free.copy()
    others[own, own] = False
    leaving = away.sum(axis=2)

    popular = _rows(away.sum(axis=(0, 1)) + UNSEEN)
    rows = _rows(np.where(others, popular, 0.0))
    total = away.sum(axis=0)
    common = _strength(total, rows)
    shared = _rows(total + common * rows)  # Q

    arrived = away.sum(axis=1)
    even = np.broadcast_to(popular, arrived.shape)
    popularity = _strength(arrived, even)
    seasonal = _rows(arrived + popularity * even)  # u_c

    base = _rows(shared * (seasonal / popular)[:, None, :])
    destinations = _strength(away, base)

    def odds(axis: int | None) -> Array:
        return np.asarray((leaving.sum(axis=axis) + UNSEEN) / (staying.sum(axis=axis) + UNSEEN))

    expected = odds(1)[:, None] * odds(0)[None, :] / odds(None)
    leave = expected / (1 + expected)
    stays = free[own, own]
    both = np.stack([staying, leaving], axis=2)[:, stays]
    centre = np.stack([1 - leave, leave], axis=2)[:, stays]
    movement = _strength(both, centre)

    pseudo = destinations * base
    going = np.where(stays & others.any(axis=1), movement * leave, pseudo.sum(axis=2))
    pseudo[:, own, own] = np.where(stays, movement * (1 - leave), 0.0)
    if (
        not stays.all()
    ):  # without staying, log-odds are taken against another destination, and nothing is asked first
        first = others.argmax(axis=1)
        going = np.where(stays, going, pseudo.sum(axis=2) - pseudo[:, own, first])
    found = {
        "movement": movement,
        "destinations": destinations,
        "popularity": popularity,
        "common matrix": common,
    }
    return pseudo, going, found


def dirichlet_multinomial(k: float, totals: Array, counts: Array, centre: Array) -> float:
    """log probability of rows with these totals around a centre of strength k, up to a constant, from their entries above zero."""
    rows = len(totals) * gammaln(k) - gammaln(totals + k).sum()
    return float(rows + (gammaln(counts + k * centre) - gammaln(k * centre)).sum())


def _strength(n: Array, base: Array) -> float:
    """The k that maximises the Dirichlet–multinomial probability of ``n`` around ``base``."""
    from scipy.optimize import minimize_scalar

    totals = n.sum(axis=-1)
    asked = (totals > 0) & ((base > 0).sum(axis=-1) > 1)  # rows of which anyone had a choice
    if not asked.any():
        return 1.0
    n, base, totals = n[asked], base[asked], totals[asked]
    seen = (n > 0) & (base > 0)
    at, count = base[seen], n[seen]

    def loss(log_k: float) -> float:
        return -dirichlet_multinomial(float(np.exp(log_k)), totals, count, at)

    ends = (np.log(WEAKEST), np.log(STRONGEST * float(totals.max()) + 1.0))
    found = minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": SEARCH_TOLERANCE})
    return float(np.exp(found.x))
