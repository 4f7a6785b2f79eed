"""Every problem as one that engines take: a cloud on its larger graph (`Problem.core`), with a known phi of every step.

Engines that know cumulants of sizes are given the cloud itself; engines that count individuals one by one are given a known number of
candidates, of whom some may be absent. What comes back is seen through the cloud's view.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.engines._engine import Engine, independent_only
from headcount.engines._map import MAP
from headcount.errors import NoPopulationError, shown
from headcount.observe import ProblemError
from headcount.observe._cloud import SIZES, Candidates
from headcount.population import Exactly, Flocks, Overdispersion, ToEstimate, Unknown
from headcount.posterior._beliefs import Nobody, Outcome, Sizes, Status
from headcount.posterior._derived import SummedBeliefs, ViewBeliefs
from headcount.posterior._one_cell import OneCellBeliefs, Readings, has_one_cell, laws_of_size
from headcount.posterior._program import MOST_NAMED, contradiction, size_range
from headcount.structure import Contradiction

if TYPE_CHECKING:
    from headcount._types import Array
    from headcount.individual import RootedTree
    from headcount.observe import Problem
    from headcount.population import SizeLaw

    Run = Callable[[Problem, Mapping[str, Any] | None], Outcome]

PHI_TOLERANCE = 1e-3
"""Relative change of phi at which the counts that rho is read at are settled: standard deviations are then right to 0.05 %."""
MOST_ROUNDS = 50
"""Times that phi may be read again. It contracts by about the share of a variance that the data leave, usually in 3 to 6."""
CANDIDATE_REACH = 9.0
"""Standard deviations above the mean of a size up to which there are candidates: beyond lies less than 1e-10 even of skewed laws, whose
tails of scale var/mean get `CANDIDATE_TAIL` of these scales more."""
CANDIDATE_TAIL = 6.0
UNCERTAIN, UNINFORMED = 0.5, 0.95
"""Relative sd of N (of `Unknown`), and share of the prior's sd that is left (of other laws), above which counts are said not to tell N."""


def answer(
    engine: Engine,
    problem: Problem,
    *,
    rng: np.random.Generator,
    progress: bool | None,
    start: Mapping[str, Any] | None = None,
) -> Outcome:
    """Run an engine on any problem that it can be asked about; ``start`` as in :meth:`Engine.run`.

    Raises
    ------
    ProblemError
        When no population has all exact counts; it names those that contradict each other, and by how much.
    """
    impossible = contradiction(problem.core) if start is None else None
    if impossible is not None:
        raise ProblemError(impossible)
    try:
        return _answered(engine, problem, rng, progress, start)
    except Contradiction as error:
        raise ProblemError(_contradiction(problem, error)) from error
    except FloatingPointError as error:  # before the first sweep: there is nothing to show
        raise ProblemError(
            f"{engine.name} finds nowhere to begin ({error}): use PathGibbs, or Enumerate for few individuals"
        ) from error


def _answered(
    engine: Engine,
    problem: Problem,
    rng: np.random.Generator,
    progress: bool | None,
    start: Mapping[str, Any] | None,
) -> Outcome:
    """`answer`, before contradictions among exact counts are named."""

    def run(asked: Problem, last: Mapping[str, Any] | None) -> Outcome:
        return engine.run(asked, rng=rng, progress=progress, start=last)

    if isinstance(problem.dispersion, ToEstimate):
        raise ValueError(
            "the dispersion is to be estimated, and an engine needs one: headcount.infer(problem) estimates it; or give one, such as "
            "Flocks(5)"
        )
    if engine.sums_one_cell and has_one_cell(problem):
        return _summed(problem)
    asked, candidates = problem.core, None
    if _is_empty(asked):
        raise ProblemError(
            "the exact counts are zeros that leave nobody in the population: nothing is to be inferred; leave it out"
        )
    if engine.adds_up_sizes and asked.numbers is not None and _one_unknown(problem):
        return _SumOverSizes(problem, run).outcome()
    if asked.numbers is not None and not engine.takes_numbers:
        candidates = _candidates(engine, problem)
        asked = problem.of_candidates(candidates)
    require_dispersion(engine, asked)
    # An engine without phi draws the rows itself, or there is nothing to settle.
    found = _phi_settled(asked, run, start, rng) if engine.takes_dispersion else run(asked, start)
    if asked is problem:
        return found
    return replace(found, beliefs=_seen(problem, found, candidates))


def _contradiction(problem: Problem, error: Exception) -> str:
    """What to say of exact counts that no configuration of individuals meets, with the counts."""
    exact = [site for site in problem.sites if site.noise.exact]
    named = [
        f"{name} = {y:g}"
        for site in exact
        for name, y in zip(site.names, site.noise.counts.tolist(), strict=True)
    ]
    return f"{error}: no configuration that the model and the population allow meets all of {shown(named, MOST_NAMED)}: correct one of them"


def _summed(problem: Problem) -> Outcome:
    """The exact answer to a problem of one cell."""
    law: Any = problem.population
    n, p, evidence = laws_of_size(Readings.of([problem.sites]), law)
    if not np.isfinite(evidence[0]):
        raise ProblemError(
            f"no number of individuals that {law.text} allows agrees with all counts: check the counts and the population"
        )
    beliefs = OneCellBeliefs(
        problem.model, n, p[:, 0], float(evidence[0]), {"exact": "one cell: a sum over N"}
    )
    return Outcome(beliefs, Status.EXACT)


ADDED_UP, MOST_SIZES = 24.0, 3000
"""An exact engine adds up sizes until one is this many nats (4e-11) below the best; and at most this many sizes."""


def _one_unknown(problem: Problem) -> bool:
    """Whether one size is not known, of a member of the cloud, and can be set to any number."""
    free = (
        [member for member in problem.cloud.members if member.law.variance > 0]
        if problem.model.larger()
        else []
    )
    return len(free) == 1


@dataclass
class _SumOverSizes:
    """Σ_N p(N) p(y | N) over the sizes of one member, each run by itself."""

    problem: Problem
    run: Run
    found: dict[int, tuple[float, Outcome]] = field(default_factory=dict)
    """log p(N, y) and the answer, by size."""

    @cached_property
    def free(self) -> int:
        """Which member has the size that is not known."""
        return next(k for k, member in enumerate(self.problem.cloud.members) if member.law.variance > 0)

    @property
    def law(self) -> SizeLaw:
        """Of that size."""
        return self.problem.cloud.members[self.free].law

    @cached_property
    def range(self) -> tuple[float, float]:
        """The sizes that exact counts leave possible."""
        return size_range(self.problem.core, self.free)

    def at(self, n: int) -> float:
        """log p(N = n, y); −inf where so many cannot have been counted so."""
        cloud = self.problem.cloud
        members = [replace(m, law=Exactly(n)) if k == self.free else m for k, m in enumerate(cloud.members)]
        known, sizes = replace(cloud, members=tuple(members)), [m.law.most for m in members]
        candidates = known.candidates(sizes, sizes)
        if sum(sizes) == 0:
            value = _log_likelihood_of_nobody(self.problem)
            outcome = Outcome(Nobody(self.problem.model, value), Status.EXACT)
        else:
            try:
                outcome = self.run(self.problem.of_candidates(candidates), None)
            except NoPopulationError:
                return -math.inf
            value = float(outcome.beliefs.log_evidence or 0.0)
            value -= candidates.log_sizes if len(members) > 1 else 0.0
            seen = ViewBeliefs(outcome.beliefs, known.view(), value, outcome.beliefs.diagnostics, candidates)
            outcome = replace(outcome, beliefs=seen)
        self.found[n] = value + float(self.law.log_pmf(n)), outcome
        return self.found[n][0]

    def outwards(self, n: int, step: int, best: float) -> float:
        """Run sizes from n on, upwards or downwards, until one is negligible; the largest log p(N, y)."""
        end = self.range[1] if step > 0 else self.range[0]
        tried = 0
        while (end - n) * step >= 0:
            value, tried = self.at(n), tried + 1
            best = max(best, value)
            if -math.inf < value < best - ADDED_UP or (value == -math.inf and step < 0 and self.found):
                break
            if tried > MOST_SIZES:
                raise ProblemError(
                    f"more than {MOST_SIZES} sizes of the population would have to be added up: use TiltedEP, or give a number"
                )
            n += step
        return best

    def outcome(self) -> Outcome:
        """All of them together."""
        middle = round(likely_sizes(self.problem.core, np.random.default_rng(0))[1][self.free])
        middle = int(min(max(middle, self.range[0]), self.range[1]))
        best = self.outwards(middle - 1, -1, self.outwards(middle, 1, -math.inf))
        if best == -math.inf:
            raise ProblemError(
                "no number of individuals agrees with the data: check the exact counts and zeros"
            )
        kept = {n: pair for n, pair in sorted(self.found.items()) if pair[0] > best - ADDED_UP}
        log_p = np.array([value for value, _ in kept.values()])
        total = best + math.log(np.exp(log_p - best).sum())
        weights = np.exp(log_p - total)
        members, parts = self.problem.cloud.members, [outcome for _, outcome in kept.values()]
        others = sum(m.weight * m.law.most for k, m in enumerate(members) if k != self.free)
        sizes = Sizes(members[self.free].weight * np.array(list(kept)) + others, weights / weights.sum())
        beliefs = SummedBeliefs(
            [part.beliefs for part in parts],
            sizes.probabilities,
            total,
            parts[0].beliefs.diagnostics,
            sizes,
            self.free,
        )
        return Outcome(beliefs, Status.EXACT, seconds=sum(part.seconds for part in parts))


def _is_empty(core: Problem) -> bool:
    """Whether exact zeros leave nobody, in a population of unknown size."""
    exact = [site for site in core.sites if site.noise.exact]
    if core.numbers is None or not exact or any(np.any(site.noise.counts) for site in exact):
        return False
    return all(size_range(core, k)[1] == 0 for k in range(len(core.numbers.laws)))


def _log_likelihood_of_nobody(problem: Problem) -> float:
    model = problem.model
    return problem.log_likelihood(lambda scope: np.zeros(model.size(scope)))


def _seen(problem: Problem, found: Outcome, candidates: Candidates | None) -> Any:
    """Beliefs about what is seen, from those about the cloud."""
    beliefs = found.beliefs
    if problem.model.larger() is None:  # a network of unknown size: its tables are those that are seen
        return beliefs
    evidence = beliefs.log_evidence
    if candidates is not None and evidence is not None:
        evidence -= candidates.log_sizes
    cloud = problem.cloud if candidates is None else candidates.cloud
    made = ViewBeliefs(beliefs, cloud.view(), evidence, beliefs.diagnostics, candidates)
    note = _size_note(problem, made)
    return replace(made, diagnostics={**beliefs.diagnostics, "size_note": note}) if note else made


def _size_note(problem: Problem, beliefs: ViewBeliefs) -> str:
    """What the counts leave open about N, in words; nothing where they tell it."""
    law, sizes = problem.population, beliefs.sizes
    if problem.size_known or sizes is None or not beliefs.has_spread:
        return ""
    sd = math.sqrt(float(np.square(sizes.values - sizes.mean) @ sizes.probabilities))
    if isinstance(law, Unknown):
        unbounded = sd > UNCERTAIN * sizes.mean
        return (
            "the counts hardly bound the number of individuals: say more about it (About, Between)"
            if unbounded
            else ""
        )
    if sd > UNINFORMED * math.sqrt(law.variance):
        return (
            "the counts say next to nothing about the number of individuals: its posterior is what was given"
        )
    return ""


def _candidates(engine: Engine, problem: Problem) -> Candidates:
    """As many candidates of every group of unknown size as it may well have, by a quick approximate answer.

    Raises
    ------
    ValueError
        From an engine that knows no candidates.
    """
    cloud = problem.cloud
    if cloud.sizes_known:
        numbers = [member.law.most for member in cloud.members]
        return cloud.candidates(numbers, numbers)
    if not engine.takes_candidates:
        raise ValueError(
            f"{engine.name} takes a known number of individuals only, and the population is {problem.population!r}: use TiltedEP "
            "(the default), MAP, Laplace, ClosedForm, Enumerate or PathGibbs, or give a number"
        )
    return cloud.candidates(*likely_sizes(problem.core, np.random.default_rng(0)))


def likely_sizes(core: Problem, rng: np.random.Generator) -> tuple[list[int], list[float]]:
    """How many individuals every group has at most, all but a negligible part of its law, and on average, by tilted EP."""
    from headcount.engines.tilted._tilted_ep import TiltedEP  # which this module serves, too

    assert core.numbers is not None
    alone = core.with_dispersion(None) if core.disperses else core
    about = TiltedEP(max_iterations=200).run(alone, rng=rng, progress=False).beliefs
    scope = (SIZES,) if SIZES in core.model.states else core.model.variables[:1]
    mean = np.maximum(np.ravel(about.mean(scope)), 0.0)
    variance = np.maximum(np.ravel(np.asarray(about.variance(scope))), 0.0)
    if SIZES not in scope:  # a network, with one group
        mean = mean.sum(keepdims=True)
        variance = np.maximum(np.asarray(about.covariance(scope, scope)).sum(keepdims=True).ravel(), 0.0)
    reach = CANDIDATE_REACH * np.sqrt(variance) + CANDIDATE_TAIL * variance / np.maximum(mean, 1.0) + 10.0
    most = [
        max(1, int(min(size_range(core, k)[1], math.ceil(m + r))))
        for k, (m, r) in enumerate(zip(mean, reach, strict=True))
    ]
    return most, mean.tolist()


def require_dispersion(engine: Engine, problem: Problem) -> None:
    """Refuse a problem of individuals that move together, where the engine knows independent ones only."""
    together = problem.dispersion
    taken = engine.takes_dispersion
    taken |= engine.draws_rows and isinstance(together, Overdispersion) and together.rho is not None
    if problem.disperses and not taken and isinstance(together, Flocks):
        raise ProblemError(_not_whole(problem, together.size))
    if problem.disperses and not taken:
        raise independent_only(engine, problem)


def _not_whole(problem: Problem, size: float) -> list[str]:
    """Why flocks cannot be counted as units."""
    found = [
        f"{site.names[int(k)]}: the exact count {site.noise.counts[k]:g} is no multiple of the flocks' size {size:g}"
        for site in problem.sites
        if site.noise.exact
        for k in np.flatnonzero(np.asarray(site.noise.counts) % size)
    ]
    return found or [
        f"{problem.population} individuals in flocks of {size:g} are no whole number of flocks: give a size that divides the "
        "population, or use TiltedEP, which takes any size"
    ]


def _phi_settled(
    problem: Problem, run: Run, start: Mapping[str, Any] | None, rng: np.random.Generator
) -> Outcome:
    r"""Run with :math:`\phi_i = 1 + (\hat n_i - 1)\rho` at the run's own expected counts: a fixed point, each round started from the last.

    Problems without rho are run once, as they are. ``start`` is what a run on a similar problem left.
    """
    dispersion, tree = problem.dispersion, problem.model.rooted()
    if not problem.disperses or not isinstance(dispersion, Overdispersion) or dispersion.rho is None:
        return run(problem, start)
    assert tree is not None
    size = problem.scale
    phi = dispersion.phi_of(tree, size, _first_counts(problem, tree, start, rng).__getitem__)
    for rounds in range(1, MOST_ROUNDS + 1):
        fixed = Overdispersion(
            phi=dict(zip(tree.variables[1:], phi[1:], strict=True)), initial=float(phi[0][0])
        )
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
