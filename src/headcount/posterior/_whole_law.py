"""Quantiles of whole-number laws with a given mean and variance, entry by entry, compiled; the laws are those of ``_interval``.

Both laws are summed outwards from the whole number nearest to the mean by the ratio of neighbouring probabilities, so that no
logarithm and no factorial is needed.
"""

from __future__ import annotations

import numpy as np

from headcount._compile import bare, kernel

REACH = 9.0
"""Standard deviations on either side of the mean over which a law is summed: beyond lies less than 1e-14 of a Gaussian."""
SMALL_TAIL = 6
"""Whole numbers added to that reach, because small counts have longer upper tails: a Poisson law of any mean has less than 1e-14
beyond."""
POLYA_TAIL = 30.0
"""The same for the Pólya law, in units of v/m: its tail falls by 1 − m/v or faster per individual, and (1 − x)^(30/x) < 1e-13."""
LONGEST_TAIL = 4000.0
"""Bound on the latter, in individuals."""
NEWTON_STEPS = 40
LARGEST_STEP = 2.0
"""Largest change of A or B (log probability per squared or plain individual) in one Newton step. Measured: twice this
also converges on all of 20 000 random moments, four times this does not."""
CLOSE = 1e-5
"""Error of mean and variance, in units of the sd and the variance, at which the fit ends: far below what moves a quantile."""


@kernel
def whole_quantiles(mean, variance, population, probabilities, out):
    """Fill ``out[q, i]``, the smallest k with P(n_i ≤ k) ≥ ``probabilities[q]``."""
    largest = probabilities.max()
    widest = 1
    for i in range(mean.size):
        low, high = _window(mean[i], variance[i], population)
        widest = max(widest, high - low + 1)
    p = np.empty(widest)
    for i in range(mean.size):
        m, v = mean[i], variance[i]
        if m <= 1.0 - largest:  # P(n ≥ 1) ≤ m
            out[:, i] = 0.0
            continue
        low, high = _window(m, v, population)
        start = min(max(int(np.rint(m)), low), high)
        if v > m * (1.0 - m / population):
            _polya(m, v, population, low, start, high, p)
        else:
            _fitted(m, v, population, low, start, high, p)
        total = 0.0
        for k in range(high - low + 1):
            total += p[k]
        for q in range(probabilities.size):
            k, below = 0, p[0]
            while below < probabilities[q] * total * (1.0 - 1e-12) and k < high - low:
                k += 1
                below += p[k]
            out[q, i] = low + k


@bare
def _window(m, v, population):
    """The whole numbers that carry the law."""
    sd = np.sqrt(v)
    tail = 1.0 * SMALL_TAIL
    if v > m * (1.0 - m / population):
        tail += min(POLYA_TAIL * v / max(m, 1e-300), LONGEST_TAIL)
    low = int(max(np.floor(m - REACH * sd), 0.0))
    high = int(min(np.ceil(m + REACH * sd + tail), population))
    return low, high


@bare
def _polya(m, v, population, low, start, high, p):
    """Pólya (beta-binomial) law: P(k+1)/P(k) = (N−k)(k+a) / ((k+1)(N−k−1+b)), a + b = (N − r)/(r − 1), r = v / binomial variance."""
    ratio = min(v / (m * (1.0 - m / population)), 0.999 * population)
    weight = (population - ratio) / (ratio - 1.0)
    a, b = weight * m / population, weight * (1.0 - m / population)
    p[start - low] = 1.0
    for k in range(start, high):
        p[k + 1 - low] = p[k - low] * (population - k) * (k + a) / ((k + 1.0) * (population - k - 1.0 + b))
    for k in range(start, low, -1):
        p[k - 1 - low] = p[k - low] * k * (population - k + b) / ((population - k + 1.0) * (k - 1.0 + a))


@bare
def _tilted(m, a, b, population, low, start, high, p):
    """p(k) ∝ (N over k) exp(A s² + B s), s = k − m, with p(start) = 1."""
    change = np.exp(2.0 * a)
    s = start - m
    up = np.exp(b + a * (2.0 * s + 1.0))
    p[start - low] = 1.0
    for k in range(start, high):
        p[k + 1 - low] = p[k - low] * (population - k) / (k + 1.0) * up
        up *= change
    down = np.exp(-b - a * (2.0 * s - 1.0))
    for k in range(start, low, -1):
        p[k - 1 - low] = p[k - low] * k / (population - k + 1.0) * down
        down *= change


@bare
def _fitted(m, v, population, low, start, high, p):
    """The law of :func:`_tilted` with mean m and variance v, by Newton on A and B; two neighbouring numbers where no law is wider."""
    fraction = m - np.floor(m)
    if v <= 1.02 * fraction * (1.0 - fraction) or v < 1e-6:
        for k in range(high - low + 1):
            p[k] = 0.0
        floor = int(np.floor(m))
        p[floor - low] = 1.0 - fraction
        if fraction > 0.0:
            p[floor + 1 - low] = fraction
        return
    mu = m / population
    a = max(-0.5 * (1.0 / v - 1.0 / (m * (1.0 - mu))), -8.0)
    b = np.log(mu) - np.log1p(-mu)
    for _ in range(NEWTON_STEPS):
        _tilted(m, a, b, population, low, start, high, p)
        m0 = m1 = m2 = m3 = m4 = 0.0
        for k in range(high - low + 1):
            s = low + k - m
            w = p[k]
            m0 += w
            w *= s
            m1 += w
            w *= s
            m2 += w
            w *= s
            m3 += w
            m4 += w * s
        m1, m2, m3, m4 = m1 / m0, m2 / m0, m3 / m0, m4 / m0
        if abs(m1) <= CLOSE * np.sqrt(v) and abs(m2 - v) <= CLOSE * v:
            return
        aa, ab, bb = m4 - m2 * m2, m3 - m1 * m2, m2 - m1 * m1
        determinant = aa * bb - ab * ab
        if not determinant > 1e-14 * aa * bb:
            return
        step_a = (bb * (v - m2) + ab * m1) / determinant
        step_b = (-ab * (v - m2) - aa * m1) / determinant
        length = min(1.0, LARGEST_STEP / max(abs(step_a), abs(step_b), 1e-300))
        a += length * step_a
        b += length * step_b
