"""The recursion over count states: exact, and equal to the enumeration where both apply."""

import numpy as np
import pytest
from tests.engines.sampler_cases import cases, scopes

import headcount as hc
from headcount.engines.exact import Enumerate
from headcount.engines.exact._count_states import (
    binomials,
    count_state_beliefs,
    count_transition,
    count_vectors,
    split_flows,
)
from headcount.engines.exact._enumerate import enumerated

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


@pytest.mark.parametrize("name", CHAINS)
def test_count_states_equal_enumeration(name):
    """Nodes, flows, all covariances, quantiles and evidence of chains, from messages over count vectors, to 1e-10."""
    exact, found = enumerated(CASES[name]), count_state_beliefs(CASES[name])
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
    found = count_state_beliefs(problem)
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
