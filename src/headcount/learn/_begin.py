"""Where a climb begins: at the user's start, at the best of those there are, or near the top by cheaper E-steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from headcount.engines import MAP, TiltedEP
from headcount.learn._climb import Climb, ascent_step, em_residual, tried
from headcount.learn._component import Array
from headcount.learn._expect import Evaluation, Expectation
from headcount.learn._family import Family
from headcount.learn._starts import candidates
from headcount.observe import ProblemError

NEAR = 1.0
"""Standard errors from MAP's maximum at which the engine asked for takes over: its own lies about that far away."""
MOST = 60
"""Steps that MAP may take to get there."""


def begin(expect: Expectation, start: Any, *, climbing: bool) -> tuple[Climb, str]:
    """The first evaluation, and which start it was."""
    if start is None and climbing and all(isinstance(e, TiltedEP) for e in expect.engines):
        near = _by_map(expect)
        if near is not None:
            return near
    name, point = _best(expect, _starts(expect, start))
    return Climb(point, step=0.0, residual=em_residual(point)), name


def _starts(expect: Expectation, start: Any) -> dict[str, Array]:
    """The starts to try, by name."""
    found = candidates(expect.families, expect.problems)
    if start is None:
        return found
    if not isinstance(start, str):
        return {"given": working_start(expect.families[0], start)}
    if start not in found:
        raise ValueError(f"start is {start!r}: this parametrisation knows {', '.join(found)}")
    return {start: found[start]}


def _best(expect: Expectation, tried: Mapping[str, Array]) -> tuple[str, Evaluation]:
    """The start with the most evidence; what was wrong with all of them if none can be evaluated."""
    best: tuple[str, Evaluation] | None = None
    failures: list[str] = []
    for name, x in tried.items():
        try:
            point = expect(x, None)
        except ValueError as error:
            failures.append(f"start {name!r}: {error}")
            continue
        if best is None or not (best[1].value >= point.value):
            best = (name, point)
    if best is None:
        raise ProblemError(failures)
    return best


def _by_map(expect: Expectation) -> tuple[Climb, str] | None:
    """Near the top by MAP's E-steps, with what they told of the curvature; None if the engine cannot go on there."""
    cheap = replace(expect, engines=[MAP()] * len(expect.engines))
    name, point = _best(cheap, _starts(cheap, None))
    climb = Climb(point, residual=em_residual(point))
    for _ in range(MOST):
        climb = ascent_step(climb, cheap)
        if climb.residual <= NEAR or climb.stuck:
            break
    expect.e_steps = cheap.e_steps
    near = tried(expect, climb.point.x, climb.point)
    if near is None:
        return None
    return Climb(near, climb.pairs, 0.0, em_residual(near)), f"{name}, then MAP"


def working_start(family: Family, start: Any) -> Array:
    """A user's start as a vector of working parameters."""
    if isinstance(start, Mapping):
        x = family.start()
        unknown = [n for n in start if n not in family.names]
        if unknown:
            raise ValueError(f"start names {unknown}: the parameters are {', '.join(family.names)}")
        for name, value in start.items():
            x[family.names.index(name)] = float(value)
        return x
    x = np.asarray(start, dtype=float).ravel()
    if x.shape != (len(family.names),) or not np.isfinite(x).all():
        raise ValueError(
            f"start is {start!r}: give {len(family.names)} finite numbers, {', '.join(family.names)}"
        )
    return x.copy()
