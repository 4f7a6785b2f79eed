r"""Chains and trees without matrices: what is seen as rows on one long vector, means by conjugate gradients, variances by draws.

The parts have files of their own: the prior covariance K as an operator (``_prior_operator``), the systems and their solver
(``_conjugate_gradients``), draws, and variances and log Z estimated from them (``_variance_draws``). Here they are put together:

.. math:: \delta = K H^\top q, \; q = \nu - \tau H\delta, \qquad \log Z = \tfrac12\nu^\top H\delta - \tfrac12\log\det A .

Entries of all nodes stand in one vector, followed by the moves that somebody looked at; each row of H belongs to one node or edge.
Readings with correlated errors are rows :math:`C^\top B` of unit precision, :math:`CC^\top` their precision. Counts that are known
exactly are rows without noise. Means and covariances are exact to the tolerance of conjugate gradients; variances and log Z carry
the Monte-Carlo error that the field states.

A site with a negative precision cannot be drawn. It counts fully in means; in variances and log det each such site is put in
alone, :math:`V/(1+\tau V)`, as if they did not influence one another. They are small and rare (EP's corrections for whole numbers).
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular

from headcount import memory
from headcount._device import host, issparse, on_host
from headcount._linalg import threads_for
from headcount.checks import instance
from headcount.individual import FactoredTree, ModelError, RootedTree
from headcount.structure._conjugate_gradients import Stop, System, conjugate, of_any_sign
from headcount.structure._prior_operator import Passes, PriorOperator, rows_of
from headcount.structure._variance_draws import (
    DRAWN,
    FIRST_NEAR,
    LEAST_FINAL,
    REDRAWN,
    SHARPER,
    WIDEST,
    DrawBlock,
    RowSums,
    Squares,
    Survey,
    Tally,
    block_width,
    corrected,
    posterior_block,
    prior_draws,
    regressed,
)
from headcount.structure.base import (
    Field,
    KnownCounts,
    Moments,
    MovesOf,
    NotPositiveDefinite,
    Recall,
    Sampling,
    Structure,
    by_site,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headcount._linalg import Array
    from headcount.individual.rooted_tree import Place
    from headcount.observe import Site
    from headcount.tables import Scope

NO_VARIANCE = 1e-14
"""A row's prior variance below this, relative to N, is rounding of a difference of two numbers up to N."""
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
"""Draws per sweep, whatever the error: twice a whole block, so that sweeps cost at most twice as much."""
FOLLOWS = 1e-9
"""Share of its prior variance below which a count follows from exact ones: their draws are solved to 1e-6, so about 1e-12 is left."""


class ByDraws(Structure):
    """What structures without matrices share: means by conjugate gradients, variances and log Z from draws."""

    monte_carlo = True
    fixed: np.ndarray
    """Which rows are known exactly."""
    any_fixed: bool
    plain: Any
    """Rows that are counts of the sites, among those whose squares are summed."""
    sampling: Sampling
    recall: Recall | None

    @property
    @abstractmethod
    def knows_variances(self) -> bool:
        """Whether prior variances are exact."""

    @property
    @abstractmethod
    def entries(self) -> int:
        """Numbers in one draw of the prior."""

    @abstractmethod
    def prior_counts(self, number: int, size: int) -> Array:
        """Block ``number`` of draws of the prior: the counts that systems are about, as `posterior_block` takes them."""

    @property
    @abstractmethod
    def seen_variance(self) -> Array:
        """Prior variances of the rows."""

    @abstractmethod
    def system(self, tau: Array) -> System:
        """A at the positive ones among the precisions."""

    @abstractmethod
    def seen_covariance_times(self, weights: Array) -> Array:
        """H K Hᵀ w."""

    @property
    def block(self) -> int:
        """Draws per block."""
        return block_width(self.entries)

    def blocks(
        self, tau: Array, draws: int, *, first: int = 0, recall: Recall | None = None
    ) -> Iterator[DrawBlock]:
        """Posterior draws, block by block from number ``first``; sites with a negative precision are left out.

        With a recall, those of a sweep: each block starts from the solution that the last sweep left.
        """
        system, width = self.system(tau), self.block
        for number, start in enumerate(range(0, draws, width), first):
            size = min(width, draws - start)
            last = None if recall is None else recall.solution(number, (len(tau), size))
            stop = DRAWN if recall is None else FIRST_NEAR if recall.near and last is None else REDRAWN
            free = self.prior_counts(number, size)
            block = posterior_block(system, free, self.sampling.seed, number, stop, last)
            if recall is not None:
                recall.blocks[number] = block.solution
            yield block

    def weights(self, tau: Array, right: Array, value: Array, recall: Recall | None = None) -> Array:
        """q with δ = K Hᵀ q: q = right − τ Hδ at ordinary rows, Hδ = value at the exact ones; columns at once.

        With a recall, the solution starts from the one that the last sweep left there.
        """
        target = np.where(self.fixed[:, None], value, 0.0)
        if (tau < 0).any():
            return self._weights_of_any_sign(tau, right, target)
        system = self.system(tau)
        scaled = system.scale[:, None] * (self.seen_covariance_times(right) - target)
        if recall is None:
            return right - system.scale[:, None] * conjugate(system, scaled, SOLVED).x
        recall.mean = conjugate(system, scaled, FOLLOWED, recall.mean).x
        return right - system.scale[:, None] * recall.mean

    def _weights_of_any_sign(self, tau: Array, right: Array, target: Array) -> Array:
        """As :meth:`weights`, under the covariance given the exact counts, for which each product solves a system of its own."""
        if not self.any_fixed:
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

    def settled(self, variance: Array, prior: Array) -> Array:
        """Variances with zero for what follows from exact counts: there, draws have only the solver's error."""
        if not self.any_fixed:
            return variance
        return np.where(variance > FOLLOWS * prior, variance, 0.0)

    def log_z(self, tau: Array, nu: Array, mean: Array, squares: Squares, logs: Array) -> tuple[float, float]:
        """½ ν·Hδ − ½ log det A, and its Monte-Carlo standard error.

        NaN beside exact counts, which have a density and no probability here, and where draws were started from others.
        """
        if not len(tau):
            return 0.0, 0.0
        if self.any_fixed or np.isnan(logs).any():
            return float("nan"), float("nan")
        log_det, error = regressed(logs, len(tau), known=self.knows_variances)
        log_det += float(np.log1p(np.maximum(tau, 0.0) * self.seen_variance).sum())
        tau, nu, mean = host(tau), host(nu), host(mean)
        plain = self.plain
        variance, alone = squares.variances()[0][plain], np.minimum(tau[: len(plain)], 0.0)
        left = 1.0 + alone * variance
        if (left <= 0).any():
            raise NotPositiveDefinite
        return 0.5 * float(nu @ mean) - 0.5 * (log_det + float(np.log(left).sum())), 0.5 * error


class MatrixFreeStructure(ByDraws, kind="matrix-free"):
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

    def __init__(
        self,
        tree: RootedTree | FactoredTree,
        population: float,
        sites: Sequence[Site],
        known: KnownCounts | None = None,
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
        super().__init__(population, sites, known)
        # Flocks of c: all covariances are c times larger, as are those of c times as many individuals.
        self.individuals = self.population
        self.population *= self.tree.common_phi or 1.0
        sensors = None if recall is None else recall.sensors
        if sensors is None:
            sensors = Sensors(PriorOperator(law, self.population), self.tree, self.sites, self.known)
        if recall is not None:
            recall.sensors = sensors
        self.sensors = sensors
        self.fixed, self.any_fixed, self.plain = sensors.fixed, sensors.any_fixed, sensors.plain
        self.prior = PriorOperator(law, self.population, sensors.edges)

    def __reduce__(self) -> Any:
        """Pickled by its arguments: the operators are made again on arrival, and the recall is left out."""
        arguments = (self.prior.law, self.individuals, self.sites, self.known)
        return partial(MatrixFreeStructure, *arguments, sampling=self.sampling), ()

    @property
    def knows_variances(self) -> bool:
        """Whether prior variances have a closed form: where root and steps have one phi, and one number is known.

        With overdispersion, and where numbers of groups vary, they are estimated by draws.
        """
        return not self.prior.overdispersed and self.prior.law.numbers is None

    @cached_property
    def prior_variance(self) -> Array:
        """N μ (1 − μ) of all entries and seen moves; times phi of the last step, which is of the right size."""
        mu = self.prior.expected / self.population
        found = self.population * mu * (1.0 - mu)
        if self.knows_variances:
            return found
        return found * self._last_phi + self._number_spread * mu**2

    @property
    def _number_spread(self) -> float:
        """What varying numbers of groups add to the variance of a count, per squared share: right where one group has all."""
        numbers = self.prior.law.numbers
        return 0.0 if numbers is None else float(numbers.variance.sum())

    @property
    def _last_phi(self) -> Array | float:
        """phi of those who came to an entry, and of those who make a seen move."""
        if not self.prior.overdispersed:
            return 1.0
        return np.concatenate([self.prior.psi, self.prior.seen_phi])

    def row_variance(self, rows: sparse.csr_array) -> Array:
        """The diagonal of B K Bᵀ, or its size: a row sees one table only."""
        mu = self.prior.expected / self.population
        squares = rows.power(2)
        most = squares @ mu
        found = self.population * (most - (rows @ mu) ** 2)
        if not self.knows_variances:
            found = found * (squares @ (mu * self._last_phi)) / np.where(most > 0, most, 1.0)
            found = found + self._number_spread * (rows @ mu) ** 2
        return np.where(found > NO_VARIANCE * self.population, found, 0.0)

    @cached_property
    def seen_variance(self) -> Array:
        """Of the rows of H."""
        return self.row_variance(self.sensors.seen)

    def system(self, tau: Array) -> System:
        """A at the positive ones among the precisions."""
        positive = np.maximum(tau, 0.0)
        return System(
            self.seen_covariance_times,
            self.sensors.seen,
            self.seen_variance,
            positive,
            self.fixed,
            self.prior,
        )

    def seen_covariance_times(self, weights: Array) -> Array:
        """H K Hᵀ w."""
        return self.sensors.seen @ self.prior.times(self.sensors.seen.T @ weights)

    @property
    def entries(self) -> int:
        """Of all nodes, and seen moves."""
        return self.prior.size

    def prior_counts(self, number: int, size: int) -> Array:
        """See :class:`ByDraws`: of all nodes, and of seen moves."""
        return prior_draws(self.prior, self.sampling.seed, number, size)

    def solve(self, tau: Sequence[Array], nu: Sequence[Array]) -> Moments:
        """See :class:`Structure`; variances (and, without a recall, log Z) from the draws of a sweep."""
        t, n, c = self.sensors.arrange(_joined(tau), _joined(nu), self.known)
        with threads_for(max(self.tree.sizes)):
            weights = self.weights(t, n[:, None], c[:, None], self.recall)
            image = self.prior.times(self.sensors.seen.T @ weights)
            mean = host(self.sensors.rows @ image)[:, 0]
            variance, log_z = self._sweep(t, n, (self.sensors.seen @ image)[:, 0])
        return Moments(by_site(mean, self.sites), by_site(variance, self.sites), log_z)

    def _sweep(self, tau: Array, nu: Array, mean: Array) -> tuple[Array, float]:
        """Variances of all rows and log Z, from as many draws as sweeps need."""
        recall = self.recall
        wanted = self.sampling.sweep
        if wanted is None:
            wanted = recall.draws if recall is not None else None
        least = WIDEST if self.prior.moves <= SMALL else USUAL
        draws = least if wanted is None else wanted
        sums = self._drawn(tau, draws)
        if wanted is None:
            need = draws * (sums.squares.typical_error() / SWEEP_ERROR) ** 2
            need = 2 ** int(np.ceil(np.log2(max(need / SLACK, USUAL))))
            if need > draws:
                draws = min(need, MOST_IN_SWEEPS)
                sums = self._drawn(tau, draws)
        if recall is not None:
            recall.draws = draws
        variance, _ = sums.squares.variances()
        log_z, _ = self.log_z(tau, nu, mean, sums.squares, sums.log_terms)
        variance = corrected(variance, host(self.sensors.on_rows(tau)))
        variance[self.sensors.known] = 0.0
        return self.settled(variance, host(self.row_variance(self.sensors.rows))), log_z

    def _drawn(self, tau: Array, draws: int) -> RowSums:
        """Sums over the draws of a sweep, of the sites' rows."""
        sums = RowSums(self, tau)
        for block in self.blocks(tau, draws, recall=self.recall):
            moved = block.free - self.prior.times(self.sensors.seen.T @ block.weights)
            sums.add(self.sensors, block, moved)
        return sums

    def field(self, tau: Sequence[Array], nu: Sequence[Array]) -> MatrixFreeField:
        """See :class:`Structure`; variances and log Z from the final draws."""
        return MatrixFreeField(self, *self.sensors.arrange(_joined(tau), _joined(nu), self.known))


class Sensors:
    """Where sites look, as rows on the long vector; depends on the tree's shape and on what is known, not on the tilts.

    Attributes
    ----------
    rows
        One row per entry of every site, in the sites' order.
    seen
        H: the rows of ordinary sites, then those of correlated readings (whitened), then the exact ones.
    edges
        Flat positions of the moves in the vector, by child.
    """

    def __init__(
        self, prior: PriorOperator, tree: RootedTree, sites: Sequence[Site], known: KnownCounts
    ) -> None:
        self.device = tree.device
        places = [tree.place(site.scope) for site in sites]
        looked = [_looked_at(site, place) for site, place in zip(sites, places, strict=True)]
        self.edges = _seen_moves(prior, places, looked)
        by_site, width = _rows_by_site(prior, self.edges, places, looked, [len(site) for site in sites])
        others = {*known.exact, *known.readings}
        plain = [k for k in range(len(sites)) if k not in others]
        self.plain, self.known = (_entries_of(sites, picked) for picked in (plain, known.exact))
        self.factors = {k: np.linalg.cholesky(known.readings[k][0]) for k in known.readings}
        rows = rows_of(by_site, width)
        seen = rows if len(plain) == len(sites) else rows_of(self._in_order(by_site, plain, known), width)
        self.exact = seen.shape[0] - len(self.known)
        self.any_fixed = len(self.known) > 0
        self.put = prior.xp.asarray
        self.fixed = self.put(np.arange(seen.shape[0]) >= self.exact)
        self.rows = self.placed(rows)
        self.seen = self.rows if seen is rows else self.placed(seen)

    def placed(self, rows: sparse.csr_array) -> sparse.csr_array:
        """Rows where the tree's law is."""
        return rows if self.device is None else self.device.put(rows)

    def _in_order(
        self, by_site: list[sparse.csr_array], plain: list[int], known: KnownCounts
    ) -> list[sparse.csr_array]:
        """The rows of ordinary sites, whitened ones of correlated readings, exact ones."""
        white = [sparse.csr_array(c.T) @ by_site[k] for k, c in self.factors.items()]
        return [*(by_site[k] for k in plain), *white, *(by_site[k] for k in known.exact)]

    def on_rows(self, values: Array) -> Array:
        """Values of the rows of H at the sites' rows that are ordinary; zero at the others."""
        made = np.zeros_like(values, shape=(self.rows.shape[0], *values.shape[1:]))
        made[self.put(self.plain)] = values[: len(self.plain)]
        return made

    def arrange(self, tau: Array, nu: Array, known: KnownCounts) -> tuple[Array, Array, Array]:
        """Precisions and potentials of the seen rows, and the exact values (zero elsewhere), where the structure's arrays are."""
        t, n, c = (np.zeros(self.seen.shape[0]) for _ in range(3))
        at = len(self.plain)
        t[:at], n[:at] = tau[self.plain], nu[self.plain]
        for k, factor in self.factors.items():
            where = slice(at, at + len(factor))
            t[where], n[where] = 1.0, solve_triangular(factor, known.readings[k][1], lower=True)
            at = where.stop
        c[self.exact :] = np.concatenate(
            [np.zeros(0), *(np.asarray(x, dtype=float) for x in known.exact.values())]
        )
        return self.put(t), self.put(n), self.put(c)


def _entries_of(sites: Sequence[Site], picked: Iterable[int]) -> np.ndarray:
    """Positions of some sites' entries among those of all sites."""
    ends = np.cumsum([0, *(len(site) for site in sites)])
    return np.concatenate([np.zeros(0, np.intp), *(np.arange(ends[k], ends[k + 1]) for k in picked)])


Looked = tuple[np.ndarray, np.ndarray, "Array"]
"""The non-zeros of a site's matrix: rows, flat positions in the tree's table (which has the parent first), and weights."""


def _looked_at(site: Site, place: Place) -> Looked:
    """The entries or sums that a site observes, in the tree's order."""
    if site.index is not None:
        row, at, weight = np.arange(len(site)), np.asarray(site.index), np.ones(len(site))
    else:
        held = sparse.coo_array(site.weights)
        row, at, weight = held.row, held.col, held.data
    if place.turned:
        child, parent = np.divmod(at, place.shape[0])
        at = parent * place.shape[1] + child
    return row, at, weight


def _seen_moves(
    prior: PriorOperator, places: Sequence[Place], looked: Sequence[Looked]
) -> dict[int, np.ndarray]:
    """Possible moves that some site observes, sorted, by child."""
    found: dict[int, np.ndarray] = {}
    for v in sorted({place.node for place in places if place.edge}):
        at = [at for place, (_, at, _) in zip(places, looked, strict=True) if place.edge and place.node == v]
        possible = prior.flat_index(v)[host(prior.chances(v)).reshape(-1) > 0]
        found[v] = np.intersect1d(np.concatenate(at), possible)
    return found


def _rows_by_site(
    prior: PriorOperator,
    edges: dict[int, np.ndarray],
    places: Sequence[Place],
    looked: Sequence[Looked],
    lengths: Sequence[int],
) -> tuple[list[sparse.csr_array], int]:
    """B of every site, and the length of the vector: all nodes' entries, then the seen moves by child."""
    ends = prior.entries + np.cumsum([0, *(len(moves) for moves in edges.values())])
    starts, width = dict(zip(edges, ends.tolist(), strict=False)), int(ends[-1])
    found: list[sparse.csr_array] = []
    for place, (row, at, weight), length in zip(places, looked, lengths, strict=True):
        if place.edge:  # impossible moves have no column: their count is zero
            possible = np.isin(at, edges[place.node])
            column = starts[place.node] + np.searchsorted(edges[place.node], at[possible])
            entries = weight[possible], (row[possible], column)
        else:
            entries = weight, (row, int(prior.node[place.node]) + at)
        found.append(sparse.csr_array(entries, shape=(length, width)))
    return found, width


class MatrixFreeField(Field):
    """The posterior: means by one solve, variances of all nodes and moves in one survey of the final draws."""

    def __init__(
        self,
        structure: MatrixFreeStructure,
        tau: Array,
        nu: Array,
        value: Array,
        *,
        tally: Tally | None = None,
    ) -> None:
        self.structure, self.tau, self.nu, self.value = structure, tau, nu, value
        self._drawn = tally

    @cached_property
    def _mean_passes(self) -> Passes:
        structure = self.structure
        with threads_for(max(structure.tree.sizes)):
            weights = structure.weights(self.tau, self.nu[:, None], self.value[:, None])
            return structure.prior.passes(structure.sensors.seen.T @ weights)

    @cached_property
    def _mean(self) -> Array:
        return self.structure.prior.values(self._mean_passes)[:, 0]

    @cached_property
    def tally(self) -> Tally:
        """Sums over the final draws: as many as were asked for, or as the error asks for."""
        tally, recall, asked = self._drawn, self.structure.recall, self.structure.sampling.final
        if asked is None and recall is not None:
            asked = recall.final
        if tally is None:
            tally = Tally(self.structure, self.tau)
            with threads_for(max(self.structure.tree.sizes)):
                tally.add(LEAST_FINAL if asked is None else asked)
                while asked is None and (more := tally.missing()):
                    tally.add(more)
        if recall is not None:
            recall.final = tally.draws
        return tally

    @cached_property
    def survey(self) -> Survey:
        """What the final draws say."""
        return self.tally.survey(self.nu, self.structure.sensors.seen @ self._mean)

    @property
    def draws(self) -> int:
        """Final draws so far."""
        return self.tally.draws

    def more_draws(self, draws: int, client: Any = None) -> MatrixFreeField:
        """See :class:`Field`; the draws there are stay, and this field stays as it is."""
        if client is not None and self.structure.tree.device is not None:
            raise ModelError(
                "this run is on a graphics card, whose arrays do not travel to a cluster: leave out client, or "
                'infer with device="cpu"'
            )
        tally = self.tally.copy()
        with threads_for(max(self.structure.tree.sizes)):
            tally.add(draws, client)
        return MatrixFreeField(self.structure, self.tau, self.nu, self.value, tally=tally)

    @property
    def log_z(self) -> tuple[float, float]:
        """log Z from the final draws, and its Monte-Carlo standard error."""
        return self.survey.log_z

    def mean(self, scope: Scope) -> Array:
        """See :class:`Field`."""
        return self._table(scope, self._mean, self._flow_mean)

    def variance(self, scope: Scope) -> Array:
        """See :class:`Field`."""
        return self._table(scope, self.survey.variance, lambda v: self._flow_spread(v)[0])

    def mc_error(self, scope: Scope) -> Array:
        """Monte-Carlo standard error of every entry's sd."""
        of_nodes = np.sqrt(self.survey.variance) * self.survey.error
        return self._table(scope, of_nodes, lambda v: self._flow_spread(v)[1])

    def _table(self, scope: Scope, entries: Array, moves: Callable[[int], Array]) -> Array:
        """The part of a node in values of all entries, or the values of the moves into a node as a dense table in the scope's order."""
        place, prior = self.structure.tree.place(scope), self.structure.prior
        if not place.edge:
            return np.asarray(host(entries[prior.entries_of(place.node)]))
        flat = host(moves(place.node))
        if len(flat) < place.shape[0] * place.shape[1]:
            possible, flat = flat, np.zeros(place.shape[0] * place.shape[1])
            flat[prior.flat_index(place.node)] = possible
        return np.asarray(place.turn(flat.reshape(place.shape)))

    def moves(self, scope: Scope) -> MovesOf | None:
        """See :class:`Field`: for sparse transitions named (parent, child)."""
        place, prior = self.structure.tree.place(scope), self.structure.prior
        v = place.node
        if not place.edge or place.turned or not issparse(prior.law.kernels[v]):
            return None
        return MovesOf(
            prior.flat_index(v), host(self._flow_mean(v)), *(host(x) for x in self._flow_spread(v))
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
        rows, columns = (prior.entries_of(place.node) for place in places)
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
            moved[:, prior.flat_index(v)] = (flows[v] - prior.move_values(v, found)).T
            drawn[edge] = moved.reshape(size, tree.sizes[u], -1) + self.mean(edge)
        return drawn

    def sample_nodes(self, size: int, *, rng: np.random.Generator) -> Array:
        """See :class:`Field`; O(possible moves) numbers per draw. Negative precisions as in variances: each widens its own count alone."""
        if not on_host(self.tau):
            return self._at_home().sample_nodes(size, rng=rng)
        prior = self.structure.prior
        wider = np.sqrt(1.0 - (self.tally.own @ np.minimum(self.tau, 0.0)) * self.survey.variance)
        free, found = self._pulled_draws(size, rng)
        drawn = self._mean[:, None] + wider[:, None] * (free - prior.values(found))
        return np.asarray(drawn[: prior.entries].T)

    def _pulled_draws(
        self, size: int, rng: np.random.Generator, flows: list[Array] | None = None
    ) -> tuple[Array, Passes]:
        """Normal draws of the prior, (size of K, size), and the passes whose values lead from them to the posterior's deviations."""
        free = self._normal_draws(size, rng, flows)
        system = self.structure.system(self.tau)
        right = system.of_draws(free, rng.standard_normal((len(self.tau), size)))
        with threads_for(max(self.structure.tree.sizes)):
            weights = system.scale[:, None] * conjugate(system, right, SHARPER).x
            return free, self.structure.prior.passes(system.rows.T @ weights)

    def _at_home(self) -> MatrixFreeField:
        """The same posterior in NumPy's arrays."""
        here = self.structure
        made = MatrixFreeStructure(
            here.prior.law.at_home(), here.individuals, here.sites, here.known, sampling=here.sampling
        )
        return MatrixFreeField(made, host(self.tau), host(self.nu), host(self.value))

    def _normal_draws(self, size: int, rng: np.random.Generator, flows: list[Array] | None = None) -> Array:
        """Prior draws of the long vector, (size of K, size); those of each step's possible moves, (moves, size), are put into ``flows``."""
        prior = self.structure.prior
        nodes: list[Array] = []
        seen: list[Array] = []
        for v, u in enumerate(prior.law.tree.parents):
            flat = np.arange(prior.sizes[0]) if v == 0 else prior.flat_index(v)
            origin, dest = np.divmod(flat, prior.sizes[v])
            chances = prior.mu[prior.entries_of(0)] if v == 0 else prior.chances(v).reshape(-1)
            if v == 0 and prior.law.numbers is not None:
                spread = np.sqrt(prior.law.numbers.variance)[:, None]
                nodes.append(spread * rng.standard_normal((prior.sizes[0], size)))
                if flows is not None:
                    flows.append(nodes[0])
                continue
            expected = prior.step(v).expected
            above = np.zeros((1, size)) if v == 0 else nodes[u]
            moved = rng.standard_normal((len(flat), size))
            moved *= np.sqrt(expected[origin] * chances)[:, None]
            moved += chances[:, None] * (above - _added(origin, moved, len(expected)))[origin]
            nodes.append(_added(dest, moved, prior.sizes[v]))
            seen.append(moved[prior.seen.place[prior.seen_into(v)]])
            if flows is not None:
                flows.append(moved)
        return np.concatenate([*nodes, *seen])

    def _flow_mean(self, v: int) -> Array:
        """Mean deviation of the possible moves into v."""
        return self.structure.prior.move_values(v, self._mean_passes)[:, 0]

    def _flow_spread(self, v: int) -> tuple[Array, Array]:
        """Variances of the possible moves into v, and Monte-Carlo errors of their sds; moves that are seen have their own."""
        prior, survey = self.structure.prior, self.survey
        variance, error = self.tally.flows[v].variances()
        moves = prior.seen_into(v)
        own = slice(prior.entries + moves.start, prior.entries + moves.stop)
        for values, of_seen in ((variance, survey.variance), (error, survey.error)):
            values[prior.seen.place[moves]] = prior.xp.asarray(of_seen[own])
        return variance, np.sqrt(variance) * error


def _joined(values: Sequence[Array]) -> Array:
    return np.concatenate([np.zeros(0), *(np.asarray(v, dtype=float) for v in values)])


def _added(where: np.ndarray, values: Array, size: int) -> Array:
    """Rows of values, added up by the places they belong to: (size, columns)."""
    count = len(where)
    made = sparse.csr_array((np.ones(count), (where, np.arange(count))), shape=(size, count)) @ values
    return np.asarray(made)
