r"""Records of individuals that were followed: forward and backward passes over a chain, many records at once.

A record r says of an individual's cell at some times how probable what was seen is, :math:`l_{rt}(j) = p(\text{seen} \mid x_t = j)`
(one for the cell and zero elsewhere where the cell is known; one everywhere at times without a position). With
:math:`w_{rt} = l_{rt} \circ b_{rt}`,

.. math::

    a_{r0} ∝ π \circ l_{r0}, \quad a_{r,t+1} = (a_{rt} P_t) \circ l_{r,t+1} / c_{r,t+1}, \quad
    \log p(\text{record}) = \sum_t \log c_{rt}

    b_{rT} = 1, \quad b_{rt} = P_t w_{r,t+1} / c_{r,t+1}, \quad
    E[n_{t,t+1}(i, j)] = P_t(i, j) \sum_r a_{rt}(i)\, w_{r,t+1}(j) / c_{r,t+1} .
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse import csr_array

from headcount._device import row_of_entries
from headcount._types import Array, Index, Mask
from headcount.individual.rooted_tree import Matrix, RootedTree

BATCH_ENTRIES = 8_000_000
"""Numbers that the forward pass keeps at once (64 MB): records are taken in batches of as many as that allows."""


@dataclass(frozen=True, eq=False)
class Records:
    """What is known of the positions of some individuals of a chain."""

    ids: tuple[Hashable, ...]
    """The individuals' names, one per record."""
    seen: Mapping[int, tuple[Index, csr_array]]
    """``{node: (records, likelihood)}``: which records have a position there, shape (K,), and p(seen | cell) of each, (K, L)."""
    given: Mask | None = None
    """Which records are taken given their first position, shape (R,); None: none of them."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def moves(self) -> int:
        """How many positions there are beside the first of each."""
        return sum(len(rows) for rows, _ in self.seen.values()) - len(self)

    def part(self, first: int, last: int) -> Records:
        """The records from ``first`` up to ``last``."""
        kept = self._positions(lambda _, rows: (rows >= first) & (rows < last))
        moved = {node: (rows - first, likelihood) for node, (rows, likelihood) in kept.items()}
        return Records(self.ids[first:last], moved, None if self.given is None else self.given[first:last])

    def _positions(self, kept: Callable[[int, Index], Mask]) -> dict[int, tuple[Index, csr_array]]:
        """The positions of which ``kept(node, records)`` holds; nodes without any are left out."""
        found = ((node, rows, seen, kept(node, rows)) for node, (rows, seen) in self.seen.items())
        return {
            node: (rows[mine], seen[np.flatnonzero(mine)]) for node, rows, seen, mine in found if mine.any()
        }

    def through(self, maps: Sequence[csr_array]) -> Records:
        """The same records on chains with more states: ``maps[node]``, (cells, states), says which cell each state is."""
        return Records(
            self.ids,
            {k: (rows, csr_array(seen @ maps[k])) for k, (rows, seen) in self.seen.items()},
            self.given,
        )

    def times(self) -> tuple[Index, Index]:
        """The first and the last node at which each record has a position, shape (R,) each."""
        first, last = np.full(len(self), np.iinfo(np.intp).max), np.full(len(self), -1)
        for node, (rows, _) in self.seen.items():
            first[rows] = np.minimum(first[rows], node)
            last[rows] = np.maximum(last[rows], node)
        return first, last

    def first_only(self) -> Records:
        """Every record's first position alone."""
        first, _ = self.times()
        return Records(self.ids, self._positions(lambda node, rows: first[rows] == node))


def join_records(parts: Sequence[Records]) -> Records:
    """All records of several sets, one after the other."""
    seen: dict[int, list[tuple[Index, csr_array]]] = {}
    for part, first in zip(parts, np.cumsum([0, *map(len, parts)]).tolist(), strict=False):
        for node, (rows, likelihood) in part.seen.items():
            seen.setdefault(node, []).append((rows + first, likelihood))
    joined = {
        node: (
            np.concatenate([rows for rows, _ in found]),
            csr_array(sparse.vstack([seen for _, seen in found])),
        )
        for node, found in seen.items()
    }
    given = [np.zeros(len(part), dtype=bool) if part.given is None else part.given for part in parts]
    return Records(tuple(name for part in parts for name in part.ids), joined, np.concatenate(given))


@dataclass(frozen=True, eq=False)
class Followed:
    """What a chain says of records.

    Attributes
    ----------
    log_prob
        log p(record), shape (R,); −inf for a record that the chain does not allow.
    initial
        Expected number of the followed individuals in every cell at the first time.
    flows
        Expected number of their moves, one matrix per step, as sparse as the transitions; empty unless asked for.
    """

    log_prob: Array
    initial: Array
    flows: tuple[Matrix, ...]


def log_prob(tree: RootedTree, records: Records) -> Array:
    """log p(record) of every record under a chain, shape (R,); log p(record | first position) of those that are taken given it."""
    with np.errstate(divide="ignore"):  # log 0 = −inf is meant
        found = [np.log(_forward(tree, part)[1]).sum(axis=0) for part in _batches(tree, records)]
    whole = np.concatenate([np.zeros(0), *found])
    if records.given is None or not records.given.any():
        return whole
    first = log_prob(tree, records.first_only())
    return np.where(
        records.given & np.isfinite(whole), whole - np.where(np.isfinite(first), first, 0.0), whole
    )


def follow(tree: RootedTree, records: Records) -> Followed:
    """As `log_prob`, with the expected first cells and moves of the individuals given their records.

    Records that the chain does not allow add nothing to the expectations. Of a record that is taken given its first position, which must
    be certain, only what comes after it counts: what came before does not depend on what came after.
    """
    found = []
    initial = np.zeros(tree.sizes[0])
    flows: list[Matrix] = [0.0 * matrix for matrix in tree.transitions[1:]]
    for part in _batches(tree, records):
        forward, scales = _forward(tree, part)
        with np.errstate(divide="ignore"):
            found.append(np.log(scales).sum(axis=0))
        allowed = np.isfinite(found[-1])
        safe = np.where(scales > 0, scales, 1.0)
        behind = np.where(allowed[:, None], np.ones((len(part), tree.sizes[-1])), 0.0)
        for node in range(len(tree.sizes) - 1, 0, -1):
            weight = _seen(part, node, behind) / safe[node][:, None]
            step = tree.transitions[node]
            before = forward[node - 1]
            if part.given is not None:
                before = np.where((part.given & (part.times()[0] > node - 1))[:, None], 0.0, before)
            flows[node - 1] = flows[node - 1] + _moves(step, before, weight)
            behind = weight @ step.T
        if part.given is not None:
            behind = np.where(part.given[:, None], 0.0, behind)
        initial += (forward[0] * behind).sum(axis=0)
    return Followed(log_prob(tree, records), initial, tuple(flows))


def _batches(tree: RootedTree, records: Records) -> Iterator[Records]:
    size = max(1, BATCH_ENTRIES // sum(tree.sizes))
    for first in range(0, len(records), size):
        yield records.part(first, min(first + size, len(records)))


def _forward(tree: RootedTree, records: Records) -> tuple[list[Array], Array]:
    """a, one (R, L) array per node, and c, shape (nodes, R)."""
    filtered: list[Array] = []
    scales = np.empty((len(tree.sizes), len(records)))
    for node in range(len(tree.sizes)):
        ahead = (
            np.tile(tree.initial, (len(records), 1))
            if node == 0
            else np.asarray(filtered[-1] @ tree.transitions[node])
        )
        weighed = _seen(records, node, ahead)
        scales[node] = weighed.sum(axis=1)
        filtered.append(weighed / np.where(scales[node] > 0, scales[node], 1.0)[:, None])
    return filtered, scales


def _seen(records: Records, node: int, weights: Array) -> Array:
    """The weights (R, L) times the likelihood of what was seen at a node."""
    if node not in records.seen:
        return weights
    rows, likelihood = records.seen[node]
    made = weights.copy()
    made[rows] *= likelihood.toarray()
    return made


def _moves(step: Matrix, before: Array, after: Array) -> Matrix:
    """P ∘ (beforeᵀ after), entry by entry where P is sparse."""
    if not sparse.issparse(step):
        return step * (before.T @ after)
    values = step.data * np.einsum("rk,rk->k", before[:, row_of_entries(step)], after[:, step.indices])
    return csr_array((values, step.indices, step.indptr), shape=step.shape)
