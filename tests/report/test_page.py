"""The page as a text: complete, harmless whatever the labels, and true to the result."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
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

from headcount import report
from headcount.io import Result
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
    assert "do not rely on these numbers" in above
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
    for said in ("does not keep means at or above zero", "does not make flows add up", "gives means only"):
        assert said in text
    assert "does not keep means" not in report.render(chain())


def test_doubtful_numbers_are_counted() -> None:
    """The page says how many wide intervals are not reliable, and nothing where there are none or all is in doubt."""
    result = chain()
    wide = [(t["upper"] - t["lower"] >= 1) for t in (result.nodes, result.flows)]
    poor = [(w & ~t["reliable"]).sum() for w, t in zip(wide, (result.nodes, result.flows), strict=True)]
    said = f"{poor[0]} of {wide[0].sum()} counts and {poor[1]} of {wide[1].sum()} flows whose interval"
    assert said in report.render(result)
    check = result.attributes.get("fit_check", {}) | {"flow_doubt": "only the scatter tells them"}
    doubted = report.render(dataclasses.replace(result, attributes=result.attributes | {"fit_check": check}))
    assert "as not reliable: only the scatter tells them." in doubted
    sure = dataclasses.replace(
        result, nodes=result.nodes.assign(reliable=True), flows=result.flows.assign(reliable=True)
    )
    assert "marked as not reliable" not in report.render(sure)
    assert "marked as not reliable" not in report.render(
        chain(attributes=attributes(good=False, status="stalled"))
    )


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
