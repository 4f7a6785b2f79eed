"""Parameters under the names and on the scales that people use, with intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import expit, logit, ndtri

from headcount.learn._component import Array, Natural
from headcount.learn._family import ChainFamily, Family, RateFamily
from headcount.learn._rows import Rows


def natural_of(family: Family, x: Array) -> Natural:
    """All components' natural parameters side by side."""
    parts = [c.natural(piece) for c, piece in zip(family.components, family.split(x), strict=True)]
    jacobian = np.zeros((sum(len(p.values) for p in parts), len(x)))
    row = column = 0
    for part in parts:
        height, width = part.jacobian.shape
        jacobian[row : row + height, column : column + width] = part.jacobian
        row, column = row + height, column + width
    return Natural(
        tuple(n for p in parts for n in p.names),
        np.concatenate([p.values for p in parts]),
        jacobian,
        tuple(k for p in parts for k in p.link),
    )


def standard_errors(natural: Natural, covariance: Array) -> Array:
    """√diag(J C Jᵀ); infinite where a parameter is not identified."""
    variance = np.diagonal(covariance)
    lost = ~np.isfinite(variance)
    known = np.where(lost[:, None] | lost[None, :], 0.0, covariance)
    found = np.sqrt(np.maximum(np.einsum("mk,kl,ml->m", natural.jacobian, known, natural.jacobian), 0.0))
    moved = (np.abs(natural.jacobian[:, lost]) > 1e-12).any(axis=1)
    return np.where(moved, np.inf, found)


def interval(natural: Natural, errors: Array, level: float) -> tuple[Array, Array]:
    """Symmetric on the link's scale, so that probabilities stay within (0, 1) and rates above 0."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    z = float(ndtri(0.5 + level / 2))
    v = natural.values
    lower, upper = np.empty_like(v), np.empty_like(v)
    for k, link in enumerate(natural.link):
        with np.errstate(divide="ignore", invalid="ignore"):
            if link == "identity":
                lower[k], upper[k] = v[k] - z * errors[k], v[k] + z * errors[k]
            elif link == "log":
                wide = z * errors[k] / v[k]
                lower[k], upper[k] = v[k] * np.exp(-wide), v[k] * np.exp(wide)
            else:
                slope = v[k] * (1 - v[k])
                wide = z * errors[k] / slope if slope > 0 else np.inf
                lower[k], upper[k] = expit(logit(v[k]) - wide), expit(logit(v[k]) + wide)
    return lower, upper


def named_values(family: Family, given: Any) -> Array:
    """True natural parameters, NaN where not given: by name, as a vector, or as a chain's transition table."""
    natural = natural_of(family, family.start())
    if isinstance(given, Mapping):
        unknown = [n for n in given if n not in natural.names]
        if unknown:
            raise ValueError(f"truth names {unknown}: the parameters are {', '.join(natural.names)}")
        return np.array([float(given.get(n, np.nan)) for n in natural.names])
    values = np.asarray(given, dtype=float)
    if values.size == len(natural.names):
        return values.ravel()
    inner = family.inner if isinstance(family, RateFamily) else family
    rows = inner.transitions if isinstance(inner, ChainFamily) else None
    if isinstance(rows, Rows) and values.size == rows.free.size:
        moving = rows.free & (rows.free.sum(axis=1) > 1)[:, None]
        first = values.reshape(rows.free.shape)[moving]
        return np.concatenate([first, np.full(len(natural.names) - len(first), np.nan)])
    raise ValueError(
        f"truth has {values.size} values for {len(natural.names)} parameters: give one each, or a mapping by name"
    )
