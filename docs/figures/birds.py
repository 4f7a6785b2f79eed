"""Pictures of the tutorial on birds. Run: python docs/figures/birds.py."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from tutorial import IMAGES, draw_moves, names_of

import headcount as hc
from headcount.plot.picture import BLUE, GREY, VERMILION, look

NIGHT = 2


def main() -> None:
    """Draw and save."""
    names = names_of("tutorials/birds.md", until="fit = ")
    world, post = names["world"], names["post"]
    place = pd.DataFrame(world.coordinates, columns=["x", "y"]).assign(cell=range(25))
    nodes, flows = post.to_frame("nodes"), post.to_frame("flows")
    nights = [1, 2, 3, 4, 5, 6, 8, 11]
    hc.plot.count_map(nodes, place, times=nights).save(IMAGES / "birds-counts.png", dpi=110)
    hc.plot.flow_map(flows, place, time=2, largest=25).save(IMAGES / "birds-flows.svg")
    with look():
        figure = overview(world, nodes, flows)
        figure.savefig(IMAGES / "birds.svg", metadata={"Date": None})


def overview(world: object, nodes: pd.DataFrame, flows: pd.DataFrame) -> Figure:
    """What was seen, what was inferred, how they moved, and how far to trust it."""
    figure = Figure(figsize=(12.4, 3.5), layout="constrained")
    seen, counts, moves, check = figure.subplots(1, 4, width_ratios=[1, 1, 1, 1.15])
    x, y = world.coordinates.T
    night = nodes[nodes["time"] == NIGHT]
    top = max(night["observed"].max(), night["mean"].max())
    for axes, column, title in (
        (seen, "observed", "seen: noisy counts"),
        (counts, "mean", "inferred: how many were where"),
    ):
        grid = np.full((5, 5), np.nan)
        grid[y, x] = night[column]
        axes.imshow(grid, origin="lower", cmap="viridis", vmin=0, vmax=top)
        for i, j, value in zip(x, y, night[column], strict=True):
            axes.text(
                i,
                j,
                f"{value:.0f}",
                ha="center",
                va="center",
                color="w" if value < 0.6 * top else "k",
                fontsize=9,
            )
        axes.set_title(title)
    moves.set_title("inferred: how they moved")
    moves.scatter(x, y, s=14, color=GREY, linewidths=0)
    step = flows[(flows["time"] == NIGHT) & (flows["origin"] != flows["dest"])].nlargest(24, "mean")
    places = pd.DataFrame({"x": x, "y": y})
    draw_moves(moves, step, places, colour=BLUE, column="mean", top=step["mean"].max())
    moves.set(xlim=(-0.5, 4.5), ylim=(-0.5, 4.5), aspect="equal")
    for axes in (seen, counts, moves):
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    known = nodes.assign(true=world.counts.ravel())
    known = known[known["reliable"] & (known["sd"] > 0)]
    inside = known["true"].between(known["lower"], known["upper"])
    for part, colour in ((known[inside], BLUE), (known[~inside], VERMILION)):
        reach = np.abs(part[["lower", "upper"]].to_numpy().T - part["mean"].to_numpy())
        check.errorbar(
            part["true"], part["mean"], yerr=reach, fmt="o", ms=2.5, lw=0.8, color=colour, alpha=0.7
        )
    most = 1.05 * known[["true", "upper"]].to_numpy().max()
    check.plot([1, most], [1, most], color=GREY, lw=0.8, zorder=0)
    check.set_xscale("function", functions=(np.sqrt, np.square))
    check.set_yscale("function", functions=(np.sqrt, np.square))
    ticks = [10, 50, 100, 200, 400]
    check.set(xticks=ticks, yticks=ticks, xlim=(4, most), ylim=(4, most))
    check.set(xlabel="true count", ylabel="inferred, 90 % interval", title="and how sure that is")
    return figure


if __name__ == "__main__":
    main()
