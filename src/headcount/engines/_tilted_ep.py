r"""The default: expectation propagation around a tilted centre, with moments summed over whole numbers.

For any g, :math:`p(n\mid y) \propto \mathrm{CGM}(N,\theta+g)(n)\prod\ell(y\mid n)e^{-gn}` exactly, so the Gaussian may be made at
:math:`\theta+g` for any g. Three parts are free choices:

* **structure**: whatever shape the model has;
* **centre**: ``"prior"`` (g = 0, the paper's), ``"map"`` (:math:`N\mu(\theta+g)` is the MAP estimate), or ``"mean"``: g moves with the
  iteration, :math:`g \leftarrow g + \nu - \tau\delta`, until the Gaussian's mean *is* :math:`N\mu(\theta+g)`. Means are
  then marginals of a law: ≥ 0,
  summing to N, and flows agree with nodes to rounding;
* **projection**: ``"lattice"``, ``"line"``, or ``"laplace"`` (value, slope and curvature at the mean).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from headcount.engines._beliefs import Beliefs, GaussianBeliefs
from headcount.engines._centre import Centre, Roles
from headcount.engines._engine import IterativeEngine
from headcount.engines._map import MAP
from headcount.engines._projection import Grid, make_grid, tilted_moments
from headcount.engines._tilting import Tilts
from headcount.engines._whole_law import Context
from headcount.structure import Moments, NotPositiveDefinite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from headcount.observe import Problem

    Array = NDArray[np.float64]

LEAST_SD = 0.03
"""Changes of a count are measured in its standard deviations, or in this many individuals where that is more."""
CERTAIN = 1e-7
"""Variance below which a count is known; a site need not say more."""
WILD = 3.0
"""A sweep that makes the residual grow by this factor is taken back."""
LEAST_DAMPING = 0.02
"""Sweeps are not shortened below this; what still grows then is let go and shows in the status."""
LONGEST_PULL = 1.0
"""Largest change of a tilt in one sweep, in nats."""


@dataclass(frozen=True)
class Sites:
    """Gaussian sites on the active entries (zero elsewhere), in deviations from the centre."""

    tau: Array
    nu: Array


@dataclass(frozen=True)
class EPState:
    """What the next step needs, and what the last one found."""

    centre: Centre
    sites: Sites
    mean: Array
    """Deviation at every observed entry."""
    variance: Array
    log_z: float
    target: Sites
    """Undamped sites that would match the last moments."""
    log_sites: float
    """Σ (log of the tilted normaliser − log of the site's Gaussian integral)."""
    residual: float
    damping: float
    ceiling: float
    """What the damping may grow back to."""
    grids: tuple[Grid | None, ...] = field(default=())


@dataclass(frozen=True)
class TiltedEP(IterativeEngine):
    """Expectation propagation around a tilted centre.

    Parameters
    ----------
    centre, projection
        See the module's docstring.
    damping
        Largest fraction of a site's change taken in one sweep; halved when a sweep goes wrong.
    tolerance
        On the largest change of a site's mean (in its standard deviations) and log variance.
    """

    name: ClassVar[str] = "TiltedEP"
    centre: Literal["mean", "map", "prior"] = "mean"
    projection: Literal["lattice", "line", "laplace"] = "lattice"
    damping: float = 0.9
    tolerance: float = 1e-5
    max_iterations: int = 500

    def init(
        self, problem: Problem, rng: np.random.Generator | None = None, *, g: Array | None = None
    ) -> EPState:
        """Find the first centre: the MAP tilts (or zero), and no sites."""
        del rng
        tilts = Tilts(problem)
        roles = Roles.of(tilts)
        size = int(tilts.offsets[-1])
        loose = self.centre == "mean" and not roles.exact.any()
        g = np.zeros(size) if self.centre == "prior" else _map_tilts(problem, loose=loose, g=g)
        centre = Centre.at(roles, g)
        return self._begin(centre, self._first_sites(centre))

    def resume(self, problem: Problem, rng: np.random.Generator, start: Mapping[str, Any]) -> EPState:
        """Start from the tilts and sites of a similar problem: near it, that takes half the sweeps."""
        tilts = Tilts(problem)
        roles = Roles.of(tilts)
        if self.centre != "mean" or roles.exact.any() or "eta" not in start:
            return self.init(problem, rng, g=start.get("g"))
        centre = Centre.at(roles, start["g"])
        tau = np.where(roles.active, start["tau"], 0.0)
        nu = np.where(roles.active, start["eta"] - tau * centre.expected - centre.g, 0.0)
        try:
            return self._begin(centre, Sites(tau, nu))
        except (NotPositiveDefinite, FloatingPointError):  # not so similar after all
            return self.init(problem, rng)

    def _begin(self, centre: Centre, sites: Sites) -> EPState:
        """The state at given sites."""
        zero = np.zeros_like(centre.g)
        nothing = Sites(zero, zero)
        state = EPState(centre, sites, zero, zero, 0.0, nothing, 0.0, np.inf, self.damping, self.damping)
        return self._look(state)

    def _first_sites(self, centre: Centre) -> Sites:
        """Slope and (where concave) curvature at the centre: close to the answer already."""
        tau, nu = np.zeros_like(centre.g), np.zeros_like(centre.g)
        for index, noise in centre.roles.active_noise:
            at = np.maximum(centre.expected[index], noise.domain_low + 1e-3)
            tau[index] = np.maximum(-noise.curvature(at), 0.0)
            nu[index] = noise.slope(at) - centre.g[index]
        return Sites(tau, nu)

    def step(self, state: EPState) -> EPState:
        """One damped parallel sweep, with the centre moved along; a sweep that breaks is taken back and halved."""
        damping = state.damping
        for attempt in range(16):
            try:
                moved = self._recentre(state) if attempt < 8 else state  # at worst the centre waits a sweep
                sites = Sites(
                    moved.sites.tau + damping * (moved.target.tau - moved.sites.tau),
                    moved.sites.nu + damping * (moved.target.nu - moved.sites.nu),
                )
                new = self._look(replace(moved, sites=sites))
            except (NotPositiveDefinite, FloatingPointError):
                damping *= 0.5
                continue
            if new.residual > WILD * state.residual and damping > LEAST_DAMPING:
                damping *= 0.5  # entries of one node swing against each other: shorter sweeps settle them
                continue
            ceiling = state.ceiling
            if new.residual > 1.1 * state.residual:
                damping = max(0.7 * damping, LEAST_DAMPING)
                ceiling = max(damping, 0.9 * ceiling, LEAST_DAMPING)  # what overshot once would do so again
            else:
                damping = min(1.1 * damping, ceiling)
            return replace(new, damping=damping, ceiling=ceiling)
        return replace(state, residual=np.nan)

    def _recentre(self, state: EPState) -> EPState:
        """Move the tilts so that the centre follows the mean: g ← g + ν − τδ, and carry the sites along.

        ``ν − τδ`` is the one tilt that gives the Gaussian its mean without sites (δ = Σ(ν − τδ)); a long move is shortened,
        because the law follows tilts exponentially and the Gaussian only linearly.
        """
        old = state.centre
        if self.centre != "mean" or not old.roles.active.any():
            return state
        if float(np.abs(state.mean).max(initial=0.0)) <= 1e-13 * old.roles.tilts.problem.population:
            return state
        tau = state.sites.tau + old.settled_tau
        nu = state.sites.nu + old.settled_nu
        pull = np.where(old.roles.exact, 0.0, nu - tau * state.mean)
        pull *= min(1.0, LONGEST_PULL / max(float(np.abs(pull).max()), 1e-300))
        new = Centre.at(old.roles, old.g + pull)
        moved = new.expected - old.expected

        def carried(sites: Sites) -> Sites:
            return Sites(sites.tau, np.where(old.roles.active, sites.nu - sites.tau * moved - pull, 0.0))

        return replace(state, centre=new, sites=carried(state.sites), target=carried(state.target))

    def _look(self, state: EPState) -> EPState:
        """Solve under the present sites and project every active entry."""
        centre = state.centre
        tilts = centre.roles.tilts
        moments = _flat(
            centre.structure.solve(
                tilts.split(state.sites.tau + centre.settled_tau),
                tilts.split(state.sites.nu + centre.settled_nu),
            )
        )
        mean, variance, log_z = moments
        rounding = 1e-13 * tilts.problem.population
        if not np.isfinite(mean).all() or (variance < -rounding).any():
            raise FloatingPointError
        variance = np.where(centre.roles.exact | (variance < 0), 0.0, variance)  # what is known has none
        tau, nu = state.sites.tau.copy(), state.sites.nu.copy()
        residual, log_sites = 0.0, 0.0
        grids: list[Grid | None] = []
        for k, (index, noise) in enumerate(centre.roles.active_noise):
            old = state.grids[k] if state.grids else None
            here = _Entries(
                mean[index],
                variance[index],
                state.sites.tau[index],
                state.sites.nu[index],
                centre.expected[index],
                centre.g[index],
            )
            if self.projection == "laplace":
                new_tau, new_nu, more, change, grid = _laplace_project(noise, here)
            else:
                new_tau, new_nu, more, change, grid = _sum_project(
                    noise, here, old, float(tilts.problem.population), lattice=self.projection == "lattice"
                )
            tau[index], nu[index] = new_tau, new_nu
            log_sites += more
            residual = max(residual, change)
            grids.append(grid)
        if self.centre == "mean" and centre.roles.active.any():
            off = np.abs(mean) / np.sqrt(np.maximum(variance, LEAST_SD**2))
            if not centre.roles.exact.any():
                floor = 1e-13 * tilts.problem.population
                residual = max(residual, float(np.where(np.abs(mean) > floor, off, 0.0).max(initial=0.0)))
        return replace(
            state,
            mean=mean,
            variance=variance,
            log_z=log_z,
            target=Sites(tau, nu),
            log_sites=log_sites,
            residual=residual,
            grids=tuple(grids),
        )

    def residual(self, state: EPState) -> float:
        """See :attr:`tolerance`."""
        return state.residual

    def report(self, state: EPState) -> dict[str, float]:
        """The evidence so far and the damping."""
        return {"log_evidence": self._evidence(state), "damping": state.damping}

    @staticmethod
    def _evidence(state: EPState) -> float:
        return state.centre.gain + state.centre.constant + state.log_z + state.log_sites

    def finish(self, state: EPState) -> Beliefs:
        """The Gaussian around the last centre."""
        tilts = state.centre.roles.tilts
        tau = tilts.split(state.sites.tau + state.centre.settled_tau)
        nu = tilts.split(state.sites.nu + state.centre.settled_nu)
        roles = state.centre.roles
        settled = (self.centre == "mean" and not roles.exact.any() and roles.active.any()) or not (
            roles.active.any() or roles.exact.any() or roles.gaussian.any()
        )
        return GaussianBeliefs(
            state.centre.model(),
            tilts.problem.population,
            lambda: state.centre.structure.field(tau, nu),
            settled=bool(settled),
            log_evidence=self._evidence(state),
            diagnostics={
                "g": state.centre.g,
                "tau": state.sites.tau,
                # the site in the count itself, exp(−½τn² + ηn), whatever the centre
                "eta": state.sites.nu + state.sites.tau * state.centre.expected + state.centre.g,
            },
        )


def _map_tilts(problem: Problem, *, loose: bool, g: Array | None) -> Array:
    """Tilts of the MAP estimate; loosely when the centre will move on anyway, else until nothing is gained any more."""
    engine = MAP(tolerance=1e-4 if loose else 1e-9)
    state = engine.init(problem, g=g)
    best, since = np.inf, 0
    for _ in range(engine.max_iterations):
        miss = engine.residual(state)
        since = 0 if miss < 0.5 * best else since + 1
        best = min(best, miss)
        if miss <= engine.tolerance or state.search.failed or since > 25:
            break
        state = engine.step(state)
    return state.evaluation.g


def _flat(moments: Moments) -> tuple[Array, Array, float]:
    if not moments.mean:
        return np.zeros(0), np.zeros(0), moments.log_z
    return np.concatenate(moments.mean), np.concatenate(moments.variance), moments.log_z


@dataclass(frozen=True)
class _Entries:
    """The active entries of one noise: posterior moments, sites, centre."""

    mean: Array
    variance: Array
    tau: Array
    nu: Array
    expected: Array
    g: Array


def _laplace_project(noise: object, here: _Entries) -> tuple[Array, Array, float, float, None]:
    """Match value, slope and curvature of log ℓ − g n at the present mean."""
    at = here.expected + here.mean
    low = noise.domain_low  # type: ignore[attr-defined]
    at = np.where(at > low, at, low + 1e-3 * np.maximum(here.expected - low, 1e-3))
    slope, bend = noise.slope(at) - here.g, noise.curvature(at)  # type: ignore[attr-defined]
    delta = at - here.expected
    tau = -bend
    nu = slope + tau * delta
    value = noise.log_prob(at) - here.g * at  # type: ignore[attr-defined]
    log_sites = float((value - (-0.5 * tau * delta**2 + nu * delta)).sum())
    sd = np.sqrt(np.maximum(here.variance, 1e-300))
    gain = np.abs((nu - here.nu) - (tau - here.tau) * here.mean) * sd
    change = max(
        float(gain.max(initial=0.0)), float((np.abs(tau - here.tau) * here.variance).max(initial=0.0))
    )
    return tau, nu, log_sites, change, None


def _sum_project(
    noise: object, here: _Entries, grid: Grid | None, population: float, *, lattice: bool
) -> tuple[Array, Array, float, float, Grid]:
    """Match mean and variance of cavity × likelihood summed over the grid."""
    live = here.variance > 1e-14 * np.maximum(here.expected, 1e-300)
    v = np.where(live, here.variance, 1.0)
    precision = 1.0 / v - here.tau
    usable = live & (precision > 1e-10 / v)
    cavity_v = np.where(usable, 1.0 / np.where(usable, precision, 1.0), v)
    cavity_m = np.where(usable, cavity_v * (here.mean / v - here.nu), 0.0)
    at, sd = here.expected + here.mean, np.sqrt(v)
    if grid is None or not grid.serves(at, np.maximum(sd, 0.5)).all():
        grid = make_grid(noise, at, sd, population, lattice=lattice)  # type: ignore[arg-type]
    context = Context(here.expected, here.expected + cavity_m, cavity_v, population)
    log_z, mean, variance, own_v = tilted_moments(grid, context, here.g)
    mean = mean - here.expected
    ok = usable & np.isfinite(log_z)
    known = ok & (np.maximum(variance, cavity_v) <= CERTAIN)  # the others have settled it already
    safe = np.where(ok, np.maximum(variance, CERTAIN), 1.0)
    # What the observation changes of its context: the same context plus this site is the new belief.
    tau = np.where(known, 0.0, np.where(ok, 1.0 / safe - 1.0 / own_v, here.tau))
    nu = np.where(known, 0.0, np.where(ok, mean / safe - cavity_m / own_v, here.nu))
    joint = 1.0 / own_v + here.tau
    gauss = (
        -0.5 * np.log(own_v * joint)
        + 0.5 * (cavity_m / own_v + here.nu) ** 2 / joint
        - 0.5 * cavity_m**2 / own_v
    )
    fixed = np.clip(here.expected, 0.0, population)
    with np.errstate(divide="ignore", invalid="ignore"):
        certain = noise.log_prob(fixed) - here.g * fixed  # type: ignore[attr-defined]
    log_sites = float(np.where(ok, log_z - gauss, np.where(live, 0.0, certain)).sum())
    scale = np.maximum(v, LEAST_SD**2)
    precision = np.maximum(1.0 / cavity_v + tau, 1e-10 / v)
    new_m, new_v = (cavity_m / cavity_v + nu) / precision, 1.0 / precision
    change = np.maximum(
        np.abs(new_m - here.mean) / np.sqrt(scale), np.where(known, 0.0, np.abs(new_v - v) / scale)
    )
    change = np.where(ok, change, np.where(live, 1.0, 0.0))  # an entry without a cavity has not converged
    return tau, nu, log_sites, float(change.max(initial=0.0)), grid
