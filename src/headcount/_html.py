"""Cards for notebooks: what an object is, its facts, its largest numbers and a thumbnail, as HTML that needs no script and no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

THUMBNAIL_CELLS = 48
"""Most rows and columns of a thumbnail; larger tables are averaged over blocks, so that it stays below about 200 kB."""
_PIXELS = 220
"""Largest width and height of a thumbnail, in CSS pixels."""
_CARD = "font-family:sans-serif;font-size:13px;line-height:1.45;display:flex;gap:20px;align-items:flex-start;flex-wrap:wrap"
_CELL = "text-align:left;padding:1px 10px 1px 0;vertical-align:top;background:none;border:none"


def card(
    title: str,
    facts: Mapping[str, Any],
    *,
    table: tuple[Sequence[str], Sequence[Sequence[str]]] | None = None,
    caption: str = "",
    thumbnail: str = "",
) -> str:
    """The HTML of one object.

    Parameters
    ----------
    facts
        Name → value; empty values are left out.
    table
        Header and rows, beside the facts, under ``caption``.
    thumbnail
        SVG, as `heat_map` makes it.
    """
    rows = "".join(
        f'<tr><td style="{_CELL};opacity:.65">{escape(str(k))}</td><td style="{_CELL}">{escape(str(v))}</td></tr>'
        for k, v in facts.items()
        if v not in (None, "")
    )
    parts = [f"<div><b>{escape(title)}</b><table>{rows}</table></div>"]
    if table is not None and table[1]:
        head = "".join(
            f'<th style="{_CELL};opacity:.65;font-weight:normal">{escape(h)}</th>' for h in table[0]
        )
        body = "".join(
            "<tr>" + "".join(f'<td style="{_CELL}">{escape(c)}</td>' for c in row) + "</tr>"
            for row in table[1]
        )
        parts.append(f"<div>{escape(caption)}<table><tr>{head}</tr>{body}</table></div>")
    if thumbnail:
        parts.append(f"<div>{thumbnail}</div>")
    return f'<div style="{_CARD}">{"".join(parts)}</div>'


def heat_map(values: NDArray[Any], caption: str) -> str:
    """A table as an SVG of squares, the darker the larger (by the square root, up to the 98 % quantile); grey where it is NaN."""
    shown = _blocks(np.atleast_2d(np.asarray(values, dtype=float)))
    known = shown[np.isfinite(shown)]
    top = float(np.quantile(known, 0.98)) if known.size else 0.0
    height, width = shown.shape
    side = _PIXELS / max(height, width, 8)
    squares = []
    for i in range(height):
        for j in range(width):
            value = shown[i, j]
            if np.isnan(value):
                fill = "#bbb"
            else:
                share = min(max(value / top, 0.0), 1.0) ** 0.5 if top > 0 else 0.0
                red, green, blue = (round(255 + share * (dark - 255)) for dark in (8, 69, 148))
                fill = f"#{red:02x}{green:02x}{blue:02x}"
            squares.append(f'<rect x="{j}" y="{i}" width="1.02" height="1.02" fill="{fill}"/>')
    size = f'width="{side * width:.0f}" height="{side * height:.0f}" viewBox="0 0 {width} {height}"'
    drawn = f'<svg {size} role="img" style="border:1px solid #8884">{"".join(squares)}</svg>'
    return f'{drawn}<div style="opacity:.65">{escape(caption)}</div>'


def _blocks(values: NDArray[Any]) -> NDArray[Any]:
    """Means over blocks of entries, so that no axis is longer than a thumbnail has squares."""
    for axis in (0, 1):
        length = values.shape[axis]
        if length > THUMBNAIL_CELLS:
            edges = np.linspace(0, length, THUMBNAIL_CELLS + 1).astype(int)[:-1]
            counted = np.add.reduceat(np.isfinite(values).astype(float), edges, axis=axis)
            total = np.add.reduceat(np.nan_to_num(values), edges, axis=axis)
            with np.errstate(invalid="ignore", divide="ignore"):
                values = total / counted
    return values
