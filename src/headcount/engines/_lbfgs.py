r"""L-BFGS with a diagonal preconditioner, one step at a time, so that the driver can own the loop.

The two-loop recursion with :math:`H_0 = \operatorname{diag}(1/h)`, h a curvature estimate that the caller renews at every point;
a step is accepted on sufficient decrease (Armijo) and halved otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[np.float64]


@dataclass(frozen=True)
class Point:
    """An evaluated point: variables, value, gradient, diagonal curvature, and whatever else the evaluation produced."""

    x: Array
    value: float
    gradient: Array
    curvature: Array
    extra: object = None
    low: Array | None = None
    high: Array | None = None
    rounding: float = 0.0
    """How far off the value may be: it is a small sum of large terms."""

    def blocked(self) -> NDArray[np.bool_] | None:
        """Variables at a bound that the gradient pushes further out; None without bounds."""
        if self.low is None or self.high is None:
            return None
        return ((self.x <= self.low) & (self.gradient > 0)) | ((self.x >= self.high) & (self.gradient < 0))


@dataclass(frozen=True)
class Memory:
    """The last pairs (step, change of gradient)."""

    pairs: tuple[tuple[Array, Array, float], ...] = ()
    size: int = 10

    def push(self, s: Array, y: Array) -> Memory:
        """Remember a pair; one without curvature is left out."""
        sy = float(s @ y)
        if sy <= 1e-14 * float(np.sqrt((s @ s) * (y @ y))):
            return self
        return Memory((*self.pairs[-(self.size - 1) :], (s, y, 1.0 / sy)), self.size)


ROUNDED = 1e3
"""Sums of very many terms are rounded by this many times what one of their size would be."""


@dataclass(frozen=True)
class Search:
    """Where the search stands."""

    point: Point
    memory: Memory = field(default_factory=Memory)
    failed: bool = False


def direction(point: Point, memory: Memory) -> Array:
    """−H g by the two-loop recursion, on the variables that can move."""
    q = point.gradient.copy()
    blocked = point.blocked()
    if blocked is not None:
        q[blocked] = 0.0
    alphas = []
    for s, y, rho in reversed(memory.pairs):
        alpha = rho * float(s @ q)
        q -= alpha * y
        alphas.append(alpha)
    q /= point.curvature
    if memory.pairs:
        s, y, rho = memory.pairs[-1]
        q *= 1.0 / (rho * float(y @ (y / point.curvature)))
    for (s, y, rho), alpha in zip(memory.pairs, reversed(alphas), strict=True):
        q += (alpha - rho * float(y @ q)) * s
    if blocked is not None:
        q[blocked] = 0.0
    return -q


def advance(search: Search, evaluate: Callable[[Array], Point], *, longest: float = 4.0) -> Search:
    """One iteration; ``longest`` bounds the change of any variable. ``failed`` when no decrease can be found."""
    point, memory = search.point, search.memory
    d = direction(point, memory)
    slope = float(d @ point.gradient)
    if slope >= 0:
        memory = Memory(size=memory.size)
        d = direction(point, memory)
        slope = float(d @ point.gradient)
    length = min(1.0, longest / max(float(np.abs(d).max(initial=0.0)), 1e-300))
    noise = 4e-16 * abs(point.value) + point.rounding
    for _ in range(40):
        x = point.x + length * d
        if point.low is not None and point.high is not None:
            x = np.clip(x, point.low, point.high)
        new = evaluate(x)
        falls = new.value <= point.value + 1e-4 * length * slope + noise
        # Where values differ by rounding alone, gradients still tell: nearer to the minimum along d the slope is smaller.
        flat = (
            abs(new.value - point.value) <= ROUNDED * noise and abs(float(d @ new.gradient)) <= 0.9 * -slope
        )
        if np.isfinite(new.value) and (falls or flat):
            return Search(new, memory.push(new.x - point.x, new.gradient - point.gradient))
        length *= 0.5
    return Search(point, Memory(size=memory.size), failed=not memory.pairs)
