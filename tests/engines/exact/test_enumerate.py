"""The enumeration of all populations: exact, and equal to oracles that share no code."""

import numpy as np
import pytest
from scipy.stats import binom, poisson
from tests.engines.oracle import brute
from tests.engines.sampler_cases import cases, scopes
from tests.graphs import awkward_models

from headcount.engines.exact import Enumerate
from headcount.engines.exact._count_states import count_state_beliefs
from headcount.engines.exact._enumerate import enumerated
from headcount.individual import MarkovChain
from headcount.observe import Exact, Poisson, Problem, ProblemError

CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_enumeration_equals_adding_individuals_one_by_one(name):
    """Means, variances and evidence agree with an oracle that shares no code, to rounding."""
    exact, found = brute(CASES[name]), enumerated(CASES[name].core)
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=1e-11)
    for scope in scopes(CASES[name]):
        np.testing.assert_allclose(found.mean(scope), exact.mean(scope), atol=1e-12)
        np.testing.assert_allclose(found.variance(scope), exact.variance(scope), atol=1e-12)


@pytest.mark.parametrize("name", awkward_models())
def test_without_data_the_prior_comes_back(name):
    """E n = N mu and cov(n_A, n_B) = N(<mu_AB> − mu_A mu_B'), on every awkward graph."""
    model = awkward_models()[name]
    found = enumerated(Problem(model, 2, []).core)
    assert found.log_evidence == pytest.approx(0.0, abs=1e-12)
    first, last = tuple(model.junction_tree.cliques[0]), (model.variables[-1],)
    np.testing.assert_allclose(found.mean(first), 2 * model.marginal(first), atol=1e-12)
    outer = np.outer(model.marginal(first).ravel(), model.marginal(last).ravel())
    np.testing.assert_allclose(
        found.covariance(first, last), 2 * (model.joint_marginal(first, last) - outer), atol=1e-12
    )


def test_quantiles_are_those_of_the_listed_populations():
    """The quantile is the smallest count whose cumulative probability reaches the level."""
    exact, found = brute(CASES["three cells"]), enumerated(CASES["three cells"].core)
    table, least = exact.table((1,))[:, 2], found.quantile((1,), 0.7)[2]
    assert exact.weights[table < least].sum() < 0.7 <= exact.weights[table <= least].sum()


def test_draws_follow_the_weights():
    """Means of 4000 draws lie within 5 standard errors (27 entries: wrong alarm below 2e-5)."""
    problem = CASES["three cells"]
    found = enumerated(problem.core)
    draws = found.sample(4000, rng=np.random.default_rng(3), integer=True)
    for scope, table in draws.items():
        error = np.sqrt(found.variance(scope) / 4000) + 1e-12
        assert np.all(np.abs(table.mean(axis=0) - found.mean(scope)) <= 5 * error)
        assert np.all(table.sum(axis=(1, 2)) == problem.population)


def test_too_large_is_refused_with_both_numbers():
    """The message holds how many entries there would be and how many are listed at most."""
    model = MarkovChain(np.full(5, 0.2), np.full((5, 5), 0.2), length=4)
    with pytest.raises(ProblemError, match=r"lists at most 6e\+07 .*2.59e\+11 products; at most"):
        Enumerate().solve(Problem(model, 50, [Poisson(np.ones((4, 5)))]).core, np.random.default_rng(0))


def test_data_that_no_population_can_give_are_refused():
    """Exact margins that contradict a deterministic step leave nothing to add up."""
    model = MarkovChain([0.5, 0.5], [[[1.0, 0.0], [0.0, 1.0]]])
    problem = Problem(model, 3, [Exact([1, 2], on=0), Poisson([0, 1], on=1)])
    assert np.isfinite(enumerated(problem.core).log_evidence)
    stuck = Problem(model, 3, [Exact([1.0, 2.0], on=0), Exact([2.0], on=1, sums=[[1, 0]])])
    for solve in (enumerated, count_state_beliefs):
        with pytest.raises(ProblemError, match="agree"):
            solve(stuck.core)


def test_enumerate_takes_large_two_cell_chains_too():
    """N = 60 is beyond the listing allowed; the recursion's evidence sums to one over the data."""
    chain = MarkovChain([0.4, 0.6], [[0.8, 0.2], [0.3, 0.7]], length=2)
    total = 0.0
    for y in range(61):
        problem = Problem(chain, 60, [Exact([float(y)], on=1, sums=[[1, 0]])])
        total += np.exp(Enumerate(most=1000).solve(problem.core, np.random.default_rng(0)).log_evidence)
    assert total == pytest.approx(1.0, abs=1e-10)


@pytest.mark.parametrize("people", [2**15 - 1, 2**15, 2**16, 90_000])
def test_large_populations_do_not_overflow(people):
    """Two cells, one time, Poisson counts 3:2: the posterior is Binomial(N, 1/2) × likelihood, whose mean is near (3/5, 2/5) N."""
    chain = MarkovChain([0.5, 0.5], [[0.5, 0.5]] * 2, length=1)
    seen = np.array([[0.6 * people, 0.4 * people]]).round()
    found = Enumerate().solve(Problem(chain, people, [Poisson(seen)]).core, np.random.default_rng(0))
    counts = np.arange(people + 1.0)
    log_law = binom.logpmf(counts, people, 0.5) + poisson.logpmf(seen[0, 0], counts)
    log_law += poisson.logpmf(seen[0, 1], people - counts)
    law = np.exp(log_law - log_law.max())
    evidence = log_law.max() + np.log(law.sum())
    mean = counts @ law / law.sum()
    np.testing.assert_allclose(found.mean((0,)), [mean, people - mean], rtol=1e-9)
    assert found.log_evidence == pytest.approx(evidence, rel=1e-9)
    np.testing.assert_array_equal(found.quantile((0,), 0.5).sum(), people)


@pytest.mark.parametrize("people", [2**31 - 1, 2**31, 2**40])
def test_a_certain_answer_of_any_size(people):
    """One configuration: everybody has it, however many there are, and no table of size N is made."""
    chain = MarkovChain([1.0], [[1.0]], length=2)
    found = Enumerate().solve(
        Problem(chain, people, [Poisson([[float(people)], [float(people)]])]).core, None
    )
    assert found.mean((0, 1)).item() == people
    assert found.quantile((1,), 0.9).item() == people
    assert found.variance((0,)).item() == 0
