"""Engines without matrices give the answers of the engines with them, within the Monte-Carlo error they state."""

from __future__ import annotations

import pickle
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse

import headcount as hc
from headcount.engines import MAP, ClosedForm, Laplace, TiltedEP, plan, select
from headcount.posterior._beliefs import GaussianBeliefs
from headcount.structure import MatrixFreeStructure, Solver, TreeStructure, structure_for

CASES = {
    "many": (6, 1080, 1.0),
    "few": (6, 36, 1.0),
    "small map": (4, 480, 1.0),
    "sharp": (4, 480, 10.0),
    "flocks": (4, 1920, 1.0),
}


@cache
def world(name):
    """Migrating birds, in flocks of 4 if so named, counted with Poisson noise."""
    side, population, rate = CASES[name]
    size = 4 if name == "flocks" else 1
    made = hc.simulate.birds(side=side, weights=(1, 2, 2, 2), population=population // size, steps=20, rng=1)
    seen = np.random.default_rng(2).poisson(rate * size * np.asarray(made.counts))
    return hc.Problem(made.model, population, hc.Poisson(seen, rate=rate), dispersion=hc.Flocks(size))


@cache
def answers(name):
    """With matrices, and without."""
    return tuple(hc.infer(world(name), TiltedEP(structure=kind)) for kind in ("tree", "matrix-free"))


def large_counts():
    """A chain of six cells with many in each, and their numbers."""
    rng = np.random.default_rng(3)
    model = hc.MarkovChain(rng.dirichlet(np.full(6, 5.0)), rng.dirichlet(np.ones(6), size=6), length=5)
    return model, np.array([np.bincount(x, minlength=6) for x in model.sample(900, rng=rng).T], dtype=float)


def nodes(post, what):
    return np.concatenate([what(post.beliefs, (v,)) for v in post.problem.model.variables])


def distance(a, b):
    """Relative L1 distance of all nodes' means."""
    x, y = (nodes(post, lambda beliefs, scope: beliefs.mean(scope)) for post in (a, b))
    return np.abs(x - y).sum() / x.sum()


@pytest.mark.parametrize("name", CASES)
def test_means_are_those_of_the_tree_structure(name):
    """Median distance at most .003 of an sd; relative L1 distance at most a tenth of MAP's; nothing negative, flows agree with nodes."""
    exact, free = answers(name)
    mean, other = (nodes(post, lambda beliefs, scope: beliefs.mean(scope)) for post in (exact, free))
    sd = np.sqrt(np.maximum(nodes(exact, lambda beliefs, scope: beliefs.variance(scope)), 1e-12))
    assert np.median(np.abs(mean - other)[sd > 1e-3] / sd[sd > 1e-3]) <= 3e-3
    assert distance(exact, free) <= 0.1 * distance(exact, hc.infer(world(name), MAP()))
    assert free.promises.non_negative
    u, v = world(name).model.variables[:2]
    np.testing.assert_allclose(free.beliefs.mean((u, v)).sum(axis=0), free.beliefs.mean((v,)), atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_sds_are_within_their_stated_error(name):
    """Sds of cells and flows: rms distance at most 1.2 of the stated error, which is at most 5 % of an sd (rms) and 12.5 % of any."""
    exact, free = answers(name)
    variables = world(name).model.variables
    for scopes in ([(v,) for v in variables], list(pairwise(variables))):
        off, shares = [], []
        for scope in scopes:
            sd, other = (np.sqrt(np.maximum(post.beliefs.variance(scope), 0.0)) for post in (exact, free))
            error = free.beliefs.mc_error(scope)
            assert (error <= 0.1251 * other + 1e-12).all()
            shares.append((error / np.maximum(other, 1e-9))[other > 1e-9])
            off.append(((other - sd)[error > 1e-9] / error[error > 1e-9]).ravel())
        assert np.sqrt(np.mean(np.concatenate(off) ** 2)) <= 1.2
        assert np.sqrt(np.mean(np.concatenate([x.ravel() for x in shares]) ** 2)) <= 0.0511


@pytest.mark.parametrize("name", CASES)
def test_the_evidence_is_within_three_of_its_stated_errors(name):
    """log p(y) with matrices and without differ by at most three Monte-Carlo errors, which are below half a nat here."""
    exact, free = answers(name)
    error = free.diagnostics["log_evidence_mc_error"]
    assert 0 < error < 0.5
    assert abs(exact.log_evidence - free.log_evidence) <= 3 * error
    assert "log_evidence_mc_error" not in exact.diagnostics


@pytest.mark.parametrize("centre", ["mean", "map", "prior"])
@pytest.mark.parametrize("projection", ["lattice", "line", "laplace"])
def test_every_setting_of_tilted_ep(centre, projection):
    """All centres and projections: the means of the tree structure to .05 of an sd."""
    model, counts = large_counts()
    problem = hc.Problem(model, 900, hc.Poisson(counts))
    exact, free = (
        hc.infer(problem, TiltedEP(centre=centre, projection=projection, structure=kind))
        for kind in ("tree", "matrix-free")
    )
    mean, other = (nodes(post, lambda beliefs, scope: beliefs.mean(scope)) for post in (exact, free))
    sd = np.sqrt(nodes(exact, lambda beliefs, scope: beliefs.variance(scope)))
    assert (np.abs(mean - other) <= 0.05 * sd + 1e-6).all()


@pytest.mark.parametrize("engine", [Laplace, ClosedForm])
def test_engines_without_sweeps_have_exact_means(engine):
    """Newton's modes and closed-form means need no variances: equal to 1e-6 N; sds and evidence within their errors."""
    model, counts = large_counts()
    noise = hc.Poisson(counts) if engine is Laplace else hc.Gaussian(counts, sd=3.0)
    problem = hc.Problem(model, 900, noise)
    exact, free = (hc.infer(problem, engine(structure=kind)) for kind in ("tree", "matrix-free"))
    for scope in [(v,) for v in problem.model.variables] + list(pairwise(problem.model.variables)):
        np.testing.assert_allclose(free.beliefs.mean(scope), exact.beliefs.mean(scope), atol=1e-6 * 900)
        sd, other = (np.sqrt(post.beliefs.variance(scope)) for post in (exact, free))
        assert (np.abs(sd - other) <= 5 * free.beliefs.mc_error(scope) + 1e-3).all()
    assert abs(exact.log_evidence - free.log_evidence) <= 4 * free.diagnostics["log_evidence_mc_error"]


def test_a_smaller_error_takes_more_draws():
    """Asking for 2.5 % of every sd takes up to four times the draws; as many as that give it whatever is seen."""
    draws = []
    for error in (0.1, 0.05, 0.025):
        post = hc.infer(world("small map"), TiltedEP(structure="matrix-free", mc_error=error))
        draws.append(post.beliefs.field.draws)
        for scope in [(v,) for v in post.problem.model.variables]:
            share = post.beliefs.mc_error(scope) / np.sqrt(np.maximum(post.beliefs.variance(scope), 1e-12))
            assert (share <= 2.5 * error).all()
    assert draws[0] < draws[1] < draws[2] <= 800


def test_more_draws_and_another_seed():
    """Four times the draws halve the stated error; another seed gives other sds within it; the same seed the same bits."""
    problem = world("small map")
    few, again, more, other = (
        hc.infer(problem, TiltedEP(structure="matrix-free", final_draws=draws, draw_seed=seed))
        for draws, seed in ((48, 0), (48, 0), (192, 0), (48, 1))
    )
    a, b, c, d = (
        nodes(post, lambda beliefs, scope: beliefs.mc_error(scope)).sum()
        for post in (few, again, more, other)
    )
    assert a == b != d
    assert 0.4 < c / a < 0.6


def test_counts_are_projected_in_parts(monkeypatch):
    """Counts projected in parts, by threads and without keeping their grids, give the answer of all at once."""
    from headcount.engines.tilted import _centre, _tilted_ep

    problem = world("many")
    whole = hc.infer(problem, TiltedEP(structure="tree"))
    monkeypatch.setattr(_centre, "MOST_AT_ONCE", 100)
    monkeypatch.setattr(_tilted_ep, "MOST_AT_ONCE", 100)
    monkeypatch.setattr(_tilted_ep, "MOST_WITH_GRIDS", 10)
    parts = hc.infer(problem, TiltedEP(structure="tree"))
    mean, other = (nodes(post, lambda beliefs, scope: beliefs.mean(scope)) for post in (whole, parts))
    np.testing.assert_allclose(mean, other, atol=1e-5)
    assert whole.log_evidence == pytest.approx(parts.log_evidence, abs=1e-5)


def test_draws_can_be_added_to_a_finished_run():
    """More draws to a finished run are as if it had had them: the same sds to the bit; the first posterior stays; others are refused."""
    problem = world("small map")
    engine = TiltedEP(structure="matrix-free", final_draws=32)
    few, many = (
        hc.infer(problem, engine),
        hc.infer(problem, TiltedEP(structure="matrix-free", final_draws=96)),
    )
    kept = nodes(few, lambda beliefs, scope: beliefs.variance(scope))
    more = few.more_draws(64)
    for what in ("variance", "mc_error"):
        a, b = (
            nodes(post, lambda beliefs, scope, what=what: getattr(beliefs, what)(scope))
            for post in (more, many)
        )
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert more.log_evidence == pytest.approx(many.log_evidence, abs=1e-9)
    assert more.diagnostics["log_evidence_mc_error"] == pytest.approx(
        many.diagnostics["log_evidence_mc_error"]
    )
    assert (nodes(few, lambda beliefs, scope: beliefs.variance(scope)) == kept).all()
    with pytest.raises(ValueError, match="carry no error of draws"):
        answers("small map")[0].more_draws(10)
    with pytest.raises(ValueError, match="whole number"):
        few.more_draws(0)


def test_auto_is_the_tree_structure_where_it_is_affordable():
    """A thousand cells and twenty times are solved with matrices; more, or wider, without, unless something must have them."""
    problem = world("small map")
    assert isinstance(structure_for(problem.model, 480, problem.sites, solver=Solver("auto")), TreeStructure)
    from headcount.structure import base as base_module

    before, base_module.AFFORDABLE, base_module.WORTH = (base_module.AFFORDABLE, base_module.WORTH), 0.0, 0.0
    try:
        made = structure_for(problem.model, 480, problem.sites, solver=Solver("auto"))
        assert isinstance(made, MatrixFreeStructure)
        exact = hc.Problem(problem.model, 480, hc.Exact([480.0] + [0.0] * 15, on=problem.model.variables[0]))
        assert hc.infer(exact, TiltedEP()).status.good
    finally:
        base_module.AFFORDABLE, base_module.WORTH = before


def seen_in_many_ways(model, counts):
    """Problems beside exact counts, correlated readings, flows, and sums."""
    moved, half = np.outer(counts[1], counts[2]) / 900, np.array([[1.0, 1, 1, 0, 0, 0]])
    near = np.eye(6) * 9 + 2.0
    some = np.where(np.arange(36).reshape(6, 6) % 7 < 2, np.rint(moved), np.nan)
    return {
        "an exact time": [hc.Poisson(counts), hc.Exact(counts[2], on=2)],
        "exact sums": [hc.Poisson(counts), hc.Exact(half @ counts[2], on=2, sums=half)],
        "exact flows": [
            hc.Poisson(counts),
            hc.Exact(some, on=(1, 2)),
            hc.Exact(half @ counts[3], on=3, sums=half),
        ],
        "exact flows turned round": [hc.Poisson(counts), hc.Exact(some.T, on=(2, 1))],
        "correlated readings": [hc.Poisson(counts[0], on=0), hc.Gaussian(counts[3], covariance=near, on=3)],
        "flows": [hc.Poisson(counts), hc.Poisson(np.rint(moved), on=(1, 2))],
        "flows turned round": [hc.Poisson(counts[0], on=0), hc.Poisson(np.rint(moved.T), on=(2, 1))],
        "sums": [hc.Poisson(half @ counts[t], on=t, sums=half) for t in range(5)],
    }


@pytest.mark.parametrize("kind", list(seen_in_many_ways(None, np.zeros((5, 6)))))
def test_whatever_is_seen(kind):
    """Exact counts and sums, correlated readings, flows: the tree structure's means to .03 sds; sds and evidence within their errors."""
    model, counts = large_counts()
    problem = hc.Problem(model, 900, seen_in_many_ways(model, counts)[kind])
    exact, free = (hc.infer(problem, TiltedEP(structure=k)) for k in ("tree", "matrix-free"))
    for scope in [(v,) for v in model.variables] + list(pairwise(model.variables)):
        sd, other = (np.sqrt(np.maximum(post.beliefs.variance(scope), 0.0)) for post in (exact, free))
        assert (np.abs(exact.beliefs.mean(scope) - free.beliefs.mean(scope)) <= 0.03 * sd + 1e-6).all()
        assert (np.abs(sd - other) <= 5 * free.beliefs.mc_error(scope) + 1e-3).all()
    error = free.diagnostics["log_evidence_mc_error"]
    assert abs(exact.log_evidence - free.log_evidence) <= 4 * error + 1e-3


def by_state(number: int, length: int) -> dict[int, tuple[float, ...]]:
    """One phi per state and step, from .5 to 6."""
    rng = np.random.default_rng(4)
    return {t: tuple(rng.uniform(0.5, 6.0, number)) for t in range(1, length)}


@pytest.mark.parametrize("moves", ["dense", "sparse"])
@pytest.mark.parametrize("form", ["phi", "under-dispersed", "by state"])
def test_overdispersion_scatters_as_with_matrices(moves, form):
    """Overdispersion by step: means and covariances of the tree structure to 1e-6, draws too; sds and evidence within their errors.

    Cells and some flows are seen; at one time nothing is.
    """
    rng = np.random.default_rng(2)
    table = rng.dirichlet(np.ones(6), size=6)
    if moves == "sparse":
        table = table * (np.abs(np.subtract.outer(np.arange(6), np.arange(6))) <= 2)
        table = sparse.csr_array(table / table.sum(axis=1, keepdims=True))
    model = hc.MarkovChain(rng.dirichlet(np.full(6, 3.0)), table, length=5)
    counts, flows = rng.poisson(100.0, (5, 6)).astype(float), np.full((6, 6), np.nan)
    counts[2], flows[2, 3], flows[4, 4] = np.nan, 20.0, 25.0
    overdispersion = {
        "phi": hc.Overdispersion(phi=3.0),
        "under-dispersed": hc.Overdispersion(phi=0.4),
        "by state": hc.Overdispersion(phi=by_state(6, 5), initial=2.0),
    }[form]
    seen = [hc.Gaussian(counts, sd=6.0), hc.Gaussian(flows, sd=3.0, on=(0, 1))]
    problem = hc.Problem(model, 600, seen, dispersion=overdispersion)
    exact, free = (hc.infer(problem, ClosedForm(structure=kind)) for kind in ("tree", "matrix-free"))
    off = []
    for scope in [(v,) for v in model.variables] + list(pairwise(model.variables)):
        np.testing.assert_allclose(free.beliefs.mean(scope), exact.beliefs.mean(scope), atol=1e-6)
        sd, other = (np.sqrt(post.beliefs.variance(scope)) for post in (exact, free))
        off.append((np.abs(sd - other) / np.where(sd > 1e-6, free.beliefs.mc_error(scope), 1.0)).ravel())
    assert np.sqrt(np.mean(np.concatenate(off) ** 2)) < 1.2
    assert np.concatenate(off).max() < 5
    a, b = (post.beliefs.covariance((1,), (3,)) for post in (exact, free))
    np.testing.assert_allclose(a, b, atol=1e-6)
    assert abs(exact.log_evidence - free.log_evidence) <= 4 * free.diagnostics["log_evidence_mc_error"]
    drawn = free.beliefs.sample(2000, rng=rng, integer=False)[2, 3]
    mean, sd = exact.beliefs.mean((2, 3)), np.sqrt(exact.beliefs.variance((2, 3)))
    assert (np.abs(drawn.mean(axis=0) - mean) <= 5 * sd / np.sqrt(2000) + 1e-6).all()
    assert (np.abs(drawn.std(axis=0) - sd) <= 5 * sd / np.sqrt(4000) + 1e-6).all()


@pytest.mark.parametrize("overdispersion", [hc.Overdispersion(phi=4.0), hc.Overdispersion(rho=0.05)])
def test_overdispersion_in_sweeps(overdispersion):
    """Counts with phi or rho: the tree structure's means to .05 sds; sds and evidence within their errors."""
    model, counts = large_counts()
    problem = hc.Problem(model, 900, hc.Poisson(counts), dispersion=overdispersion)
    exact, free = (hc.infer(problem, TiltedEP(structure=kind)) for kind in ("tree", "matrix-free"))
    for scope in [(v,) for v in model.variables] + list(pairwise(model.variables)):
        sd, other = (np.sqrt(np.maximum(post.beliefs.variance(scope), 0.0)) for post in (exact, free))
        assert (np.abs(exact.beliefs.mean(scope) - free.beliefs.mean(scope)) <= 0.05 * sd + 1e-6).all()
        assert (np.abs(sd - other) <= 5 * free.beliefs.mc_error(scope) + 1e-3).all()
    assert abs(exact.log_evidence - free.log_evidence) <= 4 * free.diagnostics["log_evidence_mc_error"]


def test_flows_of_sparse_maps_are_listed(monkeypatch):
    """A table of flows of a sparse map asks for no table of all pairs of cells, also where means are not those of one law."""
    near = np.abs(np.subtract.outer(np.arange(7), np.arange(7))) <= 1
    model = hc.MarkovChain(
        np.full(7, 1 / 7), sparse.csr_array(near / near.sum(axis=1, keepdims=True)), length=4
    )
    counts = np.random.default_rng(3).normal(10.0, 3.0, (4, 7))
    problem = hc.Problem(model, 70, hc.Gaussian(counts, sd=3.0))
    exact, free = (hc.infer(problem, ClosedForm(structure=kind)) for kind in ("tree", "matrix-free"))
    whole = GaussianBeliefs.mean

    def nodes_only(self, scope):
        assert len(scope) == 1, "a table of all pairs was asked for"
        return whole(self, scope)

    with monkeypatch.context() as patched:
        patched.setattr(GaussianBeliefs, "mean", nodes_only)
        listed = free.to_frame("flows")
    wanted = exact.to_frame("flows").merge(listed, on=["time", "origin", "dest"], suffixes=("", "_free"))
    assert len(wanted) == len(listed) == 3 * near.sum()
    np.testing.assert_allclose(wanted["mean_free"], wanted["mean"], atol=1e-6)


def test_what_it_cannot_serve_is_refused_in_words():
    """Wrong settings are refused."""
    with pytest.raises(ValueError, match="draws must be"):
        TiltedEP(draws=3)
    with pytest.raises(ValueError, match="mc_error must be"):
        TiltedEP(mc_error=0.0)
    with pytest.raises(ValueError, match="structure must be"):
        Laplace(structure="dense")


def test_tables_carry_the_error_of_sds():
    """Nodes and flows have a column mc_error after sd where sds come from draws, and only there; NetCDF keeps it."""
    exact, free = answers("small map")
    for what in ("nodes", "flows"):
        columns = list(free.to_frame(what).columns)
        assert columns[columns.index("sd") + 1] == "mc_error"
        assert "mc_error" not in exact.to_frame(what)
    assert "mc_error" in free.to_xarray()["nodes"]


def test_flows_of_a_sparse_map_are_listed():
    """One row per possible move, equal to the table's entries; nothing of the size of all pairs."""
    model, counts = large_counts()
    ring = np.eye(6) + 0.5 * np.roll(np.eye(6), 1, axis=1)
    thin = hc.MarkovChain(model.initial, sparse.csr_array(ring / 1.5), length=5)
    problem = hc.Problem(thin, 900, hc.Gaussian(counts, sd=30.0))
    post = hc.infer(problem, TiltedEP(structure="matrix-free"))
    frame = post.to_frame("flows")
    assert len(frame) == 4 * 12
    assert frame.attrs["listed"]
    table = post.edge(1, 2)
    for row in frame[frame["time"] == 1].itertuples():
        assert row.mean == pytest.approx(float(table.mean[row.origin, row.dest]))
        assert row.sd == pytest.approx(float(table.sd[row.origin, row.dest]))
        interval = table.interval(0.9)
        assert row.lower == float(interval["lower"][row.origin, row.dest])
        assert row.reliable == bool(table.reliable[row.origin, row.dest])


def test_large_sparse_maps_get_intervals_by_default():
    """5000 cells with few neighbours: chosen without matrices, and said; planned in seconds and megabytes; exact counts too."""
    cells, times = 5000, 3
    ring = sparse.diags_array(
        [0.6, 0.2, 0.2, 0.2, 0.2], offsets=[0, 1, -1, cells - 1, 1 - cells], shape=(cells, cells)
    )
    model = hc.MarkovChain(np.full(cells, 1 / cells), sparse.csr_array(ring), length=times)
    problem = hc.Problem(model, 20 * cells, hc.Poisson(np.full((times, cells), 20.0)))
    choice = select(problem)
    assert choice.engine == TiltedEP()
    assert "Monte-Carlo error" in choice.reason
    assert plan(problem, rate=1e10).memory < 1e9
    assert plan(problem, rate=1e10).seconds < 60
    assert plan(problem, TiltedEP(structure="tree"), rate=1e10).seconds > 600
    exact = hc.Problem(model, 20 * cells, hc.Exact(np.full((1, cells), 20.0)[0], on=0))
    assert "Monte-Carlo error" in select(exact).reason


@pytest.mark.filterwarnings("default")
def test_draws_spread_over_a_cluster_are_the_same():
    """Draws made by two workers of a real cluster, by client and by address, give the sds, errors and evidence of those made here."""
    distributed = pytest.importorskip("distributed")
    few = hc.infer(world("small map"), TiltedEP(structure="matrix-free", final_draws=32))
    here = few.more_draws(80)
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster) as client:
        there = few.more_draws(80, client=client)
        ran = client.run(lambda: "headcount.structure._matrix_free" in __import__("sys").modules)
        named = few.more_draws(80, client=cluster.scheduler_address)
    assert all(ran.values())
    edge = tuple(few.problem.model.variables[:2])
    for post in (there, named):
        assert post.beliefs.field.draws == 112
        assert post.log_evidence == pytest.approx(here.log_evidence, abs=1e-9)
        for what in ("variance", "mc_error"):
            for scope in (*((v,) for v in few.problem.model.variables), edge):
                mine, theirs = (getattr(p.beliefs, what)(scope) for p in (here, post))
                np.testing.assert_allclose(mine, theirs, rtol=1e-10)
    with pytest.raises(ValueError, match="no scheduler answers"):
        few.more_draws(8, client="tcp://127.0.0.1:9")


def test_a_structure_that_travels_is_the_same():
    """A structure that was pickled, as on its way to a worker, has the same variances; the factor of flocks is not applied twice."""
    problem = world("small map")
    for moving in (problem, problem.with_dispersion(hc.Flocks(2.5))):
        field = hc.infer(moving, TiltedEP(structure="matrix-free", final_draws=32)).beliefs.field
        made = pickle.loads(pickle.dumps(field.structure))
        assert made.population == field.structure.population
        np.testing.assert_array_equal(made.prior_variance, field.structure.prior_variance)
