"""Maps of movement: the largest flows as arrows, and what every cell gains and loses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.plot._accessor import takes_results
from headcount.plot._frames import chosen, count_text, level_of, percent, printed, require
from headcount.plot._picture import BLUE, DIVERGING, FAINT, GREY, SKY, Picture, colour_bar, look, new_figure
from headcount.plot._places import arrow, discs, places

if TYPE_CHECKING:
    from collections.abc import Hashable

    import pandas as pd
    from matplotlib.axes import Axes

    from headcount.plot._places import Places

CERTAINTY = {
    "firm": (BLUE, "firm: the interval's lower end is at least half the mean"),
    "open": (SKY, "open: the interval is wider than that"),
    "maybe none": ("#b8b8b8", "maybe none: the interval reaches below one half"),
}
"""Classes of flows by the lower end of their interval: colour and meaning, most certain first."""


@takes_results("flows", "coordinates")
def flow_map(
    flows: pd.DataFrame,
    coordinates: pd.DataFrame,
    *,
    time: Hashable,
    largest: int = 30,
    level: float | None = None,
    geographic: bool | None = None,
) -> Picture:
    """The largest moves that start at `time`, as arrows: width ∝ √mean, colour by how sure they are.

    Those who stay are no arrow; they are in the title. Arrows bend to the left, so that both directions of a pair are seen.

    Parameters
    ----------
    flows : frame
        ``time, origin, dest, mean, lower, upper``; ``time`` is that of departure.
    coordinates : frame
        ``cell, x, y`` or ``cell, lon, lat``.
    time : label
        Time of departure.
    largest : int
        How many arrows at most.

    Returns
    -------
    Picture
        ``numbers``: ``origin, dest, mean, lower, upper, certainty, width``, largest first, one row per arrow.
    """
    require(flows, ["time", "origin", "dest", "mean", "lower", "upper"], name="flows")
    level = level_of(flows, level)
    here = places(coordinates, geographic=geographic)
    chosen([time], flows["time"].unique().tolist(), what="time", most=1)
    rows = flows[flows["time"] == time]
    moves = rows[rows["origin"] != rows["dest"]]
    numbers = _largest(moves, "mean", largest)[["origin", "dest", "mean", "lower", "upper"]]
    numbers = numbers.assign(certainty=certainty(numbers["lower"], numbers["mean"]))
    numbers = numbers.assign(width=_widths(numbers["mean"].to_numpy(), here))
    with look():
        figure = new_figure(6.4, 6.0)
        axes = figure.subplots()
        _dots(axes, here)
        for kind, (colour, _) in reversed(CERTAINTY.items()):
            _arrows(axes, numbers[numbers["certainty"] == kind], here, colour)
        _arrow_legend(axes, numbers, level)
        moved, stayed = float(moves["mean"].sum()), float(rows["mean"].sum() - moves["mean"].sum())
        axes.set_title(
            f"Moves from time {printed(time)}: {count_text(moved)} individuals move, {count_text(stayed)} stay;\n"
            f"{len(numbers)} arrows carry {count_text(float(numbers['mean'].sum()))} of the moves",
            loc="left",
        )
    return Picture(figure, numbers)


@takes_results("flows", "coordinates")
def net_flux_map(
    flows: pd.DataFrame,
    coordinates: pd.DataFrame,
    *,
    time: Hashable | None = None,
    largest: int = 25,
    geographic: bool | None = None,
) -> Picture:
    """What every cell gains, Σ_j f(j, i) − Σ_j f(i, j), and the largest net exchanges f(i, j) − f(j, i).

    Over one step, or the sum over all steps if no `time` is given. Marginal intervals of flows do not give one of a sum, so
    none is drawn; ``Posterior.total`` has it.

    Returns
    -------
    Picture
        ``numbers``: ``cell, x, y, arrivals, departures, net``, one row per cell (those who stay are neither).
    """
    require(flows, ["time", "origin", "dest", "mean"], name="flows")
    here = places(coordinates, geographic=geographic)
    if time is not None:
        chosen([time], flows["time"].unique().tolist(), what="time", most=1)
        flows = flows[flows["time"] == time]
    moves = flows[flows["origin"] != flows["dest"]]
    pairs = moves.groupby(["origin", "dest"], sort=False)["mean"].sum()
    numbers = _net_numbers(moves, here)
    exchange = _exchanges(pairs, largest)
    with look():
        figure = new_figure(6.8, 5.6)
        axes = figure.subplots()
        here.prepare(axes)
        radii = _net_discs(figure, axes, numbers, here)
        exchange = exchange.assign(width=_widths(exchange["mean"].to_numpy(), here, most=0.12))
        _arrows(axes, exchange, here, GREY, alpha=0.6, radii=radii)
        span = "all times" if time is None else f"time {printed(time)} to the next"
        axes.set_title(
            f"Net change of every cell, {span}\n{len(exchange)} largest net exchanges as arrows", loc="left"
        )
    return Picture(figure, numbers)


def certainty(lower: Any, mean: Any) -> np.ndarray:
    """``"maybe none"`` where the interval reaches below ½, ``"firm"`` where its lower end is at least half the mean, else ``"open"``."""
    lower, mean = np.asarray(lower, float), np.asarray(mean, float)
    # NaN (an engine without intervals) compares false both times, which would read as "open": it is no more than that.
    return np.select([lower < 0.5, lower >= mean / 2], ["maybe none", "firm"], "open")


def _largest(rows: pd.DataFrame, column: str, count: int) -> pd.DataFrame:
    if count < 1:
        message = f"largest must be at least 1, got {count!r}"
        raise ValueError(message)
    positive = rows[rows[column] > 0]
    return positive.nlargest(count, column).reset_index(drop=True)


def _widths(means: np.ndarray, here: Places, *, most: float = 0.17) -> np.ndarray:
    """Widths in flat map units: √ of the flow, the largest `most` of the cells' spacing."""
    return most * here.spacing * np.sqrt(means / means.max()) if len(means) else means


def _dots(axes: Axes, here: Places) -> None:
    here.prepare(axes)
    axes.scatter(here.flat[:, 0], here.flat[:, 1], s=14, color=FAINT, linewidths=0, zorder=1)


def _arrows(
    axes: Axes,
    rows: pd.DataFrame,
    here: Places,
    colour: str,
    *,
    alpha: float = 0.85,
    radii: np.ndarray | None = None,
) -> None:
    """Arrows of ``origin, dest, width``, in the order of the rows, from rim to rim where the cells have discs."""
    from matplotlib.collections import PolyCollection

    starts, ends = (here.on_map(rows[name].tolist()) for name in ("origin", "dest"))
    free = np.full(len(here.index), 0.15 * here.spacing)
    if radii is not None:
        free = np.maximum(radii + 0.03 * here.spacing, 0.6 * free)
    shapes = [
        arrow(p, q, width=w, gaps=(free[here.index[i]], free[here.index[j]]))
        for p, q, w, i, j in zip(starts, ends, rows["width"], rows["origin"], rows["dest"], strict=True)
    ]
    # In the order of size, so that small ones lie on large ones and are seen.
    axes.add_collection(
        PolyCollection(shapes, facecolors=colour, edgecolors="white", linewidths=0.4, alpha=alpha, zorder=3)
    )


def _arrow_legend(axes: Axes, numbers: pd.DataFrame, level: float) -> None:
    from matplotlib.patches import Patch

    counts = numbers["certainty"].value_counts()
    handles = [
        Patch(color=colour, alpha=0.8, label=f"{text} ({counts.get(kind, 0)})")
        for kind, (colour, text) in CERTAINTY.items()
    ]
    if len(numbers):
        widest, thinnest = numbers["mean"].iloc[0], numbers["mean"].iloc[-1]
        text = f"width ∝ √flow: widest {count_text(widest)}, thinnest {count_text(thinnest)} individuals"
        handles.append(Patch(color="none", label=text))
    axes.legend(
        handles=handles,
        title=f"{percent(level)} interval",
        loc="upper left",
        bbox_to_anchor=(0.0, -0.12),
        alignment="left",
        borderaxespad=0.0,
        handlelength=1.2,
    )


def _net_numbers(moves: pd.DataFrame, here: Places) -> pd.DataFrame:
    import pandas as pd

    cells = list(here.index)
    here.of(
        pd.unique(moves[["origin", "dest"]].to_numpy().ravel()).tolist()
    )  # every cell that moves has a place
    arrivals = moves.groupby("dest")["mean"].sum().reindex(cells, fill_value=0.0).to_numpy()
    departures = moves.groupby("origin")["mean"].sum().reindex(cells, fill_value=0.0).to_numpy()
    x, y = here.points.T
    table = {"cell": cells, "x": x, "y": y, "arrivals": arrivals, "departures": departures}
    return pd.DataFrame(table).assign(net=arrivals - departures)


def _exchanges(pairs: pd.Series, largest: int) -> pd.DataFrame:
    """The largest f(i, j) − f(j, i) > 0, as ``origin, dest, mean``."""
    back = pairs.reindex([(j, i) for i, j in pairs.index], fill_value=0.0).to_numpy()
    net = (pairs - back).rename("mean").reset_index()
    return _largest(net, "mean", largest)


def _net_discs(figure: Any, axes: Axes, numbers: pd.DataFrame, here: Places) -> np.ndarray:
    """Draw the net change of every cell as a disc, area ∝ |net|; return the radii in flat map units."""
    most = float(numbers["net"].abs().max()) or 1.0
    radii = 0.46 * here.spacing * np.sqrt(numbers["net"].abs().to_numpy() / most)
    style: dict[str, Any] = {"cmap": DIVERGING, "edgecolors": GREY, "linewidths": 0.6, "zorder": 2}
    points = here.on_map(numbers["cell"].tolist())
    drawn = discs(axes, points, radii, **style)
    drawn.set_array(numbers["net"].to_numpy())
    drawn.set_clim(-most, most)
    axes.scatter(points[:, 0], points[:, 1], s=2, color=GREY, linewidths=0, zorder=1)
    colour_bar(figure, drawn, axes, "arrivals − departures (individuals)")
    for point, net in zip(points, numbers["net"].tolist(), strict=True):
        if abs(net) < 0.4 * most:
            continue  # too small to write on
        axes.annotate(
            f"{'+' if net > 0 else '−'}{count_text(abs(net))}",
            tuple(point),
            ha="center",
            va="center",
            fontsize=8,
            zorder=5,
            color="white" if abs(net) > 0.55 * most else "#222222",
        )
    return radii
