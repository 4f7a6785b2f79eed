"""Formulas for the documentation: LaTeX becomes MathML while the site is built, so no script and no host is needed to read it.

In pages: ``$…$`` inside a line and ``$$ … $$`` on lines of its own. In docstrings also ``:math:`…` `` and ``.. math::``; the
other roles of that language (``:class:`…` `` and its kind) become code. What cannot be converted is a warning, which the
strict build makes an error.
"""

from __future__ import annotations

import html
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latex2mathml.converter import convert
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor

if TYPE_CHECKING:
    from markdown import Markdown
    from mkdocs.config.defaults import MkDocsConfig

REPRODUCED = "reproduction"
"""Folder of the pages that the reproduction of the paper writes, one a table or figure."""

log = logging.getLogger("mkdocs.plugins.formulas")

INLINE = r"(?<![\\$])\$(?![\s$])([^$\n]*?[^\s$\\])\$(?![\d$])"
ROLE_MATH = r":math:`([^`]+)`"
ROLE = r":(?:class|func|meth|mod|attr|data|exc):`~?([^`]+)`"
BLOCK = re.compile(r"^(?P<indent> *)\$\$\s*\n(?P<body>.*?)\n *\$\$ *$", re.M | re.S)
DIRECTIVE = re.compile(
    r"^(?P<indent> *)\.\. math::(?P<first>[^\n]*)(?P<rest>(?:\n(?P=indent) +\S[^\n]*|\n *(?=\n(?P=indent) +\S))*)",
    re.M,
)
REPAIRS = (
    # What the converter writes, and what MathML's operator dictionary needs to space it as TeX does.
    (re.compile(r"<mo>([A-Za-z]{2,})</mo>"), r"<mi>\1</mi>"),
    (re.compile(r"<mi>&#x0007E;</mi>"), "<mo>&#x0223C;</mo>"),
    (re.compile(r"<mo>&#x0221E;</mo>"), "<mi>&#x0221E;</mi>"),
    (
        re.compile(r'(<mi>[A-Za-z]{2,}</mi>)(?!<mo stretchy="false">|<mo>[^<]*</mo>|</m)'),
        r'\1<mspace width="0.17em"/>',
    ),
)


def to_mathml(tex: str, *, display: bool) -> str:
    """MathML of one formula."""
    tex = " ".join(tex.split())
    made = convert(tex, display="block" if display else "inline")
    for found, better in REPAIRS:
        made = found.sub(better, made)
    if "\\" in made or "<mi>&</mi>" in made or "merror" in made:
        log.warning("a formula could not be converted: %s", tex)
    return made.replace("<math ", f'<math aria-label="{html.escape(tex, quote=True)}" ', 1)


class _Display(Preprocessor):
    """Formulas on lines of their own."""

    def run(self, lines: list[str]) -> list[str]:
        text = BLOCK.sub(self._block, "\n".join(lines))
        return DIRECTIVE.sub(self._directive, text).split("\n")

    def _block(self, match: re.Match[str]) -> str:
        return self._stored(match["indent"], match["body"])

    def _directive(self, match: re.Match[str]) -> str:
        return self._stored(match["indent"], match["first"] + " " + match["rest"])

    def _stored(self, indent: str, tex: str) -> str:
        held = self.md.htmlStash.store(f'<div class="formula">{to_mathml(tex, display=True)}</div>')
        return f"\n{indent}{held}\n"


class _Inline(InlineProcessor):
    """Formulas inside a line."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:  # type: ignore[override]
        return self.md.htmlStash.store(to_mathml(m[1], display=False)), m.start(0), m.end(0)


class _Role(InlineProcessor):
    """A cross-reference of another documentation language, as code."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:  # type: ignore[override]
        return self.md.htmlStash.store(f"<code>{html.escape(m[1])}</code>"), m.start(0), m.end(0)


class Formulas(Extension):
    """Registered after fenced code has been taken out and before backticks and backslashes mean anything."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Called by Markdown."""
        md.preprocessors.register(_Display(md), "formula_display", 22)
        md.inlinePatterns.register(_Inline(ROLE_MATH, md), "formula_role", 193)
        md.inlinePatterns.register(_Role(ROLE, md), "role", 192)
        md.inlinePatterns.register(_Inline(INLINE, md), "formula_inline", 185)


LIVE = {"bikes": "Bikes of San Francisco on a working day"}
"""Stored results of ``docs/live`` that the site shows as reports, and their titles."""


def on_post_build(config: MkDocsConfig, **_: Any) -> None:
    """Write the live reports into the site: the very page that ``headcount report`` makes."""
    from headcount import report

    for name, title in LIVE.items():
        stored = Path(config.docs_dir) / "live" / f"{name}.nc"
        report.write(stored, Path(config.site_dir) / "live" / f"{name}.html", title=title)


def on_config(config: MkDocsConfig, **_: Any) -> MkDocsConfig:
    """Give the pages and the docstrings the same formulas, and the reproduction its place among what was measured."""
    config.markdown_extensions.append(Formulas())  # type: ignore[arg-type]
    folder = Path(config.docs_dir) / REPRODUCED
    pages = sorted(folder.glob("*.md"), key=lambda page: (page.stem != "index", page.stem))
    for section in config.nav or []:
        if isinstance(section, dict) and "Measured" in section:
            section["Measured"] += [f"{REPRODUCED}/{page.name}" for page in pages]
    return config
