r"""Chains and trees without matrices: what is seen as rows on one long vector, means by conjugate gradients, variances by draws.

The parts have files of their own: the prior covariance K as an operator (``_prior_operator``), the systems and their solver
(``_conjugate_gradients``), what is seen as rows (``_sensors``), draws and what they say of variances and of log Z
(``_variance_draws``). Here they are put together:

.. math:: \delta = K H^\top q, \; q = \nu - \tau H\delta, \qquad \log Z = \tfrac12\nu^\top H\delta - \tfrac12\log\det A .

Entries of all nodes stand in one vector, followed by the moves that somebody looked at; each row of H belongs to one node or edge.
Readings with correlated errors are rows :math:`C^\top B` of unit precision, :math:`CC^\top` their precision. Counts that are known
exactly are rows without noise. Means and covariances are exact to the tolerance of conjugate gradients; variances and log Z carry
the Monte-Carlo error that the field states.

A site with a negative precision cannot be drawn. It counts fully in means; in variances and log det each such site is put in
alone, :math:`V/(1+\tau V)`, as if they did not influence one another. They are small and rare (EP's corrections for whole numbers).
"""

from __future__ import annotations

from copy import deepcopy
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from headcount import memory
from headcount._device import connected, host, issparse, on_host
from headcount._linalg import threads_for
from headcount.checks import instance
from headcount.individual import FactoredTree, ModelError, RootedTree
from headcount.structure import _draws_in_arrays
from headcount.structure._base import (
    Field,
    Known,
    Moments,
    MovesOf,
    NotPositiveDefinite,
    Recall,
    Sampling,
    Structure,
    checked_arguments,
)
from headcount.structure._conjugate_gradients import Stop, System, conjugate, of_any_sign
from headcount.structure._prior_operator import Passes, PriorOperator
from headcount.structure._sensors import Sensors
from headcount.structure._variance_draws import (
    DRAWN,
    FIRST_NEAR,
    NARROWEST,
    REDRAWN,
    WIDEST,
    Block,
    Squares,
    block_width,
    controlled,
    keys,
    posterior_block,
    regressed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headcount._linalg import Array
    from headcount.structure._base import SiteLike, Solver
    from headcount.tables import Scope

SOLVED = Stop(absolute=1e-10)
"""Of means: no count is off by more than this share of its sd."""
FOLLOWED = Stop(absolute=1e-10, gain=2e-4)
"""Of a sweep's means, which start from the last sweep's: four digits more than the sweep moves them."""
SWEEP_ERROR = 0.05
"""Relative error of sds (rms) that sweeps draw for: variances that are 10 % off move means by .002 of an sd (the theory's table)."""
SMALL = 2**20
"""Possible moves up to which sweeps have a whole block of draws, whatever the error: there it costs milliseconds."""
USUAL, SLACK = 16, 1.5
"""Draws per sweep on larger maps, unless the error asks for so many times more: drawing again for little gains little."""
MOST_IN_SWEEPS = 64
"""Draws per sweep, whatever the error."""
FOLLOWS = 1e-9
"""Share of its prior variance below which a count follows from exact ones: their draws are solved to 1e-6, so about 1e-12 is left."""
LOOKED_AT = 5
"""Steps whose flows are asked whether they need more draws."""
NEARLY = 1.05
"""Draws for which another block is made, as a multiple of those there are: 5 % more improve the error by 2.5 %."""
LARGEST_ERROR = 0.0625
"""Relative error of any flow's sd above which pulls alone do not give its variance: half of what 32 draws of anything have, since
32 draws know the pulls' mean squares to a quarter."""
SWEPT_ERROR = 0.002
"""Relative error of flows' sds that the draws of sweeps leave through the centre, whatever the final draws: .0007 to .0017 (rms) on the
maps of the tests, at flows whose own error by pulls is below it."""
LEAST_SHARE = 1e-3
"""Of its prior variance, that a flow keeps by its pulls whatever these are: they give variances only where most of it is kept."""
LEAST_FINAL = 32
"""Final draws: enough for the estimate of log Z and of its error."""


def most_final(error: float) -> int:
    """Final draws that reach a relative error of sds without any control variate, 1/(2 error²), in whole blocks: 192 for 5 %."""
    return int(max(np.floor(0.5 / error**2 / NARROWEST) * NARROWEST, LEAST_FINAL))


class MatrixFreeStructure(Structure, kind="matrix-free"):
    """The Gaussian law of a rooted tree's counts, as an operator.

    Parameters
    ----------
    tree
        The individual's law, tilts included, as a tree or in factors; transitions may be sparse.
    population
        N.
    sites
        What is observed: entries or sums of nodes or of flows.
    known
        Exact counts and readings with correlated errors among the sites.
    sampling
        Numbers of draws, and their seed.
    recall
        What earlier solves of the same run left; with it, a solve starts from them and leaves log Z (NaN) to the field.
    """

    monte_carlo = True

    def __init__(
        self,
        tree: RootedTree | FactoredTree,
        population: float,
        sites: Sequence[SiteLike],
        known: Known | None = None,
        *,
        sampling: Sampling | None = None,
        recall: Recall | None = None,
    ) -> None:
        instance(
            tree, (RootedTree, FactoredTree), "tree", expected="a RootedTree, for example model.rooted()"
        )
        law = FactoredTree.of(tree) if isinstance(tree, RootedTree) else tree
        self.tree, self.recall = law.tree, recall
        self.sampling = Sampling() if sampling is None else sampling
        self.population, self.sites, self.known = checked_arguments(population, sites, known)
        why = self.refusal(self.tree)
        if why is not None:
            raise ModelError(f"the matrix-free structure cannot serve this problem: {why}; use TreeStructure")
        # Flocks of c: all covariances are c times larger, as are those of c times as many individuals.
        self.individuals = self.population
        self.population *= self.tree.common_phi or 1.0
        sensors = None if recall is None else recall.sensors
        if sensors is None:
            sensors = Sensors(PriorOperator(law, self.population), self.tree, self.sites, self.known)
        if recall is not None:
            recall.sensors = sensors
        self.sensors = sensors
        self.prior = PriorOperator(law, self.population, sensors.edges)

    @classmethod
    def refusal(cls, tree: RootedTree | None) -> str | None:
        """See :class:`Structure`."""
        return "it needs a chain or a tree" if tree is None else None

    @classmethod
    def chosen(cls, law: Any, *known: Any, solver: Solver, flock: float) -> MatrixFreeStructure:
        """See :class:`Structure`."""
        del flock
        return cls(law, *known, sampling=solver.sampling, recall=solver.recall)

    def __reduce__(self) -> Any:
        """By its arguments: the operators are made again where it arrives, and what earlier solves left stays behind."""
        arguments = (self.prior.law, self.individuals, self.sites, self.known)
        return partial(MatrixFreeStructure, *arguments, sampling=self.sampling), ()

    @property
    def knows_variances(self) -> bool:
        """Whether prior variances are known: where root and steps scatter alike. Of individuals in company only draws tell them."""
        return not self.prior.company

    @cached_property
    def prior_variance(self) -> Array:
        """N μ (1 − μ) of all entries and seen moves; in company times phi of the last step, which is of the right size."""
        mu = self.prior.expected / self.population
        found = self.population * mu * (1.0 - mu)
        return found if self.knows_variances else found * self._last_phi

    @property
    def _last_phi(self) -> Array:
        """phi of those who came to an entry, and of those who make a seen move."""
        return np.concatenate([self.prior.psi, self.prior.seen_phi])

    def row_variance(self, rows: sparse.csr_array) -> Array:
        """The diagonal of B K Bᵀ, or its size: a row sees one table only."""
        mu = self.prior.expected / self.population
        squares = rows.power(2)
        most = squares @ mu
        found = self.population * (most - (rows @ mu) ** 2)
        if not self.knows_variances:
            found = found * (squares @ (mu * self._last_phi)) / np.where(most > 0, most, 1.0)
        return np.where(found > 1e-14 * self.population, found, 0.0)

    @cached_property
    def seen_variance(self) -> Array:
        """Of the rows of H."""
        return self.row_variance(self.sensors.seen)

    def system(self, tau: Array) -> System:
        """A at the positive ones among the precisions."""
        return System(
            self.prior, self.sensors.seen, self.seen_variance, np.maximum(tau, 0.0), self.sensors.fixed
        )

    def seen_covariance_times(self, weights: Array) -> Array:
        """H K Hᵀ w."""
        return self.sensors.seen @ self.prior.times(self.sensors.seen.T @ weights)

    def weights(self, tau: Array, right: Array, value: Array | None = None, *, sweep: bool = False) -> Array:
        """q with δ = K Hᵀ q: q = right − τ Hδ at ordinary rows, Hδ = value at the exact ones; columns at once."""
        target = np.zeros_like(right) if value is None else np.where(self.sensors.fixed[:, None], value, 0.0)
        if (tau < 0).any():
            return self._weights_of_any_sign(tau, right, target)
        system, recall = self.system(tau), self.recall
        scaled = system.scale[:, None] * (self.seen_covariance_times(right) - target)
        start = recall.mean if recall is not None and sweep else None
        solved = conjugate(system, scaled, FOLLOWED if sweep and recall is not None else SOLVED, start)
        if recall is not None and sweep:
            recall.mean = solved.x
        return right - system.scale[:, None] * solved.x

    def _weights_of_any_sign(self, tau: Array, right: Array, target: Array) -> Array:
        """As :meth:`weights`, under the covariance given the exact counts, for which each product solves a system of its own."""
        if not self.sensors.any_fixed:
            return of_any_sign(self.seen_covariance_times, tau, right, SOLVED.absolute)
        system = self.system(np.zeros_like(tau))

        def held(w: Array, exact: Array) -> Array:
            """Weights that include the exact rows' own, with which these have the values ``exact``."""
            scaled = system.scale[:, None] * (self.seen_covariance_times(w) - exact)
            return w - system.scale[:, None] * conjugate(system, scaled, SOLVED).x

        shift = held(np.zeros_like(right), target)
        pushed = right - tau[:, None] * self.seen_covariance_times(shift)
        nothing = np.zeros_like(right)
        q = of_any_sign(lambda w: self.seen_covariance_times(held(w, nothing)), tau, pushed, SOLVED.absolute)
        return shift + held(q, nothing)

    def blocks(self, tau: Array, first: int, draws: int, width: int) -> Iterator[Block]:
        """Posterior draws, block by block from number ``first``; sites with a negative precision are left out."""
        system = self.system(tau)
        for k, start in enumerate(range(0, draws, width)):
            size = min(width, draws - start)
            yield posterior_block(system, self.sampling.seed, first + k, size, DRAWN)

    @property
    def block(self) -> int:
        """Draws per block."""
        return block_width(self.prior.size)

    def solve(self, tau: Sequence[Array], nu: Sequence[Array]) -> Moments:
        """See :class:`Structure`; variances (and, without a recall, log Z) from the draws of a sweep."""
        t, n, c = self.sensors.arrange(_joined(tau), _joined(nu), self.known)
        with threads_for(max(self.tree.sizes)):
            weights = self.weights(t, n[:, None], c[:, None], sweep=True)
            image = self.prior.times(self.sensors.seen.T @ weights)
            mean = host(self.sensors.rows @ image)[:, 0]
            variance, log_z = self._sweep(t, n, (self.sensors.seen @ image)[:, 0])
        ends = np.cumsum([0, *(len(x) for x in tau)])
        pieces = [slice(a, b) for a, b in pairwise(ends)]
        return Moments(tuple(mean[p] for p in pieces), tuple(variance[p] for p in pieces), log_z)

    def _sweep(self, tau: Array, nu: Array, mean: Array) -> tuple[Array, float]:
        """Variances of all rows and log Z, from as many draws as sweeps need."""
        recall = self.recall
        wanted = self.sampling.sweep
        if wanted is None:
            wanted = recall.draws if recall is not None else None
        least = WIDEST if self.prior.moves <= SMALL else USUAL
        draws = least if wanted is None else wanted
        squares, seen, logs = self._drawn(tau, draws)
        if wanted is None:
            need = draws * (squares.typical_error() / SWEEP_ERROR) ** 2
            need = 2 ** int(np.ceil(np.log2(max(need / SLACK, USUAL))))
            if need > draws:
                draws = min(need, MOST_IN_SWEEPS)
                squares, seen, logs = self._drawn(tau, draws)
        if recall is not None:
            recall.draws = draws
        variance, _ = squares.variances()
        seen_variance, _ = seen.variances()
        log_z, _ = self.log_z(tau, nu, mean, seen_variance, logs)
        variance = _corrected(variance, host(self._own(tau)))
        variance[self.sensors.known] = 0.0
        return self._settled(variance, host(self.row_variance(self.sensors.rows))), log_z

    def _settled(self, variance: Array, prior: Array) -> Array:
        """Variances with zero for what follows from exact counts: there, draws have only the solver's error."""
        if not self.sensors.any_fixed:
            return variance
        return np.where(variance > FOLLOWS * prior, variance, 0.0)

    def _drawn(self, tau: Array, draws: int) -> tuple[Squares, Squares, Array]:
        """Squares of the sites' rows and of H's, and the terms of log det A."""
        sensors, recall, system = self.sensors, self.recall, self.system(tau)
        same = sensors.rows is sensors.seen
        own = np.maximum(tau, 0.0) if same else np.maximum(self._own(tau), 0.0)
        squares = Squares(self.row_variance(sensors.rows), own, known=self.knows_variances)
        seen = squares if same else Squares(self.seen_variance, system.tau, known=self.knows_variances)
        logs = []
        width = min(self.block, draws)
        for number, start in enumerate(range(0, draws, width)):
            size = min(width, draws - start)
            last = None if recall is None else recall.solution(number, (len(tau), size))
            stop = DRAWN if recall is None else FIRST_NEAR if recall.near and last is None else REDRAWN
            block = posterior_block(system, self.sampling.seed, number, size, stop, last)
            if recall is not None:
                recall.blocks[number] = block.solution
            moved = block.free - self.prior.times(sensors.seen.T @ block.weights)
            free, after = sensors.rows @ block.free, sensors.rows @ moved
            if same:
                squares.add(free, after, block.noise)
            else:
                noise = np.zeros_like(free)
                noise[sensors.put(sensors.plain)] = block.noise[: len(sensors.plain)]
                squares.add(free, after, noise)
                seen.add(sensors.seen @ block.free, sensors.seen @ moved, block.noise)
            logs.append(block.logs)
        return squares, seen, np.concatenate(logs)

    def _own(self, tau: Array) -> Array:
        """The precision of each site's row: its own; zero for readings with correlated errors and exact counts."""
        made = np.zeros_like(tau, shape=self.sensors.rows.shape[0])
        made[self.sensors.put(self.sensors.plain)] = tau[: len(self.sensors.plain)]
        return made

    def log_z(self, tau: Array, nu: Array, mean: Array, variance: Array, logs: Array) -> tuple[float, float]:
        """½ ν·Hδ − ½ log det A, and its Monte-Carlo standard error; ``variance`` is that without negative sites.

        NaN beside exact counts, which have a density and no probability here, and where draws were started from others.
        """
        if not len(tau):
            return 0.0, 0.0
        if self.sensors.any_fixed or np.isnan(logs).any():
            return float("nan"), float("nan")
        log_det, error = regressed(logs, len(tau), known=self.knows_variances)
        log_det += float(np.log1p(np.maximum(tau, 0.0) * self.seen_variance).sum())
        tau, nu, mean = host(tau), host(nu), host(mean)
        negative = tau < 0
        left = 1.0 + tau[negative] * variance[negative]
        if (left <= 0).any():
            raise NotPositiveDefinite
        return 0.5 * float(nu @ mean) - 0.5 * (log_det + float(np.log(left).sum())), 0.5 * error

    def field(self, tau: Sequence[Array], nu: Sequence[Array]) -> MatrixFreeField:
        """See :class:`Structure`; variances and log Z from the final draws."""
        return MatrixFreeField(self, *self.sensors.arrange(_joined(tau), _joined(nu), self.known))


class Survey(NamedTuple):
    """What all final draws together say."""

    variance: Array
    """Of all entries."""
    error: Array
    """Relative Monte-Carlo error of their sds."""
    log_z: tuple[float, float]


class FlowSums:
    r"""Sums over draws of the flows of one step, and what they say of the flows' variances.

    Of a flow, a draw of the posterior is a draw of the prior less its pull :math:`M_{ij}(d(i) + b(j) - \bar E)`, and independent of the
    pull. So :math:`V = M(1 - M/N) - R`, R the pulls' mean square: no noise is drawn for moves, and sums of squares are one
    matrix product. Its error is R/V/√(2d) of the sd; where that is too large, as it is where data say much of single flows, draws of the
    posterior are squared, with those of the prior as control variate.
    """

    def __init__(self, structure: MatrixFreeStructure, v: int) -> None:
        self.structure, self.v, self.draws = structure, v, 0
        few = issparse(structure.prior.law.kernels[v]) or not structure.knows_variances
        self.by_pulls: bool | None = False if few else None
        """None before the first draws. Sparse steps have few moves, which noise costs no more than pulls do."""
        self.sums: list[Array] = []
        """Σ (d(i) + b(j) − Ē)²; or the squares of prior and of posterior draws. By move, flat."""

    def add(self, key: np.uint64, free: Array, found: Passes) -> None:
        """A block of draws of the prior, its key at this step, and what the passes found for its pulls."""
        prior, v = self.structure.prior, self.v
        above = prior.slice(int(prior.parents[v]))
        side = found.side[prior.side_at[v] : prior.side_at[v + 1]] - found.mean
        own = found.up[prior.slice(v)]
        if prior.company:  # the pull is phi M (side / phi + own), and phi is with the counts that scatter
            side = side / np.reshape(prior.phi_of(v), (-1, 1))
        self.draws += free.shape[1]
        if self.by_pulls is not False:
            self._add_pulls(_squared_sums(side, own))
        if self.by_pulls:
            return
        if not self.sums:
            self.sums = [np.zeros_like(prior.table(v).reshape(-1)) for _ in range(2)]
        if on_host(free):
            from headcount.structure._matrix_free_kernels import flow_squares

            flow_squares(*prior.step(v), key, free[above], side, own, *self.sums)
        else:
            _draws_in_arrays.flow_squares(prior, v, key, free[above], side, own, *self.sums)

    def _add_pulls(self, pulled: Array) -> None:
        """Sums of squared pulls; after the first ones it is decided whether they are enough."""
        self.sums = [pulled if self.by_pulls is None else self.sums[0] + pulled]
        if self.by_pulls is None:
            error = self._from_pulls()[1]
            typical, largest = float(np.sqrt(np.mean(error**2))), float(error.max())
            self.by_pulls = typical <= self.structure.sampling.error and largest <= LARGEST_ERROR
            self.sums = self.sums if self.by_pulls else []

    def _known(self) -> tuple[Array, Array]:
        """M, and the prior variances M (1 − M/N)."""
        table = self.structure.prior.table(self.v).reshape(-1)
        return table, table * (1.0 - table / self.structure.population)

    def _from_pulls(self) -> tuple[Array, Array]:
        """As :meth:`variances`; half its own standard error is added to the error, which is proportional to R."""
        table, known = self._known()
        taken = table**2 * self.sums[0] / self.draws
        variance = np.maximum(known - taken, LEAST_SHARE * known)
        stated = (1.0 + np.sqrt(0.5 / self.draws)) / np.sqrt(2.0 * self.draws)
        error = np.hypot(stated * taken / np.where(known > 0, variance, 1.0), SWEPT_ERROR)
        return variance, np.where(known > 0, error, 0.0)

    def variances(self) -> tuple[Array, Array]:
        """Variances of the possible moves, flat, and relative errors of their sds."""
        if self.by_pulls:
            return self._from_pulls()
        _, known = self._known()
        before, after = self.sums
        if not self.structure.knows_variances:
            return after / self.draws, np.full_like(after, np.sqrt(0.5 / self.draws))
        variance, loose = controlled(after / self.draws, before / self.draws, known, self.draws)
        return np.minimum(variance, known), np.sqrt(loose / (2.0 * self.draws))


def _squared_sums(above: Array, own: Array) -> Array:
    """Σ over columns of (above_i + own_j)² for all pairs of states, flat."""
    squares = (above**2).sum(axis=1)[:, None] + (own**2).sum(axis=1)
    return (squares + 2.0 * (above @ own.T)).reshape(-1)


class Tally:
    """Sums over final draws, to which more can be added."""

    def __init__(self, structure: MatrixFreeStructure, tau: Array) -> None:
        self.structure, self.tau, self.draws, self.blocks = structure, tau, 0, 0
        prior, seen = structure.prior, structure.sensors.seen
        alone = (host(seen.sum(axis=1)).ravel() == 1) & ~host(structure.sensors.fixed)
        own = sparse.csr_array(host(seen).T @ sparse.diags_array(alone.astype(float)))
        self.own = own if structure.tree.device is None else structure.tree.device.put(own)
        positive = np.maximum(tau, 0.0)
        known, sensors = structure.knows_variances, structure.sensors
        self.squares = Squares(structure.prior_variance, self.own @ positive, known=known)
        self.of_rows = Squares(structure.seen_variance, np.where(sensors.fixed, 0.0, positive), known=known)
        self.flows = {v: FlowSums(structure, v) for v in range(1, len(prior.sizes))}
        self.logs: list[Array] = []

    def add(self, draws: int, client: Any = None) -> None:
        """So many draws more; on a cluster one task per block, of which only the sums travel back, added in the blocks' order."""
        if client is None:
            for block in self.structure.blocks(self.tau, self.blocks, draws, self.structure.block):
                self._add(block)
            return
        width, first = self.structure.block, self.blocks
        sizes = [min(width, draws - start) for start in range(0, draws, width)]
        with connected(client) as cluster:
            start = cluster.scatter(self._without_draws(), broadcast=True, hash=False)
            parts = [
                cluster.submit(_sums_of_block, start, first + k, n, pure=False) for k, n in enumerate(sizes)
            ]
            for part in parts:
                self._absorb(part.result())

    def copy(self) -> Tally:
        """The same sums, to which more can be added without changing these."""
        return deepcopy(self, {id(self.structure): self.structure})

    def _without_draws(self) -> Tally:
        """No draws yet, and flows' variances found in the way that is decided here."""
        made = Tally(self.structure, self.tau)
        for v, flows in self.flows.items():
            made.flows[v].by_pulls = flows.by_pulls
        return made

    def _absorb(self, other: Tally) -> None:
        """The sums of a tally of other draws."""
        self.squares.absorb(other.squares)
        self.of_rows.absorb(other.of_rows)
        self.logs += other.logs
        for v, flows in self.flows.items():
            theirs = other.flows[v]
            flows.sums = (
                [a + b for a, b in zip(flows.sums, theirs.sums, strict=True)] if flows.sums else theirs.sums
            )
            flows.draws += theirs.draws
        self.draws, self.blocks = self.draws + other.draws, self.blocks + other.blocks

    def _add(self, block: Block) -> None:
        structure, prior, seen = self.structure, self.structure.prior, self.structure.sensors.seen
        found = prior.passes(seen.T @ block.weights)
        moved = block.free - prior.values(found)
        self.squares.add(block.free, moved, self.own @ block.noise)
        self.of_rows.add(seen @ block.free, seen @ moved, block.noise)
        self.logs.append(block.logs)
        named = keys(prior, structure.sampling.seed, block.number)
        for v, flows in self.flows.items():
            flows.add(named[v], block.free, found)
        self.draws += block.free.shape[1]
        self.blocks += 1

    def missing(self) -> int:
        """How many draws more would bring sds, of cells and of each table of flows, to the error that is wanted (rms)."""
        sampling = self.structure.sampling
        looked = (
            np.unique(np.linspace(1, len(self.flows), LOOKED_AT).astype(int)).tolist() if self.flows else ()
        )
        errors = (self.squares.variances()[1], *(self.flows[v].variances()[1] for v in looked))
        worst = max(float(np.sqrt(np.mean(e**2))) for e in errors if len(e))
        needed = min(int(np.ceil(self.draws * (worst / sampling.error) ** 2)), most_final(sampling.error))
        return needed - self.draws if needed > NEARLY * self.draws else 0

    def survey(self, nu: Array, seen_mean: Array) -> Survey:
        """Variances with their errors, and log Z."""
        structure = self.structure
        variance, error = self.squares.variances()
        rows_variance, _ = self.of_rows.variances()
        logs = np.concatenate(self.logs) if self.logs else np.zeros((0, 3))
        log_z = structure.log_z(self.tau, nu, seen_mean, rows_variance, logs)
        variance = _corrected(variance, host(self.own @ np.minimum(self.tau, 0.0)))
        return Survey(structure._settled(variance, host(structure.prior_variance)), error, log_z)


def _sums_of_block(start: Tally, number: int, size: int) -> Tally:
    """One block of draws, on a worker; what travels back has no structure."""
    made = start.copy()
    made.blocks = number
    with threads_for(max(made.structure.tree.sizes)):
        made.add(size)
    made.blocks -= number
    nothing: Any = None
    made.structure = made.own = made.tau = nothing
    for flows in made.flows.values():
        flows.structure = nothing
    return made


class MatrixFreeField(Field):
    """The posterior: means by one solve, variances of all nodes and moves in one survey of the final draws."""

    def __init__(self, structure: MatrixFreeStructure, tau: Array, nu: Array, value: Array) -> None:
        self.structure, self.tau, self.nu, self.value = structure, tau, nu, value
        self._tally: Tally | None = None
        self._survey: Survey | None = None

    @cached_property
    def _mean_passes(self) -> Passes:
        structure = self.structure
        with threads_for(max(structure.tree.sizes)):
            weights = structure.weights(self.tau, self.nu[:, None], self.value[:, None])
            return structure.prior.passes(structure.sensors.seen.T @ weights)

    @cached_property
    def _mean(self) -> Array:
        return self.structure.prior.values(self._mean_passes)[:, 0]

    @property
    def survey(self) -> Survey:
        """What the final draws say."""
        if self._survey is None:
            recall, asked = self.structure.recall, self.structure.sampling.final
            asked = recall.final if asked is None and recall is not None else asked
            if self._tally is None:
                self._tally = Tally(self.structure, self.tau)
                with threads_for(max(self.structure.tree.sizes)):
                    self._tally.add(LEAST_FINAL if asked is None else asked)
                    while asked is None and (more := self._tally.missing()):
                        self._tally.add(more)
            if recall is not None:
                recall.final = self._tally.draws
            self._survey = self._tally.survey(self.nu, self.structure.sensors.seen @ self._mean)
        return self._survey

    @property
    def draws(self) -> int:
        """Final draws so far."""
        assert self.survey is not None
        assert self._tally is not None
        return self._tally.draws

    def more_draws(self, draws: int, client: Any = None) -> MatrixFreeField:
        """See :class:`Field`; the draws there are stay, and this field stays as it is."""
        if client is not None and self.structure.tree.device is not None:
            raise ModelError(
                "this run is on a graphics card, whose arrays do not travel to a cluster: leave out client, or "
                'infer with device="cpu"'
            )
        assert self.survey is not None
        assert self._tally is not None
        made = MatrixFreeField(self.structure, self.tau, self.nu, self.value)
        made._tally = self._tally.copy()
        with threads_for(max(self.structure.tree.sizes)):
            made._tally.add(draws, client)
        return made

    @property
    def log_z(self) -> tuple[float, float]:
        """log Z from the final draws, and its Monte-Carlo standard error."""
        return self.survey.log_z

    def mean(self, scope: Scope) -> Array:
        """See :class:`Field`."""
        place = self.structure.tree.place(scope)
        if not place.edge:
            return np.asarray(host(self._mean[self.structure.prior.slice(place.node)]))
        return self._table(scope, self._flow_mean(place.node))

    def variance(self, scope: Scope) -> Array:
        """See :class:`Field`."""
        place = self.structure.tree.place(scope)
        if not place.edge:
            return self.survey.variance[self.structure.prior.slice(place.node)]
        return self._table(scope, self._flow_spread(place.node)[0])

    def mc_error(self, scope: Scope) -> Array:
        """Monte-Carlo standard error of every entry's sd."""
        place = self.structure.tree.place(scope)
        if not place.edge:
            where = self.structure.prior.slice(place.node)
            return np.sqrt(self.survey.variance[where]) * self.survey.error[where]
        variance, error = self._flow_spread(place.node)
        return self._table(scope, np.sqrt(variance) * error)

    def moves(self, scope: Scope) -> MovesOf | None:
        """See :class:`Field`: for sparse transitions named (parent, child)."""
        place = self.structure.tree.place(scope)
        v = place.node
        if not place.edge or place.turned or not issparse(self.structure.prior.law.kernels[v]):
            return None
        variance, error = self._flow_spread(v)
        return MovesOf(
            self.structure.prior.flat_index(v),
            host(self._flow_mean(v)),
            host(variance),
            host(np.sqrt(variance) * error),
        )

    def covariance(self, a: Scope, b: Scope) -> Array:
        """See :class:`Field`; exact, one solve per entry of ``b``. Single nodes only."""
        structure, prior = self.structure, self.structure.prior
        places = [structure.tree.place(scope) for scope in (a, b)]
        if any(place.edge for place in places):
            raise ModelError(
                "the matrix-free structure gives covariances of single nodes, and variances of flows: "
                'ask for nodes, or use TiltedEP(structure="tree")'
            )
        rows, columns = (prior.slice(place.node) for place in places)
        every = sparse.eye_array(prior.size, format="csr")
        return self._covariance(every[rows], every[columns])

    def site_covariance(self, rows: np.ndarray) -> Array:
        """See :class:`Field`; exact, one solve per row."""
        seen = sparse.csr_array(host(self.structure.sensors.rows))[rows]
        return self._covariance(seen, seen)

    def _covariance(self, left: sparse.csr_array, right: sparse.csr_array) -> Array:
        """Between weighted sums of the long vector's entries, given as rows."""
        structure, prior, seen = self.structure, self.structure.prior, self.structure.sensors.seen
        found = np.empty((left.shape[0], right.shape[0]))
        with threads_for(max(structure.tree.sizes)):
            for start in range(0, right.shape[0], structure.block):
                part = slice(start, min(start + structure.block, right.shape[0]))
                unit = prior.xp.asarray(right[part].toarray().T)
                image = seen @ prior.times(unit)
                unit = unit + seen.T @ structure.weights(self.tau, -self.tau[:, None] * image, -image)
                found[:, part] = left @ host(prior.times(unit))
        return found

    def sample(self, size: int, *, rng: np.random.Generator) -> dict[Scope, Array]:
        """See :class:`Field`; normal draws, all tables dense."""
        tree, prior = self.structure.tree, self.structure.prior
        if (self.tau < 0).any():
            raise ModelError(
                'sites with a negative precision cannot be drawn without matrices: use TiltedEP(structure="tree")'
            )
        entries = max(sum(tree.sizes[u] * s for u, s in zip(tree.parents, tree.sizes, strict=True)), 1)
        memory.require(3 * 8 * size * entries, f"{size} draws of all tables", remedy="ask for fewer draws")
        if not on_host(self.tau):
            return self._at_home().sample(size, rng=rng)
        flows: list[Array] = []
        free, found = self._pulled_draws(size, rng, flows)
        if len(tree.sizes) == 1:
            return {tree.variables: (free - prior.values(found)).T + self._mean}
        drawn: dict[Scope, Array] = {}
        for v in range(1, len(tree.sizes)):
            u = tree.parents[v]
            edge = (tree.variables[u], tree.variables[v])
            moved = np.zeros((size, tree.sizes[u] * tree.sizes[v]))
            moved[:, prior.flat_index(v)] = flows[v].T
            drawn[edge] = moved.reshape(size, tree.sizes[u], -1) - self._pulled(v, found) + self.mean(edge)
        return drawn

    def sample_nodes(self, size: int, *, rng: np.random.Generator) -> Array:
        """See :class:`Field`; O(possible moves) numbers per draw. Negative precisions as in variances: each widens its own count alone."""
        if not on_host(self.tau):
            return self._at_home().sample_nodes(size, rng=rng)
        prior, survey = self.structure.prior, self.survey
        assert self._tally is not None
        wider = np.sqrt(1.0 - (self._tally.own @ np.minimum(self.tau, 0.0)) * survey.variance)
        free, found = self._pulled_draws(size, rng)
        drawn = self._mean[:, None] + wider[:, None] * (free - prior.values(found))
        return np.asarray(drawn[: prior.entries].T)

    def _pulled_draws(
        self, size: int, rng: np.random.Generator, flows: list[Array] | None = None
    ) -> tuple[Array, Passes]:
        """Normal draws of the prior, (size of K, size), and the passes whose values lead from them to the posterior's deviations."""
        free = self._normal_draws(size, rng, flows)
        system = self.structure.system(self.tau)
        over = np.sqrt(np.where(system.fixed, 0.0, 1.0 / system.d))[:, None]
        noise = over * rng.standard_normal((len(self.tau), size))
        with threads_for(max(self.structure.tree.sizes)):
            solved = conjugate(
                system, system.scale[:, None] * (system.rows @ free) + noise, Stop(relative=1e-6)
            )
            weights = system.scale[:, None] * solved.x
            return free, self.structure.prior.passes(system.rows.T @ weights)

    def _at_home(self) -> MatrixFreeField:
        """The same posterior in NumPy's arrays."""
        here = self.structure
        made = MatrixFreeStructure(
            here.prior.law.at_home(), here.individuals, here.sites, here.known, sampling=here.sampling
        )
        return MatrixFreeField(made, host(self.tau), host(self.nu), host(self.value))

    def _pulled(self, v: int, found: Passes) -> Array:
        """K Hᵀ w at all moves into v, (columns, L_u, L_v)."""
        prior = self.structure.prior
        side = found.side[prior.side_at[v] : prior.side_at[v + 1]] - found.mean
        pull = np.repeat(found.up[prior.slice(v)].T[:, None, :], len(side), axis=1)
        moves = slice(int(prior.seen.ends[v]), int(prior.seen.ends[v + 1]))
        pull[:, prior.seen.origin[moves], prior.seen.dest[moves]] += found.held[moves].T
        pull = side.T[:, :, None] + np.reshape(prior.phi_of(v), (-1, 1)) * pull
        expected = np.zeros(pull.shape[1:])
        expected.reshape(-1)[prior.flat_index(v)] = prior.table(v).reshape(-1)
        return np.asarray(expected * pull)

    def _normal_draws(self, size: int, rng: np.random.Generator, flows: list[Array] | None = None) -> Array:
        """Prior draws of the long vector, (size of K, size); those of each step's possible moves, (moves, size), are put into ``flows``."""
        prior = self.structure.prior
        nodes: list[Array] = []
        seen: list[Array] = []
        for v, u in enumerate(prior.law.tree.parents):
            flat = np.arange(prior.sizes[0]) if v == 0 else prior.flat_index(v)
            origin, dest = np.divmod(flat, prior.sizes[v])
            chances = prior.mu[prior.slice(0)] if v == 0 else prior.chances(v).reshape(-1)
            expected = prior.step(v).expected
            above = np.zeros((1, size)) if v == 0 else nodes[u]
            moved = rng.standard_normal((len(flat), size))
            moved *= np.sqrt(expected[origin] * chances)[:, None]
            moved += chances[:, None] * (above - _added(origin, moved, len(expected)))[origin]
            nodes.append(_added(dest, moved, prior.sizes[v]))
            part = slice(int(prior.seen.ends[v]), int(prior.seen.ends[v + 1]))
            seen.append(moved[prior.seen.place[part]])
            if flows is not None:
                flows.append(moved)
        return np.concatenate([*nodes, *seen])

    def _flow_mean(self, v: int) -> Array:
        """Mean deviation of the possible moves into v."""
        found, prior = self._mean_passes, self.structure.prior
        side = (found.side[prior.side_at[v] : prior.side_at[v + 1]] - found.mean)[:, 0]
        phi, table = prior.phi_of(v), prior.table(v)
        if prior.company:
            table = table * np.asarray(prior.along(v, np.asarray(phi), prior.mu[prior.slice(v)])[0])
        above, own = prior.along(v, side / phi, found.up[prior.slice(v)][:, 0])
        pull = (above + own).reshape(-1)
        moves = slice(int(prior.seen.ends[v]), int(prior.seen.ends[v + 1]))
        pull[prior.seen.place[moves]] += found.held[moves, 0]
        return table.reshape(-1) * pull

    def _flow_spread(self, v: int) -> tuple[Array, Array]:
        """Variances of the possible moves into v, and relative errors of their sds; moves that are seen have their own."""
        prior, survey = self.structure.prior, self.survey
        assert self._tally is not None
        variance, error = self._tally.flows[v].variances()
        a, b = int(prior.seen.ends[v]), int(prior.seen.ends[v + 1])
        if b > a:
            place, own = prior.seen.place[a:b], slice(prior.entries + a, prior.entries + b)
            variance[place], error[place] = (
                prior.xp.asarray(x[own]) for x in (survey.variance, survey.error)
            )
        return variance, error

    def _table(self, scope: Scope, values: Array) -> Array:
        """Values of the possible moves as a dense table in the scope's order."""
        place = self.structure.tree.place(scope)
        values = host(values)
        if len(values) == place.shape[0] * place.shape[1]:
            return np.asarray(place.turn(values.reshape(place.shape)))
        flat = np.zeros(place.shape[0] * place.shape[1])
        flat[self.structure.prior.flat_index(place.node)] = values
        return np.asarray(place.turn(flat.reshape(place.shape)))


def _corrected(variance: Array, tau: Array) -> Array:
    """Variances with the negative ones among the precisions put in, each alone."""
    left = 1.0 + np.minimum(tau, 0.0) * variance
    if (left <= 0).any():
        raise NotPositiveDefinite
    return np.asarray(variance / left)


def _joined(values: Sequence[Array]) -> Array:
    return np.concatenate([np.zeros(0), *(np.asarray(v, dtype=float) for v in values)])


def _added(where: np.ndarray, values: Array, size: int) -> Array:
    """Rows of values, added up by the places they belong to: (size, columns)."""
    count = len(where)
    made = sparse.csr_array((np.ones(count), (where, np.arange(count))), shape=(size, count)) @ values
    return np.asarray(made)
