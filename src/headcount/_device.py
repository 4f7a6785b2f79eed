"""Where computations run: arrays on a graphics card, through the functions that NumPy and CuPy share; tasks on a Dask cluster.

Code that may run on a device asks an array for its namespace where it makes new ones; NumPy's functions on existing arrays go to
the array's own library by themselves (``__array_function__``). Nothing is copied without `Device.put` or `host`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from headcount import memory
from headcount.errors import ModelError

DEVICES = ("cpu", "cuda")
"""What an engine's ``device`` may be."""


COPIED_AT_ONCE = 2**26
"""Bytes per copy to a device: CuPy pins as much memory of the computer, and 800 MB at once took 2.8 s (H200)."""


class DeviceError(ModelError):
    """A device that is asked for and is not there."""


class Device(NamedTuple):
    """A place for arrays that is not NumPy's: its functions, its sparse matrices, and how much memory it has free."""

    xp: Any
    csr: Callable[..., Any]
    free: Callable[[], int]

    def put(self, values: Any) -> Any:
        """An array or a csr matrix there."""
        if not sparse.issparse(values):
            return self.xp.asarray(values) if values.nbytes <= COPIED_AT_ONCE else self._in_parts(values)
        parts = (values.data, values.indices, values.indptr)
        return self.csr(tuple(self.xp.asarray(part) for part in parts), shape=values.shape)

    def _in_parts(self, values: Any) -> Any:
        made = self.xp.empty(values.shape, values.dtype)
        step = max(COPIED_AT_ONCE * len(values) // values.nbytes, 1)
        for start in range(0, len(values), step):
            made[start : start + step] = self.xp.asarray(values[start : start + step])
        return made


def find_device(name: str) -> Device | None:
    """The device of a name; None for "cpu", where arrays are NumPy's.

    Raises
    ------
    DeviceError
        Where CuPy is not installed, or finds no device.
    """
    return None if name == "cpu" else _cuda()


@cache
def _cuda() -> Device:
    try:
        import cupy
        from cupyx.scipy.sparse import csr_matrix
    except ImportError as error:
        raise DeviceError(
            'device="cuda" needs CuPy, which is not installed here: pip install "headcount[gpu]", or leave device out (the CPU)'
        ) from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise DeviceError(f"{NO_DEVICE} (CuPy says: {error})") from error
    if not count:
        raise DeviceError(NO_DEVICE)

    def free() -> int:
        pool = cupy.get_default_memory_pool()
        return int(cupy.cuda.runtime.memGetInfo()[0] + pool.free_bytes())

    return Device(cupy, csr_matrix, free)


NO_DEVICE = (
    'device="cuda" was asked for, and CuPy finds no CUDA device on this machine: leave device out (the CPU), or run where '
    "nvidia-smi shows one"
)


def require(device: Device, need: int, what: str) -> None:
    """Refuse what does not fit the device's free memory, with both numbers, before anything is copied there."""
    free = device.free()
    if need > free:
        raise memory.TooLargeError(
            f"{what} takes about {memory.readable_bytes(need)} of the device's memory and {memory.readable_bytes(free)} of it is free: "
            'leave device out (the CPU), use structure="matrix-free" or sparse transitions, or merge cells'
        )


def namespace(values: Any) -> Any:
    """The module whose functions make arrays beside this array or sparse matrix; NumPy for anything that is neither."""
    values = values.data if issparse(values) else values
    if type(values).__module__.partition(".")[0] == "cupy":
        return sys.modules["cupy"]
    asked = getattr(values, "__array_namespace__", None)
    return np if isinstance(values, np.ndarray) or asked is None else asked()


def issparse(values: Any) -> bool:
    """Whether this is a sparse matrix, of whatever library."""
    return hasattr(values, "indptr")


def multiply_add(a: Any, b: Any, c: Any) -> Any:
    """A + b c; on a graphics card in one kernel, whose start costs more than its work."""
    return a + b * c if type(c).__module__.partition(".")[0] != "cupy" else _multiply_add()(a, b, c)


@cache
def _multiply_add() -> Any:
    import cupy

    return cupy.ElementwiseKernel(
        "float64 a, float64 b, float64 c", "float64 made", "made = a + b * c", "headcount_add"
    )


def solve_triangular(factor: Any, right: Any, *, transpose: bool) -> Any:
    """``L⁻¹ b`` (or ``L⁻ᵀ b``) for lower triangular L, on a device."""
    solve = getattr(namespace(factor), "solve_triangular", None) or _cupyx_solve()
    return solve(factor, right, trans=int(transpose), lower=True)


def _cupyx_solve() -> Any:
    from cupyx.scipy.linalg import solve_triangular

    return solve_triangular


def cholesky(matrix: Any) -> Any | None:
    """The lower Cholesky factor, on a device; None where the matrix is not positive definite."""
    xp = namespace(matrix)
    try:
        if xp.__name__ != "cupy":
            return xp.linalg.cholesky(matrix)
        from cupyx import errstate

        with errstate(linalg="raise"):
            return xp.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return None


def row_of_entries(matrix: Any) -> Any:
    """The row of every stored entry of a csr matrix."""
    rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int32), np.diff(host(matrix.indptr)))
    return namespace(matrix).asarray(rows)


def on_host(values: Any) -> bool:
    """Whether this array or sparse matrix is NumPy's (SciPy's)."""
    return isinstance(values, np.ndarray) or namespace(values) is np


def host(values: Any) -> Any:
    """The same array or csr matrix as NumPy's (SciPy's)."""
    if on_host(values):
        return values
    if issparse(values):
        parts = tuple(host(part) for part in (values.data, values.indices, values.indptr))
        return sparse.csr_array(parts, shape=values.shape)
    return values.get()


@contextmanager
def connected(client: Any) -> Iterator[Any]:
    """A Dask client: the given one, or one for an address, closed at the end."""
    try:
        from distributed import Client
    except ImportError:
        raise ValueError("running on a cluster needs Dask: pip install 'headcount[cluster]'") from None
    if not isinstance(client, str):
        yield client
        return
    try:
        made = Client(client, timeout="10s")
    except (OSError, ValueError) as error:
        raise ValueError(f"client is {client!r}, and no scheduler answers there: {error}") from None
    with made:
        yield made
