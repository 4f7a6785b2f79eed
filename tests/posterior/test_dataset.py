"""A posterior as a file: what is written reads back the same, by us and by ArviZ."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.posterior.cases import birds, dated, pets

import headcount as hc
from headcount.engines import Posterior
from headcount.io import Result, load_result
from headcount.posterior.dataset import replicates


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
    named = read.groups() if callable(read.groups) else read.groups  # ArviZ before 1.0, and from it on
    groups = {name.strip("/") for name in named}
    assert {"posterior", "observed_data", "constant_data", "nodes", "flows", "trace"} <= groups
    draws = read.posterior["count"]
    assert draws.dims == ("chain", "draw", "time", "cell")
    assert (draws >= 0).all()
    assert (draws.sum("cell") == 200).all()
    spread = 5 * posterior.node(2).sd.to_numpy() / np.sqrt(draws.sizes["draw"])
    gap = np.abs(draws.sel(time=2).mean(("chain", "draw")).to_numpy() - posterior.node(2).mean.to_numpy())
    assert (gap <= spread + 0.5).all()


def test_arviz_compares_and_checks_models_by_the_file(tmp_path: Path) -> None:
    """az.loo, az.compare and pictures of replicates work on saved files (ArviZ before 1.0); the true model predicts better."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        az = pytest.importorskip("arviz")
        import matplotlib as mpl

        mpl.use("Agg")
        import headcount as hc

        world = hc.simulate.birds(3, (1.0, 2.0, 2.0, 2.0), 300, steps=6, rng=1)
        counts = np.asarray(world.observed, dtype=float)
        counts[2, 4] = np.nan  # what was not observed is no observation
        wrong = hc.MarkovChain(np.full(9, 1 / 9), np.full((9, 9), 1 / 9), length=6)
        files = {}
        for name, model in (("true", world.model), ("wrong", wrong)):
            hc.infer(hc.Problem(model, 300, hc.Poisson(counts))).save(tmp_path / f"{name}.nc", draws=400)
            files[name] = az.from_netcdf(tmp_path / f"{name}.nc")
        assert files["true"].log_likelihood["y"].shape == (1, 400, 53)
        if not hasattr(az, "plot_ppc"):
            pytest.skip("loo of ArviZ 1 refuses a pointwise likelihood whose largest values are equal")
        assert np.isfinite(az.loo(files["true"]).elpd_loo)
        table = az.compare(files)
        axes = az.plot_ppc(files["true"], num_pp_samples=20)
    assert table.index[0] == "true"
    assert axes is not None
    assert (files["true"].observed_data["y"].values == counts[np.isfinite(counts)]).all()


def test_replicates_have_the_predictive_moments(posterior: Posterior) -> None:
    """Poisson replicates of a count have the posterior mean as mean and posterior variance + mean as variance (4 standard errors)."""
    drawn = posterior.predictive(4000, rng=1)
    assert drawn.dims == ("draw", "observation")
    where = (drawn["time"] == 2).values
    mean, sd = posterior.node(2).mean.values, posterior.node(2).sd.values
    spread = np.sqrt(sd**2 + mean)
    assert (np.abs(drawn.values[:, where].mean(axis=0) - mean) < 4 * spread / np.sqrt(4000) + 0.02).all()
    kept = mean > 1
    assert drawn.values[:, where].std(axis=0)[kept] == pytest.approx(spread[kept], rel=0.06)


SMALL_CHAIN = hc.MarkovChain([0.4, 0.3, 0.3], np.full((3, 3), 0.1) + 0.7 * np.eye(3), length=3)
SMALL_COUNTS = [[9.0, 1, 0], [5, 2, 1], [7, 0, 1]]


@pytest.mark.parametrize(
    "noise",
    [hc.Poisson, partial(hc.Binomial, detection=0.5), partial(hc.NegativeBinomial, dispersion=3.0)],
    ids=["poisson", "binomial", "negative binomial"],
)
def test_replicates_of_real_draws_are_counts(noise: Any) -> None:
    """Whatever real numbers an engine draws, some below zero: what would be counted again is whole and ≥ 0."""
    problem = hc.Problem(SMALL_CHAIN, 12, noise(SMALL_COUNTS))
    again = replicates(problem, np.linspace(-4.0, 9.3, 900).reshape(100, 9), np.random.default_rng(0))
    assert (again >= 0).all()
    assert (again == np.rint(again)).all()
    assert again[60:].mean() > 1


def test_draws_that_may_be_negative_are_written(tmp_path: Path) -> None:
    """An engine whose expected counts are negative still has its file written, real draws in it."""
    made = hc.infer(hc.Problem(SMALL_CHAIN, 12, hc.Binomial(SMALL_COUNTS, detection=0.5)), "Laplace")
    assert not made.promises.non_negative
    made.save(tmp_path / "p.nc")
    assert float(made.to_xarray(draws=200)["posterior"]["count"].min()) < 0


@pytest.mark.parametrize("make", [pets, birds])
def test_flows_are_among_the_draws_when_asked(make: Any) -> None:
    """draw_flows=True keeps joint draws of flows, which agree with the drawn nodes; draws= says how many there are."""
    tree = make().to_xarray(draws=12, draw_flows=True)["posterior"]
    flows = [name for name in tree.data_vars if str(name).startswith("flow")]
    assert flows
    assert tree.sizes["draw"] == 12
    if "flow" in tree.data_vars:
        assert (tree["flow"].sum("dest").values == tree["count"].values[:, :, :-1]).all()
    assert not [name for name in make().to_xarray().posterior.data_vars if str(name).startswith("flow")]
    with pytest.raises(ValueError, match="draws"):
        make().to_xarray(draws=-1)


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
