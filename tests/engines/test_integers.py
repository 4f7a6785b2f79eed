"""Populations at the edges of fixed-width integers: 2^15, 2^16, 2^31, 2^32 and 2^53 are numbers like any other."""

import numpy as np
import pytest
from reproduction.rivals import Gibbs

import headcount as hc
from headcount.engines.sampling._sampler import count_type

EDGES = [2**15 - 1, 2**15, 2**16 - 1, 2**16, 2**31 - 1, 2**31, 2**32, 2**53 - 1]


def problem(people, noise=hc.Poisson, **settings):
    """Two cells, two times; three fifths are seen in the first cell, then half."""
    chain = hc.MarkovChain([0.5, 0.5], [[0.6, 0.4], [0.4, 0.6]], length=2)
    return hc.Problem(
        chain, people, [noise(np.round([[0.6 * people, 0.4 * people], [0.5 * people] * 2]), **settings)]
    )


@pytest.mark.parametrize("people", EDGES)
@pytest.mark.parametrize("engine", [hc.engines.TiltedEP(), hc.engines.MAP()], ids=["TiltedEP", "MAP"])
def test_shares_do_not_depend_on_the_population(people, engine):
    """Data in proportion to N give means in proportion to N, up to terms of order 1/N and rounded counts."""
    found = hc.infer(problem(people), engine, strict=False)
    other = hc.infer(problem(10**6), engine)
    for scope in [(0,), (1,), (0, 1)]:
        np.testing.assert_allclose(
            found.beliefs.mean(scope) / people, other.beliefs.mean(scope) / 10**6, atol=3 / min(people, 10**6)
        )


@pytest.mark.parametrize("people", [*EDGES[:-1], 2**50])
def test_whole_number_draws_sum_to_the_population(people):
    """Every draw has N individuals and no negative flow; a Gaussian draw needs a few bits below the unit, so up to 2^50."""
    found = hc.infer(problem(people), hc.engines.TiltedEP(), strict=False)
    flows = found.beliefs.sample(3, rng=np.random.default_rng(1), integer=True)[0, 1]
    assert flows.min() >= 0
    np.testing.assert_array_equal(flows.reshape(3, -1).sum(axis=1), people)


def test_kept_counts_are_wide_enough():
    """32 bits up to 2^31 − 1 individuals, 64 above."""
    assert count_type(2**31 - 1) is np.int32
    assert count_type(2**31) is np.int64


@pytest.mark.parametrize("people", [2**15, 2**16])
def test_samplers_hold_such_populations(people):
    """Kept draws of both samplers sum to N."""
    for engine in (
        hc.engines.PathGibbs(chains=1, burn_in=6, sweeps=8, batches=2, draws=2),
        Gibbs(chains=1, burn_in=100, moves=400, draws=100, configurations=2),
    ):
        found = engine.run(problem(people).core, rng=np.random.default_rng(1), progress=False).beliefs
        assert (found.node_draws[..., :2].sum(axis=-1) == people).all()
        assert (found.sample(2, rng=np.random.default_rng(2))[0, 1].sum(axis=(1, 2)) == people).all()
