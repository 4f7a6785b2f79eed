"""The numbers of the documentation are those that are stored."""

import json
from pathlib import Path

import pytest

from tools import numbers


@pytest.mark.parametrize("name", numbers.PAGES)
def test_every_block_is_what_is_stored(name: str) -> None:
    """Each block of numbers stands on the page, letter by letter, as ``python -m tools.numbers`` writes it."""
    text = (numbers.ROOT / name).read_text(encoding="utf-8")
    assert numbers.filled(text) == text


def test_every_kind_of_block_is_on_a_page() -> None:
    """No block is written for nobody."""
    pages = "".join((numbers.ROOT / name).read_text(encoding="utf-8") for name in numbers.PAGES)
    assert [name for name in numbers.BLOCKS if f"<!-- numbers: {name} -->" not in pages] == []


def test_a_changed_result_changes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that nobody wrote again after a new measurement is noticed."""
    text = "a\n<!-- numbers: dail-madsen -->\nold\n<!-- end -->\nb\n"
    stored = numbers.stored("sizes")
    written = numbers.filled(text)
    assert numbers.filled(written) == written
    stored["tables"][-1]["rows"][0][2] = 77.7
    (tmp_path / "sizes.json").write_text(json.dumps(stored), encoding="utf-8")
    monkeypatch.setattr(numbers, "RESULTS", tmp_path)
    assert "77.70" in numbers.filled(written)


@pytest.mark.parametrize("text", ["<!-- numbers: nothing -->\n<!-- end -->", "<!-- numbers: peers -->\n"])
def test_a_wrong_block_is_refused(text: str) -> None:
    """A name that does not exist, or a block that does not end."""
    with pytest.raises(ValueError, match="blocks without an end"):
        numbers.filled(text)
