"""Simulated individuals that move together."""

import numpy as np
import pytest
from tests.graphs import awkward_models

import headcount as hc
from headcount import simulate
from headcount.individual import MarkovChain, ModelError, Tree

MODELS = awkward_models()
WORLDS = 4000
ROOTED = [name for name, model in MODELS.items() if isinstance(model, (MarkovChain, Tree))]


def simulated(model, size, dispersion, seed=0):
    return simulate.population(model, size, dispersion=dispersion, observe=simulate.exact(), rng=seed)


@pytest.mark.parametrize("name", MODELS)
def test_flocks_move_as_one(name):
    """Every table of N = 20 in flocks of 5 is 5 times one of four individuals; N = 22 has one flock of two besides."""
    model = MODELS[name]
    for clique in model.junction_tree.cliques:
        table = simulated(model, 20, hc.Flocks(5)).tables.table(tuple(clique))
        assert (table % 5 == 0).all()
        assert table.sum() == 20
        odd = simulated(model, 22, hc.Flocks(5)).tables.table(tuple(clique))
        assert odd.sum() == 22
        assert sorted((odd % 5)[odd % 5 > 0].tolist()) == [2]


@pytest.mark.parametrize("name", ROOTED)
@pytest.mark.parametrize(
    "overdispersion", [hc.Overdispersion(rho=0.1, initial=0.05), hc.Overdispersion(phi=3, initial=2)]
)
def test_overdispersion_agrees_and_sums_to_n(name, overdispersion):
    """Tables agree on shared variables, sum to N and have no one where the model allows none."""
    model = MODELS[name]
    tables = simulated(model, 50, overdispersion).tables
    assert not tables.disagreements()
    for clique in model.junction_tree.cliques:
        table = tables.table(tuple(clique))
        assert table.sum() == 50
        assert (table[model.marginal(tuple(clique)) == 0] == 0).all()


@pytest.mark.parametrize(
    ("overdispersion", "factor"),
    [(hc.Overdispersion(rho=0.05), 1 + 59 * 0.05), (hc.Overdispersion(phi=4), 4.0), (hc.Flocks(6), 6.0)],
)
def test_the_variance_is_the_one_that_inference_takes(overdispersion, factor):
    """Sixty start in one cell: Var n_j = factor · N p (1 − p), within 6 standard errors of 4000 worlds (kurtosis at most 2 more)."""
    p = np.array([0.2, 0.5, 0.3])
    model = hc.MarkovChain([1.0, 0.0, 0.0], [p, p, p], length=2)
    rng = np.random.default_rng(5)
    drawn = np.array(
        [simulate.population(model, 60, dispersion=overdispersion, rng=rng).counts[1] for _ in range(WORLDS)]
    )
    wanted = factor * 60 * p * (1 - p)
    np.testing.assert_allclose(drawn.mean(axis=0), 60 * p, atol=6 * np.sqrt(wanted.max() / WORLDS))
    np.testing.assert_allclose(drawn.var(axis=0), wanted, rtol=6 * np.sqrt(4 / WORLDS))
    prior = hc.infer(hc.Problem(model, 60, dispersion=overdispersion))
    if not isinstance(overdispersion, hc.Flocks):
        np.testing.assert_allclose(prior.node(1).sd ** 2, wanted, rtol=1e-12)


@pytest.mark.parametrize(
    "dispersion", [hc.Flocks(2.5), hc.Overdispersion(phi=0.5), hc.Overdispersion(phi=1.5), "flocks"]
)
def test_what_cannot_be_simulated_is_refused(dispersion):
    """Parts of parties, under-dispersion, and what is no dispersion."""
    with pytest.raises(ModelError):
        simulated(MODELS["chain"], 20, dispersion)


def test_overdispersion_needs_steps():
    """A graph without direction is refused with what to take instead."""
    with pytest.raises(ModelError, match=r"Flocks\(c\)"):
        simulated(MODELS["four-cycle"], 20, hc.Overdispersion(rho=0.1))
