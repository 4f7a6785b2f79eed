"""The picture of the packages in the page on the architecture. Run: python docs/figures/packages.py."""

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from tutorial import IMAGES

from headcount.plot.picture import BLUE, GREY, ORANGE, look

# (name, what it holds, left, bottom, width): data flow from left to right in the middle row, on the packages below.
BOXES = (
    ("cli", "commands: parse, call, save", 0.0, 4.0, 12.0, GREY),
    ("io", "tables in, results out", 0.0, 3.0, 2.3, BLUE),
    ("observe", "noise models; Problem", 2.45, 3.0, 2.3, BLUE),
    ("engines", "tilted, map, exact,\nsampling, published", 4.9, 3.0, 2.3, ORANGE),
    ("posterior", "estimates, intervals,\nframes, draws", 7.35, 3.0, 2.3, BLUE),
    ("plot, report", "pictures; one page", 9.8, 3.0, 2.2, BLUE),
    ("learn", "EM and ascent over any engine", 2.45, 2.0, 4.75, BLUE),
    ("simulate", "birds, any model", 7.35, 2.0, 4.65, BLUE),
    ("structure", "Gaussian solvers: given sites, moments", 0.0, 1.0, 5.9, GREY),
    ("population", "the exact law of counts, and the Gaussian one", 6.1, 1.0, 5.9, GREY),
    ("individual", "one individual: chain, tree, network, belief propagation", 0.0, 0.0, 7.2, GREY),
    ("tables, labels, numerics, memory", "which axis is which", 7.35, 0.0, 4.65, GREY),
)


def main() -> None:
    """Draw and save."""
    with look():
        figure = Figure(figsize=(9.6, 3.9), layout="constrained")
        axes = figure.subplots()
        for name, text, left, bottom, width, colour in BOXES:
            box = FancyBboxPatch(
                (left, bottom),
                width,
                0.82,
                boxstyle="round,pad=0,rounding_size=0.08",
                fc=colour,
                alpha=0.18,
                ec=colour,
            )
            axes.add_patch(box)
            axes.text(left + width / 2, bottom + 0.58, name, ha="center", va="center", weight="bold", size=9)
            axes.text(left + width / 2, bottom + 0.24, text, ha="center", va="center", size=7)
        for x in (2.3, 4.75, 7.2, 9.65):
            axes.annotate("", (x + 0.15, 3.41), (x, 3.41), arrowprops={"arrowstyle": "-|>", "lw": 1})
        axes.set(xlim=(-0.1, 12.1), ylim=(-0.1, 4.95))
        axes.set_axis_off()
        figure.savefig(IMAGES / "packages.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
