"""The picture of the tutorial on docks. Run: python docs/figures/docks.py."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from tutorial import IMAGES, names_of

from headcount.plot.picture import BLUE, GREY, VERMILION, look

SHOWN = {"70": "the railway station", "60": "Embarcadero", "64": "2nd at South Park"}


def main() -> None:
    """Draw and save."""
    names = names_of("tutorials/docks.md")
    numbers, came = names["numbers"], names["came"]
    with look():
        figure = Figure(figsize=(8.4, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        for (cell, title), colour in zip(SHOWN.items(), (BLUE, VERMILION, GREY), strict=True):
            part = numbers[numbers["cell"] == cell]
            hour = pd.to_datetime(part["time"]).dt.hour
            left.fill_between(hour, part["lower"], part["upper"], color=colour, alpha=0.25, lw=0)
            left.plot(hour, part["count"], "o", ms=3, color=colour, label=title)
        left.set(xlabel="hour of the day", ylabel="bikes: true (dots), 90 % intervals", ylim=(0, 85))
        left.legend(loc="upper left")
        hours = came.groupby("time")[["mean", "arrived"]].sum()
        clock = pd.to_datetime(hours.index).hour
        right.plot(clock, hours["arrived"], color=GREY, marker="o", ms=3, label="true")
        right.plot(clock, hours["mean"], color=BLUE, marker="o", ms=3, label="inferred")
        right.set(
            xlabel="hour of the day", ylabel="bikes that arrived", ylim=(0, None), xticks=np.arange(9, 21, 3)
        )
        right.legend(loc="upper center")
        figure.savefig(IMAGES / "docks.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
