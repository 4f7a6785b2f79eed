"""What is claimed about versions was run: bounds, classifiers and the stored runs of ``tools.versions`` agree."""

import json
import re

import pytest

from tools import sbom, versions

RUNS = json.loads(versions.RUNS.read_text(encoding="utf-8"))


def claimed() -> set[str]:
    """The Pythons that the classifiers name."""
    named = [
        re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", c) for c in sbom.project()["classifiers"]
    ]
    return {found[1] for found in named if found}


def test_the_lower_bounds_are_what_was_run() -> None:
    """The suite passed with exactly the oldest version allowed of every core dependency, on the oldest Python."""
    oldest = sbom.project()["requires-python"].removeprefix(">=")
    run = RUNS[f"oldest {oldest}"]
    assert {name: versions.release(v) for name, v in run["versions"].items()} == {
        name: versions.release(v) for name, v in versions.bounds().items()
    }
    assert run["exit code"] == 0
    assert run["passed"] > 4000


def test_the_classifiers_claim_what_was_run() -> None:
    """Every Python among the classifiers has a run of the suite that passed, and none is missing."""
    ran = {name.split()[1] for name, run in RUNS.items() if run["exit code"] == 0 and run["passed"] > 4000}
    assert claimed() == ran


def test_newer_versions_than_the_pins_were_run() -> None:
    """The newest run has no version below the pinned one."""
    newest = {name: run for name, run in RUNS.items() if name.startswith("newest")}
    pinned = {pin.name: pin.version for pin in sbom.pins()}
    assert newest
    for run in newest.values():
        older = {
            n: v for n, v in run["versions"].items() if versions.release(v) < versions.release(pinned[n])
        }
        assert not older


@pytest.mark.parametrize("line", ["numpy", "numpy>=2,<3", "numpy==2.0", "numpy~=2.0"])
def test_a_dependency_without_one_lower_bound_is_refused(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one oldest version, or none that could be run."""
    monkeypatch.setattr(sbom, "project", lambda: {"dependencies": [line]})
    with pytest.raises(ValueError, match="exactly one lower bound"):
        versions.bounds()


def test_an_environment_that_is_newer_than_the_bounds_is_noticed() -> None:
    """One version that the resolver raised is named; trailing zeros are not a difference."""
    found = {name: f"{bound}.0" for name, bound in versions.bounds().items()}
    assert versions.differences("oldest", found) == []
    assert versions.differences("newest", {**found, "numpy": "99"}) == []
    assert versions.differences("oldest", {**found, "numpy": "99"}) == [
        f"numpy is 99, not {versions.bounds()['numpy']}"
    ]
