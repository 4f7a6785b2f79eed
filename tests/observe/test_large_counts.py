"""Accuracy where the textbook formulas fail: counts up to 1e12, against 60-digit arithmetic."""

from decimal import Decimal, getcontext

import numpy as np
import pytest

from headcount.observe import Binomial, NegativeBinomial, Observation, Poisson

BIG = 10**12
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


@pytest.fixture(autouse=True)
def _digits():
    before = getcontext().prec
    getcontext().prec = 60
    yield
    getcontext().prec = before


def log_factorial(x) -> Decimal:
    """The logarithm of x! by Stirling's series, shifted above 100 where its error is below 1e-33."""
    x = Decimal(x)
    shift = Decimal(0)
    while x < 100:  # log x! = log (x+1)! − log(x+1)
        x += 1
        shift += x.ln()
    numerators = (1, -1, 1, -1, 1, -691, 1, -3617)
    denominators = (12, 360, 1260, 1680, 1188, 360360, 156, 122400)
    series = sum(
        Decimal(a) / Decimal(b) / x ** (2 * k + 1)
        for k, (a, b) in enumerate(zip(numerators, denominators, strict=True))
    )
    return (x + Decimal("0.5")) * x.ln() - x + (2 * PI).ln() / 2 + series - shift


def exact_poisson(y, m) -> Decimal:
    y, m = Decimal(y), Decimal(m)
    return y * m.ln() - m - log_factorial(y)


def exact_binomial(y, n, p) -> Decimal:
    y, n, p = Decimal(y), Decimal(n), Decimal(p)
    return log_factorial(n) - log_factorial(y) - log_factorial(n - y) + y * p.ln() + (n - y) * (1 - p).ln()


def exact_negative_binomial(y, r, m) -> Decimal:
    y, r, m = Decimal(y), Decimal(r), Decimal(m)
    gammas = log_factorial(y + r - 1) - log_factorial(r - 1) - log_factorial(y)
    return gammas + r * (r / (r + m)).ln() + y * (m / (r + m)).ln()


def test_the_oracle_knows_small_factorials():
    """Here log 5! = log 120: the oracle itself is checked by whole numbers."""
    assert abs(log_factorial(5) - Decimal(120).ln()) < Decimal("1e-29")
    assert abs(log_factorial(0)) < Decimal("1e-29")


@pytest.mark.parametrize("y", [0, 1, 16, 200, 255, 256, 257, 1000, 10**6, 10**9, BIG])
@pytest.mark.parametrize("sds", [-6.0, -1.0, 0.0, 0.5, 3.0, 40.0])
def test_poisson_is_accurate_to_the_last_digits(y, sds):
    """The law log Poisson(y; n) is right to 1e-12 from y = 0 to 1e12, relatively or absolutely."""
    n = max(y + sds * np.sqrt(y), 0.3)
    got = float(Poisson([float(y)]).log_prob([n])[0])
    assert got == pytest.approx(float(exact_poisson(y, n)), rel=1e-12, abs=1e-12)


def test_the_textbook_form_would_fail_here():
    """The sum y log n − n − log y! in double precision is off by more than 1e-3 at 1e12."""
    from scipy.special import gammaln

    y = float(BIG)
    means = y + 1e5 * np.arange(20)
    errors = [y * np.log(m) - m - gammaln(y + 1) - float(exact_poisson(BIG, m)) for m in means]
    assert np.max(np.abs(errors)) > 1e-3


@pytest.mark.parametrize("y", [256, 300, 10**4])
def test_poisson_mode_beyond_the_textbook_form(y):
    """At the mode nothing cancels: log Poisson(y; y) is right to 2e-15 where the saddle point is used."""
    assert float(Poisson([float(y)]).log_prob([y])[0]) == pytest.approx(
        float(exact_poisson(y, y)), rel=0, abs=2e-15
    )


@pytest.mark.parametrize("p", [1e-9, 0.01, 0.3, 0.999])
@pytest.mark.parametrize("n", [30, 10**6, BIG])
@pytest.mark.parametrize("sds", [-3.0, 0.0, 2.0])
def test_binomial_is_accurate_to_the_last_digits(n, p, sds):
    """The law log Bin(y; n, p) is right to 1e-9 absolute within three standard deviations of its mean."""
    y = int(min(max(round(n * p + sds * np.sqrt(n * p * (1 - p))), 0), n))
    got = float(Binomial([float(y)], detection=p).log_prob([float(n)])[0])
    assert got == pytest.approx(float(exact_binomial(y, n, p)), rel=1e-11, abs=1e-9)


@pytest.mark.parametrize("r", [0.1, 3.0, 1e4, 1e9, 1e15])
@pytest.mark.parametrize("n", [2, 1000, BIG])
@pytest.mark.parametrize("sds", [-0.5, 0.0, 2.0])
def test_negative_binomial_is_accurate_to_the_last_digits(n, r, sds):
    """The law log NB(y; n, r) is right to 1e-9 for every dispersion, up to where it is Poisson."""
    y = max(round(n + sds * np.sqrt(n + n * n / r)), 0)
    got = float(NegativeBinomial([float(y)], dispersion=r).log_prob([float(n)])[0])
    assert got == pytest.approx(float(exact_negative_binomial(y, r, n)), rel=1e-11, abs=1e-9)


@pytest.mark.parametrize(
    "noise",
    [
        Poisson([1e12]),
        Binomial([3e11], detection=0.3),
        NegativeBinomial([1e12], dispersion=1e13),
    ],
)
def test_derivatives_at_large_counts(noise):
    """Three standard deviations from the mode, slope and curvature agree with differences of log_prob."""
    n = np.array([1e12 + 3e6])
    np.testing.assert_allclose(noise.slope(n), Observation.slope(noise, n), rtol=1e-6)
    np.testing.assert_allclose(noise.curvature(n), Observation.curvature(noise, n), rtol=1e-4)


@pytest.mark.parametrize(("y", "n"), [(3 * 10**11, BIG + 10**6), (9 * 10**5, 3 * 10**6), (3, 11)])
def test_binomial_slope_keeps_its_digits(y, n):
    """The slope near the mode is the difference of digammas to 5e-15, in 60 digits."""

    def psi(x):  # shifted to 200, where the asymptotic series is exact to 1e-19
        x, shift = Decimal(x), Decimal(0)
        while x < 200:
            shift += 1 / x
            x += 1
        return x.ln() - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - 1 / (252 * x**6) - shift

    p = 0.3
    expected = psi(n + 1) - psi(n - y + 1) + (1 - Decimal(p)).ln()
    got = Binomial([float(y)], detection=p).slope([float(n)])[0]
    assert got == pytest.approx(float(expected), rel=0, abs=5e-15)


def test_binomial_draws_refuse_what_no_integer_holds():
    """1e19 individuals are more than an int64: refused in words, not turned negative."""
    with pytest.raises(ValueError, match=r"2\*\*53"):
        Binomial([1.0], detection=0.5).sample([1e19], rng=np.random.default_rng(0))
