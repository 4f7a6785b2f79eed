"""The type checker accepts what the README and users write, and refuses what cannot work."""

import re
from pathlib import Path

from mypy import api

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
WRONG = {
    "a population that is text": 'hc.Problem(model, "ten", hc.Poisson([1.0]))',
    "counts instead of observations": "hc.Problem(model, 10, [1.0, 2.0])",
    "a rate that is no argument": "hc.Poisson([1.0], rat=2.0)",
}


def complaints(path: Path) -> str:
    """What mypy says of a file, with the project's settings."""
    said, failed, _ = api.run(
        [
            "--config-file",
            str(ROOT / "pyproject.toml"),
            "--allow-untyped-defs",
            "--allow-untyped-calls",
            str(path),
        ]
    )
    assert not failed, failed
    return "" if said.startswith("Success") else said


def test_users_code_is_typed() -> None:
    """One observation or several, engines, labelled tables."""
    assert complaints(ROOT / "tests" / "typing_examples.py") == ""


def test_the_readme_is_typed(tmp_path: Path) -> None:
    """The Python of the README, in reading order, passes."""
    page = tmp_path / "readme.py"
    blocks = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert blocks
    page.write_text("\n".join(blocks), encoding="utf-8")
    assert complaints(page) == ""


def test_wrong_code_is_not(tmp_path: Path) -> None:
    """What cannot work is an error on its own line."""
    page = tmp_path / "wrong.py"
    head = "import headcount as hc\nmodel = hc.MarkovChain([1.0], [[1.0]], length=2)\n"
    page.write_text(head + "\n".join(WRONG.values()) + "\n", encoding="utf-8")
    said = complaints(page)
    found = {int(line) for line in re.findall(r"wrong\.py:(\d+): error", said)}
    assert found == {3 + k for k in range(len(WRONG))}, said
