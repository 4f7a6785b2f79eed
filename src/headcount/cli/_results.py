"""Commands on finished runs: compare, export, animate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount._atomic import OutputError, check_file, check_folder
from headcount.cli._show import say, show_files, show_notes, tell, wrote

if TYPE_CHECKING:
    from pathlib import Path


def run_compare(first: Path, second: Path, out: Path, *, title: str | None, force: bool) -> None:
    """Write the tables and the page of a comparison, and say what differs."""
    from headcount.report import compare

    check_folder(out)
    found, files = compare(first, second, out, title=title, force=force)
    clear = int(found.nodes["clear"].sum()), int(found.flows["clear"].sum())
    say(f"{clear[0]} of {len(found.nodes)} counts and {clear[1]} of {len(found.flows)} flows clearly differ")
    if found.evidence is not None:
        say(f"log evidence of the second less the first: {found.evidence:.2f}")
    tell(counts_differ=clear[0], flows_differ=clear[1], log_evidence=found.evidence)
    show_notes(found.notes)
    wrote(out)
    show_files(files, good=False)


def run_export(results: Path, *, to: str, min_flow: float, out: Path | None, force: bool) -> None:
    """Write a finished run for another program."""
    from headcount.io import export

    folder = out if out is not None else (results if results.is_dir() else results.parent) / "export"
    check_folder(folder)
    files = export(results, folder, to=to, min_flow=min_flow, force=force)
    wrote(folder)
    show_files(files, good=False)


def run_animate(
    results: Path, out: Path | None, *, largest: int, frames: int, speed: float, force: bool
) -> None:
    """Write an animated map and say where it is."""
    from headcount.io import load_result
    from headcount.plot import animate

    target = out if out is not None else (results if results.is_dir() else results.parent) / "moves.gif"
    check_file(target)
    if target.exists() and not force:
        raise OutputError(
            f"{target}: this file is there already: give another name, or overwrite it with --force"
        )
    made = animate(load_result(results), target, largest=largest, frames=frames, speed=speed)
    tell(film=str(made))
    say(str(made))
