"""The picture of the tutorial on bikes, and the one of the README. Run: python docs/figures/bikes.py."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from tutorial import DOCS, IMAGES, draw_moves, names_of

from headcount.plot.picture import BLUE, GREY, VERMILION, look

MORNING = pd.date_range("2014-09-15 07:00", periods=3, freq="h")
"""The hours of a Monday in which commuters come out of the stations of the railways."""
LARGEST = 30
"""Arrows of a map: more cannot be told apart."""


def main() -> None:
    """Draw and save."""
    names = names_of("tutorials/bikes.md")
    found, large = names["found"], names["large"]
    inside = large["true"].between(large["lower"], large["upper"])
    with look():
        figure = Figure(figsize=(8.4, 3.8), layout="constrained")
        left, right = figure.subplots(1, 2)
        rng = np.random.default_rng(1)
        for part, colour, label in (
            (large[inside], BLUE, f"inside ({inside.mean():.0%})"),
            (large[~inside], VERMILION, "outside"),
        ):
            reach = np.abs(part[["lower", "upper"]].to_numpy().T - part["mean"].to_numpy())
            apart = part["true"] + rng.uniform(-0.25, 0.25, len(part))
            left.errorbar(apart, part["mean"], yerr=reach, fmt="o", ms=3, lw=0.8, color=colour, label=label)
        top = float(large["upper"].max())
        left.plot([0, top], [0, top], color=GREY, lw=0.8, zorder=0)
        left.set(xlabel="bikes that really moved", ylabel="inferred, 90 % interval")
        left.legend(title="hourly flows of one or more", loc="upper left")
        hours = found.groupby("time")[["mean", "true"]].sum()
        clock = hours.index.hour
        right.plot(clock, hours["true"], color=GREY, marker="o", ms=3, label="true")
        right.plot(clock, hours["mean"], color=BLUE, marker="o", ms=3, label="inferred")
        right.set(xlabel="hour of the day", ylabel="bikes that moved", xticks=range(0, 25, 6))
        right.legend(loc="upper left")
        figure.savefig(IMAGES / "bikes.svg", metadata={"Date": None})
        figure = overview(names["monday"], found)
        figure.savefig(IMAGES / "bikes-overview.svg", metadata={"Date": None})


def overview(counts: pd.DataFrame, found: pd.DataFrame) -> Figure:
    """What was seen, what was inferred, what was true."""
    cells = pd.read_csv(DOCS.parent / "examples" / "bikes" / "cells.csv", dtype={"cell": str}).set_index(
        "cell"
    )
    wide = np.cos(np.radians(cells["lat"].mean()))
    places = pd.DataFrame({"x": cells["lon"] * wide, "y": cells["lat"]})
    places = places.drop("in_transit")
    here = found[found["origin"].isin(places.index) & found["dest"].isin(places.index)]
    step = here[here["time"].isin(MORNING)].groupby(["origin", "dest"])[["mean", "true"]].sum().reset_index()
    figure = Figure(figsize=(12.4, 3.5), layout="constrained")
    grid = figure.add_gridspec(1, 4, width_ratios=[1, 1, 1, 1.25])
    maps = [figure.add_subplot(grid[k]) for k in range(3)]
    seen = counts.loc[MORNING[0]].reindex(places.index)
    maps[0].scatter(places["x"], places["y"], s=8 * seen, color=GREY, alpha=0.7, linewidths=0)
    maps[0].set_title("seen: bikes at every station (7:00)")
    top = max(step["mean"].max(), step["true"].max())
    for axes, column, colour, title in (
        (maps[1], "mean", BLUE, "inferred: moves, 7:00 to 10:00"),
        (maps[2], "true", VERMILION, "moves that happened"),
    ):
        axes.scatter(places["x"], places["y"], s=10, color=GREY, linewidths=0)
        largest = step[step[column] > 0].nlargest(LARGEST, column)
        draw_moves(axes, largest, places, colour=colour, column=column, top=top)
        axes.set_title(title)
    edge = 0.003
    for axes in maps:
        axes.set(
            xticks=[],
            yticks=[],
            aspect="equal",
            xlim=(places["x"].min() - edge, places["x"].max() + edge),
            ylim=(places["y"].min() - edge, places["y"].max() + edge),
        )
        axes.spines[:].set_visible(False)
    day = figure.add_subplot(grid[3])
    hours = found.groupby("time")[["mean", "true"]].sum()
    day.plot(hours.index.hour, hours["true"], color=VERMILION, marker="o", ms=3, label="true")
    day.plot(hours.index.hour, hours["mean"], color=BLUE, marker="o", ms=3, label="inferred")
    day.set(title="all moves, hour by hour", xlabel="hour of the day", xticks=range(0, 25, 6))
    day.legend(loc="upper left")
    return figure


if __name__ == "__main__":
    main()
