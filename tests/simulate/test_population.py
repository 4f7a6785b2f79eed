"""Simulating any other model."""

import numpy as np
import pytest
from tests.graphs import awkward_models

import headcount as hc
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


def test_those_who_come_and_go_can_be_simulated():
    """Counts are last counts less departures, moved, and arrivals; the numbers expected are those of the chain; nobody hidden is seen."""
    chain = hc.OpenChain([30, 10], [[0.9, 0.1], [0.2, 0.8]], arrivals=5, survival=[0.8, 0.6], length=4)
    worlds = [simulate.population(chain, observe=simulate.exact(), rng=k) for k in range(400)]
    world = worlds[0]
    for t in range(3):
        stayed = world.flows[t]
        np.testing.assert_array_equal(stayed.sum(axis=1) + world.departures[t], world.counts[t])
        np.testing.assert_array_equal(stayed.sum(axis=0) + world.arrivals[t], world.counts[t + 1])
    np.testing.assert_array_equal(world.observed.values, world.counts)
    mean = chain.expected_number * np.array([chain.marginal((t,)) for t in range(4)])
    np.testing.assert_allclose(np.mean([w.counts for w in worlds], axis=0), mean, rtol=0.06)
    with pytest.raises(ModelError, match="simulate an OpenChain"):
        simulate.population(MODELS["homogeneous chain"], 30, rng=1).arrivals  # noqa: B018


def test_groups_can_be_simulated():
    """What is seen is the sum of the groups, of which each is kept; unknown sizes are drawn from their laws; cells may differ."""
    a = MarkovChain([1.0, 0.0], [[0.5, 0.5], [0.1, 0.9]], length=3, cells=["x", "y"])
    b = MarkovChain([0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]], length=3, cells=["y", "z"])
    world = simulate.population(
        groups={"a": hc.Group(a, 20), "b": hc.Group(b, hc.Between(5, 9))}, observe=simulate.exact(), rng=1
    )
    assert 5 <= world.groups["b"].population <= 9
    assert world.population == 20 + world.groups["b"].population
    np.testing.assert_array_equal(world.counts[:, 0], world.groups["a"].counts[:, 0])
    np.testing.assert_array_equal(
        world.counts[:, 1], world.groups["a"].counts[:, 1] + world.groups["b"].counts[:, 0]
    )
    np.testing.assert_array_equal(world.observed.values, world.counts)
    world.tables.check()
    with pytest.raises(ModelError, match="beside groups"):
        simulate.population(a, groups={"a": hc.Group(a, 20)}, rng=1)
