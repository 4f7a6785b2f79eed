"""How fast the exact law becomes Gaussian."""

import numpy as np
import pytest
from reproduction.gaussian_law import GCGM

from headcount.individual import MarkovChain
from headcount.population import CGM, CountTables


def kolmogorov_distance(initial: list[float], matrix: list[list[float]], size: int) -> float:
    """sup |F − G| of one cell's count at the last time of a chain, exact against Gaussian."""
    from scipy.special import ndtr

    chain = MarkovChain(initial, matrix, length=3)
    law, limit = CGM(chain, size), GCGM(chain, size)
    # The node's own law is that of a chain of length one with its marginal, so every p(k) is one log_pmf.
    node = MarkovChain(law.mean((2,)) / size, [])
    alone = CGM(node, size)
    pmf = np.exp([alone.log_pmf(CountTables(node, {(0,): [k, size - k]})) for k in range(size + 1)])
    assert pmf.sum() == pytest.approx(1, abs=1e-9)
    exact = np.cumsum(pmf)
    mean, sd = limit.mean((2,))[0], np.sqrt(limit.covariance((2,))[0, 0])
    gaussian = ndtr((np.arange(size + 1) - mean) / sd)
    return float(max(np.abs(exact - gaussian).max(), np.abs(exact - pmf - gaussian).max()))


@pytest.mark.parametrize("start", [0.5, 0.9])
def test_kolmogorov_distance_falls_like_one_over_root_n(start):
    """sup |F_N − G_N| · √N is constant to 10 %: node marginals of CGM and GCGM meet at the rate 1/√N."""
    initial, matrix = [start, 1 - start], [[0.7, 0.3], [0.2, 0.8]]
    sizes = np.array([25, 100, 400, 1600])
    scaled = np.sqrt(sizes) * [kolmogorov_distance(initial, matrix, int(n)) for n in sizes]
    assert scaled.max() / scaled.min() < 1.1
    assert 0.1 < scaled[-1] < 2.0


def test_an_n_squared_covariance_would_not_converge():
    """The slip of the printed joint, N²[…] − ηηᵀ, leaves a Kolmogorov distance that does not fall at all."""
    from scipy.special import ndtr
    from scipy.stats import binom

    for size in (100, 10_000):
        k = np.arange(size + 1)
        printed = ndtr((k - 0.5 * size) / np.sqrt(size**2 * 0.25))
        assert np.abs(binom(size, 0.5).cdf(k) - printed).max() > 0.3


@pytest.mark.parametrize("size", [10**4, 10**6, 10**8])
def test_the_density_at_the_mean_is_the_probability_there(size):
    """At n = Nμ the two laws differ by O(1/N): log density − log p → 0, an N-dependent constant would not."""
    chain = MarkovChain([0.5, 0.5], [[0.25, 0.75], [0.5, 0.5]], length=3)
    n = CountTables(
        chain, {c: np.rint(CGM(chain, size).mean(c)).astype(int) for c in chain.junction_tree.cliques}
    ).check()
    gap = GCGM(chain, size).log_density(n) - CGM(chain, size).log_pmf(n)
    assert abs(gap) < 5 / size + 1e-9
