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

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from headcount._device import find_device
from headcount.engines._engine import PROGRESS, IterativeEngine, iterate, number, one_of, whole
from headcount.engines._map import MAP
from headcount.engines._tilting import Tilts
from headcount.engines.tilted._centre import CLOSE_MARGIN, MOST_AT_ONCE, Centre, Roles, meet_exact_margins
from headcount.engines.tilted._gaussian import GaussianEngine, field_and_evidence
from headcount.engines.tilted._projection import LEAST_SD, Entries, Grid, laplace_site, summed_site
from headcount.engines.tilted._stepper import SETTINGS, TINY, Iterate, StepControl, next_state
from headcount.posterior._beliefs import Beliefs, GaussianBeliefs
from headcount.structure import Moments, NotPositiveDefinite, Recall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headcount._types import Array
    from headcount.observe import Problem

NEARLY_IMPOSSIBLE = 0.01
"""Variance of an observed count below which, and factor on its prior variance by which, a first centre may not make it smaller: at a
variance of 0.01 one count in a hundred differs from the most probable one. Measured: a negative binomial zero in a rare cell is answered
rightly from 1e-4 to .5, and wrongly at 1e-6; 60 random chains with Poisson counts took the same 7 sweeps on average from 0 to 1e-3."""
ROUNDING = 1e-13
"""Rounding of an expected count, as a share of the population: belief propagation sums about 1e3 terms of relative size 1e-16."""
MOST_WITH_GRIDS = 1_000_000
"""Observed counts up to which grids of likelihoods are kept from sweep to sweep (2.8 GB); beyond, they are made again."""
PROJECTING_THREADS = 3
"""Threads that project counts, where there are several parts of `MOST_AT_ONCE`: each holds about 400 MB of grids."""
MONTE_CARLO_TOLERANCE = 5e-4
"""Residual at which sweeps without matrices stop: the largest change of any mean, in standard deviations. Noise of their variances moves
means by .002 of an sd in the median, so more sweeps would find nothing."""
FAR = 3.0
"""Distance of the mean from the centre, in standard deviations, above which MAP is run on before the first sweep: sweeps follow the
law's exponential in straight lines. (Counts far from what the model expects, with rho .03 to .6, were 5 to 700 off and stalled after
500 sweeps; they take two from where MAP ends.)"""


class Begun(NamedTuple):
    """MAP as the start of a run: its tolerance, and the iterations without a residual below `gain` times the best at which it is left."""

    tolerance: float
    patience: int | None = 25
    gain: float = 0.5


ROUGH_MAP, MAP_CENTRE, MAP_TO_THE_END = Begun(1e-4), Begun(1e-9), Begun(1e-6, None, PROGRESS)
"""Where the centre moves on anyway; where it stays; and where sweeps would not find it, by MAP's own patience."""


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
    change: float
    """How far the sites are from their targets."""
    off: float
    """How far the mean is from the centre, where the centre follows it, in standard deviations; 0 where it does not."""
    control: StepControl
    grids: tuple[Grid | None, ...] = field(default=())

    @property
    def residual(self) -> float:
        """The larger of the two; NaN where a step failed."""
        return float(np.maximum(self.change, self.off))


@dataclass(frozen=True)
class TiltedEP(GaussianEngine, IterativeEngine):
    """Expectation propagation around a tilted centre.

    Parameters
    ----------
    centre, projection
        See the module's docstring.
    damping
        Largest fraction of a site's change taken in one sweep; halved when a sweep goes wrong.
    tolerance
        On the largest change of an observed count's mean (in its standard deviations) and variance (in shares of it); 5e-4 at least
        without matrices.
    structure, draws, final_draws, draw_seed, mc_error, device
        See :class:`GaussianEngine`.
    """

    rules: ClassVar = {
        "centre": one_of("mean", "map", "prior"),
        "projection": one_of("lattice", "line", "laplace"),
        "damping": number(most=1.0),
        "tolerance": number(),
        "max_iterations": whole(),
        **GaussianEngine.rules,
    }
    name: ClassVar[str] = "TiltedEP"
    centre: Literal["mean", "map", "prior"] = "mean"
    projection: Literal["lattice", "line", "laplace"] = "lattice"
    damping: float = 0.9
    tolerance: float = 1e-5
    max_iterations: int = 1000
    falls_back: ClassVar[bool] = True
    patience: ClassVar[int] = 500
    """EP can plateau where one individual explains two cells equally well; fewer sweeps than this without progress are not yet a stall
    (measured: the slowest of 61 hard data sets converged after about 350 sweeps)."""

    def init(
        self,
        problem: Problem,
        rng: np.random.Generator | None = None,
        *,
        g: Array | None = None,
        recall: Recall | None = None,
    ) -> EPState:
        """Find the first centre, the MAP tilts (or zero), and the first sites."""
        del rng
        tilts = Tilts(problem, find_device(self.device))
        roles = self._roles(tilts, Recall() if recall is None else recall)
        if self.centre == "prior":
            centre = Centre.at(roles, np.zeros(int(tilts.offsets[-1])))
        elif self.centre == "map":
            centre = Centre.at(roles, _map_tilts(tilts, MAP_CENTRE, g))
        else:
            return self._near_map(roles, g)
        return self._begin(centre, self._first_sites(centre))

    def _near_map(self, roles: Roles, g: Array | None) -> EPState:
        """The state around MAP's counts, found roughly; found to the end where the Gaussian's mean is far from the rough ones."""
        for engine in (ROUGH_MAP, MAP_TO_THE_END):
            g = _map_tilts(roles.tilts, engine, g)
            centre = _off_the_edge(Centre.at(roles, meet_exact_margins(roles, g)))
            state = self._begin(centre, self._first_sites(centre))
            if state.off <= FAR:
                break
        return state

    def resume(self, problem: Problem, rng: np.random.Generator, start: Mapping[str, Any]) -> EPState | None:
        """Start from the tilts and sites of a similar problem: near it, that takes half the sweeps. Draws are as many as there."""
        tilts = Tilts(problem, find_device(self.device))
        numbers = start.get("draws")
        if self.centre != "mean" or "eta" not in start:
            return self.init(problem, rng, g=start.get("g"), recall=Recall.of(numbers))
        roles = self._roles(tilts, Recall.of(numbers, near=True))
        tau = np.where(roles.active, start["tau"], 0.0)
        try:
            centre = Centre.at(roles, meet_exact_margins(roles, start["g"]))
            with np.errstate(
                invalid="ignore"
            ):  # tilts of what is impossible are −∞ in both; they are not active
                nu = np.where(roles.active, start["eta"] - tau * centre.expected - centre.g, 0.0)
            state = self._begin(centre, Sites(tau, nu))
            return state if state.off <= FAR else self._near_map(roles, start["g"])
        except (NotPositiveDefinite, FloatingPointError):  # not so similar after all
            return self.init(problem, rng, recall=Recall.of(numbers))

    def _roles(self, tilts: Tilts, recall: Recall) -> Roles:
        return Roles.of(tilts, whole=self.projection == "lattice", solver=self.solver(recall))

    def _begin(self, centre: Centre, sites: Sites) -> EPState:
        """The state at given sites."""
        zero = np.zeros_like(centre.g)
        nothing = Sites(zero, zero)
        state = EPState(
            centre,
            sites,
            zero,
            zero,
            0.0,
            nothing,
            0.0,
            np.inf,
            0.0,
            StepControl(self.damping, self.damping),
        )
        return self._look(state)

    def _first_sites(self, centre: Centre) -> Sites:
        """Slope and (where concave) curvature at the centre: close to the answer already. At a corner they say nothing."""
        tau, nu = np.zeros_like(centre.g), np.zeros_like(centre.g)
        for index, noise in centre.roles.active_noise:
            if not noise.smooth:
                continue
            at = np.maximum(centre.expected[index], noise.domain_low + 1e-3)
            tau[index] = np.maximum(-noise.curvature(at), 0.0)
            nu[index] = noise.slope(at) - centre.g[index]
        return Sites(tau, nu)

    def step(self, state: EPState) -> EPState:
        """One parallel sweep, with the centre moved along (see :mod:`._stepper` for its length)."""
        new, control = next_state(
            state.control,
            state,
            _iterate(state, self._pull(state)),
            slice(2 * int(state.centre.roles.active.sum()), None),
            _lengths(state),
            lambda x: self._look(self._placed(state, x)),
        )
        return replace(state, change=np.nan) if new is None else replace(new, control=control)

    def _pull(self, state: EPState) -> Array:
        """The change of tilts with which the centre follows the mean, ν − τδ.

        It is the one tilt that gives the Gaussian its mean without sites (δ = Σ(ν − τδ)); a long move is shortened, because the law
        follows tilts exponentially and the Gaussian only linearly.
        """
        centre = state.centre
        still = float(np.abs(state.mean).max(initial=0.0)) <= ROUNDING * centre.roles.tilts.problem.population
        if self.centre != "mean" or still:
            return np.zeros_like(centre.g)
        tau, nu = state.sites.tau + centre.fixed_tau, state.sites.nu + centre.fixed_nu
        pull = np.where(centre.roles.exact, 0.0, nu - tau * state.mean + centre.correlated_pull(state.mean))
        return np.asarray(pull * min(1.0, SETTINGS.longest_pull / max(float(np.abs(pull).max()), TINY)))

    def _placed(self, state: EPState, x: Array) -> EPState:
        """The same state with tilts and sites ``(τ, η, g)``, η in the counts themselves."""
        roles = state.centre.roles
        active = roles.active
        at = np.cumsum([active.sum()] * 2)
        tau, nu, g = np.zeros_like(state.mean), np.zeros_like(state.mean), state.centre.g.copy()
        tau[active], eta, g[~roles.exact] = np.split(x, at)
        centre = (
            state.centre if (g == state.centre.g).all() else Centre.at(roles, meet_exact_margins(roles, g))
        )
        g = centre.g
        nu[active] = eta - tau[active] * centre.expected[active] - g[active]
        return replace(state, centre=centre, sites=Sites(tau, nu))

    def _look(self, state: EPState) -> EPState:
        """Solve under the present sites and project every active entry."""
        centre = state.centre
        tilts = centre.roles.tilts
        if not (np.isfinite(state.sites.tau).all() and np.isfinite(state.sites.nu).all()):
            raise FloatingPointError
        moments = _flat(
            centre.structure.solve(
                tilts.split(state.sites.tau + centre.fixed_tau),
                tilts.split(state.sites.nu + centre.fixed_nu),
            )
        )
        mean, variance, log_z = moments
        rounding = ROUNDING * tilts.problem.population
        if not np.isfinite(mean).all() or (variance < -rounding).any():
            raise FloatingPointError
        variance = np.where(centre.roles.exact | (variance < 0), 0.0, variance)  # what is known has none
        tau, nu = state.sites.tau.copy(), state.sites.nu.copy()
        furthest, log_sites = 0.0, 0.0
        grids: list[Grid | None] = []
        keep = len(mean) <= MOST_WITH_GRIDS
        for (index, _), found in zip(
            centre.roles.active_noise, self._projected(state, mean, variance), strict=True
        ):
            tau[index], nu[index], more, change, grid = found
            log_sites += more
            furthest = max(furthest, change)
            grids.append(grid if keep else None)
        away = 0.0
        if self.centre == "mean" and not centre.roles.exact.all():
            off = np.abs(mean) / np.sqrt(np.maximum(variance, LEAST_SD**2))
            exact = centre.roles.exact
            floor = 10 * np.where(exact, CLOSE_MARGIN, ROUNDING) * tilts.problem.population
            away = float(np.where(np.abs(mean) > floor, off, 0.0).max(initial=0.0))
        return replace(
            state,
            mean=mean,
            variance=variance,
            log_z=log_z,
            target=Sites(tau, nu),
            log_sites=log_sites,
            change=furthest,
            off=away,
            grids=tuple(grids),
        )

    def _projected(
        self, state: EPState, mean: Array, variance: Array
    ) -> Iterator[tuple[Array, Array, float, float, Grid | None]]:
        """The sites of every noise's entries; many entries are parts that threads share, each part its own numbers."""
        centre = state.centre
        population = float(centre.roles.tilts.problem.population)
        spread = centre.dispersion

        def of_part(k: int) -> tuple[Array, Array, float, float, Grid | None]:
            index, noise = centre.roles.active_noise[k]
            here = Entries(
                mean[index],
                variance[index],
                state.sites.tau[index],
                state.sites.nu[index],
                centre.expected[index],
                centre.g[index],
                spread[index],
            )
            if self.projection == "laplace":
                return laplace_site(noise, here)
            old = state.grids[k] if state.grids else None
            lattice, device = self.projection == "lattice", centre.roles.tilts.device
            return summed_site(noise, here, old, population, lattice=lattice, device=device)

        parts = range(len(centre.roles.active_noise))
        if len(mean) <= MOST_AT_ONCE:
            yield from map(of_part, parts)
            return
        with ThreadPoolExecutor(PROJECTING_THREADS) as pool:
            yield from pool.map(of_part, parts)

    def residual(self, state: EPState) -> float:
        """See :attr:`tolerance`."""
        return state.residual

    def target(self, state: EPState) -> float:
        """The tolerance; not below what Monte-Carlo error leaves to be found."""
        return max(self.tolerance, MONTE_CARLO_TOLERANCE if state.centre.structure.monte_carlo else 0.0)

    def report(self, state: EPState) -> dict[str, float]:
        """The evidence so far (without matrices there is none before the final draws) and the damping."""
        evidence = self._rest(state) + state.log_z
        known = {} if np.isnan(evidence) else {"log_evidence": evidence}
        return {**known, "damping": state.control.step_size}

    @staticmethod
    def _rest(state: EPState) -> float:
        """The evidence without the structure's log Z."""
        return state.centre.gain + state.centre.constant + state.log_sites

    def finish(self, state: EPState) -> Beliefs:
        """The Gaussian around the last centre."""
        tilts = state.centre.roles.tilts
        tau, nu = state.sites.tau + state.centre.fixed_tau, state.sites.nu + state.centre.fixed_nu
        # Margins that leave a flow no choice are met by no finite tilts: there the Gaussian's mean has what the centre misses.
        missed = float(np.abs(state.mean[state.centre.roles.exact]).max(initial=0.0))
        settled = self.centre == "mean" and missed <= 10 * CLOSE_MARGIN * tilts.problem.population
        settled |= not tilts.problem.sites
        field, evidence, errors = field_and_evidence(state.centre, tau, nu, self._rest(state), state.log_z)
        recall = state.centre.roles.solver.recall
        draws = {} if recall is None or recall.draws is None else {"draws": recall.numbers}
        return GaussianBeliefs(
            state.centre.model(),
            tilts.problem,
            field,
            settled=settled,
            log_evidence=evidence,
            diagnostics={
                **errors,
                **draws,
                "g": state.centre.g,
                "tau": state.sites.tau,
                # the site in the count itself, exp(−½τn² + ηn), whatever the centre
                "eta": state.sites.nu + state.sites.tau * state.centre.expected + state.centre.g,
            },
        )


def _off_the_edge(centre: Centre) -> Centre:
    """The centre with the tilts undone that took an observed count from possible to nearly impossible.

    The most probable count may be zero where the mean is not; a Gaussian made there is too narrow to see the way back.
    """
    roles, n = centre.roles, float(centre.roles.tilts.problem.population)
    prior = n * roles.tilts.evaluate(np.zeros_like(centre.g))[1]
    left, had = (m * (1.0 - m / n) for m in (centre.expected, prior))
    lost = roles.active & (left < NEARLY_IMPOSSIBLE) & (left < NEARLY_IMPOSSIBLE * had)
    return (
        Centre.at(roles, meet_exact_margins(roles, np.where(lost, 0.0, centre.g))) if lost.any() else centre
    )


def _iterate(state: EPState, pull: Array) -> Iterate:
    """Sites of active entries in the counts themselves, and tilts of all but exact ones: (τ, η, g); and how far off they are."""
    sites, target, centre = state.sites, state.target, state.centre
    active, free = centre.roles.active, ~centre.roles.exact
    tau = target.tau - sites.tau
    eta = sites.nu + sites.tau * centre.expected + centre.g
    more = target.nu - sites.nu + tau * centre.expected
    return Iterate(
        np.concatenate([sites.tau[active], eta[active], centre.g[free]]),
        np.concatenate([tau[active], more[active], pull[free]]),
    )


def _lengths(state: EPState) -> Callable[[Array], Array]:
    """Changes of (τ, η, g) as changes of the mean in standard deviations, and of the variance in shares of it."""
    active, free = state.centre.roles.active, ~state.centre.roles.exact
    n, v = state.centre.expected + state.mean, np.maximum(state.variance, 0.0)
    sd = np.sqrt(v)

    def scaled(x: Array) -> Array:
        tau, eta, g = np.split(x, np.cumsum([active.sum()] * 2))
        return np.concatenate([v[active] * tau, sd[active] * (eta - n[active] * tau), sd[free] * g])

    return scaled


def _map_tilts(tilts: Tilts, begun: Begun, g: Array | None) -> Array:
    """Tilts of the MAP estimate, from g."""
    engine = MAP(tolerance=begun.tolerance)
    first = engine.start(tilts, g)
    end = iterate(engine, first, patience=begun.patience, gain=begun.gain, look_first=True).state
    return end.objective.g(end.search.point)


def _flat(moments: Moments) -> tuple[Array, Array, float]:
    if not moments.mean:
        return np.zeros(0), np.zeros(0), moments.log_z
    return np.concatenate(moments.mean), np.concatenate(moments.variance), moments.log_z
