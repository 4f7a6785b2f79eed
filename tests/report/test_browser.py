"""The page in a real browser: it moves, answers, sorts, and keeps to itself."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from headcount import report
from headcount.io import Result
from headcount.posterior._sums import ChainSums
from sample_results import attributes, chain, network, relabelled

if TYPE_CHECKING:
    from conftest import Browser

pytestmark = pytest.mark.browser

RESULT = chain()
WICKED = [
    "</script><script>window.pwned=1</script>",
    '<img src=x onerror="window.pwned=1">',
    "<b>%{x}</b><a href='#'>y</a>",
    *(f"zone {k}" for k in range(6)),
]

NONE = dict.fromkeys(("median", "sd", "lower", "upper"), np.nan) | {"reliable": False}

SUMS = ChainSums(
    present=np.zeros(6),
    moved=np.full(5, 10.0),
    into=np.full((5, 9), 3.0),
    out=np.full((5, 9), 4.0),
    net=np.full((5, 9), 5.0),
    pairs=np.full((9, 9), 2.0),
    through=np.where(np.arange(9) < 8, 1.5, 0.0) * np.ones((9, 1)),
    whole=np.array(30.0),
)


def two_margins() -> Result:
    """A table with two margins, on a map."""
    return relabelled(chain(steps=2), [f"zone {k}" for k in range(9)], ["entries", "exits"])


def long_names() -> Result:
    """Many individuals, hours, and cells with long names."""
    many = chain(attributes=attributes(population=1_234_567))
    big = {name: getattr(many, name).copy() for name in ("nodes", "flows")}
    for table in big.values():
        table[["mean", "median", "sd", "lower", "upper"]] *= 2057.6
    # The fullest cell lies in the upper right corner of a broad map, where the zoom buttons are.
    fullest = int(many.nodes[many.nodes["time"] == 1].nlargest(1, "mean")["cell"].iloc[0])
    here = many.coordinates.assign(x=1.6 * many.coordinates["x"]).set_index("cell")
    here.loc[[fullest, 8]] = here.loc[[8, fullest]].to_numpy()
    big["coordinates"] = here.reset_index()
    names = [f"San Francisco Caltrain {k} (Townsend at 4th)" for k in range(9)]
    hours = list(pd.date_range("2024-03-01", periods=6, freq="h"))
    return relabelled(dataclasses.replace(many, **big), names, hours)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    dated = relabelled(RESULT, WICKED, list(pd.date_range("2024-03-01", periods=6, freq="7D")))
    places = dated.coordinates.assign(x=dated.coordinates["x"] + 7, y=dated.coordinates["y"] + 46)
    learned = pd.DataFrame({"iteration": [1, 2], "objective": [-9.0, -8.0], "residual": [1.0, 0.1]})
    wicked = dataclasses.replace(
        dated, coordinates=places, attributes=attributes(geographic=True, notes=WICKED), ascent=learned,
        weights=pd.DataFrame({"feature": WICKED[:2], "weight": [1.0, 2.0]}),
    )  # fmt: skip
    crowd = chain(side=12, steps=2)
    long = chain(steps=60)
    long = relabelled(long, list(long.cells), list(pd.date_range("2024-01-25", periods=60, freq="D")))
    one = (long.nodes["cell"] == 4) & (long.nodes["time"] == long.times[30])
    long = dataclasses.replace(long, nodes=long.nodes.assign(mean=long.nodes["mean"].where(~one, 1e4)))
    mean = RESULT.nodes["mean"]
    exact = RESULT.nodes.assign(sd=0.0, lower=mean, median=mean, upper=mean)
    far = crowd.coordinates.assign(x=crowd.coordinates["x"].where(crowd.coordinates["cell"] > 0, 300.0))
    results = {
        "map": RESULT,
        "bars": chain(places=False),
        "network": network(),
        "wicked": wicked,
        "rate": chain(attributes=attributes(counts_per_individual=0.4), check=checked(RESULT)),
        "areas": dataclasses.replace(RESULT, shapes=squares(RESULT)),
        "exact": dataclasses.replace(RESULT, nodes=exact),
        "outlier": long,
        "doubt": chain(attributes=attributes(fit_check={"agrees": False, "verdict": "No."})),
        "means only": dataclasses.replace(
            RESULT, nodes=RESULT.nodes.assign(**NONE), flows=RESULT.flows.assign(**NONE)
        ),
        "margins": two_margins(),
        "zones": relabelled(
            chain(side=8, steps=2), [f"Zone {k} (Z{k:02d})" for k in range(64)], ["in", "out"]
        ),
        "long names": long_names(),
        "sums": dataclasses.replace(RESULT, sums=SUMS, attributes=attributes(told_by_data=0.08)),
        "unknown": dataclasses.replace(
            RESULT,
            sums=dataclasses.replace(SUMS, present=np.full(6, 7.0)),
            attributes=attributes(
                population_estimate={
                    "mean": 600.0,
                    "sd": 7.0,
                    "lower": 588.0,
                    "upper": 612.0,
                    "law": "About(500, 100)",
                }
            ),
        ),
        "many": dataclasses.replace(crowd, coordinates=far),
        "wicked bars": dataclasses.replace(wicked, coordinates=None),
    }
    return {name: report.write(result, folder / f"{name}.html") for name, result in results.items()}


def checked(result: Result) -> pd.DataFrame:
    """A check of every count: residuals that rise with the cell, and their PIT."""
    table = result.nodes[["time", "cell"]].assign(sd=1.0, residual=result.nodes["cell"] / 2 - 2.0)
    return table.assign(pit=(table["cell"] + 0.5) / 9)


def squares(result: Result) -> dict[Any, list[np.ndarray]]:
    """A unit square around every cell."""
    corners = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]])
    places = result.coordinates[["x", "y"]].to_numpy()
    return {cell: [p + corners] for cell, p in zip(result.coordinates["cell"].tolist(), places, strict=True)}


def move_to(browser: Browser, spot: dict[str, float], *, click: bool = False) -> None:
    """Bring the mouse to a spot of the window, as a hand would."""
    from selenium.webdriver.common.actions.action_builder import ActionBuilder

    for step in (3, 0):
        action = ActionBuilder(browser.driver)
        action.pointer_action.move_to_location(int(spot["x"]) - step, int(spot["y"]))
        if click and step == 0:
            action.pointer_action.click()
        action.perform()


def spot_of(browser: Browser, selector: str) -> dict[str, float]:
    """Where on the window a mark of the map is drawn."""
    return browser.run(
        """
        const mark = document.querySelector(arguments[0]);
        mark.scrollIntoView({block: 'center', behavior: 'instant'});
        if (mark.isPointInFill && mark.tagName === 'path') {
            const half = mark.getPointAtLength(mark.getTotalLength() / 2), frame = mark.getScreenCTM();
            const spot = half.matrixTransform(frame);  // the tip: a little inside of it
            const other = mark.getPointAtLength(0).matrixTransform(frame);
            return { x: 0.9 * spot.x + 0.1 * other.x, y: 0.9 * spot.y + 0.1 * other.y };
        }
        const box = mark.getBoundingClientRect();
        return { x: box.left + box.width / 2, y: box.top + box.height / 2 };
        """,
        selector,
    )


def tip_text(browser: Browser) -> str:
    from selenium.webdriver.support.ui import WebDriverWait

    read = "const tip = document.getElementById('tip'); return tip.hidden ? '' : tip.innerText"
    return WebDriverWait(browser.driver, 60).until(lambda d: d.execute_script(read)).replace("\u00a0", " ")


def pick(browser: Browser, box: str, value: str) -> None:
    browser.run(
        "const box = document.getElementById(arguments[0]); box.value = arguments[1]; "
        "box.dispatchEvent(new Event('change', { bubbles: true }))",
        box,
        value,
    )


def column(browser: Browser, table: str, index: int) -> list[str]:
    return browser.run(
        "return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)].map((r) => r.cells[arguments[1]].textContent)",
        table,
        index,
    )


def moves_at(time: int) -> pd.DataFrame:
    return RESULT.flows[(RESULT.flows["time"] == time) & (RESULT.flows["origin"] != RESULT.flows["dest"])]


def number(text: str) -> float:
    return float(text.replace("\u202f", "").replace("−", "-").replace("< ", ""))


def written(value: float) -> str:
    """A count as the page writes it."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


@pytest.mark.parametrize("name", ["map", "bars", "network", "wicked", "wicked bars"])
def test_pages_open_without_complaint_or_request(browser: Browser, pages: dict[str, Path], name: str) -> None:
    """Every kind of page draws its charts, complains of nothing and asks for nothing but itself."""
    browser.open(pages[name])
    browser.run("document.querySelectorAll('details:not([hidden])').forEach((d) => { d.open = true; })")
    browser.run("document.getElementById('theme').click()")
    complaints, asked = browser.logs()
    assert complaints == []
    assert asked[0] == pages[name].as_uri()
    assert [url for url in asked[1:] if not url.startswith(("data:", "blob:"))] == []
    assert browser.run("return window.pwned") is None
    assert browser.run("return document.querySelectorAll('.chart .main-svg').length") > 0


def test_slider_moves_the_map(browser: Browser, pages: dict[str, Path]) -> None:
    """An arrow key on the slider goes one time on, Home to the first; label, discs and the numbers beside follow."""
    from selenium.webdriver.common.keys import Keys

    browser.open(pages["map"])
    slider = browser.driver.find_element("id", "time")
    before = int(slider.get_attribute("value"))
    for key, time in ((Keys.ARROW_RIGHT, before + 1), (Keys.HOME, 0)):
        slider.send_keys(key)
        assert browser.driver.find_element("id", "time-label").text == f"time {time}"
        rows = RESULT.nodes[RESULT.nodes["time"] == time].set_index("cell")
        radii = browser.run(
            "return Object.fromEntries([...document.querySelectorAll('.discs .disc')]"
            ".map((d) => [d.dataset.cell, Number(d.getAttribute('r'))]))"
        )
        big = rows["mean"].nlargest(4)
        areas = [radii[str(cell)] ** 2 for cell in big.index]
        assert areas == pytest.approx((big / big.iloc[0] * areas[0]).tolist(), rel=0.02)
        chosen = int(browser.run("return document.getElementById('cell').value"))
        beside = browser.driver.find_element("css selector", "#here .big").text
        assert beside == written(rows["mean"][chosen])


def test_play_walks_through_time(browser: Browser, pages: dict[str, Path]) -> None:
    """Play moves the slider by itself, and touching the slider stops it."""
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait

    browser.open(pages["map"])
    slider = browser.driver.find_element("id", "time")
    before = int(slider.get_attribute("value"))
    browser.run("document.getElementById('play').click()")
    WebDriverWait(browser.driver, 60).until(lambda _: int(slider.get_attribute("value")) > before)
    slider.send_keys(Keys.ARROW_LEFT)
    assert browser.driver.find_element("id", "play").get_attribute("aria-label") == "Play"


def test_play_animates_between_times(browser: Browser, pages: dict[str, Path]) -> None:
    """Between two times what moves is on its way along its arrow, one mark per arrow; at a stop nothing is left half-way."""
    from selenium.webdriver.support.ui import WebDriverWait

    browser.open(pages["map"])
    pick(browser, "speed", "0.5")
    browser.run("document.getElementById('play').click()")
    on_the_way = "return [...document.querySelectorAll('.packet')].map((p) => p.getAttribute('cx')).join()"
    first = WebDriverWait(browser.driver, 60).until(lambda d: d.execute_script(on_the_way))
    assert len(first.split(",")) == 30
    WebDriverWait(browser.driver, 60).until(lambda d: d.execute_script(on_the_way) != first)
    browser.run("document.getElementById('play').click()")
    assert browser.run("return document.querySelectorAll('.packet').length") == 0


def test_hovering_a_cell_shows_its_numbers(browser: Browser, pages: dict[str, Path]) -> None:
    """The mouse over a disc shows the mean and the range of that cell at that time."""
    browser.open(pages["map"])
    time = int(browser.run("return document.getElementById('time').value"))
    row = RESULT.nodes.set_index(["time", "cell"]).loc[time, 4]
    pick(browser, "arrows", "0")
    move_to(browser, spot_of(browser, ".disc[data-cell='4']"))
    shown = tip_text(browser)
    assert shown.startswith("cell 4\n")
    assert f"{written(row['mean'])} individuals" in shown
    assert f"90 %: {written(row['lower'])} – {written(row['upper'])}" in shown


def test_the_fullest_cells_are_named(browser: Browser, pages: dict[str, Path]) -> None:
    """The cell with the largest count of the shown time has its name on the map."""
    browser.open(pages["map"])
    browser.run("const s = document.getElementById('time'); s.value = 3; s.dispatchEvent(new Event('input'))")
    here = RESULT.nodes[RESULT.nodes["time"] == 3]
    fullest = str(here.loc[here["mean"].idxmax(), "cell"])
    assert fullest in browser.run(
        "return [...document.querySelectorAll('.names text')].map((t) => t.textContent)"
    )


def test_the_legend_is_drawn_to_scale(browser: Browser, pages: dict[str, Path]) -> None:
    """The area of a sample disc per individual is that of the map's discs, and arrows have samples with their numbers."""
    browser.open(pages["map"])
    samples = browser.run(
        "return [...document.querySelectorAll('#legend svg')].map((s) => ({r: [...s.querySelectorAll('circle')].map((c) => "
        "+c.getAttribute('r')), arrows: s.querySelectorAll('path.arrow').length, "
        "texts: [...s.querySelectorAll('text')].map((t) => t.textContent)}))"
    )
    discs = next(sample for sample in samples if sample["r"])
    first = int(browser.run("return document.getElementById('time').value"))
    here = RESULT.nodes[RESULT.nodes["time"] == first]
    cell, most = int(here.loc[here["mean"].idxmax(), "cell"]), float(here["mean"].max())
    radius = browser.run(
        f"return +document.querySelector('circle.disc[data-cell=\"{cell}\"]').getAttribute('r')"
    )
    for r, text in zip(discs["r"], discs["texts"], strict=True):
        assert r**2 / number(text) == pytest.approx(radius**2 / most, rel=0.03)
    arrows = next(sample for sample in samples if sample["arrows"])
    assert len(arrows["texts"]) == arrows["arrows"] >= 1


def test_long_times_have_a_strip_with_days(browser: Browser, pages: dict[str, Path]) -> None:
    """Over the slider lie the totals; each of sixty days has a tick, months are named where they begin, and no two names touch."""
    browser.open(pages["outlier"])
    assert browser.run("return document.querySelectorAll('#strip .tick').length") == 60
    named = browser.run(
        "return [...document.querySelectorAll('#strip text')].map((t) => "
        "({text: t.textContent, left: t.getBoundingClientRect().left, right: t.getBoundingClientRect().right}))"
    )
    assert [tick["text"] for tick in named] == ["25 Jan", "1 Feb", "1 Mar"]
    assert all(one["right"] <= other["left"] for one, other in pairwise(named))
    assert browser.run("return document.querySelectorAll('#strip .total').length") >= 1


def test_one_outlier_does_not_wash_out_the_rest(browser: Browser, pages: dict[str, Path]) -> None:
    """With one count of ten thousand among tens, the other cells still differ in colour."""
    browser.open(pages["outlier"])
    pick(browser, "colour", "change")
    colours = browser.run(
        "return [...document.querySelectorAll('.discs circle.disc')].filter((d) => d.dataset.cell !== '4')"
        ".map((d) => getComputedStyle(d).fill.match(/[0-9]+/g).slice(0, 3).map(Number))"
    )
    assert np.ptp(np.array(colours), axis=0).max() > 40, "all but the outlier have nearly one colour"


def test_rings_are_drawn_where_there_is_a_range(browser: Browser, pages: dict[str, Path]) -> None:
    """The ring around a disc is the upper end of its range; an exact count has no ring, which would only fray its rim."""
    count = "return document.querySelectorAll('circle.upper').length"
    browser.open(pages["map"])
    assert browser.run(count) > 0
    browser.open(pages["exact"])
    assert browser.run("return document.querySelectorAll('circle.disc').length") > 0
    assert browser.run(count) == 0


def test_hovering_an_arrow_shows_its_uncertainty(browser: Browser, pages: dict[str, Path]) -> None:
    """The mouse over the largest arrow shows from where to where, the flow and its range."""
    browser.open(pages["map"])
    time = int(browser.run("return document.getElementById('time').value"))
    row = moves_at(time).nlargest(1, "mean").iloc[0]
    pick(browser, "arrows", "10")
    browser.run("document.querySelectorAll('.arrow:not([data-move=\"0\"])').forEach((a) => a.remove())")
    move_to(browser, spot_of(browser, ".arrow[data-move='0']"))
    shown = tip_text(browser)
    assert f"{int(row['origin'])} → {int(row['dest'])}" in shown
    assert f"{written(row['mean'])} individuals" in shown
    assert f"90 %: {written(row['lower'])} – {written(row['upper'])}" in shown


def test_arrows_obey_their_controls(browser: Browser, pages: dict[str, Path]) -> None:
    """No more arrows than asked for, none below the threshold, none of other cells if only one is wanted; they lie under the discs."""
    browser.open(pages["map"])
    count = "return document.querySelectorAll('#map-svg .arrow').length"
    time = int(browser.run("return document.getElementById('time').value"))
    moves = moves_at(time)
    assert browser.run(count) == 30
    layers = browser.run(
        "return [...document.querySelectorAll('#map-svg > g')].map((g) => g.getAttribute('class'))"
    )
    assert layers.index("ground") < layers.index("arrows") < layers.index("discs") < layers.index("names")
    pick(browser, "arrows", "10")
    assert browser.run(count) == 10
    pick(browser, "arrows", "300")
    pick(browser, "least", "5")
    assert browser.run(count) == (moves["mean"] >= 5).sum()
    browser.run("document.getElementById('only').click()")
    cell = int(browser.run("return document.getElementById('cell').value"))
    own = (moves["origin"] == cell) | (moves["dest"] == cell)
    assert browser.run(count) == (own & (moves["mean"] >= 5)).sum()


def kinds_of(browser: Browser) -> set[str]:
    """Classes of all arrows on the map and in the legend."""
    found = browser.run(
        "return [...document.querySelectorAll('path.arrow, #legend .arrow')].map((a) => a.getAttribute('class'))"
    )
    return {part for text in found for part in text.split()} - {"arrow", "thin"}


def test_no_arrow_is_sure_where_no_range_can_be_relied_on(browser: Browser, pages: dict[str, Path]) -> None:
    """A page whose data disagree has arrows in doubt only, on the map and in the legend; hovers say why, whatever the size."""
    browser.open(pages["doubt"])
    assert kinds_of(browser) == {"in-doubt"}
    move_to(browser, spot_of(browser, ".arrows .arrow"))
    told = tip_text(browser)
    assert "the counts do not agree with the model: no range can be relied on" in told
    assert "few" not in told
    assert "sure" not in told
    assert "do not agree" in browser.driver.find_element("id", "here").text
    browser.open(pages["map"])
    assert {"sure", "less-sure"} < kinds_of(browser)
    rows = RESULT.flows[
        RESULT.flows["time"] == int(browser.run("return document.getElementById('time').value"))
    ]
    moves = rows[rows["origin"] != rows["dest"]].nlargest(30, "mean")
    expected = (moves["reliable"] & (moves["lower"] >= moves["mean"] / 2) & (moves["lower"] >= 0.5)).sum()
    assert browser.run("return document.querySelectorAll('path.arrow.sure[data-move]').length") == expected


def test_without_ranges_nothing_is_said_about_them(browser: Browser, pages: dict[str, Path]) -> None:
    """The page of an engine that gives means only has no word about ranges in hovers, legend, lists, tables or options."""
    browser.open(pages["means only"])
    assert kinds_of(browser) == {"plain"}
    pick(browser, "arrows", "0")
    move_to(browser, spot_of(browser, ".disc[data-cell='4']"))
    texts = [tip_text(browser)]
    pick(browser, "arrows", "30")
    move_to(browser, spot_of(browser, ".arrows .arrow"))
    texts += [tip_text(browser), browser.driver.find_element("tag name", "main").text]
    names = browser.run("return document.getElementById('series-chart').data.map((t) => t.name)")
    for text in (*texts, *filter(None, names)):
        assert not any(word in text for word in ("range", "interval", "sure", "reliable", "–  –", "90 %"))


def test_kept_pictures_carry_legend_and_warning(
    browser: Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    """A picture of a page that warns has every key of the legend, its samples and the warning in it; that of another has no warning."""
    for name, warns in (("doubt", True), ("map", False)):
        browser.open(pages[name])
        time = browser.run("return document.getElementById('time').value")
        (tmp_path / name).mkdir()
        root = ET.fromstring(browser.downloads(tmp_path / name, "save-svg", f"map-{time}.svg"))
        texts = " ".join(t.text or "" for t in root.iter("{http://www.w3.org/2000/svg}text"))
        keys = browser.run(
            "return [...document.querySelectorAll('#legend .key-title, #legend text')].map((t) => t.textContent)"
        )
        assert len(keys) > 8
        assert all(key in texts for key in keys)
        assert ("do not agree with the model: no range can be relied on" in texts) == warns


def test_tiles_are_asked_for_only_when_switched_on(browser: Browser, tmp_path: Path) -> None:
    """A page with an address of tiles asks nothing until its box is ticked; then it asks that server, for tiles of the map alone."""
    here = RESULT.coordinates.assign(
        x=8.4 + RESULT.coordinates["x"] / 50, y=54.7 + RESULT.coordinates["y"] / 50
    )
    result = dataclasses.replace(RESULT, coordinates=here, attributes=attributes(geographic=True))
    with tile_server() as (address, asked):
        page = report.write(result, tmp_path / "page.html", tiles=f"{address}/{{z}}/{{x}}/{{y}}.png")
        browser.open(page)
        assert "until you switch on the background" in browser.driver.find_element("tag name", "footer").text
        assert [url for url in browser.logs()[1] if url.startswith("http")] == asked == []
        browser.run("document.getElementById('tiles').click()")
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(browser.driver, 30).until(lambda _: len(asked) >= 2)
        complaints, sent = browser.logs()
        assert all(url.startswith(address) for url in sent if not url.startswith("data:"))
        assert [text for text in complaints if "Content Security" in text] == []
        for path in asked:
            z, x, y = (int(part) for part in path.removesuffix(".png").split("/")[1:])
            assert x in {int((lon + 180) / 360 * 2**z) + k for lon in here["x"] for k in (-1, 0, 1)}
            rows = [(1 - np.arcsinh(np.tan(np.radians(lat))) / np.pi) / 2 * 2**z for lat in here["y"]]
            assert min(rows) - 2 < y < max(rows) + 2
        # The corner of the first tile lies where the map has its degrees: next to the cell's own disc, in km.
        gap = browser.run(
            "const m = document.querySelector('.tiles image').getAttribute('transform').match(/-?[0-9.e-]+/g).map(Number);"
            "return Math.hypot(m[0], m[1]) / Math.hypot(m[2], m[3])"
        )
        assert gap == pytest.approx(1.0, abs=0.02)  # Web Mercator keeps shapes


@contextmanager
def tile_server() -> Iterator[tuple[str, list[str]]]:
    """A server on this machine that remembers what it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(404)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def test_the_scale_bar_is_true(browser: Browser, pages: dict[str, Path]) -> None:
    """The bar is as long as it says: on a grid of unit spacing, in units; in degrees, in km."""
    for name, spacing in (("map", 1.0), ("wicked", None)):
        browser.open(pages[name])
        wide, text = browser.run(
            "return [document.querySelector('.scale path').getBBox().width, document.querySelector('.scale text').textContent]"
        )
        number_, unit = text.replace("\u202f", "").split()
        gap = browser.run(
            "const [a, b] = [0, 1].map((c) => document.querySelector(`.disc[data-cell='${c}']`));"
            "return Math.hypot(a.getAttribute('cx') - b.getAttribute('cx'), a.getAttribute('cy') - b.getAttribute('cy'))"
        )
        one = (
            spacing if spacing is not None else 6371 * np.radians(1.0)
        )  # cells 0 and 1 are a degree of latitude apart
        assert unit == ("units" if spacing == 1.0 and number_ != "1" else "unit" if spacing == 1.0 else "km")
        assert float(number_) / wide == pytest.approx(one / gap, rel=0.01)


def test_every_sum_has_its_range(browser: Browser, pages: dict[str, Path]) -> None:
    """Moves of a step, in, out and net of a cell, pairs over all times, and all moves together are said as mean and mean ± z sd."""
    browser.open(pages["sums"])
    time, cell = (
        int(browser.run(f"return document.getElementById('{name}').value")) for name in ("time", "cell")
    )
    moves = moves_at(time)

    def ends(mean: float, sd: float) -> list[int]:
        return [max(0, round(mean - 1.6448536 * sd)), round(mean + 1.6448536 * sd)]

    def numbers(text: str) -> list[int]:
        return [int(part) for part in re.findall(r"\d+", text.replace("\u202f", ""))]

    caption = numbers(browser.driver.find_element("id", "map-caption").text)
    assert caption[1:3] == ends(moves["mean"].sum(), 10.0)
    rows = browser.run(
        "return [...document.querySelectorAll('#through tr')].map((r) => [...r.cells].map((c) => c.textContent))"
    )
    into, out = (moves[moves[end] == cell]["mean"].sum() for end in ("dest", "origin"))
    assert [row[0] for row in rows] == ["in", "out", "net"]
    assert numbers(rows[0][2]) == ends(into, 3.0)
    assert numbers(rows[1][2]) == ends(out, 4.0)
    assert number(rows[2][1]) == pytest.approx(into - out, abs=0.06)
    flows = RESULT.flows[RESULT.flows["origin"] != RESULT.flows["dest"]]
    text = browser.run("return document.getElementById('matrix-chart').data[0].text[2][4]")
    assert numbers(text.split("90 %:")[1]) == ends(flows.groupby(["origin", "dest"])["mean"].sum()[2, 4], 2.0)
    assert numbers(browser.driver.find_element("id", "between-note").text)[2:4] == ends(
        flows["mean"].sum(), 30.0
    )
    assert "92 % the model's word" in browser.driver.find_element("id", "told").text
    pick(browser, "matrix-layer", "relative")
    relative = browser.run("return document.getElementById('matrix-chart').data[0].z[2][4]")
    assert relative == pytest.approx(2.0 / flows.groupby(["origin", "dest"])["mean"].sum()[2, 4], rel=1e-3)
    heads = browser.run(
        "return [...document.querySelectorAll('#table-through th')].map((h) => h.textContent)"
    )
    assert heads[2:5] == ["in", "in from", "in to"]


def test_an_unknown_number_has_a_band_over_time(browser: Browser, pages: dict[str, Path]) -> None:
    """Where N was not known the page draws how many there are in all at every time, with ranges; where it was known it does not."""
    browser.open(pages["unknown"])
    assert browser.run("return document.getElementById('present-chart').offsetParent !== null")
    lower, upper, mean = (
        trace["y"]
        for trace in browser.run(
            "return document.getElementById('present-chart').data.map((t) => ({ y: t.y }))"
        )
    )
    assert mean == pytest.approx([600.0] * 6, rel=1e-3)
    assert (lower, upper) == ([588] * 6, [612] * 6)
    browser.open(pages["sums"])
    assert browser.run("return document.getElementById('present-chart').hidden")


def test_first_to_last_goes_through_all_steps(browser: Browser, pages: dict[str, Path]) -> None:
    """The matrix from the first time to the last is the product of the steps; its margins are the first and the last counts."""
    browser.open(pages["map"])
    pick(browser, "matrix-span", "through")
    z = np.array(browser.run("return document.getElementById('matrix-chart').data[0].z")) ** 2
    steps = [RESULT.flows[RESULT.flows["time"] == t]["mean"].to_numpy().reshape(9, 9) for t in range(5)]
    expected = steps[0]
    for step in steps[1:]:
        expected = expected @ (step / step.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(z, expected, rtol=1e-3, atol=1e-6)
    browser.open(pages["sums"])
    pick(browser, "matrix-span", "through")
    text = browser.run("return document.getElementById('matrix-chart').data[0].text")
    half = 1.6448536 * 1.5
    low, high = max(0, round(expected[2, 4] - half)), round(expected[2, 4] + half)
    assert f"90 %: {low} – {high}" in text[2][4]
    # No draw had anyone there: of a mean that is no whole number the range is that of a rare event, not "exactly".
    assert expected[2, 8] % 1 > 0.01
    assert "90 %" in text[2][8]
    assert "exactly" not in text[2][8]


def test_routes_follow_the_flows(browser: Browser, pages: dict[str, Path]) -> None:
    """Routes begin in the chosen cell, end where the flows of all steps lead to, say what they are, and give way to arrows."""
    browser.open(pages["map"])
    arrows = browser.run("return document.querySelectorAll('#map-chart .arrow').length")
    browser.run("document.getElementById('routes').click()")
    assert browser.run("return document.querySelectorAll('#map-chart .arrow').length") == 0
    said = browser.driver.find_element("id", "map-caption").text
    assert "40 routes of those in" in said
    assert "if each step depends on the cell alone" in said
    discs = "[...document.querySelectorAll('#map-chart .disc')].map((d) => ['data-cell', 'cx', 'cy'].map((k) => Number(d.getAttribute(k))))"
    spots = np.array(sorted(browser.run(f"return {discs}")))[:, 1:]
    paths = browser.run("return [...document.querySelectorAll('.route')].map((p) => p.getAttribute('d'))")
    assert len(paths) == 40
    ends = []
    for k, path in enumerate(paths):
        points = np.array([[float(v) for v in part.split(",")] for part in path[1:].split("L")]) - 0.25 * (
            k - 20
        )
        away = np.linalg.norm(points[:, None] - spots[None], axis=2)
        assert away.min(axis=1).max() < 0.2
        ends.append(away.argmin(axis=1)[[0, -1]])
    first, last = np.array(ends).T
    assert len(set(first)) == 1
    law = np.eye(9)[first[0]]
    for t in range(5):
        step = RESULT.flows[RESULT.flows["time"] == t]["mean"].to_numpy().reshape(9, 9)
        law = law @ (step / step.sum(axis=1, keepdims=True))
    assert (np.abs(np.bincount(last, minlength=9) - 40 * law) < 4 * np.sqrt(40 * law * (1 - law)) + 0.5).all()
    browser.run("document.getElementById('routes').click()")
    assert browser.run("return document.querySelectorAll('#map-chart .arrow').length") == arrows


def test_grouped_arrows_carry_more(browser: Browser, pages: dict[str, Path]) -> None:
    """Grouping cells leaves the total of moves and makes the arrows carry a larger share of them."""
    browser.open(pages["many"])

    def share() -> float:
        return float(browser.driver.find_element("id", "map-caption").text.rsplit("(", 1)[1].split(" %")[0])

    browser.run("for (let k = 0; k < 7; k += 1) document.getElementById('zoom-in').click()")
    few = share()
    browser.run("document.getElementById('zoom-all').click(); document.getElementById('together').click()")
    assert share() > 4 * max(few, 5)


def test_two_margins_have_a_page_of_their_own(
    browser: Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    """Matrix, both totals with what was counted, desire lines; nothing over time; the old matrix beside the new one where it is known."""
    browser.open(pages["margins"])
    result = two_margins()
    visible = "const e = document.getElementById(arguments[0]); return e !== null && e.offsetParent !== null"
    assert [browser.run(visible, name) for name in ("player", "series", "between-box", "old-box")] == [
        False
    ] * 4
    assert all(browser.run(visible, name) for name in ("map-svg", "matrix-chart", "totals-chart"))
    z = np.array(browser.run("return document.getElementById('matrix-chart').data[0].z")) ** 2
    np.testing.assert_allclose(z, result.flows["mean"].to_numpy().reshape(9, 9), rtol=1e-3, atol=1e-6)
    bars = browser.run(
        "return document.getElementById('totals-chart').data.filter((t) => t.type === 'bar').map((t) => [t.name, t.x])"
    )
    assert [name for name, _ in bars] == ["entries", "exits"]
    assert sum(bars[1][1]) == pytest.approx(600, rel=1e-3)
    text = browser.driver.find_element("tag name", "main").text
    assert not any(word in text for word in ("over time", "next time", "time 0", "before exits"))
    old = pd.DataFrame({"origin": ["zone 0"], "dest": ["zone 1"], "before": [49.0]})
    browser.open(report.write(result, tmp_path / "page.html", before=old))
    assert browser.run(visible, "old-box")
    assert browser.run("return document.getElementById('old-chart').data[0].z[0][1]") == 7
    assert "before: 49" in browser.run("return document.getElementById('matrix-chart').data[0].text[0][1]")
    bare = dataclasses.replace(result, coordinates=None)
    browser.open(report.write(bare, tmp_path / "bare.html"))
    assert browser.logs()[0] == []


def test_clicking_a_cell_chooses_it(browser: Browser, pages: dict[str, Path]) -> None:
    """A click on a disc shows that cell's series and numbers."""
    browser.open(pages["map"])
    pick(browser, "arrows", "0")
    move_to(browser, spot_of(browser, ".disc[data-cell='7']"), click=True)
    assert browser.run("return document.getElementById('cell').value") == "7"
    assert browser.driver.find_element("css selector", "#here h3").text == "Cell 7"
    chart = "return document.getElementById('series-chart').data.find((t) => t.name === arguments[0]).y"
    expected = RESULT.nodes.query("cell == 7")
    assert browser.run(chart, "inferred") == pytest.approx(expected["mean"].tolist(), rel=1e-4)


def test_counts_are_drawn_on_the_scale_of_individuals(browser: Browser, pages: dict[str, Path]) -> None:
    """Where one individual gives 0.4 counts, a count of 4 is drawn at 10 and the page says so."""
    browser.open(pages["rate"])
    chart = "return document.getElementById('series-chart').data.find((t) => t.name?.startsWith('counted'))"
    cell = int(browser.run("return document.getElementById('cell').value"))
    seen = RESULT.nodes[RESULT.nodes["cell"] == cell]["observed"]
    drawn = browser.run(chart)
    assert drawn["name"] == "counted, scaled to individuals"
    assert drawn["y"] == pytest.approx((seen / 0.4).tolist(), rel=1e-6, nan_ok=True)
    assert "which stands for" in browser.driver.find_element("id", "here").text


def test_surprises_can_be_seen(browser: Browser, pages: dict[str, Path]) -> None:
    """Where the fit was checked, cells can be coloured by residuals and the PIT is drawn; elsewhere neither is offered."""
    browser.open(pages["rate"])
    pick(browser, "colour", "residual")
    fills = browser.run("return [...document.querySelectorAll('.discs .disc')].map((d) => d.style.fill)")
    assert fills[0] != fills[8]
    assert fills[4] == "rgb(216, 216, 220)"  # no surprise: the middle of the scale
    browser.run(
        "document.getElementById('about').open = true; document.getElementById('check-box').open = true"
    )
    bars = "return document.getElementById('check-chart').data?.[0].y"
    from selenium.webdriver.support.ui import WebDriverWait

    shares = WebDriverWait(browser.driver, 30).until(lambda d: d.execute_script(bars))
    assert sum(shares) == pytest.approx(1.0)
    browser.open(pages["map"])
    assert browser.run("return document.querySelector('#colour [value=residual]')") is None
    assert browser.run("return document.getElementById('check-box').hidden")


def test_ground_lies_under_degrees(browser: Browser, pages: dict[str, Path]) -> None:
    """Places in degrees have land, borders and meridians under them, and the page names their source; plain ones have none."""
    browser.open(pages["wicked"])
    paths = "return [...document.querySelectorAll('.ground path')].map((p) => [p.getAttribute('class'), p.getAttribute('d').length])"
    found = dict(browser.run(paths))
    assert set(found) == {"land", "border", "grid"}
    assert min(found.values()) > 20
    assert "Natural Earth" in browser.driver.find_element("css selector", "footer").text
    browser.open(pages["map"])
    assert browser.run(paths) == []


def test_areas_are_coloured_by_their_counts(browser: Browser, pages: dict[str, Path]) -> None:
    """Cells with areas are a choropleth: one path per cell, equal counts in equal colours; discs on demand; a click chooses."""
    browser.open(pages["areas"])
    assert browser.run("return document.querySelectorAll('.cells .area').length") == 9
    assert browser.run("return document.querySelectorAll('.discs .disc').length") == 0
    colours = "return Object.fromEntries([...document.querySelectorAll('.area')].map((a) => [a.dataset.cell, a.style.fill]))"
    before = browser.run(colours)
    assert len(set(before.values())) > 3
    browser.driver.find_element("id", "time").send_keys("\ue012")  # left: another time
    assert browser.run(colours) != before
    pick(browser, "arrows", "0")
    move_to(browser, spot_of(browser, ".area[data-cell='5']"), click=True)
    assert browser.run("return document.getElementById('cell').value") == "5"
    pick(browser, "show", "discs")
    assert browser.run("return document.querySelectorAll('.discs .disc').length") == 9


def test_many_cells_are_grouped_until_zoomed(browser: Browser, pages: dict[str, Path]) -> None:
    """Cells too close to be told apart are drawn as groups that hold everyone; zooming in splits them."""
    browser.open(pages["many"])
    discs = "return document.querySelectorAll('.discs .disc').length"
    few = browser.run(discs)
    assert few < 144 / 2
    browser.run("for (let k = 0; k < 7; k += 1) document.getElementById('zoom-in').click()")
    names = "return [...document.querySelectorAll('.names text')].map((t) => t.textContent).join()"
    assert "+" not in browser.run(names)
    browser.run("document.getElementById('zoom-all').click()")
    assert browser.run(discs) == few
    assert browser.run("return document.querySelectorAll('.arrow').length") <= 30


def test_moves_between_chosen_cells_add_up(browser: Browser, pages: dict[str, Path]) -> None:
    """The matrix holds the sums over all times, and the moves between chosen cells are added up step by step."""
    browser.open(pages["map"])
    flows = RESULT.flows[RESULT.flows["origin"] != RESULT.flows["dest"]]
    total = flows.groupby(["origin", "dest"])["mean"].sum()
    z = browser.run("return document.getElementById('matrix-chart').data[0].z")
    assert z[2][4] ** 2 == pytest.approx(total[2, 4], rel=1e-3)
    assert z[3][3] is None
    browser.run(
        "for (const [box, cells] of [['between-from', ['2', '3']], ['between-to', ['4']]]) {"
        " const list = document.getElementById(box);"
        " [...list.options].forEach((o) => { o.selected = cells.includes(o.value); });"
        " list.dispatchEvent(new Event('change')); }"
    )
    running = browser.run("return document.getElementById('between-chart').data[1].y")
    steps = flows[flows["origin"].isin([2, 3]) & (flows["dest"] == 4)].groupby("time")["mean"].sum().cumsum()
    assert running == pytest.approx(steps.tolist(), rel=1e-3)


def test_pictures_and_tables_can_be_kept(browser: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    """The map is saved as SVG and PNG, and the numbers behind every picture as CSV with the numbers that are drawn."""
    browser.open(pages["wicked"])
    time = browser.run("return document.getElementById('time').value")
    stamp = pd.date_range("2024-03-01", periods=6, freq="7D")[int(time)].date()
    svg = browser.downloads(tmp_path, "save-svg", f"map-{stamp}.svg")
    root = ET.fromstring(svg)
    assert root.tag.endswith("svg")
    assert "Natural Earth" in svg
    assert "the 30 arrows shown carry" in svg
    assert browser.downloads(tmp_path, "save-png", f"map-{stamp}.png").startswith("89504e470d0a1a0a")
    browser.downloads(tmp_path, "save-map", "moves.csv")
    moves = pd.read_csv(tmp_path / "moves.csv")
    expected = moves_at(int(time)).nlargest(30, "mean")
    assert moves["mean"].tolist() == pytest.approx(expected["mean"].tolist(), rel=1e-4)
    assert moves["origin"].tolist() == [WICKED[k] for k in expected["origin"]]
    browser.downloads(tmp_path, "save-series", "cell.csv")
    assert len(pd.read_csv(tmp_path / "cell.csv")) == 6
    browser.downloads(tmp_path, "save-matrix", "matrix.csv")
    matrix = pd.read_csv(tmp_path / "matrix.csv")
    assert matrix["mean"].sum() == pytest.approx(RESULT.flows["mean"].sum(), rel=1e-4)
    browser.downloads(tmp_path, "save-between", "between.csv")
    assert browser.logs()[0] == []


def test_tables_sort_filter_and_turn(browser: Browser, pages: dict[str, Path]) -> None:
    """A head sorts, a second click sorts the other way, missing comes last; filters and pages keep to the rows."""
    browser.open(pages["map"])
    heads = browser.driver.find_elements("css selector", "#table-nodes th button")
    mean, observed = ([h.text for h in heads].index(name) for name in ("mean", "counted"))
    browser.run("arguments[0].click()", heads[mean])
    first = [number(t) for t in column(browser, "table-nodes", mean)]
    assert first == sorted(first, reverse=True)
    assert first[0] == pytest.approx(RESULT.nodes["mean"].max(), abs=0.51)
    browser.run("arguments[0].click()", heads[mean])
    again = [number(t) for t in column(browser, "table-nodes", mean)]
    assert again == sorted(again)
    for _ in range(2):
        browser.run("arguments[0].click()", heads[observed])
        assert "–" not in column(browser, "table-nodes", observed)
    box = browser.driver.find_element("css selector", ".sheet:has(#table-flows) input")
    box.send_keys("8")
    shown = zip(*(column(browser, "table-flows", k) for k in (0, 1, 2)), strict=True)
    assert all("8" in labels for labels in shown)
    status = browser.driver.find_element("css selector", ".sheet:has(#table-flows) .pager span").text
    expected = ((RESULT.flows["origin"] == 8) | (RESULT.flows["dest"] == 8)).sum()
    assert f"of {expected} rows" in status.replace("\u202f", "")


def test_labels_are_shown_and_do_nothing(browser: Browser, pages: dict[str, Path]) -> None:
    """Labels that look like code are printed as they are, in lists, tables, charts and hovers."""
    browser.open(pages["wicked"])
    options = browser.run("return [...document.querySelectorAll('#cell option')].map((o) => o.textContent)")
    assert options == WICKED
    pick(browser, "arrows", "0")
    move_to(browser, spot_of(browser, ".disc[data-cell='2']"))
    assert tip_text(browser).startswith(WICKED[2][:25])  # long labels are cut
    assert WICKED[0] in column(browser, "table-nodes", 1)
    assert browser.run("return document.querySelectorAll('.chart a, main img').length") == 0
    assert browser.run("return window.pwned") is None


def test_policy_stops_code_and_requests(browser: Browser, pages: dict[str, Path]) -> None:
    """Even code that got into the page could neither run nor reach out: the browser refuses both."""
    browser.open(pages["map"])
    browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.pwned = 1'; document.body.append(s); "
        "document.body.insertAdjacentHTML('beforeend', '<img src=\"http://127.0.0.1:9/x.png\" onerror=\"window.pwned = 2\">')"
    )
    asked: Any = browser.driver.execute_async_script(
        "const done = arguments[0]; fetch('http://127.0.0.1:9/').then(() => done('reached'), (e) => done(String(e)))"
    )
    assert "TypeError" in asked
    assert browser.run("return window.pwned") is None
    complaints, _ = browser.logs()
    assert any("Content Security Policy" in text for text in complaints)


LOOKS = [(width, theme) for width in (1400, 390) for theme in ("light", "dark")]
"""A desk and a phone, by day and by night."""


@contextmanager
def looked_at(browser: Browser, width: int, theme: str) -> Iterator[None]:
    """A window of a width in a light or dark room."""
    media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        yield
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


OVERLAPS = """
    const boxes = [...document.querySelectorAll(arguments[0])]
        .map((e) => [e.textContent, e.getBoundingClientRect()]).filter(([, b]) => b.width);
    const over = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
    return boxes.flatMap(([a, p], k) => boxes.slice(k + 1).filter(([, q]) => over(p, q)).map(([b]) => `${a} | ${b}`));
"""
BROKEN = """
    const found = [];
    for (const box of document.querySelectorAll(arguments[0])) {
        const walk = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
        const number = /(?:[0-9][0-9.,]*(?:[ \u2009\u202f][0-9]{3})*[\u2060\u2013]*)+/g;
        while (walk.nextNode()) for (const match of walk.currentNode.data.matchAll(number)) {
            const range = document.createRange();
            range.setStart(walk.currentNode, match.index); range.setEnd(walk.currentNode, match.index + match[0].length);
            if (new Set([...range.getClientRects()].map((r) => Math.round(r.top))).size > 1) found.push(match[0]);
        }
    }
    return found;
"""
FAINT = """
    const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const light = (text) => {
        const [r, g, b] = text.match(/[0-9.]+/g).slice(0, 3).map((v) => linear(v / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const paper = (e) => {
        for (; e; e = e.parentElement) {
            const c = getComputedStyle(e).backgroundColor;
            if (!/rgba\\(.*, 0\\)|transparent/.test(c)) return c;
        }
        return "rgb(255, 255, 255)";
    };
    return [...document.querySelectorAll(arguments[0])].filter((e) => e.offsetParent !== null && e.textContent.trim()).map((e) => {
        const a = light(getComputedStyle(e).color), b = light(paper(e));
        return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.textContent.slice(0, 40)];
    }).filter(([c]) => c < 4.5);
"""


@pytest.mark.parametrize(("width", "theme"), LOOKS)
@pytest.mark.parametrize("name", ["map", "doubt", "margins", "zones", "long names", "areas"])
def test_what_is_visible(browser: Browser, pages: dict[str, Path], name: str, width: int, theme: str) -> None:
    """On desk and phone, by day and night: nothing sticks out or lies on other words, no number is broken, text can be read."""
    with looked_at(browser, width, theme):
        browser.open(pages[name])
        assert browser.run("return document.documentElement.scrollWidth") <= width
        outside = browser.run(
            "return [...document.querySelectorAll('section, section select, section .chart, aside table')].filter((e) => e.offsetParent"
            " && e.getBoundingClientRect().right > arguments[0] + 1).map((e) => e.id || e.tagName)", width
        )  # fmt: skip
        assert outside == []
        assert browser.run(OVERLAPS, "#legend text, .key-title") == []
        assert browser.run(OVERLAPS, ".names text, #zoom button") == []
        assert browser.run(OVERLAPS, "#strip text") == []
        for chart in ("matrix", "totals"):
            assert browser.run(OVERLAPS, f"#{chart}-chart .ytick text") == []
        assert browser.run(BROKEN, "#finding, .caption, .notices, aside td, aside p") == []
        assert browser.run(FAINT, "h1, h2, h3, p, li, td, dt, dd, .key-title, .tag, label, summary") == []


@pytest.mark.parametrize("name", ["map", "bars", "network"])
@pytest.mark.parametrize("width", [360, 800])
def test_small_screens_need_no_sideways_scrolling(
    browser: Browser, pages: dict[str, Path], name: str, width: int
) -> None:
    """On a phone and on a tablet nothing sticks out, and every chart stays inside its box."""
    browser.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 760, "deviceScaleFactor": 1, "mobile": True},
    )
    try:
        browser.open(pages[name])
        assert browser.run("return document.documentElement.scrollWidth") <= width
        heights = browser.run(
            "return [...document.querySelectorAll('.chart:not([hidden]) .main-svg')].map((s) => "
            "[s.getBoundingClientRect().height, s.closest('.chart').getBoundingClientRect().height])"
        )
        assert all(inner <= outer + 1 for inner, outer in heights)
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_dark_rooms_get_a_dark_page(browser: Browser, pages: dict[str, Path]) -> None:
    """The page follows the system's preference, and the button turns it round."""
    paper = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
    ink = "return document.getElementById('series-chart')._fullLayout.font.color"
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    try:
        browser.open(pages["map"])
        assert max(browser.run(paper)) < 60
        light_ink = browser.run(ink)
        browser.run("document.getElementById('theme').click()")
        assert min(browser.run(paper)) > 200
        assert browser.run(ink) != light_ink
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_comparison_shows_what_differs(browser: Browser, tmp_path: Path) -> None:
    """Both maps and the difference for one time; what may be chance is hollow; checks, evidence and tables below; nothing is asked for."""
    other = chain(seed=2)
    found, files = report.compare(RESULT, other, tmp_path / "c", names=(WICKED[0], "other"))
    browser.open(files[-1])
    complaints, asked = browser.logs()
    assert complaints == []
    assert asked == [files[-1].as_uri()]
    assert browser.run("return window.pwned") is None
    for panel in ("first", "second", "difference"):
        assert browser.run("return document.querySelectorAll(`#${arguments[0]} .disc`).length", panel) == 9
    time = int(browser.run("return document.getElementById('time').value"))
    now = found.nodes[found.nodes["time"] == time]
    hollow = browser.run("return document.querySelectorAll('#difference .disc.hollow').length")
    assert hollow == (~now["clear"]).sum()
    more = browser.run("return document.querySelectorAll('#difference .disc.more').length")
    assert more == (now["difference"] > 0).sum()
    move_to(browser, spot_of(browser, "#difference .disc"))
    assert "→" in tip_text(browser)
    top = number(column(browser, "table-nodes", 4)[0])
    assert top == pytest.approx(found.nodes["difference"].max(), abs=0.51)
    assert browser.run("return document.querySelectorAll('#facts .check-card').length") == 2
    browser.driver.find_element("id", "time").send_keys("\ue011")  # Home
    assert browser.driver.find_element("id", "time-label").text == "time 0"
