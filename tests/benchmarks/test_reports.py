"""Benchmarks keep their books straight; what they measure is not tested here."""

import json
import math
from importlib import import_module

import benchmarks.__main__ as bench
import numpy as np
import pytest
from benchmarks.__main__ import CLAIMS
from benchmarks._measure import distance, exponent, in_child, peak_memory
from benchmarks._report import Check, Curve, Report, Table

from benchmarks import _guard, _page, _report


@pytest.mark.parametrize(
    ("value", "low", "high", "met"),
    [
        (1.0, None, 1.0, True),
        (1.1, None, 1.0, False),
        (0.0, 0.0, None, True),
        (-1e-9, 0.0, None, False),
        (0.9, 0.87, 0.93, True),
        (0.95, 0.87, 0.93, False),
        (math.nan, None, 1.0, False),
    ],
)
def test_a_target_is_met_within_its_bounds_and_never_by_nan(value, low, high, met):
    """Bounds are closed; a number that is none keeps no bound."""
    assert Check("x", value, at_least=low, at_most=high).met is met


def test_an_exponent_is_the_slope_of_the_tail():
    """y = 3 x² has exponent 2, whatever the first points are."""
    points = [(1.0, 100.0)] + [(x, 3 * x**2) for x in (10.0, 20.0, 40.0)]
    assert exponent(points) == pytest.approx(2.0)


def test_distance_is_relative():
    """‖a − b‖₁ / ‖b‖₁."""
    assert distance(np.array([1.0, 2.0]), np.array([2.0, 2.0])) == pytest.approx(0.25)


def test_a_stored_report_is_what_the_page_shows(tmp_path, monkeypatch):
    """What is missed is on the page with by how much; quick results never take the place of full ones."""
    monkeypatch.setattr(_report, "RESULTS", tmp_path)
    monkeypatch.setattr(_page, "ROOT", tmp_path)
    monkeypatch.setattr(_page, "PAGE", tmp_path / "benchmarks.md")
    monkeypatch.setattr(_page, "FIGURES", tmp_path / "benchmarks")
    curve = Curve("growth", "L", "s", {"MAP": [(1.0, 1.0), (10.0, 100.0)]}, {"MAP": 2.0})
    made = Report(
        "speed",
        "How fast.",
        checks=[Check("a thing", 6.0, at_most=3.0, unit="s"), Check("other", np.float64(1.0), at_most=3.0)],
        tables=[Table("times", ["engine", "s"], [["MAP", np.float64(0.5)], ["NLBP", None]])],
        curves=[curve],
    )
    _report.store(made, quick=False, seconds=1.0)
    _report.store(Report("speed", "Small."), quick=True, seconds=1.0)
    kept = json.loads((tmp_path / "speed.json").read_text(encoding="utf-8"))
    assert [c["met"] for c in kept["checks"]] == [False, True]
    assert kept["provenance"]["versions"]["numpy"] == np.__version__
    _page.write_page()
    text = (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    assert "1 of 2 targets are met" in text
    assert "| a thing | 6 s | ≤ 3 | 2.00 × |" in text
    assert "| NLBP | – |" in text
    assert (tmp_path / "benchmarks" / "speed-0.svg").read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize("claim", sorted(CLAIMS))
def test_every_claim_has_a_module_that_can_be_run(claim):
    """Each module says what it claims, and takes ``quick``."""
    module = import_module(CLAIMS[claim])
    assert module.__doc__.startswith("Claim:")
    assert callable(module.run)


def test_a_child_that_fails_says_why():
    """The last line of what it wrote comes back."""
    with pytest.raises(RuntimeError, match=r"No module named benchmarks\.nothing"):
        in_child("benchmarks.nothing")


def test_memory_is_measured_in_gib():
    """A running Python with NumPy takes between ten mebibytes and a hundred gibibytes."""
    assert 0.01 < peak_memory() < 100


def test_the_hospital_page_shows_what_is_stored():
    """Every row of the tutorial that has a number of mbi's is a row of the stored result, rounded."""
    content = _report.stored("networks")
    rows = {
        row[0]: row[1:]
        for table in content["tables"]
        if "hospital" in table["title"]
        for row in table["rows"]
    }
    assert len(rows) == 11
    page = (_report.ROOT / "docs" / "tutorials" / "hospital.md").read_text(encoding="utf-8")
    shown = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in page.splitlines()
        if line.startswith("| ")
    ]
    found = 0
    for name, *cells in shown:
        if name not in rows:
            continue
        found += 1
        if " × " in name:
            entries, ours, theirs, inside = rows[name]
            assert cells == [f"{entries}", f"{100 * ours:.2f} %", f"{100 * theirs:.2f} %", f"{inside:.2f}"]
        else:
            true, mean, lower, upper, theirs = rows[name]
            assert cells == [f"{mean:.0f}", f"{lower:.0f} to {upper:.0f}", f"{theirs:.0f}", f"{true}"]
    assert found == len(rows)


STORED = {
    "smaller": {"value": 0.02, "error": 0.003, "ratio": False, "at_most": 0.1, "at_least": None},
    "larger": {"value": 0.95, "error": 0.01, "ratio": False, "at_most": None, "at_least": 0.89},
    "share": {"value": 0.92, "error": 0.01, "ratio": False, "at_most": 0.95, "at_least": 0.85},
    "times": {"value": 30.0, "error": None, "ratio": True, "at_most": None, "at_least": 1.0},
    "part": {"value": 0.2, "error": None, "ratio": True, "at_most": 0.3, "at_least": None},
}


@pytest.mark.parametrize(
    ("name", "fine", "bad"),
    [
        ("smaller", [0.0229, 0.001], [0.0231, math.nan]),
        ("larger", [0.941, 1.0], [0.939]),
        ("share", [0.929, 0.871, 0.9], [0.931, 0.869]),
        ("times", [20.1, 1000.0], [19.9, math.nan]),
        ("part", [0.299, 0.01], [0.301]),
    ],
)
def test_what_is_worse_than_the_last_release_is_named(name, fine, bad):
    """Accuracy may lose its error, a ratio a factor of 1.5, in the direction that is worse; a share of intervals in both."""
    old = STORED[name]
    for values, wrong in ((fine, 0), (bad, 1)):
        for value in values:
            check = Check(name, value, at_most=old["at_most"], at_least=old["at_least"])
            found = _guard.faults("claim", {name: old}, Report("claim", "", checks=[check]))
            assert len(found) == wrong, (value, found)


def test_a_check_that_is_gone_is_a_fault_but_for_a_peer_that_is_not_there():
    """Nobody gets better by measuring less."""
    assert _guard.faults("accuracy", STORED, Report("accuracy", "")) == [
        f"accuracy: {name}: is not measured any more" for name in STORED
    ]
    assert _guard.faults("peers", STORED, Report("peers", "")) == []


def test_a_quick_run_fails_on_a_doctored_reference(tmp_path, monkeypatch, capsys):
    """What is kept is what is held against; a reference that was better makes the command fail, and it says by how much."""
    made = Report(
        "small", "", checks=[Check("a", 2.0, at_most=9.0, ratio=True), Check("b", 1.0, at_most=2.0)]
    )
    path = tmp_path / "reference.json"
    for name in ("store", "read", "keep"):
        monkeypatch.setattr(
            bench,
            name,
            {
                "store": lambda *a, **k: path,
                "read": lambda: _guard.read(path),
                "keep": lambda *a, **k: _guard.keep(*a, **k, path=path),
            }[name],
        )
    load = [0.1]
    monkeypatch.setattr(bench, "machine", lambda: {"load": load, "cores": 2})
    monkeypatch.setitem(bench.CLAIMS, "small", "benchmarks.small")
    monkeypatch.setattr("benchmarks.small.run", lambda quick: made)
    assert bench.main(["small", "--quick", "--keep"]) == 0
    kept = _guard.read(path)
    assert list(kept["claims"]["small"]) == ["a"]  # b has neither an error nor is it a ratio
    assert bench.main(["small", "--quick"]) == 0
    kept["claims"]["small"]["a"]["value"] = 1.3
    path.write_text(json.dumps(kept), encoding="utf-8")
    assert bench.main(["small", "--quick"]) == 1
    assert "small: a: 2 instead of 1.3: worse by more than 1.5 ×" in capsys.readouterr().out
    load[0] = 5.0  # a busy machine says nothing about times, and says so
    assert bench.main(["small", "--quick"]) == 0
    assert "times are not compared" in capsys.readouterr().out


def test_the_stored_reference_guards_every_claim():
    """The file in the repository has accuracy with errors and ratios, of each claim that a quick run measures."""
    held = _guard.read()["claims"]
    assert set(held) == set(_guard.GUARDED)
    assert all(held.values())
    assert sum(c["ratio"] for checks in held.values() for c in checks.values()) > 10
    assert sum(c["error"] is not None for checks in held.values() for c in checks.values()) > 10
