"""Who of each cell of the first time is where at the last, given the flows of every step."""

import numpy as np
import pytest
from scipy import stats

from headcount.posterior._sums import _followed


def test_those_who_are_followed_are_a_random_choice_of_those_in_the_cell():
    """Given flows, numbers from first to last are sums of independent hypergeometric numbers: their mean and variance."""
    first, second = np.array([[4, 3], [2, 5]]), np.array([[1, 5], [6, 2]])
    draws = 4000
    found = _followed([np.tile(f, (draws, 1, 1)).astype(float) for f in (first, second)])
    # Of the 6 in cell 0 four came from 0, and one of the 6 stays there; of the 8 in cell 1 three did, and six go to 0.
    parts = [stats.hypergeom(6, 4, 1), stats.hypergeom(8, 3, 6)]
    mean, variance = sum(p.mean() for p in parts), sum(p.var() for p in parts)
    assert found[:, 0, 0].mean() == pytest.approx(mean, abs=5 * np.sqrt(variance / draws))
    assert found[:, 0, 0].var() == pytest.approx(variance, rel=0.12)  # five standard errors
    np.testing.assert_array_equal(found.sum(axis=2), np.tile(first.sum(axis=1), (draws, 1)))
    np.testing.assert_array_equal(found.sum(axis=1), np.tile(second.sum(axis=0), (draws, 1)))


@pytest.mark.parametrize(
    "flows",
    [
        [[[4, 3], [2, 5]]],
        [[[4, 3], [2, 5]], [[1, 5], [6, 3]]],
        [[[4, 3], [2, 5]], [[1.5, 4.5], [6, 2]]],
        [[[4e9, 3], [2, 5]], [[4e9, 2], [6, 2]]],
    ],
    ids=["one step", "arrivals", "no whole numbers", "too many"],
)
def test_nobody_is_followed_where_that_says_nothing(flows):
    """One step is a flow of its own; who comes later began nowhere; shares of individuals are nobody; billions take too long."""
    assert _followed([np.tile(np.asarray(f, dtype=float), (40, 1, 1)) for f in flows]) is None
