"""Measure the source: size, complexity, how much of it one engine needs, and how much one command runs through.

``python -m tools.house`` prints a table. Every measure is computed here, from the syntax tree, so that the table needs nothing
beyond the library; the duplicates are counted only where a command ``duplicates`` exists.
"""

from __future__ import annotations

import ast
import io
import shutil
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "headcount"
BIRDS = ROOT / "examples" / "birds"
Function = ast.FunctionDef | ast.AsyncFunctionDef
KINDS = ("Model", "SizeLaw", "Dispersion", "Group", "Tracks", "Cloud")
"""Classes of which others are kinds: of individuals, their numbers, how they move together, who is counted."""
COMPLEX, VERY_COMPLEX = 11, 21
"""Cyclomatic complexity from which radon grades a block C, and D."""
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


class Block(NamedTuple):
    """A function, method or class, and its cyclomatic complexity."""

    place: str
    name: str
    complexity: int


def files() -> list[Path]:
    """Every Python file of the library."""
    return sorted(SOURCE.rglob("*.py"))


def code_lines(text: str) -> int:
    """Lines that hold code: no blank lines, comments or docstrings (of modules, classes, functions and attributes)."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            docstrings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def private_imports() -> list[tuple[str, str]]:
    """(file, module) for every import of a module whose name begins with an underscore from outside its package."""
    found = []
    for path in files():
        place = path.relative_to(SOURCE)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headcount."):
                package, *inside = (node.module or "").split(".")[1:]
                if any(part.startswith("_") for part in inside) and package != place.parts[0]:
                    found.append((str(place), f"{package}.{'.'.join(inside)}"))
    return found


def kinds_asked() -> list[tuple[str, str]]:
    """(place, class) for every ``isinstance`` test on a kind of model or population outside the module that defines it."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in files()}
    classes = {
        c.name: (path, c) for path, tree in trees.items() for c in tree.body if isinstance(c, ast.ClassDef)
    }
    kinds = set(KINDS)
    while (
        more := {name for name, (_, c) in classes.items() if kinds & set(map(ast.unparse, c.bases))} - kinds
    ):
        kinds |= more
    found = []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                named = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)} & kinds
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                found += [(place, name) for name in sorted(named) if classes[name][0] != path]
    return found


def import_cycles() -> list[list[str]]:
    """Modules that need one another, imports inside functions included; those that only the type checker reads are not."""
    known = modules()
    trees = {module: ast.parse(path.read_text(encoding="utf-8")) for module, path in known.items()}
    needs = {module: set(_imported(module, trees, known)) - {module} for module in known}

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            for module in needs[waiting.pop()] - found:
                found.add(module)
                waiting.append(module)
        return found

    behind = {module: reached(module) for module in known}
    rings = {
        tuple(sorted(m for m in known if m in behind[x] and x in behind[m])) for x in known if x in behind[x]
    }
    return [list(ring) for ring in sorted(rings)]


def decisions(node: ast.AST) -> int:
    """Decisions inside a node, counted as radon does; nested functions and classes, and what is asserted, are left out."""
    count = 0
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return 0
        case ast.Assert():
            return 1
        case ast.Try():
            count = len(node.handlers) + bool(node.orelse)
        case ast.BoolOp():
            count = len(node.values) - 1
        case ast.If() | ast.IfExp():
            count = 1
        case ast.For() | ast.While() | ast.AsyncFor():
            count = 1 + bool(node.orelse)
        case ast.comprehension():
            count = 1 + len(node.ifs)
        case ast.Match():
            fallback = any(
                isinstance(c.pattern, ast.MatchAs) and c.pattern.pattern is None for c in node.cases
            )
            count = max(0, len(node.cases) - fallback)
    return count + sum(map(decisions, ast.iter_child_nodes(node)))


def blocks(text: str, place: str = "") -> Iterator[Block]:
    """The functions, classes and methods of a module; a class has the mean complexity of its methods, plus one."""
    for node in _defined(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            methods = [m for m in _defined(node) if isinstance(m, Function)]
            own = [1 + sum(map(decisions, m.body)) for m in methods]
            whole = 1 + sum(map(decisions, node.body)) + sum(own)
            mean = int(whole / len(own)) + (len(own) > 1) if own else whole
            yield Block(f"{place}:{node.lineno}", node.name, mean)
            for method, complexity in zip(methods, own, strict=True):
                yield Block(f"{place}:{method.lineno}", f"{node.name}.{method.name}", complexity)
        else:
            yield Block(f"{place}:{node.lineno}", node.name, 1 + sum(map(decisions, node.body)))


def _defined(node: ast.AST) -> Iterator[Function | ast.ClassDef]:
    """Functions and classes in a node, not those inside these."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef):
            yield child
        else:
            yield from _defined(child)


def modules() -> dict[str, Path]:
    """Every module of the library, by its dotted name."""
    found = {}
    for path in files():
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def reachable(name: str = "TiltedEP") -> set[str]:
    """Modules that the module defining class `name` needs, itself included.

    Imports are followed from module to module, also those inside functions, but not those for the type checker; a name taken
    from a package leads to the module that defines it.
    """
    known = modules()
    trees = {module: ast.parse(path.read_text(encoding="utf-8")) for module, path in known.items()}
    start = next(
        module
        for module, tree in trees.items()
        if any(isinstance(node, ast.ClassDef) and node.name == name for node in tree.body)
    )
    found: set[str] = set()
    waiting = [start]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += _imported(module, trees, known)
    return found


def _imported(module: str, trees: dict[str, ast.Module], known: dict[str, Path]) -> Iterator[str]:
    """Modules that a module imports, re-exported names followed to where they are defined."""
    for source, name in _import_pairs(trees[module]):
        if f"{source}.{name}" in known:
            yield f"{source}.{name}"
        elif source in known:
            yield _home(source, name, trees, known)


def _home(module: str, name: str | None, trees: dict[str, ast.Module], known: dict[str, Path]) -> str:
    """The module in which a name that `module` offers is defined."""
    if known[module].name == "__init__.py":
        for source, exported in _import_pairs(trees[module]):
            if exported == name and source in known and f"{source}.{name}" not in known:
                return _home(source, name, trees, known)
    return module


def _import_pairs(node: ast.AST) -> Iterator[tuple[str, str | None]]:
    """(module, name) for every import below a node that is not for the type checker alone."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, None) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from ((node.module or "", alias.name) for alias in node.names)
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield from _import_pairs(child)


def path_of_an_inference() -> tuple[set[str], set[tuple[str, str]]]:
    """Files and functions of the library that run between ``headcount infer counts.csv`` and ``nodes.csv``.

    The initial law is read off the counts, so that this is one inference; by default it is learned, which is a fit. Lambdas and
    comprehensions count as functions.
    """
    # A process of its own: modules that are loaded already would not run again.
    script = f"""
import sys
passed = set()
def note(frame, event, argument):
    code = frame.f_code
    # 1 is CO_OPTIMIZED: functions have it, the bodies of modules and classes do not.
    if event == "call" and code.co_flags & 1 and code.co_filename.startswith({str(SOURCE)!r}):
        passed.add((code.co_filename, code.co_qualname))
sys.setprofile(note)
from headcount.cli import main
try:
    main()
finally:
    sys.setprofile(None)
    print(*(f"passed:{{file}}:{{name}}" for file, name in sorted(passed)), sep="\\n")
"""
    with tempfile.TemporaryDirectory() as folder:
        command = ["infer", BIRDS / "counts.csv", "--transitions", BIRDS / "transitions.csv"]
        command += ["--population", "1080", "--noise", "poisson", "--initial", "counts"]
        command += ["--out", Path(folder) / "results"]
        done = subprocess.run(
            [sys.executable, "-c", script, *map(str, command)], capture_output=True, text=True, check=True
        )
        if not (Path(folder) / "results" / "nodes.csv").exists():
            raise RuntimeError(f"the inference wrote no nodes.csv: {done.stdout[-500:]}")
    pairs = {
        (file, name)
        for line in done.stdout.splitlines()
        if line.startswith("passed:")
        for file, name in [line.removeprefix("passed:").split(":", 1)]
    }
    return {file for file, _ in pairs}, pairs


def duplicate_pairs() -> int | None:
    """Pairs of places in the source that share six or more lines; None without the command."""
    if shutil.which("duplicates") is None:
        return None
    done = subprocess.run(
        ["duplicates", "--repo", str(SOURCE), "--seconds", "120", "--most", "200"],
        capture_output=True,
        text=True,
        check=True,
    )
    return sum(line.startswith("D") and " ~ " in line for line in done.stdout.splitlines())


def measures() -> dict[str, int | None]:
    """Every line of the table."""
    texts = {path: path.read_text(encoding="utf-8") for path in files()}
    found = [b for path, text in texts.items() for b in blocks(text, str(path.relative_to(ROOT)))]
    passed_files, passed_functions = path_of_an_inference()
    return {
        "code lines in src": sum(map(code_lines, texts.values())),
        "files in src": len(texts),
        "private modules imported across packages": len(set(private_imports())),
        "isinstance tests on kinds of model or population": len(kinds_asked()),
        "import cycles, functions included": len(import_cycles()),
        "modules reachable from TiltedEP": len(reachable()),
        "blocks rated C or worse": sum(block.complexity >= COMPLEX for block in found),
        "blocks rated D or worse": sum(block.complexity >= VERY_COMPLEX for block in found),
        "files from CSV to nodes.csv": len(passed_files),
        "functions from CSV to nodes.csv": len(passed_functions),
        "duplicate pairs": duplicate_pairs(),
    }


def main() -> None:
    """Print the table; with ``--blocks`` also every block rated C or worse."""
    for name, value in measures().items():
        print(f"{name:35} {'no command `duplicates`' if value is None else value}")
    if "--blocks" in sys.argv[1:]:
        found = [b for p in files() for b in blocks(p.read_text(encoding="utf-8"), str(p.relative_to(ROOT)))]
        for block in sorted(found, key=lambda b: -b.complexity):
            if block.complexity >= COMPLEX:
                print(f"{block.complexity:4} {block.place} {block.name}")


if __name__ == "__main__":
    main()
