"""Run experiments of the paper, and draw tables, figures and the comparison from the stored results.

Numbers are kept in ``results.parquet``, one per row. Tasks run in joblib's processes; its `Memory` in ``cache/`` keeps what an
interrupted run has finished, and the arrays that other tasks read.
"""

from __future__ import annotations

import datetime as dt
import json
import platform
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import joblib
from benchmarks._report import git, machine, version
from threadpoolctl import threadpool_limits

from headcount._disk import replacing
from headcount._version import __version__
from reproduction import accuracy
from reproduction.tasks import NAME, SEED, Result, Row, Task

if TYPE_CHECKING:
    import pandas as pd

EXPERIMENTS = ("table1", "table2", "table3", "figure1", "figure2", "exhibits")
LIBRARIES = ("numpy", "scipy", "numba", "pandas", "pyarrow", "matplotlib", "joblib")
SAY_EVERY = 30.0
"""Seconds between two lines of progress."""


class ReproductionError(RuntimeError):
    """Some tasks failed; every other one was finished and kept."""


def reproduce(
    experiments: Sequence[str],
    *,
    out: Path,
    page: Path | None = None,
    quick: bool = False,
    again: Sequence[str] = (),
    workers: int = 2,
    scheduler: str | None = None,
) -> list[Path]:
    """Run experiments of the paper and put ours beside the printed numbers.

    Parameters
    ----------
    experiments
        Some of `EXPERIMENTS`, or ``"all"``.
    out
        Folder of the results; what it holds is not computed again.
    page
        Another folder for the comparison page and its figures.
    quick
        A small version in less than two minutes: fewer data sets, shorter references, smaller maps for the figures.
    again
        Engines or kinds of task whose results are computed again, with all that reads them: the cache does not see when an
        engine's code changes.
    workers
        Processes on this machine; 0 computes in this one.
    scheduler
        Address of a Dask scheduler whose workers compute instead.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    ValueError
        For an unknown experiment or an unknown name in `again`.
    ReproductionError
        When tasks failed; the others are kept, and the same command tries only the failed ones again.
    """
    unknown = [name for name in experiments if name not in {*EXPERIMENTS, "all"}]
    if unknown or not experiments:
        said = (
            f"unknown experiments {', '.join(map(repr, unknown))}" if unknown else "no experiment was named"
        )
        raise ValueError(f"{said}: choose from {', '.join(EXPERIMENTS)}, or all")
    if find_spec("pyarrow") is None:
        raise ImportError("results are kept as Parquet: pip install 'headcount[parquet]'")
    modules = {name: import_module(f"reproduction.{name}") for name in EXPERIMENTS}
    plans = {name: _plan(name, module, quick=quick) for name, module in modules.items()}
    chosen = [task for name, plan in plans.items() if {name, "all"} & {*experiments} for task in plan]
    stored = read(out)
    wanted, anew = _wanted(chosen, set(stored["task"]), again)
    start = time.perf_counter()
    with _backend(workers, scheduler):
        fresh = compute(wanted, joblib.Memory(out / "cache", verbose=0), anew=anew)
    frame = _merged(stored, fresh)
    if fresh:
        write_results(out, frame)
    facts = manifest(
        modules,
        plans,
        frame,
        before=out / "manifest.json",
        scale="quick" if quick else "full",
        last_run={
            "experiments": [name for name in EXPERIMENTS if {name, "all"} & {*experiments}],
            "wall_seconds": round(time.perf_counter() - start, 1),
            "tasks_computed": len(fresh),
            "workers": "cluster" if scheduler is not None else workers,
            "finished": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "commit": commit(),
        },
    )
    write_text(out / "manifest.json", json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    return [out / "results.parquet", out / "manifest.json", *draw(modules, plans, frame, facts, out, page)]


def _plan(name: str, module: ModuleType, *, quick: bool) -> list[Task]:
    from reproduction.page import is_table

    if is_table(name):
        return accuracy.plan(module.LAYOUT.settings, quick=quick)
    tasks: list[Task] = module.plan(quick=quick)
    return tasks


def _wanted(
    tasks: Iterable[Task], known: set[tuple[Any, ...]], again: Sequence[str]
) -> tuple[list[Task], set[tuple[Any, ...]]]:
    """The tasks to compute, each once, and the names of those whose cached result must not be used."""
    once = {task.name: task for task in tasks}
    names = {name for task in once.values() for name in (task.engine, task.kind) if name}
    if unknown := [name for name in again if name not in names]:
        raise ValueError(
            f"again names {', '.join(map(repr, unknown))}: these experiments have {', '.join(sorted(names))}"
        )

    def touched(task: Task) -> bool:
        return bool({task.engine, task.kind} & {*again}) or any(map(touched, task.needs.values()))

    anew = {name for name, task in once.items() if touched(task)}
    return [task for name, task in once.items() if name in anew or name not in known], anew


def compute(
    tasks: Sequence[Task], memory: joblib.Memory, *, anew: Collection[tuple[Any, ...]] = ()
) -> dict[tuple[Any, ...], Result]:
    """Results by task name: first what other tasks read, then the tasks that share the machine, then those that run alone.

    Raises
    ------
    ReproductionError
        After everything else is done, when tasks failed.
    """
    needed = {need.name: need for task in tasks for need in task.needs.values()}
    rest = [task for task in tasks if task.name not in needed]
    rounds = ([*needed.values()], [t for t in rest if not t.alone], *([t] for t in rest if t.alone))
    found: dict[tuple[Any, ...], Result] = {}
    failures: dict[tuple[Any, ...], str] = {}
    say = _progress(sum(map(len, rounds)))
    for some in rounds:
        ready = [task for task in some if not any(n.name in failures for n in task.needs.values())]
        for name, result in _in_parallel(ready, memory, anew):
            if isinstance(result, str):
                failures[name] = result
            else:
                found[name] = result
            say(name)
    if failures:
        shown = "; ".join(f"{' '.join(map(str, name))}: {text}" for name, text in list(failures.items())[:5])
        raise ReproductionError(
            f"{len(failures)} tasks failed: {shown}. The others are kept; the same command tries only these again"
        )
    return {task.name: found[task.name] for task in tasks}


def _in_parallel(
    tasks: Sequence[Task], memory: joblib.Memory, anew: Collection[tuple[Any, ...]]
) -> Iterator[tuple[tuple[Any, ...], Result | str]]:
    """The outcomes of the tasks, as they come."""
    calls = (joblib.delayed(_attempt)(task, memory, anew=task.name in anew) for task in tasks)
    try:
        yield from joblib.Parallel(return_as="generator_unordered")(calls)
    except BrokenExecutor as error:
        raise ReproductionError(
            f"a worker process died ({error}). Finished tasks are kept; the same command continues from there"
        ) from error


def _attempt(task: Task, memory: joblib.Memory, *, anew: bool) -> tuple[tuple[Any, ...], Result | str]:
    """The task's name with its result, or with the words of its failure."""
    try:
        return task.name, _recall(task, memory, anew=anew)
    except Exception as error:  # all failures are reported together, at the end
        return task.name, f"{type(error).__name__}: {error}"


def _recall(task: Task, memory: joblib.Memory, *, anew: bool = False) -> Result:
    """The result from the cache, or computed and cached."""
    timed = memory.cache(_timed, ignore=["inputs"])
    inputs = {role: _recall(need, memory).arrays for role, need in task.needs.items()}
    arguments = (task.compute, task.setting, task.data_set, task.engine, dict(task.options), inputs)
    if anew and timed.check_call_in_cache(*arguments):
        timed.call_and_shelve(*arguments).clear()
    result: Result = timed(*arguments)
    return result


def _timed(
    compute: Any, setting: Any, data_set: int, engine: str, options: dict[str, Any], inputs: Any
) -> Result:
    """Compute with one BLAS thread, and add the seconds that took."""
    wall, cpu = time.perf_counter(), time.process_time()
    with threadpool_limits(limits=1):
        result = compute(setting, data_set, engine, options, inputs)
    spent = (
        Row("task_wall_seconds", time.perf_counter() - wall),
        Row("task_cpu_seconds", time.process_time() - cpu),
    )
    return Result((*result.rows, *spent), result.arrays)


@contextmanager
def _backend(workers: int, scheduler: str | None) -> Iterator[None]:
    """Where joblib computes: a Dask cluster, processes of this machine, or this process."""
    if scheduler is None:
        with joblib.parallel_config("loky" if workers else "sequential", n_jobs=workers or 1):
            yield
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise ImportError("a scheduler needs Dask: pip install 'headcount[cluster]'") from error
    with Client(scheduler, set_as_default=False) as client, joblib.parallel_config("dask", client=client):
        yield


def _progress(count: int) -> Callable[[tuple[Any, ...]], None]:
    """A function to call after each task, which now and then says how many are done."""
    done, last = 0, time.monotonic()

    def say(name: tuple[Any, ...]) -> None:
        nonlocal done, last
        done += 1
        if time.monotonic() - last > SAY_EVERY or (done == count and done > 1):
            last = time.monotonic()
            print(f"{done}/{count} tasks ({' '.join(map(str, name[:6]))})", file=sys.stderr, flush=True)

    return say


def read(folder: Path) -> pd.DataFrame:
    """Stored numbers, one per row, with the name of the task in column ``task``; none where there is no file."""
    import pandas as pd

    columns = [*NAME, "quantity", "step", "value"]
    path = folder / "results.parquet"
    frame = pd.read_parquet(path, columns=columns) if path.exists() else pd.DataFrame(columns=columns)
    return frame.assign(task=list(frame[list(NAME)].itertuples(index=False, name=None)))


def _merged(stored: pd.DataFrame, fresh: Mapping[tuple[Any, ...], Result]) -> pd.DataFrame:
    """The stored numbers, with those of recomputed tasks replaced."""
    import pandas as pd

    rows = [
        {**dict(zip(NAME, name, strict=True)), **asdict(row), "task": name}
        for name, result in fresh.items()
        for row in result.rows
    ]
    kept = stored[~stored["task"].isin(list(fresh))]
    if not rows or kept.empty:
        return pd.DataFrame(rows) if rows else kept
    return pd.concat([kept, pd.DataFrame(rows)], ignore_index=True)


def write_results(folder: Path, frame: pd.DataFrame) -> None:
    """Write ``results.parquet``."""
    texts = ("kind", "engine", "options", "quantity")
    frame = frame.drop(columns="task").astype(dict.fromkeys(texts, "category"))
    with replacing(folder / "results.parquet") as temporary:
        frame.to_parquet(temporary, index=False, compression="zstd")


def write_text(path: Path, text: str) -> Path:
    """Write a text file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def draw(
    modules: Mapping[str, ModuleType],
    plans: Mapping[str, Sequence[Task]],
    frame: pd.DataFrame,
    facts: Mapping[str, Any],
    out: Path,
    page: Path | None,
) -> list[Path]:
    """Tables, figures and the comparison, as far as there are results."""
    from reproduction import drawing, tables
    from reproduction.page import Part, comparison, is_table

    written, parts = [], []
    for name, module in modules.items():
        part = frame[frame["task"].isin([task.name for task in plans[name]])]
        if part.empty:
            continue
        parts.append(Part(name, module, part))
        if is_table(name):
            table = tables.build(module.LAYOUT, part)
            for suffix in ("md", "tex", "csv"):
                written.append(write_text(out / "tables" / f"{name}.{suffix}", tables.FORMATS[suffix](table)))
        else:
            for folder in (out, page):
                if folder is not None:
                    written += drawing.save(module.figure(part), folder / "figures" / name)
    written.append(write_text(out / "comparison.md", comparison(parts, facts)))
    if page is not None:
        text = comparison(parts, facts, errata="[errata](../errata.md)")
        written.append(write_text(page / "comparison.md", text))
    return written


def manifest(
    modules: Mapping[str, ModuleType],
    plans: Mapping[str, Sequence[Task]],
    frame: pd.DataFrame,
    *,
    before: Path,
    scale: str,
    last_run: dict[str, Any],
) -> dict[str, Any]:
    """How the results were computed: settings, seeds, versions, commit, hardware, times. No names of machines or people.

    Results are kept from run to run, so every run that computed some is named. `before` is the manifest to continue.
    """
    earlier = json.loads(before.read_text(encoding="utf-8")) if before.exists() else {"runs": []}
    spent = frame[frame["quantity"] == "task_cpu_seconds"].set_index("task")["value"]
    experiments = {}
    for name, module in modules.items():
        tasks = {task.name: task for task in plans[name]}
        mine = spent[spent.index.isin(list(tasks))]
        settings = [asdict(task.setting) for task in tasks.values()]
        experiments[name] = {
            "about": sections(module),
            "settings": [s for k, s in enumerate(settings) if s not in settings[:k]],
            "data_sets": 1 + max(task.data_set for task in tasks.values()),
            "tasks": len(tasks),
            "with_results": len(mine),
            "cpu_seconds": round(float(mine.sum()), 1),
        }
    made_with = {
        "headcount": __version__,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}},
        "hardware": machine(),
    }
    if not last_run["tasks_computed"] and earlier["runs"]:  # only drawn again
        made_with = {name: earlier[name] for name in made_with}
    return {
        "scale": scale,
        "seed": SEED,
        "seed_words": "seed, side, 1000·w₁, N, T, data set, stream",
        "experiments": experiments,
        "cpu_seconds": round(float(spent.sum()), 1),
        "last_run": last_run,
        "runs": [*earlier["runs"], *([last_run] if last_run["tasks_computed"] else [])],
        **made_with,
    }


def sections(module: ModuleType) -> dict[str, str]:
    """The module's docstring by its paragraphs: Source, Settings, Seeds, Deviations, Duration."""
    found: dict[str, str] = {}
    name = "Title"
    for line in (module.__doc__ or "").splitlines():
        head, colon, rest = line.partition(":")
        if colon and head in {"Source", "Settings", "Seeds", "Deviations", "Duration"}:
            name, line = head, rest
        if line.strip():
            found[name] = f"{found.get(name, '')} {line.strip()}".strip()
    return found


def commit() -> str:
    """The commit of the source, with a plus if the code differs from it; "unknown" outside a repository."""
    changed = git("status", "--porcelain", "src", "reproduction/*.py")
    return (git("rev-parse", "HEAD") or "unknown") + ("+" if changed else "")
