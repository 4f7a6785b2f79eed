"""Series that live: go on from last week's results, a folder of weekly files, forecasts.

Every results folder says what it was made of (attribute ``series``): its tables, its options, the folder it went on from, and a digest of
all that. A run that goes on inherits the options, reads the last counts and infers its own times. Counts of old times that differ from
what was used are corrections: the run then begins again after the last folder that ends before the first of them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.cli._show import say, show_notes, tell
from headcount.labels import readable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from headcount.cli._app import Options, Output, Series
    from headcount.io import Case, Result
    from headcount.posterior import Posterior

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


def past_result(folder: Path) -> Result:
    """An earlier run that can be gone on from.

    Raises
    ------
    TableError
        Where its last counts are not in it.
    """
    from headcount.io import TableError, load_result

    found = load_result(folder)
    if found.last is None:
        raise TableError(
            f"{folder}: this run has no last counts to go on from (no chain, no spread, or an earlier headcount wrote it): infer it again"
        )
    return found


def told(options: Options) -> dict[str, Any]:
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


def inherited(options: Options, past: Result) -> Options:
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


def digest(tables: Sequence[Path], options: Options, before: str) -> str:
    """Equal for runs that have the same answer: contents of the tables, options, and the run before."""
    made = hashlib.sha256(before.encode())
    made.update(json.dumps(told(options), sort_keys=True, default=str).encode())
    for table in tables:
        made.update(table.read_bytes())
    for name in (
        "transitions",
        "prior",
        "features",
        "arrivals",
        "cells",
        "flows",
        "sums",
        "sum_counts",
        "tracks",
    ):
        path = getattr(options, name)
        if path is not None and Path(path).is_file():
            made.update(Path(path).read_bytes())
    return made.hexdigest()


def series_facts(
    tables: Sequence[Path],
    options: Options,
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
    from headcount.io._tables import later

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
    from headcount.io._tables import later

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


def count_rows(tables: Sequence[Path], options: Options) -> pd.DataFrame:
    """The counts of tables as ``time, cell, count``, labels as texts."""
    import pandas as pd

    from headcount.cli._run import _written, parse_alias
    from headcount.io._columns import Reader
    from headcount.io._source import Findings
    from headcount.io._tables import count_tables, read_alias

    findings, how = Findings(), _written(options)
    reader = Reader(
        findings,
        how["columns"],
        how["encoding"],
        how["decimal"],
        how["thousands"],
        how["missing"],
        options.dates,
        options.wide,
        bounds=options.bounds,
    )
    reader = replace(reader, alias=read_alias(parse_alias(options.alias), reader))
    source = count_tables(list(tables), reader)
    findings.raise_any()
    assert source is not None
    texts = {
        "time": [t.replace("T", " ") for t in source["time"]],
        "cell": source["cell"],
        "count": source["count"],
    }
    return pd.DataFrame(texts)


def times_ahead(past: Result, steps: int | None = None, until: str | None = None) -> list[str]:
    """Names of the times after a run's last: so many, or all before ``until``, at the distance of its last two."""
    from headcount.io._source import label_text
    from headcount.io._tables import later
    from headcount.learn._result import following

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


def run_after(tables: Sequence[Path], options: Options, output: Output, series: Series) -> None:
    """Infer new counts from where an earlier run ended."""
    assert series.after is not None
    past = past_result(series.after)
    options = inherited(options, past)
    rows = count_rows(tables, options)
    begin = where_to_begin(series.after, tables, rows, revise=series.revise)
    _end(infer_from(begin, options, output, series))


def _end(alarmed: bool) -> None:
    """End with the exit code of an alarm where there is one."""
    import typer

    from headcount.cli._show import ALARM

    if alarmed:
        raise typer.Exit(ALARM)


def infer_from(
    begin: Beginning, options: Options, output: Output, series: Series, *, stamp: str | None = None
) -> bool:
    """Read, infer from the beginning, compare with the forecast, write; return whether an alarm was asked for and raised."""
    from headcount.check import alarm
    from headcount.cli._run import _write_and_show, planned, ready_engine, refuse_too_large
    from headcount.learn import infer

    output.check()
    engine = ready_engine(options)
    past = begin.past
    case = read_after(begin.tables, options, past)
    output.check_files(case, fitted=False)
    refuse_too_large(planned(case.problem, options)[1])
    start = None if past is None else past.last
    posterior = infer(case.problem, engine, start=start, rng=options.seed, strict=False)
    notes = [*case.notes, *begin.notes]
    if past is not None and past.weights is not None:
        notes.append(
            "the weights are those of the fit, taken as known from here on (fit.going() in Python updates them with the counts)"
        )
    if start is not None:
        notes.append(f"the run goes on from {start.time} ({begin.folder})")
        notes += far_from_past(posterior)
    before = "" if past is None else str(past.attributes.get(SERIES, {}).get("digest", ""))
    said = series_facts(begin.tables, options, after=begin.folder, before=before, stamp=stamp)
    found = None
    if start is not None and posterior.status.good and case.problem.sites:
        found = alarm(posterior, rate=series.alarm or DEFAULT_RATE)
        said["alarm"] = found.facts()
        notes.append(found.words)
    _write_and_show(posterior, output, notes, good=posterior.status.good, attributes=said, shapes=case.shapes)
    if found is not None:
        tell(alarm=found.facts())
    return found is not None and found.raised and series.alarm is not None


DEFAULT_RATE = 0.01
"""False-alarm rate where none is given."""
FAR_FROM_PAST = 4.0
"""Standard deviations by which new counts may move the last ones of the past before their Gaussian is said to be used far from its mean."""


def far_from_past(posterior: Posterior) -> list[str]:
    """What to say where new counts pull the last ones of the past far away, where their Gaussian is not the law of the past."""
    import numpy as np

    start = posterior.problem.start
    assert start is not None
    if not posterior.beliefs.has_spread:
        return []
    now = posterior.last_of(0)
    sd = np.sqrt(np.maximum(np.diagonal(start.covariance), 0.25))
    off = float(np.abs((now.mean - start.mean) / sd).max(initial=0.0))
    if off < FAR_FROM_PAST:
        return []
    return [
        f"the new counts move those of {start.time} by {off:.1f} of their standard deviations, where a Gaussian stands for the past only "
        "roughly: infer the whole series at once to be sure (give all tables, without --after)"
    ]


def read_after(
    tables: Sequence[Path], options: Options, past: Result | None, ahead: Sequence[str] = ()
) -> Case:
    """The problem of the tables, begun at the last time of the past."""
    from headcount.cli._run import read_cases
    from headcount.io import TableError
    from headcount.io._source import label_text
    from headcount.io._tables import later

    if past is None:
        cases = read_cases(list(tables), options)
    else:
        last = label_text(past.times[-1])
        rows = count_rows(tables, options) if tables else None
        new = [] if rows is None else [t for t in rows["time"] if later(t, last)]
        if rows is not None and not new:
            raise TableError(
                f"the counts have no time after {last}, where the past ends: there is nothing to infer"
            )
        between = [] if not new or len(past.times) < 2 else times_ahead(past, until=min(new, key=_order))
        cases = read_cases(list(tables), options, after=last, ahead=[*between, *ahead])
    if list(cases) != [""]:
        raise TableError(
            "the counts have several sequences: a run goes on with one; give the rows and the results folder of one"
        )
    return cases[""]


def _order(text: str) -> tuple[float, str]:
    try:
        return float(text), ""
    except ValueError:
        return 0.0, text


def run_series(folder: Path, options: Options, output: Output, series: Series) -> None:
    """Infer a folder of tables in the order of their names, each going on from the one before; what is finished is not repeated."""
    from headcount.io import folder_name

    stamp, before, done, alarmed = "", series.after, 0, False
    files = weekly_files(folder)
    for stem, path in files.items():
        target = output.out / folder_name(stem)
        stamp = digest([path], options, f"{stamp} {series.revise}")
        if is_finished(target, stamp):
            done += 1
        else:
            say((stem, "bold"), f"  ({done} of {len(files)} tables were finished before)" if done else "")
            begin = Beginning(None, [path])
            if before is not None:
                rows = count_rows([path], inherited(options, past_result(before)))
                begin = where_to_begin(before, [path], rows, revise=series.revise)
            alarmed |= infer_from(begin, options, replace(output, out=target), series, stamp=stamp)
        before = target
    tell(tables=len(files), finished_before=done)
    if done == len(files):
        show_notes([f"all {len(files)} tables were finished before; nothing was repeated"])
    _end(alarmed)


def weekly_files(folder: Path) -> dict[str, Path]:
    """The tables of a folder by their names without endings, in order."""
    from headcount.io import TableError

    files = sorted(p for p in folder.iterdir() if p.is_file() and p.suffix.lower() in _TABLES)
    made = {path.name.split(".")[0]: path for path in files}
    if not files:
        raise TableError(
            f"{folder}: there is no table of counts in this folder: put files such as 2024-W01.csv there"
        )
    if len(made) < len(files):
        raise TableError(f"{folder}: two tables have the same name but for their ending: rename one")
    return made


def is_finished(target: Path, stamp: str) -> bool:
    """Whether a folder has the whole answer to a run."""
    from headcount.io import TableError, load_result

    try:
        return bool(load_result(target).attributes.get(SERIES, {}).get("digest") == stamp)
    except TableError:
        return False


def run_forecast(results: Path, steps: int, options: Options, output: Output) -> None:
    """Infer the times after a run's last one, of which nothing was seen, and write them as a results folder."""
    from headcount.cli._run import _write_and_show
    from headcount.learn import infer

    past = past_result(results)
    options = inherited(options, past)
    output.check()
    case = read_after([], options, past, times_ahead(past, steps))
    output.check_files(case, fitted=False)
    posterior = infer(case.problem, start=past.last)
    assert past.last is not None
    said = {"forecast": {"after": past.last.time, "steps": steps, "results": str(results.resolve())}}
    notes = [*case.notes, f"a forecast of {steps} steps after {past.last.time}: nothing was counted there"]
    plain = replace(output, report=False)
    _write_and_show(posterior, plain, notes, good=posterior.status.good, attributes=said, shapes=case.shapes)
    if output.report:  # the page of the past, whole, with the forecast after its last time
        from headcount.report import write

        page = write(results if output.out.parent == results else output.out)
        tell(page=str(page))
        say(str(page))
