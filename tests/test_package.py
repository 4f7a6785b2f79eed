"""The package as a whole: light to import, layered, versioned once, pinned without naming anybody."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import networkx as nx
import pytest

import headcount as hc

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "headcount"
ORDER = (
    "solve",
    "individual",
    "population",
    "observe",
    "structure",
    "posterior",
    "engines",
    "learn",
    "simulate",
    "io",
    "plot",
    "check",
    "report",
    "cli",
)
MAY_USE = {name: set(ORDER[:rank]) for rank, name in enumerate(ORDER)} | {
    "simulate": {"solve", "individual", "population", "observe"}
}
CORE = (
    "solve",
    "individual",
    "population",
    "observe",
    "structure",
    "posterior",
    "engines",
    "learn",
    "simulate",
)
HEAVY = ("arviz", "dask", "matplotlib", "numba", "pandas", "pgmpy", "plotly", "scipy.stats", "xarray")


def loaded_by(statement: str) -> set[str]:
    """Names of the modules that a fresh interpreter holds after `statement`."""
    script = f"{statement}\nimport sys\nprint('modules:', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(done.stdout.rpartition("modules:")[2].split())


def modules() -> dict[str, Path]:
    """Every module of the package, by its dotted name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(module: str, path: Path, *, lazy: bool) -> set[str]:
    """Own modules that `module` imports; with `lazy`, also inside functions and for the type checker."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    known = modules()
    found = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        deferred = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_type_checking(node)
        if deferred and not lazy:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = (
                ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            )
            source = ".".join(part for part in (base, node.module) if part)
            names = {f"{source}.{alias.name}" for alias in node.names}
            found |= {name if name in known else source for name in names}
        waiting.extend(ast.iter_child_nodes(node))
    return {name for name in found if name == "headcount" or name.startswith("headcount.")}


def layer(module: str) -> str | None:
    """The subpackage that a module belongs to, if any."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ORDER else None


def test_imports_go_down_the_list_only() -> None:
    """A subpackage imports only those above it in the architecture's list, be it lazily."""
    upward = [
        f"{module} imports {target}"
        for module, path in modules().items()
        for target in imports(module, path, lazy=True)
        if (here := layer(module)) is not None
        and (there := layer(target)) is not None
        and there != here
        and there not in MAY_USE[here]
    ]
    assert not upward, "\n".join(upward)


def test_core_never_reaches_through_the_front_door() -> None:
    """A module names the module it needs, not ``headcount`` itself, whose names load lazily."""
    back = [
        module
        for module, path in modules().items()
        if module != "headcount"
        and module != "headcount.testing"  # which speaks as users do
        and layer(module) != "cli"
        and "headcount" in imports(module, path, lazy=True)
    ]
    assert not back, back


def test_no_import_cycles() -> None:
    """Modules importing one another when loaded form no cycle."""
    graph = nx.DiGraph(
        (module, target)
        for module, path in modules().items()
        for target in imports(module, path, lazy=False)
        if target != "headcount"
    )
    cycles = list(nx.simple_cycles(graph))
    assert not cycles, cycles


def test_one_name_one_class() -> None:
    """No two modules define classes of one name: who reads a name knows what it is."""
    homes: dict[str, list[str]] = {}
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(module)
    twice = {name: found for name, found in homes.items() if len(found) > 1}
    assert not twice, twice


def test_every_folder_has_its_place() -> None:
    """No subpackage escapes the order."""
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert folders <= set(ORDER), folders - set(ORDER)


def test_import_is_light() -> None:
    """``import headcount`` loads nothing heavy, nor any of its own subpackages."""
    loaded = loaded_by("import headcount")
    assert not loaded & {*HEAVY, "numpy", "scipy", "networkx"}
    assert not {name for name in loaded if layer(name) is not None and name.startswith("headcount.")}


@pytest.mark.parametrize("package", CORE)
def test_core_is_light(package: str) -> None:
    """The core loads plotting, tables, compilers and statistics when it uses them, not before."""
    loaded = loaded_by(f"import headcount.{package}")
    assert not loaded & {*HEAVY, "rich", "typer"}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_is_light(arguments: list[str]) -> None:
    """``headcount --help`` loads the parser and nothing heavy."""
    loaded = loaded_by(f"""
from headcount.cli import app
try:
    app({arguments!r})
except SystemExit as leaving:
    assert not leaving.code
""")
    assert not loaded & {*HEAVY, "numpy", "scipy", "networkx"}


@pytest.mark.parametrize("name", hc.__all__)
def test_public_names_resolve(name: str) -> None:
    """Every name the package promises is there, once asked for and in ``dir``."""
    assert getattr(hc, name) is not None
    assert name in dir(hc)


def test_type_checker_sees_the_public_names() -> None:
    """The block for the type checker and the lazy table name the same things from the same places."""
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if is_type_checking(node))
    seen = {
        alias.name: (node.module or "").removeprefix("headcount").lstrip(".") or None
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    home = {name: package for package, names in hc._NAMES.items() for name in names.split()}
    assert seen == {name: home.get(name) for name in hc.__all__ if name != "__version__"}


def test_unknown_names_are_refused() -> None:
    """A misspelt name raises and says where to look."""
    with pytest.raises(AttributeError, match=r"no attribute 'Posson'; dir\(headcount\)"):
        hc.Posson  # noqa: B018


def test_version_is_written_once() -> None:
    """The metadata, the command and the attribute say the same, from a single line of source."""
    said = subprocess.run(
        [sys.executable, "-c", "from headcount.cli import main; main()", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split() == ["headcount", hc.__version__]
    assert metadata.version("headcount") == hc.__version__
    written = [
        path.relative_to(ROOT)
        for path in [ROOT / "pyproject.toml", *modules().values()]
        if hc.__version__ in path.read_text(encoding="utf-8")
    ]
    assert written == [Path("src/headcount/_version.py")]


def test_doctor_lists_the_dependencies(capsys: pytest.CaptureFixture[str]) -> None:
    """Every dependency is looked at, needed or optional, and what is missing is said to be."""
    from headcount.cli._doctor import Finding, examine, show_findings

    found = {finding.subject: finding for finding in examine()}
    assert {"headcount", "python", "numpy", "scipy", "numba", "pyarrow", "distributed"} <= set(found)
    assert all(finding.healthy for finding in found.values())
    show_findings((Finding("numpy", "not installed; pip install numpy", healthy=False),))
    assert "missing" in capsys.readouterr().out


def pins(name: str = "requirements.txt") -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-benchmarks.txt"])
def test_pins_are_hashed_and_name_nobody(name: str) -> None:
    """The requirements carry versions and hashes: no index, no host, no path."""
    text = pins(name)
    assert not re.search(
        r"://|--(extra-)?index-url|--find-links|--trusted-host|^\S+ @ |^-e|/opt/|/tmp/", text, re.M
    )
    blocks = re.split(r"\n(?=[a-zA-Z0-9])", text)[1:]
    assert len(blocks) > 50
    unhashed = [
        block.partition("\n")[0] for block in blocks if "--hash=sha256:" not in block or "==" not in block
    ]
    assert not unhashed


def test_pins_cover_what_the_tests_need() -> None:
    """Every dependency and every extra that the suite uses is pinned; torch is not among them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = [
        *project["dependencies"],
        *(line for name in ("test", "cluster", "parquet", "networks", "docs") for line in extras[name]),
    ]
    names = {re.match(r"[\w.-]+", line)[0].lower() for line in needed}  # type: ignore[index]
    pinned = {name.lower() for name in re.findall(r"^([\w.-]+)==", pins(), re.M)}
    assert names <= pinned, names - pinned
    assert "torch" not in pinned


def test_both_pins_agree() -> None:
    """The peers' pins share the library's environment, so a package in both has one version."""
    first, second = (
        dict(re.findall(r"^([\w.-]+)==(\S+)", pins(name), re.M))
        for name in ("requirements.txt", "requirements-benchmarks.txt")
    )
    assert {name: first[name] for name in first.keys() & second} == {
        name: second[name] for name in first.keys() & second
    }


def test_every_long_test_exists() -> None:
    """A line of tests/long.txt names a file and, if it goes on, a test of that file."""
    root = Path(__file__).parents[1]
    lines = [n for n in (root / "tests/long.txt").read_text(encoding="utf-8").splitlines() if n[0] != "#"]
    assert lines
    for _, name in (line.split(None, 1) for line in lines):
        file, _, test = name.partition("::")
        tree = ast.parse((root / file).read_text(encoding="utf-8"))
        known = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert not test or test.partition("[")[0] in known, name
