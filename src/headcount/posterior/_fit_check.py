r"""Does the model fit? Residuals of every count given all others, and tests of the scatter that the model allows.

The first two moments of the observed counts are known exactly under the model, whatever N: with n the observed entries and the noise's
mean :math:`a n + b` and variance v(n),

.. math:: E\,y = a N\mu + b, \qquad S = \operatorname{cov} y = K + D, \quad K = a\,\operatorname{cov}(n)\,a, \quad D = E\,v(n) .

So the best linear prediction of a count from all others has an error of known variance. With :math:`W = S^{-1}` and r = y − E y,

.. math:: e_k = (W r)_k / W_{kk}, \qquad E\,e_k^2 = (W S W)_{kk} / W_{kk}^2 ,

and the score statistic for a dispersion c of the movements (cov n is c times what it should be)

.. math:: Q = r^\top W K W r, \qquad E\,Q = \operatorname{tr}(W K W S) + (c - 1)\operatorname{tr}(W K W K)

gives the unbiased estimate :math:`\hat c`. Both hold for every engine, because they concern the data and the model alone. What is not
known exactly is the spread of the statistics where counts are small; it comes from data sets simulated from the model.

Where whole margins are known exactly, the test is one step ahead instead: given :math:`n_t`, the next margin has mean
:math:`P^\top n_t` and covariance :math:`\sum_i n_i(\operatorname{diag} p_i - p_i p_i^\top)`, and steps are independent.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import betainc, gammainc, gammaincc, ndtr

from headcount.individual._tree_passes import node_marginals
from headcount.observe import Gaussian
from headcount.observe._site import by_family
from headcount.population import CGM
from headcount.population._law import multinomial
from headcount.tables import dense

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from headcount.individual import RootedTree
    from headcount.observe import Problem, Site

    Array = NDArray[np.float64]

SCATTER_LEVEL = 0.004
"""p-value of the score statistic below which counts are said to scatter too much."""
OTHER_LEVEL = 0.001
"""p-value below which the other tests (residuals, totals; too little scatter, which is no fault) speak. Together with
`SCATTER_LEVEL` the warning appears in about 0.6 % of the data sets of a true model."""
FEWEST_SIMULATED, MOST_SIMULATED = 200, 1000
"""Data sets simulated from the model, as many as `MOST_MOVES` allows: the spread of a statistic is known to 5 % from 200 of them, and
a probability of 0.005 is seen in 1000."""
LEAST_NOISE = 0.25
"""Least variance of a count's noise in the weights (individuals²). Without it exact counts have no inverse, and single individuals
where next to none are expected would dominate every statistic. The variance of rounding is 1/12; this is the variance of a coin."""
LEAST_VARIANCE = 1.0
"""Residuals whose variance is below this are left out of averages: a square of a count of 0 or 1 says nothing about a spread."""
MOST_COUNTS = 1500
"""Most counts whose joint covariance is made: 18 MB, and its inverse takes 0.2 s."""
WINDOW = 600
"""Counts of a chain that are held against each other; longer data are checked in windows of successive times."""
CLEAR_BELOW, CLEAR_ABOVE = 2.0, 20.0
"""Statistics this many Gaussian standard deviations above their mean or less (but above −2), and those further off, need no simulated
data sets: small counts make the true standard deviation larger than a Gaussian's, up to twice as large (measured at N = 20)."""
MOST_MOVES = 1_500_000
"""Most binomial draws spent on simulated data sets, about 0.2 s. Where fewer than `FEWEST_SIMULATED` data sets would come of them, the
spread of the statistics is a Gaussian's."""
TINY = 1e-300
"""A spread that can be divided by."""
CHECK_SEED = 0
"""Simulated data sets and the randomised PIT are the same every time."""


@dataclass(frozen=True, eq=False)
class FitCheck:
    """Whether the data agree with the model, and where not.

    Attributes
    ----------
    agrees
        Whether no test speaks; None where nothing could be checked.
    verdict
        The same in words.
    dispersion
        How many times more than the model allows the movements scatter (ĉ above): 1 where all is well, c where individuals move in
        groups of c.
    dispersion_p
        Probability of a statistic at least as large (for ``dispersion`` below 1: as small) if the model is true.
    residual_dispersion, residual_p
        Mean squared standardised residual, and the probability of one as large.
    implied_population, population_sd
        The N that the totals imply, and its standard error; None where no time was observed completely by one noise.
    names
        What was counted, for reading.
    variables, states
        Of every count that is an entry of one variable's table: which; None for others.
    observed, expected, sd
        Every count, and what all other counts (with exact margins: those of the time before) let one expect.
    residual, pit
        (observed − expected)/sd, and the probability of a smaller count, randomised between those of y − 1 and y; NaN where the model
        leaves no choice.
    steps
        For exact margins: one row ``(variable, dispersion, p)`` per step.
    seconds
        What the check cost.
    """

    agrees: bool | None
    verdict: str
    dispersion: float = np.nan
    dispersion_p: float = np.nan
    residual_dispersion: float = np.nan
    residual_p: float = np.nan
    implied_population: float | None = None
    population_sd: float | None = None
    names: Sequence[str] = ()
    variables: tuple[Hashable, ...] = ()
    states: tuple[Hashable, ...] = ()
    observed: Array = field(default_factory=lambda: np.zeros(0), repr=False)
    expected: Array = field(default_factory=lambda: np.zeros(0), repr=False)
    sd: Array = field(default_factory=lambda: np.zeros(0), repr=False)
    residual: Array = field(default_factory=lambda: np.zeros(0), repr=False)
    pit: Array = field(default_factory=lambda: np.zeros(0), repr=False)
    steps: tuple[tuple[Hashable, float, float], ...] = ()
    seconds: float = 0.0

    def __str__(self) -> str:
        return self.verdict

    def to_frame(self) -> pd.DataFrame:
        """One row per count: ``name, variable, state, observed, expected, sd, residual, pit``."""
        import pandas as pd

        columns = {"name": list(self.names), "variable": list(self.variables), "state": list(self.states)}
        numbers = {name: getattr(self, name) for name in ("observed", "expected", "sd", "residual", "pit")}
        return pd.DataFrame(columns | numbers)

    def dispersion_by(self, column: str) -> pd.DataFrame:
        """Mean squared residual per ``"variable"`` (a chain's time) or ``"state"`` (its cell): ``dispersion, counts``.

        Counts whose variance is below `LEAST_VARIANCE` are left out.
        """
        if column not in {"variable", "state"}:
            raise ValueError(f'column must be "variable" or "state", got {column!r}')
        frame = self.to_frame()
        frame = frame[(frame["sd"] ** 2 >= LEAST_VARIANCE) & frame[column].notna()]
        squares = (frame["residual"] ** 2).groupby(frame[column], sort=False)
        return squares.agg(dispersion="mean", counts="size").reset_index()


class _Counts(NamedTuple):
    """The observed counts that can be checked, with the moments of their noise at the prior mean."""

    place: NDArray[np.intp]
    """Positions among all observed entries."""
    y: Array
    slope: Array
    """a."""
    mean: Array
    """E y."""
    cov_n: Array
    noise: Array
    """D."""
    whole: NDArray[np.bool_]


class _Test(NamedTuple):
    """A quadratic form r'Mr with the moments that the model gives it."""

    value: float
    mean: float
    sd: float
    simulated: Array | None = None
    """Its values in data sets simulated from the model."""

    @property
    def above(self) -> float:
        """Probability of a larger value, by the Gamma law with the same two moments; no less than half the share of simulated ones.

        Half, because a few hundred data sets say little about a share near the levels of the tests. With the whole share only 94 % of
        600 data sets of pairs (binomial counts, N = 480) were noticed, with half of it 96 %; on 200 fresh ones 95.5 %, with Poisson
        counts 93 %.
        """
        law = float(gammaincc(*self._gamma))
        return law if self.simulated is None else max(law, 0.5 * float((self.simulated >= self.value).mean()))

    @property
    def below(self) -> float:
        """Probability of a smaller value."""
        law = float(gammainc(*self._gamma))
        return law if self.simulated is None else max(law, 0.5 * float((self.simulated <= self.value).mean()))

    @property
    def _gamma(self) -> tuple[float, float]:
        return (self.mean / self.sd) ** 2, max(self.value, 0.0) * self.mean / self.sd**2


def fit_check(problem: Problem) -> FitCheck:
    """Check the counts of a problem against its model (see the module)."""
    begun = perf_counter()
    if not problem.sites:
        return FitCheck(None, "Not checked: nothing was observed.")
    if problem.disperses:
        return FitCheck(None, "Not checked: the check knows individuals that move alone only.")
    check = _steps_ahead(problem) if _is_exact_chain(problem) else _left_out(problem)
    return _timed(check, perf_counter() - begun)


def _timed(check: FitCheck, seconds: float) -> FitCheck:
    return replace(check, seconds=seconds)


def _left_out(problem: Problem) -> FitCheck:
    """The check with every count predicted from all others of its window."""
    windows = _windows(problem)
    if windows is None:
        return FitCheck(
            None, f"Not checked: more than {MOST_COUNTS:,} counts would have to be held against each other."
        )
    parts = [
        part for window in windows if (part := _part(problem, window, alone=len(windows) == 1)) is not None
    ]
    if not parts:
        return FitCheck(None, "Not checked: the noise has no sample(n, *, rng) to compare with.")
    scatter, residual = (_joined([part[k] for part in parts]) for k in ("scatter", "residual"))
    freedom, kept = sum(part["freedom"] for part in parts), sum(part["kept"] for part in parts)
    if scatter.mean <= 0 or freedom <= 0:
        return FitCheck(None, "Not checked: the model leaves no observed count a choice.")
    index, y, error, sd, whole = (
        np.concatenate([part[name] for part in parts]) for name in ("index", "y", "error", "sd", "whole")
    )
    checked = FitCheck(
        agrees=None,
        verdict="",
        dispersion=1.0 + (scatter.value - scatter.mean) / freedom,
        dispersion_p=min(scatter.above, scatter.below),
        residual_dispersion=residual.value / kept if kept else np.nan,
        residual_p=residual.above if kept else np.nan,
        observed=y,
        expected=y - error,
        sd=sd,
        residual=np.divide(error, sd, out=np.zeros_like(error), where=sd > 0),
        pit=_pit(y, y - error, sd, whole),
        **_labels(problem, index),
    )
    return _judged(checked, problem, *_implied_population(problem))


def _windows(problem: Problem) -> list[list[int]] | None:
    """Positions of the sites to be held against each other; None where they are too many."""
    tree, sites = problem.model.rooted(), problem.sites
    if (
        sum(map(len, sites)) <= WINDOW
        or tree is None
        or not tree.is_chain
        or any(len(s.scope) > 1 for s in sites)
    ):
        return [list(range(len(sites)))] if sum(map(len, sites)) <= MOST_COUNTS else None
    windows: list[list[int]] = []
    filled = WINDOW
    last = -1
    for k in sorted(range(len(sites)), key=lambda k: tree.index[sites[k].scope[0]]):
        node = tree.index[sites[k].scope[0]]
        if filled + len(sites[k]) > WINDOW and node != last:
            windows.append([])
            filled = 0
        windows[-1].append(k)
        filled, last = filled + len(sites[k]), node
    largest = max(sum(len(sites[k]) for k in window) for window in windows)
    return windows if largest <= MOST_COUNTS else None


def _part(problem: Problem, window: list[int], *, alone: bool) -> dict[str, Any] | None:
    """Errors of prediction, and both statistics, of one window."""
    counts = _counts(problem, window)
    if counts is None:
        return None
    a = counts.slope
    k = a[:, None] * counts.cov_n * a
    s = k + counts.noise
    w = np.linalg.inv(s + np.diag(np.maximum(LEAST_NOISE - np.diag(counts.noise), 0.0)))
    own = np.diag(w)
    predicted = np.maximum(np.einsum("ij,ij->i", w @ s, w), 0.0) / own**2  # (W S W)_kk / W_kk²
    wkw = w @ k @ w
    kept = predicted >= LEAST_VARIANCE
    share = np.where(kept, 1.0 / np.where(kept, predicted * own**2, 1.0), 0.0)
    r = counts.y - counts.mean
    simulate = cache(lambda: _simulated(problem, counts)) if alone else None
    return {
        "index": counts.place,
        "y": counts.y,
        "whole": counts.whole,
        "error": (w @ r) / own,
        "sd": np.sqrt(predicted),
        "kept": int(kept.sum()),
        "freedom": float(np.einsum("ij,ji->", wkw, k)),
        "scatter": _test(wkw, s, r, simulate),
        "residual": _test((w * share) @ w, s, r, simulate),
    }


def _joined(tests: list[_Test]) -> _Test:
    """The sum of several statistics; windows depend on each other, so standard deviations are added, which is their upper bound."""
    if len(tests) == 1:
        return tests[0]
    return _Test(*(sum(getattr(test, name) for test in tests) for name in ("value", "mean", "sd")))


def _test(form: Array, s: Array, r: Array, simulate: Callable[[], Array | None] | None) -> _Test:
    """r'Mr with E = tr(MS), exactly, and the spread of a Gaussian r, or that of simulated data where it matters."""
    ms = form @ s
    mean = float(np.trace(ms))
    sd = float(np.sqrt(max(2.0 * np.einsum("ij,ji->", ms, ms), TINY)))
    value = float(r @ form @ r)
    z = (value - mean) / sd
    drawn = None if simulate is None or abs(z) < CLEAR_BELOW or z > CLEAR_ABOVE else simulate()
    if drawn is None:
        return _Test(value, mean, sd)
    again = np.einsum("ri,ri->r", drawn @ form, drawn)
    return _Test(value, mean, max(float(np.sqrt(((again - mean) ** 2).mean())), TINY), again)


def _counts(problem: Problem, window: list[int]) -> _Counts | None:
    """Everything observed at the sites of a window, or what of it has a noise with moments."""
    sites = [problem.sites[k] for k in window]
    n, cov = _prior_moments(problem, sites)
    size = len(n)
    y, slope, mean, spread = (np.zeros(size) for _ in range(4))
    noise = np.zeros((size, size))
    whole = np.zeros(size, bool)
    for index, law in by_family(sites):
        at = n[index]
        (m0, v0), (m1, v1), (_, v2) = law.moments(at), law.moments(at + 1.0), law.moments(at + 2.0)
        y[index], slope[index], mean[index], whole[index] = law.counts, m1 - m0, m0, law.whole
        # E v(n) for a variance up to quadratic in n, as every noise of ours has.
        spread[index] = v0 + 0.5 * (v2 - 2.0 * v1 + v0) * np.diag(cov)[index]
        if isinstance(law, Gaussian) and law.covariance is not None:
            noise[np.ix_(index, index)] = law.covariance
    np.fill_diagonal(noise, spread)
    fine = np.flatnonzero(np.isfinite(mean) & np.isfinite(spread))
    if not len(fine):
        return None
    both = np.ix_(fine, fine)
    starts = np.concatenate([[0], np.cumsum([len(site) for site in problem.sites])])
    place = np.concatenate([np.arange(starts[k], starts[k + 1]) for k in window])
    return _Counts(place[fine], y[fine], slope[fine], mean[fine], cov[both], noise[both], whole[fine])


def _prior_moments(problem: Problem, sites: Sequence[Site]) -> tuple[Array, Array]:
    """Exact mean and covariance under the model of the entries that some sites observe."""
    tree = problem.model.rooted()
    if tree is not None and all(len(site.scope) == 1 for site in sites):
        nodes = [tree.index[site.scope[0]] for site in sites]
        first, last = (min(nodes), max(nodes)) if tree.is_chain else (0, len(tree.sizes) - 1)
        law, joint, begins = _tree_moments(tree, first, last)
        where = [slice(begins[v - first], begins[v - first + 1]) for v in nodes]
        rows = np.concatenate([site.margin(joint[at].T).T for site, at in zip(sites, where, strict=True)])
        cov = np.concatenate(
            [site.margin(rows[:, at]) for site, at in zip(sites, where, strict=True)], axis=1
        )
        mean = np.concatenate([site.margin(law[at]) for site, at in zip(sites, where, strict=True)])
        return problem.population * mean, problem.population * cov
    population = CGM(problem.model, problem.population)
    mean = np.concatenate([site.margin(population.mean(site.scope).ravel()) for site in sites])
    starts = np.concatenate([[0], np.cumsum([len(site) for site in sites])])
    cov = np.zeros((len(mean), len(mean)))
    for i, one in enumerate(sites):
        for j, other in enumerate(sites[: i + 1]):
            block = other.margin(one.margin(population.covariance(one.scope, other.scope).T).T)
            cov[starts[i] : starts[i + 1], starts[j] : starts[j + 1]] = block
            cov[starts[j] : starts[j + 1], starts[i] : starts[i + 1]] = block.T
    return mean, cov


def _tree_moments(tree: RootedTree, first: int, last: int) -> tuple[Array, Array, NDArray[np.intp]]:
    """Of the nodes from ``first`` to ``last``: μ, P(x_u = i, x_v = j) − μ_u(i) μ_v(j) for all pairs, and where every node starts.

    ``first`` is the root, or any node of a chain.
    """
    starts = np.concatenate([[0], np.cumsum(tree.sizes[first : last + 1])]).astype(np.intp)
    joint = np.zeros((starts[-1], starts[-1]))
    mean = np.zeros(starts[-1])
    mean[: starts[1]] = tree.initial if first == 0 else node_marginals(tree)[first]
    for v in range(first, last + 1):
        at = slice(starts[v - first], starts[v - first + 1])
        if v > first:
            before, parent = at.start, tree.parents[v] - first
            above = slice(starts[parent], starts[parent + 1])
            step = tree.transitions[v]
            mean[at] = mean[above] @ step
            joint[:before, at] = joint[:before, above] @ step
            joint[at, :before] = joint[:before, at].T
        joint[at, at] = np.diag(mean[at])
    return mean, joint - np.outer(mean, mean), starts


def _simulated(problem: Problem, counts: _Counts) -> Array | None:
    """Deviations y − E y of data sets simulated from the model, one per row; None where they would cost too much."""
    tree = problem.model.rooted()
    if tree is None or any(len(site.scope) > 1 for site in problem.sites):
        return None
    size = _affordable(tree)
    if size < FEWEST_SIMULATED:
        return None
    rng = np.random.default_rng(CHECK_SEED)
    nodes = _simulated_nodes(tree, problem.population, size, rng)
    n = np.concatenate([site.margin(nodes[tree.index[site.scope[0]]]) for site in problem.sites], axis=1)
    y = np.zeros(n.shape)
    for index, law in problem.noises:
        try:
            y[:, index] = law.sample(n[:, index], rng=rng)
        except NotImplementedError:
            continue
    return np.asarray(y[:, counts.place] - counts.mean)


def _affordable(tree: RootedTree) -> int:
    """How many data sets may be simulated."""
    moves = sum(step.shape[0] * step.shape[1] for step in tree.transitions[1:]) + tree.sizes[0]
    return int(min(MOST_SIMULATED, MOST_MOVES // moves))


def _simulated_nodes(
    tree: RootedTree, population: int, size: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Node counts of ``size`` populations."""
    nodes = [_next_margins(np.full((size, 1), population), tree.initial[None], rng)]
    for v in range(1, len(tree.sizes)):
        nodes.append(_next_margins(nodes[tree.parents[v]], dense(tree.transitions[v]), rng))
    return nodes


def _next_margins(n: NDArray[np.int64], step: Array, rng: np.random.Generator) -> NDArray[np.int64]:
    """The next margin of several populations (rows of n), each individual moving by ``step``."""
    moved = multinomial(n.ravel(), np.tile(step, (len(n), 1)), rng=rng)
    return np.asarray(moved.reshape(len(n), *step.shape).sum(axis=1))


def _is_exact_chain(problem: Problem) -> bool:
    """Whether all that is seen are exact whole margins of a chain, each once."""
    tree, sites = problem.model.rooted(), problem.sites
    return (
        tree is not None
        and tree.is_chain
        and len({site.scope for site in sites}) == len(sites)
        and all(
            site.noise.exact and len(site.scope) == 1 and site.index is not None and len(site) == site.size
            for site in sites
        )
    )


class _Step(NamedTuple):
    """An exact margin y, predicted from the one before: n individuals per origin, each moving by a row of ``law``."""

    site: int
    n: Array
    law: Array
    y: Array

    @property
    def mean(self) -> Array:
        return np.asarray(self.n @ self.law)

    @property
    def covariance(self) -> Array:
        return np.asarray(np.diag(self.mean) - (self.law * self.n[:, None]).T @ self.law)

    def form(self, covariance: Array) -> Array:
        """W Q W with W the inverse of the covariance Q."""
        w = np.linalg.inv(covariance + LEAST_NOISE * np.eye(len(covariance)))
        return np.asarray(w @ covariance @ w)


def _exact_steps(problem: Problem, tree: RootedTree) -> list[_Step]:
    """All margins, each given the one before; the first given N."""
    n, law, at = np.array([float(problem.population)]), tree.initial[None], 0
    steps = []
    for k in sorted(range(len(problem.sites)), key=lambda k: tree.index[problem.sites[k].scope[0]]):
        node = tree.index[problem.sites[k].scope[0]]
        for v in range(at + 1, node + 1):
            law = law @ dense(tree.transitions[v])
        y = np.asarray(problem.sites[k].noise.counts, dtype=float)
        steps.append(_Step(k, n, law, y))
        n, law, at = y, np.eye(len(y)), node
    return steps


def _steps_ahead(problem: Problem) -> FitCheck:
    """The check of exact margins: every margin given the one before."""
    tree = problem.model.rooted()
    assert tree is not None
    steps = _exact_steps(problem, tree)
    starts = np.concatenate([[0], np.cumsum([len(site) for site in problem.sites])])
    y, expected, variance = (np.zeros(starts[-1]) for _ in range(3))
    tests, forms = [], []
    for step in steps:
        at = slice(starts[step.site], starts[step.site + 1])
        covariance = step.covariance
        y[at], expected[at], variance[at] = step.y, step.mean, np.maximum(np.diag(covariance), 0.0)
        forms.append(step.form(covariance))
        tests.append(_test(forms[-1], covariance, step.y - step.mean, None))
    free = [k for k, test in enumerate(tests) if test.mean > 0]
    if not free:
        return FitCheck(None, "Not checked: the model leaves no observed count a choice.")
    overall = _overall([tests[k] for k in free], [steps[k] for k in free], [forms[k] for k in free], tree)
    sd = np.sqrt(variance)
    residual = np.divide(y - expected, sd, out=np.zeros_like(y), where=sd > 0)
    kept = variance >= LEAST_VARIANCE
    checked = FitCheck(
        agrees=None,
        verdict="",
        dispersion=overall.value / overall.mean,
        dispersion_p=min(overall.above, overall.below),
        residual_dispersion=float((residual[kept] ** 2).mean()) if kept.any() else np.nan,
        observed=y,
        expected=expected,
        sd=sd,
        residual=residual,
        pit=_pit(y, expected, sd, np.ones(len(y), bool)),
        steps=tuple(
            (problem.sites[steps[k].site].scope[0], tests[k].value / tests[k].mean, tests[k].above)
            for k in free
        ),
        **_labels(problem, np.arange(len(y))),
    )
    return _judged(checked, problem, None, None)


def _overall(tests: list[_Test], steps: list[_Step], forms: list[Array], tree: RootedTree) -> _Test:
    """The sum over steps, which are independent; its law from simulated steps where it matters."""
    value, mean = sum(t.value for t in tests), sum(t.mean for t in tests)
    sd = float(np.sqrt(sum(t.sd**2 for t in tests)))
    z, size = (value - mean) / sd, _affordable(tree)
    if abs(z) < CLEAR_BELOW or z > CLEAR_ABOVE or size < FEWEST_SIMULATED:
        return _Test(value, mean, sd)
    rng = np.random.default_rng(CHECK_SEED)
    again = np.zeros(size)
    for step, form in zip(steps, forms, strict=True):
        drawn = _next_margins(np.tile(step.n.astype(np.int64), (size, 1)), step.law, rng) - step.mean
        again += np.einsum("ri,ri->r", drawn @ form, drawn)
    return _Test(value, mean, float(np.sqrt(((again - mean) ** 2).mean())), again)


def _labels(problem: Problem, index: NDArray[np.intp]) -> dict[str, Any]:
    """Names, variables and states of the counts at ``index``."""
    names: list[str] = []
    variables: list[Hashable] = []
    states: list[Hashable] = []
    for site in problem.sites:
        names += site.names[:]
        single = len(site.scope) == 1 and site.index is not None
        variables += [site.scope[0] if len(site.scope) == 1 else None] * len(site)
        labels = problem.model.states[site.scope[0]]
        states += [labels[i] for i in site.index] if single else [None] * len(site)  # type: ignore[union-attr]
    return {
        "names": tuple(names[k] for k in index),
        "variables": tuple(variables[k] for k in index),
        "states": tuple(states[k] for k in index),
    }


def _pit(y: Array, expected: Array, sd: Array, whole: NDArray[np.bool_]) -> Array:
    """P(Y < y) + u P(Y = y), u uniform, for the law with these moments: on whole numbers a (negative) binomial, else a Gaussian.

    NaN where the model leaves no choice.
    """
    u = np.random.default_rng(CHECK_SEED).random(len(y))
    with np.errstate(divide="ignore", invalid="ignore"):
        smooth = ndtr((y - expected) / sd)
    below, upto = (_count_cdf(k, np.maximum(expected, 1e-9), sd**2) for k in (y - 1.0, y))
    return np.where(sd > 0, np.where(whole, below + u * (upto - below), smooth), np.nan)


def _count_cdf(k: Array, mean: Array, variance: Array) -> Array:
    """P(Y ≤ k) for a count with this mean and variance: negative binomial where the variance is above the mean, else binomial."""
    excess = variance - mean
    near = np.abs(excess) < 1e-6 * mean
    shape = mean**2 / np.where(near, 1.0, np.abs(excess))  # r, or the number of trials
    at = np.maximum(k, 0.0)
    wide = betainc(shape, at + 1.0, np.where(near, 0.5, shape / (shape + mean)))
    left = np.maximum(shape - at, 1e-12)
    narrow = np.where(shape > at, betainc(left, at + 1.0, np.clip(1.0 - mean / shape, 0.0, 1.0)), 1.0)
    plain = gammaincc(at + 1.0, mean)
    return np.where(k < 0, 0.0, np.where(near, plain, np.where(excess > 0, wide, narrow)))


def _implied_population(problem: Problem) -> tuple[float | None, float | None]:
    """The N that complete margins imply, and its standard error: Σ y − b = a N + noise wherever a is the same for all cells."""
    weight = pull = 0.0
    for site in problem.sites:
        if site.index is None or len(site) < site.size or site.noise.exact or site.noise.correlated:
            continue
        n = problem.population * site.margin(problem.model.marginal(site.scope).ravel())
        (m0, v0), (m1, _) = site.noise.moments(n), site.noise.moments(n + 1.0)
        a = np.broadcast_to(m1 - m0, n.shape)
        total = float(v0.sum())
        if not np.allclose(a, a[0], rtol=1e-9) or not np.isfinite(total) or total <= 0:
            continue
        weight += float(a[0]) ** 2 / total
        pull += float(a[0] * (site.noise.counts - m0).sum()) / total
    if weight == 0.0:
        return None, None
    return problem.population + pull / weight, weight**-0.5


def _judged(check: FitCheck, problem: Problem, implied: float | None, implied_sd: float | None) -> FitCheck:
    """The same with its verdict."""
    faults = []
    wide = check.dispersion > 1.0 and check.dispersion_p <= SCATTER_LEVEL
    off = check.residual_p < OTHER_LEVEL
    if wide or off:
        factor = max(check.dispersion if wide else 0.0, check.residual_dispersion if off else 0.0)
        faults.append(
            f"counts scatter {factor:.2g} times more than the model allows; intervals are too narrow by about a factor of "
            f"{np.sqrt(factor):.2g}"
        )
    if implied is not None and implied_sd is not None:
        away = abs(implied - problem.population) / implied_sd
        if 2.0 * ndtr(-away) < OTHER_LEVEL:
            faults.append(
                f"the totals imply a population of {implied:,.0f} ± {implied_sd:,.0f}, not {problem.population:,} "
                "(or another rate of counting)"
            )
    narrow = check.dispersion < 1.0 and check.dispersion_p < OTHER_LEVEL
    if faults:
        verdict = f"The data disagree with the model: {'; '.join(faults)}."
    elif narrow:
        # No fault: counts from which parameters were learned scatter less around them, and wide intervals still hold the truth.
        verdict = (
            f"The data agree with the model; they scatter only {max(check.dispersion, 0.0):.2g} times as much as it allows, "
            "so intervals are rather too wide."
        )
    else:
        verdict = "The data agree with the model."
    return replace(
        check, agrees=not faults, verdict=verdict, implied_population=implied, population_sd=implied_sd
    )
