"""Populations whose number of individuals is not known: against the exact mixture over N, and its limits."""

from __future__ import annotations

import numpy as np
import pytest
from reproduction.rivals import NLBP, EdgeEP, Gibbs
from scipy.special import gammaln, logsumexp
from scipy.stats import binom, nbinom, norm, poisson
from tests.graphs import awkward_models

import headcount as hc
from headcount.engines._reduce import answer
from headcount.population import parse_population

CHAIN = hc.MarkovChain([0.7, 0.3], [[0.8, 0.2], [0.3, 0.7]], length=5)
RATE = 0.5
RECURSION = hc.engines.Enumerate(most=100_000)
"""Exact; by recursion over count states wherever that is quicker than a list of all populations."""


def counted(mean: int, seed: int) -> np.ndarray:
    """Poisson counts of a Poisson number of individuals, shape (5, 2)."""
    rng = np.random.default_rng(seed)
    paths = CHAIN.sample(max(1, rng.poisson(mean)), rng=rng)
    n = np.stack([(paths == i).sum(axis=0) for i in range(2)], axis=1)
    return rng.poisson(RATE * n)


def laws(mean: int) -> dict[str, object]:
    return {
        "poisson": hc.About(mean, sd=mean**0.5),
        "negative binomial": hc.About(mean, sd=2 * mean**0.5),
        "narrow": hc.About(mean, sd=0.5 * mean**0.5),
        "range": hc.Between(mean // 2, 2 * mean),
        "unknown": hc.Unknown(),
    }


@pytest.mark.parametrize("law", laws(10))
@pytest.mark.parametrize("mean", [10, 50, 200])
def test_the_default_has_the_exact_posterior_of_n(mean: int, law: str) -> None:
    """Mean of N within .2, sd within 2.5 %, evidence within .03 nats of the sum over all N; counts likewise."""
    problem = hc.Problem(CHAIN, laws(mean)[law], hc.Poisson(counted(mean, mean), rate=RATE))
    exact, found = hc.infer(problem, RECURSION), hc.infer(problem, "TiltedEP")
    assert abs(found.population.mean - exact.population.mean) < 0.2
    assert found.population.sd == pytest.approx(exact.population.sd, rel=0.025)
    assert abs(found.log_evidence - exact.log_evidence) < 0.03
    for t in range(5):
        np.testing.assert_allclose(found.node(t).mean, exact.node(t).mean, atol=0.12)
        np.testing.assert_allclose(found.node(t).sd, exact.node(t).sd, rtol=0.03)
    total = float(found.node(2).mean.sum())
    assert total == pytest.approx(found.population.mean, rel=1e-3)


def test_all_sizes_are_added_up_exactly() -> None:
    """Enumerate's answer is Σ p(N) p(y | N) over every N, that with nobody among them."""
    law = hc.About(3, sd=3**0.5)
    counts = np.zeros((5, 2))
    problem = hc.Problem(CHAIN, law, hc.Poisson(counts, rate=RATE))
    # Nobody is ever counted: p(y | N) = e^(−5·rate·N), and a tilted Poisson law is Poisson.
    factor = np.exp(-5 * RATE)
    found = hc.infer(problem, RECURSION)
    assert found.log_evidence == pytest.approx(3 * (factor - 1), abs=1e-9)
    assert found.population.mean == pytest.approx(3 * factor, abs=1e-9)
    assert found.population.sd == pytest.approx(np.sqrt(3 * factor), abs=1e-9)
    assert hc.infer(problem, "TiltedEP").population.mean == pytest.approx(3 * factor, abs=1e-3)


@pytest.mark.parametrize("law", [hc.About(120, sd=1e-3), hc.Between(120, 120)])
def test_a_law_without_variance_is_a_known_number(law: object) -> None:
    """As the variance of N goes to zero every answer becomes that of a known N."""
    seen = hc.Poisson(counted(120, 1), rate=RATE)
    known, found = hc.infer(hc.Problem(CHAIN, 120, seen)), hc.infer(hc.Problem(CHAIN, law, seen))
    assert found.population.mean == 120
    assert found.population.sd == 0
    for t in range(4):
        np.testing.assert_allclose(found.node(t).mean, known.node(t).mean, atol=1e-8 * 120)
        np.testing.assert_allclose(found.edge(t, t + 1).sd, known.edge(t, t + 1).sd, atol=1e-8 * 120)
    assert found.log_evidence == pytest.approx(known.log_evidence, abs=1e-9)


def test_counts_seen_exactly_settle_n() -> None:
    """A table seen exactly gives N away; a law that excludes it is an error."""
    seen = [hc.Exact([30, 12], on=0), hc.Poisson([20, 25], on=3)]
    found = hc.infer(hc.Problem(CHAIN, hc.Unknown(), seen))
    assert found.population.mean == 42
    assert found.population.sd == 0
    with pytest.raises(hc.ProblemError, match="excludes N = 42"):
        hc.Problem(CHAIN, hc.Between(50, 60), seen)


def test_the_most_probable_number() -> None:
    """MAP's N solves (log p)'(N) + A(θ+g) − A(θ) = 0: near the exact mode, without spread."""
    problem = hc.Problem(CHAIN, hc.Between(20, 500), hc.Poisson(counted(150, 3), rate=RATE))
    exact, point = hc.infer(problem, RECURSION).population, hc.infer(problem, "MAP").population
    mode = exact.values[np.argmax(exact.probabilities)]
    assert abs(point.mean - mode) <= 2
    assert np.isnan(point.sd)


@pytest.mark.parametrize("law", ["poisson", "range"])
def test_candidates_that_may_be_absent_have_the_exact_posterior(law: str) -> None:
    """PathGibbs, by births and deaths of paths, has the mean and sd of N and of counts that the sum over N has."""
    problem = hc.Problem(CHAIN, laws(50)[law], hc.Poisson(counted(50, 50), rate=RATE))
    exact = hc.infer(problem, RECURSION)
    found = hc.infer(problem, hc.engines.PathGibbs(sweeps=600), rng=1)
    error = exact.population.sd / np.sqrt(found.diagnostics["ess_min"])
    assert abs(found.population.mean - exact.population.mean) < 5 * error
    assert found.population.sd == pytest.approx(exact.population.sd, rel=0.1)
    np.testing.assert_allclose(found.node(2).mean, exact.node(2).mean, atol=5 * error)
    np.testing.assert_allclose(found.edge(1, 2).sd, exact.edge(1, 2).sd, rtol=0.15)
    assert (found.sample(5, rng=1)[(0, 1)].values.sum(axis=(1, 2)) <= found.population.values[-1]).all()


def test_the_sampler_takes_variables_in_any_order() -> None:
    """A discrete model whose tree visits its variables in another order, with other numbers of states, is sampled as it is summed."""
    pairs = {("a", "c"): [[1.0, 0.0], [0.3, 1.2]]}
    model = hc.DiscreteModel({"a": 2, "b": 3, "c": 2}, pairs)
    seen = [hc.Poisson([3.0, 1.0], on="a"), hc.Poisson([0.0, 4.0, 1.0], on="b")]
    problem = hc.Problem(model, hc.Between(2, 5), seen)
    exact, found = hc.infer(problem, "Enumerate"), hc.infer(problem, hc.engines.PathGibbs(sweeps=2000), rng=1)
    assert found.population.mean == pytest.approx(exact.population.mean, abs=0.1)
    for v in model.variables:
        np.testing.assert_allclose(found.node(v).mean, exact.node(v).mean, atol=0.1)


def test_the_smallest_number_may_be_the_most_probable() -> None:
    """One individual, seen once: the search ends at N = 1 and the posterior is the exact one."""
    problem = hc.Problem(CHAIN, hc.Unknown(), hc.Poisson([[1, 0], [0, 1], [0, 0], [1, 0], [0, 0]]))
    exact, found = hc.infer(problem, RECURSION).population, hc.infer(problem, "TiltedEP").population
    assert found.mean == pytest.approx(exact.mean, abs=0.1)
    assert hc.infer(problem, "MAP").population.mean <= 2


def test_draws_have_the_spread_of_n() -> None:
    """Whole-number draws agree with each other and spread over sizes as N does."""
    problem = hc.Problem(CHAIN, hc.Between(100, 400), hc.Poisson(counted(200, 4), rate=RATE))
    found = hc.infer(problem)
    draws = found.sample(400, rng=1, integer=True)
    totals = draws[(0, 1)].values.sum(axis=(1, 2))
    assert (totals == draws[(3, 4)].values.sum(axis=(1, 2))).all()
    assert totals.mean() == pytest.approx(found.population.mean, abs=4 * found.population.sd / 20)
    assert totals.std() == pytest.approx(found.population.sd, rel=0.2)


@pytest.mark.parametrize("engine", [Gibbs(), EdgeEP(), NLBP()], ids=lambda e: e.name)
def test_engines_without_evidence_refuse_in_words(engine: hc.engines.Engine) -> None:
    """An engine that cannot weigh sizes says what to use instead."""
    problem = hc.Problem(CHAIN, hc.Unknown(), hc.Poisson(counted(50, 5)))
    with pytest.raises(ValueError, match="known number of individuals"):
        hc.infer(problem, engine, rng=1)


def test_an_unknown_initial_law_beside_an_unknown_number() -> None:
    """Both are learned; the spread of first counts is at least that with the initial law known."""
    seen = hc.Poisson(counted(200, 6), rate=RATE)
    chain = hc.MarkovChain(None, [[0.8, 0.2], [0.3, 0.7]], length=5)
    found = hc.infer(hc.Problem(chain, hc.Between(50, 800), seen))
    known = hc.infer(hc.Problem(CHAIN, hc.Between(50, 800), seen))
    assert found.population.mean == pytest.approx(known.population.mean, rel=0.05)
    assert (found.node(0).sd.values > known.node(0).sd.values).all()
    draws = found.sample(50, rng=1, integer=True)[(0, 1)].values
    assert draws.sum(axis=(1, 2)).std() > 0


def test_a_fit_learns_moves_of_an_unknown_number() -> None:
    """Expected counts of all sizes go into the M-step: the weights are those of a fit at the right N, nearly."""
    world = hc.simulate.birds(side=3, population=400, steps=6, rng=1)
    seen = hc.Poisson(world.observed)
    learner = hc.LogisticChain(world.features)
    known = hc.fit(learner, hc.Problem(world.model, 400, seen), rng=1, standard_errors=False)
    found = hc.fit(learner, hc.Problem(world.model, hc.Between(200, 800), seen), rng=1, standard_errors=False)
    np.testing.assert_allclose(found.weights.values, known.weights.values, atol=0.3)
    assert found.posterior.population.mean == pytest.approx(400, rel=0.1)


def test_a_rate_beside_an_unknown_number_is_named() -> None:
    """Counts tell the product only: refused where nothing tells N, else N keeps the spread of the census and a note says so."""
    moves = [[0.8, 0.2], [0.3, 0.7]]
    learner = hc.learn.LearnRate(hc.TabularChain(fixed=moves))
    seen = hc.Poisson(counted(400, 8), rate=RATE)
    with pytest.raises(hc.ProblemError, match="product of the rate and the number"):
        hc.fit(learner, hc.Problem(CHAIN, hc.Between(100, 2000), seen))
    fit = hc.fit(learner, hc.Problem(CHAIN, hc.About(400, sd=60), seen))
    assert any("told apart only by what was said" in note for note in fit.notes)
    assert fit.posterior.population.sd == pytest.approx(60, rel=0.25)
    assert fit.table().set_index("parameter")["standard_error"]["rate"] == pytest.approx(0.15, rel=0.25)


def test_counts_that_do_not_tell_n_are_named() -> None:
    """One cell that nearly nobody visits says nothing of N, and the estimate says that."""
    seen = hc.Poisson([[np.nan, np.nan]] * 4 + [[np.nan, 0.0]], rate=1e-4)
    found = hc.infer(hc.Problem(CHAIN, hc.Between(100, 400), seen))
    assert "next to nothing" in found.population.note
    assert found.population.sd == pytest.approx(301 / 12**0.5, rel=0.05)


def test_results_carry_the_estimate_of_n() -> None:
    """The frame of attributes, the text and the file hold mean, sd and interval."""
    from headcount.io import Result

    found = hc.infer(hc.Problem(CHAIN, hc.Between(100, 400), hc.Poisson(counted(200, 7), rate=RATE)))
    result = Result.of(found)
    estimate = result.attributes["population_estimate"]
    assert estimate["law"] == "100..400"
    assert estimate["lower"] < estimate["mean"] < estimate["upper"]
    assert "90% interval" in result.population_text
    assert parse_population(estimate["law"]) == hc.Between(100, 400)


LOOP = awkward_models()["four-cycle"]
LOOP_SIZE = 16
SEEN = {"a": np.array([6.0, 5.0]), "c": np.array([4.0, 9.0])}


def loop(law: object) -> hc.Problem:
    """Two opposite corners of a cycle of four, counted."""
    return hc.Problem(LOOP, law, [hc.Poisson(y, rate=RATE, on=v) for v, y in SEEN.items()])


def summed(law: hc.population.SizeLaw, most: int = 50) -> dict[str, np.ndarray]:
    """Mean and sd of N and of every variable's counts, and the evidence: summed over N and all tables of the two seen variables."""
    n = np.indices((most + 1,) * 3).reshape(3, -1)
    parts = [
        np.vstack([n[:, n.sum(axis=0) <= k], k - n[:, n.sum(axis=0) <= k].sum(axis=0)])
        for k in range(most + 1)
    ]
    t = np.hstack(parts).T.astype(float)
    law_of_pair = LOOP.marginal(("a", "c")).ravel()
    log_p = law.log_pmf(t.sum(axis=1)) + gammaln(t.sum(axis=1) + 1) - gammaln(t + 1).sum(axis=1)
    log_p += t @ np.log(law_of_pair)
    tables = t.reshape(-1, 2, 2)
    for v, axis in (("a", 2), ("c", 1)):
        log_p += hc.Poisson(SEEN[v], rate=RATE).log_prob(tables.sum(axis=axis)).sum(axis=1)
    evidence = logsumexp(log_p)
    w = np.exp(log_p - evidence)
    found = {"evidence": evidence}
    for v in ("N", *LOOP.variables):
        given = np.ones((4, 1)) if v == "N" else LOOP.joint_marginal(("a", "c"), (v,)) / law_of_pair[:, None]
        mean, within = t @ given, t @ (given * (1.0 - given))
        centre = w @ mean
        found[v] = np.array([centre, np.sqrt(w @ (mean - centre) ** 2 + w @ within)])
    return found


@pytest.mark.parametrize("law", laws(LOOP_SIZE))
def test_a_network_of_unknown_size_has_the_sum_over_all_sizes(law: str) -> None:
    """Counts of all variables and N within .12 sd, sds within 5 %, evidence within .05 nats of the sum over N and all tables."""
    size = laws(LOOP_SIZE)[law]
    exact, found = summed(size), hc.infer(loop(size), "TiltedEP")
    assert found.log_evidence == pytest.approx(exact["evidence"], abs=0.05)
    for v in ("N", *LOOP.variables):
        ours = found.population if v == "N" else found.node(v)
        mean, sd = exact[v]
        assert (np.abs(np.ravel(ours.mean) - mean) < 0.12 * sd).all()
        np.testing.assert_allclose(np.ravel(ours.sd), sd, rtol=0.05)


@pytest.mark.parametrize(
    ("engine", "law"),
    [
        ("TiltedEP", "range"),
        ("TiltedEP", "unknown"),
        ("Laplace", "narrow"),
        ("Laplace", "range"),
        ("MAP", "range"),
    ],
)
def test_a_network_of_unknown_size_is_the_chain_of_what_is_seen(engine: str, law: str) -> None:
    """Seen at two variables only, a network is the chain of their joint law: the same N, counts and evidence."""
    size, pair = laws(LOOP_SIZE)[law], LOOP.marginal(("a", "c"))
    chain = hc.MarkovChain(pair.sum(axis=1), [pair / pair.sum(axis=1, keepdims=True)])
    on_chain = hc.Problem(chain, size, [hc.Poisson(y, rate=RATE, on=t) for t, y in enumerate(SEEN.values())])
    theirs, ours = hc.infer(on_chain, engine), hc.infer(loop(size), engine)
    assert ours.population.mean == pytest.approx(theirs.population.mean, rel=1e-5)
    for t, v in enumerate(SEEN):
        np.testing.assert_allclose(ours.node(v).mean, theirs.node(t).mean, rtol=1e-5)
    if engine != "MAP":
        assert ours.population.sd == pytest.approx(theirs.population.sd, rel=1e-5)
        assert ours.log_evidence == pytest.approx(theirs.log_evidence, abs=1e-6)
        np.testing.assert_allclose(ours.edge("a", "c").sd, theirs.edge(0, 1).sd, rtol=1e-5)


def test_few_individuals_of_a_network_are_listed() -> None:
    """Enumerate lists the populations of a network whose size has a law, and has the sum over N and all tables."""
    law = hc.Between(2, 6)
    found, exact = hc.infer(loop(law), hc.engines.Enumerate(most=5_000_000)), summed(law, 6)
    assert found.log_evidence == pytest.approx(exact["evidence"], abs=1e-9)
    assert found.population.mean == pytest.approx(exact["N"][0, 0], abs=1e-9)
    for v in LOOP.variables:
        np.testing.assert_allclose(found.node(v).mean, exact[v][0], atol=1e-9)


@pytest.mark.parametrize("law", ["negative binomial", "range", "unknown"])
def test_whole_draws_of_a_network_vary_in_size(law: str) -> None:
    """Whole tables that have one N per draw, agree on separators, and have the posterior's N."""
    found = hc.infer(loop(laws(LOOP_SIZE)[law]), "TiltedEP")
    draws = [table.values for table in found.sample(1000, rng=1, integer=True).values()]
    assert all((table == np.rint(table)).all() for table in draws)
    totals = [table.reshape(1000, -1).sum(axis=1) for table in draws]
    assert all((total == totals[0]).all() for total in totals)
    estimate = found.population
    assert abs(totals[0].mean() - estimate.mean) < 0.15 * estimate.sd
    assert totals[0].std() == pytest.approx(estimate.sd, rel=0.1)


def test_a_size_that_is_too_large_to_list_is_not_taken_as_impossible() -> None:
    """Where a likely size has more states than may be listed, that is said; leaving the size out would be a wrong sum."""
    first, last = LOOP.variables[0], LOOP.variables[2]
    seen = [hc.Poisson([6.0, 4.0], on=first), hc.Poisson([5.0, 5.0], on=last)]
    problem = hc.Problem(LOOP, hc.About(5, sd=3), seen)
    with pytest.raises(hc.ProblemError, match="lists at most"):
        hc.infer(problem, hc.engines.Enumerate(most=3000))


@pytest.mark.parametrize("model", [CHAIN, LOOP], ids=["chain", "loop"])
def test_counts_that_disagree_still_have_a_number(model) -> None:
    """Two readings that the model hardly explains together: with N unknown it is what a wide prior on N gives."""
    first, last = model.variables[0], model.variables[2]
    seen = [hc.Poisson([400, 600], on=first), hc.Poisson([690, 300], on=last)]
    free = hc.infer(hc.Problem(model, hc.Unknown(), seen), "TiltedEP").population
    about = hc.infer(hc.Problem(model, hc.About(1000, sd=500), seen), "TiltedEP").population
    assert free.mean == pytest.approx(about.mean, abs=2.0)
    assert free.sd == pytest.approx(about.sd, rel=0.03)


@pytest.mark.parametrize(("length", "cells", "people"), [(40, 4, 5000), (20, 10, 1000), (40, 2, 100_000)])
def test_long_series_of_an_unknown_number_have_it(length: int, cells: int, people: int) -> None:
    """Every individual is counted anew at every time, so that N is known to about √(N/T): Poisson counts add up to T N."""
    rng = np.random.default_rng(length)
    moves = 0.7 * np.eye(cells) + 0.3 * rng.dirichlet(np.ones(cells), cells)
    chain = hc.MarkovChain(rng.dirichlet(np.full(cells, 3.0)), moves, length=length)
    seen = hc.simulate.population(chain, people, rng=1).observed
    found = hc.infer(hc.Problem(chain, hc.Unknown(), hc.Poisson(seen))).population
    assert found.mean == pytest.approx(seen.values.sum() / length, rel=2e-3)
    assert found.sd == pytest.approx(np.sqrt(people / length), rel=0.02)


WIDE = {
    "negative binomial": hc.About(1000, sd=3000),
    "nearly exponential": hc.About(1000, sd=900),
    "range": hc.Between(1, 20_000),
    "unknown": hc.Unknown(),
}


@pytest.mark.parametrize("noise", ["poisson", "binomial", "gaussian"])
@pytest.mark.parametrize("law", WIDE)
@pytest.mark.parametrize("total", [50.0, 164.0, 1000.0, 4000.0])
def test_a_single_total_beside_a_wide_law(total: float, law: str, noise: str) -> None:
    """One reading of everybody and p(N): the sum over N within .03 of an sd, 1 % of the sd, and .03 nats.

    The reading's cavity is the law of N itself, which is no Gaussian; taken as one, the evidence was up to 828 nats off.
    """
    kinds = {
        "poisson": lambda y, **where: hc.Poisson(y, **where),
        "binomial": lambda y, **where: hc.Binomial(y, detection=0.3, **where),
        "gaussian": lambda y, **where: hc.Gaussian(y, sd=0.1 * total, **where),
    }
    seen = kinds[noise]([total], on=4, sums=[[1.0, 1.0]])
    n = np.arange(1.0, 25_000.0)
    with np.errstate(divide="ignore"):
        log_p = np.asarray(WIDE[law].log_pmf(n)) + np.asarray(seen.log_prob(n[:, None]))[:, 0]
    p = np.exp(log_p - logsumexp(log_p))
    mean = float(p @ n)
    sd = float(np.sqrt(p @ (n - mean) ** 2))
    found = hc.infer(hc.Problem(CHAIN, WIDE[law], seen), "TiltedEP")
    assert abs(found.population.mean - mean) < 0.03 * sd
    assert found.population.sd == pytest.approx(sd, rel=0.01)
    assert abs(found.log_evidence - logsumexp(log_p)) < 0.03


def test_two_sizes_that_few_counts_tell_apart() -> None:
    """Two groups of unknown size, seen together once: the numbers agree with the path sampler, within its error and half an sd."""
    stay = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], length=2)
    leave = hc.MarkovChain([0.9, 0.1], [[0.2, 0.8], [0.3, 0.7]], length=2)
    groups = {"stay": hc.Group(stay, hc.Unknown()), "leave": hc.Group(leave, hc.Unknown())}
    problem = hc.Problem(groups=groups, observations=hc.Gaussian([130.0, 150.0], sd=4.0, on=1))
    found = hc.infer(problem, "TiltedEP")
    sampled = hc.infer(
        problem, hc.engines.PathGibbs(sweeps=8000, burn_in=2000, workers=1), rng=1, strict=False
    )
    for name in groups:
        mine, other = found.group(name).population, sampled.group(name).population
        assert abs(mine.mean - other.mean) < 0.5 * other.sd


@pytest.mark.parametrize("law", [hc.Unknown(), hc.About(50, sd=30), hc.Between(1, 100)], ids=str)
@pytest.mark.parametrize("noise", ["exact", "gaussian", "poisson"])
def test_two_sizes_of_which_a_sum_is_seen(law: hc.Unknown, noise: str) -> None:
    """The law of the split may be U-shaped: means, sds and evidence are those of the sum over both sizes, of one weight or of two."""
    n = np.arange(331.0)
    inside = (n >= law.least) & (n <= law.most)
    log_p = np.where(inside, law.log_pmf(np.where(inside, n, law.least)), -np.inf)
    for weight in (1, 2):
        total = weight * n[:, None] + n
        with np.errstate(divide="ignore"):
            seen, log_l = {
                "exact": (hc.Exact([100.0], sums=[[1, 1]], on=0), np.where(total == 100, 0.0, -np.inf)),
                "gaussian": (
                    hc.Gaussian([100.4], sd=1.5, sums=[[1, 1]], on=0),
                    norm.logpdf(100.4, total, 1.5),
                ),
                "poisson": (hc.Poisson([100.0], sums=[[1, 1]], on=0), poisson.logpmf(100, total)),
            }[noise]
        log_w = log_p[:, None] + log_p + log_l
        w = np.exp(log_w - log_w.max())
        groups = {"a": hc.Group(CHAIN, law, weight=weight), "b": hc.Group(CHAIN, law)}
        found = hc.infer(hc.Problem(groups=groups, observations=seen), "TiltedEP")
        assert found.log_evidence == pytest.approx(log_w.max() + np.log(w.sum()), abs=0.12)
        for name, each, law_of in (("a", weight, w.sum(axis=1)), ("b", 1, w.sum(axis=0))):
            mean = law_of @ n / w.sum()
            sd = np.sqrt(law_of @ (n - mean) ** 2 / w.sum())
            got = found.group(name).population
            assert abs(got.mean / each - mean) < 0.1 * sd
            assert got.sd / each == pytest.approx(sd, rel=0.02)


@pytest.mark.parametrize(
    "law", [hc.Unknown(), hc.About(8, sd=6), hc.About(8, sd=3), hc.Between(2, 25)], ids=str
)
@pytest.mark.parametrize("count", [1, 6])
def test_an_unknown_size_beside_one_exact_cell(law: hc.Unknown, count: int) -> None:
    """With one cell of two counted exactly, N has the law p(N) Bin(y; N, μ): mean, sd and evidence are those of the sum over N."""
    n = np.arange(301.0)
    inside = (n >= law.least) & (n <= law.most)
    log_w = np.where(inside, law.log_pmf(np.where(inside, n, law.least)), -np.inf) + binom.logpmf(
        count, n, 0.4
    )
    w = np.exp(log_w - log_w.max())
    mean = w @ n / w.sum()
    sd = np.sqrt(w @ (n - mean) ** 2 / w.sum())
    chain = hc.MarkovChain([0.4, 0.6], [[0.5, 0.5], [0.5, 0.5]], length=1)
    found = hc.infer(hc.Problem(chain, law, hc.Exact([[count, np.nan]])), "TiltedEP")
    assert abs(found.population.mean - mean) < 0.02 * sd
    assert found.population.sd == pytest.approx(sd, rel=0.02)
    assert found.log_evidence == pytest.approx(log_w.max() + np.log(w.sum()), abs=0.02)


@pytest.mark.parametrize("law", [hc.Unknown(), hc.About(8, sd=6), hc.Between(2, 25)], ids=str)
@pytest.mark.parametrize(
    ("reading", "log_likelihood"),
    [
        (hc.Binomial([[1, np.nan]], detection=0.6), lambda n: binom.logpmf(1, n, 0.6)),
        (hc.Poisson([[4, np.nan]], rate=3.0), lambda n: poisson.logpmf(4, 3.0 * n)),
        (hc.Gaussian([[1.2, np.nan]], sd=0.7), lambda n: norm.logpdf(1.2, n, 0.7)),
    ],
    ids=["binomial", "poisson", "gaussian"],
)
def test_a_reading_of_all_but_the_exact_counts(law: hc.Unknown, reading: object, log_likelihood) -> None:
    """With five of one cell counted exactly, a reading of the other is one of N - 5: mean, sd and evidence are those of the sum over N."""
    n = np.arange(301.0)
    with np.errstate(divide="ignore"):
        inside = (n >= max(law.least, 5)) & (n <= law.most)
        log_w = (
            law.log_pmf(np.where(inside, n, law.least))
            + binom.logpmf(5, n, 0.6)
            + log_likelihood(np.maximum(n - 5, 0))
        )
    log_w = np.where(inside, log_w, -np.inf)
    w = np.exp(log_w - log_w.max())
    mean = w @ n / w.sum()
    sd = np.sqrt(w @ (n - mean) ** 2 / w.sum())
    chain = hc.MarkovChain([0.4, 0.6], [[0.5, 0.5], [0.5, 0.5]], length=1)
    found = hc.infer(hc.Problem(chain, law, [hc.Exact([[np.nan, 5]]), reading]), "TiltedEP")
    assert abs(found.population.mean - mean) < 0.02 * sd
    assert found.population.sd == pytest.approx(sd, rel=0.02)
    assert found.log_evidence == pytest.approx(log_w.max() + np.log(w.sum()), abs=0.02)
    assert found.population.note == ""


def test_a_size_held_at_one_number_is_said() -> None:
    """Where EP ends at one number that exact counts do not tell, the note on N says so and there is no evidence (it was 6.7 nats off)."""
    rows = np.array([[0.79853593, 0.20146407], [0.793331, 0.206669]])
    chain = hc.MarkovChain([0.26965606, 0.73034394], rows / rows.sum(axis=1, keepdims=True), length=3)
    problem = hc.Problem(chain, hc.Unknown(), hc.Binomial([[1, 2], [0, 0], [0, 0]], detection=0.6))
    exact, found = hc.infer(problem, RECURSION), hc.infer(problem, "TiltedEP")
    assert "two or three numbers" in found.population.note
    assert found.log_evidence is None or abs(found.log_evidence - exact.log_evidence) < 0.5
    assert exact.population.note == ""


def test_sizes_that_the_counts_cannot_split_are_named() -> None:
    """Two groups of which a few individuals of their sum are seen: where EP ends nowhere, the error says what would help."""
    other = hc.MarkovChain([0.2, 0.8], [[0.4, 0.6], [0.1, 0.9]], length=2)
    chain = hc.MarkovChain([0.7, 0.3], [[0.8, 0.2], [0.3, 0.7]], length=2)
    groups = {"young": hc.Group(chain, hc.Unknown()), "old": hc.Group(other, hc.Unknown())}
    seen = hc.Poisson([[1, 2], [0, 2]], rate=0.5)
    with pytest.raises(hc.engines.NotConvergedError, match="sizes of the groups 'young', 'old'"):
        hc.infer(hc.Problem(groups=groups, observations=seen), "TiltedEP")
    said = {
        "young": hc.Group(CHAIN, hc.Unknown()),
        "old": hc.Group(CHAIN, hc.About(80, sd=15)),
    }  # what the error asks for
    seen = hc.Gaussian([200.0], sd=4.0, sums=[[1, 1]], on=0)
    found = hc.infer(hc.Problem(groups=said, observations=seen))
    assert found.group("young").population.mean == pytest.approx(120, abs=10)


def test_three_sizes_beside_an_exact_sum() -> None:
    """Sizes that one exact sum ties: no mean is off, and the sd is that of the sum over all splits."""
    groups = {k: hc.Group(CHAIN, hc.Between(1, 200)) for k in "abc"}
    found = hc.infer(
        hc.Problem(groups=groups, observations=hc.Exact([200.0], sums=[[1, 1]], on=0)), "TiltedEP"
    )
    n = np.arange(1.0, 199.0)
    w = 199.0 - n  # splits of what is left into two
    mean = w @ n / w.sum()
    for k in "abc":
        assert found.group(k).population.mean == pytest.approx(mean, abs=0.1)
        assert found.group(k).population.sd == pytest.approx(np.sqrt(w @ (n - mean) ** 2 / w.sum()), rel=0.02)


@pytest.mark.parametrize("law", [hc.Unknown(), hc.About(6000, sd=6000), hc.Between(1, 10**6)])
def test_a_law_that_says_little_costs_no_more_than_one_that_says_enough(law: hc.Unknown) -> None:
    """Near the pole of their cumulants such laws have no size: MAP finds the counts' own, sweeps are few, the evidence is the law's."""
    world = hc.simulate.birds(side=5, population=6000, steps=20, rate=0.3, rng=1)
    seen = hc.Poisson(world.observed, rate=0.3)
    enough = hc.infer(hc.Problem(world.model, hc.Between(5000, 7000), seen), "TiltedEP")
    problem = hc.Problem(world.model, law, seen)
    found, point = hc.infer(problem, "TiltedEP"), hc.infer(problem, "MAP")
    assert found.outcome.iterations <= enough.outcome.iterations + 5
    assert abs(found.population.mean - enough.population.mean) < 0.05 * enough.population.sd
    assert found.population.sd == pytest.approx(enough.population.sd, rel=0.01)
    assert abs(point.population.mean - enough.population.mean) < 2 * enough.population.sd
    at = enough.population.mean
    prior = float(law.log_pmf(at)) - float(hc.Between(5000, 7000).log_pmf(at))
    assert found.log_evidence - enough.log_evidence == pytest.approx(prior, abs=0.01)


def test_a_window_of_sizes_follows_the_answer() -> None:
    """A run that starts from one of another size finds its own: the window of the start is given up."""
    world = hc.simulate.birds(side=3, population=1500, steps=12, rng=1)
    few = hc.infer(hc.Problem(world.model, hc.Unknown(), hc.Poisson(world.observed)), "TiltedEP")
    problem = hc.Problem(world.model, hc.Unknown(), hc.Poisson(3 * world.observed))
    start = {k: few.diagnostics[k] for k in ("g", "tau", "eta", "size_window")}
    again = answer(hc.engines.TiltedEP(), problem, rng=np.random.default_rng(0), progress=False, start=start)
    many = hc.infer(problem, "TiltedEP")
    assert again.beliefs.log_evidence == pytest.approx(many.log_evidence, abs=1e-3)
    assert (again.beliefs.diagnostics["size_window"] > few.diagnostics["size_window"][1]).all()


@pytest.mark.parametrize("engine", ["MAP", "TiltedEP"])
def test_a_start_that_misleads_never_stops_a_run(engine):
    """Tilts of another initial law would leave infinitely many individuals here: the run begins afresh, and has the same answer."""
    seen = [
        hc.Binomial([[12, 30], [15, np.nan], [20, np.nan]], detection=0.6),
        hc.Censored(hc.Binomial([26], detection=0.6, on=2, sums=[[0, 1]])),
    ]

    def problem(share):
        chain = hc.MarkovChain([share, 1 - share], [[0.8, 0.2], [0.1, 0.9]], length=3)
        return hc.Problem(chain, hc.Unknown(), seen)

    rng, asked = np.random.default_rng(0), hc.engines.choice.as_engine(engine)
    first = answer(asked, problem(0.5), rng=rng, progress=False)
    start = {**first.beliefs.diagnostics, "g": first.beliefs.diagnostics["g"] + 0.1}
    again = answer(asked, problem(0.3), rng=rng, progress=False, start=start)
    afresh = answer(asked, problem(0.3), rng=rng, progress=False)
    assert again.status.good
    assert again.beliefs.log_evidence == pytest.approx(afresh.beliefs.log_evidence, abs=1e-4)


def test_a_window_that_no_counts_give_is_looked_for_once(monkeypatch):
    """Few counts leave a wide law as wide as it is: a run that starts from another one's answer does not look for a window again."""
    looked = []
    monkeypatch.setattr(
        "headcount.engines._reduce._likely_window", lambda core, k: looked.append(core.population)
    )
    problem = hc.Problem(CHAIN, hc.Unknown(), hc.Poisson(counted(10, 1), rate=RATE))
    rng, engine = np.random.default_rng(0), hc.engines.TiltedEP()
    first = answer(engine, problem, rng=rng, progress=False)
    again = answer(engine, problem, rng=rng, progress=False, start=first.beliefs.diagnostics)
    assert len(looked) == 1
    assert again.beliefs.log_evidence == pytest.approx(first.beliefs.log_evidence, abs=1e-4)


@pytest.mark.parametrize("total", [12.3, 61.8, 612.4])
def test_an_unknown_number_beside_a_reading_with_a_corner(total):
    """One Laplace reading of all of them: the law of N is 1/N times that of the reading, added up."""
    chain = hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], length=2)
    found = hc.infer(
        hc.Problem(chain, hc.Unknown(), hc.LaplaceNoise([total], scale=1.2, on=1, sums=[[1.0, 1.0]])),
        "TiltedEP",
    )
    n = np.arange(1.0, 3000.0)
    log_p = hc.Unknown().log_pmf(n) - np.abs(total - n) / 1.2 - np.log(2.4)
    p = np.exp(log_p - np.logaddexp.reduce(log_p))
    sd = np.sqrt(p @ n**2 - (p @ n) ** 2)
    assert found.population.mean == pytest.approx(p @ n, abs=0.05 * sd)
    assert found.population.sd == pytest.approx(sd, rel=0.05)
    assert found.log_evidence == pytest.approx(np.logaddexp.reduce(log_p), abs=0.03)


@pytest.mark.parametrize("seed", range(3))
def test_an_unknown_number_beside_flows_with_corners(seed):
    """Laplace readings of all flows of a step: number and evidence of the exact sum."""
    rng = np.random.default_rng(seed)
    chain = hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], length=2)
    flows = rng.multinomial(60, [0.4, 0.1, 0.15, 0.35]).reshape(2, 2) + rng.laplace(0, 1.2, (2, 2))
    problem = hc.Problem(chain, hc.Unknown(), hc.LaplaceNoise(flows, scale=1.2, on=(0, 1)))
    found, exact = hc.infer(problem, "TiltedEP"), hc.infer(problem, "Enumerate")
    assert found.population.mean == pytest.approx(exact.population.mean, abs=0.05 * exact.population.sd)
    assert found.population.sd == pytest.approx(exact.population.sd, rel=0.03)
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=0.05)


@pytest.mark.parametrize("law", [hc.Unknown(), hc.About(60, sd=200), hc.Between(1, 5000)], ids=str)
@pytest.mark.parametrize(("total", "dispersion"), [(5.0, 50.0), (65.0, 5.0), (400.0, 5.0), (400.0, 50.0)])
@pytest.mark.parametrize("graph", ["chain", "loop"])
def test_a_reading_of_everybody_is_the_sum_over_their_number(graph, law, total, dispersion):
    """One total, however much it scatters: mean, sd and evidence of the sum over N, on a chain and on a network with a loop."""
    ring = {pair: np.eye(2) for pair in (("a", "b"), ("b", "c"), ("c", "a"))}
    model = CHAIN if graph == "chain" else hc.DiscreteModel(dict.fromkeys("abc", (0, 1)), ring)
    reading = hc.NegativeBinomial(
        [total],
        dispersion=dispersion,
        on=model.variables[-1],
        sums=[[1.0] * len(model.states[model.variables[-1]])],
    )
    found = hc.infer(hc.Problem(model, law, reading), "TiltedEP")
    n = np.arange(1.0, 100_000.0)
    log_p = law.log_pmf(n) + nbinom.logpmf(total, dispersion, dispersion / (dispersion + n))
    evidence = logsumexp(log_p)
    p = np.exp(log_p - evidence)
    sd = np.sqrt(p @ n**2 - (p @ n) ** 2)
    assert found.population.mean == pytest.approx(p @ n, abs=0.01 * sd)
    assert found.population.sd == pytest.approx(sd, rel=0.01)
    assert found.log_evidence == pytest.approx(evidence, abs=0.002)


@pytest.mark.parametrize("engine", [None, "TiltedEP", "MAP", "Enumerate"])
@pytest.mark.parametrize("seen", ["nothing", "lower bounds"])
def test_a_number_that_nothing_bounds_is_refused(engine, seen):
    """Nothing counted, or lower bounds alone, leave an Unknown number as large as it likes; a law or an upper bound ends that."""
    bounds = [[7.0, 3.0]] + [[np.nan, np.nan]] * 4

    def asked(law, side):
        data = () if seen == "nothing" else hc.Censored(hc.Poisson(bounds), side=side)
        return hc.Problem(CHAIN, law, data)

    with pytest.raises(hc.ProblemError, match="bounds the number of individuals from above"):
        hc.infer(asked(hc.Unknown(), 1), engine)
    if engine != "Enumerate":
        assert hc.infer(asked(hc.About(20, sd=5), 1), engine).status.good
    if engine is None and seen != "nothing":
        assert hc.infer(asked(hc.Unknown(), -1), engine).status.good


def test_a_small_expected_number_says_much():
    """A rare group has a large relative sd, and a law all the same: without counts its mean is that of the law."""
    rare = hc.population.PoissonSize(0.1)
    groups = {"many": hc.Group(CHAIN, 100), "rare": hc.Group(CHAIN, rare)}
    for problem, mean in ((hc.Problem(CHAIN, rare), 0.1), (hc.Problem(groups=groups), 100.1)):
        assert hc.infer(problem, "TiltedEP").population.mean == pytest.approx(mean, abs=1e-3)


@pytest.mark.parametrize("law", [30, hc.Unknown()])
def test_one_cell_at_many_times(law):
    """NumPy's arrays have 64 axes: a chain of one cell and 70 times was a raw error of its joint table."""
    chain = hc.MarkovChain([1.0], [[1.0]], length=70)
    found = hc.infer(hc.Problem(chain, law, hc.Poisson(np.full((70, 1), 30.0))))
    assert found.population.mean == pytest.approx(30.0, abs=0.01)
