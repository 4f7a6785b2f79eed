"""The page: stored numbers as tables and figures, what was met and what was missed, and by how much."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks._figures import draw
from benchmarks._report import ROOT, stored

PAGE = ROOT / "docs" / "benchmarks.md"
FIGURES = ROOT / "docs" / "benchmarks"
TITLES = {
    "speed": "Speed and memory",
    "coldstart": "The first inference on a fresh machine",
    "reading": "Reading large tables",
    "accuracy": "Accuracy",
    "exact_tables": "Exact counts on sparse maps",
    "coverage": "Coverage of intervals",
    "dispersion": "Individuals that move together",
    "groups": "Kinds and tracks",
    "fit_check": "Does the model fit?",
    "sizes": "Unknown numbers, open populations",
    "samplers": "Samplers and searches",
    "peers": "Beside other packages",
    "scaling": "Scaling",
    "large": "Large maps",
    "large_fit": "Learning on a large map",
    "gpu": "On a graphics card",
    "many": "Many problems",
    "limits": "Against the machine's limits",
    "learning": "Learning",
    "learned": "Intervals after a fit",
    "doubt": "Who is told that all is well",
    "ridges": "Moves that noisy counts leave open",
    "tags": "Tags beside shares, and homes",
    "precincts": "Precincts that differ: ecological inference",
    "starts": "Several maxima",
    "small": "Many small problems",
    "flights": "Flights: from totals to routes",
    "docks": "Docks: an open population beside the standard model",
    "health": "Health: noisy tables beside mbi",
    "networks": "Networks that are no trees",
}

AFTER = {
    "large": """### What other packages can run at these sizes

None of them was measured at these sizes; what is known of them:

* **BirdFlow** fits one table of all pairs of active cells per week, so parameters and memory grow with the fourth power of the inverse
  cell size. The documentation of `preprocess_species` in
  [BirdFlowR](https://github.com/birdflow-science/BirdFlowR/blob/HEAD/R/preprocess_species.R) reports that 557 million parameters worked
  and 610 million failed on a GPU with 24 GB, 23 million per GB. With all cells active in 52 weeks that is 3 300 cells on such a GPU; 10
  000 cells would be 5 100 million parameters, 220 GB. What it gives is one fitted Markov chain, without intervals of counts.
* **dynamax** (Gaussian smoothing) holds one covariance matrix of all cells per time: 800 MB at 10 000 cells, 42 GB in 52 weeks, and a
  factorisation of L³ for each. Measured above up to 100 cells.
* **mbi, pycbp, POT, ott-jax** (exact totals) give points without intervals from dense tables of pairs, 800 MB per step at 10 000 cells.
  Measured above up to 36 cells and 20 times, and 400 cells and two times.
* **cvxpy** took 241 s for 36 cells and 20 times, **NumPyro** (NUTS) some 500 times our time for 16 cells (both measured above).
""",
}
"""What is said below a claim's numbers."""

HEAD = """# Benchmarks

Everything here is measured by `make bench` (hours on two cores; `make bench-quick` takes minutes, and fails where it is worse than the
last release) and written by
`python -m benchmarks page` from the numbers in `benchmarks/results/`. Rivals run side by side on the same arrays, in the same run.
Losses are shown as they are.
"""


def write_page() -> Path:
    """Write ``docs/benchmarks.md`` and its figures."""
    found = {claim: stored(claim) for claim in TITLES}
    parts = [HEAD, _summary({c: f for c, f in found.items() if f is not None})]
    for claim, title in TITLES.items():
        content = found[claim]
        parts.append(f"## {title}\n")
        parts.append("Not measured yet.\n" if content is None else _section(claim, content))
        parts += [AFTER[claim]] if claim in AFTER else []
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")
    return PAGE.relative_to(ROOT)


def _summary(found: dict[str, dict[str, Any]]) -> str:
    """How many targets are met, and every one that is missed."""
    checks = [(claim, check) for claim, content in found.items() for check in content["checks"]]
    met = sum(check["met"] for _, check in checks)
    lines = [f"**{met} of {len(checks)} targets are met.**"]
    if any(content["provenance"]["quick"] for content in found.values()):
        quick = [TITLES[c].lower() for c, f in found.items() if f["provenance"]["quick"]]
        lines.append(
            f"\nOnly small sizes so far (`--quick`), whose targets are those of the full sizes: {', '.join(quick)}."
        )
    missed = [(claim, check) for claim, check in checks if not check["met"]]
    if missed:
        lines.append("\n| missed | measured | wanted | by |\n|---|---|---|---|")
        lines += [
            f"| {check['name']} | {_number(check['value'])} {check['unit']} | {_bounds(check)} | {_by(check)} |"
            for _, check in missed
        ]
    broken = [f"{TITLES[c]}: {f['failure']}" for c, f in found.items() if f["failure"]]
    lines += [f"\nBroke down: {text}" for text in broken]
    return "\n".join(lines) + "\n"


def _section(claim: str, content: dict[str, Any]) -> str:
    lines = [content["summary"], ""]
    if content["checks"]:
        lines += ["| target | measured | wanted | |", "|---|---|---|---|"]
        lines += [
            f"| {c['name']} | {_number(c['value'])} {c['unit']} | {_bounds(c)} | {'met' if c['met'] else '**missed**, by ' + _by(c)} |"
            for c in content["checks"]
        ]
        lines.append("")
    for table in content["tables"]:
        lines += [f"### {table['title']}", "", "| " + " | ".join(table["columns"]) + " |"]
        lines.append("|" + "---|" * len(table["columns"]))
        lines += ["| " + " | ".join(_cell(v) for v in row) + " |" for row in table["rows"]]
        lines += ["", table["note"], ""] if table["note"] else [""]
    for number, curve in enumerate(content["curves"]):
        name = f"{claim}-{number}.svg"
        draw(curve, FIGURES / name)
        fitted = ", ".join(f"{k} {v:.2f}" for k, v in curve["exponents"].items() if v is not None)
        lines += [f"### {curve['title']}", "", f"![{curve['title']}](benchmarks/{name})", ""]
        lines += [f"Fitted exponents: {fitted}.", ""] if fitted else []
        lines += [curve["note"], ""] if curve["note"] else []
    return "\n".join([*lines, _where(content["provenance"]), ""])


def _where(p: dict[str, Any]) -> str:
    """One line of provenance."""
    versions = ", ".join(f"{name} {version}" for name, version in p["versions"].items())
    busy = f", load {p['load'][0]:g} at the end" if p.get("load") else ""
    changed = ", with uncommitted changes" if p["modified"] else ""
    return (
        f"<small>{p['date'][:16].replace('T', ' ')} UTC, `{p['command']}`, {p['seconds']:.0f} s; commit {p['commit'][:10]}{changed}; "
        f"{p['processor']}, {p['cores']} cores, {p['memory_gib']} GiB{busy}; Python {p['python']}, {versions}.</small>"
    )


def _bounds(check: dict[str, Any]) -> str:
    low, high = check["at_least"], check["at_most"]
    if low is not None and high is not None:
        return f"{_number(low)} – {_number(high)}"
    return f"≥ {_number(low)}" if low is not None else f"≤ {_number(high)}"


def _by(check: dict[str, Any]) -> str:
    """How far a target is missed."""
    value, low, high = check["value"], check["at_least"], check["at_most"]
    if value is None:
        return "no number"
    if high is not None and value > high:
        return f"{value / high:.2f} ×" if high > 0 else _number(value - high)
    return f"{value / low:.2f} ×" if low else _number(low - value)


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    if value == 0 or (abs(value) >= 1e-3 and abs(value) < 1e5):
        return f"{value:.4g}"
    return f"{value:.2e}"


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value.replace("|", "∣")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, int) else _number(value)
