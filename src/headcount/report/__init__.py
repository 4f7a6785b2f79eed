"""One self-contained HTML page about a finished run: no network, no server, no other file."""

from headcount.report._write import render, write

__all__ = ["render", "write"]
