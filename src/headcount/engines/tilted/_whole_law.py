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

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import gammaln

if TYPE_CHECKING:
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
        return Context(
            self.expected[rows],
            self.mean[rows],
            self.variance[rows],
            self.population,
            self.dispersion[rows],
        )


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


def whole_law(context: Context, *, reach: float = 7.5) -> Law:
    """Fit c to every entry, on a window that carries it."""
    from headcount.engines.tilted._whole_law_kernels import fit_laws

    expected, mean, v, n, phi = context
    a, b, constant, reference, variance = (np.empty_like(mean) for _ in range(5))
    fit_laws(
        expected,
        mean,
        v,
        float(n),
        phi,
        reach,
        VARIANCE_MARGIN,
        BINOMIAL_START_BELOW,
        STEEPEST_START,
        _log_factorials(),
        a,
        b,
        constant,
        reference,
        variance,
    )
    return Law(mean, variance, a, b, constant, reference, phi)


def log_choose(points: Array, reference: Array, population: float) -> Array:
    """log of the binomial coefficient (N over k), less that of the reference: ``(K, P)`` points, ``(K,)`` references.

    Points beyond N are padding and count as N. A reference outside [0, N] has no coefficient.
    """
    if not ((reference >= 0) & (reference <= population)).all():
        raise FloatingPointError("a window of summation lies outside 0 … N")
    k = np.clip(points, 0.0, population)
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
