"""Standard errors from the observed information, and what the data cannot tell.

    J = −∂g/∂x, by central differences of Fisher's gradient g (prior included), made symmetric
    covariance = J⁻¹ on the directions that are identified

Differences are taken along directions that complete counts would tell apart (I, their information, is the unit), first
with small steps. Where the data hold only a small share ρ of what complete counts would say, such a step moves the
gradient by little more than the engine's tolerance, so it is taken again with a length of a fraction of the standard
error 1/√ρ found. A direction is not identified when complete counts say nothing about it (a feature that never
varies), or when its standard error exceeds `WIDEST` times the change that would move one individual's log-odds by one
standard deviation: ρ · individuals < 1/WIDEST².
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space

from headcount._types import Array
from headcount.learn._climb import usable
from headcount.learn._components import Initial
from headcount.learn._expect import Evaluation, Expectation
from headcount.learn._files import saved
from headcount.learn._objective import NULL_SHARE, scaled_eigen

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
EDGE = 1e-2
"""Expected individuals in all below which a probability counts as zero: bringing it there changes the evidence by about as many nats."""
MOST_DIFFERENCES = 3
"""Times that differences are taken, at most: along a curved ridge the last point's curvature is no guess of this one's."""
TRIALS = 3
"""Places tried of an end: of a difference step where an E-step fails, each a fifth as far as the one before."""
SMALLEST_NAMED = 0.1
"""Smallest share of a direction's largest coefficient that is named."""


@saved
@dataclass(frozen=True)
class Direction:
    """A combination of parameters that the data do not determine, with the reason."""

    coefficients: dict[str, float]
    reason: str

    def __str__(self) -> str:
        parts = [f"{value:+.2g}·{name}" for name, value in self.coefficients.items()]
        what = next(iter(self.coefficients)) if len(parts) == 1 else " ".join(parts)
        return f"{what}: {self.reason}"


@saved
@dataclass(frozen=True)
class Information:
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


def prior_note(information: Information, prior: Array, names: Sequence[str]) -> list[str]:
    """What rests on the prior alone: directions along which it holds more than `PRIOR_SHARE` of the information."""
    if not np.any(prior):
        return []
    share, vectors = np.linalg.eigh(0.5 * (information.inverse + information.inverse.T))
    root = vectors * np.sqrt(np.maximum(share, 0.0))
    held, turned = np.linalg.eigh(root.T @ prior @ root)
    alone = held > PRIOR_SHARE
    if not alone.any():
        return []
    weight = np.sqrt(np.sum((root @ turned[:, alone]) ** 2, axis=1))
    most = [names[k] for k in np.argsort(-weight, kind="stable")[:3]]
    return [
        f"the data do not identify {int(alone.sum())} of {len(names)} directions: there the prior holds more than "
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
    """Which parameters are a learned initial distribution's, and their block of J: complete information less cov(n₀ | y).

    log p(n | π) is linear in log π, so that no E-step is needed. Empty where there is none, and where the engine gives no
    covariance here.
    """
    initial = expect.families[0].find(Initial)
    spread = [p for p in point.posteriors if p is not None and p.beliefs.has_spread]
    if initial is None or len(spread) < len(expect.problems):
        return np.zeros(0, dtype=np.intp), np.zeros((0, 0))
    where, free = initial.where, initial.component.place[1]
    block = complete[np.ix_(where, where)].copy()
    for posterior in spread:
        first = (posterior.problem.model.variables[0],)
        hidden = np.asarray(posterior.beliefs.covariance(first, first))[np.ix_(free, free)]
        block -= hidden / posterior.problem.root_phi**2
    return where, block


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
