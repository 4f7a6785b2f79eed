"""A small finished run and small tables, made once."""

from pathlib import Path

import pytest
from tests.io.small_tables import COUNTS, TRANSITIONS, write

import headcount as hc
from headcount.io import read_problem
from headcount.posterior import Posterior

if not hasattr(__import__("os"), "fork"):
    pytest.skip("the children of these tests are forked", allow_module_level=True)


@pytest.fixture(scope="session")
def posterior(tmp_path_factory: pytest.TempPathFactory) -> Posterior:
    folder = tmp_path_factory.mktemp("small")
    paths = write(folder, counts=COUNTS, transitions=TRANSITIONS)
    return hc.infer(
        read_problem(
            paths["counts"], population=60, transitions=paths["transitions"], initial="counts"
        ).problem
    )


@pytest.fixture
def small(tmp_path: Path) -> list[str]:
    """A small problem as words of a command line."""
    paths = write(tmp_path, counts=COUNTS, transitions=TRANSITIONS)
    return [
        str(paths["counts"]),
        "--transitions",
        str(paths["transitions"]),
        "--population",
        "60",
        "--initial",
        "counts",
    ]
