"""E-steps: the engine's expected counts of every problem, one after the other, in processes, or on a cluster.

An E-step is a pure function of (family, problem, engine, parameters, start, seed), so where it runs and whether it
had to be run twice changes nothing in the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headcount.engines import Engine, Posterior, Status
from headcount.engines._engine import IterativeEngine, drive
from headcount.learn._component import Array
from headcount.learn._family import Family, Scope
from headcount.learn._objective import Objective
from headcount.observe import Problem

_STARTS = ("g", "tau", "eta")
_HELPLESS = 10.0
"""Tolerances that a run from the last answer may miss by before one begins afresh."""
_ONE_THREAD_BELOW = 500
"""Below this many states BLAS threads cost more than they bring."""


@dataclass(frozen=True)
class Task:
    """Everything one E-step needs; it travels as a whole."""

    family: Family
    problem: Problem
    engine: Engine
    parameters: Array
    start: Mapping[str, Array] | None
    seed: int


@dataclass(frozen=True)
class Report:
    """What one E-step found, small enough to travel back."""

    evidence: float
    statistics: tuple[Any, ...]
    start: Mapping[str, Array]
    status: str
    excess: float
    """Residual over tolerance: ≤ 1 when converged."""
    negative: float
    """Expected counts below zero, added up: they are left out of the statistics, as no model has them."""


def infer_task(task: Task) -> Posterior:
    """The posterior under the task's parameters."""
    problem = task.family.apply(task.parameters, task.problem)
    rng = np.random.default_rng(task.seed)
    if isinstance(task.engine, IterativeEngine):
        outcome = drive(task.engine, problem, rng=rng, progress=False, start=task.start)
        missed = not outcome.residual <= _HELPLESS * outcome.tolerance
        if task.start is not None and missed and not outcome.status.good:  # the last answer was no help
            outcome = drive(task.engine, problem, rng=np.random.default_rng(task.seed), progress=False)
    else:
        outcome = task.engine.run(problem, rng=rng, progress=False)
    return Posterior(problem, task.engine, outcome)


def e_step(task: Task) -> Report:
    """Infer, and reduce to statistics."""
    posterior = infer_task(task)
    negative = 0.0

    def tables(scope: Scope) -> Array:
        nonlocal negative
        table = posterior.beliefs.mean(scope)
        low = table < 0
        if not low.any():
            return table
        negative -= float(table[low].sum())
        return np.where(low, 0.0, table)

    statistics = task.family.statistics(tables, task.problem)
    evidence = posterior.log_evidence
    outcome = posterior.outcome
    start = {k: np.asarray(posterior.diagnostics[k]) for k in _STARTS if k in posterior.diagnostics}
    finite = all(np.isfinite(np.asarray(s)).all() for s in statistics)
    return Report(
        float("nan") if evidence is None else float(evidence),
        statistics,
        start,
        (outcome.status if finite else Status.NOT_FINITE).value,
        outcome.residual / outcome.tolerance if outcome.tolerance > 0 else 0.0,
        negative,
    )


def alone(task: Task) -> Report:
    """An E-step with one BLAS thread, for a process among several."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        return e_step(task)


@dataclass(frozen=True)
class Evaluation:
    """The evidence and its gradient at some parameters."""

    x: Array
    evidence: float
    log_prior: float
    gradient: Array
    """Of evidence + log prior, by Fisher's identity."""
    objective: Objective
    starts: tuple[Mapping[str, Array], ...]
    excess: float
    status: Status
    negative: float

    @property
    def value(self) -> float:
        """log evidence + log prior; NaN from an engine that gives no evidence."""
        return self.evidence + self.log_prior


Mapper = Callable[[Sequence[Task]], list[Report]]


@dataclass
class Expectation:
    """All problems with their families and engines, and the way their E-steps are run."""

    families: Sequence[Family]
    problems: Sequence[Problem]
    engines: Sequence[Engine]
    seed: int
    mapper: Mapper
    e_steps: int = field(default=0)

    def tasks(self, x: Array, starts: Sequence[Mapping[str, Array]] | None) -> list[Task]:
        """One a problem. Every one keeps its seed: common random numbers make random engines comparable."""
        found = starts if starts else [None] * len(self.problems)
        return [
            Task(f, p, e, x, s or None, self.seed + k)
            for k, (f, p, e, s) in enumerate(
                zip(self.families, self.problems, self.engines, found, strict=True)
            )
        ]

    def __call__(self, x: Array, starts: Sequence[Mapping[str, Array]] | None) -> Evaluation:
        """Evaluate at x; counts as one E-step whatever the number of problems."""
        return self.several([x], starts)[0]

    def several(
        self, points: Sequence[Array], starts: Sequence[Mapping[str, Array]] | None
    ) -> list[Evaluation]:
        """Evaluate at several points at once."""
        reports = self.mapper([task for x in points for task in self.tasks(x, starts)])
        self.e_steps += len(points)
        count = len(self.problems)
        return [self._join(x, reports[k * count : (k + 1) * count]) for k, x in enumerate(points)]

    def _join(self, x: Array, reports: Sequence[Report]) -> Evaluation:
        objective = Objective(self.families, [r.statistics for r in reports])
        bad = [r.status for r in reports if not Status(r.status).good]
        status = Status(bad[0]) if bad else Status(reports[0].status)
        return Evaluation(
            x=x,
            evidence=sum(r.evidence for r in reports),
            log_prior=objective.log_prior(x),
            gradient=objective.gradient(x) if status is not Status.NOT_FINITE else np.full(len(x), np.nan),
            objective=objective,
            starts=tuple(r.start for r in reports),
            excess=max(r.excess for r in reports),
            status=status,
            negative=sum(r.negative for r in reports),
        )


@contextmanager
def running(problems: Sequence[Problem], *, client: Any, workers: int | None) -> Iterator[Mapper]:
    """The way to run E-steps: a Dask client's workers, loky processes, or here."""
    if client is not None and workers is not None:
        raise ValueError("client and workers are both given: a Dask client has its own workers")
    if client is not None:
        yield lambda tasks: client.gather([client.submit(alone, task, pure=False) for task in tasks])
    elif workers is not None and workers > 1:
        from joblib import Parallel, delayed

        with Parallel(n_jobs=workers, backend="loky", inner_max_num_threads=1) as pool:
            yield lambda tasks: list(pool(delayed(e_step)(task) for task in tasks))
    else:
        from threadpoolctl import threadpool_limits

        widest = max(len(s) for p in problems for s in p.model.states.values())
        with threadpool_limits(limits=1 if widest < _ONE_THREAD_BELOW else None):
            yield lambda tasks: [e_step(task) for task in tasks]
