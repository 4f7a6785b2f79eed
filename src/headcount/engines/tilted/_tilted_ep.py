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

import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from headcount._device import find_device
from headcount.engines._cost import MOST_AT_ONCE, MOST_WITH_GRIDS, GaussianUse
from headcount.engines._map import MAP, first_tilts
from headcount.engines._tilting import Tilts, require_numbers
from headcount.engines.engine import PROGRESS, IterativeEngine, iterate, number, one_of, whole
from headcount.engines.tilted._centre import CLOSE_MARGIN, Centre, Roles, meet_exact_margins
from headcount.engines.tilted._certain import certain_counts, few_tables
from headcount.engines.tilted._gaussian import GaussianEngine, gaussian_beliefs
from headcount.engines.tilted._projection import LEAST_SD, Entries, Grid, Projected, laplace_site, summed_site
from headcount.engines.tilted._size_sites import LEAST_LEFT, ExactSizes, SizeLaws, size_sites, with_size_sites
from headcount.engines.tilted._stepper import SETTINGS, TINY, Iterate, StepControl, next_state
from headcount.observe import SIZES
from headcount.population import PoissonSize
from headcount.posterior import Beliefs
from headcount.posterior.program import IMPLIED, size_range
from headcount.structure import Contradiction, NotPositiveDefinite, Recall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headcount._types import Array
    from headcount.observe import ClosedProblem
    from headcount.population import Numbers

NEARLY_IMPOSSIBLE = 0.01
"""Variance of an observed count below which, and factor on its prior variance by which, a first centre may not make it smaller: at a
variance of 0.01 one count in a hundred differs from the most probable one. Measured: a negative binomial zero in a rare cell is answered
rightly from 1e-4 to .5, and wrongly at 1e-6; 60 random chains with Poisson counts took the same 7 sweeps on average from 0 to 1e-3."""
ROUNDING = 1e-13
"""Rounding of an expected count, as a share of the population: belief propagation sums about 1e3 terms of relative size 1e-16."""
PROJECTING_THREADS = 3
"""Threads that project counts, where there are several parts of `MOST_AT_ONCE`: each holds about 400 MB of grids."""
MONTE_CARLO_TOLERANCE = 5e-4
"""Residual at which sweeps without matrices stop: the largest change of any mean, in standard deviations. Noise of their variances moves
means by .002 of an sd in the median, so more sweeps would find nothing."""
SIZE_DISPERSION = 2.5
"""Where sizes are not known, the dispersion of the law that stands for a count's cavity is at least this multiple of variance over mean,
up to that of the sizes' own law: with less, the law of a wide cavity rises in its tail. Measured against exact sums over N (two
cells, 1 to 8 times, rates .1 to 1, N about 20 and 60): N is off by .03 of its sd in the median at 2.5, by .06 at 1.5, and by .03 at 4,
where the evidence is off by half as much again."""
WIDEST_CAVITY = 2.0
"""Where sizes are not known, the cavity's variance over the posterior's above which only its slope and curvature at the posterior are
used: whole numbers with the moments of a wide cavity would rise again in their tail, and beside a law that falls as 1/N a cavity may be
no Gaussian at all. Measured against exact sums over N (192 problems of two cells, laws of eight kinds): nine in ten means of N and of a
cell within .10 of an sd (.20 without), and single totals beside wide laws, up to 829 nats off before, within .03 from fifty individuals
on; below ten the sd may be a third off."""
SHARP = 8.0
"""Precision of a reading, 1/.35², above which it tells whole numbers apart. Against enumeration of 293 small problems the evidence
beside such readings was off by up to .51 nats where they left two whole numbers."""
FAR = 3.0
"""Distance of the mean from the centre, in standard deviations, above which MAP is run on before the first sweep: sweeps follow the
law's exponential in straight lines. (Counts far from what the model expects, with rho .03 to .6, were 5 to 700 off and stalled after
500 sweeps; they take two from where MAP ends.)"""


FEW_NUMBERS = 1.0
"""Variance of an unknown size below which two or three numbers hold its law. Of 467 random problems of one size beside exact counts and
noisy ones (two cells, up to three times, about 2 to 20 individuals) the mean of N was off by more than .2 sd in 11, by .71 at most, all of
them below; at or above it the sd was off by 22 % at most."""


class MapStart(NamedTuple):
    """How far MAP is run as the start of a run.

    It ends at its tolerance, or after `patience` iterations (None: MAP's own) of which none has a residual below `gain` times the best.
    25 and 0.5 were set by hand: where MAP slows down, sweeps go on from there.
    """

    tolerance: float
    patience: int | None = 25
    gain: float = 0.5


ROUGH_MAP, MAP_CENTRE, MAP_TO_THE_END = MapStart(1e-4), MapStart(1e-9), MapStart(1e-6, None, PROGRESS)
"""Where the centre moves on anyway; where it stays; and where sweeps would not find it, by MAP's own patience."""


class Sites(NamedTuple):
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
    grids: tuple[Grid | None, ...]

    @property
    def eta(self) -> Array:
        """Slopes of the sites in the counts themselves, exp(−½τn² + ηn), whatever the centre."""
        return self.sites.nu + self.sites.tau * self.centre.expected + self.centre.g

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
    use: ClassVar[GaussianUse] = GaussianUse(sweeps=12, matrices=15, grid=350, laws=6)
    """Measured: 14 to 18 matrices at L = 36 … 324, grids of 160 to 400 numbers, 5 to 8 laws on networks (28 once)."""
    draw_copies: ClassVar[float] = 2.7
    """Draws are rounded to whole numbers. Measured: 2 to 3.4."""
    centre: Literal["mean", "map", "prior"] = "mean"
    projection: Literal["lattice", "line", "laplace"] = "lattice"
    damping: float = 0.9
    tolerance: float = 1e-5
    max_iterations: int = 1000
    falls_back: ClassVar[bool] = True
    sums_one_cell: ClassVar[bool] = True
    patience: ClassVar[int] = 500
    """EP can plateau where one individual explains two cells equally well; fewer sweeps than this without progress are not yet a stall
    (measured: the slowest of 61 hard data sets converged after about 350 sweeps)."""

    def init(
        self,
        problem: ClosedProblem,
        rng: np.random.Generator | None = None,
        *,
        g: Array | None = None,
        recall: Recall | None = None,
    ) -> EPState:
        """Find the first centre, the MAP tilts (or zero), and the first sites."""
        del rng
        tilts = Tilts(with_size_sites(problem), find_device(self.device))
        recall = Recall() if recall is None else recall
        if self.centre == "mean":
            g = _map_tilts(tilts, ROUGH_MAP, g)
            for certain, start in self._certain(tilts, g):
                with suppress(NotPositiveDefinite, FloatingPointError, Contradiction):
                    return self._near_map(self._roles(certain, recall), start)
            return self._near_map(self._roles(tilts, recall), g)
        roles = self._roles(tilts, recall)
        centre = Centre.at(roles, None if self.centre == "prior" else _map_tilts(tilts, MAP_CENTRE, g))
        return self._begin(centre, self._first_sites(centre))

    def _certain(self, tilts: Tilts, g: Array) -> Iterator[tuple[Tilts, Array]]:
        """The problem with exact counts of what the data make certain, and tilts to start from; nothing where nothing is."""
        more = certain_counts(tilts, g) if self.projection == "lattice" and tilts.device is None else ()
        if more:
            problem = tilts.problem.with_sites((*tilts.problem.sites, *more))
            yield Tilts(problem), np.append(g, np.zeros(sum(map(len, more))))

    def _near_map(self, roles: Roles, g: Array | None) -> EPState:
        """The state around MAP's counts, found roughly; found to the end where the Gaussian's mean is far from the rough ones.

        Counts far above the population leave tilts at which whole cells are certain. Where no state is there, the prior has one.
        """
        state = None
        for how in (ROUGH_MAP, MAP_TO_THE_END):
            g = _map_tilts(roles.tilts, how, g)
            centre = _off_the_edge(Centre.at(roles, meet_exact_margins(roles, g)))
            try:
                state = self._begin(centre, self._first_sites(centre))
            except (NotPositiveDefinite, FloatingPointError):
                continue
            if state.off <= FAR:
                break
        if state is None:
            centre = Centre.at(roles, meet_exact_margins(roles, np.zeros_like(centre.g)))
            state = self._begin(centre, self._first_sites(centre))
        return state

    def resume(
        self, problem: ClosedProblem, rng: np.random.Generator, start: Mapping[str, Any]
    ) -> EPState | None:
        """Start from the tilts and sites of a similar problem: near it, that takes half the sweeps. Draws are as many as there."""
        tilts = Tilts(with_size_sites(problem), find_device(self.device))
        numbers = start.get("draws")
        if start.get("certain"):  # what is certain is decided anew
            return self.init(problem, rng, g=start["g"], recall=Recall.of(numbers))
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
        return self._look(centre, sites, StepControl(self.damping, self.damping), ())

    def _first_sites(self, centre: Centre) -> Sites:
        """Slope and (where concave) curvature at the centre: close to the answer already. Near a corner, the likelihood's own variance.

        With slopes a before and b after it, e^(log l) has about the variance 8/(a − b)², Laplace noise exactly.
        """
        tau, nu = np.zeros_like(centre.g), np.zeros_like(centre.g)
        for index, noise in centre.roles.active_noise:
            if not noise.smooth:
                if noise.corner_slopes is not None:
                    after, before = noise.corner_slopes
                    away = np.asarray(noise.counts) - centre.expected[index]
                    with np.errstate(
                        invalid="ignore"
                    ):  # bounds on true counts have infinite slopes, and no variance
                        precision, middle = (before - after) ** 2 / 8.0, 0.5 * (before + after)
                        near = np.isfinite(precision) & (precision * away**2 <= 1.0)
                        tau[index] = np.where(near, precision, 0.0)
                        nu[index] = np.where(near, precision * away + middle - centre.g[index], 0.0)
                continue
            at = np.maximum(centre.expected[index], noise.domain_low + 1e-3)
            tau[index] = np.maximum(-noise.curvature(at), 0.0)
            nu[index] = noise.slope(at) - centre.g[index]
            require_numbers(noise, at, nu[index], tau[index])
        return Sites(tau, nu)

    def step(self, state: EPState) -> EPState:
        """One parallel sweep, with the centre moved along (see :mod:`._stepper` for its length)."""
        new, control = next_state(
            state.control,
            state,
            _iterate(state, self._pull(state)),
            slice(2 * int(state.centre.roles.active.sum()), None),
            _lengths(state),
            lambda x: self._look(*_placed(state, x), state.control, state.grids),
        )
        return replace(state, change=np.nan) if new is None else replace(new, control=control)

    def _pull(self, state: EPState) -> Array:
        """The change of tilts with which the centre follows the mean, ν − τδ.

        It is the one tilt that gives the Gaussian its mean without sites (δ = Σ(ν − τδ)); a long move is shortened, because the law
        follows tilts exponentially and the Gaussian only linearly.
        """
        centre = state.centre
        still = float(np.abs(state.mean).max(initial=0.0)) <= ROUNDING * centre.population
        if self.centre != "mean" or still:
            return np.zeros_like(centre.g)
        tau, nu = state.sites.tau + centre.fixed_tau, state.sites.nu + centre.fixed_nu
        pull = np.where(centre.roles.exact, 0.0, nu - tau * state.mean + centre.correlated_pull(state.mean))
        return np.asarray(pull * min(1.0, SETTINGS.longest_pull / max(float(np.abs(pull).max()), TINY)))

    def _look(
        self, centre: Centre, sites: Sites, control: StepControl, grids: tuple[Grid | None, ...]
    ) -> EPState:
        """Solve under sites and project every active entry; grids of likelihoods are those of the last sweep."""
        roles, population = centre.roles, centre.population
        if not np.isfinite(sites).all():
            raise FloatingPointError
        mean, variance, log_z = centre.solve(sites.tau + centre.fixed_tau, sites.nu + centre.fixed_nu)
        if not np.isfinite(mean).all() or (variance < -ROUNDING * population).any():
            raise FloatingPointError
        variance = np.where(
            roles.exact | roles.known | (variance < 0), 0.0, variance
        )  # what is known has none
        spread = centre.dispersion
        if len(roles.sizes):
            assert centre.numbers is not None
            over = centre.numbers.variance / np.maximum(centre.numbers.mean, LEAST_SD**2)
            wide = np.minimum(SIZE_DISPERSION * variance / np.maximum(centre.expected, 1.0), over.max())
            spread = np.maximum(spread, wide)
        by_entry = Entries(mean, variance, *sites, centre.expected, centre.g, spread)
        found = self._projected(roles, by_entry, grids)
        tau, nu = (site.copy() for site in sites)
        for (index, _), part in zip(roles.active_noise, found, strict=True):
            tau[index], nu[index] = part.tau, part.nu
        if len(roles.sizes):
            assert centre.numbers is not None
            at = Entries(*(values[roles.sizes] for values in by_entry))
            told = partial(_log_told, roles, centre.g)
            found.append(size_sites(SizeLaws.of(centre.numbers), at, _exact_sizes(centre), told))
            tau[roles.sizes], nu[roles.sizes] = found[-1].tau, found[-1].nu
        return EPState(
            centre,
            sites,
            mean,
            variance,
            log_z,
            target=Sites(tau, nu),
            log_sites=sum(part.log_site for part in found),
            change=float(np.max([part.change for part in found], initial=0.0)),  # NaN if one is
            off=_away(roles, mean, variance) if self.centre == "mean" else 0.0,
            control=control,
            grids=tuple(part.grid for part in found),
        )

    def _projected(self, roles: Roles, by_entry: Entries, grids: tuple[Grid | None, ...]) -> list[Projected]:
        """The sites of every noise's entries; many entries are parts that threads share, each part its own numbers."""
        tilts, keep = roles.tilts, len(by_entry.mean) <= MOST_WITH_GRIDS

        def of_part(k: int) -> Projected:
            index, noise = roles.active_noise[k]
            here = Entries(*(values[index] for values in by_entry))
            if self.projection == "laplace":
                return laplace_site(noise, here)
            lattice, population = self.projection == "lattice", float(tilts.problem.most)
            made = summed_site(
                noise,
                here,
                grids[k] if grids else None,
                population,
                lattice=lattice,
                device=tilts.device,
                widest=WIDEST_CAVITY if len(roles.sizes) else np.inf,
            )
            return made if keep else made._replace(grid=None)

        parts = range(len(roles.active_noise))
        if len(by_entry.mean) <= MOST_AT_ONCE:
            return list(map(of_part, parts))
        with ThreadPoolExecutor(PROJECTING_THREADS) as pool:
            return list(pool.map(of_part, parts))

    def residual(self, state: EPState) -> float:
        """See :attr:`tolerance`."""
        return state.residual

    def target(self, state: EPState) -> float:
        """The tolerance; not below what Monte-Carlo error leaves to be found."""
        return max(self.tolerance, MONTE_CARLO_TOLERANCE if state.centre.structure.monte_carlo else 0.0)

    def report(self, state: EPState) -> dict[str, float]:
        """The evidence so far (without matrices there is none before the final draws) and the damping."""
        evidence = state.centre.gain + state.centre.constant + state.log_sites + state.log_z
        known = {} if np.isnan(evidence) else {"log_evidence": evidence}
        return {**known, "damping": state.control.step_size}

    def finish(self, state: EPState) -> Beliefs:
        """The Gaussian around the last centre."""
        centre, sites = state.centre, state.sites
        # Margins that leave a flow no choice are met by no finite tilts: there the Gaussian's mean has what the centre misses.
        missed = float(np.abs(state.mean[centre.roles.exact]).max(initial=0.0))
        settled = self.centre == "mean" and missed <= 10 * CLOSE_MARGIN * centre.population
        recall = centre.roles.solver.recall
        draws = {} if recall is None or recall.draws is None else {"draws": recall.numbers}
        tilts = centre.roles.tilts
        given = int(tilts.offsets[sum(site.source > IMPLIED for site in tilts.problem.sites)])
        more: dict[str, Any] = {
            **draws,
            "g": centre.g[:given],
            "tau": sites.tau[:given],
            "eta": state.eta[:given],
        }
        if given < len(centre.g):
            more["certain"] = len(centre.g) - given
        sharp = _sharp_readings(centre)
        if sharp:
            more["sharp_readings"] = (
                f"{sharp} readings are sharper than the step between two whole numbers and leave more than one of them: the evidence may "
                "be off by half a nat; Enumerate or PathGibbs take whole numbers as they are"
            )
        elif few_tables(tilts.problem):
            more["sharp_readings"] = (
                "exact counts and readings of moves leave few tables: means may be half a standard deviation off and the evidence half a "
                "nat or more; Enumerate or PathGibbs take whole numbers as they are"
            )
        log_sites, narrowest = state.log_sites, _narrowest_size(state)
        if narrowest < LEAST_LEFT:
            log_sites = math.nan
        if narrowest < FEW_NUMBERS:
            more["size_note"] = (
                "its posterior lies on two or three numbers, where tilted EP may be half a standard deviation off: Enumerate and "
                "PathGibbs take whole numbers as they are"
            )
        return gaussian_beliefs(
            centre, sites.tau, sites.nu, log_sites, settled=settled, log_z=state.log_z, more=more
        )


def _exact_sizes(centre: Centre) -> ExactSizes | None:
    """What exact counts leave of the one unknown size in a Poisson cloud with the centre's means; None without them.

    Two sizes or more are left as the Gaussian has them: exact counts tie them to each other, and with a correction of each alone 13 of 62
    random pairs ended nowhere that are answered without.
    """
    tau, roles = centre.poisson_tau, centre.roles
    if tau is None:
        return None
    assert centre.numbers is not None
    (own,), mean = roles.sizes, float(centre.numbers.mean[centre.numbers.unknown[0]])
    moved, left, _ = centre.solve(tau, np.zeros_like(tau))
    return ExactSizes(mean, mean + float(moved[own]), float(left[own]), *roles.size_range)


def _log_told(roles: Roles, g: Array, sizes: Sequence[Array]) -> Array:
    """Log-likelihood, less tilts, of the readings that sizes tell."""
    return sum((part.log_prob(sizes, g) for part in roles.told), start=np.zeros(()))


def _away(roles: Roles, mean: Array, variance: Array) -> float:
    """How far the mean is from the centre, in standard deviations; rounding, and what exact margins are met to, does not count."""
    if (roles.exact | roles.known).all():
        return 0.0
    off = np.abs(mean) / np.sqrt(np.maximum(variance, LEAST_SD**2))
    floor = 10 * np.where(roles.exact | roles.known, CLOSE_MARGIN, ROUNDING) * roles.tilts.problem.scale
    return float(np.where(np.abs(mean) > floor, off, 0.0).max(initial=0.0))


def _off_the_edge(centre: Centre) -> Centre:
    """The centre with the tilts undone that took an observed count from possible to nearly impossible.

    The most probable count may be zero where the mean is not; a Gaussian made there is too narrow to see the way back.
    """
    roles, n = centre.roles, float(centre.roles.tilts.problem.most)
    prior = roles.tilts.evaluate(np.zeros_like(centre.g))[1]
    left, had = (m * (1.0 - m / n) for m in (centre.expected, prior))
    lost = roles.active & (left < NEARLY_IMPOSSIBLE) & (left < NEARLY_IMPOSSIBLE * had)
    return (
        Centre.at(roles, meet_exact_margins(roles, np.where(lost, 0.0, centre.g))) if lost.any() else centre
    )


def _placed(state: EPState, x: Array) -> tuple[Centre, Sites]:
    """Centre and sites at ``x`` = (τ, η, g), η in the counts themselves."""
    roles, active = state.centre.roles, state.centre.roles.active
    tau, nu, g = np.zeros_like(state.mean), np.zeros_like(state.mean), state.centre.g.copy()
    tau[active], eta, g[~roles.exact] = np.split(x, np.cumsum([active.sum()] * 2))
    centre = state.centre if (g == state.centre.g).all() else Centre.at(roles, meet_exact_margins(roles, g))
    nu[active] = eta - tau[active] * centre.expected[active] - centre.g[active]
    return centre, Sites(tau, nu)


def _iterate(state: EPState, pull: Array) -> Iterate:
    """Sites of active entries in the counts themselves, and tilts of all but exact ones: (τ, η, g); and how far off they are."""
    sites, target, centre = state.sites, state.target, state.centre
    active, free = centre.roles.active, ~centre.roles.exact
    tau = target.tau - sites.tau
    more = target.nu - sites.nu + tau * centre.expected
    return Iterate(
        np.concatenate([sites.tau[active], state.eta[active], centre.g[free]]),
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


def _sharp_readings(centre: Centre) -> int:
    """Readings that tell whole numbers apart and do not leave a single one, by the second difference of log l at the nearest number."""
    found = 0
    for index, noise in centre.roles.active_noise:
        if noise.any_real:
            below, here, above = (noise.log_prob(np.rint(centre.expected[index]) + k) for k in (-1, 0, 1))
            found += int((2 * here - below - above > SHARP).sum())
    return found


def _narrowest_size(state: EPState) -> float:
    """The least variance of an unknown size that exact counts do not tell; infinity where its law is a sum over it alone.

    That is where one table is read, and each reading is told by the size.
    """
    roles = state.centre.roles
    own = roles.sizes
    sites = roles.tilts.problem.sites
    read = {tuple(site.scope) for site in sites if not site.noise.of_size and site.source > IMPLIED}
    summed = len(read) == 1 and int(roles.active.sum()) == len(own)
    told = len(own) == 1 and roles.size_range[0] == roles.size_range[1]
    return math.inf if summed or told else float(state.variance[own].min(initial=math.inf))


def _map_tilts(tilts: Tilts, how: MapStart, g: Array | None) -> Array:
    """Tilts of the MAP estimate, from g; those of size sites stay zero but for vague laws (see `_of_vague_sizes`).

    MAP itself has no such sites: beside them its steps in N overshoot where counts disagree (400 and 600, then 300 and 690 of a chain
    that hardly changes: N = 978 after 58 iterations without them, stalled at 185 000 with them).
    """
    sites = tilts.problem.sites
    of_size = np.repeat([site.noise.of_size for site in sites], list(map(len, sites)))
    if not of_size.any():
        return _map_from(tilts, how, g)
    counted = tuple(site for site in sites if not site.noise.of_size)
    bare = Tilts(tilts.problem.with_sites(counted), tilts.device)
    numbers, made = bare.problem.numbers, np.zeros(len(of_size))
    if numbers is not None and any(law.vague for law in numbers.laws):
        made[~of_size], made[of_size] = _of_vague_sizes(bare, numbers, how)
    else:
        # g may come from a run without size sites.
        own = g if g is None or len(g) < len(of_size) else g[~of_size]
        made[~of_size] = _map_from(bare, how, own)
    return made


def _map_from(tilts: Tilts, how: MapStart, g: Array | None) -> Array:
    """Tilts of the MAP estimate, from g."""
    engine = MAP(tolerance=how.tolerance)
    end = iterate(engine, engine.start(tilts, g), patience=how.patience, gain=how.gain, look_first=True).state
    return end.objective.g(end.search.point)


def _of_vague_sizes(tilts: Tilts, numbers: Numbers, how: MapStart) -> tuple[Array, Array]:
    r"""Tilts of the most probable counts where hardly anything is said of sizes, and those of the size sites.

    Next to its pole :math:`\kappa` of such a law hardly changes, and the expected size runs from one individual to a billion: no search
    gets through. A Poisson law with the mean that the counts suggest stands in for it. At the maximum over N the tilt of a size is zero,
    so that the mean found is taken as the next law's, until it stays. The tilt of the size site is what is left to this mean.
    """
    g, found = first_tilts(tilts), numbers
    sizes = np.ones(len(numbers.laws)) if g is None else _numbers(tilts, g).mean
    for _ in range(STAND_IN_ROUNDS):
        laws = [
            PoissonSize(max(n, 1.0)) if law.vague else law for law, n in zip(numbers.laws, sizes, strict=True)
        ]
        near = Tilts(tilts.problem.with_laws(laws), tilts.device)
        g = _map_from(near, how, g)
        found = _numbers(near, g)
        moved = (np.abs(found.mean - sizes) / np.sqrt(np.maximum(found.mean, 1.0))).max()
        sizes = found.mean
        if moved < STAND_IN_CLOSE:
            break
    own = [
        law.tilt_to(max(float(n), SMALLEST_MEAN)) if law.vague else a
        for law, n, a in zip(numbers.laws, sizes, found.tilts, strict=True)
    ]
    assert g is not None
    more = (np.array(own) - found.tilts)[numbers.unknown]
    return g, np.append(more, 0.0) if len(more) == 2 else more  # two have a site on their sum, too


def _numbers(tilts: Tilts, g: Array) -> Numbers:
    """The laws of sizes at tilts."""
    found = tilts.law(g).numbers
    assert found is not None
    return found


SMALLEST_MEAN = 1.5
"""Mean of a vague law at the first centre, at least: between its least number, 1, and the next."""
STAND_IN_ROUNDS, STAND_IN_CLOSE = 20, 0.1
"""Rounds of a stand-in for a vague law, and the change of its mean, over its root, at which it stays: sweeps begin there, no more. One
round leaves 1/(1 + T) of the distance where T times are counted."""


class LikelySize(NamedTuple):
    """How many individuals of one kind there are: on average, and between which numbers lies all but a negligible part of the law."""

    low: int
    mean: float
    high: int


SIZE_REACH, SIZE_TAIL, SIZE_MORE = 9.0, 6.0, 10.0
"""Standard deviations from the mean of a size, scales var/mean of a skewed law's tail beyond them, and individuals more, within which sizes
are likely: less than 1e-10 lies outside."""


def likely_sizes(core: ClosedProblem, rng: np.random.Generator, *, share: float = 1.0) -> list[LikelySize]:
    """How many individuals every kind has, by an approximate answer in which all move alone; ``share`` scales the width of the windows."""
    assert core.numbers is not None
    alone = core.with_dispersion(None) if core.disperses else core
    about = TiltedEP(max_iterations=200).run(alone, rng=rng, progress=False).beliefs
    mean, variance = size_moments(about, core)
    reach = share * (SIZE_REACH * np.sqrt(variance) + SIZE_MORE)
    tail = share * SIZE_TAIL * variance / np.maximum(mean, 1.0)
    found = []
    for k, (m, down, up) in enumerate(zip(mean, reach, reach + tail, strict=True)):
        least, most = size_range(core, k)
        low, high = max(least, math.floor(m - down)), max(1, int(min(most, math.ceil(m + up))))
        found.append(LikelySize(int(min(low, high)), float(m), high))
    return found


def size_moments(beliefs: Beliefs, core: ClosedProblem) -> tuple[Array, Array]:
    """Means and variances of the sizes of all kinds on the larger graph (of a network, which is one kind, of its total)."""
    scope = (SIZES,) if SIZES in core.model.states else core.model.variables[:1]
    mean, spread = np.ravel(np.asarray(beliefs.mean(scope))), beliefs.has_spread
    variance = np.ravel(np.asarray(beliefs.variance(scope))) if spread else np.full(len(mean), math.nan)
    if SIZES not in scope:
        total = np.asarray(beliefs.covariance(scope, scope)).sum() if spread else math.nan
        mean, variance = mean.sum(keepdims=True), np.array([total])
    return np.maximum(mean, 0.0), np.maximum(variance, 0.0)
