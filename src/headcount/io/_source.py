"""A table from wherever it lies: CSV (compressed or not), Parquet, NetCDF, OMX, a pandas frame, an xarray cube.

Text stays text here, so that what cannot be a number is reported with its row instead of becoming NaN. What is wrong is collected
in `Findings` and reported at once.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import warnings
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from headcount import memory
from headcount._netcdf import DamagedFileError, parsed
from headcount.errors import Faults, FaultsError
from headcount.memory import readable_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

Result = TypeVar("Result")
_SEPARATORS = (",", ";", "\t", "|")
_GRIDS = (("x", "y"), ("lon", "lat"), ("longitude", "latitude"))
MEMORY_PER_BYTE = 16
"""Bytes of memory that reading takes per byte of text: 6 to 15 were measured, most for short numbers in three columns."""
MEMORY_PER_ENTRY = 4
"""Copies of a binary array that reading makes: the array, the tidy table, its columns as labels and as numbers."""
_SHOWN = 5
"""Rows and values that one message lists; the rest is counted."""


class TableError(FaultsError):
    """Files or tables that cannot be right; each problem names the file and the rows, as an editor counts lines."""


@dataclass
class Findings(Faults):
    """What was found so far: problems, which end the reading once all are known, and notes, which are only reported."""

    error: type[FaultsError] = TableError
    notes: list[str] = field(default_factory=list)

    def problem(
        self, file: str, text: str, rows: Sequence[int] | None = None, values: Sequence[Any] | None = None
    ) -> None:
        """Something that cannot be right: `text` says what and the remedy; many rows make one line."""
        where = f"{file}, {_rows(rows)}" if rows is not None and len(rows) else file
        shown = "" if values is None else f" (got {listed([repr(v) for v in values])})"
        self.add(where, f"{text}{shown}")

    def attempt(self, read: Callable[..., Result], *given: Any, **options: Any) -> Result | None:
        """What a function returns; None, with its problems among the findings, where it raises them."""
        try:
            return read(*given, **options)
        except memory.TooLargeError:  # ends the reading at once: it has an exit code of its own
            raise
        except FaultsError as error:
            for problem in error.problems:
                self.add(problem)
        return None

    def note(self, text: str) -> None:
        """Something that was decided for the user, or that looks odd; the same note is kept once."""
        if text not in self.notes:
            self.notes.append(text)


def _rows(rows: Sequence[int]) -> str:
    shown = ", ".join(str(int(r)) for r in rows[:_SHOWN])
    if len(rows) > _SHOWN:
        shown += f" and {len(rows) - _SHOWN} more"
    return f"row {shown}" if len(rows) == 1 else f"rows {shown}"


def listed(texts: Sequence[str], *, most: int = _SHOWN) -> str:
    """The first distinct texts with commas between them, and "…" where there are more."""
    distinct = list(dict.fromkeys(texts))
    return ", ".join(distinct[:most]) + (", …" if len(distinct) > most else "")


@dataclass(frozen=True, eq=False)
class Source:
    """A table, its name for messages, the number of every row as an editor counts lines, the column of each role, and the findings."""

    name: str
    frame: pd.DataFrame
    rows: NDArray[np.int64]
    columns: Mapping[str, str] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)

    def problem(
        self, text: str, rows: Sequence[int] | None = None, values: Sequence[Any] | None = None
    ) -> None:
        """Something about this table that cannot be right."""
        self.findings.problem(self.name, text, rows, values)

    def refuse(self, where: NDArray[Any], text: str, values: Any = None) -> bool:
        """Whether a mask marks any row, which is then a problem that shows its values."""
        found = bool(where.any())
        if found:
            shown = None if values is None else values[where].tolist()
            self.problem(text, self.rows[where].tolist(), shown)
        return found


def open_source(given: Any, encoding: str | None = None) -> Source:
    """The table that `given` names or is.

    Raises
    ------
    TableError
        The reason why it cannot be read.
    """
    if isinstance(given, (str, os.PathLike)):
        return _from_path(Path(given), encoding)
    kind = type(given).__name__
    if kind == "DataFrame":
        return _numbered("the table", given.reset_index(drop=given.index.names == [None]))
    if kind == "Series":
        return _numbered("the table", given.rename(given.name or "count").reset_index())
    if kind in {"DataArray", "Dataset"}:
        return _from_cube("the cube", given)
    raise TableError(f"the table: give a path, a pandas table or an xarray cube, got {kind}")


def _numbered(name: str, frame: pd.DataFrame) -> Source:
    return Source(name, frame, np.arange(1, 1 + len(frame)))


def _from_path(path: Path, encoding: str | None) -> Source:
    """Read a file by its ending; anything but a container format is taken as text, compressed or not."""
    try:
        if path.is_dir():
            raise TableError(f"{path}: this is a folder: give the file in it")
        read = _CONTAINERS.get(path.suffix.lower())
        if read is not None:
            with path.open("rb"):  # one report of what is missing or forbidden, whatever the format
                pass
            return read(path)
        content = unpacked(path)
    except FileNotFoundError:
        raise TableError(f"{path}: there is no such file: check the path") from None
    except OSError as error:
        reason = error.strerror or error
        raise TableError(
            f"{path}: it cannot be read ({reason}): check the path and its permissions"
        ) from None
    return _from_text(path.name, _decoded(path.name, content, encoding))


def unpacked(path: Path) -> bytes:
    """The bytes of a file, unpacked where they are compressed; refused as soon as they are known not to fit the memory.

    Raises
    ------
    TableError
        A damaged compressed file.
    headcount.memory.TooLargeError
        With both numbers. The size that a gzip file states at its end is believed only where it is too large: a wrong one costs no
        more than unpacking up to the limit.
    """
    most = memory.limit() // MEMORY_PER_BYTE
    remedy = "split it, leave columns out, or give Parquet or NetCDF"
    with path.open("rb") as file:
        content = file.read(most + 1)
    memory.require(MEMORY_PER_BYTE * max(len(content), path.stat().st_size), path.name, remedy=remedy)
    if content[:2] != b"\x1f\x8b":
        return content
    stated = int.from_bytes(content[-4:], "little")
    memory.require(
        MEMORY_PER_BYTE * stated, f"{path.name}, unpacked to {readable_bytes(stated)},", remedy=remedy
    )
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            whole = packed.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        text = f"{path.name}: the compressed file is damaged ({error}): compress it again"
        raise TableError(text) from None
    what = f"{path.name}, unpacked to {readable_bytes(len(whole))} or more,"
    memory.require(MEMORY_PER_BYTE * len(whole), what, remedy=remedy)
    return whole


def _decoded(name: str, content: bytes, encoding: str | None) -> str:
    """The text of a file: UTF-8 unless it says otherwise by its first bytes, or the caller does."""
    if not content.strip():
        raise TableError(f"{name}: the file is empty: give a table with a header line and one row per entry")
    if encoding is None and content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        encoding = "utf-16"
    if encoding is None and b"\x00" in content[:4096]:
        raise TableError(
            f"{name}: this is not a text table: give CSV, or Parquet or NetCDF with that ending (.parquet, .nc)"
        )
    try:
        return content.decode("utf-8-sig" if encoding is None else encoding)
    except UnicodeDecodeError as error:
        row = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start]
        raise TableError(
            f"{name}, row {row}: the byte 0x{byte:02x} is not {encoding or 'UTF-8'} (in Latin-1 it would be "
            f"{bytes([byte]).decode('latin-1')!r}): save the file as UTF-8, or give the encoding (encoding='latin-1', --encoding latin-1)"
        ) from None
    except LookupError:
        text = f"{name}: there is no encoding {encoding!r}: try utf-8, latin-1, cp1252 or utf-16"
        raise TableError(text) from None


def _from_text(name: str, text: str) -> Source:
    """Parse separated values, all as text; blank lines keep their number."""
    skipped = 0
    while text.startswith("#"):  # comments above the header
        text = text.partition("\n")[2]
        skipped += 1
    header = text.partition("\n")[0].rstrip("\r")
    separator = max(_SEPARATORS, key=header.count)
    names = [part.strip().strip('"').strip() for part in header.split(separator)]
    twice = sorted({n for n in names if n and names.count(n) > 1})
    if twice:
        text = f"{name}, row {skipped + 1}: the column {twice[0]!r} is there twice: rename or remove one"
        raise TableError(text)
    frame = _parsed(name, text, separator).fillna("")
    frame.columns = [str(c).strip() for c in frame.columns]
    rows = np.arange(skipped + 2, skipped + 2 + len(frame))
    filled = (frame != "").any(axis=1).to_numpy(dtype=bool)
    if not filled.any():
        raise TableError(f"{name}: there is a header and nothing below it: give one row per entry")
    return Source(name, frame[filled].reset_index(drop=True), rows[filled])


def _parsed(name: str, text: str, separator: str) -> pd.DataFrame:
    import pandas as pd
    from pandas.errors import EmptyDataError, ParserError, ParserWarning

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ParserWarning)
            return pd.read_csv(
                io.StringIO(text),
                sep=separator,
                dtype=str,
                na_filter=False,
                skip_blank_lines=False,
                index_col=False,
                skipinitialspace=True,
            )
    except (ParserError, ParserWarning, EmptyDataError) as error:
        reason = str(error).replace("Error tokenizing data. C error: ", "").strip()
        text = f"{name}: the rows do not fit the header ({reason}): quote texts that hold {separator!r}"
        raise TableError(text) from None


def _from_parquet(path: Path) -> Source:
    import pandas as pd

    def read() -> pd.DataFrame:
        from pyarrow import parquet

        held = parquet.ParquetFile(path).metadata
        groups = [held.row_group(k).total_byte_size for k in range(held.num_row_groups)]
        size = max(sum(groups), 8 * held.num_rows * held.num_columns)
        memory.require(MEMORY_PER_ENTRY * size, path.name, remedy="split it")
        return pd.read_parquet(path)

    try:
        frame = parsed(read)
    except ImportError:
        text = f"{path.name}: reading Parquet needs pyarrow: pip install 'headcount[parquet]', or give CSV"
        raise TableError(text) from None
    except DamagedFileError as error:
        text = f"{path.name}: this is not a Parquet file ({error}): write it again, or give CSV"
        raise TableError(text) from None
    return _numbered(path.name, frame.reset_index(drop=frame.index.names == [None]))


def _from_netcdf(path: Path) -> Source:
    import xarray as xr

    def read() -> xr.Dataset:
        with xr.open_dataset(path, engine="h5netcdf") as data:
            size = sum(variable.nbytes for variable in data.variables.values())
            memory.require(MEMORY_PER_ENTRY * size, path.name, remedy="split it")
            return data.load()

    try:
        return _from_cube(path.name, parsed(read))
    except DamagedFileError as error:
        text = f"{path.name}: this is not a NetCDF-4 file ({error}): write it again, or give CSV"
        raise TableError(text) from None


def _from_omx(path: Path) -> Source:
    from headcount.io._omx import omx_table

    return _numbered(path.name, omx_table(path))


def _from_cube(name: str, data: Any) -> Source:
    """A cube as a tidy table; a map with two axes gets cells named ``x,y``."""
    cube = data.to_dataset(name=data.name or "count") if type(data).__name__ == "DataArray" else data
    if not cube.data_vars:
        raise TableError(f"{name}: there is no variable in it: give an array with dims time and cell")
    frame = cube.to_dataframe().reset_index()
    for x, y in _GRIDS:
        if x in cube.dims and y in cube.dims and "cell" not in frame:
            frame.insert(
                0, "cell", [f"{a},{b}" for a, b in zip(frame[x].tolist(), frame[y].tolist(), strict=True)]
            )
            break
    return _numbered(name, frame)


_CONTAINERS: Mapping[str, Callable[[Path], Source]] = {
    ".parquet": _from_parquet,
    ".pq": _from_parquet,
    ".nc": _from_netcdf,
    ".nc4": _from_netcdf,
    ".cdf": _from_netcdf,
    ".omx": _from_omx,
}
