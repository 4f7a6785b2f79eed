"""The page as one text: template, style, scripts and data, joined so that nothing a user wrote can act as code.

Three measures keep a label from acting as code: labels in words are escaped as HTML; labels in data are JSON without ``<``, ``>`` or
``&``; and the page's own policy (CSP) lets only scripts run whose SHA-256 it names, and lets nothing be fetched.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import json
import re
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount._disk import replacing
from headcount.io._write import as_result
from headcount.plot._frames import visible
from headcount.report._facts import facts
from headcount.report._payload import payload

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from headcount.io import Result
    from headcount.posterior import Posterior
    from headcount.report._facts import Notice, Rows

SHARED = ("core.js", "map.js")
SCRIPTS = (*SHARED, "time.js", "bars.js", "series.js", "matrix.js", "tables.js", "start.js")
"""Our own scripts, in the order in which they are joined; they share one scope."""
_SECTIONS = {"map": "Map", "moves": "Moves", "series": "One cell", "tables": "Tables", "about": "About"}
PAGE_FILE = "report.html"


def write(
    result: Result | Posterior | str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    title: str | None = None,
) -> Path:
    """Write the page of a result and return where it is.

    Parameters
    ----------
    result : Result, Posterior or path
        A result or posterior in memory, a folder that ``headcount infer`` or ``fit`` wrote, or a ``.nc`` file.
    path : path, optional
        Where the page goes; ``report.html`` beside the result's file if left out.
    title : str, optional
        What stands on top of the page.

    Returns
    -------
    Path
        Of the page: one file, whole or not written at all, which needs no network.
    """
    known = as_result(result)
    if path is None:
        if known.path is None:
            message = "a result in memory has no folder; give path, for example path='report.html'"
            raise ValueError(message)
        path = known.path.parent / PAGE_FILE
    text = render(known, title=title)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return Path(path)


def is_page(path: Path) -> bool:
    """Whether a file is a page that `write` made."""
    with path.open("rb") as file:
        return b'<meta name="generator" content="headcount">' in file.read(1000)


def render(result: Result, *, title: str | None = None) -> str:
    """The page as one text."""
    data = payload(result)
    told = facts(result, data)
    if title is None:
        title = "Where they were and how they moved" if result.is_chain else "How many there were"
    parts = {
        "title": safe(title),
        "finding": safe(told.finding),
        "warnings": notices(told.warnings),
        "mark": {"good": "✓", "bad": "!"}.get(told.check.mood, "–"),
        "mood": told.check.mood,
        "check_title": safe(told.check.title),
        "check": safe(told.check.text),
        "verdict": safe(told.verdict),
        "lead": safe(told.lead),
        "notices": notices(told.notes),
        "extra": "",
        "credit": " Coastlines and borders: Natural Earth." if has_ground(data) else "",
        "asked": _terms(told.asked),
        "went": _terms(told.went),
        "provenance": _terms(told.provenance),
        "command": _command(told.command),
    }
    return filled("page.html", _SECTIONS, parts, data, [plotly_script(), own_script(SCRIPTS)])


def filled(
    template: str,
    sections: Mapping[str, str],
    parts: Mapping[str, str],
    data: Mapping[str, Any],
    scripts: Sequence[str],
) -> str:
    """A template between the head and the foot that all pages share, with its parts, the style, the data and the scripts.

    ``sections`` are the links at the top.
    """
    whole = {
        **parts,
        "sections": "".join(f'<a href="#{name}">{title}</a>' for name, title in sections.items()),
        "style": asset("page.css"),
        "policy": policy(*scripts),
        "data": embedded(data),
        "scripts": "".join(f"<script>{script}</script>\n" for script in scripts),
    }
    page = "".join(map(asset, ("head.html", template, "foot.html")))
    # One pass, so that a placeholder inside what was put in stays text.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: whole[found[1]], page)


def safe(text: str) -> str:
    """Text that HTML does not read as code and that has no control characters."""
    return html.escape(visible(text))


def asset(name: str) -> str:
    """A file of this package, as text."""
    return resources.files("headcount.report").joinpath("assets", name).read_text(encoding="utf-8")


def own_script(names: Sequence[str] = SCRIPTS) -> str:
    """Scripts of ours as one, which leaves no name behind."""
    return '(() => {\n"use strict";\n' + "\n".join(asset(name) for name in names) + "\n})();\n"


@functools.cache
def plotly_script() -> str:
    """Plotly's script, from the Python package that carries it, with nothing in it that could end its element."""
    from plotly.offline import get_plotlyjs

    text = get_plotlyjs().replace("\r\n", "\n").replace("\r", "\n")  # a browser reads it so before it hashes
    if re.search(r"</script|<!--", text, re.IGNORECASE):
        message = (
            "this version of plotly carries a script that cannot stand inside a page; install plotly 7.1"
        )
        raise RuntimeError(message)
    return text


def policy(*scripts: str) -> str:
    """Content-Security-Policy: these scripts and no other, nothing from anywhere."""
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def embedded(data: Any) -> str:
    r"""JSON that may stand inside a script element whatever the labels are: no ``<``, ``>``, ``&``, no line separators.

    Examples
    --------
    >>> embedded({"cell": "</script>"})
    '{"cell":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _terms(rows: Rows) -> str:
    def one(term: str, text: str) -> str:
        kind = ' class="wide"' if len(text) > 30 else ""
        return f"<div{kind}><dt>{safe(term)}</dt><dd>{safe(text)}</dd></div>"

    return "\n".join(one(term, text) for term, text in rows)


def has_ground(data: Mapping[str, Any]) -> bool:
    """Whether the page's map has coastlines."""
    return bool(data["places"] and data["places"]["ground"])


def notices(told: Sequence[Notice]) -> str:
    """What the reader must know, as a list."""
    if not told:
        return ""
    items = "\n".join(
        f'<li class="{notice.kind}"><span class="tag">{notice.kind.capitalize()}</span> {safe(notice.text)}</li>'
        for notice in told
    )
    return f'<ul class="notices">{items}</ul>'


def _command(command: str | None) -> str:
    if not command:
        return "<p>Made from Python; no command was recorded.</p>"
    return (
        f'<div class="command"><pre id="command">{safe(str(command))}</pre>'
        '<button type="button" id="copy">Copy</button></div>'
    )
