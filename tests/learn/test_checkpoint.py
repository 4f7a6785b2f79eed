"""Checkpoints: a fit that was killed goes on to the answer it would have had."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from headcount.engines import MAP, TiltedEP
from headcount.learn import LogisticChain, fit
from learn.cases import birds

ROOT = Path(__file__).parents[2]

SCRIPT = """
import os, signal, sys
sys.path[:0] = [{tests!r}]
from learn.cases import birds
from headcount import _disk
from headcount.engines import MAP, TiltedEP
from headcount.learn import LogisticChain, fit

count = 0
rename = os.replace
def deadly(source, target):
    global count
    count += str(target) == {path!r}  # compilers rename files of their own
    if count == {after}:
        if not {during}:
            rename(source, target)
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)
_disk.os.replace = deadly
world, problem = birds(side=2, steps=5, population=60)
fit(LogisticChain(world.features), problem, {engine}(), method={method!r}, checkpoint={path!r}, strict=False,
    max_iterations=12)
"""


@pytest.mark.parametrize(("method", "engine", "during"), [("ascent", TiltedEP, False), ("em", MAP, True)])
def test_a_killed_fit_goes_on_to_the_same_answer(
    method: str, engine: type, during: bool, tmp_path: Path
) -> None:
    """kill −9 after the second step, or while it is being written down: the resumed fit is the uninterrupted one."""
    path = tmp_path / "fit.checkpoint"
    script = SCRIPT.format(
        tests=str(ROOT / "tests"),
        after=2,
        during=during,
        engine=engine.__name__,
        method=method,
        path=str(path),
    )
    died = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert died.returncode == -9, died.stderr
    assert path.exists()
    world, problem = birds(side=2, steps=5, population=60)

    def go(checkpoint: Path | None):
        setting = LogisticChain(world.features)
        return fit(
            setting, problem, engine(), method=method, checkpoint=checkpoint, strict=False, max_iterations=12
        )

    whole, resumed = go(None), go(path)
    assert len(resumed.rows) == len(whole.rows) > 4
    assert np.array_equal(whole.working, resumed.working)
    assert np.array_equal(whole.covariance, resumed.covariance)
    assert whole.evidence == resumed.evidence
    columns = ["iteration", "e_steps", "evidence", "step", "residual"]
    assert whole.trace[columns].equals(resumed.trace[columns])
    assert (
        resumed.rows[1]["seconds"] != whole.rows[1]["seconds"]
    )  # it was the other process that took these steps
    again = go(path)
    assert np.array_equal(again.working, whole.working)


def test_the_checkpoint_of_another_fit_is_refused(tmp_path: Path) -> None:
    """Other data, engine, method or settings: refused, with what to do."""
    path = tmp_path / "fit.checkpoint"
    world, problem = birds(side=2, steps=5, population=60)
    _, other = birds(side=2, steps=5, population=60, rng=2)
    setting = LogisticChain(world.features)
    fit(setting, problem, MAP(), checkpoint=path, standard_errors=False)
    for changed in (
        lambda: fit(setting, other, MAP(), checkpoint=path),
        lambda: fit(setting, problem, MAP(tolerance=1e-7), checkpoint=path),
        lambda: fit(setting, problem, MAP(), method="em", checkpoint=path),
        lambda: fit(LogisticChain(world.features, ridge=1.0), problem, MAP(), checkpoint=path),
    ):
        with pytest.raises(ValueError, match=r"belongs to another fit .*delete it to begin anew"):
            changed()
