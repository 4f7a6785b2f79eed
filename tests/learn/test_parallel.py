"""E-steps elsewhere: in processes or on a cluster, the answer is the one got here."""

import os

import numpy as np
import pytest

from headcount.engines import MAP
from headcount.learn import LogisticChain, fit
from learn.cases import birds
from learn.deadly import Deadly


def three() -> tuple[list[LogisticChain], list]:
    worlds = [birds(side=2, steps=5, population=60, rng=k) for k in (1, 2, 3)]
    return [LogisticChain(w.features) for w, _ in worlds], [p for _, p in worlds]


def test_processes_give_the_serial_answer() -> None:
    """Two loky processes end at the serial fit's weights, bit for bit, after as many E-steps."""
    settings, problems = three()
    here = fit(settings, problems, MAP())
    there = fit(settings, problems, MAP(), workers=2)
    assert np.array_equal(here.working, there.working)
    assert np.array_equal(here.covariance, there.covariance)
    assert here.e_steps == there.e_steps
    assert here.trace["evidence"].equals(there.trace["evidence"])


@pytest.mark.filterwarnings("ignore")  # a killed worker makes Dask say so in its own ways
def test_cluster_survives_the_death_of_a_worker(tmp_path) -> None:
    """A local Dask cluster of worker processes, one killed in the middle of the run: still the serial answer."""
    distributed = pytest.importorskip("distributed")
    settings, problems = three()
    (tmp_path / "runs").mkdir()
    engine = Deadly(str(tmp_path / "runs"), os.getpid())
    here = fit(settings, problems, engine)
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            local_directory=str(tmp_path),
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        there = fit(settings, problems, engine, client=client)
    dead = (tmp_path / "runs" / "killed").read_text()
    seen = {p.name.split("-")[1] for p in (tmp_path / "runs").glob("run-*")}
    assert dead in seen
    assert len(seen) >= 2
    assert np.array_equal(here.working, there.working)
    assert np.array_equal(here.standard_errors, there.standard_errors)
    assert here.trace["evidence"].equals(there.trace["evidence"])
