"""Pictures of the check of fit: what is drawn is what was computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import headcount as hc


@pytest.fixture(scope="module")
def post() -> hc.Posterior:
    world = hc.simulate.birds(3, (1.0, 2.0, 2.0, 2.0), 300, steps=6, rng=1)
    return hc.infer(hc.Problem(world.model, 300, hc.Poisson(world.observed)))


def test_bars_of_the_pit_count_every_checked_count(post: hc.Posterior) -> None:
    """Shares sum to one, and every count with a PIT is in a bar."""
    frame = post.fit_check.to_frame()
    numbers = hc.plot.pit_histogram(frame, bins=5).numbers
    assert numbers["share"].sum() == pytest.approx(1.0)
    assert numbers["counts"].sum() == frame["pit"].notna().sum()
    with pytest.raises(ValueError, match="bins"):
        hc.plot.pit_histogram(frame, bins=1)
    with pytest.raises(ValueError, match="nothing to draw"):
        hc.plot.pit_histogram(frame.assign(pit=np.nan))


def test_residuals_are_shown_by_time_and_by_cell(post: hc.Posterior, tmp_path: Path) -> None:
    """The root mean square of each time and of each cell, from memory and from a file."""
    frame = post.fit_check.to_frame()
    by_time = hc.plot.residuals_over_time(frame).numbers
    first = frame[(frame["time"] == 1) & (frame["sd"] > 0)]
    shown = by_time.loc[by_time["time"] == 1, "scatter"].iloc[0]
    assert shown == pytest.approx(np.sqrt((first["residual"] ** 2).mean()))
    places = pd.DataFrame({"cell": range(9), "x": np.arange(9) % 3, "y": np.arange(9) // 3})
    numbers = hc.plot.residual_map(frame, places).numbers
    here = frame[(frame["cell"] == 4) & (frame["sd"] > 0)]
    row = numbers[numbers["cell"] == 4].iloc[0]
    assert row["scatter"] == pytest.approx(np.sqrt((here["residual"] ** 2).mean()))
    assert row["counts"] == len(here)
    post.save(tmp_path / "p.nc")
    stored = hc.io.load_result(tmp_path / "p.nc").check
    pd.testing.assert_frame_equal(stored, frame, check_dtype=False)
    assert hc.plot.residual_map(stored, places).numbers["scatter"].to_numpy() == pytest.approx(
        numbers["scatter"].to_numpy()
    )
    summary = post.to_xarray().attrs["fit_check"]
    assert "dispersion_by_time" in summary
    assert "dispersion_by_cell" in summary
