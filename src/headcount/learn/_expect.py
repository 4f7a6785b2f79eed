"""One evaluation: the E-step's expected counts, the evidence, and what an M-step maximises.

An E-step is a pure function of (family, problem, engine, parameters, start, seed), so where it runs (here, in processes, or on a
cluster) and whether it had to be run twice changes nothing in the answer. With its expected counts an M-step maximises the
complete-data log-likelihoods of all problems, and the prior once:

    Q(x) = Σ_problems Σ_components l(x; E[n | y]) + log prior(x)

∂Q at the x of the E-step is the gradient of log evidence + log prior (Fisher's identity). Components share no parameters, so −∂²Q is
block diagonal and each block is maximised by itself: in closed form where there is one, else by Newton's method with
Levenberg–Marquardt damping (Q is concave).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.linalg import block_diag
from scipy.sparse import issparse

from headcount._device import connected
from headcount._types import Array
from headcount.engines import Engine, Posterior, Status
from headcount.engines._reduce import answer
from headcount.individual import Followed, Model, RootedTree, follow
from headcount.learn._family import Component, Counted, Family, Tables
from headcount.learn._files import Saved
from headcount.observe import Problem, ProblemError
from headcount.observe.cloud import Cloud, in_larger_graph, on_larger
from headcount.population import Exactly, unit_tables
from headcount.posterior import Outcome
from headcount.posterior._beliefs import listed_mean
from headcount.posterior.derived import member_mean
from headcount.tables import Scope, dense

NULL_SHARE = 1e-10
"""Share of the largest eigenvalue (of the matrix scaled to a unit diagonal) below which a direction counts as null: the square
root of float64's precision, with two digits to spare."""
ROUNDING_SHARE = 1e-12
"""Share of the uncentred second moment below which an information is rounding error: 10⁴ float64 epsilons."""
NEWTON_TOLERANCE = 1e-13
"""Newton decrement, relative to √|Q|, at which a block counts as maximised."""
MOST_NEWTON_STEPS = 300
"""Newton steps of one block, at most; not tuned: it ends the search of a block that has no maximum."""
PRIOR_ROUNDS = 30
"""Times that priors are learned, at most; each is followed by a few steps of the climb."""
PRIOR_TOLERANCE = 0.02
"""Relative change of the priors' strengths below which they count as learned: a fiftieth moves estimates by less than a hundredth of
their distance from the prior's centre."""
WARM_START = ("g", "tau", "eta", "certain", "draws", "phi_counts", "messages", "size_window")
"""Diagnostics of an engine from which it can start again."""


def settled(before: Mapping[str, float], now: Mapping[str, float]) -> bool:
    """Whether strengths of learned priors are what they were."""
    return bool(before) and all(abs(np.log(now[k] / v)) < PRIOR_TOLERANCE for k, v in before.items())


def scaled_eigen(matrix: Array) -> tuple[Array, Array, Array]:
    """(scale, eigenvalues, vectors) of D⁻¹ M D⁻¹, D = √diag M; a parameter without information has scale 0."""
    scale = np.sqrt(np.maximum(np.diagonal(matrix), 0.0))
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T) * np.outer(inverse, inverse))
    return scale, values, vectors


def pseudo_solve(matrix: Array, v: Array) -> Array:
    """M⁺ v, null directions (see `NULL_SHARE`) left out; v may be a matrix."""
    scale, values, vectors = scaled_eigen(matrix)
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    kept = values > NULL_SHARE * max(float(values.max(initial=0.0)), 1e-300)
    part = vectors[:, kept]
    scaled = inverse[:, None] * part
    return scaled @ ((scaled.T @ v).T / values[kept]).T


@dataclass(frozen=True)
class Objective(Saved):
    """Q at given statistics: by problem, the table that each component learns from."""

    families: Sequence[Family]
    statistics: Sequence[tuple[Any, ...]]

    @cached_property
    def _tables(self) -> list[tuple[Family, tuple[Any, ...]]]:
        """Families with their statistics; those of families that are alike are added up."""
        found: list[tuple[Family, tuple[Any, ...]]] = []
        for family, tables in zip(self.families, self.statistics, strict=True):
            same = next((k for k, (other, _) in enumerate(found) if family.alike(other)), None)
            if same is None:
                found.append((family, tables))
            else:
                summed = tuple(a + b for a, b in zip(found[same][1], tables, strict=True))
                found[same] = (found[same][0], summed)
        return found

    def _blocks(self, x: Array) -> Iterator[tuple[StackedTables, Array]]:
        """Every component of all problems, with its part of x."""
        for k, part in enumerate(self.families[0].split(x)):
            yield StackedTables([(f.components[k], n[k]) for f, n in self._tables]), part

    def log_prior(self, x: Array) -> float:
        """log prior(x)."""
        family = self.families[0]
        return sum(c.log_prior(part) for c, part in zip(family.components, family.split(x), strict=True))

    def prior_information(self, x: Array) -> Array:
        """−∂² log prior/∂x², shape (K, K)."""
        family = self.families[0]
        parts = zip(family.components, family.split(x), strict=True)
        return block_diag(*(c.prior_information(part) for c, part in parts))

    def value(self, x: Array) -> float:
        """Q(x)."""
        return sum(block.value(part) for block, part in self._blocks(x))

    def gradient(self, x: Array) -> Array:
        """∂Q/∂x at x: with statistics inferred at x itself, the gradient of log evidence + log prior."""
        return np.concatenate([np.zeros(0), *(block.gradient(part) for block, part in self._blocks(x))])

    def information(self, x: Array) -> Array:
        """The information of complete counts, shape (K, K), block diagonal."""
        return block_diag(*(block.information(part) for block, part in self._blocks(x)))

    def solve(self, x: Array, v: Array) -> Array:
        """information⁺ v."""
        pairs = zip(self._blocks(x), self.families[0].split(v), strict=True)
        return np.concatenate([np.zeros(0), *(block.solve(part, piece) for (block, part), piece in pairs)])

    def shrunk(self, x: Array) -> tuple[tuple[Family, ...], dict[str, float]] | None:
        """The families with priors learned from these statistics, and the priors' strengths; None where all are given."""
        first = self.families[0].shrunk(x, self._tables[0][1])
        if first is None:
            return None
        if len(self._tables) > 1:
            raise ProblemError(
                "a prior is learned from problems that share features and classes of steps, and these do not: give ridge or "
                "strength as numbers, or pool=False"
            )
        total = self._tables[0][1]
        others = [family.shrunk(x, total) for family in self.families[1:]]
        return (first[0], *(found[0] for found in others if found is not None)), first[1]

    def vanishing(self, x: Array, least: float) -> list[tuple[str, Array]]:
        """Probabilities under which fewer than ``least`` individuals are expected, with the direction of x that moves each alone."""
        found = []
        start = 0
        for k, (block, part) in enumerate(self._blocks(x)):
            for label, direction in block.prior.vanishing(part, sum(n for _, n in block.terms), least):
                padded = np.zeros(len(x))
                padded[start : start + len(part)] = direction
                found.append((self.families[0].named(k, [label])[0], padded))
            start += len(part)
        return found

    def maximise(self, x: Array) -> Array:
        """The M-step: argmax Q, from x."""
        return np.concatenate([np.zeros(0), *(block.maximise(part) for block, part in self._blocks(x))])


@dataclass(frozen=True)
class StackedTables:
    """One component of every family with its table: functions of that component's parameters alone."""

    terms: list[tuple[Component, Any]]

    @property
    def prior(self) -> Component:
        """Whose prior counts: it is counted once."""
        return self.terms[0][0]

    def value(self, x: Array) -> float:
        return self.prior.log_prior(x) + sum(c.value(x, n) for c, n in self.terms)

    def gradient(self, x: Array) -> Array:
        return self.prior.prior_gradient(x) + sum(c.gradient(x, n) for c, n in self.terms)

    def scale(self, x: Array) -> Array:
        """The information's diagonal without centring."""
        return np.diagonal(self.prior.prior_information(x)) + sum(c.scale(x, n) for c, n in self.terms)

    def information(self, x: Array) -> Array:
        """−∂²Q/∂x²; exactly zero, not a rounding error, where nothing varies with a parameter."""
        total = sum((c.information(x, n) for c, n in self.terms), start=np.zeros((len(x), len(x))))
        still = np.diagonal(total) <= ROUNDING_SHARE * sum(c.scale(x, n) for c, n in self.terms)
        total[still, :] = total[:, still] = 0.0
        return total + self.prior.prior_information(x)

    def solve(self, x: Array, v: Array) -> Array:
        """(−∂²Q/∂x²)⁺ v."""
        found = self.prior.closed_solve(x, self.terms[0][1], v) if len(self.terms) == 1 else None
        return pseudo_solve(self.information(x), v) if found is None else found

    def maximise(self, x: Array) -> Array:
        """argmax Q from x, in closed form if there is one."""
        found = self.prior.closed_form(x, self.terms[0][1]) if len(self.terms) == 1 else None
        return self._newton(x) if found is None else found

    def _newton(self, x: Array) -> Array:
        """Newton's method with Levenberg–Marquardt damping: x ← x + (I + λS)⁻¹ g, S = `scale`.

        A plain Newton step from where every move is equally likely overshoots to where the information vanishes although the
        gradient does not. λ grows until the rise of Q is at least a quarter of what the quadratic model predicts.
        """
        damping = 0.0
        value, gradient = self.value(x), self.gradient(x)
        for _ in range(MOST_NEWTON_STEPS):
            information, scale = self.information(x), self.scale(x)
            # What nothing varies with has no gradient but rounding error, and is not moved.
            gradient = np.where(np.abs(gradient) <= ROUNDING_SHARE * (scale + np.sqrt(scale)), 0.0, gradient)
            step = pseudo_solve(information + np.diag((damping + NULL_SHARE) * scale), gradient)
            rise = float(gradient @ step - 0.5 * step @ information @ step)
            if not rise > NEWTON_TOLERANCE**2 * max(1.0, abs(value)):
                break
            new = x + step
            new_value, new_gradient = self.value(new), self.gradient(new)
            if rise <= 1e-9 * max(1.0, abs(value)):
                # Q's rounding error hides the rise; near the maximum the gradient says whether the step was good.
                good = bool(new_gradient @ step < 0.5 * gradient @ step) and np.isfinite(new_value)
                if not good or np.abs(new_gradient @ step) > 0.5 * float(gradient @ step):
                    break
                damping = 0.0
            else:
                ratio = (new_value - value) / rise
                good = bool(ratio > 0.1)
                damping = _next_damping(damping, ratio)
            if good:
                x, value, gradient = new, new_value, new_gradient
        return x


def _next_damping(damping: float, ratio: float) -> float:
    """λ after a step whose rise was ``ratio`` times the predicted one (NaN: the step left the domain)."""
    if not ratio > 0.25:
        return max(4 * damping, 1e-2)
    if ratio > 0.75:
        return 0.0 if damping <= 1e-3 else damping / 10
    return damping


_MISSED_TOO_FAR = 10.0
"""Residual over tolerance at which a run from the last answer that did not converge is given up for a cold one: a tenth of what a
climb takes of an E-step (`_climb.MOST_EXCESS`), so that one which is kept is never refused for it."""
_ONE_THREAD_BELOW = 500
"""States per variable below which BLAS threads cost more than they bring (measured on two cores)."""


def inferred(problem: Problem, engine: Engine, seed: int, start: Mapping[str, Array] | None) -> Posterior:
    """The posterior, from what a run on a similar problem left; anew where that leads nowhere."""

    def run(last: Mapping[str, Array] | None) -> Outcome:
        return answer(engine, problem, rng=np.random.default_rng(seed), progress=False, start=last)

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

        tables, units = _counted(posterior, kept)
        statistics = self.family.statistics(tables, self.problem, units)
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


def _counted(posterior: Posterior, kept: Callable[[Any], Array]) -> tuple[Counted, Counted]:
    """Expected counts of a posterior's problem, and the same in units that move independently."""
    asked, beliefs = posterior.problem, posterior.beliefs
    followed = _followed(asked)

    def tables(scope: Scope) -> Any:
        """Expected counts; of sparse steps, where nobody was followed, the possible moves only."""
        if followed is not None:
            return kept(beliefs.mean(scope)) + dense(followed(scope))
        listed = listed_mean(beliefs, scope)
        return kept(beliefs.mean(scope) if listed is None else listed)

    size = float(asked.typical_population)
    units = unit_tables(asked.dispersion, asked.model.rooted(), size, tables)
    if asked.groups is None and not asked.model.has_hidden_states:
        return Counted(tables), Counted(units)
    cloud = asked.cloud

    def whole(name: Any, scope: Scope) -> Array:
        """Expected units of one kind on the larger graph that it follows, tagged ones included."""
        model = cloud.members[cloud.of_group(name)[-1]].model
        assert model is not None
        larger = in_larger_graph(model, cloud.states)[0]
        total = np.zeros([larger.sizes[larger.index[v]] for v in scope])
        for k in cloud.of_group(name):
            total[np.ix_(*(cloud.kept_states(k, v) for v in scope))] += kept(member_mean(beliefs, k, scope))
        return total + _followed_in_larger_graph(asked, name, scope)

    def single(name: Any, **changes: Any) -> Cloud:
        """The cloud of one unit of a kind."""
        member = cloud.members[cloud.of_group(name)[-1]]
        return replace(cloud, members=(replace(member, law=Exactly(1), **changes),))

    def in_units(name: Any, scope: Scope) -> Array:
        """The same in units that move independently."""
        one = single(name)
        return unit_tables(one.together, one.members[0].tree, size, partial(whole, name))(scope)

    def own(make: Tables, model: Model, full: Tables, scope: Scope) -> Any:
        """Units that follow the model's own transitions."""
        found = model.own_moves(full, scope)
        return make(scope) if found is None else found

    if asked.groups is None:
        full = partial(in_units, None)
        moving = Counted(partial(own, units, asked.model, full), full, model=asked.model)
        return Counted(tables, partial(whole, None)), moving
    groups = asked.groups

    def group(make: Callable[[Any, Scope], Array], name: Any) -> Counted:
        """Tables of one group: those of its cells, and those of the larger graph that it follows."""
        view = single(name, weight=1.0).view((0,))

        def seen(scope: Scope) -> Array:
            flat = view.matrix(scope) @ make(name, scope).ravel()
            return np.asarray(flat).reshape(view.shape(scope))

        kind, full = groups[name].model, partial(make, name)
        return Counted(seen if make is whole else partial(own, seen, kind, full), full, model=kind)

    return Counted(tables, group=partial(group, whole)), Counted(units, group=partial(group, in_units))


def _followed_in_larger_graph(problem: Problem, name: Any, scope: Scope) -> Any:
    """Expected tables of tracked individuals of one kind that are not in the counts, on the larger graph; 0 where there are none."""
    apart = problem.records[False].get(name)
    if apart is None:
        return 0.0
    model = problem.model if problem.groups is None else problem.groups[name].model
    larger = model.larger()
    assert larger is not None
    return dense(_tables_of(larger.tree, follow(larger.tree, on_larger(apart, model)), scope))


def _tables_of(tree: RootedTree, found: Followed, scope: Scope) -> Any:
    """First cells and moves of followed individuals as tables."""
    place = tree.place(scope)
    if place.edge:
        return place.turn(found.flows[place.node - 1])
    if place.node == 0:
        return found.initial
    return np.asarray(dense(found.flows[place.node - 1]).sum(axis=0))


def _all_tables(posterior: Posterior) -> dict[Scope, Array]:
    """Expected counts of every clique."""
    cliques = [tuple(c) for c in posterior.problem.model.junction_tree.cliques]
    return {c: np.asarray(dense(posterior.beliefs.mean(c)), dtype=float) for c in cliques}


def _followed(problem: Problem) -> Callable[[Scope], Any] | None:
    """Expected first cells and moves of tracked individuals that are not in the counts; None where there are none.

    Those in the counts are among the posterior's.
    """
    apart = problem.records[False].get(None) if problem.tracks else None
    tree = problem.model.rooted()
    if apart is None or tree is None or problem.model.has_hidden_states:
        return None
    found = follow(tree, apart)
    return lambda scope: _tables_of(tree, found, scope)


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


@dataclass(frozen=True)
class Evaluation(Saved):
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
class AtOnce(ABC):
    """A mapper that runs some E-steps together, and leaves the others to another one."""

    other: Mapper
    alike: dict[int, tuple[Family, Family]] = field(default_factory=dict, kw_only=True)
    """By identity: a family, and the first with the same function of the parameters."""

    @abstractmethod
    def found(self, tasks: Sequence[EStep]) -> dict[int, Expected]:
        """What is run together, by position."""

    def __call__(self, tasks: Sequence[EStep]) -> list[Expected]:
        made = self.found(tasks)
        rest = [k for k in range(len(tasks)) if k not in made]
        made |= zip(rest, self.other([tasks[k] for k in rest]) if rest else (), strict=True)
        return [made[k] for k in range(len(tasks))]

    def first_alike(self, family: Family) -> Family:
        """The first family with the same function of the parameters: what one makes of them serves for all."""
        if id(family) not in self.alike:
            same = {id(one): one for _, one in self.alike.values()}.values()
            self.alike[id(family)] = family, next((one for one in same if family.alike(one)), family)
        return self.alike[id(family)][1]


@contextmanager
def running(problems: Sequence[Problem], *, client: Any, workers: int | None) -> Iterator[Mapper]:
    """The way to run E-steps: a Dask client's workers, loky processes, or here."""
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
