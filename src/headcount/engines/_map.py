r"""The most probable counts, by their convex dual: one belief propagation per iteration, any shape, dense or sparse.

MAP minimises over tilts g

.. math:: D(g) = N\,[A(\theta+g) - A(\theta)] + \sum_k \sup_n\,[\log\ell(y_k \mid n) - g_k n],

with gradient :math:`N\mu(\theta+g) - n^*(g)`. Each noise chooses variables x for its own g, so that one quasi-Newton serves all:

===================  ==========================  ================================================  ====================
noise                g(x)                        n*                                                bounds on x
===================  ==========================  ================================================  ====================
Poisson-shaped       :math:`a e^{-x} - b`        :math:`e^x - s`                                   none
Gaussian, exact      x                           :math:`y - V x`                                   none
Laplace              x                           y                                                 :math:`\pm 1/b`
any log-concave      its slope at :math:`n^*`    :math:`\text{low} + e^x`                           none
===================  ==========================  ================================================  ====================

Where log ℓ is linear (a Poisson zero) g is fixed at its slope; an exact zero is :math:`g = -\infty`. A noise that is not
log-concave is replaced by a Poisson-shaped surrogate below it, renewed as the search goes on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from headcount._device import DEVICES, find_device
from headcount.engines._cost import point_device_memory, point_memory, point_seconds
from headcount.engines._tilting import Tilts
from headcount.engines.engine import IterativeEngine, number, one_of, whole
from headcount.errors import ProblemError
from headcount.posterior import Beliefs, PointBeliefs
from headcount.solve.lbfgs import Point, Search, advance, blocked
from headcount.tables import dense

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headcount._types import Array, Index, Mask
    from headcount.observe import ClosedProblem, Observation

ROUNDED = 1e-6
"""A miss this small may be rounding, where the search finds nothing better."""
RENEWED_AT = 0.1
"""Surrogates are renewed when the miss is this share of what their last renewal changed (or of the tolerance): searching on would find
the minimum of something that is about to change ten times as much."""


class Terms(NamedTuple):
    """One group's part of the dual at x."""

    g: Array
    slope: Array
    """dg/dx."""
    n: Array
    """n*."""
    curvature: Array
    """|dg/dx · dn*/dx|."""
    value: float
    """Total of sup[log ℓ − g n]."""


class DualGroup(ABC):
    """Entries (positions in the flat vector of all observed entries) whose duals have one form."""

    entries: Index

    @abstractmethod
    def start(self, g: Array | None) -> Array:
        """Variables at which g = 0 (the data's own estimate), or at which the tilts are the given ones."""

    @abstractmethod
    def terms(self, x: Array) -> Terms:
        """Evaluate."""

    @abstractmethod
    def primal(self, n: Array) -> float:
        """Σ log ℓ(y | n) of the group (of its surrogate, if it is one)."""

    def bounds(self) -> tuple[Array, Array]:
        """Lower and upper bounds on x."""
        size = len(self.entries)
        return np.full(size, -np.inf), np.full(size, np.inf)


@dataclass(frozen=True)
class PoissonShape(DualGroup):
    """a log(n + s) − b n + c."""

    entries: Index
    a: Array
    b: Array
    s: Array
    c: Array
    at: Array
    """A count at which the shape is good: where it touches the noise it stands for."""

    def start(self, g: Array | None) -> Array:
        """See :class:`DualGroup`."""
        pull = self.b if g is None else g[self.entries] + self.b
        some = pull > 0  # otherwise no finite n* has this tilt: start where the shape touches the noise
        return np.where(some, np.log(self.a / np.where(some, pull, 1.0)), np.log(self.at + self.s))

    def terms(self, x: Array) -> Terms:
        """See :class:`DualGroup`."""
        pull = self.a * np.exp(-x)
        n = np.exp(x) - self.s
        return Terms(pull - self.b, -pull, n, self.a, float((self.a * x - pull * n + self.c).sum()))

    def primal(self, n: Array) -> float:
        """See :class:`DualGroup`."""
        with np.errstate(divide="ignore"):
            return float((self.a * np.log(n + self.s) - self.b * n + self.c).sum())


@dataclass(frozen=True)
class Quadratic(DualGroup):
    """Gaussian noise of variance (or covariance) V; V = 0 is exact."""

    entries: Index
    y: Array
    v: Array
    constant: float

    def start(self, g: Array | None) -> Array:
        """See :class:`DualGroup`."""
        return np.zeros(len(self.entries)) if g is None else g[self.entries]

    def terms(self, x: Array) -> Terms:
        """See :class:`DualGroup`."""
        moved = self.v @ x if self.v.ndim == 2 else self.v * x
        own = np.diagonal(self.v) if self.v.ndim == 2 else self.v
        value = self.constant - float(x @ self.y) + 0.5 * float(x @ moved)
        return Terms(x, np.ones_like(x), self.y - moved, own, value)

    def primal(self, n: Array) -> float:
        """See :class:`DualGroup`."""
        if not self.v.any():
            return self.constant  # exact: whatever is off is the miss, not the gap
        gap = self.y - n
        solved = np.linalg.solve(self.v, gap) if self.v.ndim == 2 else gap / self.v
        return self.constant - 0.5 * float(gap @ solved)


@dataclass(frozen=True)
class Box(DualGroup):
    """log ℓ with a corner at y, linear on both sides (Laplace noise, bounds on the count): n* = y between the two slopes."""

    entries: Index
    y: Array
    lowest: Array
    highest: Array
    constant: float

    def start(self, g: Array | None) -> Array:
        """See :class:`DualGroup`."""
        return np.zeros(len(self.entries)) if g is None else np.clip(g[self.entries], *self.bounds())

    def terms(self, x: Array) -> Terms:
        """See :class:`DualGroup`."""
        return Terms(x, np.ones_like(x), self.y, np.zeros_like(x), self.constant - float(x @ self.y))

    def primal(self, n: Array) -> float:
        """See :class:`DualGroup`."""
        slope = np.where(n > self.y, self.lowest, self.highest)
        known = np.isfinite(slope)  # beyond a bound: whatever is off is the miss, not the gap
        return self.constant + float(np.where(known, slope, 0.0) @ (n - self.y))

    def bounds(self) -> tuple[Array, Array]:
        """See :class:`DualGroup`."""
        return self.lowest, self.highest


@dataclass(frozen=True)
class Inverse(DualGroup):
    """Any log-concave noise, by its own slope: g = ∂ log ℓ/∂n at n = low + e^x, so that n* is known without solving for it.

    Where the slope is finite at the lower end of the domain (a binomial count), n = low + e^x − 1 for x ≥ 0, and below that n* stays
    at the end while g rises on.
    """

    entries: Index
    noise: Observation

    @cached_property
    def low(self) -> Array:
        """The lower end of the domain; 0 where there is none, since counts have one."""
        return np.where(np.isfinite(self.noise.domain_low), self.noise.domain_low, 0.0)

    @cached_property
    def end(self) -> tuple[Mask, Array, Array]:
        """Where the slope is finite at the lower end, the slope there, and minus the curvature there."""
        with np.errstate(invalid="ignore", divide="ignore"):
            slope, bend = self.noise.slope(self.low), -self.noise.curvature(self.low)
        finite = np.isfinite(slope) & np.isfinite(bend) & (bend > 0)
        return finite, np.where(finite, slope, np.inf), np.where(finite, bend, 1.0)

    def start(self, g: Array | None) -> Array:
        """See :class:`DualGroup`."""
        finite, slope, bend = self.end
        wanted = np.zeros(len(self.entries)) if g is None else g[self.entries]
        room = self._room(np.where(finite, np.minimum(wanted, slope), wanted))
        inner = np.where(finite, np.log1p(room), np.log(np.maximum(room, 1e-300)))
        return np.where(finite & (wanted >= slope), (slope - wanted) / bend, inner)

    def terms(self, x: Array) -> Terms:
        """See :class:`DualGroup`."""
        finite, end, bend = self.end
        outside = finite & (x < 0)
        room = np.where(finite, np.expm1(np.maximum(x, 0.0)), np.exp(np.where(finite, 0.0, x)))
        n = self.low + room
        rate = np.where(finite, room + 1.0, room)  # dn/dx
        g = np.where(outside, end - bend * x, self.noise.slope(n))
        slope = np.where(outside, -bend, self.noise.curvature(n) * rate)
        value = float((self.noise.log_prob(n) - g * n).sum())
        return Terms(g, slope, n, np.where(outside, 0.0, np.abs(slope) * rate), value)

    def primal(self, n: Array) -> float:
        """See :class:`DualGroup`."""
        return float(self.noise.log_prob(np.maximum(n, self.low)).sum())

    def _room(self, g: Array) -> Array:
        """n − low where the slope is g, by bisection in its logarithm."""
        left, right = np.full(len(g), -60.0), np.full(len(g), 40.0)
        for _ in range(64):
            middle = 0.5 * (left + right)
            flat = self.noise.slope(self.low + np.exp(middle)) > g
            left, right = np.where(flat, middle, left), np.where(flat, right, middle)
        return np.exp(0.5 * (left + right))


@dataclass(frozen=True)
class Dual:
    """All observed entries, flat: groups with variables, and tilts that are settled."""

    groups: tuple[DualGroup, ...]
    fixed: Array
    constant: float
    surrogate: bool
    """Whether some group must be renewed as the expected counts move."""

    @cached_property
    def entries(self) -> Index:
        """Of every variable, in the groups' order."""
        return np.concatenate([np.zeros(0, np.intp), *(group.entries for group in self.groups)])

    @cached_property
    def box(self) -> tuple[Array, Array] | None:
        """Lower and upper bounds on all variables; None where there are none."""
        low, high = (
            np.concatenate([np.zeros(0), *(group.bounds()[side] for group in self.groups)]) for side in (0, 1)
        )
        return (low, high) if np.isfinite(low).any() or np.isfinite(high).any() else None


def dual_of(noises: Sequence[tuple[Index, Observation]], at: Array) -> Dual:
    """The dual of all observed entries; what is not log-concave is replaced by its surrogate at the expected counts ``at``."""
    groups: list[DualGroup] = []
    shapes: list[PoissonShape] = []
    fixed = np.zeros(len(at))
    constant, surrogate = 0.0, False
    for entries, noise in noises:
        if (group := _quadratic_or_box(noise, entries, fixed)) is not None:
            groups.append(group)
        elif noise.log_concave and not noise.poisson_shaped:
            constant += _settle_linear(noise, entries, fixed)
            bent = ~noise.linear()
            groups.append(Inverse(entries[bent], noise.take(bent)))
        else:
            surrogate |= not noise.log_concave
            # Below its domain a noise has neither a value nor a slope: its tangent is taken at the end.
            inside = np.maximum(at[entries], np.maximum(noise.domain_low, 1e-300))
            shape, more = _shape(noise, entries, inside, fixed)
            shapes.append(shape)
            constant += more
    if shapes:
        parts = zip(*(vars(shape).values() for shape in shapes), strict=True)
        groups.append(PoissonShape(*(np.concatenate(part) for part in parts)))
    return Dual(tuple(g for g in groups if len(g.entries)), fixed, constant, surrogate)


def _quadratic_or_box(noise: Observation, entries: Index, fixed: Array) -> DualGroup | None:
    """The group of a noise whose g is its own variable (None of others); exact zeros are settled in ``fixed``."""
    counts = np.asarray(noise.counts, dtype=float)
    if noise.corner_slopes is not None:
        return Box(entries, counts, *noise.corner_slopes, float(noise.log_prob(counts).sum()))
    if noise.exact:
        some = counts > 0
        fixed[entries[~some]] = -np.inf
        return Quadratic(entries[some], counts[some], np.zeros(int(some.sum())), 0.0)
    v = noise.gaussian_variance
    return None if v is None else Quadratic(entries, counts, v, float(noise.log_prob(counts).sum()))


def _settle_linear(noise: Observation, entries: Index, fixed: Array) -> float:
    """Settle the tilts of entries whose log ℓ is a line, in ``fixed``; the sum of their intercepts."""
    linear = noise.linear()
    if not linear.any():
        return 0.0
    one = np.ones(len(entries))
    slope = noise.slope(one)
    fixed[entries[linear]] = slope[linear]
    return float((noise.log_prob(one) - slope)[linear].sum())


def _shape(noise: Observation, entries: Index, at: Array, fixed: Array) -> tuple[PoissonShape, float]:
    """The Poisson shape of a site; entries without a logarithm are settled in ``fixed``."""
    a, b, s = noise.concave_part(at) if noise.poisson_shaped else _tangent(noise, at)
    with np.errstate(divide="ignore", invalid="ignore"):
        c = noise.log_prob(at) - np.where(a > 0, a * np.log(at + s), 0.0) + b * at
    straight = a <= 0
    fixed[entries[straight]] = -b[straight]
    free = ~straight
    return PoissonShape(entries[free], a[free], b[free], s[free], c[free], at[free]), float(c[straight].sum())


def _tangent(noise: Observation, at: Array) -> tuple[Array, Array, Array]:
    """A Poisson shape with the noise's slope and (where concave) curvature at the counts ``at``; a line where no one can be."""
    empty = at <= 1e-300
    at = np.maximum(at, 1e-6)
    a = np.where(empty, 0.0, np.maximum(-noise.curvature(at), 0.0) * at**2)
    return a, a / at - noise.slope(at), np.zeros_like(at)


class _Parts(NamedTuple):
    """The dual at x, summed up, and by variable."""

    value: float
    largest: float
    """Size of the terms that the value is the sum of."""
    pull: Array
    """g, by variable."""
    expected: Array
    """N μ(θ+g) at all observed entries."""
    gradient: Array
    curvature: Array
    missed: float
    """Σ|Nμ − n*|, where it can be mended."""


def _not_finite(problem: ClosedProblem) -> str:
    """Where noises have no finite log-probability, slope or curvature at the counts that the model expects."""
    wrong = []
    for site in problem.sites:
        n = site.margin(problem.scale * np.ravel(dense(problem.model.marginal(site.scope))))
        for name in ("log_prob", "slope", "curvature"):
            with np.errstate(all="ignore"):
                bad = ~np.isfinite(np.broadcast_to(getattr(site.noise, name)(n), n.shape))
            wrong += [
                f"{type(site.noise).__name__}.{name} at {site.names[k]}" for k in np.flatnonzero(bad).tolist()
            ]
    where = f"no finite number is {', '.join(wrong[:5])}" if wrong else "values are too large"
    return f"the most probable counts cannot be found: {where}: correct the noise, or leave slope and curvature out of its class"


@dataclass(frozen=True)
class DualObjective:
    """The dual as a function of x, and what is known at an evaluated point."""

    tilts: Tilts
    dual: Dual

    def __call__(self, x: Array) -> Point:
        """Value, gradient and diagonal curvature."""
        parts = self._parts(x)
        if parts is None:
            return Point(x, np.inf, np.zeros_like(x), np.ones_like(x))
        floor = 1e-12 * max(float(parts.curvature.max(initial=0.0)), 1e-100)  # a step that is a number
        return Point(
            x,
            parts.value,
            parts.gradient,
            np.maximum(parts.curvature, floor),
            parts,
            self.dual.box,
            4e-16 * (self.tilts.problem.scale + abs(self.dual.constant) + parts.largest),
        )

    def miss(self, point: Point) -> float:
        """Σ|Nμ − n*| / N, averaged over the observed tables."""
        parts: _Parts | None = point.extra  # type: ignore[assignment]
        return np.inf if parts is None else self.share(parts.missed)

    def share(self, individuals: float) -> float:
        """Of N, averaged over the observed tables."""
        problem = self.tilts.problem
        return individuals / problem.scale / max(len(problem.sites), 1)

    def g(self, point: Point) -> Array:
        """The tilts of all observed entries."""
        g = self.dual.fixed.copy()
        g[self.dual.entries] = self._found(point).pull
        return g

    def expected(self, point: Point) -> Array:
        """N μ(θ+g) at all observed entries."""
        return self._found(point).expected

    def _found(self, point: Point) -> _Parts:
        """What is known at a point; refused where the objective has no value there."""
        parts: _Parts | None = point.extra  # type: ignore[assignment]
        if parts is None:
            raise ProblemError(_not_finite(self.tilts.problem))
        return parts

    def gap(self, point: Point) -> float:
        """How far the dual lies above the primal at the counts expected there, in nats."""
        expected = self.expected(point)
        gap = 0.0
        for group, x in self._by_group(point.x):
            part, here = group.terms(x), expected[group.entries]
            gap += part.value - group.primal(here) + float(part.g @ here)
        return gap

    def _by_group(self, x: Array) -> Iterator[tuple[DualGroup, Array]]:
        at = 0
        for group in self.dual.groups:
            yield group, x[at : at + len(group.entries)]
            at += len(group.entries)

    def _parts(self, x: Array) -> _Parts | None:
        """Noise by noise, and one belief propagation; None where the dual is not finite."""
        dual = self.dual
        terms = [group.terms(part) for group, part in self._by_group(x)]
        value = dual.constant + sum(part.value for part in terms)
        if not np.isfinite(value):
            return None
        pull, slope, n, bend = _joined(terms)
        g = dual.fixed.copy()
        g[dual.entries] = pull
        try:
            gain, expected = self.tilts.evaluate(g)
        except FloatingPointError:  # infinitely many individuals
            return None
        here = expected[dual.entries]
        off = here - n
        gradient = slope * off
        out = blocked(x, gradient, dual.box)
        missed = float(np.abs(off if out is None else off[~out]).sum())
        largest = sum(abs(part.value) for part in terms) + abs(gain)
        curvature = slope**2 * here + bend
        return _Parts(value + gain, largest, pull, expected, gradient, curvature, missed)


def _joined(terms: Sequence[Terms]) -> tuple[Array, ...]:
    """g, dg/dx, n* and the curvature of all variables, from those of the groups."""
    if len(terms) == 1:
        return terms[0][:4]
    return tuple(np.concatenate([np.zeros(0), *(part[k] for part in terms)]) for k in range(4))


@dataclass(frozen=True)
class MapState:
    """Where the minimisation stands."""

    objective: DualObjective
    search: Search
    jump: float
    """With surrogates: the miss right after they were last renewed, or by how much that moved the expected counts, if that is more."""

    @classmethod
    def start(cls, objective: DualObjective, g: Array | None, before: Array | None = None) -> MapState:
        """At the data's own estimate, or at given tilts; ``before``: the expected counts at which surrogates were made."""
        groups = objective.dual.groups
        point = objective(np.concatenate([np.zeros(0), *(group.start(g) for group in groups)]))
        jump = objective.miss(point)
        if objective.dual.surrogate and before is not None and np.isfinite(jump):
            # A surrogate that is a line has a settled tilt and so no miss.
            jump = max(jump, objective.share(np.abs(objective.expected(point) - before).sum()))
        return cls(objective, Search.at(point), jump)


FIRST_FACTORS = (1e-3, 1e6)
"""Range of factors on the counts at which tilts are first read."""
HALVINGS = 40
"""Steps by which the factor is found: to 1e-10 of its logarithm's range."""


def first_tilts(tilts: Tilts) -> Array | None:
    """Tilts at which sizes that are not known have a law near the data: the slopes of all likelihoods at a multiple of the counts.

    The larger the multiple, the lower the slopes and the fewer individuals they ask for. The multiple is taken at which they ask for
    what the counts were multiplied by; None where nothing is seen.
    """
    if not tilts.problem.sites:
        return None
    noises = [(index, noise, _own_counts(noise)) for index, noise in tilts.problem.noises]

    def at(factor: float) -> tuple[Array, Array]:
        """Tilts, and the counts at which they were read."""
        g = np.zeros(int(tilts.offsets[-1]))
        n = np.zeros_like(g)
        for index, noise, counts in noises:
            if noise.exact:
                n[index] = factor * counts
                g[index] = np.where(counts > 0, 1.0 / factor - 1.0, -np.inf)
            else:
                n[index] = np.maximum(factor * counts, noise.domain_low + LEAST_COUNT)
                g[index] = np.clip(np.nan_to_num(np.asarray(noise.slope(n[index]))), -STEEPEST, STEEPEST)
        return g, n

    low, high = np.log(FIRST_FACTORS)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        g, n = at(float(np.exp(middle)))
        try:
            enough = tilts.evaluate(g)[1].sum() <= n.sum()
        except FloatingPointError:
            enough = False
        low, high = (low, middle) if enough else (middle, high)
    return at(float(np.exp(high)))[0]


LEAST_COUNT, STEEPEST = 0.5, 5.0
"""Count at which the slope of a likelihood is first read, at least, and its largest size: where a search begins, no more."""


def _own_counts(noise: Observation) -> Array:
    """The counts that each reading suggests by itself, at least one half."""
    rate = np.asarray(getattr(noise, "rate", getattr(noise, "detection", 1.0)), dtype=float)
    return np.where(np.asarray(noise.counts) > 0, np.abs(noise.counts) / np.maximum(rate, 1e-9), LEAST_COUNT)


@dataclass(frozen=True)
class MAP(IterativeEngine):
    r"""Maximise the Stirling approximation of :math:`p(n, y)` over consistent tables (Sheldon et al. 2013), by its dual.

    A point estimate: no spread. ``log_evidence`` is the optimal value, which is what learning with MAP ascends.

    Parameters
    ----------
    tolerance
        On the distance between both sides of the dual, ``Σ|Nμ − n*| / N`` averaged over the observed tables.
    device
        ``"cuda"`` passes over transitions on a graphics card, in double precision; it needs the extra ``gpu`` (CuPy).
    """

    rules: ClassVar = {"tolerance": number(), "max_iterations": whole(), "device": one_of(*DEVICES)}
    name: ClassVar[str] = "MAP"
    point: ClassVar[bool] = True
    takes_dispersion: ClassVar[bool] = True
    takes_numbers: ClassVar[bool] = True
    tolerance: float = 1e-8
    max_iterations: int = 5000
    device: Literal["cpu", "cuda"] = "cpu"

    def memory(self, problem: ClosedProblem) -> int:
        """See `Engine`."""
        return point_memory(problem, on_device=self.device != "cpu")

    def device_memory(self, problem: ClosedProblem) -> int:
        """See `Engine`."""
        return 0 if self.device == "cpu" or problem.model.rooted() is None else point_device_memory(problem)

    def seconds(self, problem: ClosedProblem, speed: float) -> float:
        """See `Engine`."""
        del speed
        return point_seconds(problem)

    def init(
        self, problem: ClosedProblem, rng: np.random.Generator | None = None, *, g: Array | None = None
    ) -> MapState:
        """Start at the data's own estimate (g = 0), or at given tilts."""
        del rng
        return self.start(Tilts(problem, find_device(self.device)), g)

    @staticmethod
    def start(tilts: Tilts, g: Array | None = None) -> MapState:
        """As :meth:`init`, where the tilts are there already."""
        problem = tilts.problem
        if g is None and problem.numbers is not None and not problem.numbers.known:
            g = first_tilts(tilts)
        if all(s.noise.log_concave or s.noise.exact for s in problem.sites):
            at = np.ones(int(tilts.offsets[-1]))
        else:
            at = tilts.evaluate(np.zeros(int(tilts.offsets[-1])) if g is None else g)[1]
        return MapState.start(DualObjective(tilts, dual_of(tilts.problem.noises, at)), g, at)

    def resume(self, problem: ClosedProblem, rng: np.random.Generator, start: Mapping[str, Any]) -> MapState:
        """Start at the tilts of a similar problem."""
        return self.init(problem, rng, g=start.get("g"))

    def step(self, state: MapState) -> MapState:
        """One quasi-Newton step; surrogates of noises that are not log-concave are renewed when they are used up."""
        objective, point = state.objective, state.search.point
        if self._renews(state):
            at = objective.expected(point)
            renewed = dual_of(objective.tilts.problem.noises, at)
            return MapState.start(DualObjective(objective.tilts, renewed), objective.g(point), at)
        return MapState(objective, advance(state.search, objective), state.jump)

    def residual(self, state: MapState) -> float:
        """The miss; with surrogates, the larger of it and of the last renewal's jump."""
        miss = state.objective.miss(state.search.point)
        return max(miss, state.jump) if state.objective.dual.surrogate else miss

    def done(self, state: MapState) -> bool:
        """At the tolerance; or near it, where no decrease can be measured any more: rounding is the floor."""
        residual = self.residual(state)
        return residual <= self.tolerance or (state.search.failed and residual < ROUNDED)

    def stuck(self, state: MapState) -> bool:
        """Where no decrease can be found, and no surrogate is about to be renewed."""
        return state.search.failed and not self._renews(state)

    def _renews(self, state: MapState) -> bool:
        """Whether surrogates are used up: the miss is small against what their last renewal changed."""
        objective, point = state.objective, state.search.point
        settled = RENEWED_AT * max(state.jump, self.tolerance)
        return objective.dual.surrogate and objective.miss(point) <= settled

    def report(self, state: MapState) -> dict[str, float]:
        """The dual value."""
        return {"objective": state.search.point.value}

    def finish(self, state: MapState) -> Beliefs:
        """Expected counts of the tilted law."""
        objective, point = state.objective, state.search.point
        g = objective.g(point)
        model, _ = objective.tilts.model(g)
        return PointBeliefs(
            model,
            objective.tilts.law(g, in_factors=True).population,
            log_evidence=point.value,
            diagnostics={"gap": objective.gap(point), "g": g},
        )
