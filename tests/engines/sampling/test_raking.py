"""Raking to given margins."""

import numpy as np
import pytest

from headcount.engines.sampling._raking import rake


@pytest.mark.parametrize("weak", [1.0, 1e-3, 1e-8])
def test_raking_meets_both_margins_and_keeps_odds_ratios(weak):
    """Also where the table nearly falls apart into blocks, which scaling in turn alone would not finish."""
    rng = np.random.default_rng(5)
    table = np.kron(np.eye(3), np.ones((4, 4))) * rng.random((12, 12)) + weak * rng.random((12, 12))
    rows, columns = (table.sum(axis=k) * np.exp(0.2 * rng.normal(size=12)) for k in (1, 0))
    columns *= rows.sum() / columns.sum()
    out = rake(table, rows, columns)
    np.testing.assert_allclose(out.sum(axis=1), rows, atol=1e-11 * rows.sum())
    np.testing.assert_allclose(out.sum(axis=0), columns, atol=1e-11 * rows.sum())
    assert out.min() > 0

    def odds(t):
        return np.log(t[:-1, :-1] * t[1:, 1:] / (t[:-1, 1:] * t[1:, :-1]))

    np.testing.assert_allclose(odds(out), odds(table), atol=1e-6)


def test_raking_keeps_zeros_and_empty_cells():
    """A zero stays zero; a margin of zero empties its row."""
    out = rake(
        np.array([[2.0, 0.0], [1.0, 3.0], [1.0, 1.0]]), np.array([2.0, 4.0, 0.0]), np.array([2.5, 3.5])
    )
    assert out[0, 1] == 0
    np.testing.assert_array_equal(out[2], 0.0)
    np.testing.assert_allclose(out.sum(axis=1), [2.0, 4.0, 0.0])
