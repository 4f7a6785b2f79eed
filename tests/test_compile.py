"""Compiled code works wherever it is installed, and says once where it is kept."""

import ctypes
import errno
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest

from headcount import _compile

SOURCE = Path(_compile.__file__).parent

SCRIPT = """
import tempfile, warnings
tempfile.tempdir = {temporary!r}
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import numpy as np
    from headcount import _compile
    from headcount.individual._compiled_passes import scale
    made = np.empty((1, 2))
    scale(np.array([[2.0, 1.0]]), np.array([3.0]), np.array([1.0, 2.0]), made)
    assert made.tolist() == [[6.0, 6.0]]
own = [w for w in said if issubclass(w.category, _compile.CacheWarning)]
print(len(own), "|", own[0].message if own else "")
"""


@pytest.fixture
def read_only_copy():
    """A copy of the package that its user can read and not write, with the folders an unprivileged user may enter."""
    top = Path(tempfile.mkdtemp(prefix="headcount-test-"))
    shutil.copytree(SOURCE, top / "src" / "headcount", ignore=shutil.ignore_patterns("__pycache__"))
    (top / "open").mkdir()
    os.chmod(top / "open", 0o777)
    for path in (top, *top.rglob("*")):
        if path.name != "open":
            os.chmod(path, 0o555 if path.is_dir() else 0o444)
    yield top
    for path in (top, *top.rglob("*")):
        if path.is_dir():
            os.chmod(path, 0o755)
    shutil.rmtree(top)


def _obey_permissions() -> None:
    """Let permissions bind root too: drop CAP_DAC_OVERRIDE (1) and CAP_DAC_READ_SEARCH (2) from what a new program may have."""
    if os.getuid() == 0:
        for capability in (1, 2):
            ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


def run_there(top: Path, temporary: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        "PYTHONPATH": str(top / "src"),
        "HOME": str(top / "none"),
        "NUMBA_CACHE_DIR": str(top / "none" / "cache"),
        "PATH": os.environ["PATH"],
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        [sys.executable, "-c", SCRIPT.format(temporary=str(temporary))],
        capture_output=True,
        text=True,
        check=False,
        cwd=top,
        env=environment,
        preexec_fn=_obey_permissions,
    )


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs users and permissions")
def test_a_read_only_installation_and_home(read_only_copy: Path) -> None:
    """Neither the sources nor the home can be written: the code is kept among the temporary files, said once."""
    done = run_there(read_only_copy, read_only_copy / "open")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 | compiled code is kept in ")
    (folder,) = (read_only_copy / "open").iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.rglob("*.nbc")), "nothing was kept"


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs users and permissions")
def test_nowhere_to_write_at_all(read_only_copy: Path) -> None:
    """No folder can be written: everything works, compiled anew, said once."""
    done = run_there(read_only_copy, read_only_copy / "src")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 | compiled code is kept nowhere")


def test_a_folder_someone_else_may_write_is_not_used(tmp_path: Path, monkeypatch) -> None:
    """Cached code is executed: a folder open to others, or a link, is refused."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"headcount-{os.getuid()}"
    folder.mkdir(mode=0o700)
    _compile.private_folder.cache_clear()
    assert _compile.private_folder() == folder
    os.chmod(folder, 0o777)
    _compile.private_folder.cache_clear()
    assert _compile.private_folder() is None
    folder.rmdir()
    folder.symlink_to(tmp_path)
    _compile.private_folder.cache_clear()
    assert _compile.private_folder() is None
    _compile.private_folder.cache_clear()


def test_a_full_disk_does_not_end_a_computation() -> None:
    """Compiled code that cannot be kept is used all the same, with a warning."""

    def twice(x):
        return 2 * x

    made = _compile.kernel(twice)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    made._cache._save_overload = full
    _compile._say_once.cache_clear()
    with pytest.warns(_compile.CacheWarning, match="No space left"):
        assert made(3) == 6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert made(np.float64(1.5)) == 3.0


def test_only_one_module_asks_numba() -> None:
    """Every other module gets its compilers from ``_compile``."""
    asking = [
        path.name
        for path in SOURCE.rglob("*.py")
        if "numba" in path.read_text(encoding="utf-8") and "import numba" in path.read_text(encoding="utf-8")
    ]
    assert asking == ["_compile.py"]
