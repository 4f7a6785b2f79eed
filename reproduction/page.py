"""The comparison page: for every printed number ours, the difference in standard errors, and a sentence where the two disagree.

difference = (ours − printed) / √(sd_ours²/n_ours + sd_printed²/10)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from reproduction.tables import (
    APART,
    FLOOR,
    NOISY,
    OFF,
    OURS,
    OWN,
    PRINTED,
    SYMBOL,
    Cell,
    Table,
    build,
    to_markdown,
)

if TYPE_CHECKING:
    import pandas as pd

AGREES = 2.0
"""Standard errors within which two means agree."""


@dataclass(frozen=True, eq=False)
class Part:
    """One experiment that has results."""

    name: str
    module: ModuleType
    frame: pd.DataFrame


def is_table(name: str) -> bool:
    """Whether an experiment is a table of the paper; the others are figures."""
    return name.startswith("table")


def difference(ours: Cell, printed: Cell) -> float:
    """(ours − printed) in standard errors of the difference."""
    spread = math.hypot(ours.standard_error if ours.count > 1 else 0.0, printed.standard_error)
    return (ours.mean - printed.mean) / spread


def implied_noise(ours: Cell, printed: Cell) -> float:
    """√(printed² − ours²): the noise of a reference that would turn our error into the printed one; 0 where ours is larger."""
    return math.sqrt(max(printed.mean**2 - ours.mean**2, 0.0))


def remark(method: str, ours: Cell, printed: Cell, *, noise: float, off: Cell | None) -> str:
    """One sentence on a disagreement; nothing when the numbers agree.

    Parameters
    ----------
    method, ours, printed
        Which row, and its two numbers.
    noise
        The noise of the paper's reference that the GCGM row of the same column implies.
    off
        Distance of one run of single moves from the posterior mean.
    """
    if abs(difference(ours, printed)) <= AGREES:
        return ""
    if ours.mean > printed.mean:
        return "Ours is higher; the paper prints no formulas for its features, which may differ from ours."
    needed, times = implied_noise(ours, printed), printed.mean / ours.mean
    if method == "MAP" and needed > 1.2 * noise:
        room = f"the noise that the GCGM row implies (about {_short(noise)}) is too small to explain it"
        if noise == 0:
            room = "our GCGM is not below the printed one, which leaves no room for noise"
        return (
            f"Solved to convergence (by its dual, and by NLBP), the same objective errs "
            f"{times:.{0 if times >= 10 else 1}f} times less, and "
            f"{room}: what is printed is not its optimum."
        )
    if method == "MAP":
        return (
            f"Ours is lower; noise of about {_short(needed)} in the paper's reference, no more than the GCGM row implies, "
            "would explain it."
        )
    text = f"Ours is lower; noise of about {_short(needed)} in the paper's reference would explain it"
    return text + ("." if off is None else f" (a run of 11 million single moves leaves {_short(off.mean)}).")


def table_section(table: Table, frame: pd.DataFrame, *, quick: bool) -> str:
    """One table: all lines, then every printed number against ours."""
    out = [to_markdown(table), "Every printed number, ours, and the difference in standard errors:", ""]
    out += [f"| {table.header} | row | printed | ours | difference | remark |", "|---|---|---|---|---|---|"]
    for k, column in enumerate(table.columns):
        for line in (x for x in table.lines if x.group == PRINTED):
            printed = line.cells[k]
            ours = table.line(OURS, line.method, line.table).cells[k]
            off = table.line(FLOOR, OFF, line.table).cells[k]
            assert printed is not None
            if ours is None:
                out.append(f"| {column} | {line.label} | {printed.text()} | — | — | not computed |")
                continue
            gcgm = [table.line(group, "GCGM", line.table).cells[k] for group in (OURS, PRINTED)]
            noise = 0.0 if gcgm[0] is None or gcgm[1] is None else implied_noise(gcgm[0], gcgm[1])
            said = remark(line.method, ours, printed, noise=noise, off=None if quick else off)
            gap = difference(ours, printed)
            out.append(
                f"| {column} | {line.label} | {printed.text()} | {ours.text()} | {gap:+.1f} | {said or 'agrees'} |"
            )
    found = [*_agreement(frame), *_convergence(frame), *_references(frame), *_below_zero(frame)]
    return "\n".join([*out, "", *found, ""]) + "\n"


def _values(frame: pd.DataFrame, kind: str, quantity: str) -> pd.Series:
    return frame[(frame["kind"] == kind) & (frame["quantity"] == quantity)]["value"]


def _agreement(frame: pd.DataFrame) -> list[str]:
    nodes, edges = (_values(frame, "agreement", f"apart_{table}") for table in ("node", "edge"))
    if nodes.empty:
        return []
    return [
        f"* The paper's sweeps (`EdgeEP`) and the joint mode (`Laplace`) differ by at most {nodes.max():.1e}·N at the nodes and "
        f"{edges.max():.1e}·N at the edges, over {len(nodes)} data sets."
    ]


def _convergence(frame: pd.DataFrame) -> list[str]:
    part = frame[(frame["kind"] == "errors") & (frame["quantity"] == "converged")]
    if part.empty:
        return []
    missed = part[part["value"] < 1].groupby("engine", observed=True).size()
    if missed.empty:
        return [f"* Every engine converged on every data set ({len(part)} runs)."]
    return [
        "* Runs that did not converge: "
        + ", ".join(f"{name} {count}" for name, count in missed.items())
        + "."
    ]


def _references(frame: pd.DataFrame) -> list[str]:
    ratio, burn = _values(frame, "reference", "r_hat"), frame[frame["quantity"] == "burn_in"]
    out = []
    if not ratio.empty:
        out.append(f"* Largest R-hat of a node count over all references: {ratio.max():.3f}.")
    if not burn.empty:
        asked = burn["value"].min()
        longer = burn[burn["value"] > asked]
        if len(longer):
            worst = longer.groupby("population", observed=True)["value"].agg(["max", "size"])
            said = "; ".join(
                f"N = {n}: {int(row['size'])} runs, up to {row['max'] / 1e6:g} million"
                for n, row in worst.iterrows()
            )
            out.append(
                f"* {asked / 1e6:g} million moves of burn-in, started from a draw of the model, did not reach a "
                f"table that the data allow in "
                f"{len(longer)} of {len(burn)} runs; these were burnt in for longer ({said})."
            )
    return out


def _below_zero(frame: pd.DataFrame) -> list[str]:
    part = frame[(frame["kind"] == "errors") & (frame["quantity"] == "lowest")]
    low = part.groupby("engine", observed=True)["value"].min()
    bad = low[low < -1e-9]
    if bad.empty:
        return []
    return [
        "* Lowest expected count: "
        + ", ".join(f"{name} {value:.2f}" for name, value in bad.items())
        + "; the other engines' are ≥ 0."
    ]


def _short(value: float) -> str:
    return f"{value:.2g}".lstrip("0")


def comparison(
    parts: Sequence[Part], facts: Mapping[str, Any], *, errata: str = "the errata of the documentation"
) -> str:
    """The whole page, in Markdown; figures are expected in ``figures/`` beside it, `errata` is the text of a link."""
    out = ["# The paper, reproduced", "", _introduction(facts, errata), ""]
    quick = facts["scale"] == "quick"
    tables = {part.name: build(part.module.LAYOUT, part.frame) for part in parts if is_table(part.name)}
    if tables:
        out += ["## What the tables show", "", *_summary(list(tables.values()), quick=quick), ""]
    for part in parts:
        about = facts["experiments"][part.name]["about"]
        out += [f"## {about['Title'].rstrip('.')}", ""]
        if part.name in tables:
            out.append(table_section(tables[part.name], part.frame, quick=quick))
        else:
            out += [f"![{part.module.CAPTION}](figures/{part.name}.svg)", "", part.module.section(part.frame)]
        out += [f"*{name}.* {about[name]}\n" for name in ("Settings", "Deviations") if name in about]
    return "\n".join(out).rstrip() + "\n"


def _commits(runs: Sequence[Mapping[str, Any]]) -> str:
    """At which commits results were computed, in order."""
    names = list(dict.fromkeys(f"`{run['commit'][:12]}`" for run in runs))
    if len(names) == 1:
        return f"at commit {names[0]}"
    return f"in {len(runs)} runs at commits {', '.join(names)} (the manifest says what each computed)"


def _introduction(facts: Mapping[str, Any], errata: str) -> str:
    machine = facts["hardware"]
    scale = (
        "This is the **quick** version: two data sets and a short reference, so every number is rough. "
        if facts["scale"] == "quick"
        else ""
    )
    return (
        "Every experiment of *Gaussian Approximation of Collective Graphical Models* (Liu, Sheldon and Dietterich, "
        "ICML 2014), run again, with the "
        f"printed numbers beside ours. {scale}This page is written by `python -m reproduction`; nothing in it is typed by hand. "
        f"It took {facts['cpu_seconds'] / 60:.0f} CPU minutes on {machine['processor']} ({machine['cores']} cores), "
        f"{_commits(facts['runs'])}.\n\n"
        "*Printed* is the paper. *GCGM* is the paper's method: `Laplace`, the joint mode to which its edge-by-edge "
        "sweeps (`EdgeEP`) converge. "
        "*MAP* is solved to convergence. *TiltedEP* is this library's default. Errors are ‖n − n_ref‖₁ / ‖n_ref‖₁, "
        "mean ± standard deviation over data sets; "
        "(N) node counts, (E) edge counts. The reference is `PathGibbs`; its Monte-Carlo floor is the error that a perfect "
        "answer would be measured to have. *The paper's reference* is one million moves of burn-in and ten million "
        "averaged of the Markov-basis sampler (`Gibbs`)"
        + (", here 0.1 and 0.4 million" if facts["scale"] == "quick" else "")
        + f". What the paper prints differently from what is right: {errata}."
    )


def _summary(tables: Sequence[Table], *, quick: bool) -> list[str]:
    """The two promises about TiltedEP, cell by cell, and the references' noise."""
    cells = [
        (f"{t.name}, {t.header} {c} ({SYMBOL[kind]})", t, kind, k)
        for t in tables
        for kind in SYMBOL
        for k, c in enumerate(t.columns)
    ]
    above, large, count = [], [], 0
    buried, rival_floor = 0, 0.0
    for where, t, kind, k in cells:
        ours, rival = (t.line(OURS, name, kind).cells[k] for name in ("TiltedEP", "MAP"))
        printed = t.line(PRINTED, "GCGM", kind).cells[k]
        floor = t.line(FLOOR, OWN, kind).cells[k]
        if ours is None or rival is None or floor is None:
            continue
        assert printed is not None
        count += 1
        if ours.mean > rival.mean:
            gap = ours.mean - rival.mean
            above.append(
                f"{where} (by {_short(gap)}, {100 * gap / rival.mean:.1f} %, with a floor of {_short(floor.mean)})"
            )
        if ours.mean > printed.mean / 3:
            large.append(f"{where} ({ours.text()} against {printed.text()})")
        buried += floor.mean > 0.5 * ours.mean
        rival_floor = max(rival_floor, floor.mean / rival.mean)
    return [
        f"* `TiltedEP` is at or below converged MAP in {count - len(above)} of {count} cells"
        + (". Above: " + "; ".join(above) + "." if above else "."),
        f"* `TiltedEP` is at most a third of the printed GCGM error in {count - len(large)} of {count} cells"
        + (". Larger: " + "; ".join(large) + "." if large else "."),
        f"* The reference's Monte-Carlo floor is at most {rival_floor:.2f} of converged MAP's error. In {buried} of "
        f"{count} cells it is more than half of "
        "`TiltedEP`'s: there the number is mostly the reference's own noise, and `TiltedEP` is nearer to the "
        "posterior mean than it says.",
        *([] if quick else _noise(tables)),
    ]


def _noise(tables: Sequence[Table]) -> list[str]:
    """What the paper's own reference does to the numbers."""
    beyond, total, hidden = 0, 0, 0
    for t in tables:
        for kind in SYMBOL:
            for k in range(len(t.columns)):
                off, apart = (t.line(FLOOR, name, kind).cells[k] for name in (OFF, APART))
                printed = t.line(PRINTED, "GCGM", kind).cells[k]
                exact, noisy = (t.line(group, "GCGM", kind).cells[k] for group in (OURS, NOISY))
                if off is None or apart is None or exact is None or noisy is None or printed is None:
                    continue
                total += 1
                beyond += off.mean > printed.mean
                hidden += noisy.mean > 2 * exact.mean
    if not total:
        return []
    return [
        f"* One run of the paper's reference, as single moves of the Markov basis, lies further from the posterior "
        f"mean than the printed GCGM error in {beyond} of "
        f"{total} cells, and measured against it the GCGM error more than doubles in {hidden}. So an iteration of "
        f"the paper's sampler must have done more than "
        "one such move; what noise its reference kept is in its printed errors."
    ]
