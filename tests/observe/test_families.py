"""A problem's sites by family of noise, and problems that differ in noise or model alone."""

import numpy as np

import headcount as hc

POPULATION = 300


def world():
    """A chain of three times, and counts with a hole among them."""
    rng = np.random.default_rng(3)
    counts = rng.poisson(40.0, size=(3, 5)).astype(float)
    counts[2, 0] = np.nan
    return hc.MarkovChain(rng.dirichlet(np.ones(5)), rng.dirichlet(np.ones(5), size=5), length=3), counts


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
    fresh = hc.Problem(model, POPULATION, [hc.Poisson(counts, rate=2.0)])
    got, wanted = (hc.infer(p, hc.engines.MAP()).beliefs.mean((1,)) for p in (second, fresh))
    np.testing.assert_array_equal(got, wanted)
