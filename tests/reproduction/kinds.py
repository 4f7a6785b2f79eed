"""Small computations for the tests of the runner; workers import them by name."""

from pathlib import Path

import numpy as np
from reproduction.tasks import Result, Row


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
