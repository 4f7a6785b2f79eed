"""N-mixture models with covariates: what is found is what direct sums over N give, and what is not told is said."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.special import expit
from scipy.stats import binom, nbinom, poisson

import headcount as hc
from headcount.individual import ModelError
from headcount.learn import LearnDetection, LearnSizes, nmixture
from headcount.learn._nmixture import Likelihood

N = np.arange(150)
NAMES = ["abundance (intercept)", "abundance height", "detection (intercept)", "detection wind"]


def world(seed: int, sites: int = 120, size: float = np.inf):
    """Counts (sites, 3), heights in metres and wind, the third visits of a few sites missing; and the numbers."""
    rng = np.random.default_rng(seed)
    height, wind = rng.uniform(200.0, 1800.0, sites), rng.normal(size=(sites, 3))
    mean = np.exp(2.0 - 0.0008 * height)
    if np.isfinite(size):
        mean = mean * rng.gamma(size, 1 / size, sites)
    number = rng.poisson(mean)
    counts = rng.binomial(number[:, None], expit(0.4 - 0.7 * wind)).astype(float)
    counts[::10, 2] = np.nan
    return counts, height, wind, number


def log_likelihood(x, counts, height, wind):
    """The direct sum, by scipy's probabilities."""
    mean, p = np.exp(x[0] + x[1] * height), expit(x[2] + x[3] * wind)
    total = 0.0
    for s, row in enumerate(counts):
        law = poisson.pmf(N, mean[s])
        if len(x) > 4:
            r = np.exp(x[4])
            law = nbinom.pmf(N, r, r / (r + mean[s]))
        for y, q in zip(row, p[s], strict=True):
            law = law * (binom.pmf(y, N, q) if np.isfinite(y) else 1.0)
        total += np.log(law.sum())
    return total


@pytest.mark.parametrize("size", [np.inf, 1.5], ids=["poisson", "negative binomial"])
def test_estimates_are_those_of_the_direct_sum(size):
    """Estimates, likelihood and standard errors against a maximiser of the sum written with scipy's probabilities."""
    counts, height, wind, _ = world(1, sites=60, size=size)
    kind = "poisson" if np.isinf(size) else "negative binomial"
    found = nmixture(counts, abundance={"height": height}, detection={"wind": wind}, mixture=kind)
    names = NAMES if np.isinf(size) else [*NAMES, "log size"]
    assert list(found.coefficients.index) == names
    x = found.coefficients["estimate"].to_numpy()
    assert found.log_likelihood == pytest.approx(log_likelihood(x, counts, height, wind), abs=1e-8)
    scale = np.array([1.0, 1e-3, 1.0, 1.0, 1.0])[: len(x)]

    def loss(z):
        return -log_likelihood(z * scale, counts, height, wind)

    best = minimize(loss, x / scale + 0.05, method="BFGS", options={"gtol": 1e-3})
    assert found.log_likelihood == pytest.approx(-best.fun, abs=1e-4)
    sd = found.coefficients["sd"].to_numpy()
    np.testing.assert_allclose((x - best.x * scale) / sd, 0.0, atol=0.02)
    curve = np.array(
        [
            approx_fprime(best.x + h, loss, 1e-4) - approx_fprime(best.x - h, loss, 1e-4)
            for h in 0.01 * np.eye(len(x))
        ]
    )
    np.testing.assert_allclose(
        sd / scale, np.sqrt(np.diagonal(np.linalg.inv((curve + curve.T) / 0.04))), rtol=0.05
    )
    assert found.aic == pytest.approx(2 * len(x) - 2 * found.log_likelihood)


def test_the_gradient_is_that_of_the_likelihood():
    """Of all parameters, log r among them, away from the maximum."""
    counts, height, wind, _ = world(2, sites=20, size=1.0)
    one = np.ones(20)
    designs = np.stack([one, (height - 1000) / 500], 1), np.stack([np.ones((20, 3)), wind], 2)
    likelihood = Likelihood(counts, *designs, True)
    x = np.array([1.0, -0.3, 0.2, -0.5, 0.3])
    np.testing.assert_allclose(
        likelihood.loss(x)[1], approx_fprime(x, lambda z: likelihood.loss(z)[0], 1e-6), rtol=1e-4, atol=1e-4
    )


def test_without_covariates_it_is_the_fit_of_many_problems():
    """λ, p and the likelihood of `hc.fit` with learned sizes and detection."""
    counts = world(3)[0]
    site = hc.MarkovChain([1.0], [[1.0]], length=1)
    problems = [
        hc.Problem(site, hc.About(4.0, sd=2.0), [hc.Binomial([[y]], detection=0.5) for y in row if y == y])
        for row in counts
    ]
    fit = hc.fit(LearnDetection(LearnSizes()), problems)
    found = nmixture(counts)
    assert found.log_likelihood == pytest.approx(fit.evidence, abs=1e-5)
    at = found.coefficients["estimate"]
    values = dict(zip(fit.natural.names, fit.parameters.values.tolist(), strict=True))
    assert np.exp(at["abundance (intercept)"]) == pytest.approx(values["size"], rel=2e-3)
    assert expit(at["detection (intercept)"]) == pytest.approx(values["detection"], rel=2e-3)


def test_numbers_at_sites_and_in_all_are_covered():
    """90 % intervals of 20 worlds of 120 sites hold the numbers, and the totals are within four of their sds."""
    inside, off = [], []
    for seed in range(20):
        counts, height, wind, number = world(100 + seed)
        found = nmixture(
            pd.DataFrame(counts, index=[f"s{k}" for k in range(120)]),
            abundance={"height": height},
            detection={"wind": wind},
        )
        assert found.identified
        assert found.sites.index[3] == "s3"
        inside.append(((found.sites["lower"] <= number) & (number <= found.sites["upper"])).mean())
        off.append((found.total[0] - number.sum()) / found.total[1])
    # Whole numbers: at least 90 %. 2400 sites have a standard error of .6 %, and share 20 draws of the parameters: about 1 %.
    assert 0.88 < np.mean(inside) < 0.98
    # The variance of 20 standardised errors is outside of these in 1 in 1000 (χ² with 20 degrees of freedom).
    assert 0.3 < np.mean(np.square(off)) < 2.3


def test_counts_that_do_not_bound_abundance_are_said():
    """Independent Poisson counts have no binomial scatter: any large number explains them."""
    counts = np.random.default_rng(5).poisson(2.0, size=(30, 3))
    found = nmixture(counts)
    assert not found.identified
    assert "do not bound abundance" in found.note
    assert nmixture(world(1)[0]).note == ""


def test_poisson_numbers_have_no_size():
    """A negative binomial that ends at a Poisson says so and finds its likelihood."""
    rng = np.random.default_rng(8)
    counts = rng.binomial(rng.binomial(12, 0.5, 80)[:, None], 0.5, size=(80, 4))
    found = nmixture(counts, mixture="negative binomial")
    assert "no more than a Poisson" in found.note
    assert found.log_likelihood == pytest.approx(nmixture(counts).log_likelihood, abs=0.01)


def test_everything_wrong_is_said_at_once():
    """Counts, covariates and the law of numbers."""
    with pytest.raises(ModelError) as raised:
        nmixture([[1.5, 2], [3, 4]], abundance={"a": [1.0]}, detection={"b": "x"}, mixture="zip")
    for word in ("whole numbers", "abundance['a']", "detection['b']", "mixture is 'zip'"):
        assert word in str(raised.value)
    with pytest.raises(ModelError, match="whole numbers"):
        nmixture([[np.inf, 2], [3, 4]])
    with pytest.raises(ModelError, match="abundance is a list: give a mapping"):
        nmixture([[1, 2], [3, 4]], abundance=[1, 2])
    with pytest.raises(ModelError, match="leave one out"):
        nmixture([[1, 2], [3, 4]], abundance={"a": [1.0, 1.0]})


def test_visits_that_all_agree_tell_the_numbers():
    """p runs to 1: its interval is open, and the numbers are those that were seen."""
    number = np.random.default_rng(9).poisson(4.0, size=30)
    found = nmixture(np.repeat(number[:, None], 3, axis=1))
    assert found.identified
    assert np.isinf(found.coefficients["sd"]["detection (intercept)"])
    assert "detection (intercept): at an edge" in found.note
    assert found.total[0] == pytest.approx(number.sum(), abs=0.01)
    assert found.total[1] < 0.1
    assert found.coefficients["sd"]["abundance (intercept)"] == pytest.approx(number.sum() ** -0.5, rel=0.02)
    assert "at 30 sites" in repr(found)
