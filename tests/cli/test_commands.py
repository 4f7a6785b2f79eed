"""The commands as a user meets them: what they print, what they leave behind, how they end."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from tests.fake_device import fake_device
from tests.io.small_tables import COUNTS, TRANSITIONS, write
from typer.testing import CliRunner

from headcount import _device
from headcount.cli import app
from headcount.io import load_result, write_omx
from headcount.memory import free_memory, parse_size, readable_bytes

ROOT = Path(__file__).parents[2]
BIRDS = ROOT / "examples" / "birds"


def run(*words: object) -> tuple[int, str]:
    """Exit code, and standard output and error with their line breaks folded."""
    done = CliRunner().invoke(app, [str(w) for w in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, " ".join(done.output.split())


@pytest.fixture
def small(tmp_path: Path) -> list[object]:
    """A small problem as words of a command line."""
    paths = write(tmp_path, counts=COUNTS, transitions=TRANSITIONS)
    return [paths["counts"], "--transitions", paths["transitions"], "--population", 60]


def test_the_demonstration(tmp_path: Path) -> None:
    """The command of the README infers the shipped birds and names every file it wrote."""
    words = [
        "infer",
        BIRDS / "counts.csv",
        "--transitions",
        BIRDS / "transitions.csv",
        "--population",
        1080,
        "--noise",
        "poisson",
    ]
    code, said = run(*words, "--out", tmp_path)
    assert code == 0
    assert said.startswith("converged TiltedEP")
    assert "20 times, 36 cells, 720 counts (Poisson), population 1,080" in said
    for name in ("posterior.nc", "nodes.csv", "flows.csv", "summary.json", "flows.geojson"):
        assert name in said
        assert (tmp_path / name).stat().st_size > 0
    truth = pd.read_csv(BIRDS / "truth_counts.csv")
    nodes = load_result(tmp_path).nodes.merge(truth, on=["time", "cell"])
    inside = nodes["count"].between(nodes["lower"] - 1e-6, nodes["upper"] + 1e-6)
    assert 0.8 < inside[nodes["reliable"]].mean() < 0.99


def test_fit_learns_and_writes(tmp_path: Path) -> None:
    """Fit prints weights with intervals, writes them, and its folder reads back with them."""
    run("simulate", "birds", "--side", 3, "--population", 500, "--steps", 6, "--seed", 2, "--out", tmp_path)
    code, said = run(
        "fit",
        tmp_path / "counts.csv",
        "--features",
        tmp_path / "features.csv.gz",
        "--population",
        500,
        "--out",
        tmp_path / "fit",
    )
    assert code == 0, said
    result = load_result(tmp_path / "fit")
    assert result.weights is not None
    assert result.weights["feature"].tolist() == ["distance", "direction", "wind", "stay"]
    assert result.ascent is not None
    assert pd.read_csv(tmp_path / "fit" / "weights.csv")["weight"].tolist() == pytest.approx(
        result.weights["weight"].tolist()
    )
    again, _ = run(
        "infer", tmp_path / "counts.csv", "--features", tmp_path / "features.csv.gz", "--weights", tmp_path / "fit" / "weights.csv",
        "--population", 500, "--out", tmp_path / "again",
    )  # fmt: skip
    assert again == 0
    assert load_result(tmp_path / "again").nodes["mean"].to_numpy() == pytest.approx(
        result.nodes["mean"].to_numpy(), abs=0.05
    )


def test_fit_starts_where_it_is_told(tmp_path: Path) -> None:
    """--start takes weights or a name; --weights is a start too and says so; both at once and unknown names are refused."""
    run("simulate", "birds", "--side", 2, "--population", 60, "--steps", 4, "--seed", 2, "--out", tmp_path)
    common = [
        "fit",
        tmp_path / "counts.csv",
        "--features",
        tmp_path / "features.csv.gz",
        "--population",
        60,
        "--engine",
        "MAP",
    ]
    evidences = {}
    for name, words in {
        "numbers": ["--start", "1,2,2,2"],
        "name": ["--start", "sticky"],
        "weights": ["--weights", "1,2,2,2"],
    }.items():
        code, said = run(*common, *words, "--out", tmp_path / name)
        assert code == 0, said
        evidences[name] = pd.read_csv(tmp_path / name / "weights.csv")["weight"].tolist()
        assert ("starts at --weights" in " ".join(said.split())) == (name == "weights")
    assert evidences["numbers"] == evidences["weights"]
    code, said = run(*common, "--start", "1,2,2,2", "--weights", "1,2,2,2", "--out", tmp_path / "both")
    assert code == 2
    assert "--start alone" in " ".join(said.split())
    code, said = run(*common, "--start", "anywhere", "--out", tmp_path / "unknown")
    assert code == 2
    assert "this parametrisation knows zero, sticky" in " ".join(said.split())


def test_fit_says_what_is_missing(small: list[object], tmp_path: Path) -> None:
    """Without features there is nothing to learn: exit code 2 and what to give."""
    code, said = run("fit", *small)
    assert code == 2
    assert "--features FILE" in said


def test_fit_says_under_which_prior_weights_were_learned(tmp_path: Path) -> None:
    """A weight at an edge is drawn under the neutral prior, or is a Gaussian around the plain maximum; every file says which."""
    paths = write(
        tmp_path,
        counts="time,cell,count\n0,a,4000\n0,b,2000\n1,a,4000\n1,b,2000\n2,a,4000\n2,b,2000\n",
        features="from,to,stay\na,a,1\na,b,0\nb,a,0\nb,b,1\n",
    )
    words = [
        "fit",
        paths["counts"],
        "--features",
        paths["features"],
        "--population",
        6000,
        "--noise",
        "exact",
    ]
    texts = {
        "neutral": "integrated over under a prior (weights normal",
        "none": "the maximum without a prior",
    }
    for prior, text in texts.items():
        out = tmp_path / prior
        code, said = run(*words, "--prior", prior, "--report", "--out", out)
        assert code == 0, said
        assert f"parameters: learned, {'their uncertainty' if prior == 'none' else 'integrated'}" in said
        found = load_result(out).attributes
        assert (found["fit"]["prior"], text in found["parameters"]) == (prior, True)
        assert text in (out / "report.html").read_text(encoding="utf-8")
        assert json.loads((out / "summary.json").read_text())["fit"]["prior"] == prior
    code, said = run(*words, "--prior", "old.csv", "--out", tmp_path / "wrong")
    assert code == 2
    assert "--prior is neutral or none, got 'old.csv' (an old matrix of trips is --old-matrix)" in said


def test_bad_input_ends_with_two_and_writes_nothing(tmp_path: Path) -> None:
    """Every fault of every table is printed; no folder appears."""
    paths = write(
        tmp_path,
        counts=COUNTS.replace("40", "-4").replace("25", "x"),
        transitions=TRANSITIONS.replace("0.9", "0.8"),
    )
    out = tmp_path / "out"
    code, said = run("infer", paths["counts"], "--transitions", paths["transitions"], "--out", out)
    assert code == 2
    assert "nothing was written" in said
    for part in ("counts.csv, row 2", "counts.csv, row 5", "population"):
        assert part in said
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--engine", "magic"], "there is no engine 'magic': use auto,"),
        (["--engine", "TiltedEP", "--set", "speed=3"], "TiltedEP has no setting 'speed'"),
        (
            ["--engine", "MAP", "--set", "name=x"],
            "MAP has no setting 'name': it has tolerance, max_iterations, device",
        ),
        (["--engine", "TiltedEP", "--set", "damping"], "--set takes NAME=VALUE"),
        (["--set", "damping=0.5"], "name it with --engine"),
        (["--engine", "PathGibbs"], "is random: give"),
        (["--level", "1.5"], "--level must lie between 0 and 1"),
        (["--format", "xlsx"], "--format is csv or parquet"),
        (["--memory-limit", "lots"], "such as 8GB"),
        (["--column", "count"], "--column takes NAME=VALUE"),
        (["--noise", "cauchy"], "there is no noise 'cauchy'"),
        (["--together", "herds:3"], "give estimate, flocks:5, phi:4, rho:0.01 or alone"),
        (["--together", "flocks:61"], "larger than the population, 60"),
        (["--dispersion", "3"], "'3' is not a dispersion"),
        (["--dispersion", "flocks:2", "--concentration", "50"], "both say how moves scatter"),
        (["--concentration", "-1"], "concentration is"),
        (
            ["--together", "phi:2", "--initial", "uniform", "--engine", "PathGibbs", "--seed", "1"],
            "PathGibbs takes independent individuals only",
        ),
        (["--nonsense"], "No such option"),
    ],
)
def test_bad_options_end_with_two(words: list[str], part: str, small: list[object], tmp_path: Path) -> None:
    """What an option cannot be is said, with what it can be; nothing is written."""
    code, said = run("infer", *small, *words, "--out", tmp_path / "out")
    assert (code, part in said) == (2, True), said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("limit", "what"), [("2kB", "(TiltedEP|MAP|MAP, the smallest engine,)"), ("100 B", "counts.csv")]
)
def test_too_large_ends_with_three(limit: str, what: str, small: list[object], tmp_path: Path) -> None:
    """Above the limit infer and plan refuse with both numbers, be it for the tables or the engine; nothing is written."""
    for command in ("infer", "plan"):
        out = ["--out", tmp_path / "out"] if command == "infer" else []
        code, said = run(command, *small, "--memory-limit", limit, *out)
        assert code == 3, said
        assert re.search(f"{what} would take .* of memory and the limit is (2 kB|100 B)", said), said
    assert not (tmp_path / "out").exists()


def test_not_converged_ends_with_four(small: list[object], tmp_path: Path) -> None:
    """An answer short of its tolerance is written and marked, with what to do as options; the status comes first, the exit code is 4."""
    words = [
        *small,
        "--engine",
        "TiltedEP",
        "--set",
        "max_iterations=1",
        "--set",
        "tolerance=1e-14",
        "--out",
        tmp_path / "out",
    ]
    code, said = run("infer", *words)
    assert code == 4
    assert said.startswith("iteration budget spent")
    assert "raise --set max_iterations=…" in said
    assert "written, and marked so in every file" in said
    assert not load_result(tmp_path / "out").good


def test_plan_names_the_engine_and_its_cost(small: list[object]) -> None:
    """Plan says engine, reason, memory, limit and time, and runs nothing."""
    code, said = run("plan", *small, "--memory-limit", "2GB")
    assert code == 0
    for part in (
        "engine TiltedEP",
        "why count noise",
        "memory about",
        "limit 2 GB",
        "time about",
        "to read,",
    ):
        assert part in said
    found = json.loads(run("plan", *small, "--json")[1])
    parts = found["reading_seconds"] + found["seconds"] + found["writing_seconds"]
    assert found["command_seconds"] == pytest.approx(parts, abs=0.05)
    assert found["command_memory"] > found["writing"]


def test_a_device_is_looked_for_before_anything_is_read(
    small: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--device cuda infers and fits on a card (here one that pretends); without one, or with an engine that takes none, words say so."""
    made = fake_device()
    monkeypatch.setattr(_device, "_cuda", lambda: made)
    code, said = run("infer", *small, "--device", "cuda", "--out", tmp_path / "card")
    assert code == 0, said
    here = run("infer", *small, "--engine", "TiltedEP", "--out", tmp_path / "here")
    assert here[0] == 0
    nodes = [load_result(tmp_path / name).nodes["mean"].to_numpy() for name in ("card", "here")]
    assert abs(nodes[0] - nodes[1]).max() < 1e-6
    code, said = run("plan", *small, "--device", "cuda")
    assert code == 0
    assert "of the card's memory" in said
    assert "on the CPU; on a graphics card it is not predicted" in said
    code, said = run("infer", *small, "--device", "cuda", "--engine", "path-gibbs", "--seed", 1)
    assert code == 2
    assert "PathGibbs takes no device" in said
    code, said = run("infer", *small, "--device", "tpu")
    assert code == 2
    assert "device must be" in said

    def nothing() -> None:
        raise _device.DeviceError(_device.NO_DEVICE)

    monkeypatch.setattr(_device, "_cuda", nothing)
    for command in ("infer", "fit"):
        code, said = run(command, "no such file", "--device", "cuda", "--out", tmp_path / "none")
        assert code == 2
        assert "CuPy finds no CUDA device on this machine" in said
    assert not (tmp_path / "none").exists()


def test_random_engines_take_a_seed(small: list[object], tmp_path: Path) -> None:
    """The same seed gives the same answer, and the file says which seed it was."""
    words = [
        "infer",
        *small,
        "--engine",
        "path-gibbs",
        "--set",
        "sweeps=60",
        "--set",
        "burn_in=20",
        "--set",
        "tolerance=10",
        "--seed",
        4,
    ]
    for name in ("a", "b"):
        code, said = run(*words, "--out", tmp_path / name)
        assert code == 0, said
    first, second = (load_result(tmp_path / name) for name in ("a", "b"))
    pd.testing.assert_frame_equal(first.nodes, second.nodes)
    assert first.attributes["seed"] == 4
    assert first.attributes["settings"]["sweeps"] == 60


def test_extras_are_named_in_the_help() -> None:
    """What a command needs beside the package is named with its brackets, which markup would swallow."""
    assert "MP4 (needs headcount[video])" in run("animate", "--help")[1]


def test_networks_on_the_command_line(tmp_path: Path) -> None:
    """A network and tables of its variables give tables by variable and state; labels that two variables share are states of both."""
    (tmp_path / "pets.bif").write_text(
        "network pets { } variable season { type discrete [ 2 ] { dry, wet }; } variable animal { type discrete [ 2 ] { cat, dog }; } "
        "variable fed { type discrete [ 2 ] { dry, wet }; } "
        "probability ( season ) { table 0.4, 0.6; } probability ( animal | season ) { (dry) 0.2, 0.8; (wet) 0.5, 0.5; } "
        "probability ( fed | animal ) { (cat) 0.2, 0.8; (dog) 0.5, 0.5; }"
    )
    paths = write(
        tmp_path, a="animal,fed,count\ncat,dry,8.5\ndog,dry,29\ndog,wet,31\n", s="season,count\nwet,70\n"
    )
    code, said = run(
        "infer", paths["a"], paths["s"], "--network", tmp_path / "pets.bif", "--population", 100, "--noise", "laplace", "--scale", 4,
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert code == 0, said
    assert "3 variables, 6 states, 4 counts (LaplaceNoise, LaplaceNoise)" in said
    assert list(load_result(tmp_path / "out").nodes.columns[:2]) == ["variable", "state"]


def test_simulate_a_chain_and_infer_it(small: list[object], tmp_path: Path) -> None:
    """Data simulated from the user's own transitions are inferred by the next command; the same seed gives the same data."""
    write_omx(tmp_path / "moves.omx", {"share": [[0.9, 0.1], [0.3, 0.7]]}, zones=["pond", "hill"])
    words = [
        "simulate",
        "chain",
        tmp_path / "moves.omx",
        "--steps",
        4,
        "--population",
        300,
        "--noise",
        "binomial",
        "--detection",
        0.5,
    ]
    for name in ("a", "b"):
        code, said = run(*words, "--seed", 7, "--out", tmp_path / name)
        assert code == 0, said
    assert (tmp_path / "a" / "counts.csv").read_text() == (tmp_path / "b" / "counts.csv").read_text()
    code, said = run(
        "infer", tmp_path / "a" / "counts.csv", "--transitions", tmp_path / "a" / "transitions.csv", "--population", 300,
        "--noise", "binomial", "--detection", 0.5, "--out", tmp_path / "out",
    )  # fmt: skip
    assert code == 0, said
    assert run(*words)[0] == 2  # no seed


def test_individuals_that_move_together(small: list[object], tmp_path: Path) -> None:
    """Simulated in flocks, inferred as flocks: results say so, and their intervals are wider than those of single individuals."""
    world, widths = tmp_path / "world", {}
    words = [
        "simulate",
        "chain",
        small[2],
        "--steps",
        3,
        "--population",
        500,
        "--noise",
        "exact",
        "--seed",
        1,
    ]
    code, said = run(*words, "--together", "flocks:5", "--out", world)
    assert code == 0, said
    assert (pd.read_csv(world / "counts.csv")["count"] % 5 == 0).all()
    asked = [
        world / "counts.csv",
        "--transitions",
        world / "transitions.csv",
        "--population",
        500,
        "--initial",
        "uniform",
    ]
    for text in (None, "flocks:5", "rho:0.05"):
        out = tmp_path / str(text).replace(":", "_")
        code, said = run("infer", *asked, *([] if text is None else ["--together", text]), "--out", out)
        assert code == 0, said
        assert json.loads((out / "summary.json").read_text())["dispersion"] == text
        table = pd.read_csv(out / "nodes.csv")
        widths[text] = (table["upper"] - table["lower"]).sum()
    assert widths["flocks:5"] > 1.1 * widths[None]
    assert widths["rho:0.05"] > 1.1 * widths[None]
    assert run("plan", *asked, "--together", "flocks:5")[0] == 0


def test_a_dispersion_is_estimated_and_said(small: list[object], tmp_path: Path) -> None:
    """--dispersion estimate, with the initial law learned: terminal and summary say what was found; so does the page."""
    out = tmp_path / "out"
    code, said = run("infer", *small, "--dispersion", "estimate:flocks", "--out", out)
    assert code == 0, said
    assert "flock size" in said
    facts = json.loads((out / "summary.json").read_text())
    found = facts["dispersion_estimate"]
    assert found["name"] == "flock size"
    assert found["lower"] <= found["value"] <= found["upper"]
    assert facts["dispersion"] == found["used"]
    assert run("report", out)[0] == 0
    assert "Estimated from the data" in next(out.glob("*.html")).read_text()


def test_the_noises_dispersion_is_none_of_moves(small: list[object], tmp_path: Path) -> None:
    """Negative binomial noise has its own; a number as that of moves is refused, naming it."""
    words = ["infer", *small, "--noise", "negative-binomial", "--out", tmp_path]
    code, said = run(*words, "--noise-dispersion", "5")
    assert code == 0, said
    assert json.loads((tmp_path / "summary.json").read_text())["dispersion"] is None
    code, said = run(*words, "--noise-dispersion", "5", "--dispersion", "5", "--force")
    assert code == 2
    assert "--noise-dispersion" in said


def test_rows_that_are_not_known_exactly(small: list[object], tmp_path: Path) -> None:
    """--concentration 50 is rho = 1/51 at every step."""
    code, said = run("infer", *small, "--concentration", "50", "--out", tmp_path)
    assert code == 0, said
    assert json.loads((tmp_path / "summary.json").read_text())["dispersion"] == "rho:0.0196078"


@pytest.mark.parametrize("said", ["40..90", "60±10", "60+-10", "unknown"])
def test_a_population_that_nobody_counted(said: str, small: list[object], tmp_path: Path) -> None:
    """A range, a number with its error and "unknown" are taken, and the estimate is said and kept."""
    words = ["infer", *small[:-1], said, "--initial", "uniform", "--out", tmp_path / "out"]
    code, text = run(*words)
    assert code == 0
    assert "90% interval" in text
    estimate = json.loads((tmp_path / "out" / "summary.json").read_text())["population_estimate"]
    assert estimate["lower"] < estimate["mean"] < estimate["upper"]
    assert load_result(tmp_path / "out").population == round(estimate["mean"])


def test_a_population_that_is_none(small: list[object], tmp_path: Path) -> None:
    """What is no number of individuals is refused with what would be."""
    code, text = run("infer", *small[:-1], "many", "--out", tmp_path / "out")
    assert code == 2
    assert "8000..12000" in text


def test_individuals_that_come_and_go(small: list[object], tmp_path: Path) -> None:
    """Arrivals and survival open the chain; who came and left is written beside the counts."""
    times = pd.read_csv(small[0])["time"].unique()
    cell = pd.read_csv(small[0])["cell"].iloc[0]
    arrivals = tmp_path / "arrivals.csv"
    arrivals.write_text(f"time,cell,count\n{times[1]},{cell},7\n")
    words = ["infer", *small, "--initial", "uniform", "--arrivals", arrivals, "--survival", "0.9"]
    code, text = run(*words, "--out", tmp_path / "out")
    assert code == 0
    assert "arrivals.csv" in text
    found = pd.read_csv(tmp_path / "out" / "arrivals.csv")
    assert found["mean"].sum() == pytest.approx(found.loc[found["cell"] == cell, "mean"].sum())
    assert pd.read_csv(tmp_path / "out" / "departures.csv")["mean"].sum() > 0
    again = load_result(tmp_path / "out").arrivals
    assert again["mean"].tolist() == pytest.approx(found["mean"].tolist())
    code, text = run("infer", *small, "--arrivals", arrivals, "--out", tmp_path / "other")
    assert code == 2
    assert "initial law" in text


def test_files_of_an_earlier_run_are_named(small: list[object], tmp_path: Path) -> None:
    """What another run left in the folder is not taken for this one's."""
    out = tmp_path / "out"
    assert "earlier run" not in run("infer", *small, "--out", out)[1]
    assert "earlier run" not in run("infer", *small, "--out", out)[1]
    said = run("infer", *small, "--out", out, "--format", "parquet")[1]
    assert "from an earlier run, and not of this one: flows.csv, nodes.csv" in said


def test_the_command_is_kept(small: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results say which command made them, quoted so that it can be pasted."""
    words = ["infer", *map(str, small), "--out", str(tmp_path / "with space")]
    monkeypatch.setattr(sys, "argv", ["headcount", *words])
    assert run(*words)[0] == 0
    summary = json.loads((tmp_path / "with space" / "summary.json").read_text())
    assert summary["command"].startswith("headcount infer ")
    assert "'" in summary["command"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_leaves_nothing(
    number: signal.Signals, code: int, small: list[object], tmp_path: Path
) -> None:
    """Ctrl-C ends with 130, a request to stop with 143; neither leaves a file, half or whole."""
    out = tmp_path / "out"
    words = [
        "infer",
        *map(str, small),
        "--initial",
        "counts",
        "--engine",
        "PathGibbs",
        "--set",
        "sweeps=50000000",
        "--seed",
        "1",
        "--out",
        str(out),
    ]
    script = (
        # a shell that starts the tests in the background has Ctrl-C ignored, and children inherit that
        "import signal, headcount.engines as e\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def infer(*a, **k):\n    print('started', flush=True)\n    import time\n    time.sleep(60)\n"
        "e.run = infer\n"
        "from headcount.cli import main\n"
        "main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ.copy(),
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "started"
    time.sleep(0.1)
    process.send_signal(number)
    _, error = process.communicate(timeout=30)
    assert process.returncode == code, error
    assert "Traceback" not in error
    assert not out.exists()


def test_an_output_that_cannot_be_written(small: list[object], tmp_path: Path) -> None:
    """A file or a device in the way of the folder is refused before anything runs."""
    (tmp_path / "out").write_text("in the way")
    for out in (tmp_path / "out", tmp_path / "out" / "below", "/dev/null"):
        code, said = run("infer", *small, "--out", out)
        assert code == 2
        assert re.search("this is a (file|device)|out is a file", said), said
    assert (tmp_path / "out").read_text() == "in the way"


@pytest.mark.parametrize(
    ("text", "size"), [("8GB", 8e9), ("500 MB", 5e8), ("2GiB", 2**31), ("1000", 1000), ("1.5k", 1500)]
)
def test_sizes_are_read(text: str, size: float) -> None:
    """Sizes are numbers with decimal or binary units."""
    assert parse_size(text) == size


def test_sizes_are_written() -> None:
    """Sizes are written with the unit that people would choose."""
    assert [readable_bytes(s) for s in (100, 2_400, 45_000, 968_000, 19e9, 2e12)] == [
        "100 B",
        "2.4 kB",
        "45 kB",
        "968 kB",
        "19 GB",
        "2 TB",
    ]


def test_free_memory_is_known_here() -> None:
    """On Linux the free memory is known, and less than all there is."""
    if not Path("/proc/meminfo").exists():
        pytest.skip("only Linux says how much memory is available")
    free = free_memory()
    assert free is not None
    assert 0 < free < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_help_answers_at_once() -> None:
    """``headcount --help`` takes less than 0.3 s of processor time (wall time on shared cores is luck)."""
    script = (
        "import time\nfrom headcount.cli import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    print('took', time.process_time())"
    )
    took = min(
        float(
            subprocess.run(
                [sys.executable, "-c", script], capture_output=True, text=True, check=True
            ).stdout.split()[-1]
        )
        for _ in range(3)
    )
    assert took < 0.3
