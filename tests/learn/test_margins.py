"""Tables with known margins, all at once: the same answers as one by one, and the derivative of their evidence."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import betaln, expit, gammaln, logsumexp

import headcount as hc
from headcount.engines import MAP, Laplace, Status, TiltedEP
from headcount.learn._expect import EStep, running
from headcount.learn._family import bind
from headcount.learn._margins import Tables, known_margins, solve, tables_at_once

MOVES = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.3, 0.4, 0.3], [0.2, 0.2, 0.6]])
MARGINS = [
    ([400, 90, 10, 200], [330, 170, 200]),
    ([0, 35, 20, 5], [30, 0, 30]),
    ([3000, 1, 6999, 2000], [3000, 3500, 5500]),
]
DISPERSIONS = [
    None,
    hc.Flocks(3),
    hc.Overdispersion(phi=4),
    hc.Overdispersion(rho=0.02),
    hc.Overdispersion(rho=0.02, initial=0.01),
]


def table(rows: Any, columns: Any, *, columns_first: bool = False) -> hc.Problem:
    people = int(np.sum(rows))
    law = (np.asarray(rows, dtype=float) + 1) / (people + len(rows))
    cells = {"group": list("abcd"[: len(rows)]), "party": list("xyz"[: len(columns)])}
    chain = (
        hc.MarkovChain(law, [MOVES[: len(rows), : len(columns)]], times=["group", "party"], cells=cells)
        if len(columns) == 3
        else hc.MarkovChain(law, [[[0.6, 0.4], [0.3, 0.7]]])
    )
    seen = [hc.Exact(rows, on=chain.times[0]), hc.Exact(columns, on=chain.times[1])]
    return hc.Problem(chain, people, seen[::-1] if columns_first else seen)


@pytest.mark.parametrize("columns_first", [False, True])
@pytest.mark.parametrize("dispersion", DISPERSIONS, ids=str)
@pytest.mark.parametrize("engine", [TiltedEP(), MAP()], ids=lambda e: e.name)
def test_at_once_is_one_by_one(engine: Any, dispersion: Any, columns_first: bool) -> None:
    """Expected counts and evidence are those of the engine that runs each table by itself; empty rows and columns, too."""
    problems = [table(*m, columns_first=columns_first).with_dispersion(dispersion) for m in MARGINS]
    families = bind((hc.TabularChain(),) * len(problems), problems)
    x = families[0].start() + np.random.default_rng(0).normal(scale=0.5, size=len(families[0].names))
    tasks = [EStep(f, p, engine, x, None, 0, True) for f, p in zip(families, problems, strict=True)]
    with running(problems, client=None, workers=None) as here:
        mapper = tables_at_once(problems, here)
        found = mapper(tasks)
    for one, task in zip(found, tasks, strict=True):
        alone = task.run()
        assert one.posterior is None  # it was not run by itself
        assert one.evidence == pytest.approx(alone.evidence, abs=0.02)  # bins of unit width, in another order
        scope = ("group", "party")
        np.testing.assert_allclose(
            one.tables[scope], alone.tables[scope], atol=1e-5 * task.problem.population
        )
        again = EStep(task.family, task.problem, engine, x, one.start, 0, True).run()
        np.testing.assert_allclose(
            again.tables[scope], alone.tables[scope], atol=1e-5 * task.problem.population
        )


@pytest.mark.parametrize(
    "dispersion", [None, hc.Flocks(3), hc.Overdispersion(rho=0.02, initial=0.01)], ids=str
)
@pytest.mark.parametrize("engine", [TiltedEP(), MAP()], ids=lambda e: e.name)
def test_steps_between_exact_counts_are_tables(engine: Any, dispersion: Any) -> None:
    """A chain counted exactly at all times: counts, evidence and tilts are those of the engine that runs it as a whole."""
    seen = np.array(
        [[300.0, 500.0, 200.0], [340.0, 440.0, 220.0], [310.0, 0.0, 690.0], [390.0, 370.0, 240.0]]
    )
    chain = hc.MarkovChain([0.3, 0.5, 0.2], np.full((3, 3, 3), 1 / 3))
    problem = hc.Problem(chain, 1000, hc.Exact(seen)).with_dispersion(dispersion)
    (family,) = bind((hc.TabularChain(),), [problem])
    x = family.start() + np.random.default_rng(0).normal(scale=0.5, size=len(family.names))
    task = EStep(family, problem, engine, x, None, 0, True)
    with running([problem], client=None, workers=None) as here:
        (one,) = tables_at_once([problem], here)([task])
    alone = task.run()
    assert one.posterior is None
    assert one.evidence == pytest.approx(alone.evidence, abs=0.03)  # bins of unit width, in another order
    again = EStep(family, problem, engine, x, one.start, 0, True).run()
    for scope, counts in one.tables.items():
        np.testing.assert_allclose(counts, alone.tables[scope], atol=1e-2)
        np.testing.assert_allclose(again.tables[scope], alone.tables[scope], atol=1e-2)


@pytest.mark.parametrize("rho", [0.0, 0.03, 0.3])
def test_units_are_the_derivative_of_the_evidence(rho: float) -> None:
    """m − (r/φ) p is ∂ log p(c | r)/∂ log p along rows that sum to one; rows of m sum to r/φ, columns of φ m to c."""
    rows, columns = (np.array(m, dtype=float) for m in zip(*MARGINS, strict=True))
    phi = 1 + np.maximum(rows - 1, 0) * rho

    def evidence(log_odds: Any) -> Any:
        p = np.exp(log_odds) / np.exp(log_odds).sum(axis=1, keepdims=True)
        return solve(Tables(rows, columns, np.tile(np.log(p), (len(rows), 1, 1)), phi))

    at = np.log(MOVES)
    found = evidence(at)
    np.testing.assert_allclose(found.units.sum(axis=2), rows / phi, atol=1e-8 * rows.max())
    np.testing.assert_allclose(np.einsum("kr,krc->kc", phi, found.units), columns, atol=1e-7 * rows.max())
    gradient = found.units - (rows / phi)[:, :, None] * MOVES
    for i, j in np.ndindex(MOVES.shape):
        step = np.zeros(MOVES.shape)
        step[i, j] = 1e-5
        slope = (evidence(at + step).evidence - evidence(at - step).evidence) / 2e-5
        np.testing.assert_allclose(gradient[:, i, j], slope, rtol=1e-5, atol=1e-5)


def test_other_problems_are_run_one_by_one() -> None:
    """Noise, a cell that was not seen or an impossible move: these are no tables with known margins."""
    chain = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], length=2)
    assert known_margins(hc.Problem(chain, 10, hc.Exact([[5, 5], [6, 4]]))) is not None
    assert known_margins(hc.Problem(chain, 10, hc.Poisson([[5, 5], [6, 4]]))) is None
    assert known_margins(hc.Problem(chain, 10, hc.Exact([[5, 5], [6, np.nan]]))) is None
    longer = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], length=3)
    assert known_margins(hc.Problem(longer, 10, hc.Exact([[5, 5], [6, 4], [5, 5]]))) is not None
    assert known_margins(hc.Problem(longer, 10, hc.Exact([[5, 5], [np.nan, np.nan], [5, 5]]))) is None
    one_way = hc.TabularChain(mask=[[True, True], [False, True]])
    problems = [hc.Problem(chain, 40, hc.Exact([[20, 20], [14 + k, 26 - k]])) for k in range(2)]
    assert hc.fit(one_way, problems).status.good


def beta_binomial(size: int, p: float, rho: float) -> Any:
    """log P(k), k = 0 … size."""
    k = np.arange(size + 1)
    ways = gammaln(size + 1) - gammaln(k + 1) - gammaln(size - k + 1)
    if rho == 0:
        return ways + k * np.log(p) + (size - k) * np.log1p(-p)
    strength = 1 / rho - 1
    a, b = strength * p, strength * (1 - p)
    return ways + betaln(k + a, size - k + b) - betaln(a, b)


def exact_maximum(margins: Any, rho: float | None) -> Any:
    """argmax of Σ log p(c | r) over two rows' log-odds (and log rho), p by the sum over all tables of 2 × 2."""

    def loss(x: Any) -> float:
        total = 0.0
        own = rho if rho is not None else float(np.exp(x[2]))
        for rows, columns in margins:
            first, second = (
                beta_binomial(int(n), float(expit(z)), own) for n, z in zip(rows, x, strict=False)
            )
            c = int(columns[0])
            k = np.arange(max(0, c - int(rows[1])), min(c, int(rows[0])) + 1)
            total -= float(logsumexp(first[k] + second[c - k]))
        return total

    start = [1.0, -1.0] if rho is not None else [1.0, -1.0, np.log(0.05)]
    return minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-7}).x


def dirichlet_tables(count: int, rho: float, seed: int) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        rows = rng.multinomial(rng.integers(60, 160), rng.dirichlet([1.0, 1.0]))
        strength = 1 / rho - 1 if rho else 1e9
        p = [rng.beta(strength * q, strength * (1 - q)) for q in (0.75, 0.3)]
        first = rng.binomial(rows, p).sum()
        made.append((rows, np.array([first, rows.sum() - first])))
    return made


@pytest.mark.parametrize("rho", [0.0, 0.05])
def test_small_tables_reach_the_exact_maximum(rho: float) -> None:
    """A matrix (and rho) learned from 40 tables of 2 × 2 are those of the exact evidence, within a quarter of a standard error."""
    margins = dirichlet_tables(40, rho, 3)
    problems = [table(*m) for m in margins]
    fit = hc.fit(hc.TabularChain(), problems, dispersion="estimate:rho" if rho else None)
    assert fit.status.good
    best = exact_maximum(margins, None if rho else 0.0)
    estimate, error = fit.parameters.values, fit.standard_errors.values
    assert np.abs(estimate[[0, 2]] - expit(best[:2])).max() <= 0.25 * error.min()
    if rho:
        assert fit.dispersion is not None
        assert (
            abs(fit.dispersion.psi - np.log1p(np.exp(best[2]) * fit.dispersion.scale))
            <= 0.5 * fit.dispersion.psi_error
        )


def test_fit_follows_the_evidence() -> None:
    """At the estimate of a fit of small tables no other matrix has more evidence: Fisher's gradient is its derivative there."""
    fit = hc.fit(
        hc.TabularChain(),
        [table(*m) for m in dirichlet_tables(60, 0.05, 4)],
        dispersion=hc.Overdispersion(rho=0.05),
    )
    assert fit.information is not None
    assert fit.information.discrepancy < 0.01
    rises = [b["objective"] - a["objective"] for a, b in pairwise(fit.rows)]
    assert min(rises) > -1e-6


def test_engines_without_a_batch_still_fit() -> None:
    """Laplace runs every table by itself."""
    problems = [table(*m) for m in dirichlet_tables(5, 0.05, 5)]
    made = hc.fit(
        hc.TabularChain(), problems, Laplace(), dispersion=hc.Overdispersion(rho=0.05), strict=False
    )
    assert made.engine == "Laplace"
    assert np.isfinite(made.evidence)


def test_a_probability_that_ran_to_zero_is_integrated_over() -> None:
    """Its posterior mean is that of a flat prior times the evidence, the other row held, and flows that need it have a spread."""
    margins = [([120, 80], [121, 79]), ([150, 40], [150, 40]), ([60, 100], [63, 97]), ([90, 90], [92, 88])]
    problems, together = [table(*m) for m in margins], hc.Overdispersion(rho=0.05)
    fit = hc.fit(hc.TabularChain(), problems, dispersion=together, prior=None)
    assert fit.status is Status.EDGE
    rows, columns = (np.array(m, dtype=float) for m in zip(*margins, strict=True))
    other = fit.models[0].transitions[0][1]
    grid = np.arange(0.0005, 0.5, 0.001)
    laws = [np.log(np.tile([[1 - p, p], other], (len(rows), 1, 1))) for p in grid]
    phi = 1 + (rows - 1) * 0.05
    evidence = np.array([solve(Tables(rows, columns, log_p, phi)).evidence.sum() for log_p in laws])
    weight = np.exp(evidence - evidence.max())
    post, scope = fit.posteriors[0], (0, 1)
    assert post.problem.model.transitions[0][0, 1] == pytest.approx(weight @ grid / weight.sum(), rel=0.02)
    assert fit.plug_ins[0].beliefs.variance(scope)[0, 1] < 1e-6  # type: ignore[index]
    assert post.beliefs.variance(scope)[0, 1] > 4  # type: ignore[index]


def test_the_total_of_a_fit_shares_the_uncertainty_of_the_parameters() -> None:
    """Σ_k n_k over problems: means add up, variances given the parameters add up, and responses to the parameters add up before squares."""
    fit = hc.fit(
        hc.TabularChain(),
        [table(*m) for m in dirichlet_tables(12, 0.05, 6)],
        dispersion=hc.Overdispersion(rho=0.05),
    )
    scope = (0, 1)
    beliefs: list[Any] = [p.beliefs for p in fit.posteriors]
    found = fit.total(*scope)
    np.testing.assert_allclose(found["mean"].values, sum(b.mean(scope) for b in beliefs))
    shared = sum(b.response(scope) for b in beliefs)
    given = sum(b.base.variance(scope) for b in beliefs)
    np.testing.assert_allclose(found["sd"].values ** 2, given + (shared @ shared.T).diagonal().reshape(2, 2))
    apart = sum(b.variance(scope) for b in beliefs)
    assert (found["sd"].values ** 2 > 1.5 * apart).all()
    assert (found["lower"] < found["mean"]).all()
    assert (found["upper"] > found["mean"]).all()
    with pytest.raises(ValueError, match="nobody"):
        fit.total("nobody")


def test_moves_that_are_not_learned_are_each_tables_own() -> None:
    """Only the initial distribution is learned, and the tables' given moves differ: the evidence is that of each under its own."""
    moves = [[[0.7, 0.3], [0.2, 0.8]], [[0.4, 0.6], [0.5, 0.5]]]
    seen = [hc.Exact([60, 40], on="a"), hc.Exact([50, 50], on="b")]
    problems = [hc.Problem(hc.MarkovChain([0.5, 0.5], p, times=["a", "b"]), 100, seen) for p in moves]
    found = hc.fit(hc.learn.LearnInitial(), problems, TiltedEP(), standard_errors=False)
    alone = [f.apply(found.working, p) for f, p in zip(found.families, problems, strict=True)]
    total = sum(hc.infer(p, TiltedEP()).log_evidence for p in alone)
    assert found.evidence == pytest.approx(total, abs=1e-3)


def test_a_cell_where_nobody_is_and_nobody_can_be_warns_of_nothing():
    """A first count of 0 in a cell that the initial law excludes: the fit runs (there was a raw warning of 0/0)."""
    counts = np.array([[10.0, 0, 5, 5], [8, 2, 5, 5], [7, 3, 4, 6], [6, 4, 5, 5]])
    chain = hc.MarkovChain([0.5, 0.0, 0.25, 0.25], np.full((4, 4), 0.25), length=4)
    fit = hc.fit(hc.LogisticChain(np.eye(4)[None], names=["stay"]), hc.Problem(chain, 20, hc.Exact(counts)))
    assert fit.status.good
    assert float(fit.weights.sel(feature="stay")) > 2.0
