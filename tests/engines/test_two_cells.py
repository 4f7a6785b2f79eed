"""Two-cell chains, whose exact answer is known at any population."""

from __future__ import annotations

import numpy as np
import pytest
from tests.engines.oracle import two_cells

import headcount as hc
from headcount.engines import Laplace, TiltedEP

START, STAY, BACK = 0.5, 0.8, 0.3


def chain(start, stay, back, length):
    return hc.MarkovChain([start, 1 - start], [[stay, 1 - stay], [back, 1 - back]], length=length)


def log_likelihood(noise, population):
    """log l of one time's noise on both cells, for every count of the first cell."""
    k = np.arange(population + 1.0)
    return noise.log_prob(np.stack([k, population - k], axis=1)).sum(axis=1)


def issue_case(population, seed):
    rng = np.random.default_rng(seed)
    model = chain(START, STAY, BACK, 5)
    drawn = model.sample(population, rng=rng)
    n = np.stack([(drawn == 0).sum(axis=0), (drawn == 1).sum(axis=0)], axis=1)
    y = rng.poisson(n).astype(float)
    seen = np.array([log_likelihood(hc.Poisson(row), population) for row in y])
    return hc.Problem(model, population, [hc.Poisson(y)]), two_cells(START, STAY, BACK, population, seen)


@pytest.mark.parametrize(
    ("population", "mean", "evidence"),
    [(10, 0.010, 0.10), (50, 0.0015, 0.03), (100, 0.0007, 0.02), (1000, 0.0001, 0.01)],
)
def test_accuracy_falls_like_one_over_n(population, mean, evidence):
    """Mean relative error of node means and error of log p(y) stay below limits that shrink with N; sds within 3 % at N = 100."""
    errors = []
    for seed in range(4):
        asked, exact = issue_case(population, seed)
        post = hc.infer(asked, TiltedEP())
        got = np.array([post.beliefs.mean((t,)) for t in range(5)])
        true = np.stack([exact.mean, population - exact.mean], axis=1)
        errors.append(np.abs(got - true).sum() / true.sum())
        assert abs(post.log_evidence - exact.log_evidence) <= evidence
        if population == 100:
            sd = np.array([float(post.node(t).sd[0]) for t in range(5)])
            np.testing.assert_allclose(sd, exact.sd, rtol=0.03)
    assert np.mean(errors) <= mean


@pytest.mark.parametrize("persistence", [0.0, 0.5, 0.9, 0.99, 0.999])
def test_twenty_zeros(persistence):
    """Twenty zeros in a cell with expected count 5 of 1000: the exact mean to 0.01, an interval ≥ 0, whatever the persistence.

    Zeros are tilts and are absorbed exactly; the paper's Gaussian at the prior goes far below zero where individuals stay.
    """
    share, population, length = 0.005, 1000, 20
    stay = persistence + (1 - persistence) * share
    back = (1 - persistence) * share
    model = chain(share, stay, back, length)
    zeros = {t: np.array([0.0, np.nan]) for t in range(length)}
    asked = hc.Problem(model, population, [hc.Poisson(zeros)])
    k = np.arange(population + 1.0)
    exact = two_cells(share, stay, back, population, np.tile(-k, (length, 1)))
    post = hc.infer(asked, TiltedEP())
    got = np.array([post.beliefs.mean((t,))[0] for t in range(length)])
    np.testing.assert_allclose(got, exact.mean, atol=0.01)
    assert post.log_evidence == pytest.approx(exact.log_evidence, abs=1e-6)
    interval = post.node(7).interval(0.9)
    assert (interval["lower"] >= 0).all()
    if persistence >= 0.99:
        assert float(hc.infer(asked, Laplace()).node(7).mean[0]) < -50


def test_a_count_of_a_tenth_is_not_a_certain_zero():
    """Ten looks at a rare cell: where the exact mean is a tenth of an individual so is the answer, to 3 %."""
    start, stay, back, population = 0.1, 0.7, 0.03, 10
    y = np.array(
        [[1, 9], [0, 12], [0, 5], [0, 8], [0, 8], [0, 12], [0, 8], [2, 9], [2, 10], [4, 5]], dtype=float
    )
    exact = two_cells(
        start, stay, back, population, np.array([log_likelihood(hc.Poisson(row), population) for row in y])
    )
    post = hc.infer(hc.Problem(chain(start, stay, back, 10), population, [hc.Poisson(y)]))
    got = np.array([post.beliefs.mean((t,))[0] for t in range(10)])
    np.testing.assert_allclose(got, exact.mean, rtol=0.03)
    sd = np.array([float(post.node(t).sd[0]) for t in range(10)])
    np.testing.assert_allclose(sd, exact.sd, atol=0.15)
    assert post.log_evidence == pytest.approx(exact.log_evidence, abs=0.3)
