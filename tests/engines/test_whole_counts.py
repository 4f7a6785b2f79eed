"""The compiled laws of single counts."""

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from headcount.engines._kernels._whole_counts import fit_laws, tilted_sums


@pytest.mark.parametrize("population", [5, 60, 3000])
def test_a_fitted_law_has_the_cavitys_moments(population):
    """Bin(k; N, μ) exp(A s² + B s), summed over every whole number, has total one, mean m and variance v."""
    rng = np.random.default_rng(population)
    expected = population * rng.uniform(0.02, 0.9, size=40)
    own = expected * (1 - expected / population)
    variance = own * rng.uniform(0.4, 1.0, size=40)
    mean = expected + 0.3 * np.sqrt(variance) * rng.uniform(-1, 1, size=40)
    table = gammaln(np.arange(population + 1) + 1.0)
    a, b, constant, reference = (np.empty(40) for _ in range(4))
    fit_laws(expected, mean, variance, float(population), 9.0, 1.02, table, a, b, constant, reference)
    k = np.arange(population + 1)
    choose = table[-1] - table - table[::-1]
    for i in range(40):
        s = k - mean[i]
        fraction = mean[i] % 1.0
        wanted = max(variance[i], 1.02 * fraction * (1 - fraction))
        log_c = choose - choose[int(reference[i])] + constant[i] + s * (b[i] + a[i] * s)
        c = np.exp(log_c)
        assert c.sum() == pytest.approx(1.0, abs=1e-9)
        assert c @ s == pytest.approx(0.0, abs=1e-6 * np.sqrt(wanted))
        assert c @ s**2 == pytest.approx(wanted, rel=1e-6)


def test_sums_are_those_of_a_loop():
    """log Σ, mean and variance of what is given, rows without binomial coefficients among them."""
    rng = np.random.default_rng(1)
    points = np.cumsum(np.ones((4, 9)), axis=1)
    log_prob, coefficient = rng.normal(size=(2, 4, 9))
    log_prob[2, 7:] = -np.inf
    whole = np.array([True, False, True, True])
    law = rng.normal(size=(3, 4)) * [[0.05], [0.3], [1.0]]
    mean, g = rng.uniform(3, 6, size=4), rng.normal(size=4)
    log_z, first, second = (np.empty(4) for _ in range(3))
    tilted_sums(points, log_prob, coefficient, whole, law, mean, g, log_z, first, second)
    s = points - mean[:, None]
    log_w = log_prob - g[:, None] * points + whole[:, None] * coefficient
    log_w += law[2][:, None] + s * (law[1][:, None] + s * law[0][:, None])
    total = logsumexp(log_w, axis=1)
    w = np.exp(log_w - total[:, None])
    np.testing.assert_allclose(log_z, total, rtol=1e-13)
    np.testing.assert_allclose(first, (w * s).sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(second, (w * s**2).sum(axis=1) - (w * s).sum(axis=1) ** 2, rtol=1e-11)
