"""EM and direct ascent: the way up, and the top."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

import headcount as hc
from headcount import simulate
from headcount.engines import MAP, Enumerate, IterativeEngine, Laplace, PathGibbs, Status, TiltedEP
from headcount.individual import MarkovChain
from headcount.learn import FitNotConvergedError, LogisticChain, TabularChain, fit, fit_complete
from headcount.learn._climb import FALL_ALLOWED, Climber, acceptable, disagreeing
from headcount.learn._expect import Evaluation
from headcount.learn._search import LEFT_AT_MOST
from learn.cases import birds, tiny_cases

CASES = tiny_cases()


@pytest.mark.parametrize("name", CASES)
def test_em_never_loses_evidence_with_exact_e_steps(name: str) -> None:
    """Exact E-steps: no M-step lowers log p(y) + log prior."""
    case = CASES[name]
    found = fit(
        case.parametrisation,
        case.problem,
        Enumerate(),
        method="em",
        start=case.parameters,
        max_iterations=10,
        tolerance=0,
        standard_errors=False,
        strict=False,
    )
    values = found.trace["objective"].to_numpy()
    assert len(values) == 11
    assert values[-1] > values[0] + 1e-3
    assert np.diff(values).min() >= -1e-9
    assert found.status is Status.BUDGET
    assert not found.notes


@pytest.mark.parametrize("name", ["logistic, one weight fixed, ridge", "tabular, prior"])
def test_ascent_and_em_share_their_top_with_exact_e_steps(name: str) -> None:
    """Ascent ends where EM's M-step stands still, and both know it."""
    case = CASES[name]
    up = fit(case.parametrisation, case.problem, Enumerate(), tolerance=1e-7, standard_errors=False)
    slow = fit(
        case.parametrisation,
        case.problem,
        Enumerate(),
        method="em",
        max_iterations=2000,
        tolerance=1e-7,
        standard_errors=False,
    )
    assert up.status is slow.status is Status.CONVERGED
    assert np.allclose(up.working, slow.working, atol=1e-4)
    assert up.e_steps < slow.e_steps


@pytest.mark.parametrize("engine", [MAP(), TiltedEP()], ids=lambda e: e.name)
def test_ascent_reaches_in_20_e_steps_what_em_has_after_500(engine) -> None:
    """At most twenty E-steps to the evidence of five hundred EM iterations, from w = 0."""
    world, problem = birds(side=2, steps=6, population=150)
    setting = LogisticChain(world.features)
    up = fit(setting, problem, engine, standard_errors=False)
    slow = fit(
        setting,
        problem,
        engine,
        method="em",
        max_iterations=500,
        tolerance=0,
        standard_errors=False,
        strict=False,
    )
    assert len(slow.rows) == 501
    reached = up.trace.query("evidence >= @goal", local_dict={"goal": slow.evidence - 1e-3})["e_steps"]
    assert len(reached) > 0
    assert reached.iloc[0] <= 20
    assert up.e_steps <= 20
    # Where EM stops depends on the engine alone, so both end at the same weights.
    assert np.abs(up.working - slow.working).max() < 1e-3


def test_complete_counts_give_the_weights_back() -> None:
    """Expected counts under w are maximised by w, to 1e-8; so are exact observations of them by a table."""
    world, _ = birds()
    weights = np.array([1.0, 2.0, 2.0, 2.0])
    found = fit_complete(
        LogisticChain(world.features), world.model, lambda s: 200 * world.model.marginal(s), truth=weights
    )
    assert np.abs(found.working - weights).max() < 1e-8
    assert found.rows[0]["error"] < 1e-8
    counted = fit_complete(LogisticChain(world.features), world.model, world.tables)
    flows = world.flows
    assert (
        np.abs(
            LogisticChain(world.features).bind(world.model).components[0].gradient(counted.working, flows)
        ).max()
        < 1e-8
    )


def test_exact_flows_make_inference_superfluous() -> None:
    """With every flow observed exactly, a fit is the complete counts' fit."""
    p = np.array([[0.7, 0.2, 0.1], [0.3, 0.5, 0.2], [0.25, 0.25, 0.5]])
    model = MarkovChain([0.5, 0.3, 0.2], p, length=4)
    world = simulate.population(model, 300, rng=1)
    flows = [hc.Exact(world.flows[t], on=(t, t + 1)) for t in range(3)]
    problem = hc.Problem(model, 300, flows)
    features = np.random.default_rng(2).normal(size=(2, 3, 3))
    whole = fit_complete(LogisticChain(features), model, world.tables)
    seen = fit(LogisticChain(features), problem, TiltedEP(centre="map"), tolerance=1e-8)
    assert np.abs(seen.working - whole.working).max() < 1e-8
    assert np.allclose(seen.standard_errors, whole.standard_errors, rtol=1e-4)
    table = fit(TabularChain(), problem, TiltedEP(centre="map"), start="zero", tolerance=1e-8)
    counts = world.flows.sum(axis=0)
    assert (
        np.abs(table.natural.values.reshape(3, 3) - counts / counts.sum(axis=1, keepdims=True)).max() < 1e-8
    )


def test_absorbing_chain_from_totals_alone() -> None:
    """Three states, fifty periods, one absorbing: P is recovered within its intervals from noisy totals."""
    p = np.array([[0.85, 0.1, 0.05], [0.2, 0.7, 0.1], [0.0, 0.0, 1.0]])
    model = MarkovChain([1, 0, 0], p, length=50, cells=["well", "ill", "gone"])
    world = simulate.population(model, 1000, rng=3)
    problem = hc.Problem(model, 1000, hc.Poisson(world.observed))
    found = fit(TabularChain(p > 0), problem, truth=p)
    ends = found.interval(0.95)
    free = p[:2].ravel()
    assert list(found.natural.names) == [
        f"P[{a}→{b}]" for a in ("well", "ill") for b in ("well", "ill", "gone")
    ]
    assert ((ends["lower"].values <= free) & (ends["upper"].values >= free)).all()
    assert (found.standard_errors.values < 0.05).all()
    assert found.rows[-1]["error"] < 0.05
    assert found.start.endswith(", then MAP")
    assert fit(TabularChain(p > 0), problem, start="regression").evidence == pytest.approx(
        found.evidence, abs=0.01
    )
    assert np.array_equal(found.model.transitions[0][2], [0, 0, 1])


def test_sequences_share_their_parameters() -> None:
    """Two problems say more than one: standard errors shrink, and the sum of evidences is climbed."""
    (world, first), (other, second) = birds(rng=1), birds(rng=2)
    alone = fit(LogisticChain(world.features), first)
    both = fit([LogisticChain(world.features), LogisticChain(other.features)], [first, second])
    assert (both.standard_errors < alone.standard_errors).all()
    parts = [
        hc.infer(s.bind(q.model).apply(both.working, q)).log_evidence
        for s, q in zip(both.parametrisations, (first, second), strict=True)
    ]
    assert both.evidence == pytest.approx(sum(parts), abs=1e-4)
    once = fit(LogisticChain(world.features), first, MAP())
    twice = fit(LogisticChain(world.features), [first, first], MAP())
    assert np.allclose(twice.working, once.working, atol=1e-4)
    assert np.allclose(np.sqrt(2) * twice.standard_errors, once.standard_errors, rtol=1e-3)


def test_learned_rate_and_initial_law() -> None:
    """λ and the first law are recovered within their intervals when the data determine them."""
    p = np.array([[0.8, 0.2], [0.4, 0.6]])
    model = MarkovChain([0.3, 0.7], p, length=12)
    world = simulate.population(model, 2000, observe=simulate.poisson(0.5), rng=1)
    blank = hc.Problem(MarkovChain([0.5, 0.5], p, length=12), 2000, hc.Poisson(world.observed))
    found = fit(hc.learn.LearnRate(TabularChain(initial="learned")), blank)
    ends = found.interval(0.98)
    truth = {
        "P[0→0]": 0.8,
        "P[0→1]": 0.2,
        "P[1→0]": 0.4,
        "P[1→1]": 0.6,
        "initial[0]": 0.3,
        "initial[1]": 0.7,
        "rate": 0.5,
    }
    assert set(found.natural.names) == set(truth)
    for k, name in enumerate(found.natural.names):
        assert ends["lower"].values[k] <= truth[name] <= ends["upper"].values[k], name
    assert found.posterior.problem.sites[0].noise.rate[0] == pytest.approx(
        found.parameters.sel(parameter="rate").item()
    )


def _evaluation(value: float, gradient: float) -> Evaluation:
    return Evaluation(np.zeros(1), value, 0.0, np.array([gradient]), None, (), 0.0, Status.CONVERGED, 0.0)  # type: ignore[arg-type]


def test_steps_are_accepted_for_what_they_gain() -> None:
    """Armijo's rise, or within the allowed fall a gradient that shrank as it should; nothing else."""
    old, way = _evaluation(0.0, 1.0), np.ones(1)

    def taken(value: float, gradient: float, length: float = 1.0) -> bool:
        return acceptable(old, _evaluation(value, gradient), way, length, 1.0)

    assert taken(0.5, 5.0)
    assert taken(-1.9, 0.1)
    assert not taken(-1.9, 1.1)
    assert not taken(-1.9, -0.9)
    assert not taken(-2.1, 0.1)
    assert not taken(-0.3, 0.1, 0.1)
    assert taken(-0.9 * FALL_ALLOWED, 0.1, 1e-3)
    assert not taken(-1.1 * FALL_ALLOWED, 0.1, 1e-3)
    assert taken(float("nan"), 0.1)
    assert not taken(float("nan"), -0.9)


def test_evidence_is_believed_where_it_contradicts_its_gradient() -> None:
    """A short step whose rise is not the trapezium of the gradients at its ends is contrary; a long one, far away, is not."""

    def contrary(gain: float, before: float, after: float, *, step: float, residual: float) -> bool:
        old, new = _evaluation(0.0, before), replace(_evaluation(gain, after), x=np.array([step]))
        return disagreeing(old, new, residual)

    # Unit curvature: a step of 0.4 from a slope of 0.4 rises by 0.08.
    assert not contrary(0.08, 0.4, 0.0, step=0.4, residual=0.01)
    assert contrary(0.08 - 0.4 * 0.06, 0.4, 0.0, step=0.4, residual=0.01)
    assert not contrary(0.08 - 0.4 * 0.06, 0.4, 0.0, step=0.4, residual=0.1)
    assert contrary(-0.01, 0.4, 0.0, step=0.4, residual=0.5)
    assert not contrary(-0.08, 0.4, -0.8, step=0.4, residual=0.5)  # it overshot, and both say so
    assert not contrary(-0.01, 0.4, 0.0, step=0.4, residual=5.0)
    assert not contrary(float("nan"), 0.4, 0.0, step=0.4, residual=0.01)


@pytest.mark.parametrize("start", [None, "zero"])
def test_ascent_ends_at_the_maximum_of_the_evidence(start) -> None:
    """Few individuals, where TiltedEP's gradient vanishes elsewhere: no weight can be moved for more evidence."""
    world = simulate.birds(side=4, weights=(2, 4, 4, 4), population=16, steps=10, rng=2)
    problem = hc.Problem(world.model, 16, hc.Poisson(world.observed))
    setting = LogisticChain(world.features)
    found = fit(setting, problem, TiltedEP(), start=start)
    zero = fit(setting, problem, TiltedEP(), start=start, refine=False)
    assert found.information.discrepancy > 0.2
    assert found.evidence > zero.evidence + 0.02
    assert found.rows[-1]["residual"] <= LEFT_AT_MOST
    assert found.trace["e_steps"].is_monotonic_increasing
    family = setting.bind(problem.model)

    def evidence(x: np.ndarray) -> float:
        return hc.infer(family.apply(x, problem), TiltedEP()).log_evidence

    # A quarter of a standard error from a maximum costs 1/32 nat; from a tenth off, up to 0.025 may be won back.
    for k, error in enumerate(found.standard_errors.values):
        for side in (-0.25, 0.25):
            assert evidence(found.working + side * error * np.eye(4)[k]) < found.evidence + 0.005


def test_a_fall_of_evidence_is_said() -> None:
    """EM with the paper's approximate E-step may lose evidence and expect counts below zero: the notes say both."""
    world, problem = birds(side=4, population=16, steps=10)
    found = fit(
        LogisticChain(world.features),
        problem,
        Laplace(),
        method="em",
        max_iterations=60,
        tolerance=0,
        strict=False,
        standard_errors=False,
    )
    trace = found.trace
    fell = trace["decrease"] > 1e-9 * (1 + abs(found.evidence))
    assert (trace["negative"] > 0).any()
    assert any("below zero" in note for note in found.notes)
    assert fell.any() == any("fell" in note for note in found.notes)
    assert np.allclose(trace["decrease"][1:], np.maximum(-np.diff(trace["objective"]), 0))


def test_too_few_iterations_raise() -> None:
    """A fit that ran out of iterations raises, with what it reached; strict=False returns it, marked."""
    world, problem = birds()
    with pytest.raises(
        FitNotConvergedError, match=r"iteration budget spent after 2 iterations .*strict=False"
    ) as error:
        fit(LogisticChain(world.features), problem, MAP(), max_iterations=2, standard_errors=False)
    assert error.value.fit.status is Status.BUDGET
    assert len(error.value.fit.rows) == 3
    loose = fit(
        LogisticChain(world.features), problem, MAP(), max_iterations=2, strict=False, standard_errors=False
    )
    assert np.array_equal(loose.working, error.value.fit.working)


@dataclass(frozen=True)
class Fragile(IterativeEngine):
    """MAP that breaks down whenever it starts from an earlier answer."""

    name: ClassVar[str] = "Fragile"
    tolerance: float = 1e-8
    max_iterations: int = 500

    def init(self, problem, rng=None):
        return MAP().init(problem)

    def resume(self, problem, rng, start):
        return None

    def step(self, state):
        return None if state is None else MAP().step(state)

    def residual(self, state):
        return np.nan if state is None else MAP().residual(state)

    def finish(self, state):
        return MAP().finish(MAP().init(CASES["logistic"].problem) if state is None else state)


def test_an_earlier_answer_that_is_no_help_is_dropped() -> None:
    """Where a warm start breaks an engine, it begins afresh, and the fit is the same."""
    case = CASES["logistic"]
    sound = fit(case.parametrisation, case.problem, MAP(), standard_errors=False)
    fragile = fit(case.parametrisation, case.problem, Fragile(), standard_errors=False)
    assert np.allclose(sound.working, fragile.working, atol=1e-6)


def test_random_engines_need_a_seed_and_repeat_with_it() -> None:
    """A sampler's fit asks for rng, needs no evidence, and gives the same numbers for the same seed."""
    case = CASES["tabular, prior"]
    engine = PathGibbs(sweeps=200, burn_in=50, chains=2)

    def go(rng: int | None):
        return fit(
            case.parametrisation,
            case.problem,
            engine,
            rng=rng,
            start="zero",
            standard_errors=False,
            tolerance=0.05,
        )

    with pytest.raises(ValueError, match="is random: give rng"):
        go(None)
    first, again = go(3), go(3)
    exact = fit(case.parametrisation, case.problem, Enumerate(), start="zero", standard_errors=False)
    assert np.array_equal(first.working, again.working)
    assert np.isnan(first.evidence)
    assert np.abs(first.working - exact.working).max() < 0.2


def test_a_free_matrix_that_is_drawn_needs_no_maximum() -> None:
    """Twelve probabilities from exact counts of four cells run along edges: the fit is drawn and ends; its plain maximum is not reached."""
    moves = np.exp(2 * np.eye(4) - np.array([[0, 1, 1, 1.4], [1, 0, 1.4, 1], [1, 1.4, 0, 1], [1.4, 1, 1, 0]]))
    moves /= moves.sum(axis=1, keepdims=True)
    world = MarkovChain(np.full(4, 0.25), moves, length=8)
    paths = world.sample(400, rng=1)
    counts = np.array([np.bincount(paths[:, t], minlength=4) for t in range(8)], dtype=float)
    blank = MarkovChain(np.full(4, 0.25), np.full((4, 4), 0.25), length=8)
    problem = hc.Problem(blank, 400, hc.Exact(counts))
    found = fit(TabularChain(), problem)
    assert found.status is Status.EDGE
    assert any("the search ended" in note for note in found.notes)
    assert found.integral is not None
    assert found.posterior.fit_check.agrees is None  # nobody is told that all is well
    with pytest.raises(FitNotConvergedError, match="iteration budget spent"):
        fit(TabularChain(), problem, prior=None)
    with pytest.raises(FitNotConvergedError):  # what did not arrive is inference itself
        fit(TabularChain(), hc.Problem(blank, 400, hc.Poisson(counts)), TiltedEP(max_iterations=3))


@pytest.mark.parametrize(("count", "most"), [(1, 0.1414), (12, 0.4899), (100, 0.5)])
def test_how_near_a_search_that_is_stuck_must_be(count: int, most: float) -> None:
    """A stuck search is converged where its distance adds at most 2 % to the squared error of K parameters, which is K, and below .5."""
    point = SimpleNamespace(gradient=np.zeros(count), x=np.zeros(count), status=Status.CONVERGED)

    def ended(residual: float) -> Status | None:
        climb = SimpleNamespace(point=point, residual=residual, stuck=True, told=True, contrary=False)
        return Climber(None).status(SimpleNamespace(climb=climb, rows=(1, 2)))  # type: ignore[arg-type]

    assert most == pytest.approx(min((0.02 * count) ** 0.5, 0.5), rel=0.001)
    assert ended(0.99 * most) is Status.CONVERGED
    assert ended(1.01 * most) is Status.STALLED
