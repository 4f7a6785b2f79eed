"""The picture of the tutorial on health. Run: python docs/figures/health.py."""

import json

import numpy as np
from matplotlib.figure import Figure
from tutorial import DOCS, IMAGES, names_of

from headcount.plot.picture import BLUE, GREY, ORANGE, look


def main() -> None:
    """Draw and save."""
    names = names_of("tutorials/health.md")
    found, true = names["found"], names["true"].ravel()
    ends = found.interval(0.9)
    low, mean, high = (np.ravel(a) - true for a in (ends.lower, found.mean, ends.upper))
    noisy = names["released"]["visits", "health"].to_numpy().ravel() - true
    stored = json.loads((DOCS.parent / "benchmarks/results/health.json").read_text(encoding="utf-8"))
    scores = {row[0]: row[1:3] for row in stored["tables"][0]["rows"]}
    shown = {"as released": GREY, "mbi": ORANGE, "headcount, fit.posterior": BLUE}
    with look():
        figure = Figure(figsize=(8.4, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[3, 2])
        place = np.arange(len(true))
        left.axhline(0, color=GREY, lw=0.8)
        left.vlines(place, low, high, color=BLUE, lw=2, alpha=0.5)
        left.plot(place, mean, "o", ms=4, color=BLUE, label="inferred, 90 % interval")
        left.plot(place, noisy, "x", ms=4, color=GREY, label="released")
        left.set(xlabel="cells of visits by health", ylabel="people too many", xticks=[])
        left.legend(loc="best")
        for k, (name, colour) in enumerate(shown.items()):
            values = [100 * (v or 0.0) for v in scores[name]]
            right.bar(
                np.arange(2) + 0.27 * (k - 1), values, width=0.25, color=colour, label=name.split(",")[0]
            )
        right.set(xticks=[0, 1], xticklabels=["released tables", "other tables"], ylabel="misplaced, %")
        right.legend(loc="best")
        figure.savefig(IMAGES / "health.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
