"""Belief propagation on whole-number tables between exact counts: near the exact answer, consistent with its own evidence."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest

import headcount as hc
from headcount.engines import TableBP, TiltedEP, select
from headcount.engines._table_bp import drawn_tables, log_row, step_table
from headcount.observe import ProblemError


def sticky(cells: int, stay: float, seed: int = 0) -> np.ndarray:
    """Rows that stay with one probability and leave at random."""
    away = np.random.default_rng(seed).dirichlet(np.ones(cells), size=cells)
    np.fill_diagonal(away, 0.0)
    made = (1 - stay) * away / away.sum(axis=1, keepdims=True)
    np.fill_diagonal(made, stay)
    return made


def world(cells: int, people: int, stay: float, times: int = 6, seed: int = 1) -> hc.Problem:
    """Exact counts of a simulated chain."""
    chain = hc.MarkovChain(np.full(cells, 1 / cells), sticky(cells, stay), length=times)
    paths = chain.sample(people, rng=seed)
    counts = np.array([np.bincount(paths[:, t], minlength=cells) for t in range(times)], dtype=float)
    return hc.Problem(chain, people, hc.Exact(counts))


def splits(total: int, cells: int):
    if cells == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in splits(total - first, cells - 1):
            yield (first, *rest)


def listed(p: np.ndarray, kappa: float, rows: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, float]:
    """Exact expected table and log P(columns | rows), by listing every table."""
    total, mean = 0.0, np.zeros(p.shape)
    for table in itertools.product(*(tuple(splits(int(r), len(columns))) for r in rows)):
        made = np.array(table)
        if (made.sum(axis=0) == columns).all():
            chance = np.exp(sum(log_row(row, q, kappa) for row, q in zip(made, p, strict=True)))
            total, mean = total + chance, mean + chance * made
    return mean / total, float(np.log(total))


CASES = {
    "four cells": (sticky(4, 0.8), np.array([2, 1, 2, 1]), np.array([1, 2, 2, 1])),
    "five cells": (sticky(5, 0.7, 3), np.array([1, 1, 2, 0, 1]), np.array([1, 1, 1, 1, 1])),
}


@cache
def exact_answer(name: str, kappa: float) -> tuple[np.ndarray, float]:
    return listed(CASES[name][0], kappa, *CASES[name][1:])


@pytest.mark.parametrize("rho", [0.0, 0.05])
@pytest.mark.parametrize("name", CASES)
def test_draws_have_the_exact_law(name, rho):
    """Means of tables drawn by exchanges are those of all tables listed, also where rows vary (Dirichlet–multinomial)."""
    kappa = 1 / rho - 1 if rho else 0.0
    p, rows, columns = CASES[name]
    draws = drawn_tables(
        step_table(p, np.full(len(rows), kappa), rows, columns), 4000, np.random.default_rng(1)
    )
    assert (draws.sum(axis=2) == rows).all()
    assert (draws.sum(axis=1) == columns).all()
    np.testing.assert_allclose(draws.mean(axis=0), exact_answer(name, kappa)[0], atol=0.04)


@pytest.mark.parametrize("rho", [0.0, 0.05])
@pytest.mark.parametrize("name", CASES)
def test_small_tables_are_nearer_to_the_exact_ones_than_a_gaussian(name, rho):
    """Expected flows are the exact ones to the exchanges' error; the evidence of more than lone individuals beats tilted EP's."""
    p, rows, columns = CASES[name]
    mean, log_p = exact_answer(name, 1 / rho - 1 if rho else 0.0)
    people = int(rows.sum())
    chain = hc.MarkovChain(rows / people, p, length=2)
    together = hc.Overdispersion(rho=rho) if rho else None
    asked = hc.Problem(chain, people, hc.Exact(np.array([rows, columns], dtype=float)), dispersion=together)
    first = log_row(rows, rows / people, 0.0)
    off = {}
    for engine in (TableBP(exchanges=4000), TiltedEP()):
        post = hc.infer(asked, engine)
        found = post.beliefs.mean(chain.variables)
        off[engine.name] = (np.abs(found - mean).max(), abs(post.log_evidence - first - log_p))
    assert off["TableBP"][0] < 0.04
    if rows.min() > 0:
        assert off["TableBP"][1] < min(off["TiltedEP"][1], 0.4)


def test_totals_of_moves_are_right_where_flows_are_below_one():
    """With twelve sticky cells expected moves lie within 8 % of exact sampling; those of tilted EP are more than 20 % too many."""
    asked = world(12, 60, 0.9)
    post, tilted = hc.infer(asked, TableBP(exchanges=0)), hc.infer(asked, TiltedEP())
    assert select(asked).engine == TableBP()
    apart = ~np.eye(12, dtype=bool)
    drawn = sum(
        d[:, apart].sum(axis=1).mean()
        for d in post.beliefs.sample(400, rng=np.random.default_rng(2)).values()
    )
    pairs = list(itertools.pairwise(asked.model.variables))
    found, gaussian = (
        sum(b.mean(pair)[apart].sum() for pair in pairs) for b in (post.beliefs, tilted.beliefs)
    )
    assert found == pytest.approx(drawn, rel=0.08)
    assert gaussian > 1.2 * drawn


@pytest.mark.parametrize("together", [None, hc.Overdispersion(rho=1e-9)])
def test_expected_flows_are_the_slope_of_the_evidence(together):
    """∂ log p(y)/∂ log p_ij of a step's weights is its expected flow: Fisher's identity holds to the tolerance, also at rho → 0."""
    p, rows, columns = sticky(6, 0.8), np.array([3, 2, 4, 1, 2, 3]), np.array([2, 3, 3, 2, 3, 2])
    kappa = np.full(6, 0.0 if together is None else 1 / together.rho - 1)

    def solved(p: np.ndarray) -> tuple[float, np.ndarray]:
        people = int(rows.sum())
        chain = hc.MarkovChain(rows / people, np.eye(6), length=2)
        state = TableBP(tolerance=1e-12).init(
            hc.Problem(chain, people, hc.Exact(np.array([rows, rows], dtype=float))).core,
            np.random.default_rng(0),
        )
        table = step_table(p, kappa, rows, columns)
        engine, state = (
            TableBP(tolerance=1e-12),
            type(state)(state.problem, (table,), np.array([np.inf]), np.zeros(1), 0.0),
        )
        for _ in range(200):
            state = engine.step(state)
        return float(state.log_sums[0]) + table.constant, table.mean.copy()

    mean = solved(p)[1]
    for i, j in ((0, 1), (2, 2), (5, 0)):
        up, down = p.copy(), p.copy()
        up[i, j] *= np.exp(1e-4)
        down[i, j] *= np.exp(-1e-4)
        slope = (solved(up)[0] - solved(down)[0]) / 2e-4
        assert slope == pytest.approx(mean[i, j], rel=1e-4, abs=1e-6)


def test_covariances_know_the_margins():
    """Sums over rows and columns of a table have no variance, and the total of moves has about that of exact draws."""
    asked = world(8, 80, 0.8, times=2)
    beliefs = hc.infer(asked).beliefs
    pair = asked.model.variables
    joint = beliefs.covariance(pair, pair).reshape(8, 8, 8, 8)
    assert np.abs(joint.sum(axis=1)).max() < 1e-6
    assert np.abs(joint.sum(axis=0)).max() < 1e-6
    apart = ~np.eye(8, dtype=bool)
    drawn = beliefs.sample(2000, rng=np.random.default_rng(3))[pair][:, apart].sum(axis=1)
    assert joint[apart][:, apart].sum() == pytest.approx(drawn.var(), rel=0.2)
    np.testing.assert_allclose(
        beliefs.covariance(pair[::-1], pair).reshape(8, 8, 8, 8), joint.transpose(1, 0, 2, 3)
    )


def test_totals_over_steps_need_no_covariances_between_them():
    """The variance of a sum over several tables is that of all covariances, whichever end a table names first."""
    beliefs = hc.infer(world(5, 30, 0.7, times=4), TableBP(exchanges=200)).beliefs
    rng = np.random.default_rng(1)
    parts = [(scope, rng.normal(size=25)) for scope in ((0, 1), (1, 2), (2, 1), (2, 3))] + [
        ((1,), np.ones(5))
    ]
    pairs = sum(float(w @ beliefs.covariance(a, b) @ x) for a, w in parts for b, x in parts)
    assert beliefs.sum_variance(parts) == pytest.approx(pairs, rel=1e-6)


def test_the_default_picks_it_where_it_is_better():
    """Exact counts of four and more cells, or few individuals, get whole-number tables; where one is hidden, paths; large ones neither."""
    assert select(world(6, 40, 0.9)).engine.name == "TableBP"
    assert select(world(3, 40, 0.9)).engine.name == "TableBP"
    assert select(world(3, 40, 0.9), sampling=False).engine.name == "TiltedEP"
    assert select(world(3, 50, 0.9)).engine.name == "TiltedEP"
    asked = world(6, 40, 0.9)
    hidden = np.array([s.noise.counts for s in asked.sites], dtype=float)
    hidden[2, 3] = np.nan
    one_hidden = hc.Problem(asked.model, 40, hc.Exact(hidden))
    assert select(one_hidden).engine.name == "PathGibbs"
    assert select(one_hidden, sampling=False).engine.name == "TiltedEP"
    assert select(world(6, 400, 0.9)).engine.name == "TiltedEP"
    assert select(asked.with_dispersion(hc.Overdispersion(phi=2.0))).engine.name == "TiltedEP"
    rows_vary = asked.with_dispersion(hc.Overdispersion(rho=0.1))
    assert select(rows_vary).engine.name == "TableBP"
    assert select(rows_vary, sampling=False).engine.name == "TiltedEP"


def test_what_it_cannot_answer_is_refused():
    """Counts with noise, and counts that no moves lead to, are refused in words."""
    asked = world(6, 40, 0.9)
    with pytest.raises(ProblemError, match="exact counts of all states"):
        hc.infer(hc.Problem(asked.model, 40, hc.Poisson(np.full((6, 6), 5.0))), TableBP())
    walls = hc.MarkovChain(np.full(4, 0.25), np.eye(4), length=2)
    with pytest.raises(ProblemError, match="contradict each other, by 2 individuals"):
        hc.infer(hc.Problem(walls, 4, hc.Exact(np.array([[2.0, 1, 1, 0], [1, 2, 1, 0]]))), TableBP())


def test_weights_are_learned_from_exact_counts_alone():
    """Where flows are below one, the weight of staying is found within three standard errors; tilted EP's maximum has too many moves."""
    chain = hc.MarkovChain(np.full(8, 1 / 8), np.full((8, 8), 1 / 8), length=25)
    stay = hc.LogisticChain(np.eye(8)[None], names=["stay"])
    true = stay.bind(chain).model(np.array([5.0]))
    paths = true.sample(60, rng=4)
    counts = np.array([np.bincount(paths[:, t], minlength=8) for t in range(25)], dtype=float)
    asked = hc.Problem(chain, 60, hc.Exact(counts))
    fit = hc.fit(stay, asked)
    assert fit.engine == "TableBP"
    assert abs(fit.working[0] - 5.0) < 3 * float(fit.standard_errors[0])
    assert (
        hc.fit(stay, asked, TiltedEP(), standard_errors=False, strict=False).working[0] < fit.working[0] - 0.2
    )


def test_trees_are_answered_edge_by_edge():
    """On a tree the table of every edge has the two counts as its margins, whichever end the scope names first."""
    moves = sticky(4, 0.7)
    model = hc.Tree(np.full(4, 0.25), {"b": ("a", moves), "c": ("a", moves)}, root="a")
    counts = {"a": [3.0, 2, 4, 1], "b": [2.0, 3, 4, 1], "c": [3.0, 2, 2, 3]}
    beliefs = hc.infer(hc.Problem(model, 10, hc.Exact(counts)), TableBP(exchanges=50)).beliefs
    for child in ("b", "c"):
        table = beliefs.mean(("a", child))
        np.testing.assert_allclose(table.sum(axis=1), counts["a"], atol=1e-4)
        np.testing.assert_allclose(table.sum(axis=0), counts[child], atol=1e-4)
        np.testing.assert_array_equal(beliefs.mean((child, "a")), table.T)
        np.testing.assert_array_equal(beliefs.mean((child,)), counts[child])
    assert not beliefs.covariance(("a", "b"), ("a", "c")).any()


def test_answers_have_an_evidence_on_one_scale_with_other_engines():
    """The evidence of an inference is within .2 nats of enumeration where Bethe's is not within .5, and its Monte-Carlo error is stated."""
    chain = hc.MarkovChain(np.full(4, 0.25), sticky(4, 0.6), length=2)
    problem = hc.Problem(chain, 8, hc.Exact([[2.0, 3.0, 2.0, 1.0], [3.0, 2.0, 1.0, 2.0]]))
    exact = hc.infer(problem, hc.engines.Enumerate()).log_evidence
    found = hc.infer(problem, TableBP())
    assert found.log_evidence == pytest.approx(exact, abs=0.2)
    assert 0 < found.diagnostics["log_evidence_mc_error"] < 0.1
    assert hc.infer(problem, TableBP(exchanges=0)).log_evidence < exact - 0.5


def test_messages_that_alternate_are_damped():
    """Every small random problem converges: patience outlasts the sweeps before damping. Of these 60 one stalled with less."""
    rng = np.random.default_rng(5)
    for seed in range(60):
        cells = int(rng.integers(4, 7))
        chain = hc.MarkovChain(
            rng.dirichlet(np.ones(cells)), rng.dirichlet(np.full(cells, 0.3), cells), length=2
        )
        counts = np.asarray(
            hc.simulate.population(chain, int(rng.integers(6, 12)), rng=seed).counts, dtype=float
        )
        problem = hc.Problem(chain, int(counts[0].sum()), hc.Exact(counts))
        assert TableBP(exchanges=0).run(problem.core, rng=rng, progress=False).status.good, seed


def test_messages_of_counts_that_cannot_be_are_kept_without_overflow():
    """Messages of counts with a negligible weight can be any number: what the next run begins with is finite, and nothing warns."""
    chain = hc.MarkovChain([0.5, 0.5], [[[0.9, 0.1], [0.2, 0.8]]])
    engine = TableBP(exchanges=0)
    state = engine.init(
        hc.Problem(chain, 9, hc.Exact([[4.0, 5.0], [5.0, 4.0]])).core, np.random.default_rng(0)
    )
    state.tables[0].message[..., -1] = 1e300
    assert np.isfinite(engine.finish(state).diagnostics["messages"]).all()
