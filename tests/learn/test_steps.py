"""Classes of steps and bases in time: what is tied, by calendar, cycle or label."""

import datetime as dt
import itertools

import numpy as np
import pytest
from scipy import sparse

import headcount as hc
from headcount.engines import TiltedEP
from headcount.individual import LogLinearTransitions, MarkovChain, ModelError
from headcount.learn import LogisticChain, Periodic, TabularChain, fit_complete
from headcount.learn._expect import WARM_START, EStep, Objective, inferred
from headcount.learn._steps import CALENDAR, class_index, classes_of, step_labels
from learn.cases import lookup

HOURS = [np.datetime64("2014-09-12T22:00") + np.timedelta64(k, "h") for k in range(6)]


def test_the_calendar_names_what_a_calendar_says() -> None:
    """Every name gives what datetime says of the same day, for dates before and after 1970."""
    days = [dt.datetime(1968, 2, 28, 5), dt.datetime(2014, 9, 13, 23), dt.datetime(2020, 12, 31)]
    days += [dt.datetime(2021, 1, day) for day in (7, 8, 14, 15)]  # the first and last days of weeks
    told = {
        "hour": [d.hour for d in days],
        "weekday": [d.weekday() for d in days],
        "weekend": [d.weekday() >= 5 for d in days],
        "week": [min((d.timetuple().tm_yday - 1) // 7, 51) + 1 for d in days],
        "month": [d.month for d in days],
        "season": ["winter", "autumn", *["winter"] * 5],
    }
    assert set(told) == set(CALENDAR)
    for name, expected in told.items():
        assert list(step_labels(name, [*days, days[-1]])) == expected


def test_labels_cycles_and_combinations() -> None:
    """A period counts round, on whole-number times by their value; names in a list are combined; labels are taken as they are."""
    assert step_labels(52, list(range(50, 56))) == (50, 51, 0, 1, 2)
    assert step_labels(2, list("abcd")) == (0, 1, 0)
    assert step_labels(["weekend", "hour"], HOURS)[:3] == ((False, 22), (False, 23), (True, 0))
    assert step_labels(np.array(["x", "y"]), [0, 1, 2]) == ("x", "y")
    assert classes_of("hour", [HOURS, HOURS[:2]]) == (0, 1, 2, 22, 23)
    assert class_index("hour", HOURS, (22, 23, 0, 1, 2)).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("by", "times", "text"),
    [
        ("hour", [0, 1, 2], "needs times that are dates"),
        ("fortnight", HOURS, "hour, weekday"),
        (["a"], [0, 1, 2], "1 labels for 2 steps"),
        (0, [0, 1], "period"),
        (1.5, [0, 1], "period"),
    ],
)
def test_what_is_no_class_is_refused(by: object, times: list, text: str) -> None:
    """Errors say what ``by`` may be."""
    with pytest.raises(ModelError, match=text):
        step_labels(by, times)


def test_periodic_bases_come_round() -> None:
    """A basis has the same values a period later, is Fourier's, and knows days, weeks and years."""
    basis = Periodic(7.0, harmonics=2)
    values = basis.values(list(range(15)))
    assert values.shape == (14, 5)
    assert np.allclose(values[:7], values[7:])
    assert np.allclose(values[:7].T @ values[:7], np.diag([7, 3.5, 3.5, 3.5, 3.5]))
    assert np.allclose(Periodic("day").values(HOURS)[2], [1, 1, 0])
    with pytest.raises(ModelError, match="day, week, year"):
        Periodic("moon")


def flows_of(chain: MarkovChain, rng: np.random.Generator, each: int = 400) -> dict:
    """Tables of moves of `each` individuals per cell and step."""
    pairs = itertools.pairwise(chain.times)
    moves = zip(pairs, chain.transitions, strict=True)
    return {pair: np.array([rng.multinomial(each, row) for row in p]).astype(float) for pair, p in moves}


def test_tied_steps_share_a_matrix(rng: np.random.Generator) -> None:
    """Without pooling the matrix of a class is the share of its own moves, and steps of one class have one and the same."""
    chain = MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], length=7)
    flows = flows_of(chain, rng)
    fit = fit_complete(TabularChain(by=3, pool=False), chain, lookup(flows))
    made = fit.model.transitions
    assert made[0] is made[3]
    total = flows[(0, 1)] + flows[(3, 4)]
    np.testing.assert_allclose(made[0], total / total.sum(axis=1, keepdims=True), rtol=1e-10)
    assert "P[0→1]@2" in fit.natural.names


def test_separable_features_are_the_expanded_ones(rng: np.random.Generator) -> None:
    """Weights of b(t)·f(i, j) give the matrices, gradient and Hessian of the (T − 1, K·M, L, L) features, never made."""
    maps, basis = rng.normal(size=(2, 4, 4)), rng.normal(size=(5, 3))
    column, feature = np.repeat(np.arange(3), 2), np.tile(np.arange(2), 3)
    separable = LogLinearTransitions(maps).varying(basis, np.arange(5), column, feature)
    expanded = LogLinearTransitions(np.einsum("tm,kij->tmkij", basis, maps).reshape(5, 6, 4, 4))
    w, flows = rng.normal(size=6), rng.integers(0, 9, size=(5, 4, 4)).astype(float)
    np.testing.assert_allclose(separable.transitions(w), expanded.transitions(w), rtol=1e-12)
    for name in ("value", "gradient", "hessian", "uncentred"):
        one, other = (getattr(linear, name)(w, flows) for linear in (separable, expanded))
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_sparse_features_are_the_dense_ones_with_a_mask(rng: np.random.Generator) -> None:
    """A sparse map's transitions, likelihood and derivatives are those of dense features with −inf where nothing is stored."""
    allowed = (rng.random((6, 6)) < 0.4) | np.eye(6, dtype=bool)
    dense = np.where(allowed, rng.normal(size=(2, 6, 6)), 0.0)
    pattern = sparse.csr_array(np.where(allowed, 1.0, 0.0))
    maps = []
    for values in dense:
        table = pattern.copy()
        table.data = values[allowed]
        maps.append(table)
    thin, full = LogLinearTransitions(maps), LogLinearTransitions(dense, np.where(allowed, 0.0, -np.inf))
    w = np.array([0.7, -1.2])
    np.testing.assert_allclose(thin.matrices(w)[0].toarray(), full.transitions(w), atol=1e-14)
    flows = rng.integers(0, 9, size=(3, 6, 6)) * allowed
    tables = [sparse.csr_array(table) for table in flows]
    for name in ("value", "gradient", "hessian", "uncentred"):
        np.testing.assert_allclose(getattr(thin, name)(w, tables), getattr(full, name)(w, flows), rtol=1e-9)


def test_sparse_maps_are_learned_from() -> None:
    """fit with sparse features ends at the weights of the dense ones."""
    cells = 6
    near = np.abs(np.subtract.outer(np.arange(cells), np.arange(cells))) <= 1
    features = np.array([np.eye(cells), near & (np.arange(cells)[None] > np.arange(cells)[:, None])], float)
    thin = [sparse.csr_array((f[near], np.nonzero(near)), shape=near.shape) for f in features]
    linear = LogLinearTransitions(thin)
    model = linear.chain([1.0, 0.5], np.full(cells, 1 / cells), length=8)
    world = hc.simulate.population(model, 400, observe=hc.simulate.poisson(), rng=3)
    problem = hc.Problem(model, 400, hc.Poisson(world.observed))
    names = ["stay", "right"]
    one = hc.fit(LogisticChain(thin, names=names), problem, hc.engines.MAP())
    mask = np.where(near, 0.0, -np.inf)
    other = hc.fit(LogisticChain(features, names=names, mask=mask), problem, hc.engines.MAP())
    np.testing.assert_allclose(one.working, other.working, atol=1e-4)
    assert sparse.issparse(one.model.transitions[0])


def grid_world(side: int, length: int) -> tuple[LogisticChain, hc.Problem]:
    """Moves to neighbours, staying and eastward weighed; Poisson counts of 20 individuals per cell."""
    x, y = np.divmod(np.arange(side**2), side)
    near = (np.abs(np.subtract.outer(x, x)) <= 1) & (np.abs(np.subtract.outer(y, y)) <= 1)
    stay, east = np.eye(side**2), -np.subtract.outer(x, x).astype(float)
    thin = [sparse.csr_array((f[near], np.nonzero(near)), shape=near.shape) for f in (stay, east)]
    model = LogLinearTransitions(thin).chain([1.0, 0.3], np.full(side**2, side**-2.0), length=length)
    world = hc.simulate.population(model, 20 * side**2, observe=hc.simulate.poisson(), rng=7)
    return LogisticChain(thin, names=["stay", "east"]), hc.Problem(
        model, 20 * side**2, hc.Poisson(world.observed)
    )


def test_maps_are_learned_without_matrices_as_with_them() -> None:
    """fit without matrices ends within .15 standard errors of the tree structure's weights, with its standard errors to 15 %."""
    chain, problem = grid_world(6, 8)
    tree, free = (hc.fit(chain, problem, TiltedEP(structure=kind)) for kind in ("tree", "matrix-free"))
    errors = tree.standard_errors.values
    assert free.status.good
    assert (np.abs(free.weights.values - tree.weights.values) <= 0.15 * errors).all()
    np.testing.assert_allclose(free.standard_errors.values, errors, rtol=0.15)


def test_a_run_without_matrices_goes_on_where_the_last_one_ended() -> None:
    """From its own answer a run has the same draws, is converged at once, and its evidence differs by less than .01."""
    _, problem = grid_world(8, 10)
    engine = TiltedEP(structure="matrix-free")
    first = inferred(problem, engine, 0, None)
    start = {k: v for k, v in first.diagnostics.items() if k in WARM_START}
    again = inferred(problem, engine, 0, start)
    assert (again.diagnostics["draws"] == first.diagnostics["draws"]).all()
    assert again.outcome.iterations <= 2 < first.outcome.iterations
    assert again.log_evidence == pytest.approx(first.log_evidence, abs=0.01)


@pytest.mark.parametrize("engine", [hc.engines.MAP(), hc.engines.TiltedEP(structure="matrix-free")])
def test_sparse_maps_are_learned_from_their_moves(engine, monkeypatch) -> None:
    """An E-step on a sparse map makes no table of all pairs of cells, and its gradient is that of such tables.

    (Up to 2 000 entries a program that looks for contradictions makes one.)
    """
    cells = 30
    near = np.abs(np.subtract.outer(np.arange(cells), np.arange(cells))) <= 1
    thin = sparse.csr_array((np.eye(cells)[near], np.nonzero(near)), shape=near.shape)
    model = LogLinearTransitions([thin]).chain([1.0], np.full(cells, 1 / cells), length=4)
    problem = hc.Problem(model, 90, hc.Poisson(np.arange(4.0 * cells).reshape(4, cells) % 6))
    family, x = LogisticChain([thin]).bind(model), np.array([0.4])
    post = hc.infer(family.apply(x, problem), engine)
    tables = [post.beliefs.mean(pair) for pair in itertools.pairwise(model.variables)]
    wanted = LogLinearTransitions(np.eye(cells)[None], np.where(near, 0.0, -np.inf)).gradient(
        x, np.array(tables)
    )
    whole = MarkovChain.marginal

    def nodes_only(self, scope):
        assert len(scope) == 1, "a table of all pairs was asked for"
        return whole(self, scope)

    monkeypatch.setattr(MarkovChain, "marginal", nodes_only)
    found = EStep(family, problem, engine, x, None, 0).run()
    np.testing.assert_allclose(Objective([family], [found.statistics]).gradient(x), wanted, rtol=1e-4)


def test_a_cycle_is_learned_from_totals_and_goes_on() -> None:
    """With by=2 two alternating matrices are learned from totals; a forecast knows which comes next, and so does another problem."""
    up, down = np.array([[0.2, 0.8], [0.05, 0.95]]), np.array([[0.95, 0.05], [0.7, 0.3]])
    model = MarkovChain([0.5, 0.5], [up, down] * 10, times=list(range(21)))
    world = hc.simulate.population(model, 2000, observe=hc.simulate.poisson(), rng=2)
    blank = MarkovChain([0.5, 0.5], np.full((2, 2), 0.5), times=list(range(21)))
    fit = hc.fit(TabularChain(by=2), hc.Problem(blank, 2000, hc.Poisson(world.observed)))
    # Nearly everyone is in cell 0 when the first matrix acts, and in cell 1 when the second does.
    assert np.abs(fit.model.transitions[0][0] - up[0]).max() < 0.05
    assert np.abs(fit.model.transitions[1][1] - down[1]).max() < 0.05
    assert set(fit.shrinkage) == {"movement", "destinations", "popularity", "common matrix"}
    ahead = fit.forecast(2, parameters=False)
    start = np.asarray(fit.posterior.node(20).mean)
    np.testing.assert_allclose(ahead.mean.values[0], fit.model.transitions[0].T @ start, rtol=1e-6)
    later = MarkovChain([0.5, 0.5], np.full((2, 2), 0.5), times=[31, 32, 33])
    told = fit.apply(hc.Problem(later, 10, hc.Exact([[5, 5], [np.nan, np.nan], [np.nan, np.nan]])))
    np.testing.assert_allclose(told.model.transitions[0], fit.model.transitions[1])


def test_classes_are_those_of_all_problems_and_no_others() -> None:
    """Problems that share parameters may have different classes; one never seen is refused where the fit is applied."""
    chain = MarkovChain([0.5, 0.5], np.full((2, 2), 0.5), times=[0, 1, 2])
    labelled = TabularChain(by=["a", "b"], pool=False)
    tables = {(0, 1): np.array([[3.0, 1.0], [1.0, 1.0]]), (1, 2): np.array([[2.0, 2.0], [0.0, 2.0]])}
    fit = fit_complete(labelled, chain, lookup(tables))
    problem = hc.Problem(chain, 6, hc.Exact([[4, 2], [4, 2], [2, 4]]))
    swapped = fit.apply(problem, by=["b", "a"]).model.transitions
    np.testing.assert_allclose(swapped[1], fit.model.transitions[0])
    with pytest.raises(ModelError, match="not among those learned"):
        fit.apply(problem, by=["a", "c"])


def test_weights_by_class_are_read_by_class() -> None:
    """`Fit.weights` of a chain with classes is a table of class by feature: common weight and deviation added up."""
    chain = MarkovChain([0.5, 0.5], np.full((2, 2), 0.5), times=HOURS)
    stay = LogisticChain(np.eye(2)[None], names=["stay"], by="hour")
    tables = {p: np.array([[8.0 + k, 2.0], [3.0, 7.0]]) for k, p in enumerate(itertools.pairwise(HOURS))}
    fit = fit_complete(stay, chain, lookup(tables))
    assert fit.weights.dims == ("class", "feature")
    assert fit.weights.sizes == {"class": 5, "feature": 1}
    values = dict(zip(fit.names, fit.working, strict=True))
    assert float(fit.weights.sel({"class": 22, "feature": "stay"})) == pytest.approx(
        values["stay"] + values["stay@22"]
    )


def drifting() -> tuple[np.ndarray, np.ndarray, hc.MarkovChain, object]:
    """Weights of staying that drift from 0 to 2 over twelve steps, and flows made with them."""
    drift = np.linspace(0.0, 2.0, 12)
    steps = [np.exp(w * np.eye(3)) / np.exp(w * np.eye(3)).sum(axis=1, keepdims=True) for w in drift]
    chain = hc.MarkovChain([0.5, 0.3, 0.2], steps)
    world = hc.simulate.population(chain, 600, rng=1)
    return drift, world.flows, chain, world.tables


def test_differences_of_weights_have_a_ridge():
    """The maximum of Σ n log P − ½ ridge Σ (w_t − w_{t−1})², found directly; constant weights where the ridge is large."""
    from scipy.optimize import minimize

    _, flows, chain, tables = drifting()

    def loss(w: np.ndarray, ridge: float) -> float:
        norm = np.log(np.exp(w) + 2.0)
        stay = np.trace(flows, axis1=1, axis2=2)
        return float(
            -(stay * w - flows.sum(axis=(1, 2)) * norm).sum() + 0.5 * ridge * np.square(np.diff(w)).sum()
        )

    for ridge in (5.0, 1e7):
        found = hc.learn.fit_complete(
            hc.LogisticChain(np.eye(3)[None], names=["stay"], basis=hc.learn.Smooth(ridge)), chain, tables
        )
        best = minimize(loss, np.zeros(12), args=(ridge,), options={"gtol": 1e-8})
        np.testing.assert_allclose(found.weights.values[:, 0], best.x, atol=2e-3)
    assert np.ptp(found.weights.values) < 1e-3


def test_the_ridge_on_differences_is_learned():
    """From flows, and from counts: weights follow the drift nearer than free ones do, and the spread of a difference is reported."""
    drift, _, chain, tables = drifting()

    def error(basis: object) -> float:
        settings = hc.LogisticChain(np.eye(3)[None], names=["stay"], basis=basis)
        return float(
            np.square(hc.learn.fit_complete(settings, chain, tables).weights.values[:, 0] - drift).mean()
        )

    assert error(hc.learn.Smooth()) < 0.7 * error(hc.learn.Smooth(0.0))
    found = hc.learn.fit_complete(
        hc.LogisticChain(np.eye(3)[None], names=["stay"], basis=hc.learn.Smooth()), chain, tables
    )
    assert 0.03 < found.shrinkage["stay"] < 0.6
    with pytest.raises(hc.ModelError, match="learned"):
        hc.learn.Smooth(-1.0)
