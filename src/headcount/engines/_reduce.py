"""Every problem as one that engines take: a cloud on its larger graph (`Problem.core`), with a known phi of every step.

Engines that know cumulants of sizes are given the cloud itself; engines that count individuals one by one are given a known number of
candidates, of whom some may be absent. What comes back is seen through the cloud's view.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.engines._map import MAP
from headcount.engines.engine import Engine, independent_only
from headcount.engines.tilted._tilted_ep import TiltedEP, likely_sizes, size_moments
from headcount.errors import NoPopulationError, shown
from headcount.observe import ProblemError
from headcount.observe.cloud import Candidates
from headcount.population import Exactly, Overdispersion, PoissonSize, as_law
from headcount.population._size import Within
from headcount.posterior import Beliefs, Outcome, Status
from headcount.posterior.derived import ViewBeliefs
from headcount.posterior.one_cell import OneCellBeliefs, OneCellReadings, has_one_cell, laws_of_size
from headcount.posterior.program import MOST_NAMED, contradiction, size_range
from headcount.structure import Contradiction

if TYPE_CHECKING:
    from headcount._types import Array
    from headcount.individual import RootedTree
    from headcount.observe import ClosedProblem, Problem

    Run = Callable[[ClosedProblem, Mapping[str, Any] | None], Outcome]

PHI_TOLERANCE = 1e-3
"""Relative change of phi at which the counts that rho is read at are settled: standard deviations are then right to 0.05 %."""
MOST_ROUNDS = 50
"""Times that phi may be read again. It contracts by about the share of a variance that the data leave, usually in 3 to 6."""
CLUMPED = 0.2
"""rho above which the evidence of a Gaussian with rho's variance is said to be uncertain. Against exact sums of 2 to 6 individuals in two
or three cells, beside flows and sums: off by .37 nats at most at .1 and by .47 at .2 (117 problems each), by more than .5 in 8 of 295 at .3
(.81 at most); with 7 to 13 individuals no better."""
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
    impossible = contradiction(problem) if start is None else None
    if impossible is not None:
        raise NoPopulationError(impossible)
    try:
        found = _answered(engine, problem, rng, progress, start)
        if found.status.good and found.beliefs.log_evidence == -math.inf:
            raise NoPopulationError(
                "no population agrees with the data: check the exact counts and the model's zeros"
            )
        return found
    except (Contradiction, FloatingPointError, NoPopulationError) as error:
        impossible = contradiction(problem, failed=True)
        if impossible is not None:
            raise NoPopulationError(impossible) from error
        if isinstance(error, FloatingPointError):  # before the first sweep: there is nothing to show
            sampler = "" if problem.model.rooted() is None else "PathGibbs, or "
            hint = f"use {sampler}Enumerate for few individuals"
            raise ProblemError(f"{engine.name} finds nowhere to begin ({error}): {hint}") from error
        if isinstance(error, Contradiction):
            raise NoPopulationError(_contradiction(problem, error)) from error
        raise


def _answered(
    engine: Engine,
    problem: Problem,
    rng: np.random.Generator,
    progress: bool | None,
    start: Mapping[str, Any] | None,
) -> Outcome:
    """`answer`, before contradictions among exact counts are named."""
    _require_posterior(problem)
    if engine.sums_one_cell and has_one_cell(problem):
        return _summed(problem)
    asked, candidates = problem.core, None
    counted = None if engine.sums_numbers else counted_size(problem)
    if counted is not None:
        candidates = counted
        asked = problem.of_candidates(candidates)
    elif asked.numbers is not None and not engine.takes_numbers:
        candidates = _candidates(engine, problem)
        asked = problem.of_candidates(candidates)
    found = answer_closed(engine, asked, rng=rng, progress=progress, start=start)
    return found if problem.plain else replace(found, beliefs=_seen(problem, found, candidates))


def _require_posterior(problem: Problem) -> None:
    """Refuse what leaves nobody, or no law of their number, and a dispersion that is still to be found."""
    if problem.together.estimated:
        raise ValueError(
            "the dispersion is to be estimated, and an engine needs one: headcount.infer(problem) estimates it; or give one, such as "
            "Flocks(5)"
        )
    if _is_empty(problem.core):
        raise ProblemError(
            "the exact counts are zeros that leave nobody in the population: nothing is to be inferred; leave it out"
        )
    if problem.start is None and _is_unbounded(problem.core):
        raise ProblemError(
            "nothing that was counted bounds the number of individuals from above, and what is said of it leaves any number: give "
            "About(...) or Between(...) instead of Unknown(), or counts"
        )


def answer_closed(
    engine: Engine,
    problem: ClosedProblem,
    *,
    rng: np.random.Generator,
    progress: bool | None,
    start: Mapping[str, Any] | None = None,
) -> Outcome:
    """Run an engine on a core that it takes: rho is read at its own counts, and a law of N is cut off where counts exclude it."""
    require_dispersion(engine, problem)

    def run(asked: ClosedProblem, last: Mapping[str, Any] | None) -> Outcome:
        return engine.run(asked, rng=rng, progress=progress, start=last)

    def settled(asked: ClosedProblem, last: Mapping[str, Any] | None) -> Outcome:
        # An engine without phi draws the rows itself, or there is nothing to settle.
        return _phi_settled(asked, run, last, rng) if engine.takes_dispersion else run(asked, last)

    return _between_likely_sizes(problem, settled, start) if engine.takes_numbers else settled(problem, start)


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
    n, p, evidence = laws_of_size(OneCellReadings.of([problem.sites]), law)
    if not np.isfinite(evidence[0]):
        raise ProblemError(
            f"no number of individuals that {law.text} allows agrees with all counts: check the counts and the population"
        )
    beliefs = OneCellBeliefs(
        problem.model, n, p[:, 0], float(evidence[0]), {"exact": "one cell: a sum over N"}
    )
    return Outcome(beliefs, Status.EXACT)


def counted_size(problem: Problem) -> Candidates | None:
    """A known number of candidates, all there, where exact counts tell the one size that is not known; None elsewhere."""
    if problem.size_known or problem.start is not None or problem.opens or problem.model.larger() is None:
        return None
    cloud, (low, high) = problem.cloud, problem.size_bounds
    unknown = [k for k, member in enumerate(cloud.members) if not member.law.is_known]
    if len(unknown) != 1:
        return None
    (free,) = unknown
    own = cloud.members[free]
    others = sum(member.weight * member.law.most for k, member in enumerate(cloud.members) if k != free)
    units, rest = divmod(low - others, own.weight)
    if low != high or rest or units < 1 or not np.isfinite(own.law.log_pmf(units)):
        return None
    members = [replace(own, law=Exactly(int(units))) if k == free else m for k, m in enumerate(cloud.members)]
    return Candidates(replace(cloud, members=tuple(members)), (), cloud)


def _is_empty(core: ClosedProblem) -> bool:
    """Whether exact zeros leave nobody, in a population of unknown size."""
    exact = [site for site in core.sites if site.noise.exact]
    if core.numbers is None or not exact or any(np.any(site.noise.counts) for site in exact):
        return False
    return all(size_range(core, k)[1] == 0 for k in range(len(core.numbers.laws)))


ANY_NUMBER = 1e6
"""Mean of a law above which, where its sd is several times that, it leaves any number: that of `Unknown` is 5e7. A Poisson law of .1 has a
large relative sd as well, and says much."""
MANY = 2.0**50
"""Individuals of whom no reading can be right that bounds their number: Poisson's log-probability there is −10¹⁵."""


def _is_unbounded(core: ClosedProblem) -> bool:
    """Whether a number of which nothing is said may be as large as it likes: all readings, if any, are lower bounds."""
    if core.numbers is None or not any(law.vague and law.mean > ANY_NUMBER for law in core.numbers.laws):
        return False
    with np.errstate(all="ignore"):
        return all(
            bool((site.noise.log_prob(np.full(len(site), MANY)) > math.log(0.5)).all()) for site in core.sites
        )


def _seen(problem: Problem, found: Outcome, candidates: Candidates | None) -> Any:
    """Beliefs about what is seen, from those about the cloud."""
    beliefs = found.beliefs
    if problem.model.larger() is None:  # a network of unknown size: its tables are those that are seen
        return beliefs
    evidence = beliefs.log_evidence
    if candidates is not None and evidence is not None:
        evidence += candidates.log_prior - candidates.log_sizes
    cloud = problem.cloud if candidates is None else candidates.cloud
    made = ViewBeliefs(beliefs, cloud.view(), evidence, beliefs.diagnostics, candidates)
    note = "; ".join(filter(None, (beliefs.diagnostics.get("size_note"), _size_note(problem, made))))
    return replace(made, diagnostics={**beliefs.diagnostics, "size_note": note}) if note else made


SAYS_LITTLE = 0.5
"""Relative sd of a law of sizes above which its window is narrowed to what the counts leave. Near the pole of such laws the expected size
runs from one to a billion: `MAP` stalled at 8 million of 6 000 individuals, EP took 65 sweeps for 8 (40 cells, 30 times)."""
LIKELY_REACH, LEAST_REACH = 20.0, 10.0
"""Standard deviations of the window around the size that the counts tell, and from its ends within which the answer must not end: the
rest has a probability below 1e-20."""
NARROW = 0.5
"""Half the window over the size, at most: wider ones gain little (31 sweeps from 1 000 to 40 000, 8 from 5 000 to 7 000)."""
SIZE_ROUNDS = 4
"""Poisson laws tried as the first guess of a size; each leaves 1/(1 + T) of the distance where T times are counted."""


def _between_likely_sizes(asked: ClosedProblem, run: Run, start: Mapping[str, Any] | None) -> Outcome:
    """Run with a law of sizes that says little cut off where the counts exclude it; as it is where they leave it wide.

    The window goes to the next run by its start. It is looked for where there is none, or where the answer is not inside.
    """
    laws = () if asked.numbers is None else asked.numbers.laws
    wide = [k for k, law in enumerate(laws) if law.variance > (SAYS_LITTLE * law.mean) ** 2]
    if len(wide) != 1:
        return run(asked, start)
    (k,) = wide
    whole = (int(laws[k].least), int(laws[k].most))
    last = None if start is None else start.get("size_window")
    windows = (_likely_window(asked, k) or whole for _ in range(1))
    for window in windows if last is None else chain([(int(last[0]), int(last[1]))], windows):
        if window == whole:
            break
        narrow = asked.with_laws([*laws[:k], Within(laws[k], *window), *laws[k + 1 :]])
        found = run(narrow, start)
        mean, sd = _size_of(found.beliefs, narrow, k)
        room = LEAST_REACH * sd if found.beliefs.has_spread else 0.25 * (window[1] - window[0])
        if window[0] + room <= mean <= window[1] - room:
            return _with_window(found, window)
        start = None
    return _with_window(run(asked, start), whole)


def _with_window(found: Outcome, window: tuple[int, int]) -> Outcome:
    """The outcome with the window of its size, for runs that start from it."""
    kept = {**found.beliefs.diagnostics, "size_window": np.array(window)}
    return replace(found, beliefs=replace(found.beliefs, diagnostics=kept))  # type: ignore[type-var]


def _likely_window(core: ClosedProblem, k: int) -> tuple[int, int] | None:
    """Sizes of group k around what the counts tell, wide enough to leave nothing out; None where that is no narrow window.

    The counts' own estimate and its sd are the answer under a Poisson law, less that law: both are taken as Gaussian.
    """
    assert core.numbers is not None
    laws = core.numbers.laws
    size = float(core.scale)
    for _ in range(SIZE_ROUNDS):
        near = core.with_laws([*laws[:k], PoissonSize(size), *laws[k + 1 :]])
        near = near.with_dispersion(None) if near.disperses else near
        rough = TiltedEP(tolerance=1e-2, max_iterations=50)
        mean, sd = _size_of(rough.run(near, rng=np.random.default_rng(0), progress=False).beliefs, near, k)
        precision = sd**-2 - 1.0 / size if sd > 0 else math.inf
        if not 0 < precision < math.inf:
            return None
        last, size = size, max((mean * sd**-2 - 1.0) / precision, 1.0)
        if abs(size - last) <= math.sqrt(last):
            break
    reach = LIKELY_REACH / math.sqrt(precision)
    low, high = math.floor(size - reach), math.ceil(size + reach)
    if reach > NARROW * size or low < laws[k].least or high > laws[k].most:
        return None
    return low, high


def _size_of(beliefs: Beliefs, core: ClosedProblem, k: int) -> tuple[float, float]:
    """Mean and standard deviation of the size of group k."""
    mean, variance = size_moments(beliefs, core)
    return float(mean[k]), math.sqrt(variance[k])


def _size_note(problem: Problem, beliefs: ViewBeliefs) -> str:
    """What the counts leave open about N, in words; nothing where they tell it."""
    law, sizes = as_law(problem.population), beliefs.sizes
    if problem.size_known or sizes is None or not beliefs.has_spread:
        return ""
    sd = math.sqrt(float(np.square(sizes.values - sizes.mean) @ sizes.probabilities))
    if law.vague:
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
        From an engine that knows no candidates, and of a network, whose individuals have no state in which they could be absent.
    """
    network = problem.model.larger() is None
    if not network and problem.cloud.sizes_known:
        numbers = [member.law.most for member in problem.cloud.members]
        return problem.cloud.candidates(numbers, numbers)
    if network or not engine.takes_candidates:
        others = (
            "Laplace, ClosedForm or Enumerate" if network else "Laplace, ClosedForm, Enumerate or PathGibbs"
        )
        raise ValueError(
            f"{engine.name} takes a known number of individuals only{' on networks' * network}, and the population is "
            f"{problem.population!r}: use TiltedEP (the default), MAP, {others}, or give a number"
        )
    cloud = problem.cloud
    sizes = likely_sizes(problem.core, np.random.default_rng(0))
    return cloud.candidates([size.high for size in sizes], [size.mean for size in sizes])


def require_dispersion(engine: Engine, problem: ClosedProblem) -> None:
    """Refuse a problem of individuals that move together, where the engine knows independent ones only."""
    together = problem.together
    taken = engine.takes_dispersion or (engine.draws_rows and together.rho is not None)
    if problem.disperses and not taken and together.flock_size != 1.0:
        raise ProblemError(_not_whole(problem, together.flock_size))
    if problem.disperses and not taken:
        raise independent_only(engine, problem)


def _not_whole(problem: ClosedProblem, size: float) -> list[str]:
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
    problem: ClosedProblem, run: Run, start: Mapping[str, Any] | None, rng: np.random.Generator
) -> Outcome:
    r"""Run with :math:`\phi_i = 1 + (\hat n_i - 1)\rho` at the run's own expected counts: a fixed point, each round started from the last.

    Problems without rho are run once, as they are. ``start`` is what a run on a similar problem left.
    """
    dispersion, tree = problem.together, problem.model.rooted()
    if not problem.disperses or dispersion.rho is None:
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
        found: dict[str, Any] = {
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
    found |= _clumped(dispersion.row_correlations(tree), beliefs)
    kept = replace(beliefs, diagnostics={**beliefs.diagnostics, **found})  # type: ignore[type-var]
    return replace(outcome, beliefs=kept)


def _clumped(rows: Sequence[Array] | None, beliefs: Beliefs) -> dict[str, str]:
    """What to say of an evidence with rows that vary strongly; nothing elsewhere."""
    if rows is None or beliefs.log_evidence is None or np.concatenate(rows).max() <= CLUMPED:
        return {}
    note = "rows that vary so much have no Gaussian law: the evidence may be off by half a nat or more; Enumerate sums over their own"
    return {"log_evidence_note": note}


def _first_counts(
    problem: ClosedProblem, tree: RootedTree, start: Mapping[str, Any] | None, rng: np.random.Generator
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
