r"""Laws of the number of individuals N, for populations that nobody has counted; and `Group`, some of them with a model of their own.

=====================  ======================================================  ==========================================
said by the user       law of N                                                mean and variance
=====================  ======================================================  ==========================================
``About(m, sd=s)``     s² > m: negative binomial, size r = m²/(s² − m)         m, s²
                       s² = m: Poisson(m)                                      m, m
                       s² < m: exp(−(N − m)²/2s²) on whole numbers N ≥ 0       about m, about s²
``Between(a, b)``      every whole number from a to b equally probable         (a + b)/2, ((b − a + 1)² − 1)/12
``Unknown()``          logarithmic, p(N) ∝ q^N/N, N ≥ 1, with 1 − q = 1e-9     every order of magnitude up to 1e9 alike
=====================  ======================================================  ==========================================

Given N, counts have the law of N individuals, so that with :math:`\mu` the law of one of them

.. math:: E\,n_A = E[N]\,\mu_A, \qquad
          \operatorname{cov}(n_A, n_B) = E[N]\,\langle\mu_{AB}\rangle + (\operatorname{Var} N - E N)\,\mu_A\mu_B^\top .
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from headcount.checks import LARGEST_COUNT, finite_number, instance, whole_number
from headcount.individual import MarkovChain, Model, ModelError
from headcount.numerics import poisson_log_pmf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]

SAME_VARIANCE = 1e-6
"""Relative difference of a variance from the mean below which a law is Poisson: the negative binomial's size is then above 1e6 m."""
REACH, TAIL_SCALES = 7.0, 25.0
"""Half-width, in standard deviations and in scales var/mean of an exponential tail, of the sizes that are looked at: less than 1e-10 of
a law lies outside (e^(−25) = 1e-11)."""
RARE_END = 1e-9
"""1 − q of `Unknown`: sizes far above a billion are left out."""
LOG_SPAN = -math.log(RARE_END)
"""Σ q^N/N over N ≥ 1, the normaliser of `Unknown`."""
MOST_SUMMED = 100_000
"""Whole numbers over which a law is summed; wider ones have closed forms, or the integrals of the line, to 1e-16."""
LARGEST_TILT = 500.0
"""Tilts beyond this have no law: e^500 individuals."""
NEARLY_FLAT = 1e-4
"""Width times tilt up to which a cut-off geometric law has the first two terms of its series in the tilt: the next is 1e-9 of them."""
MOSTLY_EXCLUDED = 1e-3
"""Probability that enough individuals are there below which the law of the others is added up term by term."""
FAR_BEYOND = 1e3
"""Factor beyond mean and spread at which counts of a population of unknown size are cut off: no data reach there."""


VAGUE = 3.0
"""Relative standard deviation of a law of sizes above which the counts say better how many individuals are typical."""
STEEPEST_TILT, BISECTIONS = 700.0, 200
"""Largest tilt, e^700 being the largest number; and halvings of an interval after which float64 has no number between its ends."""


class SizeLaw(ABC):
    """The law of the number of individuals: its ``mean`` and ``variance``, and its ``text`` as the command line takes it."""

    others: int = 0
    """Individuals who are known to be there and are part of N."""
    mean_and_size: tuple[float, float] | None = None
    """Mean and size r of a Poisson (r infinite) or negative binomial law, whose mean can be learned; None of others."""

    if TYPE_CHECKING:  # fields of some laws, properties of others

        @property
        def mean(self) -> float: ...
        @property
        def variance(self) -> float: ...

    @abstractmethod
    def log_pmf(self, n: ArrayLike) -> Array:
        """log p(N = n); smooth in n between whole numbers, −inf outside the support."""

    @abstractmethod
    def sample(self, size: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
        """Independent draws."""

    @abstractmethod
    def cgf(self, a: float) -> Cumulants:
        r"""The cumulant generating function κ(a) = log E e^{aN}, κ'(a) and κ''(a).

        The last two are mean and variance of the tilted law p(N) e^{aN − κ(a)}. All are infinite where E e^{aN} is.
        """

    @property
    def is_known(self) -> bool:
        """Whether there is one number only."""
        return self.variance == 0

    @property
    def vague(self) -> bool:
        """Whether the counts say better than the law how many individuals are typical."""
        return bool(self.variance > (VAGUE * self.mean) ** 2)

    def tilt_to(self, mean: float) -> float:
        """The tilt a with κ'(a) = mean, by bisection; the law's least and largest numbers are not reached."""
        low, high = -1.0, 1.0

        def above(a: float) -> bool:
            found = self.cgf(a)[1]
            return not (np.isfinite(found) and found <= mean)

        while above(low) and low > -STEEPEST_TILT:
            low *= 2.0
        while not above(high) and high < STEEPEST_TILT:
            high *= 2.0
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if above(middle) else (middle, high)
        return low

    def in_units(self, size: float) -> SizeLaw:
        """The law of N/size, for individuals in flocks of that size: mean and standard deviation divided by it."""
        return About(self.mean / size, sd=math.sqrt(self.variance) / size).law

    @property
    def text(self) -> str:
        """As the command line takes it."""
        return f"{self.mean:g}+-{math.sqrt(self.variance):g}"

    @property
    def least(self) -> int:
        """The smallest possible N."""
        return 0

    @property
    def most(self) -> int:
        """The largest possible N; 2**53 where there is none."""
        return LARGEST_COUNT

    @property
    def window(self) -> tuple[int, int]:
        """Sizes between which all but 1e-10 of the law lies."""
        sd = math.sqrt(self.variance)
        tail = TAIL_SCALES * max(1.0, self.variance / max(self.mean, 1.0))
        low = max(self.least, math.floor(self.mean - REACH * sd))
        return low, min(self.most, math.ceil(self.mean + REACH * sd + tail))


class LawByCgf(SizeLaw):
    """A law whose mean and variance are read off its cumulant generating function."""

    @property
    def mean(self) -> float:
        """κ'(0)."""
        return self.cgf(0.0).mean

    @property
    def variance(self) -> float:
        """κ''(0)."""
        return self.cgf(0.0).variance


def as_law(size: int | SizeLaw) -> SizeLaw:
    """The law of a number of individuals; of a known number, and of a law without variance, that of this number alone."""
    if not isinstance(size, SizeLaw):
        return Exactly(int(size))
    return Exactly(round(size.mean)) if size.is_known else size


class Cumulants(NamedTuple):
    """κ(a), κ'(a) and κ''(a) of a law of sizes: see :meth:`SizeLaw.cgf`."""

    value: float
    mean: float
    variance: float


NO_LAW = Cumulants(math.inf, math.inf, math.inf)
"""Where E e^{aN} is infinite."""


def tabulated_cumulants(n: Array, log_p: Array, a: float) -> Cumulants:
    """The cumulants of a law given as a table, tilted by a."""
    log_w = log_p + a * n
    top = float(log_w.max())
    if top == -math.inf:
        return Cumulants(-math.inf, 0.0, 0.0)
    w = np.exp(log_w - top)
    total = float(w.sum())
    mean = float(w @ n) / total
    return Cumulants(top + math.log(total), mean, float(w @ (n - mean) ** 2) / total)


@dataclass(frozen=True)
class Exactly(LawByCgf):
    """N = number, as a law: κ(a) = N a."""

    number: int

    @property
    def least(self) -> int:
        """N."""
        return self.number

    @property
    def most(self) -> int:
        """N."""
        return self.number

    @property
    def text(self) -> str:
        """As the command line takes it."""
        return str(self.number)

    def log_pmf(self, n: ArrayLike) -> Array:
        """See `SizeLaw`."""
        return np.where(np.asarray(n) == self.number, 0.0, -np.inf)

    def cgf(self, a: float) -> Cumulants:
        """See `SizeLaw`."""
        return Cumulants(self.number * a if self.number else 0.0, float(self.number), 0.0)

    def in_units(self, size: float) -> SizeLaw:
        """See `SizeLaw`."""
        return Exactly(round(self.number / size))

    def sample(self, size: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
        """See `SizeLaw`."""
        del rng
        return np.full(size, self.number, dtype=np.int64)


@dataclass(frozen=True)
class PoissonSize(SizeLaw):
    """N ~ Poisson(mean)."""

    mean: float

    @property
    def mean_and_size(self) -> tuple[float, float]:  # type: ignore[override]
        """Its mean, and an infinite size."""
        return self.mean, math.inf

    @property
    def variance(self) -> float:
        """The mean."""
        return self.mean

    def log_pmf(self, n: ArrayLike) -> Array:
        """See `SizeLaw`."""
        return poisson_log_pmf(n, self.mean)

    def cgf(self, a: float) -> Cumulants:
        """Λ(e^a − 1)."""
        if a > LARGEST_TILT:
            return NO_LAW
        mean = self.mean * math.exp(a)
        return Cumulants(self.mean * math.expm1(a), mean, mean)

    def sample(self, size: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
        """See `SizeLaw`."""
        return rng.poisson(self.mean, size)


@dataclass(frozen=True)
class NegativeBinomialSize(SizeLaw):
    """A Poisson number whose mean is gamma distributed: variance mean + mean²/size."""

    mean: float
    size: float

    @property
    def mean_and_size(self) -> tuple[float, float]:  # type: ignore[override]
        """Both."""
        return self.mean, self.size

    @property
    def variance(self) -> float:
        """Above the mean."""
        return self.mean + self.mean**2 / self.size

    def log_pmf(self, n: ArrayLike) -> Array:
        """See `SizeLaw`."""
        n, r, m = np.asarray(n, dtype=float), self.size, self.mean
        ways = gammaln(n + r) - gammaln(r) - gammaln(n + 1.0)
        return ways - r * np.log1p(m / r) - n * np.log1p(r / m)

    def cgf(self, a: float) -> Cumulants:
        """−r log(1 − (m/r)(e^a − 1))."""
        m, r = self.mean, self.size
        if a > LARGEST_TILT or not (left := 1.0 - m / r * math.expm1(a)) > 0:
            return NO_LAW
        mean = m * math.exp(a) / left
        return Cumulants(-r * math.log(left), mean, mean + mean**2 / r)

    def sample(self, size: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
        """See `SizeLaw`."""
        return rng.poisson(rng.gamma(self.size, self.mean / self.size, size))


@dataclass(frozen=True)
class DiscreteGaussian(LawByCgf):
    """p(N) ∝ exp(−(N − centre)²/2 sd²) on whole numbers N ≥ 0."""

    centre: float
    sd: float

    @cached_property
    def _moments(self) -> Cumulants:
        """log of the normaliser, mean and variance."""
        low = max(0, math.floor(self.centre - REACH * self.sd) - 1)
        # Beyond a truncation at zero the tail is exponential, with the scale sd²/|centre|.
        tail = REACH * self.sd if self.centre > -self.sd else TAIL_SCALES * self.sd**2 / -self.centre
        high = max(low, math.ceil(max(self.centre, 0.0) + tail) + 1)
        if high - low > MOST_SUMMED:
            return Cumulants(math.log(self.sd) + 0.5 * math.log(2 * math.pi), self.centre, self.sd**2)
        n = np.arange(low, high + 1.0)
        return tabulated_cumulants(n, self._exponent(n), 0.0)

    def _exponent(self, n: Array) -> Array:
        return -0.5 * np.square((n - self.centre) / self.sd)

    def cgf(self, a: float) -> Cumulants:
        """A tilt moves the centre by a sd²: κ(a) = log Z(c + a sd²) − log Z(c) + a c + a² sd²/2."""
        if abs(a) > LARGEST_TILT:
            return NO_LAW
        moved = self._moments if a == 0 else DiscreteGaussian(self.centre + a * self.sd**2, self.sd)._moments
        value = moved.value - self._moments.value + a * self.centre + 0.5 * (a * self.sd) ** 2
        return moved._replace(value=value)

    @property
    def text(self) -> str:
        """As the command line takes it."""
        return f"{self.centre:g}+-{self.sd:g}"

    def log_pmf(self, n: ArrayLike) -> Array:
        """See `SizeLaw`."""
        n = np.asarray(n, dtype=float)
        return np.where(n >= 0, self._exponent(n) - self._moments.value, -np.inf)

    def sample(self, size: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
        """By the table of probabilities; where that is long, a rounded Gaussian, whose variance is larger by 1/12."""
        low, high = self.window
        if high - low > MOST_SUMMED:
            return np.maximum(np.rint(rng.normal(self.centre, self.sd, size)), 0.0).astype(np.int64)
        n = np.arange(low, high + 1)
        p = np.exp(self.log_pmf(n))
        return rng.choice(n, size=size, p=p / p.sum())


@dataclass(frozen=True, init=False)
class About(LawByCgf):
    """About ``mean`` individuals, give or take ``sd``: an earlier census with its error, an expert's guess.

    The law is negative binomial where sd² is above the mean, Poisson where it is the mean, and a Gaussian on the whole numbers
    N ≥ 0 where it is below.

    Parameters
    ----------
    mean
        Expected number, above 0.
    sd
        Its standard deviation, above 0.

    Examples
    --------
    >>> About(10_000, sd=1_500)
    About(10000, sd=1500)
    >>> About(100, sd=15).law
    NegativeBinomialSize(mean=100.0, size=80.0)
    """

    law: SizeLaw

    def __init__(self, mean: float, sd: float) -> None:
        m = _positive(mean, "mean", "the expected number of individuals")
        s = _positive(sd, "sd", "the standard deviation of the number of individuals")
        if abs(s**2 - m) <= SAME_VARIANCE * m:
            law: SizeLaw = PoissonSize(m)
        elif s**2 > m:
            law = NegativeBinomialSize(m, m**2 / (s**2 - m))
        else:
            law = DiscreteGaussian(m, s)
        object.__setattr__(self, "law", law)
        object.__setattr__(self, "_given", (m, s))

    def __repr__(self) -> str:
        mean, sd = self._given  # type: ignore[attr-defined]
        return f"About({mean:.15g}, sd={sd:.15g})"

    @property
    def mean_and_size(self) -> tuple[float, float] | None:  # type: ignore[override]
        """Those of the law it stands for."""
        return self.law.mean_and_size

    @property
    def text(self) -> str:
        """As the command line takes it."""
        return self.law.text

    def log_pmf(self, n: ArrayLike) -> Array:
        """See `SizeLaw`."""
        return self.law.log_pmf(n)

    def cgf(self, a: float) -> Cumulants:
        """See `SizeLaw`."""
        return self.law.cgf(a)

    def sample(self, size: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
        """See `SizeLaw`."""
        return self.law.sample(size, rng=rng)


@dataclass(frozen=True)
class Between(SizeLaw):
    """From ``low`` to ``high`` individuals, every number equally probable.

    Examples
    --------
    >>> Between(8_000, 12_000).mean
    10000.0
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        low = whole_number(self.low, "low", expected="the smallest number of individuals, a whole number")
        high = whole_number(self.high, "high", expected="the largest number of individuals, a whole number")
        if high < max(low, 1):
            raise ModelError(f"high is {high}: give a whole number from {max(low, 1)}, not below low")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def __repr__(self) -> str:
        return f"Between({self.low}, {self.high})"

    @property
    def mean(self) -> float:
        """The middle."""
        return 0.5 * (self.low + self.high)

    @property
    def variance(self) -> float:
        """Of a uniform law on whole numbers."""
        return ((self.high - self.low + 1.0) ** 2 - 1.0) / 12.0

    @property
    def least(self) -> int:
        """The lower end."""
        return self.low

    @property
    def most(self) -> int:
        """The upper end."""
        return self.high

    @property
    def text(self) -> str:
        """As the command line takes it."""
        return f"{self.low}..{self.high}"

    def log_pmf(self, n: ArrayLike) -> Array:
        """See `SizeLaw`."""
        n = np.asarray(n, dtype=float)
        inside = (n >= self.low) & (n <= self.high)
        return np.where(inside, -math.log(self.high - self.low + 1.0), -np.inf)

    def cgf(self, a: float) -> Cumulants:
        """Of a geometric law cut off at both ends, reckoned from the end that the tilt points to."""
        width = self.high - self.low + 1.0
        if width * abs(a) < NEARLY_FLAT:
            middle, variance = self.mean, self.variance
            return Cumulants(a * middle + 0.5 * a**2 * variance, middle + a * variance, variance)
        if width <= MOST_SUMMED:
            n = np.arange(self.low, self.high + 1.0)
            return tabulated_cumulants(n, np.full(len(n), -math.log(width)), a)
        b = -abs(a)  # from the heavier end inwards, weights fall as e^{bk}, k = 0 … width − 1
        one, all_ = -math.expm1(b), -math.expm1(b * width)
        value = math.log(all_ / one / width)
        inwards = math.exp(b) / one - width * math.exp(b * width) / all_
        variance = math.exp(b) / one**2 - width**2 * math.exp(b * width) / all_**2
        end, sign = (self.high, -1.0) if a > 0 else (self.low, 1.0)
        return Cumulants(value + a * end, end + sign * inwards, variance)

    def in_units(self, size: float) -> SizeLaw:
        """See `SizeLaw`."""
        return Between(math.ceil(self.low / size), max(math.floor(self.high / size), 1))

    def sample(self, size: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
        """See `SizeLaw`."""
        return rng.integers(self.low, self.high, size, endpoint=True)


@dataclass(frozen=True)
class Unknown(SizeLaw):
    """Nothing is known of the number of individuals beyond the counts.

    The logarithmic law p(N) ∝ q^N/N with 1 − q = 1e-9: every order of magnitude up to a billion is about equally probable, so that
    the counts decide. It is proper, so the evidence is a number; it excludes N = 0.

    Examples
    --------
    >>> Unknown()
    Unknown()
    """

    text = "unknown"
    least = 1
    window = (1, round(TAIL_SCALES / RARE_END))
    """From one to where less than 1e-10 is left."""
    mean = (1.0 - RARE_END) / RARE_END / LOG_SPAN
    """Of little meaning: half of the mass lies below 1e5."""
    variance = (1.0 - 1.0 / LOG_SPAN) / LOG_SPAN / RARE_END**2
    """Of little meaning, too."""

    def log_pmf(self, n: ArrayLike) -> Array:
        """See `SizeLaw`."""
        n = np.asarray(n, dtype=float)
        inside = n >= 0.5
        at = np.where(inside, n, 1.0)
        return np.where(inside, at * math.log1p(-RARE_END) - np.log(at) - math.log(LOG_SPAN), -np.inf)

    def cgf(self, a: float) -> Cumulants:
        """log [log(1 − q e^a)/log(1 − q)]."""
        log_q = math.log1p(-RARE_END) + a
        if not log_q < 0:
            return NO_LAW
        rare = -math.expm1(log_q)
        span = -math.log(rare) if rare < 0.5 else -math.log1p(-math.exp(log_q))
        if span == 0.0:  # e^a underflows: one individual
            return Cumulants(a - math.log(LOG_SPAN), 1.0, 0.0)
        mean = math.exp(log_q) / rare / span
        return Cumulants(math.log(span / LOG_SPAN), mean, mean * (1.0 / rare - mean))

    def in_units(self, size: float) -> SizeLaw:
        """See `SizeLaw`."""
        del size
        return self

    def sample(self, size: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
        """See `SizeLaw`."""
        return rng.logseries(1.0 - RARE_END, size)


@dataclass(frozen=True)
class Within(LawByCgf):
    """A law cut off where the counts leave nothing outside; not normalised, so that the evidence stays the law's."""

    law: SizeLaw
    low: int
    high: int

    @cached_property
    def _table(self) -> tuple[Array, Array]:
        """Sizes in equal steps, and the logarithm of what each stands for."""
        step = max(1.0, math.ceil((self.high - self.low) / MOST_SUMMED))
        n = np.arange(self.low, self.high + 1.0, step)
        return n, self.law.log_pmf(n) + math.log(step)

    @property
    def least(self) -> int:
        """The lower end."""
        return self.low

    @property
    def most(self) -> int:
        """The upper end."""
        return self.high

    def log_pmf(self, n: ArrayLike) -> Array:
        """The law's own, −inf outside."""
        n = np.asarray(n, dtype=float)
        return np.where((n >= self.low) & (n <= self.high), self.law.log_pmf(n), -np.inf)

    def cgf(self, a: float) -> Cumulants:
        """See `SizeLaw`; κ(0) is the logarithm of the probability within."""
        return tabulated_cumulants(*self._table, a)

    def sample(self, size: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
        """See `SizeLaw`."""
        n, log_p = self._table
        return rng.choice(n.astype(np.int64), size, p=np.exp(log_p - self.cgf(0.0).value))


@dataclass(frozen=True)
class TotalSize(LawByCgf):
    """The law of the number of all individuals: ``others`` who are known to be there, and groups whose numbers of units have laws."""

    laws: tuple[SizeLaw, ...]
    others: int
    weights: tuple[int, ...] = ()
    """How many individuals a unit of every group stands for; 1 each where left out."""

    @property
    def _weighted(self) -> list[tuple[SizeLaw, int]]:
        return list(zip(self.laws, self.weights or (1,) * len(self.laws), strict=True))

    @property
    def text(self) -> str:
        """In words."""
        parts = [law.text if weight == 1 else f"{weight} × ({law.text})" for law, weight in self._weighted]
        return " and ".join([*parts, f"{self.others} more"] if self.others else parts)

    def __repr__(self) -> str:
        """In words: a user gave the groups' laws, and never wrote this class."""
        return f"a sum of groups: {self.text}"

    @property
    def least(self) -> int:
        """See `SizeLaw`."""
        return sum(weight * law.least for law, weight in self._weighted) + self.others

    @property
    def most(self) -> int:
        """See `SizeLaw`."""
        return min(sum(weight * law.most for law, weight in self._weighted) + self.others, LARGEST_COUNT)

    @property
    def window(self) -> tuple[int, int]:
        """See `SizeLaw`."""
        low, high = (self.others + sum(w * law.window[end] for law, w in self._weighted) for end in (0, 1))
        return low, high

    def log_pmf(self, n: ArrayLike) -> Array:
        """See `SizeLaw`.

        Raises
        ------
        ModelError
            For the sum of several laws, which is asked one law at a time.
        """
        if len(self.laws) > 1:
            raise ModelError(
                "the sum of several groups of unknown size has no closed law: ask each group's own"
            )
        ((law, weight),) = self._weighted
        units = (np.asarray(n, dtype=float) - self.others) / weight
        return np.where(units == np.rint(units), law.log_pmf(np.rint(units)), -np.inf)

    def cgf(self, a: float) -> Cumulants:
        """The laws', and the others."""
        parts = [(law.cgf(w * a), w) for law, w in self._weighted]
        value = sum(part[0] for part, _ in parts)
        mean, variance = (sum(w**power * part[power] for part, w in parts) for power in (1, 2))
        return Cumulants(value + a * self.others, mean + self.others, variance)

    def sample(self, size: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
        """See `SizeLaw`."""
        drawn = [weight * law.sample(size, rng=rng) for law, weight in self._weighted]
        return np.asarray(np.sum(drawn, axis=0) + self.others)


@dataclass(frozen=True)
class Others(LawByCgf):
    """The law of N − known, where ``known`` of the N individuals are known by themselves (tagged): p(n + known)."""

    law: SizeLaw
    known: int

    @cached_property
    def _below(self) -> tuple[Array, Array]:
        """Sizes below the number known, which are excluded, and their log probabilities."""
        n = np.arange(self.law.least, self.known, dtype=float)
        return n, self.law.log_pmf(n)

    @property
    def least(self) -> int:
        """See `SizeLaw`."""
        return max(self.law.least - self.known, 0)

    @property
    def most(self) -> int:
        """See `SizeLaw`."""
        return max(self.law.most - self.known, 0)

    def log_pmf(self, n: ArrayLike) -> Array:
        """log p(n + known): the probability that there are fewer in all is left out."""
        return self.law.log_pmf(np.asarray(n, dtype=float) + self.known)

    def cgf(self, a: float) -> Cumulants:
        """From those of all, without sizes below the number known."""
        whole = self.law.cgf(a)
        if math.isinf(whole.value):
            return whole
        n, log_p = self._below
        if not len(n):
            return Cumulants(whole.value - a * self.known, whole.mean - self.known, whole.variance)
        w = np.exp(log_p + a * n - whole.value)
        left = 1.0 - float(w.sum())
        if left < MOSTLY_EXCLUDED:  # what is left is a difference of nearly equal numbers: add it up
            high = min(
                self.most, math.ceil(4 * whole.mean + REACH * math.sqrt(whole.variance)) + MOST_SUMMED // 100
            )
            n = np.arange(0, high + 1.0)
            return tabulated_cumulants(n, self.log_pmf(n), a)
        first = whole.mean - float(w @ n)
        second = whole.variance + whole.mean**2 - float(w @ n**2)
        mean = first / left
        value = whole.value + math.log(left) - a * self.known
        return Cumulants(value, mean - self.known, second / left - mean**2)

    def sample(self, size: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
        """See `SizeLaw`; sizes below the number known are drawn again."""
        drawn = self.law.sample(size, rng=rng)
        while (few := drawn < self.known).any():
            drawn[few] = self.law.sample(int(few.sum()), rng=rng)
        return drawn - self.known


@dataclass(frozen=True, eq=False)
class Numbers:
    r"""Independent sizes of several groups, tilted: group g has the law :math:`p_g(N) e^{a_g N - \kappa_g(a_g)}`.

    Attributes
    ----------
    laws
        One per group.
    tilts
        a, shape (groups,).
    weights
        How many individuals one unit of a group stands for, shape (groups,).
    """

    laws: tuple[SizeLaw, ...]
    tilts: Array
    weights: Array

    @classmethod
    def of(cls, laws: Sequence[SizeLaw], weights: ArrayLike | None = None) -> Numbers:
        """Without tilts; one individual per unit unless given."""
        each = np.ones(len(laws)) if weights is None else np.asarray(weights, dtype=float)
        return cls(tuple(laws), np.zeros(len(laws)), each)

    @cached_property
    def cumulants(self) -> Array:
        """κ, κ' and κ'' of every group, shape (3, groups)."""
        found = [law.cgf(float(a)) for law, a in zip(self.laws, self.tilts, strict=True)]
        return np.array(found, dtype=float).T.reshape(3, len(self.laws))

    @property
    def gain(self) -> float:
        """Σ κ_g(a_g)."""
        return float(self.cumulants[0].sum())

    @property
    def mean(self) -> Array:
        """Expected sizes, shape (groups,)."""
        return np.asarray(self.cumulants[1])

    @property
    def variance(self) -> Array:
        """Variances of the sizes, shape (groups,)."""
        return np.asarray(self.cumulants[2])

    @property
    def known(self) -> bool:
        """Whether every size is a number."""
        return all(law.variance == 0 for law in self.laws)

    @property
    def unknown(self) -> NDArray[np.intp]:
        """Which groups have a size that is not known."""
        return np.flatnonzero([law.variance > 0 for law in self.laws])

    def tilted(self, more: Array) -> Numbers:
        """With tilts larger by ``more``."""
        return Numbers(self.laws, self.tilts + more, self.weights)

    def most(self, typical: float) -> float:
        """The most individuals that any count is expected to reach: the laws' ends, or far beyond the typical number of units."""
        ends = sum(float(law.most) * w for law, w in zip(self.laws, self.weights, strict=True))
        return float(min(ends, FAR_BEYOND * (typical + 100.0) * self.weights.max(initial=1.0)))


@dataclass(frozen=True, eq=False)
class Group:
    """Individuals of one kind: residents or migrants, a sex, a species, those of one home region.

    Parameters
    ----------
    model
        The law of one of them: a `MarkovChain`, a `Tree` or a `DiscreteModel` without loops. All groups of a problem have the same times
        (or tree of variables); their cells may differ.
    size
        How many they are: a number, or what is known of it, as for a population (``Unknown()``, ``About(500, sd=100)``).
    weight
        How many individuals each of them stands for: families or flocks of one size that move as one. Counts of the group are those
        of individuals, ``weight`` times as many as units.
    """

    model: Model
    size: Any = None
    weight: int = 1

    def __post_init__(self) -> None:
        weight = whole_number(self.weight, "the weight of a Group", least=1)
        object.__setattr__(self, "weight", weight)
        instance(self.model, Model, "the model of a Group", expected="a MarkovChain or a Tree")
        if self.model.rooted() is None:
            raise ModelError(
                f"the model of a Group is {self.model!r}, whose graph has loops: groups are joined along a chain or tree, give one"
            )
        if self.model.expected_number is not None and self.size is not None:
            raise ModelError(
                f"the size of a Group is {self.size!r}, and its model says itself how many individuals are expected: leave the size out"
            )
        if self.model.concentration is not None:
            raise ModelError(
                "the model of a Group has a concentration: give the problem dispersion=Overdispersion(rho=...) instead"
            )

    @property
    def chain(self) -> MarkovChain:
        """The model, where it is a chain of times."""
        chain = self.model.as_chain()
        if chain is None:
            raise ModelError(f"a Group with a {type(self.model).__name__} has no times: only chains go on")
        return chain

    @property
    def law(self) -> SizeLaw:
        """The law of how many units they are."""
        expected = self.model.expected_number
        return as_law(self.size) if expected is None else PoissonSize(expected)


def _positive(value: Any, name: str, expected: str) -> float:
    limits = {"least": np.finfo(float).tiny, "most": float(LARGEST_COUNT)}
    return finite_number(value, name, **limits, expected=f"{expected}, above 0")


_NUMBER = r"(\d+(?:\.\d+)?(?:[eE]\+?\d+)?)"
_PLAIN = re.compile(rf"\s*{_NUMBER}\s*")
_ABOUT = re.compile(rf"\s*{_NUMBER}\s*(?:±|\+-|\+/-)\s*{_NUMBER}\s*")
_BETWEEN = re.compile(rf"\s*{_NUMBER}\s*(?:\.\.|…)\s*{_NUMBER}\s*")


def parse_population(text: str) -> int | SizeLaw:
    """``1080``, ``8000..12000``, ``10000±1500`` (or ``10000+-1500``) or ``unknown``.

    Raises
    ------
    ModelError
        For anything else.
    """
    if text.strip().lower() == "unknown":
        return Unknown()
    if found := _ABOUT.fullmatch(text):
        return About(float(found[1]), sd=float(found[2]))
    if found := _BETWEEN.fullmatch(text):
        return Between(_whole(found[1]), _whole(found[2]))
    if found := _PLAIN.fullmatch(text):
        return whole_number(_whole(text), "population", least=1)
    raise ModelError(
        f"{text!r} is not a population: give a number (1080), a range (8000..12000), a number with its error "
        "(10000±1500 or 10000+-1500) or unknown"
    )


def _whole(text: str) -> Any:
    """A number as an int where it is one."""
    if text.strip().isdigit():  # not by way of a float, which has not all whole numbers above 2**53
        return int(text)
    return int(float(text)) if float(text).is_integer() else float(text)
