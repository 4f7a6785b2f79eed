"""Where the data say nothing, everything, or are of extreme size."""

from __future__ import annotations

import numpy as np
import pytest
from tests.engines.cases import MODELS, node_counts, problem, scopes

import headcount as hc
from headcount import simulate
from headcount.engines import MAP, ClosedForm, Enumerate, Laplace, TiltedEP


@pytest.mark.parametrize("engine", [TiltedEP(), MAP(), Laplace(), ClosedForm()], ids=lambda e: e.name)
@pytest.mark.parametrize("graph", MODELS)
def test_no_observation_is_the_prior(graph, engine):
    """Without data the means are Nμ, the covariance N(⟨μ⟩ − μμᵀ), the evidence 1."""
    model = MODELS[graph]
    post = hc.infer(hc.Problem(model, 30), engine)
    for scope in scopes(model):
        np.testing.assert_allclose(post.beliefs.mean(scope), 30 * model.marginal(scope), atol=1e-9 * 30)
        if engine.name != "MAP":
            mu = model.marginal(scope).ravel()
            np.testing.assert_allclose(
                post.beliefs.covariance(scope, scope), 30 * (np.diag(mu) - np.outer(mu, mu)), atol=1e-8 * 30
            )
    assert post.log_evidence == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("engine", [TiltedEP(), MAP(tolerance=1e-5), Laplace()], ids=lambda e: e.name)
def test_a_high_rate_is_as_good_as_exact(engine):
    """Poisson counts of rate 1e6 pin the nodes they see to 0.01 individuals, and the flows to those of exact counts."""
    model = MODELS["homogeneous chain"]
    counts = node_counts(model, 60, np.random.default_rng(2))
    sharp = hc.infer(
        hc.Problem(model, 60, [hc.Poisson({t: 1e6 * n for t, n in counts.items()}, rate=1e6)]), engine
    )
    exact = hc.infer(
        hc.Problem(model, 60, [hc.Exact(counts)]),
        MAP() if engine.name in {"MAP", "TiltedEP"} else ClosedForm(),
    )
    for t, n in counts.items():
        np.testing.assert_allclose(sharp.beliefs.mean((t,)), n, atol=0.01)
    np.testing.assert_allclose(sharp.beliefs.mean((0, 1)), exact.beliefs.mean((0, 1)), atol=0.02)


@pytest.mark.parametrize("population", [100, 400, 4000])
@pytest.mark.parametrize("graph", MODELS)
def test_privacy_noise_much_narrower_than_the_prior(graph, population):
    """Laplace readings of scale one: TiltedEP converges, and its means lie where the readings leave them."""
    asked = problem(graph, "laplace", population)
    post = hc.infer(asked, TiltedEP())
    for site in asked.sites:
        mean = site.margin(post.beliefs.mean(site.scope).ravel())
        gap = np.abs(mean - site.noise.counts) / site.noise.scale
        # An average of |Laplace| is one; readings of one table share its total, so means move towards each other.
        assert gap.mean() < 6


@pytest.mark.parametrize("population", [40, 400, 1500])
def test_privacy_noise_against_the_exact_recursion(population):
    """Laplace readings of scale one on a two-cell chain: means within .05 individuals, sds within 15 %, evidence within .2 nats."""
    asked = problem("homogeneous chain", "laplace", population)
    exact, got = hc.infer(asked, Enumerate()), hc.infer(asked, TiltedEP())
    for v in asked.model.variables:
        np.testing.assert_allclose(got.beliefs.mean((v,)), exact.beliefs.mean((v,)), atol=0.05)
        np.testing.assert_allclose(
            np.sqrt(got.beliefs.variance((v,))), np.sqrt(exact.beliefs.variance((v,))), rtol=0.15
        )
    assert got.log_evidence == pytest.approx(exact.log_evidence, abs=0.2)


@pytest.mark.parametrize("rate", [10.0, 100.0])
@pytest.mark.parametrize("population", [2, 4, 8])
def test_counts_that_are_nearly_certain(population, rate):
    """Sharp counts of a few individuals: converged, means within .1, evidence within 3 nats of tens."""
    rng = np.random.default_rng(population)
    model = hc.MarkovChain(np.full(3, 1 / 3), rng.dirichlet(np.full(3, 0.5), size=3), length=4)
    n = np.array([np.bincount(x, minlength=3) for x in model.sample(population, rng=rng).T])
    asked = hc.Problem(model, population, [hc.Poisson(rng.poisson(rate * n).astype(float), rate=rate)])
    exact, got = hc.infer(asked, Enumerate()), hc.infer(asked, TiltedEP())
    for v in asked.model.variables:
        np.testing.assert_allclose(got.beliefs.mean((v,)), exact.beliefs.mean((v,)), atol=0.1)
    assert got.log_evidence == pytest.approx(exact.log_evidence, abs=3.0)


@pytest.mark.parametrize("population", [5, 10, 50])
def test_binomial_counts_that_account_for_everyone(population):
    """Detected counts that sum to N leave one table: TiltedEP finds it, as MAP does."""
    steps = [[0.5, 0.1, 0.4], [0.75, 0.05, 0.2], [0.02, 0.49, 0.49]]
    model = hc.MarkovChain([0.2, 0.2, 0.6], steps, length=4)
    seen = np.array([0.6, 0.0, 0.4]) * population
    asked = hc.Problem(model, population, [hc.Binomial(seen, detection=0.95, on=1)])
    for engine in (TiltedEP(), MAP()):
        np.testing.assert_allclose(hc.infer(asked, engine).beliefs.mean((1,)), seen, atol=1e-4)


@pytest.mark.parametrize("rate", [10.0, 30.0, 1000.0])
def test_a_most_probable_count_of_zero_is_no_trap(rate):
    """A negative binomial zero in a rare cell: MAP is at zero, the mean is not, and TiltedEP finds the mean."""
    model = hc.MarkovChain([0.02, 0.98], [[0.6, 0.4], [0.9, 0.1]], length=4)
    noise = hc.NegativeBinomial([0.0, 20 * rate], dispersion=0.3, rate=rate, on=0)
    asked = hc.Problem(model, 20, [noise])
    exact, got = hc.infer(asked, Enumerate()), hc.infer(asked, TiltedEP())
    np.testing.assert_allclose(got.beliefs.mean((0,)), exact.beliefs.mean((0,)), atol=1e-3)
    assert hc.infer(asked, MAP()).beliefs.mean((0,))[0] < 1e-3 < exact.beliefs.mean((0,))[0]


@pytest.mark.parametrize("population", [1, 2, 3, 10, 10**3, 10**6, 10**9, 10**12])
def test_every_population(population):
    """N from 1 to 10¹²: TiltedEP and MAP converge to finite means that sum to N."""
    rng = np.random.default_rng(1)
    model = hc.MarkovChain(rng.dirichlet(np.ones(5)), rng.dirichlet(np.ones(5), size=5), length=6)
    n = np.array([rng.multinomial(population, model.marginal((t,))) for t in range(6)])
    asked = hc.Problem(model, population, [hc.Poisson(rng.poisson(n).astype(float))])
    for engine in (TiltedEP(), MAP()):
        post = hc.infer(asked, engine)
        for t in range(5):
            flows = post.beliefs.mean((t, t + 1))
            assert np.isfinite(flows).all()
            assert flows.min() >= 0
            assert flows.sum() == pytest.approx(population, rel=1e-9)
    assert np.isfinite(post.log_evidence)


@pytest.mark.parametrize("length", [1, 2, 50, 2000])
def test_every_length(length):
    """T from 1 to 2000: the default converges, and the last time's counts still sum to N."""
    rng = np.random.default_rng(1)
    model = hc.MarkovChain(rng.dirichlet(np.ones(5)), rng.dirichlet(np.ones(5), size=5), length=length)
    drawn = model.sample(500, rng=rng)
    n = np.stack([(drawn == k).sum(axis=0) for k in range(5)], axis=1)
    post = hc.infer(hc.Problem(model, 500, [hc.Poisson(rng.poisson(n).astype(float))]))
    assert post.status.good
    last = post.beliefs.mean((length - 1,))
    assert last.min() >= 0
    assert last.sum() == pytest.approx(500, rel=1e-9)


def test_the_hard_birds():
    """w = (5, 10, 10, 10) on 100 cells with 1000 birds: no failure, no negative mean, flows that agree with nodes."""
    world = simulate.birds(side=10, weights=(5, 10, 10, 10), population=1000, steps=10, rng=1)
    post = hc.infer(hc.Problem(world.model, 1000, [hc.Poisson(world.observed)]), TiltedEP())
    assert post.promises.non_negative
    for t in range(9):
        flows = post.beliefs.mean((t, t + 1))
        assert flows.min() >= 0
        np.testing.assert_allclose(flows.sum(axis=1), post.beliefs.mean((t,)), atol=1e-6)
        np.testing.assert_allclose(flows.sum(axis=0), post.beliefs.mean((t + 1,)), atol=1e-6)


NOISES = {
    "negative binomial": lambda n, rng: hc.NegativeBinomial(rng.poisson(n).astype(float), dispersion=5.0),
    "binomial": lambda n, rng: hc.Binomial(
        rng.binomial(n.astype(np.int64), 0.6).astype(float), detection=0.6
    ),
    "Laplace": lambda n, rng: hc.LaplaceNoise(n + rng.laplace(0, 3, n.shape), scale=3.0),
    "sharp Gaussian": lambda n, rng: hc.Gaussian(n + rng.normal(0, 0.5, n.shape), sd=0.5),
    "exact": lambda n, _: hc.Exact(n[2], on=2),
}


@pytest.mark.parametrize("population", [1, 10**6, 10**12], ids=["1", "1e6", "1e12"])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("engine", [TiltedEP(), MAP()], ids=lambda e: e.name)
def test_every_noise_at_every_size(engine, noise, population):
    """Converged, and (Poisson noise is tested elsewhere) within six of the sds that the multinomial law alone leaves."""
    rng = np.random.default_rng(2)
    model = hc.MarkovChain(rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4), size=4), length=5)
    tables = hc.simulate.population(model, population, rng=3).tables
    n = np.array([tables.table((t,)) for t in range(5)], dtype=float)
    seen = [NOISES[noise](n, rng)]
    if noise == "exact":
        seen.append(hc.Poisson({0: n[0], 4: n[4]}))
    got = hc.infer(hc.Problem(model, population, seen), engine)
    for t in range(5):
        mean = got.beliefs.mean((t,))
        assert mean.sum() == pytest.approx(population, rel=1e-9)
        assert (mean >= 0).all()
        assert (np.abs(mean - n[t]) <= 6 * np.sqrt(population)).all()
