"""How much of a sweep to take: less when matters get worse or go round in circles, more again when they go well."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

LEAST = 0.02
"""Sweeps are not shortened below this; what still grows then is let go and shows in the status."""
WORSE, SHORTER = 1.1, 0.7
"""A residual that grows by the one factor shortens the next sweep by the other."""
LONGER = 1.6
"""What a sweep that goes well lengthens the next by."""
LOWER = 0.9
"""What a sweep that goes badly leaves of the ceiling: what overshot once would do so again."""
NEAR = 0.3
"""Below this residual sweeps do not go round in circles; they may be slow, and shorter ones would be slower."""
IDLE, CIRCLING = 6, 0.6
"""So many sweeps without getting a tenth nearer than ever leave this much of the ceiling."""


@dataclass(frozen=True)
class Damping:
    """The fraction of a sweep to take, what it may grow back to, and how long nothing was gained."""

    length: float
    ceiling: float
    best: float = math.inf
    idle: int = 0

    def halved(self) -> Damping:
        """After a sweep that had to be taken back."""
        return replace(self, length=0.5 * self.length)

    def after(self, residual: float, *, before: float) -> Damping:
        """After a sweep that was kept."""
        if residual > WORSE * before:
            length = max(SHORTER * self.length, LEAST)
            ceiling = max(length, LOWER * self.ceiling)
        else:
            length, ceiling = min(LONGER * self.length, self.ceiling), self.ceiling
        if residual < max(0.9 * self.best, NEAR):
            return Damping(length, ceiling, residual, 0)
        if self.idle + 1 < IDLE:
            return Damping(length, ceiling, self.best, self.idle + 1)
        ceiling = max(CIRCLING * ceiling, LEAST)
        return Damping(min(length, ceiling), ceiling, self.best, 0)
