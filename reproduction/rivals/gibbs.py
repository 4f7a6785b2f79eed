"""The count-table Gibbs sampler of Sheldon and Dietterich (2011), compiled: the reference the paper compares with.

On integer tables that agree with each other the law is

    p(n | y) ∝ Π_v Π_j n_v(j)!^(d_v − 1) / Π_e Π_ij n_e(i, j)! · Π_j pi(j)^n_r(j) Π_e P_e(i, j)^n_e(i, j) · Π l(y | n)

with d_v the number of edges at v. Two kinds of moves of a Markov basis, by an amount delta drawn from its exact conditional law:

    degree two   on the edge e:  (i, j) and (i', j') gain delta, (i, j') and (i', j) lose delta
    degree one   at the node v:  delta individuals go from j to j', seen from one state at each neighbour of v

A move is walked one individual at a time, a *hop*, in both directions from where it stands, until the weight has fallen to
e^−40 of the largest; delta is then drawn among the amounts walked over. Most random picks meet empty cells, so it takes many moves: the
paper burns in 1 million and averages 10 million. `PathGibbs` has the same posterior and a far smaller error for the same time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headcount._compile import bare, kernel
from headcount.engines.engine import Rule, whole
from headcount.engines.sampling._arrays import BatchSums, SamplingArrays
from headcount.engines.sampling._primitives import below, ratio, uniform
from headcount.engines.sampling._sampler import (
    FEWEST_DRAWS,
    Batch,
    Run,
    SampleBeliefs,
    SampledChain,
    Sampler,
    count_type,
)
from headcount.engines.sampling._statistics import effective_size
from headcount.observe import ProblemError

if TYPE_CHECKING:
    from headcount._types import Array

LARGEST = 10_000_000
"""The largest population: a move costs time in proportion to the square root of a cell's count."""
LONGEST_WALK = 1 << 20
"""Hops that a move walks at most in one direction; at `LARGEST` a walk is about √N · 9 = 3·10⁴ hops long."""
DEPTH = 40.0
"""A walk ends where the log-weight is this far below the largest: what lies beyond is less than e^−40 = 4e-18, below rounding."""
LOOKS = 256
"""Moves between two looks at the stop flag: at most a few tens of milliseconds, even where a move walks far."""


class TableState(NamedTuple):
    """Where one chain of the table sampler stands.

    An entry's sums over a batch are brought up to date only when the entry changes: `*_since` is the move up to which they count.
    """

    edge: np.ndarray  # (entries,) flows
    node: np.ndarray  # (cells,) counts
    slot_count: np.ndarray  # (slots,)
    edge_since: np.ndarray  # (entries,)
    node_since: np.ndarray  # (cells,)
    random: np.ndarray  # (4,) uint64
    stop: np.ndarray  # (1,) as in PathState


class Hop(NamedTuple):
    """One individual's part of a Markov-basis move: which entries lose one and which gain one."""

    lose: np.ndarray  # edge entries
    gain: np.ndarray
    law: np.ndarray  # (2, k): their places in the transition tables, and the same for `gain`
    # (5,) number of entries k, node (−1: none), cell that loses, cell that gains, power of its factorial
    size: np.ndarray
    up: np.ndarray  # log-weights of 1, 2, … hops forwards
    down: np.ndarray  # and backwards


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
        draws = min(self.draws, max(FEWEST_DRAWS, self.fitting(8 * arrays.cells)))
        return -(-self.moves // max(4, draws)), min(self.configurations, self.fitting(8 * arrays.entries))

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
            edge_since=np.zeros_like(edge),
            node_since=np.zeros_like(node),
            random=seed.generate_state(4, np.uint64),
            stop=stop,
        )

    def advance(
        self, run: Run, chain: SampledChain, sums: BatchSums, draws: NDArray[Any], before: int, count: int
    ) -> None:
        """Markov-basis moves."""
        tree, state = run.arrays.tree, chain.state
        degree = max(2, int((np.diff(tree.child_start) + 1).max()))
        entries = np.zeros((2, degree), dtype=np.int64)
        weights = np.empty((2, min(run.arrays.population, LONGEST_WALK) + 1))
        hop = Hop(
            entries[0], entries[1], np.zeros_like(entries), np.zeros(5, np.int64), weights[0], weights[1]
        )
        state.edge_since[:] = before
        state.node_since[:] = before
        sums.tally[0] += make_moves(tree, run.arrays.slots, state, sums, hop, before, count, draws, run.thin)

    def snapshot(self, state: TableState) -> tuple[NDArray[Any], NDArray[Any]]:
        """Node and edge tables."""
        kind = count_type(LARGEST)
        return state.node.astype(kind), state.edge.astype(kind)

    def tables(self, arrays: SamplingArrays, snapshot: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """A snapshot is the two tables."""
        del arrays
        return snapshot[0], snapshot[1]

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
        moves = sum(c.length for c in state.chains)
        squares = np.sum([c.totals[: nodes.raw.size] for c in state.chains], axis=0) / moves
        error = nodes.standard_error(1.0)
        stretch = batch_stretch(state.node_draws(), np.maximum(squares - nodes.raw**2, 0.0), error)
        return state.beliefs(
            (nodes.raw, edges.raw),
            (stretch * error, stretch * edges.standard_error(1.0)),
            tuple,  # a snapshot is the two tables
            {
                "batch_stretch": stretch,
                "moves": moves,
                "moves_with_a_choice": sum(c.tally for c in state.chains) / moves,
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


@bare
def _feed(entry, step, first, slot, law, table, slot_count):
    """Likelihood ratio of one individual more (`step` = 1) or less (−1) in an entry; the slots' counts follow."""
    value = 1.0
    for a in range(first[entry], first[entry + 1]):
        s = slot[a]
        if step > 0:
            value *= ratio(law, table, s, slot_count[s])
            slot_count[s] += 1
        else:
            slot_count[s] -= 1
            value /= ratio(law, table, s, slot_count[s])
    return value


@bare
def _hop(tree, slots, state, hop, forwards):
    """Move one individual; returns the change of log p(n | y), −inf where it is impossible (the tables move all the same)."""
    k, v, power = hop.size[0], hop.size[1], hop.size[4]
    lose, gain, out, into = hop.lose, hop.gain, hop.law[0], hop.law[1]
    cell_out, cell_in = hop.size[2], hop.size[3]
    if not forwards:
        lose, gain, out, into, cell_out, cell_in = gain, lose, into, out, cell_in, cell_out
    edge, node, law, count = state.edge, state.node, tree.law, state.slot_count
    first, slot, noise, table = slots.edge_first, slots.edge_slot, slots.law, slots.table
    total, factor = 0.0, 1.0
    for a in range(k):
        factor *= edge[lose[a]] / (edge[gain[a]] + 1.0) * (law[into[a]] / law[out[a]])
        edge[lose[a]] -= 1
        edge[gain[a]] += 1
        if first.size > 1:
            factor *= _feed(lose[a], -1, first, slot, noise, table, count)
            factor *= _feed(gain[a], 1, first, slot, noise, table, count)
        if factor < 1e-60 or factor > 1e60:
            total += math.log(factor)
            factor = 1.0
    if v >= 0:
        if v == 0:
            factor *= tree.initial[cell_in] / tree.initial[cell_out]
        total += power * math.log((node[cell_in] + 1.0) / node[cell_out])
        node[cell_out] -= 1
        node[cell_in] += 1
        factor *= _feed(cell_out, -1, slots.node_first, slots.node_slot, noise, table, count)
        factor *= _feed(cell_in, 1, slots.node_first, slots.node_slot, noise, table, count)
    return total + math.log(factor)


@bare
def _room(state, hop, forwards):
    """How many hops the tables allow."""
    k = hop.size[0]
    entries = hop.lose if forwards else hop.gain
    if k == 0:
        return state.node[hop.size[2] if forwards else hop.size[3]]
    room = state.edge[entries[0]]
    for a in range(1, k):
        room = min(room, state.edge[entries[a]])
    return room


@bare
def _walk(tree, slots, state, hop, forwards, room, weights):
    """Hop as far as it matters; fills the log-weights and returns (hops made, the largest log-weight)."""
    now, top, made = 0.0, 0.0, 0
    limit = min(room, weights.size)
    while made < limit:
        now += _hop(tree, slots, state, hop, forwards)
        weights[made] = now
        made += 1
        top = max(top, now)
        if now < top - DEPTH:
            break
    return made, top


@bare
def _add(k, time, count, total, square, since):
    """Bring the sums of one entry up to `time`: it has had its present count since `since[k]`."""
    n, span = float(count[k]), time - since[k]
    total[k] += n * span
    square[k] += n * n * span
    since[k] = time


@bare
def _settle(state, sums, hop, time):
    """Bring the sums of the entries that are about to change up to date."""
    for side in range(2):
        entries = hop.lose if side == 0 else hop.gain
        for a in range(hop.size[0]):
            _add(entries[a], time, state.edge, sums.edge, sums.edge_square, state.edge_since)
        if hop.size[1] >= 0:
            _add(hop.size[2 + side], time, state.node, sums.node, sums.node_square, state.node_since)


@bare
def _draw_amount(random, up, made_up, down, made_down, top):
    """An amount in −made_down … made_up with probability proportional to exp(log-weight); zero has log-weight 0."""
    total = math.exp(-top)
    for a in range(made_up):
        total += math.exp(up[a] - top)
    for a in range(made_down):
        total += math.exp(down[a] - top)
    left = uniform(random) * total - math.exp(-top)
    if left < 0.0:
        return 0
    for a in range(made_up):
        left -= math.exp(up[a] - top)
        if left < 0.0:
            return a + 1
    for a in range(made_down):
        left -= math.exp(down[a] - top)
        if left < 0.0:
            return -a - 1
    return 0


@bare
def _make(tree, slots, state, sums, hop, time):
    """Draw the amount of one move from its conditional law and make it; returns whether there was any choice."""
    ahead, back = _room(state, hop, True), _room(state, hop, False)
    if ahead == 0 and back == 0:
        return False
    _settle(state, sums, hop, time)
    made_up, top_up = _walk(tree, slots, state, hop, True, ahead, hop.up)
    for _ in range(made_up):
        _hop(tree, slots, state, hop, False)
    made_down, top_down = _walk(tree, slots, state, hop, False, back, hop.down)
    amount = _draw_amount(state.random, hop.up, made_up, hop.down, made_down, max(top_up, top_down))
    for _ in range(amount + made_down):
        _hop(tree, slots, state, hop, True)
    return True


@bare
def _pick_square(tree, random, hop):
    """A random 2 × 2 minor of a random edge table: (i, j') and (i', j) lose, (i, j) and (i', j') gain."""
    v = 1 + below(random, tree.sizes.size - 1)
    rows, size = tree.sizes[tree.parent[v]], tree.sizes[v]
    if rows < 2 or size < 2:
        return False
    i, i_other = below(random, rows), below(random, rows - 1)
    j, j_other = below(random, size), below(random, size - 1)
    i_other += i_other >= i
    j_other += j_other >= j
    hop.lose[0], hop.lose[1] = i * size + j_other, i_other * size + j
    hop.gain[0], hop.gain[1] = i * size + j, i_other * size + j_other
    for a in range(2):
        hop.law[0, a], hop.law[1, a] = hop.lose[a] + tree.law_start[v], hop.gain[a] + tree.law_start[v]
        hop.lose[a] += tree.edge_start[v]
        hop.gain[a] += tree.edge_start[v]
    hop.size[0], hop.size[1] = 2, -1
    return True


@bare
def _pick_reroute(tree, random, hop):
    """A random node, two of its states, and one state at each of its neighbours."""
    v = below(random, tree.sizes.size)
    size = tree.sizes[v]
    if size < 2:
        return False
    j, j_other = below(random, size), below(random, size - 1)
    j_other += j_other >= j
    k = 0
    if v > 0:
        row = below(random, tree.sizes[tree.parent[v]]) * size
        hop.lose[0], hop.gain[0] = tree.edge_start[v] + row + j, tree.edge_start[v] + row + j_other
        hop.law[0, 0], hop.law[1, 0] = tree.law_start[v] + row + j, tree.law_start[v] + row + j_other
        k = 1
    for a in range(tree.child_start[v], tree.child_start[v + 1]):
        c = tree.children[a]
        wide = tree.sizes[c]
        x = below(random, wide)
        hop.lose[k], hop.gain[k] = tree.edge_start[c] + j * wide + x, tree.edge_start[c] + j_other * wide + x
        hop.law[0, k], hop.law[1, k] = (
            tree.law_start[c] + j * wide + x,
            tree.law_start[c] + j_other * wide + x,
        )
        k += 1
    hop.size[0], hop.size[1], hop.size[4] = k, v, k - 1
    hop.size[2], hop.size[3] = tree.node_start[v] + j, tree.node_start[v] + j_other
    return True


@bare
def _add_all(state, sums, time):
    """Bring every entry's sums up to date."""
    for e in range(state.edge.size):
        _add(e, time, state.edge, sums.edge, sums.edge_square, state.edge_since)
    for c in range(state.node.size):
        _add(c, time, state.node, sums.node, sums.node_square, state.node_since)


@kernel
def make_moves(tree, slots, state, sums, hop, first, moves, draws, thin):
    """`moves` random moves, numbered from `first`; every `thin`-th move's node counts go to the next row of `draws`.

    Returns how many moves had a choice. The loop's body is no function of its own: passing the tuples once more took 10 % of the time.
    """
    many, row, real = tree.sizes.size > 1, 0, 0
    for time in range(first, first + moves):
        if time % LOOKS == 0 and state.stop[0] != 0:
            return real
        square = many and uniform(state.random) < 0.5
        found = _pick_square(tree, state.random, hop) if square else _pick_reroute(tree, state.random, hop)
        if found and _make(tree, slots, state, sums, hop, time):
            real += 1
        if (time + 1) % thin == 0:
            for cell in range(state.node.size):
                draws[row, cell] = state.node[cell]
            row += 1
    _add_all(state, sums, first + moves)
    return real
