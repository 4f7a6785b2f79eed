"""The page as a text: complete, harmless whatever the labels, and true to the result."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.path import Path as Outline

import headcount as hc
from headcount import report
from headcount.io import Result, export, load_result, read_problem, write_results
from headcount.plot.words import SCATTER, WHY
from headcount.posterior._stored import load
from headcount.report import _page, _payload
from sample_results import POPULATION, attributes, chain, network, relabelled

PLOTLY = _page.plotly_script
EVIL = [
    "</script><script>window.pwned=1</script>",
    '<img src=x onerror="window.pwned=1">',
    "<!-- {{title}} {{data}}",
    '"quoted" & <b>bold</b>',
    "</title></style>",
    "Zürich \u2028 東京 \\u003c",
    "%{x} <a href='javascript:window.pwned=1'>x</a>",
    "",
    "0",
]


class Reader(HTMLParser):
    """Elements of a page with their attributes, and the text inside each."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in {"meta", "link", "input"}:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        where = self._open[-1] if self._open else ""
        if where == "script" and self.texts[-1][0] == "script":  # a long script comes in pieces
            data = self.texts.pop()[1] + data
        self.texts.append((where, data))

    def inside(self, tag: str) -> list[str]:
        return [text for where, text in self.texts if where == tag]

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found
    return json.loads(found[1])


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """A stand-in for plotly's five megabytes, which a text parser takes its time over."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_page, "plotly_script", lambda: "/* é < & > */")
        yield


@pytest.fixture(scope="module")
def page() -> str:
    return report.render(chain())


@pytest.fixture(scope="module")
def evil() -> str:
    wicked = relabelled(chain(), EVIL, [f"<i>{k}</i>" for k in range(6)])
    known = attributes(command=EVIL[0], engine=EVIL[1], notes=[EVIL[0]], **{EVIL[2]: EVIL[1]})
    weights = pd.DataFrame({"feature": EVIL[:2], "weight": [1.0, np.nan]})
    wicked = dataclasses.replace(wicked, attributes=known, weights=weights)
    return report.render(wicked, title=EVIL[4])


def test_page_asks_nothing_of_the_network(page: str) -> None:
    """No element refers to anything outside the page: links lead into it, the icon is empty data."""
    for tag, attrs in Reader(page).elements:
        for name in ("src", "href", "action", "srcset", "data", "poster"):
            target = attrs.get(name)
            assert target is None or target.startswith("#") or target == "data:,", (tag, target)
    style = Reader(page).inside("style")[0]
    assert "url(" not in style
    assert "@import" not in style


def test_policy_names_exactly_the_scripts_that_are_there(page: str) -> None:
    """The policy's hashes are those of the page's scripts as a browser reads them, and everything else is forbidden."""
    reader = Reader(page)
    (policy,) = [a["content"] for a in reader.all("meta") if a.get("http-equiv")]
    scripts = [text for text in reader.inside("script") if not text.startswith('{"kind"')]
    assert len(scripts) == 2
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert policy is not None
    assert re.findall(r"'sha256-([^']+)'", policy) == digests
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]


def test_labels_cannot_become_code(page: str, evil: str) -> None:
    """Whatever users call their cells, times, commands and titles, the page has the same elements as a harmless one."""
    plain, wicked = Reader(page), Reader(evil)
    assert len(wicked.all("script")) == len(plain.all("script")) == 3
    assert wicked.all("img") == plain.all("img") == []
    tags = {"li", "ul", "span", "div", "dt", "dd", "p", "button", "pre"}
    assert [t for t, _ in wicked.elements if t not in tags] == [t for t, _ in plain.elements if t not in tags]
    assert not [a for _, attrs in wicked.elements for a in attrs if a.startswith("on")]


def test_labels_come_back_unchanged(evil: str) -> None:
    """Escaping is undone by whoever reads: the browser gets every label as the user wrote it."""
    data = data_of(evil)
    assert data["cells"] == EVIL
    assert data["times"] == [f"<i>{k}</i>" for k in range(6)]
    reader = Reader(evil)
    assert EVIL[4] in "".join(reader.inside("title"))
    assert "".join(reader.inside("pre")) == EVIL[0]
    assert EVIL[1] in reader.inside("dd")


def test_control_characters_become_symbols() -> None:
    """A terminal's escape code in a label, or in the command, is shown as a symbol; a formula stays the text it is."""
    cells = ["\x1b[31mred", "=cmd()", *range(2, 9)]
    text = report.render(relabelled(chain(), cells, list(range(6))))
    assert data_of(text)["cells"][:2] == ["␛[31mred", "=cmd()"]
    told = report.render(chain(attributes=attributes(command="headcount \x1b[2J", engine="A\x07")))
    assert not set(told) & set(map(chr, [*range(9), 11, 12, *range(14, 32), 127]))


def test_numbers_are_those_of_the_result(page: str) -> None:
    """Counts and flows in the page are the result's to five digits, missing ones are missing."""
    result, data = chain(), data_of(page)
    for name, table in (("nodes", result.nodes), ("flows", result.flows)):
        for column in ("mean", "median", "sd", "lower", "upper"):
            np.testing.assert_allclose(data[name][column], table[column], rtol=1e-4, atol=1e-12)
        assert data[name]["reliable"] == table["reliable"].astype(int).tolist()
    seen = [np.nan if v is None else v for v in data["nodes"]["observed"]]
    np.testing.assert_array_equal(seen, result.nodes["observed"])
    assert data["nodes"]["c"] == result.nodes["cell"].tolist()
    assert data["flows"]["u"] == (result.flows["time"] + 1).tolist()


def test_finding_comes_first() -> None:
    """The first words say where most were, first and last, and the largest move, with ranges and without jargon; the status comes last."""
    result = chain()
    good = Reader(report.render(result))
    body = [text.strip() for where, text in good.texts if where == "p" and text.strip()]
    top = result.flows[result.flows["origin"] != result.flows["dest"]].nlargest(1, "mean").iloc[0]
    assert f"from cell {top['origin']:.0f} to cell {top['dest']:.0f} after time {top['time']:.0f}" in body[0]
    assert "90 % ranges in brackets" in body[0]
    assert "Converged" in body
    assert body[0].count(". ") == 0
    assert "Most are" not in body[0]  # the fullest cell need not hold the half
    for jargon in ("converged", "residual", "posterior", "--"):
        assert jargon not in body[0]


def test_a_bad_status_is_said_above_the_map() -> None:
    """A run that did not finish well, or data that disagree, stand above the map with what to try."""
    bad = report.render(chain(attributes=attributes(status="stalled", good=False)))
    above = bad[: bad.index("<main>")]
    assert "did not finish well: do not rely on its numbers. It ended with: stalled" in above
    assert "the residual no longer falls" in above
    verdict = {"agrees": False, "verdict": "The data disagree with the model: they scatter 9 times too much."}
    off = report.render(chain(attributes=attributes(fit_check=verdict)))
    assert "scatter 9 times too much" in off[: off.index("<main>")]
    assert 'class="check-card bad"' in off
    assert off.count("scatter 9 times too much") == 1, "the card beside the map repeats the warning above it"
    fine = report.render(chain(attributes=attributes(fit_check={"agrees": True, "verdict": "Fine."})))
    assert 'class="check-card good"' in fine
    assert "notices" not in fine[fine.index("<header>") : fine.index("<main>")]


def test_counts_and_individuals_share_a_scale() -> None:
    """The page carries how many counts one individual gives: one number, or one per row."""
    assert data_of(report.render(chain()))["rate"] is None
    assert data_of(report.render(chain(attributes=attributes(counts_per_individual=0.4))))["rate"] == 0.4
    each = [0.5, None, *[0.25] * 52]
    assert data_of(report.render(chain(attributes=attributes(counts_per_individual=each))))["rate"] == each


def test_degrees_get_ground() -> None:
    """Places in degrees come with land in km on a projection; plain ones with none; the land holds the middle of France."""
    result = chain()
    here = result.coordinates.assign(x=result.coordinates["x"] + 2, y=result.coordinates["y"] + 46)
    data = data_of(
        report.render(dataclasses.replace(result, coordinates=here, attributes=attributes(geographic=True)))
    )
    ground = data["places"]["ground"]
    assert data_of(report.render(result))["places"]["ground"] is None
    assert data["places"]["spacing"] == pytest.approx(75, abs=8)  # km a degree of longitude at 47°
    rings = [np.cumsum(np.reshape(steps, (-1, 2)), axis=0) * ground["unit"] for steps in ground["land"]]
    middle = np.array([0.0, 0.0]) - (ground["x"], ground["y"])
    assert sum(Outline(ring).contains_point(middle) for ring in rings) % 2 == 1


def test_engines_that_promise_less_say_so() -> None:
    """Means that may be negative, flows that need not add up, and absent intervals are each announced."""
    result = chain(attributes=attributes(means_non_negative=False, means_consistent=False))
    none = dict.fromkeys(("median", "sd", "lower", "upper"), np.nan)
    result = dataclasses.replace(result, nodes=result.nodes.assign(**none), flows=result.flows.assign(**none))
    text = report.render(result)
    for said in ("does not keep means at or above zero", "does not make flows add up"):
        assert said in text
    assert "does not keep means" not in report.render(chain())


def test_doubtful_numbers_are_counted() -> None:
    """The page says how many wide intervals are not reliable, and nothing where there are none or all is in doubt."""
    result = chain()
    wide = [(t["upper"] - t["lower"] >= 1) for t in (result.nodes, result.flows)]
    poor = [(w & ~t["reliable"]).sum() for w, t in zip(wide, (result.nodes, result.flows), strict=True)]
    said = f"{poor[0]} of {wide[0].sum()} counts and {poor[1]} of {wide[1].sum()} flows whose range"
    assert said in report.render(result)
    check = result.attributes.get("fit_check", {}) | {"flow_doubt": "only the scatter tells them"}
    doubted = report.render(dataclasses.replace(result, attributes=result.attributes | {"fit_check": check}))
    assert WHY[SCATTER] in doubted
    assert f"{poor[1]} of {wide[1].sum()} flows whose range" not in doubted
    sure = dataclasses.replace(
        result, nodes=result.nodes.assign(reliable=True), flows=result.flows.assign(reliable=True)
    )
    assert "marked as not reliable" not in report.render(sure)
    assert "marked as not reliable" not in report.render(
        chain(attributes=attributes(good=False, status="stalled"))
    )


def test_the_page_of_an_engine_without_ranges_does_not_speak_of_them() -> None:
    """`MAP` has no ranges: no sentence, tile, warning or legend of its page says anything about them."""
    none = dict.fromkeys(("median", "sd", "lower", "upper"), np.nan) | {"reliable": False}
    for check in (
        {"agrees": True, "verdict": "The data agree with the model."},
        {"agrees": False, "verdict": "No."},
    ):
        known = attributes(engine="MAP", fit_check=check)
        result = chain(attributes=known)
        result = dataclasses.replace(
            result, nodes=result.nodes.assign(**none), flows=result.flows.assign(**none)
        )
        text = report.render(result)
        shown = " ".join(
            said for where, said in Reader(text).texts if where not in {"script", "style", "option"}
        )
        assert not re.search(r"\brange|\binterval|uncertain|\breliable", shown, re.IGNORECASE)
        trust = data_of(text)["trust"]
        assert trust["ranges"] is False
        assert "range" not in trust["warning"]


def test_the_top_of_a_page_needs_no_terminal() -> None:
    """What to type, in Python or in a terminal, is under "About"; above the map stands what it means."""
    verdict = 'The data disagree with the model: 2 times. A dispersion helps: dispersion="estimate" (--dispersion estimate).'
    text = report.render(chain(attributes=attributes(fit_check={"agrees": False, "verdict": verdict})))
    above = text[text.index("<header>") : text.index('id="about"')]
    assert "The data disagree with the model: 2 times. No range on this page can be relied on." in above
    assert "90 % ranges in brackets, in doubt" in above
    assert "--dispersion" not in above
    assert "--dispersion" in text[text.index('id="about"') : text.index("<footer>")]


def test_lists_of_a_check_come_back_as_lists(tmp_path: Path) -> None:
    """No doubts are an empty list in a file, not a text that reads as a doubt: a page of data that agree does not warn."""
    world = hc.simulate.birds(side=3, steps=4, weights=(1, 2, 2, 2), population=300, rng=1)
    post = hc.infer(hc.Problem(world.model, population=300, observations=[hc.Poisson(world.observed)]))
    post.save(tmp_path / "post.nc")
    check = load(tmp_path / "post.nc").fit_check
    assert check["doubts"] == list(post.fit_check.doubts) == []
    page = report.render(load(tmp_path / "post.nc").result)
    assert "No range on this page" not in page


def test_learning_is_told() -> None:
    """After a fit the page has the weights, the ascent and how learning went."""
    ascent = pd.DataFrame({"iteration": [0, 1], "objective": [-9.0, -8.0], "residual": [1.0, 0.1]})
    weights = pd.DataFrame({"feature": ["wind"], "weight": [1.234567], "standard_error": [np.nan]})
    known = attributes(fit={"status": "converged", "method": "ascent", "e_steps": 12, "seconds": 3.25})
    text = report.render(chain(attributes=known, ascent=ascent, weights=weights))
    assert "<dd>converged by ascent, 12 runs of the engine, 3.25 s</dd>" in text
    assert "<dd>1 weight, learned</dd>" in text
    data = data_of(text)
    assert data["weights"] == {"feature": ["wind"], "weight": [1.2346], "standard_error": [None]}
    assert data["ascent"]["objective"] == [-9.0, -8.0]


def test_sums_are_checked_from_the_tables() -> None:
    """The page measures itself whether counts sum to N."""
    result = chain()
    off = dataclasses.replace(result, nodes=result.nodes.assign(mean=result.nodes["mean"] + 1.0))
    assert "within 9, checked here" in report.render(off)
    found = re.search(r"within (\S+), checked here", report.render(result))
    assert found
    assert float(found[1]) < 1e-9 * POPULATION


def test_what_is_left_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that cannot carry everything keeps the largest, of every time, and says how much it keeps."""
    monkeypatch.setattr(_payload, "MOST_FLOWS", 50)
    result = chain()
    text = report.render(result)
    data = data_of(text)
    assert "the 50 largest of 405 flows" in text
    for t in range(5):
        kept = sorted(m for m, s in zip(data["flows"]["mean"], data["flows"]["t"], strict=True) if s == t)
        largest = sorted(result.flows.query("time == @t")["mean"].nlargest(10))
        np.testing.assert_allclose(kept, largest, rtol=1e-4)
    monkeypatch.setattr(_payload, "MOST_COUNTS", 24)
    text = report.render(result)
    assert "the 4 fullest of 9 cells" in text
    fullest = result.nodes.groupby("cell")["mean"].sum().nlargest(4).index
    assert set(data_of(text)["cells"]) == {str(c) for c in fullest}
    monkeypatch.undo()
    assert "To stay small" not in report.render(result)


@pytest.mark.parametrize(
    ("times", "kind", "first"),
    [
        (list(pd.date_range("2024-03-01", periods=6)), "date", "2024-03-01"),
        ([0.5, 1.5, 2.0, 4.0, 8.0, 9.0], "number", "0.5"),
        (list("abcdef"), "name", "a"),
    ],
)
def test_times_keep_their_kind(times: list[Any], kind: str, first: str) -> None:
    """Dates are dates, numbers numbers, names names; midnight is not printed."""
    data = data_of(report.render(relabelled(chain(), list("ABCDEFGHI"), times)))
    assert data["timeKind"] == kind
    assert data["times"][0] == first


def test_results_without_places_or_times(page: str) -> None:
    """No coordinates, no chain: still a page, which knows it."""
    assert data_of(page)["places"]["spacing"] == 1.0
    assert data_of(report.render(chain(places=False)))["places"] is None
    data = data_of(report.render(network()))
    assert data["kind"] == "network"
    assert data["times"] == ["sex", "age"]
    assert [data["cells"][k] for k in data["flows"]["d"]] == ["young", "middle", "old"] * 2


def test_one_time_only() -> None:
    """A chain of one time has no flows and still a page."""
    result = chain(steps=2)
    flows = result.flows.iloc[:0]
    single = Result(result.nodes.query("time == 0"), flows, result.trace.iloc[:0], result.attributes)
    data = data_of(report.render(single))
    assert data["flows"]["mean"] == []
    assert data["trace"] is None


def test_file_is_written_whole(tmp_path: Path) -> None:
    """`write` returns the path of one file; by default it stands beside the result's own."""
    result = chain()
    path = report.write(result, tmp_path / "deep" / "page.html")
    assert path.read_text(encoding="utf-8") == report.render(result)
    assert [p.name for p in path.parent.iterdir()] == ["page.html"]
    placed = dataclasses.replace(result, path=tmp_path / "results" / "posterior.nc")
    assert report.write(placed) == tmp_path / "results" / "report.html"
    with pytest.raises(ValueError, match="give path"):
        report.write(result)


def test_demo_stays_below_eight_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """36 cells and 20 times, every flow included and plotly itself, make a page of less than 8 MB."""
    monkeypatch.setattr(_page, "plotly_script", PLOTLY)
    result = chain(side=6, steps=20)
    assert len(result.flows) == 19 * 36**2
    text = report.render(result)
    assert 4e6 < len(text.encode()) < 8e6
    assert len(data_of(text)["flows"]["mean"]) == len(result.flows)
    assert str(POPULATION) in text


def test_comparison_is_said_in_a_sentence(tmp_path: Path) -> None:
    """How many counts clearly differ, where most, whose evidence is larger; labels are escaped; tables lie beside the page."""
    better = chain(seed=2, attributes=attributes(log_evidence=-4.0))
    better = dataclasses.replace(better, nodes=better.nodes.assign(observed=chain().nodes["observed"]))
    found, files = report.compare(chain(), better, tmp_path / "c", names=("before", EVIL[0]))
    text = files[-1].read_text(encoding="utf-8")
    assert f"{found.nodes['clear'].sum()} of 54 counts clearly differ" in text
    assert "its log evidence is larger by 5.0" in text
    assert "<script>window.pwned" not in text
    assert [f.name for f in files] == ["nodes.csv", "flows.csv", "comparison.html"]
    assert len(pd.read_csv(files[1])) == len(chain().flows)
    same, _ = report.compare(chain(), chain(), tmp_path / "same")
    assert not same.nodes["clear"].any()
    assert "No count differs clearly" in (tmp_path / "same" / "comparison.html").read_text(encoding="utf-8")


def test_no_difference_is_clear_where_a_range_is_in_doubt(tmp_path: Path) -> None:
    """If the data of one of two results disagree with its model, the page of the comparison calls nothing clear and says why."""
    off = chain(seed=2, attributes=attributes(fit_check={"agrees": False, "verdict": "No."}))
    _, files = report.compare(chain(), off, tmp_path / "c", names=("before", "after"))
    text = files[-1].read_text(encoding="utf-8")
    assert not any(data_of(text)["comparison"]["nodes"]["clear"])
    assert (
        "Whether it is more than chance cannot be said. after: The counts do not agree with the model" in text
    )


def named_run(folder: Path) -> Path:
    """A run from tables whose cells have numbers and names; two share one."""
    (folder / "cells.csv").write_text(
        "cell,name,lon,lat\n1,Föhr Nord,8.5,54.7\n2,Sylt,8.3,54.9\n3,Sylt,8.4,54.8\n", encoding="utf-8"
    )
    (folder / "counts.csv").write_text(
        "time,cell,count\n0,1,30\n0,2,20\n0,3,10\n1,1,28\n1,2,19\n1,3,12\n2,1,20\n"
    )
    moves = [f"{i},{j},{0.8 if i == j else 0.1}" for i in (1, 2, 3) for j in (1, 2, 3)]
    (folder / "moves.csv").write_text("from,to,probability\n" + "\n".join(moves) + "\n")
    case = read_problem(
        folder / "counts.csv",
        transitions=folder / "moves.csv",
        cells=folder / "cells.csv",
        population=60,
        noise="poisson",
    )
    write_results(hc.infer(case.problem), folder / "out", names=case.names)
    return folder / "out"


def test_cells_are_called_by_their_names(tmp_path: Path) -> None:
    """Names of cells.csv are on the page, in the tables and in exports, beside the labels, which stay what tables are joined by."""
    out = named_run(tmp_path)
    nodes, flows = pd.read_csv(out / "nodes.csv"), pd.read_csv(out / "flows.csv")
    assert nodes["cell"].tolist() == [1, 2, 3] * 3
    assert nodes["name"].tolist() == ["Föhr Nord", "Sylt", "Sylt"] * 3
    assert set(zip(flows["dest"], flows["dest_name"], strict=True)) == {
        (1, "Föhr Nord"),
        (2, "Sylt"),
        (3, "Sylt"),
    }
    lines = json.loads((out / "flows.geojson").read_text(encoding="utf-8"))["features"]
    assert lines[0]["properties"]["origin_name"] == "Föhr Nord"
    page = report.render(load_result(out))
    data = data_of(page)
    assert data["cells"] == ["Föhr Nord", "Sylt (2)", "Sylt (3)"]
    assert data["labels"] == ["1", "2", "3"]
    assert "The fullest cell at time 0 is Föhr Nord" in page
    export(out, tmp_path / "web")
    assert pd.read_csv(tmp_path / "web" / "locations.csv")["name"].tolist() == ["Föhr Nord", "Sylt", "Sylt"]
    assert data_of(report.render(chain()))["labels"] is None


def test_names_of_areas_are_read(tmp_path: Path) -> None:
    """A property `name` of GeoJSON names the cells whose label is another property."""
    square = [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]
    features = [
        {
            "type": "Feature",
            "properties": {"cell": k, "name": name},
            "geometry": {"type": "Polygon", "coordinates": square},
        }
        for k, name in ((1, "Mitte"), (2, None))
    ]
    (tmp_path / "zones.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    (tmp_path / "counts.csv").write_text("time,cell,count\n0,1,3\n0,2,2\n1,1,3\n1,2,2\n")
    (tmp_path / "moves.csv").write_text("from,to,probability\n1,1,1\n2,2,1\n")
    case = read_problem(
        tmp_path / "counts.csv",
        transitions=tmp_path / "moves.csv",
        cells=tmp_path / "zones.geojson",
        population=5,
        noise="poisson",
    )
    assert case.names == {1: "Mitte"}


def test_own_lines_lie_under_the_map(tmp_path: Path) -> None:
    """Lines of a GeoJSON file are drawn where the cells' places say, clipped to the map; a file without lines is refused."""
    roads = {"type": "GeometryCollection", "geometries": [
        {"type": "LineString", "coordinates": [[0, 1], [2, 1]]},
        {"type": "MultiLineString", "coordinates": [[[900, 900], [901, 901]]]},
    ]}  # fmt: skip
    (tmp_path / "roads.json").write_text(json.dumps(roads))
    path = report.write(chain(), tmp_path / "page.html", background=tmp_path / "roads.json")
    drawn = data_of(path.read_text(encoding="utf-8"))["places"]["lines"]
    (line,) = [
        np.cumsum(np.reshape(steps, (-1, 2)), axis=0) * drawn["unit"] + (drawn["x"], drawn["y"])
        for steps in drawn["lines"]
    ]
    np.testing.assert_allclose(line, [[0, 1], [2, 1]], atol=drawn["unit"])
    (tmp_path / "none.json").write_text('{"type": "FeatureCollection", "features": []}')
    with pytest.raises(ValueError, match="there are no lines in it"):
        report.write(chain(), tmp_path / "page.html", background=tmp_path / "none.json")


@pytest.mark.parametrize(
    "tiles",
    ["https://a.org/{z}/{x}.png", "ftp://a.org/{z}/{x}/{y}", "https://a.org;script-src *;/{z}/{x}/{y}"],
)
def test_addresses_of_tiles_are_checked(tmp_path: Path, tiles: str) -> None:
    """An address must have {z}, {x} and {y} and nothing that could widen the page's policy."""
    with pytest.raises(ValueError, match="give an address like"):
        report.write(chain(), tmp_path / "page.html", tiles=tiles)


def test_midnight_is_an_hour_among_hours() -> None:
    """Where times have hours, midnight is said as 00:00; where all are midnights, dates are dates."""
    hours = relabelled(
        chain(), list("ABCDEFGHI"), list(pd.date_range("2024-03-01 20:00", periods=6, freq="h"))
    )
    assert "on 1 March 2024, 20:00" in _page.finding(hours)
    late = relabelled(chain(), list("ABCDEFGHI"), list(pd.date_range("2024-03-01", periods=6, freq="12h")))
    assert "on 1 March 2024, 00:00" in _page.finding(late)
    days = relabelled(chain(), list("ABCDEFGHI"), list(pd.date_range("2024-03-01", periods=6)))
    assert "on 1 March 2024 is" in _page.finding(days)


def two_margins() -> Result:
    """A table with two margins, as a chain of one step called entries and exits."""
    return relabelled(chain(steps=2), [f"zone {k}" for k in range(9)], ["entries", "exits"])


def test_a_table_with_two_margins_has_no_time() -> None:
    """Its page is called so, and speaks of both totals and the largest flow by their names, not of times; longer chains are not."""
    result = two_margins()
    text = report.render(result)
    assert data_of(text)["margins"] == {"before": None}
    assert "<h1>Who went from where to where</h1>" in text
    found = _page.finding(result)
    top = result.flows.loc[result.flows["mean"].idxmax()]
    assert found.startswith("Most entries: zone ")
    assert f"from {top['origin']} to {top['dest']}" in found
    assert "at time" not in found
    assert '<a href="#series">' not in text
    assert data_of(report.render(chain(steps=3)))["margins"] is None


def test_the_old_matrix_stands_beside_the_new_one(tmp_path: Path) -> None:
    """An old matrix, given or in `changes.csv` beside the result, is carried as it is: pair by pair, what was not there is zero."""
    result = dataclasses.replace(two_margins(), path=tmp_path / "posterior.nc")
    old = pd.DataFrame({"origin": ["zone 0", "zone 3"], "dest": ["zone 1", "zone 3"], "before": [7.0, 2.5]})
    given = report.write(result, tmp_path / "given.html", before=old)
    old.assign(mean=1.0).to_csv(tmp_path / "changes.csv", index=False)
    beside = report.write(result, tmp_path / "beside.html")
    for path in (given, beside):
        before = np.array(data_of(path.read_text(encoding="utf-8"))["margins"]["before"])
        assert before[0, 1] == 7.0
        assert before[3, 3] == 2.5
        assert before.sum() == 9.5


def test_sums_have_the_spread_of_joint_draws(tmp_path: Path) -> None:
    """Sds of sums in a file are those of its draws of flows; a page carries them, and none where there are no ranges."""
    world = hc.simulate.birds(side=3, steps=4, weights=(1, 2, 2, 2), population=300, rng=1)
    post = hc.infer(hc.Problem(world.model, population=300, observations=[hc.Poisson(world.observed)]))
    post.save(tmp_path / "post.nc", draw_flows=True)
    stored = load(tmp_path / "post.nc")
    sums = stored.result.sums
    times = stored.result.times
    drawn = [stored.sample()[pair].to_numpy() for pair in itertools.pairwise(times)]
    off = ~np.eye(9, dtype=bool)
    moved = np.stack([f[:, off].sum(axis=1) for f in drawn])
    np.testing.assert_allclose(sums.moved, moved.std(axis=1, ddof=1))
    np.testing.assert_allclose(sums.whole, moved.sum(axis=0).std(ddof=1))
    np.testing.assert_allclose(sums.pairs[2, 5], sum(f[:, 2, 5] for f in drawn).std(ddof=1))
    counts = [stored.sample()[(t,)].to_numpy() for t in times[1:3]]
    np.testing.assert_allclose(sums.net[1, 4], (counts[1] - counts[0])[:, 4].std(ddof=1))
    np.testing.assert_allclose(
        sums.into[0, 4], (drawn[0].sum(axis=1) - drawn[0][:, 4, 4][:, None])[:, 4].std(ddof=1)
    )
    np.testing.assert_array_equal(sums.present, 0.0)  # everybody is somewhere
    one = post.connectivity({"a": [stored.result.cells[0]]}, None, times[0], times[-1], draws=1000, rng=1)
    left = drawn[0][:, 0].sum(axis=1).mean()
    assert sums.through[0].sum() == pytest.approx((left * one["sd"]).sum(), rel=0.2)
    data = data_of(report.render(stored.result))
    np.testing.assert_allclose(data["sums"]["moved"], sums.moved, rtol=5e-3)
    np.testing.assert_allclose(data["sums"]["through"], sums.through, rtol=5e-3)
    assert (
        data_of(report.write(post, tmp_path / "page.html").read_text(encoding="utf-8"))["sums"]
        == data["sums"]
    )
    point = hc.infer(post.problem, engine=hc.engines.MAP())
    assert data_of(report.write(point, tmp_path / "map.html").read_text(encoding="utf-8"))["sums"] is None


def test_how_much_of_a_move_the_data_tell() -> None:
    """1 − Σ var(n | y)/Σ var(n): nothing without observations, all where flows are known, between them where counts are."""
    world = hc.simulate.birds(side=3, steps=3, weights=(1, 2, 2, 2), population=200, rng=1)

    def told(*observations: Any) -> float:
        post = hc.infer(
            hc.Problem(world.model, population=200, observations=list(observations)),
            engine=hc.engines.TiltedEP(),
        )
        found = Result.of(post).attributes["told_by_data"]
        assert found is not None
        return float(found)

    assert told() == pytest.approx(0.0, abs=1e-6)
    exact = [hc.Exact(world.flows[t], on=(t, t + 1)) for t in range(2)]
    assert told(*exact) == pytest.approx(1.0, abs=1e-6)
    assert 0.01 < told(hc.Poisson(world.observed)) < 0.9


def test_an_unknown_number_is_said_first() -> None:
    """Where N was not known the first sentence says about how many there are, with the range."""
    known = {"mean": 612.0, "sd": 20.0, "lower": 580.0, "upper": 645.0, "law": "Unknown()", "note": ""}
    result = chain(attributes=attributes(population_estimate=known))
    assert (
        _page.finding(result)
        .replace("\u2060", "")
        .startswith("There are about 612 (580–645) individuals. The fullest cell")
    )
    assert data_of(report.render(result))["size"] == {"mean": 612, "lower": 580, "upper": 645}


def test_two_evidences_are_told_apart() -> None:
    """Where the evidence at the estimate is not the posterior's, the page names both; where they agree it has one."""
    apart = report.render(
        chain(attributes=attributes(log_evidence=-12.5, fit={"status": "converged", "evidence": -10.0}))
    )
    assert "−10.00 nats: what the search maximised" in apart
    same = report.render(
        chain(attributes=attributes(log_evidence=-10.0, fit={"status": "converged", "evidence": -10.0}))
    )
    assert "what the search maximised" not in same
