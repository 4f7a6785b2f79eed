"""The bar of long runs: on a terminal, and nowhere else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import types

import pytest

from headcount.engines._progress import Progress

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
