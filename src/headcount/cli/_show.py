"""What the commands print: status first, then numbers, then what was written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headcount.memory import readable_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd
    from rich.console import Console

    from headcount.engines._plan import Plan
    from headcount.io import Result
    from headcount.learn import Fit

_MEANING = {
    "posterior.nc": "everything; arviz.from_netcdf opens it",
    "nodes": "counts with intervals, by time and cell",
    "flows": "movements with intervals",
    "summary.json": "status, provenance, largest flows",
    "flows.geojson": "movements as lines for a map",
    "flows.omx": "movements as matrices for transport tools",
    "weights": "weights with standard errors",
    "ascent": "log evidence by iteration of the fit",
    "counts": "what was seen",
    "transitions": "how they move, by time of departure",
    "initial": "where they start",
    "cells": "where the cells are",
    "features.csv.gz": "what the moves depend on",
    "truth_counts": "the true counts",
    "truth_flows": "the true movements",
}


def console() -> Console:
    """Standard output, without guessing at what to colour."""
    from rich.console import Console

    return Console(highlight=False)


def show_posterior(result: Result) -> None:
    """Status, sizes, evidence, and the largest movements."""
    out, a = console(), result.attributes
    colour = "green" if result.good else "red"
    out.print(
        f"[bold {colour}]{a['status']}[/]  {a['engine']}, {a['iterations']} iterations, {float(a['seconds']):.2g} s, "
        f"residual {float(a['residual']):.2g} (asked: {float(a['tolerance']):.2g})",
        soft_wrap=True,
    )
    first, second = ("times", "cells") if result.is_chain else ("variables", "states")
    seen = int(result.nodes["observed"].notna().sum())
    noise = ", ".join(a["observations"])
    out.print(
        f"{len(result.times)} {first}, {len(result.cells)} {second}, {seen} counts ({noise}), population {result.population:,}"
        + ("" if a["log_evidence"] is None else f", log evidence {float(a['log_evidence']):.6g}"),
        soft_wrap=True,
    )
    share = result.nodes["reliable"].mean()
    if share < 1:
        out.print(
            f"{share:.0%} of the counts' intervals rest on enough individuals to be trusted (column reliable)",
            soft_wrap=True,
        )
    if result.is_chain and len(result.flows):
        moved = result.flows[result.flows["origin"] != result.flows["dest"]]
        out.print()
        out.print(_movements(moved.nlargest(5, "mean"), result.level))
    elif not result.is_chain:
        out.print()
        out.print(_movements(result.nodes.nlargest(8, "mean").drop(columns=["observed"]), result.level))


def _movements(frame: pd.DataFrame, level: float) -> Any:
    """Rows with their interval, as a table."""
    from rich.markup import escape
    from rich.table import Table

    from headcount.posterior._frames import SUMMARY

    labels = [c for c in frame.columns if c not in SUMMARY]
    table = Table(
        title=f"the largest, with {level:.0%} intervals", title_justify="left", box=None, pad_edge=False
    )
    for name in labels:
        table.add_column(name)
    for name in ("mean", "median", "interval"):
        table.add_column(name, justify="right")
    for row in frame.itertuples(index=False):
        cells = row._asdict()
        spread = cells["lower"] == cells["lower"]
        ends = f"{cells['lower']:.0f} … {cells['upper']:.0f}" if spread else "none"
        median = f"{cells['median']:.0f}" if spread else "none"
        table.add_row(*(escape(_label(cells[n])) for n in labels), f"{cells['mean']:.1f}", median, ends)
    return table


def _label(value: Any) -> str:
    text = str(value)
    return text.removesuffix(" 00:00:00")


def show_weights(made: Fit, table: pd.DataFrame, level: float) -> None:
    """How learning went, and every weight with its interval."""
    from rich.markup import escape
    from rich.table import Table

    out = console()
    colour = "green" if made.status.good else "red"
    out.print(
        f"[bold {colour}]{made.status.value}[/]  fit by {made.method} with {made.engine}, {made.e_steps} E-steps, "
        f"{made.seconds:.2g} s, log evidence {made.evidence:.6g}",
        soft_wrap=True,
    )
    shown = Table(
        title=f"weights, with {level:.0%} intervals", title_justify="left", box=None, pad_edge=False
    )
    for name in ("feature", "weight", "standard error", "interval"):
        shown.add_column(name, justify="left" if name == "feature" else "right")
    for row in table.to_dict("records"):
        shown.add_row(
            escape(str(row["feature"])),
            f"{row['weight']:.4f}",
            f"{row['standard_error']:.4f}",
            f"{row['lower']:.3f} … {row['upper']:.3f}",
        )
    out.print()
    out.print(shown)
    out.print()


def show_notes(notes: Sequence[str]) -> None:
    """What was decided for the user."""
    from rich.markup import escape

    said = [n for n in notes if n]
    if said:
        out = console()
        out.print()
        for note in said:
            out.print(f"[yellow]note[/] {escape(note)}", soft_wrap=True)


def show_files(files: Sequence[Path], *, good: bool) -> None:
    """What was written, how large, and what to do next."""
    from rich.markup import escape
    from rich.table import Table

    out = console()
    table = Table(box=None, pad_edge=False, show_header=False)
    for path in files:
        meaning = _MEANING.get(path.name, _MEANING.get(path.stem, ""))
        table.add_row(f"  {path.name}", readable_bytes(path.stat().st_size), meaning)
    out.print(f"\nwritten to {escape(str(files[0].parent))}", soft_wrap=True)
    out.print(table)
    older = sorted(p.name for p in _left_over(files))
    if older:
        out.print(
            f"[yellow]note[/] from an earlier run, and not of this one: {escape(', '.join(older))}",
            soft_wrap=True,
        )
    if good and any(path.name == "posterior.nc" for path in files):
        out.print(f"\nnext: headcount report {escape(str(files[0].parent))}", soft_wrap=True)


def _left_over(files: Sequence[Path]) -> list[Path]:
    """Files of the names we use that lie in the same folder but were not written now."""
    names = [name if "." in name else f"{name}.{end}" for name in _MEANING for end in ("csv", "parquet")]
    folder = files[0].parent
    known = {folder / name for name in (*names, "report.html")}
    return [path for path in known - set(files) if path.exists()]


def show_plan(plan: Plan, limit: int | None, free: int | None) -> None:
    """Engine, memory and time before anything runs."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("engine", f"[bold]{plan.engine}[/]")
    table.add_row("why", escape(plan.reason))
    table.add_row(
        "memory",
        f"about {readable_bytes(plan.memory)} to infer, {readable_bytes(plan.writing)} to write with all flows",
    )
    table.add_row("limit", "none" if limit is None else readable_bytes(limit))
    table.add_row("free", "unknown" if free is None else readable_bytes(free))
    table.add_row(
        "time", "no estimate" if plan.seconds != plan.seconds else f"about {_duration(plan.seconds)}"
    )
    console().print(table)


def _duration(seconds: float) -> str:
    if seconds < 1:
        return "a second"
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.0f} seconds"
