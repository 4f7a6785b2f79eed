"""Long histories: a chain of any length, window by window, in bounded memory; written as it is made, readable by time.

Window k begins with the filtered law of its first counts: what all counts up to then say of them (`headcount.observe.Start`). It is
inferred twice: up to its end, for the filtered law with which the next begins, and ``overlap`` steps further, for its answers, which so
know what comes after them. What is later than the overlap is not used: choose it longer than it takes the chain to forget where it was.

The folder has one NetCDF file per window, written whole, and ``index.json``, which says which times are in which: a killed run goes on
after the last file, and a reader opens the files of the times that are asked for alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from headcount import memory
from headcount._compile import many_solves
from headcount._disk import replacing, write_tree
from headcount.checks import whole_number
from headcount.dates import parse_date, readable
from headcount.engines import Engine, Plan, plan, select
from headcount.engines._cost import INITIAL_RUNS
from headcount.engines.engine import Progress
from headcount.errors import ProblemError, TableError
from headcount.io._many import Task
from headcount.io.write import put_frames
from headcount.learn import infer
from headcount.observe import Problem
from headcount.posterior import Posterior, Status
from headcount.posterior.dataset import last_group, last_of
from headcount.posterior.interval import sd_of, tails
from headcount.posterior.result import flow_frames, label_array
from headcount.tables import dense

if TYPE_CHECKING:
    from headcount.observe import Start

INDEX = "index.json"
WINDOW, OVERLAP = 168, 24
"""Steps per window, and steps beyond it that its answers know: a week and a day of hours. Measured on chains that stay with .8: what comes
24 steps later moves a mean by less than 1e-4 sd."""
LATER_WINDOW = 1.3
"""Time of a later window over the first, for what it knows of the past: measured 1.1 with windows of 24 steps, 1.35 to 1.55 with 40."""
AT_ONCE = 100_000
"""Entries whose intervals are computed at once: tables of 36 cells one by one take twice as long."""


def infer_long(
    problem: Problem,
    folder: str | os.PathLike[str],
    engine: Engine | str | None = None,
    *,
    window: int = WINDOW,
    overlap: int = OVERLAP,
    flows: bool = True,
    level: float = 0.9,
    tables: str | None = None,
    min_flow: float = 0.0,
    strict: bool = True,
    progress: bool | None = None,
) -> Path:
    """Infer a long chain window by window and write every window when it is done; time grows with the length, memory does not.

    Parameters
    ----------
    problem
        A chain with its counts (no followed individuals). A chain that is too long to be held is given in parts: the posterior of each
        part as ``start`` of the next.
    folder
        Where the files go. A run that was stopped goes on after its last file; one of another problem is refused.
    engine
        As for `headcount.infer`.
    window, overlap
        Steps per window, and steps after it that its answers know.
    flows
        Whether moves are written too: L² numbers per step, or rows of the possible moves where ``tables`` are asked for.
    level
        Of the intervals.
    tables, min_flow
        ``"csv"`` or ``"parquet"``: write the moves of every window that are expected to take ``min_flow`` or more as a table beside it,
        and the counts of all windows as ``nodes`` at the end.
    strict
        Whether a window that does not converge is an error. Otherwise it is written, its status is in ``index.json``, and the next
        window goes on from it.

    Returns
    -------
    Path
        The folder; `read_long` reads times of it.

    Raises
    ------
    ProblemError
        For what is no chain, and for a window whose numbers are not finite: nothing can go on from it.
    NotConvergedError
        For a window that does not converge, if ``strict``.
    """
    place, size = Path(folder), whole_number(window, "window", least=1)
    beyond = whole_number(overlap, "overlap")
    model = problem.model.as_chain()
    if model is None or problem.tracks:
        raise ProblemError(
            "only chains without followed individuals can be inferred in windows: infer everything at once"
        )
    stamp = f"{Task(problem, None, None, 0.9).fingerprint}{engine!r} {size} {beyond} {flows} {level} {tables} {min_flow}"
    place.mkdir(parents=True, exist_ok=True)
    index = _index(place, stamp)
    total, names = len(model.times), label_array(model.times)
    start, at = None, 0
    if index["parts"]:
        start, at = last_of(read_part(place / index["parts"][-1]["file"], "last")), index["parts"][-1]["end"]
    windows = -(-(total - 1) // size)
    with many_solves(2 * windows), Progress("windows", windows, show=progress) as bar:
        bar.advance(len(index["parts"]))
        while at < total - 1 or (at == 0 and not index["parts"]):
            end = min(at + size, total - 1)
            ahead = min(end + beyond, total - 1)
            start, answers, status = _solved(problem, engine, start, (at, end, ahead), strict=strict)
            file = f"part-{len(index['parts']):06d}.nc"
            _write(
                answers,
                start,
                place / file,
                (at, end),
                names,
                flows=flows,
                level=level,
                tables=tables,
                min_flow=min_flow,
            )
            ends = {"from": _order(model.times[at]), "to": _order(model.times[end])}
            index["parts"].append({"file": file, "begin": at, "end": end, "status": status, **ends})
            with replacing(place / INDEX) as temporary:
                temporary.write_text(json.dumps(index), encoding="utf-8")
            del answers  # two windows at once would take twice the memory
            at = end
            bar.advance(text=f"up to {readable(model.times[end])}")
    if tables is not None:
        with replacing(place / f"nodes.{tables}") as temporary:
            put_frames(_node_frames(place, level), temporary, f".{tables}")
    return place


def _solved(
    problem: Problem, engine: Any, start: Start | None, span: tuple[int, int, int], *, strict: bool
) -> tuple[Start, Posterior, str]:
    """What a window's end knows, the window with what comes after it, and the status: of the two, that which did not converge."""
    at, end, ahead = span
    answers = infer(problem.between(at, end), engine, start=start, strict=strict)
    last, found = answers.last, answers.status
    if ahead > end:
        del answers  # its memory is that of the next
        answers = infer(problem.between(at, ahead), engine, start=start, strict=strict)
    found = found if answers.status.good else answers.status
    if found is Status.NOT_FINITE:
        times = problem.model.variables
        raise ProblemError(
            f"the window from {readable(times[at])} to {readable(times[end])} ended with numbers that are not finite, and no later one can "
            "go on from it: windows before it are written; look at its counts, or infer it by itself"
        )
    return last, answers, found.value


def _node_frames(place: Path, level: float) -> Iterator[pd.DataFrame]:
    """The counts of every window as a table ``time, cell, observed, mean, sd, lower, upper, level``."""
    for part in windows_in(place):
        found = read_part(place / part["file"], "nodes").to_dataframe().reset_index()
        columns = ["time", "cell", "observed", "mean", "sd", "lower", "upper"]
        yield found[columns].assign(level=level)


def windows_in(place: Path) -> list[dict[str, Any]]:
    """The windows that a folder has: file, begin and end, status, first and last time; none where there is no index."""
    path = place / INDEX
    return json.loads(path.read_text(encoding="utf-8"))["parts"] if path.exists() else []


def plan_long(
    problem: Problem, engine: Engine | None, *, window: int = WINDOW, overlap: int = OVERLAP
) -> Plan:
    """What `infer_long` will take: the memory of its largest window, and the time of all of them."""
    last = len(problem.model.variables) - 1
    shorter, longer = (plan(problem.between(0, min(end, last)), engine) for end in (window, window + overlap))
    windows = max(1, -(-last // window))
    # The initial law is learned in the first window; later ones begin with what the one before says.
    later = LATER_WINDOW * (windows - 1)
    runs = 1 + later / (1 if problem.model.initial_known else INITIAL_RUNS)
    return replace(
        longer,
        reason=f"{windows} windows of {window} steps, each with {overlap} more: {longer.reason}",
        seconds=runs * (shorter.seconds + longer.seconds),
        writing_seconds=windows * longer.writing_seconds,
    )


def wants_windows(problem: Problem) -> bool:
    """Whether one run of a chain would do without spreads, or would not fit into memory, and windows of it are better off."""
    if len(problem.model.variables) <= WINDOW or problem.model.as_chain() is None or problem.tracks:
        return False
    part = problem.between(0, WINDOW)
    if select(problem).engine.point and not select(part).engine.point:
        return True
    return plan(part, rate=1.0).peak <= memory.limit() < plan(problem, rate=1.0).peak


def _index(place: Path, stamp: str) -> dict[str, Any]:
    """What the folder has already.

    Raises
    ------
    TableError
        For a folder of another problem, or other settings.
    """
    path = place / INDEX
    if not path.exists():
        return {"run": stamp, "parts": []}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if found.get("run") != stamp:
        raise TableError(
            f"{place}: there are windows of another problem, or of other settings: give another folder"
        )
    return found


def _write(
    post: Posterior,
    last: Start,
    path: Path,
    span: tuple[int, int],
    names: Any,
    *,
    flows: bool,
    level: float,
    tables: str | None,
    min_flow: float,
) -> None:
    """One window: nodes of all its times but the first, which is the last of the window before; flows of its steps, or a table of them."""
    at, end = span
    model: Any = post.problem.model
    first = 0 if at == 0 else 1
    cells = label_array(model.cells)
    times = model.times[first : end - at + 1]
    nodes = _arrays(post, [(t,) for t in times], level)
    seen = post.problem._seen_nodes(len(cells))[first : end - at + 1]
    made = {"/nodes": _dataset(nodes, ("time", "cell"), {"time": names[at + first : end + 1], "cell": cells})}
    made["/nodes"]["observed"] = (("time", "cell"), seen)
    if flows and end > at and tables is not None:
        rows = islice(flow_frames(post, level=level), end - at)
        with replacing(path.with_name(f"{path.stem}-flows.{tables}")) as temporary:
            put_frames((f[f["mean"] >= min_flow].assign(level=level) for f in rows), temporary, f".{tables}")
    elif flows and end > at:
        steps = list(zip(model.times[: end - at], model.times[1 : end - at + 1], strict=True))
        axes = {"departure": names[at:end], "origin": cells, "dest": cells}
        made["/flows"] = _dataset(_arrays(post, steps, level), ("departure", "origin", "dest"), axes)
    made["/last"] = last_group(last)
    root = xr.Dataset(attrs={"level": level, "status": post.status.value, "engine": post.engine})
    tree = xr.DataTree.from_dict({"/": root, **made})
    with replacing(path) as temporary:
        write_tree(tree, temporary)


def _arrays(post: Posterior, scopes: list[Any], level: float) -> dict[str, Any]:
    """Mean, sd and interval of several tables, stacked; in single precision, which a posterior's digits fit."""
    parts: dict[str, list[Any]] = {"mean": [], "sd": [], "lower": [], "upper": []}
    at_once = max(AT_ONCE // int(np.prod(post.problem.model.size(scopes[0]))), 1)
    for first in range(0, len(scopes), at_once):
        some = scopes[first : first + at_once]
        table = np.stack([dense(post.beliefs.mean(scope)) for scope in some])
        spreads = [post.beliefs.variance(scope) for scope in some]
        spread = None if spreads[0] is None else np.stack([dense(v) for v in spreads])
        if post.beliefs.quantile(some[0], 0.5) is None:
            ends = post._quantiles_of(table, spread, tails(level))
        else:
            ends = tuple(np.stack([post.quantile_tables(scope, tails(level)) for scope in some], axis=1))
        for name, values in zip(parts, (table, sd_of(spread, table.shape), *ends), strict=True):
            parts[name].append(np.asarray(values, dtype=np.float32))
    return {name: np.concatenate(values) for name, values in parts.items()}


def _dataset(arrays: dict[str, Any], dims: tuple[str, ...], axes: dict[str, Any]) -> xr.Dataset:

    return xr.Dataset({name: (dims, values) for name, values in arrays.items()}, coords=axes)


def read_part(path: Path, group: str, inside: Mapping[str, Any] | None = None) -> xr.Dataset:
    """A group of the file of one window, or what lies ``inside`` some labels of it."""
    with xr.open_dataset(path, group=group, engine="h5netcdf") as found:
        return found.sel(inside or {}).load()


def _order(label: Hashable) -> float | str | None:
    """A label as JSON holds it and can compare it: a number, or a date as text; None where labels have no order."""
    if isinstance(label, (int, float, np.number)):
        return float(label)
    text = readable(label)
    return text if parse_date(text) is not None else None


def _may_have(part: dict[str, Any], first: Hashable, last: Hashable) -> bool:
    """Whether a window may have times from ``first`` to ``last``; windows whose times cannot be compared may."""
    low, high = part["from"], part["to"]
    for asked, end, before in ((first, high, True), (last, low, False)):
        key = None if asked is None else _order(asked)
        if key is None or end is None or isinstance(key, str) != isinstance(end, str):
            continue
        # A text that is shorter names a whole day or month, all of whose times begin with it.
        near = isinstance(key, str) and str(end).startswith(str(key))
        if not near and ((end < key) if before else (end > key)):
            return False
    return True


def read_long(
    folder: str | os.PathLike[str], first: Hashable = None, last: Hashable = None, *, what: str = "nodes"
) -> xr.Dataset:
    """Times of what `infer_long` wrote, from ``first`` to ``last`` (both included; all where not given); other files are not opened.

    Parameters
    ----------
    folder
        What `infer_long` wrote, finished or not.
    first, last
        Labels of times: numbers, dates or their texts.
    what
        ``"nodes"`` (mean, sd, lower, upper, observed by time and cell) or ``"flows"`` (by departure, origin and dest).
    """
    if what not in {"nodes", "flows"}:
        raise ValueError(f"what is {what!r}: give 'nodes' or 'flows'")
    place = Path(folder)
    if not (place / INDEX).exists():
        raise TableError(f"{place}: there is no {INDEX}: give a folder that infer_long wrote")
    axis = "time" if what == "nodes" else "departure"
    kept = []
    for part in filter(lambda part: _may_have(part, first, last), windows_in(place)):
        inside = read_part(place / part["file"], what, {axis: slice(first, last)})
        if inside.sizes[axis]:
            kept.append(inside)
    if not kept:
        raise TableError(f"{place}: no time from {first} to {last} is there")
    return xr.concat(kept, dim=axis)
