"""The way of a climb from its start to the maximum of the evidence, with what the data say of the parameters there.

Priors that are learned come first, in turn with a few steps of the climb. The climb ends at a zero of Fisher's gradient. With an
approximate engine that is not the maximum of the evidence: expected counts carry an error of order one that grows with the number of
tables, while the evidence is a single number that the engine gets nearly right. On birds (L = 16, N = 480) TiltedEP's
zero of the gradient lies 0.7 standard errors off, all weights a little too small; the maximum of its evidence does not
lean to either side. The differences that give the information J give the evidence's own slope d as well, and with it
the lean c = d − g of Fisher's gradient g, which changes slowly. So the climb goes on with

    x ← x + J⁻¹ (g(x) + c),        c ← c + 2 m J s / (s·J s)

one E-step each, where s is the step taken and m the rise of the evidence that the trapezium ½ (g₀ + g₁ + 2c)·s missed.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from headcount._types import Array
from headcount.engines import Status
from headcount.learn._climb import Climb, Climber, ClimbState, dense_inverse, em_residual, tried
from headcount.learn._expect import Evaluation, Expectation
from headcount.learn._information import Information, observed_information
from headcount.learn._objective import PRIOR_ROUNDS, settled

STEPS_PER_ROUND = 5
"""Steps of a climb between two rounds of learning priors: by then the expected counts have followed most of the prior's change."""
CLOSE_ENOUGH = 0.02
"""Standard errors from the maximum that are not worth a step: 2e-4 nats."""
REPEAT_BEYOND = 1.5
"""Standard errors of discrepancy beyond which the information is found again after the steps, and others considered."""
LEFT_AT_MOST = 0.1
"""Standard errors that may be left where the evidence stops rising along its slope: 0.005 nats."""
LONGEST_STEP = 2.0
"""Standard errors of the first step."""
AS_FORESEEN = 0.75
"""Share of the foreseen rise of the evidence above which the next step may be twice as long: the lean then changes slowly. It grows
with the number of counts: on a map of 2 500 cells and 52 times the maximum lies some 20 standard errors from the zero of the gradient."""
WORTH_A_ROUND = 0.005
"""Nats that a round must gain for another one to follow: those of `LEFT_AT_MOST`."""
ROUNDS = 15
"""Times that the information is found, at most: with ten individuals per cell up to 37 steps were needed."""
STEPS = 4
"""Steps per round, at most: the lean changes too much after more."""
TRIALS = 8
"""Lengths tried of the first step of a round; the later ones are tried once."""


def with_priors(at: ClimbState, climber: Climber) -> ClimbState:
    """Learn priors from the expected counts, and climb a few steps, until the priors' strengths stay as they are."""
    for _ in range(PRIOR_ROUNDS):
        found = None if at.priors_settled else climber.expect.learn_priors(at.climb.point)
        if found is None:
            break
        point, now = found
        at = replace(
            at,
            climb=Climb(point, residual=em_residual(point)),
            rows=(*at.rows[:-1], {**at.rows[-1], "objective": point.value}),
            strengths=now,
            priors_settled=settled(at.strengths, now),
        )
        budget = min(climber.max_iterations, len(at.rows) - 1 + STEPS_PER_ROUND)
        at, _ = replace(climber, max_iterations=budget)(at)
    return at


def searched(
    begun: ClimbState, climber: Climber, *, errors: bool, refine: bool
) -> tuple[ClimbState, Status, Information | None]:
    """Climb to a zero of the gradient, then, where they differ, to the maximum of the evidence.

    ``errors``: whether to find the information; ``refine``: whether the zero of the gradient is not enough, which takes the former.
    A maximum at which probabilities ran to zero says so.
    """
    if not errors:
        return *climber(begun), None
    ended, status, information = _informed_climb(begun, climber, refine=refine)
    return ended, Status.EDGE if status.good and information.edge else status, information


def _informed_climb(
    begun: ClimbState, climber: Climber, *, refine: bool
) -> tuple[ClimbState, Status, Information]:
    ended, status = replace(climber, yielding=refine)(begun)
    last, information = _informed(ended, climber, refine=refine and status.good)
    if status.good and refine and information.saddle and information.discrepancy > LEFT_AT_MOST:
        return last, Status.STALLED, information  # the evidence still rises, and curves upwards
    if not (status.good and ended.climb.contrary and last.climb.residual > LEFT_AT_MOST):
        return last, status, information
    if len(last.rows) > len(ended.rows):
        return last, Status.STALLED, information
    # No way up by the evidence's slope either: on to the zero of the gradient.
    ended, status = climber(ended)
    last, information = _informed(ended, climber, refine=False)
    return last, status, information


def _informed(ended: ClimbState, climber: Climber, *, refine: bool) -> tuple[ClimbState, Information]:
    """The observed information, and the last steps it makes possible."""
    expect, climb = climber.expect, ended.climb
    began = time.perf_counter() - ended.seconds
    guess = dense_inverse(climb) if climb.pairs else None
    found = observed_information(climb.point, expect, guess=guess)
    if refine:
        last, found = _refined(ended, found, climber)
        if last is ended and climb.contrary:
            last = replace(ended, climb=replace(climb, residual=found.discrepancy))
        ended = last
    return replace(ended, e_steps=expect.e_steps, seconds=time.perf_counter() - began), found


def _refined(at: ClimbState, information: Information, climber: Climber) -> tuple[ClimbState, Information]:
    """On to the maximum of the evidence (no step where Fisher's gradient is its derivative), and the information at the last step."""
    # Slopes of an evidence with Monte-Carlo error are not known to CLOSE_ENOUGH.
    close = LEFT_AT_MOST if at.climb.point.drawn else CLOSE_ENOUGH
    longest = LONGEST_STEP
    for _ in range(ROUNDS):
        off = information.discrepancy
        if not off > close:  # NaN, without evidence, is no reason either
            break
        before = at
        at, longest = _followed(at, information, climber, close, longest)
        if at is before or (off <= REPEAT_BEYOND and at.climb.residual <= LEFT_AT_MOST):
            break
        point = at.climb.point
        information = observed_information(point, climber.expect, guess=information.inverse)
        if point.value - before.climb.point.value < WORTH_A_ROUND:
            break
    return at, information


def _followed(
    at: ClimbState, information: Information, climber: Climber, close: float, longest: float
) -> tuple[ClimbState, float]:
    """Steps along the slope of the evidence, until it is below ``close`` or the evidence no longer rises; and how long the next may be."""
    began = time.perf_counter() - at.seconds
    lean = information.lean
    for k in range(STEPS):
        old = at.climb.point
        new, longest = _step(old, lean, information, climber.expect, longest, trials=1 if k else TRIALS)
        if new is None:
            break
        s = new.x - old.x
        missed = new.value - old.value - float(0.5 * (old.gradient + new.gradient) @ s + lean @ s)
        pull = information.observed @ s
        lean = lean + 2 * missed * pull / float(s @ pull)
        left = _length(new.gradient + lean, information)
        climb = Climb(new, at.climb.pairs, float(np.abs(s).max(initial=0.0)), left)
        at = at.moved(climb, climber.expect, climber.truth, time.perf_counter() - began)
        if left <= close:
            break
    return at, longest


def _length(slope: Array, information: Information) -> float:
    """√(d·J⁻¹d): the distance of the maximum in standard errors."""
    return float(np.sqrt(max(float(slope @ information.inverse @ slope), 0.0)))


def _step(
    old: Evaluation,
    lean: Array,
    information: Information,
    expect: Expectation,
    longest: float,
    *,
    trials: int,
) -> tuple[Evaluation | None, float]:
    """One Newton step, at most so many standard errors long; None unless the evidence rises about as foreseen. And the next one's most."""
    slope = old.gradient + lean
    way, off = information.inverse @ slope, _length(slope, information)
    length = min(1.0, longest / off)
    for _ in range(trials):
        new = tried(expect, old.x + length * way, old)
        foreseen = length * (1 - 0.5 * length) * off**2
        if new is not None and new.value - old.value >= 0.25 * foreseen:
            right = new.value - old.value >= AS_FORESEEN * foreseen
            return new, longest * (2.0 if right else 1.0)
        length *= 0.5
    return None, max(LONGEST_STEP, length * off)
