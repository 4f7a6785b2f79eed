"""Tables as CSV, Markdown and LaTeX, ours beside the printed numbers, from stored results."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reproduction import printed
from reproduction.tasks import Setting

if TYPE_CHECKING:
    import pandas as pd

SYMBOL = {"node": "N", "edge": "E"}


@dataclass(frozen=True)
class Cell:
    """mean ± sd over `count` data sets."""

    mean: float
    sd: float
    count: int

    @property
    def standard_error(self) -> float:
        """sd / √count."""
        return self.sd / math.sqrt(self.count)

    def text(self, *, plus_minus: str = " ± ") -> str:
        """As the paper prints it, with one digit more where the numbers are small."""
        digits = 3 if self.mean >= 0.01 else 4
        mean, sd = (f"{v:.{digits}f}".lstrip("0") for v in (self.mean, self.sd))
        return f"{mean}{plus_minus}{sd}" if self.count > 1 else mean


@dataclass(frozen=True)
class Line:
    """One row of a table: a method's node or edge numbers, printed or ours."""

    group: str
    method: str
    table: str
    cells: tuple[Cell | None, ...]

    @property
    def label(self) -> str:
        """As the paper labels its rows."""
        return f"{self.method} ({SYMBOL[self.table]})"


@dataclass(frozen=True)
class Table:
    """A table of the paper with our lines under the printed ones."""

    name: str
    caption: str
    header: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]

    def line(self, group: str, method: str, table: str) -> Line:
        """The line of a group, method and kind of count."""
        (found,) = (x for x in self.lines if (x.group, x.method, x.table) == (group, method, table))
        return found


PRINTED, OURS, NOISY, FLOOR = (
    "printed",
    "ours",
    "ours, against the paper's reference",
    "noise of the references",
)
NAMES = {"MAP": "MAP", "Laplace": "GCGM", "NLBP": "NLBP", "TiltedEP": "TiltedEP"}
"""Engines by the names the lines carry; `Laplace` is the paper's GCGM."""
OWN = "Monte-Carlo floor of PathGibbs"
APART = "two of the paper's references apart"
OFF = "one of the paper's references from PathGibbs"


@dataclass(frozen=True)
class Layout:
    """What a table of the paper shows: one column per setting, with the printed numbers."""

    name: str
    caption: str
    header: str
    columns: tuple[str, ...]
    settings: tuple[Setting, ...]
    printed: printed.Rows


def build(layout: Layout, frame: pd.DataFrame) -> Table:
    """The table, from the stored results of its settings."""
    lines = [
        Line(PRINTED, method, table, tuple(Cell(mean, sd, printed.RUNS) for mean, sd in cells))
        for (method, table), cells in layout.printed.items()
    ]

    def ours(group: str, method: str, kind: str, engine: str, quantity: str) -> None:
        for table in SYMBOL:
            cells = tuple(cell(frame, kind, s, engine, f"{quantity}_{table}") for s in layout.settings)
            lines.append(Line(group, method, table, cells))

    for group, quantity in ((OURS, "error"), (NOISY, "gibbs_error")):
        for engine, method in NAMES.items():
            ours(group, method, "errors", engine, quantity)
    ours(FLOOR, OWN, "reference", "PathGibbs", "floor")
    ours(FLOOR, APART, "gibbs noise", "", "apart")
    ours(FLOOR, OFF, "gibbs noise", "", "off")
    return Table(layout.name, layout.caption, layout.header, layout.columns, tuple(lines))


def cell(frame: pd.DataFrame, kind: str, setting: Setting, engine: str, quantity: str) -> Cell | None:
    """Mean and standard deviation over data sets; None where there is no result."""
    part = frame[
        (frame["kind"] == kind)
        & (frame["cells"] == setting.cells)
        & (frame["population"] == setting.population)
        & (frame["weight"] == setting.weight)
        & (frame["engine"] == engine)
        & (frame["quantity"] == quantity)
    ]["value"]
    if part.empty:
        return None
    return Cell(float(part.mean()), float(part.std(ddof=1)) if len(part) > 1 else math.nan, len(part))


def to_markdown(table: Table) -> str:
    """A Markdown table, groups as rows of their own."""
    out = [f"| {table.header} | " + " | ".join(table.columns) + " |"]
    out.append("|---|" + "---|" * len(table.columns))
    group = ""
    for line in table.lines:
        if line.group != group:
            group = line.group
            out.append(f"| **{group}** |" + " |" * len(table.columns))
        cells = " | ".join("—" if c is None else c.text() for c in line.cells)
        out.append(f"| {line.label} | {cells} |")
    return "\n".join(out) + "\n"


def to_latex(table: Table) -> str:
    """A LaTeX table like the paper's."""
    out = [
        r"\begin{table}[ht]",
        rf"\caption{{{table.caption}}}",
        r"\centering",
        rf"\begin{{tabular}}{{l{'c' * len(table.columns)}}}",
        r"\hline",
        f"{_tex(table.header)} & " + " & ".join(_tex(c) for c in table.columns) + r" \\",
    ]
    group = ""
    for line in table.lines:
        if line.group != group:
            group = line.group
            out += [r"\hline", rf"\multicolumn{{{1 + len(table.columns)}}}{{l}}{{\emph{{{group}}}}} \\"]
        cells = " & ".join("---" if c is None else c.text(plus_minus=r"$\pm$") for c in line.cells)
        out.append(rf"{line.label} & {cells} \\")
    return "\n".join([*out, r"\hline", r"\end{tabular}", r"\end{table}"]) + "\n"


def to_csv(table: Table) -> str:
    """One row per number: group, method, table, column, mean, sd, count."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["table", "group", "method", "counts", "column", "mean", "sd", "data_sets"])
    for line in table.lines:
        for column, c in zip(table.columns, line.cells, strict=True):
            values = ("", "", 0) if c is None else (f"{c.mean:.6g}", f"{c.sd:.6g}", c.count)
            writer.writerow([table.name, line.group, line.method, line.table, column, *values])
    return text.getvalue()


def _tex(text: str) -> str:
    """Plain headers as LaTeX."""
    for plain, tex in (("w₀.₅", r"$\mathbf{w}_{0.5}$"), ("w₁", r"$\mathbf{w}_1$"), ("w₂", r"$\mathbf{w}_2$")):
        text = text.replace(plain, tex)
    return text


FORMATS = {"md": to_markdown, "tex": to_latex, "csv": to_csv}
"""Writers by the suffix of their file."""
