"""Claim: noisy two-way tables of a real population made consistent as well as by mbi, with honest intervals; and with thousands of weights.

20 190 person-years of the RAND Health Insurance Experiment (`examples/health`): share of the costs that a person pays, visits to a doctor,
health, chronic diseases, limits. Two-way tables are released with noise; a log-linear model with all of their interactions is learned from
the release alone. Errors are misplaced shares, Σ|inferred − true| / 2N per table: of the released tables, and of those never released.
mbi (mirror descent, its defaults) gets the same numbers in a process of its own; a part of its first run is compilation.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas as pd

import headcount as hc
from benchmarks._measure import in_child
from benchmarks._report import ROOT, Check, Report, Table
from benchmarks.peers.compare import ENVIRONMENT

HEALTH = ROOT / "examples" / "health"
NAMES = ("share", "visits", "health", "diseases", "limits")
STATES: dict[str, list[str]] = {
    "share": ["0", "25", "50", "95", "100"],
    "visits": ["none", "one", "two", "three_to_four", "five_to_seven", "eight_or_more"],
    "health": ["excellent", "good", "fair", "poor"],
    "diseases": ["below_5", "from_5", "from_10", "from_15", "from_20"],
    "limits": ["no", "yes"],
}
VISITS, DISEASES = (1, 2, 3, 5, 8), (5, 10, 15, 20)
"""Where the second and later classes of visits and of the index of chronic diseases begin."""
RELEASED = (("share", "visits"), ("visits", "health"), ("health", "diseases"), ("diseases", "limits"))
SD = 40.0
"""Of the Gaussian noise in every cell of the release."""
FINE_SD = 10.0
"""Of the Gaussian noise in tables with thousands of cells."""
SEEDS = 3
LATER = 3
"""Runs after the first one, and one more after mbi's: the quickest is compared with the quickest of mbi's later runs, which have nothing
left to compile. (On a machine that does other things as well, single runs differ by a factor of two.)"""


def read(folder: Path = HEALTH) -> pd.DataFrame:
    """One row per kind of person, with their number in ``people``."""
    return pd.read_csv(folder / "people.csv.gz", dtype={"share": str})


def classed(people: pd.DataFrame) -> pd.DataFrame:
    """Visits and diseases in the classes of the example."""
    visits = np.array(STATES["visits"])[np.searchsorted(VISITS, people["visits"], side="right")]
    diseases = np.array(STATES["diseases"])[np.searchsorted(DISEASES, people["diseases"], side="right")]
    return people.assign(visits=visits, diseases=diseases)


def crossed(people: pd.DataFrame, pair: tuple[str, str], states: dict[str, list[Any]]) -> np.ndarray:
    """The true table of two variables."""
    first, second = pair
    table = people.pivot_table(index=first, columns=second, values="people", aggfunc="sum")
    return table.reindex(index=states[first], columns=states[second]).fillna(0).to_numpy(dtype=float)


def run(*, quick: bool) -> Report:
    """A small release with intervals, and two large ones against time."""
    small, covered = _small(1 if quick else SEEDS)
    large = [_large(fine, quick=quick) for fine in ((False,) if quick else (False, True))]
    rows = [[name, *values] for name, values in small.items()]
    ours, theirs = small["headcount, fit.posterior"], small["mbi"]
    checks = [
        Check("misplaced share of released tables ÷ mbi's", ours[0] / theirs[0], at_most=1.0),
        Check("misplaced share of other tables ÷ mbi's", ours[1] / theirs[1], at_most=1.0),
        Check("released cells inside their 90 % interval", covered, at_least=0.85, at_most=0.95),
    ]
    for case in large:
        k = case["K"]
        checks += [
            Check(f"K = {k}: misplaced share ÷ mbi's", case["error"] / case["mbi error"], at_most=1.0),
            Check(f"K = {k}: time of the first run ÷ mbi's", case["first"] / case["mbi first"], at_most=2.0),
            Check(f"K = {k}: time of later runs ÷ mbi's", case["later"] / case["mbi later"], at_most=2.0),
        ]
    columns = ["method", "released tables", "other tables"]
    note = f"Gaussian noise of sd {SD:g}, means over {SEEDS} releases; misplaced shares, mean over tables."
    return Report(
        "health",
        "Noisy tables of a real population, beside mbi.",
        checks=checks,
        tables=[
            Table("Four noisy tables", columns, rows, note),
            Table(
                f"Thousands of weights: all two-way tables of four variables, Gaussian noise of sd {FINE_SD:g}",
                list(large[0]),
                [list(case.values()) for case in large],
                "CPU seconds of one core.",
            ),
        ],
        seeds=list(range(1, SEEDS + 1)),
    )


def by_mbi(
    states: dict[str, list[Any]], noisy: dict[tuple[str, str], np.ndarray], sd: float, population: int
) -> tuple[dict[tuple[str, str], np.ndarray], dict[str, Any]]:
    """Every two-way table by mbi, and what its runs took."""
    names = list(states)
    every = list(itertools.combinations(range(len(names)), 2))
    given = {
        "sizes": [len(s) for s in states.values()],
        "pairs": [[names.index(a), names.index(b)] for a, b in noisy],
        "wanted": every,
        "noisy": np.concatenate([y.ravel() for y in noisy.values()]),
        "sd": sd,
        "population": population,
    }
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "problem.npz", Path(folder) / "answer.npz"
        np.savez(source, **given)  # type: ignore[arg-type]
        told = in_child("benchmarks.peers.with_mbi", [source, target], python=str(ENVIRONMENT))
        with np.load(target) as file:
            return {(names[a], names[b]): file[f"{a}-{b}"] for a, b in every}, told


def _small(seeds: int) -> tuple[dict[str, tuple[float, float]], float]:
    """Misplaced shares by method, and the coverage of our intervals."""
    people = classed(read())
    population = int(people["people"].sum())
    true = {pair: crossed(people, pair, STATES) for pair in itertools.combinations(NAMES, 2)}
    found: dict[str, list[tuple[float, float]]] = {}
    inside = []
    for seed in range(1, seeds + 1):
        rng = np.random.default_rng(seed)
        noisy = {pair: true[pair] + rng.normal(0, SD, true[pair].shape) for pair in RELEASED}
        flat = hc.DiscreteModel(STATES, {pair: np.zeros_like(y) for pair, y in noisy.items()})
        problem = hc.Problem(flat, population, hc.Gaussian(noisy, sd=SD))
        fit = hc.fit(hc.learn.LogLinear.saturated(flat, list(RELEASED)), problem, tolerance=0.5, strict=False)
        cliques = {pair: fit.posterior.clique(*pair) for pair in RELEASED}
        told = {pair: c.mean.values for pair, c in cliques.items()}
        joined = _joined(told)
        answers = {
            "headcount, fit.posterior": {
                pair: told.get(pair, population * joined.marginal(pair)) for pair in true
            },
            "mbi": by_mbi(STATES, noisy, SD, population)[0],
        }
        for name, tables in answers.items():
            found.setdefault(name, []).append(_misplaced(tables, true))
        share = [float(np.abs(noisy[pair] - true[pair]).sum() / (2 * population)) for pair in RELEASED]
        found.setdefault("as released", []).append((float(np.mean(share)), np.nan))
        for pair in RELEASED:
            ends = cliques[pair].interval(0.9)
            inside.append((ends.lower.values <= true[pair]) & (true[pair] <= ends.upper.values))
    covered = float(np.mean(np.concatenate([i.ravel() for i in inside])))
    return {name: tuple(np.mean(rows, axis=0)) for name, rows in found.items()}, covered  # type: ignore[misc]


def _joined(tables: dict[tuple[str, str], np.ndarray]) -> hc.DiscreteModel:
    """The law of most entropy with these two-way tables, each of which shares a variable with the next: for pairs that no table joins."""
    factors = [(pair, np.log(table)) for pair, table in tables.items()]
    shared = [((first,), -np.log(table.sum(axis=1))) for (first, _), table in list(tables.items())[1:]]
    return hc.DiscreteModel(STATES, [*factors, *shared])


def _misplaced(
    tables: dict[tuple[str, str], np.ndarray], true: dict[tuple[str, str], np.ndarray]
) -> tuple[float, float]:
    """Of the released tables, and of the others."""
    share = {pair: np.abs(tables[pair] - t).sum() / (2 * t.sum()) for pair, t in true.items()}
    seen = [share[pair] for pair in RELEASED]
    return float(np.mean(seen)), float(np.mean([s for pair, s in share.items() if pair not in RELEASED]))


def _large(fine: bool, *, quick: bool) -> dict[str, Any]:
    """All six two-way tables of four variables, with visits and diseases one by one or in some fourteen classes."""
    people = read()
    if not fine:
        most = 5 if quick else 13
        visits, diseases = (
            people["visits"].clip(upper=most),
            (people["diseases"] / 2.5).astype(int).clip(upper=most),
        )
        people = people.assign(visits=visits, diseases=diseases)
    names = NAMES[:4]
    states = {name: sorted(people[name].unique()) for name in names}
    population = int(people["people"].sum())
    true = {pair: crossed(people, pair, states) for pair in itertools.combinations(names, 2)}
    rng = np.random.default_rng(1)
    noisy = {pair: t + rng.normal(0, FINE_SD, t.shape) for pair, t in true.items()}
    flat = hc.DiscreteModel(states, {pair: np.zeros_like(y) for pair, y in noisy.items()})
    problem = hc.Problem(flat, population, hc.Gaussian(noisy, sd=FINE_SD))

    def run() -> tuple[float, hc.Fit, dict[tuple[str, str], np.ndarray]]:
        start = process_time()
        parametrisation = hc.learn.LogLinear.saturated(flat, list(true))
        fit = hc.fit(parametrisation, problem, "MAP", standard_errors=False, strict=False)
        found = {pair: fit.plug_in.clique(*pair).mean.values for pair in true}
        return process_time() - start, fit, found

    before = [run()[0] for _ in range(LATER + 1)]
    theirs, told = by_mbi(states, noisy, FINE_SD, population)
    last, fit, mine = run()

    def error(tables: dict[tuple[str, str], np.ndarray]) -> float:
        return float(np.mean([np.abs(tables[pair] - t).sum() / (2 * population) for pair, t in true.items()]))

    return {
        "K": sum(t.size for t in true.values()),
        "error": error(mine),
        "mbi error": error(theirs),
        "release error": error(noisy),
        "first": before[0],
        "later": min(*before[1:], last),
        "mbi first": told["seconds"] + told["compile_seconds"],
        "mbi later": told["seconds"],
        "status": fit.status.value,
    }
