"""Everything that is asked of a posterior, on graphs with loops, against all configurations of all individuals."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement
from math import lgamma

import numpy as np
import pytest
from tests.engines.cases import problem
from tests.graphs import awkward_models
from tests.population.oracle import joint

import headcount as hc
from headcount.engines import ClosedForm, Laplace, TiltedEP
from headcount.posterior import Posterior

LOOPS = ("four-cycle", "two cliques of three", "structural zeros")
MODELS = awkward_models()
RING = hc.DiscreteModel(
    {v: ["no", "a bit", "yes"][:: 1 if v != "b 2" else 2] for v in ("a", "b 2", "c", "d")},
    {
        pair: np.random.default_rng(7).normal(
            size=(2 if pair[0] == "b 2" else 3, 2 if pair[1] == "b 2" else 3)
        )
        for pair in (("a", "b 2"), ("b 2", "c"), ("c", "d"), ("d", "a"))
    },
)


def rows_of(model, scope) -> np.ndarray:
    """Which possible configurations are in which entry of a table, (entries, configurations)."""
    states, p = joint(model)
    at = [model.variables.index(v) for v in scope]
    flat = np.ravel_multi_index([states[p > 0][:, k] for k in at], model.size(scope))
    return (flat == np.arange(int(np.prod(model.size(scope))))[:, None]).astype(float)


def chances(model) -> np.ndarray:
    """Of the possible configurations."""
    p = joint(model)[1]
    return p[p > 0]


def asked_of(model) -> list[dict]:
    """Sums over one table, over tables of several cliques, and over pairs of variables that share none."""
    rng, names = np.random.default_rng(3), model.variables
    pairs = [(u, v) for k, u in enumerate(names) for v in names[k + 1 :]]
    far = [pair for pair in pairs if model.junction_tree.covering(pair) is None]
    scopes = [(names[0],), tuple(model.junction_tree.cliques[-1]), *far]
    weights = {scope: rng.integers(-1, 3, model.size(scope)) for scope in scopes}
    return [*({scope: table} for scope, table in weights.items()), weights]


def weight_of(model, weights) -> np.ndarray:
    """The weight of every configuration in a sum over tables."""
    return sum(np.ravel(table) @ rows_of(model, scope) for scope, table in weights.items())


def conditioned(asked) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the counts of all configurations, N(Np, N(diag p − ppᵀ)), given the Gaussian readings."""
    p, n = chances(asked.model), asked.population
    prior = n * (np.diag(p) - np.outer(p, p))
    rows = np.vstack([site.margin(rows_of(asked.model, site.scope).T).T for site in asked.sites])
    noise = np.concatenate([np.broadcast_to(np.square(s.noise.sd), len(s)) for s in asked.sites])
    seen = np.concatenate([site.noise.counts for site in asked.sites])
    gain = prior @ rows.T @ np.linalg.inv(rows @ prior @ rows.T + np.diag(noise))
    return n * p + gain @ (seen - n * rows @ p), prior - gain @ rows @ prior


@pytest.mark.parametrize("graph", [*LOOPS, "ring"])
def test_closed_form_is_conditioning_of_all_configurations(graph):
    """Tables of cliques, pairs that share no clique, and totals over several tables have the moments of textbook conditioning."""
    model = RING if graph == "ring" else MODELS[graph]
    asked = problem(model, "gaussian", 50)
    post = hc.infer(asked, ClosedForm())
    mean, covariance = conditioned(asked)
    names = model.variables
    pairs = [(u, v) for k, u in enumerate(names) for v in names[k + 1 :]]
    for scope in [*((v,) for v in names), *pairs, *model.junction_tree.cliques]:
        rows = rows_of(model, scope)
        np.testing.assert_allclose(post.mean_table(scope).ravel(), rows @ mean, atol=1e-8)
        expected = np.sqrt(np.maximum(np.diag(rows @ covariance @ rows.T), 0.0))
        np.testing.assert_allclose(post.sd_table(scope).ravel(), expected, atol=1e-6)
    for weights in asked_of(model):
        found, w = post.total(weights), weight_of(model, weights)
        assert found.mean == pytest.approx(w @ mean, abs=1e-8)
        assert found.sd == pytest.approx(np.sqrt(w @ covariance @ w), abs=1e-7)


@pytest.mark.parametrize("graph", [*LOOPS, "ring"])
def test_the_laplace_engine_is_at_the_mode_of_all_configurations(graph):
    """At Laplace's mean the gradient of log l plus that of the Gaussian prior is zero; its spread is the inverse curvature."""
    model = RING if graph == "ring" else MODELS[graph]
    asked = problem(model, "poisson_with_background", 300, seed=2)
    post = hc.infer(asked, Laplace())
    p = chances(model)
    prior = 300 * (np.diag(p) - np.outer(p, p))
    rows = np.vstack([site.margin(rows_of(model, site.scope).T).T for site in asked.sites])
    n = np.concatenate([site.margin(post.mean_table(site.scope).ravel()) for site in asked.sites])
    slope, curvature = (
        np.concatenate(
            [getattr(s.noise, what)(part) for s, part in zip(asked.sites, np.split(n, ends), strict=True)]
        )
        for ends in [np.cumsum([len(s) for s in asked.sites])[:-1]]
        for what in ("slope", "curvature")
    )
    np.testing.assert_allclose(n, rows @ (300 * p + prior @ rows.T @ slope), atol=1e-5)
    gain = prior @ rows.T @ np.linalg.inv(np.diag(-1.0 / curvature) + rows @ prior @ rows.T)
    left = prior - gain @ rows @ prior
    for weights in asked_of(model):
        w = weight_of(model, weights)
        assert post.total(weights).sd == pytest.approx(np.sqrt(w @ left @ w), rel=1e-5)


def listed(model, size: int) -> tuple[np.ndarray, np.ndarray]:
    """All counts of configurations that ``size`` individuals can make, and their probabilities."""
    p = chances(model)
    made = np.array(list(combinations_with_replacement(range(len(p)), size)))
    counts = (made[:, :, None] == np.arange(len(p))).sum(axis=1)
    logs = lgamma(size + 1) + counts @ np.log(p) - np.vectorize(lgamma)(counts + 1.0).sum(axis=1)
    return counts, np.exp(logs)


@pytest.mark.parametrize("noise", ["poisson", "binomial", "negative_binomial"])
@pytest.mark.parametrize("graph", LOOPS)
def test_the_default_engine_is_near_sums_over_all_populations(graph, noise):
    """Six individuals: totals over several tables and pairs that share no clique, means within .25 of them and sds within 12 %."""
    model = MODELS[graph]
    asked = problem(model, noise, 6 if graph != "two cliques of three" else 4, seed=5)
    post = hc.infer(asked, TiltedEP())
    counts, weights = listed(model, asked.population)
    logs = np.zeros(len(counts))
    for site in asked.sites:
        logs += site.noise.log_prob(site.margin(counts @ rows_of(model, site.scope).T)).sum(axis=1)
    law = weights * np.exp(logs - logs.max())
    law /= law.sum()
    for total in asked_of(model):
        value = counts @ weight_of(model, total)
        mean = law @ value
        sd = np.sqrt(law @ (value - mean) ** 2)
        found = post.total(total)
        assert found.mean == pytest.approx(mean, abs=0.25 * sd + 0.02)
        certain = (
            sd < 1e-9
        )  # where whole numbers leave no choice, a Gaussian keeps an sd of about .15 per individual
        assert found.sd == pytest.approx(sd, rel=0.12, abs=0.5 if certain else 0.02)


@pytest.mark.parametrize("engine", [TiltedEP(), Laplace(), ClosedForm()], ids=lambda e: e.name)
@pytest.mark.parametrize("graph", [*LOOPS, "ring"])
def test_whole_draws_are_populations(graph, engine):
    """Whole-number draws are ≥ 0, sum to N, agree on every separator, keep exact counts, and have the means and sds of the posterior."""
    model, size = RING if graph == "ring" else MODELS[graph], 1500
    asked = problem(model, "gaussian", 4000, seed=1)
    first = model.variables[0]
    kept = np.bincount(model.sample(4000, rng=4)[:, 0], minlength=len(model.states[first])).astype(float)
    others = [replace(seen, sd=20.0) for seen in asked.observations if seen.on != first]
    post = hc.infer(hc.Problem(model, 4000, [hc.Exact(kept, on=first), *others]), engine)
    drawn = {c: table.values for c, table in post.sample(size, rng=2, integer=True).items()}
    tree = model.junction_tree
    for clique, table in drawn.items():
        assert (table == np.rint(table)).all()
        assert table.min() >= 0
        assert (table.reshape(size, -1).sum(axis=1) == 4000).all()
        assert not table[:, model.marginal(clique) == 0].any()
        sd = post.sd_table(clique)
        off = np.abs(table.mean(axis=0) - post.mean_table(clique))
        assert (off <= 5 * sd / np.sqrt(size) + 0.25).all()
        assert (np.abs(table.std(axis=0) - sd) <= 0.1 * sd + 0.5).all()
    for a, b, separator in tree.edges:
        ends = [model.domain(c).project(drawn[c], separator) for c in (tree.cliques[a], tree.cliques[b])]
        np.testing.assert_array_equal(*ends)
    home = tree.cliques[tree.covering((first,))]
    assert (model.domain(home).project(drawn[home], (first,)) == kept).all()


def test_the_check_of_fit_on_a_loop():
    """Counts of the model agree with it; counts that its loop cannot have made do not, whatever the engine."""
    same = np.log([[30.0, 1.0], [1.0, 30.0]])
    model = hc.DiscreteModel(
        dict.fromkeys("abcd", 2), dict.fromkeys([("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")], same)
    )
    people = model.sample(2000, rng=1)
    rng = np.random.default_rng(2)
    right = [
        hc.Gaussian(np.bincount(x, minlength=2) + rng.normal(0, 5, 2), sd=5, on=v)
        for x, v in zip(people.T, "abcd", strict=True)
    ]
    wrong = [*right[:2], hc.Gaussian([600.0, 1400.0], sd=5, on="c"), right[3]]
    for engine in (TiltedEP(), Laplace(), ClosedForm()):
        assert hc.infer(hc.Problem(model, 2000, right), engine).fit_check.agrees is True
        assert hc.infer(hc.Problem(model, 2000, wrong), engine).fit_check.agrees is False


@pytest.mark.parametrize("engine", [TiltedEP(), Laplace(), ClosedForm()], ids=lambda e: e.name)
def test_files_answer_as_the_posterior_does(engine, tmp_path):
    """A posterior on a loop comes back from its file: tables of variables and of adjacent pairs, intervals, evidence, totals."""
    asked = problem(RING, "gaussian", 200, seed=1)
    post = hc.infer(asked, engine)
    post.save(tmp_path / "ring.nc", draw_flows=True)
    back = Posterior.load(tmp_path / "ring.nc")
    assert back.log_evidence == pytest.approx(post.log_evidence, rel=1e-12)
    for v in RING.variables:
        for what in ("mean", "sd", "median"):
            np.testing.assert_allclose(getattr(back.node(v), what), getattr(post.node(v), what), atol=1e-9)
        ends = [p.node(v).interval(0.9) for p in (back, post)]
        np.testing.assert_array_equal(ends[0].lower, ends[1].lower)
        np.testing.assert_array_equal(ends[0].upper, ends[1].upper)
    for pair in (("a", "b 2"), ("d", "c"), ("a", "d")):
        found, kept = back.edge(*pair), post.edge(*pair)
        np.testing.assert_allclose(found.mean, kept.mean, atol=1e-9)
        np.testing.assert_allclose(found.sd, kept.sd, atol=1e-9)
        assert found.mean.dims == kept.mean.dims
    assert {("c", "d"), ("a", "b 2"), ("d",)} <= set(back.sample())
    one = {"d": [0, 1, 0]}
    assert back.total(one) == post.total(one)
    several = {"a": [1, 1, 0], ("c", "d"): np.eye(3)}
    before, after = post.total(several), back.total(several)
    assert after.mean == pytest.approx(before.mean, abs=1e-9)
    assert after.sd == pytest.approx(before.sd, rel=0.3)  # four standard errors of 100 draws


def test_weights_of_a_loop_are_learned():
    """A log-linear model of a ring from noisy two-way tables: the weights are within four standard errors of the true ones."""
    sizes, pairs = dict.fromkeys("abcd", 2), [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    agree = {pair: {pair: np.eye(2)} for pair in pairs}
    true = np.array([1.0, -0.6, 0.4, 0.8])
    model = hc.DiscreteModel(sizes, {pair: w * np.eye(2) for pair, w in zip(pairs, true, strict=True)})
    world = model.sample(20_000, rng=3)
    rng, seen = np.random.default_rng(1), []
    for u, v in pairs:
        k, j = "abcd".index(u), "abcd".index(v)
        table = np.zeros((2, 2))
        np.add.at(table, (world[:, k], world[:, j]), 1)
        seen.append(hc.Gaussian(table + rng.normal(0, 20, (2, 2)), sd=20, on=(u, v)))
    flat = hc.DiscreteModel(sizes, {pair: np.zeros((2, 2)) for pair in pairs})
    fit = hc.fit(
        hc.learn.LogLinear({f"{u}{v}": agree[u, v] for u, v in pairs}), hc.Problem(flat, 20_000, seen)
    )
    errors = fit.standard_errors.values
    assert (np.abs(fit.parameters.values - true) <= 4 * errors).all()
    assert (errors < 0.3).all()


@pytest.mark.parametrize("engine", ["PathGibbs", "TableBP"])
def test_engines_without_candidates_on_networks_say_so(engine):
    """A network of unknown size has no state in which a candidate could be absent: refused in words that name who can."""
    asked = hc.Problem(RING, hc.Between(2, 4), hc.Poisson([1.0, 2.0, 0.0], on=RING.variables[0]))
    with pytest.raises(ValueError, match=r"on networks.*use TiltedEP .*Enumerate"):
        hc.infer(asked, engine, rng=1)
    assert hc.infer(asked, "Enumerate").status.good
