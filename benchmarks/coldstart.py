"""Claim: the first inference on a fresh machine waits at most four times as long as importing what every run imports.

Both run in fresh processes with empty caches (home, numba). Times are processor time, so that a busy machine does not count, and the
ratio is of one session: import numba, SciPy, pandas and xarray; then import headcount, simulate 6 × 6 cells and infer, compiling all
that this needs; then the same again with what was compiled kept on disk.
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
INFERENCE = """
import headcount as hc
world = hc.simulate.birds(side=6, weights=(1, 2, 2, 2), population=1080, rng=1)
post = hc.infer(hc.Problem(world.model, 1080, hc.Poisson(world.observed)))
assert post.status.good and post.node(5).mean.sum() > 0
"""


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
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def run(*, quick: bool) -> Report:
    """The shortest of a few runs each, in turn, so that both see the same machine."""
    imports, first, again = [], [], []
    for _ in range(1 if quick else 3):
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            processor_seconds(IMPORTS, home)  # the files are in the system's memory from here on
            imports.append(processor_seconds(IMPORTS, home))
            first.append(processor_seconds(INFERENCE, home))
            again.append(processor_seconds(INFERENCE, home))
    rows = [
        ["importing numba, SciPy, pandas, xarray", min(imports), 1.0],
        ["first inference, caches empty", min(first), min(first) / min(imports)],
        ["the same in a second process", min(again), min(again) / min(imports)],
    ]
    return Report(
        "coldstart",
        __doc__.splitlines()[0],
        checks=[Check("first inference ÷ imports, 6 × 6 cells", min(first) / min(imports), at_most=MOST)],
        tables=[Table("Processor seconds of fresh processes", ["what", "s", "÷ imports"], rows)],
        seeds=[1],
    )
