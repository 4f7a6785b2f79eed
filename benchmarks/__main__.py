"""``python -m benchmarks [CLAIM …] [--quick]`` measures; ``python -m benchmarks page`` writes the page from what is stored."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from importlib import import_module

from benchmarks._guard import GUARDED, REFERENCE, busy, faults, keep, read
from benchmarks._page import write_page
from benchmarks._report import Report, machine, store
from headcount._device import DeviceError

CLAIMS = {
    "limits": "benchmarks.limits",
    "speed": "benchmarks.speed",
    "coldstart": "benchmarks.coldstart",
    "scaling": "benchmarks.scaling",
    "large": "benchmarks.large",
    "large_fit": "benchmarks.large_fit",
    "gpu": "benchmarks.gpu",
    "many": "benchmarks.many",
    "samplers": "benchmarks.samplers",
    "plan": "benchmarks.plan",
    "reading": "benchmarks.reading",
    "peers": "benchmarks.peers.compare",
    "coverage": "benchmarks.coverage",
    "dispersion": "benchmarks.dispersion",
    "groups": "benchmarks.groups",
    "accuracy": "benchmarks.accuracy",
    "exact_tables": "benchmarks.exact_tables",
    "exact_evidence": "benchmarks.exact_evidence",
    "combinations": "benchmarks.combinations",
    "learning": "benchmarks.learning",
    "starts": "benchmarks.starts",
    "small": "benchmarks.small",
    "fit_check": "benchmarks.fit_check",
    "learned": "benchmarks.learned",
    "doubt": "benchmarks.doubt",
    "ridges": "benchmarks.ridges",
    "tags": "benchmarks.tags",
    "precincts": "benchmarks.precincts",
    "bikes": "benchmarks.bikes",
    "sizes": "benchmarks.sizes",
    "flights": "benchmarks.flights",
    "docks": "benchmarks.docks",
    "health": "benchmarks.health",
    "networks": "benchmarks.networks",
    "series": "benchmarks.series",
    "long": "benchmarks.long",
}
"""The modules, in the order they run: what measures time first, while the machine is cool and quiet."""


def main(arguments: list[str] | None = None) -> int:
    """Run the claims asked for, store each as soon as it is done, and say what was met; 1 when a claim broke down."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure, store, show.")
    parser.add_argument(
        "claims", nargs="*", metavar="CLAIM", help=f"{', '.join(CLAIMS)}; or page; all if left out"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small sizes, kept apart from the full results, held against the last release",
    )
    parser.add_argument(
        "--keep", action="store_true", help="with --quick: store what was measured as the release's"
    )
    given = parser.parse_args(arguments)
    unknown = [c for c in given.claims if c not in {*CLAIMS, "page"}]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(CLAIMS)} and page")
    if given.keep and not given.quick:
        parser.error("--keep is for --quick: what is kept is what a quick run is held against")
    here = machine()
    alone = not busy((here["load"] or [0.0])[0], here["cores"])
    start, reports = time.perf_counter(), []
    for claim in [c for c in given.claims or (GUARDED if given.quick else CLAIMS) if c != "page"]:
        reports.append(_measure(claim, quick=given.quick))
    if not given.quick or "page" in given.claims:
        print(f"\nThe page: {write_page()}")
    measured = [report for report in reports if report is not None]
    broken = len(measured) < len(reports) or any(report.failure for report in measured)
    if given.keep:
        if broken:
            print("\nNothing was kept: a claim broke down.")
        else:
            if not alone:
                print(
                    f"\nThis machine is busy (load {here['load'][0]:g}): keep again when it is not, times are too long."
                )
            keep(measured, seconds=time.perf_counter() - start)
            print(f"\nKept as the release's in {REFERENCE.name}")
    elif given.quick:
        broken |= _compared(measured, ratios=alone)
    return 1 if broken else 0


def _compared(reports: list[Report], *, ratios: bool) -> bool:
    """Hold quick results against the last release's, times only if ``ratios``, and print what is worse; whether anything is."""
    held = read().get("claims", {})
    wrong, count = [], 0
    for report in reports:
        own = held.get(report.claim, {})
        wrong += faults(report.claim, own, report, ratios=ratios)
        count += sum(c.name in own and (ratios or not own[c.name]["ratio"]) for c in report.checks)
    if not ratios:
        print("\nThis machine is busy with other work: times are not compared.")
    print(f"\nAgainst the last release: {len(wrong)} of {count} worse", *wrong, sep="\n  ")
    return bool(wrong)


def _measure(claim: str, *, quick: bool) -> Report | None:
    """Run one claim, store and print it; None where its module or the device is missing."""
    print(f"\n{claim} …", flush=True)
    start = time.perf_counter()
    try:
        module = import_module(CLAIMS[claim])
    except ModuleNotFoundError as error:
        print(f"  there is no {error.name}")
        return None
    try:
        report: Report = module.run(quick=quick)
    except DeviceError as error:  # what was measured where there is one stays
        print(f"  left as it is: {error}")
        return Report(claim, "")
    except Exception as error:
        traceback.print_exc()
        report = Report(
            claim, (module.__doc__ or claim).splitlines()[0], failure=f"{type(error).__name__}: {error}"
        )
    seconds = time.perf_counter() - start
    path = store(report, quick=quick, seconds=seconds)
    for check in report.checks:
        bound = f"at most {check.at_most:g}" if check.at_most is not None else ""
        bound += (
            f"{' and ' if bound else ''}at least {check.at_least:g}" if check.at_least is not None else ""
        )
        print(
            f"  {'met   ' if check.met else 'MISSED'} {check.name}: {check.value:.4g} {check.unit} ({bound})"
        )
    met = sum(check.met for check in report.checks)
    print(f"  {met} of {len(report.checks)} met, {seconds:.0f} s, {path.name}", flush=True)
    return report


if __name__ == "__main__":
    sys.exit(main())
