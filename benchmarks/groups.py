"""Claim: kinds of which only the sum is counted are told apart with honest intervals, and tracks add the information that they hold.

Kinds: two drift in opposite directions over six cells, eight times, 4000 and 3000 individuals, Poisson counts of their sum; every kind's
counts and flows are held against the truth, with both sizes known and with one of them unknown. The default is held against `PathGibbs`
in one world. Tracks: the paper's birds, N = 1080, 36 cells; weights are learned from the counts, and from the counts and the tracks of 30
more birds. The errors should shrink by the factor that the standard errors foretell. (Fits climb from the true weights, to save time.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

import headcount as hc
from benchmarks._report import Check, Report, Table
from headcount import engines

LEVEL = 0.9
CELLS, TIMES = 6, 8
SIZES = {"east": 4000, "west": 3000}
SMALLEST_FLOW = 10.0
"""Expected individuals from which flows are held against the truth: whole-number intervals of smaller ones hold more than they say."""
WORLDS = 150
BIRD_WORLDS, BIRDS, TAGS = 60, 1080, 30
WEIGHTS = {"distance": 1.0, "direction": 2.0, "wind": 2.0, "stay": 2.0}


def run(*, quick: bool) -> Report:
    worlds = 15 if quick else WORLDS
    kinds, checks = _kinds(worlds)
    sampled, more = _against_samples(quick=quick)
    tracks, last = _tracks(6 if quick else BIRD_WORLDS)
    return Report(
        "groups",
        "Two kinds in one count, told apart; and what tracks add to counts.",
        checks=[*checks, *more, *last],
        tables=[kinds, sampled, tracks],
        seeds=list(range(1, worlds + 1)),
    )


def models() -> dict[str, hc.MarkovChain]:
    """Two kinds that drift in opposite directions."""
    moves = np.full((CELLS, CELLS), 0.01)
    for i in range(CELLS):
        moves[i, i] += 0.55
        moves[i, min(i + 1, CELLS - 1)] += 0.4
    moves /= moves.sum(axis=1, keepdims=True)
    start = np.linspace(1, 3, CELLS) / np.linspace(1, 3, CELLS).sum()
    return {
        "east": hc.MarkovChain(start[::-1], moves, length=TIMES),
        "west": hc.MarkovChain(start, moves[::-1, ::-1], length=TIMES),
    }


def world(seed: int) -> tuple[hc.Poisson, dict[str, tuple[Any, Any]]]:
    """What is seen, and every kind's true counts and flows."""
    rng = np.random.default_rng(seed)
    truth = {}
    for name, model in models().items():
        paths = model.sample(SIZES[name], rng=rng)
        counts = np.stack([np.bincount(column, minlength=CELLS) for column in paths.T])
        flows = np.zeros((TIMES - 1, CELLS, CELLS))
        for t in range(TIMES - 1):
            np.add.at(flows[t], (paths[:, t], paths[:, t + 1]), 1)
        truth[name] = counts, flows
    return hc.Poisson(rng.poisson(sum(counts for counts, _ in truth.values()))), truth


def _kinds(worlds: int) -> tuple[Table, list[Check]]:
    ways = {"both sizes known": SIZES["west"], "one size unknown": hc.Unknown()}
    rows, checks = [], []
    for way, size in ways.items():
        held: dict[str, list[float]] = {}
        for seed in range(1, (worlds if way == "both sizes known" else worlds // 5) + 1):
            seen, truth = world(seed)
            groups = {n: hc.Group(m, SIZES[n] if n == "east" else size) for n, m in models().items()}
            post = hc.infer(hc.Problem(groups=groups, observations=seen))
            for name, (counts, flows) in truth.items():
                _hold(held, post.group(name), name, counts, flows)
            if way != "both sizes known":
                ends = post.group("west").population.interval(LEVEL)
                held.setdefault("size of west", []).append(
                    float(float(ends["lower"]) <= SIZES["west"] <= float(ends["upper"]))
                )
        for what, shares in held.items():
            rows.append([way, what, float(np.mean(shares)), len(shares)])
            # A fifth of the worlds say less: three standard errors are about 5 %.
            low, high = (0.87, 0.93) if way == "both sizes known" else (0.85, 0.95)
            if what != "size of west":
                name = f"{way}: coverage of {what}"
                checks.append(Check(name, float(np.mean(shares)), at_least=low, at_most=high))
    columns = ["sizes", "90 % intervals of", "coverage", "tables"]
    caption = f"Flows of {SMALLEST_FLOW:g} expected individuals or more."
    return Table("Two kinds in one count", columns, rows, caption), checks


def _hold(held: dict[str, list[float]], post: Any, name: str, counts: Any, flows: Any) -> None:
    for t in range(TIMES):
        lower, upper = post.interval_tables((t,), LEVEL)
        held.setdefault(f"counts of {name}", []).append(_inside(counts[t], lower, upper))
        if t + 1 < TIMES:
            some = post.beliefs.mean((t, t + 1)) >= SMALLEST_FLOW
            lower, upper = (ends[some] for ends in post.interval_tables((t, t + 1), LEVEL))
            held.setdefault(f"flows of {name}", []).append(_inside(flows[t][some], lower, upper))


def _inside(truth: Any, lower: Any, upper: Any) -> float:
    return float(np.mean((truth >= lower) & (truth <= upper)))


def _against_samples(*, quick: bool) -> tuple[Table, list[Check]]:
    seen, _ = world(1)
    problem = hc.Problem(groups={n: hc.Group(m, SIZES[n]) for n, m in models().items()}, observations=seen)
    known = hc.infer(problem)
    drawn = hc.infer(problem, engines.PathGibbs(sweeps=500 if quick else 4000), rng=1, strict=False)
    rows = []
    for name in SIZES:
        one, other = known.group(name), drawn.group(name)
        for what, scopes in (
            ("counts", [(t,) for t in range(TIMES)]),
            ("flows", [(t, t + 1) for t in range(TIMES - 1)]),
        ):
            off = [np.abs(one.beliefs.mean(s) - other.beliefs.mean(s)).mean() for s in scopes]
            sds = [(one.sd_table(s), other.sd_table(s)) for s in scopes]
            ratio = [np.mean((a / b)[b > 0.5]) for a, b in sds if (b > 0.5).any()]
            rows.append([name, what, float(np.mean(off)), float(np.mean(ratio))])
    worst = max(row[2] for row in rows)
    ratios = [row[3] for row in rows]
    checks = [
        Check("default less PathGibbs: mean count or flow off, individuals", worst, at_most=0.15),
        Check("default over PathGibbs: smallest mean ratio of sds", min(ratios), at_least=0.95),
        Check("default over PathGibbs: largest mean ratio of sds", max(ratios), at_most=1.05),
    ]
    columns = ["kind", "table", "mean absolute difference of means", "mean ratio of sds"]
    return Table(
        "The default beside PathGibbs", columns, rows, "One world; entries with an sd above ½."
    ), checks


def _tracks(worlds: int) -> tuple[Table, list[Check]]:
    errors: dict[str, list[Any]] = {"counts": [], "counts and tracks": []}
    foretold: dict[str, list[Any]] = {"counts": [], "counts and tracks": []}
    truth = np.array(list(WEIGHTS.values()))
    for seed in range(1, worlds + 1):
        made = hc.simulate.birds(side=6, weights=tuple(truth), population=BIRDS, rng=seed)
        paths = made.model.sample(TAGS, rng=10_000 + seed)
        table = {
            "id": np.repeat(np.arange(TAGS), paths.shape[1]),
            "time": np.tile(np.arange(paths.shape[1]), TAGS),
            "cell": paths.ravel(),
        }
        counts = hc.Poisson(made.observed)
        for what, seen in (
            ("counts", [counts]),
            ("counts and tracks", [counts, hc.Tracks(table, counted=False)]),
        ):
            problem = hc.Problem(made.model, BIRDS, seen)
            found = hc.fit(
                hc.LogisticChain(made.features), problem, start=WEIGHTS, parameters="plug-in", strict=False
            )
            errors[what].append(found.weights.values - truth)
            foretold[what].append(found.standard_errors.values)
    rms = {what: np.sqrt(np.mean(np.square(e), axis=0)) for what, e in errors.items()}
    sd = {what: np.sqrt(np.mean(np.square(e), axis=0)) for what, e in foretold.items()}
    measured = rms["counts and tracks"] / rms["counts"]
    expected = sd["counts and tracks"] / sd["counts"]
    names = list(WEIGHTS)
    rows = [
        [n, *(float(v[k]) for v in (rms["counts"], rms["counts and tracks"], measured, expected))]
        for k, n in enumerate(names)
    ]
    # Of the whitened error, which weighs all weights alike.
    both = [np.mean(np.square(np.array(errors[w]) / sd["counts"])) for w in ("counts and tracks", "counts")]
    whole = float(np.sqrt(both[0] / both[1]))
    said = float(np.sqrt(np.mean(np.square(expected))))
    rows.append(["all", float("nan"), float("nan"), whole, said])
    checks = [
        Check(
            "error with tracks over error without, over the factor foretold",
            whole / said,
            at_least=0.93,
            at_most=1.07,
        )
    ]
    columns = ["weight", "error, counts", "error, counts and tracks", "factor", "factor foretold"]
    caption = (
        f"Root mean square over {worlds} worlds of {BIRDS} birds; {TAGS} tagged birds outside the counts."
    )
    return Table("What tracks add", columns, rows, caption), checks
