"""A posterior as a file: what is written reads back the same, by us and by ArviZ."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.posterior.cases import birds, dated, pets

from headcount.engines import Posterior
from headcount.io import Result, load_result


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    return birds()


@pytest.mark.parametrize("make", [dated, pets, None])
def test_a_saved_posterior_reads_back_the_same(make: Any, posterior: Posterior, tmp_path: Path) -> None:
    """load_result(save(p)) has the tables of p: nodes, flows and trace, under the same labels."""
    made = posterior if make is None else make()
    made.save(tmp_path / "p.nc")
    read = load_result(tmp_path / "p.nc")
    for table, what in ((read.nodes, "nodes"), (read.flows, "flows")):
        pd.testing.assert_frame_equal(table, made.to_frame(what), check_dtype=False)
    pd.testing.assert_frame_equal(read.trace, made.trace, check_dtype=False)
    assert read.attributes["engine"] == made.engine
    assert read.good


def test_memory_and_file_give_the_same_result(posterior: Posterior, tmp_path: Path) -> None:
    """Result.of(p) and load_result of its file agree in every table and property."""
    posterior.save(tmp_path / "p.nc", level=0.5)
    read, made = load_result(tmp_path / "p.nc"), Result.of(posterior, level=0.5)
    for name in ("nodes", "flows", "trace", "coordinates"):
        pd.testing.assert_frame_equal(getattr(read, name), getattr(made, name))
    for name in ("level", "good", "population", "is_chain", "geographic", "times", "cells"):
        assert getattr(read, name) == getattr(made, name)
    assert (read.level, read.population) == (0.5, 200)


def test_arviz_opens_the_file(posterior: Posterior, tmp_path: Path) -> None:
    """arviz.from_netcdf finds draws with chain and draw, the data and the rest, without a warning of ours."""
    posterior.save(tmp_path / "p.nc")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arviz = pytest.importorskip("arviz")
    read = arviz.from_netcdf(tmp_path / "p.nc")
    assert {"posterior", "observed_data", "constant_data", "nodes", "flows", "trace"} <= set(read.groups())
    draws = read.posterior["count"]
    assert draws.dims == ("chain", "draw", "time", "cell")
    assert (draws >= 0).all()
    assert (draws.sum("cell") == 200).all()
    spread = 5 * posterior.node(2).sd.to_numpy() / np.sqrt(draws.sizes["draw"])
    gap = np.abs(draws.sel(time=2).mean(("chain", "draw")).to_numpy() - posterior.node(2).mean.to_numpy())
    assert (gap <= spread + 0.5).all()


def test_a_point_has_no_draws(tmp_path: Path) -> None:
    """An engine without spread leaves its mean as the only draw, and says so."""
    tree = dated().to_xarray()
    assert tree["posterior"].attrs["draws"] == 0
    assert tree["posterior/count"].sizes["draw"] == 1
    assert tree["nodes/sd"].isnull().all()


def test_files_follow_the_umask(posterior: Posterior, tmp_path: Path) -> None:
    """Results can be read by whoever the umask lets."""
    posterior.save(tmp_path / "p.nc")
    (tmp_path / "plain").write_text("")
    assert (tmp_path / "p.nc").stat().st_mode == (tmp_path / "plain").stat().st_mode
