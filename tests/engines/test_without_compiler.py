"""Without compiled kernels the same formulas are computed in NumPy: no answer depends on which way was taken, but for rounding."""

import numpy as np
import pytest

import headcount as hc
from headcount.population import LaplacianFactor
from headcount.solve.whole_law import Context, whole_law


@pytest.fixture
def both(monkeypatch):
    """What a function returns with and without a compiler."""

    def ways(work):
        found = []
        for asked in ("always", "never"):
            monkeypatch.setenv("HEADCOUNT_COMPILE", asked)
            found.append(work())
        return found

    return ways


def small(kind):
    """One problem of every kind that has kernels of its own."""
    world = hc.simulate.birds(side=3, weights=(1, 2, 2, 2), population=300, steps=6, rng=2)
    model, seen = world.model, np.asarray(world.observed)
    noises = {
        "poisson": hc.Poisson(seen),
        "gaussian": hc.Gaussian(seen, sd=2.0),
        "gaps": hc.Poisson(np.where(np.arange(seen.size).reshape(seen.shape) % 5 == 0, np.nan, seen)),
        "dispersed": hc.Poisson(seen),
    }
    more = {"dispersion": hc.Flocks(3)} if kind == "dispersed" else {}
    return hc.Problem(model, 300, noises[kind], **more)


@pytest.mark.parametrize("engine", ["TiltedEP", "MAP", "Laplace"])
@pytest.mark.parametrize("kind", ["poisson", "gaussian", "gaps", "dispersed"])
def test_inference(both, kind, engine):
    """Means, sds, intervals, flows and evidence are those of the compiled kernels."""

    def answer():
        post = hc.infer(small(kind), getattr(hc.engines, engine)())
        found = [np.asarray(post.node(3).mean), np.asarray(post.edge(3, 4).mean).ravel()]
        if engine != "MAP":
            found += [
                np.asarray(post.node(3).sd),
                np.asarray(post.edge(3, 4).sd).ravel(),
                [post.log_evidence],
            ]
        whole = [] if engine == "MAP" else [np.asarray(post.edge(3, 4).interval(0.9).to_array()).ravel()]
        return np.concatenate(found), np.concatenate([[0.0], *whole])

    (compiled, ends), (plain, plain_ends) = both(answer)
    np.testing.assert_allclose(plain, compiled, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(plain_ends, ends)


@pytest.mark.parametrize("population", [3, 60, 1080, 10**6])
@pytest.mark.parametrize("phi", [1.0, 3.0])
def test_laws_of_single_counts(both, population, phi):
    """Fits of whole-number laws agree, also where a fit ends at a bound or fails."""
    rng = np.random.default_rng(population)
    expected = np.clip(population * rng.dirichlet(np.ones(30), size=6).ravel(), 1e-9, 0.999 * population)
    mean = np.clip(expected + rng.normal(size=180) * np.sqrt(expected), -1.0, population + 1.0)
    variance = phi * expected * (1 - expected / population) * rng.uniform(0.01, 2.0, size=180)
    context = Context(expected, mean, variance, population, np.full(180, phi))
    context = context.take(np.flatnonzero(context.is_small))
    compiled, plain = both(lambda: whole_law(context))
    for name, x, y in zip(compiled._fields, compiled, plain, strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-10, atol=1e-10 * np.abs(x).max(), err_msg=name)


@pytest.mark.parametrize("cut", [0.0, 0.9, 1.0])
def test_factors_of_graphs(both, cut):
    """Laplacian factors and resistances agree, on whole graphs and on graphs in parts."""
    rng = np.random.default_rng(3)
    weights = rng.random((60, 60)) ** 8
    weights = np.where(rng.random((60, 60)) < cut, 0.0, weights)
    weights = np.triu(weights, 1) + np.triu(weights, 1).T

    def answer():
        factor = LaplacianFactor(weights)
        return factor.root, factor.order, factor.resistances

    for compiled, plain in zip(*both(answer), strict=True):
        np.testing.assert_allclose(plain, compiled, rtol=1e-11, atol=1e-14)
