r"""What a run will take, before it takes it: memory and time from the sizes of the tables.

A Gaussian engine on a chain or tree holds about a dozen :math:`L_u \times L_v` matrices an edge and spends about
:math:`30\, L_u L_v \max(L_u, L_v)` operations on it a sweep; on a junction tree the same of every clique's features, and the map
from the clique's table to them. MAP touches every possible move a few times an iteration. A sampler's sweep draws N·V states from
rows of L. The constants were measured at L = 100 … 400; expect a factor of two.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount._linalg import threads_for
from headcount.engines._infer import chosen

if TYPE_CHECKING:
    from headcount.engines._engine import Engine
    from headcount.observe import Problem

_BYTES = 8
_GAUSSIAN = {"TiltedEP": 12, "Laplace": 9, "EdgeEP": 400, "ClosedForm": 1}
"""Sweeps that an engine usually needs."""
_POINT = {"MAP": 30, "NLBP": 200}
_HELD, _WRITTEN = 12, 40
"""Tables the size of an edge's that are held at once: by a Gaussian engine, and while a results folder is written."""
_DENSE, _SPARSE = 1e-8, 8e-8
"""Seconds an iteration and move that belief propagation takes."""
_DRAWN, _MOVED = 6e-9, 4e-7
"""Seconds a state that a path sampler weighs, and a move of the table sampler."""
_OVERHEAD = 2e-4
"""Seconds an edge and sweep that small tables cost all the same."""


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
    run: Any = choice.engine
    speed = operations_per_second() if rate is None else rate
    tables, squares, cubes = _sizes(problem)
    held = dict.fromkeys(_GAUSSIAN, _HELD * squares) | dict.fromkeys(_POINT, 4 * tables)
    entries = held.get(run.name, 3 * tables)
    edges = max(len(problem.model.junction_tree.cliques), 1)
    if run.name in _GAUSSIAN:
        seconds = _GAUSSIAN[run.name] * (30 * cubes / speed + _OVERHEAD * edges)
    elif run.name in _POINT:
        each = _SPARSE if _is_sparse(problem) else _DENSE
        seconds = _POINT[run.name] * (each * tables + _OVERHEAD * edges)
    elif run.name == "PathGibbs":
        paths = problem.population * len(problem.model.variables)
        entries += run.chains * (paths // 2 + 2 * tables)
        widest = max(len(s) for s in problem.model.states.values())
        sweeps = run.chains * (run.burn_in + run.sweeps)
        seconds = sweeps * paths * widest * _DRAWN / run.workers
    elif run.name == "Gibbs":
        entries += run.chains * 2 * tables
        seconds = run.chains * (run.burn_in + run.moves) * _MOVED / run.workers
    else:
        seconds = float("nan")
    return Plan(run.name, choice.reason, _BYTES * entries, _BYTES * (entries + _WRITTEN * tables), seconds)


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


def _sizes(problem: Problem) -> tuple[int, int, int]:
    """Entries of all clique tables (possible moves, where sparse); entries and operations of the Gaussian's matrices."""
    model = problem.model
    tree = model.rooted()
    if tree is not None:
        pairs = [m for m in tree.transitions if m is not None]
        tables = sum(int(getattr(m, "nnz", prod(m.shape))) for m in pairs) or len(tree.initial)
        squares = sum(max(m.shape) ** 2 for m in pairs) or len(tree.initial) ** 2
        cubes = sum(prod(m.shape) * max(m.shape) for m in pairs) or len(tree.initial) ** 3
        return tables, squares, cubes
    tables = squares = cubes = 0
    junction = model.junction_tree
    for k, clique in enumerate(junction.cliques):
        size = prod(model.size(tuple(clique)))
        separators = [s for a, b, s in junction.edges if k in (a, b)]
        seen = {site.scope for site in problem.sites if set(site.scope) <= set(clique)}
        width = sum(prod(model.size(tuple(s))) for s in {*map(tuple, separators), *seen})
        tables += size
        squares += width**2 + width * size // 4
        cubes += width**3 + width**2 * size
    return tables, squares, cubes
