"""Which function computes which kind of task; the one entry that a worker process calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount.paper._task import Result, Row, Setting

Arrays = Mapping[str, NDArray[np.float64]]
Inputs = Mapping[str, Arrays]
Compute = Callable[[Setting, int, str, Mapping[str, Any], Inputs], Result]

KINDS = {
    "reference": "headcount.paper._accuracy:reference",
    "gibbs": "headcount.paper._accuracy:gibbs",
    "gibbs noise": "headcount.paper._accuracy:gibbs_noise",
    "errors": "headcount.paper._accuracy:errors",
    "agreement": "headcount.paper._accuracy:agreement",
    "learning": "headcount.paper.figure1:learning",
    "seconds": "headcount.paper.figure2:seconds",
    "limit": "headcount.paper.exhibits:limit",
    "precision": "headcount.paper.exhibits:precision",
    "rank": "headcount.paper.exhibits:rank",
}


def execute(task: Mapping[str, Any], inputs: Inputs) -> Result:
    """Compute one task from its plain form and the arrays of what it needs; one BLAS thread.

    A kind that is not in `KINDS` names its own function, ``module:function``.
    """
    from threadpoolctl import threadpool_limits

    module, _, name = KINDS.get(task["kind"], task["kind"]).partition(":")
    compute: Compute = getattr(import_module(module), name)
    wall, cpu = time.perf_counter(), time.process_time()
    with threadpool_limits(limits=1):
        result = compute(
            Setting(**task["setting"]), task["data_set"], task["engine"], task["options"], inputs
        )
    spent = (
        Row("task_wall_seconds", time.perf_counter() - wall),
        Row("task_cpu_seconds", time.process_time() - cpu),
    )
    return Result((*result.rows, *spent), result.arrays)
