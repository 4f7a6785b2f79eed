"""Moments on any junction tree: equal to those of clique covariances, to sums over all configurations, and to their plan."""

from __future__ import annotations

import importlib.resources

import numpy as np
import pytest
from tests.enumeration import Enumeration
from tests.graphs import awkward_models
from tests.structure.cases import N, Where, layout, sites_and_values
from tests.structure.clique_covariances import CliqueCovariances

from headcount.individual import DiscreteModel, ModelError
from headcount.structure import (
    JunctionDrawsStructure,
    JunctionStructure,
    KnownCounts,
    Sampling,
    Solver,
    kind_of,
    structure_for,
)
from headcount.structure._clique_passes import CliquePasses, passes_cost

LOOPY = {name: model for name, model in awkward_models().items() if model.rooted() is None}


def network(name: str) -> DiscreteModel:
    """A network of the bnlearn repository, as pgmpy ships it."""
    pytest.importorskip("pgmpy")
    return DiscreteModel.from_bif(
        importlib.resources.files("pgmpy") / "utils" / "example_models" / f"{name}.bif.gz"
    )


def random_network(seed: int, *, variables: int = 7) -> DiscreteModel:
    """Factors over random triples, some of them with zeros, in one or several parts."""
    rng = np.random.default_rng(seed)
    sizes = {f"v{k}": int(rng.integers(2, 4)) for k in range(variables)}
    names, factors = list(sizes), []
    for _ in range(variables):
        scope = tuple(rng.choice(names, size=int(rng.integers(2, 4)), replace=False).tolist())
        table = rng.normal(size=[sizes[v] for v in scope])
        table[rng.random(table.shape) < 0.15] = -np.inf
        factors.append((scope, table))
    return DiscreteModel(sizes, factors)


def thirds(model, rng):
    """Every third variable, and one table of a clique."""
    sites = [Where((v,), np.arange(model.size((v,))[0])) for v in model.variables[::3]]
    clique = tuple(max(model.junction_tree.cliques, key=len)[:2])
    return [*sites, Where(clique, np.arange(int(np.prod(model.size(clique)))))]


@pytest.mark.parametrize("name", ["survey", "child", "alarm", "hailfinder"])
def test_networks_have_the_moments_of_clique_covariances(name):
    """Means, sds, log Z, tables of cliques and covariances of a published network equal those from covariances of cliques to 1e-8."""
    model = network(name)
    sites, tau, nu = sites_and_values(model, 1, thirds)
    made = [kind(model, 2000.0, sites) for kind in (JunctionStructure, CliqueCovariances)]
    ours, theirs = (one.solve(tau, nu) for one in made)
    for a, b in zip((*ours.mean, *ours.variance), (*theirs.mean, *theirs.variance), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-8)
    assert ours.log_z == pytest.approx(theirs.log_z, abs=1e-8)
    here, there = (one.field(tau, nu) for one in made)
    cliques = model.junction_tree.cliques
    for scope in [*((v,) for v in model.variables), cliques[0], cliques[-1]]:
        np.testing.assert_allclose(here.mean(scope), there.mean(scope), rtol=0, atol=1e-8)
        np.testing.assert_allclose(
            np.sqrt(here.variance(scope)), np.sqrt(there.variance(scope)), rtol=0, atol=1e-8
        )
    far = cliques[0], cliques[-1]
    np.testing.assert_allclose(here.covariance(*far), there.covariance(*far), rtol=0, atol=1e-8)


SPREADS = [0.0, 1.5 * N]
"""Variance of the number of individuals: known, and 1.5 times that of a Poisson number."""


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("seed", range(12))
def test_random_networks_have_the_covariance_of_all_configurations(seed, spread):
    """cov = E[N] (P(a, b) − P(a) P(b)) + Var[N] P(a) P(b), summed over all configurations, wherever the zeros are."""
    model = random_network(seed)
    oracle = Enumeration.from_model(model)
    sites = layout(model, np.random.default_rng(seed))
    passes = CliquePasses(model.clique_law, model.possible, N, sites, spread)
    found = passes.covariance()
    mean, starts = passes.mean, np.cumsum([0, *map(len, sites)])
    for i, a in enumerate(sites):
        for j, b in enumerate(sites):
            rows, columns = (
                s.weights.toarray() if s.index is None else np.eye(int(np.prod(model.size(s.scope))))[s.index]
                for s in (a, b)
            )
            joint = rows @ oracle.joint_marginal(a.scope, b.scope) @ columns.T
            part = slice(*starts[i : i + 2]), slice(*starts[j : j + 2])
            both = np.outer(mean[part[0]], mean[part[1]])
            expected = N * (joint - both) + spread * both
            np.testing.assert_allclose(found[part], expected, rtol=0, atol=1e-11 * (N + spread))
    np.testing.assert_allclose(passes.variance(), np.diag(found), rtol=0, atol=1e-11 * (N + spread))


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("seed", range(6))
def test_tables_of_variables_that_share_no_clique(seed, spread):
    """Any pair of variables has the moments that conditioning the covariance of all configurations on what is seen gives."""
    model = random_network(seed)
    oracle, rng = Enumeration.from_model(model), np.random.default_rng(seed)
    sites = [Where((v,), np.arange(model.size((v,))[0])) for v in model.variables[:3]]
    tau, nu = [np.full(len(s), 0.2) for s in sites], [rng.normal(size=len(s)) for s in sites]
    field = JunctionStructure(model, N, sites, spread=spread).field(tau, nu)
    seen = [s.scope for s in sites]
    tree, pairs = model.junction_tree, [(a, b) for a in model.variables for b in model.variables if a != b]
    far = [pair for pair in pairs if tree.covering(pair) is None]
    for scope in [*(far or pairs)[:4], (model.variables[-1],), tree.cliques[-1]]:

        def covariance(a, b):
            both = np.outer(*(oracle.marginal(s).ravel() for s in (a, b)))
            return N * (oracle.joint_marginal(a, b) - both) + spread * both

        k = np.block([[covariance(a, b) for b in seen] for a in seen])
        c = np.hstack([covariance(scope, b) for b in seen])
        precision = np.diag(np.concatenate(tau))
        gain = c @ precision @ np.linalg.inv(np.eye(len(k)) + k @ precision)
        shape = model.size(scope)
        expected = np.diag(covariance(scope, scope) - gain @ c.T)
        near = {"rtol": 0, "atol": 1e-10 * (1.0 + spread / N)}
        np.testing.assert_allclose(field.variance(scope), expected.reshape(shape), **near)
        mean = c @ np.linalg.inv(np.eye(len(k)) + precision @ k) @ np.concatenate(nu)
        np.testing.assert_allclose(field.mean(scope), mean.reshape(shape), **near)
        first = tuple(model.variables[:1])
        gain = np.linalg.solve(np.eye(len(k)) + precision @ k, precision)
        across = covariance(scope, first) - c @ gain @ np.hstack([covariance(first, b) for b in seen]).T
        np.testing.assert_allclose(field.covariance(scope, first), across, **near)


@pytest.mark.parametrize("name", ["alarm", "hailfinder"])
def test_no_more_columns_pass_a_separator_than_it_has_states(name):
    """However many counts lie behind a separator, its states are all that is carried through it, and some carry more counts than that."""
    model = network(name)
    sites, _, _ = sites_and_values(model, 2, thirds)
    passes = CliquePasses(model.clique_law, model.possible, N, sites)
    passes.collect()
    spared = 0
    for clique, columns in passes.up.items():
        states = len(passes.margin(clique, passes.above[clique][1]))
        if columns is not None:
            assert columns.width(states) <= states
            spared += len(columns.where) - columns.width(states)
    assert spared > 0


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("name", LOOPY)
def test_draws_have_the_posterior_moments(name, spread):
    """Draws honour exact counts to rounding, agree on separators, and have the field's means and covariances."""
    model = LOOPY[name]
    first, last = (model.variables[0],), (model.variables[-1],)
    seen = slice(None) if spread == 0 else slice(1)  # one cell of a variable does not tell N
    sites = [Where(v, np.arange(model.size(v)[0])[seen]) for v in (first, last)]
    exact = np.zeros(model.size(first)[0])
    exact[:2] = 1.5, -1.5
    if (model.marginal(first) == 0).any():
        exact[:] = 0.0
    known = KnownCounts({0: exact}, {}) if spread == 0 else None
    structure = JunctionStructure(model, N, sites, known, spread=spread)
    tau = [np.zeros(len(s)) for s in sites]
    tau[1] += 0.1
    field = structure.field(tau, [0.3 * t for t in tau])
    size = 4000
    drawn = field.sample(size, rng=np.random.default_rng(1))
    tree = model.junction_tree
    home = tree.cliques[tree.covering(first)]
    if known is not None:
        np.testing.assert_allclose(
            model.domain(home).project(drawn[home], first), np.tile(exact, (size, 1)), rtol=0, atol=1e-9
        )
    for a, b, separator in tree.edges:
        ends = [model.domain(c).project(drawn[c], separator) for c in (tree.cliques[a], tree.cliques[b])]
        np.testing.assert_allclose(*ends, rtol=0, atol=1e-9)
    for clique in tree.cliques:
        flat = drawn[clique].reshape(size, -1)
        covariance = field.covariance(clique, clique)
        scale = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2)
        assert (np.abs(np.cov(flat.T) - covariance) <= 6 * scale / np.sqrt(size) + 1e-8).all()
        error = np.sqrt(np.diag(covariance).clip(0) / size)
        assert (np.abs(flat.mean(axis=0) - field.mean(clique).ravel()) <= 6 * error + 1e-8).all()


@pytest.mark.parametrize("name", ["alarm", "hailfinder", "insurance"])
def test_the_plan_knows_the_columns(name):
    """Numbers that the plan foresees in columns on the way up are those that are held there, to a factor of 1.5."""
    model = network(name)
    sites, _, _ = sites_and_values(model, 2, thirds)
    passes = CliquePasses(model.clique_law, model.possible, N, sites)
    passes.collect()
    held = sum(k.bytes for k in passes.up.values() if k is not None) / 8
    up, down = passes_cost(model.possible, tuple((s.scope, len(s)) for s in sites))
    assert 1 / 1.5 < up.numbers / held < 1.5
    assert up.entries == sum(model.possible.counts)
    assert down.sparse > 0


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("exact", [False, True])
def test_draws_in_place_of_matrices(exact, spread):
    """Means and covariances are those with matrices to 1e-6; sds and log Z of draws within their stated errors; so are draws."""
    model = network("alarm")
    sites, tau, nu = sites_and_values(model, 1, thirds)
    known = KnownCounts({0: np.zeros(len(sites[0]))}, {}) if exact else None
    with_matrices = JunctionStructure(model, N, sites, known, spread=spread)
    sampling = Sampling(sweep=32, final=192)
    without = JunctionDrawsStructure(model, N, sites, known, spread=spread, sampling=sampling)
    for a, b in zip(with_matrices.solve(tau, nu).mean, without.solve(tau, nu).mean, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
    here, there = without.field(tau, nu), with_matrices.field(tau, nu)
    pair = tuple(model.junction_tree.cliques[0][:2])
    off, errors = [], []
    for scope in [*((v,) for v in model.variables), pair]:
        np.testing.assert_allclose(here.mean(scope), there.mean(scope), rtol=0, atol=1e-6)
        sd = np.sqrt(there.variance(scope))
        live = sd > 1e-3
        off.append((np.sqrt(here.variance(scope)) - sd)[live] / sd[live])
        errors.append(here.mc_error(scope)[live] / sd[live])
        assert (here.variance(scope)[sd == 0] < 1e-8).all()
    rms, stated = (np.sqrt(np.mean(np.concatenate(part) ** 2)) for part in (off, errors))
    assert rms < 1.5 * stated < 0.1
    np.testing.assert_allclose(
        here.covariance(pair, sites[-1].scope), there.covariance(pair, sites[-1].scope), atol=1e-6
    )
    rows = np.arange(4)
    np.testing.assert_allclose(here.site_covariance(rows), there.site_covariance(rows), rtol=0, atol=1e-6)
    if not exact:
        log_z, error = here.log_z
        assert abs(log_z - with_matrices.solve(tau, nu).log_z) < 4 * error
    drawn = model.domain(model.junction_tree.cliques[0]).project(
        here.sample(2000, rng=np.random.default_rng(1))[model.junction_tree.cliques[0]], pair
    )
    sd = np.sqrt(there.variance(pair))
    assert (np.abs(drawn.mean(axis=0) - there.mean(pair)) <= 5 * sd / np.sqrt(2000) + 1e-6).all()
    assert (np.abs(drawn.std(axis=0) - sd) <= 5 * sd / np.sqrt(4000) + 1e-6).all()


def test_many_counts_are_solved_without_matrices():
    """Above `MOST_COUNTS` observed counts a network has the structure without matrices; correlated readings are refused there."""
    model = LOOPY["four-cycle"]
    kinds = [
        kind_of(None, wanted, counts=counts)
        for wanted, counts in (("auto", 5000), ("auto", 5001), ("tree", 9999))
    ]
    assert kinds == ["tree", "matrix-free", "tree"]
    site = Where((model.variables[0],), np.arange(2))
    made = structure_for(model, N, [site], solver=Solver("matrix-free"))
    assert isinstance(made, JunctionDrawsStructure)
    with pytest.raises(ModelError, match="correlated errors"):
        JunctionDrawsStructure(model, N, [site], KnownCounts({}, {0: (np.eye(2), np.zeros(2))}))
