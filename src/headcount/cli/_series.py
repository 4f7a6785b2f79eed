"""Series that live: go on from last week's results, a folder of weekly files, forecasts.

Every results folder says what it was made of (attribute ``series``): its tables, its options, the folder it went on from, and a digest of
all that. A run that goes on inherits the options, reads the last counts and infers its own times. Counts of old times that differ from
what was used are corrections: the run then begins again after the last folder that ends before the first of them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headcount.io
import headcount.learn
from headcount.check import alarm
from headcount.cli._run import (
    _write_and_show,
    _written,
    infer_tables,
    parse_alias,
    planned,
    read_cases,
    ready_engine,
    refuse_too_large,
)
from headcount.cli._show import ALARM, say, show_notes, tell
from headcount.dates import readable
from headcount.engines import Engine
from headcount.errors import shown
from headcount.io import Case, Result, TableError, folder_name
from headcount.io._problem import by_sequence
from headcount.io.columns import Reader
from headcount.io.source import Findings, Source, label_text
from headcount.io.tables import count_tables, later, read_alias
from headcount.learn import Going, LogisticChain
from headcount.learn._result import following
from headcount.observe import Start
from headcount.posterior import Posterior

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from headcount.cli._app import OutputOptions, ProblemOptions, SeriesOptions


SERIES = "series"
"""Attribute of a result that says what it was made of and where it went on from."""
_FILES = ("features", "weights", "initial", "survival")
"""Options that are a file or something else."""
_TABLES = {".csv", ".gz", ".tsv", ".txt", ".xlsx", ".xls", ".parquet", ".pq", ".nc"}
"""Endings of files that are tables of counts in a folder of them."""


@dataclass(frozen=True)
class Beginning:
    """Where a run begins: the folder it goes on from (None: from nothing), all tables to read, and what to say about it."""

    folder: Path | None
    tables: list[Path]
    notes: list[str] = field(default_factory=list)

    @property
    def past(self) -> Result | None:
        """The run it goes on from."""
        return None if self.folder is None else past_result(self.folder)


def run_infer(
    counts: Sequence[Path],
    options: ProblemOptions,
    output: OutputOptions,
    series: SeriesOptions,
    window: int | None,
) -> None:
    """Read, plan, infer, say how it went, write."""
    on = len(counts) == 1 and counts[0].is_dir()
    if window is not None and (on or series.after is not None):
        raise ValueError("--window is for one long table: leave it out beside --after and folders of tables")
    if on:
        run_series(counts[0], options, output, series)
    elif series.after is not None:
        run_after(counts, options, output, series)
    elif series.revise or series.alarm is not None:
        raise ValueError("--revise and --alarm need an earlier run: give its folder with --after")
    else:
        infer_tables(counts, options, output, window, series_facts)


def past_result(folder: Path) -> Result:
    """An earlier run that can be gone on from.

    Raises
    ------
    TableError
        Where its last counts are not in it.
    """
    file = folder / "posterior.nc" if folder.is_dir() else folder
    found = _loaded(folder, file.stat().st_mtime_ns if file.exists() else 0)
    if found.last is None:
        raise TableError(
            f"{folder}: this run has no last counts to go on from (no chain, no spread, or an earlier headcount wrote it): infer it again"
        )
    return found


@lru_cache(maxsize=1)
def _loaded(folder: Path, written: int) -> Result:
    """A run as it was ``written`` then: one command asks for the same one four times, which was two thirds of its time."""
    return headcount.io.load_result(folder)


def newest(folder: Path) -> Path:
    """The folder itself where it holds a run; of a folder of weeks, the one from which no other went on.

    Raises
    ------
    TableError
        Where there are several of these, as of sequences.
    """
    runs = (
        [] if (folder / "posterior.nc").exists() else sorted(p.parent for p in folder.glob("*/summary.json"))
    )
    facts = [json.loads((run / "summary.json").read_text(encoding="utf-8")) for run in runs]
    left = {found.get(SERIES, {}).get("after") for found in facts}
    last = [run for run in runs if str(run.resolve()) not in left]
    if len(last) > 1:
        raise TableError(
            f"{folder} holds several runs from which none goes on: give one of {shown([p.name for p in last])}"
        )
    return last[0] if last else folder


def told(options: ProblemOptions) -> dict[str, Any]:
    """The options that were given, as JSON takes them; files by their whole path."""
    given = {}
    for item in fields(options):
        value = getattr(options, item.name)
        if value == item.default or item.name in {"memory_limit", "workers", "cluster"}:
            continue
        if isinstance(value, Path) or (item.name in _FILES and Path(str(value)).exists()):
            value = str(Path(value).resolve())
        given[item.name] = value
    return given


def inherited(options: ProblemOptions, past: Result) -> ProblemOptions:
    """The options with those of an earlier run where none are given."""
    known = dict(past.attributes.get(SERIES, {}).get("options", {}))
    changed: dict[str, Any] = {}
    for item in fields(options):
        if getattr(options, item.name) == item.default and item.name in known:
            value = known[item.name]
            kind = str(item.type)
            changed[item.name] = Path(value) if "Path" in kind and value is not None else value
    if (
        past.weights is not None and options.weights is None
    ):  # what a fit learned; its features are among the options
        changed["weights"] = ",".join(repr(float(w)) for w in past.weights["weight"])
    return replace(options, **changed)


def digest(tables: Sequence[Path], options: ProblemOptions, before: str) -> str:
    """Equal for runs that have the same answer: contents of the tables, options, and the run before."""
    made = hashlib.sha256(before.encode())
    made.update(json.dumps(told(options), sort_keys=True, default=str).encode())
    for table in tables:
        made.update(table.read_bytes())
    for item in fields(options):
        given = getattr(options, item.name)
        if isinstance(given, (str, Path)) and Path(given).is_file():
            made.update(Path(given).read_bytes())
    return made.hexdigest()


def series_facts(
    tables: Sequence[Path],
    options: ProblemOptions,
    *,
    after: Path | None = None,
    before: str = "",
    stamp: str | None = None,
) -> dict[str, Any]:
    """What a run was made of, as an attribute of its result; nothing where its tables are no files."""
    if not all(table.is_file() for table in tables):
        return {}
    return {
        SERIES: {
            "after": None if after is None else str(after.resolve()),
            "tables": [str(table.resolve()) for table in tables],
            "options": told(options),
            "digest": digest(tables, options, before) if stamp is None else stamp,
        }
    }


def history(after: Path) -> Iterator[tuple[Path, Result]]:
    """The run of a folder, the one it went on from, and so on; each is read when it is asked for."""
    place: Path | None = after
    while place is not None:
        past = past_result(place)
        yield place, past
        before = past.attributes.get(SERIES, {}).get("after")
        place = None if before is None else Path(before)


def first_change(after: Path, rows: pd.DataFrame) -> str | None:
    """The first time whose counts differ from those that were used; None where none do. Runs are read as far back as the rows go."""
    changed: list[str] = []
    for _, past in history(after):
        times = [readable(t) for t in past.times]
        begun = past.attributes.get(SERIES, {}).get("after") is None
        own = times if begun else times[1:]  # the first is the last of the run before
        old = rows[[t in own or (begun and not later(t, own[0])) for t in rows["time"]]]
        seen = past.nodes.assign(time=past.nodes["time"].map(readable), cell=past.nodes["cell"].map(readable))
        held = old.merge(seen[["time", "cell", "observed"]], on=["time", "cell"], how="left")
        changed += held["time"][held["count"].notna() & (held["count"] != held["observed"])].tolist()
        if all(later(t, times[0]) for t in rows["time"]):
            break
    return min(changed, key=_order, default=None)


def where_to_begin(after: Path, tables: Sequence[Path], rows: pd.DataFrame, *, revise: int) -> Beginning:
    """Find the last run that no count contradicts, and that ends ``revise`` steps or more before the newest.

    Parameters
    ----------
    after
        The folder of the last run.
    tables, rows
        The new tables, and their counts as ``time, cell, count``.
    """
    changed = first_change(after, rows)
    why = (
        f"the last {revise} steps are revised"
        if changed is None
        else f"counts of {changed} differ from those that were used"
    )
    kept, back = list(tables), 0
    for place, past in history(after):
        assert past.last is not None
        end = past.last.time
        if (changed is None or later(changed, end)) and back >= revise:
            return Beginning(
                place, kept, [f"{why}: begun again after {end} ({place})"] if place != after else []
            )
        kept = [*map(Path, past.attributes.get(SERIES, {}).get("tables", [])), *kept]
        back += len(past.times) - 1
    return Beginning(None, kept, [f"{why}, and no run ends before them: begun again from the first counts"])


def _reader(options: ProblemOptions) -> Reader:
    """A reader of tables that are written as the options say."""
    how = _written(options)
    reader = Reader(Findings(), **how, dates=options.dates, wide=options.wide, bounds=options.bounds)
    return replace(reader, alias=read_alias(parse_alias(options.alias), reader))


def count_rows(tables: Sequence[Path], options: ProblemOptions, sequence: str = "") -> pd.DataFrame:
    """The counts of tables (of one sequence, where they have several) as ``time, cell, count``, labels as texts."""
    import pandas as pd

    reader = _reader(options)
    source = count_tables(_rows_of(tables, options, sequence), reader)
    reader.findings.raise_any()
    assert source is not None
    texts = {
        "time": [t.replace("T", " ") for t in source["time"]],
        "cell": source["cell"],
        "count": source["count"],
    }
    return pd.DataFrame(texts)


def times_ahead(past: Result, steps: int | None = None, until: str | None = None) -> list[str]:
    """Names of the times after a run's last: so many, or all before ``until``, at the distance of its last two."""
    known = past.times
    if steps is not None:
        return [label_text(t) for t in following(known, steps)]
    made: list[str] = []
    assert until is not None
    for label in following(known, MOST_MISSED):
        text = label_text(label)
        if not later(until, text):
            break
        made.append(text)
    return [] if len(made) == MOST_MISSED else made


MOST_MISSED = 400
"""Times between two runs that are added as times at which nobody looked; beyond it the step between them is not what it was."""


def run_after(
    tables: Sequence[Path], options: ProblemOptions, output: OutputOptions, series: SeriesOptions
) -> None:
    """Infer new counts from where an earlier run ended; of several sequences, each from the folder of its name."""
    import typer

    assert series.after is not None
    keys = sequences_of(tables, options)
    alarmed, failed = False, None
    for key in keys:
        after, out = series.after, output.out
        if key:
            say((f"sequence {key}", "bold"))
            after, out = after / folder_name(key), out / folder_name(key)
        if key and not after.exists():
            begin = Beginning(None, list(tables), [f"{after} does not exist: this sequence begins here"])
            told_before = options
        else:
            after = after if key else newest(after)
            told_before = inherited(options, past_result(after))
            rows = count_rows(tables, told_before, key)
            begin = where_to_begin(after, tables, rows, revise=series.revise)
        learned = options.weights is None
        try:
            alarmed |= infer_from(
                begin, told_before, replace(output, out=out), series, sequence=key, learned=learned
            )
        except typer.Exit as error:  # written or not, and said so; the other sequences do not depend on it
            failed = error
    if failed is not None:
        raise failed
    _end(alarmed)


def sequences_of(tables: Sequence[Path], options: ProblemOptions) -> list[str]:
    """Names of the sequences of tables, in order of appearance; one that is empty where they have no such column."""
    found = [_parts(table, _reader(options)) for table in tables]
    return list(dict.fromkeys(key for parts in found for key in parts)) or [""]


def _parts(table: Path, reader: Reader) -> dict[str, Source]:
    """The rows of every sequence of a table; nothing where it has one."""
    parts = by_sequence(table, reader)
    reader.findings.raise_any()
    return parts


def _rows_of(tables: Sequence[Path], options: ProblemOptions, sequence: str) -> list[Any]:
    """The tables, or the rows of one sequence of each."""
    if not sequence:
        return list(tables)
    found = [_parts(table, _reader(options)).get(sequence) for table in tables]
    return [part for part in found if part is not None]


def _end(alarmed: bool) -> None:
    """End with the exit code of an alarm where there is one."""
    import typer

    if alarmed:
        raise typer.Exit(ALARM)


def infer_from(
    begin: Beginning,
    options: ProblemOptions,
    output: OutputOptions,
    series: SeriesOptions,
    *,
    stamp: str | None = None,
    sequence: str = "",
    learned: bool = True,
) -> bool:
    """Read, infer from the beginning, compare with the forecast, write; return whether an alarm was asked for and raised.

    With ``learned``, parameters that a fit left with the past are updated too.
    """
    output.check()
    engine = ready_engine(options)
    past = begin.past
    case = read_after(begin.tables, options, past, sequence=sequence)
    output.check_files(case, fitted=learned and past is not None and past.learned is not None)
    refuse_too_large(planned(case.problem, options)[1])
    start = None if past is None else past.last
    posterior, fitted, said_of_weights = _inferred(
        past if learned else None, start, case, engine, options, output
    )
    notes = [*begin.notes, *said_of_weights]
    if start is not None:
        notes.append(f"the run goes on from {start.time} ({begin.folder})")
    before = "" if past is None else str(past.attributes.get(SERIES, {}).get("digest", ""))
    said = series_facts(begin.tables, options, after=begin.folder, before=before, stamp=stamp)
    found = None
    if start is not None and posterior.status.good and case.problem.sites:
        found = alarm(posterior, rate=series.alarm or DEFAULT_RATE)
        said["alarm"] = found.facts()
        notes.append(found.words)
    said |= {"sequence": sequence} if sequence else {}
    _write_and_show(posterior, case, output, notes, attributes=said, **fitted)
    if found is not None:
        tell(alarm=found.facts())
    return found is not None and found.raised and series.alarm is not None


def _inferred(
    past: Result | None,
    start: Start | None,
    case: Case,
    engine: Engine | None,
    options: ProblemOptions,
    output: OutputOptions,
) -> tuple[Posterior, dict[str, Any], list[str]]:
    """The posterior; what is written beside it, and said, of weights, which are updated where the past has learned them."""
    going = None if past is None else parameters_after(past, case, engine)
    if going is not None:
        told = (
            "the weights were updated by the new counts, together with the last counts: weights.csv has them"
        )
        fitted = {"weights": weights_of(going, output.level), "learned": going.past}
        return going.posterior, fitted, [told]
    posterior = headcount.learn.infer(case.problem, engine, start=start, rng=options.seed, strict=False)
    known = [] if case.features is None else ["the weights are taken as known"]
    return posterior, {}, known


def parameters_after(past: Result, case: Case, engine: Engine | None) -> Going | None:
    """The parameters of a fit and the new times, updated together; None where the past has no parameters."""
    if past.learned is None or case.features is None:
        return None
    setting = LogisticChain(case.features, names=case.feature_names, mask=case.mask)
    return Going.after(past.learned, setting, case.problem, engine)


def weights_of(going: Going, level: float) -> pd.DataFrame:
    """The weights as a fit writes them: ``feature, weight, standard_error, lower, upper, level``."""
    from scipy.special import ndtri

    table = going.table().rename(columns={"parameter": "feature", "estimate": "weight"})
    reach = float(ndtri(0.5 + 0.5 * level)) * table["standard_error"]
    return table.assign(lower=table["weight"] - reach, upper=table["weight"] + reach, level=level)


DEFAULT_RATE = 0.01
"""False-alarm rate where none is given."""


def read_after(
    tables: Sequence[Path],
    options: ProblemOptions,
    past: Result | None,
    ahead: Sequence[str] = (),
    *,
    sequence: str = "",
) -> Case:
    """The problem of the tables (of one of their sequences), begun at the last time of the past."""
    own = _rows_of(tables, options, sequence)
    if past is None:
        cases = read_cases(own, options)
    else:
        last = label_text(past.times[-1])
        rows = count_rows(tables, options, sequence) if tables else None
        new = [] if rows is None else [t for t in rows["time"] if later(t, last)]
        if rows is not None and not new:
            raise TableError(
                f"the counts have no time after {last}, where the past ends: there is nothing to infer"
            )
        between = [] if not new or len(past.times) < 2 else times_ahead(past, until=min(new, key=_order))
        cases = read_cases(own, options, after=last, ahead=[*between, *ahead])
        if new and len(past.times) < 2:
            note = (
                f"the past has the one time {last}, which says nothing of times at which nobody looked: the step to "
                f"{min(new, key=_order)} is taken as one"
            )
            cases = {key: replace(case, notes=(*case.notes, note)) for key, case in cases.items()}
    if list(cases) != [""]:
        raise TableError(
            "the tables of a folder have several sequences: go on with them table by table, headcount infer TABLE --after"
        )
    return cases[""]


def _order(text: str) -> tuple[float, str]:
    try:
        return float(text), ""
    except ValueError:
        return 0.0, text


def run_series(folder: Path, options: ProblemOptions, output: OutputOptions, series: SeriesOptions) -> None:
    """Infer a folder of tables in the order of their names, each going on from the one before; what is finished is not repeated."""
    stamp, before, done = "", series.after, 0
    again, alarmed = list[str](), list[str]()
    files = weekly_files(folder)
    for stem, path in files.items():
        target = output.out / folder_name(stem)
        stamp = digest([path], options, f"{stamp} {series.revise}")
        found = finished_stamp(target)
        if found == stamp:
            done += 1
        else:
            say((stem, "bold"), f"  ({done} of {len(files)} tables were finished before)" if done else "")
            again += [] if found is None else [path.name]
            begin = Beginning(None, [path])
            given = options
            if before is not None:
                given = inherited(options, past_result(before))
                begin = where_to_begin(before, [path], count_rows([path], given), revise=series.revise)
            learned = options.weights is None
            if infer_from(begin, given, replace(output, out=target), series, stamp=stamp, learned=learned):
                alarmed.append(stem)
        before = target
    tell(tables=len(files), finished_before=done, inferred_again=again, alarmed=alarmed)
    said = {
        f"all {len(files)} tables were finished before; nothing was repeated": done == len(files),
        f"{' '.join(again[:1])} or the options have changed since it was inferred: begun again from there": again,
        f"alarms in {', '.join(alarmed)}": alarmed,
    }
    show_notes([note for note, holds in said.items() if holds])
    _end(bool(alarmed))


def weekly_files(folder: Path) -> dict[str, Path]:
    """The tables of a folder by their names without endings, in order."""
    files = sorted(p for p in folder.iterdir() if p.is_file() and p.suffix.lower() in _TABLES)
    made = {path.name.split(".")[0]: path for path in files}
    if not files:
        raise TableError(
            f"{folder}: there is no table of counts in this folder: put files such as 2024-W01.csv there"
        )
    if len(made) < len(files):
        raise TableError(f"{folder}: two tables have the same name but for their ending: rename one")
    return made


def finished_stamp(target: Path) -> str | None:
    """The digest of the run whose whole answer a folder has; None where it has none."""
    try:
        return str(headcount.io.load_result(target).attributes.get(SERIES, {}).get("digest"))
    except TableError:
        return None


def run_forecast(results: Path, steps: int, options: ProblemOptions, output: OutputOptions) -> None:
    """Infer the times after a run's last one, of which nothing was seen, and write them as a results folder."""
    past, given_weights = past_result(results), options.weights
    options = inherited(options, past)
    output.check()
    case = read_after([], options, past, times_ahead(past, steps))
    output.check_files(case, fitted=False)
    going = parameters_after(past, case, None) if given_weights is None else None
    posterior = headcount.learn.infer(case.problem, start=past.last) if going is None else going.posterior
    assert past.last is not None
    said = {"forecast": {"after": past.last.time, "steps": steps, "results": str(results.resolve())}}
    said |= {"geographic": past.attributes.get("geographic", False)}
    notes = [f"a forecast of {steps} steps after {past.last.time}: nothing was counted there"]
    plain = replace(output, report=False)
    _write_and_show(posterior, case, plain, notes, attributes=said, coordinates=past.coordinates)
    if output.report:  # the page of the past, whole, with the forecast after its last time
        from headcount.report import write

        page = write(results if output.out.parent == results else output.out)
        tell(page=str(page))
        say(str(page))
