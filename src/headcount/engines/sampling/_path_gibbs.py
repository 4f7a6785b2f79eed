"""The individual-level sampler: N paths, whose counts have exactly the CGM posterior. The reference of every accuracy table.

One sweep redraws every individual, lets pairs of individuals exchange subtrees, and redraws a few whole paths exactly.
Those exact conditionals are also the better estimator: with r the likelihood ratios of one more individual,

    E[n_C | y] = N E[p(x_C | other individuals, y)]                       (individuals are exchangeable)

whose error is opposite to that of the counts themselves (a full cell repels), so a node mean is the blend of both with the
smallest variance (scaled to N), and edge means are the smoothed tables raked to those node means. At L = 36, N = 1080 this has a
fourth of the error of counting for nodes, and less than a tenth for flows.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from headcount.engines._engine import IterativeEngine
from headcount.engines.sampling._arrays import PathState, Proposal, Sums
from headcount.engines.sampling._chain_statistics import BatchMoments, r_hat
from headcount.engines.sampling._path_proposal import model_proposal, smoothed_proposal
from headcount.engines.sampling._sample_beliefs import SampleBeliefs, normalised, rake_tree, sample_beliefs
from headcount.engines.sampling._sampling_arrays import SamplingArrays, sampling_arrays
from headcount.observe import ProblemError
from headcount.posterior._outcome import Status

if TYPE_CHECKING:
    from headcount.individual import Model
    from headcount.observe import Problem

_STORE_BYTES = 256_000_000
_MOST_BYTES = 8_000_000_000
_BURN_STEPS = 6
_TUNING = 4
"""Parts of each of the last three burn-in steps, whose spread tells how much to trust counting and how much smoothing."""
_COUNTED = 0.01
"""The share of counting in flows before raking: too little to add noise, enough that no flow that happened starts near zero."""
_WORTHWHILE = 0.15
"""Whole-path proposals are kept when at least this share of them is accepted."""


@dataclass(frozen=True)
class PathGibbs(IterativeEngine):
    """Individual-level Gibbs sampling on chains and trees, any noise, entries and sums of nodes and edges.

    Parameters
    ----------
    chains
        Independent chains.
    burn_in
        Sweeps thrown away, during which the whole-path proposals are learned.
    sweeps
        Sweeps kept, per chain.
    thin
        Keep the node tables of every `thin`-th sweep (for R-hat, quantiles, covariances); None: as many as fit 256 MB, at most 1000.
    exact
        Whole paths redrawn exactly per sweep; None: one for every twenty individuals, from 4 to 20.
    proposals
        Whole-path proposals: True, False, or None for "if at least 15 % are accepted at the end of burn-in".
    draws
        Whole configurations kept per chain, for joint draws and covariances of flows.
    batches
        Batches per chain for Monte-Carlo errors; also the steps of the progress bar.
    start
        A model on the same variables to draw the first paths from (for example one tilted to the MAP); None: the problem's own.
    tolerance
        Largest R-hat − 1 over node counts that still counts as mixed.
    workers
        Threads.

    Raises
    ------
    ProblemError
        When the model is not a chain or tree, the noise is correlated, the tables would not fit, or after burn-in a chain is still
        in a state that the data make impossible.

    Notes
    -----
    Moves change one individual, or exchange two individuals' subtrees. Data that allow a change only to three or more
    individuals at once (exact counts of flows, many structural zeros) can leave states that are never reached; R-hat
    need not see it. The seed fixes every bit, whatever the number of workers.
    """

    chains: int = 4
    burn_in: int = 300
    sweeps: int = 1000
    thin: int | None = None
    exact: int | None = None
    proposals: bool | None = None
    draws: int = 50
    batches: int = 20
    start: Model | None = None
    tolerance: float = 0.05
    workers: int = 2

    name: ClassVar[str] = "PathGibbs"
    random: ClassVar[bool] = True
    patience: ClassVar[int] = 1_000_000_000

    def __post_init__(self) -> None:
        wrong = [
            f"{name} must be at least {low}, got {getattr(self, name)!r}"
            for name, low in (
                ("chains", 1),
                ("burn_in", 0),
                ("sweeps", 1),
                ("draws", 0),
                ("batches", 2),
                ("workers", 1),
            )
            if getattr(self, name) < low
        ]
        wrong += [
            f"{name} must be None or at least {low}, got {getattr(self, name)!r}"
            for name, low in (("thin", 1), ("exact", 1))
            if getattr(self, name) is not None and getattr(self, name) < low
        ]
        if self.sweeps < self.batches:
            wrong.append(f"sweeps ({self.sweeps}) must be at least batches ({self.batches})")
        if wrong:
            raise ValueError("PathGibbs: " + "; ".join(wrong))

    @property
    def max_iterations(self) -> int:  # type: ignore[override]
        """Steps of a whole run: burn-in, then batches."""
        return _BURN_STEPS + self.batches

    def good_status(self) -> Status:
        """Sampled."""
        return Status.SAMPLED

    def init(self, problem: Problem, rng: np.random.Generator) -> PathRun:
        """Draw the first paths of every chain."""
        arrays = sampling_arrays(problem, engine=self.name)
        _check_memory(arrays, self)
        proposal = model_proposal(arrays, self.start)
        seeds = rng.integers(0, 2**63, size=(self.chains, 4), dtype=np.int64)
        chains = tuple(_first_chain(arrays, proposal, seed) for seed in seeds)
        exact = self.exact or min(20, max(4, ceil(arrays.population / 20)))
        thin = self.thin or max(
            1, ceil(self.sweeps / min(1000, max(20, _STORE_BYTES // (8 * arrays.cells * self.chains))))
        )
        keep = min(
            self.draws, _STORE_BYTES // max(1, 2 * len(arrays.variables) * arrays.population * self.chains)
        )
        return PathRun(
            arrays=arrays,
            chains=chains,
            proposal=proposal,
            exact=exact,
            thin=thin,
            keep=keep,
            trusted=self.start is not None,
            tuning=BatchMoments.empty(arrays.cells),
            share=np.full(arrays.cells, 0.5),
        )

    def step(self, state: PathRun) -> PathRun:
        """Burn in, or run one batch on every chain."""
        if state.steps < _BURN_STEPS:
            return self._burn(state)
        state = replace(state, steps=state.steps + 1)
        length = _share(self.sweeps, self.batches, state.steps - _BURN_STEPS - 1)
        keep = _share(state.keep, self.batches, state.steps - _BURN_STEPS - 1)
        results = self._each(lambda c: _batch(state, c, length, keep), state)
        chains = tuple(_gathered(state, c, r, length) for c, r in zip(state.chains, results, strict=True))
        return replace(state, chains=chains)

    def residual(self, state: PathRun) -> float:
        """The largest R-hat − 1 of a node count; infinite while burning in."""
        if state.steps <= _BURN_STEPS:
            return np.inf
        return float(r_hat(state.node_draws(), ranks=False).max() - 1)

    def done(self, state: PathRun) -> bool:
        """Whether all batches have run and the chains agree."""
        return state.steps >= self.max_iterations and self.residual(state) <= self.tolerance

    def finish(self, state: PathRun) -> SampleBeliefs:
        """Means, spreads and errors from all chains."""
        return sample_beliefs(state)

    def _burn(self, state: PathRun) -> PathRun:
        """Steps 1–3: find a possible state, 4: learn the proposals, 5: try them, 6: settle."""
        number = state.steps + 1
        length = _share(self.burn_in, _BURN_STEPS, state.steps)
        trying = state.trusted or number == 5 or (number == 6 and state.proposing)
        state = replace(state, steps=number, proposing=trying and self.proposals is not False)
        tuned = _TUNING if number >= 4 else 1
        results = [
            r
            for part in range(tuned)
            for r in self._each(lambda c, part=part: _batch(state, c, _share(length, tuned, part), 0), state)  # type: ignore[misc]
        ]
        exact = sum(int(r.tally[1]) for r in results)
        if number >= 4 and exact > 0:
            tuning = state.tuning
            for r in results:
                if r.tally[1] > 0:
                    tuning = tuning.add(r.node, r.node_smooth)
            state = replace(state, tuning=tuning, share=tuning.best_shares(state.arrays.tree.node_start))
        if number == 4 and self.proposals is not False and exact > 0:
            node, edge = (
                np.sum([getattr(r, k) for r in results], axis=0) for k in ("node_smooth", "edge_smooth")
            )
            state = replace(state, proposal=smoothed_proposal(state.arrays, node, edge), trusted=False)
        if number == 5 and length > 0:
            tried, taken = (sum(int(r.tally[k]) for r in results) for k in (2, 3))
            accepted = taken / max(tried, 1)
            state = replace(
                state,
                accepted=accepted,
                proposing=self.proposals or (self.proposals is None and accepted >= _WORTHWHILE),
            )
        if number == _BURN_STEPS:
            _require_possible(state, self.burn_in)
        return state

    def _each(self, work: Callable[[PathChain], Any], state: PathRun) -> list[Any]:
        """Run `work` on every chain, in threads (the kernels hold no lock)."""
        if self.workers == 1 or self.chains == 1:
            return [work(chain) for chain in state.chains]
        with ThreadPoolExecutor(self.workers) as pool:
            return list(pool.map(work, state.chains))


@dataclass(frozen=True, eq=False)
class PathChain:
    """One chain: where it stands (changed in place) and what it has gathered."""

    state: PathState
    nodes: BatchMoments
    edges: BatchMoments
    """Of flows: "raw" are the batches' raked tables, "smooth" their tables before raking."""
    totals: NDArray[np.float64]
    """Sums over sweeps of n² of nodes, n² of flows, n of flows."""
    sweeps: int = 0
    draws: tuple[NDArray[np.int32], ...] = ()
    snapshots: tuple[NDArray[np.int16], ...] = ()


@dataclass(frozen=True, eq=False)
class PathRun:
    """All chains, and what they share."""

    arrays: SamplingArrays
    chains: tuple[PathChain, ...]
    proposal: Proposal
    exact: int
    thin: int
    keep: int
    trusted: bool
    tuning: BatchMoments
    """Node means of the last burn-in steps, which fix `share`."""
    share: NDArray[np.float64]
    """The share of counting in each node mean; the rest is smoothing."""
    accepted: float = float("nan")
    proposing: bool = False
    steps: int = 0

    def node_draws(self) -> NDArray[np.int32]:
        """Node counts of the kept sweeps, (chains, draws, cells)."""
        return np.stack([np.concatenate(c.draws) for c in self.chains])


@dataclass(frozen=True, eq=False)
class _Batch:
    node: NDArray[np.float64]
    node_smooth: NDArray[np.float64]
    edge_smooth: NDArray[np.float64]
    totals: NDArray[np.float64]
    tally: NDArray[np.int64]
    draws: NDArray[np.int32]
    snapshots: tuple[NDArray[np.int16], ...]


def _share(total: int, parts: int, part: int) -> int:
    """The size of one of `parts` nearly equal parts of `total`."""
    return (part + 1) * total // parts - part * total // parts


def _first_chain(arrays: SamplingArrays, proposal: Proposal, seed: NDArray[np.int64]) -> PathChain:
    """N paths drawn from the proposal."""
    from headcount.engines.sampling._propose_path import draw_paths
    from headcount.engines.sampling._sweep_paths import recount

    slots = arrays.slots.law.shape[0]
    state = PathState(
        path=np.zeros((len(arrays.variables), arrays.population), dtype=np.int16),
        node_count=np.zeros(arrays.cells, dtype=np.int64),
        node_ratio=np.ones(arrays.cells),
        slot_count=np.zeros(slots, dtype=np.int64),
        slot_ratio=np.ones(slots),
        random=np.random.SeedSequence([int(word) for word in seed]).generate_state(4, np.uint64),
    )
    draw_paths(arrays.tree, state, proposal)
    recount(arrays.tree, arrays.slots, state)
    empty = BatchMoments.empty
    return PathChain(
        state, empty(arrays.cells), empty(arrays.entries), np.zeros(arrays.cells + 2 * arrays.entries)
    )


def _batch(run: PathRun, chain: PathChain, length: int, keep: int) -> _Batch:
    """`length` sweeps of one chain, in `keep` parts with a snapshot of all paths after each."""
    from headcount.engines.sampling._sweep_paths import sweep_paths

    arrays, people = run.arrays, run.arrays.population
    sizes = (arrays.cells, arrays.cells, arrays.entries, arrays.entries, arrays.cells, arrays.entries)
    sums = Sums._make((*(np.zeros(size) for size in sizes), np.zeros(4, dtype=np.int64)))
    draws, snapshots = [], []
    parts = max(keep, 1)
    for part in range(parts):
        share = _share(length, parts, part)
        moves = (share, 4 if run.proposing else 1, int(run.proposing), people, run.exact)
        # The thinning counts from the start of the chain, whatever the batches are.
        before = chain.sweeps + _share_before(length, parts, part)
        rows = np.zeros(((before + share) // run.thin - before // run.thin, arrays.cells), dtype=np.int32)
        sweep_paths(arrays.tree, arrays.slots, chain.state, run.proposal, moves, sums, rows, run.thin, before)
        draws.append(rows)
        if keep > 0 and share > 0:
            snapshots.append(chain.state.path.copy())
    count, exact = max(length, 1), int(sums.tally[1])
    node, flows = sums.node / count, sums.edge / count
    smooth = node
    if exact > 0:
        smooth = people * sums.node_smooth / exact
        flows = _COUNTED * flows + (1 - _COUNTED) * people * sums.edge_smooth / exact
    return _Batch(
        node=node,
        node_smooth=smooth,
        edge_smooth=flows,
        totals=np.concatenate([sums.node_square, sums.edge_square, sums.edge]),
        tally=sums.tally,
        draws=np.concatenate(draws),
        snapshots=tuple(snapshots),
    )


def _gathered(run: PathRun, chain: PathChain, batch: _Batch, length: int) -> PathChain:
    """A chain with one batch more."""
    blend = normalised(run.arrays, run.share * batch.node + (1 - run.share) * batch.node_smooth)
    raked = rake_tree(run.arrays, blend, batch.edge_smooth, tolerance=1e-6)[0]
    return replace(
        chain,
        nodes=chain.nodes.add(batch.node, batch.node_smooth),
        edges=chain.edges.add(raked, batch.edge_smooth),
        totals=chain.totals + batch.totals,
        sweeps=chain.sweeps + length,
        draws=(*chain.draws, batch.draws),
        snapshots=chain.snapshots + batch.snapshots,
    )


def _share_before(total: int, parts: int, part: int) -> int:
    return part * total // parts


def _require_possible(run: PathRun, burn_in: int) -> None:
    """Refuse to sample from a state that the data make impossible."""
    bad = sorted({text for c in run.chains for text in run.arrays.impossible(c.state.slot_count)})
    if bad:
        shown = ", ".join(bad[:5]) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")
        raise ProblemError(
            f"PathGibbs found no state that agrees with the data within burn_in = {burn_in} sweeps; still impossible: {shown}."
            " Check these counts against the model's zeros and the population; if they can be right, raise burn_in or give"
            " start= a model near the data (for example the problem's model tilted to its MAP)"
        )


def _check_memory(arrays: SamplingArrays, engine: PathGibbs) -> None:
    """Predict memory before taking it."""
    per_chain = 2 * len(arrays.variables) * arrays.population + 8 * (20 * arrays.cells + 14 * arrays.entries)
    total = engine.chains * per_chain + 2 * _STORE_BYTES
    if total > _MOST_BYTES:
        raise ProblemError(
            f"PathGibbs would need {total / 1e9:.1f} GB ({engine.chains} chains of {arrays.population} individuals on"
            f" {len(arrays.variables)} variables, {arrays.entries} flows) and takes at most {_MOST_BYTES / 1e9:.0f} GB:"
            " use fewer chains, or TiltedEP"
        )
