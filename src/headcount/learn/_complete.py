"""Learning from complete counts: what the parameters would be if nothing were hidden. One M-step."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headcount._types import Array
from headcount.engines import Status
from headcount.individual import MarkovChain, Model, ModelError
from headcount.learn._dispersion import from_flows
from headcount.learn._family import Family, Parametrisation, Tables, relative_error, settle, true_values
from headcount.learn._files import data_of, fingerprint
from headcount.learn._forecast import LastCounts
from headcount.learn._information import Information, complete_information
from headcount.learn._objective import PRIOR_ROUNDS, Objective, settled
from headcount.learn._result import Fit
from headcount.observe import Problem
from headcount.population import CGM, CountTables, ToEstimate

MOST_PARAMETERS = 5000
"""Parameters up to which the information, a dense matrix, is made: 200 MB."""
LARGEST_RESIDUAL = 1e-4
"""Standard errors from the maximum beyond which Newton's method has not arrived."""
LARGEST_LOG_ODDS = 15.0
"""Log-odds of a single weight that no count of individuals can support: e^15 is three million."""


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
    """Every table of a chain's steps where all flows are observed exactly; None where anything is hidden."""
    if not _one_known_chain(problem):
        return None
    model = problem.model
    exact = [s for s in problem.sites if s.noise.exact and s.whole]
    whole = {s.scope: s.noise.counts.reshape(model.size(s.scope)) for s in exact}
    steps = list(itertools.pairwise(model.variables))
    known = bool(steps) and set(steps) <= whole.keys()
    return CountTables(model, {step: whole[step] for step in steps}) if known else None


def _one_known_chain(problem: Problem) -> bool:
    """Whether counts are all there is: a chain, no unknown size, no groups, no tracks, nobody's company given."""
    alone = problem.dispersion is None or isinstance(problem.dispersion, ToEstimate)
    closed = isinstance(problem.model, MarkovChain) and problem.size_known
    return closed and alone and not (problem.tracks or problem.groups)


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
        chains = [m for m in made.models if isinstance(m, MarkovChain)]
        flows = [
            [t.table(pair) for pair in itertools.pairwise(m.times)]
            for m, t in zip(chains, tables, strict=True)
        ]
        dispersion = from_flows(chains, flows, asked)
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
    if len(x) > MOST_PARAMETERS:
        return None, [], []
    family, information = objective.families[0], objective.information(x)
    known = complete_information(information, family.names, moves)
    endless = _without_maximum(family, x, information)
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
    models = (model,) if isinstance(model, Model) else tuple(model)
    found = list(tables) if isinstance(tables, (list, tuple)) else [tables]
    settings = (parametrisation,) if isinstance(parametrisation, Parametrisation) else tuple(parametrisation)
    settings = settle(settings, models)
    settings = settings * len(models) if len(settings) == 1 else settings
    if not len(settings) == len(models) == len(found):
        raise ModelError(
            f"{len(settings)} parametrisations, {len(models)} models and {len(found)} sets of tables: give one of "
            "each, or as many"
        )
    return settings, models, [_lookup(t) for t in found]


def _without_maximum(family: Family, x: Array, information: Array) -> list[str]:
    """Names of weights that grow without end: large log-odds, of which the counts leave nothing to learn."""
    reach = np.concatenate([c.reach(p) for c, p in zip(family.components, family.split(x), strict=True)])
    weak = np.diagonal(information) * x**2 < 1.0  # a standard error larger than the weight itself
    return [n for n, far in zip(family.names, (reach > LARGEST_LOG_ODDS) & weak, strict=True) if far]


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
