"""A real Chromium, headless, for the page; where there is none the tests say so and are skipped."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,1000",
)


class Browser:
    """A driven browser and what it was asked to fetch and to complain about."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path) -> None:
        """Load a page from a file and wait until its first charts are drawn; earlier logs are dropped."""
        from selenium.webdriver.support.ui import WebDriverWait

        self.driver.get("about:blank")
        self.logs()
        self.driver.get(path.as_uri())
        ready = "return document.documentElement.dataset.ready === 'yes'"
        WebDriverWait(self.driver, 180).until(lambda d: d.execute_script(ready))

    def downloads(self, folder: Path, click: str, name: str) -> str:
        """Click an element and read the file that it saves."""
        from selenium.webdriver.support.ui import WebDriverWait

        rule = {"behavior": "allow", "downloadPath": str(folder)}
        self.driver.execute_cdp_cmd("Browser.setDownloadBehavior", rule)
        self.run("document.getElementById(arguments[0]).click()", click)
        kept = folder / name
        WebDriverWait(self.driver, 60).until(lambda _: kept.exists() and kept.stat().st_size > 0)
        return kept.read_text(encoding="utf-8") if kept.suffix != ".png" else kept.read_bytes().hex()

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def logs(self) -> tuple[list[str], list[str]]:
        """Complaints of the console, and addresses asked for, since the last call."""
        complaints = [entry["message"] for entry in self.driver.get_log("browser")]
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
        # The browser's own pages (its start page, its icons) are not the page's doing.
        asked = [p["request"]["url"] for p in sent if not p.get("documentURL", "").startswith("chrome")]
        return complaints, asked


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    drive = shutil.which("chromedriver")
    if program is None or drive is None:
        pytest.skip(
            "no Chromium with its driver on this machine (Debian: apt install chromium chromium-driver)"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(drive))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
