"""Predictions of memory and time: right to a factor of a few, and growing as the theory says."""

import math
import tracemalloc
from itertools import count

import numpy as np
import pytest
from scipy import sparse

from headcount.engines import MAP, Enumerate, Laplace, PathGibbs, TiltedEP, plan, run, select
from headcount.engines._cost import BYTES
from headcount.engines._run import operations_per_second
from headcount.individual import DiscreteModel, MarkovChain
from headcount.observe import Poisson, Problem
from headcount.population import Unknown
from headcount.simulate import birds

RATE = 1e10


def ring(cells: int, times: int, *, thin: bool = False) -> Problem:
    """Individuals that stay or go to a neighbour on a ring."""
    moves = 0.8 * np.eye(cells) + 0.1 * np.roll(np.eye(cells), 1, 1) + 0.1 * np.roll(np.eye(cells), -1, 1)
    chain = MarkovChain(np.full(cells, 1 / cells), sparse.csr_array(moves) if thin else moves, length=times)
    return Problem(chain, 100 * cells, [Poisson(np.full((times, cells), 100.0))])


def test_the_plan_names_what_infer_would_pick() -> None:
    """Engine and reason are those of select; a named engine is taken as named."""
    problem = ring(5, 4)
    made = plan(problem, rate=RATE)
    assert (made.engine, made.reason) == (select(problem).engine.name, select(problem).reason)
    assert plan(problem, MAP(), rate=RATE).engine == "MAP"


def test_memory_and_time_grow_as_the_theory_says() -> None:
    """Gaussian engines: memory as T L² (and T L for grids), time as T L² (L + 150); MAP on sparse moves: both as the number of moves."""
    small, wide, long = (plan(ring(c, t), Laplace(), rate=RATE) for c, t in ((200, 4), (400, 4), (200, 7)))
    assert wide.memory / small.memory == pytest.approx(4)
    assert long.memory / small.memory == pytest.approx(2)
    assert wide.seconds / small.seconds == pytest.approx(4 * 550 / 350, rel=0.1)
    with_grids = (
        plan(ring(200, 4), TiltedEP(), rate=RATE).memory,
        plan(ring(100, 8), TiltedEP(), rate=RATE).memory,
    )
    matrices = BYTES * TiltedEP.use.matrices * (3 * 200**2 - 7 * 100**2)
    assert with_grids[0] - with_grids[1] == matrices  # as many counts, so the same grids
    thin, thinner = (plan(ring(c, 4, thin=True), MAP(), rate=RATE) for c in (400, 200))
    assert thin.memory / thinner.memory == pytest.approx(2)
    assert thin.memory < plan(ring(400, 4), MAP(), rate=RATE).memory / 5


@pytest.mark.parametrize("engine", [TiltedEP(), Laplace(), MAP(), PathGibbs()])
def test_every_usual_engine_has_a_plan(engine: object) -> None:
    """Memory and time are positive and finite; writing never takes less than inferring."""
    made = plan(ring(6, 4), engine, rate=RATE)  # type: ignore[arg-type]
    assert 0 < made.memory <= made.writing == made.peak
    assert 0 < made.seconds < math.inf


def test_a_fit_is_planned_by_its_parameters() -> None:
    """Learning takes more inferences the more weights there are, and longer ones beside an unknown number; responses of tables are held."""
    problem = ring(40, 12)
    once, few, many = (plan(problem, TiltedEP(), rate=RATE, parameters=k) for k in (0, 4, 20))
    assert few.seconds > 20 * once.seconds
    assert many.seconds > 2 * few.seconds
    assert few.memory - once.memory == BYTES * 4 * 11 * 40**2
    unknown = Problem(problem.model, Unknown(), problem.observations)
    assert plan(unknown, TiltedEP(), rate=RATE, parameters=4).seconds > 2 * few.seconds


def test_an_engine_without_a_formula_says_so() -> None:
    """Enumeration has no estimate of time: NaN, not a guess."""
    assert math.isnan(plan(ring(2, 2), Enumerate(), rate=RATE).seconds)


def test_networks_have_a_plan() -> None:
    """A loopy network is planned from its junction tree."""
    agree = np.log([[3.0, 1.0], [1.0, 3.0]])
    pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    model = DiscreteModel(dict.fromkeys("abcd", 2), dict.fromkeys(pairs, agree))
    made = plan(Problem(model, 50, [Poisson([20, 30], on="a")]), rate=RATE)
    assert 0 < made.memory < 1e5


@pytest.mark.parametrize(
    ("engine", "side", "times"),
    [(TiltedEP(), 10, 8), (TiltedEP(), 6, 40), (Laplace(), 10, 8), (MAP(), 15, 5)],
    ids=["TiltedEP", "TiltedEP, long", "Laplace", "MAP"],
)
def test_the_prediction_is_near_what_a_run_takes(engine: object, side: int, times: int) -> None:
    """Peak memory (NumPy's) of the bird simulator's worlds: plan ÷ peak is between 0.67 and 1.5."""
    world = birds(side, (1, 2, 2, 2), 30 * side**2, steps=times, rng=1)
    problem = Problem(world.model, 30 * side**2, [Poisson(world.observed)])
    run(ring(4, 3), engine, strict=False)  # type: ignore[arg-type]  # what the first run loads is no part of the plan
    tracemalloc.start()
    try:
        run(problem, engine, strict=False)  # type: ignore[arg-type]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.67 < plan(problem, engine, rate=RATE).memory / peak < 1.5  # type: ignore[arg-type]


def test_the_plan_has_all_that_a_command_does() -> None:
    """An initial law that is unknown takes several inferences, and writing is planned with them: more for more flows."""
    known, wide = ring(20, 4), ring(40, 4)
    first = known.model
    assert isinstance(first, MarkovChain)
    blank = known.with_model(first.with_moves(None, first.transitions))
    made, unknown, more = (plan(p, TiltedEP(), rate=RATE) for p in (known, blank, wide))
    assert unknown.seconds > 2 * made.seconds
    assert unknown.writing_seconds > made.writing_seconds
    assert more.writing_seconds > made.writing_seconds > 0


def test_what_a_busy_machine_waits_for_is_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The speed of the machine is that of its processor, however long this process is kept waiting."""
    free = operations_per_second()
    waited = count(0.0, 3600.0)
    monkeypatch.setattr("time.perf_counter", lambda: next(waited))
    assert operations_per_second() > 0.05 * free


def test_only_moves_that_are_possible_are_written() -> None:
    """A dense matrix with zeros has the rows of flows of the same matrix without them."""
    dense, thin = (plan(ring(40, 6, thin=thin), MAP(), rate=RATE) for thin in (False, True))
    assert dense.writing_seconds == pytest.approx(thin.writing_seconds, rel=0.02)
