"""The automatic choice: which engine, why, and that what it answers is right where data and model disagree."""

from __future__ import annotations

import numpy as np
import pytest

import headcount as hc
from headcount import memory
from headcount.engines import MAP, ClosedForm, Enumerate, PathGibbs, Status, TiltedEP, select
from headcount.memory import TooLargeError

STICKY = np.array([[0.97, 0.02, 0.01], [0.02, 0.97, 0.01], [0.01, 0.02, 0.97]])
SEEN = np.array([[0.40, 0.30, 0.30], [0.36, 0.32, 0.32]])


def sticky(population, noise):
    """Three cells whose counts changed more than the model expects."""
    return hc.Problem(hc.MarkovChain(SEEN[0], STICKY, length=2), population, noise(population * SEEN))


def lowest(posterior):
    """The smallest expected count or flow."""
    cliques = [tuple(c) for c in posterior.problem.model.junction_tree.cliques]
    return min(float(posterior.beliefs.mean(c).min()) for c in cliques)


def test_gaussian_readings_that_disagree_with_the_prior():
    """Everyone moves over, which the prior thinks impossible: the answer is the exact one, where the closed form's is an sd off."""
    model = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], length=4)
    problem = hc.Problem(model, 200, hc.Gaussian(np.linspace([190, 10], [10, 190], 4), sd=2.0))
    got, exact, closed = (hc.infer(problem, e) for e in (None, Enumerate(), ClosedForm()))
    for t in range(4):
        np.testing.assert_allclose(got.beliefs.mean((t,)), exact.beliefs.mean((t,)), atol=0.05)
        np.testing.assert_allclose(got.node(t).sd, exact.node(t).sd, rtol=0.02)
    assert got.log_evidence == pytest.approx(exact.log_evidence, abs=0.05)
    assert lowest(got) == pytest.approx(lowest(exact), abs=0.05)
    assert lowest(closed) < -1
    assert abs(closed.log_evidence - exact.log_evidence) > 3


@pytest.mark.parametrize("noise", [hc.Exact, lambda y: hc.Gaussian(y, sd=10.0)], ids=["exact", "gaussian"])
def test_flows_between_large_counts_that_disagree_with_the_prior(noise):
    """A flow of about twenty is not minus thirty."""
    post = hc.infer(sticky(10_000, noise))
    assert post.promises.non_negative
    flow = float(post.edge(0, 1).mean[1, 0])
    assert flow == pytest.approx(19.2 if noise is hc.Exact else 25.1, abs=0.3)
    assert lowest(post) > 5


def test_the_evidence_of_sixty_million():
    """By Laplace's method it differs from the optimal value by logarithms of N; a Gaussian made at the prior is 35 000 nats off."""
    problem = sticky(60_000_000, lambda y: hc.Gaussian(y, sd=1000.0))
    post, best = hc.infer(problem), hc.infer(problem, MAP())
    assert abs(post.log_evidence - best.log_evidence) < 100
    np.testing.assert_allclose(post.beliefs.mean((0, 1)), best.beliefs.mean((0, 1)), rtol=1e-4)
    assert abs(hc.infer(problem, ClosedForm()).log_evidence - best.log_evidence) > 10_000


@pytest.mark.parametrize("seed", range(12))
def test_no_automatic_choice_gives_negative_counts(seed):
    """Exact, Gaussian and correlated readings, right and shuffled, of few and of many: means of counts and flows are ≥ 0."""
    rng = np.random.default_rng(seed)
    cells, population = int(rng.integers(2, 5)), int(10 ** rng.integers(1, 7))
    steps = rng.dirichlet(np.full(cells, 0.3), size=(3, cells)) * 0.99 + 0.01 / cells
    model = hc.MarkovChain(rng.dirichlet(np.ones(cells)), steps)
    n = np.array([np.bincount(x, minlength=cells) for x in model.sample(population, rng=rng).T], dtype=float)
    n = rng.permuted(n, axis=1) if seed % 2 else n
    sd = float(rng.choice([0.5, 3.0, 30.0]))
    covariance = sd**2 * (0.5 * np.eye(cells) + 0.5)
    noises = [
        hc.Exact(n),
        hc.Gaussian(n + rng.normal(0, sd, n.shape), sd=sd),
        *(hc.Gaussian(n[t] + rng.normal(0, sd, cells), covariance=covariance, on=t) for t in (0, 2)),
    ]
    for observations in ([noises[0]], [noises[1]], noises[2:]):
        post = hc.infer(hc.Problem(model, population, observations))
        assert post.promises.non_negative
        assert lowest(post) >= 0


@pytest.mark.parametrize("seed", range(25))
def test_the_evidence_of_exactly_seen_counts(seed):
    """log P(y) of whole and partly seen tables of a few individuals is within one nat of the listed sum."""
    rng = np.random.default_rng(seed)
    cells, population = 3, int(rng.integers(2, 6))
    model = hc.MarkovChain(rng.dirichlet(np.ones(cells)), rng.dirichlet(np.ones(cells), size=(2, cells)))
    y = np.array([np.bincount(x, minlength=cells) for x in model.sample(population, rng=rng).T], dtype=float)
    y[rng.random(y.shape) < 0.3] = np.nan
    problem = hc.Problem(model, population, hc.Exact(y))
    got, exact = hc.infer(problem, TiltedEP()), hc.infer(problem, Enumerate())
    assert got.log_evidence is None or got.log_evidence == pytest.approx(exact.log_evidence, abs=1.0)


def test_a_handful_of_individuals_is_answered_exactly():
    """Up to five individuals, on chains too long to list: an exact recursion, quickly; six go to the default."""
    rng = np.random.default_rng(1)
    model = hc.MarkovChain(rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4), size=4), length=9)
    counts = np.array([np.bincount(x, minlength=4) for x in model.sample(5, rng=rng).T], dtype=float)
    few, more = (hc.Problem(model, n, hc.Poisson(counts)) for n in (5, 6))
    assert isinstance(select(few).engine, Enumerate)
    assert select(more).engine == TiltedEP()
    post = hc.infer(few)
    assert post.status.value == "exact"
    assert post.outcome.seconds < 20


def test_a_handful_of_individuals_on_a_larger_map_is_sampled():
    """Beyond the exact recursion: the path sampler, its seed said, right within its error; where evidence is needed, the default."""
    rng = np.random.default_rng(2)
    model = hc.MarkovChain(rng.dirichlet(np.ones(30)), rng.dirichlet(np.full(30, 0.1), size=30), length=4)
    counts = np.array([np.bincount(x, minlength=30) for x in model.sample(4, rng=rng).T], dtype=float)
    problem = hc.Problem(model, 4, hc.Gaussian(counts + rng.normal(0, 0.3, counts.shape), sd=0.3))
    assert select(problem).engine == PathGibbs()
    assert select(problem, sampling=False).engine == TiltedEP()
    post, exact = hc.infer(problem), Enumerate().run(problem.core, rng=rng, progress=False).beliefs
    assert (post.status.value, post.outcome.info["seed"], post.log_evidence) == ("sampled", 0, None)
    assert "seed 0" in post.outcome.info["chosen"].reason
    for t in range(4):
        off = np.abs(post.beliefs.mean((t,)) - exact.mean((t,)))
        assert (off <= 5 * post.beliefs.error((t,)) + 0.01).all()
    again = hc.infer(problem, hc.engines.Auto())
    assert np.array_equal(again.node(1).mean, post.node(1).mean)
    unknown = hc.Problem(hc.MarkovChain(None, model.transitions), 4, *problem.observations)
    assert hc.infer(unknown).status.value == "sampled"


def test_unlikely_data_are_answered():
    """A count of 690 at rate 100 beside two individuals is unlikely, not impossible."""
    model = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], length=3)
    post = hc.infer(hc.Problem(model, 2, hc.Poisson([[690.0, 0], [0, 690], [1, 1]], rate=100.0)))
    assert post.status.good
    np.testing.assert_allclose(post.node(0).mean, [2, 0], atol=1e-6)


def test_no_engine_is_picked_that_does_not_fit():
    """Where covariances are too large MAP is picked, and where MAP is too large nothing is; both numbers are said."""
    world = hc.simulate.birds(side=6, population=300, steps=4, rng=1)
    problem = hc.Problem(world.model, 300, hc.Poisson(world.observed))
    need = memory.readable_bytes(TiltedEP().memory(problem.core))
    with memory.limited("200kB"):
        choice = select(problem)
        assert choice.engine == MAP()
        assert need in choice.reason
        assert "200 kB" in choice.reason
        with pytest.raises(TooLargeError, match=rf"TiltedEP would take {need} .* limit is 200 kB"):
            hc.infer(problem, TiltedEP())
    with memory.limited("2kB"), pytest.raises(TooLargeError, match=r"MAP.* would take .* limit is 2"):
        select(problem)


def test_one_individual_is_a_hidden_markov_chain() -> None:
    """N = 1: whatever the length and the number of cells, the default is forward–backward, exact in means and evidence."""
    rng = np.random.default_rng(1)
    cells, length = 60, 300
    moves = rng.dirichlet(np.full(cells, 0.3), size=cells)
    chain = hc.MarkovChain(np.full(cells, 1 / cells), moves, length=length)
    path = chain.sample(1, rng=2)[0]
    there = np.zeros((length, cells), dtype=int)
    there[np.arange(length), path] = 1
    seen = rng.binomial(there, 0.4)
    post = hc.infer(hc.Problem(chain, 1, hc.Binomial(seen.astype(float), detection=0.4)))

    likely = np.where(seen.any(axis=1)[:, None], 0.4 * seen, 0.6)
    ahead, total = [chain.initial * likely[0]], 0.0
    for y in likely[1:]:
        ahead.append(ahead[-1] / ahead[-1].sum() @ moves * y)
    total = float(np.log([a.sum() for a in ahead]).sum())
    behind = [np.ones(cells)]
    for y in likely[:0:-1]:
        back = moves @ (y * behind[0])
        behind.insert(0, back / back.max())
    for k in (0, length // 2, length - 1):
        both = ahead[k] * behind[k]
        np.testing.assert_allclose(post.node(k).mean, both / both.sum(), atol=1e-9)
    assert post.status is hc.engines.Status.EXACT
    assert post.log_evidence == pytest.approx(total, abs=1e-6)


def test_few_flocks_are_counted_as_few_individuals_are() -> None:
    """Three flocks of two are listed: the Gaussian is off by .15 nats there."""
    chain = hc.MarkovChain([0.6, 0.4], [[0.8, 0.2], [0.3, 0.7]], length=3)
    seen = hc.Poisson([[4, 3], [3, 3], [1, 4]])
    few = hc.Problem(chain, 6, seen, dispersion=hc.Flocks(2))
    found, exact = hc.infer(few), hc.infer(few, "Enumerate")
    assert found.status is Status.EXACT
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=1e-12)
    assert "whole flocks" in select(few).reason
    assert select(hc.Problem(chain, 7, seen, dispersion=hc.Flocks(2))).engine.name == "TiltedEP"
    kinds = {"a": hc.Group(chain, 4), "b": hc.Group(chain, 2)}
    both = hc.infer(hc.Problem(groups=kinds, observations=seen, dispersion=hc.Flocks(2)))
    assert both.log_evidence == pytest.approx(exact.log_evidence, abs=1e-9)


@pytest.mark.parametrize("kinds", [1, 2])
@pytest.mark.parametrize(("number", "exact"), [(6, True), (400, False)])
def test_few_individuals_of_unknown_number_are_answered_exactly(kinds, number, exact) -> None:
    """What `infer` picks depends on how many individuals the readings leave possible, not on the law's wide tail alone."""
    chain = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.3, 0.7]], length=3)
    seen = hc.Poisson(np.full((3, 2), number / 2), rate=0.8)
    groups = {k: hc.Group(chain, hc.Unknown()) for k in range(kinds)}
    problem = (
        hc.Problem(chain, hc.Unknown(), seen) if kinds == 1 else hc.Problem(groups=groups, observations=seen)
    )
    assert isinstance(select(problem).engine, Enumerate) == exact


def test_few_who_come_and_go_and_few_whose_moves_are_read_are_answered_exactly() -> None:
    """The far end of a law that hardly anything is left beyond is not planned for; and readings of moves bound a number as cells do."""
    coming = hc.OpenChain([0.8, 0.8], [[0.7, 0.3], [0.4, 0.6]], arrivals=0.5, survival=0.8, length=2)
    seen = [hc.Poisson([[np.nan, 2.0], [1.0, 7.0]], rate=2.0), hc.Exact([np.nan, 2.0], on=1)]
    assert isinstance(select(hc.Problem(coming, observations=seen)).engine, Enumerate)
    chain = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.3, 0.7]], length=2)
    moves = hc.Gaussian([[0.4, 1.8], [-1.8, 0.6]], sd=1.0, on=(0, 1))
    assert isinstance(select(hc.Problem(chain, hc.Unknown(), moves)).engine, Enumerate)


def test_readings_that_leave_many_individuals_possible_are_not_summed_over() -> None:
    """A zero at a rate of 1/1000 excludes nothing; a count of one cell of two says about how many there are."""
    chain = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.3, 0.7]], length=2)
    for seen, summed in (
        (hc.Poisson(np.zeros((2, 2)), rate=1e-3), False),
        (hc.Poisson([[2.0, np.nan], [3.0, np.nan]]), True),
    ):
        assert isinstance(select(hc.Problem(chain, hc.Unknown(), seen)).engine, Enumerate) == summed


def test_an_exact_sum_that_proves_too_long_is_not_the_answer():
    """How far a sum over an unknown number goes is guessed before the run; where that is too little another engine answers."""
    stays = hc.SemiMarkovChain([0.5, 0.5], [[0.4, 0.6], [0.3, 0.7]], [[0, 1], [1, 0]], length=3)
    seen = [hc.Poisson([0.0], on=2, sums=[[1.0, 1.0]]), hc.Gaussian(np.zeros((3, 2)), sd=1e5)]
    nobody = hc.Problem(stays, hc.Unknown(), seen)
    assert hc.engines.select(nobody).engine.name == "Enumerate"
    found = hc.infer(nobody)
    assert found.engine != "Enumerate"
    assert found.status.good
    # p(N | y) ∝ e^−N / N from N = 1 on: the mean is 1 / ((e − 1) (1 − log(e − 1))).
    assert found.population.mean == pytest.approx(1 / ((np.e - 1) * (1 - np.log(np.e - 1))), abs=0.02)
    with pytest.raises(hc.ProblemError, match="Enumerate would list"):
        hc.infer(nobody, "Enumerate")
