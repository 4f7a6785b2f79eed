"""What `headcount doctor` looks at: versions, cores, memory, threads, the compiler's cache, the browser."""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headcount import memory
from headcount._version import __version__
from headcount.cli._show import show_table, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)[^;]*(?:;.*extra\s*==\s*['\"](?P<extra>[^'\"]+)['\"])?")


class Finding(NamedTuple):
    """One line of the report: what was looked at, what was found, and whether that is good enough."""

    subject: str
    found: str
    healthy: bool = True


def examine() -> tuple[Finding, ...]:
    """Look at everything; change nothing. Optional things that are absent are healthy."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    free = memory.free_memory()
    room = "unknown on this system"
    if free is not None:
        most = memory.readable_bytes(memory.SHARE * free)
        room = f"{memory.readable_bytes(free)} free; a run may take {most} unless told otherwise"
    browsers = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    browser = next(filter(None, browsers), "none found; only the test of the page needs one")
    return (
        Finding("headcount", __version__),
        Finding("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        Finding("cores", f"{cores} usable of {os.cpu_count()}"),
        Finding("memory", room),
        *_packages(),
        *_thread_pools(),
        _compiler_cache(),
        Finding("browser", browser),
    )


def show_findings(findings: tuple[Finding, ...]) -> None:
    """Print the findings as a table."""
    tell(findings=[finding._asdict() for finding in findings])
    rows = [["ok" if f.healthy else "missing", f.subject, f.found] for f in findings]
    show_table(None, ["", "subject", "found"], 3, rows)


def _packages() -> Iterator[Finding]:
    """Every dependency that the package's own metadata names, so that the list is written once."""
    seen = set()
    for line in metadata.requires("headcount") or ():
        match = _REQUIREMENT.match(line)
        assert match is not None, line
        name, extra = match["name"], match["extra"]
        if extra in {"all", "test", "docs", "benchmarks"} or name in seen:
            continue
        seen.add(name)
        try:
            yield Finding(name, metadata.version(name))
        except metadata.PackageNotFoundError:
            remedy = f"pip install 'headcount[{extra}]'" if extra else f"pip install {name}"
            yield Finding(name, f"not installed; {remedy}", healthy=extra is not None)


def _thread_pools() -> Iterator[Finding]:
    import numpy as np  # noqa: F401  (loads its pool)
    import scipy.linalg  # noqa: F401  (loads its pool)
    from threadpoolctl import threadpool_info

    for pool in threadpool_info():
        yield Finding(
            "thread pool", f"{pool['internal_api']} {pool.get('version')}, {pool['num_threads']} threads"
        )


def _compiler_cache() -> Finding:
    """Where numba keeps what it compiles: beside the source, unless told otherwise."""
    folder = os.environ.get("NUMBA_CACHE_DIR")
    place = Path(folder) if folder is not None else Path(__file__).parents[1]
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        return Finding("compiled code", f"{place} cannot be written ({error.strerror}); set NUMBA_CACHE_DIR")
    return Finding("compiled code", f"kept under {place}")
