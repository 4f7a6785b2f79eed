"""What a new user meets: messy files to a map with one command, templates, a check without a run, quiet and JSON output."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.cli.test_commands import run, small  # noqa: F401
from tests.io.small_tables import COUNTS, TRANSITIONS, write

from headcount.io import load_result

COUNTED = "sep=;\r\nDatum;Ort;Anzahl;lon;lat\r\n" + "".join(
    f"{day};{place};{count};{where}\r\n"
    for day, counts in (
        ("05.03.2023", ("1.040", "320", "n.a.")),
        ("12.03.2023", ("810", "410", "150")),
        ("19.03.2023", ("640", "-", "260")),
        ("26.03.2023", ("500", "520", "330")),
        ("09.04.2023", ("310", "560", "480")),
        ("16.04.2023", ("260", "530", "560")),
    )
    for place, count, where in zip(
        ("Genève", "Zürich", "Bellinzona"), counts, ("6,14;46,20", "8,54;47,37", "9,02;46,19"), strict=True
    )
)
MOVED = (
    "von;nach;Wahrscheinlichkeit\r\nGenève;Genève;0,75\r\nGenève;Zürich;0,20\r\nGenève;Bellinzona;0,05\r\n"
    "Zürich;Zürich;0,80\r\nZürich;Bellinzona;0,15\r\nZürich;Genève;0,05\r\nBellinzona;Bellinzona;1,00\r\n"
)


def test_two_messy_files_to_a_map_with_one_command(tmp_path: Path) -> None:
    """Semicolons, decimal commas, thousands, dates, a missing week, accents in two encodings: a page with a map, and notes."""
    (tmp_path / "zählung.csv").write_bytes(COUNTED.encode("cp1252"))
    (tmp_path / "wege.csv").write_bytes(MOVED.encode("utf-16"))
    words = [tmp_path / "zählung.csv", "--transitions", tmp_path / "wege.csv", "--population", 1400]
    code, said = run("infer", *words, "--out", tmp_path / "out", "--report")
    assert code == 0, said
    for part in (
        "Windows-1252",
        "',' is the decimal separator",
        "'.' separates thousands ('1.040' is read as 1040)",
        "dates have the day first",
        "1 of the times are missing (2023-04-02)",
        "'n.a.', '-' in count (2 rows) is read as missing",
        "report.html",
    ):
        assert part in said
    result = load_result(tmp_path / "out")
    assert len(result.times) == 7
    assert result.cells == ["Genève", "Zürich", "Bellinzona"]
    assert result.geographic
    assert "Genève" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    (tmp_path / "out" / "report.html").write_text("mine")
    code, said = run("infer", *words, "--out", tmp_path / "out", "--report")
    assert code == 2
    assert "headcount did not write this file" in said


def test_options_say_how_files_are_written(tmp_path: Path) -> None:
    """--decimal, --thousands, --missing, --dates, --encoding and --wide, for all files or for one."""
    paths = write(
        tmp_path,
        counts="cell;03/04/2023;10/04/2023\npond;1.040;weg\nhill;20;30\n",
        moves="from;to;probability\npond;pond;1,000\nhill;hill;1,000\n",
    )
    words = ["check", paths["counts"], "--transitions", paths["moves"], "--population", 1060, "--wide"]
    code, said = run(*words)
    assert code == 2
    assert "day and month cannot be told apart" in said
    assert "--missing" in said
    assert "'1,000' can be 1 or 1000" in said
    code, said = run(
        *words,
        "--dates",
        "day-first",
        "--missing",
        "weg",
        "--thousands",
        "counts.csv=.",
        "--decimal",
        "moves.csv=,",
    )
    assert code == 0, said
    assert "nothing is wrong" in said
    assert run(*words, "--decimal", ",", "--decimal", ".")[0] == 2


@pytest.mark.parametrize("field", ["birds", "census", "od", "wards", "zones"])
def test_new_folders_run_as_they_are(field: str, tmp_path: Path) -> None:
    """The commands of every template succeed on its own tables, and the data agree with the model."""
    code, said = run("new", field, tmp_path / field)
    assert code == 0, said
    script = (tmp_path / field / "run.sh").read_text().replace("\\\n", " ")
    lines = [shlex.split(line) for line in script.splitlines() if line.startswith("headcount ")]
    assert [words[1] for words in lines] == ["check", "infer"]
    for words in lines:
        files = [
            str(tmp_path / field / w) if ("." in w and not w[0].isdigit()) or w == "results" else w
            for w in words[1:]
        ]
        code, said = run(*[w for w in files if w != "--report"])
        assert code == 0, said
    assert "The data agree with the model" in said
    assert run("new", field, tmp_path / field)[0] == 0
    (tmp_path / field / "run.sh").write_text("mine")
    assert run("new", field, tmp_path / field)[0] == 2
    assert run("new", "fish", tmp_path / "fish")[0] == 2


def test_check_says_what_infer_would(tmp_path: Path) -> None:
    """The same problems as infer, the same exit code, and nothing is written."""
    paths = write(tmp_path, counts=COUNTS.replace("33", "-3"), transitions=TRANSITIONS)
    words = [paths["counts"], "--transitions", paths["transitions"], "--population", 60]
    checked, inferred = run("check", *words), run("infer", *words, "--out", tmp_path / "out")
    assert checked == inferred
    assert checked[0] == 2
    assert not (tmp_path / "out").exists()


def test_quiet_and_json(small: list[object], tmp_path: Path) -> None:  # noqa: F811
    """--quiet prints nothing but errors; --json prints one object, with problems and exit code."""
    assert run("infer", *small, "--out", tmp_path / "a", "--quiet") == (0, "")
    code, said = run("infer", *small, "--out", tmp_path / "b", "--json")
    facts = json.loads(said)
    assert code == facts["exit_code"] == 0
    assert facts["status"] == "converged"
    assert "nodes.csv" in facts["files"]
    assert facts["largest_flows"][0]["mean"] > 0
    for command in ("check", "plan"):
        assert "engine" in json.loads(run(command, *small, "--json")[1])
    assert run("plan", *small, "--quiet") == (0, "")
    code, said = run("check", *small[:-2], "--quiet")
    assert code == 2
    assert "population" in said
    begin = run("check", *small[:-2], "--json")[1]
    found = json.loads(begin[begin.index("{") : begin.rindex("}") + 1])
    assert found["exit_code"] == 2
    assert "population" in found["problems"][0]


def test_random_engines_ask_for_a_seed(small: list[object], tmp_path: Path) -> None:  # noqa: F811
    """Without --seed a random engine is refused before it runs, in the words of the command line."""
    code, said = run("infer", *small, "--engine", "PathGibbs", "--out", tmp_path / "out")
    assert code == 2
    assert "PathGibbs is random: give --seed" in said
    assert run("check", *small, "--engine", "PathGibbs")[0] == 0


def test_completion_is_offered() -> None:
    """The shell can be taught the commands and options."""
    done = subprocess.run(
        [sys.executable, "-c", "from headcount.cli import main; main()", "--show-completion", "bash"],
        capture_output=True,
        text=True,
        check=False,
        # The shell is named, and not that which happens to run the tests.
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )
    assert "COMPLETE" in done.stdout + done.stderr
    assert np.char.count(run("--help")[1], "--install-completion") == 1


@pytest.mark.parametrize("size", ["50..80", "60+-5", "unknown"])
def test_check_takes_populations_that_are_no_number(size: str, small: list[object]) -> None:  # noqa: F811
    """What is known of the population is said in words, and in JSON."""
    words = ["check", *small[:-1], size]
    code, said = run(*words)
    assert code == 0, said
    assert "nothing is wrong" in said
    code, said = run(*words, "--json")
    assert code == 0, said
    assert json.loads(said)["population"]
