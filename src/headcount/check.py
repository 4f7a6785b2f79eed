r"""Checks that need more than one inference: calibration by simulation, backtests, and the alarm.

`calibration`: populations and data drawn from the user's own model, inferred, and compared with their truth.

If an engine is right, the true count is an ordinary draw of its posterior: its (randomised) PIT, :math:`P(n < n^*) + U\,P(n = n^*)`, is
uniform (Cook, Gelman and Rubin 2006; Talts et al. 2018). Counts of one data set depend on each other, so data sets, not counts, are what
is averaged over: per data set d and kind of table (nodes, flows)

.. math:: v_d = \operatorname{mean}\,12(u - \tfrac12)^2 - 1, \qquad b_d = \operatorname{mean}\,(u - \tfrac12),

whose expectations are zero. v above zero means that intervals are too narrow. Each is tested by Student's t over data sets, at the error
rate divided by the number of tests.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri, stdtr

from headcount._compile import many_solves
from headcount.checks import generator, instance, whole_number
from headcount.dates import readable
from headcount.engines import Engine, NotConvergedError, Posterior
from headcount.learn import FitNotConvergedError, Parametrisation, fit, infer
from headcount.observe import Problem, ProblemError
from headcount.posterior._draws import DrawError, drawn_entries
from headcount.posterior._posterior import RELIABLE_VARIANCE
from headcount.posterior.dataset import replicates
from headcount.posterior.fit_check import Test as GammaTest
from headcount.posterior.fit_check import count_cdf, count_labels, counts_of
from headcount.simulate import population as simulated_population
from headcount.tables import Scope, dense

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from headcount.plot import Picture

    Array = NDArray[np.float64]

__all__ = ["Alarm", "Backtest", "Calibration", "alarm", "backtest", "calibration"]

GRID = np.arange(0.025, 1.0, 0.025)
"""Probabilities at which posterior quantiles are taken: a PIT is known to 0.025, and uniform within."""
LEVELS = (0.5, 0.8, 0.9, 0.95)
"""Probabilities of the central intervals whose coverage is reported; their ends are on `GRID`."""
ERROR_RATE = 0.01
"""Probability that an engine that is right is called wrong."""
FEWEST_DATASETS = 10
"""Fewer give Student's t too few degrees of freedom to reject anything but gross errors."""
LEAST_VARIANCE = 0.5
"""Prior variance (individuals²) of a count that is looked at where none reaches `RELIABLE_VARIANCE`."""
MOST_PROPER_FACTOR = 10.0
"""Largest factor by which intervals are said to be too narrow or too wide: beyond it, coverage hardly changes with the factor."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """How often intervals held the truth in data simulated from the model itself.

    Attributes
    ----------
    calibrated
        Whether no test rejects it.
    verdict
        The same in words, with the error rate.
    table
        ``group, nominal, covered, cases``: the share of true nodes and flows in the central intervals.
    pit
        ``group, dataset, pit``: one row per count looked at.
    tests
        ``group, what, value, error, p``: mean of v and b (see the module), its standard error over data sets, and p.
    datasets, failed
        Data sets inferred, and why others could not be.
    """

    calibrated: bool
    verdict: str
    table: pd.DataFrame = field(repr=False)
    pit: pd.DataFrame = field(repr=False)
    tests: pd.DataFrame = field(repr=False)
    datasets: int = 0
    failed: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.verdict

    def picture(self) -> Picture:
        """Covered against nominal, by group."""
        from headcount.plot import calibration as drawn

        return drawn(self.table)

    def pit_picture(self, group: str = "nodes") -> Picture:
        """Histogram of the PIT of one group."""
        from headcount.plot import pit_histogram

        return pit_histogram(self.pit[self.pit["group"] == group])


def calibration(
    problem: Problem,
    engine: Engine | str | None = None,
    *,
    datasets: int = 100,
    parametrisation: Parametrisation | None = None,
    error_rate: float = ERROR_RATE,
    rng: np.random.Generator | int,
) -> Calibration:
    """Simulate data sets from a problem's model, infer each, and see whether the posterior holds the truth as often as it says.

    Parameters
    ----------
    problem
        Whose model, population, noises and gaps are simulated; its counts are not used. An unknown initial distribution is drawn
        anew for every data set, from its flat prior.
    engine
        As for `infer`.
    datasets
        How many; the width of intervals is known to about 70/√(datasets · counts that do not depend on each other) per cent.
    parametrisation
        Learn these parameters from every data set (`fit`) instead of taking the model's: the model is then the truth that is simulated.
    error_rate
        Probability with which a calibrated engine is called wrong.
    rng
        Seed or generator.

    Returns
    -------
    Calibration
        ``verdict``, ``calibrated``, the coverage of intervals, and pictures.

    Examples
    --------
    >>> import headcount as hc
    >>> chain = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], length=3)
    >>> problem = hc.Problem(chain, 200, hc.Poisson([[90.0, 110.0], [105.0, 97.0], [120.0, 85.0]]))
    >>> hc.check.calibration(problem, datasets=20, rng=1).calibrated
    True
    """
    instance(problem, Problem, "problem", expected="a Problem")
    _check_simulable(problem)
    number = whole_number(datasets, "datasets", least=FEWEST_DATASETS)
    if not 0 < error_rate < 1:
        raise ValueError(f"error_rate must lie between 0 and 1, got {error_rate!r}")
    scopes = _scopes(problem)
    cases: list[_Case] = []
    failed: list[str] = []
    for k, source in enumerate(generator(rng).spawn(number)):
        truth, data = _simulated(problem, source)
        seed = int(source.integers(2**31))
        try:
            post = _answer(data, engine, parametrisation, seed)
        except (NotConvergedError, FitNotConvergedError) as error:
            failed.append(str(error))
            continue
        if not post.beliefs.has_spread:
            raise ValueError(f"{post.engine} gives no spread: there are no intervals to check; use TiltedEP")
        cases += [_case(post, truth, group, some, k, source) for group, some in scopes.items() if some]
    if len(failed) > number - FEWEST_DATASETS:
        raise RuntimeError(
            f"{len(failed)} of {number} data sets could not be inferred, the first: {failed[0]}"
        )
    return _judged([c for c in cases if len(c.pit)], number - len(failed), tuple(failed), error_rate)


def _check_simulable(problem: Problem) -> None:
    if problem.groups is not None or problem.tracks:
        raise ProblemError("calibration simulates one kind of individuals: leave groups and tracks out")
    if not isinstance(problem.population, (int, np.integer)):
        raise ProblemError("calibration simulates a population of known size: give a number")
    if not problem.sites:
        raise ProblemError("nothing is observed: there is no inference to check")


def _scopes(problem: Problem) -> dict[str, list[Scope]]:
    """Which tables are looked at."""
    cliques = [tuple(c) for c in problem.model.junction_tree.cliques]
    return {"nodes": [(v,) for v in problem.model.variables], "flows": [c for c in cliques if len(c) == 2]}


class _Truth(NamedTuple):
    """A simulated population."""

    tables: Any
    marginal: Any
    """The law it came from, by scope."""


def _simulated(problem: Problem, rng: np.random.Generator) -> tuple[_Truth, Problem]:
    """A population from the model, and the same counts of it."""
    model = problem.model
    chain = model.as_chain()
    if chain is not None and not chain.initial_known:
        size = len(chain.states[chain.variables[0]])
        model = chain.with_moves(rng.dirichlet(np.ones(size)), chain.transitions)
    world = simulated_population(model, problem.population, dispersion=problem.dispersion, rng=rng)
    counts = []
    for site in problem.sites:
        n = site.margin(np.asarray(dense(world.tables.table(site.scope)), dtype=float).ravel())
        counts.append(site.noise.sample(n, rng=rng))
    return _Truth(world.tables.table, model.marginal), problem.with_counts(counts)


@many_solves(50)  # a calibration of fewer simulations says little
def _answer(
    data: Problem, engine: Engine | str | None, parametrisation: Parametrisation | None, seed: int
) -> Posterior:
    if parametrisation is None:
        return infer(data, engine, rng=seed, progress=False)
    return fit(parametrisation, data, engine, rng=seed, progress=False).posterior


class _Case(NamedTuple):
    """One data set's nodes or flows."""

    group: str
    dataset: int
    pit: Array
    covered: Array
    """Shares of true counts in the intervals of `LEVELS`."""


def _case(
    post: Posterior,
    truth: _Truth,
    group: str,
    scopes: Sequence[Scope],
    dataset: int,
    rng: np.random.Generator,
) -> _Case:
    """PIT and coverage of all tables of one kind."""
    units = float(post.problem.population)
    prior = {s: np.asarray(dense(truth.marginal(s)), dtype=float) for s in scopes}
    spread = {s: units * mu * (1 - mu) for s, mu in prior.items()}
    most = max(float(v.max()) for v in spread.values())
    least = RELIABLE_VARIANCE if most >= RELIABLE_VARIANCE else LEAST_VARIANCE
    pits, inside = [np.zeros(0)], [np.zeros((len(LEVELS), 0), bool)]
    for scope in scopes:
        kept = spread[scope] >= least
        ends = np.array([table[kept] for table in post.quantile_tables(scope, GRID.tolist())])
        n = np.asarray(dense(truth.tables(scope)), dtype=float)[kept]
        pits.append(_randomised((ends < n).sum(axis=0), (ends <= n).sum(axis=0), rng))
        at = [
            (np.searchsorted(GRID, (1 - q) / 2 - 1e-9), np.searchsorted(GRID, (1 + q) / 2 - 1e-9))
            for q in LEVELS
        ]
        inside.append(np.array([(ends[low] <= n) & (n <= ends[high]) for low, high in at]))
    return _Case(group, dataset, np.concatenate(pits), np.concatenate(inside, axis=1).mean(axis=1))


def _randomised(below: Array, upto: Array, rng: np.random.Generator) -> Array:
    """P(n < n*) + U P(n = n*) where P(n < n*) and P(n ≤ n*) reach that many steps of the grid and lie anywhere in the next one."""
    u, first, last = rng.random((3, len(below)))
    width = upto - below
    inside = np.where(width == 0, u, (1 - u) * first + u * (width + last))
    return np.asarray((below + inside) / (len(GRID) + 1))


_STATISTICS: Mapping[str, Callable[[Array], float]] = {
    "spread": lambda pit: float(np.mean(12 * (pit - 0.5) ** 2 - 1)),
    "bias": lambda pit: float(np.mean(pit - 0.5)),
}
"""Of one data set's PIT: zero on average where they are uniform."""


def _tested(values: Sequence[float]) -> dict[str, float]:
    """The mean of independent values, its standard error, and Student's p of a mean of zero."""
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))
    p = 2 * float(stdtr(len(values) - 1, -abs(mean / max(error, 1e-300))))
    return {"value": mean, "error": error, "p": p}


def _coverage(group: str, cases: Sequence[_Case]) -> list[dict[str, Any]]:
    """The share of true counts in the intervals of every level, of one kind of table."""
    shares = np.mean([case.covered for case in cases], axis=0)
    number = sum(len(case.pit) for case in cases)
    return [
        {"group": group, "nominal": level, "covered": share, "cases": number}
        for level, share in zip(LEVELS, shares, strict=True)
    ]


def _pit_table(cases: Sequence[_Case]) -> pd.DataFrame:
    """One row per true count: its PIT, and where it is from."""
    import pandas as pd

    return pd.DataFrame(
        {
            "group": list(itertools.chain.from_iterable([c.group] * len(c.pit) for c in cases)),
            "dataset": np.concatenate([np.full(len(c.pit), c.dataset) for c in cases]),
            "pit": np.concatenate([c.pit for c in cases]),
        }
    )


def _judged(cases: Sequence[_Case], datasets: int, failed: tuple[str, ...], error_rate: float) -> Calibration:
    """Tables, tests and words."""
    import pandas as pd

    groups = list(dict.fromkeys(case.group for case in cases))
    if not groups:
        raise ValueError(
            f"no count has a prior variance of {LEAST_VARIANCE} or more: there is nothing to check"
        )
    own = {group: [case for case in cases if case.group == group] for group in groups}
    tests = pd.DataFrame(
        {"group": group, "what": what, **_tested([statistic(case.pit) for case in found])}
        for group, found in own.items()
        for what, statistic in _STATISTICS.items()
    )
    table = pd.DataFrame(itertools.chain.from_iterable(map(_coverage, groups, own.values())))
    wrong = tests[tests["p"] < error_rate / len(tests)]
    verdict = _verdict(table, wrong, datasets, len(failed), error_rate)
    return Calibration(wrong.empty, verdict, table, _pit_table(cases), tests, datasets, failed)


def _verdict(table: pd.DataFrame, wrong: pd.DataFrame, datasets: int, failed: int, error_rate: float) -> str:
    at = table[table["nominal"] == 0.9].set_index("group")["covered"]
    held = " and ".join(f"{share:.1%} of {group}" for group, share in at.items())
    found = f"in {datasets} data sets simulated from the model, 90 % intervals held {held}"
    if failed:
        found += f" ({failed} more could not be inferred)"
    rate = f"a calibrated engine is called wrong in {error_rate:.2g} of such checks"
    if wrong.empty:
        return f"Calibrated: {found}; {rate}."
    faults = []
    for row in wrong.itertuples():
        if row.what == "bias":
            faults.append(f"{row.group} are {'under' if row.value > 0 else 'over'}estimated")
        else:
            share = min(max(float(at[row.group]), 1e-6), 1 - 1e-9)
            factor = float(ndtri(0.95) / max(ndtri((1 + share) / 2), 1e-9))
            narrow = row.value > 0
            said = min(factor if narrow else 1 / factor, MOST_PROPER_FACTOR)
            size = f" by about a factor of {said:.2g}" if said > 1.05 else ""
            faults.append(f"intervals of {row.group} are too {'narrow' if narrow else 'wide'}{size}")
    return f"Not calibrated: {'; '.join(faults)}: {found}; {rate}."


# --- the alarm: are new counts unlike what was forecast?


ALARM_DRAWS = 400
"""Replicates of the new counts from which the law of the statistic is taken: its sd is then known to 4 %, its skewness to .12."""
ALARM_SEED = 0
CAUSES = 5
"""Counts, and moves, that are named as causes."""
CLEAR_COUNT, CLEAR_MOVE = 3.0, 2.0
"""Standard deviations of the forecast by which a count, and the mean of a move given the counts, differ from it to be named as causes:
means of moves vary less than the moves."""


@dataclass(frozen=True, eq=False)
class Alarm:
    """Whether new counts are unlike what was forecast from the past.

    Attributes
    ----------
    probability
        Of counts at least as unlike the forecast as these, if nothing has changed: uniform then, so that an alarm below ``rate`` is false
        with this probability.
    rate
        The false-alarm rate per run.
    raised
        Whether the probability is below it.
    counts
        ``time, cell, observed, expected, sd, z``, most unlike first.
    moves
        ``time, origin, dest, found, expected, sd, z``: moves that the counts imply and that were not forecast, most unlike first.
    words
        All of it in a few sentences.
    """

    probability: float
    rate: float
    raised: bool
    counts: pd.DataFrame = field(repr=False)
    moves: pd.DataFrame = field(repr=False)
    words: str

    def __str__(self) -> str:
        return self.words

    def facts(self) -> dict[str, Any]:
        """As JSON takes it, with the counts and moves that are causes."""
        import json

        causes = {
            name: json.loads(table.head(CAUSES).to_json(orient="records", date_format="iso"))
            for name, table in (("counts", self.counts), ("moves", self.moves))
        }
        told = {
            "probability": self.probability,
            "rate": self.rate,
            "raised": self.raised,
            "words": self.words,
        }
        return {**told, **causes}


def alarm(post: Posterior, *, rate: float = 0.01) -> Alarm:
    r"""Compare the counts of a run that goes on from an earlier one with what was forecast for them.

    Given the past the new counts have mean m and covariance S (movements, noise, and what is not known of the last counts). Two
    statistics are taken: :math:`Q = (y - m)^\top S^{-1} (y - m)`, which sees changes everywhere, with the law of Q in replicates of the
    forecast (a Gamma law with their moments), and the most unlike single count, which sees one cell. The probability is twice the smaller
    of both, so that it is below ``rate`` in at most that share of runs in which nothing has changed.

    Parameters
    ----------
    post
        Of ``hc.infer(problem, start=earlier)`` or ``earlier.update(counts)``.
    rate
        The false-alarm rate per run.

    Examples
    --------
    >>> import headcount as hc
    >>> chain = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], length=3)
    >>> post = hc.infer(hc.Problem(chain, 1000, hc.Poisson([[500, 480], [550, 470], [600, 420]])))
    >>> hc.check.alarm(post.update([[601, 388]])).raised, hc.check.alarm(post.update([[350, 640]])).raised
    (False, True)
    """
    problem = post.problem
    if problem.start is None:
        raise ValueError(
            "nothing was forecast: give the posterior of a run that goes on from an earlier one (start=)"
        )
    if not 0.0 < rate < 1.0:
        raise ValueError(f"rate is {rate}: give the false-alarm rate, between 0 and 1")
    core = problem.core
    counts = counts_of(core, list(range(len(core.sites)))) if problem.sites else None
    if counts is None:
        raise ValueError("no count was seen, or none whose noise has moments: there is nothing to compare")
    spread = counts.slope[:, None] * counts.cov_n * counts.slope + counts.noise
    weight = np.asarray(np.linalg.pinv(spread, hermitian=True, rcond=1e-10), dtype=float)
    error = counts.y - counts.mean
    ahead = infer(problem.unseen())
    whole = _whole_test(problem, ahead, counts, weight, error)
    sd = np.sqrt(np.maximum(np.diag(spread), 0.0))
    each = _count_probabilities(counts.y, counts.mean, sd, counts.whole)
    single = -math.expm1(len(each) * math.log1p(-min(float(each.min()), 0.999999)))
    probability = min(1.0, 2.0 * min(whole, single))
    table = _unlike_counts(problem, counts, sd)
    moves = _unlike_moves(post, ahead)
    words = _in_words(probability, rate, table, moves)
    return Alarm(probability, rate, probability < rate, table, moves, words)


def _whole_test(problem: Problem, ahead: Posterior, counts: Any, weight: Array, error: Array) -> float:
    """Probability of a larger Q than that of the counts."""
    value, mean = float(error @ weight @ error), float(np.linalg.matrix_rank(weight))
    rng = np.random.default_rng(ALARM_SEED)
    try:
        tables = ahead.beliefs.sample(ALARM_DRAWS, rng=rng, integer=True)
        again = replicates(problem, drawn_entries(problem.sites, tables), rng)[:, counts.place]
    except (DrawError, NotImplementedError):
        return GammaTest(value, mean, math.sqrt(2.0 * mean), math.sqrt(8.0 / max(mean, 1.0))).above
    drawn = again - counts.mean
    q = np.einsum("ri,ij,rj->r", drawn, weight, drawn)
    sd = max(float(q.std()), 1e-12)
    # Larger of the two: replicates of few counts have a longer tail than χ², and rarely a shorter one that can be trusted.
    skewness = max(float((((q - q.mean()) / sd) ** 3).mean()), math.sqrt(8.0 / max(mean, 1.0)))
    return GammaTest(value, max(float(q.mean()), mean), max(sd, math.sqrt(2.0 * mean)), skewness).above


def _count_probabilities(y: Array, mean: Array, sd: Array, whole: Any) -> Array:
    """Two-sided probability of every count given the past."""
    safe = np.where(sd > 0, sd, 1.0)
    z = np.abs(y - mean) / safe
    gaussian = 2.0 * ndtr(-z)
    below, upto = (count_cdf(k, np.maximum(mean, 1e-9), safe**2) for k in (y - 1.0, y))
    counted = 2.0 * np.minimum(np.minimum(upto, 1.0 - below), 0.5)
    return np.where(sd > 0, np.where(whole, counted, gaussian), np.where(y == mean, 1.0, 0.0))


def _unlike_counts(problem: Problem, counts: Any, sd: Array) -> pd.DataFrame:
    import pandas as pd

    named = count_labels(problem, counts.place)
    z = np.divide(counts.y - counts.mean, sd, out=np.zeros_like(sd), where=sd > 0)
    table = pd.DataFrame(
        {
            "time": [None if v is None else readable(v) for v in named["variables"]],
            "cell": [
                name if s is None else readable(s)
                for s, name in zip(named["states"], named["names"], strict=True)
            ],
            "observed": counts.y,
            "expected": counts.mean,
            "sd": sd,
            "z": z,
        }
    )
    return table.sort_values("z", key=np.abs, ascending=False, ignore_index=True)


def _unlike_moves(post: Posterior, ahead: Posterior) -> pd.DataFrame:
    """Moves as the new counts imply them, beside their forecast."""
    import pandas as pd

    rows = []
    for u, v in itertools.pairwise(post.problem.model.variables):
        found, expected = (np.asarray(dense(p.beliefs.mean((u, v)))) for p in (post, ahead))
        sd = np.sqrt(np.maximum(np.asarray(dense(ahead.beliefs.variance((u, v)))), 0.0))
        z = np.divide(found - expected, sd, out=np.zeros_like(sd), where=sd > 0)
        states = post.problem.model.states
        for i, j in np.argwhere(np.abs(z) >= CLEAR_MOVE):
            told = (readable(u), readable(states[u][i]), readable(states[v][j]))
            rows.append((*told, found[i, j], expected[i, j], sd[i, j], z[i, j]))
    table = pd.DataFrame(rows, columns=["time", "origin", "dest", "found", "expected", "sd", "z"])
    return table.sort_values("z", key=np.abs, ascending=False, ignore_index=True)


def _in_words(probability: float, rate: float, counts: pd.DataFrame, moves: pd.DataFrame) -> str:
    chance = f"{probability:.2g}" if probability >= 1e-12 else "below 1e-12"
    if probability >= rate:
        return f"No alarm: the new counts are as forecast (probability {chance}, alarm below {rate:g})."
    parts = [
        f"Alarm: the new counts are unlike the forecast (probability {chance}; a false alarm in {rate:.2g} of runs)."
    ]
    clear = counts[np.abs(counts["z"]) >= CLEAR_COUNT].head(CAUSES)
    if not len(clear):
        parts.append("No single count stands out: many differ a little.")
    parts += [
        f"{row.cell} at {row.time}: {row.observed:g} counted, {row.expected:.1f} ± {row.sd:.1f} expected."
        for row in clear.itertuples()
    ]
    parts += [
        f"{row.origin} to {row.dest} from {row.time}: {row.found:.1f} moved, {row.expected:.1f} ± {row.sd:.1f} expected."
        for row in moves.head(CAUSES).itertuples()
        if row.origin != row.dest
    ]
    return " ".join(parts)


# --- backtests: how good would the forecasts have been?


LEAST_ERRORS = 3
"""Past errors of a rival's forecast from which its spread is taken; where there are fewer, that of all cells is."""


@dataclass(frozen=True, eq=False)
class Backtest:
    """Forecasts of past counts from what was known before them, beside two rivals.

    Attributes
    ----------
    table
        ``horizon, method, crps, coverage, error, cases``: mean CRPS (smaller is better), share of counts in the central intervals, mean
        absolute error, by steps ahead.
    level
        Of the intervals.
    verdict
        Which method has the smallest CRPS, in words.
    """

    table: pd.DataFrame = field(repr=False)
    level: float
    verdict: str

    def __str__(self) -> str:
        return self.verdict


def backtest(
    problem: Problem,
    *,
    horizon: int = 4,
    first: int | None = None,
    every: int = 1,
    season: int | None = None,
    level: float = 0.9,
    engine: Engine | str | None = None,
) -> Backtest:
    """Forecast the counts of a problem from every origin on, and score what was counted.

    From time number ``first`` on the posterior is updated count by count (each update costs its own step, not the past), and at every
    origin the next ``horizon`` counts are forecast: mean and spread of what will be counted, noise included. The rivals are persistence
    (the last count) and, with a ``season``, the count one season before; their spread is that of their own past errors at that horizon,
    in that cell.

    Parameters
    ----------
    problem
        A chain with all its times and counts; the transitions of the steps that are forecast are its own.
    horizon
        Steps ahead, at most.
    first
        Times known at the first origin; a third of all unless given.
    every
        Steps between origins.
    season
        Steps per season: 24 for hours, 7 for days.
    level
        Of the intervals.
    engine
        As for `infer`.
    """
    import pandas as pd

    times = problem.model.variables
    known = len(times) // 3 if first is None else whole_number(first, "first", least=2)
    horizon = whole_number(horizon, "horizon", least=1)
    counted = problem._seen_nodes(max(len(s) for s in problem.model.states.values()))
    post = infer(problem.between(0, known - 1), engine)
    rows: list[tuple[int, str, float, bool, float]] = []
    at = known - 1
    while at + 1 < len(times):
        last = min(at + horizon, len(times) - 1)
        window = problem.between(at, last).after(post.last)
        ahead = infer(window.unseen(), engine)
        for step in range(1, last - at + 1):
            mean, variance = _predicted(window, ahead, times[at + step])
            y = counted[at + step][: len(mean)]
            rivals = {"persistence": 0} | ({} if season is None else {"seasonal": season})
            laws = {"forecast": (mean, np.sqrt(variance))} | {
                name: _naive(counted[:, : len(mean)], at, step, lag) for name, lag in rivals.items()
            }
            seen = np.isfinite(y)
            for name, (centre, sd) in laws.items():
                good = seen & np.isfinite(centre)
                rows += _scored(step, name, y[good], centre[good], sd[good], level)
        nearer = min(at + every, len(times) - 1)
        if nearer == at:
            break
        post = infer(problem.between(at, nearer), engine, start=post)
        at = nearer
    scores = pd.DataFrame(rows, columns=["horizon", "method", "crps", "coverage", "error"])
    grouped = scores.groupby(["horizon", "method"], sort=False)
    table = grouped.mean().reset_index().assign(cases=grouped.size().to_numpy())
    overall = scores.groupby("method")["crps"].mean().sort_values()
    verdict = ", ".join(f"{name} {value:.3g}" for name, value in overall.items())
    best = (
        "The forecast is best"
        if overall.index[0] == "forecast"
        else f"The forecast is beaten by {overall.index[0]}"
    )
    return Backtest(table, level, f"{best} (mean CRPS over all horizons: {verdict}).")


def _predicted(window: Problem, ahead: Posterior, time: Any) -> tuple[Array, Array]:
    """Mean and variance of what will be counted at one time; NaN where nobody counts."""
    n = np.asarray(ahead.beliefs.mean((time,)), dtype=float)
    spread = np.asarray(ahead.beliefs.variance((time,)), dtype=float)
    mean, variance = np.full((2, len(n)), np.nan)
    for site in window.sites:
        if site.scope == (time,) and site.index is not None:
            at = n[site.index]
            (m0, v0), (m1, _) = site.noise.moments(at), site.noise.moments(at + 1.0)
            mean[site.index], variance[site.index] = m0, v0 + (m1 - m0) ** 2 * spread[site.index]
    return mean, variance


def _naive(counted: Array, at: int, step: int, lag: int) -> tuple[Array, Array]:
    """The last count known, or that one season (``lag`` steps) before the time that is forecast, with the spread of its past errors."""

    def from_origin(origin: int) -> int:
        back = origin if lag == 0 else origin + step - lag * math.ceil(step / lag)
        return back

    origins = [o for o in range(at - step + 1) if from_origin(o) >= 0]
    if from_origin(at) < 0:
        return np.full(counted.shape[1], np.nan), np.ones(counted.shape[1])
    errors = np.array([counted[o + step] - counted[from_origin(o)] for o in origins]).reshape(
        -1, counted.shape[1]
    )
    known = np.isfinite(errors)
    square, number = np.where(known, errors, 0.0) ** 2, known.sum(axis=0)
    common = math.sqrt(float(square.sum()) / max(int(number.sum()), 1))
    sd = np.sqrt(square.sum(axis=0) / np.maximum(number, 1))
    return counted[from_origin(at)], np.maximum(np.where(number >= LEAST_ERRORS, sd, common), 0.3)


def _scored(
    step: int, name: str, y: Array, mean: Array, sd: Array, level: float
) -> list[tuple[int, str, float, bool, float]]:
    r"""CRPS of a Gaussian, whether the interval holds the count, and the absolute error.

    .. math:: \mathrm{CRPS} = \sigma(z(2\Phi(z) - 1) + 2\varphi(z) - \pi^{-1/2})
    """
    sd = np.maximum(sd, 1e-9)
    z = (y - mean) / sd
    crps = sd * (
        z * (2.0 * ndtr(z) - 1.0) + 2.0 * np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi) - math.pi**-0.5
    )
    # Counts are whole numbers: an interval reaches half a count further.
    held = np.abs(y - mean) <= ndtri(0.5 + level / 2.0) * sd + 0.5
    return [
        (step, name, float(c), bool(h), float(e))
        for c, h, e in zip(crps, held, np.abs(y - mean), strict=True)
    ]
