r"""Sizes of groups as sites: the laws of sizes on whole numbers, where the Gaussian has only their two moments.

At a centre with the tilt a, the size N of a group has the law :math:`p_a(N) = p(N)e^{aN - \kappa(a)}`, and the structure has the Gaussian
:math:`N(\kappa', \kappa'')` for it. Their ratio

.. math:: t(N) = p_a(N)\,e^{-gN} / N(N; \kappa'(a), \kappa''(a)),

g the size's own tilt (a part of a), is one more factor on the size, projected like that of any observation: given the cavity
:math:`N(m_c, v_c)`, the moments of :math:`N(k; m_c, v_c)\,t(k)` are summed over whole numbers. So a skewed or cut-off
law of a size is met exactly given the cavity, however many groups of unknown size there are.

*Two* unknown sizes are projected together: where counts tell their sum and not the split, the law of the split may be U-shaped, and one
size given the Gaussian of the other is no law. Sites on A, on B and on A + B span all symmetric 2 × 2 precisions, so that a joint site
needs no more than one further observed sum.

*Exact counts* leave a size a shape that no Gaussian has. In a cloud of Poisson counts with the centre's means, a known count says nothing
of the others: N is then a fixed number and a Poisson one, :math:`e(k)`. The cavity is multiplied by :math:`e(k)/\mathrm{Poisson}(k)` over
the ratio of their Gaussians. With one time and any exact counts the law of N is then the exact one,
:math:`p(N)\,\mathrm{Bin}(n_0; N, \mu_0)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import gammaln

from headcount.engines.tilted._projection import CERTAIN, LEAST_PRECISION, LEAST_SD, Entries, Projected
from headcount.numerics import poisson_log_pmf
from headcount.observe import Observation, Site
from headcount.observe.cloud import SIZES
from headcount.solve.whole_law import Context, whole_law

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from headcount._types import Array
    from headcount.observe import ClosedProblem
    from headcount.population import Numbers, SizeLaw

NEGLIGIBLE = 40.0
"""Nats below the largest term at which a sum over sizes ends: e^(−40) = 4e-18."""
MOST_POINTS = (20_001, 301)
"""Sizes along an axis in a sum over one and over two of them, at most; wider axes take blocks of numbers, each by its middle."""
BLOCKS_PER_END = 20.0
"""Blocks between an end of an axis and its double: laws such as 1/N change by a twentieth from one to the next."""
PATTERNS = (np.eye(1), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
"""Which sizes every entry is the sum of, (entries, sizes), of one size and of two."""
WIDER = 1.5
"""Ratio of variances above which one of two sizes is the wider one; of weights 1 and 2 it is 4."""
ROUNDED = 1e-6
"""Distance from a whole number that is rounding."""
LARGEST_CLOUD = 1e6
"""Expected size up to which whole numbers are told from the Gaussian beside exact counts: at a million the difference is 1e-3 of an sd."""
LEAST_LEFT = 0.01
"""Variance that exact counts leave a size, and individuals above the fewest, below which it is taken as certain: one in a hundred differs.
With a correction at .004 a size that is 1.01 ± .09 stalled after 500 sweeps; at .01 it is answered."""
BINOMIAL_LIMIT = 1e13
"""Number of candidates of a law that has no upper end: the binomial is then Poisson's."""


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


def with_size_sites(problem: ClosedProblem) -> ClosedProblem:
    """The problem with a site on every size that is not known, and on the sum of two; as it is where there is nothing to add."""
    numbers = problem.numbers
    if numbers is None or numbers.known or any(site.noise.of_size for site in problem.sites):
        return problem
    if SIZES in problem.model.states:
        v: Hashable = SIZES
        rows = np.eye(len(numbers.laws))[numbers.unknown]
    else:  # a network, one group: its size is the sum over any variable
        v = problem.model.variables[0]
        rows = np.ones((1, len(problem.model.states[v])))
    if len(rows) == 2:
        rows = np.concatenate([rows, rows.sum(axis=0, keepdims=True)])
    names = ["size of a group"] * len(rows)
    noise = SizePrior(np.zeros(len(rows)), on=(v,))
    return problem.with_sites(
        (*problem.sites, Site((v,), rows.shape[1], None, csr_array(rows), noise, names))
    )


class SizeLaws(NamedTuple):
    """The laws of unknown sizes at a centre."""

    laws: tuple[SizeLaw, ...]
    tilts: Array
    cumulants: Array
    """κ, κ' and κ'', shape (3, sizes)."""

    @classmethod
    def of(cls, numbers: Numbers) -> SizeLaws:
        """Those of groups whose size is not known."""
        free = numbers.unknown
        return cls(tuple(numbers.laws[k] for k in free), numbers.tilts[free], numbers.cumulants[:, free])

    def take(self, k: int) -> SizeLaws:
        """One of them."""
        return SizeLaws(self.laws[k : k + 1], self.tilts[k : k + 1], self.cumulants[:, k : k + 1])

    def log_ratio(self, points: Sequence[Array]) -> Array:
        """Σ log of p_a over its Gaussian, at sizes that are broadcast against each other."""
        total = np.zeros(())
        for law, a, (value, mean, variance), k in zip(
            self.laws, self.tilts, self.cumulants.T, points, strict=True
        ):
            gaussian = -0.5 * (k - mean) ** 2 / variance - 0.5 * math.log(2 * math.pi * variance)
            inside = (k >= law.least) & (k <= law.most)
            log_p = law.log_pmf(np.where(inside, k, law.least)) + a * k - value - gaussian
            total = total + np.where(inside, log_p, -np.inf)
        return total


class ExactSizes(NamedTuple):
    """What exact counts leave of one unknown size in a Poisson cloud, by the Gaussian."""

    expected: float
    """Of the cloud: the centre's."""
    mean: float
    """Given the exact counts."""
    variance: float
    least: float
    most: float
    """The fewest and the most individuals that they leave."""

    def correction(self) -> Callable[[Array], Array] | None:
        """log of e(n)/Poisson(n) over the ratio of their Gaussians; None where exact counts say nothing of the size, or all."""
        rate, mean, v, least, end = self
        over = mean - least
        if not (rate < LARGEST_CLOUD and min(over, v) > LEAST_LEFT and v < (1 - CERTAIN) * rate):
            return None
        shift, a, b = mean - v, 0.0, math.log(v)
        if v < over:
            most = min(end - least, BINOMIAL_LIMIT)
            law = whole_law(Context(np.array([over]), np.array([over]), np.array([v]), most, np.ones(1)))
            shift, a, b = least, float(law.a[0]), float(law.b[0])

        def log_shape(n: Array) -> Array:
            x = np.clip(n, least, end) - shift
            z = x - (mean - shift)
            log_p = z * (b + a * z) - gammaln(x + 1.0)
            if v < over:
                log_p = log_p + (-gammaln(most - x + 1.0) if most < LARGEST_CLOUD else x * math.log(most))
            return np.where((n >= least) & (n <= end), log_p, -np.inf)

        reach = 12.0 * math.sqrt(v) + 30.0
        near = np.arange(max(least, math.floor(mean - reach)), math.ceil(mean + reach))
        constant = _log_sum(log_shape(near))

        def log_correction(n: Array) -> Array:
            law = log_shape(n) - constant + 0.5 * (n - mean) ** 2 / v + 0.5 * math.log(2 * math.pi * v)
            cloud = (
                poisson_log_pmf(n, rate) + 0.5 * (n - rate) ** 2 / rate + 0.5 * math.log(2 * math.pi * rate)
            )
            return np.asarray(law - cloud)

        return log_correction


def size_sites(
    sizes: SizeLaws, here: Entries, exact: ExactSizes | None, told: Callable[[Sequence[Array]], Array]
) -> Projected:
    """Match means and (co)variances of the cavity times t, summed over whole numbers: of two sizes together, of others one by one.

    Parameters
    ----------
    here
        One entry per size; where there are two, one more for their sum.
    exact
        What exact counts leave of the one size; None where there are more, or nothing is exact.
    told
        Log-likelihood of the readings that one or two sizes tell.
    """
    count = len(sizes.laws)
    if count <= 2:
        return _projected(sizes, here, None if exact is None else exact.correction(), told)
    parts = [
        _projected(sizes.take(k), Entries(*(x[k : k + 1] for x in here)), None, told) for k in range(count)
    ]
    tau, nu = (np.concatenate([getattr(part, name) for part in parts]) for name in ("tau", "nu"))
    return Projected(tau, nu, sum(p.log_site for p in parts), max(p.change for p in parts), None)


def _projected(
    sizes: SizeLaws,
    here: Entries,
    correction: Callable[[Array], Array] | None,
    told: Callable[[Sequence[Array]], Array],
) -> Projected:
    r"""Sites of one size, or of two and their sum. Deviations δ are from the centre κ'.

    With :math:`\delta = Uy` the directions that are not certain, the cavity of y has the precision :math:`V_y^{-1} - U^\top T U`, V and T
    the covariance and the sites' precision.
    """
    pattern = PATTERNS[len(sizes.laws) - 1]  # which sizes every entry is the sum of
    centre, spread = sizes.cumulants[1], sizes.cumulants[2]
    count = len(centre)
    mean, covariance = here.mean[:count], _covariance(here.variance)
    sites, slopes, g = (pattern.T * here.tau) @ pattern, pattern.T @ here.nu, pattern.T @ here.g
    at = centre + mean
    basis, inverse = _free_directions(covariance, np.minimum(spread, np.diag(covariance)))
    if not basis.size:  # known by exact counts: t is a constant
        at = np.rint(at)
        ratio = 0.0 if (spread <= CERTAIN).any() else float(sizes.log_ratio(list(at)))
        ratio += float(told(list(at)))
        return Projected(np.zeros_like(here.tau), np.zeros_like(here.nu), ratio - float(g @ at), 0.0, None)
    along = inverse @ covariance @ inverse.T
    now, y_mean = np.linalg.inv(along), inverse @ mean
    precision = now - basis.T @ sites @ basis
    slope = now @ y_mean - basis.T @ slopes
    around = slope - precision @ y_mean

    def log_weight(points: list[Array]) -> Array:
        """Log of the cavity, which is one at the posterior's mean, times t; at deviations y along every direction."""
        y = np.meshgrid(*points, indexing="ij", sparse=True)
        pulled = [sum(row[j] * y[j] for j in range(len(y))) for row in precision]
        log_c = sum(y[i] * (around[i] - 0.5 * pulled[i]) for i in range(len(y)))
        n = [_whole(at[k] + sum(basis[k, i] * y[i] for i in range(len(y)))) for k in range(count)]
        total = log_c + sizes.log_ratio(n) + told(n) - sum(g[k] * n[k] for k in range(count))
        return np.asarray(total if correction is None else total + correction(n[0]))

    root = np.linalg.cholesky(along)
    proper = float(np.linalg.eigvalsh(root.T @ precision @ root).min()) > LEAST_PRECISION
    ends = _ends(sizes.laws, at, basis, np.sqrt(np.diag(along)))
    points, log_w, rising = _window(
        log_weight, inverse @ at, np.sqrt(np.diag(along)), ends, bounded=not proper
    )
    top = float(log_w.max())
    if top == -math.inf or rising:  # no cavity, and nothing around the posterior that holds the sizes
        return Projected(here.tau, here.nu, 0.0, 1.0, None)
    w = np.exp(log_w - top)
    total = float(w.sum())
    new_y, new_c = _moments(points, w / total)
    new_p = np.linalg.inv(new_c)
    site = inverse.T @ (new_p - precision) @ inverse
    new_slope = inverse.T @ (new_p @ (y_mean + new_y) - slope)
    tau, nu = np.diag(site), new_slope
    if count == 2:
        tau, nu = np.append(tau - site[0, 1], site[0, 1]), np.append(nu, 0.0)
    integral = float(here.mean @ (here.nu - 0.5 * here.tau * here.mean))
    integral += 0.5 * (len(along) * math.log(2 * math.pi) + np.linalg.slogdet(along)[1])
    change = _change(pattern, basis, covariance, new_y, new_c)
    return Projected(tau, nu, top + math.log(total) - integral, change, None)


def _change(pattern: Array, basis: Array, covariance: Array, new_y: Array, new_c: Array) -> float:
    """How far new moments are from the present ones, in standard deviations or shares of the variance, at most over entries."""
    rows = pattern @ basis
    v = np.einsum("ei,ij,ej->e", pattern, covariance, pattern)
    scale = np.maximum(v, LEAST_SD**2)
    moved = np.abs(rows @ new_y) / np.sqrt(scale)
    widened = np.abs(np.einsum("ei,ij,ej->e", rows, new_c, rows) - v) / scale
    return float(max(moved.max(), widened.max()))


def _whole(n: Array) -> Array:
    """Numbers without the rounding of whole ones."""
    near = np.rint(n)
    return np.where(np.abs(n - near) < ROUNDED, near, n)


def _covariance(variance: Array) -> Array:
    """That of the sizes, from the variances of each and of their sum."""
    if len(variance) == 1:
        return variance.reshape(1, 1).copy()
    a, b, both = variance
    bound = math.sqrt(max(a * b, 0.0))
    c = min(max(0.5 * (both - a - b), -bound), bound)
    return np.array([[a, c], [c, b]])


def _free_directions(covariance: Array, spread: Array) -> tuple[Array, Array]:
    """Whole-number directions that are not certain, as columns U, and the matrix that takes δ = U y to y.

    Of two sizes the narrower one moves together with c of the other, c as the covariance says: where a sum is known well, the second
    direction is this sum, and a grid along both sees its ridge.
    """
    count = len(covariance)
    free = [k for k in range(count) if spread[k] > CERTAIN]
    if len(free) < 2:
        return np.eye(count)[:, free], np.eye(count)[free]
    first = 0 if covariance[0, 0] <= WIDER * covariance[1, 1] else 1
    second = 1 - first
    own, c, other = covariance[first, first], covariance[0, 1], covariance[second, second]
    basis = np.eye(2)[:, [first, second]]
    basis[second, 0] = np.rint(c / own)
    if other - c**2 / own > CERTAIN * max(1.0, 1e-6 * max(own, other)):
        return basis, np.asarray(np.linalg.inv(basis), dtype=float)
    return basis[:, :1], np.eye(2)[[first]]


def _ends(laws: Sequence[SizeLaw], at: Array, basis: Array, sd: Array) -> list[tuple[float, float]]:
    """The least and the largest number along every direction that the laws of all sizes allow; of the first, with the second near."""
    low, high = (np.array([float(getattr(law, end)) for law in laws]) for end in ("least", "most"))
    axis = int(np.argmax(basis[:, 0] == 1.0))
    other, found = 1 - axis, [(low[axis], high[axis])]
    rate = basis[other, 0] if len(laws) == 2 else 0.0
    if (
        basis.shape[1] == 2
    ):  # the second direction is the number of the other less its rate times that of the first
        edges = -rate * np.array([low[axis], high[axis]]) if rate else np.zeros(2)
        found.append((float(low[other] + edges.min()), float(high[other] + edges.max())))
    if rate:
        offset = float(at[other] - rate * at[axis])
        near = _around(offset, float(sd[1])) if basis.shape[1] == 2 else (offset, offset)
        ends = np.array([low[other] - near[1], high[other] - near[0]]) / rate
        found[0] = (
            max(low[axis], math.ceil(ends.min() - ROUNDED)),
            min(high[axis], float(np.floor(ends.max() + ROUNDED))),
        )
    return found


def _around(middle: float, sd: float) -> tuple[float, float]:
    """A first window around the posterior's mean. Its ends are multiples of a power of two, so that sums of two sweeps have one grid."""
    width = max(8.0 * sd, 20.0)
    step = 2.0 ** math.floor(math.log2(width) - 2.0)
    return step * math.floor((middle - width) / step), step * math.ceil((middle + width) / step)


def _window(
    log_weight: Callable[[list[Array]], Array],
    at: Array,
    sd: Array,
    ends: list[tuple[float, float]],
    *,
    bounded: bool,
) -> tuple[list[Array], Array, bool]:
    """Deviations along every axis that carry the sum, log weights there, and whether they rise to an end that is none of the laws'.

    ``bounded``: only what is around the posterior.
    """
    low, high = np.array(ends, dtype=float).T
    first = np.array([_around(float(m), float(v)) for m, v in zip(at, sd, strict=True)])
    left = np.minimum(np.maximum(first[:, 0], low), high)
    right = np.maximum(np.minimum(first[:, 1], high), low)
    for _ in range(60):  # each side until nothing is left there
        points, log_w = _weighed(log_weight, at, sd, left, right)
        top = log_w.max()
        sides = np.array([[np.take(log_w, end, axis=i).max() for end in (0, -1)] for i in range(len(at))])
        inside = np.stack([left > low, right < high], axis=1)
        if bounded and top > -math.inf:
            return points, log_w, bool((inside & (sides == top)).any())
        more = inside & ((sides > top - NEGLIGIBLE) | (top == -math.inf))
        if not more.any():
            break
        reach = right - left + 1.0
        left, right = (
            np.where(more[:, 0], np.maximum(low, left - reach), left),
            np.where(more[:, 1], np.minimum(high, right + reach), right),
        )
    return points, log_w, False


def _weighed(
    log_weight: Callable[[list[Array]], Array], at: Array, sd: Array, left: Array, right: Array
) -> tuple[list[Array], Array]:
    """Deviations from ``at`` along every axis between two ends, and their log weights, each with the numbers in its block."""
    most = MOST_POINTS[len(at) - 1]
    grids = [_blocks(float(a), float(b), float(s), most) for a, b, s in zip(left, right, sd, strict=True)]
    points = [k - m for (k, _), m in zip(grids, at, strict=True)]
    log_w = log_weight(points)
    for i, (_, size) in enumerate(grids):
        log_w = log_w + np.log(size).reshape([-1 if j == i else 1 for j in range(len(at))])
    return points, log_w


def _blocks(low: float, high: float, sd: float, most: int) -> tuple[Array, Array]:
    """Whole numbers from low to high, or the middles of blocks of them, and the numbers in each: smaller ones towards the ends."""
    if high - low < most:
        k = np.arange(low, high + 1.0)
        return k, np.ones(len(k))
    return _blocks_up_to(
        low, high, max(1.0, 2.0 ** math.floor(math.log2(sd / 3.0)), math.ceil((high - low) / most))
    )


@lru_cache(maxsize=256)
def _blocks_up_to(low: float, high: float, widest: float) -> tuple[Array, Array]:
    """The same with blocks of at most ``widest`` numbers. The windows of all sweeps are few: they are kept."""
    edges, here, middle = [low], low, 0.5 * (low + high)
    while here < middle:
        here += min(widest, max(1.0, math.floor((here - low) / BLOCKS_PER_END)))
        edges.append(here)
    first = np.array(edges)
    starts = np.concatenate([first[first < middle], (high + low + 1.0 - first[first < middle])[::-1]])
    starts = np.unique(starts)
    size = np.diff(starts)
    return starts[:-1] + 0.5 * (size - 1.0), size


def _moments(points: list[Array], w: Array) -> tuple[Array, Array]:
    """Mean and covariance of points along axes with weights; no variance below `CERTAIN`."""
    mean = np.array([w.sum(axis=tuple(j for j in range(w.ndim) if j != i)) @ y for i, y in enumerate(points)])
    away = [y - m for y, m in zip(points, mean, strict=True)]
    found = np.zeros((len(points),) * 2)
    for i in range(len(points)):
        found[i, i] = max(
            float(w.sum(axis=tuple(j for j in range(w.ndim) if j != i)) @ away[i] ** 2), CERTAIN
        )
    if len(points) == 2:
        c = float(away[0] @ w @ away[1])
        bound = (1.0 - CERTAIN) * math.sqrt(found[0, 0] * found[1, 1])
        found[0, 1] = found[1, 0] = min(max(c, -bound), bound)
    return mean, found


def _log_sum(log_w: Array) -> float:
    """log Σ exp."""
    top = float(log_w.max())
    return top + math.log(float(np.exp(log_w - top).sum()))
