"""The command line: thin, it parses, calls the library and saves.

Only the parser is imported here; a command imports what it needs when it runs, so that ``--help`` answers
at once.
"""

from headcount.cli._app import app, main

__all__ = ["app", "main"]
