"""Laws of inference, over the table of engines, awkward graphs and noises, against full enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from reproduction.rivals import NLBP, EdgeEP
from tests.graphs import awkward_models
from tests.structure.dense import DenseStructure

import headcount as hc
from headcount.engines import (
    MAP,
    ClosedForm,
    Enumerate,
    Laplace,
    NotConvergedError,
    Status,
    TiltedEP,
    select,
)
from headcount.observe import Problem
from headcount.structure import KnownCounts

N = 4
GRAPHS = sorted(awkward_models())


def readings(model, kind, *, population=N, seed=1):
    """Two of every three variables seen through one noise."""
    rng = np.random.default_rng(seed)
    people = model.sample(population, rng=rng)
    seen = []
    for k, v in enumerate(model.variables):
        if k % 3 == 2:
            continue
        n = np.bincount(people[:, k], minlength=len(model.states[v])).astype(float)
        noisy = {
            "poisson": lambda n=n, v=v: hc.Poisson(rng.poisson(2 * n).astype(float), rate=2.0, on=v),
            "gaussian": lambda n=n, v=v: hc.Gaussian(n + rng.normal(size=n.size), sd=1.0, on=v),
            "exact": lambda n=n, v=v: hc.Exact(n, on=v),
            "negative binomial": lambda n=n, v=v: hc.NegativeBinomial(
                rng.poisson(n).astype(float), dispersion=3.0, on=v
            ),
            "binomial": lambda n=n, v=v: hc.Binomial(
                rng.binomial(n.astype(int), 0.6).astype(float), detection=0.6, on=v
            ),
            "laplace": lambda n=n, v=v: hc.LaplaceNoise(
                np.round(n + rng.laplace(size=n.size)), scale=1.0, on=v
            ),
        }
        seen.append(noisy[kind]())
    return Problem(model, population, seen)


def distance(posterior, reference):
    """The worst clique table's relative L1 distance of means."""
    cliques = [tuple(c) for c in reference.problem.model.junction_tree.cliques]
    total = reference.problem.population
    return max(
        float(np.abs(posterior.beliefs.mean(c) - reference.beliefs.mean(c)).sum()) / total for c in cliques
    )


@pytest.mark.parametrize("kind", ["poisson", "gaussian", "negative binomial", "binomial", "laplace"])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_default_is_near_enumeration_or_says_so(name, kind):
    """With four individuals, where a Gaussian is at its worst, TiltedEP's means are within 15 % of the exact ones, or it raises."""
    problem = readings(awkward_models()[name], kind)
    got = hc.infer(problem, TiltedEP(), strict=False)
    assert not got.status.good or distance(got, hc.infer(problem, Enumerate())) < 0.15


@pytest.mark.parametrize("kind", ["poisson", "gaussian", "exact", "negative binomial", "binomial", "laplace"])
@pytest.mark.parametrize("name", GRAPHS)
def test_map_is_near_enumeration_and_its_gap_is_closed(name, kind):
    """The most probable counts are within 25 % of the exact means at N = 4; duality gap below 1e-4 nats; means ≥ 0, consistent."""
    problem = readings(awkward_models()[name], kind)
    got = hc.infer(problem, MAP())
    assert distance(got, hc.infer(problem, Enumerate())) < 0.25
    assert abs(got.diagnostics["gap"]) < 1e-4
    check_promises(got)


def check_promises(posterior):
    """Means ≥ 0, every table sums to N, and tables agree on the variables they share, to 1e-9 N."""
    model, total = posterior.problem.model, posterior.problem.population
    for clique in model.junction_tree.cliques:
        table = posterior.beliefs.mean(tuple(clique))
        assert table.min() >= 0
        assert table.sum() == pytest.approx(total, abs=1e-9 * total)
        for k, v in enumerate(clique):
            other = tuple(j for j in range(len(clique)) if j != k)
            np.testing.assert_allclose(
                table.sum(axis=other), posterior.beliefs.mean((v,)), rtol=0, atol=1e-9 * total
            )


@pytest.mark.parametrize("kind", ["poisson", "negative binomial", "binomial", "laplace"])
@pytest.mark.parametrize("name", GRAPHS)
def test_promises_of_the_default(name, kind):
    """The default's means are marginals of a law, whatever the noise and the graph (N = 40)."""
    problem = readings(awkward_models()[name], kind, population=40, seed=3)
    got = hc.infer(problem, TiltedEP(), strict=False)
    assert got.promises.non_negative
    assert got.promises.consistent
    check_promises(got)


@pytest.mark.parametrize("name", GRAPHS)
def test_no_observation_is_the_prior(name):
    """Without data every Gaussian engine and the MAP return Nμ, and the Gaussian ones the CGM's variances."""
    model = awkward_models()[name]
    problem = Problem(model, 30)
    for engine in (TiltedEP(), Laplace(), ClosedForm(), MAP(), None):
        got = hc.infer(problem, engine)
        for clique in model.junction_tree.cliques:
            mu = model.marginal(tuple(clique))
            np.testing.assert_allclose(got.beliefs.mean(tuple(clique)), 30 * mu, rtol=0, atol=1e-9)
            variance = got.beliefs.variance(tuple(clique))
            if variance is not None:
                np.testing.assert_allclose(variance, 30 * mu * (1 - mu), rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", GRAPHS)
def test_closed_form_is_dense_conditioning(name):
    """Exact, Gaussian and correlated readings with unobserved nodes: the one pass equals dense conditioning, evidence too."""
    model = awkward_models()[name]
    rng = np.random.default_rng(5)
    first, last = model.variables[0], model.variables[-1]
    n = np.bincount(model.sample(50, rng=rng)[:, 0], minlength=len(model.states[first])).astype(float)
    width = len(model.states[last])
    root = rng.normal(size=(width, width))
    spread = root @ root.T + 3 * np.eye(width)
    y = 50 * model.marginal((last,)) + rng.normal(size=width)
    observed = [hc.Exact(n, on=first)] + (
        [hc.Gaussian(y, covariance=spread, on=last)] if last != first else []
    )
    problem = Problem(model, 50, observed)
    got = hc.infer(problem, ClosedForm())
    gap = {0: n - 50 * model.marginal((first,))}
    inverse = np.linalg.inv(spread)
    given = {1: (inverse, inverse @ (y - 50 * model.marginal((last,))))} if last != first else {}
    dense = DenseStructure(model, 50, problem.sites, KnownCounts(gap, given))
    nothing = [np.zeros(len(s)) for s in problem.sites]
    field = dense.field(nothing, nothing)
    for clique in model.junction_tree.cliques:
        scope = tuple(clique)
        np.testing.assert_allclose(
            got.beliefs.mean(scope), 50 * model.marginal(scope) + field.mean(scope), rtol=0, atol=1e-6
        )
        np.testing.assert_allclose(got.beliefs.variance(scope), field.variance(scope), rtol=0, atol=1e-6)


def birds(side=4, population=480, **options):
    return hc.simulate.birds(side=side, population=population, rng=1, **options)


def test_edge_ep_is_the_joint_laplace():
    """The paper's sweeps end in the joint mode, to 1e-6 N; with Gaussian noise both are the closed form."""
    world = birds()
    problem = Problem(world.model, 480, hc.Poisson(world.observed))
    sweeps, joint = hc.infer(problem, EdgeEP()), hc.infer(problem, Laplace())
    for t in range(19):
        np.testing.assert_allclose(
            sweeps.beliefs.mean((t, t + 1)), joint.beliefs.mean((t, t + 1)), rtol=0, atol=1e-6 * 480
        )
    smooth = Problem(world.model, 480, hc.Gaussian(world.observed, sd=3.0))
    closed = hc.infer(smooth, ClosedForm())
    for engine in (Laplace(), EdgeEP()):
        got = hc.infer(smooth, engine)
        np.testing.assert_allclose(got.beliefs.mean((7,)), closed.beliefs.mean((7,)), rtol=0, atol=1e-7 * 480)


def test_nlbp_is_map():
    """Damped message passing ends where the dual does."""
    world = birds()
    problem = Problem(world.model, 480, hc.Poisson(world.observed))
    a, b = hc.infer(problem, NLBP()), hc.infer(problem, MAP())
    for t in range(20):
        np.testing.assert_allclose(a.beliefs.mean((t,)), b.beliefs.mean((t,)), rtol=0, atol=1e-6 * 480)


@pytest.mark.parametrize("engine", [TiltedEP(), MAP(), Laplace()], ids=lambda e: e.name)
def test_labels_and_direction_do_not_matter(engine):
    """Permuting cells, or reversing time (Bayes' rule), changes nothing but the order of the answer."""
    rng = np.random.default_rng(7)
    law, moves = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4), size=(3, 4))
    model = hc.MarkovChain(law, list(moves))
    counts = rng.poisson(200 * np.array([model.marginal((t,)) for t in range(4)])).astype(float)
    base = hc.infer(Problem(model, 200, hc.Poisson(counts)), engine)
    order = np.array([2, 0, 3, 1])
    moved = hc.MarkovChain(law[order], [m[np.ix_(order, order)] for m in moves])
    shuffled = hc.infer(Problem(moved, 200, hc.Poisson(counts[:, order])), engine)
    back = [model.joint_marginal((t + 1,), (t,)) / model.marginal((t + 1,))[:, None] for t in (2, 1, 0)]
    reverse = hc.infer(
        Problem(hc.MarkovChain(model.marginal((3,)), back), 200, hc.Poisson(counts[::-1])), engine
    )
    for t in range(4):
        mean = base.beliefs.mean((t,))
        np.testing.assert_allclose(shuffled.beliefs.mean((t,)), mean[order], rtol=0, atol=2e-5)
        np.testing.assert_allclose(reverse.beliefs.mean((3 - t,)), mean, rtol=0, atol=2e-5)


@pytest.mark.parametrize("engine", [TiltedEP(), MAP(), Laplace()], ids=lambda e: e.name)
def test_an_unobserved_time_in_between_changes_nothing(engine):
    """Splitting a step in two with nobody looking in the middle leaves the answer as it was."""
    rng = np.random.default_rng(8)
    law, half = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3), size=3)
    rest = rng.dirichlet(np.ones(3), size=3)
    y = rng.poisson(40, size=(2, 3)).astype(float)
    direct = hc.infer(Problem(hc.MarkovChain(law, [half @ rest]), 120, hc.Poisson(y)), engine)
    missing = np.vstack([y[0], np.full(3, np.nan), y[1]])
    through = hc.infer(Problem(hc.MarkovChain(law, [half, rest]), 120, hc.Poisson(missing)), engine)
    np.testing.assert_allclose(through.beliefs.mean((0,)), direct.beliefs.mean((0,)), rtol=0, atol=1e-4)
    np.testing.assert_allclose(through.beliefs.mean((2,)), direct.beliefs.mean((1,)), rtol=0, atol=1e-4)


def two_cell(persistence, zeros, population=1000, expected=5.0, other=np.nan):
    share = expected / population
    leave = (1 - persistence) * share / (1 - share)
    model = hc.MarkovChain(
        [share, 1 - share], [[persistence, 1 - persistence], [leave, 1 - leave]], length=zeros
    )
    y = np.full((zeros, 2), other)
    y[:, 0] = 0
    return Problem(model, population, hc.Poisson(y))


@pytest.mark.parametrize("other", [np.nan, 1000.0, 950.0])
@pytest.mark.parametrize("persistence", [0.2, 0.9, 0.99, 0.999])
def test_zeros_are_absorbed_exactly(persistence, other):
    """Twenty zeros in a cell where five are expected, whether or not the other cell is seen too.

    The mean is within .01 of the exact answer, the interval ≥ 0.
    """
    problem = two_cell(persistence, 20, other=other)
    exact, got = hc.infer(problem, Enumerate()), hc.infer(problem, TiltedEP())
    for t in range(20):
        assert got.beliefs.mean((t,))[0] == pytest.approx(exact.beliefs.mean((t,))[0], abs=0.01)
        assert got.interval_tables((t,), 0.9)[0].min() >= 0
    if np.isnan(other):
        assert (
            hc.infer(problem, Laplace()).beliefs.mean((10,))[0] < -0.05
        )  # the published method, shown as it is


@pytest.mark.parametrize(
    ("population", "nodes", "evidence"), [(10, 0.010, 0.10), (50, 0.0015, 0.03), (100, 0.0007, 0.02)]
)
def test_two_cell_chains_against_the_exact_recursion(population, nodes, evidence):
    """π = .5, p = .8, q = .3, T = 5: means, evidence and (N = 100) sds within what the default promises."""
    rng = np.random.default_rng(population)
    model = hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], length=5)
    errors = []
    for _ in range(4):
        people = model.sample(population, rng=rng)
        n = np.array([np.bincount(people[:, t], minlength=2) for t in range(5)])
        problem = Problem(model, population, hc.Poisson(rng.poisson(n).astype(float)))
        exact, got = hc.infer(problem, Enumerate()), hc.infer(problem, TiltedEP())
        a, b = (np.array([p.beliefs.mean((t,)) for t in range(5)]) for p in (got, exact))
        errors.append(np.abs(a - b).sum() / b.sum())
        assert abs(got.log_evidence - exact.log_evidence) <= evidence
        if population == 100:
            sd, true = (np.sqrt([p.beliefs.variance((t,))[0] for t in range(5)]) for p in (got, exact))
            np.testing.assert_allclose(sd, true, rtol=0.03)
    assert np.mean(errors) <= nodes


def test_hard_weights_do_not_break_the_default():
    """w = (5, 10, 10, 10) on a hundred cells: converged, no negative mean."""
    world = birds(side=10, population=1000, weights=(5, 10, 10, 10))
    got = hc.infer(Problem(world.model, 1000, hc.Poisson(world.observed)))
    assert got.status is Status.CONVERGED
    check_promises(got)


@pytest.mark.parametrize("population", [1, 10**4, 10**12])
def test_any_population(population):
    """From one individual to 10¹²: finite, converged, summing to N."""
    rng = np.random.default_rng(2)
    model = hc.MarkovChain(np.full(5, 0.2), rng.dirichlet(np.ones(5), size=5), length=10)
    n = np.array([rng.multinomial(population, model.marginal((t,))) for t in range(10)])
    got = hc.infer(Problem(model, population, hc.Poisson(rng.poisson(n).astype(float))), TiltedEP())
    check_promises(got)


def test_high_rates_tend_to_exact():
    """Poisson counts of a thousand looks at everyone leave what exact counts leave."""
    rng = np.random.default_rng(4)
    model = hc.MarkovChain([0.5, 0.3, 0.2], rng.dirichlet(np.ones(3), size=3), length=3)
    n = np.array([rng.multinomial(300, model.marginal((t,))) for t in range(3)]).astype(float)
    sharp = hc.infer(Problem(model, 300, hc.Poisson(1e6 * n, rate=1e6)), TiltedEP())
    exact = hc.infer(Problem(model, 300, hc.Exact(n)), MAP())
    np.testing.assert_allclose(sharp.beliefs.mean((0, 1)), exact.beliefs.mean((0, 1)), rtol=0, atol=0.05)


def test_edges_sums_and_several_readings_at_once():
    """Flows, a region's total and a cordon, on top of node counts: closer to the truth than nodes alone, and consistent."""
    world = birds(population=960)
    rng = np.random.default_rng(6)
    flows = np.asarray(world.flows)
    region = np.zeros((1, 16))
    region[0, :4] = 1
    cordon = np.zeros((1, 16, 16))
    cordon[0, :8, 8:] = 1
    nodes = hc.Poisson(world.observed)
    more = [
        nodes,
        hc.Poisson(rng.poisson(flows[4]).astype(float), on=(4, 5)),
        hc.Gaussian(np.array([np.asarray(world.counts)[9, :4].sum()]), sd=1.0, on=9, sums=region),
        hc.Poisson(
            np.array([float(rng.poisson(flows[11][:8, 8:].sum()))]), on=(11, 12), sums=cordon.reshape(1, -1)
        ),
    ]
    plain = hc.infer(Problem(world.model, 960, nodes))
    rich = hc.infer(Problem(world.model, 960, more))
    check_promises(rich)

    def off(posterior):
        return np.abs(posterior.beliefs.mean((4, 5)) - flows[4]).sum()

    assert off(rich) < off(plain)
    total = rich.total({9: region[0]})
    assert total.mean == pytest.approx(np.asarray(world.counts)[9, :4].sum(), abs=3)
    assert total.sd < plain.total({9: region[0]}).sd


def test_covariances_are_positive_and_draws_follow_them():
    """Posterior covariance is PSD; real draws have its moments (4 s.e.); whole draws agree with each other and sum to N."""
    world = birds()
    got = hc.infer(Problem(world.model, 480, hc.Poisson(world.observed)))
    covariance = got.node(5).covariance()
    assert np.linalg.eigvalsh(covariance).min() > -1e-9 * covariance.max()
    draws = got.sample(400, rng=1)[(5, 6)].values.sum(axis=2)
    sd = np.sqrt(np.diagonal(covariance))
    assert (np.abs(draws.mean(axis=0) - got.beliefs.mean((5,))) < 4.5 * sd / np.sqrt(400) + 1e-9).all()
    whole = got.sample(5, rng=2, integer=True)
    for t in range(18):
        left, right = whole[(t, t + 1)].values, whole[(t + 1, t + 2)].values
        np.testing.assert_array_equal(left.sum(axis=1), right.sum(axis=2))
        assert left.min() >= 0
        np.testing.assert_array_equal(left, np.round(left))
        assert (left.sum(axis=(1, 2)) == 480).all()


def test_refusals():
    """What cannot be is refused with a reason: no rng, no convergence, no such table, no spread."""
    world = birds()
    problem = Problem(world.model, 480, hc.Poisson(world.observed))
    with pytest.raises(ValueError, match="give rng"):
        hc.infer(problem, hc.engines.PathGibbs())
    with pytest.raises(NotConvergedError, match="residual") as caught:
        hc.infer(problem, TiltedEP(max_iterations=1))
    assert caught.value.posterior.status is Status.BUDGET
    marked = hc.infer(problem, TiltedEP(max_iterations=1), strict=False)
    assert not marked.status.good
    assert not marked.node(3).reliable.any()
    with pytest.raises(ValueError, match="clique"):
        marked.clique(0, 7)
    point = hc.infer(problem, MAP())
    assert np.isnan(point.node(3).sd).all()
    with pytest.raises(ValueError, match="point estimate"):
        point.sample(3, rng=1)
    with pytest.raises(ValueError, match="ClosedForm takes"):
        hc.infer(problem, ClosedForm())
    with pytest.raises(ValueError, match="level"):
        marked.node(3).interval(1.5)


def test_the_choice_is_explained():
    """`select` names an engine and a reason for each kind of problem."""
    world = birds()
    assert select(Problem(world.model, 480, hc.Poisson(world.observed))).engine == TiltedEP()
    assert isinstance(select(Problem(world.model, 480)).engine, ClosedForm)
    tiny = hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], length=2)
    choice = select(Problem(tiny, 3, hc.Poisson(np.ones((2, 2)))))
    assert isinstance(choice.engine, Enumerate)
    assert "exact" in choice.reason
