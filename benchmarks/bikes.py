"""Claim: hidden hourly moves of real bikes, learned on one week and inferred on the next, better than minimum moves and raking.

Bay Area Bike Share, San Francisco, 8–21 September 2014 (`examples/bikes`): 347 bikes, 35 stations and "in transit", every hour. The
model is learned on the first week (from true moves, from counts alone, from counts and ten tracked bikes); of the second week it sees the
bikes per station only. Errors are Σ|inferred − true|/Σ true over moves
between different cells: hour by hour (of the median), and of the week's origin–destination table (of the mean). Intervals of whole
numbers hold more than 90 %: "flows expected" is what those of flows hold by the model itself.
"total" is the number of moves inferred over the true one.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd

import headcount as hc
from benchmarks._report import ROOT, Check, Report, Table

BIKES = ROOT / "examples" / "bikes"
POPULATION, WEEK = 347, 168
SEED = 1
DRAWS = 100
"""Draws from which the intervals of hourly totals are read: their ends are then off by a tenth of their width."""
RAKING_ROUNDS = 200
"""Rounds of iterative proportional fitting: margins are met to 1e-6 bikes by then."""


def read(folder: Path = BIKES) -> tuple[pd.DataFrame, np.ndarray]:
    """Counts (time by cell, all 337 hours) and true moves (hour, origin, dest)."""
    counts = pd.read_csv(folder / "counts.csv.gz", dtype={"cell": str}, parse_dates=["time"])
    table = counts.pivot(index="time", columns="cell", values="count")[counts["cell"].unique()]
    moves = pd.read_csv(folder / "moves.csv.gz", dtype={"origin": str, "dest": str}, parse_dates=["time"])
    flows = np.zeros((len(table) - 1, table.shape[1], table.shape[1]))
    place = {cell: k for k, cell in enumerate(table.columns)}
    hour = {time: k for k, time in enumerate(table.index)}
    at = (moves["time"].map(hour), moves["origin"].map(place), moves["dest"].map(place))
    flows[tuple(np.asarray(part) for part in at)] = moves["count"]
    return table, flows


def minimum_moves(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """As few moves as the counts allow: what is lacking is spread over what is too many, in proportion."""
    stay = np.minimum(before, after)
    gone, come = before - stay, after - stay
    return np.diag(stay) + np.outer(gone, come) / max(gone.sum(), 1.0)


def raked(table: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Last week's table, scaled to the counts in turn (iterative proportional fitting)."""
    made = table + 1e-9
    for _ in range(RAKING_ROUNDS):
        made = made * (before / np.maximum(made.sum(axis=1), 1e-300))[:, None]
        made = made * (after / np.maximum(made.sum(axis=0), 1e-300))
    return made


def errors(hourly: np.ndarray, weekly: np.ndarray, true: np.ndarray) -> tuple[float, float]:
    """Hour by hour, and of the week's table."""
    apart = ~np.eye(true.shape[1], dtype=bool)
    total = true[:, apart].sum()
    week = np.abs(weekly.sum(axis=0) - true.sum(axis=0))[apart].sum()
    return float(np.abs(hourly - true)[:, apart].sum() / total), float(week / total)


def run(*, quick: bool) -> Report:
    """Learn, infer, compare."""
    table, flows = read()
    hours = 24 if quick else WEEK
    first, second = table.iloc[: WEEK + 1], table.iloc[WEEK : WEEK + hours + 1]
    past, true = flows[:WEEK], flows[WEEK : WEEK + hours]
    seen = second.to_numpy(dtype=float)
    rows = _rivals(seen, past, true)

    moves = [hc.Exact(f, on=pair) for f, pair in zip(past, itertools.pairwise(first.index), strict=True)]
    known = hc.Problem(blank(first), POPULATION, moves)
    found: dict[str, dict[str, Any]] = {}
    for name, by in (("hour", "hour"), ("hour and weekend", ["hour", "weekend"])):
        fit = hc.fit(hc.TabularChain(by=by), known, dispersion="estimate")
        assert fit.dispersion is not None
        problem = fit.apply(hc.Problem(blank(second), POPULATION, hc.Exact(second)))
        together = problem.with_dispersion(fit.dispersion.used)
        found[name] = answered(problem, true)
        found[f"{name}, rho {fit.dispersion.value:.3g}"] = answered(together, true)
        if name == "hour and weekend":
            found[f"{name}, TiltedEP"] = answered(problem, true, "TiltedEP")
        if name == "hour":
            half = np.random.default_rng(SEED).binomial(second.to_numpy(), 0.5)
            thinned = second.copy()
            thinned[:] = half
            seen_half = hc.Binomial(thinned, detection=0.5)
            half_seen = fit.apply(hc.Problem(blank(second), POPULATION, seen_half))
            found["hour, half of the bikes seen"] = answered(
                half_seen.with_dispersion(fit.dispersion.used), true
            )
    learned = first.iloc[: hours + 1]
    counts = hc.Problem(blank(learned), POPULATION, hc.Exact(learned))
    alone = hc.fit(gravity(learned), counts, standard_errors=False, strict=False)
    tracked = hc.fit(
        gravity(learned), with_tracks(learned), start=alone.working, standard_errors=False, strict=False
    )
    for name, weights in (("counts alone", alone), ("counts and ten tracked bikes", tracked)):
        problem = weights.apply(hc.Problem(blank(second), POPULATION, hc.Exact(second)))
        found[f"weights from {name}"] = answered(problem, true)
    rows += [
        [name if "weights" in name else f"by {name}", *(a[k] for k in COLUMNS)] for name, a in found.items()
    ]
    best = next(a for name, a in found.items() if name.startswith("hour and weekend, rho"))
    halved = found["hour, half of the bikes seen"]
    plain = found["hour"]
    checks = [
        Check("hourly error of the median, by hour and weekend, rho learned", best["hourly"], at_most=0.90),
        Check("weekly OD, by hour and weekend, rho learned", best["weekly"], at_most=0.42),
        Check("weekly OD, half of the bikes seen", halved["weekly"], at_most=0.50),
        Check(
            "weekly OD, weights from counts alone", found["weights from counts alone"]["weekly"], at_most=0.50
        ),
        Check("weights from counts alone: converged", float(alone.status.good), at_least=1.0),
        Check(
            "weekly OD, weights from counts and ten tracked bikes",
            found["weights from counts and ten tracked bikes"]["weekly"],
            at_most=0.50,
        ),
        Check("half of the bikes seen: converged", float(halved["converged"]), at_least=1.0),
        Check(
            "flows with mean ≥ 1 inside their 90 % interval",
            best["flows covered"],
            at_least=0.85,
            at_most=0.95,
        ),
        Check(
            "hourly totals inside their 90 % interval", best["totals covered"], at_least=0.85, at_most=0.95
        ),
        Check(
            "reading the flows ÷ inferring them, exact counts",
            plain["reading"] / plain["seconds"],
            at_most=0.5,
        ),
        Check("reading ÷ inferring, binomial counts", halved["reading"] / halved["seconds"], at_most=0.5),
    ]
    return Report(
        "bikes",
        "Hourly moves of 347 bikes, learned on one week and inferred on the next from counts.",
        checks=checks,
        tables=[Table("Second week", ["method", *COLUMNS], rows)],
        seeds=[SEED],
    )


COLUMNS = (
    "hourly",
    "weekly",
    "total",
    "flows covered",
    "flows expected",
    "totals covered",
    "evidence",
    "seconds",
    "reading",
    "converged",
)


def _rivals(seen: np.ndarray, past: np.ndarray, true: np.ndarray) -> list[list[Any]]:
    """What needs no model: no moves, as few as possible, last week's table raked."""
    pairs = list(itertools.pairwise(seen))
    few = np.array([minimum_moves(*pair) for pair in pairs])
    old = np.array([raked(past.sum(axis=0), *pair) for pair in pairs])
    gap: list[Any] = [""] * (len(COLUMNS) - 2)
    return [
        ["no moves", *errors(0 * true, 0 * true, true), *gap],
        ["minimum moves", *errors(few, few, true), *gap],
        ["last week's table, raked", *errors(old, old, true), *gap],
    ]


def blank(counts: pd.DataFrame) -> hc.MarkovChain:
    """A chain that knows nothing but its times, cells and where the bikes were at first."""
    cells = counts.shape[1]
    first = counts.iloc[0].to_numpy() / POPULATION
    return hc.MarkovChain(
        first, np.full((cells, cells), 1 / cells), times=list(counts.index), cells=list(counts.columns)
    )


def with_tracks(counts: pd.DataFrame, folder: Path = BIKES) -> hc.Problem:
    """The same counts, in which ten bikes were followed: the others' counts, and ten tracks beside them."""
    tracks = pd.read_csv(folder / "tracks.csv.gz", dtype={"cell": str}, parse_dates=["time"])
    tracks = tracks.rename(columns={"individual": "id"})
    tracks = tracks[tracks["time"].isin(counts.index)]
    followed = tracks.groupby(["time", "cell"]).size().unstack(fill_value=0)
    others = counts - followed.reindex(index=counts.index, columns=counts.columns, fill_value=0)
    people = POPULATION - tracks["id"].nunique()
    return hc.Problem(blank(counts), people, [hc.Exact(others), hc.Tracks(tracks, counted=False)])


def gravity(counts: pd.DataFrame) -> hc.LogisticChain:
    """Staying, riding on, docking, and the size of a station: four weights."""
    cells = counts.shape[1]
    station = np.arange(cells) < cells - 1  # the last cell is "in transit"
    other = ~np.eye(cells, dtype=bool)
    size = np.log(counts.to_numpy().mean(axis=0) + 0.5)
    features = [
        np.diag(station),
        np.outer(~station, station),
        np.outer(station, ~station),
        np.where(other & station, size, 0.0),
    ]
    return hc.LogisticChain(np.array(features, dtype=float), names=["stay", "dock", "take", "size"])


def tables(frame: pd.DataFrame, model: Any) -> list[np.ndarray]:
    """Mean, median and ends of the intervals, (hour, origin, dest); moves that the table leaves out are impossible."""
    hour = {time: k for k, time in enumerate(model.times)}
    place = {cell: k for k, cell in enumerate(model.cells)}
    at = (frame["time"].map(hour), frame["origin"].map(place), frame["dest"].map(place))
    made = []
    for column in ("mean", "median", "lower", "upper"):
        values = np.zeros((len(hour) - 1, len(place), len(place)))
        values[tuple(np.asarray(part) for part in at)] = frame[column]
        made.append(values)
    return made


def answered(problem: hc.Problem, true: np.ndarray, engine: str | None = None) -> dict[str, Any]:
    """Infer, read, and hold against the truth."""
    start = perf_counter()
    post = hc.infer(problem, engine, strict=False)
    seconds = perf_counter() - start
    start = perf_counter()
    frame = post.to_frame("flows")
    reading = perf_counter() - start
    shape = true.shape
    mean, median, low, high = tables(frame, problem.model)
    hourly, _ = errors(median, median, true)
    _, weekly = errors(mean, mean, true)
    apart = ~np.eye(shape[1], dtype=bool)
    some = (mean >= 1) & apart
    inside = (low <= true) & (true <= high)
    draws = post.sample(DRAWS, rng=SEED)
    totals, held = [], []
    for k, pair in enumerate(itertools.pairwise(problem.model.variables)):
        drawn = np.asarray(draws[pair])
        totals.append(drawn[:, apart].sum(axis=1))
        held.append(((low[k] <= drawn) & (drawn <= high[k]))[:, some[k]])
    ends = np.quantile(np.array(totals), [0.05, 0.95], axis=1)
    moved = true[:, apart].sum(axis=1)
    return {
        "hourly": hourly,
        "weekly": weekly,
        "total": float(mean[:, apart].sum() / true[:, apart].sum()),
        "flows covered": float(inside[some].mean()),
        "flows expected": float(np.concatenate(held, axis=1).mean()),
        "totals covered": float(((np.floor(ends[0]) <= moved) & (moved <= np.ceil(ends[1]))).mean()),
        "evidence": float("nan") if post.log_evidence is None else float(post.log_evidence),
        "seconds": seconds,
        "reading": reading,
        "converged": bool(post.status.good),
    }
