"""The pictures of the gallery, made by its own code. Run: python docs/figures/gallery.py (pages are photographed with Chromium)."""

import base64
import os
import shutil
import tempfile
from pathlib import Path

from PIL import Image, ImageSequence
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait
from tutorial import BLOCK, DOCS, IMAGES

from headcount.plot import Picture

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
WIDTH, HEIGHT = 1180, 880
"""Pixels of a photographed page."""
FILM_WIDTH = 420
PICTURES = (
    "gallery-counts.png",
    "gallery-moves.png",
    "gallery-net.png",
    "gallery-series.png",
    "gallery-convergence.png",
)
"""Files and, between ``gallery-`` and the ending, the names that the page's code gives to their pictures."""


def photograph(page: Path, target: Path, *, height: int = HEIGHT, script: str = "") -> None:
    """The top of a page as PNG, after it is drawn."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*FLAGS, f"--window-size={WIDTH},{height}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.get(page.resolve().as_uri())
        ready = "return document.documentElement.dataset.ready === 'yes'"
        WebDriverWait(driver, 60).until(lambda d: d.execute_script(ready))
        driver.execute_script(script)
        shot = driver.execute_cdp_cmd("Page.captureScreenshot", {})
        target.write_bytes(base64.b64decode(shot["data"]))
    finally:
        driver.quit()


def shrink(film: Path, target: Path) -> None:
    """The film at a third of its bytes: narrower, and in 48 colours."""
    with Image.open(film) as read:
        size = FILM_WIDTH, round(read.height * FILM_WIDTH / read.width)
        large = [f.convert("RGB").resize(size) for f in ImageSequence.Iterator(read)]
        # One palette and no dithering: what does not move is the same in all frames, and costs nothing.
        palette = large[len(large) // 2].quantize(48)
        frames = [f.quantize(palette=palette, dither=Image.Dither.NONE) for f in large]
        pause = read.info["duration"]
    frames[0].save(target, save_all=True, append_images=frames[1:], duration=pause, loop=0, optimize=True)


def at_time(step: int) -> str:
    """A script that moves the page's slider."""
    return f"const t = document.getElementById('time'); t.value = {step}; t.dispatchEvent(new Event('input', {{bubbles: true}}))"


def main() -> None:
    """Run the page and keep its pictures."""
    names: dict = {}
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for block in BLOCK.findall((DOCS / "gallery.md").read_text(encoding="utf-8")):
                exec(compile(block, "gallery.md", "exec"), names)
            for file in PICTURES:
                picture: Picture = names[file.removeprefix("gallery-").removesuffix(".png")]
                picture.save(IMAGES / file, dpi=100)
            shrink(names["film"], IMAGES / "gallery-film.gif")
            photograph(names["page"], IMAGES / "gallery-page.png", script=at_time(8))
            photograph(names["files"][-1], IMAGES / "gallery-comparison.png", height=660)
        finally:
            os.chdir(here)


if __name__ == "__main__":
    main()
