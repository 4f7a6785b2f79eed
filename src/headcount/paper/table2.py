"""Table 2: relative error against the size of the coefficients.

Source: Liu, Sheldon and Dietterich (ICML 2014), Section 5, Table 2.

Settings: the birds on L = 36 cells, N = 1080, w ∈ {(.5, 1, 1, 1), (1, 2, 2, 2), (2, 4, 4, 4)}, T = 20, 10 data sets
each. The middle column
is Table 1's third, computed once.
Seeds: (20140621, ℓ, 1000·w₁, N, T, data set, stream).

Deviations: those of Table 1.

Duration: about 8 CPU minutes, a third of them shared with Table 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.paper import _accuracy, printed
from headcount.paper._comparison import table_section
from headcount.paper._tables import Table, build
from headcount.paper._task import Setting, Task

if TYPE_CHECKING:
    import pandas as pd

SETTINGS = tuple(Setting(6, weight, 1080) for weight in (0.5, 1.0, 2.0))
COLUMNS = ("w₀.₅", "w₁", "w₂")
CAPTION = "Relative error of node counts (N) and edge counts (E) for different coefficients"


def plan(*, quick: bool = False) -> list[Task]:
    """All tasks."""
    return _accuracy.plan(SETTINGS, quick=quick)


def table(frame: pd.DataFrame) -> Table:
    """The table, from stored results."""
    return build("table2", CAPTION, "w =", COLUMNS, SETTINGS, printed.TABLE2, frame)


def section(frame: pd.DataFrame, *, quick: bool = False) -> str:
    """Its part of the comparison page."""
    return table_section(table(frame), frame, quick=quick)
