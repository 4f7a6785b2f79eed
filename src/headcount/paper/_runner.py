"""Run tasks in processes: what is known is not computed, what needs arrays waits for them, what measures time runs alone.

Workers only compute: they get plain values and arrays, and return numbers and arrays; this process reads and writes every file. So a
remote worker needs no shared disk, and a worker that dies loses one task at most.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import contextmanager
from typing import Any

from headcount.paper._kinds import execute
from headcount.paper._store import Store
from headcount.paper._task import Result, Task, unique

THREADS = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)

ATTEMPTS = 3
"""Pools to start before giving up on workers that keep dying."""


class ReproductionError(RuntimeError):
    """Some tasks failed; every other one was finished and kept."""

    def __init__(self, failures: dict[str, BaseException]) -> None:
        shown = "; ".join(f"{title}: {type(e).__name__}: {e}" for title, e in list(failures.items())[:5])
        more = f"; and {len(failures) - 5} more" if len(failures) > 5 else ""
        super().__init__(
            f"{len(failures)} tasks failed: {shown}{more}. The others are kept; run the same command again to retry these only"
        )
        self.failures = failures


def missing(tasks: Sequence[Task], store: Store) -> dict[str, Task]:
    """What must be computed: tasks without numbers, and those whose arrays such tasks read but nobody kept."""
    todo: dict[str, Task] = {}

    def add(task: Task) -> None:
        if task.key in todo:
            return
        todo[task.key] = task
        for need in task.needs.values():
            if not store.has_arrays(need):
                add(need)

    for task in unique(list(tasks)).values():
        if not store.has(task):
            add(task)
    return {key: task for key, task in unique(list(todo.values())).items() if key in todo}


def run(
    tasks: Sequence[Task],
    store: Store,
    *,
    workers: int = 2,
    scheduler: str | None = None,
    progress: bool | None = None,
) -> int:
    """Compute what is missing; returns how many tasks that was.

    Parameters
    ----------
    tasks
        What is wanted; what these need is added.
    store
        Where results are kept.
    workers
        Processes on this machine; 0 computes in this one.
    scheduler
        Address of a Dask scheduler, to use its workers instead.
    progress
        True for a bar, False for silence; None: a bar on a terminal, else a line now and then.

    Raises
    ------
    ReproductionError
        After everything else is done, when tasks failed.
    """
    first = missing(tasks, store)
    if not first:
        return 0
    failures: dict[str, BaseException] = {}
    with _Progress(list(first.values()), shown=progress) as bar:
        for _ in range(ATTEMPTS):
            todo = missing(tasks, store)
            failures.clear()
            with _executor(workers, scheduler) as (pool, room):
                _together([t for t in todo.values() if not t.exclusive], store, pool, bar, failures, room)
                for task in todo.values():
                    if task.exclusive:
                        _together([task], store, pool, bar, failures, room)
            # A worker that was killed takes its pool with it: the rest is run again in a new one.
            if not any(isinstance(error, BrokenExecutor) for error in failures.values()):
                break
    if failures:
        raise ReproductionError(failures)
    return len(first)


def _together(
    tasks: Sequence[Task],
    store: Store,
    pool: Executor | None,
    bar: _Progress,
    failures: dict[str, BaseException],
    room: int,
) -> None:
    """Run tasks, each as soon as the arrays it reads are there, the longest first, `room` at a time."""
    waiting = {task.key: task for task in tasks}
    running: dict[Future[Result], Task] = {}
    lost: set[str] = set()
    while waiting or running:
        unfinished = waiting.keys() | {task.key for task in running.values()}
        ready = [t for t in waiting.values() if not any(n.key in unfinished for n in t.needs.values())]
        for task in sorted(ready, key=lambda t: -t.seconds):
            if len(running) >= room:
                break
            del waiting[task.key]
            if any(need.key in lost for need in task.needs.values()):
                lost.add(task.key)
                continue
            inputs = {role: store.arrays(need) for role, need in task.needs.items()}
            running[_submit(pool, task.plain(), inputs)] = task
        if not running:
            continue
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            task = running.pop(future)
            error = future.exception()
            if error is None:
                store.put(task, future.result())
                bar.done(task)
            else:
                failures[task.title] = error
                lost.add(task.key)


def _submit(pool: Executor | None, task: dict[str, Any], inputs: dict[str, Any]) -> Future[Result]:
    """A future of the result; computed here and now when there is no pool, failed when the pool is broken."""
    future: Future[Result] = Future()
    try:
        if pool is not None:
            return pool.submit(execute, task, inputs)
        future.set_result(execute(task, inputs))
    except Exception as error:  # the runner reports every failure in one place
        future.set_exception(error)
    return future


@contextmanager
def _executor(workers: int, scheduler: str | None) -> Iterator[tuple[Executor | None, int]]:
    """Dask's workers, loky's processes, or none; and how many tasks to hand over at a time."""
    if scheduler is not None:
        try:
            from distributed import Client
        except ImportError as error:
            raise ImportError(
                "a scheduler needs Dask: pip install 'headcount[cluster]', or leave --scheduler out to run here"
            ) from error
        with Client(scheduler, set_as_default=False) as client:
            yield client.get_executor(pure=False, retries=2), 256
    elif workers == 0:
        yield None, 1
    else:
        from joblib.externals.loky import ProcessPoolExecutor

        # Not the reusable executor: that one belongs to whoever else uses joblib in this process.
        pool = ProcessPoolExecutor(max_workers=workers, env=THREADS)
        try:
            yield pool, workers + 2
        except BaseException:  # also when interrupted: do not wait for what is running
            pool.shutdown(kill_workers=True)
            raise
        pool.shutdown()


class _Progress:
    """How much is done and how long the rest will take, by the tasks' guessed seconds."""

    def __init__(self, tasks: list[Task], *, shown: bool | None) -> None:
        self.total, self.count = sum(t.seconds for t in tasks), len(tasks)
        self.spent, self.finished = 0.0, 0
        terminal = sys.stderr.isatty() if shown is None else shown
        self.mode = "silent" if shown is False else ("bar" if terminal else "lines")
        self.start = self.last = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> _Progress:
        if self.mode == "bar":
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:3.0f} %"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(compact=True),
                console=Console(stderr=True),
                speed_estimate_period=600,
            )
            self._id = self._bar.add_task(f"0/{self.count} tasks", total=self.total)
            self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def done(self, task: Task) -> None:
        """One task finished."""
        self.spent, self.finished = self.spent + task.seconds, self.finished + 1
        if self._bar is not None:
            self._bar.update(
                self._id, completed=self.spent, description=f"{self.finished}/{self.count} tasks"
            )
        now = time.monotonic()
        if self.mode == "lines" and (now - self.last > 30 or self.finished == self.count):
            self.last = now
            share = self.spent / self.total
            left = (now - self.start) * (1 - share) / share / 60
            print(
                f"{self.finished}/{self.count} tasks, {100 * share:.0f} %, about {left:.1f} min left ({task.title})",
                file=sys.stderr,
                flush=True,
            )
