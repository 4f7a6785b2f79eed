"""The count-table Gibbs sampler of Sheldon and Dietterich (2011), compiled: the reference the paper compares with.

Markov-basis moves on node and edge tables (`_table_moves.py` has the law and the moves). A move is one random pick; most picks meet
empty cells, so it takes many of them: the paper burns in 1 million and averages 10 million. `PathGibbs` has the same posterior and a far
smaller error for the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from headcount.engines._engine import Rule, whole
from headcount.engines.sampling._arrays import Hop, SamplingArrays, Sums, TableState
from headcount.engines.sampling._sampler import (
    FEWEST_DRAWS,
    Batch,
    Chain,
    Run,
    SampleBeliefs,
    Sampler,
    count_type,
    sample_beliefs,
    stored,
)
from headcount.engines.sampling._statistics import effective_size
from headcount.observe import ProblemError

if TYPE_CHECKING:
    from headcount._types import Array

LARGEST = 10_000_000
"""The largest population: a move costs time in proportion to the square root of a cell's count."""
LONGEST_WALK = 1 << 20
"""Hops that a move walks at most in one direction; at `LARGEST` a walk is about √N · 9 = 3·10⁴ hops long."""


@dataclass(frozen=True)
class Gibbs(Sampler):
    """Markov-basis Gibbs sampling of count tables on chains and trees.

    Parameters
    ----------
    burn_in
        Moves discarded, per chain.
    moves
        Moves averaged over, per chain. The paper's setting is ``Gibbs(burn_in=1_000_000, moves=10_000_000, chains=1)``.
    draws
        Node tables kept per chain (for R-hat, quantiles, covariances), evenly spaced.
    configurations
        Whole configurations kept per chain, for joint draws.
    chains, batches, tolerance, workers
        See :class:`Sampler`.

    Raises
    ------
    ProblemError
        When the model is not a chain or tree, has structural zeros (the basis then no longer connects all tables), the noise is
        correlated, or after burn-in a chain is still in a state that the data make impossible.
    """

    burn_in: int = 1_000_000
    moves: int = 10_000_000
    draws: int = 500
    configurations: int = 20

    name: ClassVar[str] = "Gibbs"
    rules: ClassVar[dict[str, Rule]] = {
        **Sampler.rules,
        "moves": whole(),
        "draws": whole(),
        "configurations": whole(least=0),
    }
    burn_steps: ClassVar[int] = 4
    advice: ClassVar[str] = "Check these counts against the population, raise burn_in, or use PathGibbs"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.moves < max(self.draws, self.batches):
            raise ValueError(
                f"Gibbs: moves ({self.moves}) must be at least draws ({self.draws}) and batches ({self.batches})"
            )

    @property
    def length(self) -> int:
        """Moves."""
        return self.moves

    def prepare(self, arrays: SamplingArrays) -> None:
        """Refuse large populations and structural zeros."""
        if arrays.population > LARGEST:
            raise ProblemError(
                f"N = {arrays.population}: Gibbs walks every amount a move can have and takes at most N = {LARGEST}; use TiltedEP or MAP"
            )
        _refuse_structural_zeros(arrays)

    def storage(self, arrays: SamplingArrays) -> tuple[int, int]:
        """As many draws and configurations as asked for, while they fit."""
        draws = min(self.draws, max(FEWEST_DRAWS, stored(8 * arrays.cells, self.chains)))
        return -(-self.moves // max(4, draws)), min(
            self.configurations, stored(8 * arrays.entries, self.chains)
        )

    def first_state(
        self, arrays: SamplingArrays, learned: None, seed: np.random.SeedSequence, stop: Any
    ) -> TableState:
        """Tables drawn from the model, with N individuals."""
        del learned
        rng = np.random.default_rng(seed)
        node, edge = np.zeros(arrays.cells, dtype=np.int64), np.zeros(arrays.entries, dtype=np.int64)
        node[arrays.node(0)] = rng.multinomial(arrays.population, arrays.tree.initial)
        for v in range(1, len(arrays.tree.sizes)):
            table = rng.multinomial(node[arrays.node(int(arrays.tree.parent[v]))], arrays.transition(v))
            edge[arrays.edge(v)] = table.ravel()
            node[arrays.node(v)] = table.sum(axis=0)
        slots = arrays.slots
        count = np.zeros(slots.law.shape[0], dtype=np.int64)
        np.add.at(count, slots.node_slot, np.repeat(node, np.diff(slots.node_first)))
        if slots.edge_first.size > 1:
            np.add.at(count, slots.edge_slot, np.repeat(edge, np.diff(slots.edge_first)))
        return TableState(
            edge=edge,
            node=node,
            slot_count=count,
            edge_sum=np.zeros(0),
            edge_square=np.zeros(0),
            edge_since=np.zeros_like(edge),
            node_sum=np.zeros(0),
            node_square=np.zeros(0),
            node_since=np.zeros_like(node),
            random=seed.generate_state(4, np.uint64),
            stop=stop,
        )

    def advance(
        self, run: Run, chain: Chain, sums: Sums, draws: NDArray[Any], before: int, count: int
    ) -> None:
        """Markov-basis moves."""
        from headcount.engines.sampling._table_moves import make_moves

        tree, state = run.arrays.tree, chain.state
        degree = max(2, int((np.diff(tree.child_start) + 1).max()))
        entries = np.zeros((2, degree), dtype=np.int64)
        weights = np.empty((2, min(run.arrays.population, LONGEST_WALK) + 1))
        hop = Hop(
            entries[0], entries[1], np.zeros_like(entries), np.zeros(5, np.int64), weights[0], weights[1]
        )
        state.edge_since[:] = before
        state.node_since[:] = before
        summed = state._replace(
            edge_sum=sums.edge, edge_square=sums.edge_square, node_sum=sums.node, node_square=sums.node_square
        )
        sums.tally[0] += count
        sums.tally[1] += make_moves(tree, run.arrays.slots, summed, hop, before, count, draws, run.thin)

    def snapshot(self, state: TableState) -> tuple[NDArray[Any], NDArray[Any]]:
        """Node and edge tables."""
        kind = count_type(LARGEST)
        return state.node.astype(kind), state.edge.astype(kind)

    def burn(self, run: Run, length: int) -> Run:
        """Only move on."""
        self.batch(run, length, 0)
        return run

    def estimates(self, run: Run, batch: Batch) -> tuple[Array, Array, Array, Array]:
        """Averages over moves."""
        del run
        node, edge = batch.sums.node / batch.length, batch.sums.edge / batch.length
        return node, node, edge, edge

    def finish(self, state: Run) -> SampleBeliefs:
        """Averages over all moves of all chains, with batch-mean errors."""
        nodes, edges = state.moments()
        draws, tally = state.node_draws(), np.sum([c.tally for c in state.chains], axis=0)
        squares = np.sum([c.totals[: nodes.raw.size] for c in state.chains], axis=0) / tally[0]
        error = nodes.standard_error(1.0)
        stretch = batch_stretch(draws, np.maximum(squares - nodes.raw**2, 0.0), error)
        return sample_beliefs(
            state,
            (nodes.raw, edges.raw),
            (stretch * error, stretch * edges.standard_error(1.0)),
            tuple,  # a snapshot is the two tables
            {
                "batch_stretch": stretch,
                "moves": int(tally[0]),
                "moves_with_a_choice": float(tally[1] / tally[0]),
            },
        )


def _refuse_structural_zeros(arrays: SamplingArrays) -> None:
    """A zero between two cells that can both be occupied breaks the Markov basis."""
    reach = [arrays.tree.initial > 0]
    problems = []
    names = arrays.rooted.variables
    for v in range(1, len(names)):
        u = int(arrays.tree.parent[v])
        law, above = arrays.transition(v), reach[u]
        reach.append(np.asarray((law[above] > 0).any(axis=0)))
        zero = np.argwhere((law == 0) & above[:, None] & reach[v])
        if len(zero):
            i, j = zero[0]
            problems.append(
                f"{len(zero)} structural zeros between {names[u]!r} and {names[v]!r} (first: state {i} to state {j}): Gibbs' moves"
                " do not connect the tables of such a model; use PathGibbs"
            )
    if problems:
        raise ProblemError(problems)


def batch_stretch(draws: NDArray[Any], variance: Array, error: Array) -> float:
    """How many times larger the error is than independent batches would have it, at least 1.

    Table moves are so local that one batch remembers the one before: two runs of the paper's length are twice as far apart as
    their batches say. The median over node counts of sqrt(variance / effective size) / (batch error) corrects that.
    """
    size = effective_size(draws)
    known = np.isfinite(size) & (error > 0)
    if not known.any():
        return 1.0
    return max(1.0, float(np.median(np.sqrt(variance[known] / size[known]) / error[known])))
