"""Laws every noise model obeys, against scipy.stats and by summation."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

import headcount as hc
from headcount.observe import (
    Binomial,
    Censored,
    Exact,
    Gaussian,
    LaplaceNoise,
    NegativeBinomial,
    Observation,
    Poisson,
    ProblemError,
)
from headcount.testing import check_noise

COUNTS = np.array([0.0, 1, 3, 10, 15, 16, 17, 40, 1000])
NEAR = np.array([0.7, 2.5, 3.5, 12, 20, 19, 30, 55, 1400])  # above every count, so inside every domain


def counting(y):
    """The discrete noises, with their law in scipy.stats as a function of y and n."""
    m = lambda n: 0.7 * n + 0.2  # noqa: E731
    return {
        "poisson": (Poisson(y), lambda n: stats.poisson.logpmf(y, n)),
        "poisson-background": (
            Poisson(y, rate=0.7, background=0.2),
            lambda n: stats.poisson.logpmf(y, m(n)),
        ),
        "negative-binomial": (
            NegativeBinomial(y, dispersion=2.5, rate=0.7, background=0.2),
            lambda n: stats.nbinom.logpmf(y, 2.5, 2.5 / (2.5 + m(n))),
        ),
        "negative-binomial-scattered": (
            NegativeBinomial(y, dispersion=0.1),
            lambda n: stats.nbinom.logpmf(y, 0.1, 0.1 / (0.1 + n)),
        ),
        "binomial": (Binomial(y, detection=0.3), lambda n: stats.binom.logpmf(y, n, 0.3)),
    }


def continuous(y):
    return {
        "gaussian": (Gaussian(y, sd=1.7), lambda n: stats.norm.logpdf(y, n, 1.7)),
        "laplace": (LaplaceNoise(y, scale=1.7), lambda n: stats.laplace.logpdf(y, n, 1.7)),
    }


@pytest.mark.parametrize("name", counting(COUNTS))
def test_probabilities_of_all_counts_sum_to_one(name):
    """sum_y l(y | n) = 1 for whole n, zero included."""
    y = np.arange(6000.0)
    noise, _ = counting(y)[name]
    for n in (0.0, 1.0, 7.0, 40.0):
        if name == "negative-binomial-scattered" and n > 7:
            continue  # its tail is longer than the sum
        assert np.exp(noise.log_prob(np.full(y.shape, n))).sum() == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize("name", counting(COUNTS))
def test_count_laws_are_those_of_scipy(name):
    """log_prob is the log of the law, constants included, at whole n."""
    noise, law = counting(COUNTS)[name]
    n = np.ceil(NEAR)
    np.testing.assert_allclose(noise.log_prob(n), law(n), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", continuous(COUNTS))
def test_densities_are_those_of_scipy(name):
    """log_prob is the log-density, constants included, negative n as well."""
    noise, law = continuous(COUNTS)[name]
    for n in (NEAR, -NEAR):
        expected = law(n)
        fits = np.isfinite(expected)  # scipy's Laplace underflows far out
        assert fits.sum() >= 8
        np.testing.assert_allclose(noise.log_prob(n)[fits], expected[fits], rtol=1e-13)


def test_binomial_is_continued_by_the_gamma_function():
    """Between whole numbers, log l is the Gamma-function formula; below y it is −inf."""
    y = np.array([1.0, 5, 20, 300])
    n = y + np.array([0.25, 0.5, 3.75, 444.4])
    expected = gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1) + y * np.log(0.3) + (n - y) * np.log(0.7)
    noise = Binomial(y, detection=0.3)
    np.testing.assert_allclose(noise.log_prob(n), expected, rtol=1e-11)
    np.testing.assert_allclose(noise.log_prob(y), y * np.log(0.3), rtol=1e-12)
    assert np.isneginf(noise.log_prob(y - 1e-9)).all()


@pytest.mark.parametrize("name", [*counting(COUNTS), *continuous(COUNTS)])
def test_derivatives_are_those_of_the_law(name):
    """Both slope and curvature agree with finite differences of log_prob."""
    noise, _ = {**counting(COUNTS), **continuous(COUNTS)}[name]
    slope, curvature = noise.slope(NEAR), noise.curvature(NEAR)
    np.testing.assert_allclose(slope, Observation.slope(noise, NEAR), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(curvature, Observation.curvature(noise, NEAR), rtol=1e-5, atol=1e-7)
    h = 1e-4  # and by hand, so that the library's own differences are not their only judge
    by_hand = (noise.log_prob(NEAR + h) - noise.log_prob(NEAR - h)) / (2 * h)
    np.testing.assert_allclose(slope, by_hand, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", [*counting(COUNTS), *continuous(COUNTS)])
def test_functions_of_n_broadcast_over_leading_axes(name):
    """An n of shape (W, K) is W evaluations aligned with the K counts."""
    noise, _ = {**counting(COUNTS), **continuous(COUNTS)}[name]
    window = np.stack([NEAR, NEAR + 1, NEAR + 2])
    for function in (noise.log_prob, noise.slope, noise.curvature):
        assert function(window).shape == window.shape
        np.testing.assert_allclose(function(window)[1], function(NEAR + 1), rtol=1e-14)


@pytest.mark.parametrize("name", [*counting(COUNTS), *continuous(COUNTS)])
def test_take_is_the_noise_on_some_entries(name):
    """take(index).log_prob(n[index]) = log_prob(n)[index], by index and by mask."""
    noise, _ = {**counting(COUNTS), **continuous(COUNTS)}[name]
    for index in (np.array([4, 0, 7]), COUNTS > 9):
        np.testing.assert_array_equal(noise.take(index).log_prob(NEAR[index]), noise.log_prob(NEAR)[index])


def test_take_follows_parameters_of_each_entry():
    """Per-entry parameters are taken along."""
    noise = Poisson(COUNTS, rate=np.linspace(0.5, 2, 9), background=0.1).take([8, 2])
    np.testing.assert_allclose(noise.rate, [2, 0.875])
    np.testing.assert_allclose(noise.log_prob([3.0, 4]), stats.poisson.logpmf([1000, 3], [6.1, 3.6]))


@pytest.mark.parametrize("name", [*counting(COUNTS), *continuous(COUNTS)])
def test_log_prob_is_finite_above_the_domains_lower_end(name):
    """log_prob is finite just above domain_low and −inf just below it, where it has an end."""
    noise, _ = {**counting(COUNTS), **continuous(COUNTS)}[name]
    low = noise.domain_low
    end = np.isfinite(low)
    inside = np.where(end, low + 1e-6, -3.0)
    outside = np.where(end, low - 1e-6, 0.0)
    assert np.isfinite(noise.log_prob(inside)).all()
    assert np.isneginf(noise.log_prob(outside)[end]).all()


@pytest.mark.parametrize("name", [*counting(COUNTS), *continuous(COUNTS)])
def test_linear_entries_are_linear_and_no_others(name):
    """At linear() entries log_prob has no second difference, below zero too; elsewhere it has one."""
    noise, _ = {**counting(COUNTS), **continuous(COUNTS)}[name]
    linear = noise.linear()
    n = np.where(linear, -2.0, COUNTS + 1.0 if name != "laplace" else COUNTS)  # the corner
    second = noise.log_prob(n + 1) - 2 * noise.log_prob(n) + noise.log_prob(n - 1)
    assert (np.abs(second[linear]) < 1e-14).all()
    assert (np.abs(second[~linear]) > 1e-9).all()
    assert linear.any() == (name in {"poisson", "poisson-background", "binomial"})


@pytest.mark.parametrize("name", [*counting(COUNTS), *continuous(COUNTS)])
def test_log_concave_is_what_it_says(name):
    """The curvature is ≤ 0 where the class promises it; negative binomial promises nothing, and bends up."""
    noise, _ = {**counting(COUNTS), **continuous(COUNTS)}[name]
    grid = COUNTS + np.geomspace(1e-3, 1e5, 60)[:, None]
    assert (noise.curvature(grid) <= 0).all() == noise.log_concave


@pytest.mark.parametrize("name", ["poisson", "poisson-background", "negative-binomial"])
def test_concave_part_lies_below_and_touches(name):
    """The surrogate a log(n + s) − b n minorises log l(y | n) up to a constant and has its slope at n0."""
    noise, _ = counting(COUNTS)[name]
    n0 = np.linspace(0.5, 30, 9)
    a, b, s = noise.concave_part(n0)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(a > 0, a / (n0 + s), 0.0) - b
        np.testing.assert_allclose(slope, noise.slope(n0), rtol=1e-11, atol=1e-13)
        grid = np.geomspace(1e-2, 1e4, 80)[:, None]
        surrogate = lambda n: a * np.log(n + s) - b * n  # noqa: E731
        gap = (noise.log_prob(grid) - noise.log_prob(n0)) - (surrogate(grid) - surrogate(n0))
    assert (gap >= -1e-9 * (1 + np.abs(noise.log_prob(grid)))).all()
    if name != "negative-binomial":
        np.testing.assert_allclose(gap, 0, atol=1e-9 * 1e4)


def test_concave_part_is_refused_by_the_others():
    """Only a noise that says poisson_shaped has a concave part."""
    for noise in (Gaussian([1.0], sd=1), Exact([1.0]), Binomial([1.0], detection=0.5)):
        assert not noise.poisson_shaped
        with pytest.raises(NotImplementedError, match="poisson_shaped"):
            noise.concave_part(1.0)


@pytest.mark.parametrize(
    "name", ["poisson", "poisson-background", "negative-binomial", "binomial", "gaussian", "laplace"]
)
def test_samples_have_the_laws_moments(name):
    """Mean and variance of draws are those of the law (by log_prob), within five standard errors."""
    grid = np.arange(-80, 400.0) / (1 if name in counting(COUNTS) else 4)
    grid = grid[grid >= 0] if name in counting(COUNTS) else grid
    weights, _ = {**counting(grid), **continuous(grid)}[name]
    p = np.exp(weights.log_prob(np.full(grid.shape, 9.0)))
    p /= p.sum()
    mean = p @ grid
    variance = p @ (grid - mean) ** 2
    fourth = p @ (grid - mean) ** 4
    size = 20_000
    noise, _ = {**counting(np.zeros(size)), **continuous(np.zeros(size))}[name]
    draws = noise.sample(np.full(size, 9.0), rng=np.random.default_rng(7))
    assert abs(draws.mean() - mean) < 5 * np.sqrt(variance / size)
    assert abs(draws.var() - variance) < 5 * np.sqrt((fourth - variance**2) / size)


def test_poisson_with_background_allows_counts_of_nobody():
    """A count y > 0 at n = 0 is impossible without a background and Poisson(background) with one."""
    assert np.isneginf(Poisson([3.0]).log_prob([0.0]))
    np.testing.assert_allclose(Poisson([3.0], background=0.5).log_prob([0.0]), stats.poisson.logpmf(3, 0.5))
    assert np.isneginf(Poisson([3.0], background=0.5).log_prob([-0.5]))


def test_gaussian_covariance_is_the_joint_density():
    """The entries of log_prob sum to the multivariate density; slope is its gradient; take is its margin."""
    rng = np.random.default_rng(3)
    root = rng.normal(size=(4, 4))
    covariance = root @ root.T + np.eye(4)
    y, n = rng.normal(size=4) * 3, rng.normal(size=4)
    noise = Gaussian(y, covariance=covariance)
    assert noise.correlated
    assert not Gaussian(y, sd=1.0).correlated
    law = stats.multivariate_normal(mean=n, cov=covariance)
    assert noise.log_prob(n).sum() == pytest.approx(law.logpdf(y), abs=1e-12)
    np.testing.assert_allclose(noise.log_prob(np.stack([n, n])).sum(-1), law.logpdf(y), rtol=1e-12)
    np.testing.assert_allclose(noise.slope(n), np.linalg.solve(covariance, y - n), rtol=1e-10)
    np.testing.assert_allclose(noise.curvature(n), -np.diag(np.linalg.inv(covariance)), rtol=1e-10)
    some = stats.multivariate_normal(mean=n[[2, 0]], cov=covariance[np.ix_([2, 0], [2, 0])])
    assert noise.take([2, 0]).log_prob(n[[2, 0]]).sum() == pytest.approx(some.logpdf(y[[2, 0]]), abs=1e-12)
    draws = noise.sample(np.zeros((40_000, 4)), rng=rng)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.35)


def test_gaussian_with_diagonal_covariance_is_gaussian_with_sd():
    """A covariance = diag(sd²) and sd are one noise."""
    y, n, sd = np.array([1.0, 5, 9]), np.array([2.0, 4, 9]), np.array([0.5, 1, 2])
    one, other = Gaussian(y, sd=sd), Gaussian(y, covariance=np.diag(sd**2))
    for name in ("log_prob", "slope", "curvature"):
        np.testing.assert_allclose(getattr(one, name)(n), getattr(other, name)(n), rtol=1e-13)


def test_exact_is_a_constraint():
    """log_prob is 0 at n = y and −inf elsewhere; there are no derivatives; a sample is n itself."""
    noise = Exact([0.0, 2])
    np.testing.assert_array_equal(noise.log_prob([0.0, 3]), [0, -np.inf])
    for function in (noise.slope, noise.curvature):
        with pytest.raises(TypeError, match="constraint"):
            function([0.0, 2])
    np.testing.assert_array_equal(noise.sample([4.0, 5], rng=np.random.default_rng(0)), [4, 5])


def test_traits_of_the_classes():
    """Closed form: Gaussian and exact. Whole counts: the count laws and exact."""
    classes = (Poisson, NegativeBinomial, Binomial, Gaussian, LaplaceNoise, Exact)
    assert {c for c in classes if c.gaussian} == {Gaussian, Exact}
    assert {c for c in classes if c.exact} == {Exact}
    assert {c for c in classes if not c.log_concave} == {NegativeBinomial}
    assert {c for c in classes if c.whole} == {Poisson, NegativeBinomial, Binomial, Exact}
    assert {c for c in classes if c.poisson_shaped} == {Poisson, NegativeBinomial}


def test_binomial_draws_need_whole_individuals():
    """A fractional n cannot be thinned."""
    with pytest.raises(ValueError, match="whole"):
        Binomial([1.0], detection=0.5).sample([2.5], rng=np.random.default_rng(0))


TRUE = np.array([0.0, 0.3, 2.0, 11.0, 60.0, 110.0, 300.0, 2600.0, 9000.0])


def tails(bound):
    """Every noise with one bound everywhere, and its log P(y ≥ bound) and log P(y ≤ bound) in scipy.stats as functions of n."""
    y = np.full(len(TRUE), bound)
    mean = 0.6 * TRUE + 0.4
    wholes = {
        "poisson": (Poisson(y, rate=0.6, background=0.4), stats.poisson(mean)),
        "negative-binomial": (
            NegativeBinomial(y, dispersion=2.5, rate=0.6, background=0.4),
            stats.nbinom(2.5, 2.5 / (2.5 + mean)),
        ),
        "binomial": (Binomial(y, detection=0.3), stats.binom(np.rint(TRUE), 0.3)),
        "own": (Counted(y, rate=0.6, background=0.4), stats.poisson(mean)),
    }
    reals = {
        "gaussian": (Gaussian(y, sd=1.7), stats.norm(TRUE, 1.7)),
        "laplace": (LaplaceNoise(y, scale=1.7), stats.laplace(TRUE, 1.7)),
    }
    return {
        name: (noise, law.logsf(bound - 1), law.logcdf(bound)) for name, (noise, law) in wholes.items()
    } | {name: (noise, law.logsf(bound), law.logcdf(bound)) for name, (noise, law) in reals.items()}


@dataclass(frozen=True, eq=False, kw_only=True)
class Counted(Poisson):
    """A Poisson law whose tails are summed one by one, as those of a user's own noise are."""

    log_tail = Observation.log_tail


@pytest.mark.parametrize("side", [1.0, -1.0])
@pytest.mark.parametrize("bound", [0.0, 1.0, 7.0, 60.0, 1500.0])
@pytest.mark.parametrize("name", tails(0.0))
def test_bounds_have_the_law_of_what_they_leave(name, bound, side):
    """log l = log P(y ≥ c | n) or log P(y ≤ c | n), of every noise."""
    noise, above, below = tails(bound)[name]
    law = above if side > 0 else below
    n = np.rint(TRUE) if name == "binomial" else TRUE
    found = Censored(noise, side=side).log_prob(n)
    held = law > -600  # scipy.stats underflows below
    np.testing.assert_allclose(found[held], law[held], rtol=1e-9, atol=1e-12)
    possible = ~((n < bound) & (side > 0)) if name == "binomial" else True
    assert (np.isfinite(found) == possible).all()


@pytest.mark.parametrize("name", ["poisson", "negative-binomial", "binomial"])
@pytest.mark.parametrize(("bound", "side", "n"), [(400.0, 1.0, 401.0), (3.0, -1.0, 9000.0)])
def test_far_tails_are_sums_of_probabilities(name, bound, side, n):
    """Where a tail underflows it is still the sum of the probabilities in it: of 400 readings from 401 with rate .01, of 3 from 9 000."""
    kinds = {
        "poisson": (lambda y: Poisson(y, rate=0.01 if side > 0 else 1.0)),
        "negative-binomial": (lambda y: NegativeBinomial(y, dispersion=1e6, rate=0.01 if side > 0 else 1.0)),
        "binomial": (lambda y: Binomial(y, detection=0.01 if side > 0 else 0.5)),
    }
    inside = np.arange(bound, bound + 300) if side > 0 else np.arange(bound + 1)
    each = kinds[name](inside).log_prob(np.full(len(inside), n))
    found = Censored(kinds[name](np.array([bound])), side=side).log_prob(np.array([n]))
    assert found < -700
    np.testing.assert_allclose(found, [np.logaddexp.reduce(each)], rtol=1e-12)


def bounded(name, counts):
    """A noise of every kind."""
    return {
        "poisson": lambda: Poisson(counts),
        "negative-binomial": lambda: NegativeBinomial(counts, dispersion=4.0),
        "binomial": lambda: Binomial(np.rint(0.6 * counts), detection=0.6),
        "gaussian": lambda: Gaussian(counts, sd=1.5),
        "laplace": lambda: LaplaceNoise(counts, scale=1.5),
        "exact": lambda: Exact(counts),
        "own": lambda: Counted(counts),
    }[name]()


@pytest.mark.parametrize("name", ["poisson", "negative-binomial", "binomial", "gaussian", "laplace", "own"])
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_bounds_are_a_noise_as_any_other(name, side):
    """What every user's noise must obey."""
    check_noise(Censored(bounded(name, np.array([0.0, 5.0, 12.0])), side=side), [3.0, 6.5, 14.0])


@pytest.mark.parametrize(
    "name", ["poisson", "negative-binomial", "binomial", "gaussian", "laplace", "exact", "own"]
)
def test_a_bound_tells_what_it_leaves(name):
    """Against enumeration: readings beside bounds of any noise have the exact means, and the check of fit leaves the bounds out."""
    chain = hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], length=3)
    counts = np.array([[9.0, 5.0], [np.nan, np.nan], [np.nan, np.nan]])
    bounds = np.array([[np.nan, np.nan], [11.0, np.nan], [np.nan, 3.0]])
    sides = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, -1.0]])
    readings = bounded(name, counts)
    problem = hc.Problem(chain, 14, [readings, Censored(bounded(name, bounds), side=sides)])
    plain = hc.infer(hc.Problem(chain, 14, readings), "Enumerate")
    exact, found, point = (hc.infer(problem, engine) for engine in ("Enumerate", "TiltedEP", "MAP"))
    sampled = hc.infer(problem, "PathGibbs", rng=1)
    assert exact.node(1).mean[0] > plain.node(1).mean[0] + 0.3
    assert exact.node(2).mean[1] < plain.node(2).mean[1] - 0.3
    for t in range(3):
        np.testing.assert_allclose(found.node(t).mean, exact.node(t).mean, atol=0.1)
        np.testing.assert_allclose(sampled.node(t).mean, exact.node(t).mean, atol=0.15)
        np.testing.assert_allclose(point.node(t).mean, exact.node(t).mean, atol=0.8)
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=0.05)
    if name == "exact":
        assert exact.node(1).mean[0] >= 11.0
        assert point.node(1).mean[0] >= 11.0 - 1e-6
        assert point.node(2).mean[1] <= 3.0 + 1e-6
    else:
        assert len(found.fit_check.to_frame()) == 2
    assert np.isnan(found.to_frame("nodes")["observed"]).sum() == 4


def test_bounds_that_cannot_be_are_refused():
    """At least 20 of 14 is named, at most 20 of 14 says nothing; bounds on bounds, on numbers, and beside a covariance are refused."""
    chain = hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], length=2)
    bounds = np.array([[20.0, np.nan], [np.nan, np.nan]])
    for noise in (Exact(bounds), Binomial(bounds, detection=0.5)):
        with pytest.raises(ProblemError, match="cannot exceed the population N = 14"):
            hc.Problem(chain, 14, Censored(noise))
        silent = hc.infer(hc.Problem(chain, 14, Censored(noise, side=-1.0)), "TiltedEP")
        np.testing.assert_allclose(silent.node(0).mean, [7.0, 7.0], atol=1e-6)
    with pytest.raises(ProblemError, match="Censored takes a noise"):
        Censored(np.array([1.0]))
    with pytest.raises(ProblemError, match="Censored takes a noise"):
        Censored(Censored(Poisson([1.0])))
    with pytest.raises(ProblemError, match="give Gaussian readings with bounds an sd"):
        Censored(Gaussian([1.0], covariance=[[1.0]])).log_prob([1.0])


def test_rates_are_not_learned_from_bounds():
    """What noises share is learned from readings: beside a bound it is refused, not taken from the bound's number."""
    chain = hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], length=2)
    bounds = np.array([[np.nan, np.nan], [8.0, np.nan]])
    counts = np.array([[9.0, 5.0], [np.nan, 3.0]])
    for learn, kind in ((hc.learn.LearnRate, "poisson"), (hc.learn.LearnDetection, "binomial")):
        problem = hc.Problem(chain, 14, [bounded(kind, counts), Censored(bounded(kind, bounds))])
        with pytest.raises(ProblemError, match="not from bounds"):
            hc.fit(learn(hc.learn.Known()), problem)


@pytest.mark.parametrize("name", ["exact", "binomial", "gaussian"])
@pytest.mark.parametrize("singles", [0, 3])
def test_bounds_hold_where_individuals_come_in_twos(name, singles):
    """Bounds on counts of pairs (at least 5 is at least 3 pairs), alone and beside singles, against enumeration; MAP stays within."""
    first = hc.MarkovChain([0.6, 0.4], [[0.7, 0.3], [0.2, 0.8]], length=2)
    groups = {"pairs": hc.Group(first, 4, weight=2)}
    if singles:
        groups["singles"] = hc.Group(hc.MarkovChain([0.3, 0.7], [[0.5, 0.5], [0.4, 0.6]], length=2), singles)
    bounds = np.array([[np.nan, np.nan], [5.0, np.nan]])
    problem = hc.Problem(groups=groups, observations=[Censored(bounded(name, bounds))])
    exact, found, point = (hc.infer(problem, engine) for engine in ("Enumerate", "TiltedEP", "MAP"))
    np.testing.assert_allclose(found.node(1).mean, exact.node(1).mean, atol=0.02)
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=0.02)
    if name == "exact":
        assert point.node(1).mean[0] >= 5.0 - 1e-6


@pytest.mark.parametrize("name", [*counting(COUNTS), *continuous(COUNTS)])
def test_implied_numbers_have_the_count_as_their_mean(name):
    """E[y | n] is the count at the n that it implies alone, also where that n is no possible one."""
    noise = {**counting(COUNTS), **continuous(COUNTS)}[name][0]
    np.testing.assert_allclose(noise.moments(noise.implied())[0], COUNTS, rtol=1e-12, atol=1e-12)


def test_a_noise_says_its_name_and_parameters():
    """Tables and the command line know a noise by its keyword; what must be given has no default of its own."""
    known = hc.io.NOISES
    assert list(known) == ["poisson", "binomial", "negative-binomial", "gaussian", "laplace", "exact"]
    needed = {name: [p for p, must in noise.parameters().items() if must] for name, noise in known.items()}
    assert needed == {
        "poisson": [],
        "binomial": ["detection"],
        "negative-binomial": ["dispersion"],
        "gaussian": ["sd"],
        "laplace": ["scale"],
        "exact": [],
    }
    assert all(noise.words for noise in known.values())
