r"""`SemiMarkovChain`: how long individuals stay depends on how long they have been there.

An individual is in a cell i and has been there for a further steps, its *age*: 0 at its first time there. With :math:`h_i(a)` the hazard,
the probability to leave at that age, and R where those go who leave,

.. math:: (i, a) \to (i, a + 1): 1 - h_i(a), \qquad (i, a) \to (j, 0): h_i(a) R(i, j), \qquad
          (i, a) \to \text{gone}: h_i(a) \Bigl(1 - \sum_j R(i, j)\Bigr) .

The last age class is kept while they stay on. A stay lasts d times with probability :math:`h(d - 1)\prod_{a < d - 1}(1 - h(a))`; a hazard
that is the same at all ages is a Markov chain. What is seen is the sum over ages.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from headcount._types import Array, Index, Variable
from headcount.checks import brief, numbers
from headcount.errors import ModelError, raise_all
from headcount.individual._model import GONE_STATE, ROW_TOLERANCE, WAITING_STATE, as_matrix
from headcount.individual._open_chain import ArrivingChain
from headcount.individual._rooted_models import MarkovChain, small_dense
from headcount.individual.rooted_tree import RootedTree
from headcount.labels import AxisLabels, split_labels, take_in_order


class SemiMarkovChain(ArrivingChain):
    """A chain of cells in which the probability to leave depends on the time since arrival.

    Parameters
    ----------
    initial
        At the first time: shape ``(L,)``, all of them at age 0, or ``(L, ages)``. Expected numbers, which are Poisson, where
        ``arrivals`` are given; otherwise probabilities, and the population is told to ``Problem``.
    hazard
        Probability to leave the cell in a step by age, shape ``(ages,)`` or ``(L, ages)``; the last one holds for all later ages.
    moves
        Where those go who leave a cell, shape ``(L, L)``, dense or sparse: rows over the other cells, which may sum to less than one;
        the rest leaves for good. None: all who leave a cell leave for good.
    arrivals
        Expected numbers of those who arrive, at age 0, as for `OpenChain`. None: nobody arrives.
    length, times, cells
        As for `OpenChain`.

    Examples
    --------
    >>> chain = SemiMarkovChain([100], [0, 0, 1], arrivals=0, length=5, cells=["marsh"])    # everyone stays for three times
    >>> [float(chain.expected_number * chain.marginal((t,))[0]) for t in chain.times]
    [100.0, 100.0, 100.0, 0.0, 0.0]
    """

    def __init__(
        self,
        initial: Any,
        hazard: Any,
        moves: Any = None,
        *,
        arrivals: Any = None,
        length: int | None = None,
        times: Sequence[Variable] | None = None,
        cells: Sequence[Hashable] | None = None,
    ) -> None:
        given = {
            "initial": split_labels(initial),
            "hazard": split_labels(hazard),
            "moves": split_labels(moves),
        }
        if cells is None:
            named = [given["initial"][1][:1], given["moves"][1]]
            cells = next((found for axes in named for found in axes if found is not None), None)
        shown = numbers(given["initial"][0], "initial", expected="numbers per cell, or per cell and age")
        size = len(np.atleast_1d(shown))
        super().__init__(
            np.full(size, 1.0 / max(size, 1)), np.eye(size), length=length, times=times, cells=cells
        )
        first, rates, where = (self._in_cells(what, *pair) for what, pair in given.items())
        self.hazard: Array = _checked_hazard(numbers(rates, "hazard", expected="probabilities by age"), size)
        """Probability to leave by cell and age, shape (L, ages)."""
        self.moves, self.leaving = _checked_moves(np.zeros((size, size)) if where is None else where, size)
        self.first = _by_age(
            numbers(first, "initial"), self.hazard.shape, numbers_wanted=arrivals is not None
        )
        self.arrivals = self._by_step(0.0 if arrivals is None else arrivals, "arrivals", leading=True)
        self.expected_number = None if arrivals is None else float(self.first.sum() + self.arrivals.sum())
        if self.expected_number == 0:
            raise ModelError("nobody is there at first and nobody arrives: give initial or arrivals above 0")
        self.opens = arrivals is not None or bool(self.leaving.any())
        self._see()

    def _in_cells(self, what: str, values: Any, axes: AxisLabels) -> Any:
        """A table with its labelled cells in the chain's order; an axis of ages is left as it is."""
        own = axes if what == "moves" else axes[: np.ndim(values) - (what == "hazard")][:1]
        made, problems = take_in_order(values, own, [self.cells] * len(own), what=what)
        raise_all(problems)
        return made

    @property
    def arguments(self) -> dict[str, Any]:
        """See `HiddenStateChain`."""
        return {
            "initial": self.first,
            "hazard": self.hazard,
            "moves": self.moves,
            "arrivals": None if self.expected_number is None else self.arrivals,
            "times": self.times,
            "cells": self.cells,
        }

    def between(self, first: int, last: int) -> SemiMarkovChain:
        """See `MarkovChain`; how long individuals have been in a cell at a first time that is not the chain's own is not known here."""
        return self.changed(
            arrivals=None if self.expected_number is None else self.arrivals[first:last],
            times=self.times[first : last + 1],
        )

    def continued(self, times: Sequence[Variable]) -> SemiMarkovChain:
        """See `MarkovChain`."""
        if not (self.arrivals == self.arrivals[:1]).all():
            raise ModelError("arrivals change with time: give the model of the new times, model=...")
        arrivals = None if self.expected_number is None else self.arrivals[0]
        return self.changed(arrivals=arrivals, times=(self.times[-1], *times))

    @cached_property
    def full(self) -> MarkovChain:
        """The chain on (cell, age), all ages of the first cell first; then `NOT_YET` and `GONE` where individuals come or go."""
        ages = self.hazard.shape[1]
        labels = [(cell, age) for cell in self.cells for age in range(ages)]
        within = small_dense(_stay(self.hazard) + _go(self.hazard, self.moves))
        steps = len(self.times) - 1
        if self.opens:
            gone = (self.leaving[:, None] * self.hazard).ravel()
            return self._opened(
                labels, self.first, [within] * steps, [gone] * steps, np.arange(len(self.cells)) * ages
            )
        tree = RootedTree.chain(self.times, self.first.ravel(), [within] * steps)
        return MarkovChain.from_rooted(tree, dict.fromkeys(self.times, tuple(labels)))

    @property
    def codes(self) -> tuple[Index, ...]:
        """The cell of every age."""
        own = np.repeat(np.arange(len(self.cells)), self.hazard.shape[1])
        return (np.append(own, [WAITING_STATE, GONE_STATE]) if self.opens else own,) * len(self.times)


def older(cells: int, ages: int) -> Index:
    """The state of every (cell, age) one step later if it stays, flat; the last age stays as it is."""
    return (np.arange(cells)[:, None] * ages + np.minimum(np.arange(ages) + 1, ages - 1)).ravel()


def _stay(hazard: Array) -> Any:
    """Those who stay on, by state and next state."""
    size = hazard.size
    return sparse.csr_array(
        ((1.0 - hazard).ravel(), (np.arange(size), older(*hazard.shape))), shape=(size, size)
    )


def _go(hazard: Array, moves: Any) -> Any:
    """Those who go to another cell, where they are at age 0."""
    newly = np.zeros((hazard.shape[1], hazard.shape[1]))
    newly[:, 0] = 1.0  # from any age to age 0
    return sparse.diags_array(hazard.ravel()) @ sparse.kron(sparse.csr_array(moves), newly)


def _checked_hazard(hazard: Array, cells: int) -> Array:
    """One hazard per cell and age."""
    if hazard.ndim not in (1, 2) or not hazard.size or (hazard.ndim == 2 and len(hazard) != cells):
        raise ModelError(
            f"hazard has shape {hazard.shape}: give one per age (ages,), or one per cell and age ({cells}, ages)"
        )
    if not bool((np.isfinite(hazard) & (hazard >= 0) & (hazard <= 1)).all()):
        raise ModelError(
            f"hazard must be probabilities, 0 to 1, everywhere: got {hazard.min():g} to {hazard.max():g}"
        )
    return np.array(np.broadcast_to(hazard, (cells, hazard.shape[-1])))


def _checked_moves(moves: Any, cells: int) -> tuple[Any, Array]:
    """The moves of those who leave a cell, and the share that leaves for good; rows within rounding of one are divided by their sum."""
    made = as_matrix(moves, "moves")
    if made.shape != (cells, cells):
        raise ModelError(
            f"moves has shape {made.shape}: give one row and one column per cell ({cells}, {cells})"
        )
    values = made.data if sparse.issparse(made) else made
    sums = np.asarray(made.sum(axis=1))
    if not bool((np.isfinite(values) & (values >= 0)).all()) or sums.max() > 1 + ROW_TOLERANCE:
        raise ModelError(
            f"moves must be ≥ 0 and its rows sum to at most 1: got {values.min():g} and a sum of {sums.max():g}"
        )
    if np.any(made.diagonal() > 0):
        raise ModelError(
            "moves has entries on its diagonal: those who leave a cell go to another; who stays is said by hazard"
        )
    whole = np.abs(sums - 1) <= ROW_TOLERANCE
    scale = np.where(whole, 1 / np.where(whole, sums, 1.0), 1.0)
    made = sparse.diags_array(scale) @ made if sparse.issparse(made) else scale[:, None] * made
    return made, np.where(whole, 0.0, 1.0 - sums)


def _by_age(first: Array, shape: tuple[int, ...], *, numbers_wanted: bool) -> Array:
    """Numbers or probabilities at the first time, by cell and age."""
    if first.shape not in {shape[:1], shape}:
        raise ModelError(
            f"initial has shape {first.shape}: give one number per cell {shape[:1]}, or one per cell and age {shape}"
        )
    if not bool((np.isfinite(first) & (first >= 0)).all()):
        raise ModelError(f"initial is {brief(first)}: give finite numbers ≥ 0")
    if not numbers_wanted and abs(first.sum() - 1) > ROW_TOLERANCE:
        raise ModelError(
            f"initial sums to {first.sum():.10g}, not 1: without arrivals it is a law, and Problem is told the population; "
            "expected numbers need arrivals (arrivals=0: nobody comes later)"
        )
    made = np.zeros(shape)
    if first.ndim == 1:
        made[:, 0] = first
    else:
        made[:] = first
    return made if numbers_wanted else made / made.sum()
