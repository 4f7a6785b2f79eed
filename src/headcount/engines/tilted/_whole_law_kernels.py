"""The laws of ``_whole_law`` and the sums of ``_projection``, entry by entry, compiled.

They are many short sums: in NumPy dozens of passes over all points of all entries, here one pass over what each entry needs.
"""

from __future__ import annotations

import numpy as np

from headcount._compile import bare, kernel
from headcount.engines.tilted._whole_law import CLOSE, HALVINGS, STEPS


@kernel
def fit_laws(
    expected,
    mean,
    variance,
    population,
    dispersion,
    reach,
    least,
    rare,
    steep,
    table,
    a,
    b,
    constant,
    reference,
    spread,
):
    """Fill A, B, the constant, the reference and the variance of ``_whole_law.Law`` for every entry.

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
        mu = expected[i] / population
        pull = 1.0 / v - 1.0 / (phi * expected[i] * (1.0 - mu))
        a[i] = -0.5 * pull
        b[i] = (np.log(mu) - np.log1p(-mu)) / phi + (m - expected[i]) * (1.0 / v - pull)
        spread[i] = v
        if m > low and m < high:
            fraction, plain = m - np.floor(m), phi * m * (1.0 - m / population)
            wanted = max(v, min(least * fraction * (1.0 - fraction), plain))
            # beyond, c would bend upwards in its tail
            most = (0.5 / (high + 1.0) + 0.5 / (population - low + 1.0)) / phi
            if plain < rare:
                a[i], b[i] = 0.0, (np.log(m) - np.log(population - m)) / phi
            first = min(max(a[i], steep), most)
            a[i], b[i], total, own = _match(base, s, count, step, wanted, first, b[i], most, p, q)
            spread[i] = own if own > 0.0 else v
        else:
            top, m0 = _weigh(base, s, count, a[i], b[i], p)
            total = top + np.log(m0)
        constant[i] = -total - np.log(step)
        reference[i] = low


@bare
def _stride(m, sd, population, phi):
    """Distance of the whole numbers that are summed. A law that ends at 0 or N, as only dispersed ones of this width do, needs more.

    Its ends have the weight that the sum over all whole numbers gives them, by Euler and Maclaurin ½ + ½/step of an inner point.
    """
    ends = phi != 1.0 and min(m, population - m) < 8.0 * sd
    return max(np.floor(sd / (24.0 if ends else 3.0)), 1.0)


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
        m1, m2, m3, m4 = m1 / m0, m2 / m0, m3 / m0, m4 / m0
        short = variance - m2
        if abs(m1) <= CLOSE * np.sqrt(variance) and (
            abs(short) <= CLOSE * variance or (a == most and short > 0.0)
        ):
            return a, b, top + np.log(m0), m2
        c_bb, c_ab, c_aa = m2 - m1 * m1, m3 - m1 * m2, m4 - m2 * m2
        det = c_aa * c_bb - c_ab * c_ab
        if not det > 1e-13 * c_aa * c_bb:
            break
        step_a = (c_ab * m1 + c_bb * short) / det
        step_b = (-c_ab * short - c_aa * m1) / det
        if a + step_a > most:
            step_a = most - a
            step_b = -(m1 + c_ab * step_a) / c_bb
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


@kernel
def fill_tilted_sums(points, log_prob, coefficient, whole, law, mean, g, log_z, first, second):
    """Fill in what ``_projection.tilted_sums`` returns."""
    count = points.shape[1]
    w = np.empty(count)
    for i in range(points.shape[0]):
        top = -np.inf
        for k in range(count):
            s = points[i, k] - mean[i]
            w[k] = log_prob[i, k] - g[i] * points[i, k] + law[2, i] + s * (law[1, i] + s * law[0, i])
            if whole[i]:
                w[k] += coefficient[i, k]
            top = max(top, w[k])
        m0 = m1 = m2 = 0.0
        for k in range(count):
            if w[k] > top - 80.0:  # the rest would not change the last digit
                p, s = np.exp(w[k] - top), points[i, k] - mean[i]
                m0 += p
                m1 += p * s
                m2 += p * s * s
        log_z[i] = np.log(m0) + top
        first[i] = m1 / m0
        second[i] = m2 / m0 - first[i] * first[i]
