"""Run the suite with the oldest or the newest versions that pyproject.toml allows, each in an environment of its own.

``python -m tools.versions oldest`` installs exactly the lower bound of every core dependency, ``python -m tools.versions newest`` the
newest of each that can be had, and runs the suite there; ``--python`` names another interpreter, words after ``--`` go to pytest.
What was run is kept in ``tools/versions.json``, and a test holds bounds and classifiers against it. This needs a package index.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools import sbom

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "tools" / "versions.json"
EXTRAS = "cluster,docs,excel,networks,parquet,test,video"
"""What the suite needs beside the core. Their lower bounds are not run: they are whatever fits the core's."""
OLD = ("-W", "ignore::DeprecationWarning")
"""Old versions use what newer ones of packages below them deprecate: that is between them. With the newest, warnings are errors."""
PINNED = ("every_licence_is_known_and_allowed", "the_page_of_dependencies_is_complete")
"""Tests about the very versions of requirements.txt."""
ASK = """
import json, platform, re
from importlib import metadata
names = %r
print(json.dumps({"python": platform.python_version(), "versions": {name: metadata.version(name) for name in names}}))
"""


def bounds() -> dict[str, str]:
    """The lower bound of every core dependency."""
    lines = sbom.project()["dependencies"]
    found = [re.fullmatch(r"([\w.-]+)>=([\w.]+)", line) for line in lines]
    wrong = [line for line, match in zip(lines, found, strict=True) if match is None]
    if wrong:
        raise ValueError(f"a core dependency needs exactly one lower bound: {', '.join(wrong)}")
    return {match[1]: match[2] for match in found if match is not None}


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version, without zeros at the end: 2.2 and 2.2.0 are one."""
    numbers = [int(part) for part in version.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def install(python: Path, which: str) -> None:
    """The package, its extras and the versions asked for, below the folder of `python`."""
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory() as folder:
        held = Path(folder) / "held.txt"
        pinned = bounds() if which == "oldest" else {}
        held.write_text("".join(f"{name}=={version}\n" for name, version in pinned.items()), encoding="utf-8")
        newest = ["--upgrade", "--upgrade-strategy", "eager"] if which == "newest" else []
        subprocess.run(
            [*pip, *newest, "--constraint", str(held), "--editable", f".[{EXTRAS}]"], check=True, cwd=ROOT
        )


def asked(python: Path) -> dict[str, Any]:
    """Python's version and those of the core dependencies in an environment."""
    done = subprocess.run(
        [str(python), "-c", ASK % (sorted(bounds()),)], check=True, capture_output=True, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def suite(python: Path, words: Sequence[str]) -> dict[str, Any]:
    """Run pytest; what it counted, and the seconds of processor time."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    # A compiler's cache of its own: the source is shared with the environment of every day.
    environment["NUMBA_CACHE_DIR"] = str(python.parents[1] / "numba")
    left_out = [f"--deselect=tests/test_supply_chain.py::test_{name}" for name in PINNED]
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *left_out, *words]
    before = os.times()
    run = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    last = ""
    for line in run.stdout:
        print(line, end="", flush=True)
        last = line if re.search(r"\d+ (passed|failed)", line) else last
    code = run.wait()
    after = os.times()
    counted = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", last)}
    used = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )  # of all processes below
    return {"exit code": code, **counted, "processor seconds": round(used), "pytest": " ".join(words)}


def differences(which: str, found: dict[str, str]) -> list[str]:
    """Where an environment of the oldest versions does not hold the bounds themselves."""
    if which != "oldest":
        return []
    return [
        f"{name} is {found[name]}, not {bound}"
        for name, bound in bounds().items()
        if release(found[name]) != release(bound)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the environment if need be, run the suite, keep what was run if it passed; 1 if it did not."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.versions", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("which", choices=["oldest", "newest"])
    parser.add_argument(
        "--python", default=sys.executable, help="the interpreter to make the environment with"
    )
    parser.add_argument("--environment", help="use this environment as it is, and install nothing")
    every = list(sys.argv[1:] if arguments is None else arguments)
    cut = every.index("--") if "--" in every else len(every)
    given, words = parser.parse_args(every[:cut]), every[cut + 1 :]
    if given.environment:
        python = Path(given.environment) / "bin" / "python"
    else:
        said = [given.python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        short = subprocess.run(said, check=True, capture_output=True, text=True).stdout.strip()
        place = ROOT / f".venv-{given.which}-{short}"
        subprocess.run([given.python, "-m", "venv", str(place)], check=True)
        python = place / "bin" / "python"
        install(python, given.which)
    found = asked(python)
    print(*(f"{name} {version}" for name, version in found["versions"].items()), sep="\n", flush=True)
    wrong = differences(given.which, found["versions"])
    if wrong:
        print(*wrong, sep="\n")
        return 1
    counted = suite(python, [*(OLD if given.which == "oldest" else ()), *words])
    if counted["exit code"] == 0:
        keep(RUNS, given.which, found, counted)
    return int(counted["exit code"] != 0)


def keep(path: Path, which: str, found: dict[str, Any], counted: dict[str, Any]) -> None:
    """Write a run down, in place of the last one of its kind and Python."""
    runs = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    name = f"{which} {'.'.join(found['python'].split('.')[:2])}"
    runs[name] = {"date": datetime.now(UTC).date().isoformat(), **found, **counted}
    path.write_text(json.dumps(dict(sorted(runs.items())), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
