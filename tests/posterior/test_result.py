"""A posterior as tidy tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from tests.posterior.cases import birds

import headcount as hc
from headcount.engines import MAP, Posterior
from headcount.io import load_result
from headcount.posterior.result import Result, _variance_of_moves


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    return birds()


def test_tables_say_what_the_posterior_says(posterior: Posterior) -> None:
    """Rows of nodes and flows hold the posterior's own numbers; forbidden moves have no row; flows add up to nodes."""
    nodes, flows = posterior.to_frame("nodes"), posterior.to_frame("flows")
    row = nodes[(nodes["time"] == 2) & (nodes["cell"] == 5)].iloc[0]
    assert row["mean"] == posterior.node(2).mean.sel({"2": 5}).item()
    assert row["lower"] == posterior.node(2).interval(0.9)["lower"].sel({"2": 5}).item()
    assert not flows[(flows["time"] == 0) & (flows["origin"] != 0)].size
    left = flows.groupby(["time", "origin"])["mean"].sum().reset_index()
    both = left.merge(nodes, left_on=["time", "origin"], right_on=["time", "cell"])
    assert np.allclose(both["mean_x"], both["mean_y"], atol=1e-7)
    with pytest.raises(ValueError, match=r"what is 'edges'.*'nodes' or 'flows'"):
        posterior.to_frame("edges")


def test_sparse_moves_stay_sparse(tmp_path: Path) -> None:
    """MAP on sparse transitions lists the moves that exist, with the numbers of the dense table, and reads back the same."""
    moves = np.array([[0.5, 0.5, 0.0], [0.0, 0.7, 0.3], [0.2, 0.0, 0.8]])
    data = [hc.Poisson([[30, 30, 40], [20, 45, 31], [25, 30, 50]])]
    thin, full = (
        hc.infer(hc.Problem(hc.MarkovChain([0.3, 0.3, 0.4], m, length=3), 100, data), MAP())
        for m in (sparse.csr_array(moves), moves)
    )
    pd.testing.assert_frame_equal(thin.to_frame("flows"), full.to_frame("flows"))
    assert thin.to_xarray()["flows/mean"].dims == ("move",)
    thin.save(tmp_path / "p.nc")
    pd.testing.assert_frame_equal(
        load_result(tmp_path / "p.nc").flows, thin.to_frame("flows"), check_dtype=False
    )


@pytest.mark.parametrize(
    "together", [None, hc.Flocks(5), hc.Overdispersion(rho=0.1), hc.Overdispersion(phi=3.0)]
)
def test_the_model_alone_scatters_as_its_own_run(together) -> None:
    """The variance of moves against which the data are held is that of an inference without any counts."""
    world = hc.simulate.birds(side=3, weights=(1, 2, 2, 2), population=300, steps=5, rng=1)
    problem = hc.Problem(world.model, 300, hc.Poisson(world.observed), dispersion=together)
    alone = hc.infer(problem.unseen()).to_frame("flows")
    expected = (alone["sd"] ** 2)[alone["origin"] != alone["dest"]].sum()
    found = _variance_of_moves(world.model, 300.0, problem.together)
    assert found == pytest.approx(expected, rel=1e-6)


def test_every_chain_says_what_its_data_told() -> None:
    """Counts tell something of the moves whether or not N and the scatter are known; a screenline that is counted tells more."""
    world = hc.simulate.birds(side=3, weights=(1, 2, 2, 2), population=300, steps=5, rng=1)
    counts = hc.Poisson(world.observed)
    for size, together in ((300, None), (hc.Unknown(), None), (300, "estimate"), (300, hc.Flocks(2))):
        post = hc.infer(hc.Problem(world.model, size, counts), dispersion=together)
        told = Result.of(post).attributes["told_by_data"]
        assert 0.0 < told < 0.9
    flows = hc.Poisson(20.0 * np.ones((9, 9)), on=(1, 2), rate=5.0)
    more = hc.infer(hc.Problem(world.model, 300, [counts, flows]))
    assert Result.of(more).attributes["told_by_data"] > told
