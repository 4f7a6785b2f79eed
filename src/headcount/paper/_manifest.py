"""How results were got: settings, seeds, versions, commit, hardware, times."""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from headcount._version import __version__
from headcount.paper._task import SEED, Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pandas as pd

LIBRARIES = ("numpy", "scipy", "numba", "pandas", "pyarrow", "matplotlib", "joblib")


def manifest(
    modules: Mapping[str, ModuleType],
    plans: Mapping[str, Iterable[Task]],
    frame: pd.DataFrame,
    *,
    quick: bool,
    workers: int,
    scheduler: str | None,
    wall_seconds: float,
    computed: int,
    earlier: Iterable[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Everything a reader needs to judge the numbers or get them again. No names of machines or people.

    Results are kept from run to run, so every run that computed some is named; ``earlier`` are those of the manifest before.
    """
    last_run = {
        "experiments": list(modules),
        "wall_seconds": round(wall_seconds, 1),
        "tasks_computed": computed,
        "workers": "cluster" if scheduler is not None else workers,
        "finished": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
    }
    spent = frame[frame["quantity"] == "task_cpu_seconds"].set_index("key")["value"]
    experiments = {}
    for name, module in modules.items():
        tasks = list(plans[name])
        keys = [task.key for task in tasks]
        experiments[name] = {
            "about": sections(module),
            "settings": _distinct(task.setting.plain() for task in tasks),
            "data_sets": max((task.data_set for task in tasks), default=-1) + 1,
            "tasks": len(keys),
            "with_results": int(spent.index.isin(keys).sum()),
            "cpu_seconds": round(float(spent[spent.index.isin(keys)].sum()), 1),
        }
    return {
        "scale": "quick" if quick else "full",
        "seed": SEED,
        "seed_words": "seed, side, 1000·w₁, N, T, data set, stream",
        "experiments": experiments,
        "cpu_seconds": round(float(spent.sum()), 1),
        "last_run": last_run,
        "runs": [*earlier, *([last_run] if computed else [])],
        "headcount": __version__,
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in LIBRARIES}},
        "hardware": hardware(),
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
    """The commit of the source, with a plus if files of the package differ from it; "unknown" outside a repository."""
    here = Path(__file__).parents[1]

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def hardware() -> dict[str, Any]:
    """Processor, cores and memory."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    try:
        memory = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        memory = None
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memory_gib": memory,
        "system": f"{platform.system()} {platform.machine()}",
    }


def _distinct(settings: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for setting in settings:
        if setting not in found:
            found.append(setting)
    return found


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"
