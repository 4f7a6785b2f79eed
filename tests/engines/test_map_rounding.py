"""MAP ends where rounding does."""

import numpy as np
import pytest

import headcount as hc


def band(width: int, population: int) -> hc.Problem:
    """Random potentials on neighbouring variables, seen through Poisson noise: cliques of width + 1."""
    rng = np.random.default_rng(width)
    count, states = 12, 3
    scopes = [tuple(f"x{k}" for k in range(a, a + width + 1)) for a in range(count - width)]
    factors = {scope: rng.normal(size=(states,) * (width + 1)) for scope in scopes}
    model = hc.DiscreteModel({f"x{k}": states for k in range(count)}, factors)
    world = hc.simulate.population(model, population, rng=rng)
    return hc.Problem(model, population, [hc.Poisson({v[0]: y for v, y in world.observations.items()})])


@pytest.mark.parametrize("tolerance", [1e-8, 1e-11])
def test_a_small_value_made_of_large_terms_does_not_stall_the_search(tolerance: float) -> None:
    """The dual's value is a small sum of terms of size N: the search converges although the value's last digits are noise."""
    posterior = hc.infer(band(2, 3000), hc.engines.MAP(tolerance=tolerance))
    assert posterior.status.good
    assert posterior.outcome.iterations < 40
