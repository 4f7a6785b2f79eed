"""Ctrl-C and SIGTERM end a compiled run: in a real process, with real signals."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from headcount.engines.sampling._sampler import in_threads

LIMIT = 2.0
"""Seconds of CPU time from the signal to the end of the process, beyond what an idle process takes to end.

CPU time, not wall-clock time: a run that ignores the signal burns at least one CPU second per second, and a loaded machine
stretches only the wall clock."""
HANGING = 60.0
"""Seconds of wall-clock time after which a process counts as hanging: only a guard, many times the limit."""

LISTEN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""A test that runs in the background inherits a SIGINT that is ignored."""
SCRIPT = (
    LISTEN
    + """
import numpy as np, headcount as hc
world = hc.simulate.birds(side={side}, population={people}, steps=6, rng=1)
problem = hc.Problem(world.model, {people}, [hc.Poisson(world.observed)])
{warm}
print("ready", flush=True)
hc.infer(problem, hc.engines.{long}, rng=1, strict=False)
"""
)

PATHS = (
    "PathGibbs(burn_in=6, sweeps=20, chains=1, batches=2)",
    "PathGibbs(sweeps=10**8, chains={chains}, workers={workers})",
)


def cpu_so_far(process):
    """CPU seconds of a process that is still running, its threads and its own ended children included."""
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def interrupted(command, number, after, **environment):
    """Send a signal to a process that has run for `after` CPU seconds since it said that it is ready.

    Returns (exit code, CPU seconds until it ended, standard error). The CPU time is that process's own (`os.wait4`): the sum over
    all children of this one would hold what other tests left running, if it ends meanwhile.
    """
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    ) as process:
        try:
            assert process.stdout.readline().strip() == "ready", process.stderr.read()
            begun, before = time.monotonic(), cpu_so_far(process)
            ready = before
            while before < ready + after and time.monotonic() < begun + HANGING:
                time.sleep(0.02)
                assert process.poll() is None, process.stderr.read()
                before = cpu_so_far(process)
            process.send_signal(number)
            guard = threading.Timer(HANGING, process.kill)
            guard.start()
            errors = process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            guard.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, usage.ru_utime + usage.ru_stime - before, errors
        finally:
            process.kill()


@pytest.fixture(scope="module")
def idle():
    """CPU seconds that a process which has sampled, and now only sleeps, takes to end: the interpreter's own."""
    code = SCRIPT.format(
        side=3,
        people=50,
        warm=f"hc.infer(problem, hc.engines.{PATHS[0]}, rng=1, strict=False)",
        long="PathGibbs()",
    )
    code = code.replace(
        'print("ready", flush=True)', 'import time; print("ready", flush=True); time.sleep(60)'
    )
    return interrupted([sys.executable, "-c", code], signal.SIGINT, 0.0)[1]


@pytest.mark.parametrize(
    ("engine", "chains", "workers"),
    [(PATHS, 4, 2), (PATHS, 1, 1)],
    ids=["paths", "one chain"],
)
def test_an_interrupt_ends_a_compiled_run(engine, chains, workers, idle):
    """SIGINT raises KeyboardInterrupt in the caller within two CPU seconds, whatever the number of chains and threads."""
    short, long = engine
    code = SCRIPT.format(
        side=3,
        people=2000,
        warm=f"hc.infer(problem, hc.engines.{short}, rng=1, strict=False)",
        long=long.format(chains=chains, workers=workers),
    )
    returned, seconds, errors = interrupted([sys.executable, "-c", code], signal.SIGINT, 0.5)
    assert returned == -signal.SIGINT
    assert "KeyboardInterrupt" in errors
    assert seconds < LIMIT + idle


def test_an_interrupt_ends_one_long_sweep(idle):
    """One sweep of two million individuals takes longer than the limit; its loops look at the flag too."""
    code = SCRIPT.format(
        side=5,
        people=2_000_000,
        warm="",
        long="PathGibbs(burn_in=6, sweeps=20, draws=0, chains=2)",
    )
    returned, seconds, _ = interrupted([sys.executable, "-c", code], signal.SIGINT, 3.0)
    assert returned == -signal.SIGINT
    assert seconds < LIMIT + idle


NETWORK = (
    LISTEN
    + """
import importlib.resources, headcount as hc
def read():
    return hc.DiscreteModel.from_bif(importlib.resources.files("pgmpy") / "utils" / "example_models" / "pathfinder.bif.gz")
model = read()
problem = hc.Problem(model, 2000, [hc.Gaussian([1000.0, 1000.0], sd=5, on=v) for v in model.variables if len(model.states[v]) == 2])
hc.infer(problem)
print("ready", flush=True)
while True:
    hc.infer(problem, strict=False)
    hc.infer(problem, "MAP")
    read().possible
"""
)


def test_an_interrupt_ends_a_network(idle):
    """Reading pathfinder, its intervals and its most probable counts, over and over: SIGINT is not swallowed, and ends them at once."""
    pytest.importorskip("pgmpy")
    returned, seconds, errors = interrupted([sys.executable, "-c", NETWORK], signal.SIGINT, 0.5)
    assert returned == -signal.SIGINT
    assert "KeyboardInterrupt" in errors
    assert seconds < LIMIT + idle


def test_an_interrupt_does_not_wait_for_the_compiler(tmp_path, idle):
    """On the first run of all the kernels are compiled, which takes longer than the limit and cannot be interrupted itself."""
    code = SCRIPT.format(side=3, people=50, warm="", long="PathGibbs(sweeps=10**8)")
    returned, seconds, said = interrupted(
        [sys.executable, "-c", code], signal.SIGINT, 1.5, NUMBA_CACHE_DIR=str(tmp_path)
    )
    assert returned in {-signal.SIGINT, 128 + signal.SIGINT}, said
    assert seconds < LIMIT + idle


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_the_command_line(tmp_path, number, code, idle):
    """130 after Ctrl-C, 143 after SIGTERM, and no results."""
    counts, moves, out = tmp_path / "counts.csv", tmp_path / "moves.csv", tmp_path / "out"
    counts.write_text(
        "time,cell,count\n" + "".join(f"{t},{c},{1000 + t}\n" for t in range(6) for c in "ab"),
        encoding="utf-8",
    )
    moves.write_text("origin,dest,probability\na,a,.9\na,b,.1\nb,a,.2\nb,b,.8\n", encoding="utf-8")
    command = LISTEN + (
        "import headcount.engines.sampling._path_moves, headcount.cli as c, sys; print('ready', flush=True); "
        f"sys.argv = ['headcount', 'infer', {str(counts)!r}, '--transitions', {str(moves)!r}, '--population', '2000', '--noise', 'poisson',"
        f" '--engine', 'PathGibbs', '--set', 'sweeps=100000000', '--seed', '1', '--out', {str(out)!r}]; c.main()"
    )
    returned, seconds, errors = interrupted([sys.executable, "-c", command], number, 4.0)
    assert returned == code, errors
    assert seconds < LIMIT + idle
    assert not out.exists()


def test_failures_in_a_thread_reach_the_caller_and_stop_the_others():
    """The first failure is raised; no further items are begun."""
    stop, begun = np.zeros(1, dtype=np.int64), []

    def work(item):
        begun.append(item)
        raise RuntimeError(f"item {item}")

    with pytest.raises(RuntimeError, match="item 0"):
        in_threads(work, [0, 1, 2], 1, stop)
    assert begun == [0]
    assert stop[0] == 1
