"""How kernels are compiled: cached on disk, without the interpreter's lock, division as in NumPy.

`bare` functions allocate nothing and so need no reference counts. Numba otherwise counts every array argument of every
call, with atomic instructions: measured, that alone makes a sweep of the path sampler five times slower.
"""

from typing import Any

from numba import njit

_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}
_BARE: dict[str, Any] = {**_OPTIONS, "_nrt": False}

kernel = njit(**_OPTIONS)
bare = njit(**_BARE)
bare_sums = njit(**_BARE, fastmath={"reassoc", "contract"})
"""For loops whose additions may be reordered, so that they use the vector unit."""
