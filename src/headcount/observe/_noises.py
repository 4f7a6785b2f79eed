"""The noise models: counts of which each individual gives some on average, detected individuals, readings of the count itself."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.special import betainc, digamma, gammainc, gammaincc, log_ndtr, zeta

from headcount.checks import LARGEST_COUNT, brief
from headcount.errors import ProblemError
from headcount.numerics import poisson_log_pmf
from headcount.observe._base import SHARED, Array, Fault, Numbers, Observation, as_data

_HALF_LOG_TWO_PI = 0.5 * np.log(2 * np.pi)
_LARGE = 1e6
"""Above it psi(x) − log x is taken from its series: the subtraction loses half of the digits, the third term is below 1e-25."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Rated(Observation):
    """Noise around the mean m = rate · n + background."""

    rate: Numbers = 1.0
    background: Numbers = 0.0

    whole: ClassVar[bool] = True
    poisson_shaped: ClassVar[bool] = True
    positive: ClassVar[Mapping[str, str]] = {"rate": "mark what was not observed with NaN"}

    def mean(self, n: ArrayLike) -> Array:
        """The mean m = rate · n + background."""
        return np.asarray(self.rate * np.asarray(n, dtype=float) + self.background)

    def implied(self) -> Array:
        """(y − background)/rate."""
        return np.asarray((self.counts - self.background) / self.rate, dtype=float)

    def in_units(self, size: Array) -> tuple[Observation, float]:
        """A rate per unit."""
        return self.replaced({"rate": self.rate * size}), 0.0

    def steadier(self) -> Mapping[str, Observation]:
        """Binomial, where every individual gives at most one count and nothing else does."""
        rate = np.asarray(self.rate)
        if not (rate < 1.0).all() or np.any(self.background):
            return {}
        text = f"{float(rate.flat[0]):.3g}" if np.ptp(rate) == 0 else "rate"
        return {f"hc.Binomial(counts, detection={text})": Binomial(self.counts, detection=rate)}

    def faults(self, population: int) -> Iterator[Fault]:
        """Also background < 0."""
        yield from super().faults(population)
        yield Fault(self.background < 0, "background must be ≥ 0", self.background)


@dataclass(frozen=True, eq=False, kw_only=True)
class Poisson(Rated):
    """y ~ Poisson(m), m = rate · n + background.

    log l(y | n) = y log m − m − log y!. For y = 0 it is the straight line −m, and is continued as that line
    below n = 0: a Gaussian method that strays there sees the likelihood the paper's method sees. For y > 0
    it is −inf where m ≤ 0.

    Parameters
    ----------
    rate
        λ > 0: expected counts per individual present; one number, or one per entry.
    background
        λ₀ ≥ 0: expected counts when nobody is there.
    """

    keyword: ClassVar[str] = "poisson"
    words: ClassVar[str] = "Poisson counts"
    learned: ClassVar[str] = "rate"
    log_concave: ClassVar[bool] = True

    def log_prob(self, n: ArrayLike) -> Array:
        """The law y log m − m − log y!, by Loader's form; −m at y = 0 for every real n."""
        mean = self.mean(n)
        above = np.where(mean > 0, poisson_log_pmf(self.counts, np.maximum(mean, 0.0)), -np.inf)
        return np.where(self.counts == 0, -mean, above)

    def slope(self, n: ArrayLike) -> Array:
        """The slope rate · (y/m − 1)."""
        mean = self.mean(n)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.counts == 0, -self.rate, self.rate * ((self.counts - mean) / mean))

    def curvature(self, n: ArrayLike) -> Array:
        """−y (rate/m)²."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.counts == 0, 0.0, -self.counts * (self.rate / self.mean(n)) ** 2)

    def sample(self, n: ArrayLike, *, rng: np.random.Generator) -> Array:
        """Draw y ~ Poisson(m)."""
        return rng.poisson(self.mean(n)).astype(float)

    def log_tail(self, n: ArrayLike, up: NDArray[np.bool_]) -> Array:
        """The regularised Gamma functions P(y, m) where `up`, Q(y + 1, m) elsewhere."""
        y, m = self.counts, np.maximum(self.mean(n), 0.0)
        tail = np.where(up, gammainc(np.maximum(y, 1.0), m), gammaincc(y + 1.0, m))
        return self._log_of_tail(tail, n, up)

    def moments(self, n: ArrayLike) -> tuple[Array, Array]:
        """Both are m."""
        mean = self.mean(n)
        return mean, mean

    @property
    def domain_low(self) -> Array:
        """−background/rate (excluded) where y > 0; −inf where y = 0."""
        return np.where(self.counts == 0, -np.inf, -self.background / self.rate)

    def linear(self) -> NDArray[np.bool_]:
        """Where y = 0: slope −rate."""
        return np.asarray(self.counts == 0)

    def concave_part(self, n0: ArrayLike) -> tuple[Array, Array, Array]:
        """(y, rate, background/rate): exact, whatever n0."""
        shape = np.shape(self.counts)
        return (
            self.counts,
            np.broadcast_to(self.rate, shape),
            np.broadcast_to(self.background / self.rate, shape),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class NegativeBinomial(Rated):
    """y ~ NB(m, r): mean m = rate · n + background, variance m + m²/r, r the dispersion.

    log l(y | n) = log Gamma(y + r) − log Gamma(r) − log y! + r log(r/(r + m)) + y log(m/(r + m)),
    −inf where m < 0 and, for y > 0, where m = 0. It is not concave in n: beyond m ≈ y it turns convex.

    Parameters
    ----------
    dispersion
        r > 0; the larger, the nearer to Poisson.
    rate
        Expected counts per individual present, > 0.
    background
        Expected counts when nobody is there, ≥ 0.
    """

    dispersion: Numbers

    keyword: ClassVar[str] = "negative-binomial"
    words: ClassVar[str] = "negative binomial counts"
    positive: ClassVar[Mapping[str, str]] = {**Rated.positive, "dispersion": "for none, use Poisson"}

    def log_prob(self, n: ArrayLike) -> Array:
        """The law above as r/(r + y) · Bin(y; y + r, m/(r + m)), a quotient of three Poisson laws.

        Poisson(r; s r) Poisson(y; s m) / Poisson(y + r; y + r) with s = (y + r)/(r + m): each by Loader's
        form, and the distance r (m − y)/(r + m) between argument and mean handed over, since r may dwarf
        both.
        """
        y, r = self.counts, self.dispersion
        mean = self.mean(n)
        inside = mean >= 0
        m = np.where(inside, mean, 0.0)
        scale = (y + r) / (r + m)
        gap = r * (y - m) / (r + m)
        total = y + r
        log_ratio = poisson_log_pmf(r, scale * r, -gap) + poisson_log_pmf(y, scale * m, gap)
        value = log_ratio - poisson_log_pmf(total, total, np.zeros(np.shape(total))) + np.log(r / total)
        value = np.where(y == 0, -r * np.log1p(m / r), value)
        return np.where(inside, value, -np.inf)

    def slope(self, n: ArrayLike) -> Array:
        """The slope rate · r (y − m)/(m (r + m)); for y = 0, −rate · r/(r + m)."""
        y, r, m = self.counts, self.dispersion, self.mean(n)
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.rate * np.where(y == 0, -r / (r + m), r * (y - m) / (m * (r + m)))

    def curvature(self, n: ArrayLike) -> Array:
        """rate² · ((y + r)/(r + m)² − y/m²)."""
        y, r, m = self.counts, self.dispersion, self.mean(n)
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.rate**2 * ((y + r) / (r + m) ** 2 - np.where(y == 0, 0.0, y / m**2))

    def sample(self, n: ArrayLike, *, rng: np.random.Generator) -> Array:
        """Draw a rate ~ Gamma(r, m/r), then y ~ Poisson(rate)."""
        return rng.poisson(rng.gamma(self.dispersion, self.mean(n) / self.dispersion)).astype(float)

    def log_tail(self, n: ArrayLike, up: NDArray[np.bool_]) -> Array:
        """The regularised Beta functions of q = m/(r + m): I_q(y, r) where `up`, I_{1−q}(r, y + 1) elsewhere."""
        y, r, m = self.counts, self.dispersion, np.maximum(self.mean(n), 0.0)
        tail = np.where(up, betainc(np.maximum(y, 1.0), r, m / (r + m)), betainc(r, y + 1.0, r / (r + m)))
        return self._log_of_tail(tail, n, up)

    def moments(self, n: ArrayLike) -> tuple[Array, Array]:
        """The mean m and the variance m + m²/r."""
        mean = self.mean(n)
        return mean, mean + mean**2 / self.dispersion

    @property
    def domain_low(self) -> Array:
        """−background/rate; itself included only where y = 0."""
        return np.broadcast_to(-self.background / self.rate, np.shape(self.counts)).astype(float)

    def concave_part(self, n0: ArrayLike) -> tuple[Array, Array, Array]:
        """(y, (y + r) rate/(r + m(n0)), background/rate).

        The convex part −(y + r) log(r + m) is replaced by its tangent at n0.
        """
        y, r = self.counts, self.dispersion
        pull = (y + r) * self.rate / (r + self.mean(n0))
        return y, pull, np.broadcast_to(self.background / self.rate, np.shape(y))


@dataclass(frozen=True, eq=False, kw_only=True)
class Binomial(Observation):
    """y ~ Bin(n, p), continued to real n ≥ y by the Gamma function.

    log l(y | n) = log Gamma(n + 1) − log Gamma(n − y + 1) − log y! + y log p + (n − y) log(1 − p), −inf
    where n < y. For y = 0 it is the straight line n log(1 − p), continued below n = 0 as for Poisson noise.

    Parameters
    ----------
    detection
        p, strictly between 0 and 1; one number, or one per entry.
    """

    detection: Numbers

    keyword: ClassVar[str] = "binomial"
    words: ClassVar[str] = "binomial counts"
    learned: ClassVar[str] = "detection"
    log_concave: ClassVar[bool] = True
    whole: ClassVar[bool] = True

    def log_prob(self, n: ArrayLike) -> Array:
        """Poisson(y; np) Poisson(n − y; n(1 − p)) / Poisson(n; n), each by Loader's form."""
        y, p = self.counts, self.detection
        n = np.asarray(n, dtype=float)
        inside = n >= y
        m = np.where(inside, n, y)
        gap = y - m * p
        value = (
            poisson_log_pmf(y, m * p, gap)
            + poisson_log_pmf(m - y, m * (1 - p), -gap)
            - poisson_log_pmf(m, m, 0 * m)
        )
        return np.where(y == 0, n * np.log1p(-p), np.where(inside, value, -np.inf))

    def slope(self, n: ArrayLike) -> Array:
        """psi(n + 1) − psi(n − y + 1) + log(1 − p).

        With psi(x) = log x + e(x) this is log1p((y − p (n + 1))/(n + 1 − y)) + e(n + 1) − e(n − y + 1):
        near the mode the logarithms cancel, and the difference is what matters.
        """
        y, p = self.counts, self.detection
        n = np.asarray(n, dtype=float)
        m = np.where((n >= y) & (y > 0), n, y)
        near = np.log1p((y - p * (m + 1)) / (m + 1 - y))
        value = near + _digamma_rest(m + 1) - _digamma_rest(m + 1 - y)
        return np.where(y == 0, np.log1p(-p), np.where(n >= y, value, np.nan))

    def curvature(self, n: ArrayLike) -> Array:
        """psi'(n + 1) − psi'(n − y + 1), psi'(x) = zeta(2, x)."""
        y = self.counts
        n = np.asarray(n, dtype=float)
        m = np.where((n >= y) & (y > 0), n, y)
        value = zeta(2.0, m + 1) - zeta(2.0, m + 1 - y)
        return np.where(y == 0, 0.0, np.where(n >= y, value, np.nan))

    def implied(self) -> Array:
        """y/p."""
        return np.asarray(self.counts / self.detection, dtype=float)

    def sample(self, n: ArrayLike, *, rng: np.random.Generator) -> Array:
        """Draw y ~ Bin(n, p); n must be whole."""
        n = np.asarray(n, dtype=float)
        if (n != np.rint(n)).any() or (n < 0).any() or (n > LARGEST_COUNT).any():
            raise ValueError(
                "binomial counts are drawn from whole numbers of individuals from 0 to 2**53: round n first"
            )
        return rng.binomial(n.astype(np.int64), self.detection).astype(float)

    def log_tail(self, n: ArrayLike, up: NDArray[np.bool_]) -> Array:
        """The regularised Beta functions I_p(y, n − y + 1) where `up`, I_{1−p}(n − y, y + 1) elsewhere; 1 of the latter where n ≤ y."""
        y, p = self.counts, self.detection
        n = np.asarray(n, dtype=float)
        at_least = betainc(np.maximum(y, 1.0), np.maximum(n - y, 0.0) + 1.0, p)
        at_most = np.where(n > y, betainc(np.maximum(n - y, 1e-300), y + 1.0, 1 - p), 1.0)
        return self._log_of_tail(np.where(up, np.where(n >= y, at_least, 0.0), at_most), n, up)

    def moments(self, n: ArrayLike) -> tuple[Array, Array]:
        """The mean np and the variance np(1 − p)."""
        mean = np.asarray(n, dtype=float) * self.detection
        return mean, mean * (1 - self.detection)

    @property
    def domain_low(self) -> Array:
        """The count itself (included) where y > 0; −inf where y = 0."""
        return np.where(self.counts == 0, -np.inf, self.counts)

    def linear(self) -> NDArray[np.bool_]:
        """Where y = 0: slope log(1 − p)."""
        return np.asarray(self.counts == 0)

    def faults(self, population: int) -> Iterator[Fault]:
        """Also p outside (0, 1) and y > N."""
        yield from super().faults(population)
        p = self.detection
        yield Fault((p <= 0) | (p > 1), "detection must lie strictly between 0 and 1", p)
        yield Fault(p == 1, "detection = 1 means every individual is counted: use Exact", p)
        text = f"a detected count cannot exceed the population N = {population}; correct it or the population"
        yield Fault(self.counts > population, text, self.counts)


def _digamma_rest(x: Array) -> Array:
    """e(x) = psi(x) − log x; by −1/(2x) − 1/(12x²) where the subtraction would leave only rounding."""
    large = x > _LARGE
    small = np.where(large, 1.0, x)
    return np.where(large, -0.5 / x - 1 / (12 * x * x), digamma(small) - np.log(small))


@dataclass(frozen=True, eq=False, kw_only=True)
class Exact(Observation):
    """y = n: the true count is seen. log l(y | n) = 0 at n = y and −inf elsewhere.

    It is a constraint, not a tiny variance: engines condition on it exactly, and it has no derivatives.
    """

    keyword: ClassVar[str] = "exact"
    words: ClassVar[str] = "exact counts"
    gaussian: ClassVar[bool] = True
    exact: ClassVar[bool] = True
    log_concave: ClassVar[bool] = True
    smooth: ClassVar[bool] = False
    whole: ClassVar[bool] = True

    @classmethod
    def of_shares(cls, shares: Any, *, population: int = 100_000) -> Exact:
        """Counts of a population from shares or relative abundances: the nearest whole numbers that add up to it in every row.

        The population says nothing but how finely shares are told apart: learn a scatter with it, ``dispersion="estimate:phi"``. The shares
        then tell as much as N/phi individuals that move alone would, beside tags and other observations, whatever N is.

        Parameters
        ----------
        shares
            Numbers ≥ 0 by time and cell, labelled or not; every row is divided by its sum. NaN: not observed, in whole rows.
        population
            N, as it is then told to ``Problem``.

        Examples
        --------
        >>> Exact.of_shares([[0.2, 0.2, 0.2], [3.0, 1.0, 0.0]], population=1000).counts.tolist()
        [[334.0, 333.0, 333.0], [750.0, 250.0, 0.0]]
        """
        seen = cls(shares)
        values = np.asarray(seen.counts, dtype=float)
        missing, total = np.isnan(values), values.sum(axis=-1, keepdims=True)
        if values.ndim != 2 or (values < 0).any() or (total <= 0).any() or (missing != np.isnan(total)).any():
            raise ProblemError(
                "shares are numbers ≥ 0 by time and cell, with a sum above 0 at every time, or NaN in all cells"
            )
        whole = np.floor(population * values / total)
        rank = np.argsort(np.argsort(whole - population * values / total, kind="stable"))
        return seen.replaced({"counts": whole + (rank < population - whole.sum(axis=1, keepdims=True))})

    def in_units(self, size: Array) -> tuple[Observation, float]:
        """The count in units; a fraction where it is no multiple, which the problem refuses."""
        return self.replaced({"counts": np.asarray(self.counts) / size}), 0.0

    def log_prob(self, n: ArrayLike) -> Array:
        """0 at n = y, −inf elsewhere."""
        return np.where(np.asarray(n, dtype=float) == self.counts, 0.0, -np.inf)

    def log_tail(self, n: ArrayLike, up: NDArray[np.bool_]) -> Array:
        """0 where the true count is within the bound, −inf elsewhere."""
        n = np.asarray(n, dtype=float)
        return np.where(np.where(up, n >= self.counts, n <= self.counts), 0.0, -np.inf)

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

    keyword: ClassVar[str] = "gaussian"
    words: ClassVar[str] = "counts with Gaussian noise"
    gaussian: ClassVar[bool] = True
    log_concave: ClassVar[bool] = True
    any_real: ClassVar[bool] = True
    positive: ClassVar[Mapping[str, str]] = {"sd": "for counts without error use Exact"}

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

    def in_units(self, size: Array) -> tuple[Observation, float]:
        """Readings and errors in units: N(y; c m, v) = N(y/c; m, v/c²)/c."""
        changed: dict[str, Any] = {"counts": np.asarray(self.counts) / size}
        if self.correlated:
            changed["covariance"] = np.asarray(self.covariance) / np.outer(size, size)
        else:
            changed["sd"] = self.sd / size
        return self.replaced(changed), -float(np.log(size).sum())

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

    def log_tail(self, n: ArrayLike, up: NDArray[np.bool_]) -> Array:
        """log Phi of how far n is inside the bound, in units of sd; bounds on readings with a covariance are refused."""
        if self.covariance is not None:
            raise ProblemError(
                "bounds are read one by one: give Gaussian readings with bounds an sd, no covariance"
            )
        return np.asarray(
            log_ndtr(np.where(up, 1.0, -1.0) * (np.asarray(n, dtype=float) - self.counts) / self.sd)
        )

    def moments(self, n: ArrayLike) -> tuple[Array, Array]:
        """The mean n and the variance sd², or the diagonal of V."""
        n = np.asarray(n, dtype=float)
        own = self.sd**2 if self.covariance is None else np.diag(self.covariance)
        return n, np.broadcast_to(own, n.shape)

    def faults(self, population: int) -> Iterator[Fault]:
        """Also a covariance that is not one."""
        yield from super().faults(population)
        if self.covariance is not None and not _is_covariance(self.covariance):
            text = (
                "covariance must be finite, symmetric, positive definite; for counts without error use Exact"
            )
            yield Fault(np.ones(np.shape(self.counts), dtype=bool), text, np.diag(self.covariance))


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

    keyword: ClassVar[str] = "laplace"
    words: ClassVar[str] = "counts with Laplace noise"
    log_concave: ClassVar[bool] = True
    smooth: ClassVar[bool] = False
    any_real: ClassVar[bool] = True
    positive: ClassVar[Mapping[str, str]] = {"scale": "for counts without error use Exact"}

    @property
    def corner_slopes(self) -> tuple[Array, Array]:
        """−1/b above y and 1/b below it."""
        steep = np.broadcast_to(1 / np.asarray(self.scale, float), np.shape(self.counts))
        return -steep, steep

    def in_units(self, size: Array) -> tuple[Observation, float]:
        """Readings and scales in units."""
        changed = {"counts": np.asarray(self.counts) / size, "scale": self.scale / size}
        return self.replaced(changed), -float(np.log(size).sum())

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

    def log_tail(self, n: ArrayLike, up: NDArray[np.bool_]) -> Array:
        """−z − log 2 for n that is z scales outside the bound, log(1 − e^{−z}/2) for n that is z scales inside it."""
        inside = np.where(up, 1.0, -1.0) * (np.asarray(n, dtype=float) - self.counts) / self.scale
        return np.where(inside < 0, inside - np.log(2.0), np.log1p(-0.5 * np.exp(-np.abs(inside))))

    def moments(self, n: ArrayLike) -> tuple[Array, Array]:
        """The mean n and the variance 2b²."""
        n = np.asarray(n, dtype=float)
        return n, np.broadcast_to(2.0 * np.asarray(self.scale) ** 2, n.shape)


@dataclass(frozen=True, eq=False)
class Censored(Observation):
    """Bounds on readings of any noise: y ≥ counts (``side`` 1) or y ≤ counts (``side`` −1), counts those of `noise`.

    log l = log P(y ≥ counts | n) or log P(y ≤ counts | n), as the noise's `log_tail` says; bounds of `Exact` are bounds on n itself.

    >>> import headcount as hc
    >>> at_least_61 = hc.Censored(hc.Binomial([61.0], detection=0.5))
    >>> at_least_61.log_prob([121.0]).round(6)  # as likely as not
    array([-0.693147])

    There is no reading to hold against the model: the check of fit leaves these entries out.

    Parameters
    ----------
    noise
        The noise of the readings, with the bounds as its counts; its other parameters and its tables (`on`, `sums`) as without bounds.
    side
        1 where the count is a lower bound, −1 where it is an upper bound; one number, or one per entry.
    """

    noise: Observation = field(metadata={"per": "all"})
    side: Numbers = field(default=1.0, kw_only=True)
    counts: Numbers = field(init=False)
    on: Any = field(init=False)
    sums: Numbers = field(init=False)

    bound: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.noise, Observation) or self.noise.bound:
            raise ProblemError(
                f"Censored takes a noise with the bounds as its counts, such as hc.Censored(hc.Poisson(bounds)); got {brief(self.noise)}"
            )
        for name in (*SHARED, "whole", "any_real", "smooth", "poisson_shaped"):
            object.__setattr__(self, name, getattr(self.noise, name))
        object.__setattr__(self, "side", as_data(self.side, "Censored(side=...)"))

    @property
    def name(self) -> str:
        """That of the noise, and that these are bounds."""
        return f"Censored {self.noise.name}"

    @property
    def family(self) -> tuple[Hashable, ...]:
        """That of the noise, for bounds."""
        return (type(self), *self.noise.family)

    @property
    def corner_slopes(self) -> tuple[Array, Array] | None:
        """Of bounds on the true count: no slope inside, any slope at the bound."""
        if not self.noise.exact:
            return None
        return np.where(self._up, 0.0, -np.inf), np.where(self._up, np.inf, 0.0)

    @property
    def _up(self) -> NDArray[np.bool_]:
        return np.broadcast_to(np.asarray(self.side) > 0, np.shape(self.counts))

    @property
    def _at_zero(self) -> NDArray[np.bool_]:
        """Where "0 or more" says nothing and "at most 0" is a reading of 0."""
        return np.asarray(self.whole & (self.counts == 0))

    def entry_parameters(self) -> dict[str, Any]:
        """Those of the noise, and the side."""
        return {**self.noise.entry_parameters(), "side": self.side}

    def pair_parameters(self) -> dict[str, Any]:
        """Those of the noise."""
        return self.noise.pair_parameters()

    def replaced(self, values: Mapping[str, Any]) -> Self:
        """A copy with some fields replaced, those of the noise in the noise."""
        own = {name: value for name, value in values.items() if name in (*SHARED, "side")}
        inner = {name: value for name, value in values.items() if name not in ("noise", "side")}
        return super().replaced({**own, "noise": values.get("noise", self.noise).replaced(inner)})

    def in_units(self, size: Array) -> tuple[Observation, float]:
        """Bounds in units; those on the true count stay such, whole or not."""
        if not self.noise.exact:
            return super().in_units(size)
        return Censored(self.noise.in_units(size)[0], side=self.side), 0.0

    def sample(self, n: ArrayLike, *, rng: np.random.Generator) -> Array:
        """Draw what would have been read without a bound."""
        return self.noise.sample(n, rng=rng)

    def moments(self, n: ArrayLike) -> tuple[Array, Array]:
        """NaN: there is nothing to hold against them."""
        nothing = np.full(np.broadcast_shapes(np.shape(n), np.shape(self.counts)), np.nan)
        return nothing, nothing

    def log_prob(self, n: ArrayLike) -> Array:
        """The logarithm of the probability of what the bound leaves; −inf below the domain."""
        n = np.asarray(n, dtype=float)
        low = self.domain_low
        inside = np.maximum(n, low)
        reading = self.noise.log_prob(n)
        with np.errstate(divide="ignore"):
            value = np.where(n >= low, self.noise.log_tail(inside, self._up), -np.inf)
        return np.where(self._at_zero, np.where(self._up, 0.0, reading), value)

    def slope(self, n: ArrayLike) -> Array:
        """By finite differences; 0 where the bound is one on the true count."""
        return super().slope(n) if not self.noise.exact else 0.0 * (np.asarray(n) + self.counts)

    def curvature(self, n: ArrayLike) -> Array:
        """By finite differences; 0 where the bound is one on the true count."""
        return super().curvature(n) if not self.noise.exact else 0.0 * (np.asarray(n) + self.counts)

    @property
    def domain_low(self) -> Array:
        """That of the noise for a lower bound, 0 for an upper one; −inf where log l is a line or reaches below 0."""
        upper = np.where(self._at_zero, self.noise.domain_low, super().domain_low)
        return np.where(self._up, np.where(self._at_zero, -np.inf, self.noise.domain_low), upper)

    def linear(self) -> NDArray[np.bool_]:
        """Where the bound says nothing, or is a reading of 0 with a straight line."""
        return np.asarray(self._at_zero & (self._up | self.noise.linear()))

    def concave_part(self, n0: ArrayLike) -> tuple[Array, Array, Array]:
        """That of the reading as it is expected within the bound: the bound of the EM algorithm.

        d log l/dn is the mean of the readings' slopes within the bound, and these are linear in the reading.
        """
        none, one = (
            self.noise.replaced({"counts": np.full(self.counts.shape, y)}).slope(n0) for y in (0.0, 1.0)
        )
        expected = np.maximum((self.slope(n0) - none) / (one - none), 0.0)
        a, b, s = self.noise.replaced({"counts": expected}).concave_part(n0)
        silent = self._at_zero & self._up
        return np.where(self.linear(), 0.0, a), np.where(silent, 0.0, b), s

    def faults(self, population: int) -> Iterator[Fault]:
        """Those of the noise, and a side that is neither 1 nor −1. More than N is no fault of an upper bound."""
        readings = np.where(self._up, self.counts, np.minimum(self.counts, population))
        yield from self.noise.replaced({"counts": readings}).faults(population)
        side = np.asarray(self.side)
        yield Fault(np.abs(side) != 1, "side must be 1 (at least) or -1 (at most)", side)


NOISES: tuple[type[Observation], ...] = (
    Poisson,
    Binomial,
    NegativeBinomial,
    Gaussian,
    LaplaceNoise,
    Exact,
)
"""Every noise model of the library; each says its name, parameters and words."""
