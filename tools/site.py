"""Check the documentation as it was built: every link leads to a page and a place on it, and no page asks another host for anything.

``python -m tools.site site`` reads the HTML that ``make docs`` wrote. MkDocs checks links in the Markdown, but neither those in the
theme, in raw HTML and in generated reference pages nor what scripts, styles, pictures and frames are loaded from.
"""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {
    *(("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("video", "src")),
    *(("object", "data"), ("embed", "src"), ("link", "href")),
}
"""Attributes from which a browser loads without being asked."""
NOT_LOADED = {"canonical", "next", "prev", "edit", "author", "license"}
"""Kinds of ``<link>`` that are only references."""
STYLE = re.compile(r"""(?:@import\s+(?:url\()?|url\()\s*['"]?([^'")\s]+)""")


class Page(HTMLParser):
    """Links, loaded files and names of places on a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = {"", "top"}
        self.style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called by the parser."""
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        self.style = tag == "style"
        kinds = set(given.get("rel", "").split())
        for name, value in given.items():
            if (tag, name) in LOADED and not (tag == "link" and kinds & NOT_LOADED):
                self.loaded.append(value)
            elif tag == "a" and name == "href":
                self.links.append(value)
            elif name == "style":
                self.loaded += STYLE.findall(value)

    def handle_data(self, data: str) -> None:
        """Called by the parser."""
        if self.style:
            self.loaded += STYLE.findall(data)

    def handle_endtag(self, tag: str) -> None:
        """Called by the parser."""
        self.style = False


def outside(target: str) -> bool:
    """Whether a target is on another host."""
    parts = urlsplit(target)
    return parts.scheme in {"http", "https", "ftp", "ws", "wss"} or bool(parts.netloc)


def faults(site: Path) -> list[str]:
    """Everything that is wrong with a built site."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    wrong = [] if pages else [f"there are no pages in {site}"]
    for path, page in pages.items():
        here = path.relative_to(site.resolve())
        if here.name == "404.html":  # served from any address: its links are absolute by design
            continue
        for target in page.loaded:
            if outside(target):
                wrong.append(f"{here}: loads {target}")
            elif not target.startswith("data:") and not _found(path, target).exists():
                wrong.append(f"{here}: {target} is not there")
        for target in page.links:
            if outside(target) or urlsplit(target).scheme:
                continue
            there = _found(path, target)
            if there not in pages:
                wrong += [] if there.is_file() else [f"{here}: {target} is not there"]
            elif unquote(urlsplit(target).fragment) not in pages[there].places:
                wrong.append(f"{here}: {target} names no place on that page")
    for sheet in sorted(site.rglob("*.css")):
        loads = STYLE.findall(sheet.read_text(encoding="utf-8"))
        wrong += [f"{sheet.relative_to(site)}: loads {t}" for t in loads if outside(t)]
    index = site / "search" / "search_index.js"
    if not index.exists():
        wrong.append("there is no index for a search without a server")
    else:
        found = {
            entry["location"].partition("#")[0] for entry in json.loads(index.read_text("utf-8")[14:])["docs"]
        }
        known = {str(path.relative_to(site.resolve())) for path in pages}
        missing = known - found - {"404.html", *(name for name in known if name.startswith("live/"))}
        wrong += [f"{name} cannot be found by a search" for name in sorted(missing)]
    return wrong


def _found(page: Path, target: str) -> Path:
    """The file that a target names, seen from a page."""
    where = unquote(urlsplit(target).path)
    return (page.parent / where).resolve() if where else page


def main() -> int:
    """Print every fault; 1 if there is one."""
    wrong = faults(Path(sys.argv[1]))
    print(*wrong, sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
