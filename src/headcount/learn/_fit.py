"""The verbs: learn a model's parameters from counts, or, where nothing is hidden, from complete tables in one M-step."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headcount._compile import many_solves
from headcount._device import find_device
from headcount._types import Array
from headcount.checks import generator, instance, is_sequence
from headcount.engines import Auto, Engine, Posterior, Status, TiltedEP
from headcount.engines.choice import as_engine
from headcount.errors import known_keywords
from headcount.individual import Model, ModelError
from headcount.individual._log_linear import require_counts
from headcount.learn._between import tables_differ
from headcount.learn._climb import Climber, ClimbState
from headcount.learn._dispersion import (
    asks_for_estimate,
    from_flows,
    in_turn,
    moving_together,
    problems_on,
    with_common_causes,
)
from headcount.learn._expect import PRIOR_ROUNDS, Expectation, Objective, run_here, running, settled
from headcount.learn._family import Family, Parametrisation, Tables, bind, relative_error, settle, true_values
from headcount.learn._files import data_of, fingerprint, read, write
from headcount.learn._log_linear import MOST_DENSE
from headcount.learn._margins import tables_at_once
from headcount.learn._one_cell import cells_at_once
from headcount.learn._populations import Detection, Rate
from headcount.learn._result import Fit, FitNotConvergedError, LastCounts, distance, last_node
from headcount.learn._search import CLOSE_ENOUGH, begin, choose_engine, rival_notes, searched
from headcount.learn._uncertainty import (
    Information,
    complete_information,
    integrated,
    is_over_draws,
    prior_note,
    without_maximum,
)
from headcount.observe import Problem
from headcount.population import CGM, CountTables, Dispersion, DispersionEstimate, ToEstimate

MOST_COMPLETE = 5000
"""Parameters up to which the information of complete counts, a dense matrix, is made: 200 MB."""
LARGEST_RESIDUAL = 1e-4
"""Standard errors from the maximum beyond which Newton's method has not arrived."""
CHECKPOINT_KIND = "headcount checkpoint"
"""What a checkpoint's file says that it is."""
PARAMETERS = ("integrated", "plug-in")
"""How posteriors treat learned parameters: see `fit`."""
PRIORS = ("neutral", None)
"""What moves are integrated under: see `fit`."""
MOST_PARAMETERS = 500
"""Parameters up to which standard errors are found unasked, and posteriors integrated over them: that takes four E-steps per parameter,
a climb 10 to 100 in all. Matrices of 21 cells (420 parameters) are among them: without, 90 % intervals of their flows cover 26 %."""
TOLERANCE, TOLERANCE_OF_MANY = 1e-4, 0.1
"""Standard errors from the maximum at which a search ends, with few and with many parameters. The distance is that of all of them
together: with 300 parameters 0.1 is less than 0.006 standard errors each. (468 weights of noisy tables: the evidence is then 0.15 nats
below the best that was found.)"""
MORE_FOR_MANY = 3
"""Times as many iterations with more than `MOST_DENSE` parameters: there the curvature is learned on the way, not made."""
FEW_TRACKED = 0.02
"""Share of the population up to which tracked individuals among it are learned from by themselves: counting them twice then narrows
standard errors by half of that, 1 %, less than they are known to."""
DEFAULT_BUDGET = {"ascent": 100, "em": 500}
"""Iterations: ascent takes 10 to 20 where EM takes hundreds."""


@known_keywords(
    ridge="it is LogisticChain's: hc.LogisticChain(features, ridge=1.0)",
    features="they are LogisticChain's: hc.fit(hc.LogisticChain(features), problem)",
)
def fit(
    parametrisation: Parametrisation | Sequence[Parametrisation],
    problem: Problem | Sequence[Problem],
    engine: Engine | str | None = None,
    *,
    dispersion: Dispersion | str | None = None,
    method: Literal["ascent", "em"] = "ascent",
    start: Any = None,
    max_iterations: int | None = None,
    tolerance: float | None = None,
    truth: Any = None,
    standard_errors: bool | None = None,
    refine: bool = True,
    parameters: Literal["integrated", "plug-in"] = "integrated",
    prior: Literal["neutral"] | None = "neutral",
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
        Which models to choose from; a sequence, one per problem, when problems share parameters but not
        features.
    problem
        The data; several problems (years, sites, replicates) share all parameters. What is not learned (an
        initial law, times, cells) is taken from each problem's model.
    engine
        How to infer expected counts; when None, chosen once for all problems, for the model near which the search ends
        (or, where a start is given, for the start).
    dispersion
        How individuals move together, instead of what the problems say: ``Flocks(5)``, ``Overdispersion(rho=0.01)``, or ``"estimate"``: one
        for all problems, learned with the parameters (`Fit.dispersion`).
    method
        ``"ascent"`` (L-BFGS with Fisher's gradient; 10–20 E-steps) or ``"em"`` (hundreds).
    start
        ``{name: value}`` of natural or working parameters, a vector of working parameters, or the name of a
        start: ``"zero"``, for chains ``"sticky"``, ``"very sticky"`` and ``"mobile"``, and for a homogeneous
        `TabularChain` ``"moments"`` and ``"regression"``. None takes all there are: ascent climbs from each with
        MAP's cheap E-steps, goes on from the best, and reports maxima that the data hardly tell apart (`Fit.optima`);
        EM begins at the one with the most evidence.
    max_iterations
        100 for ascent and 500 for EM unless given; three times as many with more than 300 parameters.
    tolerance
        On the estimated distance from the maximum, in standard errors; None: 1e-4, and 0.1 with more than 300 parameters.
    truth
        True parameters, for the trace's ``error`` |estimate − truth|₁/|truth|₁.
    standard_errors
        Whether to find the observed information (2K more E-steps); None: up to `MOST_PARAMETERS` of them.
    refine
        Whether ascent goes on, by the same differences, from the zero of Fisher's gradient to the maximum of the
        engine's evidence, until its slope says that less than 0.02 standard errors are left or the evidence no longer
        rises. The two are one where E-steps are exact (and for MAP). It needs standard errors.
    parameters
        ``"integrated"``: the fit's posteriors include the uncertainty of the parameters (when there are standard errors), at two
        more E-steps per parameter when they are first asked for. ``"plug-in"``: they take the estimate for the truth
        (`Fit.plug_in` has that in both cases). The uncertainty of an initial distribution under a flat prior is always included.
    prior
        ``"neutral"``: up to 12 parameters of moves learned from exact counts, without a prior of their own, are drawn from evidence × a
        neutral prior where the counts leave them on a ridge or at an edge, or where a dispersion is learned beside a free matrix;
        `Fit.integral` says which prior, and how much answers lean on it. Estimates stay those of the maximum. None: posteriors are those
        of a Gaussian around the plain maximum.
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
    settings, problems = _paired(parametrisation, problem)
    problems, said = _to_learn_from(problems, dispersion)
    options = _Options(
        engine=_named_engine(engine, rng),
        start=start,
        method=method,
        max_iterations=max_iterations,
        tolerance=tolerance,
        truth=truth,
        standard_errors=standard_errors,
        refine=refine,
        parameters=parameters,
        prior=prior,
        seed=_seed(rng),
        client=client,
        workers=workers,
        checkpoint=checkpoint,
        strict=strict,
        progress=progress,
    )
    asked = asks_for_estimate(problems)
    known = [tables for p in problems if (tables := known_tables(p)) is not None]
    if options.engine is None and problems and len(known) == len(problems):
        bind(settings, problems)
        return fit_known(settings, problems, known, truth, asked)
    if asked is None:
        made = _fitted(settings, problems, options)
        return replace(made, notes=(*said, *made.notes))
    if checkpoint is not None:
        raise ValueError(
            "a checkpoint holds one climb, and an estimated dispersion takes several: give the dispersion, or leave out checkpoint"
        )
    made = _dispersed(settings, problems, asked, options)
    return replace(made, notes=(*said, *made.notes))


def _to_learn_from(
    problems: tuple[Problem, ...], dispersion: Dispersion | str | None
) -> tuple[tuple[Problem, ...], tuple[str, ...]]:
    """The problems with another dispersion, where one is given, and few tracked individuals by themselves; and words for that."""
    if dispersion is not None:
        problems = tuple(moving_together(p, dispersion) for p in problems)
    told = [records_apart(p) for p in problems]
    return tuple(p for p, _ in told), tuple(dict.fromkeys(text for _, text in told if text))


def records_apart(problem: Problem) -> tuple[Problem, str]:
    """The problem with the likelihood of few tracked individuals as a factor of its own, and words for it; itself and "" otherwise.

    Individuals are independent given the parameters, so that p(records, y) = p(records) p(y | records). Among N individuals K that are
    tracked change p(y | records) against p(y) by their share K/N: below `FEW_TRACKED` the product p(records) p(y) is learned from, at
    the cost of a fit without tracks, where p(y | records) needs a graph with every tracked individual's own cells beside the others'.
    """
    counted = [tracks for tracks in problem.tracks if tracks.counted]
    number = sum(map(len, problem.records[True].values())) if counted else 0
    share = number * problem.flock_units / problem.typical_population if counted else 1.0
    if not 0 < share <= FEW_TRACKED or not problem.sites:
        return problem, ""
    apart = tuple(replace(tracks, counted=False) for tracks in problem.tracks)
    text = (
        f"the records of the {number} tracked individuals are a likelihood of their own, beside the counts: they are {share:.1%} of "
        f"the population, and standard errors are too small by about {share / 2:.1%} for counting them twice"
    )
    return problem._twin(tracks=apart), text


@dataclass(frozen=True, kw_only=True)
class _Options:
    """How a fit is made: what `fit` was given beside parametrisations and problems."""

    engine: Engine | None
    """None where it is to be chosen."""
    start: Any
    method: Literal["ascent", "em"]
    max_iterations: int | None
    tolerance: float | None
    truth: Any
    standard_errors: bool | None
    refine: bool
    parameters: str
    prior: str | None
    seed: int
    """Of the E-steps of random engines."""
    client: Any
    workers: int | None
    checkpoint: str | Path | None
    strict: bool
    progress: bool | None
    posteriors: bool = True
    """Whether posteriors are made: not of a fit that only leads to the next."""
    estimate: DispersionEstimate | None = None
    """The dispersion that was learned beside the parameters."""

    def __post_init__(self) -> None:
        if self.method not in DEFAULT_BUDGET:
            raise ValueError(f'method is {self.method!r}: give "ascent" or "em"')
        if self.parameters not in PARAMETERS:
            raise ValueError(f'parameters is {self.parameters!r}: give "integrated" or "plug-in"')
        if self.prior not in PRIORS:
            raise ValueError(f'prior is {self.prior!r}: give "neutral", or None for the plain maximum')
        if self.client is not None and self.workers is not None:
            raise ValueError("client and workers are both given: a Dask client has its own workers")

    @property
    def draws(self) -> bool:
        """Whether parameters may be drawn under a neutral prior, and no number of iterations was asked for."""
        return self.prior == "neutral" and self.parameters == "integrated" and self.max_iterations is None

    def within(self, count: int) -> tuple[int, float, bool]:
        """Iterations, tolerance, and whether to find standard errors, for this many parameters."""
        few = count <= MOST_DENSE
        budget = DEFAULT_BUDGET[self.method] * (1 if few else MORE_FOR_MANY)
        tolerance = TOLERANCE if few else TOLERANCE_OF_MANY
        errors = count <= MOST_PARAMETERS
        return (
            budget if self.max_iterations is None else self.max_iterations,
            tolerance if self.tolerance is None else self.tolerance,
            errors if self.standard_errors is None else self.standard_errors,
        )


@many_solves(10)  # E-steps of a quick climb
def _fitted(settings: tuple[Parametrisation, ...], problems: tuple[Problem, ...], options: _Options) -> Fit:
    """`fit` of hidden counts, with the dispersion as it is given."""
    families = bind(settings, problems)
    if options.prior is None and tables_differ(families):
        raise ValueError(
            "context and shared are integrated over under priors of their scales: leave out prior=None"
        )
    budget, tolerance, errors = options.within(len(families[0].names))
    method, named, seed = options.method, options.engine, options.seed
    goal = None if options.truth is None else true_values(families[0], options.truth)
    identity = (settings, problems, repr(named), method, options.start, seed, tolerance)
    with running(problems, client=options.client, workers=options.workers) as mapper:
        expect = Expectation(
            families,
            problems,
            TiltedEP() if named is None else named,
            seed,
            cells_at_once(problems, tables_at_once(problems, mapper), starts=named is None),
        )
        checkpoints = _Checkpoints(options.checkpoint, expect, identity)
        climber = Climber(expect, method, budget, tolerance, goal, checkpoints.write, options.progress)
        begun = checkpoints.read() or begin(climber, options.start, choose=named is None)
        ended, status, information = searched(begun, climber, errors=errors, refine=options.refine)
        if status in {Status.STALLED, Status.BUDGET} and options.draws and ended.climb.point.status.good:
            # Along a ridge or an edge no climb arrives, and none must: draws are from the prior on, over all of it.
            drawn = is_over_draws(expect, ended.climb, information, options.estimate)
            status = Status.EDGE if drawn else status
        plug_ins: tuple[Posterior, ...] = ()
        if options.posteriors:  # once, for the plug-ins and for those that are integrated over the parameters
            at = replace(ended.climb.point, posteriors=expect.posteriors(ended.climb.point))
            ended = replace(ended, climb=replace(ended.climb, point=at))
            plug_ins = integrated(expect, ended.climb, None)
        integrate = _later(expect, ended, information, options)
    point = ended.climb.point
    made = Fit(
        parametrisations=settings,
        templates=tuple(p.model for p in problems),
        working=point.x,
        evidence=point.evidence,
        log_prior=point.log_prior,
        status=status,
        notes=(*_notes(ended, information, families[0].names), *_size_notes(families, problems)),
        rows=ended.rows,
        information=information,
        method=method,
        engine=expect.engine.name,
        start=ended.start,
        optima=ended.optima,
        e_steps=ended.e_steps,
        searched=ended.searched,
        seconds=ended.seconds,
        data=fingerprint([data_of(p) for p in problems]),
        last=tuple(last_node(p) for p in plug_ins),
        plug_ins=plug_ins,
        integrate=integrate,
        shrinkage=ended.strengths,
    )
    if options.strict and not status.good:
        raise FitNotConvergedError(made, tolerance)
    return made


def _later(
    expect: Expectation, ended: ClimbState, information: Information | None, options: _Options
) -> Callable[[], tuple[Posterior, ...]] | None:
    """Makes the posteriors that include the parameters' uncertainty when they are asked for; None where that is not to be."""
    if options.parameters == "plug-in" or information is None:
        return None
    own = replace(expect, mapper=run_here)  # what a fit keeps can be pickled
    make = partial(_integrate, own, information, ended, options)
    return make if options.client is None else partial(tuple, make())  # the client may be closed by then


def _integrate(
    expect: Expectation, information: Information, ended: ClimbState, options: _Options
) -> tuple[Posterior, ...]:
    """The posteriors integrated over the parameters, with the same workers as the fit."""
    with running(expect.problems, client=options.client, workers=options.workers) as mapper:
        own = replace(
            expect,
            mapper=cells_at_once(expect.problems, tables_at_once(expect.problems, mapper), starts=False),
        )
        neutral = options.prior == "neutral"
        return integrated(
            own,
            ended.climb,
            information,
            ended.optima,
            neutral=neutral,
            estimate=options.estimate,
            progress=options.progress,
        )


def _dispersed(
    settings: tuple[Parametrisation, ...], problems: tuple[Problem, ...], asked: ToEstimate, options: _Options
) -> Fit:
    """Parameters and a dispersion that is learned with them."""
    if tables_differ(bind(settings, problems)):
        asked = replace(asked, form="rho")
    quick = replace(options, standard_errors=None, strict=False, parameters="plug-in", posteriors=False)
    first = _fitted(settings, problems_on(problems, None), replace(quick, standard_errors=False))
    run = options.engine or choose_engine(first.families, problems, first.working)

    def learned(dispersion: Dispersion | None, start: Array, how: _Options) -> Fit:
        return _fitted(settings, problems_on(problems, dispersion), replace(how, engine=run, start=start))

    again = partial(learned, how=replace(quick, refine=False))
    working, found, notes = in_turn(problems, asked, run, first, again)
    made = learned(found.used, working, replace(options, estimate=found))
    found, said = with_common_causes(found, made.plug_ins)
    for posterior in made.plug_ins:
        posterior.outcome.info["dispersion"] = found
    people, phi = sum(p.typical_population for p in problems), found.value
    alone = (
        ""
        if found.form == "rho"
        else f"{people:.6g} individuals tell as much as {people / phi:.4g} that move alone"
    )
    return replace(
        made, dispersion=found, notes=(str(found), *filter(None, [alone, said]), *notes, *made.notes)
    )


def _paired(
    parametrisation: Parametrisation | Sequence[Parametrisation], problem: Problem | Sequence[Problem]
) -> tuple[tuple[Parametrisation, ...], tuple[Problem, ...]]:
    """One parametrisation per problem."""
    if isinstance(parametrisation, Problem):
        raise ModelError("the parametrisation comes first: hc.fit(hc.LogisticChain(features), problem)")
    problems = _each(problem, Problem, "problem", "a Problem, or a sequence of them")
    each = _settings(parametrisation, [p.model for p in problems])
    if len(each) != len(problems):
        return each, problems  # which bind says in words
    return tuple(one.for_problem(p) for one, p in zip(each, problems, strict=True)), problems


def _settings(parametrisation: Any, models: Sequence[Model]) -> tuple[Parametrisation, ...]:
    """The parametrisations that were given, or the one that was given for every model."""
    kinds = "LogisticChain, TabularChain, LogLinear or LearnRate"
    found = settle(_each(parametrisation, Parametrisation, "parametrisation", kinds), models)
    return found * len(models) if len(found) == 1 else found


def _each(given: Any, kind: type, what: str, expected: str) -> tuple[Any, ...]:
    """One or several things of a kind, as a tuple."""
    things = tuple(given) if is_sequence(given) else (given,)
    return tuple(instance(one, kind, what, expected=expected) for one in things)


def _named_engine(given: Engine | str | None, rng: Any) -> Engine | None:
    """The engine that was named, None where it is to be chosen; a random one needs a seed."""
    engine = as_engine(given)
    if engine.random and rng is None:
        raise ValueError(f"{engine.name} is random: give rng, so that the answer can be got again")
    find_device(getattr(engine, "device", "cpu"))  # before the search for a start
    return None if isinstance(engine, Auto) else engine


def _seed(rng: Any) -> int:
    """Of the E-steps of random engines; it takes a number from a generator that was given."""
    return 0 if rng is None else int(generator(rng).integers(2**31))


@dataclass(frozen=True)
class _Checkpoints:
    """The file that holds the state of a climb, so that a killed fit goes on to the same answer."""

    path: str | Path | None
    """None: nothing is kept."""
    expect: Expectation
    identity: tuple[Any, ...]
    """Settings and data of the fit, of which the file holds the fingerprint."""

    @cached_property
    def mark(self) -> str:
        return fingerprint(*self.identity)

    def write(self, at: ClimbState) -> None:
        """Replace the file."""
        if self.path is not None:
            families = self.expect.families
            priors = [c.prior_numbers() for c in families[0].components]
            write(self.path, CHECKPOINT_KIND, [self.mark, priors, at], known=families)

    def read(self) -> ClimbState | None:
        """The state where there is one, with the priors that it had learned; refuse that of another fit."""
        if self.path is None or not Path(self.path).exists():
            return None
        remedy = "give another path, or delete it to begin anew"
        expect = self.expect
        # Positions in `known` are all that a file holds of the families; their learned priors are put back below.
        mark, priors, at = read(self.path, CHECKPOINT_KIND, known=expect.families, remedy=remedy)
        if mark != self.mark:
            raise ValueError(
                f"the checkpoint {str(self.path)!r} belongs to another fit (other data, parametrisation, engine, method, "
                f"start or seed): {remedy}"
            )
        if any(priors):
            expect.families = tuple(f.with_priors(priors) for f in expect.families)
            point = at.climb.point
            point = replace(point, objective=replace(point.objective, families=expect.families))
            at = replace(at, climb=replace(at.climb, point=point))
        expect.e_steps = at.e_steps
        if at.engine_at is not None:
            expect.engine = choose_engine(expect.families, expect.problems, at.engine_at)
        return at


def _size_notes(families: Sequence[Family], problems: Sequence[Problem]) -> tuple[str, ...]:
    """What counts cannot tell of unknown numbers of individuals."""
    pairs = list(zip(families, problems, strict=True))
    if any(f.find(Rate) is not None and not p.size_known for f, p in pairs):
        return (
            "the rate and the number of individuals are told apart only by what was said of the number: counts give their product",
        )
    if any(f.find(Detection) is not None and not p.size_known for f, p in pairs):
        return (
            "detection and the number of individuals are told apart by counts of the same individuals again and again: read the standard "
            "errors, and say what is known of the number (About) where they are large",
        )
    return ()


def _notes(at: ClimbState, information: Information | None, names: Sequence[str]) -> tuple[str, ...]:
    """What a reader of the result should know."""
    notes = rival_notes(at.optima, names)
    last = abs(at.rows[-1]["objective"])
    falls = [r for r in at.rows if r["decrease"] > 1e-9 * (1 + last)]
    if falls:
        worst = max(falls, key=lambda r: r["decrease"])
        notes.append(
            f"the evidence fell in {len(falls)} of {len(at.rows) - 1} steps, by at most {worst['decrease']:.2g} nats "
            f"(iteration {worst['iteration']}): the engine's gradient is not the derivative of its evidence"
        )
    most = max(r["negative"] for r in at.rows)
    if most > 0:
        notes.append(
            f"the engine expected counts below zero (up to {most:.3g} in all): they were left out of the M-step"
        )
    if at.climb.point.excess > 1:
        notes.append(f"the last E-step missed its tolerance by a factor of {at.climb.point.excess:.2g}")
    if information is not None:
        point, left = at.climb.point, at.rows[-1]["residual"]
        if left > CLOSE_ENOUGH:
            notes.append(f"the search ended {distance(left)}")
        notes += [
            *information.notes(),
            *prior_note(information, point.objective.prior_information(point.x), names),
        ]
    return tuple(notes)


def fit_complete(
    parametrisation: Parametrisation | Sequence[Parametrisation],
    model: Model | Sequence[Model],
    tables: Any,
    *,
    truth: Any = None,
) -> Fit:
    """Maximise E log p(n; x) + log prior(x) for known tables n: the floor of what any data can give.

    Parameters
    ----------
    parametrisation
        As for `fit`.
    model
        Variables, states and what is not learned, one per set of tables.
    tables
        Counts, observed or expected: `CountTables`, a mapping from scopes to arrays, or a function of a scope;
        a list of such for several models.
    truth
        As for `fit`; the error is the trace's only row.

    Returns
    -------
    Fit
        Without evidence or posteriors; standard errors are those of complete counts.
    """
    began = time.perf_counter()
    settings, models, lookups = _sets(parametrisation, model, tables)
    families: list[Family] = [s.bind(m) for s, m in zip(settings, models, strict=True)]
    statistics = [f.statistics(t, None) for f, t in zip(families, lookups, strict=True)]
    for table in (table for own in statistics for table in own):
        require_counts(np.asarray(table))
    objective, x, strengths = _maximum(Objective(families, statistics))
    families = list(objective.families)
    moves = sum(
        t((m.variables[0],)).sum() * max(1, len(m.variables) - 1)
        for t, m in zip(lookups, models, strict=True)
    )
    known, endless, notes = _told(objective, x, float(moves))
    gradient = objective.gradient(x)
    residual = float(np.sqrt(max(float(gradient @ objective.solve(x, gradient)), 0.0)))
    row: dict[str, Any] = {
        "iteration": 0,
        "e_steps": 0,
        "evidence": float("nan"),
        "objective": float("nan"),
        "step": 0.0,
        "residual": residual,
        "decrease": 0.0,
        "negative": 0.0,
        "seconds": time.perf_counter() - began,
    }
    if truth is not None:
        row["error"] = relative_error(families[0], x, true_values(families[0], truth))
    reached = not endless and residual <= LARGEST_RESIDUAL
    return Fit(
        parametrisations=settings,
        templates=models,
        working=x,
        evidence=float("nan"),
        log_prior=objective.log_prior(x),
        status=Status.EXACT if reached else Status.STALLED,
        notes=tuple(notes),
        rows=(row,),
        information=known,
        method="complete counts",
        engine="none",
        start="zero",
        e_steps=0,
        seconds=row["seconds"],
        data=fingerprint([list(s) for s in statistics]),
        shrinkage=strengths,
    )


def known_tables(problem: Problem) -> CountTables | None:
    """Every table of a chain's steps where all flows are observed exactly; None where anything is hidden, or dispersion is given."""
    model, steps = problem.model, list(itertools.pairwise(problem.model.variables))
    given = problem.dispersion is not None and not problem.together.estimated
    if given or not problem.plain or model.as_chain() is None:
        return None
    exact = {
        s.scope: s.noise.counts.reshape(model.size(s.scope))
        for s in problem.sites
        if s.whole and s.noise.exact
    }
    if not steps or not exact.keys() >= set(steps):
        return None
    return CountTables(model, {step: exact[step] for step in steps})


def fit_known(
    settings: Sequence[Parametrisation],
    problems: Sequence[Problem],
    tables: Sequence[CountTables],
    truth: Any,
    asked: ToEstimate | None = None,
) -> Fit:
    """`fit` where all flows were observed: nothing is hidden, and one M-step is the maximum."""
    made = fit_complete(settings, [p.model for p in problems], list(tables), truth=truth)
    evidence = 0.0
    last = []
    for model, p, t in zip(made.models, problems, tables, strict=True):
        evidence += CGM(model, p.population).log_pmf(CountTables(model, dict(t.tables)))
        counts = np.asarray(t.table(p.model.variables[-1:]), dtype=float)
        last.append(LastCounts(counts, np.zeros((len(counts), len(counts))), p.population))
    notes = ["all flows were observed exactly: nothing is hidden, so there is no posterior beside them"]
    dispersion = None
    if asked is not None:
        chains = [chain for m in made.models if (chain := m.as_chain()) is not None]
        dispersion = from_flows(chains, tables, asked)
        evidence += dispersion.gain
        notes.insert(0, str(dispersion))
    return replace(
        made,
        evidence=evidence,
        notes=(*made.notes, *notes),
        last=tuple(last),
        data=fingerprint([data_of(p) for p in problems]),
        dispersion=dispersion,
    )


def _told(objective: Objective, x: Array, moves: float) -> tuple[Information | None, list[str], list[str]]:
    """What complete counts say of the parameters: the information, the weights that would grow without end, and notes of both."""
    if len(x) > MOST_COMPLETE:
        return None, [], []
    family, information = objective.families[0], objective.information(x)
    known = complete_information(information, family.names, moves)
    endless = without_maximum(family, x, information)
    notes = [f"not identified: {d}" for d in known.unidentified]
    if endless:
        notes.append(
            f"there is no finite maximum: {', '.join(endless)} would grow without end (some moves are always or never made); "
            "give a ridge, or leave the feature out"
        )
    return known, endless, notes


def _maximum(objective: Objective) -> tuple[Objective, Array, dict[str, float]]:
    """The maximum, with priors that are learned learned."""
    x = objective.maximise(objective.families[0].start())
    strengths: dict[str, float] = {}
    for _ in range(PRIOR_ROUNDS):
        found = objective.shrunk(x)
        if found is None:
            break
        objective, before = replace(objective, families=found[0]), strengths
        x, strengths = objective.maximise(x), found[1]
        if settled(before, strengths):
            break
    return objective, x, strengths


def _sets(
    parametrisation: Any, model: Any, tables: Any
) -> tuple[tuple[Parametrisation, ...], tuple[Model, ...], list[Tables]]:
    """One parametrisation, one model and one function from scopes to tables per set of counts."""
    models = _each(model, Model, "model", "a model, or a sequence of them")
    found = list(tables) if isinstance(tables, (list, tuple)) else [tables]
    settings = _settings(parametrisation, models)
    if not len(settings) == len(models) == len(found):
        raise ModelError(
            f"{len(settings)} parametrisations, {len(models)} models and {len(found)} sets of tables: give one of "
            "each, or as many"
        )
    return settings, models, [_lookup(t) for t in found]


def _lookup(tables: Any) -> Tables:
    """A function from a scope to its table."""
    if isinstance(tables, CountTables):
        return tables.table
    if isinstance(tables, Mapping):
        return lambda scope: np.asarray(tables[scope], dtype=float)
    if isinstance(tables, Callable):  # type: ignore[arg-type]
        return tables
    raise ModelError(
        f"tables is a {type(tables).__name__}: give CountTables, a mapping from scopes to arrays, or a function"
    )
