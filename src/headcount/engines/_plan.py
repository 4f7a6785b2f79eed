r"""What a run will take, before it takes it: memory (see ``_cost``) and time from the sizes of the tables.

A Gaussian engine spends about :math:`30\, L_u L_v \max(L_u, L_v)` operations per edge and sweep. MAP touches every possible move a few
times per iteration. A sampler's sweep draws N·V states from rows of L. The constants were measured at L = 100 … 400; expect a
factor of two.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount._linalg import threads_for
from headcount.engines._cost import BYTES, memory_of, sizes
from headcount.engines._infer import chosen

if TYPE_CHECKING:
    from headcount.engines._engine import Engine
    from headcount.observe import Problem

_GAUSSIAN_SWEEPS = {"TiltedEP": 12, "Laplace": 9, "EdgeEP": 400, "ClosedForm": 1}
"""Sweeps that an engine usually needs (medians over the benchmark's problems)."""
_POINT_ITERATIONS = {"MAP": 30, "NLBP": 200}
_WRITTEN_TABLES = 40
"""Tables of possible moves held while a results folder is written."""
_DENSE_MOVE, _SPARSE_MOVE = 1e-8, 8e-8
"""Seconds per iteration and possible move that belief propagation takes."""
_PATH_STATE, _TABLE_MOVE = 6e-9, 4e-7
"""Seconds per state that a path sampler weighs, and per move of the table sampler."""
_EDGE_OVERHEAD = 2e-4
"""Fixed cost per edge per sweep, in seconds."""


@dataclass(frozen=True)
class Plan:
    """What a run will take.

    Attributes
    ----------
    engine, reason
        Which engine, and why it was chosen.
    memory
        Bytes at the peak of inference.
    writing
        Bytes at the peak of writing the results with flows and intervals.
    seconds
        Of inference, on this machine as it is now; NaN for an engine without a formula.
    """

    engine: str
    reason: str
    memory: int
    writing: int
    seconds: float

    @property
    def peak(self) -> int:
        """The larger of the two."""
        return max(self.memory, self.writing)


def plan(problem: Problem, engine: Engine | str | None = None, *, rate: float | None = None) -> Plan:
    """Predict memory and time of ``infer(problem, engine)``; nothing large is allocated.

    Parameters
    ----------
    engine
        What ``infer`` would pick when None.
    rate
        Floating-point operations a second; measured in a few milliseconds when None.

    Examples
    --------
    >>> from headcount import Poisson, Problem, simulate
    >>> world = simulate.birds(side=4, population=480, steps=5, rng=1)
    >>> plan(Problem(world.model, 480, [Poisson(world.observed)])).engine
    'TiltedEP'
    """
    choice = chosen(problem, engine)
    speed = operations_per_second() if rate is None else rate
    memory = memory_of(problem, choice.engine)
    writing = memory + BYTES * _WRITTEN_TABLES * sizes(problem).tables
    return Plan(choice.engine.name, choice.reason, memory, writing, _seconds(problem, choice.engine, speed))


def _seconds(problem: Problem, run: Any, speed: float) -> float:
    """Seconds of inference; NaN for an engine without a formula."""
    tables, _, cubes = sizes(problem)
    edges = max(len(problem.model.junction_tree.cliques), 1)
    if run.name in _GAUSSIAN_SWEEPS:
        return _GAUSSIAN_SWEEPS[run.name] * (30 * cubes / speed + _EDGE_OVERHEAD * edges)
    if run.name in _POINT_ITERATIONS:
        each = _SPARSE_MOVE if _is_sparse(problem) else _DENSE_MOVE
        return _POINT_ITERATIONS[run.name] * (each * tables + _EDGE_OVERHEAD * edges)
    if run.name == "PathGibbs":
        widest = max(len(s) for s in problem.model.states.values())
        states = problem.population * len(problem.model.variables) * widest
        return float(run.chains * (run.burn_in + run.sweeps) * states * _PATH_STATE / run.workers)
    if run.name == "Gibbs":
        return float(run.chains * (run.burn_in + run.moves) * _TABLE_MOVE / run.workers)
    return float("nan")


def _is_sparse(problem: Problem) -> bool:
    tree = problem.model.rooted()
    return tree is not None and any(hasattr(m, "nnz") for m in tree.transitions)


def operations_per_second(size: int = 192, *, seconds: float = 0.02) -> float:
    """Rate of a matrix product on this machine as it is now, one thread."""
    matrix = np.random.default_rng(0).standard_normal((size, size))
    with threads_for(size):
        matrix @ matrix
        best, start = np.inf, time.perf_counter()
        while time.perf_counter() - start < seconds:
            begun = time.perf_counter()
            matrix @ matrix
            best = min(best, time.perf_counter() - begun)
    return 2.0 * size**3 / best
