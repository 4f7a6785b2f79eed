r"""A centre: the tilted law the Gaussian is made at, and what the observations become there.

At tilts g the posterior is :math:`\mathrm{CGM}(N, \theta+g)\prod\ell(y\mid n)e^{-gn}`. The first factor gets the
Gaussian, the rest become sites in deviations from :math:`N\mu(\theta+g)`. Linear likelihoods vanish into
a tilt by their slope, exact ones become constraints, Gaussian ones are sites as they are;
everything else is ``active`` and is approximated.

Tilts under which exactly seen counts are expected exactly (:func:`meet_exact_margins`): with those of all other entries given, they
minimise :math:`N\,[A(\theta+g) - A(\theta)] - \sum_{k\,\mathrm{exact}} g_k y_k`, the dual of MAP with nothing else in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headcount.engines._cost import MOST_AT_ONCE
from headcount.engines._map import MAP, Dual, DualObjective, MapState, Quadratic
from headcount.engines._tilting import TiltedLaw, Tilts, kind_on_device, read_twice
from headcount.engines.engine import iterate
from headcount.engines.tilted._projection import LEAST_SD
from headcount.population import PoissonSize
from headcount.posterior.program import size_range, told_by_sizes
from headcount.structure import KnownCounts, Solver, Structure, kind_of, structure_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from headcount._types import Array, Mask
    from headcount.individual import FactoredTree, Model, RootedTree
    from headcount.observe import ClosedProblem, Observation
    from headcount.population import Numbers


CLOSE_MARGIN = 1e-9
"""Σ|Nμ − y| / N at which exact margins count as met, where they cannot be met to rounding. Margins that leave a flow no choice are met
to about 1e-10 when the tilts begin to run away. Of 480 searches (120 random chains, 10 to 10⁵ individuals, some with zeros) all went
below 6e-10."""
MOST_MARGIN_STEPS = 500
"""Iterations after which these tilts are taken as they are. The same searches took 11 in the median, 42 in the 99th percentile, 360 at
most."""
LOWER_TILTS = (0.0, *2.0 ** np.arange(-10, 6))
"""By how much tilts of exact counts are lowered, in turn, where those of all others have no law with them."""
POLISHED_MARGIN = MAP(tolerance=1e-13, max_iterations=3)
"""The last steps of such a search, down to rounding."""
SHARP = 1.0
"""Gaussian readings with an sd below this tell whole numbers apart. The line and the whole numbers differ by exp(−2π² sd²)."""
MOST_WHOLE = 10**10
"""Expected counts are rounded by about 1e-13 N; in larger populations whole numbers are not told apart by any reading."""

JOINT_SITES = 3
"""Sites of sizes, at most, that are projected together: of two sizes and their sum."""
MISSED = 1e-6
"""Individuals below zero that are rounding."""
LEAST_SPREAD = 1e-12
"""Binomial variance, relative to N, below which a count is known and its dispersion is rounding divided by rounding."""


WITH_MATRICES = Solver()


def sharp(noise: Observation, population: float) -> Mask:
    """At which entries it tells whole numbers apart. Correlated errors are always taken on the line."""
    v = noise.gaussian_variance
    if v is not None and v.ndim == 1 and population <= MOST_WHOLE:
        return v < SHARP**2
    return np.zeros(noise.counts.shape, dtype=bool)


class ToldBySizes(NamedTuple):
    """Readings of counts :math:`n = c + SN` that exact counts make a function of the sizes N; flat positions, noise, S and c."""

    entries: NDArray[np.intp]
    noise: Observation
    slopes: Array
    without: Array

    def log_prob(self, sizes: Sequence[Array], g: Array) -> Array:
        """The sum of log ℓ(y | n) − g n, at sizes that are broadcast against each other; −∞ where a count would be negative."""
        n = self.without + sum(
            slope * np.asarray(size)[..., None] for slope, size in zip(self.slopes.T, sizes, strict=True)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            log_p = self.noise.log_prob(np.maximum(n, 0.0)) - g[self.entries] * n
        return np.where(n > -MISSED, log_p, -np.inf).sum(axis=-1)


def _told_by_sizes(problem: ClosedProblem, which: Mask) -> tuple[ToldBySizes, ...]:
    """The readings among some entries that exact counts make functions of the sizes, by noise."""
    found = told_by_sizes(problem)
    if found is None:
        return ()
    slopes, without = found
    which = which & ~np.isnan(without)
    return tuple(
        ToldBySizes(index[pick], noise.take(pick), slopes[index[pick]], without[index[pick]])
        for index, noise in problem.noises
        for pick in [np.flatnonzero(which[index])]
        if len(pick)
    )


@dataclass(frozen=True)
class Roles:
    """What each observed entry (flat) is to a Gaussian engine. Depends on the problem only."""

    tilts: Tilts
    active: Mask
    linear: Mask
    exact: Mask
    gaussian: Mask
    known: Mask
    """Readings of what exact counts say already: a constant factor."""
    values: Array
    """What is read there; 0 elsewhere."""
    solver: Solver = WITH_MATRICES
    """How the Gaussian's moments are found."""
    sizes: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    """Entries that are sizes of groups (`_size_sites`): active, too."""
    told: tuple[ToldBySizes, ...] = ()
    """Readings of counts that are a function of the sizes, given exact counts: projected with these."""

    @classmethod
    def of(cls, tilts: Tilts, *, whole: bool = False, solver: Solver | None = None) -> Roles:
        """Sort the entries. Where counts are taken as ``whole`` numbers, readings sharp enough to tell them apart are active."""
        sites, solver = tilts.problem.sites, WITH_MATRICES if solver is None else solver
        if tilts.device is not None:
            solver = solver._replace(structure=kind_on_device(tilts.problem, solver.structure))
        if not sites:
            nothing = np.zeros(0, bool)
            return cls(tilts, nothing, nothing, nothing, nothing, nothing, np.zeros(0), solver)
        exact = np.concatenate([np.full(len(s), s.noise.exact) for s in sites])
        gaussian = np.concatenate([np.full(len(s), s.noise.gaussian and not s.noise.exact) for s in sites])
        if whole:
            gaussian &= ~np.concatenate([sharp(s.noise, tilts.problem.scale) for s in sites])
        values = read_twice(tilts.problem)
        known = ~np.isnan(values)
        sizes = np.concatenate([np.full(len(s), s.noise.of_size) for s in sites])
        known &= ~sizes
        gaussian &= ~known
        linear = np.concatenate([s.noise.linear() for s in sites]) & ~exact & ~gaussian & ~known & ~sizes
        active = ~(exact | gaussian | linear | known)
        read = np.where(known, values, 0.0)
        told = (
            _told_by_sizes(tilts.problem, active & ~sizes) if whole and 0 < sizes.sum() <= JOINT_SITES else ()
        )
        for part in told:
            active[part.entries] = False
        return cls(tilts, active, linear, exact, gaussian, known, read, solver, np.flatnonzero(sizes), told)

    @cached_property
    def matrix_free(self) -> bool:
        """Whether the structure is the one without matrices."""
        counts = int(self.tilts.offsets[-1])
        return kind_of(self.tilts.tree, self.solver.structure, counts=counts) == "matrix-free"

    @cached_property
    def size_range(self) -> tuple[float, float]:
        """The fewest and the most individuals that exact counts alone leave the group of unknown size."""
        numbers = self.tilts.problem.numbers
        assert numbers is not None
        laws = [law if law.is_known else PoissonSize(1.0) for law in numbers.laws]
        return size_range(self.tilts.problem.with_laws(laws), int(numbers.unknown[0]))

    @cached_property
    def linear_terms(self) -> tuple[Array, Array]:
        """Intercept and slope of log ℓ at the linear entries (zero elsewhere)."""
        zero, slope = np.zeros(len(self.linear)), np.zeros(len(self.linear))
        for start, site in zip(self.tilts.offsets[:-1], self.tilts.problem.sites, strict=True):
            where = slice(start, start + len(site))
            pick = self.linear[where]
            if pick.any():
                one = np.ones(len(site))
                slope[where] = np.where(pick, site.noise.slope(one), 0.0)
                zero[where] = np.where(pick, site.noise.log_prob(one) - slope[where], 0.0)
        return zero, slope

    @cached_property
    def closed_form(self) -> list[int]:
        """Positions of the exact and Gaussian sites."""
        return [k for k, s in enumerate(self.tilts.problem.sites) if s.noise.gaussian]

    @cached_property
    def active_noise(self) -> list[tuple[NDArray[np.intp], Observation]]:
        """Active entries by noise, at most `MOST_AT_ONCE` together: flat positions, and the noise on them."""
        return [
            (index[part], noise.take(part))
            for index, noise in self.tilts.problem.noises
            if not noise.of_size
            for pick in [np.flatnonzero(self.active[index])]
            for part in np.split(pick, range(MOST_AT_ONCE, len(pick), MOST_AT_ONCE))
            if len(part)
        ]


@dataclass(frozen=True)
class Centre:
    """The Gaussian law at tilts g."""

    roles: Roles
    g: Array
    gain: float
    """N (A(θ+g) − A(θ))."""
    population: float
    """Expected number of all individuals: N, where it is known."""
    numbers: Numbers | None
    """The sizes of groups at the centre, where one known number is not all."""
    expected: Array
    """N μ(θ+g) at the observed entries."""
    law: RootedTree | FactoredTree | Model
    """The tilted law, in factors where the structure has no matrices."""
    structure: Structure
    fixed_tau: Array
    fixed_nu: Array
    """Sites that no sweep changes: of uncorrelated Gaussian readings, and the slope that linear ones have left; zero elsewhere."""
    readings: Mapping[int, tuple[Array, Array]]
    """Of sites whose errors are correlated: the precision, and the slope at the centre."""
    constant: float
    """log of what linear, exact and Gaussian observations contribute besides the structure's log Z."""

    @classmethod
    def at(cls, roles: Roles, g: Array | None = None) -> Centre:
        """Tilt by g (not at all where it is None), and build the structure there."""
        tilts = roles.tilts
        g = np.zeros(int(tilts.offsets[-1])) if g is None else g
        made = tilts.law(g, in_factors=roles.matrix_free)
        expected = made.population * tilts.margins(made.law)
        if not np.isfinite(expected).all():
            raise FloatingPointError("the tilts have no law")
        known, tau, nu, constant = _closed_form_terms(roles, g, expected)
        structure = _structure(roles, made, known)
        law, gain, population, numbers = made
        return cls(
            roles,
            g,
            gain,
            population,
            numbers,
            expected,
            law,
            structure,
            tau,
            nu,
            known.readings,
            constant,
        )

    def solve(self, tau: Array, nu: Array) -> tuple[Array, Array, float]:
        """Mean deviations and variances of all observed entries under sites, flat, and log Z."""
        split = self.roles.tilts.split
        found = self.structure.solve(split(tau), split(nu))
        if not found.mean:
            return np.zeros(0), np.zeros(0), found.log_z
        return np.concatenate(found.mean), np.concatenate(found.variance), found.log_z

    def structure_given(self, known: KnownCounts) -> Structure:
        """The Gaussian law at the centre, with something else known in it."""
        made = TiltedLaw(self.law, self.gain, self.population, self.numbers)
        return _structure(self.roles, made, known, again=False)

    def correlated_pull(self, deviation: Array) -> Array:
        """What readings with correlated errors pull at this deviation, :math:`V^{-1}(y - n) - g`; zero at all other entries."""
        pull = np.zeros_like(self.g)
        offsets = self.roles.tilts.offsets
        for k, (precision, steep) in self.readings.items():
            where = slice(offsets[k], offsets[k + 1])
            pull[where] = steep - precision @ deviation[where]
        return pull

    @cached_property
    def poisson_tau(self) -> Array | None:
        """The site that makes the one unknown size beside exact counts a Poisson number; None where several are, or nothing is exact."""
        roles = self.roles
        if self.numbers is None or len(roles.sizes) != 1 or not roles.exact.any():
            return None
        mean, variance = (
            float(x[self.numbers.unknown[0]]) for x in (self.numbers.mean, self.numbers.variance)
        )
        tau = np.zeros_like(self.g)
        tau[roles.sizes] = 1.0 / mean - 1.0 / max(variance, LEAST_SD**2)
        return tau

    @cached_property
    def dispersion(self) -> Array:
        """Variance of every observed entry's count under the tilted law, as a multiple of the binomial's."""
        tilts, n = self.roles.tilts, float(self.roles.tilts.problem.most)
        plain = all(s.weights is None or (s.weights.data == 1.0).all() for s in tilts.problem.sites)
        if (tilts.flock is not None and plain) or not len(self.g):
            return np.full(len(self.g), tilts.flock or 1.0)
        variance = self.structure_given(KnownCounts.nothing()).unseen_variance()
        binomial = self.expected * (1.0 - self.expected / n)
        spread = binomial > LEAST_SPREAD * tilts.problem.scale
        ratio = np.concatenate(variance) / np.where(spread, binomial, 1.0)
        return np.where(spread & (ratio > 0), ratio, 1.0)

    def model(self) -> Model:
        """The tilted model."""
        tilts = self.roles.tilts
        return tilts.model(self.g)[0] if self.g.any() else tilts.problem.model


def _structure(roles: Roles, made: TiltedLaw, known: KnownCounts, *, again: bool = True) -> Structure:
    """The Gaussian law; ``again`` where it is one of a run's sweeps, which start from one another."""
    problem = roles.tilts.problem
    flock = roles.tilts.flock
    solver = roles.solver if again else roles.solver._replace(recall=None)
    return structure_for(
        made.law,
        made.population,
        problem.sites,
        known,
        solver=solver,
        flock=1.0 if flock is None else flock,
        spread=0.0 if made.numbers is None else float(made.numbers.variance.sum()),
    )


def _closed_form_terms(roles: Roles, g: Array, expected: Array) -> tuple[KnownCounts, Array, Array, float]:
    """Exact constraints, Gaussian sites, and the constants of everything that is not approximated."""
    exact: dict[int, Array] = {}
    readings: dict[int, tuple[Array, Array]] = {}
    tilts = roles.tilts
    zero, slope = roles.linear_terms
    tau, nu = np.zeros_like(g), np.where(roles.linear, slope - g, 0.0)
    constant = float(zero.sum() + nu @ expected)
    for k in roles.closed_form:
        site, start = tilts.problem.sites[k], tilts.offsets[k]
        where = slice(start, start + len(site))
        m, tilt = expected[where], g[where]
        noise = site.noise
        if noise.exact:
            y = np.asarray(noise.counts, dtype=float)
            exact[k] = y - m
            constant -= float((np.where(y > 0, tilt, 0.0) * y).sum())
        else:
            v = noise.gaussian_variance
            assert v is not None
            steep, mine = noise.slope(m) - tilt, roles.gaussian[where]
            if v.ndim == 2:
                readings[k] = (np.asarray(np.linalg.inv(v)), steep)
            else:
                tau[where], nu[where] = -noise.curvature(m) * mine, steep * mine
            constant += float((noise.log_prob(m) - tilt * m)[mine].sum())
    for k, site in enumerate(tilts.problem.sites):
        where = slice(tilts.offsets[k], tilts.offsets[k] + len(site))
        if roles.known[where].any():
            value = roles.values[where]
            given = site.noise.log_prob(value) - np.where(value > 0, g[where], 0.0) * value
            constant += float(given[roles.known[where]].sum())
    return KnownCounts(exact, readings), tau, nu, constant


def meet_exact_margins(roles: Roles, g: Array) -> Array:
    """The tilts g with those of exact entries changed so that Nμ is the exact count, starting from what they were.

    A search that has met the margins to `CLOSE_MARGIN` reaches its minimum within three quasi-Newton steps. Where margins leave a flow no
    choice but zero there is no minimum: tilts would run on, a nat per step, until the law has no Gaussian any more.
    """
    if not roles.exact.any():
        return g
    seen = np.flatnonzero(roles.exact & np.isfinite(g))  # an exact zero keeps its −inf
    y = np.concatenate([s.noise.counts for s in roles.tilts.problem.sites])[seen]
    objective = DualObjective(
        roles.tilts, Dual((Quadratic(seen, y, np.zeros(len(seen)), 0.0),), g, 0.0, False)
    )
    state = MapState.start(objective, g)
    lower = g.copy()
    for drop in LOWER_TILTS:  # until the number of individuals is finite, where it is not known
        if not np.isinf(state.jump):
            break
        lower[seen] = g[seen] - drop
        state = MapState.start(objective, lower)
    else:
        raise FloatingPointError("the tilts have no law")
    for engine in (MAP(tolerance=CLOSE_MARGIN, max_iterations=MOST_MARGIN_STEPS), POLISHED_MARGIN):
        state = iterate(engine, state, patience=engine.max_iterations, look_first=True).state
    return objective.g(state.search.point)
