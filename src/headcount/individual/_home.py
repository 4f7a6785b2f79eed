r"""`HomeChain`: everybody has a home cell, and goes back to it again and again (site fidelity).

An individual with the home h that is in cell i is at home a step later with probability :math:`f_h`, its *fidelity*, and else goes where
the chain takes it,

.. math:: (h, i) \to (h, h): f_h + (1 - f_h) P_t(i, h), \qquad (h, i) \to (h, j): (1 - f_h) P_t(i, j), \quad j \neq h .

Homes never change. What is seen is the sum over homes; with :math:`f = 0` it is a Markov chain. Those who are at home because they went
back to it are states of their own beside those whom the chain took there, which nobody can tell apart: so the expected numbers of both
are at hand where f and P are learned.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from headcount._types import Array, Index, Scope, Variable
from headcount.checks import numbers
from headcount.errors import ModelError
from headcount.individual._memory import law_of_pairs
from headcount.individual._rooted_models import HiddenStateChain, MarkovChain, small_dense
from headcount.individual.rooted_tree import RootedTree


class HomeChain(HiddenStateChain):
    """A chain whose individuals have a home, to which they go back.

    Parameters
    ----------
    initial
        The law of the cell at the first time, shape ``(L,)``: everybody is at home then. Or that of (home, cell), shape ``(L, L)``.
    transitions
        Where those go who do not go back, as for `MarkovChain`; cells are the same at all times.
    fidelity
        Probability to be at home a step later, wherever one is: a number, or one per home, shape ``(L,)``.
    length, times, cells
        As for `MarkovChain`.

    Examples
    --------
    >>> chain = HomeChain([0.5, 0.5], [[0, 1], [1, 0]], 0.75, length=3)    # those who do not go back go to the other cell
    >>> chain.marginal((0, 2)).round(4)    # at home at the third time: 0.75 + 0.25 * 0.25
    array([[0.4062, 0.0938],
           [0.0938, 0.4062]])
    """

    def __init__(
        self,
        initial: Any,
        transitions: Any,
        fidelity: Any,
        *,
        length: int | None = None,
        times: Sequence[Variable] | None = None,
        cells: Sequence[Hashable] | None = None,
    ) -> None:
        if initial is None:
            raise ModelError(
                "initial is None: give the law of the cell at the first time, or of (home, cell)"
            )
        paired = np.ndim(initial) == 2
        first = np.asarray(initial, dtype=float).sum(axis=0) if paired else initial
        super().__init__(first, transitions, length=length, times=times, cells=cells)
        if len(self.times) < 2:
            raise ModelError("a HomeChain needs two times or more: give a MarkovChain")
        size = len(self.cells)
        self.homes: Array = law_of_pairs(initial, self.cells, "home") if paired else np.diag(self.initial)
        """The law of (home, cell) at the first time, shape (L, L)."""
        given = numbers(fidelity, "fidelity", expected="a probability, or one per home")
        if given.shape not in {(), (size,)} or not ((given >= 0) & (given <= 1)).all():
            raise ModelError(f"fidelity is {fidelity!r}: give a probability, or one per home, ({size},)")
        self.fidelity: Array = np.array(np.broadcast_to(given, size))
        """Probability to be at home a step later, by home, shape (L,)."""

    @property
    def arguments(self) -> dict[str, Any]:
        """See `HiddenStateChain`."""
        return {
            "initial": self.homes,
            "transitions": self.transitions[0] if self.step_alike else self.transitions,
            "fidelity": self.fidelity,
            "times": self.times,
            "cells": self.cells,
        }

    def with_moves(self, initial: Any, transitions: Any) -> HomeChain:
        """The chain with another law of the first cell, in which homes are as they were, and other moves of those who do not go back."""
        share = np.divide(initial, self.initial, out=np.ones_like(self.initial), where=self.initial > 0)
        return self.changed(initial=self.homes * share, transitions=transitions)

    def continued(self, times: Sequence[Variable]) -> MarkovChain:
        """The chain from its last time on, begun with all pairs that may occur: a run that goes on knows how many are in each."""
        if not self.step_alike:
            raise ModelError("the transitions change with time: give the model of the new times, model=...")
        equal = np.zeros_like(self.homes)
        equal[tuple(self.pairs.T)] = 1.0 / len(self.pairs)
        return self.changed(times=(self.times[-1], *times), initial=equal)

    @cached_property
    def pairs(self) -> Index:
        """Pairs (home, cell) that may occur, those of one home after each other, shape (pairs, 2)."""
        size = len(self.cells)
        onward = sparse.csr_array((size, size))
        for step in {id(step): step for step in self.transitions}.values():
            onward = onward + (sparse.csr_array(step) > 0)
        reached, count = sparse.csr_array(self.homes > 0, dtype=float), -1
        back = sparse.diags_array(reached.sum(axis=1))
        while reached.nnz > count:
            count = reached.nnz
            reached = ((reached + back + reached @ onward) > 0).astype(float)
        return np.argwhere(reached.toarray() > 0)

    @cached_property
    def full(self) -> MarkovChain:
        """Pairs (home, cell), then those who went back, by home."""
        home, cell = self._homes_and_cells
        count, size = len(self.pairs), len(self.cells)
        place = np.full((size, size), -1)
        place[tuple(self.pairs.T)] = np.arange(count)
        back = np.zeros(size, dtype=np.intp)
        back[home[count:]] = np.arange(count, len(home))
        made: dict[int, Any] = {}
        for step in self.transitions:
            if id(step) not in made:
                moves = sparse.coo_array(sparse.csr_array(step)[cell])
                kept = moves.data > 0
                rows, columns = moves.row[kept], moves.col[kept]
                away = moves.data[kept] * (1.0 - self.fidelity[home[rows]])
                entries = (
                    np.concatenate([away, self.fidelity[home]]),
                    (
                        np.concatenate([rows, np.arange(len(home))]),
                        np.concatenate([place[home[rows], columns], back[home]]),
                    ),
                )
                made[id(step)] = small_dense(sparse.csr_array(entries, shape=(len(home), len(home))))
        first = self.homes[home, cell]
        first[home == cell] *= (
            0.5  # at home at first: half of them as if they had gone back, which makes no difference
        )
        parent = np.arange(-1, len(self.times) - 1, dtype=np.intp)
        tree = RootedTree(self.times, parent, first, (None, *(made[id(step)] for step in self.transitions)))
        labels = tuple(
            (self.cells[h], self.cells[i], *(("back",) if k >= count else ()))
            for k, (h, i) in enumerate(zip(home, cell, strict=True))
        )
        return MarkovChain.from_rooted(tree, dict.fromkeys(self.times, labels))

    @cached_property
    def _homes_and_cells(self) -> tuple[Index, Index]:
        """Home and cell of every state."""
        homes = np.unique(self.pairs[:, 0])
        return np.append(self.pairs[:, 0], homes), np.append(self.pairs[:, 1], homes)

    @property
    def codes(self) -> tuple[Index, ...]:
        """The cell."""
        return (self._homes_and_cells[1],) * len(self.times)

    def gone_back(self, table: Array) -> Array:
        """Of a table of `full`'s moves, those who went back and those who did not, by home, shape (2, L)."""
        home, _ = self._homes_and_cells
        back, away = table[:, len(self.pairs) :].sum(axis=1), table[:, : len(self.pairs)].sum(axis=1)
        both = [np.bincount(home, part, minlength=len(self.cells)) for part in (back, away)]
        return np.array(both, dtype=float)

    def own_moves(self, full: Callable[[Scope], Array], scope: Scope) -> Array | None:
        """See `Model`: of those who did not go back."""
        if len(scope) < 2:
            return None
        _, cell = self._homes_and_cells
        origin = sparse.csr_array((np.ones(len(cell)), (cell, np.arange(len(cell)))))
        return np.asarray((origin @ full(scope))[:, : len(self.pairs)] @ origin.T[: len(self.pairs)])
