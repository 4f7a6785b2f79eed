"""The most probable counts, by the convex dual (see ``_dual``): one belief propagation per iteration, any shape, dense or sparse."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from headcount._compile import worth
from headcount._device import DEVICES, find_device
from headcount.engines._engine import IterativeEngine, number, one_of, whole
from headcount.engines._tilting import Tilts
from headcount.engines.map._dual import Dual, Group, PoissonShape, dual_of, poisson_dual
from headcount.engines.map._lbfgs import Point, Search, advance, blocked
from headcount.posterior._beliefs import Beliefs, PointBeliefs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headcount._types import Array
    from headcount.observe import Problem


ROUNDED = 1e-6
"""A miss this small may be rounding, where the search finds nothing better."""

NUMPY_SECONDS = 3e-5
"""Time of one evaluation of the dual in NumPy, per small node."""


@dataclass(frozen=True)
class MapState:
    """Where the minimisation stands."""

    objective: Objective
    search: Search
    jump: float
    """With surrogates: the miss right after they were last renewed."""

    @classmethod
    def start(cls, objective: Objective, g: Array | None) -> MapState:
        """At the data's own estimate, or at given tilts."""
        groups = objective.dual.groups
        point = objective(np.concatenate([np.zeros(0), *(group.start(g) for group in groups)]))
        return cls(objective, Search.at(point), objective.miss(point))


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
    takes_dispersion: ClassVar[bool] = True
    takes_sizes: ClassVar = "point"
    tolerance: float = 1e-8
    max_iterations: int = 5000
    device: Literal["cpu", "cuda"] = "cpu"

    def init(
        self, problem: Problem, rng: np.random.Generator | None = None, *, g: Array | None = None
    ) -> MapState:
        """Start at the data's own estimate (g = 0), or at given tilts."""
        del rng
        return self.start(Tilts(problem, find_device(self.device)), g)

    @staticmethod
    def start(tilts: Tilts, g: Array | None = None) -> MapState:
        """As :meth:`init`, where the tilts are there already."""
        problem = tilts.problem
        if all(s.noise.log_concave or s.noise.exact for s in problem.sites):
            at = np.ones(int(tilts.offsets[-1]))
        else:
            at = problem.population * tilts.evaluate(np.zeros(int(tilts.offsets[-1])) if g is None else g)[1]
        return MapState.start(Objective(tilts, dual_of(tilts.problem.noises, at)), g)

    def resume(self, problem: Problem, rng: np.random.Generator, start: Mapping[str, Any]) -> MapState:
        """Start at the tilts of a similar problem."""
        return self.init(problem, rng, g=start.get("g"))

    def step(self, state: MapState) -> MapState:
        """One quasi-Newton step; surrogates of noises that are not log-concave are renewed when they are used up."""
        objective, point = state.objective, state.search.point
        if self._renews(state):
            renewed = dual_of(objective.tilts.problem.noises, objective.expected(point))
            return MapState.start(Objective(objective.tilts, renewed), objective.g(point))
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
        return objective.dual.surrogate and objective.miss(point) <= max(
            0.1 * state.jump, 0.1 * self.tolerance
        )

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
            objective.tilts.problem.population,
            log_evidence=point.value,
            diagnostics={"gap": objective.gap(point), "g": g},
        )


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


@dataclass(frozen=True)
class Objective:
    """The dual as a function of x, and what is known at an evaluated point."""

    tilts: Tilts
    dual: Dual

    def __call__(self, x: Array) -> Point:
        """Value, gradient and diagonal curvature."""
        parts = self._compiled(x) or self._plain(x)
        if parts is None:
            return Point(x, np.inf, np.zeros_like(x), np.ones_like(x))
        floor = 1e-12 * max(float(parts.curvature.max(initial=0.0)), 1e-300)
        return Point(
            x,
            parts.value,
            parts.gradient,
            np.maximum(parts.curvature, floor),
            parts,
            self.dual.box,
            4e-16 * (self.tilts.problem.population + abs(self.dual.constant) + parts.largest),
        )

    def miss(self, point: Point) -> float:
        """Σ|Nμ − n*| / N, averaged over the observed tables."""
        parts: _Parts = point.extra  # type: ignore[assignment]
        problem = self.tilts.problem
        return parts.missed / problem.population / max(len(problem.sites), 1)

    def g(self, point: Point) -> Array:
        """The tilts of all observed entries."""
        g = self.dual.fixed.copy()
        g[self.dual.entries] = point.extra.pull  # type: ignore[attr-defined]
        return g

    def expected(self, point: Point) -> Array:
        """N μ(θ+g) at all observed entries."""
        return point.extra.expected  # type: ignore[attr-defined]

    def gap(self, point: Point) -> float:
        """How far the dual lies above the primal at the counts expected there, in nats."""
        expected = self.expected(point)
        gap = 0.0
        for group, x in self._by_group(point.x):
            part, here = group.terms(x), expected[group.entries]
            gap += part.value - group.primal(here) + float(part.g @ here)
        return gap

    def _by_group(self, x: Array) -> Iterator[tuple[Group, Array]]:
        at = 0
        for group in self.dual.groups:
            yield group, x[at : at + len(group.entries)]
            at += len(group.entries)

    def _plain(self, x: Array) -> _Parts | None:
        """Group by group, whatever they are and whatever the model; None where the dual is not finite."""
        dual, count = self.dual, float(self.tilts.problem.population)
        terms = [group.terms(part) for group, part in self._by_group(x)]
        value = dual.constant + sum(part.value for part in terms)
        if not np.isfinite(value):
            return None
        g = dual.fixed.copy()
        pull = np.concatenate([np.zeros(0), *(part.g for part in terms)])
        g[dual.entries] = pull
        gain, mu = self.tilts.evaluate(g)
        expected = count * mu
        off, gradient, curvature = (np.empty_like(x) for _ in range(3))
        start = 0
        for group, part in zip(dual.groups, terms, strict=True):
            where = slice(start, start + len(group.entries))
            here = expected[group.entries]
            np.subtract(here, part.n, out=off[where])
            np.multiply(part.slope, off[where], out=gradient[where])
            np.add(part.slope**2 * here, part.curvature, out=curvature[where])
            start = where.stop
        out = blocked(x, gradient, dual.box)
        missed = float(np.abs(off if out is None else off[~out]).sum())
        largest = sum(abs(part.value) for part in terms) + count * abs(gain)
        return _Parts(value + count * gain, largest, pull, expected, gradient, curvature, missed)

    @cached_property
    def _packed(self) -> tuple[Any, ...] | None:
        """What the compiled evaluation needs besides x; None unless all terms are Poisson-shaped and nodes equal and dense."""
        grid, tree, groups = self.tilts.grid, self.tilts.tree, self.dual.groups
        if grid is None or tree is None or tree.packed is None or tree.phi is not None:
            return None
        if len(groups) != 1 or not isinstance(groups[0], PoissonShape):
            return None
        shape = groups[0]
        potentials = np.zeros((len(tree.sizes), tree.sizes[0]))
        potentials.ravel()[grid] = self.dual.fixed
        law = (tree.parent, np.ascontiguousarray(tree.initial), *tree.packed)
        count = float(self.tilts.problem.population)
        return potentials, grid, (shape.a, shape.b, shape.s, shape.c, grid[shape.entries], *law, count)

    def _compiled(self, x: Array) -> _Parts | None:
        """The same in one compiled function; None where it does not serve, or gives up."""
        if self._packed is None:
            return None
        potentials, grid, fixed = self._packed
        if not worth(poisson_dual, NUMPY_SECONDS * len(potentials)):
            return None
        made, room = np.empty((4, len(x))), np.empty((4, *potentials.shape))
        room[0] = potentials
        flat = room.reshape(4, -1)
        held, value, gain, missed = poisson_dual(x, *fixed, made, room, flat)
        gain *= self.tilts.problem.population
        total, largest = self.dual.constant + value + gain, abs(value) + abs(gain)
        g, _, gradient, curvature = made
        return _Parts(total, largest, g, flat[3, grid], gradient, curvature, missed) if held else None
