"""The verb: learn a model's parameters from counts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headcount.engines import Engine, Status, select
from headcount.engines._progress import Progress
from headcount.learn import _checkpoint
from headcount.learn._begin import begin
from headcount.learn._checkpoint import Progressed
from headcount.learn._climb import Climb, ascent_step, dense_inverse, em_step
from headcount.learn._component import Array
from headcount.learn._expect import Expectation, infer_task, running
from headcount.learn._family import Family
from headcount.learn._information import Information, observed_information
from headcount.learn._natural import named_values, natural_of
from headcount.learn._parametrisation import Parametrisation
from headcount.learn._refine import SURE, refined
from headcount.learn._result import Fit, FitNotConvergedError, last_node
from headcount.learn._store import fingerprint
from headcount.observe import Problem, ProblemError

FLOOR = 1e-2
"""Standard errors from the top below which a search that can find no better step has arrived."""


def fit(
    parametrisation: Parametrisation | Sequence[Parametrisation],
    problem: Problem | Sequence[Problem],
    engine: Engine | None = None,
    *,
    method: Literal["ascent", "em"] = "ascent",
    start: Any = None,
    max_iterations: int | None = None,
    tolerance: float = 1e-4,
    truth: Any = None,
    standard_errors: bool = True,
    refine: bool = True,
    rng: np.random.Generator | int | None = None,
    client: Any = None,
    workers: int | None = None,
    checkpoint: str | Path | None = None,
    strict: bool = True,
    progress: bool | None = None,
) -> Fit:
    """Learn parameters by maximising the evidence log p(y; x) + log prior(x).

    Parameters
    ----------
    parametrisation
        Which models to choose from; a sequence, one a problem, when problems share parameters but not
        features.
    problem
        The data; several problems (years, sites, replicates) share all parameters. What is not learned (an
        initial law, times, cells) is taken from each problem's model.
    engine
        How to infer expected counts; chosen from each problem when None.
    method
        ``"ascent"`` (L-BFGS with Fisher's gradient; 10–20 E-steps) or ``"em"`` (hundreds).
    start
        ``{name: value}`` of natural or working parameters, a vector of working parameters, or the name of a
        start: ``"zero"``, and for a homogeneous `TabularChain` ``"moments"`` and ``"regression"``. None tries
        what there is and takes the one with the most evidence; ascent with `TiltedEP` then climbs with MAP's
        cheaper E-steps until it is near.
    max_iterations
        100 for ascent and 500 for EM unless given.
    tolerance
        On the estimated distance from the maximum, in standard errors.
    truth
        True parameters, for the trace's ``error`` |estimate − truth|₁/|truth|₁.
    standard_errors
        Whether to find the observed information (2K more E-steps).
    refine
        Whether ascent goes on, by the same differences, from the zero of Fisher's gradient to the maximum of the
        engine's evidence, until its slope says that less than 0.02 standard errors are left or the evidence no longer
        rises. The two are one where E-steps are exact (and for MAP). It needs standard errors.
    rng
        Seed or generator for random engines.
    client, workers
        Where E-steps of several problems run: on a Dask client's workers, or in this many processes.
    checkpoint
        A file that is replaced after every step; a fit that finds it goes on from there, to the same answer.
    strict
        Raise `FitNotConvergedError` when the maximum was not reached; False returns the fit, marked.
    progress
        Show a bar; None decides by itself.

    Returns
    -------
    Fit
        Estimates with standard errors, trace, status, notes, final posteriors.
    """
    problems = (problem,) if isinstance(problem, Problem) else tuple(problem)
    settings = (parametrisation,) if isinstance(parametrisation, Parametrisation) else tuple(parametrisation)
    settings = settings * len(problems) if len(settings) == 1 else settings
    families = bind(settings, problems)
    engines = [select(p).engine if engine is None else engine for p in problems]
    if any(e.random for e in engines) and rng is None:
        raise ValueError(f"{engines[0].name} is random: give rng, so that the answer can be got again")
    if method not in ("ascent", "em"):
        raise ValueError(f'method is {method!r}: give "ascent" or "em"')
    known = named_values(families[0], truth) if truth is not None else None
    seed = int(np.random.default_rng(rng).integers(2**31)) if rng is not None else 0
    refining = refine and standard_errors and method == "ascent"
    budget = max_iterations if max_iterations is not None else (100 if method == "ascent" else 500)
    with running(problems, client=client, workers=workers) as mapper:
        expect = Expectation(families, problems, engines, seed, mapper)
        mark = fingerprint(
            settings, problems, [(e.name, repr(e)) for e in engines], method, start, seed, tolerance
        )
        path = None if checkpoint is None else Path(checkpoint)
        climbed = partial(
            _climbed,
            expect=expect,
            method=method,
            truth=known,
            budget=budget,
            tolerance=tolerance,
            path=path,
            mark=mark,
            show=progress,
        )
        begun = _begun(expect, method, start, known, path=path, mark=mark)
        ended, status = climbed(begun, yielding=refining)
        information = None
        if standard_errors:
            before = ended
            ended, information = _informed(before, expect, known, refine=refining and status.good)
            if status.good and before.climb.contrary and ended.climb.residual > SURE:
                if len(ended.rows) > len(before.rows):
                    status = Status.STALLED
                else:  # no way up by the evidence's slope either
                    ended, status = climbed(before, yielding=False)
                    ended, information = _informed(ended, expect, known, refine=False)
        point = ended.climb.point
        posteriors = tuple(infer_task(task) for task in expect.tasks(point.x, point.starts))
    made = Fit(
        parametrisations=settings,
        templates=tuple(p.model for p in problems),
        working=point.x,
        evidence=point.evidence,
        log_prior=point.log_prior,
        status=status,
        notes=_notes(ended, information),
        rows=ended.rows,
        information=information,
        method=method,
        engine=engines[0].name,
        start=ended.start,
        e_steps=ended.e_steps,
        seconds=ended.seconds,
        data=fingerprint([data_of(p) for p in problems]),
        last=tuple(last_node(p) for p in posteriors),
        posteriors=posteriors,
    )
    if strict and not status.good:
        raise FitNotConvergedError(made, tolerance)
    return made


def individuals(problems: Sequence[Problem]) -> float:
    """How many moves are made in all: the scale of what complete counts could say."""
    return float(sum(p.population * max(1, len(p.model.variables) - 1) for p in problems))


def data_of(problem: Problem) -> tuple[Any, ...]:
    """The data of a problem without its model, for comparing fits of different models."""
    return problem.population, [(s.scope, s.index, s.weights, s.noise) for s in problem.sites]


def bind(settings: Sequence[Parametrisation], problems: Sequence[Problem]) -> tuple[Family, ...]:
    """The families; everything that does not fit is said at once."""
    wrong: list[str] = []
    if not problems:
        raise ProblemError("there is no problem to learn from: give one or more")
    if len(settings) != len(problems):
        raise ProblemError(
            f"{len(settings)} parametrisations for {len(problems)} problems: give one, or one a problem"
        )
    families = []
    for k, (one, problem) in enumerate(zip(settings, problems, strict=True)):
        wrong += [f"problem {k}: {text}" for text in one.check(problem)]
        try:
            families.append(one.bind(problem.model))
        except ValueError as error:
            wrong.append(f"problem {k}: {error}")
    names = [f.names for f in families]
    wrong += [
        f"problem {k} has the parameters {n}, problem 0 has {names[0]}: they must share all of them"
        for k, n in enumerate(names)
        if n != names[0]
    ]
    if not wrong and not names[0]:
        wrong.append("nothing is free to be learned: every parameter is fixed")
    if wrong:
        raise ProblemError(wrong)
    return tuple(families)


def _informed(
    ended: Progressed, expect: Expectation, truth: Array | None, *, refine: bool
) -> tuple[Progressed, Information]:
    """The observed information, and the last steps it makes possible."""
    began = time.perf_counter()
    moves = individuals(expect.problems)
    guess = dense_inverse(ended.climb) if ended.climb.pairs else None
    climb = ended.climb
    found = observed_information(climb.point, expect, expect.families[0].names, moves, guess=guess)
    steps, found = refined(climb, found, expect, individuals=moves) if refine else ([], found)
    if refine and not steps and climb.contrary:
        ended = replace(ended, climb=replace(climb, residual=found.discrepancy))
    for step in steps:
        row = _row(step.climb, ended, truth, expect, ended.seconds + time.perf_counter() - began)
        ended = replace(ended, climb=step.climb, rows=(*ended.rows, row | {"e_steps": step.e_steps}))
    return replace(ended, e_steps=expect.e_steps, seconds=ended.seconds + time.perf_counter() - began), found


def _begun(
    expect: Expectation, method: str, start: Any, truth: Array | None, *, path: Path | None, mark: str
) -> Progressed:
    """The start, or where a checkpoint says that the climb was."""
    if path is not None and path.exists():
        at = _checkpoint.load(path, expect.families, mark)
        expect.e_steps = at.e_steps
        return at
    began = time.perf_counter()
    climb, name = begin(expect, start, climbing=method == "ascent")
    at = Progressed(climb, (), expect.e_steps, time.perf_counter() - began, name)
    return replace(at, rows=(_row(climb, at, truth, expect, at.seconds),))


def _climbed(
    at: Progressed,
    *,
    expect: Expectation,
    method: str,
    truth: Array | None,
    budget: int,
    tolerance: float,
    path: Path | None,
    mark: str,
    show: bool | None,
    yielding: bool,
) -> tuple[Progressed, Status]:
    """Iterate to the tolerance: budget, trace, progress, checkpoints and status live here.

    `yielding`: end where the evidence and its gradient disagree about the way, for the refinement to go on from there.
    """
    began = time.perf_counter() - at.seconds
    move = partial(ascent_step, yielding=yielding) if method == "ascent" else em_step
    status = Status.BUDGET
    with Progress(f"fit ({method})", budget, show=show) as bar:
        while True:
            done = _status(at.climb, tolerance, steps=len(at.rows) - 1, yielding=yielding)
            if done is not None:
                status = done
                break
            if len(at.rows) > budget:
                break
            climb = move(at.climb, expect)
            seconds = time.perf_counter() - began
            row = _row(climb, at, truth, expect, seconds)
            at = Progressed(climb, (*at.rows, row), expect.e_steps, seconds, at.start)
            if path is not None:
                _checkpoint.save(path, at, mark)
            bar.advance(text=f"evidence {climb.point.evidence:.6g}  step {climb.step:.2g}")
    return at, status


def _status(climb: Climb, tolerance: float, *, steps: int, yielding: bool) -> Status | None:
    """How the climb ended; None if it goes on."""
    if not np.isfinite(climb.point.gradient).all():
        return Status.NOT_FINITE
    # Before the first step the curvature is that of complete counts, and the distance a guess.
    if climb.residual <= (tolerance if steps > 0 else 1e-3 * tolerance):
        return Status.CONVERGED if climb.point.status.good else climb.point.status
    if yielding and climb.contrary:
        return climb.point.status
    if climb.stuck:
        return Status.CONVERGED if climb.residual <= FLOOR and climb.point.status.good else Status.STALLED
    return None


def _row(
    climb: Climb, before: Progressed, truth: Array | None, expect: Expectation, seconds: float
) -> dict[str, Any]:
    point = climb.point
    value = point.value
    last = before.rows[-1]["objective"] if before.rows else value
    row = {
        "iteration": len(before.rows),
        "e_steps": expect.e_steps,
        "evidence": point.evidence,
        "objective": value,
        "step": climb.step,
        "residual": climb.residual,
        "decrease": max(last - value, 0.0) if np.isfinite(value - last) else 0.0,
        "negative": point.negative,
        "seconds": seconds,
    }
    if truth is not None:
        estimate = natural_of(expect.families[0], point.x).values
        there = np.isfinite(truth)
        row["error"] = float(np.abs(estimate - truth)[there].sum() / np.abs(truth[there]).sum())
    return row


def _notes(at: Progressed, information: Any) -> tuple[str, ...]:
    """What a reader of the result should know."""
    notes = []
    last = abs(at.rows[-1]["objective"]) if at.rows else 0.0
    falls = [r for r in at.rows if r["decrease"] > 1e-9 * (1 + last)]
    if falls:
        worst = max(falls, key=lambda r: r["decrease"])
        notes.append(
            f"the evidence fell in {len(falls)} of {len(at.rows) - 1} steps, by at most {worst['decrease']:.2g} nats "
            f"(iteration {worst['iteration']}): the engine's gradient is not the derivative of its evidence"
        )
    if any(r["negative"] > 0 for r in at.rows):
        most = max(r["negative"] for r in at.rows)
        notes.append(
            f"the engine expected counts below zero (up to {most:.3g} in all): they were left out of the M-step"
        )
    if at.climb.point.excess > 1:
        notes.append(f"the last E-step missed its tolerance by a factor of {at.climb.point.excess:.2g}")
    if information is not None:
        notes += [f"not identified: {direction}" for direction in information.unidentified]
        if information.saddle:
            notes.append("the information has a negative eigenvalue: this is no maximum; try another start")
        if information.discrepancy > 2:
            notes.append(
                f"the maximum of the engine's evidence lies {information.discrepancy:.2g} standard errors from the zero of "
                "its gradient: the data say little enough for the approximation to matter; compare with another engine"
            )
        if information.asymmetry > 0.1:
            notes.append(
                f"the gradient's Jacobian is asymmetric by {information.asymmetry:.2g}: standard errors are rough"
            )
    return tuple(notes)
