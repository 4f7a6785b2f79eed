"""Simulating any other model."""

import numpy as np
import pytest
from tests.graphs import awkward_models

from headcount import simulate
from headcount.individual import MarkovChain, ModelError

MODELS = awkward_models()
every_model = pytest.mark.parametrize("name", MODELS)


@every_model
def test_any_model_can_be_simulated(name):
    """The truth is consistent, every variable is seen, and exact observations are the truth."""
    model = MODELS[name]
    world = simulate.population(model, 100, observe=simulate.exact(), rng=1)
    assert world.population == 100
    world.tables.check()
    for v in model.variables:
        np.testing.assert_array_equal(world.observations[(v,)], world.tables.table((v,)))


def test_tables_may_be_seen_one_by_one():
    """A mapping sees the scopes it names, each with its own noise, edges included."""
    model = MODELS["two cliques of three"]
    look = {
        ("a",): simulate.poisson(2.0),
        ("b", "c"): simulate.gaussian(0.5),
        ("c", "d"): simulate.binomial(0.3),
    }
    world = simulate.population(model, 10**6, observe=look, rng=1)
    assert set(world.observations) == set(look)
    n = {scope: world.tables.table(scope) for scope in look}
    y = world.observations
    assert (np.abs(y["a",] - 2 * n["a",]) < 6 * np.sqrt(2 * n["a",])).all()
    assert (np.abs(y["b", "c"] - n["b", "c"]) < 3).all()
    assert (y["b", "c"] != n["b", "c"]).all()
    assert (np.abs(y["c", "d"] - 0.3 * n["c", "d"]) < 6 * np.sqrt(0.21 * n["c", "d"])).all()


def test_background_is_seen_where_no_one_is():
    """Poisson(rate·n + background) sees something in an empty cell."""
    chain = MarkovChain([1.0, 0.0], np.eye(2), length=3)
    world = simulate.population(chain, 10, observe=simulate.poisson(1.0, background=50.0), rng=1)
    assert (world.observed.values[:, 1] > 10).all()
    assert (world.counts[:, 1] == 0).all()


def test_a_chain_seen_at_some_times_has_nan_elsewhere():
    """Not observed is NaN, never zero."""
    chain = MODELS["homogeneous chain"]
    world = simulate.population(chain, 30, observe={(1,): simulate.exact()}, rng=1)
    assert np.isnan(world.observed.sel(time=[0, 2, 3, 4]).values).all()
    np.testing.assert_array_equal(world.observed.sel(time=1).values, world.counts[1])


def test_arrays_are_for_chains():
    """counts, flows and observed of another model are refused with the way to get them."""
    for name in ("star", "chain of changing cells"):
        world = simulate.population(MODELS[name], 30, rng=1)
        for what in ("counts", "flows", "observed"):
            with pytest.raises(ModelError, match=r"world\.tables"):
                getattr(world, what)


def test_seeds_reproduce():
    """One seed, one world."""
    a, b = (simulate.population(MODELS["star"], 1000, rng=9) for _ in range(2))
    assert all((a.observations[s] == b.observations[s]).all() for s in a.observations)
    c = simulate.population(MODELS["star"], 1000, rng=10)
    assert any((a.observations[s] != c.observations[s]).any() for s in a.observations)


def test_a_noise_that_changes_the_shape_is_refused():
    """What is seen has one number per entry of the table it sees."""
    with pytest.raises(ModelError, match="shape"):
        simulate.population(MODELS["star"], 10, observe=lambda n, rng: n[:1], rng=0)
