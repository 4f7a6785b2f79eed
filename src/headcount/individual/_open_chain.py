r"""`OpenChain`: individuals that arrive, move and leave.

An individual that is ever there is *not yet* there, in a cell, or *gone*; the last and the first are never counted. With
:math:`a_t(i)` expected arrivals, :math:`s_t(i)` the probability to stay in the system for a step and P the moves of those who stay,

.. math:: \text{not yet at } t \to i \text{ at } t+1: \frac{a_{t+1}(i)}{\sum_{s>t}\sum_j a_s(j)}, \qquad
          i \to j: s_t(i) P_t(i, j), \qquad i \to \text{gone}: 1 - s_t(i) .

The number of all of them is Poisson with mean :math:`\Lambda = \sum_i n_0(i) + \sum_{t,i} a_t(i)`, so that first numbers and arrivals are
independent Poisson counts with the means given. With one cell and binomial counts this is the open N-mixture model of Dail and Madsen
(2011), with one time that of Royle (2004).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy import sparse

from headcount._types import Array, Index, Variable
from headcount.checks import brief, numbers
from headcount.errors import ModelError, raise_all
from headcount.individual._model import GONE_STATE, WAITING_STATE
from headcount.individual._rooted_models import HiddenStateChain, MarkovChain
from headcount.individual.rooted_tree import RootedTree
from headcount.labels import AxisLabels, split_labels, take_in_order
from headcount.tables import dense

TINY_NUMBER = 1e-9
"""Individuals expected in a cell of a chain that begins there, whatever the chain before it says: the next run knows better."""
NOT_YET, GONE = "not yet", "gone"
"""Labels of the two hidden states."""


class ArrivingChain(HiddenStateChain):
    """A chain whose individuals may arrive and leave: states that are seen, then `NOT_YET` and `GONE`. Abstract."""

    opens = True
    first: Array
    """Expected numbers at the first time; probabilities where the number of all is not the chain's to say."""
    arrivals: Array
    """Expected arrivals into times 1, …, T − 1, shape (T − 1, L)."""

    def scaled(self, number: float, *, arrivals: float = 1.0) -> Self:
        """The same chain with ``number`` individuals expected at the first time, and ``arrivals`` times as many arriving."""
        total = self.first.sum()
        first = self.first * (number / total) if total > 0 else self.first
        return self.changed(initial=first, arrivals=arrivals * self.arrivals)

    def _by_step(self, given: Any, what: str, *, most: float = np.inf, leading: bool = False) -> Array:
        """One number per step and cell; ``leading``: a row for the first time is taken if it is zero."""
        values, axes = split_labels(given)
        steps, cells = len(self.times) - 1, len(self.cells)
        table = self._in_order(numbers(values, what), axes, what, first=int(leading))
        if leading and table.shape == (steps + 1, cells):
            if np.any(table[0] != 0):
                raise ModelError(
                    f"{what} has individuals in its first row, the first time: add them to initial and set the row to 0"
                )
            table = table[1:]
        if table.shape not in {(), (cells,), (steps, 1), (steps, cells)}:
            raise ModelError(
                f"{what} has shape {table.shape}: give a number, one per cell ({cells},), or one per step and cell ({steps}, {cells})"
            )
        made = np.array(np.broadcast_to(table, (steps, cells)), dtype=float)
        if not bool((np.isfinite(made) & (made >= 0) & (made <= most)).all()):
            upto = "" if most == np.inf else f" and at most {most:g}"
            raise ModelError(f"{what} must be ≥ 0{upto} everywhere: got {made.min():g} to {made.max():g}")
        return made

    def _in_order(self, table: Array, axes: AxisLabels, what: str, *, first: int) -> Array:
        """A labelled table in the order of its times, all of them or the steps from the ``first`` on, and of the cells."""
        if table.ndim != 2 or not axes or axes[0] is None:
            return table
        steps = len(self.times) - 1
        times = self.times if len(table) == steps + 1 else self.times[first:][:steps]
        made, problems = take_in_order(table, axes, [times, self.cells][: len(axes)], what=what)
        raise_all(problems)
        return np.asarray(made)

    def _opened(
        self,
        labels: Sequence[Hashable],
        first: Array,
        within: Sequence[Any],
        leaving: Sequence[Array],
        enter: Index,
    ) -> MarkovChain:
        """The full chain.

        Parameters
        ----------
        labels
            Of the states that are seen.
        first
            Expected numbers in the states that are seen, shape (S,).
        within, leaving
            Per step, the moves among these states, (S, S), and the probability to leave for good, (S,).
        enter
            The state in which those who arrive in a cell begin, shape (L,).
        """
        ahead = np.concatenate([np.cumsum(self.arrivals.sum(axis=1)[::-1])[::-1], [0.0]])
        initial = np.concatenate([first.ravel(), [ahead[0], 0.0]]) / (first.sum() + ahead[0])
        steps = []
        for t, (moves, gone) in enumerate(zip(within, leaving, strict=True)):
            entering = np.zeros(len(gone))
            entering[enter] = self.arrivals[t]
            steps.append(_full_step(moves, gone, entering, ahead[t], ahead[t + 1]))
        tree = RootedTree.chain(self.times, initial, steps)
        return MarkovChain.from_rooted(tree, dict.fromkeys(self.times, (*labels, NOT_YET, GONE)))


class OpenChain(ArrivingChain):
    """A chain whose individuals come and go.

    Parameters
    ----------
    initial
        Expected number of individuals in every cell at the first time, shape ``(L,)``; their numbers are Poisson. (Probabilities, if
        ``Problem`` is told the expected number of all at the first time as its population.)
    transitions
        How those who stay move, as for `MarkovChain`.
    arrivals
        Expected number of arrivals, shape ``(T − 1, L)``: row t is for the step into time t + 1. Also ``(T, L)`` with zeros in the first
        row, ``(L,)`` or a number for all steps alike. None: nobody arrives.
    survival
        Probability to stay for a step from time t to t + 1, by the cell at t: ``(T − 1, L)``, ``(L,)`` or a number. None: nobody leaves.
    departures
        1 − survival, instead of it.
    length, times, cells
        As for `MarkovChain`; cells are the same at all times.

    Examples
    --------
    >>> moves = [[0.9, 0.1], [0.2, 0.8]]
    >>> chain = OpenChain([30, 10], moves, arrivals=5, survival=0.8, times=["mon", "tue", "wed"], cells=["pond", "hill"])
    >>> chain.expected_number
    60.0
    >>> (chain.expected_number * chain.marginal(("tue",))).round(1)
    array([28.2, 13.8])
    """

    def __init__(
        self,
        initial: Any,
        transitions: Any,
        *,
        arrivals: Any = None,
        survival: Any = None,
        departures: Any = None,
        length: int | None = None,
        times: Sequence[Variable] | None = None,
        cells: Sequence[Any] | Mapping[Any, Sequence[Hashable]] | None = None,
    ) -> None:
        first, axes = expected_numbers(initial)
        shares = first / first.sum() if first.sum() > 0 else np.full(len(first), 1.0 / len(first))
        super().__init__(shares, transitions, length=length, times=times, cells=cells)
        self.initial_known = True
        if survival is not None and departures is not None:
            raise ModelError("survival and departures are both given: one is 1 − the other, give one")
        named = "survival" if departures is None else "departures"
        rates = survival if departures is None else departures
        kept, problems = take_in_order(first, axes, [self.cells][: len(axes)], what="initial")
        raise_all(problems)
        self.first: Array = np.asarray(kept, dtype=float)
        """Expected numbers at the first time."""
        self.arrivals: Array = self._by_step(0.0 if arrivals is None else arrivals, "arrivals", leading=True)
        """Expected arrivals into times 1, …, T − 1, shape (T − 1, L)."""
        stay = self._by_step((named == "survival") * 1.0 if rates is None else rates, named, most=1.0)
        self.survival: Array = stay if named == "survival" else 1.0 - stay
        """Probability to stay for a step, shape (T − 1, L)."""
        if not self.expected_number > 0:
            raise ModelError("nobody is there at first and nobody arrives: give initial or arrivals above 0")

    @property
    def expected_number(self) -> float:  # type: ignore[override]
        """Λ: the expected number of all individuals that are ever there."""
        return float(self.first.sum() + self.arrivals.sum())

    @property
    def arguments(self) -> dict[str, Any]:
        """See `HiddenStateChain`."""
        return {
            "initial": self.first,
            "transitions": self.transitions,
            "arrivals": self.arrivals,
            "survival": self.survival,
            "times": self.times,
            "cells": self.states,
        }

    def with_moves(self, initial: Any, transitions: Any) -> OpenChain:
        """The chain with other first shares and other moves of those who stay."""
        return self.changed(initial=self.first.sum() * np.asarray(initial), transitions=transitions)

    def between(self, first: int, last: int) -> OpenChain:
        """See `MarkovChain`; numbers at a first time that is not the chain's own are those that it expects there."""
        numbers = self.expected_number * self.marginal((self.times[first],))
        return self.changed(
            initial=numbers,
            transitions=self.transitions[0]
            if self.step_alike and last > first
            else self.transitions[first:last],
            arrivals=self.arrivals[first:last],
            survival=self.survival[first:last],
            times=self.times[first : last + 1],
            cells=self.cells,
        )

    def continued(self, times: Sequence[Variable]) -> OpenChain:
        """See `MarkovChain`; arrivals and survival have to be the same at all steps, too."""
        alike = all((part == part[:1]).all() for part in (self.arrivals, self.survival))
        if not (self.step_alike and alike):
            raise ModelError(
                "transitions, arrivals or survival change with time: give the model of the new times, model=..."
            )
        expected = np.maximum(self.expected_number * self.marginal((self.times[-1],)), TINY_NUMBER)
        return self.changed(
            initial=expected,
            transitions=self.transitions[0],
            arrivals=self.arrivals[0],
            survival=self.survival[0],
            times=(self.times[-1], *times),
            cells=self.cells,
        )

    @cached_property
    def full(self) -> MarkovChain:
        """The chain of one individual that is ever there: cells, then `NOT_YET` and `GONE`."""
        within = [_scaled_rows(s, moves) for s, moves in zip(self.survival, self.transitions, strict=True)]
        return self._opened(
            self.cells, self.first, within, list(1.0 - self.survival), np.arange(len(self.cells))
        )

    @property
    def codes(self) -> tuple[Index, ...]:
        """Cells, then `NOT_YET` and `GONE`."""
        return (np.append(np.arange(len(self.cells)), [WAITING_STATE, GONE_STATE]),) * len(self.times)


def expected_numbers(initial: Any) -> tuple[Array, AxisLabels]:
    """Expected numbers per cell at the first time, and the labels that they brought."""
    if initial is None:
        raise ModelError(
            "initial is None: give the expected number of individuals in every cell at the first time, zeros if nobody is there yet"
        )
    values, axes = split_labels(initial)
    first = numbers(values, "initial", expected="expected numbers per cell, a 1-D array")
    if first.ndim != 1 or not first.size or not (np.isfinite(first) & (first >= 0)).all():
        raise ModelError(f"initial is {brief(initial)}: give an expected number ≥ 0 per cell, a 1-D array")
    return first, axes


def _scaled_rows(factors: Array, matrix: Any) -> Any:
    """diag(factors) times a matrix, sparse or dense."""
    return (
        sparse.diags_array(factors) @ matrix if sparse.issparse(matrix) else factors[:, None] * dense(matrix)
    )


def _full_step(moves: Any, leaving: Array, entering: Array, ahead: float, later: float) -> Any:
    """The step between states that are seen, not yet and gone; ``ahead`` and ``later``: arrivals expected from this step and after it."""
    size = len(leaving)
    waiting = np.zeros(size + 2)
    waiting[:size] = entering / ahead if ahead > 0 else 0.0
    waiting[size] = later / ahead if ahead > 0 else 0.0
    waiting[size + 1] = 0.0 if ahead > 0 else 1.0
    gone = np.zeros(size + 2)
    gone[-1] = 1.0
    away = np.stack([np.zeros(size), leaving], axis=1)
    if sparse.issparse(moves):
        upper = sparse.hstack([moves, sparse.csr_array(away)])
        return sparse.csr_array(sparse.vstack([upper, sparse.csr_array(np.stack([waiting, gone]))]))
    return np.vstack([np.hstack([moves, away]), waiting, gone])
