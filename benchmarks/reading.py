"""Claim: a table of counts of 200 MB is read in three times what pandas takes.

One row per time and cell, hours as text and cells by name, as loggers write them. pandas gives columns of texts and numbers; our reader
gives checked labels, dates and counts without repeats; and `read_problem` a problem of 20 000 times whose counts are checked against the
model. All read the same file, in turn, each in a fresh process after a small file; what counts is the median over the turns of processor
time, since other work on the machine makes wall times longer.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks._measure import in_child, peak_memory
from benchmarks._report import Check, Report, Table
from headcount.io import read_problem
from headcount.io.columns import Reader
from headcount.io.source import Findings
from headcount.io.tables import count_table

READERS = ("pandas", "table", "problem")

CELLS = 400
TIMES = 20_000
TURNS = 5
MOST = 3.0
"""Times pandas' processor time, of reading a table."""


def run(*, quick: bool) -> Report:
    times, turns = (TIMES // 20, 3) if quick else (TIMES, TURNS)
    with tempfile.TemporaryDirectory() as folder:
        counts, moves = _written(Path(folder), times)
        few, _ = _written(Path(folder) / "few", 3)
        size = counts.stat().st_size / 1e6
        found: dict[str, list[dict[str, float]]] = {reader: [] for reader in READERS}
        for _ in range(turns):
            for reader, seen in found.items():
                seen.append(in_child("benchmarks.reading", (reader, few, counts, moves)))
    rows = [
        [name, *(float(np.median([turn[what] for turn in seen])) for what in ("processor", "wall", "memory"))]
        for name, seen in found.items()
    ]

    def over_pandas(reader: str, what: str) -> list[float]:
        return [
            ours[what] / theirs[what] for ours, theirs in zip(found[reader], found["pandas"], strict=True)
        ]

    ratios = {
        f"{reader}, {what}": over_pandas(reader, what)
        for reader in READERS[1:]
        for what in ("processor", "wall")
    }
    medians = {name: float(np.median(values)) for name, values in ratios.items()}
    return Report(
        "reading",
        f"A CSV file of {size:.0f} MB ({times * CELLS:,} rows), against pandas.read_csv of the same file.",
        checks=[
            Check(
                "a checked table: processor time over pandas'",
                medians["table, processor"],
                at_most=MOST,
                unit="times",
            ),
            Check("a checked table: wall time over pandas'", medians["table, wall"], unit="times"),
            Check("a problem: processor time over pandas'", medians["problem, processor"], unit="times"),
            Check("a problem: wall time over pandas'", medians["problem, wall"], unit="times"),
        ],
        tables=[
            Table("Medians over the turns", ["reader", "processor s", "wall s", "peak memory GiB"], rows),
            Table(
                "Times pandas, every turn",
                ["turn", *ratios],
                [[k + 1, *turn] for k, turn in enumerate(zip(*ratios.values(), strict=True))],
            ),
        ],
        seeds=[1],
    )


def _written(folder: Path, times: int) -> tuple[Path, Path]:
    """Counts by hour and cell, and a table of moves."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(1)
    cells = [f"site {k:03d}" for k in range(CELLS)]
    hours = np.datetime_as_string(np.datetime64("2000-01-01T00") + np.arange(times), unit="m").tolist()
    counts, moves = folder / "counts.csv", folder / "moves.csv"
    with counts.open("w", encoding="utf-8") as file:
        file.write("time,cell,count\n")
        for hour in hours:
            numbers = rng.poisson(50.0, CELLS).tolist()
            file.writelines(f"{hour},{cell},{n}\n" for cell, n in zip(cells, numbers, strict=True))
    with moves.open("w", encoding="utf-8") as file:
        file.write("from,to,probability\n")
        for k, cell in enumerate(cells):
            file.write(f"{cell},{cell},0.5\n{cell},{cells[(k + 1) % CELLS]},0.5\n")
    return counts, moves


def _read(reader: str, counts: str, moves: str) -> int:
    """How many counts a reader found."""
    if reader == "pandas":
        return len(pd.read_csv(counts))
    if reader == "table":
        read = count_table(counts, Reader(Findings()), whole=True)
        return 0 if read is None else len(read["count"])
    case = read_problem(counts, population=50 * CELLS, transitions=moves, initial="uniform")
    return sum(map(len, case.problem.sites))


def _measured(reader: str, few: str, counts: str, moves: str) -> dict[str, float]:
    """Processor and wall seconds, and the peak of memory in GiB, of one reader that has read a small file before."""
    _read(reader, few, moves)
    wall, processor = time.perf_counter(), time.process_time()
    rows = _read(reader, counts, moves)
    spent = time.process_time() - processor, time.perf_counter() - wall
    if rows == 0 or rows % CELLS:
        raise AssertionError(f"{reader} read {rows} rows")
    return {"processor": spent[0], "wall": spent[1], "memory": peak_memory()}


if __name__ == "__main__":
    print(json.dumps(_measured(*sys.argv[1:])))
