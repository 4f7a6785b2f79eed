"""A search from its start to the maximum of the evidence.

**The start** is the user's, or near the maximum by cheap climbs from several starts. Those for a homogeneous transition matrix come
from totals alone:

*Moments* (Bernstein and Sheldon 2016, for a stationary chain): counts n_t, n_{t+1} have the covariance
Σ_{t,t+1} = N (diag(μ) P − μ μᵀ), and noise that is independent between times does not touch it, so

    P = diag(μ)⁻¹ (Σ_{t,t+1}/N + μ μᵀ).

*Regression* (any chain): E[n_{t+1} | n_t] = Pᵀ n_t, by least squares over time.

Either estimate is projected, row by row, onto the distributions over the free entries and mixed with a tenth of the uniform
one: it is a start, inside, not an answer.

**The climb** follows. Priors that are learned come first, in turn with a few steps of it. It ends at a zero of Fisher's gradient.

**The refinement.** With an approximate engine that zero is not the maximum of the evidence: expected counts carry an error of order
one that grows with the number of tables, while the evidence is a single number that the engine gets nearly right. On birds (L = 16,
N = 480) TiltedEP's zero of the gradient lies 0.7 standard errors off, all weights a little too small; the maximum of its evidence does
not lean to either side. The differences that give the information J give the evidence's own slope d as well, and with it
the lean c = d − g of Fisher's gradient g, which changes slowly. So the climb goes on with

    x ← x + J⁻¹ (g(x) + c),        c ← c + 2 m J s / (s·J s)

one E-step each, where s is the step taken and m the rise of the evidence that the trapezium ½ (g₀ + g₁ + 2c)·s missed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headcount._types import Array
from headcount.engines import MAP, Engine, Status, TiltedEP, select
from headcount.learn._climb import (
    RIVAL,
    Climb,
    Climber,
    ClimbState,
    Optimum,
    dense_inverse,
    em_residual,
    near_enough,
    same_maximum,
    tried,
)
from headcount.learn._components import MatrixMoves, Moves, Rows, Weights
from headcount.learn._expect import PRIOR_ROUNDS, Evaluation, Expectation, settled
from headcount.learn._family import Family
from headcount.learn._joint import climbed_together
from headcount.learn._uncertainty import Information, observed_information
from headcount.observe import Problem, ProblemError
from headcount.posterior.one_cell import has_one_cell

UNIFORM_SHARE = 0.1
"""Share of the uniform distribution in a start, which keeps it off the boundary; any small share would do."""
STAYING = {"sticky": 0.9, "very sticky": 0.99}
"""Probabilities of staying put from which a search starts. Counts near the equilibrium of a chain are explained about as well by
much movement as by little; the likelihood then has one maximum for each, hundreds of nats apart."""
MOBILE_SHARE = 0.1
"""Probability of staying put in the mobile start, as a share of that under equal probabilities."""
SCREENING_STEPS = 5
"""Steps from every start before the worse ones are given up (on 50 worlds with two or more maxima, the best one's climb was
among the better half by then; see benchmarks)."""
KEPT = 3
"""Climbs that go on after the screening."""
MAP_TOLERANCE = 1.0
"""Standard errors from MAP's maximum at which the engine asked for takes over: its own lies about that far away."""
TOGETHER_TOLERANCE = 0.1
"""Standard errors from the maximum beyond which counts and weights are not climbed together: for the rest, E-steps with the information
of all pairs of weights are sooner there (of 173 weights on strongly dependent variables: 12 E-steps, for 400 steps)."""
MAP_BUDGET = 60
"""Steps that MAP may take to get there."""
VALLEY = 0.5
"""Nats by which the evidence must fall between two points for them to be two maxima and not one."""
POLISHED = 1e-4
"""Standard errors from MAP's maximum to which climbs are continued before they are called two maxima; at 1e-2, three climbs along one
flat ridge (the free matrix of the tutorial) still ended in three places."""
POLISH_BUDGET = 600
"""Steps that this may take; a climb that needs more follows a ridge and is no second maximum."""
MOST_COMPARED = 1000
"""Parameters beyond which maxima are not compared: that takes dense matrices of the inverse information."""
STEPS_PER_ROUND = 5
"""Steps of a climb between two rounds of learning priors: by then the expected counts have followed most of the prior's change."""
CLOSE_ENOUGH = 0.02
"""Standard errors from the maximum that are not worth a step: 2e-4 nats."""
REPEAT_BEYOND = 1.5
"""Standard errors of discrepancy beyond which the information is found again after the steps, and others considered."""
LEFT_AT_MOST = 0.1
"""Standard errors that may be left where the evidence stops rising along its slope: 0.005 nats."""
LONGEST_STEP = 2.0
"""Standard errors of the first step."""
AS_FORESEEN = 0.75
"""Share of the foreseen rise of the evidence above which the next step may be twice as long: the lean then changes slowly. It grows
with the number of counts: on a map of 2 500 cells and 52 times the maximum lies some 20 standard errors from the zero of the gradient."""
WORTH_A_ROUND = 0.005
"""Nats that a round must gain for another one to follow: those of `LEFT_AT_MOST`."""
ROUNDS = 15
"""Times that the information is found, at most: with ten individuals per cell up to 37 steps were needed."""
STEPS = 4
"""Steps per round, at most: the lean changes too much after more."""
TRIALS = 8
"""Lengths tried of the first step of a round; the later ones are tried once."""


def begin(climber: Climber, start: Any, *, choose: bool) -> ClimbState:
    """The state at which the engine of the fit takes over: at the user's start, or near the best of several maxima.

    With ``choose``, the engine is chosen there, once for all problems, and put into the climber's E-steps.
    """
    began = time.perf_counter()
    starts = _starts(climber.expect, start)
    found = None
    if start is None and climber.method == "ascent":
        found = _together(climber, starts, choose=choose) or _searched(climber, starts, choose=choose)
    if found is None:
        at = _chosen_at(climber.expect, next(iter(starts.values())), choose=choose)
        name, point = _best(climber.expect, starts)
        found = replace(climber.at(point, name, step=0.0), engine_at=at)
    seconds = time.perf_counter() - began
    return replace(found, rows=({**found.rows[0], "seconds": seconds},), seconds=seconds)


def _chosen_at(expect: Expectation, x: Array, *, choose: bool) -> Array | None:
    """x, where the engine was chosen for the models there; None where it was named."""
    if not choose:
        return None
    expect.engine = choose_engine(expect.families, expect.problems, x)
    return x


def choose_engine(families: Sequence[Family], problems: Sequence[Problem], x: Array) -> Engine:
    """One engine with an evidence for all problems: what `select` picks for them at x, `TiltedEP` where it picks several."""
    found: dict[str, Engine] = {}
    for family, problem in zip(families, problems, strict=True):
        if has_one_cell(problem):  # whatever the parameters
            found[repr(TiltedEP())] = TiltedEP()
            continue
        try:
            fitted = family.apply(x, problem)
        except ValueError:  # x cannot have made these data
            fitted = problem
        engine = select(fitted, sampling=False).engine
        found[repr(engine)] = engine
    return next(iter(found.values())) if len(found) == 1 else TiltedEP()


def _starts(expect: Expectation, start: Any) -> dict[str, Array]:
    """The starts to try, by name."""
    if start is not None and not isinstance(start, str):
        return {"given": working_start(expect.families[0], start)}
    found = candidates(expect.families, expect.problems)
    if start is None:
        return found
    if start not in found:
        raise ValueError(f"start is {start!r}: this parametrisation knows {', '.join(found)}")
    return {start: found[start]}


def _best(expect: Expectation, starts: Mapping[str, Array]) -> tuple[str, Evaluation]:
    """The start with the most evidence; what was wrong with all of them if none can be evaluated."""
    points = {name: expect(x, None) for name, x in starts.items()}
    usable = {name: p for name, p in points.items() if not p.failure}
    if not usable:
        raise ProblemError([f"start {name!r}: {p.failure}" for name, p in points.items()])
    best = max(usable, key=lambda name: (np.isfinite(usable[name].value), usable[name].value))
    return best, usable[best]


def _searched(climber: Climber, starts: Mapping[str, Array], *, choose: bool) -> ClimbState | None:
    """Near the best maximum by MAP's E-steps, with what they told of the curvature; None if no climb gets anywhere."""
    expect = climber.expect
    cheap = replace(expect, engine=MAP(device=getattr(expect.engine, "device", "cpu")), e_steps=0)
    climbs = _climbs(cheap, starts)
    if not climbs:
        return None
    at = _chosen_at(expect, climbs[0].climb.point.x, choose=choose)
    few = len(expect.families[0].names) <= MOST_COMPARED
    rivals = _rivals(climbs if few else climbs[:1], cheap, expect)
    if not rivals:
        return None
    optima = _optima(rivals, cheap, expect)
    chosen, near = next(pair for pair in rivals if pair[0].start == optima[0].start)
    expect.e_steps = chosen.e_steps + (near is not chosen.climb.point)
    first = climber.at(near, f"{chosen.start}, then MAP", pairs=chosen.climb.pairs, step=0.0)
    return replace(first, optima=optima, searched=cheap.e_steps - chosen.e_steps, engine_at=at)


def _together(climber: Climber, starts: Mapping[str, Array], *, choose: bool) -> ClimbState | None:
    """Near MAP's maximum by `climbed_together`, with priors learned; None where that does not serve."""
    expect = climber.expect
    mapping = isinstance(expect.engine, MAP) and not choose
    tolerance = max(climber.tolerance, TOGETHER_TOLERANCE) if mapping else MAP_TOLERANCE
    name, x = next(iter(starts.items()))
    near = climbed_together(expect.families, expect.problems, x, tolerance)
    if near is None:
        return None
    before, expect.families = expect.families, near.families
    at = _chosen_at(expect, near.x, choose=choose)
    point = expect(near.x, near.starts if mapping else None)
    if point.failure or not np.isfinite(point.gradient).all():
        expect.families = before
        return None
    known = {"residual": near.distance, "told": True} if mapping else {}
    first = climber.at(point, f"{name}, then MAP", step=0.0, **known)
    return replace(first, strengths=near.strengths, priors_settled=bool(near.strengths), engine_at=at)


def _rivals(
    climbs: Sequence[ClimbState], cheap: Expectation, expect: Expectation
) -> list[tuple[ClimbState, Evaluation]]:
    """Distinct maxima as the engine of the fit sees them, the best first; an engine without evidence leaves MAP's order."""
    found: list[tuple[ClimbState, Evaluation]] = []
    for state in climbs:
        at = state.climb.point
        if not any(_one_maximum(cheap, other.climb.point, at) for other, _ in found):
            near = at if repr(expect.engine) == repr(cheap.engine) else tried(expect, at.x, at)
            found += [] if near is None else [(state, near)]
    return sorted(found, key=lambda pair: -pair[1].value if np.isfinite(pair[1].value) else np.inf)


def _optima(
    rivals: Sequence[tuple[ClimbState, Evaluation]], cheap: Expectation, expect: Expectation
) -> tuple[Optimum, ...]:
    """The maxima, the best first. Climbs within `RIVAL` nats are polished: on a ridge they end at one and the same maximum."""
    made = [Optimum(state.start, point.x, point.value) for state, point in rivals]
    close = [pair for pair in rivals if not rivals[0][1].value - pair[1].value >= RIVAL]
    return tuple(made) if len(close) == 1 else (*_polished(close, cheap, expect), *made[len(close) :])


def _polished(
    close: Sequence[tuple[ClimbState, Evaluation]], cheap: Expectation, expect: Expectation
) -> list[Optimum]:
    """The distinct maxima among climbs that go on to `POLISHED` standard errors, the best first."""
    ends: list[Climb] = []
    found: list[Optimum] = []
    for state, point in close:
        end = _climbed(state, cheap, POLISH_BUDGET, POLISHED).climb
        if ends and (end.residual > POLISHED or any(same_maximum(end, other) for other in ends)):
            continue
        ends.append(end)
        own = tried(expect, end.point.x, point) or point
        found.append(Optimum(state.start, own.x, own.value))
    return sorted(found, key=lambda optimum: np.nan_to_num(-optimum.evidence, nan=np.inf))


def _climbs(cheap: Expectation, starts: Mapping[str, Array]) -> list[ClimbState]:
    """MAP's climbs, the best first: a few steps from every start, then on with the best."""
    states = []
    for name, x in starts.items():
        own = replace(cheap, e_steps=0)
        point = own(x, None)
        if np.isfinite(point.gradient).all():
            budget = SCREENING_STEPS if len(starts) > KEPT else MAP_BUDGET
            states.append(_climbed(Climber(own).at(point, name), own, budget))
        cheap.e_steps += own.e_steps
    ended = []
    for state in _ranked(states)[:KEPT]:
        own = replace(cheap, e_steps=state.e_steps)
        ended.append(_climbed(state, own, MAP_BUDGET))
        cheap.e_steps += own.e_steps - state.e_steps
    return _ranked(ended)


def _climbed(
    state: ClimbState, cheap: Expectation, budget: int, tolerance: float = MAP_TOLERANCE
) -> ClimbState:
    return Climber(cheap, max_iterations=budget, tolerance=tolerance)(state)[0]


def _ranked(states: Sequence[ClimbState]) -> list[ClimbState]:
    return sorted(states, key=lambda state: -state.climb.point.value)


def _one_maximum(evaluate: Expectation, a: Evaluation, b: Evaluation) -> bool:
    """Whether the evidence does not fall between two points."""
    if np.allclose(a.x, b.x):
        return True
    between = evaluate(0.5 * (a.x + b.x), a.starts)
    return bool(between.value > min(a.value, b.value) - VALLEY)


def rival_notes(optima: Sequence[Optimum], names: Sequence[str]) -> list[str]:
    """Maxima that the data hardly tell from the best one."""
    notes = []
    for other in optima[1:]:
        gap = optima[0].evidence - other.evidence
        if gap < RIVAL:
            values = ", ".join(f"{n} = {v:.3g}" for n, v in list(zip(names, other.working, strict=True))[:6])
            notes.append(
                f"a second maximum, about {gap:.2g} nats lower, lies near {values} (from the start {other.start!r}): "
                "standard errors describe the best one only; see fit.optima"
            )
    return notes


def working_start(family: Family, start: Any) -> Array:
    """A user's start as a vector of working parameters."""
    if isinstance(start, Mapping):
        return family.working(start)
    x = np.asarray(start, dtype=float).ravel()
    if x.shape != (len(family.names),) or not np.isfinite(x).all():
        raise ValueError(
            f"start is {start!r}: give {len(family.names)} finite numbers, {', '.join(family.names)}"
        )
    return x.copy()


def candidates(families: Sequence[Family], problems: Sequence[Problem]) -> dict[str, Array]:
    """Named starts, the neutral one first; those that the parametrisation cannot tell from an earlier one are left out."""
    found = {"zero": families[0].start()}
    moves = families[0].find(Moves)  # type: ignore[type-abstract]
    if moves is None or len(moves.component.times) < 2:
        return found
    moved = {name: _staying(moves.component, share) for name, share in STAYING.items()}
    moved["mobile"] = _staying(moves.component, None)
    if isinstance(moves.component, MatrixMoves) and not len(moves.component.kinds):
        moved |= _from_totals(moves.component, problems)
    for name, part in moved.items():
        x = found["zero"].copy()
        x[moves.where] = part
        if np.isfinite(x).all() and not any(np.allclose(x, other, atol=0.05) for other in found.values()):
            found[name] = x
    return found


def _staying(moves: Moves, share: float | None) -> Array:
    """Parameters of the transitions nearest, in likelihood, to staying put with this probability (None: hardly ever)."""
    if isinstance(moves, Weights):
        return moves.nearest(moves.transitions.staying(share, MOBILE_SHARE) * (len(moves.times) - 1))
    assert isinstance(moves, MatrixMoves)
    steps = []
    for before, after in itertools.pairwise(moves.sizes):
        stay = MOBILE_SHARE / after if share is None else share
        own = np.arange(before)[:, None] == np.arange(after)
        steps.append(np.where(own, stay, (1 - stay) / max(after - 1, 1)))
    return moves.nearest(moves.flows(steps))


def _from_totals(rows: Rows, problems: Sequence[Problem]) -> dict[str, Array]:
    """The moment and regression estimates of one transition matrix, where every cell is seen at every time."""
    totals = [node_totals(p) for p in problems]
    known = [t for t in totals if t is not None and len(t) >= 3]
    if len(known) < len(problems):
        return {}
    people = [
        p.population if p.size_known else max(1, round(float(np.median(t.sum(axis=1)))))
        for p, t in zip(problems, known, strict=True)
    ]
    found = {"moments": moments(known, people), "regression": regression(known)}
    return {name: rows.log_odds(interior(matrix, rows)) for name, matrix in found.items()}


def node_totals(problem: Problem) -> Array | None:
    """Estimated counts of every cell and time, shape (T, L), from node observations; None if any is missing."""
    order = {v: k for k, v in enumerate(problem.model.variables)}
    sizes = {len(s) for s in problem.model.states.values()}
    if len(sizes) > 1:
        return None
    table = np.full((len(order), *sizes), np.nan)
    for site in problem.sites:
        if len(site.scope) == 1 and site.index is not None:
            table[order[site.scope[0]], site.index] = site.noise.implied()
    return None if np.isnan(table).any() else table


def moments(totals: Sequence[Array], populations: Sequence[int]) -> Array:
    """P = diag(μ)⁻¹(Σ_{t,t+1}/N + μμᵀ), averaged over times and sequences; not projected, shape (L, L)."""
    shares = [t / n for t, n in zip(totals, populations, strict=True)]
    mu = np.concatenate(shares).mean(axis=0)
    lagged = sum((n * (s[:-1] - mu).T @ (s[1:] - mu) for s, n in zip(shares, populations, strict=True)))
    pairs = sum(len(s) - 1 for s in shares)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (lagged / pairs + np.outer(mu, mu)) / mu[:, None]


def regression(totals: Sequence[Array]) -> Array:
    """argmin_P Σ_t |n_{t+1} − Pᵀ n_t|², shape (L, L)."""
    before = np.concatenate([t[:-1] for t in totals])
    after = np.concatenate([t[1:] for t in totals])
    return np.linalg.lstsq(before, after, rcond=None)[0]


def interior(matrix: Array, rows: Rows) -> Array:
    """Each row as a distribution over its free entries, none of them zero; fixed entries as they are."""
    made = rows.fixed.copy()
    for r, free in enumerate(rows.free):
        if not free.any():
            continue
        wanted = matrix[r, free]
        even = np.full(free.sum(), 1.0 / free.sum())
        law = simplex(wanted / rows.mass[r]) if np.isfinite(wanted).all() else even
        made[r, free] = rows.mass[r] * ((1 - UNIFORM_SHARE) * law + UNIFORM_SHARE * even)
    return made


def simplex(v: Array) -> Array:
    """The nearest probability distribution to v."""
    ordered = np.sort(v)[::-1]
    excess = (np.cumsum(ordered) - 1.0) / np.arange(1, len(v) + 1)
    threshold = excess[np.flatnonzero(ordered > excess)[-1]]
    return np.maximum(v - threshold, 0.0)


def with_priors(at: ClimbState, climber: Climber) -> ClimbState:
    """Learn priors from the expected counts, and climb a few steps, until the priors' strengths stay as they are."""
    for _ in range(PRIOR_ROUNDS):
        found = None if at.priors_settled else climber.expect.learn_priors(at.climb.point)
        if found is None:
            break
        point, now = found
        at = replace(
            at,
            climb=Climb(point, residual=em_residual(point)),
            rows=(*at.rows[:-1], {**at.rows[-1], "objective": point.value}),
            strengths=now,
            priors_settled=settled(at.strengths, now),
        )
        budget = min(climber.max_iterations, len(at.rows) - 1 + STEPS_PER_ROUND)
        at, _ = replace(climber, max_iterations=budget)(at)
    return at


def searched(
    begun: ClimbState, climber: Climber, *, errors: bool, refine: bool
) -> tuple[ClimbState, Status, Information | None]:
    """Learn priors, climb to a zero of the gradient, then, where they differ, to the maximum of the evidence.

    ``errors``: whether to find the information; ``refine``: whether the zero of the gradient is not enough, which takes the former.
    A maximum at which probabilities ran to zero says so.
    """
    at = with_priors(begun, climber)
    if not errors:
        return *climber(at), None
    refine = refine and climber.method == "ascent"
    ended, status, information = _informed_climb(at, climber, refine=refine)
    return ended, Status.EDGE if status.good and information.edge else status, information


def _informed_climb(
    begun: ClimbState, climber: Climber, *, refine: bool
) -> tuple[ClimbState, Status, Information]:
    ended, status = replace(climber, yielding=refine)(begun)
    last, information = _informed(ended, climber, refine=refine and status.good)
    near = max(LEFT_AT_MOST, near_enough(len(ended.climb.point.x)))
    if status.good and refine and information.saddle and information.discrepancy > near:
        return last, Status.STALLED, information  # the evidence still rises, and curves upwards
    if not (status.good and ended.climb.contrary and last.climb.residual > near):
        return last, status, information
    if len(last.rows) > len(ended.rows):
        return last, Status.STALLED, information
    # No way up by the evidence's slope either: on to the zero of the gradient.
    ended, status = climber(ended)
    last, information = _informed(ended, climber, refine=False)
    return last, status, information


def _informed(ended: ClimbState, climber: Climber, *, refine: bool) -> tuple[ClimbState, Information]:
    """The observed information, and the last steps it makes possible."""
    expect, climb = climber.expect, ended.climb
    began = time.perf_counter() - ended.seconds
    guess = dense_inverse(climb) if climb.pairs else None
    found = observed_information(climb.point, expect, guess=guess)
    if refine:
        last, found = _refined(ended, found, climber)
        if last is ended and climb.contrary:
            last = replace(ended, climb=replace(climb, residual=found.discrepancy))
        ended = last
    return replace(ended, e_steps=expect.e_steps, seconds=time.perf_counter() - began), found


def _refined(at: ClimbState, information: Information, climber: Climber) -> tuple[ClimbState, Information]:
    """On to the maximum of the evidence (no step where Fisher's gradient is its derivative), and the information at the last step."""
    # Slopes of an evidence with Monte-Carlo error are not known to CLOSE_ENOUGH.
    close = LEFT_AT_MOST if at.climb.point.drawn else CLOSE_ENOUGH
    longest = LONGEST_STEP
    for _ in range(ROUNDS):
        off = information.discrepancy
        if not off > close:  # NaN, without evidence, is no reason either
            break
        before = at
        at, longest = _followed(at, information, climber, close, longest)
        if at is before or (off <= REPEAT_BEYOND and at.climb.residual <= LEFT_AT_MOST):
            break
        point = at.climb.point
        information = observed_information(point, climber.expect, guess=information.inverse)
        if point.value - before.climb.point.value < WORTH_A_ROUND:
            break
    return at, information


def _followed(
    at: ClimbState, information: Information, climber: Climber, close: float, longest: float
) -> tuple[ClimbState, float]:
    """Steps along the slope of the evidence, until it is below ``close`` or the evidence no longer rises; and how long the next may be."""
    began = time.perf_counter() - at.seconds
    lean = information.lean
    for k in range(STEPS):
        old = at.climb.point
        new, longest = _step(old, lean, information, climber.expect, longest, trials=1 if k else TRIALS)
        if new is None:
            break
        s = new.x - old.x
        missed = new.value - old.value - float(0.5 * (old.gradient + new.gradient) @ s + lean @ s)
        pull = information.observed @ s
        lean = lean + 2 * missed * pull / float(s @ pull)
        left = _length(new.gradient + lean, information)
        climb = Climb(new, at.climb.pairs, float(np.abs(s).max(initial=0.0)), left)
        at = climber.moved(at, climb, time.perf_counter() - began)
        if left <= close:
            break
    return at, longest


def _length(slope: Array, information: Information) -> float:
    """√(d·J⁻¹d): the distance of the maximum in standard errors."""
    return float(np.sqrt(max(float(slope @ information.inverse @ slope), 0.0)))


def _step(
    old: Evaluation,
    lean: Array,
    information: Information,
    expect: Expectation,
    longest: float,
    *,
    trials: int,
) -> tuple[Evaluation | None, float]:
    """One Newton step, at most so many standard errors long; None unless the evidence rises about as foreseen. And the next one's most."""
    slope = old.gradient + lean
    way, off = information.inverse @ slope, _length(slope, information)
    length = min(1.0, longest / off)
    for _ in range(trials):
        new = tried(expect, old.x + length * way, old)
        foreseen = length * (1 - 0.5 * length) * off**2
        if new is not None and new.value - old.value >= 0.25 * foreseen:
            right = new.value - old.value >= AS_FORESEEN * foreseen
            return new, longest * (2.0 if right else 1.0)
        length *= 0.5
    return None, max(LONGEST_STEP, length * off)
