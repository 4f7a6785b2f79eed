r"""Belief propagation on the tables of steps between exactly counted times.

Where every variable of a chain or tree is counted exactly, steps are independent given the counts: the table of moves between r and c has

.. math:: P(n) \propto \prod_{ij} w_{ij}(n_{ij}), \qquad \sum_j n_{ij} = r_i, \quad \sum_i n_{ij} = c_j

with :math:`w_{ij}(n) = p_{ij}^n/n!`; with rows that vary (``Overdispersion(rho=ρ)``, κ = 1/ρ − 1) it is Dirichlet–multinomial and
:math:`w_{ij}(n) = Γ(n + κp_{ij})/(Γ(κp_{ij})\,n!)`. Belief propagation between entries, rows and columns takes counts for the whole numbers
they are: a row's message to its entry (i, j) is the weight of all ways in which the others make up the rest,

.. math:: ρ_{ij}(n) = \sum_{Σ_{k≠j} n_{ik} = r_i − n} \prod_{k≠j} w_{ik}(n_{ik})\,γ_{ik}(n_{ik}),

by convolution, a column's the same with rows and columns exchanged, and an entry's law is :math:`∝ w ρ γ`. The evidence is Bethe's,

.. math:: \log Z = \sum_i \log Z_i + \sum_j \log Z_j − \sum_{ij} \log \sum_n w_{ij} ρ_{ij} γ_{ij},

whose derivative by log p is exactly the expected count at the fixed point, so that learning climbs what it is told.

Loops are what belief propagation leaves out: of two moves that may be crossed over it prefers the more probable pairing altogether. So
its laws are then replaced by those of worms (``sampling/_worms.py``): cycles of individuals who exchange destinations, which leave both
margins and the exact law as they are and connect all tables. One sweep's worth of the propagated law is kept, so that rare flows do not
vanish. Entries that are the same in all tables are found beforehand and taken out: what is known exactly is answered exactly.

A Gaussian (or the most probable table) is far off where flows are below one: of n = (1, 1) before and after, two who stay are (1 − p)²/p²
times as probable as two who change places, and the raked table has p moves each way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import numpy as np
from scipy.special import gammaln

from headcount._compile import kernel
from headcount.engines._cost import BYTES, sizes
from headcount.engines._reduce import answer_closed
from headcount.engines._tilting import read_twice
from headcount.engines.engine import IterativeEngine, Rule, number, whole
from headcount.engines.sampling._arrays import row_kappa
from headcount.engines.sampling._sampler import SELDOM, VISITS
from headcount.engines.sampling._statistics import effective_size, r_hat
from headcount.engines.sampling._worms import (
    TableWorms,
    free_entries,
    never_moved,
    possible_table,
)
from headcount.engines.tilted._tilted_ep import TiltedEP
from headcount.observe import ProblemError
from headcount.posterior import Beliefs, Promises
from headcount.solve.raking import raked_tilts
from headcount.tables import dense

if TYPE_CHECKING:
    from headcount._types import Array, Counts, Scope
    from headcount.individual import Model, RootedTree
    from headcount.observe import ClosedProblem

DAMPED_FROM, DAMPING = 300, 0.5
"""Sweep from which messages are averaged (geometrically) with the last ones, and the share of the last. Damping is for tables of three
cells and few individuals, where messages can alternate; elsewhere it only slows (of the bikes' 168 hours, 161 took 20 sweeps, one 300)."""
SWEEPS_BEFORE, SWEEPS_BETWEEN = 25, 10
"""Sweeps of worms before the first table that counts, and between two draws. Of the bikes' busiest hours 2000 sweeps are worth 500 to 1300
independent tables for the slowest entry."""
CHAINS = 4
"""Independent chains of worms per table, whose agreement is what "mixed" means."""
MIXED = 0.05
"""Largest R-hat − 1 of a flow that counts as mixed, as of the samplers."""
MOST_KEPT = 500
"""Tables kept per chain, evenly spaced, for R-hat and effective sizes."""
CHEAP_STEPS, MOST_MORE = 20_000_000, 100
"""Steps of worms, over all tables, that small problems get beyond the sweeps asked for (half a second), and how many times as many sweeps
at most: what costs nothing need not have a Monte-Carlo error that can be seen."""
LAST_SWEEP = 400
"""Sweep after which worms begin, whether messages have settled or not: they only start from what these found."""
MOST_REMOVED, REMOVAL_SWEEPS = 40, 4000
"""Individuals up to which the evidence is that of taking them out one by one, and sweeps of worms for each: .1 s and .1 nats per table."""
MOST_ROUNDS = 6
"""Rounds of worms, each twice as long as the one before, in which a table has to mix."""
SCALINGS, SCALED = 50, 1e-3
"""Rounds at most in which the entries' precisions are scaled to the variances that were found, and the relative error at which they end."""
LARGEST_KEPT = float(np.finfo(np.float32).max)
"""Bound on messages that are kept in single precision: of counts whose weight is negligible they can be any number."""
ROUNDING = 1e-12
"""What cumulative probabilities may miss by rounding."""
BOOST = math.log(4.0)
"""Log factor per individual by which belief propagation may raise a flow above the raked one: an entry's counts are kept up to where even
the raised weight is negligible."""
NEGLIGIBLE = math.log(1e-14)
"""Log of the weight, relative to the largest, below which larger counts of an entry are left out: float64's precision."""


class StepTable(NamedTuple):
    """One edge's table: what is known, and where its messages stand (arrays changed in place)."""

    p: Array
    kappa: Array
    """1/rho − 1 of every row, 0 where moves are independent."""
    rows: Counts
    columns: Counts
    weight: Array
    """(rows, columns, counts)."""
    largest: Counts
    message: Array
    """γ, from columns to entries."""
    law: Array
    mean: Array
    constant: float
    """log P(columns | rows) less Bethe's log Z of the tilted weights."""
    tilt: Array
    """Of the columns, such that p has both margins."""
    start: Counts
    """A table with these margins; whole numbers."""
    fixed: Counts
    """What entries hold in all tables where that is one number, which rows, columns and p are without; 0 at the free ones."""
    outside: float
    """log P(columns | rows) less log Σ Π w of the free part's own weights."""


class MessageState(NamedTuple):
    """All tables, the changes of their means in the last sweep, and their log Z."""

    problem: ClosedProblem
    tables: tuple[StepTable, ...]
    changes: Array
    log_sums: Array
    root: float
    """log probability of the first counts, and of readings of what is known."""
    sweeps: int = 0
    drawn: tuple[DrawnTable, ...] = ()
    """What worms found, table by table, once messages have settled."""
    rounds: int = 0


class DrawnTable(NamedTuple):
    """What one round of worms found about a table."""

    law: Array
    error: Array
    """Monte-Carlo standard errors of the means."""
    residual: float
    """Largest R-hat − 1 of a flow; infinite where a free flow should have moved and never did."""
    effective: float
    """Smallest effective number of tables of a flow."""
    ends: tuple[Counts, ...]
    """Where the chains stand."""


TABLE_ARRAYS = 4
"""Arrays of belief propagation on whole-number tables (weights, messages, laws), with one number per entry and count, and a copy."""
TABLE_SWEEPS, TABLE_PRODUCT, TABLE_EXCHANGE = 14, 2e-9, 6e-8
"""Sweeps that it usually needs, seconds per unit of work (`table_work`) in a sweep, and per individual, step and sweep of exchanges.
Measured on 6 to 36 cells, 300 to 1 200 individuals."""


@dataclass(frozen=True)
class TableBP(IterativeEngine):
    """Belief propagation on whole-number tables, where every variable of a chain or tree is counted exactly.

    Parameters
    ----------
    max_iterations
        Sweeps over all tables.
    tolerance
        On the change of an expected count between sweeps, in individuals.
    exchanges
        Sweeps of exchanges along cycles (worms) per table from which laws are read, more where four chains of them do not agree yet; 0:
        belief propagation's own, as learning uses them.
    seed
        Of the exchanges: the same problem gets the same answer.

    Raises
    ------
    ProblemError
        When some variable is not counted exactly and completely, anything else is observed, or no population agrees with the counts.

    Notes
    -----
    The evidence of at most 40 individuals is found by taking them out one by one, to a Monte-Carlo error that the diagnostics state,
    about .1 nats per step. Of more, Bethe's evidence is too small, and so is tilted EP's: by 0 to 2 nats per step and .03 to 1.2 in 80
    tables of 4 or 5 cells with up to 40 individuals, the one where most stay, the other where most move. An inference gives the larger
    of the two, off by .56 at most
    (with rho .1 and .3 tilted EP's was too large by 1 to 2.3 nats in 3 of 108). Learning, without exchanges, takes Bethe's, whose
    derivative it knows, whatever N: compare that with its own kind only. Its expected total of moves was 1 to 7 % too low in random
    tables of 6 to 20 cells with ten or more moves, and up to 25 % with one or two (tilted EP's: 1 to 70 % too high, and up to twice).
    Laws of flows, and draws, are those of exchanges, with a Monte-Carlo error that ``error`` gives. A log-odds of staying learned from
    counts alone was .2 too high with 8 cells and .05 with 20, against the maximum of the exact likelihood (tilted EP's: 1.3 and 1.7 too
    low; true values 4 and 5).
    """

    max_iterations: int = 1000
    tolerance: float = 1e-5
    exchanges: int = 1000
    seed: int = 0

    name: ClassVar[str] = "TableBP"
    patience: ClassVar[int] = DAMPED_FROM + 100
    """Damping has to have its chance: 1 of 250 random problems of 4 to 8 cells alternated until then, and none after."""
    draws_rows: ClassVar[bool] = True
    rules: ClassVar[dict[str, Rule]] = {
        "max_iterations": whole(),
        "tolerance": number(),
        "exchanges": whole(least=0),
        "seed": whole(least=0),
    }

    def memory(self, problem: ClosedProblem) -> int:
        """See `Engine`."""
        return BYTES * TABLE_ARRAYS * sizes(problem).tables * (1 + largest_count(problem))

    def seconds(self, problem: ClosedProblem, speed: float) -> float:
        """See `Engine`."""
        del speed
        size = sizes(problem)
        steps = float(self.exchanges * size.people * size.edges)
        steps = max(steps, min(MOST_MORE * steps, CHEAP_STEPS))
        if self.exchanges and size.people <= MOST_REMOVED:
            steps += REMOVAL_SWEEPS * size.people**2 * size.edges / 2
        return float(TABLE_SWEEPS * TABLE_PRODUCT * table_work(problem) + TABLE_EXCHANGE * steps)

    def init(self, problem: ClosedProblem, rng: np.random.Generator) -> MessageState:
        """Every message even."""
        del rng
        misfit = table_bp_misfit(problem)
        if misfit is not None:
            raise ProblemError(f"TableBP {misfit}: use TiltedEP")
        tree, seen = problem.model.rooted(), exact_nodes(problem)
        assert tree is not None
        correlations = problem.together.row_correlations(tree)
        rho = [np.zeros(1)] * len(tree.variables) if correlations is None else list(correlations)
        counts = [seen[v] for v in tree.variables]
        values, start = read_twice(problem), 0
        readings = 0.0
        for site in problem.sites:
            if not site.noise.exact:  # of a count that is known: a constant factor
                readings += float(site.noise.log_prob(values[start : start + len(site)]).sum())
            start += len(site)
        root = readings + log_row(
            counts[0], np.asarray(tree.initial, dtype=float), float(row_kappa(rho[0], 1)[0])
        )
        tables = tuple(
            step_table(dense(tree.transitions[v]), row_kappa(rho[v], len(counts[u])), counts[u], counts[v])
            for v, u in enumerate(tree.parents)
            if u >= 0
        )
        if not np.isfinite(root):
            raise ProblemError(_NONE_AGREES)
        shape = len(tables)
        return MessageState(problem, tables, np.full(shape, np.inf), np.zeros(shape), root)

    def resume(
        self, problem: ClosedProblem, rng: np.random.Generator, start: Mapping[str, Any]
    ) -> MessageState:
        """From the messages of the last run, where its tables had the same size."""
        state = self.init(problem, rng)
        messages = start.get("messages")
        if messages is not None and len(messages) == sum(t.message.size for t in state.tables):
            ends = np.cumsum([t.message.size for t in state.tables])
            for table, part in zip(state.tables, np.split(messages, ends[:-1]), strict=True):
                table.message[:] = part.reshape(table.message.shape)
        return state

    def step(self, state: MessageState) -> MessageState:
        """One sweep over the tables that have not settled; where all have, one round of worms through those that are not mixed."""
        if self.exchanges and (self._settled(state) or state.sweeps >= LAST_SWEEP):
            return self._drawn(state)
        changes, log_sums = state.changes.copy(), state.log_sums.copy()
        damping = DAMPING if state.sweeps >= DAMPED_FROM else 0.0
        for k, table in enumerate(state.tables):
            if changes[k] > self.tolerance:
                changes[k], log_sums[k] = _swept(table, damping)
        return state._replace(changes=changes, log_sums=log_sums, sweeps=state.sweeps + 1)

    def _settled(self, state: MessageState) -> bool:
        return float(state.changes.max(initial=0.0)) <= self.tolerance

    def _drawn(self, state: MessageState) -> MessageState:
        """One round of worms more, twice as long as the last."""
        rng, people = (
            np.random.default_rng([self.seed, state.rounds]),
            state.problem.population * len(state.tables),
        )
        more = min(max(CHEAP_STEPS // (self.exchanges * max(people, 1)), 1), MOST_MORE)
        sweeps = (more * self.exchanges) << state.rounds
        drawn = tuple(
            before
            if before is not None and before.residual <= MIXED
            else _worm_round(table, sweeps, rng, None if before is None else before.ends)
            for table, before in zip(state.tables, state.drawn or (None,) * len(state.tables), strict=True)
        )
        return state._replace(drawn=drawn, rounds=state.rounds + 1)

    def residual(self, state: MessageState) -> float:
        """Largest change of an expected count; after that, of worms, the largest R-hat − 1 of a flow."""
        if state.drawn:
            return max(table.residual for table in state.drawn)
        return float(state.changes.max(initial=0.0))

    def target(self, state: MessageState) -> float:
        """The tolerance for messages, `MIXED` for worms."""
        return MIXED if state.drawn else self.tolerance

    def done(self, state: MessageState) -> bool:
        """Whether messages have settled, and then whether worms have mixed."""
        return (bool(state.drawn) or not self.exchanges) and self.residual(state) <= self.target(state)

    def stuck(self, state: MessageState) -> bool:
        """Whether worms had all the rounds that they get."""
        return state.rounds >= MOST_ROUNDS

    def finish(self, state: MessageState) -> TableBeliefs:
        """Laws of all entries."""
        if np.isneginf(state.log_sums).any():
            raise ProblemError(_NONE_AGREES)
        bethe = state.root + sum(t.constant for t in state.tables) + float(state.log_sums.sum())
        evidence: float | None = bethe
        # Where a run on similar tables begins: half of the memory is precise enough.
        kept = [np.minimum(t.message.ravel(), LARGEST_KEPT).astype(np.float32) for t in state.tables]
        messages = np.concatenate(kept)
        rng = np.random.default_rng(self.seed)
        tables = state.tables
        found: dict[str, Any] = {"messages": messages}
        if self.exchanges and state.problem.population <= MOST_REMOVED:
            sums = [_log_sum(table, rng) for table in tables]
            evidence = state.root + sum(t.outside + value for t, (value, _) in zip(tables, sums, strict=True))
            found["log_evidence_mc_error"] = math.sqrt(sum(error**2 for _, error in sums))
        elif self.exchanges:
            other = answer_closed(TiltedEP(), state.problem, rng=rng, progress=False)
            both: list[float] = [bethe] if self._settled(state) else []
            if other.status.good and other.beliefs.log_evidence is not None:
                both.append(other.beliefs.log_evidence)
            evidence = max(both, default=None)
        if state.drawn:
            tables = tuple(t._replace(law=d.law) for t, d in zip(tables, state.drawn, strict=True))
            found |= {
                "r_hat": 1.0 + max(d.residual for d in state.drawn),
                "ess_min": min(d.effective for d in state.drawn),
            }
        model = state.problem.model
        tree = cast("RootedTree", model.rooted())  # `init` has checked that it is one
        errors = tuple(d.error for d in state.drawn)
        return TableBeliefs(model, tree, tuple(map(_with_fixed, tables)), errors, evidence, found)


_NONE_AGREES = "no population agrees with the counts: some of them cannot have come about by possible moves"


def exact_nodes(problem: ClosedProblem) -> dict[Any, Counts]:
    """The counts of every variable that is counted exactly and completely."""
    return {
        site.scope[0]: np.rint(site.noise.counts).astype(np.int64)
        for site in problem.sites
        if len(site.scope) == 1 and site.noise.exact and site.index is not None and len(site) == site.size
    }


def table_bp_misfit(problem: ClosedProblem) -> str | None:
    """Why TableBP cannot be asked; None where it can."""
    tree, seen = problem.model.rooted(), exact_nodes(problem)
    if tree is None or len(tree.variables) < 2:
        return "is for chains and trees of at least two variables"
    if any(v not in seen for v in tree.variables):
        return "needs exact counts of all states of every variable"
    counted = [s.noise.exact and len(s.scope) == 1 for s in problem.sites]
    ends = np.cumsum([len(s) for s in problem.sites])
    known = [not np.isnan(part).any() for part in np.split(read_twice(problem), ends[:-1])]
    if sum(counted) != len(tree.variables) or not all(np.logical_or(counted, known)):
        return "takes one exact count per state, and besides only readings of the same counts"
    if problem.disperses and problem.together.rho is None:
        return (
            f"takes independent individuals or Overdispersion(rho=…), and dispersion is {problem.dispersion}"
        )
    return None


def table_work(problem: ClosedProblem) -> float:
    """Products of one sweep, about: Σ (r_i + c_j) min(r_i, c_j) over all tables; NaN of a problem that is not for TableBP."""
    tree, seen = problem.model.rooted(), exact_nodes(problem)
    if tree is None or table_bp_misfit(problem) is not None:
        return float("nan")
    work = 0.0
    for v, u in enumerate(tree.parents):
        if u >= 0:
            rows, columns = seen[tree.variables[u]], seen[tree.variables[v]]
            both = np.minimum(rows[:, None], columns) + 1.0
            work += float(((rows[:, None] + 1.0) * both).sum() + ((columns + 1.0) * both).sum())
    return work


def largest_count(problem: ClosedProblem) -> int:
    """The largest of all exact counts."""
    return max((int(counts.max(initial=0)) for counts in exact_nodes(problem).values()), default=0)


def log_row(counts: Counts, p: Array, kappa: float) -> float:
    """log probability of a row's counts: multinomial, or Dirichlet–multinomial where κ > 0."""
    some = counts > 0
    n, q = counts[some].astype(float), p[some]
    total = float(counts.sum())
    start = float(gammaln(total + 1.0) - gammaln(n + 1.0).sum())
    with np.errstate(divide="ignore"):
        if kappa == 0.0:
            return start + float(n @ np.log(q))
        if not (q > 0).all():
            return -np.inf
        rising = gammaln(n + kappa * q) - gammaln(kappa * q)
    return start + float(rising.sum() + gammaln(kappa) - gammaln(total + kappa))


def step_table(p: Any, kappa: Array, rows: Counts, columns: Counts) -> StepTable:
    """A table with even messages, without the entries that are the same in all tables.

    Raises
    ------
    ProblemError
        When no table has these margins.
    """
    p = np.ascontiguousarray(p, dtype=float)
    start = possible_table(p > 0, rows, columns)
    if start is None:
        raise ProblemError(_NONE_AGREES)
    free = free_entries(start, p > 0)
    fixed = np.where(free, 0, start)
    known = sum(
        _log_weight(int(fixed[i, j]), float(p[i, j]), float(kappa[i])) for i, j in np.argwhere(fixed > 0)
    )
    widest = 1 + int(np.minimum(rows[:, None], columns).max(initial=0))
    varies = kappa > 0
    k, r = kappa[varies], rows[varies].astype(float)
    constant = float(known) + float(gammaln(rows + 1.0).sum())
    constant += float((gammaln(k) - gammaln(r + k) + r * np.log(k)).sum())
    outside = constant
    p, rows, columns = np.where(free, p, 0.0), rows - fixed.sum(axis=1), columns - fixed.sum(axis=0)
    a, b = raked_tilts(p, rows, columns)
    shape = (*p.shape, widest)
    weight, largest = np.zeros(shape), np.zeros(p.shape, dtype=np.int64)
    norm = fill_weights(p, kappa, a, b, rows, columns, weight, largest)
    constant += norm - _times_log(rows, a) - _times_log(columns, b)
    even = (weight, largest, np.ones(shape), np.zeros(shape), np.zeros(p.shape))
    return StepTable(p, kappa, rows, columns, *even, constant, b, start - fixed, fixed, outside)


def _log_weight(n: int, p: float, kappa: float) -> float:
    """log Γ(n + κp)/(κ^n Γ(κp) n!), and log p^n/n! where κ = 0."""
    rising = (
        n * math.log(p) if kappa == 0.0 else gammaln(n + kappa * p) - gammaln(kappa * p) - n * math.log(kappa)
    )
    return float(rising - gammaln(n + 1.0))


def _times_log(counts: Counts, tilt: Array) -> float:
    return float(counts[counts > 0] @ np.log(np.maximum(tilt[counts > 0], 1e-300)))


def _swept(table: StepTable, damping: float) -> tuple[float, float]:
    """One sweep over a table's messages: the change of its means, and Bethe's log Z (−inf where no table has these margins)."""
    height, width, counts = table.weight.shape
    longest, most = max(height, width), int(max(table.rows.max(), table.columns.max())) + 1
    work = (
        *np.zeros((2, longest, counts)),
        np.zeros((longest + 1, most)),
        np.zeros(longest + 1, dtype=np.int64),
        np.zeros((longest + 1, most)),
        np.zeros(longest + 1, dtype=np.int64),
    )
    known, message, law = (table.weight, table.largest), table.message, table.law
    log_sum = float(pass_rows(*known, table.rows, message, law, *work))
    if np.isneginf(log_sum):
        return 0.0, log_sum
    change, more = pass_columns(*known, table.columns, damping, message, law, table.mean, *work)
    return float(change), log_sum + float(more)


@dataclass(frozen=True, eq=False)
class TableBeliefs(Beliefs):
    """Counts that are known, and the law of every flow between them; flows of different steps are independent."""

    model: Model
    tree: RootedTree
    tables: tuple[StepTable, ...]
    """One per edge, in the tree's order."""
    errors: tuple[Array, ...]
    """Monte-Carlo standard errors of the means, one table per edge; none without exchanges."""
    log_evidence: float | None
    diagnostics: Mapping[str, Any]

    @property
    def promises(self) -> Promises:
        """Means of laws on whole numbers, with both margins to the tolerance."""
        return Promises(non_negative=True, consistent=True)

    def mean(self, scope: Scope) -> Array:
        """Counts as they were seen, expected flows."""
        place = self.tree.place(scope)
        if place.edge:
            return np.asarray(place.turn(self.tables[place.node - 1].mean))
        if place.node == 0:
            return self.tables[self.tree.parents.index(0) - 1].rows.astype(float)
        return self.tables[place.node - 1].columns.astype(float)

    def variance(self, scope: Scope) -> Array:
        """Of every entry's law."""
        place = self.tree.place(scope)
        if not place.edge:
            return np.zeros(place.shape)
        return np.asarray(place.turn(_variance(self.tables[place.node - 1])))

    def error(self, scope: Scope) -> Array:
        """Monte-Carlo standard error of the mean; 0 of a count, and of belief propagation's own means."""
        place = self.tree.place(scope)
        if not place.edge or not self.errors:
            return np.zeros(place.shape)
        return np.asarray(place.turn(self.errors[place.node - 1]))

    def covariance(self, a: Scope, b: Scope) -> Array:
        """Between entries of one table, those of the Gaussian with known margins that has the entries' variances; zero elsewhere."""
        first, second = self.tree.place(a), self.tree.place(b)
        if not (first.edge and second.edge and first.node == second.node):
            return np.zeros((int(np.prod(first.shape)), int(np.prod(second.shape))))
        joint = _with_known_margins(_variance(self.tables[first.node - 1]))
        return first.to_scope(second.to_scope(joint).T).T

    def sum_variance(self, parts: Sequence[tuple[Scope, Array]]) -> float:
        """Of Σ w·n: step by step, since flows of different steps are independent and counts are known."""
        by_step: dict[int, Array] = {}
        for scope, weights in parts:
            place = self.tree.place(scope)
            if place.edge:
                table = weights.reshape(place.shape[::-1] if place.turned else place.shape)
                by_step[place.node] = by_step.get(place.node, 0.0) + place.turn(table)
        return sum(_weighed_variance(_variance(self.tables[v - 1]), w) for v, w in by_step.items())

    def quantile(self, scope: Scope, level: float) -> Array | None:
        """Of every entry's law: the smallest count with at least `level` of the probability at or below it."""
        place = self.tree.place(scope)
        if not place.edge:
            return self.mean(scope)
        below = self.tables[place.node - 1].law.cumsum(axis=2)
        return np.asarray(place.turn((below < level - ROUNDING).sum(axis=2).astype(float)))

    def sample(self, size: int, *, rng: np.random.Generator, integer: bool = True) -> dict[Scope, Array]:
        """Joint draws by exchanges of destinations."""
        del integer  # counts are integers already
        names, parents = self.tree.variables, self.tree.parents
        return {
            (names[parents[v]], names[v]): drawn_tables(self.tables[v - 1], size, rng)
            for v in range(1, len(names))
        }


def _variance(table: StepTable) -> Array:
    n = np.arange(table.law.shape[2])
    return np.maximum(table.law @ (n**2.0) - table.mean**2, 0.0)


def _with_known_margins(variance: Array) -> Array:
    r"""Covariance (entries, entries) of D − D Aᵀ (A D Aᵀ)⁺ A D, A the margins, D diagonal and such that the diagonal is ``variance``."""
    height, width = variance.shape
    d, inverse = _scaled_to(variance)
    origin, dest = np.divmod(np.arange(height * width), width)
    margins = np.zeros((height + width, height * width))
    margins[origin, np.arange(height * width)] = margins[height + dest, np.arange(height * width)] = d.ravel()
    return np.asarray(np.diag(d.ravel()) - margins.T @ inverse @ margins)


def _weighed_variance(variance: Array, weights: Array) -> float:
    """wᵀ C w of that covariance, without making it."""
    d, inverse = _scaled_to(variance)
    summed = np.concatenate([(d * weights).sum(axis=1), (d * weights).sum(axis=0)])
    return float((d * weights**2).sum() - summed @ inverse @ summed)


def _scaled_to(variance: Array) -> tuple[Array, Array]:
    """D and (A D Aᵀ)⁺ such that the diagonal of the covariance is ``variance``, nearly."""
    height = len(variance)
    d = variance.copy()
    inverse = np.linalg.pinv(_margin_matrix(d), hermitian=True)
    for _ in range(SCALINGS):
        held = np.diag(inverse)[:height, None] + np.diag(inverse)[height:] + 2 * inverse[:height, height:]
        found = d - d**2 * held
        ratio = np.divide(variance, found, out=np.ones_like(d), where=(found > 1e-12) & (variance > 0))
        d *= np.clip(ratio, 0.25, 4.0)
        inverse = np.linalg.pinv(_margin_matrix(d), hermitian=True)
        if np.abs(ratio - 1.0).max() <= SCALED:
            break
    return d, np.asarray(inverse, dtype=float)


def _margin_matrix(d: Array) -> Array:
    return np.block([[np.diag(d.sum(axis=1)), d], [d.T, np.diag(d.sum(axis=0))]])


def _with_fixed(table: StepTable) -> StepTable:
    """The table as it is asked about: with the entries that are the same in all tables, and its whole margins."""
    law, fixed = table.law.copy(), table.fixed
    at = np.nonzero(fixed)
    law[(*at, np.zeros_like(at[0]))] = 0.0
    law[(*at, fixed[at])] = 1.0
    mean = law @ np.arange(float(law.shape[2]))
    rows, columns = table.rows + fixed.sum(axis=1), table.columns + fixed.sum(axis=0)
    return table._replace(law=law, mean=mean, rows=rows, columns=columns)


def _worms(table: StepTable, start: Counts, rng: np.random.Generator) -> TableWorms:
    """Worms through the free part of a table."""
    return TableWorms(table.p, table.kappa, start, table.tilt, rng.integers(2**64, size=4, dtype=np.uint64))


def _worm_round(
    table: StepTable, sweeps: int, rng: np.random.Generator, starts: tuple[Counts, ...] | None
) -> DrawnTable:
    """The laws that chains of worms find, with one sweep's worth of those that the table has, and whether they agree.

    Without ``starts`` the chains begin near belief propagation's means and at a table in a corner of all those possible.
    """
    seen, free = table.law.copy(), table.p > 0
    each = -(-sweeps // CHAINS)
    draws = np.zeros((CHAINS, min(each, MOST_KEPT), *table.p.shape))
    if starts is None:
        near = possible_table(free, table.rows, table.columns, table.mean)
        starts = tuple(table.start if chain % 2 or near is None else near for chain in range(CHAINS))
    runs = [_worms(table, start, rng) for start in starts]
    for run, kept in zip(runs, draws, strict=True):
        run.burn(SWEEPS_BEFORE)
        run.sweep(each, seen, kept)
    law = seen / seen.sum(axis=2, keepdims=True)  # nothing is seen of a table that has no individual left
    ends, flows = tuple(run.counts for run in runs), draws.reshape(CHAINS, draws.shape[1], -1)
    n = np.arange(float(law.shape[2]))
    variance = np.maximum(law @ n**2 - (law @ n) ** 2, 0.0).ravel()
    asked = (variance > SELDOM) & (flows != flows[0, 0]).any(axis=(0, 1))
    residual, size = 0.0, np.full(variance.shape, np.nan)
    if asked.any():
        size[asked] = effective_size(flows[:, :, asked])
        residual = float(np.nan_to_num(r_hat(flows[:, :, asked], ranks=False), nan=np.inf).max()) - 1
    # A flow too rare to be asked has as many independent tables as the slowest of the others.
    effective = float(np.nanmin(size, initial=flows.shape[0] * flows.shape[1]))
    if never_moved(table.p, table.kappa, draws.reshape(-1, *free.shape)) > VISITS / effective:
        residual = np.inf
    error = np.sqrt(variance / np.where(np.isfinite(size), size, effective)).reshape(free.shape)
    return DrawnTable(law, error, residual, effective, ends)


def _log_sum(table: StepTable, rng: np.random.Generator) -> tuple[float, float]:
    r"""log Σ Π w over all tables of the free part, and its Monte-Carlo error, by taking out one individual after the other.

    With w(n) n = u(n − 1) w(n − 1), u(n) = p + n/κ (p where rows do not vary), for any entry :math:`Z\,E[n_{ij}] = Z' E'[u(n_{ij})]`,
    Z' and E' of the tables with one individual fewer in row i and column j. The entry is the one with the largest mean; at the end there is
    one table only.
    """
    counts, value, variance = table.start, 0.0, 0.0
    above: tuple[int, int] | None = None
    while True:
        free = free_entries(counts, table.p > 0).any()
        draws = counts[None].astype(float)
        if free:
            tilt = raked_tilts(table.p, counts.sum(axis=1), counts.sum(axis=0))[1]
            run = TableWorms(table.p, table.kappa, counts, tilt, rng.integers(2**64, size=4, dtype=np.uint64))
            run.burn(SWEEPS_BEFORE)
            run.sweep(REMOVAL_SWEEPS, draws=(draws := np.zeros((REMOVAL_SWEEPS, *counts.shape))))
        if above is not None:
            kappa = table.kappa[above[0]]
            u = table.p[above] + (draws[:, *above] / kappa if kappa > 0 else 0.0)
            value, variance = value + math.log(u.mean()), variance + _relative_variance(u)
        if not free:
            known = (
                _log_weight(int(counts[i, j]), table.p[i, j], table.kappa[i])
                for i, j in np.argwhere(counts > 0)
            )
            return value + sum(known), math.sqrt(variance)
        means = draws.mean(axis=0)
        i, j = np.unravel_index(int(means.argmax()), means.shape)
        value, variance = value - math.log(means[i, j]), variance + _relative_variance(draws[:, i, j])
        counts = draws[np.flatnonzero(draws[:, i, j])[-1]].astype(np.int64)
        counts[i, j] -= 1
        above = (int(i), int(j))


def _relative_variance(values: Array) -> float:
    """Var(mean)/mean² of one chain's values."""
    if np.ptp(values) == 0:
        return 0.0
    size = float(effective_size(values[None, :, None])[0])
    return float(values.var() / size / values.mean() ** 2)


def drawn_tables(table: StepTable, size: int, rng: np.random.Generator) -> Array:
    """Tables with these margins, (size, rows, columns), from one long run of worms."""
    run, made = _worms(table, table.start, rng), np.empty((size, *table.p.shape))
    run.burn(SWEEPS_BEFORE)
    for k in range(size):
        run.sweep(SWEEPS_BETWEEN)
        made[k] = run.counts + table.fixed
    return made


# One table between two margins at a time, compiled.


@kernel
def fill_weights(p, kappa, row_tilt, column_tilt, rows, columns, weight, largest):
    """Weights of every count of every entry, tilted and summing to one, and the largest count kept; returns Σ log of the sums.

    ``weight[i, j, n]`` ∝ (a_i b_j)^n Γ(n + κp)/(κ^n Γ(κp) n!), and (a_i b_j p)^n/n! where κ = 0 stands for independent moves.
    """
    total = 0.0
    for i in range(p.shape[0]):
        for j in range(p.shape[1]):
            most = min(rows[i], columns[j]) if p[i, j] > 0.0 else 0
            tilt, value, top, kept = row_tilt[i] * column_tilt[j], 0.0, 0.0, 0
            weight[i, j, 0] = 0.0
            for n in range(1, most + 1):
                each = p[i, j] if kappa[i] == 0.0 else p[i, j] + (n - 1) / kappa[i]
                value += np.log(tilt * each / n)
                if n > 1 and value + n * BOOST < top + NEGLIGIBLE:
                    break
                top, kept = max(top, value), n
                weight[i, j, n] = value
            norm = 0.0
            for n in range(kept + 1):
                weight[i, j, n] = np.exp(weight[i, j, n] - top)
                norm += weight[i, j, n]
            for n in range(kept + 1):
                weight[i, j, n] /= norm
            largest[i, j] = kept
            total += top + np.log(norm)
    return total


@kernel
def _convolve(x, last_x, y, last_y, most, out):
    """out = x ∗ y up to ``most``; returns the last index filled."""
    last = min(last_x + last_y, most)
    for s in range(last + 1):
        out[s] = 0.0
    for a in range(last_x + 1):
        xa = x[a]
        if xa != 0.0:
            for b in range(min(last_y, most - a) + 1):
                out[a + b] += xa * y[b]
    return last


@kernel
def _others(v, largest, total, out, before, last_before, after, last_after):
    """out[k, n] = Σ Π of the other entries' v over counts with Σ = total − n; returns the same sum over all entries with Σ = total."""
    count = largest.shape[0]
    before[0, 0], last_before[0] = 1.0, 0
    for k in range(count):
        last_before[k + 1] = _convolve(before[k], last_before[k], v[k], largest[k], total, before[k + 1])
    after[count, 0], last_after[count] = 1.0, 0
    for k in range(count - 1, -1, -1):
        last_after[k] = _convolve(after[k + 1], last_after[k + 1], v[k], largest[k], total, after[k])
    for k in range(count):
        for n in range(largest[k] + 1):
            rest, s = total - n, 0.0
            for a in range(max(0, rest - last_after[k + 1]), min(last_before[k], rest) + 1):
                s += before[k, a] * after[k + 1, rest - a]
            out[k, n] = s
    return before[count, total] if last_before[count] >= total else 0.0


@kernel
def pass_rows(weight, largest, rows, message, law, v, out, before, last_before, after, last_after):
    """Messages of all rows to their entries, left in ``law``; returns Σ log Z_i − Σ log Σ w ρ γ, −inf where no table has these rows."""
    height, width = largest.shape
    log_sum = 0.0
    for i in range(height):
        for j in range(width):
            for n in range(largest[i, j] + 1):
                v[j, n] = weight[i, j, n] * message[i, j, n]
        found = _others(v, largest[i], rows[i], out, before, last_before, after, last_after)
        if not found > 0.0:
            return -np.inf
        log_sum += np.log(found)
        for j in range(width):
            alone = both = 0.0
            for n in range(largest[i, j] + 1):
                alone += weight[i, j, n] * out[j, n]
                both += weight[i, j, n] * out[j, n] * message[i, j, n]
            if not both > 0.0:
                return -np.inf
            log_sum -= np.log(both / alone)
            for n in range(largest[i, j] + 1):
                law[i, j, n] = out[j, n] / alone
    return log_sum


@kernel
def pass_columns(
    weight, largest, columns, damping, message, law, mean, v, out, before, last_before, after, last_after
):
    """Messages of all columns, given those of the rows in ``law``, which becomes the law of every entry; ``mean`` follows.

    Returns (largest change of a mean, Σ log Z_j), the latter −inf where no table has these columns.
    """
    height, width = largest.shape
    log_sum, change = 0.0, 0.0
    for j in range(width):
        for i in range(height):
            for n in range(largest[i, j] + 1):
                v[i, n] = weight[i, j, n] * law[i, j, n]
        found = _others(v, largest[:, j], columns[j], out, before, last_before, after, last_after)
        if not found > 0.0:
            return 0.0, -np.inf
        log_sum += np.log(found)
        for i in range(height):
            alone = both = first = 0.0
            for n in range(largest[i, j] + 1):
                alone += weight[i, j, n] * out[i, n]
            for n in range(largest[i, j] + 1):
                new = out[i, n] / alone
                if damping > 0.0:
                    new = new ** (1.0 - damping) * message[i, j, n] ** damping
                message[i, j, n] = new
                law[i, j, n] *= weight[i, j, n] * new
                both += law[i, j, n]
                first += n * law[i, j, n]
            for n in range(largest[i, j] + 1):
                law[i, j, n] /= both
            change = max(change, abs(first / both - mean[i, j]))
            mean[i, j] = first / both
    return change, log_sum
