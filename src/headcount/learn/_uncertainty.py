"""The uncertainty of learned parameters: standard errors, what the data cannot tell, and posteriors that include it.

**The observed information.**

    J = −∂g/∂x, by central differences of Fisher's gradient g (prior included), made symmetric
    covariance = J⁻¹ on the directions that are identified

Differences are taken along directions that complete counts would tell apart (I, their information, is the unit), first
with small steps. Where the data hold only a small share ρ of what complete counts would say, such a step moves the
gradient by little more than the engine's tolerance, so it is taken again with a length of a fraction of the standard
error 1/√ρ found. A direction is not identified when complete counts say nothing about it (a feature that never
varies), or when its standard error exceeds `WIDEST` times the change that would move one individual's log-odds by one
standard deviation: ρ · individuals < 1/WIDEST².

**Posteriors.** The parameters are N(x̂, V) around the estimate. One warm-started E-step at each end of every standard deviation of V gives
the response of all expected counts to it, and `IntegratedBeliefs` adds its square to the variance. Where the evidence at an end is much
lower than a Gaussian's ½ nat below the maximum, the data forbid to go so far: the end is moved inwards, by its own fall. Where the data
say nothing, the end is `LONGEST_SPREAD` away. A probability that ran to zero has no Gaussian around it: its mean and standard deviation
are those of a flat prior times the evidence, found on a grid, and the posterior is made there (`_off_the_edge`). Maxima within `RIVAL`
nats of the best are mixed by their evidence. Few parameters of moves that the data leave on a ridge or at an edge are drawn from evidence ×
a neutral prior instead (`headcount.learn._neutral`), and the posterior is the mean over draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space
from scipy.special import chdtri, logit

from headcount._types import Array
from headcount.engines import Posterior, Status
from headcount.individual import MarkovChain
from headcount.learn._between import ManyTables, integral_of_tables, tables_of
from headcount.learn._churn import churn_by_means
from headcount.learn._climb import (
    RIVAL,
    Climb,
    Climber,
    Optimum,
    same_maximum,
    usable,
)
from headcount.learn._components import Initial, MatrixMoves, Moves, with_transitions
from headcount.learn._expect import NULL_SHARE, Evaluation, Expectation, inferred, run_here, scaled_eigen
from headcount.learn._family import Family, required
from headcount.learn._files import Saved
from headcount.learn._initial import initial_response, score_covariance
from headcount.learn._margins import tables_at_once
from headcount.learn._neutral import WIDE, Integral, Target, integrable, integral_of, taken
from headcount.learn._pooled import FEWEST_TABLES, PooledCheck, pool_of_tables
from headcount.learn._populations import Fidelities
from headcount.observe import Problem
from headcount.population import DispersionEstimate, Overdispersion
from headcount.posterior import IntegratedBeliefs, MixtureBeliefs
from headcount.posterior.doubt import LEAST_CONTRACTION, Learned, named
from headcount.tables import Domain, Scope

FIRST_STEP = 0.1
"""First difference step, in standard errors under complete counts: small against the curvature's change over one."""
SECOND_STEP, TOO_LONG = 0.1, 0.2
"""Second difference step, in standard errors; and the length, by the curvature just found, beyond which the differences are taken again
with shorter steps."""
STEP_WITH_DRAWS, TOO_LONG_WITH_DRAWS = 0.4, 1.2
"""The same where the evidence carries Monte-Carlo error. On a map of 2 500 cells and 52 times, common random numbers left .02 nats of it
in differences; the second difference over .4 standard errors is .16 nats. Such maps have evidences that are parabolas over one."""
SECOND_BELOW = 0.1
"""Share of the complete information below which the second step is taken: above it the first is at least 0.03 standard errors."""
WIDEST = 10.0
"""Largest standard error of something identified, in an individual's standard deviations."""
LONGEST_SPREAD = 3.0
"""Longest standard deviation of the estimate that is integrated over, in the same unit: odds of e³ ≈ 20 either way, beyond which a
probability is as good as 0 or 1."""
LONGEST_STEP = 0.25
"""Longest difference step, in the same unit."""
CURVATURE_ERROR = 0.3
"""Relative difference between Fisher's and the evidence's own curvature that is put down to the tolerance of E-steps: 1e-4 nats in
a second difference of 0.01 are 4 %, and their squares vary."""
PRIOR_SHARE = 0.9
"""Share of the information along a direction above which the prior, not the data, makes the estimate."""
PULL_LEVEL = 0.05
"""Probability of a pull of a right prior's beyond which it is in doubt; smaller unless prior and counts tell the same."""
EDGE = 1e-2
"""Expected individuals in all below which a probability counts as zero: bringing it there changes the evidence by about as many nats."""
MOST_DIFFERENCES = 3
"""Times that differences are taken, at most: along a curved ridge the last point's curvature is no guess of this one's."""
TRIALS = 3
"""Places tried of an end: of a difference step where an E-step fails, each a fifth as far as the one before."""
SMALLEST_NAMED = 0.1
"""Smallest share of a direction's largest coefficient that is named."""
EXPECTED_FALL = 0.5
"""Nats by which the evidence falls over one standard deviation if it is Gaussian."""
DEEPEST_FALL = 1.5
"""Nats of fall beyond which an end is moved inwards: three times what is expected, so that the sd is wrong by a factor of 1.7."""
MOST_RESPONSES = 20_000_000
"""Most numbers kept of all responses of one problem: 160 MB. Beyond, the columns are mixed at random into fewer (see `_sketched`)."""
FEWEST_COLUMNS = 8
"""Fewest columns worth keeping: a variance from 8 random ones is known to 50 %."""
BATCH = 16
"""Columns whose tables are held at once."""
RANDOM_COLUMNS = 50
"""Most parameters integrated over with a random engine: each adds the Monte-Carlo error of its means to the variance."""
EDGE_GRID = 1e-6 * 3.0 ** np.arange(12)
"""Values of a probability that ran to zero at which the evidence is found: up to .18, each three times the last, which is fine enough for a
function that falls as e^(−a p) does (its mean comes out within 2 %)."""
MOST_EDGES = 10
"""Probabilities that ran to zero up to which they are integrated over: each takes 12 E-steps."""
LARGEST_LOG_ODDS = 15.0
"""Log-odds of a single weight that no count of individuals can support: e^15 is three million."""
OPEN_LOG_ODDS = 6.0
"""Log-odds of a weight (one move in 400) beyond which a standard error above `LONGEST_SPREAD` means that it runs off: the counts then leave
every larger weight as probable."""
FEW_WIDE = 0.1
"""Share of moves whose probabilities may have errors beyond `WIDE` without being integrated over."""
ON_A_RIDGE = f"moves are told too badly for a Gaussian around the estimates (log-odds to {WIDE:g} at best, or probabilities at an edge)"
"""Where moves are not integrated over although a Gaussian does not describe them."""
GIVEN = "given with the model"
"""What is said of parameters where none was learned but an initial law that is integrated over."""
TANGENT_STEP = 1e-4
"""Step of differences of expected counts: its square and float64's precision over it are both below 1e-7."""


MOST_TERMS = 4
"""Parameters of a direction that a sentence names; the rest is counted."""


@dataclass(frozen=True)
class Direction(Saved):
    """A combination of parameters that the data do not determine, with the reason."""

    coefficients: dict[str, float]
    reason: str

    def __str__(self) -> str:
        parts = [f"{value:+.2g}·{name}" for name, value in self.coefficients.items()]
        more = len(parts) - MOST_TERMS
        what = next(iter(self.coefficients)) if len(parts) == 1 else " ".join(parts[:MOST_TERMS])
        if more > 0:
            what += f" … ({more} further terms in fit.information.unidentified)"
        return f"{what}: {self.reason}"


@dataclass(frozen=True)
class Information(Saved):
    """What the data say about the parameters near the estimate.

    Attributes
    ----------
    observed, complete
        J and I, shape (K, K).
    covariance
        Of the estimate; infinite variances where a direction is not identified.
    asymmetry
        Largest |J_kl − J_lk|/√(J_kk J_ll) along the directions used: zero for the Jacobian of a gradient;
        what is left tells how far the engine's gradient is from being one.
    unidentified
        Directions the data do not determine.
    """

    observed: Array
    complete: Array
    covariance: Array
    asymmetry: float
    unidentified: tuple[Direction, ...]
    saddle: bool
    """Whether some direction curves upwards: the estimate is then no maximum of what the engine sees."""
    discrepancy: float = 0.0
    """How far from the estimate the maximum of the engine's evidence lies, in standard errors; zero where Fisher's
    gradient is the evidence's derivative, NaN from an engine without evidence."""
    inverse: Array = field(default_factory=lambda: np.zeros((0, 0)))
    """|J|⁻¹ (eigenvalues without their sign) on the directions that the data say something about, zero on the others, shape
    (K, K): J⁻¹ at a maximum, and elsewhere what leads up, also where the evidence curves upwards."""
    lean: Array = field(default_factory=lambda: np.zeros(0))
    """By how much the slope of the engine's evidence exceeds Fisher's gradient, shape (K,)."""
    spread: Array = field(default_factory=lambda: np.zeros((0, 0)))
    """One standard deviation of the estimate per column, shape (K, R): S Sᵀ is the covariance, except that along directions the data
    hardly determine a column is no longer than `LONGEST_SPREAD`, and directions without any effect are left out."""
    flat: bool = False
    """Whether the data leave a direction open that complete counts would determine: the evidence then has a ridge, not a maximum."""
    edge: tuple[str, ...] = ()
    """Probabilities that ran to zero; everything else is found as if they were held there."""

    def notes(self) -> list[str]:
        """What a reader of the standard errors should know."""
        notes = [f"not identified: {direction}" for direction in self.unidentified]
        if self.edge:
            notes.append(
                f"at the edge: {', '.join(self.edge)} ran to zero (fewer than {EDGE} individuals expected in all); standard "
                "errors are those with these held at zero"
            )
        if self.saddle:
            notes.append("the information has a negative eigenvalue: this is no maximum; try another start")
        if self.discrepancy > 2:
            notes.append(
                f"the maximum of the engine's evidence lies {self.discrepancy:.2g} standard errors from the zero of "
                "its gradient: the data say little enough for the approximation to matter; compare with another engine"
            )
        if self.asymmetry > 0.1:
            notes.append(
                f"the gradient's Jacobian is asymmetric by {self.asymmetry:.2g}: standard errors are rough"
            )
        return notes


def _held_by_prior(information: Information, prior: Array, share: float) -> tuple[int, Array]:
    """Along how many directions a prior holds more than this share of the information, and how much every parameter moves along them."""
    values, vectors = np.linalg.eigh(0.5 * (information.inverse + information.inverse.T))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    held, turned = np.linalg.eigh(root.T @ prior @ root)
    return int((held > share).sum()), np.sqrt(np.sum((root @ turned[:, held > share]) ** 2, axis=1))


def _leans(point: Evaluation, information: Information, family: Family) -> tuple[str, ...]:
    r"""Whether a prior that was not learned tells more than the counts, or pulls the estimates away from what these tell.

    With g the slope of the log prior at the estimate, H the information of prior and counts together, the counts alone would have it
    :math:`\sqrt{g^\top H^{-1} g}` standard errors away. Where the prior holds the truth that square is at most a quarter of
    :math:`\chi^2_K`: it is so where prior and counts tell the same.
    """
    prior, first = point.objective.prior_information(point.x), family.find(Initial)
    parts = list(zip(family.components, family.split(point.x), strict=True))
    slope = np.concatenate([np.zeros(0), *(c.prior_gradient(p) for c, p in parts)])
    learned = np.concatenate(
        [np.zeros(0, bool), *(np.full(len(p), bool(c.prior_numbers())) for c, p in parts)]
    )
    if first is not None:  # under a flat prior, which the first counts meet one by one
        learned[first.where] = True
    prior[learned], prior[:, learned], slope[learned] = 0.0, 0.0, 0.0
    if not prior.any():
        return ()
    count, weight = _held_by_prior(information, prior, 1.0 - LEAST_CONTRACTION)
    names = [family.names[k] for k in np.argsort(-weight, kind="stable") if weight[k] > 0]
    found = [f"the prior tells more than the counts about {named(names)}"] if count else []
    shift = float(slope @ information.inverse @ slope)
    if shift > chdtri(np.count_nonzero(prior.any(axis=1)), PULL_LEVEL) / 4:
        found.append(
            f"the prior pulls the estimates {np.sqrt(shift):.2g} standard errors away from what the counts tell"
        )
    return tuple(found)


def prior_note(information: Information, prior: Array, names: Sequence[str]) -> list[str]:
    """What rests on the prior alone: directions along which it holds more than `PRIOR_SHARE` of the information."""
    if not np.any(prior):
        return []
    alone, weight = _held_by_prior(information, prior, PRIOR_SHARE)
    if not alone:
        return []
    most = [names[k] for k in np.argsort(-weight, kind="stable")[:3]]
    return [
        f"the data do not identify {alone} of {len(names)} directions: there the prior holds more than "
        f"{PRIOR_SHARE:.0%} of the information, most of all for {', '.join(most)}; estimates and standard errors are the prior's"
    ]


def observed_information(
    point: Evaluation, expect: Expectation, *, guess: Array | None = None
) -> Information:
    """J by 2K E-steps, warm-started from the estimate; a learned initial distribution takes none (`_initial_block`).

    `guess` is a rough inverse of J, from the climb, that tells how long the steps must be; without it that takes
    another 2K.
    """
    names, individuals = expect.families[0].names, expect.moves
    complete = point.objective.information(point.x)
    edge = point.objective.vanishing(point.x, EDGE)
    where, inner = _initial_block(point, expect, complete)
    others = np.setdiff1d(np.arange(len(complete)), where)
    white, null = _whitened(complete, _inside(len(complete), others, edge))
    white, columns, slope, jacobian = _by_differences(point, expect, white, guess)
    if len(where):
        first, lost = _whitened(complete, _inside(len(complete), where, edge))
        cross = first.T @ columns
        jacobian = np.block([[jacobian, cross.T], [cross, first[where].T @ inner @ first[where]]])
        slope = np.concatenate([slope, first.T @ point.gradient])
        white, null = np.hstack([white, first]), [*null, *lost]
    found = examine(
        jacobian,
        white,
        null,
        complete,
        names=names,
        individuals=individuals,
        slope=slope,
        gradient=white.T @ point.gradient,
    )
    return replace(found, edge=tuple(label for label, _ in edge))


def _by_differences(
    point: Evaluation, expect: Expectation, white: Array, guess: Array | None
) -> tuple[Array, Array, Array, Array]:
    """W turned to the principal directions of J, JW, the slope of the evidence along W, and WᵀJW."""
    if guess is None:
        columns, slope, curvature = _differences(point, expect, white, np.full(white.shape[1], FIRST_STEP))
        rough = white.T @ columns if point.drawn else _scaled(white.T @ columns, curvature)
    else:
        rough = np.linalg.pinv(np.linalg.pinv(white) @ guess @ np.linalg.pinv(white).T)
    jacobian = rough
    second, too_long = (STEP_WITH_DRAWS, TOO_LONG_WITH_DRAWS) if point.drawn else (SECOND_STEP, TOO_LONG)
    for trial in range(MOST_DIFFERENCES):
        share, turned = np.linalg.eigh(0.5 * (jacobian + jacobian.T))
        if trial == 0 and guess is None and not point.drawn and not (share < SECOND_BELOW).any():
            break
        white = white @ turned
        longest = LONGEST_STEP * np.sqrt(expect.moves)
        steps = np.minimum(second / np.sqrt(np.clip(np.abs(share), 1e-12, 1.0)), longest)
        columns, slope, curvature = _differences(point, expect, white, steps)
        jacobian = _scaled(white.T @ columns, curvature)
        if (steps * np.sqrt(np.abs(np.diagonal(jacobian))) <= too_long).all():
            break
    return white, columns, slope, jacobian


def _inside(count: int, part: NDArray[np.intp], edge: Sequence[tuple[str, Array]]) -> Array:
    """A basis of the changes of some parameters that leave probabilities at zero where they are, shape (K, R)."""
    held = [v[part] for _, v in edge if v[part].any()]
    basis = null_space(np.array(held)) if held else np.eye(len(part))
    made = np.zeros((count, basis.shape[1]))
    made[part] = basis
    return made


def _initial_block(point: Evaluation, expect: Expectation, complete: Array) -> tuple[NDArray[np.intp], Array]:
    """Which parameters are a learned initial distribution's, and their block of J: complete information less cov(n₀ − Nπ | y).

    log p(n | π) is linear in log π, and its score n₀ − Nπ, so that no E-step is needed. Empty where there is none, and where the engine
    gives no covariance here.
    """
    initial = expect.families[0].find(Initial)
    spread = [p for p in point.posteriors if p is not None and p.beliefs.has_spread]
    if initial is None or len(spread) < len(expect.problems):
        return np.zeros(0, dtype=np.intp), np.zeros((0, 0))
    where, free = initial.where, initial.component.place[1]
    hidden = sum(score_covariance(posterior)[np.ix_(free, free)] for posterior in spread)
    return where, complete[np.ix_(where, where)] - hidden


def complete_information(information: Array, names: Sequence[str], individuals: float) -> Information:
    """The same when all counts are seen: J = I."""
    white, null = _whitened(information, np.eye(len(information)))
    return examine(np.eye(white.shape[1]), white, null, information, names=names, individuals=individuals)


def _whitened(complete: Array, unit: Array) -> tuple[Array, list[tuple[Array, str]]]:
    """Directions W in the span of ``unit`` with WᵀIW = 1, shape (K, R), and those about which complete counts say nothing."""
    scale, values, vectors = scaled_eigen(unit.T @ complete @ unit)
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    kept = values > NULL_SHARE * max(float(values.max(initial=0.0)), 1e-300)
    null = [(unit[:, k], _NEVER) for k in np.flatnonzero(scale == 0)]
    for k in np.flatnonzero(~kept):
        v = inverse * vectors[:, k]
        if np.abs(v).max() > 0:
            null.append((unit @ v, _TOGETHER))
    return unit @ ((inverse[:, None] * vectors[:, kept]) / np.sqrt(values[kept])), null


def _differences(
    point: Evaluation, expect: Expectation, white: Array, steps: Array
) -> tuple[Array, Array, Array]:
    """JW, shape (K, R), and the slope and curvature of the evidence itself, (R,), by steps along the columns of W.

    Where an E-step fails, the step is taken shorter; where it still fails on one side, from the other alone. A direction
    along which no step can be made has no information.
    """

    def nearer(up: Evaluation, down: Evaluation) -> tuple[float, float]:
        return (1.0, 1.0) if usable(up, point) and usable(down, point) else (0.2, 0.2)

    ends, ways = both_ends(point, expect, white, np.asarray(steps, dtype=float), nearer)
    lengths = ways[:, 0]
    columns, rises = np.zeros((len(white), len(lengths))), np.zeros(len(lengths))
    curvature = np.full(len(lengths), np.nan)
    for k, (up, down) in enumerate(ends):
        high, low = (up if usable(up, point) else point), (down if usable(down, point) else point)
        span = lengths[k] * ((high is up) + (low is down))
        if span > 0:
            columns[:, k] = (low.gradient - high.gradient) / span
            rises[k] = (high.value - low.value) / span
        if span == 2 * lengths[k]:
            curvature[k] = (2 * point.value - high.value - low.value) / lengths[k] ** 2
    return columns, rises, curvature


def both_ends(
    point: Evaluation,
    expect: Expectation,
    columns: Array,
    lengths: Array,
    nearer: Callable[[Evaluation, Evaluation], tuple[float, float]],
    *,
    keep_tables: bool = False,
) -> tuple[list[tuple[Evaluation, Evaluation]], Array]:
    """The evaluations at both ends x ± length·column of every column, and the lengths in the end, shape (R, 2).

    ``nearer`` says of both ends by which factor to shorten the way to each; those with a factor below 1 are evaluated again, until
    `TRIALS` places of an end were tried.
    """
    ways = np.stack([lengths, lengths], axis=1)
    ends: dict[tuple[int, int], Evaluation] = {}
    factors = np.zeros_like(ways)
    for trial in range(TRIALS):
        missing = [(int(k), int(side)) for k, side in np.argwhere(factors < 1)]
        ways *= factors if trial else 1.0
        points = [point.x + (1 - 2 * side) * ways[k, side] * columns[:, k] for k, side in missing]
        ends |= zip(missing, expect.several(points, point.starts, keep_tables=keep_tables), strict=True)
        factors = np.array([nearer(ends[k, 0], ends[k, 1]) for k in range(len(ways))])
        if (factors == 1).all():
            break
    return [(ends[k, 0], ends[k, 1]) for k in range(len(ways))], ways


def _scaled(jacobian: Array, curvature: Array) -> Array:
    """J with the evidence's own curvature on its diagonal, where that is known and differs by more than `CURVATURE_ERROR`.

    Fisher's gradient of an approximate engine is not the derivative of its evidence.
    """
    diagonal = np.diagonal(jacobian)
    wrong = np.abs(curvature - diagonal) > CURVATURE_ERROR * np.abs(diagonal)  # False for NaN
    fits = wrong & (diagonal > 0) & (curvature > 0)
    ratio = np.divide(curvature, diagonal, out=np.ones_like(diagonal), where=fits)
    scale = np.where(wrong & ~fits, 0.0, np.sqrt(ratio))
    made = jacobian * np.outer(scale, scale)
    made[wrong & ~fits, wrong & ~fits] = curvature[wrong & ~fits]
    return made


def examine(
    jacobian: Array,
    white: Array,
    null: Sequence[tuple[Array, str]],
    complete: Array,
    *,
    names: Sequence[str],
    individuals: float,
    slope: Array | None = None,
    gradient: Array | None = None,
) -> Information:
    """Covariance and identification from WᵀJW; along W, `slope` is the evidence's own and `gradient` Fisher's."""
    # Symmetric on the scale of each direction's own standard error, so that a strong one does not drown a weak one.
    size = np.sqrt(np.maximum(np.abs(np.diagonal(jacobian)), 1e-300))
    gap = np.abs(jacobian - jacobian.T) / np.outer(size, size)
    share, turned = np.linalg.eigh(0.5 * (jacobian + jacobian.T))
    back = white @ turned
    least = 1.0 / (WIDEST**2 * individuals)
    seen = share > least
    directions = [_named(names, v, reason) for v, reason in null]
    for k in np.flatnonzero(~seen):
        directions.append(_named(names, back[:, k], _HIDDEN.format(share=max(float(share[k]), 0.0))))
    known = (back[:, seen] / share[seen]) @ back[:, seen].T
    covariance = known.copy()
    for found in directions:
        lost = [k for k, name in enumerate(names) if name in found.coefficients]
        covariance[lost, :] = covariance[:, lost] = np.nan
        covariance[lost, lost] = np.inf
    told = np.abs(share) > least
    rise = np.zeros(int(told.sum())) if slope is None else (turned.T @ slope)[told]
    inverse = np.linalg.pinv(white)
    lean = np.zeros(len(share)) if slope is None or gradient is None else slope - gradient
    return Information(
        observed=inverse.T @ (0.5 * (jacobian + jacobian.T)) @ inverse,
        complete=complete,
        covariance=covariance,
        asymmetry=float(gap.max(initial=0.0)),
        unidentified=tuple(directions),
        saddle=bool((share < -max(least, 1e-6)).any()),
        discrepancy=float(np.sqrt(np.sum(rise**2 / np.abs(share[told])))),
        inverse=(back[:, told] / np.abs(share[told])) @ back[:, told].T,
        lean=inverse.T @ lean,
        flat=not seen.all(),
        spread=back / np.sqrt(np.maximum(np.abs(share), 1.0 / (LONGEST_SPREAD**2 * individuals))),
    )


_NEVER = "nothing varies with it where anyone can be, so no counts could determine it; fix it or leave it out"
_TOGETHER = "these act together, so no counts could tell them apart; fix or leave out one of them"
_HIDDEN = "the data hold {share:.1e} of what complete counts would say; add data, a prior, or fix one"


def _named(names: Sequence[str], v: Array, reason: str) -> Direction:
    size = np.abs(v)
    top = size.max()
    order = np.argsort(-size, kind="stable")
    return Direction(
        {names[k]: float(v[k] / v[order[0]]) for k in order if size[k] >= SMALLEST_NAMED * top}, reason
    )


def integrated(
    expect: Expectation,
    climb: Climb,
    information: Information | None,
    optima: Sequence[Optimum] = (),
    *,
    neutral: bool = False,
    estimate: DispersionEstimate | None = None,
    progress: bool | None = None,
) -> tuple[Posterior, ...]:
    """One posterior per problem, its spread including that of the parameters; without standard errors, of the initial law only.

    With ``neutral``, few parameters of moves that the data leave on a ridge or at an edge are integrated over under a neutral prior,
    together with a dispersion whose ``estimate`` was learned beside them.
    """
    point = climb.point
    tables = (
        tables_of(expect.families, expect.problems, estimate) if neutral and information is not None else None
    )
    if tables is not None:
        return _over_tables(expect, point, tables)
    possible = None if information is None else integrable(expect, estimate, point)
    ridge = information is not None and _is_ridge(expect, point, information, estimate)
    if possible is not None and neutral and information is not None and ridge:
        edge = tuple(one.name for one in _edges(expect, point, information))
        return _over_draws(expect, point, integral_of(*possible, progress=progress), possible[0], edge)
    unknown = ridge and (possible is not None or _share_wide(expect, information) > FEW_WIDE)
    best = _around(expect, point, information, integrates=possible is not None, ridge=unknown)
    if information is None:
        return best
    others = _other_maxima(expect, climb, information, optima)
    if not others:
        return best
    parts = [best, *(_around(expect, at, known) for at, known in others)]
    # Not Laplace's volume around each: at probabilities near zero, where most second maxima lie, log-odds have no Gaussian.
    heights = np.array([point.value, *(at.value for at, _ in others)])
    weights = np.exp(heights - heights.max())
    return tuple(_mixed(group, weights / weights.sum()) for group in zip(*parts, strict=True))


def is_over_draws(
    expect: Expectation, climb: Climb, information: Information | None, estimate: DispersionEstimate | None
) -> bool:
    """Whether `integrated`, asked to be neutral, draws the parameters, whatever maximum a climb came near to."""
    return information is not None and (
        tables_of(expect.families, expect.problems, estimate) is not None
        or (
            _is_ridge(expect, climb.point, information, estimate)
            and integrable(expect, estimate, climb.point) is not None
        )
    )


def _mixed(parts: Sequence[Posterior], weights: Array) -> Posterior:
    """Several maxima as one posterior; its problem is that of the best."""
    first = parts[0]
    if not first.beliefs.has_spread:
        return first
    beliefs = MixtureBeliefs(
        [p.beliefs for p in parts],
        weights,
        first.beliefs.log_evidence,
        dict(first.diagnostics) | {"maxima": len(parts)},
    )
    first.outcome.info["parameters"] += (
        f"; {len(parts)} maxima mixed by their evidence ({', '.join(f'{w:.2g}' for w in weights)})"
    )
    return _changed(first, beliefs=beliefs)


def _other_maxima(
    expect: Expectation,
    best: Climb,
    information: Information,
    optima: Sequence[Optimum],
) -> list[tuple[Evaluation, Information]]:
    """Maxima within `RIVAL` nats of the best that the fit's own engine climbs to from the other optima."""
    found: list[tuple[Evaluation, Information]] = []
    climbs: list[Climb] = []
    if information.flat:  # the other climbs ended on the same ridge, which the spread follows already
        return found
    for optimum in optima[1:]:
        if not optima[0].evidence - optimum.evidence < RIVAL:
            continue
        start = expect(optimum.working, None)
        if start.failure:
            continue
        climber = Climber(expect, tolerance=1e-3)
        ended, status = climber(climber.at(start, optimum.start))
        at = ended.climb.point
        if not status.good or best.point.value - at.value >= RIVAL:
            continue
        if not any(same_maximum(ended.climb, other) for other in [best, *climbs]):
            climbs.append(ended.climb)
            found.append((at, observed_information(at, expect)))
    return found


class Edge(NamedTuple):
    """A parameter without a maximum: its name, its log-odds now, and the direction along which they grow by one."""

    name: str
    now: float
    up: Array


def _edges(expect: Expectation, point: Evaluation, information: Information | None) -> list[Edge]:
    """Probabilities that ran to zero, and weights that ran off: exp(−|w| r), r the range of the feature, is then a probability at zero."""
    first = expect.families[0].find(Initial)  # integrated over by its own response
    apart = np.zeros(0, np.intp) if first is None else first.where
    natural = expect.families[0].natural(point.x)
    found = []
    for name, way in point.objective.vanishing(point.x, EDGE):
        if not way[apart].any():
            k = natural.names.index(name)
            now = float(logit(max(natural.values[k], np.finfo(float).tiny)))
            found.append(Edge(name, now, way * np.sign(natural.jacobian[k] @ way)))
    reach, names = _reach(expect.families[0], point.x), expect.families[0].names
    if information is None:  # a plug-in; and a matrix of all pairs of weights may be too large
        return found
    off = set(without_maximum(expect.families[0], point.x, point.objective.information(point.x)))
    for at in np.flatnonzero(reach > OPEN_LOG_ODDS).tolist():
        error = float(np.sqrt(information.covariance[at, at]))
        if error * reach[at] / abs(point.x[at]) > LONGEST_SPREAD:
            off.add(names[at])
    for k, name in enumerate(names):
        if name not in off:
            continue
        up = np.zeros(len(point.x))
        up[k] = -point.x[k] / reach[k]
        found.append(Edge(name, -float(reach[k]), up))
    return found


def _off_the_edge(expect: Expectation, point: Evaluation, edges: Sequence[Edge]) -> tuple[Evaluation, Array]:
    r"""A point with parameters at an edge at their mean under a flat prior, and one standard deviation of each, shape (K, E).

    With the evidence L(p), the other parameters held, :math:`E\,p^k = \int p^k L(p)\,dp / \int L(p)\,dp`, by the trapezium rule in log p.
    The ends of a column at :math:`p e^{\pm s}` differ by :math:`2 p \sinh s`: s is arsinh(sd/mean).
    """
    stay = point, np.zeros((len(point.x), 0))
    if not 0 < len(edges) <= MOST_EDGES or expect.engine.random or not np.isfinite(point.value):
        return stay
    x, columns = point.x.copy(), []
    for one in edges:
        mean, sd = _edge_moments(expect, point, one.up, one.now)
        if np.isnan(mean):
            return stay
        x += (logit(mean) - one.now) * one.up
        columns.append(one.up * np.arcsinh(sd / mean))
    moved = expect(x, point.starts)
    return (moved, np.array(columns).T) if usable(moved, point) else stay


def _edge_moments(expect: Expectation, point: Evaluation, up: Array, now: float) -> tuple[float, float]:
    """Mean and standard deviation of one probability, whose log-odds ``now`` grow along ``up``; NaN where the evidence is not finite."""
    found = expect.several([point.x + move * up for move in logit(EDGE_GRID) - now], point.starts)
    values = np.array([at.value if usable(at, point) else -np.inf for at in found])
    weight = EDGE_GRID * np.exp(values - max(point.value, values.max()))
    if not (np.isfinite(weight).all() and weight.sum() > 0):
        return np.nan, np.nan
    mean, square = (float(weight @ EDGE_GRID**power / weight.sum()) for power in (1, 2))
    return mean, float(np.sqrt(square - mean**2))


def _is_ridge(
    expect: Expectation, point: Evaluation, information: Information, estimate: DispersionEstimate | None
) -> bool:
    """Whether a Gaussian around the maximum is no description of what the data say about moves.

    So it is at an edge, along directions that the data leave open, with errors of log-odds beyond `WIDE`, and where a free matrix of a
    chain in time and a dispersion were both learned from the scatter of the same counts. (Of 30 tables of two margins the integral covered
    .54 and .77 of the flows where the Gaussian covered .53 and .70, in eight times the time: there it is not taken unasked.)
    """
    matrices = expect.families[0].find(MatrixMoves)
    if information.flat or information.saddle or _edges(expect, point, information):
        return True
    if matrices is None:
        return False
    in_time = len(matrices.component.times) > 2
    return _share_wide(expect, information) > 0 or (estimate is not None and in_time)


def _share_wide(expect: Expectation, information: Information | None) -> float:
    """The share of moves, those that are no parameter left out, whose probabilities have errors of log-odds beyond `WIDE`."""
    matrices = expect.families[0].find(MatrixMoves)
    if matrices is None or information is None:
        return 0.0
    moves = np.diagonal(information.complete)[matrices.where]  # n q (1 − q)
    wide = np.sqrt(np.diagonal(information.covariance)[matrices.where]) > WIDE
    return float(moves[wide].sum() / moves.sum()) if moves.any() else 0.0


def _over_draws(
    expect: Expectation, point: Evaluation, integral: Integral, target: Target, edge: tuple[str, ...]
) -> tuple[Posterior, ...]:
    """One posterior per problem, the mean over draws of the parameters; its problem is that of their mean."""
    where, first = target.where, expect.families[0].find(Initial)

    def posteriors(moves: Array, psi: float | None) -> tuple[Posterior, ...]:
        """At some parameters of the moves and log phi."""
        x = point.x.copy()
        x[where] = moves
        together = None if psi is None or target.estimate is None else target.estimate.at(psi)
        problems = (
            expect.problems if together is None else [p.with_dispersion(together) for p in expect.problems]
        )
        own = replace(expect, problems=problems, mapper=tables_at_once(problems, run_here))
        at = own(x, None)
        made = own.posteriors(at)
        if not learned:
            return made
        beside = [initial_response(p, f, x) for p, f in zip(made, expect.families, strict=True)]
        return tuple(
            _widened(p, (one.response,), one.log_evidence) for p, one in zip(made, beside, strict=True)
        )

    learned = first is not None and not np.isin(first.where, where).any()
    draws, psi = integral.parameters, integral.psi
    middle = posteriors(draws.mean(axis=0), None if psi is None else float(psi.mean()))
    parts = [
        posteriors(draws[d], None if psi is None else float(psi[d])) for d in taken(integral, len(middle))
    ]
    x = point.x.copy()
    x[where] = draws.mean(axis=0)
    weights = np.full(len(parts), 1.0 / len(parts))
    numbers = {
        "parameter_draws": len(draws),
        "parameter_effective_size": integral.effective_size,
        "parameter_log_evidence": integral.log_evidence,
        "parameter_log_evidence_mc_error": integral.log_evidence_error,
        "parameter_churn_mc_error": integral.churn_error,
        "parameter_moves_accepted": integral.accepted,
        "parameter_evidences_failed": integral.failed,
    }
    made = []
    churn = partial(churn_by_means, expect.families, middle, x)
    pooled = PooledCheck.of(expect.families, expect.problems, x)
    for k, (posterior, *mixed) in enumerate(zip(middle, *parts, strict=True)):
        beliefs = MixtureBeliefs(
            [p.beliefs for p in mixed],
            weights,
            posterior.beliefs.log_evidence,
            dict(posterior.diagnostics) | numbers,
        )
        told = Learned(
            partial(_tangent, expect.families[k], _of_sizes(posterior, expect.problems[k]), x),
            initial=0 if first is None else len(first.where),
            moves=True,
            edge=edge,
            churn=churn,
            integrates=True,
            integral=integral,
            pooled=pooled,
        )
        made.append(_changed(_told(posterior, told, integral.words), beliefs=beliefs))
    return tuple(made)


def _over_tables(expect: Expectation, point: Evaluation, tables: ManyTables) -> tuple[Posterior, ...]:
    """One posterior per table, the mean over draws of how tables differ.

    Its problem has the probabilities under which the expected counts are those of the mean over draws, so that its own spread is that of
    a table given the parameters; the draws' deviations from the mean are its responses to them.
    """
    part = expect.families[0].find(MatrixMoves)
    assert part is not None
    integral, counts = integral_of_tables(tables, part.component.labels)
    mean, made = counts.mean(axis=0), []
    columns = (counts - mean) / np.sqrt(len(counts))
    psi = np.log(np.array(list(integral.between.values())).T)
    shape = len(part.component.free), tables.basis.shape[1], tables.design.shape[1]
    pool = pool_of_tables(tables, integral.parameters.mean(axis=0).reshape(shape), psi.mean(axis=0))
    pooled = PooledCheck(pool) if len(mean) >= FEWEST_TABLES else None
    rho = [np.mean(v) for name, v in integral.between.items() if name.startswith("rho")]
    share = mean.sum(axis=0) / np.maximum(mean.sum(axis=(0, 2))[:, None], 1.0)
    for k, (family, problem) in enumerate(zip(expect.families, expect.problems, strict=True)):
        people = mean[k].sum(axis=1, keepdims=True)
        moves = np.where(people > 0, mean[k] / np.maximum(people, 1e-300), share)
        chain = required(MarkovChain, family.apply(point.x, problem).model, "a matrix")
        own = problem.with_model(with_transitions(chain, chain.initial, moves))
        if rho:
            own = own.with_dispersion(Overdispersion(rho=rho if len(rho) > 1 else rho[0]))
        base = inferred(own, expect.engine, expect.seed + k, None)
        told = Learned(
            partial(_tangent, family, problem, point.x),
            initial=len(point.x) - len(part.where),
            moves=True,
            integrates=True,
            integral=integral,
            pooled=pooled,
        )
        numbers = {"parameter_draws": len(counts), "parameter_effective_size": integral.effective_size}
        response = {tuple(chain.variables): columns[:, k]}
        made.append(_widened(_told(base, told, integral.words), (response,), None, numbers))
    return tuple(made)


def _around(
    expect: Expectation,
    point: Evaluation,
    information: Information | None,
    *,
    integrates: bool = False,
    ridge: bool = False,
) -> tuple[Posterior, ...]:
    """The posteriors at a maximum, with the spread of the parameters around it."""
    leans = () if information is None else _leans(point, information, expect.families[0])
    leans += (ON_A_RIDGE,) * ridge
    edge, edges = np.zeros((len(point.x), 0)), _edges(expect, point, information)
    if information is not None:
        point, edge = _off_the_edge(expect, point, edges)
    posteriors = expect.posteriors(point)
    initial = [
        initial_response(posterior, family, point.x)
        for posterior, family in zip(posteriors, expect.families, strict=True)
    ]
    why_not = _why_plug_in(expect, information, initial[0].parameters)
    columns = np.zeros((len(point.x), 0))
    if information is not None and not why_not:
        columns = spread_columns(information, len(point.x), initial[0].parameters)
    if edge.shape[1]:  # one-sided: no Gaussian around a weight that ran off
        columns = columns * (~np.isin(expect.families[0].names, [one.name for one in edges]))[:, None]
    columns = np.hstack([columns, edge])
    none: list[dict[Scope, Array]] = [{} for _ in posteriors]
    responses = _responses(expect, point, columns) if columns.shape[1] else none
    words = why_not or f"their uncertainty included: {_maximum_of(point)}"
    made = []
    churn = partial(churn_by_means, expect.families, posteriors, point.x)
    first = expect.families[0].find(Initial)
    pooled = PooledCheck.of(expect.families, expect.problems, point.x)
    for k, posterior in enumerate(posteriors):
        learned = Learned(
            partial(_tangent, expect.families[k], _of_sizes(posterior, expect.problems[k]), point.x),
            initial=0 if first is None else len(first.where),
            moves=expect.families[k].find(Moves) is not None,  # type: ignore[type-abstract]
            homes=expect.families[k].find(Fidelities) is not None,
            plug_in=bool(why_not) and why_not != GIVEN,
            edge=tuple(one.name for one in edges),
            churn=churn,
            integrates=integrates,
            leans=leans,
            pooled=pooled,
        )
        own = _told(posterior, learned, words)
        made.append(_widened(own, (responses[k], initial[k].response), initial[k].log_evidence))
    return tuple(made)


def _maximum_of(point: Evaluation) -> str:
    """Around which maximum the parameters are Gaussian, in words; what is said of an initial law is said elsewhere."""
    first = point.objective.families[0].find(Initial)
    known = np.diagonal(point.objective.prior_information(point.x))
    own = np.any(np.delete(known, [] if first is None else first.where))
    return f"Gaussian around the maximum {'under a prior of their own' if own else 'without a prior'}"


def _reach(family: Family, x: Array) -> Array:
    """Largest log-odds that each parameter makes."""
    return np.concatenate([c.reach(p) for c, p in zip(family.components, family.split(x), strict=True)])


def without_maximum(family: Family, x: Array, information: Array) -> list[str]:
    """Names of weights that grow without end: large log-odds, of which the counts leave nothing to learn."""
    reach = _reach(family, x)
    weak = np.diagonal(information) * x**2 < 1.0  # a standard error larger than the weight itself
    return [n for n, far in zip(family.names, (reach > LARGEST_LOG_ODDS) & weak, strict=True) if far]


def _of_sizes(posterior: Posterior, problem: Problem) -> Problem:
    """The problem with the numbers of individuals that were found; an open population's follow from its parameters."""
    simple = problem.groups is None and not problem.opens and not problem.size_known
    return problem.with_population(max(1, round(posterior.population.mean))) if simple else problem


def _told(posterior: Posterior, learned: Learned, words: str) -> Posterior:
    """The posterior with what is known of its parameters, and words for that."""
    said = words if words == GIVEN else f"learned, {words}"
    return _changed(posterior, learned=learned, info=posterior.outcome.info | {"parameters": said})


def _changed(posterior: Posterior, **outcome: Any) -> Posterior:
    """The posterior with another outcome; other beliefs are integrals over parameters, which are not exact, whatever the engine was."""
    if "beliefs" in outcome and posterior.outcome.status is Status.EXACT:
        outcome["status"] = Status.CONVERGED
    return Posterior(posterior.problem, posterior.settings, replace(posterior.outcome, **outcome))


def _widened(
    posterior: Posterior,
    responses: Sequence[Response | None],
    log_evidence: float | None,
    numbers: Mapping[str, Any] | None = None,
) -> Posterior:
    """The posterior with the responses to its parameters in its spread; as it is where it has none."""
    parts = [response for response in responses if response]
    if not parts or not posterior.beliefs.has_spread:
        return posterior
    said = {**posterior.diagnostics, **(numbers or {})}
    joined = partial(_joined, parts)
    widened = IntegratedBeliefs(posterior.beliefs, posterior.problem, joined, log_evidence, said)
    return _changed(posterior, beliefs=widened)


Response = Mapping[Scope, Array] | Callable[[Scope], Array]


def _joined(parts: Sequence[Response], scope: Scope) -> Array:
    """All responses of a table side by side, shape (entries, columns)."""
    found = [part(scope) if callable(part) else _of_table(part, scope) for part in parts]
    return found[0] if len(found) == 1 else np.hstack(found)


def _of_table(responses: Mapping[Scope, Array], scope: Scope) -> Array:
    """The response of a table inside a clique, by margins."""
    clique = next(c for c in responses if set(scope) <= set(c))
    table = responses[clique]
    margin = np.asarray(Domain(clique, table.shape[1:]).project(table, scope))
    return margin.reshape(len(table), -1).T


def _why_plug_in(expect: Expectation, information: Information | None, apart: Sequence[int]) -> str:
    """Say why the uncertainty of the parameters that are not `apart` is left out; empty where it is included."""
    kept = len(expect.families[0].names) - len(apart)
    if not kept:
        return GIVEN
    if information is None:
        return "their uncertainty not included"
    if expect.engine.random and kept > RANDOM_COLUMNS:
        return f"their uncertainty not included ({kept} parameters are too many for a random engine)"
    return ""


def spread_columns(information: Information, count: int, apart: Sequence[int] = ()) -> Array:
    """Return C, (K, R), with C Cᵀ the covariance of the estimates, less what the parameters `apart` vary given the others."""
    kept = np.setdiff1d(np.arange(count), apart)
    covariance = information.spread @ information.spread.T
    values, vectors = np.linalg.eigh(covariance[np.ix_(kept, kept)])
    some = values > 1e-14 * values.max(initial=0.0)
    return covariance[:, kept] @ (vectors[:, some] / np.sqrt(values[some]))


def _responses(expect: Expectation, point: Evaluation, columns: Array) -> list[dict[Scope, Array]]:
    """Per problem and clique, half the change of expected counts between the ends of every column, (columns, *table)."""
    sizes = [
        sum(int(np.prod(p.model.size(tuple(c)))) for c in p.model.junction_tree.cliques)
        for p in expect.problems
    ]
    width = columns.shape[1]
    most = MOST_RESPONSES // max(sizes)
    mixing = np.eye(width) if width <= most else _sketched(width, max(most, FEWEST_COLUMNS))
    made: list[dict[Scope, Array]] = [{} for _ in expect.problems]
    for begin in range(0, width, BATCH):
        some = np.arange(begin, min(begin + BATCH, width))
        ends = _ends(expect, point, columns[:, some])
        for k, tables in enumerate(made):
            for clique in ends[0][0][k]:
                halves = np.array([0.5 * (up[k][clique] - down[k][clique]) for up, down in ends])
                part = np.tensordot(mixing[:, some], halves, axes=1)
                tables[clique] = tables[clique] + part if clique in tables else part
    return made


def _sketched(width: int, kept: int) -> Array:
    """Random signs, shape (kept, width): E[MᵀM] = 1, so that sums of squares over fewer columns are right on average."""
    return np.random.default_rng(0).choice([-1.0, 1.0], size=(kept, width)) / np.sqrt(kept)


Tables = tuple[Mapping[Scope, Array], ...]


def _ends(expect: Expectation, point: Evaluation, columns: Array) -> list[tuple[Tables, Tables]]:
    """Expected counts at both ends of every column; where no end can be evaluated, those at the point itself."""

    def nearer(end: Evaluation) -> float:
        if not usable(end, point):
            return 0.3
        fall = point.value - end.value
        return float(np.sqrt(EXPECTED_FALL / fall)) if fall > DEEPEST_FALL else 1.0

    ends, _ = both_ends(
        point,
        expect,
        columns,
        np.ones(columns.shape[1]),
        lambda up, down: (nearer(up), nearer(down)),
        keep_tables=True,
    )
    if all(usable(end, point) for pair in ends for end in pair):
        return [(up.tables, down.tables) for up, down in ends]
    here = expect.several([point.x], point.starts, keep_tables=True)[0]
    both = [[end if usable(end, point) else here for end in pair] for pair in ends]
    return [(up.tables, down.tables) for up, down in both]


def _tangent(family: Family, problem: Problem, x: Array) -> Array:
    """∂E[y]/∂x of all observed counts before seeing them, shape (counts, K), by central differences."""
    n, mean = _expected(family.apply(x, problem))
    slope = _expected(family.apply(x, problem), n + 1.0)[1] - mean
    made = np.empty((len(x), len(mean)))  # of 2 000 cells 400 MB: not twice
    for k, shift in enumerate(TANGENT_STEP * np.eye(len(x))):
        (up, high), (down, low) = (_expected(family.apply(x + s, problem), n) for s in (shift, -shift))
        made[k] = (slope * (up - down) + high - low) / (2 * TANGENT_STEP)
    return made.T


def _expected(problem: Problem, at: Array | None = None) -> tuple[Array, Array]:
    """Expected entries under the model, and what the noise makes of them (or of those given)."""
    core = problem.core
    model = core.model
    population = core.population if core.numbers is None else float(core.numbers.mean.sum())
    n = np.concatenate([population * s.margin(model.marginal(s.scope).ravel()) for s in core.sites])
    given = n if at is None else at
    mean = np.zeros(len(n))
    for index, law in core.noises:
        mean[index] = law.moments(given[index])[0]
    return n, mean
