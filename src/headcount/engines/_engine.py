"""What an engine is, and the one loop that drives every iterative engine."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from headcount.engines._progress import Progress
from headcount.engines._settings import Rule, check_settings
from headcount.posterior import Outcome, Status

if TYPE_CHECKING:
    from headcount.observe import Problem
    from headcount.posterior import Beliefs


class Engine(ABC):
    """Settings of one way to infer. Engines hold no data and no results.

    An engine is a frozen dataclass; what its settings may be is in ``rules`` and checked when it is made.
    """

    name: ClassVar[str]
    random: ClassVar[bool] = False
    rules: ClassVar[Mapping[str, Rule]] = {}
    """One rule per setting; settings without a rule are not checked."""

    def __post_init__(self) -> None:
        check_settings(self, self.rules)

    @abstractmethod
    def run(self, problem: Problem, *, rng: np.random.Generator, progress: bool | None) -> Outcome:
        """Infer; never raises for want of convergence, but says so in the outcome."""


class DirectEngine(Engine):
    """An engine without iterations."""

    @abstractmethod
    def solve(self, problem: Problem, rng: np.random.Generator) -> Beliefs:
        """The answer."""

    def run(self, problem: Problem, *, rng: np.random.Generator, progress: bool | None) -> Outcome:
        """See :class:`Engine`."""
        del progress
        start = time.perf_counter()
        beliefs = self.solve(problem, rng)
        return Outcome(beliefs, Status.EXACT, seconds=time.perf_counter() - start)


class IterativeEngine(Engine):
    """An engine as four functions; the loop is :func:`drive`.

    ``step`` returns a new state. ``residual`` is what must fall below :attr:`tolerance`; a sampler, whose length is fixed
    beforehand, says when it is done by ``done`` instead.
    """

    max_iterations: int
    tolerance: float
    patience: ClassVar[int] = 60
    """Iterations without a new best residual before a run counts as stalled."""

    @abstractmethod
    def init(self, problem: Problem, rng: np.random.Generator) -> Any:
        """The first state."""

    def resume(self, problem: Problem, rng: np.random.Generator, start: Mapping[str, Any]) -> Any:
        """The first state, near the answer to a similar problem that left ``start`` as its diagnostics; afresh by default."""
        del start
        return self.init(problem, rng)

    @abstractmethod
    def step(self, state: Any) -> Any:
        """The next state."""

    @abstractmethod
    def residual(self, state: Any) -> float:
        """Distance from the answer, relative; ``inf`` before the first step."""

    @abstractmethod
    def finish(self, state: Any) -> Beliefs:
        """The answer a state stands for."""

    def done(self, state: Any) -> bool:
        """Whether to stop."""
        return self.residual(state) <= self.tolerance

    def report(self, state: Any) -> dict[str, float]:
        """Further numbers for the trace."""
        del state
        return {}

    def good_status(self) -> Status:
        """The status of a run that is done."""
        return Status.CONVERGED

    def run(self, problem: Problem, *, rng: np.random.Generator, progress: bool | None) -> Outcome:
        """See :class:`Engine`."""
        return drive(self, problem, rng=rng, progress=progress)


def drive(
    engine: IterativeEngine,
    problem: Problem,
    *,
    rng: np.random.Generator,
    progress: bool | None,
    start: Mapping[str, Any] | None = None,
) -> Outcome:
    """Iterate ``engine`` to its tolerance: budget, finite checks, trace, progress and status live here and only here.

    ``start``, the diagnostics of a run on a similar problem (the same data under another model), saves sweeps.
    """
    began = time.perf_counter()
    state = engine.init(problem, rng) if start is None else engine.resume(problem, rng, start)
    trace: list[dict[str, float]] = []
    best, since_best = math.inf, 0
    status = Status.BUDGET
    iterations = 0
    with Progress(engine.name, engine.max_iterations, show=progress) as bar:
        for iterations in range(1, engine.max_iterations + 1):
            state = engine.step(state)
            residual = engine.residual(state)
            seconds = time.perf_counter() - began
            trace.append(
                {"iteration": iterations, "residual": residual, "seconds": seconds, **engine.report(state)}
            )
            bar.advance(residual)
            if engine.done(state):
                status = engine.good_status()
                break
            if math.isnan(residual):
                status = Status.NOT_FINITE
                break
            if residual < 0.999 * best:
                best, since_best = residual, 0
            else:
                since_best += 1
            if since_best >= engine.patience:
                status = Status.STALLED
                break
    beliefs = engine.finish(state)
    residual = trace[-1]["residual"] if trace else 0.0
    return Outcome(
        beliefs, status, iterations, residual, engine.tolerance, time.perf_counter() - began, tuple(trace)
    )
