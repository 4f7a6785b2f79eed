"""The count-table Gibbs sampler of Sheldon and Dietterich (2011), compiled: the reference the paper compares with.

Markov-basis moves on node and edge tables (`_markov_basis.py` has the law and the moves). A move is one random pick;
most picks meet empty cells, so it takes many of them: the paper burns in 1 million and averages 10 million. `PathGibbs` has the
same posterior and a far smaller error for the same time.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from headcount.engines._engine import IterativeEngine
from headcount.engines.sampling._arrays import Hop, TableState
from headcount.engines.sampling._chain_statistics import BatchMoments, effective_size, r_hat
from headcount.engines.sampling._path_proposal import transition
from headcount.engines.sampling._sample_beliefs import SampleBeliefs, Snapshots, floor, merged, mixing
from headcount.engines.sampling._sampling_arrays import SamplingArrays, sampling_arrays
from headcount.observe import ProblemError
from headcount.posterior._outcome import Status

if TYPE_CHECKING:
    from headcount.observe import Problem

LARGEST = 10_000_000
"""The largest population: a move costs time in proportion to the square root of a cell's count."""
_BURN_STEPS = 4
_SCRATCH = 1 << 20
_STORE_BYTES = 256_000_000


@dataclass(frozen=True)
class Gibbs(IterativeEngine):
    """Markov-basis Gibbs sampling of count tables on chains and trees.

    Parameters
    ----------
    burn_in
        Moves thrown away, per chain.
    moves
        Moves averaged over, per chain. The paper's setting is ``Gibbs(burn_in=1_000_000, moves=10_000_000, chains=1)``.
    chains
        Independent chains.
    draws
        Node tables kept per chain (for R-hat, quantiles, covariances), evenly spaced.
    configurations
        Whole configurations kept per chain, for joint draws.
    batches
        Batches per chain for Monte-Carlo errors; also the steps of the progress bar.
    tolerance
        Largest R-hat − 1 over node counts that still counts as mixed.
    workers
        Threads.

    Raises
    ------
    ProblemError
        When the model is not a chain or tree, has structural zeros (the basis then no longer connects all tables), the noise is
        correlated, or after burn-in a chain is still in a state that the data make impossible.
    """

    burn_in: int = 1_000_000
    moves: int = 10_000_000
    chains: int = 4
    draws: int = 500
    configurations: int = 20
    batches: int = 20
    tolerance: float = 0.05
    workers: int = 2

    name: ClassVar[str] = "Gibbs"
    random: ClassVar[bool] = True
    patience: ClassVar[int] = 1_000_000_000

    def __post_init__(self) -> None:
        lows = {
            "burn_in": 0,
            "moves": 1,
            "chains": 1,
            "draws": 1,
            "configurations": 0,
            "batches": 2,
            "workers": 1,
        }
        wrong = [
            f"{k} must be at least {low}, got {getattr(self, k)!r}"
            for k, low in lows.items()
            if getattr(self, k) < low
        ]
        if self.moves < self.draws or self.moves < self.batches:
            wrong.append(
                f"moves ({self.moves}) must be at least draws ({self.draws}) and batches ({self.batches})"
            )
        if wrong:
            raise ValueError("Gibbs: " + "; ".join(wrong))

    @property
    def max_iterations(self) -> int:  # type: ignore[override]
        """Steps of a whole run: burn-in, then batches."""
        return _BURN_STEPS + self.batches

    def good_status(self) -> Status:
        """Sampled."""
        return Status.SAMPLED

    def init(self, problem: Problem, rng: np.random.Generator) -> TableRun:
        """Draw the first tables of every chain from the model."""
        arrays = sampling_arrays(problem, engine=self.name)
        if arrays.population > LARGEST:
            raise ProblemError(
                f"N = {arrays.population}: Gibbs walks every amount a move can have and takes at most N = {LARGEST}; use TiltedEP or MAP"
            )
        _refuse_structural_zeros(arrays)
        seeds = rng.integers(0, 2**63, size=(self.chains, 4), dtype=np.int64)
        chains = tuple(_first_chain(arrays, seed) for seed in seeds)
        fits = _STORE_BYTES // max(1, 4 * self.chains * arrays.cells)
        keep = min(self.configurations, _STORE_BYTES // max(1, 4 * self.chains * arrays.entries))
        return TableRun(arrays, chains, thin=-(-self.moves // max(4, min(self.draws, fits))), keep=keep)

    def step(self, state: TableRun) -> TableRun:
        """One batch of moves on every chain."""
        burning = state.steps < _BURN_STEPS
        total, parts, part = (
            (self.burn_in, _BURN_STEPS, state.steps)
            if burning
            else (self.moves, self.batches, state.steps - _BURN_STEPS)
        )
        moves = (part + 1) * total // parts - part * total // parts
        keep = 0 if burning else (part + 1) * state.keep // parts - part * state.keep // parts
        with ThreadPoolExecutor(self.workers) as pool:
            chains = tuple(pool.map(lambda c: _batch(state, c, moves, keep, burning), state.chains))
        state = replace(state, chains=chains, steps=state.steps + 1)
        if state.steps == _BURN_STEPS:
            _require_possible(state, self.burn_in)
        return state

    def residual(self, state: TableRun) -> float:
        """The largest R-hat − 1 of a node count; infinite while burning in."""
        if state.steps <= _BURN_STEPS:
            return np.inf
        return float(r_hat(state.node_draws(), ranks=False).max() - 1)

    def done(self, state: TableRun) -> bool:
        """Whether all batches have run and the chains agree."""
        return state.steps >= self.max_iterations and self.residual(state) <= self.tolerance

    def finish(self, state: TableRun) -> SampleBeliefs:
        """Averages over all moves of all chains."""
        return _beliefs(state)


@dataclass(frozen=True, eq=False)
class TableChain:
    """One chain: where it stands (changed in place) and what it has gathered."""

    state: TableState
    nodes: BatchMoments
    edges: BatchMoments
    squares: NDArray[np.float64]
    moves: int = 0
    real: int = 0
    draws: tuple[NDArray[np.int32], ...] = ()
    snapshots: tuple[NDArray[np.int32], ...] = ()
    first: tuple[NDArray[np.int32], ...] = ()


@dataclass(frozen=True, eq=False)
class TableRun:
    """All chains, and what they share."""

    arrays: SamplingArrays
    chains: tuple[TableChain, ...]
    thin: int
    keep: int
    steps: int = 0

    def node_draws(self) -> NDArray[np.int32]:
        """Node counts of the kept moves, (chains, draws, cells)."""
        return np.stack([np.concatenate(c.draws) for c in self.chains])


def _refuse_structural_zeros(arrays: SamplingArrays) -> None:
    """A zero between two cells that can both be occupied breaks the Markov basis."""
    reach = [arrays.tree.initial > 0]
    problems = []
    for v in range(1, len(arrays.variables)):
        law, above = transition(arrays, v), reach[int(arrays.tree.parent[v])]
        reach.append(np.asarray((law[above] > 0).any(axis=0)))
        zero = np.argwhere((law == 0) & above[:, None] & reach[v])
        if len(zero):
            i, j = zero[0]
            names = arrays.variables[int(arrays.tree.parent[v])], arrays.variables[v]
            problems.append(
                f"{len(zero)} structural zeros between {names[0]!r} and {names[1]!r} (first: state {i} to state {j}): Gibbs' moves"
                " do not connect the tables of such a model; use PathGibbs"
            )
    if problems:
        raise ProblemError(problems)


def _first_chain(arrays: SamplingArrays, seed: NDArray[np.int64]) -> TableChain:
    """Tables drawn from the model, with N individuals."""
    sequence = np.random.SeedSequence([int(word) for word in seed])
    rng = np.random.default_rng(sequence)
    node, edge = np.zeros(arrays.cells, dtype=np.int64), np.zeros(arrays.entries, dtype=np.int64)
    node[arrays.node(0)] = rng.multinomial(arrays.population, arrays.tree.initial)
    for v in range(1, len(arrays.variables)):
        table = rng.multinomial(node[arrays.node(int(arrays.tree.parent[v]))], transition(arrays, v))
        edge[arrays.edge(v)] = table.ravel()
        node[arrays.node(v)] = table.sum(axis=0)
    slots = arrays.slots
    count = np.zeros(slots.law.shape[0], dtype=np.int64)
    np.add.at(count, slots.node_slot, np.repeat(node, np.diff(slots.node_first)))
    if slots.edge_first.size > 1:
        np.add.at(count, slots.edge_slot, np.repeat(edge, np.diff(slots.edge_first)))
    entries, cells = arrays.entries, arrays.cells
    state = TableState(
        edge=edge,
        node=node,
        slot_count=count,
        random=sequence.generate_state(4, np.uint64),
        edge_sum=np.zeros(entries),
        edge_square=np.zeros(entries),
        edge_since=np.zeros(entries, dtype=np.int64),
        node_sum=np.zeros(cells),
        node_square=np.zeros(cells),
        node_since=np.zeros(cells, dtype=np.int64),
    )
    return TableChain(
        state, BatchMoments.empty(cells), BatchMoments.empty(entries), np.zeros(cells + entries)
    )


def _batch(run: TableRun, chain: TableChain, moves: int, keep: int, burning: bool) -> TableChain:
    """`moves` moves of one chain, in `keep` parts with a snapshot of all tables after each."""
    from headcount.engines.sampling._markov_basis import make_moves

    arrays, state = run.arrays, chain.state
    degree = int((np.diff(arrays.tree.child_start) + 1).max())
    wide = min(arrays.population, _SCRATCH) + 1
    entries = np.zeros(max(2, degree), dtype=np.int64)
    hop = Hop(
        entries,
        entries.copy(),
        np.zeros((2, max(2, degree)), np.int64),
        np.zeros(5, np.int64),
        np.empty(wide),
        np.empty(wide),
    )
    for total in (state.edge_sum, state.edge_square, state.node_sum, state.node_square):
        total[:] = 0.0
    state.edge_since[:] = chain.moves
    state.node_since[:] = chain.moves
    now, real, draws, tables, first = chain.moves, 0, [], [], []
    for part in range(max(keep, 1)):
        share = (part + 1) * moves // max(keep, 1) - part * moves // max(keep, 1)
        rows = np.zeros(((now + share) // run.thin - now // run.thin, arrays.cells), dtype=np.int32)
        real += make_moves(arrays.tree, arrays.slots, state, hop, now, share, rows, run.thin)
        now += share
        draws.append(rows)
        if keep > 0:
            tables.append(state.edge.astype(np.int32))
            first.append(state.node[arrays.node(0)].astype(np.int32))
    if burning:
        return chain  # its arrays have moved on; the moves before count for nothing
    node, edge = state.node_sum / moves, state.edge_sum / moves
    return replace(
        chain,
        nodes=chain.nodes.add(node, node),
        edges=chain.edges.add(edge, edge),
        squares=chain.squares + np.concatenate([state.node_square, state.edge_square]),
        moves=now,
        real=chain.real + real,
        draws=(*chain.draws, *draws),
        snapshots=(*chain.snapshots, *tables),
        first=(*chain.first, *first),
    )


def _require_possible(run: TableRun, burn_in: int) -> None:
    """Refuse to sample from a state that the data make impossible."""
    bad = sorted({text for c in run.chains for text in run.arrays.impossible(c.state.slot_count)})
    if bad:
        shown = ", ".join(bad[:5]) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")
        raise ProblemError(
            f"Gibbs found no tables that agree with the data within burn_in = {burn_in} moves; still impossible: {shown}."
            " Check these counts against the population, raise burn_in, or use PathGibbs"
        )


def _beliefs(run: TableRun) -> SampleBeliefs:
    """Averages over moves, with batch-mean errors."""
    arrays, chains = run.arrays, run.chains
    nodes, edges = merged([c.nodes for c in chains]), merged([c.edges for c in chains])
    total = sum(c.moves for c in chains)
    squares = np.sum([c.squares for c in chains], axis=0) / total
    node_variance = np.maximum(squares[: arrays.cells] - nodes.raw**2, 0.0)
    draws = run.node_draws()
    node_error, edge_error = nodes.standard_error(1.0), edges.standard_error(1.0)
    stretch = batch_stretch(draws, node_variance, node_error)
    node_error, edge_error = stretch * node_error, stretch * edge_error
    return SampleBeliefs(
        arrays=arrays,
        node_mean=nodes.raw,
        node_variance=node_variance,
        node_error=node_error,
        edge_mean=edges.raw,
        edge_variance=np.maximum(squares[arrays.cells :] - edges.raw**2, 0.0),
        edge_error=edge_error,
        node_draws=draws,
        snapshots=Snapshots(
            tables=tuple(s for c in chains for s in c.snapshots),
            first=tuple(s for c in chains for s in c.first),
        ),
        diagnostics={
            **mixing(draws),
            "floor": floor(node_error, nodes.raw, edge_error, edges.raw),
            "batch_stretch": stretch,
            "moves": total,
            "moves_with_a_choice": sum(c.real for c in chains) / total,
        },
    )


def batch_stretch(
    draws: NDArray[np.int32], variance: NDArray[np.float64], error: NDArray[np.float64]
) -> float:
    """How many times larger the error is than independent batches would have it, at least 1.

    Table moves are so local that one batch remembers the one before: two runs of the paper's length are twice as far apart as
    their batches say. The median over node counts of sqrt(variance / effective size) / (batch error) puts that right.
    """
    size = effective_size(draws)
    known = np.isfinite(size) & (error > 0)
    if not known.any():
        return 1.0
    return max(1.0, float(np.median(np.sqrt(variance[known] / size[known]) / error[known])))
