"""What the commands print, and how they end.

Printed are the status first, then numbers, then what was written. Whatever comes from the user (labels, file names, messages that quote
them) goes through `visible`, so that no control character reaches the terminal. Exit codes: 0 well, 2 bad input, 3 too large, 4 not
converged, 5 alarm, 130 interrupted, 143 stopped, 1 anything else; the reason is printed in one place, on standard error, without a
traceback.
"""

from __future__ import annotations

import _thread
import json
import math
import os
import re
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer

from headcount.memory import TooLargeError, held_memory, limited, readable_bytes
from headcount.memory import limit as allowed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    from rich.console import Console

    from headcount.engines import Plan
    from headcount.io import Many, Result
    from headcount.learn import Fit

_MEANING = {
    "posterior.nc": "everything; arviz.from_netcdf opens it",
    "nodes": "counts with intervals, by time and cell",
    "flows": "movements with intervals",
    "summary.json": "status, provenance, largest flows",
    "flows.geojson": "movements as lines for a map",
    "flows.omx": "movements as matrices for transport tools",
    "changes": "the old matrix beside the new one",
    "weights": "weights with standard errors",
    "part-000000.nc": "counts of the first window, and the law at its end",
    "part-000000-flows": "movements of the first window",
    "ascent": "log evidence by iteration of the fit",
    "counts": "what was seen",
    "transitions": "how they move, by time of departure",
    "initial": "where they start",
    "cells": "where the cells are",
    "features.csv.gz": "what the moves depend on",
    "truth_counts": "the true counts",
    "truth_flows": "the true movements",
    "manifest.json": "checksums of these files",
    "report.html": "the page with the map",
    "run.sh": "the commands, explained",
    "README.md": "what the files are",
}


BAD_INPUT, TOO_LARGE, NOT_CONVERGED, ALARM, INTERRUPTED = 2, 3, 4, 5, 130
_ASCII = str.maketrans(
    dict(zip("…•−–≥≤²½±→", ("...", "*", "-", "-", ">=", "<=", "^2", "1/2", "+-", "->"), strict=True))
)
"""Our own words on a terminal that has no other characters; labels keep theirs as escapes."""
_SHOWN = 50
"""Problems that are printed; more are counted."""


@dataclass
class _Running:
    """The running command: how it prints, what it found out and wrote, what it does now, and the memory that it may hold."""

    words: bool = True
    as_json: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    """Printed as one JSON object where that was asked for."""
    written: list[Path] = field(default_factory=list)
    """Folders that it has written to, so that what is said of an error afterwards is right."""
    phase: str = ""
    phase_begun: float = 0.0
    phase_expected: float = math.nan
    """Seconds that this was predicted to take."""
    begun: float = 0.0
    most: int = 0
    """Bytes that it may hold beside its libraries."""
    stopped_at: int = 0
    """Bytes that it held when it was stopped for more."""


_now = _Running()


def speak(*, quiet: bool = False, as_json: bool = False) -> None:
    """Set how the command that starts now prints; errors are always printed."""
    _now.words, _now.as_json = not (quiet or as_json), as_json
    _now.facts.clear()


def tell(**facts: Any) -> None:
    """Note facts for ``--json``."""
    _now.facts.update(facts)


def _end(code: int) -> None:
    """Print what was found out as JSON, where that was asked for."""
    if _now.as_json:
        print(json.dumps(_now.facts | {"exit_code": code}, default=str, ensure_ascii=False, indent=2))


LOADED_LATER = 100_000_000
"""Bytes of libraries that a run loads and a plan does not (compiled kernels, xarray, HDF5). Measured: 90 to 120 MB."""
LOG_EVERY = 30.0
"""Seconds between two lines of a command whose errors go to no terminal."""


def phase(what: str, expected: float = math.nan) -> None:
    """Note what the command does from here on, and the seconds that it is predicted to take, for the log and for who stops it."""
    _now.phase, _now.phase_begun, _now.phase_expected = what, time.monotonic(), expected


def command_seconds() -> float:
    """Seconds since the command began."""
    return time.monotonic() - _now.begun


def _log_line() -> str:
    """Phase, progress and estimate in a line."""
    from headcount.engines.engine import Progress

    took = time.monotonic() - _now.phase_begun
    expected = "" if math.isnan(_now.phase_expected) else f" (planned: {_duration(_now.phase_expected)})"
    progress = f"; {Progress.running[-1]}" if Progress.running else ""
    return f"{time.strftime('%H:%M:%S')} {_now.phase or 'starting'}: {_duration(took)}{expected}{progress}"


@contextmanager
def _logging() -> Iterator[None]:
    """Print a line every `LOG_EVERY` seconds inside the block where nobody sees a bar and lines were not forbidden."""
    if sys.stderr.isatty() or not (_now.words or _now.as_json):
        yield
        return

    def look() -> bool:
        say(_log_line(), error=True)
        return True

    with _looking(LOG_EVERY, look):
        yield


@contextmanager
def _looking(seconds: float, look: Callable[[], bool]) -> Iterator[None]:
    """Call a function every so many seconds inside the block, for as long as it returns True."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(seconds) and look():
            pass

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


WATCH_EVERY = 0.1
"""Seconds between two looks at the memory that a command holds: a billion numbers take about ten times that to be made."""
SMALL_COMMAND = 400_000_000
"""Bytes that a command on the smallest tables holds: interpreter, libraries, compiled code. Measured: 344 MB, 375 with the page."""


@contextmanager
def _watching(limit: str | None) -> Iterator[None]:
    """Set the limit inside the block, and stop it as soon as the command holds more beside its libraries, whatever was planned.

    What a process held before the command began, as a notebook's may, is not the command's.
    """
    _now.stopped_at = 0
    if limit is None:
        yield
        return

    before = max(SMALL_COMMAND, held_memory()[0])

    def look() -> bool:
        held = held_memory()[0]
        if held <= before + _now.most:
            return True
        _now.stopped_at = held
        _thread.interrupt_main()
        return False

    with limited(limit):
        _now.most = allowed()
        with _looking(WATCH_EVERY, look):
            yield


class _Stream:
    """Standard output or error that survives a reader who goes away (``| head``) and characters it cannot encode."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._plain = not _encodes(stream, "…")
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")

    def write(self, text: str) -> int:
        try:
            self._stream.write(text.translate(_ASCII) if self._plain else text)
        except BrokenPipeError:
            self._discard()
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._discard()

    def _discard(self) -> None:
        """Discard further output after the reader has closed the pipe; the files are written all the same."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _encodes(stream: Any, text: str) -> bool:
    try:
        text.encode(stream.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


@contextmanager
def terminal() -> Iterator[None]:
    """Print through `_Stream` inside the block."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Stream(sys.stdout), _Stream(sys.stderr)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before


@contextmanager
def guarded(memory_limit: str | None = None) -> Iterator[None]:
    """Turn errors that a user can mend into a report and an exit code; others keep their traceback."""
    _now.written.clear()
    _now.begun = time.monotonic()
    phase("reading")
    code = 1
    try:
        with _logging(), _watching(memory_limit):
            yield
        code = 0
    except SystemExit as ended:  # SIGTERM
        code = int(ended.code or 0)
        notes = "".join(f"; {note}" for note in getattr(ended, "__notes__", ()))
        stopped = f"Stopped while {_now.phase}, after {_duration(command_seconds())}{notes}; {_outcome()}."
        tell(problems=[stopped])
        say((stopped, "bold red"), error=True)
        raise
    except typer.Exit as ended:
        code = ended.exit_code
        raise
    except (KeyboardInterrupt, MemoryError, OSError, ValueError) as error:
        code, text = _report(error)
        if text is not None:
            text = "; ".join([text, *getattr(error, "__notes__", ())])
        if text is None:
            _list_problems(getattr(error, "problems", None) or (str(error),))
        else:
            tell(problems=[f"{text}; {_outcome()}."])
            say((f"{text}; {_outcome()}.", "bold red"), error=True)
        raise typer.Exit(code) from None
    finally:
        _end(code)


def _report(error: BaseException) -> tuple[int, str | None]:
    """The exit code of an error, and what it says in one line; None where it lists problems."""
    match error:
        case KeyboardInterrupt() if _now.stopped_at:
            held, most = readable_bytes(_now.stopped_at), readable_bytes(_now.most)
            return TOO_LARGE, (
                f"Stopped while {_now.phase}: the command held {held}, and the limit is {most} beside its libraries (--memory-limit)"
            )
        case KeyboardInterrupt():
            return INTERRUPTED, f"Interrupted while {_now.phase}"
        case MemoryError():
            return TOO_LARGE, "The machine has no more memory to give: see headcount plan"
        case TooLargeError():
            return TOO_LARGE, str(error)
        case OSError():
            return 1, f"{error.filename or 'The system'}: {error.strerror or error}"
    return BAD_INPUT, None


def _list_problems(problems: Sequence[str]) -> None:
    count, problems = len(problems), [as_options(text) for text in problems]
    tell(problems=problems)
    say((f"{count} problem{'s' if count > 1 else ''}; {_outcome()}.", "bold red"), error=True)
    for problem in problems[:_SHOWN]:
        say((" • ", "red"), problem, error=True)
    if count > _SHOWN:
        say(f"   and {count - _SHOWN} more", error=True)


def _outcome() -> str:
    if not _now.written:
        return "nothing was written"
    others = f", and those in {len(_now.written) - 1} other folders," if len(_now.written) > 1 else ""
    return f"the files in {_now.written[-1]}{others} were written before"


_BOTH_WAYS = re.compile(r"""\w+=(?:'[^']*'|"[^"]*"|\{[^{}]*\}|…|\w+),\s(?=--)""")
_AS_OPTION = re.compile(r"""\w+=(?:'[^']*'|"[^"]*"|\w+)\s\((--[^()]+)\)""")
_ENGINE = re.compile(r"\b(TiltedEP|MAP|PathGibbs|Laplace|TableBP)\b(?:\((\w+)=([^()]+)\))?")


def as_options(text: str) -> str:
    """A message in the words of the command line: where it names an argument of Python and the option, the option alone.

    Engines that it says to try become options too: ``try TiltedEP(damping=0.3)`` is ``try --engine TiltedEP --set damping=0.3``.
    """
    text = _AS_OPTION.sub(r"\1", _BOTH_WAYS.sub("", text))
    before, tried, after = text.partition("try ")
    if not tried:
        return text.replace("raise max_iterations", "raise --set max_iterations=…")

    def option(found: re.Match[str]) -> str:
        setting = "" if found[2] is None else f" --set {found[2]}={found[3]}"
        return f"--engine {found[1]}{setting}" + (" --seed 1" if found[1] == "PathGibbs" else "")

    return before + tried + _ENGINE.sub(option, after)


def visible(text: str) -> str:
    """The text with every control, formatting or unknown character as an escape, so that the terminal obeys none of them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def console(*, error: bool = False) -> Console:
    """Standard output or error, without guessing at what to colour."""
    from rich.console import Console

    return Console(stderr=error, highlight=False)


def say(*parts: str | tuple[str, str], error: bool = False) -> None:
    """Print one line of plain or styled (text, style) parts; line breaks inside the text are kept."""
    if not (error or _now.words):
        return
    from rich.text import Text

    styled = [(part, "") if isinstance(part, str) else part for part in parts]
    lines = [("\n".join(visible(line) for line in text.split("\n")), style) for text, style in styled]
    console(error=error).print(Text.assemble(*lines), soft_wrap=True)


def show_posterior(result: Result) -> None:
    """Status, sizes, evidence, and the largest movements."""
    from headcount.checks import two_digits
    from headcount.io.write import summary

    a = result.attributes
    tell(**summary(result))
    say(
        (a["status"], f"bold {'green' if result.good else 'red'}"),
        f"  {a['engine']}, {a['iterations']} iterations, {two_digits(float(a['seconds']))} s, "
        f"residual {float(a['residual']):.2g} (asked: {float(a['tolerance']):.2g})",
    )
    counted = f"{_sizes(result)} ({', '.join(a['observations']) or 'nothing was seen'})"
    say(f"{counted}, population {result.population_text}{_evidence(a)}")
    check = a.get("fit_check", {})
    fits = check.get("agrees") is not False and not check.get("doubts")
    if "verdict" in check:
        say((as_options(str(check["verdict"])), "" if fits else "bold red"))
    share = result.nodes["reliable"].mean()
    if share < 1 and fits:
        if_so = "" if check.get("agrees") else "; they hold if the model is right, which was not checked"
        say(f"{share:.0%} of the counts' intervals rest on enough individuals (column reliable){if_so}")
    for name in ("initial_law", "parameters"):
        if str(a.get(name, "")).startswith("learned"):
            say(f"{name.replace('_', ' ')}: {a[name]}")
    if not result.is_chain:
        _show_largest(result.nodes.nlargest(8, "mean").drop(columns=["observed"]), result.level, {})
    elif len(result.flows):
        moved = result.flows[result.flows["origin"] != result.flows["dest"]]
        if len(moved):
            _show_largest(moved.nlargest(5, "mean"), result.level, a.get("names", {}))


def _sizes(result: Result) -> str:
    """How large the model is and how much was seen; counts in tables of several variables are those of the check of fit."""
    if result.is_chain:
        seen = int(result.nodes["observed"].notna().sum())
        return f"{len(result.times)} times, {len(result.cells)} cells, {seen} counts"
    sizes = f"{len(result.times)} variables, {len(result.nodes)} states"
    return sizes if result.check is None else f"{sizes}, {len(result.check)} counts"


def _evidence(attributes: Mapping[str, Any]) -> str:
    found = None if "forecast" in attributes else attributes["log_evidence"]  # of nothing
    return "" if found is None else f", log evidence {float(found):.6g}"


def show_sequences(found: Many, folder: Path) -> None:
    """One line per sequence: how it went, the evidence, and whether the model fits it."""
    for key, result in found.items():
        a = result.attributes
        told = f"  {a['engine']}{_evidence(a)}. {a['fit_check']['verdict']}"
        say((f"{key}  ", "bold"), (a["status"], "green"), told)
    for key, why in found.failures.items():
        say((f"{key}  ", "bold"), (why, "red"))
    say()
    say(f"{len(found)} of {len(found) + len(found.failures)} sequences written to {folder}, one folder each")
    tell(
        sequences={str(key): dict(result.attributes) for key, result in found.items()},
        failures=dict(found.failures),
    )


def _show_largest(frame: pd.DataFrame, level: float, names: Mapping[str, str]) -> None:
    """Rows with their mean and interval, as a table."""
    from headcount.dates import readable
    from headcount.posterior.result import MC_ERROR, SUMMARY

    labels = [c for c in frame.columns if c not in {*SUMMARY, MC_ERROR}]
    rows = []
    for row in frame.to_dict("records"):
        spread = row["lower"] == row["lower"]
        ends = f"{row['lower']:.0f} … {row['upper']:.0f}" if spread else "none"
        median = f"{row['median']:.0f}" if spread else "none"
        texts = [names.get(readable(row[name]), readable(row[name])) for name in labels]
        rows.append([*texts, f"{row['mean']:.1f}", median, ends])
    header = [*labels, "mean", "median", "interval"]
    show_table(f"the largest, with {level:.0%} intervals", header, len(labels), rows)


def show_weights(made: Fit, table: pd.DataFrame, level: float) -> None:
    """How learning went, and every weight with its interval."""
    from headcount.checks import two_digits

    say(
        (made.status.value, f"bold {'green' if made.status.good else 'red'}"),
        f"  fit by {made.method} with {made.engine}, {made.e_steps} E-steps, {two_digits(made.seconds)} s, log evidence at its maximum "
        f"{made.evidence:.6g}",
    )
    form = "{feature}|{weight:.4f}|{standard_error:.4f}|{lower:.3f} … {upper:.3f}"
    rows = [form.format(**row).rsplit("|", 3) for row in table.to_dict("records")]
    header = ["feature", "weight", "standard error", "interval"]
    show_table(f"weights, with {level:.0%} intervals", header, 1, rows)
    say()


def show_table(title: str | None, header: Sequence[str], labels: int, rows: Sequence[Sequence[str]]) -> None:
    """A table whose first `labels` columns are texts and the others numbers; no header where it is empty."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, show_header=bool(header))
    for k, name in enumerate(header):
        table.add_column(Text(visible(name)), justify="left" if k < labels else "right")
    for row in rows:
        table.add_row(*(Text(visible(text)) for text in row))
    if title is not None:
        say()
    if _now.words:
        console().print(table)


def show_notes(notes: Sequence[str]) -> None:
    """What was decided for the user."""
    said = [as_options(n) for n in notes if n]
    tell(notes=said)
    if said:
        say()
        for note in said:
            say(("note ", "yellow"), note)


def show_files(files: Sequence[Path], *, good: bool) -> None:
    """What was written, how large, and what to do next."""
    from headcount._disk import left_over

    folder, named = files[0].parent, {path.name: path for path in files}
    seconds = command_seconds()
    tell(folder=str(folder), files=list(named), command_seconds=round(seconds, 2))
    say(f"\nwritten to {folder}, {_duration(seconds)} after the command began")
    rows = [
        [f"  {name}", readable_bytes(path.stat().st_size), _MEANING.get(name, _MEANING.get(path.stem, ""))]
        for name, path in named.items()
    ]
    show_table(None, [], 3, rows)
    older = left_over(folder)
    if older:
        say(("note ", "yellow"), f"from an earlier run, and not of this one: {', '.join(older)}")
    page = next((path for path in files if path.suffix == ".html"), None)
    if page is not None:
        say(f"\nopen {page} in a browser")
    elif good and "posterior.nc" in named:
        say(f"\nnext: headcount report {folder}")


def wrote(folder: Path) -> None:
    """Note that files were written, so that no later message says otherwise."""
    _now.written.append(folder)


def show_plan(plan: Plan, limit: int, free: int | None, *, learning: bool = False) -> None:
    """Engine, memory and time before anything runs; what reading takes was measured just now."""
    seconds = None if plan.seconds != plan.seconds else plan.seconds
    told = {name: getattr(plan, name) for name in ("engine", "reason", "memory", "writing", "device_memory")}
    reading, (now, most) = command_seconds(), held_memory()
    whole = None if seconds is None else reading + seconds + plan.writing_seconds
    peak = max(most, now + plan.peak) + LOADED_LATER
    tell(
        **told,
        limit=limit,
        seconds=seconds,
        reading_seconds=round(reading, 2),
        writing_seconds=round(plan.writing_seconds, 2),
        command_seconds=whole,
        command_memory=peak,
    )
    writing = f"{readable_bytes(plan.writing)} to write with all flows"
    duration = "no estimate" if whole is None else f"about {_duration(whole)}"
    if seconds is not None:
        parts = [_duration(part) for part in (reading, seconds, plan.writing_seconds)]
        duration += " ({} to read, {} to {}, {} to check and write)".format(
            *(*parts[:2], "learn" if learning else "infer", parts[2])
        )
    rows = {
        "engine": plan.engine,
        "why": plan.reason,
        "memory": f"about {readable_bytes(plan.memory)} to infer, {writing}; {readable_bytes(peak)} with all that the command holds",
        "limit": readable_bytes(limit),
        "free": "unknown" if free is None else readable_bytes(free),
        "time": duration,
    }
    if plan.device_memory:
        rows["device"] = f"about {readable_bytes(plan.device_memory)} of the card's memory"
        rows["time"] = f"{duration} on the CPU; on a graphics card it is not predicted"
    show_table(None, [], 2, list(rows.items()))


def _duration(seconds: float) -> str:
    if seconds < 1:
        return "a second"
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.0f} seconds"
