"""Exact answers for small problems: all populations listed, or a recursion over count states or over individuals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from headcount.engines.engine import DirectEngine, Rule, whole
from headcount.engines.exact._count_states import QUICK as QUICK_STEPS
from headcount.engines.exact._count_states import Work, count_state_beliefs, count_states_fit
from headcount.engines.exact._enumerate import (
    ExactBeliefs,
    SizeWindow,
    enumerated,
    first_windows,
    listed_entries,
    widened,
)
from headcount.engines.exact._few_individuals import QUICK, few_individuals_beliefs, few_individuals_fit
from headcount.errors import TooLongError

if TYPE_CHECKING:
    from headcount.observe import ClosedProblem

SHORTEST_LIST = 200_000
"""Table entries up to which all populations are simply listed: milliseconds."""
LIST_ONCE = 3_000_000
"""The same for one answer: some tenths of a second."""
ONCE = Work(3_000_000, 300_000_000, 6_000_000)
"""What a recursion over count vectors may take for one answer, products of all steps together: about a second."""
WIDER = 15.0
"""Products in the windows of unknown numbers that a plan allows for, over those that are gone through (measured: two kinds of 5 to 20
individuals in two cells, 5 to 30 times; .05 to 1.5 s)."""


@dataclass(frozen=True)
class Enumerate(DirectEngine):
    """Exact inference for tiny problems; larger ones by recursion: chains over count states, N ≤ 6 over individuals.

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
    sums_numbers: ClassVar[bool] = True
    draws_rows: ClassVar[bool] = True
    rules: ClassVar[dict[str, Rule]] = {"most": whole()}

    def solve(self, problem: ClosedProblem, rng: np.random.Generator) -> ExactBeliefs:
        """List all populations, or run an exact recursion where the list is too long; wider, until no number of individuals is missed."""
        windows = first_windows(problem, rng)
        while True:
            beliefs = self._method(problem, windows)()
            more = widened(problem, beliefs, windows)
            if more == windows:
                return beliefs
            windows = more

    def _method(self, problem: ClosedProblem, windows: Sequence[SizeWindow]) -> Callable[[], ExactBeliefs]:
        """The list where it is short, else the recursion that fits."""
        short = min(self.most, LIST_ONCE)
        if not problem.disperses and listed_entries(problem, windows, most=short) <= short:
            return partial(enumerated, problem, windows)
        counts, individuals = count_states_fit(problem, windows), few_individuals_fit(problem)
        if counts is None:
            return partial(count_state_beliefs, problem, windows)
        entries = np.inf if problem.disperses else listed_entries(problem, windows, most=self.most)
        if entries <= self.most:
            return partial(enumerated, problem, windows)
        if individuals is None:
            return partial(few_individuals_beliefs, problem)
        number = (
            f"N = {problem.population}"
            if problem.numbers is None
            else f"sizes up to {[w.high for w in windows]}"
        )
        other = "TiltedEP" if problem.model.rooted() is None else "PathGibbs for a reference answer"
        raise TooLongError(
            f"Enumerate would list {entries:.3g} table entries and lists at most {self.most:.3g} ({number}); the exact recursion over "
            f"count states does not fit either: {counts}; nor the one over individuals: {individuals}. Use {other}"
        )


def quick(problem: ClosedProblem, windows: Sequence[SizeWindow], *, once: bool = True) -> bool:
    """Whether an exact method answers within about a second; of many answers (``once`` is false), each in some hundredths of it."""
    short = LIST_ONCE if once else SHORTEST_LIST
    if not problem.disperses and listed_entries(problem, windows, most=short) <= short:
        return True
    wider = WIDER if any(window.high > window.low for window in windows) else 1.0
    all_steps = ONCE._replace(products=wider * ONCE.products / len(problem.model.variables))
    most = all_steps if once else QUICK_STEPS
    if count_states_fit(problem, windows, most=most) is None:
        return True
    return few_individuals_fit(problem, most=QUICK) is None
