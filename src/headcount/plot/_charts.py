"""Charts: counts over time, curves of a run, calibration of the intervals, checks of fit, the pattern of a precision matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headcount.plot import picture as pic
from headcount.posterior.interval import quantiles, tails

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# --- counts over time

MOST_CELLS = 12
"""What fits a page in three rows of four."""


@pic.takes_results("nodes")
def observed_against_inferred(
    nodes: pd.DataFrame,
    *,
    cells: Iterable[Hashable] | None = None,
    level: float | None = None,
    rate: float | Sequence[float] | None = None,
) -> pic.Picture:
    """Mean and interval of the count over time, one panel per cell, with what was observed as dots.

    Times that nobody observed have no dot. A hollow dot stands where the interval is not reliable. Counts are divided by the ``rate``, so
    that both are numbers of individuals.

    Parameters
    ----------
    nodes : frame
        ``time, cell, observed, mean, lower, upper, reliable``.
    cells : iterable, optional
        Which cells; the twelve fullest if left out.
    rate : float or one per row, optional
        Counts that one individual is expected to give (``Result.attributes["counts_per_individual"]``); 1 if left out.

    Returns
    -------
    Picture
        ``numbers``: the rows drawn, cell by cell in the order of the panels.
    """
    columns = ["time", "cell", "observed", "mean", "lower", "upper", "reliable"]
    pic.require(nodes, columns, name="nodes")
    level = pic.level_of(nodes, level)
    scaled = rate is not None and bool(np.any(np.asarray(rate, dtype=float) != 1))
    if rate is not None:
        nodes = nodes.assign(observed=nodes["observed"] / np.asarray(rate, dtype=float))
    totals = nodes.groupby("cell", sort=False)["mean"].sum().sort_values(ascending=False, kind="stable")
    known = totals.index.tolist()
    shown = known[:MOST_CELLS] if cells is None else pic.chosen(cells, known, what="cells", most=len(known))

    numbers = pd.concat([nodes.loc[nodes["cell"] == cell, columns] for cell in shown], ignore_index=True)
    with pic.look():
        figure, grid = pic.panels(len(shown), columns=4, width=2.6, height=1.9, sharex=True)
        position = _positions(nodes["time"].unique())
        for cell, axes in zip(shown, grid, strict=True):
            _draw_cell(axes, numbers[numbers["cell"] == cell], position, level, scaled)
            axes.set_title(f"cell {pic.printed(cell)}")
        handles, texts = grid[0].get_legend_handles_labels()
        figure.legend(handles, texts, loc="outside lower center", ncols=len(texts))
        figure.supylabel("individuals", fontsize=10)
        for axes in grid[-min(4, len(grid)) :]:
            axes.set_xlabel("time")
            axes.tick_params(labelbottom=True)
        part = "all cells" if len(shown) == len(known) else f"{len(shown)} of {len(known)} cells"
        which = ", the fullest" if cells is None and len(shown) < len(known) else ""
        figure.suptitle(f"Observed and inferred counts: {part}{which}")
    return pic.Picture(figure, numbers)


def _positions(times: Any) -> dict[Any, Any]:
    """Where each time stands on the axis: numbers and dates where they are, anything else in order."""
    values = np.asarray(times)
    if values.dtype.kind in "iufM":
        return dict(zip(times.tolist(), values, strict=True))
    return {time: k for k, time in enumerate(values.tolist())}


def _draw_cell(axes: Axes, rows: pd.DataFrame, position: dict[Any, Any], level: float, scaled: bool) -> None:
    times = rows["time"].tolist()
    x = np.array([position[t] for t in times])
    banded = rows["lower"].notna().to_numpy()
    if banded.any():
        axes.fill_between(
            x,
            rows["lower"],
            rows["upper"],
            where=banded,
            color=pic.BLUE,
            alpha=0.22,
            linewidth=0,
            label=f"{pic.percent(level)} range",
        )
    axes.plot(x, rows["mean"], color=pic.BLUE, label="mean")
    sure = rows["reliable"].to_numpy(dtype=bool)
    style: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 3.6, "color": pic.VERMILION}
    seen = "observed ÷ rate" if scaled else "observed"
    sure = sure | (not banded.any())  # without ranges nothing is said about them
    axes.plot(x[sure], rows["observed"].to_numpy()[sure], label=seen, **style)
    if not sure.all():
        hollow = style | {"markerfacecolor": "white", "markeredgewidth": 0.9}
        axes.plot(x[~sure], rows["observed"].to_numpy()[~sure], label=f"{seen}, range not reliable", **hollow)
    axes.set_ylim(bottom=min(0.0, float(np.nanmin(rows[["lower", "mean"]].to_numpy()))))
    axes.margins(x=0.02)
    if x.dtype.kind == "M":
        _date_axis(axes)
    elif not all(isinstance(t, (int, float)) for t in times):
        step = max(1, len(times) // 5)
        axes.set_xticks(x[::step], [pic.printed(t) for t in times[::step]])
    else:
        axes.locator_params(axis="x", nbins=5, integer=all(isinstance(t, int) for t in times))
    axes.locator_params(axis="y", nbins=4)


def _date_axis(axes: Axes) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(maxticks=5)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))


# --- curves of a run

_OBJECTIVES = {
    "objective": "objective (nats)",
    "evidence": "evidence (nats)",
    "log_evidence": "log p(y) (nats)",
}
_OTHERS = {"error": "relative error of the weights", "residual": "residual"}
"""Quantities that get a panel, and its label; the second kind on a logarithmic axis, because they fall by orders of magnitude."""


@pic.takes_results("trace")
def convergence(trace: pd.DataFrame, *, tolerance: float | None = None) -> pic.Picture:
    """Residual against iteration on a logarithmic axis, the tolerance as a line; below it log p(y) where the engine gives it.

    Parameters
    ----------
    trace : frame
        ``iteration, residual[, log_evidence]``, as ``Result.trace`` has it.
    tolerance : float, optional
        What was asked for.

    Returns
    -------
    Picture
        ``numbers``: the rows drawn.
    """
    pic.require(trace, ["iteration", "residual"], name="trace")
    evidence = "log_evidence" in trace and trace["log_evidence"].notna().any()
    shown = ["residual", "log_evidence"] if evidence else ["residual"]
    numbers = trace[["iteration", *shown]].reset_index(drop=True)
    with pic.look():
        figure = pic.new_figure(6.0, 4.6 if evidence else 3.2)
        grid = _curves(figure, numbers.assign(group="run"), shown, "Convergence of the engine")
        if tolerance is not None:
            grid[0].axhline(tolerance, color=pic.VERMILION, linestyle=(0, (4, 3)), linewidth=1)
            grid[0].annotate(
                f"tolerance {tolerance:.3g}",
                (0, tolerance),
                xycoords=("axes fraction", "data"),
                xytext=(4, 3),
                textcoords="offset points",
                color=pic.VERMILION,
                fontsize=9,
            )
    return pic.Picture(figure, numbers)


def learning_curves(
    ascent: pd.DataFrame,
    *,
    weights: Sequence[str] = (),
    truth: Mapping[str, float] | None = None,
) -> pic.Picture:
    """Curves of learning, one panel per quantity against iteration: the objective, the error, the residual, weights.

    Parameters
    ----------
    ascent : frame
        ``iteration`` and any of ``objective`` (or ``evidence``, ``log_evidence``), ``error`` and ``residual``, as ``Fit.trace`` and
        ``Result.ascent`` have them; ``group`` where several runs are put together, one line each.
    weights : sequence of str
        Further columns, drawn together in a last panel.
    truth : mapping, optional
        True values of those weights, drawn as level lines.

    Returns
    -------
    Picture
        ``numbers``: ``group, iteration, quantity, value``.
    """
    pic.require(ascent, ["iteration", *weights], name="ascent")
    grouped = ascent if "group" in ascent else ascent.assign(group="run")
    shown = _drawable(ascent)
    if not shown and not weights:
        message = f"ascent has none of {', '.join((*_OBJECTIVES, *_OTHERS))}, and no weights were named: nothing to draw"
        raise ValueError(message)
    numbers = grouped.melt(["group", "iteration"], [*shown, *weights], "quantity", "value")
    with pic.look():
        figure = pic.new_figure(6.4, 2.1 * (len(shown) + bool(weights)) + 0.5)
        grid = _curves(figure, grouped, shown, "Learning, iteration by iteration", more=bool(weights))
        if weights:
            _draw_weights(grid[-1], grouped, weights, truth or {})
    return pic.Picture(figure, numbers)


def _drawable(ascent: pd.DataFrame) -> list[str]:
    """The first objective that has values, then the columns of `_OTHERS` that have positive ones."""
    objective = [name for name in _OBJECTIVES if name in ascent and ascent[name].notna().any()][:1]
    return objective + [name for name in _OTHERS if name in ascent and (ascent[name] > 0).any()]


def _curves(
    figure: Figure, frame: pd.DataFrame, names: Sequence[str], title: str, *, more: bool = False
) -> Any:
    """One panel per quantity against iteration, with one line per group, and a last one left empty if there is ``more``."""
    grid = figure.subplots(len(names) + more, 1, sharex=True, squeeze=False).ravel()
    grid[0].set_title(title, loc="left")
    for name, axes in zip(names, grid, strict=False):
        for k, (group, rows) in enumerate(frame.groupby("group", sort=False)):
            # A residual of exactly zero has no place on a logarithm.
            shown = rows[rows[name] > 0] if name in _OTHERS else rows
            style: dict[str, Any] = {"color": pic.CYCLE[k % len(pic.CYCLE)], "marker": "o", "markersize": 3}
            axes.plot(shown["iteration"], shown[name], label=pic.printed(group), **style)
        axes.set_ylabel((_OBJECTIVES | _OTHERS)[name])
        if name in _OTHERS:
            axes.set_yscale("log")
        else:
            axes.ticklabel_format(axis="y", useOffset=False)  # +2.165e3 is easily overlooked
        if frame["group"].nunique() > 1:
            axes.legend()
    for axes in grid:
        axes.grid(True, axis="y")
        axes.locator_params(axis="x", integer=True)
        axes.spines["left"].set_color(pic.GREY)
    grid[-1].set_xlabel("iteration")
    return grid


def _draw_weights(
    axes: Axes, frame: pd.DataFrame, weights: Sequence[str], truth: Mapping[str, float]
) -> None:
    styles = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
    for k, name in enumerate(weights):
        colour = pic.CYCLE[k % len(pic.CYCLE)]
        for g, (_, rows) in enumerate(frame.groupby("group", sort=False)):
            style = styles[g % len(styles)]
            text = pic.printed(name) if g == 0 else None
            axes.plot(rows["iteration"], rows[name], color=colour, linestyle=style, label=text)
        if name in truth:
            axes.axhline(truth[name], color=colour, linewidth=0.9, alpha=0.6, linestyle=(0, (2, 2)))
    axes.set_ylabel("weight" + (" (dashed: truth)" if truth else ""))
    axes.legend(ncols=min(4, len(weights)))


# --- does the model fit

MOST_TICKS = 12
"""Labels of times that fit an axis."""


@pic.takes_results("check")
def pit_histogram(check: pd.DataFrame, *, bins: int = 10) -> pic.Picture:
    """Histogram of the counts' PIT: flat where the model is right, high at both ends where counts scatter more than it allows.

    The band holds 95 % of the bars of independent counts, ±1.96·√(p(1 − p)/K) with p = 1/bins; a model that is right leaves it for
    one bar in twenty.

    Parameters
    ----------
    check : frame
        ``pit``: ``Posterior.fit_check.to_frame()`` or ``Result.check``; or a Posterior or Result itself. Counts without a PIT are left out.
    bins : int
        Bars.

    Returns
    -------
    Picture
        ``numbers``: ``lower, upper, counts, share``.
    """
    pic.require(check, ["pit"], name="check")
    if bins < 2:
        raise ValueError(f"bins must be 2 or more, got {bins}")
    pit = check["pit"].to_numpy(dtype=float)
    pit = pit[np.isfinite(pit)]
    if not len(pit):
        raise ValueError("no count has a PIT, so there is nothing to draw")

    counts, edges = np.histogram(pit, bins=bins, range=(0.0, 1.0))
    numbers = pd.DataFrame(
        {"lower": edges[:-1], "upper": edges[1:], "counts": counts, "share": counts / len(pit)}
    )
    even, width = 1 / bins, 1.96 * np.sqrt((1 - 1 / bins) / bins / len(pit))
    with pic.look():
        figure, axes = pic.single(5.0, 3.2)
        axes.axhspan(max(even - width, 0.0), even + width, color=pic.GREY, alpha=0.18, linewidth=0)
        axes.axhline(even, color=pic.GREY, linewidth=1, linestyle=(0, (4, 3)))
        axes.bar(
            edges[:-1], numbers["share"], width=1 / bins, align="edge", color=pic.BLUE, edgecolor="white"
        )
        axes.set(xlim=(0, 1))
        axes.set_xlabel("probability of a smaller count, given all others (PIT)")
        axes.set_ylabel("share of the counts")
        axes.set_title(f"Does the model fit? {len(pit)} counts; even where it does", loc="left")
    return pic.Picture(figure, numbers)


@pic.takes_results("check")
def residuals_over_time(check: pd.DataFrame) -> pic.Picture:
    """Every count's residual by time, with their root mean square: 1 where the model is right.

    Parameters
    ----------
    check : frame
        ``time, residual, sd``: ``Result.check``, or ``Posterior.fit_check.to_frame()`` of a chain.

    Returns
    -------
    Picture
        ``numbers``: ``time, residual, scatter``; ``scatter`` is the root mean square of that time.
    """
    pic.require(check, ["time", "residual", "sd"], name="check")
    rows = pic.with_residual(check, "time")
    times = rows["time"].unique().tolist()
    place = {time: k for k, time in enumerate(times)}
    scatter = (rows["residual"] ** 2).groupby(rows["time"], sort=False).mean() ** 0.5
    numbers = rows[["time", "residual"]].assign(scatter=rows["time"].map(scatter)).reset_index(drop=True)
    with pic.look():
        figure, axes = pic.single(7.0, 3.2)
        axes.axhspan(-1.96, 1.96, color=pic.GREY, alpha=0.12, linewidth=0)
        axes.axhline(0.0, color=pic.GREY, linewidth=1)
        x = [place[time] for time in rows["time"]]
        axes.plot(x, rows["residual"], ".", color=pic.BLUE, markersize=4, alpha=0.6, label="one count")
        axes.plot(
            range(len(times)), scatter.to_numpy(), color=pic.ORANGE, marker="o", label="root mean square"
        )
        axes.axhline(1.0, color=pic.ORANGE, linewidth=1, linestyle=(0, (4, 3)))
        shown = pic.spread(times, MOST_TICKS)
        axes.set_xticks([place[time] for time in shown], [pic.printed(time) for time in shown])
        axes.set_xlabel("time")
        axes.set_ylabel("residual (sds)")
        axes.legend(loc="upper right", ncols=2)
        axes.set_title(
            "Counts less what all others let one expect; grey holds 95 % where the model fits", loc="left"
        )
    return pic.Picture(figure, numbers)


# --- calibration

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Levels at which `coverage` counts, unless others are given: tenths, and the two that tables often report."""
_MARKS = ("o", "s", "^", "D", "v", "P")


def coverage(
    frame: pd.DataFrame,
    truth: Any,
    *,
    levels: Sequence[float] = LEVELS,
    population: int | None = None,
    group: Hashable = "intervals",
) -> pd.DataFrame:
    """How often the central intervals of a frame contain the truth: covered(l) = #{lower_l ≤ n ≤ upper_l} / #.

    Parameters
    ----------
    frame : frame
        ``mean, sd``: rows of ``Result.nodes`` or ``Result.flows``. Rows whose sd is 0 or missing are left out.
    truth : array_like
        The true count n of every row.
    levels : sequence of float
    population : int, optional
        N: the intervals are whole numbers between 0 and N, as the library's own; without it they are Gaussian.
    group : label
        Goes into the column of that name, so that several tables can be put together.

    Returns
    -------
    DataFrame
        ``group, nominal, covered, cases``, as `calibration` draws it.

    Examples
    --------
    >>> import pandas as pd
    >>> coverage(pd.DataFrame({"mean": [0.0, 0.0], "sd": [1.0, 1.0]}), [0.5, 3.0], levels=[0.9])
           group  nominal  covered  cases
    0  intervals      0.9      0.5      2
    """
    pic.require(frame, ["mean", "sd"], name="nodes")
    n = np.asarray(truth, dtype=float)
    if n.shape != (len(frame),):
        message = f"truth must have one number per row, shape ({len(frame)},), got {n.shape}"
        raise ValueError(message)
    kept = (frame["sd"] > 0).to_numpy() & np.isfinite(n)
    mean, variance, n = frame["mean"].to_numpy()[kept], frame["sd"].to_numpy()[kept] ** 2, n[kept]
    if not kept.any():
        message = "no row has a standard deviation above zero and a truth, so no interval can be judged"
        raise ValueError(message)

    covered = []
    for level in levels:
        lower, upper = quantiles(mean, variance, tails(level), bound=population, whole=population is not None)
        covered.append(float(np.mean((lower <= n) & (n <= upper))))
    return pd.DataFrame({"group": group, "nominal": list(levels), "covered": covered, "cases": len(n)})


def calibration(table: pd.DataFrame) -> pic.Picture:
    """Covered against nominal, one line per group; on the diagonal, intervals contain the truth as often as they say.

    The bars are 95 % intervals of the share covered c for that many independent cases: ±1.96·√(c(1−c)/cases).
    Cells of one population are not independent, so the true bars are wider.

    Parameters
    ----------
    table : frame
        ``nominal, covered, cases[, group]``, as `coverage` makes it; several of them concatenated give several lines.

    Returns
    -------
    Picture
        ``numbers``: ``group, nominal, covered, cases, error``.
    """
    pic.require(table, ["nominal", "covered", "cases"], name="table")
    groups = table.get("group", "intervals")
    c = table["covered"].to_numpy(dtype=float)
    error = 1.96 * np.sqrt(c * (1 - c) / table["cases"].to_numpy(dtype=float))
    numbers = table.assign(group=groups, error=error)[["group", "nominal", "covered", "cases", "error"]]
    with pic.look():
        figure, axes = pic.single(5.0, 5.0)
        axes.plot([0, 1], [0, 1], color=pic.GREY, linewidth=1, linestyle=(0, (4, 3)), label="as promised")
        for k, (name, rows) in enumerate(numbers.groupby("group", sort=False)):
            rows = rows.sort_values("nominal")
            axes.errorbar(
                rows["nominal"],
                rows["covered"],
                yerr=rows["error"],
                color=pic.CYCLE[k % len(pic.CYCLE)],
                marker=_MARKS[k % len(_MARKS)],
                markersize=4.5,
                capsize=2,
                elinewidth=1,
                label=pic.printed(name),
            )
        axes.set(xlim=(0, 1.01), ylim=(0, 1.01), aspect="equal")
        axes.set_xlabel("nominal level of the interval (share)")
        axes.set_ylabel("intervals that contain the truth (share)")
        axes.grid(True)
        axes.text(0.04, 0.90, "too wide", color=pic.GREY, transform=axes.transAxes)
        axes.text(0.96, 0.06, "too narrow", color=pic.GREY, ha="right", transform=axes.transAxes)
        axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.88))
        axes.set_title("Calibration of the intervals", loc="left")
    return pic.Picture(figure, numbers.reset_index(drop=True))
