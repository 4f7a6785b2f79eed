"""Does the model fit, in pictures: the PIT of every count, residuals on the map and over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headcount.plot._accessor import takes_results
from headcount.plot._frames import printed, require, spread
from headcount.plot._picture import BLUE, DIVERGING, GREY, ORANGE, Picture, colour_bar, look, new_figure
from headcount.plot._places import places

if TYPE_CHECKING:
    import pandas as pd

MOST_TICKS = 12
"""Labels of times that fit an axis."""


@takes_results("check")
def pit_histogram(check: pd.DataFrame, *, bins: int = 10) -> Picture:
    """Histogram of the counts' PIT: flat where the model is right, high at both ends where counts scatter more than it allows.

    The band holds 95 % of the bars of independent counts, ±1.96·√(p(1 − p)/K) with p = 1/bins; a model that is right leaves it for
    one bar in twenty.

    Parameters
    ----------
    check : frame
        ``pit``: ``Posterior.fit_check.to_frame()`` or ``Result.check``; or a Posterior or Result itself. Counts without a PIT are left out.
    bins : int
        Bars.

    Returns
    -------
    Picture
        ``numbers``: ``lower, upper, counts, share``.
    """
    require(check, ["pit"], name="check")
    if bins < 2:
        raise ValueError(f"bins must be 2 or more, got {bins}")
    pit = check["pit"].to_numpy(dtype=float)
    pit = pit[np.isfinite(pit)]
    if not len(pit):
        raise ValueError("no count has a PIT, so there is nothing to draw")
    import pandas as pd

    counts, edges = np.histogram(pit, bins=bins, range=(0.0, 1.0))
    numbers = pd.DataFrame(
        {"lower": edges[:-1], "upper": edges[1:], "counts": counts, "share": counts / len(pit)}
    )
    even, width = 1 / bins, 1.96 * np.sqrt((1 - 1 / bins) / bins / len(pit))
    with look():
        figure = new_figure(5.0, 3.2)
        axes = figure.subplots()
        axes.axhspan(max(even - width, 0.0), even + width, color=GREY, alpha=0.18, linewidth=0)
        axes.axhline(even, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
        axes.bar(edges[:-1], numbers["share"], width=1 / bins, align="edge", color=BLUE, edgecolor="white")
        axes.set(xlim=(0, 1))
        axes.set_xlabel("probability of a smaller count, given all others (PIT)")
        axes.set_ylabel("share of the counts")
        axes.set_title(f"Does the model fit? {len(pit)} counts; even where it does", loc="left")
    return Picture(figure, numbers)


@takes_results("check")
def residuals_over_time(check: pd.DataFrame) -> Picture:
    """Every count's residual by time, with their root mean square: 1 where the model is right.

    Parameters
    ----------
    check : frame
        ``time, residual, sd``: ``Result.check``, or ``Posterior.fit_check.to_frame()`` of a chain.

    Returns
    -------
    Picture
        ``numbers``: ``time, residual, scatter``; ``scatter`` is the root mean square of that time.
    """
    require(check, ["time", "residual", "sd"], name="check")
    rows = check[(check["sd"] > 0) & check["time"].notna()]
    if rows.empty:
        raise ValueError("no count has a residual, so there is nothing to draw")
    times = rows["time"].unique().tolist()
    place = {time: k for k, time in enumerate(times)}
    scatter = (rows["residual"] ** 2).groupby(rows["time"], sort=False).mean() ** 0.5
    numbers = rows[["time", "residual"]].assign(scatter=rows["time"].map(scatter)).reset_index(drop=True)
    with look():
        figure = new_figure(7.0, 3.2)
        axes = figure.subplots()
        axes.axhspan(-1.96, 1.96, color=GREY, alpha=0.12, linewidth=0)
        axes.axhline(0.0, color=GREY, linewidth=1)
        x = [place[time] for time in rows["time"]]
        axes.plot(x, rows["residual"], ".", color=BLUE, markersize=4, alpha=0.6, label="one count")
        axes.plot(range(len(times)), scatter.to_numpy(), color=ORANGE, marker="o", label="root mean square")
        axes.axhline(1.0, color=ORANGE, linewidth=1, linestyle=(0, (4, 3)))
        shown = spread(times, MOST_TICKS)
        axes.set_xticks([place[time] for time in shown], [printed(time) for time in shown])
        axes.set_xlabel("time")
        axes.set_ylabel("residual (sds)")
        axes.legend(loc="upper right", ncols=2)
        axes.set_title(
            "Counts less what all others let one expect; grey holds 95 % where the model fits", loc="left"
        )
    return Picture(figure, numbers)


@takes_results("check", "coordinates")
def residual_map(
    check: pd.DataFrame, coordinates: pd.DataFrame, *, geographic: bool | None = None
) -> Picture:
    """Root mean square of every cell's residuals on the map, as a disc: where the model does not fit.

    Colour is the mean residual: more counted than expected, or less.

    Parameters
    ----------
    check : frame
        ``cell, residual, sd``: ``Result.check``, or ``Posterior.fit_check.to_frame()`` of a chain.
    coordinates : frame
        ``cell, x, y`` or ``cell, lon, lat``.
    geographic : bool, optional
        Whether x and y are degrees; columns named lon and lat are.

    Returns
    -------
    Picture
        ``numbers``: ``cell, x, y, scatter, mean, counts``.
    """
    from matplotlib.colors import Normalize

    from headcount.plot._places import discs

    require(check, ["cell", "residual", "sd"], name="check")
    rows = check[(check["sd"] > 0) & check["cell"].notna()]
    if rows.empty:
        raise ValueError("no count has a residual, so there is nothing to draw")
    here = places(coordinates, geographic=geographic)
    by_cell = rows["residual"].groupby(rows["cell"], sort=False)
    numbers = by_cell.agg(
        scatter=lambda e: float(np.sqrt((e**2).mean())), mean="mean", counts="size"
    ).reset_index()
    points = here.of(numbers["cell"].tolist())
    numbers.insert(1, "x", points[:, 0])
    numbers.insert(2, "y", points[:, 1])
    with look():
        figure = new_figure(5.6, 4.6)
        axes = figure.subplots()
        here.prepare(axes, margin=here.spacing)
        most = max(float(np.abs(numbers["mean"]).max()), 1e-9)
        radius = 0.3 * here.spacing * np.minimum(numbers["scatter"].to_numpy(), 3.0)
        drawn = discs(
            axes,
            here.on_map(numbers["cell"].tolist()),
            radius,
            cmap=DIVERGING,
            norm=Normalize(-most, most),
            edgecolors=GREY,
            linewidths=0.6,
        )
        drawn.set_array(numbers["mean"].to_numpy())
        colour_bar(figure, drawn, axes, "mean residual (sds)")
        axes.set_title("Residuals by cell: radius is their scatter, colour their mean", loc="left")
    return Picture(figure, numbers)
