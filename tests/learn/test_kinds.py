"""What is learned of semi-Markov stays and of a memory: gradients against the evidence's, and truths that were simulated."""

from __future__ import annotations

import numpy as np
import pytest

import headcount as hc
from headcount.learn._expect import Expectation, run_here
from headcount.learn._family import bind

EXACT = hc.engines.Enumerate(most=1_500_000)
LAW, SEEN = [0.6, 0.4], np.array([[3.0, 2.0], [1.0, 4.0], [3.0, 1.0]])
STAYS = hc.SemiMarkovChain(LAW, [[0.1, 0.5], [0.3, 0.2]], [[0, 1], [0.8, 0]], length=3)
MEMORY = hc.MemoryChain(
    LAW, [[0.5, 0.5], [0.3, 0.7]], [[[0.2, 0.8], [0.05, 0.95]], [[0.9, 0.1], [0.5, 0.5]]], length=3
)
HOME = hc.HomeChain([[0.5, 0.1], [0.1, 0.3]], [[0.6, 0.4], [0.2, 0.8]], [0.3, 0.5], length=3)

ELSEWHERE = hc.HomeChain([[0.5, 0], [0.1, 0.4]], [[1, 0], [1, 0]], 0.4, length=3)
"""What is learned makes states possible that the chain given has not."""


@pytest.mark.parametrize(
    ("chain", "learned"),
    [
        (HOME, hc.learn.LearnFidelity()),
        (HOME, hc.learn.LearnFidelity(hc.TabularChain(), by="cell")),
        (HOME, hc.learn.LearnFidelity(hc.LogisticChain(np.stack([np.eye(2), [[0, 1], [0, 1]]])))),
        (ELSEWHERE, hc.learn.LearnFidelity(hc.LogisticChain(np.stack([np.eye(2)])), by="cell")),
        (STAYS, hc.learn.LearnHazard(by="cell")),
        (STAYS, hc.learn.LearnHazard(ages={"constant": [1, 1], "age": [0, 1]}, prior=0.3)),
        (MEMORY, hc.learn.LearnMemory()),
        (MEMORY, hc.learn.LearnMemory(dirichlet=1.5)),
    ],
)
def test_the_gradient_is_that_of_the_evidence(chain: hc.Model, learned: object) -> None:
    """Fisher's identity, by enumeration: ∂(log p(y) + log prior) at the expected tables, tracked individuals included."""
    tracks = hc.Tracks({"id": ["a", "a", "a"], "time": [0, 1, 2], "cell": [0, 1, 0]}, counted=False)
    problem = hc.Problem(chain, 4, [hc.Poisson(SEEN), tracks])
    expect = Expectation(bind([learned], [problem]), [problem], EXACT, 0, run_here)
    x = expect.families[0].start() + 0.1
    gradient, step = expect(x, None).gradient, 1e-4
    for k in range(len(x)):
        up, down = (expect(x + side * step * np.eye(len(x))[k], None).value for side in (1, -1))
        assert gradient[k] == pytest.approx((up - down) / (2 * step), abs=1e-5)


def test_the_gradient_of_arrivals_is_that_of_the_evidence() -> None:
    """Fisher's identity for expected arrivals by step and first numbers, some of whom leave and some do not."""
    chain = hc.SemiMarkovChain([0.3], [0.3, 0.6], arrivals=[[0.2], [0.3]], length=3)
    problem = hc.Problem(chain, observations=hc.Poisson([[1.0], [0.0], [2.0]]))
    learned = hc.learn.LearnSizes(hc.learn.LearnArrivals(by="step"))
    expect = Expectation(bind([learned], [problem]), [problem], hc.engines.TiltedEP(), 0, run_here)
    gradient, step = expect(np.zeros(3), None).gradient, 1e-3
    for k in range(3):
        up, down = (expect(side * step * np.eye(3)[k], None).value for side in (1, -1))
        assert gradient[k] == pytest.approx((up - down) / (2 * step), abs=0.02)


def test_the_prior_of_a_hazard_is_half_an_individual_on_each_side() -> None:
    """With D who left and S who stayed the most probable hazard of an age is (D + ½)/(D + S + 1)."""
    left, stayed = np.array([3.0, 0.0]), np.array([5.0, 2.0])
    hazards = hc.learn.LearnHazard().component(STAYS)
    best = (left + 0.5) / (left + stayed + 1)
    x, n = np.log(best / (1 - best)), np.stack([left, stayed])
    np.testing.assert_allclose(hazards.gradient(x, n) + hazards.prior_gradient(x), 0, atol=1e-12)
    assert hazards.log_prior(x) == pytest.approx(0.5 * np.log(best * (1 - best)).sum())


AGES = np.arange(10)
FEATURES = {"constant": np.ones(10), "age": AGES}


@pytest.fixture(scope="module")
def cohort() -> tuple[np.ndarray, np.ndarray]:
    """Expected arrivals, most of them at one time, and counts of them: they stay for about six times."""
    arrivals = np.zeros((13, 1))
    arrivals[:2, 0] = 300, 60
    truth = hc.SemiMarkovChain([0], 1 / (1 + np.exp(6 - AGES)), arrivals=arrivals, length=14)
    return arrivals, hc.simulate.population(truth, rng=3).observed.values


def test_a_cohort_does_not_leave_at_a_constant_rate(cohort: tuple[np.ndarray, np.ndarray]) -> None:
    """The check of fit rejects geometric stays, whatever their survival, and accepts the semi-Markov ones, whose hazard it finds."""
    arrivals, y = cohort
    guess = 0.5 * arrivals
    geometric = hc.OpenChain([0], [[1.0]], arrivals=guess, survival=0.7, length=14)
    semi = hc.SemiMarkovChain([0], np.full(10, 0.2), arrivals=guess, length=14)
    came = hc.learn.LearnArrivals()
    wrong = hc.fit(
        hc.learn.LearnSurvival(came), hc.Problem(geometric, observations=hc.Poisson(y)), parameters="plug-in"
    )
    right = hc.fit(
        hc.learn.LearnHazard(came, ages=FEATURES),
        hc.Problem(semi, observations=hc.Poisson(y)),
    )
    assert wrong.posterior.fit_check.agrees is False
    assert right.posterior.fit_check.agrees is True
    assert right.plug_in.fit_check.agrees is None
    assert right.evidence > wrong.evidence + 100
    table = right.table().set_index("parameter")
    for name, truth in (("hazard constant", -6), ("hazard age", 1), ("arrivals", 360 / 13)):
        assert table.loc[name, "lower"] < truth < table.loc[name, "upper"]
    assert table.loc["hazard age", "standard_error"] < 0.3


def test_every_age_may_have_its_own_hazard(cohort: tuple[np.ndarray, np.ndarray], tmp_path: object) -> None:
    """One hazard per age class, found within its intervals where many leave; a file holds the chain."""
    arrivals, y = cohort
    truth = 1 / (1 + np.exp(6 - AGES))
    problem = hc.Problem(
        hc.SemiMarkovChain([0], truth, arrivals=arrivals, length=14), observations=hc.Poisson(y)
    )
    found = hc.fit(hc.learn.LearnHazard(), problem, parameters="plug-in")
    table = found.table()
    assert list(table["parameter"]) == [f"hazard@{age}" for age in AGES]
    inside = (table["lower"] <= truth) & (truth <= table["upper"])
    assert inside[3:9].all()
    found.save(tmp_path / "fit.nc")
    back = hc.Fit.load(tmp_path / "fit.nc").models[0]
    np.testing.assert_allclose(back.hazard, found.models[0].hazard)
    np.testing.assert_allclose(back.arrivals, arrivals)


def test_a_strong_memory_is_found_with_tags(tmp_path: object) -> None:
    """Individuals that go on in their direction on a ring of three, eight of ten times: counts and 60 tags tell it."""
    first, memory = np.full((3, 3), 1 / 3), np.full((3, 3, 3), 0.1)
    for before in range(3):
        for here in range(3):
            memory[before, here, (2 * here - before) % 3] = 0.8
    truth = hc.MemoryChain([0.5, 0.3, 0.2], first, memory, length=6)
    counts = hc.simulate.population(truth, 300, rng=1).observed.values
    paths = truth.full.sample(60, rng=2)
    cells = np.stack([truth.codes[t][paths[:, t]] for t in range(6)], axis=1)
    tags = hc.Tracks(
        {"id": np.repeat(np.arange(60), 6), "time": np.tile(np.arange(6), 60), "cell": cells.ravel()},
        counted=False,
    )
    guess = truth.changed(memory=np.full((3, 3, 3), 1 / 3))
    problem = hc.Problem(guess, 300, [hc.Poisson(counts), tags])
    found = hc.fit(hc.learn.LearnMemory(dirichlet=1.5), problem, parameters="plug-in")
    table, wanted = found.table(), np.array([memory[i, j, k] for i, j in truth.pairs for k in range(3)])
    assert np.abs(table["estimate"] - wanted).max() < 0.2
    assert np.mean((table["lower"] <= wanted) & (wanted <= table["upper"])) > 0.8
    found.save(tmp_path / "fit.nc")
    back = hc.Fit.load(tmp_path / "fit.nc").models[0]
    np.testing.assert_allclose(back.memory.toarray(), found.models[0].memory.toarray())


def test_homes_are_found_with_recoveries_and_foretell_others(tmp_path: object) -> None:
    """Fidelity and moves are learned together; a learned posterior scores tracks by its homes, as the sum over them by hand does."""
    truth = hc.HomeChain([0.5, 0.3, 0.2], [[0.2, 0.6, 0.2], [0.3, 0.2, 0.5], [0.4, 0.4, 0.2]], 0.7, length=6)
    counts = hc.simulate.population(truth, 2000, rng=1).observed.values
    paths = truth.codes[0][truth.full.sample(400, rng=2)]
    ends = {"from_time": 1, "to_time": 4, "from_cell": paths[:, 1], "to_cell": paths[:, 4]}
    tags = hc.Tracks({name: np.broadcast_to(v, 400) for name, v in ends.items()}, counted=False)
    guess = truth.changed(fidelity=0.3, transitions=np.full((3, 3), 1 / 3))
    found = hc.fit(
        hc.learn.LearnFidelity(hc.TabularChain()), hc.Problem(guess, 2000, [hc.Poisson(counts), tags])
    )
    row = found.table().set_index("parameter").loc["fidelity"]
    assert row["lower"] < 0.7 < row["upper"]
    assert row["standard_error"] < 0.1
    fidelity, moves = found.models[0].fidelity[0], np.asarray(found.models[0].transitions[0])
    home = np.stack([(1 - fidelity) * moves + fidelity * np.eye(3)[h] for h in range(3)])
    start = truth.initial[:, None] * np.stack([home[h, h] for h in range(3)])  # (home, cell) at time 1
    later = np.einsum("hi,hij->ij", start, np.linalg.matrix_power(home, 3))
    by_hand = np.log(later / start.sum(axis=0)[:, None])[paths[:, 1], paths[:, 4]]
    for post in (found.plug_in, found.posterior):
        assert post.log_prob(tags).mean() == pytest.approx(by_hand.mean(), abs=0.02)
    found.save(tmp_path / "fit.nc")
    back = hc.Fit.load(tmp_path / "fit.nc").models[0]
    np.testing.assert_allclose(back.full.transitions[0], found.models[0].full.transitions[0])


@pytest.mark.parametrize("chain", [STAYS, MEMORY])
def test_matrices_of_cells_are_not_learned_of_them(chain: hc.Model) -> None:
    """A table of transitions says nothing about ages and pairs: refused, with what to use."""
    with pytest.raises(hc.ProblemError, match="LearnHazard, LearnMemory"):
        hc.fit(hc.TabularChain(), hc.Problem(chain, 5, hc.Poisson(SEEN)))


def test_homes_of_noisy_counts_alone_are_not_believed():
    """A fidelity that only noisy counts tell withholds agreement, and says so; with forty followed individuals it is given."""
    rng = np.random.default_rng(4)
    moves = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.3, 0.3, 0.4]])
    true = hc.HomeChain([0.5, 0.3, 0.2], moves, rng.uniform(0.1, 0.9), length=7)
    cells = np.asarray(true.codes[0])[true.full.sample(500, rng=rng)]
    counts = np.stack([np.bincount(cells[:, t], minlength=3) for t in range(7)])
    seen = hc.Poisson(rng.poisson(counts).astype(float))
    rings = {"id": np.repeat(np.arange(40), 7), "time": list(range(7)) * 40, "cell": cells[:40].ravel()}
    start = hc.HomeChain([0.5, 0.3, 0.2], moves, 0.5, length=7)
    alone, followed = (
        hc.fit(hc.learn.LearnFidelity(), hc.Problem(start, 500, data)).posterior
        for data in ([seen], [seen, hc.Tracks(rings)])
    )
    assert alone.fit_check.agrees is None
    assert "few and noisy" in alone.fit_check.verdict
    assert followed.fit_check.agrees
