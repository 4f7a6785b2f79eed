"""Lists of all ways to share out a number."""

import numpy as np
import pytest

from headcount.population import compositions


def test_compositions_are_all_and_different():
    """C(5 + 4 − 1, 4 − 1) = 56 rows, each summing to 5, none twice."""
    rows = compositions(5, 4)
    assert len(np.unique(rows, axis=0)) == len(rows) == 56
    assert np.all(rows.sum(axis=1) == 5)
    assert np.all(rows >= 0)


@pytest.mark.parametrize("total", [32_767, 32_768, 70_000])
def test_compositions_of_many(total):
    """Every part is held whole, above the range of 16 bits too."""
    rows = compositions(total, 2)
    np.testing.assert_array_equal(rows[:, 0], np.arange(total + 1))
    np.testing.assert_array_equal(rows[:, 1], np.arange(total, -1, -1))


def test_nothing_to_share_among_none():
    """Zero is the empty sum, once; nothing else is."""
    assert compositions(0, 0).shape == (1, 0)
    assert compositions(3, 0).shape == (0, 0)
