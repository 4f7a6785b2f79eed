"""Files to copy for a first change work as they stand."""

import runpy
from pathlib import Path

import pytest

SKELETONS = sorted((Path(__file__).parents[1] / "examples" / "skeletons").glob("*.py"))


@pytest.mark.parametrize("path", SKELETONS, ids=lambda path: path.stem)
def test_a_skeleton_passes_its_own_check(path: Path) -> None:
    """Each is one file that runs, and says where to change it."""
    runpy.run_path(str(path))["check"]()
    assert "REPLACE" in path.read_text(encoding="utf-8")


def test_there_is_one_per_kind() -> None:
    """A noise, a population, an engine, an export."""
    assert [path.stem for path in SKELETONS] == ["engine", "export", "noise", "population"]
