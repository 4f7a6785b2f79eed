"""What a claim's module returns, and how it is stored: plain numbers in JSON, with where and when they come from."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
PACKAGES = ("headcount", "numpy", "scipy", "numba", "threadpoolctl")


@dataclass(frozen=True)
class Check:
    """One target: what was measured, and the bounds it must keep."""

    name: str
    value: float
    at_most: float | None = None
    at_least: float | None = None
    unit: str = ""
    note: str = ""
    error: float | None = None
    """One standard error of an accuracy (or what its reference leaves open): more than this is a change."""
    ratio: bool = False
    """Whether the value is a time over another's, or over the machine's own limit, so that it may be held against other machines'."""

    @property
    def met(self) -> bool:
        """Whether the value keeps its bounds; NaN keeps none."""
        above = self.at_least is None or self.value >= self.at_least
        below = self.at_most is None or self.value <= self.at_most
        return not math.isnan(self.value) and above and below


@dataclass(frozen=True)
class Table:
    """Rows of strings and numbers under named columns."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""


@dataclass(frozen=True)
class Curve:
    """Measured points of several series, with the exponent fitted to the tail of each."""

    title: str
    x: str
    y: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    exponents: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Report:
    """What a claim's module found."""

    claim: str
    summary: str
    checks: Sequence[Check] = ()
    tables: Sequence[Table] = ()
    curves: Sequence[Curve] = ()
    seeds: Sequence[int] = ()
    failure: str = ""

    def plain(self) -> dict[str, Any]:
        """The report as JSON holds it; whether a target is met is written down with it."""
        content = asdict(self)
        for stored, check in zip(content["checks"], self.checks, strict=True):
            stored["met"] = check.met
        return content


def provenance(*, quick: bool, seconds: float) -> dict[str, Any]:
    """Commit, versions, machine, date: what is needed to read a number, or to get it again."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": git("rev-parse", "HEAD"),
        "modified": bool(git("status", "--porcelain", "--untracked-files=no", "src", "benchmarks")),
        "command": f"python -m benchmarks{' --quick' if quick else ''}",
        "quick": quick,
        "seconds": round(seconds, 1),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "threads": os.environ.get("OMP_NUM_THREADS", "the library's own choice"),
        **machine(),
    }


def machine() -> dict[str, Any]:
    """The processor, its cores, memory, and how busy it was when asked."""
    model, memory = platform.processor() or platform.machine(), None
    cpu, ram = Path("/proc/cpuinfo"), Path("/proc/meminfo")
    if cpu.exists():
        names = [
            line.split(":", 1)[1].strip() for line in cpu.read_text().splitlines() if "model name" in line
        ]
        model = names[0] if names else model
    if ram.exists():
        memory = round(int(ram.read_text().split()[1]) / 2**20, 1)
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": memory,
        "system": platform.system(),
        "load": [round(x, 2) for x in os.getloadavg()] if hasattr(os, "getloadavg") else None,
    }


def store(report: Report, *, quick: bool, seconds: float) -> Path:
    """Write a report; quick ones apart, so that they never take the place of the full ones."""
    folder = RESULTS / "quick" if quick else RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    content = {"provenance": provenance(quick=quick, seconds=seconds), **report.plain()}
    path = folder / f"{report.claim}.json"
    temporary = path.with_suffix(".json.part")
    temporary.write_text(json.dumps(_clean(content), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)
    return path


def stored(claim: str) -> dict[str, Any] | None:
    """The full results of a claim, or else the quick ones, or nothing."""
    for folder in (RESULTS, RESULTS / "quick"):
        path = folder / f"{claim}.json"
        if path.exists():
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return content
    return None


def _clean(value: Any) -> Any:
    """Numbers that JSON knows: NumPy's become Python's, six digits are kept, NaN becomes null."""
    if isinstance(value, Mapping):
        return {str(k): _clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
