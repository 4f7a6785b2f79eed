"""Whole-number draws: tables that agree, honour what is known exactly and have the posterior's moments."""

from __future__ import annotations

import numpy as np
import pytest
from tests.engines.cases import MODELS, problem

import headcount as hc
from headcount.engines import TiltedEP
from headcount.engines.exact._enumerate import enumerated
from headcount.posterior import _draws
from headcount.posterior._draws import round_tables
from headcount.tables import Domain

GRAPHS = [
    "chain",
    "star",
    "tree with unequal domains",
    "two cliques of three",
    "four-cycle",
    "structural zeros",
    "isolated variable",
]


def tables(post, size, seed=1):
    return {c: t.values for c, t in post.sample(size, rng=seed, integer=True).items()}


def check(asked, drawn):
    """Whole, ≥ 0, summing to N, equal on what tables share, with every exact observation."""
    for clique, values in drawn.items():
        np.testing.assert_array_equal(values, np.rint(values))
        assert (values >= 0).all()
        assert (values.reshape(len(values), -1).sum(axis=1) == asked.population).all()
        assert not (values * (asked.model.marginal(clique) == 0)).any()
    for a, b, separator in asked.model.junction_tree.edges:
        ends = [
            margin({c: drawn[c]}, separator)
            for c in (tuple(asked.model.junction_tree.cliques[k]) for k in (a, b))
        ]
        np.testing.assert_array_equal(*ends)
    for site in asked.sites:
        if site.noise.exact:
            found = margin(drawn, site.scope)
            np.testing.assert_array_equal(
                site.margin(found.reshape(len(found), -1)),
                np.broadcast_to(site.noise.counts, (len(found), len(site))),
            )


def margin(drawn, scope):
    clique = next(c for c in drawn if set(scope) <= set(c))
    return Domain(clique, drawn[clique].shape[1:]).project(drawn[clique], tuple(scope))


@pytest.mark.parametrize("noise", ["poisson", "exact", "laplace"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_few_individuals_have_the_exact_law(graph, noise):
    """At N = 5, means and variances of all clique entries are those of enumeration within Monte-Carlo error (z below 4.5)."""
    asked = problem(graph, noise, 5)
    exact = enumerated(asked.core)
    size = 300
    drawn = tables(hc.infer(asked, TiltedEP(), strict=False), size)
    check(asked, drawn)
    for clique, values in drawn.items():
        mean, variance = exact.mean(clique), exact.variance(clique)
        counts, law = exact.count_law(clique)
        fourth = (law * (counts - mean) ** 4).sum(axis=0)
        open_ = variance > 0.01
        z = (values.mean(axis=0) - mean)[open_] / np.sqrt(variance[open_] / size)
        assert np.abs(z).max(initial=0.0) < 4.5
        error = np.sqrt((fourth - variance**2)[open_] / size + 1e-4)
        assert (np.abs(((values - mean) ** 2).mean(axis=0) - variance)[open_] < 4.5 * error).all()


@pytest.mark.parametrize("sweeping", [True, False], ids=["with sweeps", "rounded only"])
@pytest.mark.parametrize("population", [30, 300])
@pytest.mark.parametrize("noise", ["poisson", "exact"])
def test_draws_have_the_posteriors_moments(noise, population, sweeping, monkeypatch):
    """From N = 30 on, means and sds of nodes and flows are the posterior's within Monte-Carlo error, also by rounding alone."""
    if not sweeping:
        monkeypatch.setattr(_draws, "MOVES", 0)
    asked = problem("chain", noise, population)
    post = hc.infer(asked, TiltedEP())
    size = 800
    drawn = tables(post, size)
    check(asked, drawn)
    for scope in [*drawn, *((v,) for v in asked.model.variables)]:
        values = margin(drawn, scope)
        sd = np.sqrt(np.maximum(post.beliefs.variance(scope), 0.0))
        open_ = sd > 0.3
        z = (values.mean(axis=0) - post.beliefs.mean(scope))[open_] / sd[open_]
        assert np.abs(z).max(initial=0.0) < 4.5 / np.sqrt(size) + 0.05
        ratio = values.std(axis=0)[open_] / sd[open_]
        assert np.abs(ratio - 1).max(initial=0.0) < (0.15 if sweeping else 0.2)


def random_problem(seed):
    """A chain or tree of 2 to 4 variables with some nodes, flows or sums known exactly and the others counted with noise."""
    rng = np.random.default_rng(seed)
    size, length, population = rng.integers(2, 5), int(rng.integers(2, 5)), int(rng.integers(3, 40))
    law = rng.dirichlet(np.ones(size), size=size)
    if seed % 3 == 0:  # forbid some moves, never staying
        law = np.where((rng.random(law.shape) < 0.3) & ~np.eye(size, dtype=bool), 0.0, law)
        law /= law.sum(axis=1, keepdims=True)
    model = hc.MarkovChain(rng.dirichlet(np.ones(size)), law, length=length)
    paths = model.sample(population, rng=rng)
    seen = []
    for t in range(length):
        n = np.bincount(paths[:, t], minlength=size).astype(float)
        kind = rng.integers(4)
        if kind == 0:
            seen.append(hc.Exact(np.where(rng.random(size) < 0.7, n, np.nan), on=t))
        elif kind == 1:
            seen.append(hc.Exact([n[:2].sum()], on=t, sums=[[1, 1] + [0] * (size - 2)]))
        else:
            seen.append(hc.Poisson(rng.poisson(n).astype(float), on=t))
    if seed % 2:
        flow = np.zeros((size, size))
        np.add.at(flow, (paths[:, 0], paths[:, 1]), 1.0)
        seen.append(hc.Exact(np.where(rng.random(flow.shape) < 0.3, flow, np.nan), on=(0, 1)))
    return hc.Problem(model, population, [o for o in seen if np.isfinite(np.asarray(o.counts)).any()])


def test_exact_observations_are_honoured_in_150_of_150():
    """Exact counts of nodes, flows and sums hold in every draw of 150 random problems."""
    for seed in range(150):
        asked = random_problem(seed)
        post = hc.infer(asked, TiltedEP(), strict=False)
        check(asked, tables(post, 4, seed=seed))


@pytest.mark.parametrize(
    "noise",
    [hc.Poisson, lambda y: hc.Poisson(y, rate=0.3), lambda y: hc.Binomial(y, detection=0.5)],
    ids=["poisson", "low rate", "binomial"],
)
@pytest.mark.parametrize("population", [40, 400])
def test_every_draw_is_possible(noise, population, monkeypatch):
    """Nobody is seen where nobody is: every draw has a finite likelihood of every count, by rounding alone."""
    monkeypatch.setattr(_draws, "MOVES", 0)
    world = hc.simulate.birds(side=4, population=population, steps=6, rng=1)
    rng = np.random.default_rng(2)
    counts = rng.binomial(np.asarray(world.tables.to_xarray()["counts"]), 0.5)
    post = hc.infer(hc.Problem(world.model, population, noise(counts)), TiltedEP())
    drawn = tables(post, 300)
    entries = _draws.drawn_entries(post.problem.sites, drawn)
    parts = np.split(entries, np.cumsum([len(site) for site in post.problem.sites])[:-1], axis=1)
    for site, n in zip(post.problem.sites, parts, strict=True):
        assert np.isfinite(site.noise.log_prob(n)).all()


def test_rounding_is_random_and_unbiased():
    """Entries of a table with whole margins become floors or ceilings, each in proportion to its fraction; margins stay."""
    table = np.array([[0.3, 0.7, 1.0], [1.2, 0.8, 0.0], [0.5, 0.5, 1.0]])
    size = 4000
    rows, columns = np.tile(table.sum(axis=1), (size, 1)), np.tile(table.sum(axis=0), (size, 1))
    out = np.empty((size, 3, 3))
    round_tables(np.tile(table, (size, 1, 1)), rows, columns, np.array([7], np.uint64), out)
    assert ((out == np.floor(table)) | (out == np.ceil(table))).all()
    np.testing.assert_array_equal(out.sum(axis=2), rows)
    np.testing.assert_array_equal(out.sum(axis=1), columns)
    np.testing.assert_allclose(out.mean(axis=0), table, atol=4.5 * 0.5 / np.sqrt(size))


def test_exact_counts_of_a_long_chain_are_honoured_by_rounding_alone():
    """With every node known, 24 cells and 30 times, tables are rounded between their margins without any search."""
    rng = np.random.default_rng(0)
    model = hc.MarkovChain(rng.dirichlet(np.ones(24)), rng.dirichlet(np.ones(24), size=24), length=30)
    paths = model.sample(1200, rng=rng)
    asked = hc.Problem(model, 1200, [hc.Exact([np.bincount(paths[:, t], minlength=24) for t in range(30)])])
    beliefs = hc.infer(asked, TiltedEP(centre="map")).beliefs
    real = beliefs.sample(5, rng=rng, integer=False)
    check(asked, _draws._rounded(beliefs, real, rng))


def test_the_seed_fixes_every_bit():
    """The same seed gives the same draws, another seed others."""
    post = hc.infer(problem("chain", "poisson", 40), TiltedEP())
    first, again, other = tables(post, 20, 3), tables(post, 20, 3), tables(post, 20, 4)
    for clique in first:
        np.testing.assert_array_equal(first[clique], again[clique])
    assert any((first[c] != other[c]).any() for c in first)


def test_real_draws_agree_and_follow_the_gaussian():
    """Without integer=True draws are the Gaussian's: they sum to N and have its means."""
    post = hc.infer(problem("two cliques of three", "poisson", 60), TiltedEP())
    drawn = {c: t.values for c, t in post.sample(400, rng=1).items()}
    assert set(drawn) == {tuple(c) for c in MODELS["two cliques of three"].junction_tree.cliques}
    for clique, values in drawn.items():
        np.testing.assert_allclose(values.reshape(400, -1).sum(axis=1), 60, atol=1e-8 * 60)
        spread = np.sqrt(post.beliefs.variance(clique)) + 1e-9
        assert (np.abs(values.mean(axis=0) - post.beliefs.mean(clique)) < 5 * spread / 20).all()
