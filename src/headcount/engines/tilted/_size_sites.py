r"""Sizes of groups as sites: the law of a size on whole numbers, where the Gaussian has only its two moments.

At a centre with the tilt a, the size N of a group has the law :math:`p_a(N) = p(N)e^{aN - \kappa(a)}`, and the structure has the Gaussian
:math:`N(\kappa', \kappa'')` for it. Their ratio

.. math:: t(N) = p_a(N)\,e^{-gN} / N(N; \kappa'(a), \kappa''(a)),

g the size's own tilt (a part of a), is one more scalar factor on the size, projected like that of any observation: given the cavity
:math:`N(m_c, v_c)`, the moments of :math:`N(k; m_c, v_c)\,t(k)` are summed over whole numbers. So a skewed or cut-off
law of a size is met exactly given the cavity, however many groups of unknown size there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from headcount.engines.tilted._projection import CERTAIN, LEAST_PRECISION, LEAST_SD, Entries, Projected
from headcount.observe import Observation, Site
from headcount.observe.cloud import SIZES

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from headcount._types import Array
    from headcount.observe import Problem
    from headcount.population import Numbers, SizeLaw

NEGLIGIBLE = 40.0
"""Nats below the largest term at which a sum over sizes ends: e^(−40) = 4e-18."""
POINTS = 20_001
"""Sizes in a sum, at most; wider sums take equal steps, which is exact to rounding where the sd is many steps."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SizePrior(Observation):
    """A place for the laws of sizes among the observations: it says nothing itself."""

    of_size: ClassVar[bool] = True
    log_concave: ClassVar[bool] = True
    any_real: ClassVar[bool] = True

    def log_prob(self, n: ArrayLike) -> Array:
        """0."""
        return np.zeros(np.broadcast_shapes(np.shape(n), np.shape(self.counts)))

    def slope(self, n: ArrayLike) -> Array:
        """0."""
        return self.log_prob(n)

    def curvature(self, n: ArrayLike) -> Array:
        """0."""
        return self.log_prob(n)

    def linear(self) -> NDArray[np.bool_]:
        """Everywhere."""
        return np.ones(np.shape(self.counts), dtype=bool)


def with_size_sites(problem: Problem) -> Problem:
    """The problem with a site on every size that is not known; as it is where all are, or where it has them already."""
    numbers = problem.numbers
    if numbers is None or numbers.known or any(site.noise.of_size for site in problem.sites):
        return problem
    free = numbers.unknown
    nothing = np.zeros(len(free))
    names = ["size of a group"] * len(free)
    if SIZES in problem.model.states:
        site = Site((SIZES,), len(numbers.laws), free, None, SizePrior(nothing, on=(SIZES,)), names)
    else:  # a network, one group: its size is the sum over any variable
        from scipy.sparse import csr_array

        v = problem.model.variables[0]
        size = len(problem.model.states[v])
        site = Site((v,), size, None, csr_array(np.ones((1, size))), SizePrior(nothing, on=(v,)), names)
    return problem.with_sites((*problem.sites, site))


class Sizes(NamedTuple):
    """The laws of unknown sizes at a centre."""

    laws: tuple[SizeLaw, ...]
    tilts: Array
    cumulants: Array
    """κ, κ' and κ'', shape (3, sizes)."""

    @classmethod
    def of(cls, numbers: Numbers) -> Sizes:
        """Those of groups whose size is not known."""
        free = numbers.unknown
        return cls(tuple(numbers.laws[k] for k in free), numbers.tilts[free], numbers.cumulants[:, free])


def size_sites(sizes: Sizes, here: Entries) -> Projected:
    """Match mean and variance of the cavity times t, summed over whole numbers, for every size."""
    tau, nu = here.tau.copy(), here.nu.copy()
    log_site, change = 0.0, 0.0
    for k, law in enumerate(sizes.laws):
        value, mean, variance = sizes.cumulants[:, k]
        entry = Entries(*(values[k] for values in here))
        found = _one(law, float(sizes.tilts[k]), float(value), float(mean), float(variance), entry)
        tau[k], nu[k] = found[0], found[1]
        log_site += found[2]
        change = max(change, found[3])
    return Projected(tau, nu, log_site, change, None)


def _one(
    law: SizeLaw, a: float, value: float, centre: float, spread: float, here: Any
) -> tuple[float, float, float, float]:
    """τ, ν, part of the log evidence and change of one size; deviations are from the centre κ'."""
    v = float(here.variance)
    if v <= CERTAIN or spread <= CERTAIN:  # known by exact counts: t is a constant
        at = np.array([np.rint(centre + here.mean)])
        ratio = _log_ratio(law, a, value, centre, spread, at) if spread > CERTAIN else np.zeros(1)
        return 0.0, 0.0, float(ratio[0] - here.g * at[0]), 0.0
    precision = 1.0 / v - here.tau
    slope = here.mean / v - here.nu
    around = slope - precision * here.mean

    def log_weight(k: Array) -> Array:
        """Log of the cavity, exp(−½ p z² + s z) around the posterior's mean, times t."""
        z = k - centre - here.mean
        return np.asarray(
            z * (around - 0.5 * precision * z) + _log_ratio(law, a, value, centre, spread, k) - here.g * k
        )

    proper = precision > LEAST_PRECISION / v
    k, step = _window(law, log_weight, centre + here.mean, math.sqrt(v), bounded=not proper)
    log_w = log_weight(k) + math.log(step)
    top = float(log_w.max())
    rising = not proper and (
        (log_w[0] == top and k[0] > law.least) or (log_w[-1] == top and k[-1] + step <= law.most)
    )
    if top == -math.inf or rising:  # no cavity, and nothing around the posterior that holds the size
        return float(here.tau), float(here.nu), 0.0, 1.0
    w = np.exp(log_w - top)
    total = float(w.sum())
    new_m = float(w @ (k - centre)) / total
    new_v = max(float(w @ (k - centre - new_m) ** 2) / total, CERTAIN)
    tau, nu = 1.0 / new_v - precision, new_m / new_v - slope
    integral = here.mean * (here.nu - 0.5 * here.tau * here.mean) + 0.5 * math.log(2 * math.pi * v)
    scale = max(v, LEAST_SD**2)
    moved, widened = abs(new_m - here.mean) / math.sqrt(scale), abs(new_v - v) / scale
    return tau, nu, top + math.log(total) - integral, max(moved, widened)


def _log_ratio(law: SizeLaw, a: float, value: float, centre: float, spread: float, k: Array) -> Array:
    """log of p_a(k) over its Gaussian."""
    gaussian = -0.5 * (k - centre) ** 2 / spread - 0.5 * math.log(2 * math.pi * spread)
    return np.asarray(law.log_pmf(k) + a * k - value - gaussian)


def _window(law: SizeLaw, log_weight: Any, middle: float, sd: float, *, bounded: bool) -> tuple[Array, float]:
    """The whole numbers that carry the sum, and the step between them; ``bounded`` to those around the posterior."""
    low, high = float(law.least), float(law.most)
    width = max(8.0 * sd, 20.0)
    left, right = max(low, math.floor(middle - width)), min(high, math.ceil(middle + width))
    left, right = min(left, high), max(right, low)
    for _ in range(60):  # each side until nothing is left there
        step = max(1.0, math.ceil((right - left) / (POINTS - 1)))
        k = np.arange(left, right + 1.0, step)
        log_w = log_weight(k)
        top = log_w.max()
        if bounded and top > -math.inf:
            break
        more_left = left > low and log_w[0] > top - NEGLIGIBLE
        more_right = right < high and log_w[-1] > top - NEGLIGIBLE
        if not (more_left or more_right) and top > -math.inf:
            break
        reach = right - left + 1.0
        left = max(low, left - reach) if more_left or top == -math.inf else left
        right = min(high, right + reach) if more_right or top == -math.inf else right
    return k, step
