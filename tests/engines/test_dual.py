"""MAP's dual as a function: one derivative, two ways to compute it, and a search that leaves older states alone."""

from itertools import pairwise

import numpy as np
import pytest

import headcount as hc
from headcount.engines import MAP
from headcount.engines._map import MapState

CELLS, TIMES, POPULATION = 5, 4, 300


def world(seed=3):
    """A chain whose steps all differ, and counts with zeros and holes among them."""
    rng = np.random.default_rng(seed)
    steps = rng.dirichlet(np.ones(CELLS), size=(TIMES - 1, CELLS))
    model = hc.MarkovChain(rng.dirichlet(np.ones(CELLS)), steps)
    counts = rng.poisson(40.0, size=(TIMES, CELLS)).astype(float)
    counts[1, 2], counts[2, 0] = 0.0, np.nan
    return model, counts


def problem(noise):
    model, counts = world()
    return hc.Problem(model, POPULATION, [noise(counts)])


NOISES = {
    "poisson": hc.Poisson,
    "poisson, rate and background": lambda y: hc.Poisson(y, rate=0.7, background=2.0),
    "negative binomial": lambda y: hc.NegativeBinomial(y, dispersion=0.2),
    "gaussian": lambda y: hc.Gaussian(y, sd=6.0),
    "binomial": lambda y: hc.Binomial(y, detection=0.6),
}


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_the_gradient_is_that_of_the_value(noise):
    state = MAP().init(problem(noise))
    x = state.search.point.x + 0.3
    point = state.objective(x)
    for k in range(0, len(x), 3):
        step = 1e-5 * np.eye(len(x))[k]
        slope = (state.objective(x + step).value - state.objective(x - step).value) / 2e-5
        assert point.gradient[k] == pytest.approx(slope, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("noise", list(NOISES.values())[:3], ids=list(NOISES)[:3])
def test_compiled_and_plain_agree(noise):
    objective = MAP().init(problem(noise)).objective
    x = np.random.default_rng(0).normal(3.0, 0.5, size=len(objective.dual.entries))
    fast, slow = objective._compiled(x), objective._plain(x)
    assert fast is not None
    assert fast.expected.shape == (TIMES, CELLS)
    np.testing.assert_allclose(fast.expected.ravel()[objective.tilts.grid], slow.expected, rtol=1e-12)
    for name in ("value", "largest", "pull", "gradient", "curvature", "missed"):
        np.testing.assert_allclose(getattr(fast, name), getattr(slow, name), rtol=1e-10, err_msg=name)


def test_the_compiled_evaluation_hands_over_where_weights_underflow():
    objective = MAP().init(problem(hc.Poisson)).objective
    x = np.full(len(objective.dual.entries), 3.0)
    x[0] = -5.0  # a pull of about 6000 nats
    assert objective._compiled(x) is None
    assert np.isfinite(objective(x).value)


def test_a_state_can_be_stepped_from_twice():
    engine = MAP()
    states = [engine.init(problem(hc.Poisson))]
    for _ in range(30):  # more than the memory's buffers hold
        states.append(engine.step(states[-1]))
    for before, after in pairwise(states):
        np.testing.assert_array_equal(engine.step(before).search.point.x, after.search.point.x)


def test_sites_of_one_family_are_one_noise():
    model, counts = world()
    seen = [
        hc.Poisson({0: counts[0]}),
        hc.Gaussian({1: counts[1]}, sd=2.0),
        hc.Poisson({2: counts[2]}, rate=0.5),
    ]
    noises = hc.Problem(model, POPULATION, seen).noises
    assert [type(noise).__name__ for _, noise in noises] == ["Poisson", "Gaussian"]
    entries, poisson = noises[0]
    np.testing.assert_array_equal(entries, [0, 1, 2, 3, 4, 10, 11, 12, 13])  # the hole in time 2 is no entry
    np.testing.assert_array_equal(poisson.rate, [1.0] * 5 + [0.5] * 4)


def test_other_noise_and_other_models_do_not_keep_what_was_worked_out_before():
    model, counts = world()
    first = hc.Problem(model, POPULATION, [hc.Poisson(counts)])
    assert first.noises[0][1].rate[0] == 1.0
    second = first.with_noise(lambda noise: noise.replaced({"rate": 2.0 * noise.rate}))
    assert second.noises[0][1].rate[0] == 2.0
    assert first.noises[0][1].rate[0] == 1.0
    assert first.with_model(model).noises is first.noises
    assert isinstance(MAP().init(second), MapState)
