"""BLAS and LAPACK, called directly, from one library.

NumPy's and SciPy's wheels each bring their own thread pool; alternating between them makes the pools fight (a smoother at
L = 144 is then twenty times slower). Everything in the Gaussian passes therefore goes through SciPy's, on Fortran-ordered arrays.
On a device the same functions call its own library; symmetric matrices have both triangles there, and nothing is overwritten.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, cast

import numpy as np
from scipy.linalg.blas import dgemm, dgemv, dsymm, dsyr2k, dsyrk, dtrmm, dtrsm
from scipy.linalg.lapack import dpotrf

from headcount import _device
from headcount._device import on_host

if TYPE_CHECKING:
    from headcount._types import Array, Mask


SMALL = 160
"""Matrix size below which one BLAS thread is faster than two (measured on two cores): a call does not pay for waking the pool."""
BLOCK = 48
"""Columns that an elimination takes at once. What couples the blocks is a matrix product, four times as fast
per operation (kept from an earlier experiment; no derivation)."""
MIRRORED = 64
"""Columns that are mirrored at once: a corner of 64 × 64 doubles is 32 kB, a core's first cache."""


def fortran(a: Array) -> Array:
    """The same matrix in Fortran order, float64."""
    return np.asfortranarray(a, dtype=np.float64) if on_host(a) else a


def add_to_diagonal(a: Array, values: Array | float) -> None:
    """Add to the diagonal of a square matrix, in place."""
    if on_host(a):
        a.ravel(order="K")[:: a.shape[0] + 1] += values
    else:
        at = _device.namespace(a).arange(len(a))
        a[at, at] += values


def row_dots(a: Array, b: Array) -> Array:
    """Σ_j a_ij b_ij."""
    return np.einsum("ij,ij->i", a, b) if on_host(a) else (a * b).sum(axis=1)


def largest(a: Array) -> float:
    """The largest absolute value; zero of no values."""
    return float(np.abs(a).max()) if a.size else 0.0


def product(a: Array, b: Array, *, left: bool = False, right: bool = False) -> Array:
    """``op(a) op(b)``; ``left``/``right`` transpose the operand."""
    if not on_host(a):
        return (a.T if left else a) @ (b.T if right else b)
    if a.size == 0 or b.size == 0:
        return np.zeros((a.shape[1 if left else 0], b.shape[0 if right else 1]), order="F")
    return cast("Array", dgemm(1.0, a, b, trans_a=left, trans_b=right))


def apply(a: Array, x: Array, *, transpose: bool = False) -> Array:
    """``a x`` or ``aᵀ x`` for a vector."""
    if not on_host(a):
        return (a.T if transpose else a) @ x
    if a.size == 0:
        return np.zeros(a.shape[1 if transpose else 0])
    return cast("Array", dgemv(1.0, a, x, trans=transpose))


def symmetric_product(s: Array, b: Array) -> Array:
    """``s b`` where only the lower triangle of the symmetric ``s`` is read."""
    if not on_host(s):
        return s @ b
    if s.size == 0 or b.size == 0:
        return np.zeros((s.shape[0], b.shape[1]), order="F")
    return cast("Array", dsymm(1.0, s, b, lower=1))


def gram(a: Array, *, scale: float = 1.0, onto: Array | None = None, left: bool = False) -> Array:
    """``scale · a aᵀ (+ onto)``, or with ``aᵀ a``; lower triangle only; ``onto`` is overwritten."""
    if not on_host(a):
        made = scale * (a.T @ a if left else a @ a.T)
        return made if onto is None else made + onto
    if a.size == 0:
        size = a.shape[1 if left else 0]
        return np.zeros((size, size), order="F") if onto is None else onto
    if onto is None:
        return cast("Array", dsyrk(scale, a, trans=left, lower=1))
    return cast("Array", dsyrk(scale, a, trans=left, lower=1, beta=1.0, c=onto, overwrite_c=1))


def sandwich(a: Array, s: Array, *, onto: Array | None = None) -> Array:
    """``a s aᵀ (+ onto)`` for symmetric ``s``; lower triangles only are read and written; ``onto`` is overwritten.

    With T the lower triangle of s, its diagonal halved, this is ``(aT)aᵀ + a(aT)ᵀ``: three quarters of the work of two products.
    """
    if not on_host(a):
        made = (a @ s) @ a.T
        return made if onto is None else made + onto
    if a.size == 0:
        return np.zeros((a.shape[0], a.shape[0]), order="F") if onto is None else onto
    half = dtrmm(1.0, s, a, side=1, lower=1)
    half -= a * (0.5 * np.diagonal(s))
    if onto is None:
        return cast("Array", dsyr2k(1.0, a, half, lower=1))
    return cast("Array", dsyr2k(1.0, a, half, lower=1, beta=1.0, c=onto, overwrite_c=1))


def cholesky(a: Array) -> Array | None:
    """Lower Cholesky factor from the lower triangle (overwritten); None when ``a`` is not positive definite."""
    if not on_host(a):
        return _device.cholesky(a)
    if a.size == 0:
        return a
    factor, info = dpotrf(a, lower=1, clean=1, overwrite_a=1)
    return cast("Array", factor) if info == 0 else None


def forward_solve(factor: Array, b: Array, *, transpose: bool = False) -> Array:
    """``L⁻¹ b`` (or ``L⁻ᵀ b``) for lower triangular ``L``."""
    if not on_host(factor):
        return _device.solve_triangular(factor, b, transpose=transpose)
    if b.size == 0:
        return b
    return cast("Array", dtrsm(1.0, factor, b, lower=1, trans_a=transpose))


def subtract_product(columns: Array, a: Array, b: Array) -> None:
    """``columns −= a bᵀ`` in place, for whole columns of a Fortran-ordered matrix."""
    if a.size and columns.size:
        dgemm(-1.0, a, b, trans_b=True, beta=1.0, c=columns, overwrite_c=1)


def divide_right(b: Array, factor: Array) -> Array:
    """``b L⁻ᵀ`` for lower triangular ``L``; ``b`` is overwritten."""
    if not on_host(b):
        return _device.solve_triangular(factor, b.T, transpose=False).T
    if b.size == 0:
        return b
    return cast("Array", dtrsm(1.0, factor, b, side=1, lower=1, trans_a=1, overwrite_b=1))


def mirror(a: Array) -> Array:
    """Fill the upper triangle from the lower one, in place, in blocks that stay in cache."""
    if not on_host(a):
        return a
    size = a.shape[0]
    for i in range(0, size, MIRRORED):
        j = min(i + MIRRORED, size)
        corner = a[i:j, i:j]
        np.copyto(corner, corner.T.copy(), where=_upper(MIRRORED)[: j - i, : j - i])
        a[i:j, j:] = a[j:, i:j].T
    return a


@cache
def _upper(size: int) -> Mask:
    """Where a matrix is strictly above its diagonal."""
    return np.asfortranarray(np.tri(size, k=-1, dtype=bool).T)


@cache
def _controller() -> object:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def threads_for(size: int) -> Iterator[None]:
    """One BLAS thread while matrices are small; the machine's own setting above :data:`SMALL`."""
    if size >= SMALL:
        yield
        return
    with _controller().limit(limits=1, user_api="blas"):  # type: ignore[attr-defined]
        yield
