r"""The paper's answer in one go: the joint mode of the Gaussian model's posterior, by Newton on the whole graph.

Minimise :math:`\tfrac12\delta^\top\Sigma^{+}\delta - \sum\log\ell(y\mid N\mu+\delta)`. A Newton step is one Gaussian solve with the sites'
slopes and curvatures at the present point. Since :math:`\delta = \Sigma(\nu-\tau\delta)`, the quadratic form is
:math:`(\nu-\tau\delta)\cdot\delta` on the observed entries alone, so the line search (Armijo, and inside the likelihood's domain) costs nothing.
This is the fixed point of the paper's edge-by-edge EP–Laplace. Nothing keeps the mode ≥ 0 where y = 0: it is here because it is
the published method, not because it should be used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from headcount.engines._beliefs import Beliefs, GaussianBeliefs
from headcount.engines._centre import Centre, Roles
from headcount.engines._engine import IterativeEngine
from headcount.engines._tilting import Tilts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headcount.observe import Problem

    Array = NDArray[np.float64]


@dataclass(frozen=True)
class NewtonState:
    """The present point at the observed entries, and the sites that describe the likelihood there."""

    centre: Centre
    delta: Array
    pull: Array
    """Σ⁺δ on the observed entries: δ is Σ times it."""
    objective: float
    tau: Array
    nu: Array
    value: float
    """Σ log ℓ at the point, active entries."""
    residual: float = np.inf


@dataclass(frozen=True)
class Laplace(IterativeEngine):
    """Joint Laplace approximation at the prior centre (Liu, Sheldon & Dietterich 2014, Sec. 4, solved globally).

    Parameters
    ----------
    tolerance
        On the Newton step, in posterior standard deviations.
    """

    name: ClassVar[str] = "Laplace"
    tolerance: float = 1e-9
    max_iterations: int = 200

    def init(self, problem: Problem, rng: np.random.Generator | None = None) -> NewtonState:
        """Start at the prior mean."""
        del rng
        tilts = Tilts(problem)
        centre = Centre.at(Roles.of(tilts), np.zeros(int(tilts.offsets[-1])))
        zero = np.zeros_like(centre.g)
        return _state(centre, zero, zero)

    def step(self, state: NewtonState) -> NewtonState:
        """One Newton step, shortened until the objective falls and the likelihood is finite."""
        centre = state.centre
        split = centre.roles.tilts.split
        tau, nu = state.tau + centre.settled_tau, state.nu + centre.settled_nu
        solved = centre.structure.solve(split(tau), split(nu))
        delta = np.concatenate(solved.mean) if solved.mean else np.zeros(0)
        variance = np.concatenate(solved.variance) if solved.variance else np.zeros(0)
        pull = nu - tau * delta
        with np.errstate(divide="ignore", invalid="ignore"):
            gap = np.where(
                variance > 0, np.abs(delta - state.delta) / np.sqrt(np.maximum(variance, 1e-300)), 0.0
            )
        size = float(gap.max(initial=0.0))
        length = 1.0
        for _ in range(50):
            new = _state(
                centre,
                state.delta + length * (delta - state.delta),
                state.pull + length * (pull - state.pull),
                residual=size if length == 1.0 else max(size, 1.0),
            )
            if np.isfinite(new.objective) and (
                new.objective <= state.objective + 1e-12 * (1 + abs(state.objective))
                or centre.roles.exact.any()
            ):
                return new
            length *= 0.5
        return NewtonState(
            **{**vars(state), "residual": min(size, self.tolerance) if size < 1e-6 else np.nan}
        )

    def residual(self, state: NewtonState) -> float:
        """Length of the last Newton step."""
        return state.residual

    def report(self, state: NewtonState) -> dict[str, float]:
        """Minus the log joint density, up to a constant."""
        return {"objective": state.objective}

    def finish(self, state: NewtonState) -> Beliefs:
        """The Gaussian with the curvature at the mode."""
        centre = state.centre
        split = centre.roles.tilts.split
        tau, nu = split(state.tau + centre.settled_tau), split(state.nu + centre.settled_nu)
        log_z = centre.structure.solve(tau, nu).log_z
        active = centre.roles.active
        sites = float((-0.5 * state.tau * state.delta**2 + state.nu * state.delta)[active].sum())
        return GaussianBeliefs(
            centre.model(),
            centre.roles.tilts.problem.population,
            centre.structure.field(tau, nu),
            settled=False,
            log_evidence=centre.gain + centre.constant + log_z + state.value - sites,
        )


def _state(centre: Centre, delta: Array, pull: Array, *, residual: float = np.inf) -> NewtonState:
    """Evaluate the objective, and the likelihood's slope and curvature, at a point."""
    tau, nu = np.zeros_like(delta), np.zeros_like(delta)
    value = 0.0
    quadratic = centre.settled_tau * delta**2 - 2 * centre.settled_nu * delta
    objective = 0.5 * float(pull @ delta) + 0.5 * float(quadratic.sum())
    for index, noise in centre.roles.active_noise:
        n = centre.expected[index] + delta[index]
        with np.errstate(divide="ignore", invalid="ignore"):
            here = noise.log_prob(n)
            inside = (n > noise.domain_low) & np.isfinite(here)
            value += float(here.sum()) if inside.all() else -np.inf
            bend = noise.curvature(n)
            tau[index] = -bend
            nu[index] = noise.slope(n) - bend * delta[index]
    return NewtonState(centre, delta, pull, objective - value, tau, nu, value, residual)
