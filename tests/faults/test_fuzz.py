"""Tables and command lines that nobody thought of: an answer or the usual report, never a raw error."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.faults.trouble import cases
from tests.io.small_tables import COUNTS, TRANSITIONS, write
from typer.testing import CliRunner

from headcount.cli import app
from headcount.errors import FaultsError
from headcount.io import read_problem

LABELS = st.sampled_from(
    ["pond", "hill", "0", "1", "2", "2.5", "01", "2024-01-01", "", " ", "é", "a,b", '"', "-1", "nan"]
)
NUMBERS = st.one_of(
    st.integers(-3, 60).map(str),
    st.floats(allow_nan=True, allow_infinity=True).map(repr),
    st.sampled_from(["", "NA", "x", "1e400", "1,000", "0.5", "9" * 400, "١", "0x10", "_1", "1_0", "True"]),
)
HEADERS = st.permutations(["time", "cell", "count", "rate", "x", "y"]).flatmap(
    lambda names: st.integers(0, 6).map(lambda n: names[:n])
)


@st.composite
def tables(draw: st.DrawFn) -> str:
    """Text that is nearly a table of counts."""
    names = draw(st.one_of(st.just(["time", "cell", "count"]), HEADERS))
    separator = draw(st.sampled_from([",", ";", "\t"]))
    lines = [separator.join(names)]
    for _ in range(draw(st.integers(0, 7))):
        row = [
            draw(LABELS) if name in {"time", "cell"} else draw(NUMBERS)
            for name in [*names, *draw(st.sampled_from([[], [], [], ["extra"]]))]
        ]
        lines.append(separator.join(row))
    return "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\n", "\r\n"]))


@settings(
    max_examples=cases(60, 5000),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    text=tables(), moves=st.sampled_from([TRANSITIONS, TRANSITIONS.replace("pond", "0").replace("hill", "1")])
)
def test_any_table_is_read_or_refused(text: str, moves: str, tmp_path: Path) -> None:
    """read_problem gives a problem or names what is wrong, whatever the table holds."""
    paths = write(tmp_path, counts=text, transitions=moves)
    try:
        case = read_problem(
            paths["counts"], population=60, transitions=paths["transitions"], initial="uniform"
        )
    except FaultsError:
        return
    assert case.problem.population == 60


WORDS = {
    "--population": ["60", "0", "-1", "1e3", "x", "99999999999999999999"],
    "--transitions": ["transitions.csv", "counts.csv", "nowhere.csv", "."],
    "--initial": ["counts", "smoothed", "uniform", "counts.csv", "nothing"],
    "--noise": ["poisson", "gaussian", "exact", "binomial", "laplace", "negative-binomial", "cauchy", ""],
    "--rate": ["1", "0", "-1", "nan", "inf"],
    "--detection": ["0.5", "1", "0", "2"],
    "--sd": ["1", "0", "-2", "nan"],
    "--scale": ["2", "0"],
    "--dispersion": ["1", "0"],
    "--engine": ["auto", "MAP", "TiltedEP", "Laplace", "ClosedForm", "Enumerate", "nonsense", ""],
    "--set": ["damping=0.5", "damping=7", "tolerance=nan", "max_iterations=0", "x=y", "damping"],
    "--seed": ["1", "-1"],
    "--level": ["0.5", "0", "1", "nan"],
    "--format": ["csv", "xlsx"],
    "--memory-limit": ["1GB", "1", "much"],
    "--column": ["count=cell", "cell=time", "x"],
    "--encoding": ["utf-8", "ascii", "utf-16", "rot13", "nothing"],
    "--cells": ["counts.csv", "nowhere.csv"],
    "--flows": ["transitions.csv", "counts.csv"],
    "--features": ["transitions.csv", "nowhere.csv"],
    "--weights": ["1", "1,2", "x", ","],
    "--out": ["out", "counts.csv", "counts.csv/below", "/dev/null"],
}
FLAGS = ["--uneven", "--normalise", "--omx", "--keep", "--safe-csv", "--force"]


def test_any_command_line_ends_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands with options of every kind end with a known exit code; every refusal says why."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, counts=COUNTS, transitions=TRANSITIONS)
    rng = np.random.default_rng(11)
    runner = CliRunner()
    for k in range(cases(20, 500)):
        options = rng.choice(sorted(WORDS), size=int(rng.integers(0, 4)), replace=False).tolist()
        words = [str(rng.choice(["infer", "infer", "plan", "fit"])), "counts.csv"]
        for name in dict.fromkeys(["--transitions", "--population", *options]):
            sound = name in {"--transitions", "--population"} and rng.random() < 0.9
            words += [name, WORDS[name][0] if sound else str(rng.choice(WORDS[name]))]
        words += [flag for flag in FLAGS if rng.random() < 0.1]
        if words[0] == "plan":
            words = [w for w in words if w not in FLAGS[2:]]
        done = runner.invoke(app, words)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            pytest.fail(f"case {k}: {' '.join(words)}: raw {type(done.exception).__name__}: {done.exception}")
        assert done.exit_code in {0, 1, 2, 3, 4}, words
        assert done.exit_code == 0 or done.output.strip(), words
