"""The mutation script breaks what it says, in a copy, and its stored score is up to date."""

import json
import os
from pathlib import Path

import pytest
from tools.mutate import MUTATIONS, Mutation

from tools import mutate

ROOT = Path(mutate.__file__).parents[1]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_every_mutation_fits_the_source(mutation: Mutation) -> None:
    """The text it replaces occurs once, the result is still Python, and its tests exist."""
    text = (ROOT / mutation.file).read_text(encoding="utf-8")
    compile(mutate.mutated(mutation, text), mutation.file, "exec")
    assert all((ROOT / name.partition("::")[0]).exists() for name in mutation.tests)


def test_the_score_is_stored_and_nothing_survives() -> None:
    """Every hand-written mutation was run, and noticed by the tests of its own package."""
    if not MUTATIONS:
        pytest.skip("no mutations yet")
    stored = json.loads(mutate.SCORE.read_text(encoding="utf-8"))
    assert stored == {mutation.name: True for mutation in MUTATIONS}


def test_what_is_noticed_and_what_survives(tmp_path: Path) -> None:
    """A change that a test sees is noticed, one that no test sees survives, and the copy is put back."""
    (tmp_path / "thing.py").write_text("def double(x):\n    return 2 * x + 0\n")
    (tmp_path / "test_thing.py").write_text(
        "from thing import double\n\n\ndef test_double():\n    assert double(3) == 6\n"
    )
    seen = Mutation("seen", "thing.py", "2 * x", "3 * x", ("test_thing.py",))
    unseen = Mutation("unseen", "thing.py", "x + 0", "x - 0", ("test_thing.py",))
    assert mutate.noticed(seen, tmp_path)
    assert not mutate.noticed(unseen, tmp_path)
    assert (tmp_path / "thing.py").read_text() == "def double(x):\n    return 2 * x + 0\n"
    stale = Mutation("stale", "thing.py", "4 * x", "3 * x", ("test_thing.py",))
    with pytest.raises(mutate.StaleError, match=r"stale: '4 \* x' occurs 0 times in thing\.py"):
        mutate.noticed(stale, tmp_path)


def test_a_change_within_the_same_second_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two changes of one length, written at one instant, are each run: no compiled code of the first answers for the second."""
    (tmp_path / "thing.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "test_thing.py").write_text(
        "from thing import double\n\n\ndef test_double():\n    assert double(3) == 6\n"
    )
    run = mutate.passes

    def at_one_instant(folder: Path, tests: tuple[str, ...]) -> bool:
        os.utime(folder / "thing.py", (1e9, 1e9))
        return run(folder, tests)

    monkeypatch.setattr(mutate, "passes", at_one_instant)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    seen = Mutation("seen", "thing.py", "2 * x", "3 * x", ("test_thing.py",))
    unseen = Mutation("unseen", "thing.py", "2 * x", "x * 2", ("test_thing.py",))
    assert mutate.noticed(seen, tmp_path)
    assert not mutate.noticed(unseen, tmp_path)


def test_random_changes() -> None:
    """One operator or number changes at a time, and nothing else."""
    text = "def f(é, b):\n    return (é + b) * 2 if é < b else é - 1\n"
    found = {m.new.splitlines()[1].strip() for m in mutate.changes("f.py", text, ())}
    assert found == {
        "return (é - b) * 2 if é < b else é - 1",
        "return (é + b) / 2 if é < b else é - 1",
        "return (é + b) * 3 if é < b else é - 1",
        "return (é + b) * 2 if é >= b else é - 1",
        "return (é + b) * 2 if é < b else é + 1",
        "return (é + b) * 2 if é < b else é - 2",
    }
