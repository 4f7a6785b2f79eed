r"""Two individuals redrawn together, exactly, given all the others.

Single paths and exchanged subtrees cannot pass between states that differ in two whole paths at once: with sharp counts of a few
individuals one must leave a cell in the step in which the other arrives. With :math:`n^-` the counts without the two, slot s has the
log-ratios :math:`r_s` of one individual more and :math:`r_s'` of a second one, so that states (i, j) of the two weigh

.. math:: \log l_v(i, j) = \sum_s (a_{si} + a_{sj})\, r_s + a_{si} a_{sj}\,(r_s' - r_s)

(a: which cells feed which slot). Belief propagation over pairs of states takes two products of matrices per step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from headcount.engines.exact._few_individuals import push
from headcount.errors import ProblemError

if TYPE_CHECKING:
    from headcount._types import Array
    from headcount.engines.sampling._arrays import PathState, SamplingArrays


MOST_PEOPLE = 5
"""Individuals up to which pairs are redrawn: among more, a pair is seldom what holds a chain back."""
MOST_AT_ONCE = 4
"""Pairs redrawn at a time. Of 148 random problems with N ≤ 5, 6 did not mix (R-hat above 1.05) without pairs and 2 with four."""
PAIR_STATES = 100_000
"""Pairs of states, over all nodes, that may be weighed at a time (about 10 ms): longer chains and wider maps get fewer pairs."""


def pairs_at_once(population: int, sizes: Iterable[int], *, possible: bool) -> int:
    """How many pairs are redrawn between two stretches of sweeps by default: none among many individuals."""
    if not possible or not 2 <= population <= MOST_PEOPLE:
        return 0
    return min(MOST_AT_ONCE, PAIR_STATES // sum(int(size) ** 2 for size in sizes))


def pairs_of(arrays: SamplingArrays, asked: int | None) -> int:
    """The pairs asked for, or those of `pairs_at_once`.

    Raises
    ------
    ProblemError
        When pairs are asked for beside observed flows or rows that vary, whose weights are not in their law, or of one individual.
    """
    possible = arrays.rho is None and not arrays.slots.edge_mode.any()
    if asked and (not possible or arrays.population < 2):
        raise ProblemError(
            f"PathGibbs(pairs={asked}): pairs are redrawn among two or more independent individuals where no flows are observed: "
            "leave it out"
        )
    return pairs_at_once(arrays.population, arrays.tree.sizes, possible=possible) if asked is None else asked


def redraw_pair(arrays: SamplingArrays, state: PathState) -> None:
    """Give two individuals, picked at random, paths from their joint law given the rest."""
    from headcount.engines.sampling._primitives import below, uniform
    from headcount.engines.sampling._whole_path import shift_individual

    tree, slots = arrays.tree, arrays.slots
    one = below(state.random, arrays.population)
    two = (one + 1 + below(state.random, arrays.population - 1)) % arrays.population
    for m in (one, two):
        shift_individual(tree, slots, state, m, -1)
    weighed = _weights(arrays, state)
    laws = [arrays.transition(v) if v else arrays.rooted.initial[None] for v in range(len(tree.sizes))]
    for v in range(len(laws) - 1, 0, -1):
        weighed[tree.parent[v]] = weighed[tree.parent[v]] + push(weighed[v], laws[v].T, (0, 1))
    drawn = np.zeros((len(laws), 2), dtype=np.int16)
    with np.errstate(divide="ignore"):
        for v, law in enumerate(laws):
            i, j = drawn[tree.parent[v]] if v else (0, 0)
            log_p = (weighed[v] + np.log(law[i])[:, None] + np.log(law[j])).ravel()
            p = np.exp(log_p - log_p.max()).cumsum()
            picked = np.searchsorted(p, uniform(state.random) * p[-1], side="right")
            drawn[v] = divmod(min(int(picked), p.size - 1), int(tree.sizes[v]))
    for k, m in enumerate((one, two)):
        state.path[:, m] = drawn[:, k]
        shift_individual(tree, slots, state, m, 1)


def _weights(arrays: SamplingArrays, state: PathState) -> list[Array]:
    """log l_v(i, j) of every node, given the counts of the others."""
    from headcount.engines.sampling._primitives import ratio

    slots, total = arrays.slots, len(state.slot_count)
    ratios = [
        [ratio(slots.law, slots.table, s, state.slot_count[s] + more) for s in range(total)]
        for more in (0, 1)
    ]
    with np.errstate(divide="ignore"):
        first, second = np.log(np.array(ratios).reshape(2, total))
    feeds = csr_array(
        (np.ones(len(slots.node_slot)), slots.node_slot, slots.node_first), shape=(arrays.cells, total)
    )
    single, more = feeds @ first, feeds @ (second - first)
    out = []
    for v, mode in enumerate(slots.node_mode):
        here = arrays.node(v)
        table = single[here][:, None] + single[here]
        if mode == 2:  # slots are sums of cells
            own = feeds[here]
            table += ((own * (second - first)) @ own.T).toarray()
        else:
            table[np.diag_indices_from(table)] += more[here]
        out.append(table)
    return out
