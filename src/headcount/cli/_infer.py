"""``headcount infer``: tables in, a results folder and a readable summary out."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import typer

from headcount.cli._guard import NOT_CONVERGED
from headcount.cli._problem import named_engine, planned, read_case, refuse_too_large
from headcount.cli._show import show_files, show_notes, show_posterior

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def run_infer(
    counts: Sequence[Path],
    options: Mapping[str, Any],
    *,
    out: Path,
    level: float,
    format: str,
    keep: bool,
    omx: bool,
) -> None:
    """Read, plan, infer, say how it went, write."""
    from headcount.engines import infer
    from headcount.io import write_results

    check_output(level, format)
    case = read_case(counts, options)
    engine = named_engine(options)
    refuse_too_large(*planned(case.problem, engine, options))
    posterior = infer(case.problem, engine, rng=options["seed"], strict=False)
    good = posterior.status.good
    if good or keep:
        result, files = write_results(
            posterior, out, level=level, format=format, attributes=said_by_the_user(case.notes), omx=omx
        )
        show_posterior(result)
        show_notes(case.notes)
        show_files(files, good=good)
    else:
        from headcount.io import Result

        show_posterior(Result.of(posterior, level=level))
        show_notes(
            [
                *case.notes,
                posterior.status.causes,
                "nothing was written; --keep writes the answer all the same",
            ]
        )
    if not good:
        raise typer.Exit(NOT_CONVERGED)


def check_output(level: float, format: str) -> None:
    """Refuse before the work what would fail after it."""
    from importlib.util import find_spec

    if not 0 < level < 1:
        raise ValueError(f"--level must lie between 0 and 1, got {level:g}")
    if format not in {"csv", "parquet"}:
        raise ValueError(f"--format is csv or parquet, got {format!r}")
    if format == "parquet" and find_spec("pyarrow") is None:
        raise ValueError("writing Parquet needs pyarrow: pip install 'headcount[parquet]', or choose csv")


def said_by_the_user(notes: Sequence[str]) -> dict[str, Any]:
    """Provenance that only the command line knows."""
    return {"command": shlex.join(["headcount", *sys.argv[1:]]), "notes": list(notes)}
