"""Every problem as problems that engines take: a known number of individuals in one group, with a known phi of every step.

Unknown sizes are run at several sizes (``_sizes``); flocks for life are units, N/c of them with c individuals each, n = c m, exactly;
groups, tracks and arrivals are taken on their larger chain; and phi is read at the counts that it leads to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.engines._engine import Engine, independent_only
from headcount.engines._map import MAP
from headcount.engines._sizes import over_sizes
from headcount.individual import OpenChain
from headcount.observe import Exact, Observation, Poisson, ProblemError
from headcount.population import Company, Flocks, ToEstimate
from headcount.posterior._beliefs import Outcome, Status
from headcount.posterior._derived import UnitBeliefs, seen

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from headcount._types import Array
    from headcount.individual import RootedTree
    from headcount.observe import Problem

    Run = Callable[[Problem, Mapping[str, Any] | None], Outcome]

PHI_TOLERANCE = 1e-3
"""Relative change of phi at which the counts that rho is read at are settled: standard deviations are then right to 0.05 %."""
MOST_ROUNDS = 50
"""Times that phi may be read again. It contracts by about the share of a variance that the data leave, usually in 3 to 6."""


def answer(
    engine: Engine,
    problem: Problem,
    *,
    rng: np.random.Generator,
    progress: bool | None,
    start: Mapping[str, Any] | None = None,
) -> Outcome:
    """Run an engine on any problem that it can be asked about; ``start`` as in :meth:`Engine.run`."""

    def run(asked: Problem, last: Mapping[str, Any] | None) -> Outcome:
        return engine.run(asked, rng=rng, progress=progress, start=last)

    def reduced(asked: Problem, last: Mapping[str, Any] | None) -> Outcome:
        require_dispersion(engine, asked)
        together = asked.dispersion
        if isinstance(together, Flocks) and asked.disperses and not engine.takes_dispersion:
            units = in_units(asked)
            found = reduced(units, None)
            offset = units.log_offset - asked.log_offset  # the posterior adds that of individuals
            return replace(found, beliefs=UnitBeliefs.of(found.beliefs, together.size, offset))
        if not asked.size_known:
            # Phi of another size is no start for this one's.
            return over_sizes(engine, asked, lambda one, near: reduced(one, None if one.disperses else near))
        if asked.core is not asked:
            found = reduced(asked.core, last)
            return replace(found, beliefs=seen(asked, found.beliefs))
        if not engine.takes_dispersion:  # it draws the rows itself, or there is nothing to settle
            return run(asked, last)
        return _phi_settled(asked, run, last, rng)

    return reduced(problem, start)


def require_dispersion(engine: Engine, problem: Problem) -> None:
    """Refuse a problem of individuals that move together, where the engine knows independent ones only."""
    if isinstance(problem.dispersion, ToEstimate):
        raise ValueError(
            "the dispersion is to be estimated, and an engine needs one: headcount.infer(problem) estimates it; or give one, such as "
            "Flocks(5)"
        )
    together = problem.dispersion
    taken = engine.takes_dispersion or (engine.moves_units and isinstance(together, Flocks))
    taken |= engine.draws_rows and isinstance(together, Company) and together.rho is not None
    if problem.disperses and not taken:
        raise independent_only(engine, problem)


def _phi_settled(
    problem: Problem, run: Run, start: Mapping[str, Any] | None, rng: np.random.Generator
) -> Outcome:
    r"""Run with :math:`\phi_i = 1 + (\hat n_i - 1)\rho` at the run's own expected counts: a fixed point, each round started from the last.

    Problems without rho are run once, as they are. ``start`` is what a run on a similar problem left.
    """
    dispersion, tree = problem.dispersion, problem.model.rooted()
    if not problem.disperses or not isinstance(dispersion, Company) or dispersion.rho is None:
        return run(problem, start)
    assert tree is not None
    size = float(problem.population)
    phi = dispersion.phi_of(tree, size, _first_counts(problem, tree, start, rng).__getitem__)
    for rounds in range(1, MOST_ROUNDS + 1):
        fixed = Company(phi=dict(zip(tree.variables[1:], phi[1:], strict=True)), initial=float(phi[0][0]))
        outcome = run(problem.with_dispersion(fixed), start)
        beliefs = outcome.beliefs
        counts = {v: np.asarray(beliefs.mean((v,)), dtype=float) for v in tree.variables}
        used, phi = np.concatenate(phi), dispersion.phi_of(tree, size, counts.__getitem__)
        found = {
            "phi_rounds": rounds,
            "phi_counts": np.concatenate(list(counts.values())),
            "phi_smallest": float(used.min()),
            "phi_largest": float(used.max()),
        }
        start = beliefs.diagnostics
        if np.abs(np.concatenate(phi) / used - 1.0).max() <= PHI_TOLERANCE or not outcome.status.good:
            break
    else:
        outcome = replace(outcome, status=Status.BUDGET)
    kept = replace(beliefs, diagnostics={**beliefs.diagnostics, **found})  # type: ignore[type-var]
    return replace(outcome, beliefs=kept)


def _first_counts(
    problem: Problem, tree: RootedTree, start: Mapping[str, Any] | None, rng: np.random.Generator
) -> dict[Any, Array]:
    """Counts of every variable at which phi is first read: those that a run on a similar problem left, else MAP's if they moved alone.

    The model's own would not do: where the data are far from them, phi is large where nobody is and 1 where they are, and no tilts
    that sweeps can find bring them there.
    """
    known = None if start is None else start.get("phi_counts")
    if known is not None:
        return dict(zip(tree.variables, np.split(known, np.cumsum(tree.sizes)[:-1]), strict=True))
    alone = MAP().run(problem.with_dispersion(None), rng=rng, progress=False)
    return {v: np.asarray(alone.beliefs.mean((v,)), dtype=float) for v in tree.variables}


@dataclass(frozen=True, eq=False)
class UnitNoise(Observation):
    """log l(y | c m) as a function of m."""

    inner: Any = field(default=None, kw_only=True, metadata={"per": "all"})
    size: Any = field(default=1, kw_only=True, metadata={"per": "all"})

    def __post_init__(self) -> None:
        """Nothing is left to read: the inner noise is bound to its data."""

    def log_prob(self, n: ArrayLike) -> Array:
        """That of c n."""
        return np.asarray(self.inner.log_prob(self.size * np.asarray(n, dtype=float)))

    @property
    def domain_low(self) -> Array:
        """That of n over c."""
        return np.asarray(self.inner.domain_low) / self.size

    def take(self, index: ArrayLike) -> UnitNoise:
        """The same on some entries."""
        part = self.inner.take(index)
        return UnitNoise(part.counts, inner=part, size=self.size)


def in_units(problem: Problem) -> Problem:
    """The problem of N/c independent units, for engines that count individuals one by one.

    The law of m = n/c is that of N/c independent individuals; an observation of n is one of c m.

    Raises
    ------
    ProblemError
        If c is no whole number, or N or an exact count is no multiple of it.
    """
    assert isinstance(problem.dispersion, Flocks)
    size = problem.dispersion.size
    if wrong := _not_in_units(problem, size):
        raise ProblemError(wrong)
    return problem.of_units(int(size), lambda noise: _unit_noise(noise, int(size)))


def _not_in_units(problem: Problem, size: float) -> str | list[str]:
    """What keeps the individuals from being counted in whole flocks; nothing where they can be."""
    if not problem.size_known and not isinstance(problem.model, OpenChain):
        return "flocks of a population of unknown size are counted one by one only in an OpenChain: use TiltedEP, or give a number"
    if size != round(size) or any(n % size for n in _known_sizes(problem)):
        return (
            f"{problem.population} individuals in flocks of {size:g} are no whole number of flocks: give a size that divides the "
            "population, or use TiltedEP, which takes any size"
        )
    return [
        f"{site.names[int(k)]}: the exact count {site.noise.counts[k]:g} is no multiple of the flocks' size {size:g}"
        for site in problem.sites
        if site.noise.exact
        for k in np.flatnonzero(np.asarray(site.noise.counts) % size)
    ]


def _known_sizes(problem: Problem) -> list[int]:
    """The numbers of individuals that are known: of the population, or of its groups."""
    sizes = [problem.population] if problem.groups is None else [g.size for g in problem.groups.values()]
    return [n for n in sizes if isinstance(n, int)]


def _unit_noise(noise: Observation, size: int) -> Observation:
    if isinstance(noise, Exact):
        return noise.replaced({"counts": np.asarray(noise.counts) / size})
    if isinstance(noise, Poisson):
        return noise.replaced({"rate": noise.rate * size})
    return UnitNoise(noise.counts, inner=noise, size=size)
