"""Running tasks: what is known is not computed, what is read comes first, what fails is said and retried; and one small run of all."""

import json
import platform
import socket
import xml.etree.ElementTree as ET
from pathlib import Path

import joblib
import pandas as pd
import pytest
import typer
from reproduction.__main__ import main
from reproduction.run import EXPERIMENTS, ReproductionError, compute
from reproduction.tasks import Setting, Task
from tests.reproduction import kinds
from typer.testing import CliRunner

from reproduction import run

SETTING = Setting(2, 1.0, 10, steps=3)
APP = typer.Typer()
APP.command()(main)


def call(*arguments: str):
    return CliRunner().invoke(APP, list(arguments))


def plan(log: Path, count: int = 3) -> list[Task]:
    """One task that adds up the arrays of `count` others, and these."""
    options = {"log": str(log)}
    ones = [Task("one", kinds.one, SETTING, k, options=options) for k in range(count)]
    needs = {str(task.data_set): task for task in ones}
    return [Task("total", kinds.total, SETTING, options=options, needs=needs), *ones]


def value(found, task: Task) -> float:
    (row,) = (row for row in found[task.name].rows if row.quantity == "value")
    return row.value


@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_read_comes_first_and_once(tmp_path: Path, workers: int) -> None:
    """A task gets the arrays of the tasks it reads, each computed once, in this process or in others."""
    tasks = plan(tmp_path / "log")
    with run._backend(workers, None):
        found = compute(tasks, joblib.Memory(tmp_path / "cache", verbose=0))
    assert value(found, tasks[0]) == 3 * (0 + 1 + 2)
    lines = (tmp_path / "log").read_text().splitlines()
    assert sorted(lines) == ["one 0", "one 1", "one 2", "total 0"]
    assert lines[-1] == "total 0"


def test_failures_are_reported_and_only_they_are_retried(tmp_path: Path) -> None:
    """A failure names the task and its error, leaves the others finished, and what reads it does not run."""
    log, mended = tmp_path / "log", tmp_path / "mended"
    memory = joblib.Memory(tmp_path / "cache", verbose=0)
    options = {"log": str(log), "mended": str(mended)}
    bad = Task("broken", kinds.broken, SETTING, 5, options=options)
    after = Task("total", kinds.total, SETTING, 6, options=options, needs={"a": bad})
    tasks = [*plan(log), bad, after]
    with pytest.raises(ReproductionError, match=r"1 tasks failed: .*broken.*ArithmeticError: no such luck"):
        compute(tasks, memory)
    assert "total 6" not in log.read_text()
    assert "total 0" in log.read_text()
    log.write_text("")
    mended.touch()
    found = compute(tasks, memory)
    assert log.read_text().splitlines() == ["broken 5", "total 6"]
    assert value(found, after) == 3


def test_again_recomputes_what_reads_it_too(tmp_path: Path) -> None:
    """Naming a kind computes its tasks and their readers again, nothing else, cached or stored."""
    log = tmp_path / "log"
    memory = joblib.Memory(tmp_path / "cache", verbose=0)
    tasks = [*plan(log), Task("other", kinds.one, SETTING, 8, options={"log": str(log)})]
    known = set(compute(tasks, memory))
    assert run._wanted(tasks, known, ()) == ([], set())
    wanted, anew = run._wanted(tasks, known, ["one"])
    assert {task.kind for task in wanted} == {"one", "total"}
    log.write_text("")
    compute(wanted, memory, anew=anew)
    assert sorted(log.read_text().splitlines()) == ["one 0", "one 1", "one 2", "total 0"]
    with pytest.raises(ValueError, match="again names 'nothing': these experiments have one, other, total"):
        run._wanted(tasks, known, ["nothing"])


def test_a_cluster_computes_the_same(tmp_path: Path) -> None:
    """With a Dask scheduler's address its workers compute."""
    distributed = pytest.importorskip("distributed")
    tasks = plan(tmp_path / "log")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"
        ) as cluster,
        run._backend(0, cluster.scheduler_address),
    ):
        found = compute(tasks, joblib.Memory(tmp_path / "cache", verbose=0))
    assert value(found, tasks[0]) == 9


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every experiment, as a user runs it, with its smallest tasks only."""
    out = tmp_path_factory.mktemp("reproduction")
    whole = run._plan

    def smallest(name, module, *, quick):
        tasks = whole(name, module, quick=quick)
        least = min((t.setting for t in tasks), key=lambda s: (s.population, s.cells, s.weight))
        return [t for t in tasks if t.data_set == 0 and (name == "exhibits" or t.setting == least)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_plan", smallest)
        for page in ("--page", str(out / "page")), ():
            done = call("all", "--quick", "--out", str(out), "--workers", "0", *page)
            assert done.exit_code == 0, done.output
    return out


def test_every_file_is_written(folder: Path) -> None:
    """Tables in three formats, figures in two, the comparison, the results and their manifest."""
    for name in ("table1", "table2", "table3"):
        for kind in ("csv", "md", "tex"):
            assert (folder / "tables" / f"{name}.{kind}").stat().st_size > 0
    for name in ("figure1", "figure2", "exhibits"):
        for place in (folder, folder / "page"):
            ET.parse(place / "figures" / f"{name}.svg")
            assert (place / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "[errata](../errata.md)" in (folder / "page" / "comparison.md").read_text(encoding="utf-8")
    frame = pd.read_parquet(folder / "results.parquet")
    converged = frame[(frame["quantity"] == "converged") & (frame["kind"] != "learning")]
    assert (converged["value"] == 1).all()
    assert frame[frame["quantity"].str.startswith("error_")]["value"].between(0, 0.5).all()


def test_the_manifest_says_how_and_not_where(folder: Path) -> None:
    """Settings, versions and times; no names of this machine or its folders. The second run computed nothing."""
    text = (folder / "manifest.json").read_text(encoding="utf-8")
    facts = json.loads(text)
    assert set(facts["experiments"]) == set(EXPERIMENTS)
    assert facts["versions"]["python"] == platform.python_version()
    assert facts["cpu_seconds"] > 0
    assert all(e["with_results"] == e["tasks"] for e in facts["experiments"].values())
    assert facts["last_run"]["tasks_computed"] == 0
    assert [r["tasks_computed"] > 0 for r in facts["runs"]] == [True]
    assert str(Path.cwd()) not in text
    assert str(Path.home()) + "/" not in text
    assert socket.gethostname() not in text.replace("localhost", "")


def test_unknown_experiments_are_refused(tmp_path: Path) -> None:
    """The message names the wrong one and lists what there is; nothing is written."""
    done = call("table9", "--out", str(tmp_path / "nowhere"))
    assert done.exit_code == 2
    assert "table9" in done.output
    assert "exhibits" in done.output
    assert not (tmp_path / "nowhere").exists()


def test_seeds_differ() -> None:
    """Every setting, data set and stream has a seed of its own."""
    seeds = [
        tuple(Setting(side, weight, n).seed(data_set, stream))
        for side in (4, 6)
        for weight in (0.5, 1.0)
        for n in (36, 360)
        for data_set in range(3)
        for stream in (0, 1, 2)
    ]
    assert len(set(seeds)) == len(seeds)
