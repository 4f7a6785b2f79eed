"""The Fit: labels, intervals, identification, forecasts, comparison, files."""

import numpy as np
import pytest
import xarray as xr

import headcount as hc
from headcount import simulate
from headcount.engines import MAP, Enumerate, Status
from headcount.individual import MarkovChain, ModelError
from headcount.learn import Fit, LearnRate, LogisticChain, LogLinear, TabularChain, compare, fit, fit_complete
from headcount.learn._result import LastCounts, forecast
from headcount.observe import ProblemError
from learn.cases import birds, tiny_cases

CASES = tiny_cases()


@pytest.fixture(scope="module")
def bird_fit() -> tuple[simulate.World, hc.Problem, Fit]:
    world, problem = birds()
    return world, problem, fit(LogisticChain(world.features.to_xarray()), problem, truth=(1, 2, 2, 2))


def test_labels_come_back(bird_fit) -> None:
    """Features keep their names in parameters, weights, standard errors, intervals and the table."""
    _, _, found = bird_fit
    names = ["distance", "direction", "wind", "stay"]
    assert found.parameters.coords["parameter"].values.tolist() == names
    assert found.weights.coords["feature"].values.tolist() == names
    assert found.standard_errors.coords["parameter"].values.tolist() == names
    assert found.interval(0.8).attrs["level"] == 0.8
    table = found.table(level=0.8)
    assert table["parameter"].tolist() == names
    assert (table["lower"] < table["estimate"]).all()
    assert np.allclose((table["upper"] - table["lower"]) / table["standard_error"], 2 * 1.2815515655446)
    assert found.trace["error"].iloc[-1] == pytest.approx(np.abs(found.working - [1, 2, 2, 2]).sum() / 7)
    assert found.posterior.log_evidence == pytest.approx(found.evidence, abs=1e-5)
    assert "converged" in repr(found)


def test_fixed_weights_stay(bird_fit) -> None:
    """A fixed weight is part of the weights, not of the parameters, and the rest is learned around it."""
    world, problem, _ = bird_fit
    free = fit(LogisticChain(world.features), problem, MAP(), standard_errors=False)
    fixed = {"stay": free.weights.values[3]}
    held = fit(LogisticChain(world.features, fixed=fixed), problem, MAP(), standard_errors=False)
    assert list(held.names) == ["distance", "direction", "wind"]
    assert held.weights.values[3] == free.weights.values[3]
    assert np.allclose(held.weights, free.weights, atol=1e-3)


@pytest.mark.parametrize("name", ["logistic, one weight fixed, ridge", "unknown initial law"])
def test_standard_errors_are_those_of_the_exact_likelihood(name: str) -> None:
    """With exact E-steps the observed information is minus the Hessian of log p(y) + log prior, a learned initial law's included."""
    if name in CASES:
        parametrisation, problem = CASES[name].parametrisation, CASES[name].problem
    else:
        chain = CASES["logistic"].problem.model
        blank = MarkovChain(None, chain.transitions, times=chain.times, cells=chain.cells)
        parametrisation = LogisticChain(CASES["logistic"].parametrisation.features, ridge=0.5)
        problem = hc.Problem(blank, 4, CASES["logistic"].problem.observations)
    found = fit(parametrisation, problem, Enumerate(), tolerance=1e-6)
    family = parametrisation.bind(problem.model)

    def value(x: np.ndarray) -> float:
        parts = zip(family.components, family.split(x), strict=True)
        prior = sum(c.log_prior(part) for c, part in parts)
        return hc.infer(family.apply(x, problem), Enumerate()).log_evidence + prior

    h = 1e-2
    unit = h * np.eye(len(found.working))
    x = found.working
    hessian = np.array(
        [
            [value(x + a + b) - value(x + a - b) - value(x - a + b) + value(x - a - b) for a in unit]
            for b in unit
        ]
    ) / (4 * h * h)
    assert np.allclose(found.covariance, np.linalg.inv(-hessian), atol=4e-3)
    assert found.information.asymmetry < 1e-2
    assert found.information.discrepancy < 1e-2


def test_features_that_never_vary_are_named() -> None:
    """A feature that is the same for all moves from a cell, and two equal ones, are named; the others keep their errors."""
    world, problem = birds()
    features = np.asarray(world.features)
    flat = np.broadcast_to(np.arange(9.0)[:, None], features[:, :1].shape)
    names = ["distance", "direction", "wind", "stay", "flat"]
    found = fit(LogisticChain(np.concatenate([features, flat], axis=1), names=names), problem, MAP())
    assert [list(d.coefficients) for d in found.unidentified] == [["flat"]]
    assert np.isinf(found.standard_errors.sel(parameter="flat"))
    assert np.isfinite(found.standard_errors.values[:4]).all()
    assert found.parameters.sel(parameter="flat") == 0
    assert any("not identified: flat: nothing varies with it" in note for note in found.notes)
    plain = fit(LogisticChain(world.features), problem, MAP())
    assert np.allclose(found.working[:4], plain.working, atol=1e-4)
    twin = np.concatenate([features, features[:, 3:] * 2], axis=1)
    double = fit(LogisticChain(twin, names=[*names[:4], "copy"]), problem, MAP())
    (direction,) = double.unidentified
    assert set(direction.coefficients) == {"stay", "copy"}
    assert direction.coefficients["stay"] / direction.coefficients["copy"] == pytest.approx(-2)


def test_what_the_data_cannot_tell_is_named() -> None:
    """Counts of the first time alone say nothing about moves, and the fit says so."""
    model = MarkovChain([0.5, 0.5], [[0.7, 0.3], [0.2, 0.8]], length=3)
    problem = hc.Problem(model, 100, hc.Poisson([48.0, 53.0], on=0))
    found = fit(TabularChain(), problem, start="zero")
    assert {n for d in found.unidentified for n in d.coefficients} == set(found.names)
    assert np.isinf(found.standard_errors).all()
    assert (found.interval()["lower"] == 0).all()


def test_forecast_moves_the_last_counts_on() -> None:
    """Means and spreads of future counts agree with simulated ones; a forecast of an absorbed population stands still."""
    p = np.array([[0.8, 0.2, 0.0], [0.1, 0.7, 0.2], [0.0, 0.3, 0.7]])
    model = MarkovChain([0.6, 0.3, 0.1], p, length=6, cells=list("abc"))
    world = simulate.population(model, 500, rng=2)
    problem = hc.Problem(model, 500, hc.Poisson(world.observed))
    found = fit(TabularChain(p > 0), problem)
    ahead = found.forecast(3, parameters=False)
    assert ahead.mean.coords["time"].values.tolist() == [6, 7, 8]
    assert ahead.mean.coords["cell"].values.tolist() == list("abc")
    assert np.allclose(ahead.mean.sum("cell"), 500)
    rng = np.random.default_rng(1)
    fitted = found.model.transitions[0]
    counts = found.plug_in.sample(4000, rng=1, integer=True)[(4, 5)].sum("4").values
    for t in range(3):
        counts = np.stack([rng.multinomial(counts[:, i].astype(int), fitted[i]) for i in range(3)]).sum(
            axis=0
        )
        assert np.allclose(counts.mean(axis=0), ahead.mean[t], atol=1.5)
        assert np.allclose(counts.std(axis=0), ahead.sd[t], rtol=0.06)
    wider = found.forecast(3)
    assert (wider.sd > ahead.sd).all()
    ends = wider.interval(0.9)
    assert ((ends["lower"] < wider.mean) & (wider.mean < ends["upper"])).all()
    assert list(wider.to_frame().columns) == ["time", "cell", "mean", "sd", "lower", "upper"]


def test_the_spread_of_a_forecast_is_that_of_the_parameters_too() -> None:
    """Two cells, both stay with probability s = 1/(1 + e^(−x)): the variance of x adds ((n₀ − n₁) s (1 − s))² var(x)."""
    last = LastCounts(np.array([70.0, 30.0]), np.zeros((2, 2)), 100, None)

    def matrices(x):
        stay = 1 / (1 + np.exp(-x[0]))
        return [np.array([[stay, 1 - stay], [1 - stay, stay]])]

    x, variance = np.array([0.7]), np.array([[0.09]])
    known, with_parameters = (forecast(last, matrices, x, v)[1] for v in (None, variance))
    stay = matrices(x)[0][0, 0]
    np.testing.assert_allclose(with_parameters - known, (40 * stay * (1 - stay)) ** 2 * 0.09, rtol=1e-4)


def test_forecast_with_future_features(bird_fit) -> None:
    """Changing features must be given for the future; then the last one's matrix is the weights' softmax."""
    world, _, found = bird_fit
    with pytest.raises(ValueError, match="give the features of the future"):
        found.forecast(2)
    future = np.asarray(world.features)[:2]
    ahead = found.forecast(features=future)
    score = np.einsum("k,kij->ij", found.working, future[0])
    p = np.exp(score) / np.exp(score).sum(axis=1, keepdims=True)
    last = found.posterior.node(7).mean.values
    assert np.allclose(ahead.mean[0], last @ p)


def test_comparison_by_evidence(bird_fit) -> None:
    """The model with the features that made the data has more evidence; other data or engines are refused."""
    world, problem, found = bird_fit
    less = fit(LogisticChain(np.asarray(world.features)[:, :2]), problem, standard_errors=False)
    table = compare({"less": less, "all": found})
    assert table["fit"].tolist() == ["all", "less"]
    assert table["difference"].tolist() == [0.0, less.evidence - found.evidence]
    assert table["akaike"].tolist() == [found.evidence - 4, less.evidence - 2]
    _, other = birds(rng=7)
    foreign = fit(LogisticChain(world.features), other, standard_errors=False)
    with pytest.raises(ValueError, match="different data"):
        compare([found, foreign])
    with pytest.raises(ValueError, match="MAP and TiltedEP"):
        compare([found, fit(LogisticChain(world.features), problem, MAP(), standard_errors=False)])


def test_fits_of_other_complete_counts_are_not_compared() -> None:
    """Complete counts are data too: fits of different ones are refused, of the same ones not."""
    model = MarkovChain([0.5, 0.5], np.full((2, 2), 0.5), length=2)
    one = {(0,): np.array([5.0, 5.0]), (0, 1): np.array([[4.0, 1.0], [2.0, 3.0]])}
    other = {(0,): np.array([5.0, 5.0]), (0, 1): np.array([[3.0, 2.0], [2.0, 3.0]])}
    first, again, second = (fit_complete(TabularChain(), model, t) for t in (one, dict(one), other))
    assert len(compare([first, again])) == 2
    with pytest.raises(ValueError, match="different data"):
        compare([first, second])


def test_the_maximum_of_complete_counts_is_not_overshot() -> None:
    """Many cells, staying likely: a plain Newton step from zero ends where the information vanishes; the maximum is log odds."""
    for cells in (4, 12, 36):
        p = np.full((cells, cells), 0.11 / (cells - 1))
        np.fill_diagonal(p, 0.89)
        model = MarkovChain(np.full(cells, 1 / cells), np.full((cells, cells), 1 / cells), length=2)
        tables = {(0,): np.full(cells, 1000.0), (0, 1): 1000 * p}
        found = fit_complete(LogisticChain(np.eye(cells)[None], names=["stay"]), model, tables)
        assert found.working[0] == pytest.approx(np.log(0.89 / 0.11 * (cells - 1)), abs=1e-8)
        assert found.status is Status.EXACT


def test_weights_without_a_finite_maximum_are_named() -> None:
    """Everyone stays: the weight of staying grows without end, and the status says that no maximum was reached."""
    model = MarkovChain([0.5, 0.5], np.full((2, 2), 0.5), length=2)
    tables = {(0,): np.array([50.0, 50.0]), (0, 1): 50.0 * np.eye(2)}
    stay = LogisticChain(np.eye(2)[None], names=["stay"])
    found = fit_complete(stay, model, tables)
    assert not found.status.good
    assert any("no finite maximum: stay" in note for note in found.notes)
    held = fit_complete(LogisticChain(np.eye(2)[None], names=["stay"], ridge=1.0), model, tables)
    assert held.status is Status.EXACT
    assert held.notes == ()


def test_what_rests_on_the_prior_alone_is_said() -> None:
    """Counts of one time say nothing of moves: a Dirichlet prior makes an estimate, and a note says whose it is."""
    model = MarkovChain([0.5, 0.5], [[0.7, 0.3], [0.2, 0.8]], length=3)
    blind = hc.Problem(model, 100, hc.Poisson([48.0, 53.0], on=0))
    found = fit(TabularChain(dirichlet=3.0), blind)
    assert any("the data do not identify 2 of 2 directions" in note for note in found.notes)
    world = simulate.population(MarkovChain([0.5, 0.5], [[0.7, 0.3], [0.2, 0.8]], length=40), 5000, rng=1)
    seen = hc.Problem(world.model, 5000, hc.Poisson(world.observed))
    assert not any("do not identify" in note for note in fit(TabularChain(dirichlet=3.0), seen).notes)


def test_forecast_keeps_the_mask() -> None:
    """A mask of the same moves at every step holds in the future; one that changes must be given for it."""
    near = np.abs(np.subtract.outer(np.arange(3), np.arange(3))) <= 1
    mask = np.where(near, 0.0, -np.inf)
    features = np.stack([np.eye(3), np.broadcast_to(np.arange(3.0), (3, 3))])
    model = LogisticChain(features, mask=mask).bind(MarkovChain([1, 0, 0], np.full((3, 3), 1 / 3), length=5))
    world = simulate.population(model.model(np.array([1.0, 0.3])), 500, rng=1)
    problem = hc.Problem(world.model, 500, hc.Poisson(world.observed))
    same = fit(LogisticChain(features, mask=np.stack([mask] * 4)), problem, MAP(), standard_errors=False)
    last = same.last[0].mean
    p = same.model.transitions[0]
    assert p[0, 2] == 0
    assert np.allclose(same.forecast(1, features=features).mean[0], last @ p)
    opened = np.stack([mask] * 3 + [np.zeros((3, 3))])
    varied = fit(LogisticChain(features, mask=opened), problem, MAP(), standard_errors=False)
    with pytest.raises(ValueError, match="give the mask of the future"):
        varied.forecast(1, features=features)
    ahead = varied.forecast(2, mask=mask)
    assert np.allclose(ahead.mean[0], varied.last[0].mean @ varied.model.transitions[0])


@pytest.mark.parametrize("name", CASES)
def test_files_keep_everything_but_posteriors(name: str, tmp_path) -> None:
    """What is read is what was written: estimates, errors, trace, notes, models, without pickle."""
    case = CASES[name]
    found = fit(case.parametrisation, case.problem, MAP(), max_iterations=5, strict=False)
    found.save(tmp_path / "fit.npz")
    read = Fit.load(tmp_path / "fit.npz")
    assert np.array_equal(read.working, found.working)
    assert read.names == found.names
    assert read.trace.equals(found.trace[read.trace.columns])
    assert read.notes == found.notes
    assert read.status is found.status
    assert read.evidence == found.evidence
    assert np.array_equal(read.covariance, found.covariance, equal_nan=True)
    assert read.data == found.data
    scope = case.problem.model.junction_tree.cliques[0]
    assert np.array_equal(read.model.marginal(scope), found.model.marginal(scope))
    assert read.apply(case.problem).population == case.problem.population
    assert [p.name for p in tmp_path.iterdir()] == ["fit.npz"]
    assert compare([read, found])["difference"].tolist() == [0.0, 0.0]


def test_labels_survive_files(tmp_path) -> None:
    """Dates as times and pairs as cells come back as they were, and forecasts count on from the last date."""
    days = np.arange("2024-03-01", "2024-03-06", dtype="datetime64[D]")
    cells = [("north", 1), ("south", 2)]
    model = MarkovChain([0.5, 0.5], [[0.7, 0.3], [0.4, 0.6]], times=list(days), cells=cells)
    world = simulate.population(model, 300, rng=1)
    problem = hc.Problem(model, 300, [hc.Poisson(world.observations[(t,)], on=t) for t in model.times])
    found = fit(TabularChain(), problem, MAP(), start="zero", standard_errors=False)
    found.save(tmp_path / "fit.npz")
    read = Fit.load(tmp_path / "fit.npz")
    assert read.model.times == found.model.times
    assert read.model.cells == tuple(cells)
    ahead = read.forecast(2)
    assert ahead.times == (np.datetime64("2024-03-06"), np.datetime64("2024-03-07"))
    assert np.array_equal(ahead.values, found.forecast(2).values)


def test_wrong_settings_are_refused_all_at_once() -> None:
    """Every problem of every problem is in one message, with the remedy."""
    world, problem = birds()
    small = np.zeros((2, 4, 4))
    with pytest.raises(ProblemError) as error:
        fit([LogisticChain(world.features), LogisticChain(small)], [problem, problem])
    assert len(error.value.problems) == 1
    assert "the features are for 4 cells, the model has 9" in str(error.value)
    with pytest.raises(ProblemError, match="they must share all of them"):
        fit(
            [LogisticChain(world.features), LogisticChain(np.asarray(world.features)[:, :2])],
            [problem, problem],
        )
    with pytest.raises(ProblemError, match="no Poisson observation"):
        fit(
            LearnRate(TabularChain()),
            problem.__class__(problem.model, 200, hc.Gaussian(world.observed, sd=1.0)),
        )
    with pytest.raises(ModelError) as refused:
        LogisticChain(np.zeros((2, 3, 3)), fixed={"w9": 1.0, "w1": np.nan}, ridge=-1)
    assert len(refused.value.problems) == 3
    with pytest.raises(ModelError, match="use LogLinear"):
        TabularChain().bind(CASES["loop"].problem.model)
    with pytest.raises(ModelError, match=r"row 0 of fixed sums to 1\.2"):
        TabularChain(fixed=[[0.6, 0.6], [np.nan, np.nan]]).bind(CASES["tabular"].problem.model)
    with pytest.raises(ModelError, match="no weight to learn"):
        LogLinear({"a": {("a",): [0, 1]}}, fixed={"a": 1.0})
    for start, text in [
        ("best", "knows zero"),
        ([1.0], "4 finite numbers"),
        ({"w": 1.0}, "the parameters are"),
    ]:
        with pytest.raises(ValueError, match=text):
            fit(LogisticChain(world.features), problem, MAP(), start=start)
    with pytest.raises(ValueError, match='"ascent" or "em"'):
        fit(LogisticChain(world.features), problem, MAP(), method="newton")
    with pytest.raises(ValueError, match="a Dask client has its own workers"):
        fit(LogisticChain(world.features), problem, MAP(), client=object(), workers=2)


def test_structural_zeros_and_fixed_entries_hold() -> None:
    """Zeros stay zero, fixed entries keep their value, rows sum to one, in the fit as in its start."""
    p = np.array([[0.5, 0.3, 0.2], [0.0, 0.9, 0.1], [0.25, 0.25, 0.5]])
    known = np.full((3, 3), np.nan)
    known[0, 2], known[2] = 0.2, p[2]
    model = MarkovChain([0.4, 0.3, 0.3], p, length=8)
    world = simulate.population(model, 400, rng=5)
    problem = hc.Problem(model, 400, hc.Poisson(world.observed))
    found = fit(TabularChain(p > 0, fixed=known), problem)
    fitted = found.model.transitions[0]
    assert len(found.names) == 2
    assert fitted[0, 2] == 0.2
    assert fitted[1, 0] == 0
    assert np.array_equal(fitted[2], p[2])
    assert np.allclose(fitted.sum(axis=1), 1)
    assert list(found.natural.names) == ["P[0→0]", "P[0→1]", "P[1→1]", "P[1→2]"]


def test_saturated_log_linear_model_is_the_table() -> None:
    """The saturated model of complete counts has the counts' own frequencies on every clique."""
    rng = np.random.default_rng(8)
    case = CASES["loop"].problem.model
    counts = 200 * case.marginal(case.variables) + rng.uniform(1, 5, size=(2, 2, 2, 2))
    counts *= 200 / counts.sum()

    def tables(scope):
        keep = [case.variables.index(v) for v in scope]
        summed = counts.sum(axis=tuple(k for k in range(4) if k not in keep))
        return summed.transpose(np.argsort(np.argsort(keep)))

    found = fit_complete(LogLinear.saturated(case), case, tables)
    for clique in case.junction_tree.cliques:
        assert np.allclose(200 * found.model.marginal(clique), tables(clique), atol=1e-7)


def test_xarray_features_bring_names_and_order() -> None:
    """Named dims may come in any order; cells in another order than the model's are refused."""
    values = np.random.default_rng(0).normal(size=(2, 3, 3))
    dims = ("feature", "origin", "dest")
    named = xr.DataArray(
        values, dims=dims, coords={"feature": ["a", "b"], "origin": list("xyz"), "dest": list("xyz")}
    )
    turned = LogisticChain(named.transpose("dest", "feature", "origin"))
    assert turned.names == ("a", "b")
    assert np.array_equal(turned.features, values)
    model = MarkovChain([1, 0, 0], np.full((3, 3), 1 / 3), length=3, cells=list("zyx"))
    with pytest.raises(ModelError, match="reindex"):
        turned.bind(model)
    with pytest.raises(ModelError, match="use feature, origin, dest"):
        LogisticChain(named.rename(dest="to"))
