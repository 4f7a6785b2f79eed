"""E-steps: the engine's expected counts of every problem, one after the other, in processes, or on a cluster.

An E-step is a pure function of (family, problem, engine, parameters, start, seed), so where it runs and whether it
had to be run twice changes nothing in the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import issparse

from headcount._device import connected
from headcount._types import Array
from headcount.engines import Engine, Posterior, Status
from headcount.engines._reduce import answer
from headcount.individual import OpenChain, follow
from headcount.learn._components import Initial, Moves
from headcount.learn._family import Counted, Family
from headcount.learn._files import saved
from headcount.learn._margins import (
    Found,
    Margins,
    Table,
    found_at_once,
    known_margins,
    log_moves,
    phi_of,
    serves,
)
from headcount.learn._objective import Objective
from headcount.observe import Problem
from headcount.observe._groups import full_dispersion
from headcount.population import unit_tables
from headcount.posterior import Outcome
from headcount.posterior._beliefs import listed_mean
from headcount.posterior._parts import full_mean
from headcount.tables import Scope, dense

WARM_START = ("g", "tau", "eta", "draws", "phi_counts", "messages")
"""Diagnostics of an engine from which it can start again."""
_MISSED_TOO_FAR = 10.0
"""Residual over tolerance at which a run from the last answer that did not converge is given up for a cold one: a tenth of what a
climb takes of an E-step (`_climb.MOST_EXCESS`), so that one which is kept is never refused for it."""
_ONE_THREAD_BELOW = 500
"""States per variable below which BLAS threads cost more than they bring (measured on two cores)."""


def inferred(problem: Problem, engine: Engine, seed: int, start: Mapping[str, Array] | None) -> Posterior:
    """The posterior, from what a run on a similar problem left; anew where that leads nowhere."""

    def run(last: Mapping[str, Array] | None) -> Outcome:
        return answer(engine, problem, rng=np.random.default_rng(seed), progress=False, start=last)

    if not problem.size_known:  # its runs start from one another
        return Posterior(problem, engine, run(None))
    outcome = run(start)
    missed = not outcome.residual <= _MISSED_TOO_FAR * outcome.tolerance
    if start is not None and missed and not outcome.status.good:
        outcome = run(None)
    return Posterior(problem, engine, outcome)


@dataclass(frozen=True)
class EStep:
    """Everything one E-step needs; it travels as a whole."""

    family: Family
    problem: Problem
    engine: Engine
    parameters: Array
    start: Mapping[str, Array] | None
    seed: int
    keep_tables: bool = False
    """Whether the expected counts of all cliques travel back."""

    def infer(self) -> Posterior:
        """The posterior under these parameters."""
        problem = self.family.apply(self.parameters, self.problem)
        return inferred(problem, self.engine, self.seed, self.start)

    def run(self) -> Expected:
        """Infer, and reduce to statistics; an E-step that cannot be made says why."""
        try:
            posterior = self.infer()
        except (ValueError, FloatingPointError, np.linalg.LinAlgError) as error:
            return Expected(failure=str(error) or type(error).__name__)
        negative = 0.0

        def kept(table: Any) -> Any:
            nonlocal negative
            made: Any = table if issparse(table) else dense(table)
            below = made.minimum(0.0) if issparse(made) else np.minimum(made, 0.0)
            negative -= float(below.sum())
            return made - below

        statistics = self.family.statistics(*_counted(posterior, kept, self.problem))
        evidence, outcome = posterior.log_evidence, posterior.outcome
        finite = all(np.isfinite(s).all() for s in statistics)
        return Expected(
            evidence=float("nan") if evidence is None else float(evidence),
            statistics=statistics,
            start={k: np.asarray(v) for k, v in posterior.diagnostics.items() if k in WARM_START},
            status=outcome.status if finite else Status.NOT_FINITE,
            excess=outcome.residual / outcome.tolerance if outcome.tolerance > 0 else 0.0,
            negative=negative,
            drawn="log_evidence_mc_error" in posterior.diagnostics,
            tables=_all_tables(posterior) if self.keep_tables else {},
            posterior=posterior,
        )


def _counted(
    posterior: Posterior, kept: Callable[[Any], Array], problem: Problem
) -> tuple[Counted, Problem, Counted]:
    """Expected counts of a posterior's problem, the problem, and the counts in independent units."""
    asked, beliefs = posterior.problem, posterior.beliefs
    followed = _followed(asked)

    def tables(scope: Scope) -> Any:
        """Expected counts; of sparse steps, where nobody was followed, the possible moves only."""
        if followed is not None:
            return kept(beliefs.mean(scope)) + dense(followed(scope))
        listed = listed_mean(beliefs, scope)
        return kept(beliefs.mean(scope) if listed is None else listed)

    size, model, together = asked.typical_population, asked.model, asked.dispersion
    units = unit_tables(together, model.rooted(), size, tables)
    if isinstance(model, OpenChain):
        whole = partial(_kept_full, kept, beliefs)
        apart = unit_tables(full_dispersion(model, together), model.full.rooted(), size, whole)
        return Counted(tables, whole), problem, Counted(units, apart)
    if asked.groups is None:
        return Counted(tables), problem, Counted(units)

    def group(name: Any, which: int) -> Counted:
        own = posterior.group(name)
        both = _counted(own, kept, own.problem)
        return both[0] if which == 0 else both[2]

    return (
        Counted(tables, group=partial(group, which=0)),
        problem,
        Counted(units, group=partial(group, which=1)),
    )


def _kept_full(kept: Callable[[Any], Array], beliefs: Any, scope: Scope) -> Array:
    return kept(full_mean(beliefs, scope))


def _all_tables(posterior: Posterior) -> dict[Scope, Array]:
    """Expected counts of every clique."""
    cliques = [tuple(c) for c in posterior.problem.model.junction_tree.cliques]
    return {c: np.asarray(dense(posterior.beliefs.mean(c)), dtype=float) for c in cliques}


def _followed(problem: Problem) -> Callable[[Scope], Any] | None:
    """Expected first cells and moves of tracked individuals that are not in the counts; None where there are none.

    Those in the counts are among the posterior's.
    """
    apart = problem.records[1] if problem.tracks else None
    tree = problem.model.rooted()
    if apart is None or tree is None:
        return None
    found = follow(tree, apart)

    def tables(scope: Scope) -> Any:
        place = tree.place(scope)
        if place.edge:
            return place.turn(found.flows[place.node - 1])
        if place.node == 0:
            return found.initial
        return np.asarray(dense(found.flows[place.node - 1]).sum(axis=0))

    return tables


@dataclass(frozen=True)
class Expected:
    """The result of one E-step."""

    evidence: float = float("nan")
    statistics: tuple[Any, ...] = ()
    start: Mapping[str, Array] = field(default_factory=dict)
    status: Status = Status.NOT_FINITE
    excess: float = float("inf")
    """Residual over tolerance: ≤ 1 when converged."""
    negative: float = 0.0
    """Expected counts below zero, added up: they are left out of the statistics, as no model has them."""
    drawn: bool = False
    """Whether the evidence carries Monte-Carlo error."""
    failure: str = ""
    """Why there is no answer: the model cannot have made the data, or the engine broke down."""
    tables: Mapping[Scope, Array] = field(default_factory=dict)
    """Expected counts of every clique, where they were asked for."""
    posterior: Posterior | None = None
    """None where the E-step ran in another process: only the statistics travel back."""


def _run_elsewhere(task: EStep) -> Expected:
    """An E-step with one BLAS thread, for a process among several."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        return replace(task.run(), posterior=None)


@saved
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
    failure: str = ""
    """Why there is no evidence here; the gradient is then NaN."""
    drawn: bool = False
    """Whether the evidence carries Monte-Carlo error. Common random numbers leave about .02 nats of it in differences."""
    posteriors: tuple[Posterior | None, ...] = field(default=(), metadata={"saved": False}, repr=False)
    tables: tuple[Mapping[Scope, Array], ...] = field(default=(), metadata={"saved": False}, repr=False)
    """Per problem, expected counts of every clique, where they were asked for."""

    @property
    def value(self) -> float:
        """log evidence + log prior; NaN from an engine that gives no evidence."""
        return self.evidence + self.log_prior


Mapper = Callable[[Sequence[EStep]], list[Expected]]


@dataclass
class Expectation:
    """All problems with their families and the engine, and the way their E-steps are run."""

    families: Sequence[Family]
    problems: Sequence[Problem]
    engine: Engine
    seed: int
    mapper: Mapper
    e_steps: int = field(default=0)

    @property
    def moves(self) -> float:
        """Moves made in all: the scale of what complete counts could say."""
        steps = (p.typical_population * max(1, len(p.model.variables) - 1) for p in self.problems)
        return float(sum(steps))

    def tasks(
        self, x: Array, starts: Sequence[Mapping[str, Array]] | None, *, keep_tables: bool = False
    ) -> list[EStep]:
        """One per problem. Every one keeps its seed: common random numbers make random engines comparable."""
        found = starts if starts else [None] * len(self.problems)
        return [
            EStep(f, p, self.engine, x, s or None, self.seed + k, keep_tables)
            for k, (f, p, s) in enumerate(zip(self.families, self.problems, found, strict=True))
        ]

    def __call__(self, x: Array, starts: Sequence[Mapping[str, Array]] | None) -> Evaluation:
        """Evaluate at x; counts as one E-step whatever the number of problems."""
        found = self.mapper(self.tasks(x, starts))
        self.e_steps += 1
        return self._join(x, found, tuple(one.posterior for one in found))

    def several(
        self,
        points: Sequence[Array],
        starts: Sequence[Mapping[str, Array]] | None,
        *,
        keep_tables: bool = False,
    ) -> list[Evaluation]:
        """Evaluate at several points at once; their posteriors are dropped, expected counts kept where asked for."""
        found = self.mapper([task for x in points for task in self.tasks(x, starts, keep_tables=keep_tables)])
        self.e_steps += len(points)
        count = len(self.problems)
        return [self._join(x, found[k * count : (k + 1) * count], ()) for k, x in enumerate(points)]

    def _join(
        self, x: Array, found: Sequence[Expected], posteriors: tuple[Posterior | None, ...]
    ) -> Evaluation:
        def each(name: str) -> list[Any]:
            return [getattr(one, name) for one in found]

        objective = Objective(self.families, each("statistics"))
        status = _worst(each("status"))
        return Evaluation(
            x=x,
            evidence=sum(each("evidence")),
            log_prior=objective.log_prior(x),
            gradient=np.full(len(x), np.nan) if status is Status.NOT_FINITE else objective.gradient(x),
            objective=objective,
            starts=tuple(each("start")),
            excess=max(each("excess")),
            status=status,
            negative=sum(each("negative")),
            failure=next(filter(None, each("failure")), ""),
            drawn=any(each("drawn")),
            posteriors=posteriors,
            tables=tuple(each("tables")),
        )

    def learn_priors(self, point: Evaluation) -> tuple[Evaluation, dict[str, float]] | None:
        """The same point under priors learned from its expected counts, and their strengths; None where all priors are given.

        The families are replaced by those with the new priors.
        """
        found = point.objective.shrunk(point.x)
        if found is None:
            return None
        self.families, strengths = found
        objective = replace(point.objective, families=self.families)
        return (
            replace(
                point,
                objective=objective,
                log_prior=objective.log_prior(point.x),
                gradient=objective.gradient(point.x),
            ),
            strengths,
        )

    def posteriors(self, point: Evaluation) -> tuple[Posterior, ...]:
        """The posteriors at a point: those of its E-step, or, where that ran elsewhere, inferred here."""
        kept = point.posteriors or (None,) * len(self.problems)
        tasks = self.tasks(point.x, point.starts)
        return tuple(task.infer() if p is None else p for task, p in zip(tasks, kept, strict=True))


def _worst(found: Sequence[Status]) -> Status:
    """The status of several runs together: numbers that are not finite are worse than any other failure."""
    if Status.NOT_FINITE in found:
        return Status.NOT_FINITE
    return next((status for status in found if not status.good), found[0])


def run_here(tasks: Sequence[EStep]) -> list[Expected]:
    """The E-steps one after the other, in this process."""
    return [task.run() for task in tasks]


@dataclass(frozen=True)
class _TablesAtOnce:
    """Runs the E-steps of tables with known margins at once (`_margins`), and all others by another mapper."""

    other: Mapper
    tables: Mapping[int, tuple[Margins, Array, float]]
    """Of problems, by identity: margins, phi of the rows, phi of the first counts."""
    alike: dict[int, tuple[Family, Family]] = field(default_factory=dict)
    """By identity: a family, and the first with the same function of the parameters."""

    @classmethod
    def over(cls, problems: Sequence[Problem], other: Mapper) -> Mapper:
        """The mapper for these problems: the other one, where none is such a table."""
        known = ((p, margins) for p in problems if (margins := known_margins(p)) is not None)
        tables = {id(p): (margins, *phi_of(p, margins.rows, p.dispersion)) for p, margins in known}
        return cls(other, tables) if tables else other

    def __call__(self, tasks: Sequence[EStep]) -> list[Expected]:
        made = self._at_once(tasks)
        rest = [k for k in range(len(tasks)) if k not in made]
        made |= zip(rest, self.other([tasks[k] for k in rest]) if rest else (), strict=True)
        return [made[k] for k in range(len(tasks))]

    def _at_once(self, tasks: Sequence[EStep]) -> dict[int, Expected]:
        """The E-steps of tables, by position; those whose margins cannot be met are left to the other mapper."""
        laws: dict[tuple[int, int], Any] = {}
        tables = {k: table for k, task in enumerate(tasks) if (table := self._table(task, laws)) is not None}
        made: dict[int, Expected] = {}
        for volume in (False, True):
            where = [k for k in tables if serves(tasks[k].engine) is volume]
            found = found_at_once([tables[k] for k in where], volume=volume)
            made |= {k: self._expected(tasks[k], one) for k, one in zip(where, found, strict=True) if one.met}
        return made

    def _table(self, task: EStep, laws: dict[tuple[int, int], Any]) -> Table | None:
        """The task's table; None where it is none, something else is learned, or some move is impossible."""
        known = self.tables.get(id(task.problem))
        if known is None or serves(task.engine) is None:
            return None
        family = self._first_alike(task.family)
        key = id(family), id(task.parameters)
        if key not in laws:
            laws[key] = _law(family, task.parameters)
        if laws[key] is None:
            return None
        log_p, initial = laws[key]
        margins, phi, first = known
        start = None if task.start is None else margins.split(task.start["g"])[1]
        given = task.family.template.initial if initial is None else initial  # type: ignore[attr-defined]
        return Table(margins.rows, margins.columns, given, log_p, phi, first, start)

    def _first_alike(self, family: Family) -> Family:
        """The first family with the same function of the parameters as this one: the matrices of one serve for all."""
        if id(family) not in self.alike:
            same = {id(one): one for _, one in self.alike.values()}.values()
            self.alike[id(family)] = family, next((one for one in same if family.alike(one)), family)
        return self.alike[id(family)][1]

    def _expected(self, task: EStep, found: Found) -> Expected:
        margins, _, first_phi = self.tables[id(task.problem)]
        first, both = tuple(task.problem.model.variables[:1]), tuple(task.problem.model.variables)
        counts = {first: margins.rows, both: found.counts}
        units = {first: margins.rows / first_phi, both: found.units}
        tilts = margins.joined(*found.tilts)
        start = {"g": tilts, "tau": np.zeros_like(tilts), "eta": tilts, "phi_counts": margins.counts}
        return Expected(
            evidence=found.evidence,
            statistics=task.family.statistics(counts.__getitem__, task.problem, units.__getitem__),
            start=start,
            status=Status.CONVERGED,
            excess=0.0,
            tables={both: found.counts} if task.keep_tables else {},
        )


def _law(family: Family, x: Array) -> tuple[Array, Array | None] | None:
    """log P of a chain of two times, and the initial distribution where it is learned; None where other things are, or a P is zero."""
    if not all(isinstance(c, (Moves, Initial)) for c in family.components):
        return None
    moves, first = family.find(Moves), family.find(Initial)  # type: ignore[type-abstract]
    log_p = log_moves(family.template, None if moves is None else moves.component.matrices(x[moves.where]))
    if log_p is None:
        return None
    return log_p, None if first is None else first.component.probabilities(x[first.where])[0]


@contextmanager
def running(problems: Sequence[Problem], *, client: Any, workers: int | None) -> Iterator[Mapper]:
    """The way to run E-steps: a Dask client's workers, loky processes, or here."""
    if client is not None and workers is not None:
        raise ValueError("client and workers are both given: a Dask client has its own workers")
    with _mapper(problems, client, workers) as mapper:
        yield _TablesAtOnce.over(problems, mapper)


@contextmanager
def _mapper(problems: Sequence[Problem], client: Any, workers: int | None) -> Iterator[Mapper]:
    if client is not None:
        with connected(client) as cluster:
            yield lambda tasks: cluster.gather(
                [cluster.submit(_run_elsewhere, task, pure=False) for task in tasks]
            )
    elif workers is not None and workers > 1:
        from joblib import Parallel, delayed

        with Parallel(n_jobs=workers, backend="loky", inner_max_num_threads=1) as pool:
            yield lambda tasks: list(pool(delayed(_run_elsewhere)(task) for task in tasks))
    else:
        from threadpoolctl import threadpool_limits

        widest = max(len(s) for p in problems for s in p.model.states.values())
        with threadpool_limits(limits=1 if widest < _ONE_THREAD_BELOW else None):
            yield run_here
