"""Trees of labelled arrays as NetCDF files, with a checksum of every array that reading verifies.

NetCDF-4 has no checksums of its own: a flipped bit in a coordinate or an attribute would come back as another number. The root's
attribute ``checksums`` holds one digest per array (its name, dimensions, kind, shape and values) and one of every group's attributes.
"""

from __future__ import annotations

import gc
import hashlib
import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from headcount import memory

if TYPE_CHECKING:
    import os

    import xarray as xr

CHECKSUMS = "checksums"
T = TypeVar("T")


class DamagedFileError(ValueError):
    """A file that is not what was written."""


def write_tree(tree: xr.DataTree, path: str | os.PathLike[str]) -> None:
    """Write any tree as compressed NetCDF with checksums."""
    encoding = {
        node.path: {
            n: {"zlib": True, "complevel": 4} for n, v in node.data_vars.items() if v.dtype.kind in "fiu"
        }
        for node in tree.subtree
    }
    marked = tree.copy()
    marked.attrs = {**tree.attrs, CHECKSUMS: json.dumps(checksums(tree))}
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
    """
    import xarray as xr

    def read() -> tuple[xr.DataTree, Any, dict[str, str]]:
        with xr.open_datatree(path, engine="h5netcdf") as held:
            # The arrays, the tidy tables made of them, and the bytes whose checksum is taken.
            memory.require(3 * held.nbytes, Path(path).name, remedy="read it on a larger machine")
            tree = held.load()
        stored = json.loads(tree.attrs.pop(CHECKSUMS, "null"))
        return tree, stored, checksums(tree)

    tree, stored, found = parsed(read)
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
