"""The runner: what is known is not computed, what is needed comes first, what fails is said and retried."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from headcount.paper._runner import ReproductionError, missing, run
from headcount.paper._store import Store
from headcount.paper._task import Setting, Task, touched

HERE = "tests.paper.kinds"
SETTING = Setting(2, 1.0, 10, steps=3)


def plan(log: Path, count: int = 3) -> list[Task]:
    """`count` tasks with arrays and one that adds them up."""
    options = {"log": str(log)}
    ones = [Task(f"{HERE}:one", SETTING, k, options=options) for k in range(count)]
    return [Task(f"{HERE}:total", SETTING, options=options, needs={str(t.data_set): t for t in ones}), *ones]


def value(store: Store, task: Task) -> float:
    (found,) = (row["value"] for row in store.rows(task) if row["quantity"] == "value")
    return found


@pytest.mark.parametrize("workers", [0, 2])
def test_needs_come_first(tmp_path: Path, workers: int) -> None:
    """A task gets the arrays of what it needs, computed once, in this process or in others."""
    log, store = tmp_path / "log", Store(tmp_path)
    tasks = plan(log)
    assert run(tasks, store, workers=workers, progress=False) == 4
    assert value(store, tasks[0]) == 3 * (0 + 1 + 2)
    lines = log.read_text().splitlines()
    assert sorted(lines) == ["one 0", "one 1", "one 2", "total 0"]
    assert lines[-1] == "total 0"


def test_nothing_is_computed_twice(tmp_path: Path) -> None:
    """A second run, also in a new process's store, computes nothing; a new task computes itself alone."""
    log = tmp_path / "log"
    run(plan(log), Store(tmp_path), workers=0, progress=False)
    assert run(plan(log), Store(tmp_path), workers=0, progress=False) == 0
    assert run(plan(log, count=4), Store(tmp_path), workers=0, progress=False) == 2
    assert len(log.read_text().splitlines()) == 6


def test_the_table_alone_is_enough(tmp_path: Path) -> None:
    """With results.parquet but no cache nothing is computed, until a task needs the arrays that are gone."""
    log, store = tmp_path / "log", Store(tmp_path)
    tasks = plan(log)
    run(tasks, store, workers=0, progress=False)
    store.write_table(tasks)
    before = store.frame(tasks)
    shutil.rmtree(store.cache)
    again = Store(tmp_path)
    assert run(tasks, again, workers=0, progress=False) == 0
    assert again.frame(tasks)[["quantity", "value", "step"]].equals(before[["quantity", "value", "step"]])
    more = Task(f"{HERE}:total", SETTING, 9, options={"log": str(log)}, needs={"a": tasks[2]})
    assert {t.key for t in missing([*tasks, more], again).values()} == {more.key, tasks[2].key}


def test_failures_are_told_and_retried(tmp_path: Path) -> None:
    """A failure names the task and its error, leaves the others finished, runs no dependant, and alone is tried again."""
    log, mended = tmp_path / "log", tmp_path / "mended"
    options = {"log": str(log), "mended": str(mended)}
    bad = Task(f"{HERE}:broken", SETTING, 5, options=options)
    after = Task(f"{HERE}:total", SETTING, 6, options=options, needs={"a": bad})
    tasks = [*plan(log), bad, after]
    with pytest.raises(
        ReproductionError, match=r"1 tasks failed: .*broken.*L=4 N=10.*ArithmeticError: no such luck"
    ):
        run(tasks, Store(tmp_path), workers=0, progress=False)
    assert "total 6" not in log.read_text()
    assert value(Store(tmp_path), tasks[0]) == 9
    mended.touch()
    assert run(tasks, Store(tmp_path), workers=0, progress=False) == 2
    assert value(Store(tmp_path), after) == 3


def test_what_is_forgotten_is_computed_again(tmp_path: Path) -> None:
    """Forgetting a task forgets what depends on it, and nothing else."""
    log, store = tmp_path / "log", Store(tmp_path)
    tasks = plan(log)
    other = Task(f"{HERE}:one", SETTING, 8, "other", options={"log": str(log)})
    run([*tasks, other], store, workers=0, progress=False)
    assert {t.key for t in touched([*tasks, other], ["other"])} == {other.key}
    store.forget(touched(tasks, [f"{HERE}:one"]))
    assert set(missing([*tasks, other], store)) == {t.key for t in tasks}
    assert set(missing([*tasks, other], Store(tmp_path))) == {t.key for t in tasks}


def test_a_killed_worker_costs_one_retry(tmp_path: Path) -> None:
    """A worker that dies takes its pool with it; the run goes on in a new one and ends whole."""
    tasks = [
        *plan(tmp_path / "log"),
        Task(f"{HERE}:deadly", SETTING, options={"marker": str(tmp_path / "marker")}),
    ]
    store = Store(tmp_path)
    run(tasks, store, workers=2, progress=False)
    assert value(store, tasks[-1]) == 7
    assert value(store, tasks[0]) == 9


def test_timing_tasks_run_alone(tmp_path: Path) -> None:
    """While an exclusive task runs, no other does."""
    options = {"log": str(tmp_path / "log")}
    tasks = [
        Task(f"{HERE}:slow", SETTING, k, "alone" if k % 2 else "with others", options, exclusive=bool(k % 2))
        for k in range(6)
    ]
    run(tasks, Store(tmp_path), workers=2, progress=False)
    spans = []
    for line in (tmp_path / "log").read_text().splitlines():
        name, start, end = line.rsplit(" ", 2)
        spans.append((name, float(start), float(end)))
    assert len(spans) == 6
    for name, start, end in spans:
        if name == "alone":
            assert sum(s < end and e > start for _, s, e in spans) == 1


def test_a_cluster_computes_the_same(tmp_path: Path) -> None:
    """With a Dask scheduler's address, its workers compute, and what comes back is kept here."""
    distributed = pytest.importorskip("distributed")
    log, store = tmp_path / "log", Store(tmp_path)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as cluster:
        run(plan(log), store, scheduler=cluster.scheduler_address, progress=False)
    assert value(store, plan(log)[0]) == 9


def test_the_name_of_a_task_is_what_decides_it() -> None:
    """Equal settings give one key; any change of what decides the result, or of what is needed, gives another."""
    base = Task("errors", SETTING, 1, "MAP", {"a": 1})
    assert base.key == Task("errors", Setting(2, 1.0, 10, steps=3), 1, "MAP", {"a": 1}).key
    assert base.key == dataclasses.replace(base, seconds=99.0, exclusive=True).key
    need = Task("reference", SETTING, 1)
    changes = [
        {"kind": "reference"},
        {"setting": Setting(2, 2.0, 10, steps=3)},
        {"data_set": 2},
        {"engine": "NLBP"},
        {"options": {"a": 2}},
        {"version": 2},
        {"needs": {"reference": need}},
        {"needs": {"reference": dataclasses.replace(need, options={"sweeps": 5})}},
    ]
    keys = {base.key, *(dataclasses.replace(base, **change).key for change in changes)}
    assert len(keys) == 1 + len(changes)


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
