"""Figures of the page: measured points on logarithmic axes, as SVG that is the same for the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

MARKS = "osD^vPX"


def draw(curve: dict[str, Any], path: Path) -> None:
    """One figure."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "headcount", "svg.fonttype": "none", "font.size": 10}):
        figure = Figure(figsize=(6.4, 3.8), layout="constrained")
        axes = figure.add_subplot()
        for number, (name, points) in enumerate(curve["series"].items()):
            if not points:
                continue
            x, y = zip(*points, strict=True)
            slope = curve["exponents"].get(name)
            label = f"{name}, exponent {slope:.2f}" if slope is not None else name
            axes.plot(x, y, marker=MARKS[number % len(MARKS)], markersize=4, linewidth=1.4, label=label)
        axes.set(xscale="log", yscale="log", xlabel=curve["x"], ylabel=curve["y"])
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
        figure.savefig(path, format="svg", metadata={"Date": None})
