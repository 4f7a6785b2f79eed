"""Rows of probabilities as a component: transition matrices and initial laws, with zeros and fixed entries.

Row r has free entries F_r and the mass m_r = 1 − Σ fixed. With log-odds x against one free entry of the row,

    q = softmax over F_r of (x, 0 at the reference),   p = m_r q
    l(x) = Σ n log q,   ∂l/∂x = n − n_r q,   information = n_r (diag q − q qᵀ),   n_r the row's free total
    (n_r (diag q − q qᵀ))⁻¹ v = (v/q + Σv/q_ref)/n_r

The Dirichlet prior Π p^(α−1) adds α − 1 to every free count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headcount.learn._component import Array, Component, Natural

FURTHEST = 700.0
"""Largest log-odds: e^−700 is how a probability of zero is written, and float64 goes no further."""


@dataclass(frozen=True, eq=False)
class Rows(Component):
    """Probabilities by row, learned from a table of counts of the same shape.

    Attributes
    ----------
    labels
        A name an entry, shape (R, C), such as ``P[a→b]``.
    free
        Which entries are learned, shape (R, C).
    fixed
        The probabilities of all other entries (zero where structurally impossible), shape (R, C).
    dirichlet
        α ≥ 1 of every free entry; 1 is no prior.
    """

    labels: NDArray[np.object_]
    free: NDArray[np.bool_]
    fixed: Array
    dirichlet: float = 1.0

    @cached_property
    def reference(self) -> NDArray[np.intp]:
        """The free entry of every row that log-odds are taken against: the diagonal one where it is free."""
        rows, columns = self.free.shape
        first = self.free.argmax(axis=1)
        own = np.arange(rows) % columns
        return np.where(self.free[np.arange(rows), own], own, first)

    @cached_property
    def place(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Row and column of every parameter."""
        moving = self.free & (self.free.sum(axis=1) > 1)[:, None]
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
        """m, what is left for the free entries of every row."""
        return 1.0 - self.fixed.sum(axis=1)

    def start(self) -> Array:
        """Equal probabilities."""
        return np.zeros(len(self.place[0]))

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
        """x of given probabilities; a zero becomes the furthest log-odds."""
        with np.errstate(divide="ignore"):
            log_p = np.log(np.asarray(probabilities, dtype=float))
        rows, columns = self.place
        with np.errstate(invalid="ignore"):
            odds = log_p[rows, columns] - log_p[rows, self.reference[rows]]
        return np.clip(np.where(np.isnan(odds), 0.0, odds), -FURTHEST, FURTHEST)

    def value(self, x: Array, n: Array) -> float:
        """Σ n log q over the free entries."""
        q = self.shares(x)
        seen = self.free & (n > 0)
        return float(np.sum(n[seen] * np.log(np.maximum(q[seen], np.exp(-FURTHEST)))))

    def gradient(self, x: Array, n: Array) -> Array:
        """n − n_r q."""
        return self._surplus(self.shares(x), np.where(self.free, n, 0.0))[self.place]

    @staticmethod
    def _surplus(q: Array, n: Array) -> Array:
        return n - n.sum(axis=1, keepdims=True) * q

    def information(self, x: Array, n: Array) -> Array:
        """Blocks n_r (diag q − q qᵀ)."""
        q = self.shares(x)
        return self._blocks(q, np.where(self.free, n, 0.0).sum(axis=1))

    def _blocks(self, q: Array, total: Array) -> Array:
        rows, columns = self.place
        p, weight = q[rows, columns], total[rows]
        same = rows[:, None] == rows[None, :]
        return np.diag(weight * p) - np.where(same, weight[:, None] * np.outer(p, p), 0.0)

    def log_prior(self, x: Array) -> float:
        """(α − 1) Σ log q."""
        return self.value(x, self._pseudo)

    def prior_gradient(self, x: Array) -> Array:
        """As of α − 1 counts in every free entry."""
        return self.gradient(x, self._pseudo)

    def prior_information(self, x: Array) -> Array:
        """As of α − 1 counts in every free entry."""
        return self.information(x, self._pseudo)

    @cached_property
    def _pseudo(self) -> Array:
        return np.where(self.free, self.dirichlet - 1.0, 0.0)

    def closed_form(self, x: Array, n: Sequence[Array]) -> Array:
        """q = n/n_r; a row without anyone stays as it is."""
        total = np.where(self.free, np.sum(n, axis=0) + self._pseudo, 0.0)
        rows, _ = self.place
        return np.where(total.sum(axis=1)[rows] > 0, self.log_odds(total), x)

    def closed_solve(self, x: Array, n: Sequence[Array], v: Array) -> Array:
        """(v/q + Σv/q_ref)/n_r by row; zero for a row without anyone."""
        q = self.shares(x)
        total = np.where(self.free, np.sum(n, axis=0) + self._pseudo, 0.0).sum(axis=1)
        rows, columns = self.place
        sums = np.bincount(rows, weights=v, minlength=len(q))
        lowest = np.exp(-FURTHEST)
        shared = sums / np.maximum(q[np.arange(len(q)), self.reference], lowest)
        with np.errstate(divide="ignore", invalid="ignore"):
            solved = (v / np.maximum(q[rows, columns], lowest) + shared[rows]) / total[rows]
        return np.where(total[rows] > 0, solved, 0.0)

    def natural(self, x: Array) -> Natural:
        """The probabilities of all free entries that can change."""
        q = self.shares(x)
        moving = self.free & (self.free.sum(axis=1) > 1)[:, None]
        r, c = np.nonzero(moving)
        rows, columns = self.place
        own = (r[:, None] == rows) & (c[:, None] == columns)
        same = r[:, None] == rows[None, :]
        p = q[r, c]
        slope = p[:, None] * (own - q[rows, columns][None, :])
        jacobian = np.where(same, self.mass[r][:, None] * slope, 0.0)
        names = tuple(str(self.labels[a, b]) for a, b in zip(r, c, strict=True))
        return Natural(names, self.mass[r] * p, jacobian, ("logit",) * len(r))

    def alike(self, other: Component) -> bool:
        """The same entries, free and fixed."""
        return (
            isinstance(other, Rows)
            and np.array_equal(self.free, other.free)
            and np.array_equal(self.fixed, other.fixed)
            and self.dirichlet == other.dirichlet
        )
