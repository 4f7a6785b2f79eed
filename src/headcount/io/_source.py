"""A table from wherever it lies: CSV (compressed or not), Parquet, NetCDF, a pandas frame, an xarray cube.

Text stays text here, so that what cannot be a number is reported with its row instead of becoming NaN.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.io._errors import TableError
from headcount.io._omx import omx_table

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from headcount.io._errors import Findings

_SEPARATORS = (",", ";", "\t", "|")
_GRIDS = (("x", "y"), ("lon", "lat"), ("longitude", "latitude"))


@dataclass(frozen=True, eq=False)
class Source:
    """A table, its name for messages, and the number of every row as an editor counts lines."""

    name: str
    frame: pd.DataFrame
    rows: NDArray[np.int64]

    def at(self, where: NDArray[Any]) -> list[int]:
        """Row numbers of a mask or an index."""
        return [int(r) for r in self.rows[where]]


def open_source(given: Any, *, encoding: str | None = None, findings: Findings) -> Source | None:
    """The table that `given` names or is; None, with the reason among the findings, if it cannot be read."""
    if isinstance(given, (str, os.PathLike)):
        return _from_path(Path(given), encoding, findings)
    kind = type(given).__name__
    if kind == "DataFrame":
        return _numbered("the table", given.reset_index(drop=given.index.names == [None]), 1)
    if kind == "Series":
        return _numbered("the table", given.rename(given.name or "count").reset_index(), 1)
    if kind in {"DataArray", "Dataset"}:
        return _from_cube("the cube", given, findings)
    findings.problem("the table", f"give a path, a pandas table or an xarray cube, got {kind}")
    return None


def _numbered(name: str, frame: pd.DataFrame, first: int) -> Source:
    return Source(name, frame, np.arange(first, first + len(frame)))


def _from_path(path: Path, encoding: str | None, findings: Findings) -> Source | None:
    name = path.name
    suffixes = [s.lower() for s in path.suffixes]
    try:
        if path.is_dir():
            findings.problem(str(path), "this is a folder: give the file in it")
            return None
        if suffixes[-1:] in ([".parquet"], [".pq"]):
            return _from_parquet(path, findings)
        if suffixes[-1:] in ([".nc"], [".nc4"], [".cdf"]):
            return _from_netcdf(path, findings)
        if suffixes[-1:] == [".omx"]:
            return _from_omx(path, findings)
        content = path.read_bytes()
    except FileNotFoundError:
        findings.problem(str(path), "there is no such file: check the path")
        return None
    except OSError as error:
        findings.problem(
            str(path), f"it cannot be read ({error.strerror or error}): check the path and its permissions"
        )
        return None
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError) as error:
            findings.problem(name, f"the compressed file is damaged ({error}): compress it again")
            return None
    text = _decoded(name, content, encoding, findings)
    return None if text is None else _from_text(name, text, findings)


def _decoded(name: str, content: bytes, encoding: str | None, findings: Findings) -> str | None:
    """The text of a file: UTF-8 unless it says otherwise by its first bytes, or the caller does."""
    if not content.strip():
        findings.problem(name, "the file is empty: give a table with a header line and one row an entry")
        return None
    if encoding is None and content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        encoding = "utf-16"
    if encoding is None and b"\x00" in content[:4096]:
        findings.problem(
            name, "this is not a text table: give CSV, or Parquet or NetCDF with that ending (.parquet, .nc)"
        )
        return None
    try:
        return content.decode("utf-8-sig" if encoding is None else encoding)
    except UnicodeDecodeError as error:
        row = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start]
        text = (
            f"the byte 0x{byte:02x} is not {encoding or 'UTF-8'} (in Latin-1 it would be {bytes([byte]).decode('latin-1')!r}): "
            "save the file as UTF-8, or give the encoding (encoding='latin-1', --encoding latin-1)"
        )
        findings.problem(name, text, [row])
    except LookupError:
        findings.problem(name, f"there is no encoding {encoding!r}: try utf-8, latin-1, cp1252 or utf-16")
    return None


def _from_text(name: str, text: str, findings: Findings) -> Source | None:
    """Parse separated values, all as text; blank lines keep their number."""
    import pandas as pd
    from pandas.errors import EmptyDataError, ParserError, ParserWarning

    skipped = 0
    while text.startswith("#"):  # comments above the header
        text = text.partition("\n")[2]
        skipped += 1
    header = text.partition("\n")[0].rstrip("\r")
    separator = max(_SEPARATORS, key=header.count)
    names = [part.strip().strip('"').strip() for part in header.split(separator)]
    twice = sorted({n for n in names if n and names.count(n) > 1})
    if twice:
        findings.problem(name, f"the column {twice[0]!r} is there twice: rename or remove one", [skipped + 1])
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ParserWarning)
            frame = pd.read_csv(
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
        findings.problem(
            name, f"the rows do not fit the header ({reason}): quote texts that hold {separator!r}"
        )
        return None
    frame.columns = [str(c).strip() for c in frame.columns]
    frame = frame.fillna("")
    rows = np.arange(skipped + 2, skipped + 2 + len(frame))
    filled = (frame != "").any(axis=1).to_numpy() if len(frame.columns) else np.zeros(len(frame), bool)
    if not filled.any():
        findings.problem(name, "there is a header and nothing below it: give one row an entry")
        return None
    return Source(name, frame[filled].reset_index(drop=True), rows[filled])


def _from_parquet(path: Path, findings: Findings) -> Source | None:
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except ImportError:
        findings.problem(
            path.name, "reading Parquet needs pyarrow: pip install 'headcount[parquet]', or give CSV"
        )
    except (ValueError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        findings.problem(
            path.name,
            f"this is not a Parquet file ({str(error).splitlines()[0]}): write it again, or give CSV",
        )
    else:
        return _numbered(path.name, frame.reset_index(drop=frame.index.names == [None]), 1)
    return None


def _from_netcdf(path: Path, findings: Findings) -> Source | None:
    import xarray as xr

    try:
        with xr.open_dataset(path, engine="h5netcdf") as data:
            return _from_cube(path.name, data.load(), findings)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError) as error:
        findings.problem(path.name, f"this is not a NetCDF-4 file ({error}): write it again, or give CSV")
        return None


def _from_omx(path: Path, findings: Findings) -> Source | None:
    try:
        return _numbered(path.name, omx_table(path), 1)
    except TableError as error:
        findings.problems.extend(error.problems)
        return None


def _from_cube(name: str, data: Any, findings: Findings) -> Source | None:
    """A cube as a tidy table; a map with two axes gets cells named ``x,y``."""
    cube = data.to_dataset(name=data.name or "count") if type(data).__name__ == "DataArray" else data
    if not cube.data_vars:
        findings.problem(name, "there is no variable in it: give an array with dims time and cell")
        return None
    frame = cube.to_dataframe().reset_index()
    for x, y in _GRIDS:
        if x in cube.dims and y in cube.dims and "cell" not in frame:
            frame.insert(
                0, "cell", [f"{a},{b}" for a, b in zip(frame[x].tolist(), frame[y].tolist(), strict=True)]
            )
            break
    return _numbered(name, frame, 1)
