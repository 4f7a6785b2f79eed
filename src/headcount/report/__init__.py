"""One self-contained HTML page about a finished run, or about two: no network, no server, no other file."""

from headcount.report._compare import compare
from headcount.report._page import render, write

__all__ = ["compare", "render", "write"]
