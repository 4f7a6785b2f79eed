"""What may be learned and what not: zeros, fixed laws, priors, starts; and what a fit says on its way."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

import headcount as hc
from headcount import simulate
from headcount.engines import MAP, Engine, Enumerate, Outcome, TiltedEP
from headcount.individual import DiscreteModel, MarkovChain
from headcount.learn import LearnRate, LogisticChain, LogLinear, TabularChain, fit, fit_complete
from headcount.learn._expect import EStep, Objective
from headcount.observe import Problem, ProblemError
from learn.cases import birds, tiny_cases

CASES = tiny_cases()


def test_forbidden_moves_stay_forbidden() -> None:
    """A mask of −inf is a probability of zero in the fit, and free rows still sum to one."""
    rng = np.random.default_rng(1)
    features = rng.normal(size=(2, 4, 4))
    near = np.abs(np.subtract.outer(np.arange(4), np.arange(4))) <= 1
    setting = LogisticChain(features, mask=np.where(near, 0.0, -np.inf))
    model = setting.bind(MarkovChain([0.25] * 4, np.full((4, 4), 0.25), length=6)).model(
        np.array([0.8, -0.5])
    )
    world = simulate.population(model, 400, rng=2)
    problem = hc.Problem(model, 400, hc.Poisson(world.observed))
    found = fit(setting, problem, truth=[0.8, -0.5])
    fitted = found.model.transitions[0]
    assert np.array_equal(fitted > 0, near)
    assert np.allclose(fitted.sum(axis=1), 1)
    assert found.posterior.edge(0, 1).mean.values[~near].max() == 0
    assert (np.abs(found.working - [0.8, -0.5]) < 3 * found.standard_errors.values).all()


def test_structural_zeros_of_a_table_stay_zero() -> None:
    """An offset of −inf, and what a saturated model was given as impossible, keep probability zero."""
    never = np.array([[0.0, 0.0, -np.inf], [0.0, -np.inf, 0.0]])
    model = DiscreteModel({"a": 2, "b": 3, "c": 2}, {("a", "b"): never, ("b", "c"): np.eye(3)[:, :2]})
    world = simulate.population(model, 500, rng=4)
    seen = [hc.Poisson(world.observations[(v,)], on=v) for v in "abc"]
    problem = hc.Problem(model, 500, seen)
    lean = LogLinear(
        {"b": {("b",): [0.0, 1.0, 2.0]}}, offset={("a", "b"): never, ("b", "c"): np.eye(3)[:, :2]}
    )
    for found in (fit(lean, problem), fit_complete(LogLinear.saturated(model), model, world.tables)):
        assert (found.model.marginal(("a", "b"))[~np.isfinite(never)] == 0).all()
        assert found.model.marginal(("a", "b"))[np.isfinite(never)].min() > 0


def test_the_initial_law_is_the_models_or_the_given_one_or_learned() -> None:
    """None keeps the model's, an array replaces it, and a learned one stays on the cells that are possible."""
    p = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.4, 0.5]])
    model = MarkovChain([0.5, 0.5, 0.0], p, length=6)
    world = simulate.population(model, 600, rng=3)
    problem = hc.Problem(model, 600, hc.Poisson(world.observed))
    other = [0.2, 0.6, 0.2]
    laws = {}
    for name, initial in (("kept", None), ("given", other), ("learned", "learned")):
        found = fit(TabularChain(initial=initial, dirichlet=1.5), problem, MAP(), standard_errors=False)
        laws[name] = found.model.initial
    assert np.array_equal(laws["kept"], [0.5, 0.5, 0.0])
    assert np.array_equal(laws["given"], other)
    assert laws["learned"][2] == 0
    assert abs(laws["learned"][0] - 0.5) < 0.1
    assert laws["learned"][0] != 0.5


def test_priors_pull() -> None:
    """At the top a ridge's pull balances the data's; a Dirichlet prior makes rows even; overwhelming ones end there."""
    case = CASES["logistic"]
    features = case.parametrisation.features
    pulled = fit(
        LogisticChain(features, ridge=0.5), case.problem, Enumerate(), tolerance=1e-7, standard_errors=False
    )
    free = case.parametrisation.bind(case.problem.model)
    gradient = Objective(
        [free], [EStep(free, case.problem, Enumerate(), pulled.working, None, 0).run().statistics]
    )
    assert np.abs(pulled.working).min() > 0.01
    assert np.allclose(gradient.gradient(pulled.working), 0.5 * pulled.working, atol=1e-5)
    strong = fit(LogisticChain(features, ridge=1e6), case.problem, Enumerate(), standard_errors=False)
    assert np.abs(strong.working).max() < 1e-4
    table = fit(TabularChain(dirichlet=1e6), case.problem, Enumerate(), standard_errors=False)
    assert np.allclose(table.model.transitions[0], 0.5, atol=1e-4)


def test_a_fit_begins_where_it_is_told() -> None:
    """By vector, by name and value, or by the name of a start: the first row of the trace is the evidence there.

    Without a start it begins where cheap climbs from all of them ended: no lower than at any.
    """
    case = CASES["tabular"]
    family = case.parametrisation.bind(case.problem.model)

    def evidence(x) -> float:
        return hc.infer(family.apply(np.asarray(x), case.problem), MAP()).log_evidence

    def first(start) -> float:
        kept = fit(
            case.parametrisation, case.problem, MAP(), start=start, strict=False, standard_errors=False
        )
        return kept.rows[0]["evidence"]

    assert first([0.4, -0.3]) == pytest.approx(evidence([0.4, -0.3]))
    assert first({family.names[1]: 0.7}) == pytest.approx(evidence([0.0, 0.7]))
    assert first("zero") == pytest.approx(evidence([0.0, 0.0]))
    named = {name: first(name) for name in ("zero", "moments", "regression")}
    assert len(set(named.values())) == 3
    assert first(None) >= max(named.values())


def test_starts_by_natural_name() -> None:
    """Rates and probabilities can be given as such: the model at the start has them, other entries share the rest."""
    case = CASES["rate"]
    found = fit(
        LearnRate(TabularChain()),
        case.problem,
        MAP(),
        start={"rate": 2, "P[0→0]": 0.8},
        max_iterations=0,
        strict=False,
        standard_errors=False,
    )
    assert found.parameters.sel(parameter="rate") == pytest.approx(2)
    assert np.allclose(found.model.transitions[0], [[0.8, 0.2], [0.5, 0.5]])
    for wrong, text in (
        ({"rate": -1}, "finite number > 0"),
        ({"P[0→0]": 1.5}, "give a probability"),
        ({"speed": 1}, "the parameters are"),
    ):
        with pytest.raises(ValueError, match=text):
            fit(LearnRate(TabularChain()), case.problem, MAP(), start=wrong)


def test_tables_between_unequal_cells() -> None:
    """Cells that change from time to time: one rectangular table per step, named by its own cells, and files keep it."""
    truth = [np.array([[0.7, 0.3], [0.1, 0.9], [0.5, 0.5]]), np.array([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]])]
    cells = [("a", "b", "c"), ("x", "y"), ("p", "q", "r")]
    chain = MarkovChain([0.5, 0.3, 0.2], truth, times=["race", "party", "vote"], cells=cells)
    world = simulate.population(chain, 4000, rng=1)
    pairs = [("race", "party"), ("party", "vote")]
    flows = [np.asarray(world.tables.table(pair)) for pair in pairs]
    seen = [hc.Exact(table, on=pair) for pair, table in zip(pairs, flows, strict=True)]
    problem = hc.Problem(chain, 4000, seen)
    found = fit(
        TabularChain(homogeneous=False), problem, TiltedEP(centre="map"), start="zero", standard_errors=False
    )
    for counts, matrix in zip(flows, found.model.transitions, strict=True):
        assert np.allclose(matrix, counts / counts.sum(axis=1, keepdims=True), atol=1e-6)
    assert "P[a→x]@race" in found.natural.names
    assert "P[x→p]@party" in found.natural.names
    assert found.model.states == chain.states
    with pytest.raises(ProblemError, match="homogeneous=False"):
        fit(TabularChain(), problem)
    masked = TabularChain([truth[0] > 0.2, truth[1] > 0.15], homogeneous=False).bind(chain)
    assert masked.model(masked.start()).transitions[0][1].tolist() == [0, 1]
    pair = hc.Problem(
        MarkovChain([0.5, 0.3, 0.2], truth[:1], times=["race", "party"], cells=cells[:2]),
        100,
        hc.Exact([40, 60], on="party"),
    )
    assert fit(TabularChain(dirichlet=2.0), pair, standard_errors=False).model.transitions[0].shape == (3, 2)


def test_warm_e_steps_are_shorter_and_the_same() -> None:
    """From the answer at nearby weights an engine needs fewer sweeps and gives the same expected counts."""
    world, problem = birds()
    family = LogisticChain(world.features).bind(problem.model)
    x = np.array([0.9, 1.8, 1.9, 1.9])
    for engine in (TiltedEP(), MAP()):
        near = EStep(family, problem, engine, x + 0.02, None, 0).run()
        cold, warm = (EStep(family, problem, engine, x, s, 0).infer() for s in (None, near.start))
        assert warm.outcome.iterations < cold.outcome.iterations
        assert np.allclose(warm.edge(3, 4).mean, cold.edge(3, 4).mean, atol=1e-3)
        assert warm.log_evidence == pytest.approx(cold.log_evidence, abs=1e-4)


def test_every_sequence_has_its_posterior() -> None:
    """Posteriors come one a problem, under the shared weights; a single one is not picked from several."""
    (world, first), (other, second) = birds(rng=1), birds(rng=2)
    both = fit(
        [LogisticChain(world.features), LogisticChain(other.features)],
        [first, second],
        MAP(),
        standard_errors=False,
    )
    assert len(both.posteriors) == 2
    assert sum(p.log_evidence for p in both.posteriors) == pytest.approx(both.evidence, abs=1e-6)
    assert not np.allclose(both.posteriors[0].node(4).mean, both.posteriors[1].node(4).mean)
    with pytest.raises(ValueError, match="posteriors"):
        _ = both.posterior


@dataclass(frozen=True)
class Sinking(Engine):
    """MAP, with its evidence upside down: every step up is a step down."""

    name: ClassVar[str] = "Sinking"

    def _run(self, problem: Problem, rng: np.random.Generator, progress: bool | None, start: Any) -> Outcome:
        outcome = MAP().run(problem, rng=rng, progress=progress, start=start)
        upside_down = replace(outcome.beliefs, log_evidence=-outcome.beliefs.log_evidence)
        return replace(outcome, beliefs=upside_down)


def test_every_fall_of_the_evidence_is_counted() -> None:
    """An engine whose evidence falls at every EM step: the trace has each fall, the notes their number and the largest."""
    case = CASES["logistic"]
    found = fit(
        case.parametrisation,
        case.problem,
        Sinking(),
        method="em",
        max_iterations=4,
        tolerance=0,
        strict=False,
        standard_errors=False,
    )
    falls = found.trace["decrease"].to_numpy()[1:]
    assert (falls > 0).all()
    assert any(
        f"the evidence fell in 4 of 4 steps, by at most {falls.max():.2g} nats" in n for n in found.notes
    )


def test_the_bar_shows_evidence_and_step(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The progress bar names the method, and says the evidence and the size of the step."""
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, as far as rich is concerned
    monkeypatch.setenv("COLUMNS", "200")
    case = CASES["logistic"]
    fit(case.parametrisation, case.problem, MAP(), progress=True, standard_errors=False)
    shown = " ".join(capsys.readouterr().err.split())
    assert "fit (ascent)" in shown
    assert "evidence -" in shown
    assert "step " in shown


def test_many_weights_need_no_matrix_of_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log-linear fit that knows the diagonal of the information only ends at the same weights as one that knows it all."""
    from headcount.learn import _log_linear

    rng = np.random.default_rng(4)
    pairs = (("a", "b"), ("b", "c"))
    model = DiscreteModel(dict.fromkeys("abc", 3), {p: rng.normal(size=(3, 3)) for p in pairs})
    world = hc.simulate.population(model, 500, rng=1)
    noisy = [
        hc.Gaussian(np.asarray(world.tables.table(p), dtype=float) + rng.normal(size=(3, 3)), sd=1.0, on=p)
        for p in pairs
    ]
    setting = LogLinear.saturated(model, ridge=0.1)
    problem = hc.Problem(model, 500, noisy)
    dense = hc.fit(setting, problem, "MAP", standard_errors=False, tolerance=1e-3)
    monkeypatch.setattr(_log_linear, "MOST_DENSE", 0)
    monkeypatch.setattr(_log_linear.Potentials, "information", None)
    sparse = hc.fit(setting, problem, "MAP", standard_errors=False, tolerance=1e-3)
    np.testing.assert_allclose(sparse.working, dense.working, atol=2e-3)


def test_weights_that_nobody_is_expected_to_show_do_not_run_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of 10⁻⁵ individuals in the gradient moves no weight by more than a thousandth, however improbable its configuration."""
    from headcount.learn import _log_linear

    monkeypatch.setattr(_log_linear, "MOST_DENSE", 0)
    model = DiscreteModel({"a": 3, "b": 3}, {("a", "b"): np.zeros((3, 3))})
    (potentials,) = LogLinear.saturated(model).bind(model).components
    x = np.zeros(len(potentials.names))
    x[-1] = -40.0
    n = np.append(500 * potentials.totals({s: model.marginal(s) for s in potentials.features.rows}), 500.0)
    step = potentials.closed_solve(x, n, np.full(len(x), 1e-5))
    assert step is not None
    assert np.abs(step).max() <= 1e-3
