"""Coverage of learned weights: do 90 % intervals hold the truth in 90 % of fits.

Birds on a 4 × 4 map, N = 480, T = 20, w = (1, 2, 2, 2), one sequence a data set, from w = 0, by direct ascent with the
engine that `fit` picks. Run as ``python -m benchmarks.learning_coverage``; results go to
``benchmarks/results/learning_coverage.json``. Seeds are 0, 1, 2, … Takes about half a CPU second a fit.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import platform
import time
from importlib import metadata
from pathlib import Path

import numpy as np

import headcount as hc

WEIGHTS = (1.0, 2.0, 2.0, 2.0)
HERE = Path(__file__).parent


def one(seed: int, population: int) -> dict[str, object]:
    """Simulate a data set, fit it, and say where the truth lies in the intervals."""
    world = hc.simulate.birds(side=4, weights=WEIGHTS, population=population, rng=seed)
    problem = hc.Problem(world.model, population, hc.Poisson(world.observed))
    fit = hc.fit(hc.LogisticChain(world.features), problem, truth=WEIGHTS, strict=False)
    ends = fit.interval(0.9)
    inside = (ends["lower"].values <= WEIGHTS) & (ends["upper"].values >= WEIGHTS)
    return {
        "seed": seed,
        "estimate": fit.working.tolist(),
        "standard_error": fit.standard_errors.values.tolist(),
        "inside": inside.tolist(),
        "status": fit.status.value,
        "e_steps": fit.e_steps,
        "error": fit.rows[-1]["error"],
        "discrepancy": fit.information.discrepancy if fit.information else None,
    }


def summary(rows: list[dict[str, object]]) -> dict[str, object]:
    """Coverage by weight and over all, bias and spread against the stated standard errors."""
    inside = np.array([r["inside"] for r in rows], dtype=bool)
    estimate = np.array([r["estimate"] for r in rows])
    stated = np.array([r["standard_error"] for r in rows])
    count = len(rows)
    return {
        "fits": count,
        "coverage": float(inside.mean()),
        "coverage_by_weight": inside.mean(axis=0).tolist(),
        "binomial_standard_error": float(np.sqrt(0.09 / count)),
        "mean_estimate": estimate.mean(axis=0).tolist(),
        "bias_in_standard_errors": ((estimate - WEIGHTS) / stated).mean(axis=0).tolist(),
        "spread": estimate.std(axis=0).tolist(),
        "mean_standard_error": stated.mean(axis=0).tolist(),
        "mean_relative_error": float(np.mean([r["error"] for r in rows])),
        "mean_e_steps": float(np.mean([r["e_steps"] for r in rows])),
        "not_converged": sum(r["status"] != "converged" for r in rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=200)
    parser.add_argument("--population", type=int, default=480)
    parser.add_argument("--seconds", type=float, default=300.0, help="stop after this many seconds")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "learning_coverage.json")
    asked = parser.parse_args()
    began = time.perf_counter()
    rows = []
    for seed in range(asked.fits):
        rows.append(one(seed, asked.population))
        if time.perf_counter() - began > asked.seconds:
            break
    made = {
        "what": "coverage of 90 % intervals of weights, birds 4 × 4, T = 20, Poisson(1) counts, one sequence",
        "weights": WEIGHTS,
        "population": asked.population,
        "summary": summary(rows),
        "fits": rows,
        "provenance": {
            "command": "python -m benchmarks.learning_coverage",
            "created_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "seconds": round(time.perf_counter() - began, 1),
            "headcount": hc.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "libraries": {name: metadata.version(name) for name in ("numpy", "scipy")},
        },
    }
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(made["summary"], indent=1))


if __name__ == "__main__":
    main()
