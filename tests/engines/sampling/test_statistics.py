"""R-hat, effective size and batch means against series whose answers are known."""

import numpy as np
import pytest

from headcount.engines.sampling._statistics import (
    BatchMoments,
    effective_size,
    expected_l1,
    merged,
    normal_scores,
    r_hat,
)


def autoregressive(rho, shape, seed=0):
    """Chains x_t = rho x_{t−1} + e_t along axis 1, stationary from the start."""
    rng = np.random.default_rng(seed)
    out = np.empty(shape)
    out[:, 0] = rng.normal(size=(shape[0], *shape[2:])) / np.sqrt(1 - rho**2)
    for t in range(1, shape[1]):
        out[:, t] = rho * out[:, t - 1] + rng.normal(size=(shape[0], *shape[2:]))
    return out


def test_r_hat_is_one_for_one_law_and_large_for_several():
    """Four chains of the same law: below 1.02; one of them moved by one standard deviation: above 1.05."""
    draws = np.random.default_rng(1).normal(size=(4, 1000, 5))
    assert np.all(r_hat(draws) < 1.02)
    draws[2] += 1.0
    assert np.all(r_hat(draws) > 1.05)
    assert np.all(r_hat(draws, ranks=False) > 1.05)


def test_r_hat_sees_a_drift_inside_each_chain():
    """Halves of a chain are compared, so a common trend shows."""
    draws = np.random.default_rng(1).normal(size=(4, 1000, 1)) + np.linspace(0, 2, 1000)[None, :, None]
    assert r_hat(draws)[0] > 1.1


def test_r_hat_of_fewer_than_four_draws_is_unknown():
    """Halves of one draw have no variance: NaN, not 1."""
    draws = np.random.default_rng(1).normal(size=(4, 4, 2))
    assert np.isnan(r_hat(draws[:, :3])).all()
    assert np.isfinite(r_hat(draws)).all()


def test_r_hat_of_what_never_moves():
    """A constant has R-hat 1; chains stuck at different constants have infinity."""
    stuck = np.zeros((2, 10, 2))
    stuck[1, :, 1] = 3
    np.testing.assert_array_equal(r_hat(stuck, ranks=False), [1.0, np.inf])


def test_normal_scores_are_monotone_with_average_ties():
    """Scores keep the order, tied draws share one, and they are symmetric."""
    scores = normal_scores(np.array([[[3.0], [1.0]], [[1.0], [2.0]]])).ravel()
    assert scores[1] == scores[2] < scores[3] < scores[0]
    assert normal_scores(np.arange(5.0).reshape(1, 5, 1)).sum() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("rho", [0.0, 0.6, 0.9])
def test_effective_size_of_an_autoregression(rho):
    """m S (1 − rho) / (1 + rho), to 15 % on average over 40 series (its standard error is below 4 %)."""
    draws = autoregressive(rho, (4, 2000, 40))
    assert effective_size(draws).mean() == pytest.approx(8000 * (1 - rho) / (1 + rho), rel=0.15)


def test_effective_size_is_that_of_arviz():
    """On short chains, where corrections for their length show: equal where both end the sum at the same lag (often)."""
    arviz = pytest.importorskip("arviz")
    draws = autoregressive(0.5, (4, 20, 30))
    expected = [float(arviz.ess(np.ascontiguousarray(draws[:, :, k]), method="mean")) for k in range(30)]
    assert np.isclose(effective_size(draws), expected, rtol=1e-9).mean() > 0.2
    np.testing.assert_allclose(effective_size(draws), expected, rtol=0.5)


def test_effective_size_of_a_constant_is_unknown():
    """Nothing moved, nothing is known."""
    assert np.isnan(effective_size(np.ones((2, 50, 1)))[0])


def test_batch_moments_are_those_of_all_batches():
    """Adding one by one and merging two halves both give NumPy's moments."""
    rng = np.random.default_rng(2)
    raw, smooth = rng.normal(size=(2, 12, 3)) + 5
    one, other = BatchMoments.empty(3), BatchMoments.empty(3)
    for k in range(5):
        one = one.add(raw[k], smooth[k])
    for k in range(5, 12):
        other = other.add(raw[k], smooth[k])
    both = merged([one, other])
    for share in (0.0, 0.3, 1.0):
        mixed = share * raw + (1 - share) * smooth
        np.testing.assert_allclose(both.blend(share), mixed.mean(axis=0))
        np.testing.assert_allclose(both.standard_error(share), mixed.std(axis=0, ddof=1) / np.sqrt(12))


def test_opposite_errors_share_equally():
    """Errors of equal size and opposite sign give one half, and nothing of them is left."""
    moments = BatchMoments.empty(4)
    for e in np.random.default_rng(3).normal(size=(200, 1)) * np.ones(4):
        moments = moments.add(10 + e, 10 - e)
    shares = moments.best_shares(np.array([0, 2, 4]))
    np.testing.assert_allclose(shares, 0.5)
    np.testing.assert_allclose(moments.standard_error(shares), 0.0, atol=1e-9)


def test_rare_cells_are_smoothed_and_pinned_ones_counted():
    """A cell that counting never saw goes to smoothing; an individual that smoothing never met goes to counting."""
    moments = BatchMoments.empty(4)
    for e in np.random.default_rng(3).normal(size=(200, 2)):
        raw = np.array([10 + e[0], 20 + e[1], 0.0, 1.0])
        smooth = np.array([10 - e[0], 20 - e[1], 1e-3 + 1e-6 * e[0], 1e-9])
        moments = moments.add(raw, smooth)
    shares = moments.best_shares(np.array([0, 4]))
    np.testing.assert_allclose(shares[:2], 0.5, atol=0.02)
    assert shares[2] < 0.01
    assert shares[3] > 0.9


def test_expected_l1_is_the_mean_distance_of_gaussian_noise():
    """Σ E|e| / Σ mean for e ~ N(0, se²)."""
    error, mean = np.array([0.5, 2.0]), np.array([10.0, 30.0])
    noise = np.abs(np.random.default_rng(4).normal(size=(200_000, 2)) * error).sum(axis=1).mean() / 40
    assert expected_l1(error, mean) == pytest.approx(noise, rel=0.01)
