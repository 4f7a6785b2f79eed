"""What an M-step maximises: complete-data log-likelihoods summed over problems, and the prior once.

    Q(x) = Σ_problems Σ_components l(x; E[n | y]) + log prior(x)

Components share no parameters, so −∂²Q is block diagonal and each block is maximised by itself: in closed form where there is
one, else by Newton's method with Levenberg–Marquardt damping (Q is concave).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from headcount._types import Array
from headcount.learn._family import Component, Family
from headcount.learn._files import saved
from headcount.observe import ProblemError

NULL_SHARE = 1e-10
"""Share of the largest eigenvalue (of the matrix scaled to a unit diagonal) below which a direction counts as null: the square
root of float64's precision, with two digits to spare."""
ROUNDING_SHARE = 1e-12
"""Share of the uncentred second moment below which an information is rounding error: 10⁴ float64 epsilons."""
NEWTON_TOLERANCE = 1e-13
"""Newton decrement, relative to √|Q|, at which a block counts as maximised."""
MOST_NEWTON_STEPS = 300
PRIOR_ROUNDS = 30
"""Times that priors are learned, at most; each is followed by a few steps of the climb."""
PRIOR_TOLERANCE = 0.02
"""Relative change of the priors' strengths below which they count as learned: a fiftieth moves estimates by less than a hundredth of
their distance from the prior's centre."""


def settled(before: Mapping[str, float], now: Mapping[str, float]) -> bool:
    """Whether strengths of learned priors are what they were."""
    return bool(before) and all(abs(np.log(now[k] / v)) < PRIOR_TOLERANCE for k, v in before.items())


def scaled_eigen(matrix: Array) -> tuple[Array, Array, Array]:
    """(scale, eigenvalues, vectors) of D⁻¹ M D⁻¹, D = √diag M; a parameter without information has scale 0."""
    scale = np.sqrt(np.maximum(np.diagonal(matrix), 0.0))
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T) * np.outer(inverse, inverse))
    return scale, values, vectors


def pseudo_solve(matrix: Array, v: Array) -> Array:
    """M⁺ v, null directions (see `NULL_SHARE`) left out; v may be a matrix."""
    scale, values, vectors = scaled_eigen(matrix)
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    kept = values > NULL_SHARE * max(float(values.max(initial=0.0)), 1e-300)
    part = vectors[:, kept]
    scaled = inverse[:, None] * part
    return scaled @ ((scaled.T @ v).T / values[kept]).T


@saved
@dataclass(frozen=True)
class Objective:
    """Q at given statistics: by problem, the table that each component learns from."""

    families: Sequence[Family]
    statistics: Sequence[tuple[Any, ...]]

    @cached_property
    def _tables(self) -> list[tuple[Family, tuple[Any, ...]]]:
        """Families with their statistics; those of families that are alike are added up."""
        found: list[tuple[Family, tuple[Any, ...]]] = []
        for family, tables in zip(self.families, self.statistics, strict=True):
            same = next((k for k, (other, _) in enumerate(found) if family.alike(other)), None)
            if same is None:
                found.append((family, tables))
            else:
                summed = tuple(a + b for a, b in zip(found[same][1], tables, strict=True))
                found[same] = (found[same][0], summed)
        return found

    def _blocks(self, x: Array) -> Iterator[tuple[Block, Array]]:
        """Every component of all problems, with its part of x."""
        for k, part in enumerate(self.families[0].split(x)):
            yield Block([(f.components[k], n[k]) for f, n in self._tables]), part

    def log_prior(self, x: Array) -> float:
        """log prior(x)."""
        family = self.families[0]
        return sum(c.log_prior(part) for c, part in zip(family.components, family.split(x), strict=True))

    def prior_information(self, x: Array) -> Array:
        """−∂² log prior/∂x², shape (K, K)."""
        family = self.families[0]
        parts = zip(family.components, family.split(x), strict=True)
        return block_diag(*(c.prior_information(part) for c, part in parts))

    def value(self, x: Array) -> float:
        """Q(x)."""
        return sum(block.value(part) for block, part in self._blocks(x))

    def gradient(self, x: Array) -> Array:
        """∂Q/∂x at x: with statistics inferred at x itself, the gradient of log evidence + log prior."""
        return np.concatenate([np.zeros(0), *(block.gradient(part) for block, part in self._blocks(x))])

    def information(self, x: Array) -> Array:
        """The information of complete counts, shape (K, K), block diagonal."""
        return block_diag(*(block.information(part) for block, part in self._blocks(x)))

    def solve(self, x: Array, v: Array) -> Array:
        """information⁺ v."""
        pairs = zip(self._blocks(x), self.families[0].split(v), strict=True)
        return np.concatenate([np.zeros(0), *(block.solve(part, piece) for (block, part), piece in pairs)])

    def shrunk(self, x: Array) -> tuple[tuple[Family, ...], dict[str, float]] | None:
        """The families with priors learned from these statistics, and the priors' strengths; None where all are given."""
        first = self.families[0].shrunk(x, self._tables[0][1])
        if first is None:
            return None
        if len(self._tables) > 1:
            raise ProblemError(
                "a prior is learned from problems that share features and classes of steps, and these do not: give ridge or "
                "strength as numbers, or pool=False"
            )
        total = self._tables[0][1]
        others = [family.shrunk(x, total) for family in self.families[1:]]
        return (first[0], *(found[0] for found in others if found is not None)), first[1]

    def vanishing(self, x: Array, least: float) -> list[tuple[str, Array]]:
        """Probabilities under which fewer than ``least`` individuals are expected, with the direction of x that moves each alone."""
        found = []
        start = 0
        for k, (block, part) in enumerate(self._blocks(x)):
            for label, direction in block.prior.vanishing(part, sum(n for _, n in block.terms), least):
                padded = np.zeros(len(x))
                padded[start : start + len(part)] = direction
                found.append((self.families[0].named(k, [label])[0], padded))
            start += len(part)
        return found

    def maximise(self, x: Array) -> Array:
        """The M-step: argmax Q, from x."""
        return np.concatenate([np.zeros(0), *(block.maximise(part) for block, part in self._blocks(x))])


@dataclass(frozen=True)
class Block:
    """One component of every family with its table: functions of that component's parameters alone."""

    terms: list[tuple[Component, Any]]

    @property
    def prior(self) -> Component:
        """Whose prior counts: it is counted once."""
        return self.terms[0][0]

    def value(self, x: Array) -> float:
        return self.prior.log_prior(x) + sum(c.value(x, n) for c, n in self.terms)

    def gradient(self, x: Array) -> Array:
        return self.prior.prior_gradient(x) + sum(c.gradient(x, n) for c, n in self.terms)

    def scale(self, x: Array) -> Array:
        """The information's diagonal without centring."""
        return np.diagonal(self.prior.prior_information(x)) + sum(c.scale(x, n) for c, n in self.terms)

    def information(self, x: Array) -> Array:
        """−∂²Q/∂x²; exactly zero, not a rounding error, where nothing varies with a parameter."""
        total = sum((c.information(x, n) for c, n in self.terms), start=np.zeros((len(x), len(x))))
        still = np.diagonal(total) <= ROUNDING_SHARE * sum(c.scale(x, n) for c, n in self.terms)
        total[still, :] = total[:, still] = 0.0
        return total + self.prior.prior_information(x)

    def solve(self, x: Array, v: Array) -> Array:
        """(−∂²Q/∂x²)⁺ v."""
        found = self.prior.closed_solve(x, self.terms[0][1], v) if len(self.terms) == 1 else None
        return pseudo_solve(self.information(x), v) if found is None else found

    def closed(self, x: Array) -> Array | None:
        """argmax Q in closed form, if there is one."""
        return self.prior.closed_form(x, self.terms[0][1]) if len(self.terms) == 1 else None

    def maximise(self, x: Array) -> Array:
        """argmax Q from x."""
        found = self.closed(x)
        return self._newton(x) if found is None else found

    def _newton(self, x: Array) -> Array:
        """Newton's method with Levenberg–Marquardt damping: x ← x + (I + λS)⁻¹ g, S = `scale`.

        A plain Newton step from where every move is equally likely overshoots to where the information vanishes although the
        gradient does not. λ grows until the rise of Q is at least a quarter of what the quadratic model predicts.
        """
        damping = 0.0
        value, gradient = self.value(x), self.gradient(x)
        for _ in range(MOST_NEWTON_STEPS):
            information, scale = self.information(x), self.scale(x)
            # What nothing varies with has no gradient but rounding error, and is not moved.
            gradient = np.where(np.abs(gradient) <= ROUNDING_SHARE * (scale + np.sqrt(scale)), 0.0, gradient)
            step = pseudo_solve(information + np.diag((damping + NULL_SHARE) * scale), gradient)
            rise = float(gradient @ step - 0.5 * step @ information @ step)
            if not rise > NEWTON_TOLERANCE**2 * max(1.0, abs(value)):
                break
            new = x + step
            new_value, new_gradient = self.value(new), self.gradient(new)
            if rise <= 1e-9 * max(1.0, abs(value)):
                # Q's rounding error hides the rise; near the maximum the gradient says whether the step was good.
                good = bool(new_gradient @ step < 0.5 * gradient @ step) and np.isfinite(new_value)
                if not good or np.abs(new_gradient @ step) > 0.5 * float(gradient @ step):
                    break
                damping = 0.0
            else:
                ratio = (new_value - value) / rise
                good = bool(ratio > 0.1)
                damping = _next_damping(damping, ratio)
            if good:
                x, value, gradient = new, new_value, new_gradient
        return x


def _next_damping(damping: float, ratio: float) -> float:
    """λ after a step whose rise was ``ratio`` times the predicted one (NaN: the step left the domain)."""
    if not ratio > 0.25:
        return max(4 * damping, 1e-2)
    if ratio > 0.75:
        return 0.0 if damping <= 1e-3 else damping / 10
    return damping
