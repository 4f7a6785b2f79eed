"""E-steps of many populations of one cell (N-mixtures), all at once: one array of sums over N per set of parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from headcount.engines import MAP, Status
from headcount.individual import Model
from headcount.learn._expect import AtOnce, EStep, Expected, Mapper
from headcount.learn._populations import Detection, SizeMeans
from headcount.observe import Observation, Problem
from headcount.population import SizeLaw
from headcount.posterior.one_cell import OneCellReadings, has_one_cell, laws_of_size


@dataclass(frozen=True)
class Joined:
    """Several problems of one cell as one, to which a family's parameters are applied once."""

    readings: OneCellReadings
    law: SizeLaw

    def with_model(self, model: Model) -> Joined:
        """Itself: a model of one cell says nothing."""
        del model
        return self

    def with_population(self, law: SizeLaw) -> Joined:
        """The same counts under another law of N."""
        return replace(self, law=law)

    def with_noise(self, change: Callable[[Observation], Observation]) -> Joined:
        """The same counts with other noises."""
        noises = tuple((entries, change(noise)) for entries, noise in self.readings.noises)
        return replace(self, readings=replace(self.readings, noises=noises))


@dataclass(frozen=True)
class _CellsAtOnce(AtOnce):
    """Runs the E-steps of populations of one cell at once."""

    problems: dict[int, Problem]
    starts: bool
    """Whether the E-steps of `MAP`, by which a search finds where to begin, are exact too."""
    joined: dict[tuple[int, ...], OneCellReadings] = field(default_factory=dict)
    """Readings of sets of problems."""

    def found(self, tasks: Sequence[EStep]) -> dict[int, Expected]:
        """See `AtOnce`: by family and parameters."""
        groups: dict[tuple[int, int], list[int]] = {}
        for k, task in enumerate(tasks):
            if id(task.problem) in self.problems and self._serves(task):
                groups.setdefault((id(self.first_alike(task.family)), id(task.parameters)), []).append(k)
        made: dict[int, Expected] = {}
        for where in groups.values():
            made |= zip(where, self._summed([tasks[k] for k in where]), strict=True)
        return made

    def _serves(self, task: EStep) -> bool:
        """Whether the sum over N is what the engine would say, and gives all that is learned."""
        exact = task.engine.sums_one_cell or (self.starts and isinstance(task.engine, MAP))
        kinds = task.family.components
        return (
            exact
            and any(isinstance(c, SizeMeans) for c in kinds)
            and all(isinstance(c, (Detection, SizeMeans)) for c in kinds)
        )

    def _summed(self, tasks: Sequence[EStep]) -> list[Expected]:
        """E-steps of alike families at the same parameters."""
        key = tuple(id(task.problem) for task in tasks)
        if key not in self.joined:
            self.joined[key] = OneCellReadings.of([task.problem.sites for task in tasks])
        given: Any = Joined(self.joined[key], tasks[0].problem.population)
        applied: Any = tasks[0].family.apply(tasks[0].parameters, given)
        n, p, evidence = laws_of_size(applied.readings, applied.law)
        means = (n @ p).tolist()
        return [_expected(*one) for one in zip(tasks, means, evidence.tolist(), strict=True)]


def _expected(task: EStep, mean: float, evidence: float) -> Expected:
    if not np.isfinite(evidence):
        return Expected(failure="no number of individuals agrees with all counts")

    def tables(scope: Any) -> Any:
        return np.full((1,) * len(scope), mean)

    cliques = task.problem.model.junction_tree.cliques if task.keep_tables else ()
    return Expected(
        evidence=evidence,
        statistics=task.family.statistics(tables, task.problem, tables),
        status=Status.CONVERGED,
        excess=0.0,
        tables={tuple(clique): tables(clique) for clique in cliques},
    )


def cells_at_once(problems: Sequence[Problem], other: Mapper, *, starts: bool) -> Mapper:
    """The mapper for these problems: the other one, where none has one cell."""
    known = {id(problem): problem for problem in problems if has_one_cell(problem)}
    return _CellsAtOnce(other, known, starts) if known else other
