"""The recursion over count states: exact, and equal to the enumeration where both apply."""

from itertools import pairwise, product

import numpy as np
import pytest
from scipy.stats import betabinom, binom, poisson
from tests.engines.sampler_cases import cases, scopes

import headcount as hc
from headcount.engines.exact import Enumerate
from headcount.engines.exact._count_states import (
    binomials,
    count_state_beliefs,
    count_transition,
    listed,
    split_flows,
)
from headcount.engines.exact._enumerate import SizeWindow, enumerated, first_windows, widened

CASES = cases()
CHAINS = [name for name in CASES if name not in {"star", "tree with observed flows", "tree from potentials"}]


@pytest.mark.parametrize("name", CHAINS)
def test_count_states_equal_enumeration(name):
    """Nodes, flows, all covariances, quantiles and evidence of chains, from messages over count vectors, to 1e-10."""
    same_answers(enumerated(CASES[name].core), count_state_beliefs(CASES[name].core), scopes(CASES[name]))


def same_answers(exact, found, every):
    """Evidence, means, all covariances and quantiles to 1e-10."""
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=1e-10)
    every = every + [scope[::-1] for scope in every if len(scope) == 2]
    for scope in every:
        np.testing.assert_allclose(found.mean(scope), exact.mean(scope), atol=1e-10)
        np.testing.assert_allclose(found.variance(scope), exact.variance(scope), atol=1e-10)
        for other in every:
            np.testing.assert_allclose(
                found.covariance(scope, other), exact.covariance(scope, other), atol=1e-10
            )
        if len(scope) == 1:
            np.testing.assert_array_equal(found.quantile(scope, 0.6), exact.quantile(scope, 0.6))


MOVES = hc.MarkovChain([0.5, 0.5], [[0.7, 0.3], [0.2, 0.8]], length=3)
OTHERS = hc.MarkovChain([0.1, 0.9], [[0.4, 0.6], [0.6, 0.4]], length=3)
SEEN = [[2.0, 1.0], [1.0, 3.0], [np.nan, 2.0]]
CLOUDS = {
    "unknown": lambda: hc.Problem(MOVES, hc.Between(1, 5), hc.Poisson(SEEN, rate=0.8)),
    "about": lambda: hc.Problem(
        hc.MarkovChain([0.3, 0.7], [[0.7, 0.3], [0.2, 0.8]], length=2),
        hc.About(2, sd=0.4),
        hc.Poisson(SEEN[:2]),
    ),
    "two groups": lambda: hc.Problem(
        groups={"a": hc.Group(MOVES, hc.Between(0, 2)), "b": hc.Group(OTHERS, 2)},
        observations=hc.Poisson(SEEN),
    ),
    "weights": lambda: hc.Problem(
        groups={"a": hc.Group(MOVES, hc.Between(1, 2)), "b": hc.Group(OTHERS, 1, weight=2)},
        observations=hc.Gaussian(SEEN, sd=1.5),
    ),
    "tags": lambda: hc.Problem(
        MOVES,
        hc.Between(1, 3),
        [hc.Poisson(SEEN), hc.Tracks({"id": ["x", "x"], "time": [0, 2], "cell": [0, 1]})],
    ),
    "flows": lambda: hc.Problem(
        MOVES, hc.Between(1, 3), [hc.Poisson(SEEN), hc.Binomial([[1, 0], [0, 1]], detection=0.6, on=(1, 2))]
    ),
    "exact total": lambda: hc.Problem(MOVES, hc.Unknown(), hc.Exact([[1, 2]] + [[np.nan, np.nan]] * 2)),
    "one cell each": lambda: hc.Problem(
        groups={"a": hc.Group(hc.MarkovChain([1.0], [[1.0]], length=2), hc.Between(0, 4)),
                "b": hc.Group(hc.MarkovChain([1.0], [[1.0]], length=2), hc.Between(1, 3))},
        observations=hc.Poisson([[4.0], [5.0]]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CLOUDS)
def test_kinds_and_unknown_numbers_equal_enumeration(name):
    """The recursion over the counts of all kinds, their numbers summed over, against the list of all populations."""
    core = CLOUDS[name]().core
    windows = first_windows(core, np.random.default_rng(0))
    exact, found = enumerated(core, windows), count_state_beliefs(core, windows)
    names = core.model.variables
    same_answers(exact, found, [*((v,) for v in names), *pairwise(names)])
    weights = np.arange(1.0, 1.0 + core.model.domain(names[:1]).size)
    one, other = (b.law_of_sum(names[:1], weights) for b in (exact, found))
    kept = one.probabilities > 1e-14
    np.testing.assert_allclose(one.values[kept], other.values[other.probabilities > 1e-14])
    np.testing.assert_allclose(one.probabilities[kept], other.probabilities[other.probabilities > 1e-14])


def test_draws_of_kinds_have_the_right_moments():
    """Means of 500 draws within 5 standard errors (30 entries: wrong alarm below 2e-5), in whole numbers that agree."""
    core = CLOUDS["two groups"]().core
    found = count_state_beliefs(core)
    draws = found.sample(500, rng=np.random.default_rng(8))
    for scope, table in draws.items():
        error = np.sqrt(found.variance(scope) / 500) + 1e-12
        assert np.all(np.abs(table.mean(axis=0) - found.mean(scope)) <= 5 * error)
    np.testing.assert_array_equal(draws[0, 1].sum(axis=1), draws[1, 2].sum(axis=2))


def test_windows_grow_until_nothing_is_left():
    """Sizes found far too small at first do not cut the posterior of N off."""
    problem = hc.Problem(MOVES, hc.Unknown(), hc.Poisson([[8.0, 9.0]] * 3, rate=0.5))
    narrow = [SizeWindow(law, 20, 22) for law in problem.core.numbers.laws]
    beliefs = count_state_beliefs(problem.core, narrow)
    windows = narrow
    while (more := widened(problem.core, beliefs, windows)) != windows:
        windows, beliefs = more, count_state_beliefs(problem.core, more)
    assert windows[0].low < 12
    assert windows[0].high > 70
    exact = hc.infer(problem, Enumerate())
    assert beliefs.log_evidence == pytest.approx(exact.log_evidence, abs=1e-8)


@pytest.mark.parametrize(("cells", "people"), [(2, 7), (3, 5), (4, 3)])
def test_count_transitions_are_the_law_of_independent_moves(cells, people):
    """Rows sum to one, the mean is P' a, and the covariance Σ_i a_i (diag p_i − p_i p_i')."""
    law = np.random.default_rng(1).dirichlet(np.ones(cells), size=cells)
    (step,), vectors = count_transition(law, (people,)), listed((people,), cells).counts
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
    found = count_state_beliefs(problem.core)
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


def test_the_recursion_refuses_what_it_cannot_follow():
    model = hc.MarkovChain([0.5, 0.5], [[1 - 1e-9, 1e-9], [1e-9, 1 - 1e-9]], length=2)
    far = [hc.Exact([450.0, 450.0], on=0), hc.Gaussian([900.0, 0.0], sd=0.2, on=1)]
    with pytest.raises(hc.ProblemError, match="so improbable"):
        count_state_beliefs(hc.Problem(model, 900, far).core)


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


def test_rows_that_vary_are_summed_over_exactly():
    """Two steps of three individuals whose rows are Dirichlet(p (1 − rho)/rho): against all tables of both steps, written out here."""
    p, first, rho, people = np.array([[0.7, 0.3], [0.2, 0.8]]), np.array([0.6, 0.4]), 0.3, 3
    seen = np.array([[2.0, 1.0], [0.0, 2.0], [1.0, 1.0]])

    def row(n, k, q):  # beta-binomial: k of n go to the first cell
        a, b = q * (1 - rho) / rho, (1 - q) * (1 - rho) / rho
        return betabinom.pmf(k, n, a, b)

    total, mean, square = 0.0, np.zeros((2, 2)), np.zeros((2, 2))
    for a in range(people + 1):
        start = binom.pmf(a, people, first[0]) * poisson.pmf(seen[0], [a, people - a]).prod()
        for stay, come in product(range(a + 1), range(people - a + 1)):
            step = start * row(a, stay, p[0, 0]) * row(people - a, come, p[1, 0])
            b = stay + come
            step *= poisson.pmf(seen[1], [b, people - b]).prod()
            for again, back in product(range(b + 1), range(people - b + 1)):
                c = again + back
                weight = step * row(b, again, p[0, 0]) * row(people - b, back, p[1, 0])
                weight *= poisson.pmf(seen[2], [c, people - c]).prod()
                table = np.array([[again, b - again], [back, people - b - back]])
                total, mean, square = total + weight, mean + weight * table, square + weight * table**2
    chain = hc.MarkovChain(first, p, length=3)
    problem = hc.Problem(chain, people, hc.Poisson(seen), dispersion=hc.Overdispersion(rho=rho))
    found = hc.infer(problem, Enumerate())
    assert found.log_evidence == pytest.approx(np.log(total), abs=1e-10)
    np.testing.assert_allclose(found.edge(1, 2).mean, mean / total, atol=1e-10)
    np.testing.assert_allclose(found.edge(1, 2).sd, np.sqrt(square / total - (mean / total) ** 2), atol=1e-9)
    assert hc.infer(problem).engine == "Enumerate"
