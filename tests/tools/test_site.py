"""The check of the built documentation notices each kind of fault."""

import json
from pathlib import Path

import pytest

from tools import site

GOOD = {
    "index.html": '<h1 id="a">A</h1><a href="sub/b.html#here">b</a><a href="#a">a</a><img src="p.svg"><script src="s.js"></script>'
    '<link rel="canonical" href="https://example.org/"><a href="https://example.org/">elsewhere</a><a href="p.svg">picture</a>',
    "sub/b.html": '<p id="here"></p><a href="../index.html">up</a><style>a { background: url("../p.svg") }</style>',
    "p.svg": "<svg/>",
    "s.js": "",
    "style.css": "a { background: url(p.svg) }",
}


def built(folder: Path, **changed: str) -> Path:
    """A small site; `changed` adds text to its pages, whose names have a dot for every underscore."""
    for name, text in GOOD.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + changed.get(name.replace(".", "_"), ""), encoding="utf-8")
    (folder / "search").mkdir(exist_ok=True)
    index = {"docs": [{"location": "index.html#a"}, {"location": "sub/b.html"}]}
    (folder / "search" / "search_index.js").write_text(f"var __index = {json.dumps(index)}", encoding="utf-8")
    return folder


def test_a_whole_site_has_no_faults(tmp_path: Path) -> None:
    """Links to pages, places and files, and to other hosts, are fine; only loading from another host is not."""
    assert site.faults(built(tmp_path)) == []


@pytest.mark.parametrize(
    ("added", "fault"),
    [
        ('<a href="c.html">c</a>', "c.html is not there"),
        ('<a href="sub/b.html#there">b</a>', "names no place"),
        ('<a href="#nowhere">x</a>', "names no place"),
        ('<img src="q.svg">', "q.svg is not there"),
        ('<script src="https://example.org/x.js"></script>', "loads https://example.org/x.js"),
        ('<link rel="stylesheet" href="//example.org/x.css">', "loads //example.org/x.css"),
        ('<link rel="preconnect" href="https://example.org">', "loads https://example.org"),
        ("<style>@import 'https://example.org/x.css'</style>", "loads https://example.org/x.css"),
        ('<p style="background: url(http://example.org/x)">', "loads http://example.org/x"),
        ('<iframe src="https://example.org"></iframe>', "loads https://example.org"),
    ],
)
def test_a_fault_of_a_page_is_named(added: str, fault: str, tmp_path: Path) -> None:
    """Broken links, places that do not exist, and whatever is loaded from another host."""
    found = site.faults(built(tmp_path, index_html=added))
    assert len(found) == 1
    assert found[0].startswith("index.html: ")
    assert fault in found[0]


def test_a_style_sheet_that_loads_a_font_is_named(tmp_path: Path) -> None:
    """Fonts of another host are the usual way to lose a reader without a network."""
    found = site.faults(built(tmp_path, style_css="@font-face { src: url(https://example.org/f.woff) }"))
    assert found == ["style.css: loads https://example.org/f.woff"]


def test_a_site_that_cannot_be_searched_is_a_fault(tmp_path: Path) -> None:
    """Every page is in the index, which must be there; so must the pages."""
    assert site.faults(tmp_path) == [
        f"there are no pages in {tmp_path}",
        "there is no index for a search without a server",
    ]
    built(tmp_path)
    (tmp_path / "new.html").write_text("<p>new</p>", encoding="utf-8")
    assert site.faults(tmp_path) == ["new.html cannot be found by a search"]
