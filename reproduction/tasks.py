"""What the experiments compute: settings, tasks and their results; the simulated data and the measure of error.

relative error = ‖n − n_ref‖₁ / ‖n_ref‖₁, over all times at once
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headcount import engines
from headcount.engines import Engine, run
from headcount.observe import Poisson, Problem
from headcount.simulate import World, birds
from reproduction import rivals

if TYPE_CHECKING:
    from headcount.posterior import Beliefs, Posterior

Array = NDArray[np.float64]
Inputs = Mapping[str, Mapping[str, Array]]
"""Arrays of the tasks that a task reads, by role and name."""
SEED = 20140621
"""The first word of every seed."""


@dataclass(frozen=True)
class Setting:
    """One configuration of the birds: ℓ, the scale s of w = s·(1, 2, 2, 2), N and T."""

    side: int
    weight: float
    population: int
    steps: int = 20

    @property
    def cells(self) -> int:
        """L = ℓ²."""
        return self.side**2

    @property
    def weights(self) -> tuple[float, float, float, float]:
        """w."""
        return (self.weight, 2 * self.weight, 2 * self.weight, 2 * self.weight)

    def seed(self, data_set: int, stream: int) -> list[int]:
        """Words for a generator: stream 0 makes the world, others drive random engines."""
        weight = round(1000 * self.weight)
        return [SEED, self.side, weight, self.population, self.steps, data_set, stream]


@dataclass(frozen=True)
class Row:
    """One number: what it is, at which step of a curve (−1: none), and its value."""

    quantity: str
    value: float
    step: int = -1


@dataclass(frozen=True, eq=False)
class Result:
    """What a task returns: numbers to keep, and arrays that other tasks read."""

    rows: tuple[Row, ...]
    arrays: Mapping[str, Array] = field(default_factory=dict)


Compute = Callable[[Setting, int, str, Mapping[str, Any], Inputs], Result]


@dataclass(frozen=True, eq=False)
class Task:
    """One thing to compute.

    Attributes
    ----------
    kind
        What is computed; with setting, data set, engine and options it names the task in ``results.parquet``.
    compute
        The function that computes it.
    setting, data_set, engine, options
        Its arguments.
    needs
        Tasks whose arrays it reads, by role.
    alone
        Whether no other task may run beside it, because it measures time.
    """

    kind: str
    compute: Compute
    setting: Setting
    data_set: int = 0
    engine: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: Mapping[str, Task] = field(default_factory=dict)
    alone: bool = False

    @property
    def name(self) -> tuple[Any, ...]:
        """The values of `NAME` that identify the task."""
        s, options = self.setting, json.dumps(dict(self.options), sort_keys=True)
        return (self.kind, s.cells, s.population, s.weight, self.data_set, self.engine, options)


NAME = ("kind", "cells", "population", "weight", "data_set", "engine", "options")
"""Columns of ``results.parquet`` that identify a task."""


def world_of(setting: Setting, data_set: int, *, sequence: int = 0) -> World:
    """Simulated birds; the seed is made of the setting, the data set and the sequence."""
    rng = np.random.default_rng(setting.seed(data_set, 1000 * sequence))
    return birds(setting.side, setting.weights, setting.population, steps=setting.steps, rng=rng)


def problem_of(world: World) -> Problem:
    """Unit-rate Poisson counts of every cell at every time."""
    return Problem(world.model, world.population, (Poisson(world.observed),))


def engine_of(name: str, options: Mapping[str, Any]) -> Engine:
    """An engine of the library, or a published rival, by its name."""
    made = getattr(rivals if hasattr(rivals, name) else engines, name)(**options)
    assert isinstance(made, Engine)
    return made


def run_engine(problem: Problem, name: str, options: Mapping[str, Any], *, seed: list[int]) -> Posterior:
    """Infer; a run that did not converge comes back marked, so that the table can count it."""
    engine = engine_of(name, options)
    rng = np.random.default_rng(seed) if engine.random else None
    return run(problem, engine, rng=rng, strict=False, progress=False)


def tables_of(beliefs: Beliefs, steps: int) -> dict[str, Array]:
    """Expected counts (T, L) and flows (T − 1, L, L)."""
    return {
        "node": np.stack([beliefs.mean((t,)) for t in range(steps)]),
        "edge": np.stack([beliefs.mean((t, t + 1)) for t in range(steps - 1)]),
    }


def relative_error(estimate: Array, reference: Array) -> float:
    """‖estimate − reference‖₁ / ‖reference‖₁."""
    return float(np.abs(estimate - reference).sum() / np.abs(reference).sum())
