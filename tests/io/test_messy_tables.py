"""Tables as spreadsheets write them are read as they are, and what was decided is said."""

from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest
from tests.io.small_tables import COUNTS, TRANSITIONS, write

from headcount import ProblemError, infer
from headcount.io import Case, TableError, load_result, read_counts, read_problem, write_results
from headcount.io import source as source_module
from headcount.io.columns import Reader, Style, _entry, _plain
from headcount.io.source import Findings
from headcount.io.tables import count_table, later
from headcount.learn._result import following

WEEKS = ("05.03.2023", "12.03.2023", "19.03.2023", "26.03.2023", "09.04.2023", "16.04.2023")


def counts_of(folder: Path, text: str | bytes, name: str = "counts.csv", **options: object) -> np.ndarray:
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_counts(file, **options).to_numpy()


def problem(folder: Path, text: str, **options: object) -> Case:
    paths = write(folder, counts=text, transitions=TRANSITIONS)
    return read_problem(
        paths["counts"], **({"population": 60, "transitions": paths["transitions"]} | options)
    )


def table(*values: str) -> str:
    """One cell at successive times, separated by semicolons."""
    return "time;cell;count\n" + "".join(f"{k};pond;{v}\n" for k, v in enumerate(values))


# --- numbers


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (("3,5", "12"), (3.5, 12)),
        (("0,125", "1,025"), (0.125, 1.025)),
        (("1.234,5", "2"), (1234.5, 2)),
        (("1,234.5", "1,025"), (1234.5, 1025)),
        (("1,234,567", "1,025"), (1234567, 1025)),
        (("1 234,5", "1\u202f025"), (1234.5, 1025)),
        (("1'234.5", "7"), (1234.5, 7)),
        (("1.234", "7", "2.5"), (1.234, 7, 2.5)),
        (("1.234", "7,5"), (1234, 7.5)),
        (("12 %", "7,5%"), (0.12, 0.075)),
        (("n.a.", "-"), (np.nan, np.nan)),
        (("\u22123", "+4"), (-3, 4)),
        (("1e-3", "2.5E2"), (0.001, 250)),
    ],
)
def test_numbers_are_read_as_written(
    written: tuple[str, ...], expected: tuple[float, ...], tmp_path: Path
) -> None:
    """The one style in which all numbers of a file can be read is taken."""
    found = counts_of(tmp_path, table(*written))[:, 0]
    assert found == pytest.approx(np.array(expected), nan_ok=True, rel=1e-14)


def test_what_was_decided_is_said(tmp_path: Path) -> None:
    """Separators and marks for missing are noted with an example."""
    text = "time;cell;count;lon;lat\n0;pond;1.040;4,35;50,8\n0;hill;20;4,4;50,9\n1;pond;n.a.;4,35;50,8\n1;hill;-;;\n"
    made = problem(tmp_path, text)
    notes = "\n".join(made.notes)
    assert "',' is the decimal separator ('4,35' is read as 4.35)" in notes
    assert "'.' separates thousands ('1.040' is read as 1040)" in notes
    assert "'n.a.', '-' in count (2 rows) is read as missing" in notes
    cube = made.problem.observations[0].counts
    assert cube.to_numpy()[0].tolist() == [1040, 20]
    assert np.isnan(cube.to_numpy()[1]).all()
    assert cube["lon"].to_numpy().tolist() == [4.35, 4.4]


def test_columns_that_place_nothing_are_left_alone(tmp_path: Path) -> None:
    """One coordinate without the other, and x and y beside lon and lat, may hold anything: they are not read."""
    text = "time,cell,count,long,row,x,y\n0,pond,40,no,left,?!,here\n0,hill,20,no,left,,\n"
    one = read_counts(write(tmp_path, counts=text.replace(",y\n", ",z\n").replace("row", "r"))["counts"])
    assert set(one.coords) == {"time", "cell"}
    both = text.replace("long,row", "lon,lat").replace("no,left", "8,47")
    cube = read_counts(write(tmp_path, counts=both)["counts"])
    assert set(cube.coords) == {"time", "cell", "lon", "lat"}
    with pytest.raises(TableError, match="x must be a number"):
        read_counts(write(tmp_path, counts=text)["counts"])


def test_two_readings_are_refused_until_one_is_chosen(tmp_path: Path) -> None:
    """A lone 1,025 is 1025 or 1.025: the report says both, and either option decides."""
    text = table("1,025", "12")
    with pytest.raises(
        TableError,
        match=r"row 2: count must be a number, and '1,025' can be 1\.025 or 1025.*--thousands ,.*--decimal ,",
    ):
        counts_of(tmp_path, text)
    assert counts_of(tmp_path, text, thousands=",")[0, 0] == 1025
    assert counts_of(tmp_path, text, decimal=",")[0, 0] == 1.025
    assert counts_of(tmp_path, text, decimal={"counts.csv": ","})[0, 0] == 1.025
    beside_whole = table("1.025", "12")
    with pytest.raises(
        TableError, match=r"row 2: count must be a number, and '1\.025' can be 1\.025 or 1025"
    ) as info:
        problem(tmp_path, beside_whole)
    assert "whole number" not in str(info.value)
    assert counts_of(tmp_path, beside_whole, thousands=".")[0, 0] == 1025
    assert counts_of(tmp_path, beside_whole, decimal=".")[0, 0] == 1.025
    assert counts_of(tmp_path, table("1.25", "12"))[0, 0] == 1.25
    with pytest.raises(TableError, match=r"decimal: give .\.. or .,., got .;."):
        counts_of(tmp_path, text, decimal=";")


def test_each_column_by_itself_where_styles_are_mixed(tmp_path: Path) -> None:
    """Coordinates with points beside counts with commas: each column is read in its own style."""
    text = "time;cell;count;x;y\n0;pond;3,5;4.35;50.85\n1;pond;4,5;4.35;50.85\n"
    assert counts_of(tmp_path, text)[:, 0].tolist() == [3.5, 4.5]


def test_missing_can_be_any_text_or_number(tmp_path: Path) -> None:
    """--missing adds texts and numbers that stand for "not observed"."""
    found = counts_of(tmp_path, table("-999", "12", "keine"), missing=["-999", "keine"])[:, 0]
    assert found == pytest.approx(np.array([np.nan, 12, np.nan]), nan_ok=True)
    frame = pd.DataFrame({"time": [0, 1], "cell": "pond", "count": [-999.0, 3.0]})
    assert np.isnan(read_counts(frame, missing=["-999"]).to_numpy()[0, 0])
    with pytest.raises(TableError, match=r"row 4: count must be a number.*--missing.*'keine'"):
        counts_of(tmp_path, table("-999", "12", "keine"))


def test_mixed_per_cent_is_refused(tmp_path: Path) -> None:
    """A column with % in some rows only is refused."""
    with pytest.raises(TableError, match=r"row 3: count has a % sign in other rows"):
        counts_of(tmp_path, table("12 %", "0.5"))


# --- dates


def times_of(folder: Path, *times: str, **options: object) -> list[object]:
    text = "time;cell;count\n" + "".join(f"{t};pond;{k}\n" for k, t in enumerate(times))
    (folder / "counts.csv").write_text(text)
    return read_counts(folder / "counts.csv", **options)["time"].to_index().tolist()


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (("05.03.2023", "12.03.2023"), ("2023-03-05", "2023-03-12")),
        (("12/03/2023", "19/03/2023"), ("2023-03-12", "2023-03-19")),
        (("3/12/2023", "3/19/2023"), ("2023-03-12", "2023-03-19")),
        (("5.3.23", "12.3.23"), ("2023-03-05", "2023-03-12")),
        (("2023/3/5", "2023/3/12"), ("2023-03-05", "2023-03-12")),
        (("20230305", "20230312"), ("2023-03-05", "2023-03-12")),
        (("5 March 2023", "5. April 2023"), ("2023-03-05", "2023-04-05")),
        (("12 févr. 2023", "12 mars 2023"), ("2023-02-12", "2023-03-12")),
        (("Mar-23", "Apr-23"), ("2023-03-01", "2023-04-01")),
        (("März 2023", "Mai 2023"), ("2023-03-01", "2023-05-01")),
        (("2023-W09", "2023-W10"), ("2023-02-27", "2023-03-06")),
        (("3/5/2023 2:00 PM", "3/15/2023 2:00 PM"), ("2023-03-05T14", "2023-03-15T14")),
        (
            ("2023-03-05T10:00+01:00", "2023-03-05T11:00+01:00"),
            ("2023-03-05T10+01:00", "2023-03-05T11+01:00"),
        ),
        (
            ("2023-03-26T01:00+01:00", "2023-03-26T03:00+02:00"),
            ("2023-03-26T01+01:00", "2023-03-26T03+02:00"),
        ),
    ],
)
def test_dates_are_read_as_written(
    written: tuple[str, ...], expected: tuple[str, ...], tmp_path: Path
) -> None:
    """Dates in any common form become time stamps; time zones are kept."""
    assert times_of(tmp_path, *written) == [pd.Timestamp(e) for e in expected]


def test_times_with_a_zone_come_back_equal(tmp_path: Path) -> None:
    """Summer and winter time, the repeated hour and a table in UTC are one series of moments; what is written reads back equal."""
    hours = pd.date_range("2024-10-27 00:00", "2024-10-27 05:00", freq="h", tz="Europe/Berlin")
    rows = [f"{t.isoformat()},{c},{n}" for t in hours for c, n in (("pond", 30), ("hill", 31))]
    flows = "time,origin,dest,count\n2024-10-27T01:00:00Z,pond,hill,3\n"
    paths = write(
        tmp_path, counts="time,cell,count\n" + "\n".join(rows), transitions=TRANSITIONS, flows=flows
    )
    case = read_problem(
        paths["counts"],
        population=61,
        transitions=paths["transitions"],
        flows=paths["flows"],
        initial="uniform",
    )
    assert list(case.problem.model.times) == list(hours)
    assert [str(t) for t in case.problem.model.times] == [str(t) for t in hours]
    assert any(site.scope == (hours[3], hours[4]) for site in case.problem.sites)
    write_results(infer(case.problem), tmp_path / "out")
    for name in ("nodes.csv", "flows.csv"):
        written = pd.read_csv(tmp_path / "out" / name)["time"].unique().tolist()
        assert written == [t.isoformat() for t in hours[: len(written)]]
    again = read_counts(tmp_path / "out" / "nodes.csv", columns={"count": "observed"})
    assert [pd.Timestamp(t) for t in again["time"].values] == list(hours)
    missing = [row for row in rows if "T02:00:00+01:00" not in row and "T03:" not in row]
    gaps = write(tmp_path, gaps="time,cell,count\n" + "\n".join(missing))["gaps"]
    filled = [pd.Timestamp(t) for t in read_counts(gaps)["time"].values]
    assert filled == list(hours)  # nobody looked at two of them
    assert later("2024-10-27T02:00:00+01:00", "2024-10-27T02:00:00+02:00")
    ahead = following(load_result(tmp_path / "out").times, 2)
    assert ahead == ("2024-10-27T06:00:00+01:00", "2024-10-27T07:00:00+01:00")


def test_day_and_month_are_decided_from_the_whole_column(tmp_path: Path) -> None:
    """One number above 12 decides for all rows; without one the caller must, and contradictions are refused."""
    assert times_of(tmp_path, "05/03/2023", "12/03/2023", "19/03/2023")[0] == pd.Timestamp("2023-03-05")
    assert times_of(tmp_path, "03/05/2023", "03/12/2023", "03/19/2023")[0] == pd.Timestamp("2023-03-05")
    with pytest.raises(
        TableError, match=r"cannot be told apart, '05/03/2023' is 2023-03-05 or 2023-05-03.*--dates day-first"
    ):
        times_of(tmp_path, "05/03/2023", "12/03/2023")
    assert times_of(tmp_path, "05/03/2023", "12/03/2023", dates="month-first")[0] == pd.Timestamp(
        "2023-05-03"
    )
    with pytest.raises(TableError, match=r"'19/03/2023' has the day first, '03/26/2023' the month"):
        times_of(tmp_path, "05/03/2023", "19/03/2023", "03/26/2023")
    with pytest.raises(TableError, match="no such date"):
        times_of(tmp_path, "31.04.2023", "01.05.2023")
    with pytest.raises(TableError, match="give day-first or month-first"):
        times_of(tmp_path, "05/03/2023", dates="american")


def test_names_of_months_follow_the_calendar(tmp_path: Path) -> None:
    """Months without years are taken in the order of the calendar, or of a winter as it appears."""
    assert times_of(tmp_path, "March", "January", "February") == ["January", "February", "March"]
    assert times_of(tmp_path, "Nov", "Dec", "Jan") == ["Nov", "Dec", "Jan"]
    with pytest.raises(TableError, match="février is followed by mai"):
        times_of(tmp_path, "mai", "janvier", "février")


def test_a_missing_week_is_one_at_which_nobody_looked(tmp_path: Path) -> None:
    """Where the step is clear, missing times are added and said; otherwise they are refused as before."""
    rows = "".join(f"{week};{cell};{20 + k}\n" for k, week in enumerate(WEEKS) for cell in ("pond", "hill"))
    made = problem(tmp_path, "date;site;count\n" + rows)
    assert made.problem.model.variables[4] == pd.Timestamp("2023-04-02")
    assert len(made.problem.model.variables) == 7
    assert any("1 of the times are missing (2023-04-02)" in note for note in made.notes)
    assert np.isnan(made.problem.observations[0].counts.to_numpy()[4]).all()
    assert len(problem(tmp_path, "date;site;count\n" + rows, uneven=True).problem.model.variables) == 6
    assert times_of(tmp_path, "1", "2", "3", "4", "6") == [1, 2, 3, 4, 5, 6]
    months = ["2023-01-31", "2023-02-28", "2023-03-31", "2023-04-30", "2023-06-30"]
    assert times_of(tmp_path, *months)[4] == pd.Timestamp("2023-05-31")
    with pytest.raises(TableError, match="1 is followed by 3"):
        times_of(tmp_path, "0", "1", "3")
    with pytest.raises(TableError, match="not evenly spaced"):
        times_of(tmp_path, "2023-01-01", "2023-01-08", "2023-01-15", "2023-01-22", "2023-01-30")


# --- files


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252", "latin-1"])
def test_encodings_are_found_out_for_each_file(encoding: str, tmp_path: Path) -> None:
    """Two files in two encodings, and accents typed in two ways, name the same cells."""
    (tmp_path / "counts.csv").write_bytes(COUNTS.replace("hill", "Genève").encode(encoding))
    moves = TRANSITIONS.replace("hill", "Gene\u0300ve")
    (tmp_path / "moves.csv").write_text(moves, encoding="utf-8")
    made = read_problem(tmp_path / "counts.csv", population=60, transitions=tmp_path / "moves.csv")
    assert made.problem.model.cells == ("pond", "Genève")
    assert any("'Genève'" in n and "Windows-1252" in n for n in made.notes) == (
        encoding in {"cp1252", "latin-1"}
    )


def test_other_code_pages_are_asked_for(tmp_path: Path) -> None:
    """Bytes that make no words in Windows-1252 are refused; the encoding can be given by file."""
    for word, encoding in (("Łódź", "cp1250"), ("Москва", "cp1251"), ("Αθήνα", "cp1253")):
        text = COUNTS.replace("hill", word).encode(encoding)
        with pytest.raises(TableError, match="is not UTF-8"):
            counts_of(tmp_path, text)
        (tmp_path / "counts.csv").write_bytes(text)
        cube = read_counts(tmp_path / "counts.csv", encoding={"counts.csv": encoding})
        assert word in cube["cell"].to_numpy().tolist()


def test_lines_above_the_header(tmp_path: Path) -> None:
    """A line sep=;, titles, empty lines and empty columns do not disturb, and rows keep their numbers."""
    expected = counts_of(tmp_path, COUNTS)
    semicolons = COUNTS.replace(",", ";")
    padded = "".join(f"{line};;\n" for line in semicolons.splitlines())
    for above, text in (
        ("sep=;\n", semicolons),
        ("Zählung 2023\n\n", semicolons),
        ("Zählung 2023;;;;\n;;;;\n", padded),
        ("Zählung 2023, Stand März\n", semicolons),
        ("Zählung 2023, Stand März;;\nalle Gebiete, ohne Sylt\n\n", semicolons),
        ("Zählung\nalle Gebiete\n", COUNTS),
        ('"Zählung 2023, Stand März"\n', COUNTS),
        ("sep=\t\r\n", COUNTS.replace(",", "\t")),
    ):
        assert np.array_equal(counts_of(tmp_path, above + text), expected)
        with pytest.raises(TableError, match=f"row {len(above.splitlines()) + 2}: count must be a number"):
            counts_of(tmp_path, (above + text).replace("40", "many"))


def test_decimal_commas_are_no_header(tmp_path: Path) -> None:
    """A table whose numbers have commas keeps its header, with a title above it and without."""
    text = "time;cell;count;sd\n0;a;1,5;2,5\n0;b;2,5;3,5\n"
    expected = counts_of(tmp_path, text)
    assert expected.shape == (1, 2)
    assert np.array_equal(counts_of(tmp_path, "Zählung, zweite\n" + text), expected)
    assert read_counts(pd.DataFrame({"time": [0], "cell": ["a"], "count": [1]})).shape == (1, 1)


def test_excel(tmp_path: Path) -> None:
    """A workbook is read with its numbers, dates and text numbers, under a title, from the named sheet."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Zählung"
    sheet.append(["Zählung 2023"])
    sheet.append([])
    sheet.append(["Datum", "Ort", "Anzahl", None])
    for k, day in enumerate(("2023-03-05", "2023-03-12", "2023-03-19")):
        sheet.append([pd.Timestamp(day).to_pydatetime(), "pond", 40 - k])
        sheet.append([pd.Timestamp(day).to_pydatetime(), "hill", "n.a." if k else "1.020"])
    moves = book.create_sheet("Wege")
    for row in (("von", "nach", "share"), ("pond", "pond", 0.9), ("pond", "hill", 0.1), ("hill", "hill", 1)):
        moves.append(row)
    book.save(tmp_path / "book.xlsx")
    made = read_problem(
        tmp_path / "book.xlsx", population=1060, transitions=tmp_path / "book.xlsx#Wege", thousands="."
    )
    assert made.problem.model.variables[1] == pd.Timestamp("2023-03-12")
    assert made.problem.observations[0].counts.to_numpy()[0].tolist() == [40, 1020]
    assert any("the sheet 'Zählung' is read; for another one write book.xlsx#Wege" in n for n in made.notes)
    with pytest.raises(TableError, match=r"no sheet 'Moves' with entries.*'Zählung', 'Wege'"):
        read_counts(tmp_path / "book.xlsx#Moves")
    (tmp_path / "none.xlsx").write_text("time,cell\n")
    with pytest.raises(TableError, match=r"not an Excel file of the kind \.xlsx"):
        read_counts(tmp_path / "none.xlsx")
    (tmp_path / "book.csv").write_bytes((tmp_path / "book.xlsx").read_bytes())
    with pytest.raises(TableError, match="this is an Excel or zip file"):
        read_counts(tmp_path / "book.csv")


# --- wide tables


@pytest.mark.parametrize(
    "text",
    [
        "time,pond,hill\n0,40,20\n1,33,25\n2,30,28\n",
        "cell,0,1,2\npond,40,33,30\nhill,20,25,28\n",
        ",0,1,2\npond,40,33,30\nhill,20,25,28\n",
        ";pond;hill\n0;40;20\n1;33;25\n2;30;28\n",
    ],
)
def test_wide_counts_are_long_counts(text: str, tmp_path: Path) -> None:
    """One column per cell, or one per time, says the same as one row per time and cell."""
    made = problem(tmp_path, text, wide=True)
    assert made.problem.observations[0].counts.to_numpy().tolist() == [[40, 20], [33, 25], [30, 28]]
    assert made.problem.model.variables == (0, 1, 2)


def test_wide_tables_with_dates_places_and_matrices(tmp_path: Path) -> None:
    """One column per date beside coordinates, a matrix of transitions with empty entries, and a frame with dates as columns."""
    text = "Ort;lon;lat;05.03.2023;12.03.2023\npond;4,35;50,8;40;n.a.\nhill;4,4;50,9;20;25\n"
    paths = write(tmp_path, counts=text, moves="von;pond;hill\npond;0,9;0,1\nhill;;1\n")
    made = read_problem(paths["counts"], population=60, transitions=paths["moves"], wide=True)
    cube = made.problem.observations[0].counts
    assert cube["lat"].to_numpy().tolist() == [50.8, 50.9]
    assert made.problem.model.variables == (pd.Timestamp("2023-03-05"), pd.Timestamp("2023-03-12"))
    assert made.problem.model.transitions[0].tolist() == [[0.9, 0.1], [0, 1]]
    frame = pd.DataFrame({"cell": ["pond"], pd.Timestamp("2023-03-05"): [3], pd.Timestamp("2023-03-12"): [4]})
    assert read_counts(frame, wide=True).to_numpy().tolist() == [[3], [4]]
    with pytest.raises(TableError, match=r"row 2: count must be a number.*'many'"):
        counts_of(tmp_path, "time,pond,hill\n0,40,many\n", wide=True)
    # Another file may be the wide one.
    assert counts_of(tmp_path, COUNTS, wide=True).tolist() == counts_of(tmp_path, COUNTS).tolist()


# --- everything at once


def test_one_report_for_every_stage(tmp_path: Path) -> None:
    """Dates, uneven times, empty coordinates, unknown cells, moves and the initial law are all in one report."""
    text = (
        "date;site;count;lon;lat\n03/04/2023;pond;40;4,35;50,8\n03/04/2023;hill;;;\n04/04/2023;pond;3,5;4,35;50,8\n"
        "09/04/2023;lake;7;4,4;50,9\n"
    )
    paths = write(tmp_path, counts=text, transitions=TRANSITIONS.replace("0.9", "0.8"))
    with pytest.raises(TableError) as caught:
        read_problem(paths["counts"], population=None, transitions=paths["transitions"], initial="counts")
    report = "\n".join(caught.value.problems)
    for part in (
        "day and month cannot be told apart",
        "not evenly spaced",
        "row 3: lon or lat is empty",
        "row 4: a count must be a whole number",
        "row 5: unknown cell",
        "the initial law cannot be read off the counts",
        "do not sum to 1",
        "population",
    ):
        assert part in report


# --- one round, and names of columns


def test_the_problems_own_faults_are_in_the_same_report(tmp_path: Path) -> None:
    """Faults of the tables and of what they say together are said at once, and each of them once."""
    paths = write(tmp_path, counts=COUNTS.replace("33", "-3"), transitions=TRANSITIONS.replace("0.9", "0.8"))
    with pytest.raises(TableError) as caught:
        read_problem(paths["counts"], transitions=paths["transitions"], population=-5)
    told = caught.value.problems
    assert len(told) == 3
    for words in ("cannot be negative", "do not sum to 1", "population"):
        assert sum(words in text for text in told) == 1
    with pytest.raises(ProblemError) as alone:
        problem(tmp_path, COUNTS, population=-5)
    assert len(alone.value.problems) == 1


def test_german_columns_are_found(tmp_path: Path) -> None:
    """Länge, Breite and Anteil are lon, lat and probability, with and without their accents."""
    text = "Datum;Ort;Anzahl;Länge;Breite\n2024-05-01;Teich;40;8,5;47,1\n2024-05-02;Teich;33;8,5;47,1\n"
    paths = write(tmp_path, counts=text, transitions="von;nach;Anteil\nTeich;Teich;1\n")
    seen = read_problem(paths["counts"], transitions=paths["transitions"], population=40)
    cube = seen.problem.observations[0].counts
    assert (float(cube["lon"][0]), float(cube["lat"][0])) == (8.5, 47.1)
    written = text.replace("Länge", "laengengrad").replace("Breite", "BREITENGRAD")
    assert set(read_counts(write(tmp_path, counts=written)["counts"]).coords) == {
        "time",
        "cell",
        "lon",
        "lat",
    }


def test_a_named_column_need_not_be_in_every_file(tmp_path: Path) -> None:
    """The caller's name for cell holds for the counts; a file that lacks it is read by the usual names. A typo is still refused."""
    places = "cell,x,y\npond,0,0\nhill,1,0\n"
    text = COUNTS.replace("cell", "where_seen")
    paths = write(tmp_path, counts=text, transitions=TRANSITIONS, cells=places)
    given = {"transitions": paths["transitions"], "cells": paths["cells"], "population": 60}
    case = read_problem(paths["counts"], columns={"cell": "where_seen"}, **given)
    assert list(case.problem.observations[0].counts["x"]) == [0.0, 1.0]
    with pytest.raises(TableError, match="there is no column 'where_sen' for cell"):
        read_problem(paths["counts"], columns={"cell": "where_sen"}, **given)


def test_numbers_read_at_once_are_those_read_one_by_one() -> None:
    """Plain numbers have the same bits and kind either way; stand-ins for missing, spaces, signs and words are left to the careful way."""
    rng = np.random.default_rng(0)
    texts = [repr(x) for x in rng.lognormal(0, 30, 500).tolist()] + [
        "7",
        "-3",
        "+2.50",
        "1E5",
        "1e400",
        "007",
    ]
    odd = ["-999", "9E9", " 4", "5 %", "1,5", "n/a", ".5", "5.", "١", "", "-"]
    missing = frozenset({"-999", "9e9"})
    plain = _plain(pd.Series([*texts, *odd]), missing)
    assert plain[: len(texts)].all()
    assert not plain[len(texts) :].any()
    at_once = np.array(texts, dtype="U").astype(float)
    one_by_one = [_entry(text, Style(), missing) for text in texts]
    np.testing.assert_array_equal(at_once, [value for value, _ in one_by_one])
    assert {kind for _, kind in one_by_one} == {"number"}


def test_large_tables_are_read_as_small_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns read as codes give the same labels (01 stays 01), numbers, notes and faults as columns read as texts."""
    rows = [
        f"0{c};{d:02}.03.2024;{n}"
        for c in (1, 2, 3)
        for d, n in ((3, "4"), (10, "n.a."), (17, "ca. 12"), (24, "1.050"))
    ]
    good = "# from the logger\nOrt;Datum;Anzahl\n" + "\n".join(rows)
    bad = good + "\n01;03.03.2024;7\n\n02;;5\n03;31.03.2024;many"
    said = []
    for threshold in (source_module.LARGE_TEXT, 0):
        monkeypatch.setattr(source_module, "LARGE_TEXT", threshold)
        for name, text in (("good", good), ("bad", bad)):
            path = write(tmp_path, **{name: text})[name]
            reader = Reader(Findings(), thousands=".")
            table = count_table(path, reader, whole=True)
            assert table is not None
            values = {role: table[role].tolist() for role in ("time", "cell")}
            counts = np.nan_to_num(table["count"], nan=-1).tolist()
            said.append(
                (values, counts, table.distinct("cell"), reader.findings.lines(), reader.findings.notes)
            )
    assert said[:2] == said[2:]
    assert said[0][2] == ["01", "02", "03"]
    assert len(said[1][3]) >= 3


@pytest.mark.parametrize(
    "text",
    [
        'time, cell, count\n0, a, 5\n0, "b, c", 7\n1, a, 2\n1, "b, c", 9\n',  # spaces before texts that are quoted
        "time,cell,count\n0,1,5\n0,01,7\n1,1,\n1,01,9\n",  # labels that are numbers keep their zeros; a count is empty
        "time,cell,count\n0,a,1.025\n0,b,2.500\n1,a,3.000\n1,b,4\n",  # decimals, none of which is a thousand
        "time;cell;count;x;y\n0;a;1.025;0,5;1\n0;b;2.500;1,5;1\n1;a;3.000;0,5;1\n1;b;4;1,5;1\n",  # thousands, as x shows
        "time,cell,count\n0,a,true\n0,b,false\n1,a,true\n1,b,true\n",
        "time,cell,count\n0,a,-999\n0,b,3\n1,a,4\n1,b,5\n",
    ],
)
def test_numbers_of_large_tables_are_read_as_those_of_small_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Whole numbers that are read without their texts are the same numbers, and no label and no style of numbers is lost by it."""
    said = []
    for threshold in (source_module.LARGE_TEXT, 0):
        monkeypatch.setattr(source_module, "LARGE_TEXT", threshold)
        reader = Reader(Findings(), missing=["-999"])
        table = count_table(write(tmp_path, counts=text)["counts"], reader)
        assert table is not None
        numbers = np.nan_to_num(table["count"], nan=-1).tolist()
        said.append((table["cell"].tolist(), numbers, reader.findings.lines(), reader.findings.notes))
    assert said[0] == said[1]
