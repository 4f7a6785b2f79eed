r"""Dispersion that the data decide: a flock's size, phi or rho by maximising the evidence.

Every form is searched in :math:`\psi = \log\phi`: flocks of :math:`e^\psi`; overdispersion with :math:`\phi = e^\psi`; and
:math:`\rho = (e^\psi - 1)/(\bar n - 1)`, whose phi is :math:`e^\psi` where :math:`\bar n` individuals are expected. For a Gaussian with
known mean and m counts :math:`\log p(y; \psi) = -\tfrac{m}{2}(\psi + e^{\hat\psi - \psi})`: smooth, with one maximum, and with

.. math:: s^{-2} = -\partial^2 \log p(y; \hat\psi) / \partial\psi^2 .

Means and dispersion are orthogonal parameters, so that `fit` learns them in turn. Parameters that were learned from the same counts take
away scatter. Integrated over them, the evidence loses :math:`\tfrac{1}{2}\log\det J`, J their observed information; with S = φ K + D the
covariance of the counts (movement and noise) and F their slopes :math:`J = F^\top S^{-1} F`, so that it rises with :math:`\psi` by

.. math:: \tfrac{1}{2}\operatorname{tr} J^{-1} F^\top S^{-1} \phi K S^{-1} F \approx \tfrac{1}{2} m\,P, \qquad
    s^{-2} = \tfrac{1}{2}\operatorname{tr}(S^{-1} \phi K)^2 \approx \tfrac{1}{2} m^2 M

for P parameters and M counts, m the share of the counts' variance that is movement: 1 where margins are seen exactly.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount._types import Array
from headcount.engines import Engine, Posterior
from headcount.engines.choice import chosen
from headcount.individual import MarkovChain
from headcount.learn._components import Initial, dirichlet_multinomial
from headcount.learn._expect import EStep, Expected, run_here
from headcount.learn._family import Family
from headcount.learn._margins import serves, tables_at_once
from headcount.learn._steps import step_labels
from headcount.observe import Problem, ProblemError
from headcount.population import (
    CountTables,
    Dispersion,
    DispersionEstimate,
    Flocks,
    Overdispersion,
    ToEstimate,
    as_dispersion,
)
from headcount.posterior.fit_check import fit_check
from headcount.tables import dense

if TYPE_CHECKING:
    from headcount.learn._result import Fit
    from headcount.learn._uncertainty import Information

FIRST_STEP = 0.5
"""First step in log phi on both sides of the start."""
LEAST_PHI = 1e-3
"""Smallest phi that is tried."""
LARGEST_RHO = 0.99
"""Largest rho that is tried."""
FURTHEST = 4.0
"""Longest step in log phi."""
MOST_EVALUATIONS = 25
"""Inferences per form. 6 to 9 suffice, measured on chains of 3 to 16 cells."""
EARNED = 2.0
"""Nats by which the evidence must rise for phi below 1: intervals narrower than those of independent individuals have to be earned. Data
that say little leave the evidence flat towards phi = 0, and intervals covered .82 when such estimates were taken (asked: .9)."""
SCAN_STEP = 2.5
"""Step in log phi of the first look over the whole range. Parameters that were learned for independent individuals meet exact totals as
well as they can, so that the evidence has a maximum at phi = 1 beside that of the scatter, which lay 5 to 7 above it where a survey of
routes was seen, too. A maximum is 2 wide at least: its curvature is M/2 for M counts, e^(−ψ) to its left."""
NEAR = 0.1
"""Standard errors between the two last estimates of the maximum at which the search ends."""
NEAR_START = 0.8
"""Change of log phi up to which a run starts from the last answer: from 1 away it took up to 20 s where a cold start takes .06 s
(N = 10⁶, phi = 10⁵)."""
SHORTEST, LONGEST = 0.02, 1.5
"""Step in log phi by which the curvature at the maximum is measured: one standard error, within these."""
MOST_MEASURED = 5
"""Times that the curvature is measured: until the step is one standard error by the curvature found. 1 or 2 suffice but where a sharp
maximum lies next to the end of the range."""
LEAST_RHO = 1e-6
"""Smallest rho that is told from none: parties of 1 + 10⁻⁶ n."""
FLAT = 0.05
"""Curvature of the evidence in log phi below which the data say nothing: a standard error of log phi above 4.5."""
CLASS_ROUNDS = 2
"""Times that every class of steps is searched, the others held: they are nearly orthogonal, and a third round moved none by more than a
tenth of its standard error (chains of 3 cells and 40 steps in 2 classes)."""
MOST_ROUNDS = 6
"""Rounds of learning parameters and dispersion in turn. They are orthogonal: 2 or 3 suffice."""
FORM_ROUNDS = 2
"""Rounds in which all forms are compared; then the better one is kept."""
SETTLED = 0.1
"""Change of log phi between rounds, in standard errors, at which the rounds end."""
BY_ROW = "row"
"""`ToEstimate.by` of one value per cell that moves start from."""
ROUGH_FROM = 5
"""Problems from which the start of the search is read."""
FEWEST_SHARED = 10
"""Counts that sequences have in common from which on correlations of their residuals are looked at: chance makes .3 of ten."""
LEAST_WIDER = 1.1
"""Factor on a standard error below which it is left as it is."""


@dataclass
class Peak:
    """The maximum of a function of one variable, found by parabolas through three of its values."""

    function: Callable[[float], float]
    low: float
    high: float
    found: dict[float, float] = field(default_factory=dict)

    def __call__(self, x: float) -> float:
        x = float(np.clip(x, self.low, self.high))
        if x not in self.found:
            self.found[x] = self.function(x)
        return self.found[x]

    def search(self, start: float) -> tuple[float, float]:
        """(where, curvature −f″ there); the curvature is 0 where the function is flat or still rises at the upper end of its range.

        Where it falls from the lower end on, its maximum is where it would lie if the range went on (`_below`).
        """
        for x in (start, start - FIRST_STEP, start + FIRST_STEP):
            self(x)
        for _ in range(MOST_EVALUATIONS):
            xs, k = self._known()
            if not xs:
                break
            if xs[k] == self.high:
                return self.high, 0.0
            if xs[k] == self.low:
                return self._below()
            if len(xs) < 3:
                self(xs[k] + (2 if k else -2) * FIRST_STEP)
                continue
            top, curvature = self._next(xs, k)
            near = abs(top - xs[k]) <= NEAR / np.sqrt(max(curvature, FLAT))
            if near and 0 < k < len(xs) - 1:
                return self._measured(top, max(curvature, FLAT))
            self(top)
        return start, 0.0

    def _below(self) -> tuple[float, float]:
        """Top and curvature of a function that falls from the lower end of its range on, as of a Gaussian's evidence in log variance.

        Counts that scatter less than independent individuals would have phi below 1. The range ends there, but the standard error widens
        intervals around what they tell, not around the end.
        """
        step = FIRST_STEP
        for _ in range(2):  # the second time by steps of about a standard error
            top, curvature = self._like_a_variance(self.low, self.low + step, self.low + 2 * step)
            if not curvature > FLAT:
                return self.low, 0.0
            step = float(np.clip(curvature**-0.5, SHORTEST, FIRST_STEP))
        if top > self.low:
            return self._measured(self.low, curvature)
        return max(top, float(np.log(LEAST_PHI))), curvature

    def _known(self) -> tuple[list[float], int]:
        """The points with a finite value, in order, and the place of the best."""
        xs = sorted(x for x, value in self.found.items() if np.isfinite(value))
        return xs, max(range(len(xs)), key=lambda k: self.found[xs[k]], default=0)

    def _next(self, xs: list[float], k: int) -> tuple[float, float]:
        """Where to look next, given that the k-th of these points is the best, and the curvature there."""
        best, middle = xs[k], min(max(k, 1), len(xs) - 2)
        left, _, right = xs[middle - 1 : middle + 2]
        top, curvature = self._like_a_variance(*xs[middle - 1 : middle + 2])
        if k in {0, len(xs) - 1}:  # beyond all points, not too far
            way = 1.0 if k else -1.0
            return best + way * float(np.clip(way * (top - best), FIRST_STEP, FURTHEST)), curvature
        if (top in self.found and top != best) or not left < top < right:
            return best + 0.5 * (right - best if right - best > best - left else left - best), curvature
        return top, curvature

    def _measured(self, top: float, curvature: float) -> tuple[float, float]:
        """The same by steps of one standard error: a parabola through far points has another top and another curvature."""
        for trial in range(MOST_MEASURED):
            step = float(np.clip(1.0 / np.sqrt(max(curvature, 1e-12)), SHORTEST, LONGEST))
            middle = max(top, self.low + step)
            better, curvature = self.parabola(middle - step, middle, middle + step)
            if not 0 < curvature < np.inf:
                return top, 0.0
            far, wide = abs(better - top) > 0.5 * step, step > 2 * max(curvature**-0.5, SHORTEST)
            if far or abs(better - middle) <= step:
                top = float(np.clip(better, self.low, self.high))
            if not wide and (trial or not far):  # twice where the top moved
                break
        return top, curvature if curvature > FLAT else 0.0

    def _like_a_variance(self, a: float, b: float, c: float) -> tuple[float, float]:
        """Top and −f″ of k − u ψ − v e^−ψ through three points, a Gaussian's evidence in log variance; a parabola's where that has none."""
        points = np.array([a, b, c])
        shape = np.column_stack([np.ones(3), points - b, np.exp(b - points)])
        _, u, v = np.linalg.solve(shape, [self(x) for x in points])
        if u < 0 and v < 0:
            return float(b + np.log(v / u)), float(-u)
        return self.parabola(a, b, c)

    def parabola(self, a: float, b: float, c: float) -> tuple[float, float]:
        """Top and −f″ of the parabola through three points."""
        fa, fb, fc = self(a), self(b), self(c)
        left, right = (fb - fa) / (b - a), (fc - fb) / (c - b)
        curvature = -2.0 * (right - left) / (c - a)
        if not 0 < curvature < np.inf:  # not finite where a run failed
            return b, float(curvature)
        return float(0.5 * (a + b) + left / curvature), float(curvature)


def estimated(
    problems: Sequence[Problem],
    evidence: Callable[[Flocks | Overdispersion | None], float],
    asked: ToEstimate,
    *,
    start: float | None = None,
    parameters: float = 0.0,
    initial_learned: bool = False,
) -> DispersionEstimate:
    """The dispersion with the most evidence, common to all problems.

    Parameters
    ----------
    evidence
        log p(y) under a dispersion, of all problems together.
    asked
        Which form; its classes of steps have their own estimates by `by_class`, afterwards.
    start
        psi to start from; by the score statistic of the check of fit if None.
    parameters
        m P of the module's text: how many parameters were learned from the same counts.
    initial_learned
        Whether the initial distribution was learned from the same counts. It takes up whatever the first counts scatter, so that steps
        alone tell how much that is: flocks are then judged as overdispersion, and tried only where they are asked for. (With their root,
        birds that start in one corner and fly alone were found to fly in flocks of 1.6.)

    Raises
    ------
    ProblemError
        If the data say nothing about it.
    """
    begin = _rough(problems) if start is None else start
    alone = evidence(None)
    best: DispersionEstimate | None = None
    tried: dict[str, float] = {"independent": alone}
    for one in _forms(problems, asked.form, flocks=not initial_learned and asked.by is None):
        as_steps = initial_learned and one.form == "flocks"

        def value(psi: float, one: DispersionEstimate = one, as_steps: bool = as_steps) -> float:
            together = Overdispersion(phi=one.value_at(psi)) if as_steps else one.at(psi)
            return evidence(together) + 0.5 * parameters * psi

        peak = Peak(value, one.low, one.high, {0.0: alone})
        if start is None:  # the search goes on from the best of all points that it knows
            for x in np.arange(SCAN_STEP, one.high, SCAN_STEP):
                peak(float(x))
        found = _top(one, peak, begin, alone)
        if found is None:
            continue
        top = found.gain - 0.5 * parameters * max(found.psi, found.low)
        tried[found.dispersion.text] = top
        if best is None or top - alone > best.gain:
            best, begin = replace(found, gain=top - alone), found.psi
    if best is None:
        raise ProblemError(
            "the dispersion cannot be estimated: the counts are about as probable whatever it is (they say too little about moves); give "
            "one, such as Flocks(5) or Overdispersion(rho=0.01)"
        )
    return replace(best, tried=tried)


def by_class(
    common: DispersionEstimate,
    by: Any,
    problems: Sequence[Problem],
    evidence: Callable[[Flocks | Overdispersion | None], float],
    *,
    parameters: float = 0.0,
) -> DispersionEstimate:
    """One phi or rho per class of steps (or row), from the one that is common to all; that one where no classes are asked for (None).

    The noises of different steps are independent, so that classes hardly influence one another: each is searched with the others held,
    `CLASS_ROUNDS` times. Parameters learned from the same counts are shared out evenly. A class of which the data say nothing keeps the
    common value and its standard error.

    Raises
    ------
    ProblemError
        If a model is no chain, or two problems have the same time in different classes.
    """
    if by is None:
        return common
    if any(p.model.as_chain() is None for p in problems):
        raise ProblemError("dispersion by class of steps needs a MarkovChain: leave the classes out")
    labels, steps = _class_labels(by, [p.model for p in problems])
    classes = [replace(common, label=label, tried={}) for label in labels]
    share, alone = 0.5 * parameters / len(classes), common.tried["independent"]

    def with_class(k: int, psi: float) -> DispersionEstimate:
        held = [*classes[:k], replace(classes[k], psi=psi), *classes[k + 1 :]]
        return replace(common, classes=tuple(held), steps=steps)

    for _ in range(CLASS_ROUNDS):
        for k, one in enumerate(classes):

            def value(psi: float, k: int = k) -> float:
                return evidence(with_class(k, psi).dispersion) + share * psi

            peak = Peak(value, common.low, common.high)
            found = _top(replace(one, low=common.low), peak, one.psi, peak(0.0))
            classes[k] = one if found is None else replace(found, gain=found.gain - peak(0.0))
    made = with_class(0, classes[0].psi)
    top = evidence(made.dispersion)
    return replace(made, gain=top - alone, tried={**common.tried, f"{common.form} by class": top})


def _class_labels(by: Any, chains: Sequence[Any]) -> tuple[tuple[Any, ...], dict[Any, Any]]:
    """The classes, and that of the step that leads to every time (empty where classes are rows)."""
    if by == BY_ROW:
        found = {chain.states[v] for chain in chains for v in chain.variables[:-1]}
        if len(found) > 1:
            raise ProblemError("dispersion by row needs the same cells at the beginning of all steps")
        return tuple(found.pop()), {}
    steps: dict[Any, Any] = {}
    for chain in chains:
        for time, label in zip(chain.times[1:], step_labels(by, chain.times), strict=True):
            if steps.setdefault(time, label) != label:
                raise ProblemError(
                    f"the step to {time!r} is in the classes {steps[time]!r} and {label!r}: name the problems' times differently"
                )
    return tuple(dict.fromkeys(steps.values())), steps


def on(problem: Problem, dispersion: Dispersion | None) -> Problem:
    """The problem with those of a dispersion's steps that it has."""
    if dispersion is not None:
        dispersion = dispersion.among(problem.model.variables)
    return problem.with_dispersion(dispersion)


def problems_on(problems: Sequence[Problem], dispersion: Dispersion | None) -> tuple[Problem, ...]:
    """Several problems with one dispersion."""
    return tuple(on(p, dispersion) for p in problems)


def _settled(before: DispersionEstimate | None, now: DispersionEstimate) -> bool:
    """Whether the dispersion is what it was a round ago."""
    same = before is not None and before.form == now.form
    return same and abs(now.psi - before.psi) <= SETTLED * now.psi_error  # type: ignore[union-attr]


def in_turn(
    problems: Sequence[Problem],
    asked: ToEstimate,
    engine: Engine,
    made: Fit,
    again: Callable[[Dispersion | None, Array], Fit],
) -> tuple[Array, DispersionEstimate, list[str]]:
    """Parameters and dispersion in turn, until log phi changes by less than `SETTLED` standard errors: both, and what to note.

    ``made`` are the parameters of independent individuals, and ``again`` learns them under a dispersion, from a start.
    """
    initial_learned = any(f.find(Initial) is not None for f in made.families)
    found: DispersionEstimate | None = None
    taken, close = 0.0, False
    for turn in range(MOST_ROUNDS):
        known = [f.apply(made.working, p) for f, p in zip(made.families, problems, strict=True)]
        before, evidence = found, Evidence(known, engine)
        # Forms are compared once more at parameters learned with dispersion: those of independent individuals favour none.
        wish = asked if before is None or turn < FORM_ROUNDS else replace(asked, form=before.form)
        at = None if before is None else before.psi
        found = estimated(known, evidence, wish, start=at, parameters=taken, initial_learned=initial_learned)
        close = _settled(before, found)
        if close:
            break
        made = again(found.dispersion, made.working)
        taken = learned_share(made.information, known, found)
    assert found is not None
    found = by_class(found, asked.by, known, evidence, parameters=taken)
    return (
        made.working,
        found,
        [] if close else [f"the dispersion had not settled after {MOST_ROUNDS} rounds"],
    )


def _top(one: DispersionEstimate, peak: Peak, begin: float, alone: float) -> DispersionEstimate | None:
    """A form at its maximum, with the evidence gained there; None where there is none. phi < 1 is accepted only for a gain of `EARNED`."""
    psi, curvature = peak.search(begin)
    if psi < 0 and not peak(psi) - alone >= EARNED:
        one = replace(one, low=0.0)
        peak = Peak(peak.function, 0.0, one.high, {x: v for x, v in peak.found.items() if x >= 0})
        psi, curvature = peak.search(0.0)
    if curvature <= 0:
        return None
    return replace(one, psi=psi, psi_error=float(curvature**-0.5), gain=peak(psi))


def from_flows(
    models: Sequence[MarkovChain], tables: Sequence[CountTables], asked: ToEstimate
) -> DispersionEstimate:
    """rho where all flows were observed: every row of a step is Dirichlet–multinomial around the chain's, κ = 1/rho − 1.

    Rows are independent, so that classes of steps (or rows) have estimates of their own; one without two individuals in a cell keeps the
    common one.

    Raises
    ------
    ProblemError
        If another form is asked for: flows tell rho, and the others by their second moments alone.
    """
    if asked.form not in (None, "rho"):
        raise ProblemError(
            f'dispersion is "{asked.text}", and all flows were observed, which tell rho: give "estimate" or "estimate:rho"'
        )
    n, p = _rows_of_steps(models, tables)
    common = _rho_of(n, p)
    if common is None:
        raise ProblemError("the dispersion cannot be estimated: no two individuals were ever in one cell")
    return common if asked.by is None else _rho_by_class(common, asked.by, models, n, p)


def _rho_by_class(
    common: DispersionEstimate, by: Any, models: Sequence[MarkovChain], n: Array, p: Array
) -> DispersionEstimate:
    """One rho per class of steps (or row) of observed flows."""
    labels, steps = _class_labels(by, models)
    rows = [
        (time, k) for m in models for u, time in itertools.pairwise(m.times) for k in range(len(m.states[u]))
    ]
    own = np.array([k if by == BY_ROW else labels.index(steps[time]) for time, k in rows])
    found = [_rho_of(n[own == k], p[own == k]) or replace(common, gain=0.0) for k in range(len(labels))]
    classes = tuple(replace(one, label=label, tried={}) for one, label in zip(found, labels, strict=True))
    gain = sum(one.gain for one in classes)
    tried = {**common.tried, "rho by class": common.tried["independent"] + gain}
    return replace(common, classes=classes, steps=steps, gain=gain, tried=tried)


def _rho_of(n: Array, p: Array) -> DispersionEstimate | None:
    """rho of some rows of flows, around their probabilities; None where no two individuals were ever in one cell."""
    from scipy.optimize import minimize_scalar  # slow to import

    made = n > 0
    totals = n.sum(axis=1)
    count, at = n[made], p[made]
    scale = float(totals @ totals / max(float(totals.sum()), 1.0) - 1.0)
    if not scale > 0:
        return None
    alone = float(count @ np.log(at))

    def value(rho: float) -> float:
        return dirichlet_multinomial(1 / rho - 1, totals, count, at)

    # The function is cheap and may be far sharper than an inference's evidence: it is searched, not stepped through.
    ends = (np.log(LEAST_RHO), np.log(LARGEST_RHO))
    top = minimize_scalar(lambda x: -value(float(np.exp(x))), bounds=ends, method="bounded")
    rho, high = float(np.exp(top.x)), float(np.log1p(LARGEST_RHO * scale))
    if value(rho) <= alone or rho <= 2 * LEAST_RHO:
        rho = LEAST_RHO
    psi = float(np.log1p(rho * scale))
    step = max(SHORTEST * psi, 0.5 * SHORTEST)
    middle = max(psi, 1.5 * step)  # at the end of the range the curvature is measured just inside
    around = Peak(lambda x: value(float(np.expm1(x)) / scale), 0.0, np.inf)
    _, curvature = around.parabola(middle - step, middle, middle + step)
    error = float(curvature**-0.5) if curvature > 0 else np.nan
    found = DispersionEstimate("rho", psi, error, 0.0, high, scale, gain=max(value(rho) - alone, 0.0))
    return replace(found, tried={"independent": alone, found.dispersion.text: value(rho)})


def _rows_of_steps(models: Sequence[MarkovChain], tables: Sequence[CountTables]) -> tuple[Array, Array]:
    """The flows of all steps, one row per cell and step, and their probabilities."""
    steps = [(t, step) for m, t in zip(models, tables, strict=True) for step in itertools.pairwise(m.times)]
    flows = np.concatenate([dense(t.table(step)) for t, step in steps])
    return flows.astype(float), np.concatenate([dense(p) for m in models for p in m.transitions])


def _forms(problems: Sequence[Problem], form: str | None, *, flocks: bool) -> list[DispersionEstimate]:
    """What is tried: the form that is asked for, or all that can be, flocks among them with ``flocks``."""
    if not any(p.sites for p in problems):
        raise ProblemError(
            "the dispersion cannot be estimated: nothing was observed; give one, or leave it out"
        )
    ranges = _ranges(problems)
    if form is None:
        if "phi" in ranges:
            # Less scatter than that of independent individuals mostly means that the noise is wrong: it is found only where it is
            # asked for.
            ranges["phi"] = (0.0, *ranges["phi"][1:])
        if not flocks:
            del ranges["flocks"]
    elif form in ranges:
        ranges = {form: ranges[form]}
    else:
        raise ProblemError(
            f"the dispersion cannot be estimated: {form} is a property of steps, which the model does not have; give one, or leave it out"
        )
    return [DispersionEstimate(name, 0.0, np.nan, *ends) for name, ends in ranges.items()]


def _ranges(problems: Sequence[Problem]) -> dict[str, tuple[float, float, float]]:
    """Smallest and largest psi, and the scale, of every form that is possible: flocks on any model, overdispersion where it has steps."""
    largest = float(np.log(min(p.typical_population for p in problems)))
    ranges = {"flocks": (0.0, largest, 1.0)}
    if all(p.model.steps_are_directed and len(p.model.variables) > 1 for p in problems):
        ranges["phi"] = (float(np.log(LEAST_PHI)), largest, 1.0)
        scale = _others(problems)
        if scale > 0:
            ranges["rho"] = (0.0, float(np.log1p(LARGEST_RHO * scale)), scale)
    return ranges


def _others(problems: Sequence[Problem]) -> float:
    """How many others an individual expects in its cell at the beginning of a step: n̄ − 1 of the module's text."""
    squares = total = 0.0
    for p in problems:
        counts = np.concatenate([p.typical_population * p.model.marginal((v,)) for v in p.model.variables[:-1]])
        squares, total = squares + float(counts @ counts), total + float(counts.sum())
    return squares / total - 1.0


def _rough(problems: Sequence[Problem]) -> float:
    """psi by the score statistic, of known numbers of individuals: where the search starts."""
    found = [fit_check(p.with_dispersion(None)).dispersion for p in problems[:ROUGH_FROM] if p.size_known]
    known = [c for c in found if np.isfinite(c) and c > 0]
    return float(np.log(np.mean(known))) if known else FIRST_STEP


@dataclass
class Evidence:
    """log p(y) of some problems under a dispersion: E-steps in which nothing is learned, each from the last answer."""

    problems: Sequence[Problem]
    engine: Engine
    refine: Callable[[Posterior], float | None] | None = None
    """What to take for a run's evidence instead of the engine's own."""
    starts: list[Mapping[str, Any]] | None = None
    level: Mapping[Any, float] = field(default_factory=dict)
    """By step, log of the size, phi or rho at which `starts` were left."""

    def __call__(self, dispersion: Flocks | Overdispersion | None) -> float:
        level = _level(dispersion)
        starts = self.starts if self.starts is not None and self._near(level) else [None] * len(self.problems)
        moving = [on(p, dispersion) for p in self.problems]
        tasks = [
            EStep(Family(p.model, ()), p, self.engine, np.zeros(0), start, k)
            for k, (p, start) in enumerate(zip(moving, starts, strict=True))
        ]
        whole = self.refine is None and serves(self.engine)
        found = (tables_at_once(moving, run_here) if whole else run_here)(tasks)
        total = sum(self._value(one) for one in found)
        if np.isfinite(total):
            self.starts, self.level = [one.start for one in found], level
        return total

    def _near(self, level: Mapping[Any, float]) -> bool:
        """Whether the last answers are near enough to start from."""
        same = level.keys() == self.level.keys()
        return same and all(abs(x - self.level[step]) <= NEAR_START for step, x in level.items())

    def _value(self, found: Expected) -> float:
        """The evidence; −∞ of a run that did not converge, and where the dispersion cannot have made the data."""
        if found.failure and self.starts is None:
            raise ProblemError(f"the dispersion cannot be estimated: {found.failure}")
        value: float | None = found.evidence
        posterior = found.posterior
        if posterior is not None:
            value = posterior.log_evidence if self.refine is None else self.refine(posterior)
            if value is None or not posterior.beliefs.has_spread:
                raise ValueError(
                    f"{posterior.engine} gives no evidence by which to judge a dispersion: use TiltedEP (the default) or Laplace, or give "
                    "the dispersion, such as Flocks(5)"
                )
        return float(value) if found.status.good and value is not None and np.isfinite(value) else -np.inf


def _level(dispersion: Flocks | Overdispersion | None) -> dict[Any, float]:
    """log of the size, phi or rho, by step where steps have their own (None: at all steps)."""
    given = as_dispersion(dispersion).values
    if isinstance(given, tuple):
        given = dict(enumerate(given))
    values = given if isinstance(given, Mapping) else {None: given}
    return {step: float(np.log(value)) if value else -np.inf for step, value in values.items()}


def learned_share(
    information: Information | None, problems: Sequence[Problem], found: DispersionEstimate
) -> float:
    """m P of the module's text: how many parameters took scatter away from the counts; none where nothing is known of them."""
    if information is None:
        return 0.0
    free = sum(len(s) - s.whole for p in problems for s in p.sites)
    movement = np.sqrt(2.0 * found.psi_error**-2 / max(free, 1))
    learned = len(information.complete) - len(information.unidentified)
    return float(min(movement, 1.0) * learned)


def asks_for_estimate(problems: Sequence[Problem]) -> ToEstimate | None:
    """The one estimate that all problems ask for; None where none does.

    Raises
    ------
    ProblemError
        If only some of them do, or for different forms.
    """
    asked: set[Any] = {p.dispersion for p in problems if p.together.estimated}
    if not asked:
        return None
    if len(asked) > 1 or not all(p.together.estimated for p in problems):
        raise ProblemError(
            "some problems ask for an estimated dispersion and others do not: one is common to all of them"
        )
    found: ToEstimate = asked.pop()
    return found


def estimate_for(
    problem: Problem,
    engine: Engine | str | None,
    refine: Callable[[Posterior], float | None] | None = None,
) -> DispersionEstimate:
    """Estimate the dispersion of one problem that asks for it; ``refine`` integrates the evidence over a learned initial distribution."""
    asked = asks_for_estimate([problem])
    assert asked is not None
    run = chosen(problem, engine).engine
    if run.random or not run.takes_dispersion:
        raise ValueError(
            f"{run.name} gives no evidence to estimate a dispersion by: use TiltedEP (the default) or Laplace"
        )
    plain = problem.with_dispersion(None)
    evidence = Evidence([plain], run, refine)
    found = estimated([plain], evidence, asked, initial_learned=refine is not None)
    return by_class(found, asked.by, [plain], evidence)


def moving_together(problem: Problem, dispersion: Dispersion | str) -> Problem:
    """The problem with the dispersion that a verb was given; a chain's concentration is one already."""
    if problem.model.concentration is not None:
        raise ProblemError(
            "dispersion is given, and the chain's concentration says how moves scatter, too: give one of them"
        )
    return problem.with_dispersion(dispersion)


def with_common_causes(
    estimate: DispersionEstimate, posteriors: Sequence[Posterior]
) -> tuple[DispersionEstimate, str]:
    r"""The estimate with the error that residuals leave which sequences (years) share, and words for it; "" where they share none.

    A dispersion is read off squares of residuals. Where those of two of K sequences at the same counts have the correlation r, the
    variance of the sum of squares is :math:`1 + (K - 1) r^2` times that of independent ones. r² is the mean over pairs, less the 1/M that
    chance makes of M counts.
    """
    if len(posteriors) < 2 or len({p.fit_check.names for p in posteriors}) > 1:
        return estimate, ""
    residuals = np.array([p.fit_check.residual for p in posteriors])
    told = np.isfinite(residuals).all(axis=0)
    if told.sum() < FEWEST_SHARED:
        return estimate, ""
    count = len(posteriors)
    squares = np.corrcoef(residuals[:, told])[np.triu_indices(count, 1)] ** 2
    wider = float(np.sqrt(1.0 + (count - 1) * max(squares.mean() - 1.0 / told.sum(), 0.0)))
    if wider < LEAST_WIDER:
        return estimate, ""
    text = f"sequences share causes of their residuals: the standard error of the dispersion is {wider:.2g} times that without"
    return replace(estimate, psi_error=wider * estimate.psi_error), text
