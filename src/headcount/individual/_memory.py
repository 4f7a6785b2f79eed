r"""`MemoryChain`: where individuals go depends on where they come from; `HomeChain`: everybody has a home and goes back to it.

Of a `MemoryChain`

.. math:: p(x) = \pi(x_0)\, P(x_0, x_1) \prod_{t \geq 1} M(x_{t-1}, x_t, x_{t+1}) .

From the second time on the state of an individual is the pair (previous, current), of pairs that are possible alone; what is seen is the
sum over previous cells. A chain whose M does not depend on the first cell is a Markov chain.

In a `HomeChain` an individual with the home h that is in cell i is at home a step later with probability :math:`f_h`, its *fidelity*, and
else goes where the chain takes it,

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
from headcount.errors import ModelError, raise_all
from headcount.individual._model import as_matrix, law_problems, unit_rows
from headcount.individual._rooted_models import HiddenStateChain, MarkovChain, small_dense
from headcount.individual.rooted_tree import RootedTree
from headcount.tables import dense


class MemoryChain(HiddenStateChain):
    """A chain whose individuals remember the cell they were in one step before.

    Parameters
    ----------
    initial
        The law of the cell at the first time, shape ``(L,)``; or that of (previous, current), shape ``(L, L)``, where individuals are
        remembered to come from somewhere at the first time too.
    transitions
        The first step, one matrix, shape ``(L, L)``: nobody is remembered to come from anywhere. With a law of pairs the first step is
        like the later ones.
    memory
        All later steps by (previous, current): shape ``(L, L, L)``, or a matrix of shape ``(L², L)``, sparse on large maps, whose row of
        a pair is previous · L + current. Rows of pairs that never occur are not read.
    length, times, cells
        As for `MarkovChain`; cells are the same at all times.

    Examples
    --------
    >>> onward = np.zeros((3, 3, 3))
    >>> for before, here, after in [(0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1), (2, 1, 0), (1, 0, 2)]:
    ...     onward[before, here, after] = 1  # nobody turns back on this ring
    >>> ring = [[0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]]
    >>> chain = MemoryChain([1, 0, 0], ring, onward, length=4)
    >>> [chain.marginal((t,)).tolist() for t in (1, 2, 3)]
    [[0.0, 0.5, 0.5], [0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]
    """

    def __init__(
        self,
        initial: Any,
        transitions: Any,
        memory: Any,
        *,
        length: int | None = None,
        times: Sequence[Variable] | None = None,
        cells: Sequence[Hashable] | None = None,
    ) -> None:
        if initial is None:
            raise ModelError("initial is None: give the law of the cell at the first time")
        paired = np.ndim(initial) == 2
        first = np.asarray(initial, dtype=float).sum(axis=0) if paired else initial
        super().__init__(first, transitions, length=length, times=times, cells=cells)
        if len({id(step) for step in self.transitions}) > 1:
            raise ModelError(
                "transitions has one matrix per step: give one, of the first step; memory has all later ones"
            )
        size = len(self.cells)
        if len(self.times) < 2:
            raise ModelError("a MemoryChain needs two times or more: give a MarkovChain")
        self.start: Any = self.transitions[0]
        """The transitions of the first step."""
        law = _law_of_pairs(initial, self.cells, "previous") if paired else None
        begin = self.start if law is None else law
        self.pairs, self.memory = _possible(begin, _as_rows(memory, size), self.cells)
        self.first_pairs = None if law is None else law[tuple(self.pairs.T)]
        self._see()

    pairs: Index
    """Pairs (previous, current) that may occur, shape (pairs, 2)."""
    memory: Any
    """Probability of the next cell, by pair, shape (pairs, L)."""
    first_pairs: Array | None
    """The law of the pair at the first time; None where nobody is remembered to come from anywhere then."""

    @property
    def arguments(self) -> dict[str, Any]:
        """See `HiddenStateChain`."""
        return {
            "initial": self.initial if self.first_pairs is None else self._of_pairs(self.first_pairs),
            "transitions": self.start,
            "memory": self.by_pair(self.memory),
            "times": self.times,
            "cells": self.cells,
        }

    def _of_pairs(self, values: Array) -> Array:
        made = np.zeros((len(self.cells), len(self.cells)))
        made[tuple(self.pairs.T)] = values
        return made

    def continued(self, times: Sequence[Variable]) -> MarkovChain:
        """The chain from its last time on, begun with all pairs that may occur: a run that goes on knows how many are in each."""
        equal = self._of_pairs(np.full(len(self.pairs), 1.0 / len(self.pairs)))
        return self.changed(times=(self.times[-1], *times), initial=equal)

    def by_pair(self, rows: Any) -> Any:
        """Rows of the pairs that occur as rows of all pairs, as ``memory`` takes them, shape (L², L)."""
        size, found = len(self.cells), sparse.coo_array(rows)
        return sparse.csr_array(
            (found.data, (self.pairs[found.row] @ [size, 1], found.col)), shape=(size**2, size)
        )

    @cached_property
    def full(self) -> MarkovChain:
        """Cells at the first time (pairs, where these are remembered), then pairs (previous, current)."""
        size, pairs = len(self.cells), self.pairs
        count = len(pairs)
        place = sparse.csr_array((np.arange(1, count + 1), (pairs[:, 0], pairs[:, 1])), shape=(size, size))
        first = sparse.coo_array(self.start)
        kept = first.data > 0
        enter = small_dense(
            _placed(
                first.data[kept], first.row[kept], _at(place, first.row[kept], first.col[kept]), (size, count)
            )
        )
        rows = sparse.coo_array(self.memory)
        kept = rows.data > 0
        here = pairs[rows.row[kept], 1]
        step = small_dense(
            _placed(rows.data[kept], rows.row[kept], _at(place, here, rows.col[kept]), (count, count))
        )
        labels = tuple((self.cells[i], self.cells[j]) for i, j in pairs)
        states: dict[Variable, Any] = dict.fromkeys(self.times, labels)
        later = [step] * (len(self.times) - 2)
        if self.first_pairs is not None:
            tree = RootedTree.chain(self.times, self.first_pairs, [step, *later])
            return MarkovChain.from_rooted(tree, states)
        tree = RootedTree.chain(self.times, self.initial, [enter, *later])
        return MarkovChain.from_rooted(tree, states | {self.times[0]: self.cells})

    @property
    def codes(self) -> tuple[Index, ...]:
        """The current cell."""
        first = np.arange(len(self.cells)) if self.first_pairs is None else self.pairs[:, 1]
        return (first, *[self.pairs[:, 1]] * (len(self.times) - 1))


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
        self.homes: Array = _law_of_pairs(initial, self.cells, "home") if paired else np.diag(self.initial)
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
        law = None
        if initial is not None:
            one = np.ones_like(self.initial)
            law = self.homes * np.divide(initial, self.initial, out=one, where=self.initial > 0)
        return self.changed(initial=law, transitions=transitions)

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
        tree = RootedTree.chain(self.times, first, [made[id(step)] for step in self.transitions])
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


def _law_of_pairs(initial: Any, cells: Sequence[Hashable], other: str) -> Array:
    """The law of (``other`` cell, current) at the first time, checked."""
    given = numbers(initial, "initial", expected=f"[{other}, current]")
    if given.shape != (len(cells), len(cells)):
        raise ModelError(
            f"initial has shape {given.shape}: give one probability per cell, ({len(cells)},), or per [{other}, current], "
            f"({len(cells)}, {len(cells)})"
        )
    raise_all(law_problems(given.ravel(), [[(a, b) for a in cells for b in cells]], "initial"))
    return np.asarray(given / given.sum())


def _placed(values: Array, rows: Index, columns: Index, shape: tuple[int, int]) -> Any:
    return sparse.csr_array((values, (rows, columns)), shape=shape)


def _at(place: Any, before: Index, here: Index) -> Index:
    """The number of every pair."""
    return np.asarray(place[before, here]).ravel().astype(np.intp) - 1


def _as_rows(memory: Any, size: int) -> Any:
    """The law of the next cell by pair as a csr matrix, shape (L², L)."""
    given = (
        memory if sparse.issparse(memory) else numbers(memory, "memory", expected="[previous, current, next]")
    )
    if given.shape not in {(size, size, size), (size**2, size)}:
        raise ModelError(
            f"memory has shape {given.shape}: give [previous, current, next], ({size}, {size}, {size}), or one row per pair previous · L + "
            f"current, ({size**2}, {size})"
        )
    given = given if sparse.issparse(given) else given.reshape(size**2, size)
    return sparse.csr_array(as_matrix(sparse.csr_array(given), "memory"))


def _possible(start: Any, rows: Any, cells: Sequence[Hashable]) -> tuple[Index, Any]:
    """Pairs that occur, from the first step on, and the law of the next cell of each; pairs without a law are refused."""
    size = len(cells)
    reached = np.zeros((size, size), dtype=bool)
    fresh = np.argwhere(dense(start) > 0)
    while len(fresh):
        reached[fresh[:, 0], fresh[:, 1]] = True
        found = sparse.coo_array(rows[fresh @ [size, 1]])
        ahead = np.stack([fresh[found.row, 1], found.col], axis=1)[found.data > 0]
        fresh = np.unique(ahead[~reached[ahead[:, 0], ahead[:, 1]]], axis=0)
    pairs = np.argwhere(reached)
    law = rows[pairs @ [size, 1]]
    raise_all(law_problems(law, ([(cells[i], cells[j]) for i, j in pairs], cells), "memory"))
    return pairs, unit_rows(law)
