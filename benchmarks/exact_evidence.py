"""Claim: the evidence of exact counts of few individuals is that of the sum over all populations to .5 nats, or none is given.

Random problems of up to 40 individuals, 2 to 5 cells and 2 to 4 times, of every kind of population whose exact sum is known: one-way rings,
sparse, dense and nearly motionless maps counted at all times, with hidden times, with hidden cells; numbers that are not known; two groups
of which only totals are counted, one of them of unknown size or not; flocks; rows that vary; arrivals and departures. The truth multiplies
polynomials, one variable per observed count (below, and `tests/engines/sums_over_tables.py`), without a line of the engines' code. Asked is
what `headcount.infer` picks by itself. An answer is *converged and wrong* if its status is good and its evidence is off by more than .5
nats, or an expected flow by more than a quarter of an individual, a third of its sd and four of the Monte-Carlo errors that it states.
Where times, cells or groups are hidden, an exact sum over counts is picked while it is quick; the same problems by tilted EP, which answers
larger ones, are a table of their own. The last table has few individuals whose counts are read with sds of .05 to .2, against enumeration:
an evidence that is off by more than .5 nats must be said (`sharp_readings`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln
from tests.engines.sums_over_tables import table_moments, varying_rows
from tests.engines.test_certain import read_sharply

import headcount as hc
from benchmarks._report import Check, Report, Table
from benchmarks.exact_tables import step

EACH, QUICK = 30, 2
"""Problems of each kind."""
SHARP, SHARP_QUICK = 300, 10
"""Problems with sharp readings."""
MOST_STATES = 200_000
"""Coefficients of a polynomial at most: a second."""
WRONG, FLOW, SHARE = 0.5, 0.25, 1 / 3
"""Nats, individuals, and sds, beyond which an answer is wrong."""


class Truth(NamedTuple):
    """log p(counts), and the expected table of every step (none where the sum does not give them)."""

    evidence: float
    flows: list[np.ndarray]


class Case(NamedTuple):
    """A problem and its exact answer."""

    problem: hc.Problem
    truth: Truth


# ---- the exact sums


def log_multinomial(counts: np.ndarray, p: np.ndarray) -> float:
    """Of the first counts."""
    n = counts[counts > 0]
    return float(gammaln(counts.sum() + 1) - gammaln(counts + 1).sum() + n @ np.log(p[counts > 0]))


class Paths(NamedTuple):
    """One individual's paths as terms of a polynomial with one variable per observed count."""

    patterns: np.ndarray
    """(paths, axes) 0/1: the counts in which a path counts."""
    weights: np.ndarray
    """(paths,) probabilities."""
    cells: np.ndarray
    """(paths, times)."""


def paths_of(initial: np.ndarray, steps: list[np.ndarray], seen: np.ndarray) -> Paths:
    """All paths; ``seen`` says which (time, cell) are counted."""
    axis = np.full(seen.shape, -1)
    axis[seen] = np.arange(seen.sum())
    patterns, weights, cells = [], [], []
    for path in itertools.product(range(len(initial)), repeat=len(seen)):
        weight = initial[path[0]] * math.prod(
            p[i, j] for p, (i, j) in zip(steps, itertools.pairwise(path), strict=True)
        )
        if weight > 0:
            pattern = np.zeros(int(seen.sum()), dtype=int)
            at = axis[np.arange(len(path)), path]
            pattern[at[at >= 0]] = 1
            patterns.append(pattern)
            weights.append(weight)
            cells.append(path)
    return Paths(np.array(patterns), np.array(weights), np.array(cells))


def times(poly: np.ndarray, paths: Paths) -> np.ndarray:
    """A truncated polynomial times one individual more."""
    out = np.zeros_like(poly)
    for pattern, weight in zip(paths.patterns, paths.weights, strict=True):
        if all(size > one for size, one in zip(poly.shape, pattern, strict=True)):
            into = tuple(slice(int(one), None) for one in pattern)
            frm = tuple(slice(None, size - int(one)) for size, one in zip(poly.shape, pattern, strict=True))
            out[into] += weight * poly[frm]
    return out


def expected_flows(poly: np.ndarray, paths: Paths, cells: int) -> list[np.ndarray]:
    """Of one more individual beside this polynomial: the weight of every move at every step."""
    last, made = np.array(poly.shape) - 1, [np.zeros((cells, cells)) for _ in range(paths.cells.shape[1] - 1)]
    for pattern, weight, path in zip(*paths, strict=True):
        place = last - pattern
        if (place >= 0).all():
            for t, (i, j) in enumerate(itertools.pairwise(path)):
                made[t][i, j] += weight * poly[tuple(place)]
    return made


def summed(groups: list[tuple[Paths, dict[int, float]]], counts: np.ndarray, cells: int) -> Truth:
    """Sum over the sizes of all groups, each a dictionary of probabilities: all populations with these counts."""
    poly = np.zeros(tuple(int(c) + 1 for c in counts))
    poly[(0,) * len(counts)] = 1.0
    total, flows = 0.0, [np.zeros((cells, cells)) for _ in range(groups[0][0].cells.shape[1] - 1)]
    # One size of every group at a time: few are not known.
    for sizes in itertools.product(*(law for _, law in groups)):
        chance = math.prod(law[n] for (_, law), n in zip(groups, sizes, strict=True))
        whole = _product(poly, groups, sizes)
        total += chance * float(whole.ravel()[-1])
        for k, (paths, _) in enumerate(groups):
            if sizes[k] > 0:
                fewer = _product(poly, groups, [n - (g == k) for g, n in enumerate(sizes)])
                for table, more in zip(flows, expected_flows(fewer, paths, cells), strict=True):
                    table += chance * sizes[k] * more
    return Truth(math.log(total), [table / total for table in flows])


def _product(poly: np.ndarray, groups: list[tuple[Paths, dict[int, float]]], sizes: Any) -> np.ndarray:
    for (paths, _), n in zip(groups, sizes, strict=True):
        for _ in range(n):
            poly = times(poly, paths)
    return poly


# ---- the kinds


def matrix(kind: str, cells: int, rng: np.random.Generator) -> np.ndarray:
    """Transitions of so many cells."""
    if kind == "stayers":
        stay = rng.uniform(0.9, 0.995, cells)
        rest = rng.dirichlet(np.ones(cells), cells) * (1 - np.eye(cells))
        return np.diag(stay) + (1 - stay)[:, None] * rest / rest.sum(axis=1, keepdims=True)
    while len(p := step(kind, rng)) != cells:
        pass
    return p


class World(NamedTuple):
    """A chain and a population that was drawn from it."""

    chain: hc.MarkovChain
    initial: np.ndarray
    p: np.ndarray
    counts: np.ndarray


def drawn(kind: str, cells: int, length: int, people: int, rng: np.random.Generator) -> World:
    """One world."""
    p, initial = matrix(kind, cells, rng), rng.dirichlet(np.full(cells, 2.0))
    chain = hc.MarkovChain(initial, p, length=length)
    path = chain.sample(people, rng=rng)
    return World(
        chain, initial, p, np.array([np.bincount(path[:, t], minlength=cells) for t in range(length)])
    )


def map_kind(rng: np.random.Generator) -> str:
    """Any kind of map."""
    return str(rng.choice(["ring", "sparse", "dense", "stayers"]))


def counted(kind: str) -> Callable[[np.random.Generator], Case | None]:
    """Counted at all times."""

    def make(rng: np.random.Generator) -> Case | None:
        people, length = int(rng.integers(3, 41)), int(rng.integers(2, 5))
        world = drawn(kind, 4 if kind == "grid" else int(rng.integers(3, 6)), length, people, rng)
        if np.prod(world.counts + 1.0, axis=1).max() > MOST_STATES:
            return None
        found = [table_moments(world.p, a, b) for a, b in itertools.pairwise(world.counts)]
        evidence = log_multinomial(world.counts[0], world.initial) + sum(a.log_sum for a in found)
        problem = hc.Problem(world.chain, people, hc.Exact(world.counts.astype(float)))
        return Case(problem, Truth(evidence, [a.mean for a in found]))

    return make


def hidden_times(rng: np.random.Generator) -> Case | None:
    """Counted at the first and the last time."""
    people, length = int(rng.integers(3, 41)), int(rng.integers(3, 5))
    world = drawn(map_kind(rng), 3, length, people, rng)
    if np.prod(world.counts + 1.0, axis=1).max() > MOST_STATES:
        return None
    seen = np.full(world.counts.shape, np.nan)
    seen[[0, -1]] = world.counts[[0, -1]]
    whole = np.linalg.matrix_power(world.p, length - 1)
    evidence = log_multinomial(world.counts[0], world.initial)
    evidence += table_moments(whole, world.counts[0], world.counts[-1]).log_sum
    return Case(hc.Problem(world.chain, people, hc.Exact(seen)), Truth(evidence, []))


def hidden_cells(rng: np.random.Generator, size: Any = None) -> Case | None:
    """Two cells of three at every time."""
    people, length = int(rng.integers(3, 25)), int(rng.integers(2, 4))
    world = drawn(map_kind(rng), 3, length, people, rng)
    shown = np.zeros(world.counts.shape, dtype=bool)
    shown[:, :2] = True
    if size is None:  # of a known number, two cells tell the third
        shown[rng.integers(length), 1] = False
    if np.prod(world.counts[shown] + 1.0) > MOST_STATES / 20:
        return None
    law = {people: 1.0} if size is None else size(people)[1]
    number = people if size is None else size(people)[0]
    paths = paths_of(world.initial, [world.p] * (length - 1), shown)
    problem = hc.Problem(world.chain, number, hc.Exact(np.where(shown, world.counts, np.nan)))
    return Case(problem, summed([(paths, law)], world.counts[shown], 3))


def some_size(people: int) -> tuple[Any, dict[int, float]]:
    """A range around the true number."""
    low, high = max(1, people - 5), people + 6
    return hc.Between(low, high), dict.fromkeys(range(low, high + 1), 1 / (high - low + 1))


def unknown_number(rng: np.random.Generator) -> Case | None:
    """Two cells of three, of a number that is not known."""
    return hidden_cells(rng, some_size)


def unknown_but_counted(rng: np.random.Generator) -> Case | None:
    """A number that is not known before and counted completely."""
    case = counted(map_kind(rng))(rng)
    if case is None:
        return None
    number, law = some_size(int(case.problem.population))
    problem = hc.Problem(case.problem.model, number, case.problem.observations)
    return Case(
        problem, case.truth._replace(evidence=case.truth.evidence + math.log(next(iter(law.values()))))
    )


def two_groups(rng: np.random.Generator, *, known: bool = True) -> Case | None:
    """Only totals of two groups are counted."""
    length, sizes = int(rng.integers(2, 4)), rng.integers(2, 8, size=2)
    kind = map_kind(rng)
    worlds = [drawn(kind, 3, length, int(n), rng) for n in sizes]
    counts = sum(w.counts for w in worlds)
    if np.prod(counts + 1.0) > MOST_STATES / (5 if known else 20):
        return None
    seen = np.ones(counts.shape, dtype=bool)
    laws: list[dict[int, float]] = [{int(n): 1.0} for n in sizes]
    numbers: list[Any] = [int(n) for n in sizes]
    if not known:
        numbers[1], laws[1] = some_size(int(sizes[1]))
    every = [
        (paths_of(w.initial, [w.p] * (length - 1), seen), law) for w, law in zip(worlds, laws, strict=True)
    ]
    groups = {k: hc.Group(w.chain, n) for k, w, n in zip("ab", worlds, numbers, strict=True)}
    return Case(
        hc.Problem(groups=groups, observations=hc.Exact(counts.astype(float))), summed(every, counts[seen], 3)
    )


def group_of_unknown_size(rng: np.random.Generator) -> Case | None:
    """The same, one of them of unknown size."""
    return two_groups(rng, known=False)


def flocks(rng: np.random.Generator) -> Case | None:
    """Whole flocks."""
    case, size = counted(map_kind(rng))(rng), int(rng.integers(2, 5))
    if case is None:
        return None
    asked = case.problem
    (seen,) = asked.observations
    problem = hc.Problem(
        asked.model, size * int(asked.population), hc.Exact(size * seen.counts), dispersion=hc.Flocks(size)
    )
    return Case(problem, Truth(case.truth.evidence, [size * table for table in case.truth.flows]))


def varying(rng: np.random.Generator) -> Case | None:
    """Rows that vary."""
    people, rho = int(rng.integers(3, 21)), float(rng.choice([0.02, 0.1, 0.3]))
    world = drawn(map_kind(rng), 3, 2, people, rng)
    found = varying_rows(world.p, 1 / rho - 1, *world.counts)
    problem = hc.Problem(
        world.chain, people, hc.Exact(world.counts.astype(float)), dispersion=hc.Overdispersion(rho=rho)
    )
    return Case(problem, Truth(log_multinomial(world.counts[0], world.initial) + found.log_sum, [found.mean]))


def coming_and_going(rng: np.random.Generator) -> Case | None:
    """Arrivals and survival: [x^c] Π_i (1 − s + s Σ_j P_ij x_j)^{n_i} e^{Σ λ_j (x_j − 1)}."""
    cells, length = int(rng.integers(1, 4)), int(rng.integers(2, 4))
    p = matrix(map_kind(rng), 3, rng)[:cells, :cells] + 1e-3
    p /= p.sum(axis=1, keepdims=True)
    first, arrivals, survival = (
        rng.uniform(1, 6, cells),
        float(rng.choice([0.0, 1.5])),
        float(rng.choice([0.0, 0.5, 0.8, 1.0])),
    )
    counts = [rng.poisson(first)]
    for _ in range(length - 1):
        left = rng.binomial(counts[-1], survival)
        counts.append(
            sum(rng.multinomial(n, p[i]) for i, n in enumerate(left)) + rng.poisson(arrivals, cells)
        )
    table = np.array(counts)
    if table.sum() == 0 or np.prod(table + 1.0, axis=1).max() > MOST_STATES:
        return None
    evidence = float((table[0] * np.log(first) - first - gammaln(table[0] + 1)).sum())
    for before, after in itertools.pairwise(table):
        poly = np.zeros(tuple(after + 1))
        for n in np.ndindex(poly.shape):
            k = np.array(n)
            if arrivals > 0 or not k.any():
                poly[n] = math.exp(
                    float((k * math.log(max(arrivals, 1e-300)) - arrivals - gammaln(k + 1)).sum())
                )
        for row, count in zip(p, before, strict=True):
            gone = Paths(
                np.vstack([np.zeros(cells, int), np.eye(cells, dtype=int)]),
                np.append(1 - survival, survival * row),
                row,
            )
            for _ in range(count):
                poly = times(poly, gone)
        evidence += math.log(float(poly.ravel()[-1]))
    chain = hc.OpenChain(first, p, arrivals=arrivals, survival=survival, length=length)
    return Case(hc.Problem(chain, observations=hc.Exact(table.astype(float))), Truth(evidence, []))


KINDS: dict[str, Callable[[np.random.Generator], Case | None]] = {
    **{f"{kind}, all times": counted(kind) for kind in ("ring", "sparse", "grid", "dense", "stayers")},
    "hidden times": hidden_times,
    "hidden cells": hidden_cells,
    "unknown number, hidden cells": unknown_number,
    "unknown number, counted": unknown_but_counted,
    "two groups": two_groups,
    "two groups, one of unknown size": group_of_unknown_size,
    "flocks": flocks,
    "rows that vary": varying,
    "arrivals and survival": coming_and_going,
}


def cases(name: str, number: int) -> list[Case]:
    """So many problems of one kind."""
    made: list[Case] = []
    for seed in itertools.count():
        if len(made) == number:
            return made
        case = KINDS[name](np.random.default_rng([list(KINDS).index(name), seed]))
        if case is not None:
            made.append(case)
    raise AssertionError


def judged(case: Case, engine: str | None = None) -> dict[str, Any]:
    """How far an engine, or what `infer` picks, is off."""
    post = hc.infer(case.problem, engine, rng=1, strict=False)
    names, beyond, off = case.problem.model.variables, 0.0, 0.0
    for pair, exact in zip(itertools.pairwise(names), case.truth.flows, strict=False):
        miss = np.abs(post.beliefs.mean(pair) - exact)
        stated = getattr(post.beliefs, "error", lambda pair: 0.0)  # of samples
        sd = np.sqrt(np.maximum(post.beliefs.variance(pair), 0.0))
        allowed = np.maximum(np.maximum(FLOW, SHARE * sd), 4 * np.asarray(stated(pair)))
        off, beyond = max(off, float(miss.max())), max(beyond, float((miss / allowed).max()))
    given = post.log_evidence is not None
    nats = abs(post.log_evidence - case.truth.evidence) if given else math.nan
    good = bool(post.status.good)
    wrong = good and (beyond > 1 or (given and nats > WRONG))
    return {"engine": post.engine, "good": good, "nats": nats, "flow": off, "wrong": wrong}


def sharp(*, quick: bool) -> tuple[list[Check], Table]:
    """Sharp readings of at most six individuals, by what `infer` picks and by tilted EP."""
    checks, rows = [], []
    asked = [p for p in map(read_sharply, range(SHARP_QUICK if quick else SHARP)) if p is not None]
    true = [hc.infer(problem, hc.engines.Enumerate()).log_evidence for problem in asked]
    for engine in (None, "TiltedEP"):
        found = [hc.infer(problem, engine, rng=1, strict=False) for problem in asked]
        pairs = [
            (abs(post.log_evidence - t), post)
            for post, t in zip(found, true, strict=True)
            if post.status.good
        ]
        nats = np.array([off for off, _ in pairs])
        silent = sum(off > WRONG and "sharp_readings" not in post.diagnostics for off, post in pairs)
        name = engine or "as picked"
        rows.append(
            [
                name,
                len(found),
                len(pairs),
                np.quantile(nats, 0.9),
                nats.max(),
                int((nats > WRONG).sum()),
                silent,
            ]
        )
        checks.append(
            Check(f"sharp readings, {name}: off by more than .5 nats and not said", silent, at_most=0)
        )
    columns = [
        "engine",
        "problems",
        "good status",
        "nats off, nine in ten",
        "worst",
        "beyond .5",
        "of them not said",
    ]
    return checks, Table("Sharp readings of few individuals", columns, rows)


def row_of(name: str, found: list[dict[str, Any]]) -> list[Any]:
    """One kind, as a row of a table."""
    nats = np.array([f["nats"] for f in found])
    known = nats[np.isfinite(nats)]
    worst = [np.quantile(known, 0.9), known.max()] if len(known) else [None, None]
    flow = max(f["flow"] for f in found) if any(f["flow"] for f in found) else None
    engines = ", ".join(sorted({f["engine"] for f in found}))
    good, wrong = (sum(f[k] for f in found) for k in ("good", "wrong"))
    return [name, engines, len(found), len(known), *worst, flow, good, wrong]


def run(*, quick: bool) -> Report:
    """All kinds."""
    rows, tilted, every = [], [], []
    for name in KINDS:
        asked = cases(name, QUICK if quick else EACH)
        found = [{"kind": name, **judged(case)} for case in asked]
        every += found
        rows.append(row_of(name, found))
        if "hidden" in name or "groups" in name:
            tilted.append(row_of(name, [judged(case, "TiltedEP") for case in asked]))
    promised = [f for f in every if "hidden" not in f["kind"] and "groups" not in f["kind"]]
    checks = [
        Check(
            "one kind counted at all times: converged and wrong",
            sum(f["wrong"] for f in promised),
            at_most=0,
            note=f"of {len(promised)}",
        ),
        Check(
            "one kind counted at all times: largest error of an evidence (nats)",
            float(np.nanmax([f["nats"] for f in promised if f["good"]])),
            at_most=WRONG,
        ),
        Check(
            "hidden times, cells or groups: converged and wrong",
            sum(f["wrong"] for f in every) - sum(f["wrong"] for f in promised),
            at_most=0,
            note=f"of {len(every) - len(promised)}",
        ),
        Check("answers with a good status", float(np.mean([f["good"] for f in every])), at_least=0.95),
    ]
    columns = [
        "kind",
        "engines",
        "problems",
        "with evidence",
        "nats off, nine in ten",
        "worst",
        "worst flow, individuals",
        "good status",
        "wrong",
    ]
    more, sharp_table = sharp(quick=quick)
    return Report(
        "exact_evidence",
        "Exact counts of at most 40 individuals: the evidence against the sum over all populations.",
        checks=checks + more,
        tables=[
            Table("As picked", columns, rows),
            Table("Hidden times, cells or groups by tilted EP", columns, tilted),
            sharp_table,
        ],
        seeds=list(range(EACH)),
    )
