"""`infer`: what is asked of a problem (a past, a dispersion, an unknown initial law) comes first, then an engine runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from headcount import engines
from headcount.engines import Engine, Posterior, select
from headcount.errors import known_keywords
from headcount.individual import ModelError
from headcount.learn._chains import LearnInitial
from headcount.learn._components import with_initial, with_transitions
from headcount.learn._dispersion import estimate_for, moving_together
from headcount.learn._fit import fit
from headcount.learn._initial import initial_response, integrated_exactly, listed_or_sampled
from headcount.observe import Problem, Start
from headcount.observe._problem import as_problem
from headcount.population import Dispersion, DispersionEstimate
from headcount.posterior import StoredPosterior
from headcount.posterior.derived import ViewBeliefs


@known_keywords()
def infer(
    problem: Problem,
    engine: Engine | str | None = None,
    *,
    start: Posterior | StoredPosterior | Start | None = None,
    dispersion: Dispersion | str | None = None,
    rng: np.random.Generator | int | None = None,
    strict: bool = True,
    progress: bool | None = None,
) -> Posterior:
    """Infer the hidden counts and flows of a problem; an initial distribution that is unknown is learned (`infer_initial`).

    Parameters
    ----------
    problem
        What is known.
    engine
        How to infer: an engine, or its name (``"MAP"``). None and ``Auto()`` choose from the problem
        (``headcount.engines.select`` says what and why).
    start
        The posterior of an earlier run, in memory or from its file, which ends at this problem's first time: the run goes on from its last
        counts, with their uncertainty and correlations. The problem has the new counts only; its initial distribution is not used.
    dispersion
        How individuals move together, instead of what the problem says: ``Flocks(5)``, ``Overdispersion(rho=0.01)``, or ``"estimate"`` for
        the dispersion with the most evidence (``post.dispersion_estimate``).
    rng
        Seed or generator for random engines. They need one: without it the answer could not be got again. A sampler that was chosen here
        (a few individuals on a large map) takes seed 0 where none is given.
    strict
        Raise `NotConvergedError` (`FitNotConvergedError` where the initial distribution is learned) when the tolerance was not
        reached; False returns the answer, marked.
    progress
        Show a bar: None decides by itself (long runs on a terminal).

    Returns
    -------
    Posterior
        Labelled means, spreads and draws, with the status of the run; ``outcome.info["initial"]`` where the initial
        distribution was learned.

    Examples
    --------
    >>> import headcount as hc
    >>> chain = hc.MarkovChain(None, [[0.9, 0.1], [0.2, 0.8]], length=3)
    >>> counts = [[float("nan"), float("nan")], [62, 38], [60, 41]]
    >>> hc.infer(hc.Problem(chain, 100, hc.Poisson(counts))).outcome.info["initial"]
    'learned from all counts under a flat prior, its uncertainty included'
    """
    problem = as_problem(problem)
    if dispersion is not None:
        problem = moving_together(problem, dispersion)
    if start is not None:
        problem = problem.after(start if isinstance(start, Start) else start.last)
    if problem.groups is not None and not problem.model.initial_known:
        if not problem.size_known:
            raise ModelError(
                "a group has neither a known size nor an initial distribution: give one of them, MarkovChain(initial, ...) or a number"
            )
        return _several_initials(problem, engine, rng=rng, strict=strict, progress=progress)
    problem, unknown = _with_initial(problem)
    run = infer_initial if unknown else engines.run
    if not problem.together.estimated:
        return run(problem, engine, rng=rng, strict=strict, progress=progress)
    estimate = _estimated_dispersion(problem, engine, unknown=unknown)
    made = run(problem.with_dispersion(estimate.used), engine, rng=rng, strict=strict, progress=progress)
    made.outcome.info["dispersion"] = estimate
    return made


def infer_initial(
    problem: Problem,
    engine: Engine | str | None = None,
    *,
    rng: np.random.Generator | int | None = None,
    strict: bool = True,
    progress: bool | None = None,
) -> Posterior:
    """Infer with an unknown initial distribution: flat prior, learned from all counts, its uncertainty included.

    Parameters
    ----------
    problem
        A chain; an initial distribution that its model has is not used.
    engine, rng, strict, progress
        As for `infer`.

    Returns
    -------
    Posterior
        Its problem has the learned initial distribution; ``outcome.info["initial"]`` says so. An engine without spread (`MAP`)
        gives the most probable counts under it.

    Examples
    --------
    >>> import headcount as hc
    >>> chain = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], length=3)
    >>> counts = [[float("nan"), float("nan")], [62, 38], [60, 41]]
    >>> problem = hc.Problem(chain, 100, hc.Poisson(counts))
    >>> found = infer_initial(problem)
    >>> bool(found.node(0).sd[0] > hc.infer(problem).node(0).sd[0])
    True
    """
    blank = problem
    chain = problem.model.as_chain()
    if chain is not None and chain.initial_known:
        blank = with_initial(problem, None)
    if listed_or_sampled(blank, engine):
        return integrated_exactly(blank, engine, rng=rng, strict=strict, progress=progress)
    found = fit(
        LearnInitial(), blank, engine, standard_errors=False, rng=rng, strict=strict, progress=progress
    )
    posterior = found.posterior
    picked = select(posterior.problem, sampling=False) if engine is None else None
    if picked is not None and picked.engine.name == posterior.engine:
        posterior.outcome.info["chosen"] = picked
    if isinstance(rng, (int, np.integer)):
        posterior.outcome.info["seed"] = int(rng)
    return posterior


def _several_initials(problem: Problem, engine: Engine | str | None, **options: Any) -> Posterior:
    """Groups of known size with unknown initial distributions: the chain of (group, cell) has one that is learned beside exact sizes."""
    sizes = [member.law.most for member in problem.cloud.members]
    candidates = problem.cloud.candidates(sizes, sizes)
    closed = problem.of_candidates(candidates)
    chain = closed.model.as_chain()
    assert chain is not None
    found = infer(problem.unfolded(closed, with_transitions(chain, None)), engine, **options)
    evidence = found.beliefs.log_evidence
    seen = ViewBeliefs(
        found.beliefs,
        candidates.cloud.view(),
        None if evidence is None else evidence - candidates.log_sizes,
        found.diagnostics,
        candidates,
    )
    return Posterior(problem, found.settings, replace(found.outcome, beliefs=seen))


def _with_initial(problem: Problem) -> tuple[Problem, bool]:
    """The problem, and whether its initial distribution is unknown; with a single cell everybody begins there."""
    chain = problem.model.as_chain()
    if chain is None or chain.initial_known:
        return problem, False
    if len(chain.states[chain.variables[0]]) > 1:
        return problem, True
    return with_initial(problem, [1.0]), False


def _estimated_dispersion(
    problem: Problem, engine: Engine | str | None, *, unknown: bool
) -> DispersionEstimate:
    """The dispersion with the most evidence; with an initial distribution that is unknown, the evidence integrated over it."""
    if not unknown:
        return estimate_for(problem, engine)
    plain = problem.with_dispersion(None)
    family = LearnInitial().bind(plain.model)
    known = problem.with_model(infer_initial(plain, engine, strict=False).problem.model)
    shares = known.model.marginal((known.model.variables[0],))
    x = family.components[0].log_odds(shares[None])  # type: ignore[attr-defined]

    def refine(posterior: Posterior) -> float | None:
        return initial_response(posterior, family, x).log_evidence

    return estimate_for(known, engine, refine)
