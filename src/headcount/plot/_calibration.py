"""Calibration: how often intervals contain the truth, as a table and as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.plot._frames import printed, require
from headcount.plot._picture import CYCLE, GREY, Picture, look, new_figure

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import pandas as pd

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_MARKS = ("o", "s", "^", "D", "v", "P")


def coverage(
    frame: pd.DataFrame,
    truth: Any,
    *,
    levels: Sequence[float] = LEVELS,
    population: int | None = None,
    group: Hashable = "intervals",
) -> pd.DataFrame:
    """How often the central intervals of a frame contain the truth: covered(l) = #{lower_l ≤ n ≤ upper_l} / #.

    Parameters
    ----------
    frame : frame
        ``mean, sd``: rows of ``Result.nodes`` or ``Result.flows``. Rows whose sd is 0 or missing are left out.
    truth : array_like
        The true count n of every row.
    levels : sequence of float
    population : int, optional
        N: the intervals are whole numbers between 0 and N, as the library's own; without it they are Gaussian.
    group : label
        Goes into the column of that name, so that several tables can be put together.

    Returns
    -------
    DataFrame
        ``group, nominal, covered, cases``, as `calibration` draws it.

    Examples
    --------
    >>> import pandas as pd
    >>> coverage(pd.DataFrame({"mean": [0.0, 0.0], "sd": [1.0, 1.0]}), [0.5, 3.0], levels=[0.9])
           group  nominal  covered  cases
    0  intervals      0.9      0.5      2
    """
    import pandas as pd

    from headcount.posterior._interval import gaussian_quantile, tails, whole_quantiles

    require(frame, ["mean", "sd"], name="nodes")
    n = np.asarray(truth, dtype=float)
    if n.shape != (len(frame),):
        message = f"truth must have one number per row, shape ({len(frame)},), got {n.shape}"
        raise ValueError(message)
    kept = (frame["sd"] > 0).to_numpy() & np.isfinite(n)
    mean, variance, n = frame["mean"].to_numpy()[kept], frame["sd"].to_numpy()[kept] ** 2, n[kept]
    if not kept.any():
        message = "no row has a standard deviation above zero and a truth, so no interval can be judged"
        raise ValueError(message)

    covered = []
    for level in levels:
        if population is None:
            lower, upper = (gaussian_quantile(mean, variance, q) for q in tails(level))
        else:
            lower, upper = whole_quantiles(mean, variance, float(population), tails(level))
        covered.append(float(np.mean((lower <= n) & (n <= upper))))
    return pd.DataFrame({"group": group, "nominal": list(levels), "covered": covered, "cases": len(n)})


def calibration(table: pd.DataFrame) -> Picture:
    """Covered against nominal, one line per group; on the diagonal, intervals contain the truth as often as they say.

    The bars are 95 % intervals of the share covered c for that many independent cases: ±1.96·√(c(1−c)/cases).
    Cells of one population are not independent, so the true bars are wider.

    Parameters
    ----------
    table : frame
        ``nominal, covered, cases[, group]``, as `coverage` makes it; several of them concatenated give several lines.

    Returns
    -------
    Picture
        ``numbers``: ``group, nominal, covered, cases, error``.
    """
    require(table, ["nominal", "covered", "cases"], name="table")
    groups = table.get("group", "intervals")
    c = table["covered"].to_numpy(dtype=float)
    error = 1.96 * np.sqrt(c * (1 - c) / table["cases"].to_numpy(dtype=float))
    numbers = table.assign(group=groups, error=error)[["group", "nominal", "covered", "cases", "error"]]
    with look():
        figure = new_figure(5.0, 5.0)
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=(0, (4, 3)), label="as promised")
        for k, (name, rows) in enumerate(numbers.groupby("group", sort=False)):
            rows = rows.sort_values("nominal")
            axes.errorbar(
                rows["nominal"],
                rows["covered"],
                yerr=rows["error"],
                color=CYCLE[k % len(CYCLE)],
                marker=_MARKS[k % len(_MARKS)],
                markersize=4.5,
                capsize=2,
                elinewidth=1,
                label=printed(name),
            )
        axes.set(xlim=(0, 1.01), ylim=(0, 1.01), aspect="equal")
        axes.set_xlabel("nominal level of the interval (share)")
        axes.set_ylabel("intervals that contain the truth (share)")
        axes.grid(True)
        axes.text(0.04, 0.90, "too wide", color=GREY, transform=axes.transAxes)
        axes.text(0.96, 0.06, "too narrow", color=GREY, ha="right", transform=axes.transAxes)
        axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.88))
        axes.set_title("Calibration of the intervals", loc="left")
    return Picture(figure, numbers.reset_index(drop=True))
