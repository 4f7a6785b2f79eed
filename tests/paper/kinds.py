"""Small computations for the runner's tests; workers import them by name."""

import os
import time
from pathlib import Path

import numpy as np

from headcount.paper._task import Result, Row


def _note(options, text):
    with Path(options["log"]).open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def one(setting, data_set, engine, options, inputs):
    _note(options, f"one {data_set}")
    return Result((Row("value", float(data_set)),), {"x": np.full(3, float(data_set))})


def total(setting, data_set, engine, options, inputs):
    _note(options, f"total {data_set}")
    return Result((Row("value", float(sum(a["x"].sum() for a in inputs.values()))),))


def broken(setting, data_set, engine, options, inputs):
    _note(options, f"broken {data_set}")
    if Path(options["mended"]).exists():
        return Result((Row("value", 1.0),), {"x": np.ones(3)})
    raise ArithmeticError("no such luck")


def deadly(setting, data_set, engine, options, inputs):
    """Kill the process that computes it, the first time."""
    marker = Path(options["marker"])
    if not marker.exists():
        marker.touch()
        os._exit(3)
    return Result((Row("value", 7.0),))


def slow(setting, data_set, engine, options, inputs):
    start = time.time()
    time.sleep(0.15)
    _note(options, f"{engine} {start} {time.time()}")
    return Result((Row("value", 0.0),))
