"""The page in a real browser: it moves, answers, sorts, and keeps to itself."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from headcount import report
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
    results = {
        "map": RESULT,
        "bars": chain(places=False),
        "network": network(),
        "wicked": wicked,
        "wicked bars": dataclasses.replace(wicked, coordinates=None),
    }
    return {name: report.write(result, folder / f"{name}.html") for name, result in results.items()}


def move_to(browser: Browser, spot: dict[str, float], *, click: bool = False) -> None:
    """Bring the mouse to a spot of the window, as a hand would."""
    from selenium.webdriver.common.actions.action_builder import ActionBuilder

    for step in (3, 0):
        action = ActionBuilder(browser.driver)
        action.pointer_action.move_to_location(int(spot["x"]) - step, int(spot["y"]))
        if click and step == 0:
            action.pointer_action.click()
        action.perform()


def spot_of(browser: Browser, trace: str, point: int) -> dict[str, float]:
    """Where on the window a point of a trace of the map is drawn."""
    return browser.run(
        """
        const chart = document.getElementById('map-chart');
        chart.scrollIntoView({block: 'center', behavior: 'instant'});
        const box = chart.getBoundingClientRect(), layout = chart._fullLayout;
        const trace = chart.data.find((t) => t.name === arguments[0]);
        return { x: box.left + layout.xaxis._offset + layout.xaxis.l2p(trace.x[arguments[1]]),
                 y: box.top + layout.yaxis._offset + layout.yaxis.l2p(trace.y[arguments[1]]),
                 text: trace.text[arguments[1]] };
        """,
        trace,
        point,
    )


def hover_text(browser: Browser) -> str:
    from selenium.webdriver.support.ui import WebDriverWait

    read = (
        "return [...document.querySelectorAll('.hoverlayer .hovertext')].map((t) => t.textContent).join('|')"
    )
    return WebDriverWait(browser.driver, 60).until(lambda d: d.execute_script(read))


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
    """An arrow key on the slider goes one time on, Home to the first; label, discs and the numbers beside them follow."""
    from selenium.webdriver.common.keys import Keys

    browser.open(pages["map"])
    slider = browser.driver.find_element("id", "time")
    before = int(slider.get_attribute("value"))
    for key, time in ((Keys.ARROW_RIGHT, before + 1), (Keys.HOME, 0)):
        slider.send_keys(key)
        assert browser.driver.find_element("id", "time-label").text == f"time {time}"
        rows = RESULT.nodes[RESULT.nodes["time"] == time]
        texts = browser.run(
            "return document.getElementById('map-chart').data.find((t) => t.name === 'counts').text"
        )
        for text, mean, seen in zip(texts, rows["mean"], rows["observed"], strict=True):
            assert f"<br>{written(mean)} individuals" in text
            assert ("not observed" in text) == pd.isna(seen)
        chosen = int(browser.run("return document.getElementById('cell').value"))
        beside = browser.driver.find_element("css selector", "#here .big").text
        assert beside == written(rows.set_index("cell")["mean"][chosen])


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


def test_hovering_a_cell_shows_its_numbers(browser: Browser, pages: dict[str, Path]) -> None:
    """The mouse over a disc shows the mean and the interval of that cell at that time."""
    browser.open(pages["map"])
    time = int(browser.run("return document.getElementById('time').value"))
    row = RESULT.nodes.set_index(["time", "cell"]).loc[time, 4]
    move_to(browser, spot_of(browser, "counts", 4))
    shown = hover_text(browser)
    assert "cell 4" in shown
    assert f"{written(row['mean'])} individuals" in shown
    assert f"90 %: {written(row['lower'])} – {written(row['upper'])}" in shown


def test_hovering_an_arrow_shows_its_uncertainty(browser: Browser, pages: dict[str, Path]) -> None:
    """The mouse over the largest arrow shows from where to where, the flow and its interval."""
    browser.open(pages["map"])
    time = int(browser.run("return document.getElementById('time').value"))
    row = moves_at(time).nlargest(1, "mean").iloc[0]
    move_to(browser, spot_of(browser, "flows", 1))  # three grips an arrow, largest arrow first
    shown = hover_text(browser)
    assert f"{int(row['origin'])} → {int(row['dest'])}" in shown
    assert f"{written(row['mean'])} individuals" in shown
    assert f"90 %: {written(row['lower'])} – {written(row['upper'])}" in shown


def test_arrows_obey_their_controls(browser: Browser, pages: dict[str, Path]) -> None:
    """No more arrows than asked for, none below the threshold, none of other cells if only one is wanted."""
    browser.open(pages["map"])
    count = "const t = document.getElementById('map-chart').data.find((t) => t.name === 'flows'); return t.x.length / 3"
    select = (
        "const box = document.getElementById(arguments[0]); box.value = arguments[1]; "
        "box.dispatchEvent(new Event('change', { bubbles: true }))"
    )
    time = int(browser.run("return document.getElementById('time').value"))
    moves = moves_at(time)
    assert browser.run(count) == 30
    browser.run(select, "arrows", "10")
    assert browser.run(count) == 10
    browser.run(select, "arrows", "300")
    browser.run(select, "least", "5")
    assert browser.run(count) == (moves["mean"] >= 5).sum()
    browser.run("document.getElementById('only').click()")
    cell = int(browser.run("return document.getElementById('cell').value"))
    own = (moves["origin"] == cell) | (moves["dest"] == cell)
    assert browser.run(count) == (own & (moves["mean"] >= 5)).sum()


def test_clicking_a_cell_chooses_it(browser: Browser, pages: dict[str, Path]) -> None:
    """A click on a disc shows that cell's series and numbers."""
    browser.open(pages["map"])
    move_to(browser, spot_of(browser, "counts", 7), click=True)
    assert browser.run("return document.getElementById('cell').value") == "7"
    assert browser.driver.find_element("css selector", "#here h3").text == "Cell 7"
    drawn = browser.run(
        "return document.getElementById('series-chart').data.find((t) => t.name === 'mean').y"
    )
    expected = RESULT.nodes.query("cell == 7")["mean"]
    assert drawn == pytest.approx(expected.tolist(), rel=1e-4)


def test_tables_sort_filter_and_turn(browser: Browser, pages: dict[str, Path]) -> None:
    """A head sorts, a second click sorts the other way, missing comes last; filters and pages keep to the rows."""
    browser.open(pages["map"])
    heads = browser.driver.find_elements("css selector", "#table-nodes th button")
    mean, observed = ([h.text for h in heads].index(name) for name in ("mean", "observed"))
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
    move_to(browser, spot_of(browser, "counts", 2))
    assert WICKED[2].removesuffix("y</a>") in hover_text(browser)  # long labels are cut
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
    ink = "return document.getElementById('map-chart')._fullLayout.font.color"
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
