"""Individuals that move together, through the engines."""

from __future__ import annotations

import numpy as np
import pytest
from tests.engines.cases import MODELS, problem

import headcount as hc
from headcount import simulate
from headcount.engines import (
    MAP,
    NLBP,
    ClosedForm,
    EdgeEP,
    Enumerate,
    Gibbs,
    Laplace,
    PathGibbs,
    TiltedEP,
    select,
)
from headcount.individual import MarkovChain, Tree

N = 4000
ROOTED = [name for name, model in MODELS.items() if isinstance(model, (MarkovChain, Tree))]


def gaussian_problem(name: str, *, sd: float, dispersion=None) -> hc.Problem:
    """Readings of some entries of every clique."""
    model, rng = MODELS[name], np.random.default_rng(7)
    observations = []
    for clique in model.junction_tree.cliques:
        expected = N * model.marginal(tuple(clique))
        y = expected + rng.normal(0, 10.0, expected.shape)
        y[rng.random(y.shape) < 0.3] = np.nan
        y[expected == 0] = np.nan
        if np.isfinite(y).any():
            observations.append(hc.Gaussian(y, sd=sd, on=tuple(clique) if len(clique) > 1 else clique[0]))
    return hc.Problem(model, N, observations, dispersion=dispersion)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("engine", [ClosedForm(), TiltedEP(tolerance=1e-10), MAP(tolerance=1e-12), Laplace()])
def test_flocks_read_with_an_sd_are_individuals_read_with_a_smaller_one(name, engine):
    """n = c m: with flocks of c and readings of sd s, means are those of c = 1 and sd s/√c, and covariances c times theirs."""
    flocks = hc.infer(gaussian_problem(name, sd=20.0, dispersion=hc.Flocks(4)), engine)
    alone = hc.infer(gaussian_problem(name, sd=10.0), engine)
    for clique in MODELS[name].junction_tree.cliques:
        scope = tuple(clique)
        np.testing.assert_allclose(
            flocks.beliefs.mean(scope), alone.beliefs.mean(scope), rtol=0, atol=2e-8 * N, err_msg=str(scope)
        )
        if flocks.beliefs.has_spread:
            np.testing.assert_allclose(
                flocks.beliefs.variance(scope), 4 * alone.beliefs.variance(scope), rtol=1e-6, atol=1e-8 * N
            )
            np.testing.assert_allclose(
                flocks.beliefs.covariance(scope, scope),
                4 * alone.beliefs.covariance(scope, scope),
                rtol=1e-6,
                atol=1e-8 * N,
            )


@pytest.mark.parametrize("name", MODELS)
def test_the_prior_of_flocks_has_c_times_the_multinomial_covariance(name):
    """Cov n = c N (diag μ − μ μᵀ) for every clique's table."""
    model = MODELS[name]
    prior = hc.infer(hc.Problem(model, N, dispersion=hc.Flocks(5)))
    for clique in model.junction_tree.cliques:
        mu = model.marginal(tuple(clique)).ravel()
        np.testing.assert_allclose(
            prior.clique(*clique).covariance(),
            5 * N * (np.diag(mu) - np.outer(mu, mu)),
            rtol=0,
            atol=1e-9 * N,
        )


@pytest.mark.parametrize("name", ROOTED)
@pytest.mark.parametrize("noise", ["poisson", "binomial", "exact"])
@pytest.mark.parametrize("engine", [TiltedEP(tolerance=1e-9), MAP(tolerance=1e-11)])
def test_factors_of_one_change_nothing(name, noise, engine):
    """phi → 1 by the paths of dispersion is today's answer to 1e-10 N."""
    plain = problem(name, noise, 400)
    nearly = plain.with_dispersion(hc.Company(phi=1 + 1e-13, initial=1 + 2e-13))
    assert nearly.disperses
    a, b = hc.infer(plain, engine, strict=False), hc.infer(nearly, engine, strict=False)
    for clique in plain.model.junction_tree.cliques:
        scope = tuple(clique)
        np.testing.assert_allclose(b.beliefs.mean(scope), a.beliefs.mean(scope), rtol=0, atol=1e-10 * 400)
        if a.beliefs.has_spread:
            np.testing.assert_allclose(
                b.beliefs.variance(scope), a.beliefs.variance(scope), rtol=1e-8, atol=1e-9 * 400
            )


@pytest.mark.parametrize("name", ROOTED)
def test_company_conditions_its_own_covariance(name):
    """Posterior of company given Gaussian readings = dense conditioning of its prior covariance."""
    model = MODELS[name]
    tree = model.rooted()
    rng = np.random.default_rng(3)
    phi = {v: rng.uniform(0.5, 6.0, tree.sizes[tree.parents[k]]) for k, v in enumerate(tree.variables) if k}
    company = hc.Company(phi=phi, initial=3.0)
    asked = gaussian_problem(name, sd=15.0, dispersion=company)
    prior = hc.infer(hc.Problem(model, N, dispersion=company), ClosedForm())
    post = hc.infer(asked, ClosedForm())
    sites = asked.sites
    k = np.block(
        [[a.margin(b.margin(prior.beliefs.covariance(a.scope, b.scope)).T).T for b in sites] for a in sites]
    )
    gap = np.concatenate([s.noise.counts - s.margin(N * model.marginal(s.scope).ravel()) for s in sites])
    solve = np.linalg.inv(k + 15.0**2 * np.eye(len(k)))
    for clique in model.junction_tree.cliques:
        scope = tuple(clique)
        cross = np.hstack([s.margin(prior.beliefs.covariance(scope, s.scope)) for s in sites])
        mean = N * model.marginal(scope).ravel() + cross @ solve @ gap
        covariance = prior.beliefs.covariance(scope, scope) - cross @ solve @ cross.T
        np.testing.assert_allclose(post.beliefs.mean(scope).ravel(), mean, rtol=0, atol=1e-8 * N)
        np.testing.assert_allclose(post.beliefs.covariance(scope, scope), covariance, rtol=0, atol=1e-8 * N)
        np.testing.assert_allclose(
            post.beliefs.variance(scope).ravel(), np.diagonal(covariance), rtol=0, atol=1e-8 * N
        )


def test_rho_is_the_variance_of_a_dirichlet_multinomial():
    """All N start in one cell: Var n_j = N p_j (1 − p_j) (1 + (N − 1) ρ)."""
    p = np.array([0.2, 0.5, 0.3])
    model = hc.MarkovChain([1.0, 0.0, 0.0], [p, p, p], length=2)
    prior = hc.infer(hc.Problem(model, N, dispersion=hc.Company(rho=0.03)))
    np.testing.assert_allclose(prior.node(1).sd ** 2, N * p * (1 - p) * (1 + (N - 1) * 0.03), rtol=1e-12)


def test_an_unknown_initial_law_is_a_factor_at_the_root():
    """Dirichlet(α) initial law: Var n_i = N μ (1 − μ) (1 + (N − 1) ρ₀), and moves add their multinomial noise."""
    model = hc.MarkovChain([0.4, 0.6], np.eye(2), length=2)
    prior = hc.infer(hc.Problem(model, N, dispersion=hc.Company(rho=0.0, initial=0.1)))
    for time in (0, 1):
        np.testing.assert_allclose(prior.node(time).sd ** 2, N * 0.24 * (1 + (N - 1) * 0.1), rtol=1e-12)


@pytest.mark.parametrize("engine", [TiltedEP(), MAP(), Laplace(), ClosedForm()])
def test_rho_is_read_at_the_answers_own_counts(engine):
    """phi_i = 1 + (n̂_i − 1) ρ holds at the posterior means: a prior far from the data does not set the scatter."""
    model = hc.MarkovChain([0.5, 0.5], [[0.7, 0.3], [0.2, 0.8]], length=3)
    seen = [hc.Gaussian(np.array([N * 0.9, N * 0.1]), sd=30.0, on=0)]
    asked = hc.Problem(model, N, seen, dispersion=hc.Company(rho=0.02))
    post = hc.infer(asked, engine)
    counts = {v: post.beliefs.mean((v,)) for v in (0, 1)}
    phi = {v + 1: 1 + (counts[v] - 1) * 0.02 for v in (0, 1)}
    fixed = hc.infer(asked.with_dispersion(hc.Company(phi=phi)), engine)
    assert post.diagnostics["phi_rounds"] > 1
    np.testing.assert_allclose(post.beliefs.mean((1, 2)), fixed.beliefs.mean((1, 2)), rtol=1e-3)
    if post.beliefs.has_spread:
        np.testing.assert_allclose(post.node(2).sd, fixed.node(2).sd, rtol=1e-3)


def test_whole_number_draws_scatter_as_flocks_do():
    """400 whole-number draws: variances of nodes and flows within 25 % of the Gaussian's (sampling error 7 %)."""
    model = hc.MarkovChain([0.5, 0.5], [[0.7, 0.3], [0.2, 0.8]], length=3)
    asked = hc.Problem(model, N, [hc.Poisson([1000.0, 1000.0], rate=0.5, on=0)], dispersion=hc.Flocks(8))
    post = hc.infer(asked)
    drawn = post.sample(400, rng=1, integer=True)
    for scope, values in drawn.items():
        assert (values == np.rint(values)).all()
        np.testing.assert_allclose(values.var(axis=0), post.clique(*scope).sd.values ** 2, rtol=0.25)


@pytest.mark.parametrize(
    "engine", [EdgeEP(), NLBP(), Gibbs(), PathGibbs(), Enumerate()], ids=lambda engine: engine.name
)
def test_engines_of_independent_individuals_say_so(engine):
    """Refused with the name of the engine and of one that takes it."""
    asked = problem("chain", "poisson", 4).with_dispersion(hc.Flocks(2))
    with pytest.raises(ValueError, match=rf"{engine.name} takes independent.*TiltedEP"):
        hc.infer(asked, engine, rng=1)
    with pytest.raises(ValueError, match=rf"{engine.name} takes independent"):
        engine.run(asked, rng=np.random.default_rng(1), progress=False)


def test_the_matrix_free_structure_says_so():
    """Asked for by name it is refused; by default matrices are formed."""
    asked = problem("chain", "poisson", 40).with_dispersion(hc.Flocks(2))
    with pytest.raises(ValueError, match="these move together"):
        hc.infer(asked, TiltedEP(structure="matrix-free"))


def test_no_list_of_independent_individuals_is_chosen():
    """Tiny populations are listed when independent, and not when they move together."""
    plain = problem("chain", "poisson", 2)
    assert select(plain).engine.name == "Enumerate"
    assert select(plain.with_dispersion(hc.Flocks(2))).engine.name == "TiltedEP"


def test_a_problem_refuses_a_dispersion_that_does_not_fit():
    """Wrong kind, a flock above N, company without direction, factors of other states or steps."""
    chain, cycle = MODELS["chain"], MODELS["four-cycle"]
    with pytest.raises(hc.ProblemError, match=r"dispersion: must be None, Flocks\(5\)"):
        hc.Problem(chain, 10, dispersion=5)
    with pytest.raises(hc.ProblemError, match="larger than the population, 10"):
        hc.Problem(chain, 10, dispersion=hc.Flocks(11))
    with pytest.raises(hc.ProblemError, match=r"in no particular direction.*Flocks\(c\)"):
        hc.Problem(cycle, 10, dispersion=hc.Company(phi=2))
    with pytest.raises(hc.ProblemError, match=r"shape \(2,\).*per state of 'mon' \(3\)"):
        hc.Problem(chain, 10, dispersion=hc.Company(phi=[1.0, 2.0]))
    with pytest.raises(hc.ProblemError, match="names 'mon', which no move leads to"):
        hc.Problem(chain, 10, dispersion=hc.Company(phi={"mon": 2.0}))


def test_a_problem_keeps_its_dispersion():
    """Another model, other noise: the same dispersion."""
    asked = problem("chain", "poisson", 40).with_dispersion(hc.Company(rho=0.1))
    assert asked.with_model(asked.model).dispersion == hc.Company(rho=0.1)
    assert asked.with_noise(lambda noise: noise).dispersion == hc.Company(rho=0.1)


def test_intervals_of_flows_hold_where_rows_vary():
    """Of 40 worlds with ρ = .01 and exact margins, 90 % intervals hold at least 70 % of the flows with company, below 40 % without.

    Were all flows of a world held or missed together, a share below .7 would have probability 3e-4.
    """
    model = hc.MarkovChain([0.5, 0.3, 0.2], [[0.7, 0.2, 0.1], [0.15, 0.7, 0.15], [0.1, 0.3, 0.6]], length=2)
    company, held = hc.Company(rho=0.01), []
    for seed in range(40):
        world = simulate.population(model, 100_000, dispersion=company, observe=simulate.exact(), rng=seed)
        for dispersion in (company, None):
            asked = hc.Problem(model, 100_000, [hc.Exact(world.observed)], dispersion=dispersion)
            lower, upper = hc.infer(asked).interval_tables((0, 1), 0.9)
            held.append(((world.flows[0] >= lower) & (world.flows[0] <= upper)).mean())
    assert np.mean(held[::2]) >= 0.7
    assert np.mean(held[1::2]) < 0.4
