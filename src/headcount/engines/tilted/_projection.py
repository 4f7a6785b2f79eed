r"""From a scalar cavity and a likelihood to the moments a site must match.

Given the law c of one count in the context of everything but its own observation (see ``solve.whole_law``; a Gaussian cavity where counts
are large), the *lattice* projection sums :math:`c(k)\,\ell(y\mid k)\,e^{-gk}` over whole numbers :math:`0 \le k \le N`: counts are
integers, and near zero that is what matters. Where the spread is large every s-th integer is summed with weight s, which is the
trapezoid rule and as exact. The *line* projection integrates the Gaussian cavity over real :math:`z \ge 0` by the same rule with a
fractional step. The log-likelihood and the binomial coefficients are tabulated once for each grid.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headcount._device import Device, host, namespace
from headcount._linalg import row_dots
from headcount.solve.whole_law import Context, in_threads, log_choose, whole_law

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headcount._types import Array, Mask
    from headcount.observe import Observation

POINTS_PER_SD = 2.0
"""The trapezoid rule's error for a Gaussian is exp(−2π² points²): 1e-34 here."""
POINTS_PER_SD_AT_END = 16.0
"""The same where a law ends: the variance of half a Gaussian, or of an exponential, is off by 4e-4 or 7e-4 (with 2: 3 to 4 %)."""
NARROWEST, WIDEST = 0.5, 1.4
"""Posterior sds, in those that a grid was made for, between which it still serves: at the one it has one point per sd (error
exp(−2π²) = 3e-9), at the other and one sd off its centre it ends 5.4 sds away (4e-8 of a Gaussian lies beyond)."""
END_WITHIN = 3.0
"""Standard deviations between a mean and 0 or N below which a wide law has an end there: e^(−9/2) of its height is 1 %, and no binomial
wide enough to be summed in strides comes as near."""
GRID_HALF_WIDTH = 8.5
"""Half-width of a grid, in standard deviations: 2e-17 of a Gaussian lies beyond."""
VARIANCE_ROUNDING = 1e-6
"""Relative difference of two variances that is taken as rounding: a site is the difference of their inverses."""
KNOWN_BELOW = 1e-14
"""Variance, relative to the expected count, below which a count is known: the rounding of an expected count is about 1e-15 of it."""
LEAST_PRECISION = 1e-10
"""Precision that a cavity must have left, relative to that of the posterior, to be a Gaussian: below it is rounding of a difference."""
LEAST_VARIANCE = 1e-290
"""Variance below which a count is known outright whatever is expected: its inverse would overflow at 5e-309."""
ONE_NUMBER_BELOW = 1e-4
"""Variance below which a count is one whole number: it changes by individuals, and the width of its Gaussian does not matter."""
NOT_GAUSSIAN_BELOW = 1.0
"""Variance below which a law of whole numbers is not a Gaussian read off at them."""
REFINEMENTS = 20
"""Times that grids may be made finer around what they found."""
LEAST_SD = 0.1
"""Changes of a count are measured in its standard deviations, or in this many individuals where that is more."""
ROUNDING = 1e-15
"""Changes of a mean or variance below this share of the population are rounding: both are differences of numbers as large as N, and
five of their last digits add up. At N = 1e12 that is a thousandth of an individual."""
CACHED = 16_384
"""Points that are summed at once: two arrays of them stay in a processor's cache (256 kB)."""
OVERDISPERSED = 1.5
"""Variance of a cavity, over the expected count, above which it is wider than the law of a Poisson number, whose shape it then has not."""
CERTAIN = 1e-7
"""Variance below which a count is known; a site need not say more."""


@dataclass(frozen=True)
class Grid:
    """Points of summation for every entry (padded with weight zero), and log ℓ there."""

    points: Array
    """``(K, P)``."""
    log_prob: Array
    """log ℓ with the log of the summation weight; −inf for padding."""
    centre: Array
    sd: Array
    step: Array
    coefficient: Array | None
    """log of the binomial coefficients of the points, less that of the first; None on a line."""
    there: tuple[Any, ...] | None = None
    """On a device: points, log ℓ and coefficients (points, where there are none)."""
    local: Mask | None = None
    """Whose cavities were `Local` in the last sweep."""

    def serves(self, mean: Array, sd: Array) -> NDArray[np.bool_]:
        """Where the grid still fits a posterior with these moments."""
        near = np.abs(mean - self.centre) <= self.sd
        return near & (sd <= WIDEST * self.sd) & (sd >= NARROWEST * self.sd)


def make_grid(
    noise: Observation,
    mean: Array,
    sd: Array,
    population: float,
    *,
    lattice: bool,
    device: Device | None = None,
) -> Grid:
    """A grid around each entry's posterior, for an sd of at least half a count and at most N/2: counts from 0 to N have no larger one."""
    sd = np.clip(sd, 0.5, max(0.5 * population, 0.5))
    # A mean may leave [0, N] on the way; the law it stands for cannot, and ends at the nearest count there is.
    middle = np.clip(mean, 0.0, population)
    # Wide laws that end at 0 or N (those of dispersed counts) have no smooth end for the trapezoid rule.
    per_sd = np.where(
        np.minimum(middle, population - middle) < END_WITHIN * sd, POINTS_PER_SD_AT_END, POINTS_PER_SD
    )
    step = np.maximum(np.floor(sd / per_sd), 1.0) if lattice else sd / (4 * POINTS_PER_SD)
    low = np.maximum(middle - GRID_HALF_WIDTH * sd, 0.0)
    high = np.minimum(middle + GRID_HALF_WIDTH * sd + 1.0, population)
    low = np.floor(low) if lattice else low
    count = np.floor((high - low) / step).astype(int) + 1
    k = np.arange(int(count.max(initial=1)))
    points: Array = low[:, None] + step[:, None] * k.astype(float)
    inside = (k < count[:, None]) & (points <= population)
    weight = np.where(inside, np.log(step)[:, None], -np.inf)
    if lattice:  # whole numbers that are left out have their weight at their neighbours, which ends have on one side only
        rows, last = np.arange(len(low)), np.maximum(inside.sum(axis=1) - 1, 0)
        left = population - points[rows, last]
        weight[:, 0] += np.where(low == 0, np.log(0.5 + 0.5 / step), 0.0)
        weight[rows, last] += np.where(left < step, np.log(0.5 + (left + 0.5) / step), 0.0)
    else:  # a line starts at zero: half weight there, and never zero itself where log ℓ is −inf
        weight[:, 0] -= np.log(2.0)
    log_prob = np.empty_like(points)
    coefficient = np.empty_like(points) if lattice else None

    def fill(part: slice) -> None:
        of_part = noise.take(np.arange(part.start, part.stop))
        with np.errstate(divide="ignore", invalid="ignore"):
            log_prob[part] = of_part.log_prob(np.minimum(points[part], population).T).T + weight[part]
        if coefficient is not None:
            coefficient[part] = log_choose(points[part], low[part], population)

    in_threads(fill, len(points))
    there = None
    if device is not None:
        there = tuple(
            device.put(x) for x in (points, log_prob, points if coefficient is None else coefficient)
        )
    return Grid(points, log_prob, mean, sd, step, coefficient, there)


class Tilted(NamedTuple):
    """Moments of ``c(k) ℓ(y | k) e^{−g k}``."""

    log_z: Array
    mean: Array
    variance: Array
    own: Array
    """The variance of c itself."""
    bend: Array
    """A of :math:`c(k) \\propto \\mathrm{Bin}(k)\\,e^{A s^2 + B s}`, where c is such a law."""


def tilted_moments(grid: Grid, context: Context, g: Array, local: Local | None = None) -> Tilted:
    """Sum over the grid."""
    mean, variance = context.mean, context.variance
    own = variance.copy()
    law = np.stack([-0.5 / variance, np.zeros_like(mean), -0.5 * np.log(2 * np.pi * variance)])
    whole, small = np.zeros(len(mean), dtype=np.bool_), context.is_small
    if local is not None:
        law = np.where(local.where, local.law, law)
        small = small & ~local.where
    if grid.coefficient is not None:
        rows = np.flatnonzero(small)
        fitted = whole_law(context.take(rows))
        constant = fitted.constant_against(grid.points[rows, 0], context.population)
        law[:, rows] = fitted.a, fitted.b, constant
        own[rows] = fitted.variance
        whole[rows] = True
    if grid.there is not None:  # independent individuals: no dispersion
        put = namespace(grid.there[0]).asarray
        sums = tilted_sums(*grid.there, *(put(x) for x in (whole, law, mean, g)), most=grid.points.size)
        log_z, first, second = (host(x) for x in sums)
        return Tilted(log_z, mean + first, second, own, law[0])
    coefficient = grid.points if grid.coefficient is None else grid.coefficient / context.dispersion[:, None]
    log_z, first, second = tilted_sums(grid.points, grid.log_prob, coefficient, whole, law, mean, g)
    return Tilted(log_z, mean + first, second, own, law[0])


def tilted_sums(
    points: Array,
    log_prob: Array,
    coefficient: Array,
    whole: Mask,
    law: Array,
    mean: Array,
    g: Array,
    *,
    most: int = CACHED,
) -> tuple[Array, Array, Array]:
    """log Σ, mean − ``mean`` and variance of ``c(k) exp(log_prob) e^{−g k}`` for every row.

    log c(k) = C + B s + A s², s = k − mean, ``law`` = (A, B, C), plus the binomial coefficient where ``whole``; ``log_prob`` has the
    weights of summation in it. So many points as ``most`` are summed at once.
    """
    log_z, first, second = (np.empty_like(mean) for _ in range(3))
    rows = max(most // points.shape[1], 1)
    for start in range(0, len(mean), rows):
        some = slice(start, start + rows)
        s = points[some] - mean[some, None]
        p = s * law[0, some, None]  # −g k = −g s − g mean
        p += (law[1] - g)[some, None]
        p *= s
        p += log_prob[some]
        p += coefficient[some] if whole.all() else np.where(whole[some, None], coefficient[some], 0.0)
        top = p.max(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):  # a row of nothing but −inf has no moments
            p -= top[:, None]
            np.exp(p, out=p)
            total = p.sum(axis=1)
            log_z[some] = np.log(total) + top
            first[some] = row_dots(p, s) / total
            p *= s
            second[some] = row_dots(p, s) / total - first[some] ** 2
    return log_z + (law[2] - g * mean), first, second


class Entries(NamedTuple):
    """Observed entries: posterior moments, sites, centre."""

    mean: Array
    variance: Array
    tau: Array
    nu: Array
    expected: Array
    g: Array
    dispersion: Array
    """phi of each entry: its variance under the tilted law, as a multiple of the binomial's."""


class Projected(NamedTuple):
    """What the projection of some entries finds."""

    tau: Array
    nu: Array
    """Sites that would match the moments."""
    log_site: float
    """The sum of the parts of the log evidence at the present sites."""
    change: float
    """How far beliefs are from those with the new sites, in standard deviations or shares of the variance."""
    grid: Grid | None
    """For the next sweep."""


def laplace_site(noise: Observation, here: Entries) -> Projected:
    """Match value, slope and curvature of log ℓ − g n at the present mean."""
    at = here.expected + here.mean
    low = noise.domain_low
    at = np.where(at > low, at, low + 1e-3 * np.maximum(here.expected - low, 1e-3))
    slope, bend = noise.slope(at) - here.g, noise.curvature(at)
    delta = at - here.expected
    tau = -bend
    nu = slope + tau * delta
    value = noise.log_prob(at) - here.g * at
    log_sites = float((value - (-0.5 * tau * delta**2 + nu * delta)).sum())
    sd = np.sqrt(np.maximum(here.variance, 1e-300))
    gain = np.abs((nu - here.nu) - (tau - here.tau) * here.mean) * sd
    change = max(
        float(gain.max(initial=0.0)), float((np.abs(tau - here.tau) * here.variance).max(initial=0.0))
    )
    return Projected(tau, nu, log_sites, change, None)


class Local(NamedTuple):
    """Cavities taken as they are around the posterior's mean m: log c = B z + A z², z = k − m, which need not be a law by itself."""

    where: Mask
    law: Array
    """A, B and 0, shape (3, entries)."""


class _Cavity(NamedTuple):
    """Beliefs without an entry's own site, in deviations; ``usable`` where there is such a Gaussian."""

    mean: Array
    variance: Array
    live: Mask
    """Where the count is not known outright."""
    usable: Mask
    local: Local | None
    """Those that are much wider than the posterior, or no Gaussian at all; their mean and variance are the posterior's."""


def _cavity(here: Entries, widest: float, before: Mask | None) -> _Cavity:
    """1/v_c = 1/v − τ, m_c = v_c (m/v − ν).

    Local where v_c is more than ``widest`` times v, and no Poisson law, or no variance at all; and what was local stays so, lest
    sweeps go to and fro. Nothing is local where ``widest`` is infinite.
    """
    live = here.variance > np.maximum(KNOWN_BELOW * here.expected, LEAST_VARIANCE)
    v = np.where(live, here.variance, 1.0)
    precision = 1.0 / v - here.tau
    usable = live & (precision > LEAST_PRECISION / v)
    wide = np.zeros_like(live)
    if widest < np.inf:
        least = np.maximum(widest * v, OVERDISPERSED * here.expected)
        wide = live & (~usable | ((v > NOT_GAUSSIAN_BELOW) & (precision * least < 1.0)))
        wide = wide if before is None else wide | (before & live)
    proper = usable & ~wide
    variance = np.where(proper, 1.0 / np.where(proper, precision, 1.0), v)
    mean = np.where(proper, variance * (here.mean / v - here.nu), np.where(wide, here.mean, 0.0))
    law = np.stack([-0.5 * precision, here.tau * here.mean - here.nu, np.zeros_like(v)])
    return _Cavity(mean, variance, live, usable | wide, Local(wide, law) if wide.any() else None)


def summed_site(
    noise: Observation,
    here: Entries,
    grid: Grid | None,
    population: float,
    *,
    lattice: bool,
    device: Device | None = None,
    widest: float = np.inf,
) -> Projected:
    r"""Match mean and variance of :math:`c(k)\,\ell(y\mid k)\,e^{-gk}` summed over the grid.

    With :math:`\hat m, \hat v` those and :math:`m_c, v_c` the moments of c, the site is what the observation changes of c,

    .. math:: \tau = 1/\hat v - 1/v_c, \qquad \nu = \hat m/\hat v - m_c/v_c,

    and its part of the log evidence :math:`\log \sum_k c\,\ell\,e^{-gk} - \log \int N(z; m_c, v_c)\,e^{-\frac12\tau z^2 + \nu z}`.
    Cavities of more than ``widest`` times the posterior's variance are taken as they are around it (see `Local`): nothing of them is seen
    but slope and curvature there.

    Raises
    ------
    FloatingPointError
        If the centre makes a count certain that the data forbid.
    """
    cavity = _cavity(here, widest, None if grid is None else grid.local)
    fixed = np.rint(np.clip(here.expected, 0.0, population))
    with np.errstate(divide="ignore", invalid="ignore"):
        certain = noise.log_prob(fixed) - here.g * fixed
    if (~cavity.live & np.isneginf(certain)).any():
        raise FloatingPointError("the centre makes certain what the data forbid")
    v = np.where(cavity.live, here.variance, 1.0)
    context = Context(
        here.expected, here.expected + cavity.mean, cavity.variance, population, here.dispersion
    )
    if grid is None or not grid.serves(here.expected + here.mean, np.maximum(np.sqrt(v), 0.5)).all():
        grid = make_grid(
            noise, here.expected + here.mean, np.sqrt(v), population, lattice=lattice, device=device
        )
    grid, (log_z, mean, variance, own_v, bend) = _resolved(noise, grid, context, here.g, cavity, device)
    own_v = np.where(
        np.abs(own_v - cavity.variance) < VARIANCE_ROUNDING * cavity.variance, cavity.variance, own_v
    )
    mean = mean - here.expected
    ok = cavity.usable & np.isfinite(log_z)
    if cavity.local is not None:  # what runs off to an end of its grid is held by nothing
        ok &= ~cavity.local.where | (np.abs(mean - here.mean) < 0.5 * GRID_HALF_WIDTH * np.sqrt(v))
    known = ok & (np.maximum(variance, cavity.variance) <= CERTAIN)  # the others have settled it already
    safe = np.where(ok, np.maximum(variance, CERTAIN), 1.0)
    precision, slope = 1.0 / own_v, cavity.mean / own_v
    local = np.zeros_like(known) if cavity.local is None else cavity.local.where
    if cavity.local is not None:
        precision = np.where(local, 1.0 / v - here.tau, precision)
        slope = np.where(local, here.mean / v - here.nu, slope)
    tau = np.where(known, 0.0, np.where(ok, 1.0 / safe - precision, here.tau))
    nu = np.where(known, 0.0, np.where(ok, mean / safe - slope, here.nu))
    more = np.where(
        known, 0.0, 1.0 / cavity.variance - 1.0 / own_v
    )  # the belief with this site has this precision besides
    new_v = 1.0 / np.maximum(1.0 / safe + more, LEAST_PRECISION / safe)
    new_m = new_v * (mean / safe + cavity.mean * more)
    if lattice:
        rows = np.flatnonzero(ok & ~known & ~local & (variance < NOT_GAUSSIAN_BELOW) & context.is_small)
        most = _more_bend(context, rows, mean, variance, bend)
        tau[rows] = np.clip(tau[rows], np.minimum(most, 0.0), np.maximum(most, 0.0))
        new_m[rows], new_v[rows] = mean[rows], 1.0 / (1.0 / cavity.variance[rows] + tau[rows])
        nu[rows] = mean[rows] / new_v[rows] - cavity.mean[rows] / cavity.variance[rows]
    parts = np.where(ok, log_z - _log_integral(cavity, own_v, here), np.where(cavity.live, 0.0, certain))
    settled = ok & (variance < ONE_NUMBER_BELOW)
    scale = np.where(settled, 1.0, np.maximum(v, LEAST_SD**2))
    floor = ROUNDING * population
    moved = np.maximum(np.abs(new_m - here.mean) - floor, 0.0) / np.sqrt(scale)
    widened = np.maximum(np.abs(new_v - v) - floor, 0.0) / scale
    change = np.maximum(moved, np.where(settled, 0.0, widened))
    change = np.where(
        ok, change, np.where(cavity.live, 1.0, 0.0)
    )  # an entry without a cavity has not converged
    return Projected(tau, nu, float(parts.sum()), float(change.max(initial=0.0)), replace(grid, local=local))


def _log_integral(cavity: _Cavity, own_v: Array, here: Entries) -> Array:
    """Log of the integral of c's Gaussian times the present site (the cavity's, where under way a site undoes more than c has).

    A local c is 1 at the posterior's mean m, so that the integral is that of the posterior's Gaussian times the site at m.
    """
    v = np.where(1.0 / own_v + here.tau > 0, own_v, cavity.variance)
    joint = np.where(cavity.usable, 1.0 / v + here.tau, 1.0 / v)
    slope = cavity.mean / v + here.nu
    found = -0.5 * np.log(v * joint) + 0.5 * slope**2 / joint - 0.5 * cavity.mean**2 / v
    if cavity.local is None:
        return np.asarray(found)
    at_mean = here.mean * (here.nu - 0.5 * here.tau * here.mean)
    return np.where(cavity.local.where, at_mean + 0.5 * np.log(2 * np.pi * cavity.variance), found)


def _resolved(
    noise: Observation, grid: Grid, context: Context, g: Array, cavity: _Cavity, device: Device | None
) -> tuple[Grid, Tilted]:
    """Tilted moments, on finer grids where a likelihood much narrower than its context fell between the points."""
    lattice = grid.coefficient is not None
    found = tilted_moments(grid, context, g, cavity.local)
    for _ in range(REFINEMENTS):
        mean, spread = found.mean, np.sqrt(np.maximum(found.variance, 0.0))
        coarse = cavity.usable & (spread < grid.step) & ((grid.step > 1.0) | (not lattice))
        if not coarse.any():
            break
        sd = np.where(coarse, np.maximum(spread, grid.step), grid.sd)
        centre = np.where(coarse, mean, grid.centre)
        grid = make_grid(noise, centre, sd, context.population, lattice=lattice, device=device)
        found = tilted_moments(grid, context, g, cavity.local)
    return grid, found


def _more_bend(context: Context, rows: NDArray[np.intp], mean: Array, variance: Array, bend: Array) -> Array:
    r"""What observations add to −2A of the laws :math:`c(k) \propto \mathrm{Bin}(k)\,e^{A s^2 + B s}`: their τ in whole numbers.

    Between a Gaussian's precisions 1/v, as they add up, and those of whole numbers lies this: a law on {−1, 0, 1} with variance v
    loses the factor e from it to a likelihood :math:`e^{-|k|}`, however small v is already. Two such readings of one count, each
    seeing the other's precision grow, would make each other certain. And of a rare count, which can only be tilted, nothing is
    added, however much its variance changes with its mean.
    """
    moved = context.take(rows)._replace(
        mean=context.expected[rows] + mean[rows], variance=np.maximum(variance[rows], CERTAIN)
    )
    return 2.0 * (bend[rows] - whole_law(moved).a)
