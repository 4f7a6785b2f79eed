"""A series that goes on: later counts, and times of which nothing is known yet.

Both are one inference that begins with the last counts of an earlier one (`headcount.observe.Start`): `update` with new counts, `forecast`
without any. A forecast is so a posterior like any other, with flows, intervals, draws, groups and arrivals.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headcount.checks import brief, whole_number
from headcount.engines import Engine, Posterior
from headcount.errors import ProblemError
from headcount.individual import Model
from headcount.learn._infer import infer
from headcount.learn._result import following
from headcount.observe import Observation, Problem
from headcount.observe._base import is_labelled
from headcount.population import Group

Future = Model | Mapping[Hashable, Group]


def update(
    post: Posterior,
    counts: Any,
    *,
    times: Sequence[Hashable] | None = None,
    model: Future | None = None,
    engine: Engine | str | None = None,
    rng: np.random.Generator | int | None = None,
    strict: bool = True,
) -> Posterior:
    """Infer the times after a posterior's last one from their counts; the past is not inferred again.

    Parameters
    ----------
    post
        The earlier run.
    counts
        Of the new times, ``(H, L)``, seen with the noise of the earlier counts; or observations with other noises, labelled or ``(H, L)``.
    times
        Names of the H new times; counted on from the last one where these are numbers or dates.
    model
        The chain of the last time and the new ones (or ``{name: Group}``), where steps change with time.
    engine, rng, strict
        As for `infer`.

    Returns
    -------
    Posterior
        Of the last time, revised by the new counts, and of the new ones.

    Examples
    --------
    >>> import headcount as hc
    >>> chain = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], length=3)
    >>> post = hc.infer(hc.Problem(chain, 1000, hc.Poisson([[500, 480], [520, 470], [560, 450]])))
    >>> more = post.update([[570, 430]])
    >>> more.node(3).mean.round().values
    array([586., 414.])
    """
    seen = (
        [counts] if isinstance(counts, Observation) or not isinstance(counts, (list, tuple)) else list(counts)
    )
    plain = not all(isinstance(one, Observation) for one in seen)
    given = [_like_before(post.problem, counts)] if plain else seen
    length = len(given[0].counts) if times is None and model is None else None
    future = _future(post.problem, model, times, length)
    first = [_from_the_last(one, len(_times(future))) for one in given]
    problem = _problem(post.problem, future, first)
    return infer(problem, engine, start=post, rng=rng, strict=strict)


def forecast(
    post: Posterior,
    steps: int | None = None,
    *,
    times: Sequence[Hashable] | None = None,
    model: Future | None = None,
) -> Posterior:
    """What is expected after a posterior's last time: counts and flows with intervals, of which nothing was seen.

    Parameters
    ----------
    post
        The earlier run.
    steps
        How many, where the steps of the chain are alike.
    times
        Names of the new times.
    model
        The chain of the last time and the new ones (or ``{name: Group}``), where steps change with time.

    Examples
    --------
    >>> import headcount as hc
    >>> chain = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], length=3)
    >>> post = hc.infer(hc.Problem(chain, 1000, hc.Poisson([[500, 480], [520, 470], [560, 450]])))
    >>> ahead = post.forecast(2)
    >>> bool(ahead.node(4).sd[0] > post.node(2).sd[0])
    True
    """
    count = None if steps is None else whole_number(steps, "steps", least=1)
    if count is None and times is None and model is None:
        raise ValueError("say how far: steps, the names of the times, or the model of the new times")
    future = _future(post.problem, model, times, count)
    return infer(_problem(post.problem, future, []), start=post)


def _future(
    problem: Problem, model: Future | None, times: Sequence[Hashable] | None, length: int | None
) -> Future:
    """The chain, or chains, of the last time and the new ones."""
    if model is not None:
        return model
    known = problem.model.variables
    later = following(known, int(length or 0)) if times is None else tuple(times)
    if problem.groups is not None:
        return {n: replace(g, model=g.chain.continued(later)) for n, g in problem.groups.items()}
    chain = problem.model.as_chain()
    if chain is None:
        raise ProblemError(
            f"a {type(problem.model).__name__} has no last time to go on from: only chains have one"
        )
    return chain.continued(later)


def _times(future: Future) -> tuple[Hashable, ...]:
    chain = next(iter(future.values())).model if isinstance(future, Mapping) else future
    return chain.variables


def _problem(past: Problem, future: Future, observations: Sequence[Observation]) -> Problem:
    """The new problem, with what the past said of the number of individuals and how they move together."""
    together = None if past.model.concentration is not None else past.dispersion
    if isinstance(future, Mapping):
        return Problem(groups=future, observations=observations, dispersion=together)
    number = None if future.expected_number is not None else past.population
    return Problem(future, number, observations, dispersion=together)


def _like_before(problem: Problem, counts: Any) -> Observation:
    """New counts with the noise of the old ones, where that is one noise with one value of every parameter."""
    if len(problem.observations) != 1:
        raise ValueError(
            f"the past has {len(problem.observations)} observations: give the new counts with their noises, such as hc.Poisson(counts)"
        )
    (noise,) = problem.observations
    varying = [name for name, value in noise.entry_parameters().items() if np.ndim(value) > 0]
    if varying or noise.sums is not None or noise.on is not None or noise.correlated:
        raise ValueError(
            f"the noise of the past is not the same for all counts ({', '.join(varying) or 'sums, or tables of its own'}): give the new "
            f"counts with theirs, {type(noise).__name__}(counts, ...)"
        )
    values = counts if is_labelled(counts) else np.asarray(counts, dtype=float)
    return noise.replaced({"counts": values})


def _from_the_last(noise: Observation, times: int) -> Observation:
    """An observation of the new times as one of the last and the new ones: nobody looked at the last again."""
    counts = noise.counts
    if is_labelled(counts) or isinstance(counts, Mapping) or noise.on is not None:
        return noise
    if np.ndim(counts) != 2 or len(counts) not in (times, times - 1):
        raise ValueError(f"counts are {brief(counts)}: give one row per new time, {times - 1}")
    if len(counts) == times:
        return noise

    def longer(value: Any) -> Any:
        return (
            value
            if np.ndim(value) < 2
            else np.concatenate([np.full((1, *np.shape(value)[1:]), np.nan), value])
        )

    return noise.replaced(
        {"counts": longer(counts)} | {n: longer(v) for n, v in noise.entry_parameters().items()}
    )
