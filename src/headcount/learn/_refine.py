"""From the zero of Fisher's gradient to the maximum of the evidence.

With an approximate engine the two differ: expected counts carry an error of order one that grows with the number of
tables, while the evidence is a single number that the engine gets nearly right. On birds (L = 16, N = 480) TiltedEP's
zero of the gradient lies 0.7 standard errors off, all weights a little too small; the maximum of its evidence does not
lean to either side. The differences that give the information J give the evidence's own slope d as well, and with it
the lean c = d − g of Fisher's gradient g, which changes slowly. So the climb goes on with

    x ← x + J⁻¹ (g(x) + c),        c ← c + 2 m J s / (s·J s)

one E-step each, where s is the step taken and m the rise of the evidence that the trapezium ½ (g₀ + g₁ + 2c)·s missed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headcount._types import Array
from headcount.learn._climb import Climb, tried
from headcount.learn._expect import Evaluation, Expectation
from headcount.learn._information import Information, observed_information

CLOSE_ENOUGH = 0.02
"""Standard errors from the maximum that are not worth a step: 2e-4 nats."""
REPEAT_BEYOND = 1.5
"""Standard errors of discrepancy beyond which the information is found again after the steps, and others considered."""
LEFT_AT_MOST = 0.1
"""Standard errors that may be left where the evidence stops rising along its slope: 0.005 nats."""
LONGEST_STEP = 2.0
"""Standard errors of one step."""
WORTH_A_ROUND = 0.005
"""Nats that a round must gain for another one to follow: those of `LEFT_AT_MOST`."""
ROUNDS = 15
"""Times that the information is found, at most: with ten individuals per cell up to 37 steps were needed."""
STEPS = 4
"""Steps per round, at most: the lean changes too much after more."""
TRIALS = 8
"""Lengths tried of the first step of a round; the later ones are tried once."""


@dataclass(frozen=True)
class Refined:
    """A step of the refinement and the count of E-steps after it."""

    climb: Climb
    e_steps: int


def refined(
    climb: Climb, information: Information, expect: Expectation, *, individuals: float
) -> tuple[list[Refined], Information]:
    """The steps taken (none where Fisher's gradient is the evidence's) and the information at the last."""
    steps: list[Refined] = []
    names = expect.families[0].names
    for _ in range(ROUNDS):
        off = information.discrepancy
        if not off > CLOSE_ENOUGH:  # NaN, without evidence, is no reason either
            break
        taken = _followed(climb, information, expect)
        steps += taken
        if not taken or (off <= REPEAT_BEYOND and taken[-1].climb.residual <= LEFT_AT_MOST):
            break
        rise = taken[-1].climb.point.value - climb.point.value
        climb = taken[-1].climb
        information = observed_information(climb.point, expect, names, individuals, guess=information.inverse)
        if rise < WORTH_A_ROUND:
            break
    return steps, information


def _followed(climb: Climb, information: Information, expect: Expectation) -> list[Refined]:
    """Steps along the slope of the evidence, until it is as good as gone or the evidence no longer rises."""
    steps: list[Refined] = []
    point, lean = climb.point, information.lean
    for _ in range(STEPS):
        new = _step(point, lean, information, expect, trials=1 if steps else TRIALS)
        if new is None:
            break
        s = new.x - point.x
        missed = new.value - point.value - float(0.5 * (point.gradient + new.gradient) @ s + lean @ s)
        pull = information.observed @ s
        lean = lean + 2 * missed * pull / float(s @ pull)
        point = new
        left = _length(new.gradient + lean, information)
        made = Climb(new, climb.pairs, float(np.abs(s).max(initial=0.0)), left)
        steps.append(Refined(made, expect.e_steps))
        if left <= CLOSE_ENOUGH:
            break
    return steps


def _length(slope: Array, information: Information) -> float:
    """√(d·J⁻¹d): the distance of the maximum in standard errors."""
    return float(np.sqrt(max(float(slope @ information.inverse @ slope), 0.0)))


def _step(
    old: Evaluation, lean: Array, information: Information, expect: Expectation, *, trials: int
) -> Evaluation | None:
    """One Newton step; None unless the evidence rises about as foreseen."""
    slope = old.gradient + lean
    way, off = information.inverse @ slope, _length(slope, information)
    length = min(1.0, LONGEST_STEP / off)
    for _ in range(trials):
        new = tried(expect, old.x + length * way, old)
        foreseen = length * (1 - 0.5 * length) * off**2
        if new is not None and new.value - old.value >= 0.25 * foreseen:
            return new
        length *= 0.5
    return None
