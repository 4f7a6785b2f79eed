"""Many problems: years, species, regions, scenarios. Here, in processes, or on a Dask cluster; a broken run goes on where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pandas as pd

from headcount._compile import many_solves
from headcount._device import connected
from headcount._disk import check_folder
from headcount.engines import Engine, NotConvergedError
from headcount.engines.choice import as_engine
from headcount.engines.engine import Progress
from headcount.errors import ProblemError, TableError, known_keywords
from headcount.individual import HiddenStateChain, MarkovChain, Model
from headcount.io.write import FORMATS, load_result, put_results, result_names
from headcount.learn import infer
from headcount.observe import Problem
from headcount.observe._problem import as_problem
from headcount.posterior.dataset import draw_groups
from headcount.posterior.result import Result

if TYPE_CHECKING:
    import os


RETRIES = 3
"""Times that a problem is run again after the process that ran it was lost; Dask gives up a task after as many workers by default."""
FINGERPRINT = "problem_fingerprint"
"""Attribute of a stored result that says which problem, engine and seed it answers."""

Name = Hashable
Writer = Callable[..., tuple[Result, list[Path]]]


@dataclass(frozen=True)
class Task:
    """One problem, with everything its answer depends on; it travels as a whole."""

    problem: Problem
    engine: Engine | None
    seed: tuple[int, int] | None
    level: float
    draws: int | None = None
    draw_flows: bool = False

    @property
    def fingerprint(self) -> str:
        """Equal for tasks that have the same answer."""
        from joblib import hash as digest

        model, problem = self.problem.model, self.problem
        law: Any = model.factors if not isinstance(model, MarkovChain) else None
        if isinstance(model, MarkovChain):
            law = (
                model.initial if model.initial_known else None,
                list(model.transitions),
                model.concentration,
            )
        if isinstance(model, HiddenStateChain):
            law = model.arguments
        # The sites of groups and tracked individuals are those of the chain that holds them all.
        sites = (*problem.sites, *problem.core.sites)
        data = [(s.scope, s.index, s.weights, s.noise.family[0], vars(s.noise)) for s in sites]
        beside = [(vars(t), t.counted) for t in problem.tracks]
        told = (repr(problem.population), repr(problem.dispersion), repr(self.engine), self.seed, self.level)
        return str(digest((dict(model.states), law, data, beside, told, self.draws, self.draw_flows)))

    @many_solves(20)  # one of many, and a worker does not know how many
    def run(self) -> Answer:
        """The answer, or why there is none. One BLAS thread: several of these share a machine."""
        import numpy as np
        from threadpoolctl import threadpool_limits

        rng = None if self.seed is None else np.random.default_rng(self.seed)
        try:
            with threadpool_limits(limits=1):
                posterior = infer(self.problem, self.engine, rng=rng, progress=False)
        except (ValueError, ArithmeticError, MemoryError, NotConvergedError) as error:
            return Answer(failure=f"{type(error).__name__}: {error}")
        drawn = draw_groups(posterior, draws=self.draws, flows=self.draw_flows)
        return Answer(Result.of(posterior, level=self.level), drawn)


@dataclass(frozen=True)
class Answer:
    """What comes back from a worker."""

    result: Result | None = None
    draws: Any = None
    failure: str = ""


@dataclass(frozen=True)
class Many(Mapping[Name, Result]):
    """Results by the problem's name; problems without one are in ``failures``, with the reason.

    Attributes
    ----------
    results
        In the order in which the problems were given.
    failures
        Why a problem has no result: it did not converge, contradicts itself, is too large.
    """

    results: Mapping[Name, Result]
    failures: Mapping[Name, str] = field(default_factory=dict)

    @classmethod
    def of(cls, answers: Mapping[Name, Answer]) -> Many:
        """The results and the failures of answers."""
        return cls(
            {n: a.result for n, a in answers.items() if a.result is not None},
            {n: a.failure for n, a in answers.items() if a.result is None},
        )

    def __getitem__(self, name: Name) -> Result:
        if name in self.failures:
            raise KeyError(f"{name!r} has no result: {self.failures[name]}")
        return self.results[name]

    def __iter__(self) -> Iterator[Name]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def to_frame(self, what: str = "summary") -> pd.DataFrame:
        """``"nodes"`` or ``"flows"`` of all problems, under each other, or one row per problem: ``"summary"``."""
        if what not in ("summary", "nodes", "flows"):
            raise ValueError(f"to_frame takes summary, nodes or flows, got {what!r}")
        if what != "summary":
            tables = [getattr(r, what).assign(problem=name) for name, r in self.results.items()]
            if not tables:
                return pd.DataFrame(columns=["problem"])
            whole = pd.concat(tables, ignore_index=True)
            return whole[["problem", *(c for c in whole.columns if c != "problem")]]
        kept = ("status", "engine", "seconds", "log_evidence")
        rows = [{"problem": n, **{k: r.attributes[k] for k in kept}} for n, r in self.results.items()]
        rows += [{"problem": n, "status": "failed", "failure": why} for n, why in self.failures.items()]
        return pd.DataFrame(rows, columns=["problem", *kept, "failure"])


@known_keywords()
def infer_many(
    problems: Mapping[Name, Problem] | Sequence[Problem],
    engine: Engine | str | None = None,
    *,
    rng: int | None = None,
    client: Any = None,
    workers: int | None = None,
    progress: bool | None = None,
    out: str | os.PathLike[str] | None = None,
    level: float = 0.9,
    draws: int | None = None,
    draw_flows: bool = False,
    write: Writer = put_results,
    force: bool = False,
) -> Many:
    """Infer many problems, each as :func:`headcount.infer` would; one that fails does not stop the others.

    Parameters
    ----------
    problems
        By name, or in a sequence, which names them 0, 1, …. A name may be a text, a number or a date; as text it is that of the
        problem's folder.
    engine
        As for `infer`; the same for all.
    rng
        Seed for random engines: problem k gets the seed (rng, k), wherever it runs.
    client
        A Dask client, or the address of a scheduler (``"tcp://…"``). Problems of lost workers are run again.
    workers
        Or: this many processes on this machine. Without both the problems run here, one after the other.
    out
        Folder: each problem's results are written to a folder of its name as soon as they are there. A run that is started again
        with the same problems and folder reads what is finished, and computes only the rest.
    level
        Of the intervals.
    draws, draw_flows
        As for `write_results`: how many joint draws are stored, and whether flows are among them.
    write, force
        What writes a result into its folder, `io.put_results` with other settings perhaps; and whether it may overwrite files that are
        not a result of headcount, or were changed since.

    Returns
    -------
    Many
        Results by name, and why some have none.

    Examples
    --------
    >>> import headcount as hc
    >>> chain = hc.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], length=2)
    >>> years = {year: hc.Problem(chain, 50, hc.Poisson([[30, 21], [28, y]])) for year, y in ((2024, 20), (2025, 27))}
    >>> found = hc.infer_many(years)
    >>> found[2025].nodes["mean"].round(1).tolist()
    [26.5, 23.5, 27.4, 22.6]
    """
    tasks = _tasks(problems, engine, rng, (level, draws, draw_flows))
    folders = _folders(out, list(tasks))
    answers = {name: answer for name, folder in folders.items() if (answer := _finished(tasks[name], folder))}
    left = {name: task for name, task in tasks.items() if name not in answers}
    for name in left.keys() & folders.keys():
        for kind in FORMATS:
            check_folder(
                folders[name], result_names(format=kind, omx=True, places=True, fitted=True), force=force
            )
    with Progress("problems", len(left), show=progress) as bar, _running(client, workers) as run:
        for name, answer in run(left):
            answers[name] = _kept(answer, tasks[name], folders.get(name), partial(write, force=force))
            bar.advance(text=f"{name}: {answer.failure or 'done'}"[:60])
    return Many.of({name: answers[name] for name in tasks})


def _tasks(
    problems: Mapping[Name, Problem] | Sequence[Problem],
    engine: Engine | str | None,
    rng: int | None,
    output: tuple[float, int | None, bool],
) -> dict[Name, Task]:
    """One task per problem, by name, with the seed of its place."""
    if isinstance(problems, (Problem, Model, str)):
        raise ProblemError(
            f"problems is a {type(problems).__name__}: give {{name: problem}} or a list of problems, and infer one with "
            "hc.infer(problem)"
        )
    named = dict(problems) if isinstance(problems, Mapping) else dict(enumerate(problems))
    named = {name: as_problem(problem, f"problems[{name!r}]") for name, problem in named.items()}
    chosen = None if engine is None else as_engine(engine)
    if chosen is not None and chosen.random and rng is None:
        raise ValueError(f"{chosen.name} is random: give rng, a seed, so that the answers can be got again")
    return {
        name: Task(problem, chosen, None if rng is None else (rng, k), *output)
        for k, (name, problem) in enumerate(named.items())
    }


def _kept(answer: Answer, task: Task, folder: Path | None, write: Writer) -> Answer:
    """The answer without its draws, written to its folder first if there is one."""
    if answer.result is None or folder is None:
        return replace(answer, draws=None)
    marked = {**answer.result.attributes, FINGERPRINT: task.fingerprint}
    made, _ = write(replace(answer.result, attributes=marked), folder, draws=answer.draws)
    return Answer(made)


def _folders(out: str | os.PathLike[str] | None, names: list[Name]) -> dict[Name, Path]:
    """One folder per problem, of its name."""
    if out is None:
        return {}
    folders = {name: Path(out) / folder_name(name) for name in names}
    if len(set(folders.values())) < len(folders):
        raise ValueError(
            "two problems have the same name as text, and would share a folder: give other names"
        )
    for folder in folders.values():
        check_folder(folder)
    return folders


def folder_name(name: Name) -> str:
    """A name as that of a folder: what a file name may not have is written as %-codes, so that different texts stay different."""
    text = quote(str(name), safe=" +,;=@~()")
    return text if text.strip(".") else text.replace(".", "%2E") or "%"


def _finished(task: Task, folder: Path) -> Answer | None:
    """The stored answer to a task, where an earlier run wrote it whole; None elsewhere."""
    if not folder.exists():
        return None
    try:
        result = load_result(folder)
    except TableError:
        return None
    return Answer(result) if result.attributes.get(FINGERPRINT) == task.fingerprint else None


Runner = Callable[[Mapping[Name, Task]], Iterator[tuple[Name, Answer]]]


@contextmanager
def _running(client: Any, workers: int | None) -> Iterator[Runner]:
    """The way to run tasks: on a cluster, in processes, or here; answers come as they are ready."""
    if client is not None and workers is not None:
        raise ValueError("client and workers are both given: a Dask client has its own workers")
    if workers is not None and workers < 1:
        raise ValueError(f"workers is {workers}: give a whole number of processes, 1 or more, or None")
    if client is not None:
        with connected(client) as cluster:
            yield lambda tasks: _on_cluster(cluster, tasks)
    elif workers is not None and workers > 1:
        yield lambda tasks: _in_processes(workers, tasks)
    else:
        yield lambda tasks: ((name, task.run()) for name, task in tasks.items())


def _on_cluster(client: Any, tasks: Mapping[Name, Task]) -> Iterator[tuple[Name, Answer]]:
    from concurrent.futures import CancelledError

    from distributed import as_completed
    from distributed.scheduler import KilledWorker

    if not tasks:
        return
    futures = {
        client.submit(Task.run, task, pure=False, retries=RETRIES): name for name, task in tasks.items()
    }
    for future in as_completed(futures, raise_errors=False):
        try:
            answer = future.result()
        except KilledWorker as error:
            answer = Answer(failure=f"its workers were lost, {RETRIES} times and more: {error}")
        except (CancelledError, OSError) as error:
            raise ConnectionError(
                "the connection to the cluster was lost: run again with the same problems and out, and what is finished is not repeated"
            ) from error
        yield futures.pop(future), answer


def _numbered(name: Name, task: Task) -> tuple[Name, Answer]:
    return name, task.run()


def _in_processes(workers: int, tasks: Mapping[Name, Task]) -> Iterator[tuple[Name, Answer]]:
    """Loky processes; where one is killed the pool is made again for what is left."""
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    left = dict(tasks)
    for lost in range(RETRIES + 1):
        if not left:
            return
        pool = Parallel(
            n_jobs=workers, return_as="generator_unordered", inner_max_num_threads=1, backend="loky"
        )
        try:
            for name, answer in pool(delayed(_numbered)(name, task) for name, task in list(left.items())):
                del left[name]
                yield name, answer
        except TerminatedWorkerError as error:
            if lost == RETRIES:
                reason = f"the processes that ran it were killed, {RETRIES + 1} times: {error}"
                yield from ((name, Answer(failure=reason)) for name in left)
                return
