"""Starts: several maxima, failed E-steps, one engine for all problems."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from benchmarks.starts import WEIGHTS, best_of_random_starts, world

import headcount as hc
from headcount import simulate
from headcount.engines import MAP, Engine, Outcome, Status, TiltedEP
from headcount.individual import MarkovChain
from headcount.learn import LogisticChain, TabularChain, fit
from headcount.learn._climb import Optimum
from headcount.learn._search import candidates, rival_notes
from headcount.observe import Problem, ProblemError
from learn.cases import birds, tiny_cases

CASES = tiny_cases()


@pytest.mark.parametrize("seed", [1, 5])
def test_a_fit_ends_at_the_best_of_several_maxima(seed: int) -> None:
    """Counts near an equilibrium: no more than two nats below the best of random starts; from zero, the wrong one is reached."""
    chain, problem = world(seed)
    found = fit(chain, problem)
    assert found.evidence > best_of_random_starts(chain, problem, 3, seed).evidence - 2
    assert (np.abs(found.working - WEIGHTS) < 4 * found.standard_errors.values).all()
    low = fit(chain, problem, MAP(), start="zero", standard_errors=False)
    high = fit(chain, problem, MAP(), standard_errors=False)
    assert high.evidence > low.evidence + 50
    assert found.searched > 0
    assert found.optima[0].evidence == max(o.evidence for o in found.optima)


def test_a_learned_initial_law_does_not_break_the_search() -> None:
    """The same world with its initial law learned: converged, with no less evidence than with the true one."""
    chain, problem = world(1)
    learned = fit(LogisticChain(chain.features, initial="learned"), problem, standard_errors=False)
    assert learned.evidence > fit(chain, problem, standard_errors=False).evidence - 0.1


def test_maxima_that_the_data_hardly_tell_apart_are_reported() -> None:
    """A second maximum within five nats is a note, one further down is not."""
    best, near, far = (
        Optimum(n, np.array([v]), e) for n, v, e in (("a", 1, -10), ("b", 4, -12.5), ("c", 9, -50))
    )
    (note,) = rival_notes([best, near, far], ["stay"])
    assert note.startswith("a second maximum, about 2.5 nats lower, lies near stay = 4 (from the start 'b')")
    assert rival_notes([best, far], ["stay"]) == []


def one_day() -> Problem:
    """Totals of one day, which hardly determine a free matrix: the evidence is flat along a curved ridge."""
    moves = [[0.8, 0.15, 0.05], [0.1, 0.8, 0.1], [0.05, 0.25, 0.7]]
    chain = MarkovChain([0.8, 0.1, 0.1], moves, length=8)
    day = simulate.population(chain, 5000, observe=simulate.poisson(), rng=1)
    return hc.Problem(chain, 5000, hc.Poisson(day.observed))


def test_climbs_that_end_along_one_ridge_are_one_maximum() -> None:
    """Three climbs that stop far apart on a ridge are one maximum once polished, and the fit converges on it."""
    found = fit(TabularChain(), one_day())
    assert found.status is Status.CONVERGED
    assert len(found.optima) == 1
    assert not any("second maximum" in note for note in found.notes)
    assert found.evidence > -120.5  # before steps were fitted to the ridge: stalled at −120.5016


def test_two_maxima_stay_two_when_polished() -> None:
    """Exact totals of 3 origins and 2 destinations: who goes where has several maxima, all at probability zero or one."""
    cells = [("a", "b", "c"), ("x", "y")]
    chain = MarkovChain([0.5, 0.3, 0.2], [np.full((3, 2), 0.5)], times=["before", "after"], cells=cells)
    counts = [hc.Exact([50, 30, 20], on="before"), hc.Exact([40, 60], on="after")]
    found = fit(TabularChain(), hc.Problem(chain, 100, counts))
    assert found.status is Status.EDGE
    assert any("ran to zero" in note for note in found.notes)
    assert found.information.edge
    assert np.sort(found.model.transitions[0][:2].ravel()) == pytest.approx([0, 0, 1, 1], abs=1e-3)
    assert any("second maximum" in note for note in found.notes)
    assert found.optima[0].evidence - found.optima[1].evidence > 0.1


def test_sticky_and_mobile_starts_are_what_they_say() -> None:
    """The weights of a start make staying as probable as its name says, forbidden moves or not; what features cannot say is left out."""
    features = np.stack([np.eye(4), np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))])
    near = features[1] <= 1
    model = MarkovChain(np.full(4, 0.25), np.full((4, 4), 0.25), length=3)
    problem = hc.Problem(model, 10, hc.Poisson(np.full((3, 4), 2.0)))
    for setting in (
        LogisticChain(features),
        LogisticChain(features, mask=np.where(near, 0.0, -np.inf)),
        TabularChain(near),
    ):
        family = setting.bind(model)
        staying = {
            name: np.diagonal(family.model(x).transitions[0]).mean()
            for name, x in candidates([family], [problem]).items()
        }
        assert staying["very sticky"] > 0.95
        assert 0.8 < staying["sticky"] < staying["very sticky"]
        assert staying["mobile"] < 0.1
    uphill = LogisticChain(np.broadcast_to(np.arange(4.0), (1, 4, 4)), names=["uphill"]).bind(model)
    assert list(candidates([uphill], [problem])) == ["zero"]


@dataclass(frozen=True)
class Narrow(Engine):
    """MAP that fails where staying in the first cell is improbable or all but certain."""

    lowest: float = 0.4
    highest: float = 0.9
    name: ClassVar[str] = "Narrow"

    def _run(self, problem: Problem, rng: np.random.Generator, progress: bool | None, start: Any) -> Outcome:
        stay = float(problem.model.transitions[0][0, 0])  # type: ignore[attr-defined]
        if not self.lowest < stay < self.highest:
            raise ValueError(f"exact observations contradict each other: {stay}")
        return MAP().run(problem, rng=rng, progress=progress, start=start)


@pytest.mark.parametrize("method", ["ascent", "em"])
def test_a_failed_e_step_shortens_the_step(method) -> None:
    """An engine that fails beyond a bound: the fit ends where the sound one does, and never raises."""
    p = np.array([[0.85, 0.15], [0.3, 0.7]])
    world_ = simulate.population(MarkovChain([0.5, 0.5], p, length=30), 2000, rng=1)
    problem = hc.Problem(world_.model, 2000, hc.Poisson(world_.observed))
    at = {"P[0→0]": 0.5, "P[1→1]": 0.5}
    sound = fit(TabularChain(), problem, MAP(), start=at, method=method, max_iterations=2000, tolerance=1e-3)
    narrow = fit(
        TabularChain(), problem, Narrow(), start=at, method=method, max_iterations=2000, tolerance=1e-3
    )
    assert np.allclose(narrow.working, sound.working, atol=0.02)
    beyond = fit(TabularChain(), problem, Narrow(highest=0.7), start=at, method=method, strict=False)
    assert not beyond.status.good
    assert 0.5 < beyond.parameters.sel(parameter="P[0→0]") < 0.7


def test_standard_errors_where_one_side_fails() -> None:
    """The bound lies within a difference step of the estimate: the information is that of the other side."""
    p = np.array([[0.85, 0.15], [0.3, 0.7]])
    world_ = simulate.population(MarkovChain([0.5, 0.5], p, length=30), 2000, rng=1)
    problem = hc.Problem(world_.model, 2000, hc.Poisson(world_.observed))
    sound = fit(TabularChain(), problem, MAP(), start="zero")
    stay = float(sound.parameters.sel(parameter="P[0→0]"))
    narrow = fit(
        TabularChain(), problem, Narrow(highest=stay + 1e-7), start=sound.working, tolerance=0.1, strict=False
    )
    assert np.allclose(narrow.standard_errors, sound.standard_errors, rtol=0.2)


def test_data_that_no_start_can_have_made_are_refused_in_words() -> None:
    """Every start fails: what each of them failed of."""
    with pytest.raises(ProblemError, match="start 'zero': exact observations contradict") as error:
        fit(TabularChain(), CASES["tabular"].problem, Narrow(lowest=2.0))
    assert len(error.value.problems) > 1


def test_one_engine_serves_all_problems() -> None:
    """Problems for which the choice would differ are fitted with one engine, chosen for the fitted model."""
    p = np.array([[0.9, 0.1], [0.2, 0.8]])
    flat = MarkovChain([0.5, 0.5], np.full((2, 2), 0.5), length=6)
    many = simulate.population(MarkovChain([0.5, 0.5], p, length=6), 5000, rng=1)
    few = simulate.population(MarkovChain([0.5, 0.5], p, length=6), 40, rng=2)
    problems = [
        hc.Problem(flat, 5000, hc.Gaussian(many.counts, sd=30.0)),
        hc.Problem(flat, 40, hc.Poisson(few.observed)),
    ]
    found = fit(TabularChain(), problems)
    assert {p.engine for p in found.posteriors} == {found.engine} == {"TiltedEP"}


def test_few_individuals_do_not_stall_the_refinement() -> None:
    """Ten individuals per cell, where TiltedEP's gradient and its evidence disagree: converged at a maximum of the evidence."""
    chain, problem = world(10, population=120)
    found = fit(chain, problem)
    assert not any("no maximum" in note for note in found.notes)
    family = chain.bind(problem.model)
    for k, error in enumerate(found.standard_errors.values):
        for side in (-0.5, 0.5):
            moved = found.working + side * error * np.eye(3)[k]
            assert (
                hc.infer(family.apply(moved, problem), TiltedEP(), strict=False).log_evidence
                < found.evidence + 0.02
            )


def test_birds_have_one_maximum() -> None:
    """Where all starts lead to one maximum, it is reported once."""
    world_, problem = birds()
    assert len(fit(LogisticChain(world_.features), problem, standard_errors=False).optima) == 1
