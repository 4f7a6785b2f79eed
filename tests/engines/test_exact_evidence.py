"""The evidence beside exact counts: readings of what is known are constant factors, flocks come whole, few individuals are summed over."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from benchmarks.exact_evidence import cases
from benchmarks.exact_tables import problem
from scipy.special import gammaln

import headcount as hc
from headcount.engines import TableBP, TiltedEP

STEP = np.array([[0.7, 0.2, 0.1], [0.3, 0.5, 0.2], [0.2, 0.2, 0.6]])
CHAIN = hc.MarkovChain([0.4, 0.3, 0.3], STEP, length=3)
COUNTS = np.array([[9.0, 7, 4], [8, 6, 6], [7, 7, 6]])
NAN = np.nan
READINGS = {
    "Poisson": lambda **where: hc.Poisson([5.0, NAN, 7.0], rate=0.8, **where),
    "Poisson, none seen": lambda **where: hc.Poisson([0.0, NAN, 0.0], rate=0.1, **where),
    "Gaussian": lambda **where: hc.Gaussian([7.2, 6.5, NAN], sd=2.0, **where),
    "Gaussian, sharp": lambda **where: hc.Gaussian([8.2, NAN, NAN], sd=0.2, **where),
    "binomial": lambda **where: hc.Binomial([4.0, 3.0, 2.0], detection=0.6, **where),
    "negative binomial": lambda **where: hc.NegativeBinomial([4.0, NAN, 2.0], dispersion=3.0, **where),
    "Laplace": lambda **where: hc.LaplaceNoise([9.0, 3.0, NAN], scale=1.5, **where),
}


@pytest.mark.parametrize("times", [(0, 1, 2), (1,)], ids=["all times", "one time"])
@pytest.mark.parametrize("cells", [3, 2], ids=["all cells", "all but one"])
@pytest.mark.parametrize("name", READINGS)
def test_a_reading_of_an_exact_count_is_a_constant_factor(name, cells, times):
    """log p(y, z) − log p(y) = log l(z | y) to rounding, and means stay as they are, whatever the noise says."""
    seen = np.full_like(COUNTS, NAN)
    seen[list(times), :cells] = COUNTS[list(times), :cells]
    reading = READINGS[name](on=1)
    alone, both = (
        hc.infer(hc.Problem(CHAIN, 20, [hc.Exact(seen), *more]), TiltedEP()) for more in ((), (reading,))
    )
    site = both.problem.sites[-1]
    given = float(site.noise.log_prob(site.margin(COUNTS[1])).sum())
    assert both.log_evidence - alone.log_evidence == pytest.approx(given, abs=1e-4)
    for t in range(3):
        np.testing.assert_allclose(both.beliefs.mean((t,)), alone.beliefs.mean((t,)), atol=1e-3)


def test_exact_counts_of_flocks_are_on_the_flocks_lattice():
    """Exact counts of whole flocks have the evidence of as many independent units."""
    counts = np.array([[4.0, 3, 1], [3.0, 3, 2], [2.0, 4, 2]])
    units = hc.infer(hc.Problem(CHAIN, 8, hc.Exact(counts)), TiltedEP()).log_evidence
    flocks = hc.Problem(CHAIN, 40, hc.Exact(5 * counts), dispersion=hc.Flocks(5))
    assert hc.infer(flocks, TiltedEP()).log_evidence == pytest.approx(units, abs=1e-6)


@pytest.mark.parametrize(("people", "size"), [(40, 5), (42, 5), (40, 2.5)])
def test_flocks_that_do_not_divide_the_counts_are_a_scatter_and_it_is_said(people, size):
    """An exact count, an N or a size that is no whole number of flocks: phi = size, in the words of the choice; others refuse."""
    counts = np.array([[18.0, 12, people - 30], [15, 15, people - 30], [15, 15, people - 30]])
    problem = hc.Problem(CHAIN, people, hc.Exact(counts), dispersion=hc.Flocks(size))
    choice = hc.engines.select(problem)
    assert f"taken as a scatter, phi = {size:g}" in choice.reason
    scatter = hc.infer(hc.Problem(CHAIN, people, hc.Exact(counts), dispersion=hc.Overdispersion(phi=size)))
    np.testing.assert_allclose(hc.infer(problem).edge(0, 1).mean, scatter.edge(0, 1).mean, atol=0.05)
    with pytest.raises(hc.ProblemError, match=r"multiple|whole number"):
        hc.infer(problem, "PathGibbs", rng=1)
    whole = hc.Problem(
        CHAIN, 40, hc.Exact(5.0 * np.array([[4, 3, 1], [3, 3, 2], [2, 4, 2]])), dispersion=hc.Flocks(5)
    )
    assert "whole flocks are counted" in hc.engines.select(whole).reason


@pytest.mark.parametrize("number", [1, 2, 4, 7, 8, 14, 16])
def test_the_evidence_of_few_individuals_is_the_sum_over_tables(number):
    """Exact counts at all times: within .5 nats of the sum, and within five of the errors that are stated."""
    kind, asked, truth = problem(number)
    assert "hidden" not in kind
    tree = asked.model.rooted()
    first = next(s.noise.counts for s in asked.sites if s.scope[0] == tree.variables[0])
    exact = gammaln(first.sum() + 1) - gammaln(first + 1).sum() + sum(a.log_sum for a in truth.values())
    exact += float((first * np.log(np.where(first > 0, tree.initial, 1.0))).sum())
    post = hc.infer(asked, TableBP())
    error = post.diagnostics["log_evidence_mc_error"]
    assert post.log_evidence == pytest.approx(exact, abs=min(0.5, max(5 * error, 1e-8)))


def test_whole_number_tables_take_readings_of_what_they_know():
    """Exact counts at all times and a reading beside them: the same tables, and the reading's constant in the evidence."""
    exact = hc.Exact(COUNTS)
    alone, both = (
        hc.infer(hc.Problem(CHAIN, 20, [exact, *more])) for more in ((), (hc.Poisson([5.0, NAN, 7.0], on=1),))
    )
    assert alone.engine == both.engine == "TableBP"
    site = both.problem.sites[-1]
    given = float(site.noise.log_prob(site.margin(COUNTS[1])).sum())
    assert both.log_evidence - alone.log_evidence == pytest.approx(given, abs=1e-9)
    np.testing.assert_array_equal(both.beliefs.mean((0, 1)), alone.beliefs.mean((0, 1)))


SIZES = {"range": hc.Between(12, 31), "about": hc.About(25.0, sd=6.0)}


@pytest.mark.parametrize("name", SIZES)
def test_a_number_that_is_counted_is_known(name):
    """Complete exact counts tell N: the answer is that of the known number, and the evidence has log p(N) more (it was up to 1.1 off)."""
    known = hc.infer(hc.Problem(CHAIN, 20, hc.Exact(COUNTS)))
    post = hc.infer(hc.Problem(CHAIN, SIZES[name], hc.Exact(COUNTS)))
    assert post.engine == known.engine == "TableBP"
    assert post.log_evidence - known.log_evidence == pytest.approx(float(SIZES[name].log_pmf(20)), abs=1e-9)
    np.testing.assert_array_equal(post.beliefs.mean((0, 1)), known.beliefs.mean((0, 1)))
    assert (post.population.mean, post.population.sd) == (20.0, 0.0)
    assert (post.sample(5, rng=1)[(0, 1)].sum(axis=(1, 2)) == 20).all()


@pytest.mark.parametrize("engine", [None, "TiltedEP", "Enumerate", "PathGibbs"])
def test_the_size_of_one_group_that_totals_tell_is_known(engine):
    """Two groups, totals counted completely: what the one does not have is the other."""
    groups = {"a": hc.Group(CHAIN, 2), "b": hc.Group(CHAIN, hc.Between(1, 5))}
    seen = np.array([[2.0, 2, 0], [1, 2, 1], [1, 1, 2]])
    post = hc.infer(hc.Problem(groups=groups, observations=hc.Exact(seen)), engine, rng=1)
    alike = hc.infer(hc.Problem(CHAIN, 4, hc.Exact(seen)), hc.engines.Enumerate())
    assert post.population.mean == pytest.approx(4)
    assert post.group("b").population.mean == pytest.approx(2)
    if engine != "PathGibbs":  # the groups are alike: one population of four
        assert post.log_evidence == pytest.approx(
            alike.log_evidence - np.log(5), abs=1e-6 if engine != "TiltedEP" else 0.5
        )
    np.testing.assert_allclose(
        post.edge(0, 1).mean, alike.edge(0, 1).mean, atol=0.3 if engine == "TiltedEP" else 0.1
    )


@pytest.mark.parametrize("name", ["hidden times", "hidden cells", "two groups, one of unknown size"])
def test_what_exact_counts_hide_is_summed_over(name):
    """Times, cells or groups that exact counts leave open are summed over while that is quick: evidence and flows to 1e-9."""
    for case in cases(name, 3):
        found = hc.infer(case.problem)
        assert found.engine == "Enumerate"
        assert found.log_evidence == pytest.approx(case.truth.evidence, abs=1e-9)
        for pair, exact in zip(pairwise(case.problem.model.variables), case.truth.flows, strict=False):
            np.testing.assert_allclose(found.beliefs.mean(pair), exact, atol=1e-9)


def test_long_series_are_not_summed_over():
    """What is quick at one step is not at a thousand: all steps together must be."""
    seen = np.full((1000, 3), NAN)
    seen[::500] = [14.0, 13, 13]
    chain = hc.MarkovChain([0.4, 0.3, 0.3], STEP, length=3)
    assert hc.engines.select(hc.Problem(chain, 40, hc.Exact(seen[498:501]))).engine.name == "Enumerate"
    long = hc.Problem(hc.MarkovChain([0.4, 0.3, 0.3], STEP, length=1000), 40, hc.Exact(seen))
    assert hc.engines.select(long).engine.name == "TiltedEP"
