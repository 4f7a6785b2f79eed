"""MAP's dual as a function: its derivative; a search that leaves older states alone and ends at rounding."""

from itertools import pairwise

import numpy as np
import pytest

import headcount as hc
from headcount.engines import MAP, TiltedEP
from headcount.engines._map import Inverse

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
    state = MAP().init(problem(noise).core)
    x = state.search.point.x + 0.3
    point = state.objective(x)
    for k in range(0, len(x), 3):
        step = 1e-5 * np.eye(len(x))[k]
        slope = (state.objective(x + step).value - state.objective(x - step).value) / 2e-5
        assert point.gradient[k] == pytest.approx(slope, rel=1e-6, abs=1e-6)


def test_a_pull_under_which_weights_underflow_has_a_value():
    objective = MAP().init(problem(hc.Poisson).core).objective
    x = np.full(len(objective.dual.entries), 3.0)
    x[0] = -5.0  # a pull of about 6000 nats
    assert np.isfinite(objective(x).value)


def test_a_state_can_be_stepped_from_twice():
    engine = MAP()
    states = [engine.init(problem(hc.Poisson).core)]
    for _ in range(30):  # more than the memory's buffers hold
        states.append(engine.step(states[-1]))
    for before, after in reversed(
        list(pairwise(states))
    ):  # forwards, every step would mend what the last one broke
        np.testing.assert_array_equal(engine.step(before).search.point.x, after.search.point.x)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_bounded_variables_at_their_bounds_do_not_mislead_the_others(seed):
    """Laplace noise bounds every tilt, and most end at their bounds; pairs remembered from before they did once stalled this."""
    rng = np.random.default_rng(seed)
    model = hc.MarkovChain(rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4), size=4), length=5)
    tables = hc.simulate.population(model, 1000, rng=3).tables
    n = np.array([tables.table((t,)) for t in range(5)], dtype=float)
    seen = hc.LaplaceNoise(n + rng.laplace(0, 3, n.shape), scale=3.0)
    got = hc.infer(hc.Problem(model, 1000, [seen]), MAP())
    assert got.outcome.iterations < 120
    assert abs(got.diagnostics["gap"]) < 1e-4


def test_binomial_counts_on_a_long_chain():
    """The dual starts where every tilt is zero, at n = y/p.

    Started at the end of the domain, n = y, it took twice the iterations, and the default engine began from tilts of seven nats and never
    recovered.
    """
    cells, steps, population = 12, 100, 300
    rng = np.random.default_rng(1)
    rows = 0.85 * np.eye(cells) + 0.15 * rng.dirichlet(np.full(cells, 0.5), size=cells)
    model = hc.MarkovChain(np.full(cells, 1 / cells), rows / rows.sum(1, keepdims=True), length=steps)
    world = hc.simulate.population(model, population, rng=1)
    n = np.stack([np.asarray(world.tables.table((t,))) for t in range(steps)])
    problem = hc.Problem(
        model, population, hc.Binomial(rng.binomial(n.astype(int), 0.5).astype(float), detection=0.5)
    )
    assert hc.infer(problem, MAP()).outcome.iterations < 60
    post = hc.infer(problem, TiltedEP())
    assert post.outcome.iterations < 12
    means = np.stack([post.beliefs.mean((t,)) for t in range(steps)])
    assert (
        np.sqrt(np.square(means - n).mean()) < 5.0
    )  # the raw estimate y/p is off by √(n (1 − p)/p), 5.0 on average


@pytest.mark.parametrize("detection", [0.05, 0.5, 0.95])
def test_the_dual_of_binomial_counts_starts_without_tilts(detection):
    """start(None) are the variables at which g = 0, or, where the most likely count is y itself, n = y."""
    noise = hc.Binomial(np.array([1.0, 7.0, 40.0]), detection=detection)
    group = Inverse(np.arange(3), noise)
    terms = group.terms(group.start(None))
    np.testing.assert_allclose(terms.g, 0.0, atol=1e-9)
    assert (terms.n >= noise.counts).all()


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


def test_surrogates_that_are_lines_are_renewed_until_counts_stay():
    """No negative binomial count above 0: every surrogate is a line, and its tilt must be its slope at the counts that it leads to."""
    times, r = 12, 0.25
    chain = hc.MarkovChain([0.2, 0.8], [[0.995, 0.005], [0.005, 0.995]], length=times)
    seen = np.full((times, 2), np.nan)
    seen[:, 0] = 0
    post = hc.infer(hc.Problem(chain, 20, hc.NegativeBinomial(seen, dispersion=r)), MAP())
    n = np.array([post.node(t).mean.values[0] for t in range(times)])
    g = -r / (n + r)  # slope of -r log(n + r)
    tilted, _ = chain.tilt({(t,): np.array([g[t], 0.0]) for t in range(times)})
    np.testing.assert_allclose(n, [20 * tilted.marginal((t,))[0] for t in range(times)], atol=1e-6)
    assert n.max() < 0.2
