"""No noise: y = n."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from headcount.observe._base import Array, Fault, Observation


@dataclass(frozen=True, eq=False, kw_only=True)
class Exact(Observation):
    """y = n: the true count is seen. log l(y | n) = 0 at n = y and −inf elsewhere.

    It is a constraint, not a tiny variance: engines condition on it exactly, and it has no derivatives.
    """

    gaussian: ClassVar[bool] = True
    exact: ClassVar[bool] = True
    log_concave: ClassVar[bool] = True
    smooth: ClassVar[bool] = False
    whole: ClassVar[bool] = True

    def log_prob(self, n: ArrayLike) -> Array:
        """0 at n = y, −inf elsewhere."""
        return np.where(np.asarray(n, dtype=float) == self.counts, 0.0, -np.inf)

    def slope(self, n: ArrayLike) -> Array:
        """Refused: a constraint has no slope."""
        raise TypeError(
            "an exact count is a constraint and has no slope: condition on it (noise.exact says so)"
        )

    def curvature(self, n: ArrayLike) -> Array:
        """Refused: a constraint has no curvature."""
        raise TypeError(
            "an exact count is a constraint and has no curvature: condition on it (noise.exact says so)"
        )

    def sample(self, n: ArrayLike, *, rng: np.random.Generator) -> Array:
        """The counts themselves."""
        return np.array(n, dtype=float)

    def moments(self, n: ArrayLike) -> tuple[Array, Array]:
        """The mean n and no variance."""
        n = np.asarray(n, dtype=float)
        return n, np.zeros(n.shape)

    @property
    def domain_low(self) -> Array:
        """The count itself."""
        return np.array(self.counts, dtype=float)

    def faults(self, population: int) -> Iterator[Fault]:
        """Also y > N."""
        yield from super().faults(population)
        text = f"an exact count cannot exceed the population N = {population}; correct it or the population"
        yield Fault(self.counts > population, text, self.counts)
