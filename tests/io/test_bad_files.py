"""Every kind of bad file is refused with file, row and remedy, all at once, and nothing is written."""

import re
from pathlib import Path

import pytest
from tests.io.small_tables import COUNTS, TRANSITIONS, write

from headcount.io import TableError, read_problem


def problems(
    folder: Path, counts: str | bytes = COUNTS, moves: str = TRANSITIONS, **options: object
) -> list[str]:
    """What is said about these tables."""
    paths = write(folder, transitions=moves)
    file = folder / "counts.csv"
    file.write_bytes(counts if isinstance(counts, bytes) else counts.encode())
    with pytest.raises(TableError) as caught:
        read_problem(file, **({"population": 60, "transitions": paths["transitions"]} | options))
    return list(caught.value.problems)


SPOILED = {
    "negative": (COUNTS.replace("1,pond,33", "1,pond,-3"), r"row 4: a count cannot be negative.*\(got -3"),
    "fraction": (COUNTS.replace("1,pond,33", "1,pond,3.5"), r"row 4: .*whole number.*rate.*\(got 3\.5\)"),
    "text": (COUNTS.replace("1,hill,25", "1,hill,many"), r"row 5: count must be a number.*\(got 'many'\)"),
    "thousands": (COUNTS.replace("1,hill,25", '1,hill,"1,025"'), r"row 5: count must be a number.*thousands"),
    "infinite": (COUNTS.replace("1,hill,25", "1,hill,inf"), r"row 5: count must be finite"),
    "duplicate": (COUNTS + "1,pond,31\n", r"rows 4, 8: this time and cell \(1, pond\) has 2 rows"),
    "unknown cell": (COUNTS + "2,lake,3\n", r"row 8: unknown cell.*'pond', 'hill'.*\(got 'lake'\)"),
    "no cell": (COUNTS + "2,,3\n", r"row 8: cell is empty"),
    "no time": (COUNTS + ",hill,3\n", r"row 8: time is empty"),
    "empty": ("", r"the file is empty"),
    "blank": ("\n \n", r"the file is empty"),
    "header only": ("time,cell,count\n", r"header and nothing below"),
    "missing column": (
        COUNTS.replace("time,cell,count", "time,cell,birds"),
        r"row 1: there is no column for count.*--column count=",
    ),
    "column twice": (
        COUNTS.replace("time,cell,count", "time,cell,cell"),
        r"row 1: the column 'cell' is there twice",
    ),
    "two candidates": (
        "time,site,zone,count\n0,pond,a,3\n",
        r"row 1: 'zone', 'site' could each be the column for cell",
    ),
    "ragged": (COUNTS.replace("1,pond,33", "1,pond,33,7"), r"rows do not fit the header.*line 4"),
    "unknown encoding": (
        COUNTS.replace("hill", "Łódź").encode("cp1250"),
        r"row 3: the byte 0xa3 is not UTF-8.*'£'.*--encoding latin-1",
    ),
    "binary": (b"\x89PNG\x00\x01\x02\x00", r"not a text table"),
    "slashes": (COUNTS.replace("\n0,", "\n03/04/2024,"), r"day and month cannot be told apart"),
    "gap": (
        COUNTS.replace("\n2,", "\n3,").replace("2,pond", "3,pond") + "4,pond,1\n",
        r"step by 1, but 1 is followed by 3.*--uneven",
    ),
    "wide": (
        "time," + ",".join(f"c{k}" for k in range(9)) + "\n0" + ",1" * 9 + "\n",
        r"must be made long first.*--wide",
    ),
}


@pytest.mark.parametrize("kind", SPOILED)
def test_bad_counts_are_named(kind: str, tmp_path: Path) -> None:
    """A table of counts that cannot be right is refused with file, row and remedy."""
    text, pattern = SPOILED[kind]
    found = problems(tmp_path, text)
    assert any(re.search(pattern, p) for p in found), "\n".join(found)
    assert all(p.startswith("counts.csv") for p in found)


MOVES = {
    "sum": (TRANSITIONS.replace("0.9", "0.8"), r"from 1 origin do not sum to 1 \('pond' 0\.9\).*--normalise"),
    "above one": (
        TRANSITIONS.replace("0.9", "9"),
        r"row 2: a probability cannot exceed 1.*--normalise.*\(got 9\.0\)",
    ),
    "negative": (TRANSITIONS.replace("0.25", "-0.25"), r"row 4: probability cannot be negative"),
    "empty value": (TRANSITIONS.replace("0.25", ""), r"row 4: probability is empty"),
    "duplicate": (
        TRANSITIONS + "pond,hill,0.1\n",
        r"rows 3, 6: this origin and destination \(pond, hill\) has 2 rows",
    ),
    "no way out": (
        "from,to,probability\npond,pond,0.5\npond,hill,0.5\n",
        r"no move from 'hill'.*staying put",
    ),
    "missing column": (TRANSITIONS.replace("to,", "end,"), r"row 1: there is no column for to .*destination"),
    "last time": (
        "time,from,to,probability\n"
        + "".join(f"{t},{m}\n" for t in range(3) for m in TRANSITIONS.splitlines()[1:]),
        r"leave at 2, the last time",
    ),
    "absent time": (
        "time,from,to,probability\n" + "".join(f"0,{m}\n" for m in TRANSITIONS.splitlines()[1:]),
        r"no moves that leave at 1",
    ),
}


@pytest.mark.parametrize("kind", MOVES)
def test_bad_transitions_are_named(kind: str, tmp_path: Path) -> None:
    """A table of transitions that cannot be right is refused with file, row and remedy."""
    text, pattern = MOVES[kind]
    found = problems(tmp_path, moves=text)
    assert any(re.search(pattern, p) for p in found), "\n".join(found)


FEATURES = "from,to,far,steep\npond,pond,0,1\npond,hill,1,2\nhill,pond,1,3\nhill,hill,0,1\n"
FURTHER = {
    "text among features": (
        {"features": FEATURES.replace("hill,1,2", "hill,wide,2")},
        r"^features\.csv, row 3: feature far must be a number.*\(got 'wide'\)",
    ),
    "two ways to read one column": (
        {"features": FEATURES.replace("hill,1,2", 'hill,"1,025",2')},
        r"^features\.csv, row 3: feature far must be a number, and '1,025' can be 1\.025 or 1025",
    ),
    "a cell twice": (
        {"cells": "cell\npond\nhill\npond\n"},
        r"^cells\.csv, rows 2, 4: this cell \(pond\) has 2 rows",
    ),
    "infinite beside normalise": (
        {"moves": TRANSITIONS.replace("0.9", "inf"), "normalise": True},
        r"^moves\.csv, row 2: probability must be finite",
    ),
    "infinite initial law": (
        {"initial": "cell,probability\npond,inf\nhill,0.5\n"},
        r"^initial\.csv, row 2: probability must be finite",
    ),
    "a weight twice": (
        {"features": FEATURES, "weights": "feature,weight\nfar,1\nsteep,2\nfar,3\n"},
        r"^weights\.csv, rows 2, 4: this feature \(far\) has 2 rows",
    ),
}


@pytest.mark.parametrize("kind", FURTHER)
def test_other_bad_tables_are_named_once(kind: str, tmp_path: Path) -> None:
    """One fault in any table is one problem, with file, row and value, and nothing that follows from it."""
    given, pattern = FURTHER[kind]
    options: dict[str, object] = {"population": 60, "initial": "uniform"}
    for name, value in given.items():
        options[name] = write(tmp_path, **{name: value})[name] if isinstance(value, str) else value
    transitions = options.pop("moves", write(tmp_path, transitions=TRANSITIONS)["transitions"])
    if "features" not in options:
        options["transitions"] = transitions
    counts = write(tmp_path, counts=COUNTS)["counts"]
    with pytest.raises(TableError) as caught:
        read_problem(counts, **options)  # type: ignore[arg-type]
    assert len(caught.value.problems) == 1, caught.value.problems
    assert re.search(pattern, caught.value.problems[0])


def test_everything_is_said_at_once(tmp_path: Path) -> None:
    """Faults of different kinds, in different files, and missing options come in one report."""
    counts = COUNTS.replace("1,pond,33", "1,pond,-3").replace("1,hill,25", "1,hill,many") + "2,pond,9\n"
    found = problems(tmp_path, counts, TRANSITIONS.replace("0.9", "x"), population=None, noise="cauchy")
    text = "\n".join(found)
    for part in (
        "counts.csv, row 5",
        "rows 6, 8",
        "transitions.csv, row 2",
        "population",
        "there is no noise 'cauchy'",
    ):
        assert part in text


def test_negative_counts_are_fine_for_measurements(tmp_path: Path) -> None:
    """Gaussian noise takes negative and fractional numbers; only counting noise refuses them."""
    paths = write(tmp_path, counts=COUNTS.replace("2,pond,30", "2,pond,-3.5"), transitions=TRANSITIONS)
    case = read_problem(
        paths["counts"],
        population=60,
        transitions=paths["transitions"],
        noise="gaussian",
        parameters={"sd": 5.0},
    )
    assert case.problem.sites[2].noise.counts.tolist() == [-3.5, 28.0]


def test_many_bad_rows_make_one_line(tmp_path: Path) -> None:
    """A hundred equal faults are one line with the first rows and a count."""
    counts = "time,cell,count\n" + "".join(f"{t},pond,-1\n{t},hill,2\n" for t in range(100))
    found = problems(tmp_path, counts)
    assert len(found) == 1
    assert "rows 2, 4, 6, 8, 10 and 95 more" in found[0]


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"transitions": None}, r"how individuals move is missing.*--transitions.*--features"),
        ({"population": None}, r"population.*missing.*come to about 58"),
        ({"noise": "binomial"}, r"binomial noise needs detection.*--detection"),
        ({"parameters": {"sd": 2.0}}, r"poisson noise takes no sd"),
        ({"parameters": {"rate": 0.0}}, r"rate must be a finite number above 0 \(got 0\.0\)"),
        ({"parameters": {"background": -1.0}}, r"background must be a finite number ≥ 0"),
        ({"parameters": {"rate": float("nan")}, "population": None}, r"rate must be a finite number above 0"),
        ({"initial": "nowhere"}, r"initial: give learned, counts, smoothed, uniform or a table"),
        ({"transitions": "none.csv"}, r"none\.csv: there is no such file"),
        (
            {"columns": {"count": "birds"}},
            r"there is no column 'birds' for count: it has 'time', 'cell', 'count'",
        ),
        ({"encoding": "utf-99"}, r"no encoding 'utf-99'"),
    ],
)
def test_bad_options_are_named(options: dict[str, object], pattern: str, tmp_path: Path) -> None:
    """What is missing or unknown among the options is said with what to give."""
    found = problems(tmp_path, **options)
    assert any(re.search(pattern, p) for p in found), "\n".join(found)


def test_the_population_is_asked_for_with_the_counts_of_full_times(tmp_path: Path) -> None:
    """A cell that was not counted at most times does not make the population smaller."""
    counts = COUNTS.replace("0,hill,20", "0,hill,").replace("1,hill,25", "1,hill,")
    (found,) = problems(tmp_path, counts, population=None)
    assert "come to about 58" in found


def test_a_cell_has_one_place(tmp_path: Path) -> None:
    """Coordinates that contradict each other are refused with their row."""
    lines = COUNTS.splitlines()
    counts = "\n".join([lines[0] + ",x,y", *(line + ",0,0" for line in lines[1:6]), lines[6] + ",5,5"]) + "\n"
    found = problems(tmp_path, counts)
    assert re.search(r"row 7: a cell has one place.*'hill'", found[0])


def test_damaged_containers_are_named(tmp_path: Path) -> None:
    """Parquet, NetCDF and OMX files that are none are refused as such."""
    for name, pattern in (
        ("a.parquet", "not a Parquet file"),
        ("a.nc", "not a NetCDF-4 file"),
        ("a.omx", "not an HDF5 file"),
    ):
        (tmp_path / name).write_bytes(b"time,cell,count\n")
        with pytest.raises(TableError, match=pattern):
            read_problem(tmp_path / name, population=3, transitions=tmp_path / name)
