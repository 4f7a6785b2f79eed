"""Two ways up the evidence, and the loop that takes them.

**EM**: x ← argmax Q(x; E[n | y, x_old]). Never a step down with exact E-steps, but its rate of convergence is the share of the
complete counts' information that the data hold, which for flows seen as totals is small.

**Ascent**: L-BFGS on the evidence with Fisher's gradient ∂Q at the present E-step. The initial inverse curvature is the
M-step's, so that the first step is about EM's and the memory only has to learn what is missing.

With an exact engine (and with MAP, by the envelope theorem) Fisher's gradient is the derivative of the engine's
evidence. With an approximate one it is the engine's estimate of the true gradient, not the derivative of its
approximate evidence: near the maximum, the two disagree about where the maximum is. What is sought is a zero of the
gradient (EM's fixed point, too); the evidence keeps the search from leaving the maximum's neighbourhood. So a step is accepted
when the evidence rises enough (Armijo), or when it falls by no more than the two may disagree (`allowed_fall`) and the
gradient along the step has shrunk as it should on the way to a maximum (the approximate Wolfe rule of Hager and Zhang
2005). Where the rise of the evidence over a short step is not what its gradient at both ends says, and by more than is
left to climb, the step is marked `contrary`: from there on only the evidence's own slope can help.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from headcount._types import Array
from headcount.engines import Status
from headcount.engines.engine import Iteration, iterate
from headcount.learn._expect import Evaluation, Expectation
from headcount.learn._family import relative_error, standard_errors
from headcount.learn._files import Saved
from headcount.solve.lbfgs import inverse_times

Evaluate = Callable[[Array, Sequence[Mapping[str, Array]] | None], Evaluation]

FALL_ALLOWED = 0.05
"""Nats by which an approximate evidence may fall in any step while its gradient says that the step was right. Without it 12 fits
(chains of 5 cells and 8 times, features and free matrices) took 6 % more E-steps to the same evidence."""
LARGEST_FALL = 2.0
"""Nats by which it may fall in a step of one standard error or more: the two maxima lie up to two standard errors apart, which
costs ½·2² nats."""
SHORT_STEP = 0.5
"""Standard errors of a step over which the trapezium ½ (g₀ + g₁)·s should give the rise of the evidence."""
TRAPEZIUM_ERROR = 0.05
"""Nats per standard error by which the trapezium may be off. Over h standard errors it errs by h³/12 times the third derivative, which
is 1/√n for a Poisson rate with n counts: 0.02 h for one count at h = `SHORT_STEP`; twice as much is allowed. Between 0.02 and 0.2 none
of 12 fits changed."""
ARMIJO = 1e-4
"""Share of the rise that the slope promises which a step must gain: the usual value (Nocedal and Wright 2006)."""
STEEPEST_AHEAD, LEAST_SHRINKAGE = 0.8, 0.998
"""Approximate Wolfe rule (Hager and Zhang 2005): after a step the slope along it may be at most the first as steep downhill, and at most
the second uphill, as shares of the slope before. In a parabola that is a step of up to 1.8 times the way to its top."""
MEMORY = 20
"""Steps that L-BFGS remembers: more than there are parameters in most fits."""
LARGEST_CHANGE = 3.0
"""Largest change of a parameter in one step: odds change by at most e³ ≈ 20."""
LESS_THAN_COMPLETE = 1.0, 100.0
"""Factor by which the information that the counts hold may be less than that of complete counts, as the last step's curvature says."""
MOST_TRIALS = 15
"""Step lengths tried along one direction: 0.3¹⁵ ≈ 1e-8."""
EVIDENCE_RULES_WITHIN = 1.5
"""Standard errors from the gradient's zero within which the evidence is believed rather than its gradient."""
MOST_EXCESS = 100.0
"""Residual over tolerance above which an E-step says nothing about the evidence: with TiltedEP's 1e-5, counts off by 1e-3."""
ERROR_SHARE, FURTHEST = 0.02, 0.5
"""Share that the distance from the maximum may add to an estimate's mean squared error, where a search can find no better step; and the
most standard errors that are so, whatever the number of parameters: an eighth of a nat."""

APART = 0.1
"""Standard errors by which polished maxima must lie apart to be two."""
SAME_VALUE = 1e-4
"""Difference of probabilities, weights or rates that is none: probabilities near zero have standard errors near zero."""
RIVAL = 5.0
"""Nats within which a second maximum is reported: posterior odds of 150."""


@dataclass(frozen=True)
class Climb(Saved):
    """Where a climb stands; everything the next step needs."""

    point: Evaluation
    pairs: tuple[tuple[Array, Array], ...] = ()
    """Changes of parameters s and falls of the gradient y over the last steps."""
    step: float = np.inf
    """Largest change of a parameter in the last step."""
    residual: float = np.inf
    """Estimated distance from the maximum, in standard errors."""
    stuck: bool = False
    """Whether no step was found."""
    told: bool = False
    """Whether the residual is by a curvature that steps before this climb have told."""
    contrary: bool = False
    """Whether the evidence and its gradient disagreed about the last step by more than is left to climb."""


@dataclass(frozen=True)
class Optimum(Saved):
    """A maximum that a climb from one of several starts came near to."""

    start: str
    working: Array
    evidence: float
    """log evidence + log prior there, by the engine of the fit."""


@dataclass(frozen=True)
class ClimbState(Saved):
    """A climb with its trace: what a checkpoint holds."""

    climb: Climb
    rows: tuple[dict[str, Any], ...]
    """The trace, one row per iteration, the start first."""
    e_steps: int
    seconds: float
    start: str
    """Name of the start."""
    optima: tuple[Optimum, ...] = ()
    """Distinct maxima that the search for a start found, the best first."""
    searched: int = 0
    """MAP E-steps spent on starts other than the one chosen."""
    strengths: Mapping[str, float] = field(default_factory=dict)
    """Of priors that are learned on the way."""
    priors_settled: bool = False
    """Whether they are learned."""
    engine_at: Array | None = None
    """Parameters for which the engine was chosen; None where the user named it."""


@dataclass(frozen=True)
class Climber(Iteration):
    """A climb of one method to a tolerance."""

    name: ClassVar[str] = "fit"
    expect: Expectation
    method: Literal["ascent", "em"] = "ascent"
    max_iterations: int = 100
    tolerance: float = 1e-4
    """On the estimated distance from the maximum, in standard errors."""
    truth: Array | None = None
    save: Callable[[ClimbState], None] | None = None
    """Called after every step."""
    show: bool | None = False
    """Whether to show a progress bar; None decides by itself."""
    yielding: bool = False
    """Whether to end where the evidence and its gradient disagree about the way, for the refinement to go on from there."""

    def at(self, point: Evaluation, name: str, **known: Any) -> ClimbState:
        """The state at a start of this name; ``known`` are other fields of its `Climb`."""
        climb = Climb(point, **{"residual": em_residual(point)} | known)
        return ClimbState(climb, (self._row(climb, (), 0.0),), self.expect.e_steps, 0.0, name)

    def moved(self, state: ClimbState, climb: Climb, seconds: float) -> ClimbState:
        """The state after a step."""
        row = self._row(climb, state.rows, seconds)
        return replace(
            state, climb=climb, rows=(*state.rows, row), e_steps=self.expect.e_steps, seconds=seconds
        )

    def _row(self, climb: Climb, before: Sequence[dict[str, Any]], seconds: float) -> dict[str, Any]:
        """One row of the trace."""
        point = climb.point
        fall = before[-1]["objective"] - point.value if before else 0.0
        row = {
            "iteration": len(before),
            "e_steps": self.expect.e_steps,
            "evidence": point.evidence,
            "objective": point.value,
            "step": climb.step,
            "residual": climb.residual,
            "decrease": max(fall, 0.0) if np.isfinite(fall) else 0.0,
            "negative": point.negative,
            "seconds": seconds,
        }
        if self.truth is not None:
            row["error"] = relative_error(self.expect.families[0], point.x, self.truth)
        return row

    def __call__(self, at: ClimbState) -> tuple[ClimbState, Status]:
        """Climb on from a state; the iterations it has behind it count."""
        left = replace(self, max_iterations=max(self.max_iterations - (len(at.rows) - 1), 0))
        # The residual of a climb goes up and down: no patience is too long for the budget.
        patience, title = self.max_iterations + 1, f"fit ({self.method})"
        ended = iterate(left, at, look_first=True, patience=patience, progress=self.show, title=title)
        return ended.state, self.status(ended.state) or Status.BUDGET

    def step(self, state: ClimbState) -> ClimbState:
        """See `Iteration`."""
        began = time.perf_counter() - state.seconds
        if self.method == "ascent":
            climb = ascent_step(state.climb, self.expect, yielding=self.yielding)
        else:
            climb = em_step(state.climb, self.expect)
        made = self.moved(state, climb, time.perf_counter() - began)
        if self.save is not None:
            self.save(made)
        return made

    def residual(self, state: ClimbState) -> float:
        """See `Iteration`."""
        return state.climb.residual

    def done(self, state: ClimbState) -> bool:
        """See `Iteration`."""
        return self.status(state) is not None

    def shown(self, state: ClimbState) -> str:
        """See `Iteration`."""
        return f"evidence {state.climb.point.evidence:.6g}  step {state.climb.step:.2g}"

    def _arrived(self, state: ClimbState) -> bool:
        """Whether the distance from the maximum is within the tolerance."""
        # Before the first step the curvature is that of complete counts, and the distance a guess.
        told = len(state.rows) > 1 or state.climb.told
        return state.climb.residual <= (self.tolerance if told else 1e-3 * self.tolerance)

    def status(self, state: ClimbState) -> Status | None:
        """How the climb ended; None if it goes on."""
        climb, point = state.climb, state.climb.point
        if not np.isfinite(point.gradient).all():
            return Status.NOT_FINITE
        if self._arrived(state):
            return Status.CONVERGED if point.status.good else point.status
        if self.yielding and climb.contrary:
            return point.status
        if climb.stuck:
            good = climb.residual <= near_enough(len(point.x)) and point.status.good
            return Status.CONVERGED if good else Status.STALLED
        return None


def near_enough(count: int) -> float:
    """Standard errors from the maximum of so many parameters at which a search that can find no better step counts as converged.

    The maximum itself is √K of them from the truth (root mean square), so that r of them add r²/K to the squared error; all of it may lie
    along one direction, whose estimate is then `FURTHEST` off at most.
    """
    return float(min(np.sqrt(ERROR_SHARE * count), FURTHEST))


def em_step(climb: Climb, evaluate: Evaluate) -> Climb:
    """One M-step and the E-step after it; where that fails, at a point nearer to the old one."""
    old = climb.point
    step = old.objective.maximise(old.x) - old.x
    for _ in range(MOST_TRIALS):
        new = tried(evaluate, old.x + step, old)
        if new is not None:
            return Climb(new, (), float(np.abs(step).max(initial=0.0)), em_residual(new))
        step = 0.25 * step
    return replace(climb, stuck=True)


def em_residual(point: Evaluation) -> float:
    """√(g·I⁻¹g), I the information of complete counts: the length of the next M-step in their standard errors."""
    return _root(point.gradient, point.objective.solve(point.x, point.gradient))


def _root(gradient: Array, way: Array) -> float:
    return float(np.sqrt(max(float(gradient @ way), 0.0)))


def dense_inverse(climb: Climb) -> Array:
    """B as a matrix, shape (K, K): what the climb has learned of the inverse information."""
    columns = [two_loop(climb.point, climb.pairs, unit) for unit in np.eye(len(climb.point.x))]
    found = np.array(columns).T
    return 0.5 * (found + found.T)


def direction(point: Evaluation, pairs: Sequence[tuple[Array, Array]]) -> Array:
    """B g."""
    return two_loop(point, pairs, point.gradient)


def two_loop(point: Evaluation, pairs: Sequence[tuple[Array, Array]], v: Array) -> Array:
    """B v by the two-loop recursion, B₀ the inverse information of complete counts."""
    s, y = (np.array(part).reshape(-1, len(v)) for part in (zip(*pairs, strict=True) if pairs else ([], [])))
    complete = partial(point.objective.solve, point.x)
    return inverse_times(s, y, y @ s.T, v, complete, scales=LESS_THAN_COMPLETE)


def ascent_step(climb: Climb, evaluate: Evaluate, *, yielding: bool = False) -> Climb:
    """One step of L-BFGS; the memory is dropped when no step along its direction will do.

    `yielding`: stay, marked as contrary, where the evidence falls along the first step tried and its gradient cannot say why.
    """
    old = climb.point
    pairs, way, slope = _uphill(old, climb.pairs)
    if not slope > 0:
        return replace(climb, stuck=True)
    length = min(1.0, LARGEST_CHANGE / max(float(np.abs(way).max(initial=0.0)), 1e-300))
    for _ in range(MOST_TRIALS):
        new = tried(evaluate, old.x + length * way, old)
        if yielding and new is not None and new.value < old.value and disagreeing(old, new, np.sqrt(slope)):
            return replace(climb, step=0.0, contrary=True)
        if new is not None and acceptable(old, new, way, length, slope):
            return _arrived(climb, new, pairs)
        length *= _shorter(new, way, slope)
    return replace(climb, pairs=(), stuck=not pairs)


def _uphill(
    point: Evaluation, pairs: tuple[tuple[Array, Array], ...]
) -> tuple[tuple[tuple[Array, Array], ...], Array, float]:
    """The memory, the direction B g and the slope along it; without memory where that direction does not lead up."""
    way = direction(point, pairs)
    slope = float(point.gradient @ way)
    if pairs and not 0 < slope < np.inf:
        return _uphill(point, ())
    return pairs, way, slope


def acceptable(old: Evaluation, new: Evaluation, way: Array, length: float, slope: float) -> bool:
    """Armijo on the evidence, or the approximate Wolfe rule on its gradient within `allowed_fall`."""
    ahead = float(new.gradient @ way)
    gain = new.value - old.value
    if np.isnan(gain):  # an engine without evidence: the gradient alone decides
        return ahead >= -STEEPEST_AHEAD * slope
    if gain >= ARMIJO * length * slope:
        return True
    shrunk = -STEEPEST_AHEAD * slope <= ahead <= LEAST_SHRINKAGE * slope
    return shrunk and gain >= -allowed_fall(length * np.sqrt(slope))


def allowed_fall(distance: float) -> float:
    """By how many nats the evidence may fall in a step of this many standard errors."""
    return max(FALL_ALLOWED, LARGEST_FALL * min(distance, 1.0))


def _shorter(new: Evaluation | None, way: Array, slope: float) -> float:
    """How much to shorten a refused step: to where the gradient along it would vanish, within reason."""
    if new is None:
        return 0.25
    ahead = float(new.gradient @ way)
    if not np.isfinite(ahead) or ahead >= slope:
        return 0.3
    return min(max(slope / (slope - ahead), 0.1), 0.5)


def tried(evaluate: Evaluate, x: Array, old: Evaluation) -> Evaluation | None:
    """The evaluation at x; None where the model cannot have made the data, or the E-step failed or stalled far from its answer."""
    new = evaluate(x, old.starts)
    return new if usable(new, old) else None


def usable(new: Evaluation, old: Evaluation) -> bool:
    """Whether an E-step says anything: it has an answer, and that is not much further from convergence than the last."""
    return bool(np.isfinite(new.gradient).all()) and new.excess <= max(MOST_EXCESS, 10 * old.excess)


def _arrived(climb: Climb, new: Evaluation, pairs: tuple[tuple[Array, Array], ...]) -> Climb:
    s, y = new.x - climb.point.x, climb.point.gradient - new.gradient
    curved = float(s @ y) > 1e-10 * float(np.sqrt((s @ s) * (y @ y)))
    kept = (*pairs[-(MEMORY - 1) :], (s, y)) if curved else pairs
    way = direction(new, kept)
    residual = _root(new.gradient, way)
    contrary = curved and disagreeing(climb.point, new, residual)
    return Climb(new, kept, float(np.abs(s).max(initial=0.0)), residual, contrary=contrary)


def disagreeing(old: Evaluation, new: Evaluation, residual: float) -> bool:
    """Whether a rise of the evidence, or its fall, says that its top is further from the gradient's than we are."""
    s = new.x - old.x
    length = float(np.sqrt(max(float(s @ (old.gradient - new.gradient)), 0.0)))
    gain = new.value - old.value
    foreseen = 0.5 * float((old.gradient + new.gradient) @ s)
    fell = foreseen > 0 > gain + 1e-9 * (1 + abs(new.value))
    off = length <= SHORT_STEP and abs(gain - foreseen) > max(TRAPEZIUM_ERROR, residual) * length
    return residual <= EVIDENCE_RULES_WITHIN and (fell or off)


def same_maximum(a: Climb, b: Climb) -> bool:
    """Whether two polished climbs ended within `APART` standard errors of each other, in probabilities, weights and rates."""
    family = a.point.objective.families[0]
    here, there = family.natural(a.point.x), family.natural(b.point.x)
    errors = standard_errors(here, dense_inverse(a)) + standard_errors(there, dense_inverse(b))
    return bool((np.abs(here.values - there.values) <= APART * errors + SAME_VALUE).all())
