"""Observed against inferred, cell by cell over time, with the interval as a band."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.plot._accessor import takes_results
from headcount.plot._frames import chosen, level_of, percent, printed, require
from headcount.plot._picture import BLUE, VERMILION, Picture, look, panels

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    import pandas as pd
    from matplotlib.axes import Axes

MOST_CELLS = 12
"""What fits a page in three rows of four."""


@takes_results("nodes")
def observed_against_inferred(
    nodes: pd.DataFrame,
    *,
    cells: Iterable[Hashable] | None = None,
    level: float | None = None,
    rate: float | Sequence[float] | None = None,
) -> Picture:
    """Mean and interval of the count over time, one panel per cell, with what was observed as dots.

    Times that nobody observed have no dot. A hollow dot stands where the interval is not reliable. Counts are divided by the ``rate``, so
    that both are numbers of individuals.

    Parameters
    ----------
    nodes : frame
        ``time, cell, observed, mean, lower, upper, reliable``.
    cells : iterable, optional
        Which cells; the twelve fullest if left out.
    rate : float or one per row, optional
        Counts that one individual is expected to give (``Result.attributes["counts_per_individual"]``); 1 if left out.

    Returns
    -------
    Picture
        ``numbers``: the rows drawn, cell by cell in the order of the panels.
    """
    columns = ["time", "cell", "observed", "mean", "lower", "upper", "reliable"]
    require(nodes, columns, name="nodes")
    level = level_of(nodes, level)
    scaled = rate is not None and bool(np.any(np.asarray(rate, dtype=float) != 1))
    if rate is not None:
        nodes = nodes.assign(observed=nodes["observed"] / np.asarray(rate, dtype=float))
    totals = nodes.groupby("cell", sort=False)["mean"].sum().sort_values(ascending=False, kind="stable")
    known = totals.index.tolist()
    shown = known[:MOST_CELLS] if cells is None else chosen(cells, known, what="cells", most=len(known))
    import pandas as pd

    numbers = pd.concat([nodes.loc[nodes["cell"] == cell, columns] for cell in shown], ignore_index=True)
    with look():
        figure, grid = panels(len(shown), columns=4, width=2.6, height=1.9, sharex=True)
        position = _positions(nodes["time"].unique())
        for cell, axes in zip(shown, grid, strict=True):
            _draw(axes, numbers[numbers["cell"] == cell], position, level, scaled)
            axes.set_title(f"cell {printed(cell)}")
        handles, texts = grid[0].get_legend_handles_labels()
        figure.legend(handles, texts, loc="outside lower center", ncols=len(texts))
        figure.supylabel("individuals", fontsize=10)
        for axes in grid[-min(4, len(grid)) :]:
            axes.set_xlabel("time")
            axes.tick_params(labelbottom=True)
        part = "all cells" if len(shown) == len(known) else f"{len(shown)} of {len(known)} cells"
        which = ", the fullest" if cells is None and len(shown) < len(known) else ""
        figure.suptitle(f"Observed and inferred counts: {part}{which}")
    return Picture(figure, numbers)


def _positions(times: Any) -> dict[Any, Any]:
    """Where each time stands on the axis: numbers and dates where they are, anything else in order."""
    values = np.asarray(times)
    if values.dtype.kind in "iufM":
        return dict(zip(times.tolist(), values, strict=True))
    return {time: k for k, time in enumerate(values.tolist())}


def _draw(axes: Axes, rows: pd.DataFrame, position: dict[Any, Any], level: float, scaled: bool) -> None:
    times = rows["time"].tolist()
    x = np.array([position[t] for t in times])
    banded = rows["lower"].notna().to_numpy()
    if banded.any():
        axes.fill_between(
            x,
            rows["lower"],
            rows["upper"],
            where=banded,
            color=BLUE,
            alpha=0.22,
            linewidth=0,
            label=f"{percent(level)} interval",
        )
    axes.plot(x, rows["mean"], color=BLUE, label="mean")
    sure = rows["reliable"].to_numpy(dtype=bool)
    style: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 3.6, "color": VERMILION}
    seen = "observed ÷ rate" if scaled else "observed"
    axes.plot(x[sure], rows["observed"].to_numpy()[sure], label=seen, **style)
    hollow = style | {"markerfacecolor": "white", "markeredgewidth": 0.9}
    axes.plot(x[~sure], rows["observed"].to_numpy()[~sure], label=f"{seen}, interval not reliable", **hollow)
    axes.set_ylim(bottom=min(0.0, float(np.nanmin(rows[["lower", "mean"]].to_numpy()))))
    axes.margins(x=0.02)
    if x.dtype.kind == "M":
        _date_axis(axes)
    elif not all(isinstance(t, (int, float)) for t in times):
        step = max(1, len(times) // 5)
        axes.set_xticks(x[::step], [printed(t) for t in times[::step]])
    else:
        axes.locator_params(axis="x", nbins=5, integer=all(isinstance(t, int) for t in times))
    axes.locator_params(axis="y", nbins=4)


def _date_axis(axes: Axes) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(maxticks=5)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
