r"""NLBP, non-linear belief propagation (Sun, Sheldon & Kumar 2015): the published way to the most probable counts.

Iterate: potentials :math:`\exp(\theta + g)`, :math:`g = \partial\log\ell(y\mid n)/\partial n` at the present counts; one belief
propagation; a damped step

.. math:: n \leftarrow n + \alpha\,[N\mu(\theta+g) - n].

A fixed point satisfies :math:`n = N\mu(\theta + \partial\log\ell(y\mid n)/\partial n)`, which is what makes n the maximum that
:class:`MAP` finds. Around it the undamped map multiplies errors by :math:`-\operatorname{cov}\cdot|\partial^2\log\ell|`, about
the number of times that see the same individuals: without heavy damping it oscillates. ``MAP`` solves the same problem faster;
this is the competitor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from headcount.engines._tilting import Tilts
from headcount.engines.engine import IterativeEngine, flag, number, whole
from headcount.posterior._beliefs import Beliefs, PointBeliefs
from reproduction.rivals.edge_ep import rough_noises

if TYPE_CHECKING:
    from headcount._types import Array
    from headcount.observe import ClosedProblem


@dataclass(frozen=True)
class NLBPState:
    """The counts at the observed entries, and what one belief propagation makes of them."""

    tilts: Tilts
    n: Array
    g: Array
    gain: float
    """A(θ+g) − A(θ)."""
    expected: Array
    """N μ(θ+g)."""
    miss: float
    """Σ|Nμ − n| / N, averaged over the observed tables."""
    damping: float


@dataclass(frozen=True)
class NLBP(IterativeEngine):
    """Non-linear belief propagation, damped. A point estimate: no spread.

    Parameters
    ----------
    damping
        α: the fraction of every change that is taken, between 0 and 1.
    adaptive
        Halve the fraction when the distance grows, and let it recover slowly. Not part of the published method.
    tolerance
        On the distance between the counts and what belief propagation makes of them, ``Σ|Nμ − n| / N`` averaged over the
        observed tables: the measure of :class:`MAP`.
    """

    rules: ClassVar = {
        "damping": number(most=1.0),
        "adaptive": flag(),
        "tolerance": number(),
        "max_iterations": whole(),
    }
    name: ClassVar[str] = "NLBP"
    damping: float = 0.1
    adaptive: bool = False
    tolerance: float = 1e-8
    max_iterations: int = 5000

    def init(self, problem: ClosedProblem, rng: np.random.Generator | None = None) -> NLBPState:
        """Start at the prior's expected counts, or just inside the domain of a likelihood that is not finite there."""
        del rng
        if rough := rough_noises(problem):
            raise ValueError(
                f"NLBP needs the slope of every likelihood; {rough} noise has none everywhere: use MAP"
            )
        tilts = Tilts(problem)
        n = tilts.evaluate(np.zeros(int(tilts.offsets[-1])))[1]
        low = np.concatenate([s.noise.domain_low for s in problem.sites] or [np.zeros(0)])
        n = np.where(n > low, n, low + 0.5)
        return _propagate(tilts, n, self.damping)

    def step(self, state: NLBPState) -> NLBPState:
        """Move towards the last marginals, and propagate again."""
        n = state.n + state.damping * (state.expected - state.n)
        new = _propagate(state.tilts, n, state.damping)
        if not self.adaptive:
            return new
        grown = new.miss > state.miss
        return replace(new, damping=0.5 * state.damping if grown else min(1.02 * state.damping, self.damping))

    def residual(self, state: NLBPState) -> float:
        """The distance."""
        return state.miss

    def report(self, state: NLBPState) -> dict[str, float]:
        """The damping."""
        return {"damping": state.damping}

    def finish(self, state: NLBPState) -> Beliefs:
        """Expected counts of the tilted law."""
        model, _ = state.tilts.model(state.g)
        return PointBeliefs(model, state.tilts.problem.population, log_evidence=_optimal_value(state))


def _propagate(tilts: Tilts, n: Array, damping: float) -> NLBPState:
    """One belief propagation with the likelihood's slopes at n as potentials."""
    problem = tilts.problem
    g = np.zeros_like(n)
    for index, noise in problem.noises:
        g[index] = noise.slope(n[index])
    if not np.isfinite(g).all():
        return NLBPState(tilts, n, np.zeros_like(g), 0.0, n, np.nan, damping)
    gain, expected = tilts.evaluate(g)
    miss = float(np.abs(expected - n).sum()) / problem.population / max(len(problem.sites), 1)
    return NLBPState(tilts, n, g, gain, expected, miss, damping)


def _optimal_value(state: NLBPState) -> float:
    """N [A(θ+g) − A(θ)] + Σ [log ℓ(y | n) − g n]: MAP's optimal value, at the fixed point."""
    value = sum(float(noise.log_prob(state.n[index]).sum()) for index, noise in state.tilts.problem.noises)
    return state.gain + value - float(state.g @ state.n)
