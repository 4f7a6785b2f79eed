"""Pictures show the numbers they were given: read back from the artists and the tables, never from pixels."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import EllipseCollection, PolyCollection

from headcount import plot
from headcount.plot import Picture
from headcount.plot.words import trust
from sample_results import POPULATION, attributes, chain, relabelled

RESULT = chain()
CYCLE = pd.DataFrame(
    {
        "iteration": range(5),
        "evidence": np.nan,
        "objective": [-9.0, -5, -4, -3.5, -3.4],
        "residual": [1.0, 0.1, 0.02, 0.003, 0.0],
        "wind": [0, 0.5, 0.8, 0.9, 0.95],
    }
)
PICTURES: dict[str, Callable[[], Picture]] = {
    "count_map": lambda: plot.count_map(RESULT.nodes, RESULT.coordinates, times=[0, 3, 5]),
    "flow_map": lambda: plot.flow_map(RESULT.flows, RESULT.coordinates, time=2),
    "net_flux_map": lambda: plot.net_flux_map(RESULT.flows, RESULT.coordinates, time=2),
    "observed_against_inferred": lambda: plot.observed_against_inferred(RESULT.nodes, cells=[3, 1, 2]),
    "calibration": lambda: plot.calibration(plot.coverage(RESULT.nodes, RESULT.nodes["mean"])),
    "convergence": lambda: plot.convergence(RESULT.trace, tolerance=0.01),
    "learning_curves": lambda: plot.learning_curves(CYCLE, weights=["wind"], truth={"wind": 1.0}),
}
UNITS = {"individuals", "share", "nats", "map units", "iteration", "residual", "weight", "time", "entries"}


def texts(picture: Picture) -> list[str]:
    return [t.get_text() for t in picture.figure.findobj(mpl.text.Text) if t.get_text()]


@pytest.mark.parametrize("name", PICTURES)
def test_every_axis_is_labelled_with_units(name: str) -> None:
    """The outer axes of every picture say what they measure, and in which unit; the numbers drawn come with it."""
    picture = PICTURES[name]()
    assert any(unit in text for unit in UNITS for text in texts(picture))
    assert all(a.get_xlabel() or a.get_ylabel() or a.get_title() for a in picture.figure.axes if a.axison)
    assert len(picture.numbers) > 0


@pytest.mark.parametrize("name", PICTURES)
def test_same_numbers_give_the_same_file(name: str, tmp_path: object) -> None:
    """A picture is a function of its numbers: drawn twice, the files agree byte for byte."""
    first, second = (PICTURES[name]().save(f"{tmp_path}/{k}.svg").read_bytes() for k in (1, 2))
    assert first == second
    assert len(first) > 2000


def test_settings_of_matplotlib_stay_as_they_were() -> None:
    """Drawing changes nothing global: no setting, no open figure, no `pyplot`."""
    before = dict(mpl.rcParams)
    PICTURES["count_map"]()
    assert dict(mpl.rcParams) == before
    script = "import sys; sys.path.insert(0, 'tests'); from sample_results import chain; from headcount import plot; r = chain(); "
    script += "plot.count_map(r.nodes, r.coordinates); assert 'matplotlib.pyplot' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_importing_loads_no_matplotlib() -> None:
    """``import headcount.plot`` waits with matplotlib until something is drawn."""
    script = "import sys, headcount.plot; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_area_of_a_disc_is_the_count() -> None:
    """radius² ∝ mean, with one constant for all cells and times; likewise for both ends of the interval."""
    numbers = plot.count_map(RESULT.nodes, RESULT.coordinates).numbers
    constant = numbers["radius"] ** 2 / numbers["mean"]
    np.testing.assert_allclose(constant, constant[0], rtol=1e-12)
    for end in ("lower", "upper"):
        np.testing.assert_allclose(numbers[f"radius_{end}"] ** 2, constant[0] * numbers[end], atol=1e-12)


def test_discs_on_the_axes_are_those_of_the_table() -> None:
    """The circles that matplotlib holds have the radii, places and colours of the numbers returned."""
    picture = plot.count_map(RESULT.nodes, RESULT.coordinates, times=[3])
    discs = picture.figure.axes[0].findobj(EllipseCollection)[0]
    np.testing.assert_allclose(discs.get_widths() / 2, picture.numbers["radius"])
    np.testing.assert_allclose(discs.get_offsets(), picture.numbers[["x", "y"]])
    np.testing.assert_allclose(discs.get_array(), picture.numbers["mean"])
    expected = RESULT.nodes.loc[RESULT.nodes["time"] == 3, "mean"]
    np.testing.assert_array_equal(picture.numbers["mean"], expected)


def test_negative_means_keep_their_number() -> None:
    """A mean below zero has no area, and its number is not hidden."""
    nodes = RESULT.nodes.assign(mean=RESULT.nodes["mean"].where(RESULT.nodes["cell"] != 0, -3.0))
    nodes.attrs["level"] = 0.9
    numbers = plot.count_map(nodes, RESULT.coordinates).numbers
    row = numbers[numbers["cell"] == 0]
    assert (row["mean"] == -3).all()
    assert (row["radius"] == 0).all()


def test_arrows_are_the_largest_moves() -> None:
    """The k largest flows between different cells, largest first, with width² ∝ flow."""
    picture = plot.flow_map(RESULT.flows, RESULT.coordinates, time=1, largest=7)
    moves = RESULT.flows.query("time == 1 and origin != dest").nlargest(7, "mean")
    np.testing.assert_array_equal(picture.numbers["mean"], moves["mean"])
    np.testing.assert_allclose(
        picture.numbers["width"] ** 2 / picture.numbers["width"][0] ** 2, moves["mean"] / moves["mean"].max()
    )
    drawn = [p for c in picture.figure.axes[0].findobj(PolyCollection) for p in c.get_paths()]
    assert len(drawn) == 7
    stay = RESULT.flows.query("time == 1 and origin == dest")["mean"].sum()
    assert any(f"{stay:.0f} stay" in text for text in texts(picture))


def test_the_legend_of_arrows_is_drawn_with_samples():
    """A sample line is as wide as an arrow of its number is on the page, and the numbers are round."""
    picture = plot.flow_map(RESULT.flows, RESULT.coordinates, time=1)
    (axes,) = picture.figure.axes
    legend = axes.get_legend()
    words = [t.get_text() for t in legend.get_texts() if t.get_text().endswith(" individuals")]
    lines = legend.get_lines()
    assert len(lines) == len(words) >= 2
    picture.figure.draw_without_rendering()
    per_unit = (axes.transData.transform((1.0, 0.0)) - axes.transData.transform((0.0, 0.0)))[0]
    largest = picture.numbers.iloc[0]
    for word, line in zip(words, lines, strict=True):
        number = float(word.split()[0].replace(",", "").replace("\u202f", ""))
        assert f"{number:.0e}"[0] in "1235"
        expected = largest["width"] * np.sqrt(number / largest["mean"]) * per_unit
        assert line.get_linewidth() * picture.figure.dpi / 72 == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("lower", "mean", "reliable", "kind"),
    [
        (0.4, 3.0, True, "perhaps none"),
        (0.5, 3.0, True, "less sure"),
        (1.6, 3.0, True, "sure"),
        (1.6, 3.0, False, "less sure"),
        (np.nan, 3.0, False, ""),
    ],
)
def test_certainty_of_a_flow(lower: float, mean: float, reliable: bool, kind: str) -> None:
    """Perhaps none below one half; sure from half the mean on if it is reliable; less sure otherwise; nothing without a range."""
    row = {"time": [0], "origin": [0], "dest": [1], "mean": mean, "lower": lower, "upper": 9.0}
    flows = pd.DataFrame(row | {"reliable": reliable})
    picture = plot.flow_map(flows, RESULT.coordinates, time=0, level=0.9)
    assert picture.numbers["certainty"].tolist() == [kind]
    assert any("range" in text for text in texts(picture)) == bool(kind)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fit_check": {"agrees": False}}, "do not agree with the model: no range can be relied on"),
        ({"fit_check": {"agrees": None, "doubts": ["x"]}}, "cannot tell whether the model is right"),
        ({"good": False, "status": "stalled"}, "did not finish well"),
        ({"means_non_negative": False}, "counts below zero"),
    ],
)
def test_no_picture_is_sure_where_no_range_can_be_relied_on(changes: dict[str, Any], words: str) -> None:
    """Where the check, the run or the engine forbids it, every arrow is in doubt, and each picture of the result says why on itself."""
    result = chain(attributes=attributes(**changes))
    moves = plot.flow_map(result, time=2)
    assert set(moves.numbers["certainty"]) == {"in doubt"}
    for picture in (moves, plot.count_map(result), plot.observed_against_inferred(result)):
        assert any(words in text for text in texts(picture))
    assert not any(words in text for text in texts(plot.flow_map(RESULT, time=2)))


def test_flows_read_off_the_scatter_are_in_doubt_and_counts_are_not() -> None:
    """An estimated scatter leaves counts reliable and flows not: each table has its own reason."""
    known = attributes(fit_check={"agrees": True, "flow_doubt": "only the scatter tells them"})
    result = chain(attributes=known)
    result = dataclasses.replace(result, flows=result.flows.assign(reliable=False))
    assert trust(result) == (True, None, "scatter")
    assert set(plot.flow_map(result, time=2).numbers["certainty"]) == {"in doubt"}


def test_net_change_is_the_difference_of_counts() -> None:
    """arrivals − departures = n(t + 1) − n(t) where flows agree with counts; it sums to zero over the map."""
    numbers = plot.net_flux_map(RESULT.flows, RESULT.coordinates, time=2).numbers
    counts = RESULT.nodes.pivot(index="time", columns="cell", values="mean")
    np.testing.assert_allclose(numbers["net"], counts.loc[3] - counts.loc[2], atol=1e-9 * POPULATION)
    assert abs(numbers["net"].sum()) < 1e-9 * POPULATION
    whole = plot.net_flux_map(RESULT.flows, RESULT.coordinates).numbers
    np.testing.assert_allclose(whole["net"], counts.loc[5] - counts.loc[0], atol=1e-9 * POPULATION)


def test_series_draw_the_frame() -> None:
    """Each panel's line is the mean and its dots what was observed; what nobody observed has no dot."""
    picture = plot.observed_against_inferred(RESULT.nodes, cells=[4, 0])
    for cell, axes in zip([4, 0], picture.figure.axes, strict=True):
        rows = RESULT.nodes[RESULT.nodes["cell"] == cell]
        lines = {line.get_label(): line for line in axes.lines}
        np.testing.assert_array_equal(lines["mean"].get_ydata(), rows["mean"])
        dots = np.concatenate([lines[name].get_ydata() for name in lines if "observed" in name])
        seen = rows["observed"].dropna()
        np.testing.assert_array_equal(np.sort(dots[~np.isnan(dots)]), np.sort(seen))
        assert axes.get_title() == f"cell {cell}"


def test_fullest_cells_come_first() -> None:
    """Without a choice the panels are the fullest cells, in that order."""
    numbers = plot.observed_against_inferred(RESULT.nodes).numbers
    totals = RESULT.nodes.groupby("cell")["mean"].sum().sort_values(ascending=False)
    assert numbers["cell"].unique().tolist() == totals.index[:12].tolist()


def test_labels_are_printed_as_they_are() -> None:
    """Dollar signs, dates and names of cells come out as the user wrote them; midnight is a date."""
    cells = ["$a$_b", *(f"zone {k}" for k in range(8))]
    result = relabelled(RESULT, cells, list(pd.date_range("2024-03-01", periods=6, freq="7D")))
    picture = plot.observed_against_inferred(result.nodes, cells=["$a$_b"])
    picture.figure.canvas.draw()
    assert picture.figure.axes[0].get_title() == r"cell \$a\$_b"  # matplotlib prints an escaped dollar as one
    titles = texts(plot.count_map(result.nodes, result.coordinates))
    assert "time 2024-03-01" in titles


def test_numbers_of_curves() -> None:
    """The trace and the ascent are drawn whole; the tolerance is said."""
    picture = plot.convergence(RESULT.trace, tolerance=0.01)
    np.testing.assert_array_equal(picture.figure.axes[0].lines[0].get_ydata(), RESULT.trace["residual"])
    assert "tolerance 0.01" in texts(picture)
    picture = plot.learning_curves(CYCLE, weights=["wind"])
    assert picture.numbers["quantity"].unique().tolist() == ["objective", "residual", "wind"]
    rows = picture.numbers[picture.numbers["quantity"] == "wind"]
    np.testing.assert_array_equal(rows["value"], CYCLE["wind"])
    drawn = [axes.lines[0].get_ydata() for axes in picture.figure.axes]
    np.testing.assert_array_equal(drawn[0], CYCLE["objective"])
    np.testing.assert_array_equal(drawn[1], CYCLE["residual"][:4])  # zero has no place on a logarithm


def test_runs_become_lines() -> None:
    """Runs put together are told apart by name, one line each in every panel."""
    both = pd.concat([CYCLE.assign(group="w₁"), CYCLE.assign(group="w₂")])
    axes = plot.learning_curves(both).figure.axes[0]
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["w₁", "w₂"]


# Linear RGB as seen without one kind of cone (Viénot, Brettel and Mollon 1999).
LESS = {
    "protan": [[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]],
    "deutan": [[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]],
}


@pytest.mark.parametrize("eye", LESS)
def test_classes_are_told_apart_without_red_or_green(eye: str) -> None:
    """The colours that carry meaning stay at least 0.15 apart (linear RGB) for colour-blind eyes."""
    from matplotlib.colors import to_rgb

    from headcount.plot._maps import COLOURS

    filled = {colour for colour in COLOURS.values() if colour != "none"}
    seen = [np.array(LESS[eye]) @ np.array(to_rgb(colour)) ** 2.2 for colour in filled]
    gaps = [np.linalg.norm(a - b) for k, a in enumerate(seen) for b in seen[k + 1 :]]
    assert min(gaps) > 0.15


def test_counts_are_divided_by_their_rate() -> None:
    """With a rate the dots are individuals: what was counted, divided by how many counts one individual gives."""
    nodes = chain().nodes
    plain = plot.observed_against_inferred(nodes, cells=[0]).numbers["observed"]
    scaled = plot.observed_against_inferred(nodes, cells=[0], rate=0.5).numbers["observed"]
    np.testing.assert_allclose(scaled, 2 * plain)
    each = plot.observed_against_inferred(nodes, cells=[0], rate=np.where(nodes["time"] == 0, 0.25, 1.0))
    assert each.numbers["observed"].iloc[0] == 4 * plain.iloc[0]


def test_areas_are_filled_by_their_counts() -> None:
    """With the cells' areas the map is a choropleth: one path per cell and panel, with its mean as colour, and all of it in view."""
    from matplotlib.collections import PathCollection

    result = chain()
    corners = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]])
    points = result.coordinates[["x", "y"]].to_numpy()
    shapes = {cell: [3 * corners / 2 + p] for cell, p in zip(result.cells, points, strict=True)}
    made = plot.count_map(result.nodes, result.coordinates, times=[0, 3], shapes=shapes)
    for axes, time in zip(made.figure.axes, (0, 3), strict=False):
        (areas,) = [c for c in axes.collections if isinstance(c, PathCollection) and len(c.get_paths()) == 9]
        np.testing.assert_allclose(areas.get_array(), result.nodes[result.nodes["time"] == time]["mean"])
        assert axes.get_xlim()[0] <= points[:, 0].min() - 0.75
    assert not [c for c in made.figure.axes[0].collections if isinstance(c, EllipseCollection)]
