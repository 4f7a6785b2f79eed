"""The recursion over individuals' joint states: exact, and equal to the enumeration where both apply."""

import numpy as np
import pytest
from tests.engines.sampler_cases import cases, scopes
from tests.graphs import awkward_models

from headcount.engines.exact import Enumerate
from headcount.engines.exact._enumerate import enumerated
from headcount.engines.exact._few_individuals import few_individuals_beliefs, few_individuals_fit, push
from headcount.individual import MarkovChain
from headcount.observe import Exact, Gaussian, Poisson, Problem, ProblemError

CASES = {name: p for name, p in cases().items() if few_individuals_fit(p.core) is None}


def test_every_case_fits():
    """Trees, zeros, sums, flows and every noise are taken."""
    assert set(cases()) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_equal_to_the_enumeration(name):
    """Evidence, means, variances, covariances of all pairs and quantiles of nodes and flows, either way round."""
    exact, found = enumerated(CASES[name].core), few_individuals_beliefs(CASES[name].core)
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=1e-10)
    every = scopes(CASES[name])
    every += [scope[::-1] for scope in every if len(scope) == 2]
    for scope in every:
        np.testing.assert_allclose(found.mean(scope), exact.mean(scope), atol=1e-10)
        np.testing.assert_allclose(found.variance(scope), exact.variance(scope), atol=1e-10)
        np.testing.assert_array_equal(found.quantile(scope, 0.613), exact.quantile(scope, 0.613))
        for other in every:
            np.testing.assert_allclose(
                found.covariance(scope, other), exact.covariance(scope, other), atol=1e-10
            )


@pytest.mark.parametrize("name", [n for n, m in awkward_models().items() if m.rooted() is not None])
def test_equal_to_the_enumeration_on_every_awkward_tree(name):
    """Chains, stars, separate parts, single cells, zeros."""
    model = awkward_models()[name]
    counts = {v: np.round(2 * model.marginal((v,))) for v in model.variables}
    problem = Problem(model, 2, [Poisson(counts, background=0.1)])
    exact, found = enumerated(problem.core), few_individuals_beliefs(problem.core)
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=1e-10)
    for scope in scopes(problem):
        np.testing.assert_allclose(found.mean(scope), exact.mean(scope), atol=1e-10)


def test_one_individual_on_many_cells_is_the_ordinary_smoother():
    """N = 1: the posterior is the model tilted by the likelihood ratios of one individual, at any number of cells."""
    rng = np.random.default_rng(2)
    cells, length = 60, 5
    chain = MarkovChain(
        rng.dirichlet(np.ones(cells)), rng.dirichlet(np.ones(cells), size=cells), length=length
    )
    seen = rng.poisson(0.05, size=(length, cells)).astype(float)
    problem = Problem(chain, 1, [Poisson(seen, rate=0.8, background=0.05)])
    ratios = {(t,): seen[t] * np.log(0.85 / 0.05) - 0.8 for t in range(length)}
    tilted, more = chain.tilt(ratios)
    found = Enumerate(most=1000).solve(problem.core, None)
    np.testing.assert_allclose(found.mean((2, 3)), tilted.marginal((2, 3)), atol=1e-12)
    none = sum(float(s.noise.log_prob(np.zeros(cells)).sum()) for s in problem.sites)
    assert found.log_evidence == pytest.approx(none + more, abs=1e-9)


def test_data_far_from_the_model_do_not_underflow():
    """Readings 40 sds away, a step of probability 1e-200: logarithms carry it, and the answer is the enumeration's."""
    chain = MarkovChain([0.5, 0.5], [[1 - 1e-15, 1e-15], [1e-200, 1.0]], length=3)
    problem = Problem(
        chain, 3, [Exact([3, 0], on=0), Gaussian([0.0, 3.0], sd=0.05, on=1), Exact([3, 0], on=2)]
    )
    exact, found = enumerated(problem.core), few_individuals_beliefs(problem.core)
    assert found.log_evidence == pytest.approx(exact.log_evidence, rel=1e-12)
    np.testing.assert_allclose(found.mean((1, 2)), exact.mean((1, 2)), atol=1e-10)


def test_pushing_mends_what_underflows():
    """The largest term cannot make the step; the one that can is e^−800 of it."""
    table, law = np.array([0.0, -800.0]), np.array([[1.0, 0.0], [0.5, 0.5]])
    np.testing.assert_allclose(push(table, law, [0]), [0.0, -800.0 + np.log(0.5)], rtol=1e-14)


@pytest.mark.parametrize("name", ["three cells", "sums of cells and of flows"])
def test_draws_have_the_right_moments(name):
    """Means of 2000 draws within 5 standard errors (54 entries: wrong alarm below 4e-5); margins agree in each draw."""
    found = few_individuals_beliefs(CASES[name].core)
    draws = found.sample(2000, rng=np.random.default_rng(5), integer=True)
    for scope, table in draws.items():
        error = np.sqrt(found.variance(scope) / 2000) + 1e-12
        assert np.all(np.abs(table.mean(axis=0) - found.mean(scope)) <= 5 * error)
    np.testing.assert_array_equal(draws[(0, 1)].sum(axis=1), draws[(1, 2)].sum(axis=2))


def test_enumerate_takes_few_individuals_on_large_maps():
    """Twelve cells, ten times, N = 4: far beyond any list; flows add up to nodes and to N."""
    rng = np.random.default_rng(3)
    chain = MarkovChain(rng.dirichlet(np.ones(12)), rng.dirichlet(np.ones(12), size=12), length=10)
    problem = Problem(chain, 4, [Poisson(rng.poisson(1 / 3, size=(10, 12)).astype(float), background=0.1)])
    found = Enumerate().solve(problem.core, np.random.default_rng(0))
    np.testing.assert_allclose(found.mean((4, 5)).sum(axis=0), found.mean((5,)), atol=1e-10)
    assert found.mean((9,)).sum() == pytest.approx(4, abs=1e-10)


def test_contradictions_and_large_problems_are_refused_in_words():
    """No states agree; too many joint states, with both numbers."""
    still = MarkovChain([0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]], length=2)
    stuck = Problem(still, 3, [Exact([1.0, 2.0], on=0), Exact([2.0], on=1, sums=[[1, 0]])])
    with pytest.raises(ProblemError, match="agree"):
        few_individuals_beliefs(stuck.core)
    wide = MarkovChain(np.full(40, 1 / 40), np.full((40, 40), 1 / 40), length=3)
    with pytest.raises(ProblemError, match=r"307200000 joint states.*at most 10000000"):
        few_individuals_beliefs(Problem(wide, 5, [Poisson(np.zeros((3, 40)))]).core)
