r"""The law of one count, as a whole number, in the context of everything but its own observation.

Under a tilted model an entry's count is *exactly* :math:`\mathrm{Bin}(N, \mu)`; the other observations turn its Gaussian stand-in
into the cavity :math:`N(m, v)`. The law that keeps the binomial's shape and has the cavity's moments is

.. math:: c(k) \propto \mathrm{Bin}(k; N, \mu)\,e^{A (k-m)^2 + B (k-m)}, \qquad
          \textstyle\sum_k c(k)\,k = m, \quad \sum_k c(k)\,(k-m)^2 = v .

With dispersion phi (individuals that move together) the binomial is tempered, :math:`\mathrm{Bin}(k)^{1/\phi}`, which has about phi
times its variance. Where counts are large c is the cavity itself. Where they are small it has the prior's skew and its end at zero. An
observation that says nothing changes nothing, so several observations of one count do not correct for whole numbers more than once: reading
:math:`N(m, v)` off at whole numbers instead shrinks it wherever it is narrow, each time, until nothing is left.

Whole numbers with mean m cannot have every variance: not less than f(1 − f), f the fraction of m, and where the mean is far below
one, not much else than the binomial's either (more would need :math:`A > 0` so large that c grows again in its tail). There
c has the mean m and the nearest variance a law with a falling tail has, and a site is what the observation changes *of c*.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import gammaln

from headcount._compile import bare, kernel, worth

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from headcount._types import Array, Index

GAUSSIAN_FROM = 1e5
"""Prior variance (individuals²) from which a binomial is taken as Gaussian: its skewness is then below 0.004, and its sum would
have thousands of terms."""
LARGEST_TABULATED = 200_000
"""Largest k whose log k! is taken from a table (of 3 MB). It is 2e6 there, so that a difference of larger ones is off by more than 5e-10;
Stirling's series gives that difference itself."""
VARIANCE_MARGIN = 1.02
"""Factor on f(1 − f), f the fraction of the mean: no whole number has a smaller variance than f(1 − f), and c is given at least this
many times it (or the binomial's variance), because the fit of A diverges at the bound itself."""
BINOMIAL_START_BELOW = 0.3
"""Variance of a binomial with the cavity's mean below which the fit starts from that binomial, not from the Gaussian."""
STEEPEST_START = -8.0
"""Least A (log probability per squared individual) at which the fit starts: e^(−8) = 3e-4 is the weight of the next whole number.
From a law on a single number the derivatives are zero and Newton cannot move."""
END_WITHIN = 8.0
"""Standard deviations between a mean and 0 or N within which a dispersed law ends there. (A Gaussian cut off at 8 is summed in strides
of half an sd to 4e-14, one cut off at 3 to 2e-3.)"""
PER_SD, PER_SD_AT_END = 3.0, 24.0
"""Whole numbers summed per standard deviation, at least: the trapezoid rule's error for a Gaussian is exp(−2π² 9) = 1e-77. Where a law
ends it falls with the square of the step only: the variance of half a Gaussian, or of an exponential, is off by 2e-4 (with 3: 1 to 2 %)."""
STEPS = 25
"""Newton steps of a fit, at most."""
HALVINGS = 20
"""Times that one is halved, at most."""
CLOSE = 1e-8
"""Error of mean and variance, in units of the sd and the variance, at which a fit ends."""
COUNTS_PER_THREAD, MOST_THREADS = 2048, 8
"""Counts per thread, at least (about a millisecond of a fit, ten times what a thread costs), and threads at most."""
NUMPY_SECONDS = 5e-6
"""Time of one law's fit in NumPy (measured: 1.5 ms for 320, 4 ms for 720)."""


class Context(NamedTuple):
    """Expected counts Nμ of some entries, their Gaussian cavities (means absolute), N, and the dispersion phi of each entry."""

    expected: Array
    mean: Array
    variance: Array
    population: float
    dispersion: Array

    @property
    def prior_variance(self) -> Array:
        """phi N μ (1 − μ)."""
        return self.dispersion * self.expected * (1.0 - self.expected / self.population)

    @property
    def is_small(self) -> NDArray[np.bool_]:
        """Whether an entry's law is not just its cavity."""
        return (self.prior_variance < GAUSSIAN_FROM) & (self.prior_variance > 0)

    def take(self, rows: Index) -> Context:
        """Some of the entries."""
        expected, mean, variance, population, dispersion = self
        return Context(expected[rows], mean[rows], variance[rows], population, dispersion[rows])


class Law(NamedTuple):
    """log c(k) = [log(N over k) − log(N over reference)] / phi + constant + (k − m)(B + A (k − m))."""

    mean: Array
    variance: Array
    """Its own: v, unless whole numbers cannot have that."""
    a: Array
    b: Array
    constant: Array
    reference: Array
    dispersion: Array

    def constant_against(self, reference: Array, population: float) -> Array:
        """The constant that goes with binomial coefficients against another reference."""
        moved = log_choose(reference[:, None], self.reference, population)[:, 0]
        return self.constant + moved / self.dispersion


def in_threads(work: Callable[[slice], None], count: int) -> None:
    """Do the work on so many counts, many of them in parts that threads share."""
    threads = max(min(os.cpu_count() or 1, MOST_THREADS, count // COUNTS_PER_THREAD), 1)
    if threads == 1:
        work(slice(0, count))
        return
    ends = np.linspace(0, count, threads + 1).astype(int).tolist()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, (slice(*pair) for pair in pairwise(ends))))


def whole_law(context: Context, *, reach: float = 7.5) -> Law:
    """Fit c to every entry, on a window that carries it."""
    expected, mean, v, n, phi = context
    if not worth(fit_laws, NUMPY_SECONDS * len(mean)):
        return _fit_in_numpy(context, reach)
    a, b, constant, reference, variance = found = [np.empty_like(mean) for _ in range(5)]

    def fit(part: slice) -> None:
        given = (expected[part], mean[part], v[part], float(n), phi[part], reach, _log_factorials())
        fit_laws(*given, *(x[part] for x in found))

    in_threads(fit, len(mean))
    return Law(mean, variance, a, b, constant, reference, phi)


def _fit_in_numpy(context: Context, reach: float) -> Law:
    """The same as ``fit_laws``, all entries at once, their windows one after the other in flat arrays."""
    expected, mean, v, n, phi = context
    sd = np.clip(np.sqrt(v), 0.5, max(0.5 * n, 0.5))
    ends = (phi != 1.0) & (np.minimum(mean, n - mean) < END_WITHIN * sd)
    step = np.maximum(np.floor(sd / np.where(ends, PER_SD_AT_END, PER_SD)), 1.0)
    low = np.clip(np.floor(mean - reach * sd), 0.0, n)
    high = np.minimum(np.maximum(mean, 0.0) + reach * sd + 1.0, n)
    count = np.floor((high - low) / step).astype(np.intp) + 1
    row, first = np.repeat(np.arange(len(mean)), count), np.cumsum(count) - count
    points = low[row] + step[row] * (np.arange(len(row)) - first[row])
    r = low[row]
    base = (-_log_gamma_ratio(points, r) - _log_gamma_ratio(n - points, n - r)) / phi[row]
    last = low + step * (count - 1)
    at_ends = np.log(0.5 + np.stack([np.full_like(step, 0.5), n - last + 0.5]) / step)
    base[first] += np.where((step > 1.0) & (low == 0.0), at_ends[0], 0.0)
    base[first + count - 1] += np.where((step > 1.0) & (last + step > n), at_ends[1], 0.0)
    mu = expected / n
    pull = 1.0 / v - 1.0 / (phi * expected * (1.0 - mu))
    a = -0.5 * pull
    b = (np.log(mu) - np.log1p(-mu)) / phi + (mean - expected) * (1.0 / v - pull)
    windows = LawWindows(base, points - mean[row], count)
    total, variance = np.empty_like(mean), v.copy()
    inside = (mean > low) & (mean < high)
    if not inside.all():
        out = np.flatnonzero(~inside)
        total[out] = windows.of(~inside).weigh(a[out], b[out])[1]
    if inside.any():
        rows = np.flatnonzero(inside)
        m, f = mean[rows], phi[rows]
        fraction, plain = m - np.floor(m), f * m * (1.0 - m / n)
        wanted = np.maximum(v[rows], np.minimum(VARIANCE_MARGIN * fraction * (1.0 - fraction), plain))
        most = (0.5 / (high[rows] + 1.0) + 0.5 / (n - low[rows] + 1.0)) / f
        rare = plain < BINOMIAL_START_BELOW
        b[rows] = np.where(rare, (np.log(m) - np.log(n - m)) / f, b[rows])
        start = np.clip(np.where(rare, 0.0, a[rows]), STEEPEST_START, most)
        a[rows], b[rows], total[rows], own = windows.of(inside).match(wanted, start, b[rows], most)
        variance[rows] = np.where(own > 0.0, own, v[rows])
    return Law(mean, variance, a, b, -total - np.log(step), low, phi)


class LawWindows(NamedTuple):
    """Points s and log weights of several laws of one count each, one after the other in flat arrays; ``length`` points per law."""

    base: Array
    s: Array
    length: Index

    def of(self, which: NDArray[np.bool_]) -> LawWindows:
        """Some of the laws."""
        points = np.repeat(which, self.length)
        return LawWindows(self.base[points], self.s[points], self.length[which])

    def sums(self, values: Array) -> Array:
        """One sum per law."""
        return np.add.reduceat(values, np.cumsum(self.length) - self.length)

    def weigh(self, a: Array, b: Array) -> tuple[Array, Array]:
        """p ∝ exp(base + A s² + B s) with its largest value one, and the log of the sum of the weights themselves."""
        log_p = self.base + self.s * (np.repeat(b, self.length) + np.repeat(a, self.length) * self.s)
        top = np.maximum.reduceat(log_p, np.cumsum(self.length) - self.length)
        p = np.exp(log_p - np.repeat(top, self.length))
        return p, top + np.log(self.sums(p))

    def moments(self, p: Array) -> Array:
        """Means of s, s², s³ and s⁴ under p, (4, laws)."""
        found, weighed = [self.sums(p)], p
        for _ in range(4):
            weighed = weighed * self.s
            found.append(self.sums(weighed))
        return np.stack(found[1:]) / found[0]

    def match(self, variance: Array, first_a: Array, first_b: Array, most: Array) -> tuple[Array, ...]:
        """A, B, log sum and variance of every law, as ``_match`` finds them."""
        a, b = first_a.copy(), first_b.copy()
        p, total = self.weigh(a, b)
        found = [first_a.copy(), first_b.copy(), total.copy(), np.full(len(a), -1.0)]
        here, rows = self, np.arange(len(a))
        for _ in range(STEPS):
            m1, m2, m3, m4 = here.moments(p)
            short = variance - m2
            done = (np.abs(m1) <= CLOSE * np.sqrt(variance)) & (
                (np.abs(short) <= CLOSE * variance) | ((a == most) & (short > 0.0))
            )
            for kept, value in zip(found, (a, b, total, m2), strict=True):
                kept[rows[done]] = value[done]
            c_bb, c_ab, c_aa = m2 - m1 * m1, m3 - m1 * m2, m4 - m2 * m2
            det = c_aa * c_bb - c_ab * c_ab
            going = ~done & (det > 1e-13 * c_aa * c_bb)
            if not going.any():
                break
            if not going.all():
                here, rows = here.of(going), rows[going]
                a, b, total, variance, most, m1, short, c_bb, c_ab, c_aa, det = (
                    x[going] for x in (a, b, total, variance, most, m1, short, c_bb, c_ab, c_aa, det)
                )
            by_a = (c_ab * m1 + c_bb * short) / det
            by_b = (-c_ab * short - c_aa * m1) / det
            over = a + by_a > most
            by_a = np.where(over, most - a, by_a)
            by_b = np.where(over, -(m1 + c_ab * by_a) / c_bb, by_b)
            a, b, p, total = here.descend(a, b, total, by_a, by_b, variance, most)
        return tuple(found)

    def descend(
        self, a: Array, b: Array, total: Array, by_a: Array, by_b: Array, variance: Array, most: Array
    ) -> tuple[Array, Array, Array, Array]:
        """A Newton step of every law, halved until its log sum falls as it should: A, B, p and the log sum there."""
        slack = 1e-12 * np.maximum(np.abs(total), 1.0)
        share = np.ones_like(a)
        for _ in range(HALVINGS):
            p, new = self.weigh(a + share * by_a, b + share * by_b)
            worse = ~(new - total <= share * by_a * variance + slack)
            if not worse.any():
                break
            share = np.where(worse, 0.5 * share, share)
        else:
            share = np.where(worse, 2.0 * share, share)
        bound = (share == 1.0) & (by_a == most - a)
        return np.where(bound, most, a + share * by_a), b + share * by_b, p, new


def log_choose(points: Array, reference: Array, population: float) -> Array:
    """log of the binomial coefficient (N over k), less that of the reference: ``(K, P)`` whole numbers, ``(K,)`` references.

    Points beyond N are padding and count as N. A reference outside [0, N] has no coefficient.
    """
    if not ((reference >= 0) & (reference <= population)).all():
        raise FloatingPointError("a window of summation lies outside 0 … N")
    k = np.clip(points, 0.0, population)
    most = max(float(k.max(initial=0.0)), float(reference.max(initial=0.0)))
    # Far more points than whole numbers among them: each is computed once.
    if most <= LARGEST_TABULATED < population and most < k.size:
        each = np.arange(most + 1.0)
        table = -_log_gamma_ratio(each, np.zeros(1)) - _log_gamma_ratio(
            population - each, np.full(1, population)
        )
        return table[k.astype(np.intp)] - table[reference.astype(np.intp)][:, None]
    r = reference[:, None]
    return -_log_gamma_ratio(k, r) - _log_gamma_ratio(population - k, population - r)


def _log_gamma_ratio(x: Array, r: Array) -> Array:
    """log x! − log r!; where both are too large to be subtracted, by the difference of their Stirling series."""
    large = np.minimum(x, r) > LARGEST_TABULATED
    table = _log_factorials()
    if not large.any() and x.max(initial=0.0) < len(table) and r.max(initial=0.0) < len(table):
        return table[x.astype(np.intp)] - table[r.astype(np.intp)]
    far, d = np.where(large, r, 1.0), np.where(large, x - r, 0.0)
    series = (far + 0.5) * np.log1p(d / far) + d * (np.log(far + d) - 1.0) + (1 / (far + d) - 1 / far) / 12
    return np.where(large, series, gammaln(x + 1.0) - gammaln(r + 1.0))


@cache
def _log_factorials() -> Array:
    """log k! for k = 0 … 2 · LARGEST_TABULATED: looking one up is ten times cheaper than computing it."""
    return np.asarray(gammaln(np.arange(2 * LARGEST_TABULATED + 2) + 1.0))


# The same laws, entry by entry, compiled: they are many short sums, in NumPy dozens of passes over all points of all entries, here one
# pass over what each entry needs.


@kernel
def fit_laws(
    expected, mean, variance, population, dispersion, reach, table, a, b, constant, reference, spread
):
    """Fill A, B, the constant, the reference and the variance of ``Law`` for every entry.

    ``table`` holds log k! for small k.
    """
    longest = 1
    widest = max(0.5 * population, 0.5)  # a count from 0 to N has no larger sd
    for i in range(mean.size):
        sd = min(max(np.sqrt(variance[i]), 0.5), widest)
        longest = max(longest, int(2 * reach * sd / _stride(mean[i], sd, population, dispersion[i])) + 4)
    base, s, p, q = np.empty(longest), np.empty(longest), np.empty(longest), np.empty(longest)
    for i in range(mean.size):
        m, v, phi = mean[i], variance[i], dispersion[i]
        sd = min(max(np.sqrt(v), 0.5), widest)
        step = _stride(m, sd, population, phi)
        low = min(max(np.floor(m - reach * sd), 0.0), population)
        high = min(max(m, 0.0) + reach * sd + 1.0, population)
        count = int(np.floor((high - low) / step)) + 1
        _fill_window(m, low, step, count, population, phi, table, base, s)
        mu = expected[i] / population
        pull = 1.0 / v - 1.0 / (phi * expected[i] * (1.0 - mu))
        a[i] = -0.5 * pull
        b[i] = (np.log(mu) - np.log1p(-mu)) / phi + (m - expected[i]) * (1.0 / v - pull)
        spread[i] = v
        if m > low and m < high:
            fraction, plain = m - np.floor(m), phi * m * (1.0 - m / population)
            wanted = max(v, min(VARIANCE_MARGIN * fraction * (1.0 - fraction), plain))
            # beyond, c would bend upwards in its tail
            most = (0.5 / (high + 1.0) + 0.5 / (population - low + 1.0)) / phi
            if plain < BINOMIAL_START_BELOW:
                a[i], b[i] = 0.0, (np.log(m) - np.log(population - m)) / phi
            first = min(max(a[i], STEEPEST_START), most)
            a[i], b[i], total, own = _match(base, s, count, step, wanted, first, b[i], most, p, q)
            spread[i] = own if own > 0.0 else v
        else:
            top, m0 = _weigh(base, s, count, a[i], b[i], p)
            total = top + np.log(m0)
        constant[i] = -total - np.log(step)
        reference[i] = low


@bare
def _fill_window(m, low, step, count, population, phi, table, base, s):
    """Points s = k − m from ``low`` on, and their log binomial coefficients against that of ``low``, over phi."""
    for k in range(count):
        point = low + step * k
        s[k] = point - m
        base[k] = -_log_ratio(point, low, table) - _log_ratio(population - point, population - low, table)
        base[k] /= phi
    if step > 1.0:
        last = low + step * (count - 1)
        if low == 0.0:
            base[0] += np.log(0.5 + 0.5 / step)
        if last + step > population:
            base[count - 1] += np.log(0.5 + (population - last + 0.5) / step)


@bare
def _stride(m, sd, population, phi):
    """Distance of the whole numbers that are summed. A law that ends at 0 or N, as only dispersed ones of this width do, needs more.

    Its ends have the weight that the sum over all whole numbers gives them, by Euler and Maclaurin ½ + ½/step of an inner point.
    """
    ends = phi != 1.0 and min(m, population - m) < END_WITHIN * sd
    return max(np.floor(sd / (PER_SD_AT_END if ends else PER_SD)), 1.0)


@bare
def _log_factorial(x, table):
    """log x!: looked up, or by Stirling's series beyond the table; NaN below zero, where there is none."""
    if not x >= 0.0:
        return np.nan
    if x < table.size:
        return table[int(x)]
    return (x + 0.5) * np.log(x) - x + 0.5 * np.log(2.0 * np.pi) + 1.0 / (12.0 * x)


@bare
def _log_ratio(x, r, table):
    """log x! − log r!; where both are too large to be subtracted, by the difference of their Stirling series."""
    if not min(x, r) >= table.size // 2:
        return _log_factorial(x, table) - _log_factorial(r, table)
    d = x - r
    return (r + 0.5) * np.log1p(d / r) + d * (np.log(x) - 1.0) + (1.0 / x - 1.0 / r) / 12.0


@bare
def _weigh(base, s, count, a, b, p):
    """p = exp(base + A s² + B s − top); top, and the sum of p."""
    top = -np.inf
    for k in range(count):
        p[k] = base[k] + s[k] * (b + a * s[k])
        top = max(top, p[k])
    total = 0.0
    for k in range(count):
        p[k] = np.exp(p[k] - top)
        total += p[k]
    return top, total


@bare
def _reweigh(p, s, count, step, by_a, by_b, q):
    """q = p exp(by_a s² + by_b s), the exponentials by recurrence along the grid; their sum."""
    factor = np.exp(s[0] * (by_b + by_a * s[0]))
    ratio = np.exp(step * (by_b + by_a * (2.0 * s[0] + step)))
    change = np.exp(2.0 * by_a * step * step)
    total = 0.0
    for k in range(count):
        q[k] = p[k] * factor
        total += q[k]
        factor *= ratio
        ratio *= change
    return total


@bare
def _four_moments(p, s, count, m0):
    """Means of s, s², s³ and s⁴ under p, whose sum is m0."""
    m1 = m2 = m3 = m4 = 0.0
    for k in range(count):
        t = s[k]
        w = p[k] * t
        m1 += w
        w *= t
        m2 += w
        w *= t
        m3 += w
        m4 += w * t
    return m1 / m0, m2 / m0, m3 / m0, m4 / m0


@bare
def _matched(m1, short, variance, at_most):
    """Whether mean and variance are those wanted, or the variance is short and A is as large as it may be."""
    near = abs(short) <= CLOSE * variance or (at_most and short > 0.0)
    return near and abs(m1) <= CLOSE * np.sqrt(variance)


@bare
def _newton_step(m1, m2, m3, m4, variance, room):
    """Newton's steps of A (at most ``room``) and B towards mean 0 and the variance; NaN where the moments leave no direction."""
    c_bb, c_ab, c_aa = m2 - m1 * m1, m3 - m1 * m2, m4 - m2 * m2
    det = c_aa * c_bb - c_ab * c_ab
    if not det > 1e-13 * c_aa * c_bb:
        return np.nan, np.nan
    step_a = (c_ab * m1 + c_bb * (variance - m2)) / det
    step_b = (-c_ab * (variance - m2) - c_aa * m1) / det
    if step_a > room:
        step_a = room
        step_b = -(m1 + c_ab * step_a) / c_bb
    return step_a, step_b


@bare
def _match(base, s, count, step, variance, first_a, first_b, most, p, q):
    """A ≤ ``most`` and B with mean 0 and the given variance (or, at A = most, what is nearest), by Newton with halved steps.

    Also the log of the sum with them, and the variance they give; that is −1 and they are the first ones where Newton does not get
    there, because one or two whole numbers carry everything.
    """
    a, b = first_a, first_b
    top, m0 = _weigh(base, s, count, a, b, p)
    first_total = top + np.log(m0)
    far = max(abs(s[0]), abs(s[count - 1]))
    for _ in range(STEPS):
        m1, m2, m3, m4 = _four_moments(p, s, count, m0)
        if _matched(m1, variance - m2, variance, a == most):
            return a, b, top + np.log(m0), m2
        step_a, step_b = _newton_step(m1, m2, m3, m4, variance, most - a)
        if np.isnan(step_a):
            break
        total, length = top + np.log(m0), 1.0
        slack = 1e-12 * max(abs(total), 1.0)
        for _ in range(HALVINGS):
            new_top, by_a, by_b = top, length * step_a, length * step_b
            if far * (abs(by_b) + far * abs(by_a)) < 30.0:  # nothing that counts was rounded to zero
                new_m0 = _reweigh(p, s, count, step, by_a, by_b, q)
            else:
                new_top, new_m0 = _weigh(base, s, count, a + by_a, b + by_b, q)
            if new_top + np.log(new_m0) - total <= by_a * variance + slack:
                break
            length *= 0.5
        a = most if length == 1.0 and by_a == most - a else a + by_a
        b, top, m0 = b + by_b, new_top, new_m0
        p, q = q, p
    return first_a, first_b, first_total, -1.0
