r"""The law of one count, as a whole number, in the context of everything but its own observation.

Under a tilted model an entry's count is *exactly* :math:`\mathrm{Bin}(N, \mu)`; the other observations turn its Gaussian stand-in
into the cavity :math:`N(m, v)`. The law that keeps the binomial's shape and has the cavity's moments is

.. math:: c(k) \propto \mathrm{Bin}(k; N, \mu)\,e^{A (k-m)^2 + B (k-m)}, \qquad
          \textstyle\sum_k c(k)\,k = m, \quad \sum_k c(k)\,(k-m)^2 = v .

Where counts are large it is the cavity itself. Where they are small it has the prior's skew and its end at zero. An observation
that says nothing changes nothing, so several observations of one count do not correct for whole numbers more than once: reading
:math:`N(m, v)` off at whole numbers instead shrinks it wherever it is narrow, each time, until nothing is left.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import gammaln

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Rows = NDArray[np.intp]

LARGE = 1e5
"""Prior variance above which a binomial is as good as Gaussian, and dearer."""
TABLE = 200_000
"""Up to here log factorials are tabulated; beyond, they are too large to be subtracted."""
LEAST = 1.02
"""A whole number's variance is at least f(1 − f), f the fraction of its mean; the cavity is given this much more."""


class Context(NamedTuple):
    """Expected counts Nμ of some entries, their Gaussian cavities (means absolute), and N."""

    expected: Array
    mean: Array
    variance: Array
    population: float

    @property
    def prior_variance(self) -> Array:
        """N μ (1 − μ)."""
        return self.expected * (1.0 - self.expected / self.population)

    def small(self) -> Rows:
        """Entries whose law is not just their cavity."""
        return np.flatnonzero((self.prior_variance < LARGE) & (self.prior_variance > 0))

    def take(self, rows: Rows) -> Context:
        """Some of the entries."""
        return Context(self.expected[rows], self.mean[rows], self.variance[rows], self.population)


class Law(NamedTuple):
    """log c(k) = log(N over k) − log(N over reference) + constant + (k − m)(B + A (k − m))."""

    mean: Array
    a: Array
    b: Array
    constant: Array
    reference: Array

    def constant_against(self, reference: Array, population: float) -> Array:
        """The constant that goes with binomial coefficients against another reference."""
        return self.constant + log_choose(reference[:, None], self.reference, population)[:, 0]


def whole_law(context: Context, *, reach: float = 7.5) -> Law:
    """Fit c to every entry, on a window that carries it."""
    expected, mean, v, n = context
    if (
        n <= 2 * TABLE
    ):  # compiled, thirty times faster; what follows serves larger populations, and says the same
        from headcount.engines._kernels._whole_counts import fit_laws

        a, b, constant, reference = (np.empty_like(mean) for _ in range(4))
        fit_laws(expected, mean, v, n, reach, LEAST, _log_factorials(), a, b, constant, reference)
        return Law(mean, a, b, constant, reference)
    return _whole_law_arrays(context, reach)


def _whole_law_arrays(context: Context, reach: float) -> Law:
    """All entries at once, on windows as wide as the widest."""
    expected, mean, v, n = context
    sd = np.maximum(np.sqrt(v), 0.5)
    step = np.maximum(np.floor(sd / 3.0), 1.0)
    low = np.clip(np.floor(mean - reach * sd), 0.0, n)
    high = np.minimum(np.maximum(mean, 0.0) + reach * sd + 1.0, n)
    count = int(np.ceil((high - low) / step).max(initial=0.0)) + 1
    points = low[:, None] + step[:, None] * np.arange(count, dtype=float)
    coefficient = np.where(points <= high[:, None], log_choose(points, low, n), -np.inf)
    # Start from the binomial times what the others say: the cavity divided by the binomial's own Gaussian.
    mu = expected / n
    pull = 1.0 / v - 1.0 / context.prior_variance
    a = -0.5 * pull
    b = np.log(mu) - np.log1p(-mu) + (mean - expected) * (1.0 / v - pull)
    fraction = mean - np.floor(mean)
    wanted = np.maximum(v, LEAST * fraction * (1.0 - fraction))
    s = points - mean[:, None]
    total = _log_sum(coefficient + s * (b[:, None] + a[:, None] * s))
    fits = np.flatnonzero((mean > low) & (mean < high))
    _match(coefficient, s, wanted, fits, a, b, total)
    return Law(mean, a, b, -total - np.log(step), low)


def _match(base: Array, s: Array, variance: Array, rows: Rows, a: Array, b: Array, total: Array) -> None:
    """Change A, B in place until ``exp(base + A s² + B s)`` has mean 0 and the given variance; and log of its sum with them.

    They minimise ``log Σ exp(base + A s² + B s) − A v``, a convex function, by Newton with halved steps. Rows where that does not
    get there, because one or two whole numbers carry everything, stay as they are. Only rows still off are worked on.
    """
    base, s, v = base[rows], s[rows], variance[rows]
    here_a, here_b, here_total = a[rows], b[rows], total[rows]
    for _ in range(25):
        p = np.exp(base + s * (here_b[:, None] + here_a[:, None] * s) - here_total[:, None])
        ps = p * s
        pss = ps * s
        m1, m2 = ps.sum(axis=1), pss.sum(axis=1)
        m3, m4 = np.einsum("ij,ij->i", pss, s), np.einsum("ij,ij,ij->i", pss, s, s)
        off = (np.abs(m1) > 1e-8 * np.sqrt(v)) | (np.abs(m2 - v) > 1e-8 * v)
        done = rows[~off]
        a[done], b[done], total[done] = here_a[~off], here_b[~off], here_total[~off]
        c_bb, c_ab, c_aa = m2 - m1 * m1, m3 - m1 * m2, m4 - m2 * m2
        det = c_aa * c_bb - c_ab**2
        left = off & (det > 1e-13 * c_aa * c_bb)
        if not left.any():
            return
        step_a = ((c_ab * m1 - c_bb * (m2 - v))[left]) / det[left]
        step_b = ((c_ab * (m2 - v) - c_aa * m1)[left]) / det[left]
        rows, base, s, v = rows[left], base[left], s[left], v[left]
        here_a, here_b, here_total = _descend(
            base, s, v, (here_a[left], here_b[left], here_total[left]), step_a, step_b
        )


def _descend(
    base: Array, s: Array, v: Array, here: tuple[Array, Array, Array], step_a: Array, step_b: Array
) -> tuple[Array, Array, Array]:
    """A step along (step_a, step_b), halved row by row until the convex function falls."""
    a, b, total = here
    length = np.ones_like(a)
    for _ in range(20):
        new_a, new_b = a + length * step_a, b + length * step_b
        new_total = _log_sum(base + s * (new_b[:, None] + new_a[:, None] * s))
        worse = new_total - total > length * step_a * v + 1e-12 * np.maximum(np.abs(total), 1.0)
        if not worse.any():
            break
        length = np.where(worse, 0.5 * length, length)
    return new_a, new_b, new_total


def log_choose(points: Array, reference: Array, population: float) -> Array:
    """log of the binomial coefficient (N over k), less that of the reference: ``(K, P)`` points, ``(K,)`` references."""
    k = np.clip(points, 0.0, population)
    r = reference[:, None]
    return -_log_gamma_ratio(k, r) - _log_gamma_ratio(population - k, population - r)


def _log_gamma_ratio(x: Array, r: Array) -> Array:
    """log x! − log r!, by Stirling's formula where each is too large to be subtracted."""
    large = r > TABLE
    if not large.any():
        table = _log_factorials()
        return table[x.astype(np.intp)] - table[r.astype(np.intp)]
    far = np.where(large, r, 1.0)
    d = np.where(large, x - far, 0.0)
    series = (far + 0.5) * np.log1p(d / far) + d * (np.log(far + d) - 1.0) + (1 / (far + d) - 1 / far) / 12
    near = gammaln(np.where(large, 0.0, x) + 1.0) - gammaln(np.where(large, 0.0, r) + 1.0)
    return np.where(large, series, near)


@cache
def _log_factorials() -> Array:
    """log k! for k = 0 … 2 · TABLE: looking one up is ten times cheaper than computing it."""
    return np.asarray(gammaln(np.arange(2 * TABLE + 2) + 1.0))


def _log_sum(rows: Array) -> Array:
    top = rows.max(axis=1)
    return np.asarray(np.log(np.exp(rows - top[:, None]).sum(axis=1)) + top)
