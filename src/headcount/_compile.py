"""How kernels are compiled: cached on disk where possible, without the interpreter's lock, division as in NumPy.

The only module that asks numba for a compiler. Numba keeps compiled code beside the source, or in the user's cache folder. Where
neither can be written (an installation and a home that are read-only), it refuses to compile at all; then the code is kept in a
private folder among the temporary files, or compiled anew by every process, and a `CacheWarning` says so once.

Compiling is what the first run on a fresh machine waits for, so kernels are plain loops over arrays that the caller makes: NumPy's own
functions, slices and new arrays take numba longer to compile than they take to run.

For a single small problem even that does not pay: ``worth`` says whether a compiled kernel is to be used or the same in NumPy.

`bare` functions allocate nothing and so need no reference counts. Numba otherwise counts every array argument of every
call, with atomic instructions: measured, that alone makes a sweep of the path sampler five times slower.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_BARE: dict[str, Any] = {**_OPTIONS, "_nrt": False}
COMPILING = 2.0
"""Seconds that the kernels of one call take to compile, on a fresh machine (measured: 1.5 to 4 for those of the default engine)."""
ASKED = "HEADCOUNT_COMPILE"
"""Environment variable: ``always`` or ``never`` instead of weighing one against the other."""
_solves: ContextVar[int] = ContextVar("_solves", default=20)
"""Calls of one kernel that are still to come: about 20 in one inference."""


class CacheWarning(UserWarning):
    """Compiled code cannot be kept where it usually is: the first run of every process may take longer."""


class Kernel:
    """A function that numba compiles when it is first called; numba itself is imported then, not before.

    A kernel calls other kernels by their names in its module, where numba wants its own objects: those are put there first.
    """

    def __init__(self, options: dict[str, Any], function: Callable[..., Any]) -> None:
        self.options, self.function = options, function
        self.__doc__, self.__name__ = function.__doc__, function.__name__

    @cached_property
    def compiled(self) -> Any:
        """Numba's object for it."""
        if not self._kept():
            _say_that_one_waits()
        names = self.function.__globals__
        for name in self.function.__code__.co_names:
            if isinstance(called := names.get(name), Kernel):
                names[name] = called.compiled
        return _compiler(self.options, self.function)

    def __call__(self, *arguments: Any) -> Any:
        """Compile if need be, and call."""
        return self.compiled(*arguments)

    @cached_property
    def on_disk(self) -> bool:
        """Whether compiled code of this source was kept when first asked; asked once, so that a process takes one way throughout."""
        return self._kept()

    def _kept(self) -> bool:
        """Whether there is compiled code of this source now."""
        code = self.function.__code__
        source, version = Path(code.co_filename), sys.version_info
        function = self.function.__qualname__.replace("<", "").replace(">", "")
        name = f"{source.stem}.{function}-{code.co_firstlineno}.py{version.major}{version.minor}*.nbi"
        try:
            made, digest = source.stat().st_mtime, sha256(source.read_bytes()).digest()
            # Newer versions of numba go by the source's digest, which is in their index, older ones by its time.
            return any(
                found.stat().st_mtime >= made or digest in found.read_bytes()
                for folder in _folders(source)
                for found in folder.glob(name)
            )
        except OSError:
            return False


def _folders(source: Path) -> list[Path]:
    """Where numba keeps the code of a source file: the folder it is told, or beside the source, or among the user's caches."""
    told = os.environ.get("NUMBA_CACHE_DIR")
    if told:
        return [folder for folder in Path(told).glob(f"{source.parent.name}_*") if folder.is_dir()]
    return [source.parent / "__pycache__"]


def worth(kernel: Kernel, seconds: float) -> bool:
    """Whether to call a compiled kernel rather than NumPy, which would take ``seconds`` for this call.

    Code that is already compiled is used. Otherwise an inference that NumPy answers sooner than a compiler would be ready is left to
    NumPy. Both compute the same formulas, so that answers differ by rounding only; within a process, problems of one size take one way.
    """
    asked = os.environ.get(ASKED)
    if asked in ("always", "never"):
        return asked == "always"
    return kernel.on_disk or seconds * _solves.get() > COMPILING


@contextmanager
def many_solves(count: int) -> Iterator[None]:
    """Inside, ``worth`` reckons with so many inferences."""
    before = _solves.set(count * _solves.get())
    try:
        yield
    finally:
        _solves.reset(before)


def _compiler(options: dict[str, Any], function: Callable[..., Any]) -> Any:
    """Compile `function` when first called; keep the result on disk where there is a place for it."""
    import numba

    try:
        made = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no folder that it may write to
        made = _without_usual_cache(options, function)
    _forgive_failed_writes(made)
    _forget_what_is_outdated(made)
    return made


def _without_usual_cache(options: dict[str, Any], function: Callable[..., Any]) -> Any:
    import numba

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
    """A full disk must not end a computation only because compiled code could not be kept; an interrupt must.

    An interrupt that falls into LLVM's callback with the compiled object is swallowed there, and Numba then misses the object.
    """
    kept = getattr(made, "_cache", None)
    save = getattr(kept, "save_overload", None)
    if save is None:
        return

    def guarded(signature: Any, data: Any) -> None:
        try:
            save(signature, data)
        except OSError as error:
            _say_once(f"nowhere, because writing it failed ({error.strerror})")
        except RuntimeError as error:
            if "no compiled object" not in str(error):
                raise
            raise KeyboardInterrupt from error

    kept.save_overload = guarded  # type: ignore[union-attr]


def _forget_what_is_outdated(made: Any) -> None:
    """Take an index of compiled code that cannot be read for none: after an update it may name classes that are gone.

    Numba compares the source's digest only after it has read the index, and an update leaves the index where it was.
    """
    index = getattr(getattr(made, "_cache", None), "_cache_file", None)
    read = getattr(index, "_load_index", None)
    if read is None:
        return

    def guarded() -> Any:
        try:
            return read()
        except Exception:  # unpickling raises whatever it meets
            return {}

    index._load_index = guarded  # type: ignore[union-attr]


@cache
def _say_that_one_waits() -> None:
    """Tell a person at a terminal or a notebook, once, what the seconds before the first answer are for."""
    if sys.stderr.isatty() or "ipykernel" in sys.modules:
        print("headcount: compiling, once on this machine (up to a quarter of a minute) …", file=sys.stderr)


@cache
def _say_once(where: str) -> None:
    warnings.warn(
        f"compiled code is kept {where}. Set the environment variable NUMBA_CACHE_DIR to a folder that can be written.",
        CacheWarning,
        stacklevel=2,
    )


kernel = partial(Kernel, _OPTIONS)
kernel_sums = partial(Kernel, {**_OPTIONS, "fastmath": {"reassoc", "contract"}})
"""For loops whose additions may be reordered, so that they use the vector unit."""
bare = partial(Kernel, _BARE)
bare_sums = partial(Kernel, {**_BARE, "fastmath": {"reassoc", "contract"}})
"""Both."""
