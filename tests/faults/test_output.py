"""Full disks, kills and files in the way: the old files stay whole, nothing is left over, nothing of the user's is lost."""

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.faults.trouble import forked, killed_at
from typer.testing import CliRunner

from headcount import _disk
from headcount._disk import OutputError, check_folder
from headcount.cli import app, main
from headcount.io import TableError, load_result, write_omx, write_results, write_world
from headcount.posterior import Posterior
from headcount.simulate import birds


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, and everything that is no file by its name."""
    return {p.name: p.read_bytes() if p.is_file() else b"" for p in sorted(folder.iterdir())}


def files_limited_to(size: int, work: Callable[[], object]) -> Callable[[], None]:
    """`work` where no file may grow beyond a size: the write fails, as on a full disk."""

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        work()

    return limited


@pytest.mark.parametrize("size", [0, 2_000, 20_000])
def test_a_write_that_fails_leaves_the_old_run(size: int, posterior: Posterior, tmp_path: Path) -> None:
    """Whichever file does not fit, the error names the folder, the old files stay and nothing is left over."""
    out = tmp_path / "out"
    write_results(posterior, out)
    before = contents(out)
    ended = forked(files_limited_to(size, lambda: write_results(posterior, out, level=0.5)))
    assert ended.code == 99, ended
    assert "OSError" in ended.err
    assert "out" in ended.err
    assert contents(out) == before
    assert load_result(out).level == 0.9


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mount a disk of so many bytes, where that is allowed."""
    mounted = []

    def make(size: int) -> Path:
        place = tmp_path / f"disk{size}"
        place.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
        if shutil.which("mount") is None or subprocess.run(words, capture_output=True).returncode:
            pytest.skip("mounting a small disk is not allowed here")
        mounted.append(place)
        return place

    yield make
    for place in mounted:
        subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_ends_in_words(small: list[str], small_disk: Callable[[int], Path]) -> None:
    """On disks of 16 kB and more: a message, an exit code, the old files whole and nothing left; no crash inside HDF5."""
    import sys

    for size in (1 << 14, 1 << 15, 1 << 16):
        disk = small_disk(size)
        (disk / "mine.txt").write_text("kept")

        def run(disk: Path = disk) -> None:
            sys.argv = ["headcount", "infer", *small, "--out", str(disk / "out")]
            main()

        ended = forked(run)
        assert ended.code == 1, ended
        assert "No space left on device; nothing was written" in ended.err
        assert contents(disk) == {"mine.txt": b"kept"}


def test_omx_on_a_full_disk(tmp_path: Path) -> None:
    """A matrix that does not fit is an error of the system, not a crash, and leaves nothing."""
    ended = forked(files_limited_to(200, lambda: write_omx(tmp_path / "m.omx", {"a": [[0.5, 0.5]] * 2})))
    assert ended.code == 99, ended
    assert "OSError" in ended.err
    assert not contents(tmp_path)


def _state(folder: Path) -> str:
    """Which run the folder holds, by its level; "refused" where it may mix two."""
    try:
        return str(load_result(folder).level)
    except TableError as error:
        return "refused" if "two different runs" in str(error) else str(error)


def test_a_kill_at_any_rename_leaves_one_run_or_is_seen(posterior: Posterior, tmp_path: Path) -> None:
    """After SIGKILL before any rename the folder holds the old run, holds the new one, or is refused; a later run mends it."""
    states = []
    for rename in range(20):
        out = tmp_path / f"out{rename}"
        write_results(posterior, out, level=0.9)
        (out / "mine.txt").write_text("kept")
        ended = killed_at(rename, lambda out=out: write_results(posterior, out, level=0.5))  # type: ignore[misc]
        if ended.code == 0:
            break
        assert ended.code == -signal.SIGKILL, ended
        states.append(_state(out))
        assert states[-1] == "refused" or (out / "nodes.csv").read_text().endswith(f",{states[-1]}\n")
        assert (out / "mine.txt").read_text() == "kept"
    else:
        pytest.fail("the run never came to its end")
    assert states == ["0.9", *["refused"] * (rename - 1)]
    last = tmp_path / f"out{rename - 1}"
    write_results(posterior, last, level=0.7)
    assert load_result(last).level == 0.7


def test_a_kill_leaves_no_new_folder(posterior: Posterior, tmp_path: Path) -> None:
    """A folder that was not there appears by one rename: whole, or not at all."""
    for rename in range(3):
        out = tmp_path / f"out{rename}"
        ended = killed_at(rename, lambda out=out: write_results(posterior, out))  # type: ignore[misc]
        assert out.exists() == (ended.code == 0)
        if ended.code == 0:
            assert load_result(out).good
            return
    pytest.fail("more renames than one folder and its manifest need")


@pytest.mark.parametrize("fresh", [True, False], ids=["new folder", "folder that is there"])
def test_what_a_kill_left_is_swept_by_the_next_run(
    fresh: bool, posterior: Posterior, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed run leaves a hidden folder; the next run into the same place removes it, and nothing that is young, locked or not ours."""
    out = tmp_path / "out [1]"
    if not fresh:
        write_results(posterior, out)
    place, prefix = (tmp_path, f".{out.name}") if fresh else (out, "")

    def hidden() -> list[str]:
        return sorted(path.name for path in place.iterdir() if path.name.startswith("."))

    assert killed_at(0, lambda: write_results(posterior, out)).code == -signal.SIGKILL
    left = hidden()
    assert len(left) == (1 if fresh else 2)  # a folder; and that of the manifest that was to be put in place
    kept = [f"{prefix}.headcount.{name}" for name in ("mine", "0123456789ab")]
    for name in kept:
        (place / name).mkdir()
    write_results(posterior, out)
    assert set(left) < set(hidden())  # not a minute old
    monkeypatch.setattr(_disk, "YOUNG", 0.0)
    locked = _disk._hold(place / kept[1])
    assert locked is not None
    write_results(posterior, out)
    os.close(locked)
    assert hidden() == sorted(kept)


def test_an_interruption_between_renames_waits(posterior: Posterior, tmp_path: Path) -> None:
    """Ctrl-C while the files are put in place ends the run after the last of them."""
    out = tmp_path / "out"
    write_results(posterior, out)

    def interrupted() -> None:
        original = os.replace

        def replace(source: Path, target: Path) -> None:
            original(source, target)
            if Path(target).name == "nodes.csv":
                signal.raise_signal(signal.SIGINT)

        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.replace = replace  # type: ignore[assignment]
        write_results(posterior, out, level=0.5)

    ended = forked(interrupted)
    assert "KeyboardInterrupt" in ended.err
    assert load_result(out).level == 0.5
    assert not [p for p in out.iterdir() if p.name.startswith(".")]


def test_files_of_others_are_not_overwritten(posterior: Posterior, tmp_path: Path) -> None:
    """A file that we did not write, or that was changed since, is refused without force; our own are replaced."""
    (tmp_path / "nodes.csv").write_text("mine")
    with pytest.raises(OutputError, match=r"nodes\.csv is there already.*--force"):
        write_results(posterior, tmp_path)
    assert contents(tmp_path) == {"nodes.csv": b"mine"}
    write_results(posterior, tmp_path, force=True)
    write_results(posterior, tmp_path)
    (tmp_path / "flows.csv").write_text("my notes")
    with pytest.raises(OutputError, match=r"flows\.csv is there already"):
        write_results(posterior, tmp_path)
    world = birds(side=2, population=20, steps=3, rng=1)
    (tmp_path / "counts.csv").write_text("my counts")
    with pytest.raises(OutputError, match=r"counts\.csv is there already"):
        write_world(world, tmp_path)
    write_world(world, tmp_path / "data")
    write_world(world, tmp_path / "data")


@pytest.mark.parametrize("name", ["nodes.csv", "manifest.json"])
def test_links_and_folders_in_the_way_are_refused(name: str, posterior: Posterior, tmp_path: Path) -> None:
    """Only regular files are replaced, even with force."""
    (tmp_path / "a" / name).mkdir(parents=True)
    with pytest.raises(OutputError, match="this is a folder"):
        write_results(posterior, tmp_path / "a", force=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / name).symlink_to("/dev/null")
    with pytest.raises(OutputError, match="this is a link"):
        write_results(posterior, tmp_path / "b", force=True)


def test_devices_are_refused(posterior: Posterior, tmp_path: Path) -> None:
    """A single file is never written over a device, a pipe or a folder."""
    os.mkfifo(tmp_path / "pipe")
    for target in ("/dev/null", tmp_path, tmp_path / "pipe"):
        with pytest.raises(OutputError, match="only a regular file is written"):
            posterior.save(target)
    with pytest.raises(OutputError, match="there can be nothing below it"):
        posterior.save("/dev/null/p.nc")


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """A folder whose permissions forbid writing is refused by looking at it."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)

    def look() -> None:
        if os.getuid() == 0:  # to whom nothing is forbidden
            for folder in (tmp_path, *tmp_path.parents[:3]):
                os.chmod(folder, 0o755)
            os.setuid(65534)
        check_folder(closed / "out")

    ended = forked(look)
    assert ended.code == 99
    assert "OutputError" in ended.err
    assert "closed cannot be written to" in ended.err


def test_the_place_is_looked_at_before_the_tables(
    small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing can be written nothing is read either."""
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    done = CliRunner().invoke(app, ["infer", "no such table.csv", *small[1:], "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "cannot be written to" in done.output
    assert "no such file" not in done.output
