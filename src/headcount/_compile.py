"""How kernels are compiled: cached on disk where possible, without the interpreter's lock, division as in NumPy.

The only module that asks numba for a compiler. Numba keeps compiled code beside the source, or in the user's cache folder. Where
neither can be written (an installation and a home that are read-only), it refuses to compile at all; then the code is kept in a
private folder among the temporary files, or compiled anew by every process, and a `CacheWarning` says so once.

Compiling is what the first run on a fresh machine waits for, so kernels are plain loops over arrays that the caller makes: NumPy's own
functions, slices and new arrays take numba longer to compile than they take to run.

`bare` functions allocate nothing and so need no reference counts. Numba otherwise counts every array argument of every
call, with atomic instructions: measured, that alone makes a sweep of the path sampler five times slower.
"""

from __future__ import annotations

import os
import stat
import tempfile
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numba

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_BARE: dict[str, Any] = {**_OPTIONS, "_nrt": False}


class CacheWarning(UserWarning):
    """Compiled code cannot be kept where it usually is: the first run of every process may take longer."""


def _compiler(options: dict[str, Any], function: Callable[..., Any]) -> Any:
    """Compile `function` when first called; keep the result on disk where there is a place for it."""
    try:
        made = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no folder that it may write to
        made = _without_usual_cache(options, function)
    _forgive_failed_writes(made)
    return made


def _without_usual_cache(options: dict[str, Any], function: Callable[..., Any]) -> Any:
    folder = private_folder()
    if folder is None:
        _say_once(
            "nowhere, because no folder for it can be written: every process compiles anew (up to a minute)"
        )
        return numba.njit(**options)(function)
    settings: Any = numba.config
    before = settings.CACHE_DIR
    settings.CACHE_DIR = str(
        folder
    )  # read while the function is decorated, then put back for other libraries
    try:
        made = numba.njit(cache=True, **options)(function)
    finally:
        settings.CACHE_DIR = before
    _say_once(f"in {folder}, because neither the installation nor the user's cache folder can be written")
    return made


@cache
def private_folder() -> Path | None:
    """A folder among the temporary files that only this user can read and write; None where there can be none.

    Cached code is executed, so a folder that someone else made or may write to is not used.
    """
    if not hasattr(os, "getuid"):
        return None
    try:
        folder = Path(tempfile.gettempdir()) / f"headcount-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return folder if own and os.access(folder, os.W_OK) else None


def _forgive_failed_writes(made: Any) -> None:
    """A full disk must not end a computation only because compiled code could not be kept."""
    kept = getattr(made, "_cache", None)
    save = getattr(kept, "save_overload", None)
    if save is None:
        return

    def guarded(signature: Any, data: Any) -> None:
        try:
            save(signature, data)
        except OSError as error:
            _say_once(f"nowhere, because writing it failed ({error.strerror})")

    kept.save_overload = guarded  # type: ignore[union-attr]


@cache
def _say_once(where: str) -> None:
    warnings.warn(
        f"compiled code is kept {where}. Set the environment variable NUMBA_CACHE_DIR to a folder that can be written.",
        CacheWarning,
        stacklevel=2,
    )


kernel = partial(_compiler, _OPTIONS)
kernel_sums = partial(_compiler, {**_OPTIONS, "fastmath": {"reassoc", "contract"}})
"""For loops whose additions may be reordered, so that they use the vector unit."""
bare = partial(_compiler, _BARE)
bare_sums = partial(_compiler, {**_BARE, "fastmath": {"reassoc", "contract"}})
"""Both."""
