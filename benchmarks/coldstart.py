"""Claim: the first inference on a fresh machine waits at most four times as long as importing what every run imports.

Each case runs in a fresh process with empty caches (home, numba), and again with what the first one left there. Times are processor
time, so that a busy machine does not count, as multiples of the imports in the same session: numba, SciPy, pandas and xarray.

Why NumPy and not a faster compiler: numba took 9 s for the kernels of the default engine, and 6.6 s with LLVM's optimisation switched
off (measured once, when this was decided); a built extension would ask every user for a C compiler; a compiler in a second thread
would let answers depend on when it finishes. So every kernel of the default engine has the same formulas in NumPy, used where
compiled code is not on disk and NumPy is done before a compiler would be; quantiles and L-BFGS are NumPy's for good.
Whole-number draws (written by `headcount infer` and `Posterior.save`) and the path sampler walk over single individuals: they compile.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks._report import ROOT, Check, Report, Table

MOST = 4.0
"""Times the imports."""
IMPORTS = "import numba, pandas, scipy.linalg, scipy.optimize, scipy.sparse, scipy.special, xarray"
README = """
import headcount as hc
world = hc.simulate.birds(side=4, weights=(1, 2, 2, 2), population=480, rng=1)
problem = hc.Problem(world.model, population=480, observations=hc.Poisson(world.observed))
"""
CASES = {
    "inference, 6 × 6 cells": """
import headcount as hc
world = hc.simulate.birds(side=6, weights=(1, 2, 2, 2), population=1080, rng=1)
post = hc.infer(hc.Problem(world.model, 1080, hc.Poisson(world.observed)))
assert post.status.good and post.node(5).mean.sum() > 0
""",
    "README: inference, flows, a frame": README
    + "post = hc.infer(problem)\nassert len(post.to_frame('flows')) and post.edge(5, 6).mean.sum() > 0\n",
    "README: fit of four weights": README
    + "assert len(hc.fit(hc.LogisticChain(world.features), problem).table())\n",
    "the birds' tables by `headcount infer`": """
import sys, tempfile
from headcount.cli import main
sys.argv = ["headcount", "infer", "examples/birds/counts.csv", "--transitions", "examples/birds/transitions.csv"]
sys.argv += ["--population", "1080", "--quiet", "--out", tempfile.mkdtemp() + "/results"]
main()
""",
    "README's problem by `PathGibbs`": README + "hc.infer(problem, 'PathGibbs', rng=1)\n",
}


def processor_seconds(code: str, home: Path) -> float:
    """User and system time of a fresh process that keeps its caches under `home`."""
    environment = os.environ | {
        "HOME": str(home),
        "NUMBA_CACHE_DIR": str(home / "numba"),
        "PYTHONPATH": str(ROOT / "src"),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, cwd=ROOT, stdout=subprocess.DEVNULL
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def run(*, quick: bool) -> Report:
    """The shortest of a few runs each, in turn, so that all see the same machine."""
    imports: list[float] = []
    found: dict[str, list[tuple[float, float]]] = {case: [] for case in CASES}
    for _ in range(1 if quick else 2):
        for case, code in CASES.items():
            with tempfile.TemporaryDirectory() as folder:
                home = Path(folder)
                processor_seconds(IMPORTS, home)  # the files are in the system's memory from here on
                imports.append(processor_seconds(IMPORTS, home))
                found[case].append((processor_seconds(code, home), processor_seconds(code, home)))
    unit = min(imports)
    rows: list[list[object]] = [["importing numba, SciPy, pandas, xarray", unit, 1.0, unit, 1.0]]
    for case, times in found.items():
        first, again = (min(column) for column in zip(*times, strict=True))
        rows.append([case, first, first / unit, again, again / unit])
    ratios = {str(row[0]): float(str(row[2])) for row in rows}
    measured = list(CASES)[:2]
    return Report(
        "coldstart",
        __doc__.splitlines()[0],
        checks=[Check(f"first {case} ÷ imports", ratios[case], at_most=MOST) for case in measured],
        tables=[
            Table(
                "Processor seconds of fresh processes, caches empty and after one run",
                ["what", "first, s", "÷ imports", "again, s", "÷ imports"],
                rows,
                " ".join(__doc__.split("\n\n")[2].split()),
            )
        ],
        seeds=[1],
    )
