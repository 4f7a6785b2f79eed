"""What every test of the command line runs under."""

import pytest


@pytest.fixture(autouse=True)
def _no_log_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a command takes longer than the time after which it says so, in the middle of what it prints."""
    monkeypatch.setattr("headcount.cli._show.LOG_EVERY", 3600.0)
