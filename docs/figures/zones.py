"""The picture of the tutorial on zones. Run: python docs/figures/zones.py."""

import numpy as np
from matplotlib.figure import Figure
from tutorial import IMAGES, names_of

from headcount.plot.picture import BLUE, GREY, VERMILION, look


def main() -> None:
    """Draw and save."""
    names = names_of("tutorials/zones.md", until="moves = ")
    world, od = names["world"], names["od"]
    index = {zone: k for k, zone in enumerate(names["zones"])}
    hour = {time: k for k, time in enumerate(names["hours"])}
    true = [world.flows[hour[r.time], index[r.origin], index[r.dest]] for r in od.itertuples()]
    od = od.assign(true=true)
    od = od[(od["origin"] != od["dest"]) & od["reliable"]]
    inside = od["true"].between(od["lower"], od["upper"])
    with look():
        figure = Figure(figsize=(6.4, 4.4), layout="constrained")
        axes = figure.subplots()
        for part, colour, label in (
            (od[inside], BLUE, f"inside ({inside.mean():.0%})"),
            (od[~inside], VERMILION, "outside"),
        ):
            reach = np.abs(part[["lower", "upper"]].to_numpy().T - part["mean"].to_numpy())
            axes.errorbar(
                part["true"], part["mean"], yerr=reach, fmt="o", ms=3, lw=0.9, color=colour, label=label
            )
        ends = [od["true"].min(), od["upper"].max()]
        axes.plot(ends, ends, color=GREY, lw=0.8, zorder=0)
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="true flow (people per hour)",
            ylabel="inferred flow, 90 % interval",
        )
        axes.legend(title="reliable flows", loc="upper left")
        figure.savefig(IMAGES / "zones-flows.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
