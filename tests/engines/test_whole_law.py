"""The compiled laws of single counts."""

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp
from scipy.stats import binom

import headcount as hc
from headcount.engines.tilted._projection import make_grid, tilted_sums
from headcount.solve.whole_law import Context, log_choose, whole_law


@pytest.mark.parametrize("population", [5, 60, 3000])
def test_a_fitted_law_has_the_cavitys_moments(population):
    """Bin(k; N, μ) exp(A s² + B s), summed over every whole number, has total one, mean m and variance v."""
    rng = np.random.default_rng(population)
    expected = population * rng.uniform(0.02, 0.9, size=40)
    mean = np.clip(expected + rng.normal(size=40), 0.01, population - 0.01)
    binomial = mean * (1 - mean / population)
    variance = binomial * rng.uniform(0.4, 1.0, size=40)
    law = whole_law(Context(expected, mean, variance, population, np.ones_like(expected)), reach=9.0)
    k = np.arange(population + 1)
    table = gammaln(k + 1.0)
    choose = table[-1] - table - table[::-1]
    for i in range(40):
        s = k - mean[i]
        fraction = mean[i] % 1.0
        wanted = max(variance[i], min(1.02 * fraction * (1 - fraction), binomial[i]))
        c = np.exp(choose - choose[int(law.reference[i])] + law.constant[i] + s * (law.b[i] + law.a[i] * s))
        assert c.sum() == pytest.approx(1.0, abs=1e-9)
        assert c @ s == pytest.approx(0.0, abs=1e-6 * np.sqrt(wanted))
        assert c @ s**2 == pytest.approx(wanted, rel=1e-6)
        assert law.variance[i] == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("population", [1000, 10**9])
@pytest.mark.parametrize(
    ("mean", "variance"),
    [
        (5.8e-5, 5.8e-5),
        (5.8e-5, 6.8e-5),
        (5.8e-5, 4e-5),
        (1e-13, 1e-13),
        (-2.9e-3, 2.9e-3),
        (-5.8e-5, 6.8e-5),
        (3.2, 0.1),
        (500.0, 1e-3),
        (500.3, 1e-3),
        (7.0, 1e-12),
        (0.4, 0.5),
        (40.0, 80.0),
    ],
)
def test_a_law_of_rare_or_nearly_certain_counts_has_the_mean_and_a_falling_tail(population, mean, variance):
    """Whatever the variance asked for: mean m, the variance it says it has, log-concave. Negative means count from N."""
    mean = mean if mean > 0 else population + mean
    one = np.array([mean])
    law = whole_law(Context(one, one, np.array([variance]), population, np.ones(1)))
    spread = max(np.sqrt(variance), 0.5)
    k = np.arange(max(np.floor(mean - 7.5 * spread), 0), min(mean + 7.5 * spread + 1, population) + 1)
    s = k - mean
    log_c = law.constant + log_choose(k[None], law.reference, population)[0] + s * (law.b + law.a * s)
    c = np.exp(log_c)
    own = float(law.variance[0])
    assert c.sum() == pytest.approx(1.0, abs=1e-5)
    assert c @ s == pytest.approx(0.0, abs=1e-4 * np.sqrt(own))
    assert c @ s**2 == pytest.approx(own, rel=1e-3)
    assert np.diff(log_c, 2).max() <= 1e-9
    possible = mean % 1.0 * (1.0 - mean % 1.0)
    assert possible * (1 - 1e-9) <= own <= max(variance * (1 + 1e-6), 1.021 * possible)


def test_sums_are_those_of_a_loop():
    """log Σ, mean and variance of what is given, rows without binomial coefficients among them."""
    rng = np.random.default_rng(1)
    points = np.cumsum(np.ones((4, 9)), axis=1)
    log_prob, coefficient = rng.normal(size=(2, 4, 9))
    log_prob[2, 7:] = -np.inf
    whole = np.array([True, False, True, True])
    law = rng.normal(size=(3, 4)) * [[0.05], [0.3], [1.0]]
    mean, g = rng.uniform(3, 6, size=4), rng.normal(size=4)
    log_z, first, second = tilted_sums(points, log_prob, coefficient, whole, law, mean, g)
    s = points - mean[:, None]
    log_w = log_prob - g[:, None] * points + whole[:, None] * coefficient
    log_w += law[2][:, None] + s * (law[1][:, None] + s * law[0][:, None])
    total = logsumexp(log_w, axis=1)
    w = np.exp(log_w - total[:, None])
    np.testing.assert_allclose(log_z, total, rtol=1e-13)
    np.testing.assert_allclose(first, (w * s).sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(second, (w * s**2).sum(axis=1) - (w * s).sum(axis=1) ** 2, rtol=1e-11)


@pytest.mark.parametrize("population", [5.0, 300.0, 1e6, 1e9])
@pytest.mark.parametrize("mean", [-1e12, -3.0, 0.0, 2.0, 1e12])
def test_windows_of_summation_lie_on_possible_counts(population, mean):
    """Whatever mean a sweep proposes, the points it is judged on are counts between 0 and N, and their coefficients are finite."""
    noise = hc.Poisson(np.array([2.0]))
    for sd in (0.1, 10.0, 1e5):
        grid = make_grid(noise, np.array([mean]), np.array([sd]), population, lattice=True)
        inside = np.isfinite(grid.log_prob)
        assert inside.any()
        assert ((grid.points[inside] >= 0) & (grid.points[inside] <= population)).all()
        assert np.isfinite(grid.coefficient[inside]).all()


@pytest.mark.parametrize("expected", [0.4, 3.0, 900.0])
@pytest.mark.parametrize("cavity", [(-50.0, 4.0), (2e9, 4.0), (500.0, 1e12), (5e8, 1e14), (1e9 - 2, 1e9)])
def test_laws_of_wild_cavities_are_finite(expected, cavity):
    """A cavity far outside 0 … N, or much wider than the table of factorials, still has a law: no entry is read from outside it."""
    mean, variance = cavity
    law = whole_law(Context(np.array([expected]), np.array([mean]), np.array([variance]), 1e9, np.ones(1)))
    for part in law:
        assert np.isfinite(part).all()


def test_coefficients_beside_the_ends_of_a_large_population():
    """log (N over k) against its reference, from 0 to N, as gammaln has it; a reference outside is refused."""
    n = 1e7
    points = np.array([[0.0, 1.0, 7.0, 3e5, 5e6, n - 3e5, n - 1, n]])
    for reference in (0.0, 12.0, 4e5, n - 3, n):
        exact = [float(binomial_log(n, k) - binomial_log(n, reference)) for k in points[0]]
        got = log_choose(points, np.array([reference]), n)[0]
        np.testing.assert_allclose(got, exact, rtol=1e-9, atol=1e-6)
    for outside in (-1.0, n + 1):
        with pytest.raises(FloatingPointError, match="outside"):
            log_choose(points, np.array([outside]), n)


def test_coefficients_of_many_points_are_looked_up():
    """Many whole numbers of a population beyond the table of factorials: the coefficients of each point alone."""
    n, low = 3e6, np.array([0.0, 7.0, 40.0, 300.0, 3.0])
    points = low[:, None] + np.arange(120.0)
    found = log_choose(points, low, n)
    alone = [
        [log_choose(k[None, None], r[None], n)[0, 0] for k in row] for row, r in zip(points, low, strict=True)
    ]
    np.testing.assert_allclose(found, alone, rtol=1e-12, atol=1e-10)


def binomial_log(n, k):
    """log (n over k)."""
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)


@pytest.mark.parametrize("phi", [0.3, 1.0, 2.0, 5.0, 20.0])
@pytest.mark.parametrize("mu", [0.02, 0.3, 0.9])
def test_with_dispersion_the_law_is_the_tempered_binomial(phi, mu):
    """At the moments of Bin(k)^(1/phi) itself nothing is left to fit: A = 0, and c is that law at every k."""
    population = 400.0
    k = np.arange(401.0)
    log_c = binom.logpmf(k, 400, mu) / phi
    c = np.exp(log_c - log_c.max())
    c /= c.sum()
    mean = float(c @ k)
    variance = float(c @ (k - mean) ** 2)
    one = np.ones(1)
    law = whole_law(Context(400 * mu * one, mean * one, variance * one, population, phi * one), reach=12.0)
    assert law.variance[0] == pytest.approx(variance, rel=1e-6)
    assert law.a[0] * variance == pytest.approx(0.0, abs=1e-6)
    constant = law.constant_against(np.zeros(1), population)[0]
    s = k - mean
    fitted = log_choose(k[None], np.zeros(1), population)[0] / phi + constant + s * (law.b[0] + s * law.a[0])
    near = c > 1e-9
    np.testing.assert_allclose(np.exp(fitted[near]), c[near], rtol=1e-4)
