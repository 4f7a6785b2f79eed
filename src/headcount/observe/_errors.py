"""One error for everything that can be wrong with a problem, reported all at once."""

from __future__ import annotations

from headcount.individual import FaultsError


class ProblemError(FaultsError):
    """A population or an observation that cannot be right."""
