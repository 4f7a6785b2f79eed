"""What a run will take, before it takes it: memory and time from the formulas in ``_cost``, for this machine as it is now."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headcount._linalg import threads_for
from headcount.engines._cost import memory_of, seconds_of, writing_memory
from headcount.engines._infer import chosen

if TYPE_CHECKING:
    from headcount.engines._engine import Engine
    from headcount.observe import Problem


@dataclass(frozen=True)
class Plan:
    """What a run will take.

    Attributes
    ----------
    engine, reason
        Which engine, and why it was chosen.
    memory
        Bytes at the peak of inference.
    writing
        Bytes at the peak of writing the results with flows and intervals, or the page.
    seconds
        Of inference, on this machine as it is now; NaN for an engine without a formula.
    """

    engine: str
    reason: str
    memory: int
    writing: int
    seconds: float

    @property
    def peak(self) -> int:
        """The larger of the two."""
        return max(self.memory, self.writing)


def plan(problem: Problem, engine: Engine | str | None = None, *, rate: float | None = None) -> Plan:
    """Predict memory and time of ``infer(problem, engine)``; nothing large is allocated.

    Parameters
    ----------
    engine
        What ``infer`` would pick when None.
    rate
        Floating-point operations per second; measured in a few milliseconds when None.

    Examples
    --------
    >>> from headcount import Poisson, Problem, simulate
    >>> world = simulate.birds(side=4, population=480, steps=5, rng=1)
    >>> plan(Problem(world.model, 480, [Poisson(world.observed)])).engine
    'TiltedEP'
    """
    problem = problem.core
    choice = chosen(problem, engine)
    speed = operations_per_second() if rate is None else rate
    memory = memory_of(problem, choice.engine)
    writing = memory + writing_memory(problem, choice.engine)
    return Plan(choice.engine.name, choice.reason, memory, writing, seconds_of(problem, choice.engine, speed))


def operations_per_second(size: int = 192, *, seconds: float = 0.02) -> float:
    """Rate of a matrix product on this machine as it is now, one thread."""
    matrix = np.random.default_rng(0).standard_normal((size, size))
    with threads_for(size):
        matrix @ matrix
        best, start = np.inf, time.perf_counter()
        while time.perf_counter() - start < seconds:
            begun = time.perf_counter()
            matrix @ matrix
            best = min(best, time.perf_counter() - begun)
    return 2.0 * size**3 / best
