"""The verb: run experiments of the paper, and write tables, figures and the comparison."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from headcount.paper import _runner
from headcount.paper._store import Store, write_json, write_text
from headcount.paper._task import Task, touched, unique

EXPERIMENTS = ("table1", "table2", "table3", "figure1", "figure2", "exhibits")


def reproduce(
    experiments: Sequence[str] = ("all",),
    *,
    out: str | Path = "reproduction",
    page: str | Path | None = None,
    quick: bool = False,
    again: Sequence[str] = (),
    workers: int = 2,
    scheduler: str | None = None,
    progress: bool | None = None,
) -> list[Path]:
    """Run experiments of the paper and put ours beside the printed numbers.

    Parameters
    ----------
    experiments
        Some of `EXPERIMENTS`, or ``"all"``.
    out
        Folder of the results: ``results.parquet``, ``manifest.json``, ``tables/``, ``figures/``, ``comparison.md`` and
        ``cache/``. What it holds already
        is not computed again.
    page
        Another folder for the comparison page and its figures.
    quick
        A small version in less than two minutes: fewer data sets, shorter references, smaller maps for the figures.
    again
        Engines or kinds of task whose results are computed anew, with all that depends on them: the cache does not see when an
        engine's code changes.
    workers
        Processes on this machine; 0 computes in this one.
    scheduler
        Address of a Dask scheduler whose workers compute instead.
    progress
        True for a bar, False for silence, None to decide by the terminal.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    ValueError
        For an unknown experiment.
    ReproductionError
        When tasks failed; the others are kept, and the same command tries only the failed ones again.
    """
    chosen = _chosen(experiments)
    _require_parquet()
    store = Store(out)
    modules = {name: import_module(f"headcount.paper.{name}") for name in EXPERIMENTS}
    plans = {name: module.plan(quick=quick) for name, module in modules.items()}
    wanted = [task for name in chosen for task in plans[name]]
    store.forget(_again(wanted, again))
    start = time.perf_counter()
    computed = _runner.run(wanted, store, workers=workers, scheduler=scheduler, progress=progress)
    wall = time.perf_counter() - start
    return _write(
        store,
        modules,
        plans,
        page=None if page is None else Path(page),
        quick=quick,
        run={"workers": workers, "scheduler": scheduler, "wall_seconds": wall, "computed": computed},
    )


def _chosen(experiments: Sequence[str]) -> list[str]:
    unknown = [name for name in experiments if name not in {*EXPERIMENTS, "all"}]
    if unknown or not experiments:
        what = (
            f"unknown experiments {', '.join(map(repr, unknown))}" if unknown else "no experiment was named"
        )
        raise ValueError(f"{what}: choose from {', '.join(EXPERIMENTS)}, or all")
    return [name for name in EXPERIMENTS if "all" in experiments or name in experiments]


def _again(tasks: list[Task], names: Sequence[str]) -> list[Task]:
    """The tasks to forget; a name that fits none is refused."""
    known = {name for task in unique(tasks).values() for name in (task.engine, task.kind) if name}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"again names {', '.join(map(repr, unknown))}: these experiments have {', '.join(sorted(known))}"
        )
    return touched(tasks, names)


def _require_parquet() -> None:
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        raise ImportError("results are kept as Parquet: pip install 'headcount[parquet]'")


def _write(
    store: Store,
    modules: dict[str, ModuleType],
    plans: dict[str, list[Task]],
    *,
    page: Path | None,
    quick: bool,
    run: dict[str, Any],
) -> list[Path]:
    """Everything that can be made of the results there are."""
    from headcount.paper._comparison import Part, comparison
    from headcount.paper._figures import save
    from headcount.paper._manifest import manifest
    from headcount.paper._tables import to_csv, to_latex, to_markdown

    tasks = unique([task for plan in plans.values() for task in plan])
    frame = store.frame(tasks.values())
    written = [store.write_table(tasks.values()), store.folder / "manifest.json"]
    earlier = json.loads(written[1].read_text(encoding="utf-8"))["runs"] if written[1].exists() else []
    facts = manifest(modules, plans, frame, quick=quick, earlier=earlier, **run)
    write_json(written[1], facts)
    parts = []
    for name, module in modules.items():
        keys = {task.key for task in plans[name]}
        part = frame[frame["key"].isin(keys)]
        if part.empty:
            continue
        parts.append(Part(name, module, part))
        if hasattr(module, "table"):
            table = module.table(part)
            for suffix, writer in (("md", to_markdown), ("tex", to_latex), ("csv", to_csv)):
                written.append(store.folder / "tables" / f"{name}.{suffix}")
                write_text(written[-1], writer(table))
        else:
            for folder in (store.folder, *([page] if page is not None else [])):
                written += save(module.figure(part), folder / "figures" / name)
    written.append(store.folder / "comparison.md")
    write_text(written[-1], comparison(parts, facts))
    if page is not None:
        written.append(page / "comparison.md")
        write_text(written[-1], comparison(parts, facts, errata="[errata](../errata.md)"))
    return written
