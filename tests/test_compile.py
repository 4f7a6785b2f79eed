"""Compiled code works wherever it is installed, and says once where it is kept."""

import ctypes
import errno
import importlib.util
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import warnings
from hashlib import sha256
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
    from headcount.individual.rooted_tree import tilted_compiled
    made, ones = np.zeros((2, 1, 1)), np.ones((2, 1))
    tilted_compiled(np.full((1, 1, 1), 6.0), np.zeros(2, int), ones, 2.0 * ones, made)
    assert made.ravel().tolist() == [0.0, 3.0]
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

    made.compiled._cache._save_overload = full
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


FRESH = """
import sys
import numpy as np
import headcount as hc
world = hc.simulate.birds(side=4, weights=(1, 2, 2, 2), population=480, rng=1)
post = hc.infer(hc.Problem(world.model, 480, hc.Poisson(world.observed)))
assert "numba" not in sys.modules, "a single small inference compiled something"
print(repr(float(post.log_evidence)), *(repr(float(x)) for x in np.asarray(post.node(5).mean)))
"""


def test_a_small_inference_on_a_fresh_machine_compiles_nothing(tmp_path: Path) -> None:
    """With empty caches numba is not even imported, and the answer is that of the compiled kernels, to rounding."""
    found = {}
    for asked in ("", "always"):
        environment = os.environ | {"HEADCOUNT_COMPILE": asked, "NUMBA_CACHE_DIR": str(tmp_path / asked)}
        script = FRESH if not asked else FRESH.replace("assert", "#")
        if asked:
            del environment["NUMBA_CACHE_DIR"]
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment
        )
        assert done.returncode == 0, done.stderr
        found[asked] = np.array(done.stdout.split(), dtype=float)
    np.testing.assert_allclose(found[""], found["always"], rtol=1e-11)


def test_what_pays_is_compiled(monkeypatch, tmp_path: Path) -> None:
    """Without compiled code on disk, only what takes longer than compiling is compiled, unless the user says; with it, everything."""
    monkeypatch.delenv("HEADCOUNT_COMPILE", raising=False)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))

    def twice(x):
        return 2 * x

    fresh = _compile.kernel(twice)
    assert not _compile.worth(fresh, 1e-3)
    assert _compile.worth(fresh, _compile.COMPILING)
    with _compile.many_solves(1000):
        assert _compile.worth(fresh, 1e-3)
    assert not _compile.worth(fresh, 1e-3)
    for asked, expected in (("always", True), ("never", False)):
        monkeypatch.setenv("HEADCOUNT_COMPILE", asked)
        assert _compile.worth(fresh, 1.0) is expected
    monkeypatch.delenv("HEADCOUNT_COMPILE")
    kept = _compile.kernel(twice)
    from numba import config

    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    assert kept(2) == 4
    assert kept.on_disk
    assert _compile.worth(kept, 1e-9)
    assert not fresh.on_disk, "a process must not change its way half way through"


def test_an_interrupt_in_the_compiler_is_an_interrupt(monkeypatch, tmp_path: Path) -> None:
    """LLVM's callback swallows an interrupt, and Numba then says that there is no compiled object: that is an interrupt, no fault."""
    from numba import config
    from numba.core import codegen

    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))

    def missing(library):
        raise RuntimeError(f"no compiled object yet for {library}")

    monkeypatch.setattr(codegen.CPUCodeLibrary, "_get_compiled_object", missing)

    def thrice(x):
        return 3 * x

    with pytest.raises(KeyboardInterrupt):
        _compile.kernel(thrice)(2)


def test_code_of_a_source_that_was_only_touched_is_still_kept(monkeypatch, tmp_path: Path) -> None:
    """A checkout gives files new times: what numba still takes from its cache is not announced as compiling; changed sources are."""
    from numba import config

    cache = tmp_path / "cache"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(cache))
    monkeypatch.setattr(config, "CACHE_DIR", str(cache))
    source = tmp_path / "touched.py"
    source.write_text("def four(x):\n    return 4 * x\n")
    spec = importlib.util.spec_from_file_location("touched", source)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "touched", module)
    spec.loader.exec_module(module)
    assert _compile.kernel(module.four)(2) == 8
    os.utime(source, (2e9, 2e9))
    (index,) = cache.glob("*/*.nbi")
    by_digest = sha256(source.read_bytes()).digest() in index.read_bytes()
    assert _compile.kernel(module.four)._kept() is by_digest
    source.write_text("def four(x):\n    return 5 * x\n")
    os.utime(source, (2e9, 2e9))
    assert not _compile.kernel(module.four)._kept()


def test_code_of_an_older_version_is_compiled_anew(tmp_path, monkeypatch) -> None:
    """An index that names a class which is gone, as after an update, does not end a computation, and is written anew."""
    from numba.core import config

    cache = tmp_path / "cache"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(cache))
    monkeypatch.setattr(config, "CACHE_DIR", str(cache))
    source = tmp_path / "updated.py"
    source.write_text(
        "from typing import NamedTuple\nclass Old(NamedTuple):\n    a: float\n\ndef first(pair):\n    return pair.a\n"
    )

    def loaded():
        spec = importlib.util.spec_from_file_location("updated", source)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "updated", module)
        spec.loader.exec_module(module)
        return module

    module = loaded()
    assert _compile.kernel(module.first)(module.Old(2.0)) == 2.0
    source.write_text(source.read_text().replace("Old", "New"))
    module = loaded()
    assert _compile.kernel(module.first)(module.New(3.0)) == 3.0
    assert _compile.kernel(module.first)._kept()
