"""A table from wherever it lies: CSV (compressed or not), Excel, Parquet, NetCDF, OMX, a pandas frame, an xarray cube.

Text stays text here, so that what cannot be a number is reported with its row instead of becoming NaN. What is wrong is collected
in `Findings` and reported at once.
"""

from __future__ import annotations

import codecs
import datetime as dt
import gzip
import io
import os
import re
import unicodedata
import warnings
import zipfile
import zlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd
import xarray as xr
from pandas.errors import EmptyDataError, ParserError, ParserWarning

from headcount import memory
from headcount._disk import from_foreign
from headcount.dates import zoned_moment
from headcount.errors import Faults, FaultsError, TableError
from headcount.io._omx import omx_table
from headcount.io._shapes import geojson_table, geopackage_table
from headcount.labels import repeated
from headcount.memory import readable_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from headcount._types import Array, Index

Result = TypeVar("Result")
_SEPARATORS = (",", ";", "\t", "|")
_MARKS = "".join(_SEPARATORS)
_EXCEL = (".xlsx", ".xlsm")
_GRIDS = (("x", "y"), ("lon", "lat"), ("longitude", "latitude"))
_MIDNIGHT = re.compile(r"^(\d{4}-\d{2}-\d{2})[T ]00:00(?::00(?:\.0+)?)?$")
MEMORY_PER_BYTE = 16
"""Bytes of memory that reading takes per byte of text: 6 to 15 were measured, most for short numbers in three columns."""
_SHOWN = 5
"""Rows and values that one message lists; the rest is counted."""


@dataclass
class Findings(Faults):
    """What was found so far: problems, which end the reading once all are known, and notes, which are only reported."""

    error: type[FaultsError] = TableError
    notes: list[str] = field(default_factory=list)

    def problem(
        self, file: str, text: str, rows: Sequence[int] | None = None, values: Sequence[Any] | None = None
    ) -> None:
        """Something that cannot be right: `text` says what and the remedy; many rows make one line."""
        self.error = TableError
        where = f"{file}, {_rows(rows)}" if rows is not None and len(rows) else file
        shown = "" if values is None else f" (got {listed([repr(v) for v in values])})"
        self.add(where, f"{text}{shown}")

    def attempt(self, read: Callable[..., Result], *given: Any, **options: Any) -> Result | None:
        """What a function returns; None, with its problems among the findings, where it raises them."""
        made = self.build(read, *given, **options)
        if made is None and self:
            self.error = TableError
        return made

    def build(self, make: Callable[..., Result], *given: Any, **options: Any) -> Result | None:
        """As `attempt`; its error keeps its kind where all that is wrong is of that kind."""
        try:
            return make(*given, **options)
        except memory.TooLargeError:  # ends the reading at once: it has an exit code of its own
            raise
        except FaultsError as error:
            alike = not self or self.error is type(error)
            self.error = type(error) if alike else TableError
            for problem in error.problems:
                self.add(problem)
        return None

    def note(self, text: str) -> None:
        """Something that was decided for the user, or that looks odd; the same note is kept once."""
        if text not in self.notes:
            self.notes.append(text)


def _rows(rows: Sequence[int]) -> str:
    rows = list(dict.fromkeys(rows))  # a wide table has many entries in one
    shown = ", ".join(str(int(r)) for r in rows[:_SHOWN])
    if len(rows) > _SHOWN:
        shown += f" and {len(rows) - _SHOWN} more"
    return f"row {shown}" if len(rows) == 1 else f"rows {shown}"


def listed(texts: Sequence[str], *, most: int = _SHOWN) -> str:
    """The first distinct texts with commas between them, and "…" where there are more."""
    distinct = list(dict.fromkeys(texts))
    return ", ".join(distinct[:most]) + (", …" if len(distinct) > most else "")


def by_sequences(found: Mapping[str, Sequence[str]]) -> list[str]:
    """What was found of sequences, each text once with those that have it."""
    having: dict[str, list[str]] = {}
    for key, texts in found.items():
        for text in texts:
            having.setdefault(text, []).append(key)
    return [
        f"sequence {keys[0]}: {text}" if len(keys) == 1 else f"{len(keys)} sequences ({listed(keys)}): {text}"
        for text, keys in having.items()
    ]


def _moment(text: str) -> str:
    """A time with a zone in UTC; any other text as it is."""
    moment = zoned_moment(text)
    return text if moment is None else moment.astimezone(dt.UTC).isoformat()


@dataclass(frozen=True, eq=False)
class Labels:
    """A column of labels: its distinct texts, and the position of every row's among them, which is quicker to compare than texts."""

    codes: Index
    texts: Sequence[str]

    @classmethod
    def of(cls, texts: Any) -> Labels:
        """The labels of texts, one per row."""
        codes, distinct = pd.factorize(np.asarray(texts, dtype=object))
        return cls(codes, distinct.tolist())

    @cached_property
    def each(self) -> NDArray[Any]:
        """The text of every row."""
        return np.array([*self.texts], dtype=object)[self.codes]

    def __getitem__(self, kept: NDArray[Any]) -> Labels:
        return Labels(self.codes[kept], self.texts)

    @cached_property
    def distinct(self) -> list[str]:
        """The texts that some row has, each once, in the order in which they appear."""
        return [self.texts[k] for k in pd.unique(self.codes).tolist()]


@dataclass(frozen=True, eq=False)
class Source:
    """A table: its name for messages, the number of every row as an editor counts lines, and the findings.

    Once a `Reader` has read it: the column of each role and its values, labels as `Labels` and numbers as floats. A number that was refused
    is NaN; so is one that is not there, which ``empty`` marks.
    """

    name: str
    frame: pd.DataFrame
    rows: NDArray[np.int64]
    findings: Findings = field(default_factory=Findings)
    columns: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    empty: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    def __getitem__(self, role: str) -> Any:
        held = self.values[role]
        return held.each if isinstance(held, Labels) else held

    def __contains__(self, role: str) -> bool:
        return role in self.values

    def having(self, **values: Any) -> Source:
        """The table with other values of some roles: numbers, or texts."""
        made = {
            role: Labels.of(column) if column.dtype == object else column for role, column in values.items()
        }
        return replace(self, values={**self.values, **made})

    def where(self, kept: NDArray[Any]) -> Source:
        """The table with the rows of a mask."""
        values, empty = (
            {role: column[kept] for role, column in held.items()} for held in (self.values, self.empty)
        )
        frame = self.frame[kept].reset_index(drop=True)
        return replace(self, frame=frame, rows=self.rows[kept], values=values, empty=empty)

    def problem(
        self, text: str, rows: Sequence[int] | None = None, values: Sequence[Any] | None = None
    ) -> None:
        """Something about this table that cannot be right."""
        self.findings.problem(self.name, text, rows, values)

    def note(self, text: str) -> None:
        """Something about this table that was decided for the user."""
        self.findings.note(f"{self.name}: {text}")

    def refuse(self, where: NDArray[Any], text: str, values: Any = None) -> bool:
        """Whether a mask marks any row, which is then a problem that shows its values."""
        found = bool(where.any())
        if found:
            shown = None if values is None else values[where].tolist()
            self.problem(text, self.rows[where].tolist(), shown)
        return found

    def without(self, numbers: Array, where: NDArray[Any], text: str, values: Any = None) -> Array:
        """The numbers with NaN where they are refused, so that nothing else complains about them too."""
        return np.where(where, np.nan, numbers) if self.refuse(where, text, values) else numbers

    def _places(self, role: str, known: Sequence[str]) -> Index:
        """Where every distinct label of a role stands among the known ones; −1 where it does not."""
        labels, places = (pd.Index(list(texts), dtype=object) for texts in (self.values[role].texts, known))
        if (
            role == "time" and len(places) and zoned_moment(places[0]) is not None
        ):  # one moment, whatever its offset
            labels, places = labels.map(_moment), places.map(_moment)
        return np.asarray(places.get_indexer(labels))

    def positions(self, role: str, known: Sequence[str]) -> Index:
        """Where the label of every row stands among the known ones; −1 where it does not."""
        return self._places(role, known)[self.values[role].codes]

    def distinct(self, role: str) -> list[str]:
        """The labels of a role, each once, in the order in which they appear."""
        found: list[str] = self.values[role].distinct
        return found

    def knows(self, role: str, known: Sequence[str], unknown: str) -> bool:
        """Whether all labels are among the known ones; others are a problem that `unknown` explains."""
        if {*self.distinct(role)} <= {*known}:
            return True
        stray = self.positions(role, known) < 0
        self.refuse(stray & (self[role] != ""), unknown, self[role])  # an empty one has been refused already
        return not stray.any()

    def spread(self, values: Array, axes: Mapping[str, Sequence[str]], rest: float = np.nan) -> Array:
        """One value per row in an array with an axis per role, `rest` where there is no row; rows of unknown labels are left out."""
        out = np.full([len(known) for known in axes.values()], rest)
        at: Index = np.zeros(len(values), dtype=np.intp)
        there: NDArray[np.bool_] | None = None
        for step, (role, known) in zip(out.strides, axes.items(), strict=True):
            places = self._places(role, known)
            codes = self.values[role].codes
            at += (places * (step // out.itemsize))[codes]
            if (places < 0).any():
                inside = (places >= 0)[codes]
                there = inside if there is None else there & inside
        if there is not None:
            at, values = at[there], values[there]
        out.reshape(-1)[at] = values
        return out


def open_source(
    given: Any,
    encoding: str | None = None,
    findings: Findings | None = None,
    measured: Callable[[str], bool] = lambda column: False,
) -> Source:
    """The table that `given` names or is; what was decided while reading it is noted among the findings.

    ``measured`` says which columns, by their names, can only hold numbers: of whole numbers among them nobody needs the text.

    Raises
    ------
    TableError
        The reason why it cannot be read.
    """
    findings = Findings() if findings is None else findings
    if isinstance(given, Source):  # part of a table that was read already
        return replace(given, findings=findings)
    if isinstance(given, (str, os.PathLike)):
        return replace(_from_path(Path(given), encoding, findings, measured), findings=findings)
    kind = type(given).__name__
    if kind == "DataFrame":
        source = _numbered("the table", given.reset_index(drop=given.index.names == [None]))
    elif kind == "Series":
        source = _numbered("the table", given.rename(given.name or "count").reset_index())
    elif kind in {"DataArray", "Dataset"}:
        source = _numbered("the cube", _from_cube("the cube", given))
    else:
        raise TableError(f"the table: give a path, a pandas table or an xarray cube, got {kind}")
    return replace(source, findings=findings)


def _numbered(name: str, frame: pd.DataFrame) -> Source:
    return Source(name, frame.rename(columns=label_text), np.arange(1, 1 + len(frame)))


def label_text(value: Any) -> str:
    """The text of one label, the same for 3, 3.0 and "3", and for a date in any form."""
    if isinstance(value, str):
        text = unicodedata.normalize("NFC", value.strip())  # an accent is one character, however it was typed
        midnight = _MIDNIGHT.match(text)
        return text if midnight is None else midnight[1]
    if value is None or value != value:  # NaN, NaT
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, dt.datetime):  # a pandas time stamp is one
        whole = value.tzinfo is None and value.time() == dt.time(0)
        return value.date().isoformat() if whole else value.isoformat()
    return str(value).strip()


def _from_path(
    path: Path, encoding: str | None, findings: Findings, measured: Callable[[str], bool]
) -> Source:
    """Read a file by its ending; anything but a container format is taken as text, compressed or not."""
    path, sheet = _book_and_sheet(path)
    try:
        if path.is_dir():
            raise TableError(f"{path}: this is a folder: give the file in it")
        with path.open("rb"):  # one report of what is missing or forbidden, whatever the format
            pass
        ending = path.suffix.lower()
        if ending in _EXCEL:
            return _from_excel(path, findings, sheet)
        if ending in _CONTAINERS:
            return _numbered(path.name, _CONTAINERS[ending](path))
        content = unpacked(path)
    except FileNotFoundError:
        raise TableError(f"{path}: there is no such file: check the path") from None
    except OSError as error:
        reason = error.strerror or error
        raise TableError(
            f"{path}: it cannot be read ({reason}): check the path and its permissions"
        ) from None
    return _from_text(path.name, _as_utf8(path.name, content, encoding, findings), findings, measured)


def _book_and_sheet(path: Path) -> tuple[Path, str | None]:
    """A workbook and its sheet, of ``book.xlsx#sheet``; any other file, and None."""
    book, mark, sheet = path.name.partition("#")
    if mark and not path.exists() and book.lower().endswith(_EXCEL):
        return path.with_name(book), sheet
    return path, None


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


def _as_utf8(name: str, content: bytes, encoding: str | None, findings: Findings) -> bytes:
    """A text in UTF-8, from the caller's encoding or, without one, from what its bytes show: UTF-8, UTF-16, Windows-1252."""
    if not content.lstrip():
        raise TableError(f"{name}: the file is empty: give a table with a header line and one row per entry")
    known = _shown_encoding(name, content) if encoding is None else encoding
    if known is None and content.isascii():
        return content
    try:
        return content.decode(known or "utf-8-sig").encode()
    except UnicodeDecodeError as error:
        text = None if known else _windows(content)
        if text is None:
            raise TableError(_wrong_byte(name, content, error.start, known)) from None
        findings.note(_read_as_windows(name, text))
        return text.encode()
    except (LookupError, UnicodeError):
        text = f"{name}: there is no encoding {encoding!r}: try utf-8, latin-1, cp1252 or utf-16"
        raise TableError(text) from None


def _read_as_windows(name: str, text: str) -> str:
    """That a file was taken to be Windows-1252, with a word of it that shows whether that is right."""
    foreign = re.findall(r"\w*[^\W\x00-\x7f]\w*", text)
    return (
        f"{name}: the file is not in UTF-8 and is read as Windows-1252 (Latin-1), for instance {foreign[0]!r}; if that is wrong, "
        "give the encoding (--encoding)"
    )


def _shown_encoding(name: str, content: bytes) -> str | None:
    """UTF-16 where the bytes show it; what is no text at all is refused."""
    if content[:4] in _NOT_TEXT:
        raise TableError(f"{name}: {_NOT_TEXT[content[:4]]}")
    found = _utf16(content)
    if found is None and b"\x00" in content[:4096]:
        raise TableError(
            f"{name}: this is not a text table: give CSV, or Excel, Parquet or NetCDF with that ending (.xlsx, .parquet, .nc)"
        )
    return found


def _wrong_byte(name: str, content: bytes, at: int, encoding: str | None) -> str:
    row, byte = content.count(b"\n", 0, at) + 1, content[at]
    return (
        f"{name}, row {row}: the byte 0x{byte:02x} is not {encoding or 'UTF-8'} (in Latin-1 it would be "
        f"{bytes([byte]).decode('latin-1')!r}): save the file as UTF-8, or give the encoding (encoding='latin-1', --encoding latin-1)"
    )


_NOT_TEXT = {
    b"PK\x03\x04": "this is an Excel or zip file: give it the ending .xlsx, or unpack it",
    b"\xd0\xcf\x11\xe0": "this is an Excel file of the old kind (.xls): save it as .xlsx or CSV",
}
"""First bytes of files that people take for tables, and what to do with them."""


def _utf16(content: bytes) -> str | None:
    """UTF-16 by its mark, or because every other byte of the beginning is zero; None otherwise."""
    if content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    begin = content[:1000]
    low, high = begin[::2].count(0), begin[1::2].count(0)
    if high > 0.8 * len(begin[1::2]) and not low:
        return "utf-16-le"
    return "utf-16-be" if low > 0.8 * len(begin[::2]) and not high else None


def _windows(content: bytes) -> str | None:
    """The text in Windows-1252, where that gives words: no symbols inside words, and most letters plain; None otherwise.

    Other code pages of one byte per character (Polish, Russian, Greek) then show symbols inside words, or hardly a plain letter.
    """
    try:
        text = content.decode("cp1252")
    except UnicodeDecodeError:
        return None
    words = [w for w in re.findall(r"[^\W\d_]+", text) if not w.isascii()]
    letters = "".join(words)
    foreign = sum(not c.isascii() for c in letters)
    inside = re.search(r"[^\W\d_][¡-¿÷×]|[£¥¦¹³¿¼¾¯][^\W\d_]", text)
    return text if words and 2 * foreign <= len(letters) + len(words) and not inside else None


def _from_text(name: str, content: bytes, findings: Findings, measured: Callable[[str], bool]) -> Source:
    """Parse separated values, all as text; blank lines keep their number."""
    if b"\n" not in content:
        content = content.replace(b"\r", b"\n")
    content, skipped, separator = _to_header(name, content, findings)
    header = _beginning(content, 0).partition("\n")[0].rstrip("\r")
    names = [part.strip().strip('"').strip() for part in header.split(separator)]
    _refuse_twice(name, skipped + 1, [n for n in names if n])
    frame = _parsed(name, content, separator, measured)
    frame.columns = [str(c).strip() for c in frame.columns]
    rows = np.arange(skipped + 2, skipped + 2 + len(frame))
    return _filled(Source(name, frame, rows))


def _refuse_twice(name: str, row: int, columns: Sequence[str]) -> None:
    twice = repeated(columns)
    if twice:
        raise TableError(f"{name}, row {row}: the column {twice[0]!r} is there twice: rename or remove one")


def _filled(source: Source) -> Source:
    """The table without empty rows, and without empty columns that have no name."""
    frame = source.frame
    filled = np.zeros(len(frame), dtype=bool)
    kept = []
    for place, column in enumerate(frame.columns):
        nameless = re.fullmatch(r"(Unnamed: \d+)?", str(column)) is not None
        if nameless or not filled.all():
            entries = frame.iloc[:, place]
            there = (entries.notna() & (entries != "")).to_numpy(dtype=bool)
            filled |= there
            if nameless and not there.any():
                continue
        kept.append(place)
    if not filled.any():
        raise TableError(f"{source.name}: there is a header and nothing below it: give one row per entry")
    frame = frame.iloc[:, kept]
    if filled.all():
        return replace(source, frame=frame)
    return replace(source, frame=frame[filled].reset_index(drop=True), rows=source.rows[filled])


def _to_header(name: str, content: bytes, findings: Findings) -> tuple[bytes, int, str]:
    """The text from its header on, the lines above it, and the separator: by a line ``sep=;``, or the commonest in the header.

    Above the header may be comments (#), empty lines and titles (see `_is_title`).
    """
    skipped, said, start = 0, None, 0
    while True:
        line, _, below = _beginning(content, start).partition("\n")
        stated = re.fullmatch(r"sep=(.|\\t)", line.strip().strip('"'), re.IGNORECASE)
        if stated is not None and said is None:
            said = stated[1].replace("\\t", "\t")
        elif start >= len(content) or not _above_header(name, line, below, findings):
            break
        start, skipped = start + len(line.encode()) + 1, skipped + 1
    return content[start:] if start else content, skipped, said or max(_SEPARATORS, key=_unquoted(line).count)


def _beginning(content: bytes, start: int) -> str:
    """The text from a place on, as far as a header can go."""
    return content[start : start + LONGEST_HEADER].decode(errors="ignore")


LONGEST_HEADER = 1_000_000
"""Bytes looked at for the header and what is above it: a wide table of 60 000 cells has as many."""


def _above_header(name: str, line: str, below: str, findings: Findings) -> bool:
    """Whether a line stands above the header: a comment, an empty line, or a title, which is noted."""
    entry = line.strip().strip('"').strip(_MARKS)
    if line.startswith("#") or not entry:
        return True
    title = _is_title(line, below)
    if title:
        findings.note(f"{name}: {entry!r}, above the header, is read as a title")
    return title


def _entries(line: str) -> str:
    """What a line has beside separators and blanks."""
    return line.strip(_MARKS + " \r")


def _is_title(line: str, below: str) -> bool:
    """Whether a line has one entry, where lines below it have several under the separator that is commonest there.

    A title may hold commas, and another title may follow. The commas of decimals make no separator: a line with as many separators of
    any one kind as the lines below is their header.
    """
    plain = _unquoted(line)
    rows = list(map(_unquoted, filter(_entries, below.split("\n", 20)[:20]))) or [""]
    usual = {s: int(np.median([row.count(s) for row in rows])) for s in _SEPARATORS}
    filled = {s: len(list(filter(str.strip, plain.split(s)))) for s in _SEPARATORS}
    if any(filled[s] > 1 and plain.count(s) == usual[s] for s in _SEPARATORS):
        return False
    most = max(_SEPARATORS, key=usual.__getitem__)
    return usual[most] > 0 and filled[most] <= 1


def _unquoted(line: str) -> str:
    """A line with a letter in the place of every quoted text, which may hold separators."""
    return re.sub(r'"[^"]*"', "x", line)


LARGE_TEXT = 10_000_000
"""Bytes of a table above which its columns are read as codes of distinct texts: 8 million rows in 0.5 seconds for 1.8, and every
later step looks at distinct texts only. Below, texts are quicker where most differ."""


ROWS_LOOKED_AT = 1000
"""Rows by which a column is found to hold texts: pandas makes numbers of codes that are all numbers, and 01 would be 1."""


def _is_text(series: pd.Series) -> bool:
    """Whether some entry of a column is neither a number nor a truth value, so that its distinct texts stay texts."""
    words = series[pd.to_numeric(series, errors="coerce").isna()].str.strip().str.casefold()
    return not words.isin(["", "true", "false", "nan", "inf", "-inf"]).all()


def _parsed(name: str, content: bytes, separator: str, measured: Callable[[str], bool]) -> pd.DataFrame:

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ParserWarning)
            if len(content) > LARGE_TEXT:
                return _parsed_as_codes(content, separator, measured)
            return _texts_in(content, separator, dtype=str).fillna("")
    except (ParserError, ParserWarning, EmptyDataError) as error:
        reason = str(error).replace("Error tokenizing data. C error: ", "").strip()
        text = f"{name}: the rows do not fit the header ({reason}): quote texts that hold {separator!r}"
        raise TableError(text) from None


def _parsed_as_codes(content: bytes, separator: str, measured: Callable[[str], bool]) -> pd.DataFrame:
    """The columns as codes of distinct texts; numbers as texts, but for the whole numbers of columns that are ``measured``."""
    first = _texts_in(content, separator, nrows=ROWS_LOOKED_AT, dtype=str)
    coded = [c for c in first.columns if measured(str(c)) or _is_text(first[c])]
    kinds = dict.fromkeys(first.columns, str) | dict.fromkeys(coded, "category")
    # Looking for spaces after every separator takes a quarter of the time, and hardly a file has them.
    spaced = f"{separator} " in separator + _beginning(content, 0).replace("\n", separator)
    frame = _texts_in(content, separator, dtype=kinds, skipinitialspace=spaced)
    if not spaced and any(frame[c].cat.categories.astype(str).str.startswith(" ").any() for c in coded):
        frame = _texts_in(content, separator, dtype=kinds)
    # 1.025 may be a thousand: whether it is, its text tells
    lost = [c for c in coded if frame[c].cat.categories.dtype.kind in "fb"]
    if lost:
        frame[lost] = _texts_in(content, separator, usecols=lost, dtype=str)[lost]
    return frame


def _texts_in(content: bytes, separator: str, **how: Any) -> pd.DataFrame:

    return pd.read_csv(
        io.BytesIO(content),
        sep=separator,
        na_filter=False,
        skip_blank_lines=False,
        index_col=False,
        **{"skipinitialspace": True, **how},
    )


def _from_parquet(path: Path) -> pd.DataFrame:

    def read() -> pd.DataFrame:
        from pyarrow import parquet

        held = parquet.ParquetFile(path).metadata
        groups = [held.row_group(k).total_byte_size for k in range(held.num_row_groups)]
        size = max(sum(groups), 8 * held.num_rows * held.num_columns)
        memory.require(memory.COPIES_READ * size, path.name, remedy="split it")
        return pd.read_parquet(path)

    again = "write it again, or give CSV"
    frame = from_foreign(path, read, "a Parquet file", again, "pyarrow", "parquet")
    return frame.reset_index(drop=frame.index.names == [None])


def _from_netcdf(path: Path) -> pd.DataFrame:

    def read() -> xr.Dataset:
        with xr.open_dataset(path, engine="h5netcdf") as data:
            size = sum(variable.nbytes for variable in data.variables.values())
            memory.require(memory.COPIES_READ * size, path.name, remedy="split it")
            return data.load()

    return _from_cube(path.name, from_foreign(path, read, "a NetCDF-4 file", "write it again, or give CSV"))


def _from_excel(path: Path, findings: Findings, sheet: str | None = None) -> Source:
    """A sheet of a workbook: the named one, or the first that is not empty."""

    def read() -> dict[str, list[tuple[Any, ...]]]:
        import openpyxl

        with zipfile.ZipFile(path) as packed:
            size = sum(part.file_size for part in packed.infolist())
        memory.require(MEMORY_PER_BYTE * size, path.name, remedy="split it, or give CSV or Parquet")
        with warnings.catch_warnings():
            # What openpyxl does not know (colours, drop-down lists) is nothing to us.
            warnings.simplefilter("ignore")
            book = openpyxl.load_workbook(path, read_only=True, data_only=True)
            try:
                return {s.title: list(s.iter_rows(values_only=True)) for s in book.worksheets}
            finally:
                book.close()

    again = "save it again, or give CSV"
    sheets = from_foreign(path, read, "an Excel file of the kind .xlsx", again, "openpyxl", "excel")
    full = [name for name, rows in sheets.items() if any(map(_entries_in, rows))]
    chosen = next(iter(full), None) if sheet is None else sheet
    if chosen not in full:
        known = ", ".join(repr(name) for name in full) or "none"
        raise TableError(
            f"{path.name}: there is no sheet {chosen or ''!r} with entries: the sheets with entries are {known}"
        )
    if sheet is None and len(full) > 1:
        findings.note(
            f"{path.name}: the sheet {chosen!r} is read; for another one write {path.name}#{full[1]}"
        )
    return _from_rows(path.name, sheets[chosen])


def _entries_in(row: tuple[Any, ...]) -> int:
    return sum(v is not None for v in row)


def _from_rows(name: str, rows: Sequence[tuple[Any, ...]]) -> Source:
    """The rows of a sheet: the header is the first with two entries or more, or the first with any."""
    entries = list(map(_entries_in, rows))
    top = next(k for least in (2, 1) for k, count in enumerate(entries) if count >= least)
    names = [label_text(v) or f"Unnamed: {k}" for k, v in enumerate(rows[top])]
    _refuse_twice(name, top + 1, names)
    frame = pd.DataFrame(list(rows[top + 1 :]), columns=names, dtype=object)
    return _filled(Source(name, frame, np.arange(top + 2, top + 2 + len(frame))))


def _from_areas(path: Path) -> pd.DataFrame:
    return geopackage_table(path) if path.suffix.lower() == ".gpkg" else geojson_table(path)


def _from_cube(name: str, data: Any) -> pd.DataFrame:
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
    return frame


_CONTAINERS: Mapping[str, Callable[[Path], pd.DataFrame]] = {
    ".parquet": _from_parquet,
    ".pq": _from_parquet,
    ".nc": _from_netcdf,
    ".nc4": _from_netcdf,
    ".cdf": _from_netcdf,
    ".omx": omx_table,
    ".geojson": _from_areas,
    ".gpkg": _from_areas,
}
