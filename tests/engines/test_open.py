"""Open populations: against Dail and Madsen's likelihood, Royle's, and the exact sum over all numbers of individuals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, poisson

import headcount as hc

EXACT = hc.engines.Enumerate(most=100_000)


def dail_madsen(y: np.ndarray, first: float, arrivals: float, survival: float, detection: float) -> float:
    """log p(y) of one cell by the sums over n_t ≤ K, K far above all counts."""
    n = np.arange(int(3 * first + 80))
    steps = np.array([np.convolve(binom.pmf(n, a, survival), poisson.pmf(n, arrivals))[: len(n)] for a in n])
    law = poisson.pmf(n, first) * binom.pmf(y[0], n, detection)
    for seen in y[1:]:
        law = (law @ steps) * binom.pmf(seen, n, detection)
    return float(np.log(law.sum()))


def one_cell(first: float, arrivals: float, y: np.ndarray) -> hc.Problem:
    chain = hc.OpenChain([first], [[1.0]], arrivals=arrivals, survival=0.8, length=len(y))
    return hc.Problem(chain, observations=hc.Binomial(y[:, None], detection=0.5))


@pytest.mark.parametrize(
    ("first", "arrivals", "y", "tolerance"),
    [
        (5, 2, [2, 3, 4, 4, 7], 1e-2),
        (50, 10, [26, 23, 23, 20, 20], 2e-3),
        (150, 30, [70, 81, 66, 77, 90], 1e-3),
    ],
)
def test_one_cell_is_the_model_of_dail_and_madsen(
    first: float, arrivals: float, y: list[int], tolerance: float
) -> None:
    """The evidence is the likelihood of the open N-mixture model."""
    counts = np.array(y)
    found = hc.infer(one_cell(first, arrivals, counts))
    assert found.log_evidence == pytest.approx(dail_madsen(counts, first, arrivals, 0.8, 0.5), abs=tolerance)


def test_one_time_is_the_model_of_royle() -> None:
    """Replicate counts of one closed population: log Σ_N Poisson(N; λ) Π Binomial(y; N, p)."""
    y = np.array([11, 9, 14])
    n = np.arange(300)
    exact = np.log(np.sum(poisson.pmf(n, 25) * np.prod(binom.pmf(y[:, None], n, 0.4), axis=0)))
    chain = hc.MarkovChain([1.0], [[1.0]], length=1)
    seen = [hc.Binomial([[k]], detection=0.4) for k in y]
    found = hc.infer(hc.Problem(chain, hc.About(25, sd=5), seen))
    assert found.log_evidence == pytest.approx(exact, abs=3e-3)
    opened = hc.infer(hc.Problem(hc.OpenChain([25], [[1.0]], length=1), observations=seen))
    assert opened.log_evidence == pytest.approx(exact, abs=3e-3)
    assert opened.population.mean == pytest.approx(
        found.population.mean, abs=0.05
    )  # one cell is a sum over N


def test_arrivals_and_survivors_are_those_of_the_exact_sum() -> None:
    """Expected arrivals, departures and survivors, their sds, and the counts, against all sizes and count states."""
    problem = one_cell(5, 2, np.array([2, 3, 4]))
    exact, found = hc.infer(problem, EXACT), hc.infer(problem, "TiltedEP")
    for table in ("arrivals", "departures", "survivors"):
        a, b = getattr(exact, table)(), getattr(found, table)()
        np.testing.assert_allclose(b["mean"], a["mean"], atol=0.03)
        np.testing.assert_allclose(b["sd"], a["sd"], rtol=0.04)
    for t in range(3):
        np.testing.assert_allclose(found.node(t).mean, exact.node(t).mean, atol=0.03)
    assert found.population.mean == pytest.approx(exact.population.mean, abs=0.05)
    drawn = hc.infer(problem, hc.engines.PathGibbs(sweeps=4000), rng=1)  # paths that are born and die
    assert drawn.population.mean == pytest.approx(exact.population.mean, abs=0.1)
    np.testing.assert_allclose(drawn.arrivals()["mean"], exact.arrivals()["mean"], atol=0.08)
    np.testing.assert_allclose(drawn.survivors()["mean"], exact.survivors()["mean"], atol=0.08)


def test_comings_and_goings_add_up() -> None:
    """n_t = survivors + departures; n_{t+1} = arrivals + those who moved in; hidden states are in no table."""
    rng = np.random.default_rng(1)
    moves = [[0.8, 0.2], [0.3, 0.7]]
    chain = hc.OpenChain(
        [60, 20],
        moves,
        arrivals=[[10, 0], [0, 12], [5, 5]],
        departures=[0.1, 0.3],
        length=4,
        cells=["a", "b"],
    )
    mean = chain.expected_number * np.array([chain.marginal((t,)) for t in range(4)])
    np.testing.assert_allclose(mean[1], (mean[0] * [0.9, 0.7]) @ moves + [10, 0])
    found = hc.infer(hc.Problem(chain, observations=hc.Poisson(rng.poisson(mean))))
    arrivals, departures, survivors = (
        table.set_index(["time", "cell"])["mean"]
        for table in (found.arrivals(), found.departures(), found.survivors())
    )
    for t in range(3):
        for cell in "ab":
            here = float(found.node(t).mean.sel({str(t): cell}))
            assert survivors[t, cell] + departures[t, cell] == pytest.approx(here, abs=1e-6)
            into = float(found.edge(t, t + 1).mean.sel({str(t + 1): cell}).sum())
            there = float(found.node(t + 1).mean.sel({str(t + 1): cell}))
            assert into + arrivals[t + 1, cell] == pytest.approx(there, abs=1e-6)
    assert arrivals[1, "b"] == pytest.approx(0, abs=1e-9)
    draws = found.sample(20, rng=1, integer=True)[(0, 1)].values
    assert draws.shape == (20, 2, 2)
    assert set(found.to_frame("nodes")["cell"]) == {"a", "b"}


def test_arrivals_and_survivors_are_those_of_sampled_paths() -> None:
    """The default agrees with PathGibbs on two cells."""
    moves = [[0.8, 0.2], [0.3, 0.7]]
    chain = hc.OpenChain([60, 20], moves, arrivals=[[10, 0], [0, 12], [5, 5]], survival=[0.9, 0.7], length=4)
    mean = chain.expected_number * np.array([chain.marginal((t,)) for t in range(4)])
    problem = hc.Problem(chain, observations=hc.Poisson(np.random.default_rng(2).poisson(mean)))
    sampled, found = hc.infer(problem, hc.engines.PathGibbs(sweeps=600), rng=1), hc.infer(problem)
    assert found.population.mean == pytest.approx(sampled.population.mean, abs=0.5)
    for table in ("arrivals", "departures", "survivors"):
        a, b = getattr(sampled, table)(), getattr(found, table)()
        np.testing.assert_allclose(b["mean"], a["mean"], atol=0.3)
        np.testing.assert_allclose(b["sd"], a["sd"], rtol=0.2, atol=1e-6)


def test_without_arrivals_and_departures_it_is_a_closed_population_of_poisson_size() -> None:
    """Nobody comes or goes: the answer of the closed chain with a Poisson number of individuals."""
    y = np.array([[20, 14], [18, 17], [15, 22]])
    moves = [[0.8, 0.2], [0.3, 0.7]]
    closed = hc.Problem(
        hc.MarkovChain([0.6, 0.4], moves, length=3), hc.About(50, sd=50**0.5), hc.Poisson(y, rate=0.7)
    )
    opened = hc.Problem(hc.OpenChain([30, 20], moves, length=3), observations=hc.Poisson(y, rate=0.7))
    a, b = hc.infer(closed), hc.infer(opened)
    assert b.log_evidence == pytest.approx(a.log_evidence, abs=1e-3)
    np.testing.assert_allclose(b.node(1).mean, a.node(1).mean, rtol=1e-3)
    np.testing.assert_allclose(b.edge(0, 1).sd, a.edge(0, 1).sd, rtol=1e-2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"survival": 0.8, "departures": 0.2}, "both given"),
        ({"survival": 1.2}, "at most 1"),
        ({"arrivals": [[1, 1], [1, 1], [1, 1]]}, "first row"),
        ({"arrivals": [[-1, 1], [1, 1]]}, "≥ 0"),
        ({"arrivals": np.ones((5, 2))}, "shape"),
    ],
)
def test_wrong_rates_are_refused_in_words(options: dict, message: str) -> None:
    """The message names the argument and what it must be."""
    with pytest.raises(hc.ModelError, match=message):
        hc.OpenChain([3, 4], [[0.5, 0.5], [0.5, 0.5]], length=3, **options)


def test_what_an_open_chain_cannot_do_yet_is_refused_in_words() -> None:
    """A population beside expected numbers, and routes."""
    chain = hc.OpenChain([30, 20], [[0.8, 0.2], [0.3, 0.7]], arrivals=2, survival=0.9, length=3)
    y = hc.Poisson([[20, 14], [18, 17], [15, 22]])
    with pytest.raises(hc.ProblemError, match="leave the population out"):
        hc.Problem(chain, 50, y)
    with pytest.raises(hc.ProblemError, match="Poisson around what it expects"):
        hc.Problem(chain, hc.Unknown(), y)
    with pytest.raises(hc.ProblemError, match="first numbers are Poisson"):
        hc.Problem(chain, observations=y, dispersion=hc.Overdispersion(rho=0.1, initial=0.1))
    found = hc.infer(hc.Problem(chain, observations=y))
    with pytest.raises(hc.ModelError, match="OpenChain"):
        found.routes(3, rng=1)
    shares = hc.OpenChain([0.6, 0.4], [[0.8, 0.2], [0.3, 0.7]], arrivals=2, survival=0.9, length=3)
    assert hc.infer(hc.Problem(shares, 50, y)).log_evidence == pytest.approx(found.log_evidence, abs=1e-9)


def test_flocks_come_and_go() -> None:
    """A Poisson number of flocks: the default against the sum over all numbers of flocks."""
    chain = hc.OpenChain([8], [[1.0]], arrivals=4, survival=0.7, length=3)
    problem = hc.Problem(chain, observations=hc.Poisson([[7.0], [8.0], [6.0]]), dispersion=hc.Flocks(2))
    exact, found = hc.infer(problem, EXACT), hc.infer(problem)
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=0.03)
    assert found.population.mean == pytest.approx(exact.population.mean, abs=0.1)
    assert found.population.sd == pytest.approx(exact.population.sd, rel=0.05)
    np.testing.assert_allclose(found.arrivals()["mean"], exact.arrivals()["mean"], atol=0.08)
    np.testing.assert_allclose(found.arrivals()["sd"], exact.arrivals()["sd"], rtol=0.03)


@pytest.mark.parametrize("together", [hc.Overdispersion(rho=0.05), hc.Overdispersion(phi=4), hc.Flocks(5)])
def test_overdispersion_of_those_who_come_and_go(together: object) -> None:
    """Without data the counts, the arrivals and N have the means and sds of simulated worlds: arrivals come alone, flocks do."""
    chain = hc.OpenChain([300, 100], [[0.8, 0.2], [0.3, 0.7]], arrivals=40, survival=0.8, length=3)
    found = hc.infer(hc.Problem(chain, dispersion=together))
    worlds = [hc.simulate.population(chain, dispersion=together, rng=k) for k in range(600)]
    counts, arrivals = (np.array([getattr(w, n)[-1] for w in worlds]) for n in ("counts", "arrivals"))
    np.testing.assert_allclose(found.node(2).mean, counts.mean(axis=0), rtol=0.03)
    np.testing.assert_allclose(found.node(2).sd, counts.std(axis=0), rtol=0.1)
    np.testing.assert_allclose(found.arrivals()["sd"][-2:], arrivals.std(axis=0), rtol=0.1)
    assert found.population.sd == pytest.approx(np.std([w.population for w in worlds]), rel=0.1)


def test_flocks_of_unknown_number_may_be_seen_with_detection():
    """Two cells without moves, flocks of two, y ~ Bin(n, 0.6): the search for sizes may begin below the smallest n that can give y."""
    seen, first = np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([2.0, 1.0])
    chain = hc.OpenChain(first, np.eye(2), arrivals=0.5, survival=0.8, length=2)
    asked = hc.Problem(chain, None, hc.Binomial(seen, detection=0.6), dispersion=hc.Flocks(2))
    m = np.arange(25)
    steps = np.array([np.convolve(binom.pmf(m, a, 0.8), poisson.pmf(m, 0.25))[: len(m)] for a in m])
    exact = 0.0
    for y, mean in zip(seen.T, first / 2, strict=True):
        law = poisson.pmf(m, mean) * binom.pmf(y[0], 2 * m, 0.6)
        exact += np.log(law @ steps @ binom.pmf(y[1], 2 * m, 0.6))
    assert hc.infer(asked, hc.engines.Enumerate()).log_evidence == pytest.approx(exact, abs=1e-9)
