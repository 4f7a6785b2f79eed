"""Log-probabilities that survive large numbers."""

import decimal
import math

import numpy as np
import pytest

from headcount.numerics import deviance, poisson_log_pmf, stirling_error


def exact_log_pmf(n: int, mean: str) -> float:
    """n log m − m − log n! in 60 digits."""
    with decimal.localcontext(prec=60):
        m = decimal.Decimal(mean)
        if n < 200:
            log_factorial = decimal.Decimal(math.factorial(n)).ln()
        else:
            x = decimal.Decimal(n)
            two_pi = 2 * decimal.Decimal("3.14159265358979323846264338327950288419716939937510582097494")
            series = (
                1 / (12 * x) - 1 / (360 * x**3) + 1 / (1260 * x**5) - 1 / (1680 * x**7) + 1 / (1188 * x**9)
            )
            log_factorial = x * x.ln() - x + (two_pi * x).ln() / 2 + series
        return float(n * m.ln() - m - log_factorial)


@pytest.mark.parametrize("n", [0, 1, 2, 15, 16, 17, 150, 10**4, 10**9, 10**12])
@pytest.mark.parametrize("factor", ["0.5", "0.9", "0.999999", "1", "1.000001", "1.3", "40"])
def test_poisson_log_pmf_is_exact_at_every_size(n, factor):
    """log Poisson(n; m) to 1e-13 relative, or 2e-13 absolute near zero, from n = 0 to 10¹²."""
    mean = str(decimal.Decimal(max(n, 1)) * decimal.Decimal(factor))
    expected = exact_log_pmf(n, mean)
    # The mean itself is rounded to double: half an ulp of m moves the value by |n/m − 1| m ulp/2.
    rounding = abs(n - float(mean)) * 2.3e-16
    assert float(poisson_log_pmf(n, float(mean))) == pytest.approx(expected, rel=1e-13, abs=2e-13 + rounding)


def test_the_textbook_form_would_fail():
    """Near n = m = 10¹² the textbook form is off by more than 1e-3 nats, ours by less than 1e-12."""
    from scipy.special import gammaln

    numbers = [10**12 + 7919 * k for k in range(10)]
    expected = [exact_log_pmf(n, str(n)) for n in numbers]
    textbook = [n * math.log(n) - n - gammaln(n + 1.0) for n in numbers]
    assert np.abs(np.subtract(textbook, expected)).max() > 1e-3
    assert np.abs(poisson_log_pmf(numbers, numbers) - expected).max() < 1e-12


def test_edges_of_the_poisson():
    """A mean of zero allows only zero; a count of zero costs the mean; arrays broadcast."""
    values = poisson_log_pmf([0, 1, 0, 3], [0.0, 0.0, 2.5, 3.0])
    np.testing.assert_allclose(values[[0, 2, 3]], [0.0, -2.5, math.log(27 / 6) - 3], rtol=1e-14)
    assert values[1] == -np.inf
    assert poisson_log_pmf(np.arange(3)[:, None], np.ones(4)).shape == (3, 4)


@pytest.mark.parametrize("shape", [(4,), (1, 4), (3, 1), (3, 4), (2, 1, 1), ()])
def test_small_and_large_counts_in_one_array_each_have_their_own_form(shape):
    """The answer for an array is the answer for each of its entries, however it is broadcast."""
    rng = np.random.default_rng(3)
    n = rng.choice([0.0, 3.0, 255.0, 256.0, 1e6], shape)
    mean = rng.choice([0.0, 2.0, 260.0, 1e6], (2, 3, 4))
    gap = n - mean
    each = [
        float(poisson_log_pmf(*three))
        for three in zip(*(x.ravel() for x in np.broadcast_arrays(n, mean, gap)), strict=True)
    ]
    for found in (poisson_log_pmf(n, mean), poisson_log_pmf(n, mean, gap)):
        np.testing.assert_allclose(found.ravel(), each, rtol=1e-15)


def test_pieces():
    """S(x) is continuous across its two branches, and the deviance never negative and zero at x = m only."""
    x = np.array([15.999999, 16.0, 16.000001])
    assert np.ptp(stirling_error(x)) < 1e-9
    assert stirling_error(1.0) == pytest.approx(1 - 0.5 * math.log(2 * math.pi), rel=1e-14)
    # S(16) from log 16! in 60 digits: three terms of the series fewer and this fails.
    with decimal.localcontext(prec=60):
        two_pi = 2 * decimal.Decimal("3.14159265358979323846264338327950288419716939937510582097494")
        sixteen = decimal.Decimal(16)
        rest = (two_pi * sixteen).ln() / 2 + sixteen * sixteen.ln() - sixteen
        expected = float(decimal.Decimal(math.factorial(16)).ln() - rest)
    assert float(stirling_error(16.0)) == pytest.approx(expected, rel=2e-13, abs=0)
    grid = np.linspace(0.01, 3, 500)
    assert (deviance(grid, 1.0) >= 0).all()
    assert deviance(7.0, 7.0) == 0
    assert deviance(1e12 + 1, 1e12) == pytest.approx(0.5e-12, rel=1e-9)
