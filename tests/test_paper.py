"""The citable note: its numbers are stored results, its citations are in its bibliography."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
PAPER = (ROOT / "docs" / "paper" / "paper.md").read_text(encoding="utf-8")


def test_every_number_of_the_table_is_a_stored_one() -> None:
    """Each row stands, letter by letter, in the first table of the reproduction, which is written from stored results."""
    stored = (ROOT / "reproduction" / "comparison.md").read_text(encoding="utf-8")
    ours = stored.split("| **ours** |")[1].split("| **")[0].splitlines()
    rows = [line for line in PAPER.splitlines() if re.match(r"\| \w+ \([NE]\)", line)]
    assert len(rows) == 6
    assert not set(rows) - set(ours)


def test_citations_and_bibliography_agree() -> None:
    """Every citation has an entry and every entry is cited."""
    entries = re.findall(r"^@\w+\{(\w+),", (ROOT / "docs/paper/paper.bib").read_text(encoding="utf-8"), re.M)
    assert set(re.findall(r"@([a-z]+\d{4})", PAPER)) == set(entries)


def test_the_software_names_the_paper_to_cite() -> None:
    """CITATION.cff has what its format asks for, and names the paper that this starts from."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert cited["preferred-citation"]["title"] in (ROOT / "docs/paper/paper.bib").read_text(encoding="utf-8")
