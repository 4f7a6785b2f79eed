"""Readings of the count itself, y = n + error: without error, with a Gaussian one, or with the one that privacy mechanisms add."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_solve, cholesky, solve_triangular

from headcount.errors import ProblemError
from headcount.observe._base import Array, Fault, Numbers, Observation

_HALF_LOG_TWO_PI = 0.5 * np.log(2 * np.pi)


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


@dataclass(frozen=True, eq=False, kw_only=True)
class Gaussian(Observation):
    """y ~ N(n, sd²) entry by entry, or y ~ N(n, V) jointly.

    log l(y | n) = −½ ((y − n)/sd)² − log sd − ½ log 2 pi. With a covariance V = C Cᵀ the same holds for
    C⁻¹(y − n), so entry k of `log_prob` is the law of y_k given the entries before it and the sum is the
    joint density; `slope` and the diagonal returned by `curvature` are those of the sum.

    Parameters
    ----------
    sd
        Standard deviation > 0; one number, or one per entry.
    covariance
        V, (K, K) over the table's entries in C order (over the sums, if there are sums); with ``on=None``
        one for every variable alike, or (T, K, K). NaN counts are left out of it. Give `sd` or
        `covariance`, not both.
    """

    sd: Numbers = None
    covariance: Numbers = field(default=None, metadata={"per": "pair"})

    gaussian: ClassVar[bool] = True
    log_concave: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.sd is None) == (self.covariance is None):
            given = "neither" if self.sd is None else "both"
            raise ProblemError(f"Gaussian needs sd or covariance, one of the two; got {given}")

    @property
    def correlated(self) -> bool:
        """Whether a covariance was given."""
        return self.covariance is not None

    @property
    def gaussian_variance(self) -> Array:
        """sd², or V."""
        if self.covariance is not None:
            return np.asarray(self.covariance, float)
        return np.broadcast_to(np.square(np.asarray(self.sd, float)), np.shape(self.counts))

    def log_prob(self, n: ArrayLike) -> Array:
        """−½ ((y − n)/sd)² − log sd − ½ log 2 pi, after whitening if there is a covariance."""
        gap = self.counts - np.asarray(n, dtype=float)
        if self.covariance is None:
            return -0.5 * (gap / self.sd) ** 2 - np.log(self.sd) - _HALF_LOG_TWO_PI
        factor = cholesky(self.covariance, lower=True)
        white = _rows(lambda g: solve_triangular(factor, g, lower=True), gap)
        return -0.5 * white**2 - np.log(np.diag(factor)) - _HALF_LOG_TWO_PI

    def slope(self, n: ArrayLike) -> Array:
        """(y − n)/sd², or V⁻¹(y − n)."""
        gap = self.counts - np.asarray(n, dtype=float)
        if self.covariance is None:
            return gap / self.sd**2
        factor = cholesky(self.covariance, lower=True)
        return _rows(lambda g: cho_solve((factor, True), g), gap)

    def curvature(self, n: ArrayLike) -> Array:
        """−1/sd², or −diag V⁻¹."""
        shape = np.broadcast_shapes(np.shape(n), np.shape(self.counts))
        if self.covariance is None:
            return np.broadcast_to(-1 / self.sd**2, shape).copy()
        precision = cho_solve((cholesky(self.covariance, lower=True), True), np.eye(len(self.covariance)))
        return np.broadcast_to(-np.diag(precision), shape).copy()

    def sample(self, n: ArrayLike, *, rng: np.random.Generator) -> Array:
        """Draw y ~ N(n, sd²) or N(n, V)."""
        n = np.asarray(n, dtype=float)
        white = rng.standard_normal(np.broadcast_shapes(n.shape, np.shape(self.counts)))
        if self.covariance is None:
            return n + self.sd * white
        return n + white @ cholesky(self.covariance, lower=True).T

    def moments(self, n: ArrayLike) -> tuple[Array, Array]:
        """The mean n and the variance sd², or the diagonal of V."""
        n = np.asarray(n, dtype=float)
        own = self.sd**2 if self.covariance is None else np.diag(self.covariance)
        return n, np.broadcast_to(own, n.shape)

    @property
    def domain_low(self) -> Array:
        """−inf: every real n will do."""
        return np.full(np.shape(self.counts), -np.inf)

    def faults(self, population: int) -> Iterator[Fault]:
        """Also sd ≤ 0, and a covariance that is not one."""
        yield from super().faults(population)
        if self.sd is not None:
            yield Fault(self.sd <= 0, "sd must be > 0; for counts without error use Exact", self.sd)
        else:
            text = (
                "covariance must be finite, symmetric, positive definite; for counts without error use Exact"
            )
            bad = np.full(np.shape(self.counts), not _is_covariance(self.covariance))
            yield Fault(bad, text, np.diag(self.covariance))


def _rows(solve: Any, gap: Array) -> Array:
    """Apply a solver of column vectors to the last axis of `gap`."""
    columns = gap.reshape(-1, gap.shape[-1]).T
    return np.asarray(solve(columns)).T.reshape(gap.shape)


def _is_covariance(matrix: Array) -> bool:
    if not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T, rtol=1e-10, atol=0):
        return False
    try:
        cholesky(matrix, lower=True)
    except np.linalg.LinAlgError:
        return False
    return True


@dataclass(frozen=True, eq=False, kw_only=True)
class LaplaceNoise(Observation):
    """y = n + e, e ~ Laplace(b): log l(y | n) = −abs(y − n)/b − log 2b. Counts may be negative or fractional.

    A table released with epsilon-differential privacy and sensitivity s has b = s/epsilon. The law has a
    corner at n = y; the slope there is given as 0, its mean from both sides, and the curvature is 0
    everywhere.

    Parameters
    ----------
    scale
        b > 0; one number, or one per entry.
    """

    scale: Numbers

    log_concave: ClassVar[bool] = True
    smooth: ClassVar[bool] = False

    @property
    def laplace_scale(self) -> Array:
        """Of every entry."""
        return np.broadcast_to(np.asarray(self.scale, float), np.shape(self.counts))

    def log_prob(self, n: ArrayLike) -> Array:
        """−abs(y − n)/b − log 2b."""
        return -np.abs(self.counts - np.asarray(n, dtype=float)) / self.scale - np.log(2 * self.scale)

    def slope(self, n: ArrayLike) -> Array:
        """sign(y − n)/b."""
        return np.sign(self.counts - np.asarray(n, dtype=float)) / self.scale

    def curvature(self, n: ArrayLike) -> Array:
        """0; what bends is all in the corner."""
        return np.zeros(np.broadcast_shapes(np.shape(n), np.shape(self.counts)))

    def sample(self, n: ArrayLike, *, rng: np.random.Generator) -> Array:
        """Draw y ~ n + Laplace(b)."""
        n = np.asarray(n, dtype=float)
        return n + rng.laplace(0.0, self.scale, size=np.broadcast_shapes(n.shape, np.shape(self.counts)))

    def moments(self, n: ArrayLike) -> tuple[Array, Array]:
        """The mean n and the variance 2b²."""
        n = np.asarray(n, dtype=float)
        return n, np.broadcast_to(2.0 * np.asarray(self.scale) ** 2, n.shape)

    @property
    def domain_low(self) -> Array:
        """−inf: every real n will do."""
        return np.full(np.shape(self.counts), -np.inf)

    def faults(self, population: int) -> Iterator[Fault]:
        """Also scale ≤ 0."""
        yield from super().faults(population)
        yield Fault(self.scale <= 0, "scale must be > 0; for counts without error use Exact", self.scale)
