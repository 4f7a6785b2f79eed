"""Map of counts: one disc per cell, with the interval as two rings; one panel per time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.plot._accessor import takes_results
from headcount.plot._frames import chosen, level_of, percent, printed, require
from headcount.plot._picture import BLACK, COUNTS, GREY, Picture, colour_bar, look, panels
from headcount.plot._places import discs, places

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize

    from headcount._types import Array
    from headcount.plot._places import Places

MOST_PANELS = 12
"""What fits a page in three rows of four."""


@takes_results("nodes", "coordinates")
def count_map(
    nodes: pd.DataFrame,
    coordinates: pd.DataFrame,
    *,
    times: Iterable[Hashable] | None = None,
    level: float | None = None,
    geographic: bool | None = None,
    shapes: Mapping[Hashable, Sequence[Array]] | None = None,
) -> Picture:
    """Counts per cell on a map, one panel per time: radius ∝ √mean, so that area is the count.

    The disc is the mean; the thin rings around and inside it are the ends of the interval, drawn to the same scale, the outer one
    dotted where the interval is not reliable. All panels share one scale; a few very full cells may cover their neighbours.

    Parameters
    ----------
    nodes : frame
        ``time, cell, mean, lower, upper, reliable``.
    coordinates : frame
        ``cell, x, y`` or ``cell, lon, lat``.
    times : iterable, optional
        Which times; twelve, evenly spaced, if left out.
    level : float, optional
        Of the intervals, where the frame's ``attrs`` do not say it.
    geographic : bool, optional
        Whether x and y are degrees; columns named lon and lat are.
    shapes : mapping, optional
        Rings of the cells' areas (``Result.shapes``): the map is then a choropleth, without discs and rings.

    Returns
    -------
    Picture
        ``numbers``: ``time, cell, x, y, mean, lower, upper, reliable, radius, radius_lower, radius_upper``, radii in map units.
    """
    from matplotlib.cm import ScalarMappable

    require(nodes, ["time", "cell", "mean", "lower", "upper", "reliable"], name="nodes")
    level = level_of(nodes, level)
    here = places(coordinates, geographic=geographic)
    known = nodes["time"].unique().tolist()
    shown = chosen(times, known, what="times", most=MOST_PANELS)
    numbers = _numbers(nodes, here, shown)
    with look():
        figure, grid = panels(len(shown), columns=4, width=2.45, height=2.5, sharex=True, sharey=True)
        norm = _count_norm(numbers["mean"].to_numpy())
        margin = float(np.nanmax(numbers[["radius", "radius_upper"]].to_numpy()))
        for time, axes in zip(shown, grid, strict=True):
            rows = numbers[numbers["time"] == time]
            if shapes:
                _draw_areas(axes, rows, here, norm, shapes)
            else:
                _draw(axes, rows, here, norm, margin)
            axes.set_title(f"time {printed(time)}")
            axes.label_outer()
        beyond = "max" if (numbers["mean"] > norm.vmax).any() else "neither"
        scale = ScalarMappable(norm, COUNTS)
        text = "mean count (√ scale)"
        colour_bar(figure, scale, grid, text, pad=0.01, aspect=30, extend=beyond)
        part = "" if len(shown) == len(known) else f" ({len(shown)} of {len(known)} times)"
        drawn = f"mean (disc), {percent(level)} interval (rings; dotted: not reliable)"
        figure.suptitle(f"Individuals per cell: {'mean' if shapes else drawn}{part}")
    return Picture(figure, numbers)


def _numbers(nodes: pd.DataFrame, here: Places, shown: list[Hashable]) -> pd.DataFrame:
    """Rows of the shown times with places and radii.

    Radius = scale · √count. A full cell's disc (see `full_count`) has a radius of 0.45 of the cells' spacing; no disc or ring has more than
    one spacing.
    """
    numbers = nodes.loc[nodes["time"].isin(shown), ["time", "cell", "mean", "lower", "upper", "reliable"]]
    numbers = numbers.reset_index(drop=True)
    points = here.of(numbers["cell"].tolist())
    numbers.insert(2, "x", points[:, 0])
    numbers.insert(3, "y", points[:, 1])
    ends = numbers[["mean", "lower", "upper"]].to_numpy(dtype=float)
    most = np.nanmax(ends) if np.isfinite(ends).any() else 0.0
    scale = (
        here.spacing * min(0.45 / np.sqrt(full_count(ends[:, 0])), 1.0 / np.sqrt(most)) if most > 0 else 0.0
    )
    for column, name in (("mean", "radius"), ("lower", "radius_lower"), ("upper", "radius_upper")):
        # A negative mean (the paper's own method may give one) has no area; its number stays in the frame.
        value = numbers[column].to_numpy(dtype=float)
        numbers[name] = scale * np.sqrt(np.where(value < 0, 0.0, value))
    return numbers


def full_count(means: np.ndarray) -> float:
    """The count drawn as a full disc: the 98 % quantile of the means above one half.

    Not the maximum: individuals who all start in one cell would make all other discs too small to see.
    """
    above = means[means > 0.5]
    return float(np.quantile(above, 0.98)) if len(above) else 1.0


def _count_norm(means: np.ndarray) -> Normalize:
    from matplotlib.colors import PowerNorm

    return PowerNorm(0.5, vmin=0.0, vmax=full_count(means), clip=False)


def _draw_areas(
    axes: Axes,
    rows: pd.DataFrame,
    here: Places,
    norm: Normalize,
    shapes: Mapping[Hashable, Sequence[Array]],
) -> None:
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path

    here.prepare(axes)
    known = rows[[cell in shapes for cell in rows["cell"]]]
    rings = [[here.project(ring) for ring in shapes[cell]] for cell in known["cell"]]
    paths = [
        Path.make_compound_path(*(Path(np.vstack([r, r[:1]]), closed=True) for r in held)) for held in rings
    ]
    style: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.5, "zorder": 1}
    areas = PathCollection(paths, cmap=COUNTS, norm=norm, **style)
    areas.set_array(known["mean"].to_numpy())
    axes.add_collection(areas)
    every = np.concatenate([r for held in rings for r in held])
    (x0, y0), (x1, y1) = every.min(axis=0), every.max(axis=0)
    axes.set_xlim(min(x0, axes.get_xlim()[0]), max(x1, axes.get_xlim()[1]))
    axes.set_ylim(min(y0, axes.get_ylim()[0]), max(y1, axes.get_ylim()[1]))


def _draw(axes: Axes, rows: pd.DataFrame, here: Places, norm: Normalize, margin: float) -> None:
    here.prepare(axes, margin=margin)
    points = here.on_map(rows["cell"].tolist())
    axes.scatter(points[:, 0], points[:, 1], s=1.5, color=GREY, linewidths=0, zorder=1)

    filled = discs(axes, points, rows["radius"].to_numpy(), cmap=COUNTS, norm=norm, linewidths=0, zorder=2)
    filled.set_array(rows["mean"].to_numpy())
    styles = ["-" if sure else ":" for sure in rows["reliable"]]
    ring: dict[str, Any] = {"facecolors": "none", "linewidths": 0.6, "zorder": 3}
    discs(axes, points, rows["radius_upper"].to_numpy(), edgecolors=BLACK, linestyles=styles, **ring)
    discs(axes, points, rows["radius_lower"].to_numpy(), edgecolors="white", **ring)
