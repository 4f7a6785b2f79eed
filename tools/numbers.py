"""Numbers of the documentation, from stored results: every block between ``<!-- numbers: name -->`` and ``<!-- end -->`` is written here.

``python -m tools.numbers`` writes the blocks of all pages anew; a test fails where a page has anything else in one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (
    *("README.md", "docs/howto/which-tool.md", "docs/howto/trust-the-answer.md", "docs/howto/tags.md"),
    *("docs/tested.md", "docs/paper/paper.md"),
)
BLOCK = re.compile(r"(<!-- numbers: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.S)


def stored(name: str) -> dict[str, Any]:
    """A stored result of the benchmarks."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def rows_of(name: str, title: str) -> list[list[Any]]:
    """The rows of the one stored table whose title begins so."""
    (found,) = (t for t in stored(name)["tables"] if t["title"].startswith(title))
    rows: list[list[Any]] = found["rows"]
    return rows


def check(name: str, beginning: str) -> float:
    """The value of the one stored check whose name begins so."""
    (found,) = (c["value"] for c in stored(name)["checks"] if c["name"].startswith(beginning))
    return float(found)


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def short(value: float | None) -> str:
    """A number in two digits; seconds and errors alike."""
    if value is None:
        return "–"
    return (
        f"{value:.1e}"
        if value != 0 and abs(value) < 1e-4
        else f"{value:.2g}"
        if value < 100
        else f"{value:.0f}"
    )


def peers() -> str:
    """Each task, ours and the peers'."""
    rows = [
        [task, package, short(seconds), short(nodes), short(flows), short(sds)]
        for task, package, seconds, _, _, nodes, flows, sds, _ in rows_of("peers", "Side by side")
    ]
    return table(["task", "package", "seconds", "error of counts", "of flows", "of sds"], rows)


def worked() -> str:
    """Flows of the example, by every package."""
    found = stored("worked")
    zones, rows = found["zones"], []
    for i, origin in enumerate(zones):
        for j, dest in enumerate(zones):
            ends = f"{found['lower'][i][j]:.0f} to {found['upper'][i][j]:.0f}"
            points = [f"{found[name][i][j]:.2f}" for name in ("mbi", "pycbp", "headcount")]
            rows.append([f"{origin} → {dest}", *points, ends])
    head = ["morning → noon", f"mbi {found['mbi version']}", f"pycbp {found['pycbp version']}"]
    return table([*head, "headcount", "its 90 % interval"], rows)


def beside_mbi() -> str:
    """Networks and health tables, as points."""
    released, other = (row[1:] for row in rows_of("health", "Four noisy tables")[:2])
    networks = rows_of("networks", "The same counts beside mbi")
    rows = [
        ["health survey, released tables", f"{100 * released[0]:.2f} %", f"{100 * other[0]:.2f} %"],
        ["health survey, other tables", f"{100 * released[1]:.2f} %", f"{100 * other[1]:.2f} %"],
    ]
    rows += [
        [f"network {name}, hidden counts", f"{100 * ours:.2f} %", f"{100 * theirs:.2f} %"]
        for name, ours, theirs, *_ in networks
        if name in {"alarm", "sachs", "insurance", "hailfinder"}
    ]
    return table(["misplaced share", "headcount", "mbi"], rows)


def dail_madsen() -> str:
    """One cell of an open population against the sums that `unmarked` computes."""
    rows = [
        [f"{first}", short(off), f"{sums:.2f}", f"{ours:.3f}"]
        for first, off, sums, ours, _ in rows_of("sizes", "One cell against Dail")
    ]
    return table(
        ["expected at first", "log-likelihood off by, nats", "sums, CPU s", "headcount, CPU s"], rows
    )


def targets() -> str:
    """How many targets each claim meets."""
    rows, met, every = [], 0, 0
    for path in sorted(RESULTS.glob("*.json")):
        content = stored(path.stem)
        checks = content.get("checks") or []
        if not checks:
            continue
        good = sum(c["met"] for c in checks)
        met, every = met + good, every + len(checks)
        rows.append(
            [content["summary"].rstrip("."), f"{good} of {len(checks)}", content["provenance"]["date"][:10]]
        )
    said = f"{met} of {every} stored targets are met; those that are missed are named, with by how much, on [the page of the benchmarks]"
    return table(["claim", "targets met", "measured"], rows) + f"\n{said}(benchmarks.md).\n"


def coverage() -> str:
    """Shares of 90 % intervals that hold the truth, wherever it was simulated or recorded."""
    wanted = (
        ("coverage", "nodes, observed times, Nμ", "counts where somebody looked"),
        ("coverage", "nodes, unobserved times, Nμ", "counts where nobody looked"),
        ("coverage", "flows, observed times, Nμ", "flows"),
        ("dispersion", "coverage of flows with the estimated", "flows of flocks, scatter estimated"),
        ("groups", "one size unknown: coverage of flows of west", "flows of a group of unknown size"),
        ("sizes", "unknown: 90 % intervals that hold N", "an unknown number of individuals"),
        ("learned", "4 weights: 90 % intervals of flows", "flows after learning four weights"),
        ("learned", "420 probabilities: 90 % intervals of flows", "flows after learning 420 probabilities"),
        ("networks", "hidden counts inside", "hidden counts of 24 networks"),
        ("bikes", "flows with mean ≥ 1", "real bikes, flows of at least one"),
        ("flights", "routes inside their 90 % interval, survey of 1.0%", "real flights, routes"),
        ("docks", "true numbers inside", "real docks, numbers, detection learned"),
    )
    rows = []
    for claim, beginning, words in wanted:
        values = [c["value"] for c in stored(claim)["checks"] if c["name"].startswith(beginning)]
        rows.append([words, f"{100 * values[0]:.1f} %"])
    return table(["90 % intervals of", "hold the truth"], rows)


def versions() -> str:
    """The runs of the suite with other versions."""
    runs = json.loads((ROOT / "tools" / "versions.json").read_text(encoding="utf-8"))
    names = ("numpy", "scipy", "pandas", "numba", "xarray")
    rows = [
        [
            name.split()[0],
            run["python"],
            *(run["versions"][n] for n in names),
            f"{run['passed']}",
            f"{run.get('skipped', 0)}",
        ]
        for name, run in runs.items()
    ]
    said = sorted({run["pytest"] for run in runs.values()})
    return table(["versions", "Python", *names, "tests passed", "skipped"], rows) + "".join(
        f"\nRun with: {words}.\n" for words in said
    )


def mutations() -> str:
    """How many of the hand-made faults the suite notices."""
    score = json.loads((ROOT / "tools" / "mutations.json").read_text(encoding="utf-8"))
    guarded = json.loads((ROOT / "benchmarks" / "reference.json").read_text(encoding="utf-8"))["claims"]
    ratios = sum(c["ratio"] for checks in guarded.values() for c in checks.values())
    every = sum(len(checks) for checks in guarded.values())
    return (
        f"- Of {len(score)} faults made on purpose (a wrong sign, a missing factor, a constant off), the tests beside them notice "
        f"{sum(score.values())}.\n"
        f"- {every} benchmark numbers are held against those of the last release: {every - ratios} accuracies against their own errors, "
        f"{ratios} times as ratios to a peer, another method or the machine's limit.\n"
    )


def paper_accuracy() -> str:
    """The first table of the reproduction, our rows."""
    text = (ROOT / "reproduction" / "comparison.md").read_text(encoding="utf-8")
    ours = text.split("| **ours** |")[1].split("| **")[0].splitlines()
    rows = [line for line in ours if re.match(r"\| (MAP|GCGM|TiltedEP) \([NE]\)", line)]
    return "| | 36 | 360 | 1080 | 3600 |\n|---|---|---|---|---|\n" + "\n".join(rows) + "\n"


def paper_two_cells() -> str:
    """Errors against the exact recursion, by engine and N."""
    rows = [
        [engine, f"{n}", short(mean), short(nats), short(sd) if engine != "MAP" else "–"]
        for engine, n, mean, nats, sd in rows_of("accuracy", "Two-cell chain")
        if engine in {"TiltedEP", "Laplace"}
    ]
    return table(["engine", "N", "error of means", "of the evidence, nats", "of sds"], rows)


def paper_zeros() -> str:
    """What whole numbers change where a cell expects few."""
    rows = [
        [f"{persistence:g}", seen, f"{exact:.3f}", f"{ours:.3f}", f"{paper:.2f}"]
        for persistence, seen, exact, ours, paper, *_ in rows_of("accuracy", "Twenty zeros")
    ]
    return table(
        ["persistence", "other cell", "exact mean", "`TiltedEP`", "Gaussian at the prior mean"], rows
    )


def paper_algebra() -> str:
    """Combinations of kinds of population, noise and structure."""
    every = stored("combinations")["checks"]
    value = {c["name"]: (c["value"], c["note"]) for c in every}
    wrong, note = value["combinations with a mean off by more than .1 N and half an sd"]
    raised, of = value["combinations that raise an error"]
    stalled, told = value["answers that did not converge and do not name what the counts cannot tell"]
    return (
        f"Of 500 random combinations {raised:.0f} raise an error; of those that do not converge, which all say so, {told} and "
        f"{stalled:.0f} do not; {wrong:.0f} {note} have a mean that is off by more than a tenth of $N$ and half a standard deviation.\n"
    ).replace("Of 500", of.capitalize())


def paper_large() -> str:
    """Moments without matrices."""
    large, nets = "large", "networks"
    return (
        f"Without matrices, a dense map takes {check(large, 'dense map, time without'):.2f} of the time with them, at a median error of "
        f"standard deviations of {100 * check(large, 'dense map, median error'):.1f} %; time grows with the number of cells to the power "
        f"{check(large, 'growth of the time'):.2f}, up to {check(large, 'table of flows, rows') / 1e6:.0f} million flows in "
        f"{check(large, 'largest map, peak memory'):.1f} GiB. {check(nets, 'networks with intervals within ten'):.0f} of "
        f"{len(rows_of(nets, 'Networks:'))} networks of the bnlearn repository have intervals within ten minutes of processor time; "
        f"{100 * check(nets, 'hidden counts inside'):.0f} % of hidden counts lie in their 90 % intervals.\n"
    )


def paper_identification() -> str:
    """Who is told that all is well."""
    told = check("doubt", "worlds told that all is well")
    right = check("doubt", "share of them that are right")
    named = check("doubt", "share of the others")
    held = check("doubt", "coverage of 90 % intervals of flows")
    return (
        f"In simulated worlds of every kind, right and wrong, {told:.0f} fits were told that all is well, of which "
        f"{100 * right:.0f} % were; in "
        f"{100 * named:.0f} % of the others the check names what is wrong or not identified; where prior and model hold, "
        f"{100 * held:.0f} % of flows lie in their 90 % intervals.\n"
    )


def doubt() -> str:
    """Who is told that all is well, and coverage by kind of world."""
    rows = {row[0]: row for row in rows_of("doubt", "Worlds by kind")}
    told = check("doubt", "worlds told that all is well")
    wrong = round(told * (1 - check("doubt", "share of them that are right")))
    held = check("doubt", "coverage of 90 % intervals of flows")
    return (
        f"The [stored run](../benchmarks.md) has {sum(row[1] for row in rows.values())} worlds. {told:.0f} of them are told that all is "
        f"well, of which {wrong} are wrong. Intervals of flows hold {100 * held:.0f} % where prior and model hold the truth, "
        f"{100 * rows['a covariate left out'][5]:.0f} % where a covariate is missing and "
        f"{100 * rows['commuting, 20 zones'][5]:.0f} % where the number of jobs is: "
        f"{rows['a covariate left out'][3] + rows['commuting, 20 zones'][3]} of the last two kinds are told that all is well.\n"
    )


def ridges() -> str:
    """Moves of noisy counts, integrated over and at the maximum."""
    head = [
        *("counts, moves", "coverage, integrated", "at the maximum"),
        *("misplaced, integrated", "at the maximum", "best trivial"),
    ]
    found = rows_of("ridges", "Moves of noisy counts")
    rows = [[row[0], *(f"{value:.2f}" for value in row[2:7])] for row in found]
    told = sum(row[9] for row in found)
    return table(head, rows) + (
        f"\nOf {sum(row[1] for row in found)} worlds {told} are told that all is well; "
        f"{check('ridges', 'worlds told that all is well'):.0f} of these are wrong: intervals hold less than 80 % of the flows, or errors "
        "are above 1.5 times those of the best trivial answer.\n"
    )


def shares() -> str:
    """Standard errors of weights from shares and recoveries."""
    rows = [
        [row[0], row[1], f"{row[2]:.3f}", f"{row[3]:.0f}"] for row in rows_of("tags", "Weights from shares")
    ]
    return table(
        ["counts", "recoveries beside", "mean standard error of a weight", "individuals that move alone"],
        rows,
    )


def homes() -> str:
    """Nats per recovery of individuals that come home."""
    rows = rows_of("tags", "Recoveries of individuals")
    return table(["model", "nats per recovery"], [[row[0], f"{row[-1]:.3f}"] for row in rows])


BLOCKS: dict[str, Callable[[], str]] = {
    "peers": peers,
    "worked": worked,
    "beside-mbi": beside_mbi,
    "dail-madsen": dail_madsen,
    "targets": targets,
    "coverage": coverage,
    "versions": versions,
    "mutations": mutations,
    "paper-accuracy": paper_accuracy,
    "paper-two-cells": paper_two_cells,
    "paper-zeros": paper_zeros,
    "paper-algebra": paper_algebra,
    "paper-large": paper_large,
    "paper-identification": paper_identification,
    "doubt": doubt,
    "ridges": ridges,
    "shares": shares,
    "homes": homes,
}
"""What each block holds."""


def filled(text: str) -> str:
    """A page with its blocks as the stored results have them."""
    unknown = set(re.findall(r"<!-- numbers: ([\w-]+) -->", text)) - set(BLOCKS)
    if unknown or text.count("<!-- numbers: ") != text.count("<!-- end -->"):
        raise ValueError(f"blocks without an end, or unknown ones: {', '.join(sorted(unknown))}")
    return BLOCK.sub(lambda found: f"{found[1]}\n{BLOCKS[found[2]]()}\n{found[4]}", text)


def main() -> int:
    """Write every page anew."""
    for name in PAGES:
        page = ROOT / name
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
