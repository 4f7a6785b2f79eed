"""Series on the command line: --after, corrections, folders of weeks, forecasts, alarms with an exit code of their own."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.cli.test_commands import run

import headcount as hc
from headcount.cli import _series
from headcount.cli._app import ProblemOptions
from headcount.io import load_result

CELLS = list("ABCD")
WEEKS = pd.date_range("2024-01-01", periods=12, freq="7D")
PARTS = ((0, 5), (5, 8), (8, 10), (10, 12))


@pytest.fixture(scope="module")
def inferred(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once: all counts, the same week by week, how individuals move, and the results of the first week and of everything."""
    tmp_path = tmp_path_factory.mktemp("series")
    rng = np.random.default_rng(0)
    moves = 0.4 * rng.dirichlet(np.ones(4), 4) + 0.6 * np.eye(4)
    chain = hc.MarkovChain(np.full(4, 0.25), moves, length=len(WEEKS))
    seen = hc.simulate.population(chain, 800, observe=hc.simulate.poisson(1.0), rng=1).observed
    counts = pd.DataFrame(np.asarray(seen).astype(int), columns=CELLS, index=WEEKS.strftime("%Y-%m-%d"))
    tidy = counts.rename_axis("time").reset_index().melt("time", var_name="cell", value_name="count")
    tidy.to_csv(tmp_path / "counts.csv", index=False)
    (tmp_path / "weeks").mkdir()
    for k, (first, last) in enumerate(PARTS):
        own = tidy[tidy["time"].isin(counts.index[first:last])]
        own.to_csv(tmp_path / "weeks" / f"w{k}.csv", index=False)
    pairs = [(a, b, moves[i, j]) for i, a in enumerate(CELLS) for j, b in enumerate(CELLS)]
    pd.DataFrame(pairs, columns=["from", "to", "probability"]).to_csv(tmp_path / "moves.csv", index=False)
    common = ["--transitions", tmp_path / "moves.csv", "--population", 800, "--quiet"]
    for counts, out in (("weeks/w0.csv", "r0"), ("counts.csv", "whole")):
        assert run("infer", tmp_path / counts, *common, "--out", tmp_path / out)[0] == 0
    return tmp_path


@pytest.fixture
def tables(inferred: Path, tmp_path: Path) -> Path:
    """A copy of these, to be changed."""
    return shutil.copytree(inferred, tmp_path, dirs_exist_ok=True)


def go_on(tables: Path, counts: Path, after: str, out: str, *more: Any) -> tuple[int, str]:
    return run("infer", counts, "--after", tables / after, "--out", tables / out, *more)


@pytest.mark.parametrize("option", ["weights", "initial", "survival", "population", "network", "tracks"])
def test_every_file_that_an_option_names_is_part_of_a_runs_digest(option: str, tmp_path: Path) -> None:
    """A run is another one as soon as the contents of a table change, whatever option names it."""
    path = tmp_path / "table.csv"
    options = ProblemOptions(**{option: path if option in {"network", "tracks"} else str(path)})
    made = []
    for text in ("cell,probability\nA,1\n", "cell,probability\nB,1\n"):
        path.write_text(text)
        made.append(_series.digest([], options, ""))
    assert made[0] != made[1]


def test_weeks_one_after_the_other_are_one_run(tables: Path) -> None:
    """Three runs, each after the last and told nothing but its counts, end with the counts of one run of everything."""
    for k in (1, 2, 3):
        code, text = go_on(tables, tables / "weeks" / f"w{k}.csv", f"r{k - 1}", f"r{k}")
        assert code == 0, text
        assert "goes on from" in text
    one, other = (pd.read_csv(tables / name / "nodes.csv") for name in ("whole", "r3"))
    both = one.merge(other, on=["time", "cell"])
    both = both[both["time"] >= "2024-03-11"]
    assert len(both) == 8
    assert ((both["mean_x"] - both["mean_y"]).abs() < 0.02 * both["sd_x"]).all()
    assert np.allclose(both["sd_x"], both["sd_y"], rtol=0.01)


def test_corrections_of_old_counts_are_seen(tables: Path) -> None:
    """Rows of old times that say the same change nothing; one that differs begins again after the last run that ends before it."""
    for k in (1, 2):
        go_on(tables, tables / "weeks" / f"w{k}.csv", f"r{k - 1}", f"r{k}", "--quiet")
    week, old = (pd.read_csv(tables / "weeks" / name) for name in ("w3.csv", "w1.csv"))
    pd.concat([old, week]).to_csv(tables / "again.csv", index=False)
    code, text = go_on(tables, tables / "again.csv", "r2", "same")
    assert code == 0, text
    assert "begun again" not in text
    changed = old.assign(count=np.where(old["time"] == old["time"][0], old["count"] + 9, old["count"]))
    pd.concat([changed, week]).to_csv(tables / "late.csv", index=False)
    code, text = go_on(tables, tables / "late.csv", "r2", "late")
    assert code == 0, text
    assert "counts of 2024-02-05 differ from those that were used: begun again after 2024-01-29" in " ".join(
        text.split()
    )
    result = load_result(tables / "late")
    assert len(result.times) == 8
    first = result.nodes.set_index(["time", "cell"]).loc[(pd.Timestamp("2024-02-05"), "A"), "observed"]
    assert first == changed["count"][0]
    code, text = go_on(tables, tables / "weeks" / "w3.csv", "r2", "revised", "--revise", 2)
    assert "the last 2 steps are revised: begun again after 2024-02-19" in " ".join(text.split())
    assert len(load_result(tables / "revised").times) == 5


def test_a_missed_week_is_a_time_at_which_nobody_looked(tables: Path) -> None:
    """The step over a gap is two steps of the chain, not one."""
    week = pd.read_csv(tables / "weeks" / "w1.csv")
    week[week["time"] != "2024-02-05"].to_csv(tables / "gap.csv", index=False)
    assert go_on(tables, tables / "gap.csv", "r0", "gap")[0] == 0
    assert [t.strftime("%m-%d") for t in load_result(tables / "gap").times] == [
        "01-29",
        "02-05",
        "02-12",
        "02-19",
    ]


def test_a_folder_of_weeks_is_one_command_that_goes_on(tables: Path) -> None:
    """Finished weeks are not repeated; a changed one, and all after it, are inferred again."""
    words = [
        "infer",
        tables / "weeks",
        "--transitions",
        tables / "moves.csv",
        "--population",
        800,
        "--out",
        tables / "all",
    ]
    last = tables / "weeks" / "w3.csv"
    kept = last.read_text()
    last.unlink()
    assert run(*words, "--quiet")[0] == 0
    last.write_text(kept)
    code, text = run(*words, "--json")
    assert code == 0
    assert json.loads(text)["finished_before"] == 3
    assert len(load_result(tables / "all" / "w3").times) == 3
    again = json.loads(run(*words, "--json")[1])
    assert again["finished_before"] == 4
    assert (
        run("forecast", tables / "all", "--steps", 2, "--quiet")[0] == 0
    )  # of a folder of weeks, the newest
    assert (tables / "all" / "w3" / "forecast" / "nodes.csv").exists()
    changed = tables / "weeks" / "w1.csv"
    changed.write_text(changed.read_text().replace("2024-02-05,A,", "2024-02-05,A,1"))
    found = json.loads(run(*words, "--json")[1])
    assert (found["finished_before"], found["inferred_again"]) == (1, ["w1.csv", "w2.csv", "w3.csv"])
    changed.write_text(changed.read_text().replace("2024-02-05,A,1", "2024-02-05,A,"))
    assert "w1.csv or the options have changed since it was inferred" in " ".join(run(*words)[1].split())


def test_an_alarm_has_an_exit_code_and_says_why(tables: Path) -> None:
    """Exit code 5 where an alarm was asked for and is raised, 0 where it is not; the reason is in --json and on the page."""
    week = pd.read_csv(tables / "weeks" / "w1.csv")
    code, text = go_on(tables, tables / "weeks" / "w1.csv", "r0", "r1", "--alarm", 0.001, "--json")
    assert code == 0
    assert json.loads(text)["alarm"]["raised"] is False
    week.loc[week["cell"] == "B", "count"] = 0
    week.to_csv(tables / "closed.csv", index=False)
    code, text = go_on(tables, tables / "closed.csv", "r0", "r1b", "--alarm", 0.001, "--json", "--report")
    assert code == 5
    found = json.loads(text)
    assert found["exit_code"] == 5
    assert found["alarm"]["counts"][0]["cell"] == "B"
    assert "Alarm: the new counts are unlike the forecast" in (tables / "r1b" / "report.html").read_text()
    assert run("infer", tables / "closed.csv", "--alarm", 0.01, "--out", tables / "x")[0] == 2


def test_a_forecast_is_written_and_on_the_page_of_the_past(tables: Path) -> None:
    """--steps 3 gives three times after the last, with flows; the page of the past goes on with them."""
    code, text = run("forecast", tables / "r0", "--steps", 3, "--report")
    assert code == 0, text
    assert "0 counts (nothing was seen), population" in text
    assert "log evidence" not in text
    ahead = load_result(tables / "r0" / "forecast")
    assert [t.strftime("%m-%d") for t in ahead.times] == ["01-29", "02-05", "02-12", "02-19"]
    sds = ahead.nodes.groupby("time")["sd"].mean().to_numpy()
    assert (np.diff(sds) > 0).all()
    page = (tables / "r0" / "report.html").read_text()
    assert '"forecastFrom":4' in page
    assert "2024-02-19" in page
    assert run("forecast", tables / "nowhere", "--steps", 3)[0] == 2


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Counts of nine times in two tables, what moves depend on, of the first times and of all, and a fit of the first times: r0."""
    tmp_path = tmp_path_factory.mktemp("birds")
    world = tmp_path / "birds"
    simulated = ["--side", 3, "--weights", "1,2,2,2", "--population", 2000, "--steps", 9, "--seed", 1]
    assert run("simulate", "birds", *simulated, "--out", world)[0] == 0
    counts = pd.read_csv(world / "counts.csv")
    counts[counts["time"] < 6].to_csv(tmp_path / "a.csv", index=False)
    counts[counts["time"] >= 6].to_csv(tmp_path / "b.csv", index=False)
    features = pd.read_csv(world / "features.csv.gz")
    features[features["time"] < 5].to_csv(tmp_path / "early.csv", index=False)
    features.to_csv(tmp_path / "all.csv", index=False)
    words = ["--features", tmp_path / "early.csv", "--population", 2000, "--quiet", "--out", tmp_path / "r0"]
    assert run("fit", tmp_path / "a.csv", *words)[0] == 0
    return tmp_path


def weights(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "weights.csv").set_index("feature")


def test_the_weights_of_a_fit_go_on_with_their_uncertainty(birds: Path) -> None:
    """fit, then infer --after: weights and standard errors are those of one fit of everything; --weights takes them as known instead."""
    every = ["--features", birds / "all.csv"]
    common = ["--population", 2000, "--quiet"]
    assert run("fit", birds / "birds" / "counts.csv", *every, *common, "--out", birds / "whole")[0] == 0
    code, text = go_on(birds, birds / "b.csv", "r0", "r1", *every)
    assert code == 0, text
    assert "the weights were updated by the new counts" in text
    one, old, new = (weights(birds / name) for name in ("whole", "r0", "r1"))
    assert (np.abs(new["weight"] - one["weight"]) < 0.1 * one["standard_error"]).all()
    assert (np.abs(old["weight"] - one["weight"]) > 0.1 * one["standard_error"]).any()
    np.testing.assert_allclose(new["standard_error"], one["standard_error"], rtol=0.05)
    nodes = [pd.read_csv(birds / name / "nodes.csv").query("time == 8") for name in ("whole", "r1")]
    np.testing.assert_allclose(nodes[0]["mean"], nodes[1]["mean"], atol=0.02 * nodes[0]["sd"].max())
    code, text = go_on(birds, birds / "b.csv", "r0", "known", *every, "--weights", "1,2,2,2")
    assert code == 0, text
    assert "taken as known" in text
    assert not (birds / "known" / "weights.csv").exists()


def test_a_forecast_of_a_fit_includes_its_weights_uncertainty(birds: Path) -> None:
    """Sds of the forecast are larger than with the same weights taken as known, by more than nothing and less than a factor."""
    every = ["--features", birds / "all.csv"]
    learned = ",".join(map(repr, weights(birds / "r0")["weight"]))
    words = ["forecast", birds / "r0", "--steps", 3, *every, "--quiet"]
    assert run(*words, "--out", birds / "with")[0] == 0
    assert run(*words, "--weights", learned, "--out", birds / "without")[0] == 0
    both = [pd.read_csv(birds / name / "nodes.csv").query("time == 8")["sd"] for name in ("with", "without")]
    ratio = both[0].to_numpy() / both[1].to_numpy()
    assert ratio.max() > 1.02
    assert ratio.max() < 2.0
    assert (birds / "with" / "flows.geojson").exists()  # cells are where they were in the past


def test_several_sequences_go_on_each_from_its_own_past(tables: Path) -> None:
    """Each sequence is what it is alone; one that is new begins with its own counts, and says so."""
    whole = pd.read_csv(tables / "counts.csv")
    two = pd.concat([whole.assign(sequence="x"), whole.assign(sequence="y", count=whole["count"].iloc[::-1])])
    old = two["time"] < "2024-02-05"
    two[old].to_csv(tables / "old.csv", index=False)
    third = whole[whole["time"] >= "2024-02-05"].assign(sequence="z")
    pd.concat([two[~old], third]).to_csv(tables / "new.csv", index=False)
    common = ["--transitions", tables / "moves.csv", "--population", 800]
    assert run("infer", tables / "old.csv", *common, "--out", tables / "s0", "--quiet")[0] == 0
    code, text = go_on(tables, tables / "new.csv", "s0", "s1", *common)
    assert code == 0, text
    assert "this sequence begins here" in " ".join(text.split())
    alone = tables / "alone.csv"
    whole[whole["time"] >= "2024-02-05"].to_csv(alone, index=False)
    assert go_on(tables, alone, "r0", "alone")[0] == 0
    one, other = (pd.read_csv(tables / name / "nodes.csv") for name in ("alone", "s1/x"))
    pd.testing.assert_frame_equal(one, other)
    assert len(load_result(tables / "s1" / "y").times) == 8
    assert len(load_result(tables / "s1" / "z").times) == 7


def test_a_past_of_one_time_says_what_it_cannot_know(tables: Path) -> None:
    """After a single time the step to the next counts is one, and that is said; --revise begins again with it."""
    whole = pd.read_csv(tables / "counts.csv")
    days = sorted(whole["time"].unique())
    for k, day in enumerate(days[:3]):
        whole[whole["time"] == day].to_csv(tables / f"day{k}.csv", index=False)
    common = ["--transitions", tables / "moves.csv", "--population", 800]
    assert run("infer", tables / "day0.csv", *common, "--out", tables / "d0", "--quiet")[0] == 0
    code, text = go_on(tables, tables / "day1.csv", "d0", "d1")
    assert code == 0, text
    assert "the step to 2024-01-08 is taken as one" in " ".join(text.split())
    assert go_on(tables, tables / "day2.csv", "d1", "d2", "--revise", 1)[0] == 0
    assert len(load_result(tables / "d2").times) == 3
    whole[whole["time"].isin(days[:3])].to_csv(tables / "three.csv", index=False)
    assert run("infer", tables / "three.csv", *common, "--out", tables / "three", "--quiet")[0] == 0
    one, other = (pd.read_csv(tables / name / "nodes.csv") for name in ("three", "d2"))
    assert ((one["mean"] - other["mean"]).abs() < 0.05 * one["sd"]).all()


def test_counts_that_contradict_the_past_are_said_on_the_command_line(tables: Path) -> None:
    """The verdict names the distance and the way out; a usual week has no such words."""
    common = ["--transitions", tables / "moves.csv", "--population", "unknown"]
    assert run("infer", tables / "weeks" / "w0.csv", *common, "--out", tables / "u0", "--quiet")[0] == 0
    week = pd.read_csv(tables / "weeks" / "w1.csv")
    assert "where the past ends" not in go_on(tables, tables / "weeks" / "w1.csv", "u0", "u1")[1]
    week.loc[week["cell"] == "B", "count"] *= 3
    week.to_csv(tables / "odd.csv", index=False)
    text = " ".join(go_on(tables, tables / "odd.csv", "u0", "odd")[1].split())
    assert "The new counts move those of 2024-01-29, where the past ends, by" in text
    assert "Infer everything at once" in text


def test_a_past_is_read_once_and_again_when_it_was_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for four times by one command, a run is read once; a run that was inferred anew in between is read again."""
    file, read = tmp_path / "posterior.nc", []

    def load(folder: Path) -> Any:
        read.append(folder)
        return SimpleNamespace(last=file.read_text())

    monkeypatch.setattr("headcount.io.load_result", load)
    file.write_text("old")
    os.utime(file, ns=(1, 1))
    assert [_series.past_result(tmp_path).last for _ in range(4)] == ["old"] * 4
    assert read == [tmp_path]
    file.write_text("new")
    assert _series.past_result(tmp_path).last == "new"


def windows(tables: Path, out: str, *more: Any) -> tuple[int, str]:
    common = ["--transitions", tables / "moves.csv", "--population", 800, "--window", 4]
    return run("infer", tables / "counts.csv", *common, "--out", tables / out, *more)


def test_windows_are_one_run(tables: Path) -> None:
    """Windows give the counts of one run within .1 sd, in the same table, and say their status, number and file."""
    code, text = windows(tables, "long", "--min-flow", 0)
    assert code == 0, text
    assert "converged" in text
    assert "3 windows of 4 steps" in text
    one, other = (pd.read_csv(tables / name / "nodes.csv") for name in ("whole", "long"))
    both = one.merge(other, on=["time", "cell"], suffixes=("", "_long"))
    assert len(both) == len(one) == len(other)
    assert ((both["mean"] - both["mean_long"]).abs() / both["sd"]).max() < 0.1
    flows = pd.concat([pd.read_csv(path) for path in sorted((tables / "long").glob("part-*-flows.csv"))])
    assert len(flows) == len(pd.read_csv(tables / "whole" / "flows.csv"))
    said = json.loads((tables / "long" / "summary.json").read_text())
    assert (said["status"], said["windows"], said["times"]) == ("converged", 3, 12)


@pytest.mark.parametrize(("ended", "status"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143)])
def test_windows_go_on_after_an_interruption(
    tables: Path, monkeypatch: pytest.MonkeyPatch, ended: BaseException, status: int
) -> None:
    """Ctrl-C and SIGTERM in the third window say how many are written; the same command finishes, and repeats none of them."""
    from headcount.io import long as _long

    real, calls = _long._write, []

    def stop(*given: Any, **more: Any) -> None:
        calls.append(given[2].name)
        if len(calls) == 3:
            raise ended
        real(*given, **more)

    monkeypatch.setattr(_long, "_write", stop)
    code, text = windows(tables, "long")
    assert code == status
    assert "2 of 3 windows are written; run the same command again to go on" in " ".join(text.split())
    assert "nothing was written" not in " ".join(text.split())
    assert not (tables / "long" / "summary.json").exists()
    assert windows(tables, "long")[0] == 0
    assert calls == [f"part-{k:06d}.nc" for k in (0, 1, 2, 2)]
    assert len(pd.read_csv(tables / "long" / "nodes.csv")) == 48


def test_a_window_that_does_not_converge_is_said(tables: Path) -> None:
    """The run's status is that of the window that did not converge, with exit code 4, in summary and index."""
    code, text = windows(tables, "long", "--engine", "TiltedEP", "--set", "max_iterations=1")
    assert code == 4, text
    assert "windows did not converge" in " ".join(text.split())
    said = json.loads((tables / "long" / "summary.json").read_text())
    assert said["status"] != "converged"
    assert said["windows_not_converged"] >= 1


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--report"], "--report"),
        (["--draws", 5, "--omx"], "--omx, --draws"),
        (["--seed", 1], "--seed"),
        (["--workers", 2], "--workers"),
        (["--alarm", 0.1], "--after"),
    ],
)
def test_what_windows_cannot_answer_is_named(tables: Path, more: list[Any], named: str) -> None:
    """Options that need one run are refused by name before anything is written."""
    code, text = windows(tables, "long", *more)
    assert code == 2
    assert named in text
    assert not (tables / "long").exists()


def test_windows_refuse_a_folder_of_one_run(tables: Path) -> None:
    """A folder with the answer of one run, and an earlier run to go on from, are refused beside windows."""
    assert "give another folder" in " ".join(windows(tables, "r0")[1].split())
    code, text = windows(tables, "long", "--after", tables / "r0")
    assert code == 2
    assert "leave it out beside --after" in " ".join(text.split())


def test_a_series_beyond_memory_is_inferred_in_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one run does not fit the memory limit and windows do, windows are taken and said so, in plan and infer; else one run is."""
    # The watch looks at the process, which here is that of all tests before this one; what is asked here is the plan.
    monkeypatch.setattr("headcount.cli._show.held_memory", lambda: (0, 0))
    times = pd.date_range("2024-01-01", periods=900, freq="h").strftime("%Y-%m-%d %H:%M")
    rng, cells = np.random.default_rng(2), [f"c{k}" for k in range(12)]
    counts = pd.DataFrame(rng.poisson(20, (900, 12)), columns=cells, index=times)
    tidy = counts.rename_axis("time").reset_index().melt("time", var_name="cell", value_name="count")
    tidy.to_csv(tmp_path / "counts.csv", index=False)
    moves = 0.6 * np.eye(12) + 0.4 / 12
    pairs = [(a, b, moves[i, j]) for i, a in enumerate(cells) for j, b in enumerate(cells)]
    pd.DataFrame(pairs, columns=["from", "to", "probability"]).to_csv(tmp_path / "moves.csv", index=False)
    told = [tmp_path / "counts.csv", "--transitions", tmp_path / "moves.csv", "--population", 240]
    _, free = run("plan", *told)
    assert "windows of 168" not in free
    code, tight = run("plan", *told, "--memory-limit", "120MB")
    assert code == 0, tight
    assert "6 windows of 168 steps" in " ".join(tight.split())
