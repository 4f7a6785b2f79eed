"""Checkpoints: the whole state of a climb after every step, so that a killed fit goes on to the same answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headcount.engines import Status
from headcount.learn._climb import Climb
from headcount.learn._expect import Evaluation
from headcount.learn._family import Family
from headcount.learn._objective import Objective
from headcount.learn._store import read, write

FORMAT = "headcount fit checkpoint 2"


@dataclass(frozen=True)
class Progressed:
    """A climb, what has been noted on the way, and how much it took."""

    climb: Climb
    rows: tuple[dict[str, Any], ...]
    e_steps: int
    seconds: float
    start: str
    """Which start it was."""


def save(path: str | Path, at: Progressed, fingerprint: str) -> None:
    """Write the state, atomically."""
    point, climb = at.climb.point, at.climb
    arrays: dict[str, Any] = {"x": point.x, "gradient": point.gradient}
    for p, tables in enumerate(point.objective.statistics):
        arrays |= {f"statistics_{p}_{c}": table for c, table in enumerate(tables)}
    for p, start in enumerate(point.starts):
        arrays |= {f"start_{p}_{name}": values for name, values in start.items()}
    for k, (s, y) in enumerate(climb.pairs):
        arrays |= {f"pair_{k}_s": s, f"pair_{k}_y": y}
    numbers = {"step": climb.step, "residual": climb.residual, "excess": point.excess}
    numbers |= {"evidence": point.evidence, "log_prior": point.log_prior, "negative": point.negative}
    arrays |= {f"number_{name}": np.float64(value) for name, value in numbers.items()}
    meta = {
        "format": FORMAT,
        "fingerprint": fingerprint,
        "pairs": len(climb.pairs),
        "starts": [sorted(start) for start in point.starts],
        "status": point.status.value,
        "stuck": climb.stuck,
        "contrary": climb.contrary,
        "rows": [{k: _text(v) for k, v in row.items()} for row in at.rows],
        "e_steps": at.e_steps,
        "seconds": at.seconds,
        "start": at.start,
    }
    write(path, meta, arrays)


def load(path: str | Path, families: Sequence[Family], fingerprint: str) -> Progressed:
    """Read the state; refuse that of another fit."""
    meta, arrays = read(path)
    if meta.get("format") != FORMAT or meta.get("fingerprint") != fingerprint:
        raise ValueError(
            f"the checkpoint {str(path)!r} belongs to another fit (other data, parametrisation, engine, method, "
            "start or seed): give another path, or delete it to begin anew"
        )
    number = {k.removeprefix("number_"): float(v) for k, v in arrays.items() if k.startswith("number_")}
    statistics = [
        tuple(arrays[f"statistics_{p}_{c}"] for c in range(len(f.components))) for p, f in enumerate(families)
    ]
    point = Evaluation(
        x=arrays["x"],
        evidence=number["evidence"],
        log_prior=number["log_prior"],
        gradient=arrays["gradient"],
        objective=Objective(families, statistics),
        starts=tuple(
            {name: arrays[f"start_{p}_{name}"] for name in names} for p, names in enumerate(meta["starts"])
        ),
        excess=number["excess"],
        status=Status(meta["status"]),
        negative=number["negative"],
    )
    pairs = tuple((arrays[f"pair_{k}_s"], arrays[f"pair_{k}_y"]) for k in range(meta["pairs"]))
    climb = Climb(point, pairs, number["step"], number["residual"], meta["stuck"], meta["contrary"])
    rows = tuple({k: _number(v) for k, v in row.items()} for row in meta["rows"])
    return Progressed(climb, rows, meta["e_steps"], meta["seconds"], meta["start"])


def _text(value: Any) -> Any:
    """JSON has no NaN or infinity; hexadecimal keeps every bit."""
    return value.hex() if isinstance(value, float) else value


def _number(value: Any) -> Any:
    return float.fromhex(value) if isinstance(value, str) else value
