"""The documentation runs: the Python and the ``headcount`` commands of every page, in reading order."""

import doctest
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
# Sketches of interfaces, not programs.
NOT_RUN = {Path("docs/architecture.md")}
PAGES = sorted(
    path.relative_to(ROOT)
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    if path.relative_to(ROOT) not in NOT_RUN
)
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^(?P=indent)```", re.M | re.S)


class Example(NamedTuple):
    """A fenced block: its language, its text and the line where it starts."""

    language: str
    text: str
    line: int


def examples(text: str) -> Iterator[Example]:
    """Fenced blocks in the order of the page; the indentation of the fence is not part of the block."""
    for match in FENCE.finditer(text):
        body = re.sub(rf"^{match['indent']}", "", match["body"], flags=re.M)
        yield Example(match["language"], body, text.count("\n", 0, match.start("body")) + 1)


def run_python(example: Example, page: Path, names: dict[str, object]) -> None:
    """Run a block in the page's own namespace; a block with prompts must also print what it shows."""
    if ">>>" in example.text:
        flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
        test = doctest.DocTestParser().get_doctest(
            example.text, names, str(page), str(page), example.line - 1
        )
        doctest.DebugRunner(optionflags=flags).run(test, clear_globs=False)
        names.update(test.globs)
    else:
        # Padding with empty lines makes a traceback point into the page.
        exec(compile("\n" * (example.line - 1) + example.text, str(page), "exec"), names)


def run_shell(example: Example, page: Path) -> None:
    """Run the lines that call ``headcount``; lines that call ``make`` must name a target that exists."""
    lines = re.findall(r"^([\w -]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    targets = {target for line in lines for target in line.split()}
    for line in example.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        where = f"{page}:{example.line}: {line}"
        if words[:1] == ["make"]:
            assert words[1] in targets, where
        elif words[:1] == ["headcount"]:
            command = [
                sys.executable,
                "-W",
                "error",
                "-c",
                "from headcount.cli import main; main()",
                *words[1:],
            ]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, f"{where}\n{done.stdout}\n{done.stderr}"


def run_page(page: Path, text: str) -> int:
    """Run every block of a page that can run; return how many did."""
    names: dict[str, object] = {"__name__": "__main__"}
    count = 0
    for example in examples(text):
        if example.language == "python":
            run_python(example, page, names)
        elif example.language in {"sh", "bash", "console"}:
            run_shell(example, page)
        else:
            continue
        count += 1
    return count


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that has only the shipped examples in it, as a reader's clone would."""
    if (ROOT / "examples").exists():
        (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_page_runs(page: Path, workplace: Path) -> None:
    """Nothing in the documentation is printed that was not run."""
    run_page(page, (ROOT / page).read_text(encoding="utf-8"))


def test_readme_shows_something_that_runs(workplace: Path) -> None:
    """The README has examples, in a form that the runner finds."""
    assert [
        e
        for e in examples((ROOT / "README.md").read_text(encoding="utf-8"))
        if e.language in {"python", "sh"}
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("```python\nassert 1 + 1 == 3\n```\n", AssertionError),
        ("```python\n>>> 1 + 1\n3\n```\n", doctest.DocTestFailure),
        ("- item\n\n    ```python\n    undefined\n    ```\n", NameError),
        ("```sh\nmake nonsense\n```\n", AssertionError),
        ("```sh\nheadcount nonsense\n```\n", AssertionError),
    ],
)
def test_broken_examples_are_caught(text: str, error: type[Exception], workplace: Path) -> None:
    """The runner fails where an example does."""
    with pytest.raises(error):
        run_page(Path("page.md"), text)


def test_blocks_share_a_namespace(workplace: Path) -> None:
    """A later block sees what an earlier one defined, with prompts or without."""
    assert (
        run_page(
            Path("page.md"),
            "```python\na = 2\n```\n```python\n>>> b = a\n```\n```python\nassert b == 2\n```\n",
        )
        == 3
    )
