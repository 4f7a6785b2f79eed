"""The promises of SECURITY.md against the source, the bill of materials against the pins, licences against what we allow."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import headcount as hc
from tools import sbom

ROOT = Path(__file__).parents[1]
SOURCE = sorted((ROOT / "src" / "headcount").rglob("*.py"))
PICKLES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal", "joblib.numpy_pickle"}
NETWORK = {"socket", "ssl", "http", "urllib", "urllib3", "requests", "httpx", "aiohttp", "ftplib", "smtplib"}
NETWORK |= {"asyncio", "socketserver", "telnetlib", "xmlrpc", "webbrowser", "fsspec", "pooch", "tornado"}
PROGRAMS = {"subprocess", "ctypes", "cffi", "code", "runpy", "pty"}
RUNS_TEXT = {"eval", "exec", "compile", "__import__"}
RUNS_FILES = {"read_pickle", "to_pickle", "execv", "fork", "load_module", "exec_module"}
SHELL = {"system", "popen", "spawnv", "startfile"}  # of the module os
HARMLESS = {"urllib.parse"}
"""Turns text into text."""


def violations(text: str) -> Iterator[str]:
    """Imports and calls that one of the three promises forbids."""
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            if name.partition(".")[0] in PICKLES | NETWORK | PROGRAMS and not name.startswith(
                tuple(HARMLESS)
            ):
                yield f"{node.lineno}: imports {name}"  # type: ignore[attr-defined]
            if name in PICKLES or name in {"joblib.load", "joblib.dump"}:
                yield f"{node.lineno}: imports {name}"  # type: ignore[attr-defined]
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in RUNS_TEXT:
            yield f"{node.lineno}: calls {node.func.id}"
        if isinstance(node.func, ast.Name) and node.func.id == "import_module":
            wanted = ast.unparse(node.args[0]).lstrip("f").strip("'")
            if not wanted.startswith("headcount."):
                yield f"{node.lineno}: looks up the module {wanted}"
        if isinstance(node.func, ast.Attribute) and (
            node.func.attr in RUNS_FILES
            or (node.func.attr in SHELL and getattr(node.func.value, "id", "") == "os")
        ):
            yield f"{node.lineno}: calls {node.func.attr}"
        for keyword in node.keywords:
            if keyword.arg in {"allow_pickle", "shell"} and not (
                isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            ):
                yield f"{node.lineno}: {keyword.arg} is not False"


@pytest.mark.parametrize("path", SOURCE, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_no_pickle_no_network_no_code_from_files(path: Path) -> None:
    """No module imports or calls what would unpickle, connect, start a program or run text."""
    assert not list(violations(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from urllib.request import urlopen",
        "def f():\n    import socket",
        "np.load(path, allow_pickle=True)",
        "eval(text)",
        "from joblib import load",
        "pd.read_pickle(path)",
        "import subprocess as s",
        "os.system(text)",
        "import_module(name)",
    ],
)
def test_a_broken_promise_is_noticed(text: str) -> None:
    """The check above fails on each kind of fault."""
    assert list(violations(text))


def test_an_inference_opens_no_connection(tmp_path: Path) -> None:
    """Infer, save and load with sockets that refuse to be made."""
    script = f"""
import socket
def refuse(*args, **kwargs):
    raise AssertionError("a socket was made")
socket.socket.__init__ = refuse
socket.create_connection = socket.getaddrinfo = refuse
import headcount as hc
chain = hc.MarkovChain([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], length=3)
post = hc.infer(hc.Problem(chain, 40, hc.Poisson([[20, 18], [25, 14], [22, 20]])))
post.save({str(tmp_path / "p.nc")!r})
assert hc.Posterior.load({str(tmp_path / "p.nc")!r}).node(1) is not None
hc.report.write({str(tmp_path / "p.nc")!r}, {str(tmp_path / "p.html")!r})
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, capture_output=True)


def test_a_pickle_in_a_fit_is_refused(tmp_path: Path) -> None:
    """A file of a fit whose array is a pickle is refused, and what it would run is not run."""
    ran = tmp_path / "ran"

    class Evil:
        def __reduce__(self) -> tuple:
            return (Path.touch, (ran,))

    file = tmp_path / "fit.npz"
    np.savez(file, __meta__=np.array([Evil()], dtype=object))
    with pytest.raises(ValueError, match="damaged"):
        hc.Fit.load(file)
    assert not ran.exists()


def test_the_bill_names_every_pin() -> None:
    """Every pinned package is a component with its version and all hashes; references lead to components; the bytes do not change."""
    bill = sbom.bill()
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    assert {(c["name"], c["version"]) for c in bill["components"]} == {
        (name.lower(), version) for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.M)
    }
    assert sum(len(c["hashes"]) for c in bill["components"]) == text.count("--hash=sha256:")
    known = {c["bom-ref"] for c in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    assert {entry["ref"] for entry in bill["dependencies"]} == known
    assert {other for entry in bill["dependencies"] for other in entry["dependsOn"]} <= known
    assert json.dumps(bill) == json.dumps(sbom.bill())


def test_scopes_follow_the_graph() -> None:
    """What the core needs is required, however far down; extras are optional; tools of development are excluded."""
    scope = sbom.scopes(sbom.pins())
    expected = {"numpy": "required", "llvmlite": "required", "pyarrow": "optional", "dask": "optional"}
    expected |= {"pytest": "excluded", "mkdocs": "excluded", "hatchling": "excluded"}
    assert {name: scope[name] for name in expected} == expected


HERE = [pin.name for pin in sbom.pins() if sbom.installed(pin.name)]


@pytest.mark.parametrize("name", HERE)
def test_every_licence_is_known_and_allowed(name: str) -> None:
    """Every pinned package states a licence that puts no obligations on a user's own code."""
    assert sbom.allowed(sbom.licence(name)), sbom.licence(name)


@pytest.mark.parametrize(
    "text", ["GPL-3.0-or-later", "unknown", "", "MIT AND AGPL-3.0-only", "LGPL-2.1", "Proprietary"]
)
def test_other_licences_are_refused(text: str) -> None:
    """A licence that is not in the list is refused, alone or joined to one that is."""
    assert not sbom.allowed(text)


def test_either_of_two_licences_is_enough() -> None:
    """With OR one may choose."""
    assert sbom.allowed("GPL-2.0-only OR MIT")


def test_the_page_of_dependencies_is_complete() -> None:
    """Every package that a user may install is on the page, with the licence that it states."""
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    stated = dict(re.findall(r"^\| ([\w.-]+) \| (?:always|extra) \| ([^|]+) \|", page, re.M))
    scope = sbom.scopes(sbom.pins())
    assert stated == {name: sbom.licence(name) for name in HERE if scope[name] != "excluded"}


def test_every_direct_dependency_says_what_it_is_for() -> None:
    """No line of pyproject.toml that a user may install is without a reason on the page."""
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    given = sbom.project()
    direct = sbom.named(given["dependencies"])
    for name, lines in given["optional-dependencies"].items():
        if name not in sbom.DEVELOPMENT:
            direct |= sbom.named(lines)
    explained = set(re.findall(r"^\| `([\w.-]+)`", page, re.M))
    assert explained == direct
