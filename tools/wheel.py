"""Build the package as others get it, install it with the core dependencies alone, and run every command there.

``python -m tools.wheel`` needs no network: the core dependencies are linked from this environment, which was made from the
hash-checked pins, into one that holds nothing else. Checked are: wheel and sdist twice, byte for byte; what the wheel says it
needs; every command; a refusal in words of what needs an extra; each extra by itself; inference without the packages for pictures.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from importlib import metadata
from pathlib import Path

from tools import sbom

ROOT = Path(__file__).parents[1]
SMALL = "counts.csv --transitions transitions.csv --initial initial.csv --population 90"
COMMANDS = (
    "--version",
    "doctor",
    "simulate birds --side 3 --population 90 --steps 4 --seed 1 --out .",
    "simulate chain transitions.csv --population 50 --seed 1 --out drawn",
    "new zones mine",
    f"check {SMALL}",
    f"plan {SMALL}",
    "infer mine/counts.csv --transitions mine/transitions.csv --cells mine/cells.csv --population 8000 --noise binomial --detection 0.3 "
    "--draws 0 --omx --out results",
    "fit counts.csv --features features.csv.gz --population 90 --start 1,2,2,2 --ridge 1 --draws 0 --out fitted",
    "forecast results --steps 1 --draws 0",
    "report results",
    "compare results results --out compared",
    *(
        f"export results --to {kind} --out {kind}"
        for kind in ("flowmap", "kepler", "geopackage", "geojson", "omx")
    ),
    "animate results --frames 1",
)
"""Every command of the command line, on small maps. No draws: they compile, which the suite looks at, for half a minute."""
WRITTEN = (
    *("results/posterior.nc", "results/flows.omx", "results/report.html", "results/moves.gif"),
    *("fitted/weights.csv", "compared", "mine/run.sh", "drawn/counts.csv", "geopackage", "kepler"),
)
NEEDS = {
    "parquet": (f"infer {SMALL} --out again --format parquet", "pip install 'headcount[parquet]'"),
    "excel": (
        "check counts.xlsx --transitions transitions.csv --population 90",
        "pip install 'headcount[excel]'",
    ),
    "video": ("animate results --frames 1 --out film.mp4", "pip install 'headcount[video]'"),
    "cluster": (
        f"infer {SMALL.replace('counts', 'sequences')} --out again --cluster tcp://127.0.0.1:1",
        "pip install 'headcount[cluster]'",
    ),
    "gpu": (f"infer {SMALL} --out again --device cuda", 'pip install "headcount[gpu]"'),
}
"""A command per extra that needs it, and what it must say where the extra is missing."""
WITH_EXTRA = {
    "parquet": "import headcount.io as io; io.write_table(io.load_result('results').nodes, 'n.parquet')",
    "excel": "import openpyxl",
    "video": "from headcount.cli import app; app('animate results --frames 1 --out film.mp4'.split())",
    "cluster": "from distributed import Client",
    "networks": """
import headcount as hc
from pgmpy.factors.discrete import TabularCPD
from pgmpy.models import DiscreteBayesianNetwork
model = DiscreteBayesianNetwork([('a', 'b')])
model.add_cpds(TabularCPD('a', 2, [[.4], [.6]]), TabularCPD('b', 2, [[.1, .8], [.9, .2]], ['a'], [2]))
assert abs(hc.DiscreteModel.from_pgmpy(model).marginal(('b',))[0] - .52) < 1e-12
""",
}
"""What must work with one extra and nothing of the others; a graphics card is not asked for."""
IN_PYTHON = """
import sys
sys.modules.update({name: None for name in %r})
import headcount as hc
chain = hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], length=3)
post = hc.infer(hc.Problem(chain, 40, hc.Poisson([[20, 18], [25, 14], [22, 20]])))
assert post.status.good and abs(post.node(1).mean.sum() - 40) < 1e-6
post.save("post.nc", draws=0)
assert len(hc.Posterior.load("post.nc").to_frame("flows")) == 8
for make in (hc.DiscreteModel.from_networkx, hc.DiscreteModel.from_pgmpy):
    try:
        make(object())
    except hc.ModelError as error:
        assert "give a" in str(error)
"""


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel and the sdist."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


def link(names: set[str], place: Path) -> None:
    """The files of installed packages, linked (or copied, on another disk) below `place`."""
    for name in sorted(filter(sbom.installed, names)):
        for file in metadata.files(name) or ():
            origin = Path(str(file.locate()))
            if file.is_absolute() or ".." in file.parts or not origin.is_file():
                continue  # scripts and what lies outside
            target = place / file
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                try:
                    os.link(origin, target)
                except OSError:
                    shutil.copy2(origin, target)


def packages(extra: str | None = None) -> set[str]:
    """What the core needs or, with an extra, what that adds."""
    every, given = sbom.pins(), sbom.project()
    core = sbom.needed_by(sbom.named(given["dependencies"]), every)
    if extra is None:
        return core
    return sbom.needed_by(sbom.named(given["optional-dependencies"][extra]), every) - core


class Environment:
    """A Python with the core dependencies, the wheel, and a folder to work in."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder / "env", with_pip=False, symlinks=True)
        self.binaries = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
        self.work = folder / "work"
        self.work.mkdir()
        self.python = str(self.binaries / "python")
        found = self.run([self.python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"])
        link(packages(), Path(found.stdout.strip()))
        pip = [sys.executable, "-m", "pip", "--quiet", "--python", self.python]
        subprocess.run([*pip, "install", "--no-deps", "--no-index", "--no-compile", str(wheel)], check=True)
        subprocess.run([*pip, "check"], check=True)

    def run(self, command: list[str], *, path: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command in the work folder; PYTHONPATH is `path` or empty."""
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
            "NUMBA_CACHE_DIR": str(self.work.parent / "numba")
        }
        environment |= {"PYTHONPATH": str(path)} if path else {}
        return subprocess.run(
            command, cwd=self.work, env=environment, capture_output=True, text=True, check=False
        )

    def headcount(self, words: str) -> tuple[int, str]:
        """Exit code and everything said, line breaks folded."""
        done = self.run([str(self.binaries / "headcount"), *words.split()])
        return done.returncode, " ".join((done.stdout + done.stderr).split())


def faults(folder: Path) -> list[str]:
    """Everything that is wrong with the package as it is built now."""
    started, wrong = time.perf_counter(), []

    def say(text: str, fault: str = "") -> None:
        print(
            f"{time.perf_counter() - started:6.1f} s  {text}{': FAILED ' if fault else ''}{fault}", flush=True
        )
        if fault:
            wrong.append(f"{text}: {fault}")

    wheel, source = build(folder / "first")
    again = build(folder / "second")
    same = [a.read_bytes() == b.read_bytes() for a, b in zip((wheel, source), again, strict=True)]
    say("wheel and sdist twice, the same bytes", "" if all(same) else f"wheel, sdist same: {same}")
    with tarfile.open(source) as held:
        names = {Path(name).name for name in held.getnames()}
    say("the sdist holds its bill of materials", "" if "sbom.cdx.json" in names else "there is none")

    here = Environment(folder, wheel)
    say("installed with the core dependencies alone")
    for words in COMMANDS:
        code, said = here.headcount(words)
        say(f"headcount {words}", "" if code == 0 else f"exit code {code}: {said[-500:]}")
    asked = here.run([here.python, "-m", "tools.public_api"], path=ROOT)  # what the wheel has, not this clone
    every = {tuple(line.split()[2:4]) for line in asked.stdout.splitlines() if line.startswith("$ ")}
    known = {words for words in every if words[0] == "simulate"} | {words[:1] for words in every} - {
        ("simulate",)
    }
    left = [
        " ".join(words)
        for words in sorted(known)
        if not any(run.startswith(" ".join(words)) for run in COMMANDS)
    ]
    say("every command was run", ", ".join(left) if known else f"none was found: {asked.stderr[-500:]}")
    missing = [name for name in WRITTEN if not (here.work / name).exists()]
    say("all files are there", ", ".join(missing))

    (here.work / "counts.xlsx").write_bytes(b"PK\x03\x04")
    head, *rows = (here.work / "counts.csv").read_text(encoding="utf-8").split()
    twice = [f"{head},sequence", *(f"{row},{name}" for name in "ab" for row in rows)]
    (here.work / "sequences.csv").write_text("\n".join(twice), encoding="utf-8")
    for extra, (words, expected) in NEEDS.items():
        code, said = here.headcount(words)
        right = code in {1, 2} and expected in said and "Traceback" not in said
        say(f"without {extra} refused in words", "" if right else f"exit code {code}: {said[-500:]}")
    pictures = ("matplotlib", "plotly", "PIL")
    for blocked in ((), pictures, ("typer", "rich", *pictures)):
        done = here.run([here.python, "-c", IN_PYTHON % (blocked,)])
        say(
            f"infer, save and load in Python without {blocked or 'extras'}",
            done.stderr[-500:] if done.returncode else "",
        )
    for extra, script in WITH_EXTRA.items():
        place = folder / extra
        link(packages(extra), place)
        done = here.run([here.python, "-c", script], path=place)
        say(f"with {extra} alone", (done.stdout + done.stderr)[-500:] if done.returncode else "")
    used = os.times()
    say(f"done, with {used.children_user + used.children_system:.0f} s of processor time")
    return wrong


def main() -> int:
    """Print every step with the seconds so far; 1 if one failed."""
    with tempfile.TemporaryDirectory() as folder:
        wrong = faults(Path(folder))
    print(*wrong, sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
