"""What a run did: the residual of an engine, and the ascent of learning, iteration by iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.plot._frames import printed, require
from headcount.plot._picture import BLUE, CYCLE, GREY, VERMILION, Picture, look, new_figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.axes import Axes

_OBJECTIVES = ("log_evidence", "log_likelihood", "objective", "gain")
_ASIDE = (
    "iteration",
    "seconds",
    "group",
    "damping",
    "engine_iterations",
    "engine_residual",
    "status",
    "residual",
    "change",
)


def convergence(trace: pd.DataFrame, *, tolerance: float | None = None) -> Picture:
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
    require(trace, ["iteration", "residual"], name="trace")
    evidence = "log_evidence" in trace and trace["log_evidence"].notna().any()
    columns = ["iteration", "residual", *(["log_evidence"] if evidence else [])]
    numbers = trace[columns].reset_index(drop=True)
    with look():
        figure = new_figure(6.0, 4.6 if evidence else 3.2)
        grid = figure.subplots(2 if evidence else 1, 1, sharex=True, squeeze=False).ravel()
        positive = numbers[numbers["residual"] > 0]  # a residual of exactly zero has no place on a logarithm
        grid[0].semilogy(positive["iteration"], positive["residual"], color=BLUE, marker="o", markersize=3.5)
        if tolerance is not None:
            grid[0].axhline(tolerance, color=VERMILION, linestyle=(0, (4, 3)), linewidth=1)
            grid[0].annotate(
                f"tolerance {tolerance:.3g}",
                (0, tolerance),
                xycoords=("axes fraction", "data"),
                xytext=(4, 3),
                textcoords="offset points",
                color=VERMILION,
                fontsize=9,
            )
        grid[0].set_ylabel("residual")
        grid[0].set_title("Convergence of the engine", loc="left")
        if evidence:
            grid[1].plot(
                numbers["iteration"], numbers["log_evidence"], color=BLUE, marker="o", markersize=3.5
            )
            grid[1].set_ylabel("log p(y) (nats)")
            _plain_numbers(grid[1])
        _iterations(grid)
    return Picture(figure, numbers)


def learning_curves(
    ascent: pd.DataFrame,
    *,
    columns: Sequence[str] | None = None,
    truth: dict[str, float] | None = None,
) -> Picture:
    """Curves of learning: the objective on top, the weights below, against iteration; one line style a group.

    Parameters
    ----------
    ascent : frame
        ``iteration``, an objective (``log_evidence``, ``log_likelihood``, ``objective``) and one column a weight; ``group`` where
        several runs are put together.
    columns : sequence of str, optional
        Which columns are weights; all other numbers if left out.
    truth : dict, optional
        True values of weights, drawn as level lines.

    Returns
    -------
    Picture
        ``numbers``: ``group, iteration, quantity, value``.
    """
    require(ascent, ["iteration"], name="ascent")
    objective = next((name for name in _OBJECTIVES if name in ascent), None)
    weights = _weights(ascent, columns, objective)
    names = [*([objective] if objective else []), *weights]
    if not names:
        message = f"ascent has neither an objective ({', '.join(_OBJECTIVES)}) nor a weight to draw"
        raise ValueError(message)
    grouped = ascent if "group" in ascent else ascent.assign(group="run")
    numbers = grouped.melt(["group", "iteration"], names, "quantity", "value")
    with look():
        heights = [*([2.2] if objective else []), *([2.8] if weights else [])]
        figure = new_figure(6.4, sum(heights) + 0.4)
        grid = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights).ravel()
        grid[0].set_title("Learning, iteration by iteration", loc="left")
        if objective:
            groups = grouped["group"].nunique()
            for k, (name, rows) in enumerate(grouped.groupby("group", sort=False)):
                text = printed(name) if groups > 1 else None
                grid[0].plot(
                    rows["iteration"],
                    rows[objective],
                    color=CYCLE[k % len(CYCLE)],
                    marker="o",
                    markersize=3,
                    label=text,
                )
            if groups > 1:
                grid[0].legend()
            grid[0].set_ylabel(f"{objective.replace('_', ' ')} (nats)")
            _plain_numbers(grid[0])
        if weights:
            _draw_weights(grid[-1], grouped, weights, truth or {})
        _iterations(grid)
    return Picture(figure, numbers)


def _weights(ascent: pd.DataFrame, columns: Sequence[str] | None, objective: str | None) -> list[str]:
    if columns is not None:
        require(ascent, columns, name="ascent")
        return list(columns)
    numeric = ascent.select_dtypes("number").columns
    return [c for c in numeric if c not in _ASIDE and c not in _OBJECTIVES and c != objective]


def _draw_weights(axes: Axes, frame: pd.DataFrame, weights: list[str], truth: dict[str, float]) -> None:
    styles = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
    for k, name in enumerate(weights):
        colour = CYCLE[k % len(CYCLE)]
        for g, (_, rows) in enumerate(frame.groupby("group", sort=False)):
            style = styles[g % len(styles)]
            axes.plot(
                rows["iteration"],
                rows[name],
                color=colour,
                linestyle=style,
                label=printed(name) if g == 0 else None,
            )
        if name in truth:
            axes.axhline(truth[name], color=colour, linewidth=0.9, alpha=0.6, linestyle=(0, (2, 2)))
    axes.set_ylabel("weight" + (" (dashed: truth)" if truth else ""))
    axes.legend(ncols=min(4, len(weights)))


def _plain_numbers(axes: Axes) -> None:
    """No offset such as +2.165e3, which is easily overlooked."""
    axes.ticklabel_format(axis="y", useOffset=False)


def _iterations(grid: Any) -> None:
    for axes in np.atleast_1d(grid):
        axes.grid(True, axis="y")
        axes.locator_params(axis="x", integer=True)
        axes.spines["left"].set_color(GREY)
    grid[-1].set_xlabel("iteration")
