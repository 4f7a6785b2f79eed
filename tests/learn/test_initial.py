"""An unknown initial distribution: learned under a flat prior, its uncertainty included, no count used twice."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import headcount as hc
from headcount import simulate
from headcount.engines import MAP, Enumerate, PathGibbs, TiltedEP
from headcount.individual import MarkovChain
from headcount.learn import LogisticChain, fit, infer_initial

STAY = [[0.85, 0.15], [0.25, 0.75]]


def by_quadrature(counts: np.ndarray, population: int) -> tuple[float, float, float]:
    """Mean and variance of the first cell's first count and the log evidence, with π ~ Uniform(0, 1) integrated numerically."""
    grid = (np.arange(200) + 0.5) / 200
    found = [
        hc.infer(
            hc.Problem(MarkovChain([p, 1 - p], STAY, length=2), population, hc.Poisson(counts)), Enumerate()
        )
        for p in grid
    ]
    log_weight = np.array([f.log_evidence for f in found])
    weight = np.exp(log_weight - log_weight.max())
    mean = np.array([f.beliefs.mean((0,))[0] for f in found])
    square = np.array([f.beliefs.variance((0,))[0] for f in found]) + mean**2
    first = weight @ mean / weight.sum()
    evidence = log_weight.max() + np.log(weight.mean())
    return first, weight @ square / weight.sum() - first**2, evidence


@pytest.mark.parametrize(
    "first", [[np.nan, np.nan], [14.0, 18.0]], ids=["first counts missing", "first counts seen"]
)
def test_moments_are_those_under_a_flat_prior(first: list[float]) -> None:
    """Mean, variance and evidence are those of the integral over all initial distributions, first counts seen or not."""
    counts = np.array([first, [17.0, 11.0]])
    mean, variance, evidence = by_quadrature(counts, 30)
    problem = hc.Problem(MarkovChain(None, STAY, length=2), 30, hc.Poisson(counts))
    found = infer_initial(problem, Enumerate())
    assert found.node(0).mean[0] == pytest.approx(mean, rel=1e-3)
    assert found.node(0).sd[0] == pytest.approx(np.sqrt(variance), rel=1e-3)
    assert found.log_evidence == pytest.approx(evidence, abs=1e-3)
    gaussian = infer_initial(problem, TiltedEP())
    assert gaussian.node(0).mean[0] == pytest.approx(mean, abs=0.2 * np.sqrt(variance))
    assert gaussian.node(0).sd[0] == pytest.approx(np.sqrt(variance), rel=0.1)
    assert gaussian.log_evidence == pytest.approx(evidence, abs=0.15)
    for one in (found, gaussian):
        assert "flat prior, its uncertainty included" in one.outcome.info["initial"]


def test_a_sampler_integrates_over_the_initial_distribution() -> None:
    """Five individuals on seven cells: the sampled means are those of the exact recursion, each within .02 N, the first time's too."""
    rng = np.random.default_rng(3)
    moves = 0.6 * np.eye(7) + 0.4 * rng.dirichlet(np.ones(7), size=7)
    counts = np.array([[np.nan] * 7, *rng.multinomial(5, np.full(7, 1 / 7), size=2)], dtype=float)
    problem = hc.Problem(MarkovChain(None, moves, length=3), 5, hc.Poisson(counts))
    exact, sampled = hc.infer(problem), hc.infer(problem, PathGibbs(), rng=1)
    assert (exact.status.value, sampled.status.value) == ("exact", "sampled")
    for t in range(3):
        np.testing.assert_allclose(sampled.node(t).mean, exact.node(t).mean, atol=0.1)
        np.testing.assert_allclose(sampled.node(t).sd, exact.node(t).sd, atol=0.05)
    shares = exact.problem.model.marginal((0,))
    np.testing.assert_allclose(shares, (np.asarray(exact.node(0).mean) + 1) / 12)


def test_tables_still_agree() -> None:
    """Flows and nodes have one covariance: sums of an edge's covariance are the nodes', and draws have these moments."""
    problem = hc.Problem(
        MarkovChain(None, STAY, length=3), 500, hc.Poisson([[np.nan] * 2, [280, 215], [270, 240]])
    )
    found = infer_initial(problem).beliefs
    edge = found.covariance((0, 1), (0, 1)).reshape(2, 2, 2, 2)
    assert np.allclose(edge.sum(axis=(1, 3)), found.covariance((0,), (0,)), rtol=1e-6)
    assert np.allclose(np.diagonal(found.covariance((0, 1), (0, 1))).reshape(2, 2), found.variance((0, 1)))
    draws = infer_initial(problem).sample(4000, rng=1, integer=True)[(0, 1)]
    first = draws.sum("1").values if "1" in draws.dims else draws.sum(draws.dims[-1]).values
    assert np.allclose(first.std(axis=0), np.sqrt(found.variance((0,))), rtol=0.05)
    assert np.allclose(draws.values.sum(axis=(1, 2)), 500)


def test_first_counts_that_are_missing_are_covered() -> None:
    """First week missing, initial distributions drawn from the flat prior: 90 % intervals hold the truth in 90 % of cells."""
    inside, uniform = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        transitions = 0.8 * np.eye(6) + 0.2 * rng.dirichlet(np.ones(6), size=6)
        initial = rng.dirichlet(np.ones(6))
        world = simulate.population(
            MarkovChain(initial / initial.sum(), transitions, length=6), 2000, rng=seed
        )
        counts = np.array(world.observed.values, dtype=float)
        counts[0] = np.nan
        truth = np.asarray(world.counts)[0]
        for kept, law, verb in ((inside, None, infer_initial), (uniform, np.full(6, 1 / 6), hc.infer)):
            found = verb(hc.Problem(MarkovChain(law, transitions, length=6), 2000, hc.Poisson(counts)))
            ends = found.node(0).interval(0.9)
            kept += ((ends["lower"].values <= truth) & (truth <= ends["upper"].values)).tolist()
    assert 0.82 < np.mean(inside) < 0.97  # 72 cells: a binomial standard error of 0.035
    assert np.mean(uniform) < 0.3


def test_an_unknown_distribution_is_never_taken_for_uniform() -> None:
    """`hc.infer` learns it, engines refuse in words; a known one is not used by `infer_initial`; MAP gives a point."""
    counts = hc.Poisson([[np.nan] * 2, [280, 215]])
    blank, skewed = (hc.Problem(MarkovChain(p, STAY, length=2), 500, counts) for p in (None, [0.99, 0.01]))
    with pytest.raises(ValueError, match=r"initial distribution is unknown.*headcount\.infer\(problem\)"):
        hc.engines.run(blank)
    assert np.allclose(hc.infer(blank).node(0).sd, infer_initial(blank).node(0).sd)
    assert np.allclose(hc.infer(skewed).node(0).mean, hc.engines.run(skewed).node(0).mean)
    assert np.allclose(infer_initial(skewed).node(0).mean, infer_initial(blank).node(0).mean)
    point = infer_initial(blank, MAP())
    assert not point.beliefs.has_spread
    assert point.outcome.info["initial"] == "learned from all counts under a flat prior"


def test_results_say_which_initial_law_was_used(tmp_path: Path) -> None:
    """From tables without an initial law to the saved result: learned by default, and summary.json and the NetCDF file say so."""
    counts = pd.DataFrame({"time": [0, 0, 1, 1], "cell": ["a", "b"] * 2, "count": [30, 28, 35, 22]})
    moves = pd.DataFrame(
        {"from": list("aabb"), "to": list("abab"), "probability": np.array(STAY).ravel().tolist()}
    )
    said = {}
    for initial in (None, "uniform"):
        chosen = {} if initial is None else {"initial": initial}
        case = hc.io.read_problem(counts, population=60, transitions=moves, **chosen)
        folder = tmp_path / str(initial)
        hc.io.write_results(hc.infer(case.problem), folder)
        said[initial] = json.loads((folder / "summary.json").read_text())["initial_law"]
        assert hc.io.load_result(folder).attributes["initial_law"] == said[initial]
    assert said == {
        None: "learned from all counts under a flat prior, its uncertainty included",
        "uniform": "given with the model",
    }


def test_fit_learns_it_beside_the_weights() -> None:
    """A chain with an unknown initial distribution: fit learns it without being asked, and its posterior includes it."""
    features = np.stack([np.eye(3), np.broadcast_to(np.arange(3.0), (3, 3))])
    truth = LogisticChain(features).bind(MarkovChain([0.6, 0.3, 0.1], np.full((3, 3), 1 / 3), length=12))
    world = simulate.population(truth.model(np.array([2.0, 0.2])), 3000, rng=1)
    problem = hc.Problem(
        MarkovChain(None, np.full((3, 3), 1 / 3), length=12), 3000, hc.Poisson(world.observed)
    )
    found = fit(LogisticChain(features, names=["stay", "uphill"]), problem)
    assert {"stay", "uphill", "initial[0]"} <= set(found.natural.names)
    assert (np.abs(found.working[:2] - [2.0, 0.2]) < 4 * found.standard_errors.values[:2]).all()
    assert "uncertainty included" in found.posterior.outcome.info["initial"]
    known = problem.with_model(MarkovChain([0.5, 0.3, 0.2], np.full((3, 3), 1 / 3), length=12))
    asked = fit(LogisticChain(features, initial="learned"), known, MAP(), standard_errors=False, strict=False)
    assert "without a prior" in asked.posterior.outcome.info["initial"]


def test_one_cell_needs_no_initial_distribution():
    """Where there is one cell, everybody begins there."""
    chain = hc.MarkovChain(None, [[1.0]], length=2)
    post = hc.infer(hc.Problem(chain, 5, hc.Poisson([[5.0], [6.0]])))
    assert post.node(1).mean.item() == 5


def test_only_an_exact_integral_over_the_initial_distribution_is_called_exact():
    """Listed or recursed, the integral is exact; to second order, or around a population of unknown size, it is not."""
    chain = hc.MarkovChain(None, [[0.6, 0.4], [0.3, 0.7]], length=2)
    counts = hc.Poisson([[5.0, 3.0], [4.0, 4.0]])
    assert hc.infer(hc.Problem(chain, 8, counts), "Enumerate").status is hc.engines.Status.EXACT
    for size, engine in ((8, "TiltedEP"), (hc.Between(7, 9), "Enumerate")):
        assert hc.infer(hc.Problem(chain, size, counts), engine).status is hc.engines.Status.CONVERGED


def test_flows_can_be_read_where_there_are_no_matrices():
    """Without covariances of flows the learned distribution is plugged in, and the result says so."""
    chain = hc.MarkovChain(None, [[0.9, 0.1], [0.2, 0.8]], length=2)
    problem = hc.Problem(chain, 100, hc.Poisson([[60.0, 40.0], [55.0, 47.0]]))
    post = hc.infer(problem, hc.engines.TiltedEP(structure="matrix-free"))
    assert (post.edge(0, 1).sd.values > 0).all()
    assert "not included" in post.outcome.info["initial"]


def test_an_unknown_number_leaves_the_initial_law_as_well_known():
    """The score of the initial law is n₀ − Nπ: standard errors of shares are those with a known N (they were up to 2.3 times as large)."""
    world = simulate.birds(side=3, population=1500, steps=12, rate=0.3, rng=1)
    blank = MarkovChain(None, world.model.transitions, times=world.model.times)
    counts = np.asarray(world.observed, dtype=float).copy()
    counts[0, :5] = np.nan
    seen, chain = hc.Poisson(counts, rate=0.3), LogisticChain(world.features)
    known, unknown = (fit(chain, hc.Problem(blank, n, seen)) for n in (1500, hc.Unknown()))
    np.testing.assert_allclose(unknown.standard_errors, known.standard_errors, rtol=0.02)
