"""A problem as arrays: the likelihood ratios of its counts, in tables and in closed form."""

import numpy as np
import pytest
from tests.engines.sampler_cases import cases

from headcount.engines.sampling import _arrays
from headcount.engines.sampling._arrays import LIMIT, log_ratios, sampling_arrays
from headcount.engines.sampling._primitives import ratio
from headcount.observe import Exact, Poisson


def test_ratios_lead_to_the_nearest_possible_count():
    """Impossible counts below point up, above point down, both by the limit; between them stand the true ratios."""
    steps = log_ratios(Exact(np.array([2.0])), 4)[:, 0]
    np.testing.assert_array_equal(steps, [LIMIT, LIMIT, -LIMIT, -LIMIT, -LIMIT])
    poisson = log_ratios(Poisson(np.array([3.0]), rate=np.array([1.0]), background=np.array([0.0])), 4)[:, 0]
    assert poisson[0] == LIMIT
    np.testing.assert_allclose(poisson[1:], 3 * np.log(np.arange(2, 6) / np.arange(1, 5)) - 1)


def test_closed_form_and_table_give_the_same_ratio(monkeypatch):
    """Poisson by formula equals Poisson by table at every count, background and zeros included."""
    problem = cases()["rates and background"]
    table = sampling_arrays(problem, engine="test").slots
    monkeypatch.setattr(_arrays, "TABLE_ENTRIES", 0)
    closed = sampling_arrays(problem, engine="test").slots
    assert closed.table.size == 0 < table.table.size
    for s in range(len(table.law)):
        for k in range(problem.population):
            assert ratio(closed.law, closed.table, s, k) == pytest.approx(
                ratio(table.law, table.table, s, k), rel=1e-12
            )
