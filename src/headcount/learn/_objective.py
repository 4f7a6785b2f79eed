"""What an M-step maximises: complete-data log-likelihoods added over problems, and the prior once.

    Q(x) = Σ_problems Σ_components l(x; E[n | y]) + log prior(x)

Components do not share parameters, so each is solved by itself: in closed form where there is one, else by Newton
with Armijo's rule (Q is concave).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headcount.learn._component import Array, Component
from headcount.learn._family import Family
from headcount.learn._linear import pseudo_solve

Statistics = Sequence[tuple[Any, ...]]
"""By problem: what every component learns from."""

ROUNDING = 1e-12


@dataclass(frozen=True)
class Slot:
    """One component of every family, with what it learns from."""

    components: tuple[Component, ...]
    tables: tuple[Any, ...]

    @property
    def prior(self) -> Component:
        """Whose prior counts: it is counted once."""
        return self.components[0]

    def value(self, x: Array) -> float:
        """Q of this slot."""
        return self.prior.log_prior(x) + sum(c.value(x, n) for c, n in self._pairs())

    def gradient(self, x: Array) -> Array:
        """∂Q/∂x."""
        return self.prior.prior_gradient(x) + sum(c.gradient(x, n) for c, n in self._pairs())

    def information(self, x: Array) -> Array:
        """−∂²Q/∂x²; exactly zero, not a rounding error, where nothing varies with a parameter."""
        total = np.zeros((len(x), len(x)))
        scale = np.zeros(len(x))
        for c, n in self._pairs():
            total += c.information(x, n)
            scale += c.scale(x, n)
        still = np.diagonal(total) <= ROUNDING * scale
        total[still, :] = total[:, still] = 0.0
        return total + self.prior.prior_information(x)

    def _pairs(self) -> Sequence[tuple[Component, Any]]:
        return tuple(zip(self.components, self.tables, strict=True))

    @property
    def _alike(self) -> bool:
        return all(c.alike(self.prior) for c in self.components)

    def solve(self, x: Array, v: Array) -> Array:
        """(−∂²Q/∂x²)⁺ v."""
        found = self.prior.closed_solve(x, self.tables, v) if self._alike else None
        return pseudo_solve(self.information(x), v) if found is None else found

    def maximise(self, x: Array, *, tolerance: float = 1e-13, max_iterations: int = 200) -> Array:
        """argmax Q from x."""
        found = self.prior.closed_form(x, self.tables) if self._alike else None
        if found is not None:
            return found
        value = self.value(x)
        for _ in range(max_iterations):
            gradient = self.gradient(x)
            step = self.solve(x, gradient)
            gain = float(gradient @ step)
            if gain <= tolerance**2 * max(1.0, abs(value)) or not np.isfinite(gain):
                break
            length = 1.0
            while length > 1e-10:
                new = x + length * step
                new_value = self.value(new)
                if new_value >= value + 1e-4 * length * gain - 1e-14 * abs(value):
                    break
                length *= 0.5
            else:
                break
            moved = float(np.abs(new - x).max(initial=0.0))
            x, value = new, new_value
            if moved <= 1e-15 * max(1.0, float(np.abs(x).max(initial=0.0))):
                break
        return x


@dataclass(frozen=True)
class Objective:
    """Q of all slots at given statistics."""

    families: Sequence[Family]
    statistics: Statistics

    def slots(self) -> list[Slot]:
        """One a component, the families' side by side."""
        count = len(self.families[0].components)
        return [
            Slot(tuple(f.components[k] for f in self.families), tuple(s[k] for s in self.statistics))
            for k in range(count)
        ]

    def _by_slot(self, x: Array) -> list[tuple[Slot, Array]]:
        return list(zip(self.slots(), self.families[0].split(x), strict=True))

    def log_prior(self, x: Array) -> float:
        """log prior(x)."""
        return sum(slot.prior.log_prior(part) for slot, part in self._by_slot(x))

    def gradient(self, x: Array) -> Array:
        """∂Q/∂x at x: with statistics inferred at x itself, the gradient of log evidence + log prior."""
        return np.concatenate([np.zeros(0), *(slot.gradient(part) for slot, part in self._by_slot(x))])

    def information(self, x: Array) -> Array:
        """The information of complete counts, shape (K, K), block diagonal."""
        parts = [slot.information(part) for slot, part in self._by_slot(x)]
        total = np.zeros((len(x), len(x)))
        at = 0
        for part in parts:
            total[at : at + len(part), at : at + len(part)] = part
            at += len(part)
        return total

    def solve(self, x: Array, v: Array) -> Array:
        """information⁺ v."""
        pairs = zip(self._by_slot(x), self.families[0].split(v), strict=True)
        return np.concatenate([np.zeros(0), *(slot.solve(part, piece) for (slot, part), piece in pairs)])

    def maximise(self, x: Array) -> Array:
        """The M-step."""
        return np.concatenate([np.zeros(0), *(slot.maximise(part) for slot, part in self._by_slot(x))])
