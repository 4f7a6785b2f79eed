"""The verb."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headcount.engines._auto import select
from headcount.posterior._posterior import Posterior
from headcount.posterior._status import NotConvergedError

if TYPE_CHECKING:
    from headcount.engines._engine import Engine
    from headcount.observe import Problem


def infer(
    problem: Problem,
    engine: Engine | None = None,
    *,
    rng: np.random.Generator | int | None = None,
    strict: bool = True,
    progress: bool | None = None,
) -> Posterior:
    """Infer the hidden counts and flows of a problem.

    Parameters
    ----------
    problem
        What is known.
    engine
        How to infer; chosen from the problem's traits when None (``headcount.engines.select`` says what and why).
    rng
        Seed or generator for random engines. They need one: without it the answer could not be got again.
    strict
        Raise :class:`NotConvergedError` when the engine did not reach its tolerance; False returns the answer, marked.
    progress
        Show a bar: None decides by itself (long runs on a terminal).

    Returns
    -------
    Posterior
        Labelled means, spreads and draws, with the status of the run.
    """
    chosen = select(problem).engine if engine is None else engine
    if chosen.random and rng is None:
        message = f"{chosen.name} is random: give rng (a seed or a numpy Generator), so that the answer can be got again"
        raise ValueError(message)
    outcome = chosen.run(problem, rng=np.random.default_rng(0 if rng is None else rng), progress=progress)
    if isinstance(rng, (int, np.integer)):
        outcome.info["seed"] = int(rng)
    posterior = Posterior(problem, chosen, outcome)
    if strict and not outcome.status.good:
        error = NotConvergedError(
            chosen.name, outcome.status, outcome.residual, outcome.tolerance, outcome.iterations
        )
        error.posterior = posterior
        raise error
    return posterior
