"""Commands on finished runs: compare, export, animate, and polygons on the way in."""

import json
from pathlib import Path

import pandas as pd
import pytest
from tests.cli.test_commands import run
from tests.io.small_tables import COUNTS, TRANSITIONS, write

from headcount.io import load_result


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two small runs over the same polygons, with different populations."""
    folder = tmp_path_factory.mktemp("runs")
    paths = write(folder, counts=COUNTS, transitions=TRANSITIONS)
    cells = list(dict.fromkeys(pd.read_csv(paths["counts"], dtype=str)["cell"]))
    features = [
        {
            "type": "Feature",
            "properties": {"cell": cell},
            "geometry": {"type": "Polygon", "coordinates": [[[k, 46], [k + 1, 46], [k + 1, 47], [k, 46]]]},
        }
        for k, cell in enumerate(cells)
    ]
    zones = folder / "zones.geojson"
    zones.write_text(json.dumps({"type": "FeatureCollection", "features": features}), encoding="utf-8")
    made = {}
    for name, population in (("a", 60), ("b", 75)):
        made[name] = folder / name
        given = [paths["counts"], "--transitions", paths["transitions"], "--cells", zones]
        code, said = run(
            "infer",
            *given,
            "--population",
            population,
            "--initial",
            "uniform",
            "--min-flow",
            2,
            "--out",
            made[name],
        )
        assert code == 0, said
    return made


def test_polygons_reach_the_page(results: dict[str, Path]) -> None:
    """`--cells zones.geojson` makes a choropleth: the page carries one shape per cell, and small flows get no line."""
    code, _ = run("report", results["a"])
    assert code == 0
    result = load_result(results["a"])
    assert set(result.shapes or {}) == set(result.cells)
    lines = json.loads((results["a"] / "flows.geojson").read_text(encoding="utf-8"))["features"]
    assert lines
    assert min(f["properties"]["mean"] for f in lines) >= 2


def test_compare_writes_tables_and_a_page(results: dict[str, Path], tmp_path: Path) -> None:
    """`headcount compare results-a results-b` says how much differs and leaves tables and one page; runs of other folders stay."""
    code, said = run("compare", results["a"], results["b"], "--out", tmp_path / "c")
    assert code == 0
    assert "clearly differ" in said
    assert "log evidence of the second less the first" in said
    nodes = pd.read_csv(tmp_path / "c" / "nodes.csv")
    assert {"first", "second", "difference", "lower", "upper", "clear"} <= set(nodes.columns)
    by_time = nodes.groupby("time")["difference"].sum()
    assert by_time.to_numpy() == pytest.approx(15.0, abs=1e-6)
    page = (tmp_path / "c" / "comparison.html").read_text(encoding="utf-8")
    assert ">a</figcaption>" in page
    code, said = run("compare", results["a"], tmp_path / "none", "--out", tmp_path / "d")
    assert code == 2
    assert "there is no such file" in said


def test_export_and_animate(results: dict[str, Path], tmp_path: Path) -> None:
    """Files for other programs lie in the folder asked for; what is there is not overwritten; wrong words are refused."""
    code, said = run("export", results["a"], "--to", "flowmap", "--min-flow", 1, "--out", tmp_path)
    assert code == 0
    assert "locations.csv" in said
    assert pd.read_csv(tmp_path / "flows.csv")["count"].min() >= 1
    code, said = run("export", results["a"], "--to", "flowmap", "--out", tmp_path)
    assert code != 0
    assert "there already" in said
    code, said = run("export", results["a"], "--to", "paper")
    assert code == 2
    assert "to is one of" in said
    code, _ = run("animate", results["a"], "--out", tmp_path / "m.gif", "--frames", 1)
    assert code == 0
    assert (tmp_path / "m.gif").read_bytes()[:3] == b"GIF"
    code, said = run("animate", results["a"], "--out", tmp_path / "m.gif")
    assert "there already" in said


def test_statements_of_one_run_do_not_contradict_each_other(tmp_path: Path) -> None:
    """What the terminal says of an unknown initial law is what summary.json says; ranges that were not checked are not called trusted."""
    paths = write(tmp_path, counts=COUNTS, transitions=TRANSITIONS)
    words = [paths["counts"], "--transitions", paths["transitions"], "--population", 60]
    for engine in ("MAP", "TiltedEP"):
        code, said = run("infer", *words, "--engine", engine, "--out", tmp_path / engine)
        assert code == 0, said
        told = json.loads((tmp_path / engine / "summary.json").read_text(encoding="utf-8"))["initial_law"]
        assert f"initial law: {told}" in said
        assert said.count("uncertainty") == told.count("uncertainty")
        assert "to be trusted" not in said


def test_the_page_takes_a_background(results: dict[str, Path], tmp_path: Path) -> None:
    """`report --background` draws the lines of a file; a wrong address of tiles is refused in words."""
    line = {"type": "LineString", "coordinates": [[0, 46], [2, 46.5]]}
    (tmp_path / "roads.geojson").write_text(json.dumps(line), encoding="utf-8")
    code, said = run(
        "report", results["a"], "--out", tmp_path / "page.html", "--background", tmp_path / "roads.geojson"
    )
    assert code == 0, said
    assert '"lines":{"x":' in (tmp_path / "page.html").read_text(encoding="utf-8")
    code, said = run(
        "report", results["a"], "--out", tmp_path / "page.html", "--tiles", "https://a.org/tile.png"
    )
    assert code != 0
    assert "give an address like https://tiles.example.org" in said
