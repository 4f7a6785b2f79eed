"""Laws of the number of individuals: they are laws, have their moments, are drawn right, and read as written."""

from __future__ import annotations

import numpy as np
import pytest

import headcount as hc
from headcount.population import CGM, PoissonSize, SizeLaw, TotalSize, parse_population

LAWS = [
    hc.About(40, sd=40**0.5),
    hc.About(40, sd=15),
    hc.About(40, sd=3),
    hc.About(2.5, sd=0.7),
    hc.Between(5, 90),
    PoissonSize(0.7),
]


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_probabilities_moments_and_draws_agree(law: SizeLaw) -> None:
    """The probabilities of the window sum to 1; mean and variance are theirs, and those of draws."""
    low, high = law.window
    n = np.arange(low, high + 1.0)
    p = np.exp(law.log_pmf(n))
    assert p.sum() == pytest.approx(1, abs=1e-9)
    assert p @ n == pytest.approx(law.mean, rel=1e-6)
    assert p @ (n - law.mean) ** 2 == pytest.approx(law.variance, rel=1e-6)
    drawn = law.sample(20_000, rng=np.random.default_rng(1))
    assert drawn.mean() == pytest.approx(law.mean, abs=5 * (law.variance / 20_000) ** 0.5)
    assert drawn.var() == pytest.approx(law.variance, rel=0.06)
    assert np.isneginf(law.log_pmf(-1.0)) or law.log_pmf(-1.0) == -np.inf


def test_an_unknown_number_favours_no_order_of_magnitude() -> None:
    """p(N) ∝ 1/N far below a billion, and the whole sums to 1."""
    law = hc.Unknown()
    assert law.log_pmf(100.0) - law.log_pmf(1000.0) == pytest.approx(np.log(10), abs=1e-5)
    n = np.unique(np.rint(np.geomspace(1, 25e9, 40_001)))
    width = np.diff(np.concatenate([[0.5], 0.5 * (n[1:] + n[:-1]), [n[-1] + 0.5]]))
    assert np.exp(law.log_pmf(n)) @ width == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("1080", 1080),
        ("8000..12000", hc.Between(8000, 12000)),
        ("10000±1500", hc.About(10000, sd=1500)),
        ("10000+-1500", hc.About(10000, sd=1500)),
        ("1e4 +- 100", hc.About(10000, sd=100)),
        (" Unknown ", hc.Unknown()),
    ],
)
def test_as_the_command_line_says_it(text: str, law: object) -> None:
    """Numbers, ranges, numbers with their error, and nothing."""
    assert parse_population(text) == law


@pytest.mark.parametrize("text", ["", "many", "12..3", "-5", "10±", "1.5", "3±0"])
def test_what_is_no_population(text: str) -> None:
    """Refused in words."""
    with pytest.raises(hc.ModelError):
        parse_population(text)


@pytest.mark.parametrize("arguments", [(0, 1), (10, 0), (float("nan"), 1), ("x", 1), (10, -1)])
def test_wrong_numbers_are_refused(arguments: tuple) -> None:
    """The message names the argument."""
    with pytest.raises(hc.ModelError, match=r"mean|sd"):
        hc.About(*arguments)
    with pytest.raises(hc.ModelError, match="high"):
        hc.Between(5, 4)


def test_counts_of_an_unknown_number() -> None:
    """E n = E[N] μ, cov = E[N](⟨μ⟩ − μμᵀ) + Var[N] μμᵀ, and draws have them; under a Poisson number cells are independent."""
    chain = hc.MarkovChain([0.7, 0.3], [[0.8, 0.2], [0.3, 0.7]], length=2)
    wide, independent = CGM(chain, hc.About(40, sd=15)), CGM(chain, hc.About(40, sd=40**0.5))
    assert independent.covariance((1,))[0, 1] == pytest.approx(0, abs=1e-12)
    assert np.ones(2) @ wide.covariance((1,)) @ np.ones(2) == pytest.approx(225)
    rng = np.random.default_rng(2)
    drawn = np.array([wide.sample(rng=rng).table((1,)) for _ in range(4000)])
    np.testing.assert_allclose(drawn.mean(axis=0), wide.mean((1,)), rtol=0.05)
    np.testing.assert_allclose(np.cov(drawn.T), wide.covariance((1,)), rtol=0.12)
    one = wide.sample(rng=1)
    given = wide.at(one.population).log_pmf(one)
    assert wide.log_pmf(one) == pytest.approx(given + float(hc.About(40, sd=15).log_pmf(one.population)))
    assert hc.simulate.population(chain, hc.Between(30, 50), rng=1).population in range(30, 51)


@pytest.mark.parametrize("tilt", [-0.6, 0.0, 0.02])
@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_cumulants_are_those_of_the_tilted_probabilities(law: SizeLaw, tilt: float) -> None:
    """κ(a) = log Σ p(n) e^(an); κ'(a) and κ''(a) are mean and variance under p(n) e^(an)."""
    n = np.arange(0, 3000.0)
    log_w = law.log_pmf(n) + tilt * n
    w = np.exp(log_w - log_w.max())
    mean = float(w @ n / w.sum())
    found = law.cgf(tilt)
    assert found.value == pytest.approx(log_w.max() + np.log(w.sum()), abs=1e-8)
    assert found.mean == pytest.approx(mean, rel=1e-7)
    assert found.variance == pytest.approx(float(w @ (n - mean) ** 2 / w.sum()), rel=1e-6)


def test_the_number_of_several_groups_is_said_in_words() -> None:
    """A user gave laws of groups: messages do not show the class that adds them up, nor others where there are none."""
    law = TotalSize((hc.Unknown(), hc.About(5, sd=2)), 0, (1, 2))
    assert f"{law}" == "a sum of groups: unknown and 2 × (5+-2)"
    assert "7 more" in TotalSize((hc.Unknown(),), 7).text
