r"""Draws of the prior and of the posterior, and the variances and log det A estimated from them.

With :math:`\delta_0` a draw of the prior and ξ standard normal at the sites, :math:`\delta^* = \delta_0 - KH^\top D x`,
:math:`A x = D(H\delta_0 + \xi/\sqrt\tau)`, is a draw of the posterior. Two things carry Monte-Carlo error:

* **Variances** are mean squares of draws (:class:`Squares`). The draw of a model in which each entry has its own sites only,
  :math:`\delta_{loc} = (\delta_0 - k\sqrt\tau\xi)/(1 + \tau k)`, k the prior variance, has the known variance
  :math:`k/(1 + \tau k)` and the correlation :math:`\sqrt{V/V_{loc}}` with :math:`\delta^*`: it is the control variate, and the relative
  error of an sd is at most :math:`\sqrt{(1 - \rho^2)/2d}` after d draws, :math:`\rho = V/V_{loc}`.
* **log det A**: the right-hand side of a draw has covariance A, so the tridiagonal matrix that its conjugate gradients leave gives
  an unbiased estimate by Gauss quadrature. Two traces are known and serve as control variates.

The draws are the same ones in every sweep (common random numbers), so a fixed point is deterministic.
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from headcount._device import connected, host, issparse, namespace, on_host
from headcount._linalg import row_dots, threads_for
from headcount.structure import _matrix_free_kernels as kernels
from headcount.structure._conjugate_gradients import Stop, System, conjugate, dots
from headcount.structure.base import NotPositiveDefinite

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headcount._types import Array, Mask
    from headcount.structure._matrix_free import MatrixFreeStructure, Sensors
    from headcount.structure._prior_operator import Passes, PriorOperator

DRAWN = Stop(relative=3e-3)
"""Of final draws. On a grid of 1600 cells and 20 times, 5e-3 changed sds by 8e-4 (rms, no bias) and log Z by .25, a tenth of its error."""
REDRAWN = Stop(relative=1e-6, gain=0.2, loosest=0.1)
"""Of a sweep's draws, which start from the last sweep's solution: their error shrinks with the sweeps' own steps, so that it is not
what keeps sweeps from converging. On the same grid this took 6 sweeps, as solving to 1e-5 did, and means agreed to 1e-4 of an sd."""
FIRST_NEAR = Stop(relative=1e-4)
"""Of the first draws of a run that starts near its answer: as sharp as the last ones of the run before."""
SHARPER = Stop(relative=1e-6)
"""Beside exact counts, from which others may follow: these get the sd of a draw's error, which should be none."""
SAME = 1e-9
"""A draw and its control variate that agree to this share are the same numbers up to rounding: nothing was observed that matters."""
WIDEST_CAVITY = 1e6
"""Most that a variance without a count's own sites can be, as a multiple of the prior variance's size where that is not known: phi of
earlier steps may be much larger than that of the last one, and far beyond it the count is known from its own sites alone."""
BLOCK_NUMBERS = 2**24
"""Numbers in one array of a block of draws: 128 MB, of which about ten are held at once."""
WIDEST, NARROWEST = 32, 8
"""Draws per block: with more columns a sparse product gets no cheaper per column (.14 ns per move and column at 32, .23 at 16, .31 at 8),
with fewer it wastes memory traffic. A block may have 64: four words of a hash per move."""


LOOKED_AT = 5
"""Steps, evenly spaced, whose flows decide whether more draws are needed: tables of neighbouring steps have similar errors."""
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
NOISE_AT_ONCE = 2**27
"""Numbers of noise made at once: 1 GB. A device's kernels run at full speed from about a hundredth of that."""


def block_width(entries: int) -> int:
    """Draws per block, where all nodes together have so many entries."""
    widest = max(BLOCK_NUMBERS // max(entries, 1), 1)
    return int(min(WIDEST, max(NARROWEST, 2 ** (widest.bit_length() - 1))))


class DrawBlock(NamedTuple):
    """A block of draws: the prior's, the sites' noise, and the weights that lead from the prior to the posterior."""

    number: int
    free: Array
    """δ_0, (entries and seen moves, draws)."""
    noise: Array
    """√τ ξ at the sites, (rows, draws)."""
    weights: Array
    """D x, (rows, draws): the posterior draw is δ_0 − K Hᵀ weights."""
    solution: Array
    """x."""
    logs: Array
    """(draws, 3): the estimate of log det of the scaled A, and of its two known traces; NaN after a start."""


def keys(prior: PriorOperator, seed: int, number: int) -> np.ndarray:
    """One key of random signs per node, for one block."""
    return np.random.SeedSequence([seed, number]).generate_state(len(prior.sizes), np.uint64)


def prior_draws(prior: PriorOperator, seed: int, number: int, size: int) -> Array:
    """Draws from the prior, N(0, K) up to second moments: block ``number``, shape (size of K, draws), draws ≤ 64."""
    drawn = prior.xp.zeros((prior.size, size))
    for v, key in enumerate(keys(prior, seed, number)):
        above = prior.xp.zeros((1, size)) if v == 0 else drawn[prior.entries_of(int(prior.parents[v]))]
        step_draws(prior, v, key, above, drawn[prior.entries_of(v)])
        moves = prior.seen_into(v)
        if moves.stop > moves.start:
            order = np.argsort(prior.seen.place[moves])
            found = prior.xp.empty((len(order), size))
            move_draws(prior, v, key, above, prior.seen.place[moves][order], found)
            drawn[prior.entries + moves.start + order] = found
    return drawn


def posterior_block(
    system: System, free: Array, seed: int, number: int, stop: Stop, start: Array | None = None
) -> DrawBlock:
    """One block of posterior draws, from draws ``free`` of the prior and the solution ``start`` that the last sweep left, if there is one.

    Sharp beside exact counts.
    """
    root, size = np.sqrt(np.where(system.fixed, 0.0, system.tau))[:, None], free.shape[1]
    rng = np.random.default_rng(np.random.SeedSequence([seed, number, 1]))
    noise = namespace(free).asarray(rng.standard_normal((len(system.tau), size)))
    right = system.of_draws(free, noise)
    solved = conjugate(system, right, SHARPER if system.fixed.any() else stop, start)
    logs = np.full((size, 3), np.nan)
    if start is None:
        logs = np.stack([solved.log_forms(), solved.size, dots(right, solved.x)], axis=1)
    return DrawBlock(number, free, root * noise, system.scale[:, None] * solved.x, solved.x, logs)


class Squares:
    r"""Mean squares of draws of some counts, and the posterior variances V estimated from them.

    With k the prior variance of a count, τ the precision of its own sites and ξ their noise, each posterior draw δ gives two independent
    estimates, of V and of 1 − τV, by :math:`\delta^2` and by :math:`y^2, \; y = \sqrt\tau\delta + \xi`. Their ratio is the variance
    without the own sites, C = V/(1 − τV), which is at most k; and V = C/(1 + τC). Both have the local model's draws as control variates,
    :math:`\hat V = m\,(V_{loc}/m_{loc})^{\rho}`, ρ = V/V_loc the correlation of the squares: the power keeps it positive.
    Where k is not ``known`` exactly, there is no control variate.
    """

    def __init__(self, prior: Array, tau: Array, *, known: bool = True) -> None:
        self.prior, self.tau, self.known, self.draws = prior, tau, known, 0
        self.sums = np.zeros_like(prior, shape=(4, len(prior)))

    def add(self, free: Array, moved: Array, noise: Array) -> None:
        """Prior draws, posterior draws and √τ ξ, each (counts, draws)."""
        self.draws += free.shape[1]
        k, t = self.prior[:, None], self.tau[:, None]
        for row, part in enumerate((moved, free - k * noise, t * moved + noise, t * free + noise)):
            self.sums[row] += row_dots(part, part)

    def absorb(self, other: Squares) -> None:
        """The sums of other draws of the same counts."""
        self.sums += other.sums
        self.draws += other.draws

    def typical_error(self) -> float:
        """Relative error of a typical sd: from the median of V/V_loc, which few draws know although they know no single one."""
        drawn, local, _, _ = host(self.sums)
        prior, tau = host(self.prior), host(self.tau)
        live = (local > 0) & (drawn > 0)
        if not live.any():
            return 0.0
        ratio = float(np.median(drawn[live] * (1.0 + tau * prior)[live] ** 2 / local[live]))
        rho = min(ratio, 1.0) if self.known else 0.0
        rest = float(np.median((1.0 - tau * self.variances()[0])[live]))
        return rest * float(np.sqrt((1.0 - rho**2) / max(self.draws, 1)))

    def variances(self) -> tuple[Array, Array]:
        """V, and the relative Monte-Carlo errors of the sds; NumPy's arrays."""
        prior, tau = host(self.prior), host(self.tau)
        drawn, local, left, local_left = host(self.sums) / max(self.draws, 1)
        scale = 1.0 + tau * prior
        variance, rest, unexplained, rest_unexplained = drawn, left, np.sign(drawn), np.sign(left)
        if self.known:
            variance, unexplained = controlled(drawn, local / scale**2, prior / scale, self.draws)
            rest, rest_unexplained = controlled(left, local_left / scale**2, tau / scale, self.draws)
        alone = tau <= 0
        rest = np.where(alone, 1.0, rest / np.where(alone, 1.0, tau))  # 1 − τV
        live = rest > 0
        most = prior if self.known else WIDEST_CAVITY * prior
        cavity = np.minimum(np.where(live, variance / np.where(live, rest, 1.0), most), most)
        share = 1.0 / (1.0 + tau * cavity)
        off = np.where(alone, unexplained, share**2 * (unexplained + rest_unexplained))
        return cavity * share, np.sqrt(off / (2.0 * max(self.draws, 1)))


def controlled(drawn: Array, control: Array, known: Array, draws: int) -> tuple[Array, Array]:
    """Mean squares corrected by those of a control variate whose expectation is known; and 1 − ρ², their remaining noise."""
    live = (known > 0) & (control > 0) & (drawn > 0)
    ratio = np.where(live, drawn / np.where(live, control, 1.0), 1.0)
    rho = np.minimum(ratio, 1.0 / ratio)
    factor = np.where(live, known / np.where(live, control, 1.0), 1.0) ** rho
    return np.where(live, drawn * factor, 0.0), _remaining_noise(ratio, 1.0 - rho**2, live, max(draws, 1))


def _remaining_noise(ratio: Array, left: Array, live: Mask, draws: int) -> Array:
    r"""1 − ρ² where ρ is itself estimated, :math:`u = \hat u \pm 4\sqrt{u/d}`.

    Half that is added, so that an error is not called small because ρ came out as 1 by chance; for the same reason half of the median of
    all counts is the least. Draws that equal their control variate are known by it.
    """
    same = np.abs(ratio - 1.0) < SAME
    typical = 0.5 * float(np.median(left[live & ~same])) if (live & ~same).any() else 0.0
    root = 1.0 / np.sqrt(draws) + np.sqrt(1.0 / draws + np.maximum(left, typical))
    return np.where(same, 0.0, np.minimum(root**2, 1.0))


def regressed(logs: Array, rows: int, *, known: bool = True) -> tuple[float, float]:
    """Mean of the first column, with the two others, whose expectation is the number of rows, as control variates; and its error.

    The second column's, tr A, is that only where prior variances are ``known``: A has unit diagonal then.
    """
    draws = len(logs)
    controls = logs[:, 1 if known else 2 :] - rows
    centred = controls - controls.mean(axis=0)
    slope = np.linalg.lstsq(centred, logs[:, 0] - logs[:, 0].mean(), rcond=1e-10)[0]
    left = logs[:, 0] - controls @ slope
    return float(left.mean()), float(left.std() / np.sqrt(max(draws - 3, 1)))


def missing_draws(draws: int, errors: Iterable[Array], wanted: float) -> int:
    """Draws more that bring relative errors of sds (rms, the worst of several sets of them) down to the wanted one.

    At most as many in all as reach it without any control variate, 1/(2 error²) in whole blocks: 192 for 5 %.
    """
    worst = max(float(np.sqrt(np.mean(e**2))) for e in errors if len(e))
    most = int(max(np.floor(0.5 / wanted**2 / NARROWEST) * NARROWEST, LEAST_FINAL))
    needed = min(int(np.ceil(draws * (worst / wanted) ** 2)), most)
    return needed - draws if needed > NEARLY * draws else 0


def corrected(variance: Array, tau: Array) -> Array:
    """Variances with the negative ones among the precisions put in, each alone."""
    left = 1.0 + np.minimum(tau, 0.0) * variance
    if (left <= 0).any():
        raise NotPositiveDefinite
    return np.asarray(variance / left)


class Survey(NamedTuple):
    """Estimates from all final draws."""

    variance: Array
    """Of all entries."""
    error: Array
    """Relative Monte-Carlo error of their sds."""
    log_z: tuple[float, float]


class RowSums:
    """Sums over draws of the observed counts, and the terms of log det A."""

    def __init__(self, structure: MatrixFreeStructure, tau: Array) -> None:
        sensors = structure.sensors
        own = np.maximum(sensors.on_rows(tau), 0.0)
        self.squares = Squares(structure.row_variance(sensors.rows), own, known=structure.knows_variances)
        self.logs: list[Array] = []

    def add(self, sensors: Sensors, block: DrawBlock, moved: Array) -> None:
        """A block of draws, and its draws of the posterior."""
        rows = sensors.rows
        self.squares.add(rows @ block.free, rows @ moved, sensors.on_rows(block.noise))
        self.logs.append(block.logs)

    def absorb(self, other: RowSums) -> None:
        """The sums of other draws of the same counts."""
        self.squares.absorb(other.squares)
        self.logs += other.logs

    @property
    def log_terms(self) -> Array:
        """(draws, 3): see :class:`DrawBlock`."""
        return np.concatenate([np.zeros((0, 3)), *self.logs])


class FlowSums:
    r"""Sums over draws of the flows of one step, and the flows' variances estimated from them.

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
        above = prior.entries_of(int(prior.parents[v]))
        side = found.side[prior.origins_of(v)] - found.mean
        own = found.up[prior.entries_of(v)]
        if (
            prior.overdispersed
        ):  # the pull is phi M (side / phi + own), and phi is with the counts that scatter
            side = side / prior.phi[prior.origins_of(v)][:, None]
        self.draws += free.shape[1]
        if self.by_pulls is not False:
            self._add_pulls(_squared_sums(side, own))
        if self.by_pulls:
            return
        if not self.sums:
            self.sums = [np.zeros_like(prior.table(v).reshape(-1)) for _ in range(2)]
        flow_squares(prior, v, key, free[above], side, own, *self.sums)

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
        variance, unexplained = controlled(after / self.draws, before / self.draws, known, self.draws)
        return np.minimum(variance, known), np.sqrt(unexplained / (2.0 * self.draws))


def _squared_sums(above: Array, own: Array) -> Array:
    """Σ over columns of (above_i + own_j)² for all pairs of states, flat."""
    squares = (above**2).sum(axis=1)[:, None] + (own**2).sum(axis=1)
    return (squares + 2.0 * (above @ own.T)).reshape(-1)


class Tally:
    """Sums over final draws, to which more can be added."""

    def __init__(self, structure: MatrixFreeStructure, tau: Array) -> None:
        self.structure, self.tau, self.draws, self.blocks = structure, tau, 0, 0
        prior, sensors = structure.prior, structure.sensors
        alone = (host(sensors.seen.sum(axis=1)).ravel() == 1) & ~host(sensors.fixed)
        self.own = sensors.placed(
            sparse.csr_array(host(sensors.seen).T @ sparse.diags_array(alone.astype(float)))
        )
        own_tau = self.own @ np.maximum(tau, 0.0)
        self.squares = Squares(structure.prior_variance, own_tau, known=structure.knows_variances)
        self.of_rows = RowSums(structure, tau)
        self.flows = {v: FlowSums(structure, v) for v in range(1, len(prior.sizes))}

    def add(self, draws: int, client: Any = None) -> None:
        """So many draws more; on a cluster one task per block, of which only the sums travel back, added in the blocks' order."""
        if client is None:
            for block in self.structure.blocks(self.tau, draws, first=self.blocks):
                self._add(block)
            return
        width = self.structure.block
        ways = {v: flows.by_pulls for v, flows in self.flows.items()}
        with connected(client) as cluster:
            law = cluster.scatter([self.structure, self.tau, ways], broadcast=True, hash=False)
            parts = [
                cluster.submit(_sums_of_block, *law, number, min(width, draws - start), pure=False)
                for number, start in enumerate(range(0, draws, width), self.blocks)
            ]
            for part in parts:
                self._absorb(part.result())

    def copy(self) -> Tally:
        """The same sums, to which more can be added without changing these."""
        return deepcopy(self, {id(self.structure): self.structure})

    def _absorb(self, other: Tally) -> None:
        """The sums of a tally of other draws."""
        self.squares.absorb(other.squares)
        self.of_rows.absorb(other.of_rows)
        for v, flows in self.flows.items():
            theirs = other.flows[v]
            flows.sums = (
                [a + b for a, b in zip(flows.sums, theirs.sums, strict=True)] if flows.sums else theirs.sums
            )
            flows.draws += theirs.draws
        self.draws, self.blocks = self.draws + other.draws, self.blocks + other.blocks

    def _add(self, block: DrawBlock) -> None:
        structure, prior, seen = self.structure, self.structure.prior, self.structure.sensors.seen
        found = prior.passes(seen.T @ block.weights)
        moved = block.free - prior.values(found)
        self.squares.add(block.free, moved, self.own @ block.noise)
        self.of_rows.add(structure.sensors, block, moved)
        named = keys(prior, structure.sampling.seed, block.number)
        for v, flows in self.flows.items():
            flows.add(named[v], block.free, found)
        self.draws += block.free.shape[1]
        self.blocks += 1

    def missing(self) -> int:
        """How many draws more would bring sds, of cells and of each table of flows, to the error that is wanted (rms)."""
        looked = (
            np.unique(np.linspace(1, len(self.flows), LOOKED_AT).astype(int)).tolist() if self.flows else ()
        )
        errors = (self.squares.variances()[1], *(self.flows[v].variances()[1] for v in looked))
        return missing_draws(self.draws, errors, self.structure.sampling.error)

    def survey(self, nu: Array, seen_mean: Array) -> Survey:
        """Variances with their errors, and log Z."""
        structure = self.structure
        variance, error = self.squares.variances()
        log_z = structure.log_z(self.tau, nu, seen_mean, self.of_rows.squares, self.of_rows.log_terms)
        variance = corrected(variance, host(self.own @ np.minimum(self.tau, 0.0)))
        return Survey(structure.settled(variance, host(structure.prior_variance)), error, log_z)


def _sums_of_block(
    structure: MatrixFreeStructure, tau: Array, ways: dict[int, bool | None], number: int, size: int
) -> Tally:
    """One block of draws, on a worker, flows' variances found in the ``ways`` decided before; what travels back has no structure."""
    made = Tally(structure, tau)
    made.blocks = number
    for v, flows in made.flows.items():
        flows.by_pulls = ways[v]
    with threads_for(max(structure.tree.sizes)):
        made.add(size)
    made.blocks -= number
    nothing: Any = None
    made.structure = made.own = made.tau = nothing
    for flows in made.flows.values():
        flows.structure = nothing
    return made


def noise(key: np.uint64, moves: Any, size: Array, draws: int) -> Array:
    """Z times ``size`` for every draw and every position among a step's moves, (draws, *moves); all draws of a block."""
    xp = namespace(moves)
    if xp.__name__ == "cupy":
        places = moves[None] if moves.ndim else moves
        return _noise_kernel()(
            key,
            places,
            size[None],
            xp.arange(draws).reshape(-1, *[1] * moves.ndim),
            xp.asarray(kernels.NORMAL),
        )
    table, made = xp.asarray(kernels.NORMAL), []
    for first in range(0, draws, kernels.DRAWS_PER_WORD):
        words = kernels.words(key, np.uint64(4) * moves + np.uint64(first // kernels.DRAWS_PER_WORD))
        for c in range(min(kernels.DRAWS_PER_WORD, draws - first)):
            made.append(size * table[((words >> np.uint64(4 * c)) & np.uint64(15)).astype(np.int64)])
    return np.stack(made)


@cache
def _noise_kernel() -> Any:
    """The same in one pass over memory, compiled by CuPy: in single operations it takes about twenty."""
    import cupy

    return cupy.ElementwiseKernel(
        "uint64 key, uint64 move, float64 size, int64 draw, raw float64 normal",
        "float64 made",
        """
        unsigned long long z = key + (4ULL * move + draw / 16 + 1ULL) * 0x9E3779B97F4A7C15ULL;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
        z ^= z >> 31;
        made = size * normal[(z >> (4 * (draw % 16))) & 15ULL];
        """,
        "headcount_noise",
    )


def _chances(prior: PriorOperator, v: int) -> Array:
    """P of the step into v; the root is a step from one cell that holds everyone."""
    return prior.mu[prior.entries_of(0)][None, :] if v == 0 else prior.chances(v)


def _expected(prior: PriorOperator, v: int) -> Array:
    """Expected counts that the step into v starts from."""
    if v == 0:
        return prior.xp.full(1, float(prior.population))
    return prior.population * prior.mu[prior.entries_of(int(prior.parents[v]))]


def noisy_moves(
    prior: PriorOperator, v: int, key: np.uint64, draws: int
) -> Iterator[tuple[slice, Array, Array]]:
    """Parts of the step into v: origins (of a sparse step all moves), their chances, and the noise w of their moves."""
    chances, expected, xp = _chances(prior, v), _expected(prior, v), prior.xp
    if chances.ndim == 1:
        size = np.sqrt(expected[prior.origins(v)] * chances)
        yield slice(None), chances, noise(key, xp.arange(len(chances), dtype=np.uint64), size, draws)
        return
    rows, width = chances.shape
    step = max(NOISE_AT_ONCE // (width * draws), 1)
    for start in range(0, rows, step):
        part = slice(start, min(start + step, rows))
        p = chances[part]
        place = xp.arange(part.start * width, part.stop * width, dtype=np.uint64).reshape(p.shape)
        yield part, p, noise(key, place, np.sqrt(expected[part, None] * p), draws)


def totals(prior: PriorOperator, v: int, key: np.uint64, above: Array, below: Array | None = None) -> Array:
    """above_i − Σ_j w_ij for every origin and draw; Σ_i w_ij is added to ``below``, if given."""
    total = above.copy()
    for part, p, w in noisy_moves(prior, v, key, above.shape[1]):
        if p.ndim == 2:
            total[part] -= w.sum(axis=2).T
            arrived = w.sum(axis=1).T
        else:
            by_row, by_column = _sums(prior, v)
            total -= by_row @ w.T
            arrived = by_column @ w.T
        if below is not None:
            below += arrived
    return total


def _sums(prior: PriorOperator, v: int) -> tuple[Any, Any]:
    """Sparse matrices that sum moves by origin and by destination."""
    matrix, xp = prior.law.kernels[v], prior.xp
    ones, count = xp.ones(len(matrix.data)), xp.arange(len(matrix.data) + 1, dtype=np.int32)
    by_row = type(matrix)((ones, count[:-1], matrix.indptr), shape=(matrix.shape[0], len(ones)))
    by_column = type(matrix)((ones, matrix.indices, count), shape=(len(ones), matrix.shape[1]))
    return by_row, by_column.T


def step_draws(prior: PriorOperator, v: int, key: np.uint64, above: Array, below: Array) -> None:
    """One step of prior draws, added to ``below`` (L_v, draws): Pᵀ δ_u + Σ_i ε_i; at the root, numbers of groups vary by themselves."""
    if v == 0 and prior.law.numbers is not None:
        size = prior.xp.asarray(np.sqrt(prior.law.numbers.variance))
        below += noise(key, prior.xp.arange(len(size), dtype=np.uint64), size, below.shape[1]).T
        return
    if on_host(above):
        kernels.step_draws(tuple(prior.step(v)), key, above, below)
        return
    total = totals(prior, v, key, above, below)
    if v == 0:
        below += prior.mu[prior.entries_of(0)][:, None] * total
        return
    matrix = prior.law.kernels[v]
    below += prior.law.columns[v][:, None] * (matrix.T @ (prior.law.rows[v][:, None] * total))


def move_draws(prior: PriorOperator, v: int, key: np.uint64, above: Array, picked: Array, out: Array) -> None:
    """δ_ij of the prior draws at some moves, (picked, draws); ``picked`` are sorted positions among the step's moves."""
    if on_host(above):
        kernels.move_draws(tuple(prior.step(v)), key, above, picked, out)
        return
    total, draws = totals(prior, v, key, above), above.shape[1]
    matrix = prior.law.kernels[v]
    origin = prior.origins(v)[picked] if issparse(matrix) else picked // matrix.shape[1]
    p = prior.chances(v).reshape(-1)[picked]
    w = noise(key, picked.astype(np.uint64), np.sqrt(_expected(prior, v)[origin] * p), draws)
    out[:] = p[:, None] * total[origin] + w.T


def flow_squares(
    prior: PriorOperator,
    v: int,
    key: np.uint64,
    above: Array,
    pull_u: Array,
    pull_v: Array,
    before: Array,
    after: Array,
) -> None:
    """Add Σ_draws δ_ij² of every move: of the prior draws, and of these less M_ij (pull_u(i) + pull_v(j))."""
    if on_host(above):
        kernels.flow_squares(tuple(prior.step(v)), key, above, pull_u, pull_v, before, after)
        return
    total, table = totals(prior, v, key, above), prior.table(v)
    for part, p, w in noisy_moves(prior, v, key, above.shape[1]):
        if p.ndim == 2:
            free = p * total[part].T[:, :, None] + w
            pull = pull_u[part].T[:, :, None] + pull_v.T[:, None, :]
        else:
            origin, dest = prior.origins(v), prior.law.kernels[v].indices
            free = p * total[origin].T + w
            pull = pull_u[origin].T + pull_v[dest].T
        moved = free - table[part] * pull
        before.reshape(table.shape)[part] += (free * free).sum(axis=0)
        after.reshape(table.shape)[part] += (moved * moved).sum(axis=0)
