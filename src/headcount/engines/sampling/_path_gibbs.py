r"""The individual-level sampler: N paths, whose counts have exactly the CGM posterior. The reference of every accuracy table.

One sweep redraws every individual, lets pairs of individuals exchange subtrees, and redraws a few whole paths exactly.
Those exact conditionals are also the better estimator: with r the likelihood ratios of one more individual,

    E[n_C | y] = N E[p(x_C | other individuals, y)]                       (individuals are exchangeable)

whose error is opposite to that of the counts themselves (a full cell repels), so a node mean is the blend of both with the
smallest variance (scaled to N), and edge means are the smoothed tables raked to those node means. At L = 36, N = 1080 this has a
fourth of the error of counting for nodes, and less than a tenth for flows.

Single paths and exchanged subtrees cannot pass between states that differ in two whole paths at once: with sharp counts of a few
individuals one must leave a cell in the step in which the other arrives. Among a few individuals, pairs are therefore redrawn together,
exactly. With :math:`n^-` the counts without the two, slot s has the log-ratios :math:`r_s` of one individual more and :math:`r_s'` of a
second one, so that states (i, j) of the two weigh

.. math:: \log l_v(i, j) = \sum_s (a_{si} + a_{sj})\, r_s + a_{si} a_{sj}\,(r_s' - r_s)

(a: which cells feed which slot). Belief propagation over pairs of states takes two products of matrices per step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from headcount import memory
from headcount.engines._cost import BYTES, sizes
from headcount.engines.engine import Rule, flag, or_none, whole
from headcount.engines.exact._few_individuals import push
from headcount.engines.sampling._arrays import BatchSums, PathState, Proposal, SamplingArrays
from headcount.engines.sampling._path_moves import (
    draw_paths,
    edge_counts,
    exchange_futures,
    shift_individual,
    sweep_paths,
)
from headcount.engines.sampling._primitives import alias_tables, below, ratio, uniform
from headcount.engines.sampling._sampler import (
    FEWEST_DRAWS,
    Batch,
    Run,
    SampleBeliefs,
    SampledChain,
    Sampler,
    share,
)
from headcount.engines.sampling._statistics import BatchMoments
from headcount.engines.sampling._worms import PathWorms, path_worms, worm_space
from headcount.individual import Model
from headcount.observe import ClosedProblem, Poisson, ProblemError
from headcount.solve.raking import quotient, rake

if TYPE_CHECKING:
    from headcount._types import Array

MOST_DRAWS = 1000
"""Node tables kept per chain: quantiles of more gain nothing that the intervals' rounding would show."""
TUNED_PARTS = 4
"""Parts of each of the last three burn-in steps, whose spread tells how much to trust counting and how much smoothing."""
COUNTED = 0.01
"""Share of counting in flows before raking: too little to add noise, enough that no flow that happened starts near zero."""
WORTHWHILE = 0.15
"""Share of whole-path proposals that must be accepted for them to be kept. Measured on maps of 16 and 36 cells: where 24 % to 84 % are
accepted, squared error times CPU time is .93 to 1.18 of that without proposals, where none is, 1.44. What they are for is individuals that
may be absent, who enter and leave with a whole path: of an open population of 182 candidates on two cells, effective samples per second
are 1170 with proposals, 15 without, and 540 where every path is redrawn exactly in every sweep."""
SINGLE_SITE_EVERY = 4
"""With whole-path proposals, sweeps per single-site sweep. Measured on 16 cells: squared error times CPU time is 1.8 times that of 4 at 1,
1.3 at 2, .93 at 8 and .95 at 16."""
BATCH_TOLERANCE, CONSISTENT = 1e-6, 1e-13
"""Margin errors, relative to N, to which flows are raked: a batch's, of which only the spread is used, and the answer's (rounding)."""
EMPTY = 1e-290
"""A row of expected counts below this has no law of its own: the division would not be a normal double."""
MOST_PEOPLE = 5
"""Individuals up to which pairs are redrawn: among more, a pair is seldom what holds a chain back."""
MOST_AT_ONCE = 4
"""Pairs redrawn at a time. Of 148 random problems with N ≤ 5, 6 did not mix (R-hat above 1.05) without pairs and 2 with four."""
PAIR_STATES = 100_000
"""Pairs of states, over all nodes, that may be weighed at a time (about 10 ms): longer chains and wider maps get fewer pairs."""


def exact_paths(population: int) -> int:
    """Whole paths redrawn exactly per sweep by default."""
    return min(20, max(4, ceil(population / 20)))


STATE_DRAWN, STATE_WEIGHED = 1.3e-7, 1e-9
"""Seconds per individual, variable and sweep of the path sampler: fixed, and per state of the variable. Fitted at L = 36 and 100."""
FLOW_SUMMED, FLOW_REDRAWN = 2.2e-9, 0.6e-9
"""Seconds per flow and sweep of the path sampler: to add it to the sums, and per path redrawn exactly. Measured at L = 120, T = 10."""
PAIR_REDRAWN, PAIR_WEIGHED, STRETCHES = 6e-4, 5e-8, 65
"""Seconds per pair of individuals redrawn together: fixed, and per pair of states; and stretches of sweeps between them. Measured at
L = 30 and 60."""
SUMS_PER_FLOW, SUMS_PER_CELL = 24, 20
"""Numbers per flow and per cell that a chain holds: batch moments, sums, squares, proposals."""
SAMPLER_BYTES = 20_000_000
"""What R-hat and effective size take beside that: about twelve arrays of 200 000 numbers (``sampling/_statistics.py``)."""
KEPT_BYTES, KEPT_DRAWS = 256_000_000, 1000
"""The sampler's own limits on kept configurations (bytes) and node tables per chain."""
RATIO_ENTRIES = 8_000_000
"""Up to here the samplers tabulate Poisson's likelihood ratios too."""


@dataclass(frozen=True)
class PathGibbs(Sampler):
    """Individual-level Gibbs sampling on chains and trees, any noise, entries and sums of nodes and edges.

    Parameters
    ----------
    burn_in
        Sweeps discarded, during which the whole-path proposals are learned.
    sweeps
        Sweeps kept, per chain.
    thin
        Keep the node tables of every `thin`-th sweep (for R-hat, quantiles, covariances); None: as many as fit 256 MB, at most 1000.
    exact
        Whole paths redrawn exactly per sweep; None: one per twenty individuals, from 4 to 20.
    pairs
        Pairs of individuals redrawn together, exactly, between stretches of sweeps; None: up to four among at most five individuals, where
        no flows are observed and the map is small, else none.
    proposals
        Whole-path proposals: True, False, or None for "if at least 15 % are accepted at the end of burn-in".
    draws
        Whole configurations kept per chain, for joint draws and covariances of flows.
    start
        A model on the same variables to draw the first paths from (for example one tilted to the MAP); None: the problem's own.
    chains, batches, tolerance, workers
        See :class:`Sampler`.

    Raises
    ------
    ProblemError
        When the model is not a chain or tree, the noise is correlated, the tables would not fit, or after burn-in a chain is still
        in a state that the data make impossible.

    Notes
    -----
    Moves change one individual, exchange two individuals' subtrees, or go round cycles of individuals at nodes with exact counts (worms);
    of at most five individuals, pairs are redrawn as well. Worms connect all tables between nodes that are counted exactly, whatever moves
    are possible, and cross nodes between them that are not; where flows are observed they are proposals. Between exact totals of several
    groups, individuals of different groups exchange their cells at any set of times that leaves what is seen as it is. The seed fixes
    every bit, whatever the number of workers.

    Flocks (``Flocks(c)``, c a whole number that divides N) are sampled as N/c units. Rows that vary (``Overdispersion(rho=…)``, exactly
    Dirichlet–multinomial here) are drawn in turn with the paths; sweeps then move counts by a share 1/φ of their variance, so give about φ
    times as many.
    """

    burn_in: int = 300
    sweeps: int = 1000
    thin: int | None = None
    exact: int | None = None
    proposals: bool | None = None
    pairs: int | None = None
    draws: int = 50
    start: Model | None = None

    name: ClassVar[str] = "PathGibbs"
    draws_rows: ClassVar[bool] = True
    takes_candidates: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = True
    rules: ClassVar[dict[str, Rule]] = {
        **Sampler.rules,
        "sweeps": whole(),
        "thin": or_none(whole()),
        "exact": or_none(whole()),
        "proposals": or_none(flag()),
        "pairs": or_none(whole(least=0)),
        "draws": whole(least=0),
        "start": or_none(Rule("a model of the problem's variables", lambda value: isinstance(value, Model))),
    }
    burn_steps: ClassVar[int] = 6
    advice: ClassVar[str] = (
        "Check these counts against the model's zeros and the population; if they can be right, raise burn_in or give start= a model"
        " near the data (for example the problem's model tilted to its MAP)"
    )

    def memory(self, problem: ClosedProblem) -> int:
        """States of all individuals per chain and kept configuration, sums per flow, node tables, likelihood ratios."""
        size = sizes(problem)
        states = 2 * self.chains * size.people * len(problem.model.variables)
        kept = min(states * min(self.draws, self.sweeps), KEPT_BYTES)
        rows, tabulated = size.people + 1, size.seen
        if tabulated * rows > RATIO_ENTRIES:
            tabulated = sum(len(s) for s in problem.sites if not isinstance(s.noise, Poisson))
        sums = SUMS_PER_FLOW * size.tables + SUMS_PER_CELL * size.cells
        drawn = min(KEPT_DRAWS, self.sweeps) * size.cells  # 4 bytes per count, and one copy
        return BYTES * (tabulated * rows + self.chains * (sums + drawn)) + SAMPLER_BYTES + states + kept

    def seconds(self, problem: ClosedProblem, speed: float) -> float:
        """See `Engine`."""
        del speed
        size, widths = sizes(problem), [len(s) for s in problem.model.states.values()]
        redrawn = self.exact or exact_paths(size.people)
        drawn = size.people * len(widths) * (STATE_DRAWN + STATE_WEIGHED * max(widths))
        drawn += size.tables * (FLOW_SUMMED + FLOW_REDRAWN * redrawn)
        alone = problem.dispersion is None and all(len(site.scope) == 1 for site in problem.sites)
        pairs = self.pairs or pairs_at_once(size.people, widths, possible=alone)
        paired = STRETCHES * pairs * (PAIR_REDRAWN + PAIR_WEIGHED * sum(width**2 for width in widths))
        sweeps = self.burn_in + self.sweeps
        return float(self.chains * (sweeps * drawn + paired) / min(self.workers, self.chains))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sweeps < self.batches:
            raise ValueError(f"PathGibbs: sweeps ({self.sweeps}) must be at least batches ({self.batches})")

    @property
    def length(self) -> int:
        """Sweeps."""
        return self.sweeps

    def prepare(self, arrays: SamplingArrays) -> Shared:
        """Refuse what would not fit; before burn-in, paths are proposed from `start` or the model."""
        nodes = len(arrays.tree.sizes)
        per_chain = 2 * nodes * arrays.population + 8 * (20 * arrays.cells + 14 * arrays.entries)
        memory.require(
            self.chains * per_chain,
            f"PathGibbs with {self.chains} chains of {arrays.population} individuals",
            remedy="use fewer chains, or TiltedEP",
        )
        return Shared(
            proposal=_model_proposal(arrays, self.start),
            exact=self.exact or exact_paths(arrays.population),
            pairs=_pairs_of(arrays, self.pairs),
            trusted=self.start is not None,
            worms=path_worms(arrays),
            tuning=BatchMoments.empty(arrays.cells),
            counting=np.full(arrays.cells, 0.5),
            flow_tuning=BatchMoments.empty(arrays.entries),
            flow_counting=np.full(arrays.entries, COUNTED),
        )

    def storage(self, arrays: SamplingArrays) -> tuple[int, int]:
        """As many draws as fit, at most `MOST_DRAWS`; as many configurations as asked for, while they fit."""
        draws = min(MOST_DRAWS, max(FEWEST_DRAWS, self.fitting(8 * arrays.cells)))
        paths = 2 * len(arrays.tree.sizes) * arrays.population
        return self.thin or ceil(self.sweeps / draws), min(self.draws, self.fitting(paths))

    def first_state(
        self, arrays: SamplingArrays, learned: Shared, seed: np.random.SeedSequence, stop: Any
    ) -> PathState:
        """N paths drawn from the proposal."""
        slots = arrays.slots.law.shape[0]
        state = PathState(
            path=np.zeros((len(arrays.tree.sizes), arrays.population), dtype=np.int16),
            node_count=np.zeros(arrays.cells, dtype=np.int64),
            node_ratio=np.ones(arrays.cells),
            slot_count=np.zeros(slots, dtype=np.int64),
            slot_ratio=np.ones(slots),
            random=seed.generate_state(4, np.uint64),
            stop=stop,
        )
        draw_paths(arrays.tree, arrays.slots, state, learned.proposal)
        return state

    def advance(
        self, run: Run, chain: SampledChain, sums: BatchSums, draws: NDArray[Any], before: int, count: int
    ) -> None:
        """Sweeps; where rows of transitions vary, each sweep is followed by a draw of the rows given the paths."""
        arrays, learned = run.arrays, run.learned
        worms, space = learned.worms, worm_space(arrays, learned.worms)

        def sweep(tree: Any, moves: Any, rows: NDArray[Any], first: int, using: PathWorms) -> None:
            given = (tree, arrays.slots, chain.state, learned.proposal, moves, sums, rows, run.thin)
            sweep_paths(*given, first, using, space)

        if arrays.rho is not None:
            # Futures are exchanged by weights in which the rows are integrated out, so the rows are drawn at once after that.
            given_rows = worms._replace(near=False)
            for k in range(before, before + count):
                rows = draws[k // run.thin - before // run.thin :]
                sweep(chain.tree, (1, 1, False, learned.exact), rows, k, given_rows)
                if worms.near:
                    exchange_futures(arrays.tree, arrays.slots, chain.state, worms, space)
                _redraw_rows(arrays, chain)
            return
        for _ in range(learned.pairs if count else 0):
            redraw_pair(arrays, chain.state)
        moves = (count, SINGLE_SITE_EVERY if learned.proposing else 1, learned.proposing, learned.exact)
        sweep(arrays.tree, moves, draws, before, worms)

    def snapshot(self, state: PathState) -> NDArray[np.int16]:
        """All paths."""
        return np.array(state.path)

    def tables(self, arrays: SamplingArrays, snapshot: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Counted from all paths."""
        return _tables(arrays, snapshot)

    def burn(self, run: Run, length: int) -> Run:
        """Steps 1–3: find a possible state, 4: learn the proposals, 5: try them, 6: settle. Steps 4–6 weigh counting against smoothing."""
        run = replace(run, learned=replace(run.learned, proposing=self._proposes(run)))
        if run.steps < 4:
            self.batch(run, length, 0)
            return run
        lengths = [share(length, TUNED_PARTS, part) for part in range(TUNED_PARTS)]
        batches = [batch for part in lengths for batch in self.batch(run, part, 0)]
        run = replace(run, learned=_tuned(run, batches))
        if run.steps == 4 and self.proposals is not False and run.arrays.rho is None:
            run = replace(run, learned=_smoothed_proposal(run, batches))
        if run.steps == 5 and length > 0:
            run = replace(run, learned=self._judged(run.learned, batches))
        return run

    def _proposes(self, run: Run) -> bool:
        """Whether a step of burn-in proposes whole paths: from a trusted proposal always, else to try them, and once they are judged."""
        if run.arrays.rho is not None:  # a proposal's weights are those of fixed rows
            return False
        judged = run.steps == 6 and run.learned.proposing
        return self.proposals is not False and (run.learned.trusted or run.steps == 5 or judged)

    def _judged(self, learned: Shared, batches: list[Batch]) -> Shared:
        """Whether whole-path proposals are worth their time, by how many of them were accepted."""
        tried, taken = (sum(int(b.sums.tally[k]) for b in batches) for k in (1, 2))
        accepted = taken / max(tried, 1)
        keep = accepted >= WORTHWHILE if self.proposals is None else self.proposals
        return replace(learned, accepted=accepted, proposing=keep)

    def estimates(self, run: Run, batch: Batch) -> tuple[Array, Array, Array, Array]:
        """Node means by counting and by smoothing; flows raked to their blend, and before that."""
        node, smooth, flows = _averages(run, batch)
        counting = run.learned.counting
        blend = _normalised(run.arrays, counting * node + (1 - counting) * smooth, node)
        return node, smooth, _rake_tree(run.arrays, blend, flows, tolerance=BATCH_TOLERANCE)[0], flows

    def finish(self, state: Run) -> SampleBeliefs:
        """Blended node means, raked flows, spreads from the counts themselves."""
        arrays, learned = state.arrays, state.learned
        nodes, edges = state.moments()
        node_mean = _normalised(arrays, nodes.blend(learned.counting), nodes.raw)
        flows = np.sum([c.totals[arrays.cells + arrays.entries :] for c in state.chains], axis=0)
        edge_mean, residual = _rake_tree(
            arrays,
            node_mean,
            edges.smooth,
            tolerance=CONSISTENT,
            counted=flows / sum(c.length for c in state.chains),
        )
        return state.beliefs(
            (node_mean, edge_mean),
            (nodes.standard_error(learned.counting), edges.standard_error(1.0)),
            partial(self.tables, arrays),
            {
                "accepted": learned.accepted,
                "whole_path_proposals": learned.proposing,
                "counting_share": float(learned.counting.mean()),
                "exact_individuals": learned.exact,
                "raking_residual": residual,
                "sweeps": sum(c.length for c in state.chains),
            },
        )


@dataclass(frozen=True, eq=False)
class Shared:
    """What all chains use, and burn-in improves."""

    proposal: Proposal
    exact: int
    """Paths redrawn exactly per sweep."""
    pairs: int
    """Pairs redrawn together before every stretch of sweeps."""
    worms: PathWorms
    """Where cycles of individuals exchange futures."""
    trusted: bool
    """Whether the proposal is the caller's, near the data: then it is used from the start."""
    tuning: BatchMoments
    """Node means of the last burn-in steps, which fix `counting`."""
    counting: Array
    """The share of counting in each node mean; the rest is smoothing."""
    flow_tuning: BatchMoments
    """The same of flows, counted and smoothed."""
    flow_counting: Array
    """The share of counting in each flow before raking: 1 in steps where it is the better one, between exact counts above all, where one
    individual given all the others has no choice."""
    accepted: float = float("nan")
    proposing: bool = False


def _redraw_rows(arrays: SamplingArrays, chain: SampledChain) -> None:
    """Rows of transitions (and the initial law) given the paths, Dirichlet((1 − ρ)/ρ p + n), into the chain's own tree."""
    assert arrays.rho is not None
    flows = np.zeros(arrays.entries, dtype=np.int64)
    edge_counts(arrays.tree, chain.state.path, flows)
    rng = np.random.default_rng(chain.state.random)
    own, model = chain.tree, arrays.tree
    first = chain.state.node_count[arrays.node(0)]
    own.initial[:] = _posterior_rows(model.initial[None], first[None], arrays.rho[0], rng)[0]
    for v in range(1, len(model.sizes)):
        shape = (int(model.sizes[model.parent[v]]), int(model.sizes[v]))
        at = slice(int(model.law_start[v]), int(model.law_start[v]) + shape[0] * shape[1])
        counts = flows[arrays.edge(v)].reshape(shape)
        rows = _posterior_rows(model.law[at].reshape(shape), counts, arrays.rho[v], rng)
        own.law[at], own.law_turned[at] = rows.ravel(), rows.T.ravel()


def _posterior_rows(p: Array, counts: NDArray[np.int64], rho: Array, rng: np.random.Generator) -> Array:
    """Rows p given moves, each Dirichlet around p with correlation rho before them; rows with rho = 0 stay as they are."""
    varies = (rho > 0)[:, None] & (p > 0)
    kappa = (1.0 - rho) / np.where(rho > 0, rho, 1.0)
    shape = np.where(varies, kappa[:, None] * p + counts, 1.0)
    drawn = np.where(varies, np.maximum(rng.standard_gamma(shape), EMPTY), 0.0)
    return np.where((rho > 0)[:, None], drawn / np.maximum(drawn.sum(axis=1, keepdims=True), EMPTY), p)


def _averages(run: Run, batch: Batch) -> tuple[Array, Array, Array]:
    """A batch's node means by counting and by smoothing, and its flows, blended of both."""
    node, node_smooth, flows, smooth = _both(run, batch)
    share = run.learned.flow_counting
    return node, node_smooth, share * flows + (1 - share) * smooth


def _both(run: Run, batch: Batch) -> tuple[Array, Array, Array, Array]:
    """Node means and flows, each by counting and by smoothing (by counting where no path was redrawn)."""
    sums, people, exact = batch.sums, run.arrays.population, int(batch.sums.tally[0])
    node, flows = sums.node / max(batch.length, 1), sums.edge / max(batch.length, 1)
    if exact == 0:
        return node, node, flows, flows
    return node, people * sums.node_smooth / exact, flows, people * sums.edge_smooth / exact


def _tuned(run: Run, batches: list[Batch]) -> Shared:
    """The shares of counting and smoothing, with what these burn-in batches say about both."""
    learned: Shared = run.learned
    tuning, flows = learned.tuning, learned.flow_tuning
    for batch in batches:
        if batch.sums.tally[0] > 0:
            both = _both(run, batch)
            tuning, flows = tuning.add(*both[:2]), flows.add(*both[2:])
    if tuning.batches == 0:
        return learned
    starts = run.arrays.tree.edge_start
    summed = np.add.reduceat(np.stack([flows.raw_raw, flows.smooth_smooth]), starts[1:-1], axis=1)
    share = np.repeat(np.where(summed[0] < summed[1], 1.0, COUNTED), np.diff(starts)[1:])
    return replace(
        learned,
        tuning=tuning,
        counting=tuning.best_shares(run.arrays.tree.node_start),
        flow_tuning=flows,
        flow_counting=share,
    )


def _tables(arrays: SamplingArrays, path: NDArray[np.int16]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Node and edge tables of all paths, flat."""
    edges = np.zeros(arrays.entries, dtype=np.int64)
    edge_counts(arrays.tree, path, edges)
    sizes = arrays.rooted.sizes
    return np.concatenate([np.bincount(path[v], minlength=size) for v, size in enumerate(sizes)]), edges


def _normalised(arrays: SamplingArrays, nodes: Array, counted: Array) -> Array:
    """Node means with which tables can agree: nobody moves between states that no path joins.

    Counting agrees by itself, and so does smoothing; their blend with a share for every entry only nearly. At the root, groups whose
    number is known have it; from there down every block of a step has as many as come into it.
    """
    made = np.array(nodes, dtype=float)
    for v, u in enumerate(arrays.rooted.parents):
        here = arrays.node(v)
        into, out_of = arrays.blocks[v]
        blocks = 1 + max(into.max(initial=0), out_of.max(initial=0))
        have = np.asarray(np.bincount(out_of, made[here], minlength=blocks), dtype=float)
        before = counted[here] if v == 0 else made[arrays.node(u)]
        wanted = np.asarray(np.bincount(into, before, minlength=blocks), dtype=float)
        if v == 0:
            wanted = _kept_totals(wanted, have, float(arrays.population))
        known = np.where(_never_changed(counted[here]), counted[here], 0.0)
        of_known = np.asarray(np.bincount(out_of, known, minlength=blocks))
        others = np.where(known > 0, 0.0, made[here])
        rest = np.asarray(np.bincount(out_of, others, minlength=blocks), dtype=float)
        keeps = ((rest > 0) & (wanted > of_known))[out_of]
        scaled = made[here] * quotient(wanted - of_known, rest)[out_of]
        made[here] = np.where(
            keeps, np.where(known > 0, known, scaled), made[here] * quotient(wanted, have)[out_of]
        )
    return made


def _never_changed(counted: Array) -> NDArray[np.bool_]:
    """Positive counts that were the same whole number in all sweeps: exact ones."""
    return (counted > 0.5) & (np.abs(counted - np.rint(counted)) < WHOLE_MEAN)


def _kept_totals(counted: Array, blended: Array, population: float) -> Array:
    """Totals of the root's parts that no path joins: as counted where they never change, else as blended, N in all."""
    never = np.abs(counted - np.rint(counted)) < WHOLE_MEAN
    rest = population - counted[never].sum()
    scale = rest / max(float(blended[~never].sum()), EMPTY)
    return np.where(never, counted, scale * blended)


WHOLE_MEAN = 1e-9
"""Distance of a mean over sweeps from a whole number below which it never changed: one change in a million sweeps is 1e-6."""


def _rake_tree(
    arrays: SamplingArrays, nodes: Array, edges: Array, *, tolerance: float, counted: Array | None = None
) -> tuple[Array, float]:
    """Every edge table raked to the node means at its two ends; also the largest margin error left, relative to N.

    Flows that never changed, by ``counted``, stay what they were, where the others can have the margins.
    """
    out, worst = np.empty_like(edges), 0.0
    for v, u in enumerate(arrays.rooted.parents[1:], start=1):
        rows, columns = nodes[arrays.node(u)], nodes[arrays.node(v)]
        table, known = (
            edges[arrays.edge(v)].reshape(rows.size, columns.size),
            np.zeros((rows.size, columns.size)),
        )
        if counted is not None:
            here = counted[arrays.edge(v)].reshape(table.shape)
            known = np.where(_never_changed(here), here, 0.0)
        made = _raked_around(table, known, rows, columns, tolerance)
        if known.any() and made[1] > CONSISTENT * arrays.population:
            made = _raked_around(table, np.zeros_like(table), rows, columns, tolerance)
        out[arrays.edge(v)], worst = made[0].ravel(), max(worst, made[1])
    return out, worst / arrays.population


def _raked_around(
    table: Array, known: Array, rows: Array, columns: Array, tolerance: float
) -> tuple[Array, float]:
    """A table raked to margins with some entries known, and by how much it misses them."""
    left, wanted = (np.maximum(m - known.sum(axis=k), 0.0) for k, m in ((1, rows), (0, columns)))
    made = known + rake(np.where(known > 0, 0.0, table), left, wanted, tolerance=tolerance)
    return made, float(max(np.abs(made.sum(axis=1) - rows).max(), np.abs(made.sum(axis=0) - columns).max()))


def _model_proposal(arrays: SamplingArrays, start: Model | None) -> Proposal:
    """Q = the model, or `start` where one is given."""
    names, laws = arrays.rooted.variables, [arrays.transition(v) for v in range(1, len(arrays.tree.sizes))]
    if start is None:
        return _proposal(arrays, arrays.tree.initial, laws, laws)
    if set(start.variables) != set(names):
        raise ProblemError(
            f"start must be a model of the variables {list(names)!r}, got {list(start.variables)!r}"
        )
    root = start.marginal((names[0],))
    edges = [start.marginal((names[u], names[v])) for v, u in enumerate(arrays.rooted.parents[1:], start=1)]
    rows = [_conditional(edge, law) for edge, law in zip(edges, laws, strict=True)]
    if np.any((root > 0) & (arrays.tree.initial == 0)) or any(
        np.any((q > 0) & (law == 0)) for q, law in zip(rows, laws, strict=True)
    ):
        raise ProblemError(
            "start gives probability to steps that the problem's model forbids: tilt the problem's own model"
        )
    return _proposal(arrays, root, rows, laws)


def _smoothed_proposal(run: Run, batches: list[Batch]) -> Shared:
    """Propose from the Markov tree with one individual's marginals, as these batches smoothed them."""
    learned: Shared = run.learned
    if not any(b.sums.tally[0] for b in batches):
        return learned
    arrays, averages = run.arrays, [_averages(run, b) for b in batches]
    node, edge = (np.sum([a[k] for a in averages], axis=0) for k in (1, 2))
    laws = [arrays.transition(v) for v in range(1, len(arrays.tree.sizes))]
    tables = [edge[arrays.edge(v)].reshape(law.shape) for v, law in enumerate(laws, start=1)]
    rows = [_conditional(table, law) for table, law in zip(tables, laws, strict=True)]
    root = node[arrays.node(0)]
    return replace(learned, proposal=_proposal(arrays, root / root.sum(), rows, laws), trusted=False)


def _conditional(edge: Array, law: Array) -> Array:
    """Rows of an edge table as probabilities; the model's row where the table is empty."""
    total = edge.sum(axis=1, keepdims=True)
    return np.where(total > EMPTY, edge / np.where(total > 0, total, 1.0), law)


def _proposal(arrays: SamplingArrays, root: Array, rows: list[Array], laws: list[Array]) -> Proposal:
    """Alias tables of q = (root, rows) and weights P / q with P the model.

    q = 0 < P gives an infinite weight: never proposed, and never left this way.
    """
    first = int(arrays.tree.sizes[0])
    total = first + arrays.entries
    q = np.concatenate([root, *(law.ravel() for law in rows)])
    p = np.concatenate([arrays.tree.initial, *(law.ravel() for law in laws)])
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        weight = np.where(q > 0, p / q, np.inf)
    accept, alias = np.empty(total), np.zeros(total, dtype=np.int16)
    start = arrays.tree.edge_start[:-1] + first
    start[0] = 0
    for v, size in enumerate(arrays.tree.sizes):
        span = slice(0, first) if v == 0 else slice(int(start[v]), first + int(arrays.tree.edge_start[v + 1]))
        alias_tables(q[span], int(size), accept[span], alias[span])
    return Proposal(accept, alias, start, weight)


def pairs_at_once(population: int, sizes: Iterable[int], *, possible: bool) -> int:
    """How many pairs are redrawn between two stretches of sweeps by default: none among many individuals."""
    if not possible or not 2 <= population <= MOST_PEOPLE:
        return 0
    return min(MOST_AT_ONCE, PAIR_STATES // sum(int(size) ** 2 for size in sizes))


def _pairs_of(arrays: SamplingArrays, asked: int | None) -> int:
    """The pairs asked for, or those of `pairs_at_once`.

    Raises
    ------
    ProblemError
        When pairs are asked for beside observed flows or rows that vary, whose weights are not in their law, or of one individual.
    """
    possible = arrays.rho is None and not arrays.slots.edge_mode.any() and not arrays.weighted
    if asked and (not possible or arrays.population < 2):
        raise ProblemError(
            f"PathGibbs(pairs={asked}): pairs are redrawn among two or more independent individuals where no flows are observed: "
            "leave it out"
        )
    return pairs_at_once(arrays.population, arrays.tree.sizes, possible=possible) if asked is None else asked


def redraw_pair(arrays: SamplingArrays, state: PathState) -> None:
    """Give two individuals, picked at random, paths from their joint law given the rest."""
    tree, slots = arrays.tree, arrays.slots
    one = below(state.random, arrays.population)
    two = (one + 1 + below(state.random, arrays.population - 1)) % arrays.population
    for m in (one, two):
        shift_individual(tree, slots, state, m, -1)
    weighed = _pair_weights(arrays, state)
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


def _pair_weights(arrays: SamplingArrays, state: PathState) -> list[Array]:
    """log l_v(i, j) of every node, given the counts of the others."""
    slots, total = arrays.slots, len(state.slot_count)
    ratios = [
        [ratio(slots.law, slots.table, s, state.slot_count[s] + more) for s in range(total)]
        for more in (0, 1)
    ]
    with np.errstate(divide="ignore"):
        first, second = np.log(np.array(ratios).reshape(2, total))
    out = []
    for mode, (fed, feeds) in zip(slots.node_mode, arrays.feeds, strict=True):
        single, more = feeds @ first[fed], second[fed] - first[fed]
        table = single[:, None] + single
        if mode == 2:  # slots are sums of cells
            table += (feeds * more) @ feeds.T
        else:
            table[np.diag_indices_from(table)] += feeds @ more
        out.append(table)
    return out
