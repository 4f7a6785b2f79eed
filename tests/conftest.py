"""What every test runs under: no screen, no time limits inside hypothesis, randomness passed in."""

import os
from pathlib import Path

import hypothesis
import numpy as np
import pytest

os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("HEADCOUNT_COMPILE", "always")  # one way through the kernels, whatever the caches hold

# On cores shared by several processes wall time is a matter of luck, so no reason to fail an example.
hypothesis.settings.register_profile("here", deadline=None, max_examples=30)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=30, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "here")

LONG = tuple(
    line.split(None, 1)[1]
    for line in Path(__file__).with_name("long.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
)
"""How the names of tests begin that have the marker `long`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that are listed in long.txt."""
    for item in items:
        if item.nodeid.startswith(LONG):
            item.add_marker("long")


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that starts the same in every test."""
    return np.random.default_rng(20140621)
