"""Whole-number quantiles from two moments."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import headcount as hc
from headcount.posterior.interval import count_quantile, gaussian_quantile, tails, whole_quantiles

GRID = tuple((np.arange(4000) + 0.5) / 4000)


def moments(mean, variance, population):
    """Mean and variance of the law behind the quantiles, from a fine grid of them."""
    law = np.array(whole_quantiles(np.array(mean), np.array(variance), population, GRID))
    return law.mean(axis=0), law.var(axis=0)


@pytest.mark.parametrize(
    ("population", "mean"), [(30, 0.4), (30, 8.0), (30, 29.5), (10_000, 3.0), (10_000, 61.0)]
)
def test_a_binomial_has_the_binomials_quantiles(population, mean):
    """With the moments of Bin(N, p) the quantiles are those of Bin(N, p), at every level."""
    law = stats.binom(population, mean / population)
    q = np.array([0.005, 0.05, 0.25, 0.5, 0.75, 0.95, 0.995])
    found = whole_quantiles(np.array([mean]), np.array([law.var()]), population, tuple(q))
    np.testing.assert_array_equal(np.ravel(found), law.ppf(q))


def test_wider_than_binomial_is_polya():
    """With the moments of a beta-binomial law the quantiles are those of that law, long tails included."""
    q = np.array([0.05, 0.5, 0.95, 0.995])
    for law in (
        stats.betabinom(400, 0.05, 20.0),
        stats.betabinom(50, 3.0, 4.0),
        stats.betabinom(10**6, 1.0, 3e5),
    ):
        found = whole_quantiles(np.array([law.mean()]), np.array([law.var()]), law.args[0], tuple(q))
        np.testing.assert_array_equal(np.ravel(found), law.ppf(q))


def test_the_law_has_the_moments_asked_for():
    """On random moments, narrower and wider than binomial, near 0 and near N, the law's mean and variance are those given."""
    rng = np.random.default_rng(0)
    population = 200.0
    mean = np.concatenate([10 ** rng.uniform(-0.5, 1.7, 300), population - 10 ** rng.uniform(-0.5, 1.7, 100)])
    fraction = mean % 1
    least = fraction * (1 - fraction)
    variance = least * 1.1 + mean * (1 - mean / population) * rng.uniform(0.02, 1.5, mean.size)
    variance = np.minimum(variance, 100.0)
    found = moments(mean, variance, population)
    np.testing.assert_allclose(found[0], mean, atol=0.02)
    np.testing.assert_allclose(found[1], variance, rtol=0.03, atol=0.005)


def test_less_spread_than_whole_numbers_can_have():
    """A Gaussian narrower than any law on the whole numbers gives the two neighbours of its mean; a certain count itself."""
    found = whole_quantiles(
        np.array([2.4, 3.0, 0.0, 50.0]), np.array([0.01, 0.0, 0.0, 0.0]), 50, (0.05, 0.5, 0.95)
    )
    np.testing.assert_array_equal(found, [[2, 3, 0, 50], [2, 3, 0, 50], [3, 3, 0, 50]])


@pytest.mark.parametrize("people", [1.0, 2.0, 50.0])
def test_everybody_in_one_cell(people):
    """A mean of N, or above it by rounding, with a variance of rounding: N and nothing else."""
    mean = np.array([people, people * (1 + 1e-15), people])
    found = whole_quantiles(mean, np.array([1e-17, 1e-17, 0.0]), people, (0.05, 0.5, 0.95))
    assert (np.array(found) == people).all()


def test_zero_is_inside_where_it_is_probable():
    """A count of mean 0.3 is zero with probability near 0.74: lower end and median are 0, not 1e-146."""
    lower, median, upper = whole_quantiles(np.array([0.3]), np.array([0.3]), 480, (0.05, 0.5, 0.95))
    assert (lower[0], median[0], upper[0]) == (0, 0, 1)
    assert count_quantile(np.array([0.3]), np.array([0.3]), 480.0, 0.05)[0] > 0


def test_large_counts_are_gaussian():
    """Where the sd is large, ends are within one individual of the Gaussian's rounded outwards, and never beyond 0 and N."""
    mean, variance = np.array([5e3, 6e7, 900.0]), np.array([300.0, 1e6, 400.0])
    for q, outwards in ((0.05, np.floor), (0.95, np.ceil)):
        found = whole_quantiles(mean, variance, 1e8, (q,))[0]
        assert (np.abs(found - outwards(gaussian_quantile(mean, variance, q))) <= 1).all()
    lower, upper = whole_quantiles(np.array([20.0, 980.0]), np.array([150.0, 150.0]), 1000, (0.001, 0.999))
    assert (lower >= 0).all()
    assert (upper <= 1000).all()


@pytest.mark.parametrize("q", [0.05, 0.5, 0.95])
def test_whole_quantiles_of_wide_laws_are_the_nearest(q):
    """Where the law is as good as continuous, k is the smallest whole number with F(k + ½) ≥ q."""
    mean, variance = np.array([5000.3, 812.7, 64.2]), np.array([900.0, 400.0, 150.0])
    (found,) = whole_quantiles(mean, variance, 1e9, (q,))
    continuous = count_quantile(mean, variance, 1e9, q)
    assert (np.abs(found - continuous) <= 0.5 + 1e-9).all()


def test_an_interval_leaves_half_of_its_error_on_either_side():
    """90 % lie between the quantiles at 5 and 95 %."""
    assert tails(0.9) == pytest.approx((0.05, 0.95))


def test_continuous_quantiles_are_skewed():
    """N·Beta has the mean's skew: the upper end is further from the mean than the lower one, and both are positive."""
    lower, upper = (count_quantile(np.array([2.0]), np.array([1.9]), 100.0, q)[0] for q in (0.05, 0.95))
    law = stats.beta(*(x * (0.02 * 0.98 * 100**2 / 1.9 - 1) for x in (0.02, 0.98)), scale=100)
    np.testing.assert_allclose((lower, upper), law.ppf([0.05, 0.95]), rtol=1e-9)


@pytest.mark.parametrize("level", [0.0, 1.0, 2, -0.5, float("nan")])
def test_levels_outside_zero_and_one_are_refused(level):
    """A level is a probability strictly between 0 and 1, wherever it is given."""
    with pytest.raises(ValueError, match="give a number between 0 and 1"):
        tails(level)
    post = hc.infer(
        hc.Problem(hc.MarkovChain([0.5, 0.5], np.eye(2), length=1), 5, [hc.Poisson([[2.0, 3.0]])])
    )
    for ask in (
        post.node(0).interval,
        lambda x: post.total({0: [1, 0]}, level=x),
        lambda x: post.to_frame(level=x),
    ):
        with pytest.raises(ValueError, match="give a number between 0 and 1"):
            ask(level)


def test_intervals_of_flows_contain_true_zeros():
    """On a small world, 90 % intervals of flows hold at least 90 % of the truths and of the true zeros, and are whole numbers."""
    world = hc.simulate.birds(side=3, weights=(1, 2, 2, 2), population=150, steps=8, rng=1)
    frame = hc.infer(hc.Problem(world.model, 150, hc.Poisson(world.observed))).to_frame("flows")
    truth = np.asarray(world.flows)[frame["time"], frame["origin"], frame["dest"]]
    open_ = (frame["sd"] > 1e-6).to_numpy()
    inside = ((frame["lower"] <= truth) & (truth <= frame["upper"])).to_numpy()
    assert inside[open_].mean() >= 0.9
    assert inside[open_ & (truth == 0)].mean() >= 0.9
    assert (frame["upper"] - frame["lower"])[open_].mean() < 4 * frame["sd"][open_].mean()
    for name in ("median", "lower", "upper"):
        np.testing.assert_array_equal(frame[name], np.rint(frame[name]))
