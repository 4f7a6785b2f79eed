"""The picture of the tutorial on flights. Run: python docs/figures/flights.py."""

import json

import numpy as np
from matplotlib.figure import Figure
from tutorial import DOCS, IMAGES, names_of

from headcount.plot.picture import BLUE, GREY, VERMILION, look

METHODS = {
    "by size, scaled to the totals": "totals only",
    "survey ÷ its share": "survey only",
    "survey, scaled to the totals (raking)": "survey, raked",
    "headcount, rho learned": "headcount",
}


def main() -> None:
    """Draw and save."""
    names = names_of("tutorials/flights.md")
    routes, true, other = names["routes"], names["true"], names["other"]
    ends = routes.interval(0.9)
    mean, low, high = (np.asarray(a)[other] / 1000 for a in (routes.mean, ends.lower, ends.upper))
    truth = true[other] / 1000
    inside = (low <= truth) & (truth <= high)
    stored = json.loads((DOCS.parent / "benchmarks/results/flights.json").read_text(encoding="utf-8"))
    scores = {(row[0], row[1]): row[2] for row in stored["tables"][0]["rows"]}
    with look():
        figure = Figure(figsize=(8.4, 3.8), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[3, 2])
        for part, colour, label in (
            (inside, BLUE, f"inside ({inside.mean():.0%})"),
            (~inside, VERMILION, "outside"),
        ):
            reach = np.stack([mean - low, high - mean])[:, part]
            left.errorbar(
                truth[part], mean[part], yerr=reach, fmt="o", ms=3, lw=0.8, color=colour, label=label
            )
        left.plot([0, truth.max()], [0, truth.max()], color=GREY, lw=0.8, zorder=0)
        left.set(xlabel="true flights of the year, thousands", ylabel="inferred, 90 % interval")
        left.legend(title="240 routes", loc="upper left")
        place = np.arange(len(METHODS))
        for shift, share, colour in ((-0.2, "0.1%", BLUE), (0.2, "1.0%", GREY)):
            right.barh(
                place + shift, [scores[share, m] for m in METHODS], height=0.38, color=colour, label=share
            )
        right.set(yticks=place, yticklabels=METHODS.values(), xlabel="Σ|inferred − true| / Σ true")
        right.invert_yaxis()
        right.legend(title="survey of", loc="lower right")
        figure.savefig(IMAGES / "flights.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
