r"""L-BFGS with a diagonal preconditioner, one step at a time, so that the driver can own the loop.

The two-loop recursion with :math:`H_0 = \gamma\operatorname{diag}(1/h)`, h a curvature estimate that the caller renews at every
point and :math:`\gamma = s^\top y / y^\top\operatorname{diag}(1/h)\,y` of the newest pair;
a step is accepted on sufficient decrease (Armijo) and halved otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from headcount._linalg import apply, fortran, forward_solve, product

if TYPE_CHECKING:
    from collections.abc import Callable

    from headcount._types import Array, Mask

    Box = tuple[Array, Array]
    """Lower and upper bounds."""


@dataclass(frozen=True)
class Point:
    """An evaluated point: variables, value, gradient, diagonal curvature, and whatever else the evaluation produced."""

    x: Array
    value: float
    gradient: Array
    curvature: Array
    extra: object = None
    box: Box | None = None
    rounding: float = 0.0
    """How far off the value may be: it is a small sum of large terms."""


def blocked(x: Array, gradient: Array, box: Box | None) -> Mask | None:
    """Variables at a bound that the gradient pushes further out; None without bounds."""
    if box is None:
        return None
    low, high = box
    return ((x <= low) & (gradient > 0)) | ((x >= high) & (gradient < 0))


SIZE = 10
"""Pairs that are remembered."""
FLAT = 1e-14
"""Cosine between a step and its change of gradient below which there is no curvature."""


@dataclass(frozen=True)
class Memory:
    """The last pairs (step, change of gradient), oldest first.

    They are rows ``[start, stop)`` of buffers that are only ever appended to, so that an older memory keeps its own.
    """

    steps: Array
    changes: Array
    products: Array
    """Lower triangle: change j · step k for k ≤ j."""
    start: int = 0
    stop: int = 0

    @classmethod
    def empty(cls, size: int) -> Memory:
        """No pairs of so many variables."""
        rows = 2 * SIZE
        return cls(np.empty((rows, size)), np.empty((rows, size)), np.zeros((rows, rows), order="F"))

    @property
    def pairs(self) -> tuple[Array, Array, Array]:
        """Steps and changes, one row per pair, and their products."""
        rows = slice(self.start, self.stop)
        return self.steps[rows], self.changes[rows], self.products[rows, rows]

    def push(self, old: Point, new: Point) -> Memory:
        """Remember a step; one without curvature is left out."""
        kept = self
        if self.stop == len(self.steps):
            kept = replace(Memory.empty(len(old.x)), stop=SIZE - 1)
            steps, changes, products = self.pairs
            for mine, theirs in zip(kept.pairs, (steps[1:], changes[1:], products[1:, 1:]), strict=True):
                mine[:] = theirs
        k = kept.stop
        step, change = kept.steps[k], kept.changes[k]
        np.subtract(new.x, old.x, out=step)
        np.subtract(new.gradient, old.gradient, out=change)
        row = apply(kept.steps[kept.start : k + 1].T, change, transpose=True)
        if not row[-1] > FLAT * math.sqrt(float(step @ step) * float(change @ change)):
            return self
        kept.products[k, kept.start : k + 1] = row
        return Memory(kept.steps, kept.changes, kept.products, max(k + 1 - SIZE, 0), k + 1)


ROUNDED = 1e3
"""Sums of very many terms are rounded by this many times what one of their size would be."""
LONGEST = 4.0
"""Largest change of a variable per step: variables are tilts or logs of counts, which change e⁴ = 55-fold."""
HALVINGS = 40
"""Of a step, at most: 2⁻⁴⁰ = 1e-12 of it is rounding."""
DECREASE, FLATTER = 1e-4, 0.9
"""Share of the decrease that the slope promises which a step must have, and share of the slope that may be left where values tell no
more: the usual constants of Armijo's and Wolfe's conditions (Nocedal & Wright 2006, Sec. 3.1)."""


@dataclass(frozen=True)
class Search:
    """Where the search stands."""

    point: Point
    memory: Memory
    failed: bool = False

    @classmethod
    def at(cls, point: Point) -> Search:
        """Start at a point."""
        return cls(point, Memory.empty(len(point.x)))

    @cached_property
    def way(self) -> Array:
        """−H g."""
        return direction(self.point, self.memory)


def direction(point: Point, memory: Memory) -> Array:
    """−H g by the two-loop recursion, on the variables that can move."""
    out = blocked(point.x, point.gradient, point.box)
    if out is None:
        return inverse_times(*memory.pairs, -point.gradient, lambda v: v / point.curvature)
    steps, changes, _ = memory.pairs
    s, y = np.where(out, 0.0, steps), np.where(out, 0.0, changes)
    sy = np.einsum("ki,ki->k", s, y)
    curved = sy > FLAT * np.sqrt(np.einsum("ki,ki->k", s, s) * np.einsum("ki,ki->k", y, y))
    free, s, y = np.where(out, 0.0, -point.gradient), s[curved], y[curved]
    return inverse_times(s, y, product(y.T, s.T, left=True), free, lambda v: v / point.curvature)


def inverse_times(
    steps: Array,
    changes: Array,
    products: Array,
    v: Array,
    initial: Callable[[Array], Array],
    *,
    scales: tuple[float, float] = (0.0, math.inf),
) -> Array:
    """H v of the two-loop recursion with its loops as products, one row of S and Y per pair.

    With R the upper triangle of S Yᵀ and D its diagonal: α = R⁻¹ S v, r = γ H₀ (v − Yᵀ α), H v = r + Sᵀ R⁻ᵀ (D α − Y r).
    ``initial`` multiplies by H₀; γ, which the newest pair tells, stays within ``scales``.
    """
    if not len(steps):
        return initial(v)
    s, y, lower = steps.T, changes.T, fortran(products)
    curved, newest = np.diagonal(lower), changes[-1]
    alpha = forward_solve(lower, apply(s, v, transpose=True)[:, None], transpose=True)[:, 0]
    scale = min(max(curved[-1] / max(float(newest @ initial(newest)), 1e-300), scales[0]), scales[1])
    made = scale * initial(v - apply(y, alpha))
    left = curved * alpha - apply(y, made, transpose=True)
    made += apply(s, forward_solve(lower, left[:, None])[:, 0])
    return made


def advance(search: Search, evaluate: Callable[[Array], Point]) -> Search:
    """One iteration; ``failed`` when no decrease can be found."""
    point, memory, d = search.point, search.memory, search.way
    slope = float(d @ point.gradient)
    if slope >= 0:
        memory = Memory.empty(len(point.x))
        d = direction(point, memory)
        slope = float(d @ point.gradient)
    length = min(1.0, LONGEST / max(float(np.abs(d).max(initial=0.0)), 1e-300))
    noise = 4e-16 * abs(point.value) + point.rounding
    for _ in range(HALVINGS):
        x = point.x + length * d
        if point.box is not None:
            x = np.clip(x, *point.box)
        new = evaluate(x)
        falls = new.value <= point.value + DECREASE * length * slope + noise
        # Where values differ by rounding alone, gradients still tell: nearer to the minimum along d the slope is smaller.
        if not falls and abs(new.value - point.value) <= ROUNDED * noise:
            falls = abs(float(d @ new.gradient)) <= FLATTER * -slope
        if falls and math.isfinite(new.value):
            return Search(new, memory.push(point, new))
        length *= 0.5
    return Search(point, Memory.empty(len(point.x)), failed=memory.stop == 0)
