"""Hold a quick run against that of the last release: accuracy against its own error, speed as a ratio.

``benchmarks/reference.json`` has, of every guarded check, the value that the last release measured with the same seeds and sizes. Only
numbers that mean the same on another machine are guarded: accuracy with a stated error, and times as a ratio to a peer's, to another
method's in the same run or to the machine's own limit. ``python -m benchmarks --quick --keep`` writes the file, once per release.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks._report import Check, Report, _clean, provenance

REFERENCE = Path(__file__).resolve().parent / "reference.json"
WORSE = 1.5
"""Factor by which a ratio may get worse: repeated runs on a busy machine differ by up to 1.3."""
GUARDED = ("limits", "small", "samplers", "peers", "coverage", "accuracy")
"""Claims that a quick run measures unless others are named."""
OPTIONAL = {"peers"}
"""Claims whose checks may be missing: a peer that cannot be installed is reported by the claim itself."""


def guarded(report: Report) -> dict[str, dict[str, Any]]:
    """The checks of a report that can be held against a release, by name."""
    return {
        check.name: {
            "value": check.value,
            "error": check.error,
            "ratio": check.ratio,
            "at_most": check.at_most,
            "at_least": check.at_least,
        }
        for check in report.checks
        if check.ratio or check.error is not None
    }


def busy(load: float, cores: int) -> bool:
    """Whether others compute on this machine: the same ratio was measured four times apart at a load of 9 on two cores."""
    return load > 0.75 * cores


def faults(
    claim: str, reference: Mapping[str, Mapping[str, Any]], report: Report, *, ratios: bool = True
) -> list[str]:
    """What is worse than in the reference, or is no longer measured though it could be; of times only if ``ratios``."""
    measured = {check.name: check for check in report.checks}
    found = []
    for name, old in reference.items():
        if old["ratio"] and not ratios:
            continue
        check = measured.get(name)
        if check is None:
            found += [] if claim in OPTIONAL else [f"{claim}: {name}: is not measured any more"]
        elif (why := worse(old, check)) is not None:
            found.append(f"{claim}: {name}: {why}")
    return found


def worse(old: Mapping[str, Any], new: Check) -> str | None:
    """How much worse a check is than a stored one; None if it is not.

    A ratio v with reference r, of which less is better, is worse where v > 1.5 r; of which more is better, where v < r / 1.5. An accuracy
    with the error s is worse where its distance from the best possible value grew by more than s; the best value of a share between two
    bounds is their middle. What is not a number is worse.
    """
    value, before = new.value, old["value"]
    if math.isnan(value):
        return "is not a number"
    if old["ratio"]:
        small, large = (before, value) if old["at_most"] is not None else (value, before)
        if large > WORSE * small:
            return f"{value:.3g} instead of {before:.3g}: worse by more than {WORSE:g} ×"
        return None
    if old["at_most"] is not None and old["at_least"] is not None:
        best = (old["at_most"] + old["at_least"]) / 2
        lost = abs(value - best) - abs(before - best)
    else:
        lost = value - before if old["at_most"] is not None else before - value
    error = max(old["error"], new.error or 0.0)
    return (
        f"{value:.3g} instead of {before:.3g}: worse by {lost:.2g}, its error is {error:.2g}"
        if lost > error
        else None
    )


def keep(reports: Sequence[Report], *, seconds: float, path: Path = REFERENCE) -> None:
    """Store the guarded checks of these claims as the reference; those of other claims stay."""
    stored = read(path)
    claims = {**stored.get("claims", {}), **{report.claim: guarded(report) for report in reports}}
    content = {"provenance": provenance(quick=True, seconds=seconds), "claims": claims}
    path.write_text(json.dumps(_clean(content), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path = REFERENCE) -> dict[str, Any]:
    """The stored reference; empty before the first release."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found
