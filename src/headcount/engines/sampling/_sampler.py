"""What the samplers share: chains in threads, burn-in, batches, thinning, kept draws, R-hat, status; and the beliefs they end with.

A run is burn-in in a few steps, then `batches` batches; the driver calls :meth:`Sampler.step` once for each. A sampler adds its moves
(`first_state`, `advance`), what it does in burn-in, and how it turns sums over a batch into estimates.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from headcount.engines.engine import IterativeEngine, Rule, number, whole
from headcount.engines.sampling._arrays import BatchSums, SamplingArrays, row_kappa, sampling_arrays
from headcount.engines.sampling._statistics import BatchMoments, effective_size, expected_l1, merged, r_hat
from headcount.engines.sampling._worms import exact_nodes_of, exchanged, never_moved, overlapping_totals
from headcount.observe import ProblemError
from headcount.posterior import Beliefs, Promises, Sizes, Status

if TYPE_CHECKING:
    from headcount._types import Array, Scope
    from headcount.observe import ClosedProblem

Item = TypeVar("Item")
Result = TypeVar("Result")

STORE_BYTES = 256_000_000
"""Limit of the memory that the kept node tables, and the kept configurations, may each take: 3 % of 8 GB."""
FEWEST_DRAWS = 20
"""Node tables kept per chain even where they take more than that: R-hat and quantiles of fewer say little."""
POLL = 0.2
"""Seconds between two looks at threads that are at work, so that an interrupt is seen at once also where waiting cannot be interrupted."""


RARE = 0.1
"""Mean counts below which the variance uses the better mean: a run may never see such an entry occupied. Measured, 300 sweeps of 480
individuals on 16 cells: the sds of flows are off by 8.7 % (rms) at 0, 5.2 % at .03, 4.3 % at .1, 3.7 % at .3 and 3.8 % at 1."""


SELDOM = 0.05
"""Variance of a flow below which R-hat is not asked: what happens less than once in twenty times no 90 % interval shows."""
FLOW_SHARE = 0.25
"""Share of a flow's R-hat − 1 that counts: the largest of 10⁴ flows, each worth twenty independent draws in half a chain, is 1.13 by
chance, and a chain that is stuck has 1.5 and more."""
VISITS = 20
"""Independent draws in which a flow that can change should have done so, in the mean, for it to count as stuck where it never did:
e⁻²⁰ of mixed ones would."""
EQUAL = 1e-12
"""Relative variance below which sums of squares say that a flow was always the same: rounding."""
LOOKED_AT = 10
"""Configurations per chain in which the weights of cycles through flows that never moved are averaged."""


@dataclass(frozen=True, eq=False)
class SampledChain:
    """One chain: where it stands (changed in place) and what it has gathered."""

    state: Any
    """The sampler's own, such as `PathState`."""
    nodes: BatchMoments
    edges: BatchMoments
    totals: Array
    """Sums over sweeps or moves of n² of nodes, n² of flows, n of flows."""
    halves: Array
    """(2, 3, flows) sums over the first and second half of the batches of n, n² and the length."""
    batch_squares: Array
    """(flows,) sum over batches of the squared mean."""
    tally: int = 0
    """Paths redrawn exactly, or moves that had a choice."""
    length: int = 0
    draws: tuple[NDArray[Any], ...] = ()
    snapshots: tuple[Any, ...] = ()
    tree: Any = None
    """The chain's own `TreeArrays`, changed in place, where rows of transitions vary; None where all chains share the model's."""


@dataclass(frozen=True, eq=False)
class Run:
    """All chains, and what they share."""

    arrays: SamplingArrays
    chains: tuple[SampledChain, ...]
    thin: int
    """Sweeps or moves per node table that is kept."""
    keep: int
    """Whole configurations kept per chain."""
    stop: NDArray[np.int64]
    """Not zero: the kernels give up. Set when the run is interrupted."""
    learned: Any = None
    """What the sampler has found out in burn-in."""
    steps: int = 0

    def node_draws(self) -> NDArray[Any]:
        """Node counts of the kept sweeps or moves, (chains, draws, cells)."""
        return np.stack([np.concatenate(c.draws) for c in self.chains])

    def moments(self) -> tuple[BatchMoments, BatchMoments]:
        """Nodes and flows over the batches of all chains."""
        return merged([c.nodes for c in self.chains]), merged([c.edges for c in self.chains])

    def flow_diagnostics(self) -> dict[str, float]:
        """The worst R-hat and the smallest effective number of draws of a flow."""
        ratio, size = self.flow_mixing()
        known = np.isfinite(size)
        return {
            "r_hat_flows": float(ratio.max(initial=1.0)),
            "ess_flows_min": float(size[known].min()) if known.any() else float("nan"),
        }

    def flow_mixing(self) -> tuple[Array, Array]:
        """Split R-hat and effective number of draws of every flow, from sums over half-chains and batches.

        R-hat is 1, and the number NaN, of flows with a variance below `SELDOM`; infinite where chains stand in different places.
        """
        halves = np.concatenate([c.halves for c in self.chains])
        length = halves[:, 2]
        ratio, size = np.ones(self.arrays.entries), np.full(self.arrays.entries, np.nan)
        if not self.arrays.entries or length.min() < 2:
            return ratio, size
        means = halves[:, 0] / length
        within = np.mean((halves[:, 1] / length - means**2) * length / (length - 1), axis=0)
        between = means.var(axis=0, ddof=1)
        asked = within + between > SELDOM
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = np.sqrt((length[0] - 1) / length[0] + between / within)
        ratio[asked] = np.where(within[asked] > 0, spread[asked], np.inf)
        batches = sum(c.edges.batches for c in self.chains)
        mean = means.mean(axis=0)
        of_batches = np.sum([c.batch_squares for c in self.chains], axis=0) / batches - mean**2
        with np.errstate(divide="ignore", invalid="ignore"):
            size[asked] = ((within + between) * batches / np.maximum(of_batches, 0.0))[asked]
        return ratio, np.where(np.isfinite(size), np.minimum(size, length.sum(axis=0)), np.nan)

    def beliefs(
        self,
        means: tuple[Array, Array],
        errors: tuple[Array, Array],
        tables: Callable[[Any], tuple[NDArray[Any], NDArray[Any]]],
        found: Mapping[str, Any],
    ) -> SampleBeliefs:
        """A sampler's answer: its means and errors of nodes and of flows; variances from the counts themselves, over all chains."""
        cells, entries = self.arrays.cells, self.arrays.entries
        totals = np.sum([c.totals for c in self.chains], axis=0) / sum(c.length for c in self.chains)
        node_square, edge_square, edge_counted = np.split(totals, [cells, cells + entries])
        node_counted = np.mean([c.nodes.raw for c in self.chains], axis=0)
        draws = self.node_draws()
        # The relative L1 distance that Monte-Carlo noise alone makes.
        node_floor, edge_floor = map(expected_l1, errors, means)
        return SampleBeliefs(
            arrays=self.arrays,
            means=means,
            variances=(
                spread(node_counted, node_square, means[0]),
                spread(edge_counted, edge_square, means[1]),
            ),
            errors=errors,
            node_draws=draws,
            snapshots=tuple(s for c in self.chains for s in c.snapshots),
            tables=tables,
            diagnostics={
                **mixing(draws),
                **self.flow_diagnostics(),
                "floor": {"node": node_floor, "edge": edge_floor},
                **found,
            },
        )


@dataclass(frozen=True, eq=False)
class Batch:
    """What one chain did in one batch."""

    length: int
    sums: BatchSums
    draws: NDArray[Any]
    snapshots: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Sampler(IterativeEngine):
    """Several chains of fixed length; done when R-hat − 1 is within the tolerance after the last batch.

    Parameters
    ----------
    chains
        Independent chains.
    batches
        Batches per chain for Monte-Carlo errors; also the steps of the progress bar.
    tolerance
        Largest R-hat − 1 over node counts that still counts as mixed; over flows, four times that. A flow between exact counts that can
        change, by a cycle that is probable enough, and never did is not mixed, whatever R-hat says.
    workers
        Threads.
    """

    chains: int = 4
    batches: int = 20
    tolerance: float = 0.05
    workers: int = 2
    burn_in: int
    random: ClassVar[bool] = True
    rules: ClassVar[dict[str, Rule]] = {
        "chains": whole(),
        "burn_in": whole(least=0),
        "batches": whole(least=2),
        "tolerance": number(),
        "workers": whole(),
    }
    patience: ClassVar[int] = 1_000_000_000  # the length is fixed beforehand: a run never counts as stalled
    burn_steps: ClassVar[int]
    advice: ClassVar[str]
    takes_weights: ClassVar[bool] = False
    """Whether units that stand for different numbers of individuals may be counted together."""
    """What to do when no state agrees with the data."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Sweeps or moves per chain after burn-in."""

    @abstractmethod
    def prepare(self, arrays: SamplingArrays) -> Any:
        """Refuse what the sampler cannot take; else what `Run.learned` starts from."""

    def fitting(self, bytes_each: int) -> int:
        """How many tables of so many bytes may be kept per chain."""
        return STORE_BYTES // max(1, bytes_each * self.chains)

    @abstractmethod
    def storage(self, arrays: SamplingArrays) -> tuple[int, int]:
        """(thin, configurations kept per chain)."""

    @abstractmethod
    def first_state(
        self, arrays: SamplingArrays, learned: Any, seed: np.random.SeedSequence, stop: Any
    ) -> Any:
        """Where a chain starts."""

    @abstractmethod
    def advance(
        self, run: Run, chain: SampledChain, sums: BatchSums, draws: NDArray[Any], before: int, count: int
    ) -> None:
        """Make `count` sweeps or moves, numbered from `before`."""

    @abstractmethod
    def snapshot(self, state: Any) -> Any:
        """A copy of the whole configuration."""

    @abstractmethod
    def tables(self, arrays: SamplingArrays, snapshot: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Flat node and edge tables of a configuration."""

    @abstractmethod
    def burn(self, run: Run, length: int) -> Run:
        """One step of burn-in, of `length` sweeps or moves."""

    @abstractmethod
    def estimates(self, run: Run, batch: Batch) -> tuple[Array, Array, Array, Array]:
        """A batch's two estimates of the node means and two of the flows, as `BatchMoments.add` takes them."""

    @abstractmethod
    def finish(self, state: Run) -> SampleBeliefs:
        """Means, spreads and errors from all chains."""

    @property
    def max_iterations(self) -> int:  # type: ignore[override]
        """Steps of a whole run: burn-in, then batches."""
        return self.burn_steps + self.batches

    def good_status(self) -> Status:
        """Sampled."""
        return Status.SAMPLED

    def init(self, problem: ClosedProblem, rng: np.random.Generator) -> Run:
        """The first state of every chain."""
        arrays = sampling_arrays(problem, engine=self.name, weights=self.takes_weights)
        learned = self.prepare(arrays)
        seeds = rng.integers(0, 2**63, size=(self.chains, 4), dtype=np.int64)
        thin, keep = self.storage(arrays)
        stop = np.zeros(1, dtype=np.int64)

        def first(seed: NDArray[np.int64]) -> SampledChain:
            sequence = np.random.SeedSequence([int(word) for word in seed])
            own = arrays.tree
            return SampledChain(
                self.first_state(arrays, learned, sequence, stop),
                BatchMoments.empty(arrays.cells),
                BatchMoments.empty(arrays.entries),
                np.zeros(arrays.cells + 2 * arrays.entries),
                halves=np.zeros((2, 3, arrays.entries)),
                batch_squares=np.zeros(arrays.entries),
                tree=None
                if arrays.rho is None
                else own._replace(
                    law=own.law.copy(), law_turned=own.law_turned.copy(), initial=own.initial.copy()
                ),
            )

        chains = tuple(in_threads(first, seeds, self.workers, stop))
        return Run(arrays, chains, thin, keep, stop, learned)

    def step(self, state: Run) -> Run:
        """Burn in, or run one batch on every chain."""
        run = replace(state, steps=state.steps + 1)
        if state.steps < self.burn_steps:
            run = self.burn(run, share(self.burn_in, self.burn_steps, state.steps))
            if run.steps == self.burn_steps:
                self._require_possible(run)
            return run
        part = state.steps - self.burn_steps
        batches = self.batch(run, share(self.length, self.batches, part), share(run.keep, self.batches, part))
        return replace(
            run, chains=tuple(self._add(run, c, b) for c, b in zip(run.chains, batches, strict=True))
        )

    def residual(self, state: Run) -> float:
        """The largest R-hat − 1 of a node count, or a `FLOW_SHARE` of that of a flow.

        Infinite while it is not known (burn-in, fewer than four draws), and at the end where a flow that is free never moved.
        """
        if state.steps <= self.burn_steps:
            return np.inf
        worst = float(r_hat(state.node_draws(), ranks=False).max()) - 1
        worst = max(worst, FLOW_SHARE * (float(state.flow_mixing()[0].max(initial=1.0)) - 1))
        if state.steps >= self.max_iterations and (self._stuck_flow(state) or _stuck_totals(state)):
            return np.inf
        return np.inf if np.isnan(worst) else worst

    def _stuck_flow(self, run: Run) -> bool:
        """Whether some flow between two exactly counted nodes is free, should have moved, and never did."""
        arrays, exact = run.arrays, exact_nodes_of(run.arrays)
        seen = arrays.slots.edge_mode != 0  # readings of flows may well hold them where they are
        steps = [
            v for v, u in enumerate(arrays.rooted.parents) if u >= 0 and exact[v] and exact[u] and not seen[v]
        ]
        if not steps:
            return False
        sums = np.sum([c.halves.sum(axis=0) for c in run.chains], axis=0)
        moved = sums[1] * sums[2] > sums[0] ** 2 * (1 + EQUAL)
        kept = [s for c in run.chains for s in (*c.snapshots[-LOOKED_AT:], self.snapshot(c.state))]
        flows = np.array([self.tables(arrays, snapshot)[1] for snapshot in kept])
        size = run.flow_mixing()[1]
        effective = float(np.nanmedian(size)) if np.isfinite(size).any() else float(sums[2].max()) / len(kept)
        for v in steps:
            law = arrays.transition(v)
            kappa = row_kappa(np.zeros(1) if arrays.rho is None else arrays.rho[v], len(law))
            here = flows[:, arrays.edge(v)].reshape(len(kept), *law.shape)
            if never_moved(law, kappa, here, moved[arrays.edge(v)].reshape(law.shape)) > VISITS / effective:
                return True
        return False

    def done(self, state: Run) -> bool:
        """Whether all batches have run and the chains agree."""
        return state.steps >= self.max_iterations and self.residual(state) <= self.tolerance

    def batch(self, run: Run, length: int, keep: int) -> list[Batch]:
        """`length` sweeps or moves of every chain, with `keep` snapshots."""
        return in_threads(
            lambda chain: self._batch(run, chain, length, keep), run.chains, self.workers, run.stop
        )

    def _batch(self, run: Run, chain: SampledChain, length: int, keep: int) -> Batch:
        """One chain's batch, in `keep` parts with a snapshot after each. Thinning counts from the start of the chain."""
        arrays = run.arrays
        sizes = (arrays.cells, arrays.cells, arrays.entries, arrays.entries, arrays.cells, arrays.entries)
        sums = BatchSums._make((*(np.zeros(size) for size in sizes), np.zeros(3, dtype=np.int64)))
        draws, snapshots, parts = [], [], max(keep, 1)
        for part in range(parts):
            count, before = share(length, parts, part), chain.length + part * length // parts
            rows = np.zeros(
                ((before + count) // run.thin - before // run.thin, arrays.cells),
                count_type(arrays.population),
            )
            self.advance(run, chain, sums, rows, before, count)
            draws.append(rows)
            if keep > 0 and count > 0:
                snapshots.append(self.snapshot(chain.state))
        return Batch(length, sums, np.concatenate(draws), tuple(snapshots))

    def _add(self, run: Run, chain: SampledChain, batch: Batch) -> SampledChain:
        """A chain with one batch more."""
        node, node_smooth, edge, edge_smooth = self.estimates(run, batch)
        sums, halves = batch.sums, chain.halves.copy()
        half = 0 if 2 * (run.steps - self.burn_steps) <= self.batches else 1
        halves[half] += np.stack([sums.edge, sums.edge_square, np.full(sums.edge.shape, float(batch.length))])
        return replace(
            chain,
            halves=halves,
            batch_squares=chain.batch_squares + (sums.edge / max(batch.length, 1)) ** 2,
            nodes=chain.nodes.add(node, node_smooth),
            edges=chain.edges.add(edge, edge_smooth),
            totals=chain.totals + np.concatenate([sums.node_square, sums.edge_square, sums.edge]),
            tally=chain.tally + int(sums.tally[0]),
            length=chain.length + batch.length,
            draws=(*chain.draws, batch.draws),
            snapshots=chain.snapshots + batch.snapshots,
        )

    def _require_possible(self, run: Run) -> None:
        """Refuse to sample from a state that the data make impossible."""
        bad = sorted({text for c in run.chains for text in run.arrays.impossible(c.state.slot_count)})
        if bad:
            shown = ", ".join(bad[:5]) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")
            raise ProblemError(
                f"{self.name} found no state that agrees with the data within burn_in = {self.burn_in}; still impossible: {shown}."
                f" {self.advice}"
            )


def _stuck_totals(run: Run) -> bool:
    """Whether two individuals could exchange kinds of cells within the same exact totals, should have, and never did.

    Where totals overlap (of a cell, and of a group), they do not say how many are of each kind, and worms keep the number of every kind.
    """
    arrays, draws = run.arrays, np.asarray(run.node_draws(), dtype=float)
    for v, totals in overlapping_totals(arrays):
        kinds = draws[..., arrays.node(v)] @ totals.member
        kinds = kinds.reshape(-1, kinds.shape[-1])
        if exchanged(totals, kinds) > VISITS / len(kinds):
            return True
    return False


def share(total: int, parts: int, part: int) -> int:
    """The size of one of `parts` nearly equal parts of `total`."""
    return (part + 1) * total // parts - part * total // parts


def count_type(population: int) -> type[np.signedinteger[Any]]:
    """The integers that stored counts have: 32 bits where the population fits."""
    return np.int32 if population <= np.iinfo(np.int32).max else np.int64


def in_threads(
    work: Callable[[Item], Result],
    items: Sequence[Item] | NDArray[Any],
    workers: int,
    stop: NDArray[np.int64],
) -> list[Result]:
    """`work` on every item, in daemon threads; the calling thread only waits, so that it hears an interrupt at once.

    Compiled code cannot be interrupted, and a pool's threads are joined when the interpreter ends. Here an interrupt sets `stop`, which the
    kernels look at, and is raised without waiting: a thread that is still compiling cannot delay the end of the program.
    """
    results: dict[int, Result] = {}
    failures: list[BaseException] = []
    todo = iter(range(len(items)))
    lock = threading.Lock()

    def run() -> None:
        try:
            while not stop[0]:
                with lock:
                    k = next(todo, None)
                if k is None:
                    return
                results[k] = work(items[k])
        except BaseException as failure:
            stop[0] = 1
            failures.append(failure)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(min(workers, len(items)))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(POLL)
    except BaseException:
        stop[0] = 1
        raise
    if failures:
        raise failures[0]
    return [results[k] for k in range(len(items))]


@dataclass(frozen=True, eq=False)
class SampleBeliefs(Beliefs):
    """Means, variances and errors of node and edge tables, from several chains.

    Attributes
    ----------
    means, variances, errors
        Posterior means, posterior variances, Monte-Carlo standard errors of the means: each flat over the cells of all nodes, and flat
        over all edge tables.
    node_draws
        Node counts of the kept sweeps, (chains, draws, cells).
    snapshots
        Whole configurations as the sampler holds them; `tables` turns one into flat node and edge tables.
    """

    arrays: SamplingArrays
    means: tuple[Array, Array]
    variances: tuple[Array, Array]
    errors: tuple[Array, Array]
    node_draws: NDArray[Any]
    snapshots: tuple[Any, ...]
    tables: Callable[[Any], tuple[NDArray[Any], NDArray[Any]]]
    diagnostics: Mapping[str, Any]
    log_evidence: float | None = None

    def mean(self, scope: Scope) -> Array:
        """Estimated posterior mean."""
        return self.arrays.pick(scope, *self.means)

    def variance(self, scope: Scope) -> Array:
        """Estimated posterior variance."""
        return self.arrays.pick(scope, *self.variances)

    def error(self, scope: Scope) -> Array:
        """Monte-Carlo standard error of the mean."""
        return self.arrays.pick(scope, *self.errors)

    def covariance(self, a: Scope, b: Scope) -> Array:
        """Sample covariance: over all kept sweeps for two nodes, over the whole configurations kept when flows take part."""
        first, second = self._draws(a, b)
        return np.asarray((first - first.mean(axis=0)).T @ (second - second.mean(axis=0)) / (len(first) - 1))

    def law_of_sum(self, scope: Scope, weights: Array) -> Sizes | None:
        """Of a node's entries: how often each sum was visited."""
        place = self.arrays.rooted.place(scope)
        if place.edge:
            return None
        drawn = self.node_draws[..., self.arrays.node(place.node)].reshape(-1, len(weights)) @ weights
        values, counts = np.unique(drawn, return_counts=True)
        return Sizes(values.astype(float), counts / counts.sum())

    def sum_variance(self, parts: Sequence[tuple[Scope, Array]]) -> float:
        """Of Σ w·n: the sample variance over the same draws that covariances are from."""
        widest = max((scope for scope, _ in parts), key=len)
        return float(sum(self._draws(scope, widest)[0] @ w for scope, w in parts).var(ddof=1))  # type: ignore[union-attr]

    def sample(self, size: int, *, rng: np.random.Generator, integer: bool = True) -> dict[Scope, Array]:
        """Configurations that the chains visited, picked at random; with replacement when more are asked for than were kept."""
        del integer  # counts are integers already
        kept = self._kept()
        nodes, edges = self._configurations(rng.choice(kept, size=size, replace=size > kept))
        return {scope: self.arrays.pick(scope, nodes, edges) for scope in self.arrays.cliques}

    def quantile(self, scope: Scope, level: float) -> Array | None:
        """Sample quantile of every entry (the smallest count with at least `level` of the draws at or below it).

        None for flows when no whole configurations were kept: the moments then have to do.
        """
        if len(scope) > 1 and not self.snapshots:
            return None
        draws = self._draws(scope, scope)[0]
        table = np.quantile(draws, level, axis=0, method="inverted_cdf")
        return np.asarray(table.reshape(self.mean(scope).shape), dtype=float)

    @property
    def has_draws(self) -> bool:
        """Whether whole configurations were kept."""
        return bool(self.snapshots)

    @property
    def promises(self) -> Promises:
        """Averages of counts: ≥ 0, consistent, summing to N."""
        consistent = self.diagnostics.get("raking_residual", 0.0) <= 1e-9
        return Promises(non_negative=True, consistent=consistent)

    def _draws(self, a: Scope, b: Scope) -> tuple[Array, Array]:
        """Draws of two tables from the same sweeps, flattened, (draws, size)."""
        if len(a) == len(b) == 1:
            nodes, edges = self.node_draws.reshape(-1, self.arrays.cells), np.zeros((1, 0))
        else:
            nodes, edges = self._configurations(range(self._kept()))
        first, second = (self.arrays.pick(s, nodes, edges) for s in (a, b))
        return first.reshape(len(first), -1).astype(float), second.reshape(len(second), -1).astype(float)

    def _kept(self) -> int:
        if not self.snapshots:
            raise ValueError(
                "no whole configurations were kept: run the sampler with draws ≥ 1 (they may not have fitted in memory)"
            )
        return len(self.snapshots)

    def _configurations(self, which: Iterable[int]) -> tuple[Array, Array]:
        """Node and edge tables of some of the configurations kept, (number, cells) and (number, entries)."""
        rows = list(which)
        nodes, edges = np.empty((len(rows), self.arrays.cells)), np.empty((len(rows), self.arrays.entries))
        for row, k in enumerate(rows):
            nodes[row], edges[row] = self.tables(self.snapshots[k])
        return nodes, edges


def spread(raw: Array, square: Array, mean: Array) -> Array:
    """Posterior variance from E n² and E n as counted.

    For rare entries (mean < `RARE`), which a finite run may never see occupied, E[n(n − 1)] + m − m² with the better mean m.
    """
    pairs = np.maximum(square - raw, 0.0)
    return np.where(mean < RARE, pairs + mean - mean**2, np.maximum(square - raw**2, 0.0))


def mixing(draws: NDArray[Any]) -> dict[str, Any]:
    """R-hat (NaN below four draws per chain) and effective sample size over node counts that moved."""
    ratio, size = r_hat(draws), effective_size(draws)
    moved = np.isfinite(size)
    return {
        "r_hat": float(ratio.max()),
        "ess_min": float(size[moved].min()) if moved.any() else float("nan"),
        "ess_median": float(np.median(size[moved])) if moved.any() else float("nan"),
    }
