"""The same picture comes from a Posterior, a Result, a file or frames."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import headcount as hc
from headcount import plot
from headcount.engines import Posterior
from headcount.io import Result


@pytest.fixture(scope="module")
def post() -> Posterior:
    world = hc.simulate.birds(side=3, weights=(1, 2, 2, 2), population=300, steps=5, rng=1)
    return hc.infer(hc.Problem(world.model, 300, hc.Poisson(world.observed)))


def test_one_picture_from_every_source(post: Posterior, tmp_path: Path) -> None:
    """post.plot.flows(2), and flow_map of posterior, result, stored posterior and frames, draw the same numbers."""
    post.save(tmp_path / "post.nc")
    result = Result.of(post)
    pictures = [
        post.plot.flows(2),
        result.plot.flows(2),
        Posterior.load(tmp_path / "post.nc").plot.flows(2),
        plot.flow_map(post, time=2),
        plot.flow_map(result, time=2),
        plot.flow_map(result.flows, result.coordinates, time=2),
    ]
    for picture in pictures[1:]:
        pd.testing.assert_frame_equal(picture.numbers, pictures[0].numbers, atol=1e-9)


def test_every_short_name_draws(post: Posterior) -> None:
    """Each picture of the accessor has numbers; its repr lists the names."""
    drawn = [
        post.plot.counts([0, 1]),
        post.plot.net(),
        post.plot.series(),
        post.plot.convergence(),
        post.plot.pit(),
        post.plot.residuals(),
    ]
    assert all(len(picture.numbers) for picture in drawn)
    assert "flows" in repr(post.plot)
    assert np.isfinite(drawn[0].numbers["mean"]).all()


def test_times_are_named_by_what_people_write() -> None:
    """A date finds its picture by its text."""
    weeks = list(pd.date_range("2023-03-05", periods=3, freq="W"))
    chain = hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], times=weeks, cells=["p", "q"])
    counts = hc.Problem(chain, 100, hc.Poisson(np.full((3, 2), 50.0)))
    flows = Result.of(hc.infer(counts))
    places = pd.DataFrame({"cell": ["p", "q"], "x": [0.0, 1.0], "y": [0.0, 0.0]})
    assert len(plot.flow_map(flows.flows, places, time=weeks[0]).numbers) == 2
    placed = Result(flows.nodes, flows.flows, flows.trace, flows.attributes, places)
    assert len(placed.plot.flows("2023-03-05").numbers) == 2
