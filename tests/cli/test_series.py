"""Series on the command line: --after, corrections, folders of weeks, forecasts, alarms with an exit code of their own."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.cli.test_commands import run

import headcount as hc
from headcount.io import load_result

CELLS = list("ABCD")
WEEKS = pd.date_range("2024-01-01", periods=12, freq="7D")
PARTS = ((0, 5), (5, 8), (8, 10), (10, 12))


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A folder with all counts, the same week by week, and how individuals move."""
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
    return tmp_path


def first_week(tables: Path) -> None:
    common = ["--transitions", tables / "moves.csv", "--population", 800]
    assert run("infer", tables / "weeks" / "w0.csv", *common, "--out", tables / "r0", "--quiet")[0] == 0


def go_on(tables: Path, counts: Path, after: str, out: str, *more: Any) -> tuple[int, str]:
    return run("infer", counts, "--after", tables / after, "--out", tables / out, *more)


def test_weeks_one_after_the_other_are_one_run(tables: Path) -> None:
    """Three runs, each after the last and told nothing but its counts, end with the counts of one run of everything."""
    first_week(tables)
    for k in (1, 2, 3):
        code, text = go_on(tables, tables / "weeks" / f"w{k}.csv", f"r{k - 1}", f"r{k}")
        assert code == 0, text
        assert "goes on from" in text
    common = ["--transitions", tables / "moves.csv", "--population", 800]
    assert run("infer", tables / "counts.csv", *common, "--out", tables / "whole", "--quiet")[0] == 0
    one, other = (pd.read_csv(tables / name / "nodes.csv") for name in ("whole", "r3"))
    both = one.merge(other, on=["time", "cell"])
    both = both[both["time"] >= "2024-03-11"]
    assert len(both) == 8
    assert ((both["mean_x"] - both["mean_y"]).abs() < 0.02 * both["sd_x"]).all()
    assert np.allclose(both["sd_x"], both["sd_y"], rtol=0.01)


def test_corrections_of_old_counts_are_seen(tables: Path) -> None:
    """Rows of old times that say the same change nothing; one that differs begins again after the last run that ends before it."""
    first_week(tables)
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
    first_week(tables)
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
    changed = tables / "weeks" / "w1.csv"
    changed.write_text(changed.read_text().replace("2024-02-05,A,", "2024-02-05,A,1"))
    assert json.loads(run(*words, "--json")[1])["finished_before"] == 1


def test_an_alarm_has_an_exit_code_and_says_why(tables: Path) -> None:
    """Exit code 5 where an alarm was asked for and is raised, 0 where it is not; the reason is in --json and on the page."""
    first_week(tables)
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
    first_week(tables)
    code, text = run("forecast", tables / "r0", "--steps", 3, "--report")
    assert code == 0, text
    ahead = load_result(tables / "r0" / "forecast")
    assert [t.strftime("%m-%d") for t in ahead.times] == ["01-29", "02-05", "02-12", "02-19"]
    sds = ahead.nodes.groupby("time")["sd"].mean().to_numpy()
    assert (np.diff(sds) > 0).all()
    page = (tables / "r0" / "report.html").read_text()
    assert '"forecastFrom":4' in page
    assert "2024-02-19" in page
    assert run("forecast", tables / "nowhere", "--steps", 3)[0] == 2
