"""Random combinations of everything that is known of populations: sizes, groups, weights, tags, arrivals, dispersion, noises, tables.

Every combination is made from individuals that are drawn one by one, so that exact counts and tags are possible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import headcount as hc

SIZES = ("known", "about", "between", "unknown")
KINDS = ("one", "two groups", "weights")
TAGS = ("none", "counted", "apart")
OPEN = (False, True)
TOGETHER = ("alone", "flocks", "phi", "rho")
NOISES = ("poisson", "binomial", "gaussian", "exact")
TABLES = ("cells", "flows", "sums")


@dataclass(frozen=True)
class Combination:
    """One choice of each, and the number of individuals per group, about."""

    size: str
    kind: str
    tags: str
    opens: bool
    together: str
    noise: str
    table: str
    people: int
    seed: int

    @property
    def name(self) -> str:
        """In words."""
        opens = "open" if self.opens else "closed"
        parts = (self.size, self.kind, f"tags {self.tags}", opens, self.together, self.noise, self.table)
        return ", ".join(parts) + f" (seed {self.seed})"


def random_combination(seed: int, people: int = 4) -> Combination:
    """A combination that people can have: an open population says its own numbers."""
    rng = np.random.default_rng([41, seed])
    pick = lambda choices: choices[int(rng.integers(len(choices)))]  # noqa: E731
    opens = bool(rng.random() < 0.25)
    size = "known" if opens else pick(SIZES)
    return Combination(
        size, pick(KINDS), pick(TAGS), opens, pick(TOGETHER), pick(NOISES), pick(TABLES), people, seed
    )


def law_of(size: str, number: int) -> Any:
    """What is said of a number."""
    return {
        "known": number,
        "about": hc.About(number, sd=max(1.0, 0.4 * number)),
        "between": hc.Between(max(number - 3, 0), number + 3),
        "unknown": hc.Unknown(),
    }[size]


def problem_of(case: Combination) -> hc.Problem:
    """The problem, with data drawn from it."""
    rng = np.random.default_rng([42, case.seed])
    flock = 2 if case.together == "flocks" else 1
    names = [None] if case.kind == "one" else ["a", "b"]
    weights = {None: 1, "a": 2 if case.kind == "weights" else 1, "b": 1}
    times = 2 if case.opens else 3
    groups: dict[Any, Any] = {}
    flows = np.zeros((times - 1, 2, 2))
    nodes = np.zeros((times, 2))
    tags: list[dict[str, Any]] = []
    for name in names:
        start, moves = rng.dirichlet([2, 2]), rng.dirichlet([2, 2], 2)
        units = max(1, round(case.people / flock))
        if case.opens:
            model = hc.OpenChain(units * flock * start, moves, arrivals=0.7, survival=0.8, length=times)
            number, size = max(1, rng.poisson(model.expected_number / flock)), None
        else:
            model = hc.MarkovChain(start, moves, length=times)
            number, size = units, law_of(case.size, units * flock)
        larger = model.larger()
        tree = larger.tree
        labels = {v: tuple(range(n)) for v, n in zip(tree.variables, tree.sizes, strict=True)}
        paths = hc.MarkovChain.from_rooted(tree, labels).sample(number, rng=rng)
        cells = np.stack([larger.cells[t][paths[:, t]] for t in range(times)], axis=1)
        each = flock * weights[name]
        for t in range(times):
            for i in (0, 1):
                nodes[t, i] += each * (cells[:, t] == i).sum()
        for t in range(times - 1):
            for i in (0, 1):
                for j in (0, 1):
                    flows[t, i, j] += each * ((cells[:, t] == i) & (cells[:, t + 1] == j)).sum()
        if case.tags != "none":
            for t in range(times):
                if cells[0, t] >= 0:
                    tags.append({"id": f"{name}", "time": t, "cell": int(cells[0, t]), "group": name})
        groups[name] = hc.Group(model, size, weight=weights[name])
    together = {
        "alone": None,
        "flocks": hc.Flocks(2),
        "phi": hc.Overdispersion(phi=1.5),
        "rho": hc.Overdispersion(rho=0.1),
    }[case.together]
    seen: list[Any] = [_observed(case, nodes, flows, rng)]
    if tags:
        columns = {k: [row[k] for row in tags] for k in ("id", "time", "cell", "group")}
        if case.kind == "one":
            columns.pop("group")
        seen.append(hc.Tracks(columns, counted=case.tags == "counted"))
    if case.kind == "one":
        only = groups[None]
        return hc.Problem(only.model, only.size, seen, dispersion=together)
    return hc.Problem(groups=groups, observations=seen, dispersion=together)


def _observed(case: Combination, nodes: np.ndarray, flows: np.ndarray, rng: np.random.Generator) -> Any:
    """What is seen of the true tables: cells at the first and last time, the flows of the first step, or totals."""
    last = len(nodes) - 1
    if case.table == "flows":
        true, where = flows[0], {"on": (0, 1)}
    elif case.table == "sums":
        true, where = nodes[[last]].sum(axis=1), {"on": last, "sums": [[1.0, 1.0]]}
    else:
        true, where = nodes[last], {"on": last}
    if case.noise == "poisson":
        return hc.Poisson(rng.poisson(true).astype(float), **where)
    if case.noise == "binomial":
        return hc.Binomial(rng.binomial(true.astype(int), 0.6).astype(float), detection=0.6, **where)
    if case.noise == "gaussian":
        return hc.Gaussian(true + rng.normal(0, 1.5, true.shape), sd=1.5, **where)
    return hc.Exact(true, **where)
