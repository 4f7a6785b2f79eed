"""The most probable counts, by the convex dual (see ``_dual``): one belief propagation an iteration, any shape, dense or sparse."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from headcount.engines._beliefs import Beliefs, PointBeliefs
from headcount.engines._dual import Dual, dual_of
from headcount.engines._engine import IterativeEngine
from headcount.engines._lbfgs import Point, Search, advance
from headcount.engines._tilting import Tilts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from headcount.observe import Problem

    Array = NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """Everything one belief propagation told, over all observed entries."""

    g: Array
    gain: float
    """A(θ+g) − A(θ)."""
    expected: Array
    """N μ(θ+g)."""
    miss: float
    """max over groups of Σ|Nμ − n*| / N, per variable observed."""
    gap: float
    """Duality gap, in nats."""


@dataclass(frozen=True)
class MapState:
    """Where the minimisation stands."""

    tilts: Tilts
    dual: Dual
    search: Search
    jump: float = np.inf
    """With surrogates: the miss right after they were last renewed."""

    @property
    def evaluation(self) -> Evaluation:
        """What is known at the present point."""
        return self.search.point.extra  # type: ignore[return-value]


@dataclass(frozen=True)
class MAP(IterativeEngine):
    r"""Maximise the Stirling approximation of :math:`p(n, y)` over consistent tables (Sheldon et al. 2013), by its dual.

    A point estimate: no spread. ``log_evidence`` is the optimal value, which is what learning with MAP ascends.

    Parameters
    ----------
    tolerance
        On the distance between both sides of the dual, ``Σ|Nμ − n*| / N`` averaged over the observed tables.
    """

    name: ClassVar[str] = "MAP"
    tolerance: float = 1e-8
    max_iterations: int = 5000

    def init(
        self, problem: Problem, rng: np.random.Generator | None = None, *, g: Array | None = None
    ) -> MapState:
        """Start at the data's own estimate (g = 0), or at given tilts."""
        del rng
        tilts = Tilts(problem)
        if all(s.noise.log_concave or s.noise.exact for s in problem.sites):
            at = np.ones(int(tilts.offsets[-1]))
        else:
            at = problem.population * tilts.evaluate(np.zeros(int(tilts.offsets[-1])) if g is None else g)[1]
        dual = dual_of(problem.sites, at)
        x = np.concatenate([group.start(g) for group in dual.groups] or [np.zeros(0)])
        point = evaluate(tilts, dual, x)
        return MapState(tilts, dual, Search(point), point.extra.miss)  # type: ignore[attr-defined]

    def resume(self, problem: Problem, rng: np.random.Generator, start: Mapping[str, Any]) -> MapState:
        """Start at the tilts of a similar problem."""
        return self.init(problem, rng, g=start.get("g"))

    def step(self, state: MapState) -> MapState:
        """One quasi-Newton step; surrogates of noises that are not log-concave are renewed when they are used up."""
        if state.dual.surrogate and state.evaluation.miss <= max(0.1 * state.jump, 0.1 * self.tolerance):
            dual = dual_of(state.tilts.problem.sites, state.evaluation.expected)
            x = np.concatenate([group.start(state.evaluation.g) for group in dual.groups])
            point = evaluate(state.tilts, dual, x)
            return MapState(state.tilts, dual, Search(point), point.extra.miss)  # type: ignore[attr-defined]
        search = advance(state.search, lambda x: evaluate(state.tilts, state.dual, x))
        return replace(state, search=search)

    def residual(self, state: MapState) -> float:
        """The miss; with surrogates, the larger of it and of the last renewal's jump."""
        miss = state.evaluation.miss
        if state.search.failed and miss < 1e-6:
            miss = min(miss, self.tolerance)  # no decrease can be measured any more: rounding is the floor
        return max(miss, state.jump) if state.dual.surrogate else miss

    def report(self, state: MapState) -> dict[str, float]:
        """The dual value and the duality gap."""
        return {"objective": state.search.point.value, "gap": state.evaluation.gap}

    def finish(self, state: MapState) -> Beliefs:
        """Expected counts of the tilted law."""
        problem = state.tilts.problem
        model, _ = state.tilts.model(state.evaluation.g)
        return PointBeliefs(
            model,
            problem.population,
            log_evidence=state.search.point.value,
            diagnostics={"gap": state.evaluation.gap, "g": state.evaluation.g},
        )


def evaluate(tilts: Tilts, dual: Dual, x: Array) -> Point:
    """The dual, its gradient and diagonal curvature at x."""
    count = float(tilts.problem.population)
    g = dual.fixed.copy()
    terms = []
    value, at = dual.constant, 0
    largest = count + abs(dual.constant)
    for group in dual.groups:
        part = group.terms(x[at : at + len(group.entries)])
        g[group.entries] = part.g
        value += part.value
        largest += abs(part.value)
        terms.append(part)
        at += len(group.entries)
    if not np.isfinite(value):
        return Point(x, np.inf, np.zeros_like(x), np.ones_like(x))
    gain, mu = tilts.evaluate(g)
    value += count * gain
    expected = count * mu
    gradient, curvature = np.empty_like(x), np.empty_like(x)
    off = np.empty_like(x)
    gap, at = 0.0, 0
    for group, part in zip(dual.groups, terms, strict=True):
        where = slice(at, at + len(group.entries))
        here = expected[group.entries]
        off[where] = here - part.n
        gradient[where] = part.slope * off[where]
        curvature[where] = part.slope**2 * here + part.curvature
        gap += part.value - group.primal(here) + float(part.g @ here)
        at = where.stop
    floor = 1e-12 * max(float(curvature.max(initial=0.0)), 1e-300)
    low, high = dual.box or (None, None)
    point = Point(
        x,
        value,
        gradient,
        np.maximum(curvature, floor),
        low=low,
        high=high,
        rounding=4e-16 * (largest + count * abs(gain)),
    )
    blocked = point.blocked()
    missed = np.abs(off) if blocked is None else np.where(blocked, 0.0, np.abs(off))
    miss = float(missed.sum()) / count / max(len(tilts.problem.sites), 1)
    return replace(point, extra=Evaluation(g, gain, expected, miss, gap))
