r"""The paper's answer in one go: the joint mode of the Gaussian model's posterior, by Newton on the whole graph.

Minimise :math:`\tfrac12\delta^\top\Sigma^{+}\delta - \sum\log\ell(y\mid N\mu+\delta)`. A Newton step is one Gaussian solve
with the sites' slopes and curvatures at the present point. Since :math:`\delta = \Sigma(\nu-\tau\delta)`, the quadratic form
is :math:`(\nu-\tau\delta)\cdot\delta` on the observed entries alone, so the line search (Armijo, and inside the likelihood's
domain) costs nothing. This is the fixed point of the paper's edge-by-edge EP–Laplace. Nothing keeps the mode ≥ 0 where y = 0:
it is here because it is the published method, not because it should be used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from headcount.engines._cost import GaussianUse
from headcount.engines._tilting import require_numbers
from headcount.engines.engine import IterativeEngine, number, whole
from headcount.engines.tilted._centre import Centre
from headcount.engines.tilted._gaussian import GaussianEngine, gaussian_beliefs
from headcount.posterior import Beliefs, GaussianBeliefs
from headcount.structure import NotPositiveDefinite

if TYPE_CHECKING:
    from headcount._types import Array, Mask
    from headcount.observe import ClosedProblem

INSIDE = 1e-9
"""How far inside a likelihood's domain Newton starts, relative to the largest expected count: far above rounding (1e-13)."""


HALVINGS = 50
"""Of a Newton step: 2⁻⁵⁰ of it is rounding."""
ROUNDING = 1e-6
"""A Newton step this short (in posterior standard deviations) may be rounding, where it does not lower the objective: the objective is
known to 1e-12 of itself, and falls with the square of the step."""


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
    """Length of the Newton step that led here, in posterior standard deviations."""
    failed: bool = False
    """Whether no length of the next Newton step lowers the objective."""
    bends_up: bool = False
    """Whether the last step took likelihoods that bend up as straight, because the objective bends down along some direction."""


@dataclass(frozen=True)
class Laplace(GaussianEngine, IterativeEngine):
    """Joint Laplace approximation at the prior centre (Liu, Sheldon & Dietterich 2014, Sec. 4, solved globally).

    Parameters
    ----------
    tolerance
        On the Newton step, in posterior standard deviations.
    structure, draws, final_draws, draw_seed, mc_error, device
        See :class:`GaussianEngine`.
    """

    rules: ClassVar = {"tolerance": number(), "max_iterations": whole(), **GaussianEngine.rules}
    name: ClassVar[str] = "Laplace"
    use: ClassVar[GaussianUse] = GaussianUse(sweeps=9, matrices=8)
    """Measured: 6 to 8.2 matrices at L = 36 … 324."""
    tolerance: float = 1e-9
    max_iterations: int = 200

    def init(self, problem: ClosedProblem, rng: np.random.Generator | None = None) -> NewtonState:
        """Start at the prior mean, or near it where a likelihood is not finite there."""
        del rng
        rough = sorted(
            {type(s.noise).__name__ for s in problem.sites if not (s.noise.smooth or s.noise.exact)}
        )
        if rough:
            message = f"Laplace needs twice-differentiable noise; {', '.join(rough)} noise has corners: use TiltedEP or MAP"
            raise ValueError(message)
        centre = self.prior_centre(problem)
        tau, nu = first_sites(centre)
        delta = centre.solve(tau, nu)[0] if tau.any() else tau
        return state_at(centre, delta, nu - tau * delta)

    def step(self, state: NewtonState) -> NewtonState:
        """One Newton step, shortened until the objective falls and the likelihood is finite."""
        centre = state.centre
        bends_up = False
        try:
            delta, variance, tau, nu = _newton_point(state)
        except NotPositiveDefinite:
            bends_up = True
            delta, variance, tau, nu = _newton_point(_bent_down(state))
        pull = nu - tau * delta
        with np.errstate(divide="ignore", invalid="ignore"):
            gap = np.where(
                variance > 0, np.abs(delta - state.delta) / np.sqrt(np.maximum(variance, 1e-300)), 0.0
            )
        size = float(gap.max(initial=0.0))
        length = 1.0
        for _ in range(HALVINGS):
            new = state_at(
                centre,
                state.delta + length * (delta - state.delta),
                state.pull + length * (pull - state.pull),
                residual=size,
            )
            if np.isfinite(new.objective) and (
                new.objective <= state.objective + 1e-12 * (1 + abs(state.objective))
                or centre.roles.exact.any()
            ):
                return replace(new, bends_up=bends_up)
            length *= 0.5
        return replace(state, residual=size, failed=True)

    def done(self, state: NewtonState) -> bool:
        """At the tolerance; or near it, where no decrease can be measured any more: rounding is the floor. A saddle is no mode."""
        if state.bends_up:
            return False
        return state.residual <= self.tolerance or (state.failed and state.residual < ROUNDING)

    def stuck(self, state: NewtonState) -> bool:
        """Where no length of the Newton step lowers the objective, and at a saddle."""
        return state.failed or (state.bends_up and state.residual <= self.tolerance)

    def residual(self, state: NewtonState) -> float:
        """Length of the last Newton step."""
        return state.residual

    def report(self, state: NewtonState) -> dict[str, float]:
        """Minus the log joint density, up to a constant."""
        return {"objective": state.objective}

    def finish(self, state: NewtonState) -> Beliefs:
        """The Gaussian with the curvature at the mode."""
        try:
            return gaussian(state)
        except NotPositiveDefinite:  # no mode: the status says so
            return gaussian(_bent_down(state))


def _newton_point(state: NewtonState) -> tuple[Array, Array, Array, Array]:
    """Where the Newton step leads, the variances there, and the sites."""
    tau, nu = state.tau + state.centre.fixed_tau, state.nu + state.centre.fixed_nu
    return (*state.centre.solve(tau, nu)[:2], tau, nu)


def _bent_down(state: NewtonState) -> NewtonState:
    """The same slopes with curvatures of 0 where a likelihood bends up, as negative binomial ones do far below their count."""
    tau = np.maximum(state.tau, 0.0)
    return replace(state, tau=tau, nu=state.nu + (tau - state.tau) * state.delta)


def gaussian(state: NewtonState) -> GaussianBeliefs:
    sites = float((-0.5 * state.tau * state.delta**2 + state.nu * state.delta).sum())
    return gaussian_beliefs(state.centre, state.tau, state.nu, state.value - sites)


def first_sites(centre: Centre) -> tuple[Array, Array]:
    """Gaussian sites under which the mean lies inside every likelihood's domain: none, where the prior mean does.

    A binomial count above the prior's expectation is not finite there. Such entries get a site just inside their domain, made
    tighter until the mean follows.
    """
    tau, nu = np.zeros_like(centre.g), np.zeros_like(centre.g)
    tilts = centre.roles.tilts
    room = 0.5
    for trial in range(60):
        mean = centre.solve(tau, nu)[0] if tau.any() else tau
        out = _outside(centre, mean, tau > 0)
        if not out.any():
            return tau, nu
        tau[out] = np.maximum(4.0 * tau[out], 1.0 / np.maximum(centre.expected[out], 1.0))
        for index, noise in centre.roles.active_noise:
            inside = noise.domain_low + room - centre.expected[index]
            nu[index] = tau[index] * np.where(tau[index] > 0, inside, 0.0)
        room *= 0.5 if trial > 20 else 1.0
    names = [name for site in tilts.problem.sites for name in site.names]
    message = (
        "no counts were found at which every likelihood is finite and bends; entries in the way: "
        f"{', '.join(names[k] for k in np.flatnonzero(out)[:5])}. A mode at the edge of a likelihood's domain has no "
        "curvature: use TiltedEP or MAP"
    )
    raise ValueError(message)


def _outside(centre: Centre, delta: Array, has_site: Mask) -> Mask:
    """At which entries the likelihood is not finite at the deviations ``delta``."""
    n = centre.expected + delta
    out = np.zeros(len(n), bool)
    for index, noise in centre.roles.active_noise:
        with np.errstate(divide="ignore", invalid="ignore"):
            out[index] = ~np.isfinite(noise.log_prob(n[index]))
        # On the very edge of a domain rounding decides what is finite; a site must bring the mean inside.
        out[index] |= has_site[index] & (n[index] - noise.domain_low <= INSIDE * centre.expected.max())
    return out


def state_at(centre: Centre, delta: Array, pull: Array, *, residual: float = np.inf) -> NewtonState:
    """Evaluate the objective, and the likelihood's slope and curvature, at a point."""
    tau, nu = np.zeros_like(delta), np.zeros_like(delta)
    value = 0.0
    quadratic = centre.fixed_tau * delta**2 - 2 * centre.fixed_nu * delta
    objective = 0.5 * float(pull @ delta) + 0.5 * float(quadratic.sum())
    for index, noise in centre.roles.active_noise:
        n = centre.expected[index] + delta[index]
        with np.errstate(divide="ignore", invalid="ignore"):
            here = noise.log_prob(n)
            value += float(here.sum()) if np.isfinite(here).all() else -np.inf
            bend = noise.curvature(n)
            tau[index] = -bend
            nu[index] = noise.slope(n) - bend * delta[index]
        if np.isfinite(value):
            require_numbers(noise, n, nu[index], tau[index])
    return NewtonState(centre, delta, pull, objective - value, tau, nu, value, residual)
