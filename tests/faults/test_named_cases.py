"""Arguments that once ended in a raw error, or were taken where they must not be: one test for each."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from typer.testing import CliRunner

import headcount as hc
from headcount import report
from headcount.cli import app
from headcount.errors import FaultsError
from headcount.io import write_results, write_table
from headcount.memory import TooLargeError
from headcount.observe import Observation
from headcount.posterior import Posterior
from headcount.posterior.result import Result

MOVES = [[0.9, 0.1], [0.2, 0.8]]
CHAIN = hc.MarkovChain([0.5, 0.5], MOVES, length=3)
COUNTS = np.array([[10.0, 9.0], [11.0, 8.0], [9.0, 10.0]])


def run(words: list[str]) -> Any:
    """The command's end; a raw exception fails."""
    done = CliRunner().invoke(app, ["infer", *words])
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    return done


def test_a_seed_of_any_length_is_written(small: list[str], tmp_path: Path) -> None:
    """A seed above 2⁶⁴ was a raw TypeError while writing; it is in the summary, digit by digit."""
    seed = "99999999999999999999"
    done = run([*small, "--engine", "PathGibbs", "--seed", seed, "--out", str(tmp_path / "seeded")])
    assert done.exit_code in {0, 3}, done.output
    if done.exit_code == 0:
        assert seed in json.dumps(json.loads((tmp_path / "seeded" / "summary.json").read_text()))


def test_an_empty_name_is_no_folder(
    small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--out ''`` wrote into the working folder."""
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    done = run([*small, "--out", ""])
    assert done.exit_code == 2
    assert "out" in done.output
    assert sorted(tmp_path.iterdir()) == before


def test_a_population_that_no_float_holds_is_refused(small: list[str], tmp_path: Path) -> None:
    """2⁵³ + 1 was rounded silently."""
    words = list(small)
    words[words.index("--population") + 1] = "9007199254740993"
    done = run([*words, "--out", str(tmp_path / "many")])
    assert done.exit_code == 2
    assert "population" in done.output.lower()
    with pytest.raises(FaultsError, match="population"):
        hc.Problem(CHAIN, 2**53 + 1, hc.Poisson(COUNTS))


@pytest.mark.parametrize("rng", ["a", 1.5, -1, [1, 2], True, float("nan"), {}, np.random.RandomState(1)])
def test_chance_is_a_seed_or_a_generator(rng: Any) -> None:
    """Whatever is asked for chance refuses anything else in the same words."""
    problem = hc.Problem(CHAIN, 20, hc.Poisson(COUNTS))
    post = hc.infer(problem)
    asks: list[Callable[[], object]] = [
        lambda: post.sample(2, rng=rng),
        lambda: post.routes(2, rng=rng),
        lambda: hc.infer(problem, "PathGibbs", rng=rng),
        lambda: hc.simulate.population(CHAIN, 10, rng=rng),
    ]
    for ask in asks:
        with pytest.raises(FaultsError, match="rng is"):
            ask()


@pytest.mark.parametrize("rng", [np.int64(3), 2**64, np.random.SeedSequence(3), np.random.PCG64(1)])
def test_chance_of_numpy_is_taken(rng: Any) -> None:
    """Seeds of any length and NumPy's own sources."""
    assert hc.simulate.population(CHAIN, 10, rng=rng).tables.table((0,)).sum() == 10


def test_a_level_in_words() -> None:
    with pytest.raises(FaultsError, match="level is 'a'"):
        hc.infer(hc.Problem(CHAIN, 20, hc.Poisson(COUNTS))).node(0).interval("a")  # type: ignore[arg-type]


def test_more_draws_than_any_memory_holds() -> None:
    with pytest.raises(TooLargeError, match="ask for fewer"):
        hc.infer(hc.Problem(CHAIN, 20, hc.Poisson(COUNTS))).sample(2**53, rng=1)


NESTED = {
    "nested ids": {"id": [[1], [2]], "time": [0, 1], "cell": [0, 1]},
    "nested times": {"id": [1, 1], "time": [[0], [1]], "cell": [0, 1]},
    "sparse ids": {"id": sparse.csr_array([[1, 1]]), "time": [0, 1], "cell": [0, 1]},
    "sparse cells": {"id": [1, 1], "time": [0, 1], "cell": sparse.csr_array([[0, 1]])},
}


@pytest.mark.parametrize("columns", NESTED.values(), ids=NESTED)
def test_columns_of_tracks_are_flat(columns: dict[str, Any]) -> None:
    with pytest.raises(FaultsError, match="give one label per row"):
        hc.Problem(CHAIN, 20, [hc.Tracks(columns)])


def test_labels_of_cells_are_no_matrix() -> None:
    with pytest.raises(FaultsError, match="cells is"):
        hc.MarkovChain([0.5, 0.5], MOVES, length=3, cells=sparse.csr_array([[0, 1]]))  # type: ignore[arg-type]


def test_no_cell_is_left_for_everybody(small: list[str], tmp_path: Path) -> None:
    """``initial="uniform"`` where the moves leave no cell for the first counts."""
    (tmp_path / "none.csv").write_text("origin,dest,probability\n")
    words = list(small)
    words[words.index("--transitions") + 1] = str(tmp_path / "none.csv")
    done = run([*words, "--initial", "uniform", "--out", str(tmp_path / "none")])
    assert done.exit_code == 2
    assert done.output.strip()


@dataclass(frozen=True, eq=False, kw_only=True)
class Bent(Observation):
    """A user's noise whose curvature is NaN."""

    log_concave = True

    def log_prob(self, n: Any) -> Any:
        return -0.5 * (np.asarray(n, dtype=float) - self.counts) ** 2

    def slope(self, n: Any) -> Any:
        return self.counts - np.asarray(n, dtype=float)

    def curvature(self, n: Any) -> Any:
        return np.full(np.broadcast_shapes(np.shape(n), np.shape(self.counts)), np.nan)

    def sample(self, n: Any, *, rng: np.random.Generator) -> Any:
        return np.asarray(n, dtype=float) + rng.normal(size=np.shape(n))


@pytest.mark.parametrize("engine", [None, "TiltedEP", "Laplace", "MAP"])
def test_a_noise_whose_curvature_is_no_number(engine: str | None) -> None:
    """It is named; a sampler, which needs no curvature, answers."""
    problem = hc.Problem(CHAIN, 40, Bent(2 * COUNTS))
    with pytest.raises((FaultsError, hc.engines.NotConvergedError), match=r"NaN|converge"):
        hc.infer(problem, engine)
    assert hc.infer(problem, "PathGibbs", rng=1).status.good


@pytest.mark.parametrize("people", [1, 2, 20])
def test_the_check_of_fit_warns_of_nothing(people: int) -> None:
    """Zeros, exact counts and sharp readings are checked without a runtime warning."""
    exact = np.tile([people, 0.0], (3, 1))
    seen = [hc.Poisson(np.zeros((3, 2))), hc.Exact(exact), hc.Gaussian(exact, sd=0.01)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for noise in seen:
            assert hc.infer(hc.Problem(CHAIN, people, noise), "TiltedEP").fit_check.verdict


def test_a_total_is_the_same_after_loading(tmp_path: Path) -> None:
    """Of single entries to rounding; of sums within four of the errors that it states."""
    post = hc.infer(hc.Problem(CHAIN, 20, hc.Poisson(COUNTS)))
    post.save(tmp_path / "post.nc")
    loaded = Posterior.load(tmp_path / "post.nc")
    for weights in ({0: [1, 0]}, {0: [1, 0], 2: [0, 1]}):
        before, after = post.total(weights), loaded.total(weights)
        assert after.mean == pytest.approx(before.mean, rel=1e-6)
        assert abs(after.sd - before.sd) <= max(4 * after.mc_error, 1e-6 * before.sd)


WAYS: dict[str, Callable[[Posterior, Path], object]] = {
    "save": lambda post, place: post.save(place / "post.nc"),
    "results": lambda post, place: write_results(post, place / "out"),
    "page": lambda post, place: report.write(Result.of(post), place / "page.html"),
    "table": lambda post, place: write_table(post.to_frame("nodes"), place / "nodes.csv"),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_writing_sweeps_what_a_kill_left(way: str, posterior: Posterior, tmp_path: Path) -> None:
    """Hidden folders of killed writers in the same place are gone after the next write, whatever it writes."""
    left = tmp_path / ".other.nc.headcount.0123456789ab"
    left.mkdir()
    (left / "half.nc").write_bytes(b"half")
    os.utime(left, (time.time() - 86_400,) * 2)
    WAYS[way](posterior, tmp_path)
    assert not left.exists()
