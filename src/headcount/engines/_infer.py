"""`infer` for problems whose model is known: choose an engine, predict memory and time, run it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headcount import _device, memory
from headcount._linalg import threads_for
from headcount.checks import generator
from headcount.engines._auto import SAMPLING_SEED, Auto, Choice, select
from headcount.engines._cost import (
    BYTES,
    FIT_ONCE,
    FIT_RUNS,
    FIT_RUNS_EACH,
    INITIAL_RUNS,
    SIZE_RUNS,
    sizes,
    writing_memory,
    writing_seconds,
)
from headcount.engines._edge_ep import EdgeEP
from headcount.engines._map import MAP
from headcount.engines._reduce import answer
from headcount.engines._table_bp import TableBP
from headcount.engines.engine import Engine
from headcount.engines.exact import Enumerate
from headcount.engines.sampling._path_gibbs import PathGibbs
from headcount.engines.tilted._gaussian import ClosedForm
from headcount.engines.tilted._laplace import Laplace
from headcount.engines.tilted._tilted_ep import TiltedEP
from headcount.errors import shown
from headcount.posterior import NotConvergedError, Posterior

if TYPE_CHECKING:
    from headcount.observe import Problem

ENGINES: dict[str, type[Engine]] = {
    engine.name: engine
    for engine in (
        Auto,
        TiltedEP,
        MAP,
        PathGibbs,
        Enumerate,
        TableBP,
        ClosedForm,
        Laplace,
        EdgeEP,
    )
}
"""Every engine by its name."""


def as_engine(engine: Engine | str | None) -> Engine:
    """The engine itself, the engine of a name with its default settings, or :class:`Auto` for None.

    Raises
    ------
    ValueError
        For a name that no engine has, and for anything that is not an engine.
    """
    if engine is None:
        return Auto()
    if isinstance(engine, Engine):
        return engine
    if isinstance(engine, str) and engine in ENGINES:
        return ENGINES[engine]()
    raise ValueError(
        f"engine is {engine!r}: give None (chosen from the problem), one of the names {', '.join(ENGINES)}, or an engine such as "
        "TiltedEP(tolerance=1e-6)"
    )


def chosen(problem: Problem, engine: Engine | str | None = None) -> Choice:
    """The engine that will run, and why: what :func:`select` picks for None and ``Auto()``, else the one that was named."""
    given = as_engine(engine)
    return select(problem) if isinstance(given, Auto) else Choice(given, "named by the caller")


def infer(
    problem: Problem,
    engine: Engine | str | None = None,
    *,
    rng: np.random.Generator | int | None = None,
    strict: bool = True,
    progress: bool | None = None,
) -> Posterior:
    """Infer the hidden counts and flows of a problem whose model is known; `headcount.infer` also takes an unknown initial law.

    Parameters
    ----------
    problem, engine, rng, strict, progress
        As for `headcount.infer`.

    Returns
    -------
    Posterior
        Labelled means, spreads and draws, with the status of the run.
    """
    choice = chosen(problem, engine)
    run = choice.engine
    if run.random and rng is None and isinstance(as_engine(engine), Auto):
        rng = SAMPLING_SEED
    _require_answerable(problem, run, rng)
    outcome = answer(run, problem, rng=generator(0 if rng is None else rng), progress=progress)
    outcome.info["chosen"] = choice
    if isinstance(rng, (int, np.integer)):
        outcome.info["seed"] = int(rng)
    posterior = Posterior(problem, run, outcome)
    if strict and not outcome.status.good:
        error = NotConvergedError(
            run.name,
            outcome.status,
            outcome.residual,
            outcome.tolerance,
            outcome.iterations,
            cause=_sizes_not_told(problem),
        )
        error.posterior = posterior
        raise error
    return posterior


def _sizes_not_told(problem: Problem) -> str:
    """That counts of the sum cannot tell how many there are of each of several groups, in words; nothing elsewhere."""
    vague = [name for name, (_, law) in problem.kinds.items() if law.vague]
    if len(vague) < 2:
        return ""
    return (
        f"Nothing is said of the sizes of the groups {shown(vague)}, and counts of their sum hardly tell how many there are of each: the "
        "answer may have two ends, nearly all of one or of the other. Say something of all but one of these sizes (About, Between)"
    )


def _require_answerable(problem: Problem, run: Engine, rng: object) -> None:
    """Refuse what the engine cannot answer: an unknown initial law, chance without a seed, a dispersion, more memory than there is."""
    if not problem.model.initial_known:
        raise ValueError(
            "the model's initial distribution is unknown, and an engine needs one: headcount.infer(problem) learns it and includes "
            "its uncertainty; or give one, MarkovChain(initial, ...)"
        )
    if run.random and rng is None:
        message = f"{run.name} is random: give rng (a seed or a numpy Generator), so that the answer can be got again"
        raise ValueError(message)
    memory.require(
        run.memory(problem.core),
        run.name,
        remedy="merge cells, take fewer times or use MAP (no uncertainty)",
    )
    device = _device.find_device(getattr(run, "device", "cpu"))
    if device is not None:
        _device.require(device, run.device_memory(problem.core), run.name)


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
        Of inference, on this machine's CPU as it is now (also where a device is asked for), the initial law learned where it is unknown;
        NaN for an engine without a formula.
    device_memory
        Bytes of the device's memory; 0 on the CPU.
    writing_seconds
        To check the fit and to write the results with all flows.
    """

    engine: str
    reason: str
    memory: int
    writing: int
    seconds: float
    device_memory: int = 0
    writing_seconds: float = 0.0

    @property
    def peak(self) -> int:
        """The larger of the two."""
        return max(self.memory, self.writing)


def plan(
    problem: Problem,
    engine: Engine | str | None = None,
    *,
    rate: float | None = None,
    parameters: int = 0,
) -> Plan:
    """Predict memory and time of ``infer(problem, engine)``, or of a fit; nothing large is allocated.

    Parameters
    ----------
    engine
        What ``infer`` would pick when None.
    rate
        Floating-point operations per second; measured in a few milliseconds when None.
    parameters
        Of a fit, the number of weights that it learns: `Plan.seconds` are then those of learning, and of the posterior with their
        uncertainty. 0 plans an inference.

    Examples
    --------
    >>> from headcount import Poisson, Problem, simulate
    >>> world = simulate.birds(side=4, population=480, steps=5, rng=1)
    >>> plan(Problem(world.model, 480, [Poisson(world.observed)])).engine
    'TiltedEP'
    """
    known, size_known = problem.model.initial_known, problem.size_known
    problem = problem.core
    choice = chosen(problem, engine)
    speed = operations_per_second() if rate is None else rate
    run = choice.engine
    memory = run.memory(problem)
    writing = memory + writing_memory(problem, point=run.point, copies=run.draw_copies)
    seconds = run.seconds(problem, speed)
    if parameters:
        runs = (FIT_RUNS + FIT_RUNS_EACH * parameters) * (1 if size_known else SIZE_RUNS)
        seconds = FIT_ONCE + runs * seconds
        more = BYTES * min(parameters * sizes(problem).tables, MOST_RESPONSES)
        memory, writing = memory + more, writing + more
    elif not known:
        seconds *= INITIAL_RUNS
    after = writing_seconds(problem, point=run.point, initial_known=known)
    return Plan(run.name, choice.reason, memory, writing, seconds, run.device_memory(problem), after)


MOST_RESPONSES = 20_000_000
"""Numbers kept of the response of all tables to the parameters of a fit, at most (``learn/_uncertainty.py``)."""


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
