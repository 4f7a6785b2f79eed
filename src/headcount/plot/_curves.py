"""Curves of a run, per iteration: the residual of an engine, and the objective, error and weights of learning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.plot._accessor import takes_results
from headcount.plot._frames import printed, require
from headcount.plot._picture import BLUE, CYCLE, GREY, VERMILION, Picture, look, new_figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from matplotlib.axes import Axes

_OBJECTIVES = ("objective", "evidence", "log_evidence")
_OTHERS = {"error": "relative error of the weights", "residual": "residual"}
"""Further columns of learning that get a panel, with a logarithmic axis: both fall by orders of magnitude."""


@takes_results("trace")
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
    weights: Sequence[str] = (),
    truth: Mapping[str, float] | None = None,
) -> Picture:
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
    require(ascent, ["iteration", *weights], name="ascent")
    grouped = ascent if "group" in ascent else ascent.assign(group="run")
    panels = _drawable(ascent)
    if not panels and not weights:
        message = f"ascent has none of {', '.join((*_OBJECTIVES, *_OTHERS))}, and no weights were named: nothing to draw"
        raise ValueError(message)
    numbers = grouped.melt(["group", "iteration"], [*panels, *weights], "quantity", "value")
    with look():
        count = len(panels) + bool(weights)
        figure = new_figure(6.4, 2.1 * count + 0.5)
        grid = figure.subplots(count, 1, sharex=True, squeeze=False).ravel()
        grid[0].set_title("Learning, iteration by iteration", loc="left")
        for name, axes in zip(panels, grid, strict=False):
            _draw_groups(axes, grouped, name)
        if weights:
            _draw_weights(grid[-1], grouped, weights, truth or {})
        _iterations(grid)
    return Picture(figure, numbers)


def _drawable(ascent: pd.DataFrame) -> list[str]:
    """The first objective that has values, then the columns of `_OTHERS` that have positive ones."""
    objective = [name for name in _OBJECTIVES if name in ascent and ascent[name].notna().any()][:1]
    return objective + [name for name in _OTHERS if name in ascent and (ascent[name] > 0).any()]


def _draw_groups(axes: Axes, frame: pd.DataFrame, name: str) -> None:
    """One line per group; the columns of `_OTHERS` on a logarithmic axis, without their zeros."""
    several = frame["group"].nunique() > 1
    for k, (group, rows) in enumerate(frame.groupby("group", sort=False)):
        shown = rows[rows[name] > 0] if name in _OTHERS else rows
        style: dict[str, Any] = {"color": CYCLE[k % len(CYCLE)], "marker": "o", "markersize": 3}
        axes.plot(shown["iteration"], shown[name], label=printed(group) if several else None, **style)
    if name in _OTHERS:
        axes.set_yscale("log")
        axes.set_ylabel(_OTHERS[name])
    else:
        axes.set_ylabel(f"{name.replace('_', ' ')} (nats)")
        _plain_numbers(axes)
    if several:
        axes.legend()


def _draw_weights(
    axes: Axes, frame: pd.DataFrame, weights: Sequence[str], truth: Mapping[str, float]
) -> None:
    styles = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
    for k, name in enumerate(weights):
        colour = CYCLE[k % len(CYCLE)]
        for g, (_, rows) in enumerate(frame.groupby("group", sort=False)):
            style = styles[g % len(styles)]
            text = printed(name) if g == 0 else None
            axes.plot(rows["iteration"], rows[name], color=colour, linestyle=style, label=text)
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
