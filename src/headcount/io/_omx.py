"""Open Matrix files (OMX), the HDF5 format in which transport tools exchange origin–destination matrices.

``/data/<name>`` are matrices of one shape, ``/lookup/<name>`` the labels of the zones; the root has ``OMX_VERSION`` and ``SHAPE``.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headcount import memory
from headcount._disk import from_foreign, replacing
from headcount._types import Array
from headcount.dates import readable
from headcount.errors import TableError

if TYPE_CHECKING:
    import os
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from headcount.posterior.result import Result

VERSION = b"0.2"


@dataclass(frozen=True, eq=False)
class Matrices:
    """What an OMX file holds: matrices by name, and labels of the zones by name."""

    data: Mapping[str, Array]
    lookup: Mapping[str, tuple[Hashable, ...]]

    @property
    def zones(self) -> tuple[Hashable, ...]:
        """The labels of the first lookup that fits; 1, 2, … where there is none, as transport tools count."""
        size = next(iter(self.data.values())).shape[0]
        return next((v for v in self.lookup.values() if len(v) == size), tuple(range(1, size + 1)))


def read_omx(path: str | os.PathLike[str]) -> Matrices:
    """All matrices and lookups of a file.

    Raises
    ------
    TableError
        No such file, not HDF5, no matrices, matrices that are not square or differ in shape.
    """
    file = Path(path)
    if not file.exists():
        raise TableError(f"{file}: there is no such file: check the path")
    data, lookup = _stored_arrays(file)
    problems = [
        f"{file.name}: matrix {name!r} has the shape {m.shape}: give square matrices, origin by destination"
        for name, m in data.items()
        if m.ndim != 2 or m.shape[0] != m.shape[1]
    ]
    if not problems and len({m.shape for m in data.values()}) > 1:
        shapes = ", ".join(f"{name} {m.shape}" for name, m in data.items())
        problems = [f"{file.name}: the matrices differ in shape: {shapes}"]
    if problems:
        raise TableError(problems)
    return Matrices(data, lookup)


def _stored_arrays(
    file: Path,
) -> tuple[dict[str, Array], dict[str, tuple[Hashable, ...]]]:
    """What lies under ``/data`` and ``/lookup``."""
    import h5py

    def read() -> tuple[dict[str, Array], dict[str, tuple[Hashable, ...]]]:
        with h5py.File(file, "r") as stored:
            size = sum(8 * table.size for table in stored.get("data", {}).values())
            memory.require(memory.COPIES_READ * size, file.name, remedy="split it")
            data = {name: np.asarray(table, dtype=float) for name, table in stored.get("data", {}).items()}
            lookup = {name: _labels(table[...]) for name, table in stored.get("lookup", {}).items()}
        return data, lookup

    data, lookup = from_foreign(file, read, "an HDF5 file", "export it again as OMX")
    if not data:
        raise TableError(
            f"{file.name}: there is no matrix in /data: this is not an OMX file, or an empty one"
        )
    return data, lookup


def write_omx(
    path: str | os.PathLike[str], matrices: Mapping[str, Any], *, zones: Sequence[Hashable] | None = None
) -> None:
    """Write matrices of one shape, with the labels of the zones, whole or not at all."""
    import h5py

    arrays = {str(name): np.asarray(m, dtype=float) for name, m in matrices.items()}
    shape = _one_shape(arrays, zones)
    memory = io.BytesIO()  # HDF5 never meets a full disk, which it does not survive
    with h5py.File(memory, "w") as stored:
        stored.attrs["OMX_VERSION"] = np.bytes_(VERSION)
        stored.attrs["SHAPE"] = np.array(shape, dtype=np.int32)
        data, lookup = stored.create_group("data"), stored.create_group("lookup")
        for name, array in arrays.items():
            data.create_dataset(name, data=array, compression="gzip", compression_opts=1, shuffle=True)
        if zones is not None:
            lookup.create_dataset("zone", data=_stored(zones))
    with replacing(path) as temporary:
        temporary.write_bytes(memory.getbuffer())


def _one_shape(arrays: Mapping[str, Array], zones: Sequence[Hashable] | None) -> tuple[int, ...]:
    """The shape that all matrices have; refuses what the format cannot hold."""
    shapes = sorted({a.shape for a in arrays.values()})
    if len(shapes) != 1 or len(shapes[0]) != 2:
        raise TableError(f"an OMX file holds matrices of one shape, got {shapes}: write one file per shape")
    shape = shapes[0]
    if zones is not None and len(zones) != shape[0]:
        raise TableError(f"{len(zones)} zones are named for matrices of {shape[0]} rows: name each once")
    wrong = [name for name in arrays if "/" in name or not name]
    if wrong:
        raise TableError(f"{wrong[0]!r} cannot name a matrix: names have no slash")
    return shape


def write_flows_omx(result: Result, path: str | os.PathLike[str]) -> None:
    """Expected flows as matrices ``flow_<time of departure>`` and their standard deviations ``sd_<time of departure>``.

    Names are uniform: letters, digits, ``-`` and ``_`` only, whole numbers with leading zeros, so that they sort by time.
    """
    if not result.is_chain or not len(result.flows):
        raise TableError("only a chain of two or more times has flows between zones")
    place = {cell: k for k, cell in enumerate(result.cells)}
    matrices: dict[str, Any] = {}
    names = _time_names(result.times)
    for time, block in result.flows.groupby("time", sort=False):
        index = block["origin"].map(place).to_numpy(), block["dest"].map(place).to_numpy()
        for name, column in (("flow", "mean"), ("sd", "sd")):
            table = np.zeros((len(place), len(place)))
            table[index] = block[column].to_numpy()
            matrices[f"{name}_{names[time]}"] = table
    write_omx(path, matrices, zones=result.cells)


def _time_names(times: Sequence[Hashable]) -> dict[Hashable, str]:
    """A name for each time that every transport tool takes; numbered where two would be alike."""
    texts = list(map(readable, times))
    if all(text.isdigit() for text in texts):
        texts = [text.zfill(max(map(len, texts))) for text in texts]
    names = [re.sub(r"[^\w-]+", "-", text, flags=re.ASCII).strip("-") for text in texts]
    if len(set(names)) < len(names) or not all(names):
        names = [f"{k + 1:0{len(str(len(names)))}d}" for k in range(len(names))]
    return dict(zip(times, names, strict=True))


def omx_table(path: Path) -> pd.DataFrame:
    """A file as a tidy table ``from, to`` and one column per matrix; the only matrix is called ``probability``."""
    read = read_omx(path)
    zones = [str(z) for z in read.zones]
    size = len(zones)
    names = list(read.data)
    columns = {name if len(names) > 1 else "probability": read.data[name].ravel() for name in names}
    return pd.DataFrame({"from": np.repeat(zones, size), "to": np.tile(zones, size)} | columns)


def _labels(values: NDArray[Any]) -> tuple[Hashable, ...]:
    return tuple(
        v.decode("utf-8") if isinstance(v, bytes) else v for v in np.asarray(values).ravel().tolist()
    )


def _stored(zones: Sequence[Hashable]) -> NDArray[Any]:
    """Whole numbers as such, anything else as UTF-8 bytes."""
    if all(isinstance(z, (int, np.integer)) and not isinstance(z, bool) for z in zones):
        return np.array(zones, dtype=np.int64)
    return np.array([str(z).encode("utf-8") for z in zones])
