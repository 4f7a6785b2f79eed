"""Have the chains mixed, and how large is the Monte-Carlo error? R-hat, effective sample size, batch means.

Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021), *Rank-normalization, folding, and localization*, Bayesian Analysis 16.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headcount._types import Array

BLOCK = 200_000
"""Numbers treated at once, so that the temporary arrays, about a dozen, stay below 20 MB."""
LEAST_VARIANCE = 0.25
"""Share of its table's variance per individual that a count has at least. Measured: at 0 rare cells that were never seen are counted
and not smoothed, at 1 individuals that the data pin to a cell are smoothed away; from .01 to .25 both are right, and means of ordinary maps
are the same."""
MISSED = 5.0
"""Standard errors below counting at which smoothing has missed an individual: P(z < −5) = 3e-7, rare among 10⁵ cells."""


def split_chains(draws: NDArray[Any]) -> Array:
    """Cut every chain in two halves: (chains, draws, ...) to (2 chains, draws // 2, ...)."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]]).astype(float)


def _parts(draws: NDArray[Any]) -> Iterator[slice]:
    """Ranges of quantities whose draws are about `BLOCK` numbers."""
    width = max(1, BLOCK // max(1, draws.shape[0] * draws.shape[1]))
    for low in range(0, draws.shape[2], width):
        yield slice(low, low + width)


def r_hat(draws: NDArray[Any], *, ranks: bool = True) -> Array:
    """Split R-hat of every quantity: sqrt(((S − 1)/S W + B/S) / W), W within and B/S between the half-chains.

    Parameters
    ----------
    draws
        Shape (chains, draws, quantities).
    ranks
        Replace draws by the normal scores of their ranks first (heavy tails and rare events then do not mislead).

    Returns
    -------
    NDArray
        One number per quantity, at least about 1; exactly 1 for what never moved; NaN with fewer than four draws per chain, whose
        halves have no variance to compare.
    """
    out = np.full(draws.shape[2], np.nan)
    if draws.shape[1] < 4:
        return out
    for part in _parts(draws):
        halves = split_chains(draws[:, :, part])
        if ranks:
            halves = normal_scores(halves)
        within = halves.var(axis=1, ddof=1).mean(axis=0)
        between = halves.mean(axis=1).var(axis=0, ddof=1)
        length = halves.shape[1]
        moving = within > 0
        # Chains stuck in different places have no variance within.
        ratio = np.where(between > 0, np.inf, 1.0)
        ratio[moving] = np.sqrt((length - 1) / length + between[moving] / within[moving])
        out[part] = ratio
    return out


def normal_scores(draws: Array) -> Array:
    """Phi^−1((rank − 3/8) / (S + 1/4)) over all chains together, ties at their average rank."""
    from scipy.special import ndtri

    flat = draws.reshape(-1, draws.shape[-1])
    total = flat.shape[0]
    order = np.sort(flat, axis=0)
    scores = np.empty_like(flat)
    for k in range(flat.shape[1]):
        low = np.searchsorted(order[:, k], flat[:, k], side="left")
        high = np.searchsorted(order[:, k], flat[:, k], side="right")
        scores[:, k] = ndtri(((low + high + 1) / 2 - 0.375) / (total + 0.25))
    return scores.reshape(draws.shape)


def effective_size(draws: NDArray[Any]) -> Array:
    """Effective sample size of every quantity's mean: m S / (−1 + 2 Σ P_k), Geyer's initial monotone sequence.

    NaN for what never moved.
    """
    out = np.full(draws.shape[2], np.nan)
    if draws.shape[1] < 8:
        return out
    for part in _parts(draws):
        out[part] = _effective_size(split_chains(draws[:, :, part]))
    return out


def _effective_size(chains: Array) -> Array:
    """The same for one block of quantities, already split."""
    count, length, _ = chains.shape
    centred = chains - chains.mean(axis=1, keepdims=True)
    padded = 1 << int(np.ceil(np.log2(2 * length)))
    spectrum = np.fft.rfft(centred, n=padded, axis=1)
    covariance = np.fft.irfft(spectrum * spectrum.conj(), n=padded, axis=1)[:, :length].mean(axis=0) / length
    within = covariance[0] * length / (length - 1)
    total = covariance[0] + chains.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = 1 - (within - covariance) / total
    correlation[0] = 1.0
    pairs = correlation[: length - length % 2].reshape(-1, 2, correlation.shape[1]).sum(axis=1)
    positive = np.logical_and.accumulate(pairs > 0, axis=0)
    monotone = np.minimum.accumulate(np.where(positive, pairs, 0.0), axis=0)
    time = -1 + 2 * np.where(positive, monotone, 0.0).sum(axis=0)
    draws = count * length
    return np.where(total > 0, draws / np.maximum(time, 1 / np.log10(draws)), np.nan)


@dataclass(frozen=True, eq=False)
class BatchMoments:
    """Means and co-moments, over batches, of two estimators of the same quantities: counting (raw) and smoothing."""

    batches: int
    raw: Array
    smooth: Array
    raw_raw: Array
    raw_smooth: Array
    smooth_smooth: Array

    @classmethod
    def empty(cls, size: int) -> BatchMoments:
        """No batches yet."""
        return cls(0, *(np.zeros(size) for _ in range(5)))

    def add(self, raw: Array, smooth: Array) -> BatchMoments:
        """One batch more."""
        none = np.zeros_like(raw)
        return self.merge(BatchMoments(1, raw, smooth, none, none, none))

    def merge(self, other: BatchMoments) -> BatchMoments:
        """The batches of both (Chan's update)."""
        if self.batches == 0 or other.batches == 0:
            return other if self.batches == 0 else self
        count = self.batches + other.batches
        share = other.batches / count
        off_raw, off_smooth = other.raw - self.raw, other.smooth - self.smooth
        weight = self.batches * share
        return BatchMoments(
            count,
            self.raw + share * off_raw,
            self.smooth + share * off_smooth,
            self.raw_raw + other.raw_raw + weight * off_raw * off_raw,
            self.raw_smooth + other.raw_smooth + weight * off_raw * off_smooth,
            self.smooth_smooth + other.smooth_smooth + weight * off_smooth * off_smooth,
        )

    def best_shares(self, starts: NDArray[np.int64]) -> Array:
        """The share a of counting that minimises Var(a raw + (1 − a) smooth), entry by entry, between 0 and 1.

        Two rare events hide from a finite run. A count that was never seen seems to have no variance: it gets at least
        `LEAST_VARIANCE` of what its table has in proportion to its mean (tables start at `starts`, whose last element is the end).
        And smoothing, which looks at a few individuals per sweep, can miss for long the one individual that the data pin to a cell:
        where it is more than `MISSED` standard errors below counting, the distance counts as its own error.
        """
        mean, last = (self.raw + self.smooth) / 2, max(self.batches - 1, 1)
        raw, both, smooth = self.raw_raw / last, self.raw_smooth / last, self.smooth_smooth / last
        size = np.diff(starts)
        per_head = np.add.reduceat(raw, starts[:-1]) / np.maximum(np.add.reduceat(mean, starts[:-1]), 1e-300)
        counted = np.maximum(raw, LEAST_VARIANCE * np.repeat(per_head, size) * mean)
        below = np.maximum(self.raw - self.smooth, 0.0)
        missed = self.batches * below**2 > MISSED**2 * (raw + smooth - 2 * both)
        smooth = smooth + np.where(missed, self.batches * below**2, 0.0)
        bend = counted + smooth - 2 * both
        return np.where(bend > 0, np.clip((smooth - both) / np.where(bend > 0, bend, 1.0), 0.0, 1.0), 0.5)

    def blend(self, share: Array | float) -> Array:
        """The weighted mean a · raw + (1 − a) · smooth."""
        return np.asarray(share * self.raw + (1 - share) * self.smooth)

    def standard_error(self, share: Array | float) -> Array:
        """Of the blend's mean, batches taken as independent."""
        if self.batches < 2:
            return np.full(self.raw.shape, np.nan)
        rest = 1 - share
        total = share**2 * self.raw_raw + 2 * share * rest * self.raw_smooth + rest**2 * self.smooth_smooth
        return np.asarray(np.sqrt(np.maximum(total, 0.0) / (self.batches - 1) / self.batches))


def merged(parts: Sequence[BatchMoments]) -> BatchMoments:
    """The batches of several chains."""
    return reduce(BatchMoments.merge, parts)


def expected_l1(standard_error: Array, mean: Array) -> float:
    """Σ E|error| / Σ mean for Gaussian errors, E|error| = sqrt(2/pi) se: the relative L1 distance that noise alone makes."""
    return 0.0 if mean.size == 0 else float(np.sqrt(2 / np.pi) * standard_error.sum() / mean.sum())
