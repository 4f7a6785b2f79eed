"""Result in, page out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headcount._atomic import replacing
from headcount.io import Result
from headcount.io._result import as_result
from headcount.report._facts import facts
from headcount.report._page import page
from headcount.report._payload import payload

if TYPE_CHECKING:
    import os

    from headcount.posterior import Posterior

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
    if title is None:
        title = "Where they were and how they moved" if result.is_chain else "How many there were"
    return page(facts(result, data), data, title=title)
