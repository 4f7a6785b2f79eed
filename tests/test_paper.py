"""The citable note: its numbers are stored results, its citations are in its bibliography."""

import re
from pathlib import Path

import yaml

from tools import numbers

ROOT = Path(__file__).parents[1]
PAPER = (ROOT / "docs" / "paper" / "paper.md").read_text(encoding="utf-8")


def test_numbers_stand_in_blocks_that_are_written_from_stored_results() -> None:
    """Outside of the blocks, which tests/test_numbers.py holds against the store, no number is a result: no decimals, no percentages."""
    text = numbers.BLOCK.sub("", PAPER.partition("## Summary")[2])
    text = re.sub(r"\$\$.*?\$\$|\$[^$]*\$|@\w+|\]\([^)]*\)", "", text, flags=re.S)
    assert len(numbers.BLOCK.findall(PAPER)) == 6
    assert re.findall(r"\d*\.\d+|\d+ %", text) == []


def test_figures_are_drawn_from_stored_results() -> None:
    """Every picture of the paper is one that the benchmarks or the reproduction draw."""
    places = [
        (ROOT / "docs/paper" / path).resolve().parent for path in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", PAPER)
    ]
    assert set(places) == {ROOT / "docs/benchmarks", ROOT / "docs/reproduction/figures"}


def test_citations_and_bibliography_agree() -> None:
    """Every citation has an entry and every entry is cited."""
    entries = re.findall(r"^@\w+\{(\w+),", (ROOT / "docs/paper/paper.bib").read_text(encoding="utf-8"), re.M)
    assert set(re.findall(r"@([a-z]+\d{4})", PAPER)) == set(entries)


def test_the_software_names_the_paper_to_cite() -> None:
    """CITATION.cff has what its format asks for, and names the paper that this starts from."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert cited["preferred-citation"]["title"] in (ROOT / "docs/paper/paper.bib").read_text(encoding="utf-8")
