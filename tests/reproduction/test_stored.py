"""The stored results: complete, drawn as they are, and what the paper's experiments show."""

from pathlib import Path

import pandas as pd
import pytest
from reproduction.tables import FLOOR, OURS, OWN, PRINTED, SYMBOL

from reproduction import exhibits, figure1, figure2, printed, run, table1, table2, table3, tables

HERE = Path(run.__file__).parent
MODULES = {m.__name__.rpartition(".")[2]: m for m in (table1, table2, table3, figure1, figure2, exhibits)}
TABLES = (table1, table2, table3)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return run.read(HERE)


@pytest.mark.parametrize("name", run.EXPERIMENTS)
def test_nothing_is_missing(name: str, frame: pd.DataFrame) -> None:
    """Every task of the full plan has stored results, so that ``python -m reproduction all`` computes nothing."""
    wanted, _ = run._wanted(run._plan(name, MODULES[name], quick=False), set(frame["task"]), ())
    assert not wanted


@pytest.mark.parametrize("module", TABLES)
def test_the_files_are_drawn_from_the_results(module, frame: pd.DataFrame) -> None:
    """Tables in every format are what the stored numbers give, and no cell is empty."""
    table = tables.build(module.LAYOUT, frame)
    assert all(cell is not None for line in table.lines for cell in line.cells)
    for suffix, writer in tables.FORMATS.items():
        stored = (HERE / "tables" / f"{table.name}.{suffix}").read_text(encoding="utf-8")
        assert writer(table) == stored


@pytest.mark.parametrize("module", TABLES)
def test_what_the_tables_show(module, frame: pd.DataFrame) -> None:
    """TiltedEP ≤ MAP up to the floor and ≤ a third of the printed GCGM; NLBP = MAP; our GCGM is not above the printed one."""
    table = tables.build(module.LAYOUT, frame)
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
    """EdgeEP's means and Laplace's differ by less than 1e-6·N on every data set tried."""
    part = frame[frame.kind == "agreement"]
    assert (part[part.quantity.isin(["apart_node", "apart_edge"])].value < 1e-6).all()
    assert (part[part.quantity == "converged"].value == 1).all()


def test_learning_curves(frame: pd.DataFrame) -> None:
    """EM starts at w = 0 (error 1) and gains with every engine; complete counts leave the smallest error."""
    ends = figure1.ends(frame)
    ends = ends[(ends.population == 1600) & (ends.weight == 1.0) & (ends.sequences == 1)]
    ends = ends.set_index(["method", "engine"])["mean"]
    part = figure1.errors(frame)
    assert (part[(part.method == "em") & (part.step == 0)].value == 1).all()
    for name in figure1.ENGINES:
        for method in ("em", "ascent"):
            assert ends["complete", ""] < ends[method, name] < 0.15


def test_seconds(frame: pd.DataFrame) -> None:
    """Both times of every engine and size are there, the total no less than the nodes; ours are below the printed ones."""
    both, nodes = figure2.mean_seconds(frame), figure2.mean_seconds(frame, "nodes_cpu_seconds")
    assert set(both.index) == set(figure2.ENGINES)
    assert ((both >= nodes) | both.isna()).all(axis=None)
    for cells, seconds in zip(printed.FIGURE2_CELLS, printed.FIGURE2_SECONDS["GCGM"], strict=True):
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


@pytest.mark.parametrize("name", run.EXPERIMENTS)
def test_modules_state_what_they_must(name: str) -> None:
    """Source, settings, deviations and duration are in every docstring."""
    assert {"Title", "Source", "Settings", "Deviations", "Duration"} <= set(run.sections(MODULES[name]))
