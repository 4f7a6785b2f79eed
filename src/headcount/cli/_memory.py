"""How much memory there is, how much may be taken, and how to write such numbers."""

import os
import re
from pathlib import Path

_UNITS = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "KI": 2**10,
    "MI": 2**20,
    "GI": 2**30,
    "TI": 2**40,
}
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?\s*$", re.IGNORECASE)
SHARE = 0.8
"""Share of the free memory that may be taken unless the user says otherwise."""


def free_memory() -> int | None:
    """Bytes that can be had without swapping, within the limits of a container; None where the system does not say."""
    found = [v for v in (_available(), _container()) if v is not None]
    return min(found) if found else None


def parse_size(text: str) -> int:
    """Bytes of "8GB", "500 MB", "2GiB" or a plain number."""
    match = _SIZE.match(text)
    if match is None:
        raise ValueError(f"a size is a number and a unit, such as 8GB or 500MB; got {text!r}")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def readable(size: float) -> str:
    """Bytes as people write them: 1.3 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.2g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def _available() -> int | None:
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        try:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (ValueError, OSError, AttributeError):
            return None
    match = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return None if match is None else int(match[1]) * 1024


def _container() -> int | None:
    """What a control group still allows (version 2, then 1)."""
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            allowed, taken = (Path(p).read_text(encoding="ascii").strip() for p in (limit, used))
        except OSError:
            continue
        if allowed.isdigit() and int(allowed) < 2**60:
            return max(int(allowed) - int(taken), 0)
    return None
