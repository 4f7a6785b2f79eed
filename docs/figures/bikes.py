"""The picture of the tutorial on bikes. Run: python docs/figures/bikes.py."""

import numpy as np
from matplotlib.figure import Figure
from tutorial import IMAGES, names_of

from headcount.plot._picture import BLUE, GREY, VERMILION, look


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


if __name__ == "__main__":
    main()
