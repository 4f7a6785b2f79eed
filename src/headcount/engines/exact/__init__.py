"""Exact answers for small problems: all populations listed, or a recursion over count states or over individuals."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from headcount.engines._engine import DirectEngine, Rule, whole
from headcount.engines.exact._count_states import count_state_beliefs, count_states_fit
from headcount.engines.exact._enumerate import ExactBeliefs, enumerated, enumerated_cloud
from headcount.engines.exact._few_individuals import few_individuals_beliefs, few_individuals_fit
from headcount.observe import ProblemError

if TYPE_CHECKING:
    from headcount.observe import Problem


@dataclass(frozen=True)
class Enumerate(DirectEngine):
    """Exact inference for tiny problems; larger ones by recursion: chains of 2 or 3 cells over count states, N ≤ 6 over individuals.

    Parameters
    ----------
    most
        The largest number of table entries to list (populations × configurations).

    Raises
    ------
    ProblemError
        When the problem is too large (both numbers are in the message), or no population agrees with the data.
    """

    most: int = 60_000_000

    name: ClassVar[str] = "Enumerate"
    takes_numbers: ClassVar[bool] = True
    adds_up_sizes: ClassVar[bool] = True
    rules: ClassVar[dict[str, Rule]] = {"most": whole()}

    def solve(self, problem: Problem, rng: np.random.Generator) -> ExactBeliefs:
        """List all populations, or run an exact recursion where the list is too long."""
        if problem.numbers is not None:
            return enumerated_cloud(problem, self.most, rng)
        if self.entries(problem) <= self.most:
            return enumerated(problem)
        misfit = self.misfit(problem)
        if misfit is not None:
            raise ProblemError(misfit)
        recursion = count_state_beliefs if count_states_fit(problem) is None else few_individuals_beliefs
        return recursion(problem)

    def misfit(self, problem: Problem) -> str | None:
        """Why no exact method can run on a problem; None when one can."""
        listed = self.entries(problem)
        reasons = count_states_fit(problem), few_individuals_fit(problem)
        if listed <= self.most or None in reasons:
            return None
        return (
            f"Enumerate would list {listed:.3g} table entries and lists at most {self.most:.3g} (N = {problem.population}); the exact"
            f" recursion over count states does not fit either: {reasons[0]}; nor the one over individuals: {reasons[1]}."
            " Use PathGibbs for a reference answer"
        )

    @staticmethod
    def entries(problem: Problem) -> int:
        """How many table entries the list would have."""
        sizes = problem.model.size(problem.model.variables)
        if np.log(np.array(sizes, dtype=float)).sum() > np.log(1e7):
            return 10**30
        states = int(np.count_nonzero(problem.model.marginal(problem.model.variables)))
        return comb(problem.population + states - 1, states - 1) * states
