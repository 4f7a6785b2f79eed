r"""Step control of TiltedEP: how much of a sweep is taken, and when several past sweeps are combined into one step.

EP is a fixed-point iteration :math:`x \leftarrow x + \beta\,r(x)` on sites and tilts x, with :math:`r(x) = F(x) - x` the change one
undamped sweep asks for. Three rules choose the next x:

* **Damping.** β is the step size. It shrinks when the residual grows, grows back when it falls, and a sweep that makes the residual
  explode, or that cannot be solved, is taken back and tried at half the length. A step size that leads round in circles lowers the
  *ceiling* up to which it may grow back.
* **Anderson mixing** near the answer. With the differences :math:`\Delta x_j, \Delta r_j` of the last iterates,

  .. math:: x + \beta r - \sum_j \gamma_j\,(\Delta x_j + \beta\,\Delta r_j), \qquad
            \gamma\ \mathrm{minimising}\ \Bigl\|r - \sum_j \gamma_j\,\Delta r_j\Bigr\|^2,

  is the step to the root of the residual as these differences extrapolate it (Walker & Ni 2011, Eq. 2.2).
* **Trust radius.** A mixed step may differ from the plain one by at most ``radius`` plain steps; the radius follows from how the last
  mixed steps did.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import numpy as np

from headcount.structure import NotPositiveDefinite

if TYPE_CHECKING:
    from collections.abc import Callable

    from headcount._types import Array

TINY = 1e-300
"""Keeps divisions by a norm that may be zero defined."""


@dataclass(frozen=True)
class StepSettings:
    """Every constant of the step control, with where its value comes from.

    Residuals are in standard deviations of an observed count. A value was set by hand while the hard cases were made to converge, and has
    no derivation, unless its comment says more. "Measured" is over 423 hard cases: birds with weights (5, 10, 10, 10) on 81 cells, 8 data
    sets; the same with twenty zeros; all awkward graphs under all noises at N = 4, three data sets each; 30 random chains with data far
    from the model. They take 370, 3 359 and 159 sweeps (birds, graphs, chains). Where fewer are named, it was over 97 of them, birds on 25
    cells: 196, 677 and 51 sweeps.
    """

    # Plain sweeps
    worse: float = 1.1
    """Growth of the residual by this factor counts as a step that went badly (measured, of 97: with 1.0, 211 and 680 sweeps)."""
    shrink: float = 0.7
    """Factor on the step size after such a step."""
    grow: float = 1.6
    """Factor on the step size after any other step, up to the ceiling."""
    lower_ceiling: float = 0.9
    """Factor on the ceiling after a step that went badly: what overshot once would overshoot again (measured, of 97: without, 523 and 779
    sweeps, and one data set does not converge)."""
    smallest: float = 0.02
    """Smallest step size. Shorter sweeps were never seen to help; a residual that still grows then shows in the status."""
    take_back: float = 3.0
    """A sweep that makes the residual grow by this factor is taken back and halved (measured, of 97: without, one sweep more)."""
    attempts: int = 16
    """Sweeps of halved length before giving up: the last has 2⁻¹⁵ of the length."""
    longest_pull: float = 1.0
    """Largest change of a tilt per sweep, in nats. The law follows tilts exponentially and the Gaussian linearly; the two part at
    about one nat, where e − 1 is no longer near 1."""

    # Sweeps that go round in circles
    circling_above: float = 0.3
    """Sweeps circle only above this residual; nearer to the answer they may be slow, and shorter sweeps would be slower."""
    circling_gain: float = 0.9
    """A residual below this share of the best so far is progress."""
    circling_sweeps: int = 6
    """Sweeps without progress that count as circling."""
    circling_shrink: float = 0.6
    """Factor on the ceiling then."""

    # Anderson mixing
    mixing_starts_below: float = 0.3
    """Residual below which the last sweeps extrapolate: further out the iteration is not close to linear."""
    history: int = 5
    """Differences kept. The tail of the iteration has one or two slow directions (measured: 250 sweeps at the hard weights became 60)."""
    rounding: float = 1e-10
    """Directions of the differences shorter than this share of the longest are rounding (1e-16 of sums of about 1e6 terms)."""
    mixed_change: float = 2.0
    """A mixed step is kept if sites end at most this many times further from their targets than before (measured, of 97: if all are kept,
    176 and 697 sweeps)."""
    mixed_slack: float = 0.3
    """… and the residual, which includes the centre's distance from the mean, exceeds the sites' old distance by at most this. None of the
    423 cases needs it; readings with an sd of .1 do: without it their evidence is .57 nats below the exact one instead of .44."""

    # Trust radius, in plain steps
    largest_radius: float = 30.0
    """A contraction by 0.97 per sweep is solved in one mixed step of this length (its root is 1/(1 − 0.97) plain steps away). Measured, of
    97: without a largest one, 207 and 623 sweeps."""
    radius_shrink: float = 0.5
    """After a mixed step that was taken back, or that left the residual larger (measured, of 97: with a radius that never changes, 520 and
    766 sweeps, and one data set does not converge)."""
    radius_grow: float = 1.5
    """After a mixed step that left it smaller."""
    radius_recover: float = 1.3
    """After a plain step that left it smaller (measured: with 1.5, 382 sweeps of birds)."""


SETTINGS = StepSettings()


class Iterate(NamedTuple):
    """x and the change r(x) that one undamped sweep asks for."""

    x: Array
    r: Array


@dataclass(frozen=True)
class StepControl:
    """What the step control remembers between sweeps."""

    step_size: float
    ceiling: float
    """What the step size may grow back to."""
    best: float = math.inf
    """Smallest residual so far."""
    idle: int = 0
    """Sweeps since the last progress."""
    history: tuple[Iterate, ...] = ()
    radius: float = SETTINGS.largest_radius

    def seen(self, here: Iterate, residual: float) -> StepControl:
        """With one more iterate in the history; far from the answer there is none."""
        near = residual <= SETTINGS.mixing_starts_below
        return replace(self, history=(*self.history[-SETTINGS.history :], here) if near else ())

    @property
    def mixes(self) -> bool:
        """Whether a mixed step is worth trying: within a radius of 1 it is a plain one."""
        return len(self.history) > 1 and self.radius > 1.0

    def halved(self) -> StepControl:
        """After a plain sweep that was taken back."""
        return replace(self, step_size=0.5 * self.step_size)

    def after_plain(self, residual: float, *, before: float) -> StepControl:
        """After a plain sweep that was kept."""
        s = SETTINGS
        step_size, ceiling = min(s.grow * self.step_size, self.ceiling), self.ceiling
        if residual > s.worse * before:
            step_size = max(s.shrink * self.step_size, s.smallest)
            ceiling = max(step_size, s.lower_ceiling * self.ceiling)
        radius = min(s.radius_recover * self.radius, s.largest_radius) if residual <= before else self.radius
        best, idle = self.best, self.idle + 1
        if residual < max(s.circling_gain * self.best, s.circling_above):
            best, idle = residual, 0
        elif idle >= s.circling_sweeps:
            ceiling, idle = max(s.circling_shrink * ceiling, s.smallest), 0
            step_size = min(step_size, ceiling)
        return replace(self, step_size=step_size, ceiling=ceiling, best=best, idle=idle, radius=radius)

    def after_mixed(self, *, better: bool) -> StepControl:
        """After a mixed step that was kept."""
        factor = SETTINGS.radius_grow if better else SETTINGS.radius_shrink
        return replace(self, radius=min(factor * self.radius, SETTINGS.largest_radius))

    def after_refused(self) -> StepControl:
        """After a mixed step that was taken back: the oldest iterate goes, and the radius shrinks."""
        return replace(self, history=self.history[1:], radius=max(SETTINGS.radius_shrink * self.radius, 1.0))


class Measured(Protocol):
    """A state whose distance from the fixed point is known."""

    @property
    def change(self) -> float:
        """How far sites are from their targets."""

    @property
    def residual(self) -> float:
        """The larger of that and of how far the mean is from the centre."""


State = TypeVar("State", bound=Measured)


def next_state(
    control: StepControl,
    state: State,
    here: Iterate,
    tilts: slice,
    scaled: Callable[[Array], Array],
    evaluate: Callable[[Array], State],
) -> tuple[State | None, StepControl]:
    """One kept step: mixed where that is worth trying and succeeds, else a damped sweep, halved until it can be kept.

    Parameters
    ----------
    control
        What past sweeps taught.
    state, here
        Where the iteration stands.
    tilts
        The part of x that holds tilts: they move the centre, are not damped, and change by at most ``longest_pull``.
    scaled
        Makes the entries of x comparable (standard deviations of counts, shares of variances).
    evaluate
        The state at x. It raises NotPositiveDefinite or FloatingPointError where there is none.

    Returns
    -------
    tuple
        The new state, None if not even a sweep of no length can be solved; and the control after it.
    """
    s = SETTINGS
    control = control.seen(here, state.residual)
    step_sizes = np.full(len(here.x), control.step_size)
    step_sizes[tilts] = 1.0
    if control.mixes:
        change = mixed(control.history, step_sizes, scaled, control.radius) - here.x
        change *= min(1.0, s.longest_pull / max(float(np.abs(change[tilts]).max()), TINY))
        new = _tried(evaluate, here.x + change)
        if new is not None:
            off = max(new.change / s.mixed_change, new.residual - s.mixed_slack)
            if not off > state.change:
                return new, control.after_mixed(better=new.residual <= state.residual)
        control = control.after_refused()
    pull = 1.0
    for _ in range(s.attempts):
        step_sizes[:] = control.step_size
        step_sizes[tilts] = pull
        new = _tried(evaluate, here.x + step_sizes * here.r)
        pull *= 1.0 if new is not None else 0.5  # beyond the pole of a size's law there is no centre
        wild = new is not None and new.residual > s.take_back * state.residual
        if new is None or (wild and control.step_size > s.smallest):
            control = control.halved()  # entries of one node swing against each other; this settles them
            continue
        return new, control.after_plain(new.residual, before=state.residual)
    return None, control


def _tried(evaluate: Callable[[Array], State], x: Array) -> State | None:
    try:
        return evaluate(x)
    except (NotPositiveDefinite, FloatingPointError):
        return None


def mixed(
    history: tuple[Iterate, ...], step_sizes: Array, scaled: Callable[[Array], Array], radius: float
) -> Array:
    """The Anderson iterate after the last of ``history``, with one step size β per entry, within the trust radius."""
    x, r = history[-1]
    dx = np.stack([b.x - a.x for a, b in pairwise(history)])
    dr = np.stack([b.r - a.r for a, b in pairwise(history)])
    rcond = SETTINGS.rounding
    gamma = np.linalg.lstsq(np.stack([scaled(d) for d in dr], axis=1), scaled(r), rcond=rcond)[0]
    plain, more = step_sizes * r, -gamma @ (dx + step_sizes * dr)
    longest = radius * float(np.linalg.norm(scaled(plain)))
    more *= min(1.0, longest / max(float(np.linalg.norm(scaled(more))), TINY))
    return np.asarray(x + plain + more)
