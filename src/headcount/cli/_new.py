"""``headcount new``: a folder to start from, with small example tables of a field and the commands that read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

_SEED = 1
"""The example tables are simulated: the same in every folder."""


@dataclass(frozen=True)
class Field:
    """A field's example: what it is about, its tables, and the options that read them, each with what it says."""

    title: str
    tables: Callable[[], Mapping[str, Any]]
    files: Sequence[str]
    options: Sequence[tuple[str, str]]
    columns: Sequence[tuple[str, str]]


def _simulated(
    cells: Mapping[str, tuple[float, float] | None],
    matrix: Sequence[Sequence[float]],
    initial: Sequence[float],
    times: Sequence[str],
    population: int,
    noise: str,
    parameter: float,
    unseen: Sequence[int],
) -> dict[str, pd.DataFrame]:
    """``counts.csv``, ``transitions.csv`` and, with places, ``cells.csv`` of a simulated population; some counts are left empty."""
    import pandas as pd

    from headcount import simulate
    from headcount.individual import MarkovChain
    from headcount.io._world import world_tables

    chain = MarkovChain(np.array(initial), np.array(matrix), times=times, cells=list(cells))
    observe = getattr(simulate, noise)(parameter)
    made = world_tables(simulate.population(chain, population, observe=observe, rng=_SEED))
    counts = made["counts.csv"].round({"count": 0}).astype({"count": int}).astype({"count": object})
    counts.loc[list(unseen), "count"] = ""
    tables = {"counts.csv": counts, "transitions.csv": made["transitions.csv"]}
    places = [place for place in cells.values() if place is not None]
    if places:
        tables["cells.csv"] = pd.DataFrame({"cell": list(cells)}).assign(
            lon=[lon for lon, _ in places], lat=[lat for _, lat in places]
        )
    return tables


def _days(first: str, count: int, step: int = 1) -> list[str]:
    return [str(np.datetime64(first) + step * k) for k in range(count)]


_birds = partial(
    _simulated,
    cells={
        "Doñana": (-6.4, 37.0),
        "Arcachon": (-1.1, 44.7),
        "Camargue": (4.6, 43.5),
        "Wadden Sea": (8.4, 53.9),
        "Öland": (16.7, 56.7),
        "Matsalu": (23.8, 58.8),
    },
    matrix=[
        [0.6, 0.25, 0.15, 0, 0, 0],
        [0.02, 0.55, 0.08, 0.35, 0, 0],
        [0, 0.1, 0.5, 0.3, 0.1, 0],
        [0, 0, 0, 0.6, 0.3, 0.1],
        [0, 0, 0, 0.05, 0.6, 0.35],
        [0, 0, 0, 0, 0.05, 0.95],
    ],
    initial=[0.7, 0.1, 0.2, 0, 0, 0],
    times=_days("2024-03-03", 10, step=7),
    population=1200,
    noise="poisson",
    parameter=0.5,
    unseen=(8, 27, 28),
)
_zones = partial(
    _simulated,
    cells={
        "Harbour": (4.48, 51.90),
        "Centre": (4.47, 51.92),
        "University": (4.52, 51.92),
        "Suburb": (4.55, 51.95),
    },
    matrix=[[0.7, 0.2, 0.05, 0.05], [0.1, 0.7, 0.1, 0.1], [0.05, 0.15, 0.7, 0.1], [0.05, 0.25, 0.15, 0.55]],
    initial=[0.15, 0.15, 0.1, 0.6],
    times=[f"2024-05-06T{hour:02}:00:00" for hour in range(6, 16)],
    population=8000,
    noise="binomial",
    parameter=0.3,
    unseen=(5,),
)
_wards = partial(
    _simulated,
    cells=dict.fromkeys(("Emergency", "General", "Intensive", "Rehabilitation", "Home")),
    matrix=[
        [0.3, 0.4, 0.1, 0, 0.2],
        [0, 0.7, 0.05, 0.1, 0.15],
        [0, 0.3, 0.65, 0.05, 0],
        [0, 0.02, 0, 0.78, 0.2],
        [0.02, 0, 0, 0, 0.98],
    ],
    initial=[0.5, 0.3, 0.1, 0.05, 0.05],
    times=_days("2024-01-01", 12),
    population=400,
    noise="gaussian",
    parameter=3.0,
    unseen=(17,),
)


_TOWN = """network town {
}
variable age {
  type discrete [ 3 ] { under18, adult, over65 };
}
variable work {
  type discrete [ 2 ] { no, yes };
}
variable car {
  type discrete [ 2 ] { no, yes };
}
probability ( age ) {
  table 0.2, 0.6, 0.2;
}
probability ( work | age ) {
  (under18) 0.95, 0.05;
  (adult) 0.25, 0.75;
  (over65) 0.9, 0.1;
}
probability ( car | work ) {
  (no) 0.6, 0.4;
  (yes) 0.25, 0.75;
}
"""


def _census() -> dict[str, Any]:
    import pandas as pd

    truth = np.array([[0.19, 0.01], [0.14, 0.46], [0.18, 0.02]])
    drives = np.array([0.4, 0.75])
    rng = np.random.default_rng(_SEED)
    by_work = np.rint(5000 * truth + rng.laplace(0, 10, truth.shape)).astype(int)
    with_car = np.stack([truth.sum(axis=0) * (1 - drives), truth.sum(axis=0) * drives], axis=1)
    by_car = np.rint(5000 * with_car + rng.laplace(0, 10, with_car.shape)).astype(int)
    ages, answers = ("under18", "adult", "over65"), ("no", "yes")
    first = [(a, w, by_work[i, j]) for i, a in enumerate(ages) for j, w in enumerate(answers)]
    second = [(w, c, by_car[i, j]) for i, w in enumerate(answers) for j, c in enumerate(answers)]
    return {
        "town.bif": _TOWN,
        "age_work.csv": pd.DataFrame(first, columns=["age", "work", "count"]),
        "work_car.csv": pd.DataFrame(second, columns=["work", "car", "count"]),
    }


_COUNT_COLUMNS = [
    (
        "counts.csv",
        "`time, cell, count`: one row per time and cell; an empty count means nobody looked, 0 is an observation",
    ),
    (
        "transitions.csv",
        "`from, to, probability`: how one individual moves in one step; every origin's probabilities sum to one",
    ),
]
_PLACE_COLUMNS = ("cells.csv", "`cell, lon, lat`: where the cells are, for the map")
_MOVES = ("--transitions transitions.csv", "how one individual moves in one step")
_PLACES = ("--cells cells.csv", "all cells and where they are")
FIELDS: Mapping[str, Field] = {
    "birds": Field(
        "Weekly counts of birds at six sites: how many were where, and how they moved",
        _birds,
        ["counts.csv"],
        [
            _MOVES,
            _PLACES,
            ("--population 1200", "how many birds there are"),
            ("--noise poisson --rate 0.5", "half of the birds present are counted, more or less"),
        ],
        [*_COUNT_COLUMNS, _PLACE_COLUMNS],
    ),
    "zones": Field(
        "Phones seen per zone and hour: how many people moved between zones",
        _zones,
        ["counts.csv"],
        [
            _MOVES,
            _PLACES,
            ("--population 8000", "how many people there are"),
            ("--noise binomial --detection 0.3", "each person is seen with probability 0.3"),
            ("--omx", "write the flows as OMX matrices for transport tools too"),
        ],
        [*_COUNT_COLUMNS, _PLACE_COLUMNS],
    ),
    "wards": Field(
        "Patients per ward and day: how many were transferred",
        _wards,
        ["counts.csv"],
        [
            _MOVES,
            ("--population 400", "how many patients there are, those at home included"),
            ("--noise gaussian --sd 3", "a day's numbers are off by about three patients"),
        ],
        _COUNT_COLUMNS,
    ),
    "census": Field(
        "Noisy tables of a census: consistent tables of all attributes, with error bars",
        _census,
        ["age_work.csv", "work_car.csv"],
        [
            ("--network town.bif", "how the attributes of one person hang together, from a survey"),
            ("--population 5000", "how many people there are"),
            ("--noise laplace --scale 10", "the noise that was added to every number"),
        ],
        [
            (
                "age_work.csv, work_car.csv",
                "one column per attribute and `count`: the tables that were released",
            ),
            ("town.bif", "the attributes, their values and conditional probabilities, in the format BIF"),
        ],
    ),
}


def write_field(field: str, folder: Path, *, force: bool) -> list[Path]:
    """Write the folder of a field, and name its files."""
    from headcount._disk import MANIFEST, filling
    from headcount.io._write import put_table

    if field not in FIELDS:
        raise ValueError(f"there is no field {field!r}: use one of {', '.join(FIELDS)}")
    chosen = FIELDS[field]
    content = dict(chosen.tables()) | {"run.sh": _commands(chosen), "README.md": _readme(chosen)}
    with filling(folder, force=force) as stage:
        for name, table in content.items():
            if isinstance(table, str):
                (stage / name).write_text(table, encoding="utf-8")
            else:
                put_table(table, stage / name)
    return [folder / name for name in (*content, MANIFEST)]


def _call(field: Field, command: str, *, extra: str = "") -> str:
    writes = {"--omx"} if command == "check" else set()
    words = [option for option, _ in field.options if option not in writes]
    return " \\\n  ".join(
        [f"headcount {command} {' '.join(field.files)}", *words, *([extra] if extra else [])]
    )


def _commands(field: Field) -> str:
    meanings = [f"#   {option:<34} {meaning}" for option, meaning in field.options]
    return "\n".join(
        [
            "#!/bin/sh",
            f"# {field.title}.",
            "# The tables here are an example. Replace them by your own, one by one; headcount check says what is wrong with them.",
            "#",
            *meanings,
            "",
            "# Is everything in the files as it should be? This runs nothing and writes nothing.",
            _call(field, "check"),
            "",
            "# Infer, write tables into the folder results, and a page with the map: results/report.html.",
            _call(field, "infer", extra="--out results --report"),
            "",
        ]
    )


def _readme(field: Field) -> str:
    rows = [f"| `{name}` | {meaning} |" for name, meaning in field.columns]
    return "\n".join(
        [
            f"# {field.title}",
            "",
            "`sh run.sh` checks the tables, infers, and writes `results/`. Everything here is a simulated example: replace the tables",
            "by your own and change the numbers in `run.sh`.",
            "",
            "| file | columns |",
            "|---|---|",
            *rows,
            "",
            "Your columns may have other names (`--column count=birds`), your numbers decimal commas and your dates any common form;",
            "what was decided about them is said. `headcount infer --help` lists all options.",
            "",
        ]
    )
