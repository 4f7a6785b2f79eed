"""Claim: where individuals move in company, 90 % intervals hold the truth nine times out of ten, once the model knows of it or finds it.

Six times, four cells, N = 1000 and 1 000 000. Flocks of 2, 5 and 20 live together; or each row of the moves is drawn anew from a Dirichlet
with intra-class correlation rho at every step. The margins are seen exactly (flows are in doubt), or as Poisson counts (cells and the
totals of two cells, too). Intervals are held against the truth with the true dispersion, with the one estimated from the same data, and
with none. Several small tables share one rho in the last part (partial pooling).
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtri

import headcount as hc
from benchmarks._report import Check, Report, Table
from headcount import simulate

LEVEL = 0.9
POPULATIONS = (1_000, 1_000_000)
CASES: tuple[Any, ...] = (
    hc.Flocks(2),
    hc.Flocks(5),
    hc.Flocks(20),
    hc.Company(rho=0.001),
    hc.Company(rho=0.01),
    hc.Company(rho=0.1),
)
WORLDS = 10
WORKERS = 2
MOVES = np.array([[0.7, 0.2, 0.1, 0.0], [0.15, 0.6, 0.15, 0.1], [0.1, 0.2, 0.6, 0.1], [0.0, 0.1, 0.3, 0.6]])
START = (0.4, 0.3, 0.2, 0.1)
TIMES = 6
NOISES = {"exact": (simulate.exact, hc.Exact), "poisson": (simulate.poisson, hc.Poisson)}
DEGREES = 8
"""Roughly how many of a world's intervals are independent: five steps of at most three degrees of freedom, half of them in doubt."""
PROBLEMS, POOLED_RHO = 200, 0.03
"""Small tables that share one rho: how many, and the rho."""
SMALLEST, LARGEST = 100, 30_000
"""Individuals in a table, between these on a log scale: without rho the largest tables decide what all others look like."""


@dataclass
class Held:
    """Intervals held and asked, and what was estimated."""

    held: dict[str, list[float]] = field(default_factory=dict)
    inside: list[bool] = field(default_factory=list)
    """Whether the estimate's interval holds the truth."""
    right: list[bool] = field(default_factory=list)
    """Whether the true form has the most evidence."""

    def add(self, name: str, truth: Any, lower: Any, upper: Any) -> None:
        """Hold intervals against the truth."""
        inside = (np.asarray(truth) >= lower) & (np.asarray(truth) <= upper)
        self.held.setdefault(name, []).append(float(np.mean(inside)))

    def share(self, name: str) -> float:
        """The share held."""
        return float(np.mean(self.held[name]))


def run(*, quick: bool) -> Report:
    worlds = 4 if quick else WORLDS
    tasks = [(case, n, noise, worlds) for n in POPULATIONS for case in CASES for noise in NOISES]
    rows, checks = [], []
    with ProcessPoolExecutor(WORKERS) as pool:
        tables = pool.submit(small_tables, 24 if quick else PROBLEMS)
        for (case, population, noise, _), found in zip(tasks, pool.map(_coverage, tasks), strict=True):
            what = ("flows",) if noise == "exact" else ("cells", "flows", "totals")
            for name in what:
                shares = [found.share(f"{name}, {way}") for way in ("true", "estimated", "ignored")]
                rows.append([case.text, population, noise, name, *shares])
            checks += _checks(f"{case.text}, N = {population:,}, {noise}", found, what, worlds)
        pooled, more = tables.result()
    columns = ["moving together", "N", "counts", "intervals of", "true", "estimated", "ignored"]
    return Report(
        "dispersion",
        "How often 90 % intervals hold the truth where individuals move in company: with the true dispersion, an estimated one, and none.",
        checks=[*checks, *more],
        tables=[
            Table(
                "Coverage of 90 % intervals", columns, rows, f"{worlds} worlds each, six times, four cells."
            ),
            pooled,
        ],
        seeds=list(range(1, worlds + 1)),
    )


def _coverage(task: tuple[Any, int, str, int]) -> Held:
    return coverage(*task)


def _checks(label: str, found: Held, what: tuple[str, ...], worlds: int) -> list[Check]:
    slack = 3 * float(np.sqrt(0.09 / (DEGREES * worlds)))
    bounds = {"at_least": min(0.85, 0.9 - slack), "at_most": max(0.95, 0.9 + slack)}
    made = [
        Check(
            f"{label}: coverage of {name} with the {way} dispersion", found.share(f"{name}, {way}"), **bounds
        )
        for name in what
        for way in ("true", "estimated")
    ]
    # A 90 % interval's share among so many worlds, three standard errors below.
    least = 0.9 - 3 * float(np.sqrt(0.09 / worlds))
    made.append(
        Check(
            f"{label}: estimates whose 90 % interval holds the truth",
            float(np.mean(found.inside)),
            at_least=least,
        )
    )
    return made


def coverage(case: Any, population: int, noise: str, worlds: int) -> Held:
    """Intervals of one case, three ways."""
    model = hc.MarkovChain(START, MOVES, length=TIMES)
    observe, kind = NOISES[noise]
    form, true = ("flocks", case.size) if isinstance(case, hc.Flocks) else ("rho", case.rho)
    found = Held()
    for seed in range(1, worlds + 1):
        world = simulate.population(model, population, dispersion=case, observe=observe(), rng=seed)
        problem = hc.Problem(model, population, [kind(world.observed)])
        estimated = hc.infer(problem, dispersion="estimate")
        answers = {
            "true": hc.infer(problem, dispersion=case),
            "estimated": estimated,
            "ignored": hc.infer(problem),
        }
        own = hc.infer(problem, dispersion=f"estimate:{form}").dispersion_estimate
        assert own is not None
        assert estimated.dispersion_estimate is not None
        found.inside.append(own.lower <= true <= own.upper)
        found.right.append(estimated.dispersion_estimate.form == form)
        for way, post in answers.items():
            for t in range(TIMES):
                if t:
                    found.add(f"flows, {way}", world.flows[t - 1], *post.interval_tables((t - 1, t), LEVEL))
                if noise == "poisson":
                    found.add(f"cells, {way}", world.counts[t], *post.interval_tables((t,), LEVEL))
                    _add_total(found, way, post, world.counts[t], t)
    return found


def _add_total(found: Held, way: str, post: Any, counts: Any, t: int) -> None:
    """The total of the first two cells."""
    mean, sd = post.beliefs.mean((t,))[:2].sum(), np.sqrt(post.beliefs.covariance((t,), (t,))[:2, :2].sum())
    wide = ndtri(0.5 + LEVEL / 2) * sd
    found.add(f"totals, {way}", counts[:2].sum(), mean - wide, mean + wide)


def small_tables(problems: int) -> tuple[Table, list[Check]]:
    """Many tables of 3 × 3 with exact margins, whose rows vary with one rho around one matrix: both learned together, or rho = 0."""
    rng = np.random.default_rng(1)
    moves = np.array([[0.7, 0.2, 0.1], [0.15, 0.7, 0.15], [0.1, 0.3, 0.6]])
    company = hc.Company(rho=POOLED_RHO)
    worlds, asked = [], []
    for _ in range(problems):
        start = rng.dirichlet(np.ones(3))
        members = round(float(np.exp(rng.uniform(np.log(SMALLEST), np.log(LARGEST)))))
        model = hc.MarkovChain(start, moves, length=2)
        world = simulate.population(model, members, dispersion=company, observe=simulate.exact(), rng=rng)
        worlds.append(world)
        asked.append(hc.Problem(model, members, [hc.Exact(world.observed)]))
    rows, misplaced = [], {}
    for way, dispersion in (("rho learned", "estimate:rho"), ("rho = 0", None)):
        made = hc.fit(hc.TabularChain(), asked, dispersion=dispersion, strict=False)
        off, held = [], []
        for world, post in zip(worlds, made.posteriors, strict=True):
            off.append(0.5 * np.abs(world.flows[0] - post.beliefs.mean((0, 1))).sum() / world.flows[0].sum())
            lower, upper = post.interval_tables((0, 1), LEVEL)
            held.append(np.mean((world.flows[0] >= lower) & (world.flows[0] <= upper)))
        misplaced[way] = float(np.mean(off))
        value = made.dispersion.value if made.dispersion is not None else 0.0
        rows.append([way, value, misplaced[way], float(np.mean(held)), made.status.value])
    name = f"{problems} tables of 3 × 3, rho = {POOLED_RHO:g}"
    checks = [
        Check(f"{name}: coverage of flows, rho learned", rows[0][3], at_least=0.85, at_most=0.95),
        Check(
            f"{name}: misplaced share, rho learned over rho = 0",
            misplaced["rho learned"] / misplaced["rho = 0"],
            at_most=0.8,
        ),
    ]
    columns = ["model", "rho", "misplaced share", "coverage of 90 % intervals", "status"]
    return Table(
        "Many small tables",
        columns,
        rows,
        f"{SMALLEST} to {LARGEST:,} individuals in each, both margins exact.",
    ), checks
