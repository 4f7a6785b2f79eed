"""The loop of every iterative engine: when it ends, how it says so, what it writes down; and its bar, on a terminal and nowhere else."""

import math
import os
import pty
import subprocess
import sys
import types

import pytest

from headcount.engines.engine import PROGRESS, Iteration, Progress, iterate
from headcount.posterior import Status


class Falling(Iteration):
    """The state is the number of steps taken; the residual is given for each."""

    name = "Falling"
    patience = 5

    def __init__(self, residuals, *, tolerance=1e-3, max_iterations=100, stuck_at=None):
        self.residuals, self.tolerance, self.max_iterations = residuals, tolerance, max_iterations
        self.stuck_at = stuck_at

    def step(self, state):
        return state + 1

    def residual(self, state):
        return math.inf if state == 0 else self.residuals(state)

    def stuck(self, state):
        return state == self.stuck_at


@pytest.mark.parametrize("tolerance", [0.3, 1e-3, 1e-8])
def test_it_stops_at_the_first_residual_within_the_tolerance(tolerance: float) -> None:
    """No step earlier and none later; the trace has one row per step, the last within the tolerance."""
    found = iterate(Falling(lambda k: 0.5**k, tolerance=tolerance), 0)
    needed = math.ceil(math.log(tolerance) / math.log(0.5))
    assert found.status is Status.CONVERGED
    assert found.state == len(found.trace) == needed
    assert [row["residual"] for row in found.trace] == [0.5**k for k in range(1, needed + 1)]
    assert [row["iteration"] for row in found.trace] == list(range(1, needed + 1))


@pytest.mark.parametrize(
    ("engine", "status", "steps"),
    [
        (Falling(lambda k: 0.5**k, tolerance=0.0, max_iterations=7), Status.BUDGET, 7),
        (Falling(lambda k: 1.0), Status.STALLED, 1 + Falling.patience),
        (Falling(lambda k: (1 - 0.1 * (1 - PROGRESS)) ** k), Status.STALLED, 6),
        (Falling(lambda k: (2 * PROGRESS - 1) ** k, tolerance=0.9), Status.CONVERGED, 53),
        (Falling(lambda k: math.nan if k == 3 else 1 / k), Status.NOT_FINITE, 3),
        (Falling(lambda k: 1 / k, stuck_at=4), Status.STALLED, 4),
    ],
    ids=["budget", "plateau", "too slow", "slow", "not finite", "stuck"],
)
def test_how_it_ends(engine: Falling, status: Status, steps: int) -> None:
    """Out of budget, no new best residual for `patience` steps, slower than that can measure, NaN, or stuck."""
    found = iterate(engine, 0)
    assert found.status is status
    assert found.state == len(found.trace) == steps


def test_a_state_that_is_done_may_be_left_alone() -> None:
    """With `look_first` a good start costs no step; without it one step is taken, so that the residual is that of a step."""
    engine = Falling(lambda k: 0.0)
    assert iterate(engine, 3, look_first=True)[:2] == (3, Status.CONVERGED)
    assert iterate(engine, 3)[:2] == (4, Status.CONVERGED)
    assert iterate(Falling(lambda k: 1.0, stuck_at=3), 3, look_first=True)[:2] == (3, Status.STALLED)


@pytest.mark.parametrize("falls_back", [True, False])
def test_a_run_that_ends_badly_answers_with_its_nearest_state(monkeypatch, falls_back) -> None:
    """Stalled, out of budget or not finite: the state of smallest residual, where the engine asks for it; the last one elsewhere."""
    monkeypatch.setattr(Falling, "falls_back", falls_back)
    residuals = [0.9, 0.5, 0.7, 1e19, 0.6, 3.0, 2.0, math.nan]
    for engine, last in (
        (Falling(lambda k: residuals[k - 1], max_iterations=5), 5),
        (Falling(lambda k: residuals[k - 1], stuck_at=6), 6),
        (Falling(lambda k: residuals[min(k - 1, 6)]), 7),
        (Falling(lambda k: residuals[k + 1]), 6),
    ):
        engine.patience = 5 if last == 7 else 60
        nearest = 3 if last == 6 and engine.stuck_at is None else 2
        found = iterate(engine, 0)
        assert not found.status.good
        assert found.state == (nearest if falls_back else last)


SCRIPT = """
import headcount as hc
world = hc.simulate.birds(side=3, population=90, rng=1)
problem = hc.Problem(world.model, 90, [hc.Poisson(world.observed)])
hc.infer(problem, hc.engines.TiltedEP(){options})
"""


def on_a_terminal(script: str) -> str:
    """What a program writes to standard error when that is a terminal."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen([sys.executable, "-c", script], stderr=theirs, env=env) as run:
        os.close(theirs)
        seen = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            seen += part
    os.close(ours)
    assert run.returncode == 0, seen
    return seen.decode()


def test_a_terminal_gets_a_bar_when_asked():
    """progress=True: the engine's name, how far it is and the residual."""
    text = on_a_terminal(SCRIPT.format(options=", progress=True"))
    assert "TiltedEP" in text
    assert "residual" in text


def test_who_wants_none_and_pipes_stay_silent():
    """Nothing is written with progress=False, nor where standard error is no terminal."""
    assert on_a_terminal(SCRIPT.format(options=", progress=False")) == ""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(options="")], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


def test_a_notebook_gets_one_line_that_is_written_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a notebook's kernel the bar is text with carriage returns, and is wiped at the end."""

    class ZMQInteractiveShell:
        pass

    shell = types.SimpleNamespace(get_ipython=ZMQInteractiveShell)
    monkeypatch.setitem(sys.modules, "IPython", shell)
    with Progress("TiltedEP", 4, patience=0.0) as bar:
        for _ in range(4):
            bar.advance(0.5)
    said = capsys.readouterr().err
    assert "\rTiltedEP" in said
    assert "4/4  residual 5.00e-01" in said
    assert said.endswith("\r")
    assert not said.split("\r")[-2].strip()
