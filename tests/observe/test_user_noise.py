"""A noise of the user's own: ten lines, derivatives by finite differences."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

import headcount as hc
from headcount.observe import Observation


@dataclass(frozen=True, eq=False, kw_only=True)
class Cauchy(Observation):
    scale: float = 1.0

    def log_prob(self, n):
        return -np.log(np.pi * self.scale * (1 + ((self.counts - n) / self.scale) ** 2))

    def sample(self, n, *, rng):
        return n + self.scale * rng.standard_cauchy(np.shape(n))


class PlainPoisson(Observation):
    """Not even a dataclass of its own: no parameters."""

    def log_prob(self, n):
        return stats.poisson.logpmf(self.counts, n)


@dataclass(frozen=True, eq=False, kw_only=True)
class Rounded(Observation):
    """With a field that is no number, and one carried along whole."""

    mode: str = "up"
    knots: object = None

    def log_prob(self, n):
        return -np.abs(self.counts - n)


def chain(**options):
    return hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], length=3, **options)


@pytest.mark.parametrize("centre", [0.0, 5.0, 1e3, 1e6])
@pytest.mark.parametrize("scale", [0.5, 3.0, 100.0])
def test_differences_find_the_scale_by_themselves(centre, scale):
    """The slope of a Cauchy is right to 1e-6 whether its width is far below or above sqrt(n)."""
    noise = Cauchy(np.array([centre]), scale=scale)
    n = np.array([centre + 0.6 * scale])
    t = (centre - n) / scale
    slope = 2 * t / (scale * (1 + t**2))
    curvature = (2 * t**2 - 2) / (scale**2 * (1 + t**2) ** 2)
    np.testing.assert_allclose(noise.slope(n), slope, rtol=1e-6)
    np.testing.assert_allclose(noise.curvature(n), curvature, rtol=1e-4)


def test_differences_never_look_below_the_domain():
    """At n = 0 and just above it log_prob is asked at n ≥ 0 only, and the derivatives are still right."""
    seen = []

    class Recording(PlainPoisson):
        def log_prob(self, n):
            seen.append(np.min(n))
            return -np.sqrt(1 + n)

    noise = Recording(np.array([2.0, 2.0, 2.0]))
    n = np.array([0.0, 1e-6, 3.0])
    np.testing.assert_allclose(noise.slope(n), -0.5 / np.sqrt(1 + n), rtol=1e-5)
    np.testing.assert_allclose(noise.curvature(n)[[0, 2]], 0.25 / (1 + n[[0, 2]]) ** 1.5, rtol=1e-3)
    assert min(seen) >= 0


def test_differences_of_an_impossible_end_are_infinite():
    """Where log_prob(low) = −inf the slope there is +inf, not a number made up."""
    assert PlainPoisson(np.array([3.0])).slope(np.array([0.0])) == np.inf


def test_user_noise_binds_like_ours():
    """A user's parameters are broadcast to the table and taken along with what was observed."""
    y = np.array([[3.0, np.nan], [1, 2], [np.nan, np.nan]])
    problem = hc.Problem(chain(), 10, [Cauchy(y, scale=np.array([1.0, 2.0]))])
    first, second = problem.sites
    np.testing.assert_array_equal(first.noise.scale, [1])
    np.testing.assert_array_equal(second.noise.scale, [1, 2])
    assert problem.core.traits.count_noise
    assert not problem.core.traits.log_concave
    expected = stats.cauchy.logpdf([3, 1, 2], [5, 4, 6], [1, 1, 2]).sum()
    tables = {0: [5.0, 5], 1: [4.0, 6]}
    assert problem.log_likelihood(tables) == pytest.approx(expected, abs=1e-12)
    assert hc.Problem(chain(), 10, PlainPoisson([[1, 2]] * 3)).core.traits.entries == 6


def test_fields_that_are_no_numbers_are_carried_along():
    """Text and None stay as they are through binding and take."""
    site = hc.Problem(chain(), 10, Rounded([[1, 2]] * 3, mode="down")).sites[0]
    assert site.noise.mode == "down"
    assert site.noise.take([0]).knots is None


def test_a_noise_without_sample_says_so():
    """A sample method is optional; its absence is an error with the remedy."""
    with pytest.raises(NotImplementedError, match="PlainPoisson has no sample"):
        PlainPoisson([1.0]).sample([1.0], rng=np.random.default_rng(0))


def test_a_users_bad_parameters_are_refused_too():
    """NaN where there is a count is refused for every noise."""
    with pytest.raises(hc.ProblemError, match="scale must be a finite number"):
        hc.Problem(chain(), 10, Cauchy([[1, 2]] * 3, scale=[np.nan, 1]))
