"""The supply chain: a bill of materials made from the hash-checked pins, and the licence of every package among them.

``python -m tools.sbom`` prints CycloneDX JSON; the sdist ships it as ``sbom.cdx.json`` (``hatch_build.py``). ``python -m tools.sbom
licences`` prints the table of docs/dependencies.md and fails if a licence is unknown or not allowed. Only the standard library is
used, and there is no clock: the same pins give the same bytes.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
DEVELOPMENT = {"all", "benchmarks", "docs", "test"}
"""Extras that say nothing about what a user of the library installs; ``all`` only names the others."""
NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
"""RFC 4122's namespace of URLs: the serial number is a hash of the content in it."""

ALLOWED = {
    *("0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-CMU"),
    *("PSF-2.0", "Python Software Foundation License", "Zlib", "Apache-2.0 WITH LLVM-exception"),
    "MPL-2.0",  # obliges those who change its files; we change none and ship none
}
"""Licences under which a package may be used beside ours (MIT) without obligations for its users' own code."""
SAME = {
    "2-clause BSD": "BSD-2-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "ISC License": "ISC",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "The MIT License (MIT)": "MIT",
}
"""What packages write, and the identifier it stands for."""


class Pin(NamedTuple):
    """One line of requirements.txt: a version, the hashes of its files, and who asked for it."""

    name: str
    version: str
    hashes: tuple[str, ...]
    via: tuple[str, ...]


def project() -> dict[str, Any]:
    """The table ``project`` of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def pins(text: str | None = None) -> list[Pin]:
    """Every pin of requirements.txt, or of a `text` in its form."""
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8") if text is None else text
    made = []
    for block in re.split(r"\n(?=[\w])", text):
        found = re.match(r"([\w.-]+)==(\S+)", block)
        if found:
            reasons = block.partition("# via")[2].replace("#", " ").replace("(pyproject.toml)", " ")
            hashes = tuple(re.findall(r"--hash=sha256:(\w+)", block))
            made.append(Pin(found[1].lower(), found[2], hashes, tuple(reasons.split())))
    return made


def named(requirements: list[str]) -> set[str]:
    """The packages that lines such as ``numpy>=2.0`` name."""
    return {re.match(r"[\w.-]+", line)[0].lower() for line in requirements}  # type: ignore[index]


def needed_by(first: set[str], every: list[Pin]) -> set[str]:
    """`first` and all they need, by the comments ``# via`` of the pins."""
    found = {pin.name for pin in every} & first
    while True:
        more = {pin.name for pin in every if found & set(pin.via)}
        if more <= found:
            return found
        found |= more


def scopes(every: list[Pin]) -> dict[str, str]:
    """CycloneDX's word for each package: required (core), optional (an extra), excluded (tests and documentation)."""
    given = project()
    extras = [
        line
        for name, lines in given["optional-dependencies"].items()
        if name not in DEVELOPMENT
        for line in lines
    ]
    core, optional = (needed_by(named(lines), every) for lines in (given["dependencies"], extras))
    return {
        pin.name: "required" if pin.name in core else "optional" if pin.name in optional else "excluded"
        for pin in every
    }


def bill() -> dict[str, Any]:
    """The bill of materials, CycloneDX 1.6: components with version, hashes and scope, and who needs whom."""
    given, every = project(), pins()
    scope = scopes(every)
    version = re.search(r'"(.+)"', (ROOT / "src/headcount/_version.py").read_text(encoding="utf-8"))
    assert version is not None
    reference = {pin.name: f"pkg:pypi/{pin.name}@{pin.version}" for pin in every}
    own = f"pkg:pypi/{given['name']}@{version[1]}"
    components = [
        {
            "type": "library",
            "bom-ref": reference[pin.name],
            "name": pin.name,
            "version": pin.version,
            "purl": reference[pin.name],
            "scope": scope[pin.name],
            "hashes": [{"alg": "SHA-256", "content": content} for content in pin.hashes],
        }
        for pin in every
    ]
    needs = {own: [reference[pin.name] for pin in every if given["name"] in pin.via]} | {
        reference[name]: [reference[pin.name] for pin in every if name in pin.via] for name in reference
    }
    body = {
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": given["name"],
                "version": version[1],
                "purl": own,
                "licenses": [{"license": {"id": given["license"]}}],
            }
        },
        "components": components,
        "dependencies": [{"ref": name, "dependsOn": others} for name, others in needs.items()],
    }
    serial = uuid.uuid5(NAMESPACE, json.dumps(body, sort_keys=True))
    head = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
    }
    return head | body


def licence(name: str) -> str:
    """The licence that an installed package states: its SPDX expression, else its classifiers, else the first line of its text."""
    told = metadata.metadata(name)
    if "License-Expression" in told:
        return told["License-Expression"]
    first = "".join(told.get_all("License") or ()).strip().partition("\n")[0].strip()
    if allowed(first):
        return _identifiers(first)
    classes = [line for line in told.get_all("Classifier") or () if line.startswith("License ::")]
    stated = " OR ".join(line.rpartition(" :: ")[2] for line in classes) or first
    return _identifiers(stated) or "unknown"


def _identifiers(text: str) -> str:
    """A stated licence with the identifiers of `SAME` in it."""
    parts = re.split(r"( AND | OR )", text)
    return "".join(SAME.get(part, part) for part in parts)


def allowed(expression: str) -> bool:
    """Whether all parts joined by AND have a choice, joined by OR, that is in `ALLOWED`."""
    parts = _identifiers(expression)
    return all(any(choice in ALLOWED for choice in part.split(" OR ")) for part in parts.split(" AND "))


def installed(name: str) -> bool:
    """Whether the package is here; a pin may be for another platform."""
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def megabytes(name: str) -> float:
    """What the files of an installed package weigh, in MB of 10⁶ bytes, compiled caches left out."""
    files = metadata.files(name) or []
    sizes = (Path(str(file.locate())).stat().st_size for file in files if _counts(file))
    return sum(sizes) / 1e6


def _counts(file: metadata.PackagePath) -> bool:
    return "__pycache__" not in file.parts and Path(str(file.locate())).is_file()


def table() -> str:
    """Package, scope, licence and weight of all that a user may install, as Markdown; the largest first."""
    every = pins()
    scope = scopes(every)
    rows = sorted(
        (
            (pin.name, scope[pin.name], licence(pin.name), megabytes(pin.name))
            for pin in every
            if installed(pin.name)
        ),
        key=lambda row: (row[1] != "required", -row[3]),
    )
    lines = ["| package | needed | licence | MB |", "|---|---|---|---|"]
    words = {"required": "always", "optional": "extra"}
    lines += [f"| {n} | {words[s]} | {text} | {size:.1f} |" for n, s, text, size in rows if s in words]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print the bill, or the table of licences; 1 where a licence is not allowed."""
    if arguments != ["licences"]:
        print(json.dumps(bill(), indent=1))
        return 0
    print(table())
    wrong = [
        f"{p.name}: {licence(p.name)}" for p in pins() if installed(p.name) and not allowed(licence(p.name))
    ]
    print(*wrong, sep="\n", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
