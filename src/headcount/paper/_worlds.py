"""The data sets of every experiment, and what is measured on them.

relative error = ‖n_app − n_ref‖₁ / ‖n_ref‖₁, over all times at once
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headcount import engines
from headcount.engines import Engine, infer
from headcount.observe import Poisson, Problem
from headcount.paper._task import Setting
from headcount.simulate import World, birds

if TYPE_CHECKING:
    from headcount.engines import Beliefs, Posterior

Array = NDArray[np.float64]


def world_of(setting: Setting, data_set: int, *, sequence: int = 0) -> World:
    """Simulated birds; the seed is made of the setting, the data set and the sequence."""
    seed = setting.seed(data_set, 1000 * sequence)
    return birds(
        setting.side,
        setting.weights,
        setting.population,
        steps=setting.steps,
        rng=np.random.default_rng(seed),
    )


def problem_of(world: World) -> Problem:
    """Unit-rate Poisson counts of every cell at every time."""
    return Problem(world.model, world.population, (Poisson(world.observed),))


def engine_of(name: str, options: Mapping[str, Any]) -> Engine:
    """An engine by its public name."""
    made = getattr(engines, name)(**options)
    assert isinstance(made, Engine)
    return made


def run_engine(problem: Problem, name: str, options: Mapping[str, Any], *, seed: list[int]) -> Posterior:
    """Infer; a run that did not converge comes back marked, so that the table can count it."""
    engine = engine_of(name, options)
    rng = np.random.default_rng(seed) if engine.random else None
    return infer(problem, engine, rng=rng, strict=False, progress=False)


def tables_of(beliefs: Beliefs, steps: int) -> dict[str, Array]:
    """Expected counts (T, L) and flows (T − 1, L, L)."""
    return {
        "node": np.stack([beliefs.mean((t,)) for t in range(steps)]),
        "edge": np.stack([beliefs.mean((t, t + 1)) for t in range(steps - 1)]),
    }


def relative_error(estimate: Array, reference: Array) -> float:
    """‖estimate − reference‖₁ / ‖reference‖₁."""
    return float(np.abs(estimate - reference).sum() / np.abs(reference).sum())
