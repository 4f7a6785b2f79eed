"""Standard errors from the observed information, and what the data cannot tell.

    J = −∂g/∂x, by central differences of Fisher's gradient g (prior included), made symmetric
    covariance = J⁻¹ on the directions that are identified

Each parameter is moved by a fraction of its standard error under complete counts. A direction v is not identified
when complete counts would say nothing about it (a feature that never varies), or when the data hold less than
`LEAST` of what complete counts would: vᵀJv < LEAST · vᵀIv, I the information of complete counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headcount.learn._component import Array
from headcount.learn._expect import Evaluation, Expectation
from headcount.learn._linear import NULL, scaled_eigen

LEAST = 1e-3
STEP = 0.05
"""Of a standard error under complete counts."""
WIDEST = 0.25
"""Largest step, in the parameter's own unit."""
SHOWN = 0.1
"""Smallest share of a direction's largest coefficient that is named."""


@dataclass(frozen=True)
class Direction:
    """A combination of parameters that the data do not determine, with the reason."""

    coefficients: dict[str, float]
    reason: str

    def __str__(self) -> str:
        parts = [f"{value:+.2g}·{name}" for name, value in self.coefficients.items()]
        what = next(iter(self.coefficients)) if len(parts) == 1 else " ".join(parts)
        return f"{what}: {self.reason}"


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
        Largest |J − Jᵀ|/√(I_kk I_ll): zero for the Jacobian of a gradient; what is left tells how far the
        engine's gradient is from being one.
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


def observed_information(point: Evaluation, expect: Expectation, names: Sequence[str]) -> Information:
    """J by 2K E-steps, warm-started from the estimate."""
    complete = point.objective.information(point.x)
    scale = np.sqrt(np.maximum(np.diagonal(complete), 0.0))
    with np.errstate(divide="ignore"):
        steps = np.minimum(STEP / scale, WIDEST)
    points = [
        point.x + sign * steps[k] * unit for k, unit in enumerate(np.eye(len(steps))) for sign in (1, -1)
    ]
    found = expect.several(points, point.starts)
    rows = [
        (down.gradient - up.gradient) / (2 * step)
        for up, down, step in zip(found[::2], found[1::2], steps, strict=True)
    ]
    return examine(np.array(rows).reshape(len(steps), len(steps)), complete, names)


def examine(jacobian: Array, complete: Array, names: Sequence[str]) -> Information:
    """Covariance and identification from J and I."""
    scale, eigenvalues, vectors = scaled_eigen(complete)
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    gap = np.abs(jacobian - jacobian.T) * np.outer(inverse, inverse)
    observed = 0.5 * (jacobian + jacobian.T)
    kept = eigenvalues > NULL * max(float(eigenvalues.max(initial=0.0)), 1e-300)
    directions = [_named(names, np.eye(len(names))[k], _NEVER) for k in np.flatnonzero(scale == 0)]
    for k in np.flatnonzero(~kept):
        v = inverse * vectors[:, k]
        if np.abs(v).max() > 0 and not (np.abs(vectors[:, k])[scale == 0] > 0.5).any():
            directions.append(_named(names, v, _TOGETHER))
    # Whitened by complete counts, J has eigenvalues between 0 and 1: the share of the information observed.
    white = (inverse[:, None] * vectors[:, kept]) / np.sqrt(eigenvalues[kept])
    share, turned = np.linalg.eigh(white.T @ observed @ white)
    back = white @ turned
    seen = share > LEAST
    for k in np.flatnonzero(~seen):
        directions.append(_named(names, back[:, k], _HIDDEN.format(share=max(float(share[k]), 0.0))))
    covariance = (back[:, seen] / share[seen]) @ back[:, seen].T
    for found in directions:
        lost = [k for k, name in enumerate(names) if name in found.coefficients]
        covariance[lost, :] = covariance[:, lost] = np.nan
        covariance[lost, lost] = np.inf
    return Information(
        observed,
        complete,
        covariance,
        float(gap.max(initial=0.0)),
        tuple(directions),
        bool((share < -LEAST).any()),
    )


_NEVER = "nothing varies with it where anyone can be, so no counts could determine it; fix it or leave it out"
_TOGETHER = "these act together, so no counts could tell them apart; fix or leave out one of them"
_HIDDEN = "the data hold {share:.1e} of what complete counts would say; add data, a prior, or fix one"


def _named(names: Sequence[str], v: Array, reason: str) -> Direction:
    size = np.abs(v)
    top = size.max()
    order = np.argsort(-size, kind="stable")
    return Direction({names[k]: float(v[k] / v[order[0]]) for k in order if size[k] >= SHOWN * top}, reason)
