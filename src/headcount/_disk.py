"""What is written to the disk is whole, and what is read from it is what was written.

A file is written beside its target, flushed to the disk and put in place by one rename. A folder that is not there yet is made
under another name and renamed. Into a folder that exists the files are renamed one by one, between two states of its manifest: the
first says that the folder is being filled, the second holds the checksums of what was written. A kill in between leaves the first, and
`check_manifest` refuses to read a folder that may mix two runs.

Trees of labelled arrays are NetCDF files. NetCDF-4 has no checksums of its own: a flipped bit in a coordinate or an attribute would come
back as another number. The root's attribute ``checksums`` holds one digest per array (its name, dimensions, kind, shape and values) and
one of every group's attributes, which reading verifies.
"""

from __future__ import annotations

import errno
import gc
import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from headcount import memory
from headcount.errors import TableError

if TYPE_CHECKING:
    import xarray as xr

MANIFEST = "manifest.json"
"""Names the files of the last run that wrote a folder, with their checksums."""
_KIND = "files written by headcount"
_OURS = re.compile(r"\.(.+\.)?headcount\.[0-9a-f]{12}")
"""Names of temporary folders, beside the file or folder that is written or inside it."""
YOUNG = 60.0
"""Seconds for which a temporary folder is left alone: between its making and its lock another run must not take it for left over."""


class OutputError(ValueError):
    """A place that cannot be written to, or where something would be lost; nothing was written."""


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path in the folder of `path`; what was written there replaces `path` when the block ends well.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> with replacing(folder / "a.txt") as temporary:
    ...     _ = temporary.write_text("whole")
    >>> [p.name for p in folder.iterdir()]
    ['a.txt']
    """
    target = Path(os.path.realpath(path))
    check_file(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _named(target), _stage(target.parent, target.name) as stage:
        # Not tempfile: its files are readable by their owner only, and a result should follow the umask.
        temporary = stage / target.name
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        yield temporary
        _flush(temporary, os.O_RDWR)
        os.replace(temporary, target)
    with suppress(OSError):  # some systems cannot flush a folder; the rename itself has happened
        _flush(target.parent, os.O_RDONLY)


@contextmanager
def _stage(place: Path, name: str = "") -> Iterator[Path]:
    """An empty hidden folder in `place`, locked while this process lives and removed at the end; those that killed runs left are swept."""
    _sweep(place)
    stage = place / f".{name}{'.' if name else ''}headcount.{secrets.token_hex(6)}"
    stage.mkdir()
    held = _hold(stage)
    try:
        yield stage
    finally:  # a Ctrl-C too must leave nothing half-written
        shutil.rmtree(stage, ignore_errors=True)
        if held is not None:
            os.close(held)


@contextmanager
def filling(folder: str | os.PathLike[str], *, force: bool = False) -> Iterator[Path]:
    """An empty temporary folder; the files written there are put into `folder`, all or none, when the block ends well.

    Files of `folder` that were not written by an earlier run, or were changed since, are not overwritten unless `force` is set:
    that raises `OutputError`. Other files of the folder stay.
    """
    target = Path(os.path.realpath(folder))
    check_folder(target)
    fresh = not os.path.exists(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Inside the folder where it exists: it may be a mount, or the folder above it may be closed to us.
    where = (target.parent, target.name) if fresh else (target, "")
    if not fresh:
        _sweep(target.parent)
    with _named(target), _stage(*where) as stage:
        yield stage
        names = sorted(path.name for path in stage.iterdir())
        check_folder(target, names, force=force)
        made = {name: checksum(stage / name) for name in names}
        for name in names:
            _flush(stage / name, os.O_RDWR)
        with _signals_held():
            _put_in_place(stage, target, made, whole=fresh and not os.path.exists(target))
    with suppress(OSError):
        _flush(target, os.O_RDONLY)


def _put_in_place(stage: Path, target: Path, made: Mapping[str, str], *, whole: bool) -> None:
    """Rename a temporary folder as a whole or, into a folder that exists, its files one by one between two manifests."""
    if whole:
        _write_manifest(stage, made, {}, complete=True)
        with suppress(OSError):
            _flush(stage, os.O_RDONLY)
        os.rename(stage, target)
        return
    earlier = {name: digest for name, digest in _known(target).items() if name not in made}
    _write_manifest(target, made, earlier, complete=False)
    for name in made:
        os.replace(stage / name, target / name)
    _write_manifest(target, made, earlier, complete=True)


def _hold(stage: Path) -> int | None:
    """Lock a temporary folder for as long as this process lives, and return its descriptor; None where it is locked or cannot be."""
    try:
        import fcntl

        found = os.open(stage, os.O_RDONLY)
    except (ImportError, OSError):  # not on Windows
        return None
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(found)
        return None
    return found


def _sweep(place: Path) -> None:
    """Remove the temporary folders that killed runs left in a place: our user's, older than `YOUNG`, locked by nobody."""
    with suppress(OSError):
        for left in [path for path in place.iterdir() if _OURS.fullmatch(path.name)]:
            held = _hold(left) if _is_abandoned(left.lstat()) else None
            if held is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(held)


def _is_abandoned(found: os.stat_result) -> bool:
    """Whether this is a folder of our user's, and too old to be one that is being made."""
    own = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return own and stat.S_ISDIR(found.st_mode) and time.time() - found.st_mtime >= YOUNG


def check_file(path: str | os.PathLike[str]) -> None:
    """Refuse a target that is a folder or a device, or whose folder cannot be written."""
    target = Path(os.path.realpath(path))
    if os.path.exists(target) and not target.is_file():
        raise OutputError(
            f"{path}: this is {_kind(target)}, and only a regular file is written: give another name"
        )
    _check_writable(target.parent, str(path))


def check_folder(folder: str | os.PathLike[str], names: Iterable[str] = (), *, force: bool = False) -> None:
    """Refuse a folder that cannot be written, or in which `names` would replace files that are not ours."""
    target = Path(os.path.realpath(folder))
    if os.path.exists(target) and not target.is_dir():
        raise OutputError(
            f"{folder}: this is {_kind(target)}, and results go into a folder: give another name"
        )
    _check_writable(target, str(folder))
    if os.path.exists(target):
        _check_replaced(target, names, force=force)


def _check_replaced(folder: Path, names: Iterable[str], *, force: bool) -> None:
    """Refuse to replace what is no regular file and, without `force`, what is not ours."""
    odd = [
        name for name in (*names, MANIFEST) if os.path.lexists(folder / name) and not _is_plain(folder / name)
    ]
    if odd:
        kind = _kind(folder / odd[0])
        raise OutputError(f"{folder / odd[0]}: this is {kind}, and only regular files are replaced")
    foreign = [] if force else sorted(_foreign(folder, names))
    if foreign:
        are, them = ("is", "it") if len(foreign) == 1 else ("are", "them")
        raise OutputError(
            f"{folder}: {', '.join(foreign)} {are} there already, not written by headcount or changed since: give another folder, or "
            f"overwrite {them} with --force (force=True)"
        )


def left_over(folder: str | os.PathLike[str]) -> list[str]:
    """Files that earlier runs wrote into the folder and the last one did not replace."""
    earlier = (_manifest(Path(folder)) or {}).get("earlier", {})
    return sorted(name for name in earlier if _is_plain(Path(folder) / name))


def check_manifest(folder: str | os.PathLike[str], name: str) -> None:
    """Refuse a folder whose last run was killed while its files were put in place, or whose file `name` was damaged since."""
    held = _manifest(Path(folder))
    if held is None:
        return
    if not held["complete"]:
        raise OutputError(
            f"{folder}: the run that wrote this folder was ended while its files were put in place, so that they may be of two "
            "different runs: run it again"
        )
    known = held["files"].get(name)
    if known is not None and known != checksum(Path(folder) / name):
        raise OutputError(
            f"{Path(folder) / name}: the file is damaged, or was changed since it was written: run it again"
        )


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a folder; None where there is none of ours."""
    try:
        held = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    sound = (
        isinstance(held, dict)
        and held.get("kind") == _KIND
        and isinstance(held.get("complete"), bool)
        and isinstance(held.get("files"), dict)
        and isinstance(held.get("earlier"), dict)
    )
    return held if sound else None


def _known(folder: Path) -> dict[str, str]:
    """Every file of the folder that a run of ours wrote, with its checksum."""
    held = _manifest(folder)
    return {} if held is None else {**held["earlier"], **held["files"]}


def _write_manifest(
    folder: Path, files: Mapping[str, str], earlier: Mapping[str, str], *, complete: bool
) -> None:
    held = {"kind": _KIND, "complete": complete, "files": dict(files), "earlier": dict(earlier)}
    text = json.dumps(held, indent=1) + "\n"
    with replacing(folder / MANIFEST) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _foreign(folder: Path, names: Iterable[str]) -> set[str]:
    """Those of `names` that lie in the folder and are not as an earlier run wrote them."""
    held = _manifest(folder)
    there = {name for name in names if os.path.lexists(folder / name)}
    if held is None:
        return there | ({MANIFEST} if os.path.lexists(folder / MANIFEST) else set())
    known = _known(folder)
    # A run that was killed while its files were put in place leaves files of two runs: all of them ours.
    return {
        name
        for name in there
        if name not in known or (held["complete"] and known[name] != checksum(folder / name))
    }


def _check_writable(folder: Path, given: str) -> None:
    """Refuse where neither `folder` nor the nearest folder above it that exists can be written."""
    nearest = next(
        place for place in (folder, *folder.parents) if os.path.exists(place)
    )  # Path.exists raises where it may not look
    if not nearest.is_dir():
        raise OutputError(
            f"{given}: {nearest} is {_kind(nearest)}, so that there can be nothing below it: give another name"
        )
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise OutputError(
            f"{given}: {nearest} cannot be written to: give another place, or have its permissions changed"
        )


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _kind(path: Path) -> str:
    if path.is_symlink():
        return "a link"
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISREG, "a file"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
    )
    mode = path.stat().st_mode
    return next((name for test, name in kinds if test(mode)), "a device")


@contextmanager
def _named(target: Path) -> Iterator[None]:
    """Name the target in errors of the system that come without a file: a full disk has none."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror or os.strerror(error.errno), str(target)) from error
        raise


@contextmanager
def _signals_held() -> Iterator[None]:
    """Hold Ctrl-C and a request to stop back until the files are in place: that takes milliseconds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    held = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        before = signal.getsignal(number)
        if callable(before):
            held[number] = signal.signal(number, lambda n, frame: came.append(n))
    try:
        yield
    finally:
        for number, before in held.items():
            signal.signal(number, before)
        if came:
            signal.raise_signal(came[0])


def _flush(path: Path, mode: int) -> None:
    handle = os.open(path, mode)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system without fsync
            raise
    finally:
        os.close(handle)


# --- trees of arrays as NetCDF

CHECKSUMS = "checksums"
T = TypeVar("T")


class DamagedFileError(ValueError):
    """A file that is not what was written."""


class NewerFormatError(ValueError):
    """A file in a version of the format that this headcount does not read."""


FORMAT, FORMAT_VERSION = "format_version", 1
"""Attribute of a file of results with the version of its layout, and the one that is written and read. It is raised when a reader of the
version before could not read the file; a group, column or attribute that is only added does not raise it. Files of before 0.2 have none."""


def write_tree(tree: xr.DataTree, path: str | os.PathLike[str]) -> None:
    """Write any tree as compressed NetCDF with checksums."""
    encoding = {
        node.path: {
            n: {"zlib": True, "complevel": 4} for n, v in node.data_vars.items() if v.dtype.kind in "fiu"
        }
        for node in tree.subtree
    }
    marked = tree.copy()
    marked.attrs = {**tree.attrs, FORMAT: FORMAT_VERSION, CHECKSUMS: json.dumps(checksums(tree))}
    # Made in memory: HDF5 ends the process with a segmentation fault when the disk is full under a small file.
    with away_from_the_cluster():
        content = marked.to_netcdf(engine="h5netcdf", encoding=encoding)
    Path(path).write_bytes(content)


def away_from_the_cluster() -> AbstractContextManager[Any]:
    """While a Dask client is open xarray locks files on its scheduler, which cannot be done for one in memory."""
    dask = sys.modules.get("dask")
    return nullcontext() if dask is None else dask.config.set(scheduler="synchronous")


def read_tree(path: str | os.PathLike[str]) -> xr.DataTree:
    """Read what `write_tree` wrote, and verify it.

    Raises
    ------
    DamagedFileError
        Not NetCDF, no checksums, or an array or attribute that is not what was written.
    NewerFormatError
        Its version of the format is newer than `FORMAT_VERSION`.
    """
    import xarray as xr

    def read() -> tuple[xr.DataTree, int, Any, dict[str, str]]:
        with xr.open_datatree(path, engine="h5netcdf") as held:
            # The arrays, the tidy tables made of them, and the bytes whose checksum is taken.
            memory.require(3 * held.nbytes, Path(path).name, remedy="read it on a larger machine")
            tree = held.load()
        stored = json.loads(tree.attrs.pop(CHECKSUMS, "null"))
        version = int(tree.attrs.pop(FORMAT, FORMAT_VERSION))
        return tree, version, stored, checksums(tree)

    tree, version, stored, found = parsed(read)
    if version > FORMAT_VERSION:
        raise NewerFormatError(
            f"{path}: this file has version {version} of the format, this headcount reads version {FORMAT_VERSION}: "
            "install a newer headcount to read it"
        )
    if stored is None:
        raise DamagedFileError("it has no checksums")
    if stored != found:
        names = set(stored) | set(found) if isinstance(stored, dict) else set(found)
        changed = sorted(n for n in names if not isinstance(stored, dict) or stored.get(n) != found.get(n))
        raise DamagedFileError(f"{', '.join(changed[:3])} is not what was written: the file is damaged")
    return tree


def parsed(read: Callable[[], T]) -> T:
    """What `read` gives, whose parsers of foreign bytes may raise anything.

    Raises
    ------
    DamagedFileError
        Whatever a parser raised, in one line. A missing file and too little memory keep their errors.
    """
    # h5netcdf's finaliser fails on a file that could not be opened, which Python would print: it is freed here, without that.
    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    try:
        try:
            return read()
        except (FileNotFoundError, PermissionError, ImportError, memory.TooLargeError):
            raise
        except Exception as error:
            reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        gc.collect()
    finally:
        sys.unraisablehook = hook
    raise DamagedFileError(reason)


def from_foreign(
    path: Path, read: Callable[[], T], what: str, remedy: str, package: str = "", extra: str = ""
) -> T:
    """What a parser of another format makes of a file; a damaged file and a missing package are a `TableError`."""
    try:
        return parsed(read)
    except ImportError:
        kind = extra.capitalize()
        text = f"{path.name}: reading {kind} needs {package}: pip install 'headcount[{extra}]', or give CSV"
        raise TableError(text) from None
    except DamagedFileError as error:
        raise TableError(f"{path.name}: this is not {what} ({error}): {remedy}") from None


def checksums(tree: xr.DataTree) -> dict[str, str]:
    """One digest per array, ``/group/name``, and one per group's attributes, ``/group/``."""
    found = {}
    for node in tree.subtree:
        place = node.path.rstrip("/")
        attributes = {str(k): _plain(v) for k, v in node.attrs.items()}
        text = json.dumps(attributes, sort_keys=True, default=str)
        found[f"{place}/"] = _digest(text.encode())
        for name, variable in node.to_dataset(inherit=False).variables.items():
            found[f"{place}/{name}"] = _array_digest(variable)
    return found


def _array_digest(variable: Any) -> str:
    values = np.asarray(variable.values)
    kind = values.dtype.kind
    if kind == "M":
        values = values.astype("datetime64[ns]").astype(np.int64)
    elif kind == "m":
        values = values.astype("timedelta64[ns]").astype(np.int64)
    elif kind == "f":
        values = values.astype(np.float64)
    elif kind in "iu":
        kind, values = "i", values.astype(np.int64)
    elif kind != "b":
        kind = "O"
        texts = [str(v) for v in values.ravel().tolist()]
        values = np.frombuffer(json.dumps(texts).encode(), dtype=np.uint8)
    head = json.dumps([list(map(str, variable.dims)), kind, list(np.shape(variable))])
    attributes = json.dumps(
        {str(k): _plain(v) for k, v in variable.attrs.items()}, sort_keys=True, default=str
    )
    return _digest(head.encode(), attributes.encode(), np.ascontiguousarray(values).tobytes())


def _plain(value: Any) -> Any:
    """An attribute as plain Python, the same before writing and after reading."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return "" if type(value).__name__ == "Empty" else value


def _digest(*parts: bytes) -> str:
    made = hashlib.blake2b(digest_size=8)
    for part in parts:
        made.update(len(part).to_bytes(8, "big"))
        made.update(part)
    return made.hexdigest()
