"""From the zero of Fisher's gradient to the maximum of the evidence.

With an approximate engine the two differ: expected counts carry an error of order one that grows with the number of
tables, while the evidence is a single number that the engine gets nearly right. On birds (L = 16, N = 480) TiltedEP's
zero of the gradient lies 0.7 standard errors off, all weights a little too small; the maximum of its evidence does not
lean to either side. The differences that give the information give the evidence's own slope d as well, so that one
Newton step x + J⁻¹ d costs one more E-step.
"""

from __future__ import annotations

import numpy as np

from headcount.learn._climb import Climb, tried
from headcount.learn._expect import Expectation
from headcount.learn._information import Information, observed_information

NEAR = 0.02
"""Standard errors between the two that are not worth a step."""
FAR = 1.0
"""Standard errors beyond which the information is found again after the step, and another step considered."""
ROUNDS = 3


def refined(
    climb: Climb, information: Information, expect: Expectation, *, individuals: float
) -> tuple[list[Climb], Information]:
    """The steps taken (none where Fisher's gradient is the evidence's) and the information at the last."""
    steps: list[Climb] = []
    names = expect.families[0].names
    for _ in range(ROUNDS):
        off = information.discrepancy
        if not off > NEAR:  # NaN, without evidence, is no reason either
            break
        new = _step(climb, information, expect)
        if new is None:
            break
        climb = new
        steps.append(climb)
        if off <= FAR:
            break
        information = observed_information(climb.point, expect, names, individuals)
    return steps, information


def _step(climb: Climb, information: Information, expect: Expectation) -> Climb | None:
    """One Newton step, no longer than two standard errors; None unless the evidence rises about as foreseen."""
    old = climb.point
    off = information.discrepancy
    length = min(1.0, 2.0 / off)
    for _ in range(4):
        new = tried(expect, old.x + length * information.shift, old)
        foreseen = length * (1 - 0.5 * length) * off**2
        if new is not None and new.value - old.value >= 0.25 * foreseen:
            # What the parabola did not foresee is how far the maximum may still be.
            missed = abs(new.value - old.value - foreseen)
            step = float(np.abs(new.x - old.x).max(initial=0.0))
            return Climb(new, climb.pairs, step, float(np.sqrt(2 * missed)))
        length *= 0.5
    return None
