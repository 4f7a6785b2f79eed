"""Claim: 90 % intervals of learned weights hold the truth in 85–95 % of fits (`benchmarks.learning_coverage` makes the fits)."""

from __future__ import annotations

import time

import numpy as np

from benchmarks._report import Check, Report, Table

POPULATION = 480


def run(*, quick: bool) -> Report:
    from benchmarks.learning_coverage import one, summary

    fits, budget = (4, 20.0) if quick else (200, 300.0)
    start, rows = time.perf_counter(), []
    for seed in range(fits):
        rows.append(one(seed, POPULATION))
        if time.perf_counter() - start > budget:
            break
    found = summary(rows)
    each = found["coverage_by_weight"]
    bias, spread = found["bias_in_standard_errors"], np.divide(found["spread"], found["mean_standard_error"])
    table = Table(
        f"Learned weights of the birds (4 × 4 cells, N = {POPULATION}, T = 20), {len(rows)} fits",
        [
            "weight",
            "coverage of 90 % intervals",
            "bias in standard errors",
            "spread over stated standard error",
        ],
        [[str(k), *values] for k, values in enumerate(zip(each, bias, spread, strict=True))],
        f"As many of {fits} fits as {budget:.0f} s allow.",
    )
    checks = [
        Check("coverage of 90 % intervals of weights", found["coverage"], at_least=0.85, at_most=0.95),
        Check("fits that did not converge", found["not_converged"], at_most=0),
    ]
    return Report(
        "learning",
        "Intervals of learned weights against the truth.",
        checks=checks,
        tables=[table],
        seeds=list(range(len(rows))),
    )
