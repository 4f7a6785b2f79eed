"""What a picture cannot show it refuses, and says what to do instead."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from headcount import plot
from sample_results import chain

RESULT = chain()


def test_missing_columns_are_named() -> None:
    """A frame without a column is refused with the columns that it lacks and has."""
    with pytest.raises(ValueError, match=r"nodes lacks the columns lower, upper; it has time, cell"):
        plot.count_map(RESULT.nodes.drop(columns=["lower", "upper"]), RESULT.coordinates)


def test_an_interval_states_its_level() -> None:
    """A frame that does not say its level (read from CSV, say) needs it as an argument, between 0 and 1."""
    bare = pd.DataFrame(RESULT.nodes)
    bare.attrs = {}
    with pytest.raises(ValueError, match=r"give level=0\.9"):
        plot.observed_against_inferred(bare)
    with pytest.raises(ValueError, match="between 0 and 1"):
        plot.observed_against_inferred(bare, level=90)
    said = [
        t.get_text() for t in plot.observed_against_inferred(bare, level=0.5).figure.legends[0].get_texts()
    ]
    assert "50 % range" in said


@pytest.mark.parametrize("time", [17, "2"])
def test_unknown_times_are_refused(time: object) -> None:
    """A time that the frame does not have, be it for its type, is refused with those it has."""
    with pytest.raises(ValueError, match=r"time must name some of those in the frame.*it has 0, 1, 2"):
        plot.flow_map(RESULT.flows, RESULT.coordinates, time=time)


def test_zero_is_a_time_and_a_cell() -> None:
    """0 is a label like any other."""
    assert len(plot.net_flux_map(RESULT.flows, RESULT.coordinates, time=0).numbers) == 9
    assert plot.observed_against_inferred(RESULT.nodes, cells=[0]).numbers["cell"].unique().tolist() == [0]


def test_maps_need_places() -> None:
    """Without coordinates, or without those of one cell, or with two or unknown ones for a cell, there is no map."""
    places = RESULT.coordinates
    with pytest.raises(ValueError, match="draw observed_against_inferred"):
        plot.count_map(RESULT.nodes, None)
    with pytest.raises(ValueError, match=r"lack 1 cells of the frame \(8\)"):
        plot.count_map(RESULT.nodes, places.iloc[:-1])
    twice = pd.concat([places, places.iloc[[2]].assign(x=np.nan)])
    with pytest.raises(ValueError, match=r"appear twice: 2; .*without a finite place: 2"):
        plot.count_map(RESULT.nodes, twice)


def test_empty_frames_are_refused() -> None:
    """Nothing to draw is an error, not an empty picture."""
    with pytest.raises(ValueError, match="trace has no rows"):
        plot.convergence(RESULT.trace.iloc[:0])
    with pytest.raises(ValueError, match="no weights were named"):
        plot.learning_curves(pd.DataFrame({"iteration": [1, 2]}))
    with pytest.raises(ValueError, match="at least 1, got 0"):
        plot.flow_map(RESULT.flows, RESULT.coordinates, time=0, largest=0)


def test_unknown_kinds_of_file_are_refused(tmp_path: object) -> None:
    """The ending of a path must name a kind of picture that matplotlib writes; nothing is left behind."""
    from pathlib import Path

    with pytest.raises(ValueError, match=r"ends in '\.gif.?'; give one of .*\.png"):
        plot.convergence(RESULT.trace).save(f"{tmp_path}/a.gifx")
    assert list(Path(str(tmp_path)).iterdir()) == []
