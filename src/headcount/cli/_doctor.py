"""What ``headcount doctor`` looks at: versions, cores, memory, threads, the compiler's cache, the browser."""

import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from headcount._version import __version__
from headcount.cli._show import show_table, tell
from headcount.memory import SHARE, free_memory, readable_bytes

_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)[^;]*(?:;.*extra\s*==\s*['\"](?P<extra>[^'\"]+)['\"])?")


@dataclass(frozen=True)
class Finding:
    """One line of the report: what was looked at, what was found, and whether that is good enough."""

    subject: str
    found: str
    healthy: bool = True


def examine() -> tuple[Finding, ...]:
    """Look at everything; change nothing. Optional things that are absent are healthy."""
    return (
        Finding("headcount", __version__),
        Finding("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        Finding("cores", f"{_usable_cores()} usable of {os.cpu_count()}"),
        _memory(),
        *_packages(),
        *_thread_pools(),
        _compiler_cache(),
        _browser(),
    )


def show(findings: tuple[Finding, ...]) -> None:
    """Print the findings as a table."""
    tell(findings=[asdict(finding) for finding in findings])
    rows = [["ok" if f.healthy else "missing", f.subject, f.found] for f in findings]
    show_table(None, ["", "subject", "found"], 3, rows)


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> Finding:
    free = free_memory()
    if free is None:
        return Finding("memory", "unknown on this system")
    return Finding(
        "memory",
        f"{readable_bytes(free)} free; a run may take {readable_bytes(SHARE * free)} unless told otherwise",
    )


def _packages() -> Iterator[Finding]:
    """Every dependency that the package's own metadata names, so that the list is written once."""
    seen = set()
    for line in metadata.requires("headcount") or ():
        match = _REQUIREMENT.match(line)
        assert match is not None, line
        name, extra = match["name"], match["extra"]
        if extra in {"test", "docs", "benchmarks"} or name in seen:
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


def _browser() -> Finding:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if (path := shutil.which(name)) is not None:
            return Finding("browser", path)
    return Finding("browser", "none found; only the test of the page needs one")
