"""Many problems at once: the same answers as one by one, nothing lost when something breaks, nothing computed twice."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

import headcount as hc
from headcount._disk import OutputError
from headcount.engines import PathGibbs, TiltedEP
from headcount.io import _many

CHAIN = hc.MarkovChain([0.5, 0.3, 0.2], [[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.3, 0.3, 0.4]], length=3)


SEEN = hc.Poisson(np.array([[30.0, 18, 11], [28, 19, 12], [25, 21, 13]]))


def years(how_many: int = 4) -> dict[int, hc.Problem]:
    rng = np.random.default_rng(3)
    return {
        2020 + k: hc.Problem(CHAIN, 60, hc.Poisson(rng.poisson(20.0, size=(3, 3)).astype(float)))
        for k in range(how_many)
    }


def same(found: hc.io.Many, problems: dict[int, hc.Problem], engine=None) -> None:
    assert list(found) == list(problems)
    assert not found.failures
    for name, problem in problems.items():
        pd.testing.assert_frame_equal(
            found[name].nodes,
            hc.infer(problem, engine).to_frame("nodes"),
            check_dtype=False,
            rtol=1e-9,
            atol=1e-9,
        )


@pytest.mark.parametrize("workers", [None, 1, 2])
def test_answers_are_those_of_infer(workers):
    """By name and in order, here and in processes; the tables stack with a column that names the problem."""
    found = hc.infer_many(years(), workers=workers)
    same(found, years())
    assert found.to_frame("nodes")["problem"].unique().tolist() == list(years())
    assert found.to_frame()["status"].tolist() == ["converged"] * 4


def test_a_sequence_is_named_by_its_places_and_seeds_go_by_place():
    """The same seed gives the same draws here and in processes; a random engine without one is refused before anything runs."""
    problems = list(years(2).values())
    engine = PathGibbs(sweeps=40, burn_in=10)
    here, there = (hc.infer_many(problems, engine, rng=5, workers=w) for w in (None, 2))
    assert list(here) == [0, 1]
    for k in here:
        pd.testing.assert_frame_equal(here[k].nodes, there[k].nodes)
    with pytest.raises(ValueError, match="PathGibbs is random: give rng"):
        hc.infer_many(problems, engine)


def test_one_that_fails_does_not_stop_the_others():
    """Not converged is a failure in words; asking for it raises with them."""
    found = hc.infer_many(years(), TiltedEP(max_iterations=1, tolerance=1e-12))
    assert len(found) == 0
    assert "did not converge" in found.failures[2021]
    with pytest.raises(KeyError, match=r"2021 has no result.*did not converge"):
        found[2021]
    assert found.to_frame("nodes").empty
    assert found.to_frame()["status"].tolist() == ["failed"] * 4


def test_a_second_run_computes_only_what_is_missing_or_changed(tmp_path, monkeypatch):
    """Finished problems are read; a changed count or engine is computed again."""
    hc.infer_many(years(), out=tmp_path / "a")
    ran: list[hc.Problem] = []
    run = _many.Task.run
    monkeypatch.setattr(_many.Task, "run", lambda self: (ran.append(self.problem), run(self))[1])
    same(hc.infer_many(years(), out=tmp_path / "a"), years())
    assert not ran
    changed = years() | {2021: hc.Problem(CHAIN, 60, hc.Poisson(np.full((3, 3), 19.0)))}
    same(hc.infer_many(changed, out=tmp_path / "a"), changed)
    assert ran == [changed[2021]]
    hc.infer_many(changed, TiltedEP(tolerance=1e-7), out=tmp_path / "a")
    assert len(ran) == 5


@pytest.mark.parametrize(
    "kind",
    [
        lambda k: hc.Problem(
            CHAIN, 60, [SEEN, hc.Tracks({"id": ["a", "a"], "time": [0, 2], "cell": [0, k]})]
        ),
        lambda k: hc.Problem(
            CHAIN, 60, [SEEN, hc.Tracks({"id": ["a", "a"], "time": [0, 2], "cell": [0, 1]}, counted=k == 0)]
        ),
        lambda k: hc.Problem(
            hc.OpenChain(
                [30.0, 20, 10], CHAIN.transitions[0], arrivals=1.0, survival=0.5 + 0.2 * k, length=3
            ),
            observations=SEEN,
        ),
        lambda k: hc.Problem(
            hc.OpenChain([30.0, 20, 10], CHAIN.transitions[0], arrivals=[k, 1 - k, 0.0], length=3),
            observations=SEEN,
        ),
        lambda k: hc.Problem(CHAIN, hc.About(60, sd=9 + k), SEEN),
        lambda k: hc.Problem(
            groups={"a": hc.Group(CHAIN, 30 + k), "b": hc.Group(CHAIN, 30 - k)}, observations=SEEN
        ),
        lambda k: hc.Problem(CHAIN, 60, SEEN, dispersion=hc.Flocks(2 + k)),
    ],
    ids=["tracks", "counted", "survival", "arrivals", "size law", "groups", "flocks"],
)
def test_what_an_answer_depends_on_is_in_its_fingerprint(kind):
    """The same problem made twice has one fingerprint; another has another: a stored answer is never that of another problem."""
    a, b, c = (_many.Task(kind(k), None, None, 0.9).fingerprint for k in (0, 0, 1))
    assert a == b != c


def test_a_file_that_was_changed_is_overwritten_only_by_force(tmp_path):
    """A damaged result is refused before anything runs, and computed again with force."""
    hc.infer_many(years(2), out=tmp_path)
    file = tmp_path / "2021" / "posterior.nc"
    file.write_bytes(file.read_bytes()[:-300])
    with pytest.raises(OutputError, match=r"2021: posterior\.nc is there already"):
        hc.infer_many(years(2), out=tmp_path)
    same(hc.infer_many(years(2), out=tmp_path, force=True), years(2))


def test_names_become_folders(tmp_path):
    """Slashes and dots cannot leave the folder; names that are the same as text are refused."""
    problem = years(1)[2020]
    found = hc.infer_many({"../a/b": problem, "x y": problem, "..": problem, "": problem}, out=tmp_path / "r")
    assert {p.name for p in (tmp_path / "r").iterdir()} == {"..%2Fa%2Fb", "x y", "%2E%2E", "%"}
    assert found["../a/b"].path.exists()
    with pytest.raises(ValueError, match="same name"):
        hc.infer_many({1: problem, "1": problem}, out=tmp_path / "s")


@dataclass(frozen=True)
class Deadly(TiltedEP):
    """Kills its process the first time it runs, if that is not the test's own."""

    name: ClassVar[str] = "Deadly"
    flag: str = ""
    parent: int = 0

    def _run(self, problem, rng, progress, start):
        if os.getpid() != self.parent and not Path(self.flag).exists():
            Path(self.flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._run(problem, rng, progress, start)


def test_a_killed_process_loses_nothing(tmp_path):
    """One of two processes is killed while it works: every problem has its answer."""
    engine = Deadly(flag=str(tmp_path / "killed"), parent=os.getpid())
    found = hc.infer_many(years(), engine, workers=2)
    assert (tmp_path / "killed").exists()
    same(found, years(), TiltedEP())


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes and a scheduler on this machine."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
    ) as made:
        yield made


@pytest.mark.filterwarnings("default")
def test_a_cluster_with_a_killed_worker(tmp_path, cluster):
    """On a real cluster, by client and by address; the problem of a worker that is killed runs again on another."""
    from distributed import Client

    with Client(cluster) as client:
        engine = Deadly(flag=str(tmp_path / "killed"), parent=os.getpid())
        same(hc.infer_many(years(), engine, client=client), years(), TiltedEP())
    assert (tmp_path / "killed").exists()
    same(hc.infer_many(years(2), client=cluster.scheduler_address), years(2))


@pytest.mark.filterwarnings("default")
def test_a_run_whose_scheduler_is_lost_goes_on(tmp_path):
    """The scheduler goes while the run is under way: the error says what to do, and a second run does only the rest."""
    distributed = pytest.importorskip("distributed")
    settings = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    out, done = tmp_path / "r", []
    with distributed.LocalCluster(**settings) as first, distributed.Client(first) as client:

        def put_then_stop(*args, **options):
            made = hc.io.put_results(*args, **options)
            done.append(args[1])
            if len(done) == 2:
                first.close()
            return made

        with pytest.raises(ConnectionError, match="run again"):
            hc.infer_many(years(8), client=client, out=out, write=put_then_stop)
    assert 2 <= len(done) < 8
    kept = {folder: os.stat(folder / "posterior.nc").st_mtime_ns for folder in done}
    with distributed.LocalCluster(**settings) as second, distributed.Client(second) as client:
        same(hc.infer_many(years(8), client=client, out=out), years(8))
    assert {folder: os.stat(folder / "posterior.nc").st_mtime_ns for folder in done} == kept


def test_bad_arguments_are_refused_in_words():
    """Both ways to run at once, no processes at all, an address where nobody answers."""
    with pytest.raises(ValueError, match="client and workers are both given"):
        hc.infer_many(years(1), client="tcp://127.0.0.1:9", workers=2)
    with pytest.raises(ValueError, match="workers is 0"):
        hc.infer_many(years(1), workers=0)
    with pytest.raises(ValueError, match="to_frame takes summary, nodes or flows"):
        hc.infer_many(years(1)).to_frame("edges")
