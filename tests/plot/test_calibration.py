"""Coverage: the share of intervals that hold the truth."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from headcount import plot
from headcount.posterior.interval import whole_quantiles


def test_honest_intervals_lie_on_the_diagonal(rng: np.random.Generator) -> None:
    """Truths drawn from the stated law are covered as often as stated, within four standard errors; narrow ones less."""
    mean, sd = rng.uniform(50, 90, 20_000), rng.uniform(1, 9, 20_000)
    truth = rng.normal(mean, sd)
    frame = pd.DataFrame({"mean": mean, "sd": sd})
    table = plot.coverage(frame, truth)
    error = np.sqrt(table["nominal"] * (1 - table["nominal"]) / 20_000)
    assert (np.abs(table["covered"] - table["nominal"]) < 4 * error).all()
    narrow = plot.coverage(frame.assign(sd=sd / 2), truth)
    assert (narrow["covered"] < narrow["nominal"]).all()


def test_population_gives_the_intervals_of_the_library(rng: np.random.Generator) -> None:
    """With N the ends are the whole numbers that the posterior itself states."""
    mean, sd = np.array([0.4, 5.0, 90.0]), np.array([0.6, 2.0, 4.0])
    (upper,) = whole_quantiles(mean, sd**2, 100.0, (0.95,))
    frame = pd.DataFrame({"mean": mean, "sd": sd})
    inside = plot.coverage(frame, upper, levels=[0.9], population=100)
    outside = plot.coverage(frame, upper + 1, levels=[0.9], population=100)
    assert inside["covered"].item() == 1
    assert outside["covered"].item() == 0


def test_rows_that_claim_nothing_are_left_out() -> None:
    """A spread of zero or none is no interval; where there is no other row, that is an error."""
    frame = pd.DataFrame({"mean": [1.0, 2, 3], "sd": [0.0, np.nan, 1.0]})
    assert plot.coverage(frame, [9, 9, 3], levels=[0.5])["cases"].item() == 1
    with pytest.raises(ValueError, match="no interval can be judged"):
        plot.coverage(frame.iloc[:2], [1, 1])
    with pytest.raises(ValueError, match=r"shape \(3,\), got \(2,\)"):
        plot.coverage(frame, [1, 2])


def test_groups_become_lines() -> None:
    """Each group is one line with its bars ±1.96·√(c(1−c)/cases)."""
    table = pd.DataFrame(
        {"group": ["a", "a", "b"], "nominal": [0.5, 0.9, 0.5], "covered": [0.4, 0.8, 0.6], "cases": 100}
    )
    picture = plot.calibration(table)
    labels = [t.get_text() for t in picture.figure.axes[0].get_legend().get_texts()]
    assert labels == ["as promised", "a", "b"]
    assert picture.numbers["error"][0] == pytest.approx(1.96 * np.sqrt(0.24 / 100))
