"""Tests of the scatter that the model allows: quadratic forms of the counts' deviations, and the randomised PIT."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import betainc, gammainc, gammaincc, ndtr

from headcount.posterior._fit_moments import (
    CHECK_SEED,
    FEWEST_SIMULATED,
    affordable,
    counts_of,
    drawable,
    moved,
    next_margins,
    simulated,
    whole_parties,
)
from headcount.tables import dense

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from headcount._types import Array
    from headcount.individual import RootedTree
    from headcount.observe import Problem
    from headcount.posterior._fit_moments import Together

LEAST_NOISE = 0.25
"""Least variance of a count's noise in the weights (individuals²). Without it exact counts have no inverse, and single individuals
where next to none are expected would dominate every statistic. The variance of rounding is 1/12; this is the variance of a coin."""
LEAST_VARIANCE = 1.0
"""Residuals whose variance is below this are left out of averages: a square of a count of 0 or 1 says nothing about a spread."""
MOST_COUNTS = 1500
"""Most counts whose joint covariance is made: 18 MB, and its inverse takes 0.2 s."""
WINDOW = 600
"""Counts of a chain that are held against each other; longer data are checked in windows of successive times."""
CLEAR_BELOW, CLEAR_ABOVE = 2.0, 20.0
"""Statistics this many Gaussian standard deviations above their mean or less (but above −2), and those further off, need no simulated
data sets: small counts make the true standard deviation larger than a Gaussian's, up to twice as large (measured at N = 20)."""
NOT_LEARNED = 1e-8
"""Share of the largest information about a learned parameter below which nothing was learned: rounding of central differences."""
EXPLAINED = 1e-6
"""Share of a count's weight that must be left after all learned parameters for it to be checked."""
LEAST_SKEWNESS = 0.01
"""Skewness from which a law is as good as Gaussian."""
LEAST_SD = 1e-90
"""An sd whose third power can be divided by."""
TINY = 1e-300
"""A spread that can be divided by."""


class Test(NamedTuple):
    """A quadratic form r'Mr with three moments that the model gives it."""

    value: float
    mean: float
    sd: float
    skewness: float

    @property
    def above(self) -> float:
        """Probability of a larger value, by the shifted Gamma law (Pearson III) with the same three moments."""
        return float(gammaincc(*self._gamma))

    @property
    def below(self) -> float:
        """Probability of a smaller value."""
        return float(gammainc(*self._gamma))

    @property
    def _gamma(self) -> tuple[float, float]:
        skewness = max(self.skewness, LEAST_SKEWNESS)
        return 4.0 / skewness**2, max(
            4.0 / skewness**2 + 2.0 * (self.value - self.mean) / (self.sd * skewness), 0.0
        )


def _skewness(third: float, sd: float) -> float:
    """Third cumulant over sd³; none of what hardly varies."""
    return third / sd**3 if sd > LEAST_SD else 0.0


def _simulated_test(value: float, mean: float, again: Array) -> Test:
    """The statistic with the spread and skewness of its values in simulated data around the mean, which is known exactly."""
    sd = max(float(np.sqrt(((again - mean) ** 2).mean())), TINY)
    return Test(value, mean, sd, float((((again - mean) / sd) ** 3).mean()))


def tested(
    ms: Array, form: Callable[[Array], Array], r: Array, simulate: Callable[[], Array | None] | None
) -> Test:
    """r'Mr with E = tr(MS), exactly, and the cumulants 2 tr(MS)², 8 tr(MS)³ of a Gaussian r, or of simulated data where it matters.

    Parameters
    ----------
    ms
        M S, S the covariance of r.
    form
        x'Mx of every row of x.
    """
    mean = float(np.trace(ms))
    sd = float(np.sqrt(max(2.0 * np.einsum("ij,ji->", ms, ms), TINY)))
    value = float(form(r[None])[0])
    z = (value - mean) / sd
    drawn = None if simulate is None or abs(z) < CLEAR_BELOW or z > CLEAR_ABOVE else simulate()
    if (
        drawn is None and abs(z) < CLEAR_BELOW
    ):  # nowhere near a verdict: a Gamma law's skewness will do, and needs no product
        return Test(value, mean, sd, 2.0 * sd / mean if mean > 0 else 0.0)
    if drawn is None:
        return Test(value, mean, sd, _skewness(8.0 * float(np.einsum("ij,ji->", ms @ ms, ms)), sd))
    return _simulated_test(value, mean, form(drawn))


def quadratic(form: Array) -> Callable[[Array], Array]:
    """x'Mx of every row of x."""
    return lambda x: np.einsum("ri,ri->r", x @ form, x)


def joined(tests: list[Test]) -> Test:
    """The sum of several statistics; windows depend on each other, so standard deviations are added, which is their upper bound."""
    if len(tests) == 1:
        return tests[0]
    value, mean, sd = (sum(getattr(test, name) for test in tests) for name in ("value", "mean", "sd"))
    return Test(value, mean, sd, _skewness(sum(test.skewness * test.sd**3 for test in tests), sd))


def windows_of(problem: Problem) -> list[list[int]] | None:
    """Positions of the sites to be held against each other; None where they are too many."""
    tree, sites = problem.model.rooted(), problem.sites
    if (
        sum(map(len, sites)) <= WINDOW
        or tree is None
        or not tree.is_chain
        or any(len(s.scope) > 1 for s in sites)
    ):
        return [list(range(len(sites)))] if sum(map(len, sites)) <= MOST_COUNTS else None
    windows: list[list[int]] = []
    filled = WINDOW
    last = -1
    for k in sorted(range(len(sites)), key=lambda k: tree.index[sites[k].scope[0]]):
        node = tree.index[sites[k].scope[0]]
        if filled + len(sites[k]) > WINDOW and node != last:
            windows.append([])
            filled = 0
        windows[-1].append(k)
        filled, last = filled + len(sites[k]), node
    largest = max(sum(len(sites[k]) for k in window) for window in windows)
    return windows if largest <= MOST_COUNTS else None


def left_out_part(
    problem: Problem, window: list[int], *, alone: bool, learned: Array | None
) -> dict[str, Any] | None:
    """Errors of prediction, and both statistics, of one window.

    `learned` is ∂E[y]/∂θ, shape (all counts, K), of parameters θ that were learned from these counts. The weights then leave out what
    θ could explain, W = S⁻¹ − S⁻¹G(GᵀS⁻¹G)⁺GᵀS⁻¹, so that, to first order, nothing depends on which θ was found.
    """
    counts = counts_of(problem, window)
    if counts is None:
        return None
    a = counts.slope
    k = a[:, None] * counts.cov_n * a
    s = k + counts.noise
    noise = np.diag(counts.noise)
    added = np.maximum(LEAST_NOISE - noise, 0.0)
    w = np.linalg.inv(s + np.diag(added))
    whole_weight = np.diag(w)
    # W S = 1 − W diag(added) and W K = 1 − W diag(noise + added): both without a product of matrices.
    one = np.eye(len(w))
    ws = one - w * added
    wk = one - w * (noise + added) if np.count_nonzero(counts.noise) <= len(noise) else w @ k
    if learned is not None:
        g = learned[counts.place]
        pull = w @ g
        inner = np.linalg.pinv(g.T @ pull, rcond=NOT_LEARNED, hermitian=True)
        ws, wk = (part - pull @ (inner @ (g.T @ part)) for part in (ws, wk))
        w = w - pull @ inner @ pull.T
    explained = np.diag(w) <= EXPLAINED * whole_weight  # a count that has a parameter to itself says nothing
    own = np.where(explained, np.inf, np.diag(w))
    predicted = np.maximum(np.einsum("ij,ij->i", ws, w), 0.0) / own**2  # (W S W)_kk / W_kk²
    kept = predicted >= LEAST_VARIANCE
    share = np.where(kept, 1.0 / np.where(kept, predicted * own**2, 1.0), 0.0)
    r = counts.y - counts.mean
    simulate = cache(lambda: simulated(problem, counts)) if alone else None
    return {
        "index": counts.place,
        "y": counts.y,
        "whole": counts.whole,
        "error": (w @ r) / own,
        "sd": np.sqrt(predicted),
        "kept": int(kept.sum()),
        "free": float(np.trace(ws)),
        "freedom": float(np.einsum("ij,ji->", wk, wk)),
        "scatter": tested(wk @ ws, lambda x: np.einsum("ri,ri->r", x @ w @ k, x @ w), r, simulate),
        "residual": tested((w * share) @ ws, lambda x: ((x @ w) ** 2) @ share, r, simulate),
    }


class Step(NamedTuple):
    """An exact margin y, predicted from the one before: n individuals per origin, each moving by a row of ``law``."""

    site: int
    n: Array
    law: Array
    y: Array
    mean: Array
    covariance: Array
    together: Together | None
    """How those who move together are drawn; None for individuals that move alone."""
    drawn: bool
    """Whether the margin can be drawn in one go: not over several steps of company."""

    def form(self, covariance: Array) -> Array:
        """W Q W with W the inverse of the covariance Q."""
        w = np.linalg.inv(covariance + LEAST_NOISE * np.eye(len(covariance)))
        return np.asarray(w @ covariance @ w)


def exact_steps(problem: Problem, tree: RootedTree) -> list[Step]:
    """All margins, each given the one before; the first given N."""
    n, law, at = np.array([float(problem.population)]), tree.initial[None], 0
    root = tree.initial
    mean, cov = n[0] * root, problem.root_phi * n[0] * (np.diag(root) - np.outer(root, root))
    together, whole = whole_parties(problem, None, n), True
    steps: list[Step] = []
    for k in sorted(range(len(problem.sites)), key=lambda k: tree.index[problem.sites[k].scope[0]]):
        node = tree.index[problem.sites[k].scope[0]]
        for v in range(at + 1, node + 1):
            law = law @ dense(tree.transitions[v])
            mean, cov = moved(problem, tree, v, mean, cov)
            whole = not problem.disperses or (v == at + 1 and bool(steps))
            together = whole_parties(problem, tree.variables[v], n) if whole else None
        y = np.asarray(problem.sites[k].noise.counts, dtype=float)
        steps.append(Step(k, n, law, y, mean, cov, together, whole and drawable(problem, tree)))
        n, law, at = y, np.eye(len(y)), node
        mean, cov = y, np.zeros((len(y), len(y)))
    return steps


def overall_test(tests: list[Test], steps: list[Step], forms: list[Array], tree: RootedTree) -> Test:
    """The sum over steps, which are independent; its law from simulated steps where it matters."""
    value, mean = sum(t.value for t in tests), sum(t.mean for t in tests)
    sd = float(np.sqrt(sum(t.sd**2 for t in tests)))
    z, size = (value - mean) / sd, affordable(tree)
    clear = abs(z) < CLEAR_BELOW or z > CLEAR_ABOVE
    if clear or size < FEWEST_SIMULATED or not all(step.drawn for step in steps):
        return Test(value, mean, sd, _skewness(sum(t.skewness * t.sd**3 for t in tests), sd))
    rng = np.random.default_rng(CHECK_SEED)
    again = np.zeros(size)
    for step, form in zip(steps, forms, strict=True):
        counts = np.tile(step.n.astype(np.int64), (size, 1))
        drawn = next_margins(counts, step.law, rng, step.together) - step.mean
        again += np.einsum("ri,ri->r", drawn @ form, drawn)
    return _simulated_test(value, mean, again)


def randomised_pit(y: Array, expected: Array, sd: Array, whole: NDArray[np.bool_]) -> Array:
    """P(Y < y) + u P(Y = y), u uniform, for the law with these moments: on whole numbers a (negative) binomial, else a Gaussian.

    NaN where the model leaves no choice.
    """
    u = np.random.default_rng(CHECK_SEED).random(len(y))
    with np.errstate(divide="ignore", invalid="ignore"):
        smooth = ndtr((y - expected) / sd)
    below, upto = (_count_cdf(k, np.maximum(expected, 1e-9), sd**2) for k in (y - 1.0, y))
    return np.where(sd > 0, np.where(whole, below + u * (upto - below), smooth), np.nan)


def _count_cdf(k: Array, mean: Array, variance: Array) -> Array:
    """P(Y ≤ k) for a count with this mean and variance: negative binomial where the variance is above the mean, else binomial."""
    excess = variance - mean
    near = np.abs(excess) < 1e-6 * mean
    shape = mean**2 / np.where(near, 1.0, np.abs(excess))  # r, or the number of trials
    at = np.maximum(k, 0.0)
    wide = betainc(shape, at + 1.0, np.where(near, 0.5, shape / (shape + mean)))
    left = np.maximum(shape - at, 1e-12)
    narrow = np.where(shape > at, betainc(left, at + 1.0, np.clip(1.0 - mean / shape, 0.0, 1.0)), 1.0)
    plain = gammaincc(at + 1.0, mean)
    return np.where(k < 0, 0.0, np.where(near, plain, np.where(excess > 0, wide, narrow)))
