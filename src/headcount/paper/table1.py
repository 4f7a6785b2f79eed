"""Table 1: relative error against the size of the population.

Source: Liu, Sheldon and Dietterich (ICML 2014), Section 5, Table 1.

Settings: the birds on L = 36 cells, w = (1, 2, 2, 2), N ∈ {36, 360, 1080, 3600}, T = 20, Poisson counts of unit
intensity, 10 data sets each.
Seeds: (20140621, ℓ, 1000·w₁, N, T, data set, stream).

Deviations: the features are those of the published simulator (the paper prints no formulas); winds are drawn anew for every data
set; the reference is `PathGibbs`, with the paper's 11 million moves beside it (twice on three data sets of every setting); MAP is
solved to convergence; GCGM is computed as the joint mode (`Laplace`), the fixed point of the paper's sweeps, with `EdgeEP` run on
three data sets of every setting as proof.

Duration: about 11 CPU minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.paper import _accuracy, printed
from headcount.paper._comparison import table_section
from headcount.paper._tables import Table, build
from headcount.paper._task import Setting, Task

if TYPE_CHECKING:
    import pandas as pd

POPULATIONS = (36, 360, 1080, 3600)
SETTINGS = tuple(Setting(6, 1.0, n) for n in POPULATIONS)
CAPTION = "Relative error of node counts (N) and edge counts (E) for different population sizes"


def plan(*, quick: bool = False) -> list[Task]:
    """All tasks."""
    return _accuracy.plan(SETTINGS, quick=quick)


def table(frame: pd.DataFrame) -> Table:
    """The table, from stored results."""
    columns = [str(n) for n in POPULATIONS]
    return build("table1", CAPTION, "N =", columns, SETTINGS, printed.TABLE1, frame)


def section(frame: pd.DataFrame, *, quick: bool = False) -> str:
    """Its part of the comparison page."""
    return table_section(table(frame), frame, quick=quick)
