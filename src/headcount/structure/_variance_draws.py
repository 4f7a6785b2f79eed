r"""Draws of the prior and of the posterior, and what they say of variances and of log det A.

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

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headcount._device import host, on_host
from headcount.structure import _draws_in_arrays
from headcount.structure._conjugate_gradients import Stop, System, conjugate, dots

if TYPE_CHECKING:
    from headcount._types import Array, Mask
    from headcount.structure._prior_operator import PriorOperator

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
earlier steps may be much larger than that of the last one, and far beyond it nothing but the own sites tells the count."""
BLOCK_NUMBERS = 2**24
"""Numbers in one array of a block of draws: 128 MB, of which about ten are held at once."""
WIDEST, NARROWEST = 32, 8
"""Draws per block: with more columns a sparse product gets no cheaper per column (.14 ns per move and column at 32, .23 at 16, .31 at 8),
with fewer it wastes memory traffic. A block may have 64: four words of a hash per move."""


def block_width(entries: int) -> int:
    """Draws per block, where all nodes together have so many entries."""
    widest = max(BLOCK_NUMBERS // max(entries, 1), 1)
    return int(min(WIDEST, max(NARROWEST, 2 ** (widest.bit_length() - 1))))


class Block(NamedTuple):
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
    on_device = not on_host(prior.mu)
    draws: Any = _draws_in_arrays
    if not on_device:
        from headcount.structure import _matrix_free_kernels as draws
    drawn = prior.xp.zeros((prior.size, size))
    for v, key in enumerate(keys(prior, seed, number)):
        step = (prior, v) if on_device else prior.step(v)
        above = prior.xp.zeros((1, size)) if v == 0 else drawn[prior.slice(int(prior.parents[v]))]
        draws.step_draws(*step, key, above, drawn[prior.slice(v)])
        moves = slice(int(prior.seen.ends[v]), int(prior.seen.ends[v + 1]))
        if moves.stop > moves.start:
            order = np.argsort(prior.seen.place[moves])
            found = prior.xp.empty((len(order), size))
            draws.move_draws(*step, key, above, prior.seen.place[moves][order], found)
            drawn[prior.entries + moves.start + order] = found
    return drawn


def posterior_block(
    system: System, seed: int, number: int, size: int, stop: Stop, start: Array | None = None
) -> Block:
    """One block of posterior draws, from the solution ``start`` that the last sweep left, if there is one; sharp beside exact counts."""
    prior, root = system.prior, np.sqrt(np.where(system.fixed, 0.0, system.tau))[:, None]
    free = prior_draws(prior, seed, number, size)
    rng = np.random.default_rng(np.random.SeedSequence([seed, number, 1]))
    noise = prior.xp.asarray(rng.standard_normal((len(system.tau), size)))
    over = np.sqrt(np.where(system.fixed, 0.0, 1.0 / system.d))[:, None]  # D / √τ
    right = system.scale[:, None] * (system.rows @ free) + over * noise
    solved = conjugate(system, right, SHARPER if system.fixed.any() else stop, start)
    logs = np.full((size, 3), np.nan)
    if start is None:
        logs = np.stack([solved.log_forms(), solved.size, dots(right, solved.x)], axis=1)
    return Block(number, free, root * noise, system.scale[:, None] * solved.x, solved.x, logs)


class Squares:
    r"""Mean squares of draws of some counts, and what they say of the counts' posterior variances V.

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
        if on_host(free):
            from headcount.structure._matrix_free_kernels import add_squares

            add_squares(free, moved, noise, self.prior, self.tau, self.sums)
            return
        k, t = self.prior[:, None], self.tau[:, None]
        for row, part in enumerate((moved, free - k * noise, t * moved + noise, t * free + noise)):
            self.sums[row] += (part * part).sum(axis=1)

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
        variance, rest, loose, also_loose = drawn, left, np.sign(drawn), np.sign(left)
        if self.known:
            variance, loose = controlled(drawn, local / scale**2, prior / scale, self.draws)
            rest, also_loose = controlled(left, local_left / scale**2, tau / scale, self.draws)
        alone = tau <= 0
        rest = np.where(alone, 1.0, rest / np.where(alone, 1.0, tau))  # 1 − τV
        live = rest > 0
        most = prior if self.known else WIDEST_CAVITY * prior
        cavity = np.minimum(np.where(live, variance / np.where(live, rest, 1.0), most), most)
        share = 1.0 / (1.0 + tau * cavity)
        off = np.where(alone, loose, share**2 * (loose + also_loose))
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
