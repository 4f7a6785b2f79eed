"""Which engine a problem gets, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from headcount.engines._engine import Engine
from headcount.engines.exact._enumerate import Enumerate
from headcount.engines.map._map import MAP
from headcount.engines.tilted._centre import sharp
from headcount.engines.tilted._closed_form import ClosedForm
from headcount.engines.tilted._tilted_ep import TiltedEP
from headcount.posterior import Outcome
from headcount.posterior._posterior import RELIABLE_VARIANCE

if TYPE_CHECKING:
    from headcount.observe import Problem

LARGEST_DENSE = 4096
"""Widest node whose covariance is formed by default; above it only the MAP stays within ordinary memory."""

SMALLEST = 200_000
"""Table entries up to which all populations are simply listed."""


@dataclass(frozen=True)
class Choice:
    """An engine and the reason for it."""

    engine: Engine
    reason: str


def select(problem: Problem) -> Choice:
    """What ``infer`` picks for this problem, and why."""
    traits = problem.traits
    widest = max(len(s) for s in problem.model.states.values())
    if widest > LARGEST_DENSE:
        return Choice(
            MAP(),
            f"a variable has {widest} states: a covariance of that width does not fit ordinary memory, so only the most "
            "probable counts are found (no uncertainty); name an engine to insist",
        )
    if not problem.sites:
        return Choice(ClosedForm(), "nothing is observed: the prior is the answer")
    if not traits.correlated and _listed(problem) <= SMALLEST:
        return Choice(
            Enumerate(), "so few individuals and configurations that every population can be listed: exact"
        )
    if traits.all_gaussian and not any(sharp(s.noise, problem.population).any() for s in problem.sites):
        if _smallest_variance(problem) >= RELIABLE_VARIANCE:
            return Choice(
                ClosedForm(), "all noise is Gaussian or exact and counts are large: closed form, one pass"
            )
        return Choice(
            TiltedEP(centre="map"),
            "noise is Gaussian or exact but some counts are small: the closed form could turn negative, so the Gaussian is "
            "made at the most probable counts",
        )
    if traits.any_exact:
        return Choice(
            TiltedEP(), "count noise beside exact margins: tilted EP around laws that have these margins"
        )
    if traits.all_gaussian:
        return Choice(
            TiltedEP(),
            "Gaussian readings sharp enough to tell whole numbers apart: tilted EP with lattice moments",
        )
    return Choice(TiltedEP(), "count noise: tilted EP with lattice moments, centred at its own mean")


def _listed(problem: Problem) -> int:
    """How many table entries an enumeration would list, at most; counted without touching the model."""
    configurations = math.prod(len(s) for s in problem.model.states.values())
    return (
        math.comb(problem.population + configurations - 1, configurations - 1) * configurations
        if configurations <= 64
        else 10**30
    )


def _smallest_variance(problem: Problem) -> float:
    low = np.inf
    for scope in {s.scope for s in problem.sites}:
        mu = problem.model.marginal(scope)
        mu = mu[(mu > 0) & (mu < 1)]
        low = min(low, float((problem.population * mu * (1 - mu)).min(initial=np.inf)))
    return low


@dataclass(frozen=True)
class Auto(Engine):
    """Run what :func:`select` picks: the default of ``infer``."""

    name: ClassVar[str] = "Auto"

    def run(self, problem: Problem, *, rng: np.random.Generator, progress: bool | None) -> Outcome:
        """See :class:`Engine`."""
        choice = select(problem)
        outcome = choice.engine.run(problem, rng=rng, progress=progress)
        outcome.info["chosen"] = choice
        return outcome
