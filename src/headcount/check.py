r"""Checks that need many inferences: simulation-based calibration.

Populations and data drawn from the user's own model, inferred, and compared with their truth.

If an engine is right, the true count is an ordinary draw of its posterior: its (randomised) PIT, :math:`P(n < n^*) + U\,P(n = n^*)`, is
uniform (Cook, Gelman and Rubin 2006; Talts et al. 2018). Counts of one data set depend on each other, so data sets, not counts, are what
is averaged over: per data set d and kind of table (nodes, flows)

.. math:: v_d = \operatorname{mean}\,12(u - \tfrac12)^2 - 1, \qquad b_d = \operatorname{mean}\,(u - \tfrac12),

whose expectations are zero. v above zero means that intervals are too narrow. Each is tested by Student's t over data sets, at the error
rate divided by the number of tests.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtri, stdtr

from headcount._compile import many_solves
from headcount.checks import generator, instance, whole_number
from headcount.engines import Engine, NotConvergedError, Posterior
from headcount.individual import MarkovChain
from headcount.learn import Parametrisation, fit, infer
from headcount.learn._result import FitNotConvergedError
from headcount.observe import Problem, ProblemError
from headcount.posterior._posterior import RELIABLE_VARIANCE
from headcount.simulate import population as simulated_population
from headcount.tables import Scope, dense

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from headcount.plot import Picture

    Array = NDArray[np.float64]

__all__ = ["Calibration", "calibration"]

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
    if isinstance(model, MarkovChain) and not model.initial_known:
        size = len(model.states[model.variables[0]])
        law = rng.dirichlet(np.ones(size))
        model = MarkovChain(law, list(model.transitions), times=model.times, cells=_cells(model))
    world = simulated_population(model, problem.population, dispersion=problem.dispersion, rng=rng)
    counts = []
    for site in problem.sites:
        n = site.margin(np.asarray(dense(world.tables.table(site.scope)), dtype=float).ravel())
        counts.append(site.noise.sample(n, rng=rng))
    return _Truth(world.tables.table, model.marginal), problem.with_counts(counts)


def _cells(model: MarkovChain) -> Any:
    """Labels of the cells as `MarkovChain` takes them: one list, or one per time where they change."""
    states = [model.states[v] for v in model.variables]
    return states[0] if len(set(states)) == 1 else states


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
