"""The enumeration and the count-state recursion: exact, and equal to each other where both apply."""

import numpy as np
import pytest
from tests.engines.oracle import brute
from tests.engines.sampler_cases import cases, scopes
from tests.graphs import awkward_models

import headcount as hc
from headcount.engines.exact._count_states import CountStates, binomials, count_transition, count_vectors
from headcount.engines.exact._enumerate import Enumerate, compositions, enumerated
from headcount.engines.exact._split_flows import split_flows
from headcount.individual import MarkovChain
from headcount.observe import Exact, Poisson, Problem, ProblemError

CASES = cases()
CHAINS = [
    name
    for name in CASES
    if name
    not in {
        "observed flows",
        "sums of cells and of flows",
        "star",
        "tree with observed flows",
        "tree from potentials",
    }
]


@pytest.mark.parametrize("name", CASES)
def test_enumeration_equals_adding_individuals_one_by_one(name):
    """Means, variances and evidence agree with an oracle that shares no code, to rounding."""
    exact, found = brute(CASES[name]), enumerated(CASES[name])
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=1e-11)
    for scope in scopes(CASES[name]):
        np.testing.assert_allclose(found.mean(scope), exact.mean(scope), atol=1e-12)
        np.testing.assert_allclose(found.variance(scope), exact.variance(scope), atol=1e-12)


@pytest.mark.parametrize("name", awkward_models())
def test_without_data_the_prior_comes_back(name):
    """E n = N mu and cov(n_A, n_B) = N(<mu_AB> − mu_A mu_B'), on every awkward graph."""
    model = awkward_models()[name]
    found = enumerated(Problem(model, 2, []))
    assert found.log_evidence == pytest.approx(0.0, abs=1e-12)
    first, last = tuple(model.junction_tree.cliques[0]), (model.variables[-1],)
    np.testing.assert_allclose(found.mean(first), 2 * model.marginal(first), atol=1e-12)
    outer = np.outer(model.marginal(first).ravel(), model.marginal(last).ravel())
    np.testing.assert_allclose(
        found.covariance(first, last), 2 * (model.joint_marginal(first, last) - outer), atol=1e-12
    )


def test_quantiles_are_those_of_the_listed_populations():
    """The quantile is the smallest count whose cumulative probability reaches the level."""
    found = enumerated(CASES["three cells"])
    table = found.table((1,))[:, 2]
    below = found.weights[table < found.quantile((1,), 0.7)[2]].sum()
    upto = found.weights[table <= found.quantile((1,), 0.7)[2]].sum()
    assert below < 0.7 <= upto


def test_draws_follow_the_weights():
    """Means of 4000 draws lie within 5 standard errors (27 entries: wrong alarm below 2e-5)."""
    problem = CASES["three cells"]
    found = enumerated(problem)
    draws = found.sample(4000, rng=np.random.default_rng(3), integer=True)
    for scope, table in draws.items():
        error = np.sqrt(found.variance(scope) / 4000) + 1e-12
        assert np.all(np.abs(table.mean(axis=0) - found.mean(scope)) <= 5 * error)
        assert np.all(table.sum(axis=(1, 2)) == problem.population)


def test_compositions_are_all_and_different():
    """C(5 + 4 − 1, 4 − 1) = 56 rows, each summing to 5, none twice."""
    rows = compositions(5, 4)
    assert len(np.unique(rows, axis=0)) == len(rows) == 56
    assert np.all(rows.sum(axis=1) == 5)


def test_too_large_is_refused_with_both_numbers():
    """The message holds how many entries there would be and how many are listed at most."""
    model = MarkovChain(np.full(5, 0.2), np.full((5, 5), 0.2), length=4)
    with pytest.raises(ProblemError, match=r"lists at most 6e\+07 .*5 cells, at most 3"):
        Enumerate().solve(Problem(model, 50, [Poisson(np.ones((4, 5)))]), np.random.default_rng(0))


def test_data_that_no_population_can_give_are_refused():
    """Exact margins that contradict a deterministic step leave nothing to add up."""
    model = MarkovChain([0.5, 0.5], [[[1.0, 0.0], [0.0, 1.0]]])
    problem = Problem(model, 3, [Exact([1, 2], on=0), Poisson([0, 1], on=1)])
    assert np.isfinite(enumerated(problem).log_evidence)
    stuck = Problem(model, 3, [Exact([1.0, 2.0], on=0), Exact([2.0], on=1, sums=[[1, 0]])])
    for solve in (enumerated, lambda p: CountStates().solve(p, None)):
        with pytest.raises(ProblemError, match="agree"):
            solve(stuck)


@pytest.mark.parametrize("name", CHAINS)
def test_count_states_equal_enumeration(name):
    """Nodes, flows, all covariances, quantiles and evidence of chains, from messages over count vectors, to 1e-10."""
    exact, found = enumerated(CASES[name]), CountStates().solve(CASES[name], None)
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=1e-10)
    every = scopes(CASES[name])
    every += [scope[::-1] for scope in every if len(scope) == 2]
    for scope in every:
        np.testing.assert_allclose(found.mean(scope), exact.mean(scope), atol=1e-10)
        np.testing.assert_allclose(found.variance(scope), exact.variance(scope), atol=1e-10)
        for other in every:
            np.testing.assert_allclose(
                found.covariance(scope, other), exact.covariance(scope, other), atol=1e-10
            )
        if len(scope) == 1:
            np.testing.assert_array_equal(found.quantile(scope, 0.6), exact.quantile(scope, 0.6))


def test_enumerate_takes_large_two_cell_chains_too():
    """N = 60 is beyond the listing allowed; the recursion's evidence sums to one over the data."""
    chain = MarkovChain([0.4, 0.6], [[0.8, 0.2], [0.3, 0.7]], length=2)
    total = 0.0
    for y in range(61):
        problem = Problem(chain, 60, [Exact([float(y)], on=1, sums=[[1, 0]])])
        total += np.exp(Enumerate(most=1000).solve(problem, np.random.default_rng(0)).log_evidence)
    assert total == pytest.approx(1.0, abs=1e-10)


@pytest.mark.parametrize(("cells", "people"), [(2, 7), (3, 5)])
def test_count_transitions_are_the_law_of_independent_moves(cells, people):
    """Rows sum to one, the mean is P' a, and the covariance Σ_i a_i (diag p_i − p_i p_i')."""
    law = np.random.default_rng(1).dirichlet(np.ones(cells), size=cells)
    step, vectors = count_transition(law, people), count_vectors(people, cells)
    np.testing.assert_allclose(step.sum(axis=1), 1.0, atol=1e-13)
    np.testing.assert_allclose(step @ vectors, vectors @ law, atol=1e-12)
    second = np.einsum("ab,bi,bj->aij", step, vectors, vectors)
    spread = np.einsum("ai,ij,jk->ajk", vectors, law, np.eye(cells)) - np.einsum(
        "ai,ij,ik->ajk", vectors, law, law
    )
    mean = vectors @ law
    np.testing.assert_allclose(second, spread + mean[:, :, None] * mean[:, None, :], atol=1e-11)


def test_binomials_handle_certain_moves():
    """p = 0 and p = 1 put all mass on 0 and on n."""
    np.testing.assert_array_equal(binomials(4, 0.0)[:, 0], np.ones(5))
    np.testing.assert_array_equal(np.diag(binomials(4, 1.0)), np.ones(5))


def test_count_state_draws_have_the_right_moments():
    """Means of 400 draws within 5 standard errors (40 entries: wrong alarm below 3e-5); margins agree in each draw."""
    problem = CASES["three cells"]
    found = CountStates().solve(problem, None)
    draws = found.sample(400, rng=np.random.default_rng(5), integer=True)
    for scope, table in draws.items():
        error = np.sqrt(found.variance(scope) / 400) + 1e-12
        assert np.all(np.abs(table.mean(axis=0) - found.mean(scope)) <= 5 * error)
    np.testing.assert_array_equal(draws[(0, 1)].sum(axis=1), draws[(1, 2)].sum(axis=2))


def test_split_flows_keeps_both_margins():
    """Whatever is drawn has the rows and columns asked for, and none where the law is zero."""
    law = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.0, 0.1, 0.9]])
    rows, columns = np.array([3, 4, 2]), np.array([2, 4, 3])
    for seed in range(20):
        table = split_flows(law, rows, columns, rng=np.random.default_rng(seed))
        np.testing.assert_array_equal(table.sum(axis=1), rows)
        np.testing.assert_array_equal(table.sum(axis=0), columns)
        assert table[0, 2] == table[2, 0] == 0


def test_enumeration_sees_far_tails():
    """The first counts lie where the model's law is below the smallest float; the answer is still the reading's."""
    model = hc.MarkovChain([0.05, 0.95], [[0.9975, 0.0025], [0.0025, 0.9975]], length=2)
    problem = hc.Problem(model, 900, [hc.LaplaceNoise([474.87, 424.86], scale=0.2, on=0)])
    exact = hc.infer(problem, Enumerate())
    np.testing.assert_allclose(exact.beliefs.mean((0,)), [475, 425], atol=0.1)


def test_enumeration_refuses_what_it_cannot_follow():
    model = hc.MarkovChain([0.5, 0.5], [[1 - 1e-9, 1e-9], [1e-9, 1 - 1e-9]], length=2)
    far = [hc.Exact([450.0, 450.0], on=0), hc.Gaussian([900.0, 0.0], sd=0.2, on=1)]
    with pytest.raises(hc.ProblemError, match="so improbable"):
        hc.infer(hc.Problem(model, 900, far), Enumerate())


def test_enumeration_where_the_model_forbids_what_the_data_would_like():
    """Nobody leaves the first cell; a reading of one less than were there is simply wrong."""
    model = hc.MarkovChain([0.5, 0.5], [[1.0, 0.0], [0.5, 0.5]], length=3)
    seen = [
        hc.Exact([450.0, 450.0], on=0),
        hc.Gaussian([449.0, 451.0], sd=0.02, on=1),
        hc.Poisson([500.0, 400.0], on=2),
    ]
    exact = hc.infer(hc.Problem(model, 900, seen), Enumerate())
    np.testing.assert_allclose(exact.beliefs.mean((1,)), [450, 450], atol=1e-9)
    assert (exact.beliefs.variance((1,)) >= 0).all()
