"""Run an engine on a problem whose model is known, and predict what that takes."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from headcount import _device, memory
from headcount._linalg import threads_for
from headcount.checks import generator
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
from headcount.engines._reduce import answer
from headcount.engines.choice import SAMPLING_SEED, Auto, Choice, as_engine, chosen, select
from headcount.engines.exact import Enumerate
from headcount.engines.tilted._tilted_ep import TiltedEP
from headcount.errors import ProblemError, TooLongError, shown
from headcount.posterior import NotConvergedError, Posterior
from headcount.tables import dense

if TYPE_CHECKING:
    from headcount.engines.engine import Engine
    from headcount.observe import Problem
    from headcount.posterior import Beliefs, Outcome


def run(
    problem: Problem,
    engine: Engine | str | None = None,
    *,
    rng: np.random.Generator | int | None = None,
    strict: bool = True,
    progress: bool | None = None,
) -> Posterior:
    """Run an engine on a problem whose model is known; `headcount.infer` also takes an unknown initial law and looks for a dispersion.

    Parameters
    ----------
    problem, engine, rng, strict, progress
        As for `headcount.infer`.

    Returns
    -------
    Posterior
        Labelled means, spreads and draws, with the status of the run.
    """
    choice, outcome = _chosen_outcome(problem, engine, rng, progress)
    picked = choice.engine
    posterior = Posterior(problem, picked, outcome)
    if strict and not outcome.status.good:
        error = NotConvergedError(
            picked.name,
            outcome.status,
            outcome.residual,
            outcome.tolerance,
            outcome.iterations,
            cause=_sizes_not_told(problem),
        )
        error.posterior = posterior
        raise error
    return posterior


def _chosen_outcome(
    problem: Problem,
    engine: Engine | str | None,
    rng: np.random.Generator | int | None,
    progress: bool | None,
) -> tuple[Choice, Outcome]:
    """The engine that answered, and its outcome: of those that `select` picks, the next one where the first cannot."""
    choice, automatic = chosen(problem, engine), isinstance(as_engine(engine), Auto)
    try:
        outcome = _answered(problem, choice, automatic, rng, progress)
    except TooLongError:
        if not automatic:
            raise
        choice = select(problem, summing=False)
        outcome = _answered(problem, choice, automatic, rng, progress)
    if not automatic:
        return choice, _held_against_sums(problem, choice, outcome)
    if problem.core.numbers is not None and choice.engine.random and not outcome.status.good:
        choice = select(problem, sampling=False)
        choice = replace(choice, reason=f"{choice.reason}; paths were sampled first, and did not mix")
        outcome = _answered(problem, choice, automatic, rng, progress)
    return choice, outcome


def _answered(
    problem: Problem,
    choice: Choice,
    automatic: bool,
    rng: np.random.Generator | int | None,
    progress: bool | None,
) -> Outcome:
    """The outcome of the chosen engine, with the choice and the seed in its `info`."""
    picked = choice.engine
    if picked.random and rng is None and automatic:
        rng = SAMPLING_SEED
    _require_answerable(problem, picked, rng)
    outcome = answer(picked, problem, rng=generator(0 if rng is None else rng), progress=progress)
    outcome.info["chosen"] = choice
    if isinstance(rng, (int, np.integer)):
        outcome.info["seed"] = int(rng)
    return outcome


OFF, OFF_SD, OFF_NATS = 0.2, 0.1, 0.5
"""Error of a mean in standard deviations, of these as a share, and of the evidence in nats above which tilted EP is said to be wrong;"""
LEAST_SD, LEAST_SPREAD = 0.1, 0.3
"""of standard deviations of so many individuals at least, in the first and in the second."""


def _held_against_sums(problem: Problem, named: Choice, outcome: Outcome) -> Outcome:
    """What a named `TiltedEP` found, with how far it is from the exact sum over counts where that is quick.

    That is asked beside exact counts and sharp readings: no Gaussian tells few whole numbers apart, and nothing that tilted EP knows tells
    where it does not. What it says of itself beforehand (`few_tables`) is replaced.
    """
    beliefs = outcome.beliefs
    if not (isinstance(named.engine, TiltedEP) and outcome.status.good):
        return outcome
    sharp = any(site.noise.exact for site in problem.core.sites) or "sharp_readings" in beliefs.diagnostics
    choice = select(problem) if sharp else None
    if choice is None or not isinstance(choice.engine, Enumerate):
        return outcome
    try:
        exact = answer(choice.engine, problem, rng=generator(0), progress=False).beliefs
    except (TooLongError, ProblemError):
        return outcome
    mean, spread, nats = _distances(problem, beliefs, exact)
    said = {key: words for key, words in beliefs.diagnostics.items() if key != "sharp_readings"}
    if mean > OFF or spread > OFF_SD or nats > OFF_NATS:
        said["sharp_readings"] = (
            f"held against the exact sum over counts, which is quick here, the evidence is off by {nats:.2g} nats, means by up to "
            f"{mean:.2g} standard deviations, these by up to {spread:.0%}: Enumerate, which infer picks, takes whole numbers as they are"
        )
    return replace(outcome, beliefs=replace(beliefs, diagnostics=said))  # type: ignore[type-var]


def _distances(problem: Problem, found: Beliefs, exact: Beliefs) -> tuple[float, float, float]:
    """Largest distance of means, in standard deviations, and of these, as a share, over variables and cliques; nats between evidences."""
    mean = spread = 0.0
    for scope in (*((v,) for v in problem.model.variables), *map(tuple, problem.model.junction_tree.cliques)):
        sd, own = (np.sqrt(np.maximum(dense(b.variance(scope)), 0.0)) for b in (exact, found))
        off = np.abs(dense(found.mean(scope)) - dense(exact.mean(scope)))
        mean = max(mean, float((off / np.maximum(sd, LEAST_SD)).max()))
        spread = max(spread, float((np.abs(own - sd) / np.maximum(sd, LEAST_SPREAD)).max()))
    if found.log_evidence is None or exact.log_evidence is None:
        return mean, spread, 0.0
    return mean, spread, abs(found.log_evidence - exact.log_evidence)


def _sizes_not_told(problem: Problem) -> str:
    """That counts of the sum cannot tell how many there are of each of several groups, in words; nothing elsewhere."""
    vague = [name for name, (_, law) in problem.kinds.items() if law.vague]
    if len(vague) < 2:
        return ""
    return (
        f"Nothing is said of the sizes of the groups {shown(vague)}, and counts of their sum hardly tell how many there are of each: the "
        "answer may have two ends, nearly all of one or of the other. Say something of all but one of these sizes (About, Between)"
    )


def _require_answerable(problem: Problem, picked: Engine, rng: object) -> None:
    """Refuse what the engine cannot answer: an unknown initial law, chance without a seed, a dispersion, more memory than there is."""
    if not problem.model.initial_known:
        raise ValueError(
            "the model's initial distribution is unknown, and an engine needs one: headcount.infer(problem) learns it and includes "
            "its uncertainty; or give one, MarkovChain(initial, ...)"
        )
    if picked.random and rng is None:
        message = f"{picked.name} is random: give rng (a seed or a numpy Generator), so that the answer can be got again"
        raise ValueError(message)
    memory.require(
        picked.memory(problem.core),
        picked.name,
        remedy="merge cells, take fewer times or use MAP (no uncertainty)",
    )
    device = _device.find_device(getattr(picked, "device", "cpu"))
    if device is not None:
        _device.require(device, picked.device_memory(problem.core), picked.name)


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
    core, choice = problem.core, chosen(problem, engine)
    speed = operations_per_second() if rate is None else rate
    picked = choice.engine
    memory = picked.memory(core)
    writing = memory + writing_memory(core, point=picked.point, copies=picked.draw_copies)
    seconds = picked.seconds(core, speed)
    if parameters:
        runs = (FIT_RUNS + FIT_RUNS_EACH * parameters) * (1 if size_known else SIZE_RUNS)
        seconds = FIT_ONCE + runs * seconds
        more = BYTES * min(parameters * sizes(core).tables, MOST_RESPONSES)
        memory, writing = memory + more, writing + more
    elif not known:
        seconds *= INITIAL_RUNS
    after = writing_seconds(core, point=picked.point, initial_known=known)
    return Plan(picked.name, choice.reason, memory, writing, seconds, picked.device_memory(core), after)


MOST_RESPONSES = 20_000_000
"""Numbers kept of the response of all tables to the parameters of a fit, at most (``learn/_uncertainty.py``)."""


def operations_per_second(size: int = 192, *, seconds: float = 0.02) -> float:
    """Rate of a matrix product in one thread, per second of processor time: what else the machine does is not counted."""
    matrix = np.random.default_rng(0).standard_normal((size, size))
    with threads_for(size):
        matrix @ matrix
        best, start = np.inf, time.thread_time()
        while time.thread_time() - start < seconds:
            begun = time.thread_time()
            matrix @ matrix
            best = min(best, time.thread_time() - begun)
    return 2.0 * size**3 / best
