"""Which engine a problem gets, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from headcount import memory
from headcount.checks import LARGEST_COUNT
from headcount.engines._cost import is_sparse, without_matrices
from headcount.engines._map import MAP
from headcount.engines._reduce import counted_size
from headcount.engines._table_bp import MOST_REMOVED, TableBP, table_bp_misfit, table_work
from headcount.engines.engine import Engine
from headcount.engines.exact import SHORTEST_LIST, Enumerate, quick
from headcount.engines.exact._enumerate import SizeWindow, likely_most, listed_entries
from headcount.engines.sampling._path_gibbs import PathGibbs
from headcount.engines.tilted._centre import sharp
from headcount.engines.tilted._certain import few_tables, moves_told
from headcount.engines.tilted._gaussian import ClosedForm
from headcount.engines.tilted._laplace import Laplace
from headcount.engines.tilted._tilted_ep import TiltedEP
from headcount.population import Exactly
from headcount.posterior import Outcome
from headcount.posterior.one_cell import has_one_cell

if TYPE_CHECKING:
    from headcount.engines.engine import Start
    from headcount.observe import ClosedProblem, Problem, Site

LARGEST_DENSE = 4096
"""States of a variable above which no covariance is formed by default: one sweep over an edge then takes 30 · 4096³ operations, minutes."""
WITHOUT_MATRICES = (
    "tilted EP without matrices, whose standard deviations and evidence carry a stated Monte-Carlo error"
)
FEW = 5
"""Individuals up to which an exact recursion is preferred, and sampling where it is too large: TiltedEP was off by more than .05 N in 14 of
4 280 random problems, all of them with N ≤ 5; on maps of 5 to 60 cells in 1 % of those with N ≤ 5, by .08 N at most."""
SAMPLED_WORK = 3_000_000
"""Pairs of states of neighbouring variables up to which so few individuals are sampled: PathGibbs takes about 20 µs per pair, a minute."""
FEWEST_CELLS = 4
"""States of every variable from which whole-number tables are the default between exact counts of more than a few individuals: belief
propagation leaves out what goes round short loops. Expected moves of 80 kinds of random tables were nearer to exact sampling than tilted
EP's in all but two kinds of 4 to 20 cells, and in 9 of 16 of 3 cells."""
MOST_PER_ENTRY = 5.0
"""Individuals per table entry up to which they are. Tilted EP's total of moves is off by 1 % there where half of them move, and by 18 %
where one in twenty does (6 cells); with more individuals it is nearer, and many times as fast."""
MOST_TABLE_WORK = 1e8
"""Products per sweep up to which they are: about 3 s of belief propagation. Flows between larger counts are many, and tilted EP is right
there."""
MOST_PATHS, CHEAP_PATHS = 5_000, 2_000_000
"""Moves of individuals up to which few tables between exact counts are sampled, .5 ms each; and those in all sweeps, which small problems
get: a second."""
SAMPLING_SEED = 0
"""Of a sampler that was chosen by :func:`select`, where the caller gives none: the same problem gets the same answer."""


@dataclass(frozen=True)
class Choice:
    """An engine and the reason for it."""

    engine: Engine
    reason: str


def select(problem: Problem, *, sampling: bool = True, summing: bool = True) -> Choice:
    """What ``infer`` picks for this problem, and why; nothing is run, and nothing large is allocated.

    Parameters
    ----------
    sampling
        Whether the choice may be a sampler, which gives no evidence (where this is needed: False).
    summing
        Whether the choice may be an exact sum over numbers that are not known. How far it goes is guessed before the run; where that
        was too little, `infer` chooses again without.

    Notes
    -----
    The choice depends on the kinds of the data, the model's shape and N, not on the model's probabilities: one choice serves every model
    that a fit tries on the same data. A Gaussian made at the prior (``ClosedForm``) is wrong wherever large counts disagree with the
    prior, so it is picked only where nothing is observed.

    Raises
    ------
    TooLargeError
        If no engine fits the memory that may be taken; both numbers are in the message.
    """
    if has_one_cell(problem):
        return Choice(TiltedEP(), "one cell: the sum over N is exact")
    counted = counted_size(problem)
    asked = problem.core if counted is None else problem.of_candidates(counted)
    several = problem.core.numbers is not None and (counted is None or len(counted.cloud.members) > 1)
    found = _summed(problem.core, sampling=sampling) if several and summing else None
    found = found or _selected(asked, sampling=sampling)
    words = problem._flock_words
    return Choice(found.engine, f"{found.reason}; {words}") if words else found


def _selected(problem: ClosedProblem, *, sampling: bool) -> Choice:
    """The same of a problem as engines take it."""
    if problem.numbers is not None:
        engine, reason = _gaussian(problem)
        found = _too_large(problem) or _sampled(problem, sampling=sampling)
        return found or Choice(engine, f"{reason}; the sizes of groups with their own laws")
    exact = _too_large(problem) or _exact(problem, sampling=sampling)
    return (
        exact
        or _tables(problem, sampling=sampling)
        or (_summed(problem, sampling=sampling) if problem.traits.any_exact else None)
        or _sampled(problem, sampling=sampling)
        or Choice(*_gaussian(problem))
    )


def _summed(problem: ClosedProblem, *, sampling: bool) -> Choice | None:
    """The exact sum over counts, where it is quick; None elsewhere."""
    if not _has_law(problem, sampling=sampling) or not quick(problem, _windows(problem), once=sampling):
        return None
    return Choice(Enumerate(), "so few individuals and cells that an exact sum over their counts is quick")


def _too_large(problem: ClosedProblem) -> Choice | None:
    """The default without matrices, or MAP, where a covariance is too wide or does not fit the memory; None elsewhere."""
    widest = max(len(s) for s in problem.model.states.values())
    need, allowed = TiltedEP().memory(problem), memory.limit()
    if (widest <= LARGEST_DENSE or without_matrices(problem)) and need <= allowed:
        return None
    numbers = f"{memory.readable_bytes(need)} of memory and the limit is {memory.readable_bytes(allowed)}"
    free = TiltedEP(structure="matrix-free")
    tree = (
        problem.model.rooted() is not None
    )  # on other graphs passes of draws over tables so large would take hours
    if tree and free.memory(problem) < min(need, allowed + 1):
        return Choice(free, f"covariances would take {numbers}: {WITHOUT_MATRICES}")
    memory.require(
        MAP().memory(problem), "MAP, the smallest engine,", remedy="merge cells or take fewer times"
    )
    why = f"a variable has {widest} states: a covariance of that width does not fit ordinary memory"
    if widest <= LARGEST_DENSE:
        why = f"covariances would take {numbers}"
    long = tree and len(problem.model.variables) >= LONG_CHAIN
    windows = (
        "; headcount.io.infer_long infers a long chain window by window, with uncertainty" if long else ""
    )
    return Choice(
        MAP(),
        f"{why}, so only the most probable counts are found (no uncertainty); name an engine to insist{windows}",
    )


LONG_CHAIN = 500
"""Times from which windows are worth naming: three of `headcount.io.infer_long`'s own."""


def _has_law(problem: ClosedProblem, *, sampling: bool) -> bool:
    """Whether exact sums know the law of the counts; of rows that vary they give what is asked once, not what is learned from."""
    knows = not problem.disperses or (sampling and problem.together.rho is not None)
    return knows and not problem.traits.correlated


def _exact(problem: ClosedProblem, *, sampling: bool) -> Choice | None:
    """An exact answer, where one is quick; None elsewhere."""
    if not problem.sites:
        return Choice(ClosedForm(), "nothing is observed: the prior is the answer")
    if not _has_law(problem, sampling=sampling):
        return None
    windows = _windows(problem)
    if not problem.disperses and listed_entries(problem, windows, most=SHORTEST_LIST) <= SHORTEST_LIST:
        return Choice(
            Enumerate(), "so few individuals and configurations that every population can be listed: exact"
        )
    if problem.population <= FEW and quick(problem, windows, once=sampling):
        return Choice(
            Enumerate(most=SHORTEST_LIST), "so few individuals that an exact recursion over them is quick"
        )
    return None


def _sampled(problem: ClosedProblem, *, sampling: bool) -> Choice | None:
    """The path sampler, for individuals too few for a Gaussian and too many for the recursion; None elsewhere."""
    tree, few = problem.model.rooted(), problem.numbers is None and problem.population <= FEW
    sweeps = PathGibbs.sweeps if few else _sweeps_of_few_tables(problem)
    if (
        not sampling
        or tree is None
        or sweeps == 0
        or problem.dispersion is not None
        or problem.traits.correlated
    ):
        return None
    engine = PathGibbs(sweeps=sweeps)
    work = sum(tree.sizes[u] * tree.sizes[v] for v, u in enumerate(tree.parents) if u >= 0)
    if work > SAMPLED_WORK or engine.memory(problem) > memory.limit():
        return None
    why = "exact counts leave few tables of moves: paths are sampled"
    evidence = "no evidence: TiltedEP's may be nats off here"
    if few:
        evidence = "no evidence, of which TiltedEP gives an approximate one"
        why = "so few individuals that a Gaussian may be off by .05 N, and too many cells for an exact recursion: their paths are sampled"
    return Choice(engine, f"{why} (seed {SAMPLING_SEED} where none is given); {evidence}")


def _sweeps_of_few_tables(problem: ClosedProblem) -> int:
    """Sweeps of moves beside exact counts, more the fewer there are; 0 where tables are many, or for TableBP."""
    moves = math.ceil(problem.scale) * (len(problem.model.variables) - 1)
    if moves > MOST_PATHS or table_bp_misfit(problem) is None or not few_tables(problem):
        return 0
    # Steps from kinds to their states are never all possible: of unknown numbers, only where moves are told.
    if problem.numbers is not None and not moves_told(problem):
        return 0
    return max(PathGibbs.sweeps, min(CHEAP_PATHS // max(moves, 1), 5 * PathGibbs.sweeps))


def _tables(problem: ClosedProblem, *, sampling: bool) -> Choice | None:
    """Belief propagation on whole-number tables, where every variable is counted exactly and tables are small; None elsewhere."""
    # Learning takes its gradient from units of phi individuals, which rows that vary do not have.
    learns_rows = problem.disperses and not sampling
    if (
        table_bp_misfit(problem) is not None
        or is_sparse(problem)
        or learns_rows
        or not _few_per_entry(problem, sampling=sampling)
    ):
        return None
    return Choice(
        TableBP() if sampling else TableBP(exchanges=0),
        "exact counts of every variable: the table of every step on its own, in whole numbers, by belief propagation"
        + (" and exchanges of destinations along cycles" if sampling else ""),
    )


def _few_per_entry(problem: ClosedProblem, *, sampling: bool) -> bool:
    """Whether exact counts are small enough for whole-number tables, and for belief propagation alone tables large enough."""
    fewest = min(len(states) for states in problem.model.states.values())
    few = fewest >= FEWEST_CELLS and problem.population <= MOST_PER_ENTRY * fewest**2
    few |= sampling and problem.population <= MOST_REMOVED
    return few and table_work(problem) <= MOST_TABLE_WORK


def _gaussian(problem: ClosedProblem) -> tuple[Engine, str]:
    """The default, and what it does with this noise."""
    traits = problem.traits
    if traits.all_gaussian and any(sharp(s.noise, problem.scale).any() for s in problem.sites):
        reason = "Gaussian readings sharp enough to tell whole numbers apart: tilted EP with lattice moments"
    elif traits.all_gaussian:
        reason = (
            "noise is Gaussian or exact: tilted EP, the Gaussian made at its own mean and not at the prior's"
        )
    elif traits.any_exact:
        reason = "count noise beside exact margins: tilted EP around laws that have these margins"
    else:
        reason = "count noise: tilted EP with lattice moments, centred at its own mean"
    if problem.numbers is None and problem.population <= FEW:
        reason += "; too many cells for an exact recursion, and with so few individuals it may be off by .08 N: PathGibbs is the reference"
    if without_matrices(problem):
        reason += f"; matrices of this size would take minutes: {WITHOUT_MATRICES}"
    return TiltedEP(), reason


IMPLAUSIBLE = 12.0
"""Nats below its largest value at which a likelihood excludes a count, for a plan: e⁻¹² = 6e-6."""
LEAST_COUNTED = 0.05
"""Share of individuals that counts must be of, by the model, for a guess at how many there are."""
COUNTS_TRIED = np.unique(np.floor(1.2 ** np.arange(-1, 80)))
"""Counts at which a likelihood is looked at: from 0 to 2e6, a fifth apart."""


def _windows(problem: ClosedProblem) -> list[SizeWindow]:
    """Numbers of every kind of individuals that its law and the readings of whole tables leave, before anything is run."""
    if problem.numbers is None:
        return [SizeWindow(Exactly(problem.population), problem.population, problem.population)]
    most, found = _largest_total(problem), []
    for law in problem.numbers.laws:
        high = min(float(law.most), math.inf if law.vague else likely_most(law), most)
        found.append(SizeWindow(law, int(law.least), int(min(high, LARGEST_COUNT))))
    return found


def _largest_total(problem: ClosedProblem) -> float:
    """The largest number of individuals that readings leave plausible; infinite where none is of many of them."""
    weight = total = 0.0
    for site in problem.sites:
        share = float(
            np.ravel(problem.model.marginal(site.scope))[site.spread(np.ones(len(site))) >= 1.0].sum()
        )
        likely, above = _likely_total(site)
        if share > LEAST_COUNTED and math.isfinite(above):
            # Of N individuals y = pN are counted, give or take √(pqN).
            above = (
                math.hypot(above, math.sqrt(2 * IMPLAUSIBLE * (1.0 - min(share, 1.0)) * (likely + 1.0)))
                / share
            )
            weight, total = weight + above**-2, total + likely / share * above**-2
    return math.inf if weight == 0.0 else total / weight + weight**-0.5


def _likely_total(site: Site) -> tuple[float, float]:
    """The most likely total of a site's counts, each by its reading alone, and how far above it is implausible."""
    tried = COUNTS_TRIED[:, None]
    with np.errstate(all="ignore"):
        log_p = np.nan_to_num(site.noise.log_prob(np.repeat(tried, len(site), axis=1)), nan=-np.inf)
    likely = COUNTS_TRIED[log_p.argmax(axis=0)]
    beyond = (log_p < log_p.max(axis=0) - IMPLAUSIBLE) & (tried > likely)
    largest = np.where(beyond, tried, math.inf).min(axis=0)
    # Readings err independently: squares add up.
    return float(likely.sum()), float(np.sqrt(np.square(largest - likely).sum()))


@dataclass(frozen=True)
class Auto(Engine):
    """Run what :func:`select` picks: the default of ``infer``."""

    name: ClassVar[str] = "Auto"
    takes_dispersion: ClassVar[bool] = True
    takes_numbers: ClassVar[bool] = True

    def _run(
        self, problem: ClosedProblem, rng: np.random.Generator, progress: bool | None, start: Start
    ) -> Outcome:
        """See :class:`Engine`."""
        return _selected(problem, sampling=True).engine.run(problem, rng=rng, progress=progress, start=start)


ENGINES: dict[str, type[Engine]] = {
    engine.name: engine
    for engine in (
        Auto,
        TiltedEP,
        MAP,
        PathGibbs,
        Enumerate,
        TableBP,
        ClosedForm,
        Laplace,
    )
}
"""Every engine by its name."""


def as_engine(engine: Engine | str | None) -> Engine:
    """The engine itself, the engine of a name with its default settings, or :class:`Auto` for None.

    Raises
    ------
    ValueError
        For a name that no engine has, and for anything that is not an engine.
    """
    if engine is None:
        return Auto()
    if isinstance(engine, Engine):
        return engine
    if isinstance(engine, str) and engine in ENGINES:
        return ENGINES[engine]()
    raise ValueError(
        f"engine is {engine!r}: give None (chosen from the problem), one of the names {', '.join(ENGINES)}, or an engine such as "
        "TiltedEP(tolerance=1e-6)"
    )


def chosen(problem: Problem, engine: Engine | str | None = None) -> Choice:
    """The engine that will run, and why: what :func:`select` picks for None and ``Auto()``, else the one that was named."""
    given = as_engine(engine)
    return select(problem) if isinstance(given, Auto) else Choice(given, "named by the caller")
