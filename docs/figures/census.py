"""The picture of the tutorial on census tables. Run: python docs/figures/census.py."""

import numpy as np
from matplotlib.figure import Figure
from scipy.special import ndtri
from tutorial import IMAGES, names_of

import headcount as hc
from headcount.plot.picture import BLUE, GREY, ORANGE, look


def main() -> None:
    """Draw and save."""
    names = names_of("tutorials/census.md", until="table, plugged")
    fit, pairs, world = names["fit"], names["pairs"], names["world"]

    def flat(tables: dict) -> np.ndarray:
        return np.concatenate([np.ravel(tables[pair]) for pair in pairs])

    def moments(post: hc.Posterior) -> tuple[np.ndarray, np.ndarray]:
        return (
            flat({p: post.clique(*p).mean for p in pairs}),
            flat({p: post.clique(*p).sd for p in pairs}),
        )

    true = flat({p: world.tables.table(p) for p in pairs})
    mean, sd = moments(fit.plug_in)
    wide = moments(fit.posterior)[1]
    order = np.argsort(-true, kind="stable")
    place = np.arange(len(true))
    reach = ndtri(0.95)
    with look():
        figure = Figure(figsize=(8.4, 3.6), layout="constrained")
        axes = figure.subplots()
        axes.axhline(0, color=GREY, lw=0.8)
        error = (mean - true)[order]
        axes.vlines(place, error - reach * wide[order], error + reach * wide[order], color=BLUE, lw=1)
        axes.vlines(place, error - reach * sd[order], error + reach * sd[order], color=BLUE, lw=4, alpha=0.5)
        axes.plot(place, error, "o", ms=4, color=BLUE, label="inferred, law learned")
        released = flat(names["released"])
        axes.plot(place, (released - true)[order], "x", ms=5, color=ORANGE, label="released")
        axes.set_xticks(place[::2], [f"{v:.0f}" for v in true[order][::2]])
        axes.set(xlabel="true count of the cell (people)", ylabel="error (people)")
        axes.legend(loc="lower right", ncols=2)
        figure.savefig(IMAGES / "census-tables.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
