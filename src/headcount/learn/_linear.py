"""Solving with an information matrix that may be singular: a direction nobody moves along is not moved along."""

from __future__ import annotations

import numpy as np

from headcount.learn._component import Array

NULL = 1e-10
"""Share of the largest eigenvalue (of the matrix scaled to a unit diagonal) below which a direction is null."""


def scaled_eigen(matrix: Array) -> tuple[Array, Array, Array]:
    """(scale, eigenvalues, vectors) of D⁻¹ M D⁻¹, D = √diag M; a parameter without information has scale 0."""
    scale = np.sqrt(np.maximum(np.diagonal(matrix), 0.0))
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T) * np.outer(inverse, inverse))
    return scale, values, vectors


def pseudo_solve(matrix: Array, v: Array) -> Array:
    """M⁺ v, null directions (see `NULL`) left out; v may be a matrix."""
    scale, values, vectors = scaled_eigen(matrix)
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    kept = values > NULL * max(float(values.max(initial=0.0)), 1e-300)
    part = vectors[:, kept]
    scaled = inverse[:, None] * part
    return scaled @ ((scaled.T @ v).T / values[kept]).T
