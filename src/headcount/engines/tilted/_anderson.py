r"""Anderson's mixing: the slow directions of a fixed-point iteration, seen in its last steps and left out.

With iterates :math:`x_k` and residuals :math:`r_k = F(x_k) - x_k`, the next iterate is

.. math:: x + \beta r - \sum_j \gamma_j\,(\Delta x_j + \beta\,\Delta r_j), \qquad
          \gamma\ \mathrm{minimising}\ \Bigl(r - \sum_j \gamma_j\,\Delta r_j\Bigr)^2,

the step to the root of the residual as the last differences draw it (Walker & Ni 2011, Eq. 2.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

MEMORY = 5
"""Differences kept."""
LEAST = 1e-10
"""Directions of the differences shorter than this share of the longest are rounding."""
FARTHEST = 30.0
"""How far the most trusted step goes, in plain steps."""
SHORTER = 0.5
"""What a step that misled leaves of that."""
LONGER, REGROWN = 1.5, 1.3
"""What a good step makes of it, and a good plain one."""


class Seen(NamedTuple):
    """An iterate and its residual."""

    x: Array
    r: Array


@dataclass(frozen=True)
class Trust:
    """How many times as far as the plain step a mixed one may go from it. Where the last steps draw no root, mixing leads back."""

    reach: float = FARTHEST

    @property
    def some(self) -> bool:
        """Whether a mixed step is worth trying."""
        return self.reach > 1.0

    def after(self, *, better: bool) -> Trust:
        """After a mixed step that was kept."""
        return Trust(min((LONGER if better else SHORTER) * self.reach, FARTHEST))

    def refused(self) -> Trust:
        """After a mixed step that was taken back."""
        return Trust(max(SHORTER * self.reach, 1.0))

    def after_plain(self, *, better: bool) -> Trust:
        """After a plain step."""
        return Trust(min(REGROWN * self.reach, FARTHEST)) if better else self


def mixed(past: tuple[Seen, ...], beta: Array, scaled: Callable[[Array], Array], trust: Trust) -> Array:
    """The next iterate after the last of ``past``, with an own β for every entry; ``scaled`` makes residuals comparable."""
    x, r = past[-1]
    dx = np.stack([b.x - a.x for a, b in pairwise(past)])
    dr = np.stack([b.r - a.r for a, b in pairwise(past)])
    gamma = np.linalg.lstsq(np.stack([scaled(d) for d in dr], axis=1), scaled(r), rcond=LEAST)[0]
    plain, more = beta * r, -gamma @ (dx + beta * dr)
    longest = trust.reach * float(np.linalg.norm(scaled(plain)))
    more *= min(1.0, longest / max(float(np.linalg.norm(scaled(more))), 1e-300))
    return np.asarray(x + plain + more)
