"""Populations of one cell: what is learned and inferred is what direct sums over N give."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import binom, nbinom, poisson

import headcount as hc
from headcount.engines import Status
from headcount.errors import FaultsError
from headcount.learn import LearnDetection, LearnSizes

SITE = hc.MarkovChain([1.0], [[1.0]], length=1)
N = np.arange(200)


def problem(row, size, detection=0.5):
    """One site, visited several times."""
    visits = [hc.Binomial([[y]], detection=detection) for y in row]
    return hc.Problem(SITE, size, visits)


def terms(row, law, detection):
    """p(N) Π p(y | N)."""
    return law * np.prod([binom.pmf(y, N, detection) for y in row], axis=0)


@pytest.mark.parametrize(
    "row", [(3, 5, 4), (0, 0, 0), (60, 55, 58)], ids=["usual", "empty", "far above the law"]
)
def test_one_site_is_the_sum_over_n(row):
    """Mean, sd, median and evidence are those of p(N) Π p(y | N), also where the counts lie far above what the law expects."""
    law = hc.About(6.0, sd=3.0)
    post = hc.infer(problem(row, law))
    found = terms(row, np.exp(law.log_pmf(N)), 0.5)
    p = found / found.sum()
    assert post.status is Status.EXACT
    assert post.log_evidence == pytest.approx(np.log(found.sum()), abs=1e-9)
    assert post.population.mean == pytest.approx(p @ N, rel=1e-9)
    assert post.node(0).sd.item() == pytest.approx(np.sqrt(p @ (N - p @ N) ** 2), rel=1e-9)
    assert post.node(0).median.item() == N[np.argmax(np.cumsum(p) >= 0.5)]
    drawn = post.sample(2000, rng=1)[(0,)].values
    assert abs(drawn.mean() - p @ N) < 5 * np.sqrt(p @ (N - p @ N) ** 2 / 2000)


@pytest.mark.parametrize("sd", [2.0, 4.0], ids=["poisson", "negative binomial"])
def test_many_sites_give_royles_estimates(sd):
    """λ, p and the likelihood of an N-mixture are those of a maximiser of the direct sum."""
    rng = np.random.default_rng(2)
    numbers = rng.poisson(5.0, 40)
    counts = rng.binomial(numbers[:, None], 0.5, size=(40, 3))
    size = 4.0**2 / (sd**2 - 4.0) if sd**2 > 4.0 else np.inf
    fit = hc.fit(LearnDetection(LearnSizes()), [problem(row, hc.About(4.0, sd=sd)) for row in counts])

    def loss(x):
        mean = np.exp(x[0])
        law = poisson.pmf(N, mean) if np.isinf(size) else nbinom.pmf(N, size, size / (size + mean))
        return -sum(np.log(terms(row, law, expit(x[1])).sum()) for row in counts)

    best = minimize(loss, [np.log(4.0), 0.0], method="BFGS")
    assert fit.evidence == pytest.approx(-best.fun, abs=1e-4)
    found = dict(zip(fit.natural.names, fit.parameters.values.tolist(), strict=True))
    np.testing.assert_allclose(
        sorted(found.values()), sorted([np.exp(best.x[0]), expit(best.x[1])]), rtol=2e-3
    )


def test_counts_that_no_number_explains_are_refused():
    """A count above the largest possible N ends in the usual report."""
    with pytest.raises(FaultsError):
        hc.infer(problem((9,), hc.Between(1, 5)))
