"""The noise models: counts of which each individual gives some on average, detected individuals, readings of the count itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.special import digamma, gammainc, gammaincc

from headcount.checks import LARGEST_COUNT
from headcount.errors import ProblemError
from headcount.numerics import poisson_log_pmf
from headcount.observe._base import Array, Fault, Numbers, Observation

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
class Censored(Rated):
    """A bound on a count: y ≥ counts (``side`` 1) or y ≤ counts (``side`` −1), y ~ Poisson(m), m = rate · n + background.

    log l = log P(c, m), the regularised lower Gamma function, or log Q(c + 1, m): laws of a Gamma variable at m, and so concave in n;
    but their slopes reach 0 nowhere, so that `log_concave`, by which `MAP` inverts slopes, is not said of them.

    There is no reading to hold against the model: the check of fit leaves these entries out.

    Parameters
    ----------
    side
        1 where the count is a lower bound, −1 where it is an upper bound; one number, or one per entry.
    rate, background
        As for `Poisson`.
    """

    side: Numbers = 1.0

    bound: ClassVar[bool] = True

    def sample(self, n: ArrayLike, *, rng: np.random.Generator) -> Array:
        """Draw y ~ Poisson(m): what would have been read without a bound."""
        return rng.poisson(self.mean(n)).astype(float)

    def moments(self, n: ArrayLike) -> tuple[Array, Array]:
        """NaN: there is nothing to hold against them."""
        nothing = np.full(np.broadcast_shapes(np.shape(n), np.shape(self.counts)), np.nan)
        return nothing, nothing

    def steadier(self) -> Mapping[str, Observation]:
        """None: a bound does not scatter."""
        return {}

    def log_prob(self, n: ArrayLike) -> Array:
        """The logarithm of the probability of what the bound leaves; −inf where m < 0, and at m = 0 of a lower bound above 0."""
        mean = self.mean(n)
        m, c, up = np.maximum(mean, 0.0), self.counts, np.asarray(self.side) > 0
        found = np.where(
            up & (c == 0), 1.0, np.where(up, gammainc(np.maximum(c, 1.0), m), gammaincc(c + 1.0, m))
        )
        with np.errstate(divide="ignore"):
            value = np.where(found > _TINY, np.log(np.maximum(found, _TINY)), _far_tail(c, m, up))
        return np.where(
            (mean >= 0) | self.linear(), np.where(self.linear(), np.where(up, 0.0, -mean), value), -np.inf
        )

    def _hazard(self, n: ArrayLike) -> tuple[Array, Array, Array]:
        """h = |d log l/dm|, m, and the count whose probability is in it: c − 1 of a lower bound, c of an upper one."""
        m, up = np.maximum(self.mean(n), 1e-300), np.asarray(self.side) > 0
        last = np.where(up, np.maximum(self.counts - 1.0, 0.0), self.counts)
        return np.exp(poisson_log_pmf(last, m) - self.log_prob(n)), m, last

    def slope(self, n: ArrayLike) -> Array:
        """rate · h of a lower bound, −rate · h of an upper one."""
        h, _, _ = self._hazard(n)
        up = np.asarray(self.side) > 0
        return np.where(self.linear(), np.where(up, 0.0, -self.rate), np.where(up, 1.0, -1.0) * self.rate * h)

    def curvature(self, n: ArrayLike) -> Array:
        """rate² · (h (k/m − 1) − h²) of a lower bound, −rate² · (h (k/m − 1) + h²) of an upper one, k the count in h."""
        h, m, last = self._hazard(n)
        sign = np.where(np.asarray(self.side) > 0, 1.0, -1.0)
        value = self.rate**2 * (sign * h * (last / m - 1.0) - h**2)
        return np.where(self.linear(), 0.0, np.minimum(value, 0.0))

    @property
    def domain_low(self) -> Array:
        """−background/rate; −inf where log l is a line."""
        low = np.broadcast_to(-self.background / self.rate, np.shape(self.counts))
        return np.where(self.linear(), -np.inf, low)

    def concave_part(self, n0: ArrayLike) -> tuple[Array, Array, Array]:
        """(E[y | the bound, n0], rate, background/rate): the bound of the EM algorithm, a Poisson count as it is expected to be."""
        expected = self.mean(n0) * (1.0 + self.slope(n0) / self.rate)
        shape = np.shape(self.counts)
        return (
            np.where(self.linear(), 0.0, np.maximum(expected, 0.0)),
            np.broadcast_to(self.rate, shape)
            * np.where(self.linear() & (np.asarray(self.side) > 0), 0.0, 1.0),
            np.broadcast_to(self.background / self.rate, shape),
        )

    def linear(self) -> NDArray[np.bool_]:
        """Where the bound is 0: "0 or more" says nothing, "at most 0" is Poisson zero."""
        return np.asarray(self.counts == 0)

    def faults(self, population: int) -> Iterator[Fault]:
        """Also a side that is neither 1 nor −1."""
        yield from super().faults(population)
        side = np.asarray(self.side)
        yield Fault(np.abs(side) != 1, "side must be 1 (at least) or -1 (at most)", side)


_TINY = 1e-290
"""Probability below which the Gamma functions underflow and a tail is summed term by term."""


def _far_tail(c: Array, m: Array, up: Any) -> Array:
    """log P(Y ≥ c), or log P(Y ≤ c), far out in the tail: the first term, and the sum of the others over it."""
    c, m, up = np.broadcast_arrays(np.asarray(c, dtype=float), m, up)
    far = np.where(up, m < c, m > c) & (m > 0)
    at = np.where(far, m, np.where(up, 0.5 * c, 2 * c + 1) + 1e-300)
    total, term = np.ones(c.shape), np.ones(c.shape)
    for k in range(MOST_TERMS):
        term = term * np.where(up, at / (c + 1.0 + k), np.maximum(c - k, 0.0) / at)
        total += term
        if (term < 1e-16 * total).all():
            break
    return np.where(far, poisson_log_pmf(c, at) + np.log(total), -np.inf)


MOST_TERMS = 100_000
"""Terms of such a sum, at most: their ratio is at most 1 − 36/√c where the first one is below `_TINY`, so that c = 1e6 needs 1 000."""


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
        """psi'(n + 1) − psi'(n − y + 1)."""
        y = self.counts
        n = np.asarray(n, dtype=float)
        m = np.where((n >= y) & (y > 0), n, y)
        value = _trigamma(m + 1) - _trigamma(m + 1 - y)
        return np.where(y == 0, 0.0, np.where(n >= y, value, np.nan))

    def sample(self, n: ArrayLike, *, rng: np.random.Generator) -> Array:
        """Draw y ~ Bin(n, p); n must be whole."""
        n = np.asarray(n, dtype=float)
        if (n != np.rint(n)).any() or (n < 0).any() or (n > LARGEST_COUNT).any():
            raise ValueError(
                "binomial counts are drawn from whole numbers of individuals from 0 to 2**53: round n first"
            )
        return rng.binomial(n.astype(np.int64), self.detection).astype(float)

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


def _trigamma(x: Array) -> Array:
    """psi'(x) for x ≥ 1: twelve steps of psi'(x) = 1/x² + psi'(x + 1), then its series; to 1e-15, 20 times faster than zeta(2, x)."""
    total = np.zeros_like(x)
    for k in range(12):
        total += 1.0 / (x + k) ** 2
    z = x + 12.0
    square = 1.0 / (z * z)
    series = np.zeros_like(x)
    for coefficient in (5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6):
        series = (series + coefficient) * square
    return total + (1.0 + 0.5 / z + series) / z


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

    log_concave: ClassVar[bool] = True
    smooth: ClassVar[bool] = False
    any_real: ClassVar[bool] = True
    positive: ClassVar[Mapping[str, str]] = {"scale": "for counts without error use Exact"}

    @property
    def laplace_scale(self) -> Array:
        """Of every entry."""
        return np.broadcast_to(np.asarray(self.scale, float), np.shape(self.counts))

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

    def moments(self, n: ArrayLike) -> tuple[Array, Array]:
        """The mean n and the variance 2b²."""
        n = np.asarray(n, dtype=float)
        return n, np.broadcast_to(2.0 * np.asarray(self.scale) ** 2, n.shape)
