"""Every kind of label that infers also fits, saves and loads; dates are found by what people write; everything can be copied."""

import copy
import datetime as dt
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import headcount as hc
from headcount.individual import ModelError, Tree

STAY = np.array([[0.8, 0.2], [0.3, 0.7]])
COUNTS = np.array([[52.0, 48.0], [55.0, 44.0], [58.0, 41.0], [61.0, 40.0]])
LABELS: dict[str, list[Any]] = {
    "time stamps": list(pd.date_range("2023-03-05", periods=4, freq="W")),
    "time stamps with a zone": list(
        pd.date_range("2023-03-05T10:00", periods=4, freq="h", tz="Europe/Berlin")
    ),
    "dates": [dt.date(2023, 3, 5 + k) for k in range(4)],
    "datetimes with a zone": [dt.datetime(2023, 3, 5 + k, tzinfo=dt.UTC) for k in range(4)],
    "datetime64": list(np.arange("2023-03-05", "2023-03-09", dtype="datetime64[D]")),
    "periods": list(pd.period_range("2023-01", periods=4, freq="M")),
    "time deltas": [pd.Timedelta(hours=k) for k in range(4)],
    "texts": ["a", "b", "c", "d"],
    "decimals": [0.5, 1.0, 1.5, 2.0],
    "tuples": [("a", 1), ("a", 2), ("b", 1), ("b", 2)],
    "mixed": [1, "b", 2.5, ("c",)],
}


def problem(times: list[Any]) -> hc.Problem:
    chain = hc.MarkovChain([0.5, 0.5], STAY, times=times, cells=["p", "q"])
    return hc.Problem(chain, 100, hc.Poisson(COUNTS))


@pytest.mark.parametrize("kind", LABELS)
def test_every_label_infers_fits_saves_and_loads(kind: str, tmp_path: Path) -> None:
    """No kind of time label is lost on the way to a file and back, from an inference or from a fit."""
    times = LABELS[kind]
    asked = problem(times)
    post = hc.infer(asked, "MAP")
    post.save(tmp_path / "post.nc")
    loaded = hc.io.load_result(tmp_path / "post.nc")
    assert len(loaded.times) == 4
    assert loaded.nodes["mean"].to_numpy() == pytest.approx(post.to_frame()["mean"].to_numpy(), abs=1e-12)
    fit = hc.fit(hc.LogisticChain(np.array([[[1.0, 0], [0, 1]]])), asked, "MAP", strict=False)
    fit.save(tmp_path / "fit.npz")
    again = hc.learn.Fit.load(tmp_path / "fit.npz")
    assert tuple(again.templates[0].variables) == tuple(times)
    assert again.weights.to_numpy() == pytest.approx(fit.weights.to_numpy())
    assert pickle.loads(pickle.dumps(fit)).posterior.node(times[1]).mean.to_numpy().sum() == pytest.approx(
        100
    )


@pytest.mark.parametrize("year", [1066, 1677, 1678, 2024, 2261, 2262, 9999])
def test_files_hold_dates_of_any_year(year: int, tmp_path: Path) -> None:
    """Nanoseconds end in 1677 and 2262: other dates are texts in files, and never another date."""
    times = [dt.datetime(year, 3, day) for day in (1, 8)]
    chain = hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], times=times, cells=["a", "b"])
    post = hc.infer(hc.Problem(chain, 9, hc.Poisson([[5, 4], [3, 6]])))
    post.save(tmp_path / "post.nc")
    loaded = hc.Posterior.load(tmp_path / "post.nc")
    wanted = post.node(f"{year}-03-08").mean.to_numpy()
    np.testing.assert_allclose(loaded.node(f"{year}-03-08").mean.to_numpy(), wanted)
    assert {str(time)[:10] for time in loaded.to_frame("nodes")["time"]} == {f"{year}-03-01", f"{year}-03-08"}


def test_dates_are_found_by_what_people_write() -> None:
    """A day by any of its texts and kinds, a month by its name where it names one time; several are refused, none is as before."""
    post = hc.infer(problem(LABELS["time stamps"]), "TiltedEP")
    first = post.node(pd.Timestamp("2023-03-05")).mean
    for name in (
        "2023-03-05",
        "5 March 2023",
        "05.03.2023",
        "2023-W09",
        dt.date(2023, 3, 5),
        np.datetime64("2023-03-05"),
    ):
        assert np.array_equal(post.node(name).mean, first)
    assert post.edge("2023-03-05", "2023-03-12").mean.shape == (2, 2)
    assert post.total({"2023-03-12": [1, 0]}).mean == pytest.approx(float(post.node("2023-03-12").mean[0]))
    with pytest.raises(ModelError, match="'March' could be any of 2023-03-05, "):
        post.node("March")
    with pytest.raises(ModelError, match="2023-03-06"):
        post.node("2023-03-06")
    months = hc.infer(problem([pd.Timestamp(f"2023-0{k}-01") for k in (1, 2, 3, 4)]), "MAP")
    assert np.array_equal(months.node("März").mean, months.node("2023-03-01").mean)
    zoned = hc.infer(problem(LABELS["time stamps with a zone"]), "MAP")
    assert np.array_equal(
        zoned.node("2023-03-05T10:00Z").mean, zoned.node(LABELS["time stamps with a zone"][1]).mean
    )


def small(engine: str | None = None, **options: Any) -> hc.engines.Posterior:
    chain = hc.MarkovChain([0.5, 0.5], STAY, times=[0, 1, 2, 3], cells=["p", "q"])
    return hc.infer(hc.Problem(chain, 10, hc.Poisson(COUNTS // 10)), engine, rng=1, strict=False, **options)


def unknown_initial() -> hc.engines.Posterior:
    return hc.infer(hc.Problem(hc.MarkovChain(None, STAY, times=[0, 1, 2, 3]), 100, hc.Poisson(COUNTS)))


def network() -> hc.engines.Posterior:
    pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    town = hc.DiscreteModel({v: ["x", "y"] for v in "abcd"}, dict.fromkeys(pairs, np.log(STAY)))
    return hc.infer(hc.Problem(town, 500, hc.Poisson({("a", "b"): [[100.0, 150], [120, 130]]})))


def tables() -> hc.engines.Posterior:
    chain = hc.MarkovChain(np.full(4, 0.25), np.full((4, 4), 0.1) + 0.6 * np.eye(4), length=3)
    return hc.infer(hc.Problem(chain, 8, hc.Exact([[2.0, 3, 1, 2], [1, 3, 2, 2], [2, 2, 2, 2]])), "TableBP")


def tree() -> hc.engines.Posterior:
    model = Tree([0.5, 0.5], {"b": ("a", STAY)}, root="a")
    return hc.infer(hc.Problem(model, 100, hc.Poisson({"b": [40.0, 60.0]})), "TiltedEP")


MADE: dict[str, Callable[[], Any]] = {
    "TiltedEP": lambda: small("TiltedEP"),
    "Laplace": lambda: small("Laplace"),
    "unknown initial law": unknown_initial,
    "network": network,
    "tree": tree,
    "PathGibbs": lambda: small("PathGibbs"),
    "TableBP": tables,
}


@pytest.mark.parametrize("what", MADE)
def test_posteriors_can_be_pickled_and_copied(what: str) -> None:
    """A copy answers what the original answers: means, intervals, tables, the check of fit."""
    post = MADE[what]()
    variable = post.problem.model.variables[0]
    for made in (pickle.loads(pickle.dumps(post)), copy.deepcopy(post)):
        assert np.array_equal(made.node(variable).mean, post.node(variable).mean)
        pd.testing.assert_frame_equal(made.to_frame(), post.to_frame())
        assert made.fit_check.verdict == post.fit_check.verdict
        estimate = pickle.loads(pickle.dumps(made.node(variable)))
        assert np.array_equal(estimate.sd, post.node(variable).sd, equal_nan=True)
    asked = copy.deepcopy(post.problem)
    assert pickle.loads(pickle.dumps(asked)).population == post.problem.population
