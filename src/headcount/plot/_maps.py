"""Maps: counts as discs or areas, the largest moves as arrows, what every cell gains, residuals by cell; an animated map."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headcount._disk import replacing
from headcount.plot import picture as pic
from headcount.plot._places import Places, arrow, discs, outline, places
from headcount.plot.words import CERTAINTY, IN_DOUBT, LESS_SURE, PERHAPS_NONE, SURE, certainty

if TYPE_CHECKING:
    import os
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.collections import EllipseCollection
    from matplotlib.colors import Normalize

    from headcount._types import Array
    from headcount.posterior.result import Result

MOST_PANELS = 12
"""What fits a page in three rows of four."""


@pic.takes_results("nodes", "coordinates")
def count_map(
    nodes: pd.DataFrame,
    coordinates: pd.DataFrame,
    *,
    times: Iterable[Hashable] | None = None,
    level: float | None = None,
    geographic: bool | None = None,
    shapes: Mapping[Hashable, Sequence[Array]] | None = None,
) -> pic.Picture:
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

    pic.require(nodes, ["time", "cell", "mean", "lower", "upper", "reliable"], name="nodes")
    level = pic.level_of(nodes, level)
    here = places(coordinates, geographic=geographic)
    known = nodes["time"].unique().tolist()
    shown = pic.chosen(times, known, what="times", most=MOST_PANELS)
    numbers = _numbers(nodes, here, shown)
    with pic.look():
        figure, grid = pic.panels(len(shown), columns=4, width=2.45, height=2.5, sharex=True, sharey=True)
        norm = _count_norm(numbers["mean"].to_numpy())
        margin = float(np.nanmax(numbers[["radius", "radius_upper"]].to_numpy()))
        for time, axes in zip(shown, grid, strict=True):
            rows = numbers[numbers["time"] == time]
            if shapes:
                _draw_areas(axes, rows, here, norm, shapes)
            else:
                _draw(axes, rows, here, norm, margin)
            axes.set_title(f"time {pic.printed(time)}")
            axes.label_outer()
        beyond = "max" if (numbers["mean"] > norm.vmax).any() else "neither"
        scale = ScalarMappable(norm, pic.COUNTS)
        text = "mean count (√ scale)"
        pic.colour_bar(figure, scale, grid, text, pad=0.01, aspect=30, extend=beyond)
        part = "" if len(shown) == len(known) else f" ({len(shown)} of {len(known)} times)"
        rings = f"mean (disc), {pic.percent(level)} range (rings; dotted: not reliable)"
        drawn = "mean" if shapes or numbers["lower"].isna().all() else rings
        figure.suptitle(f"Individuals per cell: {drawn}{part}")
    return pic.Picture(figure, numbers)


def _numbers(nodes: pd.DataFrame, here: Places, shown: list[Hashable]) -> pd.DataFrame:
    """Rows of the shown times with places and radii.

    Radius = scale · √count. A full cell's disc (see `full_count`) has a radius of 0.45 of the cells' spacing; no disc or ring has more than
    one spacing.
    """
    numbers = nodes.loc[nodes["time"].isin(shown), ["time", "cell", "mean", "lower", "upper", "reliable"]]
    numbers = numbers.reset_index(drop=True)
    here.locate(numbers)
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

    here.prepare(axes)
    known = rows[[cell in shapes for cell in rows["cell"]]]
    rings = [[here.project(ring) for ring in shapes[cell]] for cell in known["cell"]]
    style: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.5, "zorder": 1}
    areas = PathCollection(list(map(outline, rings)), cmap=pic.COUNTS, norm=norm, **style)
    areas.set_array(known["mean"].to_numpy())
    axes.add_collection(areas)
    every = np.concatenate([r for held in rings for r in held])
    (x0, y0), (x1, y1) = every.min(axis=0), every.max(axis=0)
    axes.set_xlim(min(x0, axes.get_xlim()[0]), max(x1, axes.get_xlim()[1]))
    axes.set_ylim(min(y0, axes.get_ylim()[0]), max(y1, axes.get_ylim()[1]))


def _draw(axes: Axes, rows: pd.DataFrame, here: Places, norm: Normalize, margin: float) -> None:
    here.prepare(axes, margin=margin)
    points = here.on_map(rows["cell"].tolist())
    axes.scatter(points[:, 0], points[:, 1], s=1.5, color=pic.GREY, linewidths=0, zorder=1)

    filled = discs(
        axes, points, rows["radius"].to_numpy(), cmap=pic.COUNTS, norm=norm, linewidths=0, zorder=2
    )
    filled.set_array(rows["mean"].to_numpy())
    styles = ["-" if sure else ":" for sure in rows["reliable"]]
    ring: dict[str, Any] = {"facecolors": "none", "linewidths": 0.6, "zorder": 3}
    discs(axes, points, rows["radius_upper"].to_numpy(), edgecolors=pic.BLACK, linestyles=styles, **ring)
    discs(axes, points, rows["radius_lower"].to_numpy(), edgecolors="white", **ring)


COLOURS = {SURE: pic.BLUE, LESS_SURE: pic.SKY, PERHAPS_NONE: "#b8b8b8", IN_DOUBT: "none", "": pic.BLUE}
"""Of the classes of flows; one in doubt is hollow, and flows without ranges have one colour."""


@pic.takes_results("flows", "coordinates")
def flow_map(
    flows: pd.DataFrame,
    coordinates: pd.DataFrame,
    *,
    time: Hashable,
    largest: int = 30,
    level: float | None = None,
    geographic: bool | None = None,
) -> pic.Picture:
    """The largest moves that start at `time`, as arrows: width ∝ √mean, colour by how sure they are.

    Those who stay are no arrow; they are in the title. Arrows bend to the left, so that both directions of a pair are seen.

    Parameters
    ----------
    flows : frame
        ``time, origin, dest, mean, lower, upper[, reliable]``; ``time`` is that of departure.
    coordinates : frame
        ``cell, x, y`` or ``cell, lon, lat``.
    time : label
        Time of departure.
    largest : int
        How many arrows at most.

    Returns
    -------
    Picture
        ``numbers``: ``origin, dest, mean, lower, upper, certainty, width``, largest first, one row per arrow.
    """
    pic.require(flows, ["time", "origin", "dest", "mean", "lower", "upper"], name="flows")
    level = pic.level_of(flows, level)
    here = places(coordinates, geographic=geographic)
    pic.chosen([time], flows["time"].unique().tolist(), what="time", most=1)
    rows = flows[flows["time"] == time]
    moves = rows[rows["origin"] != rows["dest"]]
    numbers = _largest(moves, "mean", largest)
    kinds = certainty(numbers)
    numbers = numbers[["origin", "dest", "mean", "lower", "upper"]].assign(certainty=kinds)
    numbers = numbers.assign(width=_widths(numbers["mean"].to_numpy(), here))
    with pic.look():
        figure, axes = pic.single(6.4, 6.0)
        _dots(axes, here)
        for kind, colour in reversed(COLOURS.items()):
            _arrows(axes, numbers[numbers["certainty"] == kind], here, colour)
        moved, stayed = float(moves["mean"].sum()), float(rows["mean"].sum() - moves["mean"].sum())
        axes.set_title(
            f"Moves from time {pic.printed(time)}: {pic.count_text(moved)} individuals move, {pic.count_text(stayed)} stay;\n"
            f"{len(numbers)} arrows carry {pic.count_text(float(numbers['mean'].sum()))} of the moves",
            loc="left",
        )
        _arrow_legend(axes, numbers, level)
    return pic.Picture(figure, numbers)


@pic.takes_results("flows", "coordinates")
def net_flux_map(
    flows: pd.DataFrame,
    coordinates: pd.DataFrame,
    *,
    time: Hashable | None = None,
    largest: int = 25,
    geographic: bool | None = None,
) -> pic.Picture:
    """What every cell gains, Σ_j f(j, i) − Σ_j f(i, j), and the largest net exchanges f(i, j) − f(j, i).

    Over one step, or the sum over all steps if no `time` is given. Marginal intervals of flows do not give one of a sum, so
    none is drawn; ``Posterior.total`` has it.

    Returns
    -------
    Picture
        ``numbers``: ``cell, x, y, arrivals, departures, net``, one row per cell (those who stay are neither).
    """
    pic.require(flows, ["time", "origin", "dest", "mean"], name="flows")
    here = places(coordinates, geographic=geographic)
    if time is not None:
        pic.chosen([time], flows["time"].unique().tolist(), what="time", most=1)
        flows = flows[flows["time"] == time]
    moves = flows[flows["origin"] != flows["dest"]]
    pairs = moves.groupby(["origin", "dest"], sort=False)["mean"].sum()
    numbers = _net_numbers(moves, here)
    exchange = _exchanges(pairs, largest)
    with pic.look():
        figure, axes = pic.single(6.8, 5.6)
        here.prepare(axes)
        radii = _net_discs(figure, axes, numbers, here)
        exchange = exchange.assign(width=_widths(exchange["mean"].to_numpy(), here, most=0.12))
        _arrows(axes, exchange, here, pic.GREY, alpha=0.6, radii=radii)
        span = "all times" if time is None else f"time {pic.printed(time)} to the next"
        axes.set_title(
            f"Net change of every cell, {span}\n{len(exchange)} largest net exchanges as arrows", loc="left"
        )
    return pic.Picture(figure, numbers)


def _largest(rows: pd.DataFrame, column: str, count: int) -> pd.DataFrame:
    if count < 1:
        message = f"largest must be at least 1, got {count!r}"
        raise ValueError(message)
    positive = rows[rows[column] > 0]
    return positive.nlargest(count, column).reset_index(drop=True)


def _widths(means: np.ndarray, here: Places, *, most: float = 0.17) -> np.ndarray:
    """Widths in flat map units: √ of the flow, the largest `most` of the cells' spacing."""
    return most * here.spacing * np.sqrt(means / means.max()) if len(means) else means


def _dots(axes: Axes, here: Places) -> None:
    here.prepare(axes)
    axes.scatter(here.flat[:, 0], here.flat[:, 1], s=14, color=pic.FAINT, linewidths=0, zorder=1)


def _arrows(
    axes: Axes,
    rows: pd.DataFrame,
    here: Places,
    colour: str,
    *,
    alpha: float = 0.85,
    radii: np.ndarray | None = None,
) -> None:
    """Arrows of ``origin, dest, width``, in the order of the rows, from rim to rim where the cells have discs."""
    from matplotlib.collections import PolyCollection

    starts, ends = (here.on_map(rows[name].tolist()) for name in ("origin", "dest"))
    free = np.full(len(here.index), 0.15 * here.spacing)
    if radii is not None:
        free = np.maximum(radii + 0.03 * here.spacing, 0.6 * free)
    shapes = [
        arrow(p, q, width=w, gaps=(free[here.index[i]], free[here.index[j]]))
        for p, q, w, i, j in zip(starts, ends, rows["width"], rows["origin"], rows["dest"], strict=True)
    ]
    # In the order of size, so that small ones lie on large ones and are seen.
    edge, wide = (pic.GREY, 0.7) if colour == "none" else ("white", 0.4)
    axes.add_collection(
        PolyCollection(shapes, facecolors=colour, edgecolors=edge, linewidths=wide, alpha=alpha, zorder=3)
    )


def _arrow_legend(axes: Axes, numbers: pd.DataFrame, level: float) -> None:
    """What the colours mean, and lines as wide as the arrows of round numbers are."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    counts = numbers["certainty"].value_counts()
    handles: list[Patch | Line2D] = [
        Patch(
            facecolor=COLOURS[kind],
            edgecolor=pic.GREY if kind == IN_DOUBT else COLOURS[kind],
            alpha=0.8,
            label=f"{kind}: {text} ({counts[kind]})",
        )
        for kind, text in CERTAINTY.items()
        if kind in counts
    ]
    means = numbers["mean"].to_numpy(dtype=float)
    samples = _round_samples(means.min(), means.max()) if len(means) else []
    handles += [
        Line2D([], [], color=pic.GREY, solid_capstyle="butt", label=f"{pic.count_text(n)} individuals")
        for n in samples
    ]
    legend = axes.legend(
        handles=handles,
        title=f"{pic.percent(level)} range" if set(counts.index) - {""} else None,
        loc="upper left",
        bbox_to_anchor=(0.0, -0.12),
        alignment="left",
        borderaxespad=0.0,
        handlelength=1.6,
    )
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # how large the map is drawn is known once all is laid out
    per_unit = axes.transData.get_matrix()[0, 0] * 72.0 / figure.dpi
    for n, line in zip(samples, legend.get_lines(), strict=True):
        line.set_linewidth(float(numbers["width"].iloc[0] * np.sqrt(n / means.max()) * per_unit))


def _round_samples(least: float, most: float) -> list[float]:
    """Up to three round numbers from the size of the largest flow down to that of the smallest shown, largest first."""
    steps = [float(f"{digit}e{power}") for power in range(-9, 16) for digit in (1, 2, 3, 5)]
    inside = [n for n in steps if least <= n <= most] or [float(f"{most:.2g}")]
    return sorted({inside[-1], inside[len(inside) // 2], inside[0]}, reverse=True)


def _net_numbers(moves: pd.DataFrame, here: Places) -> pd.DataFrame:

    cells = list(here.index)
    here.of(
        pd.unique(moves[["origin", "dest"]].to_numpy().ravel()).tolist()
    )  # every cell that moves has a place
    arrivals = moves.groupby("dest")["mean"].sum().reindex(cells, fill_value=0.0).to_numpy()
    departures = moves.groupby("origin")["mean"].sum().reindex(cells, fill_value=0.0).to_numpy()
    x, y = here.points.T
    table = {"cell": cells, "x": x, "y": y, "arrivals": arrivals, "departures": departures}
    return pd.DataFrame(table).assign(net=arrivals - departures)


def _exchanges(pairs: pd.Series, largest: int) -> pd.DataFrame:
    """The largest f(i, j) − f(j, i) > 0, as ``origin, dest, mean``."""
    back = pairs.reindex([(j, i) for i, j in pairs.index], fill_value=0.0).to_numpy()
    net = (pairs - back).rename("mean").reset_index()
    return _largest(net, "mean", largest)


def _net_discs(figure: Any, axes: Axes, numbers: pd.DataFrame, here: Places) -> np.ndarray:
    """Draw the net change of every cell as a disc, area ∝ |net|; return the radii in flat map units."""
    most = float(numbers["net"].abs().max()) or 1.0
    radii = 0.46 * here.spacing * np.sqrt(numbers["net"].abs().to_numpy() / most)
    style: dict[str, Any] = {"cmap": pic.DIVERGING, "edgecolors": pic.GREY, "linewidths": 0.6, "zorder": 2}
    points = here.on_map(numbers["cell"].tolist())
    drawn = discs(axes, points, radii, **style)
    drawn.set_array(numbers["net"].to_numpy())
    drawn.set_clim(-most, most)
    axes.scatter(points[:, 0], points[:, 1], s=2, color=pic.GREY, linewidths=0, zorder=1)
    pic.colour_bar(figure, drawn, axes, "arrivals − departures (individuals)")
    for point, net in zip(points, numbers["net"].tolist(), strict=True):
        if abs(net) < 0.4 * most:
            continue  # too small to write on
        axes.annotate(
            f"{'+' if net > 0 else '−'}{pic.count_text(abs(net))}",
            tuple(point),
            ha="center",
            va="center",
            fontsize=8,
            zorder=5,
            color="white" if abs(net) > 0.55 * most else "#222222",
        )
    return radii


@pic.takes_results("check", "coordinates")
def residual_map(
    check: pd.DataFrame, coordinates: pd.DataFrame, *, geographic: bool | None = None
) -> pic.Picture:
    """Root mean square of every cell's residuals on the map, as a disc: where the model does not fit.

    Colour is the mean residual: more counted than expected, or less.

    Parameters
    ----------
    check : frame
        ``cell, residual, sd``: ``Result.check``, or ``Posterior.fit_check.to_frame()`` of a chain.
    coordinates : frame
        ``cell, x, y`` or ``cell, lon, lat``.
    geographic : bool, optional
        Whether x and y are degrees; columns named lon and lat are.

    Returns
    -------
    Picture
        ``numbers``: ``cell, x, y, scatter, mean, counts``.
    """
    from matplotlib.colors import Normalize

    pic.require(check, ["cell", "residual", "sd"], name="check")
    rows = pic.with_residual(check, "cell")
    here = places(coordinates, geographic=geographic)
    by_cell = rows["residual"].groupby(rows["cell"], sort=False)
    numbers = by_cell.agg(
        scatter=lambda e: float(np.sqrt((e**2).mean())), mean="mean", counts="size"
    ).reset_index()
    here.locate(numbers)
    with pic.look():
        figure, axes = pic.single(5.6, 4.6)
        here.prepare(axes, margin=here.spacing)
        most = max(float(np.abs(numbers["mean"]).max()), 1e-9)
        radius = 0.3 * here.spacing * np.minimum(numbers["scatter"].to_numpy(), 3.0)
        drawn = discs(
            axes,
            here.on_map(numbers["cell"].tolist()),
            radius,
            cmap=pic.DIVERGING,
            norm=Normalize(-most, most),
            edgecolors=pic.GREY,
            linewidths=0.6,
        )
        drawn.set_array(numbers["mean"].to_numpy())
        pic.colour_bar(figure, drawn, axes, "mean residual (sds)")
        axes.set_title("Residuals by cell: radius is their scatter, colour their mean", loc="left")
    return pic.Picture(figure, numbers)


# --- an animated map: between two times discs grow and shrink, and what moves is on its way

ENDINGS = (".gif", ".mp4")
SIZE = 6.0
"""Inches of the longer side; 110 dots per inch."""
BOW = 0.18
"""Distance of a path's middle from the straight line, as a share of twice its length: as on the page."""


def animate(
    result: Result,
    path: str | os.PathLike[str],
    *,
    largest: int = 60,
    frames: int = 8,
    speed: float = 1.0,
) -> Path:
    """Write an animated map as GIF, or as MP4 (which needs the extra ``video``).

    A disc's area is the expected count; a move travels from its origin to its destination as a disc on the same scale. Between two times
    counts are interpolated, which is a picture and no inference.

    Parameters
    ----------
    result
        With places.
    path
        Ends in ``.gif`` or ``.mp4``.
    largest
        Moves that are shown per step.
    frames
        Pictures per step.
    speed
        Steps per second.
    """
    target = Path(path)
    _check(result, target, largest, frames, speed)
    assert result.coordinates is not None
    here = places(result.coordinates, geographic=result.geographic)
    with pic.look(), replacing(target) as temporary:
        writer = _writer(target.suffix.lower(), fps=max(1, round(frames * speed)))
        scene = _Scene(result, here, largest)
        made = temporary.with_name(temporary.name + target.suffix)  # its ending says the format
        try:
            with writer.saving(scene.figure, str(made), dpi=110):
                for step in range(len(result.times)):
                    for k in range(frames if step + 1 < len(result.times) else 1):
                        scene.draw(step, k / frames)
                        writer.grab_frame()
            made.replace(temporary)
        finally:
            made.unlink(missing_ok=True)
    return target


def _check(result: Result, path: Path, largest: int, frames: int, speed: float) -> None:
    wrong = []
    if not result.is_chain or result.coordinates is None:
        wrong.append(
            "an animated map needs times, cells and their places: give lon and lat (or x and y) of the cells"
        )
    if path.suffix.lower() not in ENDINGS:
        wrong.append(f"path ends in {path.suffix!r}; give {' or '.join(ENDINGS)}")
    counts = {"largest": largest, "frames": frames}
    wrong += [f"{name} must be at least 1, got {value}" for name, value in counts.items() if value < 1]
    if not speed > 0:
        wrong.append(f"speed must be above 0, got {speed}")
    if wrong:
        raise ValueError("; ".join(wrong))


def _writer(ending: str, *, fps: int) -> Any:
    from matplotlib import animation

    if ending == ".gif":
        return animation.PillowWriter(fps=fps)
    if not animation.FFMpegWriter.isAvailable():
        import matplotlib as mpl

        try:
            from imageio_ffmpeg import get_ffmpeg_exe
        except ImportError:
            raise ValueError("MP4 needs ffmpeg: pip install 'headcount[video]', or write a .gif") from None
        mpl.rcParams["animation.ffmpeg_path"] = get_ffmpeg_exe()
    return animation.FFMpegWriter(fps=fps, extra_args=["-pix_fmt", "yuv420p"])


class _Scene:
    """The figure of an animation, and what changes in it from frame to frame."""

    def __init__(self, result: Result, here: Places, largest: int) -> None:
        x0, y0, x1, y1 = here.box()
        wide = (x1 - x0) / (y1 - y0)
        self.figure = pic.new_figure(SIZE * min(1.0, wide), SIZE * min(1.0, 1 / wide) + 0.4)
        self.axes = self.figure.subplots()
        here.prepare(self.axes)
        self.title = self.axes.set_title(" ", loc="left")
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine(
            "none"
        )  # what fits the first frame fits all, and need not be found again
        self.result, self.here = result, here
        self.points = here.on_map(result.cells)
        shape = len(result.times), len(result.cells)
        self.means = result.nodes["mean"].to_numpy(dtype=float).reshape(shape).clip(0)
        most = max(float(self.means.max()), 1e-9)
        self.scale = here.spacing * min(0.45 / np.sqrt(full_count(self.means.ravel())), 1 / np.sqrt(most))
        moves = result.flows[result.flows["origin"] != result.flows["dest"]]
        self.moves = [_largest(moves[moves["time"] == time], "mean", largest) for time in result.times[:-1]]
        self.drawn: list[EllipseCollection] = []

    def draw(self, step: int, share: float) -> None:
        """The state a share of the way from a time to the next."""
        for old in self.drawn:
            old.remove()
        smooth = share * share * (3 - 2 * share)
        after = self.means[min(step + 1, len(self.means) - 1)]
        now = (1 - smooth) * self.means[step] + smooth * after
        style: dict[str, Any] = {"alpha": 0.85, "linewidths": 0}
        self.drawn = [
            discs(self.axes, self.points, self.scale * np.sqrt(now), color=pic.BLUE, zorder=3, **style)
        ]
        moved = ""
        if step < len(self.moves):
            moves = self.moves[step]
            start, end = (self.here.on_map(moves[name].tolist()) for name in ("origin", "dest"))
            along = end - start
            bow = BOW * np.stack([-along[:, 1], along[:, 0]], axis=1)
            spots = start + smooth * along + 2 * smooth * (1 - smooth) * bow
            radius = self.scale * np.sqrt(moves["mean"].to_numpy()) * (share > 0)
            self.drawn.append(discs(self.axes, spots, radius, color=pic.VERMILION, zorder=4, **style))
            moved = (
                f": the {len(moves)} largest moves, {pic.count_text(float(moves['mean'].sum()))} individuals"
            )
        word = "" if hasattr(self.result.times[0], "strftime") else "time "
        self.title.set_text(f"{word}{pic.printed(self.result.times[step])}{moved}")
