"""The quick version, run as a user runs it: every file, every cell, and what the paper's experiments show."""

import json
import platform
import socket
import xml.etree.ElementTree as ET
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from headcount.cli import app
from headcount.paper import EXPERIMENTS, exhibits, figure1, figure2, printed, table1, table2, table3
from headcount.paper._manifest import sections
from headcount.paper._tables import FLOOR, OURS, OWN, PRINTED, SYMBOL

TABLES = (table1, table2, table3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of everything."""
    out = tmp_path_factory.mktemp("reproduction")
    done = CliRunner().invoke(
        app, ["reproduce", "all", "--quick", "--out", str(out), "--page", str(out / "page")]
    )
    assert done.exit_code == 0, done.output
    return out


@pytest.fixture(scope="module")
def frame(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "results.parquet")


def test_every_file_is_there(folder: Path) -> None:
    """Tables in three formats, figures in two, the comparison, the results and their manifest."""
    for module in ("table1", "table2", "table3"):
        assert all(
            (folder / "tables" / f"{module}.{kind}").stat().st_size > 0 for kind in ("csv", "md", "tex")
        )
    for name in ("figure1", "figure2", "exhibits"):
        for place in (folder, folder / "page"):
            ET.parse(place / "figures" / f"{name}.svg")
            assert (place / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "[errata](../errata.md)" in (folder / "page" / "comparison.md").read_text(encoding="utf-8")


def test_the_manifest_says_how_and_not_where(folder: Path) -> None:
    """Settings, seeds, versions, commit, hardware and times; no names of this machine or its folders."""
    text = (folder / "manifest.json").read_text(encoding="utf-8")
    facts = json.loads(text)
    assert set(facts["experiments"]) == set(EXPERIMENTS)
    assert facts["versions"]["python"] == platform.python_version()
    assert facts["cpu_seconds"] > 0
    assert all(e["with_results"] == e["tasks"] for e in facts["experiments"].values())
    assert str(Path.cwd()) not in text
    assert str(Path.home()) + "/" not in text
    assert socket.gethostname() not in text.replace("localhost", "")


def test_a_second_run_only_draws(folder: Path) -> None:
    """Nothing is computed again, and the tables and figures are the same bytes."""
    names = [*folder.glob("tables/*"), *folder.glob("figures/*")]
    before = {path: path.read_bytes() for path in names}
    done = CliRunner().invoke(app, ["reproduce", "table1", "--quick", "--out", str(folder)])
    assert done.exit_code == 0, done.output
    facts = json.loads((folder / "manifest.json").read_text())
    assert facts["last_run"]["tasks_computed"] == 0
    assert [run["tasks_computed"] > 0 for run in facts["runs"]] == [True]
    assert {path: path.read_bytes() for path in names} == before


@pytest.mark.parametrize("module", TABLES)
def test_every_cell_is_filled(module, frame: pd.DataFrame) -> None:
    """No table has a hole."""
    table = module.table(frame)
    assert all(cell is not None for line in table.lines for cell in line.cells)


@pytest.mark.parametrize("module", TABLES)
def test_what_the_tables_show(module, frame: pd.DataFrame) -> None:
    """TiltedEP ≤ MAP up to the floor and ≤ a third of the printed GCGM; NLBP = MAP; our GCGM is not above the printed one."""
    table = module.table(frame)
    for kind in SYMBOL:
        ours = {m: table.line(OURS, m, kind).cells for m in ("MAP", "GCGM", "NLBP", "TiltedEP")}
        paper, floor = table.line(PRINTED, "GCGM", kind).cells, table.line(FLOOR, OWN, kind).cells
        for k, column in enumerate(table.columns):
            tilted, point, gcgm = (ours[m][k].mean for m in ("TiltedEP", "MAP", "GCGM"))
            assert tilted <= point + floor[k].mean, column
            assert tilted <= paper[k].mean / 3 + floor[k].mean, column
            assert ours["NLBP"][k].mean == pytest.approx(point, rel=1e-4), column
            assert 0.2 * paper[k].mean <= gcgm <= 1.2 * paper[k].mean, column


def test_the_sweeps_end_in_the_joint_mode(frame: pd.DataFrame) -> None:
    """EdgeEP's own modes and Laplace's differ by less than 1e-6·N on every data set tried."""
    part = frame[frame.kind == "agreement"]
    assert len(part[part.quantity == "modes_node"]) == 18
    assert (part[part.quantity.isin(["modes_node", "apart_node", "apart_edge"])].value < 1e-6).all()
    assert (part[part.quantity == "converged"].value == 1).all()


def test_learning_curves(frame: pd.DataFrame) -> None:
    """EM starts at w = 0 (error 1) and gains with every engine; nothing beats complete counts by far."""
    ends = figure1.ends(frame).set_index(["method", "engine"])["mean"]
    part = figure1.errors(frame)
    assert (part[(part.method == "em") & (part.step == 0)].value == 1).all()
    for name in figure1.ENGINES:
        assert ends["em", name] < 0.6
        assert ends["ascent", name] < 0.6
    assert 0 < ends["complete", ""] < 0.3


def test_seconds(frame: pd.DataFrame) -> None:
    """Both times of every engine and size are there, the total no less than the nodes; the paper's method beats its print."""
    both, nodes = figure2.mean_seconds(frame), figure2.mean_seconds(frame, "nodes_cpu_seconds")
    assert set(both.index) == set(figure2.ENGINES)
    assert (both >= nodes).all(axis=None)
    for cells, seconds in zip(printed.FIGURE2_CELLS[:3], printed.FIGURE2_SECONDS["GCGM"], strict=False):
        assert both.loc["Laplace", cells] < seconds


def test_exhibits(frame: pd.DataFrame) -> None:
    """Probabilities add to one; the laws approach each other; the precision is sparse; the reduced covariance has full rank."""
    found = exhibits.numbers(frame)
    assert found["total"] == pytest.approx([1.0] * len(found["total"]), abs=1e-12)
    sizes = sorted(found["nodes"])
    values = [found["nodes"][n] for n in sizes]
    assert values == sorted(values, reverse=True)
    assert 0 < found["outside"][0] < 1e-10
    ranks = found["ranks"]
    assert ranks["reduced size"] == ranks["reduced rank"] == ranks["rank"]
    assert all(small < large for small, large in zip(ranks["rank"], ranks["size"], strict=True))


@pytest.mark.parametrize("module", [figure1, figure2, exhibits])
def test_modules_state_what_they_must(module) -> None:
    """Source, settings, deviations and duration are in every docstring."""
    assert {"Title", "Source", "Settings", "Deviations", "Duration"} <= set(sections(module))


def test_unknown_experiments_are_refused() -> None:
    """The message names the wrong one and lists what there is; nothing is written."""
    done = CliRunner().invoke(app, ["reproduce", "table9", "--out", "nowhere"])
    assert done.exit_code == 2
    assert "table9" in done.output
    assert "exhibits" in done.output
    assert not Path("nowhere").exists()
