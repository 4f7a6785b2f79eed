"""Terminals and pipes: right words in any encoding, no control characters from labels, no complaint when the reader leaves."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from tests.faults.trouble import forked
from tests.io.small_tables import COUNTS, TRANSITIONS, write

import headcount.learn
from headcount.cli import _show, main
from headcount.cli._show import visible
from headcount.engines.engine import Progress
from headcount.io import load_result, write_table


def command(*words: object) -> None:
    sys.argv = ["headcount", *map(str, words)]
    main()


def test_a_reader_who_leaves_is_no_fault(small: list[str], tmp_path: Path) -> None:
    """``headcount … | head`` ends with 0 and writes everything, without a word on standard error."""
    ended = forked(lambda: command("infer", *small, "--out", tmp_path / "out"), reader_leaves=True)
    assert (ended.code, ended.err) == (0, "")
    assert load_result(tmp_path / "out").good
    for words in (["--help"], ["--version"], ["infer", "--help"]):
        ended = forked(lambda words=words: command(*words), reader_leaves=True)  # type: ignore[misc]
        assert (ended.code, ended.err) == (0, ""), words


def test_ascii_terminals_get_ascii(small: list[str], tmp_path: Path) -> None:
    """Where the terminal has no other characters ours become ASCII, labels become escapes, and the run ends well."""
    ended = forked(lambda: command("infer", *small, "--out", tmp_path / "out"), encoding="ascii")
    assert ended.code == 0, ended
    assert "..." in ended.out
    assert "nothing was written" not in ended.out + ended.err
    ended = forked(lambda: command("infer", tmp_path / "hügel.csv"), encoding="ascii")
    assert ended.code == 2
    assert r"h\xfcgel.csv: there is no such file" in ended.err.replace("\n", "")
    for words in (["--help"], ["infer", "--help"], ["fit", "--help"]):
        assert forked(lambda words=words: command(*words), encoding="ascii").code == 0  # type: ignore[misc]


def test_a_plain_locale(small: list[str], tmp_path: Path) -> None:
    """The same in a process of its own, as a user with LC_ALL=C starts it."""
    done = subprocess.run(
        [sys.executable, "-c", "from headcount.cli import main; main()", "infer", "nowhere…csv", *small[1:]],
        env={**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
        capture_output=True,
    )
    assert done.returncode == 2, done
    assert b"there is no such file" in done.stderr


def test_control_characters_are_shown_not_obeyed(tmp_path: Path) -> None:
    """Escape sequences, bells, and characters that turn the direction of writing appear as escapes."""
    name = "\x1b[31mred\x07\u202e"
    paths = write(
        tmp_path, counts=COUNTS.replace("pond", name), transitions=TRANSITIONS.replace("pond", name)
    )
    words = [
        "infer",
        paths["counts"],
        "--transitions",
        paths["transitions"],
        "--population",
        60,
        "--initial",
        "counts",
    ]
    ended = forked(lambda: command(*words, "--out", tmp_path / "out"))
    assert ended.code == 0, ended
    bad = write(tmp_path, counts=COUNTS.replace("pond", name))["counts"]
    refused = forked(lambda: command("infer", bad, *words[2:], "--noise", f"{name}"))
    assert refused.code == 2
    for text in (ended.out, ended.err, refused.err):
        assert not set(text) & {"\x1b", "\x07", "\u202e"}
    assert r"\x1b[31mred\x07\u202e" in ended.out
    assert visible("plain text, ü") == "plain text, ü"


def test_markup_in_labels_is_text(tmp_path: Path) -> None:
    """Labels that look like the printing library's markup, or end in a backslash, are printed as they are."""
    name = "[bold]a[/]\\"
    paths = write(
        tmp_path, counts=COUNTS.replace("pond", name), transitions=TRANSITIONS.replace("pond", name)
    )
    words = [
        "infer",
        paths["counts"],
        "--transitions",
        paths["transitions"],
        "--population",
        60,
        "--initial",
        "counts",
    ]
    ended = forked(lambda: command(*words, "--out", tmp_path / "out"))
    assert ended.code == 0, ended
    assert name in ended.out


def test_formulas_are_shielded_on_request(tmp_path: Path) -> None:
    """``--safe-csv`` puts an apostrophe before labels that a spreadsheet would run; without it they stay, and a note says so."""
    names = {"pond": "=cmd()", "hill": "@sum"}
    counts, moves = COUNTS, TRANSITIONS
    for old, new in names.items():
        counts, moves = counts.replace(old, new), moves.replace(old, new)
    paths = write(tmp_path, counts=counts, transitions=moves)
    words = [
        "infer",
        paths["counts"],
        "--transitions",
        paths["transitions"],
        "--population",
        60,
        "--initial",
        "counts",
    ]
    for option, shield in (([], ""), (["--safe-csv"], "'")):
        out = tmp_path / f"out{shield}"
        ended = forked(lambda out=out, option=option: command(*words, *option, "--out", out))  # type: ignore[misc]
        assert ended.code == 0
        assert ("begin like a formula" in ended.out.replace("\n", " ")) is (not option)
        assert set(pd.read_csv(out / "nodes.csv")["cell"]) == {f"{shield}=cmd()", f"{shield}@sum"}
        assert set(load_result(out).nodes["cell"]) == {"=cmd()", "@sum"}
    write_table(pd.DataFrame({"a": ["-1", "b"], "n": [-1.5, 2.0]}), tmp_path / "t.csv", safe_csv=True)
    assert (tmp_path / "t.csv").read_text() == "a,n\n'-1,-1.5\nb,2\n"


@pytest.mark.parametrize("page", ["mine", None])
def test_a_page_of_others_is_not_overwritten(page: str | None, small: list[str], tmp_path: Path) -> None:
    """``headcount report`` replaces its own page and refuses another file without --force."""
    out = tmp_path / "out"
    assert forked(lambda: command("infer", *small, "--out", out)).code == 0
    if page is not None:
        (out / "report.html").write_text(page)
        ended = forked(lambda: command("report", out))
        assert ended.code == 2
        assert "headcount did not write this file" in ended.err
        assert (out / "report.html").read_text() == page
    for option in (["--force"], []):
        assert forked(lambda option=option: command("report", out, *option)).code == 0  # type: ignore[misc]


def test_without_a_terminal_a_line_says_what_is_done(
    small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where standard error is no terminal, lines with phase, time and progress come while the command runs; --quiet has none."""
    monkeypatch.setattr(_show, "LOG_EVERY", 0.02)
    infer = headcount.learn.infer

    def slowly(*given: object, **more: object) -> object:
        with Progress("sweeps", 100) as bar:
            bar.advance(0.5)
            time.sleep(0.3)
        return infer(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(headcount.learn, "infer", slowly)
    ended = forked(lambda: command("infer", *small, "--out", tmp_path / "out"))
    assert ended.code == 0, ended
    lines = [line for line in ended.err.splitlines() if "inferring with" in line]
    assert sum("; sweeps, 1 of at most 100, residual 5.00e-01" in line for line in lines) >= 3
    assert "after the command began" in ended.out
    quiet = forked(lambda: command("infer", *small, "--out", tmp_path / "quiet", "--quiet"))
    assert (quiet.code, quiet.err) == (0, "")


def test_a_command_that_is_stopped_says_what_was_written(
    small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM ends with 143, the phase, and whether anything was written; --json says the same."""
    monkeypatch.setattr(headcount.learn, "infer", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    ended = forked(lambda: command("infer", *small, "--out", tmp_path / "out", "--json"))
    assert ended.code == 143
    assert "Stopped while inferring with" in ended.err
    assert "nothing was written" in ended.err
    found = json.loads(ended.out)
    assert found["exit_code"] == 143
    assert "Stopped while" in found["problems"][0]
    assert not (tmp_path / "out").exists()


INTERRUPTED = """
import sys
import headcount.learn
from headcount.cli import main

class Open:
    def __del__(self):
        raise KeyError("cut off")

def interrupted(*_, **__):
    held = Open()
    raise KeyboardInterrupt

headcount.learn.infer = interrupted
sys.argv = ["headcount", *sys.argv[1:]]
main()
"""


def test_an_interrupt_is_one_sentence(small: list[str], tmp_path: Path) -> None:
    """Files that were open when Ctrl-C came complain when they are closed: nobody is to read their tracebacks."""
    words = [sys.executable, "-c", INTERRUPTED, "infer", *map(str, small), "--out", str(tmp_path / "out")]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 130
    assert "Interrupted while" in ended.stderr
    assert "cut off" not in ended.stderr
