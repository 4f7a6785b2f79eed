"""Table 3: relative error against the size of the map.

Source: Liu, Sheldon and Dietterich (ICML 2014), Section 5, Table 3.

Settings: the birds on L ∈ {16, 25, 36, 49} cells, N = 30 L, w = (1, 2, 2, 2), T = 20, 10 data sets each. The third
column is Table 1's third,
computed once.
Seeds: (20140621, ℓ, 1000·w₁, N, T, data set, stream).

Deviations: those of Table 1.

Duration: about 10 CPU minutes, a third of them shared with Table 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.paper import _accuracy, printed
from headcount.paper._comparison import table_section
from headcount.paper._tables import Table, build
from headcount.paper._task import Setting, Task

if TYPE_CHECKING:
    import pandas as pd

SIDES = (4, 5, 6, 7)
SETTINGS = tuple(Setting(side, 1.0, 30 * side**2) for side in SIDES)
CAPTION = "Relative error of node counts (N) and edge counts (E) for different sizes of the map"


def plan(*, quick: bool = False) -> list[Task]:
    """All tasks."""
    return _accuracy.plan(SETTINGS, quick=quick)


def table(frame: pd.DataFrame) -> Table:
    """The table, from stored results."""
    columns = [str(side**2) for side in SIDES]
    return build("table3", CAPTION, "L =", columns, SETTINGS, printed.TABLE3, frame)


def section(frame: pd.DataFrame, *, quick: bool = False) -> str:
    """Its part of the comparison page."""
    return table_section(table(frame), frame, quick=quick)
