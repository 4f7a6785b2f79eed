"""A series that goes on: two runs give what one gives, whatever the population; forecasts; alarms; backtests."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

import headcount as hc
from headcount.errors import ModelError
from headcount.io.long import wants_windows
from headcount.memory import limited
from headcount.observe import Start

TIMES, JOIN, CELLS, PEOPLE = 9, 5, 4, 300
RNG = np.random.default_rng(0)
MOVES = RNG.dirichlet(np.ones(CELLS), CELLS) * 0.4 + 0.6 * np.eye(CELLS)
OTHER = RNG.dirichlet(np.ones(CELLS), CELLS) * 0.8 + 0.2 * np.eye(CELLS)
FIRST = RNG.dirichlet(np.ones(CELLS))
WORLD = hc.simulate.population(
    hc.MarkovChain(FIRST, MOVES, length=TIMES), PEOPLE, observe=hc.simulate.poisson(1.0), rng=1
)
COUNTS = np.asarray(WORLD.observed, dtype=float)
TRUTH = np.asarray(WORLD.counts, dtype=float)

Maker = Callable[[Sequence[int]], Any]


def chain(times: Sequence[int], moves: Any = MOVES, first: Any = FIRST) -> hc.MarkovChain:
    return hc.MarkovChain(first, moves, times=times)


def unknown_first(times: Sequence[int]) -> hc.MarkovChain:
    return chain(times, first=None)


def open_chain(times: Sequence[int]) -> hc.OpenChain:
    numbers = PEOPLE * FIRST if times[0] == 0 else np.ones(CELLS)
    return hc.OpenChain(numbers, MOVES, arrivals=5.0, survival=0.9, times=times)


def stays(times: Sequence[int]) -> hc.SemiMarkovChain:
    moves = OTHER * (1 - np.eye(CELLS))
    return hc.SemiMarkovChain(FIRST, [0.2, 0.3, 0.4], moves / moves.sum(axis=1, keepdims=True), times=times)


def memory(times: Sequence[int]) -> hc.MemoryChain:
    """Individuals that remember the cell before; a chain that does not begin at 0 begins with pairs."""
    onward = 0.5 * MOVES[None] + 0.5 * OTHER[:, None]
    made = hc.MemoryChain(FIRST, MOVES, onward, times=times if times[0] == 0 else range(2))
    return made if times[0] == 0 else made.changed(times=range(times[0] + 1)).continued(times[1:])


def homes(times: Sequence[int]) -> hc.MarkovChain:
    """Individuals with homes; a chain that does not begin at 0 begins with pairs."""
    made = hc.HomeChain(FIRST, MOVES, 0.4, times=times if times[0] == 0 else range(2))
    return made if times[0] == 0 else made.changed(times=range(times[0] + 1)).continued(times[1:])


def groups(size: Any) -> Maker:
    return lambda times: {
        "a": hc.Group(chain(times), 200),
        "b": hc.Group(chain(times, OTHER, FIRST[::-1]), size),
    }


def problem(make: Maker, times: Sequence[int], number: Any, seen: Any, **more: Any) -> hc.Problem:
    made = make(times)
    if isinstance(made, dict):
        return hc.Problem(groups=made, observations=seen, **more)
    return hc.Problem(made, number, seen, **more)


def three(make: Maker, number: Any, noise: Any = hc.Poisson, counts: Any = COUNTS, **more: Any) -> Any:
    """Everything at once; the past; and what goes on from it."""
    whole = hc.infer(problem(make, range(TIMES), number, noise(counts), **more))
    past = hc.infer(problem(make, range(JOIN), number, noise(counts[:JOIN]), **more))
    later = counts[JOIN - 1 :].copy()
    later[0] = np.nan
    asked = problem(make, range(JOIN - 1, TIMES), number, noise(later), **more)
    return whole, past, hc.infer(asked, start=past)


CASES: dict[str, tuple[Any, ...]] = {
    "N known": (chain, PEOPLE, hc.Poisson, COUNTS, {}),
    "initial law learned": (unknown_first, PEOPLE, hc.Poisson, COUNTS, {}),
    "N between": (chain, hc.Between(250, 330), hc.Poisson, COUNTS, {}),
    "N about": (chain, hc.About(300, sd=10), hc.Poisson, COUNTS, {}),
    "overdispersion": (chain, PEOPLE, hc.Poisson, COUNTS, {"dispersion": hc.Overdispersion(rho=0.02)}),
    "flocks as units": (chain, PEOPLE, hc.Poisson, COUNTS, {"dispersion": hc.Flocks(5)}),
    "flocks as a scatter": (chain, PEOPLE, hc.Poisson, COUNTS, {"dispersion": hc.Flocks(7)}),
    "open": (open_chain, None, hc.Poisson, COUNTS, {}),
    "stays": (stays, PEOPLE, hc.Poisson, COUNTS, {}),
    "memory": (memory, PEOPLE, hc.Poisson, COUNTS, {}),
    "homes": (homes, PEOPLE, hc.Poisson, COUNTS, {}),
    "groups": (groups(100), None, hc.Poisson, COUNTS, {}),
    "a group of unknown size": (groups(hc.About(100, sd=20)), None, hc.Poisson, COUNTS, {}),
    "exact": (chain, PEOPLE, hc.Exact, TRUTH, {}),
    "two cells exact": (chain, PEOPLE, hc.Exact, np.where(np.arange(CELLS) < 2, TRUTH, np.nan), {}),
    "binomial": (chain, PEOPLE, lambda y: hc.Binomial(y, detection=0.5), np.rint(TRUTH / 2), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_two_runs_give_what_one_run_gives(case: str) -> None:
    """Of the new times, means are within 0.05 sd and sds within 1 % of those of one run; flows likewise; log evidences add up to 0.15."""
    *given, more = CASES[case]
    whole, past, new = three(*given, **more)
    for time in range(JOIN, TIMES):
        one, other = whole.node(time), new.node(time)
        sd = np.maximum(one.sd, 0.05)
        assert float(np.abs((one.mean - other.mean) / sd).max()) < 0.05
        assert float(np.abs(other.sd - one.sd).max()) < 0.01 * float(sd.max()) + 1e-6
    for pair in pairwise(range(JOIN, TIMES)):
        one, other = whole.edge(*pair), new.edge(*pair)
        assert float(np.abs((one.mean - other.mean) / np.maximum(one.sd, 0.3)).max()) < 0.05
    assert past.log_evidence + new.log_evidence == pytest.approx(whole.log_evidence, abs=0.15)


@pytest.mark.parametrize("size", [hc.Unknown(), hc.Between(2, 9)], ids=str)
def test_a_number_that_the_past_tells_is_known_afterwards(size: Any, tmp_path: Any) -> None:
    """Exact counts told N: what comes after has the evidence of the known number (it was log N too high), from a file too."""
    pair = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], length=2)
    seen, new = hc.Exact([2.0, 4.0], on=0), hc.Poisson([[5.0, 1.0]])
    told, known = (hc.infer(hc.Problem(pair, n, seen)).update(new) for n in (size, 6))
    assert told.log_evidence == pytest.approx(known.log_evidence, abs=1e-9)
    np.testing.assert_allclose(told.node(2).mean, known.node(2).mean, atol=1e-9)
    assert told.population.mean == pytest.approx(6.0)
    told.save(tmp_path / "told.nc")
    assert hc.Posterior.load(tmp_path / "told.nc").population.mean == pytest.approx(6.0)


def test_thirty_updates_do_not_drift() -> None:
    """After thirty runs of one step each, N unknown, the answer is that of one run: nothing is used twice."""
    length = 34
    long = hc.MarkovChain(FIRST, MOVES, length=length)
    counts = np.asarray(
        hc.simulate.population(long, PEOPLE, observe=hc.simulate.poisson(1.0), rng=2).observed, dtype=float
    )
    number = hc.About(300, sd=60)
    whole = hc.infer(hc.Problem(long, number, hc.Poisson(counts)))
    post = hc.infer(hc.Problem(hc.MarkovChain(FIRST, MOVES, length=4), number, hc.Poisson(counts[:4])))
    for time in range(4, length):
        post = post.update(counts[time : time + 1])
    assert post.population.mean == pytest.approx(whole.population.mean, abs=0.1 * whole.population.sd)
    assert post.population.sd == pytest.approx(whole.population.sd, rel=0.05)
    last, one = post.node(length - 1), whole.node(length - 1)
    assert float(np.abs((last.mean - one.mean) / one.sd).max()) < 0.05


def test_a_forecast_is_the_same_chain_without_counts() -> None:
    """Means and sds of a forecast are those of a run whose chain has the future times, NaN for their counts; N is kept, flows agree."""
    counts = COUNTS.copy()
    counts[JOIN:] = np.nan
    whole = hc.infer(hc.Problem(chain(range(TIMES)), PEOPLE, hc.Poisson(counts)))
    past = hc.infer(hc.Problem(chain(range(JOIN)), PEOPLE, hc.Poisson(COUNTS[:JOIN])))
    ahead = past.forecast(TIMES - JOIN)
    for time in range(JOIN, TIMES):
        np.testing.assert_allclose(ahead.node(time).mean, whole.node(time).mean, atol=0.02)
        np.testing.assert_allclose(ahead.node(time).sd, whole.node(time).sd, rtol=0.01)
    assert float(ahead.edge(JOIN, JOIN + 1).mean.sum()) == pytest.approx(PEOPLE)


def test_tags_of_the_past_are_counted_with_the_others() -> None:
    """Followed individuals of the past, and of the new times, leave the answer that of one run."""
    tracks = hc.Tracks({"id": ["x", "x", "y"], "time": [0, 3, 2], "cell": [1, 2, 0]})
    whole = hc.infer(hc.Problem(chain(range(TIMES)), PEOPLE, [hc.Poisson(COUNTS), tracks]))
    past = hc.infer(hc.Problem(chain(range(JOIN)), PEOPLE, [hc.Poisson(COUNTS[:JOIN]), tracks]))
    new = past.update(COUNTS[JOIN:]) if len(past.problem.observations) == 1 else None
    assert new is not None
    one, other = whole.node(TIMES - 1), new.node(TIMES - 1)
    assert float(np.abs((one.mean - other.mean) / one.sd).max()) < 0.02


def test_a_start_survives_its_file(tmp_path: Any) -> None:
    """A run that goes on from a file gives what it gives from memory."""
    past = hc.infer(hc.Problem(chain(range(JOIN)), PEOPLE, hc.Poisson(COUNTS[:JOIN])))
    past.save(tmp_path / "past.nc")
    later = COUNTS[JOIN - 1 :].copy()
    later[0] = np.nan
    asked = hc.Problem(unknown_first(range(JOIN - 1, TIMES)), PEOPLE, hc.Poisson(later))
    new = hc.infer(asked, start=hc.Posterior.load(tmp_path / "past.nc"))
    np.testing.assert_allclose(new.node(TIMES - 1).mean, past.update(COUNTS[JOIN:]).node(TIMES - 1).mean)


def refused(text: str) -> Any:
    return pytest.raises((hc.ProblemError, ModelError, ValueError), match=text)


def test_what_cannot_go_on_is_refused_with_the_reason() -> None:
    """Other times, cells, numbers or kinds of individuals than the past's, engines without spread, chains whose next step nobody knows."""
    past = hc.infer(hc.Problem(chain(range(JOIN)), PEOPLE, hc.Poisson(COUNTS[:JOIN])))
    later = hc.Poisson(np.vstack([np.full(CELLS, np.nan), COUNTS[JOIN:]]))
    with refused("the past ends at 4 and the chain begins at 5"):
        hc.infer(hc.Problem(chain(range(5, 10)), PEOPLE, later), start=past)
    with refused("the past has N = 300"):
        hc.infer(hc.Problem(chain(range(4, 9)), 299, later), start=past)
    with refused("N is 300 in the past"):
        hc.infer(hc.Problem(chain(range(4, 9)), hc.Unknown(), later), start=past)
    with refused("the past has the groups"):
        hc.infer(hc.Problem(groups=groups(100)(range(4, 9)), observations=later), start=past)
    with refused("the same states"):
        other = hc.MarkovChain(FIRST, MOVES, times=range(4, 9), cells=list("abcd"))
        hc.infer(hc.Problem(other, PEOPLE, later), start=past)
    with refused("the same states .*continued"):
        old = hc.infer(problem(memory, range(JOIN), PEOPLE, hc.Poisson(COUNTS[:JOIN])))
        hc.infer(hc.Problem(chain(range(4, 9)), PEOPLE, later), start=old)
    with refused("a Tree has no last time"):
        tree = hc.Tree(FIRST, {1: (0, MOVES), 2: (0, MOVES)})
        hc.infer(hc.Problem(tree, PEOPLE, hc.Poisson(COUNTS[0], on=1)), start=past)
    with refused("a Tree has no last time"):
        _ = hc.infer(hc.Problem(tree, PEOPLE, hc.Poisson(COUNTS[0], on=1))).last
    with refused("gives no spread"):
        _ = hc.infer(hc.Problem(chain(range(JOIN)), PEOPLE, hc.Poisson(COUNTS[:JOIN])), "MAP").last
    with refused("transitions change with time"):
        steps = hc.MarkovChain(FIRST, [MOVES, OTHER], times=range(3))
        hc.infer(hc.Problem(steps, PEOPLE, hc.Poisson(COUNTS[:3]))).forecast(1)
    with refused("say how far"):
        past.forecast()
    with refused("counts individuals one by one|counts units that stand for whole numbers"):
        hc.infer(hc.Problem(chain(range(4, 9)), PEOPLE, later), "PathGibbs", start=past, rng=1)


def test_a_start_that_scatters_more_widens_the_first_counts() -> None:
    """A past with three times the multinomial's covariance is met: the first counts have it before anything is seen."""
    mean = PEOPLE * FIRST
    covariance = 3.0 * (np.diag(mean) - np.outer(mean, mean) / PEOPLE)
    start = Start("0", ("",) * CELLS, tuple("0123"), mean, covariance, {"": float(PEOPLE)})
    ahead = hc.infer(hc.Problem(chain(range(3)), PEOPLE), start=start)
    np.testing.assert_allclose(ahead.node(0).mean, mean, rtol=1e-6)
    np.testing.assert_allclose(ahead.node(0).covariance(), covariance, rtol=1e-5, atol=1e-6)


def test_a_past_that_the_new_counts_contradict_is_said() -> None:
    """Where the last Gaussian is not enough (means half an sd from one run's) the verdict says so and nothing is reliable."""
    number = hc.About(PEOPLE, sd=60)
    past = hc.infer(hc.Problem(chain(range(JOIN)), number, hc.Poisson(COUNTS[:JOIN])))
    closed = COUNTS[JOIN:].copy()
    closed[:, np.argmax(COUNTS[JOIN])] = 0
    counts = np.vstack([COUNTS[:JOIN], closed])
    whole = hc.infer(hc.Problem(chain(range(TIMES)), number, hc.Poisson(counts)))
    new, usual = past.update(closed), past.update(COUNTS[JOIN:])
    last = TIMES - 1
    assert float(np.abs((new.node(last).mean - whole.node(last).mean) / whole.node(last).sd).max()) > 0.5
    assert new.fit_check.agrees is not True
    assert "new counts move those of 4, where the past ends, by" in new.fit_check.verdict
    assert "Infer everything at once" in str(new.fit_check.advice[0])
    assert not new.node(last).reliable.any()
    assert "where the past ends" not in usual.fit_check.verdict
    assert usual.fit_check.agrees


def test_an_alarm_is_raised_for_a_closed_cell_and_not_for_a_usual_week() -> None:
    """Counts as forecast raise none; a cell with nobody does, and it and moves into it are named."""
    past = hc.infer(hc.Problem(chain(range(JOIN)), PEOPLE, hc.Poisson(COUNTS[:JOIN])))
    usual = hc.check.alarm(past.update(COUNTS[JOIN : JOIN + 1]))
    closed = COUNTS[JOIN : JOIN + 1].copy()
    worst = int(np.argmax(closed))
    closed[0, worst] = 0
    raised = hc.check.alarm(past.update(closed))
    assert not usual.raised
    assert "No alarm" in str(usual)
    assert raised.raised
    assert raised.counts["cell"][0] == str(worst)
    assert str(worst) in set(raised.moves["dest"])
    assert f"{worst} at {JOIN}: 0 counted" in raised.words
    with refused("nothing was forecast"):
        hc.check.alarm(past)


def test_an_alarm_pays_for_looking_twice() -> None:
    """Of one count the test of the whole is that of the single count: the probability is twice theirs, or a little more (longer tails)."""
    past = hc.infer(hc.Problem(chain(range(JOIN)), PEOPLE, hc.Poisson(COUNTS[:JOIN])))
    seen = np.full_like(COUNTS[JOIN : JOIN + 1], np.nan)
    seen[0, 0] = 116.0
    found = hc.check.alarm(past.update(seen))
    z = float(found.counts["z"][0])
    assert 2.3 < z < 2.7
    assert 0.95 < found.probability / (2 * 2 * ndtr(-z)) < 2


def test_alarms_of_a_series_without_change_are_uniform_or_rarer() -> None:
    """Over 60 weeks without a change at most 5 of the probabilities are below 0.05 (P = 0.03 of more) and none below 1e-4."""
    length = 64
    long = hc.MarkovChain(FIRST, MOVES, length=length)
    counts = np.asarray(
        hc.simulate.population(long, PEOPLE, observe=hc.simulate.poisson(1.0), rng=5).observed, dtype=float
    )
    post = hc.infer(hc.Problem(hc.MarkovChain(FIRST, MOVES, length=4), PEOPLE, hc.Poisson(counts[:4])))
    found = []
    for time in range(4, length):
        post = post.update(counts[time : time + 1])
        found.append(hc.check.alarm(post).probability)
    assert sum(p < 0.05 for p in found) <= 6
    assert min(found) > 1e-4


def test_a_backtest_scores_the_forecast_beside_its_rivals() -> None:
    """In a world that is the model's own the forecast has the smallest CRPS at every horizon, and intervals hold about what they say."""
    long = hc.MarkovChain(FIRST, MOVES, length=30)
    counts = hc.simulate.population(long, PEOPLE, observe=hc.simulate.poisson(1.0), rng=3).observed
    found = hc.check.backtest(hc.Problem(long, PEOPLE, hc.Poisson(counts)), horizon=2, season=7, first=12)
    crps = found.table.pivot(index="horizon", columns="method", values="crps")
    held = found.table.set_index("method").loc["forecast", "coverage"]
    assert (crps["forecast"] < crps["persistence"]).all()
    assert (crps["forecast"] < crps["seasonal"]).all()
    assert held.between(0.8, 1.0).all()
    assert "The forecast is best" in str(found)


@pytest.fixture(scope="module")
def birds() -> Any:
    return hc.simulate.birds(side=3, weights=(1, 2, 2, 2), population=2000, steps=9, rng=1)


def blank(world: Any, times: range, counts: Any = None, begin: str | None = None) -> hc.Problem:
    first = world.model.initial if times[0] == 0 else np.full(9, 1 / 9)
    first = None if begin == "unknown" else first
    chain_ = hc.MarkovChain(first, np.full((9, 9), 1 / 9), times=times)
    return hc.Problem(chain_, 2000, [] if counts is None else hc.Poisson(counts))


@pytest.mark.parametrize("known", [True, False], ids=["initial law known", "initial law learned"])
def test_a_fit_goes_on_with_its_parameters(birds: Any, known: bool) -> None:
    """Updated by new counts, weights and standard errors are those of a fit of everything, and so are the last counts, within a few %."""
    counts, features, at = np.asarray(birds.observed, dtype=float), np.asarray(birds.features), 6
    begin = None if known else "unknown"
    whole = hc.fit(hc.LogisticChain(features), blank(birds, range(9), counts, begin))
    past = hc.fit(hc.LogisticChain(features[: at - 1]), blank(birds, range(at), counts[:at], begin))
    later = np.vstack([np.full(9, np.nan), counts[at:]])
    new = past.going().update(
        blank(birds, range(at - 1, 9), later, begin), setting=hc.LogisticChain(features[at - 1 :])
    )
    table, one = new.table(), whole.table().iloc[:4]
    past_table = past.table().iloc[:4]
    assert (np.abs(table["estimate"] - one["estimate"]) < 0.1 * one["standard_error"]).all()
    np.testing.assert_allclose(table["standard_error"], one["standard_error"], rtol=0.06)
    assert (np.abs(table["estimate"] - past_table["estimate"]) > 0.1 * one["standard_error"]).any()
    # log p(new | past) = log ∫ p(all | w) dw − log ∫ p(past | w) dw, each by Laplace's method over the weights.
    volumes = [0.5 * np.linalg.slogdet(fit.covariance[:4, :4])[1] for fit in (whole, past)]
    if known:
        ahead = whole.evidence - past.evidence + volumes[0] - volumes[1]
        assert new.posterior.log_evidence == pytest.approx(ahead, abs=0.1)
    found, wanted = new.posterior.node(8), whole.posterior.node(8)
    assert float(np.abs((found.mean - wanted.mean) / wanted.sd).max()) < 0.05
    np.testing.assert_allclose(found.sd, wanted.sd, rtol=0.02)


def test_a_forecast_of_a_fit_has_the_cross_term(birds: Any) -> None:
    """Sds of a fit's forecast are those of a fit whose chain has the future times: parameters move last counts and steps together."""
    counts, features, at = np.asarray(birds.observed, dtype=float), np.asarray(birds.features), 6
    unseen = counts.copy()
    unseen[at:] = np.nan
    whole = hc.fit(hc.LogisticChain(features), blank(birds, range(9), unseen))
    past = hc.fit(hc.LogisticChain(features[: at - 1]), blank(birds, range(at), counts[:at]))
    ahead = past.going().update(blank(birds, range(at - 1, 9)), setting=hc.LogisticChain(features[at - 1 :]))
    for time in range(at, 9):
        np.testing.assert_allclose(ahead.posterior.node(time).sd, whole.posterior.node(time).sd, rtol=0.01)
    with refused("standard errors"):
        hc.fit(hc.LogisticChain(features), blank(birds, range(9), counts), standard_errors=False).going()


def test_a_long_history_in_windows_is_that_of_one_run(tmp_path: Any) -> None:
    """Windows give the means of one run within .05 sd; a stopped run goes on; times are read alone; another problem is refused."""
    length = 40
    long = hc.MarkovChain(FIRST, MOVES, length=length)
    counts = hc.simulate.population(long, PEOPLE, observe=hc.simulate.poisson(1.0), rng=4).observed
    asked = hc.Problem(long, PEOPLE, hc.Poisson(counts))
    whole = hc.infer(asked)
    hc.io.infer_long(asked, tmp_path / "long", window=10, overlap=6, progress=False)
    nodes = hc.io.read_long(tmp_path / "long")
    assert nodes["time"].values.tolist() == list(range(length))
    for time in range(length):
        one = whole.node(time)
        assert float(np.abs((nodes["mean"].sel(time=time).values - one.mean) / one.sd).max()) < 0.05
    flows = hc.io.read_long(tmp_path / "long", 8, 12, what="flows")
    assert flows["departure"].values.tolist() == [8, 9, 10, 11, 12]
    np.testing.assert_allclose(flows["mean"].sel(departure=10), whole.edge(10, 11).mean, atol=0.3)

    # A run that was stopped after two windows.
    import json

    index = tmp_path / "long" / "index.json"
    kept = json.loads(index.read_text())
    kept["parts"] = kept["parts"][:2]
    index.write_text(json.dumps(kept))
    again = tmp_path / "long" / "part-000001.nc"
    before = again.stat().st_mtime_ns
    hc.io.infer_long(asked, tmp_path / "long", window=10, overlap=6, progress=False)
    assert again.stat().st_mtime_ns == before
    np.testing.assert_allclose(hc.io.read_long(tmp_path / "long")["mean"], nodes["mean"], rtol=1e-6)
    with pytest.raises(hc.io.TableError, match="another problem"):
        hc.io.infer_long(asked, tmp_path / "long", window=9, progress=False)


@pytest.mark.parametrize(
    ("stay", "overlap", "most", "least"),
    [(0.9, 24, 0.02, 0.0), (0.99, 24, 0.2, 0.02), (0.999, 24, 1.5, 0.2), (0.999, 48, 0.2, 0.0)],
)
def test_how_much_windows_lose_is_known(
    tmp_path: Any, stay: float, overlap: int, most: float, least: float
) -> None:
    """Windows of 48 steps against one run of 97 times, in sds: the longer individuals stay, the more later counts would have told."""
    moves = stay * np.eye(3) + (1 - stay) / 2 * (1 - np.eye(3))
    chain = hc.MarkovChain(np.full(3, 1 / 3), moves, length=97)
    counts = hc.simulate.population(chain, 300, observe=hc.simulate.poisson(0.3), rng=2).observed
    problem = hc.Problem(chain, 300, hc.Poisson(counts, rate=0.3))
    whole = hc.infer(problem)
    hc.io.infer_long(problem, tmp_path / "long", window=48, overlap=overlap, progress=False)
    means = hc.io.read_long(tmp_path / "long")["mean"]
    off = [np.abs(means.sel(time=t).values - whole.node(t).mean) / whole.node(t).sd for t in range(97)]
    assert least <= np.max(off) < most


def test_windows_are_wanted_from_169_times_on() -> None:
    """Up to a week of hours is one run whatever the limit; longer series are windows where one of these fits into memory and all do not."""
    moves = 0.6 * np.eye(6) + 0.4 / 6

    def series(times: int) -> hc.Problem:
        return hc.Problem(
            hc.MarkovChain(None, moves, length=times), 60, hc.Poisson(np.full((times, 6), 10.0))
        )

    one, week, long = (hc.engines.plan(series(times), rate=1.0).peak for times in (169, 168, 600))
    assert week < one < long
    with limited(one):
        assert wants_windows(series(600))
        assert not wants_windows(series(169))  # the window is the whole series, which fits
    with limited(one - 1):
        assert not wants_windows(series(600))  # not even one window fits
    with limited(long):
        assert not wants_windows(series(600))
    with limited(week - 1):
        assert not wants_windows(series(168))


def test_windows_of_few_exact_counts_are_answered_in_whole_numbers(tmp_path: Any) -> None:
    """A window that begins with exact counts is as exact as one run: the same engine, means to Monte-Carlo error, the same intervals."""
    ring, length, people = 0.6 * np.eye(5) + 0.4 * np.roll(np.eye(5), 1, axis=1), 12, 40
    long = hc.MarkovChain(np.full(5, 0.2), ring, length=length)
    counts = hc.simulate.population(long, people, rng=3).counts
    asked = hc.Problem(long, people, hc.Exact(np.asarray(counts, dtype=float)))
    whole, past = hc.infer(asked), hc.infer(asked.between(0, 4))
    new = hc.infer(asked.between(4, length - 1), start=past)
    assert new.engine == whole.engine == "TableBP"
    assert past.log_evidence + new.log_evidence == pytest.approx(whole.log_evidence, abs=0.4)
    hc.io.infer_long(asked, tmp_path / "long", window=4, overlap=2, progress=False)
    flows = hc.io.read_long(tmp_path / "long", what="flows")
    for t in range(length - 1):
        one, here = whole.edge(t, t + 1), flows.sel(departure=t)
        np.testing.assert_allclose(here["mean"], one.mean, atol=0.02)
        ends = one.interval(0.9)
        for end in ("lower", "upper"):
            np.testing.assert_array_equal(here[end], ends[end])
